"""Joined programs compute the same in fewer rounds; what may not be joined is left alone."""

from __future__ import annotations

import pytest
import torch

from syft.crypto.kernels import Kernel, KernelCode
from syft.crypto.programs.share_joining import ADD, joined
from syft.crypto.programs.share_program import ShareCode, ShareProgram, outs_of
from syft.program.program import Slot
from tests.crypto.program_runs import Recorded, run_all
from tests.crypto.ring_programs import as_written, instruction, program_of

aten = torch.ops.aten
S = Slot
TURNED = Kernel(KernelCode.MATMUL, (False, True))


def whole(*shape: int) -> torch.Tensor:
    return torch.randint(-(2**20), 2**20, shape)


def layer(made: Recorded, moved: bool, biased: bool) -> tuple[int, int]:
    out = made.divide(made.product(TURNED, made.mask(0), made.mask(1)), 16)
    if moved:
        out = made.local(aten.unsqueeze.default, S(out), 0)
    if biased:
        out = made.local(aten.add.Tensor, S(2), S(out))
        out = made.local(aten.add.Tensor, S(out), S(2))
    value, sign = made.positive(out)
    return value, sign


def sums_in(program: ShareProgram) -> set[int]:
    """The slots of sums, as if all were stated to be on the grid of products."""
    adds = [one for one in program.actions if one.args[0] == ADD]
    return {slot for one in adds for slot in outs_of(one)}


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("parties", [2, 3])
def test_a_layer_takes_one_opening_less(moved, biased, parties):
    made = Recorded((3, 5), (4, 5), (4,))
    value, sign = layer(made, moved, biased)
    program = made.program(value, sign)
    inputs = [whole(3, 5), whole(4, 5), whole(4)]
    apart = run_all(program, inputs, parties)
    together = run_all(joined(program, sums_in(program)), inputs, parties)
    assert (apart.rounds, together.rounds) == (6, 5)
    assert together.sent[0] == apart.sent[0] - (parties - 1) * 8 * 12
    assert (apart.secret(value) - together.secret(value)).abs().max() <= 1
    x, w, b = inputs
    exact = (x @ w.t() >> 16) + 2 * biased * b
    assert (together.secret(value) - exact.clamp(min=0)).abs().max() <= 1
    clear = (exact != 0) & (exact != -1)
    assert torch.equal(together.secret(sign).view(3, 4)[clear], (exact >= 0).long()[clear])


def plus(made: Recorded, x: int, number: int) -> int:
    """Plus a public number that the parties repeat, as a client records it."""
    one = made.public(torch.tensor(number))
    return made.local(aten.add.Tensor, S(x), S(made.local(aten.repeat.default, S(one), (3,))))


DIVISORS = [16, 1, (10,), (3,), ((1 << 61) + 1,)]


@pytest.mark.parametrize("factor", DIVISORS)
@pytest.mark.parametrize("share_of_room", [0.0, 0.5, 0.999, 1.001, 3.0])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_joined_relu_is_right_wherever_the_kept_one_is(factor, share_of_room, sign):
    """At the ends of what is divided, with public numbers below and beyond what is left."""
    divisor = 1 << factor if isinstance(factor, int) else factor[0]
    number = sign * min(int(share_of_room * ((1 << 62) / divisor)), (1 << 61))
    made = Recorded((3,))
    out, _ = made.positive(plus(made, plus(made, made.divide(0, factor), number), -1))
    program = made.program(out)
    fits = abs(number) * divisor + divisor <= 1 << 62
    assert (ShareCode.DIVIDE not in codes(joined(program))) == fits
    for x in ([(1 << 62) - 1, 5, 0], [-(1 << 62), -5, 1 - (1 << 62)]):
        exact = [max(one // divisor + number - 1, 0) for one in x]
        found = run_all(joined(program), [torch.tensor(x)], 3).secret(out).tolist()
        assert all(a - b in (0, 1) for a, b in zip(found, exact, strict=True)), (found, exact)


def test_a_shared_addend_of_unknown_size_is_added_where_it_is_written():
    """Three thousand million on 16 bits: times 2^16 it is out of the ring."""
    made = Recorded((2,), (2,))
    out, _ = made.positive(made.local(aten.add.Tensor, S(made.divide(0, 16)), S(1)))
    program = made.program(out)
    assert joined(program) == program
    x, b = torch.tensor([5 << 32, -(7 << 32)]), torch.full((2,), 3_000_000_000 << 16)
    exact = (x >> 16) + b
    assert (run_all(joined(program), [x, b]).secret(out) - exact).abs().max() <= 1
    joined_all_the_same = run_all(joined(program, sums_in(program)), [x, b]).secret(out)
    assert (joined_all_the_same - exact).abs().min() > 1 << 40


def test_a_public_number_that_was_written_to_is_not_known():
    made = Recorded((2,), (2,))
    public = made.public(torch.zeros(2, dtype=torch.int64))
    made.write(aten.add_.Tensor, S(public), S(1))
    out, _ = made.positive(made.local(aten.add.Tensor, S(made.divide(0, 16)), S(public)))
    program = made.program(out)
    assert joined(program) == program


def fraction_of(made: Recorded) -> tuple[int, ...]:
    return (made.positive(plus(made, made.divide(0, (3 << 51, 54)), 1))[0],)


def each_divided(made: Recorded) -> tuple[int, ...]:
    return (made.positive(plus(made, made.divide(0, (torch.tensor([3, 4, 5]),)), 1))[0],)


@pytest.mark.parametrize("build", [fraction_of, each_divided])
def test_only_whole_divisors_move_behind_an_addition(build):
    made = Recorded((3,))
    program = made.program(*build(made))
    assert joined(program) == program


@pytest.mark.parametrize("factor", [*DIVISORS, (3 << 51, 54), (torch.tensor([3, 4, 5]),)])
def test_every_factor_joins_a_relu_alone(factor):
    made = Recorded((3,))
    program = made.program(made.positive(made.divide(0, factor))[0])
    assert codes(joined(program)) == [ShareCode.POSITIVE]
    x = torch.tensor([(1 << 62) - 1, -(1 << 62), 12])
    apart, together = (run_all(one, [x], 3) for one in (program, joined(program)))
    (out,) = (as_written(program, slot) for slot in program.results)
    off = apart.secret(out) - together.secret(out)
    assert off.abs().max() <= 1 and (apart.rounds, together.rounds) == (5, 4)


def codes(program: ShareProgram) -> list[ShareCode]:
    return [one.op for one in program.actions]


def test_what_nobody_uses_is_left_out_and_masks_keep_their_products():
    made = Recorded((2,), (2,))
    multiply = Kernel(KernelCode.MULTIPLY)
    made.mask(0)
    made.divide(0, 3)
    made.local(aten.neg.default, S(0))
    first, second = made.mask(0), made.mask(1)
    dead = made.product(multiply, first, first)
    made.compare(ShareCode.ZERO, dead)
    product = made.product(multiply, first, second)
    made.write(aten.zero_.default, S(1))
    made.reveal(0, 1)
    shorter = joined(made.program(product))
    assert codes(shorter) == [
        *(ShareCode.MASK, ShareCode.MASK, ShareCode.PRODUCT, ShareCode.LOCAL, ShareCode.REVEAL)
    ]
    assert shorter.actions[2].args[4:8:2] == ((0, 0), (0, 1))
    x, y = whole(2), whole(2)
    assert torch.equal(run_all(shorter, [x, y]).secret(product), x * y)


def test_masks_of_programs_before_keep_their_names():
    args = (1, (), S(0), S(1), (7, 3), (2,), (9, 0), (2,), (2,))
    one = instruction(ShareCode.PRODUCT, args, (2,))
    assert joined(program_of(2, (one,), (2,))).actions == (one,)


def used_twice(made: Recorded) -> tuple[int, ...]:
    divided = made.divide(0, 3)
    return made.positive(divided)[0], made.local(aten.neg.default, S(divided))


def a_result(made: Recorded) -> tuple[int, ...]:
    divided = made.divide(0, 3)
    return made.positive(divided)[0], divided


def written_between(made: Recorded) -> tuple[int, ...]:
    divided = made.divide(0, 3)
    made.write(aten.zero_.default, S(0))
    return (made.positive(divided)[0],)


def divided_again(made: Recorded) -> tuple[int, ...]:
    return (made.positive(made.divide(0, 3), 2)[0],)


def weighted(made: Recorded) -> tuple[int, ...]:
    divided = made.divide(0, 3)
    return (made.positive(made.local(aten.add.Tensor, S(divided), S(1), alpha=2))[0],)


def of_two_parts(made: Recorded) -> tuple[int, ...]:
    one, other = made.local(aten.split.Tensor, S(made.divide(0, 3)), 1)
    return made.positive(one)[0], made.positive(other)[0]


def of_an_input(made: Recorded) -> tuple[int, ...]:
    return (made.positive(0)[0],)


def negated(made: Recorded) -> tuple[int, ...]:
    return (made.positive(made.local(aten.neg.default, S(made.divide(0, 3))))[0],)


def not_divided(made: Recorded) -> tuple[int, ...]:
    return (made.positive(made.divide(0, 0))[0],)


def compared(made: Recorded) -> tuple[int, ...]:
    return (made.positive(made.compare(ShareCode.NEGATIVE, 0))[0],)


def after_many(made: Recorded) -> tuple[int, ...]:
    out = made.divide(0, 3)
    for _ in range(17):
        out = made.local(aten.add.Tensor, S(out), S(1))
    return (made.positive(out)[0],)


@pytest.mark.parametrize(
    "build",
    [
        *(used_twice, a_result, written_between, divided_again, weighted, of_two_parts),
        *(of_an_input, negated, not_divided, compared, after_many),
    ],
)
def test_what_may_not_be_joined_stays(build):
    made = Recorded((2,), (2,))
    program = made.program(*build(made))
    assert joined(program) == program


def test_two_layers_are_joined_one_after_the_other():
    made = Recorded((2,), (2,))
    first, _ = made.positive(made.local(aten.add.Tensor, S(made.divide(0, 4)), S(1)))
    second, _ = made.positive(made.local(aten.add.Tensor, S(made.divide(first, 4)), S(1)))
    x, y = torch.tensor([16000, -16000]), torch.tensor([20, 1000])
    program = made.program(second)
    runs = run_all(joined(program, sums_in(program)), [x, y], 3)
    exact = ((((x >> 4) + y).clamp(min=0) >> 4) + y).clamp(min=0)
    assert (runs.secret(second) - exact).abs().max() <= 2
    assert runs.rounds == 8
