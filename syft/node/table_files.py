"""Tables of an owner, csv or parquet, as tensors: a matrix of columns, and perhaps a target.

A matrix has one dtype.  Whole numbers alone are int64.  Otherwise it is torch's default dtype, if
that holds every whole number, date and category exactly and no number becomes infinite in it, else
float64.

pyarrow reads parquet (the extra ``parquet``): it is the format's own implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from syft.exceptions import FileRefused, UnusableSetting
from syft.federated.columns import Column, ColumnKind, Columns
from syft.node.cell_forms import form_of, number
from syft.node.column_kinds import (
    DAYS,
    SECONDS,
    TableSettings,
    Values,
    read_column,
    with_decimal,
)
from syft.node.csv_cells import TextColumn, plain, read_cells

ReadColumn = tuple[Column, Values]


@dataclass(frozen=True)
class ReadTable:
    """A table that was read: its matrix, its target, their columns, and what its owner is told."""

    data: torch.Tensor
    targets: torch.Tensor | None
    columns: Columns | None
    notes: tuple[str, ...] = ()
    """What was left out or is empty, a sentence each: for the owner alone."""


def read_csv(path: Path, target: str | None, settings: TableSettings) -> ReadTable:
    """Read a csv file, with the column ``target`` apart.

    Raises :class:`~syft.exceptions.FileRefused` for what cannot be read in one way.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "x.csv")
    ...     _ = path.write_text("born;weight\\n01.02.1970;61,5\\n02.02.1970;\\n")
    ...     table = read_csv(path, None, TableSettings())
    >>> table.data, table.notes
    (tensor([[31.0000, 61.5000],
            [32.0000,     nan]]), ("column 'weight': 1 empty cell",))
    """
    found = read_cells(path, settings.separator, settings.encoding)
    lines = "1 line" if found.skipped == 1 else f"{found.skipped:,} lines"
    notes = [f"without any value, and left out: {lines}"] if found.skipped else []
    settings.check_names(column.name for column in found.columns)
    used = [column for column in found.columns if column.name not in settings.leave_out]
    said = with_decimal(replace(settings, separator=found.separator), used)
    for name in [column.name for column in used if column.name in found.nameless]:
        problem = f"{name} has no name, and values in it"
        raise FileRefused(str(path), problem, f"name it, or leave {name!r} out (leave_out)")
    return _table(path, target, [read_column(str(path), one, said) for one in used], notes)


# ------------------------------------------------------------------------------------------ parquet


def read_parquet(path: Path, target: str | None, settings: TableSettings) -> ReadTable:
    """Read a parquet file, with the column ``target`` apart; texts are read as those of csv are.

    Raises :class:`~syft.exceptions.FileRefused` for what is no number, date or text.
    """
    try:
        from pyarrow import parquet
    except ImportError:
        problem = "the package pyarrow, which reads it, is not installed"
        raise FileRefused(str(path), problem, "pip install 'syft-chain[parquet]'") from None
    # One thread reads: the worker's process forks, and serves from few threads.
    table = parquet.ParquetFile(path).read(use_threads=False)
    for setting, value in (("separator", settings.separator), ("encoding", settings.encoding)):
        if value is not None:
            raise UnusableSetting(setting, "left out: parquet says it itself", repr(value))
    names = {" ".join(name.split()): name for name in table.column_names}
    if not all(name and name.isprintable() for name in names):
        raise FileRefused(str(path), "a column in it has no name that can be printed", "rename it")
    if len(names) < len(table.column_names):
        raise FileRefused(str(path), "two columns in it have one name", "rename one of them")
    settings.check_names(names)
    indices = [name for name in names if name.startswith("__index_level_")]
    notes = [f"column {name!r}, an index that pandas wrote, was left out" for name in indices]
    used = [name for name in names if name not in {*settings.leave_out, *indices}]
    read = [_typed(str(path), name, table.column(names[name]), settings) for name in used]
    return _table(path, target, read, notes)


def _typed(path: str, name: str, cells: Any, settings: TableSettings) -> ReadColumn:
    """A column by the type that the file says, unless the owner says a kind."""
    from pyarrow import types

    if types.is_dictionary(cells.type):
        cells = cells.cast(cells.type.value_type).cast("string")
        if settings.kind_of(name) is None:
            settings = replace(settings, kinds={**settings.kinds, name: ColumnKind.CATEGORY.value})
    if settings.kind_of(name) is not None:
        cells = cells.cast("string")
    for is_type, reader in (
        (types.is_boolean, _booleans),
        (types.is_integer, _integers),
        (types.is_floating, _numbers),
        (types.is_decimal, _numbers),
        (types.is_date, _dates),
        (types.is_timestamp, _timestamps),
        (types.is_null, _numbers),
    ):
        if is_type(cells.type):
            return reader(path, name, _without_empty(cells, settings.empty))
    if not (types.is_string(cells.type) or types.is_large_string(cells.type)):
        problem = f"column {name!r} holds {cells.type}, which is no number, date or text"
        raise FileRefused(path, problem, "leave it out, or write it as one")
    return read_column(path, _texts(name, cells), settings)


def _without_empty(cells: Any, empty: Sequence[str]) -> Any:
    """The cells without the numbers that mean an empty one."""
    from pyarrow import array, compute, scalar, types

    numbers = [number(text) for text in empty if form_of(text) in ("integer", "point")]
    if not numbers or not types.is_primitive(cells.type) or types.is_temporal(cells.type):
        return cells
    found = compute.is_in(cells.cast("float64", safe=False), array(numbers, "float64"))
    return compute.if_else(found, scalar(None, cells.type), cells)


def _texts(name: str, cells: Any) -> TextColumn:
    coded = cells.combine_chunks().dictionary_encode()
    places: dict[str, int] = {}
    texts = [plain(text) for text in coded.dictionary.to_pylist()]
    merged = np.array([places.setdefault(text, len(places)) for text in texts], np.int64)
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    if (codes < 0).any():
        merged = np.append(merged, places.setdefault("", len(places)))  # what -1 chooses
    return TextColumn(name, list(places), merged[codes])


def _floats(cells: Any) -> Values:
    values: Values = cells.cast("float64", safe=False).to_numpy()
    return values


def _counted(name: str, kind: ColumnKind, values: Values, unit: str = "") -> ReadColumn:
    return Column(name, kind, unit, empty=int(np.isnan(values).sum())), values


def _whole(path: str, name: str, cells: Any, most: int = 1 << 53) -> Values:
    """Whole numbers in int64, or with NaN where one is missing."""
    integers = cells.cast("int64")
    if not cells.null_count:
        values: Values = integers.to_numpy()
        return values
    filled = integers.drop_null().to_numpy()
    if filled.size and (filled.max() > most or filled.min() < -most):
        problem = f"column {name!r} has empty cells, and too many digits for a float64"
        raise FileRefused(path, problem, "leave the column out, or fill its cells")
    return _floats(integers)


def _booleans(path: str, name: str, cells: Any) -> ReadColumn:
    return _counted(name, ColumnKind.BOOLEAN, _whole(path, name, cells))


def _integers(path: str, name: str, cells: Any) -> ReadColumn:
    return _counted(name, ColumnKind.INTEGER, _whole(path, name, cells))


def _numbers(path: str, name: str, cells: Any) -> ReadColumn:
    return _counted(name, ColumnKind.NUMBER, _floats(cells))


def _dates(path: str, name: str, cells: Any) -> ReadColumn:
    days = cells.cast("date32").cast("int32")
    return _counted(name, ColumnKind.DATE, _whole(path, name, days), DAYS)


def _timestamps(path: str, name: str, cells: Any) -> ReadColumn:
    """Seconds; a time without a zone is taken for UTC, as everywhere here."""
    ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[cells.type.unit]
    values = _whole(path, name, cells.cast("int64"), (1 << 63) - 1)
    if values.dtype == np.int64 and not (values % ticks).any():
        return _counted(name, ColumnKind.DATE, values // ticks, SECONDS)
    return _counted(name, ColumnKind.DATE, values / ticks, SECONDS)


# ---------------------------------------------------------------------------------------- tensors


def _table(
    path: Path, target: str | None, read: Sequence[ReadColumn], notes: list[str]
) -> ReadTable:
    others, found = _apart(path, target, read)
    notes += [note for column, _ in others for note in _notes(column)]
    kept = [(column, values) for column, values in others if column.kind is not ColumnKind.TEXT]
    if not kept:
        raise FileRefused(str(path), "no column in it is data", "say the kind of a column")
    matrix = _matrix([values for _, values in kept], _exact(kept))
    columns = Columns(tuple(column for column, _ in kept), None if found is None else found[0])
    targets = None if found is None else _target(path, *found)
    return ReadTable(matrix, targets, columns, tuple(notes))


def _apart(
    path: Path, target: str | None, read: Sequence[ReadColumn]
) -> tuple[list[ReadColumn], ReadColumn | None]:
    """The columns without the target, and the target."""
    if target is None:
        return list(read), None
    names = [column.name for column, _ in read]
    wanted = " ".join(target.split())
    if wanted not in names:
        problem = f"no column in it is called {target!r}"
        raise FileRefused(str(path), problem, f"name one of {', '.join(names[:20]) or 'none'}")
    place = names.index(wanted)
    return [*read[:place], *read[place + 1 :]], read[place]


def _notes(column: Column) -> Iterator[str]:
    """What the owner is told of a column."""
    if column.kind is ColumnKind.TEXT:
        yield f"column {column.name!r} is free text and was left out"
    if column.empty:
        cells = "1 empty cell" if column.empty == 1 else f"{column.empty:,} empty cells"
        yield f"column {column.name!r}: {cells}"


def _exact(columns: Sequence[ReadColumn]) -> list[bool]:
    """Which columns must not be rounded."""
    return [column.kind is not ColumnKind.NUMBER for column, _ in columns]


def _matrix(columns: Sequence[Values], exact: Sequence[bool]) -> torch.Tensor:
    """Columns side by side in the smallest dtype that changes none of them."""
    if all(values.dtype == np.int64 for values in columns):
        return torch.from_numpy(np.stack(columns, 1))
    wide = torch.from_numpy(np.stack([values.astype(np.float64) for values in columns], 1))
    narrow = wide.to(torch.get_default_dtype())
    back = narrow.to(torch.float64)
    infinite = back.isinf().ne(wide.isinf()).any()
    rounded = any(
        not torch.equal(back[:, n].nan_to_num(), wide[:, n].nan_to_num())
        for n, must in enumerate(exact)
        if must
    )
    return wide if infinite or rounded else narrow


def _target(path: Path, column: Column, values: Values) -> torch.Tensor:
    if column.kind is ColumnKind.TEXT:
        problem = f"the target {column.name!r} is free text"
        raise FileRefused(str(path), problem, "say that it is a category, or name another column")
    if column.empty:
        problem = f"the target {column.name!r} has an empty cell ({column.empty:,} in all)"
        raise FileRefused(str(path), problem, "leave these rows out, or name another column")
    return _matrix([values], [column.kind is not ColumnKind.NUMBER])[:, 0].contiguous()


TABLES: dict[str, Callable[[Path, str | None, TableSettings], ReadTable]] = {
    ".csv": read_csv,
    ".tsv": read_csv,
    ".parquet": read_parquet,
}
