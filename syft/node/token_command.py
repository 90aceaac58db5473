"""``syft token``: make, list and revoke the tokens by which users come to a worker.

A token is printed once, alone on the output, so that it can be piped to where it is needed; what is
to be said about it goes to the error stream.  A worker that runs notices every change of the file.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from syft.exceptions import FileRefused
from syft.trust.tokens import TokenBook, TokenRow

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_command(commands: Commands) -> None:
    """Add ``token`` and its three sub-commands to the command line.

    >>> import argparse
    >>> parser = argparse.ArgumentParser()
    >>> add_command(parser.add_subparsers())
    >>> parser.parse_args(["token", "revoke", "1f00", "--token-file", "tokens.json"]).id
    '1f00'
    """
    text = "make, list and revoke the tokens with which users connect"
    actions = commands.add_parser("token", help=text, description=text).add_subparsers(
        metavar="ACTION", required=True
    )
    new = actions.add_parser("new", help="make a token and print it, this one time")
    new.add_argument("--user", required=True, help="the name under which its holder works")
    new.add_argument("--days", type=float, default=30, help="how long it opens the door (30)")
    new.add_argument(
        *("--read", "-r"),
        nargs="+",
        action="extend",
        metavar="TAG",
        help="the tags that the user may read, as digits (all, if none is named)",
    )
    new.add_argument(
        "--plans", action="store_true", help="the user may store and run plans, if the worker may"
    )
    new.add_argument(
        "--lease",
        type=float,
        metavar="HOURS",
        help="how long the objects of the user are kept while it is gone: a laptop that sleeps "
        "(as long as the worker says)",
    )
    new.set_defaults(run=_make)
    rows = actions.add_parser("list", help="show whose tokens there are, without the secrets")
    rows.set_defaults(run=_show)
    revoke = actions.add_parser("revoke", help="turn the holder of a token away from now on")
    revoke.add_argument("id", help="the token's id, as `syft token list` shows it")
    revoke.set_defaults(run=_revoke)
    for action in (new, rows, revoke):
        action.add_argument(
            "--token-file", required=True, type=Path, metavar="FILE", help="where tokens are kept"
        )


def _make(options: argparse.Namespace, now: float) -> None:
    book = TokenBook(options.token_file)
    read = options.read and [tag if tag.startswith("#") else f"#{tag}" for tag in options.read]
    lease = None if options.lease is None else options.lease * 3600
    text = book.make(options.user, now, options.days, read, options.plans, lease)
    print(text)
    until = _date(now + options.days * 86_400)
    said = f"The token of {options.user!r}, until {until}. It is not shown again:"
    print(f"{said} {options.token_file} keeps its hash alone.", file=sys.stderr)


def _show(options: argparse.Namespace, now: float) -> None:
    rows = _present(options.token_file).rows()
    if not rows:
        print(f"There are no tokens in {options.token_file}.", file=sys.stderr)
        return
    head = ("ID", "USER", "READS", "PLANS", "MADE", "ENDS")
    _print_table([head, *(_cells(row, now) for row in rows)])


def _revoke(options: argparse.Namespace, now: float) -> None:
    _present(options.token_file).revoke(options.id)
    print(f"Token {options.id} is revoked: workers that run turn it away too.", file=sys.stderr)


def _present(path: Path) -> TokenBook:
    """The book of a file that is there: a name typed wrong is no empty book."""
    if not path.exists():
        raise FileRefused(str(path), "it is not there", "make it with `syft token new`")
    return TokenBook(path)


def _cells(row: TokenRow, now: float) -> tuple[str, ...]:
    reads = "everything" if row.read is None else " ".join(sorted(row.read)) or "nothing"
    ended = "" if now < row.expires else " (expired)"
    plans = "yes" if row.plans else "no"
    return row.key_id, row.user, reads, plans, _date(row.made), _date(row.expires) + ended


def _date(seconds: float) -> str:
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M} UTC"


def _print_table(rows: Iterable[tuple[str, ...]]) -> None:
    lines = list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())
