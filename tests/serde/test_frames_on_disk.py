"""Golden frames read as what was written then; hostile frames get the answer in the table."""

from __future__ import annotations

import resource

import pytest

from syft.codes import TypeCode
from syft.exceptions import NotSendable, WireError
from syft.serde import deserialize, serialize
from tests.serde.frames import (
    FOLDER,
    HOSTILE,
    compressed_value,
    golden_name,
    golden_value,
)
from tests.serde.samples import SAMPLES, same

# What is drawn anew each time, or holds numbers that torch may compute otherwise one day.
_DECODED_ONLY = {TypeCode.GENERATOR}


def test_every_file_is_in_a_table_and_every_line_has_a_file() -> None:
    golden = {path.name for path in (FOLDER / "golden").iterdir()}
    assert golden == {"compressed.bin", *map(golden_name, SAMPLES)}
    assert {path.stem for path in (FOLDER / "hostile").iterdir()} == set(HOSTILE)


@pytest.mark.parametrize("code", SAMPLES, ids=lambda code: code.name)
def test_golden(code: TypeCode) -> None:
    data = (FOLDER / "golden" / golden_name(code)).read_bytes()
    value = golden_value(code)
    assert same(deserialize(data), value)
    if code not in _DECODED_ONLY:
        assert serialize(value, compressed=False) == data


def test_golden_compressed() -> None:
    data = (FOLDER / "golden" / "compressed.bin").read_bytes()
    assert same(deserialize(data), compressed_value()) and len(data) < 1000


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name: str) -> None:
    data = (FOLDER / "hostile" / f"{name}.bin").read_bytes()
    make, text = HOSTILE[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for form in (data, bytearray(data), memoryview(data)):
        with pytest.raises((WireError, NotSendable)) as caught:
            deserialize(form)
        assert str(caught.value) == text
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
