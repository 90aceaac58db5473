"""What memory held before, looked for in all the memory that results lie in.

Freed memory may hold what a worker had there for others.  So calls of torch's own databases are
made in two processes, in which the C library fills all memory that it hands out with another byte.
The bytes of all memory that results, gradients and operands lie in are compared: where they differ,
somebody would read what was there before, in the values or behind them (``as_strided``).
"""

from __future__ import annotations

import ctypes
import hashlib
import multiprocessing
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch

from syft.ops.nested import leaves, replace
from syft.ops.table import BY_NAME
from syft.workers.hardening.unwritten import sizes_within_memory
from syft.workers.labels.walk import storages_of
from tests.privacy.two_worlds.samples import Sample
from tests.torch_suite.cases import seed

Functions = Sequence[Callable[..., Any] | None]

CONTENTS = 85, 170
"""The bytes: each is the other one with all bits turned, so that no number is the same."""
FILL = -6
"""The number of the option ``M_PERTURB`` of ``mallopt``."""
PATIENCE = 300
"""Seconds after which a process counts as one that does not end."""


def is_filled() -> bool:
    """Whether the C library fills memory on request: glibc does."""
    return sys.platform == "linux" and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")


def differing(calls: Sequence[tuple[str, Sample]], functions: Functions) -> list[str]:
    """The calls whose memory shows what was there before, by the name of the operation and what was
    asked of it: ``forward``, ``backward`` or ``out``."""
    one, other = (_in_a_process(calls, functions, content) for content in CONTENTS)
    assert len(one) == len(other) and one
    return sorted({name for (name, mine), (_, its) in zip(one, other, strict=True) if mine != its})


def _in_a_process(
    calls: Sequence[tuple[str, Sample]], functions: Functions, content: int
) -> list[tuple[str, bytes]]:
    context = multiprocessing.get_context("fork")  # it has the samples already
    reader, writer = context.Pipe(duplex=False)
    child = context.Process(target=_serve, args=(calls, functions, content, writer))
    child.start()
    writer.close()
    try:
        assert reader.poll(PATIENCE), "the calls do not come to an end"
        found: list[tuple[str, bytes]] = reader.recv()
        return found
    finally:
        child.kill()
        child.join()
        reader.close()


def _serve(
    calls: Iterable[tuple[str, Sample]], functions: Functions, content: int, writer: Connection
) -> None:
    warnings.simplefilter("ignore")
    ctypes.CDLL(None).mallopt(FILL, content)
    writer.send([shown for name, sample in calls for shown in _shown(name, sample, functions)])


def _shown(name: str, sample: Sample, functions: Functions) -> Iterator[tuple[str, bytes]]:
    """The memory of one call, and of its gradients; the same with ``out=``."""
    function = functions[BY_NAME[name]]
    given = replace((sample.args, sample.kwargs), _own)
    result = _called(function, *given)
    yield f"{name} forward", _memory((result, given))
    if isinstance(result, Exception):
        return
    wanted = [leaf for leaf in leaves(given) if _is_leaf(leaf)]
    derived = [leaf for leaf in leaves(result) if _is_derived(leaf)]
    if wanted and derived:
        grad = functions[BY_NAME["torch.autograd.grad"]]
        starts = [torch.ones_like(leaf) for leaf in derived]
        options = {"allow_unused": True}
        yield f"{name} backward", _memory(_called(grad, (derived, wanted, starts), options))
    if type(result) is torch.Tensor and "out" not in sample.kwargs:
        for size in (0, 2):
            args, kwargs = replace((sample.args, sample.kwargs), _without_graph)
            kwargs["out"] = torch.ones(size, dtype=result.dtype)
            if not isinstance(_called(function, args, kwargs), TypeError):
                yield f"{name} out", _memory(kwargs["out"])


def _called(function: Any, args: Any, kwargs: Any) -> Any:
    """The result, or the exception."""
    seed()
    try:
        with sizes_within_memory((args, kwargs)):
            return function(*args, **kwargs)
    except Exception as error:
        return error


def _own(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
        return leaf
    return leaf.detach().clone().requires_grad_(leaf.requires_grad)


def _without_graph(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def _is_leaf(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.is_leaf


def _is_derived(leaf: Any) -> bool:
    strided = isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided
    return strided and leaf.grad_fn is not None


def _memory(values: Any) -> bytes:
    """The bytes of all memory of some values, as one number."""
    found = hashlib.sha256()
    for leaf in leaves(values):
        if not isinstance(leaf, torch.Tensor):
            found.update(repr(leaf).encode() if isinstance(leaf, (bool, int, float)) else b"")
        elif leaf.layout is not torch.strided or not leaf._is_zerotensor():  # which has no memory
            for storage in storages_of(leaf):
                there = torch.empty(0, dtype=torch.uint8).set_(storage)
                found.update(there.numpy().tobytes())
    return found.digest()
