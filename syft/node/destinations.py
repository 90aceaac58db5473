"""The workers to which private values may go: options of ``syft worker``.

A guard may name workers (``allow_destinations=``).  Callers say which worker is meant by a name, so
the name proves nothing: the owner says where the worker of that name is, by the fingerprint of its
certificate, or by its address where that is on this machine.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from typing import Final

from syft.exceptions import UnusableSetting, WrongAddress
from syft.workers.sockets.address import Address, is_loopback

_FINGERPRINT: Final = re.compile("sha256:[0-9a-f]{64}")
_EXPECTED: Final = (
    "NAME=sha256:... (the fingerprint that the worker prints), or on this machine NAME=/path, "
    "NAME=unix:///path or NAME=ws://127.0.0.1:PORT"
)


def add_destination_option(group: argparse._ArgumentGroup) -> None:
    """Add ``--destination`` to the command line.

    >>> parser = argparse.ArgumentParser()
    >>> add_destination_option(parser.add_argument_group())
    >>> parser.parse_args(["--destination", "alice=/run/alice.sock"]).destination
    ['alice=/run/alice.sock']
    """
    group.add_argument(
        "--destination",
        action="append",
        default=[],
        metavar="NAME=WHERE",
        help="a worker that allow_destinations= may name, by the fingerprint of its certificate "
        "or, on this machine, its Unix socket or address; may be repeated",
    )


def read_destinations(given: Iterable[str]) -> dict[str, str]:
    """Where the workers are, by name.

    Raises :class:`~syft.exceptions.UnusableSetting` for what names no worker, or no place that can
    be verified, and for a name that is given twice.

    >>> read_destinations(["alice=/run/alice.sock", "dan=ws://127.0.0.1:8778"])
    {'alice': 'unix:///run/alice.sock', 'dan': 'ws://127.0.0.1:8778'}
    """
    found: dict[str, str] = {}
    for text in given:
        name, _, where = text.partition("=")
        place = _place(where)
        if not name or place is None:
            raise UnusableSetting("--destination", _EXPECTED, repr(text))
        if name in found:
            raise UnusableSetting("--destination", "given once for each worker", f"{name!r} twice")
        found[name] = place
    return found


def _place(where: str) -> str | None:
    """What a worker is known by, as servers compare it; None if that proves nothing."""
    if _FINGERPRINT.fullmatch(where):
        return where
    try:
        address = Address.parse(f"unix://{where}" if where.startswith("/") else where)
    except WrongAddress:
        return None
    here = address.scheme == "unix" or (address.scheme == "ws" and is_loopback(address.host))
    return str(address) if here else None
