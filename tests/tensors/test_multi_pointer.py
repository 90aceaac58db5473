"""MultiPointerTensor: one name for a tensor at several workers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import syft as sy
from syft.serde.packer import Packer
from syft.serde.registry import pack
from tests.chain.refusal import here, refusal, shown
from tests.shells.child import make_worker
from tests.shells.owner import inspect

pytestmark = pytest.mark.every_shell

REPR = (
    "(Wrapper)>[MultiPointerTensor]\n\t-> [PointerTensor | me:N -> bob:N]"
    "\n\t-> [PointerTensor | me:N -> alice:N]"
)


def test_send_to_several(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0]).send(bob, alice)
    assert shown(x) == REPR
    assert type(x.child) is sy.MultiPointerTensor
    assert x.location == [bob, alice]
    assert list(x.child.child) == ["bob", "alice"]
    assert x.child.place() == "bob+alice"
    assert shown(x + x) == REPR
    assert [part.tolist() for part in (x + x).get()] == [[2.0, 4.0]] * 2
    assert (x * 2).get(sum_results=True).tolist() == [4.0, 8.0]
    del x
    assert inspect(bob).objects == inspect(alice).objects == {}


def test_combining_pointers(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    one, two = torch.tensor([1.0]).send(bob), torch.tensor([20.0]).send(alice)
    both = one.combine(two)
    assert both.get(sum_results=True).tolist() == [21.0]
    one, two = torch.tensor([1.0]).send(bob), torch.tensor([20.0]).send(alice)
    both = sy.combine_pointers(one, two)
    assert [row.get() for row in (both * 2)][0][1].item() == 40.0
    assert (both + both).get()[1].tolist() == [40.0]
    again = torch.ones(1).send(bob)
    assert refusal(lambda: sy.combine_pointers(one, again)) == (
        "UnusableSetting: workers must be different workers, got 'bob' twice."
    )
    assert refusal(lambda: sy.combine_pointers(one, torch.ones(1))) == here(
        "combine", "several workers", "here"
    )
    assert refusal(lambda: torch.ones(1).send(bob, bob)).startswith("UnusableSetting")


def test_results_of_every_kind(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x = sy.combine_pointers(
        torch.tensor([3.0, 1.0]).send(bob), torch.tensor([5.0, 9.0]).send(alice)
    )
    found = x.max(0)
    assert type(found) is torch.return_types.max
    assert [value.item() for value in found.values.get()] == [3.0, 9.0]
    first, second = x.split(1)
    assert [part.tolist() for part in second.get()] == [[1.0], [9.0]]
    assert [part.tolist() for part in first.get()] == [[3.0], [5.0]]
    assert type(x.unbind(0)) is tuple
    assert torch._foreach_add([x, x], 1)[1].get()[0].tolist() == [4.0, 2.0]
    assert x.shape == (2,)  # all agree: one value
    assert x.tolist() == [
        [3.0, 1.0],
        [5.0, 9.0],
    ]  # they differ: a list, in the order of the workers
    assert x.grad is None


def test_in_place_out_and_copies(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(bob, alice)
    assert x.add_(1) is x
    x *= 2
    x[0] = 0.0
    out = torch.zeros(2).send(bob, alice)
    assert torch.add(x, x, out=out) is out
    assert [part.tolist() for part in out.get()] == [[0.0, 8.0]] * 2
    duplicate = copy.deepcopy(x)
    duplicate.zero_()
    assert x.tolist() == [0.0, 4.0]
    assert shown(duplicate) == REPR


def test_backward_at_all(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True).send(bob, alice)
    (x * x).sum().backward()
    assert [gradient.tolist() for gradient in x.grad.get()] == [[2.0, 4.0]] * 2


def test_a_module_at_several_workers_is_refused(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    assert refusal(lambda: nn.Linear(1, 1).send(bob, alice)) == (
        "NotSendable: Cannot send a module to 2 workers: send a copy to each: "
        "model.copy().send(bob)."
    )


def test_operands_at_other_places(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    carl = make_worker(hook, id="carl")
    x, other = torch.ones(2).send(bob, alice), torch.ones(2).send(bob, carl)
    pointer = torch.ones(2).send(bob)
    for call, places in (
        (lambda: x + other, ("bob+alice", "bob+carl")),
        (lambda: x + pointer, ("bob+alice", "bob")),
        (lambda: torch.cat([x, pointer]), ("bob+alice", "bob")),
    ):
        text = refusal(call)
        assert text.startswith("LocationMismatch")
        assert f"lie at {places[0]} and {places[1]}." in text
    assert refusal(lambda: x + torch.ones(2)) == here("torch.Tensor.add", "bob", "me")
    same = torch.ones(2).send(alice, bob)
    assert (x + same).get(sum_results=True).tolist() == [4.0, 4.0]


@pytest.mark.parametrize("journey", ["send", "copy"])
def test_it_travels(bob: sy.VirtualWorker, alice: sy.VirtualWorker, journey: str) -> None:
    x = torch.tensor([1.0]).send(bob, alice)
    pointer = x.send(alice) if journey == "send" else x.copy().send(bob)
    assert [part.tolist() for part in (pointer * 3).get().get()] == [[3.0], [3.0]]


def test_tags_reach_every_part(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0]).send(bob, alice)
    assert x.tag("#both").describe("one at each") is x
    assert x.tags == {"#both"} and x.description == "one at each"
    for worker in (bob, alice):
        (found,) = worker.search("#both")
        assert found.description == "one at each"


def test_it_does_not_move_as_one(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x = torch.tensor([1.0]).send(bob, alice)
    assert refusal(lambda: x.move(alice)) == (
        "UnsupportedOperation: MultiPointerTensor has no rule for move: "
        "move its parts one by one, or get it and send it again."
    )


@pytest.mark.parametrize("logged", [False, True])
def test_a_send_that_fails_leaves_the_duty_to_collect(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker, logged: bool
) -> None:
    eve = make_worker(hook, id="eve")
    taken = torch.ones(1).send(eve)
    both = torch.ones(2).send(bob, alice)
    if logged:
        both = sy.LoggingTensor().on(both)
    assert refusal(lambda both=both: both.send(eve, id=taken.id_at_location)).startswith(
        "ObjectIdTaken"
    )
    assert [part.tolist() for part in (both + both).get()] == [[2.0, 2.0]] * 2
    assert len(inspect(bob)) == len(inspect(alice)) == 1
    del both
    assert inspect(bob).objects == inspect(alice).objects == {}


def test_a_send_that_succeeds_hands_the_duty_over(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, worker: sy.VirtualWorker
) -> None:
    both = torch.ones(2).send(bob, alice)
    sent = both.send(worker)
    del both
    assert len(inspect(bob)) == len(inspect(alice)) == 1
    del sent
    assert inspect(worker).objects == inspect(bob).objects == inspect(alice).objects == {}


def test_a_pointer_that_travels_twice_hands_its_duty_over_once(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(bob)
    packer = Packer()
    collects = [pack(pointer, packer)[3] for pointer in (x, copy.copy(x))]
    assert collects == [True, False] and x.child.garbage_collect_data
    packer.sent()
    assert not x.child.garbage_collect_data
    x.child.discard()
