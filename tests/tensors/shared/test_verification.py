"""An operation on shares that is off by more than its row states is named; others are not."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from syft.exceptions import PermissionDenied, UnsupportedOperation, WrongResult
from syft.tensors.fixed import approximations
from syft.tensors.fixed.precision import fix_precision
from syft.tensors.fixed.rules import private_functions
from tests.tensors.fixed.blind_ring import BlindRing, blind


@pytest.fixture
def carol(hook):
    return sy.VirtualWorker(hook, id="carol")


@pytest.fixture
def dan(hook):
    return sy.VirtualWorker(hook, id="dan")


@pytest.fixture(params=[2, 3])
def share(request, hook, alice, bob, carol, dan):
    parties = [alice, bob, dan][: request.param]
    return lambda x: x.fix_precision().share(*parties, crypto_provider=carol)


def wrong_result(run, *args):
    """What is said of a wrong result; the error, which keeps frames and tensors, is dropped."""
    try:
        with sy.verify_shares():
            run(*args)
    except WrongResult as error:
        return error.operation, error.line, str(error)
    raise AssertionError("nothing was found")


def large(size, *shape):
    return torch.full(shape, size)


WRONG = {
    "a product that leaves the ring": (
        lambda share: share(large(40000.0, 2)) * share(large(40000.0, 2)),
        "aten.mul.Tensor",
        "results below 2³⁰",
    ),
    "a matrix product that leaves the ring": (
        lambda share: share(large(1500.0, 2, 600)) @ share(large(1500.0, 600, 2)),
        "aten.mm.default",
        "results below 2³⁰",
    ),
    "exp(20)": (lambda share: share(large(20.0, 2)).exp(), "aten.exp.default", "below 13.17"),
    "a divisor of two million": (
        lambda share: share(large(1e5, 2)) / share(large(2e6, 2)),
        "aten.div.Tensor",
        "divisors from 2⁻¹⁶, below 2²⁰",
    ),
    "layer_norm of small numbers": (
        lambda share: F.layer_norm(share(torch.randn(4, 16) * 0.01), (16,)),
        "aten.native_layer_norm.default",
        r"variances from 0.002507; scale the data up, .* fix_precision\(24, base=2\)",
    ),
    "cosine similarity of large numbers": (
        lambda share: F.cosine_similarity(share(large(8e3, 1, 64)), share(large(8e3, 1, 64))),
        "aten.sqrt.default",
        "below 2³⁰",
    ),
    "the root of a negative number": (
        lambda share: share(large(-1.0, 2)).sqrt(),
        "aten.sqrt.default",
        "clamp them",
    ),
    "in a backward pass": (
        lambda share: (share(large(300.0, 2)).requires_grad_().exp() * 0).sum().backward(),
        "aten.exp.default",
        "below 13.17",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_operation_that_is_wrong_is_named(share, name):
    run, operation, instead = WRONG[name]
    found, line, text = wrong_result(run, share)
    assert found == operation and "test_verification.py:" in line
    assert re.search(instead, text), text


def trained(share, optimizer, loss):
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    steps = optimizer(model.parameters(), lr=0.01)
    share(model)
    for _ in range(2):
        steps.zero_grad()
        loss(model(share(torch.randn(8, 8)))).backward()
        steps.step()


def pictures(share):
    layers = nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2)
    model = share(nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, 3)).eval())
    return model(share(torch.randn(2, 1, 4, 4))).softmax(1)


def functions(share):
    x, y = share(torch.randn(3, 4)), share(torch.rand(3, 4) + 0.5)
    made = [F.gelu(x) + x.sigmoid() * F.elu(x) + (x > y) * x, torch.where(x > 0.1, x, y).max(1)]
    made += [x * torch.randn(3, 4), x * 2.7, x / 3, x * 10**9, F.layer_norm(x, (4,))]
    made += [x.masked_fill(torch.rand(3, 4) > 0.5, float("-inf")).softmax(1), x.argmax(1)]
    made += [F.cosine_similarity(x, y), x.view(2, 6).cumsum(0), torch.empty_like(x)]
    made += [x.add_(y).mul_(0.5)]


HONEST = {
    "a step of SGD, squared loss": lambda share: trained(
        share, torch.optim.SGD, lambda found: F.mse_loss(found, share(torch.randn(8, 4)))
    ),
    "a step of Adam, softmax regression": lambda share: trained(
        share, torch.optim.Adam, lambda found: F.cross_entropy(found, torch.randint(4, (8,)))
    ),
    "pictures": pictures,
    "functions": functions,
}


@pytest.mark.parametrize("name", HONEST)
def test_programs_that_are_right_raise_nothing(share, name):
    torch.manual_seed(0)
    with sy.verify_shares() as report:
        HONEST[name](share)
    assert report.checked > 10 and not report.unchecked


def test_a_rule_that_is_broken_is_found(share, monkeypatch):
    found = dict(private_functions._FUNCTIONS)
    broken = {**found, torch.ops.aten.sigmoid: lambda r, x, s: approximations.tanh(r, x, s)}
    monkeypatch.setattr(private_functions, "_FUNCTIONS", broken)
    assert "fault of syft" in wrong_result(torch.sigmoid, share(torch.ones(2)))[2]
    monkeypatch.setattr(private_functions, "_SHIFTED", {torch.ops.aten.log2: lambda x: x.log()})
    assert wrong_result(torch.log2, share(torch.tensor([1e6])))[0] == "aten.log2.default"


def test_integers_are_compared_exactly(hook, alice, bob, carol, monkeypatch):
    a = torch.tensor([1, 2, 3]).share(alice, bob, crypto_provider=carol)
    with sy.verify_shares() as report:
        assert (a * a - 1).get().tolist() == [0, 3, 8]
        assert (a > 1).sum().get() == 2
    assert str(report) == "4 operations checked"
    monkeypatch.setattr(type(a.child.ring), "negative", lambda ring, x: ring.zero(x))
    assert wrong_result(torch.gt, a, 1)[0] == "aten.gt.Scalar"


def test_what_has_no_counterpart_is_counted_and_warned_of(share):
    x = share(torch.ones(4))
    with pytest.warns(UserWarning, match="not checked: 1 × aten.bernoulli_.float"):
        with sy.verify_shares() as report:
            F.dropout(x, 0.5)
    assert sum(report.unchecked.values()) == 1


def test_what_is_private_to_others_is_refused(hook, alice, bob, carol, dan):
    x = torch.tensor([1, 2]).private_tensor(["ann"], allow_destinations=[dan, alice, bob])
    shared = x.send(dan, user="ann").share(alice, bob, crypto_provider=carol)
    with pytest.raises(PermissionDenied), sy.verify_shares():
        shared * 2
    with sy.verify_shares(user="ann") as report:
        shared * 2
    assert report.checked == 1
    with pytest.raises(UnsupportedOperation, match="opens shared tensors"), sy.verify_shares():
        blind(torch.ones(2), BlindRing()) + 1


def test_fixed_precision_that_is_not_shared_is_compared_too():
    x = fix_precision(torch.randn(3, 3))
    with sy.verify_shares() as report:
        (x @ x).softmax(1)
    assert report.checked == 2


def test_a_plan_is_checked_operation_by_operation(hook, alice, bob, carol):
    model = nn.Linear(3, 2)
    nn.init.ones_(model.weight)
    plan = sy.func2plan(args_shape=[(2, 3)])(lambda x: model(x).exp())
    plan.fix_precision().share(alice, bob, crypto_provider=carol)
    x = torch.full((2, 3), 10.0).fix_precision().share(alice, bob, crypto_provider=carol)
    assert wrong_result(plan, x)[0] == "aten.exp.default"


def test_a_cost_says_what_its_functions_take(share):
    cost = sy.cost(lambda x: F.layer_norm(x.exp(), (2,)), share(torch.ones(1, 2)))
    assert any(
        line.startswith("`exp` on 16 bits: arguments below 13.17") for line in cost.functions
    )
    assert "\n  `layer_norm` on 16 bits: variances from 0.002507" in str(cost)


def test_what_torch_does_not_have_in_float64_is_not_compared():
    watch, x = sy.verify_shares(), torch.ones(2, dtype=torch.float64)
    assert watch._exactly(torch.ops.aten.bitwise_and.Tensor, (x, x), {}) is None
    assert watch._exactly(torch.ops.aten.bernoulli.default, (x,), {}) is None
    (total,) = watch._exactly(torch.ops.aten.add.Tensor, (x, x), {})
    assert total.tolist() == [2, 2]
