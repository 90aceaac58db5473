"""Lock-outs: an address from which too many wrong tokens came is not listened to for a while.

Tokens cannot be guessed, so this is no defence of theirs: it keeps one machine from using up the
worker's time and log with attempts.  Each address counts for itself, so a flood from one never
locks out another.

An address is an IPv4 address, or the first 64 bits of an IPv6 address: a household or a rented
machine has a network of that size, and could otherwise come from 2**64 addresses.  IPv4 addresses
written as IPv6 ones (``::ffff:192.0.2.1``, and ``64:ff9b::192.0.2.1`` of a NAT64) count as what
they are; else all of them would be one address.  A Unix socket has no address and is never locked:
the file's mode says who may open it.

Memory is bounded.  Failures that have not led to a lock are forgotten, the oldest first, when too
many addresses have some.  Locks are kept apart from them, and end before their time only when as
many other addresses were locked since.  So somebody with many addresses unlocks one of them by
``most_addresses * most`` failures, one hundred thousand by default, and not by coming once from
each.
"""

from __future__ import annotations

import ipaddress
import threading
from collections import OrderedDict

from syft.exceptions import UnusableSetting

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def counted_address(address: str) -> str:
    """Return the address for which failures are counted: IPv4, or the /64 of IPv6.

    ``address`` is as ``socket.getpeername()`` gives it.  Raises
    :class:`~syft.exceptions.UnusableSetting` for what is no IP address.

    >>> counted_address("::ffff:192.0.2.1"), counted_address("2001:db8::1:2:3:4")
    ('192.0.2.1', '2001:db8::/64')
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        raise UnusableSetting("an address", "an IPv4 or IPv6 address", repr(address)) from None
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    if found in _NAT64:
        return str(ipaddress.IPv4Address(int(found) & 0xFFFF_FFFF))
    # The zone (fe80::1%eth0) is left out with the other 64 bits.
    return str(ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))


class Lockout:
    """Locks an address out for ``pause`` seconds after ``most`` failures within ``window`` seconds.

    ``now`` is in seconds of any clock that does not go backwards (``time.monotonic``), the same
    for all calls.  The failures that led to a lock are forgotten when it ends.  Any thread may ask.
    Raises :class:`~syft.exceptions.UnusableSetting` for numbers that are not over 0.

    >>> lockout = Lockout(most=2)
    >>> lockout.failed("192.0.2.1", now=0.0)
    >>> lockout.failed("192.0.2.1", now=1.0)
    >>> lockout.is_locked("192.0.2.1", now=2.0), lockout.is_locked("192.0.2.2", now=2.0)
    (True, False)
    >>> lockout.is_locked("192.0.2.1", now=61.0)
    False
    """

    def __init__(
        self,
        most: int = 10,
        window: float = 60.0,
        pause: float = 60.0,
        most_addresses: int = 10_000,
    ) -> None:
        numbers = {"most": most, "window": window, "pause": pause, "most_addresses": most_addresses}
        for name, number in numbers.items():
            if not number > 0:
                raise UnusableSetting(f"a lock-out's {name}", "a number over 0", repr(number))
        self._most, self._window, self._pause = most, window, pause
        self._most_addresses = most_addresses
        self._lock = threading.Lock()
        # Address to the times of its latest failures, that which failed last at the end.
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        # Address to when its lock ends, that which ends last at the end.
        self._locks: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        """How many addresses are remembered: ``2 * most_addresses`` at most."""
        return len(self._failures) + len(self._locks)

    def failed(self, address: str | None, now: float) -> None:
        """Count a wrong token (or no handshake at all) from an address.

        Raises as :func:`counted_address` does.

        >>> Lockout().failed("192.0.2.1", now=0.0)
        """
        if address is None:
            return
        name = counted_address(address)
        with self._lock:
            self._end_locks(now)
            # Attempts that were under way when it was locked do not prolong the lock.
            if name not in self._locks:
                self._count(name, now)

    def _count(self, name: str, now: float) -> None:
        times = self._failures.pop(name, [])
        times = [time for time in times if now - time < self._window] + [now]
        if len(times) < self._most:
            self._failures[name] = times
            if len(self._failures) > self._most_addresses:
                self._failures.popitem(last=False)
            return
        self._locks[name] = now + self._pause
        if len(self._locks) > self._most_addresses:
            self._locks.popitem(last=False)

    def is_locked(self, address: str | None, now: float) -> bool:
        """Whether an address is not to be listened to now; raises as :func:`counted_address` does.

        >>> Lockout().is_locked(None, now=0.0)
        False
        """
        if address is None:
            return False
        name = counted_address(address)
        with self._lock:
            self._end_locks(now)
            return name in self._locks

    def succeeded(self, address: str | None) -> None:
        """Forget the failures of an address from which a right token came.

        A lock stays: one right token would otherwise buy any number of wrong ones.
        Raises as :func:`counted_address` does.

        >>> Lockout().succeeded("192.0.2.1")
        """
        if address is None:
            return
        name = counted_address(address)
        with self._lock:
            self._failures.pop(name, None)

    def _end_locks(self, now: float) -> None:
        """Forget what has ended.  All locks last equally long, so the first to end comes first."""
        while self._locks and next(iter(self._locks.values())) <= now:
            self._locks.popitem(last=False)
