"""Operations that wait for their inputs, and run in an order that cannot be told from the order
given.

A command may arrive before what it works on: its input is only promised.  It is then *parked*, its
results are promised in turn, and it runs as soon as everything it needs is there.  One rule gives
asynchronous pointers, protocols whose parties run in any order, and multi-party rounds.

Two parked operations may swap places unless one writes what the other touches.  "Touches" must
count aliases: a view shares memory with its base, and what a parked operation will return may be a
view of any of its inputs.  So every operation has a set of *keys*, the ids and storages of its
inputs, and what a parked operation will return is remembered as a possible view of each of them
(by way of a key for the operation itself).
An operation that writes takes the keys of all possible aliases as well, and is ordered against
every other with a key in common.  A backward pass writes to leaves that no argument names, so it is
ordered against everything.  That may order more than is needed; it never orders less.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from syft.exceptions import ObjectIdTaken
from syft.workers.core.permissions import memory_of
from syft.workers.core.store import ObjectStore

Key = int | tuple[str, int]
Run = Callable[[dict[int, Any] | None], None]


class Task:
    """One parked operation.

    ``run`` is called with the inputs that were present when the task was parked or arrived since,
    by id: they stay usable even if their pointers are dropped meanwhile.  It is called with None
    when nobody wants the results any more.  ``request`` tells it from others, to cancel it.
    """

    __slots__ = (
        "number",
        "request",
        "run",
        "outs",
        "writes",
        "keys",
        "missing",
        "held",
        "blockers",
        "blocks",
        "barrier",
    )

    def __init__(
        self, number: int, request: Hashable, run: Run, outs: tuple[int, ...], writes: bool
    ) -> None:
        self.number = number
        self.request = request
        self.run = run
        self.outs = outs
        self.writes = writes
        self.keys: set[Key] = set()
        self.missing: set[int] = set()
        self.held: dict[int, Any] = {}
        self.blockers = 0
        self.blocks: list[Task] = []
        self.barrier = False

    def __lt__(self, other: Task) -> bool:
        return self.number < other.number


class Usage:
    """Who touches one key: the last parked operation that writes it, and those that read it
    since."""

    __slots__ = ("writer", "readers")

    def __init__(self) -> None:
        self.writer: Task | None = None
        self.readers: set[Task] = set()


class Dataflow:
    """The parked operations of one worker, and what each waits for."""

    __slots__ = (
        "_store",
        "_numbers",
        "tasks",
        "_waiting",
        "_usage",
        "_barrier",
        "_origins",
        "_views",
        "_makers",
        "_unwanted",
    )

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._numbers = itertools.count()
        self.tasks: set[Task] = set()
        """The parked operations; empty means that nothing waits."""
        self._waiting: dict[int, set[Task]] = {}
        self._usage: dict[Key, Usage] = {}
        self._barrier: Task | None = None
        self._origins: dict[Key, set[Key]] = {}
        self._views: dict[Key, set[Key]] = {}
        self._makers: dict[int, Task] = {}
        self._unwanted: set[int] = set()

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def active(self) -> bool:
        """Whether a new operation might have to wait at all."""
        return bool(self.tasks or self._store.promised)

    def admit(
        self,
        run: Run,
        inputs: Iterable[int],
        outs: tuple[int, ...],
        writes: bool,
        barrier: bool = False,
        request: Hashable = None,
    ) -> bool:
        """Park ``run`` if it has to wait; return False if it may run at once (nothing is kept
        then).

        A ``barrier`` may write to anything.  ``request`` is the name by which :meth:`cancel` finds
        it.
        """
        task = Task(next(self._numbers), request, run, outs, writes)
        direct = self._find_inputs(task, inputs)
        blockers = set(self.tasks) if barrier else self._blockers_of(task)
        if not task.missing and not blockers:
            return False
        self._park(task, blockers)
        if outs:
            node = (
                "task",
                task.number,
            )  # one for all, or each result would be linked to each input
            self._link(node, direct)
            for out in outs:
                self._link(out, (node,))
        if barrier:
            task.barrier = True
            self._barrier = task
        return True

    def _find_inputs(self, task: Task, inputs: Iterable[int]) -> set[Key]:
        """Fill in what a task needs and touches; returns the keys of its inputs themselves."""
        for out in task.outs:
            if out in self._makers:
                raise ObjectIdTaken(out, self._store.worker)
        keys: set[Key] = set()
        for id in inputs:
            if id in self._store.promised:
                task.missing.add(id)
            elif id in self._store.objects:
                task.held[id] = self._store.objects[id]
            keys.add(id)
            keys |= self._memory_of(id)
        task.keys = self._aliases_of(keys) if task.writes else keys
        return keys

    def _memory_of(self, id: int) -> set[Key]:
        return {("storage", address) for address in memory_of(self._store.objects.get(id))}

    def _link(self, key: Key, origins: Iterable[Key]) -> None:
        """Say that ``key`` may be a view of each of ``origins``."""
        for origin in origins:
            self._origins.setdefault(key, set()).add(origin)
            self._views.setdefault(origin, set()).add(key)

    def _aliases_of(self, keys: set[Key]) -> set[Key]:
        """These keys, whatever they may be views of, and whatever may be a view of that."""
        return _reachable(_reachable(keys, self._origins), self._views)

    def _blockers_of(self, task: Task) -> set[Task]:
        """The parked operations that must run before ``task``."""
        blockers = set() if self._barrier is None else {self._barrier}
        for key in task.keys:
            usage = self._usage.get(key)
            if usage is not None:
                if usage.writer is not None:
                    blockers.add(usage.writer)
                if task.writes:
                    blockers |= usage.readers
        return blockers

    def _park(self, task: Task, blockers: set[Task]) -> None:
        task.blockers = len(blockers)
        for blocker in blockers:
            blocker.blocks.append(task)
        for id in task.missing:
            self._waiting.setdefault(id, set()).add(task)
        for key in task.keys:
            usage = self._usage.setdefault(key, Usage())
            if task.writes:
                usage.writer = task
                usage.readers = set()
            else:
                usage.readers.add(task)
        for out in task.outs:
            self._store.promise(out)
            self._makers[out] = task
        self.tasks.add(task)

    def settle(self, ids: Iterable[int]) -> None:
        """Tell that promised ``ids`` have arrived (or were given up), and run whatever can run
        now."""
        if not self.tasks and not self._unwanted:
            return
        ready: list[Task] = []
        self._release(ids, ready)
        self._run_ready(ready)

    def _run_ready(self, ready: list[Task]) -> None:
        """Run what is ready, in the order in which it was given, and what becomes ready by that."""
        while ready:
            task = heapq.heappop(ready)
            self.tasks.discard(task)
            task.run(task.held)
            self._remove(task, ready)
            self._release(task.outs, ready)
        if not self.tasks:
            self._origins.clear()
            self._views.clear()

    def _remove(self, task: Task, ready: list[Task]) -> None:
        """Take a task that has run, or never will, out of the tables."""
        if self._barrier is task:
            self._barrier = None
        for out in task.outs:
            self._makers.pop(out, None)
        for key in task.keys:
            usage = self._usage[key]
            usage.readers.discard(task)
            if usage.writer is task:
                usage.writer = None
            if usage.writer is None and not usage.readers:
                del self._usage[key]
        for blocked in task.blocks:
            blocked.blockers -= 1
            self._queue_if_ready(blocked, ready)

    def _release(self, ids: Iterable[int], ready: list[Task]) -> None:
        for id in ids:
            value = self._store.objects.get(id)
            if id in self._views:
                self._link(id, self._memory_of(id))
            for task in self._waiting.pop(id, ()):
                task.missing.discard(id)
                if value is not None:
                    task.held[id] = value
                self._queue_if_ready(task, ready)
            if id in self._unwanted:
                self._unwanted.discard(id)
                self._store.drop(id, "its last pointer was dropped before it came")

    def _queue_if_ready(self, task: Task, ready: list[Task]) -> None:
        if not task.missing and not task.blockers and task in self.tasks:
            heapq.heappush(ready, task)

    def forget(self, id: int, reason: str) -> None:
        """Drop a promised object: at once if nothing needs it, otherwise when it has come.

        What would only have made an object that nobody wants is not run at all.
        """
        self._unwanted.add(id)
        ready: list[Task] = []
        ids = [id]
        while ids:
            id = ids.pop()
            task = self._makers.get(id)
            if id not in self._unwanted or id in self._waiting:
                continue
            if task is None:
                self._unwanted.discard(id)
                self._store.mark_gone(id, reason)
            elif self._is_useless(task):
                task.run(None)
                ids.extend(self._remove_parked(task, ready))
        self._run_ready(ready)

    def cancel(self, request: Hashable) -> tuple[int, ...]:
        """Take a parked operation back without running it; returns the ids of its results."""
        found = [task for task in self.tasks if task.request == request]
        ready: list[Task] = []
        for task in found:
            self._transfer_order(task)
            self._remove_parked(task, ready)
            for key in task.keys:
                self._recompute_usage(key)
        if found:
            self._barrier = max((task for task in self.tasks if task.barrier), default=None)
        self._run_ready(ready)
        return tuple(out for task in found for out in task.outs)

    def _transfer_order(self, task: Task) -> None:
        """Have what waits for ``task`` wait for what ``task`` waits for, so that it can go."""
        for blocker in self.tasks:
            if task in blocker.blocks:
                blocker.blocks.remove(task)
                blocker.blocks.extend(task.blocks)
                for blocked in task.blocks:
                    blocked.blockers += 1

    def _recompute_usage(self, key: Key) -> None:
        """Find out again who touches a key, after a task between others has gone."""
        usage = Usage()
        for task in sorted(task for task in self.tasks if key in task.keys):
            if task.writes:
                usage = Usage()
                usage.writer = task
            else:
                usage.readers.add(task)
        self._usage.pop(key, None)
        if usage.writer is not None or usage.readers:
            self._usage[key] = usage

    def _is_useless(self, task: Task) -> bool:
        wanted = any(out not in self._unwanted or out in self._waiting for out in task.outs)
        return not task.writes and not wanted

    def _remove_parked(self, task: Task, ready: list[Task]) -> list[int]:
        """Take a parked task back; returns the ids that might now be needed by nobody."""
        self.tasks.discard(task)
        self._remove(task, ready)
        for id in task.missing:
            self._waiting[id].discard(task)
            if not self._waiting[id]:
                del self._waiting[id]
        return [*task.outs, *task.missing]

    def clear(self) -> None:
        """Forget every parked operation."""
        self._barrier = None
        for table in (self.tasks, self._waiting, self._usage, self._makers):
            table.clear()
        self._origins.clear()
        self._views.clear()
        self._unwanted.clear()


def _reachable(keys: set[Key], links: dict[Key, set[Key]]) -> set[Key]:
    """These keys, and all to which links lead from them."""
    found = set(keys)
    stack = list(keys)
    while stack:
        fresh = links.get(stack.pop(), set()) - found
        found |= fresh
        stack.extend(fresh)
    return found
