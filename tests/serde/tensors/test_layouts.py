"""Quantized, sparse and jagged tensors: they survive, and hostile ones never reach a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from syft.codes import TypeCode
from syft.exceptions import LimitExceeded, MalformedMessage, NotSendable
from syft.serde import Packer, Unpacker, deserialize, pack, serialize, unpack
from syft.serde.tensors.layouts import _expect_rows
from tests.serde.devices import DEVICES
from tests.serde.samples import SAMPLES, same

SPARSE = {
    "coo": lambda x: x.to_sparse(),
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "bsr": lambda x: x.to_sparse_bsr((2, 1)),
    "bsc": lambda x: x.to_sparse_bsc((1, 2)),
}


def refused(operand: Any, packer: Packer, owns: bool = True) -> str:
    """Return the text of the refusal of an operand, as MessagePack would deliver it."""
    with pytest.raises(MalformedMessage) as caught:
        unpack(operand, Unpacker(packer.buffers, owns_buffers=owns))
    return str(caught.value).removeprefix("Malformed message at ")


def replaced(operand: Any, index: int, value: Any) -> tuple[Any, ...]:
    """Return the operand with one field changed."""
    return (*operand[:index], value, *operand[index + 1 :])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", SPARSE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
def test_sparse_layouts(device: str, layout: str, dtype: torch.dtype) -> None:
    dense = torch.tensor([[0, 2, 0, 1], [3, 0, 0, 0]], device=device).to(dtype)
    for tensor in (SPARSE[layout](dense), SPARSE[layout](torch.zeros_like(dense))):
        assert same(tensor, deserialize(serialize(tensor)))


def sparse_variants() -> list[torch.Tensor]:
    """Return sparse tensors of unusual kinds, the first one not coalesced."""
    indices = torch.tensor([[0, 0, 1], [2, 2, 0]])
    return [
        torch.sparse_coo_tensor(indices, torch.tensor([1.0, 2.0, 3.0]), (2, 3)),
        torch.sparse_coo_tensor(indices, torch.ones(3, 5), (2, 3, 5)),
        torch.sparse_coo_tensor(indices * 2**20, torch.ones(3), (2**40, 2**22)),
        torch.sparse_coo_tensor(torch.zeros(0, 1, dtype=torch.long), torch.ones(1), ()),
        torch.sparse_coo_tensor(indices, torch.ones(3), (2, 3)).coalesce().requires_grad_(),
        torch.stack([torch.eye(2), torch.eye(2)]).to_sparse_csr(),
    ]


def test_sparse_variants() -> None:
    with torch.sparse.check_sparse_tensor_invariants(True):  # type: ignore[no-untyped-call]
        tensors = sparse_variants()
    for tensor in tensors:
        assert same(tensor, deserialize(serialize(tensor)))
    assert not deserialize(serialize(tensors[0])).is_coalesced()


def coo() -> tuple[Any, Packer]:
    """Return the operand of a COO tensor, and its buffers."""
    packer = Packer()
    tensor = torch.sparse_coo_tensor(torch.tensor([[0, 1], [2, 0]]), torch.ones(2), (2, 3))
    return pack(tensor, packer), packer


def csr() -> tuple[Any, Packer]:
    """Return the operand of a CSR tensor, and its buffers."""
    packer = Packer()
    return pack(torch.eye(3).to_sparse_csr(), packer), packer


@pytest.mark.parametrize(
    ("index", "value", "text"),
    [
        (1, (2, 2), "$: expected a COO tensor, got size is inconsistent with indices: for dim 1"),
        (1, (2,), "$: expected a COO tensor, got 'len(size) == sparse_dim + dense_dim' is"),
        (1, (2, -3), "$.shape[1]: expected an int from 0 to"),
        (4, True, "$: expected a COO tensor, got cannot set is_coalesced to true"),
        (4, 1, "$.coalesced: expected true or false, got an int"),
        (2, (32, 9, (2, 1), None, 0), "$.indices.buffer: expected a buffer of 16 bytes, got 32"),
        (2, (2, 1), "$.indices: expected a plain tensor, got an array of 2"),
        (2, 5, "$.indices: expected a plain tensor, got an int"),
        (2, (32, 9, (2, 2), None, None, (2, None), None), "$.indices: expected a plain tensor"),
        (3, (34, 0, (2,), None, 1), "$.values: expected a plain tensor"),
        (
            3,
            (32, 0, (2,), None, 1, (0, None), (1, None, None, None)),
            "$.values: expected a tensor w",
        ),
        (3, (32, 0, (2,), None, 0), "$.values.buffer: expected an unused buffer"),
        (5, 7, "$.attributes: expected nil, or flags"),
        (5, (2, None, None, None, None), "$.attributes: expected nil, or flags"),
    ],
    ids=repr,
)
def test_malformed_coo(index: int, value: Any, text: str) -> None:
    operand, packer = coo()
    if value is True:
        packer.buffers[0].view(torch.int64)[:] = torch.tensor([0, 0, 2, 2])
    assert refused(replaced(operand, index, value), packer).startswith(text)


def test_coo_over_a_limit() -> None:
    operand, packer = coo()
    with pytest.raises(LimitExceeded, match=r"\$.shape: max_elements is 9223372036854775807"):
        unpack(replaced(operand, 1, (2**40, 2**40)), Unpacker(packer.buffers))


@pytest.mark.parametrize("bad", [-1, 3, 2**62])
def test_coo_indices_out_of_range(bad: int) -> None:
    operand, packer = coo()
    packer.buffers[0].view(torch.int64)[2] = bad
    assert refused(operand, packer).startswith("$: expected a COO tensor, got ")


@pytest.mark.parametrize(
    ("index", "value", "text"),
    [
        (1, 0, "$.layout: expected a compressed layout, got torch.strided"),
        (1, 9, "$.layout: expected a layout that this torch has, got number 9"),
        (1, 4, "$: expected a torch.sparse_bsr tensor, got "),
        (2, (3, 2), "$: expected a torch.sparse_csr tensor, got "),
        (2, (9, 3), "$: expected a torch.sparse_csr tensor, got "),
        (3, None, "$.compressed: expected a plain tensor, got nil"),
        (4, (0, 5), "$.plain: expected a plain tensor, got an array of 2"),
        (5, (2, 5), "$.values: expected a plain tensor"),
    ],
    ids=repr,
)
def test_malformed_compressed(index: int, value: Any, text: str) -> None:
    operand, packer = csr()
    assert refused(replaced(operand, index, value), packer).startswith(text)


@pytest.mark.parametrize("buffer", [0, 1])
@pytest.mark.parametrize("bad", [-1, 4, 2**62])
def test_compressed_indices_out_of_range(buffer: int, bad: int) -> None:
    operand, packer = csr()
    packer.buffers[buffer].view(torch.int64)[1] = bad
    assert refused(operand, packer).startswith("$: expected a torch.sparse_csr tensor, got ")


# ------------------------------------------------------------------------------------- quantized


@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8, torch.qint32])
def test_quantized_per_tensor(dtype: torch.dtype) -> None:
    tensor = torch.quantize_per_tensor(torch.arange(12.0).view(3, 4), 0.1, 3, dtype)
    for view in (tensor, tensor.t(), tensor[1:], tensor[:, ::2], tensor[0, 0], tensor[:0]):
        again = deserialize(serialize(view))
        assert again.dtype == dtype and again.q_scale() == 0.1 and again.q_zero_point() == 3
        assert torch.equal(view.int_repr(), again.int_repr())
    assert same(tensor.t(), deserialize(serialize(tensor.t())))


@pytest.mark.parametrize("dtype", [torch.quint8, torch.quint4x2, torch.quint2x4])
def test_quantized_with_float_parameters(dtype: torch.dtype) -> None:
    scales, zeros = torch.rand(3) + 0.5, torch.rand(3)
    tensor = torch.quantize_per_channel(torch.rand(3, 4), scales, zeros, 0, dtype)
    assert same(tensor, deserialize(serialize(tensor)))


def test_quantized_channels_last() -> None:
    dense = torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    scales, zeros = torch.rand(3) + 0.5, torch.zeros(3, dtype=torch.long)
    tensor = torch.quantize_per_channel(dense, scales, zeros, 1, torch.qint8)
    again = deserialize(serialize(tensor))
    assert same(tensor, again) and again.is_contiguous(memory_format=torch.channels_last)


def test_quantized_in_copied_buffers_does_not_alias() -> None:
    tensor = torch.quantize_per_tensor(torch.ones(4), 0.5, 0, torch.qint8)
    packer = Packer()
    again = unpack(pack(tensor, packer), Unpacker(packer.buffers, owns_buffers=False))
    packer.buffers[0].zero_()
    assert again.int_repr().tolist() == [2] * 4 and tensor.int_repr().tolist() == [0] * 4


def test_quantized_tensors_that_cannot_travel() -> None:
    with pytest.raises(NotSendable, match="a torch.qint8 tensor without a quantizer: quantize it"):
        serialize(torch.empty(2, dtype=torch.qint8))
    packed = torch.quantize_per_tensor(torch.rand(4, 4), 0.1, 3, torch.quint4x2)
    assert same(packed, deserialize(serialize(packed)))
    with pytest.raises(NotSendable, match="a part of a torch.quint4x2 tensor: send the whole"):
        serialize(packed[1:])


def per_tensor() -> tuple[Any, Packer]:
    """Return the operand of a tensor quantized as a whole, and its buffers."""
    packer = Packer()
    tensor = torch.quantize_per_tensor(torch.ones(2, 3), 0.5, 1, torch.quint8)
    return pack(tensor, packer), packer


def per_channel() -> tuple[Any, Packer]:
    """Return the operand of a tensor quantized by channel, and its buffers."""
    packer = Packer()
    return pack(SAMPLES[TypeCode.QUANTIZED][1](), packer), packer


@pytest.mark.parametrize(
    ("index", "value", "text"),
    [
        (1, 0, "$.dtype: expected a quantized dtype, got torch.float32"),
        (1, 24, "$.buffer: expected a buffer of 24 bytes, got 6 bytes"),
        (1, 25, "$.buffer: expected a buffer of 3 bytes, got 6 bytes"),
        (2, (2, 4), "$.buffer: expected a buffer of 8 bytes, got 6 bytes"),
        (3, (0, 1), "$.strides: expected strides without repetition"),
        (5, None, "$.scheme: expected a quantization scheme, got nil"),
        (5, (0, 0.5), "$.scheme: expected a quantization scheme, got an array of 2"),
        (5, (9, 1, 2, 3), "$.scheme: expected a quantization scheme"),
        (5, (None, 1, 2, 3), "$.scheme: expected a quantization scheme"),
        (5, (0, 1, 0), "$.scale: expected a scale, got an int"),
        (5, (0, 0.0, 0), "$.scale: expected a positive, finite scale, got 0.0"),
        (5, (0, -1.0, 0), "$.scale: expected a positive, finite scale"),
        (5, (0, float("nan"), 0), "$.scale: expected a positive, finite scale"),
        (5, (0, float("inf"), 0), "$.scale: expected a positive, finite scale"),
        (5, (0, 1.0, 256), "$.zero_point: expected an int from 0 to 255, got 256"),
        (5, (0, 1.0, -1), "$.zero_point: expected an int from 0 to 255, got -1"),
        (6, (2, None), "$.device: expected a device that holds data, got meta"),
        (7, (1, None, None, None), "$.flags: expected a dtype that can require grad"),
    ],
    ids=repr,
)
def test_malformed_quantized(index: int, value: Any, text: str) -> None:
    operand, packer = per_tensor()
    assert refused(replaced(operand, index, value), packer).startswith(text)


@pytest.mark.parametrize(
    ("index", "value", "text"),
    [
        (0, 4, "$.scales: expected 2 numbers of torch.float32, got (2,) of torch.float64"),
        (1, (32, 0, (4,), None, 0), "$.scales: expected 2 numbers of torch.float64, got (4,) of"),
        (1, (32, 1, (1, 2), None, 0), "$.scales: expected 2 numbers of torch.float64, got (1, 2)"),
        (2, (32, 9, (3,), None, 1), "$.zero_points.buffer: expected a buffer of 24 bytes"),
        (2, (32, 1, (2,), None, 1), "$.zero_points: expected 2 numbers of torch.int64"),
        (3, 2, "$.axis: expected an int from 0 to 1, got 2"),
        (3, -1, "$.axis: expected an int from 0 to 1, got -1"),
    ],
    ids=repr,
)
def test_malformed_channels(index: int, value: Any, text: str) -> None:
    operand, packer = per_channel()
    scheme = replaced(operand[5], index, value)
    assert refused(replaced(operand, 5, scheme), packer).startswith(text)


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_scales_of_channels_are_positive(bad: float) -> None:
    operand, packer = per_channel()
    packer.buffers[0].view(torch.float64)[1] = bad
    assert refused(operand, packer) == "$.scales: expected positive, finite scales, got others."


def test_zero_points_of_channels_fit() -> None:
    operand, packer = per_channel()
    packer.buffers[1].view(torch.int64)[1] = 128
    text = "$.zero_points: expected zero points that fit torch.qint8, got others."
    assert refused(operand, packer) == text
    packer = Packer()
    operand = pack(SAMPLES[TypeCode.QUANTIZED][2](), packer)
    packer.buffers[1].view(torch.float32)[1] = float("nan")
    assert refused(operand, packer).startswith("$.zero_points: expected zero points that fit")


# ---------------------------------------------------------------------------------------- jagged


@pytest.mark.parametrize("device", DEVICES)
def test_jagged(device: str) -> None:
    rows = [torch.ones(2, 3, device=device), torch.zeros(4, 3, device=device)]
    tensor = torch.nested.nested_tensor(rows, layout=torch.jagged)
    assert same(tensor, deserialize(serialize(tensor)))
    again = deserialize(serialize(tensor.requires_grad_()))
    assert again.requires_grad and again.is_leaf


def test_jagged_with_lengths() -> None:
    values, offsets = torch.arange(8.0), torch.tensor([0, 3, 8])
    tensor = torch.nested.nested_tensor_from_jagged(values, offsets, torch.tensor([2, 1]))
    again: Any = deserialize(serialize(tensor))
    assert [row.tolist() for row in again.unbind()] == [[0.0, 1.0], [3.0]]


def jagged(lengths: torch.Tensor | None = None) -> tuple[Any, Packer]:
    """Return the operand of a jagged tensor, and its buffers."""
    packer = Packer()
    offsets = torch.tensor([0, 3, 8])
    tensor = torch.nested.nested_tensor_from_jagged(torch.arange(8.0), offsets, lengths)
    return pack(tensor, packer), packer


@pytest.mark.parametrize("bad", [(1, 3, 8), (0, 9, 8), (0, 3, 9), (0, -1, 8), (0, 3, 2**62)])
def test_jagged_offsets_that_do_not_rise(bad: tuple[int, ...]) -> None:
    operand, packer = jagged()
    packer.buffers[1].view(torch.int64)[:] = torch.tensor(bad)
    text = "$.offsets: expected offsets that rise from 0 to at most 8, got others."
    assert refused(operand, packer) == text


@pytest.mark.parametrize("bad", [(4, 1), (-1, 1), (2, 6)])
def test_jagged_lengths_beyond_their_row(bad: tuple[int, ...]) -> None:
    operand, packer = jagged(torch.tensor([2, 1]))
    packer.buffers[2].view(torch.int64)[:] = torch.tensor(bad)
    text = "$.lengths: expected a length for each row, within it, got others."
    assert refused(operand, packer) == text


@pytest.mark.parametrize(
    ("index", "value", "text"),
    [
        (2, (32, 1, (3,), None, 1), "$.offsets: expected a row of integers, got 1-d torch.float64"),
        (2, (32, 9, (3, 1), None, 1), "$.offsets: expected a row of integers, got 2-d torch.int64"),
        (3, (32, 9, (1,), None, 1), "$.lengths.buffer: expected an unused buffer"),
        (1, (32, 0, (), None, 0), "$.values.buffer: expected a buffer of 4 bytes"),
    ],
    ids=repr,
)
def test_malformed_jagged(index: int, value: Any, text: str) -> None:
    operand, packer = jagged()
    assert refused(replaced(operand, index, value), packer).startswith(text)


def test_jagged_values_and_offsets_of_odd_shape() -> None:
    packer = Packer()
    parts = [pack(x, packer) for x in (torch.tensor(1.0), torch.tensor([0]))]
    text = "$.values: expected at least one dimension, got a scalar."
    assert refused((36, *parts, None, None), packer) == text
    packer = Packer()
    parts = [pack(x, packer) for x in (torch.ones(2), torch.ones(0, dtype=torch.int64))]
    assert refused((36, *parts, None, None), packer).startswith("$.offsets: expected offsets that")


def test_jagged_parts_on_different_devices() -> None:
    values, offsets = torch.empty(3, device="meta"), torch.tensor([0, 3])
    with pytest.raises(MalformedMessage, match=r"\$.offsets: expected a tensor on meta, got cpu"):
        _expect_rows(values, offsets, None)


# --------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]),
            "Cannot send a nested tensor of the strided layout: make it with layout=torch.jagged, "
            "or send a list of its tensors (x.unbind()).",
        ),
        (
            lambda: torch.nested.nested_tensor(
                [torch.ones(1, 2), torch.ones(2, 2)], layout=torch.jagged
            ).transpose(1, 2),
            "Cannot send a transposed jagged tensor: send it before transposing, or send "
            "x.contiguous().",
        ),
        (
            lambda: torch.eye(2).to_sparse().to("meta"),
            "Cannot send a torch.sparse_coo tensor on the meta device: send a strided one, or its "
            "shape.",
        ),
    ],
)
def test_kinds_that_are_refused_by_name(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(NotSendable) as caught:
        serialize(make())
    assert str(caught.value) == text


def test_mkldnn_is_refused_by_name() -> None:
    with pytest.raises(NotSendable) as caught:
        serialize(torch.ones(2, 2).to_mkldnn())
    text = "Cannot send a tensor of layout mkldnn (oneDNN): send x.to_dense()."
    assert str(caught.value) == text
