"""The object store of a worker: every id is present, promised or gone.

*Present*: the object is in the store.  *Promised*: the object will arrive later, from a parked
operation or after an announcement, so operations on it wait instead of failing.  *Gone*: the object
was removed or its operation failed.  Its tombstone holds the reason, which is part of the error
when it is used later.  Tombstones are kept for the last few thousand objects only: memory must not
grow with the number of pointers ever made.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import filterfalse, islice
from typing import Any
from weakref import WeakValueDictionary

import torch

from syft.exceptions import ObjectIdTaken, ObjectNotFound, PromiseGivenUp
from syft.workers.core.charges import GIVEN_UP, Charges
from syft.workers.core.listeners import Listeners
from syft.workers.core.peer_limits import DEFAULT_PEER_LIMITS, Account, PeerLimits
from syft.workers.core.tag_index import TagIndex, is_indexed
from syft.workers.labels.cell import Stored, sealed
from syft.workers.labels.guards import Guard, meet_guards
from syft.workers.labels.holders import Holder
from syft.workers.labels.memory_labels import full_guard_of
from syft.workers.labels.origin import ObjectOrigin

TOMBSTONES = 4096
"""The tombstones that a store keeps, and half of the most that it has (about a megabyte)."""

FAILED = "the operation that should have made it failed"
"""The tombstone text of the result of a failed operation."""

TAKEN_BACK = "its caller took back the request that was to make it"
"""The tombstone text of the result of a request that was withdrawn before it had begun, and of the
results of what was to use that."""

NOT_MADE = "the operation that should have made it returned something else"
"""The tombstone text of the result of an operation that returned None, a number or a container."""


class _NotKept(str):
    """The reason in the tombstone of an object that never came, or that the owner cleared away."""

    __slots__ = ()


def why_missing(error: Exception | None) -> str:
    """Why there is no result of an operation that raised this.

    >>> why_missing(ValueError("odd")) == why_missing(None) == FAILED
    True
    """
    taken = isinstance(error, ObjectNotFound) and error.reason == TAKEN_BACK
    return TAKEN_BACK if taken else FAILED


class ObjectStore:
    """The objects of one worker, by id.

    >>> store = ObjectStore("bob")
    >>> store.put(5, "anything"); store.take(5, "me fetched it with get()")
    'anything'
    >>> store.read(5)
    Traceback (most recent call last):
    ...
    syft.exceptions.ObjectNotFound: Worker 'bob' holds no object 5: me fetched it with get().
    """

    __slots__ = (
        "worker",
        "objects",
        "promised",
        "origins",
        "departed",
        "promisers",
        "senders",
        "listeners",
        "given_up",
        "tags",
        "charges",
        "_charged",
        "_gone",
        "_gone_before",
        "_graphs",
        "_graphs_kept",
        "_stale",
        "_all_shown",
    )

    def __init__(
        self,
        worker: str,
        limits: PeerLimits = DEFAULT_PEER_LIMITS,
        payer: Callable[[], Account | None] = lambda: None,
        reader: Callable[[], tuple[str | None, str | None]] = lambda: (None, None),
    ) -> None:
        self.worker = worker
        self.objects: dict[int, Any] = {}
        self.charges = Charges(worker, self.objects, limits, payer, reader)
        """What each caller has here."""
        self._charged = self.charges.charged
        self._graphs_kept = self.charges.graphs
        self.tags = TagIndex(self.objects)
        """The ids of tagged objects; :meth:`search` sees to those that the owner tags."""
        self.promised: set[int] = set()
        self.origins: dict[int, ObjectOrigin] = {}
        """Where an object, or a promise, comes from, if that is needed: see
        :mod:`~syft.workers.core.owners`."""
        self.departed: WeakValueDictionary[int, torch.Tensor] = WeakValueDictionary()
        """Leaves that have moved to other workers, as long as graphs here end at them."""
        self.promisers: dict[int, Any] = {}
        """The session that made a promise, for promises from outside."""
        self.senders: dict[int, frozenset[str]] = {}
        """From whom the object of a promise is to come; operations here keep all others."""
        self._gone: dict[int, str] = {}
        self._gone_before: dict[int, str] = {}
        self.listeners = Listeners()
        """What to call when the object of a promise is there, or will not come any more."""
        self.given_up: OrderedDict[int, tuple[int, str]] = OrderedDict()
        """The ids under which nothing may come any more: whose promise it was, and the reason."""
        self._graphs: set[int] = set()
        self._stale = False
        self._all_shown = False

    def __contains__(self, id: int) -> bool:
        return id in self.objects

    def __len__(self) -> int:
        return len(self.objects)

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self.objects))

    def knows(self, id: int) -> bool:
        """Whether an object of this id is here, or promised.

        >>> store = ObjectStore("bob"); store.promise(5); store.knows(5), store.knows(6)
        (True, False)
        """
        return id in self.objects or id in self.promised

    def confined(self, ids: Iterable[int]) -> dict[int, Any]:
        """Those of the objects that the owner of their session alone may use, such as shares.

        >>> store = ObjectStore("bob"); store.put(5, torch.ones(2)); store.confined([5, 6])
        {}
        """
        found = ((id, self.objects.get(id)) for id in ids)
        return {id: one for id, one in found if isinstance(one, Holder) and one.confined}

    def ids_of(self, value: Any) -> list[int]:
        """The ids under which this very object is.

        >>> store, x = ObjectStore("bob"), torch.ones(2); store.put(5, x); store.put(6, x * 1)
        >>> store.ids_of(x), len(store)
        ([5], 2)
        """
        return [id for id, each in self.objects.items() if each is value]

    def read(self, id: int) -> Stored:
        """The object, or a cell if something private can be reached from it.

        Raises :class:`~syft.exceptions.ObjectNotFound` if it is missing.
        """
        try:
            value = self.objects[id]
        except KeyError:
            value = self.open(id)
        return sealed(value) if self.charges.guarded else value

    def seal(self, value: Any) -> Stored:
        """An object, or its cell if something at the worker is private.

        >>> x = torch.ones(2); ObjectStore("bob").seal(x) is x
        True
        """
        return sealed(value) if self.charges.guarded else value

    def open(self, id: int) -> Any:
        """The object, for what runs as it was predicted; raises as :meth:`read` does."""
        try:
            return self.objects[id]
        except KeyError:
            self._check_not_given_up(id)
            raise ObjectNotFound(id, self.worker, self.why_missing(id)) from None

    def guard_of(self, ids: Iterable[int], held: Mapping[int, Any]) -> Guard | None:
        """The guard of what is computed from the elements of these objects, as far as they are here
        or held for a request that has waited.

        >>> store = ObjectStore("bob"); store.put(5, torch.ones(2)); store.guard_of([5, 6], {})
        """
        objects, whole = self.objects, None
        for id in ids:
            if id in objects or id in held:
                whole = meet_guards(whole, full_guard_of(held[id] if id in held else objects[id]))
        return whole

    def check_free(self, id: int) -> None:
        """Raise :class:`~syft.exceptions.ObjectIdTaken` if an object of that id is present, and
        :class:`~syft.exceptions.PromiseGivenUp` if nothing may come under that id any more."""
        if id in self.objects:
            raise ObjectIdTaken(id, self.worker)
        if self.given_up:
            self._check_not_given_up(id)

    def _check_not_given_up(self, id: int) -> None:
        if id in self.given_up:
            first, reason = self.given_up[id]
            raise PromiseGivenUp(first, self.worker, reason)

    def give_up(self, id: int, first: int, reason: str) -> None:
        """Give up a promise because that of ``first`` was: a value that comes late is refused.

        >>> store = ObjectStore("bob"); store.promise(5); store.give_up(5, 5, "the sensor broke")
        >>> store.put(5, "late")
        Traceback (most recent call last):
        ...
        syft.exceptions.PromiseGivenUp: The promise of object 5 at worker 'bob' was given up: ...
        """
        self.given_up[id] = (first, reason)
        self.charges.flags |= GIVEN_UP
        self.origins.pop(id, None)
        self.kept(id)
        if len(self.given_up) > TOMBSTONES:
            self.given_up.popitem(last=False)

    def kept(self, id: int) -> None:
        """End a promise: its object is there, or will never be."""
        self.promised.discard(id)
        promiser = self.promisers.pop(id, None)
        self.senders.pop(id, None)
        if promiser is not None:
            self.charges.leave(promiser.account, promises=1)
        if self.listeners:
            self.listeners.call(id)

    def was_kept(self, id: int) -> bool:
        """Whether an object of this id was present until it was taken or dropped, as far as
        tombstones tell, and not promised again and given up.

        >>> store = ObjectStore("bob"); store.put(5, "anything"); store.drop(5, "nobody wants it")
        >>> store.mark_gone(6, "the operation that should have made it failed")
        >>> store.was_kept(5), store.was_kept(6)
        (True, False)
        """
        return id not in self.given_up and type(self._reason(id)) is str

    def _reason(self, id: int) -> str | None:
        return self._gone.get(id) or self._gone_before.get(id)

    def has_gone(self, id: int) -> bool:
        """Whether an object of this id was here, as far as tombstones tell.

        >>> store = ObjectStore("bob"); store.put(5, "anything"); store.drop(5, "nobody wants it")
        >>> store.has_gone(5), store.has_gone(6)
        (True, False)
        """
        return id in self._gone or id in self._gone_before

    def check_all_free(self, ids: Iterable[int]) -> None:
        """The same for several."""
        if self.given_up or not self.objects.keys().isdisjoint(ids):
            for id in ids:
                self.check_free(id)

    def put(self, id: int, value: Any) -> None:
        """Store ``value`` under a new or promised id, and charge the caller for it.

        Raises :class:`~syft.exceptions.LimitExceeded` if the caller has too much.
        """
        if id in self.objects or self.given_up:
            self.check_free(id)
        self.charges.charge_one(id, value)
        self.objects[id] = value
        if self.promised:
            self.kept(id)
        if (type(value) is not torch.Tensor or value.__dict__) and is_indexed(value):
            self.tags.note(id)
        self.charges.graphs.adopt(id, value)

    def put_all(self, values: Mapping[int, Any]) -> None:
        """Store all values under new or promised ids, or none of them."""
        self.check_all_free(values)
        self.charges.charge(values)
        self.objects.update(values)
        for id, value in values.items():
            if is_indexed(value):
                self.tags.note(id)
        if self.promised:
            for id in values:
                self.kept(id)

    def take(self, id: int, reason: str) -> Stored:
        """Remove the object and return it; ``reason`` is the text of its tombstone."""
        value = self.read(id)
        self.remove(id, reason)
        return value

    def remove(self, id: int, reason: str) -> None:
        """Remove an object that is there; ``reason`` is the text of its tombstone.

        >>> store = ObjectStore("bob"); store.put(5, "anything"); store.remove(5, "no more of it")
        >>> 5 in store, store.has_gone(5)
        (False, True)
        """
        del self.objects[id]
        if id in self._charged or self.charges.flags:
            self.charges.release((id,))
        self.charges.graphs.drop((id,))
        if id in self.tags.noted:
            self.tags.forget((id,))
        self._bury(id, reason)

    def replace(self, id: int, value: Any) -> None:
        """Put another value in the place of an object, and count its memory anew.

        >>> store = ObjectStore("bob"); store.put(5, torch.ones(5000)); store.replace(5, "gone on")
        >>> store.take(5, "taken")
        'gone on'
        """
        self.objects[id] = value
        self.charges.altered((id,))
        self.charges.graphs.drop((id,))
        self.charges.graphs.adopt(id, value)
        self.tags.note(id)

    def drop(self, id: int, reason: str) -> None:
        """Remove the object, if it is present, because its last pointer is gone."""
        origin = self.origins.get(id)
        if id in self.objects and not (origin is not None and origin.held):
            self.remove(id, reason)

    def search(self, words: set[str]) -> list[int]:
        """The ids of the objects that carry every one of ``words`` as a tag, or as their id.

        >>> store = ObjectStore("bob"); store.put(5, torch.ones(2)); store.put(6, torch.ones(2))
        >>> store.search({"6"}), store.search({"#digits"})
        ([6], [])
        """
        if self._stale:
            held = (id for id, origin in self.origins.items() if origin.held)
            for id in list(self.objects) if self._all_shown else list(held):
                self.tags.note(id)
            self._stale = False
        return self.tags.find(words)

    def owner_tagged(self) -> None:
        """Note that the owner's program has tagged a tensor, which may be one of this store."""
        self._stale = True

    def show_all_to_owner(self) -> dict[int, Any]:
        """The objects by id, for the owner's program, which may tag them and retain gradients."""
        self._all_shown = True
        self.show_to_owner(self.objects)
        return dict(self.objects)

    def show_to_owner(self, ids: Iterable[int]) -> None:
        """Note which of these objects, which the owner's program has in hand, have a graph.

        That program may call ``retain_grad`` on them, of which the worker does not learn.
        """
        objects = self.objects
        self._graphs.intersection_update(objects)
        for id in ids:
            value = objects[id]
            if type(value) is torch.Tensor and value.grad_fn is not None:
                self._graphs.add(id)

    def graphs_of_owner(self) -> list[torch.Tensor]:
        """The objects that :meth:`show_to_owner` noted and that are still here.

        >>> store = ObjectStore("bob")
        >>> store.put(5, torch.ones(2, requires_grad=True) * 2); store.put(6, torch.ones(2))
        >>> store.show_to_owner([5, 6]); len(store.graphs_of_owner())
        1
        """
        return [self.objects[id] for id in self._graphs if id in self.objects]

    def drop_all(self, ids: Iterable[int], reason: str) -> None:
        """Remove the objects that are present; a fast path, for ids of which none is promised."""
        objects, origins = self.objects, self.origins
        for id in ids:
            if id in origins:
                self.drop(id, reason)
            elif objects.pop(id, None) is not None:
                self._gone[id] = reason  # not a local name: what is dropped may drop others
        graphs = self._graphs_kept
        if self._charged or self.tags.noted or graphs.records or graphs.ends:
            self._forget_all(ids)
        if len(self._gone) > TOMBSTONES:
            self._forget_oldest()

    def _forget_all(self, ids: Iterable[int]) -> None:
        objects, charged, tags = self.objects, self._charged, self.tags
        if self._graphs_kept.records or self._graphs_kept.ends:
            self._graphs_kept.drop(filterfalse(objects.__contains__, ids))
        if not charged.keys().isdisjoint(ids):
            self.charges.release([id for id in ids if id in charged and id not in objects])
        if not tags.noted.keys().isdisjoint(ids):
            tags.forget(filterfalse(objects.__contains__, ids))

    def mark_gone(self, id: int, reason: str) -> None:
        """Write a tombstone with the reason why an object is gone that was neither taken nor
        dropped, or never came."""
        self._bury(id, _NotKept(reason))

    def _bury(self, id: int, reason: str) -> None:
        self._gone[id] = reason
        self.origins.pop(id, None)
        if self.promised:
            self.kept(id)
        if len(self._gone) > TOMBSTONES:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Forget the older half of the tombstones, which costs less than one of them each time.

        A finalizer may drop objects meanwhile, so the new table is in place before the old one is
        trimmed.
        """
        full, self._gone = self._gone, {}
        self._gone_before = full
        self._gone_before = dict(islice(reversed(full.items()), TOMBSTONES))

    def promise(self, *ids: int, by: Any = None, senders: Iterable[str] = ()) -> None:
        """Register the ids of objects that will arrive later, or none of them; ``by`` is the
        session of whoever promises them, and ``senders`` are those from whom they are to come.

        Raises :class:`~syft.exceptions.LimitExceeded` if that one has promised too much.
        """
        self.check_all_free(ids)
        if by is not None:
            before = {id: self.promisers.get(id) for id in ids}
            new = [id for id, promiser in before.items() if promiser is not by]
            self.charges.enter(by.account, promises=len(new))
            for id in new:
                self.promisers[id] = by
                if (promiser := before[id]) is not None:
                    self.charges.leave(promiser.account, promises=1)
        if senders:
            self.senders.update(dict.fromkeys(ids, frozenset(senders)))
        self.promised.update(ids)

    def may_keep(self, id: int, names: Iterable[str]) -> bool:
        """Whether somebody of these names may store an object under an id: one that is not
        promised, or is promised to come from them.

        >>> store = ObjectStore("bob"); store.promise(5); store.may_keep(5, ["ann"])
        False
        """
        return id not in self.promised or not self.senders.get(id, frozenset()).isdisjoint(names)

    def why_missing(self, id: int) -> str | None:
        """The reason why an id is not present, if known."""
        if id in self.promised:
            return "it is promised and has not come yet"
        reason = self._reason(id)
        return None if reason is None else str(reason)  # an exact one, which errors are packed with

    def clear(self, reason: str) -> None:
        """Remove everything."""
        for id in [*self.objects, *self.promised]:
            self.tags.forget((id,))
            self.objects.pop(id, None)
            self.mark_gone(id, reason)
        self.charges.clear()
        self.charges.flags &= ~GIVEN_UP
        self.origins.clear()
        self.departed.clear()
        self.given_up.clear()
