"""Every operand is written as source that gives it back."""

from __future__ import annotations

import enum
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, strategies

from syft.program.code import index_literal, keyword_literals, literal, term
from syft.program.program import Slot


def name(slot: Slot) -> str:
    return f"slots[{slot.index}]"


def back(source: str) -> Any:
    return eval(source, {"torch": torch, "slots": {3: "three"}})  # written by the test's own call


class Colour(enum.IntEnum):
    RED = 3


PLAIN = (
    strategies.none()
    | strategies.booleans()
    | strategies.integers()
    | strategies.floats(allow_nan=False)
    | strategies.complex_numbers(allow_nan=False)
    | strategies.text()
    | strategies.binary()
)
NESTED = strategies.recursive(
    PLAIN,
    lambda inner: strategies.lists(inner)
    | strategies.lists(inner).map(tuple)
    | strategies.dictionaries(strategies.text(), inner)
    | strategies.builds(slice, inner, inner, inner),
    max_leaves=10,
)


@given(value=NESTED)
def test_plain_values(value: Any) -> None:
    assert back(literal(value, name)) == value


PAIR: Any = torch.return_types.max((1, 2))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [torch.float16, torch.device("cuda:1"), torch.strided, torch.channels_last, range(1, 9, 2)]
    + [torch.Size([2, 3]), torch.per_tensor_affine, float, bool, ..., math.inf, -math.inf]
    + [torch.nn.attention.SDPBackend.MATH, torch.nn.functional.ScalingType.RowWise]
    + [torch.nn.LinearCrossEntropyOptions(acc_dtype=torch.float64), Colour.RED]
    + [np.float32(0.5), np.int64(-3), np.float64(math.inf), PAIR],
    ids=repr,
)
def test_values_of_torch_and_numpy(value: Any) -> None:
    assert back(literal(value, name)) == value


def test_slots_are_named_wherever_they_are() -> None:
    value = (Slot(3), [Slot(3)], {"a": Slot(3)})
    assert back(literal(value, name)) == ("three", ["three"], {"a": "three"})


def test_nan_and_generators() -> None:
    assert math.isnan(back(literal(math.nan, name)))
    assert back(literal(torch.Generator(), name)).device == torch.device("cpu")


INDEX = (
    strategies.integers(-3, 3)
    | strategies.none()
    | strategies.just(...)
    | strategies.builds(
        slice, *[strategies.none() | strategies.integers(-3, 3) for _ in ("start", "stop", "step")]
    )
)


class Asked:
    def __getitem__(self, index: Any) -> Any:
        return index


@given(index=INDEX | strategies.lists(INDEX).map(tuple) | strategies.lists(strategies.integers()))
def test_indices(index: Any) -> None:
    source = f"asked[{index_literal(index, name)}]"
    assert eval(source, {"asked": Asked()}) == index  # written by the test's own call


@given(value=PLAIN)
@example(value=-3)
@example(value=True)
def test_terms_stand_beside_operators(value: Any) -> None:
    assert back(f"[{term(value, name)}][0]") == value
    if type(value) in (int, bool) and abs(value) < 9:
        assert back(f"2 ** {term(value, name)}") == 2**value
        assert back(f"{term(value, name)} ** 2") == value**2


@given(kwargs=strategies.dictionaries(strategies.text(), strategies.integers()))
def test_keywords(kwargs: dict[str, int]) -> None:
    source = f"dict({', '.join(keyword_literals(kwargs | {'from': 1, 'a': 2}, name))})"
    assert back(source) == kwargs | {"from": 1, "a": 2}
