"""Bundles: what is stacked and what is not, and that nobody can tell from what arrives."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syft.exceptions import LimitExceeded, MalformedMessage, NotSendable
from syft.serde import Bundle, Limits, Packer, Unpacker, deserialize, pack, serialize, unpack
from syft.serde.tensors.bundle import SMALL
from syft.serde.tensors.strided import SIZES
from tests.serde.devices import DEVICES
from tests.serde.samples import same


def stacks(values: list[Any]) -> list[int]:
    """How many rows each stack of a bundle has."""
    return [stack[1][2][0] for stack in pack(Bundle(values), Packer())[2]]


def arrived(values: list[Any], owns: bool = True) -> Bundle:
    """A bundle at the other end: over a network, or from memory that the sender keeps."""
    if owns:
        bundle = deserialize(serialize(Bundle(values)))
    else:
        packer = Packer()
        operand = pack(Bundle(values), packer)
        bundle = unpack(operand, Unpacker(packer.buffers, owns_buffers=False))
    assert type(bundle) is Bundle
    return bundle


@pytest.mark.parametrize("owns", [True, False])
@pytest.mark.parametrize("dtype", SIZES, ids=str)
def test_every_dtype(dtype: torch.dtype, owns: bool) -> None:
    raw = torch.arange(48, dtype=torch.uint8).view(3, 16) % 2
    with warnings.catch_warnings():  # about complex32
        warnings.simplefilter("ignore")
        values = [row.clone().view(dtype) for row in raw]
        assert all(map(same, arrived(values, owns), values))


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_every_device(device: torch.device) -> None:
    values = [torch.ones(2, device=device), torch.zeros(2), torch.full((2,), 3.0, device=device)]
    assert all(map(same, arrived(values), values))


def _graded() -> torch.Tensor:
    leaf = torch.ones(3, requires_grad=True)
    leaf.grad = torch.zeros(3)
    return leaf


def _tagged() -> torch.Tensor:
    tensor = torch.ones(3)
    tensor.__dict__["_tags"] = {"#a"}
    return tensor


ALONE: dict[str, Callable[[], torch.Tensor]] = {
    "with a gradient": _graded,
    "with a gradient, frozen": lambda: _graded().requires_grad_(False),
    "with tags": _tagged,
    "transposed": lambda: torch.arange(6).view(2, 3).t(),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.5, 1, torch.quint8),
    "without data": lambda: torch.ones(3, device="meta"),
    "large": lambda: torch.ones(SMALL + 1, dtype=torch.uint8),
    "a buffer": lambda: torch.nn.Buffer(torch.ones(3)),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(1)], layout=torch.jagged),
}
STACKED: dict[str, Callable[[], torch.Tensor]] = {
    "scalar": lambda: torch.tensor(2.5),
    "empty": lambda: torch.ones(2, 0, 3),
    "leaf": lambda: torch.ones(3, requires_grad=True),
    "parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "frozen parameter": lambda: torch.nn.Parameter(torch.ones(3), requires_grad=False),
    "bits": lambda: torch.tensor([True, False]),
    "largest": lambda: torch.ones(SMALL, dtype=torch.uint8),
    "part of another": lambda: torch.arange(10)[3:6],
}


@pytest.mark.parametrize("make", ALONE.values(), ids=ALONE)
def test_what_has_more_to_say_is_packed_alone(make: Callable[[], torch.Tensor]) -> None:
    values = [make(), make()]
    assert stacks(values) == []
    assert all(map(same, arrived(values), values))


@pytest.mark.parametrize("make", STACKED.values(), ids=STACKED)
def test_what_has_not_is_stacked(make: Callable[[], torch.Tensor]) -> None:
    values = [make(), make(), make()]
    assert stacks(values) == [3]
    assert all(map(same, arrived(values), values))


def test_conjugated_and_negative_ones_arrive_resolved() -> None:
    values = [torch.tensor([1 + 2j]).conj(), torch.tensor([3j]).conj().imag, torch.tensor([1j])]
    assert [value.tolist() for value in arrived(values)] == [[1 - 2j], [-3.0], [1j]]


def test_a_result_with_a_graph_arrives_as_numbers() -> None:
    leaf = torch.ones(2, requires_grad=True)
    values = [leaf * 2, leaf * 3]
    assert stacks(values) == [2]
    assert all(map(same, arrived(values), [value.detach() for value in values]))


def test_one_of_a_kind_is_no_stack_and_the_order_is_kept() -> None:
    values = [torch.ones(1), torch.ones(2), torch.zeros(1), torch.ones(3)]
    assert stacks(values) == [2]
    assert all(map(same, arrived(values), values))
    assert pack(Bundle(values), Packer())[1] == (0, 2, 1, 3)
    assert pack(Bundle(values[:1]), Packer())[1] is None


def test_each_has_memory_of_its_own() -> None:
    values = arrived([torch.ones(2), torch.zeros(2)], owns=False) + arrived([torch.ones(2)] * 2)
    assert len({value.untyped_storage().data_ptr() for value in values}) == 4
    assert {value.untyped_storage().nbytes() for value in values} == {8}
    assert [value._base for value in values] == [None] * 4
    values[0].resize_(5)


def test_one_that_is_listed_twice_arrives_twice() -> None:
    x = torch.ones(2)
    first, second = arrived([x, x])
    assert first is not second
    assert first.add_(1).tolist() == [2, 2] and second.tolist() == [1, 1]


KINDS = st.sampled_from([*STACKED, *ALONE])


@given(st.lists(KINDS, max_size=12))
def test_any_mixture_arrives_as_it_was(names: list[str]) -> None:
    makers = {**STACKED, **ALONE}
    values = [makers[name]() for name in names if name not in ("large", "largest")]
    assert all(map(same, arrived(values), values))


def test_limits_count_every_tensor() -> None:
    values = [torch.ones(0) for _ in range(10)]
    with pytest.raises(NotSendable, match="more than 9 items"):
        pack(Bundle(values), Packer(limits=Limits(max_items=9)))
    packer = Packer()
    operand = pack(Bundle(values), packer)
    with pytest.raises(LimitExceeded, match=r"\$\.stacks\[0\]: max_items is 9, got 10"):
        unpack(operand, Unpacker(packer.buffers, Limits(max_items=9)))
    with pytest.raises(LimitExceeded, match=r"\$\.alone: max_items is 1, got 2"):
        unpack((38, None, (), (2, 3)), Unpacker([], Limits(max_items=1)))


ROW = (32, 5, (1,), None, 0)
MALFORMED = {
    "$: expected 3 fields": (38, None, ()),
    "$.stacks: expected an array, got an int": (38, None, 3, ()),
    "$.alone: expected an array, got nil": (38, None, (), None),
    "$.stacks[0]: expected flags and a tensor, got an int": (38, None, (3,), ()),
    "$.stacks[0]: expected flags and a tensor, got an array of 1": (38, None, ((0,),), ()),
    "$.stacks[0].tensor: expected a tensor with one or more rows": (38, None, ((0, 7),), ()),
    "$.stacks[0].tensor: expected a tensor with one or more rows, got": (
        *(38, None),
        ((0, (32, 5, (), None, 0)),),
        (),
    ),
    "$.stacks[0].tensor: expected a tensor with one or more rows, got none": (
        *(38, None),
        ((0, (32, 5, (-1,), None, 0)),),
        (),
    ),
    "$.stacks[0].tensor: expected a plain tensor": (38, None, ((0, (2, 5, (1,))),), ()),
    "$.stacks[0].tensor.dtype": (38, None, ((0, (32, 99, (1,), None, 0)),), ()),
    "$.stacks[0].flags": (38, None, ((16, ROW),), ()),
    "$.stacks[0].flags: expected an int": (38, None, ((None, ROW),), ()),
    "$.alone[0]": (38, None, (), ((7,),)),
    "$.order: expected the numbers from 0 to 0, each once, got an int": (38, 0, ((0, ROW),), ()),
    "$.order: expected the numbers from 0 to 0, each once": (38, (1,), ((0, ROW),), ()),
    "$.order: expected the numbers from 0 to 0, each once, got an array of 1": (
        *(38, (False,)),
        ((0, ROW),),
        (),
    ),
}


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed(text: str) -> None:
    buffer = torch.zeros(1, dtype=torch.uint8)
    with pytest.raises(MalformedMessage) as caught:
        unpack(MALFORMED[text], Unpacker([buffer]))
    assert f"Malformed message at {text}" in str(caught.value)
