"""The core outlives whatever arrives, answers every request, and keeps its store whole."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import syft as sy
from syft.codes import MessageCode, TypeCode
from syft.exceptions import (
    HookError,
    LimitExceeded,
    MalformedMessage,
    ObjectNotFound,
    SyftError,
    UnknownOperation,
    WireError,
)
from syft.ops.table import BY_NAME, NAMES
from syft.serde.frame import Frame
from syft.serde.limits import Limits
from syft.workers.wire import messages
from syft.workers.core.state_machine import MAX_DEPTH, Peer, WorkerCore, descend
from syft.workers.wire.messages import Command, Done, Drop, Failure, Fetch, Value
from tests.workers.core.peers import ME, ask, command, error_in, lonely, put, ref, said, value_in
from tests.workers.samples import SAMPLES


@pytest.fixture
def core() -> WorkerCore:
    core = lonely()
    assert put(core, 5, torch.tensor([1.0, 2.0])) == Done(1)
    assert put(core, 6, torch.tensor([3.0, 4.0])) == Done(1)
    return core


def state(core: WorkerCore) -> Any:
    """All that a store holds, as plain values."""
    return {id: value.tolist() for id, value in core.store.objects.items()}


WHOLE = {5: [1.0, 2.0], 6: [3.0, 4.0]}


def test_a_command_runs_and_its_result_is_stored(core: WorkerCore) -> None:
    assert ask(core, command("torch.Tensor.add", ref(5), ref(6), out=7, seq=3)) == Done(3)
    assert value_in(core, Fetch(4, 7)).tolist() == [4.0, 6.0]
    assert state(core) == WHOLE


def test_frames_and_errors_go_back_to_who_sent_them(core: WorkerCore) -> None:
    letters = core.receive(Frame(messages.encode(Fetch(9, 404)), []), Peer("eve"))
    assert [to for to, _ in letters] == ["eve"]
    reply = messages.decode(letters[0][1].header)
    assert reply.seq == 9
    error = error_in(reply)
    assert isinstance(error, ObjectNotFound)
    assert (error.id, error.worker, error.reason) == (404, "bob", None)


def test_what_is_no_message_is_answered_without_a_number(core: WorkerCore) -> None:
    for header in (b"", b"\xc1", b"\x92\x20\xa1x", msgpack.packb([200, 1])):
        (reply,) = said(core, header)
        assert reply.seq == -1
        assert isinstance(error_in(reply), MalformedMessage)
    assert state(core) == WHOLE


def test_a_kind_without_a_handler_is_answered(
    core: WorkerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(WorkerCore.handlers, messages.Relay)
    error = error_in(ask(core, messages.Relay(1, 5, None)))
    assert str(error) == "Malformed message at $[0]: expected a request, got a reply."


def test_a_kind_has_one_handler() -> None:
    with pytest.raises(HookError, match="Put has a handler already"):
        WorkerCore.handles(messages.Put)(lambda core, message, frame, peer: None)


@pytest.mark.parametrize("reply", [Done(1), Value(1, 5), Failure(1, (29, 4, ("x",), None, ()))])
def test_a_reply_that_nobody_asked_for_changes_nothing(
    reply: Any, hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    pointer = torch.ones(2).send(bob)
    assert bob.core.receive(Frame(messages.encode(reply), []), Peer("me")) == []
    assert pointer.get().tolist() == [1, 1]
    alone = lonely()
    (answer,) = said(alone, messages.encode(reply), peer=Peer("nobody"))
    assert isinstance(error_in(answer), SyftError)


# ------------------------------------------------------------------------------- wrong in one place

OPERATIONS = [-1, -(2**63), len(NAMES), 2**31, 2**63 - 1, 2**64 - 1]


@pytest.mark.parametrize("number", OPERATIONS)
@pytest.mark.parametrize("waiting", [False, True])
def test_an_operation_that_is_not_in_the_table(
    core: WorkerCore, number: int, waiting: bool
) -> None:
    if waiting:
        ask(core, messages.Promise(1, (50,)))
    reply = ask(core, Command(8, number, (ref(5),), 7, 1))
    assert reply.seq == 8
    assert isinstance(error_in(reply), UnknownOperation if number > 0 else MalformedMessage)
    assert state(core) == WHOLE


@pytest.mark.parametrize(
    "operand, expected",
    [
        (ref(404), ObjectNotFound),
        ((0, "5"), MalformedMessage),
        ((0,), MalformedMessage),
        ((0, [5]), MalformedMessage),
        ((0, 5, 1), MalformedMessage),
        ((0, 5, -1), MalformedMessage),
        ((0, 5, 2**62), MalformedMessage),
        ((0, 5, 1, 1), MalformedMessage),
        ((999, 5), MalformedMessage),
        (("x", 5), MalformedMessage),
        ((), MalformedMessage),
        ({"a": 1}, MalformedMessage),
        ((int(TypeCode.TENSOR), 0, (2,), None, 0), MalformedMessage),
        ((int(TypeCode.TENSOR), 0, (2**62, 2**62), None, 0), LimitExceeded),
        ((int(TypeCode.POINTER), 1, "nobody", True, 0), SyftError),
    ],
    ids=repr,
)
@pytest.mark.parametrize("keyword", [False, True])
@pytest.mark.parametrize("waiting", [False, True])
def test_an_operand_that_cannot_be_read(
    core: WorkerCore, operand: Any, expected: type[SyftError], keyword: bool, waiting: bool
) -> None:
    if waiting:
        ask(core, messages.Promise(1, (50,)))
    if keyword:
        asked = command("torch.Tensor.add", ref(5), out=7, kwargs={"other": operand})
    else:
        asked = command("torch.Tensor.add", ref(5), operand, out=7)
    error = error_in(ask(core, asked))
    assert isinstance(error, expected)
    if isinstance(error, WireError):
        assert error.path.startswith("$.kwargs.other" if keyword else "$.args[1]")
    assert state(core) == WHOLE
    assert core.store.why_missing(7) == "the operation that should have made it failed"


@pytest.mark.parametrize(
    "autocast", [("cpu",), (("cpu",),), ((("cpu", 1, 2)),), ((5, 6),), (("cpu", (19, 999)),), ((),)]
)
def test_an_autocast_that_cannot_be_read(core: WorkerCore, autocast: Any) -> None:
    reply = ask(core, command("torch.Tensor.neg", ref(5), out=7, autocast=autocast))
    assert isinstance(error_in(reply), MalformedMessage)
    assert error_in(reply).path.startswith("$.autocast[0]")
    assert state(core) == WHOLE


def test_limits_hold_at_the_worker_that_set_them() -> None:
    core = lonely()
    core.limits = Limits(max_elements=4)
    assert put(core, 1, torch.ones(4)) == Done(1)
    error = error_in(put(core, 2, torch.ones(5)))
    assert isinstance(error, LimitExceeded) and error.path.startswith("$.value")


# ------------------------------------------------------------------------ wrong in any place at all

plain = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5)
)
small = st.integers(-2, 70)
operands = st.recursive(
    plain | small | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=5)
    | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    | st.tuples(st.just(0), st.sampled_from([5, 6, 7])),
    max_leaves=12,
)
fuzz = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def check_alive(core: WorkerCore) -> None:
    """Nothing the store held has changed, nothing stays behind, and the worker works."""
    assert {5, 6} <= set(core.store.objects) and state(core)[5] == WHOLE[5]
    assert ask(core, command("torch.Tensor.add", ref(5), ref(6), out=77)) == Done(1)
    assert value_in(core, Fetch(2, 77)).tolist() == [4.0, 6.0]


@fuzz
@given(st.lists(operands, max_size=8))
def test_random_headers(fields: list[Any]) -> None:
    core = lonely()
    put(core, 5, torch.tensor([1.0, 2.0]))
    put(core, 6, torch.tensor([3.0, 4.0]))
    for reply in said(core, msgpack.packb(fields)):
        assert isinstance(error_in(reply), Exception)
    check_alive(core)


HARMLESS = [BY_NAME[f"torch.Tensor.{name}"] for name in ("add", "mul", "__getitem__", "sum")]


@fuzz
@given(st.sampled_from(HARMLESS), st.lists(operands, max_size=4), operands, st.integers(-1, 9))
def test_random_arguments(op: int, args: list[Any], keyword: Any, flags: int) -> None:
    core = lonely()
    put(core, 5, torch.tensor([1.0, 2.0]))
    put(core, 6, torch.tensor([3.0, 4.0]))
    fields = [int(MessageCode.COMMAND), 3, op, args, 9, flags, [], {"dim": keyword}]
    for reply in said(core, msgpack.packb(fields)):
        assert reply.seq in (3, -1)
    check_alive(core)


@fuzz
@given(st.sampled_from(SAMPLES), st.data())
def test_mutated_messages(sample: Any, data: st.DataObject) -> None:
    core = lonely()
    put(core, 5, torch.tensor([1.0, 2.0]))
    put(core, 6, torch.tensor([3.0, 4.0]))
    header = bytearray(messages.encode(sample))
    for _ in range(data.draw(st.integers(1, 3))):
        header[data.draw(st.integers(0, len(header) - 1))] = data.draw(st.integers(0, 255))
    assert len(said(core, bytes(header))) <= 3
    assert put(core, 2**50, torch.ones(1)) == Done(1)  # it may well have done what it says
    if not isinstance(sample, Command):
        assert all(WHOLE[id] == value for id, value in state(core).items() if id in WHOLE)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
@pytest.mark.parametrize("value", [-1, 0, 2**63 - 1, 2**64 - 1])
def test_every_integer_may_be_huge(core: WorkerCore, sample: Any, value: int) -> None:
    fields = msgpack.unpackb(messages.encode(sample))
    for index in range(1, len(fields)):
        if type(fields[index]) is int:
            changed = [*fields[:index], value, *fields[index + 1 :]]
            for reply in said(core, msgpack.packb(changed)):
                assert isinstance(reply, (Done, Value, Failure, messages.Abort))
    assert put(core, 99, torch.ones(1)) == Done(1)
    assert not core.dataflow.tasks


def test_deep_nesting_inside_an_operand(core: WorkerCore) -> None:
    deep: Any = 1
    for _ in range(200):
        deep = (int(TypeCode.TUPLE), deep)
    error = error_in(ask(core, command("torch.Tensor.add", ref(5), deep, out=7)))
    assert isinstance(error, LimitExceeded)
    assert state(core) == WHOLE


# ------------------------------------------------------------------------------------------- chains


def test_a_reference_may_go_down_a_chain() -> None:
    x = torch.ones(2)
    logged = sy.LoggingTensor().on(sy.LoggingTensor().on(x))
    assert descend(logged, 3) is x
    assert descend(logged, 2).child.tensor is x
    for depth in (4, -1, MAX_DEPTH + 1, 2**62):
        with pytest.raises(MalformedMessage, match="at most as many .child steps"):
            descend(logged, depth)


def test_a_pointer_has_no_end_but_a_reference_does(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    pointer = torch.ones(2).send(bob).send(alice)
    with pytest.raises(MalformedMessage, match="at most as many .child steps"):
        pointer.child.connection.ask(Fetch, pointer.id_at_location, depth=2**40)
    assert pointer.get().get().tolist() == [1, 1]


def test_clearing_forgets_everything(core: WorkerCore) -> None:
    ask(core, messages.Promise(1, (8,)))
    assert (
        core.receive(
            Frame(messages.encode(command("torch.Tensor.add", ref(5), ref(8), out=9)), []), ME
        )
        == []
    )
    assert len(core.dataflow) == 1
    core.clear("me cleared the worker")
    assert not core.store.objects and not core.dataflow.active and core.outgoing() == []
    for id in (5, 8, 9):
        error = error_in(ask(core, Fetch(3, id)))
        assert "me cleared the worker" in str(error)
    assert ask(core, Drop(4, (5, 404))) == Done(4)
