"""Messages as they should be, and what random changes make of them."""

from __future__ import annotations

import random

from tests.workers.sockets.attacks.stranger import hello
from tests.workers.sockets.attacks.victim import ROOT
from tests.workers.sockets.line_records import message_of

SAMPLES = [path.read_bytes() for path in sorted((ROOT / "tests" / "frames").glob("*/*.bin"))]
"""Frames of syft: one of each kind of message, and some that break a rule."""

TEXTS = [
    message_of(record)
    for record in (
        hello(),
        hello(resume={"line": "l", "secret": "s", "received": 3}),
        {"kind": "received", "count": 0},
        {"kind": "open", "channel": 8, "source": "x", "target": "bob", "beside": 0},
        {"kind": "meet", "number": 1, "name": "alice"},
        {"kind": "introduction", "number": 1, "name": "alice", "address": "ws://localhost:1"},
        {"kind": "settle", "number": 1, "on": True},
        {"kind": "settled", "number": 1, "moved": True},
        {"kind": "busy", "operation": "add", "user": None, "seconds": 1.0, "waiting": 1},
        {"kind": "withdraw", "number": 1},
        {"kind": "tell", "number": 1, "question": "stats"},
        {"kind": "told", "number": 1, "answer": None},
        {"kind": "bye", "reason": "home"},
    )
]
"""What is said of a line: the opcode and the bytes of each kind."""


def mutated_text(random_: random.Random) -> tuple[int, bytes]:
    """The opcode and the changed bytes of one of them; most have a whole prefix."""
    opcode, data = random_.choice(TEXTS)
    kept = data[:16] if opcode == 2 and random_.random() < 0.7 else b""
    changed = mutated(random_, data[len(kept) :])
    if kept:
        kept = kept[:12] + len(changed).to_bytes(4, "little")
    return opcode, kept + changed


def mutated(random_: random.Random, data: bytes) -> bytes:
    """The same bytes with some of them changed, repeated, cut out or put in."""
    octets = bytearray(data)
    for _ in range(random_.choice([0, 1, 1, 2, 5])):
        at = random_.randrange(len(octets) + 1)
        kind = random_.randrange(4)
        if kind == 0 and octets:
            octets[min(at, len(octets) - 1)] = random_.choice([0, 1, 127, 128, 255, 200])
        elif kind == 1:
            octets[at:at] = random_.randbytes(random_.randrange(1, 9))
        elif kind == 2:
            del octets[at : at + random_.randrange(1, 9)]
        else:
            octets[at:at] = octets[at : at + random_.randrange(1, 64)]
    return bytes(octets)
