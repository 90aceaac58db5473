"""A worker that serves other processes over sockets."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from syft.exceptions import (
    AuditFailed,
    FileRefused,
    UnusableSetting,
    WorkerLost,
    WorkerRefused,
)
from syft.serde.limits import Limits
from syft.trust.certificates import Identity, own_certificate, server_context
from syft.trust.certificates import passing_context
from syft.trust.chained_log import ChainedLog
from syft.trust.lockout import Lockout
from syft.trust.pinned_tls import fingerprint_of
from syft.trust.tokens import TokenBook
from syft.version import software
from syft.workers.client.connection import Connection
from syft.workers.client.transport import Location
from syft.workers.core.peer import Peer
from syft.workers.core.peer_limits import PeerLimits
from syft.workers.shells.virtual import Hooked, VirtualWorker
from syft.workers.sockets.admission import MOST_CONNECTIONS, Admissions, check_limit
from syft.workers.sockets.address import Address, is_loopback
from syft.workers.sockets.dial_rules import DialRules
from syft.workers.sockets.failure_log import FailureLog
from syft.workers.sockets.guests import Caller, Guest, Reception
from syft.workers.sockets.introducing import IntroducedWorker, connect
from syft.workers.sockets.line import Line
from syft.workers.sockets.line_messages import Introduction, Meet
from syft.workers.sockets.line_transport import LineWorker
from syft.workers.sockets.serving import OutsideNetwork, ServingBoard
from syft.workers.sockets.sparse_log import LOG
from syft.workers.sockets.streams import PlainStream, Stream, TlsStream

_CERTIFICATE = re.compile(b"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class _Detached:
    """What a worker takes its network from, in the place of a hook."""

    def __init__(self, network: OutsideNetwork) -> None:
        self.local_worker: Any = self
        self.network = network


class WebsocketServerWorker(VirtualWorker):
    """A worker that serves other processes: at ``host`` and ``port``, or at a Unix socket.

    Off this machine (``host`` other than a loopback address) everything is encrypted, with the
    certificate in ``cert_path`` and ``key_path`` or with one that is made on the first start, for
    ``host`` and ``cert_names`` (other names and IP addresses of this machine), and kept in
    ``state``.  ``tokens`` are those with which users prove who they are (a
    :class:`~syft.trust.tokens.TokenBook`, or the path of one); with a book, or off this machine,
    callers without a token are refused unless ``anonymous`` says otherwise.  Plans are refused
    unless ``allow_plans``.  ``destinations`` are the workers that ``allow_destinations=`` of
    private tensors here may mean: by their names, the fingerprint of the certificate, or for one on
    this machine that has none its address.  ``dial`` lists the addresses to which the worker
    connects where a caller says that another worker is there (see
    :class:`~syft.workers.sockets.dial_rules.DialRules`); those of ``destinations`` are listed too.
    To a worker elsewhere it speaks through the caller.  ``audit`` is a file where is written who
    asked what of whose data (:class:`~syft.trust.chained_log.ChainedLog`); while nothing can be
    written there, the worker serves nobody.

    ``start()`` serves until :meth:`stop` is called; as a context manager the worker serves on a
    thread of its own.

    ``lease`` is how many seconds what a caller has made outlives its connection, and ``heartbeat``
    after how many seconds of silence a caller is asked for a sign of life.  ``connections`` is how
    many one user may have.  ``trusted_proxies`` are addresses or networks whose ``X-Forwarded-For``
    says where a caller is; ``lockout`` says when an address has tried too many wrong tokens (a
    :class:`~syft.trust.lockout.Lockout`).  ``log_msgs`` and
    ``verbose`` are taken for programs written for earlier versions, and change nothing: the log is
    that of ``syft.worker``.

    Raises :class:`~syft.exceptions.UnusableSetting` for a certificate without its key,
    :class:`~syft.exceptions.FileRefused` for files that cannot be used, and :class:`OSError` if the
    address is in use.

    >>> with WebsocketServerWorker(hook, port=0, id="dan") as dan:
    ...     print(dan.address.scheme, dan.objects_count())
    ws 0
    """

    network: OutsideNetwork

    def __init__(
        self,
        hook: Hooked | None = None,
        host: str = "127.0.0.1",
        port: int = 8777,
        id: str = "worker",
        data: Iterable[torch.Tensor] = (),
        *,
        unix: str | os.PathLike[str] | None = None,
        log_msgs: bool = False,
        verbose: bool = False,
        cert_path: str | os.PathLike[str] | None = None,
        key_path: str | os.PathLike[str] | None = None,
        state: str | os.PathLike[str] | None = None,
        cert_names: Iterable[str] = (),
        tokens: TokenBook | str | os.PathLike[str] | None = None,
        anonymous: bool | None = None,
        allow_plans: bool = False,
        limits: Limits | None = None,
        peer_limits: PeerLimits | None = None,
        destinations: Mapping[str, str] | None = None,
        dial: Iterable[str] = (),
        audit: str | os.PathLike[str] | None = None,
        lease: float = 60.0,
        heartbeat: float = 2.0,
        connections: int = MOST_CONNECTIONS,
        trusted_proxies: Iterable[str] = (),
        lockout: Lockout | None = None,
    ) -> None:
        check_limit("lease", lease)
        check_limit("heartbeat", heartbeat)
        admissions = Admissions(connections, trusted_proxies)
        network = OutsideNetwork()
        network.lookup = self._find
        self.board = ServingBoard(network, self._accept, self._look, self._accept_tunnel)
        book = tokens if tokens is None or isinstance(tokens, TokenBook) else TokenBook(tokens)
        super().__init__(
            _Detached(network),
            id,
            limits=limits,
            allow_plans=allow_plans,
            peer_limits=peer_limits,
        )
        network.workers.clear()
        network.workers[id] = self
        self._context: ssl.SSLContext | None = None
        self._sealed_by: tuple[ssl.SSLContext, str] | None = None
        try:
            local = unix is not None or is_loopback(_resolved(host))
            self.identity = self._identity(local, cert_path, key_path, state, (host, *cert_names))
            if self.identity is not None:
                self._context = server_context(self.identity.cert_path, self.identity.key_path)
            self.listener = _listener(host, port, unix)
        except BaseException:
            self.board.close()
            raise
        if anonymous is None:
            anonymous = local and book is None
        self.reception = Reception(
            self,
            self.board,
            self.core.limits,
            book,
            anonymous,
            lease,
            heartbeat,
            self._forget,
            admissions,
            lockout,
        )
        self.core.addressed = self._addressed
        self.core.place_of = self._place_of
        self.core.trace_of = FailureLog(self.board.doing)
        self.core.place_of_caller = _place_of_nobody
        self.destinations = dict(destinations or {})
        """The workers that guards here may name: by name, how they are known."""
        self.dial_rules = DialRules(dial, self.destinations.values())
        """To which addresses it connects where a caller says that a worker is there."""
        self._audit_to(audit)
        self.unix = unix
        self.host = host
        self.port = 0 if unix is not None else int(self.listener.getsockname()[1])
        self.board.openings.listen(self.listener)
        self._thread: threading.Thread | None = None
        self.hold(*data)

    def _identity(
        self, local: bool, cert: Any, key: Any, state: Any, names: Iterable[str]
    ) -> Identity | None:
        """The certificate with which connections are encrypted; None if they need not be."""
        if (cert is None) is not (key is None):
            raise UnusableSetting("cert_path", "given together with key_path", "one of them alone")
        if cert is not None:
            return Identity(Path(cert), Path(key), fingerprint_of(_first_certificate(Path(cert))))
        if local:
            return None
        folder = Path(state) if state is not None else Path.home() / ".syft" / self.id
        return own_certificate(folder, filter(None, names))

    def _audit_to(self, path: str | os.PathLike[str] | None) -> None:
        """Write what callers do to a file, if there is one."""
        self.audit = path
        """Where is written who asked what of whose data."""
        if path is not None:
            try:
                log = ChainedLog(path)
            except FileRefused:
                self.listener.close()
                self.board.close()
                raise
            self.board.owners_log = audit = self.core.keep_audit(log)
            audit.event("start", worker=self.id, software=software())

    @property
    def address(self) -> Address:
        """Where the worker is reached.

        >>> with WebsocketServerWorker(hook, port=0, id="dan") as dan:
        ...     dan.address.host
        '127.0.0.1'
        """
        if self.unix is not None:
            return Address("unix", str(Path(self.unix).absolute()))
        return Address("ws" if self.identity is None else "wss", self.host, self.port)

    def place_shown(self) -> str:
        """That it is in this process, and where others reach it.

        >>> with WebsocketServerWorker(hook, port=0, id="dan") as dan:
        ...     dan.place_shown()
        'in this process · at ws://127.0.0.1:...'
        """
        return f"{super().place_shown()} · at {self.address}"

    # ------------------------------------------------------------------------------- serving

    def start(self) -> None:
        """Serve until :meth:`stop` is called."""
        LOG.info("worker %s serves at %s", self.id, self.address)
        try:
            self.board.run()
        finally:
            self._say_goodbye()

    def stop(self, reason: str = "the worker was stopped") -> None:
        """Have :meth:`start` return when what is running is done; callers are told."""
        self.board.stop(reason)

    def __enter__(self) -> WebsocketServerWorker:
        self._thread = threading.Thread(target=self.start, name=f"syft worker {self.id}")
        self._thread.daemon = True
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving, and drop everything held."""
        if self.closed:
            return
        self.stop()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self.owning():
            self._clear(f"worker {self.id} was closed")
            self.network.flush()
        self._say_goodbye()
        super().close()

    def _say_goodbye(self) -> None:
        reason = self.board.stopping or "the worker was stopped"
        with self.board.monitor, self.board.io:
            for guest in list(self.reception.guests.values()):
                self.reception.dismiss(guest, reason)
            self.board.close()
            end_audit(self, reason)
        self.listener.close()
        if self.unix is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.unix)

    def _accept(self, sock: socket.socket) -> Caller:
        """What takes a new connection's first messages."""
        stream: Stream
        host: str | None = None
        if sock.family != socket.AF_UNIX:
            host = sock.getpeername()[0]
        if self._context is None:
            stream = PlainStream(sock)
        else:
            secured = self._context.wrap_socket(
                sock, server_side=True, do_handshake_on_connect=False
            )
            stream = TlsStream(secured)
        return Caller(self.reception, stream, host)

    def _accept_tunnel(self, line: Line, sock: socket.socket) -> str:
        """Take what comes through a tunnel as one more connection; returns the fingerprint of the
        certificate that is shown to it."""
        guest = self.reception.guests.get(line.id)
        if guest is None or guest.root is not None:
            raise ConnectionRefusedError("tunnels are opened by callers that speak for themselves")
        context, fingerprint = self._sealing()
        secured = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        stream = TlsStream(secured, tunnelled=True)
        self.board.openings.let_in(Caller(self.reception, stream, guest.host, guest))
        return fingerprint

    def _sealing(self) -> tuple[ssl.SSLContext, str]:
        """What encrypts tunnels: the worker's certificate, or one that is kept in memory alone."""
        if self._sealed_by is None:
            if self._context is not None and self.identity is not None:
                self._sealed_by = self._context, self.identity.fingerprint
            else:
                self._sealed_by = passing_context()
        return self._sealed_by

    def _look(self, now: float) -> None:
        self.reception.look(now)

    def _forget(self, guest: Guest) -> None:
        """Free what belongs to a caller that has left for good."""
        self.core.leave(guest.peers, guest.name, objects=guest.root is None)
        self.network.carry(self.core.outgoing(), self)

    # ---------------------------------------------------------------------- what the owner does

    @contextlib.contextmanager
    def owning(self) -> Iterator[None]:
        """A context in which the owner's program uses what is held, while nobody is served.

        >>> with WebsocketServerWorker(hook, port=0, id="dan") as server, server.owning():
        ...     len(server.core.store)
        0
        """
        with self.board.monitor, self.board.io:
            yield
            self.network.carry(self.core.outgoing(), self)
        self.board.wake()

    def hold(self, *tensors: torch.Tensor, allow_writes: Iterable[str] = ()) -> list[int]:
        """Put tensors of the data owner into the store; see
        :meth:`~syft.workers.shells.virtual.VirtualWorker.hold`."""
        with self.owning():
            return super().hold(*tensors, allow_writes=allow_writes)

    def add_dataset(self, dataset: Any, key: str) -> None:
        """Offer a data set to whoever trains at this worker; see
        :meth:`~syft.workers.shells.named_datasets.NamedDatasets.add_dataset`."""
        with self.owning():
            super().add_dataset(dataset, key)

    def collect(self) -> None:
        """Tell other workers which pointers are gone."""
        with self.owning():
            self.network.flush()

    @property
    def _objects(self) -> dict[int, torch.Tensor]:
        with self.owning():
            return super()._objects

    def clear_objects(self, return_self: bool = True) -> VirtualWorker | None:
        """Drop every object; pointers to them raise when they are used."""
        with self.owning():
            return super().clear_objects(return_self)

    def give_up_promises_of(self, caller: str, reason: str) -> None:
        """Give up every promise of the callers of that name; see
        :meth:`~syft.workers.shells.virtual.VirtualWorker.give_up_promises_of`."""
        with self.owning():
            super().give_up_promises_of(caller, reason)

    # -------------------------------------------------------------------------- other workers

    def connection_to(self, worker: str | Location) -> Connection:
        """This worker's connection to another one."""
        with self.board.monitor:
            return super().connection_to(worker)

    def _find(self, name: str) -> Any:
        """The worker that the present caller calls by that name; None if there is none."""
        guest = self.reception.guest_of(self.core.serving)
        if guest is None:
            return None
        if guest.root is not None and name == guest.said_name:
            return guest.stand_in
        origin = guest.origin
        if name == origin.said_name:
            return origin.stand_in
        known = origin.introduced.get(name)
        if known is not None and not known.closed and known.line.ended is None:
            return known
        return self._meet(origin, name)

    def _place_of(self, name: str) -> str:
        """The worker that the present caller calls so, if the owner of this one knows it too.

        Callers choose the names of the workers that they introduce, so a name alone is nobody's.
        """
        known = self.destinations.get(name)
        worker = None if known is None else self._find(name)
        if isinstance(worker, IntroducedWorker) and worker.known_by == known:
            return name
        return f"{name}, as its caller calls it"

    def _addressed(self, name: str) -> Any:
        """The worker of a name, as the present caller means it."""
        return self if name == self.id else self._find(name) or name

    def introduction(
        self, guest: Guest, name: str, user: str | None, to: str | None = None
    ) -> Introduction:
        """What a caller says of a worker that it calls ``name``; the caller is waited for."""
        number = self.board.next_number()
        with self.board.io.lock:
            meet = Meet(number, name, user, to)
            answer: Introduction = self.board.ask(guest.line, number, meet)
        return answer

    def vouch(self, guest: Guest, to: str, names: set[str]) -> None:
        """Have a caller introduce a worker to others, because a message to it names them.

        >>> with WebsocketServerWorker(hook, port=0, id="dan") as dan:
        ...     caller = sy.connect(str(dan.address), id="caller")
        ...     (guest,) = dan.reception.guests.values()
        ...     with dan.owning():
        ...         dan.vouch(guest, "eve", {"dan"})
        ...     caller.close()
        """
        for name in names - {self.id, to, guest.said_name}:
            if (to, name) not in guest.vouched:
                guest.vouched.add((to, name))
                with contextlib.suppress(WorkerLost):
                    self.introduction(guest, name, guest.user, to)

    def _meet(self, guest: Guest, name: str) -> LineWorker | None:
        """Connect to a worker to which a caller introduces this one."""
        try:
            told = self.introduction(guest, name, guest.user)
        except WorkerLost:
            return None
        if told.unknown:
            return None
        if told.address is not None:
            return connect(self, guest, name, told)
        worker = LineWorker(self.board, name, guest.line, target=name)
        guest.introduced[name] = worker
        return worker

    def in_background(self, act: Callable[[], Any]) -> Any:
        """What ``act`` returns, which runs in a thread of its own while others are served.  What
        callers were answered goes out before, unless earlier replies are on their way.

        >>> dan = WebsocketServerWorker(hook, port=0, id="dan")
        >>> dan.in_background(lambda: 5)
        5
        >>> dan.close()
        """
        outcome: list[Any] = []

        def run() -> None:
            try:
                outcome.append((act(), None))
            except Exception as error:
                outcome.append((None, error))
            self.board.wake()

        letters = self.core.outgoing() if self.network.is_quiet() else []
        self.core.outbox.extend(letter for letter in letters if not isinstance(letter[0], Peer))
        for peer, frame in letters:
            if isinstance(peer, Peer):
                self.reply(peer, frame)
        thread = threading.Thread(target=run, name="syft dial", daemon=True)
        thread.start()
        while not outcome:
            self.board.turn(None, True)
        thread.join()
        value, error = outcome[0]
        if isinstance(error, WorkerRefused | OSError):
            raise WorkerLost("the other worker", str(error)) from None
        if error is not None:
            raise error
        return value


def end_audit(server: WebsocketServerWorker, reason: str) -> None:
    """Write the last line of the owner's log, if there is one."""
    core, board = server.core, server.board
    audit, core.audit, board.owners_log = core.audit, None, None
    if audit is not None:
        try:
            audit.close(reason)
        except AuditFailed as error:
            LOG.error("the end of the audit log is not on the disk (%s)", error.reason)


def _place_of_nobody(peer: Peer) -> str:
    """A caller chooses its name, and a ticket is from whoever introduced it: no guard means it."""
    return f"{peer.name}, as it calls itself"


def _resolved(host: str) -> str:
    """The IP address of a name; raises :class:`OSError` for one that is unknown."""
    if is_loopback(host):
        return host
    found = socket.getaddrinfo(host or "0.0.0.0", None, type=socket.SOCK_STREAM)
    return str(found[0][4][0])


def _first_certificate(path: Path) -> bytes:
    """The first certificate in a file (DER); a key, or what it says in words, may stand before."""
    found = _CERTIFICATE.search(path.read_bytes())
    try:
        return ssl.PEM_cert_to_DER_cert(found[0].decode("ascii") if found else "")
    except ValueError:
        raise FileRefused(str(path), "it holds no certificate", "name one, in PEM") from None


def _listener(host: str, port: int, unix: Any) -> socket.socket:
    if unix is not None:
        return _unix_listener(str(unix))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


def _unix_listener(path: str) -> socket.socket:
    """Listen at a path; a socket that nobody serves any more is replaced."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        probe = socket.socket(socket.AF_UNIX)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            if Path(path).is_socket():  # a file refuses too, and stays
                os.unlink(path)
        except FileNotFoundError:
            pass
        finally:
            probe.close()
        mask = os.umask(0o177)  # its owner alone connects
        try:
            listener.bind(path)
        finally:
            os.umask(mask)
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener
