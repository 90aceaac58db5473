"""Sessions of shared tensors at the workers: opening, splitting, programs, and who may do what."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch

import syft as sy
from syft.codes import CollectiveCode
from syft.crypto.kernels import KernelCode
from syft.crypto.programs.local_operations import number_of
from syft.crypto.programs.share_dealing import deals_of
from syft.crypto.programs.share_program import ShareCode, ShareProgram
from syft.program.program import Action, Slot
from syft.exceptions import (
    LimitExceeded,
    MalformedMessage,
    MaterialError,
    MaterialUsed,
    NotSendable,
    NotShareable,
    ObjectIdTaken,
    ObjectNotFound,
    PermissionDenied,
    ProgramError,
    ProviderDenied,
    RemoteFailure,
    SessionEnded,
    SharedOperationFailed,
    UnknownWorker,
    WrongParties,
)
from syft.ids import new_execution, new_id
from syft.workers.handlers import sharing
from syft.workers.handlers.party_programs import Letter
from syft.workers.wire.messages import (
    Describe,
    Duplicate,
    Exchange,
    Fetch,
    FetchAll,
    Move,
    Search,
)
from syft.workers.wire.references import Reference
from tests.shells.child import make_worker
from tests.shells.owner import inspect
from tests.crypto.ring_programs import instruction, program_of
from tests.workers.handlers.sharing_client import Client, pieces, wait

pytestmark = pytest.mark.every_shell

aten = torch.ops.aten
S = Slot


def step(code: ShareCode, args: tuple[Any, ...], *outs: int) -> Action:
    return instruction(code, args, outs)


def local(operation: Any, operands: tuple[Any, ...], *outs: int) -> Action:
    return step(ShareCode.LOCAL, (number_of(operation), operands, ()), *outs)


MULTIPLY = (int(KernelCode.MULTIPLY), ())


def product_program(shape: tuple[int, ...]) -> ShareProgram:
    """x * y of two inputs, and the masked x."""
    masks = [step(ShareCode.MASK, (S(n), shape), n + 2) for n in (0, 1)]
    args = (*MULTIPLY, S(2), S(3), (0, 0), shape, (0, 1), shape, shape)
    return program_of(2, (*masks, step(ShareCode.PRODUCT, args, 4)), (4, 2))


def relu_program(shape: tuple[int, ...]) -> ShareProgram:
    return program_of(1, (step(ShareCode.POSITIVE, (S(0), 0, shape), 1, 2),), (1, 2))


@pytest.fixture(params=["immediate", "queued", "mixed"])
def workers(request: pytest.FixtureRequest, hook: sy.TorchHook) -> list[Any]:
    """Three parties and a provider."""
    queued = {"immediate": (0, 0, 0, 0), "queued": (1, 1, 1, 1), "mixed": (0, 1, 0, 1)}
    return [
        make_worker(hook, id=name, pipelined=bool(slow))
        for name, slow in zip(
            ("alice", "bob", "carl", "dealer"), queued[request.param], strict=True
        )
    ]


@pytest.fixture(params=[2, 3])
def client(request: pytest.FixtureRequest, hook: sy.TorchHook, workers: list[Any]) -> Client:
    """A session of two parties or three."""
    client = Client(hook.local_worker, workers[: request.param], workers[3])
    client.open()
    return client


def check_idle(client: Client) -> None:
    for worker in client.everybody:
        assert not inspect(worker).executions and not inspect(worker).promised


X = torch.tensor([1, -2, 3 * 2**40, 0, -(2**62)])
Y = torch.tensor([7, 5, -3, 2**60, 4])


# --------------------------------------------------------------------------------- what it computes


def test_fresh_shares_come_back_and_are_uniform(client: Client) -> None:
    many = torch.zeros(500, dtype=torch.int64)
    x, zeros = client.share(X, many)
    assert torch.equal(client.value(x), X)
    for place in client.parties:
        share = client.fetch(zeros, place)
        bits = (share.unsqueeze(1) >> torch.arange(64)) & 1
        assert ((bits.double().mean(0) - 0.5).abs() < 6 * 0.5 / 500**0.5).all()
    assert torch.equal(client.value(zeros), many)
    check_idle(client)


def test_products_and_comparisons(client: Client) -> None:
    x, y = client.share(X, Y)
    for _ in range(2):
        xy, _masked = client.run(product_program((5,)), [x, y])
        assert torch.equal(client.value(xy), X * Y)
    positive, sign = client.run(relu_program((5,)), [x])
    assert torch.equal(client.value(positive), X.clamp(min=0))
    assert torch.equal(client.value(sign), (X >= 0).long())
    check_idle(client)


def test_what_may_be_undone_of_ended_programs_is_bounded(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syft.workers.handlers.executions.MAX_SESSIONS", 3)
    workers = [sy.VirtualWorker(hook, id=name) for name in ("alice", "bob", "dealer")]
    client = Client(hook.local_worker, workers[:2], workers[2])
    client.open()
    x, y = client.share(X, Y)
    for _ in range(5):
        xy, _masked = client.run(product_program((5,)), [x, y])
        assert torch.equal(client.value(xy), X * Y)
    assert [inspect(worker).ended for worker in workers[:2]] == [3, 3]


def test_a_masked_value_outlives_its_program(client: Client) -> None:
    x, y = client.share(X, Y)
    _, masked = client.run(product_program((5,)), [x, y])
    square = (*MULTIPLY, S(0), S(0), (client.counter, 0), (5,), (client.counter, 0), (5,), (5,))
    program = program_of(1, (step(ShareCode.PRODUCT, square, 1),), (1,))
    (squared,) = client.run(program, [masked])
    assert torch.equal(client.value(squared), X * X)


def test_programs_are_sent_without_waiting_and_run_in_order(client: Client) -> None:
    """Each program adds what the one before it made, in place; all are under way together."""
    (x,) = client.share(X)
    masks = program_of(1, relu_program((5,)).actions, (1, 2))
    add = program_of(2, (local(aten.add_.Tensor, (S(0), S(1)), 2),), (2,))
    expected = X.clone()
    pending, latest = [], x
    for _ in range(4):
        made = [new_id(), new_id()]
        pending += client.start_run(masks, [latest], [made] * len(client.parties))
        latest = new_id()
        pending += client.start_run(add, [x, made[0]], [[latest]] * len(client.parties))
        expected += expected.clamp(min=0)
    assert torch.equal(client.value(latest), expected), "asked for before all is done"
    wait(pending)
    assert torch.equal(client.value(x), expected), "written in place"
    check_idle(client)


def test_a_value_is_revealed_to_one_party(client: Client) -> None:
    x, y = client.share(X, Y)
    program = program_of(
        2,
        (
            local(aten.add.Tensor, (S(0), S(1)), 2),
            step(ShareCode.REVEAL, (S(2), 1), 3),
            step(ShareCode.REVEAL, (S(0), 0), 4),
        ),
        (3, 2, 4),
    )
    at_bob, total, at_alice = new_id(), new_id(), new_id()
    outs = [[total, at_alice], [at_bob, total], [total]][: len(client.parties)]
    wait(client.start_run(program, [x, y], outs))
    assert torch.equal(client.fetch(at_bob, client.parties[1]), X + Y)
    assert torch.equal(client.fetch(at_alice, client.parties[0]), X)
    assert torch.equal(client.value(total), X + Y)
    with pytest.raises(ObjectNotFound):
        client.fetch(at_bob, client.parties[0])


# ---------------------------------------------------------------------------------------- splitting


@pytest.mark.parametrize("place", ["first", "last", "outside"])
def test_a_tensor_at_a_worker_is_split(client: Client, place: str, hook: sy.TorchHook) -> None:
    outside = make_worker(hook, id="olga")
    owner = {"first": client.parties[0], "last": client.parties[-1], "outside": outside}[place]
    pointer = X.send(owner)
    shares = client.split(pointer, owner)
    assert torch.equal(client.value(shares), X)
    assert not any(torch.equal(client.fetch(shares, party), X) for party in client.parties)
    assert torch.equal(pointer.get(), X)
    check_idle(client)


@pytest.mark.parametrize("named", [("alice", "bob"), ("alice",), ()])
def test_shares_go_where_the_owner_allows_and_keep_the_label(
    pair: Client, hook: sy.TorchHook, named: tuple[str, ...]
) -> None:
    owner = make_worker(hook, id="olga")
    private = X.clone().private_tensor(["ann"], allow_destinations=named).send(owner, user="ann")
    if named != ("alice", "bob"):
        with pytest.raises(PermissionDenied) as caught:
            pair.split(private, owner)
        assert caught.value.to == ("bob" if named else "alice")
        del caught
        return
    shares = pair.split(private, owner)
    for party in pair.parties:
        with pytest.raises(PermissionDenied):
            pair.fetch(shares, party)
    assert torch.equal(pair.value(shares, "ann"), X)
    (double,) = pair.run(program_of(1, (local(aten.add.Tensor, (S(0), S(0)), 1),), (1,)), [shares])
    with pytest.raises(PermissionDenied):
        pair.fetch(double, pair.parties[0])
    assert torch.equal(pair.value(double, "ann"), 2 * X)


def test_only_integers_are_split(pair: Client) -> None:
    with pytest.raises(NotShareable, match="float32"):
        floats = torch.ones(2).send(pair.parties[0])
        pair.split(floats, pair.parties[0])
    del floats
    (x,) = pair.share(X)
    assert torch.equal(pair.value(x), X), "the session goes on"


def test_what_is_written_to_is_as_private_as_what_is_written(pair: Client) -> None:
    alice = pair.parties[0]
    private = Y.clone().private_tensor(["ann"], allow_destinations=["alice", "bob"])
    secret = pair.split(private.send(alice, user="ann"), alice)
    (x,) = pair.share(torch.stack([X, X]))
    rows = program_of(1, (local(aten.select.int, (S(0), 0, 1), 1),), (1,))
    (row,) = pair.run(rows, [x])
    assert torch.equal(pair.value(row), X)
    write = program_of(2, (local(aten.copy_.default, (S(0), S(1)), 2),), (2,))
    pair.run(write, [row, secret])
    for id in (x, row):
        with pytest.raises(PermissionDenied):
            pair.fetch(id, alice)
    assert torch.equal(pair.value(x, "ann"), torch.stack([X, Y]))


def test_what_is_private_is_not_revealed_to_others(pair: Client) -> None:
    alice = pair.parties[0]
    # Bob may hold shares, as every party must; whoever reveals asks the label, which names him.
    private = Y.clone().private_tensor(["ann"], allow_destinations=["bob"])
    secret = pair.split(private.send(alice, user="ann"), alice)
    program = program_of(1, (step(ShareCode.REVEAL, (S(0), 1), 1),), (1,))
    out = new_id()
    wait(pair.start_run(program, [secret], [[], [out]]))
    with pytest.raises(PermissionDenied):
        pair.fetch(out, pair.parties[1])
    assert torch.equal(pair.fetch(out, pair.parties[1], "ann"), Y)


def test_a_label_on_fresh_shares_keeps_them_from_a_party(pair: Client) -> None:
    fields = (("ann",), False, (), (), None, None)
    (x,) = pair.run(program_of(1, (), (0,)), [pieces(X, 2, fields)])
    with pytest.raises(PermissionDenied):
        pair.fetch(x, pair.parties[0])
    assert torch.equal(pair.value(x, "ann"), X)
    program = program_of(1, (step(ShareCode.REVEAL, (S(0), 1), 1),), (1,))
    with pytest.raises(PermissionDenied) as caught:
        wait(pair.start_run(program, [x], [[], [new_id()]]))
    assert caught.value.to == "bob"


# ----------------------------------------------------------------------------------- who may use it


def test_strangers_are_refused_in_every_way(pair: Client, hook: sy.TorchHook) -> None:
    if not isinstance(pair.parties[0], sy.VirtualWorker):
        pytest.skip("asks from a second worker of this process")
    eve = sy.VirtualWorker(hook, id="laptop", user="eve")
    (x,) = pair.share(X)
    alice = pair.parties[0]
    line = eve.connection_to(alice)
    thief = Client(eve, pair.parties, pair.provider)
    thief.open()
    (own,) = thief.share(Y)
    for id in (x, pair.session):
        with pytest.raises(PermissionDenied):
            line.ask(Fetch, id)
        with pytest.raises(PermissionDenied):
            line.ask(Fetch, id, 0, True)
        with pytest.raises(PermissionDenied):
            line.ask(FetchAll, (id,))
        with pytest.raises(PermissionDenied):
            line.ask(Describe, id)
        with pytest.raises(PermissionDenied):
            line.ask(Duplicate, id, new_id())
        with pytest.raises(PermissionDenied):
            line.ask(Move, id, "bob")
        assert line.ask(Search, (str(id),)) == []
        with pytest.raises(PermissionDenied):
            (line.pointer(id).neg()).get()
        line.garbage.append(id)
        line.flush()
    same = program_of(1, (), (0,))
    thief.session, mine = pair.session, thief.session
    with pytest.raises((PermissionDenied, RemoteFailure)):
        thief.run(same, [own])
    thief.session = mine
    with pytest.raises((PermissionDenied, RemoteFailure)):
        thief.run(same, [x])
    assert torch.equal(pair.value(x), X), "still there, and its session goes on"
    thief.close()
    eve.network.flush()
    eve.close()


@pytest.mark.parametrize("kind", ["share", "session", "masked"])
def test_no_command_takes_them(pair: Client, kind: str) -> None:
    x, y = pair.share(X, Y)
    _, masked = pair.run(product_program((5,)), [x, y])
    id = {"share": x, "session": pair.session, "masked": masked}[kind]
    alice = pair.parties[0]
    line = pair.caller.connection_to(alice)
    for message in (
        (Duplicate, id, new_id()),
        (Move, id, "bob"),
        (FetchAll, (id,)),
        (Fetch, id, 1),
    ):
        with pytest.raises(PermissionDenied):
            line.ask(*message)
    pointer = line.pointer(id)
    tensor = X.send(alice)
    for use in (
        lambda: pointer.add(1),
        lambda: tensor + pointer,
        lambda: pointer.view(5),
        lambda: pointer.zero_(),
        lambda: torch.stack([tensor, pointer]),
        lambda: tensor.copy_(pointer),
    ):
        with pytest.raises(PermissionDenied):
            use()
            sy.synchronize()
    with pytest.raises((PermissionDenied, RemoteFailure)):
        sy.sum_private(pointer, X.send(pair.parties[1]))[0].get()
    if kind != "share":
        with pytest.raises(PermissionDenied):
            line.ask(Fetch, id)


def test_a_stored_tensor_does_not_pass_for_a_share_or_a_public_one(pair: Client) -> None:
    alice = pair.parties[0]
    private = Y.clone().private_tensor(["ann"]).send(alice, user="ann")
    reference = Reference(private.id_at_location)
    same = program_of(1, (), (0,))
    public = program_of(0, (step(ShareCode.PUBLIC, (reference,), 0),), (0,))
    for program, inputs in (
        (same, [[reference, (X,)]]),
        (same, [[(reference,), (X,)]]),
        (public, []),
    ):
        pair.session = new_id()
        pair.open()
        with pytest.raises((MalformedMessage, ProgramError, RemoteFailure)):
            pair.run(program, inputs)
    check_idle(pair)


# ----------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize("rank", [0, 1, 2], ids=["alice", "bob", "provider"])
def test_a_counter_is_used_once(pair: Client, rank: int) -> None:
    """One place alone begins, so that none hears of it from another, which only interrupts."""
    x, y = pair.share(X, Y)
    program = product_program((5,))
    pair.run(program, [x, y])
    here = Reference(pair.session)
    begun: Any = (here, pair.counter, program, Reference(x), Reference(y))
    code = CollectiveCode.SHARES
    if rank == 2:
        code, begun = CollectiveCode.DEAL, (here, pair.counter, deals_of(program))

    def again() -> None:
        args = [begun if place == rank else None for place in range(3)]
        outs = [[new_id()] if code == CollectiveCode.SHARES else []] * 3
        wait(pair.start(code, pair.everybody, args, outs))

    with pytest.raises(MaterialUsed):
        again()
    with pytest.raises(SessionEnded, match="MaterialUsed"):
        again()
    check_idle(pair)


def test_a_failure_interrupts_the_session_everywhere_with_its_cause(client: Client) -> None:
    x, y = client.share(X, Y[:4])
    program = program_of(2, (local(aten.add.Tensor, (S(0), S(1)), 2),), (2,))
    with pytest.raises((RuntimeError, RemoteFailure), match="size of tensor"):
        client.run(program, [x, y])
    for place in client.parties:
        with pytest.raises(SharedOperationFailed, match="must match the size of tensor"):
            client.fetch(x, place)
    with pytest.raises(SharedOperationFailed):
        client.run(program, [x, x])
    check_idle(client)
    client.roll_back([[]] * len(client.parties))
    assert torch.equal(client.value(client.run(program, [x, x])[0]), 2 * X)


def test_a_share_that_is_gone_is_the_cause_at_all(client: Client) -> None:
    (x,) = client.share(X)
    line = client.caller.connection_to(client.parties[1])
    line.garbage.append(x)
    line.flush()
    outs = [new_id(), new_id()]
    pending = client.start_run(relu_program((5,)), [x], [outs] * len(client.parties))
    wait(pending[:1])
    causes = []
    for connection, one in pending[1:]:
        with pytest.raises((ObjectNotFound, RemoteFailure)) as caught:
            connection.replies.wait(one)
        causes.append(str(caught.value))
        del caught
    assert all(f"no object {x}" in cause for cause in causes), causes
    check_idle(client)


def test_programs_that_make_no_sense_are_refused(pair: Client) -> None:
    x, y = pair.share(X, Y)
    wrong: list[Any] = [
        program_of(1, (local(aten.neg.default, (S(5),), 1),), (1,)),
        program_of(1, (local(aten.neg.default, (S(1),), 1),), (1,)),
        program_of(1, (step(ShareCode.REVEAL, (S(0), 2), 1),), (1,)),
    ]
    for program in wrong:
        pair.session, pair.counter = new_id(), 0
        pair.open()
        (x,) = pair.share(X)
        with pytest.raises((ProgramError, RemoteFailure)):
            pair.run(program, [x])
    check_idle(pair)


@pytest.mark.parametrize("names", [("alice",), ("alice", "alice"), ("alice", "nobody")])
def test_sessions_that_cannot_be(hook: sy.TorchHook, names: tuple[str, ...]) -> None:
    alice, dealer = make_worker(hook, id="alice"), make_worker(hook, id="dealer")
    client = Client(hook.local_worker, [alice], dealer)
    code, execution = CollectiveCode.OPEN_SESSION, new_execution()
    pending = client.start(code, [alice], [()], [(client.session,)], execution, (*names, "dealer"))
    with pytest.raises((WrongParties, MalformedMessage, UnknownWorker)):
        wait(pending)
    assert client.session not in inspect(alice).objects


def test_the_summary_of_a_session_tells_its_counter_and_its_stock(pair: Client) -> None:
    x, y = pair.share(X, Y)
    alice, bob = pair.parties
    execution, program = new_execution(), product_program((5,))
    here = Reference(pair.session)
    dealing = [None, None, (here, 9, ((2, 5, _deal(program)),))]
    nothing: list[Any] = [()] * 3
    wait(pair.start(CollectiveCode.DEAL, pair.everybody, dealing, nothing, execution))
    sy.synchronize()
    summaries = {
        place.id: pair.caller.connection_to(place).ask(Describe, pair.session)[3]
        for place in pair.everybody
    }
    assert summaries["alice"] == (("alice", "bob"), 0, 1, None, 0)
    assert summaries["dealer"] == (("alice", "bob"), 2, 9, None, 0)
    names, rank, counter, cause, stock = summaries["bob"]
    assert (names, rank, counter, cause) == (("alice", "bob"), 1, 1, None) and stock >= 40
    made = new_id(), new_id()
    args: list[Any] = [(here, 9, program, Reference(x), Reference(y))] * 2 + [None]
    wait(pair.start(CollectiveCode.SHARES, pair.everybody, args, [made, made, ()], execution))
    assert torch.equal(pair.value(made[0]), X * Y)
    summary = pair.caller.connection_to(bob).ask(Describe, pair.session)[3]
    assert summary == (("alice", "bob"), 1, 9, None, 0)


def _deal(program: ShareProgram) -> tuple[Any, ...]:
    args = program.actions[2].args
    return tuple(value for value in args if type(value) is not Slot)


# ------------------------------------------------------------------------------- letters that lie


class Liar:
    """A pair of sessions in cores that are driven by hand: what one party sends can be changed."""

    def __init__(self, pair: Client) -> None:
        self.pair, self.change = pair, lambda message: message
        self.buffers: list[torch.Tensor] | None = None
        """What goes with a changed message, if not what went with the true one."""
        for worker in pair.everybody:
            worker.core.post = functools.partial(self._post, worker.core)

    def _post(self, core: Any, to: str, message: Any, *rest: Any, **named: Any) -> None:
        if isinstance(message, Exchange) and core.name in ("bob", "dealer"):
            message = self.change(message)
            rest = rest if self.buffers is None else (self.buffers, *rest[1:])
        type(core).post(core, to, message, *rest, **named)


@pytest.mark.parametrize(
    "change",
    [
        lambda letter: {"values": ()},
        lambda letter: {"values": (*letter.values, 5)},
        lambda letter: {"values": (5,) * len(letter.values)},
        lambda letter: {"values": (None,) * 2},
        lambda letter: {"rank": 0},
        lambda letter: {"values": tuple(reversed(letter.values))},
    ],
)
def test_letters_that_lie_end_the_session_with_an_error(
    hook: sy.TorchHook, change: Callable[[Exchange], dict[str, Any]]
) -> None:
    places = [sy.VirtualWorker(hook, id=name) for name in ("alice", "bob", "dealer")]
    pair = Client(hook.local_worker, places[:2], places[2])
    pair.open()
    x, y = pair.share(X, Y)
    liar = Liar(pair)
    liar.change = lambda letter: msgspec.structs.replace(letter, **change(letter))
    errors = (MalformedMessage, MaterialError, RemoteFailure)
    with pytest.raises(errors):
        pair.run(product_program((5,)), [x, y])
    with pytest.raises((SessionEnded, SharedOperationFailed)):
        pair.run(product_program((5,)), [x, y])
    with pytest.raises(SessionEnded):
        pair.roll_back([[], []])
    assert not any(place.core.sessions for place in places[:2])
    for place in places:
        del place.core.post


def test_programs_that_are_not_the_same_are_an_error_and_no_leak(pair: Client) -> None:
    """Alice is told to reveal what bob is not."""
    x, y = pair.share(X, Y)
    here, execution = Reference(pair.session), new_execution()
    one = program_of(1, (step(ShareCode.REVEAL, (S(0), 0), 1),), (1,))
    other = program_of(1, (step(ShareCode.MASK, (S(0), (5,)), 1),), (1,))
    out = new_id()
    args = [(here, 2, one, Reference(x)), (here, 2, other, Reference(x)), None]
    code = CollectiveCode.SHARES
    pending = pair.start(code, pair.everybody, args, [[out], [out], []], execution)
    line = pair.caller.connection_to(pair.parties[0])
    line.replies.wait(pending[0][1])
    assert not torch.equal(pair.fetch(out, pair.parties[0]), X), "bob sent his behind a mask"
    assert inspect(pair.parties[1]).executions == 1, "and waits for alice's"


@pytest.mark.parametrize(
    "args",
    [
        (5, 1, program_of(0, (), ())),
        ("session", 0, program_of(0, (), ())),
        ("session", "x", program_of(0, (), ())),
        ("session", 1, 5),
        ("session", 1, program_of(1, (), (0,)), 5),
        ("session", 1, program_of(1, (), (0,)), ()),
        ("session", 1, program_of(1, (), (0,)), (5,)),
        ("session", 1, program_of(1, (), (0,)), (bytes(32),)),
        ("session", 1, program_of(1, (), (0,)), (bytes(31), (2,))),
        ("session", 1, program_of(1, (), (0,)), (bytes(32), (-2,))),
        ("session", 1, program_of(1, (), (0,)), (bytes(32), (1 << 29,))),
        ("session", 1, program_of(1, (), (0,)), (bytes(32), (2,), None, "cpu")),
        ("session", 1, program_of(1, (), (0,)), (bytes(32), (2,), None, torch.device("meta"))),
        ("session", 1, program_of(1, (), (0,)), (bytes(32), (2,), None, torch.device("xpu:9"))),
        ("session", 1, program_of(1, (), (0,)), (bytes(32), (2,), None, None, None)),
        ("session", 1, program_of(1, (), (0,)), (torch.ones(2),)),
        ("session", 1, program_of(1, (), (0,)), (torch.ones(2).long(), None, None)),
        ("session", 1, program_of(1, (), (0,)), (torch.ones(2).long(), 7)),
    ],
    ids=repr,
)
def test_arguments_that_make_no_sense(pair: Client, args: tuple[Any, ...]) -> None:
    here = Reference(pair.session)
    args = tuple(here if isinstance(arg, str) and arg == "session" else arg for arg in args)
    nothing: list[Any] = [()] * 3
    pending = pair.start(CollectiveCode.SHARES, pair.everybody, [args, None, None], nothing)
    with pytest.raises((MalformedMessage, LimitExceeded, NotSendable)):
        wait(pending)


def test_each_plays_its_own_part(pair: Client) -> None:
    here, alice = Reference(pair.session), pair.parties[0]
    nothing: list[Any] = [()] * 3
    code = CollectiveCode.DEAL
    with pytest.raises(MalformedMessage, match="DEAL for the provider"):
        wait(pair.start(code, pair.everybody, [(here, 1, ()), None, None], nothing))
    pair.session = new_id()
    pair.open()
    here = Reference(pair.session)
    with pytest.raises(MalformedMessage, match="alice, bob, dealer"):
        wait(pair.start(code, pair.parties[:1], [(here, 1, ())], [()]))
    pair.session = new_id()
    pair.open()
    here = Reference(pair.session)
    split = CollectiveCode.SPLIT
    for args in ((here, 5), (here, "x"), (None, 1), (None, 0)):
        with pytest.raises(MalformedMessage):
            wait(pair.start(split, pair.parties, [args, None], [(), ()]))
    for places, names in (
        (pair.parties[:1], ("alice",)),
        (pair.everybody[:1], ("alice", "dealer")),
        ([alice], ("alice", "bob", "dealer")),
    ):
        with pytest.raises(MalformedMessage):
            wait(pair.start(split, places, [(here, 0)], [()], names=names))


def test_whoever_may_not_read_does_not_deal(hook: sy.TorchHook) -> None:
    alice, bob = (sy.VirtualWorker(hook, id=name) for name in ("alice", "bob"))
    client = Client(hook.local_worker, [alice, bob], hook.local_worker)
    client.open()
    private = X.clone().private_tensor(["ann"], allow_destinations=["alice", "bob"])
    with pytest.raises(PermissionDenied) as caught:
        client.split(private.send(alice, user="ann"), alice)
    assert caught.value.to == "me"
    del caught, private
    (x,) = client.share(X)
    positive, _ = client.run(relu_program((5,)), [x])
    assert torch.equal(client.value(positive), X.clamp(min=0))


def test_a_program_that_is_refused_interrupts_the_session(pair: Client) -> None:
    """The other party may have run it."""
    (x,) = pair.share(X)
    outs = [[x, new_id()], [new_id(), new_id()]]
    with pytest.raises((ObjectIdTaken, RemoteFailure)):
        wait(pair.start_run(relu_program((5,)), [x], outs))
    for place in pair.parties:
        with pytest.raises(SharedOperationFailed, match="ObjectIdTaken"):
            pair.fetch(x, place)
    check_idle(pair)


# ------------------------------------------------------------------------------------- who may deal


def test_a_client_that_names_another_provider_to_the_owner_gets_no_shares(
    hook: sy.TorchHook, pair: Client
) -> None:
    """The parties know who deals."""
    owner = make_worker(hook, id="olga")
    private = X.clone().private_tensor(
        ["ann"], allow_destinations=["alice", "bob"], allow_providers=["carol"]
    )
    pointer, out = private.send(owner, user="ann"), new_id()
    with pytest.raises((ProviderDenied, RemoteFailure), match="allow_providers|may not deal"):
        wait(pair.start_split(pointer, owner, out, provider="carol"))
    with pytest.raises((ProviderDenied, RemoteFailure), match="allow_providers"):
        wait(pair.start_split(pointer, owner, new_id()))
    held = [inspect(party).objects.values() for party in pair.parties]
    assert not any("Share " in str(one) for some in held for one in some)


def test_a_label_on_fresh_shares_says_who_may_deal(hook: sy.TorchHook, pair: Client) -> None:
    fields = (("ann",), False, ("alice", "bob"), (), ("carol",), None)
    program = program_of(1, (), (0,))
    with pytest.raises((ProviderDenied, RemoteFailure), match="'dealer' is not among"):
        pair.run(program, [pieces(X, 2, fields)])


def test_what_the_owner_of_a_tensor_states_is_checked() -> None:
    assert sharing._named("carol") == "carol" and "not named" in sharing._named(None)
    with pytest.raises(MalformedMessage, match="the name of the provider, got int"):
        sharing._named(5)
    letter = Letter((1, 2))
    assert sharing._values(letter, 2) == (1, 2)
    for count in (0, 1, 3):
        with pytest.raises(MalformedMessage, match=f"{count} values, got 2"):
            sharing._values(letter, count)


def test_a_share_that_is_taken_is_gone_at_that_party_alone(client: Client) -> None:
    shares = client.share(X)[0]
    here, other = client.parties[:2]
    taken = client.fetch(shares, here, keep=False)
    with pytest.raises(ObjectNotFound):
        client.fetch(shares, here)
    assert taken.shape == client.fetch(shares, other).shape == X.shape
