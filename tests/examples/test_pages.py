"""What pages tell to type into terminals is typed, and what they show is what is seen.

A page is run from its first block to its last, in an empty folder.  A block of Python that begins
with ``# name.py`` is that file.  In a block of the console a line after ``$`` is a command; what
follows it is its output, in which ``...`` stands for anything.  A worker runs on until the end.
Ports are any that are free: where the page names one, its worker's is put.
"""

from __future__ import annotations

import doctest
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from syft.node.cli import main
from tests.shells.forked import ForkedProgram
from tests.test_project import ROOT

PAGES = ["docs/audit.md", "docs/data_owner.md", "docs/federated_workers.md", "docs/private_data.md"]

_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PATIENCE = 120.0


def in_folder(folder: str, run: Callable[[list[str]], object], arguments: list[str]) -> object:
    """What a process does that was started in a folder."""
    os.chdir(folder)
    os.environ["HOME"] = folder
    return run(arguments)


def run_file(arguments: list[str]) -> int:
    """Be ``python FILE``, in a process that has imported syft already."""
    file, *sys.argv[1:] = arguments
    try:
        exec(compile(Path(file).read_text(), file, "exec"), {"__name__": "__main__"})
    except Exception:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


RUNS: dict[str, Callable[[list[str]], object]] = {"syft": main, "python": run_file}


def commands(block: str) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with the output that it shows.

    >>> list(commands("$ a \\\\\\n  b\\nx\\ny\\n$ c\\n"))
    [('a b', 'x\\ny\\n'), ('c', '')]
    """
    for part in re.split(r"^\$ ", block.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield " ".join(command.split()), output


class Terminals:
    """A folder in which commands run, each in a process; workers are stopped at the end."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.ports: dict[str, str] = {}
        self.workers: list[ForkedProgram] = []
        self._commands = 0
        self._stack = stack

    def write(self, block: str) -> None:
        """Write a program of the page, with the ports that its workers have."""
        name = re.match(r"# (\w+\.py)\n", block)
        assert name is not None, "a program begins with its name"
        (self.folder / name[1]).write_text(self._with(self.ports, block))

    def run(self, command: str) -> str:
        """Run a command; returns what it printed, with the ports of the page."""
        line, _, target = command.partition(" > ")
        word, *arguments = shlex.split(self._with(self.ports, line))
        serves = arguments[:1] == ["worker"]
        port = re.search(r"--port (\d+)", line)
        if serves:
            kept = shlex.split(re.sub(r"--port \d+", "", line))[1:]
            arguments = [*kept, "--port", "0"]
        self._commands += 1
        errors = self.folder / f"errors-{self._commands}"
        with errors.open("w") as file:
            program = ForkedProgram(
                in_folder, str(self.folder), RUNS[word], arguments, error=file.fileno()
            )
        if serves:
            self._stack.callback(program.close)
            self._stack.callback(program.wait, _PATIENCE)
            self._stack.callback(program.send_signal, signal.SIGTERM)
            self.workers.append(program)
            printed = self._announced(program, port[1] if port else "8777", errors)
        else:
            printed = program.stdout.read()
            program.wait(_PATIENCE)
            program.close()
        if target:
            (self.folder / target).write_text(printed)
            printed = ""
        back = {mine: shown for shown, mine in self.ports.items()}
        return self._with(back, printed + ("" if serves else errors.read_text()))

    def _announced(self, program: ForkedProgram, shown: str, errors: Path) -> str:
        lines = []
        for line in program.stdout:
            lines.append(line)
            if "sy.connect(" in line:
                break
        text = "".join(lines)
        found = re.search(r"serves at \S+:(\d+)", text)
        assert found is not None, errors.read_text()
        self.ports[shown] = found[1]
        return text

    @staticmethod
    def _with(ports: dict[str, str], text: str) -> str:
        return re.sub(r"(?<=:)\d{4,5}\b", lambda found: ports.get(found[0], found[0]), text)


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_tells_to_type_does_what_it_shows(page: str, tmp_path: Path) -> None:
    blocks = _BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    assert len(blocks) >= 4
    checker, ran = doctest.OutputChecker(), 0
    with ExitStack() as stack:
        terminals = Terminals(tmp_path, stack)
        for kind, text in blocks:
            if kind == "python":
                terminals.write(text)
                continue
            for command, expected in commands(text):
                got = terminals.run(command)
                assert checker.check_output(expected, got, doctest.ELLIPSIS), (command, got)
                ran += 1
        assert terminals.workers and not [one for one in terminals.workers if one.poll()]
    assert [one.poll() for one in terminals.workers] == [0] * len(terminals.workers)
    assert ran > 4


def test_every_page_with_a_program_of_its_own_is_run() -> None:
    found = [
        path.relative_to(ROOT).as_posix()
        for path in sorted(ROOT.glob("docs/*.md"))
        if re.search(r"^```python\n# \w+\.py$", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert found == PAGES
