"""What a caller may find at a worker, and so may name: its own objects, and those with tags.

A token may be for some tags alone.  Whoever has such a token must not use other objects either, not
even if somebody tells it their ids: so its requests are looked at for ids, whatever their kind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Protocol

from syft.exceptions import ObjectNotFound
from syft.workers.core.audit import Audit
from syft.workers.core.owners import Owners
from syft.workers.core.peer import Peer
from syft.workers.core.store import ObjectStore
from syft.workers.core.unseen_ids import UnseenIds, numbers_in
from syft.workers.wire.messages import Drop, Request, Share

_ADMITS: Final = "writers", "users"
"""Fields of whom a message admits to what it brings."""


class ServingObjects(Protocol):
    """A worker, as far as it matters here what is there for whom."""

    contested: bool
    owners: Owners
    store: ObjectStore
    audit: Audit | None


def may_find(store: ObjectStore, owners: Owners, peer: Peer, id: int) -> bool:
    """Whether a caller of another process finds an object: its own, or one with tags, if it may
    read one of them.

    >>> store, ann = ObjectStore("bob"), Peer("me", "ann", users=())
    >>> x = torch.ones(2)
    >>> x._tags = {"#a"}
    >>> store.put(5, x)
    >>> may_find(store, Owners(store), ann, 5)
    True
    """
    if peer.users is None:
        return True
    origin = owners.of(id)
    if origin is not None and origin.owner == peer.identity:
        return True
    if origin is not None and not owners.is_there(peer, id, origin):
        return False
    tags = store.tags.of(id)
    return bool(tags) and (peer.reads is None or not peer.reads.isdisjoint(tags))


def copies_first(
    store: ObjectStore, owners: Owners, peer: Peer, ids: list[int], words: Collection[str]
) -> list[int]:
    """What a search has found, with copies of a plan that a word is the id of in front.

    The caller's own come before others, since anybody may send a plan as the copy of another one,
    and of those the newest first.

    >>> copies_first(ObjectStore("bob"), Owners(ObjectStore("bob")), Peer("me"), [], {"#a"})
    []
    """

    def rank(id: int) -> int:
        if store.tags.original(id) not in words:
            return 2
        origin = owners.of(id)
        return int(origin is None or origin.owner != peer.identity)

    if not any(rank(id) < 2 for id in ids):
        return ids
    return sorted(reversed(ids), key=rank)


def check_named(core: ServingObjects, peer: Peer, message: Request) -> None:
    """Raise :class:`~syft.exceptions.ObjectNotFound` for a request that names an object which its
    caller may not find, as if it had never been there; the owner is told of it.

    Any number may be an id: those of objects are 63 random bits, and equal no others.
    """
    if peer.reads is None or type(message) in (Drop, Share):
        return
    store, owners = core.store, core.owners
    known = [number for number in numbers_in(message) if store.knows(number)]
    hidden = [number for number in known if not may_find(store, owners, peer, number)]
    if hidden:
        _tell_hidden(core, message, peer, hidden)
        raise ObjectNotFound(hidden[0], store.worker, store.why_missing(0))


def as_there(core: ServingObjects, message: Request, peer: Peer) -> Request:
    """A request with nothing's ids in the place of those of objects that are not there for its
    caller; the owner is told of it."""
    if not core.contested or peer.users is None:
        return message
    owners = core.owners
    known = {id for id in numbers_in(message) if core.store.knows(id)}
    named = _admitted(message) if core.store.promised else ()
    hidden = {id for id in known if not owners.shows(peer, id, named)}
    if not hidden and peer.account.unseen is None:
        return message
    return _with_others(core, message, peer, known - hidden, hidden)


def _admitted(message: Request) -> set[str]:
    """Those whom a message admits to what it brings."""
    return {one for field in _ADMITS for one in getattr(message, field, None) or ()}


def _with_others(
    core: ServingObjects, message: Request, peer: Peer, shown: set[int], hidden: set[int]
) -> Request:
    """A request of a caller that has named what is not there for it, now or before."""
    if hidden:
        _tell_hidden(core, message, peer, hidden)
    unseen = peer.account.unseen = peer.account.unseen or UnseenIds()
    unseen.have_come(shown, core.store.knows)
    found: Request = unseen.in_request(message, hidden, peer.session.numbers)
    return found


def _tell_hidden(core: ServingObjects, message: Request, peer: Peer, hidden: Iterable[int]) -> None:
    """Tell the owner that a request names what is not there for its caller."""
    if core.audit is not None:
        core.audit.hidden(message, peer, hidden)
