"""The command ``syft`` as it is installed: what needs no torch is done here, all else in ``syft``.

A supervisor asks every few seconds whether a worker answers.  To import torch for that takes
seconds and hundreds of megabytes, and whatever is inside ``syft`` imports it.  So ``syft check``
and ``syft --version`` are in this module beside it, which knows the standard library alone.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import http.client
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import BinaryIO
from urllib.parse import SplitResult, urlsplit

_MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # of RFC 6455
_PING, _PONG, _CLOSE = 0x89, 0x8A, 0x88


class Unwell(Exception):
    """Why a worker is not well, in one line."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["check"]:
        return check(given[1:])
    if given == ["--version"] and (known := _versions()) is not None:
        print(known)
        return 0
    from syft.node.cli import main as whole

    return whole(given)


def _versions() -> str | None:
    """What is installed; None for a clone that is not."""
    try:
        return f"syft {version('syft-chain')}, torch {version('torch')}"
    except PackageNotFoundError:
        return None


def check_parser() -> argparse.ArgumentParser:
    """What reads the arguments of ``syft check``."""
    parser = argparse.ArgumentParser(
        prog="syft check",
        description="Whether a worker answers: a health check that takes no token and no torch. "
        "The exit status is 0 if it does, and 1 if not. `syft doctor` says more.",
    )
    parser.add_argument(
        "address", help="as the worker printed it, or http://…/readyz at its --metrics-port"
    )
    parser.add_argument("--fingerprint", help="that of the worker's certificate, as it printed it")
    parser.add_argument("--ca-file", metavar="FILE", help="certificates that vouch for it, in PEM")
    parser.add_argument(
        "--timeout", type=_seconds, default=5.0, metavar="SECONDS", help="how long it may take (5)"
    )
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e6:
        raise ValueError(text)
    return seconds


_seconds.__name__ = "number of seconds"  # argparse names a type so where a value is wrong


def check(arguments: Sequence[str]) -> int:
    """Whether a worker answers: 0, or 1 and a line on the error stream that says why not."""
    options = check_parser().parse_args(arguments)
    began = time.monotonic()
    error = _within(options.timeout, lambda: _ask(options))
    if error is None:
        print(f"ok: {options.address} answered in {1000 * (time.monotonic() - began):.0f} ms")
        return 0
    if not isinstance(error, OSError | ValueError | http.client.HTTPException | Unwell):
        raise error
    words = " ".join(str(error).split())  # of the other end, too: what moves a cursor is left out
    said = "".join(filter(str.isprintable, words)) or type(error).__name__
    print(f"syft: no answer of a worker at {options.address}: {said}", file=sys.stderr)
    return 1


def _within(seconds: float, act: Callable[[], None]) -> Exception | None:
    """What ``act`` raises, or that it takes longer: then nobody waits for it any more.

    Nothing else ends in time whatever the other end does, which may send a byte now and then, and
    names are looked up by the system.
    """
    outcome: list[Exception | None] = []

    def run() -> None:
        try:
            act()
            outcome.append(None)
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, name="syft check", daemon=True)
    thread.start()
    thread.join(seconds)
    late = not outcome or isinstance(outcome[0], TimeoutError)
    return Unwell("it does not answer in time") if late else outcome[0]


def _ask(options: argparse.Namespace) -> None:
    parts = urlsplit(options.address)
    if parts.scheme == "http":
        _ask_page(parts, options.timeout)
    else:
        _ask_worker(parts, options)


def _ask_page(parts: SplitResult, seconds: float) -> None:
    """Ask for a page, as ``/readyz``, which has to be there."""
    connection = http.client.HTTPConnection(parts.netloc, timeout=seconds)
    try:
        connection.request("GET", parts.path or "/healthz")
        answer = connection.getresponse()
        if answer.status != 200:
            raise Unwell(answer.read(1000).decode(errors="replace"))
    finally:
        connection.close()


def _ask_worker(parts: SplitResult, options: argparse.Namespace) -> None:
    """Open a WebSocket, have a ping answered, and take leave."""
    with _connected(parts, options) as sock, sock.makefile("rb") as stream:
        _open(sock, stream, parts)
        sock.sendall(_masked(_PING, b"syft"))
        while (frame := _frame(stream)) != (_PONG, b"syft"):
            if frame[0] == _CLOSE:
                raise Unwell(frame[1][2:].decode(errors="replace") or "it closes the connection")
        sock.sendall(_masked(_CLOSE, b"\x03\xe8"))
        while _frame(stream)[0] != _CLOSE:
            pass


def _connected(parts: SplitResult, options: argparse.Namespace) -> socket.socket:
    if parts.scheme == "unix":
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(options.timeout)
        sock.connect(parts.netloc + parts.path)
        return sock
    if parts.scheme not in ("ws", "wss") or parts.hostname is None or parts.port is None:
        raise Unwell("an address is ws://HOST:PORT, wss://HOST:PORT, unix:///PATH or http://…")
    sock = socket.create_connection((parts.hostname, parts.port), options.timeout)
    return sock if parts.scheme == "ws" else _encrypted(sock, parts.hostname, options)


def _encrypted(sock: socket.socket, host: str, options: argparse.Namespace) -> socket.socket:
    context = ssl.create_default_context(cafile=options.ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if options.fingerprint is not None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    secured = context.wrap_socket(sock, server_hostname=host)
    shown = hashlib.sha256(secured.getpeercert(True) or b"").hexdigest()
    if options.fingerprint not in (None, f"sha256:{shown}"):
        secured.close()
        raise Unwell(f"its certificate is another one, sha256:{shown}")
    return secured


def _open(sock: socket.socket, stream: BinaryIO, parts: SplitResult) -> None:
    """The opening handshake of RFC 6455."""
    key = base64.b64encode(os.urandom(16)).decode()
    host = "localhost" if parts.scheme == "unix" else parts.netloc
    path = "/" if parts.scheme == "unix" else parts.path or "/"
    lines = (
        f"GET {path} HTTP/1.1",
        f"Host: {host}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Protocol: syft",
    )
    sock.sendall("\r\n".join((*lines, "", "")).encode())
    status = stream.readline(1 << 14)
    headers = http.client.parse_headers(stream)
    wanted = base64.b64encode(hashlib.sha1(f"{key}{_MAGIC}".encode()).digest()).decode()
    if b" 101 " not in status or headers["Sec-WebSocket-Accept"] != wanted:
        raise Unwell(f"it is no WebSocket ({status.decode('latin-1').strip()})")
    if headers["Sec-WebSocket-Protocol"] != "syft":
        raise Unwell("it is no worker of syft")


def _masked(first: int, payload: bytes) -> bytes:
    """A short frame of a client; the mask is of zeros."""
    return bytes((first, 0x80 | len(payload))) + bytes(4) + payload


def _frame(stream: BinaryIO) -> tuple[int, bytes]:
    """The next frame, which is a short one as long as nobody has said who is calling."""
    head = stream.read(2)
    size = head[1] if len(head) == 2 else 126
    payload = stream.read(size) if size < 126 else b""
    if len(payload) != size:
        raise Unwell("it has closed the connection" if len(head) < 2 else "it is no worker of syft")
    return head[0], payload


if __name__ == "__main__":
    sys.exit(main())
