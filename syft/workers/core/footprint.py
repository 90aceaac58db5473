"""The keys that an operation reads and writes, from what it does and what its inputs are.

An input may be present, or promised by a parked operation, or promised by somebody outside.  The
result of a parked operation may be a view of any of its inputs, so it has their keys, and one of
its own for the memory that it may turn out to have.  A backward pass touches what the graph of its
loss touches.  Where the loss is only promised, that is the graphs of what the parked operations
before it name, and of what those name in turn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from syft.workers.core.access import (
    ELSEWHERE,
    Key,
    attribute_of,
    attributes_of,
    gradient_keys,
    keys_of,
)
from syft.workers.core.scoreboard import Scoreboard
from syft.workers.core.store import ObjectStore
from syft.workers.core.task import Task
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
    """Computes footprints at one worker, and remembers the keys of promised results."""

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
