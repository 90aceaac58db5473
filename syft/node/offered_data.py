"""What a worker holds from its start: the data of its owner, and who may read it.

On the command line the options ``--tag``, ``--describe``, ``--public`` and ``--private`` belong to
the ``--data`` before them, so one worker can hold one file for everybody and another one for ann
alone.  Data of which nothing is said is private, and nobody may read it or what is computed from
it: an owner who forgets an option has shown nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from syft.exceptions import UnusableSetting
from syft.federated.columns import Columns
from syft.hooks.labels import set_description, tag
from syft.hooks.sending import private_tensor
from syft.node.column_kinds import TableSettings
from syft.node.data_files import TARGET, FileContent, read_file, tags_of

Note = Callable[["OfferedFile", Any], str | None]
"""Notes what an option says of a file; returns what is wrong with it."""


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
    target: str | None = None
    image_size: tuple[int, int] | None = None
    said: dict[str, Any] = field(default_factory=dict)
    """What is said of a table: arguments of :class:`~syft.node.column_kinds.TableSettings`."""
    publish_columns: bool = False
    publish_categories: list[str] = field(default_factory=list)

    @property
    def publishes(self) -> bool:
        """Whether others are told of its columns."""
        return self.publish_columns or bool(self.publish_categories)


@dataclass(frozen=True)
class OfferedTensor:
    """A tensor to be held, with its tags and guard on it, and who may read it.

    >>> OfferedTensor(torch.ones(2), ("#digits",), None).access
    'public: read by everybody who is let in'
    """

    tensor: torch.Tensor
    tags: tuple[str, ...]
    readers: tuple[str, ...] | None
    columns: Columns | None = None
    published: bool = False
    notes: tuple[str, ...] = ()
    """What was left out of the file or is empty, for the owner alone."""

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
    return [offered for file in files for offered in _read(file)]


def _read(file: OfferedFile) -> list[OfferedTensor]:
    content = read_file(file.path, file.target, TableSettings(**file.said), file.image_size)
    if file.publishes and content.columns is None:
        raise UnusableSetting("--publish-columns", "said of a table or images", repr(file.path))
    return [_offered(file, content, name) for name in content.tensors]


def _offered(file: OfferedFile, content: FileContent, name: str) -> OfferedTensor:
    tensor, tags = content.tensors[name], tags_of(name, _tags(file, content))
    tag(tensor, *tags)
    columns = content.columns if name != TARGET else None
    description = _description(file, columns, len(tensor) if tensor.dim() else 1)
    if description is not None:
        set_description(tensor, description)
    readers = None if file.readers is None else tuple(dict.fromkeys(file.readers))
    held = tensor if readers is None else private_tensor(tensor, readers)
    if columns is None:
        return OfferedTensor(held, tags, readers)
    return OfferedTensor(held, tags, readers, columns, file.publishes, content.notes)


def _description(file: OfferedFile, columns: Columns | None, rows: int) -> str | None:
    """What those who find the data are told of it."""
    if columns is None or not file.publishes:
        return file.description
    text = " ".join((file.description or "").split())
    return columns.published(rows, text, file.publish_categories)


def _tags(file: OfferedFile, content: FileContent) -> list[str]:
    """The tags given; data and its target have the file's name in common too."""
    given = [t if t.startswith("#") else f"#{t}" for t in file.tags]
    is_pair = content.columns is not None and content.columns.target is not None
    return list(tags_of(Path(file.path).stem, given)) if is_pair else given


# ---------------------------------------------------------------------------------- command line


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--data`` and what may be said of each file; ``options.data`` has the files.

    >>> parser = argparse.ArgumentParser()
    >>> add_data_options(parser)
    >>> parser.parse_args(["--data", "a.csv", "--tag", "ages", "--private", "ann"]).data
    [OfferedFile(path='a.csv', tags=['ages'], description=None, readers=['ann'], ...)]
    """
    group = parser.add_argument_group(
        "data", "what the worker holds; the other options here belong to the --data before them"
    )
    group.add_argument(
        "--data",
        action=_NewFile,
        default=[],
        metavar="FILE",
        help="a .csv, .parquet, .npz, .pt … to hold, or a folder of images",
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
    group.add_argument(
        "--publish-columns",
        action=_AboutFile,
        nargs=0,
        help="those who find it see names and kinds of its columns (by default they do not)",
    )
    group.add_argument(
        "--publish-categories",
        action=_AboutFile,
        nargs="+",
        metavar="COLUMN",
        help="they see these columns' tables of categories too",
    )
    _add_table_options(parser)


def _add_table_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("tables", "how the --data before them is read")
    for option, more, metavar, text in (
        ("--target", {}, "COLUMN", "a column to hold apart, as what is to be predicted"),
        ("--kind", {"nargs": "+"}, "COLUMN=KIND", "number, integer, boolean, date, category, text"),
        ("--date-format", {"nargs": "+"}, "COLUMN=FORMAT", "how dates are written, as %%d/%%m/%%Y"),
        ("--categories", {"nargs": "+"}, "COLUMN=A,B", "the categories that 0, 1 … stand for"),
        ("--empty", {"nargs": "+"}, "TEXT", "what stands in empty cells, as -99"),
        ("--leave-out", {"nargs": "+"}, "COLUMN", "columns that are not held"),
        ("--separator", {}, "SIGN", "comma, semicolon, tab or bar"),
        ("--decimal", {}, "SIGN", "comma or point"),
        ("--encoding", {}, "NAME", "as cp1252 (utf-8)"),
        ("--image-size", {}, "HxW", "scale images to this height and width"),
    ):
        keywords: dict[str, Any] = {"metavar": metavar, "help": text, **more}
        group.add_argument(option, action=_AboutFile, **keywords)


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


def _note_target(file: OfferedFile, column: str) -> str | None:
    file.target = column
    return None


def _note_published(file: OfferedFile, _: object) -> str | None:
    file.publish_columns = True
    return None


def _note_published_categories(file: OfferedFile, columns: Sequence[str]) -> str | None:
    file.publish_categories += columns
    return None


def _note_size(file: OfferedFile, text: str) -> str | None:
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        return f"--image-size is a height and a width, as 64x64, and not {text}"
    file.image_size = int(height), int(width)
    return None


def _by_column(setting: str, listed: bool = False) -> Note:
    """What notes texts ``COLUMN=VALUE``; with ``listed`` the values are lists."""

    def note(file: OfferedFile, texts: Sequence[str]) -> str | None:
        for text in texts:
            column, is_said, value = text.partition("=")
            if not is_said:
                return f"{text!r} is not written as COLUMN=…"
            file.said.setdefault(setting, {})[column] = value.split(",") if listed else value
        return None

    return note


def _in_list(setting: str) -> Note:
    def note(file: OfferedFile, texts: Sequence[str]) -> str | None:
        file.said.setdefault(setting, []).extend(texts)
        return None

    return note


def _sign(setting: str) -> Note:
    def note(file: OfferedFile, text: str) -> str | None:
        file.said[setting] = _SIGNS.get(text, text)
        return None

    return note


_SIGNS = {"comma": ",", "semicolon": ";", "tab": "\t", "point": ".", "bar": "|", "\\t": "\t"}
_NOTE: dict[str, Note] = {
    "tag": _note_tags,
    "describe": _note_description,
    "public": _note_public,
    "private": _note_readers,
    "target": _note_target,
    "publish_columns": _note_published,
    "publish_categories": _note_published_categories,
    "image_size": _note_size,
    "kind": _by_column("kinds"),
    "date_format": _by_column("date_formats"),
    "categories": _by_column("categories", listed=True),
    "empty": _in_list("empty"),
    "leave_out": _in_list("leave_out"),
    "separator": _sign("separator"),
    "decimal": _sign("decimal"),
    "encoding": _sign("encoding"),
}
