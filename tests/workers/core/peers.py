"""A bare worker core, and what it answers: for tests that drive it with frames, without a shell."""

from __future__ import annotations

from typing import Any

import torch

from syft.exceptions import UnknownWorker
from syft.serde.errors import unpack_error
from syft.serde.frame import Frame
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack
from syft.workers.wire import messages
from syft.workers.core.state_machine import Peer, WorkerCore
from syft.workers.wire.messages import GRAD_MODE, Command, Message
from syft.ops.table import BY_NAME
from syft.workers.wire.references import REF

ME = Peer("me")


def lonely(name: str = "bob") -> WorkerCore:
    """A core that knows no other worker."""

    def connect(other: str) -> Any:
        raise UnknownWorker(other, name, ())

    return WorkerCore(name, connect)


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


def put(core: WorkerCore, id: int, tensor: torch.Tensor, **fields: Any) -> Any:
    """Store a tensor by a message."""
    packer = Packer()
    message = messages.Put(1, id, pack(tensor, packer), **fields)
    return ask(core, message, *packer.buffers)


def command(name: str, *args: Any, out: int = 0, seq: int = 1, **fields: Any) -> Command:
    """A command with packed arguments."""
    return Command(seq, BY_NAME[name], args, out, fields.pop("flags", GRAD_MODE), **fields)


def ref(id: int) -> tuple[int, int]:
    """An operand that names an object."""
    return (REF, id)
