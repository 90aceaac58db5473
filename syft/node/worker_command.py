"""``syft worker``: serve data to other processes, until Ctrl-C or SIGTERM.

Where it is, the fingerprint of its certificate and the lines with which to connect go to the
output; the log, and a live line where there is a terminal, to the error stream.  What keeps it from
starting is one line there, with exit status 2.  Started again with the same options, it holds the
same data under the same tags and shows the same certificate.
"""

from __future__ import annotations

import argparse
import errno
import re
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syft.exceptions import SyftError, UnusableSetting
from syft.node.announcement import announcement
from syft.node.approve_command import read_approvals
from syft.node.config_file import OptionsParser, WorkerOptions
from syft.node.destinations import add_destination_option, read_destinations
from syft.node.freed_memory import KEPT, keep_freed_memory
from syft.node.log_command import audit_path
from syft.node.metrics import MetricsServer
from syft.node.offered_data import OfferedTensor, add_data_options, read_offered
from syft.node.serving_process import allow_many_sockets, serve_until_stopped
from syft.node.worker_log import FORMATS, LEVELS, logging_to
from syft.serde.limits import Limits
from syft.trust.lockout import Lockout
from syft.trust.tokens import TokenBook
from syft.workers.core.peer_limits import PeerLimits
from syft.workers.sockets.admission import MOST_CONNECTIONS
from syft.workers.sockets.address import is_loopback
from syft.workers.sockets.server import WebsocketServerWorker

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

NOT_STARTED = 2
"""The exit status of a worker that could not start."""


def add_command(commands: Commands) -> None:
    """Add ``worker`` to the command line.

    >>> parser = argparse.ArgumentParser()
    >>> add_command(parser.add_subparsers())
    >>> options = parser.parse_args(["worker", "--id", "bob", "--keep-memory", "64"])
    >>> options.host, options.keep_memory
    ('127.0.0.1', 67108864)
    """
    text = "serve data to other processes, until Ctrl-C or SIGTERM"
    parser = commands.add_parser("worker", help=text, description=text, allow_abbrev=False)
    parser.add_argument("--id", default="worker", help="the worker's name (worker)")
    parser.add_argument(
        "--log", choices=FORMATS, default="text", help="how the log is written (text)"
    )
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="what is written in it (info)"
    )
    parser.add_argument(
        "--keep-memory",
        type=_megabytes,
        default=str(KEPT >> 20),
        metavar="MB",
        help="freed memory that is kept, so that large tensors need no fresh pages (%(default)s); "
        "0 for none",
    )
    parser.add_argument(
        "--config",
        action=_Once,
        metavar="FILE",
        help="a TOML file with these options, a key each, and a table [[data]] for each file; what "
        "is typed beside it wins, and files of data are added",
    )
    parser.add_argument(
        "--print-config",
        action="store_true",
        help="print the file that says what was typed, and what may be said besides, and end",
    )
    parser.add_argument(
        "--audit",
        metavar="FILE",
        help="where is written who asked what of whose data, for `syft log`; none for nowhere "
        "(with --token-file audit.log in the worker's folder, without nowhere)",
    )
    _add_address_options(parser)
    add_data_options(parser)
    _add_caller_options(parser)
    _add_limit_options(parser)
    _add_metrics_options(parser)
    parser.set_defaults(run=_run)


def _add_address_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("address", "where it is reached; off this machine over TLS")
    group.add_argument(
        "--host", default="127.0.0.1", help="a name or address of this machine; 0.0.0.0 for all"
    )
    group.add_argument("--port", type=_port, default=8777, help="(8777); 0 for any that is free")
    group.add_argument(
        "--unix", metavar="PATH", help="a Unix socket instead, which its owner alone may open"
    )
    group.add_argument(
        "--state",
        metavar="DIR",
        help="where the certificate is kept that it makes for itself (~/.syft/ID)",
    )
    group.add_argument(
        "--cert-name",
        action="append",
        default=[],
        metavar="NAME",
        help="a name or IP address by which others reach it, for the certificate that it makes "
        "for itself; may be repeated",
    )
    group.add_argument("--tls-cert", metavar="FILE", help="a certificate of your own, in PEM")
    group.add_argument("--tls-key", metavar="FILE", help="its key, in PEM")


def _add_caller_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("callers", "who is let in, and what they may do")
    group.add_argument(
        "--token-file", metavar="FILE", help="the tokens of users, made with `syft token new`"
    )
    group.add_argument(
        "--anonymous",
        action="store_true",
        help="let callers without a token in too, who read what is public (as is usual on this "
        "machine without --token-file)",
    )
    group.add_argument("--allow-plans", action="store_true", help="callers may store and run plans")
    group.add_argument(
        "--approvals",
        type=Path,
        metavar="FILE",
        help="the roles of protocols that may send private values on, made with `syft approve`",
    )
    group.add_argument(
        "--trusted-proxy",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="a proxy, or a network of them, that says in X-Forwarded-For where a caller is (unix: "
        "who comes over the Unix socket); may be repeated",
    )
    group.add_argument(
        "--dial",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="an address, a network (10.0.0.0/24) or a Unix socket to which the worker connects "
        "where a caller says that another worker is there; may be repeated (none: it speaks to "
        "those through the caller)",
    )
    add_destination_option(group)


def _add_limit_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "limits", "of one user over all its connections, or of an address without a token"
    )
    group.add_argument(
        "--memory",
        type=_size,
        metavar="SIZE",
        help="of its objects and their graphs, as 4GB (16GB)",
    )
    group.add_argument(
        "--connections",
        type=_count,
        default=MOST_CONNECTIONS,
        metavar="NUMBER",
        help=f"connections, with those that may come back ({MOST_CONNECTIONS:,})",
    )
    group.add_argument(
        "--limit",
        type=_limit,
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="what one user may have here at a time (bytes, objects …) or ask of one operation "
        "(elements …), as sy.PeerLimits has them; may be repeated",
    )
    group.add_argument(
        "--message-size", type=_size, metavar="SIZE", help="bytes of one message (4GB)"
    )
    for option, default, text in (
        ("--lease", 60.0, "how long the objects of a caller that is gone are kept for it"),
        ("--heartbeat", 2.0, "after how long a silence a caller is asked for a sign of life"),
        ("--lockout", 60.0, "how long an address with too many wrong tokens is not listened to"),
        ("--grace", 5.0, "how long what runs may go on when the worker is to stop"),
    ):
        help = f"{text} ({default:g})"
        group.add_argument(option, type=_seconds, default=default, metavar="SECONDS", help=help)
    group.add_argument(
        "--wrong-tokens",
        type=_count,
        default=10,
        metavar="NUMBER",
        help="how many within a minute are too many (10)",
    )


def _add_metrics_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "supervision", "/healthz, /readyz and /metrics over HTTP, on a port of their own"
    )
    group.add_argument("--metrics-port", type=_port, help="(off); 0 for any that is free")
    group.add_argument("--metrics-host", default="127.0.0.1", help="(this machine alone)")


class _Once(argparse.Action):
    """An option that may not be repeated."""

    def __call__(self, parser: Any, options: Any, values: Any, option: str | None = None) -> None:
        if getattr(options, self.dest) is not None:
            parser.error(f"{option} is given twice")
        setattr(options, self.dest, values)


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port < 1 << 16:
        raise ValueError(text)
    return port


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e9:
        raise ValueError(text)
    return seconds


def _megabytes(text: str) -> int:
    size = int(text)
    if not 0 <= size < 1 << 40:
        raise ValueError(text)
    return size << 20


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _size(text: str) -> int:
    found = re.fullmatch(r"([0-9]+)\s*([kMGT]?)B?", text)
    if found is None or not int(found[1]):
        raise ValueError(text)
    power: int = 1000 ** " kMGT".index(found[2] or " ")
    return int(found[1]) * power


def _limit(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if name not in _LIMITS or int(number) < 1:
        raise ValueError(text)
    return name, int(number)


_LIMITS = [field.name for field in fields(PeerLimits)]

# argparse names a type by its function where a value is wrong.
_port.__name__, _seconds.__name__, _megabytes.__name__ = "port", "number of seconds", "size in MB"
_count.__name__, _size.__name__ = "number over 0", "size (over 0, as 500MB or 4GB)"
_limit.__name__ = f"limit (a number for one of {', '.join(_LIMITS)})"


def worker_options() -> WorkerOptions:
    """The options of the command that a file may have.

    >>> worker_options().from_table({"id": "bob"}, "worker.toml")
    ['--id=bob']
    """
    parser = argparse.ArgumentParser(prog="syft")
    commands: Any = parser.add_subparsers(parser_class=OptionsParser)
    add_command(commands)
    return WorkerOptions(commands.choices["worker"])


def _run(options: argparse.Namespace, now: float) -> int:
    if options.print_config:
        print(worker_options().shown(options.arguments))
        return 0
    allow_many_sockets()
    keep_freed_memory(options.keep_memory)
    try:
        _check(options)
        held = read_offered(options.data)
        server = _server(options, held)
        metrics = _supervised(options, server)
    except (SyftError, OSError, UnicodeError) as error:
        print(f"syft: {_problem(options, error)}", file=sys.stderr)
        return NOT_STARTED
    text = announcement(server, held, options.token_file)
    if metrics is not None:
        text = f"{text}\nsupervised at http://{metrics.address} (/healthz, /readyz, /metrics)"
    with logging_to(sys.stderr, server.id, options.log, options.log_level) as line:
        shown = line if sys.stderr.isatty() else None
        status: int = serve_until_stopped(server, text, shown, options.grace)
    if metrics is not None:
        metrics.close()
    return status


def _supervised(options: argparse.Namespace, server: WebsocketServerWorker) -> MetricsServer | None:
    """What answers supervisors, if the owner wants that."""
    if options.metrics_port is None:
        return None
    try:
        return MetricsServer(server, options.metrics_host, options.metrics_port)
    except OSError as error:
        server.close()
        where = f"{options.metrics_host}, port {options.metrics_port}"
        expected = "an address of this machine that is free"
        raise UnusableSetting("--metrics-port", expected, f"{where} ({error.strerror})") from None


def _server(options: argparse.Namespace, held: Sequence[OfferedTensor]) -> WebsocketServerWorker:
    server = WebsocketServerWorker(
        None,
        options.host,
        options.port,
        options.id,
        unix=options.unix,
        cert_path=options.tls_cert,
        key_path=options.tls_key,
        cert_names=options.cert_name,
        state=options.state,
        tokens=options.token_file,
        anonymous=options.anonymous or None,
        allow_plans=options.allow_plans,
        limits=None if options.message_size is None else Limits(max_bytes=options.message_size),
        peer_limits=PeerLimits(**_limits_of_users(options)),
        destinations=read_destinations(options.destination),
        dial=options.dial,
        audit=_audit(options),
        lease=options.lease,
        heartbeat=options.heartbeat,
        connections=options.connections,
        trusted_proxies=options.trusted_proxy,
        lockout=Lockout(options.wrong_tokens, pause=options.lockout),
    )
    server.hold(*(offered.tensor for offered in held))
    for digest, names in (read_approvals(options.approvals) if options.approvals else {}).items():
        server.approve(digest, names)
    return server


def _limits_of_users(options: argparse.Namespace) -> dict[str, int]:
    memory = {} if options.memory is None else {"bytes": options.memory}
    return {**dict(options.limit), **memory}


def _audit(options: argparse.Namespace) -> Path | None:
    """Where the audit log goes; None: there is none."""
    if options.audit is not None:
        return None if options.audit == "none" else Path(options.audit)
    return None if options.token_file is None else audit_path(options.id, options.state)


def _check(options: argparse.Namespace) -> None:
    """Refuse what would make a worker that nobody can use, or a file that cannot be trusted."""
    if not options.id or not options.id.isprintable() or len(options.id) > 255:
        raise UnusableSetting("--id", "1 to 255 printable characters", repr(options.id)[:300])
    if (options.tls_cert is None) is not (options.tls_key is None):
        raise UnusableSetting("--tls-cert", "given together with --tls-key", "one of them alone")
    if options.cert_name and (options.tls_cert is not None or _serves_here(options)):
        expected = (
            "given where the worker makes a certificate: off this machine, without --tls-cert"
        )
        raise UnusableSetting("--cert-name", expected, options.cert_name[0])
    if options.token_file is None:
        _check_without_tokens(options)
        return
    TokenBook(options.token_file).rows()
    if not Path(options.token_file).exists():
        said = "is not there yet: nobody has a token before `syft token new` has made one"
        print(f"syft: {options.token_file} {said}.", file=sys.stderr)


def _check_without_tokens(options: argparse.Namespace) -> None:
    named = [file.path for file in options.data if file.readers]
    if named:
        expected = "given, for --private: without tokens nobody can prove to be one of the users"
        raise UnusableSetting("--token-file", expected, f"none ({', '.join(named)})")
    if not _serves_here(options) and not options.anonymous:
        expected = "given off this machine, unless --anonymous lets everybody in"
        raise UnusableSetting("--token-file", expected, "none")


def _serves_here(options: argparse.Namespace) -> bool:
    """Whether the worker is reached from this machine alone."""
    local = options.host == "localhost" or is_loopback(options.host)
    return options.unix is not None or local


def _problem(options: argparse.Namespace, error: Exception) -> str:
    """What keeps the worker from starting, in one line."""
    where = options.unix or f"{options.host}, port {options.port}"
    if isinstance(error, OSError):
        if error.errno == errno.EADDRINUSE:
            another = "--port" if options.unix is None else "--unix"
            return f"{where} is in use. Stop what uses it, or choose another {another}."
        if error.filename is None:
            return f"cannot serve at {where}: {error.strerror or error}"
    return " ".join(str(error).splitlines())
