"""Programs on shares that fail at one party, and what the parties undo."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.codes import CollectiveCode
from syft.crypto.programs.share_program import ShareCode, ShareProgram
from syft.exceptions import (
    MalformedMessage,
    MaterialUsed,
    PermissionDenied,
    RemoteFailure,
    SessionEnded,
    SharedOperationFailed,
    SyftError,
)
from syft.ids import new_id
from syft.workers.core.peer import Peer
from syft.workers.core.peer_limits import PeerLimits
from syft.workers.core.shares import SharingSession
from syft.workers.wire.messages import Fetch
from syft.workers.wire.references import Reference
from tests.crypto.parties import zeros_of
from tests.shells.owner import inspect
from tests.workers.handlers.sharing_client import Client, wait
from tests.workers.handlers.test_sharing import (
    S,
    X,
    Y,
    check_idle,
    local,
    product_program,
    relu_program,
    step,
)
from tests.crypto.ring_programs import program_of

pytestmark = pytest.mark.every_shell

aten = torch.ops.aten
ADD = program_of(2, (local(aten.add_.Tensor, (S(0), S(1)), 2),), ())
ADD_AND_FAIL = program_of(
    3,
    (
        local(aten.select.int, (S(0), 0, 0), 3),
        local(aten.add_.Tensor, (S(3), S(1)), 4),
        step(ShareCode.MASK, (S(3), (5,)), 5),
        local(aten.add.Tensor, (S(3), S(2)), 6),
    ),
    (6,),
)


def refused_by_bob(pair: Client, program: ShareProgram, inputs: list[int]) -> None:
    """Have a program fail at bob, whose results have an id that is taken."""
    outs = [[new_id() for _ in program.results] for _ in range(2)]
    outs[1].append(inputs[0])
    with pytest.raises((SyftError, RemoteFailure)):
        wait(pair.start_run(program, inputs, outs))


def test_what_one_party_has_written_is_put_back(pair: Client) -> None:
    x, y = pair.share(X, Y)
    pair.run(ADD, [x, y])
    done = pair.overwritten[-1]
    refused_by_bob(pair, ADD, [x, y])
    for place in pair.parties:
        with pytest.raises(SharedOperationFailed, match="alice, bob has failed"):
            pair.fetch(y, place)
    pair.roll_back([[pair.overwritten[-1]], []])
    assert torch.equal(pair.value(x), X + Y), "alice had added twice"
    pair.run(ADD, [x, y])
    pair.roll_back([[id, done] for id in pair.overwritten[-1:]] * 2)
    assert torch.equal(pair.value(x), X), "newest first, as far back as the client says"
    assert torch.equal(pair.value(pair.run(product_program((5,)), [x, y])[0]), X * Y)
    check_idle(pair)


def test_parties_that_fail_in_the_middle_put_back_what_they_have_written(client: Client) -> None:
    x, y, short = client.share(torch.stack([X, X]), Y, Y[:4])
    with pytest.raises((RuntimeError, RemoteFailure), match="size of tensor"):
        client.run(ADD_AND_FAIL, [x, y, short])
    client.roll_back([[]] * len(client.parties))
    assert torch.equal(client.value(x), torch.stack([X, X]))
    assert torch.equal(client.value(client.run(relu_program((2, 5)), [x])[1]), (x2() >= 0).long())
    check_idle(client)


def x2() -> torch.Tensor:
    return torch.stack([X, X])


@pytest.fixture(params=[2, 3])
def client(request: pytest.FixtureRequest, pair: Client, hook: sy.TorchHook) -> Client:
    """Two parties or three."""
    if request.param == 2:
        return pair
    three = Client(pair.caller, [*pair.parties, sy.VirtualWorker(hook, id="carl")], pair.provider)
    three.open()
    return three


def test_what_has_no_room_is_put_back(hook: sy.TorchHook) -> None:
    """Results, and the copy of what is overwritten, count as what a caller has."""
    limits = PeerLimits(bytes=300)
    alice, bob, dealer = (
        sy.VirtualWorker(hook, id=name, peer_limits=limits) for name in ("alice", "bob", "dealer")
    )
    pair = Client(sy.VirtualWorker(hook, id="laptop", user="eve"), [alice, bob], dealer)
    pair.open()
    x, y = pair.share(X, Y)
    wide = (local(aten.repeat.default, (S(0), (5,)), 3),)
    with pytest.raises((SyftError, RemoteFailure), match="bytes"):
        pair.run(program_of(2, (*ADD.actions, *wide), (3,)), [x, y])
    pair.roll_back([[], []])
    assert torch.equal(pair.value(x), X)
    pair.close()


def test_no_counter_is_used_again_after_a_failure(pair: Client) -> None:
    x, y = pair.share(X, Y)
    refused_by_bob(pair, relu_program((5,)), [x])
    pair.roll_back([[], []])
    outs = [[new_id(), new_id()]] * 2
    with pytest.raises(MaterialUsed):
        wait(pair.start_run(relu_program((5,)), [x], outs, counter=pair.counter, deals=()))
    with pytest.raises(SessionEnded, match="MaterialUsed"):
        pair.roll_back([[], []])


def test_a_failure_that_is_told_late_interrupts_nothing() -> None:
    session = SharingSession(
        "alice", ("alice", "bob", "dealer"), 0, [bytes(32)], zeros_of(0, 2), Peer("me")
    )
    session.go_on(100)
    session.interrupt(99, "bob was full")
    session.check_open()
    session.interrupt(101, "bob was full")
    session.interrupt(102, "bob is lost")
    with pytest.raises(SharedOperationFailed, match="bob was full"):
        session.check_open()
    session.go_on(103)
    session.check_open()
    provider = SharingSession(
        "dealer", ("alice", "bob", "dealer"), 2, [bytes(32)] * 2, zeros_of(2, 2), Peer("me")
    )
    provider.interrupt(1, "bob was full")
    provider.check_open()


@pytest.mark.parametrize("wrong", ["share", "session", "another session's", "twice named", "rank"])
def test_what_is_not_to_be_rolled_back_ends_the_session(pair: Client, wrong: str) -> None:
    x, y = pair.share(X, Y)
    other = Client(pair.caller, pair.parties, pair.provider)
    other.open()
    a, b = other.share(X, Y)
    other.run(ADD, [a, b])
    here, nothing = Reference(pair.session), [(), (), ()]
    args: Any = {
        "share": [(here, Reference(x)), (here,)],
        "session": [(here, here), (here,)],
        "another session's": [(here, Reference(other.overwritten[0])), (here,)],
        "twice named": [(5,), (here,)],
        "rank": [(here,), None, (here,)],
    }[wrong]
    places = pair.everybody if len(args) == 3 else pair.parties
    with pytest.raises(MalformedMessage):
        wait(pair.start(CollectiveCode.ROLL_BACK, places, args, nothing))
    if wrong != "twice named":
        with pytest.raises(SessionEnded):
            pair.fetch(x, pair.parties[0])
    assert torch.equal(other.value(a), X + Y)


def test_nobody_else_rolls_back_or_gets_what_was_overwritten(
    pair: Client, hook: sy.TorchHook
) -> None:
    x, y = pair.share(X, Y)
    pair.run(ADD, [x, y])
    kept = pair.overwritten[-1]
    for place in pair.parties:
        with pytest.raises(PermissionDenied):
            pair.fetch(kept, place)
        assert "Overwritten, 40 bytes" in str(inspect(place).objects[kept])
    if isinstance(pair.parties[0], sy.VirtualWorker):
        eve = Client(sy.VirtualWorker(hook, id="laptop", user="eve"), pair.parties, pair.provider)
        eve.session = pair.session
        with pytest.raises((PermissionDenied, RemoteFailure)):
            eve.roll_back([[kept], [kept]])
        with pytest.raises(PermissionDenied):
            eve.caller.connection_to(pair.parties[0]).ask(Fetch, kept)
    assert torch.equal(pair.value(x), X + Y)
