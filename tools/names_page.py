"""The signatures and purposes of docs/names.md, made from the objects themselves.

``python -m tools.names_page`` prints them; ``--write`` puts them into the page, between marker
lines.  A test compares the page with what this prints.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

import syft as sy
from docs.extensions.public_names import TITLES, PublicName, public_names

PAGE = Path(__file__).parent.parent / "docs" / "names.md"
BEGIN = "<!-- signatures: written by tools/names_page.py -->"
END = "<!-- end of signatures -->"
_WIDTH = 110


def purpose(text: str) -> str:
    """The first sentence of a docstring, as plain text.

    >>> purpose("Send :class:`~syft.Plan` and ``x``.  Raises nothing.")
    'Send Plan and x.'
    """
    first = " ".join(text.partition("\n\n")[0].split())
    first = re.sub(r":\w+:`~?(?:[^`<]*\.)?([^`.<]+)`", r"\1", first).replace("`", "")
    sentence = re.match(r".*?[.:](?= [A-Z]|$)", first)
    return (sentence.group() if sentence else first).rstrip(":")


def entry(public: PublicName) -> str:
    """The lines of one name: how it is called, and below it what it is for."""
    called = textwrap.wrap(public.name + public.signature, _WIDTH, subsequent_indent=" " * 8)
    about = textwrap.wrap(purpose(public.text), _WIDTH, initial_indent="    ")
    return "\n".join(called + [line if line[0] == " " else f"    {line}" for line in about])


def listing(names: Iterable[PublicName]) -> str:
    """All names, by what they begin with."""
    found = list(names)
    parts = []
    for start, title in TITLES.items():
        entries = [entry(one) for one in found if one.page == f"reference/{start}"]
        parts.append(f"### {title}\n\n```text\n" + "\n".join(entries) + "\n```\n")
    return "\n".join(parts)


def with_listing(page: str, made: str) -> str:
    """The page with the list between its marker lines."""
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n\n{made}\n{END}{after}"


def main(args: Sequence[str]) -> int:
    """Print the list, or write it into the page."""
    hook = sy.TorchHook(torch)
    made = listing(public_names())
    hook.close()
    if "--write" in args:
        PAGE.write_text(with_listing(PAGE.read_text(encoding="utf-8"), made), encoding="utf-8")
    else:
        print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
