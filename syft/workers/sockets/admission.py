"""What a worker counts of its callers besides their objects: who they are for limits, how many
connections each has, who was refused, and where a caller is whose bytes a proxy passes on.

Limits hold for a *user*, over all connections; for callers without a user, for the address from
which they come.  Else whoever opens a thousand connections may have a thousand times as much.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from weakref import WeakValueDictionary

from syft.exceptions import UnusableSetting
from syft.trust.lockout import counted_address
from syft.workers.core.peer_limits import Account, PeerLimits

MOST_CONNECTIONS = 1024
"""The most connections of one user, where nothing else is said."""

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Admissions:
    """The accounts of the users of a worker, and what was counted at its door.

    ``most`` is how many connections one user may have.

    >>> known = Admissions()
    >>> known.account("ann", "192.0.2.1") is known.account("ann", "192.0.2.9")
    True
    >>> known.account(None, "192.0.2.1") is known.account(None, "192.0.2.9")
    False
    """

    def __init__(self, most: int = MOST_CONNECTIONS, proxies: Iterable[str] = ()) -> None:
        if most < 1:
            raise UnusableSetting("connections", "a number over 0", repr(most))
        self.most = most
        self.proxies = TrustedProxies(proxies)
        self.refused: Counter[str] = Counter()
        """How many callers were not let in, by the code of the refusal."""
        self.admitted = 0
        """How many connections were let in, those that go on with a line too."""
        self._accounts: WeakValueDictionary[tuple[str, str], Account] = WeakValueDictionary()

    def account(self, user: str | None, host: str | None) -> Account:
        """The account of a user, or of the nobodies from one address; made if there is none."""
        who = whose(user, host)
        account = self._accounts.get(who)
        if account is None:
            account = self._accounts[who] = Account()
        return account

    def excess(
        self, user: str | None, host: str | None, others: Iterable[tuple[str | None, str | None]]
    ) -> str | None:
        """Why a caller may have no further connection, beside those of the ``others``."""
        mine = whose(user, host)
        count = sum(whose(*one) == mine for one in others)
        if count < self.most:
            return None
        return f"{' '.join(mine)} has {count} connections, and the limit is {self.most}"

    def limits(self, of_peers: PeerLimits) -> dict[str, int]:
        """All limits of one user, by name.

        >>> Admissions(5).limits(PeerLimits())["connections"]
        5
        """
        return {"connections": self.most, **asdict(of_peers)}

    def accounts(self) -> dict[tuple[str, str], Account]:
        """All accounts that are in use, by whose they are; any thread may ask."""
        found = ((ref.key, ref()) for ref in self._accounts.valuerefs())
        return {who: account for who, account in found if account is not None}


def whose(user: str | None, host: str | None) -> tuple[str, str]:
    """Whose limits hold for a caller: a user's, or those of an address.

    >>> whose("ann", "192.0.2.1"), whose(None, "192.0.2.1"), whose(None, None)
    (('user', 'ann'), ('address', '192.0.2.1'), ('address', 'unix'))
    """
    if user is not None:
        return "user", user
    return "address", "unix" if host is None else counted_address(host)


class TrustedProxies:
    """The proxies that say truly, in ``X-Forwarded-For``, for whom they pass bytes on.

    ``given`` are addresses or networks of them; ``unix`` is whoever comes over a Unix socket.
    Raises :class:`~syft.exceptions.UnusableSetting` for what is none.

    >>> proxies = TrustedProxies(["10.0.0.0/8"])
    >>> proxies.caller("10.0.0.7", ["198.51.100.1, 192.0.2.1"])
    '192.0.2.1'
    >>> proxies.caller("192.0.2.66", ["198.51.100.1"])
    '192.0.2.66'
    """

    def __init__(self, given: Iterable[str] = ()) -> None:
        self._networks: list[_Network] = []
        self._unix = False
        for text in given:
            if text == "unix":
                self._unix = True
                continue
            try:
                self._networks.append(ipaddress.ip_network(text))
            except ValueError:
                expected = "an IP address, a network as 10.0.0.0/8, or unix"
                raise UnusableSetting("--trusted-proxy", expected, repr(text)) from None

    def caller(self, host: str | None, forwarded: Iterable[str]) -> str | None:
        """Where a caller is: ``host``, or what the proxies there say of it.

        Each proxy adds on the right from whom it has the connection.  So the last address counts
        that is no trusted proxy: what stands left of it is what that one says of itself.
        """
        hops = [one.strip() for line in forwarded for one in line.split(",")]
        while hops and self._is_trusted(host):
            said = _address(hops.pop())
            if said is None:
                break
            host = said
        return host

    def _is_trusted(self, host: str | None) -> bool:
        if host is None:
            return self._unix
        address = ipaddress.ip_address(host.split("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)


def _address(text: str) -> str | None:
    """The address in one entry, which may have a port; None if there is none."""
    bare = text.partition("]")[0].removeprefix("[") if text.startswith("[") else text
    if bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        return None


def check_limit(name: str, number: float) -> None:
    """Raise :class:`~syft.exceptions.UnusableSetting` for a limit that lets nothing through.

    >>> check_limit("heartbeat", 2.0)
    """
    if not number > 0:
        raise UnusableSetting(name, "a number over 0", repr(number))
