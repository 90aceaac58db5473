"""One message of each kind, with every field set."""

from __future__ import annotations

import syft as sy
from syft.serde.errors import pack_error
from syft.serde.packer import Packer

from syft.workers.wire.messages import (
    Abort,
    Allow,
    Annotate,
    Await,
    Cancel,
    ClearGradients,
    Cancelled,
    Command,
    Convert,
    Describe,
    Done,
    Drop,
    Duplicate,
    Exchange,
    Failure,
    Fetch,
    FetchAll,
    Forgotten,
    GiveUp,
    Gradients,
    Holds,
    Message,
    Move,
    NotBegun,
    Parked,
    Promise,
    Put,
    PutAll,
    Relay,
    Run,
    Search,
    Share,
    Skipped,
    Stale,
    Start,
    Value,
)

from syft.workers.wire.terms import Terms

BFLOAT16 = (19, 3)
TERMS = Terms(("alice",), ("ann",), pack_error(ValueError("5 is private"), Packer()), ("carol",))

SAMPLES: list[Message] = [
    Command(1, 0, ((0, 5), 2), 7, 9, (8,), {"alpha": 3}, (("cpu", BFLOAT16),), 0),
    Run(19, 3, (9, None, 2.5), 20, 9, (8, (10, 4)), (42, b"\x00", (41, 1, 0, (), (), (2,))), (), 0),
    Put(2, 9, (32, 0, (0,), None, 0), ("ann",), True, ("bea",), TERMS, 14, (8,), 0),
    Fetch(3, 9, 1, True, "ann", True, (8,), 5, 0),
    PutAll(
        24,
        9,
        (38, None, (), ((32, 0, (0,), None, 0),)),
        ((0, ("ann",), True, TERMS),),
        ((0, ("bea",)),),
        (8,),
        0,
    ),
    FetchAll(25, (9, (10, 1)), True, "ann", (8,), 0),
    Drop(4, (8, 9)),
    Move(5, 9, "alice", True, "ann", (8,), 0),
    Duplicate(6, 9, 10, (8,), 0),
    Search(7, ("#a",), (8,), 0),
    Annotate(8, 9, ("#a",), "text", (8,), 0),
    Share(9, ("bea",)),
    Allow(29, 9, ("bea",), 10, ("alice",), (8,), ("carol",), 0),
    Describe(9, 9, (8,), 0),
    Promise(11, (12,), "ann", (8,), 0),
    Start(12, 1, 99, ("bob", "alice"), 0, ((0, 9),), (13,), (8,)),
    Exchange(99, 0, 1, ((32, 9, (0,), None, 0),), ("ann",), True, TERMS),
    Abort(99, 1, "party alice failed"),
    Relay(14, 9, "alice", "ann", (8,), 0),
    Convert(15, 9, 1, (2,), 16, (8,), 0),
    Holds(20, 9, b"\x01" * 32, (8,), 0),
    Cancel(21, 20),
    GiveUp(24, 9, "the sensor broke", (8,), 0),
    Await(26, 9),
    Gradients(27, (9, 10), 11, (8,), 0),
    ClearGradients(28, (9, 10), (8,)),
    Done(16),
    Value(17, "text"),
    Failure(18, pack_error(sy.exceptions.StoreError("x"), Packer())),
    Parked(22, (9, 10), True),
    Skipped(23),
    Forgotten(),
    Stale(True),
    Cancelled(25),
    NotBegun(29),
]
