"""From which inputs a result was computed, whatever shares memory with what."""

from __future__ import annotations

import torch

from syft.crypto.kernels import Kernel, KernelCode
from syft.crypto.programs.share_flow import origins, segments_of, written_inputs
from syft.program.program import Slot
from tests.crypto.program_runs import Recorded
from tests.crypto.ring_programs import as_written, program_of

aten = torch.ops.aten
S = Slot


def test_results_come_from_all_that_they_were_computed_from():
    made = Recorded((2,), (2,), (2,))
    product = made.product(Kernel(KernelCode.MULTIPLY), made.mask(0), made.mask(1))
    public = made.public(torch.arange(2))
    summed = made.local(aten.add.Tensor, S(product), S(public))
    joint = made.local(aten.cat.default, (S(summed), S(2)))
    value, sign = made.positive(2)
    shown = made.reveal(sign, 0)
    program = made.program(product, public, summed, joint, value, shown)
    found = {as_written(program, slot): inputs for slot, inputs in origins(program).items()}
    assert found == {
        **{0: {0}, 1: {1}, 2: {2}, product: {0, 1}, public: set(), summed: {0, 1}},
        **{joint: {0, 1, 2}, value: {2}, shown: {2}},
    }


def test_what_is_written_reaches_every_view_of_its_memory():
    made = Recorded((4,), (2,), (4,))
    view = made.local(aten.slice.Tensor, S(0), 0, 0, 2)
    before = made.local(aten.neg.default, S(0))
    made.write(aten.copy_.default, S(view), S(1))
    after = made.local(aten.neg.default, S(0))
    parts = made.local(aten.unsafe_split.Tensor, S(0), 2)
    program = made.program(view, before, after, parts[1])
    both = {0, 1}
    assert origins(program) == {
        **{0: both, 1: {1}, 2: {2}, view: both, before: {0}, after: both, parts[1]: both}
    }
    assert written_inputs(program) == {0}


def test_inputs_may_share_memory_from_the_start():
    made = Recorded((4,), (2,), (2,))
    made.write(aten.copy_.default, S(1), S(2))
    program = made.program(0)
    assert origins(program)[0] == {0}
    assert origins(program, ("a", "a", "b")) == {0: {0, 1, 2}, 1: {0, 1, 2}, 2: {2}}
    assert written_inputs(program, ("a", "a", "b")) == {0, 1}


def test_segments_end_at_what_writes():
    made = Recorded((4,), (4,))
    made.write(aten.add_.Tensor, S(0), S(1))
    made.write(aten.zero_.default, S(1))
    made.divide(0, 1)
    assert [list(part) for part in segments_of(made.program())] == [[0], [1], [2]]
    assert list(segments_of(program_of(0, (), ()))) == []
