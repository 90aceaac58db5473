"""With what a program has asked for a connection: whoever asks for the same again gets the same
(:mod:`syft.workers.shells.asked_again`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
