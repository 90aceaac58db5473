"""Strided tensors: every dtype and geometry, exact strides, attributes, and hostile descriptors."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from syft.codes import DTypeCode
from syft.exceptions import LimitExceeded, MalformedMessage, NotSendable
from syft.serde import Limits, Packer, Unpacker, deserialize, pack, serialize, unpack
from syft.serde.tensors.strided import SIZES, unpack_usual
from syft.serde.torch_types import DTYPES
from tests.serde.devices import DEVICES
from tests.serde.samples import same

GEOMETRIES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda x: x,
    "scalar": lambda x: x[0, 0, 0, 0],
    "row": lambda x: x[0, 0, 0],
    "empty": lambda x: x[:0],
    "empty in the middle": lambda x: x[:, :0].permute(1, 0, 3, 2),
    "transposed": lambda x: x.transpose(0, 3),
    "permuted": lambda x: x.permute(2, 0, 3, 1),
    "channels last": lambda x: x.as_strided((2, 3, 4, 5), (60, 1, 15, 3)),
    "offset": lambda x: x[1:],
    "one channel": lambda x: x.as_strided((6, 1, 4, 5), (20, 1, 5, 1)),
    "column as row": lambda x: x[0, 0, :1].t(),
}
EXPANDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "expanded": lambda x: x[:1].expand(7, -1, -1, -1),
    "expanded scalar": lambda x: x[0, 0, 0, 0].expand(3, 4),
    "expanded transposed": lambda x: x[:1].transpose(0, 1).expand(-1, 5, -1, -1).transpose(2, 3),
}
ROW_MAJOR: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "steps": lambda x: x[::2, :, ::2],
    "part of rows": lambda x: x[..., 1:],
    "overlapping": lambda x: x.flatten().unfold(0, 3, 1),
}


def numbers(dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
    """Return a 2x3x4x5 tensor of a dtype with changing bytes."""
    count = 2 * 3 * 4 * 5
    if dtype == torch.bool:
        return (torch.arange(count, device=device) % 3 == 0).view(2, 3, 4, 5)
    raw = (torch.arange(count * SIZES[dtype], device=device) * 7 % 251).to(torch.uint8)
    return raw.view(dtype).as_strided((2, 3, 4, 5), (60, 20, 5, 1))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("geometry", [*GEOMETRIES, *EXPANDED])
@pytest.mark.parametrize("owns", [True, False], ids=["owned", "copied"])
def test_geometry_survives_exactly(device: str, geometry: str, owns: bool) -> None:
    tensor = {**GEOMETRIES, **EXPANDED}[geometry](numbers(torch.float32, device))
    packer = Packer()
    again = unpack(pack(tensor, packer), Unpacker(packer.buffers, owns_buffers=owns))
    assert same(tensor, again)
    assert again._base is None
    assert same(tensor, deserialize(serialize(tensor)))


@pytest.mark.parametrize("dtype", SIZES, ids=str)
@pytest.mark.parametrize("owns", [True, False], ids=["owned", "copied"])
def test_every_dtype(dtype: torch.dtype, owns: bool) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "ComplexHalf support is experimental")
        for geometry in (*GEOMETRIES, *EXPANDED):
            tensor = {**GEOMETRIES, **EXPANDED}[geometry](numbers(dtype))
            packer = Packer()
            again = unpack(pack(tensor, packer), Unpacker(packer.buffers, owns_buffers=owns))
            assert again.dtype == dtype and again.shape == tensor.shape
            assert same(tensor, again), geometry


@pytest.mark.parametrize("geometry", ROW_MAJOR)
def test_other_geometries_become_row_major(geometry: str) -> None:
    tensor = ROW_MAJOR[geometry](numbers(torch.float64))
    again = deserialize(serialize(tensor))
    assert torch.equal(tensor, again) and again.is_contiguous()


def test_parts_that_torch_cannot_copy_are_refused() -> None:
    part = torch.zeros(4, dtype=torch.uint8).view(DTYPES[DTypeCode.UINT4]).as_strided((2,), (2,))
    with pytest.raises(NotSendable, match="a part of a torch.uint4 tensor: send the whole tensor"):
        serialize(part)


def test_steps_in_an_expanded_tensor_stay_expanded() -> None:
    tensor = torch.arange(10.0)[::2].unsqueeze(1).expand(5, 1000)
    packer = Packer()
    again = unpack(pack(tensor, packer), Unpacker(packer.buffers))
    assert torch.equal(tensor, again) and again.stride() == (1, 0)
    assert packer.buffers[0].numel() == 5 * 4


def test_an_expanded_tensor_sends_what_it_holds() -> None:
    assert len(serialize(torch.ones(1).expand(10**6))) < 200


def test_conjugate_and_negative_bits_are_resolved() -> None:
    tensor = torch.tensor([1 + 2j, 3 - 4j]).conj()
    again = deserialize(serialize(tensor))
    assert tensor.is_conj() and not again.is_conj() and torch.equal(tensor, again)
    assert tensor.imag.is_neg()
    again = deserialize(serialize(tensor.imag))
    assert not again.is_neg() and torch.equal(tensor.imag, again)
    dense = tensor[:1].imag
    assert dense.is_neg() and deserialize(serialize(dense)).tolist() == [-2.0]


@pytest.mark.parametrize("owns", [True, False], ids=["owned", "copied"])
def test_what_arrives_is_an_ordinary_tensor(owns: bool) -> None:
    packer = Packer()
    operand = pack(torch.arange(6.0).view(2, 3), packer)
    tensor = unpack(operand, Unpacker([b.clone() for b in packer.buffers], owns_buffers=owns))
    tensor.unsqueeze_(0).resize_(4, 5).zero_()
    tensor.requires_grad_()
    (tensor * 2).sum().backward()
    assert tensor.grad is not None and tensor.is_leaf
    torch.utils.swap_tensors(tensor, torch.ones(1))  # type: ignore[no-untyped-call]


def test_a_copy_does_not_alias_and_an_owned_one_does() -> None:
    tensor = torch.ones(3, 2)
    for owns in (True, False):
        packer = Packer()
        again = unpack(pack(tensor, packer), Unpacker(packer.buffers, owns_buffers=owns))
        assert (again.data_ptr() == tensor.data_ptr()) is owns


def test_a_bytearray_is_taken_over_and_bytes_are_never_written() -> None:
    tensor = torch.zeros(100_000)
    taken = serialize(tensor, compressed=False)
    deserialize(taken).fill_(1)
    assert taken.count(0x3F) == 100_000
    with pytest.raises(BufferError):
        keeper = deserialize(taken)
        taken.clear()
    for frozen in (bytes(taken), memoryview(bytearray(taken))):
        before = bytes(frozen)
        deserialize(frozen).fill_(2)
        assert bytes(frozen) == before
    assert torch.equal(keeper, torch.ones(100_000))


def test_a_small_tensor_does_not_keep_the_frame() -> None:
    data = serialize([torch.ones(3), torch.ones(100_000)], compressed=False)
    small, large = deserialize(data)
    del large
    gc.collect()
    data.clear()
    assert torch.equal(small, torch.ones(3))


def test_an_odd_offset_is_copied_into_place() -> None:
    raw = torch.arange(9, dtype=torch.uint8)
    for owns in (True, False):
        again = unpack((32, 0, (2,), None, 0), Unpacker([raw[1:]], owns_buffers=owns))
        assert again.view(torch.uint8).tolist() == list(range(1, 9))


def test_booleans_from_outside_are_zero_or_one() -> None:
    data = serialize(torch.tensor([True, False, True]), compressed=False)
    data[-3:] = b"\x02\x00\xff"
    assert deserialize(data).view(torch.uint8).tolist() == [1, 0, 1]


def test_meta_tensors_travel_without_data() -> None:
    tensor = torch.empty(2, 3, device="meta", dtype=torch.int8).t()
    packer = Packer()
    operand = pack(tensor, packer)
    assert packer.buffers == []
    assert same(tensor, unpack(operand, Unpacker([])))


# ------------------------------------------------------------------------------------ attributes


def tagged() -> torch.Tensor:
    """Return a tensor with tags and a description."""
    tensor = torch.ones(2, dtype=torch.int64)
    tensor.__dict__.update(_tags={"#a", "#b"}, _description="labels")
    return tensor


def with_grad(grad: torch.Tensor | None = None) -> torch.Tensor:
    """Return a leaf with a gradient."""
    tensor = torch.nn.Parameter(torch.ones(2, 2))
    tensor.grad = torch.eye(2) if grad is None else grad
    return tensor


@pytest.mark.parametrize(
    "make",
    [
        tagged,
        with_grad,
        lambda: with_grad(torch.eye(2).to_sparse()),
        lambda: torch.ones(2, requires_grad=True),
        lambda: torch.nn.Parameter(torch.ones(2).t(), requires_grad=False),
        lambda: torch.nn.Buffer(torch.ones(2)),
        lambda: torch.nn.Buffer(torch.ones(2, requires_grad=True), persistent=False),
        lambda: torch.eye(2).to_sparse().requires_grad_(),
        lambda: torch.ones(2, dtype=torch.complex64, requires_grad=True),
        lambda: torch.ones(2, device="meta", requires_grad=True),
    ],
)
def test_attributes_survive(make: Callable[[], torch.Tensor]) -> None:
    assert same(make(), deserialize(serialize(make())))


def test_no_attributes_cost_nothing() -> None:
    tensor = torch.ones(2)
    tensor.__dict__.update(_tags=set(), _description="", other=3)
    assert pack(tensor, Packer()) == (32, 0, (2,), None, 0)


def test_a_tensor_with_a_graph_is_packed_detached() -> None:
    leaf = torch.ones(2, requires_grad=True)
    result = leaf * 2
    result.retain_grad()
    result.sum().backward()  # type: ignore[no-untyped-call]
    again = deserialize(serialize(result))
    assert again.tolist() == [2.0, 2.0] and not again.requires_grad and again.grad is None


def test_gradients_that_hold_each_other_are_refused() -> None:
    left, right = torch.ones(1), torch.ones(1)
    left.grad, right.grad = right, left
    with pytest.raises(NotSendable, match="nested more than 64 levels deep"):
        serialize(left)
    left.grad = None


# -------------------------------------------------------------------------------- hostile input

PLAIN = (0, None)


@pytest.mark.parametrize(
    ("operand", "text"),
    [
        ((32,), "$: expected 6 fields after type code 32, got 0"),
        ((32, 0, (1,), None, 0, PLAIN), "$: expected 6 fields after type code 32, got 5"),
        ((32, 99, (1,), None, 0), "$.dtype: expected a dtype that this torch has, got number 99"),
        ((32, 22, (1,), None, 0), "$.dtype: expected a dtype that is not quantized"),
        ((32, 0, 4, None, 0), "$.shape: expected an array of lengths, got an int"),
        ((32, 0, (-1,), None, 0), "$.shape[0]: expected an int from 0 to"),
        ((32, 0, (1, 2.0), None, 0), "$.shape[1]: expected an int, got a float"),
        ((32, 0, (True,), None, 0), "$.shape[0]: expected an int, got a bool"),
        ((32, 0, (2,), None, 0), "$.buffer: expected a buffer of 8 bytes, got 16 bytes"),
        (
            (32, 0, (4,), None, 1),
            "$.buffer: expected an unused buffer (the frame has 1), got buffer",
        ),
        ((32, 0, (4,), None, -1), "$.buffer: expected an int from 0 to"),
        ((32, 0, (4,), None, None), "$.buffer: expected an int, got nil"),
        ((32, 0, (2, 2), (2,), 0), "$.strides: expected 2 strides, got 1"),
        ((32, 0, (2, 2), 3, 0), "$.strides: expected an array of strides, or nil, got an int"),
        ((32, 0, (2, 2), (1, 1), 0), "$.strides: expected strides that fill memory"),
        ((32, 0, (2, 2), (4, 1), 0), "$.strides: expected strides that fill memory"),
        ((32, 0, (2, 2), (2, -1), 0), "$.strides[1]: expected an int from 0 to"),
        ((32, 0, (0, 2), (0, 0), 0), "$.strides: expected strides that fill memory"),
        ((32, 0, (2, 8), (0, 1), 0), "$.buffer: expected a buffer of 32 bytes, got 16 bytes"),
        ((32, 0, (4,), None, 0, 3, None), "$.device: expected a device number and an index"),
        ((32, 0, (4,), None, 0, (0,), None), "$.device: expected a device number and an index"),
        (
            (32, 0, (4,), None, 0, (2, None), None),
            "$.buffer: expected nil for a tensor without data",
        ),
        ((32, 0, (4,), None, 0, PLAIN, 3), "$.attributes: expected nil, or flags, grad, tags and"),
        (
            (32, 0, (4,), None, 0, PLAIN, (3,)),
            "$.attributes: expected nil, or flags, grad, tags and",
        ),
        ((32, 0, (4,), None, 0, PLAIN, (16, None, None, None)), "$.flags: expected an int from 0"),
        ((32, 0, (4,), None, 0, PLAIN, (6, None, None, None)), "$.flags: expected flags that go"),
        (
            (32, 8, (4,), None, 0, PLAIN, (1, None, None, None)),
            "$.flags: expected a dtype that can",
        ),
        (
            (32, 8, (4,), None, 0, PLAIN, (3, None, None, None)),
            "$.flags: expected a dtype that can",
        ),
        ((32, 0, (4,), None, 0, PLAIN, (0, None, "x", None)), "$.tags: expected an array of tags"),
        ((32, 0, (4,), None, 0, PLAIN, (0, None, (1,), None)), "$.tags[0]: expected a text"),
        (
            (32, 0, (4,), None, 0, PLAIN, (0, None, None, 1)),
            "$.description: expected a text or nil",
        ),
        (
            (32, 0, (4,), None, 0, PLAIN, (0, 3, None, None)),
            "$.grad: expected a tensor, got an int",
        ),
        ((32, 0, (4,), None, 0, PLAIN, (0, (32,), None, None)), "$.grad: expected 6 fields after"),
        (
            (32, 0, (4,), None, 0, PLAIN, (1, (32, 0, (0,), None, 1), None, None)),
            "$.grad: expected a gradient that fits its tensor, got attempting to assign a grad",
        ),
    ],
    ids=repr,
)
def test_malformed_descriptors(operand: Any, text: str) -> None:
    buffers = [torch.zeros(16, dtype=torch.uint8)]
    if "gradient that fits" in text:
        buffers.append(torch.zeros(0, dtype=torch.uint8))
    with pytest.raises(MalformedMessage) as caught:
        unpack(operand, Unpacker(buffers))
    assert str(caught.value).startswith(f"Malformed message at {text}")


@pytest.mark.parametrize(
    ("shape", "limit"),
    [
        ((2**62, 2**62), "max_elements is 4294967296, got 21267647932558653966460912964485513216"),
        ((2**33,), "max_elements is 4294967296, got 8589934592"),
        ((0, 2**62, 2**62), "max_elements is 4294967296"),
        ((1,) * 65, "max_dims is 64, got 65"),
    ],
)
@pytest.mark.parametrize("strides", [None, (0,) * 65])
def test_shapes_over_a_limit(shape: tuple[int, ...], limit: str, strides: Any) -> None:
    buffers = [torch.zeros(4, dtype=torch.uint8)]
    for device, buffer in (((0, None), 0), ((2, None), None)):
        operand = (32, 0, shape, strides, buffer, device, None)
        with pytest.raises(LimitExceeded) as caught:
            unpack(operand, Unpacker(buffers))
        assert str(caught.value).startswith(f"Message over a limit at $.shape: {limit}")


def test_every_buffer_is_used_exactly_once() -> None:
    packer = Packer()
    one = pack(torch.ones(2), packer)
    with pytest.raises(MalformedMessage, match=r"\$\[1\].buffer: expected an unused buffer"):
        unpack((2, one, one), Unpacker(packer.buffers))
    unpacker = Unpacker([*packer.buffers, torch.zeros(3, dtype=torch.uint8)])
    unpack(one, unpacker)
    with pytest.raises(MalformedMessage) as caught:
        unpacker.finish()
    text = r"$.buffers[1]: expected a tensor that uses this buffer, got none in the header."
    assert str(caught.value) == f"Malformed message at {text}"


def test_a_device_that_is_not_here_is_named() -> None:
    operand = (32, 0, (1,), None, 0, (1, 99), None)
    with pytest.raises(NotSendable) as caught:
        unpack(operand, Unpacker([torch.zeros(4, dtype=torch.uint8)]))
    text = "a tensor on cuda:99: the receiving machine has no such device; move it with .to()"
    assert str(caught.value).startswith(f"Cannot send {text}")


def test_limits_can_be_raised() -> None:
    operand = (32, 5, (2**33,), (0,), 0)
    limits = Limits(max_elements=2**40)
    tensor = unpack(operand, Unpacker([torch.ones(1, dtype=torch.uint8)], limits))
    assert tensor.shape == (2**33,) and tensor[-1] == 1


@pytest.mark.parametrize("device", DEVICES)
def test_buffers_stay_on_the_device(device: str) -> None:
    tensor = torch.arange(6.0, device=device).view(2, 3).t()
    packer = Packer()
    operand = pack(tensor, packer)
    assert packer.buffers[0].device == tensor.device
    for owns in (True, False):
        again = unpack(operand, Unpacker(packer.buffers, owns_buffers=owns))
        assert same(tensor, again) and (again.data_ptr() == tensor.data_ptr()) is owns
    assert same(tensor, deserialize(serialize(tensor)))


@pytest.mark.parametrize(
    "operand, buffer",
    [
        ([32, 0, [2], None, 0], torch.zeros(9, dtype=torch.uint8)),
        ([32, 0, [2], None, 0], torch.zeros(9, dtype=torch.uint8)[1:]),
        ([32, 0, "ab", None, 0], torch.zeros(8, dtype=torch.uint8)),
        ([32, 0, [1] * 100, None, 0], torch.zeros(4, dtype=torch.uint8)),
        ([32, 0, [-2], None, 0], torch.zeros(8, dtype=torch.uint8)),
    ],
    ids=["too long", "not aligned", "no shape", "many dimensions", "negative"],
)
def test_what_is_not_usual_is_left_to_the_checks(operand: Any, buffer: torch.Tensor) -> None:
    assert (
        unpack_usual([32, 0, [2], None, 0], [torch.zeros(8, dtype=torch.uint8)], Limits())
        is not None
    )
    assert unpack_usual(operand, [buffer], Limits()) is None
