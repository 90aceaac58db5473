"""Strided tensors: a descriptor in the header, and the elements as one buffer of bytes.

If the elements are dense, in any order, the buffer is a view of the tensor's own memory, and
nothing is copied.  When a tensor is unpacked, its descriptor is checked with Python integers first,
so that torch never reads outside the buffer.  Then the tensor is laid over the buffer
(``owns_buffers``) or copied out of it.  In both cases it is no view: ``_base`` is None, and it can
be resized, detached and trained like any tensor, because the buffers of a frame are torch's own
memory.  Only :func:`~syft.serde.deserialize` may lay large tensors over a ``bytearray``: these
cannot grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syft.codes import DTypeCode, TypeCode
from syft.exceptions import LimitExceeded, MalformedMessage, NotSendable
from syft.serde.expect import expect_fields, malformed, prepend
from syft.serde.limits import Limits
from syft.serde.tensors.geometry import Shape, expect_shape, expect_strides, filled, row_major
from syft.serde.buffers import LARGE, copy_buffer
from syft.serde.packer import Packer, Unpacker
from syft.serde.torch_types import DTYPE_CODES, DTYPES, device_operand, lookup, present_device

_TENSOR = int(TypeCode.TENSOR)
_CPU = torch.device("cpu")
_UINT8 = torch.uint8

SIZES = {
    dtype: dtype.itemsize
    for dtype in DTYPES.values()
    if not str(dtype).startswith(("torch.q", "torch.quint"))
}
"""Bytes per element of every dtype that is not quantized."""

COPYABLE = frozenset(
    dtype
    for dtype in SIZES
    if str(dtype).startswith(("torch.float", "torch.bfloat", "torch.complex", "torch.bool"))
    or DTYPE_CODES[dtype] in range(DTypeCode.UINT8, DTypeCode.UINT64 + 1)
)
"""The dtypes whose elements torch can copy; sub-byte integers are not among them."""

_USUAL = {dtype: DTYPE_CODES[dtype] for dtype in COPYABLE if not dtype.is_complex}
_BY_HEAD = {(_TENSOR, number, 0): (dtype, dtype.itemsize) for dtype, number in _USUAL.items()}
_LAYOUT = (torch.strided, False)
_ABOUT_USUAL: Any = (True, True, False, {})


def pack_usual(tensor: Any, index: int) -> tuple[tuple[Any, ...], torch.Tensor] | None:
    """The descriptor and the bytes, as buffer ``index``, of nearly every tensor: row-major, with
    elements, on the CPU, and nothing else than its data.  None for any other.

    >>> pack_usual(torch.ones(2, dtype=torch.int8), 0)
    ((32, 6, (2,), None, 0), tensor([1, 1], dtype=torch.uint8))
    """
    if type(tensor) is not torch.Tensor or (tensor.layout, tensor.is_nested) != _LAYOUT:
        return None
    number = _USUAL.get(tensor.dtype)
    if number is None or tensor.requires_grad:
        return None
    shape, strides = tuple(tensor.shape), tensor.stride()
    if 0 in shape or (strides != (1,) and strides != row_major(shape)):
        return None
    if (tensor.grad is None, tensor.is_cpu, tensor.is_neg(), tensor.__dict__) != _ABOUT_USUAL:
        return None
    flat = tensor if len(shape) == 1 else tensor.view(-1)
    return (_TENSOR, number, shape, None, index), flat.view(_UINT8)


def unpack_usual(operand: Any, buffers: list[torch.Tensor], limits: Limits) -> torch.Tensor | None:
    """A copy of the tensor of a descriptor that :func:`pack_usual` makes, out of the only buffer.
    None for anything else, which :func:`~syft.serde.registry.unpack` unpacks or refuses.

    The buffer has to be of this process: what has come from another one may hold bytes that are no
    booleans, which :func:`unpack_strided` mends.

    >>> unpack_usual(*([packed] for packed in pack_usual(torch.ones(2), 0)), Limits()) is None
    True
    >>> _, buffer = pack_usual(torch.ones(2), 0)
    >>> unpack_usual([32, 0, [2], None, 0], [buffer], Limits())
    tensor([1., 1.])
    """
    if type(operand) is not list or len(operand) != 5 or len(buffers) != 1:
        return None
    code, number, shape, strides, index = operand
    if not type(code) is type(number) is type(index) is int or strides is not None:
        return None
    known = _BY_HEAD.get((code, number, index))
    count = _elements_of(shape, limits)
    if known is None or not count:
        return None
    (dtype, size), buffer = known, buffers[0]
    if not count * size == buffer.numel() < LARGE:
        return None
    if not buffer.is_cpu or buffer.storage_offset() % size:
        return None
    flat = buffer.view(dtype)
    return (flat if len(shape) == 1 else flat.view(shape)).clone()


def _elements_of(shape: Any, limits: Limits) -> int:
    """How many elements a shape has that was received; 0 if it has none or is not to be taken."""
    if type(shape) is not list or len(shape) > limits.max_dims:
        return 0
    count = 1
    for length in shape:
        if type(length) is not int or length < 1:
            return 0
        count *= length
    return count if count <= limits.max_elements else 0


def pack_strided(tensor: torch.Tensor, packer: Packer) -> tuple[Any, ...]:
    """Describe a plain strided tensor without its attributes; its bytes become a buffer.

    The tensor must not require grad (pass ``x.detach()``).

    >>> packer = Packer()
    >>> pack_strided(torch.ones(2, 3), packer), packer.buffers[0].numel()
    ((32, 0, (2, 3), None, 0), 24)
    """
    dtype = tensor.dtype
    if dtype.is_complex and tensor.is_conj():
        tensor = tensor.resolve_conj()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    shape = tuple(tensor.shape)
    strides, flat = flatten(tensor, shape)
    number = DTYPE_CODES[dtype]
    if tensor.is_cpu:
        return _TENSOR, number, shape, strides, packer.add(flat.view(_UINT8))
    device = device_operand(tensor.device)
    index = None if tensor.is_meta else packer.add(flat.view(_UINT8))
    return _TENSOR, number, shape, strides, index, device, None


def flatten(tensor: torch.Tensor, shape: Shape) -> tuple[Shape | None, torch.Tensor]:
    """Return the strides for the descriptor (None: row-major) and the elements in memory order.

    >>> flatten(torch.arange(6).view(2, 3).t(), (3, 2))
    ((1, 3), tensor([0, 1, 2, 3, 4, 5]))
    """
    strides = tensor.stride()
    count = tensor.numel()
    if strides == row_major(shape) or not count:
        return None, tensor if len(shape) == 1 and count else tensor.as_strided((count,), (1,))
    stored = filled(shape, strides)
    if stored is None:
        tensor, strides = _without_gaps(tensor, shape)
        stored = tensor.numel()
    return (None if strides == row_major(shape) else strides), tensor.as_strided((stored,), (1,))


def _without_gaps(tensor: torch.Tensor, shape: Shape) -> tuple[torch.Tensor, Shape]:
    """Copy a tensor with gaps or overlaps: row-major, but what is repeated stays repeated."""
    if tensor.dtype not in COPYABLE:
        raise NotSendable(f"a part of a {tensor.dtype} tensor", "send the whole tensor")
    strides = tensor.stride()
    once = [1 if stride == 0 else length for length, stride in zip(shape, strides, strict=True)]
    dense = tensor.as_strided(once, strides).contiguous()
    pairs = zip(strides, dense.stride(), strict=True)
    return dense, tuple(0 if old == 0 else new for old, new in pairs)


def unpack_strided(operand: Sequence[Any], unpacker: Unpacker) -> torch.Tensor:
    """Build the tensor of a descriptor, without its attributes.

    >>> packer = Packer()
    >>> operand = pack_strided(torch.eye(2), packer)
    >>> unpack_strided(operand, Unpacker(packer.buffers))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if len(operand) != 5:
        expect_fields(operand, 6)
    dtype: torch.dtype = lookup(DTYPES, operand[1], "dtype", ".dtype")
    size = SIZES.get(dtype)
    if size is None:
        raise MalformedMessage("$.dtype", "a dtype that is not quantized", str(dtype))
    shape, count = expect_shape(operand[2], unpacker.limits, unpacker.limits.max_elements)
    strides, stored = expect_strides(operand[3], shape, count)
    device = _CPU if len(operand) == 5 else expect_device(operand[5])
    if device.type == "meta":
        if operand[4] is not None:
            raise malformed("nil for a tensor without data", operand[4], ".buffer")
        return torch.empty_strided(shape, strides, dtype=dtype, device=device)
    return over_buffer(
        unpacker.take(operand[4], stored * size), dtype, shape, strides, device, unpacker
    )


def unpack_plain(operand: Any, unpacker: Unpacker, piece: str) -> torch.Tensor:
    """Unpack a tensor that is a part of another one: strided, with data, and without attributes.

    >>> unpack_plain([2, 5], Unpacker([]), ".values")
    Traceback (most recent call last):
    ...
    syft.exceptions.MalformedMessage: Malformed message at $.values: expected a plain tensor, got \
an array of 2.
    """
    if type(operand) is not list and type(operand) is not tuple:
        raise malformed("a plain tensor", operand, piece)
    if not 5 <= len(operand) <= 7 or operand[0] != _TENSOR or operand[4] is None:
        raise malformed("a plain tensor", operand, piece)
    if len(operand) == 7 and operand[6] is not None:
        raise malformed("a tensor without attributes", operand, piece)
    try:
        return unpack_strided(operand, unpacker)
    except (MalformedMessage, LimitExceeded) as error:
        prepend(error, piece)
        raise


def expect_device(value: Any) -> torch.device:
    """Return the device in a field, if this machine has it.

    >>> expect_device([0, None])
    device(type='cpu')
    """
    if (type(value) is not list and type(value) is not tuple) or len(value) != 2:
        raise malformed("a device number and an index", value, ".device")
    return present_device(value[0], value[1], "a tensor")


def over_buffer(
    buffer: torch.Tensor,
    dtype: torch.dtype,
    shape: Shape,
    strides: Shape,
    device: torch.device,
    unpacker: Unpacker,
) -> torch.Tensor:
    """Lay a tensor over a buffer of the right size, or copy it out of a buffer of somebody else."""
    own = unpacker.owns_buffers
    aligned = not int(buffer.storage_offset()) % dtype.itemsize
    if not own and aligned and device is _CPU and _is_small(buffer, dtype, strides):
        view = buffer.view(dtype)
        return (view if strides == (1,) else view.as_strided(shape, strides)).clone()
    if not (own and aligned):
        buffer = copy_buffer(buffer)
    buffer = buffer.to(device)
    if dtype is torch.bool and own:
        # Bytes other than 0 and 1 are no booleans, and kernels that count them disagree.
        buffer.ne_(0)
    offset = int(buffer.storage_offset()) // dtype.itemsize
    tensor = torch.empty(0, dtype=dtype, device=device)
    return tensor.set_(buffer.untyped_storage(), offset, shape, strides)


def _is_small(buffer: torch.Tensor, dtype: torch.dtype, strides: Shape) -> bool:
    """Whether a view of the buffer and its clone are the fastest copy."""
    small = buffer.is_cpu and buffer.numel() < LARGE
    return small and dtype in COPYABLE and 0 not in strides
