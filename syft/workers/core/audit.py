"""What a worker's owner is told of callers: who asked what of whose data, and took how much.

Never values, nor texts of errors.  Connecting, searching, reading, sending on, being refused and
leaving are a line each, but for what says the same as a line that waits: that is counted.  Lines
are written by another thread, twenty times a second: whoever is answered does not wait for it.
Operations are counted: one line a second for each user and what they name, in the second after it.
While nothing can be written, nothing is done for anybody.  Texts that callers choose are cut, and
say so; names of users never are.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

from syft.exceptions import AuditFailed, LimitExceeded, PermissionDenied, PlansNotAllowed
from syft.ops.table import FLAGS, METADATA, NAMES
from syft.workers.core.owners import Owners
from syft.workers.core.peer import Peer
from syft.workers.core.store import ObjectStore
from syft.workers.wire.messages import Command, Drop, Fetch, FetchAll, Request, Run, Search, encode

_REFUSALS: Final = (PermissionDenied, LimitExceeded, PlansNotAllowed)
_MOST_WAITING: Final = 10_000
"""Lines that wait to be written while nothing can be."""
_AT_ONCE: Final = 256
"""Lines that are written in one go."""
_MOST_TEXT: Final = 200
_MOST_TEXTS: Final = 20
_NOT_COUNTED: Final = frozenset((Drop, Fetch, FetchAll, Search))
"""What has a line of its own, or is nothing of the owner's."""
_NOTHING: Final[frozenset[int]] = frozenset()
OWN: Final = ("own objects",)

Record = dict[str, Any]
_Key = tuple[Any, Any, frozenset[int]]
"""Who, the number of an operation or the kind of another request, and what is named of others."""


class Log(Protocol):
    """Where lines are written: a :class:`~syft.trust.chained_log.ChainedLog`."""

    failed: str | None
    """Why nothing can be written."""

    def extend(self, records: Sequence[Mapping[str, Any]]) -> int:
        """Write lines; returns how many are there: all, unless it has ``failed``."""

    def close(self) -> None:
        """Have what was written be on the disk; raises :class:`~syft.exceptions.AuditFailed`."""


class Audit:
    """Writes to ``log`` what callers do with the objects of ``store``; ``clock`` tells the seconds
    since 1970.  ``stop`` is called when nothing can be written: :meth:`check` is to be called
    before the next request then.

    >>> class Lines(list):
    ...     failed = None
    ...     def extend(self, records):
    ...         super().extend(records)
    ...         return len(records)
    >>> lines, store = Lines(), ObjectStore("bob")
    >>> audit = Audit(lines, store, Owners(store), print, lambda: 0.0)
    >>> audit.event("connect", Peer("laptop", "ann"), host="10.0.0.7"); lines[-1]["user"]
    'ann'
    """

    def __init__(
        self,
        log: Log,
        store: ObjectStore,
        owners: Owners,
        stop: Callable[[], object],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log, self._store, self._owners = log, store, owners
        self._stop, self._clock = stop, clock
        self._lock = threading.RLock()  # callers are let in by another thread too
        self._second = int(clock())
        self._counts: dict[_Key, list[int]] = {}
        self._sets: dict[frozenset[int], Sequence[str]] = {_NOTHING: OWN}
        self._waiting: deque[Record] = deque()
        self._open: dict[Any, Record] = {}
        self._left_out = 0
        self._touched: set[int] = set()
        owners.touched = self._touched

    # ------------------------------------------------------------------------------- requests

    def check(self) -> None:
        """Raise :class:`~syft.exceptions.AuditFailed` while nothing can be written."""
        if self._log.failed is not None:
            with self._lock:
                self._flush()

    @property
    def broken(self) -> str | None:
        """Why nothing can be written; None while it can."""
        return self._log.failed

    def served(self, message: Request, peer: Peer, sent: int) -> None:
        """Count a request that was answered, by so many bytes."""
        kind: Any = type(message)
        if kind is Command:
            kind = message.op  # type: ignore[union-attr]
        elif kind in _NOT_COUNTED:
            self._touched.clear()
            return
        named = _NOTHING
        if self._touched:
            named = frozenset(self._touched)
            self._touched.clear()
        key = peer.who, kind, named
        self._count(key, peer, sent)

    def _count(self, key: _Key, peer: Peer, sent: int) -> None:
        """Count a request of a kind, or a letter, in this second."""
        with self._lock:
            counted = self._counts.get(key)
            if counted is not None:
                counted[0] += 1
                counted[1] += sent
                return
            if key[2] not in self._sets:
                self._sets[key[2]] = self.whose(key[2], peer)
            self._counts[key] = [1, sent]

    def posted(self, peer: Peer, to: str, sent: int) -> None:
        """Count a letter to another party of a collective operation, of so many bytes."""
        self._count((peer.who, f"letters to {to}", _NOTHING), peer, sent)

    def failed(self, error: BaseException, peer: Peer | None) -> None:
        """Write that a request was refused; other failures are none of the owner's."""
        self._touched.clear()
        if peer is not None and isinstance(error, _REFUSALS):
            self._refused(peer, getattr(error, "action", None), None, type(error).__name__)

    def hidden(self, message: Request, peer: Peer, ids: Iterable[int]) -> None:
        """Write that a request named what is not there for its caller."""
        self._refused(peer, name_of(message), self.whose(ids, peer), "not there for this caller")

    def _refused(self, peer: Peer, by: str | None, of: Sequence[str] | None, why: str) -> None:
        key = "refuse", peer.who, by, of, why
        if not self._again(key, 0):
            self._begin(key, peer, by=by, of=of, error=why)

    def told(
        self, message: Request, peer: Peer, named: Callable[[], Iterable[int]], value: Any
    ) -> None:
        """Write what a search looked for, or that a value leaves, of numbers and texts that do;
        ``named`` says which objects the request names."""
        if type(message) is Search:
            key = "search", peer.who, message.words
            if not self._again(key, count := len(encode(value))):
                self._begin(key, peer, words=_some(message.words), bytes=count)
        elif _tells(message):
            self.read(message, peer, named(), len(encode(value)))

    def read(self, message: Request, peer: Peer, ids: Iterable[int], count: int) -> None:
        """Write that values leave for a caller, so many bytes."""
        kind = message.op if type(message) is Command else type(message)
        key = "read", peer.who, kind, self.whose(ids, peer)
        if not self._again(key, count):
            self._begin(key, peer, by=_said(kind), of=key[3], bytes=count)

    def sent(
        self, message: Request, peer: Peer, ids: Iterable[int], to: Iterable[str], count: int
    ) -> None:
        """Write that values leave for other workers, so many bytes."""
        key = "send", peer.who, name_of(message), self.whose(ids, peer), tuple(sorted(set(to)))
        if not self._again(key, count):
            self._begin(key, peer, by=key[2], of=key[3], to=key[4], bytes=count)

    def whose(self, ids: Iterable[int], peer: Peer) -> Sequence[str]:
        """Whose these objects are: the tags of the owner's data, and the names of other users."""
        tagged: set[str] = set()
        names: set[str] = set()
        for id in ids:
            origin = self._owners.of(id)
            if origin is None or origin.owner == peer.identity:
                continue
            if origin.owner is None:
                tagged.add(" ".join(sorted(self._store.tags.of(id))) or "untagged data")
            else:
                names.add(origin.owner)
        if not tagged and not names:
            return OWN
        return *_some(sorted(tagged)), *(f"objects of {name}" for name in sorted(names))

    # ------------------------------------------------------------------------------- lines

    def tick(self) -> None:
        """Write what waits, and what was counted in a second that is over; to be called many times
        a second.  What cannot be written waits on."""
        over = self._clock() >= self._second + 1
        if not over and not self._waiting:
            return
        with self._lock, contextlib.suppress(AuditFailed):
            if over:
                counts, self._counts = self._counts, {}
                self._waiting += self._summaries(counts)
                self._second = int(self._clock())
            self._flush()

    def event(self, what: str, peer: Peer | None = None, **more: Any) -> None:
        """Write a line; where that cannot be, it waits until it can."""
        with self._lock:
            if len(self._waiting) < _MOST_WAITING:
                self._waiting.append(self._stamped(what, peer, **more))
            else:
                self._left_out += 1
            with contextlib.suppress(AuditFailed):
                self._flush()

    def _again(self, key: Any, count: int) -> bool:
        """Add to a line that waits and says the same, if there is one: who reads or searches all
        the time does not bring about a line each time."""
        with self._lock:
            record = self._open.get(key)
            if record is None:
                return False
            if count:
                record["bytes"] += count
            record["times"] = record.get("times", 1) + 1
            return True

    def _begin(self, key: Any, peer: Peer, **more: Any) -> None:
        """Have a line be written soon, of what ``key`` begins with."""
        with self._lock:
            record = self._open[key] = self._stamped(key[0], peer, **more)
            self._waiting.append(record)

    def _flush(self) -> None:
        """Write what waits and, if nothing could be written before, that it can again."""
        self._open.clear()
        stopped = self._log.failed is not None
        while self._waiting:
            count = min(len(self._waiting), _AT_ONCE)
            written = self._write_now([self._waiting[at] for at in range(count)])
            for _ in range(written):
                self._waiting.popleft()
            self._check_written()
        if stopped:
            self._write_now([self._stamped("resume", None, left_out=self._left_out or None)])
            self._check_written()
            self._left_out = 0

    def _write_now(self, records: list[Record]) -> int:
        return self._log.extend([{**one, "at": _shown(one["at"])} for one in records])

    def _check_written(self) -> None:
        if self._log.failed is not None:
            self._stop()
            raise AuditFailed(self._log.failed)

    def _summaries(self, counts: dict[_Key, list[int]]) -> Iterable[Record]:
        """A line for each user, and what was named."""
        groups: dict[tuple[Any, Sequence[str]], Record] = {}
        for (who, kind, named), (count, sent) in counts.items():
            group = groups.setdefault((who, self._sets[named]), {"count": {}, "bytes": 0})
            name = _said(kind)
            group["count"][name] = group["count"].get(name, 0) + count
            group["bytes"] += sent
        at = float(self._second)
        for (who, of), group in groups.items():
            user, name = who
            yield {"at": at, "what": "operations", "user": user, "name": name, "of": of, **group}
        self._sets = {_NOTHING: OWN}

    def _stamped(self, what: str, peer: Peer | None, **more: Any) -> Record:
        record: Record = {"at": self._clock(), "what": what}
        if peer is not None:
            record["user"], record["name"] = peer.user, peer.name
        record.update({key: value for key, value in more.items() if value is not None})
        return record

    def close(self, reason: str) -> None:
        """Write what was counted, and that the worker stops.

        Raises :class:`~syft.exceptions.AuditFailed` if lines are lost.
        """
        with self._lock:
            self._waiting += self._summaries(self._counts)
            self._counts = {}
            try:
                self.event("stop", reason=reason)
            finally:
                self._log.close()
            if self._waiting:
                why = f"{self._log.failed}; {len(self._waiting) + self._left_out} lines are lost"
                raise AuditFailed(why)


def _some(texts: Sequence[str]) -> list[str]:
    """Texts that others chose, as far as they fit into a line; what is left out is said."""
    cut = [
        one if len(one) <= _MOST_TEXT else f"{one[:_MOST_TEXT]}… ({len(one) - _MOST_TEXT} more)"
        for one in texts[:_MOST_TEXTS]
    ]
    return cut if len(texts) <= _MOST_TEXTS else [*cut, f"… ({len(texts) - _MOST_TEXTS} more)"]


def _shown(seconds: float) -> str:
    """A time: UTC, ISO 8601, to the millisecond."""
    return f"{_second_shown(int(seconds))}.{int(seconds % 1 * 1000):03}Z"


@lru_cache(maxsize=16)
def _second_shown(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def _said(kind: Any) -> str:
    """The name of an operation, by its number, of another kind of request, or of letters."""
    if type(kind) is int:
        return NAMES[kind] if 0 <= kind < len(NAMES) else f"operation {kind}"
    return str(getattr(kind, "__name__", kind))


def name_of(message: Request) -> str:
    """The operation of a command, or the kind of another request.

    >>> name_of(Drop(0, (5,)))
    'Drop'
    """
    return _said(message.op if type(message) is Command else type(message))


def _tells(message: Request) -> bool:
    """Whether numbers and texts that answer a request are values."""
    if type(message) is not Command:
        return type(message) is Run
    return not (0 <= message.op < len(NAMES) and FLAGS[message.op] & METADATA)
