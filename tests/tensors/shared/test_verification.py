"""An operation on shares that is off by more than its row states is named; others are not."""

from __future__ import annotations

import contextlib
import re

from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from syft.callers import place_of_user
from syft.crypto.programs import share_joining
from syft.tensors.shared import instruction_list
from syft.crypto.programs.share_program import DEALT, ShareCode
from syft.exceptions import PermissionDenied, UnsupportedOperation, WrongResult
from syft.tensors.fixed import approximations
from syft.tensors.fixed.precision import fix_precision, float_precision
from syft.tensors.fixed.rules import private_functions
from syft.tensors.shared import verification
from syft.tensors.shared.shared_values import get_shared, share_values
from syft.tensors.shared.verification import OpenedOnce, Operand, SeenCall
from tests.tensors.fixed.blind_ring import BlindRing, blind
from tests.tensors.shared.local_parties import local_session


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
        r"variances from 0.002507, below 2³⁰; scale the data up, .* fix_precision\(24, base=2\)",
    ),
    "layer_norm of large numbers": (
        lambda share: F.layer_norm(share(torch.tensor([[5e4, -5e4]]).repeat(4, 8)), (16,)),
        "aten.native_layer_norm.default",
        "squares of the distances to the mean below 2³⁰; scale the data down",
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
    made += [
        x + torch.randn(3, 4),
        x / (torch.rand(3, 4) + 0.5),
        (x + 0).mul_(torch.randn(3, 4) * 1e-5),
    ]
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
    assert report.checked > 5 and not report.unchecked


def test_a_rule_that_is_broken_is_found(share, monkeypatch):
    found = dict(private_functions._FUNCTIONS)
    broken = {**found, torch.ops.aten.sigmoid: lambda r, x, s: approximations.tanh(r, x, s)}
    monkeypatch.setattr(private_functions, "_FUNCTIONS", broken)
    assert "fault of syft" in wrong_result(torch.sigmoid, share(torch.ones(2)))[2]
    monkeypatch.setattr(private_functions, "_SHIFTED", {torch.ops.aten.log2: lambda x: x.log()})
    assert wrong_result(torch.log2, share(torch.tensor([1e6])))[0] == "aten.log2.default"


JOINED = {
    "a product and an addend": (lambda x, b: F.relu(x * x + b), "aten.mul.Tensor at "),
    "a quotient and an addend": (lambda x, b: F.relu(x / 65536 + b), "aten.div.Tensor at "),
    "views between": (lambda x, b: F.relu((x * x).view(2, 1) + b), "aten.view.default at "),
    "two addends": (lambda x, b: F.relu(x * x + 1 + b), "aten.add.Tensor at "),
}
"""What is computed in one: with addends that leave the ring before the division."""


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("name", JOINED)
def test_a_fault_that_only_a_joined_program_has_is_named(name, parties, monkeypatch):
    session = local_session(parties)
    run, before = JOINED[name]
    x, b = (share_values(fix_precision(large(size, 2)), session) for size in (5.0, 3e9))
    with sy.verify_shares():
        kept = run(x, b)
    monkeypatch.setattr(instruction_list, "_FINISHED", OrderedDict())
    monkeypatch.setattr(share_joining._Rewriting, "_fits", lambda *args: True)
    with pytest.raises(WrongResult, match=f"computed in one with .*{before}") as error:
        with sy.verify_shares():
            kept = run(x, b)
    del kept, error


def test_a_relu_that_is_divided_wrongly_is_named(monkeypatch):
    session = local_session(2)
    x = share_values(fix_precision(torch.tensor([5.0, -3.0])), session)
    monkeypatch.setattr(instruction_list, "_FINISHED", OrderedDict())
    monkeypatch.setattr(share_joining, "_divisor_of", lambda factor: 3)
    with pytest.raises(WrongResult, match="aten.relu.default at "), sy.verify_shares():
        kept = F.relu(x * x + 1)  # noqa: F841


@pytest.mark.parametrize("layer", ["linear", "convolution"])
def test_a_relu_of_a_layer_whose_bias_is_out_of_range_is_named(layer):
    """It is joined, since it is stated of its results that they are below 2^30."""
    session = local_session(2)
    x, w, b = (
        share_values(fix_precision(one), session)
        for one in (torch.ones(2, 3), torch.ones(4, 3), large(3e9, 4))
    )

    def run(b):
        if layer == "linear":
            return F.relu(F.linear(x, w, b))
        return F.relu(F.conv1d(x[None], w[:2, :2, None], b[:2]))

    operation, line, text = wrong_result(run, b)
    assert operation == {"linear": "aten.addmm.default"}.get(layer, "aten.convolution.default")
    assert "made for results below 2³⁰" in text
    (found,) = get_shared([F.relu(x @ w.t() + b)])  # and this takes a bias of any size
    assert (float_precision(found).double() - 3e9 - 3).abs().max() < 300


def test_programs_are_those_that_are_sent_without_it():
    """The same openings in the same order: as many rounds and bytes."""
    runs = []
    for verified in (False, True):
        session = local_session(2)
        shapes = (3, 4), (4, 4), (4,), (2, 4), (2,)
        x, *weights = (share_values(fix_precision(torch.ones(one)), session) for one in shapes)
        w, b, v, c = (one.requires_grad_() for one in weights)
        session.flush()
        before = len(session.lines.programs)
        with sy.verify_shares() if verified else contextlib.nullcontext():
            loss = (F.linear(F.relu(F.linear(x, w, b)), v, c) ** 2).mean()
            loss.backward()
            get_shared([loss.detach()])
        session.flush()
        dealt = [
            [one.op for one in program.actions if one.op in DEALT]
            for program in session.lines.programs[before:]
        ]
        runs.append((dealt[0], session.lines.rounds[before], session.lines.sent[before]))
    assert runs[0] == runs[1] and ShareCode.POSITIVE in runs[0][0]


def test_an_error_is_raised_where_the_program_is_sent(share):
    x = share(torch.ones(2))
    with pytest.raises(WrongResult, match="aten.exp.default"), sy.verify_shares():
        y = (x * 20).exp()
        try:
            y.get()
        finally:
            del y
    (x * 3).get()
    with sy.verify_shares() as report:
        for _ in range(300):
            x = x + 1
        assert report.checked > 100  # a long program was sent
    assert report.checked == 300


def test_what_is_joined_to_what_nobody_can_compare_is_counted(share, monkeypatch):
    wanted = verification.SeenCall.wanted

    def without_products(seen, shift=0):
        return None if seen.op is torch.ops.aten.mul.Tensor else wanted(seen, shift)

    monkeypatch.setattr(verification.SeenCall, "wanted", without_products)
    x = share(torch.ones(2))
    with pytest.warns(UserWarning, match="1 × aten.relu.default"), sy.verify_shares() as report:
        kept = F.relu(x * x + 1)  # noqa: F841
    assert sum(report.unchecked.values()) == 3 and not report.checked


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
    x, result = torch.ones(2, dtype=torch.float64), Operand(OpenedOnce())

    def wanted(op, *args):
        return SeenCall(op, (args, {}), None, place_of_user(), [result]).wanted()

    assert wanted(torch.ops.aten.bitwise_and.Tensor, x, x) is None
    assert wanted(torch.ops.aten.bernoulli.default, x) is None
    ((found, total),) = wanted(torch.ops.aten.add.Tensor, x, x)
    assert found is result
    assert total.tolist() == [2, 2]


def test_what_is_empty_is_right(share):
    x = share(torch.ones(2, 0))
    with sy.verify_shares() as report:
        assert (x * x + x).get().shape == (2, 0)
    assert str(report) == "2 operations checked"
