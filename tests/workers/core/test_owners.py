"""Who may change what at a worker: every kind of request, by whose the objects are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from msgspec import structs

import syft as sy
from syft.codes import ConversionCode
from syft.exceptions import MalformedMessage, ObjectIdTaken, PermissionDenied
from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.serde.tensors.bundle import Bundle
from syft.workers.core.peer import Peer, Session
from syft.workers.core.state_machine import WorkerCore
from syft.workers.labels.memory_labels import full_guard_of
from syft.workers.labels.memory_owners import leaf_owners, mark
from syft.workers.labels.origin import ObjectOrigin, set_writers, writers_of
from syft.workers.wire.definitions import Group, InputKind
from syft.workers.wire.messages import (
    COUNT_SHIFT,
    GRAD_MODE,
    Abort,
    Allow,
    Annotate,
    Await,
    Cancel,
    ClearGradients,
    Command,
    Convert,
    Describe,
    Done,
    Drop,
    Duplicate,
    Exchange,
    Failure,
    Fetch,
    FetchAll,
    GiveUp,
    Gradients,
    Holds,
    Message,
    Move,
    Parked,
    Promise,
    Put,
    PutAll,
    Relay,
    Request,
    Run,
    Search,
    Share,
    Start,
    Value,
)
from tests.shells.owner import inspect
from tests.workers.core.peers import (
    ask,
    command,
    error_in,
    put,
    ref,
    said,
    sent,
    sociable,
    value_in,
)

MAKER, NAMED, EVE = Peer("maker"), Peer("laptop", "named"), Peer("eve", "eve")
BOSS = Peer("bob", is_owner=True)
X, OTHER, OUT = 5, 6, 100
"""The object that everybody reaches for, one of whoever asks, and an id for results."""


class Sink:
    """A connection to another worker, which takes everything."""

    def __init__(self) -> None:
        self.garbage: list[int] = []
        self.put_there: list[tuple[int, Any]] = []

    def put(self, value: Any, id: int, guard: Any = None, writers: Any = ()) -> int:
        self.put_there.append((id, tuple(writers)))
        return id

    def ask(self, kind: Any, *fields: Any, **named: Any) -> Any:
        return None


def worker(held: bool) -> WorkerCore:
    """A core where ``X`` is the maker's, or is held by the worker's owner, and NAMED is named."""
    core = sociable()
    sink = Sink()
    core.connect = lambda other: sink  # type: ignore[assignment,return-value]
    for peer in (MAKER, NAMED, EVE, BOSS):
        peer.session = Session()
    value = torch.tensor([1.0, 2.0], requires_grad=True)
    value.grad = torch.tensor([5.0, 6.0])
    if held:
        core.hold(X, value)
        core.own(X, ("named",))
    else:
        put(core, X, value, peer=MAKER, writers=("named",))
    put(core, 20, torch.ones(2), peer=MAKER)
    return core


def group_of(action: Action, inputs: int) -> Any:
    kinds = (InputKind.REFERENCE,) * inputs
    return pack(Group(kinds, Program(inputs, (action,), ())), Packer())


def a_write() -> Message:
    write = Action(BY_NAME["torch.Tensor.add_"], (Slot(0), 1.0), {}, None)
    return Run(1, 0, [X], OUT, 0, define=group_of(write, 1))


def an_exchange() -> Message:
    return Exchange(1, 0, 0, ((32, 0, (0,), None, 0),))


ANYBODY, CHANGING, NOBODY_ELSE = "anybody", "those who may change it", "the connection that made it"

ROWS: list[tuple[Callable[[], Message], str]] = [
    (lambda: command("torch.Tensor.add_", ref(X), 1.0, flags=0), CHANGING),
    (
        lambda: command("torch.add", ref(OTHER), 1.0, out=0, flags=0, kwargs={"out": ref(X)}),
        CHANGING,
    ),
    (lambda: command("torch.Tensor.data.__set__", ref(X), ref(OTHER)), CHANGING),
    (lambda: command("torch.Tensor.grad.__set__", ref(X), None), CHANGING),
    (lambda: command("torch.Tensor.requires_grad_", ref(X), False), CHANGING),
    (lambda: command("torch.Tensor.copy_", ref(X), ref(OTHER), flags=0), CHANGING),
    (lambda: command("torch._foreach_zero_", [69, X, OTHER], flags=0), CHANGING),
    (lambda: command("torch._foreach_zero_", [69, OTHER, X], flags=0), CHANGING),
    (lambda: command("torch.nn.functional.relu", ref(X), True, out=OUT, flags=8), CHANGING),
    (
        lambda: command(
            "torch.nn.functional.relu", ref(X), out=OUT, flags=8, kwargs={"inplace": True}
        ),
        CHANGING,
    ),
    (lambda: command("torch.nn.functional.relu", ref(X), out=OUT, flags=8), ANYBODY),
    (lambda: command("torch.Tensor.add_", ref(OTHER), ref(X), flags=0), ANYBODY),
    (lambda: command("torch._foreach_mul_", [69, OTHER], [3, 2.0], flags=0), ANYBODY),
    (lambda: command("torch._foreach_mul_", [69, X], [3, 2.0], flags=0), CHANGING),
    (lambda: command("torch.Tensor.view", ref(X), [3, 2, 1], out=OUT, flags=8), ANYBODY),
    (lambda: command("torch.Tensor.add", ref(X), 1.0, out=OUT, flags=9), ANYBODY),
    (a_write, CHANGING),
    (lambda: ClearGradients(1, (OTHER, X)), CHANGING),
    (lambda: Gradients(1, (X,), OUT), ANYBODY),
    (lambda: Annotate(1, X, ("#mine",), "mine"), CHANGING),
    (lambda: Move(1, X, "alice"), CHANGING),
    (lambda: Relay(1, X, "alice"), CHANGING),
    (lambda: GiveUp(1, 30, "no more"), NOBODY_ELSE),
    (lambda: Fetch(1, X, keep=True), ANYBODY),
    (lambda: FetchAll(1, (X,), keep=True), ANYBODY),
    (lambda: Duplicate(1, X, OUT), ANYBODY),
    (
        lambda: Convert(1, X, int(ConversionCode.FIX_PRECISION), pack((), Packer()), OUT),
        ANYBODY,
    ),
    (lambda: Describe(1, X), ANYBODY),
    (lambda: Search(1, ()), ANYBODY),
    (lambda: Holds(1, X, b"\x01" * 32), ANYBODY),
    (lambda: Await(1, X), ANYBODY),
    (lambda: Promise(1, (OUT,)), ANYBODY),
    (lambda: Cancel(1, 5), ANYBODY),
]
"""A request of each kind, and whose it may be."""

ROWS_ELSEWHERE = {
    Put: "test_an_object_that_is_there_is_not_replaced",
    PutAll: "test_an_object_that_is_there_is_not_replaced",
    Drop: "test_who_may_take_an_object_away",
    Allow: "test_who_may_let_others_read",
    Share: "test_rights_are_passed_on_by_those_who_have_them",
    Start: "test_a_collective_operation_reads_its_inputs",
    Exchange: "test_a_collective_operation_reads_its_inputs",
    Abort: "test_a_collective_operation_reads_its_inputs",
}
"""The tests of the kinds that ask for more than one line."""


def test_every_kind_of_request_has_a_row() -> None:
    kinds = {type(row()) for row, _ in ROWS}
    assert kinds | set(ROWS_ELSEWHERE) == set(get_args(Request)) and not kinds & set(ROWS_ELSEWHERE)
    assert all(name in globals() for name in ROWS_ELSEWHERE.values())


def state(core: WorkerCore) -> tuple[Any, ...]:
    """What somebody might have changed."""
    value = core.store.objects[X]
    return (
        value.detach().tolist(),
        None if value.grad is None else value.grad.tolist(),
        value.requires_grad,
        value.__dict__.get("_tags"),
        sorted(core.store.objects),
        full_guard_of(value),
    )


@pytest.mark.parametrize("waiting", [False, True])
@pytest.mark.parametrize("held", [False, True], ids=["made", "held"])
@pytest.mark.parametrize("peer", [MAKER, NAMED, BOSS, EVE], ids=["maker", "named", "boss", "eve"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: type(row[0]()).__name__)
def test_who_may_do_what(
    row: tuple[Callable[[], Message], str], peer: Peer, held: bool, waiting: bool
) -> None:
    core = worker(held)
    ask(core, Promise(1, (30, 31)), peer=MAKER)
    if not waiting:
        ask(core, Drop(1, (30, 31)), peer=MAKER)
    put(core, OTHER, torch.zeros(2), peer=peer)
    before = state(core)
    message, whose = row[0](), row[1]
    if whose is NOBODY_ELSE:
        may = peer is MAKER and (waiting if type(message) is GiveUp else not held)
    else:
        may = whose is ANYBODY or peer in (NAMED, BOSS) or (peer is MAKER and not held)
    reply = ask_last(core, message, peer)
    assert (type(reply) is not Failure) is may, reply
    if may:
        return
    error = error_in(reply)
    if whose is CHANGING:
        assert type(error) is PermissionDenied and error.id == X
        assert error.owner == (None if held else "maker")
        assert error.user == peer.identity
    assert state(core) == before


def ask_last(core: WorkerCore, message: Message, peer: Peer) -> Any:
    return [reply for to, reply in sent(core, message, peer=peer) if to is peer][-1]


@pytest.mark.parametrize("held", [False, True], ids=["made", "held"])
def test_who_may_take_an_object_away(held: bool) -> None:
    for peer, may in ((EVE, False), (NAMED, True), (BOSS, True), (MAKER, not held)):
        for message in (Fetch(1, X), FetchAll(1, (X,))):
            core = worker(held)
            (fetched,) = [value_in(core, message, peer=peer)]
            value = fetched[0] if type(message) is FetchAll else fetched
            assert value.tolist() == [1, 2], "everybody may read it"
            taken = X not in core.store.objects
            assert taken is (may and not (held and type(message) is FetchAll))
        core = worker(held)
        ask(core, Drop(1, (X,)), peer=peer)
        assert (X in core.store.objects) is (held or not may), "what the owner holds is kept"
        core = worker(held)
        ask(core, command("torch.zeros", 2, out=OUT, flags=9, drop=(X,)), peer=peer)
        assert (X in core.store.objects) is (held or not may)


def test_an_object_that_is_there_is_not_replaced() -> None:
    core = worker(held=False)
    for peer in (EVE, MAKER, BOSS):
        assert type(put(core, X, torch.zeros(2), peer=peer)) is Failure
        packer = Packer()
        message = PutAll(1, 4, pack(Bundle([torch.zeros(2)] * 2), packer))
        assert type(ask(core, message, *packer.buffers, peer=peer)) is Failure
    assert core.store.objects[X].tolist() == [1, 2]


def test_rights_are_passed_on_by_those_who_have_them() -> None:
    add = command("torch.Tensor.add_", ref(X), 1.0, flags=0)
    core = worker(held=False)
    assert said(core, b"\x93\x1b\x05\x91\xa3eve", peer=EVE) == []
    assert type(ask(core, add, peer=EVE)) is Failure, "nobody names himself"
    assert sent(core, Share(404, ("eve",)), peer=EVE) == []
    assert sent(core, Share(X, ("eve",)), peer=NAMED) == []
    assert ask(core, add, peer=EVE) == Done(1)
    assert sent(core, Share(X, ("zoe",)), peer=EVE) == []
    assert ask(core, add, peer=Peer("zoe")) == Done(1)
    ask(core, Promise(1, (40,)), peer=MAKER)
    assert sent(core, Share(40, ("eve",)), peer=MAKER) == []
    assert type(ask(core, command("torch.Tensor.add_", ref(40), 1.0, flags=0), peer=EVE)) is Parked


def test_a_collective_operation_reads_its_inputs() -> None:
    core = worker(held=True)
    value = core.store.objects[X]
    message = Start(1, 1, 7, ("bob",), 0, (ref(X),), (OUT,))
    assert ask(core, message, peer=EVE) == Done(1)
    assert value.tolist() == [1, 2] and core.store.objects[OUT].tolist() == [1, 2]
    assert ask(core, command("torch.Tensor.add_", ref(OUT), 1.0, flags=0), peer=EVE) == Done(1)
    assert value.tolist() == [1, 2]
    assert type(ask(core, command("torch.Tensor.add_", ref(OUT), 1.0), peer=MAKER)) is Failure


# ------------------------------------------------------------------------------------------ memory

SAME_MEMORY: dict[str, Callable[[int, int], Message]] = {
    "a view": lambda x, out: command("torch.Tensor.view", ref(x), -1, out=out, flags=8),
    "a part": lambda x, out: command("torch.Tensor.narrow", ref(x), 0, 0, 1, out=out, flags=8),
    "detached": lambda x, out: command("torch.Tensor.detach", ref(x), out=out, flags=8),
    "itself": lambda x, out: command("torch.Tensor.contiguous", ref(x), out=out, flags=8),
    "its data": lambda x, out: command("torch.Tensor.data.__get__", ref(x), out=out, flags=8),
    "its gradient": lambda x, out: command("torch.Tensor.grad.__get__", ref(x), out=out, flags=8),
    "its gradient, asked for with others": lambda x, out: Gradients(1, (x,), out),
    "several": lambda x, out: command("torch.Tensor.split", ref(x), 2, out=out, flags=8 + 4),
    "a group": lambda x, out: Run(
        1,
        3,
        [x],
        out,
        1 << COUNT_SHIFT,
        define=pack(
            Group(
                (InputKind.REFERENCE,),
                Program(
                    1,
                    (Action(BY_NAME["torch.Tensor.view"], (Slot(0), -1), {}, Slot(1)),),
                    (Slot(1),),
                ),
            ),
            Packer(),
        ),
    ),
}


@pytest.mark.parametrize("waiting", [False, True])
@pytest.mark.parametrize("held", [False, True], ids=["made", "held"])
@pytest.mark.parametrize("way", SAME_MEMORY)
def test_what_lies_in_others_memory_is_not_written(way: str, held: bool, waiting: bool) -> None:
    core = worker(held)
    if waiting:
        ask(core, Promise(1, (30,)), peer=MAKER)
    value = core.store.objects[X]
    made = SAME_MEMORY[way]
    assert type(ask(core, made(X, OUT), peer=EVE)) is not Failure
    assert type(ask(core, made(OUT, 101), peer=EVE)) is not Failure or "grad" in way
    for id in (OUT, 101) if "grad" not in way else (OUT,):
        error = error_in(ask(core, command("torch.Tensor.zero_", ref(id), flags=0), peer=EVE))
        assert type(error) is PermissionDenied and error.id == id
        assert error.owner == (None if held else "maker")
    assert value.tolist() == [1, 2] and value.grad.tolist() == [5, 6]
    assert value_in(core, Fetch(1, OUT), peer=EVE) is not None, "the object itself is eve's"
    assert OUT not in core.store.objects


@pytest.mark.parametrize("held", [False, True], ids=["made", "held"])
def test_a_number_that_was_run_before_is_under_the_same_rules(held: bool) -> None:
    core = worker(held)
    core.store.objects[X].requires_grad_(False)
    core.store.objects[X].grad = None
    put(core, OTHER, torch.ones(2), peer=EVE)
    view = SAME_MEMORY["a group"](OTHER, OUT)
    mode = GRAD_MODE if torch.is_grad_enabled() else 0
    flags = (1 << COUNT_SHIFT) | mode
    assert type(ask(core, structs.replace(view, flags=flags), peer=EVE)) is Done
    for out, id in ((101, OTHER), (102, OTHER), (103, X), (104, X)):
        again = Run(1, 3, [id], out, flags)
        assert type(ask(core, again, peer=EVE)) is Done
        assert core.owners.of(out).owner == "eve"
        answer = ask(core, command("torch.Tensor.zero_", ref(out), flags=mode), peer=EVE)
        assert (type(answer) is Failure) is (id == X)
    assert core.store.objects[X].tolist() == [1, 2]
    assert core.store.objects[OTHER].tolist() == [0, 0]
    assert type(ask(core, structs.replace(a_write(), inputs=[OTHER]), peer=EVE)) is Done
    for id in (OTHER, X, X):
        answer = ask(core, Run(1, 0, [id], OUT, 0), peer=EVE)
        assert (type(answer) is Failure) is (id == X)
    assert core.store.objects[X].tolist() == [1, 2]


def test_what_is_sent_brings_no_object_of_the_worker_along() -> None:
    """Under an id of her own eve could clear the gradient of another's leaf, and tag it.

    The control: she stores what travels, and tags that.
    """
    core = worker(False)
    packer = Packer()
    bundle = pack(Bundle([torch.ones(2), torch.ones(2)]), packer)
    aliased = (*bundle[:2], (), (ref(X),))
    for request in (Put(1, OUT, ref(X)), PutAll(1, OUT, aliased)):
        reply = ask(core, request, peer=EVE)
        assert isinstance(error_in(reply), MalformedMessage) and OUT not in core.store.objects
    ask(core, PutAll(2, OUT, bundle), *packer.buffers, peer=EVE)
    assert ask(core, Annotate(3, OUT, ("#mine",)), peer=EVE) == Done(3)
    assert isinstance(error_in(ask(core, Annotate(4, X, ("#mine",)), peer=EVE)), PermissionDenied)


def test_a_tensor_object_is_not_changed_through_another_id() -> None:
    core = worker(held=True)
    ask(core, command("torch.Tensor.contiguous", ref(X), out=OUT, flags=8), peer=EVE)
    assert core.store.objects[OUT] is core.store.objects[X]
    for message in (
        Annotate(1, OUT, ("#mine",)),
        ClearGradients(1, (OUT,)),
        command("torch.Tensor.requires_grad_", ref(OUT), False),
        command("torch.Tensor.retain_grad", ref(OUT)),
    ):
        assert type(error_in(ask(core, message, peer=EVE))) is PermissionDenied
    ask(core, command("torch.Tensor.detach", ref(X), out=101, flags=8), peer=EVE)
    assert ask(core, command("torch.Tensor.requires_grad_", ref(101)), peer=EVE) == Done(1)
    assert ask(core, Annotate(1, 101, ("#mine",)), peer=EVE) == Done(1)


@pytest.mark.parametrize("held", [False, True])
def test_what_lies_in_others_memory_may_leave(held: bool) -> None:
    """A move takes the object of whoever asks out of the store, and changes no memory."""
    core = worker(held)
    value = core.store.objects[X]
    ask(core, command("torch.Tensor.detach", ref(X), out=OUT, flags=8), peer=EVE)
    assert type(error_in(ask(core, Move(1, X, "alice"), peer=EVE))) is PermissionDenied
    assert ask(core, Move(1, OUT, "alice"), peer=EVE) == Done(1)
    assert OUT not in core.store.objects and core.store.objects[X] is value
    assert core.connect("alice").put_there == [(OUT, ("eve",))]  # type: ignore[attr-defined]


def test_memory_that_was_taken_over_stays_whose_it_was() -> None:
    core = worker(held=True)
    value = core.store.objects[X].requires_grad_(False)
    put(core, OTHER, torch.zeros(2), peer=EVE)
    take = command("torch.Tensor.data.__set__", ref(OTHER), ref(X))
    assert ask(core, take, peer=EVE) == Done(1)
    write = command("torch.Tensor.zero_", ref(OTHER), flags=0)
    assert type(error_in(ask(core, write, peer=EVE))) is PermissionDenied
    assert value.tolist() == [1, 2]
    both = Program(
        2,
        (
            Action(BY_NAME["torch.Tensor.data.__set__"], (Slot(0), Slot(1)), {}, None),
            Action(BY_NAME["torch.Tensor.zero_"], (Slot(0),), {}, None),
        ),
        (),
    )
    put(core, 7, torch.zeros(2), peer=EVE)
    define = pack(Group((InputKind.REFERENCE,) * 2, both), Packer())
    error = error_in(ask(core, Run(1, 0, [7, X], OUT, 0, define=define), peer=EVE))
    assert type(error) is PermissionDenied and error.id == X
    assert value.tolist() == [1, 2] and core.store.objects[7].data_ptr() != value.data_ptr()


def test_memory_that_this_worker_does_not_see() -> None:
    core = worker(held=True)
    core.hold(8, torch.ones(2).to_mkldnn())
    core.own(8)
    ask(core, command("torch.Tensor.detach", ref(8), out=OUT, flags=8), peer=EVE)
    error = error_in(ask(core, command("torch.Tensor.relu_", ref(OUT), flags=0), peer=EVE))
    assert type(error) is PermissionDenied and error.id == OUT and error.owner is None
    ask(core, command("torch.Tensor.detach", ref(OUT), out=101, flags=8), peer=EVE)
    error = error_in(ask(core, command("torch.Tensor.relu_", ref(101), flags=0), peer=EVE))
    assert type(error) is PermissionDenied
    backward = command("torch.Tensor.backward", ref(101))
    assert type(error_in(ask(core, backward, peer=EVE))) is PermissionDenied
    assert ask(core, Drop(1, (OUT, 101)), peer=EVE) == Done(1)
    assert OUT not in core.store.objects


@pytest.mark.parametrize("way", ["command", "program"])
@pytest.mark.parametrize("seen", [False, True])
def test_what_stands_for_memory_that_is_not_seen_is_noted(way: str, seen: bool) -> None:
    """Of a result in memory that is seen nothing is noted: its memory says whose it is."""
    core = worker(held=True)
    core.hold(8, torch.ones(2) if seen else torch.ones(2).to_mkldnn())
    core.own(8)
    whose = core.store.origins[8]
    detach = Action(BY_NAME["torch.Tensor.detach"], (Slot(0),), {}, Slot(1))
    define = pack(Group((InputKind.REFERENCE,), Program(1, (detach,), (Slot(1),))), Packer())
    for number, (source, out) in enumerate(((8, OUT), (OUT, OUT + 1))):
        if way == "command":
            request: Any = command("torch.Tensor.detach", ref(source), out=out, flags=9)
        else:
            request = Run(1, number, [source], out, GRAD_MODE | 1 << COUNT_SHIFT, define=define)
        assert type(ask(core, request, peer=EVE)) is Done
        made = core.store.origins[out]
        assert made.owner == "eve" and made.backing is (None if seen else whose)


# --------------------------------------------------------------------------------------- gradients


def loss_of(core: WorkerCore, leaf: int, peer: Peer) -> None:
    """Make ``OUT`` a loss of a leaf."""
    for message in (
        command("torch.Tensor.mul", ref(leaf), 3.0, out=90, flags=GRAD_MODE + 8),
        command("torch.Tensor.sum", ref(90), out=OUT, flags=GRAD_MODE + 8),
    ):
        assert ask(core, message, peer=peer) == Done(1)


@pytest.mark.parametrize("held", [False, True], ids=["made", "held"])
def test_a_gradient_belongs_to_the_owner_of_the_leaf(held: bool) -> None:
    core = worker(held)
    value = core.store.objects[X]
    loss_of(core, X, EVE)
    for backward in (
        command("torch.Tensor.backward", ref(OUT)),
        command("torch.autograd.backward", [1, ref(OUT)]),
        command("torch.Tensor.backward", ref(OUT), kwargs={"inputs": [69, X]}),
        Run(
            1,
            0,
            [OUT],
            300,
            1,
            define=group_of(Action(BY_NAME["torch.Tensor.backward"], (Slot(0),), {}, None), 1),
        ),
    ):
        error = error_in(ask(core, backward, peer=EVE))
        assert type(error) is PermissionDenied and error.owner == (None if held else "maker")
        assert value.grad.tolist() == [5, 6]
    grad = command("torch.autograd.grad", ref(OUT), ref(X), out=200)
    assert type(ask(core, grad, peer=EVE)) is not Failure, "it adds to no gradient"
    assert value.grad.tolist() == [5, 6]
    loss_of(core_of_named := worker(held), X, NAMED)
    assert ask(core_of_named, command("torch.Tensor.backward", ref(OUT)), peer=NAMED) == Done(1)
    assert core_of_named.store.objects[X].grad.tolist() == [8, 9]


def test_a_leaf_behind_a_result_of_somebody_else() -> None:
    core = worker(held=False)
    put(core, 40, torch.ones(2, requires_grad=True), peer=MAKER)
    leaf = core.store.objects[40]
    leaf.grad = torch.zeros(2)
    ask(core, command("torch.Tensor.mul", ref(40), 2.0, out=41, flags=GRAD_MODE + 8), peer=MAKER)
    ask(core, command("torch.Tensor.retain_grad", ref(41)), peer=MAKER)
    loss_of(core, 41, EVE)
    error = error_in(ask(core, command("torch.Tensor.backward", ref(OUT)), peer=EVE))
    assert type(error) is PermissionDenied and error.owner == "maker"
    assert leaf.grad.tolist() == [0, 0] and core.store.objects[41].grad is None
    put(core, 50, torch.ones(2, requires_grad=True), peer=EVE)
    own = command("torch.Tensor.backward", ref(OUT), kwargs={"inputs": [69, 50]})
    ask(core, own, peer=EVE)
    assert leaf.grad.tolist() == [0, 0]
    assert sent(core, Share(41, ("eve",)), peer=MAKER) == []
    loss_of_again = command("torch.Tensor.sum", ref(41), out=60, flags=GRAD_MODE + 8)
    assert ask(core, loss_of_again, peer=EVE) == Done(1)
    assert ask(core, command("torch.Tensor.backward", ref(60)), peer=EVE) == Done(1)
    assert leaf.grad.tolist() == [2, 2], "eve was named for what was computed from it"


def test_a_gradient_that_is_somebodys_tensor_is_not_added_to() -> None:
    core = worker(held=True)
    value = core.store.objects[X].requires_grad_(False)
    put(core, OTHER, torch.ones(2, requires_grad=True), peer=EVE)
    assert ask(core, command("torch.Tensor.grad.__set__", ref(OTHER), ref(X)), peer=EVE) == Done(1)
    loss_of(core, OTHER, EVE)
    error = error_in(ask(core, command("torch.Tensor.backward", ref(OUT)), peer=EVE))
    assert type(error) is PermissionDenied
    assert value.tolist() == [1, 2]
    assert ask(core, ClearGradients(1, (OTHER,)), peer=EVE) == Done(1), "the leaf is eve's"
    assert ask(core, command("torch.Tensor.backward", ref(OUT)), peer=EVE) == Done(1)
    assert core.store.objects[OTHER].grad.tolist() == [3, 3]


def test_a_backward_pass_from_a_leaf_itself() -> None:
    core = worker(held=True)
    for id, peer in ((40, MAKER), (41, EVE)):
        put(core, id, torch.tensor(1.0, requires_grad=True), peer=peer)
    for id in (40, 41):
        reply = ask(core, command("torch.Tensor.backward", ref(id)), peer=EVE)
        assert (reply == Done(1)) is (id == 41)
    assert core.store.objects[40].grad is None and core.store.objects[41].grad == 1


def test_a_table_of_vectors_is_read_unless_it_is_renormalized() -> None:
    core = worker(held=True)
    core.hold(8, torch.ones(3, 2))
    core.own(8)
    put(core, 9, torch.tensor([0, 2]), peer=EVE)
    look = command("torch.nn.functional.embedding", ref(9), ref(8), out=OUT, flags=8)
    assert ask(core, look, peer=EVE) == Done(1)
    look = command(
        "torch.nn.functional.embedding", ref(9), ref(8), out=101, flags=8, kwargs={"max_norm": 0.5}
    )
    assert type(error_in(ask(core, look, peer=EVE))) is PermissionDenied
    assert core.store.objects[8].tolist() == torch.ones(3, 2).tolist()


# ------------------------------------------------------------------------- one caller, and several


def test_one_caller_is_not_asked() -> None:
    core = sociable()
    ann = Peer("ann")
    put(core, X, torch.ones(2), peer=ann)
    ask(core, command("torch.add", ref(X), 1.0, out=7, flags=9), peer=ann)
    assert not core.contested and not core.store.origins
    put(core, OTHER, torch.ones(2), peer=EVE)
    assert core.contested and list(core.store.origins) == [OTHER]
    for id in (X, 7):
        error = error_in(ask(core, command("torch.Tensor.zero_", ref(id), flags=0), peer=EVE))
        assert type(error) is PermissionDenied and error.owner == "ann"
        assert ask(core, command("torch.Tensor.zero_", ref(id), flags=0), peer=ann) == Done(1)
    assert type(error_in(ask(core, Annotate(1, OTHER, ("#x",)), peer=ann))) is PermissionDenied
    ask(core, Drop(1, (OTHER,)), peer=EVE)
    assert not core.store.origins, "it is forgotten with the object"
    core.clear("cleared")
    assert not core.contested
    assert sent(core, *put_message(8, torch.ones(2)), peer=EVE)[-1] == (EVE, Done(1))
    assert ask(core, command("torch.Tensor.zero_", ref(8), flags=0), peer=EVE) == Done(1)


def test_what_is_promised_has_an_owner() -> None:
    core = worker(held=False)
    ask(core, Promise(1, (40,), "named"), peer=MAKER)
    ask(core, Drop(1, (40,)), peer=EVE)
    assert 40 in core.store.promised, "eve drops nothing of the maker's"
    doubled = command("torch.Tensor.mul", ref(40), 2.0, out=41, flags=8)
    assert type(ask(core, doubled, peer=EVE)) is Parked
    assert type(error_in(ask(core, Annotate(1, 41, ("#x",)), peer=MAKER))) is PermissionDenied
    ask(core, Drop(1, (41,)), peer=MAKER)
    letters = sent(core, *put_message(40, torch.ones(2)), peer=NAMED)
    assert [type(reply) for _, reply in letters] == [Done, Done]
    assert core.store.objects[41].tolist() == [2, 2]
    zero = command("torch.Tensor.zero_", ref(40), flags=0)
    assert type(error_in(ask(core, zero, peer=EVE))) is PermissionDenied
    assert ask(core, zero, peer=MAKER) == Done(1) and ask(core, zero, peer=NAMED) == Done(1)


def test_a_promise_is_kept_by_whom_it_was_promised_of() -> None:
    core = worker(held=False)
    for id, sender in ((40, None), (41, "named"), (42, "laptop")):
        ask(core, Promise(1, (id,), sender), peer=MAKER)
    doubled = command("torch.Tensor.mul", ref(40), 2.0, out=43, flags=8)
    assert type(ask(core, doubled, peer=MAKER)) is Parked
    before = set(core.store.promised)
    allowed = {40: (MAKER,), 41: (NAMED,), 42: (NAMED,), 43: ()}
    for id, whose in allowed.items():
        for peer in (MAKER, NAMED, EVE, BOSS):
            if peer in whose:
                continue
            for message, buffers in keeping(id):
                (letter,) = sent(core, message, *buffers, peer=peer)
                error = error_in(letter[1])
                if id == 43:
                    assert type(error) is ObjectIdTaken and error.id == id
                else:
                    assert type(error) is PermissionDenied and error.id == id
                    assert error.sender == (whose[0].name if id != 41 else "named")
                    assert error.user == (peer.identity or "bob")
                assert core.store.promised == before, "nothing has changed"
    for id, (peer,) in list(allowed.items())[:3]:
        letters = sent(core, *put_message(id, torch.ones(2)), peer=peer)
        assert {type(reply) for _, reply in letters} == {Done}
    assert core.store.objects[43].tolist() == [2, 2]
    assert not core.store.promised and not core.store.senders


def keeping(id: int) -> list[tuple[Message, tuple[torch.Tensor, ...]]]:
    """Every kind of request that stores an object under an id that it names."""
    put_one, *buffer = put_message(id, torch.ones(2))
    packer = Packer()
    bundle = PutAll(1, id, pack(Bundle([torch.ones(2)]), packer))
    made: list[tuple[Message, tuple[torch.Tensor, ...]]] = [
        (put_one, tuple(buffer)),
        (bundle, tuple(packer.buffers)),
    ]
    copying = Action(BY_NAME["torch.clone"], (Slot(0),), {}, Slot(1))
    definition = pack(Group((InputKind.REFERENCE,), Program(1, (copying,), (Slot(1),))), Packer())
    others = (
        command("torch.Tensor.add", ref(20), 1.0, out=id, flags=8),
        Duplicate(1, 20, id),
        Convert(1, 20, int(ConversionCode.FIX_PRECISION), pack((), Packer()), id),
        Allow(1, 20, ("bea",), id),
        Gradients(1, (X,), id),
        Run(1, 5, [20], id, 1 << COUNT_SHIFT, define=definition),
    )
    return made + [(message, ()) for message in others]


def test_each_of_these_requests_stores_an_object() -> None:
    """Else it would be refused for another reason than that its id is somebody else's."""
    for number, (message, _) in enumerate(keeping(60)):
        for peer in (MAKER, NAMED, EVE, BOSS):
            if peer is not MAKER and type(message) is Allow:  # of what is the maker's
                continue
            core = worker(held=False)
            message, buffers = keeping(60)[number]
            letters = sent(core, message, *buffers, peer=peer)
            assert type(letters[-1][1]) in (Done, Value), letters
            assert 60 in core.store.objects, message


def test_a_promise_is_not_taken_over() -> None:
    core = worker(held=False)
    ask(core, Promise(1, (40,)), peer=MAKER)
    assert type(ask(core, command("torch.Tensor.mul", ref(40), 2.0, out=41, flags=8))) is Parked
    for id in (40, 41):
        error = error_in(ask(core, Promise(1, (60, id), "eve"), peer=EVE))
        assert type(error) is ObjectIdTaken and 60 not in core.store.promised
        assert type(error_in(ask(core, GiveUp(1, id, "no more"), peer=EVE))) is PermissionDenied
    assert ask(core, Promise(1, (40,), "eve"), peer=MAKER) == Done(1), "it may be changed"
    letters = sent(core, *put_message(40, torch.ones(2)), peer=EVE)
    assert [type(reply) for _, reply in letters] == [Done, Done]


def test_who_may_let_others_read() -> None:
    for peer, may in ((MAKER, True), (NAMED, False), (EVE, False), (BOSS, True)):
        core = worker(held=False)
        put(core, 50, torch.tensor([7.0, 8.0]), peer=MAKER, users=("ann",))
        put(core, 51, torch.tensor([1.0, 1.0]), peer=EVE, users=("ann", "eve"))
        for name, operands, out in (("mul", (50, 20), 60), ("add", (50, 51), 61)):
            made = command(f"torch.Tensor.{name}", *map(ref, operands), out=out, flags=8)
            assert ask(core, made, peer=EVE) == Done(1)
        for id, permitted in ((50, may), (60, may), (61, peer is BOSS)):
            reply = ask(core, Allow(1, id, ("eve",), 70 + id, ("alice",)), peer=peer)
            if permitted:
                guard = full_guard_of(core.store.objects[70 + id])
                assert reply == Done(1) and guard.admits("eve") and guard.admits("ann")
                assert guard.destinations == {"alice"}
                continue
            error = error_in(reply)
            assert type(error) is PermissionDenied and error.id == id and error.action == "allow"
            assert error.owner == (None if id == 61 else "maker")
            assert 70 + id not in core.store.objects


def put_message(id: int, value: torch.Tensor) -> tuple[Any, ...]:
    packer = Packer(gradients=True)
    return Put(1, id, pack(value, packer)), *packer.buffers


def test_rights_travel_with_what_is_moved() -> None:
    core = worker(held=False)
    sink: Any = core.connect("alice")
    assert ask(core, Move(1, X, "alice"), peer=MAKER) == Done(1)
    assert sink.put_there == [(X, ("maker", "named"))]
    core = worker(held=True)
    sink = core.connect("alice")
    assert ask(core, Move(1, X, "alice"), peer=NAMED) == Done(1)
    assert sink.put_there == [(X, ("bob", "named"))]


def test_a_gateway_drops_what_it_made_for_its_users() -> None:
    core = worker(held=False)
    gateway, ann = Peer("gateway"), Peer("gateway", "ann")
    put(core, 70, torch.ones(2), peer=ann)
    zero = command("torch.Tensor.zero_", ref(70), flags=0)
    assert type(error_in(ask(core, zero, peer=gateway))) is PermissionDenied
    ask(core, Drop(1, (70,)), peer=gateway)
    assert 70 not in core.store.objects


def test_a_read_only_program_and_its_state_are_open() -> None:
    core = worker(held=True)
    flag = Program(1, (Action(BY_NAME["torch.neg"], (Slot(0),), {}, Slot(1)),), (Slot(1),))
    choice = Action(
        BY_NAME["syft.ops.control.cond"], (Slot(1), flag, flag, (Slot(0),)), {}, (Slot(2),)
    )
    put(core, OTHER, torch.tensor(True), peer=EVE)
    define = pack(Group((InputKind.REFERENCE,) * 2, Program(2, (choice,), (Slot(2),))), Packer())
    message = Run(1, 0, [X, OTHER], OUT, 1 << COUNT_SHIFT, define=define)
    assert ask(core, message, peer=EVE) == Done(1)
    assert core.store.objects[OUT].tolist() == [-1, -2]


def test_names_on_a_tensor_add_up() -> None:
    x = torch.ones(2)
    set_writers(x, [])
    assert "_writers" not in x.__dict__
    set_writers(x, ["ann"])
    set_writers(x, ["bea"])
    assert writers_of(x) == {"ann", "bea"}


def test_an_unknown_operation_is_refused_as_ever() -> None:
    core = worker(held=True)
    for number in (10**6, -1):
        assert type(ask(core, Command(1, number, (ref(X),), 0, 0), peer=EVE)) is Failure


# ------------------------------------------------------------------------------ as users see it


@pytest.mark.every_shell
def test_what_the_owner_holds_is_read_and_not_changed(hook: sy.TorchHook, bob: Any) -> None:
    bob.hold(torch.tensor([1.0, 2.0]).tag("#closed"))
    bob.hold(torch.tensor([1.0, 2.0]).tag("#open"), allow_writes=("me",))
    (closed,), (opened,) = bob.search("#closed"), bob.search("#open")
    for change in (
        lambda x: x.add_(1),
        lambda x: x.view(-1).zero_(),
        lambda x: x.tag("#mine"),
        lambda x: x.move(hook.local_worker, requires_grad=True),
    ):
        with pytest.raises(PermissionDenied, match="belongs to the owner of the worker"):
            change(closed)
    with pytest.raises(PermissionDenied), bob.group():
        mine = closed * 2
        closed.zero_()
    assert (closed + 1).get().tolist() == [2, 3]
    assert closed.get().tolist() == [1, 2] and closed.copy().zero_().get().tolist() == [0, 0]
    assert opened.add_(1).get().tolist() == [2, 3]
    assert [value.tolist() for value in inspect(bob).objects.values()] == [[1, 2]]
    del closed, opened, mine
    bob.clear_objects()


@pytest.mark.every_shell
def test_others_are_named_by_whoever_sends(hook: sy.TorchHook, bob: Any) -> None:
    me = hook.local_worker
    x = torch.ones(2).send(bob)
    y = torch.ones(2).send(bob, allow_writes=("ann",))
    private: Any = torch.ones(2).private_tensor(["ann", "bea"], allow_writes=("ann",))
    z = private.send(bob, user="bea")
    (w,) = sy.send_all([private], bob, user="bea")
    constants = [torch.ones(2).send(bob, id=sy.ids.content, allow_writes=("ann",)) for _ in "ab"]
    assert constants[0].id_at_location != constants[1].id_at_location
    with bob.group():
        grouped = private.send(bob, user="bea")
        (listed,) = sy.send_all([private], bob, user="bea")
    try:
        me.user = "ann"
        with pytest.raises(PermissionDenied, match="belongs to 'me', and 'ann' may not change"):
            x.add_(1)
        for named in (y, z, w, grouped, listed, *constants):
            assert named.add_(1).get().tolist() == [2, 2]
    finally:
        me.user = None


@pytest.mark.every_shell
def test_a_pointer_that_is_sent_takes_its_rights_along(bob: Any, alice: Any) -> None:
    x = torch.ones(2).send(alice)
    pointer = x.send(bob)
    del x
    assert pointer.add_(1).get().get().tolist() == [2, 2]
    pointer = torch.ones(2).send(alice).send(bob)
    del pointer
    bob.collect()
    assert not inspect(alice).objects
    there = torch.ones(2).send(bob).remote_send(alice)
    assert there.mul_(3).remote_get().get().tolist() == [3, 3]


def test_what_somebody_elses_pointer_stands_for(hook: sy.TorchHook, bob: Any, alice: Any) -> None:
    pointer = torch.ones(2, requires_grad=True).send(alice).send(bob)
    eve = sy.VirtualWorker(hook, id="eve")
    theirs = eve.connection_to(bob).pointer(pointer.id_at_location, garbage_collect_data=False)
    double = theirs * 2
    for change in (
        lambda: theirs.detach().zero_(),
        lambda: double.add_(1),
        lambda: double.sum().backward(),
        lambda: theirs.tag("#mine"),
    ):
        with pytest.raises(PermissionDenied, match="belongs to 'me', and 'eve' may not change it"):
            change()
    (pointer * 3).sum().backward()
    assert pointer.grad.copy().get().get().tolist() == [3, 3]
    chain: Any = sy.LoggingTensor().on(torch.ones(2))
    assert chain.send(bob).tag("#mine").get().tolist() == [1, 1]
    bob.clear_objects()
    alice.clear_objects()
    eve.close()


def test_a_leaf_that_others_reach_is_of_whose_result_reached_it_first() -> None:
    leaf = torch.ones(2, requires_grad=True)
    mark(leaf * 2, ObjectOrigin("ann", "a"))
    mark(leaf * 3, ObjectOrigin("eve", "e", ("eves friend",)))
    assert [claim.owner for claim in leaf_owners(leaf, beyond=False)] == ["ann"]
    mark(leaf * 4, ObjectOrigin("ann", "a", ("bea",)))
    (claim,) = leaf_owners(leaf, beyond=False)
    assert claim.owner == "ann" and tuple(claim.writers) == ("bea",)


def test_nothing_is_kept_of_callers_who_have_left() -> None:
    core = WorkerCore("bob", connect=print)
    kept = []
    for number in range(20):
        peer = Peer(f"program {number}", f"user {number}", users=())
        core.owners.meet(peer)
        core.store.put(number, torch.ones(2))
        core.owners.made(peer, (number,))
        core.leave([peer], peer.name)
        kept.append(len(core.owners._results))
    assert max(kept) == 0
