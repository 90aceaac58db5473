"""Packing the arguments of a torch call for another worker, and refusing what must not go along.

A tensor that lies at the other worker travels as a reference.  One that lies elsewhere, this
process included, is refused with both places named: moving data silently would be wrong, and slow.
What does travel: Python values, 0-dimensional tensors (numbers in disguise), small indices and
masks, the source of ``copy_``, and the tensors torch's own modules make inside their forward: a
recurrent layer makes its first hidden state, an attention layer a mask, ``torch.masked.mean`` a
count.  So do the weights of the classes that a loss of torch's has, if they are small: a setting
of the loss, which nobody sends.  None of these travels if it is written to, or if a gradient would
have to come back to it.

``x[torch.randperm(16)[:4]]`` means positions in a tensor that is at another worker.  Integers and
bools in the place of an index are part of what is asked, as a number or a slice is, and not data
that somebody forgot to send.  So they go, as long as they are small.  Data never does so: a tensor
of floats, one that requires grad, a private one, one in any other place.

Tensors that a module of the user's makes inside its forward stand behind a link, and say
themselves that they go along (:mod:`syft.tensors.constant`).

Nothing about a tensor tells whether torch made it on the way, but the stack does: the caller's
tensors are among the arguments of the call by which the program entered torch, or held by a module
there.  Only a call that would otherwise be refused pays for the look.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from syft.callers import SYFT, TORCH
from syft.chain.wrapper import Wrapper
from syft.exceptions import DeviceMismatch, LocationMismatch
from syft.ops.calls import may_keep, mutated_argument
from syft.ops.nested import Arguments, Keywords, is_container, leaves, replace
from syft.ops.table import BY_NAME, COLUMNS, FLAGS, NAMES, ops_where
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.client.connection import Connection
from syft.workers.labels.memory_labels import full_guard_of

MOST_BYTES: Final = 2**20
"""An index of more bytes is to be sent by whoever wants it there: 131,072 positions in int64."""

_DTYPES: Final = frozenset(
    (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
)

_PLACES: Final = {
    op: [(int(place), name) for place, _, name in (one.partition(":") for one in value.split(","))]
    for op, value in COLUMNS["index"].items()
}
"""Where the indices of an operation stand, and what they are called."""
_TAKES_ARRAYS: Final = frozenset(
    BY_NAME[f"torch.Tensor.{name}"] for name in ("__getitem__", "__setitem__")
)


def indices_in(number: int, args: Arguments, kwargs: Keywords) -> list[torch.Tensor]:
    """The tensors in the place of the index of operation ``number`` that may travel along.

    >>> number, x, index = BY_NAME["torch.Tensor.__getitem__"], torch.ones(4), torch.tensor([2, 1])
    >>> indices_in(number, (x, (index, torch.tensor([0.5]))), {}) == [index]
    True
    """
    places = _PLACES.get(number)
    if places is None:
        return []
    given = [args[place : place + 1] or (kwargs.get(keyword),) for place, keyword in places]
    tensors = (value for value in leaves(given) if isinstance(value, torch.Tensor))
    return list(filter(is_small_index, tensors))


def is_small_index(tensor: torch.Tensor) -> bool:
    """Whether a tensor has the dtype and at most the size of an index that travels along.

    >>> is_small_index(torch.arange(4)), is_small_index(torch.ones(4))
    (True, False)
    """
    return tensor.dtype in _DTYPES and tensor.numel() * tensor.itemsize <= MOST_BYTES


def with_tensors(number: int, args: Arguments) -> Arguments:
    """The arguments with tensors in the place of numpy arrays, if those are indices.

    >>> number = BY_NAME["torch.Tensor.__getitem__"]
    >>> with_tensors(number, (torch.ones(2), np.array([1])))
    (tensor([1., 1.]), tensor([1]))
    """
    if number not in _TAKES_ARRAYS:
        return args
    return (args[0], replace(args[1], _as_tensor), *args[2:])


def _as_tensor(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


_MAKERS = tuple(os.path.join(TORCH, folder) + os.sep for folder in ("nn", "masked"))
"""Folders of torch with Python code that makes tensors of its own and computes with the caller's.
"""


def made_by_torch(tensor: torch.Tensor) -> bool:
    """Whether torch's own modules made the tensor, rather than being given it; or have it as the
    weights of a loss, which are a setting.

    >>> made_by_torch(torch.ones(2))
    False
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _passes_on(frame):
        frame = frame.f_back
    entry: FrameType | None = None
    in_maker = False
    while frame is not None and frame.f_code.co_filename.startswith(TORCH):
        in_maker = in_maker or frame.f_code.co_filename.startswith(_MAKERS)
        entry, frame = frame, frame.f_back
    if entry is None or not in_maker:
        return False
    return not any(given is tensor for given in _given(entry)) or _weighs_a_loss(tensor, entry)


def _weighs_a_loss(tensor: torch.Tensor, entry: FrameType) -> bool:
    """Whether a small tensor is a buffer of the loss of torch's that the program calls."""
    loss = entry.f_locals.get("self")
    if type(loss).__module__ != _LOSSES or tensor.nbytes > MOST_BYTES:
        return False
    return any(tensor is buffer for buffer in vars(loss)["_buffers"].values())


_LOSSES: Final = torch.nn.modules.loss.__name__


def _passes_on(frame: FrameType) -> bool:
    """Whether a frame only carries a call: ours, and those of somebody's torch function modes."""
    code = frame.f_code
    return code.co_filename.startswith(SYFT) or code.co_name == "__torch_function__"


def _given(entry: FrameType) -> Iterator[Any]:
    """Everything the caller handed to a function: the arguments, and what modules there hold."""
    arguments = inspect.getargvalues(entry)
    names = [*arguments.args, arguments.varargs, arguments.keywords]
    for leaf in leaves([arguments.locals.get(name) for name in names if name is not None]):
        yield leaf
        if isinstance(leaf, nn.Module):
            for part in leaf.modules():
                yield from leaves(vars(part))


_BARE = frozenset((int, float, bool, str, type(None)))

_CARRIES_PLAIN = ops_where("operand", "local")


class Operands:
    """Packs the arguments of one command; the packer gathers the data that travels along."""

    __slots__ = ("connection", "number", "packer", "_indices", "_target", "_keywords")

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.packer = Packer(worker=connection.owner.core, destination=connection)
        self._indices: list[torch.Tensor] = []
        self._target: Any = None
        self._keywords: Keywords = {}

    def pack(self, args: Arguments, kwargs: Keywords) -> tuple[Arguments, Keywords | None]:
        """The arguments as operands; raises :class:`~syft.exceptions.LocationMismatch`."""
        args, self._keywords = with_tensors(self.number, args), kwargs
        self._indices = indices_in(self.number, args, kwargs)
        self._target = mutated_argument(FLAGS[self.number], args, kwargs)
        self._check(args)
        self._check(tuple(kwargs.values()))
        self._check_written()
        packed = tuple(
            arg if type(arg) in _BARE and type(arg) is not int else pack(arg, self.packer)
            for arg in args
        )
        if not kwargs:
            return packed, None
        return packed, {name: pack(value, self.packer) for name, value in kwargs.items()}

    def _check(self, args: Arguments) -> None:
        for arg in args:
            if isinstance(arg, torch.Tensor):
                self._check_tensor(arg)
            elif is_container(arg) or type(arg) is slice:
                for leaf in leaves(arg):
                    if isinstance(leaf, torch.Tensor):
                        self._check_tensor(leaf)

    def _check_tensor(self, tensor: torch.Tensor) -> None:
        if type(tensor) is Wrapper:
            kept = tensor.child.goes_along and may_keep(FLAGS[self.number], self._target, tensor)
            if kept:
                tensor.child.go_to(self.connection)
            stays = kept and tensor.child.goes_along  # a copy of it would be written to
            if stays or tensor.child.reference(self.connection) is None:
                self._mismatch(tensor, tensor.child.place(), tensor.child.location)
            self.connection = _with_device(tensor, self.connection)
        elif tensor.requires_grad and torch.is_grad_enabled() or not self._may_travel(tensor):
            self._mismatch(tensor, self.connection.owner.id)

    def _may_travel(self, tensor: torch.Tensor) -> bool:
        if full_guard_of(tensor) is not None:
            return False  # it would arrive without its guard
        if not tensor.dim() or self.number in _CARRIES_PLAIN:
            return True
        return any(tensor is index for index in self._indices) or made_by_torch(tensor)

    def _check_written(self) -> None:
        for leaf in leaves(self._target):
            if isinstance(leaf, torch.Tensor) and type(leaf) is not Wrapper:
                self._mismatch(leaf, self.connection.owner.id)

    def _mismatch(self, tensor: torch.Tensor, place: str, location: Any = None) -> None:
        there = self.connection.location.id
        if location not in (None, self.connection.location) and place == there:
            place, there = repr(location), repr(self.connection.location)  # it is asked as a user
        elif place == there:  # a pointer to the caller's own store, and a tensor that is not in it
            place = "here (not behind a pointer)"
        names = [name for name, value in self._keywords.items() if value is tensor]
        error = LocationMismatch if self.connection.device is None else DeviceMismatch
        raise _mismatched(error, NAMES[self.number], (there, place), tensor, names)


def _with_device(tensor: Wrapper, connection: Connection) -> Connection:
    """The connection of an operand if it is on a device, where what comes of it is, too."""
    mine: Connection = getattr(tensor.child, "connection", connection)
    return connection if mine.device is None else mine


def _mismatched(
    kind: type[LocationMismatch],
    op: str,
    places: tuple[str, str],
    tensor: torch.Tensor,
    names: list[str],
) -> LocationMismatch:
    """The error, with a note about an operand that is here (made here: a frame that holds what it
    raises would keep the pointers among the operands)."""
    error = kind(op, places)
    if type(tensor) is not Wrapper:
        is_part = isinstance(tensor, nn.Parameter)
        what = "A parameter" if is_part else "The tensor"
        cure = "send its module, model" if is_part else "x"
        verb = "to" if kind is DeviceMismatch else "send"
        given = f" ({names[0]}=)" if names else ""
        rest = "; if a module holds it, send that" if names and not is_part else ""
        about = f"{what} of shape {tuple(tensor.shape)} is here{given}"
        error.add_note(f"{about}: {cure}.{verb}({places[0]}){rest}.")
    return error
