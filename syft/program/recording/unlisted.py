"""Torch functions that have no number: which of them may run while a function is recorded.

Most are refused: a program cannot hold them.  Some leave nothing behind that an action would have
to make, because they concern this process alone; those just run.
"""

from __future__ import annotations

from typing import Any

from syft.exceptions import CannotRecord
from syft.ops.table import REFUSED_NAMES, Function, name_of
from syft.program.recording.source_line import user_line
from syft.ops.nested import Arguments, Keywords

_LOCAL = frozenset(
    (
        "grad mode is state of the worker; every command carries its own",
        "autocast is state of the worker; every command carries its own",
        "each side shows for itself: get() the tensor, if you may",
        "a tensor is hashed by its identity, which is local",
        "it gives out raw memory addresses",
        "it gives out the raw memory of a tensor, all of it and not only what the tensor shows",
        "it reaches into the counts that keep the tensor alive",
        "it makes a Python value, which is local: make it where you are",
        "it belongs to the profiler, which watches its own process",
        "it computes with Python numbers, which are local",
    )
)
"""Reasons why another worker runs a function for nobody that are none against running it here."""
_LOCAL_NAMES = frozenset(
    ("torch.Tensor._backward_hooks.__get__", "torch.Tensor._post_accumulate_grad_hooks.__get__")
)


def run_unlisted(function: Function, args: Arguments, kwargs: Keywords) -> Any:
    """Run a function that has no number, unrecorded.

    Raises :class:`~syft.exceptions.CannotRecord` if what it does would be missing in a program.

    >>> import torch
    >>> run_unlisted(torch.Tensor.__repr__, (torch.ones(1),), {})
    'tensor([1.])'
    """
    name = name_of(function)
    reason = REFUSED_NAMES.get(name)
    if reason in _LOCAL or name in _LOCAL_NAMES:
        return function(*args, **kwargs)
    instead = reason or "it has no number; write it with other torch operations"
    raise CannotRecord(name, str(user_line()), instead)
