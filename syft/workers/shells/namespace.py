"""``bob.torch``: torch's functions, run at worker bob."""

from __future__ import annotations

from typing import Any

from syft.exceptions import OperationRefused, UnknownOperation
from syft.ids import first_id, new_id
from syft.ops.returns import returns
from syft.ops.table import BY_NAME, REFUSED_NAMES
from syft.workers.client.connection import Connection
from syft.workers.client.operands import Operands


class RemoteNamespace:
    """A dotted name under ``torch`` at another worker; a call runs that function there."""

    __slots__ = ("_connection", "_name")

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name

    def __repr__(self) -> str:
        return f"<{self._name} at {self._connection.location.id}>"

    def __getattr__(self, name: str) -> RemoteNamespace:
        full = f"{self._name}.{name}"
        if name.startswith("__") or not _is_operation_or_prefix(full):
            raise AttributeError(f"{full} is not an operation that can run on another worker")
        return RemoteNamespace(self._connection, full)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._connection.check_not_recording(f"{self._name} at")
        if self._name in REFUSED_NAMES:
            raise OperationRefused(self._name, REFUSED_NAMES[self._name])
        if self._name not in BY_NAME:
            raise UnknownOperation(self._name)
        number = BY_NAME[self._name]
        operands = Operands(self._connection, number)
        packed, keywords = operands.pack(args, kwargs)
        expected = returns(number, args, kwargs)
        out = new_id() if expected is None else first_id(expected.count)
        value = self._connection.command(
            number, packed, keywords, out, operands.packer.buffers, expected
        )
        return self._connection.results(value, out, expected)


def _is_operation_or_prefix(name: str) -> bool:
    """Whether an operation has this name, or a name that starts with it and a dot."""
    if name in BY_NAME or name in REFUSED_NAMES:
        return True
    prefix = name + "."
    return any(known.startswith(prefix) for known in BY_NAME)
