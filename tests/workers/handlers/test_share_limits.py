"""What callers and parties of shared tensors ask for has bounds, and nobody falls over it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch

import syft as sy
from syft.codes import CollectiveCode
from syft.crypto.kernels import KernelCode
from syft.crypto.programs.share_program import ShareCode
from syft.exceptions import (
    MalformedMessage,
    MaterialError,
    NotSendable,
    ProgramError,
    RemoteFailure,
)
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.core.peer_limits import PeerLimits
from syft.workers.wire.messages import Exchange
from syft.workers.wire.references import Reference
from tests.workers.handlers.sharing_client import Client, wait
from tests.workers.handlers.test_sharing import (
    Liar,
    S,
    X,
    Y,
    local,
    product_program,
    relu_program,
    step,
)
from tests.crypto.ring_programs import program_of

aten = torch.ops.aten
MOST = 4000


@pytest.fixture
def pair(hook: sy.TorchHook) -> Client:
    """A session of somebody with limits, and who uses it."""
    limits = PeerLimits(elements=MOST)
    alice, bob, dealer = (
        sy.VirtualWorker(hook, id=name, peer_limits=limits) for name in ("alice", "bob", "dealer")
    )
    client = Client(sy.VirtualWorker(hook, id="laptop", user="eve"), [alice, bob], dealer)
    client.open()
    return client


def goes_on(pair: Client) -> None:
    again = Client(pair.caller, pair.parties, pair.provider)
    again.open()
    x, y = again.share(X, Y)
    xy, _ = again.run(product_program((5,)), [x, y])
    assert torch.equal(again.value(xy), X * Y)
    for worker in pair.everybody:
        assert not worker.core.sessions and not worker.core.store.promised


LONG = (1 << 38,)
OUTER = (int(KernelCode.MULTIPLY), (), (1, 0), (1 << 18, 1), (1, 0), (1, 1 << 18))
DEALS: dict[str, Any] = {
    "a comparison": ((0, int(ShareCode.NEGATIVE), (LONG,)),),
    "a division": ((0, int(ShareCode.DIVIDE), (16, LONG)),),
    "a product": ((0, int(ShareCode.PRODUCT), (*OUTER, (1 << 18, 1 << 18))),),
    "many": tuple((place, int(ShareCode.ZERO), ((100,),)) for place in range(5)),
}


@pytest.mark.parametrize("deals", DEALS.values(), ids=DEALS)
def test_a_provider_does_not_deal_more_than_a_caller_may_have(pair: Client, deals: Any) -> None:
    dealing = [None, None, (Reference(pair.session), 1, deals)]
    with pytest.raises(ProgramError, match="at most 4000 are allowed"):
        wait(pair.start(CollectiveCode.DEAL, pair.everybody, dealing, [()] * 3))
    goes_on(pair)


def test_seeds_draw_no_more_than_a_caller_may_have(pair: Client) -> None:
    seeds = [(bytes(32), (1500,))] * 2
    with pytest.raises((MalformedMessage, RemoteFailure), match="at most 1000 elements"):
        pair.run(program_of(3, (), (0, 1, 2)), [seeds] * 3)
    goes_on(pair)


NO_DEVICES: dict[str, tuple[Any, Any]] = {
    "without values": (torch.device("meta"), "a device"),
    "not here": (torch.device("cuda", 100), "no such device"),
    "of no type that counts its devices": (torch.device("xla"), "no such device"),
    "a text": ("cpu", "a device"),
    "nothing": (None, "a device"),
    "a tensor": (torch.ones(2), "a device"),
    "a device and more": (torch.device("cpu"), "shape, guard and device"),
}


@pytest.mark.parametrize("name", NO_DEVICES)
def test_seeds_are_drawn_on_devices_that_are_there(pair: Client, name: str) -> None:
    device, expected = NO_DEVICES[name]
    more = (1,) if name == "a device and more" else ()
    with pytest.raises((MalformedMessage, NotSendable, RemoteFailure), match=expected):
        pair.run(program_of(1, (), (0,)), [[(bytes(32), (5,), None, device, *more)] * 2])
    goes_on(pair)


def test_a_share_has_values(pair: Client) -> None:
    nothing = torch.empty(5, dtype=torch.int64, device="meta")
    with pytest.raises((MalformedMessage, RemoteFailure), match="an int64 tensor"):
        pair.run(program_of(1, (), (0,)), [[(nothing,)] * 2])
    goes_on(pair)


def repeat(slot: int, times: int, out: int) -> Any:
    return local(aten.repeat.default, (S(slot), (times,)), out)


def test_a_program_holds_no_more_than_a_caller_may_have(pair: Client) -> None:
    (x,) = pair.share(X)
    steps = tuple(repeat(0, 100, number + 1) for number in range(20))
    for results in ((1,), (20,)):  # what nobody needs is let go
        (made,) = pair.run(program_of(1, steps, results), [x])
        assert torch.equal(pair.value(made), X.repeat(100))
    with pytest.raises((ProgramError, RemoteFailure), match="at most 500 are allowed"):
        pair.run(program_of(1, (*steps[:7], repeat(0, 101, 8)), tuple(range(1, 9))), [x])
    goes_on(pair)


@pytest.mark.parametrize("code", [ShareCode.MASK, ShareCode.NEGATIVE])
def test_what_protocols_hold_counts(pair: Client, code: ShareCode) -> None:
    count = {ShareCode.MASK: 2001, ShareCode.NEGATIVE: 401}[code]
    (x,) = pair.share(torch.zeros(count, dtype=torch.int64))
    program = program_of(1, (step(code, (S(0), (count,)), 1),), (1,))
    with pytest.raises((ProgramError, RemoteFailure), match="at most 4000 are allowed"):
        pair.run(program, [x])
    goes_on(pair)


# ----------------------------------------------------------------------------------- who sends lies

LIES: dict[str, Any] = {
    "other sizes": (torch.zeros(4, dtype=torch.int64),),
    "other numbers": (torch.zeros(5),),
    "fewer": (),
    "more": (torch.zeros(5, dtype=torch.int64),) * 2,
    "no tensor": ("five",),
    "another layout": (torch.zeros(5, dtype=torch.int64).to_sparse(),),
    "no values": (torch.empty(5, dtype=torch.int64, device="meta"),),
    "bytes": (bytes(40),),
}


@pytest.mark.parametrize("values", LIES.values(), ids=LIES)
@pytest.mark.parametrize("liar", ["party", "provider"])
def test_whoever_sends_something_else_ends_the_session(
    pair: Client, liar: str, values: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sends another letter than its program would, with the right name."""
    (x,) = pair.share(X)
    sender = pair.parties[0] if liar == "party" else pair.provider
    post = type(sender.core).post

    def lying(core: Any, name: str, message: Any, *rest: Any, **named: Any) -> Any:
        if core is sender.core and type(message) is Exchange and name == "bob":
            packer = Packer()
            said = values if liar == "party" else (0, *values)
            operands = tuple(pack(value, packer) for value in said)
            place = message.execution, message.number, message.rank
            return post(core, name, Exchange(*place, operands), packer.buffers, **named)
        return post(core, name, message, *rest, **named)

    monkeypatch.setattr(type(sender.core), "post", lying)
    with pytest.raises((MalformedMessage, MaterialError, RemoteFailure)):
        pair.run(relu_program((5,)), [x])
    monkeypatch.undo()
    goes_on(pair)


@pytest.mark.parametrize("values", [(), (bytes(32),) * 2, (bytes(31),), (torch.ones(32),)])
def test_a_key_that_is_none_opens_no_session(hook: sy.TorchHook, values: tuple[Any, ...]) -> None:
    places = [sy.VirtualWorker(hook, id=name) for name in ("alice", "bob", "dealer")]
    pair = Client(hook.local_worker, places[:2], places[2])
    liar = Liar(pair)
    packer = Packer()
    packed = tuple(pack(value, packer) for value in values)
    liar.change = lambda letter: msgspec.structs.replace(letter, values=packed)
    liar.buffers = packer.buffers
    with pytest.raises(MalformedMessage, match=r"\$\.values"):
        wait(pair.start_opening()[:2])
    for place in places[:2]:
        assert pair.session not in place.core.store.objects and not place.core.sessions
    for place in places:
        del place.core.post
