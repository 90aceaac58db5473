"""With what a program has asked for a connection: whoever asks for the same again gets the same.

A cell of a notebook is run again and again.  A second connection would take nothing along of what
the first one has, and two workers of one name cannot be told apart.
"""

from __future__ import annotations

import inspect
from abc import ABCMeta
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from syft.workers.sockets.dialling import Target

_OF_TARGET = ("address", "token", "fingerprint", "ca_file", "limits", "heartbeat")
_OWN = ("tokens", "blocking", "timeout")


@dataclass(frozen=True)
class AskedFor:
    """What decides whether two calls ask for one connection: all arguments that change something.

    >>> from syft.workers.sockets.address import Address
    >>> here = Target(Address.parse("unix:///tmp/bob.sock"), "me", token="syft_1")
    >>> AskedFor(here, {}, False, None) == AskedFor(here, {}, False, None)
    True
    """

    target: Target
    tokens: Mapping[str, str]
    blocking: bool
    timeout: float | None

    def differences(self, other: AskedFor) -> tuple[str, ...]:
        """The names of the arguments that are others there; no values, since tokens are secret.

        >>> from syft.workers.sockets.address import Address
        >>> here = Target(Address.parse("unix:///tmp/bob.sock"), "me", token="syft_1")
        >>> there = Target(Address.parse("unix:///tmp/bob.sock"), "me", token="syft_2")
        >>> AskedFor(here, {}, False, None).differences(AskedFor(there, {}, True, None))
        ('token', 'blocking')
        """
        pairs = [(self.target, other.target, name) for name in _OF_TARGET]
        found = [name for one, two, name in pairs if getattr(one, name) != getattr(two, name)]
        found += [name for name in _OWN if getattr(self, name) != getattr(other, name)]
        return tuple(found if self.target.name == other.target.name else ["local worker", *found])


class AskedAgain(Exception):
    """Ends the making of a worker, since the one that is asked for is there: ``worker``.

    >>> AskedAgain(bob).worker is bob
    True
    """

    def __init__(self, worker: Any) -> None:
        super().__init__(worker)
        self.worker = worker


class Reconnecting(ABCMeta):
    """Has a class give the object that is there to whoever asks for the same again: its constructor
    raises :class:`AskedAgain`.

    >>> class One(metaclass=Reconnecting):
    ...     def __init__(self, other: object = None) -> None:
    ...         if other is not None:
    ...             raise AskedAgain(other)
    >>> one = One()
    >>> One(one) is one, inspect.signature(One)
    (True, <Signature (other: 'object' = None) -> 'None'>)
    """

    @property
    def __signature__(cls) -> inspect.Signature:
        """That of the constructor, and not of what calls it."""
        of_init = inspect.signature(cls.__init__)  # type: ignore[misc]
        return of_init.replace(parameters=[*of_init.parameters.values()][1:])

    def __call__(cls, *args: Any, **settings: Any) -> Any:
        try:
            return super().__call__(*args, **settings)
        except AskedAgain as found:
            return found.worker
