"""``syft approve``: let a role of a protocol send private values on, to the workers that are named.

A worker reads the file when it starts (``syft worker --approvals FILE``).  Who changes it decides
who holds private data, so it is refused where others may write to it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from syft.exceptions import FileRefused, UnusableSetting
from syft.trust.private_files import read_private, write_atomically

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_DIGITS = 64


def add_command(commands: Commands) -> None:
    """Add ``approve`` to the command line.

    >>> import argparse
    >>> parser = argparse.ArgumentParser()
    >>> add_command(parser.add_subparsers())
    >>> parser.parse_args(["approve", "00", "bob", "--approvals", "approvals.json"]).workers
    ['bob']
    """
    text = "let a role of a protocol send private values to the workers named"
    approve = commands.add_parser("approve", help=text, description=text)
    approve.add_argument("digest", help="the digest of the role, as the worker tells it")
    approve.add_argument("workers", nargs="*", help="where values may go (none: nowhere any more)")
    approve.add_argument("--approvals", required=True, type=Path, metavar="FILE")
    approve.set_defaults(run=_approve)


def _approve(options: argparse.Namespace, now: float) -> None:
    digest = options.digest.lower()
    if len(digest) != _DIGITS or set(digest) - set("0123456789abcdef"):
        raise UnusableSetting("digest", f"{_DIGITS} hexadecimal digits", repr(options.digest))
    approved = dict(read_approvals(options.approvals)) if options.approvals.exists() else {}
    approved.pop(digest, None)
    if options.workers:
        approved[digest] = sorted(set(options.workers))
    text = json.dumps(approved, indent=1, sort_keys=True)
    write_atomically(options.approvals, text.encode())
    where = " and ".join(approved.get(digest, ())) or "nowhere"
    print(f"Values may go to: {where}. Start the worker with this file.", file=sys.stderr)


def read_approvals(path: Path) -> Mapping[str, list[str]]:
    """The destinations that a file approves, by the digests of roles.

    Raises :class:`~syft.exceptions.FileRefused` for a file that others may write, or that is none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder, "approvals"), b'{"00": ["bob"]}')
    ...     read_approvals(Path(folder, "approvals"))
    {'00': ['bob']}
    """
    try:
        found = json.loads(read_private(path)[0])
        items = [(digest, list(map(str, names))) for digest, names in found.items()]
        return {bytes.fromhex(digest).hex(): names for digest, names in items}
    except (ValueError, AttributeError, TypeError):
        raise FileRefused(str(path), "it is no list of approvals", "use `syft approve`") from None
