"""``sy.send_all`` and ``sy.get_all``: as ``send`` and ``get`` of each, in one message each way."""

from __future__ import annotations

import collections
import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.chain.wrapper import wrap
from syft.exceptions import (
    CannotRecord,
    NotALeaf,
    NothingToGet,
    ObjectNotFound,
    ObjectNotReady,
    PermissionDenied,
    UnknownWorker,
    UnsupportedOperation,
    WorkerClosed,
)
from syft.workers.wire.messages import Done, Drop, FetchAll, Move, Put, PutAll, Run
from tests.serde.samples import same
from tests.shells.child import make_worker
from tests.shells.owner import inspect

pytestmark = pytest.mark.every_shell


def many() -> list[torch.Tensor]:
    """One of each kind of tensor, some of them alike."""
    leaf, graded = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    graded.grad = torch.zeros(3)
    parameter = nn.Parameter(torch.full((3,), 7.0))
    memory = torch.arange(6.0)
    return [
        *(torch.ones(3), leaf, graded, parameter, torch.ones(3).tag("#a").describe("ones")),
        *(memory[:3], memory[3:], memory.view(2, 3).t(), torch.eye(2).to_sparse()),
        *(
            torch.ones(3, dtype=torch.bool),
            torch.tensor(5),
            torch.ones(0),
            nn.Buffer(leaf.detach()),
        ),
        torch.ones(20_000, dtype=torch.float64),
    ]


def sent(log: Any, to: str) -> list[type]:
    """The kinds of messages that a worker got."""
    return [type(entry.message) for entry in log if entry.receiver == to]


def test_there_and_back_in_one_message_each(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    values = many()
    with hook.record() as log:
        pointers = sy.send_all(values, worker)
        back = sy.get_all(pointers)
    assert sent(log, "worker") == [PutAll, FetchAll]
    assert [type(pointer) for pointer in pointers] == [sy.Wrapper] * len(values)
    assert len({pointer.id_at_location for pointer in pointers}) == len(values)
    assert all(map(same, back, values))
    assert inspect(worker).objects == {}


def test_each_is_an_object_like_any_other(bob: sy.VirtualWorker) -> None:
    x, y, z = sy.send_all([torch.ones(2), torch.zeros(2, requires_grad=True), torch.ones(2)], bob)
    (x * y).sum().backward()
    assert y.grad.get().tolist() == [1, 1]
    x.add_(1)
    assert x.get().tolist() == [2, 2] and z.get().tolist() == [1, 1], "each has its own memory"
    del y
    assert inspect(bob).objects == {}


def test_a_pointer_that_is_dropped_drops_its_object_alone(bob: sy.VirtualWorker) -> None:
    pointers = sy.send_all([torch.full((2,), float(number)) for number in range(10)], "bob")
    del pointers[3:]
    assert len(inspect(bob).objects) == 3
    kept = sy.send_all([torch.ones(1)], bob, garbage_collect_data=False)
    id = kept[0].id_at_location
    del kept
    assert id in inspect(bob).objects
    (found,) = bob.search(str(id))
    found.get()


def test_tags_are_known_to_the_pointer_and_there(bob: sy.VirtualWorker) -> None:
    (pointer,) = sy.send_all([torch.ones(2).tag("#a")], bob)
    assert "Tags: #a" in repr(pointer) and len(bob.search("#a")) == 1


def test_what_cannot_be_sent_keeps_all_here(bob: sy.VirtualWorker) -> None:
    private = torch.ones(2).private_tensor(["ann"])
    graph = torch.ones(2, requires_grad=True) * 2
    for wrong, kind in ((graph, NotALeaf), (private, PermissionDenied)):
        with pytest.raises(kind):
            sy.send_all([torch.ones(2), wrong], bob)
    with pytest.raises(UnknownWorker):
        sy.send_all([torch.ones(2)], "nobody")
    assert inspect(bob).objects == {}
    assert sy.send_all([], bob) == [] and sy.get_all([]) == []


def test_what_is_listed_twice(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2)
    first, second = sy.send_all([x, x], bob)
    first.add_(1)
    assert second.tolist() == [1, 1]
    (found,) = bob.search(str(first.id_at_location))
    values = sy.get_all([first, first, second, found])
    assert values[0] is values[1] is values[3] and values[2] is not values[0]
    assert inspect(bob).objects == {}


def test_keep(bob: sy.VirtualWorker) -> None:
    pointers = sy.send_all([torch.ones(2), torch.zeros(2)], bob)
    assert sy.get_all(pointers, keep=True)[0].tolist() == [1, 1]
    assert len(inspect(bob).objects) == 2
    pointers[0].add_(1)
    assert sy.get_all(pointers)[0].tolist() == [2, 2]


@pytest.mark.parametrize("queued", [False, True])
def test_several_workers_are_asked_before_one_is_waited_for(
    hook: sy.TorchHook, queued: bool
) -> None:
    bob = make_worker(hook, "bob", pipelined=queued)
    alice = make_worker(hook, "alice", pipelined=queued)
    pointers = [*sy.send_all(torch.ones(2, 2), bob), *sy.send_all(torch.zeros(2, 2), alice)]
    sy.synchronize()
    with hook.record() as log:
        values = sy.get_all([pointers[3], pointers[0], pointers[2], pointers[1]])
    assert [value.tolist() for value in values] == [[0, 0], [1, 1], [0, 0], [1, 1]]
    asked = [entry.receiver for entry in log if type(entry.message) is FetchAll]
    assert asked == ["alice", "bob"]
    dropped = [type(entry.message) for entry in log if type(entry.message) is Drop]
    assert len(dropped) <= 2, "no message for each object"
    assert inspect(bob).objects == inspect(alice).objects == {}


def test_what_one_of_several_workers_refuses_stays_everywhere(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    x, y = torch.ones(2).send(alice), torch.ones(2).send(bob)
    (taken,) = bob.search(str(y.id_at_location))
    z = torch.ones(2).send(alice)
    (other,) = alice.search(str(z.id_at_location))
    sy.get_all([taken, other])
    for pointers, missing in (([x, y, z], z), ([y, x, z], y)):
        with pytest.raises(ObjectNotFound) as caught:
            sy.get_all(pointers)
        assert caught.value.id == missing.id_at_location
    assert x.get().tolist() == [1, 1], "the other failure was not left to be raised here"


def test_a_worker_that_is_closed(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x, y = torch.ones(2).send(alice), torch.ones(2).send(bob)
    bob.close()
    with pytest.raises(WorkerClosed):
        sy.get_all([x, y])
    assert x.get().tolist() == [1, 1]


def test_private_ones(bob: sy.VirtualWorker) -> None:
    plain, private = torch.ones(2), torch.zeros(2).private_tensor(["ann"])
    pointers = sy.send_all([plain, private, plain], bob, user="ann")
    total = pointers[0] + pointers[1]
    with pytest.raises(PermissionDenied, match=rf"get_all of object {total.id_at_location}: "):
        sy.get_all([pointers[0], total, pointers[1]])
    assert len(inspect(bob).objects) == 4, "none was taken"
    values = sy.get_all([*pointers, total], user="ann")
    assert [value.tolist() for value in values] == [[1, 1], [0, 0], [1, 1], [1, 1]]


def test_what_is_here_cannot_be_fetched(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(bob)
    text = r"get_all\(\): this tensor is here"
    for here in (torch.ones(2), sy.LoggingTensor().on(torch.ones(2))):
        with pytest.raises(NothingToGet, match=text):
            sy.get_all([x, here])
    assert x.get().tolist() == [1, 1]


def test_chains(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    logged = sy.LoggingTensor().on(torch.ones(2))
    encoded = torch.ones(2).fix_precision()
    there = sy.send_all([logged, encoded, torch.full((2,), 2.0)], bob)
    before = sy.LoggingTensor().on(there[2])
    both = torch.tensor([3.0]).send(bob, alice)
    over = sy.LoggingTensor().on(torch.tensor([4.0]).send(bob, alice))
    values = sy.get_all([there[0], there[1], before, both, over])
    assert repr(values[0]) == "(Wrapper)>LoggingTensor>tensor([1., 1.])"
    assert values[1].float_precision().tolist() == [1, 1]
    assert repr(values[2]) == "(Wrapper)>LoggingTensor>tensor([2., 2.])"
    assert [part.tolist() for part in values[3]] == [[3], [3]]
    assert [repr(part) for part in values[4]] == ["(Wrapper)>LoggingTensor>tensor([4.])"] * 2
    assert inspect(bob).objects == inspect(alice).objects == {}


def test_what_is_inside_a_remote_chain_stays(bob: sy.VirtualWorker) -> None:
    x = sy.LoggingTensor().on(torch.ones(2)).send(bob)
    inner = wrap(x.child.child.child)
    values = sy.get_all([inner, torch.zeros(1).send(bob)])
    assert values[0].tolist() == [1, 1] and list(inspect(bob).objects) == [x.id_at_location]
    assert repr(x.get()) == "(Wrapper)>LoggingTensor>tensor([1., 1.])"


def test_a_constant_that_is_shared_stays(bob: sy.VirtualWorker) -> None:
    x = torch.arange(100.0)
    first, second = x.send(bob, id=sy.ids.content), x.send(bob, id=sy.ids.content)
    other = torch.ones(1).send(bob)
    values = sy.get_all([first, other])
    assert torch.equal(values[0], x) and list(inspect(bob).objects) == [second.id_at_location]
    assert torch.equal(second.get(), x)


def test_pointers_are_sent_and_fetched(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    pointers = sy.send_all([torch.ones(2), torch.zeros(2)], alice)
    there = sy.send_all(pointers, bob)
    del pointers
    assert len(inspect(alice).objects) == 2, "bob's pointers keep them"
    back = sy.get_all(there)
    assert sy.get_all(back)[1].tolist() == [0, 0]


@pytest.mark.parametrize("kept", ["by the caller", "by the refusal of another worker"])
def test_a_kept_pointer_keeps_its_duty(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, hook: sy.TorchHook, kept: str
) -> None:
    x = torch.ones(2).send(bob).send(alice)
    if kept == "by the caller":
        (duplicate,) = sy.get_all([x], keep=True)
        assert not duplicate.child.garbage_collect_data
        del duplicate
    else:
        missing = torch.ones(2).send(bob)
        missing.child.id_at_location += 1
        with pytest.raises(ObjectNotFound):
            sy.get_all([x, missing])
        missing.child.id_at_location -= 1
    assert len(inspect(alice).objects) == 1
    assert x.get().get().tolist() == [1.0, 1.0]


def test_a_pointer_that_is_fetched_with_what_others_hold_brings_its_duty(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    x, y = torch.ones(2).send(bob).send(alice), torch.zeros(2).send(bob)
    pointer, _ = sy.get_all([x, y])
    assert pointer.child.garbage_collect_data and not x.child.garbage_collect_data
    assert (len(inspect(alice).objects), len(inspect(bob).objects)) == (0, 1)
    del pointer
    assert len(inspect(bob).objects) == 0


def test_a_promise_is_waited_for(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    promise, x = worker.promise(), torch.ones(2).send(worker)
    with pytest.raises(ObjectNotReady):
        sy.get_all([x, promise])
    assert x.tolist() == [1, 1], "nothing was taken"
    kept = torch.zeros(2).send(worker, id=promise.id_at_location)
    assert [value.tolist() for value in sy.get_all([x, promise])] == [[1, 1], [0, 0]]
    del kept


def test_a_queued_send_copies_first(hook: sy.TorchHook) -> None:
    dan = make_worker(hook, "dan", pipelined=True)
    x, large = torch.ones(2), torch.ones(20_000)
    pointers = sy.send_all([x, x, large], dan)
    if isinstance(dan, sy.VirtualWorker):
        assert not pointers[0].child.handle.done()
    x.zero_()
    large.zero_()
    pointers[1].child.handle.wait()
    assert pointers[0].child.handle.done()
    values = sy.get_all(pointers)
    assert values[0].tolist() == [1, 1] and bool(values[2].all())


def test_inside_a_group(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    with hook.record() as log:
        with bob.group():
            x, y = sy.send_all([torch.ones(2), torch.zeros(2)], bob)
            z = x + y + 1
        assert sent(log, "bob") == [Run]
        with bob.group():
            x.add_(1)
            values = sy.get_all([x, z])
    assert sent(log, "bob") == [Run, Run, FetchAll]
    assert [value.tolist() for value in values] == [[2, 2], [2, 2]]


def test_while_a_plan_is_built(bob: sy.VirtualWorker) -> None:
    kept = torch.ones(1).send(bob)
    for action in (lambda x: sy.send_all([x], bob), lambda x: sy.get_all([kept])):
        with pytest.raises(CannotRecord):
            sy.func2plan([(1,)])(lambda x: [action(x), x][1])  # noqa: B023


def test_a_mapping_keeps_its_kind_and_what_is_no_tensor(bob: sy.VirtualWorker) -> None:
    model = nn.BatchNorm1d(2)
    state = model.state_dict()
    state["extra"] = "text"
    there = sy.send_all(state, bob)
    assert type(there) is collections.OrderedDict and list(there) == list(state)
    assert there._metadata == state._metadata and there["extra"] == "text"
    assert there["weight"].location.id == "bob"
    back = sy.get_all(there)
    assert all(map(same, back.values(), state.values())) and state["weight"].location is None


# ----------------------------------------------------------------------------------------- modules


def test_a_module_is_one_message_each_way(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    module = nn.Sequential(*(nn.Linear(3, 3) for _ in range(20)), nn.BatchNorm1d(3))
    plain = {name: value.clone() for name, value in module.state_dict().items()}
    parameters = list(module.parameters())
    with hook.record() as log:
        module.send(worker)
        module.get()
    assert sent(log, "worker") == [PutAll, FetchAll]
    assert all(map(same, module.state_dict().values(), plain.values()))
    assert all(map(lambda one, other: one is other, module.parameters(), parameters))
    assert inspect(worker).objects == {}


def test_a_state_dict_is_one_message_and_so_is_its_content(
    hook: sy.TorchHook, worker: sy.VirtualWorker
) -> None:
    module = nn.Sequential(*(nn.Linear(3, 3) for _ in range(20)), nn.BatchNorm1d(3))
    plain = {name: value.clone() for name, value in module.state_dict().items()}
    module.send(worker)
    sy.synchronize()
    with hook.record() as log:
        with worker.group():
            remote = module.state_dict()
        state = sy.get_all(remote)
    assert sent(log, "worker") == [Run, FetchAll]
    assert list(state) == list(plain) and all(map(same, state.values(), plain.values()))
    with hook.record() as log:  # the parameters themselves, which stay there
        state = sy.get_all(module.state_dict(keep_vars=True), keep=True)
    assert FetchAll in sent(log, "worker") and set(sent(log, "worker")) <= {FetchAll, Drop}
    assert all(torch.equal(state[name], value) for name, value in plain.items())
    duplicate = nn.Sequential(*(nn.Linear(3, 3) for _ in range(20)), nn.BatchNorm1d(3))
    duplicate.load_state_dict(state)
    x = torch.randn(2, 3)
    assert torch.equal(duplicate(x), module.get()(x))


@pytest.mark.parametrize(
    "wanted",
    [
        lambda module: module.state_dict(keep_vars=True),
        lambda module: list(module.parameters()),
        lambda module: [torch.zeros(2).send(module.weight.location), *module.parameters()],
    ],
    ids=["state", "parameters", "among others"],
)
def test_a_module_whose_parameters_were_fetched_goes_on_working(
    worker: sy.VirtualWorker, wanted: Callable[[Any], Any]
) -> None:
    module: Any = nn.BatchNorm1d(3)
    x = torch.arange(6.0).view(2, 3)
    expected = copy.deepcopy(module)(x)
    module.send(worker)
    values = sy.get_all(wanted(module))
    values = list(values.values()) if isinstance(values, dict) else values
    assert any(torch.equal(value.detach(), torch.ones(3)) for value in values)
    assert torch.equal(module(x.send(worker)).get(), expected)  # type: ignore[attr-defined]
    torch.testing.assert_close(module.get().running_mean, torch.tensor([0.15, 0.25, 0.35]))
    del values
    worker.collect()
    assert inspect(worker).objects == {}


def test_a_module_at_two_workers(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[0].send(alice)
    module[1].send(bob)
    with hook.record() as log:
        module.get()
    assert sent(log, "alice") == sent(log, "bob") == [FetchAll]
    module(torch.ones(1, 2))
    assert inspect(bob).objects == inspect(alice).objects == {}


def test_the_kinds_of_messages_of_single_tensors_are_as_they_were(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    with hook.record() as log:
        nn.Linear(2, 2, bias=False).send(bob).move(alice)
        torch.ones(1).send(bob)
    assert [kind for kind in sent(log, "bob") if kind is not Done] == [PutAll, Move, Put]


@pytest.mark.parametrize("whole", [True, False], ids=["module", "several workers"])
def test_a_gradient_is_refused_that_follows_a_leaf_which_was_moved_and_fetched(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, whole: bool
) -> None:
    module = nn.Linear(2, 1).send(bob)
    weight = torch.ones(1, 2, requires_grad=True).send(bob)
    loss = module(torch.ones(1, 2).send(bob)).sum() + weight.sum()
    moved = weight.move(alice)
    if whole:
        module.move(alice).get()
    else:
        sy.get_all([moved, torch.ones(1).send(bob)])
    with pytest.raises(UnsupportedOperation, match="A leaf that was fetched"):
        loss.backward()
    del loss
    gc.collect()
    bob.collect()
    torch.ones(1).send(bob).move(alice)  # what bob drops goes with the next request
