"""Programs by number at a bare core: what is checked, what is remembered, and what is private."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from syft.codes import TypeCode
from syft.exceptions import (
    HookError,
    LimitExceeded,
    MalformedMessage,
    ObjectIdTaken,
    ObjectNotFound,
    OtherPath,
    PermissionDenied,
    ProgramError,
)
from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.serde.errors import HIDDEN_TEXT
from syft.serde.frame import Frame
from syft.serde.limits import Limits
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.core.peer import Peer, Session
from syft.workers.core.state_machine import WorkerCore
from syft.workers.handlers.programs import prepares
from syft.workers.wire.references import expanded
from syft.workers.wire import messages, numbering
from syft.workers.wire.definitions import Group, InputKind, size_of
from syft.workers.wire.messages import (
    COUNT_SHIFT,
    GRAD_MODE,
    Cancel,
    Describe,
    Done,
    Failure,
    Fetch,
    Parked,
    Put,
    Run,
    Value,
)
from syft.workers.wire.numbering import NUMBERS
from tests.workers.core.peers import ME, ask, command, error_in, lonely, put, ref, sent, value_in

R, N, V = InputKind
ANN, EVE = Peer("ann", "ann"), Peer("eve", "eve")
_X, _Y, _Z = Slot(0), Slot(1), Slot(2)


def action(name: str, *args: Any, out: Any = None, **kwargs: Any) -> Action:
    return Action(BY_NAME[name], args, kwargs, out)


def group(kinds: tuple[InputKind, ...], *actions: Action, outputs: tuple[Any, ...]) -> Any:
    """The definition of a group, as it travels."""
    return pack(Group(kinds, Program(len(kinds), actions, outputs)), Packer())


def run(
    number: int,
    inputs: tuple[Any, ...],
    out: int = 100,
    define: Any = None,
    results: int = 1,
    **fields: Any,
) -> Run:
    flags = fields.pop("flags", GRAD_MODE) | results << COUNT_SHIFT
    return Run(9, number, inputs, out, flags, (), define, **fields)


DOUBLE = group((R,), action("torch.add", _X, _X, out=_Y), outputs=(_Y,))
SCALE = group((R, N), action("torch.mul", _X, _Y, out=_Z), outputs=(_Z,))
ADD_VALUE = group((R, V), action("torch.add", _X, _Y, out=_Z), outputs=(_Z,))
ITEM = group((R,), action("torch.Tensor.item", _X, out=_Y), outputs=(_Y,))


@pytest.fixture
def core() -> WorkerCore:
    core = lonely()
    ANN.session, EVE.session = Session(), Session()
    put(core, 5, torch.tensor([1.0, 2.0]), writers=("ann", "eve"))
    return core


def test_a_number_stands_for_what_it_was_defined_as(core: WorkerCore) -> None:
    assert ask(core, run(3, (5,), 100, DOUBLE)) == Done(9)
    assert ask(core, run(3, (5,), 101)) == Done(9)
    assert ask(core, run(3, (None,), 102)) == Done(9)  # the same object as the last time
    assert ask(core, run(4, (5, 0.5), 103, SCALE)) == Done(9)
    assert ask(core, run(4, (None, 3), 104)) == Done(9)
    assert ask(core, run(4, (100, None), 105)) == Done(9)
    found = [core.store.open(id).tolist() for id in range(100, 106)]
    assert found == [[2, 4], [2, 4], [2, 4], [0.5, 1], [3, 6], [6, 12]]
    assert core.stats.cache_hits == 4
    assert ask(core, run(3, (5, 0.5), 106, SCALE)) == Done(9)  # the number means something else now
    assert core.store.open(106).tolist() == [0.5, 1]


def test_numbers_belong_to_one_peer(core: WorkerCore) -> None:
    ask(core, run(0, (5,), 100, DOUBLE), peer=ANN)
    for peer in (EVE, Peer("me")):
        error = error_in(ask(core, run(0, (5,), 101), peer=peer))
        assert str(error) == (
            "worker 'bob' does not know what number 0 stands for; it may have been cleared: send "
            "the definition again"
        )
    packer = Packer()
    value = pack(torch.tensor([41.0, 42.0]), packer)
    ask(core, run(0, (5, value), 102, ADD_VALUE), *packer.buffers, peer=ANN)
    assert ask(core, run(0, (5, None), 103), peer=ANN) == Done(9)
    error = error_in(ask(core, run(0, (5, None), 104), peer=Peer("ann", "bea")))
    assert isinstance(error, ProgramError)  # nobody goes on from what another user sent


def test_a_value_is_kept_and_each_run_gets_a_copy(core: WorkerCore) -> None:
    writes = group(
        (R, V),
        action("torch.Tensor.add_", _Y, _X),
        outputs=(_Y,),
    )
    packer = Packer()
    value = pack(torch.tensor([10.0, 20.0]), packer)
    assert ask(core, run(0, (5, value), 100, writes), *packer.buffers) == Done(9)
    for out in (101, 102):
        assert ask(core, run(0, (None, None), out)) == Done(9)
    assert [core.store.open(id).tolist() for id in (100, 101, 102)] == [[11, 22]] * 3
    packer = Packer()
    value = pack(torch.tensor([1.0, 1.0]), packer)
    ask(core, run(0, (None, value), 103), *packer.buffers)  # one tensor replaced
    assert core.store.open(103).tolist() == [2, 3]


def test_numbers_come_back_with_the_reply(core: WorkerCore) -> None:
    both = group(
        (R,),
        action("torch.add", _X, _X, out=_Y),
        action("torch.sum", _Y, out=_Z),
        action("torch.Tensor.item", _Z, out=Slot(3)),
        outputs=(_Y, None, Slot(3)),
    )
    reply = ask(core, run(0, (5,), 100, both, 3))
    assert reply == Value(9, [int(TypeCode.TUPLE), [int(TypeCode.REF), 100], None, 6.0])
    assert 100 in core.store.objects and 101 not in core.store.objects


def test_what_is_wrong_is_named(core: WorkerCore) -> None:
    def error(message: Run, *buffers: torch.Tensor) -> str:
        failed = error_in(ask(core, message, *buffers))
        return f"{type(failed).__name__}: {failed}"

    other = pack(torch.ones(1), Packer())
    cases = [
        (run(NUMBERS, (5,), define=DOUBLE), "LimitExceeded", "NUMBERS is 1024, got 1024"),
        (run(-1, (5,), define=DOUBLE), "LimitExceeded", "got -1"),
        (run(7, (5,)), "ProgramError", "does not know what number 7 stands for"),
        (run(0, (5,), define=17), "MalformedMessage", "$.define: expected what a number can"),
        (run(0, (5,), define=(42, b"\x09", 0)), "MalformedMessage", "$.define.kinds"),
        (run(0, (5,), define=(42, b"\x00", 0)), "MalformedMessage", "a program, got an int"),
        (run(0, (5, 6), define=DOUBLE), "MalformedMessage", "$.inputs: expected 1 inputs, got 2"),
        (run(0, (None,), define=DOUBLE), "MalformedMessage", "nil, and nothing before it"),
        (run(0, (5.5,), define=DOUBLE), "MalformedMessage", "the id of an object"),
        (run(0, ([5],), define=DOUBLE), "MalformedMessage", "the id of an object"),
        (run(0, (5, "x"), define=SCALE), "MalformedMessage", "$.inputs[1]: expected a number"),
        (run(0, (5, True), define=SCALE), "MalformedMessage", "$.inputs[1]: expected a number"),
        (run(0, (5, None), define=ADD_VALUE), "MalformedMessage", "nothing before it"),
        (run(0, (5, (0, 5)), define=ADD_VALUE), "MalformedMessage", "got a reference"),
        (run(0, ("5", 1.0), define=ADD_VALUE), "MalformedMessage", "the id of an object"),
        (run(0, (5, other), define=ADD_VALUE), "MalformedMessage", "$.inputs[1].buffer"),
        (run(0, (6,), define=DOUBLE), "ObjectNotFound", "no object 6"),
        (run(0, (5,), 5, DOUBLE), "ObjectIdTaken", "an object 5"),
        (run(0, (5,), -1, DOUBLE), "MalformedMessage", "$.out"),
        (
            run(0, (), 2**63 - 1, (42, b"", (41, 0, 0, (), (), (2, None, None))), 2),
            "Malformed",
            "2 ids from",
        ),
        (run(0, (5,), define=DOUBLE, autocast=(("cpu", 1),)), "MalformedMessage", ".autocast[0]"),
    ]
    for message, kind, text in cases:
        shown = error(message)
        assert shown.startswith(kind) and text in shown, shown
    unused = torch.zeros(4, dtype=torch.uint8)
    assert "$.buffers[0]" in error(run(0, (5,), define=DOUBLE), unused)
    assert list(core.store.objects) == [5]
    assert ask(core, run(0, (5,), 100, DOUBLE)) == Done(9)


def test_a_definition_that_was_refused_leaves_no_meaning(core: WorkerCore) -> None:
    ask(core, run(0, (5,), 100, DOUBLE))
    ask(core, run(0, (5,), 101, (42, b"\x00", 0)))
    assert isinstance(error_in(ask(core, run(0, (5,), 102))), ProgramError)
    ask(core, run(0, (5, 2.0), 103, SCALE))
    ask(core, run(0, (5, "x"), 104))
    assert isinstance(error_in(ask(core, run(0, (5, 2.0), 105))), ProgramError)


def test_an_error_of_the_program_keeps_the_number(core: WorkerCore) -> None:
    put(core, 6, torch.ones(3))
    sums = group((R, R), action("torch.add", _X, _Y, out=_Z), outputs=(_Z,))
    failed = ask(core, run(0, (5, 6), 100, sums))
    assert type(error_in(failed)) is RuntimeError
    assert error_in(failed).__notes__ == ["In action 0, torch.add."]
    assert isinstance(_missing(core, 100), ObjectNotFound)
    assert ask(core, run(0, (5, 5), 101)) == Done(9)


def _missing(core: WorkerCore, id: int) -> Exception:
    try:
        core.store.open(id)
    except ObjectNotFound as error:
        assert "should have made it failed" in str(error)
        return error
    raise AssertionError("it is there")


def test_dropped_ids_come_as_ranges(core: WorkerCore) -> None:
    for id in range(10, 16):
        put(core, id, torch.ones(1))
    ask(core, Run(1, 0, (5,), 100, GRAD_MODE | 1 << COUNT_SHIFT, (10, (12, 3)), DOUBLE))
    assert sorted(core.store.objects) == [5, 11, 15, 100]
    for drop in ((1, 2**40), (1, -1)):
        with pytest.raises(MalformedMessage, match=r"\$\.drop"):
            expanded((7, drop))


def test_memory_is_bounded(core: WorkerCore, monkeypatch: pytest.MonkeyPatch) -> None:
    double = Program(1, (action("torch.add", _X, _X, out=_Y),), (_Y,))
    counted = size_of(double) + 1  # its input counts too
    monkeypatch.setattr(numbering, "MAX_ACTIONS", 10 * counted)
    for number in range(12):
        assert ask(core, run(number, (5,), 100 + number, DOUBLE)) == Done(9)
    table = ME.session.numbers
    assert list(table.entries) == list(range(2, 12)) and table.actions == 10 * counted
    monkeypatch.setattr(numbering, "MAX_BYTES", 150)
    for number in range(3):
        packer = Packer()
        value = pack(torch.ones(2), packer)
        message = run(number, (5, value), 200 + number, ADD_VALUE)
        assert ask(core, message, *packer.buffers) == Done(9)
    assert table.weight == 2 * (64 + 8)
    packer = Packer()
    value = pack(torch.ones(1000, 2), packer)
    assert ask(core, run(5, (5, value), 300, ADD_VALUE), *packer.buffers) == Done(9)
    assert "nothing before it" in str(error_in(ask(core, run(5, (5, None), 301))))


def test_a_promised_input_parks_it(core: WorkerCore) -> None:
    core.store.promise(6, by=ME.session, senders=("me",))
    three = group(
        (R, N),
        action("torch.mul", _X, _Y, out=_Z),
        action("torch.sum", _Z, out=Slot(3)),
        action("torch.Tensor.item", Slot(3), out=Slot(4)),
        outputs=(_Z, None, Slot(4)),
    )
    assert ask(core, run(0, (6, 2.0), 100, three, 3)) == Parked(9, (6,))
    assert core.store.promised == {6, 100, 102}
    packer = Packer()
    kept = Put(8, 6, pack(torch.ones(2), packer))
    replies = sent(core, kept, *packer.buffers)
    assert replies == [(ME, Value(9, [2, [0, 100], None, 4.0])), (ME, Done(8))]
    assert core.store.promised == set() and core.store.open(100).tolist() == [2, 2]
    core.store.promise(7, by=ME.session, senders=("me",))
    assert ask(core, run(0, (7, 2.0), 110, results=3)) == Parked(9, (7,))
    assert ask(core, Cancel(10, 9)) == Done(10)
    assert core.store.promised == {7} and not core.dataflow.tasks
    assert ask(core, run(0, (5, None), 120, results=3)) == Value(9, [2, [0, 120], None, 6.0])


def test_a_kind_of_definition_is_prepared_in_one_way() -> None:
    with pytest.raises(HookError, match="Group is prepared already"):
        prepares(Group)(lambda core, definition: None)  # type: ignore[arg-type, return-value]


def _frame(message: Any, *buffers: torch.Tensor) -> Frame:
    return Frame(messages.encode(message), list(buffers))


def test_results_take_no_ids_that_are_taken(core: WorkerCore) -> None:
    two = group(
        (R,),
        action("torch.neg", _X, out=_Y),
        action("torch.abs", _X, out=_Z),
        outputs=(_Y, _Z),
    )
    assert isinstance(error_in(ask(core, run(0, (5,), 4, two, 2))), ObjectIdTaken)
    assert sorted(core.store.objects) == [5]
    assert core.store.open(5).tolist() == [1, 2]


def test_what_is_wrong_the_second_time_is_named_too(core: WorkerCore) -> None:
    assert ask(core, run(0, (5,), 100, DOUBLE)) == Done(9)
    for inputs, out, kind, text in (
        ((5,), 5, ObjectIdTaken, "an object 5"),
        ((5,), -1, MalformedMessage, "$.out"),
        ((6,), 101, ObjectNotFound, "no object 6"),
    ):
        error = error_in(ask(core, run(0, inputs, out)))
        assert isinstance(error, kind) and text in str(error)
    without_grad = run(0, (5,), 102, flags=0)
    assert ask(core, without_grad) == Done(9)
    error = error_in(ask(core, run(0, (5, 5), 103)))
    assert isinstance(error, MalformedMessage) and "1 inputs, got 2" in str(error)
    assert sorted(core.store.objects) == [5, 100, 102]


def test_a_result_that_is_no_tensor_or_number_is_refused(core: WorkerCore) -> None:
    split = group(
        (R,),
        action("torch.neg", _X, out=_Y),
        action("torch.Tensor.split", _X, 1, out=_Z),
        outputs=(_Y, _Z),
    )
    for _ in range(2):
        error = error_in(ask(core, run(0, (5,), 100, split, 2)))
        assert isinstance(error, ProgramError) and "result 1 is a tuple: " in str(error)
        assert list(core.store.objects) == [5]
        _missing(core, 101)
        core.store.promise(9)  # the second time round it goes the way of what may have to wait
    echo = group((V,), outputs=(_X,))
    for value in ((3, 1, 2), "text", (8,)):
        error = error_in(ask(core, run(0, (value,), 110, echo)))
        assert isinstance(error, ProgramError) and "result 0 is a" in str(error)
    one = group((R,), action("torch.Tensor.split", _X, 1, out=_Y), outputs=(_Y,))
    core.store.promised.clear()
    for define in (one, None):
        assert isinstance(error_in(ask(core, run(1, (5,), 120, define))), ProgramError)


# ---------------------------------------------------------------------------------------- private


@pytest.fixture
def private(core: WorkerCore) -> WorkerCore:
    """A core where object 6 is for ann only."""
    put(core, 6, torch.tensor([3.0, -4.0]), users=("ann",), writers=("ann", "eve"))
    return core


def test_results_of_private_inputs_are_private(private: WorkerCore) -> None:
    two = group(
        (R, R),
        action("torch.add", _X, _Y, out=_Z),
        action("torch.neg", _X, out=Slot(3)),
        action("torch.Tensor.mul_", _X, 2),
        outputs=(_Z, Slot(3)),
    )
    assert ask(private, run(0, (5, 6), 100, two, 2), peer=EVE) == Done(9)
    assert isinstance(error_in(ask(private, Fetch(1, 100), peer=EVE)), PermissionDenied)
    assert value_in(private, Fetch(1, 101), peer=EVE).tolist() == [-1, -2]
    assert value_in(private, Fetch(1, 5), peer=EVE).tolist() == [2, 4]  # written to, not private
    assert value_in(private, Fetch(1, 100), peer=ANN).tolist() == [4, -2]


def test_what_is_written_from_private_values_is_private(private: WorkerCore) -> None:
    writes = group((R, R), action("torch.Tensor.add_", _X, _Y), outputs=())
    assert ask(private, run(0, (5, 6), 100, writes, 0), peer=EVE) == Done(9)
    assert isinstance(error_in(ask(private, Fetch(1, 5), peer=EVE)), PermissionDenied)


def test_revealing_ops_are_refused(private: WorkerCore) -> None:
    put(private, 7, torch.tensor(2.5), users=("ann",))
    assert isinstance(error_in(ask(private, run(0, (7,), 100, ITEM), peer=EVE)), PermissionDenied)
    assert ask(private, run(0, (7,), 100, ITEM), peer=ANN) == Value(9, [2, 2.5])
    shape = group((R,), action("torch.Tensor.dim", _X, out=_Y), outputs=(_Y,))
    assert ask(private, run(1, (6,), 110, shape), peer=EVE) == Value(9, [2, 1])


@pytest.mark.parametrize("as_program", [True, False])
@pytest.mark.parametrize("users, peer", [(("ann",), EVE), (("ann",), ANN), (None, EVE)])
def test_a_number_is_asked_about_once_more_when_it_leaves(
    as_program: bool, users: Any, peer: Peer, core: WorkerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operation that forgets its guard does not tell a number to those who may not read it."""

    def careless(core: WorkerCore, function: Any, args: Any, kwargs: Any, *about: Any) -> Any:
        return function(*args, **kwargs)

    for module in ("guarded_run", "commands"):
        monkeypatch.setattr(f"syft.workers.handlers.{module}.run_as_private", careless)
    put(core, 6, torch.ones(2), users=("ann",))
    put(core, 7, torch.tensor(2.5), users=users)
    asked = run(0, (7,), 100, ITEM) if as_program else command("torch.Tensor.item", ref(7), out=9)
    reply = ask(core, asked, peer=peer)
    if users and peer is EVE:
        assert isinstance(error_in(reply), PermissionDenied)
    else:
        assert isinstance(reply, Value) and reply.value in (2.5, [2, 2.5])


@pytest.mark.parametrize("is_private", [False, True])
def test_what_does_not_depend_on_a_failure_is_stored(is_private: bool) -> None:
    core = lonely()
    put(core, 5, torch.ones(2))
    put(core, 6, torch.ones(3))
    if is_private:
        put(core, 7, torch.ones(2), users=("ann",))
    for kept in ((_Z, Slot(3)), (Slot(3),)):
        steps = group(
            (R, R),
            action("torch.add", _X, _Y, out=_Z),
            action("torch.mul", _X, 2, out=Slot(3)),
            outputs=kept,
        )
        first = 100 * len(kept)
        reply = ask(core, run(0, (5, 6), first, steps, len(kept)), peer=EVE)
        assert "must match" in str(error_in(reply)) and reply.action == 0
        assert value_in(core, Fetch(9, first + len(kept) - 1), EVE).tolist() == [2, 2]
    assert type(error_in(ask(core, Fetch(9, 200), peer=EVE))) is ObjectNotFound


def test_errors_of_private_data_are_hidden(private: WorkerCore) -> None:
    fails = group(
        (R, R),
        action("torch.mul", _X, _X, out=_Z),
        action("torch.add", _Z, _Y, out=Slot(3)),
        action("torch.Tensor.view", _X, 7, out=Slot(4)),
        outputs=(Slot(3), Slot(4)),
    )
    error = error_in(ask(private, run(0, (5, 6), 100, fails, 2), peer=EVE))
    assert str(error) == HIDDEN_TEXT and not getattr(error, "__notes__", [])
    error = error_in(ask(private, run(0, (5, 6), 100, fails, 2), peer=ANN))
    assert "view" in str(error) or "invalid" in str(error)
    public = error_in(ask(private, run(0, (5, 5), 200, fails, 2), peer=EVE))
    assert "invalid" in str(public)
    counted = group((R,), action("torch.unbind", _X, out=(_Y,)), outputs=(_Y,))
    error = error_in(ask(private, run(1, (6,), 300, counted), peer=EVE))
    assert str(error) == HIDDEN_TEXT


def test_a_number_taken_from_a_private_value_taints_what_follows(private: WorkerCore) -> None:
    put(private, 7, torch.tensor(2.5), users=("ann",))
    launder = group(
        (R, R),
        action("torch.Tensor.item", _X, out=_Z),
        action("torch.mul", _Y, _Z, out=Slot(3)),
        action("torch.full", (2,), _Z, out=Slot(4)),
        outputs=(Slot(3), Slot(4)),
    )
    assert ask(private, run(0, (7, 5), 100, launder, 2), peer=ANN) == Done(9)
    for id in (100, 101):
        assert isinstance(error_in(ask(private, Fetch(1, id), peer=EVE)), PermissionDenied)
    assert value_in(private, Fetch(1, 100), peer=ANN).tolist() == [2.5, 5]


def test_a_shape_that_follows_from_a_number_that_was_taken_is_hidden(private: WorkerCore) -> None:
    put(private, 7, torch.tensor(3), users=("ann",))
    launder = group(
        (R,),
        action("torch.Tensor.item", _X, out=_Y),
        action("torch.zeros", (_Y,), out=_Z),
        outputs=(_Z,),
    )
    assert ask(private, run(0, (7,), 100, launder), peer=ANN) == Done(9)
    assert value_in(private, Describe(1, 100), peer=EVE)[2] is None
    size = ask(private, command("torch.Tensor.size", ref(100)), peer=EVE)
    assert isinstance(error_in(size), PermissionDenied)
    assert value_in(private, Fetch(1, 100), peer=ANN).tolist() == [0, 0, 0]


def test_taints_meet(private: WorkerCore) -> None:
    put(private, 7, torch.tensor(2.5), users=("ann", "bea"))
    put(private, 8, torch.tensor(0.5), users=("ann", "cyd"))
    both = group(
        (R, R),
        action("torch.Tensor.item", _X, out=_Z),
        action("torch.Tensor.item", _Y, out=Slot(3)),
        action("torch.full", (2,), _Z, out=Slot(4)),
        outputs=(Slot(4),),
    )
    assert ask(private, run(0, (7, 8), 100, both), peer=ANN) == Done(9)
    for name in ("bea", "cyd"):
        reply = ask(private, Fetch(1, 100), peer=Peer(name, name))
        assert isinstance(error_in(reply), PermissionDenied)
    assert value_in(private, Fetch(1, 100), peer=ANN).tolist() == [2.5, 2.5]


def _branch() -> Any:
    first = Program(1, (action("torch.neg", _X, out=_Y),), (_Y,))
    second = Program(1, (), (_X,))
    cond = action("syft.ops.control.cond", _X, first, second, (_Y,), out=(_Z,))
    return group((R, R), cond, outputs=(_Z,))


def _loop() -> Any:
    test = Program(1, (action("torch.sum", _X, out=_Y), action("torch.lt", _Y, 9, out=_Z)), _Z)
    body = Program(1, (action("torch.mul", _X, 2, out=_Y),), (_Y,))
    loop = action("syft.ops.control.while_loop", test, body, (_X,), out=(_Y,))
    return group((R,), loop, outputs=(_Y,))


def test_branches_do_not_decide_by_private_values(private: WorkerCore) -> None:
    put(private, 7, torch.tensor(True), users=("ann",))
    put(private, 8, torch.tensor(False))
    refused = error_in(ask(private, run(0, (7, 5), 100, _branch()), peer=EVE))
    assert isinstance(refused, PermissionDenied) and "branch" in str(refused)
    assert ask(private, run(0, (8, 6), 101, _branch()), peer=EVE) == Done(9)
    assert isinstance(error_in(ask(private, Fetch(1, 101), peer=EVE)), PermissionDenied)
    assert ask(private, run(0, (8, 5), 102, _branch()), peer=EVE) == Done(9)
    assert value_in(private, Fetch(1, 102, keep=True), peer=EVE).tolist() == [1, 2]
    assert ask(private, run(0, (7, 5), 103, _branch()), peer=ANN) == Done(9)
    chosen = error_in(ask(private, Fetch(1, 103), peer=EVE))
    assert isinstance(chosen, PermissionDenied), "which one it is follows from a private value"
    assert value_in(private, Fetch(1, 5, keep=True), peer=EVE).tolist() == [1, 2]
    put(private, 9, torch.tensor(False), users=("ann",))
    assert ask(private, run(0, (9, 5), 104, _branch()), peer=ANN) == Done(9)
    assert private.store.objects[104] is not private.store.objects[5], "chosen as it was"
    assert isinstance(error_in(ask(private, Fetch(1, 104), peer=EVE)), PermissionDenied)
    assert value_in(private, Fetch(1, 103), peer=ANN).tolist() == [-1, -2]


def test_nothing_decides_by_a_container(private: WorkerCore) -> None:
    cond = action(
        "syft.ops.control.cond", _Y, Program(0, (), (1,)), Program(0, (), (0,)), (), out=(_Z,)
    )
    parts = group((R,), action("torch.unbind", _X, out=_Y), cond, outputs=(_Z,))
    for peer in (ANN, EVE):
        error = error_in(ask(private, run(0, (5,), 100, parts), peer=peer))
        assert isinstance(error, ProgramError) and "decide by a tuple" in str(error)
    error = error_in(ask(private, run(0, (6,), 100, parts), peer=EVE))
    assert str(error) == HIDDEN_TEXT


def test_how_many_parts_a_hidden_shape_has_is_hidden(private: WorkerCore) -> None:
    ask(private, command("torch.Tensor.nonzero", ref(6), out=20), peer=EVE)
    parts = group((R,), action("torch.unbind", _X, out=(_Y, _Z)), outputs=(_Y, _Z))
    for message in (command("torch.Tensor.unbind", ref(20), out=21), run(0, (20,), 30, parts, 2)):
        assert isinstance(error_in(ask(private, message, peer=EVE)), PermissionDenied)
    assert sorted(private.store.objects) == [5, 6, 20]
    assert type(ask(private, command("torch.Tensor.unbind", ref(20), out=21), peer=ANN)) is Value
    assert ask(private, run(0, (20,), 30, parts, 2), peer=ANN) == Done(9)


def test_loops_do_not_decide_by_private_values(private: WorkerCore) -> None:
    refused = error_in(ask(private, run(0, (6,), 100, _loop()), peer=EVE))
    assert isinstance(refused, PermissionDenied) and "branch" in str(refused)
    assert ask(private, run(0, (5,), 101, _loop()), peer=EVE) == Done(9)
    assert value_in(private, Fetch(1, 101), peer=EVE).tolist() == [4, 8]


def _hours(levels: int) -> Any:
    """Loops in loops that take a few bytes to send, and hours to run."""
    below = (action("syft.ops.numbers.sub", _X, 1, out=_Y), _Y)
    for _ in range(levels):
        step, value = below
        test, body = Program(1, (), _X), Program(1, (step,), (value,))
        loop = action("syft.ops.control.while_loop", test, body, (1000,), out=None)
        below = (loop, _X)
    return group((R,), below[0], outputs=(_X,))


def test_loops_in_loops_end(private: WorkerCore) -> None:
    for core in (lonely(), private):
        core.limits = Limits(max_steps=5000)
        put(core, 20, torch.ones(1))
        assert ask(core, run(0, (20,), 100, _hours(1))) == Done(9)
        assert ask(core, run(1, (20,), 101, _hours(1))) == Done(9)  # each run has its own steps
        for levels in (2, 5):
            endless = error_in(ask(core, run(2, (20,), 110, _hours(levels))))
            assert type(endless) is ProgramError and "more than 5000 steps" in str(endless)


def test_gradients_of_private_losses_are_private(private: WorkerCore) -> None:
    step = group(
        (R, R),
        action("torch.mul", _X, _Y, out=_Z),
        action("torch.sum", _Z, out=Slot(3)),
        action("torch.Tensor.backward", Slot(3)),
        action("torch.Tensor.grad.__get__", _X, out=Slot(4)),
        outputs=(Slot(4),),
    )
    for id, other, secret in ((20, 6, True), (21, 5, False)):
        put(private, id, torch.ones(2, requires_grad=True), peer=EVE)
        assert ask(private, run(0, (id, other), 200 + id, step), peer=EVE) == Done(9)
        reply = ask(private, Fetch(1, 200 + id, keep=True), peer=EVE)
        assert (type(reply) is Failure) == secret


@pytest.mark.parametrize("other", [5, 6])
def test_a_gradient_retained_inside_a_program_is_as_private(
    private: WorkerCore, other: int
) -> None:
    step = group(
        (R, R),
        action("torch.mul", _X, 1.0, out=_Z),
        action("torch.Tensor.retain_grad", _Z),
        action("torch.mul", _Z, _Y, out=Slot(3)),
        action("torch.sum", Slot(3), out=Slot(4)),
        action("torch.Tensor.backward", Slot(4)),
        action("torch.Tensor.grad.__get__", _Z, out=Slot(5)),
        outputs=(Slot(5),),
    )
    put(private, 20, torch.ones(2, requires_grad=True), peer=EVE)
    assert ask(private, run(0, (20, other), 100, step), peer=EVE) == Done(9)
    reply = ask(private, Fetch(1, 100, keep=True), peer=EVE)
    assert (type(reply) is Failure) == (other == 6)
    expected = private.store.open(other)
    assert torch.equal(value_in(private, Fetch(1, 100), peer=ANN), expected)


# ------------------------------------------------------------------------------------ hostile ones

_LEAF = st.none() | st.booleans() | st.integers(-5, 2000) | st.floats() | st.text(max_size=3)
_NESTED = st.recursive(
    _LEAF | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4).map(tuple)
    | st.tuples(st.sampled_from([0, 2, 3, 32, 40, 41, 42, 43]), inner, inner),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.integers(-2, 1030), st.lists(_NESTED, max_size=3), st.integers(), _NESTED)
def test_no_message_harms_the_worker(number: int, inputs: list[Any], out: int, define: Any) -> None:
    core = lonely()
    put(core, 5, torch.ones(2))
    if not -(2**63) <= out < 2**63:
        out = 7
    (reply,) = core.receive(_frame(run(number, tuple(inputs), out, define)), Peer("me"))
    assert core.store.objects[5].tolist() == [1, 1]
    assert isinstance(reply, tuple)


def test_the_limits_name_what_is_over() -> None:
    with pytest.raises(LimitExceeded, match="NUMBERS is 1024"):
        numbering.check_number(NUMBERS)


@pytest.mark.parametrize("is_private", [False, True])
def test_what_a_program_expects_of_a_size_is_checked_here(is_private: bool) -> None:
    core = lonely()
    users = ("ann",) if is_private else None
    put(core, 5, torch.tensor([1.0, 2.0]), users=users, writers=("eve",))
    put(core, 6, torch.tensor([1.0, 2.0, 3.0]), users=users, writers=("eve",))
    doubled_pair = group(
        (R,),
        action("torch.Tensor.size", _X, 0, out=_Y),
        action("syft.ops.numbers.expect", "same", _Y, 2, True),
        action("torch.add", _X, _X, out=_Z),
        outputs=(_Z,),
    )
    assert ask(core, run(3, (5,), 100, doubled_pair), peer=EVE) == Done(9)
    error = error_in(ask(core, run(3, (6,), 101), peer=EVE))
    assert type(error) is OtherPath and 101 not in core.store.objects
