"""A request that is on its way, and what there is to say of one that is done."""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable, Sequence
from typing import cast

import msgspec

from syft.callers import Place
from syft.exceptions import ObjectNotFound, ObjectNotReady, WireError
from syft.serde.errors import unpack_error
from syft.serde.frame import Frame
from syft.serde.limits import Limits
from syft.serde.packer import Unpacker
from syft.workers.wire.messages import MOST_NAMED, Failure, NotBegun, Parked, Reply

STORED = object()
"""The reply to a command whose result is one tensor, stored under the id the caller chose."""


class Pending(msgspec.Struct, eq=False):
    """A request on its way: what came back, or where in the user's program it was made.

    One is made for each operation at a queued worker; a struct is made in C.
    """

    where: Place | None = None
    key: Hashable = None
    """The definition that the request ran by its number; a failure has the sender forget it."""
    made: Collection[int] = ()
    """The ids of what it is to make."""
    wait: Parked | None = None
    """The promised objects for which the request waits, as the other end has named them."""
    reply: Reply | None = None
    frame: Frame | None = None
    lines: Sequence[Place] = ()
    """The lines of its actions, if it is a group."""
    cause: Pending | None = None
    """The failed request from which the failure of this one is known to follow."""
    thread: int = msgspec.field(default_factory=threading.get_ident)
    """The thread that made the request: what it raises is raised there."""

    @property
    def settled(self) -> bool:
        """Whether the reply has come.

        >>> Pending().settled
        False
        """
        return self.reply is not None

    @property
    def parked(self) -> bool:
        """Whether the other end has said that the request waits for promised objects.

        >>> Pending().parked
        False
        """
        return self.wait is not None

    @property
    def waits_its_turn(self) -> bool:
        """Whether it is parked, and is more than a question about a promise.

        >>> Pending().waits_its_turn
        False
        """
        return self.parked and type(self) is not OpenPromise

    def not_ready(self, worker: str) -> ObjectNotReady:
        """The error of a request that nothing under way can settle.

        >>> pending = Pending()
        >>> pending.wait = Parked(7, (5,))
        >>> pending.not_ready("bob").ids
        (5,)
        """
        if self.wait is None:
            return ObjectNotReady(worker)
        ids = self.wait.ids[:MOST_NAMED]
        return ObjectNotReady(worker, ids, self.wait.more or len(ids) < len(self.wait.ids))

    @property
    def is_mine(self) -> bool:
        """Whether this thread made the request, or is to hear of it since that one has ended.

        >>> Pending().is_mine
        True
        """
        if self.thread == threading.get_ident():
            return True
        return all(thread.ident != self.thread for thread in threading.enumerate())

    @property
    def failed(self) -> bool:
        """Whether the reply has come, and the request has failed or was withdrawn.

        >>> Pending().failed
        False
        """
        return type(self.reply) in (Failure, NotBegun)


class OpenPromise(Pending, eq=False, kw_only=True):
    """A promise of which a handle may tell whether it is kept.

    The other end is asked once somebody wants to know, and answers when the promise is kept or
    given up.  Unlike a failure, that answer is not raised where nobody looks at the handle.

    >>> OpenPromise(id=5).asked
    False
    """

    id: int
    asked: bool = False


def seq_of(failed: Pending) -> int:
    """The number of a request that failed: an earlier one never follows from a later one, unless it
    waits for something that was promised.

    >>> failed = Pending()
    >>> failed.reply = Failure(7, None)
    >>> seq_of(failed)
    7
    """
    return cast(Failure, failed.reply).seq


def origin_of(failed: Pending, failures: Sequence[Pending], limits: Limits) -> Pending:
    """The one of ``failures`` from which the failure of ``failed`` follows, or ``failed`` itself.

    A request follows from another if it found no object where that one should have made it.

    >>> from syft.serde.errors import pack_error
    >>> from syft.serde.packer import Packer
    >>> maker, user = Pending(made=(5,)), Pending(made=(6,))
    >>> maker.reply = Failure(1, pack_error(ValueError("wrong"), Packer()))
    >>> user.reply = Failure(2, pack_error(ObjectNotFound(5, "bob"), Packer()))
    >>> origin_of(user, [user, maker], Limits()) is maker
    True
    """
    known = [failed]
    while True:
        last = known[-1]
        cause = last.cause or maker_of_missing(last, failures, limits)
        if cause is None or cause in known:
            return last
        last.cause = cause
        known.append(cause)


def maker_of_missing(
    failed: Pending, failures: Sequence[Pending], limits: Limits
) -> Pending | None:
    """The failed request that was to make the object for want of which another failed.

    >>> maker_of_missing(Pending(reply=Failure(1, (29, 1, ()))), [], Limits()) is None
    True
    """
    try:
        error, _ = unpack_error(cast(Failure, failed.reply).error, Unpacker([], limits))
    except WireError:  # to be raised when it is its turn
        return None
    if type(error) is not ObjectNotFound:
        return None
    return next((other for other in failures if error.id in other.made), None)
