"""Frames that arrive over a line: small ones from one piece of bytes, large ones straight into the
memory of their tensors.

A large frame is never held in one piece.  Its first lines say how long its buffers are; these are
checked against the limits, and then the socket is read into them.  So 40 MB are copied once, by the
kernel.  Memory is only used as bytes come: a length that lies costs nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from typing import Final

import torch
from torch.utils.dlpack import from_dlpack

from syft.exceptions import LimitExceeded, MalformedMessage
from syft.serde.buffers import Decompression, fresh_buffer
from syft.serde.frame import (
    ALIGNMENT,
    ENTRY,
    MAGIC,
    PREFIX,
    RAW,
    VERSION,
    Frame,
    from_bytes,
    read_prefix,
    read_table,
)
from syft.serde.limits import Limits

Memory = Callable[[int], torch.Tensor]
"""Makes a buffer of so many bytes, which are yet to be written."""

_START: Final = MAGIC + bytes((VERSION, 0))
_START_AND_REST: Final = struct.Struct("<6sHII")  # PREFIX, its fixed fields in one
_STEP: Final = 1 << 20
"""How many bytes of a header are made room for at once."""
_PACKED_STEP: Final = 1 << 14
"""How many bytes of a compressed buffer are: they become 4 MB at most."""


def small_frame(data: bytes, limits: Limits) -> tuple[int, Frame]:
    """The channel of a frame that has come in one piece, and the frame.

    Raises :class:`~syft.exceptions.WireError` if it is none.

    >>> from syft.serde.frame import to_parts
    >>> small_frame(b"".join(to_parts(Frame(b"\\xc0", []), channel=5)), Limits())[0]
    5
    """
    if len(data) >= PREFIX.size:
        start, channel, count, size = _START_AND_REST.unpack_from(data)
        rest = len(data) - PREFIX.size
        if start == _START and not count and size == rest <= limits.max_header_bytes:
            return channel, Frame(data[PREFIX.size :], [])  # nearly always
    channel, _, _ = read_prefix(data, limits)
    whole = bytearray(data)
    whole[6:8] = b"\0\0"
    return channel, from_bytes(whole, limits)


class FrameAssembly:
    """A frame that is on its way: where its next bytes go, and the frame at last.

    >>> from syft.serde.frame import to_parts
    >>> data = b"".join(to_parts(Frame(b"\\xc0", [torch.ones(2, dtype=torch.uint8)])))
    >>> assembly = FrameAssembly(Limits())
    >>> while data:
    ...     space = assembly.space()
    ...     piece, data = data[: len(space)], data[len(space) :]
    ...     space[: len(piece)] = piece
    ...     assembly.filled(len(piece))
    >>> assembly.frame().buffers
    [tensor([1, 1], dtype=torch.uint8)]
    """

    def __init__(self, limits: Limits, memory: Memory = fresh_buffer) -> None:
        self.channel = 0
        self.received = 0
        """Bytes that have come."""
        self.expected = PREFIX.size
        """Bytes of the whole frame, as far as is known."""
        self.expanded = 0
        """Bytes into which compressed ones have been turned."""
        self._limits = limits
        self._fresh = memory
        self._header = b""
        self._buffers: list[torch.Tensor] = []
        self._parts = self._memory()
        self._space: memoryview | None = next(self._parts)

    def space(self) -> memoryview:
        """Memory for the next bytes.

        Raises :class:`~syft.exceptions.MalformedMessage` if the frame is complete.
        """
        if self._space is None:
            raise MalformedMessage("$", f"{self.expected} bytes", "more")
        return self._space

    def filled(self, count: int) -> None:
        """Note that ``count`` bytes have come to the beginning of :meth:`space`.

        Raises :class:`~syft.exceptions.WireError` for lengths that break a rule, and
        :class:`ConnectionError` after :meth:`discard`.
        """
        if self._space is None:
            raise ConnectionResetError("the connection was given up meanwhile")
        self.received += count
        self._space = self._space[count:]
        if not self._space:
            self._space = next(self._parts, None)

    def frame(self) -> Frame:
        """The frame, once all has come; :class:`~syft.exceptions.MalformedMessage` before."""
        if self._space is not None:
            raise MalformedMessage("$", f"{self.expected} bytes", f"{self.received} bytes")
        return Frame(self._header, self._buffers, exclusive=True)

    def discard(self) -> None:
        """Free what has come: the rest will not.

        Without this it would stay until the cycle collector runs, since what makes room for the
        next bytes refers to the frame.

        >>> assembly = FrameAssembly(Limits())
        >>> assembly.discard()
        >>> assembly.space()
        Traceback (most recent call last):
        ...
        syft.exceptions.MalformedMessage: Malformed message at $: expected 16 bytes, got more.
        >>> assembly.filled(1)
        Traceback (most recent call last):
        ...
        ConnectionResetError: the connection was given up meanwhile
        """
        self._parts.close()
        self._space = None
        self._buffers.clear()

    def _memory(self) -> Generator[memoryview, None, None]:
        """The memory of one part of the frame after another; each is filled before the next."""
        prefix = bytearray(PREFIX.size)
        yield memoryview(prefix)
        self.channel, count, header_size = read_prefix(bytes(prefix), self._limits)
        self.expected = end = PREFIX.size + count * ENTRY.size + header_size
        table = yield from _grown(count * ENTRY.size)
        entries = list(read_table(prefix + table, count, self._limits))
        for stored, _, _ in entries:
            self.expected += -self.expected % ALIGNMENT + stored
        if self.expected > self._limits.max_bytes:
            raise LimitExceeded("$", "max_bytes", self._limits.max_bytes, self.expected)
        self._header = bytes((yield from _grown(header_size)))
        for index, (stored, raw, kind) in enumerate(entries):
            padding = yield from _grown(-end % ALIGNMENT)
            if any(padding):
                raise MalformedMessage(f"$.buffers[{index}]", "padding of zeros", "other bytes")
            end += len(padding) + stored
            if kind == RAW:
                buffer = self._fresh(raw)
                if raw:
                    yield _octets(buffer)
            else:
                buffer = fresh_buffer(raw)
                yield from self._unpacked(stored, _octets(buffer), index)
            self._buffers.append(buffer)

    def _unpacked(self, stored: int, memory: memoryview, index: int) -> Iterator[memoryview]:
        """The memory of the pieces of a compressed buffer, each of which is decompressed when it
        has come: to do all of it at once may take longer than others wait for a sign of life."""
        decompression = Decompression(memory, stored, f"$.buffers[{index}]")
        for begin in range(0, stored, _PACKED_STEP):
            piece = bytearray(min(_PACKED_STEP, stored - begin))
            yield memoryview(piece)
            before = decompression.done
            decompression.feed(piece)
            self.expanded += decompression.done - before
        decompression.finish()


def _octets(buffer: torch.Tensor) -> memoryview:
    """The memory of a buffer.  The buffer can be enlarged afterwards; ``buffer.numpy()`` would have
    torch refuse that for as long as the memory is there."""
    return memoryview(from_dlpack(buffer).numpy())  # type: ignore[arg-type]


def _grown(size: int) -> Generator[memoryview, None, bytearray]:
    """Memory that is made as it is filled; returns all of it."""
    whole = bytearray()
    while len(whole) < size:
        piece = bytearray(min(_STEP, size - len(whole)))
        yield memoryview(piece)
        whole += piece
    return whole
