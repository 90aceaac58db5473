"""What the graphs of objects keep at one worker, and who is charged for it.

``y = (y * y).cos()`` in a loop has one object and keeps ten: torch keeps what a graph saved as long
as a result of it lives.  So for each result with a graph there is a small *record*: the memory that
its graph keeps and the records of its operands.  The table has it by the id of the object, and the
records of what is computed from the object have it too.  So it goes when nothing leads to it any
more, and what it counted with it.  Nothing is at the tensor itself, whose life the real graph
prolongs.  Memory is counted by storage, for objects and graphs together, once
(:mod:`~syft.workers.core.charges`).

That memory lives on after its object was dropped is never asked: where something is private it
tells whether an operation failed.  What a graph keeps follows from what is public
(:mod:`~syft.workers.execution.kept_memory`), and so does what a backward pass frees: from its
arguments alone.

Small operations are *counted in lots*: the results of some thousand operations on small tensors
share one record, of which only the number of operations is known.  It is paid from a reserve that
is taken off the limit of every caller.  When a lot is full, the objects that are left of it get its
record, and a new one begins.  With the reserve used up, small operations are recorded one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch

from syft.exceptions import LimitExceeded
from syft.ops.nested import Function, tensors_in
from syft.ops.outcome import Outcome
from syft.workers.core.counted_memory import CountedMemory, Storages
from syft.workers.core.peer_limits import Account
from syft.workers.execution.kept_memory import (
    Kept,
    beginnings,
    gradient_bytes,
    has_graph,
    outcome_of,
    memory_of,
    predicted,
)
from syft.workers.labels.walk import by_address, lies_in, recorded_of, tensors_of

_SHARE: Final = 4
"""The part of the reserve that a lot has: what is left of one pins all of it."""
_MOST_KNOWN: Final = 4096


class Record:
    """What the graph of some results keeps: storages by their address, ``other`` bytes and those of
    its ``nodes``, and through its ``parents`` what the graphs of the operands keep.

    It is ``exact`` if a backward pass from the results comes to all of that, and is itself the end
    of graphs if it is ``last``.  ``changes`` says how often something had been written before it.
    """

    __slots__ = (
        "account", "places", "other", "nodes", "parents", "exact", "last", "changes", "_memory"
    )  # fmt: skip

    def __init__(
        self,
        memory: CountedMemory,
        account: Account,
        kept: Storages,
        sizes: tuple[int, int],
        parents: Sequence[Any] = (),
        exact: bool = True,
        last: bool = False,
        changes: int = 0,
    ) -> None:
        self._memory = memory
        self.account = account
        self.places = tuple(kept)
        self.other, self.nodes = sizes
        self.parents = parents
        self.exact = exact
        self.last = last
        self.changes = changes
        account.bytes += self.other + self.nodes
        for place, (storage, bytes) in kept.items():
            memory.use(place, storage, bytes, account)

    def free(self) -> None:
        """Stop charging for all that a backward pass frees."""
        places, self.places = self.places, ()
        self.account.bytes -= self.other
        self.other = 0
        self._memory.leave(places)

    def __del__(self) -> None:
        self.free()
        self.account.bytes -= self.nodes
        if self.parents:
            self._memory.let_go(self)


class _Lot:
    """What stands for the records of small operations: how many there are, from a reserve."""

    __slots__ = ("count", "_reserve")

    def __init__(self, reserve: list[int]) -> None:
        self.count = 0
        self._reserve = reserve

    def __del__(self) -> None:
        self._reserve[0] += self.count


@dataclass(slots=True)
class Coming:
    """A request that may make a graph: the objects that it names by id, its operands, those of them
    to which graphs may lead, and what is predicted of it, if anything is.

    ``bytes`` is what it has made on the way, as far as that is known.
    """

    named: Mapping[int, Any]
    inputs: Sequence[torch.Tensor]
    begun: Sequence[torch.Tensor | None]
    outcome: Outcome | None = None
    bytes: int = 0
    _ids: dict[int, list[int]] | None = None

    def kept(self, results: Sequence[torch.Tensor]) -> Kept:
        """What the graph of some results keeps."""
        kept = predicted(self.outcome, results, self.inputs)
        kept.bytes += self.bytes
        return kept

    def is_unclear(self) -> None:
        """Note that the operation has run, and may have changed the beginnings."""
        self.outcome = None

    def ids_of(self, place: int) -> list[int]:
        """The ids of one of its operands, or of all if it is inside of one."""
        if self._ids is None:
            self._ids = {}
            for named, value in self.named.items():
                self._ids.setdefault(id(value), []).append(named)
        return self._ids.get(id(self.inputs[place])) or list(self.named)


class _Like(NamedTuple):
    """What the graph of a call keeps and reaches, by places of its operands; -1 is the result."""

    reached: Sequence[int]
    saved: Sequence[int]
    bytes: int
    nodes: int


class Graphs:
    """The records of the graphs of the objects at one worker.

    ``reserve`` is the number of small operations that are not recorded.  ``pay`` returns the
    account of the caller, if it may have so many more bytes.

    >>> ann, x = Account(), torch.ones(1000, requires_grad=True)
    >>> objects = {5: x, 6: x.exp()}
    >>> graphs = Graphs(CountedMemory(), objects, 0, lambda more=0: ann)
    >>> graphs.made(graphs.coming({5: x}, (x,), {}, torch.exp), {6: objects[6]}); ann.bytes
    12600
    >>> del objects[6]; graphs.drop([6]); graphs.drop([5]); ann.bytes
    0
    """

    __slots__ = (
        "records",
        "ends",
        "left",
        "held",
        "changes",
        "on_the_way",
        "freed",
        "_known",
        "_memory",
        "_objects",
        "_pay",
        "_reserve",
        "_share",
        "_size",
        "_lot",
    )

    def __init__(
        self,
        memory: CountedMemory,
        objects: Mapping[int, Any],
        reserve: int,
        pay: Callable[..., Account],
    ) -> None:
        self.records: dict[int, Any] = {}
        """The records of objects, by id."""
        self.ends: dict[int, Record] = {}
        """Those of leaves from which graphs have been recorded, or that were given gradients."""
        self.held: Mapping[int, Any] = {}
        """Those of what the request holds that is served after it waited."""
        self.changes = 0
        """How often something was written, perhaps."""
        self.on_the_way = 0
        """The bytes that the latest program has made on the way, until they are asked for."""
        self.freed = False
        """Whether a backward pass in it has freed what of that the graphs of its results kept."""
        self._known: dict[Any, _Like] = {}
        self._memory = memory
        self._objects = objects
        self._pay = pay
        self._reserve = [reserve]
        self._share = max(1, reserve // _SHARE)
        self._size = self.left = 0
        self._lot = _Lot(self._reserve)
        self._begin_lot()

    # ---------------------------------------------------------------------------------- lots

    def _begin_lot(self) -> None:
        """Begin a lot, if there is enough left of the reserve."""
        self._lot = _Lot(self._reserve)  # the one before may give back what it had
        self._size = self.left = self._share if self._reserve[0] >= self._share else 0

    def counts(self, ids: Collection[int], count: int = 1) -> bool:
        """Whether small operations on objects of these ids are counted in the lot now, and not
        recorded: the lot knows nothing of records."""
        if not self.records.keys().isdisjoint(ids) or self.held:
            return False
        if self.left < count:
            if self._size:
                self._end_lot()
            elif self._reserve[0] >= self._share:
                self._begin_lot()
        return self.left >= count and self.records.keys().isdisjoint(ids)

    def _end_lot(self) -> None:
        """Give the objects that are left of a lot its record, and begin another one."""
        lot, used = self._lot, self._size - self.left
        lot.count = used
        self._reserve[0] -= used
        for id, value in self._objects.items():
            if id not in self.records and has_graph(value):
                self.records[id] = lot
        del lot
        self._begin_lot()

    # ------------------------------------------------------------------------------- records

    def coming(
        self,
        named: Mapping[int, Any],
        args: Any,
        kwargs: dict[str, Any],
        function: Function | None = None,
    ) -> Coming | None:
        """What is to be known of a request before it runs; None if it begins with no graph.

        ``function`` is what it calls, if that runs in ordinary modes.
        """
        inputs = tensors_in(args, kwargs)
        begun = beginnings(inputs)
        if not any(start is not None for start in begun):
            return None
        outcome = None if function is None else outcome_of(function, args, kwargs, inputs)
        return Coming(named, inputs, begun, outcome)

    def made(self, coming: Coming, results: Mapping[int, Any]) -> None:
        """Record the graphs of results that are about to be stored.

        Raises :class:`~syft.exceptions.LimitExceeded`, and records none, if that is too much.
        """
        found = {id: value for id, value in results.items() if has_graph(value)}
        if not found:
            return
        kept, known = coming.kept([*found.values()]), len(self.ends)
        parents = self._parents(coming, kept)
        try:
            self._pay(self._memory.new(kept.memory) + kept.bytes + kept.nodes)
        except LimitExceeded:
            for id in [*self.ends][known:]:
                del self.ends[id]
            raise
        self.records.update(dict.fromkeys(found, self._record(kept, parents)))

    def made_alike(
        self, look: Any, ids: Sequence[int], values: Sequence[Any], out: int, result: torch.Tensor
    ) -> bool:
        """Record the graph of a result in the way of an earlier call on public values that looked
        like this one, with ids of those that are objects; whether there was one."""
        like = self._known.get(look)
        if like is None:
            return False
        parents = []
        for place in like.reached:
            value, id = values[place], ids[place]
            found = self.records.get(id)
            if found is None and value.is_leaf:
                found = self.ends.get(id)
            if found is None:
                return False
            parents.append(found)
        kept: dict[int, tuple[torch.UntypedStorage, int]] = {}
        for place in like.saved:
            storage = (values[place] if place >= 0 else result).untyped_storage()
            kept[storage._cdata] = storage, storage.nbytes()
        account = self._pay(self._memory.new(kept) + like.bytes + like.nodes)
        about = kept, (like.bytes, like.nodes), parents, True, False, self.changes
        self.records[out] = Record(self._memory, account, *about)
        return True

    def learn(self, look: Any, coming: Coming, values: Sequence[Any], result: torch.Tensor) -> None:
        """Remember what the graph of a result keeps, for calls on public values that look alike."""
        kept = coming.kept([result])
        places = {place: at for at, one in enumerate(values) for place in by_address([one])}
        places.update(dict.fromkeys(by_address([result]).keys() - places.keys(), -1))
        if self.held or not kept.exact or not places.keys() >= kept.memory.keys():
            return
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        first = {id(one): at for at, one in reversed([*enumerate(values)])}
        reached = [first[id(coming.inputs[place])] for place in kept.reached]
        saved = [places[place] for place in kept.memory]
        self._known[look] = _Like(reached, saved, kept.bytes, kept.nodes)

    def _record(self, kept: Kept, parents: Iterable[Any], last: bool = False) -> Record:
        about = kept.memory, (kept.bytes, kept.nodes), tuple(parents), kept.exact
        return Record(self._memory, self._pay(), *about, last, self.changes)

    def _parents(self, coming: Coming, kept: Kept) -> list[Any]:
        """The records of the operands that a graph reaches."""
        found: dict[Any, None] = {}
        for place in kept.reached:
            if coming.begun[place] is None:
                continue
            for id in coming.ids_of(place):
                its = self._of(id, coming.begun[place])
                found.update(dict.fromkeys(its))
                kept.exact &= len(its) == 1
        return [*found]

    def _of(self, id: int, start: Any) -> list[Any]:
        """The records of an operand of which this is the beginning of the graph."""
        found = [one for one in (self.records.get(id), self.held.get(id)) if one is not None]
        if found:
            return found
        if start is None or not start.is_leaf:
            return [self._lot]
        return [self._end_of(id, start)]

    def _end_of(self, id: int, start: Any) -> Record:
        """The record of a leaf, or of an object with leaves; it counts the gradients that a pass
        may leave there, too."""
        end = self.ends.get(id)
        if end is None:
            leaves = map(recorded_of, tensors_of(self._objects.get(id, start)))
            gradients = sum(gradient_bytes(leaf) for leaf in leaves if leaf is not None)
            end = self._record(Kept(memory_of([start]), gradients), (), last=True)
            if id in self._objects:
                self.ends[id] = end
        return end

    def gave(self, id: int, gradients: Iterable[int] | None = None, adds: bool = False) -> None:
        """Note that a leaf was given another gradient, these objects or one that is none, or that
        it has no gradient any more.

        What these objects keep is charged for as long as the leaf has them.  With ``adds`` the leaf
        may have the one before, too.
        """
        end = self.ends.get(id)
        if gradients is not None:
            leaf = recorded_of(self._objects.get(id))
            end = end if leaf is None else self._end_of(id, leaf)
        if end is not None:
            starts = {other: recorded_of(self._objects.get(other)) for other in gradients or ()}
            its = [one for other, start in starts.items() for one in self._of(other, start)]
            end.parents = [*end.parents, *its] if adds else its

    def record_of(self, id: int, value: Any) -> Any:
        """What leads to all that the graph of an object keeps; None if it has none."""
        found = self.records.get(id)
        return self._lot if found is None and has_graph(value) else found

    def serve(
        self, run: Callable[[dict[int, Any]], object], held: dict[int, Any], records: Any
    ) -> None:
        """Run an operation that has waited, on what it holds with these records."""
        outer, self.held = self.held, records
        try:
            run(held)
        finally:
            self.held = outer

    def adopt(self, id: int, value: Any) -> None:
        """Record the graph of a tensor that was there before it is stored under this id."""
        if not has_graph(value):
            return
        others = [other for other, one in self._objects.items() if one is value and other != id]
        parents = [self.record_of(other, value) for other in others]
        kept = Kept(memory_of([value]), exact=False)
        self.records[id] = parents[0] if parents else self._record(kept, ())

    def drop(self, ids: Iterable[int]) -> None:
        """Forget objects that are gone: what nothing else leads to is not charged any more."""
        for id in ids:
            self.records.pop(id, None)
            self.ends.pop(id, None)

    def clear(self) -> None:
        """Forget all objects."""
        self.records.clear()
        self.ends.clear()

    # --------------------------------------------------------------------- writes and passes

    def wrote(self, coming: Coming | None, writes: bool) -> None:
        """Record the graphs that a request has given to its operands, which it may have written.

        What shares memory with one of these has its graph, too.
        """
        self.changes += writes
        if coming is None or not writes:
            return
        coming.bytes = self.on_the_way
        for place in self._written(coming):
            for id in coming.ids_of(place):
                value = self._objects.get(id)
                if value is not None and not has_graph(value):
                    self.records.pop(id, None)  # it was detached
                elif value is not None:
                    self._note_written(coming, place, id, value)

    def _written(self, coming: Coming) -> Iterable[int]:
        """The operands, by place, whose graphs may be other ones now."""
        if coming.outcome is None:
            return range(len(coming.inputs))
        return [place for place, _ in coming.outcome.changed]

    def _note_written(self, coming: Coming, place: int, id: int, value: Any) -> None:
        """Record the graph that was given to an object, for all that share its memory."""
        kept = coming.kept([value])
        sharing = self._sharing(value)
        own = self._of(id, None)
        before = [one for other in sharing for one in self._of(other, None) if one not in own]
        parents = dict.fromkeys([*self._parents(coming, kept), *before])
        record = self._record(kept, parents)
        for other, one in sharing.items():
            if one is value:
                self.records[other] = record
            else:
                around = record, *self._of(other, None)
                self.records[other] = self._record(Kept(exact=False), around)

    def _sharing(self, value: Any) -> dict[int, Any]:
        """The objects with a graph that lie in the memory of one of them, itself among them."""
        places = by_address([value])
        return {
            id: one
            for id, one in self._objects.items()
            if has_graph(one) and (one is value or lies_in(one, places))
        }

    def passed(self, roots: Iterable[int], private: bool) -> None:
        """Stop charging for what a backward pass without ``retain_graph`` has freed that began at
        these objects and was limited to no inputs.

        Of a pass over ``private`` values it is not asked whether it came to its end.  So it counts
        only if all that it reaches is known, and nothing was written since.
        """
        known = [one for id in roots if (one := self.records.get(id)) is not None]
        found, sure = _reached(known, self.changes)
        for record in found if sure or not private else ():
            if record.places or record.other:
                record.changes = -1  # the next pass through it fails
            record.free()


def _reached(roots: Sequence[Any], changes: int) -> tuple[list[Record], bool]:
    """The records that a pass from some roots certainly comes to, and whether these are all, with
    nothing that was written or freed since."""
    todo, sure = [*roots], True
    found: dict[Record, None] = {}
    while todo:
        record = todo.pop()
        if type(record) is not Record or not record.exact:
            sure = False
        elif not record.last and record not in found:
            found[record] = None
            todo += record.parents
            sure &= record.changes == changes
    return [*found], sure
