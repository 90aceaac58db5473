"""A bare worker core, and what it answers: for tests that drive it with frames, without a shell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import torch

from syft.exceptions import UnknownWorker
from syft.serde.errors import unpack_error
from syft.serde.frame import Frame
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack
from syft.workers.wire import messages
from syft.workers.core.peer import Peer, Session
from syft.workers.core.state_machine import WorkerCore
from syft.workers.wire.messages import GRAD_MODE, Command, Message
from syft.ops.table import BY_NAME
from syft.workers.wire.references import REF

ME = Peer("me")
"""Who asks where a test does not say it: one connection to the core that was made last."""


def lonely(name: str = "bob") -> WorkerCore:
    """A core that knows no other worker, and has not heard of anybody."""
    ME.session = Session()

    def connect(other: str) -> Any:
        raise UnknownWorker(other, name, ())

    return WorkerCore(name, connect)


def sociable(name: str = "bob") -> WorkerCore:
    """A core that knows a worker of any name; what it asks them for goes nowhere."""
    core = lonely(name)
    core.connect = lambda other: cast(Any, SimpleNamespace(garbage=[]))
    return core


def ask(core: WorkerCore, message: Message, *buffers: torch.Tensor, peer: Peer = ME) -> Any:
    """The one message with which a core answers another."""
    (answer,) = said(core, messages.encode(message), *buffers, peer=peer)
    return answer


def said(
    core: WorkerCore, header: bytes, *buffers: torch.Tensor, peer: Peer = ME
) -> list[messages.Message]:
    """Every message with which a core answers a header."""
    letters = core.receive(Frame(header, list(buffers)), peer)
    return [messages.decode(frame.header) for _, frame in letters]


def sent(
    core: WorkerCore, message: Message, *buffers: torch.Tensor, peer: Peer = ME
) -> list[tuple[Peer | str, messages.Message]]:
    """Every message that a core sends because of another, with whom it is for."""
    letters = core.receive(Frame(messages.encode(message), list(buffers)), peer)
    return [(to, messages.decode(frame.header)) for to, frame in letters]


def error_in(reply: Any) -> Exception:
    """The exception in a Failure."""
    assert type(reply) is messages.Failure, reply
    return unpack_error(reply.error, Unpacker([]))[0]


def value_in(core: WorkerCore, message: Message, peer: Peer = ME) -> Any:
    """The value with which a core answers."""
    (letter,) = core.receive(Frame(messages.encode(message), []), peer)
    reply = messages.decode(letter[1].header)
    assert type(reply) is messages.Value, reply
    return unpack(reply.value, Unpacker(letter[1].buffers))


def put(core: WorkerCore, id: int, tensor: torch.Tensor, peer: Peer = ME, **fields: Any) -> Any:
    """Store a tensor by a message."""
    packer = Packer(gradients=True)
    message = messages.Put(1, id, pack(tensor, packer), **fields)
    return ask(core, message, *packer.buffers, peer=peer)


def command(name: str, *args: Any, out: int = 0, seq: int = 1, **fields: Any) -> Command:
    """A command with packed arguments."""
    return Command(seq, BY_NAME[name], args, out, fields.pop("flags", GRAD_MODE), **fields)


def ref(id: int) -> tuple[int, int]:
    """An operand that names an object."""
    return (REF, id)
