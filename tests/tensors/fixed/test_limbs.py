"""Products by limbs: exact for every integer of the ring, for every inner dimension."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from syft.tensors.fixed import ring
from syft.tensors.fixed.ring import (
    apply_linear,
    by_limbs,
    limb_count,
    limbs,
    product,
    wrapping_product,
)
from tests.conftest import DEVICES

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
        got = by_limbs(torch.mm, a.to(device), b.to(device), inner)
        assert got.device.type == device
        assert got.tolist() == [[signed(value % 2**64) for value in row] for row in exact]


FORMS = {
    "mm": (torch.mm, (3, 2049), (2049, 2)),
    "matmul": (torch.matmul, (2, 3, 2049), (2, 2049, 2)),
    "bmm": (torch.ops.aten.bmm.default, (2, 3, 2049), (2, 2049, 2)),
    "mv": (torch.ops.aten.mv.default, (3, 2049), (2049,)),
    "dot": (torch.dot, (2049,), (2049,)),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_a_matrix_product_is_split(name, monkeypatch):
    """Split, three limbs an operand are enough; an unknown bilinear map gets narrower ones."""
    form, *shapes = FORMS[name]
    a, b = (extreme(*shape) for shape in shapes)
    widths = []

    def watched(values, width):
        widths.append(width)
        return limbs(values, width)

    monkeypatch.setattr(ring, "limbs", watched)
    assert torch.equal(by_limbs(form, a, b, 2049), form(a, b))
    assert widths == [22] * 4
    widths.clear()
    assert torch.equal(by_limbs(lambda x, y: form(x, y), a, b, 2049), form(a, b))
    assert widths == [21] * 2


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
    assert torch.equal(by_limbs(F.conv2d, x, w, 9 * x.shape[1]), exact)


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


@pytest.mark.parametrize("cost", [0.5, 5.0, 100.0])
@pytest.mark.parametrize("bits", [10, 20, 27])
def test_the_faster_kernel_is_chosen_and_the_result_is_the_same(cost, bits, monkeypatch):
    """``cost`` is that of the int64 kernel over float64; 27-bit operands take four products, and
    at 64 x 64 the conversions cost three times as much as they do."""
    monkeypatch.setattr(ring, "int64_cost", lambda: cost)
    a = torch.randint(-(2**bits), 2**bits, (64, 64))
    kernels = []

    def mm(one, other):
        kernels.append(one.dtype)
        return torch.mm(one, other)

    assert torch.equal(product(mm, a, a, 64, 1, native=True), a @ a)
    pairs = 4 if bits == 27 else 1
    assert kernels == [torch.int64] if cost <= 4 * pairs else [torch.float64] * pairs
    assert torch.equal(wrapping_product(mm, a, a, 64, native=True), a @ a)
    kernels.clear()
    small = a[:8, :8]
    assert torch.equal(product(mm, small, small, 8, 1, native=True), small @ small)
    assert kernels == [torch.int64]


def test_linear_maps_of_the_whole_ring_wrap_as_sums_do():
    odd = torch.tensor([2**52 - 1, 2**52 - 1, 2**52 - 1, 2])[:, None]
    for values in (extreme(4, 9), odd):
        assert torch.equal(apply_linear(lambda t: t.sum(0), values, 4), values.sum(0))
