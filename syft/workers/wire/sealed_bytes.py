"""Frames that carry bytes of a tunnel: sealed between its two ends, and opaque to who passes them.

Such a frame is no message.  Its header is the number of the tunnel, and its one buffer the bytes.
"""

from __future__ import annotations

from typing import Final

import msgspec
import torch

from syft.exceptions import MalformedMessage
from syft.serde.frame import Frame

_MOST: Final = 1 << 16
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(int)

MOST_SEALED: Final = _MOST
"""Bytes of a tunnel that one frame carries: what else the line has to carry goes in between."""


def sealed_frame(number: int, data: torch.Tensor) -> Frame:
    """The frame that carries ``data`` (bytes, one-dimensional) of a tunnel; it is not compressed.

    >>> sealed_frame(3, torch.zeros(5, dtype=torch.uint8)).nbytes
    6
    """
    return Frame(_ENCODER.encode(number), [data], private=True)


def is_sealed(frame: Frame) -> bool:
    """Whether a frame carries bytes of a tunnel, and no message.

    >>> is_sealed(sealed_frame(3, torch.zeros(5, dtype=torch.uint8)))
    True
    >>> is_sealed(Frame(b"\\x90", []))
    False
    """
    first = frame.header[:1]
    return first < b"\x80" or b"\xcc" <= first < b"\xd4"


def read_sealed(frame: Frame) -> tuple[int, torch.Tensor]:
    """The number of the tunnel, and the bytes.

    Raises :class:`~syft.exceptions.MalformedMessage`.

    >>> read_sealed(sealed_frame(3, torch.zeros(5, dtype=torch.uint8)))[0]
    3
    >>> read_sealed(Frame(b"noise", []))
    Traceback (most recent call last):
    ...
    syft.exceptions.MalformedMessage: Malformed message at $: expected the number of a tunnel and \
at most 65536 bytes, got something else.
    """
    try:
        number = _DECODER.decode(frame.header)
    except msgspec.DecodeError:
        number = -1
    if number < 0 or len(frame.buffers) != 1 or not 0 < frame.buffers[0].numel() <= _MOST:
        expected = f"the number of a tunnel and at most {_MOST} bytes"
        raise MalformedMessage("$", expected, "something else")
    return number, frame.buffers[0]
