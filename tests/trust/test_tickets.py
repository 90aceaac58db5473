"""Tickets: only what was signed with the session's key, unchanged and in time, is believed."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import math
import secrets
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syft.exceptions import TicketRefused, UnusableSetting
from syft.trust import tickets
from syft.trust.tickets import SpentTickets, Ticket, mint, read, session_of
from tests.trust.threads import run_at_once

KEY = bytes(range(32))
TICKET = Ticket("session-1", "alice", "ann", expires=60.0, nonce="n" * 22)

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=255)
every_ticket = st.builds(
    Ticket,
    session=names,
    holder=names,
    user=st.none() | names,
    expires=st.integers(0, 2**37) | st.integers(0, 253_402_300_799_999).map(lambda n: n / 1000),
    nonce=names,
)


def base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def signed(payload: bytes, key: bytes = KEY) -> str:
    """A ticket with any payload, made by the standard library alone: the oracle of the format."""
    signature = hmac.new(key, b"syft ticket 1\0" + payload, "sha256").digest()
    return f"{base64url(payload)}.{base64url(signature)}"


@given(ticket=every_ticket)
def test_what_was_signed_is_read(ticket: Ticket) -> None:
    text = mint(KEY, ticket)
    assert len(text) <= tickets._MOST_TEXT and text.isascii()
    assert session_of(text) == ticket.session
    assert read(KEY, text, math.nextafter(ticket.expires, -math.inf)) == ticket


@given(expires=st.floats(0, 253_402_300_799))
def test_a_ticket_ends_within_a_millisecond_of_what_it_says(expires: float) -> None:
    text = mint(KEY, Ticket("s", "alice", None, expires))
    assert abs(expires - read(KEY, text, -1.0).expires) < 0.001


def test_the_longest_ticket_can_be_read() -> None:
    longest = Ticket(*["\0" * 255] * 3, 253_402_300_799.999, "\x1f" * 255)
    assert session_of(mint(KEY, longest)) == longest.session


def test_the_text_is_as_the_format_says() -> None:
    payload = json.dumps(
        ["session-1", "alice", "ann", 60_000, "n" * 22], separators=(",", ":")
    ).encode()
    assert mint(KEY, TICKET) == signed(payload)


@given(ticket=every_ticket)
def test_the_payload_is_what_json_libraries_write(ticket: Ticket) -> None:
    fields = [
        ticket.session,
        ticket.holder,
        ticket.user,
        round(ticket.expires * 1000),
        ticket.nonce,
    ]
    payload = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    assert mint(KEY, ticket) == signed(payload)


def test_tickets_differ_in_their_nonce() -> None:
    nonces = {Ticket("s", "alice", None, 1.0).nonce for _ in range(100)}
    assert len(nonces) == 100 and {len(nonce) for nonce in nonces} == {22}


def test_a_ticket_expires() -> None:
    text = mint(KEY, TICKET)
    assert read(KEY, text, 59.999) == TICKET
    for now in (60.0, 1e12, math.nan, math.inf):
        with pytest.raises(TicketRefused, match="it has expired"):
            read(KEY, text, now)


def test_every_changed_character_is_noticed() -> None:
    text = mint(KEY, TICKET)
    for place in range(len(text)):
        for other in "Aa0-_.=+/ \n\u00e9":
            changed = text[:place] + other + text[place + 1 :]
            if changed != text:
                with pytest.raises(TicketRefused):
                    read(KEY, changed, 1.0)


@pytest.mark.parametrize("other", [bytes(32), KEY[::-1], KEY + b"\1"])
def test_another_key_reads_nothing(other: bytes) -> None:
    with pytest.raises(TicketRefused, match="changed, or signed with another key"):
        read(other, mint(KEY, TICKET), 1.0)


def test_a_signature_of_something_else_does_not_pass() -> None:
    payload = base64.urlsafe_b64decode(mint(KEY, TICKET).split(".")[0] + "==")
    for label in (b"", b"syft ticket 1", b"syft ticket 2\0"):
        signature = hmac.new(KEY, label + payload, hashlib.sha256).digest()
        with pytest.raises(TicketRefused, match="another key"):
            read(KEY, f"{base64url(payload)}.{base64url(signature)}", 1.0)
    for cut in (b"", signature[:16], signature + b"\0"):
        with pytest.raises(TicketRefused, match="another key"):
            read(KEY, f"{base64url(payload)}.{base64url(cut)}", 1.0)


@given(text=st.one_of(st.text(), st.text("ab.-_=", max_size=60), st.binary().map(base64url)))
def test_any_other_text_is_refused(text: str) -> None:
    for ask in (session_of, lambda text: read(KEY, text, 1.0)):
        with pytest.raises(TicketRefused):
            ask(text)


@given(payload=st.binary(max_size=200))
def test_a_payload_that_is_no_ticket_is_refused_also_if_signed(payload: bytes) -> None:
    with pytest.raises(TicketRefused, match="it is no ticket"):
        read(KEY, signed(payload), 1.0)
    with pytest.raises(TicketRefused, match="it is no ticket"):
        session_of(signed(payload))


@pytest.mark.parametrize(
    "payload",
    [
        b'["s","alice","ann",60000.0,"n"]',
        b'["s","alice","ann",6e4,"n"]',
        b'["s","alice","ann",060000,"n"]',
        b'["s","alice","ann",-1,"n"]',
        b'["s","alice","ann",253402300800000,"n"]',
        b'["s","alice","ann",99999999999999999999999999,"n"]',
        b'["s", "alice","ann",60000,"n"]',
        b'["\\u0073","alice","ann",60000,"n"]',
        b'["s","alice","ann",60000,"n"] ',
        b'["s","alice","ann",60000]',
        b'["s","alice","ann",60000,"n","more"]',
        b'["s","alice",7,60000,"n"]',
        b'["","alice","ann",60000,"n"]',
        b'["s","alice","",60000,"n"]',
        b'["s","alice","ann",1e400,"n"]',
        b'["s","alice","ann",NaN,"n"]',
        b'["s","alice","\\ud800",60000,"n"]',
        b'["s","alice","\xff",60000,"n"]',
        b'{"session":"s"}',
        b"[" * 6000,
        json.dumps(["s", "a" * 256, None, 60000, "n"], separators=(",", ":")).encode(),
    ],
)
def test_a_payload_written_otherwise_is_refused_also_if_signed(payload: bytes) -> None:
    for ask in (session_of, lambda text: read(KEY, text, 1.0)):
        with pytest.raises(TicketRefused, match="it is no ticket"):
            ask(signed(payload))


def test_the_payload_of_the_cases_above_is_right_otherwise() -> None:
    payload = b'["s","alice","ann",60000,"n"]'
    assert read(KEY, signed(payload), 1.0) == Ticket("s", "alice", "ann", 60.0, "n")


def test_a_long_text_is_refused_unread() -> None:
    for ask in (session_of, lambda text: read(KEY, text, 1.0)):
        with pytest.raises(TicketRefused, match="too long"):
            ask("A" * 8401)
        with pytest.raises(TicketRefused, match="no ticket"):
            ask("." * 8400)


def test_signatures_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    compare = hmac.compare_digest

    def comparing(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return compare(a, b)

    monkeypatch.setattr(tickets.hmac, "compare_digest", comparing)
    monkeypatch.setattr(tickets, "_parsed", None)
    with pytest.raises(TicketRefused, match="another key"):
        read(KEY[::-1], mint(KEY, TICKET), 1.0)
    assert len(compared) == 1, "and nothing of the ticket was looked at"


@pytest.mark.parametrize("size", [0, 16, 31])
def test_a_short_key_signs_and_reads_nothing(size: int) -> None:
    with pytest.raises(UnusableSetting, match=f"32 bytes or more, got {size} bytes"):
        mint(bytes(size), TICKET)
    with pytest.raises(UnusableSetting, match="32 bytes or more"):
        read(bytes(size), mint(KEY, TICKET), 1.0)


@pytest.mark.parametrize("name", ["", "x" * 256, "\ud800"])
@pytest.mark.parametrize("field", ["session", "holder", "user", "nonce"])
def test_names_that_cannot_travel_are_refused(field: str, name: str) -> None:
    fields = {"session": "s", "holder": "alice", "user": "ann", "expires": 1.0, field: name}
    with pytest.raises(UnusableSetting, match=f"a ticket's {field} must be 1 to 255 characters"):
        Ticket(**fields)


@pytest.mark.parametrize("expires", [math.nan, math.inf, -math.inf, -1.0, 253_402_300_800.0])
def test_a_ticket_has_an_end(expires: float) -> None:
    with pytest.raises(UnusableSetting, match="a ticket's expires must be seconds since"):
        Ticket("s", "alice", None, expires)


# ---------------------------------------------------------------------------------------- used once


def test_a_ticket_opens_one_door_once() -> None:
    spent = SpentTickets()
    first, second = (Ticket("s", "alice", None, 60.0) for _ in range(2))
    spent.spend(first, 1.0)
    spent.spend(second, 1.0)
    for now in (1.0, 59.9):
        with pytest.raises(TicketRefused, match="it was used before"):
            spent.spend(first, now)
    spent.spend(Ticket("other session", "alice", None, 60.0, first.nonce), 2.0)
    assert len(spent) == 3


def test_expired_tickets_are_forgotten_and_memory_is_bounded() -> None:
    spent = SpentTickets(most=3)
    late = Ticket("s", "alice", None, 100.0)
    spent.spend(late, 0.0)
    for expires in (30.0, 20.0):
        spent.spend(Ticket("s", "alice", None, expires), 0.0)
    with pytest.raises(TicketRefused, match="too many tickets are in use"):
        spent.spend(Ticket("s", "alice", None, 50.0), 19.9)
    spent.spend(Ticket("s", "alice", None, 50.0), 20.0)
    assert len(spent) == 3
    spent.spend(Ticket("s", "alice", None, 200.0), 50.0)
    assert len(spent) == 2
    with pytest.raises(TicketRefused, match="it was used before"):
        spent.spend(late, 50.0)


def test_random_sessions_do_not_meet() -> None:
    spent = SpentTickets()
    for _ in range(500):
        spent.spend(Ticket(secrets.token_hex(16), "alice", None, 1.0), 0.0)
    assert len(spent) == 500


class Slow(set):
    """A set in which other threads have time for the same question."""

    def __contains__(self, item: object) -> bool:
        found = super().__contains__(item)
        time.sleep(0.001)
        return found


def test_of_many_threads_with_one_ticket_one_comes_in() -> None:
    spent = SpentTickets()
    spent._known = Slow()
    tickets = [Ticket("s", "alice", None, 60.0) for _ in range(10)]
    opened: list[str] = []

    def spend_all() -> None:
        for ticket in tickets:
            with contextlib.suppress(TicketRefused):
                spent.spend(ticket, 1.0)
                opened.append(ticket.nonce)

    run_at_once(spend_all, 4)
    assert sorted(opened) == sorted(ticket.nonce for ticket in tickets)
