"""Counters of a worker's requests and answers, cheap enough to be always on."""

from __future__ import annotations

from collections.abc import Iterable

from syft.serde.frame import Frame


class Stats:
    """The requests that reached one worker, its answers, and the requests served from the cache.

    A cache hit is a request that came as a number without a definition.  Bytes are those of headers
    and tensor data, before compression.  Replies to requests of the worker itself are counted at
    the workers that sent them.

    >>> x = torch.ones(2).send(bob)
    >>> y = x + x
    >>> bob.stats
    <Stats messages in: 2 (... bytes) out: 2 (6 bytes) cache hits: 0>
    """

    __slots__ = ("messages_in", "bytes_in", "bytes_out", "cache_hits", "_more_out")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Set all counters to zero.

        >>> stats = Stats(); stats.messages_in = 5; stats.reset(); stats
        <Stats messages in: 0 (0 bytes) out: 0 (0 bytes) cache hits: 0>
        """
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.cache_hits = 0
        self._more_out = 0

    @property
    def messages_out(self) -> int:
        """The messages that the worker sent: answers, and other messages that a request caused.

        >>> Stats().messages_out
        0
        """
        return self.messages_in + self._more_out

    def count(self, frame: Frame, reply: Frame | None) -> Frame | None:
        """Count one request, and the reply if there is one, which is returned.

        >>> stats = Stats(); stats.count(Frame(b"ab", []), None); stats
        <Stats messages in: 1 (2 bytes) out: 0 (0 bytes) cache hits: 0>
        """
        self.messages_in += 1
        self.bytes_in += frame.nbytes if frame.buffers else len(frame.header)
        if reply is None:
            self._more_out -= 1
        else:
            self.bytes_out += reply.nbytes if reply.buffers else len(reply.header)
        return reply

    def count_more(self, frames: Iterable[Frame]) -> None:
        """Count frames that a request caused besides its reply.

        >>> stats = Stats(); stats.count_more([Frame(b"ab", [])]); stats.messages_out
        1
        """
        for frame in frames:
            self._more_out += 1
            self.bytes_out += frame.nbytes

    def __repr__(self) -> str:
        return (
            f"<Stats messages in: {self.messages_in} ({self.bytes_in:,} bytes) "
            f"out: {self.messages_out} ({self.bytes_out:,} bytes) cache hits: {self.cache_hits}>"
        )
