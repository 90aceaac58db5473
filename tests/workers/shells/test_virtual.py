"""Workers in one process, and the network between them."""

from __future__ import annotations

import gc
import weakref
from threading import get_ident
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import (
    NotSendable,
    ObjectNotFound,
    ProgramError,
    UnknownWorker,
    UnsupportedOperation,
    UnusableSetting,
    WorkerClosed,
    WorkerIdTaken,
)
from syft.serde.frame import Frame
from syft.serde.limits import Limits
from syft.workers.core.peer_limits import PeerLimits
from syft.workers.wire.messages import Stale, encode
from tests.chain.refusal import refusal
from tests.shells.child import make_worker
from tests.shells.owner import inspect
from tests.tensors.test_pointer_autograd import HOME, PATHS, check_gradients

# ------------------------------------------------------------------------------- names and networks


def test_a_worker_id_is_taken_once(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    class Other(sy.VirtualWorker):
        pass

    with pytest.raises(WorkerIdTaken, match="a worker 'bob' already, with another class. Use it"):
        Other(hook, id="bob")
    with pytest.raises(WorkerIdTaken, match="'me' already, with another hook. Use it"):
        sy.VirtualWorker(hook, id="me")
    bob.close()
    assert sy.VirtualWorker(hook, id="bob") is not bob


def test_a_cell_that_is_run_again_gets_the_same_worker(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    x = torch.ones(2).send(bob)
    assert sy.VirtualWorker(hook, id="bob") is bob is sy.VirtualWorker(id="bob", hook=hook)
    assert (x + 1).get().tolist() == [2.0, 2.0]
    data, limits = (torch.ones(1), torch.ones(1)), Limits(max_dims=9)
    settings = {"pipelined": True, "user": "ann", "limits": limits, "is_client_worker": True}
    eve = sy.VirtualWorker(hook, id="eve", data=data, **settings)
    eve.is_client_worker = False  # what is set afterwards is no other argument
    again = dict(settings, limits=Limits(max_dims=9))
    assert sy.VirtualWorker(hook, id="eve", data=iter(data), **again) is eve
    assert eve.objects_count() == 2
    eve.clear_objects()


@pytest.mark.parametrize(
    ("settings", "differs"),
    [
        ({"pipelined": True}, ("pipelined",)),
        ({"user": "bea", "allow_plans": False}, ("user", "allow_plans")),
        ({"limits": Limits(max_dims=9)}, ("limits",)),
        ({"peer_limits": PeerLimits(objects=9)}, ("peer_limits",)),
        ({"is_client_worker": True}, ("is_client_worker",)),
        ({"data": [torch.ones(1)]}, ("data",)),
        ({"data": []}, ("data",)),
    ],
)
def test_what_is_different_is_named(
    hook: sy.TorchHook, settings: dict[str, Any], differs: tuple[str, ...]
) -> None:
    eve = sy.VirtualWorker(hook, id="eve", data=[torch.ones(1)])
    with pytest.raises(WorkerIdTaken) as caught:
        sy.VirtualWorker(hook, **{"id": "eve", **settings})
    assert caught.value.differs == (differs if "data" in settings else ("data", *differs))
    eve.clear_objects()


def test_data_that_is_gone_is_not_the_same(hook: sy.TorchHook) -> None:
    eve = sy.VirtualWorker(hook, id="eve", data=[torch.ones(1)])
    eve.clear_objects()  # it kept no tensor alive
    with pytest.raises(WorkerIdTaken, match="with another data"):
        sy.VirtualWorker(hook, id="eve", data=[torch.ones(1)])


def test_a_cell_that_failed_can_be_run_again(hook: sy.TorchHook) -> None:
    with pytest.raises(NotSendable, match="a value of type int: hold tensors"):
        sy.VirtualWorker(hook, id="eve", data=[torch.ones(1), 3])  # type: ignore[list-item]
    assert sy.VirtualWorker(hook, id="eve").objects_count() == 0


def test_an_unknown_worker_is_named_with_those_that_are_known(
    me: sy.VirtualWorker, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    expected = r"'me' knows no worker 'nobody' \(it knows alice, bob\)"
    with pytest.raises(UnknownWorker, match=expected):
        torch.ones(1).send("nobody")
    with pytest.raises(UnknownWorker, match=expected):
        me.get_worker("nobody")
    with pytest.raises(UnknownWorker, match=expected):
        me.request_search("#a", location="nobody")
    with pytest.raises(UnknownWorker):
        me.get_worker(5)  # type: ignore[arg-type]
    assert me.get_worker("bob") is bob and me.get_worker(alice) is alice
    assert torch.ones(1).send("bob").location is bob


def test_workers_of_another_network_can_be_introduced(
    me: sy.VirtualWorker, bob: sy.VirtualWorker
) -> None:
    dora = sy.VirtualWorker(None, id="dora")
    emil = sy.VirtualWorker(None, id="emil", pipelined=True)
    other_bob = sy.VirtualWorker(None, id="bob")
    with pytest.raises(UnknownWorker):
        torch.ones(1).send("dora")
    assert me.add_worker(dora) is me and me.add_worker(dora) is me
    assert me.add_workers([emil]) is me
    with pytest.raises(WorkerIdTaken):
        me.add_worker(other_bob)
    for worker in (dora, emil):
        x = torch.ones(2).send(worker)
        assert (x + x).get().tolist() == [2, 2]
        with pytest.raises(UnknownWorker, match="knows no worker 'bob'"):
            x.move(bob)
        worker.add_worker(bob)
        assert x.move(bob).get().tolist() == [1, 1]


def test_two_networks_do_not_meet() -> None:
    one, other = sy.VirtualWorker(None, id="w"), sy.VirtualWorker(None, id="w")
    assert one.network is not other.network
    assert one.network.local is one
    one.close()
    with pytest.raises(WorkerClosed):
        one.search("#a")
    with pytest.raises(WorkerClosed):
        one.promise()


def test_a_worker_describes_itself(hook: sy.TorchHook) -> None:
    carl = sy.VirtualWorker(hook, id="carl", is_client_worker=True)
    assert repr(carl) == "<VirtualWorker id:carl #objects:0>"
    assert carl.is_client_worker
    x = torch.ones(2).send(carl)
    assert repr(carl) == "<VirtualWorker id:carl #objects:1>"
    assert carl.list_objects() == [x.id_at_location] and carl.objects_count() == 1
    assert carl._tensors.keys() == carl._objects.keys() == inspect(carl).objects.keys()


def test_the_tensors_of_a_worker_are_its_tensors_and_its_shares(hook: sy.TorchHook) -> None:
    """Not the session that shares belong to, nor plans."""
    ann, ben, cid = (sy.VirtualWorker(hook, id=name) for name in ("ann", "ben", "cid"))
    shared = torch.tensor([25, -7]).share(ann, ben, cid)
    ids = [pointer.id_at_location for pointer in shared.child.child.values()]  # sends the shares
    plan = sy.func2plan(args_shape=[(1,)])(torch.abs).send(ann)
    plain = torch.ones(2).send(ann)
    assert ann._tensors.keys() == {ids[0], plain.id_at_location}
    assert len(ann._objects) == 4 and plan.id_at_location in ann._objects
    shares = [one._tensors[id].tolist() for one, id in zip((ann, ben, cid), ids, strict=True)]
    field = shared.child.field
    assert [sum(column) % field for column in zip(*shares, strict=True)] == [25, field - 7]
    del shared
    assert not ben._tensors


# ----------------------------------------------------------------------------------- what they hold


@pytest.mark.every_shell
@pytest.mark.filterwarnings("ignore:.torch.jit.trace")
@pytest.mark.parametrize("pipelined", [False, True])
def test_a_trace_sees_nothing_of_a_worker(hook: sy.TorchHook, pipelined: bool) -> None:
    """It would keep the worker's values as constants, and print them in its errors."""
    eve: Any = make_worker(hook, id="eve", pipelined=pipelined)
    model = nn.Linear(2, 1)
    nn.init.constant_(model.weight, 1234.5)
    x = model.send(eve).weight.data
    text = refusal(lambda: torch.jit.trace(model, (torch.ones(1, 2).send(eve),)))
    text += refusal(lambda: torch.jit.trace(lambda a: a + x.sum(), (torch.ones(1),)))
    said = "UnsupportedOperation: what is at a worker has no rule for torch.jit.trace: make a plan"
    assert "1234" not in text and text.count(said) == 2
    y = x * 2  # a queued worker has not begun

    def plain(a: torch.Tensor) -> torch.Tensor:
        eve.work()
        return a + 1

    traced = torch.jit.trace(plain, (torch.ones(1),))
    assert "mul" not in str(traced.graph) and "add" in str(traced.graph)
    assert y.sum().item() == 4938.0 and traced(torch.ones(1)).item() == 2.0
    eve.clear_objects()  # torch keeps what it has begun to trace


def test_a_query_is_words_and_ids_in_any_form(hook: sy.TorchHook) -> None:
    eve = sy.VirtualWorker(hook, id="eve", verbose=True, log_msgs=True)
    one, both = eve.hold(torch.ones(1).tag("#a"), torch.ones(1).tag("#a", "#b"))
    for query, found in (
        (("#a",), [one, both]),
        (("#a", "#b"), [both]),
        ((["#a", "#b"],), [both]),
        ((("#a",), "#b"), [both]),
        ((one,), [one]),
        ((str(one),), [one]),
        ((["#a", one],), [one]),
        ((one, "#b"), []),
        ((5,), []),
        (([],), [one, both]),
        ((), [one, both]),
    ):
        assert [pointer.id_at_location for pointer in eve.search(*query)] == found, query
    assert len(hook.local_worker.request_search(one, location=eve)) == 1
    with pytest.raises(UnusableSetting, match=r"a query must be tags \(strings\) and ids \(numb"):
        eve.search(1.5)  # type: ignore[arg-type]
    eve.clear_objects()


def test_a_plan_is_fetched_by_its_id_or_tag(
    hook: sy.TorchHook, me: sy.VirtualWorker, bob: sy.VirtualWorker
) -> None:
    plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
    pointer = plan.tag("#double").send(bob)
    x = torch.ones(2).tag("#double").send(bob)  # no plan
    for id in (pointer.id_at_location, str(pointer.id_at_location), "#double"):
        assert me.fetch_plan(id, bob)(torch.ones(2)).tolist() == [2.0, 2.0]
    assert me.fetch_plan(pointer.id_at_location, "bob", copy=True).is_built
    assert bob.objects_count() == 2
    for none in (5, "#other", x.id_at_location):
        with pytest.raises(ObjectNotFound, match="there is no plan of that id or tag"):
            me.fetch_plan(none, bob)
    with pytest.raises(ObjectNotFound, match="there is no plan of that id or tag"):
        me.fetch_plan(sy.Plan().id, bob)
    duplicate = plan.send(bob)
    with pytest.raises(
        ProgramError, match=f"several plans '#double': .*{duplicate.id_at_location}"
    ):
        me.fetch_plan("#double", bob)


def test_a_plan_is_found_by_the_id_of_what_was_sent(
    hook: sy.TorchHook, me: sy.VirtualWorker, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
    older, newer = plan.send(bob), plan.send(bob)
    for query in (plan.id, str(plan.id)):
        assert [p.id_at_location for p in bob.search(query)] == [
            newer.id_at_location,
            older.id_at_location,
        ]
        assert me.fetch_plan(query, bob)(torch.ones(2)).tolist() == [2.0, 2.0]
    assert bob.search(plan.id, newer.id_at_location)[0].id_at_location == newer.id_at_location
    assert bob.search(plan.id, "#none") == []
    moved = newer.move(alice)
    assert [p.id_at_location for p in alice.search(plan.id)] == [moved.id_at_location]
    assert len(bob.search(plan.id)) == 1
    duplicate = older.copy()
    assert [p.id_at_location for p in bob.search(plan.id)][0] == duplicate.id_at_location
    del older, duplicate
    bob.collect()
    assert bob.search(plan.id) == []


def test_a_plan_with_a_name_is_found_by_it(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    class Net(sy.Plan):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 3

    net = Net(id="net")
    net.build(torch.ones(2))
    pointer = net.send(bob)
    assert [found.id_at_location for found in bob.search("net")] == [pointer.id_at_location]
    assert hook.local_worker.fetch_plan("net", bob)(torch.ones(2)).tolist() == [3.0, 3.0]


def test_a_worker_may_hold_data_from_the_start(hook: sy.TorchHook) -> None:
    numbers = torch.arange(3).tag("#numbers")
    carl = sy.VirtualWorker(hook, id="carl", data=[numbers, torch.ones(2)])
    assert carl.objects_count() == 2
    (found,) = carl.search("#numbers")
    assert found.sum().get() == 3
    (id,) = carl.hold(torch.zeros(1))
    assert inspect(carl).objects[id].tolist() == [0]
    with pytest.raises(NotSendable, match="a value of type int"):
        carl.hold(5)  # type: ignore[arg-type]
    carl.clear_objects()


def test_what_is_shown_of_the_objects_is_not_changed(bob: sy.VirtualWorker) -> None:
    pointer = torch.ones(2).send(bob)
    id = pointer.id_at_location
    with pytest.raises(UnsupportedOperation, match="drop the pointer"):
        del bob._objects[id]
    assert pointer.get().tolist() == [1.0, 1.0]


def test_clearing_returns_the_worker_unless_told_otherwise(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(bob)
    assert bob.clear_objects() is bob
    assert bob.clear_objects(return_self=False) is None
    assert not inspect(bob).objects
    with pytest.raises(ObjectNotFound, match=r"cleared with clear_objects\(\)"):
        x.get()


def test_a_worker_searches_others(
    me: sy.VirtualWorker, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    x = torch.ones(2).tag("#x").send(bob)
    (found,) = alice.request_search(["#x"], location=bob)
    assert found.owner is alice and found.location is bob
    (found,) = me.request_search("#x", location="bob")
    assert found.owner is me and (found + 1).get().tolist() == [2, 2]
    assert x.get().tolist() == [1, 1]


def test_limits_are_those_of_the_receiver(hook: sy.TorchHook) -> None:
    small = sy.VirtualWorker(hook, id="small", limits=Limits(max_elements=3))
    assert torch.ones(3).send(small).get().shape == (3,)
    with pytest.raises(sy.exceptions.LimitExceeded, match="max_elements is 3, got 4"):
        torch.ones(4).send(small)
    assert not inspect(small).objects


# ------------------------------------------------------------------------------------------ garbage


def test_an_object_dies_with_its_last_pointer(worker: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(worker)
    id = x.id_at_location
    y = x
    del x
    assert list(inspect(worker).objects) == [id]
    del y
    assert not inspect(worker).objects


def test_what_operations_make_dies_too(worker: sy.VirtualWorker) -> None:
    x = torch.ones(2, 2).send(worker)
    (x @ x).relu().max(0)
    x.split(1)
    for row in x:
        row += 1
    del row
    assert list(inspect(worker).objects) == [x.id_at_location]


def test_a_pointer_is_in_no_cycle(worker: sy.VirtualWorker) -> None:
    assert not gc.isenabled()
    x = torch.ones(2).send(worker)
    y = x + 1
    assert y.tags == set() and y.shape == (2,) and "worker" in repr(y) and y.child.handle.done()
    link = weakref.ref(y.child)
    value = weakref.ref(inspect(worker).objects[y.id_at_location])
    child = y.child.child
    del child, y
    assert link() is None
    assert not inspect(worker).objects.keys() - {x.id_at_location}
    assert value() is None


def test_a_closed_network_is_in_no_cycle_of_tensors() -> None:
    worker = sy.VirtualWorker(None, id="w", data=[torch.ones(2)])
    value = weakref.ref(next(iter(inspect(worker).objects.values())))
    worker.close()
    assert value() is None


def test_pointers_held_elsewhere_are_garbage_there(
    worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    pointer = torch.ones(2).send(worker).send(alice)
    assert len(inspect(worker)) == len(inspect(alice)) == 1
    del pointer
    assert not inspect(alice).objects and not inspect(worker).objects


def drop_many(worker: sy.VirtualWorker, count: int) -> None:
    x = torch.ones(2).send(worker)
    for index in range(count):
        x.add(1)
        if worker.pipelined and index % 1000 == 999:
            sy.synchronize()
    connection = worker.network.local.connection_to(worker)
    assert list(inspect(worker).objects) == [x.id_at_location]
    assert (
        not connection.garbage.ids
        and not connection.replies.pending
        and not connection.replies.unseen
    )


def test_many_pointers_leave_nothing(worker: sy.VirtualWorker) -> None:
    drop_many(worker, 2000)


@pytest.mark.soak
def test_a_hundred_thousand_pointers_leave_nothing(worker: sy.VirtualWorker) -> None:
    drop_many(worker, 1000)
    before = resident()
    drop_many(worker, 100_000)
    assert resident() - before < 5 * 2**20


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm", encoding="ascii") as numbers:
        return int(numbers.read().split()[1]) * 4096


# --------------------------------------------------------------- what runs on one runs on the other

CONFORMANCE: dict[str, Any] = {
    "arithmetic": lambda x: (x * 2 + 1 - x / 2) ** 2,
    "comparison": lambda x: x > 2,
    "indexing": lambda x: x[0, 1:] + x[..., -1],
    "a list of tensors": lambda x: torch.cat([x, x.flip(0)], dim=1),
    "two results": lambda x: x.sort(descending=True).values,
    "views": lambda x: x.t().reshape(-1)[::2],
    "matrix products": lambda x: x @ x.t(),
    "functional": lambda x: torch.nn.functional.softmax(x, dim=0),
    "keyword": lambda x: torch.add(x, other=x, alpha=3),
    "numbers": lambda x: x * x.sum().item(),
    "shapes": lambda x: x.view(x.size(1), len(x)),
    "in place": lambda x: x.clone().add_(1).mul_(x).clamp_(max=10),
    "setitem": lambda x: set_item(x.clone()),
    "out": lambda x: torch.mul(x, x, out=torch.zeros_like(x)),
    "dtype": lambda x: x.to(torch.int64) + x.double(),
    "where": lambda x: torch.where(x > 2, x, -x),
    "factory like": lambda x: torch.ones_like(x) + x.new_zeros(3),
    "bool": lambda x: x + 1 if bool((x > 0).any()) else x,
    "iteration": lambda x: sum(row * index for index, row in enumerate(x)),
}


def set_item(x: torch.Tensor) -> torch.Tensor:
    x[0] = x[1] * 2
    x[x > 5] = -1
    return x


@pytest.mark.parametrize("act", CONFORMANCE.values(), ids=CONFORMANCE.keys())
def test_both_kinds_of_worker_compute_what_torch_computes(
    worker: sy.VirtualWorker, act: Any
) -> None:
    plain = torch.arange(6.0).view(2, 3)
    remote = plain.send(worker)
    expected = act(plain)
    got = act(remote).get()
    assert got.dtype is expected.dtype
    torch.testing.assert_close(got, expected)
    assert torch.equal(remote.get(), plain)


def test_both_kinds_of_worker_train(worker: sy.VirtualWorker) -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    duplicate = torch.nn.Linear(2, 1)
    duplicate.load_state_dict(model.state_dict())
    data, target = torch.randn(8, 2), torch.randn(8, 1)
    remote_data, remote_target = data.send(worker), target.send(worker)
    duplicate.send(worker)
    for here, x, y in ((model, data, target), (duplicate, remote_data, remote_target)):
        optimizer = torch.optim.SGD(here.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(here(x), y).backward()
            optimizer.step()
        del optimizer
    gc.collect()  # the first SGD of a process leaves a reference cycle in torch
    duplicate.get()
    torch.testing.assert_close(duplicate.weight, model.weight)
    torch.testing.assert_close(duplicate.bias, model.bias)


def test_devices_are_kept(worker: sy.VirtualWorker, device: torch.device) -> None:
    x = torch.ones(2, device=device).send(worker)
    assert x.device.type == device.type
    assert (x + 1).get().device.type == device.type


def test_a_busy_worker_serves_what_its_own_request_leads_to(hook: sy.TorchHook) -> None:
    dan = sy.VirtualWorker(hook, id="dan", pipelined=True)
    eve = sy.VirtualWorker(hook, id="eve")
    x = torch.ones(2, requires_grad=True).send(dan)
    loss = ((x * 2).move(eve, requires_grad=True) * 3).sum()
    there = loss.send(dan)  # its backward pass goes through eve back to dan, which is busy
    total = torch.zeros(()).send(dan)
    sy.synchronize()
    there.backward()
    for _ in range(5):
        total.add_(1)
    assert total.item() == 5, "each of them once, and after the pass"
    assert x.grad.tolist() == [6, 6]
    del x, loss, there, total
    sy.synchronize()
    dan.clear_objects()
    eve.clear_objects()
    dan.close()
    eve.close()


def test_an_answer_that_comes_with_a_notice_is_not_kept(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    dan = sy.VirtualWorker(hook, id="dan", pipelined=True)
    x, y = torch.ones(2, 3).send(dan) + 1, torch.ones(1, requires_grad=True).send(dan)
    transport = x.child.connection.transport
    take = transport.take

    def together(frame: Frame) -> None:
        take(frame)
        take(Frame(encode(Stale(False)), []))

    with monkeypatch.context() as patch:
        patch.setattr(transport, "take", together)
        assert (x.shape, y.grad) == ((2, 3), None)
    dan.core.store.objects[x.id_at_location].resize_(7)
    dan.core.store.objects[y.id_at_location].grad = torch.ones(1)
    assert x.shape == (7,) and y.grad is not None
    del x, y
    dan.close()


def test_an_interrupt_leaves_no_group_open(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker, monkeypatch: Any
) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].send(bob)
    model[1].send(alice)

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bob.core, "respond", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.state_dict()
    assert [hook.local_worker.connection_to(w).groups.current for w in (bob, alice)] == [None, None]
    del model
    alice.clear_objects()
    bob.clear_objects()


def test_inference_mode_of_the_caller_is_not_that_of_the_worker(
    hook: sy.TorchHook, alice: sy.VirtualWorker, bob: sy.VirtualWorker
) -> None:
    """Shares and masks of a worker are written to and counted later, by programs of any mode."""
    with torch.inference_mode():
        shared = torch.arange(3).share(alice, bob)
        assert (shared * shared).get().tolist() == [0, 1, 4]
        doubled = torch.arange(3).send(alice) * 2
    assert (shared * 3).get().tolist() == [0, 3, 6] and doubled.get().tolist() == [0, 2, 4]


@pytest.mark.parametrize("pipelined", [False, True], ids=["immediate", "queued"])
@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_a_move_keeps_the_graph(
    hook: sy.TorchHook, me: sy.VirtualWorker, path: tuple[int, ...], pipelined: bool
) -> None:
    places = [sy.VirtualWorker(hook, id=f"w{n}", pipelined=pipelined) for n in range(HOME)]
    check_gradients(path, [*places, me])


def test_who_waits_for_a_worker_at_work_in_another_thread_looks_again(
    hook: sy.TorchHook,
) -> None:
    dan = make_worker(hook, "dan", pipelined=True)
    transport = dan.connection().transport
    dan.busy = get_ident() + 1
    try:
        with transport.monitor:
            assert transport.advance() and not transport.advance(block=False)
    finally:
        dan.busy = 0
