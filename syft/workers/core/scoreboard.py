"""Which parked operations use which key, so that a new one finds those it must wait for.

Two operations conflict if they have a key in common that one of them writes.  For every key in use
there is one :class:`Usage`, found by its key: what does not share a key is never looked at.  Keys
that turn out to stand for the same memory are merged, the smaller usage into the larger.
"""

from __future__ import annotations

from collections.abc import Iterable

from syft.workers.core.access import Key, is_attribute
from syft.workers.core.task import Task


class Usage:
    """The parked operations that use some keys.

    A new writer waits for ``last`` and ``readers``, a new reader for ``last``: those writers after
    which no other came, and the readers since.  All others they wait for already.
    """

    __slots__ = ("keys", "tasks", "writers", "last", "readers")

    def __init__(self, keys: Iterable[Key]) -> None:
        self.keys = set(keys)
        self.tasks: set[Task] = set()
        self.writers: set[Task] = set()
        self.last: set[Task] = set()
        self.readers: set[Task] = set()

    def enter(self, task: Task, writes: bool, latest: bool = True) -> None:
        """Add an operation that arrived after all others, unless it is not the ``latest``."""
        self.tasks.add(task)
        task.usages.add(self)
        if writes:
            self.writers.add(task)
            self.last = {task} if latest else self.last | {task}
            self.readers = set() if latest else self.readers
        elif task not in self.last:
            self.readers.add(task)

    def leave(self, task: Task) -> None:
        """Remove an operation that has run."""
        for group in (self.tasks, self.writers, self.last, self.readers):
            group.discard(task)

    def withdraw(self, task: Task) -> None:
        """Remove an operation that will not run: those before it count again."""
        self.leave(task)
        self.last = set(self.writers)
        self.readers = self.tasks - self.writers

    def absorb(self, other: Usage) -> None:
        """Take over the keys and operations of another usage."""
        self.keys |= other.keys
        for mine, theirs in (
            (self.tasks, other.tasks),
            (self.writers, other.writers),
            (self.last, other.last),
            (self.readers, other.readers),
        ):
            mine |= theirs
        for task in other.tasks:
            task.usages.discard(other)
            task.usages.add(self)


class Scoreboard:
    """The usages of all keys.  A *wide* operation may read the values of any object.

    >>> board, writer, reader = Scoreboard(), Task(1), Task(2)
    >>> board.enter(writer, reads=(), writes={5}, wide=False)
    >>> board.blockers(reads={5}, writes=(), wide=False) == {writer}
    True
    >>> board.merge({5, 6}); board.blockers(reads={6}, writes=(), wide=False) == {writer}
    True
    >>> board.leave(writer); len(board)
    0
    """

    __slots__ = ("_usages", "_tasks", "_wide", "_writers")

    def __init__(self) -> None:
        self._usages: dict[Key, Usage] = {}
        self._tasks: set[Task] = set()
        self._wide: set[Task] = set()
        self._writers: set[Task] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def uses(self, key: Key) -> bool:
        """Whether an operation uses a key."""
        return key in self._usages

    def writers(self, keys: Iterable[Key]) -> set[Task]:
        """The operations that write one of the keys."""
        found: set[Task] = set()
        for key in keys:
            usage = self._usages.get(key)
            if usage is not None:
                found |= usage.writers
        return found

    def blockers(self, reads: Iterable[Key], writes: Iterable[Key], wide: bool) -> set[Task]:
        """The operations that must run before a new one with these keys."""
        found: set[Task] = set()
        usages = self._usages
        for key in reads:
            usage = usages.get(key)
            if usage is not None:
                found |= usage.last
        for key in writes:
            usage = usages.get(key)
            if usage is not None:
                found |= usage.last
                found |= usage.readers
        if self._wide and _any_values(writes):
            found |= self._wide
        if wide:
            found |= self._writers
        return found

    def enter(
        self,
        task: Task,
        reads: Iterable[Key],
        writes: Iterable[Key],
        wide: bool,
        latest: bool = True,
    ) -> None:
        """Add an operation, which arrived after all others, unless it is not the ``latest``."""
        self._tasks.add(task)
        if wide:
            self._wide.add(task)
        if _any_values(writes):
            self._writers.add(task)
        for keys, written in ((reads, False), (writes, True)):
            for key in keys:
                usage = self._usages.get(key)
                if usage is None:
                    usage = self._usages[key] = Usage((key,))
                usage.enter(task, written, latest)

    def widen(self, keys: Iterable[Key]) -> None:
        """Make the operations that write one of the keys wide."""
        self._wide |= self.writers(keys)

    def leave(self, task: Task) -> None:
        """Remove an operation that has run."""
        for usage in task.usages:
            usage.leave(task)
        self._forget(task)

    def withdraw(self, task: Task) -> None:
        """Remove an operation that will not run."""
        for usage in task.usages:
            usage.withdraw(task)
        self._forget(task)

    def _forget(self, task: Task) -> None:
        for group in (self._tasks, self._wide, self._writers):
            group.discard(task)
        for usage in task.usages:
            if not usage.tasks:
                for key in usage.keys:
                    del self._usages[key]
        task.usages.clear()

    def merge(self, keys: Iterable[Key]) -> None:
        """From now on, all these keys stand for the same memory; does nothing if none is used."""
        keys = set(keys)
        found = {self._usages[key] for key in keys if key in self._usages}
        if not found:
            return
        largest = max(found, key=lambda usage: len(usage.tasks) + len(usage.keys))
        for usage in found - {largest}:
            largest.absorb(usage)
            keys |= usage.keys
        largest.keys |= keys
        for key in keys:
            self._usages[key] = largest

    def clear(self) -> None:
        """Forget every operation."""
        for group in (self._tasks, self._wide, self._writers):
            group.clear()
        self._usages.clear()


def _any_values(keys: Iterable[Key]) -> bool:
    return not all(map(is_attribute, keys))
