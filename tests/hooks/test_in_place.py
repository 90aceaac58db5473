"""``share_`` and ``get_``: the same object before and after, with other contents."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import (
    NotShareable,
    NothingToGet,
    PermissionDenied,
    UnsupportedOperation,
    WrongParties,
)
from syft.hooks.tensor_methods import is_part
from tests.shells.child import make_worker

pytestmark = pytest.mark.every_shell


@pytest.fixture
def carol(hook: sy.TorchHook) -> Any:
    return make_worker(hook, "carol")


def tensor(*values: float, **settings: Any) -> Any:
    return torch.tensor(values, **settings)


def test_what_is_here_is_shared_and_comes_back(alice: Any, bob: Any, carol: Any) -> None:
    for x, back in ((tensor(1, -2), [1, -2]), (tensor(True, False), [True, False])):
        same = x
        assert x.share_(alice, bob, crypto_provider=carol) is same and not is_part(x)
        assert set(x.child.keys()) == {"alice", "bob"} and (x == x).all().get()
        assert x.get_() is same and type(x) is torch.Tensor and x.tolist() == back


def test_an_optimizer_goes_on_with_it(alice: Any, bob: Any, carol: Any) -> None:
    x = nn.Parameter(torch.tensor([2.0, -1.0]))
    optimizer = torch.optim.SGD([x], lr=0.25)
    weight: Any = x
    weight.grad = torch.tensor([0.5, 0.5])
    weight.fix_precision_().share_(alice, bob, crypto_provider=carol)
    assert isinstance(x, nn.Parameter) and x.requires_grad and x.is_leaf
    assert weight.grad.get().float_precision().tolist() == [0.5, 0.5]
    optimizer.zero_grad()
    (x * x).sum().backward()
    optimizer.step()
    weight.get_()
    assert isinstance(x, nn.Parameter) and repr(weight).count("AdditiveSharingTensor") == 0
    assert weight.float_precision_() is x and type(x) is nn.Parameter and x.requires_grad
    assert torch.equal(x.detach(), torch.tensor([1.0, -0.5]))
    assert x.grad is not None and torch.equal(x.grad, torch.tensor([4.0, -2.0]))


def test_a_shared_parameter_of_a_module(alice: Any, bob: Any, carol: Any) -> None:
    model: Any = nn.Linear(2, 1)
    want = model.bias.detach().clone()
    model.encrypt(workers=[alice, bob], crypto_provider=carol)
    bias = model.bias
    assert bias.get_().float_precision_() is model.bias
    assert torch.allclose(model.bias, want, atol=2.0**-16) and type(bias) is nn.Parameter
    model.get()


def test_what_is_at_a_worker_comes_here(alice: Any, bob: Any) -> None:
    x: Any = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=0.5)
    x.send_(bob)
    (x * 2).sum().backward()
    optimizer.step()
    assert x.get_() is x and x.requires_grad and x.tolist() == [0.0, 0.0]
    assert x.grad.tolist() == [2.0, 2.0]
    optimizer.step()
    assert x.tolist() == [-1.0, -1.0]
    outer = tensor(3.0).send(bob).send(alice)
    assert outer.get_().location is bob and not is_part(outer)
    assert outer.get_() is outer and outer.tolist() == [3.0]
    both = tensor(1.0, 2.0).send(alice, bob)
    with pytest.raises(UnsupportedOperation, match=r"tensors of several workers.*call get\(\)"):
        both.get_()
    assert both.get_(sum_results=True).tolist() == [2.0, 4.0]


def test_what_is_at_a_worker_is_shared_from_there(alice: Any, bob: Any, carol: Any) -> None:
    dan: Any = alice.network.local
    x = tensor(1.5, -2.0).send(carol).fix_precision_()
    with pytest.raises(NotShareable, match="without a crypto_provider"):
        x.share_(alice, bob)
    assert x.location is carol
    assert x.share_(alice, bob, crypto_provider=dan) is x
    assert (x * x).decrypt().tolist() == [2.25, 4.0]


def test_what_is_held_stays_as_it_is(alice: Any, bob: Any, carol: Any) -> None:
    x: Any = torch.ones(2, requires_grad=True)
    held = x * x
    fixed = tensor(1.0).fix_precision().requires_grad_()
    graph = fixed * fixed
    watched = tensor(1).share(alice, bob, crypto_provider=carol)
    watch = weakref.ref(watched)
    for call in (
        lambda: x.share_(alice, bob),
        lambda: fixed.share_(alice, bob, crypto_provider=carol),
        watched.get_,
    ):
        with pytest.raises(UnsupportedOperation, match="something else holds.*or delete what was"):
            call()
    assert held.tolist() == [1.0, 1.0] and graph.float_precision().tolist() == [1.0]
    assert watch() is watched and watched.get().tolist() == [1]


def test_what_has_a_graph_stays_shared(alice: Any, bob: Any, carol: Any) -> None:
    x = tensor(2.0).fix_precision().share(alice, bob, crypto_provider=carol, requires_grad=True)
    y = x + 1
    with pytest.raises(UnsupportedOperation, match="a tensor with a graph behind it.*detach"):
        y.get_()
    y.backward()
    assert x.grad.decrypt().tolist() == [1.0]
    assert y.detach().get_().float_precision().tolist() == [3.0]


def test_hooks_on_the_gradient_stay(alice: Any, bob: Any, carol: Any) -> None:
    """A hook that limits gradients goes on doing so, through each change of what is held."""
    x: Any = tensor(2.0).requires_grad_()
    done: list[Any] = []
    x.register_hook(lambda grad: grad * 3)
    x.register_post_accumulate_grad_hook(done.append)
    x.fix_precision_().share_(alice, bob, crypto_provider=carol)
    x.sum().backward()
    assert x.grad.decrypt().tolist() == [3.0]
    x.get_().float_precision_()
    x.sum().backward()
    assert x.grad.tolist() == [6.0] and len(done) == 2
    model: Any = nn.Linear(1, 1)
    model.weight.register_hook(lambda grad: grad * 3)
    model.fix_precision().share(alice, bob, crypto_provider=carol)
    model(torch.ones(1, 1)).sum().backward()
    assert model.weight.grad.decrypt().tolist() == [[3.0]]


def test_errors_leave_everything_where_it_is(alice: Any, bob: Any, carol: Any) -> None:
    x: Any = tensor(1.0)
    with pytest.raises(NothingToGet):
        x.get_()
    with pytest.raises(NotShareable, match="fix_precision"):
        x.share_(alice, bob)
    with pytest.raises(WrongParties):
        tensor(1).share_(alice)
    assert x.tolist() == [1.0] and type(x) is torch.Tensor
    model: Any = nn.Linear(2, 1)
    model.send(bob)
    for call in (model.weight.get_, lambda: model.weight.share_(alice, bob)):
        with pytest.raises(
            UnsupportedOperation, match=r"a parameter of a module .*: \w+ the whole"
        ):
            call()
    assert model.get().location is None
    private = x.private_tensor(["ann"]).send(bob, user="ann")
    with pytest.raises(PermissionDenied):
        private.get_()
    assert private.location is bob and private.get_(user="ann").tolist() == [1.0]
