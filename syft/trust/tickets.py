"""Tickets: how a client introduces one worker to another, so that the two talk without it.

A client that is connected to two workers has a session key with the first.  It writes a ticket
"this worker may act in my session, for a minute", signs it with that key (HMAC-SHA256) and gives it
to the second worker, which shows it to the first when it dials.  The first finds the key by the
session that the ticket names, and believes nothing else of it before the signature holds.

The text is ``<payload>.<signature>``, both base64url without padding.  The payload is a JSON array
of five fields, and there is one way to write each ticket, that of JavaScript's ``JSON.stringify``:
what differs in a character is refused.  ``docs/wire.md`` says the same to writers of other clients.
The signature covers a label too, so that nothing else that is ever signed with the same key can
pass for a ticket.

Refused: JSON Web Tokens.  There the sender chooses the algorithm, and nothing here is to be chosen.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import hmac
import secrets
import threading
from dataclasses import dataclass, field

import msgspec

from syft.exceptions import TicketRefused, UnusableSetting

_LABEL = b"syft ticket 1\0"
_LEAST_KEY = 32
_MOST_NAME = 255
_MOST_TEXT = 8400
"""More than the longest ticket takes; longer texts are refused unread."""

_YEAR_10000 = 253_402_300_800

_Fields = tuple[str, str, str | None, int, str]
_DECODER = msgspec.json.Decoder(_Fields)


@dataclass(frozen=True, slots=True)
class Ticket:
    """Whose session it is, which worker may act in it, and until when (seconds since 1970).

    Texts have 1 to 255 characters.  Raises :class:`~syft.exceptions.UnusableSetting` for others,
    and for an ``expires`` that is no date.

    >>> ticket = Ticket("session-1", "alice", "ann", expires=60.0)
    >>> ticket.holder, len(ticket.nonce)
    ('alice', 22)
    """

    session: str
    holder: str
    """The name of the worker that may use it."""
    user: str | None
    """The user on whose behalf; None: nobody was named."""
    expires: float
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    """128 random bits, by which two tickets differ and a second use shows."""

    def __post_init__(self) -> None:
        names = {"session": self.session, "holder": self.holder, "nonce": self.nonce}
        if self.user is not None:
            names["user"] = self.user
        for name, value in names.items():
            if not 0 < len(value) <= _MOST_NAME or not _is_unicode(value):
                expected = f"1 to {_MOST_NAME} characters"
                raise UnusableSetting(f"a ticket's {name}", expected, ascii(value)[:_MOST_NAME])
        if not 0 <= self.expires < _YEAR_10000:
            raise UnusableSetting("a ticket's expires", "seconds since 1970", repr(self.expires))


def mint(key: bytes, ticket: Ticket) -> str:
    """Write and sign a ticket; the text has ASCII letters, digits, ``-``, ``_`` and one ``.``.

    Its end is rounded to milliseconds.
    ``key`` has 32 random bytes or more, else :class:`~syft.exceptions.UnusableSetting` is raised.

    >>> text = mint(bytes(32), Ticket("session-1", "alice", None, expires=60.0))
    >>> read(bytes(32), text, now=1.0).holder
    'alice'
    """
    milliseconds = round(ticket.expires * 1000)
    fields: _Fields = ticket.session, ticket.holder, ticket.user, milliseconds, ticket.nonce
    payload = msgspec.json.encode(fields)
    return f"{_base64(payload)}.{_base64(_signature(key, payload))}"


def ticket_key(secret: str) -> bytes:
    """The key with which a client signs tickets for its line.

    >>> len(ticket_key("secret"))
    32
    """
    return hashlib.sha256(b"syft tickets\0" + secret.encode()).digest()


def session_of(text: str) -> str:
    """Return the session that a ticket names, to find the key with which to read it.

    Nothing is verified here: anybody can write that name.  Raises
    :class:`~syft.exceptions.TicketRefused` for what is no ticket.

    >>> session_of(mint(bytes(32), Ticket("session-1", "alice", None, expires=60.0)))
    'session-1'
    """
    return _parsed(_split(text)[0]).session


def read(key: bytes, text: str, now: float) -> Ticket:
    """Return a ticket that was signed with this key and has not expired (seconds since 1970).

    Signatures are compared in constant time, before anything in the ticket is looked at.  Raises
    :class:`~syft.exceptions.TicketRefused` for every other text.

    >>> text = mint(bytes(32), Ticket("session-1", "alice", None, expires=60.0))
    >>> read(bytes(32), text, now=60.0)
    Traceback (most recent call last):
        ...
    syft.exceptions.TicketRefused: The ticket was refused: it has expired. The client that \
introduced the two workers can make another.
    """
    payload, signature = _split(text)
    if not hmac.compare_digest(_signature(key, payload), signature):
        raise TicketRefused("it was changed, or signed with another key")
    ticket = _parsed(payload)
    if not now < ticket.expires:
        raise TicketRefused("it has expired")
    return ticket


class SpentTickets:
    """Remembers tickets until they expire, so that each opens a door once.

    Memory is bounded: with ``most`` tickets remembered, further ones are refused until the first
    expire.  Only tickets whose signature held belong here, so strangers cannot fill it.  Any thread
    may ask.

    >>> spent = SpentTickets()
    >>> ticket = Ticket("session-1", "alice", None, expires=60.0)
    >>> spent.spend(ticket, now=1.0)
    >>> spent.spend(ticket, now=2.0)
    Traceback (most recent call last):
        ...
    syft.exceptions.TicketRefused: The ticket was refused: it was used before. The client that \
introduced the two workers can make another.
    """

    def __init__(self, most: int = 100_000) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: set[tuple[str, str]] = set()
        self._by_expiry: list[tuple[float, tuple[str, str]]] = []

    def __len__(self) -> int:
        return len(self._known)

    def spend(self, ticket: Ticket, now: float) -> None:
        """Remember a ticket that :func:`read` returned (``now`` as there).

        Raises :class:`~syft.exceptions.TicketRefused` if it was used before, or too many are
        remembered.

        >>> SpentTickets().spend(Ticket("session-1", "alice", None, expires=60.0), now=1.0)
        """
        name = (ticket.session, ticket.nonce)
        with self._lock:
            while self._by_expiry and self._by_expiry[0][0] <= now:
                self._known.remove(heapq.heappop(self._by_expiry)[1])
            if name in self._known:
                raise TicketRefused("it was used before")
            if len(self._known) >= self._most:
                raise TicketRefused("too many tickets are in use at the worker")
            self._known.add(name)
            heapq.heappush(self._by_expiry, (ticket.expires, name))


def _signature(key: bytes, payload: bytes) -> bytes:
    if len(key) < _LEAST_KEY:
        raise UnusableSetting("a ticket's key", f"{_LEAST_KEY} bytes or more", f"{len(key)} bytes")
    return hmac.digest(key, _LABEL + payload, hashlib.sha256)


def _split(text: str) -> tuple[bytes, bytes]:
    """The payload and the signature, if the text is written as :func:`mint` writes it."""
    if len(text) > _MOST_TEXT:
        raise TicketRefused("it is too long")
    parts = text.split(".")
    try:
        payload, signature = (base64.b64decode(_padded(p), b"-_", validate=True) for p in parts)
    except ValueError:
        raise TicketRefused("it is no ticket") from None
    # Base64 has spare bits at its end, which would let one ticket be written in several ways.
    if text != f"{_base64(payload)}.{_base64(signature)}":
        raise TicketRefused("it is no ticket")
    return payload, signature


def _parsed(payload: bytes) -> Ticket:
    try:
        fields = session, holder, user, milliseconds, nonce = _DECODER.decode(payload)
        ticket = Ticket(session, holder, user, milliseconds / 1000, nonce)
    except (msgspec.MsgspecError, UnicodeDecodeError, UnusableSetting):
        raise TicketRefused("it is no ticket") from None
    if msgspec.json.encode(fields) != payload:
        raise TicketRefused("it is no ticket")
    return ticket


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _padded(text: str) -> str:
    return text + "=" * (-len(text) % 4)


def _is_unicode(text: str) -> bool:
    """Whether a text can be encoded: it may hold no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
