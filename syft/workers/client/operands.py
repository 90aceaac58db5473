"""Packing the arguments of a torch call for another worker, and refusing what must not go along.

A tensor that lies at the other worker travels as a reference.  One that lies elsewhere, this
process included, is refused with both places named: moving data silently would be wrong, and slow.
What does travel: Python values, 0-dimensional tensors (numbers in disguise), small indices and
masks (:mod:`~syft.workers.client.index_operands`), the source of ``copy_``, and the tensors torch's
own modules make inside their forward.  None of these travels if it is written to, or if a gradient
would have to come back to it.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.chain.wrapper import Wrapper
from syft.exceptions import LocationMismatch
from syft.ops.calls import mutated_argument
from syft.ops.nested import Arguments, Keywords, is_container, leaves
from syft.ops.table import FLAGS, NAMES, ops_where
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.client.connection import Connection
from syft.workers.client.index_operands import indices_in, with_tensors
from syft.workers.client.provenance import made_by_torch
from syft.workers.labels.memory_labels import full_guard_of

_BARE = frozenset((int, float, bool, str, type(None)))

_CARRIES_PLAIN = ops_where("operand", "local")


class Operands:
    """Packs the arguments of one command; the packer gathers the data that travels along."""

    __slots__ = ("connection", "number", "packer", "_indices")

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.packer = Packer(worker=connection.owner.core, destination=connection)
        self._indices: list[torch.Tensor] = []

    def pack(self, args: Arguments, kwargs: Keywords) -> tuple[Arguments, Keywords | None]:
        """The arguments as operands; raises :class:`~syft.exceptions.LocationMismatch`."""
        args = with_tensors(self.number, args)
        self._indices = indices_in(self.number, args, kwargs)
        self._check(args)
        self._check(tuple(kwargs.values()))
        self._check_written(mutated_argument(FLAGS[self.number], args, kwargs))
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
            if tensor.child.reference(self.connection) is None:
                self._mismatch(tensor.child.place(), tensor.child.location)
        elif _wants_gradient(tensor) or not self._may_travel(tensor):
            self._mismatch(self.connection.owner.id)

    def _may_travel(self, tensor: torch.Tensor) -> bool:
        if full_guard_of(tensor) is not None:
            return False  # it would arrive without its guard
        if not tensor.dim() or self.number in _CARRIES_PLAIN:
            return True
        return any(tensor is index for index in self._indices) or made_by_torch(tensor)

    def _check_written(self, target: Any) -> None:
        for leaf in leaves(target):
            if isinstance(leaf, torch.Tensor) and type(leaf) is not Wrapper:
                self._mismatch(self.connection.owner.id)

    def _mismatch(self, place: str, location: Any = None) -> None:
        there = self.connection.location.id
        if location not in (None, self.connection.location) and place == there:
            place, there = repr(location), repr(self.connection.location)  # it is asked as a user
        elif place == there:  # a pointer to the caller's own store, and a tensor that is not in it
            place = "here (not behind a pointer)"
        raise LocationMismatch(NAMES[self.number], (there, place))


def _wants_gradient(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad and torch.is_grad_enabled()
