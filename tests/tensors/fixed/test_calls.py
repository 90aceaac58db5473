"""fix_precision and float_precision: what they keep, where gradients go, and what they refuse."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from syft.chain.wrapper import Wrapper
from syft.exceptions import UnsupportedOperation
from syft.tensors.fixed.fixed_link import is_fixed
from syft.tensors.fixed.precision import (
    FixedPrecisionTensor,
    fix_precision,
    fix_precision_,
    float_precision,
    float_precision_,
)


def test_the_chain_shows_itself():
    x = fix_precision(torch.tensor([1.5, -2.0]))
    assert repr(x) == "(Wrapper)>FixedPrecisionTensor>tensor([  98304, -131072])"
    assert isinstance(x, torch.Tensor) and type(x) is Wrapper
    assert type(x.child) is FixedPrecisionTensor
    assert x.child.child.tolist() == [98304, -131072] and x.child.child.dtype is torch.int64
    assert (x.dtype, x.shape, x.device) == (torch.float32, (2,), torch.device("cpu"))
    assert x.child.place() == "here"


def test_a_chain_below_the_link_is_shown_without_the_word_wrapper():
    inner = fix_precision(torch.tensor([2.0]), 1)
    outer = FixedPrecisionTensor(inner, inner.child.grid)
    assert outer.show() == "FixedPrecisionTensor>FixedPrecisionTensor>tensor([20])"


def test_strides_are_kept():
    x = torch.arange(6.0).view(2, 3)
    assert fix_precision(x.t()).stride() == (1, 3)
    assert fix_precision(x[:, 1:]).shape == (2, 2)


def test_the_short_names_are_the_same_methods(hook):
    for name in ("fix_prec", "fix_prec_", "float_prec", "float_prec_"):
        long_name = name.replace("prec", "precision")
        assert getattr(torch.Tensor, name) is getattr(torch.Tensor, long_name)


@pytest.mark.parametrize(
    ("arguments", "base", "digits"),
    [
        ({}, 2, 16),
        ({"precision_fractional": 3}, 10, 3),
        ({"precision_fractional": 20, "base": 2}, 2, 20),
    ],
)
def test_arguments_choose_the_grid(arguments, base, digits):
    x = fix_precision(torch.tensor([0.25]), **arguments)
    assert (x.child.base, x.child.precision_fractional) == (base, digits)
    assert x.child.child.item() == 0.25 * base**digits


def test_a_leaf_stays_a_leaf():
    x = fix_precision(torch.ones(2, requires_grad=True))
    assert x.is_leaf and x.requires_grad
    (x * x).sum().backward()
    assert is_fixed(x.grad) and float_precision(x.grad).tolist() == [2.0, 2.0]


def test_gradients_flow_through_encoding_and_decoding():
    w = torch.tensor([1.0, 2.0], requires_grad=True, dtype=torch.float64)
    encoded = fix_precision(w * 3)
    assert is_fixed(encoded) and encoded.requires_grad and not encoded.is_leaf
    back = float_precision(encoded * encoded)
    assert not is_fixed(back)
    back.sum().backward()
    assert w.grad.dtype is torch.float64 and w.grad.tolist() == [18.0, 36.0]


def test_gradients_flow_between_grids():
    x = fix_precision(torch.tensor([1.5], requires_grad=True))
    fine = fix_precision(x * 2, 20, 2)
    assert fine.child.precision_fractional == 20
    (fine * fine).backward()
    assert x.grad.child.precision_fractional == 16
    assert float_precision(x.grad).item() == 12.0


def test_no_graph_is_recorded_under_no_grad():
    x = fix_precision(torch.ones(1, requires_grad=True))
    with torch.no_grad():
        assert not float_precision(x).requires_grad


def test_the_same_grid_again_changes_nothing():
    x = fix_precision(torch.ones(1))
    assert fix_precision(x) is x
    assert fix_precision_(x) is x and repr(x) == "(Wrapper)>FixedPrecisionTensor>tensor([65536])"


# ----------------------------------------------------------------------------------------- in place


def test_in_place_keeps_the_object_and_what_hangs_on_it():
    x = torch.tensor([0.5, 1.0])
    x._tags, x._description = {"#x"}, "numbers"
    before = id(x)
    assert fix_precision_(x) is x and id(x) == before and is_fixed(x)
    assert (x._tags, x._description) == ({"#x"}, "numbers")
    assert float_precision_(x) is x and type(x) is torch.Tensor
    assert (x._tags, x._description, x.tolist()) == ({"#x"}, "numbers", [0.5, 1.0])
    assert not hasattr(x, "child")


def test_in_place_keeps_a_parameter_its_gradient_and_its_optimizer():
    p = nn.Parameter(torch.tensor([1.0]))
    p.grad = torch.tensor([0.5])
    optimizer = torch.optim.SGD([p], lr=0.5)
    fix_precision_(p)
    assert isinstance(p, nn.Parameter) and p.requires_grad and p.is_leaf
    assert is_fixed(p) and is_fixed(p.grad)
    assert repr(p).startswith("Parameter containing:\n(Wrapper)>FixedPrecisionTensor>")
    optimizer.step()
    float_precision_(p)
    assert type(p) is nn.Parameter and p.requires_grad
    assert (p.item(), p.grad.item()) == (0.75, 0.5)
    optimizer.step()
    assert p.item() == 0.5


def test_a_plain_gradient_on_a_fixed_tensor_is_kept_by_decoding():
    x = fix_precision(torch.ones(1, requires_grad=True))
    x.grad = torch.ones(1)
    assert float_precision_(x).grad.tolist() == [1.0]


def test_in_place_refuses_what_has_a_graph():
    x = torch.ones(1, requires_grad=True) * 2
    with pytest.raises(UnsupportedOperation) as caught:
        fix_precision_(x)
    assert str(caught.value) == (
        "a tensor with a graph behind it has no rule for fix_precision_: "
        "call fix_precision(), or detach it first."
    )
    with pytest.raises(UnsupportedOperation, match="float_precision"):
        float_precision_(fix_precision(x))


@pytest.mark.parametrize("call", [float_precision, float_precision_])
def test_a_plain_tensor_is_not_decoded(call):
    with pytest.raises(UnsupportedOperation) as caught:
        call(torch.ones(1))
    assert str(caught.value) == (
        f"a plain tensor has no rule for {call.__name__}: it is decoded already; use it as it is."
    )


def test_bits_become_numbers():
    x = fix_precision(torch.tensor([1.5, -2.0]))
    for bits in (x > 0, x >= x, x == 1.5, x != x):
        decoded = float_precision(bits)
        assert decoded.dtype is torch.float32 and torch.equal(decoded, bits.to(torch.float32))


def test_modules_are_fixed_parameter_by_parameter():
    model = nn.Linear(2, 1)
    for p in model.parameters():
        fix_precision_(p)
    assert all(is_fixed(p) for p in model.state_dict().values())
    duplicate = copy.deepcopy(model)
    assert is_fixed(duplicate.weight) and isinstance(duplicate.weight, nn.Parameter)
    with torch.no_grad():
        duplicate.weight.zero_()
    assert float_precision(model.weight).abs().sum().item() > 0
    model.load_state_dict({"weight": torch.ones(1, 2), "bias": torch.zeros(1)})
    assert model.weight.child.child.tolist() == [[65536, 65536]]
