"""Serialization: values to nested tuples to bytes, and back.

:func:`serialize` and :func:`deserialize` do all of it at once.  Workers do it in steps:
:func:`pack` a value with a :class:`Packer`, put the operand into a message, encode the message as a
header, and keep header and tensor buffers together as a :class:`Frame`.

MessagePack was chosen over pickle because decoding it gives only numbers, strings and arrays:
nothing that arrives is executed, imported or called.  Tensors are sent beside it as raw memory, so
large data is copied once at most.
"""

from __future__ import annotations

from typing import Any

from syft.serde import native as native
from syft.serde.errors import pack_error as pack_error
from syft.serde.errors import unpack_error as unpack_error
from syft.serde.expect import prepend as prepend
from syft.serde.frame import Frame as Frame
from syft.serde.frame import from_bytes as from_bytes
from syft.serde.frame import to_bytes as to_bytes
from syft.serde.frame import to_parts as to_parts
from syft.serde.frame import decode_header as decode_header
from syft.serde.frame import encode_header as encode_header
from syft.serde.limits import DEFAULT_LIMITS as DEFAULT_LIMITS
from syft.serde.limits import Limits as Limits
from syft.serde.packer import Packer as Packer
from syft.serde.packer import Unpacker as Unpacker
from syft.serde.registry import Operand as Operand
from syft.serde.registry import pack as pack
from syft.serde.registry import register as register
from syft.serde.registry import register_code as register_code
from syft.serde.registry import register_hint as register_hint
from syft.serde.registry import register_packer as register_packer
from syft.serde.registry import unpack as unpack
from syft.serde.registry import unpack_at as unpack_at
from syft.serde.registry import unpack_items as unpack_items
from syft.serde.tensors.bundle import Bundle as Bundle
from syft.serde.tensors.tensor_codec import pack_tensor as pack_tensor


def serialize(value: Any, compressed: bool = True) -> bytearray:
    """Turn a value into the bytes of one frame, copying tensor data once.

    >>> deserialize(serialize({"x": torch.ones(2), "dims": (0, 1)}))
    {'x': tensor([1., 1.]), 'dims': (0, 1)}
    """
    packer = Packer(gradients=True)
    operand = pack(value, packer)
    return to_bytes(Frame(encode_header(operand), packer.buffers), compressed)


def deserialize(data: bytearray | bytes | memoryview, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Turn the bytes of a frame back into the value; errors name the path inside the message.

    A ``bytearray`` is not copied: large tensors use its memory.  Changing it afterwards changes
    them, and they cannot be enlarged (``resize_``); clone them for that.  ``bytes`` and
    ``memoryview`` are copied.

    >>> deserialize(b"x")
    Traceback (most recent call last):
    ...
    syft.exceptions.MalformedMessage: Malformed message at $: expected at least 16 bytes, got 1 \
bytes.
    """
    frame = from_bytes(data, limits, share=True)
    unpacker = Unpacker(frame.buffers, limits)
    value = unpack(decode_header(frame.header, limits), unpacker)
    unpacker.finish()
    return value
