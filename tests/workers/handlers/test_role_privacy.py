"""Private values in roles of protocols: what leaves for another worker, and what it is there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import PermissionDenied, UnsupportedOperation
from syft.ids import new_id
from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.program.role_program import RoleProgram
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack
from syft.workers.client.role_executions import RoleExecution, start, store_role
from syft.workers.core.peer_limits import PeerLimits
from syft.workers.handlers.stored_role import StoredRole
from syft.workers.labels.memory_labels import full_guard_of, protect_all
from syft.workers.wire.messages import Describe, Duplicate
from syft.workers.wire.references import Reference

S = Slot


def op(name: str, *args: Any, out: Any = None) -> Action:
    return Action(BY_NAME[name], args, {}, out)


def through(*actions: Action, result: int) -> list[RoleProgram]:
    """bob makes something of his object and sends it to alice, who keeps it."""
    bob = Program(1, actions, (S(result),))
    alice = Program(1, (op("torch.Tensor.mul", S(0), 1, out=S(1)),), (S(1),))
    return [RoleProgram("bob", bob, (None,), (1,)), RoleProgram("alice", alice, (0,), (None,))]


PLAINLY = through(op("torch.Tensor.clone", S(0), out=S(1)), result=1)
AS_NUMBER = through(
    op("torch.Tensor.sum", S(0), out=S(1)), op("torch.Tensor.item", S(1), out=S(2)), result=2
)
_TIMES_ONES = op("torch.ones", 2, out=S(1)), op("torch.Tensor.mul", S(1), S(0), out=S(2))
AS_NUMBER[1] = RoleProgram("alice", Program(1, _TIMES_ONES, (S(2),)), (0,), (None,))
AS_SCALED = through(
    op("torch.Tensor.sum", S(0), out=S(1)),
    op("torch.Tensor.item", S(1), out=S(2)),
    op("torch.ones", 2, out=S(3)),
    op("torch.Tensor.mul", S(3), S(2), out=S(4)),
    result=4,
)
ATTACKS = [PLAINLY, AS_NUMBER, AS_SCALED]


@pytest.fixture
def bob(hook: sy.TorchHook) -> sy.VirtualWorker:
    return sy.VirtualWorker(hook, id="bob")


@pytest.fixture
def alice(hook: sy.TorchHook) -> sy.VirtualWorker:
    return sy.VirtualWorker(hook, id="alice")


def run(
    hook: sy.TorchHook, roles: list[RoleProgram], workers: list[Any], held: torch.Tensor
) -> RoleExecution:
    me = hook.local_worker
    (id,) = hook.local_worker.get_worker("bob").hold(held)
    handles = [
        store_role(me.connection_to(worker), role)
        for role, worker in zip(roles, workers, strict=True)
    ]
    return start(handles, {(0, 0): Reference(id)})


def private(*destinations: str) -> torch.Tensor:
    x = torch.tensor([1.0, 2.0])
    return x.private_tensor(allowed_users=("ann",), allow_destinations=destinations)


@pytest.mark.parametrize("roles", ATTACKS)
def test_the_attacks_succeed_on_what_is_public(
    hook: sy.TorchHook, bob: Any, alice: Any, roles: list[RoleProgram]
) -> None:
    execution = run(hook, roles, [bob, alice], torch.tensor([1.0, 2.0]))
    execution.wait()
    assert execution.outputs(1)[0].get().tolist() == ([1, 2] if roles is PLAINLY else [3, 3])
    bob.clear_objects()
    alice.clear_objects()
    del execution


@pytest.mark.parametrize("roles", ATTACKS)
def test_private_values_stay(
    hook: sy.TorchHook, bob: Any, alice: Any, roles: list[RoleProgram]
) -> None:
    execution = run(hook, roles, [bob, alice], private())
    with pytest.raises(PermissionDenied, match="may not go to 'alice'|reads its value"):
        execution.wait()
    bob.clear_objects()
    alice.clear_objects()
    del execution


KEEPING = RoleProgram(
    "bob",
    Program(
        1, (op("torch.Tensor.add_", S(1), S(0)),), (S(1),), constants=(torch.tensor([0.0, 0.0]),)
    ),
    (None,),
    (None,),
)
"""bob adds what is his to a constant of the program."""


@pytest.mark.parametrize("is_private", [False, True])
def test_a_digest_tells_nothing_of_what_a_role_has_written_to_its_constants(
    hook: sy.TorchHook, bob: Any, is_private: bool
) -> None:
    """What a digest would tell of two numbers is found by trying all."""
    told = []
    for values in ([1.0, 2.0], [3.0, 4.0]):
        secret = torch.tensor(values)
        held = secret.private_tensor(allowed_users=("ann",)) if is_private else secret
        (id,) = bob.hold(held)
        line = hook.local_worker.connection_to(bob)
        handle = store_role(line, KEEPING)
        execution = start([handle], {(0, 0): Reference(id)})
        execution.wait()
        summaries = [line.ask(Describe, handle.id)]
        copy = new_id()
        line.ask(Duplicate, handle.id, copy)
        summaries.append(line.ask(Describe, copy))
        told.append([summary[3][3] for summary in summaries])
        (kept,) = bob.core.store.objects[handle.id].program.constants
        assert kept.tolist() == values
        bob.clear_objects()
        del execution, handle
    assert told[0] == told[1]


def test_the_digest_of_constants_that_were_private_when_they_came_is_not_told(
    hook: sy.TorchHook,
) -> None:
    for constant in (torch.tensor([1.0, 2.0]), private()):
        role = RoleProgram("bob", KEEPING.program.on((constant,)), (None,), (None,))
        packer = Packer()
        operand = pack(StoredRole(role, []), packer)
        stored = unpack(operand, Unpacker(packer.buffers))
        guard = full_guard_of(constant)
        if guard is not None:
            protect_all(stored, guard)
        told = stored.summary()[3]
        assert told == (stored.digest if guard is None else None)
        assert stored.duplicate().summary()[3] == told


@pytest.mark.parametrize("approved", [False, True])
def test_what_may_go_is_as_private_there(
    hook: sy.TorchHook, bob: Any, alice: Any, approved: bool
) -> None:
    if approved:
        bob.approve(StoredRole(PLAINLY[0], []).digest.hex(), ["alice"])
    execution = run(hook, PLAINLY, [bob, alice], private(*(() if approved else ("alice",))))
    execution.wait()
    (result,) = execution.outputs(1)
    with pytest.raises(PermissionDenied):
        result.get()
    assert result.get(user="ann").tolist() == [1.0, 2.0]
    bob.clear_objects()
    alice.clear_objects()
    del execution, result


def test_an_approval_is_for_one_text_and_for_its_destinations(
    hook: sy.TorchHook, bob: Any, alice: Any
) -> None:
    bob.approve(StoredRole(PLAINLY[0], []).digest, ["carl"])
    bob.approve(StoredRole(AS_SCALED[0], []).digest, ["alice"])
    execution = run(hook, PLAINLY, [bob, alice], private())
    with pytest.raises(PermissionDenied, match="may not go to 'alice'"):
        execution.wait()
    bob.approve(StoredRole(PLAINLY[0], []).digest, ["alice"])
    bob.approve(StoredRole(PLAINLY[0], []).digest, [])
    assert StoredRole(PLAINLY[0], []).digest not in bob.core.approved
    bob.clear_objects()
    alice.clear_objects()
    del execution


def test_what_follows_from_a_private_number_in_another_part_is_private(
    hook: sy.TorchHook, bob: Any, alice: Any
) -> None:
    """The number is taken before the letter comes, and used afterwards."""
    program = Program(
        2,
        (
            op("torch.Tensor.sum", S(0), out=S(2)),
            op("torch.Tensor.item", S(2), out=S(3)),
            op("torch.Tensor.mul", S(1), S(3), out=S(4)),
        ),
        (S(4),),
    )
    roles = [
        RoleProgram("bob", program, (None, 1), (None,)),
        RoleProgram(
            "alice",
            Program(1, (op("torch.Tensor.clone", S(0), out=S(1)),), (S(1),)),
            (None,),
            (0,),
        ),
    ]
    for held, users in ((torch.tensor([1.0, 2.0]), None), (private(), {"ann"})):
        execution = run(hook, roles, [bob.as_user("ann"), alice], held)
        execution.submit(1, 0, torch.ones(2))
        execution.wait()
        (result,) = execution.outputs(0)
        guard = full_guard_of(bob.core.store.objects[result.id_at_location])
        assert (guard and guard.users) == users, "a number has no label, and what follows has one"
        assert result.get().tolist() == [3.0, 3.0]
        del execution, result
    bob.clear_objects()
    alice.clear_objects()


CHOOSES = Program(
    2,
    (
        op("torch.Tensor.gt", S(0), 0, out=S(2)),
        op("torch.Tensor.masked_select", S(0), S(2), out=S(3)),
        op("torch.Tensor.sum", S(3), out=S(4)),
        op("torch.add", S(4), S(1), out=S(5)),
        op("torch.Tensor.sub", S(5), S(3), out=S(6)),
    ),
    (S(6),),
)
"""What is chosen of the first input waits for the second one."""


@pytest.mark.parametrize("is_private", [False, True])
def test_the_limit_of_what_waits_does_not_tell_a_private_size(
    hook: sy.TorchHook, is_private: bool
) -> None:
    outcomes: list[list[str]] = []
    for limit in (300, 3000):
        bob = sy.VirtualWorker(
            hook, id=f"bob{limit}", peer_limits=PeerLimits(letters=limit, parked=9)
        )
        told = []
        for chosen in (10, 90):
            values = torch.tensor([1.0] * chosen + [-1.0] * (100 - chosen))
            held = values.private_tensor(allowed_users=("ann",)) if is_private else values
            (id,) = bob.hold(held)
            handle = store_role(
                hook.local_worker.connection_to(bob.as_user("eve")),
                RoleProgram("bob", CHOOSES, (None, None), (None,)),
            )
            execution = start([handle], {(0, 0): Reference(id)})
            try:
                execution.submit(0, 1, torch.ones(1))
                execution.wait()
            except Exception as error:
                told.append(f"{type(error).__name__}: {error}".replace(str(id), "#"))
            else:
                told.append("done")
            bob.clear_objects()
            del execution, handle
        outcomes.append(told)
    (few, many), unlimited = outcomes
    assert unlimited == ["done", "done"]
    assert (few == many) is is_private, "it tells how many are positive, if that is public"


def test_what_the_last_part_makes_does_not_wait_and_is_not_charged(hook: sy.TorchHook) -> None:
    carl = sy.VirtualWorker(hook, id="carl", peer_limits=PeerLimits(letters=300))
    absolute = Program(1, (op("torch.abs", S(0), out=S(1)),), (S(1),))
    role = RoleProgram("carl", absolute, (None,), (None,))
    handle = store_role(hook.local_worker.connection_to(carl), role)
    execution = start([handle], {(0, 0): torch.ones(100)})
    execution.wait()
    assert execution.outputs(0)[0].get().sum() == 100
    del execution, handle


def test_private_numbers_do_not_travel(hook: sy.TorchHook, bob: Any, alice: Any) -> None:
    execution = run(hook, AS_NUMBER, [bob.as_user("ann"), alice], private("alice"))
    with pytest.raises(UnsupportedOperation, match="a number taken from what is private"):
        execution.wait()
    bob.clear_objects()
    alice.clear_objects()
    del execution


def test_a_worker_that_leaves_fails_what_waits_for_it(
    hook: sy.TorchHook, bob: Any, alice: Any
) -> None:
    me = hook.local_worker
    handles = [
        store_role(me.connection_to(worker), role)
        for worker, role in zip((bob, alice), PLAINLY, strict=True)
    ]
    execution = start(handles)
    hook.local_worker.network.lose("bob", "its process has ended")
    with pytest.raises(sy.exceptions.WorkerLost, match="bob"):
        execution.wait(20)
    assert not alice.core.sessions
    execution.cancel()
    assert not bob.core.sessions
    del execution, handles
