"""One end of a WebSocket (RFC 6455), over a stream: messages in, messages out.

It has no thread and no loop, and it never waits by itself: whoever waits for something reads it.
The opening handshake is that of the ``websockets`` package (:mod:`syft.workers.sockets.handshake`).
The frames after it are our own, because that is where the time goes: the package's parser is a
generator that is resumed several times a message, and it holds each message in one piece.

*Masks.* A client masks what it sends, so that a page in a browser cannot make it write bytes of its
choice into a cache between the two ends.  Here no page chooses bytes, and there is nothing between
the ends: off this machine all of it is encrypted.  So large messages have a key of zeros, which
changes nothing in them and takes no time; small ones have a random key, and what comes is unmasked
with whatever key it has.
"""

from __future__ import annotations

import os
import struct
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from websockets.speedups import apply_mask

from syft.exceptions import BrokenFraming
from syft.serde.limits import Limits
from syft.workers.sockets.arriving import FrameAssembly, small_frame
from syft.workers.sockets.monitor import Monitor
from syft.workers.sockets.streams import Piece, Stream

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

NORMAL, GOING_AWAY, PROTOCOL_ERROR, WRONG_DATA, REFUSED, TOO_BIG = (
    1000,
    1001,
    1002,
    1007,
    1008,
    1009,
)
FAULT: Final = 1011
"""Why a connection is closed, as RFC 6455 numbers it."""

MAX_TEXT: Final = 1 << 14
"""Bytes of a text message, which says something about the line."""

_MOST_MEMORIES: Final = 16
_MEMORY: Final = 1 << 16
"""Bytes that are read at once, where no large frame is on its way."""
_MOST_READS: Final = 64
"""Reads in a row from one socket, so that one that always has more keeps nobody waiting."""
_MOST_PIECES: Final = 256
"""Pieces of one text message: empty ones would have no end."""
_LARGE: Final = 1 << 14
"""Messages from this size on are neither joined nor masked, and read into their own memory."""
_MOST_JOINED: Final = 1 << 16
_MASKED_AT_ONCE: Final = 1 << 20
_NO_KEY: Final = bytes(4)
_KEYS: Final = 1 << 12

_SHORT = struct.Struct(">BBH")
_LONG = struct.Struct(">BBQ")

_memories: list[tuple[bytearray, memoryview]] = []  # an idle connection has none of its own


class WebSocket:
    """One end of a connection, after the opening handshake.

    ``is_client`` says which end: a client masks what it sends.  Messages collect in
    :attr:`messages`, as pairs of opcode and value: a text as bytes, a binary message as a channel
    and a :class:`~syft.serde.frame.Frame`, and that the other end closes as code and reason.
    """

    __slots__ = (
        "stream",
        "messages",
        "heard",
        "written",
        "trusted",
        "_is_client",
        "_limits",
        "_buffer",
        "_view",
        "_start",
        "_end",
        "_out",
        "_queued",
        "_assembly",
        "_left",
        "_key",
        "_offset",
        "_final",
        "_opcode",
        "_texts",
        "_keys",
        "_used",
        "_closing",
    )

    def __init__(
        self, stream: Stream, is_client: bool, limits: Limits, trusted: bool = True
    ) -> None:
        self.stream = stream
        self.messages: deque[tuple[int, Any]] = deque()
        self.heard = time.monotonic()
        """When something came, or :meth:`receive` was called, last."""
        self.written = 0
        """Bytes that were written."""
        self.trusted = trusted
        """Whether binary messages are taken: not before the other end has said who it is."""
        self._is_client = is_client
        self._limits = limits
        self._buffer: bytearray | None = None
        self._view = memoryview(b"")
        self._start = self._end = 0
        self._out: list[Piece] = []
        self._queued = 0
        self._assembly: FrameAssembly | None = None
        self._left = 0  # bytes of the present WebSocket frame that go to the assembly
        self._key = b""
        self._offset = 0
        self._final = True
        self._opcode = CONTINUATION  # of the message in several frames, if one is on its way
        self._texts: list[bytes] = []
        self._keys, self._used = b"", _KEYS
        self._closing = False

    # ----------------------------------------------------------------------------------- out

    @property
    def queued(self) -> int:
        """Bytes that wait to be written."""
        return self._queued

    @property
    def arriving(self) -> FrameAssembly | None:
        """The large frame that is on its way, if one is."""
        return self._assembly

    def put(self, pieces: Sequence[Piece], opcode: int = BINARY) -> None:
        """Queue a message; :meth:`flush` writes it."""
        size = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        masked = 0x80 if self._is_client else 0
        if size < 126:
            head = bytes((0x80 | opcode, masked | size))
        elif size < 1 << 16:
            head = _SHORT.pack(0x80 | opcode, masked | 126, size)
        else:
            head = _LONG.pack(0x80 | opcode, masked | 127, size)
        self._queued += len(head) + size + (4 if masked else 0)
        if size >= _LARGE:
            self._out.append(head + _NO_KEY if masked else head)
            self._out.extend(pieces)
            return
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if masked:
            key = self._new_key()
            self._out.append(head + key + apply_mask(data, key))
        else:
            self._out.append(head + data)

    def _new_key(self) -> bytes:
        if self._used == _KEYS:
            self._keys, self._used = os.urandom(_KEYS), 0
        self._used += 4
        return self._keys[self._used - 4 : self._used]

    def flush(self) -> bool:
        """Write what can be written without waiting; whether nothing is left.

        Raises :class:`OSError` if the other end is gone.
        """
        out = self._out
        while out:
            if len(out) > 1 and self._queued <= _MOST_JOINED:
                out[:] = [b"".join(out)]
            count = self.stream.write(out)
            if not count:
                return False
            self.written += count
            self._queued -= count
            if not self._queued:  # nearly always
                out.clear()
                return True
            done = 0
            for piece in out:
                if count < len(piece):
                    break
                count -= len(piece)
                done += 1
            del out[:done]
            if count:
                out[0] = memoryview(out[0])[count:]
        return True

    def close(self, code: int, reason: str) -> None:
        """Tell the other end that this is the end, and why, as far as it can be written at once."""
        if not self._closing:
            self._closing = True
            text = reason.encode()[:120].decode(errors="ignore").encode()
            self.put([struct.pack(">H", code) + text], CLOSE)
            try:
                self.flush()
            except OSError:
                pass
        self._give_memory_back()
        self.abandon()

    def abandon(self) -> None:
        """Close the socket, and free what has come of a large message."""
        if self._assembly is not None:
            self._assembly.discard()
            self._assembly = None
        self.stream.close()

    # ------------------------------------------------------------------------------------ in

    def receive(self, monitor: Monitor | None = None) -> bool:
        """Read what is there, and take it apart; False if nothing is there.

        With ``monitor`` it waits for something, as long as the stream does, and lets other threads
        have the monitor meanwhile.

        Raises :class:`ConnectionError` or another :class:`OSError` if the other end is gone, and
        :class:`~syft.exceptions.WireError` if it breaks a rule.
        """
        came = False
        read = self.stream.read
        reads = 0
        while True:
            reads += 1
            assembly = self._assembly
            if assembly is not None and self._left:
                memory = assembly.space()
                most = min(self._left, _MASKED_AT_ONCE) if self._key else self._left
                if len(memory) > most:
                    memory = memory[:most]
            else:
                assembly = None
                memory = self._room()
            if monitor is None or came:
                count = read(memory)
            else:
                held = monitor.leave()
                try:
                    count = read(memory, True)
                finally:
                    monitor.enter_again(held)
            if count is None:
                self._give_memory_back()
                return came
            if not count:
                raise ConnectionResetError("the other end has closed the connection")
            came = True
            self.heard = time.monotonic()
            if assembly is None:
                self._end += count
                self._parse()
            else:
                self._fill(assembly, memory, count)
                self._parse()
            if count < len(memory) or (reads >= _MOST_READS and self.stream.blocks):
                self._give_memory_back()
                return True

    def feed(self, data: bytes) -> None:
        """Take in bytes that came together with the opening handshake."""
        while data:
            room = self._room()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self._end += count
            data = data[count:]
            self._parse()

    def _room(self) -> memoryview:
        """Where small messages are read to."""
        if self._buffer is None:
            if not _memories:
                memory = bytearray(_MEMORY)
                _memories.append((memory, memoryview(memory)))
            self._buffer, self._view = _memories.pop()
        return self._view[self._end :]

    def _give_memory_back(self) -> None:
        """Give up memory that holds nothing: an idle connection owns none."""
        if self._buffer is not None and self._start == self._end:
            if len(_memories) < _MOST_MEMORIES:
                _memories.append((self._buffer, self._view))
            self._buffer = None
            self._start = self._end = 0

    def _fill(self, assembly: FrameAssembly, memory: memoryview, count: int) -> None:
        """Note bytes of a large frame, which lie where they belong."""
        if self._key:
            unmask(memory[:count], self._key, self._offset)
            self._offset += count
        assembly.filled(count)
        self._left -= count
        if not self._left:
            self._end_of_frame()

    def _parse(self) -> None:
        """Take apart the bytes that have come."""
        while self._end - self._start >= 2 and self._parse_one():
            pass
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end > _MEMORY - _LARGE - 32:
            size = self._end - self._start
            self._view[:size] = bytes(self._view[self._start : self._end])
            self._start, self._end = 0, size

    def _parse_one(self) -> bool:
        """Take in one WebSocket frame, or the beginning of a large one; False if more must come."""
        buffer: Any = self._buffer
        at = self._start + 2
        first, second = buffer[at - 2], buffer[at - 1]
        size = second & 127
        if size > 125:
            wide = 2 if size == 126 else 8
            if self._end < at + wide:
                return False
            size = int.from_bytes(buffer[at : at + wide], "big")
            at += wide
            _check_length(size, wide)
        plain = first == 0x82 and not self._opcode
        if not plain or not self.trusted or (second > 127) is self._is_client:
            self._check_rules(first, second, size)
        key = _NO_KEY
        if second > 127:
            key = bytes(buffer[at : at + 4])
            at += 4
        if self._end < at:
            return False
        if not plain or size >= _LARGE:
            return self._parse_other(first, at, size, key)
        end = at + size
        if self._end < end:
            return False
        data: Any = self._view[at:end]
        self._start = end
        if key != _NO_KEY:
            data = apply_mask(data, key)
        self.messages.append((BINARY, small_frame(data, self._limits)))
        return True

    def _parse_other(self, first: int, at: int, size: int, key: bytes) -> bool:
        """Take in what is no small binary message in one frame; False if more must come."""
        opcode = first & 15
        if opcode == BINARY or (opcode == CONTINUATION and self._opcode == BINARY):
            self._start = at
            self._begin(first, size, key)
            return True
        end = at + size
        if self._end < end:
            return False
        self._start = end
        self._take(first, apply_mask(self._view[at:end], key))
        return True

    def _check_rules(self, first: int, second: int, size: int) -> None:
        """Raise :class:`BrokenFraming` for the beginning of a frame that must not come now."""
        opcode, final = first & 15, first > 127
        if first & 0x70:
            raise BrokenFraming(PROTOCOL_ERROR, "a reserved bit is set")
        if (second > 127) is self._is_client:
            raise BrokenFraming(
                PROTOCOL_ERROR, "a client masks what it sends, and a server does not"
            )
        if opcode >= CLOSE:
            if opcode > PONG or not final or size > 125:
                raise BrokenFraming(PROTOCOL_ERROR, "a control message is unknown, cut or too long")
            return
        if opcode > BINARY or (opcode == CONTINUATION) is (self._opcode == CONTINUATION):
            raise BrokenFraming(
                PROTOCOL_ERROR, "a message is unknown, or begins inside another one"
            )
        kind = opcode or self._opcode
        if kind == TEXT and size + sum(map(len, self._texts)) > MAX_TEXT:
            raise BrokenFraming(TOO_BIG, f"a text message has more than {MAX_TEXT} bytes")
        if len(self._texts) >= _MOST_PIECES:
            raise BrokenFraming(TOO_BIG, f"a text message has more than {_MOST_PIECES} pieces")
        if kind == BINARY and not self.trusted:
            raise BrokenFraming(REFUSED, "the first message says who is calling")

    def _begin(self, first: int, size: int, key: bytes) -> None:
        """Begin a large frame, or go on with it, with what of it has come already."""
        if self._assembly is None:
            self._assembly = FrameAssembly(self._limits)
        self._opcode, self._final = BINARY, first > 127
        self._left, self._key, self._offset = size, key if key != _NO_KEY else b"", 0
        while self._left and self._start < self._end:
            space = self._assembly.space()
            count = min(len(space), self._left, self._end - self._start)
            space[:count] = self._view[self._start : self._start + count]
            self._start += count
            self._fill(self._assembly, space, count)
        if not size:
            self._end_of_frame()

    def _end_of_frame(self) -> None:
        """Take in the large frame, if this was its last piece."""
        if self._final:
            assembly, self._assembly, self._opcode = self._assembly, None, CONTINUATION
            assert assembly is not None
            self.messages.append((BINARY, (assembly.channel, assembly.frame())))

    def _take(self, first: int, data: bytes) -> None:
        """Take in a text, or a piece of one, or a control message."""
        opcode = first & 15
        if opcode <= TEXT:
            self._texts.append(data)
            self._opcode = TEXT
            if first > 127:
                self.messages.append((TEXT, b"".join(self._texts)))
                self._texts, self._opcode = [], CONTINUATION
        elif opcode == PING and self._queued <= _MOST_JOINED:
            self.put([data], PONG)  # else nobody reads what is written, and it would pile up
        elif opcode == CLOSE:
            self.messages.append((CLOSE, _reason_of(data)))


def _check_length(size: int, wide: int) -> None:
    if size < (126 if wide == 2 else 1 << 16) or size >> 63:
        raise BrokenFraming(PROTOCOL_ERROR, "a length is not written in the shortest way")


def _reason_of(data: bytes) -> tuple[int, str]:
    """Code and reason of a message that closes the connection."""
    if not data:
        return NORMAL, ""
    code = int.from_bytes(data[:2], "big")
    known = 1000 <= code <= 1014 and code not in (1004, 1005, 1006)
    if len(data) < 2 or not (known or 3000 <= code < 5000):
        raise BrokenFraming(PROTOCOL_ERROR, "a connection is closed with a code that nobody knows")
    try:
        return code, data[2:].decode()
    except UnicodeDecodeError:
        raise BrokenFraming(WRONG_DATA, "a reason is not UTF-8") from None


def unmask(memory: memoryview, key: bytes, offset: int) -> None:
    """Remove the mask of ``memory``, which begins ``offset`` bytes after the start of its frame.

    >>> data = bytearray(apply_mask(b"a large frame", b"keys"))
    >>> unmask(memoryview(data)[:3], b"keys", 0), unmask(memoryview(data)[3:], b"keys", 3)
    (None, None)
    >>> data
    bytearray(b'a large frame')
    """
    turned = (key * 2)[offset & 3 : (offset & 3) + 4]
    octets = np.frombuffer(memory, np.uint8)
    whole = len(octets) & ~7
    np.bitwise_xor(
        octets[:whole].view(np.uint64),
        np.frombuffer(turned * 2, np.uint64),
        out=octets[:whole].view(np.uint64),
    )
    octets[whole:] ^= np.frombuffer(turned * 2, np.uint8)[: len(octets) - whole]
