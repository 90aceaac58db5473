"""``syft log``: what callers have done at a worker, and whether its audit log is whole.

The log is one JSON object a line, with a hash that hangs it to the line before
(:mod:`syft.trust.chained_log`).  It may be read while the worker writes to it.  Callers choose
names and words in it: what could look like something else, on a terminal or among the fields of a
line, is quoted as in JSON.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from syft.exceptions import AuditBroken, FileRefused, UnusableSetting
from syft.trust.chained_log import START, Records, files_of, read

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

NAME: Final = "audit.log"
_AGO: Final = re.compile(r"(\d+)([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_MEANS: Final = ('"', "\\", "  ", ",", "=")
"""What has a meaning in a line that is shown, as have these whole texts:"""
_WORDS: Final = ("", "-", "everything")
_FIRST: Final = ("at", "what", "user", "name")


def audit_path(id: str, state: str | None) -> Path:
    """Where the worker ``id`` keeps its log, unless it was told another place.

    >>> audit_path("bob", "state").as_posix()
    'state/audit.log'
    """
    return (Path(state) if state is not None else Path.home() / ".syft" / id) / NAME


def add_command(commands: Commands) -> None:
    """Add ``log`` to the command line.

    >>> parser = argparse.ArgumentParser()
    >>> add_command(parser.add_subparsers())
    >>> parser.parse_args(["log", "--user", "ben", "--since", "2h"]).user
    'ben'
    """
    text = "show what callers have done at a worker, and verify that the log is whole"
    parser = commands.add_parser("log", help=text, description=text)
    parser.add_argument("file", nargs="?", help="the audit log (that of --id, in --state)")
    parser.add_argument("--id", default="worker", help="the worker's name (worker)")
    parser.add_argument("--state", metavar="DIR", help="the worker's folder (~/.syft/ID)")
    parser.add_argument("--user", metavar="NAME", help="what this user did, or was done to theirs")
    parser.add_argument("--what", metavar="WORD", help="one kind of line, as read or refuse")
    parser.add_argument(
        "--since", metavar="TIME", help="as 30m, 2h, 3d, or 2026-01-31 or 2026-01-31T12:00 (UTC)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument(
        "--verify",
        nargs="?",
        const=START,
        metavar="HASH",
        help="verify the chain, and that a hash which was noted earlier is in it",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace, now: float) -> int:
    path = Path(options.file) if options.file else audit_path(options.id, options.state)
    if not files_of(path):
        raise FileRefused(str(path), "there is no audit log", "name one, or its worker with --id")
    if options.verify is not None:
        return _verify(path, options.verify)
    since = "" if options.since is None else _shown(_time(options.since, now))
    for record in read(path, verified=False):
        if str(record.get("at")) >= since and _is_asked_for(record, options):
            print(_in_json(record) if options.json else _in_words(record), flush=True)
    return 0


def _verify(path: Path, noted: str) -> int:
    count, head, seen = 0, START, noted == START
    records = Records(path)
    try:
        for record in records:
            count, head = count + 1, record["chain"]
            seen |= head == noted
    except AuditBroken as error:
        print(f"syft: {error}", file=sys.stderr)
        return 1
    if not seen:
        print(f"syft: no line of {path} has the hash {noted}: lines are gone.", file=sys.stderr)
        return 1
    if records.torn:
        print(f"Behind the last line are {records.torn:,} bytes of none, as a kill leaves them.")
    print(f"{count:,} lines, whole. The last one has the hash {head}")
    return 0


def _is_asked_for(record: dict[str, Any], options: argparse.Namespace) -> bool:
    if options.what is not None and record.get("what") != options.what:
        return False
    if options.user is None or options.user == record.get("user"):
        return True
    return f"objects of {options.user}" in record.get("of", ())


def _in_json(record: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in record.items() if key != "chain"})


def _in_words(record: dict[str, Any]) -> str:
    at, what = _said(record.get("at")), _said(record.get("what"))
    user, name = (_said(record[key]) if record.get(key) else "-" for key in ("user", "name"))
    rest = (
        f"{_said(key)}={_said(value)}"
        for key, value in record.items()
        if key not in (*_FIRST, "chain", "after")
    )
    return f"{at}  {what:<10}  {user:<12}  {name:<12}  {'  '.join(rest)}"


def _said(value: Any) -> str:
    """A value; ``-`` stands for nothing, ``, `` between several, and two spaces between fields.

    >>> print(_said("#a"), _said(["#a, #b", "c  d"]), _said({"mul": 2}), _said("a\\nb"), _said("-"))
    #a "#a, #b", "c  d" 2 mul "a\\nb" "-"
    """
    if isinstance(value, dict):
        return ", ".join(f"{_said(count)} {_said(name)}" for name, count in value.items())
    if isinstance(value, list):
        return ", ".join(map(_said, value)) or "everything"
    text = str(value)
    means = text in _WORDS or text != text.strip() or any(mark in text for mark in _MEANS)
    return json.dumps(text) if means or not text.isprintable() else text


def _time(text: str, now: float) -> float:
    """Seconds since 1970: so long ago, or a date and time in UTC."""
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now - int(ago[1]) * _SECONDS[ago[2]]
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        expected = "a time ago as 30m, 2h or 3d, or a date as 2026-01-31 or 2026-01-31T12:00"
        raise UnusableSetting("--since", expected, repr(text)) from None
    return (at if at.tzinfo is not None else at.replace(tzinfo=datetime.UTC)).timestamp()


def _shown(seconds: float) -> str:
    """A time as the log has it."""
    at = datetime.datetime.fromtimestamp(max(seconds, 0.0), datetime.UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"
