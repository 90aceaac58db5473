"""Whose the objects of a worker are, and who may change them: one check for every kind of message.

What the worker's owner holds is the owner's.  Anything else belongs to the caller that sent it, or
whose request made it.  The owner of an object may write to it, change its attributes, take it away
and drop it, and so may those whom the owner names (``allow_writes=``).  The owner of the worker may
do so with every object.  All others may only read, as far as its guard lets them.  A caller is
known by its user, or by its name if it acts for none.

A view that somebody makes of another's tensor is an object of whoever made it, and lies in memory
that is not.  So memory has an owner too: see :mod:`~syft.workers.labels.memory_owners`.

Most workers serve one caller and hold nothing of their own.  They keep no account of owners: an
object without a record belongs to the first caller.  ``WorkerCore.contested`` is false until there
is somebody else.

What was refused: a right that comes with knowing an id.  Ids are found by a search for tags.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Sequence
from typing import Any

from syft.exceptions import ObjectNotFound, PermissionDenied
from syft.workers.core.access import Access
from syft.workers.core.peer import Peer
from syft.workers.core.store import ObjectStore
from syft.workers.labels.memory_owners import (
    is_marked,
    leaf_owners,
    mark,
    may_write,
    memory_owners,
    out_of_sight,
    tensor_owners,
)
from syft.workers.labels.origin import ObjectOrigin

Lookup = Callable[[int], Any]
"""The object of an id, also if it was dropped while a request waited that names it."""


class Owners:
    """The owners of the objects of one worker.

    >>> store, ann, eve = ObjectStore("bob"), Peer("me", "ann"), Peer("laptop", "eve")
    >>> owners = Owners(store)
    >>> owners.meet(ann), owners.meet(eve)
    (False, True)
    >>> store.put(5, torch.ones(2)); store.put(7, torch.ones(2)); owners.made(eve, (7,))
    >>> owners.may_take(ann, 5), owners.may_take(eve, 5), owners.may_take(eve, 7)
    (True, False, True)
    """

    __slots__ = ("_store", "_origins", "_first", "_first_who", "_results", "touched")

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._origins = store.origins
        self._first: ObjectOrigin | None = None
        """Where an object comes from that has no record."""
        self._first_who: tuple[str | None, str] | None = None
        self._results: dict[tuple[str | None, str], ObjectOrigin] = {}
        """Where the results of a caller's requests come from, by its identity and name."""
        self.touched: set[int] | None = None
        """What the present request names of what is not its caller's, where a log is kept."""

    def meet(self, peer: Peer) -> bool:
        """Note that a caller makes a request; whether it is another one than the first."""
        if self._first is None:
            self._first = ObjectOrigin(peer.identity, peer.name, closed=peer.closes)
            self._first_who = peer.who
        return not self._is_first(peer)

    def forget(self) -> None:
        """Know of no caller any more: the worker was cleared."""
        self._first = self._first_who = None
        self._results.clear()

    def left(self, peer: Peer) -> None:
        """Note that a caller is gone for good: what it has made keeps its origin.

        >>> store, ann, eve = ObjectStore("bob"), Peer("me", "ann"), Peer("laptop", "eve")
        >>> owners = Owners(store)
        >>> owners.meet(ann), owners.meet(eve)
        (False, True)
        >>> store.put(5, torch.ones(2)); owners.made(eve, (5,)); owners.left(eve)
        >>> owners.of(5).owner
        'eve'
        """
        self._results.pop(peer.who, None)

    def _is_first(self, peer: Peer) -> bool:
        return self._first is None or self._first_who == peer.who

    def of(self, id: int) -> ObjectOrigin | None:
        """Where an object, or a promise, comes from; None if there is neither of that id.

        >>> store = ObjectStore("bob"); store.origins[5] = ObjectOrigin(None, "bob", held=True)
        >>> Owners(store).of(5).held, Owners(store).of(7)
        (True, None)
        """
        return self._origins.get(id) or (self._first if self._store.knows(id) else None)

    # ------------------------------------------------------------------------------- new objects

    def made(self, peer: Peer, ids: Iterable[int], backing: ObjectOrigin | None = None) -> None:
        """Record the objects that a request of ``peer`` has made, or promised.

        ``backing`` is the origin of what they stand for, if that is out of this worker's sight.
        """
        if backing is None and self._is_first(peer):
            return
        origin = self._results.get(peer.who)
        if backing is not None or origin is None:
            origin = ObjectOrigin(peer.identity, peer.name, backing=backing, closed=peer.closes)
            if backing is None:
                self._results[peer.who] = origin
        for id in ids:
            if self._store.knows(id):
                self._origins[id] = origin

    def put(
        self,
        peer: Peer,
        id: int,
        writers: Collection[str],
        may_be_leaf: bool,
        readers: Collection[str] = (),
    ) -> None:
        """Record an object that ``peer`` sends, before it is stored.

        It is there for ``readers`` too, those who may read it if it is private.  A promised object
        belongs to whoever promised it, and the sender may change it too.  Only the connection over
        which a leaf came may ask for its gradients.
        """
        owner, name, closed = peer.identity, peer.name, peer.closes
        promiser = self.of(id) if self._store.promised or id in self._origins else None
        if promiser is not None and promiser.owner != owner:
            owner, name, closed = promiser.owner, promiser.name, promiser.closed
            writers = {*promiser.writers, *writers, *peer.names}
        session = peer.session if may_be_leaf else None
        if session is not None or (*writers, *readers) or not self._is_first(peer):
            origin = ObjectOrigin(owner, name, writers, session, closed=closed, readers=readers)
            self._origins[id] = origin

    def share(
        self, peer: Peer, id: int, names: Collection[str], readers: Collection[str] = ()
    ) -> None:
        """Name others who may change an object, or for whom it is there; nothing happens unless
        ``peer`` may change it."""
        origin = self.of(id)
        if origin is not None and origin.admits(peer.identity):
            self._origins[id] = widened = origin.with_writers(names, readers)
            if id in self._store.objects:
                mark(self._store.objects[id], widened)

    # -------------------------------------------------------------------------------- the check

    def shows(self, peer: Peer, id: int, named: Container[str] = ()) -> bool:
        """Whether an object is there for ``peer``, if it is there at all.

        One that another user has promised is there for who brings it if ``named``, whom the message
        admits to what it brings, holds that user: to keep what comes under a promised id is to give
        it away.
        """
        origin = self.of(id)
        if origin is None or self.is_there(peer, id, origin):
            return True
        return self._awaits(peer, id) and (not peer.closes or origin.owner in named)

    def is_there(self, peer: Peer, id: int, origin: ObjectOrigin) -> bool:
        """Whether an object of somebody is there for ``peer``: as its owner says, or since its
        guard admits the user, as what is computed from a private tensor does."""
        if is_there(origin, peer):
            return True
        guard = self._store.guard_of((id,), {}) if id in self._store.objects else None
        return guard is not None and guard.admits(peer.user)

    def _awaits(self, peer: Peer, id: int) -> bool:
        """Whether an object is promised to come from ``peer``."""
        return id in self._store.promised and self._store.may_keep(id, peer.names)

    def check_shown(self, peer: Peer, ids: Iterable[int]) -> None:
        """Raise :class:`~syft.exceptions.ObjectNotFound` for the first object that is not there for
        ``peer``."""
        self._check_there(peer, self._foreign(peer, ids))

    def _check_there(self, peer: Peer, foreign: Iterable[tuple[int, ObjectOrigin]]) -> None:
        for id, origin in foreign:
            if not self.is_there(peer, id, origin) and not self._awaits(peer, id):
                raise ObjectNotFound(id, self._store.worker, None)

    def may_take(self, peer: Peer, id: int) -> bool:
        """Whether ``peer`` may take an object away."""
        origin = self.of(id)
        return origin is None or origin.admits(peer.identity)

    def may_drop(self, peer: Peer, id: int) -> bool:
        """Whether ``peer`` may drop an object: one that it may take away, or that came over a
        connection from the same place, whoever it acts for now."""
        origin = self.of(id)
        return origin is None or origin.admits(peer.identity) or origin.name == peer.name

    def belonging(self, peer: Peer) -> list[int]:
        """The objects that requests of ``peer`` have made, by its name, and that nobody holds.

        >>> store, ann = ObjectStore("bob"), Peer("me", "ann")
        >>> owners = Owners(store)
        >>> owners.meet(ann)
        False
        >>> store.put(5, torch.ones(2)); store.put(7, torch.ones(2))
        >>> store.origins[7] = ObjectOrigin(None, "bob", held=True)
        >>> owners.belonging(ann)
        [5]
        """
        first = self._is_first(peer)
        return [
            id
            for id in self._store.objects
            if (first if (origin := self._origins.get(id)) is None else origin.name == peer.name)
        ]

    def may_collect(self, peer: Peer | None, id: int, name: str) -> bool:
        """Whether a pointer that comes may drop what it leads to at worker ``name``, once it is
        dropped itself.  If that is this worker, whoever brings it has to be one who may drop it:
        pointers die at any time, and this worker asks itself then."""
        if peer is None or name != self._store.worker:
            return True
        return self._store.knows(id) and self.may_drop(peer, id)

    def droppable(self, peer: Peer, ids: Sequence[int]) -> Sequence[int]:
        """Those of the objects that ``peer`` may drop."""
        if peer.asks_itself:  # that was asked when its pointers came
            return ids
        if self._is_first(peer) and self._origins.keys().isdisjoint(ids):
            return ids
        return [id for id in ids if self.may_drop(peer, id)]

    def permit(self, peer: Peer, ids: Iterable[int], access: Access, action: str) -> Permit | None:
        """What a request of ``peer`` may do that names ``ids``; None if it does nothing to be
        checked when it runs.

        Called when the request arrives, before it does anything.  Raises
        :class:`~syft.exceptions.PermissionDenied`, which names the first object that it would
        change and whose that is.
        """
        foreign = self._foreign(peer, ids)
        self._check_there(peer, foreign)
        if not (foreign or access.changes or access.takes):
            return None
        permit = Permit(self, peer, action, foreign, access)
        permit.check_objects()
        return permit

    def are_clear(self, peer: Peer, ids: Iterable[int]) -> bool:
        """Whether it is certain, without a closer look, that a request of ``peer`` may read these
        objects, and leaves its marks on them; a fast path of :meth:`permit`.

        They are strided tensors, its own or marked already.

        >>> store, ann, eve = ObjectStore("bob"), Peer("me", "ann"), Peer("laptop", "eve")
        >>> owners = Owners(store); owners.meet(ann), owners.meet(eve)
        (False, True)
        >>> store.put(5, torch.ones(2))
        >>> owners.are_clear(ann, [5]), owners.are_clear(eve, [5])
        (True, False)
        >>> owners.permit(eve, [5], Access(), "torch.add").check_memory(store.objects.get)
        >>> owners.are_clear(eve, [5]), owners.is_own(eve, [5])
        (True, False)
        """
        origins, mine = self._origins, peer.identity
        rest = None
        if not self._is_first(peer):
            rest = self._first
        elif origins.keys().isdisjoint(ids):
            return True
        for id in ids:
            origin = origins.get(id, rest)
            if origin is None or (origin.owner == mine and origin.backing is None):
                continue
            if origin.backing is not None or not is_there(origin, peer):
                return False
            if self.touched is not None:
                self.touched.add(id)
            if not is_marked(self._store.objects.get(id), origin):
                return False
        return True

    def is_own(self, peer: Peer, ids: Sequence[int]) -> bool:
        """Whether it is certain, without a closer look, that ``peer`` may write to these objects:
        they are its own, and nobody has marked their memory as another's."""
        rest = None if self._is_first(peer) else self._first
        for id in ids:
            origin = self._origins.get(id, rest)
            if origin is not None and (origin.owner != peer.identity or origin.backing is not None):
                return False
            if not may_write(self._store.objects.get(id), peer.identity):
                return False
        return bool(ids)

    def _foreign(self, peer: Peer, ids: Iterable[int]) -> list[tuple[int, ObjectOrigin]]:
        """Those of the objects that are not of ``peer``, or stand for what is not."""
        origins, mine = self._origins, peer.identity
        rest = None if self._is_first(peer) else self._first
        foreign = []
        for id in ids:
            origin = origins.get(id)
            if origin is None and rest is not None and self._store.knows(id):
                origin = rest
            if origin is not None and (origin.owner != mine or origin.backing is not None):
                foreign.append((id, origin))
        if self.touched is not None:
            self.touched.update(id for id, origin in foreign if origin.owner != mine)
        return foreign

    def names(self, peer: Peer, id: int) -> list[str]:
        """Those who may change an object that ``peer`` has sent on to another worker."""
        return (self.of(id) or ObjectOrigin(peer.identity, peer.name)).names()

    def refusal(self, peer: Peer, action: str, id: int, owner: str | None) -> PermissionDenied:
        """The error for a change of an object that is not, or does not lie in what is, the
        caller's."""
        return PermissionDenied(action, self._store.worker, peer.identity, id, owner)


def is_there(origin: ObjectOrigin, peer: Peer) -> bool:
    """Whether what comes from ``origin`` is there for a caller: for one of the users for whom it
    has proved to speak.

    >>> ann = ObjectOrigin("ann", "me", closed=True)
    >>> [is_there(ann, Peer("me", user, users=(user,))) for user in ("ann", "eve")]
    [True, False]
    """
    if not origin.closed or origin.shows(peer.identity):
        return True
    users = () if peer.users is None else peer.users
    return any(one in users for one in (origin.owner, *origin.readers, *origin.writers))


class Permit:
    """What one request may do: checked when it arrives (objects), and when it runs (memory).

    ``foreign`` are the objects it names that are not its caller's, with where they come from.
    """

    __slots__ = ("owners", "peer", "action", "foreign", "access")

    def __init__(
        self,
        owners: Owners,
        peer: Peer,
        action: str,
        foreign: Sequence[tuple[int, ObjectOrigin]],
        access: Access,
    ) -> None:
        self.owners, self.peer, self.action = owners, peer, action
        self.foreign, self.access = foreign, access

    def check_objects(self) -> None:
        """Raise :class:`~syft.exceptions.PermissionDenied` if an object that the request changes
        is not the caller's."""
        access = self.access
        changed = {*access.writes, *access.sets, *access.takes, *access.accumulates}
        for id, origin in self.foreign:
            if id in changed:
                self._check((origin,), id)
                if id not in access.takes and origin.backing is not None:
                    self._check((origin.backing,), id)
            if id in access.roots and origin.backing is not None:
                self._check((origin.backing,), id)

    def check_memory(self, lookup: Lookup) -> None:
        """Raise :class:`~syft.exceptions.PermissionDenied` if the request would change memory that
        is not the caller's; mark the memory of what is not, for later requests.

        Called just before the request runs: nothing has changed then.
        """
        for id, origin in self.foreign:
            mark(lookup(id), origin)
        access = self.access
        for id in access.writes:
            if id not in access.takes:
                owners_of = tensor_owners if access.only_object else memory_owners
                self._check(owners_of(lookup(id)), id)
        for id in access.sets:
            self._check(tensor_owners(lookup(id)), id)
        self._check_gradients(lookup)

    def _check_gradients(self, lookup: Lookup) -> None:
        """The same for the gradients that a backward pass would add to."""
        access = self.access
        for id in access.accumulates:
            self._check(leaf_owners(lookup(id), beyond=False), id)
        known = dict(self.foreign)
        for id in access.roots:
            root = known.get(id)
            owners = leaf_owners(lookup(id), beyond=True)
            if root is not None and root.admits(self.peer.identity):
                # Whoever was named for a result sends gradients on behalf of the result's owner.
                owner = root.owner
                owners = (leaf for leaf in owners if not leaf.admits(owner))
            self._check(owners, id)

    def _check(self, owners: Iterable[ObjectOrigin], id: int) -> None:
        for origin in owners:
            if not origin.admits(self.peer.identity):
                raise self.owners.refusal(self.peer, self.action, id, origin.owner)

    def backing(self, lookup: Lookup) -> ObjectOrigin | None:
        """Where that comes from for which the results of the request may stand, if this worker
        does not see their memory: data at another worker, and layouts without storages."""
        for id, origin in self.foreign:
            if origin.backing is not None or out_of_sight(lookup(id)):
                return origin.backing or origin
        return None
