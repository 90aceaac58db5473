"""Products by limbs: exact for every integer of the ring, for every inner dimension."""

from __future__ import annotations

import pytest
import torch

from hypothesis import given, settings
from hypothesis import strategies as st

from syft.crypto import ring_products
from syft.crypto.kernels import Kernel, KernelCode
from syft.crypto.ring_products import (
    WHOLE,
    by_digits,
    by_limbs,
    digits,
    limb_count,
    limbs,
    magnitude,
    ring_map,
    ring_product,
)
from tests.conftest import DEVICES

MATMUL = Kernel(KernelCode.MATMUL)

LOW, HIGH = -(2**63), 2**63 - 1
INNER = [1, 2047, 2048, 2049, 4608]

# Integers whose limbs are as large as limbs get, of both signs: the sums of 2,048 products reach
# 2^53 exactly.
WORST = sum(-(2**21) << (22 * i) for i in range(2)) % 2**64

# Limbs whose products are odd, so that one sum beyond 2^53 shows.
ODD = (2**21 - 1) << 22 | (2**21 - 1)


def signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def extreme(*shape: int) -> torch.Tensor:
    """The ends of the ring, what is next to them, and the worst limbs, in turn."""
    worst = signed(WORST)
    values = torch.tensor([LOW, HIGH, worst, -worst, LOW + 1, 2**43 - 1, -1, 2**21, -(2**21)])
    return values.repeat(-(-torch.Size(shape).numel() // 9))[: torch.Size(shape).numel()].view(
        shape
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("inner", INNER)
def test_matrix_products_are_those_of_python(inner, device):
    torch.manual_seed(inner)
    cases = [
        (torch.full((2, inner), LOW), torch.full((inner, 2), HIGH)),
        (torch.full((2, inner), signed(WORST)), torch.full((inner, 2), signed(WORST))),
        (torch.full((2, inner), ODD), torch.full((inner, 2), ODD)),
        (torch.full((2, inner), -(2**21)), torch.full((inner, 2), -(2**21))),
        (extreme(2, inner), extreme(inner, 2)),
        (torch.randint(LOW, HIGH, (2, inner)), torch.randint(LOW, HIGH, (inner, 2))),
    ]
    for a, b in cases:
        exact = [
            [sum(x * y for x, y in zip(row, column, strict=True)) for column in b.t().tolist()]
            for row in a.tolist()
        ]
        got = by_limbs(MATMUL, a.to(device), b.to(device))
        assert got.device.type == device
        assert got.tolist() == [[signed(value % 2**64) for value in row] for row in exact]


FORMS = {
    "mm": ((), (3, 2049), (2049, 2)),
    "transposed": ((True, True), (2049, 3), (2, 2049)),
    "matmul": ((), (2, 3, 2049), (2, 2049, 2)),
    "mv": ((), (3, 2049), (2049,)),
    "dot": ((), (2049,), (2049,)),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_a_matrix_product_is_split(name, monkeypatch):
    """Split, three limbs an operand are enough."""
    turns, *shapes = FORMS[name]
    kernel = Kernel(KernelCode.MATMUL, turns)
    a, b = (extreme(*shape) for shape in shapes)
    widths = []

    def watched(values, width):
        widths.append(width)
        return limbs(values, width)

    monkeypatch.setattr(ring_products, "limbs", watched)
    assert torch.equal(by_limbs(kernel, a, b), kernel(a, b))
    assert widths == [22] * 4


@pytest.mark.parametrize("channels", [3, 227, 228])
def test_convolutions_are_those_of_int64(channels):
    """Nine terms a channel: 228 channels are beyond 2,048 terms."""
    for x, w in (
        (extreme(2, channels, 4, 4), extreme(3, channels, 3, 3)),
        (torch.full((2, channels, 4, 4), ODD), torch.full((3, channels, 3, 3), ODD)),
    ):
        check_convolution(x, w)


def check_convolution(x: torch.Tensor, w: torch.Tensor) -> None:
    columns = x.unfold(2, 3, 1).unfold(3, 3, 1).permute(0, 2, 3, 1, 4, 5).reshape(8, -1)
    exact = (columns @ w.view(3, -1).t()).view(2, 2, 2, 3).permute(0, 3, 1, 2)
    kernel = Kernel(KernelCode.CONVOLUTION, ((1, 1), (0, 0), (1, 1), False, (0, 0), 1))
    assert torch.equal(by_limbs(kernel, x, w), exact)


@pytest.mark.parametrize("width", [2, 13, 21, 22, 53])
def test_limbs_put_together_are_the_integers(width):
    values = extreme(9)
    cut = limbs(values, width)
    assert len(cut) == limb_count(2**63, width)
    assert max(limb.abs().max().item() for limb in cut) <= 2 ** (width - 1)
    total = torch.zeros(9, dtype=torch.int64)
    for i, limb in enumerate(cut):
        total += limb.to(torch.int64) << (width * i)
    assert torch.equal(total, values)


WAYS = ["_natively", "_by_one_float", "by_limbs", "by_digits"]


@pytest.mark.parametrize(
    "int64, int8, bits, chosen",
    [
        (0.5, 9.0, 10, "_natively"),
        (100.0, 90.0, 10, "_by_one_float"),
        (0.5, 9.0, 27, "_natively"),
        (100.0, 90.0, 27, "by_limbs"),
        (100.0, 2.0, 27, "by_digits"),
        (100.0, float("inf"), 27, "by_limbs"),
    ],
)
def test_the_fastest_way_is_chosen_and_the_result_is_the_same(
    int64, int8, bits, chosen, monkeypatch
):
    """The costs are those of a product over float64; 27-bit operands take four of these."""
    monkeypatch.setattr(ring_products, "int64_cost", lambda: int64)
    monkeypatch.setattr(ring_products, "int8_cost", lambda: int8)
    taken = []

    def watched(name):
        way = getattr(ring_products, name)
        return lambda kernel, a, b: taken.append(name) or way(kernel, a, b)

    for name in WAYS:
        monkeypatch.setattr(ring_products, name, watched(name))
    a = torch.randint(-(2**bits), 2**bits, (64, 64))
    largest = magnitude(a), magnitude(a)
    assert torch.equal(ring_product(MATMUL, a, a, largest), a @ a)
    assert taken == [chosen]
    small = a[:8, :8]
    assert torch.equal(ring_product(MATMUL, small, small), small @ small)
    assert taken == [chosen]
    medium = a[:40, :40]
    assert torch.equal(ring_product(MATMUL, medium, medium), medium @ medium)
    assert taken == [chosen, "_natively"]


@pytest.mark.parametrize("way", WAYS[2:])
@pytest.mark.parametrize("shapes", [((64, 64), (64, 64)), ((70, 90), (90, 3)), ((1, 5), (5, 1))])
def test_every_way_wraps_as_int64_does(way, shapes):
    a, b = (extreme(*shape) for shape in shapes)
    assert torch.equal(getattr(ring_products, way)(MATMUL, a, b), torch.mm(a, b))


@pytest.mark.parametrize("inner", [2**13, 2**13 + 1])
def test_digits_of_long_products_are_split(inner):
    lowest = torch.full((2, inner), 0x7F7F7F7F7F7F7F80)
    assert torch.equal(by_digits(MATMUL, lowest, lowest.t()), torch.mm(lowest, lowest.t()))
    turned = Kernel(KernelCode.MATMUL, (False, True))
    assert torch.equal(by_digits(turned, lowest, lowest), torch.mm(lowest, lowest.t()))


def test_digits_put_together_are_the_integers():
    values = extreme(9)
    places = 256 ** torch.arange(8)
    assert torch.equal((digits(values).to(torch.int64) * places).sum(-1), values)


def test_digits_that_are_not_exact_are_never_used(monkeypatch):
    def saturating(a, b):
        return torch.mm(a.to(torch.int64), b.to(torch.int64)).clamp(max=2**20).to(torch.int32)

    def absent(a, b):
        raise RuntimeError("no such kernel")

    for product in (saturating, absent):
        monkeypatch.setattr(ring_products, "int8_matmul", product)
        ring_products.int8_cost.cache_clear()
        assert ring_products.int8_cost() == float("inf")
    monkeypatch.undo()
    ring_products.int8_cost.cache_clear()


def test_linear_maps_of_the_whole_ring_wrap_as_sums_do():
    window = Kernel(KernelCode.AVG_POOL2D, ((2, 2), (), (0, 0), False, True))
    odd = torch.tensor([2**52 - 1, 2**52 - 1, 2**52 - 1, 2]).view(1, 2, 2)
    for values in (extreme(1, 4, 6), odd):
        sums = values.unfold(1, 2, 2).unfold(2, 2, 2).sum((-1, -2))
        assert torch.equal(ring_map(window, values), sums)
        assert torch.equal(ring_map(window, values, magnitude(values)), sums)
    few = torch.arange(16).view(1, 4, 4)
    assert torch.equal(ring_map(window, few, 15), few.unfold(1, 2, 2).unfold(2, 2, 2).sum((-1, -2)))


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=4, max_size=4))
def test_linear_maps_are_exact_for_every_integer(numbers):
    x = torch.tensor(numbers).view(1, 2, 2)
    window = Kernel(KernelCode.AVG_POOL2D, ((2, 2), (), (0, 0), False, True))
    assert ring_map(window, x, magnitude(x)).item() == x.sum().item()


def test_products_of_a_device_without_int64_are_limbs(monkeypatch):
    monkeypatch.setattr(Kernel, "native", lambda self, device: False)
    monkeypatch.setattr(Kernel, "__call__", _floats_only(Kernel.__call__))
    a, small = extreme(3, 3), torch.arange(9).view(3, 3)
    assert torch.equal(ring_product(MATMUL, a, a), torch.mm(a, a))
    assert torch.equal(ring_product(MATMUL, small, small, (8, 8)), torch.mm(small, small))
    assert WHOLE == (2**63, 2**63)


def _floats_only(call):
    def run(kernel, *operands):
        assert all(operand.dtype is torch.float64 for operand in operands)
        return call(kernel, *operands)

    return run


def test_nothing_has_no_magnitude():
    assert magnitude(torch.empty(0, dtype=torch.int64)) == 0
