"""What a request is called where people read it: in logs, and in what a waiting caller is told."""

from __future__ import annotations

from syft.ops.table import NAMES
from syft.serde.frame import Frame
from syft.workers.wire import messages
from syft.workers.wire.messages import Command


def described(frame: Frame) -> str:
    """The operation of a command, or the kind of another request.

    >>> from syft.workers.wire.messages import Drop, encode
    >>> described(Frame(encode(Drop(0, (5,))), [])), described(Frame(b"", []))
    ('Drop', 'an unreadable request')
    """
    try:
        message = messages.read_request(frame.header)
    except messages.UNREADABLE:
        return "an unreadable request"
    if type(message) is Command and 0 <= message.op < len(NAMES):
        return NAMES[message.op]
    return type(message).__name__
