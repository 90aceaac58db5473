"""The callers of a worker, and the state the worker keeps for each of their connections.

A worker distinguishes its callers by their connection, not by their name: two programs that both
use the name ``me`` may send requests to the same worker.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from syft.exceptions import PermissionDenied
from syft.workers.core.peer_limits import Account
from syft.workers.wire.numbering import Table

KEPT = 4096
"""The numbers that are remembered one by one."""


class RisingNumbers:
    """The numbers that one caller has used: a floor, and those above it.

    Whoever repeats a request must not have it run twice.  To remember all numbers would take ever
    more memory, and to remember the last few would let an old one through.  So numbers rise, and
    may only be out of order among the last few.

    >>> used = RisingNumbers()
    >>> used.admit(5), used.admit(5), used.admit(3)
    (True, False, True)
    """

    __slots__ = ("_floor", "_used")

    def __init__(self) -> None:
        self._floor: int | None = None
        self._used: dict[int, None] = {}

    def has(self, number: int) -> bool:
        """Whether a number counts as used.

        >>> used = RisingNumbers(); used.admit(5), used.has(5), used.has(6)
        (True, True, False)
        """
        return number in self._used or (self._floor is not None and number <= self._floor)

    def admit(self, number: int) -> bool:
        """Note that a number is used; whether it is new.

        What is below the highest number that was forgotten counts as used.
        """
        if self.has(number):
            return False
        self._used[number] = None
        if len(self._used) > KEPT:
            oldest = next(iter(self._used))
            del self._used[oldest]
            self._floor = oldest if self._floor is None else max(self._floor, oldest)
        return True


KINDS: Final = 1
"""A caller may know the shape, the dtype and the like of tensors that it sent, or asked about."""
GRADIENTS: Final = 2
"""A caller may know gradients that it asked for, or that leaves which it sent had none."""
EVERYTHING: Final = KINDS | GRADIENTS


class Session:
    """The state that a worker keeps for one connection to it; ``account`` is that of its user.

    >>> Session().failures
    0
    """

    __slots__ = ("failures", "numbers", "account")

    def __init__(self, account: Account | None = None) -> None:
        self.failures = 0
        """The number of failures sent over the connection."""
        self.numbers: Table | None = None
        """The definitions behind the numbers that the caller has used."""
        self.account = account or Account()
        """What the caller has at the worker, for the limits that it is under."""


class ProgramMark:
    """Stands for a program on whose behalf workers call."""


Place = tuple[object, str]
"""A worker: what stands for the program on whose behalf it calls, and what it is called there."""


class Peer:
    """A caller on one connection: its name, and the user on whose behalf it sends requests.

    The shell has verified both.  Peers of one connection that act for different users share its
    ``session``.  ``is_owner`` says that the worker asks itself: its owner does.  ``users`` are
    those that a request may name besides ``user``, as the shell has verified; None: any, where
    caller and worker are one program.  ``called`` is how others name the caller, if its name is
    that of a user who it is not.

    >>> ann = Peer("me", "ann")
    >>> ann.dropped
    'me dropped its last pointer to it'
    """

    __slots__ = (
        "name",
        "user",
        "users",
        "plans",
        "reads",
        "session",
        "account",
        "identity",
        "closes",
        "who",
        "dropped",
        "fetched",
        "called",
        "place",
        "knows",
        "asks_itself",
        "__weakref__",
    )

    def __init__(
        self,
        name: str,
        user: str | None = None,
        session: Session | None = None,
        is_owner: bool = False,
        users: Container[str | None] | None = None,
        called: str | None = None,
    ) -> None:
        self.name = name
        self.user = user
        self.users = users
        self.plans = True
        """Whether it may store plans and run them, where the worker allows plans at all."""
        self.reads: frozenset[str] | None = None
        """The tags by which it finds what is not its own; None: all."""
        self.called = called or name
        self.place: Place = None, name
        """Which worker it is, where several programs call who may give workers the same names."""
        self.identity: str | None = None if is_owner else user or self.called
        """To whom belongs what this caller makes; None is the owner of the worker."""
        self.closes = users is not None and user is not None
        """Whether what it makes is there for its user alone: that user has proved who it is."""
        self.who = self.identity, name
        """The identity and the name, as one object."""
        self.session = Session() if session is None else session
        self.account = self.session.account
        self.dropped = f"{name} dropped its last pointer to it"
        """The tombstone text of an object whose last pointer this peer dropped."""
        self.fetched = f"{name} fetched it with get()"
        """The tombstone text of an object that this peer fetched."""
        self.asks_itself = False
        """Whether it is the worker itself, on behalf of the caller whom it serves."""
        self.knows = 0
        """What this caller is told of when somebody else changes it: KINDS, GRADIENTS, or both."""

    def asking_itself(self, name: str, session: Session) -> Peer:
        """This caller where its request has the worker ``name`` ask itself, by a pointer that leads
        back to it: no other rights come with the way that a request takes.

        >>> Peer("laptop", "eve").asking_itself("bob", Session()).who
        ('eve', 'bob')
        """
        made = Peer(name, self.user, session, users=self.users, called=self.called)
        made.asks_itself = True
        made.identity, made.closes, made.plans = self.identity, self.closes, self.plans
        made.reads, made.account, made.who = self.reads, self.account, (self.identity, name)
        return made

    @property
    def said(self) -> str:
        """What it calls itself, which others may do too.

        >>> Peer("bob").said
        'bob'
        """
        return self.place[1]

    @property
    def names(self) -> set[str]:
        """The names by which others may have named this caller, or the user for whom it acts.

        >>> sorted(Peer("me", "ann").names), Peer("bob", is_owner=True).names
        (['ann', 'me'], {'bob'})
        """
        return {self.called} if self.identity is None else {self.called, self.identity}

    def user_named(self, user: str | None, worker: str) -> str | None:
        """For whom a request to ``worker`` is made that names a user, or nobody.

        A name in a message proves nothing.  Raises :class:`~syft.exceptions.PermissionDenied` for a
        user for whom this caller has not proved to speak.

        >>> eve = Peer("me", "eve", users=["bea"])
        >>> eve.user_named(None, "bob"), eve.user_named("bea", "bob")
        ('eve', 'bea')
        >>> eve.user_named("ann", "bob")
        Traceback (most recent call last):
        ...
        syft.exceptions.PermissionDenied: a request: ...
        """
        if not user or user == self.user:
            return self.user
        if self.users is not None and user not in self.users:
            raise PermissionDenied("a request", worker, user)
        return user
