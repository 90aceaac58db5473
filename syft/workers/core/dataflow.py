"""Operations that wait for their inputs, with the same results as in the order of arrival.

A command may arrive before its inputs, which are then only promised.  The command is *parked* and
its results are promised too.  It runs as soon as all its inputs are present.  Asynchronous
pointers, protocols whose parties run in any order, and multi-party rounds all rest on this rule.

Two parked operations may run in either order unless one writes what the other reads or writes.
Aliases count too: a view shares memory with its base, and a result of a parked operation may be a
view of any of its inputs.  So every operation has a set of *keys*, the ids and storages of its
inputs.  Each result of a parked operation is recorded as a possible view of each input, through a
key for the operation itself.
An operation that writes also takes the keys of all possible aliases.  It is ordered against every
other operation with a key in common.  A backward pass writes to leaves that are not among its
arguments, so it is ordered against all other operations.  These rules may order more operations
than necessary, never fewer.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from syft.exceptions import ObjectIdTaken
from syft.workers.core.store import ObjectStore
from syft.workers.execution.permissions import memory_of

Key = int | tuple[str, int]
Run = Callable[[dict[int, Any] | None], None]


class Task:
    """One parked operation.

    ``run`` is called with the inputs by id: those present when the task was parked and those that
    arrived since.  They stay usable even if their pointers are dropped meanwhile.  ``run`` is
    called with None when all pointers to the results were dropped.  ``request`` identifies the task
    for :meth:`Dataflow.cancel`.
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
    """The parked operations that use one key: the last writer, and the readers since then."""

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
        "_running",
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
        """The parked operations."""
        self._running: set[Task] = set()
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
        """Whether a new operation might have to wait."""
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
        """Park ``run`` if it has to wait; return False, storing nothing, if it may run now.

        A ``barrier`` may write to any object.  :meth:`cancel` finds the operation by ``request``.
        """
        task = Task(next(self._numbers), request, run, outs, writes)
        direct = self._find_inputs(task, inputs)
        blockers = set(self.tasks) if barrier else self._blockers_of(task)
        if not task.missing and not blockers:
            return False
        self._park(task, blockers)
        if outs:
            # One key for the operation, so that not every result is linked to every input.
            node = ("task", task.number)
            self._link(node, direct)
            for out in outs:
                self._link(out, (node,))
        if barrier:
            task.barrier = True
            self._barrier = task
        return True

    def _find_inputs(self, task: Task, inputs: Iterable[int]) -> set[Key]:
        """Set the inputs and keys of a task; returns the input keys without their aliases."""
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
        """Record that ``key`` may be a view of each of ``origins``."""
        for origin in origins:
            self._origins.setdefault(key, set()).add(origin)
            self._views.setdefault(origin, set()).add(key)

    def _aliases_of(self, keys: set[Key]) -> set[Key]:
        """These keys, their possible bases, and the possible views of all of these."""
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
        """Run the operations that became ready because ``ids`` have arrived or failed."""
        if not self.tasks and not self._unwanted:
            return
        ready: list[Task] = []
        self._release(ids, ready)
        self._run_ready(ready)

    def _run_ready(self, ready: list[Task]) -> None:
        """Run the ready operations by order of arrival, with those that become ready meanwhile."""
        while ready:
            task = heapq.heappop(ready)
            self.tasks.discard(task)
            self._running.add(task)  # its handler may let others ask this worker meanwhile
            task.run(task.held)
            self._running.discard(task)
            self._remove(task, ready)
            self._release(task.outs, ready)
        if not self.tasks:
            self._origins.clear()
            self._views.clear()

    def _remove(self, task: Task, ready: list[Task]) -> None:
        """Remove a task that has run, or will never run, from the tables."""
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
        """Drop a promised object: at once if no task waits for it, otherwise when it has arrived.

        A parked operation is not run if all its results were dropped and it writes to no input.
        """
        self._unwanted.add(id)
        ready: list[Task] = []
        self._drop_unwanted([id], reason, ready)
        self._run_ready(ready)

    def _drop_unwanted(self, ids: list[int], reason: str, ready: list[Task]) -> None:
        """Drop those of the ids that nobody wants and nothing waits for, and what made them."""
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

    def cancel(self, request: Hashable) -> tuple[int, ...]:
        """Remove a parked operation without running it; returns the ids of its results."""
        found = [task for task in self.tasks if task.request == request]
        ready: list[Task] = []
        for task in found:
            self._transfer_order(task)
            inputs = [id for id in self._remove_parked(task, ready) if id not in task.outs]
            for key in task.keys:
                self._recompute_usage(key)
            self._drop_unwanted(inputs, "its last pointer was dropped before it came", ready)
        if found:
            barriers = (task for task in self.tasks | self._running if task.barrier)
            self._barrier = max(barriers, default=None)
        self._run_ready(ready)
        return tuple(out for task in found for out in task.outs)

    def _transfer_order(self, task: Task) -> None:
        """Make the operations that wait for ``task`` wait for those that ``task`` waits for."""
        for blocker in self.tasks | self._running:
            if task in blocker.blocks:
                blocker.blocks.remove(task)
                blocker.blocks.extend(task.blocks)
                for blocked in task.blocks:
                    blocked.blockers += 1

    def _recompute_usage(self, key: Key) -> None:
        """Compute the usage of a key again, after a task was cancelled."""
        usage = Usage()
        for task in sorted(task for task in self.tasks | self._running if key in task.keys):
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
        """Remove a parked task; returns the ids that might now be unused."""
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
    """These keys, and all keys that links reach from them."""
    found = set(keys)
    stack = list(keys)
    while stack:
        fresh = links.get(stack.pop(), set()) - found
        found |= fresh
        stack.extend(fresh)
    return found
