"""The core outlives whatever arrives, answers every request, and keeps its store whole."""

from __future__ import annotations

from functools import partial
from typing import Any, cast, get_args

import msgpack
import msgspec
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import syft as sy
from syft.codes import MessageCode, TypeCode
from syft.exceptions import (
    PromiseGivenUp,
    HookError,
    LimitExceeded,
    PermissionDenied,
    MalformedMessage,
    NotSendable,
    ObjectNotFound,
    SyftError,
    UnknownOperation,
    WireError,
)
from syft.ops.table import BY_NAME, NAMES
from syft.program.program import Action, Program, Slot
from syft.serde.limits import Limits
from syft.serde.packer import Packer
from syft.serde.registry import pack, unpack
from syft.serde.tensors.bundle import Bundle
from syft.workers.wire import messages
from syft.workers.core.pipeline import DECLARATIONS, HERE, Call, Declaration, handles
from syft.workers.core import state_machine
from syft.workers.core.peer import EVERYTHING, GRADIENTS, Peer
from syft.workers.core.descending import MAX_DEPTH, descend
from syft.workers.core.shares import StoredShare
from syft.workers.core.state_machine import Answer, WorkerCore
from syft.workers.labels.cell import guard_of, unsealed
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.wire.definitions import Group, InputKind
from syft.workers.wire.messages import (
    COUNT_SHIFT,
    GRAD_MODE,
    Cancel,
    Command,
    Describe,
    Done,
    Drop,
    Failure,
    Fetch,
    Forgotten,
    Parked,
    Skipped,
    Value,
)
from syft.workers.wire.references import REF
from syft.serde.frame import Frame
from tests.workers.core.peers import (
    ME,
    ask,
    command,
    error_in,
    lonely,
    put,
    ref,
    said,
    sent,
    sociable,
    value_in,
)
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


def test_the_attributes_of_a_worker_are_read_without_a_dictionary(core: WorkerCore) -> None:
    """CPython keeps those of an object beside it up to 29; with one more, all that read them on the
    way of an operation take longer."""
    assert len(vars(core)) < 30


def test_frames_and_errors_go_back_to_who_sent_them(core: WorkerCore) -> None:
    eve = Peer("eve")
    ((to, reply),) = sent(core, Fetch(9, 404), peer=eve)
    assert to is eve, "and not to somebody of that name"
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


def test_a_worker_without_a_handler_for_each_kind_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for kind in (messages.Relay, messages.Cancel):
        monkeypatch.delitem(WorkerCore.handlers, kind)
    with pytest.raises(HookError) as caught:
        lonely()
    assert str(caught.value) == "no handler for Cancel, Relay: import syft as a whole."


@pytest.mark.parametrize("wrong", [{}, {"reads": "id"}, {"reads": "id", "makes": "out, other"}])
def test_a_kind_is_declared_as_a_whole(
    wrong: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A field that may name an object is not left out, and none is named that is not there."""
    monkeypatch.delitem(WorkerCore.handlers, messages.Duplicate)
    with pytest.raises(HookError, match="Duplicate is declared without"):
        handles(messages.Duplicate, Declaration(**wrong))  # type: ignore[arg-type]
    assert messages.Duplicate not in WorkerCore.handlers


def test_every_kind_is_declared() -> None:
    assert set(DECLARATIONS) == set(WorkerCore.handlers) == set(get_args(messages.Request))


def test_what_makes_an_object_of_another_walks_through_it() -> None:
    making = {kind for kind, it in DECLARATIONS.items() if it.reads and it.makes}
    walking = {kind for kind, it in DECLARATIONS.items() if it.walks}
    assert making - walking == {messages.Start}, "its own handler asks, and tells the others"


@pytest.mark.parametrize("answer", [messages.Done(1), messages.Value(1, 5)], ids=type)
def test_an_answer_that_is_not_declared_is_an_error(
    answer: messages.Reply, core: WorkerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = Declaration(reads="id", answers=(messages.Value,), waits=False)
    monkeypatch.setitem(DECLARATIONS, messages.Describe, declared)
    monkeypatch.delitem(WorkerCore.handlers, messages.Describe)
    handles(messages.Describe, declared)(lambda call, message: answer)
    (reply,) = said(core, messages.encode(messages.Describe(1, 5)))
    error = error_in(reply)
    assert isinstance(error, HookError)
    bare = type(answer) is messages.Value
    assert f"answered with {'a bare value' if bare else 'Done'}" in str(error)


def _described_by(act: Any, declared: Declaration, monkeypatch: Any) -> None:
    """Let another handler serve ``Describe``."""
    monkeypatch.setitem(DECLARATIONS, messages.Describe, declared)
    monkeypatch.delitem(WorkerCore.handlers, messages.Describe)
    handles(messages.Describe, declared)(act)


@pytest.mark.parametrize("user", [None, "ann"])
@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("through", [True, False])
def test_no_number_of_something_private_leaves_by_a_handler_that_asks_nothing(
    through: bool, private: bool, user: str | None, core: WorkerCore, monkeypatch: Any
) -> None:
    """The controls: the same handler replies with the number to ann, and to all if it is public."""

    def act(call: Call, message: messages.Describe) -> Any:
        number = float(unsealed(call.unpacker().worker.resolve(message.id)).sum())
        return call.tell(number, lambda guard: False) if through else messages.Value(1, number)

    declared = Declaration(reads="id", answers=(messages.Value,), waits=False)
    _described_by(act, declared, monkeypatch)
    put(core, 77, torch.ones(2), users=("ann",) if private else None)
    (reply,) = said(core, messages.encode(messages.Describe(1, 77)), peer=Peer("me", user))
    if not through:
        assert isinstance(error_in(reply), HookError)
    elif private and user is None:
        assert isinstance(error_in(reply), PermissionDenied)
    else:
        assert reply == messages.Value(1, 2.0)


def _naive(call: Call, message: messages.Describe) -> Any:
    return call.hand_over(call.stored(message.id))


def _in_a_list(call: Call, message: messages.Describe) -> Any:
    return call.hand_over([1, (call.stored(message.id),)])


def _gradient(call: Call, message: messages.Describe) -> Any:
    value = torch.zeros(2, requires_grad=True)
    value.grad = call.stored(message.id)
    return call.hand_over(value)


def _past_the_labels(call: Call, message: messages.Describe) -> Any:
    packer = Packer()
    return Answer(messages.Value(1, pack(call.stored(message.id), packer)), packer.buffers)


_REFUSALS = {_gradient: TypeError, _past_the_labels: NotSendable}
"""The errors of those that do with a cell what is done with a tensor."""


@pytest.mark.parametrize("leaves", ["the caller", ""])
@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("act", [_naive, _in_a_list, _gradient, _past_the_labels])
def test_nothing_private_leaves_by_a_handler_that_asks_nothing(
    act: Any, private: bool, leaves: str, core: WorkerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the same handler replies with the same tensor if it is public."""
    declared = Declaration(reads="id", leaves=leaves, answers=(messages.Value,), waits=False)
    _described_by(act, declared, monkeypatch)
    put(core, 77, torch.ones(2), users=() if private else None)
    (reply,) = said(core, messages.encode(messages.Describe(1, 77)))
    if private:
        assert type(error_in(reply)) is _REFUSALS.get(act, PermissionDenied)
    elif act is _past_the_labels or not leaves:
        assert "Describe was answered with tensors" in str(error_in(reply))
    else:
        assert type(reply) is messages.Value


@pytest.mark.parametrize("user", [None, "ann"])
@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("places", [None, (), ("alice",)])
@pytest.mark.parametrize("through", [True, False])
def test_nothing_private_is_sent_on_by_a_handler_that_asks_nothing(
    through: bool, places: Any, private: bool, user: str | None, core: WorkerCore, monkeypatch: Any
) -> None:
    """The controls: the same handler sends it on for ann, and for all if it is public."""
    gone: list[Any] = []

    def act(call: Call, message: messages.Describe) -> Any:
        stored = call.stored(message.id)
        bare: Any = stored
        gone.append(call.to_send(stored, "send it") if through else bare * 1)
        return messages.Done(message.seq)

    to = None if places is None else lambda call: places
    declared = Declaration(reads="id", to=to, action="send it", waits=False)
    _described_by(act, declared, monkeypatch)
    put(core, 77, torch.ones(2), users=("ann",) if private else None)
    (reply,) = said(core, messages.encode(messages.Describe(1, 77)), peer=Peer("me", user))
    if not through:
        leaves = not private  # a cell is no tensor
    else:
        leaves = places is not None and (not private or (user == "ann" and places != ()))
    assert bool(gone) is leaves
    if not leaves and through:
        undeclared = places is None or places == ()
        error = error_in(reply)
        assert isinstance(error, HookError if undeclared else PermissionDenied)
        assert undeclared or "may not go to 'alice'" in str(error)


@pytest.mark.parametrize("user", [None, "ann"])
@pytest.mark.parametrize("private", [True, False])
def test_an_operand_that_is_private_is_nothing_to_a_handler_that_asks_nothing(
    private: bool, user: str | None, core: WorkerCore, monkeypatch: Any
) -> None:
    """The control: the same handler keeps what is public."""
    kept: list[Any] = []

    def act(call: Call, message: messages.Describe) -> Any:
        kept.append(unpack([REF, message.id], call.unpacker()) * 1)
        return messages.Done(message.seq)

    _described_by(act, Declaration(reads="id", waits=False), monkeypatch)
    put(core, 77, torch.ones(2), users=("ann",) if private else None)
    (reply,) = said(core, messages.encode(messages.Describe(1, 77)), peer=Peer("me", user))
    assert bool(kept) is (type(reply) is messages.Done) is not private


@pytest.mark.parametrize("only", ["", "alice", "eve"])
@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("places", [(), ("alice",), ("bob",), (HERE,), ("alice", "eve")])
def test_a_letter_goes_where_its_request_goes_and_nowhere_else(
    places: Any, private: bool, only: str, core: WorkerCore, monkeypatch: Any
) -> None:
    """Alice is named; a worker that is called as this one is, bob, may be another.  The controls:
    what is public goes."""

    def act(call: Call, message: messages.Describe) -> Any:
        guard = guard_of(call.stored(message.id))
        call.check_leaves(guard, "a letter", only=only)
        call.post(guard, "a letter", [("alice", (1,), partial(messages.Exchange, 7, 0, 0))], True)
        return messages.Done(message.seq)

    declared = Declaration(reads="id", to=lambda call: places, waits=False)
    _described_by(act, declared, monkeypatch)
    monkeypatch.setattr(core, "connect", lambda name: None)
    put(core, 77, torch.ones(2))
    if private:
        protect(core.store.open(77), Guard(frozenset(), destinations=frozenset(("alice",))))
        core.guard()
    letters = core.receive(Frame(messages.encode(messages.Describe(1, 77)), []), Peer("me", "eve"))
    (error,) = [
        error_in(found)
        for to, frame in letters
        if isinstance(to, Peer)
        and isinstance(found := messages.decode(frame.header), messages.Failure)
    ] or (None,)
    goes = not private or places in (("alice",), (HERE,)) and only in ("", *filter(None, places))
    assert (error is None) is goes and len(letters) == 1 + goes
    if error is not None:
        nowhere = not [place for place in places if only in ("", place)]
        assert type(error) is (HookError if nowhere else PermissionDenied)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("lost", [0, GRADIENTS, EVERYTHING])
def test_the_others_are_told_what_a_request_alters(
    lost: int, fails: bool, core: WorkerCore, monkeypatch: Any
) -> None:
    """And what it names is counted anew, if it may lie in other memory."""

    def act(call: Call, message: messages.Describe) -> Any:
        counted.clear()
        if fails:
            raise ValueError("half-way")
        return messages.Done(message.seq)

    ann, eve, counted = Peer("ann"), Peer("eve"), list[int]()
    put(core, 77, torch.ones(2), peer=ann)
    put(core, 78, torch.ones(2), peer=eve)
    monkeypatch.setattr(type(core.store.charges), "altered", lambda _, ids: counted.extend(ids))
    _described_by(act, Declaration(reads="id", waits=False, alters=lost), monkeypatch)
    said = sent(core, messages.Describe(1, 78), peer=eve)
    told = [(to, found) for to, found in said if type(found) is messages.Stale and to is not ME]
    assert told == ([(ann, messages.Stale(lost == GRADIENTS))] if lost else [])
    assert counted == ([78] if lost == EVERYTHING else [])
    assert type(said[-1][1]) is (Failure if fails else Done)


def test_which_kinds_alter_what_is_there() -> None:
    declared = {kind: one.alters for kind, one in DECLARATIONS.items() if one.alters}
    assert declared.keys() == {Command, messages.Run, messages.Relay, messages.ClearGradients}
    assert declared[messages.Relay] == EVERYTHING
    assert declared[messages.ClearGradients] == GRADIENTS


@pytest.mark.parametrize("user", [None, "ann"])
@pytest.mark.parametrize("private", [True, False])
def test_no_share_of_something_private_leaves_by_a_handler_that_asks_nothing(
    private: bool, user: str | None, core: WorkerCore, monkeypatch: Any
) -> None:
    """It is in no cell.  The controls: ann gets it, and all get one of public numbers."""

    def act(call: Call, message: messages.Describe) -> Any:
        share: Any = call.whole(message.id)
        return call.hand_over(share.value)

    declared = Declaration(reads="id", leaves="x", answers=(messages.Value,), waits=False)
    _described_by(act, declared, monkeypatch)
    share = StoredShare(cast(Any, None), torch.arange(2))
    protect(share, Guard(frozenset({"ann"})) if private else None)
    core.hold(77, share)
    (reply,) = said(core, messages.encode(messages.Describe(1, 77)), peer=Peer("me", user))
    assert (type(reply) is Value) is (not private or user == "ann")
    assert type(reply) is Value or isinstance(error_in(reply), PermissionDenied)


@pytest.mark.parametrize("kind", [messages.Fetch, messages.FetchAll])
def test_a_user_is_proved_even_where_nothing_is_private(kind: Any, core: WorkerCore) -> None:
    put(core, 77, torch.ones(2))
    about = 77 if kind is messages.Fetch else (77,)
    eve = Peer("me", "eve", users=["bea"])
    assert isinstance(error_in(ask(core, kind(1, about, user="ann"), peer=eve)), PermissionDenied)
    assert type(ask(core, kind(2, about, user="bea"), peer=eve)) is messages.Value


def test_nothing_of_a_bundle_comes_under_an_id_that_was_given_up(core: WorkerCore) -> None:
    """Not even where no request waits any more."""
    said(core, messages.encode(messages.Promise(1, (50,))))
    said(core, messages.encode(messages.GiveUp(2, 50, "the sensor broke")))
    packer = Packer()
    bundle = pack(Bundle([torch.ones(2), torch.ones(2)]), packer)
    message = messages.encode(messages.PutAll(3, 49, bundle))
    (reply,) = said(core, message, *packer.buffers)
    assert isinstance(error_in(reply), PromiseGivenUp)
    assert not {49, 50} & set(core.store.objects)


def test_a_kind_has_one_handler() -> None:
    with pytest.raises(HookError, match="Put has a handler already"):
        handles(messages.Put, DECLARATIONS[messages.Put])(lambda call, message: None)


@pytest.mark.parametrize(
    "reply",
    [sample for sample in SAMPLES if type(sample) in get_args(messages.Reply)],
    ids=lambda reply: type(reply).__name__,
)
def test_a_reply_in_the_place_of_a_request_changes_nothing(core: WorkerCore, reply: Any) -> None:
    park(core)
    (answer,) = said(core, messages.encode(reply))
    assert answer.seq == -1
    assert str(error_in(answer)) == "Malformed message at $[0]: expected a request, got a reply."
    assert state(core) == WHOLE and core.store.promised == {8, 9} and len(core.dataflow) == 1


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
                assert isinstance(reply, (Done, Value, Failure, Skipped, messages.Abort))
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


def park(core: WorkerCore) -> None:
    """Promise 8, and have a command that needs it wait; its result is 9."""
    ask(core, messages.Promise(1, (8,)))
    assert ask(core, command("torch.Tensor.add", ref(5), ref(8), out=9, seq=2)) == Parked(2, (8,))


@pytest.mark.parametrize("buffers", [None, [torch.ones(1)]], ids=["alone", "with buffers"])
def test_a_reply_that_no_message_can_carry_is_a_failure(
    core: WorkerCore, buffers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = messages.Value(7, object())
    reply = value if buffers is None else Answer(value, buffers)
    monkeypatch.setitem(state_machine._HANDLERS, Fetch, lambda *about: reply)
    failed = ask(core, Fetch(7, 3))
    assert failed.seq == 7 and "hidden" in str(error_in(failed)) or buffers is None
    monkeypatch.undo()
    assert type(error_in(ask(core, Fetch(8, 3)))) is ObjectNotFound


def test_clearing_forgets_everything(core: WorkerCore) -> None:
    park(core)
    assert len(core.dataflow) == 1
    core.clear("me cleared the worker")
    assert not core.store.objects and not core.dataflow.active and core.outgoing() == []
    for id in (5, 8, 9):
        error = error_in(ask(core, Fetch(3, id)))
        assert "me cleared the worker" in str(error)
    assert ask(core, Drop(4, (5, 404))) == Done(4)
    assert ask(core, Cancel(5, 2)) == Done(5), "what was parked is not there any more"


ONE_RESULT = 1 << COUNT_SHIFT


def run(number: int, define: Any, out: int, seq: int = 1) -> messages.Run:
    return messages.Run(seq, number, (5,), out, GRAD_MODE | ONE_RESULT, (), define)


def group(name: str) -> Any:
    """The definition of a group of one operation, as it travels."""
    action = Action(BY_NAME[name], (Slot(0),), {}, Slot(1))
    return pack(Group((InputKind.REFERENCE,), Program(1, (action,), (Slot(1),))), Packer())


def test_clearing_tells_each_connection_that_used_numbers(core: WorkerCore) -> None:
    ann, bea, eve = Peer("me", "ann"), Peer("me"), Peer("me")
    same = Peer("me", "cyd", ann.session)
    for index, peer in enumerate((ann, bea)):
        assert ask(core, run(0, group("torch.neg"), 100 + index), peer=peer) == Done(1)
    assert ask(core, run(0, group("torch.neg"), 103), peer=same) == Done(1)
    assert ask(core, Describe(1, 5), peer=eve).seq == 1
    core.clear("test")
    letters = core.outgoing()
    assert [messages.decode(frame.header) for _, frame in letters] == [Forgotten()] * 2
    told = {to.session for to, _ in letters if isinstance(to, Peer)}
    assert told == {ann.session, bea.session}, "once for each connection, whoever it speaks for"
    put(core, 5, torch.tensor([1.0, 2.0]))
    for peer in (ann, same, bea):
        error = error_in(ask(core, run(0, None, 110), peer=peer))
        assert "does not know what number 0 stands for" in str(error)
    core.clear("test")
    assert len(core.outgoing()) == 2, "they have used numbers again"
    core.clear("test")
    assert core.outgoing() == []


def test_a_connection_that_is_gone_is_not_remembered(core: WorkerCore) -> None:
    peer = Peer("me")
    ask(core, run(0, group("torch.neg"), 100), peer=peer)
    assert len(core.peers) == 1
    del peer
    assert len(core.peers) == 0
    core.clear("test")
    assert core.outgoing() == []


# ----------------------------------------------------------------- callers of one and the same name


def test_two_callers_of_one_name_have_numbers_of_their_own(core: WorkerCore) -> None:
    one, other = Peer("me"), Peer("me")
    assert ask(core, run(0, group("torch.neg"), 100), peer=one) == Done(1)
    error = error_in(ask(core, run(0, None, 101), peer=other))
    assert "does not know what number 0 stands for" in str(error)
    assert ask(core, run(0, group("torch.exp"), 102), peer=other) == Done(1)
    assert ask(core, run(0, None, 103), peer=one) == Done(1)
    assert core.store.open(103).tolist() == [-1, -2]


def test_failures_are_counted_for_each_connection(core: WorkerCore) -> None:
    one, other = Peer("me"), Peer("me")
    same = Peer("me", "ann", one.session)
    for count in (1, 2):
        error_in(ask(core, command("torch.Tensor.view", ref(5), 7, out=20), peer=one))
        assert (one.session.failures, other.session.failures) == (count, 0)
    assert ask(core, Describe(3, 5, failures=0), peer=other).seq == 3
    assert ask(core, Describe(3, 5, failures=0), peer=one) == Skipped(3)
    assert ask(core, Describe(3, 5, failures=1), peer=same) == Skipped(3)
    assert type(ask(core, Describe(3, 5, failures=2), peer=same)) is Value
    error_in(ask(core, Fetch(4, 404), peer=same))
    assert ask(core, Describe(3, 5, failures=2), peer=one) == Skipped(3)


# ------------------------------------------------------------------------ questions after a failure

QUESTIONS = [sample for sample in SAMPLES if "failures" in type(sample).__struct_fields__]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: type(question).__name__)
def test_a_question_after_a_failure_is_not_made(question: Any) -> None:
    core = sociable()
    peer = Peer("me")
    for id in (5, 8, 9):  # the samples name 9, and drop 8
        put(core, id, torch.tensor([1.0, 2.0]), peer=peer)
    core.store.promise(60)
    before = state(core)
    error_in(ask(core, command("torch.Tensor.view", ref(5), 7, out=20), peer=peer))
    for seen in (0, 2, 2**62):
        asked = msgspec.structs.replace(question, failures=seen)
        assert sent(core, asked, peer=peer) == [(peer, Skipped(question.seq))]
        assert state(core) == before and core.store.promised == {60}
        assert core.store.open(9).__dict__ == {} and peer.session.numbers is None
        assert not core.dataflow.tasks
    assert ask(core, Describe(1, 9, failures=1), peer=peer).seq == 1, "it was no failure"
    for seen in (1, None):
        asked = msgspec.structs.replace(question, failures=seen)
        replies = said(core, messages.encode(asked), peer=peer)
        assert replies and all(type(reply) is not Skipped for reply in replies)
        assert 8 not in core.store.objects or type(question) is messages.Run


# ---------------------------------------------------------------------------------- parked requests


def waiting(kind: type[messages.Message]) -> Any:
    """A request of a kind that works on the promised object 8, with the number 30."""
    made: dict[type[messages.Message], tuple[Any, ...]] = {
        Command: (BY_NAME["torch.Tensor.neg"], (ref(8),), 40, GRAD_MODE),
        messages.Run: (0, (8,), 40, GRAD_MODE | ONE_RESULT, (), group("torch.neg")),
        Fetch: (8,),
        messages.PutAll: (40, (int(TypeCode.BUNDLE), None, (), ())),
        messages.FetchAll: ((5, 8),),
        messages.Move: (8, "alice"),
        messages.Duplicate: (8, 40),
        messages.Convert: (8, 1, (int(TypeCode.TUPLE),), 40),
        messages.Start: (1, 99, ("bob", "alice"), 0, (ref(8),), (40,)),
        messages.Put: (7, pack(torch.empty(0, device="meta"), Packer())),
        Drop: ((8,),),
        messages.Search: ((),),
        messages.Allow: (8, ("bea",), 40),
        messages.Annotate: (8, ("#a",)),
        Describe: (8,),
        messages.Promise: ((40,),),
        messages.Relay: (8, None),
        messages.Holds: (8, b""),
        Cancel: (29,),
        messages.GiveUp: (8, "the sensor broke"),
        messages.Await: (8,),
        messages.Gradients: ((8,), 40),
        messages.ClearGradients: ((8,),),
    }
    return kind(30, *made[kind])


PARKING = [
    *(Command, messages.Run, Fetch, messages.FetchAll, messages.Move, messages.Duplicate),
    *(messages.Gradients, messages.ClearGradients, messages.Allow),
    *(messages.Convert, messages.Annotate, Describe, messages.Relay),
]
NUMBERED = [kind for kind in get_args(messages.Request) if kind.__struct_fields__[0] == "seq"]


@pytest.fixture
def host() -> WorkerCore:
    """Bob, who knows everybody, holds 5 and expects 8."""
    core = sociable()
    put(core, 5, torch.tensor([1.0, 2.0]))
    ask(core, messages.Promise(1, (8,)))
    return core


@pytest.mark.parametrize("kind", NUMBERED, ids=lambda kind: kind.__name__)
def test_what_waits_for_a_promise_says_so(host: WorkerCore, kind: type[messages.Message]) -> None:
    replies = sent(host, waiting(kind))
    if kind in PARKING or kind is messages.Start:
        assert replies == [(ME, Parked(30, (8,)))] and len(host.dataflow) == 1
    elif kind is messages.Await:
        assert replies == [(ME, Parked(30, (8,)))] and not host.dataflow.tasks
    else:
        assert [reply.seq for _, reply in replies] == [30]
        assert type(replies[0][1]) is not Parked and not host.dataflow.tasks


@pytest.mark.parametrize("kind", PARKING, ids=lambda kind: kind.__name__)
def test_what_is_parked_can_be_taken_back(host: WorkerCore, kind: type[messages.Message]) -> None:
    def unharmed() -> bool:
        return list(host.store.objects) == [5] and host.store.promised - {40} == {8}

    assert ask(host, waiting(kind)) == Parked(30, (8,))
    for stranger in (Peer("me"), Peer("me", "ann"), Peer("alice")):
        assert ask(host, Cancel(31, 30), peer=stranger) == Done(31)
    assert ask(host, Cancel(31, 29)) == Done(31) and ask(host, Cancel(31, -1)) == Done(31)
    assert len(host.dataflow) == 1 and unharmed()
    made = host.store.promised - {8}
    for _ in range(2):  # the second time there is nothing to take back
        assert ask(host, Cancel(32, 30)) == Done(32)
        assert not host.dataflow.tasks and host.store.promised == {8} and unharmed()
    for out in made:
        error = error_in(ask(host, Fetch(33, out)))
        assert isinstance(error, ObjectNotFound) and "took back the request" in str(error)
    packer = Packer()
    kept = messages.Put(34, 8, pack(torch.ones(2), packer))
    assert sent(host, kept, *packer.buffers) == [(ME, Done(34))], "it has no other reply"
    assert sorted(host.store.objects) == [5, 8] and not host.dataflow.active
    assert ask(host, Cancel(35, 34)) == Done(35), "too late"
    assert sorted(host.store.objects) == [5, 8]


def test_another_user_of_the_same_connection_may_take_back(host: WorkerCore) -> None:
    assert ask(host, waiting(Fetch)) == Parked(30, (8,))
    assert ask(host, Cancel(31, 30), peer=Peer("me", "ann", ME.session)) == Done(31)
    assert not host.dataflow.tasks


def test_what_needs_the_result_of_what_was_taken_back_fails(host: WorkerCore) -> None:
    assert ask(host, waiting(Command)) == Parked(30, (8,))
    assert ask(host, command("torch.Tensor.neg", ref(40), out=41, seq=31)) == Parked(31, (8,))
    (_, failure), (_, done) = sent(host, Cancel(32, 30))
    assert failure.seq == 31 and done == Done(32)
    assert isinstance(error_in(failure), ObjectNotFound) and ME.session.failures == 1


def test_the_parties_do_not_wait_for_a_start_that_was_taken_back(host: WorkerCore) -> None:
    """A part of a collective operation is aborted, or goes on; it is not left lying about."""
    assert ask(host, waiting(messages.Start)) == Parked(30, (8,))
    told = [(to, type(message)) for to, message in sent(host, Cancel(31, 30))]
    packer = Packer()
    kept = messages.Put(34, 8, pack(torch.ones(2), packer))
    told += [(to, type(message)) for to, message in sent(host, kept, *packer.buffers)]
    aborted = ("alice", messages.Abort) in told and not host.sessions and not host.store.promised
    assert aborted or ("alice", messages.Exchange) in told


def test_a_held_tensor_is_as_private_as_its_gradient() -> None:
    core = sociable()
    value = torch.ones(2, requires_grad=True)
    value.grad = torch.ones(2)
    protect(value, Guard(frozenset({"ann"})))
    core.hold(5, value)
    assert full_guard_of(value.grad) == full_guard_of(value) == Guard(frozenset({"ann"}))
