"""Who calls a worker: how a caller is let in, what it may do, and whom it has introduced.

A caller says who it is in its first message, and nothing else is read before.  Its credential is a
token, or a ticket with which a client that is connected already lets another worker act for it;
where the worker asks for none, the caller is nobody in particular.  What it may do afterwards hangs
on its connection: no later message says who it is.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from syft.exceptions import BrokenFraming, FileRefused, TicketRefused, WorkerRefused
from syft.ops.table import NAMES
from syft.serde.limits import Limits
from syft.trust import tickets
from syft.trust.lockout import Lockout
from syft.trust.tickets import SpentTickets, Ticket
from syft.trust.tokens import Grant, TokenBook
from syft.version import software
from syft.workers.core.peer import Peer, ProgramMark, Session
from syft.workers.sockets.admission import Admissions
from syft.workers.sockets.handshake import ServerHandshake
from syft.workers.sockets.line import Channel, Line
from syft.workers.sockets.line_messages import (
    PROTOCOL,
    Hello,
    Open,
    Refused,
    Resume,
    Welcome,
    decode_greeting,
    encode_greeting,
    ops_fingerprint,
    sizes_of,
)
from syft.workers.sockets.line_transport import LineWorker
from syft.workers.sockets.serving import ServingBoard
from syft.workers.sockets.sparse_log import STRANGERS, VISITS
from syft.workers.sockets.steady_clock import steady_time
from syft.workers.sockets.streams import Stream
from syft.workers.sockets.visits import Visits
from syft.workers.sockets.websocket import REFUSED, TEXT, WebSocket

TICKET_SECONDS: Final = 60.0
_MOST_NAME: Final = 255
_MOST_ABSENT: Final = 1000
"""Callers that are gone and may come back; of more, those without a user are forgotten first."""


class ServingWorker(Protocol):
    """What letting somebody in needs to know of a worker."""

    id: str
    core: Any
    callers: dict[Peer, Any]

    def vouch(self, guest: Guest, to: str, names: set[str]) -> None:
        """Have a guest introduce a worker to others, which were named to it."""


@dataclass(eq=False)
class Guest:
    """A caller that was let in, for as long as its line lasts.

    ``root`` is the guest on whose behalf another worker calls; a caller that speaks for itself is
    its own.
    """

    line: Line
    name: str
    """What the worker calls it: no other guest has this name."""
    said_name: str
    """What it calls itself."""
    user: str | None
    grant: Grant | None
    host: str | None
    stand_in: LineWorker | None = None
    peers: list[Peer] = field(default_factory=list)
    introduced: dict[str, LineWorker] = field(default_factory=dict)
    vouched: set[tuple[str, str]] = field(default_factory=set)
    """Workers that were named to others, which the guest was told: to whom, and who."""
    users: set[str | None] = field(default_factory=set)
    grants: dict[str | None, Grant | None] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    """The tokens with which it has proved for whom it speaks, by their users."""
    root: Guest | None = None
    mark: ProgramMark = field(default_factory=ProgramMark)
    """What its peers, and those of who acts for it, have as their origin."""

    @property
    def origin(self) -> Guest:
        """The guest for whom it acts."""
        return self if self.root is None else self.root


class NotWelcome(Exception):
    """Why a caller is not let in."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class Caller:
    """A connection whose caller has not said who it is: see
    :class:`~syft.workers.sockets.openings.Opening`."""

    def __init__(
        self,
        reception: Reception,
        stream: Stream,
        host: str | None,
        carrier: Guest | None = None,
    ) -> None:
        self.stream = stream
        self.host = host
        self.carrier = carrier
        """The guest through whose tunnel it comes, if it does."""
        self.since = time.monotonic()
        self.websocket: WebSocket | None = None
        self._reception = reception
        self._handshake = ServerHandshake(stream)

    def advance(self) -> bool:
        """Read what is there; whether the caller is let in now.

        Raises :class:`ConnectionError` and :class:`~syft.exceptions.WireError` if it is not.
        """
        if self.websocket is None:
            if not self._handshake.advance():
                return False
            self.host = self._reception.admissions.proxies.caller(
                self.host, self._handshake.forwarded
            )
            self.websocket = WebSocket(self.stream, False, self._reception.limits, trusted=False)
            self.websocket.feed(self._handshake.rest)
        if not self.websocket.messages:
            self.websocket.receive()
        if not self.websocket.messages:
            self.websocket.flush()
            return False
        opcode, value = self.websocket.messages.popleft()
        if opcode != TEXT:
            raise ConnectionResetError("the caller has left")
        hello = decode_greeting(value)
        if type(hello) is not Hello:
            raise BrokenFraming(REFUSED, "the first message says who is calling")
        self._reception.greet(self, hello)
        return True

    def close(self, reason: str) -> None:
        """Give the connection up."""
        if self.websocket is None:
            self.stream.close()
        else:
            self.websocket.close(REFUSED, reason)


class Reception:
    """Lets callers in to ``worker``, and remembers them while they may come back.

    ``tokens`` are those with which users prove who they are; without a book everybody is let in.
    ``anonymous`` says whether callers without a token are.  ``lease`` is how many seconds a caller
    may be gone before its objects are freed.
    """

    def __init__(
        self,
        worker: ServingWorker,
        board: ServingBoard,
        limits: Limits,
        tokens: TokenBook | None = None,
        anonymous: bool = True,
        lease: float = 60.0,
        heartbeat: float = 2.0,
        forget: Callable[[Guest], None] = lambda guest: None,
        admissions: Admissions | None = None,
        lockout: Lockout | None = None,
    ) -> None:
        self.worker = worker
        self.board = board
        self.limits = limits
        self.tokens = tokens
        self.anonymous = anonymous
        self.lease = lease
        self.heartbeat = heartbeat
        self.lockout = Lockout() if lockout is None else lockout
        self.admissions = admissions or Admissions()
        self.visits = Visits(worker.core)
        self.guests: dict[str, Guest] = {}
        """By the id of their line."""
        self._by_peer: dict[int, Guest] = {}
        self._spent = SpentTickets()
        self._mark = f"{secrets.token_hex(4)}-"  # of the lines of this process
        self._no_secret = secrets.token_urlsafe(32)  # compared with where a line is unknown
        self._forget = forget
        board.acts[Open] = self.open
        board.reached_for = self.reached_for
        board.has_left = self.left

    # ------------------------------------------------------------------------------- greeting

    def greet(self, caller: Caller, hello: Hello) -> None:
        """Let a caller in, or say why not."""
        assert caller.websocket is not None
        try:
            if why := self.visits.nobody_is_served():
                raise NotWelcome("audit", why)
            guest, received = self._admit(caller, hello)
        except NotWelcome as refusal:
            self.admissions.refused[refusal.code] += 1
            self.visits.refused(caller.host, refusal.code)
            # Two workers that part at once may lose each other's farewell, and one comes back.
            left = hello.resume is not None and hello.resume.line not in self.guests
            say = STRANGERS.info if left else STRANGERS.warning
            say("refused a caller: %s", refusal.reason)
            text = encode_greeting(Refused(refusal.code, refusal.reason))
            caller.websocket.put([text], TEXT)
            raise ConnectionAbortedError(refusal.reason) from None
        line = guest.line
        self.admissions.admitted += 1
        welcome = Welcome(
            worker=self.worker.id,
            protocol=PROTOCOL,
            ops=len(NAMES),
            line=line.id,
            secret=line.secret,
            name=guest.name,
            software=software(),
            fingerprint=ops_fingerprint(len(NAMES)),
            user=guest.user,
            plans=bool(self.worker.core.allow_plans) and (not guest.grant or guest.grant.plans),
            sizes=sizes_of(self.limits),
            heartbeat=self.heartbeat,
            lease=self._lease_of(guest),
            received=line.received,
            clock=steady_time(),
            limits=self.admissions.limits(self.worker.core.store.charges.limits),
        )
        caller.websocket.put([encode_greeting(welcome)], TEXT)
        caller.websocket.trusted = True
        self.board.add(line, caller.websocket, received)

    def _admit(self, caller: Caller, hello: Hello) -> tuple[Guest, int]:
        """The guest that says hello, new or known, and how many messages have reached it."""
        if hello.protocol != PROTOCOL:
            older = "this worker is" if hello.protocol > PROTOCOL else "the caller is"
            raise NotWelcome(
                "version",
                f"the caller speaks version {hello.protocol} of the protocol, this worker version "
                f"{PROTOCOL}: {older} the older one",
            )
        shared = min(hello.ops, len(NAMES))
        if shared == hello.ops and hello.fingerprint not in ("", ops_fingerprint(shared)):
            raise NotWelcome("operations", "the caller numbers torch's operations otherwise")
        if not _is_name(hello.name):
            raise NotWelcome("name", "the caller's name is empty, too long, or cannot be printed")
        if caller.carrier is not None:
            return self._tunnelled(caller, caller.carrier, hello)
        if hello.resume is not None:
            return self._known(hello.resume), hello.resume.received
        if hello.ticket is not None:
            return self._with_ticket(caller, hello, hello.ticket), 0
        grant = self._granted(caller.host, hello.token)
        user = grant.user if grant else None
        return self._new_guest(caller, hello, user, grant), 0

    def _tunnelled(self, caller: Caller, carrier: Guest, hello: Hello) -> tuple[Guest, int]:
        """The guest that comes through the tunnel of another one, which has introduced it.

        Nobody else does: tokens that are tried there would lock out whoever passes them on.
        """
        resume, ticket = hello.resume, hello.ticket
        if resume is not None:
            if (known := self.guests.get(resume.line)) is None or known.root is not carrier:
                raise NotWelcome("unknown line", "no such line leads through this tunnel")
            return self._known(resume), resume.received
        if ticket is None or self._session_of(ticket) != carrier.line.id:
            raise NotWelcome("ticket", "who comes through a tunnel has a ticket of who opened it")
        return self._with_ticket(caller, hello, ticket), 0

    def _session_of(self, ticket: str) -> str | None:
        with contextlib.suppress(TicketRefused):
            return tickets.session_of(ticket)
        return None

    def _known(self, resume: Resume) -> Guest:
        """The guest that comes back over another connection."""
        guest = self.guests.get(resume.line)
        secret = guest.line.secret if guest is not None else self._no_secret
        said = resume.secret.encode(errors="surrogatepass")  # as texts only ASCII can be compared
        if not hmac.compare_digest(secret.encode(), said) or guest is None:
            raise NotWelcome("unknown line", self._why_unknown(resume.line))
        if guest.line.ended is not None:  # what it has here is about to be freed
            raise NotWelcome("unknown line", guest.line.ended)
        if not self._is_trusted(guest):
            raise NotWelcome("token", "the token has expired or was revoked")
        if not guest.line.acknowledged <= resume.received <= guest.line.sent:
            raise NotWelcome("unknown line", "the caller has not received what was sent")
        self.board.detach(guest.line)
        return guest

    def _why_unknown(self, line: str) -> str:
        """What has become of a line that is not here any more."""
        if not line.startswith(self._mark):
            return "the worker has started anew: what this program had there is gone"
        return "the worker has given the line up: nobody came back for it within its lease"

    def _lease_of(self, guest: Guest) -> float:
        """How many seconds a guest may be gone: what its token says, or what the worker does."""
        said = None if guest.grant is None else guest.grant.lease
        return self.lease if said is None else said

    def _granted(self, host: str | None, token: str | None) -> Grant | None:
        """What a token grants; None for a caller that is nobody in particular."""
        if self.lockout.is_locked(host, time.monotonic()):
            raise NotWelcome("locked", "there were too many wrong tokens from this address")
        if token is None and self.anonymous:
            return None
        grant = None
        if token is not None and self.tokens is not None:
            grant = self._checked(token, time.time())
        if grant is None:
            if token is not None:
                self.lockout.failed(host, time.monotonic())
            what = "no token was given" if token is None else "the token is unknown or has expired"
            raise NotWelcome("token", what)
        return grant

    def _checked(self, token: str, now: float) -> Grant | None:
        """What the book says of a token; nobody is admitted while its file cannot be used."""
        assert self.tokens is not None
        try:
            return self.tokens.check(token, now)
        except FileRefused as error:
            STRANGERS.warning("no token is accepted: %s", error)
            raise NotWelcome("token", "the worker cannot check tokens now") from None

    def _with_ticket(self, caller: Caller, hello: Hello, text: str) -> Guest:
        """The guest that acts for another one, which introduced it."""
        origin, ticket = self._read_ticket(text)
        name = ticket.holder
        line = Line(name, self.limits, odd=True)
        guest = Guest(
            line,
            self._free_name(name, origin),
            name,
            ticket.user,
            origin.grants.get(ticket.user),
            caller.host,
        )
        guest.root = origin
        return self._enter(guest)

    def _read_ticket(self, text: str) -> tuple[Guest, Ticket]:
        now = steady_time()
        try:
            origin = self.guests.get(tickets.session_of(text))
            if origin is None:
                raise TicketRefused("its session is over")
            ticket = tickets.read(tickets.ticket_key(origin.line.secret), text, now)
            self._spent.spend(ticket, now)
        except TicketRefused as error:
            raise NotWelcome("ticket", str(error)) from None
        if ticket.user is not None and ticket.user not in origin.users:
            raise NotWelcome("ticket", "its session does not speak for this user")
        return origin, ticket

    def _new_guest(
        self, caller: Caller, hello: Hello, user: str | None, grant: Grant | None
    ) -> Guest:
        line = Line(hello.name, self.limits, odd=True)
        if user is not None:
            self._make_room(user)
        name = self._free_name(hello.name)
        guest = Guest(line, name, hello.name, user, grant, caller.host)
        if user is not None and hello.token is not None:
            guest.tokens[user] = hello.token
        return self._enter(guest)

    def _free_name(self, name: str, origin: Guest | None = None) -> str:
        """A name that nobody else has, but for those who act for ``origin`` too: objects belong to
        callers by their names."""
        others = (guest for guest in self.guests.values() if guest.origin is not origin)
        taken = {peer.name for guest in others for peer in guest.peers} | {self.worker.id}
        wanted, number = name, 1
        while wanted in taken:
            number += 1
            wanted = f"{name}-{number}"
        return wanted

    def _users(self) -> set[str]:
        """The users who have a token, or had one when they came."""
        users = {user for guest in self.guests.values() for user in guest.users if user}
        try:
            if self.tokens is not None:
                users.update(row.user for row in self.tokens.rows())
        except FileRefused as error:
            STRANGERS.warning("%s", error)
            raise NotWelcome("token", "the worker cannot check tokens now") from None
        return users

    def _make_room(self, user: str) -> None:
        """Have those leave who are called as a user is, and came before it had a token."""
        for guest in self.guests.values():
            if user not in guest.users and any(user == peer.called for peer in guest.peers):
                self.board.broke(guest.line, BrokenFraming(REFUSED, "a user has this name now"))
                guest.line.end("a user has this name now")

    def _enter(self, guest: Guest) -> Guest:
        others = [(one.user, one.host) for one in self.guests.values()]
        if (why := self.admissions.excess(guest.user, guest.host, others)) is not None:
            raise NotWelcome("connections", why)
        line = guest.line
        line.id, line.secret = self._mark + secrets.token_urlsafe(16), secrets.token_urlsafe(32)
        line.user = guest.user
        line.heartbeat = self.heartbeat
        line.name = guest.name
        self.guests[line.id] = guest
        guest.users.add(guest.user)
        guest.grants[guest.user] = guest.grant
        channel = line.channel(0)
        channel.host = self.worker
        peer = self._peer(guest, guest.name, guest.user, self._session(guest), guest.grant)
        peer.place = guest.origin.mark, guest.said_name
        channel.peer = peer
        guest.stand_in = channel.caller = self._stand_in(guest, guest.said_name, channel)
        self.worker.callers[peer] = channel
        VISITS.info("let in %s%s", guest.name, f" for {guest.user}" if guest.user else "")
        self.visits.came(peer, guest.host, guest.origin.name if guest.root else None)
        return guest

    def _session(self, guest: Guest, user: str | None = None) -> Session:
        """A new session, whose limits are those of a user: of the guest's, if none is named."""
        return Session(self.admissions.account(user or guest.user, guest.host))

    def _stand_in(self, guest: Guest, name: str, channel: Channel) -> LineWorker:
        """What stands here for the worker at the other end of a channel."""
        worker = LineWorker(self.board, name, guest.line, channel=channel)
        if guest.root is not None:
            worker.vouch = partial(self.worker.vouch, guest.root, name)
        return worker

    def _peer(
        self, guest: Guest, name: str, user: str | None, session: Session, grant: Grant | None
    ) -> Peer:
        taken = name != user and name in self._users()
        called = f"{name}, who is no user" if taken else name
        peer = Peer(name, user, session, users=guest.users, called=called)
        if grant is not None:
            peer.plans, peer.reads = grant.plans, grant.read
        guest.peers.append(peer)
        self._by_peer[id(session)] = guest
        return peer

    def reached_for(self, line: Line) -> list[Line]:
        """The lines to workers to which the guest at the end of a line has introduced this one, and
        from those that it has introduced to this one."""
        guest = self.guests.get(line.id)
        if guest is None:
            return []
        acting = (one.line for one in self.guests.values() if one.root is guest.origin)
        known = (worker.line for worker in guest.origin.introduced.values())
        return [one for one in (*known, *acting) if one is not line]

    def speaks_for(self, guest: Guest, peer: Peer) -> None:
        """Note that the requests of ``peer``, to whose worker a guest has introduced this one, are
        made on behalf of that guest."""
        peer.place = guest.origin.mark, peer.said
        guest.peers.append(peer)
        self._by_peer[id(peer.session)] = guest

    # ------------------------------------------------------------------------------- channels

    def open(self, line: Line, opening: Open) -> None:
        """Serve the requests of another worker of a caller, or for another user."""
        guest = self.guests.get(line.id)
        if guest is None:
            raise BrokenFraming(REFUSED, "channels are opened by those who have called")
        if not _is_name(opening.source):
            raise BrokenFraming(REFUSED, "the name of a worker is empty, too long, or unprintable")
        channel = line.opened(opening.channel)
        try:
            user, grant = self._user_of(guest, opening)
        except NotWelcome as refusal:
            self.visits.refused(guest.host, refusal.code)
            channel.refused = WorkerRefused(self.worker.id, refusal.code, refusal.reason)
            return
        beside = line.channels.get(opening.beside) if opening.beside is not None else None
        if beside is not None and beside.peer is not None:
            name, session = beside.peer.name, beside.peer.session
        else:
            name, session = self._name_beside(guest, opening.source), self._session(guest, user)
        known = user in guest.users
        guest.users.add(user)
        channel.peer = self._peer(guest, name, user, session, grant)
        if not known:
            self.visits.came(channel.peer, guest.host)
        channel.peer.place = guest.origin.mark, opening.source
        channel.host = self.worker if opening.target == self.worker.id else None
        channel.caller = self._stand_in(guest, opening.source, channel)
        self.worker.callers[channel.peer] = channel

    def _name_beside(self, guest: Guest, source: str) -> str:
        known = {peer.name for peer in guest.peers}
        return source if source in known else self._free_name(source, guest.origin)

    def _user_of(self, guest: Guest, opening: Open) -> tuple[str | None, Grant | None]:
        """For whom the requests on a new channel are made, and what that one may do."""
        if opening.ticket is not None:
            origin, ticket = self._read_ticket(opening.ticket)
            if origin is not guest.origin or ticket.holder != guest.said_name:
                raise NotWelcome("ticket", "the ticket is another caller's")
            return ticket.user, origin.grants.get(ticket.user)
        grant = self._granted(guest.host, opening.token)
        if grant is None or opening.token is None:
            return None, None
        self._make_room(grant.user)
        guest.grants[grant.user] = grant
        guest.tokens[grant.user] = opening.token
        return grant.user, grant

    # -------------------------------------------------------------------------------- leaving

    def left(self, line: Line, reason: str) -> None:
        """Forget the guest whose line has ended, if it is that of a guest."""
        guest = self.guests.get(line.id)
        if guest is not None:
            self.dismiss(guest, reason)

    def guest_of(self, peer: Peer | None) -> Guest | None:
        """The guest from which a request comes."""
        return None if peer is None else self._by_peer.get(id(peer.session))

    def look(self, now: float) -> None:
        """Free what belongs to callers that do not come back."""
        absent = []
        for guest in list(self.guests.values()):
            if guest.line.ended is not None:
                self.dismiss(guest, guest.line.ended)
            elif not self._is_trusted(guest):
                self.dismiss(guest, "its token has expired or was revoked")
            elif guest.line.broken_since is not None:
                asked = guest.line.received > 0 or guest.line.user is not None
                if now - guest.line.broken_since > self._lease_of(guest) or not asked:
                    self.dismiss(guest, f"{guest.name} did not come back")
                else:
                    absent.append(guest)
        if len(absent) > _MOST_ABSENT:
            absent.sort(key=lambda guest: (guest.user is not None, guest.line.broken_since))
            for guest in absent[:-_MOST_ABSENT]:
                self.dismiss(guest, f"{guest.name} has left, as too many have")

    def _is_trusted(self, guest: Guest) -> bool:
        """Whether every token that a guest has shown still holds, as far as that can be checked."""
        book = self.tokens
        try:
            now = time.time()
            return book is None or all(book.check(one, now) for one in guest.tokens.values())
        except FileRefused as error:
            STRANGERS.warning("tokens cannot be checked: %s", error)
            return True

    def dismiss(self, guest: Guest, reason: str) -> None:
        """Forget a guest, those who act for it, and what they have here."""
        for other in [one for one in self.guests.values() if one.root is guest]:
            self.dismiss(other, reason)
        VISITS.info("%s has left: %s", guest.name, reason)
        self.visits.left(guest.peers, guest.host, reason)
        self.guests.pop(guest.line.id, None)
        self._forget(guest)
        self.board.part(guest.line, reason)  # a caller that waits for it knows that all is done
        if guest.root is not None:
            guest.root.peers.extend(guest.peers)  # what they brought stays as long as it does
            return
        self.board.network.flush()  # pointers that it had here, to what is elsewhere
        for worker in guest.introduced.values():
            self.board.part(worker.line, reason)
        for peer in guest.peers:
            self.worker.callers.pop(peer, None)
            self._by_peer.pop(id(peer.session), None)


def _is_name(text: str) -> bool:
    """Whether somebody may be called so: what cannot be printed would forge lines of a log."""
    return 0 < len(text) <= _MOST_NAME and text.isprintable()
