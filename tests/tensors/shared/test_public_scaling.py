"""Times and over public numbers, over the whole ring: against exact arithmetic, shared and plain.

A shared result is the floor or one more, a plain one the nearest.  The factor counts as float64.
"""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
import torch.nn.functional as F

from syft.exceptions import EncodingError
from syft.tensors.fixed.fixed_link import fixed
from syft.tensors.fixed.grid import make_grid
from syft.tensors.fixed.precision import fix_precision, float_precision
from syft.tensors.shared.shared_values import get_shared, share_values
from tests.tensors.shared.local_parties import local_session

GRID = make_grid(2, 16)
WHERE = [0, 2, 3, 5]
"""How many parties; none is a plain tensor."""

DIVISORS = [2, 3, 7, 10, 101, 1000, 4097, 10_001, 65_536, 999_983, 1_000_000, -3, -16, 3.0]
DIVISORS += [16_777_217.0, 244_488_758.0, 2**53 - 1]
FACTORS = [0.1, 2.7, -0.3, 1 / 3, 0.5, 1e-6, 1e-20, 123.456, -1000.001, 3, 0, 2.0**-40, 0.999999]


def words(count: int = 200, seed: int = 1, end: int = 62) -> torch.Tensor:
    """Ring words of every magnitude below 2^62, and the ends."""
    draw = torch.Generator().manual_seed(seed)
    sizes = 2 ** (torch.rand(count, generator=draw, dtype=torch.float64) * end)
    signs = torch.randint(0, 2, (count,), generator=draw) * 2 - 1
    ends = torch.tensor([(1 << end) - 1, 1 - (1 << end), 0, 1, -1, 30, -30])
    return torch.cat([sizes.to(torch.int64).clamp(max=(1 << end) - 1) * signs, ends])


def shared(integers: torch.Tensor, parties: int) -> torch.Tensor:
    x = fixed(integers, GRID)
    return share_values(x, local_session(parties)) if parties else x


def opened(x: torch.Tensor, parties: int) -> list[int]:
    plain = get_shared([x])[0] if parties else x
    return plain.child.child.flatten().tolist()


def check(found: list[int], exact: list[Fraction], parties: int, relative: Fraction) -> None:
    for one, want in zip(found, exact, strict=True):
        off, most = one - want, relative * abs(want)
        assert (abs(off) < 1 + most) if parties else (abs(off) <= Fraction(65, 128) + most), (
            one,
            float(want),
        )


@pytest.mark.parametrize("parties", WHERE)
@pytest.mark.parametrize("divisor", DIVISORS)
def test_divisors(divisor: float, parties: int) -> None:
    """A whole divisor is exact to the last place; a multiple of it has an exact quotient."""
    x = words(seed=parties)
    multiples = x // max(2_000_000, abs(int(divisor))) * int(divisor)
    for integers in (x, multiples):
        found = opened(shared(integers, parties) / divisor, parties)
        exact = [Fraction(one) / int(divisor) for one in integers.tolist()]
        check(found, exact, parties, Fraction(0))
        if integers is multiples:
            assert found == exact


@pytest.mark.parametrize("parties", WHERE)
@pytest.mark.parametrize("divisor", [16_777_216.5, 244_488_757.56, -0.7, 1e-3, 3e15 + 0.5])
def test_divisors_that_are_not_whole(divisor: float, parties: int) -> None:
    """A divisor counts as float64: as float32 those from 2^24 on would be other, whole numbers."""
    x = words(seed=parties, end=62 - max(math.ceil(-math.log2(abs(divisor))), 0))
    exact = [one / Fraction(divisor) for one in x.tolist()]
    check(opened(shared(x, parties) / divisor, parties), exact, parties, Fraction(1, 2**51))


@pytest.mark.parametrize("parties", WHERE)
@pytest.mark.parametrize("factor", FACTORS)
def test_factors(factor: float, parties: int) -> None:
    end = 62 - max(math.ceil(math.log2(abs(factor))) if factor else 0, 0)
    x = words(seed=parties, end=end)
    found = opened(shared(x, parties) * factor, parties)
    exact = [one * Fraction(factor) for one in x.tolist()]
    check(found, exact, parties, Fraction(1, 2**52))


@pytest.mark.parametrize("parties", WHERE)
@pytest.mark.parametrize("whole", [False, True])
def test_each_element_has_a_divisor_of_its_own(whole: bool, parties: int) -> None:
    """Magnitudes from 10^-3 to 10^6 beside each other, of both signs, and broadcast."""
    x = words(133, end=50).view(7, 20)
    draw = torch.Generator().manual_seed(3)
    y = 10 ** (torch.rand(7, 1, generator=draw, dtype=torch.float64) * 9 - 3)
    y = (y.ceil() if whole else y) * torch.tensor([[1], [-1], [1], [1], [-1], [1], [1]])
    found = opened(shared(x, parties) / y, parties)
    numbers = y.expand(7, 20).flatten().tolist()
    exact = [Fraction(n) / Fraction(d) for n, d in zip(x.flatten().tolist(), numbers, strict=True)]
    relative = Fraction(0) if whole and parties else Fraction(1, 2**51)
    check(found, exact, parties, relative)


@pytest.mark.parametrize("parties", [0, 3])
def test_means_of_many_and_of_large_numbers(parties: int) -> None:
    """Heights in centimetres, prices, and a sum that all but fills the ring."""
    heights = (torch.arange(10_001) % 50 + 150) << 16
    prices = torch.full((101,), 9000 << 16)
    most = torch.full((1001,), (1 << 62) // 1001)
    for x in (heights, prices, -prices, most):
        (found,) = opened(shared(x, parties).mean(), parties)
        check([found], [Fraction(int(x.sum()), len(x))], parties, Fraction(0))


STATISTICS = {
    "var": lambda x: x.var(),
    "var of rows": lambda x: x.view(10, -1).var(1),
    "std": lambda x: x.std(),
    "standardised": lambda x: (x - x.mean()) / x.std(),
    "mean": lambda x: x.mean(),
    "over a number": lambda x: x / 7.3,
    "mse": lambda x: F.mse_loss(x, torch.full_like(x, 35_000)),
    "huber": lambda x: F.huber_loss(x, x.flip(0), delta=300.0),
    "avg_pool2d": lambda x: F.avg_pool2d(
        x.view(1, 1, 25, 40), 3, 2, padding=1, count_include_pad=False
    ),
    "adaptive pool": lambda x: F.adaptive_avg_pool2d(x.view(1, 1, 25, 40), (4, 7)),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_of_a_thousand_incomes(name: str) -> None:
    draw = torch.Generator().manual_seed(5)
    x = torch.rand(1000, generator=draw, dtype=torch.float64) * 50_000 + 10_000
    x = (x * GRID.scale).round() / GRID.scale
    want = STATISTICS[name](x)
    session = local_session(2)
    (plain,) = get_shared([STATISTICS[name](share_values(fix_precision(x), session))])
    off = (plain.child.child.double() / GRID.scale - want).abs()
    assert (off <= 4 / GRID.scale + 4e-6 * want.abs()).all(), off.max()


@pytest.mark.parametrize("shared_weights", [False, True])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("variance", [1e6, 1.0, 1e-6])
def test_a_batch_is_normalised_by_public_statistics_of_any_size(variance, affine, shared_weights):
    """A reciprocal deviation of 0.001 has 66 steps on the grid; it is not put there."""
    draw = torch.Generator().manual_seed(int(variance))
    x, mean = (torch.randn(n, 4, 3, generator=draw, dtype=torch.float64) for n in (20, 1))
    x, mean = (x * GRID.scale * variance**0.5).round() / GRID.scale, mean[0, :, 0] * variance**0.5
    var = torch.rand(4, generator=draw, dtype=torch.float64).add(0.5) * variance
    weight, bias = torch.tensor([1.5, -0.25, 2.0, 1.0]), torch.tensor([0.5, 0.0, -3.0, 1.0])
    session = local_session(2)

    def part(one):
        shared = share_values(fix_precision(one), session) if shared_weights else one.float()
        return shared if affine else None

    rest = (weight, bias) if affine else (None, None)
    want = F.batch_norm(x, mean, var, *(one if one is None else one.double() for one in rest))
    mine = share_values(fix_precision(x), session)
    (plain,) = get_shared([F.batch_norm(mine, mean, var, part(weight), part(bias))])
    assert (plain.child.child.double() / GRID.scale - want).abs().max() < 4 / GRID.scale
    assert sum(session.lines.rounds) == (3 if affine and shared_weights else 1)


def test_a_scaling_takes_one_opening_of_eight_bytes() -> None:
    for scaling in (
        lambda x: x / 3,
        lambda x: x * 0.1,
        lambda x: x * 2.7,
        lambda x: x / torch.arange(1.0, 101),
        lambda x: x / torch.arange(1, 101),
        lambda x: x.expand(2, 100).mean(1),
    ):
        session = local_session(2)
        x = share_values(fix_precision(torch.ones(100)), session)
        out = scaling(x)
        get_shared([out])
        assert sum(session.lines.rounds) == 1
        assert session.lines.sent[-1][0] == 8 * out.numel()


@pytest.mark.parametrize("parties", [0, 2])
@pytest.mark.parametrize("factor", [float("nan"), float("inf"), 1e30])
def test_what_is_no_factor_is_refused(factor: float, parties: int) -> None:
    x = shared(torch.tensor([1 << 16]), parties)
    with pytest.raises(EncodingError):
        x * factor
    with pytest.raises(EncodingError):
        x / torch.tensor([1 / factor if factor == 1e30 else math.nan])


def test_plain_integers_near_the_end_do_not_wrap_when_they_are_rounded() -> None:
    end = (1 << 63) - 2047  # the last that float64 tells from 2^63
    x = fixed(torch.tensor([end]), GRID)
    assert (x / 2).child.child.item() == (1 << 62) - 1023
    assert (x / 3).child.child.item() == round(Fraction(end, 3))
    assert x.mean().child.child.item() == end
    assert fixed(torch.tensor([end - 2, 1]), GRID).mean().child.child.item() == (1 << 62) - 1024
    assert float_precision(x * 0.5).item() == 2.0**46


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("number", [3e9, -3e9, 1e9, 5e13])
def test_a_relu_of_a_sum_is_that_of_the_kept_sum(number: float, private: bool) -> None:
    session = local_session(3)
    x = share_values(fix_precision(torch.tensor([1.5, -2.0])), session)
    plain = torch.full((2,), number, dtype=torch.float64)
    b = share_values(fix_precision(plain), session) if private else number
    kept = x * x + b
    for found in (F.relu(kept), F.relu(x * x + b), F.relu(x / 3 + b)):
        (got,) = get_shared([found])
        assert (float_precision(got).double() - plain.clamp(min=0)).abs().max() < 5 + 1e-6 * abs(
            number
        )


@pytest.mark.parametrize("parties", WHERE)
def test_a_plain_tensor_multiplies_as_it_is(parties: int) -> None:
    """In either place and in place, broadcast, and in the gradient; not as the grid has it."""
    x, factors = words(end=45), torch.tensor([[1e-6], [3.3e-5], [2.7], [-0.1]])
    encoded = shared(x, parties)
    in_place = shared(x.expand(4, -1).contiguous(), parties)
    in_place *= factors
    leaf = shared(x, parties).requires_grad_()
    exact = [
        Fraction(factor) * number for factor in factors[:, 0].tolist() for number in x.tolist()
    ]
    for found in (encoded * factors, factors * encoded, torch.mul(leaf, factors), in_place):
        check(opened(found.detach(), parties), exact, parties, Fraction(1, 2**40))
    (leaf * factors[0]).sum().backward()
    assert leaf.grad is not None and opened(leaf.grad, parties) == [0] * len(x)  # 1e-6: no step
    leaf.grad = None
    (leaf * (factors[1] * 1000)).sum().backward()
    check(opened(leaf.grad, parties), [Fraction(0.033) * 2**16] * len(x), parties, Fraction(0))


@pytest.mark.parametrize("parties", [2, 3])
def test_a_factor_of_a_private_quotient_that_has_no_place_is_refused(parties: int) -> None:
    one = shared(torch.tensor([1 << 16]), parties)
    for factor in (2.0**44, -(2.0**50)):
        with pytest.raises(EncodingError, match="a factor of -?1[0-9]*.0 in fixed"):
            torch.addcdiv(one, one, one, value=factor)
