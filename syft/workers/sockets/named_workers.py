"""Which other workers a message names: whoever gets it may have to speak with them.

A program introduces a worker to those that it has named to it, and to no others.  So what leaves is
looked at: where an object is to go, who takes part in a collective operation, and where the
pointers in a value lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from syft.codes import MessageCode, TypeCode
from syft.serde.frame import Frame

_POINTER: Final = int(TypeCode.POINTER)
_decode = msgspec.msgpack.Decoder().decode


def named_workers(frame: Frame) -> set[str]:
    """The names of workers in a request or a reply that this process has made.

    >>> from syft.workers.wire.messages import Move, encode
    >>> named_workers(Frame(encode(Move(7, 5, "alice")), []))
    {'alice'}
    """
    header = frame.header
    names_in = _NAMES_IN.get(header[3 if header[0] == 0xDC else 1])
    return set() if names_in is None else set(names_in(_decode(header)))


def _destination(message: list[Any]) -> Iterable[str]:
    return () if message[3] is None else (message[3],)


def _parties(message: list[Any]) -> Iterable[str]:
    """The parties; a text among the arguments is the provider that a holder of data is told."""
    return (*message[4], *(arg for arg in message[6] if type(arg) is str))


def _places(operand: Any) -> Iterator[str]:
    """Where the pointers in an operand lie."""
    stack = [operand]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            if len(value) == 5 and value[0] == _POINTER and type(value[2]) is str:
                yield value[2]
            stack.extend(value)
        elif isinstance(value, dict):
            stack.extend(value.values())


def _places_in_reply(message: list[Any]) -> Iterator[str]:
    return _places(message[2])


def _places_in_put(message: list[Any]) -> Iterator[str]:
    return _places(message[3])


_NAMES_IN: Final[dict[int, Callable[[list[Any]], Iterable[str]]]] = {
    int(MessageCode.MOVE): _destination,
    int(MessageCode.RELAY): _destination,
    int(MessageCode.START): _parties,
    int(MessageCode.PUT): _places_in_put,
    int(MessageCode.PUT_ALL): _places_in_put,
    int(MessageCode.VALUE): _places_in_reply,
}
"""By the code of the message; it is decoded without types, its code being the first field."""
