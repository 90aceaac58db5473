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
