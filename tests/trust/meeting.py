"""Two ends that meet on a local TCP socket, each with its own idea of how to talk."""

from __future__ import annotations

import socket
import ssl
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass

SECRET = b"syft_token: what nobody but the right server may receive"
REPLY = b"welcome"
_PATIENCE = 10.0

End = Callable[[socket.socket], bytes]
"""What one end does with its socket; returns what it received as data."""


@dataclass(frozen=True)
class Outcome:
    """What each end received, or the exception that ended it."""

    server: bytes | Exception
    client: bytes | Exception


def meet(server: End, client: End) -> Outcome:
    """Let the two ends talk; both sockets are closed afterwards."""
    results: dict[str, bytes | Exception] = {}

    def run(name: str, end: End, connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(_PATIENCE)
                results[name] = end(connection)
        except Exception as error:
            # Without its traceback, which would keep the sockets of the frames alive.
            results[name] = error.with_traceback(None)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(_PATIENCE)

        def serve() -> None:
            run("server", server, listening.accept()[0])

        thread = threading.Thread(target=serve)
        thread.start()
        run("client", client, socket.create_connection(listening.getsockname(), _PATIENCE))
        thread.join()
    return Outcome(results["server"], results["client"])


def tls_server(context: ssl.SSLContext) -> End:
    """A server that reads one message and answers it."""

    def end(connection: socket.socket) -> bytes:
        with context.wrap_socket(connection, server_side=True) as tls:
            received = tls.recv(1000)
            tls.sendall(REPLY)
            return received

    return end


def tls_client(context: ssl.SSLContext, host: str = "localhost") -> End:
    """A client that sends the secret as soon as its handshake is done."""

    def end(connection: socket.socket) -> bytes:
        with context.wrap_socket(connection, server_hostname=host) as tls:
            tls.sendall(SECRET)
            return tls.recv(1000)

    return end


def plain_server(connection: socket.socket) -> bytes:
    """A server that knows nothing of TLS and is friendly to everybody."""
    received = connection.recv(1000)
    connection.sendall(REPLY)
    return received


def plain_client(connection: socket.socket) -> bytes:
    """A client that knows nothing of TLS."""
    connection.sendall(SECRET)
    return connection.recv(1000)


def weakened(
    context: ssl.SSLContext, version: ssl.TLSVersion | None = None, ciphers: str = "ALL"
) -> ssl.SSLContext:
    """Let a context speak one old version alone, or any, with ciphers of any strength."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.set_ciphers(f"{ciphers}:@SECLEVEL=0")
        context.minimum_version = version or ssl.TLSVersion.TLSv1
        if version is not None:
            context.maximum_version = version
    return context


def careless_client() -> ssl.SSLContext:
    """The client that an attacker hopes for: it verifies nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
