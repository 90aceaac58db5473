"""Frames: one message as bytes, and back.

A frame is a MessagePack header and the raw bytes of the tensors it describes, which are never
copied into the header: they are written from a ``memoryview`` and read with ``frombuffer``.
``docs/wire.md`` has the layout.  Every length is checked against the limits and against the bytes
present before anything is allocated.  An error here means that the framing is broken, so the
connection cannot be used any more.

Typed messages are ``msgspec.Struct`` classes in ``syft.workers``; :func:`encode_header` and
:func:`decode_header` are for operands without a message.  msgspec decodes arrays as lists, never
allocates more than the bytes justify, and stops at Python's recursion limit.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import torch

from syft.codes import Compression
from syft.exceptions import LimitExceeded, MalformedMessage
from syft.serde.buffers import compress, copy_buffer, decompress, fresh_buffer, join_bytes
from syft.serde.limits import DEFAULT_LIMITS, Limits
from syft.serde.registry import Operand

MAGIC = b"syft"
VERSION = 1
ALIGNMENT = 64

# magic, version, flags (0), channel, number of buffers, bytes of the header
PREFIX = struct.Struct("<4sBBHII")
# bytes stored, bytes decompressed, compression, reserved (0)
ENTRY = struct.Struct("<QQII")

# Buffers up to this size are copied out of the frame even where it may be shared: a copy costs
# a few microseconds, and a bias must not keep the frame of a whole model in memory.
_SMALL = 1 << 16

# Up to this size a buffer is sent as a copy, which takes no longer than to look at its memory.
_COPIED = 1 << 14

RAW, _LZ4 = int(Compression.NONE), int(Compression.LZ4)

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder()


class Frame(msgspec.Struct, gc=False):
    """A message: its encoded header, and the tensor buffers it refers to by index.

    Each buffer is a one-dimensional, contiguous uint8 tensor on any device.

    >>> Frame(b"\\xc0", []).nbytes
    1
    """

    header: bytes
    buffers: list[torch.Tensor]
    exclusive: bool = False
    """Whether the receiver owns the buffers, so that tensors may use their memory."""
    private: bool = False
    """Whether a value in it is private: then it is not compressed, since its size would tell."""
    lasting: bool = False
    """Whether nobody writes to the buffers any more, so that it may be sent when there is time."""
    done: int | None = None
    """The number of the request that the header says is done, and nothing else: its caller need not
    decode the header if it is in this process."""

    @property
    def nbytes(self) -> int:
        """Bytes of header and buffers, before compression."""
        size = len(self.header)
        for buffer in self.buffers:
            size += buffer.numel()
        return size

    def owned(self) -> "Frame":
        """Return a frame with copies of the buffers, which stay the same while tensors change.

        >>> Frame(b"\\xc0", [torch.zeros(2, dtype=torch.uint8)]).owned().buffers
        [tensor([0, 0], dtype=torch.uint8)]
        """
        return Frame(self.header, [*map(copy_buffer, self.buffers)], True, self.private)


# ------------------------------------------------------------------------------------- the header


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


# -------------------------------------------------------------------------------- writing a frame


def to_parts(
    frame: Frame, compressed: bool = True, channel: int = 0
) -> list[bytes | bytearray | memoryview]:
    """Return the pieces whose concatenation is the frame, without joining them.

    The pieces of large uncompressed buffers are the memory of the tensors themselves, which torch
    does not enlarge from then on (``resize_``); small ones are copied.  Nothing of a
    private frame is compressed, whatever ``compressed`` says.  ``channel`` is that of the frame on
    a line that carries several.

    >>> [len(part) for part in to_parts(Frame(b"\\xc0", []))]
    [17]
    """
    count = len(frame.buffers)
    prefix = PREFIX.pack(MAGIC, VERSION, 0, channel, count, len(frame.header))
    if not count:
        return [prefix + frame.header]
    table: list[bytes] = [prefix]
    parts: list[bytes | bytearray | memoryview] = [b""]
    end = PREFIX.size + count * ENTRY.size + len(frame.header)
    compressed = compressed and not frame.private
    for buffer in frame.buffers:
        raw = _octets(buffer.cpu())
        packed = compress(raw) if compressed else None
        stored = raw if packed is None else packed
        kind = RAW if packed is None else _LZ4
        table.append(ENTRY.pack(len(stored), len(raw), kind, 0))
        parts.append(bytes(-end % ALIGNMENT))
        parts.append(stored)
        end += -end % ALIGNMENT + len(stored)
    parts[0] = b"".join([*table, frame.header])
    return parts


def _octets(buffer: torch.Tensor) -> memoryview:
    """The bytes of a buffer: its memory if there are many, or else a copy."""
    size = buffer.numel()
    if size > _COPIED:
        return memoryview(buffer.numpy())  # type: ignore[arg-type]
    return memoryview(ctypes.string_at(buffer.data_ptr(), size))


def to_bytes(frame: Frame, compressed: bool = True) -> bytearray:
    """Return the frame as bytes, in one copy.

    >>> bytes(to_bytes(Frame(b"\\xc0", [])))
    b'syft\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01\\x00\\x00\\x00\\xc0'
    """
    return join_bytes(to_parts(frame, compressed))


# -------------------------------------------------------------------------------- reading a frame


def from_bytes(
    data: bytearray | bytes | memoryview, limits: Limits = DEFAULT_LIMITS, share: bool = False
) -> Frame:
    """Check a frame and split it into header and buffers, each copied once, into torch's memory.

    With ``share`` the large buffers of a ``bytearray`` use its memory instead, so the caller must
    not change it afterwards.  Such a tensor cannot grow.  Torch refuses that, but only after it has
    given the tensor its new size, so that the next operation leaves the memory.  A worker therefore
    never shares the memory of a frame.

    >>> from_bytes(to_bytes(Frame(b"\\xc0", []))).header
    b'\\xc0'
    """
    with memoryview(data) as view, view.cast("B") as octets:
        count, header_size = _read_whole_prefix(octets, limits)
        if not count:
            _expect_size(octets, (), PREFIX.size + header_size)
            return Frame(bytes(octets[PREFIX.size :]), [])
        entries = list(read_table(octets, count, limits))
        start = PREFIX.size + count * ENTRY.size
        end = start + header_size
        _expect_size(octets, entries, end)
        header = bytes(octets[start:end])
        buffers = []
        for index, (stored, raw, kind) in enumerate(entries):
            begin = end + -end % ALIGNMENT
            if any(octets[end:begin]):
                raise MalformedMessage(f"$.buffers[{index}]", "padding of zeros", "other bytes")
            end = begin + stored
            source: Any = data if isinstance(data, bytearray) else octets
            if kind != RAW:
                source, begin = decompress(octets[begin:end], raw, f"$.buffers[{index}]"), 0
            shared = share and raw > _SMALL and isinstance(source, bytearray)
            # torch.frombuffer releases the buffer, so the bytearray could be resized under the
            # tensor; numpy keeps it exported, so that resizing raises BufferError.
            piece = np.frombuffer(source, np.uint8, raw, begin)
            buffers.append(torch.from_numpy(piece) if shared else _copy(piece))
            del piece
    return Frame(header, buffers, exclusive=True)


def _read_whole_prefix(octets: memoryview, limits: Limits) -> tuple[int, int]:
    """Check the first bytes of a frame that is there in one piece, and not on a line."""
    channel, count, header_size = read_prefix(octets, limits)
    if channel:
        raise MalformedMessage("$.channel", "0 outside of a line", f"{channel}")
    if len(octets) > limits.max_bytes:
        raise LimitExceeded("$", "max_bytes", limits.max_bytes, len(octets))
    needed = PREFIX.size + count * ENTRY.size + header_size
    if needed > len(octets):
        raise MalformedMessage("$.header", f"at least {needed} bytes", f"{len(octets)} bytes")
    return count, header_size


def read_prefix(view: memoryview | bytes, limits: Limits) -> tuple[int, int, int]:
    """Check the first bytes of a frame: its channel, and how many buffers and header bytes it has.

    Raises :class:`~syft.exceptions.MalformedMessage` and
    :class:`~syft.exceptions.LimitExceeded`.

    >>> read_prefix(bytes(to_bytes(Frame(b"\\xc0", []))), DEFAULT_LIMITS)
    (0, 0, 1)
    """
    if len(view) < PREFIX.size:
        raise MalformedMessage("$", f"at least {PREFIX.size} bytes", f"{len(view)} bytes")
    magic, version, flags, channel, count, header_size = PREFIX.unpack_from(view)
    if magic != MAGIC:
        raise MalformedMessage("$.magic", "a syft frame", "other bytes")
    if version != VERSION:
        raise MalformedMessage("$.version", f"version {VERSION}", f"version {version}")
    if flags:
        raise MalformedMessage("$.flags", "zero", f"{flags}")
    if count > limits.max_buffers:
        raise LimitExceeded("$.buffers", "max_buffers", limits.max_buffers, count)
    if header_size > limits.max_header_bytes:
        raise LimitExceeded("$.header", "max_header_bytes", limits.max_header_bytes, header_size)
    return channel, count, header_size


def read_table(
    view: memoryview | bytearray, count: int, limits: Limits
) -> Iterator[tuple[int, int, int]]:
    """Check the buffer table of a frame: bytes stored and decompressed, and compression, of each.

    Raises :class:`~syft.exceptions.MalformedMessage` and
    :class:`~syft.exceptions.LimitExceeded`.

    >>> frame = to_bytes(Frame(b"\\xc0", [torch.zeros(3, dtype=torch.uint8)]))
    >>> list(read_table(frame, 1, DEFAULT_LIMITS))
    [(3, 3, 0)]
    """
    total = 0
    for index in range(count):
        offset = PREFIX.size + index * ENTRY.size
        stored, raw, kind, reserved = ENTRY.unpack_from(view, offset)
        where = f"$.buffers[{index}]"
        if kind not in (RAW, _LZ4) or reserved:
            raise MalformedMessage(where, "a known compression", f"{kind} and {reserved}")
        if stored > raw or (kind == RAW and stored != raw):
            raise MalformedMessage(where, f"at most {raw} stored bytes", f"{stored}")
        total += raw
        if total > limits.max_bytes:
            raise LimitExceeded(where, "max_bytes", limits.max_bytes, total)
        yield stored, raw, kind


def _expect_size(view: memoryview, entries: Sequence[tuple[int, int, int]], end: int) -> None:
    """Refuse a frame that is shorter or longer than its table says, naming the first cut buffer."""
    for index, (stored, _, _) in enumerate(entries):
        end += -end % ALIGNMENT + stored
        if end > len(view):
            missing = f"{stored} bytes of buffer"
            raise MalformedMessage(f"$.buffers[{index}]", missing, "the end of the frame")
    if end != len(view):
        raise MalformedMessage("$", f"{end} bytes", f"{len(view)} bytes")


def _copy(data: np.ndarray[Any, Any]) -> torch.Tensor:
    # torch's own memory is aligned, and the tensor can be resized (not so after a call of numpy).
    tensor = fresh_buffer(len(data))
    ctypes.memmove(tensor.data_ptr(), data.ctypes.data, len(data))
    return tensor
