"""Data sets of a worker's owner: files to named tensors.

The files are the owner's own, named on the owner's command line.  They are no hostile bytes, and
yet nothing in them is executed: arrays of Python objects are refused, and ``torch.load`` reads
weights alone.  (Its restricted unpickler is not trusted with what others send: nothing that arrives
over a wire comes here.)

==================  ========================================================  ====================
suffix              what is in it                                             names
==================  ========================================================  ====================
``.npy``            one array                                                 the file's
``.npz``            arrays                                                    the arrays'
``.pt``, ``.pth``   a tensor, a list of them, or a dictionary (a state_dict)  the file's, the keys
``.csv``, ``.tsv``  a table (:mod:`syft.node.table_files`)                    the file's
``.parquet``        a table; needs the package ``pyarrow``                    the file's
``.safetensors``    tensors; needs the package ``safetensors``                the tensors'
a folder            a folder of images for each class; needs ``pillow``       data, target
==================  ========================================================  ====================

Numbers of arrays and tensors keep their dtypes.  Of a table with a target, and of images, there are
two tensors, ``data`` and ``target``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from syft.exceptions import FileRefused, UnusableSetting
from syft.federated.columns import Columns
from syft.node.column_kinds import TableSettings
from syft.node.image_folders import read_image_folder
from syft.node.table_files import TABLES, ReadTable

Tensors = dict[str, torch.Tensor]

DATA, TARGET = "data", "target"

_NUMERIC = "biufc"
"""The kinds of numpy's dtypes that are numbers."""


@dataclass(frozen=True)
class FileContent:
    """What is in a file: tensors by name, the columns of a table, and notes for its owner alone.

    >>> FileContent({"x": torch.ones(2)}).columns is None
    True
    """

    tensors: Tensors
    columns: Columns | None = None
    notes: tuple[str, ...] = ()


def load(path: str | os.PathLike[str]) -> Tensors:
    """Return the tensors in a file by name, on the CPU (``.pt``: on the device they were saved on).

    Raises :class:`~syft.exceptions.FileRefused` for a file that is not there, of another kind,
    damaged, empty, or with something in it that has no number.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "heights.csv")
    ...     _ = path.write_text("age,height\\n3,1.01\\n4,1.1\\n")
    ...     load(path)
    {'heights': tensor([[3.0000, 1.0100],
            [4.0000, 1.1000]])}
    """
    return read_file(path).tensors


def read_file(
    path: str | os.PathLike[str],
    target: str | None = None,
    settings: TableSettings | None = None,
    image_size: tuple[int, int] | None = None,
) -> FileContent:
    """Return what is in a file, or a folder of images; ``target`` is a column of a table.

    Raises :class:`~syft.exceptions.FileRefused` as :func:`load` does, and
    :class:`~syft.exceptions.UnusableSetting` for what is said of a file that is no table, or of a
    column that is not there.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "heights.csv")
    ...     _ = path.write_text("sex,height\\nf,1.01\\nm,1.1\\n")
    ...     content = read_file(path, target="sex")
    >>> content.tensors["target"], content.columns
    (tensor([0, 1]), height: number
    sex: category, target)
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if path.is_dir() and suffix not in _KINDS:
        _check_unsaid(path, target, settings)
        return _two(path, read_image_folder(path, image_size))
    if image_size is not None:
        raise UnusableSetting(
            "image_size", "for a folder of images alone", f"one for {str(path)!r}"
        )
    if suffix not in _KINDS:
        instead = f"use one of {', '.join(_KINDS)}, or a folder of images"
        raise FileRefused(str(path), "files of this kind are not read", instead)
    if not path.is_file():
        problem = "it is no file" if path.exists() else "it is not there"
        raise FileRefused(str(path), problem, "name a file that holds data")
    try:
        return _KINDS[suffix](path, target, settings)
    except (FileRefused, UnusableSetting):
        raise
    except Exception as error:
        # Five libraries read here, and raise whatever their parsers meet in a damaged file.
        problem = f"it cannot be read as {path.suffix} ({_first_line(error)})"
        raise FileRefused(str(path), problem, _INSTEAD.get(suffix, _SAVE)) from error


def _read_tensors(path: Path, target: str | None, settings: TableSettings | None) -> FileContent:
    _check_unsaid(path, target, settings)
    content = FileContent(_READERS[path.suffix.lower()](path))
    if not content.tensors:
        raise FileRefused(str(path), "no tensor is in it", _SAVE)
    return content


def _read_table(path: Path, target: str | None, settings: TableSettings | None) -> FileContent:
    return _two(path, TABLES[path.suffix.lower()](path, target, settings or TableSettings()))


def _two(path: Path, table: ReadTable) -> FileContent:
    """A table as tensors by name."""
    if table.targets is None:
        return FileContent({path.stem: table.data}, table.columns, table.notes)
    return FileContent({DATA: table.data, TARGET: table.targets}, table.columns, table.notes)


def _check_unsaid(path: Path, target: str | None, settings: TableSettings | None) -> None:
    """Refuse what is said of a table where there is none."""
    if target is not None or (settings is not None and settings != TableSettings()):
        problem = "it is no table, and something is said of columns in it"
        raise FileRefused(str(path), problem, "say a target and columns of a table alone")


def tags_of(name: str, given: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the tags of a tensor of that name: those given, and the name itself.

    >>> tags_of("images", ["#mnist"])
    ('#mnist', '#images')
    >>> tags_of("#mnist", ["#mnist"])
    ('#mnist',)
    """
    own = name if name.startswith("#") else f"#{name}"
    return tuple(dict.fromkeys([*given, own]))


# ------------------------------------------------------------------------------------------- numpy


def _read_numpy(path: Path) -> Tensors:
    # Given a path, numpy 2.4 leaves a damaged archive open.
    with open(path, "rb") as file:
        found = np.load(file, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return {path.stem: _tensor(found, path, path.stem)}
        if len(set(found.files)) < len(found.files):
            raise FileRefused(str(path), "two arrays in it have one name", "rename one of them")
        return {name: _tensor(found[name], path, name) for name in found.files}


def _tensor(array: Any, path: Path, name: str) -> torch.Tensor:
    if not isinstance(array, np.ndarray):
        problem = f"{name!r} in it is no array"
        raise FileRefused(str(path), problem, "save it with numpy.savez")
    if array.dtype.kind not in _NUMERIC:
        problem = f"{name!r} holds {array.dtype}, which are no numbers"
        raise FileRefused(str(path), problem, "leave it out, or encode it in numbers")
    # Torch has numbers of this machine's byte order alone.
    return torch.from_numpy(np.asarray(array, array.dtype.newbyteorder("="), order="C"))


# ------------------------------------------------------------------------------------------- torch


def _read_torch(path: Path) -> Tensors:
    content = torch.load(path, weights_only=True)
    if isinstance(content, torch.Tensor):
        content = {path.stem: content}
    if isinstance(content, list | tuple):
        content = {f"{path.stem}_{place}": item for place, item in enumerate(content)}
    if not isinstance(content, Mapping):
        raise FileRefused(str(path), f"a {type(content).__name__} is in it", _SAVE)
    wrong = [f"{n!r} ({type(x).__name__})" for n, x in content.items() if not _is_named(n, x)]
    if wrong:
        raise FileRefused(str(path), f"in it are no named tensors: {', '.join(wrong[:3])}", _SAVE)
    return {name: tensor.detach() for name, tensor in content.items()}


def _is_named(name: Any, item: Any) -> bool:
    return isinstance(name, str) and isinstance(item, torch.Tensor)


# -------------------------------------------------------------------------------------- safetensors


def _read_safetensors(path: Path) -> Tensors:
    try:
        from safetensors.torch import load_file
    except ImportError:
        problem = "the package safetensors, which reads it, is not installed"
        raise FileRefused(str(path), problem, "pip install 'syft-chain[worker]'") from None
    return load_file(path)


_SAVE = "save tensors there, by name or one alone"
_INSTEAD = {
    ".npy": "save arrays of numbers with numpy.savez",
    ".npz": "save arrays of numbers with numpy.savez",
}
_READERS: dict[str, Callable[[Path], Tensors]] = {
    ".npy": _read_numpy,
    ".npz": _read_numpy,
    ".pt": _read_torch,
    ".pth": _read_torch,
    ".safetensors": _read_safetensors,
}


_KINDS = {**dict.fromkeys(_READERS, _read_tensors), **dict.fromkeys(TABLES, _read_table)}


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
