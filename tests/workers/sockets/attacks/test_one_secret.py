"""A stranger tries to read one private tensor in every way that there is, while all that passes is
recorded: the secret's bytes are never among it."""

from __future__ import annotations

import marshal
import pickle
import struct
from collections.abc import Callable
from typing import Any

import torch

import syft as sy
from syft.exceptions import SyftError
from syft.workers.wire import messages
from syft.workers.wire.messages import Failure, Fetch, Put
from tests.workers.sockets.attacks.proxy import Proxy
from tests.workers.sockets.attacks.stranger import BINARY, Stranger, frame, syft_frame
from tests.workers.sockets.attacks.victim import Victim, honest_client
from tests.workers.sockets.line_records import is_served

SECRET = torch.tensor([271.8281828, 314.1592653, 161.8033988]).tolist()


def traces() -> list[bytes]:
    """How the secret would look on the wire: each number as a float, a double, or text."""
    found = []
    for number in SECRET:
        single = struct.pack("<f", number)
        double = struct.pack("<d", number)
        found += [single, single[::-1], double, double[::-1], f"{number:.4f}"[:6].encode()]
    return found


def attempts(x: Any, evil: Any, bob: Any) -> list[Callable[[], Any]]:
    """What a stranger does with a pointer to it."""
    plan = sy.func2plan(args_shape=[(3,)])(lambda given: given)
    index = torch.arange(500).send(bob)
    return [
        lambda: x.copy().get(),
        lambda: (x * 1).get(),
        lambda: x.copy().get(user="ann"),
        lambda: x.move(evil).get(),
        lambda: (x + 0).move(evil).get(),
        lambda: (x + 0).move(bob.network.local),
        lambda: (x + 0).remote_send(evil),
        lambda: x.allow("eve").get(),
        lambda: sy.get_all([x, x + 0]),
        lambda: x.sum().item(),
        lambda: x.tolist(),
        lambda: bool(x[0] > 0),
        lambda: repr(x) + str(x) + repr(x.describe("mine")),
        lambda: x.numpy(),
        lambda: index[x.long()].get(),
        lambda: torch.zeros(3).send(bob).copy_(x).get(),
        lambda: torch.ones(3).send(bob).reshape(x.long().tolist()),
        lambda: torch.nonzero(x).get(),
        lambda: torch.split(index, x.long()),
        lambda: torch.linalg.cholesky(torch.diag(-x)).get(),
        lambda: plan.send(bob)(x).get(),
        lambda: torch.stack([x, torch.ones(3).send(bob)]).get(),
        lambda: x.shape,
    ]


def test_a_stranger_never_sees_a_byte_of_it(hook: sy.TorchHook) -> None:
    held = {"values": SECRET, "users": ["ann"], "tags": ["#secret"], "description": "mine"}
    evil = sy.VirtualWorker(hook, "evil")
    with Victim(hold=[held], allow_plans=True) as victim:
        with Proxy(victim.port, records=True) as proxy:
            bob = sy.WebsocketClientWorker(hook, port=proxy.port, blocking=True)
            (x,) = bob.search("#secret")
            refused = 0
            for attempt in attempts(x, evil, bob):
                try:
                    attempt()
                except (SyftError, RuntimeError, TypeError, ValueError, AttributeError):
                    refused += 1
            assert refused >= 15, f"{refused} attempts were refused"
            ids = [x.child.id_at_location + step for step in range(-3, 4)]
            for id in ids:
                for fields in ({}, {"user": "ann"}, {"guarded": True}):
                    with Stranger(proxy.port) as stranger:
                        stranger.greet(name="ann")
                        assert type(stranger.ask(Fetch(1, id, keep=True, **fields))) is Failure
            assert len(proxy.seen) > 5000, "all of that was recorded"
            found = [trace for trace in traces() if trace in proxy.seen]
            assert not found
            public = torch.tensor(SECRET).send(bob)  # masked on this way, in the clear back
            assert public.copy().get().tolist() == SECRET
            assert all(
                trace in proxy.seen for trace in traces()[::5]
            ), "the scan finds what is sent"
            del x, public
            bob.close()
            bob.network.workers.pop("evil", None)


class Weapon:
    """What would write a file, were it unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("/nonexistent/weapon", "w"))


def test_pickles_and_marshalled_code_are_data_that_is_refused(hook: sy.TorchHook) -> None:
    code = marshal.dumps(compile("1/0", "x", "exec"))
    payloads = [pickle.dumps(Weapon(), protocol) for protocol in range(6)] + [code]
    payloads.append(b"PK\x03\x04" + bytes(100))  # as torch.save begins
    with Victim() as victim:
        for payload in payloads:
            for data in (
                payload,
                syft_frame(payload),
                syft_frame(messages.encode(Put(1, 7, payload))),
                syft_frame(messages.encode(Put(1, 7, (12, payload)))),
            ):
                with Stranger(victim.port) as stranger:
                    stranger.greet()
                    stranger.send(frame(BINARY, data))
                    try:
                        opcode, reply = stranger.read()
                    except ConnectionError:
                        continue
                    if is_served(opcode, reply):
                        assert type(messages.decode(reply[16:])) is Failure
        assert victim.ask("objects") == 0
        with honest_client(victim) as bob:
            assert (torch.ones(2).send(bob) + 1).get().tolist() == [2.0, 2.0]
