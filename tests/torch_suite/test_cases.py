"""The comparison itself can fail: on a value, a dtype, a shape, a container, an exception."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.testing._internal.opinfo.core import SampleInput

import syft as sy
from tests.shells.owner import inspect
from tests.torch_suite.agreement import (
    FEW,
    MOST,
    Raised,
    check_backward,
    check_equal,
    check_forward,
    outcome,
)
from tests.torch_suite.carriers import (
    Carrier,
    PointerCarrier,
    Travellers,
)
from tests.torch_suite.cases import (
    OP_CASES,
    Case,
)
from tests.torch_suite.known_failures import REASONS, parameters, share_passing
from tests.torch_suite.layouts import as_it_arrives, each_once

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


# -------------------------------------------- where native torch differs from itself by rounding

UNIT = 2**-23
"""One unit in the last place of 1 in float32."""


@pytest.mark.parametrize(
    ("want", "got", "itself", "passes"),
    [
        (ONE, ONE + UNIT, ONE, False),  # torch agrees with itself: the last bit counts
        (ONE, ONE + UNIT, ONE + UNIT, True),
        (ONE, ONE - UNIT, ONE + UNIT, True),
        (ONE, ONE + FEW * UNIT, ONE + UNIT, True),
        (ONE, ONE + (FEW + 1) * UNIT, ONE + UNIT, False),
        (ONE, ONE + 40 * UNIT, ONE + 40 * UNIT, True),
        (ONE, ONE + 41 * UNIT, ONE + 40 * UNIT, False),
        (ONE, ONE + (MOST + 2) * UNIT, ONE + (MOST + 2) * UNIT, False),  # no rounding
        (ONE, torch.tensor([1.0, 1 + UNIT]), torch.tensor([1 + UNIT, 1.0]), True),
        (torch.tensor([1.0, 0.0]), torch.tensor([1.0, UNIT]), torch.tensor([1 + UNIT, 0.0]), True),
        (ONE, torch.tensor([1.0, float("nan")]), ONE + UNIT, False),
        (ONE, torch.tensor([1.0, float("inf")]), ONE + UNIT, False),
        (ONE, (ONE + UNIT).double(), ONE + UNIT, False),
        (ONE, (ONE + UNIT).to_sparse(), ONE + UNIT, False),
        (ONE.to_sparse(), (ONE + UNIT).to_sparse(), (ONE - UNIT).to_sparse(), True),
        (ONE + 1j, ONE + 1j + UNIT, ONE + 1j - UNIT, True),
        (ONE + 1j, ONE + 1j + 16 * UNIT, ONE + 1j - UNIT, False),
        (ONE.long(), ONE.long() + 1, ONE.long() + 1, False),
        ([ONE, ONE], [ONE, ONE + UNIT], [ONE, ONE + UNIT], True),
        ([ONE, ONE], [ONE, ONE + UNIT], [ONE + UNIT, ONE], False),  # tensor by tensor
        (ONE, ONE + UNIT, Raised(ValueError("x")), False),
        (ONE, Raised(ValueError("x")), ONE + UNIT, False),
        ((ONE, 1.0), (ONE, 1 + 2**-52), (ONE + UNIT, 1 + 2**-52), False),
    ],
)
def test_few_units_where_torch_differs_from_itself(
    want: Any, got: Any, itself: Any, passes: bool
) -> None:
    with contextlib.nullcontext() if passes else pytest.raises(AssertionError):
        check_equal(want, got, again=lambda: itself)


def test_native_torch_runs_again_only_where_results_differ() -> None:
    def again() -> Any:
        pytest.fail("not needed")

    check_equal((ONE, 2), (ONE.clone(), 2), again=again)


@dataclass
class LayoutDependent:
    """An operator of no database, whose last bits follow the layout of its operand."""

    off_there: float
    """Units in the last place by which it is off on every second element of some memory."""
    off_anew: float
    """The same on contiguous memory; on a lazy conjugate it is exact."""
    name: str = "layout_dependent"
    formatted_name: str = "layout_dependent"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        off = self.off_anew if x.is_contiguous() else self.off_there
        return x.real * (1.0 if x.is_conj() else 1 + off * UNIT)


class EverySecond(Carrier):
    """Plain tensors at every second element of their memory, for want of another place."""

    keeps_kind = False

    def send(self, tensor: torch.Tensor) -> torch.Tensor:
        sent = torch.empty(2 * tensor.numel(), dtype=tensor.dtype)[::2]
        return sent.copy_(tensor.detach()).requires_grad_(tensor.requires_grad)


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize(
    ("off_there", "off_anew", "passes"),
    [
        (0.0, 0.0, True),
        (1.0, 0.0, False),  # torch agrees with itself, so this is ours
        (1.0, 1.0, True),
        (2.0, 1.0, True),
        (30.0, 1.0, False),
        (2 * MOST, 2 * MOST, False),
    ],
)
def test_an_operator_that_depends_on_the_layout(
    off_there: float, off_anew: float, passes: bool, backward: bool
) -> None:
    sample = SampleInput(torch.ones(3, dtype=torch.complex64).conj().requires_grad_(backward))
    case: Any = Case(LayoutDependent(off_there, off_anew), torch.complex64)  # type: ignore
    with contextlib.nullcontext() if passes else pytest.raises(AssertionError):
        (check_backward if backward else check_forward)(case, sample, EverySecond())


@pytest.mark.parametrize(
    ("given", "strides"),
    [
        (torch.ones(2, 3), (3, 1)),
        (torch.ones(2, 3).t(), (1, 3)),
        (torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last), (60, 1, 15, 3)),
        (torch.ones(3).expand(5, 3), (0, 1)),
        (torch.ones(2, 6)[:, ::2], (3, 1)),
        (torch.ones(6, 2).t()[:, ::2], (3, 1)),
        (torch.ones(5).as_strided((3, 2), (1, 1)), (2, 1)),
        (torch.ones(5)[3:], (1,)),
        (torch.ones(2, 3, dtype=torch.complex64).mH, (1, 3)),
        (torch.ones(3, dtype=torch.complex64).conj().imag, (1,)),
        (torch.ones(()), ()),
        (torch.ones(0, 3), (3, 1)),
    ],
)
def test_a_copy_is_laid_out_as_what_arrives(
    given: torch.Tensor, strides: tuple[int, ...], bob: sy.VirtualWorker
) -> None:
    copied, sent = as_it_arrives(given), given.send(bob)
    arrived = next(iter(inspect(bob).objects.values()))
    for tensor in (copied, arrived):
        assert (tensor.stride(), tensor.storage_offset()) == (strides, 0)
        assert not tensor.is_conj() and not tensor.is_neg()
        assert torch.equal(tensor, given)
    del arrived, sent


def test_a_copy_needs_gradients_and_is_made_once_as_what_is_sent() -> None:
    leaf = torch.ones(2, requires_grad=True)
    first, (again, number) = each_once((leaf, [leaf, 3]), as_it_arrives)
    assert first is again and number == 3
    assert first is not leaf and first.is_leaf and first.requires_grad


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


def test_what_is_written_to_a_sample_is_in_no_other() -> None:
    """Torch hands out one dictionary for all samples of ``round(decimals=...)``."""
    cases = [case for case in OP_CASES if case.op.name == "round"]
    assert len(cases) >= 4
    for case in cases:
        for sample in case.samples("cpu"):
            assert "out" not in sample.kwargs
            sample.kwargs["out"] = ONE
        assert all("out" not in sample.kwargs for sample in case.samples("cpu"))


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
    database, failing = listed.marks
    assert failing.kwargs == {"reason": "because", "strict": True}
    assert (database.name, database.args) == ("database", ("kind",))
    assert list(other.marks) == [database] and other.id == "add-int64"
    operators = {"add": {"add-float32", "add-int64"}, "sub": {"sub-float32"}}
    assert share_passing("kind", operators) == 0.5
