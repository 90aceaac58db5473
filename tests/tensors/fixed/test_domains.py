"""Each function is right within its row, over all that the row says it is made for, on each grid.

Arguments are drawn densely: near zero, by magnitude up to the end of the grid, and at the ends of
the domain.  Truncation rounds up or down at random, as that of shares does.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from syft.exceptions import EncodingError, UnsupportedOperation
from syft.tensors.fixed.domains import OTHERS, ROWS
from syft.tensors.fixed.grid import make_grid
from syft.tensors.fixed.precision import fix_precision, float_precision
from syft.tensors.shared.shared_values import get_shared, share_values
from tests.tensors.shared.clear_parties import clear_session
from tests.tensors.shared.local_parties import local_session
from tools import wire_tables

aten = torch.ops.aten

GRIDS = [(2, 16), (2, 24), (2, 28), (2, 6), (10, 4)]

ELEMENTWISE = {
    "exp": (torch.exp, ()),
    "log": (torch.log, ()),
    "sqrt": (torch.sqrt, ()),
    "rsqrt": (torch.rsqrt, ()),
    "reciprocal": (torch.reciprocal, ()),
    "sigmoid": (torch.sigmoid, ()),
    "tanh": (torch.tanh, ()),
    "erf": (torch.erf, ()),
    "silu": (F.silu, ()),
    "mish": (F.mish, ()),
    "gelu": (F.gelu, ()),
    "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), ()),
    "softplus": (F.softplus, (1.0, 20.0)),
    "softplus of 3": (lambda x: F.softplus(x, beta=3.0), (3.0, 20.0)),
    "softplus of a quarter": (lambda x: F.softplus(x, beta=0.25), (0.25, 20.0)),
    "softplus of -2": (lambda x: F.softplus(x, beta=-2.0), (-2.0, 20.0)),
    "softplus with a low threshold": (lambda x: F.softplus(x, threshold=1.0), (1.0, 1.0)),
}


def everywhere(grid, count=250, seed=0):
    """Numbers of the grid, of every magnitude and of both signs."""
    draw = torch.Generator().manual_seed(seed)
    bits = math.log2(grid.scale)
    sizes = torch.rand(count, generator=draw, dtype=torch.float64) * 62 - bits
    near = torch.randn(count, generator=draw, dtype=torch.float64) * 12
    ends = torch.tensor([2.0**n for n in range(-int(bits), int(62 - bits))], dtype=torch.float64)
    values = torch.cat([2**sizes, -(2**sizes), near, ends, -ends, torch.zeros(1)])
    return (values * grid.scale).round() / grid.scale


def inside(row, grid, x, rest, want):
    """Which arguments lie in the domain, and have results that are on the grid."""
    kept = want.isfinite() & (want.abs() < 2.0**62 / grid.scale)
    for bound in row.bounds:
        measured = bound.measure([x, *rest], want)
        bits = math.log2(grid.scale)
        kept &= (measured >= bound.low(bits)) & (measured < bound.high(bits))
    return kept


def test_a_grid_that_is_too_fine_for_a_function_is_refused():
    x = share_values(fix_precision(torch.ones(2), 30, 2), clear_session())
    with pytest.raises(UnsupportedOperation, match="fix_precision.28, base=2. has some"):
        x.exp()


FACTORS = [1, -1, 0.3, -0.7, 1e-4, 3.0, 1000.0, 1e5]


def sizes(grid, count, seed, end):
    """Numbers of the grid of every magnitude from one step to 2^end, and both ends."""
    draw = torch.Generator().manual_seed(seed)
    bits = math.log2(grid.scale)
    made = 2 ** (torch.rand(count, generator=draw, dtype=torch.float64) * (end + bits) - bits)
    made = torch.cat([made, torch.tensor([2.0**end - 2.0**-bits, 2.0 ** (end - 1), 2.0**-bits])])
    signs = torch.randint(0, 2, made.shape, generator=draw) * 2 - 1
    return (made * grid.scale).round().clamp(min=1) / grid.scale * signs


@pytest.mark.parametrize("grid", [pytest.param(g, id=f"{g[0]}-{g[1]}") for g in GRIDS])
@pytest.mark.parametrize("factor", [None, *FACTORS])
def test_a_quotient_is_as_good_as_its_row_says(factor, grid):
    """Divisors up to the end of the domain: a weight for them was rounded to 0."""
    grid = make_grid(*grid)
    bits, row = math.log2(grid.scale), ROWS[aten.div]
    a, b = (sizes(grid, 300, seed, 36 - bits) for seed in (1, 2))
    x = sizes(grid, 300, 3, 8)
    args = [a, b] if factor is None else [x, a, b, factor]
    want = a / b if factor is None else x + factor * a / b
    kept = torch.ones(len(a), dtype=torch.bool)
    for bound in row.bounds:
        measured = bound.measure(args, want)
        kept &= (measured >= bound.low(bits)) & (measured < bound.high(bits))
    args, want = [one[kept] if isinstance(one, torch.Tensor) else one for one in args], want[kept]
    assert len(want) > 40 and float(args[-1 if factor is None else 2].abs().max()) > 2 ** (
        35 - bits
    )
    session = clear_session()
    mine = [
        share_values(fix_precision(one, grid.digits, grid.base), session)
        for one in args
        if isinstance(one, torch.Tensor)
    ]
    found = mine[0] / mine[1] if factor is None else torch.addcdiv(*mine, value=factor)
    (plain,) = get_shared([found])
    error = (plain.child.child.double() / grid.scale - want).abs()
    wrong = error > row.allowed(grid, args, want)
    assert not wrong.any(), (error[wrong], want[wrong])


NORMS = {
    "native_layer_norm": lambda x, w, b: F.layer_norm(x, (16,), w, b),
    "native_batch_norm": lambda x, w, b: F.batch_norm(x, None, None, w[:4], b[:4], training=True),
    "native_group_norm": lambda x, w, b: F.group_norm(x, 2, w[:4], b[:4]),
}


@pytest.mark.parametrize("bits", [16, 24])
@pytest.mark.parametrize("deviation", [0.0502, 1.0, 30.0, 8000.0])
@pytest.mark.parametrize("name", NORMS)
def test_a_norm_is_as_good_as_its_row_says(name, deviation, bits):
    """From the least variance to where the squares leave the ring, on the mean or far from it."""
    grid, row = make_grid(2, bits), ROWS[getattr(aten, name)]
    deviation = min(deviation, 2.0 ** (26 - bits) * 8)
    draw = torch.Generator().manual_seed(bits)
    x = torch.randn(8, 4, 16, generator=draw, dtype=torch.float64)
    x = x / x.var(-1, unbiased=False, keepdim=True).sqrt() * deviation * 1.01 + deviation
    x, w, b = x, torch.rand(16, generator=draw).double() * 4 - 2, torch.ones(16).double()
    x, w = ((one * grid.scale).round() / grid.scale for one in (x, w))
    function, session = NORMS[name], clear_session()
    mine = [share_values(fix_precision(one, bits, 2), session) for one in (x, w, b)]
    (plain,) = get_shared([function(*mine)])
    want = function(x, w, b)
    used = w if "layer" in name else w[:4]
    args = {
        "native_layer_norm": [x, [16], used, b, 1e-5],
        "native_batch_norm": [x, used, b[:4], None, None, True, 0.1, 1e-5],
        "native_group_norm": [x, used, b[:4], 8, 4, 16, 2, 1e-5],
    }[name]
    error = (plain.child.child.double() / grid.scale - want).abs()
    assert row.outside(bits, args, want) == []
    assert bool((error <= row.allowed(grid, args, want)).all()), error.max() * grid.scale


@pytest.mark.parametrize("bits", [12, 18, 24])
@pytest.mark.parametrize("name", NORMS)
def test_a_norm_of_what_leaves_the_ring_is_outside_its_row(name, bits):
    """Squares that leave it were in no bound, and what came of them was called a fault of syft."""
    row = ROWS[getattr(aten, name)]
    w, b = torch.ones(16).double(), torch.zeros(16).double()
    for factor, what in ((0.45, []), (2.5, ["squares of the distances to the mean"])):
        x = torch.tensor([1.0, -1.0]).double().repeat(8, 4, 8) * factor * 2.0 ** (31 - bits)
        args = {
            "native_layer_norm": [x, [16], w, b, 1e-5],
            "native_batch_norm": [x, w[:4], b[:4], None, None, True, 0.1, 1e-5],
            "native_group_norm": [x, w[:4], b[:4], 8, 4, 16, 2, 1e-5],
        }[name]
        found = [bound.what for bound in row.outside(bits, args, NORMS[name](x, w, b))]
        assert found == (["variances"] if bits < 16 else []) + what
    given = [x, w[:4], b[:4], b[:4], 2.0**40 * w[:4], False, 0.1, 1e-5]
    assert ROWS[aten.native_batch_norm].outside(bits, given, x) == []


def test_a_factor_of_zero_adds_nothing():
    mine = share_values(fix_precision(torch.tensor([2.0, -3.0])), clear_session())
    (plain,) = get_shared([torch.addcdiv(mine, mine, mine, value=0)])
    assert float_precision(plain).tolist() == [2.0, -3.0]


def off(x, function, grid, session):
    """How far the results on shares are from those in float64."""
    found = function(share_values(fix_precision(x, grid.digits, grid.base), session))
    (plain,) = get_shared([found])
    return (plain.child.child.double() / grid.scale - function(x)).abs()


@pytest.mark.parametrize("grid", [pytest.param(g, id=f"{g[0]}-{g[1]}") for g in GRIDS])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_a_function_is_as_good_as_its_row_says(name, grid):
    function, rest = ELEMENTWISE[name]
    grid, row = make_grid(*grid), ROWS[getattr(aten, name.split()[0])]
    x = everywhere(grid)
    want = function(x)
    kept = inside(row, grid, x, rest, want)
    x, want = x[kept], want[kept]
    assert len(x) > 20
    error = off(x, function, grid, clear_session())
    wrong = error > row.allowed(grid, [x, *rest], want)
    assert not wrong.any(), sorted(x[wrong].tolist())


@pytest.mark.parametrize("parties", [2, 3, 5])
@pytest.mark.parametrize("name", ["exp", "softplus", "gelu", "mish", "reciprocal", "erf"])
def test_a_function_on_real_shares_is_as_good_as_its_row_says(name, parties):
    function, rest = ELEMENTWISE[name]
    grid, row = make_grid(2, 16), ROWS[getattr(aten, name)]
    x = everywhere(grid, 40, seed=parties)
    want = function(x)
    kept = inside(row, grid, x, rest, want)
    error = off(x[kept], function, grid, local_session(parties))
    assert bool((error <= row.allowed(grid, [x[kept], *rest], want[kept])).all())


SLOPES = {
    "elu": F.elu,
    "celu": lambda x: F.celu(x, 2.0),
    "softplus": F.softplus,
    "silu": F.silu,
    "gelu": F.gelu,
    "mish": F.mish,
    "softplus with a low threshold": lambda x: F.softplus(x, threshold=1.0),
    "softplus of -2": lambda x: F.softplus(x, beta=-2.0, threshold=-30.0),
}


@pytest.mark.parametrize("name", SLOPES)
def test_the_slope_of_a_smooth_rectifier_is_right_everywhere(name):
    grid = make_grid(2, 16)
    x, function = everywhere(grid).requires_grad_(), SLOPES[name]
    function(x).sum().backward()
    mine = share_values(fix_precision(x.detach()), clear_session()).requires_grad_()
    function(mine).sum().backward()
    (found,) = get_shared([mine.grad])
    error = (found.child.child.double() / grid.scale - x.grad).abs()
    row = ROWS.get(getattr(aten, f"{name.split()[0]}_backward", None), ROWS[aten.gelu_backward])
    assert bool((error <= row.allowed(grid, [torch.ones_like(x)], x.grad)).all())


def test_a_function_goes_to_its_limit_where_its_domain_ends_in_one():
    ends = torch.tensor([2.0**20, 2.0**31, 2.0**45], dtype=torch.float64)
    x = share_values(fix_precision(ends), clear_session())
    found = get_shared(
        [x.reciprocal(), x[1:].rsqrt(), (-x).exp(), 1 / -x, x.sigmoid(), (-x).tanh()]
    )
    *zeros, ones, minus = [float_precision(one) for one in found]
    assert all(float(one.abs().max()) <= 2**-16 for one in zeros)
    assert float((ones - 1).abs().max()) <= 2**-16 and float((minus + 1).abs().max()) <= 2**-16


@pytest.mark.parametrize("classes", [1, 2, 10, 1000])
@pytest.mark.parametrize("spread", [1.0, 100.0, 1e9])
def test_softmax_and_its_logarithm_are_as_good_as_their_rows_say(classes, spread):
    grid = make_grid(2, 16)
    draw = torch.Generator().manual_seed(classes)
    x = torch.randn(4, classes, generator=draw, dtype=torch.float64) * spread
    x = (x * grid.scale).round() / grid.scale
    for name, function in (("_softmax", F.softmax), ("_log_softmax", F.log_softmax)):
        want = function(x, 1)
        error = off(x, lambda x, function=function: function(x, 1), grid, clear_session())
        assert bool((error <= ROWS[getattr(aten, name)].allowed(grid, [x], want)).all())


def test_losses_of_a_margin_do_not_take_the_exponential_of_what_is_large():
    x = torch.tensor([-500.0, -20.0, -1.0, 0.0, 3.0, 500.0], dtype=torch.float64)
    y = torch.tensor([1.0, 1.0, -1.0, 1.0, 1.0, -1.0])
    for how in ("none", "mean", "sum"):
        plain = x.clone().requires_grad_()
        want = F.soft_margin_loss(plain, y, reduction=how)
        want.sum().backward()
        mine = share_values(fix_precision(x), clear_session()).requires_grad_()
        loss = F.soft_margin_loss(mine, y, reduction=how)
        loss.sum().backward()
        found, slope = get_shared([loss.detach(), mine.grad])
        assert torch.allclose(float_precision(found).double(), want.detach(), atol=2e-3)
        assert torch.allclose(float_precision(slope).double(), plain.grad, atol=2e-4)


def test_elu_takes_no_exponential_of_what_is_large():
    grid = make_grid(2, 16)
    x = everywhere(grid)
    for function in (F.elu, lambda x: F.celu(x, 2.0)):
        assert bool((off(x, function, grid, clear_session()) <= 4 * 2.0**-16).all())
    mine = share_values(fix_precision(torch.tensor([-1.0, 500.0])), clear_session())
    result = F.elu(mine.requires_grad_().clone(), inplace=True)
    result.sum().backward()
    (slope,) = get_shared([mine.grad])
    assert torch.allclose(float_precision(slope), torch.tensor([0.36788, 1.0]), atol=1e-4)


def test_logit_has_its_digits_near_both_ends():
    x = torch.tensor([2.0**-14, 0.001, 0.3, 0.999])
    mine = share_values(fix_precision(x), clear_session())
    found, limited = get_shared([mine.logit(), mine.logit(eps=0.01)])
    x = float_precision(fix_precision(x))
    assert torch.allclose(float_precision(found), x.logit(), atol=1e-4)
    assert torch.allclose(float_precision(limited), x.logit(eps=0.01), atol=4e-3)


def test_a_slope_of_softplus_with_nothing_to_divide_by_is_refused():
    mine = share_values(fix_precision(torch.ones(2)), clear_session())
    with pytest.raises(EncodingError, match="a division by zero"):
        F.softplus(mine, beta=0.0)


X = torch.tensor([[1.5, 2.0], [-0.5, 3.0]], dtype=torch.float64)
WIDE = X.repeat(1, 2)[..., None]
CALLS = {
    "mul": ([X, X], X * X),
    "addmm": ([X, X, X, 1, 3], X @ X),
    "div": ([X, X], X / X),
    "addcdiv": ([X, X, X, 2], X),
    "var": ([X, None], X.var()),
    "std": ([X, [1]], X.std(1)),
    "native_layer_norm": ([X, [2], None, None, 1e-5], X),
    "native_batch_norm": ([X, None, None, X[0], X[0], True, 0.1, 1e-5], X),
    "native_group_norm": ([WIDE, None, None, 2, 4, 1, 2, 1e-5], WIDE),
    "linalg_inv_ex": ([X], X.inverse()),
    "_linalg_det": ([X], X.det()),
    "_softmax": ([X, 1], X.softmax(1)),
    "gelu_backward": ([X, X], X),
    "exp": ([X], X.exp()),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_row_knows_what_lies_in_its_domain_and_what_may_be_off(name):
    row, (args, want) = ROWS[getattr(aten, name)], CALLS[name]
    assert row.outside(16, args, want) == []
    allowed = row.allowed(make_grid(2, 16), args, want)
    assert bool((allowed > 0).all()) and bool((allowed < 0.01).all())


def test_statistics_that_are_given_are_what_a_batch_is_normalised_by():
    row = ROWS[aten.native_batch_norm]
    args = [X, None, None, X[0], torch.tensor([1.0, 0.001]), False, 0.1, 1e-5]
    (outside,) = row.outside(16, args, X)
    assert outside.text(16) == "variances from 0.002507, below 2³⁰"


@pytest.mark.parametrize("place", range(1, len(wire_tables.WRITTEN)))
def test_the_documents_have_the_rows_of_today(place):
    document, renewed = wire_tables.WRITTEN[place]
    text = document.read_text(encoding="utf-8")
    assert renewed(text) == text, "run: python tools/wire_tables.py --write"
    assert all(f"| {row.title} |" in text for row in (*OTHERS, *ROWS.values()))


def test_a_row_is_shown_in_words():
    assert all(row.error() and row.domain(16) for row in ROWS.values())
    assert ROWS[aten.erf].domain(16) == "all"
    assert ROWS[aten.pow].error() == "that of its parts"
