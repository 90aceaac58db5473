"""The command ``syft``: what the owner of data types.

A sub-command is a file of its own with two functions: ``add_command`` says how it is called, and
names the other as what runs it.  To add one, write the file and put it into ``COMMANDS``.

What goes wrong is one line on the error stream and exit status 1, or what the sub-command returns;
what was typed wrong is the usage and exit status 2.  A traceback would be a mistake of ours.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence

from syft.exceptions import SyftError
from syft.node import approve_command, doctor_command, log_command
from syft.node import token_command, worker_command
from syft.version import software

COMMANDS = (
    worker_command.add_command,
    token_command.add_command,
    approve_command.add_command,
    log_command.add_command,
    doctor_command.add_command,
)
"""What adds each sub-command, in the order of the help."""


def command_line() -> argparse.ArgumentParser:
    """What reads the arguments of the command, with all its sub-commands.

    >>> command_line().parse_args(["worker", "--id", "bob"]).id
    'bob'
    """
    parser = argparse.ArgumentParser(
        prog="syft",
        description="Data that lives elsewhere, or that nobody may see.",
        epilog="`syft check ADDRESS` says at once whether a worker answers.",
    )
    parser.add_argument("--version", action="version", version=software())
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add_command in COMMANDS:
        add_command(commands)
    return parser


def main(arguments: Sequence[str] | None = None, clock: Callable[[], float] = time.time) -> int:
    """Run the command; returns its exit status.

    ``arguments`` are those of the process by default.  ``clock`` gives the seconds since 1970.
    Raises ``SystemExit`` after printing the usage or help.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = f"{folder}/tokens.json"
    ...     text = main(["token", "new", "--user", "ann", "--token-file", file], lambda: 0.0)
    syft_...
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given[:1] == ["worker"]:
            given[1:] = worker_command.worker_options().with_file(given[1:])
    except (SyftError, OSError) as error:
        print(f"syft: {error}", file=sys.stderr)
        return worker_command.NOT_STARTED
    options = command_line().parse_args(given)
    options.arguments = given[1:]
    try:
        status: int | None = options.run(options, clock())
        return status or 0
    except (SyftError, OSError) as error:
        print(f"syft: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
