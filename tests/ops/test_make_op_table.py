"""The tool that proposes lines for new functions finds none, and finds one that was taken out."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from syft.ops import table as op_table

TOOL = Path(__file__).parents[2] / "tools" / "make_op_table.py"

pytestmark = pytest.mark.filterwarnings("ignore")  # some functions of torch warn when asked for


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(TOOL))


def test_the_table_is_complete(tool: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    tool["main"]()
    assert capsys.readouterr().out == "complete\n"


def test_what_is_missing_is_proposed_with_the_next_numbers(
    tool: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    is_leaf: Any = torch.Tensor.is_leaf
    for function in (torch.Tensor.uniform_, is_leaf.__get__):
        monkeypatch.delitem(op_table.NUMBERS, function)
    monkeypatch.delitem(op_table.REFUSED, torch.Tensor.data_ptr)
    tool["main"]()
    number = len(op_table.NAMES)
    assert capsys.readouterr().out.splitlines() == [
        f"{number} torch.Tensor.data_ptr",
        f"{number + 1} torch.Tensor.is_leaf.__get__ metadata",
        f"{number + 2} torch.Tensor.uniform_ inplace random",
    ]


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("torch.Tensor.new_thing", []),
        ("torch.Tensor.new_thing_", ["inplace"]),
        ("torch.Tensor.__new__", []),
        ("torch.Tensor.thing.__set__", ["inplace", "nothing"]),
        ("torch.rand_thing", ["random"]),
        ("torch.empty_thing", ["uninitialized"]),
        ("torch.is_thing", ["metadata"]),
    ],
)
def test_flags_are_guessed_from_names(tool: dict[str, Any], name: str, flags: list[str]) -> None:
    assert tool["guess_flags"](name) == flags
