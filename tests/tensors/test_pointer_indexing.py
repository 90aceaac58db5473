"""Indexing and setting items through a pointer, against plain torch, for every kind of index."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import syft as sy
from tests.chain.refusal import refusal
from tests.shells.owner import inspect

pytestmark = pytest.mark.every_shell

BASE = torch.arange(24.0).reshape(2, 3, 4)
INDICES: dict[str, Any] = {
    "int": 1,
    "negative": -1,
    "tuple": (1, 2, 3),
    "slice": slice(None, 1),
    "step": (slice(None), slice(None, None, 2)),
    "ellipsis": (..., 1),
    "none": (None, 0, None),
    "list": [1, 0],
    "lists": ([0, 1], [1, 2]),
    "bools": [True, False],
    "true": True,
    "tensor": torch.tensor([1, 0, 1]),
    "tensors": (torch.tensor([[0], [1]]), torch.tensor([0, 2])),
    "mask": BASE > 7,
    "row mask": torch.tensor([False, True]),
    "mixed": (slice(None), torch.tensor([0, 2]), -1),
    "tensor in a slice": slice(0, torch.tensor(1)),
    "0-dim tensor": torch.tensor(1),
    "empty": torch.tensor([], dtype=torch.long),
}


def sent(index: Any, worker: sy.VirtualWorker) -> Any:
    """The index with its tensors at the worker."""
    if isinstance(index, torch.Tensor):
        return index.send(worker)
    if isinstance(index, tuple):
        return tuple(sent(part, worker) for part in index)
    return index


@pytest.mark.parametrize("kind", INDICES)
def test_reading(worker: sy.VirtualWorker, kind: str) -> None:
    index = INDICES[kind]
    assert torch.equal(BASE.send(worker)[sent(index, worker)].get(), BASE[index])


@pytest.mark.parametrize("kind", INDICES)
@pytest.mark.parametrize("value", ["number", "pointer", "number in a tensor"])
def test_writing(worker: sy.VirtualWorker, kind: str, value: str) -> None:
    index, expected, pointer = INDICES[kind], BASE.clone(), BASE.send(worker)
    plain = BASE[index] * -1 if value == "pointer" else -5.0
    expected[index] = plain
    new = {"number": -5.0, "number in a tensor": torch.tensor(-5.0)}.get(value)
    pointer[sent(index, worker)] = plain.send(worker) if new is None else new
    assert torch.equal(pointer.get(), expected)


@pytest.mark.parametrize("kind", INDICES)
def test_an_index_that_is_here(worker: sy.VirtualWorker, kind: str) -> None:
    index, expected, pointer = INDICES[kind], BASE.clone(), BASE.send(worker)
    assert torch.equal(pointer[index].get(), BASE[index])
    expected[index] = -5.0
    pointer[index] = -5.0
    assert torch.equal(pointer.get(), expected)


def test_a_view_is_a_view(worker: sy.VirtualWorker) -> None:
    x = BASE.send(worker)
    x[0, 1].zero_()
    row = x[1]
    row += 100
    x[0][2][0] = -1
    expected = BASE.clone()
    expected[0, 1] = 0
    expected[1] += 100
    expected[0, 2, 0] = -1
    assert torch.equal(x.get(), expected)


def test_out_of_bounds(bob: sy.VirtualWorker) -> None:
    x = BASE.send(bob)
    assert refusal(lambda: x[5]) == (
        "IndexError: index 5 is out of bounds for dimension 0 with size 2"
    )
    assert refusal(lambda: x[0, 0, 0, 0]).startswith("IndexError: too many indices")
    assert len(inspect(bob)) == 1


part = st.one_of(
    st.integers(-2, 1),
    st.slices(3),
    st.none(),
    st.just(...),
    st.booleans(),
    st.lists(st.integers(-2, 1), min_size=1, max_size=3),
)


@given(index=st.lists(part, min_size=1, max_size=4).map(tuple))
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_index(bob: sy.VirtualWorker, index: tuple[Any, ...]) -> None:
    """What plain torch answers or refuses, the pointer answers or refuses."""
    x = BASE.send(bob)
    try:
        expected = BASE[index]
    except (IndexError, ValueError, TypeError) as error:
        assert refusal(lambda: x[index].shape).partition(":")[0] == type(error).__name__
        return
    assert torch.equal(x[index].get(), expected)
