"""Values that wait in an execution lie in memory: what is moved takes them along, and what a role
may write is asked each time that it writes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.program.role_program import RoleProgram
from syft.workers.client.role_executions import RoleExecution, start, store_role
from syft.workers.wire.references import Reference

S = Slot


def op(name: str, *args: Any, out: Any = None) -> Action:
    return Action(BY_NAME[name], args, {}, out)


SENDS = RoleProgram(
    "alice", Program(1, (op("torch.Tensor.clone", S(0), out=S(1)),), (S(1),)), (None,), (0,)
)
"""alice sends what she is given to bob."""

VIEW = Program(
    3,
    (
        op("torch.Tensor.narrow", S(0), 0, 0, 1, out=S(3)),
        op("torch.Tensor.add_", S(0), S(1)),
        op("torch.add", S(3), S(2), out=S(4)),
    ),
    (S(4),),
)
"""A view of an input is made at once; what alice sends is added to the input; then it is read."""

CONSTANT = Program(
    3,
    (
        op("torch.Tensor.add_", S(3), S(1)),
        op("torch.add", S(3), S(2), out=S(4)),
        op("torch.add", S(4), S(0), out=S(5)),
    ),
    (S(5),),
    constants=(torch.tensor([1.0, 2.0]),),
)
"""What alice sends is added to a constant, which is read later."""


class Scene:
    """bob, at whose role inputs come one after another, and alice, who sends him one of them."""

    def __init__(self, hook: sy.TorchHook) -> None:
        self.hook = hook
        self.bob, self.alice = (sy.VirtualWorker(hook, id=name) for name in ("bob", "alice"))
        self.ann = self.bob.as_user("ann")

    def start(self, program: Program, held: Any) -> RoleExecution:
        """An execution for ann; her tensor is the first input of bob's role."""
        roles = [
            RoleProgram("bob", program, (None, 1, None), (None,) * len(program.outputs)),
            SENDS,
        ]
        handles = [
            store_role(self.hook.local_worker.connection_to(worker), role)
            for worker, role in zip((self.ann, self.alice.as_user("ann")), roles, strict=True)
        ]
        return start(handles, {(0, 0): Reference(held.id_at_location)})

    def close(self) -> None:
        self.bob.clear_objects()
        self.alice.clear_objects()


@pytest.fixture
def scene(hook: sy.TorchHook) -> Scene:
    return Scene(hook)


@pytest.mark.parametrize("is_private", [False, True])
@pytest.mark.parametrize(("program", "expected"), [(VIEW, [111.0]), (CONSTANT, [112.0, 124.0])])
def test_what_waits_follows_memory_that_is_moved(
    scene: Scene, program: Program, expected: list[float], is_private: bool
) -> None:
    x = torch.tensor([1.0, 2.0]).send(scene.ann)
    y = torch.tensor([10.0, 20.0])
    if is_private:
        y = y.private_tensor(allowed_users=("ann",))
    execution = scene.start(program, x)
    execution.submit(1, 0, y)
    execution.submit(0, 2, torch.tensor([100.0]))
    execution.wait()
    (result,) = execution.outputs(0)
    assert result.get(user="ann").tolist() == expected
    scene.close()
    del execution, result, x


READ_LATER = Program(
    3,
    (
        op("torch.Tensor.narrow", S(0), 0, 0, 1, out=S(3)),
        op("torch.Tensor.size", S(0), 0, out=S(4)),
        op("torch.add", S(3), S(2), out=S(5)),
        op("torch.mul", S(5), S(4), out=S(6)),
        op("torch.Tensor.neg", S(1), out=S(7)),
    ),
    (S(6),),
)
"""A view of an input and a number are made at once, and read later."""


@pytest.mark.parametrize("is_private", [False, True])
def test_what_waits_follows_memory_that_another_request_moves(
    scene: Scene, is_private: bool
) -> None:
    x = torch.tensor([1.0, 2.0]).send(scene.ann)
    execution = scene.start(READ_LATER, x)
    y = torch.tensor([10.0, 20.0])
    if is_private:
        y = y.private_tensor(allowed_users=("ann",))
    there = y.send(scene.ann)
    x.add_(there)
    execution.submit(1, 0, torch.ones(1))
    execution.submit(0, 2, torch.tensor([100.0]))
    execution.wait()
    (result,) = execution.outputs(0)
    assert result.get(user="ann").tolist() == [222.0]
    scene.close()
    del execution, result, x, there


@pytest.mark.parametrize("is_private", [False, True])
def test_a_role_that_is_dropped_while_it_runs_keeps_its_constants(
    scene: Scene, is_private: bool
) -> None:
    x = torch.tensor([1.0, 2.0]).send(scene.ann)
    y = torch.tensor([10.0, 20.0])
    if is_private:
        y = y.private_tensor(allowed_users=("ann",))
    execution = scene.start(CONSTANT, x)  # its handles are gone
    z = torch.ones(1).send(scene.ann)
    assert not any(
        type(one).__name__ == "StoredRole" for one in scene.bob.core.store.objects.values()
    )
    execution.submit(1, 0, y)
    execution.submit(0, 2, torch.tensor([100.0]))
    execution.wait()
    (result,) = execution.outputs(0)
    assert result.get(user="ann").tolist() == [112.0, 124.0]
    scene.close()
    del execution, result, x, z


WRITES = Program(
    3,
    (op("torch.Tensor.add_", S(0), S(1)), op("torch.add", S(0), S(2), out=S(3))),
    (S(3),),
)
"""What alice sends is added to an input."""


@pytest.mark.parametrize("whose", ["dan", "ann"])
def test_memory_that_became_anothers_meanwhile_is_not_written(scene: Scene, whose: str) -> None:
    """ann may write to her tensor when she starts; then she lets it take over dan's memory."""
    kept = torch.tensor([5.0, 6.0]).tag("#kept").send(scene.bob.as_user(whose))
    (found,) = scene.ann.search("#kept")
    x = torch.tensor([1.0, 2.0]).send(scene.ann)
    execution = scene.start(WRITES, x)
    x.data = found
    execution.submit(0, 2, torch.tensor([100.0, 100.0]))
    execution.submit(1, 0, torch.tensor([10.0, 20.0]))
    if whose == "ann":
        execution.wait()
        assert kept.copy().get().tolist() == [15.0, 26.0], "she may write to her own"
    else:
        told = f"object {x.id_at_location} .*'dan'"
        with pytest.raises(sy.exceptions.PermissionDenied, match=told):
            execution.wait()
        assert kept.copy().get().tolist() == [5.0, 6.0]
    scene.close()
    del execution, x, kept, found


EXPANDED = Program(
    3,
    (
        op("torch.add", S(1), S(2), out=S(3)),
        op("torch.Tensor.expand_as", S(0), S(3), out=S(4)),
    ),
    (S(4),),
)
AS_IT_IS = Program(3, (op("torch.Tensor.add_", S(2), S(1)),), (S(0),))
"""What alice sends is written to an input of a user, which another one might share memory with."""


@pytest.mark.parametrize("program", [EXPANDED, AS_IT_IS])
@pytest.mark.parametrize("whose", ["dan", "ann"])
def test_what_is_kept_of_memory_that_came_meanwhile_is_not_the_callers(
    scene: Scene, program: Program, whose: str
) -> None:
    """dan gives his tensor other memory while ann's execution has it."""
    owner = scene.bob.as_user(whose)
    kept = torch.tensor([5.0, 6.0]).tag("#kept").send(owner)
    (found,) = scene.ann.search("#kept")
    execution = scene.start(program, found)
    kept.data = torch.tensor([7.0, 8.0]).send(owner)
    execution.submit(0, 2, torch.tensor([100.0, 100.0]))
    execution.submit(1, 0, torch.tensor([10.0, 20.0]))
    execution.wait()
    (same,) = execution.outputs(0)
    if whose == "ann":
        same.add_(1)
        assert kept.copy().get().tolist() == [8.0, 9.0], "she may write to her own"
    else:
        with pytest.raises(sy.exceptions.PermissionDenied, match="dan"):
            same.add_(1)
        assert kept.copy().get().tolist() == [7.0, 8.0]
    scene.close()
    del execution, kept, found, same
