"""Tensors whose memory is more than one strided block: sparse, jagged and quantized ones.

Each is described by strided tensors and by the numbers that give these a meaning.  Torch's kernels
use these numbers without a check, so every number is checked here before a tensor is built.

* Sparse (COO, CSR, CSC, BSR, BSC): indices and values.  Torch's own invariants check them: indices
  in range, sorted where the layout requires it, sizes that fit.  The shape costs no memory; its
  product must only be a number that torch can hold.
* Jagged (``torch.nested`` with layout ``torch.jagged``): values, and the offsets at which rows
  begin.  Only tensors that are ragged in their second dimension travel.
* Quantized: the bytes of the elements, with scales and zero points.  Torch's ``view`` of a
  quantized tensor as bytes can crash the process, so the bytes are read through the storage, and
  the tensor is rebuilt as ``torch.load`` rebuilds it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from syft.codes import LayoutCode, QSchemeCode, TypeCode
from syft.exceptions import MalformedMessage, NotSendable
from syft.serde.buffers import copy_buffer
from syft.serde.expect import MAX_INT, expect_fields, expect_int, expect_type, malformed
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, register_code
from syft.serde.tensors.attributes import attach_attributes, pack_attributes
from syft.serde.tensors.geometry import Shape, expect_shape, expect_strides, filled, row_major
from syft.serde.tensors.strided import expect_device, pack_strided, unpack_plain
from syft.serde.torch_types import (
    DTYPE_CODES,
    DTYPES,
    LAYOUT_CODES,
    LAYOUTS,
    QSCHEME_CODES,
    device_operand,
    lookup,
)
from syft.torch_private import (
    coo_parts,
    per_channel_quantized,
    per_tensor_quantized,
    ragged_dimension,
)

# ------------------------------------------------------------------------------------------- sparse

_COMPRESSED = frozenset(LayoutCode[name] for name in ("SPARSE_CSR", "SPARSE_CSC"))
_COMPRESSED |= frozenset(LayoutCode[name] for name in ("SPARSE_BSR", "SPARSE_BSC"))


def pack_coo(tensor: torch.Tensor, packer: Packer) -> Operand:
    """Pack a COO tensor, coalesced or not.

    >>> pack_coo(torch.eye(2).to_sparse(), Packer())[1:3]
    ((2, 2), (32, 9, (2, 2), None, 0))
    """
    indices, values = coo_parts(tensor.detach())
    return (
        int(TypeCode.SPARSE_COO),
        tuple(tensor.shape),
        pack_strided(indices, packer),
        pack_strided(values, packer),
        tensor.is_coalesced(),
        pack_attributes(tensor, packer),
    )


def _unpack_coo(operand: Sequence[Any], unpacker: Unpacker) -> torch.Tensor:
    expect_fields(operand, 5)
    shape, _ = expect_shape(operand[1], unpacker.limits, MAX_INT)
    indices = unpack_plain(operand[2], unpacker, ".indices")
    values = unpack_plain(operand[3], unpacker, ".values")
    coalesced = expect_type(operand[4], bool, "true or false", ".coalesced")
    try:
        tensor = torch.sparse_coo_tensor(
            indices, values, shape, is_coalesced=coalesced, check_invariants=True
        )
    except (RuntimeError, IndexError) as error:
        raise MalformedMessage("$", "a COO tensor", f"{error}") from error
    return attach_attributes(tensor, operand[5], unpacker)


def pack_compressed(tensor: torch.Tensor, packer: Packer) -> Operand:
    """Pack a CSR, CSC, BSR or BSC tensor.

    >>> pack_compressed(torch.eye(2).to_sparse_csr(), Packer())[1:3]
    (2, (2, 2))
    """
    data = tensor.detach()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        compressed, plain = data.crow_indices(), data.col_indices()
    else:
        compressed, plain = data.ccol_indices(), data.row_indices()
    return (
        int(TypeCode.SPARSE_COMPRESSED),
        LAYOUT_CODES[tensor.layout],
        tuple(tensor.shape),
        pack_strided(compressed, packer),
        pack_strided(plain, packer),
        pack_strided(data.values(), packer),
        pack_attributes(tensor, packer),
    )


def _unpack_compressed(operand: Sequence[Any], unpacker: Unpacker) -> torch.Tensor:
    expect_fields(operand, 6)
    layout = lookup(LAYOUTS, operand[1], "layout", ".layout")
    if operand[1] not in _COMPRESSED:
        raise MalformedMessage("$.layout", "a compressed layout", str(layout))
    shape, _ = expect_shape(operand[2], unpacker.limits, MAX_INT)
    compressed = unpack_plain(operand[3], unpacker, ".compressed")
    plain = unpack_plain(operand[4], unpacker, ".plain")
    values = unpack_plain(operand[5], unpacker, ".values")
    try:
        tensor = torch.sparse_compressed_tensor(
            compressed, plain, values, shape, layout=layout, check_invariants=True
        )
    except (RuntimeError, IndexError) as error:
        raise MalformedMessage("$", f"a {layout} tensor", f"{error}") from error
    return attach_attributes(tensor, operand[6], unpacker)


register_code(TypeCode.SPARSE_COO, pack_coo, _unpack_coo)
register_code(TypeCode.SPARSE_COMPRESSED, pack_compressed, _unpack_compressed)


# ------------------------------------------------------------------------------------------- jagged


def pack_jagged(tensor: torch.Tensor, packer: Packer) -> Operand:
    """Pack a jagged tensor.

    >>> x = torch.nested.nested_tensor([torch.ones(1), torch.ones(3)], layout=torch.jagged)
    >>> pack_jagged(x, Packer())[1]
    (32, 0, (4,), None, 0)
    """
    if ragged_dimension(tensor) != 1:
        raise NotSendable(
            "a transposed jagged tensor", "send it before transposing, or send x.contiguous()"
        )
    data = tensor.detach()
    lengths = data.lengths()  # type: ignore[attr-defined]
    return (
        int(TypeCode.JAGGED),
        pack_strided(data.values(), packer),
        pack_strided(data.offsets(), packer),  # type: ignore[attr-defined]
        None if lengths is None else pack_strided(lengths, packer),
        pack_attributes(tensor, packer),
    )


def _unpack_jagged(operand: Sequence[Any], unpacker: Unpacker) -> torch.Tensor:
    expect_fields(operand, 4)
    values = unpack_plain(operand[1], unpacker, ".values")
    offsets = unpack_plain(operand[2], unpacker, ".offsets")
    lengths = None
    if operand[3] is not None:
        lengths = unpack_plain(operand[3], unpacker, ".lengths")
    _expect_rows(values, offsets, lengths)
    tensor = torch.nested.nested_tensor_from_jagged(values, offsets, lengths)
    return attach_attributes(tensor, operand[4], unpacker)


def _expect_rows(values: torch.Tensor, offsets: torch.Tensor, lengths: torch.Tensor | None) -> None:
    """Check the offsets and lengths of rows, which torch's kernels use without a check."""
    if values.dim() == 0:
        raise MalformedMessage("$.values", "at least one dimension", "a scalar")
    bounds = _expect_integers(offsets, values.device, ".offsets")
    sizes = [end - start for start, end in itertools.pairwise(bounds)]
    if not bounds or bounds[0] != 0 or bounds[-1] > values.shape[0] or min(sizes, default=0) < 0:
        expected = f"offsets that rise from 0 to at most {values.shape[0]}"
        raise MalformedMessage("$.offsets", expected, "others")
    if lengths is not None:
        _expect_lengths(_expect_integers(lengths, values.device, ".lengths"), sizes)


def _expect_integers(part: torch.Tensor, device: torch.device, where: str) -> list[int]:
    if part.dtype not in (torch.int64, torch.int32) or part.dim() != 1:
        raise MalformedMessage(f"${where}", "a row of integers", f"{part.dim()}-d {part.dtype}")
    if part.device != device:
        raise MalformedMessage(f"${where}", f"a tensor on {device}", f"{part.device}")
    integers: list[int] = part.tolist()
    return integers


def _expect_lengths(lengths: list[int], sizes: list[int]) -> None:
    fits = len(lengths) == len(sizes) and all(
        0 <= length <= size for length, size in zip(lengths, sizes, strict=True)
    )
    if not fits:
        raise MalformedMessage("$.lengths", "a length for each row, within it", "others")


register_code(TypeCode.JAGGED, pack_jagged, _unpack_jagged)


# ---------------------------------------------------------------------------------------- quantized

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
    if tensor.dtype not in _UNITS:
        raise NotSendable(f"the dtype {tensor.dtype}", "use another dtype")
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
        buffer = copy_buffer(buffer)
    buffer = buffer.to(device)
    offset = buffer.storage_offset() // size
    empty.set_(buffer.untyped_storage(), offset, shape, strides)
    return attach_attributes(empty, operand[7], unpacker)


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


register_code(TypeCode.QUANTIZED, pack_quantized, _unpack_quantized)
