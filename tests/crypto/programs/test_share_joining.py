"""Joined programs compute the same in fewer rounds; what may not be joined is left alone."""

from __future__ import annotations

import pytest
import torch

from syft.crypto.kernels import Kernel, KernelCode
from syft.crypto.programs.share_joining import joined
from syft.crypto.programs.share_program import Instruction, ShareCode, ShareProgram, ShareSlot
from tests.crypto.program_runs import Recorded, run_all

aten = torch.ops.aten
S = ShareSlot
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


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("parties", [2, 3])
def test_a_layer_takes_one_opening_less(moved, biased, parties):
    made = Recorded((3, 5), (4, 5), (4,))
    value, sign = layer(made, moved, biased)
    program = made.program(value, sign)
    inputs = [whole(3, 5), whole(4, 5), whole(4)]
    apart, together = run_all(program, inputs, parties), run_all(joined(program), inputs, parties)
    assert (apart.rounds, together.rounds) == (6, 5)
    assert together.sent[0] == apart.sent[0] - (parties - 1) * 8 * 12
    assert (apart.secret(value) - together.secret(value)).abs().max() <= 1
    x, w, b = inputs
    exact = (x @ w.t() >> 16) + 2 * biased * b
    assert (together.secret(value) - exact.clamp(min=0)).abs().max() <= 1
    clear = (exact != 0) & (exact != -1)
    assert torch.equal(together.secret(sign).view(3, 4)[clear], (exact >= 0).long()[clear])


def codes(program: ShareProgram) -> list[ShareCode]:
    return [one.code for one in program.instructions]


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
    assert shorter.instructions[2].args[4:8:2] == ((0, 0), (0, 1))
    x, y = whole(2), whole(2)
    assert torch.equal(run_all(shorter, [x, y]).secret(product), x * y)


def test_masks_of_programs_before_keep_their_names():
    args = (1, (), S(0), S(1), (7, 3), (2,), (9, 0), (2,), (2,))
    one = Instruction(ShareCode.PRODUCT, args, (2,))
    assert joined(ShareProgram(2, (one,), (2,))).instructions == (one,)


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
    runs = run_all(joined(made.program(second)), [x, y], 3)
    exact = ((((x >> 4) + y).clamp(min=0) >> 4) + y).clamp(min=0)
    assert (runs.secret(second) - exact).abs().max() <= 2
    assert runs.rounds == 8
