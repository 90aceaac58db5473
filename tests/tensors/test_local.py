"""LocalLink: what links before a tensor in this process have in common."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import syft as sy
from syft.chain.wrapper import Wrapper
from tests.chain.refusal import here, refusal
from tests.shells.owner import inspect

pytestmark = pytest.mark.every_shell


class Counting(sy.LocalLink):
    """Counts calls, and answers one of them itself."""

    calls = 0

    @classmethod
    def on_call(cls, operation: Any, args: Any, kwargs: Any) -> Any:
        cls.calls += 1
        return operation(*args, **kwargs)


@Counting.rule(torch.sub, torch.Tensor.sub)
def sub(operation: Any, args: Any, kwargs: Any) -> Any:
    return operation(*args, **kwargs) * 100


class Quiet(sy.LocalLink):
    pass


def test_the_rule_or_on_call_runs_on_bare_arguments() -> None:
    Counting.calls = 0
    x = Counting().on(torch.tensor([1.0, 2.0]))
    assert repr(x + x) == "(Wrapper)>Counting>tensor([2., 4.])"
    assert Counting.calls == 1
    assert repr(x - 1) == "(Wrapper)>Counting>tensor([  0., 100.])"
    assert repr(torch.sub(x, other=x)) == "(Wrapper)>Counting>tensor([0., 0.])"
    assert Counting.calls == 1


def test_the_default_only_passes_on() -> None:
    x = Quiet().on(torch.tensor([[3.0, 1.0]]))
    values, indices = x.max(1)
    assert (repr(values), repr(indices)) == (
        "(Wrapper)>Quiet>tensor([3.])",
        "(Wrapper)>Quiet>tensor([0])",
    )
    assert type(x.max(1)) is torch.return_types.max
    assert x.shape == (1, 2)
    assert x.tolist() == [[3.0, 1.0]]
    assert torch.cat([x, torch.zeros(1, 2)]).tolist() == [[3.0, 1.0], [0.0, 0.0]]


def test_in_place_and_out_return_what_was_given() -> None:
    inner = torch.ones(2)
    x, out = Quiet().on(inner), Quiet().on(torch.zeros(2))
    assert x.add_(1) is x
    assert inner.tolist() == [2.0, 2.0]
    assert torch.add(x, x, out=out) is out
    assert out.tolist() == [4.0, 4.0]
    assert torch.nn.functional.relu(x, inplace=True) is x
    plain = torch.zeros(2)
    assert plain.copy_(x) is plain
    assert plain.tolist() == [2.0, 2.0]


def test_autograd_is_that_of_the_tensor_behind() -> None:
    x = Quiet().on(torch.tensor([1.0, 2.0], requires_grad=True))
    (x * x).sum().backward()
    assert repr(x.grad) == "(Wrapper)>Quiet>tensor([2., 4.])"


def test_two_kinds_do_not_mix() -> None:
    x, y = Quiet().on(torch.ones(2)), Counting().on(torch.ones(2))
    text = refusal(lambda: x + y)
    assert text.startswith("LocationMismatch")
    assert text.endswith(here("", "Quiet", "Counting").split(": ", 2)[2])
    assert (Quiet().on(y) + Quiet().on(y)).tolist() == [2.0, 2.0]


def test_a_pointer_further_left_decides(bob: sy.VirtualWorker) -> None:
    index, value = torch.tensor([0]).send(bob), Quiet().on(torch.ones(1))
    assert refusal(lambda: torch.ones(2).index_put_((index,), value)) == here(
        "torch.Tensor.index_put_", "bob", "me"
    )


def test_child_and_place() -> None:
    inner = torch.ones(1)
    link = Quiet()
    assert (link.child, link.show()) == (None, "Quiet>None")
    x = link.on(inner)
    assert x.child is link
    assert link.child is inner
    assert (link.place(), link.next_in_chain() is inner) == ("Quiet", True)
    outer = Counting().on(x)
    assert outer.child.child is link
    assert outer.child.place() == "Quiet"


def test_a_link_before_nothing() -> None:
    x = sy.Wrapper.__new__(Wrapper)
    x.child = Quiet()
    assert refusal(lambda: x + 1).startswith(
        "LocationMismatch: Quiet: the operands lie at nowhere (no tensor attached)."
    )


def test_deepcopy_is_independent() -> None:
    x = Quiet().on(torch.ones(2, requires_grad=True))
    duplicate = copy.deepcopy(x)
    with torch.no_grad():
        duplicate.zero_()
    assert x.tolist() == [1.0, 1.0]
    assert duplicate.requires_grad
    assert type(duplicate.child) is Quiet


def test_the_link_behind_answers_where_the_data_is(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    pointer = torch.ones(2).send(bob)
    x = Quiet().on(pointer)
    assert (x.location, x.owner, x.id_at_location) == (bob, sy.local_worker, pointer.id_at_location)
    assert x.id == pointer.id and x.child.owner is sy.local_worker
    assert x.child.remote_links() == [pointer.child]
    here = Quiet().on(torch.ones(2))
    assert (here.location, here.owner, here.id_at_location) == (None, sy.local_worker, None)
    assert here.id != x.id


def test_the_link_behind_sends_on_and_fetches(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    x = Quiet().on(torch.ones(2).send(bob))
    assert x.remote_send(alice) is x
    assert len(inspect(alice)) == 1
    assert x.remote_get() is x
    assert inspect(alice).objects == {}
    assert repr(x.child.remote_send(alice)).startswith("(Wrapper)>Quiet>[PointerTensor")
    assert repr(x.child.remote_get()).startswith("(Wrapper)>Quiet>[PointerTensor")
    assert repr(x.get()) == "(Wrapper)>Quiet>tensor([1., 1.])"


def test_a_link_before_nothing_gives_the_answers_of_a_plain_tensor() -> None:
    link = Quiet()
    assert (link.location, link.owner, link.id, link.id_at_location) == (None, None, None, None)
    assert link.remote_links() == []
    assert refusal(link.get).startswith("NothingToGet: get()")


def test_a_link_before_a_pointer_is_sent_as_the_pointer_is(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    x = torch.ones(2, requires_grad=True).send(bob) * 2
    assert not x.is_leaf
    there = sy.LoggingTensor().on(x).send(alice)  # the graph stays at bob
    assert repr(there.get()).startswith("(Wrapper)>LoggingTensor>[PointerTensor | me:")


@pytest.mark.virtual_only("takes a pointer itself out of the worker that holds it")
@pytest.mark.parametrize("links", [lambda x: x, lambda x: sy.LoggingTensor().on(x)])
def test_the_owner_of_a_pointer_sends_it(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, links: Any
) -> None:
    kept = torch.ones(2).send(bob).send(alice)
    (held,) = alice.core.store.objects.values()
    assert held.owner is alice
    assert links(held).send(bob).owner is alice
    del held, kept
