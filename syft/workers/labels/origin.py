"""Where an object of a worker comes from: whose it is, and over which connection it came."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from syft.exceptions import UnusableSetting

_WRITERS = "_writers"


def names_in(setting: str, names: str | Iterable[str | Iterable[str]]) -> tuple[str, ...]:
    """The names of users or callers in an argument: one, or several in a list, a set or a tuple.

    Raises :class:`~syft.exceptions.UnusableSetting`, which names the argument, for others.

    >>> names_in("users", "ann"), names_in("users", [("ann", "bea"), "eve"])
    (('ann',), ('ann', 'bea', 'eve'))
    >>> names_in("users", [3])
    Traceback (most recent call last):
    ...
    syft.exceptions.UnusableSetting: users must be names (strings), got a value of type int.
    """
    if isinstance(names, str):
        return (names,)
    if type(names) is not tuple and not isinstance(names, Iterable):
        got = f"a value of type {type(names).__name__}"
        raise UnusableSetting(setting, "names (strings)", got)
    found: tuple[str, ...] = ()
    for part in names:
        found += names_in(setting, part)
    return found


def set_writers(tensor: torch.Tensor, names: Iterable[str]) -> None:
    """Name those who may change a tensor, for the workers to which it will be sent."""
    writers = frozenset(names_in("allow_writes", names))
    if writers:
        tensor.__dict__[_WRITERS] = writers_of(tensor) | writers


def writers_of(value: object) -> frozenset[str]:
    """Those whom :func:`set_writers` has named.

    >>> x = torch.ones(2); set_writers(x, ["ann"]); writers_of(x), writers_of(torch.ones(2))
    (frozenset({'ann'}), frozenset())
    """
    named: frozenset[str] = getattr(value, _WRITERS, frozenset())
    return named


class ObjectOrigin:
    """Where one object comes from; it never changes.

    ``owner`` is the user whose it is, or the name of a caller without a user; None stands for the
    owner of the worker.  ``name`` is that of the caller that brought it.  ``writers`` are the
    others who may change it.  Only the connection ``session`` may ask for its gradients.  An object
    that is ``held`` outlives its pointers.  ``backing`` is the origin of what it stands for, if
    that lies where this worker cannot see whether it is the same memory.  What is ``closed`` is
    there for its owner alone, for those who may change it, and for ``readers``.

    >>> origin = ObjectOrigin("ann", "me", ("bea",))
    >>> [origin.admits(user) for user in ("ann", "bea", "eve", None)]
    [True, True, False, True]
    >>> ObjectOrigin("ann", "me", closed=True).shows("eve"), origin.shows("eve")
    (False, True)
    """

    __slots__ = ("owner", "name", "writers", "session", "held", "backing", "closed", "readers")

    def __init__(
        self,
        owner: str | None,
        name: str,
        writers: Iterable[str] = (),
        session: object = None,
        held: bool = False,
        backing: ObjectOrigin | None = None,
        closed: bool = False,
        readers: Iterable[str] = (),
    ) -> None:
        self.owner, self.name = owner, name
        self.writers = frozenset(writers)
        self.session, self.held, self.backing = session, held, backing
        self.closed, self.readers = closed, frozenset(readers)

    def admits(self, identity: str | None) -> bool:
        """Whether a user, or a caller without one, may change the object; None is the owner of the
        worker.

        >>> ObjectOrigin("ann", "me").admits(None), ObjectOrigin(None, "bob").admits("ann")
        (True, False)
        """
        return identity is None or identity == self.owner or identity in self.writers

    def shows(self, identity: str | None) -> bool:
        """Whether the object is there for a user, or a caller without one.

        >>> ObjectOrigin("ann", "me", closed=True, readers=("bea",)).shows("bea")
        True
        """
        return not self.closed or self.admits(identity) or identity in self.readers

    def names(self) -> list[str]:
        """Those who may change it, for a worker to which it is moved.

        >>> ObjectOrigin("ann", "me", ("bea",)).names(), ObjectOrigin(None, "bob").names()
        (['ann', 'bea', 'me'], ['bob'])
        """
        names = {self.name, *self.writers}
        if self.owner is not None:
            names.add(self.owner)
        return sorted(names)

    def with_writers(self, names: Iterable[str], readers: Iterable[str] = ()) -> ObjectOrigin:
        """The same with more who may change the object, or for whom it is there.

        >>> ObjectOrigin("ann", "me").with_writers(["bea"]).admits("bea")
        True
        """
        origin = ObjectOrigin(self.owner, self.name, self.writers.union(names), self.session)
        origin.held, origin.backing = self.held, self.backing
        origin.closed, origin.readers = self.closed, self.readers.union(readers)
        return origin
