"""Share programs compute what torch computes on the secrets, in as few rounds as they can."""

from __future__ import annotations

import pytest
import torch

from syft.crypto.dealing import StreamName
from syft.crypto.kernels import Kernel, KernelCode
from syft.crypto.programs.share_cost import cost
from syft.crypto.programs.share_program import ShareCode, ShareProgram, outs_of, stream_of_mask
from syft.program.program import Slot
from syft.crypto.programs.share_running import JoinedRound, PartyContext, run_program
from syft.exceptions import MaterialError, ProgramError
from tests.conftest import DEVICES
from tests.crypto.parties import KEYS, shared, zeros_of
from tests.crypto.program_runs import Recorded, run_all, unmasked
from tests.crypto.ring_programs import instruction, program_of

aten = torch.ops.aten
MULTIPLY, MATMUL = Kernel(KernelCode.MULTIPLY), Kernel(KernelCode.MATMUL)
S = Slot
CONTEXT = PartyContext(0, 2, KEYS[0], zeros_of(0, 2), 1)


def whole(*shape: int, bits: int = 20) -> torch.Tensor:
    return torch.randint(-(2**bits), 2**bits - 1, shape)


def perceptron() -> tuple[ShareProgram, int, int]:
    """relu(x @ w.t() + b) @ v.t(), on a grid of 16 bits, and the signs before relu."""
    made = Recorded((3, 5), (4, 5), (4,), (2, 4))
    x, w, b, v = range(4)
    turned = Kernel(KernelCode.MATMUL, (False, True))
    hidden = made.divide(made.product(turned, made.mask(x), made.mask(w)), 16)
    summed = made.local(aten.add.Tensor, S(hidden), S(b))
    active, sign = made.positive(summed)
    out = made.divide(made.product(turned, made.mask(active), made.mask(v)), 16)
    return made.program(out, sign), out, sign


@pytest.mark.parametrize("parties", [2, 3, 5])
@pytest.mark.parametrize("device", DEVICES)
def test_a_network_of_two_layers_is_that_of_plain_integers(parties, device):
    program, out, sign = perceptron()
    x, w, b, v = whole(3, 5), whole(4, 5), whole(4), whole(2, 4)
    inputs = [[one.to(device) for one in shared(t, parties)] for t in (x, w, b, v)]
    runs = run_all(program, inputs, parties)
    hidden = (x @ w.t() >> 16) + b
    near = ((hidden.clamp(min=0) @ v.t()) >> 16).double()
    assert (runs.secret(out).cpu() - near).abs().max() <= 2 + 4 * v.abs().max() / 2**16
    unclear = (hidden == -1) | (hidden == 0)
    assert torch.equal(runs.secret(sign).cpu()[~unclear], (hidden >= 0).long()[~unclear])
    assert runs.rounds == 1 + 1 + 4 + 1 + 1
    assert {result[out].device.type for result in runs.results} == {device}


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_every_instruction_makes_what_it_says(parties):
    made = Recorded((3, 4), (4,))
    pool = Kernel(KernelCode.REFLECTION_PAD1D, ((1, 2),))
    padded = made.linear(pool, 0)
    public = made.public(torch.arange(4))
    both = made.local(aten.add.Tensor, S(0), S(public), alpha=3)
    first, second = made.local(aten.split.Tensor, S(both), 2, 1)
    product = made.product(MULTIPLY, made.mask(0), made.mask(1))
    masked = made.mask(1)
    square = made.product(MULTIPLY, masked, masked)
    below = made.compare(ShareCode.NEGATIVE, 0)
    nothing = made.compare(ShareCode.ZERO, 1)
    same = made.divide(0, 0)
    shown = made.reveal(product, 1)
    slots = (padded, first, second, product, square, below, nothing, same)
    program = made.program(*slots, shown, masked)
    x, y = whole(3, 4, bits=63), torch.tensor([0, -5, 2**40, 0])
    runs = run_all(program, [x, y], parties)
    moved = x + 3 * torch.arange(4)
    expected = [
        torch.nn.functional.pad(x.double(), (1, 2), "reflect"),
        moved[:, :2],
        moved[:, 2:],
        x * y,
        y * y,
        (x < 0).long(),
        (y == 0).long(),
        x,
    ]
    secrets = [runs.secret(slot) for slot in slots]
    assert torch.equal(secrets[0][:, 1:5], x)
    for secret, wanted in zip(secrets[1:], expected[1:], strict=True):
        assert torch.equal(secret, wanted)
    assert [result[shown] is None for result in runs.results] == [r != 1 for r in range(parties)]
    assert torch.equal(runs.results[1][shown], x * y)
    values = [result[masked] for result in runs.results]
    assert torch.equal(unmasked(values), y)
    assert {value.name for value in values} == {stream_of_mask((0, 7), values[0].shape, 1)}
    assert runs.rounds == 4


def test_openings_that_do_not_depend_on_each_other_share_a_round():
    made = Recorded((2,), (2,))
    outs = [made.divide(made.product(MULTIPLY, made.mask(0), made.mask(1)), 4) for _ in range(5)]
    outs += [made.compare(ShareCode.NEGATIVE, 0), made.compare(ShareCode.ZERO, 1)]
    outs += [made.reveal(0, 0), made.reveal(1, 1)]
    assert run_all(made.program(*outs), [whole(2), whole(2)]).rounds == 4


def test_corrections_are_asked_for_when_nothing_goes_on_without():
    made = Recorded((2,))
    first = made.mask(0)
    made.product(MULTIPLY, first, first)
    made.divide(2, 3)
    below = made.compare(ShareCode.NEGATIVE, 3)
    other = made.divide(0, 1)
    runs = run_all(made.program(below, other), [whole(2)], 3)
    assert runs.asked == [(4,), (1,), (2,), (3,)]


def test_writing_in_place_keeps_its_place():
    """What is read before a write, and waits for messages, still reads the old values."""
    made = Recorded((4,), (2,))
    before = made.divide(0, 1)
    view = made.local(aten.slice.Tensor, S(0), 0, 0, 2)
    seen = made.local(aten.neg.default, S(0))
    product = made.product(MULTIPLY, made.mask(0), made.mask(0))
    made.write(aten.copy_.default, S(view), S(1))
    made.write(aten.mul_.Scalar, S(0), 3)
    after = made.local(aten.neg.default, S(0))
    made.write(aten.zero_.default, S(view))
    squared = made.mask(0)
    squared = made.product(MULTIPLY, squared, squared)
    x, y = whole(4), whole(2)
    runs = run_all(made.program(before, seen, product, after, squared), [x, y], 3)
    assert (runs.secret(before) - (x >> 1)).abs().max() <= 1
    assert torch.equal(runs.secret(seen), -x)
    assert torch.equal(runs.secret(product), x * x)
    assert torch.equal(runs.secret(after), -3 * torch.cat([y, x[2:]]))
    assert torch.equal(runs.secret(squared), torch.cat([y * 0, 9 * x[2:] ** 2]))
    assert runs.rounds == 2


def test_masked_values_serve_programs_after_the_one_that_opened_them():
    made = Recorded((3, 2))
    kept = made.mask(0)
    w = whole(3, 2, bits=63)
    first = run_all(made.program(kept), [w], counter=4)
    masked = [result[kept] for result in first.results]
    again = Recorded((3, 2), (5, 3))
    x = again.mask(1)
    args = (int(MATMUL.code), (), S(x), S(0), (0, 0), (5, 3), (4, 0), (3, 2), (5, 2))
    (out,) = again.add(ShareCode.PRODUCT, args, (5, 2))
    data = whole(5, 3, bits=63)
    runs = run_all(again.program(out), [masked, data], counter=5)
    assert torch.equal(runs.secret(out), data @ w)
    assert runs.rounds == 1
    with pytest.raises(ProgramError, match="a masked value"):
        other = [result[kept] for result in run_all(made.program(kept), [w], counter=3).results]
        run_all(again.program(out), [other, data], counter=5)
    with pytest.raises(ProgramError, match="no masked value"):
        run_all(again.program(out), [w, data], counter=5)


def test_slots_are_let_go_after_their_last_use():
    made = Recorded((4,))
    out = 0
    for _ in range(3):
        out = made.local(aten.neg.default, S(out))
    made.local(aten.neg.default, S(out))  # nobody uses it
    run = run_program(made.program(made.divide(out, 2)), [torch.arange(4)], CONTEXT)
    next(run)
    assert [
        slot for slot, value in run.gi_frame.f_locals["self"].values.items() if value is not None
    ] == []


def test_chains_may_be_longer_than_the_stack():
    made = Recorded((1,))
    out = made.divide(0, 1)
    for _ in range(3000):
        out = made.local(aten.neg.default, S(out))
    x = torch.tensor([8])
    assert abs(run_all(made.program(out), [x]).secret(out).item() - 4) <= 1


# ------------------------------------------------------------------------------------ what is wrong


def negation(shape: tuple[int, ...] = (2,)) -> ShareProgram:
    made = Recorded(shape)
    return made.program(made.local(aten.neg.default, S(0)))


def outcome(program: ShareProgram, inputs: list, **settings):
    return run_all(program, [[one, one] for one in inputs], **settings)


@pytest.mark.parametrize("value", [torch.ones(2), 3, None, torch.ones(2, dtype=torch.bool)])
def test_inputs_that_are_no_shares_are_refused(value):
    with pytest.raises(ProgramError, match="no share"):
        outcome(negation(), [value])


def test_another_number_of_inputs_is_refused():
    with pytest.raises(ProgramError, match="of 1 inputs got 2"):
        outcome(negation(), [torch.arange(2)] * 2)


def test_a_share_of_another_shape_than_is_dealt_for_is_refused():
    made = Recorded((2,))
    program = made.program(made.divide(0, 3))
    with pytest.raises(ProgramError, match=r"of shape \(3,\), not \(2,\)"):
        outcome(program, [torch.arange(3)])


def test_results_beyond_the_limit_are_refused_before_they_are_made():
    made = Recorded((10,))
    huge = made.local(aten.repeat.default, S(0), (11,))
    with pytest.raises(ProgramError, match="110 elements"):
        outcome(made.program(huge), [torch.arange(10)], most_elements=100)
    made = Recorded((10, 1), (1, 11))
    outer = made.product(MATMUL, made.mask(0), made.mask(1))
    with pytest.raises(ProgramError, match="110 elements"):
        outcome(made.program(outer), [whole(10, 1), whole(1, 11)], most_elements=100)
    made = Recorded((10,))
    padded = made.linear(Kernel(KernelCode.REPLICATION_PAD1D, ((90, 10),)), made_2d(made))
    with pytest.raises(ProgramError, match="110 elements"):
        outcome(made.program(padded), [torch.arange(10)], most_elements=100)


def made_2d(made: Recorded) -> int:
    return made.local(aten.unsqueeze.default, S(0), 0)


def test_fewer_results_than_slots_are_refused():
    made = Recorded((2,))
    made.local(aten.split.Tensor, S(0), 1)
    last = made.instructions.pop()
    wrong = instruction(last.op, last.args, (*outs_of(last), 3))
    with pytest.raises(ProgramError, match="has 2 results, not 3"):
        outcome(program_of(1, (wrong,), (3,)), [torch.arange(2)])


def test_a_kernel_whose_result_has_another_shape_is_refused():
    made = Recorded((2, 3), (3, 2))
    out = made.product(MATMUL, made.mask(0), made.mask(1))
    args = (*made.instructions[-1].args[:-1], (2, 3))
    made.instructions[-1] = instruction(ShareCode.PRODUCT, args, (out,))
    with pytest.raises(ProgramError, match="is not of"):
        outcome(made.program(out), [whole(2, 3), whole(3, 2)])


@pytest.mark.parametrize(
    "joined",
    [
        JoinedRound(additive=[]),
        JoinedRound(additive=[torch.arange(2)] * 2),
        JoinedRound(additive=[torch.arange(3)]),
        JoinedRound(additive=[torch.ones(2)]),
        JoinedRound(bits=[torch.arange(2)]),
    ],
)
def test_what_was_joined_otherwise_is_refused(joined):
    made = Recorded((2,))
    with pytest.raises(MaterialError, match="opened tensors"):
        run_all(made.program(made.mask(0)), [whole(2)], tamper=lambda rank, one: joined)


def test_a_share_that_is_revealed_is_a_copy():
    made = Recorded((2,))
    shown = made.reveal(0, 1)
    share = torch.arange(2)
    one = next(run_program(made.program(shown), [share], CONTEXT))
    (sent,) = one.reveals[1]
    name = StreamName(CONTEXT.counter, 0, "10 1")
    assert torch.equal(sent, CONTEXT.zeros.added(share, name.block()))
    assert not torch.equal(sent, share) and sent.data_ptr() != share.data_ptr()


def test_dividing_by_one_makes_memory_of_its_own():
    made = Recorded((2,))
    same = made.divide(0, 0)
    made.write(aten.zero_.default, S(0))
    x = whole(2)
    runs = run_all(made.program(same, 0), [x], 3)
    assert torch.equal(runs.secret(same), x) and not runs.secret(0).any()


def test_a_public_tensor_is_copied_before_it_is_written_to():
    made = Recorded((2,))
    plain = torch.arange(2)
    public = made.public(plain)
    made.write(aten.add_.Tensor, S(public), S(0))
    x = whole(2)
    runs = run_all(made.program(public), [x], 3)
    assert torch.equal(runs.secret(public), x + torch.arange(2))
    assert torch.equal(plain, torch.arange(2))


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("parties", [2, 3])
def test_a_public_factor_costs_no_round(first, parties):
    x, factor = torch.arange(6).view(2, 3), torch.tensor([[1, -2], [2**62, 4], [5, 7]])
    made = Recorded((2, 3))
    out = made.scaled(Kernel(KernelCode.MATMUL), 0, factor, first)
    program = made.program(out)
    found = run_all(program, [x], parties)
    assert torch.equal(found.secret(out), factor @ x if first else x @ factor)
    assert (found.rounds, found.dealt, cost(program, [(2, 3)]).rounds) == (0, 0, 0)
    relu = made.positive(out)[0]
    want = (factor @ x if first else x @ factor).clamp(min=0)
    program = made.program(relu)
    assert torch.equal(run_all(program, [x], parties).secret(relu), want)
    assert cost(program, [(2, 3)]).rounds == 4


def test_a_public_factor_may_not_make_too_much():
    made = Recorded((2, 1))
    out = made.scaled(Kernel(KernelCode.MATMUL), 0, torch.ones(1, 9, dtype=torch.int64), False)
    with pytest.raises(ProgramError, match="18 elements, where at most 17"):
        run_all(made.program(out), [torch.ones(2, 1, dtype=torch.int64)], most_elements=17)
