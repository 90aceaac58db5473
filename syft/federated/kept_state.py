"""What a run goes on with after its process was killed, as bytes: models, optimizers, generators.

The bytes are a frame of :mod:`syft.serde`, which holds values and tensors and no code.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from syft.chain.wrapper import Wrapper
from syft.exceptions import NotSendable, UnusableSetting
from syft.ops.nested import leaves
from syft.serde import deserialize, serialize
from syft.serde.limits import Limits

_OWN_FILE: Final = Limits(
    max_bytes=1 << 62, max_header_bytes=1 << 40, max_buffers=1 << 40, max_items=1 << 40
)
"""The user's own file is not a stranger's frame: a model of any size comes back."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a kind of object is read and set."""

    cls: type
    read: Callable[[Any], Any]
    set: Callable[[Any, Any], object]


def _set_tensor(tensor: torch.Tensor, value: torch.Tensor) -> None:
    tensor.data.copy_(value)


_KINDS: Final = (
    _Kind(nn.Module, lambda x: dict(x.state_dict()), lambda x, state: x.load_state_dict(state)),
    _Kind(Optimizer, lambda x: x.state_dict(), lambda x, state: x.load_state_dict(state)),
    _Kind(LRScheduler, lambda x: x.state_dict(), lambda x, state: x.load_state_dict(state)),
    _Kind(torch.Generator, lambda x: x.get_state(), lambda x, state: x.set_state(state)),
    _Kind(torch.Tensor, lambda x: x.detach(), _set_tensor),
)


class KeptState:
    """The objects of a run, which go on with what they were, and all global random generators.

    ``elements`` are modules, optimizers, learning rate schedulers, generators and tensors of this
    process.  Torch's generators, Python's and numpy's are kept besides.

    Raises :class:`~syft.exceptions.UnusableSetting` for anything else.

    >>> model = torch.nn.Linear(2, 1)
    >>> state = KeptState([model, torch.optim.SGD(model.parameters(), lr=0.1)])
    >>> kept = state.packed()
    >>> _ = torch.nn.init.zeros_(model.weight)
    >>> state.restore(kept)
    >>> bool(model.weight.any())
    True
    """

    def __init__(self, elements: Iterable[Any]) -> None:
        single = isinstance(elements, nn.Module | torch.Tensor | Optimizer)
        self._elements: list[tuple[Any, _Kind]] = [
            (element, _kind_of(element)) for element in ([elements] if single else elements)
        ]
        for value in leaves(self._values()):
            if type(value) is Wrapper:
                raise UnusableSetting("state", "in this process", "pointers")

    def __len__(self) -> int:
        return len(self._elements)

    def packed(self) -> bytes:
        """All of it as bytes.

        Raises :class:`~syft.exceptions.UnusableSetting` for what cannot be kept, as a function in
        the state of a scheduler.
        """
        try:
            kept = self._values(), self._rest(), _generators()
            return bytes(serialize(kept, compressed=False))
        except NotSendable as error:
            raise UnusableSetting("state", "of numbers, texts and tensors", str(error)) from error

    def restore(self, kept: bytes) -> None:
        """Set all objects and generators to what they were."""
        values, rest, generators = deserialize(kept, _OWN_FILE)
        for (element, kind), value, other in zip(self._elements, values, rest, strict=True):
            kind.set(element, value)
            _set_rest(element, *other)
        _set_generators(generators)

    def described(self) -> dict[str, str]:
        """What the objects are, without their numbers, to tell one run from another."""
        return {f"state[{at}]": _described(x, kind) for at, (x, kind) in enumerate(self._elements)}

    def digest(self) -> bytes:
        """A hash of the objects, without the global generators."""
        return hashlib.sha256(serialize(self._values(), compressed=False)).digest()

    def _rest(self) -> tuple[Any, ...]:
        return tuple(_rest_of(element) for element, _ in self._elements)

    def _values(self) -> tuple[Any, ...]:
        return tuple(kind.read(element) for element, kind in self._elements)


def _kind_of(element: Any) -> _Kind:
    for kind in _KINDS:
        if isinstance(element, kind.cls):
            return kind
    wanted = "modules, optimizers, schedulers, generators and tensors"
    raise UnusableSetting("state", wanted, f"a {type(element).__name__}")


def _rest_of(element: Any) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """What a ``state_dict`` lacks on which the next round may depend: buffers that are not
    persistent, and gradients that add up from round to round."""
    buffers: dict[str, torch.Tensor] = {}
    leaves_of: dict[str, torch.Tensor] = {}
    if isinstance(element, nn.Module):
        state = element.state_dict()
        buffers = {name: x for name, x in element.named_buffers() if name not in state}
        leaves_of = {**dict(element.named_parameters())}
    elif isinstance(element, torch.Tensor) and element.is_leaf:
        leaves_of = {"": element}
    return buffers, {name: x.grad for name, x in leaves_of.items() if x.grad is not None}


def _set_rest(
    element: Any, buffers: Mapping[str, torch.Tensor], gradients: Mapping[str, torch.Tensor]
) -> None:
    """Set what :func:`_rest_of` has kept."""
    there = dict(element.named_buffers()) if buffers else {}
    for name, value in buffers.items():
        old = there.get(name)
        if old is not None and (old.shape, old.dtype) == (value.shape, value.dtype):
            _set_tensor(old, value)
        else:
            path, _, last = name.rpartition(".")
            element.get_submodule(path).register_buffer(last, value, persistent=False)
    if isinstance(element, nn.Module):
        for name, parameter in element.named_parameters():
            parameter.grad = gradients.get(name)
    elif isinstance(element, torch.Tensor) and element.is_leaf:
        element.grad = gradients.get("")


def _described(element: Any, kind: _Kind) -> str:
    """The class of an object and, of a module or a tensor, its names, shapes and dtypes."""
    name = type(element).__name__
    if kind.cls not in (nn.Module, torch.Tensor):
        return name
    value = kind.read(element)
    table: Mapping[str, torch.Tensor] = value if isinstance(value, dict) else {"": value}
    lines = [f"{key} {tuple(x.shape)} {x.dtype}" for key, x in table.items()]
    if len(lines) <= 4:
        return f"{name} of {', '.join(line.strip() for line in lines) or 'nothing'}"
    marked = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
    return f"{name} of {len(lines)} tensors, {marked}"


# ------------------------------------------------------------------------------ generators


def _generators() -> dict[str, Any]:
    """The states of the global generators, as values and tensors."""
    version, words, gauss = random.getstate()
    kind, keys, *rest = np.random.get_state(legacy=True)
    devices = torch.cuda.get_rng_state_all() if torch.cuda.device_count() else []
    return {
        "torch": torch.get_rng_state(),
        "cuda": list(devices),
        "python": (version, torch.tensor(words), gauss),
        "numpy": (str(kind), torch.tensor(np.asarray(keys, dtype=np.int64)), *_plain(rest)),
    }


def _plain(numbers: Sequence[Any]) -> list[Any]:
    place, has_gauss, gauss = numbers
    return [int(place), int(has_gauss), float(gauss)]


def _set_generators(kept: Mapping[str, Any]) -> None:
    torch.set_rng_state(kept["torch"])
    if kept["cuda"]:
        torch.cuda.set_rng_state_all(kept["cuda"])
    version, words, gauss = kept["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    kind, keys, place, has_gauss, cached = kept["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), place, has_gauss, cached))
