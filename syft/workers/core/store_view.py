"""What handlers see of the objects at a worker: a cell in the place of what is private."""

from __future__ import annotations

from typing import Any

import torch

from syft.exceptions import MalformedMessage
from syft.workers.core.descending import descend
from syft.workers.core.shares import Confined
from syft.workers.core.state_machine import HeldInputs, WorkerCore
from syft.workers.labels.cell import Stored
from syft.workers.labels.memory_labels import full_guard_of, protect


class StoreView:
    """What unpacking uses of a worker: its store, and the inputs held for a parked operation.

    ``sharing`` names what may use the shares and sessions of its caller; without, they are refused.
    """

    __slots__ = ("core", "held", "sharing")

    def __init__(self, core: WorkerCore, held: HeldInputs | None, sharing: str = "") -> None:
        self.core = core
        self.held = held
        self.sharing = sharing

    def resolve(self, id: int, depth: int = 0) -> Stored:
        """The object of an id, ``depth`` steps of ``.child`` down its chain, or its cell."""
        found = object_itself(self.core, self.held, id, depth, self.sharing)
        return self.core.store.seal(found)

    def connect(self, name: str) -> Any:
        """The worker's own connection to another worker, for pointers among the operands."""
        return self.core.connect(name)


def object_itself(
    core: WorkerCore, held: HeldInputs | None, id: int, depth: int = 0, sharing: str = ""
) -> Any:
    """The object of an id itself, for what runs as it was predicted; see :class:`StoreView`."""
    value = held[id] if held and id in held else core.store.open(id)
    if type(value) is torch.Tensor and not depth:  # nearly always
        return value
    if isinstance(value, Confined):
        peer = core.serving
        if peer is None or not sharing:
            raise value.refusal(peer, "an operation")
        value.check_owner(peer, sharing)
        return value
    if not depth:
        return value
    inner = descend(value, depth)
    if isinstance(inner, torch.Tensor):
        protect(inner, full_guard_of(value))  # an inner tensor is as private as the outer one
    return inner


class NoObjects(StoreView):
    """The part of a worker that unpacking values uses: everything except its objects."""

    __slots__ = ()

    def resolve(self, id: int, depth: int = 0) -> Any:
        """Refuse a reference inside a value; raises :class:`~syft.exceptions.MalformedMessage`."""
        raise MalformedMessage("$", "a value that came along", "a reference")
