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

import contextlib
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from websockets.speedups import apply_mask

from syft.exceptions import BrokenFraming
from syft.serde.buffers import fresh_buffer
from syft.serde.limits import Limits
from syft.workers.sockets.arriving import FrameAssembly, Memory, small_frame
from syft.workers.client.monitor import Monitor
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
_MOST_MESSAGES: Final = 1 << 10
"""Messages after which no more is read in a row: 4 MB of small ones take half a second."""
_MOST_PIECES: Final = 256
"""Pieces of one text message, and empty pieces of another one: these would have no end."""
_MUCH: Final = 1 << 20
"""Bytes on their way out from which on it shows that some were taken: fewer lie in buffers."""
_LARGE: Final = 1 << 14
"""Messages from this size on are neither joined nor masked, and read into their own memory."""
_MOST_JOINED: Final = 1 << 16
_MASKED_AT_ONCE: Final = 1 << 20
_NO_KEY: Final = bytes(4)
_WIDE: Final = {126: 2, 127: 8}
"""How many bytes say the length of a frame, by what stands in the place of a short one."""
_GIVEN_UP: Final = "the connection was given up meanwhile"
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
        "_taken",
        "trusted",
        "memory",
        "_is_client",
        "_masked",
        "_limits",
        "_buffer",
        "_view",
        "_start",
        "_end",
        "_out",
        "_writing",
        "queued",
        "_assembly",
        "_left",
        "_key",
        "_offset",
        "_final",
        "_opcode",
        "_texts",
        "_keys",
        "_empty",
        "_closing",
        "_closed",
        "_waits",
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
        self._taken = 0  # bytes that had left this machine when :meth:`is_taken` was called last
        self.trusted = trusted
        """Whether binary messages are taken: not before the other end has said who it is."""
        self.memory: Memory = fresh_buffer
        """Makes the memory of large tensors that come."""
        self._is_client = is_client
        self._masked = 0x80 if is_client else 0
        self._limits = limits
        self._buffer: bytearray | None = None
        self._view = memoryview(b"")
        self._start = self._end = 0
        self._out: list[Piece] = []
        self._writing = threading.RLock()  # for all that is on its way out: see `sign`
        self.queued = 0
        """Bytes that wait to be written."""
        self._assembly: FrameAssembly | None = None
        self._left = 0  # bytes of the present WebSocket frame that go to the assembly
        self._key = b""
        self._offset = 0
        self._final = True
        self._opcode = CONTINUATION  # of the message in several frames, if one is on its way
        self._texts: list[bytes] = []
        self._keys: Iterator[bytes] = iter(())
        self._empty = 0  # pieces without a byte of the message that is on its way
        self._closing = False
        self._closed = False  # the other end has said that nothing follows
        self._waits = False  # a thread is inside a read that waits, or nothing more is to be read

    # ----------------------------------------------------------------------------------- out

    @property
    def arriving(self) -> FrameAssembly | None:
        """The large frame that is on its way, if one is."""
        return self._assembly

    def is_taken(self, now: float) -> bool:
        """Whether much is being written, and some of it was taken since the last call.

        The other end has nothing to say then, and what asks it for a sign of life waits at the end
        of the queue: that it takes what is written is sign enough.
        """
        unsent = self.stream.unsent()
        taken = self.written - unsent
        if self.queued + unsent <= _MUCH or taken <= self._taken:
            return False
        self._taken = taken
        self.heard = now
        return True

    def put(self, pieces: Sequence[Piece], opcode: int = BINARY) -> None:
        """Queue a message; :meth:`flush` writes it."""
        size = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        masked = self._masked
        if size < 126:
            head = bytes((0x80 | opcode, masked | size))
        elif size < 1 << 16:
            head = _SHORT.pack(0x80 | opcode, masked | 126, size)
        else:
            head = _LONG.pack(0x80 | opcode, masked | 127, size)
        with self._writing:
            self.queued += len(head) + size + (4 if masked else 0)
            if size >= _LARGE:
                self._out.append(head + _NO_KEY if masked else head)
                self._out.extend(pieces)
                return
            data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            if masked:
                key = next(self._keys, _NO_KEY)
                if key is _NO_KEY:
                    key = self._new_key()
                self._out.append(head + key + apply_mask(data, key))
            else:
                self._out.append(head + data)

    def _new_key(self) -> bytes:
        """The first of new random keys, of which there are a thousand."""
        self._keys = map(b"".join, struct.iter_unpack("4s", os.urandom(_KEYS)))
        return next(self._keys)

    def sign(self) -> None:
        """Show that this end is alive, by a pong for which nobody has asked.

        Any thread may, whether or not another one writes: that may hold the monitor for long.
        """
        with contextlib.suppress(OSError), self._writing:  # who uses the line will see an error
            if not self.queued:
                self.put([b""], PONG)
            self.flush()

    def flush(self) -> bool:
        """Write what can be written without waiting; whether nothing is left.

        Raises :class:`OSError` if the other end is gone.
        """
        with self._writing:
            return self._flush()

    def _flush(self) -> bool:
        out = self._out
        while out:
            if len(out) > 1 and self.queued <= _MOST_JOINED:
                out[:] = [b"".join(out)]
            count = self.stream.write(out)
            if not count:
                return False
            self.written += count
            self.queued -= count
            if not self.queued:  # nearly always
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
        text = reason.encode()[:120].decode(errors="ignore").encode()
        self._say_goodbye(struct.pack(">H", code) + text)
        self.abandon()

    def forked(self) -> None:
        """In a forked process: close the socket, whatever a thread did that is not there."""
        self._writing = threading.RLock()
        self.abandon()

    def abandon(self) -> None:
        """Close the socket, and free what has come: a thread that is reading finds none of it."""
        if self._assembly is not None:
            self._assembly.discard()
            self._assembly = None
        self._buffer, self._view = None, memoryview(b"")
        self._start = self._end = 0
        with self._writing:  # else a thread that writes might write to whatever has the number next
            self.stream.close()

    # ------------------------------------------------------------------------------------ in

    def receive(self, monitor: Monitor | None = None) -> bool:
        """Read what is there, and take it apart; False if nothing is there.

        With ``monitor`` it waits for something, as long as the stream does, and lets other threads
        have the monitor meanwhile.  For these there is nothing to read then.

        Raises :class:`ConnectionError` or another :class:`OSError` if the other end is gone, and
        :class:`~syft.exceptions.WireError` if it breaks a rule.
        """
        if self._waits:
            return False
        came = False
        read = self.stream.read
        reads = 0
        while True:
            reads += 1
            memory = self._room()
            if monitor is None or came:
                count = read(memory)
            else:
                self._waits = True
                held = monitor.leave()
                try:
                    count = read(memory, True)
                finally:
                    monitor.enter_again(held)
                    self._waits = False
            if not count:
                return self._nothing(count, came)
            came = True
            self.heard = time.monotonic()
            self._took(memory, count)
            reads += self._decompressed()
            enough = reads >= _MOST_READS or len(self.messages) >= _MOST_MESSAGES
            if count < len(memory) or (enough and self.stream.blocks):
                return True

    def _decompressed(self) -> int:
        """How many reads what was decompressed since the last call is worth; all of them, if
        nothing is to follow."""
        if self._closed:
            return _MOST_READS
        assembly = self._assembly
        if assembly is None or not assembly.expanded:
            return 0
        reads, assembly.expanded = assembly.expanded >> 18, 0
        return reads

    def _nothing(self, count: int | None, came: bool) -> bool:
        """Whether something ``came`` before a read that brought nothing."""
        self._give_memory_back()
        if count is not None:
            raise ConnectionResetError("the other end has closed the connection")
        return came

    def feed(self, data: bytes) -> None:
        """Take in bytes that came together with the opening handshake."""
        while data:
            room = self._room()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self._took(room, count)
            data = data[count:]

    def _room(self) -> memoryview:
        """Where the next bytes go: to a large frame that is on its way, or where small ones are
        taken apart."""
        if self._assembly is not None and self._left:
            memory = self._assembly.space()
            most = min(self._left, _MASKED_AT_ONCE) if self._key else self._left
            return memory[:most] if len(memory) > most else memory
        if self._buffer is None:
            try:
                self._buffer, self._view = _memories.pop()
            except IndexError:
                self._buffer = bytearray(_MEMORY)
                self._view = memoryview(self._buffer)
        return self._view[self._end :] if self._end else self._view

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

    def _took(self, memory: memoryview, count: int) -> None:
        """Take apart the bytes that have come to ``memory``, which is :meth:`_room`."""
        if self._left:
            if self._assembly is None:
                raise ConnectionResetError(_GIVEN_UP)
            self._fill(self._assembly, memory, count)
        elif self._buffer is None:
            raise ConnectionResetError(_GIVEN_UP)
        else:
            self._end += count
        while self._end - self._start >= 2 and self._parse_one():
            pass
        if self._start == self._end:
            self._start = self._end = 0
            if self._buffer is not None and len(_memories) < _MOST_MEMORIES:
                _memories.append((self._buffer, self._view))
                self._buffer = None
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
            at += _WIDE[size]
            if self._end < at:
                return False
            size = _length_in(buffer[self._start + 2 : at])
        plain = first == 0x82 and not self._opcode
        if not plain or not self.trusted or (second > 127) is self._is_client:
            self._check_rules(first, second, size)
        masked = second > 127
        begin = at + 4 * masked
        if self._end < begin:
            return False
        key = buffer[at:begin]
        if not plain or size >= _LARGE:
            return self._parse_other(first, begin, size, bytes(key))
        end = begin + size
        if self._end < end:
            return False
        self._start = end
        data = buffer[begin:end]  # for some bytes a copy is faster than a view
        data = apply_mask(data, key) if masked else bytes(data)
        self.messages.append((BINARY, small_frame(data, self._limits)))
        return True

    def _parse_other(self, first: int, at: int, size: int, key: bytes) -> bool:
        """Take in what is no small binary message in one frame; False if more must come."""
        opcode, key = first & 15, key or _NO_KEY
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
        self._check_message(opcode, size)

    def _check_message(self, opcode: int, size: int) -> None:
        """Raise :class:`BrokenFraming` for a text, a binary message or a piece that must not come
        now."""
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
            self._assembly = FrameAssembly(self._limits, self.memory)
        self._opcode, self._final = BINARY, first > 127
        self._left, self._key, self._offset = size, key if key != _NO_KEY else b"", 0
        while self._left and self._start < self._end:
            space = self._assembly.space()
            count = min(len(space), self._left, self._end - self._start)
            space[:count] = self._view[self._start : self._start + count]
            self._start += count
            self._fill(self._assembly, space, count)
        if not size:
            self._empty += 1
            if self._empty > _MOST_PIECES:
                raise BrokenFraming(TOO_BIG, f"a message has more than {_MOST_PIECES} empty pieces")
            self._end_of_frame()

    def _end_of_frame(self) -> None:
        """Take in the large frame, if this was its last piece."""
        if self._final:
            assembly, self._assembly, self._opcode = self._assembly, None, CONTINUATION
            self._empty = 0
            assert assembly is not None
            self.messages.append((BINARY, (assembly.channel, assembly.frame())))

    def _take(self, first: int, data: bytes) -> None:
        """Take in a text, or a piece of one, or a control message."""
        opcode = first & 15
        if opcode <= TEXT:
            self._texts.append(data)
            self._opcode = TEXT
            if first > 127:
                self.messages.append((TEXT, _utf8(b"".join(self._texts), "a text")))
                self._texts, self._opcode = [], CONTINUATION
        elif opcode == PING and self.queued <= _MOST_JOINED:
            self.put([data], PONG)  # else nobody reads what is written, and it would pile up
        elif opcode == CLOSE:
            self.messages.append((CLOSE, _reason_of(data)))
            self._end = self._start  # what follows is not read: RFC 6455, 5.5.1
            self._closed = self._waits = True
            self._say_goodbye(data[:2])

    def _say_goodbye(self, payload: bytes) -> None:
        """Say once that nothing follows, as far as it can be written at once."""
        if not self._closing:
            self._closing = True
            self.put([payload], CLOSE)
            with contextlib.suppress(Exception):  # it may be closed because nothing can be written
                self.flush()


def _length_in(data: Any) -> int:
    """The length that two or eight bytes say."""
    size = int.from_bytes(data, "big")
    if size < (126 if len(data) == 2 else 1 << 16) or size >> 63:
        raise BrokenFraming(PROTOCOL_ERROR, "a length is not written in the shortest way")
    return size


def _reason_of(data: bytes) -> tuple[int, str]:
    """Code and reason of a message that closes the connection."""
    if not data:
        return NORMAL, ""
    code = int.from_bytes(data[:2], "big")
    known = 1000 <= code <= 1014 and code not in (1004, 1005, 1006)
    if len(data) < 2 or not (known or 3000 <= code < 5000):
        raise BrokenFraming(PROTOCOL_ERROR, "a connection is closed with a code that nobody knows")
    return code, _utf8(data[2:], "a reason").decode()


def _utf8(data: bytes, what: str) -> bytes:
    """The same bytes, if they are UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        raise BrokenFraming(WRONG_DATA, f"{what} is not UTF-8") from None
    return data


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
