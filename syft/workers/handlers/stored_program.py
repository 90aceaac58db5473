"""A program at a worker with tensors of its own: what stored plans and stored roles have in common.

What arrives is checked data without any Python function.  It is kept like a tensor: found by its
tags, copied, moved and dropped, and it is as private as the most private tensor of its state.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import nn

from syft.exceptions import MalformedMessage, PlansNotAllowed
from syft.program.program import Program, Slot
from syft.serde.expect import expect_type
from syft.serde.packer import Unpacker
from syft.serde.registry import unpack_items
from syft.workers.labels.holders import Holder
from syft.workers.labels.memory_labels import copy_of

_TENSOR_CLASSES: Final = (torch.Tensor, nn.Parameter, nn.Buffer)


class StoredProgram(Holder):
    """A program in a worker's store, with its state there. Abstract."""

    def __init__(
        self,
        state: Sequence[torch.Tensor],
        tags: set[str],
        description: str | None,
        copy_of: str | None = None,
    ) -> None:
        super().__init__(tags, description, copy_of)
        self.state = list(state)

    @property
    @abstractmethod
    def program(self) -> Program:
        """The program."""

    @abstractmethod
    def put_constants(self, constants: Sequence[torch.Tensor]) -> None:
        """Have the program use other constants of the same kinds."""

    def tensors(self) -> Sequence[torch.Tensor]:
        """The state and the constants."""
        return [*self.state, *self.program.constants]

    def exchange(self, successor: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Put the successor of each tensor in its place."""
        self.state = list(map(successor, self.state))
        constants = self.program.constants
        successors = tuple(map(successor, constants))
        if any(old is not new for old, new in zip(constants, successors, strict=True)):
            self.put_constants(successors)

    def copies(self) -> tuple[list[torch.Tensor], tuple[torch.Tensor, ...]]:
        """Copies of the state and of the constants: a program may write to both."""
        return list(map(copy_of, self.state)), tuple(map(copy_of, self.program.constants))

    def admit(self, worker: str, allow_plans: bool) -> None:
        """Raise :class:`~syft.exceptions.PlansNotAllowed` where the owner allows no plans."""
        if not allow_plans:
            raise PlansNotAllowed(worker)


@contextlib.contextmanager
def without_objects(unpacker: Unpacker) -> Iterator[None]:
    """A context in which a program is unpacked without access to the worker.

    A reference in it would make an object of the worker, or one behind a pointer, part of the
    program, and a fetch of that would reveal it.
    """
    worker, unpacker.worker = unpacker.worker, None
    try:
        yield
    finally:
        unpacker.worker = worker


def unpack_state(items: Any, unpacker: Unpacker) -> list[torch.Tensor]:
    """The state of a program, which must be plain tensors."""
    state = unpack_items(expect_type(items, (list, tuple), "an array", ".state"), unpacker)
    for index, tensor in enumerate(state):
        if type(tensor) not in _TENSOR_CLASSES:
            raise MalformedMessage(f"$.state[{index}]", "a plain tensor", type(tensor).__name__)
    return state


def flat_outputs(program: Program) -> tuple[Slot, ...]:
    """The outputs of a program, which must be a flat tuple of slots.

    >>> flat_outputs(Program(1, (), (Slot(0),)))
    (Slot(0),)
    """
    outputs = program.outputs
    if type(outputs) is not tuple or not all(type(slot) is Slot for slot in outputs):
        raise MalformedMessage("$.program.outputs", "a flat tuple of slots", "something else")
    return outputs
