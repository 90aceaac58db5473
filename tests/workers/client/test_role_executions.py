"""Executions of protocols: roles made by hand, at workers of every shell."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.program.role_program import RoleProgram
from syft.workers.client.role_executions import RoleHandle, start, store_role
from tests.shells.child import make_worker
from tests.shells.owner import inspect

pytestmark = pytest.mark.every_shell

S = Slot


def op(name: str, *args: Any, out: Any = None) -> Action:
    return Action(BY_NAME[name], args, {}, out)


def clone(of: int, out: int) -> Action:
    return op("torch.Tensor.clone", S(of), out=S(out))


def three_hops() -> list[RoleProgram]:
    """local: x - 1; alice: abs; bob: times two, back to local, which adds one."""
    local = Program(
        2,
        (
            op("torch.Tensor.sub", S(0), 1, out=S(2)),
            clone(2, 3),
            op("torch.Tensor.add", S(1), 1, out=S(4)),
        ),
        (S(3), S(4)),
    )
    alice = Program(1, (op("torch.Tensor.abs", S(0), out=S(1)), clone(1, 2)), (S(2),))
    bob = Program(1, (op("torch.Tensor.mul", S(0), 2, out=S(1)), clone(1, 2)), (S(2), S(1)))
    return [
        RoleProgram("local", local, (None, 2), (1, None)),
        RoleProgram("alice", alice, (0,), (2,)),
        RoleProgram("bob", bob, (1,), (0, None)),
    ]


def deployed(hook: sy.TorchHook, roles: list[RoleProgram], workers: list[Any]) -> list[RoleHandle]:
    me = hook.local_worker
    return [store_role(me.connection_to(worker), role) for role, worker in zip(roles, workers)]


@pytest.fixture(params=["immediate", "queued"])
def workers(request: pytest.FixtureRequest, hook: sy.TorchHook) -> list[Any]:
    queued = request.param == "queued"
    return [make_worker(hook, id=name, pipelined=queued) for name in ("james", "alice", "bob")]


def values(pointers: list[Any]) -> list[Any]:
    return [pointer.get().tolist() for pointer in pointers]


def test_tensors_hop_from_worker_to_worker(hook: sy.TorchHook, workers: list[Any]) -> None:
    handles = deployed(hook, three_hops(), workers)
    execution = start(handles, {(0, 0): torch.tensor([1.5, -2.0])})
    assert values(execution.outputs(0)) == [[2.0, 7.0]]
    assert values(execution.outputs(2)) == [[1.0, 6.0]]
    execution.wait()
    assert execution.done()


def test_one_role_is_here(hook: sy.TorchHook, workers: list[Any]) -> None:
    handles = deployed(hook, three_hops(), [hook.local_worker, *workers[1:]])
    execution = start(handles, {(0, 0): torch.tensor([1.5, -2.0])})
    assert [value.tolist() for value in execution.outputs(0)] == [[2.0, 7.0]]
    assert values(execution.outputs(2)) == [[1.0, 6.0]]


def test_an_input_comes_later(hook: sy.TorchHook, workers: list[Any]) -> None:
    handles = deployed(hook, three_hops(), workers)
    execution = start(handles)
    assert not execution.done()
    execution.submit(0, 0, torch.tensor([1.5, -2.0]))
    execution.wait()
    assert values(execution.outputs(0)) == [[2.0, 7.0]]
    del execution


def failing(roles: list[RoleProgram], rank: int) -> list[RoleProgram]:
    """The same roles, of which one has an action that fails on the shapes that come."""
    role = roles[rank]
    bad = op("torch.Tensor.view", S(0), 7, out=S(role.program.inputs))
    shift = {at: S(at + 1) for at in range(role.program.inputs, 99)}

    def moved(slot: Any) -> Any:
        return shift.get(slot.index, slot) if type(slot) is S else slot

    first, *rest = role.program.actions
    actions = [bad, first, *rest]
    made = [bad]
    for action in actions[1:]:
        args = tuple(map(moved, action.args))
        made.append(Action(action.op, args, action.kwargs, moved(action.out)))
    last = made[1]
    made[1] = Action(last.op, (S(role.program.inputs), *last.args[1:]), last.kwargs, last.out)
    program = Program(role.program.inputs, tuple(made), tuple(map(moved, role.program.outputs)))
    roles[rank] = RoleProgram(role.name, program, role.sources, role.targets)
    return roles


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_what_waits_for_a_role_that_fails_fails_with_its_error(
    hook: sy.TorchHook, workers: list[Any], rank: int
) -> None:
    handles = deployed(hook, failing(three_hops(), rank), workers)
    execution = start(handles, {(0, 0): torch.tensor([1.5, -2.0])})
    with pytest.raises(RuntimeError, match=r"shape '\[7\]' is invalid") as caught:
        execution.wait()
    name = ("local", "alice", "bob")[rank]
    notes = "".join(caught.value.__notes__)
    assert f"In role {name!r} at worker {workers[rank].id!r}." in notes
    del caught, execution


def independent() -> list[RoleProgram]:
    """local sends two values: alice keeps one made of each."""
    local = Program(
        2,
        (
            op("torch.Tensor.view", S(0), 2, out=S(2)),
            clone(2, 3),
            op("torch.Tensor.add", S(1), 1, out=S(4)),
            clone(4, 5),
        ),
        (S(3), S(5)),
    )
    alice = Program(
        2,
        (op("torch.Tensor.neg", S(0), out=S(2)), op("torch.Tensor.neg", S(1), out=S(3))),
        (S(2), S(3)),
    )
    return [
        RoleProgram("local", local, (None, None), (1, 1)),
        RoleProgram("alice", alice, (0, 0), (None, None)),
    ]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_independent_parts_go_on(hook: sy.TorchHook, workers: list[Any], order: Any) -> None:
    handles = deployed(hook, independent(), workers[:2])
    execution = start(handles)
    for place in order:
        execution.submit(0, place, torch.ones(3))
    with pytest.raises(RuntimeError, match=r"shape '\[2\]' is invalid"):
        execution.wait()
    lost, made = execution.outputs(1)
    assert made.get().tolist() == [-2.0] * 3
    with pytest.raises(sy.exceptions.ObjectNotFound, match="role 'alice' failed"):
        lost.get()
    del lost, made, execution


@pytest.mark.parametrize(
    ("place", "why"), [(1, "it has come already"), (7, "it takes no such input")]
)
def test_inputs_that_are_not_due_are_refused(
    hook: sy.TorchHook, workers: list[Any], place: int, why: str
) -> None:
    execution = start(deployed(hook, independent(), workers[:2]))
    execution.submit(0, 1, torch.ones(3))
    with pytest.raises(sy.exceptions.InputRefused, match=why):
        execution.submit(0, place, torch.ones(3))
        execution.submit(0, 0, torch.ones(2))  # a queued worker says it when it is waited for
        execution.wait(20)
    if execution.missing:
        execution.submit(0, 0, torch.ones(2))
        execution.wait(20)
    assert values(execution.outputs(1)) == [[-1.0, -1.0], [-2.0, -2.0, -2.0]]
    with pytest.raises(sy.exceptions.InputRefused, match=f"it has ended|{why}"):
        execution.submit(0, 0, torch.ones(3))
        execution.wait(20)
    del execution


def test_an_input_is_given_up(hook: sy.TorchHook, workers: list[Any]) -> None:
    handles = deployed(hook, independent(), workers[:2])
    execution = start(handles)
    execution.submit(0, 1, torch.ones(3))
    execution.give_up(0, 0, "the sensor broke")
    with pytest.raises(sy.exceptions.PromiseGivenUp, match="the sensor broke"):
        execution.wait()
    assert execution.outputs(1)[1].get().tolist() == [-2.0] * 3
    del execution


def test_an_execution_is_cancelled(hook: sy.TorchHook, workers: list[Any]) -> None:
    handles = deployed(hook, independent(), workers[:2])
    execution = start(handles)
    execution.cancel("nobody wants it")
    with pytest.raises(sy.exceptions.ExecutionCancelled, match="nobody wants it"):
        execution.wait()
    for worker in workers:
        assert not inspect(worker).executions
    del execution


def test_dropping_an_execution_with_missing_inputs_frees_it(
    hook: sy.TorchHook, workers: list[Any]
) -> None:
    handles = deployed(hook, independent(), workers[:2])
    execution = start(handles)
    execution.submit(0, 1, torch.ones(3))
    del execution
    for worker in workers:
        inspected = inspect(worker)
        assert not inspected.executions and not inspected.promised
    assert len(inspect(workers[1])) == 1


def counting() -> list[RoleProgram]:
    """alice adds what local sends to her state, and keeps a copy of it."""
    local = Program(1, (clone(0, 1),), (S(1),))
    alice = Program(1, (op("torch.Tensor.add_", S(1), S(0)), clone(1, 2)), (S(2),), state=1)
    return [
        RoleProgram("local", local, (None,), (1,)),
        RoleProgram("alice", alice, (0,), (None,)),
    ]


def test_executions_that_write_to_the_state_run_in_order(
    hook: sy.TorchHook, workers: list[Any]
) -> None:
    me = hook.local_worker
    local, alice = counting()
    handles = [
        store_role(me.connection_to(workers[0]), local),
        store_role(me.connection_to(workers[1]), alice, [torch.zeros(1)]),
    ]
    first, second, third = (start(handles) for _ in range(3))
    third.submit(0, 0, torch.tensor([100.0]))
    second.cancel()
    first.submit(0, 0, torch.tensor([1.0]))
    assert values(first.outputs(1)) == [[1.0]]
    assert values(third.outputs(1)) == [[101.0]]
    for one in (first, third):
        one.wait()
    del one, first, second, third


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_what_waits_for_a_worker_that_refuses_is_told_why(
    hook: sy.TorchHook, workers: list[Any], rank: int
) -> None:
    """The state of a role that is missing: its worker does not know it any more."""
    handles = deployed(hook, three_hops(), workers)
    workers[rank].clear_objects()
    execution = start(handles, {(0, 0): torch.tensor([1.5, -2.0])})
    with pytest.raises(sy.exceptions.ObjectNotFound, match=f"Worker '{workers[rank].id}' holds no"):
        execution.wait(20)
    for worker in workers:
        assert not inspect(worker).executions
    del execution


def test_executions_of_two_callers_do_not_mix(hook: sy.TorchHook, workers: list[Any]) -> None:
    """Each has its own deployment at the same workers; inputs come crosswise."""
    first = deployed(hook, independent(), workers[:2])
    second = deployed(hook, independent(), workers[:2])
    under_way = [start(handles) for handles in (first, second, first, second)]
    for place in (1, 0):
        for number, one in reversed([*enumerate(under_way)]):
            one.submit(0, place, torch.full((2,), float(10 * number + place)))
    for number, one in enumerate(under_way):
        one.wait()
        left, right = values(one.outputs(1))
        assert left == [-10.0 * number] * 2 and right == [-10.0 * number - 2.0] * 2
    del one, under_way
