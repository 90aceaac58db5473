"""The cost of a program is what its run sends."""

from __future__ import annotations

import pytest
import torch

from syft.crypto.kernels import Kernel, KernelCode
from syft.crypto.programs.share_cost import cost
from syft.crypto.programs.share_joining import joined
from syft.crypto.programs.share_program import ShareCode, ShareProgram
from syft.program.program import Slot
from tests.crypto.program_runs import Recorded, run_all

aten = torch.ops.aten
S = Slot


def check(program: ShareProgram, *shapes: tuple[int, ...], parties: int = 3) -> None:
    runs = run_all(program, [torch.zeros(shape, dtype=torch.int64) for shape in shapes], parties)
    found = cost(program, shapes)
    assert (found.rounds, found.dealt) == (runs.rounds, runs.dealt)
    sent = [
        (parties - 1) * found.opened
        + sum(size for party, size in found.revealed.items() if party != rank)
        for rank in range(parties)
    ]
    assert sent == runs.sent


GATES = [ShareCode.NEGATIVE, ShareCode.ZERO]


@pytest.mark.parametrize("elements", [0, 1, 63, 64, 65, 1000, 40000])
def test_every_gate_costs_what_it_sends(elements):
    for code in GATES:
        made = Recorded((elements,))
        check(made.program(made.compare(code, 0)), (elements,))
    for bits in (0, 16):
        made = Recorded((elements,))
        check(made.program(*made.positive(0, bits)), (elements,))
        made = Recorded((elements,))
        check(made.program(made.divide(0, bits)), (elements,))


def network() -> Recorded:
    made = Recorded((1, 1, 8, 8), (4, 1, 3, 3), (2, 36))
    conv = Kernel(KernelCode.CONVOLUTION, ((1, 1), (0, 0), (1, 1), False, (0, 0), 1))
    turned = Kernel(KernelCode.MATMUL, (False, True))
    x = made.divide(made.product(conv, made.mask(0), made.mask(1)), 16)
    pool = Kernel(KernelCode.AVG_POOL2D, ((2, 2), (), (0, 0), False, True))
    active, sign = made.positive(made.divide(made.linear(pool, x), 2))
    flat = made.local(aten.view.default, S(active), (1, 36))
    bias = made.public(torch.arange(2))
    out = made.divide(made.product(turned, made.mask(flat), made.mask(2)), 16)
    summed = made.local(
        aten.cat.default, (S(out), S(made.local(aten.unsqueeze.default, S(bias), 0)))
    )
    first = made.reveal(summed, 0)
    other = made.reveal(made.local(aten.index.Tensor, S(sign), (None, torch.arange(2))), 1)
    again = made.reveal(first_rows(made, summed), 0)
    made.results = (out, first, other, again)
    return made


def first_rows(made: Recorded, x: int) -> int:
    return made.local(aten.split.Tensor, S(x), 1)[0]


@pytest.mark.parametrize("parties", [2, 3])
def test_a_network_costs_what_it_sends(parties):
    made = network()
    program = made.program(*made.results)
    shapes = (1, 1, 8, 8), (4, 1, 3, 3), (2, 36)
    check(program, *shapes, parties=parties)
    check(joined(program), *shapes, parties=parties)


def test_waiting_for_a_write_costs_rounds():
    made = Recorded((3,), (3,))
    made.compare(ShareCode.NEGATIVE, 1)
    made.write(aten.zero_.default, S(0))
    after = made.divide(0, 3)
    program = made.program(after, 2)
    check(program, (3,), (3,))
    assert cost(program, [(3,), (3,)]).rounds == 5


@pytest.mark.parametrize("first", [False, True])
def test_what_follows_from_a_public_factor_costs_what_it_sends(first):
    made = Recorded((2, 3))
    factor = torch.ones((5, 2) if first else (3, 7), dtype=torch.int64)
    out = made.scaled(Kernel(KernelCode.MATMUL), 0, factor, first)
    check(made.program(made.reveal(out, 1)), (2, 3))
