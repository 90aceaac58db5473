"""``sy.read_dataset``: a file of an owner as a data set of this process.

It reads what ``syft worker --data`` reads, in the same way: for an owner who works in Python, and
for whoever tries a program on data that may be seen before it runs on data that may not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from syft.callers import warn_user
from syft.exceptions import UnusableSetting
from syft.federated.base_dataset import BaseDataset
from syft.node.column_kinds import TableSettings
from syft.node.data_files import DATA, TARGET, FileContent, read_file
from syft.node.table_files import TABLES


def read_dataset(
    path: str | os.PathLike[str],
    target: str | None = None,
    *,
    data: str | None = None,
    kinds: Mapping[str, str] | None = None,
    date_formats: Mapping[str, str] | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    empty: Sequence[str] = (),
    leave_out: Sequence[str] = (),
    separator: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    image_size: tuple[int, int] | None = None,
) -> BaseDataset:
    """Read a table, named arrays or a folder of images as a data set; nothing leaves this process.

    ``target`` is the column of a ``.csv``, ``.tsv`` or ``.parquet`` that is to be predicted, or the
    array of a ``.npz``, ``.safetensors`` or ``.pt`` (``data`` names the other one, if there are
    several).  In a folder of images the folders are the classes.  ``dataset.columns`` has the name
    and kind of each column, its table of categories and how many of its cells are empty.

    Each column becomes numbers: booleans 0 and 1, dates days since 1970-01-01 or, with times,
    seconds (UTC unless a zone is said), categories their places in ``columns[name].categories``,
    in the order of their texts.  An empty cell is NaN, and -1 among categories.  Free text (over
    100 different values, or over 10 and mostly different) is left out with a warning.

    ``kinds`` says the kind of a column (number, integer, boolean, date, category, text),
    ``date_formats`` how its dates are written, ``categories`` the table of its categories, which
    several owners must have in common to train one model.  ``empty`` are texts that mean an empty
    cell; ``image_size`` is a height and a width to which images are scaled.

    Raises :class:`~syft.exceptions.FileRefused` for what cannot be read in one way alone, with the
    column and the line, and :class:`~syft.exceptions.UnusableSetting` for an argument that does not
    fit.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "ward.csv")
    ...     _ = path.write_text("born;weight;ill\\n01.02.1970;61,5;no\\n02.02.1970;;yes\\n")
    ...     dataset = sy.read_dataset(path, target="ill")
    >>> dataset  # doctest: +NORMALIZE_WHITESPACE
    BaseDataset
        Data: float32 (2, 2)
        targets: int64 (2,)
        born: date (days since 1970-01-01)
        weight: number
        ill: boolean, target
    >>> dataset[0], dataset.columns["weight"].empty
    ((tensor([31.0000, 61.5000]), tensor(0)), 1)
    """
    settings = TableSettings(
        separator, decimal, encoding, kinds or {}, date_formats or {}, categories or {}
    )
    settings = replace(settings, empty=empty, leave_out=leave_out)
    is_table = Path(path).suffix.lower() in TABLES
    content = read_file(path, target if is_table else None, settings, image_size)
    _warn(path, content)
    if content.columns is None:
        return _of_arrays(content, data, target)
    if data is not None or (target is None) is is_table:
        expected = "the name of a column" if is_table else "left out: the folders are the classes"
        raise UnusableSetting("target", expected, repr(target))
    return BaseDataset(content.tensors[DATA], content.tensors[TARGET], columns=content.columns)


def _warn(path: str | os.PathLike[str], content: FileContent) -> None:
    """Warn of columns that were left out."""
    for note in content.notes:
        if note.startswith("column") and "left out" in note:
            warn_user(f"{os.fspath(path)}: {note}.")


def _of_arrays(content: FileContent, data: str | None, target: str | None) -> BaseDataset:
    """Two of the arrays of a file."""
    names = list(content.tensors)
    listed = ", ".join(names)
    if target not in names:
        raise UnusableSetting("target", f"one of {listed}", repr(target))
    others = [name for name in names if name != target]
    chosen = others[0] if data is None and len(others) == 1 else data
    if chosen not in others:
        raise UnusableSetting("data", f"one of {', '.join(others) or 'other arrays'}", repr(data))
    return BaseDataset(content.tensors[chosen], content.tensors[target])
