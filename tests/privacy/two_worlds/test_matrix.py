"""What random programs are made of leaves nothing out: messages, flags, layouts and dtypes."""

from __future__ import annotations

from typing import get_args

import pytest

from syft.codes import DTypeCode, LayoutCode
from syft.ops.table import BY_NAME, FLAGS, OpFlag
from syft.workers.wire import messages
from tests.privacy.two_worlds import generator
from tests.privacy.two_worlds.generator import ACTIONS, RandomProgram
from tests.privacy.two_worlds.report import Report
from tests.privacy.two_worlds.runner import TABLE, run_program
from tests.privacy.two_worlds.samples import CRASHES, Samples, is_safe
from tests.privacy.two_worlds.table_programs import NEVER, NEVER_SUCCEED, ROWS, why_never
from tests.privacy.two_worlds.vocabulary import (
    LAYOUTS,
    METADATA_NAMES,
    QUANTIZED,
    SAFE_NAMES,
    TOUCHES,
    UNDRAWN_DTYPES,
    UNDRAWN_FLAGS,
    VIEWS,
    WRITES,
    KINDS,
)
from tests.privacy.two_worlds.whole_objects import MAKERS, SENT_ELSEWHERE

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's samples use much that is deprecated


@pytest.fixture(scope="module")
def samples() -> Samples:
    return Samples()


def test_every_kind_of_message_is_sent() -> None:
    assert {*MAKERS, *SENT_ELSEWHERE} == set(get_args(messages.Request))
    assert not MAKERS.keys() & SENT_ELSEWHERE.keys()
    actions = {action.__name__ for action in ACTIONS}
    assert all(
        action in actions or hasattr(RandomProgram, action) for action in SENT_ELSEWHERE.values()
    )


def test_every_flag_of_the_op_table_has_an_operation(samples: Samples) -> None:
    names = {*samples.names, *METADATA_NAMES, *SAFE_NAMES, *WRITES, *TOUCHES, *dict(VIEWS)}
    names |= {"torch.Tensor.backward", "syft.ops.control.cond"}
    drawn = OpFlag(0)
    for name in names:
        drawn |= OpFlag(FLAGS[BY_NAME[name]])
    assert {flag for flag in OpFlag if flag not in drawn} == UNDRAWN_FLAGS.keys()


def test_every_layout_is_drawn() -> None:
    assert {str(layout).removeprefix("torch.").upper() for layout in LAYOUTS} == {
        code.name for code in LayoutCode
    }
    assert all(make().layout is layout for layout, make in LAYOUTS.items())


def test_every_dtype_is_drawn_or_has_a_reason_not_to_be() -> None:
    drawn = {str(make().dtype).removeprefix("torch.").upper() for make in KINDS}
    known = {code.name for code in DTypeCode}
    assert drawn | UNDRAWN_DTYPES.keys() == known and not drawn & UNDRAWN_DTYPES.keys()
    assert all(make().dtype is dtype for dtype, make in QUANTIZED.items())


def test_what_is_left_out_has_a_reason_and_is_there() -> None:
    for part, reason in CRASHES.items():
        assert reason and any(part in name for name in BY_NAME), part
    assert is_safe("torch.add")


def test_every_reason_for_a_row_is_that_of_an_operation(samples: Samples) -> None:
    rows = samples.expected()
    last = {(name.rpartition(".")[2], place) for name, place in rows}
    assert NEVER.keys() <= {name for name, _ in last}
    assert all(
        (name, place) in last if place else name in dict(last) for name, place in NEVER_SUCCEED
    )
    assert why_never(("torch.Tensor.item", "0", True)) and not why_never(
        ("torch.Tensor.item", "0", False)
    )
    assert why_never(("torch.cov", "aweights", True)) and not why_never(("torch.add", "0", True))


def test_programs_of_the_table_reach_their_rows(samples: Samples) -> None:
    """A part of the table; ``--whole-table`` goes through all of it."""
    rows = sorted(samples.expected())
    for number in (0, len(rows) // ROWS // 2):
        report = run_program(samples, f"1{TABLE}{number}", alike=True)
        expected = rows[number * ROWS : (number + 1) * ROWS]
        assert [row for row in report.missing(expected) if why_never(row) is None] == []


def test_all_messages_are_sent_and_all_layouts_drawn(
    samples: Samples, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs with the same actions as ever, those that send messages more often."""
    often = {"whole_object": 20, "group": 1, "collective": 1, "touch": 1}
    monkeypatch.setattr(generator, "WEIGHTS", [often.get(one.__name__, 0) for one in ACTIONS])
    total, seed = Report(), request.config.option.seed
    expected = {("message", kind.__name__) for kind in (*MAKERS, *SENT_ELSEWHERE)}
    expected |= {("layout", str(layout)) for layout in LAYOUTS}
    expected |= {("dtype", str(make().dtype)) for make in KINDS}
    for number in range(400):
        if expected <= total.kinds.keys():
            return
        total.add(run_program(samples, f"{seed}/{number}", alike=True))
    raise AssertionError(f"not drawn: {expected - total.kinds.keys()}")
