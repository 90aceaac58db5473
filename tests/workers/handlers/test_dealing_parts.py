"""A party that deals too: what it computes, what is undone, and who must know of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.codes import CollectiveCode
from syft.crypto.programs.share_dealing import deals_of
from syft.exceptions import (
    MalformedMessage,
    MaterialUsed,
    PermissionDenied,
    ProgramError,
    RemoteFailure,
    SharedOperationFailed,
    WrongParties,
)
from syft.ids import new_execution, new_id
from syft.workers.core.peer_limits import PeerLimits
from syft.workers.handlers import sharing
from syft.workers.wire.messages import Describe, Exchange
from syft.workers.wire.references import Reference
from tests.shells.child import make_worker
from tests.shells.owner import inspect
from tests.workers.handlers.sharing_client import Client, wait
from tests.workers.handlers.test_rolling_back import ADD, ADD_AND_FAIL
from tests.workers.handlers.test_sharing import (
    X,
    Y,
    check_idle,
    product_program,
    relu_program,
)

every_shell = pytest.mark.every_shell


@pytest.fixture(params=["2-0", "2-1", "3-0 slow", "3-1", "3-2 slow"])
def client(request: pytest.FixtureRequest, hook: sy.TorchHook) -> Client:
    """A session of two parties or three, of which the one with this rank deals."""
    slow, count, dealer = "slow" in request.param, int(request.param[0]), int(request.param[2])
    names = ("alice", "bob", "carl")[:count]
    parties = [make_worker(hook, id=name, pipelined=slow) for name in names]
    client = Client(hook.local_worker, parties, parties[dealer])
    client.open()
    return client


def stock(client: Client, place: Any) -> int:
    return int(client.caller.connection_to(place).ask(Describe, client.session)[3][4])


# --------------------------------------------------------------------------------- what it computes


@every_shell
def test_products_and_comparisons(client: Client) -> None:
    x, y = client.share(X, Y)
    for _ in range(2):
        xy, _masked = client.run(product_program((5,)), [x, y])
        assert torch.equal(client.value(xy), X * Y)
    positive, sign = client.run(relu_program((5,)), [xy])
    assert torch.equal(client.value(positive), (X * Y).clamp(min=0))
    assert torch.equal(client.value(sign), (X * Y >= 0).long())
    check_idle(client)


@every_shell
def test_it_deals_ahead(client: Client) -> None:
    x, y = client.share(X, Y)
    program, last = product_program((5,)), client.parties[-1]
    first, second = client.deal_ahead(program), client.deal_ahead(program)
    between = client.run(program, [x, y])
    assert [stock(client, place) for place in client.parties[:-1]] == [0] * (
        len(client.parties) - 1
    )
    assert stock(client, last) == 80
    for material in (second, first):
        outs = [new_id(), new_id()]
        wait(client.start_with_material(material, program, [x, y], outs))
        assert torch.equal(client.value(outs[0]), X * Y)
    assert torch.equal(client.value(between[0]), X * Y) and stock(client, last) == 0
    with pytest.raises(MaterialUsed):
        wait(client.start_with_material(first, program, [x, y], [new_id(), new_id()]))


@every_shell
def test_many_programs_under_way(client: Client) -> None:
    """Corrections of one program come while another one opens."""
    x, y = client.share(X, Y)
    outs = [[new_id(), new_id()] for _ in range(5)]
    pending = []
    for made in outs:
        pending += client.start_run(product_program((5,)), [x, y], [made] * len(client.parties))
    wait(pending)
    assert all(torch.equal(client.value(made[0]), X * Y) for made in outs)


def test_nothing_that_is_dealt_leaves_the_last_party(hook: sy.TorchHook) -> None:
    parties = [sy.VirtualWorker(hook, id=name) for name in ("alice", "bob")]
    letters = {}
    for dealer in parties:
        client = Client(hook.local_worker, parties, dealer)
        client.open()
        x, y = client.share(X, Y)
        with hook.record() as log:
            xy, _ = client.run(product_program((5,)), [x, y])
        assert torch.equal(client.value(xy), X * Y)
        found = [entry.receiver for entry in log if type(entry.message) is Exchange]
        letters[dealer.id] = sorted(found)
    assert letters == {"alice": ["alice", "bob", "bob"], "bob": ["alice", "bob"]}


# ----------------------------------------------------------------------------------------- failures


@every_shell
def test_a_program_that_fails_is_undone_and_the_session_goes_on(client: Client) -> None:
    x, y, short = client.share(torch.stack([X, X]), Y, Y[:3])
    with pytest.raises((RuntimeError, RemoteFailure), match="size of tensor"):
        client.run(ADD_AND_FAIL, [x, y, short])
    with pytest.raises(SharedOperationFailed):
        client.fetch(x, client.parties[0])
    client.roll_back([[]] * len(client.parties))
    assert torch.equal(client.value(x), torch.stack([X, X]))
    client.run(ADD, [y, y])
    xy, _ = client.run(product_program((5,)), [y, y])
    assert torch.equal(client.value(xy), 4 * Y * Y)
    check_idle(client)


@every_shell
def test_it_has_no_second_part(client: Client) -> None:
    """DEAL is for a provider that is no party."""
    dealer = client.parties.index(client.provider)
    args: list[Any] = [None] * len(client.parties)
    args[dealer] = (Reference(client.session), 7, deals_of(relu_program((5,))))
    with pytest.raises(MalformedMessage, match="DEAL for the provider"):
        wait(client.start(CollectiveCode.DEAL, client.parties, args, [()] * len(args)))


DEALS: dict[str, Any] = {
    "online": lambda client, program, x: client.run(program, [x]),
    "ahead": lambda client, program, x: client.deal_ahead(program),
}


@pytest.mark.parametrize("how", DEALS)
def test_it_does_not_deal_more_than_a_caller_may_have(hook: sy.TorchHook, how: str) -> None:
    """It deals before it sees how long its share is."""
    limits = PeerLimits(elements=4000)
    alice, bob = (sy.VirtualWorker(hook, id=name, peer_limits=limits) for name in ("alice", "bob"))
    client = Client(sy.VirtualWorker(hook, id="laptop", user="eve"), [alice, bob], alice)
    client.open()
    (x,) = client.share(torch.arange(300))
    DEALS[how](client, relu_program((300,)), x)
    with pytest.raises(ProgramError, match="at most 4000 are allowed"):
        DEALS[how](client, relu_program((1 << 38,)), x)
    client.close()


# ------------------------------------------------------------------------- who must know who deals


@every_shell
@pytest.mark.parametrize("dealer", [-1, 2, True, "alice", None])
def test_it_is_a_party(hook: sy.TorchHook, dealer: Any) -> None:
    parties = [make_worker(hook, id=name) for name in ("alice", "bob")]
    client = Client(hook.local_worker, parties, parties[0])
    client.dealer = [dealer]
    with pytest.raises((MalformedMessage, WrongParties)):
        client.open()
    assert not any(inspect(party).objects for party in parties)


@every_shell
def test_it_is_not_alone(hook: sy.TorchHook) -> None:
    alice = make_worker(hook, id="alice")
    with pytest.raises(WrongParties, match="two workers or more"):
        Client(hook.local_worker, [alice], alice).open()


def opens(client: Client, stories: list[tuple[list[Any], tuple[int, ...]]]) -> list[Any]:
    """Tell each worker another story of who opens a session with whom, and who deals."""
    execution = new_execution()
    pending = []
    places = {place.id: place for places, _ in stories for place in places}
    for place, (places_told, args) in zip(places.values(), stories, strict=True):
        rank = places_told.index(place)
        parts: list[Any] = [None] * len(places_told)
        parts[rank] = args
        outs = [(client.session,)] * len(places_told)
        code = CollectiveCode.OPEN_SESSION
        pending += client.start(code, places_told, parts, outs, execution)
    return pending


@every_shell
def test_who_hears_that_another_deals_opens_no_session(hook: sy.TorchHook) -> None:
    """Alice deals, as she and carol have heard; bob has heard that carol does."""
    alice, bob, carol = (make_worker(hook, id=name) for name in ("alice", "bob", "carol"))
    liar = Client(hook.local_worker, [alice, bob], carol)
    everybody = [alice, bob, carol]
    pending = opens(liar, [([alice, bob], (0,)), (everybody, ()), (everybody, ())])[:2]
    with pytest.raises((MalformedMessage, RemoteFailure), match="a part of a key alone"):
        wait(pending)
    assert not inspect(bob).objects


@every_shell
def test_who_hears_that_it_holds_no_share_is_no_party(hook: sy.TorchHook) -> None:
    """Carol deals to two, as she has heard; they hear that she is one of three."""
    alice, bob, carol = (make_worker(hook, id=name) for name in ("alice", "bob", "carol"))
    client = Client(hook.local_worker, [alice, bob, carol], carol)
    everybody = [alice, bob, carol]
    with pytest.raises((MalformedMessage, RemoteFailure), match="who deals too"):
        wait(opens(client, [(everybody, (2,)), (everybody, (2,)), (everybody, ())]))
    assert not any(inspect(place).objects for place in (alice, bob))


@pytest.mark.parametrize(
    "values, dealer",
    [
        ((), None),
        ((bytes(31),), None),
        ((bytes(32), 0), None),
        ((bytes(32),), 0),
        ((bytes(32), 1), 0),
        ((bytes(32), True), 1),
        ((bytes(32), torch.tensor([0, 0])), 0),
        ((bytes(32), 0), 0),
        ((bytes(32), 0, bytes(32), 0), 0),
    ],
    ids=repr,
)
def test_a_key_comes_with_the_rank_that_was_named(values: Any, dealer: int | None) -> None:
    rest = () if dealer is None else (bytes(range(32)),)
    said = () if dealer is None else (dealer,)
    assert sharing._key_in((bytes(32), *said, *rest), dealer) == (bytes(32), rest)
    with pytest.raises(MalformedMessage):
        sharing._key_in(values, dealer)


@pytest.mark.parametrize("values", [(), (bytes(31),), (bytes(32), bytes(32)), (5,)], ids=repr)
def test_a_party_says_its_part_of_a_key_alone(values: Any) -> None:
    assert sharing._part_in((bytes(32),)) == bytes(32)
    with pytest.raises(MalformedMessage):
        sharing._part_in(values)


def test_parties_agree_on_who_deals(hook: sy.TorchHook) -> None:
    """The rank of the provider comes with the key."""
    alice, bob = (sy.VirtualWorker(hook, id=name) for name in ("alice", "bob"))
    session = Client(hook.local_worker, [alice, bob], alice)
    session.open()
    for place in (alice, bob):
        here = place.core.store.objects[session.session]
        assert (here.dealer, here.names, here.parties) == (0, ("alice", "bob"), ("alice", "bob"))
        assert repr(here) == "<SharingSession alice, bob; alice deals>"
        assert len(here.keys) == (2 if place is alice else 1)
    (first, second), (own,) = (
        place.core.store.objects[session.session].keys for place in (alice, bob)
    )
    assert second == own != first


# ------------------------------------------------------------------------------------- private data


@every_shell
@pytest.mark.parametrize("named", [("alice", "bob"), ("bob",), ("alice",)])
@pytest.mark.parametrize("dealer", [0, 1])
def test_whoever_deals_may_receive_what_is_private(
    hook: sy.TorchHook, named: tuple[str, ...], dealer: int
) -> None:
    """As every party must: so it learns nothing that it may not have."""
    alice, bob, owner = (make_worker(hook, id=name) for name in ("alice", "bob", "olga"))
    client = Client(hook.local_worker, [alice, bob], [alice, bob][dealer])
    client.open()
    private = Y.clone().private_tensor(["ann"], allow_destinations=named).send(owner, user="ann")
    if len(named) == 1:
        with pytest.raises(PermissionDenied) as caught:
            client.split(private, owner)
        assert caught.value.to == ("alice" if named == ("bob",) else "bob")
        del caught
        return
    shares = client.split(private, owner)
    square, _ = client.run(product_program((5,)), [shares, shares])
    for party in client.parties:
        with pytest.raises(PermissionDenied):
            client.fetch(square, party)
    assert torch.equal(client.value(square, "ann"), Y * Y)


def test_who_may_not_read_does_not_deal_as_a_party(hook: sy.TorchHook) -> None:
    """Even where its own worker is named: what the others open it would read."""
    me = hook.local_worker
    bob, owner = (sy.VirtualWorker(hook, id=name) for name in ("bob", "olga"))
    client = Client(me, [me, bob], me)
    client.open()
    private = X.clone().private_tensor(["ann"], allow_destinations=["me", "bob"])
    with pytest.raises((PermissionDenied, RemoteFailure), match="may not go to 'me'"):
        client.split(private.send(owner, user="ann"), owner)
    assert torch.equal(client.value(client.split(X.send(owner), owner)), X)


def test_nothing_dealt_and_nothing_named(hook: sy.TorchHook) -> None:
    """A linear program has the parties alone: the provider may be gone."""
    alice, bob, carol = (sy.VirtualWorker(hook, id=name) for name in ("alice", "bob", "carol"))
    client = Client(hook.local_worker, [alice, bob], carol)
    client.open()
    x, y = client.share(X, Y)
    carol.close()
    client.run(ADD, [x, y])
    assert torch.equal(client.value(x), X + Y)
    here, program = Reference(client.session), relu_program((5,))
    parts: list[Any] = [(here, 50, program, Reference(x))] * 2
    with pytest.raises(MalformedMessage, match="alice, bob, carol"):
        wait(client.start(CollectiveCode.SHARES, [alice, bob], parts, [(1, 2)] * 2))
