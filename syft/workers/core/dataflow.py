"""Operations that wait for their inputs, with the same results as in the order of arrival.

A command may arrive before its inputs, which are then only promised.  The command is *parked* and
its results are promised too.  It runs as soon as all its inputs are present.  Asynchronous
pointers, protocols whose parties run in any order, and multi-party rounds all rest on this rule.

Two parked operations may run in either order unless one writes what the other reads or writes.
:mod:`~syft.workers.core.access` says what an operation does, its :class:`Footprint` which memory
that may be, and :mod:`~syft.workers.core.scoreboard` which parked operations use the same.  These
rules may order more operations than necessary, never fewer.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Container, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from syft.workers.core.access import (
    ELSEWHERE,
    READS,
    Access,
    Key,
    attribute_of,
    attributes_of,
    gradient_keys,
    keys_of,
)
from syft.workers.core.open_promises import open_promises
from syft.workers.core.peer_limits import Account
from syft.workers.core.scoreboard import Scoreboard
from syft.workers.core.store import ObjectStore
from syft.workers.core.task import Run, Task
from syft.workers.labels.reached_graph import ReachedGraph, reached_graph
from syft.workers.labels.walk import memory_of

MOST_KEYS = 8
"""With more keys than this a result gets one: those it has are taken to be the same memory."""


@dataclass(slots=True)
class Footprint:
    """The keys that an operation reads and writes; a ``wide`` one may read anything."""

    reads: set[Key] = field(default_factory=set)
    writes: set[Key] = field(default_factory=set)
    wide: bool = False


class Footprints:
    """Computes footprints at one worker, and remembers the keys of promised results.

    An input may be present, or promised by a parked operation, or promised by somebody outside.
    The result of a parked operation may be a view of any of its inputs, so it has their keys, and
    one of its own for the memory that it may turn out to have.  A backward pass touches what the
    graph of its loss touches.  Where the loss is only promised, that is the graphs of what the
    parked operations before it name, and of what those name in turn.
    """

    __slots__ = ("_store", "_board", "_results", "_own", "makers")

    def __init__(self, store: ObjectStore, board: Scoreboard) -> None:
        self._store = store
        self._board = board
        self._results: dict[int, frozenset[Key]] = {}
        self._own: dict[int, Key] = {}
        self.makers: dict[int, Task] = {}
        """The parked operations, by the ids of their results."""

    def of(self, task: Task) -> Footprint:
        """The footprint of an operation that has just arrived."""
        access, footprint = task.access, Footprint()
        for id in task.inputs:
            keys = self._keys(id, task)
            attributes = attributes_of(keys)
            (footprint.writes if id in access.writes else footprint.reads).update(keys)
            if id in access.sets:
                footprint.writes |= attributes
            elif access.reads_attributes:
                footprint.reads |= attributes | self._gradients(task.held.get(id))
        if access.backward:
            self._add_backward(task, footprint)
        footprint.reads -= footprint.writes
        return footprint

    def _keys(self, id: int, task: Task) -> set[Key] | frozenset[Key]:
        """The keys of the values of an input."""
        keys = self._results.get(id)
        if keys is not None:
            return keys
        value = task.held.get(id)
        return {id} if value is None else keys_of(value) | {id}

    def _gradients(self, value: Any) -> set[Key]:
        """What a gradient that is read stands for besides the tensor's own attributes."""
        if value is None:
            return set()
        # Of a result that retains its gradient, what runs over its leaves writes the gradient.
        leaves = reached_graph([value]).leaves
        return gradient_keys(value).union(*(attributes_of(keys_of(leaf)) for leaf in leaves))

    def _add_backward(self, task: Task, footprint: Footprint) -> None:
        """Add what a backward pass over the inputs may touch."""
        present: list[Any] = []
        stack = [(id, task) for id in task.inputs]
        seen, followed = set(task.inputs), {task}
        while stack:
            id, user = stack.pop()
            keys = self._keys(id, user)
            footprint.reads |= keys
            footprint.writes |= attributes_of(keys)
            if id in user.held:
                present.append(user.held[id])
            makers = self._board.writers(keys | attributes_of(keys))
            if id in self.makers:
                makers.add(self.makers[id])
            for maker in makers - followed:
                if maker.access.recorded:
                    followed.add(maker)
                    stack += [(other, maker) for other in maker.inputs if other not in seen]
                    seen.update(maker.inputs)
        self._add_reach(reached_graph(present), footprint)

    @staticmethod
    def _add_reach(reach: ReachedGraph, footprint: Footprint) -> None:
        for leaf in reach.leaves:
            keys = keys_of(leaf)
            footprint.reads |= keys
            footprint.writes |= attributes_of(keys) | gradient_keys(leaf)
        saved = (address for tensor in reach.saved() for address in memory_of(tensor))
        footprint.reads.update(("memory", address) for address in saved)
        footprint.wide |= reach.is_opaque()
        if reach.elsewhere:
            footprint.writes.add(ELSEWHERE)

    # ----------------------------------------------------------------------------------- results

    def promise_results(self, task: Task) -> None:
        """Remember the keys of the results of an operation that is parked."""
        if not task.outs:
            return
        own: Key = task.outs[0]
        keys: set[Key] = {own}
        if not task.access.fresh:
            for id in task.inputs:
                found = set(self._keys(id, task))
                if task.access.gives_gradient:
                    found = attributes_of(found) | self._gradients(task.held.get(id))
                keys |= found
        if len(keys) > MOST_KEYS:
            self._board.enter(task, {own, attribute_of(own)} | keys, (), False)
            self._board.merge(keys)
            self._board.merge(attributes_of(keys))
            keys = {own}
        self._board.enter(task, {own, attribute_of(own)}, (), False)
        for out in task.outs:
            self.makers[out] = task
            self._results[out] = frozenset(keys)
            self._own[out] = own

    def join_inputs(self, task: Task) -> None:
        """Record that the inputs of an operation may share memory after it."""
        keys: set[Key] = set()
        for id in task.inputs:
            found = self._keys(id, task)
            keys |= attributes_of(found) if id in task.access.sets else found
        self._board.merge(keys)

    def forget(self, task: Task, ran: bool = True) -> None:
        """Forget the keys of the results of an operation that ``ran`` or will not run.

        Of results that :meth:`arrived` is called for next, the own keys are still needed.
        """
        for out in task.outs:
            self.makers.pop(out, None)
            self._results.pop(out, None)
            if not ran:
                self._own.pop(out, None)

    def arrived(self, id: int, value: Any) -> None:
        """An object that was promised is there: what used it by its id used its memory."""
        own = self._own.pop(id, None)
        outside = own is None
        key = id if own is None else own
        if value is None:
            return
        if self._board.uses(key):
            self._board.merge({key} | keys_of(value))
        attribute = attribute_of(key)
        if self._board.uses(attribute):
            if outside:
                self._extend_graph(key, value)
            self._board.merge({attribute} | attributes_of(keys_of(value)) | gradient_keys(value))

    def _extend_graph(self, key: Key, value: Any) -> None:
        """What keeps a promise may bring a graph, of which a parked backward pass knew nothing."""
        reach = reached_graph([value])
        extended = Footprint()
        self._add_reach(reach, extended)
        if extended.reads:
            self._board.merge({key} | extended.reads)
            self._board.merge({attribute_of(key)} | extended.writes)
        if extended.wide:
            self._board.widen({attribute_of(key)})

    def clear(self) -> None:
        """Forget everything."""
        for table in (self.makers, self._results, self._own):
            table.clear()


class Dataflow:
    """The parked operations of one worker, and what each waits for."""

    __slots__ = (
        "_store",
        "_numbers",
        "tasks",
        "_requests",
        "_waiting",
        "_takers",
        "_board",
        "_footprints",
        "_unwanted",
        "_running",
    )

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._numbers = itertools.count()
        self.tasks: set[Task] = set()
        """The parked operations."""
        self._requests: dict[Hashable, Task] = {}
        self._waiting: dict[int, set[Task]] = {}
        self._takers: dict[int, Task] = {}
        self._board = Scoreboard()
        self._footprints = Footprints(store, self._board)
        self._unwanted: set[int] = set()
        self._running: Task | None = None

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
        access: Access = READS,
        request: Hashable = None,
        payer: Account | None = None,
    ) -> Task | None:
        """Park ``run`` if it has to wait; return None, storing nothing, if it may run now.

        :meth:`cancel` finds the operation by ``request``.  ``payer`` is the account of the caller.
        Raises :class:`~syft.exceptions.LimitExceeded` if too many of its operations wait.
        """
        names = tuple(dict.fromkeys(inputs))
        task = Task(next(self._numbers), run, names, outs, access, request)
        objects, promised = self._store.objects, self._store.promised
        task.missing = {id for id in names if id in promised}
        if not task.missing and not len(self._board):
            return None
        task.held = {id: objects[id] for id in names if id in objects}
        footprint = self._footprints.of(task)
        task.blockers = self._board.blockers(footprint.reads, footprint.writes, footprint.wide)
        if task.ready:
            return None
        self._charge(task, payer)
        for id, value in task.held.items():
            task.graphs[id] = self._store.charges.graphs.record_of(id, value)
        self._board.enter(task, footprint.reads, footprint.writes, footprint.wide)
        self._park(task)
        return task

    def occupy(self, inputs: Iterable[int], access: Access, request: Hashable = None) -> Task:
        """Hold the place of an operation that goes on after it has begun, until :meth:`vacate`:
        what comes later and conflicts with it waits, as for one that is parked.  It may have been
        parked itself, as this ``request``.

        >>> store = ObjectStore("bob"); flow = Dataflow(store); store.put(5, torch.ones(2))
        >>> reading, ran = flow.occupy((5,), READS), []
        >>> writing = flow.admit(lambda held: ran.append(len(held)), (5,), (), Access(writes=(5,)))
        >>> ran, flow.vacate(reading), ran
        ([1], None, [1])
        """
        names = tuple(dict.fromkeys(inputs))
        task = Task(next(self._numbers), inputs=names, access=access)
        task.held = {id: self._store.objects[id] for id in names if id in self._store.objects}
        footprint = self._footprints.of(task)
        about = footprint.reads, footprint.writes, footprint.wide
        self._board.enter(task, *about, latest=False)
        if access.joins:
            self._footprints.join_inputs(task)
        if self._running is not None and self._running.request == request:
            for later in self._running.blocks:  # what came after the request
                later.blockers.add(task)
                task.blocks.add(later)
        self.tasks.add(task)
        return task

    def vacate(self, task: Task) -> None:
        """End what :meth:`occupy` has begun, and run what has waited for it."""
        if task in self.tasks:
            ready: list[Task] = []
            self.tasks.discard(task)
            self._finish(task, ready)
            self._run_ready(ready)

    def promises_behind(self, id: int) -> tuple[int, ...]:
        """The promises from outside for which a promised object waits, as
        :func:`~syft.workers.core.open_promises.open_promises` has them."""
        asking = Task(next(self._numbers))
        asking.missing = {id}
        return open_promises(asking, self._footprints.makers, self._store.promised)

    def _park(self, task: Task) -> None:
        task.awaits = open_promises(task, self._footprints.makers, self._store.promised)
        for blocker in task.blockers:
            blocker.blocks.add(task)
        for id in task.missing:
            self._waiting.setdefault(id, set()).add(task)
        self._footprints.promise_results(task)
        if task.access.joins:
            self._footprints.join_inputs(task)
        for out in task.outs:
            self._store.promise(out)
        self._follow_takers(task)
        self.tasks.add(task)
        if task.request is not None:
            self._requests[task.request] = task

    def _follow_takers(self, task: Task) -> None:
        """Let a task not hold what an earlier one takes: it must not find that any more."""
        for id in task.inputs if self._takers else ():
            if id in self._takers:
                self._takers[id].followers.append(task)
                task.unheld.add(id)
                task.held.pop(id, None)
        for id in task.access.takes:
            self._takers[id] = task

    def _end_taking(self, task: Task) -> None:
        """What a task did not take after all, those behind it hold again."""
        for id in task.access.takes:
            if self._takers.get(id) is task:
                del self._takers[id]
            for follower in task.followers:
                if id in follower.unheld:
                    follower.unheld.discard(id)
                    if id in self._store.objects:
                        self._hold(follower, id, self._store.objects[id])

    def _hold(self, task: Task, id: int, value: Any) -> None:
        """Let a task hold an object, and what its graph keeps."""
        task.held[id] = value
        task.graphs[id] = self._store.charges.graphs.record_of(id, value)

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
            if task not in self.tasks:  # the handler of another one had it dropped or cancelled
                continue
            self._unlist(task)  # its handler may let others ask this worker meanwhile
            outer, self._running = self._running, task
            try:
                self._store.charges.graphs.serve(task.run, task.held, task.graphs)
            finally:
                self._running = outer
            self._finish(task, ready)
            self._release(task.outs, ready)

    def _unlist(self, task: Task) -> None:
        self.tasks.discard(task)
        self._stop_charging(task)
        if self._requests.get(task.request) is task:
            del self._requests[task.request]

    def _charge(self, task: Task, payer: Account | None) -> None:
        if payer is not None:
            self._store.charges.enter(payer, parked=1, promises=len(task.outs))
            task.payer = payer

    def _stop_charging(self, task: Task) -> None:
        if task.payer is not None:
            self._store.charges.leave(task.payer, parked=1, promises=len(task.outs))
            task.payer = None

    def _finish(self, task: Task, ready: list[Task]) -> None:
        """Take a task that has run from the tables."""
        self._board.leave(task)
        self._footprints.forget(task)
        self._end_taking(task)
        self._unblock(task, ready)

    def _unblock(self, task: Task, ready: list[Task]) -> None:
        for blocked in task.blocks:
            blocked.blockers.discard(task)
            self._queue_if_ready(blocked, ready)
        task.blocks.clear()

    def _release(self, ids: Iterable[int], ready: list[Task]) -> None:
        for id in ids:
            value = self._store.objects.get(id)
            self._footprints.arrived(id, value)
            for task in self._waiting.pop(id, ()):
                task.missing.discard(id)
                if value is not None and id not in task.unheld:
                    self._hold(task, id, value)
                self._queue_if_ready(task, ready)
            if id in self._unwanted:
                self._unwanted.discard(id)
                self._store.drop(id, "its last pointer was dropped before it came")

    def _queue_if_ready(self, task: Task, ready: list[Task]) -> None:
        if task.ready and task in self.tasks:
            heapq.heappush(ready, task)

    def held(self) -> Iterator[Any]:
        """What the parked operations hold, which may have been dropped from the store."""
        for task in self.tasks:
            yield from task.held.values()

    def moved(self, old: Any, new: Any) -> None:
        """Let the parked operations use another object in the place of one that they hold.

        Both are the same memory from now on, as far as the order of operations goes.
        """
        for task in self.tasks:
            for id, value in task.held.items():
                if value is old:
                    task.held[id] = new
        self._board.merge(keys_of(old) | keys_of(new))

    def forget(self, id: int, reason: str) -> None:
        """Drop a promised object: at once if no task waits for it, otherwise when it has arrived.

        A parked operation is not run if all its results were dropped and it changes nothing else.
        """
        self._unwanted.add(id)
        ready: list[Task] = []
        self._drop_unwanted([id], reason, ready)
        self._run_ready(ready)

    def _drop_unwanted(self, ids: list[int], reason: str, ready: list[Task]) -> None:
        """Drop those of the ids that nobody wants and nothing waits for, and what made them."""
        while ids:
            id = ids.pop()
            task = self._footprints.makers.get(id)
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
        task = self._requests.get(request)
        if task is None:
            return ()
        ready: list[Task] = []
        inputs = [id for id in self._remove_parked(task, ready) if id not in task.outs]
        self._drop_unwanted(inputs, "its last pointer was dropped before it came", ready)
        self._run_ready(ready)
        return task.outs

    def requests_of(self, sessions: Container[object]) -> list[Hashable]:
        """The parked operations that came over some connections, as :meth:`cancel` names them."""
        return [request for request in self._requests if request[0] in sessions]  # type: ignore

    def _is_useless(self, task: Task) -> bool:
        wanted = any(out not in self._unwanted or out in self._waiting for out in task.outs)
        return task in self.tasks and not task.access.changes and not wanted

    def _remove_parked(self, task: Task, ready: list[Task]) -> list[int]:
        """Remove a parked task; returns the ids that might now be unused."""
        self._unlist(task)
        task.step_aside()
        self._board.withdraw(task)
        self._footprints.forget(task, ran=False)
        self._end_taking(task)
        self._unblock(task, ready)
        for id in task.missing:
            self._waiting[id].discard(task)
            if not self._waiting[id]:
                del self._waiting[id]
        return [*task.outs, *task.missing]

    def clear(self) -> None:
        """Forget every parked operation."""
        for task in self.tasks:
            self._stop_charging(task)
        for table in (self.tasks, self._requests, self._waiting, self._takers, self._unwanted):
            table.clear()
        self._board.clear()
        self._footprints.clear()
