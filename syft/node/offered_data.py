"""What a worker holds from its start: the data of its owner, and who may read it.

On the command line the options ``--tag``, ``--describe``, ``--public`` and ``--private`` belong to
the ``--data`` before them, so one worker can hold one file for everybody and another one for ann
alone.  Data of which nothing is said is private, and nobody may read it or what is computed from
it: an owner who forgets an option has shown nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from syft.hooks.labels import set_description, tag
from syft.hooks.sending import private_tensor
from syft.node.data_files import load, tags_of


@dataclass
class OfferedFile:
    """A file named with ``--data``, and what was said of it; ``readers`` None: everybody.

    >>> OfferedFile("digits.npz").readers
    []
    """

    path: str
    tags: list[str] = field(default_factory=list)
    description: str | None = None
    readers: list[str] | None = field(default_factory=list)


@dataclass(frozen=True)
class OfferedTensor:
    """A tensor to be held, with its tags and guard on it, and who may read it.

    >>> OfferedTensor(torch.ones(2), ("#digits",), None).access
    'public: read by everybody who is let in'
    """

    tensor: torch.Tensor
    tags: tuple[str, ...]
    readers: tuple[str, ...] | None

    @property
    def access(self) -> str:
        """Who may read it, in words.

        >>> OfferedTensor(torch.ones(2), (), ("ann", "ben")).access
        'private: read by ann, ben'
        >>> OfferedTensor(torch.ones(2), (), ()).access
        'private: read by nobody (say --private USER or --public)'
        """
        if self.readers is None:
            return "public: read by everybody who is let in"
        if not self.readers:
            return "private: read by nobody (say --private USER or --public)"
        return f"private: read by {', '.join(self.readers)}"


def read_offered(files: Iterable[OfferedFile]) -> list[OfferedTensor]:
    """Read the files, and label and guard what is in them.

    Raises :class:`~syft.exceptions.FileRefused` for a file that cannot be used.

    >>> read_offered([])
    []
    """
    return [
        _offered(file, name, tensor) for file in files for name, tensor in load(file.path).items()
    ]


def _offered(file: OfferedFile, name: str, tensor: torch.Tensor) -> OfferedTensor:
    tags = tags_of(name, [t if t.startswith("#") else f"#{t}" for t in file.tags])
    tag(tensor, *tags)
    if file.description is not None:
        set_description(tensor, file.description)
    if file.readers is None:
        return OfferedTensor(tensor, tags, None)
    readers = tuple(dict.fromkeys(file.readers))
    return OfferedTensor(private_tensor(tensor, readers), tags, readers)


# ---------------------------------------------------------------------------------- command line


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--data`` and what may be said of each file; ``options.data`` has the files.

    >>> parser = argparse.ArgumentParser()
    >>> add_data_options(parser)
    >>> parser.parse_args(["--data", "a.csv", "--tag", "ages", "--private", "ann"]).data
    [OfferedFile(path='a.csv', tags=['ages'], description=None, readers=['ann'])]
    """
    group = parser.add_argument_group(
        "data", "what the worker holds; the other options here belong to the --data before them"
    )
    group.add_argument(
        "--data", action=_NewFile, default=[], metavar="FILE", help="a .npz, .pt, .csv … to hold"
    )
    group.add_argument(
        "--tag", action=_AboutFile, nargs="+", metavar="TAG", help="a tag to find it by, as digits"
    )
    group.add_argument(
        "--describe", action=_AboutFile, metavar="TEXT", help="what it is, for those who find it"
    )
    group.add_argument(
        "--public", action=_AboutFile, nargs=0, help="everybody who is let in may read it"
    )
    group.add_argument(
        "--private",
        action=_AboutFile,
        nargs="+",
        metavar="USER",
        help="these users alone may read it and what is computed from it (by default nobody)",
    )


class _NewFile(argparse.Action):
    """``--data FILE``: the options after it are about this file."""

    def __call__(self, parser: Any, options: Any, values: Any, option: str | None = None) -> None:
        options.data = [*options.data, OfferedFile(values)]


class _AboutFile(argparse.Action):
    """An option about the file that was named last."""

    def __call__(self, parser: Any, options: Any, values: Any, option: str | None = None) -> None:
        if not options.data:
            parser.error(f"{option} belongs to the --data before it, and there is none")
        problem = _NOTE[self.dest](options.data[-1], values)
        if problem is not None:
            parser.error(f"{options.data[-1].path}: {problem}")


def _note_tags(file: OfferedFile, tags: Sequence[str]) -> str | None:
    file.tags += tags
    return None


def _note_description(file: OfferedFile, text: str) -> str | None:
    file.description = text
    return None


def _note_public(file: OfferedFile, _: object) -> str | None:
    if file.readers:
        return "it is said to be both --private and --public"
    file.readers = None
    return None


def _note_readers(file: OfferedFile, users: Sequence[str]) -> str | None:
    if file.readers is None:
        return "it is said to be both --public and --private"
    file.readers += users
    return None


_NOTE = {
    "tag": _note_tags,
    "describe": _note_description,
    "public": _note_public,
    "private": _note_readers,
}
