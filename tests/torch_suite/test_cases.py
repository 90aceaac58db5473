"""The comparison itself can fail: on a value, a dtype, a shape, a container, an exception."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from tests.torch_suite.agreement import (
    Raised,
    check_equal,
    outcome,
)
from tests.torch_suite.carriers import (
    PointerCarrier,
    Travellers,
)
from tests.torch_suite.cases import (
    OP_CASES,
)
from tests.torch_suite.known_failures import REASONS, parameters, share_passing

ONE = torch.ones(2)


@pytest.mark.parametrize(
    ("want", "got"),
    [
        (ONE, ONE * (1 + 2**-23)),
        (ONE, ONE.double()),
        (ONE, torch.ones(2, 1)),
        (ONE, ONE.to_sparse()),
        (ONE, [1.0, 1.0]),
        ((ONE,), [ONE]),
        ((ONE,), (ONE, ONE)),
        ({"a": ONE}, {"b": ONE}),
        ([ONE, {"a": (1, ONE)}], [ONE, {"a": (1, ONE + 1)}]),
        (1, 1.0),
        (1, True),
        (None, ONE),
        (ONE, Raised(ValueError("x"))),
        (Raised(ValueError("x")), ONE),
        (Raised(ValueError("x")), Raised(IndexError("x"))),
        (Raised(ValueError("x")), Raised(ValueError("y"))),
    ],
)
def test_what_differs_is_seen(want: Any, got: Any) -> None:
    check_equal(want, want)
    with pytest.raises(AssertionError):
        check_equal(want, got)


def test_only_shapes_of_undefined_values_count() -> None:
    check_equal(ONE, ONE + 1, shape_only=True)
    with pytest.raises(AssertionError):
        check_equal(ONE, torch.ones(3), shape_only=True)
    with pytest.raises(AssertionError):
        check_equal(ONE, ONE.long(), shape_only=True)


def test_nan_equals_nan() -> None:
    check_equal(torch.tensor(float("nan")), torch.tensor(float("nan")))
    check_equal(float("nan"), float("nan"))


def test_an_outcome_is_seeded_or_an_error() -> None:
    check_equal(outcome(lambda: torch.rand(3)), outcome(lambda: torch.rand(3)))
    raised = outcome(lambda: torch.ones(2) @ torch.ones(3))
    assert isinstance(raised, Raised) and raised.error.__traceback__ is None


def test_a_tensor_that_is_there_twice_is_sent_once(bob: sy.VirtualWorker) -> None:
    travellers = Travellers(PointerCarrier(bob))
    first, (second, number) = travellers.send((ONE, [ONE, 3]))
    assert first is second and number == 3
    check_equal(travellers.fetch([first, second]), [ONE, ONE])


def test_samples_are_the_same_at_each_call() -> None:
    for case in OP_CASES[:40]:
        once, again = case.samples("cpu", most=2), case.samples("cpu", most=2)
        check_equal([x.input for x in once], [x.input for x in again])


def test_every_row_of_the_table_names_a_case() -> None:
    """A row for a case that is not there would never be missed; each must mark some test."""
    kinds = {row.split("/")[0] for row in REASONS}
    links = {"logging", "multi", "nested", "queued"}
    known = {*"pointer strided inplace method out gradient fixed program".split(), *links}
    assert kinds <= known | {f"{link}_gradient" for link in links}
    assert {row.split("/")[1] for row in REASONS} <= {case.name for case in OP_CASES}


def test_listed_cases_are_marked_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REASONS, "kind/add-float32", "because")
    listed, other = parameters("kind", [("add-float32", 1), ("add-int64", 2)])
    assert [mark.kwargs for mark in listed.marks] == [{"reason": "because", "strict": True}]
    assert not other.marks and other.id == "add-int64"
    operators = {"add": {"add-float32", "add-int64"}, "sub": {"sub-float32"}}
    assert share_passing("kind", operators) == 0.5
