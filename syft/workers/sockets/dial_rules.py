"""To which addresses a worker that serves connects, because its owner says so; to no others.

A caller says where a worker is to which it introduces this one, and could name any address: the
answers would be a map of the owner's network.  So nothing is dialled that the owner has not listed,
and whoever asked is told the same whatever the reason.  What cannot be dialled is reached through
the caller (:mod:`syft.workers.sockets.tunnels`), where nothing leaves but what goes to the caller.

Names are compared as they are written, and never looked up for it: who runs a name server could
give a listed network's address to any name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

from syft.exceptions import UnusableSetting, WrongAddress
from syft.workers.sockets.address import Address

NOT_CONNECTED: Final = (
    "the worker that was asked has no connection to it, as it is not there, is another one, or is "
    "not listed by the owner of the one that was asked (`syft worker --dial`)"
)
"""What a caller is told, whatever the reason."""

_EXPECTED: Final = (
    "HOST:PORT, a network as 10.0.0.0/24 or 10.0.0.0/24:8777, or the path of a Unix socket "
    "(of a folder, with / at its end)"
)
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class DialRules:
    """The addresses that the owner of a worker has listed; none by default.  Those of ``known``
    workers are listed too: fingerprints among them have none.

    Raises :class:`~syft.exceptions.UnusableSetting` for what is no address and no network.

    >>> rules = DialRules(["alice.example:8777", "10.0.0.0/24", "/run/syft/"])
    >>> [rules.allow(Address.parse(text)) for text in ("wss://alice.example:8777",
    ...     "wss://10.0.0.7:443", "wss://10.0.1.7:443", "unix:///run/syft/dan.sock")]
    [True, True, False, True]
    """

    __slots__ = ("_exact", "_networks", "_paths")

    def __init__(self, listed: Iterable[str] = (), known: Iterable[str] = ()) -> None:
        self._exact: set[tuple[str, int]] = set()
        self._networks: list[tuple[_Network, int | None]] = []
        self._paths: set[str] = set()
        places = [listed] if isinstance(listed, str) else listed
        for text in (*places, *(one for one in known if "://" in one)):
            if not isinstance(text, str) or not self._enter(text):
                raise UnusableSetting("--dial", _EXPECTED, repr(text)[:300])

    def _enter(self, text: str) -> bool:
        """Take an entry of the list in; whether it is one."""
        path = text.removeprefix("unix://")
        if path.startswith("/") and "/.." not in path:
            self._paths.add(path)
            return True
        if "/" in text and "://" not in text:
            return self._enter_network(text)
        try:
            address = Address.parse(text if "://" in text else f"wss://{text}")
        except (WrongAddress, ValueError):
            return False
        self._exact.add((_plain(address.host), address.port))
        return address.port > 0

    def _enter_network(self, text: str) -> bool:
        network, _, rest = text.partition("/")
        bits, colon, port = rest.partition(":")
        try:
            found = ipaddress.ip_network(f"{network.strip('[]')}/{bits.rstrip(']')}")
            number = int(port) if colon else None
        except ValueError:
            return False
        self._networks.append((found, number))
        return number is None or 0 < number < 1 << 16

    def allow(self, address: Address) -> bool:
        """Whether the owner has listed an address.

        >>> DialRules().allow(Address.parse("ws://127.0.0.1:8777"))
        False
        """
        if address.scheme == "unix":
            return self._allows_path(address.host)
        host = _plain(address.host)
        if (host, address.port) in self._exact:
            return True
        try:
            here = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
        except ValueError:
            return False  # a name, which no network has
        return any(
            here in network and port in (None, address.port) for network, port in self._networks
        )

    def _allows_path(self, path: str) -> bool:
        folders = (one for one in self._paths if one.endswith("/"))
        inside = any(path.startswith(folder) for folder in folders)
        return "/.." not in path and (inside or path in self._paths)


def _plain(host: str) -> str:
    """A host as it is compared: an address in its one form, a name in small letters."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host.lower().rstrip(".")
    return str(getattr(address, "ipv4_mapped", None) or address)
