"""References: the ids in a message of objects that the receiver holds, or will hold.

In a request, a reference stands for an object in the receiving worker's store.  In a reply, it
stands for a result that was stored there, and becomes a pointer at the caller.  One type code,
``REF``, serves both; the direction of the message determines the store.  A list of nothing else,
as the ``_foreach_`` operations of optimizers take it, is written shorter: ``REFS`` and the ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from syft.codes import TypeCode
from syft.exceptions import MalformedMessage
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import register, register_code, unpack_items

REF = int(TypeCode.REF)
REFS = int(TypeCode.REFS)
_NAMING = frozenset((REF, REFS))
_MOST_DROPPED = 1 << 16


class Reference:
    """The id of an object in a store, and the number of ``.child`` steps down its chain."""

    __slots__ = ("id", "depth")

    def __init__(self, id: int, depth: int = 0) -> None:
        self.id = id
        self.depth = depth


def _pack(reference: Reference, packer: Packer) -> tuple[Any, ...]:
    if reference.depth:
        return (REF, reference.id, reference.depth)
    return (REF, reference.id)


def _unpack(operand: Any, unpacker: Unpacker) -> Any:
    fields = tuple(operand[1:])
    if not 1 <= len(fields) <= 2 or not all(type(field) is int for field in fields):
        raise MalformedMessage("$", "a reference (id, depth)", repr(fields))
    if unpacker.worker is None:
        raise MalformedMessage("$", "a value that stands on its own", "a reference into a store")
    return unpacker.worker.resolve(*fields)


register(TypeCode.REF, Reference, _pack, _unpack)


def _pack_list(references: Iterable[Reference], packer: Packer) -> list[int]:
    return [REFS, *(reference.id for reference in references)]


def _unpack_list(operand: Any, unpacker: Unpacker) -> Any:
    return unpack_items([(REF, id) for id in operand[1:]], unpacker)


register_code(TypeCode.REFS, _pack_list, _unpack_list)


def ids_in(operand: Any) -> set[int]:
    """The ids of all references inside a packed operand.

    >>> sorted(ids_in(((0, 5), [17, (0, 9, 1)], 3, [69, 6, 7])))
    [5, 6, 7, 9]
    """
    found: set[int] = set()
    stack = [operand]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, (list, tuple)):
            if value and type(value[0]) is int and value[0] in _NAMING:
                found.update(_named_by(value))
            stack.extend(value)
    return found


def ids_at(message: Any, field: str) -> Sequence[int]:
    """The ids in a field of a message; none without a field.

    >>> from syft.workers.wire import messages
    >>> ids_at(messages.Await(1, 5), "id"), ids_at(messages.Drop(1, (5, 7)), "ids")
    ((5,), (5, 7))
    """
    found: Any = getattr(message, field) if field else ()
    return (found,) if type(found) is int else found


def referred(operand: Any) -> int | None:
    """The id of an operand that is a reference as a whole; None for any other.

    >>> referred((0, 5)), referred([0, 9, 1]), referred([0]), referred(((0, 5),))
    (5, 9, None, None)
    """
    kind = type(operand)
    if (kind is not tuple and kind is not list) or not 2 <= len(operand) <= 3:
        return None
    code, id = operand[:2]
    return id if type(code) is int and code == REF and type(id) is int else None


def _named_by(operand: Sequence[Any]) -> Iterable[int]:
    """The ids in an operand that begins like a reference, or like a list of them."""
    if operand[0] == REF and len(operand) > 3:
        return ()
    return [id for id in (operand[1:2] if operand[0] == REF else operand[1:]) if type(id) is int]


def expanded(drop: Sequence[int | tuple[int, int]]) -> Sequence[int]:
    """The ids in a list of ids and ``(first id, count)`` pairs.

    >>> expanded((5, (7, 3)))
    [5, 7, 8, 9]
    """
    if tuple not in map(type, drop):  # nearly always
        return drop  # type: ignore[return-value]
    ids: list[int] = []
    for item in drop:
        if type(item) is int:
            ids.append(item)
            continue
        first, count = item  # type: ignore[misc]
        if not 0 <= count <= _MOST_DROPPED - len(ids):
            raise MalformedMessage("$.drop", f"at most {_MOST_DROPPED} ids", str(count))
        ids.extend(range(first, first + count))
    return ids
