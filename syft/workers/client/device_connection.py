"""The connection to a worker that is also a device of torch: pointers over it say so.

A tensor on ``sy.device(bob)`` is a pointer to bob, and results of operations on it are on the same
device.  A result gets the connection of its operands, so the connection is what carries the mark: a
second one with the same parts, which asks, sends and keeps facts as the first one does, and costs
pointers without a device nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper
from syft.ops.nested import replace
from syft.ops.returns import ONE_TENSOR, Returns
from syft.ops.table import BY_NAME, METADATA, asked_by, ops_with
from syft.workers.client.connection import Connection
from syft.workers.client.group import Held
from syft.workers.client.operations import Operations
from syft.workers.client.pending import STORED, Pending

_TYPE: Final = BY_NAME["torch.Tensor.type"]
_ANSWERS: Final[dict[int, Callable[[torch.device], Any]]] = {
    **{op: lambda device: False for op in ops_with(METADATA) if asked_by(op) == {"device"}},
    BY_NAME["torch.Tensor.device.__get__"]: lambda device: device,
    BY_NAME["torch.Tensor.get_device"]: lambda device: device.index,
    BY_NAME["torch.get_device"]: lambda device: device.index,
}
"""What a tensor on the device answers without asking: it is on no other one."""
_CONTAINERS: Final = (list, tuple, dict, Wrapper)


class DeviceOperations(Operations):
    """The torch operations that a connection to a device has run there: their results are on it."""

    __slots__ = ("_connection",)

    def __init__(self, connection: DeviceConnection) -> None:
        line = connection.line
        parts = line.requests, line.replies, line.facts, line.garbage, line.groups
        super().__init__(*parts, connection)
        self._connection = connection

    def fact(self, op: int, id: int) -> Any:
        """The answer to a question about the kind of an object: of its device, this one."""
        answer = _ANSWERS.get(op)
        return super().fact(op, id) if answer is None else answer(self._connection.device)

    def command(
        self,
        op: int,
        args: Any,
        kwargs: dict[str, Any] | None,
        out: int,
        buffers: list[torch.Tensor],
        expected: Returns | None = ONE_TENSOR,
    ) -> Any:
        """Run an operation as any connection does, but answer what is asked about the device."""
        if op in _ANSWERS:
            return _ANSWERS[op](self._connection.device)
        value = super().command(op, args, kwargs, out, buffers, expected)
        if op == _TYPE and type(value) is str:
            return value.replace("torch.", f"torch.{self._connection.device.type}.", 1)
        return value

    def results(self, value: Any, out: int, expected: Returns | None, fresh: bool = False) -> Any:
        """What a call returns, with the pointers in it on the device."""
        marked = self._connection.marked
        if type(value) is Held:
            for pointer in value:
                marked(pointer)
        elif value is not STORED and type(value) is not Pending:
            return replace(value, marked) if isinstance(value, _CONTAINERS) else value
        return super().results(value, out, expected, fresh)


class DeviceConnection(Connection):
    """The connection ``line`` once more, for tensors on ``device``, which is its worker.

    >>> line = hook.local_worker.connection_to(bob)
    >>> again = DeviceConnection(line, torch.device("cpu", 0))
    >>> again.line is line, again.location is bob, line.line is line
    (True, True, True)
    """

    __slots__ = ("_line", "_device")

    def __init__(self, line: Connection, device: torch.device) -> None:
        for name in Connection.__slots__:
            if name not in _OWN:
                setattr(self, name, getattr(line, name))
        self._line, self._device = line, device
        self.operations = DeviceOperations(self)

    @property
    def device(self) -> torch.device:
        """The device that pointers over this connection are on."""
        return self._device

    @property
    def line(self) -> Connection:
        """The connection over which the requests go."""
        return self._line

    @property
    def crossed(self) -> int:
        """How many graphs go on from there to another worker."""
        return self._line.crossed

    @crossed.setter
    def crossed(self, count: int) -> None:
        self._line.crossed = count

    def marked(self, value: Any) -> Any:
        """The same value; a pointer over the line is on the device from now on."""
        link: Any = value.child if type(value) is Wrapper else None
        if getattr(link, "connection", None) is self._line:
            link.connection = self
        return value


_OWN: Final = frozenset(("crossed", "operations"))
