"""Guards: the users who may read a value.

A result of an operation gets the meet of its inputs' guards: the users whom all of them admit.  A
gradient gets the guard of its loss.  Reading is denied by default: only the users in a guard may
see values, value-dependent shapes and error texts.

A guard does not hide shapes and dtypes that follow from the program alone.  If a command fails
because of private values, that it failed is private too: its results exist nevertheless, and their
guard is *sealed* with the error, which whoever may read the values gets in their place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Final

from syft.exceptions import PermissionDenied

_NOBODY: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Guard:
    """The users who may read a value, whether its shape depends on private values, and the error
    that stands for the value, if a command failed to make it.

    ``destinations`` are the workers to which it may go on behalf of anybody.  ``owners`` are those
    who may let others read it: of a value that was computed, those to whom all inputs belong.  None
    stands for whoever sends it first, or the owner of the worker that holds it.  ``providers`` are
    the workers that may deal for shares of it, whoever shares it; None stands for all.

    >>> Guard(frozenset({"ann"})).admits("ann"), Guard(frozenset({"ann"})).admits(None)
    (True, False)
    """

    users: frozenset[str]
    shape_hidden: bool = False
    error: Exception | None = field(default=None, compare=False)
    destinations: frozenset[str] = frozenset()
    owners: frozenset[str] | None = None
    providers: frozenset[str] | None = None

    def admits(self, user: str | None) -> bool:
        """Whether ``user`` may read the value; False for a caller without a user."""
        return user is not None and user in self.users

    def meet(self, other: Guard) -> Guard:
        """The guard of a result computed from two guarded values: the users who may read both.

        >>> Guard(frozenset({"ann", "bea"})).meet(Guard(frozenset({"bea"}), True))
        Guard(users=frozenset({'bea'}), shape_hidden=True, ...)
        """
        if other is self:
            return self
        hidden = self.shape_hidden or other.shape_hidden
        owners = self.owners
        if owners != other.owners:
            owners = (owners or _NOBODY) & (other.owners or _NOBODY)
        destinations = self.destinations & other.destinations
        error = self.error or other.error
        providers = self.providers
        if providers != other.providers and other.providers is not None:
            providers = other.providers if providers is None else providers & other.providers
        return Guard(self.users & other.users, hidden, error, destinations, owners, providers)

    def sealed(self, error: Exception) -> Guard:
        """The guard of what could not be computed because of this error.

        >>> Guard(frozenset()).sealed(ValueError("7 is too large")).error
        ValueError('7 is too large')
        """
        return changed(self, error=self.error or without_frames(error))

    def check_admits(self, user: str | None, worker: str, action: str = "get") -> None:
        """Raise :class:`~syft.exceptions.PermissionDenied` if ``user`` may not read the value, and
        the error that stands for it if it could not be computed.

        >>> Guard(frozenset({"ann"})).check_admits("eve", "bob")
        Traceback (most recent call last):
        ...
        syft.exceptions.PermissionDenied: get: ...
        """
        if not self.admits(user):
            raise PermissionDenied(action, worker, user)
        self.check_open()

    def check_open(self) -> None:
        """Raise the error of what could not be computed, for a user whom the guard admits."""
        if self.error is not None:
            raise without_frames(self.error)


def without_frames(error: Exception) -> Exception:
    """The same error without its traceback and causes, whose frames would keep tensors alive.

    >>> without_frames(IndexError("7 is out of range"))
    IndexError('7 is out of range')
    """
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    return copy


def meet_guards(one: Guard | None, other: Guard | None) -> Guard | None:
    """The guard of a result computed from two values, each of which may have no guard.

    >>> meet_guards(None, Guard(frozenset({"ann"})))
    Guard(users=frozenset({'ann'}), shape_hidden=False, ...)
    """
    if one is None or other is None:
        return one or other
    return one.meet(other)
