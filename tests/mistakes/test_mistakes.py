"""Mistakes as users make them, each in a cell of a real kernel: one clear sentence at their line.

``mistakes.txt`` is the table.  A case begins with its name, the class of the error, and words that
its text must have; its cell follows, in which ``#!`` ends the line of the mistake (else it is the
last statement).  ``??`` begins the reason why the text is not clear, or not at that line: such a
case need only raise, and there may be few of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from syft.callers import SYFT, TORCH
from tests.workers.sockets.test_jupyter_kernel import Kernel

pytest.importorskip("ipykernel")

# What these packages warn of is no business of ours.
pytestmark = pytest.mark.filterwarnings("ignore")

BEFORE: Final = """
import numpy as np, torch
import syft as sy
from torch import nn
import copy, pickle
import torch.nn.functional as F
hook = sy.TorchHook(torch)
bob, alice, carol = (sy.VirtualWorker(hook, id=name) for name in ("bob", "alice", "carol"))
x = torch.arange(6.0).view(2, 3)
p, q = x.send(bob), torch.ones(2, 3).send(alice)
secret = x.private_tensor(allowed_users=["ann"]).send(bob, user="ann")
"""
"""What has run in the kernel before each cell."""

_MARK: Final = "  #!"
_FRAME: Final = re.compile(r"^(?:Cell In\[\d+\], line (\d+)|File .*)", re.MULTILINE)
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Mistake:
    """A cell, and what it raises."""

    name: str
    error: str
    words: str
    cell: str
    unclear: str | None = None

    @property
    def line(self) -> int:
        """The line of the mistake."""
        for number, line in enumerate(self.cell.splitlines(), start=1):
            if line.endswith(_MARK):
                return number
        last = ast.parse(self.cell).body[-1]
        return (
            getattr(last, "decorator_list", None) and last.decorator_list[0].lineno or last.lineno
        )


def read_mistakes() -> list[Mistake]:
    """The table."""
    text = Path(__file__).with_name("mistakes.txt").read_text()
    found = []
    for case in text.removeprefix("== ").split("\n== "):
        head, *lines = case.rstrip().splitlines()
        unclear = lines.pop(0).removeprefix("?? ") if lines[0].startswith("?? ") else None
        name, error, words = head.split(" | ", 2)
        found.append(Mistake(name, error, words, "\n".join(lines), unclear))
    return found


MISTAKES: Final = {mistake.name: mistake for mistake in read_mistakes()}


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    """One for all cells."""
    kernel = Kernel()
    try:
        assert kernel.value(BEFORE) == ""
        yield kernel
    finally:
        kernel.close()


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gives_a_sentence_at_its_line(name: str, kernel: Kernel) -> None:
    mistake = MISTAKES[name]
    shown = kernel.run(mistake.cell.replace(_MARK, ""))
    text = _COLOUR.sub("", shown["traceback"])
    assert shown["error"] == mistake.error, text
    if mistake.unclear is None:
        frames = list(_FRAME.finditer(text))
        assert frames[-1][1] == str(mistake.line), text
        assert not any(frame[0].startswith("File") for frame in frames), text
        assert SYFT not in text and TORCH not in text
        assert mistake.words in text, text


def test_the_bar() -> None:
    """95 of 100 are clear; a name stands for one mistake."""
    assert len(MISTAKES) == len(read_mistakes()) >= 200
    clear = [mistake for mistake in MISTAKES.values() if mistake.unclear is None]
    assert len(clear) >= 0.951 * len(MISTAKES)
