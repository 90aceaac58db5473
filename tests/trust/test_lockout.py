"""Lock-outs: the address that floods is locked, no other is, and memory is bounded."""

from __future__ import annotations

import ipaddress
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syft.exceptions import UnusableSetting
from syft.trust.lockout import Lockout, counted_address
from syft.trust.tokens import TokenBook
from tests.trust.threads import run_at_once, switching_often

EVE, ANN = "192.0.2.66", "192.0.2.1"


def fail(lockout: Lockout, address: str | None, times: int, now: float = 0.0) -> None:
    for _ in range(times):
        lockout.failed(address, now)


# --------------------------------------------------------------------------------- what is counted


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::FFFF:c000:201", "192.0.2.1"),
        ("64:ff9b::192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:0DB8:0:0:ffff:ffff:ffff:ffff", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("::1", "::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("fe80::2%7", "fe80::/64"),
    ],
)
def test_an_address_is_ipv4_or_the_first_64_bits_of_ipv6(address: str, counted: str) -> None:
    assert counted_address(address) == counted


@given(st.ip_addresses(v=4))
def test_every_ipv4_address_counts_for_itself_however_it_is_written(
    address: ipaddress.IPv4Address,
) -> None:
    assert counted_address(str(address)) == str(address)
    assert counted_address(f"::ffff:{address}") == str(address)


@given(st.ip_addresses(v=6), st.ip_addresses(v=6))
def test_two_ipv6_addresses_are_one_if_their_first_64_bits_are(
    one: ipaddress.IPv6Address, other: ipaddress.IPv6Address
) -> None:
    neighbour = ipaddress.IPv6Address(int(one) >> 64 << 64 | int(other) & 2**64 - 1)
    prefix = int(one) >> 64
    if prefix not in (0, int(ipaddress.IPv6Address("64:ff9b::")) >> 64):
        assert counted_address(str(one)) == counted_address(str(neighbour))
        assert (counted_address(str(one)) == counted_address(str(other))) is (
            int(other) >> 64 == prefix
        )


@pytest.mark.parametrize(
    "address", ["", "localhost", "1.2.3", "1.2.3.4.5", "/run/syft.sock", "::g"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    lockout = Lockout()
    for ask in (
        lambda: counted_address(address),
        lambda: lockout.failed(address, 0.0),
        lambda: lockout.is_locked(address, 0.0),
        lambda: lockout.succeeded(address),
    ):
        with pytest.raises(UnusableSetting, match="an address must be an IPv4 or IPv6 address"):
            ask()


def test_a_unix_socket_is_never_locked() -> None:
    lockout = Lockout()
    fail(lockout, None, 1000)
    lockout.succeeded(None)
    assert not lockout.is_locked(None, 0.0) and len(lockout) == 0


# ------------------------------------------------------------------------------------ when it locks


def test_it_locks_after_most_failures_and_for_the_pause() -> None:
    lockout = Lockout(most=10, window=60.0, pause=30.0)
    fail(lockout, EVE, 9, now=0.0)
    assert not lockout.is_locked(EVE, 5.0)
    lockout.failed(EVE, 5.0)
    assert lockout.is_locked(EVE, 5.0) and lockout.is_locked(EVE, 34.9)
    assert not lockout.is_locked(EVE, 35.0)
    assert len(lockout) == 0, "what led to a lock is forgotten with it"


def test_failures_older_than_the_window_do_not_count() -> None:
    lockout = Lockout(most=3, window=60.0, pause=60.0)
    for now in (0.0, 30.0, 60.0, 90.0, 120.0):
        lockout.failed(EVE, now)
        assert not lockout.is_locked(EVE, now), "never three within a minute"
    lockout.failed(EVE, 149.9)
    assert lockout.is_locked(EVE, 149.9)


def test_attempts_that_were_under_way_do_not_prolong_a_lock() -> None:
    lockout = Lockout(most=2)
    fail(lockout, EVE, 2, now=0.0)
    fail(lockout, EVE, 100, now=59.0)
    assert lockout.is_locked(EVE, 59.9) and not lockout.is_locked(EVE, 60.0)
    assert len(lockout) == 0


def test_a_right_token_forgives_failures_and_no_lock() -> None:
    lockout = Lockout(most=3)
    for _ in range(5):
        fail(lockout, ANN, 2)
        lockout.succeeded(ANN)
    assert not lockout.is_locked(ANN, 0.0) and len(lockout) == 0
    fail(lockout, ANN, 3)
    lockout.succeeded(ANN)
    assert lockout.is_locked(ANN, 0.0)


def test_one_address_in_two_spellings_is_locked_in_both() -> None:
    lockout = Lockout(most=2)
    lockout.failed("192.0.2.66", 0.0)
    lockout.failed("::ffff:192.0.2.66", 0.0)
    assert lockout.is_locked("192.0.2.66", 0.0) and lockout.is_locked("::ffff:c000:242", 0.0)
    lockout.failed("2001:db8::1", 0.0)
    lockout.failed("2001:db8::2", 0.0)
    assert lockout.is_locked("2001:db8::3", 0.0) and not lockout.is_locked("2001:db8:0:1::3", 0.0)


@pytest.mark.parametrize("name", ["most", "window", "pause", "most_addresses"])
@pytest.mark.parametrize("number", [0, -1, float("nan")])
def test_numbers_that_make_no_sense_are_refused(name: str, number: float) -> None:
    with pytest.raises(UnusableSetting, match=f"a lock-out's {name} must be a number over 0"):
        Lockout(**{name: number})


# ------------------------------------------------------------------------------------------ attacks


def test_ten_thousand_wrong_tokens_a_minute_lock_out_that_address_only() -> None:
    """The server's loop without its sockets: a locked address is not listened to."""
    book, lockout = TokenBook(), Lockout()
    right = book.make("ann", now=0.0)
    listened = {EVE: 0, ANN: 0}
    admitted = 0

    def knock(address: str, text: str, now: float) -> bool:
        if lockout.is_locked(address, now):
            return False
        listened[address] += 1
        if book.check(text, now) is None:
            lockout.failed(address, now)
            return False
        lockout.succeeded(address)
        return True

    for attempt in range(10_000):
        now = attempt * 60.0 / 10_000
        assert not knock(EVE, f"syft_0123456789abcdef_{attempt:043d}", now)
        if attempt % 100 == 0:
            admitted += knock(ANN, right, now)
    assert listened[EVE] == 10, "the other 9,990 were not even looked at"
    assert admitted == listened[ANN] == 100
    assert lockout.is_locked(EVE, 59.9) and not lockout.is_locked(ANN, 59.9)


def test_many_addresses_neither_fill_memory_nor_unlock_one() -> None:
    lockout = Lockout(most=3, most_addresses=1_000)
    fail(lockout, EVE, 3, now=0.0)
    for number in range(20_000):
        lockout.failed(str(ipaddress.IPv4Address(0x0A000000 + number)), 1.0)
    assert len(lockout) == 1_001
    assert lockout.is_locked(EVE, 1.0)


def test_to_unlock_an_address_takes_as_many_locks_of_others() -> None:
    lockout = Lockout(most=3, most_addresses=100)
    fail(lockout, EVE, 3, now=0.0)
    for number in range(99):
        fail(lockout, f"10.0.0.{number}", 3, now=1.0)
    assert lockout.is_locked(EVE, 1.0)
    fail(lockout, "10.0.0.99", 3, now=1.0)
    assert not lockout.is_locked(EVE, 1.0), "297 failures of others cost less than they gain"
    assert len(lockout) == 100


def test_the_addresses_that_failed_last_are_remembered() -> None:
    lockout = Lockout(most=2, most_addresses=2)
    for address in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
        lockout.failed(address, 0.0)
    for address in ("10.0.0.1", "10.0.0.3"):
        lockout.failed(address, 0.0)
        assert lockout.is_locked(address, 0.0) is (address == "10.0.0.3"), address


def test_an_address_takes_less_than_a_kilobyte() -> None:
    lockout = Lockout(most_addresses=500)
    addresses = [str(ipaddress.IPv6Address(0x20010DB8 << 96 | n << 64 | 1)) for n in range(600)]
    tracemalloc.start()
    try:
        for now, address in enumerate(addresses):
            fail(lockout, address, 9, now=float(now))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(lockout) == 500
    assert held < 500 * 1024


def test_threads_lose_no_failure() -> None:
    lockout = Lockout(most=1_000_000)

    def fail_often() -> None:
        fail(lockout, EVE, 300)
        assert not lockout.is_locked(EVE, 0.0)

    with switching_often():
        run_at_once(fail_often, 4)
    assert len(lockout._failures[EVE]) == 1_200
