"""The walk through arguments and results, against torch's own pytree."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils.rnn import PackedSequence
from torch.utils import _pytree as pytree

from syft.ops.nested import container_class, is_container, leaves, parts, rebuild_tuple, replace

Point = namedtuple("Point", "x y")

NESTED = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.lists(inner, max_size=3).map(tuple)
    | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    | st.tuples(inner, inner).map(lambda pair: Point(*pair)),
    max_leaves=12,
)


@given(NESTED)
def test_leaves_are_those_of_pytree(value: Any) -> None:
    assert list(leaves(value)) == pytree.tree_leaves(value)


@given(NESTED)
def test_replace_keeps_the_structure(value: Any) -> None:
    changed = replace(value, lambda leaf: (leaf,))
    assert changed == pytree.tree_map(lambda leaf: (leaf,), value)
    assert replace(value, lambda leaf: leaf) == value


def test_classes_of_tuples_are_kept() -> None:
    assert replace(Point(1, [2]), str) == Point("1", ["2"])
    values = torch.tensor([[1.0, 2.0]]).max(1)
    doubled = replace(values, lambda leaf: leaf * 2)
    assert type(doubled) is type(values)
    assert doubled.values.tolist() == [4.0]
    packed = PackedSequence(torch.ones(2), torch.tensor([2]))
    assert type(rebuild_tuple(packed, list(packed))) is PackedSequence
    assert type(replace(torch.Size([1, 2]), lambda leaf: leaf)) is torch.Size


def test_slices_are_entered() -> None:
    assert replace(slice(1, 2, 3), lambda leaf: leaf * 2) == slice(2, 4, 6)
    assert list(leaves((slice(1, None, 3), 4))) == [1, None, 3, 4]
    assert list(leaves(slice(None, (1, 2)))) == [None, 1, 2, None]
    assert replace(slice(None, [1]), str) == slice("None", ["1"], "None")


@given(NESTED)
def test_parts_lead_to_all_leaves(value: Any) -> None:
    def reached(value: Any) -> list[Any]:
        inside = parts(value)
        return [value] if inside is None else [leaf for _, item in inside for leaf in reached(item)]

    assert reached(value) == list(leaves(value))
    assert reached(slice(value, 1)) == [*leaves(value), 1, None]


def test_subclasses_of_containers_are_entered() -> None:
    ordered = OrderedDict(a=1, b=[2])
    assert list(leaves(ordered)) == [1, 2]
    assert replace(ordered, str) == {"a": "1", "b": ["2"]}
    assert container_class(type(ordered)) is dict


def test_what_counts_as_a_container() -> None:
    assert all(is_container(value) for value in ([], (), {}, Point(1, 2)))
    assert not any(is_container(value) for value in ("text", 1, None, slice(1), torch.ones(1)))
