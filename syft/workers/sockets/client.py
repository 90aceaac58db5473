"""Workers of other processes, for a program that calls them."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from syft.exceptions import (
    PermissionDenied,
    SyftError,
    WorkerIdTaken,
    WorkerLost,
    WorkerRefused,
)
from syft.serde.limits import Limits
from syft.trust import tickets
from syft.trust.tickets import Ticket
from syft.workers.client.answers import summaries_in
from syft.workers.core.peer import Peer, Session
from syft.workers.shells.asked_again import AskedAgain, Reconnecting
from syft.workers.shells.network import Network
from syft.workers.shells.virtual import Hooked, VirtualWorker
from syft.workers.shells.worker import Worker
from syft.workers.sockets.address import Address
from syft.workers.sockets.calling import CallingBoard, Keeper
from syft.workers.sockets.dialling import AskedFor, Target, sensible
from syft.workers.sockets.guests import TICKET_SECONDS
from syft.workers.sockets.line import Line
from syft.workers.sockets.line_messages import Introduction, Meet, Welcome
from syft.workers.sockets.line_transport import LineWorker
from syft.workers.sockets.steady_clock import seconds_ahead, steady_time
from syft.workers.sockets.websocket import WebSocket
from syft.workers.wire.messages import Drop, Search

_PATIENCE: Final = 10.0
"""Seconds in which a worker must answer when it is first called."""

LOG: Final = logging.getLogger("syft.client")

_exchanges: weakref.WeakSet[_Exchange] = weakref.WeakSet()


def _forget_lines() -> None:
    """In a forked process: the sockets are the parent's, which goes on with them."""
    for exchange in list(_exchanges):
        exchange.keeper = None
        exchange.board.forked()
        for line in exchange.board.lines:
            if line.websocket is not None:
                line.websocket.forked()
            line.end("this process was forked from the one that connected; connect anew in it")


os.register_at_fork(after_in_child=_forget_lines)


class _Exchange:
    """The lines of one network of this process, and what looks after them."""

    def __init__(self, network: Network) -> None:
        self.board = CallingBoard(network)
        self.board.introduce = self.introduce
        self.board.relays.leads_to = self.leads_to
        self._passed_on: set[frozenset[str]] = set()
        self.workers: dict[Line, WebsocketClientWorker] = {}
        self._others_of: dict[str, set[str]] = {}
        self.keeper: Keeper | None = None

    def enter(self, worker: WebsocketClientWorker) -> None:
        self.workers[worker.line] = worker
        if self.keeper is None:
            self.keeper = Keeper(self.board)

    def leave(self, worker: WebsocketClientWorker) -> None:
        self.workers.pop(worker.line, None)
        for other in self._others_of.pop(worker.id, ()):
            self._others_of[other].discard(worker.id)
        self._passed_on = {pair for pair in self._passed_on if worker.id not in pair}
        if not self.workers and self.keeper is not None:
            keeper, self.keeper = self.keeper, None
            keeper.stop()

    def acquaint(self, worker: str, others: set[str]) -> None:
        """Note that a worker has to deal with others, and these with it."""
        for other in others - {worker}:
            self._others_of.setdefault(worker, set()).add(other)
            self._others_of.setdefault(other, set()).add(worker)

    def introduce(self, line: Line, meet: Meet) -> Introduction:
        """Where a worker is that another one wants to call, and a ticket for calling it.

        A worker with a ticket acts with the rights of this program.  So it gets one for those alone
        with which it was asked to deal, and for users for whom it was asked.
        """
        network = self.board.network
        others = self._others_of.get(line.name, set()) & set(network.workers)
        proved = meet.user is None or meet.user in line.users
        if meet.name not in others or not proved or meet.to not in (None, *others):
            return Introduction(meet.number, meet.name, unknown=True, others=sorted(others))
        named = network.workers[meet.name]
        if meet.to is not None:
            self.acquaint(meet.to, {meet.name})
        elif isinstance(named, WebsocketClientWorker):
            return named.introduction(meet, line.name)
        return Introduction(meet.number, meet.name)

    def leads_to(self, line: Line, name: str) -> Line | None:
        """The line to a worker that another one cannot reach, and to which this program introduces
        it; it passes on what the two send each other, and says so once."""
        network = self.board.network
        named = network.workers.get(name) if name in self._others_of.get(line.name, ()) else None
        if not isinstance(named, WebsocketClientWorker):
            return None
        pair = frozenset((line.name, name))
        if pair not in self._passed_on:
            self._passed_on.add(pair)
            text = "worker %s cannot reach worker %s: what they send each other passes this program"
            LOG.info(text + ", sealed between the two", line.name, name)
        return named.line


def _exchange_of(network: Network) -> _Exchange:
    """The lines of a network, of which there may be none yet."""
    if network.lines is None:  # kept there, since they refer to the network, which may go
        network.lines = _Exchange(network)
        _exchanges.add(network.lines)
    exchange: _Exchange = network.lines
    return exchange


def _blocks_by_default() -> bool:
    """Whether the environment says that each request is to wait for its reply."""
    return os.environ.get("SYFT_BLOCKING", "") not in ("", "0")


class _Within(threading.local):
    """How many seconds each wait of the present thread may last, if something says so."""

    seconds: Any = object()


class WebsocketClientWorker(LineWorker, metaclass=Reconnecting):
    """A worker of another process, which serves at ``host`` and ``port`` or at a Unix socket.

    It is used as a :class:`~syft.workers.shells.virtual.VirtualWorker` is.  ``id`` is its name in
    this program; by default the one that it has.  ``token`` proves for whom this program speaks,
    and ``tokens`` for which other users it may.  ``fingerprint`` is that of the worker's
    certificate; without one, the certificate must be signed for the host by an authority that the
    system, or ``ca_file``, knows.

    Requests do not wait for their replies; with ``blocking`` (or ``SYFT_BLOCKING=1``) each one
    does, so that an error rises at its line.  With ``lazy`` they travel together
    (:meth:`~syft.workers.shells.worker.Worker.lazy`).  ``timeout`` is how many seconds a wait may
    last.
    ``verbose`` and ``is_client_worker`` are taken for programs written for earlier versions, and
    change nothing.

    Whoever asks for the same again, as a cell of a notebook does that is run twice, gets the same
    object; if its connection was lost, a new one in its place.

    Raises :class:`OSError` if nobody answers at the address,
    :class:`~syft.exceptions.WorkerRefused`, and :class:`~syft.exceptions.WorkerIdTaken`, which
    says what is different, if another worker has that name.

    >>> with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
    ...     dan = sy.WebsocketClientWorker(hook, port=server.port)
    ...     (torch.ones(2).send(dan) + 1).get()
    ...     sy.WebsocketClientWorker(hook, port=server.port) is dan
    ...     dan.close()
    tensor([2., 2.])
    True
    """

    board: CallingBoard

    def __init__(
        self,
        hook: Hooked,
        host: str = "127.0.0.1",
        port: int = 8777,
        id: str | None = None,
        *,
        address: Address | None = None,
        token: str | None = None,
        tokens: Mapping[str, str] | None = None,
        fingerprint: str | None = None,
        ca_file: str | None = None,
        blocking: bool | None = None,
        lazy: bool = False,
        timeout: float | None = None,
        limits: Limits | None = None,
        heartbeat: float = 2.0,
        verbose: bool = False,
        is_client_worker: bool = True,
    ) -> None:
        local: Any = hook.local_worker
        if address is None:
            address = Address("wss" if fingerprint or ca_file else "ws", host, port)
        limits = limits or local.core.limits
        target = Target(address, local.id, fingerprint, ca_file, token, None, limits, heartbeat)
        blocking = _blocks_by_default() if blocking is None else blocking
        self.tokens = {} if tokens is None else tokens
        self.asked = AskedFor(target, self.tokens, blocking, timeout, lazy)
        """With what this program asked for it."""
        self.is_client_worker = is_client_worker
        there = _there_already(local.network, id, self.asked)
        if there is not None:
            raise AskedAgain(there)
        self._connect(local, id)

    def _connect(self, local: VirtualWorker, id: str | None) -> None:
        """Dial, and enter the network under the name ``id``, or under that which the worker has."""
        asked, network = self.asked, local.network
        target = asked.target
        if id is not None:
            _check_free(network, id, asked)
        websocket, welcome = self._dialled(target)
        with network.monitor:
            try:  # another thread may have asked for the same meanwhile
                there = _there_already(network, id, asked)
                if there is not None:
                    raise AskedAgain(there)
                _check_free(network, id or welcome.worker, asked)
            except (AskedAgain, WorkerIdTaken):
                websocket.stream.close()
                raise
            self._enter(local, id or welcome.worker, websocket, welcome)

    def _dialled(self, target: Target) -> tuple[WebSocket, Welcome]:
        """A new line; a refusal says what ``tokens=`` alone do not prove."""
        try:
            return target.dial(None, _PATIENCE)
        except WorkerRefused as refused:
            if refused.code != "token" or target.token is not None or not self.tokens:
                raise
            why = f"{refused.reason} (tokens= are for other users, and token= is your own)"
            raise WorkerRefused(refused.address, refused.code, why) from None

    def _enter(self, local: VirtualWorker, id: str, websocket: WebSocket, welcome: Welcome) -> None:
        """Enter the network as the worker at the other end of a connection, in its monitor."""
        asked, network = self.asked, local.network
        target = asked.target
        line = Line(id, target.limits, odd=False)
        line.id, line.secret, line.user = welcome.line, welcome.secret, welcome.user
        line.users.add(line.user)
        line.ahead = seconds_ahead(welcome.clock)
        line.heartbeat = sensible(target.heartbeat, welcome.heartbeat)
        exchange = _exchange_of(network)
        super().__init__(exchange.board, id, line, local.id, welcome.worker)
        self.target_address = target
        self.welcome = welcome
        """What the worker said when this program connected."""
        self.timeout = asked.timeout
        self._within = _Within()
        self.blocking = asked.blocking
        self.is_lazy = asked.lazy
        self._exchange = exchange
        self.vouch = partial(exchange.acquaint, id)
        self._serve_beside(local)
        network.workers[id] = self
        self.board.begin(line, websocket, target.dial)
        exchange.enter(self)

    def _serve_beside(self, local: VirtualWorker) -> None:
        """Have the local worker serve what the other end asks."""
        channel = self.line.channel(0)
        channel.host, channel.caller = local, self
        channel.peer = Peer(self.id, None, Session(), users=())
        local.callers[channel.peer] = channel

    @property
    def address(self) -> Address:
        """Where the worker is."""
        return self.target_address.address

    @property
    def host(self) -> str | None:
        """The host of :attr:`address`; None for a worker at a Unix socket.

        >>> with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
        ...     dan = sy.connect(str(server.address))
        ...     print(dan.host, dan.port == server.port)
        ...     dan.close()
        127.0.0.1 True
        """
        return None if self.address.scheme == "unix" else self.address.host

    @property
    def port(self) -> int | None:
        """The port of :attr:`address`; None for a worker at a Unix socket."""
        return None if self.address.scheme == "unix" else self.address.port

    def proof(self, user: str | None) -> tuple[str | None, str | None]:
        """The token for a user, if this program has it."""
        if user is None or user == self.line.user:
            return self.target_address.token, None
        return self.tokens.get(user), None

    def check_known(self, network: Network, asked: str) -> None:
        """Raise if another worker of this program has its name."""
        Worker.check_known(self, network, asked)

    def introduction(self, meet: Meet, holder: str) -> Introduction:
        """Where this worker is, and a ticket with which ``holder`` may call it."""
        line = self.line
        user = line.user if meet.user is None else meet.user
        if user is not None and user not in line.users:
            self._prove(user)
        until = steady_time() + line.ahead + TICKET_SECONDS
        ticket = Ticket(line.id, holder, user, until)
        text = tickets.mint(tickets.ticket_key(line.secret), ticket)
        fingerprint = self.target_address.fingerprint
        return Introduction(
            meet.number, meet.name, str(self.address), fingerprint, text, relays=True
        )

    def _prove(self, user: str) -> None:
        """Prove to the worker that this program speaks for ``user``, if it can: it believes no
        ticket for a user otherwise."""
        connection = self.network.local.connection_to(self)
        with contextlib.suppress(PermissionDenied, WorkerLost):  # who uses the ticket is told
            connection.transport.prove(user)
            self.board.wait_until_arrived(self.line)

    @contextlib.contextmanager
    def within(self, seconds: float | None) -> Iterator[None]:
        """A context in which each wait of this thread for the worker ends after so many seconds,
        or with None never.

        Raises :class:`~syft.exceptions.WorkerTimeout` at the line that waits; what was asked may
        still be done.
        """
        mine = self._within
        outer, mine.seconds = mine.seconds, seconds
        try:
            yield
        finally:
            mine.seconds = outer

    @property
    def patience(self) -> float | None:
        """Seconds that a wait of this thread for the worker may last; None: it has no end."""
        seconds = self._within.seconds
        return self.timeout if seconds is _Within.seconds else seconds

    def list_objects(self) -> list[int]:
        """The ids of what this program finds at the worker: what it has made there, and what has
        tags."""
        return [id for id, _ in summaries_in(self.connection().ask(Search, ()))]

    def objects_count(self) -> int:
        """How many objects :meth:`list_objects` lists."""
        return len(self.list_objects())

    list_objects_remote = list_objects
    objects_count_remote = objects_count

    def clear_objects_remote(self) -> None:
        """Drop what this program has made at the worker; pointers to it raise when they are used.

        What belongs to others stays.
        """
        connection = self.connection()
        connection.requests.tell(Drop(0, tuple(self.list_objects())))

    def __repr__(self) -> str:
        state = " closed" if self.closed or self.line.ended is not None else ""
        return f"<{type(self).__name__} id:{self.id} at {self.address}{state}>"

    def place_shown(self) -> str:
        """Where it is, as whom this program speaks, and what runs there."""
        user = self.line.user or "nobody in particular"
        closed = "closed" if self.closed or self.line.ended is not None else ""
        shown = [str(self.address), f"as {user}", self.welcome.software, closed]
        return " · ".join(filter(None, shown))

    def close(self) -> None:
        """Say goodbye, and make no more requests. What this program has there is freed.

        What was asked before and has not begun after a heartbeat is not done.
        """
        with self.board.monitor:
            if self.closed:
                return
            for host in self.network.hosts.values():
                for connection in host.connections():
                    if connection.location.id == self.id and not connection.transport.closed:
                        self._take_leave(connection)
            self.closed = True
            self.board.leave(self.line)
            if self.network.workers.get(self.id) is self:
                del self.network.workers[self.id]
            self._exchange.leave(self)

    def _take_leave(self, connection: Any) -> None:
        """Let the worker do what it was asked, a little while: it may have to ask this program
        where the workers are that pointers lead to."""
        with contextlib.suppress(SyftError), self.within(self.line.heartbeat), self.limited():
            connection.let_others_refer()
        with contextlib.suppress(SyftError):
            connection.flush()


def _there_already(
    network: Network, id: str | None, asked: AskedFor
) -> WebsocketClientWorker | None:
    """The worker for which a program asks again; one whose connection was lost makes room."""
    for worker in tuple(network.workers.values()):
        if not isinstance(worker, WebsocketClientWorker) or worker.asked != asked:
            continue
        if worker.id == (id or worker.target):
            worker.board.look_at(worker.line)
            if worker.line.ended is None:
                return worker
            worker.close()
            break
    return None


def _check_free(network: Network, id: str, asked: AskedFor) -> None:
    """Raise if a worker has this name, and say what it was asked for with that is different."""
    worker = network.workers.get(id)
    if isinstance(worker, WebsocketClientWorker):
        raise WorkerIdTaken(id, worker.asked.differences(asked))
    if worker is not None:
        raise WorkerIdTaken(id)
