"""What random programs are made of leaves nothing out: messages, flags, layouts and dtypes."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from syft.codes import DTypeCode, LayoutCode
from syft.ops.table import BY_NAME, FLAGS, OpFlag
from syft.workers.wire import messages
from tests.privacy.two_worlds import generator
from tests.privacy.two_worlds.further_samples import FURTHER, further_samples
from tests.privacy.two_worlds.generator import ACTIONS, RandomProgram
from tests.privacy.two_worlds.report import Report
from tests.privacy.two_worlds.runner import TABLE, run_program
from tests.privacy.two_worlds.samples import CRASHES, Sample, Samples, is_safe
from tests.privacy.two_worlds.table_programs import ROWS, working_first, works
from tests.privacy.two_worlds.unreachable_rows import NEVER, NEVER_SUCCEED, why_never
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
    assert why_never(("torch.istft", "window", True)) and not why_never(("torch.add", "0", True))


def test_programs_of_the_table_reach_their_rows(samples: Samples) -> None:
    """A part of the table, with the operations that have further samples; ``--whole-table`` goes
    through all of it."""
    rows = sorted(samples.expected())
    aimed_at = {at // ROWS for at, (name, _) in enumerate(rows) if name in FURTHER}
    for number in sorted({0, len(rows) // ROWS // 2, *aimed_at}):
        report = run_program(samples, f"1{TABLE}{number}", alike=True)
        expected = rows[number * ROWS : (number + 1) * ROWS]
        assert [row for row in report.missing(expected) if why_never(row) is None] == []
        assert [row for row in report.reached(expected) if why_never(row)] == []


def test_further_samples_are_those_that_a_row_needs(samples: Samples) -> None:
    """Each works in torch, and reaches a place that is there and has no reason."""
    for name, made in FURTHER.items():
        places = {place for row, place in samples.expected() if row == name}
        for sample in (Sample(name, *make()) for make in made):
            reachable = {place for place in places if why_never((name, place, True)) is None}
            assert works(sample) and places >= {*sample.positions()}
            assert reachable & {*sample.positions()}
        assert not [*further_samples(name, "no such place")]


def test_samples_that_torch_computes_are_tried_first() -> None:
    """One whose result has another shape than its target, and one that writes its target."""
    grows, one = torch.ones(1), torch.ones(3)
    bad, good = (Sample("torch.Tensor.add_", (x, torch.ones(3)), {}) for x in (grows, one))
    assert [sample is good for sample in working_first([bad, good, bad])] == [True, False, False]
    assert torch.equal(one, torch.ones(3)), "what is tried is a copy"


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
