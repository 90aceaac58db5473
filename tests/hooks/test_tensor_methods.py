"""What is not said elsewhere about the methods of tensors: privacy and annotations."""

from __future__ import annotations

import pytest
import torch

import syft as sy
from syft.chain.wrapper import first_link
from syft.workers.labels.origin import writers_of
from tests.chain.refusal import refusal
from tests.shells.owner import inspect

pytestmark = pytest.mark.every_shell


def test_private_tensors_keep_tags_and_share_data(hook: sy.TorchHook) -> None:
    x = torch.ones(2, requires_grad=True).tag("#a").describe("words")
    private = x.private_tensor(["ann", "bea"]).private_tensor(["bea"])
    assert private is not x
    assert private.requires_grad
    assert (private.tags, private.description) == ({"#a"}, "words")
    with torch.no_grad():
        private.zero_()
    assert x.tolist() == [0.0, 0.0]


def test_only_an_allowed_user_sends_and_reads(bob: sy.VirtualWorker) -> None:
    private = torch.ones(2).private_tensor(["ann"])
    assert refusal(lambda: private.send(bob)) == (
        "PermissionDenied: send: this value on 'me' may not go to 'bob': no user was named, and "
        "'bob' is not among its allow_destinations=. Pass user=..."
    )
    assert inspect(bob).objects == {}
    pointer = private.send(bob, user="ann")
    assert refusal(lambda: pointer.get(user="bea")) == (
        "PermissionDenied: get: this value on 'bob' is private, and user 'bea' may not read it."
    )
    assert (pointer + 1).get(user="ann").tolist() == [2.0, 2.0]


def test_remote_get_of_private_data(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    pointer = torch.ones(2).private_tensor(["ann"]).send(bob, user="ann")
    assert refusal(lambda: pointer.remote_send(alice)).startswith("PermissionDenied: remote_send")
    assert inspect(alice).objects == {}


def test_remote_get_keeps_the_guard(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    private = torch.ones(2).private_tensor(["ann"])
    pointer = private.send(bob, user="ann").send(alice)
    assert refusal(pointer.remote_get).startswith("PermissionDenied: remote_get")
    assert pointer.remote_get(user="ann") is pointer
    assert inspect(bob).objects == {}
    assert refusal((pointer + 1).get).startswith("PermissionDenied: get")
    assert pointer.get(user="ann").tolist() == [1.0, 1.0]


def test_fetching_without_taking_away(bob: sy.VirtualWorker) -> None:
    x = sy.LoggingTensor().on(torch.tensor([1.0]).send(bob))
    assert repr(first_link(x).get(keep=True)) == "(Wrapper)>LoggingTensor>tensor([1.])"
    assert repr(first_link(x).get()) == "(Wrapper)>LoggingTensor>tensor([1.])"
    assert inspect(bob).objects == {}
    assert refusal(lambda: first_link(torch.ones(1)).get()).startswith("NothingToGet: get()")


@pytest.mark.parametrize("id", ["abc", 1.0, True, -1, 2**63, torch.tensor(3)])
def test_an_id_that_is_none_is_refused_before_anything_is_sent(
    hook: sy.TorchHook, worker: sy.VirtualWorker, alice: sy.VirtualWorker, id: object
) -> None:
    what = str(id) if type(id) is int else f"an id of type {type(id).__name__}"
    text = f"NotSendable: Cannot send a tensor under {what}: an id is an int from 0 to 2**63 - 1."
    pointer = torch.ones(2).send(alice)
    with hook.record() as log:
        assert refusal(lambda: torch.ones(2).send(worker, id=id)) == text
        assert refusal(lambda: pointer.send(worker, id=id)) == text
    assert len(log) == 0
    assert pointer.get().tolist() == [1.0, 1.0]
    assert torch.ones(1).send(worker, id=2**63 - 1).get().item() == 1.0


def test_tags_and_descriptions_are_strings(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    here, there = torch.ones(1), torch.ones(1).send(bob)
    with hook.record() as log:
        for x in (here, there):
            assert refusal(lambda x=x: x.tag("#a", 3)) == (
                "NotSendable: Cannot send a tag of type int: a tag is a string."
            )
            assert refusal(lambda x=x: x.describe(None)) == (
                "NotSendable: Cannot send a description of type NoneType: "
                "a description is a string."
            )
    assert len(log) == 0
    assert (here.tags, here.description) == (there.tags, there.description) == (set(), None)
    del x


def test_remote_send_for_a_user(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    pointer = torch.ones(2).private_tensor(["ann"]).send(bob, user="ann")
    id = pointer.id_at_location
    assert refusal(lambda: pointer.remote_send(alice, user="bea")) == (
        f"PermissionDenied: remote_send: object {id} on 'bob' may not go to 'alice': user 'bea' "
        "may not read it, and 'alice' is not among its allow_destinations=."
    )
    assert inspect(alice).objects == {}
    assert pointer.remote_send(alice, user="ann") is pointer
    assert len(inspect(alice)) == 1
    assert pointer.remote_get() is pointer, "where it was before it may always be"
    assert refusal(pointer.get).startswith("PermissionDenied: get")
    assert pointer.get(user="ann").tolist() == [1.0, 1.0]


def test_what_is_promised_is_tagged_and_sent_on_when_it_has_come(
    worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    promise = worker.promise()
    later = (promise + 1).tag("#later")
    assert promise.tag("#a").describe("two words") is promise
    assert repr(promise).endswith("Tags: #a \n\tDescription: two words...")
    assert not promise.child.handle.done()
    assert refusal(lambda: promise.tags).startswith("ObjectNotReady: Worker 'worker' still waits")
    kept = torch.ones(2).send(worker, id=promise.id_at_location)
    assert promise.tag("#b").tags == {"#a", "#b"} and promise.description == "two words"
    assert later.tags == {"#later"} and promise.child.handle.done()
    del kept


def test_what_is_promised_is_sent_on_when_it_has_come(
    worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    promise = worker.promise()
    promise.remote_send(alice)
    doubled = promise * 2
    kept = torch.ones(2).send(worker, id=promise.id_at_location)
    assert doubled.get().get().tolist() == [2, 2], "it is a pointer to a pointer by then"
    assert promise.remote_get().copy().get().tolist() == [1, 1]
    del kept


@pytest.mark.parametrize("name", ["gc", "garbage_collection", "garbage_collect_data"])
@pytest.mark.parametrize("on", ["tensor", "link"])
def test_the_object_outlives_the_pointer_if_that_is_said(
    bob: sy.VirtualWorker, name: str, on: str
) -> None:
    x, y = torch.ones(2).send(bob), torch.ones(2).send(bob)
    target = x if on == "tensor" else x.child
    assert getattr(target, name) is True
    setattr(target, name, False)
    kept = x.id_at_location
    assert (x.gc, x.garbage_collection, x.child.gc, y.gc) == (False, False, False, True)
    if name != "garbage_collect_data" or on == "tensor":  # of a link it is the plain attribute
        assert refusal(lambda: setattr(target, name, True)) == (
            "UnsupportedOperation: PointerTensor has no rule for gc = True: drop the object where "
            "it is, or get it."
        )
    y.gc = True  # as it is
    x = y = target = None
    assert list(inspect(bob).objects) == [kept]
    (found,) = bob.search(str(kept))
    found.get()


def test_what_is_here_is_not_collected_elsewhere(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2)
    assert x.gc is False
    assert refusal(lambda: setattr(x, "gc", False)) == (
        "UnsupportedOperation: a tensor that is here has no rule for garbage_collect_data: say it "
        "when you send it: x.send(worker, garbage_collect_data=False)."
    )
    for tensor in (x, x.send(bob)):
        assert refusal(lambda tensor=tensor: tensor.disable_gc).startswith(
            "NotThere: disable_gc is"
        )
        assert "x.send(worker) puts a copy" in refusal(lambda tensor=tensor: tensor.create_pointer)
        assert not hasattr(tensor, "disable_gc") and not hasattr(tensor, "create_pointer")


def test_a_pointer_to_a_plan_collects_in_the_same_way(bob: sy.VirtualWorker) -> None:
    pointer = sy.func2plan(args_shape=[(2,)])(lambda x: x + x).send(bob)
    pointer.gc = False
    id = pointer.id_at_location
    del pointer
    assert list(inspect(bob).objects) == [id]
    bob.search(str(id))[0].get()


def test_sending_in_place(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=0.5)
    assert x.send_(bob, garbage_collect_data=False) is x and x.location is bob and not x.gc
    (x * 2).sum().backward()
    optimizer.step()
    assert inspect(bob).objects[x.id_at_location].tolist() == [0.0, 0.0]
    assert x.send_(alice).location is alice
    assert x.get().get().tolist() == [0.0, 0.0]
    both = torch.ones(2)
    assert both.send_(bob, alice) is both and (both + 1).get(sum_results=True).tolist() == [4, 4]


def test_what_is_held_is_not_sent_in_place(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    x = torch.ones(2, requires_grad=True)
    held = x * x * 2
    text = refusal(lambda: x.send_(bob))
    assert text.startswith("NotSendable: Cannot send a tensor in place that something else holds: ")
    assert inspect(bob).objects == {} and type(x) is torch.Tensor and held.tolist() == [2.0, 2.0]
    assert refusal(lambda: torch.ones(2).send_()).startswith("NotSendable: Cannot send a tensor to")


def test_users_are_named_one_by_one_or_in_a_list(bob: sy.VirtualWorker) -> None:
    """A single name is no list of its letters."""
    for users in ("ann", ["ann"], ("ann", "bea"), {"ann"}, iter(["ann"])):
        x = torch.ones(1).private_tensor(allowed_users=users).send(bob, user="ann")
        assert refusal(lambda x=x: x.get(user="a")).startswith("PermissionDenied")
        for more in (("eve",), (["eve", "dan"],), ("eve", ("dan",))):
            assert x.allow(*more).get(user="eve").item() == 1.0
            assert refusal(lambda x=x, more=more: x.allow(*more).get(user="e")).startswith("Permis")
        assert x.get(user="ann").item() == 1.0
    text = "UnusableSetting: {} must be names (strings), got a value of type int.".format
    x = torch.ones(1).send(bob)
    assert refusal(lambda: x.allow(3)) == text("users")
    assert refusal(lambda: torch.ones(1).private_tensor([3])) == text("allowed_users")
    assert refusal(lambda: torch.ones(1).private_tensor(3)) == text("allowed_users")
    assert refusal(lambda: torch.ones(1).send(bob, allow_writes=[3])) == text("allow_writes")


def test_one_who_may_write_is_named_by_name(hook: sy.TorchHook) -> None:
    eve = sy.VirtualWorker(hook, id="eve")
    (id,) = eve.hold(torch.ones(1), allow_writes="ann")
    assert eve.core.owners.of(id).writers == {"ann"}
    x = torch.ones(1).private_tensor("ann", allow_writes="bea")
    assert writers_of(x) == {"bea"}
    eve.clear_objects()
