"""Local operations commute with sharing, are bounded, and look at no share."""

from __future__ import annotations

import pytest
import torch

from syft.crypto.programs.local_operations import (
    LOCAL_OPERATIONS,
    NUMBERS,
    LocalOperation,
    bounded,
    number_of,
    on_meta,
    run_local,
)
from syft.exceptions import ProgramError
from syft.tensors.fixed.rings import component_rules
from syft.tensors.fixed.rings.ring_link import overloads

aten = torch.ops.aten
MOST = 1 << 20


def whole(*shape: int) -> torch.Tensor:
    return torch.randint(-(2**63), 2**63 - 1, shape)


def index(*values: int) -> torch.Tensor:
    return torch.tensor(values)


X, Y = whole(3, 4), whole(3, 4)
SQUARE = whole(4, 4)
MASK = torch.tensor([[True, False, True, False]] * 3)

# What each operation is called with.
CALLS = {
    **dict.fromkeys("alias detach lift_fresh clone neg sum _to_copy".split(), (X,)),
    **dict.fromkeys("t trace tril triu rot90".split(), (SQUARE,)),
    **dict.fromkeys(["view", "_unsafe_view"], (X, (4, 3))),
    "_reshape_alias": (X, (4, 3), (3, 1)),
    "transpose.int": (X, 0, 1),
    "permute": (X, (1, 0)),
    "expand": (X[:1], (5, 4)),
    **dict.fromkeys(["squeeze"], (X[:1],)),
    "squeeze.dim": (X[:1], 0),
    "squeeze.dims": (X[:1], (0, 1)),
    "unsqueeze": (X, 1),
    "select.int": (X, 1, 2),
    "slice.Tensor": (X, 1, 1, 3),
    "diagonal": (X, 1),
    "unfold": (X, 1, 2, 1),
    "as_strided": (X, (2, 2), (4, 1), 1),
    **dict.fromkeys(["flip"], (X, (0, 1))),
    "roll": (X, (1,), (0,)),
    "repeat": (X, (2, 3)),
    "slice_backward": (X, (3, 9), 1, 2, 6, 1),
    "select_backward": (X, (3, 2, 4), 1, 1),
    "diagonal_backward": (X, (3, 4, 4), 0, 1, 2),
    "unfold_backward": (whole(3, 3, 2), (3, 4), 1, 2, 1),
    "narrow_copy": (X, 1, 1, 2),
    "channel_shuffle": (whole(1, 4, 2, 2), 2),
    "native_channel_shuffle": (whole(1, 4, 2, 2), 2),
    "pixel_shuffle": (whole(1, 4, 2, 2), 2),
    "pixel_unshuffle": (whole(1, 1, 4, 4), 2),
    "diag_embed": (X, 1),
    **dict.fromkeys(["split.Tensor", "unsafe_split.Tensor"], (X, 2, 1)),
    **dict.fromkeys(["split_with_sizes", "unsafe_split_with_sizes"], (X, (1, 3), 1)),
    "unbind.int": (X, 1),
    "sum.dim_IntList": (X, (1,), True),
    "cumsum": (X, 1),
    "constant_pad_nd": (X, (1, 2)),
    **dict.fromkeys(
        "add.Tensor sub.Tensor rsub.Tensor add_.Tensor sub_.Tensor copy_".split(), (X, Y)
    ),
    **dict.fromkeys(["mul.Tensor", "mul_.Tensor"], (X, index(1, 2, 3, 4))),
    **dict.fromkeys(["mul.Scalar", "mul_.Scalar"], (X, -3)),
    "zero_": (X,),
    "where.self": (MASK, X, Y),
    **dict.fromkeys(["cat", "stack"], ((X, Y), 1)),
    "index_select": (X, 1, index(3, 0, 3)),
    "gather": (X, 1, index(3, 0, 3).view(3, 1)),
    "take": (X, index(3, 11)),
    "embedding": (X, index(2, 0, 2)),
    "embedding_dense_backward": (X, index(2, 0, 2), 5, -1, False),
    **dict.fromkeys(["index.Tensor", "_unsafe_index.Tensor"], (X, (None, index(1, 1)))),
    **dict.fromkeys(["scatter.src", "scatter_add"], (X, 1, torch.arange(12).view(3, 4) % 4, Y)),
    **dict.fromkeys(["index_put", "_unsafe_index_put"], (X, (index(1, 2),), Y[:2])),
    **dict.fromkeys(["index_add", "index_copy"], (X, 1, index(1, 2), Y[:, :2])),
    "slice_scatter": (X, Y[:, :2], 1, 0, 2),
    "select_scatter": (X, Y[0], 0, 1),
    "diagonal_scatter": (X, Y[0, :3]),
    "as_strided_scatter": (X, Y[:2, :2], (2, 2), (4, 1), 0),
    "masked_scatter": (X, MASK, Y),
    "index_fill.int_Tensor": (X, 1, index(1), Y[0, 0]),
}


@pytest.mark.parametrize("operation", LOCAL_OPERATIONS, ids=lambda operation: operation.name)
def test_operations_on_shares_make_shares_of_the_result(operation):
    args = CALLS[operation.name]
    expected = LOCAL_OPERATIONS[numbers()[operation.name]].run(*_cloned(args))
    made = [
        run_local(operation, tuple(one), (), MOST)
        for one in zip(*(_shares(operation, p, value) for p, value in enumerate(args)), strict=True)
    ]
    whole_results = expected if operation.several else [expected]
    for one, other, wanted in zip(*made, whole_results, strict=True):
        assert torch.equal(one + other, wanted)


def numbers() -> dict[str, int]:
    return {operation.name: number for number, operation in enumerate(LOCAL_OPERATIONS)}


def _cloned(args):
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in args]


def _shares(operation: LocalOperation, place: int, value):
    """An argument at each of two parties."""
    public = place in operation.public or operation.name.startswith("mul") and place
    if isinstance(value, torch.Tensor) and not public:
        share = whole(*value.shape)
        return share, value - share
    if isinstance(value, tuple) and value and operation.name in ("cat", "stack"):
        pairs = [_shares(operation, place, item) for item in value]
        return tuple(zip(*pairs, strict=True))
    return value, value


@pytest.mark.parametrize("operation", LOCAL_OPERATIONS, ids=lambda operation: operation.name)
def test_results_that_share_memory_are_known_and_sizes_are_bounded(operation):
    args = tuple(_cloned(CALLS[operation.name]))
    results = run_local(operation, args, (), MOST)
    given = [value for value in args if isinstance(value, torch.Tensor)]
    memory = {one.untyped_storage().data_ptr() for one in given}
    for made in results:
        shares = made.untyped_storage().data_ptr() in memory
        assert not shares or operation.view or operation.in_place
    largest = max(made.numel() for made in results)
    operands = max(sum(one.numel() for one in leaves(args)), 1)
    assert operation.grows or operation.view or largest <= operands
    with pytest.raises(ProgramError, match=f"{largest} elements, where at most {largest - 1}"):
        run_local(operation, args, (), largest - 1)


def leaves(value):
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in leaves(item)]
    return [value] if isinstance(value, torch.Tensor) else []


def test_every_operation_of_the_rings_that_acts_on_components_has_a_number():
    for op in overloads(component_rules.MOVES + component_rules.MAPS):
        assert LOCAL_OPERATIONS[number_of(op)].run is not None
    assert set(CALLS) == {operation.name for operation in LOCAL_OPERATIONS}
    assert len(set(NUMBERS.values())) == len(LOCAL_OPERATIONS)


def test_views_in_place_are_recorded_as_views():
    for op in (aten.t_.default, aten.squeeze_.dim, aten.unsqueeze_.default):
        assert LOCAL_OPERATIONS[number_of(op)].view


def test_numbers_are_not_given_away_twice():
    """The wire numbers of a few operations; a change here breaks other versions."""
    names = [operation.name for operation in LOCAL_OPERATIONS]
    assert names[0] == "alias" and names.index("neg") == 41 and names.index("copy_") == 75
    assert len(names) == len(set(names)) == 81


def named(name: str) -> LocalOperation:
    return LOCAL_OPERATIONS[numbers()[name]]


@pytest.mark.parametrize(
    "name, args",
    [
        ("_reshape_alias", (X.clone(), (100, 100), (100, 1))),
        ("as_strided", (X.clone(), (100, 100), (100, 1), 0)),
        ("unfold_backward", (whole(3, 1, 1), (3, 400), 1, 200, 100)),
        ("embedding_dense_backward", (X, index(2, 0, 1 << 40), 5, -1, True)),
        ("take", (X, index(12))),
        ("index_select", (X, 1, index(4))),
        ("add.Tensor", (X, whole(5))),
    ],
)
def test_arguments_that_would_reach_other_memory_are_refused(name, args):
    with pytest.raises((ProgramError, RuntimeError, IndexError)):
        run_local(named(name), args, (), MOST)


def test_results_that_are_no_integers_are_refused():
    with pytest.raises(ProgramError, match="made torch.bool"):
        run_local(named("clone"), (torch.ones(2, dtype=torch.bool),), (), MOST)


def test_masks_in_indices_are_as_large_as_what_they_select():
    args = (X, (MASK,))
    bounded(named("index.Tensor"), args, (), 6)
    with pytest.raises(ProgramError, match="6 elements"):
        bounded(named("index.Tensor"), args, (), 5)
    assert on_meta(((None, 3),)) == ((None, 3),)


def test_keywords_are_passed():
    (made,) = run_local(named("add.Tensor"), (X, Y), (("alpha", 2),), MOST)
    assert torch.equal(made, X + 2 * Y)
