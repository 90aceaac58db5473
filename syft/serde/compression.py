"""LZ4 where it pays: decided by looking at the bytes, not at the kind of tensor.

Float weights do not compress at all, fixed-point integers by two or three, sparse updates by fifty,
secret shares never.  So 64 KiB spread over the buffer are tried first, which costs a small part of
copying the buffer, and only a ratio above 1.5 is worth the receiver's time.  Decompression is told
how much to expect, and never produces more.
"""

from __future__ import annotations

import lz4.frame

from syft.exceptions import MalformedMessage

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
    if size > _MAX_RATIO * len(packed):
        raise MalformedMessage(path, f"at most {_MAX_RATIO * len(packed)} bytes", f"{size}")
    decompressor = lz4.frame.LZ4FrameDecompressor(return_bytearray=True)
    try:
        raw: bytearray = decompressor.decompress(packed, max_length=size)
    except RuntimeError as error:
        raise MalformedMessage(path, "an LZ4 frame", str(error)) from error
    if len(raw) != size or not decompressor.eof or decompressor.unused_data:
        got = f"{len(raw)} bytes, and more" if len(raw) == size else f"{len(raw)} bytes"
        raise MalformedMessage(path, f"one LZ4 frame of {size} bytes", got)
    return raw
