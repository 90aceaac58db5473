"""Notebooks as Markdown pages, with the outputs that are stored in them.

A notebook is a JSON file of cells.  Its text is Markdown already; its code and what the code showed
become code blocks, and its pictures become files.  Nothing is run: what a page shows is what the
notebook's author saw.  Refused: myst-nb and nbsphinx, which bring fourteen and eighteen packages
more, for the four kinds of output below (``docs/design/0001-dependencies.md``).
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Any

Cell = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NotebookPage:
    """A notebook as a page: Markdown, and the pictures that it shows, by their file names."""

    text: str
    pictures: dict[str, bytes]


def notebook_page(notebook: dict[str, Any], name: str) -> NotebookPage:
    """Make a page of a notebook; its pictures are called ``name_1.png`` and so on.

    >>> cell = {"cell_type": "markdown", "source": ["# Title"]}
    >>> notebook_page({"cells": [cell]}, "first").text
    '# Title\\n'
    """
    pictures: dict[str, bytes] = {}
    parts = [part for cell in notebook["cells"] for part in _parts(cell, name, pictures)]
    return NotebookPage("\n\n".join(parts) + "\n", pictures)


def _parts(cell: Cell, name: str, pictures: dict[str, bytes]) -> list[str]:
    source = _joined(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    shown = [_output(output, name, pictures) for output in cell["outputs"]]
    return [_block("python", source), *shown] if source.strip() else shown


def _output(output: Cell, name: str, pictures: dict[str, bytes]) -> str:
    """One output of a cell: a picture if there is one, else text; an error as its traceback."""
    if output["output_type"] == "stream":
        return _shown(_joined(output["text"]))
    if output["output_type"] == "error":
        return _shown("\n".join(output["traceback"]))
    data = output["data"]
    if "image/png" not in data:
        return _shown(_joined(data["text/plain"]))
    file = f"{name}_{len(pictures) + 1}.png"
    pictures[file] = base64.b64decode(_joined(data["image/png"]))
    return f"![what the code above draws]({file})"


def _joined(text: str | list[str]) -> str:
    """Text is stored whole or as a list of its lines."""
    return text if isinstance(text, str) else "".join(text)


_TERMINAL_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def _shown(text: str) -> str:
    plain = _TERMINAL_COLOURS.sub("", text).rstrip("\n")
    return _block("{code-block} none", f":class: shown\n\n{plain}")


def _block(kind: str, text: str) -> str:
    """Fence text with more backticks than it has in a row."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{text}\n{fence}"
