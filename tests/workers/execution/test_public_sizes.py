"""The public bounds of what has a private shape."""

from __future__ import annotations

import pytest
import torch

from syft.workers.execution.public_sizes import (
    forms_of,
    note_gradient,
    note_growth,
    note_received,
    note_sizes,
    public_size,
    sizes_at_most,
)
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import protect

HIDDEN = Guard(frozenset({"ann"}), shape_hidden=True)


def hidden(tensor: torch.Tensor) -> torch.Tensor:
    protect(tensor, HIDDEN)
    return tensor


@pytest.mark.parametrize("elements, bounded", [(5, True), (7, True), (8, False)])
def test_a_bound_that_came_is_one_of_memory_that_is_no_larger(elements: int, bounded: bool) -> None:
    """More memory than the sizes need has another reason, which may be private."""
    x = hidden(torch.zeros(elements)[:3])
    note_received(x, (7,))
    assert sizes_at_most(x) == (7,) and public_size(x).bounded is bounded
    assert public_size(x).bytes == [28 if bounded else 4 * elements]


def test_what_shares_memory_has_the_bound_of_that() -> None:
    base = hidden(torch.zeros(6))
    view = base[2:4]
    note_sizes(base, (9,))
    note_sizes(view, (4,), in_own_memory=False)
    assert sizes_at_most(view) == (4,) and public_size(view).memory == public_size(base).memory
    assert public_size(view).bytes == [36]


def test_a_gradient_has_the_bound_of_its_leaf() -> None:
    leaf, gradient, public = hidden(torch.zeros(3)), hidden(torch.zeros(3)), torch.zeros(3)
    note_gradient(gradient, leaf)
    assert not public_size(gradient).bounded, "its leaf has none"
    note_sizes(leaf, (7,))
    note_gradient(public, leaf)
    note_gradient(gradient, leaf)
    assert sizes_at_most(gradient) == (7,) and public_size(gradient).bounded
    assert sizes_at_most(public) == (3,) and public_size(public).bytes == [12]


def test_a_private_number_of_values_has_no_bound_in_memory_that_grows() -> None:
    private = Guard(frozenset({"ann"}))
    rows = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    sparse = torch.eye(3).to_sparse()
    for tensor in (rows, sparse):
        protect(tensor, private)
    assert not public_size(rows).bounded and public_size(sparse).bounded


def test_of_many_tensors_the_extremes_are_tried_together() -> None:
    """Not each of them with each of the others: that would be two to the power of their number."""
    few = [hidden(torch.zeros(2)) for _ in range(3)]
    many = [hidden(torch.zeros(2)) for _ in range(4)]
    for place, tensor in enumerate([*few, *many]):
        note_sizes(tensor, (3 + place,))
    assert len(forms_of(few, {})) == 8 + 1 + 1
    shapes = [[tuple(one.shape) for one in form] for form, _ in forms_of(many, {})]
    most = [(6,), (7,), (8,), (9,)]
    assert shapes == [[(1,)] * 4, most, [(6,)] * 4, most]


def test_what_has_no_bound_before_a_write_has_none_after_it() -> None:
    x = torch.ones(3)
    protect(x, Guard(frozenset(), True))
    note_growth(x, (7,))
    assert sizes_at_most(x) is None
    note_sizes(x, (5,))
    note_growth(x, None)
    assert sizes_at_most(x) is None
