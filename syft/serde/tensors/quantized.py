"""Quantized tensors: the raw bytes of their elements, and the numbers that give these a meaning.

torch's own ``view`` of a quantized tensor as bytes can crash the process, so the bytes are reached
through the storage, and a tensor is rebuilt as ``torch.load`` rebuilds it.  The parameters are
checked here because torch looks at them only when it computes: scales finite and positive, zero
points within the integer type, one of each for every channel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from syft.codes import QSchemeCode, TypeCode
from syft.exceptions import MalformedMessage, NotSendable
from syft.serde.tensors.attributes import attach, pack_attributes
from syft.serde.expect import expect_fields, expect_int, expect_type, malformed
from syft.serde.tensors.geometry import Shape, expect_shape, expect_strides, filled, row_major
from syft.serde.memory import duplicate
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, register_unpacker
from syft.serde.tensors.strided import expect_device, pack_strided, unpack_plain
from syft.serde.torch_internals import per_channel_quantized, per_tensor_quantized
from syft.serde.torch_types import (
    DTYPE_CODES,
    DTYPES,
    QSCHEME_CODES,
    device_operand,
    lookup,
)

# Elements in one stored unit, bytes of that unit, and the integers an element may be.
_UNITS: dict[torch.dtype, tuple[int, int, int, int]] = {
    torch.qint8: (1, 1, -(2**7), 2**7 - 1),
    torch.quint8: (1, 1, 0, 2**8 - 1),
    torch.qint32: (1, 4, -(2**31), 2**31 - 1),
    torch.quint4x2: (2, 1, 0, 2**4 - 1),
    torch.quint2x4: (4, 1, 0, 2**2 - 1),
}
_PER_TENSOR = int(QSchemeCode.PER_TENSOR_AFFINE)
_PER_CHANNEL = {
    int(QSchemeCode.PER_CHANNEL_AFFINE): (torch.float64, torch.int64),
    int(QSchemeCode.PER_CHANNEL_AFFINE_FLOAT_QPARAMS): (torch.float32, torch.float32),
}


def pack_quantized(tensor: torch.Tensor, packer: Packer) -> Operand:
    """Pack a quantized tensor.

    >>> x = torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.qint8)
    >>> pack_quantized(x, Packer())
    (33, 22, (2,), None, 0, (0, 0.5, 0), (0, None), None)
    """
    scheme = _pack_scheme(tensor, packer)
    shape = tuple(tensor.shape)
    per_unit, size, _, _ = _UNITS[tensor.dtype]
    if filled(shape, tensor.stride()) != tensor.numel():
        tensor = tensor.contiguous()
    strides = None if tensor.stride() == row_major(shape) else tensor.stride()
    if per_unit > 1 and (strides is not None or tensor.storage_offset()):
        raise NotSendable(f"a part of a {tensor.dtype} tensor", "send the whole tensor")
    nbytes = -(-tensor.numel() // per_unit) * size
    data = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    data.set_(tensor.untyped_storage(), tensor.storage_offset() * size, (nbytes,), (1,))
    return (
        int(TypeCode.QUANTIZED),
        DTYPE_CODES[tensor.dtype],
        shape,
        strides,
        packer.add(data),
        scheme,
        device_operand(tensor.device),
        pack_attributes(tensor, packer),
    )


def _pack_scheme(tensor: torch.Tensor, packer: Packer) -> tuple[Any, ...]:
    try:
        scheme = QSCHEME_CODES[tensor.qscheme()]
    except RuntimeError as error:
        raise NotSendable(f"a {tensor.dtype} tensor without a quantizer", "quantize it") from error
    if scheme == _PER_TENSOR:
        return scheme, tensor.q_scale(), tensor.q_zero_point()
    scales = pack_strided(tensor.q_per_channel_scales(), packer)
    zero_points = pack_strided(tensor.q_per_channel_zero_points(), packer)
    return scheme, scales, zero_points, tensor.q_per_channel_axis()


def _unpack_quantized(operand: Sequence[Any], unpacker: Unpacker) -> torch.Tensor:
    expect_fields(operand, 7)
    dtype = lookup(DTYPES, operand[1], "dtype", ".dtype")
    if dtype not in _UNITS:
        raise MalformedMessage("$.dtype", "a quantized dtype", str(dtype))
    per_unit, size, _, _ = _UNITS[dtype]
    shape, count = expect_shape(operand[2], unpacker.limits, unpacker.limits.max_elements)
    strides, stored = expect_strides(operand[3], shape, count)
    if stored != count or (per_unit > 1 and operand[3] is not None):
        raise MalformedMessage("$.strides", "strides without repetition", "others")
    device = expect_device(operand[6])
    if device.type == "meta":
        raise MalformedMessage("$.device", "a device that holds data", "meta")
    empty = _empty_quantized(operand[5], dtype, shape, device, unpacker)
    buffer = unpacker.take(operand[4], -(-count // per_unit) * size)
    if buffer.storage_offset() % size or not unpacker.owns_buffers:
        buffer = duplicate(buffer)
    buffer = buffer.to(device)
    offset = buffer.storage_offset() // size
    empty.set_(buffer.untyped_storage(), offset, shape, strides)
    return attach(empty, operand[7], unpacker)


def _empty_quantized(
    scheme: Any, dtype: torch.dtype, shape: Shape, device: torch.device, unpacker: Unpacker
) -> torch.Tensor:
    expect_type(scheme, (list, tuple), "a quantization scheme", ".scheme")
    if len(scheme) == 3 and scheme[0] == _PER_TENSOR:
        scale = expect_type(scheme[1], float, "a scale", ".scale")
        if not (math.isfinite(scale) and scale > 0):
            raise MalformedMessage("$.scale", "a positive, finite scale", str(scale))
        _, _, low, high = _UNITS[dtype]
        zero_point = expect_int(scheme[2], ".zero_point", low, high)
        return per_tensor_quantized(dtype, device, scale, zero_point)
    if len(scheme) != 4 or type(scheme[0]) is not int or scheme[0] not in _PER_CHANNEL:
        raise malformed("a quantization scheme", scheme, ".scheme")
    axis = expect_int(scheme[3], ".axis", high=len(shape) - 1)
    scales = unpack_plain(scheme[1], unpacker, ".scales").to(device)
    zero_points = unpack_plain(scheme[2], unpacker, ".zero_points").to(device)
    _expect_channels(scales, zero_points, _PER_CHANNEL[scheme[0]], shape[axis], dtype)
    return per_channel_quantized(shape, dtype, device, scales, zero_points, axis)


def _expect_channels(
    scales: torch.Tensor,
    zero_points: torch.Tensor,
    dtypes: tuple[torch.dtype, torch.dtype],
    channels: int,
    dtype: torch.dtype,
) -> None:
    for part, kind, where in (
        (scales, dtypes[0], ".scales"),
        (zero_points, dtypes[1], ".zero_points"),
    ):
        if part.dtype != kind or part.shape != (channels,):
            expected = f"{channels} numbers of {kind}"
            raise MalformedMessage(f"${where}", expected, f"{tuple(part.shape)} of {part.dtype}")
    if not bool((scales.isfinite() & (scales > 0)).all()):
        raise MalformedMessage("$.scales", "positive, finite scales", "others")
    if zero_points.is_floating_point():
        sane = bool(zero_points.isfinite().all())
    else:
        _, _, low, high = _UNITS[dtype]
        sane = bool(((zero_points >= low) & (zero_points <= high)).all())
    if not sane:
        raise MalformedMessage("$.zero_points", f"zero points that fit {dtype}", "others")


register_unpacker(TypeCode.QUANTIZED, _unpack_quantized)
