"""The header of a frame: MessagePack, written and read by msgspec.

Typed messages are ``msgspec.Struct`` classes in ``syft.workers``; here is the untyped pair, for
bare operands.  msgspec reads arrays as lists, never allocates more than the bytes justify, and
stops at Python's recursion limit; the limit on typed nesting holds when the operand is unpacked.
"""

from __future__ import annotations

from typing import Any

import msgspec

from syft.exceptions import LimitExceeded, MalformedMessage
from syft.serde.limits import DEFAULT_LIMITS, Limits
from syft.serde.registry import Operand

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder()


def encode_header(operand: Operand) -> bytes:
    """Encode an operand as MessagePack.

    >>> encode_header((7, None, 3, None)).hex()
    '9407c003c0'
    """
    return _ENCODER.encode(operand)


def decode_header(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Decode MessagePack bytes; arrays come as lists.

    >>> decode_header(encode_header((7, None, 3, None)))
    [7, None, 3, None]
    """
    if len(data) > limits.max_header_bytes:
        raise LimitExceeded("$.header", "max_header_bytes", limits.max_header_bytes, len(data))
    try:
        return _DECODER.decode(data)
    except RecursionError as error:
        raise LimitExceeded("$.header", "max_depth", limits.max_depth, len(data)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedMessage("$.header", "MessagePack", str(error)) from error
