"""Wire numbers: unique, small, documented, and shown in docs/wire.md as they are."""

from __future__ import annotations

import enum

import pytest

from syft import codes
from syft.codes import NAMED_TUPLES, PYTHON_TYPES, TORCH_ENUMS, TypeCode, WireCode
from syft.serde.torch_types import _object_named
from tools import wire_tables

ENUMERATIONS = wire_tables.enumerations()


def test_every_enumeration_is_looked_at() -> None:
    assert {TypeCode, codes.ErrorCode, codes.MessageCode} < set(ENUMERATIONS)


@pytest.mark.parametrize("cls", ENUMERATIONS, ids=lambda cls: cls.__name__)
def test_no_number_is_given_twice(cls: type[WireCode]) -> None:
    assert list(cls.__members__.values()) == list(cls)
    assert all(type(int(member)) is int and member >= 0 for member in cls)


def test_type_codes_take_one_byte_and_say_their_fields() -> None:
    assert all(code <= 127 and code.meaning for code in TypeCode)
    assert enum.IntEnum in TypeCode.__mro__


@pytest.mark.parametrize("table", [NAMED_TUPLES, TORCH_ENUMS, PYTHON_TYPES])
def test_no_name_is_numbered_twice(table: tuple[object, ...]) -> None:
    assert len(set(table)) == len(table)


def test_names_of_other_torch_versions_are_left_out() -> None:
    assert _object_named("torch.nn.no_such_module.Thing") is None
    assert all(name.startswith("torch.") for name in (*NAMED_TUPLES, *TORCH_ENUMS))


def test_the_document_shows_the_tables_of_today() -> None:
    text = wire_tables.DOCUMENT.read_text(encoding="utf-8")
    assert wire_tables.with_tables(text) == text, "run: python tools/wire_tables.py --write"
    for member in TypeCode:
        assert f"| {int(member)} | `{member.name}` | {member.meaning} |" in text


def test_the_tables_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    wire_tables.main([])
    assert capsys.readouterr().out.startswith("### TypeCode\n\n| number | name | fields after")
