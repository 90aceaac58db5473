"""``syft doctor``: check a connection to a worker step by step, and say what to do where it fails.

The exit status is 0 if all is well and 1 if not, so it serves as a health check too.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from syft.exceptions import FileRefused
from syft.node.checkup import check_up

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


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
