"""Plans as data: what a worker takes for one, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import syft as sy
from syft.codes import TypeCode
from syft.exceptions import (
    LimitExceeded,
    MalformedMessage,
    PermissionDenied,
    PlansNotAllowed,
    WireError,
    WrongArguments,
)
from syft.ops.table import BY_NAME
from syft.plans.building.interface import Blueprint
from syft.plans.remote.interface_codec import pack_interface, unpack_interface
from syft.plans.remote.plan_call import PlanCall
from syft.plans.remote.plan_sending import stored_plan
from syft.plans.remote.stored_plan import StoredPlan
from syft.program.program import Action, Program, Slot
from syft.serde.limits import Limits
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack
from syft.workers.core.state_machine import Peer, WorkerCore
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import protect
from syft.workers.wire.definitions import Group, InputKind
from syft.workers.wire.messages import (
    Done,
    Drop,
    Duplicate,
    Failure,
    Fetch,
    Move,
    Put,
    Relay,
    Run,
    Search,
    encode,
)
from tests.workers.core.peers import ask, command, error_in, lonely, ref, said, value_in

pytestmark = pytest.mark.every_shell


@pytest.fixture
def stored() -> StoredPlan:
    """A plan with a model, a buffer, nested results, tags and a description."""
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    plan = sy.func2plan()(lambda x, n=2.0: {"y": model(x) * n, "z": (x, None)})
    plan.build(torch.randn(4, 2))
    plan.tag("#net").describe("a net")
    return stored_plan(plan._record, plan._built("sent"))


def packed(stored: StoredPlan) -> tuple[list[Any], list[torch.Tensor]]:
    packer = Packer()
    operand: Any = pack(stored, packer)
    return list(operand), packer.buffers


def open_core() -> WorkerCore:
    core = lonely()
    core.allow_plans = True
    return core


def put(core: WorkerCore, stored: StoredPlan, id: int = 5, **fields: Any) -> Any:
    operand, buffers = packed(stored)
    return ask(core, Put(1, id, tuple(operand), **fields), *buffers)


def test_a_plan_arrives_as_it_was(stored: StoredPlan) -> None:
    operand, buffers = packed(stored)
    arrived = unpack(operand, Unpacker(buffers))
    assert pack_interface(arrived.blueprint.interface) == pack_interface(stored.blueprint.interface)
    assert arrived.blueprint.program == stored.blueprint.program
    assert arrived.tags == {"#net"} and arrived.description == "a net"
    for mine, theirs in zip(stored.state, arrived.state, strict=True):
        assert torch.equal(mine, theirs) and type(mine) is type(theirs)
        assert mine.requires_grad is theirs.requires_grad
    assert repr(arrived) == "<StoredPlan <lambda>>" and "tensor" not in repr(arrived)


def without(field: int) -> Callable[[list[Any]], list[Any]]:
    return lambda operand: operand[:field] + operand[field + 1 :]


def with_field(field: int, value: Any) -> Callable[[list[Any]], list[Any]]:
    return lambda operand: operand[:field] + [value] + operand[field + 1 :]


def shortened(field: int) -> Callable[[list[Any]], list[Any]]:
    return lambda operand: operand[:field] + [operand[field][:-1]] + operand[field + 1 :]


@pytest.mark.parametrize(
    "change, where",
    [
        (without(5), "$"),
        (with_field(1, 5), "$.interface"),
        (with_field(2, 5), "$.program"),
        (with_field(2, [int(TypeCode.SHARE_PROGRAM), 0, 0, [], [], [2]]), "$.program"),
        (with_field(2, [int(TypeCode.PROGRAM), 0, 0, [], [], None]), "$.program.outputs"),
        (with_field(2, [int(TypeCode.PROGRAM), 0, 0, [], [], [2]]), "$.inputs"),
        (with_field(3, 5), "$.state"),
        (shortened(3), "$.state"),
        (with_field(3, ["text"] * 7), "$.state[0]"),
        (with_field(4, 5), "$.tags"),
        (with_field(4, [5]), "$.tags[0]"),
        (with_field(5, 5), "$.description"),
        (with_field(6, 5), "$.copy_of"),
    ],
)
def test_what_is_no_plan_is_refused(
    stored: StoredPlan, change: Callable[[list[Any]], list[Any]], where: str
) -> None:
    operand, buffers = packed(stored)
    with pytest.raises(MalformedMessage) as caught:
        unpack(change(operand), Unpacker(buffers))
    assert caught.value.path == where


OBJECT, POINTER = [int(TypeCode.REF), 6], [int(TypeCode.POINTER), "alice", 6]


def _inside(operand: list[Any], path: tuple[int, ...], value: Any) -> list[Any]:
    if not path:
        return value
    at, *rest = path
    items = list(operand)
    items[at] = _inside(items[at], tuple(rest), value) if rest else value
    return items


@pytest.mark.parametrize("value", [OBJECT, POINTER], ids=["object", "pointer"])
@pytest.mark.parametrize(
    "path",
    [(1, 3, 2), (1, 5), (1, 2, 2, 3), (3, 0), (2, 3, 0), (2, 4, 0, 1, 1)],
    ids=["template", "outputs", "default", "state", "constant", "operand"],
)
def test_a_plan_names_no_object_of_the_worker(
    path: tuple[int, ...], value: Any, stored: StoredPlan
) -> None:
    core = open_core()
    private = torch.tensor([3.25])
    protect(private, Guard(frozenset({"ann"})))
    core.hold(6, private)
    constant = torch.tensor([1.0, 2.0])
    plan = sy.func2plan(args_shape=[(2,)], state=(torch.ones(2),))(
        lambda x, n=2.0, state=None: (x * state.read()[0] + constant) * n
    )
    operand, buffers = packed(stored_plan(plan._record, plan._built("sent")))
    assert ask(core, Put(1, 5, tuple(operand)), *buffers) == Done(1)
    error = error_in(ask(core, Put(1, 7, tuple(_inside(operand, path, value))), *buffers))
    assert isinstance(error, MalformedMessage) and error.path.startswith("$.value"), error
    assert sorted(core.store.objects) == [5, 6]


@pytest.mark.parametrize(
    "change, where",
    [
        (lambda fields: {**fields, "template": {"x": (Slot(0), torch.ones(1))}}, ".template"),
        (lambda fields: {**fields, "template": {"x": {torch.ones(1): Slot(0)}}}, ".template"),
        (lambda fields: {**fields, "outputs": [Slot(0), torch.ones(1)]}, ".outputs"),
        (lambda fields: {**fields, "outputs": slice(Slot(0), torch.ones(1))}, ".outputs"),
        (lambda fields: {**fields, "outputs": [Slot(0), Program(0, (), ())]}, ".outputs"),
        (lambda fields: {**fields, "signature": (("x", 1, torch.ones(1)),)}, ".signature"),
        (lambda fields: {**fields, "signature": (("x", 1, Slot(0)),)}, ".signature"),
        (lambda fields: {**fields, "name": "f\n"}, ".name"),
        (lambda fields: {**fields, "name": "f'"}, ".name"),
        (lambda fields: {**fields, "state": ('w"',), "parameters": (True,)}, ".state"),
    ],
)
def test_an_interface_holds_no_data(
    change: Callable[[dict[str, Any]], dict[str, Any]], where: str
) -> None:
    plan = sy.func2plan(args_shape=[(2,)])(lambda x: x * 2)
    fields = pack_interface(plan._built("sent").blueprint.interface)
    names = ("name", "signature", "template", "kinds", "outputs", "results", "state", "parameters")
    rest = fields[len(names) :]
    assert pack_interface(unpack_interface(fields)) == fields
    changed = change(dict(zip(names, fields, strict=False)))
    with pytest.raises(MalformedMessage) as caught:
        unpack_interface((*changed.values(), *rest))
    assert caught.value.path == f"$.interface{where}"


def test_a_default_that_is_a_tensor_stays_here(bob: sy.VirtualWorker) -> None:
    usual = torch.tensor([1.0, 2.0])

    def scale(x: torch.Tensor, by: torch.Tensor = usual) -> torch.Tensor:
        return x * by

    plan = sy.func2plan()(scale)
    plan.build(torch.ones(2))
    pointer = plan.tag("#scale").send(bob)
    x = torch.ones(2).send(bob)
    by = torch.tensor([3.0, 4.0]).send(bob)
    assert pointer(x, by).get().tolist() == [3, 4]
    (found,) = bob.search("#scale")
    assert found(x, by).get().tolist() == [3, 4]
    with pytest.raises(WrongArguments, match="a tensor for by"):
        found(x)


def test_a_copy_has_constants_of_its_own() -> None:
    core = open_core()
    plan = sy.func2plan(args_shape=[(1,)])(lambda x: x * 1)
    interface = plan._built("sent").blueprint.interface
    constant = torch.zeros(1)
    add = Action(BY_NAME["torch.Tensor.add_"], (Slot(1), Slot(0)), {}, Slot(2))
    program = Program(1, (add,), (Slot(2),), constants=(constant,))
    stored = StoredPlan(Blueprint(interface, program), [], set(), None)
    core.hold(5, stored)
    assert ask(core, Duplicate(1, 5, 6)) == Done(1)
    duplicate = core.store.open(6)
    duplicate.lowered.run([torch.tensor([100.0])])
    assert constant.tolist() == [0] and duplicate.tensors()[0].tolist() == [100]
    stored.lowered.run([torch.tensor([7.0])])
    assert constant.tolist() == [7] and duplicate.tensors()[0].tolist() == [100]


def test_users_of_a_plan_that_holds_nothing_are_refused(stored: StoredPlan) -> None:
    core = open_core()
    plan = sy.func2plan(args_shape=[(1,)])(lambda x: x * 1234.5)
    operand, buffers = packed(stored_plan(plan._record, plan._built("sent")))
    error = error_in(ask(core, Put(1, 5, tuple(operand), users=("ann",)), *buffers))
    assert "$.users" in str(error) and not core.store.objects
    operand, buffers = packed(stored)
    assert ask(core, Put(1, 5, tuple(operand), users=("ann",)), *buffers) == Done(1)
    assert isinstance(error_in(ask(core, Fetch(1, 5))), PermissionDenied)


@pytest.mark.parametrize("private", [False, True])
def test_a_plan_is_no_input_of_a_program(stored: StoredPlan, private: bool) -> None:
    core = open_core()
    operand, buffers = packed(stored)
    users = ("ann",) if private else None
    ask(core, Put(1, 5, tuple(operand), users=users), *buffers)
    core.hold(6, torch.ones(2))
    echo = pack(Group((InputKind.REFERENCE,), Program(1, (), (Slot(0),))), Packer())
    for define in (echo, None):
        assert type(ask(core, Run(1, 0, (6,), 100 + bool(define), 9, define=define))) is Done
        error = error_in(ask(core, Run(1, 0, (5,), 90, 9)))
        assert isinstance(error, MalformedMessage) and "a StoredPlan" in str(error)


def test_state_and_constants_that_were_moved_are_exchanged() -> None:
    state, constant = torch.zeros(2), torch.ones(2)
    add = Action(BY_NAME["torch.add"], (Slot(0), Slot(1)), {}, Slot(2))
    program = Program(0, (add,), (Slot(2),), state=1, constants=(constant,))
    interface = sy.func2plan(args_shape=[(1,)])(lambda x: x * 1)._built("sent").blueprint.interface
    blueprint = Blueprint(interface, program)
    plan = StoredPlan(blueprint, [state], set(), None)
    assert plan.lowered.run(plan.state)[0].tolist() == [1, 1]
    plan.exchange(lambda tensor: tensor + 1 if tensor is state else tensor)
    assert plan.blueprint is blueprint and plan.lowered.run(plan.state)[0].tolist() == [2, 2]
    plan.exchange(lambda tensor: tensor * 10)
    assert plan.lowered.run(plan.state)[0].tolist() == [20, 20]


def test_constants_and_actions_are_limited(stored: StoredPlan) -> None:
    operand, buffers = packed(stored)
    with pytest.raises(LimitExceeded):
        unpack(operand, Unpacker(buffers, Limits(max_actions=1)))


def test_a_worker_takes_plans_if_its_owner_allows(stored: StoredPlan) -> None:
    core = lonely()
    assert isinstance(error_in(put(core, stored)), PlansNotAllowed)
    assert not core.store.objects
    core = open_core()
    assert put(core, stored) == Done(1)
    assert isinstance(core.store.open(5), StoredPlan)


def test_no_operation_takes_a_plan(stored: StoredPlan) -> None:
    core = open_core()
    put(core, stored)
    core.hold(6, torch.ones(2))
    for name, args in [
        ("torch.Tensor.add", (ref(5), 1)),
        ("torch.Tensor.add", (ref(6), ref(5))),
        ("torch.add", (ref(6), ref(5))),
        ("torch.Tensor.__eq__", (ref(6), ref(5))),
        ("torch.stack", ((int(TypeCode.LIST), ref(6), ref(5)),)),
        ("torch.Tensor.tolist", (ref(5),)),
        ("torch.Tensor.child", (ref(5),)),
        ("torch.Tensor.grad.__get__", (ref(5),)),
    ]:
        if name in BY_NAME and name != "torch.Tensor.__eq__":
            assert type(ask(core, command(name, *args, out=9))) is Failure, name
    assert type(ask(core, command("torch.Tensor.neg", (0, 5, 1), out=9))) is Failure
    assert sorted(core.store.objects) == [5, 6]


def test_a_plan_is_no_tensor_to_other_messages_either(stored: StoredPlan) -> None:
    core = open_core()
    put(core, stored)
    for message in (Move(1, 5, "nobody", requires_grad=True), Relay(1, 5, None), Relay(1, 5, "x")):
        assert type(ask(core, message)) is Failure
    assert ask(core, Duplicate(1, 5, 6)) == Done(1)
    duplicate, original = core.store.open(6), core.store.open(5)
    assert (
        duplicate.tags == {"#net"} and duplicate.blueprint.interface is original.blueprint.interface
    )
    assert not {id(t) for t in duplicate.tensors()} & {id(t) for t in original.tensors()}
    (one, *_), (two, *_) = value_in(core, Search(1, ("#net",)))
    assert {one, two} == {5, 6}
    assert isinstance(value_in(core, Fetch(1, 5)), StoredPlan)


def define(id: int, kinds: tuple[int, ...] | None = (0, 1)) -> Any:
    tuple_of = None if kinds is None else tuple(map(InputKind, kinds))
    return pack(PlanCall(id, tuple_of), Packer())


def run(core: WorkerCore, inputs: tuple[Any, ...] = (6, 3.0), **fields: Any) -> Any:
    return ask(core, Run(1, 0, inputs, 100, 17, **fields))


def test_a_call_by_message(stored: StoredPlan) -> None:
    core = open_core()
    put(core, stored)
    core.hold(6, torch.randn(4, 2))
    assert run(core, define=define(5)) == Done(1)
    assert run_again(core) == Done(1)
    assert {100, 101, 200, 201} <= set(core.store.objects)
    assert ask(core, Run(1, 1, (), 300, 7 << 3 | 1, define=define(5, None))) == Done(1)
    assert core.store.open(300) is core.store.open(5).state[0]


def run_again(core: WorkerCore) -> Any:
    return ask(core, Run(1, 0, (6, 4.0), 200, 17))


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"define": (int(TypeCode.PLAN_CALL),)}, "an id, and the kinds of inputs"),
        ({"define": (int(TypeCode.PLAN_CALL), 5, b"", 1, 5)}, "an id, and the kinds of inputs"),
        ({"define": (int(TypeCode.PLAN_CALL), "x", b"")}, "an int"),
        ({"define": define(6)}, "the id of a plan"),
        ({"define": define(7)}, "holds no object 7"),
        ({"define": define(5, (0,))}, "kinds of 2 inputs"),
        ({"define": define(5), "inputs": (6,)}, "2 inputs"),
        ({}, "does not know what number 0 stands for"),
    ],
)
def test_hostile_calls_are_refused(stored: StoredPlan, fields: Any, text: str) -> None:
    core = open_core()
    put(core, stored)
    core.hold(6, torch.ones(4, 2))
    assert text in str(error_in(run(core, **fields)))
    assert sorted(core.store.objects) == [5, 6]


def test_another_plan_under_the_id_is_not_run(stored: StoredPlan) -> None:
    core = open_core()
    put(core, stored)
    core.hold(6, torch.randn(4, 2))
    assert run(core, define=define(5)) == Done(1)
    core.store.take(5, "fetched")
    assert "fetched" in str(error_in(run_again(core)))
    put(core, stored)
    assert run(core, define=define(5), inputs=(6, 3.0)) != Done(1)  # 100 is taken
    core.store.take(5, "fetched")
    put(core, stored)
    reply = ask(core, Run(1, 0, (6, 3.0), 400, 17))
    assert "is not the plan that it was" in str(error_in(reply)) or "does not know" in str(
        error_in(reply)
    )


def test_a_call_where_plans_are_no_longer_allowed(stored: StoredPlan) -> None:
    core = open_core()
    put(core, stored)
    core.hold(6, torch.randn(4, 2))
    core.allow_plans = False
    assert isinstance(error_in(run(core, define=define(5))), PlansNotAllowed)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 60) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=20,
)


@given(values, values, values, values, values, values)
@settings(max_examples=150, deadline=None)
def test_random_operands_are_refused_or_plans(
    a: Any, b: Any, c: Any, d: Any, e: Any, f: Any
) -> None:
    try:
        unpack([int(TypeCode.PLAN), a, b, c, d, e, f], Unpacker([]))
    except WireError:
        pass


@pytest.mark.parametrize("name", ["me", "dan"])
def test_the_peer_is_named_who_took_a_plan_away(stored: StoredPlan, name: str) -> None:
    core, peer = open_core(), Peer(name)
    put(core, stored, id=5, writers=(name,))
    put(core, stored, id=6, writers=(name,))
    core.hold(7, torch.randn(4, 2))
    assert isinstance(value_in(core, Fetch(1, 5), peer), StoredPlan)
    assert ask(core, Drop(1, (6,)), peer=peer) == Done(1)
    calls = [ask(core, Run(1, 0, [7, 3.0], 100, 17, define=define(id))) for id in (5, 6)]
    assert [str(error_in(call)) for call in calls] == [
        f"Worker 'bob' holds no object 5: {name} fetched it with get().",
        f"Worker 'bob' holds no object 6: {name} dropped its last pointer to it.",
    ]


@pytest.mark.parametrize(
    "asks, other, told",
    [
        (torch.Tensor.is_contiguous, torch.ones(2, 3).t(), "is_contiguous True"),
        (lambda x: x.dtype is torch.float32, torch.ones(2).double(), "dtype torch.float32"),
    ],
    ids=["is_contiguous", "dtype"],
)
def test_a_plan_is_checked_for_the_properties_it_was_built_with(
    asks: Callable[[torch.Tensor], bool], other: torch.Tensor, told: str
) -> None:
    """By the worker, whoever calls it; of a private shape a stranger may only ask for the dtype."""
    plan = sy.func2plan()(lambda x: x * (2 if asks(x) else 3))
    plan.build(torch.ones(2, 2))
    core = open_core()
    put(core, stored_plan(plan._record, plan._built("sent")))
    ann = frozenset({"ann"})
    for id, guard in ((10, None), (20, Guard(ann)), (30, Guard(ann, shape_hidden=True))):
        for place, value in enumerate((torch.ones(2, 2), other)):
            core.hold(id + place, value.clone(memory_format=torch.preserve_format))
            protect(core.store.objects[id + place], guard)
    core.guard()

    def call(id: int, user: str | None) -> Any:
        run = Run(1, 0, [id], 100 + len(core.store.objects), 9, define=define(5, (0,)))
        return said(core, encode(run), peer=Peer("me", user))[-1]

    for id, user in ((10, None), (20, None), (10, "ann"), (20, "ann"), (30, "ann"), (30, None)):
        answers = [call(id, user), call(id + 1, user)]
        if (id, user) == (30, None) and "dtype" not in told:
            for refused in map(error_in, answers):
                assert isinstance(refused, PermissionDenied)
                assert "a plan that asks for the is_contiguous of a private shape" in str(refused)
            continue
        assert (id, user) == (30, None) or type(answers[0]) is Done
        assert str(error_in(answers[1])).startswith(f"Plan '<lambda>' takes {told} for x")
