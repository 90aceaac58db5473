"""Data sets of a worker's owner: files to named tensors.

The files are the owner's own, named on the owner's command line.  They are no hostile bytes, and
yet nothing in them is executed: arrays of Python objects are refused, and ``torch.load`` reads
weights alone.  (Its restricted unpickler is not trusted with what others send: nothing that arrives
over a wire comes here.)

=================  ==========================================================  ===================
suffix             what is in it                                               names
=================  ==========================================================  ===================
``.npy``           one array                                                   the file's
``.npz``           arrays                                                      the arrays'
``.pt``, ``.pth``  a tensor, a list of them, or a dictionary (a state_dict)    the file's, the keys
``.csv``           a table of numbers, with or without a line of names         the file's
``.safetensors``   tensors; needs the package ``safetensors``                  the tensors'
=================  ==========================================================  ===================

Numbers keep their dtypes.  A table becomes int64 if all of it is whole numbers, else torch's
default dtype, as ``torch.tensor`` does with a nested list.
"""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from syft.exceptions import FileRefused

Tensors = dict[str, torch.Tensor]

_NUMERIC = "biufc"
"""The kinds of numpy's dtypes that are numbers."""


def load(path: str | os.PathLike[str]) -> Tensors:
    """Return the tensors in a file by name, on the CPU (``.pt``: on the device they were saved on).

    Raises :class:`~syft.exceptions.FileRefused` for a file that is not there, of another kind,
    damaged, empty, or with something in it that is no number.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "heights.csv")
    ...     _ = path.write_text("age,height\\n3,1.01\\n4,1.1\\n")
    ...     load(path)
    {'heights': tensor([[3.0000, 1.0100],
            [4.0000, 1.1000]])}
    """
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        known = ", ".join(_READERS)
        raise FileRefused(str(path), "files of this kind are not read", f"use one of {known}")
    if not path.is_file():
        problem = "it is no file" if path.exists() else "it is not there"
        raise FileRefused(str(path), problem, "name a file that holds data")
    try:
        tensors = reader(path)
    except FileRefused:
        raise
    except Exception as error:
        # Four libraries read here, and raise whatever their parsers meet in a damaged file.
        problem = f"it cannot be read as {path.suffix} ({_first_line(error)})"
        raise FileRefused(str(path), problem, _INSTEAD.get(path.suffix.lower(), _SAVE)) from error
    if not tensors:
        raise FileRefused(str(path), "no tensor is in it", _SAVE)
    return tensors


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


# -------------------------------------------------------------------------------------------- table


def _read_table(path: Path) -> Tensors:
    names, lines = _header(path)
    array = _numbers(path, lines)
    if names and len(names) != array.shape[1]:
        problem = f"{len(names)} names stand over {array.shape[1]} columns"
        raise FileRefused(str(path), problem, "give each column a name, or none of them")
    whole = array.dtype == np.int64
    tensor = torch.from_numpy(array)
    return {path.stem: tensor if whole else tensor.to(torch.get_default_dtype())}


def _header(path: Path) -> tuple[list[str], int]:
    """The names of the columns, and how many lines they take; none if numbers come at once."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        first = next((row for row in reader if row), [])
        numeric = [_is_number(cell) for cell in first]
        if all(numeric):
            return [], 0
        if any(numeric):
            cell = first[numeric.index(False)]
            problem = f"its first line is neither names nor numbers alone ({cell!r} is no number)"
            raise FileRefused(str(path), problem, "write nan for what is missing")
        return first, reader.line_num


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(path: Path, skipped: int) -> np.ndarray[Any, Any]:
    """The table in int64 if it is in whole numbers, else in float64."""
    with warnings.catch_warnings():
        # An empty table, and a fraction read as a whole number, are only warned of.
        warnings.simplefilter("error")
        try:
            return _parsed(path, skipped, np.int64)
        except (ValueError, OverflowError, DeprecationWarning):
            return _parsed(path, skipped, np.float64)


def _parsed(path: Path, skipped: int, dtype: type[np.number[Any]]) -> np.ndarray[Any, Any]:
    return np.loadtxt(
        path,
        dtype=dtype,
        comments=None,
        delimiter=",",
        skiprows=skipped,
        ndmin=2,
        encoding="utf-8-sig",
        quotechar='"',
    )


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
    ".csv": "write numbers alone, separated by commas, and nan for what is missing",
    ".npy": "save arrays of numbers with numpy.savez",
    ".npz": "save arrays of numbers with numpy.savez",
}
_READERS: dict[str, Callable[[Path], Tensors]] = {
    ".npy": _read_numpy,
    ".npz": _read_numpy,
    ".pt": _read_torch,
    ".pth": _read_torch,
    ".csv": _read_table,
    ".safetensors": _read_safetensors,
}


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
