"""``syft doctor``: check a connection to a worker step by step, and say what to do where it fails.

The exit status is 0 if all is well and 1 if not, so it serves as a health check too.

The steps are in the order in which a connection is made.  The first one that fails is the last,
since what would come after it cannot be seen.  A failure says what to do about it.
"""

from __future__ import annotations

import argparse
import re
import socket
import ssl
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from syft.exceptions import (
    FileRefused,
    FingerprintMismatch,
    InsecureAddress,
    SyftError,
    UnusableSetting,
    WorkerRefused,
    WrongAddress,
)
from syft.foreign_text import printable
from syft.ids import new_id
from syft.node.worker_log import counted, size
from syft.ops.table import NAMES
from syft.version import software
from syft.workers.client.connection import Connection
from syft.workers.shells.virtual import VirtualWorker
from syft.workers.sockets.address import Address
from syft.workers.sockets.client import WebsocketClientWorker
from syft.workers.sockets.line_messages import PROTOCOL, Welcome
from syft.workers.wire.messages import Fetch

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

TRIPS: Final = 200
"""Round trips whose median is shown."""
BYTES: Final = 8_000_000
"""Bytes of a tensor that is sent and fetched, ``REPEATS`` times; the fastest counts."""
REPEATS: Final = 3
_SECONDS: Final = 10.0
_IN_BYTES: Final = ("bytes", "letters")

STEPS: Final = (
    "address",
    "encryption",
    "greeting",
    "versions",
    "caller",
    "limits",
    "round trip",
    "throughput",
)


@dataclass(frozen=True)
class Finding:
    """What one step has shown; ``advice`` says what to do, where it failed.

    What the other end says moves no cursor.

    >>> print(Finding("versions", "both ends speak protocol 1"))
    ok    versions    both ends speak protocol 1
    >>> print(Finding("address", "nobody answers", "Start the worker."))
    FAIL  address     nobody answers
                      Start the worker.
    """

    step: str
    said: str
    advice: str | None = None

    def __str__(self) -> str:
        mark = "ok" if self.advice is None else "FAIL"
        line = f"{mark:6}{self.step:12}{printable(self.said)}".rstrip()
        return line if self.advice is None else f"{line}\n{'':18}{self.advice}"


class _Caller:
    """What a worker elsewhere is used from, in the place of a hook: torch stays as it is."""

    def __init__(self) -> None:
        self.local_worker = VirtualWorker(None, id="doctor")


def check_up(
    address: str,
    token: str | None = None,
    fingerprint: str | None = None,
    ca_file: str | None = None,
) -> Iterator[Finding]:
    """Check a connection to the worker at ``address``; a failure is the last thing that is found.

    Tensors of up to 8 MB are sent, fetched and dropped again.

    >>> with sy.WebsocketServerWorker(hook, port=0, id="dan") as dan:
    ...     for finding in check_up(str(dan.address)):
    ...         print(finding.step, finding.advice)
    address None
    encryption None
    greeting None
    versions None
    caller None
    limits None
    round trip None
    throughput None
    """
    try:
        began = time.perf_counter()
        parsed = Address.parse(address)
        parsed.dial(_SECONDS).close()
        taken = time.perf_counter() - began
    except (OSError, SyftError) as error:
        yield _failure("address", error)
        return
    yield Finding("address", f"{parsed} is reached in {1000 * taken:.1f} ms")
    caller = _Caller()
    settings: dict[str, Any] = {"token": token, "fingerprint": fingerprint, "ca_file": ca_file}
    try:
        worker = WebsocketClientWorker(caller, address=parsed, blocking=True, **settings)
    except (OSError, SyftError) as error:
        step = _failed_step(error)
        for passed in STEPS[1 : STEPS.index(step)]:
            yield Finding(passed, "")
        yield _failure(step, error)
        return
    try:
        yield from _said_at_the_start(worker, fingerprint, ca_file)
        yield from _measured(caller.local_worker.connection_to(worker))
    finally:
        worker.close()


# ------------------------------------------------------------------------------------- the start


def _said_at_the_start(
    worker: WebsocketClientWorker, fingerprint: str | None, ca_file: str | None
) -> Iterator[Finding]:
    welcome = worker.welcome
    yield Finding("encryption", _encryption(worker.address, fingerprint, ca_file))
    yield Finding("greeting", f"worker {welcome.worker} answers, a worker of syft")
    yield Finding("versions", _versions(welcome))
    user = "no user (no token)" if welcome.user is None else f"user {welcome.user}"
    plans = "takes plans" if welcome.plans else "takes no plans"
    yield Finding("caller", f"the worker takes you for {user}, and {plans}")
    sizes = welcome.sizes
    most = "" if sizes is None else f"messages of up to {size(sizes.max_bytes)}, "
    beat = f"a heartbeat every {worker.line.heartbeat:g} s"
    kept = f"objects kept {welcome.lease:g} s for who is gone"
    yield Finding("limits", f"{most}{beat}, {kept}{_limits_of_a_user(welcome)}")


def _limits_of_a_user(welcome: Welcome) -> str:
    """What one user may have at the worker; workers of earlier versions do not say it."""
    if not welcome.limits:
        return ""
    lines = (
        f"{'':18}{name:16}{size(number) if name in _IN_BYTES else f'{number:,}'}"
        for name, number in welcome.limits.items()
    )
    return "\n".join(("; one user may have", *lines))


def _encryption(address: Address, fingerprint: str | None, ca_file: str | None) -> str:
    if address.scheme != "wss":
        return "none, and none is needed: the worker is on this machine"
    if fingerprint is not None:
        return "TLS 1.3, and the certificate is the pinned one"
    vouched = "the system" if ca_file is None else ca_file
    return f"TLS 1.3, and {vouched} vouches for the certificate of {address.host}"


def _versions(welcome: Welcome) -> str:
    """The versions at both ends, and which end is the older one."""
    here = (_numbers(software()), len(NAMES))
    there = (_numbers(welcome.software), welcome.ops)
    said = f"protocol {PROTOCOL}; here {_version(software(), len(NAMES))}"
    if here == there:
        return f"{said}, and there too"
    older = "here is the older one" if here < there else "the worker is the older one"
    return f"{said}, there {_version(welcome.software, welcome.ops)}: {older}"


def _version(program: str, operations: int) -> str:
    return f"{program or 'an unnamed program'} with {counted(operations, 'operation')}"


def _numbers(text: str) -> tuple[int, ...]:
    """The version of syft in what an end says of its software: "syft 0.3.0, torch 2.13.0"."""
    return tuple(map(int, re.findall(r"\d+", text.partition(",")[0])))


# --------------------------------------------------------------------------------- what it takes


def _measured(connection: Connection) -> Iterator[Finding]:
    for step, measure in (("round trip", _round_trip), ("throughput", _throughput)):
        try:
            yield Finding(step, measure(connection))
        except (OSError, SyftError) as error:
            yield _failure(step, error)
            return


def _round_trip(connection: Connection) -> str:
    """Fetch a tensor of one number many times."""
    id = connection.put(torch.zeros(1, device="cpu"), None)
    times = [_timed(connection.ask, Fetch, id, keep=True) for _ in range(TRIPS)]
    connection.ask(Fetch, id)  # takes it away
    times.sort()
    median, slow = 1e6 * statistics.median(times), 1e6 * times[int(0.95 * TRIPS)]
    return f"{median:,.0f} µs, the median of {TRIPS}; 95 of 100 within {slow:,.0f} µs"


def _throughput(connection: Connection) -> str:
    """Send and fetch bytes that do not compress."""
    data = torch.randint(0, 256, (BYTES,), dtype=torch.uint8)
    there, back = [], []
    ids = [new_id() for _ in range(REPEATS)]
    for id in ids:
        there.append(_timed(connection.put, data, id))
        back.append(_timed(connection.ask, Fetch, id))
    rates = [f"{size(BYTES / min(times))}/s" for times in (there, back)]
    return f"{rates[0]} there, {rates[1]} back, in tensors of {size(BYTES)}"


def _timed(act: Callable[..., object], *arguments: Any, **named: Any) -> float:
    began = time.perf_counter()
    act(*arguments, **named)
    return time.perf_counter() - began


# -------------------------------------------------------------------------------- what went wrong

_CERTIFICATE = (
    "Give the fingerprint that the worker printed when it started (--fingerprint), or the "
    "certificate of the authority that vouches for it (--ca-file)."
)
_ADVICE: Final[dict[type[Exception], str]] = {
    WrongAddress: "Copy the address that the worker printed when it started.",
    InsecureAddress: "Copy the address and the fingerprint that the worker printed.",
    socket.gaierror: "No such host is known here. Copy the name that the worker printed.",
    ConnectionRefusedError: "Nobody listens there. Start the worker, or correct host and port.",
    FileNotFoundError: "No worker has made this socket. Start it, or correct the path.",
    PermissionError: "The socket is another user's. Have the worker serve at a port.",
    TimeoutError: "Nothing comes back. Is the host up, and does a firewall let the port through?",
    OSError: "Something between here and there fails. Is the host up, and is the worker running?",
    ssl.SSLCertVerificationError: _CERTIFICATE,
    ssl.SSLError: "The other end speaks no TLS 1.3. If it prints ws:// at its start, use that.",
    FingerprintMismatch: "Connect only if the owner confirms the new fingerprint.",
    UnusableSetting: "A fingerprint is sha256: and 64 digits, as the worker printed it.",
    FileRefused: _CERTIFICATE,
    ConnectionError: "Is it a worker of syft? If it prints wss:// at its start, use that.",
    SyftError: "This should not be. Are both ends of the same version?",
}
_ADVICE_BY_CODE: Final = {
    "version": "Install the same version of syft at both ends.",
    "operations": "Install the same version of syft at both ends.",
    "token": "Ask the worker's owner for a token (`syft token new --user NAME`), and give it.",
    "connections": "Close connections that you do not use, or ask the worker's owner for more.",
    "locked": "Wait a minute, and try once with the right token.",
}
_STEP_OF_CODE: Final = {"version": "versions", "operations": "versions"}


def _failed_step(error: Exception) -> str:
    """At which step a connection was not made."""
    if isinstance(error, WorkerRefused):
        return _STEP_OF_CODE.get(error.code, "caller")
    tls = (ssl.SSLError, FingerprintMismatch, UnusableSetting, FileRefused)
    return "encryption" if isinstance(error, tls) else "greeting"


def _failure(step: str, error: Exception) -> Finding:
    said = " ".join(str(error).splitlines()) or type(error).__name__
    if isinstance(error, WorkerRefused):
        return Finding(step, said, _ADVICE_BY_CODE.get(error.code, _ADVICE[SyftError]))
    kinds = [kind for kind in type(error).__mro__ if kind in _ADVICE]
    return Finding(step, said, _ADVICE[kinds[0]])


def add_command(commands: Commands) -> None:
    """Add ``doctor`` to the command line.

    >>> parser = argparse.ArgumentParser()
    >>> add_command(parser.add_subparsers())
    >>> parser.parse_args(["doctor", "ws://localhost:8777"]).address
    'ws://localhost:8777'
    """
    text = "check a connection to a worker, and say what to do if it fails"
    parser = commands.add_parser("doctor", help=text, description=text)
    parser.add_argument("address", help="as the worker printed it: ws://, wss:// or unix://")
    tokens = parser.add_mutually_exclusive_group()
    tokens.add_argument("--token", help="your token; others on this machine may see it so")
    tokens.add_argument(
        "--token-file",
        metavar="FILE",
        help="a file with your token, as `syft token new` prints it; - for the standard input",
    )
    parser.add_argument("--fingerprint", help="that of the worker's certificate, as it printed it")
    parser.add_argument(
        "--ca-file",
        metavar="FILE",
        help="certificates that vouch for the worker's, in PEM (or the worker's own)",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace, now: float) -> int:
    token = options.token if options.token_file is None else _token_in(options.token_file)
    failed = False
    for finding in check_up(options.address, token, options.fingerprint, options.ca_file):
        print(finding, flush=True)
        failed = finding.advice is not None
    return int(failed)


def _token_in(path: str) -> str:
    text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    if not text.strip() or len(text.split()) > 1:
        problem = "it does not hold one token alone"
        raise FileRefused(path, problem, "save there what `syft token new` prints")
    return text.strip()
