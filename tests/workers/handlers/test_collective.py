"""Collective operations: started by one command each, parked at each round, revealing nothing."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import syft as sy
from syft.codes import CollectiveCode
from syft.crypto.mask_stream import MaskStream, agreed_key
from syft.exceptions import (
    HookError,
    LimitExceeded,
    LocationMismatch,
    MalformedMessage,
    ObjectIdTaken,
    ObjectNotFound,
    ObjectNotReady,
    PermissionDenied,
    RemoteFailure,
    ResultMismatch,
    UnknownWorker,
    UnsupportedOperation,
    WorkerClosed,
    WorkerLost,
)
from syft.ids import new_id
from syft.serde.frame import Frame
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.tensors.collective_call import run_collective
from syft.workers.core.peer import Peer, ProgramMark
from syft.workers.core.peer_limits import PeerLimits
from syft.workers.core.peer import KEPT
from syft.workers.core.state_machine import WorkerCore
from syft.workers.core.shares import Turns
from syft.workers.handlers.collective import MAX_ROUNDS
from syft.workers.handlers.executions import MAX_SESSIONS
from syft.workers.handlers.mailbox import MAX_PARTY_MESSAGES
from syft.workers.handlers.party_programs import PROGRAMS, Letter, Party, collective
from syft.workers.wire.messages import (
    Abort,
    Done,
    Exchange,
    Failure,
    Parked,
    Start,
    decode,
    encode,
)
from tests.shells.child import make_worker
from tests.shells.owner import inspect
from tests.workers.core.peers import error_in, put, ref

pytestmark = pytest.mark.every_shell

NAMES = ("alice", "bob", "carl")


@pytest.fixture(params=["immediate", "queued", "mixed"])
def parties(request: pytest.FixtureRequest, hook: sy.TorchHook) -> list[sy.VirtualWorker]:
    queued = {"immediate": (0, 0, 0), "queued": (1, 1, 1), "mixed": (0, 1, 0)}[request.param]
    return [
        make_worker(hook, id=name, pipelined=bool(slow))
        for name, slow in zip(NAMES, queued, strict=True)
    ]


def sent(parties: list[sy.VirtualWorker], *values: Any) -> list[torch.Tensor]:
    """One private tensor at each party."""
    return [torch.as_tensor(v).send(p) for v, p in zip(values, parties, strict=True)]


def check_idle(parties: list[sy.VirtualWorker]) -> None:
    """Nothing of any execution is left."""
    for party in parties:
        inspected = inspect(party)
        assert not inspected.executions and not inspected.active
        assert inspected.ended <= MAX_SESSIONS


# ------------------------------------------------------------------------------------------ the sum


@pytest.mark.parametrize(
    "values",
    [
        [[1, 2], [10, 20], [100, 200]],
        [[1.5, -2.25], [0.125, 7.0], [-3.0, 0.5]],
        [3, -4, 5],
        [2.5, -2.5, 0.75],
        [[], [], []],
        [torch.zeros(0, 3)] * 3,
        [[2**62], [2**62], [2**62 + 1]],
        [torch.arange(6).view(2, 3).t()] * 3,
        [torch.tensor([1, 2], dtype=torch.int16)] * 3,
        [torch.tensor([0.5], dtype=torch.bfloat16)] * 3,
        [torch.tensor([1e-3, 1e9], dtype=torch.float64)] * 3,
        [[1.0], [1.0, 2.0], [[1.0], [2.0]]],
    ],
    ids=repr,
)
def test_three_workers_sum_private_numbers(
    parties: list[sy.VirtualWorker], values: list[Any]
) -> None:
    plain = [torch.as_tensor(value) for value in values]
    private = sent(parties, *plain)
    totals = [total.get() for total in sy.sum_private(*private)]
    expected = plain[0] + plain[1] + plain[2]
    for total in totals:
        assert total.dtype is expected.dtype
        torch.testing.assert_close(total, expected, rtol=0, atol=3 * 2.0**-25 + 1e-7)
    check_idle(parties)
    assert [pointer.get().tolist() for pointer in private] == [value.tolist() for value in plain]


def test_what_a_user_may_send_is_added_for_her(parties: list[sy.VirtualWorker]) -> None:
    hers = torch.tensor([1, 2]).private_tensor(allowed_users=["ann"])
    private = [hers.send(worker, user="ann") for worker in parties[:2]]
    refused = sy.sum_private(*private)
    for total in refused:
        with pytest.raises(PermissionDenied, match="may not go to"):
            total.get(user="ann")
    sy.synchronize()  # what was raised is not raised again
    totals = sy.sum_private(*private, user="ann")
    assert [total.get(user="ann").tolist() for total in totals] == [[2, 4]] * 2
    with pytest.raises(PermissionDenied):
        sy.sum_private(*private, user="ann")[0].get()


def test_one_worker_or_many(hook: sy.TorchHook) -> None:
    workers = [make_worker(hook, id=f"w{index}") for index in range(7)]
    inputs = [torch.tensor([index, 1]).send(worker) for index, worker in enumerate(workers)]
    assert sy.sum_private(inputs[4])[0].get().tolist() == [4, 1]
    assert [total.get().tolist() for total in sy.sum_private(*inputs)] == [[21, 7]] * 7
    check_idle(workers)


def test_it_waits_for_nothing_and_the_results_are_promised(hook: sy.TorchHook) -> None:
    parties = [make_worker(hook, id=name, pipelined=True) for name in NAMES]
    totals = sy.sum_private(*sent(parties, [1], [2], [3]))
    assert not any(total.child.handle.done() for total in totals)
    doubled = [total * 2 for total in totals]
    assert [value.get().tolist() for value in doubled] == [[12]] * 3
    assert all(total.child.handle.done() for total in totals)


def test_promised_inputs_in_every_order(parties: list[sy.VirtualWorker]) -> None:
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        promises = [party.promise() for party in parties]
        totals = sy.sum_private(*promises)
        with pytest.raises(ObjectNotReady):
            totals[0].get()
        kept = [
            torch.tensor([10**index]).send(parties[index], id=promises[index].id_at_location)
            for index in order
        ]
        assert [total.get().tolist() for total in totals] == [[111]] * 3
        check_idle(parties)
        del promises, kept, totals


def test_several_at_once_do_not_mix(hook: sy.TorchHook) -> None:
    parties = [make_worker(hook, id=name, pipelined=True) for name in NAMES]
    rows = [sent(parties, [n], [10 * n], [100 * n]) for n in range(5)]
    totals = [sy.sum_private(*row) for row in rows]
    for n in reversed(range(5)):
        assert [total.get().tolist() for total in totals[n]] == [[111 * n]] * 3
    check_idle(parties)


def test_guards_of_all_inputs_hold_for_all_results(parties: list[sy.VirtualWorker]) -> None:
    private = torch.tensor([5.0]).private_tensor(["ann"], allow_destinations=NAMES)
    private = private.send(parties[0], user="ann")
    public = sent(parties[1:], [1.0], [2.0])
    for total in sy.sum_private(private, *public):
        with pytest.raises(sy.exceptions.PermissionDenied):
            total.get()
        with pytest.raises(sy.exceptions.PermissionDenied):
            (total * 1).get()
        assert total.get(user="ann").tolist() == [8.0]
    assert [tensor.get().tolist() for tensor in public] == [[1.0], [2.0]]


# --------------------------------------------------------------------------- what the messages tell


def exchanged(hook: sy.TorchHook, pointers: list[torch.Tensor]) -> list[Any]:
    """The messages between the parties of one sum: (sender, receiver, number, numbers)."""
    with hook.record() as log:
        totals = sy.sum_private(*pointers)
        sy.synchronize()
    del totals
    return [
        (e.sender, e.receiver, e.message.number, e.buffers[0].view(torch.int64))
        for e in log
        if isinstance(e.message, Exchange)
    ]


def test_no_two_messages_reveal_an_input(
    hook: sy.TorchHook, parties: list[sy.VirtualWorker], shell: str
) -> None:
    """Bob's input is 0 or 1; whatever alice gets and can take off of it, it is as often either."""
    if shell == "socket":
        pytest.skip("what parties send to one another does not pass the client")
    count = 500
    for secret in (0, 1):
        pointers = sent(parties, *(torch.full((count,), value) for value in (7, secret, 9)))
        said = {message[:3]: message[3] for message in exchanged(hook, pointers)}
        first = {(a, b, 0) for a in NAMES for b in NAMES if a != b}
        masked = {("bob", "alice", 1), ("carl", "alice", 1)}
        assert set(said) == first | masked | {("alice", "bob", 1), ("alice", "carl", 1)}
        for message in first:
            assert said[message][4:].tolist() == [count], "a key, and the shape"
        known = {
            name: MaskStream(key_of(said["alice", name, 0], said[name, "alice", 0]))
            for name in ("bob", "carl")
        }
        masks = {name: stream.draw(torch.Size([count])) for name, stream in known.items()}
        bobs, carls = said["bob", "alice", 1], said["carl", "alice", 1]
        for part in (bobs, carls, bobs + carls, bobs - carls, bobs - masks["carl"]):
            assert near_half(part) and not (part == secret).any()
        bobs, carls = bobs + masks["bob"], carls + masks["carl"]
        for part in (bobs, carls):
            assert near_half(part), "hidden by what bob and carl share"
        assert torch.equal(bobs + carls, torch.full((count,), secret + 9)), "what alice may learn"
        assert torch.equal(said["alice", "bob", 1], torch.full((count,), secret + 16))
        assert all(pointer.get().shape == (count,) for pointer in pointers)


def key_of(one: torch.Tensor, other: torch.Tensor) -> bytes:
    """The key of two parties, from what the first and the second of them said."""
    parts = (struct.pack("=4q", *said.view(torch.int64)[:4].tolist()) for said in (one, other))
    return agreed_key(b"sum", *parts)


def near_half(numbers: torch.Tensor) -> bool:
    """Whether each of the 64 bits is set in about half of the numbers (6 standard deviations)."""
    bits = (numbers.unsqueeze(1) >> torch.arange(64)) & 1
    return bool(((bits.double().mean(0) - 0.5).abs() < 6 * 0.5 / len(numbers) ** 0.5).all())


def summed(inputs: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[Any]]:
    """The results of a sum without workers, and what was sent: (sender, receiver, tensor)."""
    count = len(inputs)
    programs = [PROGRAMS[CollectiveCode.SUM](Party(n, count), x) for n, x in enumerate(inputs)]
    rounds = [next(program) for program in programs]
    results: list[Any] = [None] * count
    log = []
    sent: dict[tuple[int, int, int], Any] = {}
    counts: Counter[tuple[int, int]] = Counter()
    while any(result is None for result in results):
        for a, one in enumerate(rounds):
            for b, (tensor,) in one.send.items():
                log.append((a, b, tensor))
                sent[a, b, counts[a, b]] = tensor
                counts[a, b] += 1
        for rank, program in enumerate(programs):
            try:
                got = {(a, n): Letter((sent[a, rank, n],)) for a, n in rounds[rank].expect}
                rounds[rank] = program.send(got)
            except StopIteration as end:
                results[rank] = end.value
    return results, log


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_it_is_a_star(count: int) -> None:
    """Each input travels once, masked, and the sum once to each: 144 MB were 14 for ten."""
    inputs = [torch.randn(1000, dtype=torch.float64) for _ in range(count)]
    results, log = summed(inputs)
    expected = torch.stack(inputs).sum(0)
    for result in results:
        torch.testing.assert_close(result, expected, rtol=0, atol=count * 2.0**-25)
    introductions = count * (count - 1) * 8 * (4 + 1)
    assert sum(tensor.nbytes for *_, tensor in log) == 2 * (count - 1) * 8 * 1000 + introductions


def test_masks_are_not_those_of_the_last_sum() -> None:
    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        _, log = summed([torch.ones(8), torch.ones(8)])
        drawn += [tensor for a, b, tensor in log if (a, b) == (1, 0)]
    keys, masked = drawn[::2], drawn[1::2]
    assert not torch.equal(*keys) and not (masked[0] == masked[1]).any()


def test_nobody_makes_others_expand_their_input(hook: sy.TorchHook) -> None:
    program = PROGRAMS[CollectiveCode.SUM](Party(0, 2), torch.ones(2, 1))
    next(program)
    with pytest.raises(UnsupportedOperation, match="shapes that broadcast to"):
        program.send({(1, 0): Letter((torch.tensor([1, 2, 3, 4, 1 << 40]),))})
    program = PROGRAMS[CollectiveCode.SUM](Party(0, 2), torch.ones(2, 1))
    next(program)
    with pytest.raises(ValueError, match="negative"):
        program.send({(1, 0): Letter((torch.tensor([1, 2, 3, 4, -5]),))})


@pytest.mark.parametrize("count", [2, 3, 5, 7, 1000, 1025])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_of_what_is_let_in_does_not_wrap_around(count: int, sign: int) -> None:
    limit = torch.tensor(2.0**39 / count, dtype=torch.float64)
    below = torch.nextafter(limit, torch.zeros_like(limit))
    first = next(PROGRAMS[CollectiveCode.SUM](Party(0, count), sign * below))
    assert len(first.send) == count - 1
    assert count * int(torch.round(below * 2**24)) < 2**63
    with pytest.raises(UnsupportedOperation, match=rf"numbers beyond 2\^39 / {count} parties"):
        next(PROGRAMS[CollectiveCode.SUM](Party(0, count), sign * limit))


# ----------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize(
    "values, expected",
    [
        ([[1.0], [float("nan")], [1.0]], UnsupportedOperation),
        ([[1.0], [float("inf")], [1.0]], UnsupportedOperation),
        ([[1.0], [1e30], [1.0]], UnsupportedOperation),
        ([[1.0], [2.0**39 / 3], [1.0]], UnsupportedOperation),
        ([[1.0], [1j], [1.0]], UnsupportedOperation),
        ([[1.0], [1], [1.0]], UnsupportedOperation),
        ([[1.0, 2.0], [1.0, 2.0, 3.0], [1.0]], RuntimeError),
    ],
    ids=repr,
)
def test_a_party_that_fails_aborts_all(
    parties: list[sy.VirtualWorker], values: list[Any], expected: type[Exception]
) -> None:
    private = sent(parties, *values)
    totals = sy.sum_private(*private)
    raised = 0
    for total in totals:
        with pytest.raises((expected, RemoteFailure, ObjectNotFound)) as caught:
            total.child.handle.wait()
        raised += isinstance(caught.value, expected)
        del caught
        with pytest.raises((expected, RemoteFailure, ObjectNotFound)):
            total.get()
    assert raised
    check_idle(parties)
    assert [len(inspect(party)) for party in parties] == [1, 1, 1]
    assert all(isinstance(pointer.get(), torch.Tensor) for pointer in private)


def test_an_input_that_never_comes_aborts_all(parties: list[sy.VirtualWorker]) -> None:
    first, second = sent(parties[:2], [1], [2])
    broken = parties[2].promise()
    late = broken.view(7)
    totals = sy.sum_private(first, second, late)
    kept = torch.tensor([3]).send(parties[2], id=broken.id_at_location)
    failures = []
    for total in totals:
        with pytest.raises((ObjectNotFound, RemoteFailure, RuntimeError)) as caught:
            total.get()
        failures.append(str(caught.value))
        del caught
    assert all("failed" in failure or "shape '[7]'" in failure for failure in failures)
    check_idle(parties)
    with pytest.raises((RuntimeError, ObjectNotFound)):
        late.get()
    del broken, kept, late, totals
    assert [first.get().tolist(), second.get().tolist()] == [[1], [2]]


def test_that_it_fails_is_hidden_when_the_input_is_private(
    parties: list[sy.VirtualWorker],
) -> None:
    private = torch.tensor([float("nan")]).private_tensor(["ann"], allow_destinations=NAMES)
    private = private.send(parties[0], user="ann")
    totals = sy.sum_private(private, *sent(parties[1:], [1.0], [2.0]))
    for total in totals:
        total.child.handle.wait()
        with pytest.raises(sy.exceptions.PermissionDenied):
            total.get()
        with pytest.raises(UnsupportedOperation, match="NaN") as caught:
            total.get(user="ann")
        del caught
    assert private.get(user="ann").isnan().all()
    check_idle(parties)


def test_a_failure_that_follows_from_shapes_and_dtypes_is_told(hook: sy.TorchHook) -> None:
    bob = make_worker(hook, id="bob")
    private = torch.tensor([1j]).private_tensor(["ann"]).send(bob, user="ann")
    (total,) = sy.sum_private(private)
    with pytest.raises(RemoteFailure, match="UnsupportedOperation") as caught:
        total.child.handle.wait()
    assert "the details are hidden" in str(caught.value)
    del caught


def test_whoever_may_read_a_failure_has_the_sum_fail(hook: sy.TorchHook) -> None:
    """A stranger starts the part that fails, and whoever may read its values the other one."""
    me, ann = hook.local_worker, sy.VirtualWorker(hook, id="laptop", user="ann")
    parties = [make_worker(hook, id=name) for name in NAMES[:2]]
    if not isinstance(parties[0], sy.VirtualWorker):
        pytest.skip("asks from two workers of this process")
    private = torch.tensor([float("nan")]).private_tensor(["ann"], allow_destinations=["bob"])
    inputs = [private.send(parties[0], user="ann"), torch.ones(1).send(parties[1])]
    execution, started, outs = new_id(), [], []
    for rank, (asking, pointer) in enumerate(zip((me, ann), inputs, strict=True)):
        connection = asking.connection_to(parties[rank])
        out, seq = new_id(), connection.requests.next_seq()
        operand = (0, pointer.id_at_location)
        start = Start(seq, int(CollectiveCode.SUM), execution, NAMES[:2], rank, (operand,), (out,))
        started.append((connection, connection.start(start, made=(out,))))
        outs.append(out)
    for connection, pending in reversed(started):
        with pytest.raises((RemoteFailure, ObjectNotFound)):
            connection.replies.wait(pending)
    check_idle(parties)
    ann.close()


def test_a_value_of_private_shape_takes_no_part(hook: sy.TorchHook) -> None:
    """Also for those who may read it: how large its letters are would be seen by others."""
    ann = sy.VirtualWorker(hook, id="laptop", user="ann")
    parties = [make_worker(hook, id=name) for name in NAMES[:2]]
    if not isinstance(parties[0], sy.VirtualWorker):
        pytest.skip("asks from another worker of this process")
    private = torch.tensor([5.0, -1.0]).private_tensor(["ann"]).send(parties[0], user="ann")
    chosen = private[private > 0]
    connection, out = ann.connection_to(parties[0]), new_id()
    operand = (0, chosen.id_at_location)
    about = int(CollectiveCode.SUM), new_id(), NAMES[:2], 0, (operand,), (out,)
    pending = connection.start(Start(connection.requests.next_seq(), *about), made=(out,))
    with pytest.raises((UnsupportedOperation, RemoteFailure), match="a value of private shape"):
        connection.replies.wait(pending)
    check_idle(parties)
    ann.close()


def test_a_private_input_goes_to_named_parties_only(parties: list[sy.VirtualWorker]) -> None:
    for places in ((), ("bob",), ("carl",)):
        private = torch.tensor([5.0]).private_tensor(["ann"], allow_destinations=places)
        private = private.send(parties[0], user="ann")
        totals = sy.sum_private(private, *sent(parties[1:], [1.0], [2.0]))
        with pytest.raises(sy.exceptions.PermissionDenied) as caught:
            totals[0].child.handle.wait()
        assert caught.value.id == private.id_at_location
        assert caught.value.to == ("carl" if "bob" in places else "bob")
        del caught
        for total in totals[1:]:
            with pytest.raises((RemoteFailure, ObjectNotFound)):
                total.get()
        check_idle(parties)
        del totals


def test_what_a_party_received_goes_where_it_may_go(
    parties: list[sy.VirtualWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alice's data may go to bob; the same execution is started at bob with carl besides."""
    if not isinstance(parties[0], sy.VirtualWorker):
        pytest.skip("the program that passes on what it got is one of this process")
    monkeypatch.setitem(PROGRAMS, int(CollectiveCode.SUM), show_twice)
    private = torch.tensor([5.0]).private_tensor(["ann"], allow_destinations=["bob"])
    private = private.send(parties[0], user="ann")
    there = sent(parties[1:], [1.0], [2.0])
    outs, started = [], []
    execution = new_id()
    for pointer, names in (
        (private, NAMES[:2]),
        (there[0], NAMES),
        (there[1], NAMES),
    ):
        connection = pointer.child.connection
        out, seq = new_id(), connection.requests.next_seq()
        rank = names.index(connection.location.id)
        operand = pointer.child.reference(connection)
        start = Start(seq, int(CollectiveCode.SUM), execution, names, rank, (operand,), (out,))
        started.append((connection, connection.start(start, made=(out,))))
        outs.append(out)
    connection, pending = started[1]
    with pytest.raises(sy.exceptions.PermissionDenied) as caught:
        connection.replies.wait(pending)
    assert caught.value.to == "carl" and caught.value.worker == "bob"
    del caught
    for connection, pending in (started[0], started[2]):
        with pytest.raises((RemoteFailure, ObjectNotFound)):
            connection.replies.wait(pending)
    check_idle(parties)


def test_clearing_or_closing_a_party_aborts_the_others(hook: sy.TorchHook) -> None:
    for leave in (lambda worker: worker.clear_objects(), lambda worker: worker.close()):
        parties = [make_worker(hook, id=name) for name in NAMES]
        promise = parties[2].promise()
        totals = sy.sum_private(*sent(parties[:2], [1], [2]), promise)
        assert inspect(parties[0]).executions == 1
        leave(parties[2])
        for total in totals[:2]:
            with pytest.raises((RemoteFailure, ObjectNotFound, WorkerLost), match="failed|lost"):
                total.get()
        check_idle(parties)
        del promise, totals
        for party in parties:
            party.close()


def test_each_party_is_one_worker(hook: sy.TorchHook, parties: list[sy.VirtualWorker]) -> None:
    one, other = sent(parties[:2], [1], [2])
    twice = torch.tensor([3]).send(parties[0])
    with pytest.raises(LocationMismatch, match="one worker for each party"):
        sy.sum_private(one, twice)
    with pytest.raises(LocationMismatch):
        sy.sum_private(one, torch.ones(1))
    with pytest.raises(LocationMismatch, match="the inputs of one party"):
        run_collective(CollectiveCode.SUM, [[one, other]])
    parties[1].close()
    with pytest.raises(WorkerClosed):
        sy.sum_private(one, other)
    check_idle(parties)
    assert one.get().tolist() == [1] and twice.get().tolist() == [3]


def test_a_party_that_nobody_knows_is_refused_before_it_starts(
    hook: sy.TorchHook, parties: list[sy.VirtualWorker]
) -> None:
    x = torch.tensor([1]).send(parties[0])
    connection = x.child.connection
    out = new_id()
    connection.start(
        start(
            seq=connection.requests.next_seq(),
            parties=("alice", "nobody"),
            rank=0,
            args=(ref(x.id_at_location),),
            outs=(out,),
        )
    )
    with pytest.raises(UnknownWorker, match="'alice' knows no worker 'nobody'"):
        sy.synchronize()
    check_idle(parties)
    assert x.get().tolist() == [1]


def test_a_program_gets_as_many_inputs_as_it_takes(parties: list[sy.VirtualWorker]) -> None:
    one = torch.tensor([1]).send(parties[0])
    ((total,),) = run_collective(CollectiveCode.SUM, [[one, one]])
    with pytest.raises((TypeError, ObjectNotFound)):
        total.get()
    ((first, second),) = run_collective(CollectiveCode.SUM, [[one]], results=2)
    with pytest.raises(
        ResultMismatch, match="sum_private gives 1 .* its caller expected 2 tensors"
    ):
        first.get()
    with pytest.raises(ObjectNotFound, match="collective operation that should have made it"):
        second.get()
    del first, second
    check_idle(parties)
    assert one.get().tolist() == [1]


# ------------------------------------------------------------------------------- frames, one by one


def show_twice(party: Party, x: torch.Tensor) -> Iterator[Any]:
    """Each party sends its tensor to each other one in the first round and in the second."""
    for _ in range(2):
        yield party.round(dict.fromkeys(party.others, (x,)))
    return x.clone()


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> WorkerCore:
    """Bob, one of three parties, who holds 5."""
    monkeypatch.setitem(PROGRAMS, int(CollectiveCode.SUM), show_twice)
    core = WorkerCore("bob", lambda name: known(name))
    put(core, 5, torch.tensor([1, 2]))
    return core


def known(name: str) -> Any:
    if name not in (*NAMES, "me"):
        raise UnknownWorker(name, "bob", NAMES)


def tell(core: WorkerCore, sender: str, message: Any, *buffers: torch.Tensor) -> list[Any]:
    """Give the core a message; returns what it sends, as (receiver, message).

    The receiver of a reply stands there as ``@`` and their name.
    """
    letters = core.receive(Frame(encode(message), list(buffers)), Peer(sender))
    return [
        (f"@{to.name}" if isinstance(to, Peer) else to, decode(frame.header))
        for to, frame in letters
    ]


def start(**changes: Any) -> Start:
    fields = {
        "seq": 4,
        "program": int(CollectiveCode.SUM),
        "execution": 99,
        "parties": NAMES,
        "rank": 1,
        "args": (ref(5),),
        "outs": (50,),
    }
    return Start(**(fields | changes))


def exchange(core: WorkerCore, sender: str, number: int, rank: int, **changes: Any) -> list[Any]:
    packer = Packer()
    operand = pack(changes.pop("value", torch.tensor([10, 20])), packer)
    message = Exchange(changes.pop("execution", 99), number, rank, (operand,), **changes)
    return tell(core, sender, message, *packer.buffers)


def test_frames_may_come_before_the_start(core: WorkerCore) -> None:
    assert exchange(core, "carl", 0, 2) == []
    assert exchange(core, "carl", 1, 2) == []
    assert exchange(core, "alice", 0, 0) == []
    told = tell(core, "me", start())
    assert [(to, type(message)) for to, message in told] == [
        ("alice", Exchange),
        ("carl", Exchange),
        ("alice", Exchange),
        ("carl", Exchange),
        ("@me", Parked),
    ]
    assert exchange(core, "alice", 1, 0) == [("@me", Done(4))]
    assert 50 in core.store.objects and not core.sessions


def test_the_reply_goes_to_the_connection_that_started_it(core: WorkerCore) -> None:
    starter = Peer("me")
    letters = core.receive(Frame(encode(start()), []), starter)
    assert letters[-1][0] is starter and decode(letters[-1][1].header) == Parked(4)
    for sender, rank in (("alice", 0), ("carl", 2)):
        exchange(core, sender, 0, rank)
    exchange(core, "carl", 1, 2)
    packer = Packer()
    last = Exchange(99, 1, 0, (pack(torch.tensor([10, 20]), packer),))
    ((to, frame),) = core.receive(Frame(encode(last), packer.buffers), Peer("alice"))
    assert to is starter and decode(frame.header) == Done(4)


@pytest.mark.parametrize("when", ["before", "before and gone", "while"])
def test_a_letter_of_one_who_is_no_party_changes_nothing(core: WorkerCore, when: str) -> None:
    """Whoever guesses the number of an execution neither takes a place in it nor ends it."""
    eve, me = Peer("eve"), Peer("me")
    letter = Frame(encode(Exchange(99, 0, 0, ())), [])
    if when == "while":
        tell(core, "me", start())
    core.receive(letter, eve)
    if when == "before and gone":
        core.give_up_all({eve.session}, "has left")
        assert not core.sessions
    if when != "while":
        core.receive(Frame(encode(start()), []), me)
        assert core.sessions[99].payer is me and not core.sessions[99].mailbox
    for number in range(2):
        exchange(core, "alice", number, 0)
        exchange(core, "carl", number, 2)
    assert not core.sessions and 50 in core.store.objects


def test_a_party_that_leaves_before_the_start_is_told_of_then(core: WorkerCore) -> None:
    alice, carl, me = Peer("alice"), Peer("carl"), Peer("me")
    for peer, rank in ((alice, 0), (carl, 2)):
        core.receive(Frame(encode(Exchange(99, 0, rank, ())), []), peer)
    assert core.sessions[99].payer is alice
    core.give_up_all({alice.session}, "has left")
    assert core.sessions[99].payer is carl
    told = core.receive(Frame(encode(start()), []), me)
    failures = [decode(frame.header) for to, frame in told if to is me]
    assert "party alice failed: it has left" in str(error_in(failures[0]))
    assert not core.sessions


def test_parties_of_other_programs_that_are_called_alike_are_no_parties(core: WorkerCore) -> None:
    """Two programs each have an alice and a carl; they may come under other names than these."""
    mine, others = ProgramMark(), ProgramMark()
    me = Peer("me")
    me.place = mine, "me"
    core.receive(Frame(encode(start()), []), me)
    for origin in (others, mine):
        for name, rank in (("alice", 0), ("carl", 2)):
            peer = Peer(f"{name}-2" if origin is mine else name)
            peer.place = origin, name
            for number in range(2):
                letter = Exchange(99, number, rank, ())
                core.receive(Frame(encode(letter), []), peer)
            if origin is others:
                core.receive(Frame(encode(Abort(99, rank, "no")), []), peer)
        assert bool(core.sessions) is (origin is others)
    assert 50 in core.store.objects


@pytest.mark.parametrize("early", [True, False])
def test_a_letter_with_the_rank_of_another_aborts(core: WorkerCore, early: bool) -> None:
    if not early:
        tell(core, "me", start())
    told = exchange(core, "alice", 0, 1)
    if early:
        tell(core, "me", start())
    told += exchange(core, "carl", 0, 2)
    failure = next(message for to, message in told if to == "@me")
    assert str(error_in(failure)) == (
        "Malformed message at $.rank: expected 0, as alice has, got 1."
    )
    assert [to for to, message in told if isinstance(message, Abort)] == ["alice", "carl"]
    assert not core.sessions and not core.store.promised
    assert "failed at bob" in str(core.store.why_missing(50))
    assert exchange(core, "alice", 0, 0) == [], "what comes late is ignored"
    assert not core.sessions


def test_a_frame_that_comes_twice_is_refused(core: WorkerCore) -> None:
    exchange(core, "alice", 0, 0)
    ((to, reply),) = exchange(core, "alice", 0, 0)
    assert to == "@alice" and "one letter of each number from each party" in str(error_in(reply))
    tell(core, "me", start())
    exchange(core, "carl", 0, 2)
    exchange(core, "carl", 1, 2)
    assert exchange(core, "alice", 1, 0) == [("@me", Done(4))]


@pytest.mark.parametrize(
    "changes",
    [
        {"number": -1},
        {"number": MAX_ROUNDS},
        {"number": 2**63},
    ],
    ids=repr,
)
def test_a_frame_that_cannot_be_right_leaves_nothing(core: WorkerCore, changes: Any) -> None:
    ((_, reply),) = exchange(core, "alice", changes.pop("number", 0), 0, **changes)
    assert isinstance(error_in(reply), (MalformedMessage, LimitExceeded))
    assert not core.sessions


@pytest.mark.parametrize(
    "changes",
    [
        {"program": 0},
        {"program": -1},
        {"rank": 0},
        {"rank": -1},
        {"rank": 3},
        {"parties": ()},
        {"parties": ("alice", "bob", "alice")},
        {"parties": ("alice", "bob", "nobody")},
        {"outs": (50, 5)},
        {"outs": (50, 60)},
    ],
    ids=repr,
)
@pytest.mark.parametrize("early", [True, False])
def test_a_start_that_cannot_be_right_leaves_nothing(
    core: WorkerCore, changes: Any, early: bool
) -> None:
    core.store.promise(60)
    if early:
        exchange(core, "alice", 0, 0)
    told = tell(core, "me", start(**changes))
    to, reply = told[-1]
    assert to == "@me" and reply.seq == 4
    assert isinstance(error_in(reply), (MalformedMessage, UnknownWorker, ObjectIdTaken))
    assert all(isinstance(message, Abort) for _, message in told[:-1])
    assert not core.sessions and core.store.promised == {60}
    assert list(core.store.objects) == [5]


def test_a_second_start_is_refused_and_the_first_goes_on(core: WorkerCore) -> None:
    tell(core, "me", start())
    ((_, reply),) = tell(core, "eve", start(outs=(51,)))
    assert isinstance(error_in(reply), MalformedMessage)
    assert 99 in core.sessions and 51 not in core.store.promised
    for round in (0, 1):
        for sender, rank in (("alice", 0), ("carl", 2)):
            told = exchange(core, sender, round, rank)
    assert told == [("@me", Done(4))]
    ((_, reply),) = tell(core, "me", start(outs=(52,)))
    assert isinstance(error_in(reply), MalformedMessage), "an execution does not run twice"


def test_nothing_is_lost_while_somebody_is_looked_for(core: WorkerCore) -> None:
    """To find the receiver of a message may take a while, in which others are served."""
    sent: list[Any] = []

    def find(name: str) -> str:
        sent.extend(core.outgoing())  # as the shell does after each request
        return name

    core.addressed = find
    told = tell(core, "me", start(args=(ref(404),)))
    sent = [(to, decode(frame.header)) for to, frame in sent] + told
    assert [to for to, message in sent if isinstance(message, Abort)] == ["alice", "carl"]


def test_what_waits_for_its_turn_does_not_wait_while_a_lost_party_is_dialled(
    core: WorkerCore,
) -> None:
    """To dial it takes seconds, in which others are served."""
    tell(core, "me", start())
    turns, log = Turns(), list[str]()
    turns.take(lambda: None)
    turns.take(lambda: log.append("the next turn"))
    core.sessions[99].turns = turns
    core.addressed = lambda name: log.append(name) or name
    core.lose("alice", "its process has ended")
    assert log == ["carl", "the next turn", "alice"]


def test_an_argument_that_is_no_tensor_aborts(core: WorkerCore) -> None:
    for args in ((5,), (ref(404),), ("x",)):
        told = tell(core, "me", start(args=args, execution=id(args)))
        assert [type(message) for _, message in told] == [Failure, Abort, Abort]
    assert not core.sessions and not core.store.promised


def test_an_abort_counts_before_the_start_and_only_from_a_party(core: WorkerCore) -> None:
    tell(core, "eve", Abort(99, 0, "eve says so"))
    tell(core, "me", start())
    assert 99 in core.sessions
    tell(core, "eve", Abort(99, 0, "eve says so"))
    assert 99 in core.sessions
    ((to, failure),) = tell(core, "alice", Abort(99, 0, "party alice failed"))
    assert to == "@me" and str(error_in(failure)) == "collective: party alice failed"
    assert tell(core, "carl", Abort(99, 2, "late")) == [] and not core.sessions
    tell(core, "alice", Abort(98, 0, "party alice failed"))
    ((to, failure),) = tell(core, "me", start(execution=98, outs=(51,)))
    assert to == "@me" and str(error_in(failure)) == "collective: party alice failed"
    assert not core.sessions and not core.store.promised


def test_the_number_of_executions_and_of_frames_is_bounded(core: WorkerCore) -> None:
    for execution in range(MAX_SESSIONS):
        assert tell(core, "me", start(execution=1000 + execution, outs=(9000 + execution,)))
    assert exchange(core, "alice", 0, 0, execution=1) == []
    assert len(core.sessions) == MAX_SESSIONS + 1, "what some have started stops nobody else"
    core.clear("test")
    assert not core.sessions and core.outgoing()
    for round in range(MAX_PARTY_MESSAGES):
        assert exchange(core, "alice", round, 0, execution=9999) == []
    ((_, reply),) = exchange(core, "alice", MAX_PARTY_MESSAGES, 0, execution=9999)
    assert isinstance(error_in(reply), LimitExceeded)
    told = tell(core, "me", start(execution=9999, outs=(51,)))
    (failure,) = [message for to, message in told if to == "@me"]
    assert "MAX_PARTY_MESSAGES" in str(error_in(failure)), "it is not waited for"
    core.clear("test")
    assert not core.sessions and core.outgoing() == []


def test_executions_invented_by_one_peer_stop_nobody_else(core: WorkerCore) -> None:
    tell(core, "me", start())
    assert exchange(core, "alice", 0, 0, execution=98) == []
    for execution in range(MAX_SESSIONS + 5):
        assert exchange(core, "eve", 0, 0, execution=1000 + execution) == []
    assert len(core.sessions) == MAX_SESSIONS + 1
    assert {98, 99} <= set(core.sessions), "what others announced and started is still there"
    assert 1005 not in core.sessions and 1006 in core.sessions, "the oldest of eve's went"
    for round in (0, 1):
        for sender, rank in (("alice", 0), ("carl", 2)):
            told = exchange(core, sender, round, rank)
    assert told == [("@me", Done(4))]
    tell(core, "me", start(execution=97, outs=(51,)))
    assert 97 in core.sessions


def test_what_is_remembered_of_ended_executions_is_bounded(core: WorkerCore) -> None:
    for execution in range(MAX_SESSIONS + 5):
        tell(core, "me", start(execution=execution, program=0))
    assert not core.ended, "only those on shared tensors may have to be undone"
    numbers = core.past[core]
    assert numbers.has(0) and len(numbers._used) == KEPT


def test_a_program_without_rounds_or_with_several_results(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def halves(party: Party, x: torch.Tensor) -> Iterator[Any]:
        yield party.round({}, expect=())
        return x[:1], x[1:]

    monkeypatch.setitem(PROGRAMS, int(CollectiveCode.SUM), halves)
    bob = sy.VirtualWorker(hook, id="bob")
    ((first, second),) = run_collective(
        CollectiveCode.SUM, [[torch.tensor([1, 2]).send(bob)]], results=2
    )
    assert first.get().tolist() == [1] and second.get().tolist() == [2]


def test_the_table_refuses_a_second_program_and_what_is_no_generator() -> None:
    with pytest.raises(HookError, match="cannot register again as collective 1"):

        @collective(CollectiveCode.SUM)
        def again(party: Party) -> Iterator[Any]:
            yield

    free = max(PROGRAMS) + 1
    with pytest.raises(HookError, match="a free number and a generator function"):
        collective(free)(lambda party: None)  # type: ignore[arg-type]
    assert free not in PROGRAMS


def test_an_execution_is_not_started_twice_however_many_there_were(core: WorkerCore) -> None:
    me = Peer("me")

    def told(execution: int) -> Any:
        message = start(execution=execution, program=0)
        if execution == 500:
            message = start(execution=execution, parties=("bob",), rank=0, outs=(70,))
        return decode(core.receive(Frame(encode(message), []), me)[-1][1].header)

    assert told(500) == Done(4)
    core.store.drop(70, "nobody wants it")
    for execution in range(501, 501 + MAX_SESSIONS + KEPT):
        core.receive(Frame(encode(start(execution=execution, parties=("bob",), rank=1)), []), me)
    assert "a fresh execution" in str(error_in(told(500)))
    assert 70 not in core.store.objects


def test_what_is_sent_too_far_ahead_fails_its_execution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROGRAMS, int(CollectiveCode.SUM), show_twice)
    core = WorkerCore("bob", lambda name: known(name), peer_limits=PeerLimits(letters=2000))
    put(core, 5, torch.tensor([1, 2]))
    alice, me = Peer("alice"), Peer("me")

    def send(number: int, execution: int, elements: int) -> list[Any]:
        packer = Packer()
        operand = pack(torch.zeros(elements, dtype=torch.int64), packer)
        frame = Frame(encode(Exchange(execution, number, 0, (operand,))), packer.buffers)
        letters = core.receive(frame, alice)
        return [(to, decode(frame.header)) for to, frame in letters]

    assert send(0, 99, 100) == [] and alice.session.account.letters == 1056
    ((to, early),) = send(1, 99, 100)
    assert to == "alice" and "peer_limits.letters is 2000, got 2112" in early.reason
    assert alice.session.account.letters == 0, "nothing of it is kept"
    assert send(2, 99, 1) == [] and alice.session.account.letters == 0
    letters = core.receive(Frame(encode(start()), []), me)
    told = [(to, decode(frame.header)) for to, frame in letters]
    assert isinstance(error_in(told[0][1]), LimitExceeded)
    assert [to for to, message in told[1:]] == ["alice", "carl"]
    assert all("peer_limits.letters" in message.reason for _, message in told[1:])

    core.receive(Frame(encode(start(execution=100, outs=(51,))), []), me)
    assert send(1, 100, 100) == []
    told = send(2, 100, 200)
    assert isinstance(error_in(told[0][1]), LimitExceeded) and told[0][0] is me
    assert not core.sessions and alice.session.account.letters == 0


def test_a_letter_of_one_execution_too_many_is_told_when_that_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = WorkerCore("bob", lambda name: known(name), peer_limits=PeerLimits(executions=1))
    put(core, 5, torch.tensor([1, 2]))
    alice = Peer("alice")
    for execution, refused in ((98, False), (99, True)):
        frame = Frame(encode(Exchange(execution, 0, 0, (5,))), [])
        assert bool(core.receive(frame, alice)) is refused
    told = tell(core, "me", start())
    assert "peer_limits.executions" in str(error_in(told[0][1]))
    assert [to for to, _ in told[1:]] == ["alice", "carl"]


def test_the_cause_of_a_failure_reaches_all(parties: list[sy.VirtualWorker]) -> None:
    totals = sy.sum_private(*sent(parties, [1.0], [float("nan")], [1.0]))
    causes = set()
    for total in totals:
        with pytest.raises((UnsupportedOperation, RemoteFailure)) as caught:
            total.child.handle.wait()
        causes.add(str(caught.value).partition("\n")[0])
        del caught
    assert len(causes) == 2
    (told,) = (cause for cause in causes if cause.startswith("collective"))
    assert told.startswith("collective: party bob failed: UnsupportedOperation: ")
    assert "NaN" in told


def test_letters_are_not_copied_between_workers_of_a_process(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def swap(party: Party, x: torch.Tensor) -> Iterator[Any]:
        seen.append(x.data_ptr())
        received = yield party.round(dict.fromkeys(party.others, (x, "and", (1, None))))
        ((_, letter),) = received.items()
        assert letter.values[1:] == ("and", (1, None))
        seen.append(letter.values[0].data_ptr())
        return letter.values[0].clone()

    monkeypatch.setitem(PROGRAMS, int(CollectiveCode.SUM), swap)
    places = [sy.VirtualWorker(hook, id=name) for name in NAMES[:2]]
    inputs = [torch.full((100,), n).send(place) for n, place in enumerate(places)]
    one, other = (row[0] for row in run_collective(CollectiveCode.SUM, [[x] for x in inputs]))
    assert one.get()[0] == 1 and other.get()[0] == 0
    assert set(seen[:2]) == set(seen[2:])


def test_a_party_that_is_lost_is_the_cause(core: WorkerCore) -> None:
    alice, carl, me = Peer("alice"), Peer("carl"), Peer("me")
    core.receive(Frame(encode(start()), []), me)
    core.leave([Peer("eve")], "eve")
    assert 99 in core.sessions
    core.leave([alice], "alice")
    told = [(to, decode(frame.header)) for to, frame in core.outgoing()]
    assert told[0][0] is me and isinstance(error_in(told[0][1]), WorkerLost)
    assert [to for to, _ in told[1:]] == ["carl", "alice"]
    assert "party bob failed: WorkerLost: The connection to worker 'alice'" in told[1][1].reason
    assert not core.sessions and not core.store.promised
    # One that has not started here, and one whose starter is gone.
    packer = Packer()
    letter = Exchange(101, 0, 2, (pack(torch.tensor([10, 20]), packer),))
    core.receive(Frame(encode(letter), packer.buffers), carl)
    core.leave([Peer("eve")], "eve")
    assert 101 in core.sessions and carl.session.account.letters
    core.leave([carl], "carl")
    assert not core.sessions and not carl.session.account.letters
    core.receive(Frame(encode(start(execution=102, outs=(52,))), []), me)
    core.leave([me], "me")
    assert not core.sessions


def test_results_are_stored_all_or_none(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def halves(party: Party, x: torch.Tensor) -> Iterator[Any]:
        yield party.round({})
        return torch.zeros(5000), torch.zeros(5000)

    monkeypatch.setitem(PROGRAMS, int(CollectiveCode.SUM), halves)
    bob = sy.VirtualWorker(hook, id="bob", peer_limits=PeerLimits(bytes=30000))
    ((first, second),) = run_collective(CollectiveCode.SUM, [[torch.ones(1).send(bob)]], results=2)
    with pytest.raises(LimitExceeded, match="peer_limits.bytes"):
        first.child.handle.wait()
    assert len(bob.core.store.objects) == 1 and not bob.core.sessions
    del first, second


def test_too_many_early_failures_of_one_peer_displace_nobody_elses(core: WorkerCore) -> None:
    tell(core, "alice", Abort(99, 0, "party alice failed"))
    for execution in range(MAX_SESSIONS + 5):
        tell(core, "eve", Abort(1000 + execution, 0, "eve says so"))
    assert len(core.aborted) == MAX_SESSIONS
    ((_, failure),) = tell(core, "me", start())
    assert str(error_in(failure)) == "collective: party alice failed"


@pytest.mark.parametrize("values", [(5,), (), (None,), (torch.ones(1), 5)])
def test_a_letter_that_is_no_tensor_is_the_fault_of_its_sender(
    hook: sy.TorchHook, values: tuple[Any, ...]
) -> None:
    program = PROGRAMS[CollectiveCode.SUM](Party(0, 2), torch.ones(2, 1))
    next(program)
    with pytest.raises(MalformedMessage, match="one tensor from party 1"):
        program.send({(1, 0): Letter(values)})


def test_a_party_that_has_left_when_a_letter_comes_is_the_cause(hook: sy.TorchHook) -> None:
    alice, bob, carl = (sy.VirtualWorker(hook, id=name, pipelined=True) for name in NAMES)
    inputs = [torch.ones(1).send(place) for place in (alice, bob, carl)]
    promise = alice.promise()
    totals = sy.sum_private(promise, *inputs[1:])
    bob.network.run()
    carl.close()
    kept = torch.ones(1).send(alice, id=promise.id_at_location)
    for total in totals[:2]:
        with pytest.raises((WorkerLost, RemoteFailure, ObjectNotFound), match="carl"):
            total.child.handle.wait()
    assert not alice.core.sessions and not bob.core.sessions
    del kept, promise, totals, inputs


def test_a_line_that_a_party_has_dialled_and_lost_is_the_cause(hook: sy.TorchHook) -> None:
    with (
        sy.WebsocketServerWorker(hook, port=0, id="dan") as dan,
        sy.WebsocketServerWorker(hook, port=0, id="eve") as eve,
    ):
        at_dan, at_eve = sy.connect(str(dan.address)), sy.connect(str(eve.address))
        x = torch.tensor([1]).send(at_dan)
        promise = at_eve.promise()
        totals = sy.sum_private(x, promise)
        sy.synchronize()
        (line,) = (line for line in dan.board.lines if dan.board.redialler.knows(line))
        with dan.owning():
            dan.board.remove(line, "it was cut")
        with pytest.raises(WorkerLost, match="cut"):
            totals[0].child.handle.wait()
        assert not dan.core.sessions
        del x, promise, totals
        at_dan.close()
        at_eve.close()
