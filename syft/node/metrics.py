"""What supervisors ask a worker over HTTP, on a port of its own: is it there, is it ready, and how
much of what there is.

``/healthz`` answers while the process serves, ``/readyz`` while a caller would be let in, and
``/metrics`` has counts for Prometheus.  Nothing here waits for an operation: only counts are read,
without a lock, so they are a moment old.  They say how much users have and never what: no value, no
shape, no name of data.

The port has no token.  It is off by default, and for this machine alone unless the owner says
otherwise: the names of users are in the counts.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from syft.exceptions import FileRefused
from syft.version import VERSION
from syft.workers.sockets.server import WebsocketServerWorker

_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_MOST_AT_ONCE: Final = 16
_PATIENCE: Final = 5.0

Sample = tuple[str, str, str, list[tuple[dict[str, str], float]]]
"""A metric: its name, its type, what it counts, and its values by their labels."""


class MetricsServer:
    """Answers such questions about ``server``, on threads of its own, at ``host`` and ``port``.

    Raises :class:`OSError` if the address is in use.

    >>> import urllib.request
    >>> with sy.WebsocketServerWorker(hook, port=0, id="dan") as dan:
    ...     asked = MetricsServer(dan, "127.0.0.1", 0)
    ...     urllib.request.urlopen(f"http://{asked.address}/metrics").status
    ...     asked.close()
    200
    """

    def __init__(self, server: WebsocketServerWorker, host: str, port: int) -> None:
        handler = type("Handler", (_Handler,), {"worker": server})
        self._http = _Http((host, port), handler)
        where, at = self._http.server_address[:2]
        self.address = f"[{where!s}]:{at}" if ":" in str(where) else f"{where!s}:{at}"
        """Where it answers: host and port."""
        self._thread = threading.Thread(target=self._http.serve_forever, name="syft metrics")
        self._thread.daemon = True
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Http(ThreadingHTTPServer):
    """Answers a few questions at a time, each within some seconds, however slowly it is asked."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        self._free = threading.Semaphore(_MOST_AT_ONCE)
        self._until: dict[Any, float] = {}
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind the socket; the name of this machine, for which others would be asked, is unused."""
        socketserver.TCPServer.server_bind(self)

    def service_actions(self) -> None:
        """Hang up on who has taken too long; called twice a second."""
        now = time.monotonic()
        for request, until in tuple(self._until.items()):
            if now > until:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on another thread, if not too many are at it."""
        if self._free.acquire(blocking=False):
            self._until[request] = time.monotonic() + _PATIENCE
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """See :class:`socketserver.ThreadingMixIn`."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            del self._until[request]
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked has gone: nothing to say."""


class _Handler(BaseHTTPRequestHandler):
    worker: WebsocketServerWorker
    timeout = _PATIENCE
    server_version, sys_version = "syft", ""

    def do_GET(self) -> None:  # noqa: N802: the name that the standard library calls
        """Answer a question."""
        why = why_not(self.worker, self.path == "/readyz")
        if self.path == "/metrics":
            self._answer(200, shown(samples(self.worker)), _TEXT)
        elif self.path in ("/healthz", "/readyz"):
            said = "ready\n" if self.path == "/readyz" else "ok\n"
            self._answer(200 if why is None else 503, said if why is None else f"{why}\n")
        else:
            self._answer(404, "/healthz, /readyz or /metrics\n")

    def _answer(self, status: int, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *about: Any) -> None:
        """The log is for what the owner must know."""


def why_not(server: WebsocketServerWorker, to_callers: bool) -> str | None:
    """Why a worker does not serve or, with ``to_callers``, why none would be let in; None: it does.

    >>> dan = sy.WebsocketServerWorker(hook, port=0, id="dan")
    >>> why_not(dan, True), dan.close()
    ('it has not begun to serve', None)
    """
    board = server.board
    if server.closed or board.stopping is not None:
        return board.stopping or "it is closed"
    if not board.serves:
        return "it has not begun to serve"
    return _why_nobody(server) if to_callers else None


def _why_nobody(server: WebsocketServerWorker) -> str | None:
    """Why nobody is let in at a worker that serves."""
    audit, book = server.core.audit, server.reception.tokens
    if audit is not None and audit.broken is not None:
        return f"the audit log cannot be written ({audit.broken})"
    try:
        if book is not None:
            book.rows()
    except FileRefused as error:
        return str(error)
    return None


def samples(server: WebsocketServerWorker) -> Iterator[Sample]:
    """All that is counted.

    >>> with sy.WebsocketServerWorker(hook, port=0, id="dan") as dan:
    ...     [name for name, *_ in samples(dan)][:2]
    ['syft_info', 'syft_uptime_seconds']
    """
    board, stats, admissions = server.board, server.stats, server.reception.admissions
    yield _one("info", "gauge", "What runs.", 1, version=VERSION, worker=server.id)
    yield _one("uptime_seconds", "counter", "Since the worker began.", time.monotonic() - _BEGAN)
    lines = tuple(board.lines)
    connected = sum(line.websocket is not None for line in lines)
    yield _one("connections", "gauge", "Connections of callers and to workers.", connected)
    yield _one(
        "openings",
        "gauge",
        "Connections whose callers are yet to say who they are.",
        len(board.openings),
    )
    yield _one(
        "absent_callers",
        "gauge",
        "Callers that are gone and may come back.",
        len(lines) - connected,
    )
    yield _one("admitted_total", "counter", "Connections that were let in.", admissions.admitted)
    refused = [({"code": code}, float(count)) for code, count in dict(admissions.refused).items()]
    yield "syft_refused_total", "counter", "Callers that were not let in, by why.", refused
    yield _one("requests_total", "counter", "Requests that came.", stats.messages_in)
    yield _one("received_bytes_total", "counter", "Bytes of requests.", stats.bytes_in)
    yield _one("sent_bytes_total", "counter", "Bytes of answers.", stats.bytes_out)
    yield _one("serving_seconds_total", "counter", "Seconds spent on requests.", board.served_for)
    yield _one("running_seconds", "gauge", "How long what runs now has taken.", board.running_for)
    waiting = sum(len(line.inbox) for line in lines)
    yield _one("waiting_requests", "gauge", "Requests that came and wait.", waiting)
    yield _one("objects", "gauge", "Objects in the store.", len(server.core.store))
    accounts = admissions.accounts().items()
    for name, text in (("objects", "Objects counted for a user."), ("bytes", "Bytes of them.")):
        counts = [({kind: who}, float(getattr(one, name))) for (kind, who), one in accounts]
        yield f"syft_user_{name}", "gauge", text, counts
    yield _one("resident_bytes", "gauge", "Memory of the process.", _resident())
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield _one("cpu_seconds_total", "counter", "Processor time.", used.ru_utime + used.ru_stime)


_BEGAN: Final = time.monotonic()


def _one(name: str, kind: str, text: str, value: float, **labels: str) -> Sample:
    return f"syft_{name}", kind, text, [(labels, float(value))]


def shown(metrics: Iterator[Sample]) -> str:
    """Metrics in the text format of Prometheus.

    >>> print(shown(iter([("syft_x", "gauge", "An x.", [({"user": 'a"b'}, 2.0)])])), end="")
    # HELP syft_x An x.
    # TYPE syft_x gauge
    syft_x{user="a\\"b"} 2
    """
    lines = []
    for name, kind, text, values in metrics:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        for labels, value in values:
            said = ",".join(f'{key}="{_escaped(one)}"' for key, one in labels.items())
            lines.append(f"{name}{{{said}}} {value:.15g}" if said else f"{name} {value:.15g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _resident() -> float:
    """Bytes of memory that the process holds; the most so far, where the system says no other."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return float(most) * (1 if sys.platform == "darwin" else 1024)
