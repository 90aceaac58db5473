"""Buffers that a function assigns anew: a program writes to the one that is there, at its end.

``self.mean = 0.9 * self.mean + 0.1 * x.mean(0)`` puts another tensor where the buffer was.  The
state of a plan is read from where it lives at each call, so the next call has to find it there.
The function works on a copy, and what stands in the module when it returns is written to the
buffer: what it has read, returned or needs for a gradient is not written to.

A program that assigns none is recorded as it is: that one does is found out by the first run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from syft.exceptions import CannotRecord
from syft.program.program import Program, Slot, slots_in
from syft.program.recording.environment.snapshot import storage_of

Result = TypeVar("Result")
_Place = tuple[dict[str, Any], str]
_OWN_USES = 2
"""A buffer that is assigned is copied at the beginning, and written to at the end."""


class FoundAssigned(BaseException):
    """A run has assigned a buffer that was not known to be; no function of a user catches it."""


class AssignedBuffers:
    """The buffers of modules that a function assigns, as far as its runs have shown.

    ``line`` is named by refusals: where the function ends.

    >>> class Counting(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.register_buffer("calls", torch.tensor(0))
    ...     def forward(self):
    ...         self.calls = self.calls + 1
    ...         return self.calls
    >>> model, now = Counting(), None
    >>> buffers, calls = AssignedBuffers([model], "train.py:9"), model.calls
    >>> for _ in range(2):
    ...     try:
    ...         now = buffers.run(lambda values: model(), [])
    ...     except FoundAssigned:
    ...         pass
    >>> now, calls, model.calls is calls
    (tensor(1), tensor(1), True)
    """

    def __init__(self, modules: Iterable[nn.Module], line: str) -> None:
        self._modules = list(modules)
        self._line = line
        self._assigned: list[_Place] = []

    def run(self, function: Callable[[Sequence[Any]], Any], values: Sequence[Any]) -> Any:
        """Call the function, and write to the buffers what it has put in their places.

        Raises :class:`FoundAssigned` if it has assigned one that is not known, and
        :class:`~syft.exceptions.CannotRecord` for what no write gives.
        """
        before = [(part._buffers, dict(part._buffers)) for part in self._modules]
        buffers = [table[key] for table, key in self._assigned]
        try:
            copies = [buffer.clone() for buffer in buffers]
            for (table, key), copy in zip(self._assigned, copies, strict=True):
                table[key] = copy
            result = function(values)
            self._find_others(before)
            if not buffers:
                return result
            memory = set(map(storage_of, _tensors([*values, *self._other_state()])))
            for (table, key), buffer in zip(self._assigned, buffers, strict=True):
                self._write(key, buffer, table.get(key), memory)
            return result
        finally:
            for table, was in before:
                table.clear()
                table.update(was)

    def until_known(self, record: Callable[[], Result]) -> Result:
        """Call a function that runs the other, until none of its runs finds a further buffer.

        >>> AssignedBuffers([], "train.py:9").until_known(lambda: 1)
        1
        """
        while True:
            with contextlib.suppress(FoundAssigned):
                return record()

    def check_unshared(
        self, program: Program, state: Sequence[torch.Tensor], constants: Sequence[torch.Tensor]
    ) -> None:
        """Raise if the function has an assigned buffer also from elsewhere: that is another tensor
        once the buffer was assigned, and would be written to.

        ``state`` are the tensors of the state of what was recorded, and ``constants`` the others
        that it found outside.

        >>> AssignedBuffers([], "train.py:9").check_unshared(Program(0, (), ()), [], [])
        """
        for table, key in self._assigned:
            buffer = table[key]
            others = [each for each in (*state, *constants) if each is not buffer]
            others += self._buffers_but(table, key)
            found = storage_of(buffer) in map(storage_of, _tensors(others))
            for at, each in enumerate(state, program.inputs):
                found |= each is buffer and _uses(program, at) > _OWN_USES
            if found:
                raise CannotRecord(
                    f"the buffer {key!r} assigned anew, which the function has from elsewhere too",
                    self._line,
                    "a call writes to the buffer that is there; let the function have its clone()",
                )

    def _buffers_but(self, table: dict[str, Any], key: str) -> list[Any]:
        """The buffers of the modules at all places but one."""
        tables = [part._buffers for part in self._modules]
        return [
            each
            for other in tables
            for name, each in other.items()
            if other is not table or name != key
        ]

    def _check_there(self, before: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> None:
        """Raise for a tensor where no buffer was."""
        for table, was in before:
            for key, now in table.items():
                if _is_tensor(now) and not _is_tensor(was.get(key)):
                    raise CannotRecord(
                        f"the buffer {key!r} assigned where there was none",
                        self._line,
                        "the next call could not go on with it; have a tensor there before",
                    )

    def _find_others(self, before: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> None:
        self._check_there(before)
        known = {(id(table), key) for table, key in self._assigned}
        others = [
            (table, key)
            for table, was in before
            for key, buffer in was.items()
            if _is_tensor(buffer) and table.get(key) is not buffer and (id(table), key) not in known
        ]
        if others:
            self._assigned += others
            raise FoundAssigned

    def _other_state(self) -> list[Any]:
        """What modules hold beside the buffers that are assigned."""
        assigned = {(id(table), key) for table, key in self._assigned}
        tables = [table for part in self._modules for table in (part._parameters, part._buffers)]
        return [
            value
            for table in tables
            for key, value in table.items()
            if (id(table), key) not in assigned
        ]

    def _write(self, key: str, buffer: torch.Tensor, now: Any, memory: set[int]) -> None:
        """Write to a buffer what stands in its place; its ``memory`` must be that of no other."""
        if not _is_tensor(now) or _kind(now) != _kind(buffer):
            self._refuse(key, "of another kind", "of the same shape, dtype and device")
        if now.requires_grad:
            self._refuse(key, "that requires grad", "without a graph: its detach()")
        if storage_of(now) in memory:
            self._refuse(key, "that something else shares", "of its own: its clone()")
        memory.add(storage_of(now))
        with torch.no_grad():
            buffer.copy_(now)

    def _refuse(self, key: str, what: str, instead: str) -> None:
        raise CannotRecord(
            f"the buffer {key!r} assigned anew by a tensor {what}",
            self._line,
            f"the next call could not go on with it; assign one {instead}",
        )


def _uses(program: Program, slot: int) -> int:
    """How many actions a slot is given to."""
    actions = ((each.args, each.kwargs) for each in program.actions)
    return sum(Slot(slot) in slots_in(operands) for operands in actions)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    return [value for value in values if _is_tensor(value) and not is_lazy(value)]


def _kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What a write to a tensor does not change."""
    return tuple(tensor.shape), tensor.dtype, tensor.device, tensor.layout
