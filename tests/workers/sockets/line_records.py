"""What is said of a line, as the bytes that docs/wire.md tells of: tests share no code for it with
the workers that they try."""

from __future__ import annotations

import json
import struct
from typing import Any

import msgspec

TEXT, BINARY, CONTROLS = 1, 2, 3
NEEDED: Any = object()
GREETINGS = frozenset(("hello", "welcome", "refused"))
RECORDS: dict[str, tuple[int, dict[str, Any]]] = {
    "received": (1, {"count": NEEDED}),
    "open": (
        2,
        {
            **{"channel": NEEDED, "source": NEEDED, "target": NEEDED},
            **{"token": None, "ticket": None, "beside": None},
        },
    ),
    "meet": (3, {"number": NEEDED, "name": NEEDED, "user": None, "to": None}),
    "introduction": (
        4,
        {
            **{"number": NEEDED, "name": NEEDED, "address": None, "fingerprint": None},
            **{"ticket": None, "unknown": False, "others": [], "relays": False},
        },
    ),
    "tunnel": (5, {"number": NEEDED, "name": None}),
    "opened": (6, {"number": NEEDED, "fingerprint": NEEDED}),
    "room": (7, {"number": NEEDED, "count": NEEDED}),
    "closed": (8, {"number": NEEDED, "reason": NEEDED, "gone": False}),
    "settle": (9, {"number": NEEDED, "on": False}),
    "settled": (10, {"number": NEEDED, "moved": NEEDED}),
    "busy": (11, {"operation": NEEDED, "user": NEEDED, "seconds": NEEDED, "waiting": NEEDED}),
    "withdraw": (12, {"number": NEEDED}),
    "withdrawn": (13, {"number": NEEDED, "count": NEEDED}),
    "tell": (14, {"number": NEEDED, "question": NEEDED, "argument": None}),
    "told": (15, {"number": NEEDED, "answer": None, "error": None}),
    "bye": (16, {"reason": NEEDED}),
}
KINDS = {code: kind for kind, (code, _) in RECORDS.items()}
UNCOUNTED = frozenset(("received", "busy"))


def header_of(record: dict[str, Any]) -> bytes:
    """The header of a record: it ends before the first field that is needed and is not there."""
    code, fields = RECORDS.get(record["kind"], (99, {}))
    items: list[Any] = [code]
    for name, default in fields.items():
        value = record.get(name, default)
        if value is NEEDED:
            break
        is_large = isinstance(value, int) and not -(2**63) <= value < 2**64
        items.append(str(value) if is_large else value)
    return msgspec.msgpack.encode(items)


def message_of(record: Any) -> tuple[int, bytes]:
    """The opcode and the bytes of a record; what is none is a text."""
    if not isinstance(record, dict) or record.get("kind", "hello") in GREETINGS:
        return TEXT, json.dumps(record).encode()
    header = header_of(record)
    return BINARY, struct.pack("<4sBBHII", b"syft", 1, 0, CONTROLS, 0, len(header)) + header


def is_served(opcode: int, data: bytes) -> bool:
    """Whether a message is a request or a reply."""
    return opcode == BINARY and said_in(opcode, data) is None


def said_in(opcode: int, data: bytes) -> dict[str, Any] | None:
    """The record that a message is, if it is one."""
    if opcode == TEXT:
        return dict(json.loads(data))
    if opcode != BINARY or data[6:8] != bytes((CONTROLS, 0)):
        return None
    code, *values = msgspec.msgpack.decode(data[16:])
    kind = KINDS[code]
    return {"kind": kind, **dict(zip(RECORDS[kind][1], values, strict=True))}
