"""The bytes of tensor buffers: fresh memory, copies, and LZ4 where it saves space.

Memory.  Copying 40 MB takes 4 ms; getting 40 MB of fresh memory from the kernel in pages of 4 KiB
takes another 16 ms (measured on two cores: ``x.clone()`` 20 ms, the same with huge pages 5 ms).
Linux provides pages of 2 MiB where a program asks for them (``madvise``): numpy asks for its
arrays, torch does not.  The request is a hint; a system that ignores it only copies more slowly.

Compression.  The bytes decide, not the kind of tensor: float weights do not compress at all,
fixed-point integers by two or three, sparse updates by fifty, secret shares never.  A sample of
64 KiB, spread over the buffer, is compressed first, which costs a small part of copying the
buffer.  The whole buffer is compressed only if the sample shrinks by a factor of 1.5.  The
decompressor is told the size to expect, and never produces more.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence

import lz4.frame
import torch

from syft.exceptions import MalformedMessage

LARGE = 1 << 22
"""From this size on the hint is given; the same as numpy's."""

_HUGE_PAGES: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

_fresh_bytearray = ctypes.pythonapi.PyByteArray_FromStringAndSize
_fresh_bytearray.restype = ctypes.py_object
_fresh_bytearray.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)


def _prefer_huge_pages(address: int, size: int) -> None:
    """Ask for huge pages in fresh memory, before it is written to."""
    if _HUGE_PAGES is not None and size >= LARGE:
        start = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
        _madvise(start, (address + size - start) // mmap.PAGESIZE * mmap.PAGESIZE, _HUGE_PAGES)


def fresh_buffer(size: int) -> torch.Tensor:
    """Return a buffer on the CPU whose bytes are yet to be written.

    >>> fresh_buffer(3).shape
    torch.Size([3])
    """
    buffer = torch.empty(size, dtype=torch.uint8, device="cpu")
    _prefer_huge_pages(buffer.data_ptr(), size)
    return buffer


def copy_buffer(buffer: torch.Tensor) -> torch.Tensor:
    """Return a copy of a buffer, on its device.

    >>> copy_buffer(torch.tensor([1, 2], dtype=torch.uint8))
    tensor([1, 2], dtype=torch.uint8)
    """
    if buffer.is_cpu and buffer.numel() >= LARGE:
        return fresh_buffer(buffer.numel()).copy_(buffer)
    return buffer.clone()


def join_bytes(parts: Sequence[bytes | bytearray | memoryview]) -> bytearray:
    """Join pieces of bytes, copying each once.

    >>> join_bytes([b"a", memoryview(b"bc")])
    bytearray(b'abc')
    """
    size = sum(map(len, parts))
    if size < LARGE:
        return bytearray().join(parts)
    joined: bytearray = _fresh_bytearray(None, size)
    with memoryview(joined) as view:
        _prefer_huge_pages(torch.frombuffer(joined, dtype=torch.uint8).data_ptr(), size)
        end = 0
        for part in parts:
            view[end : end + len(part)] = part
            end += len(part)
    return joined


# ------------------------------------------------------------------------------------ compression

MIN_SIZE = 1024
"""Smaller buffers are not worth a look."""
MIN_RATIO = 1.5
"""What compression must win to be kept."""

_PIECES, _PIECE = 16, 4096
_PROBE = _PIECES * _PIECE
# An LZ4 block of n bytes expands to less than 255 n.
_MAX_RATIO = 255


def compress(raw: memoryview) -> bytes | None:
    """Return the buffer as one LZ4 frame, or None where that would not pay.

    >>> compress(memoryview(bytes(100))) is None, len(compress(memoryview(bytes(5000)))) < 100
    (True, True)
    """
    size = len(raw)
    if size < MIN_SIZE or not _pays(raw):
        return None
    packed: bytes = lz4.frame.compress(raw, store_size=False)
    return packed if len(packed) * MIN_RATIO <= size else None


def _pays(raw: memoryview) -> bool:
    if len(raw) <= 2 * _PROBE:
        return True
    step = (len(raw) - _PIECE) // (_PIECES - 1)
    probe = b"".join(raw[index * step : index * step + _PIECE] for index in range(_PIECES))
    return len(lz4.frame.compress(probe)) * MIN_RATIO <= _PROBE


def decompress(packed: memoryview, size: int, path: str) -> bytearray:
    """Return the ``size`` bytes that a frame holds; anything else is refused, at ``path``.

    >>> decompress(memoryview(compress(memoryview(bytes(5000)))), 5000, "$") == bytes(5000)
    True
    """
    raw = bytearray(size)
    decompression = Decompression(memoryview(raw), len(packed), path)
    decompression.feed(packed)
    decompression.finish()
    return raw


class Decompression:
    """Decompresses an LZ4 frame of ``stored`` bytes into memory of its size, as its pieces come.

    A frame that holds anything else is refused, at ``path``.

    >>> raw, packed = bytearray(5000), compress(memoryview(bytes(5000)))
    >>> decompression = Decompression(memoryview(raw), len(packed), "$")
    >>> for byte in packed:
    ...     decompression.feed(bytes([byte]))
    >>> decompression.finish()
    """

    def __init__(self, memory: memoryview, stored: int, path: str) -> None:
        if len(memory) > _MAX_RATIO * stored:
            raise MalformedMessage(path, f"at most {_MAX_RATIO * stored} bytes", f"{len(memory)}")
        self._memory = memory
        self._path = path
        self._decompressor = lz4.frame.LZ4FrameDecompressor(return_bytearray=True)
        self.done = 0
        """Bytes that have been written."""

    def feed(self, piece: bytes | bytearray | memoryview) -> None:
        """Take in the next bytes of the frame; :class:`~syft.exceptions.MalformedMessage` if they
        cannot be that."""
        size = len(self._memory)
        try:
            raw = self._decompressor.decompress(piece, max_length=max(1, size - self.done))
        except (EOFError, RuntimeError) as error:
            raise MalformedMessage(self._path, "an LZ4 frame", str(error)) from error
        end = self.done + len(raw)
        if end > size:
            raise self._wrong()
        self._memory[self.done : end] = raw
        self.done = end

    def finish(self) -> None:
        """Check that the frame has ended, and holds what it should; see :meth:`feed`."""
        ended = self._decompressor.eof and not self._decompressor.unused_data
        if self.done != len(self._memory) or not ended:
            raise self._wrong()

    def _wrong(self) -> MalformedMessage:
        size = len(self._memory)
        got = f"{self.done} bytes, and more" if self.done == size else f"{self.done} bytes"
        return MalformedMessage(self._path, f"one LZ4 frame of {size} bytes", got)
