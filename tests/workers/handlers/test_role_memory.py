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

    def start(self, program: Program, held: Any, last: Any = None) -> RoleExecution:
        """An execution for ann; her tensor is the first input of bob's role, and another one may be
        the ``last``."""
        roles = [
            RoleProgram("bob", program, (None, 1, None), (None,) * len(program.outputs)),
            SENDS,
        ]
        handles = [
            store_role(self.hook.local_worker.connection_to(worker), role)
            for worker, role in zip((self.ann, self.alice.as_user("ann")), roles, strict=True)
        ]
        given = {(0, 0): held} if last is None else {(0, 0): held, (0, 2): last}
        return start(handles, {at: Reference(one.id_at_location) for at, one in given.items()})

    def there(self, pointer: Any) -> torch.Tensor:
        """What bob's own program has behind a pointer."""
        found = self.bob.core.store.objects[pointer.id_at_location]
        assert isinstance(found, torch.Tensor)
        return found

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
    """ann may write to her tensor when she starts; then it takes over dan's memory."""
    kept = torch.tensor([5.0, 6.0]).tag("#kept").send(scene.bob.as_user(whose))
    (found,) = scene.ann.search("#kept")
    _ = found * 1  # bob notes whose it is
    x = torch.tensor([1.0, 2.0]).send(scene.ann)
    execution = scene.start(WRITES, x)
    scene.there(x).data = scene.there(kept)  # her requests wait for the execution
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
    """dan's tensor gets other memory while ann's execution has it."""
    owner = scene.bob.as_user(whose)
    kept = torch.tensor([5.0, 6.0]).tag("#kept").send(owner)
    (found,) = scene.ann.search("#kept")
    execution = scene.start(program, found)
    scene.there(kept).data = torch.tensor([7.0, 8.0])
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


@pytest.mark.parametrize("is_private", [False, True])
def test_what_is_written_to_an_input_after_the_start_is_not_read(
    scene: Scene, is_private: bool
) -> None:
    """As if the execution had run when it was started, whatever it waits for."""
    x = torch.tensor([1.0, 2.0]).send(scene.ann)
    execution = scene.start(READ_LATER, x)
    y = torch.tensor([1000.0, 1000.0])
    if is_private:
        y = y.private_tensor(allowed_users=("ann",))
    x.add_(y.send(scene.ann))
    again = x * 1
    execution.submit(1, 0, torch.ones(1))
    execution.submit(0, 2, torch.tensor([100.0]))
    execution.wait()
    (result,) = execution.outputs(0)
    assert result.get().tolist() == [202.0]
    assert x.get(user="ann").tolist() == again.get(user="ann").tolist() == [1001.0, 1002.0]
    del execution, result, x, again
    scene.close()
    assert not scene.bob.core.dataflow.tasks


def test_what_an_execution_writes_to_an_input_is_there_for_what_comes_later(scene: Scene) -> None:
    x = torch.tensor([1.0, 2.0]).send(scene.ann)
    first, second = scene.start(WRITES, x), scene.start(WRITES, x)
    doubled = x * 2
    for execution, number in ((second, 1.0), (first, 10.0)):
        execution.submit(1, 0, torch.full((2,), number))
        execution.submit(0, 2, torch.zeros(2))
    for execution in (first, second):
        execution.wait()
    assert doubled.get().tolist() == [24.0, 26.0]
    results = [execution.outputs(0)[0].get().tolist() for execution in (first, second)]
    assert results == [[11.0, 12.0], [12.0, 13.0]], "in the order of the starts"
    del execution, first, second, doubled, x
    scene.close()


@pytest.mark.parametrize("end", ["cancel", "fail", "drop"])
def test_what_waits_for_an_execution_goes_on_however_that_ends(scene: Scene, end: str) -> None:
    x = torch.tensor([1.0, 2.0]).send(scene.ann)
    execution = scene.start(WRITES, x)
    doubled = x * 2
    with pytest.raises(sy.exceptions.ObjectNotReady, match="the end of an execution"):
        x.copy().get()
    if end == "cancel":
        execution.cancel()
    elif end == "fail":
        execution.submit(0, 2, torch.ones(2))
        execution.submit(1, 0, torch.ones(7))
    del execution
    assert doubled.get().tolist() == [2.0, 4.0]
    assert not scene.bob.core.dataflow.tasks
    del doubled, x
    scene.close()


ADDS = Program(
    3,
    (op("torch.add", S(0), S(1), out=S(3)), op("torch.add", S(3), S(2), out=S(4))),
    (S(4),),
)
"""All three inputs are added."""


def test_what_came_after_a_start_that_had_to_wait_comes_after_the_execution(scene: Scene) -> None:
    x, promise = torch.tensor([1.0, 2.0]).send(scene.ann), scene.ann.promise()
    execution = scene.start(ADDS, x, promise)
    x.add_(1000)
    later = x * 1
    torch.tensor([100.0]).send(scene.ann, id=promise.id_at_location)
    x.mul_(2)
    execution.submit(1, 0, torch.tensor([10.0, 20.0]))
    execution.wait()
    (result,) = execution.outputs(0)
    assert result.get().tolist() == [111.0, 122.0] and later.get().tolist() == [1001.0, 1002.0]
    assert x.get().tolist() == [2002.0, 2004.0]
    del execution, result, x, later, promise
    scene.close()
