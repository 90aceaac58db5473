"""Whatever the value, it survives; whatever the bytes, only an error of the wire comes out."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from syft.exceptions import NotSendable, WireError
from syft.serde import (
    Frame,
    Limits,
    Packer,
    Unpacker,
    decode_header,
    deserialize,
    encode_header,
    from_bytes,
    pack,
    serialize,
    to_bytes,
    unpack,
)
from syft.serde.tensors.geometry import filled, row_major
from tests.serde.samples import SAMPLES, bits, same

# Changed bytes may make any dtype of any other, and torch remarks on this one once.
pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**64), 2**65),
    st.floats(),
    st.text(st.characters(exclude_categories=())),
    st.binary(),
    st.complex_numbers(),
    st.sampled_from([..., torch.float32, torch.device("cuda:2"), torch.Size([3]), float]),
)
KEYS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.binary()),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
        st.builds(slice, inner, inner, inner),
    ),
    max_leaves=12,
)
# Small limits, so that a broken number is over one of them sooner than it costs memory.
STRICT = Limits(max_bytes=1 << 20, max_elements=1 << 20, max_items=1 << 12)
SEEDS = [
    bytes(serialize([make() for make in makers], compressed=False)) for makers in SAMPLES.values()
]
SEEDS.append(bytes(serialize(torch.zeros(2000))))


@given(VALUES)
def test_values_survive(value: Any) -> None:
    operand = pack(value, Packer())
    header = encode_header(operand)
    assert same(value, unpack(decode_header(header), Unpacker([])))
    assert same(msgpack.unpackb(header, use_list=False), operand)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Draw a tensor of any copyable dtype, shape, order and repetition."""
    names = ["float32", "float64", "float16", "bfloat16", "bool", "uint8", "int8", "int16", "int64"]
    dtype = getattr(torch, draw(st.sampled_from([*names, "complex64", "float8_e5m2", "uint32"])))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    tensor = torch.randn(shape).mul(50).to(dtype if not dtype.is_complex else torch.float32)
    tensor = tensor.to(dtype).permute(draw(st.permutations(range(len(shape)))))
    for dim in range(tensor.dim()):
        kind = draw(st.sampled_from(["whole", "steps", "rest", "repeat"]))
        if kind == "steps":
            tensor = tensor[(slice(None),) * dim + (slice(None, None, 2),)]
        if kind == "rest":
            tensor = tensor[(slice(None),) * dim + (slice(1, None),)]
        if kind == "repeat" and tensor.shape[dim]:
            first = tensor[(slice(None),) * dim + (slice(0, 1),)]
            tensor = first.expand(*[3 if n == dim else -1 for n in range(tensor.dim())])
    return tensor


@given(tensors(), st.booleans())
def test_tensors_survive(tensor: torch.Tensor, owns: bool) -> None:
    packer = Packer()
    again = unpack(pack(tensor, packer), Unpacker(packer.buffers, owns_buffers=owns))
    assert again.dtype == tensor.dtype and again.shape == tensor.shape
    assert bits(tensor)[1] == bits(again)[1]
    shape = tuple(tensor.shape)
    if tensor.numel() and filled(shape, tensor.stride()) is not None:
        assert again.stride() == tensor.stride()
    elif tensor.numel() and 0 not in tensor.stride():
        assert again.stride() == row_major(shape)
    assert same(again, deserialize(serialize(tensor)))


def try_to_read(data: bytes) -> None:
    """Read bytes that may be broken: a value, or an error that says what is wrong with them."""
    for form in (data, bytearray(data)):
        try:
            value = deserialize(form, STRICT)
        except (WireError, NotSendable) as error:
            assert str(error)
        else:
            touch(value)


def touch(value: Any) -> None:
    """Read every element of what came out, which must not reach outside its memory."""
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided and not value.is_meta and not value.is_nested:
            value.clone() if not value.is_quantized else value.dequantize()
    elif isinstance(value, list | tuple):
        for item in value:
            touch(item)


@given(st.binary(max_size=200))
@example(b"syft\x01")
def test_random_bytes(data: bytes) -> None:
    try_to_read(data)


@given(st.binary(max_size=60))
def test_random_headers(data: bytes) -> None:
    try_to_read(bytes(to_bytes(Frame(data, []))))


OPERANDS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 40), st.floats(), st.text(), st.binary()),
    lambda inner: st.lists(inner, max_size=8),
    max_leaves=20,
)


@settings(max_examples=300)
@given(
    st.integers(0, 70), st.lists(OPERANDS, max_size=7), st.lists(st.binary(max_size=64), max_size=3)
)
def test_random_operands(code: int, fields: list[Any], buffers: list[bytes]) -> None:
    parts = [torch.tensor(list(buffer), dtype=torch.uint8) for buffer in buffers]
    try_to_read(bytes(to_bytes(Frame(encode_header([code, *fields]), parts))))


@settings(max_examples=300)
@given(st.sampled_from(SEEDS), st.data())
def test_truncations(data: bytes, draw: st.DataObject) -> None:
    try_to_read(data[: draw.draw(st.integers(0, len(data) - 1))])


@settings(max_examples=1000, deadline=None)
@given(st.sampled_from(SEEDS), st.data())
def test_flipped_and_inserted_bytes(data: bytes, draw: st.DataObject) -> None:
    broken = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 3))):
        where = draw.draw(st.integers(0, len(broken) - 1))
        broken[where] = draw.draw(st.integers(0, 255))
    try_to_read(bytes(broken))


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(SEEDS), st.data())
def test_changed_fields(data: bytes, draw: st.DataObject) -> None:
    """Change one number anywhere in the header, keeping MessagePack and framing intact."""
    frame = from_bytes(data)
    operand = decode_header(frame.header)
    places = list(numbers(operand))
    if places:
        holder, index = draw.draw(st.sampled_from(places))
        holder[index] = draw.draw(st.sampled_from([-1, 0, 1, 2, 3, 7, 2**31, 2**62, None, 1.5, []]))
    try_to_read(bytes(to_bytes(Frame(encode_header(operand), frame.buffers))))


def numbers(operand: Any) -> Any:
    """Yield every place inside nested lists that holds a number, as (list, index)."""
    for index, item in enumerate(operand):
        if isinstance(item, list):
            yield from numbers(item)
        else:
            yield operand, index
