"""What a trace makes of messages that hold no program that it can read."""

from __future__ import annotations

import pytest

from syft.codes import CollectiveCode
from syft.serde.frame import Frame
from syft.workers.shells.message_trace import name_of_start, program_in
from syft.workers.wire.messages import Start

SHARES = int(CollectiveCode.SHARES)


@pytest.mark.parametrize(
    "args",
    [(), (1, 2), (1, 2, 3), (1, 2, (10**6, 5)), (1, 2, (70, 1, 1, 1)), (1, 2, (70, -1, (), ()))],
)
def test_what_is_no_program_is_passed_over(args):
    assert program_in(Start(1, SHARES, 5, ("a", "b", "c"), 0, args, ()), Frame(b"", [])) is None


def test_a_collective_that_nobody_knows_has_no_name():
    assert name_of_start(Start(1, 10**6, 5, ("a", "b"), 0, (), ())) == "Start"
