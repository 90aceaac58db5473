"""Tables as owners have them become the numbers that were in them, or are refused by name."""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syft.exceptions import FileRefused, UnusableSetting
from syft.federated.columns import ColumnKind
from syft.node.column_kinds import DAYS, SECONDS, TableSettings
from syft.node.data_files import FileContent, read_file

EPOCH = datetime.date(1970, 1, 1)


def read(folder: Path, text: str | bytes, target: str | None = None, **said: Any) -> FileContent:
    path = folder / "table.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_file(path, target, TableSettings(**said))


def one(folder: Path, *cells: str, **said: Any) -> tuple[str, list[float]]:
    """The kind and the numbers of one column, which lies between two others."""
    rows = "".join(f'0;"{cell}";1\n' for cell in cells)
    content = read(folder, f"before;x;after\n{rows}", **said)
    assert content.columns is not None
    return content.columns["x"].shown, content.tensors["table"][:, 1].tolist()


def problem_of(folder: Path, *cells: str, **said: Any) -> str:
    with pytest.raises(FileRefused) as caught:
        one(folder, *cells, **said)
    return caught.value.problem


def same(found: torch.Tensor, expected: np.ndarray[Any, Any]) -> None:
    assert found.dtype == torch.from_numpy(expected).dtype
    np.testing.assert_array_equal(found.numpy(), expected)


# ---------------------------------------------------------------------------- what was generated

Drawn = tuple[list[str], list[float], str]
"""The cells of a column, the numbers that they mean, and the kind."""

WORDS = ["f", "m", "ward 3", 'said "no"', "a;b", "a,b\tc", "Köln", "x y"]


def with_empty(draw: Any, values: list[Any], cell: Callable[[Any], str]) -> list[str]:
    gaps = draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    return ["" if gap and len(values) > 1 else cell(x) for gap, x in zip(gaps, values, strict=True)]


@st.composite
def column(draw: Any, rows: int, sign: str) -> Drawn:
    """A column of a kind that is drawn, as an owner may have it."""
    kind = draw(st.sampled_from(["number", "integer", "boolean", "date", "time", "category"]))
    drawn: dict[
        str, tuple[st.SearchStrategy[Any], Callable[[Any], str], Callable[[Any], float]]
    ] = {
        "number": (
            st.floats(-1e6, 1e6, width=32),
            lambda x: f"{x:.9f}".replace(".", sign),
            lambda x: float(f"{x:.9f}"),
        ),
        "integer": (st.integers(-(10**6), 10**6), str, float),
        "boolean": (st.booleans(), lambda x: "Yes" if x else "no", float),
        "date": (
            st.dates(datetime.date(1900, 1, 1), datetime.date(2099, 1, 1)),
            lambda x: x.strftime("%d.%m.%Y"),
            lambda x: float(np.datetime64(x, "D").astype(int)),
        ),
        "time": (
            st.datetimes(datetime.datetime(1970, 1, 1), datetime.datetime(2099, 1, 1)),
            lambda x: x.strftime("%Y-%m-%d %H:%M:%S"),
            lambda x: float(np.datetime64(x, "s").astype(int)),
        ),
        "category": (st.sampled_from(WORDS), str, lambda x: 0.0),
    }
    strategy, cell, value = drawn[kind]
    values = draw(st.lists(strategy, min_size=rows, max_size=rows))
    cells = with_empty(draw, values, cell)
    if kind == "category":
        table = sorted(set(cells) - {""})
        numbers = [float(table.index(cell)) if cell else -1.0 for cell in cells]
    else:
        pairs = zip(values, cells, strict=True)
        numbers = [value(x) if cell else math.nan for x, cell in pairs]
    if not any(cells):
        return cells, [math.nan] * rows, "number"
    return cells, numbers, "date" if kind == "time" else kind


@given(data=st.data(), rows=st.integers(1, 8), separator=st.sampled_from(",;\t"))
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, rows: int, separator: str
) -> None:
    sign = "." if separator == "," else data.draw(st.sampled_from(".,"))
    drawn = data.draw(st.lists(column(rows, sign), min_size=2, max_size=5))
    names = [f"col {n}" for n in range(len(drawn))]
    stream = io.StringIO()
    ends = data.draw(st.sampled_from(["\r\n", "\n"]))
    quotes = data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
    writer = csv.writer(stream, delimiter=separator, lineterminator=ends, quoting=quotes)
    writer.writerow(names)
    written = list(zip(*(cells for cells, _, _ in drawn), strict=True))
    writer.writerows(written)
    kept = [n for n, row in enumerate(written) if any(row)]
    mark = data.draw(st.sampled_from(["", "\ufeff"]))
    path = tmp_path_factory.mktemp("table") / "table.csv"
    path.write_bytes((mark + stream.getvalue()).encode())
    if not kept:
        with pytest.raises(FileRefused, match="no data is in it"):
            read_file(path)
        return
    content = read_file(path, settings=TableSettings(decimal=sign if sign == "," else None))
    columns, (matrix,) = content.columns, content.tensors.values()
    assert columns is not None and columns.names == tuple(names)
    assert [one.kind.value for one in columns] == [kind for _, _, kind in drawn]
    for n, (cells, numbers, kind) in enumerate(drawn):
        expected = np.array(numbers)[kept]
        found = matrix[:, n].double().numpy()
        if kind == "number":
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
        else:
            np.testing.assert_array_equal(found, expected)
        assert columns[n].empty == sum(not cells[row] for row in kept)


# ------------------------------------------------------------------------------------- kinds


@pytest.mark.parametrize(
    ("cells", "kind", "numbers"),
    [
        (["1", "-2", "+3"], "integer", [1, -2, 3]),
        (["1", "", "3"], "integer", [1, math.nan, 3]),
        (["1", "NA", "n/a"], "integer", [1, math.nan, math.nan]),
        (["0,5", "12", "1,234"], "number", [0.5, 12, 1.234]),
        (["36.6", "1e2", ".5"], "number", [36.6, 100, 0.5]),
        (["inf", "-inf", "nan"], "number", [math.inf, -math.inf, math.nan]),
        (["", "", ""], "number", [math.nan] * 3),
        (["TRUE", "false", "False"], "boolean", [1, 0, 0]),
        (["yes", "No", ""], "boolean", [1, 0, math.nan]),
        (["yes", "NA"], "boolean", [1, math.nan]),
        (["f", "m", " f ", ""], "category", [0, 1, 0, -1]),
        (["NA", "DE", "DE"], "category", [1, 0, 0]),
        (["00123", "7", "00123"], "category", [0, 1, 0]),
        (["e\u0301", "\u00e9"], "category", [0, 0]),
        (["1970-01-02", "1969/12/31", "01.02.1970"], f"date ({DAYS})", [1, -1, 31]),
        (["13/01/1970", "01/02/1970"], f"date ({DAYS})", [12, 31]),
        (["01/13/1970", "01/02/1970"], f"date ({DAYS})", [12, 1]),
        (["1970-01-02 00:00:01", "1970-01-01"], f"date ({SECONDS})", [86401, 0]),
        (["1970-01-01T01:00+01:00", "1970-01-01T01:00:00.5Z"], f"date ({SECONDS})", [0, 3600.5]),
    ],
)
def test_the_kind_is_that_of_all_cells(
    tmp_path: Path, cells: list[str], kind: str, numbers: list[float]
) -> None:
    shown, found = one(tmp_path, *cells)
    assert shown == kind
    np.testing.assert_allclose(found, numbers, rtol=1e-6)


@pytest.mark.parametrize(
    ("cells", "problem"),
    [
        (["0.7", "12", "<0.5"], "column 'x' has numbers, and words in line 4 ('<0.5')"),
        (["2024-01-01", "unknown"], "column 'x' has dates, and words in line 3 ('unknown')"),
        (["01/02/2024"], "may have the day or the month first, as in line 2 ('01/02/2024')"),
        (["13/02/2024", "02/13/2024"], "has the day first in line 2 ('13/02/2024'), and the month"),
        (["01.02.24"], "has a year of two digits in line 2"),
        (["2024-01-01", "2024-02-30"], "has a date that there is not in line 3 ('2024-02-30')"),
        (["2024-01-01 25:00"], "has a date that there is not in line 2"),
        (["2024-01-01 10:00+25:00"], "has a date that there is not in line 2"),
        (["2024-01-01 10:00Z", "2024-01-01 10:00"], "has times with a zone and without"),
        (["1,234", "2,345"], "may have a decimal comma or groups of digits, as in line 2"),
        (["1,5", "2.5"], "has a decimal comma in line 2 ('1,5'), and a point in line 3 ('2.5')"),
        (["1.234,5"], "has digits in groups in line 2 ('1.234,5')"),
        (["1 234", "5"], "has digits in groups in line 2"),
        (["12%", "13 %"], "has a percentage in line 2 ('12%')"),
        (["1e400"], "has something that is no number in line 2"),
        (["9223372036854775808"], "has too many digits for a whole number in line 2"),
        (["9007199254740993", ""], "has too many digits for a whole number in line 2"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused_by_name_and_line(
    tmp_path: Path, cells: list[str], problem: str
) -> None:
    found = problem_of(tmp_path, *cells)
    assert "column 'x'" in found and problem in found


def test_another_column_settles_what_a_comma_is(tmp_path: Path) -> None:
    content = read(tmp_path, "a;b\n1,234;0,5\n")
    assert torch.equal(content.tensors["table"], torch.tensor([[1.234, 0.5]]))
    with pytest.raises(FileRefused, match="'a' has another decimal sign in line 2 .'1.234'"):
        read(tmp_path, "a;b\n1.234;0,5\n")
    with pytest.raises(FileRefused, match="'a' has another decimal sign in line 2 .'1,234'"):
        read(tmp_path, 'a,b\n"1,234",1\n')


@pytest.mark.parametrize(
    ("cells", "said", "kind", "numbers"),
    [
        (["01/02/1970"], {"date_formats": {"x": "%m/%d/%Y"}}, f"date ({DAYS})", [1]),
        (["19700103"], {"date_formats": {"x": "%Y%m%d"}}, f"date ({DAYS})", [2]),
        (["1.1.70 1:00"], {"date_formats": {"x": "%d.%m.%y %H:%M"}}, f"date ({SECONDS})", [3600]),
        (["1", "2+"], {"kinds": {"x": "category"}}, "category", [0, 1]),
        (["1", "0"], {"kinds": {"x": "boolean"}}, "boolean", [1, 0]),
        (["01", "10"], {"kinds": {"x": "integer"}}, "integer", [1, 10]),
        (["3", "4"], {"kinds": {"x": "number"}}, "number", [3, 4]),
        (["1", "-99", "<5"], {"empty": ["-99", "<5"]}, "integer", [1, math.nan, math.nan]),
        (["b", "a"], {"categories": {"x": ["b", "c", "a"]}}, "category", [0, 2]),
        (["1,234"], {"decimal": ","}, "number", [1.234]),
        (["3.5"], {"decimal": "."}, "number", [3.5]),
    ],
)
def test_what_the_owner_says_counts(
    tmp_path: Path, cells: list[str], said: dict[str, Any], kind: str, numbers: list[float]
) -> None:
    shown, found = one(tmp_path, *cells, **said)
    assert shown == kind
    np.testing.assert_allclose(found, numbers, rtol=1e-6)


@pytest.mark.parametrize(
    ("cells", "said", "problem"),
    [
        (["a", "q"], {"categories": {"x": ["a"]}}, "not among those said in line 3 ('q')"),
        (["1970-01-01"], {"date_formats": {"x": "%d/%m/%Y"}}, "not written as %d/%m/%Y in line 2"),
        (["1", "1_0"], {"kinds": {"x": "number"}}, "something that is no number in line 3 ('1_0')"),
        (["1", "\u0661"], {"kinds": {"x": "integer"}}, "no whole number in line 3"),
        (["maybe"], {"kinds": {"x": "boolean"}}, "something that is not yes or no in line 2"),
        (["soon"], {"kinds": {"x": "date"}}, "something that is no date in line 2"),
        (["1,5"], {"decimal": "."}, "another decimal sign in line 2 ('1,5')"),
    ],
)
def test_what_the_owner_says_must_hold(
    tmp_path: Path, cells: list[str], said: dict[str, Any], problem: str
) -> None:
    assert problem in problem_of(tmp_path, *cells, **said)


@pytest.mark.parametrize(
    ("said", "setting"),
    [
        ({"separator": ":"}, "separator"),
        ({"decimal": ";"}, "decimal"),
        ({"encoding": "klingon"}, "encoding"),
        ({"kinds": {"x": "float"}}, "kinds"),
        ({"kinds": {"y": "date"}}, "column"),
        ({"leave_out": ["y"]}, "column"),
        ({"leave_out": "x"}, "leave_out"),
        ({"empty": "-99"}, "empty"),
        ({"categories": {"x": "ab"}}, "categories"),
        ({"categories": {"x": ["a", "a"]}}, "categories"),
    ],
)
def test_what_cannot_be_said_is_refused(tmp_path: Path, said: dict[str, Any], setting: str) -> None:
    with pytest.raises(UnusableSetting) as caught:
        one(tmp_path, "a", **said)
    assert caught.value.setting == setting


def test_free_text_is_left_out_and_the_owner_is_told(tmp_path: Path) -> None:
    rows = "".join(f"{n},patient {n},{n % 2}\n" for n in range(40))
    content = read(tmp_path, f"a,name,b\n{rows}")
    assert content.columns is not None and content.columns.names == ("a", "b")
    assert content.notes == ("column 'name' is free text and was left out",)
    assert content.tensors["table"].shape == (40, 2)
    said = read(tmp_path, f"a,name,b\n{rows}", kinds={"name": "category"})
    assert said.columns is not None and len(said.columns["name"].categories) == 40
    twice = "".join(f"patient {n % 20},{n}\n" for n in range(40))
    assert read(tmp_path, f"name,b\n{twice}").tensors["table"].shape == (40, 2)
    with pytest.raises(FileRefused, match="the target 'name' is free text"):
        read(tmp_path, f"a,name,b\n{rows}", "name")


def test_whole_numbers_and_dates_are_never_rounded(tmp_path: Path) -> None:
    wide = read(tmp_path, "id,w\n123456789,1.5\n").tensors["table"]
    same(wide, np.array([[123456789, 1.5]]))
    assert read(tmp_path, "id,w\n16777216,1.5\n").tensors["table"].dtype == torch.float32
    assert read(tmp_path, "t,w\n2024-01-01 00:00:01,1.5\n").tensors["table"].tolist()[0][0] == (
        1704067201
    )
    assert read(tmp_path, "a,w\n1e39,1.5\n").tensors["table"].tolist() == [[1e39, 1.5]]
    assert read(tmp_path, "id,n\n9007199254740993,1\n").tensors["table"].dtype == torch.int64


def test_the_target_stands_apart(tmp_path: Path) -> None:
    content = read(tmp_path, "a,y,b\n1,no,x\n2,yes,\n", "y")
    same(content.tensors["data"], np.array([[1, 0], [2, -1]]))
    same(content.tensors["target"], np.array([0, 1]))
    assert content.columns is not None and content.columns.target is not None
    assert content.columns.target.kind is ColumnKind.BOOLEAN
    assert read(tmp_path, "a,y\n1,0.5\n", "y").tensors["target"].tolist() == [0.5]
    with pytest.raises(FileRefused, match="no column in it is called 'z'.*one of a, y"):
        read(tmp_path, "a,y\n1,0.5\n", "z")
    with pytest.raises(FileRefused, match="the target 'y' has an empty cell .2 in all"):
        read(tmp_path, "a,y\n1,\n2,\n3,1\n", "y")
    with pytest.raises(FileRefused, match="no column in it is data"):
        read(tmp_path, "y\n1\n", "y")


# ------------------------------------------------------------------------------------- files


def test_separators_encodings_and_what_excel_adds(tmp_path: Path) -> None:
    expected = torch.tensor([[1.5, 0], [2.5, 1]])
    for text in (
        "a;b\n1,5;x\n2,5;y\n",
        "a\tb\n1,5\tx\n2,5\ty\n",
        "a|b\n1.5|x\n2.5|y\n",
        '"a";"b"\r\n"1,5";"x"\r\n"2,5";"y"\r\n',
        "sep=;\r\na;b\r\n1,5;x\r\n2,5;y\r\n",
        "\ufeffa;b;\r\n1,5;x;\r\n2,5;y;\r\n;;\r\n\r\n",
        "a;b\r1,5;x\r2,5;y\r",
        "a;b\n1,5;x\n2,5;y\n".encode("utf-16"),
    ):
        assert torch.equal(read(tmp_path, text).tensors["table"], expected), text
    one_fits = read(tmp_path, 'a;"b,c"\n1;"2,3"\n4;5\n', kinds={"b,c": "category"})
    assert one_fits.tensors["table"].tolist() == [[1, 0], [4, 1]]
    kept = read(tmp_path, "größe;w\nMüller;1\n".encode("cp1252"), encoding="cp1252").columns
    assert kept is not None and kept.names == ("größe", "w")
    assert kept["größe"].categories == ("Müller",)
    assert read(tmp_path, "a;b,c\n1;2,3\n", separator=",").tensors["table"].shape == (1, 2)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a;b\n1;x\n2;Müller\n".encode("cp1252"), "line 3 is not in UTF-8 (byte 0xfc)"),
        ("a;b\n1;x\n".encode("utf-16-le"), "a byte of zeros is in line 1"),
        ("a,b\n1,2\n3,4,5\n", "line 3 has 3 cells, and the first one has 2"),
        ("Export of 1.2.2024\n\na,b\n1,2\n", "line 3 has 2 cells, and the first one has 1"),
        ('a,b\n1,"x\n2,y\n', "the quotes or cells of line 3 cannot be read"),
        ('a,b\n1,"x"y\n', "the quotes or cells of line 2 cannot be read"),
        ("a,a\n1,2\n", "2 columns are called 'a'"),
        (",a\n0,1\n", "column 1 has no name, and values in it"),
        ("a\x1b[2J,b\n1,2\n", "cannot be printed"),
        ('a;b,c\n1;"2\n', "a comma and a semicolon both divide its first line"),
        ("a;b,c;d\n1;2,3;4\n", "a comma and a semicolon both divide its first line"),
        ("2019,2020\n1,x\n", "column 'column 2' has numbers, and words in line 2"),
        ("id,2020\n1,2\n", "neither names nor numbers alone ('id' is no number)"),
    ],
)
def test_what_is_no_table_is_refused_by_line(
    tmp_path: Path, text: str | bytes, problem: str
) -> None:
    with pytest.raises(FileRefused) as caught:
        read(tmp_path, text)
    assert problem in caught.value.problem


def test_a_column_without_a_name_can_be_left_out(tmp_path: Path) -> None:
    content = read(tmp_path, ",a,b\n0,1,2\n1,3,4\n", leave_out=["column 1"])
    assert content.tensors["table"].tolist() == [[1, 2], [3, 4]]


def test_lines_are_counted_through_quoted_breaks_and_blank_lines(tmp_path: Path) -> None:
    with pytest.raises(FileRefused, match="words in line 6 .'x'"):
        read(tmp_path, 'a,b\n"one\ntwo",1\n\n,\n"q",x\n"r",2\n')


# ----------------------------------------------------------------------------------- parquet

ROWS = 5
PARQUET: dict[str, tuple[Any, list[float], str]] = {
    "int8": (pa.array([1, -2, 3, 4, 5], pa.int8()), [1, -2, 3, 4, 5], "integer"),
    "uint64": (pa.array([1, None, 3, 4, 5], pa.uint64()), [1, math.nan, 3, 4, 5], "integer"),
    "float": (pa.array([1.5, None, 3, 4, 5], pa.float32()), [1.5, math.nan, 3, 4, 5], "number"),
    "decimal": (
        pa.array([decimal.Decimal("1.25")] * ROWS, pa.decimal128(9, 2)),
        [1.25] * ROWS,
        "number",
    ),
    "bool": (pa.array([True, False, True, True, True]), [1, 0, 1, 1, 1], "boolean"),
    "date": (
        pa.array([datetime.date(1970, 1, 2), None, EPOCH, EPOCH, EPOCH]),
        [1, math.nan, 0, 0, 0],
        f"date ({DAYS})",
    ),
    "ns": (
        pa.array([1_700_000_000_500_000_000, None, 0, 0, 0], pa.timestamp("ns")),
        [1_700_000_000.5, math.nan, 0, 0, 0],
        f"date ({SECONDS})",
    ),
    "zone": (
        pa.array([1_700_000_000, 1, 2, 3, 4], pa.timestamp("s", "Europe/Berlin")),
        [1_700_000_000, 1, 2, 3, 4],
        f"date ({SECONDS})",
    ),
    "words": (pa.array(["f", "m", None, "m", " f"]), [0, 1, -1, 1, 0], "category"),
    "dates": (pa.array(["1970-01-02", None, None, None, None]), [1] + [math.nan] * 4, "date"),
    "factor": (
        pa.array(["1", "2", None, "1", "10"]).dictionary_encode(),
        [0, 2, -1, 0, 1],
        "category",
    ),
    "nothing": (pa.nulls(ROWS), [math.nan] * ROWS, "number"),
}


@pytest.mark.parametrize("name", PARQUET)
def test_a_column_of_parquet_is_read_by_its_type(tmp_path: Path, name: str) -> None:
    cells, numbers, kind = PARQUET[name]
    table = pa.table({"first": pa.array(range(ROWS)), name: cells})
    pa.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=2)
    content = read_file(tmp_path / "t.parquet")
    assert content.columns is not None and content.columns[name].shown.startswith(kind)
    found = content.tensors["t"][:, 1].double().numpy()
    np.testing.assert_array_equal(found, np.array(numbers, np.float64))
    assert content.columns[name].empty == cells.null_count


def test_what_parquet_holds_besides_is_refused_or_left_out_by_name(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"a": [1], "x": [[1, 2]]}), path)
    with pytest.raises(FileRefused, match="column 'x' holds list<.*>, which is no number"):
        read_file(path)
    assert read_file(path, settings=TableSettings(leave_out=["x"])).tensors["t"].tolist() == [[1]]
    pa.parquet.write_table(pa.table({"a": [7, 8], "__index_level_0__": [0, 1]}), path)
    content = read_file(path)
    assert content.tensors["t"].tolist() == [[7], [8]]
    assert content.notes[0].startswith("column '__index_level_0__', an index that pandas wrote")
    pa.parquet.write_table(pa.table({"a": [1 << 53, None, (1 << 53) + 1]}), path)
    with pytest.raises(FileRefused, match="column 'a' has empty cells, and too many digits"):
        read_file(path)
    pa.parquet.write_table(pa.table({"a": [7, 8, 7]}), path)
    said = read_file(path, settings=TableSettings(categories={"a": ["8", "7"]}))
    assert said.tensors["t"].tolist() == [[1], [0], [1]]
    cells = {"a": [7, -99, 8], "b": [1.5, -99.0, math.nan], "c": ["x", "-99", "x"], "d": [True] * 3}
    pa.parquet.write_table(pa.table(cells), path)
    content = read_file(path, settings=TableSettings(empty=["-99"]))
    assert content.columns is not None
    assert [one.empty for one in content.columns] == [1, 2, 1, 0]
    expected = np.array([[7, 1.5, 0, 1], [math.nan, math.nan, -1, 1], [8, math.nan, 0, 1]])
    np.testing.assert_array_equal(content.tensors["t"].numpy(), expected)
    with pytest.raises(UnusableSetting, match="encoding must be left out"):
        read_file(path, settings=TableSettings(encoding="utf-8"))
    pa.parquet.write_table(pa.table({"": [1]}), path)
    with pytest.raises(FileRefused, match="has no name that can be printed"):
        read_file(path)
    columns = [pa.array([1]), pa.array([2])]
    pa.parquet.write_table(pa.Table.from_arrays(columns, names=["a b", "a  b"]), path)
    with pytest.raises(FileRefused, match="two columns in it have one name"):
        read_file(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FileRefused, match="it cannot be read as .parquet .Arrow"):
        read_file(path)


def test_without_pyarrow_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa.parquet.write_table(pa.table({"a": [1]}), tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(FileRefused, match="Instead: pip install 'syft-chain.parquet.'"):
        read_file(tmp_path / "t.parquet")
