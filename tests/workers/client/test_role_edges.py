"""What seldom happens to roles: odd programs, workers that are closed, time that is over."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.codes import TypeCode
from syft.exceptions import (
    InputRefused,
    LocationMismatch,
    MalformedMessage,
    ObjectNotReady,
    PermissionDenied,
    ProgramError,
    WorkerClosed,
    WorkerTimeout,
)
from syft.ids import new_id
from syft.program.program import Program, Slot
from syft.program.role_program import RoleProgram
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack
from syft.workers.client.role_executions import start, store_role
from syft.workers.handlers.stored_role import StoredRole
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import protect
from syft.workers.wire.messages import Describe
from syft.workers.wire.references import Reference
from tests.workers.client.test_role_executions import clone, counting, deployed, independent, op

S = Slot


@pytest.fixture
def pair(hook: sy.TorchHook) -> list[Any]:
    return [sy.VirtualWorker(hook, id=name) for name in ("james", "alice")]


@pytest.fixture
def queued(hook: sy.TorchHook) -> list[Any]:
    return [sy.VirtualWorker(hook, id=name, pipelined=True) for name in ("james", "alice")]


def test_two_roles_need_two_workers(hook: sy.TorchHook, pair: list[Any]) -> None:
    handles = deployed(hook, independent(), [pair[0], pair[0]])
    with pytest.raises(LocationMismatch, match="each role at another worker"):
        start(handles)


def test_inputs_that_no_role_takes(hook: sy.TorchHook, pair: list[Any]) -> None:
    handles = deployed(hook, independent(), pair)
    assert repr(handles[1]) == "<RoleHandle alice -> alice>"
    for place in ((0, 7), (7, 0), (1, 0)):
        with pytest.raises(InputRefused, match=f"input {place[1]} of role {place[0]}"):
            start(handles, {place: torch.ones(2)})
    execution = start(handles)
    assert repr(execution) == "<Execution at james, alice; under way>"
    with pytest.raises(InputRefused, match="there is no such role"):
        execution.submit(7, 0, torch.ones(2))
    execution.cancel()
    assert repr(execution) == "<Execution at james, alice; failed>"


def test_what_is_waited_for_is_said(hook: sy.TorchHook, pair: list[Any]) -> None:
    execution = start(deployed(hook, independent(), pair))
    with pytest.raises(ObjectNotReady):
        execution.wait()
    missing = "input 0 of role 'local' has not been given"
    with pytest.raises(WorkerTimeout, match=f"role 'alice' is under way, and {missing}"):
        execution.wait(-1.0)
    execution.submit(0, 0, torch.ones(2))
    execution.submit(0, 1, torch.ones(2))
    execution.wait(5)
    assert repr(execution).endswith("done>")


def test_a_role_that_waits_for_what_is_promised_is_under_way(
    hook: sy.TorchHook, pair: list[Any]
) -> None:
    line = hook.local_worker.connection_to(pair[0])
    role = RoleProgram("local", Program(1, (clone(0, 1),), (S(1),)), (None,), (None,))
    promised = line.promise(new_id(), "bob")
    execution = start([store_role(line, role)], {(0, 0): Reference(promised.id_at_location)})
    with pytest.raises(WorkerTimeout, match="role 'local' is under way") as caught:
        execution.wait(-1.0)
    assert "has not been given" not in str(caught.value), "all its inputs are named"


def test_a_queued_worker_says_later_what_it_refuses(hook: sy.TorchHook, queued: list[Any]) -> None:
    execution = start(deployed(hook, independent(), queued))
    for _ in range(2):
        execution.submit(0, 0, torch.ones(2))
    execution.submit(0, 1, torch.ones(2))
    with pytest.raises(InputRefused, match="it has come already"):
        execution.wait()
    assert execution.outputs(1)[0].get().tolist() == [-1, -1], "the first one counts"


def test_a_worker_that_is_closed(hook: sy.TorchHook, pair: list[Any]) -> None:
    handles = deployed(hook, independent(), pair)
    execution = start(handles)
    pair[1].close()
    with pytest.raises((WorkerClosed, sy.exceptions.SyftError)):
        execution.submit(0, 0, torch.ones(2))
        execution.wait(5)
    execution.cancel()
    with pytest.raises(WorkerClosed):
        start(handles)


def test_a_cancel_that_cannot_be_told_is_a_failure(hook: sy.TorchHook, pair: list[Any]) -> None:
    execution = start(deployed(hook, independent(), pair))
    pair[1].close()
    execution.cancel()
    with pytest.raises(WorkerClosed):
        execution.wait()


def test_what_may_not_go_to_a_role_is_not_sent(hook: sy.TorchHook, pair: list[Any]) -> None:
    execution = start(deployed(hook, independent(), pair))
    secret = torch.ones(2)
    protect(secret, Guard(frozenset({"ann"})))
    with pytest.raises(PermissionDenied, match="send"):
        execution.submit(0, 0, secret)
    with pytest.raises(PermissionDenied, match="send"):
        start(deployed(hook, independent(), pair), {(0, 0): secret})
    execution.cancel()


@pytest.mark.parametrize("pipelined", [False, True])
def test_a_private_input_is_as_private_as_it_was(hook: sy.TorchHook, pipelined: bool) -> None:
    """It travels in a letter with its label, since a start has no label."""
    ann = sy.VirtualWorker(hook, id="ann's", user="ann")
    bob = sy.VirtualWorker(hook, id="bob", pipelined=pipelined)
    role = RoleProgram("local", Program(1, (clone(0, 1),), (S(1),)), (None,), (None,))
    secret = torch.tensor([3.0, 4.0])
    protect(secret, Guard(frozenset({"ann"})))
    execution = start([store_role(ann.connection_to(bob), role)], {(0, 0): secret})
    execution.wait()
    (result,) = execution.outputs(0)
    with pytest.raises(PermissionDenied):
        hook.local_worker.connection_to(bob).pointer(result.id_at_location).copy().get()
    assert result.get().tolist() == [3.0, 4.0]


def test_a_number_goes_from_role_to_role_and_is_not_kept(
    hook: sy.TorchHook, pair: list[Any]
) -> None:
    local = Program(1, (op("torch.Tensor.item", S(0), out=S(1)),), (S(1),))
    adds = Program(
        1, (op("torch.mul", S(1), S(0), out=S(2)),), (S(2),), constants=(torch.tensor(2.0),)
    )
    roles = [RoleProgram("local", local, (None,), (1,)), RoleProgram("alice", adds, (0,), (None,))]
    execution = start(deployed(hook, roles, pair), {(0, 0): torch.tensor(21.0)})
    assert execution.outputs(1)[0].get().item() == 42
    kept = [RoleProgram("local", local, (None,), (None,))]
    execution = start(deployed(hook, kept, pair), {(0, 0): torch.tensor(21.0)})
    with pytest.raises(ProgramError, match="output 0 of role 'local' is a number"):
        execution.wait()


def test_what_a_role_sends_leads_to_no_graph_of_its_own(
    hook: sy.TorchHook, pair: list[Any]
) -> None:
    local = Program(1, (op("torch.mul", S(0), 2, out=S(1)),), (S(1),))
    alice = Program(1, (op("torch.add", S(0), 1, out=S(1)),), (S(1),))
    roles = [RoleProgram("local", local, (None,), (1,)), RoleProgram("alice", alice, (0,), (None,))]
    for needed in (False, True):
        x = torch.tensor([1.0, 2.0], requires_grad=needed)
        execution = start(deployed(hook, roles, pair), {(0, 0): x})
        result = execution.outputs(1)[0].get()
        assert result.tolist() == [3, 5] and not result.requires_grad


def test_what_a_role_gives_on_unchanged(hook: sy.TorchHook, pair: list[Any]) -> None:
    """An input that is an output at once, for another role and here."""
    local = Program(1, (), (S(0), S(0)))
    alice = Program(1, (clone(0, 1),), (S(1),))
    roles = [
        RoleProgram("local", local, (None,), (1, None)),
        RoleProgram("alice", alice, (0,), (None,)),
    ]
    execution = start(deployed(hook, roles, pair), {(0, 0): torch.tensor([1.0, 2.0])})
    assert execution.outputs(0)[0].get().tolist() == [1, 2]
    assert execution.outputs(1)[0].get().tolist() == [1, 2]


def test_the_worker_tells_what_a_role_is(hook: sy.TorchHook, pair: list[Any]) -> None:
    line = hook.local_worker.connection_to(pair[1])
    alice = counting()[1]
    handle = store_role(line, alice, [torch.zeros(1)])
    tags, description, _, summary = line.ask(Describe, handle.id)
    assert not tags and description is None
    name, sources, targets, digest = summary
    assert (name, list(sources), list(targets)) == ("alice", [0], [None])
    assert digest == StoredRole(alice, [torch.ones(1)]).digest, "whatever the state"


def test_a_copy_has_a_state_of_its_own() -> None:
    alice = counting()[1]
    stored = StoredRole(alice, [torch.zeros(1)], {"#counts"}, "it counts")
    copied = stored.duplicate()
    copied.state[0].add_(1)
    assert stored.state[0].item() == 0 and copied.digest == stored.digest
    assert (copied.tags, copied.description) == ({"#counts"}, "it counts")


def test_another_constant_is_another_role_unless_the_role_wrote_it() -> None:
    program = Program(
        1, (op("torch.mul", S(1), S(0), out=S(2)),), (S(2),), constants=(torch.ones(1),)
    )
    stored = StoredRole(RoleProgram("alice", program, (None,), (None,)), [])
    before, cut = stored.digest, stored.parted
    stored.exchange(lambda tensor: tensor + 1)
    assert stored.digest == before and stored.parted is cut
    assert StoredRole(stored.role, []).digest != before
    assert stored.role.program.constants[0].item() == 2


def packed() -> list[Any]:
    role = RoleProgram("alice", Program(1, (clone(0, 1),), (S(1),)), (None,), (2,))
    return [*pack(StoredRole(role, []), Packer())]


@pytest.mark.parametrize(
    ("place", "value", "text"),
    [
        (1, 5, "text"),
        (2, [int(TypeCode.TUPLE)], "program"),
        (3, [None, None], "as in the program"),
        (3, [True], "rank of a role"),
        (3, [1 << 10], "rank of a role"),
        (3, [-1], "rank of a role"),
        (4, 7, "array"),
        (5, [[int(TypeCode.TUPLE)]], "plain tensor"),
        (6, "#tag", "array"),
        (6, [5], "text"),
        (7, 5, "text"),
    ],
)
def test_a_role_of_another_form_is_refused(place: int, value: Any, text: str) -> None:
    operand = packed()
    operand[place] = value
    with pytest.raises(MalformedMessage, match=text):
        unpack(operand, Unpacker([]))


def test_the_state_is_as_many_tensors_as_the_program_has() -> None:
    operand = packed()
    packer = Packer()
    operand[5] = [pack(torch.ones(1), packer)]
    with pytest.raises(MalformedMessage, match="as in the program"):
        unpack(operand, Unpacker(packer.buffers))
