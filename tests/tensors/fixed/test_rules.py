"""Single rules: mixed operands, in-place and out= forms, casts, infinities, and refusals."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from syft.exceptions import EncodingError, HookError, UnsupportedOperation
from syft.tensors.fixed.rings.integer_ring import PlainRing
from syft.tensors.fixed.fallback import functional_form, strategy_of
from syft.tensors.fixed.fixed_link import is_fixed, rule
from syft.tensors.fixed.grid import CEILING, FLOOR, make_grid
from syft.tensors.fixed.precision import (
    FixedPrecisionTensor,
    fix_precision,
    fix_precision_,
    float_precision,
    forbid_decoding,
)
from tests.conftest import DEVICES

aten = torch.ops.aten


def fixed(*numbers: float, digits: int | None = None) -> torch.Tensor:
    return fix_precision(torch.tensor(numbers), digits)


def values(x: torch.Tensor) -> list:
    assert is_fixed(x)
    return float_precision(x).tolist()


# ----------------------------------------------------------------------------------- mixed operands

MIXED = {
    "number": (lambda x: x + 0.5, [1.5, -1.5]),
    "number first": (lambda x: 0.5 + x, [1.5, -1.5]),
    "number minus": (lambda x: 1 - x, [0.0, 3.0]),
    "plain": (lambda x: x + torch.tensor([0.5, 1.0]), [1.5, -1.0]),
    "plain first": (lambda x: torch.tensor([0.5, 1.0]) + x, [1.5, -1.0]),
    "plain minus": (lambda x: torch.tensor([0.5, 1.0]) - x, [-0.5, 3.0]),
    "plain of integers": (lambda x: x + torch.tensor([1, 2]), [2.0, 0.0]),
    "alpha": (lambda x: torch.add(x, x, alpha=0.5), [1.5, -3.0]),
    "alpha of a number": (lambda x: torch.sub(x, 2, alpha=0.25), [0.5, -2.5]),
    "rsub with alpha": (lambda x: torch.rsub(x, x, alpha=2), [-1.0, 2.0]),
    "times number": (lambda x: x * 0.25, [0.25, -0.5]),
    "times integer": (lambda x: 3 * x, [3.0, -6.0]),
    "times plain": (lambda x: torch.tensor([0.5, 2.0]) * x, [0.5, -4.0]),
    "times integers": (lambda x: x * torch.tensor([2, 3]), [2.0, -6.0]),
    "times mask": (lambda x: x * torch.tensor([True, False]), [1.0, 0.0]),
    "times 0-dim": (lambda x: x * torch.tensor(0.5), [0.5, -1.0]),
    "over number": (lambda x: x / 4, [0.25, -0.5]),
    "over float": (lambda x: x / 0.5, [2.0, -4.0]),
    "over plain": (lambda x: x / torch.tensor([0.5, 4.0]), [2.0, -0.5]),
    "over integers": (lambda x: x / torch.tensor([2, 4]), [0.5, -0.5]),
    "plain over": (lambda x: torch.tensor([3.0, 1.0]) / x, [3.0, -0.5]),
    "number over": (lambda x: 1 / x, [1.0, -0.5]),
    "floor divide": (lambda x: x // 0.75, [1.0, -3.0]),
    "remainder": (lambda x: x % 0.75, [0.25, 0.25]),
    "remainder of a number": (lambda x: torch.remainder(5, x), [0.0, -1.0]),
    "fmod": (lambda x: torch.fmod(x, 0.75), [0.25, -0.5]),
    "matmul": (lambda x: x @ torch.tensor([[1.0], [0.5]]), [0.0]),
    "matmul first": (lambda x: torch.tensor([[2.0, 1.0]]) @ x, [0.0]),
    "where": (lambda x: torch.where(torch.tensor([True, False]), x, 7.0), [1.0, 7.0]),
    "cat": (lambda x: torch.cat([x, torch.tensor([0.5])]), [1.0, -2.0, 0.5]),
    "lerp": (lambda x: torch.lerp(x, torch.tensor([2.0, 2.0]), 0.5), [1.5, 0.0]),
    "index_add": (
        lambda x: x.index_add(0, torch.tensor([1]), torch.tensor([0.5]), alpha=0.5),
        [1.0, -1.75],
    ),
    "index_add unscaled": (lambda x: x.index_add(0, torch.tensor([1]), x[:1]), [1.0, -1.0]),
    "power": (lambda x: x**3, [1.0, -8.0]),
    "first power": (lambda x: x**1, [1.0, -2.0]),
    "maximum": (lambda x: torch.maximum(x, torch.tensor([3.0, -math.inf])), [3.0, -2.0]),
    "addcmul": (lambda x: torch.addcmul(x, x, x, value=0.5), [1.5, 0.0]),
    "addcdiv": (lambda x: torch.addcdiv(x, x, torch.tensor([4.0, 4.0])), [1.25, -2.5]),
    "clamp without a bound": (lambda x: x.clamp(min=-math.inf, max=0.5), [0.5, -2.0]),
    "clamp beyond the range": (lambda x: x.clamp(-1e30, 1e30), [1.0, -2.0]),
    "prelu": (lambda x: F.prelu(x, torch.tensor([0.5])), [1.0, -1.0]),
    "heaviside": (lambda x: torch.heaviside(x - 1, torch.tensor([0.5, 0.5])), [0.5, 0.0]),
}


@pytest.mark.parametrize("name", MIXED)
def test_plain_operands_are_encoded_on_the_fly(name):
    operation, expected = MIXED[name]
    x = fixed(1.0, -2.0)
    with forbid_decoding():
        result = operation(x)
    assert values(result) == expected


NEAR_ZERO = {
    "prelu": (lambda x, w: F.prelu(x, w), True),
    "leaky_relu": (lambda x, w: F.leaky_relu(x, 3.0), False),
    "relu": (lambda x, w: F.relu(x), False),
    "softshrink": (lambda x, w: F.softshrink(x, 2.0**-16), False),
    "hardshrink": (lambda x, w: F.hardshrink(x, 2.0**-16), False),
}


@pytest.mark.parametrize("name", NEAR_ZERO)
def test_the_smallest_numbers_have_a_sign(name):
    """The kink is at zero itself: one step of the grid is positive, and zero is not; or it is at
    one step of the grid."""
    operation, learns = NEAR_ZERO[name]
    steps = torch.tensor([-2, -1, 0, 1, 2]) / 2**16
    results = []
    for make in (torch.clone, fix_precision):
        x, weight = (make(t).requires_grad_() for t in (steps, torch.tensor([3.0])))
        y = operation(x, weight)
        y.backward(make(torch.full((5,), 2.0**10)))
        gradients = [x.grad, weight.grad] if learns else [x.grad]
        results.append([values(t) if is_fixed(t) else t.tolist() for t in [y.detach(), *gradients]])
    assert results[0] == results[1]


def test_a_number_is_not_rounded_to_the_grid_before_it_multiplies():
    x = fixed(1000.0)
    assert (x * 1e-6).child.child.item() == round(1000 * 1e-6 * 65536)
    assert (x / 1e6).child.child.item() == round(1000 / 1e6 * 65536)


def test_comparisons_are_plain_and_clamp_what_is_beyond():
    x = fixed(1.0, -2.0)
    assert (x > 0).tolist() == [True, False] and not is_fixed(x > 0)
    assert (x < 1e30).tolist() == [True, True] and (x > -math.inf).tolist() == [True, True]
    assert (x == torch.tensor([1.0, 3.0])).tolist() == [True, False]
    assert (0.1 == fixed(0.1)).item()
    assert torch.equal(x, x.clone()) and not torch.equal(x, x + 1)
    assert torch.equal(torch.tensor([1.0, -2.0]), x)


def test_two_grids_do_not_meet():
    x, y = fixed(1.5), fixed(1.25, digits=3)
    text = "operands of base 10 with 3 digits are brought to base 2 with 16 digits"
    for operation, wanted in ((torch.add, 2.75), (torch.sub, 0.25), (torch.mul, 1.875)):
        with pytest.warns(UserWarning, match=text):
            assert values(operation(x, y)) == [wanted]
        with pytest.warns(UserWarning, match=text):
            assert abs(values(operation(y, x))[0]) == wanted
    with pytest.warns(UserWarning, match=text):
        assert (x > y).tolist() == [True] and torch.cat([x, y]).child.grid is x.child.grid
    with pytest.warns(UserWarning, match="of base 2 with 16 digits are brought to base 10 with 3"):
        assert values(y.add_(x)) == [2.75] and y.child.grid.base == 10
    x, y = fixed(1.0), fixed(1.0, digits=3)
    assert values(x + fix_precision(y, 16, 2)) == [2.0]
    assert values(x.copy_(fixed(0.25, digits=3))) == [0.25]


# ------------------------------------------------------------------------------ range and infinity


def test_a_product_beyond_the_ring_is_an_error():
    x = fixed(1e5)
    text = (
        "Cannot encode the result 1e+10 in fixed precision: the range is -2.147e+09 to 2.147e+09. "
        "Instead, use fewer fractional digits (precision_fractional) or scale the data down."
    )
    for product in (lambda: x * x, lambda: x @ x, lambda: F.conv1d(x[None, None], x[None, None])):
        with pytest.raises(EncodingError) as caught:
            product()
        assert str(caught.value) == text
    for product in (lambda: x * 10**12, lambda: x * 1e12, lambda: x * torch.tensor([10**12])):
        with pytest.raises(EncodingError, match="the range is -1.407e\\+14"):
            product()


def test_masks_of_minus_infinity_become_the_floor_and_softmax_gives_zero():
    x = fix_precision(torch.tensor([[1.0, 2.0, 3.0]]))
    mask = torch.tensor([[False, False, True]])
    for fill in (-math.inf, torch.finfo(torch.float32).min, torch.tensor(-math.inf)):
        masked = x.masked_fill(mask, fill)
        assert masked.child.child[0, 2].item() == FLOOR
        assert values(masked.softmax(1))[0][2] == 0.0
    added = x + torch.tensor([[0.0, 0.0, -math.inf]])
    assert values(added.softmax(1))[0][2] == 0.0
    assert torch.isinf(added).tolist() == [[False, False, True]]
    assert torch.isneginf(added).any() and not torch.isposinf(added).any()
    assert not torch.isnan(added).any()
    assert x.clone().fill_(math.inf).child.child[0, 0].item() == CEILING
    assert torch.full_like(x, math.inf).child.child[0, 0].item() == CEILING


def test_division_by_zero_names_the_usual_reason():
    text = (
        "Cannot encode a division by zero in fixed precision: the range is finite. Instead, see "
        "that the divisor is not 0 on the grid: an eps below half a step (Adamax's 1e-8) is 0 "
        "there, so pass a larger one, such as eps=1e-3."
    )
    x, zero = fixed(1.0), fixed(0.0)
    for division in (
        lambda: x / zero,
        lambda: x / 0,
        lambda: zero / zero,
        lambda: 1 / zero,
        lambda: x // zero,
        lambda: torch.addcdiv(x, x, zero),
        lambda: x % 0,
        lambda: fixed().mean(),
    ):
        with pytest.raises(EncodingError) as caught:
            division()
        assert str(caught.value) == text
    assert values(aten.div.Tensor_mode(x, x * 2, rounding_mode=None)) == [0.5]
    with pytest.raises(EncodingError, match="the result"):
        fixed(1e14) / fixed(1e-4)


def test_a_result_that_does_not_fit_names_the_operation():
    with pytest.raises(EncodingError) as caught:
        fixed(0.0).log()
    assert str(caught.value) == (
        "Cannot encode -inf, a result of aten.log.default, in fixed precision: the range is "
        "-1.407e+14 to 1.407e+14. Instead, keep the arguments where the operation has a result in "
        "this range."
    )


# ---------------------------------------------------------------------------------- in place, out=

IN_PLACE = {
    "add_": (lambda x: x.add_(0.5), [1.5, -1.5]),
    "add_ scaled": (lambda x: x.add_(x.clone(), alpha=-0.5), [0.5, -1.0]),
    "sub_": (lambda x: x.sub_(torch.tensor([1.0, 1.0])), [0.0, -3.0]),
    "mul_": (lambda x: x.mul_(0.5), [0.5, -1.0]),
    "div_": (lambda x: x.div_(2), [0.5, -1.0]),
    "neg_": (lambda x: x.neg_(), [-1.0, 2.0]),
    "relu_": (lambda x: x.relu_(), [1.0, 0.0]),
    "clamp_": (lambda x: x.clamp_(-1, 0.5), [0.5, -1.0]),
    "gt_": (lambda x: x.gt_(0), [1.0, 0.0]),
    "zero_": (lambda x: x.zero_(), [0.0, 0.0]),
    "fill_": (lambda x: x.fill_(3), [3.0, 3.0]),
    "fill_ with a tensor": (lambda x: x.fill_(fixed(4.0)[0]), [4.0, 4.0]),
    "copy_": (lambda x: x.copy_(torch.tensor([1, 2])), [1.0, 2.0]),
    "masked_fill_": (lambda x: x.masked_fill_(x < 0, 5.0), [1.0, 5.0]),
    "index_put_": (lambda x: x.index_put_((torch.tensor([1]),), fixed(5.0)), [1.0, 5.0]),
    "lerp_": (lambda x: x.lerp_(torch.tensor([3.0, 3.0]), 0.5), [2.0, 0.5]),
    "addcmul_": (lambda x: x.addcmul_(x.clone(), x.clone()), [2.0, 2.0]),
    "addcdiv_": (lambda x: x.addcdiv_(x.clone(), fixed(2.0, 2.0)), [1.5, -3.0]),
    "hardtanh_": (lambda x: F.hardtanh_(x), [1.0, -1.0]),
    "index_add_": (lambda x: x.index_add_(0, torch.tensor([0]), fixed(1.0)), [2.0, -2.0]),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_forms_change_the_integers_and_return_the_tensor(name):
    operation, expected = IN_PLACE[name]
    x = fixed(1.0, -2.0)
    view, child = x[:], x.child.child
    with forbid_decoding():
        assert operation(x) is x
    assert values(x) == values(view) == expected
    assert x.child.child is child


def test_operations_without_a_rule_work_in_place_too():
    x = fixed(0.0, 1.0)
    view = x[1:]
    assert x.exp_() is x
    assert values(view) == pytest.approx([math.e], abs=2**-17)
    noise = torch.empty_like(x)
    torch.manual_seed(3)
    assert noise.normal_() is noise
    torch.manual_seed(3)
    assert values(noise) == pytest.approx(torch.empty(2).normal_().tolist(), abs=2**-17)


def test_out_forms_write_into_their_target():
    x, out = fixed(1.0, -2.0), fixed(0.0, 0.0)
    view = out[:]
    assert torch.add(x, x, out=out) is out and values(view) == [2.0, -4.0]
    assert torch.exp(x * 0, out=out) is out and values(view) == [1.0, 1.0]
    best, index = fixed(0.0), torch.zeros(1, dtype=torch.int64)
    result = torch.max(x[None], 1, out=(best, index))
    assert result[0] is best and values(best) == [1.0] and index.tolist() == [0]
    with pytest.raises(UnsupportedOperation) as caught:
        torch.exp(x, out=best)
    assert str(caught.value) == (
        "FixedPrecisionTensor has no rule for aten.exp.out: "
        "out= must have the shape of the result, (2,)."
    )


@pytest.mark.parametrize(
    "operation",
    [
        lambda x, plain: plain.add_(x),
        lambda x, plain: plain.copy_(x),
        lambda x, plain: plain.mul_(x),
        lambda x, plain: torch.exp(x, out=plain),
        lambda x, plain: F.batch_norm(x[:, None], plain[:1], plain[:1].clone(), training=True),
    ],
)
def test_plain_tensors_are_not_written_to(operation):
    x, plain = fixed(1.0, 2.0), torch.zeros(2)
    with pytest.raises(UnsupportedOperation) as caught:
        operation(x, plain)
    assert "its result would be written into a tensor without fixed precision" in str(caught.value)
    assert plain.tolist() == [0.0, 0.0]


def test_running_statistics_are_updated_when_fixed():
    norm, duplicate = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    x = torch.randn(8, 3)
    for tensor in (*norm.parameters(), norm.running_mean, norm.running_var):
        fix_precision_(tensor)
    result = norm(fix_precision(x))
    assert torch.allclose(float_precision(result), duplicate(x), atol=2**-13)
    assert torch.allclose(float_precision(norm.running_mean), duplicate.running_mean, atol=2**-15)
    assert torch.allclose(float_precision(norm.running_var), duplicate.running_var, atol=2**-15)
    plain = nn.BatchNorm1d(3).eval()
    assert torch.allclose(float_precision(plain(fix_precision(x))), x, atol=2**-13)


def test_foreach_forms_run_item_by_item():
    xs = [fixed(1.0), fixed(2.0, 4.0)]
    assert [values(x) for x in torch._foreach_add(xs, xs)] == [[2.0], [4.0, 8.0]]
    assert [values(x) for x in torch._foreach_mul(xs, [2.0, 0.5])] == [[2.0], [1.0, 2.0]]
    torch._foreach_addcdiv_(xs, xs, xs, 0.5)
    assert [values(x) for x in xs] == [[1.5], [2.5, 4.5]]
    torch._foreach_addcmul_(xs, xs, xs, [1.0, 0.0])
    assert [values(x) for x in xs] == [[3.75], [2.5, 4.5]]
    torch._foreach_sub_(xs, xs, alpha=1)
    assert [values(x) for x in xs] == [[0.0], [0.0, 0.0]]
    assert values(torch._foreach_norm([fixed(3.0, 4.0)])[0]) == 5.0


# ----------------------------------------------------------------------------- likenesses and casts


def test_likenesses_are_fixed_unless_another_kind_is_asked_for():
    x = fixed(1.5, -2.5)
    assert values(torch.zeros_like(x)) == [0.0, 0.0]
    assert values(torch.ones_like(x, dtype=torch.float64)) == [1.0, 1.0]
    assert values(x.new_full((1,), 0.5)) == [0.5]
    assert values(x.new_ones(1)) == [1.0] and x.new_empty(3).shape == (3,)
    for made in (
        torch.zeros_like(x, dtype=torch.int64),
        torch.ones_like(x, dtype=torch.bool),
        torch.full_like(x, 3, dtype=torch.int32),
    ):
        assert not is_fixed(made)
    assert values(torch.rand_like(x)) != [0.0, 0.0]


def test_casts_keep_the_grid_or_cut_the_fraction_off():
    x = fixed(1.75, -2.5, 0.0)
    assert x.float() is x
    for same in (x.double(), x.half(), x.to(torch.bfloat16)):
        assert is_fixed(same) and same.dtype is torch.float32 and torch.equal(same, x)
    assert x.long().tolist() == [1, -2, 0] and x.int().dtype is torch.int32
    assert x.bool().tolist() == [True, True, False]
    assert x.sum(dtype=torch.int64).item() == -1
    with pytest.raises(UnsupportedOperation, match="there are no complex numbers"):
        x.to(torch.complex64)


def test_single_numbers_are_read():
    x = fixed(0.5)
    assert (x.item(), float(x), bool(x > 0), int(x * 4)) == (0.5, 0.5, True, 2)
    assert fixed(1.25, 0.0).count_nonzero().item() == 1
    assert values(fixed(1.0).nan_to_num()) == [1.0]


def test_rounding_to_whole_numbers():
    x = fixed(0.5, 1.5, -0.5, -1.5, 2.25, -2.25)
    with forbid_decoding():
        results = [x.round(), x.floor(), x.ceil(), x.trunc(), x.frac(), x.sign()]
    plain = float_precision(x)
    expected = [
        plain.round(),
        plain.floor(),
        plain.ceil(),
        plain.trunc(),
        plain.frac(),
        plain.sign(),
    ]
    assert [values(r) for r in results] == [e.tolist() for e in expected]
    decimal = fixed(0.5, -1.5, 2.5, digits=3)
    assert values(decimal.round()) == [0.0, -2.0, 2.0]


# ---------------------------------------------------------------------- pooling, convolution


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("count_include_pad", [True, False])
@pytest.mark.parametrize("ceil_mode", [True, False])
@pytest.mark.parametrize("divisor_override", [None, 3])
def test_average_pooling_counts_as_torch_does(
    padding, count_include_pad, ceil_mode, divisor_override
):
    x = torch.randn(2, 3, 6, 5)
    settings = (3, 2, padding, ceil_mode, count_include_pad, divisor_override)
    given = fix_precision(x).requires_grad_()
    reference = float_precision(given.detach()).double().requires_grad_()
    with forbid_decoding():
        result = F.avg_pool2d(given, *settings)
        result.sum().backward()
    expected = F.avg_pool2d(reference, *settings)
    expected.sum().backward()
    assert (float_precision(result) - expected).abs().max() <= 2**-17 * 1.01
    assert (float_precision(given.grad) - reference.grad).abs().max() <= 2**-15


def test_average_pooling_takes_one_number_for_all_dimensions():
    x = fix_precision(torch.randn(1, 1, 4, 4))
    assert torch.equal(aten.avg_pool2d.default(x, [2]), F.avg_pool2d(x, 2))


CONVOLUTIONS = {
    "1d": (nn.Conv1d(2, 3, 3), (4, 2, 9)),
    "2d strided": (nn.Conv2d(2, 4, 3, stride=2, padding=1), (2, 2, 7, 6)),
    "2d grouped, no bias": (nn.Conv2d(4, 4, 3, groups=2, bias=False), (2, 4, 5, 5)),
    "2d dilated": (nn.Conv2d(1, 2, 2, dilation=2), (1, 1, 6, 6)),
    "3d": (nn.Conv3d(1, 2, 2), (2, 1, 3, 4, 3)),
    "transposed": (nn.ConvTranspose2d(3, 2, 3, stride=2, output_padding=1), (2, 3, 4, 4)),
    "transposed in groups": (nn.ConvTranspose1d(4, 2, 3, groups=2), (2, 4, 5)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("large", [False, True])
def test_convolutions_round_once(name, large):
    """With large numbers the products pass 2^53, and limbs are needed to stay exact."""
    module, shape = CONVOLUTIONS[name]
    torch.manual_seed(0)
    scale = 2.0**12 if large else 1.0
    x = torch.randn(shape, dtype=torch.float64) * scale
    w = torch.randn(module.weight.shape, dtype=torch.float64) * scale
    given = [fix_precision(v).requires_grad_() for v in (x, w)]
    with forbid_decoding():
        result = convolve(module, *given)
        gradient = fix_precision(torch.randn(result.shape))
        result.backward(gradient)
    exact = [t.child.child.double().requires_grad_() for t in given]
    expected = convolve(module, *exact)
    expected.backward(gradient.child.child.double())
    for got, want in (
        (result, expected),
        (given[0].grad, exact[0].grad),
        (given[1].grad, exact[1].grad),
    ):
        off = (got.child.child - want / 2**16).abs().max().item()
        assert off <= 0.501 + want.abs().max().item() * 2**-66


def convolve(module: nn.Module, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    bias = None if module.bias is None else x.new_zeros(module.bias.shape)
    return torch.func.functional_call(module, {"weight": weight, "bias": bias}, (x,))


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_no_element_of_a_convolution_sums_more_terms_than_counted(name, monkeypatch):
    """Ones on ones: the largest element of a result is how many products it sums."""
    module, shape = CONVOLUTIONS[name]
    counted = []

    def count(ring, kernel, a, b, unit):
        result = kernel(torch.ones(a.shape).double(), torch.ones(b.shape).double())
        counted.append((result.max().item(), kernel.terms(a.shape, b.shape)))
        return torch.zeros(result.shape, dtype=torch.int64)

    monkeypatch.setattr(PlainRing, "product", count)
    given = [fix_precision(torch.ones(s)).requires_grad_() for s in (shape, module.weight.shape)]
    convolve(module, *given).sum().backward()
    assert len(counted) == 3
    assert all(0 < largest <= terms for largest, terms in counted)
    assert counted[0][1] <= 3 * counted[0][0]


@pytest.mark.parametrize("device", DEVICES)
def test_products_are_exact_on_every_device(device):
    x = torch.randn(5, 70, device=device)
    a = fix_precision(x)
    for result in (a @ a.t(), (a[None] @ a.t()[None])[0]):
        exact = a.child.child.cpu() @ a.child.child.cpu().t()
        assert torch.equal(result.child.child.cpu(), exact.add(2**15) >> 16)
    assert result.device == x.device


# ---------------------------------------------------------------------------------------- refusals


def test_what_cannot_work_is_refused_by_name():
    x = fixed(1.0, 2.0)
    with pytest.raises(UnsupportedOperation) as caught:
        torch.view_as_complex(x)
    assert str(caught.value) == (
        "FixedPrecisionTensor has no rule for aten.view_as_complex.default: "
        "a decoded copy would not be a view; clone() first."
    )
    with pytest.raises(UnsupportedOperation, match="use copy_\\(\\), or assign to .data"):
        x.set_(x)
    with pytest.raises(UnsupportedOperation, match="its result is complex"):
        torch.fft.fft(x)
    with pytest.raises(UnsupportedOperation, match="build the optimizer with fused=False"):
        parameter = fix_precision(torch.ones(1, requires_grad=True))
        parameter.grad = torch.ones_like(parameter)
        aten._fused_sgd_.default(
            [parameter.detach()],
            [parameter.grad],
            [],
            weight_decay=0.0,
            momentum=0.0,
            lr=0.1,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )
    with pytest.raises(UnsupportedOperation, match="only its first argument can be"):
        aten.gather.default(torch.ones(2), 0, x)
    with pytest.raises(UnsupportedOperation, match="stands where only a plain one can"):
        aten.masked_fill.Scalar(torch.ones(2), x, 0)


def test_two_rules_for_one_operation_are_refused():
    with pytest.raises(HookError, match="has two rules"):
        rule("add.Tensor")(lambda: None)


def test_the_table_holds_what_it_says():
    assert len(FixedPrecisionTensor.rules) > 330
    assert functional_form(aten.exp.default) is None
    assert functional_form(torch.ops.prims.copy_to.default) is None
    assert strategy_of(aten.linear.default).__name__ == "decompose"


def test_inference_mode_takes_composite_operations_apart():
    weight = fix_precision(torch.ones(1, 2))
    with torch.inference_mode():
        assert values(F.linear(fixed(1.0, 2.0)[None], weight)) == [[3.0]]


def test_shapes_change_in_place():
    x = fix_precision(torch.arange(6.0).view(2, 3))
    assert x.t_() is x and x.shape == (3, 2) and x.stride() == (1, 3)
    assert values(x)[1] == [1.0, 4.0]
    assert x.unsqueeze_(0).shape == (1, 3, 2) and x.squeeze_(0).shape == (3, 2)
    assert x.transpose_(0, 1).shape == (2, 3)
    assert x.resize_(4).shape == (4,) and values(x) == [0.0, 1.0, 2.0, 3.0]


def test_decimal_grids_compute_like_binary_ones():
    x = fix_precision(torch.tensor([[1.5, -0.25], [2.0, 0.125]]), 3)
    assert values(x * x) == [[2.25, pytest.approx(0.063)], [4.0, pytest.approx(0.016)]]
    assert values(x @ x) == [
        [1.75, pytest.approx(-0.406)],
        [pytest.approx(3.25), pytest.approx(-0.484)],
    ]
    assert values(x.mean()) == pytest.approx(0.844)
    assert make_grid(10, 3) is x.child.grid


LARGE = fix_precision(torch.tensor([[1.2e14, 1.0], [1.2e14, -3.0]], dtype=torch.float64))


def halves(x: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(x) * 0.5


SUMS = {
    "add": lambda x: x + x,
    "add a number": lambda x: x + 1e14,
    "add in place": lambda x: x.clone().add_(x),
    "sub": lambda x: x - -x,
    "sub in place": lambda x: x.clone().sub_(-x),
    "rsub": lambda x: 1e14 - -x,
    "sum": lambda x: x.sum(),
    "sum along a dimension": lambda x: x.sum(0),
    "mean": lambda x: x.mean(),
    "cumsum": lambda x: x.cumsum(0),
    "trace": lambda x: x[:, :1].expand(2, 2).trace(),
    "addcdiv": lambda x: torch.addcdiv(x, x, x / x),
    "lerp": lambda x: torch.lerp(x, -x, 0.5),
    "lerp by a tensor": lambda x: torch.lerp(x, -x, torch.full((2, 2), 0.5)),
    "addcmul": lambda x: torch.addcmul(x, halves(x), halves(x), value=4e14),
    "addmm": lambda x: torch.addmm(x * 1.172812, x * 1e-5, halves(x) * 2.0),
    "mse_loss": lambda x: F.mse_loss(x, -x),
    "scatter_add": lambda x: torch.zeros_like(x).scatter_add(0, SAME, x),
    "scatter_add in place": lambda x: torch.zeros_like(x).scatter_add_(0, SAME, x),
    "scatter_add to a large one": lambda x: x.scatter_add(0, SAME[:1], x[:1]),
    "scatter_reduce": lambda x: torch.zeros_like(x).scatter_reduce(0, SAME, x, "sum"),
    "scatter that adds": lambda x: torch.zeros_like(x).scatter(0, SAME, x, reduce="add"),
    "index_add": lambda x: torch.zeros_like(x).index_add(0, SAME[0], x),
    "index_add in place": lambda x: torch.zeros_like(x).index_add_(0, SAME[0], x, alpha=0.99),
    "index_put": lambda x: torch.zeros_like(x).index_put((SAME[0],), x, accumulate=True),
    "index_put in place": lambda x: torch.zeros_like(x).index_put_((SAME[0],), x, True),
    "index_put of one row": lambda x: x.index_put((SAME[0],), x[0], accumulate=True),
    "put": lambda x: torch.zeros_like(x).put_(SAME, x, accumulate=True),
    "gradient of embedding": lambda x: gradient(lambda w: F.embedding(SAME[0], w), x),
    "gradient of unfold": lambda x: gradient(lambda w: w.unfold(0, 2, 1)[[0, 0]], x, 2),
    "gradient of index": lambda x: gradient(lambda w: w[SAME[0]], x),
    "gradient of gather": lambda x: gradient(lambda w: w.gather(0, SAME), x),
    "gradient of expand": lambda x: gradient(lambda w: w[:1].expand(2, 2), x),
    "gradient of padding": lambda x: gradient(
        lambda w: F.pad(w[None], (1, 1), mode="replicate"), x[:, :1].expand(2, 2), (1, 2, 4)
    ),
    "gradient of max_pool2d": lambda x: gradient(
        lambda w: F.max_pool2d(w[None], 1, 1)[[0, 0]], x, (2, 2, 2)
    ),
    "avg_pool2d": lambda x: F.avg_pool2d(x[None], 2),
    "avg_pool3d": lambda x: F.avg_pool3d(x[None, None], (1, 2, 2)),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x[None], 1),
    "fold": lambda x: F.fold(x.reshape(1, 4, 1).expand(1, 4, 4), (3, 3), 2),
}
SAME = torch.zeros(2, 2, dtype=torch.int64)


def gradient(function, large, shape=None):
    """What comes back to an argument, for large incoming gradients."""
    w = torch.zeros_like(large).requires_grad_()
    out = function(w)
    grad = large if out.shape == large.shape else large.flatten()[0].expand(out.shape)
    out.backward(grad)
    return w.grad


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_that_leaves_the_grid_is_refused(name):
    with pytest.raises(EncodingError, match="Cannot encode the result"):
        SUMS[name](LARGE)


def test_sums_up_to_the_end_of_the_grid_are_right():
    x = fix_precision(torch.tensor([6.9e13, 7.0e13, -7.0e13, -6.9e13], dtype=torch.float64))
    assert float_precision(x.sum()).item() == 0.0
    assert (
        float_precision(x + x).tolist()
        == torch.tensor([1.38e14, 1.4e14, -1.4e14, -1.38e14]).tolist()
    )
    assert float_precision(x.mean()).item() == 0.0
    for added in (
        torch.zeros_like(x).scatter_add(0, torch.tensor([0, 1, 0, 1]), x),
        torch.zeros_like(x).index_add(0, torch.tensor([0, 1, 0, 1]), x),
        torch.zeros_like(x).index_put_((torch.tensor([0, 1, 0, 1]),), x, accumulate=True),
    ):
        assert float_precision(added).tolist() == pytest.approx([-1e12, 1e12, 0, 0])
