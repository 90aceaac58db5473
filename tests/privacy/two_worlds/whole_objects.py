"""Requests about whole objects: one maker for each kind of message that is no operation.

A kind of message that has no row here, and is not sent by another action of a random program, fails
a test.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch

from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.serde.tensors.bundle import Bundle
from syft.workers.wire import messages
from syft.workers.wire.messages import Message
from tests.privacy.two_worlds.observer import Observer

OTHERS = ("alice", "eve")


@dataclass
class Choice:
    """What a message is made of: the numbers of the objects it is about, and random choices."""

    observer: Observer
    rng: random.Random
    target: int
    other: int
    seq: int
    out: int
    packer: Packer

    def worker(self) -> str:
        """Another worker."""
        return self.rng.choice(OTHERS)

    def tensor(self) -> object:
        """A tensor of the observer's, as an operand."""
        return pack(torch.ones(3), self.packer)


MAKERS: dict[type[Message], Callable[[Choice], Message]] = {
    messages.Move: lambda c: messages.Move(
        c.seq, c.target, c.worker(), c.rng.choice((None, False, True)), c.rng.choice((None, "bea"))
    ),
    messages.Duplicate: lambda c: messages.Duplicate(c.seq, c.target, c.out),
    messages.Fetch: lambda c: messages.Fetch(c.seq, c.target, c.rng.choice((0, 0, 1))),
    messages.FetchAll: lambda c: messages.FetchAll(c.seq, (c.target, c.other), True),
    messages.Relay: lambda c: messages.Relay(c.seq, c.target, c.rng.choice((*OTHERS, None))),
    messages.Convert: lambda c: messages.Convert(
        c.seq, c.target, c.rng.randint(0, 3), c.rng.choice(((), (2,))), c.out
    ),
    messages.Annotate: lambda c: messages.Annotate(c.seq, c.target, ("#a",), "described"),
    messages.Describe: lambda c: messages.Describe(c.seq, c.target),
    messages.Search: lambda c: messages.Search(
        c.seq, c.rng.choice(((), ("#a",), (str(c.target),)))
    ),
    messages.Gradients: lambda c: messages.Gradients(c.seq, (c.target,), c.out),
    messages.ClearGradients: lambda c: messages.ClearGradients(c.seq, (c.target, c.other)),
    messages.Drop: lambda c: messages.Drop(c.seq, (c.target,)),
    messages.Holds: lambda c: messages.Holds(c.seq, c.target, b"0" * 32),
    messages.Allow: lambda c: messages.Allow(
        c.seq, c.target, c.rng.choice((("eve",), ("bea",))), c.out, c.rng.choice(((), ("eve",)))
    ),
    messages.Share: lambda c: messages.Share(c.target, ("eve", "bea")),
    messages.Promise: lambda c: messages.Promise(c.seq, (c.out,)),
    messages.Await: lambda c: messages.Await(c.seq, c.target),
    messages.GiveUp: lambda c: messages.GiveUp(c.seq, c.target, "it will not come"),
    messages.Cancel: lambda c: messages.Cancel(c.seq, c.rng.randint(1, c.seq)),
    messages.Abort: lambda c: messages.Abort(c.seq + 10**6, 0, "a party failed"),
    messages.Exchange: lambda c: messages.Exchange(c.seq + 10**6, 0, 1, (c.tensor(),)),
    messages.PutAll: lambda c: messages.PutAll(
        c.seq,
        c.out,
        pack(Bundle([torch.ones(2), torch.ones(2, 3)]), c.packer),
        c.rng.choice(((), ((0, ("ann",), False, None),))),
    ),
}

SENT_ELSEWHERE: dict[type[Message], str] = {
    messages.Command: "call",
    messages.Run: "group",
    messages.Put: "put",
    messages.Start: "collective",
}
"""The kinds of message that other actions of a random program send, with the action."""


def whole_object_message(
    observer: Observer, rng: random.Random, target: int, other: int
) -> tuple[Message, Packer]:
    """A message of any kind about an object, with the buffers that go with it."""
    kind = rng.choice(list(MAKERS))
    choice = Choice(observer, rng, target, other, observer.count(), observer.id(), Packer())
    message = MAKERS[kind](choice)
    if isinstance(message, messages.Move):
        observer.known.setdefault(message.to, []).append(target)
    if isinstance(message, messages.PutAll):
        observer.known["bob"].append(choice.out + 1)
    made = (messages.Duplicate, messages.Gradients, messages.Convert, messages.Allow)
    if target in observer.private and isinstance(message, made):
        observer.private.add(choice.out)
    return message, choice.packer
