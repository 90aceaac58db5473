"""How far shared numbers in fixed precision are from exact ones, up to the ends of their range.

Integers are exact.  A product is divided by the scale: the floor, or one more.  So a product of
numbers on the grid is off by less than one step, and a sum of products too, since it is divided
once.  Comparisons, relu and the largest of several are exact on the grid.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from syft.tensors.fixed.precision import fix_precision
from syft.tensors.shared.shared_values import get_shared, share_values
from tests.tensors.shared.local_parties import local_session

STEP = 2.0**-16
LARGEST = 2**31 - 1
"""In steps: the product of two is below 2^62."""

EDGES = [0, 1, -1, 2**16, -(2**16), 2**16 - 1, 2**30, -(2**30), LARGEST, -LARGEST]
numbers = st.one_of(st.sampled_from(EDGES), st.integers(-LARGEST, LARGEST))
small = st.one_of(st.sampled_from(EDGES[:6]), st.integers(-(2**29), 2**29))
parties = st.sampled_from([2, 3])


def on_grid(steps, *shape):
    return (torch.tensor(steps, dtype=torch.float64) * STEP).view(shape or (-1,))


def shared(session, *values):
    return [share_values(fix_precision(value), session) for value in values]


def steps_of(x):
    (plain,) = get_shared([x])
    return plain.child.child


def floor_of(exact):
    """Integers in steps of 2^-32 as steps of 2^-16, rounded down."""
    return torch.tensor([value >> 16 for value in exact])


def is_floor_or_one_more(found, exact):
    difference = found.reshape(-1) - floor_of(exact)
    return bool(((difference == 0) | (difference == 1)).all())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=70), parties)
def test_products(pairs, count):
    left, right = zip(*pairs, strict=True)
    x, y = shared(local_session(count), on_grid(left), on_grid(right))
    assert is_floor_or_one_more(steps_of(x * y), [a * b for a, b in pairs])


@settings(max_examples=40, deadline=None)
@given(st.lists(small, min_size=12, max_size=12), parties)
def test_matrix_products(values, count):
    left, right = on_grid(values[:6], 2, 3), on_grid(values[6:], 3, 2)
    x, y = shared(local_session(count), left, right)
    exact = [
        sum(values[3 * row + k] * values[6 + 2 * k + column] for k in range(3))
        for row in range(2)
        for column in range(2)
    ]
    assert is_floor_or_one_more(steps_of(x @ y), exact)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=130), parties)
def test_relu_and_comparisons(pairs, count):
    left, right = (on_grid(side) for side in zip(*pairs, strict=True))
    x, y = shared(local_session(count), left, right)
    assert torch.equal(steps_of(F.relu(x)).double() * STEP, F.relu(left))
    results = get_shared([x < y, x <= y, x > y, x >= y, x == y, x != y])
    wanted = [left < right, left <= right, left > right, left >= right, left == right]
    for found, want in zip(results, [*wanted, left != right], strict=True):
        assert torch.equal(found.bool(), want)


@settings(max_examples=30, deadline=None)
@given(st.lists(numbers, min_size=16, max_size=16), parties)
def test_max_pool(values, count):
    x = on_grid(values, 1, 1, 4, 4)
    (mine,) = shared(local_session(count), x)
    assert torch.equal(steps_of(F.max_pool2d(mine, 2)).double() * STEP, F.max_pool2d(x, 2))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(numbers, small), min_size=1, max_size=70))
def test_relu_of_a_product(pairs):
    """What a layer does: the division and the relu are one instruction."""
    left, right = zip(*pairs, strict=True)
    x, y = shared(local_session(2), on_grid(left), on_grid(right))
    found = steps_of(F.relu(x * y))
    exact = [max(a * b, 0) for a, b in pairs]
    assert is_floor_or_one_more(found, exact)


@given(st.sampled_from([10.0, 3.0, 1.0, 0.3, 0.1]), st.integers(0, 99))
@settings(max_examples=10)
def test_a_normalisation_is_as_good_as_its_variance(spread, seed):
    x = torch.randn(5, 16, generator=torch.Generator().manual_seed(seed)).double() * spread
    x = on_grid((x / STEP).round().long().tolist(), 5, 16)
    (shares,) = shared(local_session(), x)
    found = steps_of(F.layer_norm(shares, (16,))).double() * STEP
    want = F.layer_norm(x, (16,))
    error = (found - want).abs()
    variance = x.var(1, unbiased=False, keepdim=True)
    deviation = variance.sqrt()
    small = 4 * STEP + 2 * STEP / deviation
    assert bool((error <= small + want.abs() * STEP * (2 / variance + deviation)).all())
