"""What a session records and sends: how little is opened, what is left out, when it is sent, how it
ends."""

from __future__ import annotations

import gc
import re
from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F

from syft.crypto.programs.share_program import ShareCode, opened_constants
from syft.exceptions import (
    LocationMismatch,
    SessionEnded,
    SharedOperationFailed,
    UnsupportedOperation,
    WorkerLost,
)
from syft.tensors.fixed.precision import fix_precision, float_precision
from syft.tensors.shared import instruction_list, local_calls, session_recording
from syft.tensors.shared.shared_values import get_shared, refresh, share_values, shared_cell
from tests.tensors.shared.clear_parties import clear_session


def integers(*values):
    return torch.tensor(values)


@pytest.fixture
def session():
    return clear_session()


@pytest.fixture
def share(session):
    def shared(x, requires_grad=False):
        if x.is_floating_point():
            x = fix_precision(x)
        return share_values(x, session, requires_grad)

    return shared


def value(x):
    return get_shared([x])[0]


# ------------------------------------------------------------------------------- masks are kept


def test_a_weight_is_opened_once(session, share):
    weight = share(torch.randn(4, 3))
    for count in range(1, 4):
        value(F.linear(share(torch.randn(2, 3)), weight))
        assert session.lines.counts["MASK"] == count + 1


def test_a_square_opens_once(session, share):
    x = share(integers(3, -4))
    assert value(x * x).tolist() == [9, 16]
    assert session.lines.counts["MASK"] == 1


def test_forward_and_backward_of_a_linear_layer_open_each_operand_once(session, share):
    x, weight = share(torch.randn(5, 3)), share(torch.randn(4, 3), requires_grad=True)
    x.requires_grad_()
    out = F.linear(x, weight)
    out.backward(share(torch.randn(5, 4)))
    value(weight)
    assert session.lines.counts["MASK"] == 3  # the input, the weight and the gradient


def test_forward_and_backward_of_a_convolution_open_each_operand_once(session, share):
    x, weight = share(torch.randn(1, 2, 5, 5)), share(torch.randn(3, 2, 3, 3), requires_grad=True)
    x.requires_grad_()
    F.conv2d(x, weight).backward(share(torch.randn(1, 3, 3, 3)))
    value(weight)
    assert session.lines.counts["MASK"] == 3


def test_a_batch_of_transposed_matrices_needs_no_mask_of_its_own(session, share):
    x, y = torch.arange(24).view(2, 3, 4), torch.arange(24, 48).view(2, 3, 4)
    a, b = share(x), share(y)
    assert torch.equal(value(a @ b.transpose(1, 2)), x @ y.transpose(1, 2))
    assert torch.equal(value(a.mT @ b), x.mT @ y)
    assert session.lines.counts["MASK"] == 2


def test_what_was_written_to_is_opened_anew(session, share):
    x, y = share(integers(1, 2)), share(integers(3, 4))
    value(x * y)
    view = x[:1]
    view.add_(10)
    assert value(x * y).tolist() == [33, 8]
    assert session.lines.counts["MASK"] == 3
    x.zero_()
    assert value(x * y).tolist() == [0, 0]


def test_what_everybody_knows_is_not_opened(session, share):
    x = share(torch.randn(4, 3), requires_grad=True)
    (x.sum() * 2).backward()
    F.linear(x, share(torch.randn(2, 3))).sum().backward()
    get_shared([x])
    assert not session.lines.counts["MASK"]  # both gradients are public, and the rest is unused


def test_a_product_of_what_everybody_knows_is_a_shared_tensor_without_messages(session, share):
    rows, x = share(torch.randn(2, 3), requires_grad=True), torch.tensor([[1.5, -2.0, 0.25]])
    (F.linear(x, rows).sum() * 0.5).backward()
    (x * rows).sum().backward()
    kinds = share(integers(7)).new_ones(3)
    times, over = torch.tensor([5, 6, 7]) * kinds, torch.tensor([[5, 6, 7]]) @ kinds
    gradient, *products = get_shared([rows.grad, times, over])
    assert float_precision(gradient).tolist() == (1.5 * x).expand(2, 3).tolist()
    assert [product.tolist() for product in products] == [[5, 6, 7], [18]]
    assert not session.lines.counts["MASK"] and not session.lines.counts["DIVIDE"]


def test_a_number_repeated_is_sent_once(session, share):
    x = share(torch.zeros(100, 100, dtype=torch.int64))
    value(x + torch.full((100, 100), 7))
    (public,) = [
        one.args[0]
        for one in opened_constants(session.lines.programs[-1])
        if one.op == ShareCode.PUBLIC
    ]
    assert public.numel() == 1


# -------------------------------------------------------------------------------- comparisons


def gates(session):
    counts = session.lines.counts
    return {name: counts[name] for name in ("POSITIVE", "NEGATIVE", "ZERO", "PRODUCT")}


@pytest.mark.parametrize(
    ("function", "want"),
    [
        (torch.relu, [0, 0, 5]),
        (torch.abs, [7, 0, 5]),
        (lambda x: x.clamp(min=-3), [-3, 0, 5]),
        (lambda x: x.clamp_max(3), [-7, 0, 3]),
        (lambda x: torch.maximum(x, x.flip(0)), [5, 0, 5]),
        (lambda x: torch.minimum(x, x.flip(0)), [-7, 0, -7]),
    ],
)
def test_a_limit_costs_one_gate(session, share, function, want):
    assert value(function(share(integers(-7, 0, 5)))).tolist() == want
    assert gates(session) == {"POSITIVE": 1, "NEGATIVE": 0, "ZERO": 0, "PRODUCT": 0}


def test_a_maximum_costs_a_gate_a_round(session, share):
    assert value(share(torch.arange(8)).max()) == 7
    assert gates(session) == {"POSITIVE": 3, "NEGATIVE": 0, "ZERO": 0, "PRODUCT": 0}


def test_the_backward_pass_of_relu_compares_nothing(session, share):
    x = share(torch.tensor([-1.0, 0.0, 2.0]), requires_grad=True)
    x.relu().backward(share(torch.tensor([1.0, 1.0, 1.0])))
    assert value(x.grad).child.child.tolist() == [0, 0, 65536]
    assert gates(session) == {"POSITIVE": 1, "NEGATIVE": 0, "ZERO": 0, "PRODUCT": 1}


def test_a_layer_divides_and_compares_by_one_opening(session, share):
    weight, bias, x = torch.randn(4, 3), torch.randn(4), torch.randn(5, 3)
    out = F.relu(F.linear(share(x), share(weight), share(bias)))
    want = F.relu(F.linear(x, weight, bias))
    assert (value(out).child.child / 65536 - want).abs().max() < 6 / 65536
    assert session.lines.counts["DIVIDE"] == 0 and session.lines.counts["POSITIVE"] == 1


def test_what_nobody_has_is_not_computed(session, share):
    x = share(integers(1, 2))
    (x * x).relu()
    assert value(x + 1).tolist() == [2, 3]
    assert not session.lines.counts["MASK"]


def test_the_bits_of_a_relu_that_was_written_to_are_not_believed(session, share):
    x = share(integers(-1, 3))
    part = x.relu()
    part.sub_(1)
    part.sub_(2)
    out = torch.ops.aten.threshold_backward(share(integers(1, 1)), part, 0)
    assert value(out).tolist() == [0, 0]


# --------------------------------------------------------------------------- what is sent, and when


def test_nothing_is_sent_before_a_value_is_asked_for(session, share):
    x = share(integers(1, 2))
    y = (x * x + 1).sum()
    assert not session.lines.programs
    assert value(y) == 7
    assert len(session.lines.programs) == 1


def test_only_what_somebody_has_is_stored(session, share):
    x = share(integers(1, 2))
    y = (x + 1) * 2 - 3
    value(y)
    assert len(session.lines.objects) == 2  # x and y
    del y
    gc.collect()
    assert len(session.lines.objects) == 1


def test_masks_go_with_their_tensor(session, share):
    x = share(integers(1, 2))
    y = x * x
    value(y)
    assert len(session.lines.objects) == 3
    del x, y
    gc.collect()
    assert not session.lines.objects


def test_a_long_list_is_sent_unasked(session, share, monkeypatch):
    monkeypatch.setattr(session_recording, "MOST_INSTRUCTIONS", 10)
    x = share(integers(1, 2))
    for _ in range(25):
        x = x.neg()
    assert len(session.lines.programs) == 2
    assert value(x).tolist() == [-1, -2]


def test_much_public_memory_is_sent_unasked(session, share, monkeypatch):
    monkeypatch.setattr(session_recording, "MOST_BYTES", 100)
    x = share(integers(1, 2))
    for _ in range(10):
        x = x + integers(1, 2)
    assert len(session.lines.programs) == 1
    assert value(x).tolist() == [11, 22]


def test_a_public_tensor_is_taken_as_it_is_when_it_is_used(session, share):
    x, public = share(integers(1, 2)), integers(10, 20)
    y, z = x + public, x * public
    public.zero_()
    assert (value(y).tolist(), value(z).tolist()) == ([11, 22], [10, 40])


def test_counters_rise(session, share):
    for _ in range(3):
        value(share(integers(1)) * 2)
    assert session.lines.counters == [1, 2, 3]


def test_masks_are_named_by_program_and_place(session, share):
    x = share(integers(2, 3))
    value(x * x)
    value(x * share(integers(5, 7)))
    first, second = session.lines.programs
    place = [one.op for one in first.actions].index(ShareCode.MASK)
    (product,) = [one for one in second.actions if one.op == ShareCode.PRODUCT]
    assert product.args[4] == (1, place)
    assert product.args[6][0] == 0
    assert second.actions[product.args[6][1]].op == ShareCode.MASK


# ----------------------------------------------------------------------------------------- views


def test_views_share_memory(share):
    x = share(torch.arange(6).view(2, 3))
    row, turned = x[0], x.t()
    row.mul_(10)
    x[1, 2] = 100
    assert value(turned).tolist() == [[0, 3], [10, 4], [20, 100]]


def test_a_copy_is_dense_where_torch_says_so(share):
    x = share(torch.arange(6).view(2, 3))
    dense = x.t().contiguous()
    assert dense.is_contiguous() and not x.t().is_contiguous()
    assert value(dense.view(-1)).tolist() == [0, 3, 1, 4, 2, 5]
    assert value(x.t().clone()).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_transposing_twice_is_the_tensor_itself(share):
    x = share(torch.arange(6).view(2, 3))
    assert shared_cell(x.t().t()) is shared_cell(x)


def test_shapes_in_place(share):
    x = share(torch.arange(6).view(2, 1, 3))
    x.squeeze_(1).t_().unsqueeze_(0)
    assert x.shape == (1, 3, 2)
    assert value(x).tolist() == [[[0, 3], [1, 4], [2, 5]]]


def test_parts_keep_sharing_memory(share):
    x = share(torch.arange(6))
    left, right = x.split(3)
    left.copy_(right)
    assert value(x).tolist() == [3, 4, 5, 3, 4, 5]


def test_what_reads_values_is_refused(share):
    x = share(integers(1, 2))
    for read in (lambda: x.nonzero(), lambda: x[x > 1], lambda: bool(x.sum() > 1)):
        with pytest.raises(UnsupportedOperation, match=r"AdditiveSharingTensor.*get\(\) it first"):
            read()


# -------------------------------------------------------------------------------- how it looks


def test_how_a_shared_tensor_looks(share):
    line = r"\n\t-> \[PointerTensor \| me:\d+ -> {}:\d+\]"
    shares = line.format("alice") + line.format("bob") + r"\n\t\*crypto provider: carol\*"
    want = rf"\(Wrapper\)>FixedPrecisionTensor>\[AdditiveSharingTensor\]{shares}"
    assert re.fullmatch(want, repr(share(torch.ones(2))))
    x = share(integers(1))
    assert re.fullmatch(rf"\(Wrapper\)>\[AdditiveSharingTensor\]{shares}", repr(x))
    assert list(x.child.child) == ["alice", "bob"]
    assert dict(x.child).keys() == {"alice", "bob"}
    assert x.child["bob"].location == "bob"


# ------------------------------------------------------------------------------------- how it ends


def test_operands_of_two_sessions_do_not_meet(share):
    other = share_values(integers(1), clear_session())
    with pytest.raises(LocationMismatch):
        share(integers(1)) + other


def test_a_failed_program_is_undone(session, share):
    x = share(integers(1))
    session.flush()
    fresh, y = share(integers(5)), x * x
    lost = [y + fresh, y]
    session.lines.error = ValueError("bob is out of memory")
    with pytest.raises(SharedOperationFailed, match="ValueError: bob is out of memory"):
        value(lost[0])
    for use in (lambda: value(lost[0]), lambda: lost[1] + 1, lambda: repr(lost[0] + lost[0])):
        with pytest.raises(SharedOperationFailed, match="ValueError: bob is out of memory"):
            use()
    assert (value(x).tolist(), value(fresh).tolist(), value(x * x).tolist()) == ([1], [5], [1])
    lost.clear()
    del y, fresh
    gc.collect()
    assert len(session.lines.objects) == 2, "x and what was opened of it"
    assert not session._lost._causes


def test_a_failed_program_that_cannot_be_undone_ends_the_session(session, share):
    x = share(integers(1))
    session.flush()
    session.lines.error = ValueError("bob is out of memory")
    y = x * 2
    session.flush()
    session.lines.lost = WorkerLost("bob", "gone")
    with pytest.raises(SessionEnded, match="WorkerLost: .* worker 'bob' was lost"):
        value(y)
    for use in (lambda: x + 1, lambda: value(x), lambda: share(integers(1))):
        with pytest.raises(SessionEnded, match="Share them again"):
            use()
    assert repr(x) == "(Wrapper)>[AdditiveSharingTensor | alice, bob: ended]"


def test_synchronize_tells_of_a_failure(session, share):
    x = share(integers(1))
    session.synchronize()
    assert len(session.lines.programs) == 1
    session.lines.error = ValueError("bob is out of memory")
    with pytest.raises(SharedOperationFailed, match="bob is out of memory"):
        session.synchronize()
    session.synchronize()  # there is nothing wrong any more
    del x


def test_a_lost_worker_ends_the_session(session, share):
    x = share(integers(1))
    session.lines.lost = WorkerLost("bob", "gone")
    with pytest.raises(SessionEnded, match="WorkerLost"):
        value(x)


def test_an_error_of_something_else_ends_nothing(session, share, monkeypatch):
    x = share(integers(1))

    def fetch(ids, user):
        raise KeyError("an unrelated request")

    with monkeypatch.context() as patch:
        patch.setattr(session.lines, "fetch", fetch)
        with pytest.raises(KeyError):
            value(x)
    assert value(x).tolist() == [1]


def test_a_session_that_a_party_has_ended_is_ended(session, share, monkeypatch):
    """The program that failed there was another caller's, say: nobody here knows of it."""
    x = share(integers(1))
    assert value(x).tolist() == [1]

    def fetch(ids, user):
        raise SessionEnded(("alice", "bob"), "MaterialUsed: twice")

    monkeypatch.setattr(session.lines, "fetch", fetch)
    with pytest.raises(SessionEnded, match="MaterialUsed: twice"):
        value(x)
    monkeypatch.undo()
    assert session.ended == "MaterialUsed: twice"
    with pytest.raises(SessionEnded, match="MaterialUsed: twice"):
        value(x)


# --------------------------------------------------------------------------------- share and get


def test_seeds_hide_all_shares_but_the_last(session):
    values = torch.arange(5)
    cell = session.share(values)
    (fresh,) = session._list.inputs
    assert len(fresh.seeds) == 1 and len(set(fresh.last.tolist())) == 5
    assert not set(fresh.last.tolist()) & set(values.tolist())
    assert session.values([cell])[0].tolist() == values.tolist()


def test_refreshed_shares_hold_the_same(session, share):
    for x in (
        share(integers(1, 2)),
        share(torch.tensor([1.5])),
        share(torch.tensor([True, False])),
    ):
        fresh = refresh(x)
        assert fresh.dtype is x.dtype
        assert repr(value(fresh)) == repr(value(x))
        assert len(session._list.inputs) == 0


def test_a_revealed_value_is_stored_at_one_party(session, share):
    x = share(integers(4, 5))
    pointer = session.reveal(shared_cell(x), "bob")
    assert pointer.tolist() == [4, 5]
    ((party, id),) = session.lines.pointers
    assert party == "bob" and session.lines.programs[-1].actions[-1].args[1] == 1
    gc.collect()
    assert id in session.lines.objects


def test_what_was_left_out_is_dropped_all_the_same(session, share):
    x = share(integers(1, 2))
    session.flush()
    (x * 2).neg()
    session.flush()
    assert len(session.lines.programs) == 1
    del x
    gc.collect()
    assert not session.lines.objects


def test_geometries_are_forgotten_when_there_are_many(share, monkeypatch):
    monkeypatch.setattr(local_calls, "_MOST_GEOMETRIES", 3)
    monkeypatch.setattr(local_calls, "_GEOMETRIES", {})
    x = share(torch.arange(6))
    for size in range(1, 6):
        assert x[:size].neg().shape == (size,)
        assert len(local_calls._GEOMETRIES) <= 3


def test_division_by_whole_numbers(session, share):
    x = share(integers(1000, -1000, 7))
    for divisor in (1, 2, 7, -8, 24):
        got = value(session.ring.divide(x, divisor))
        assert (got - integers(1000, -1000, 7) / divisor).abs().max() < 2
    assert value(session.ring.divide(x, 8) * 8)[0] == 1000  # exactly: there is no rest


def test_what_a_list_became_serves_the_same_list_again(session, share, monkeypatch):
    """Also with other public tensors, which are those of now; not with larger ones, which may not
    be joined as these were."""
    monkeypatch.setattr(instruction_list, "_FINISHED", OrderedDict())
    monkeypatch.setattr(instruction_list, "_MOST_KEPT", 2)
    x = share(integers(1, 2, 3))
    value(x)  # it is stored from here on
    instruction_list._FINISHED.clear()
    for addend, kept in (((4, 5, 6), 1), ((6, 4, 5), 1), ((7, 8, 1 << 40), 2), ((1, 2, 3), 2)):
        assert (
            value(x + integers(*addend)).tolist()
            == (integers(1, 2, 3) + integers(*addend)).tolist()
        )
        assert len(instruction_list._FINISHED) == kept
    first, second = session.lines.programs[-4:-2]
    assert first.actions is second.actions and first.facts is second.facts
    assert not any(one.program.constants for one in instruction_list._FINISHED.values())
