"""Jagged tensors (``torch.nested`` with layout ``torch.jagged``): values and where rows begin.

Only the usual form travels, ragged in its second dimension; kernels trust the offsets, so they are
checked to rise from 0 to at most the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syft.codes import TypeCode
from syft.exceptions import MalformedMessage, NotSendable
from syft.serde.tensors.attributes import attach, pack_attributes
from syft.serde.expect import expect_fields
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, register_unpacker
from syft.serde.tensors.strided import pack_strided, unpack_plain
from syft.serde.torch_internals import ragged_dimension


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
    return attach(tensor, operand[4], unpacker)


def _expect_rows(values: torch.Tensor, offsets: torch.Tensor, lengths: torch.Tensor | None) -> None:
    for part, where in ((offsets, ".offsets"), (lengths, ".lengths")):
        if part is None:
            continue
        if part.dtype not in (torch.int64, torch.int32) or part.dim() != 1:
            raise MalformedMessage(f"${where}", "a row of integers", f"{part.dim()}-d {part.dtype}")
        if part.device != values.device:
            raise MalformedMessage(f"${where}", f"a tensor on {values.device}", f"{part.device}")
    if values.dim() == 0:
        raise MalformedMessage("$.values", "at least one dimension", "a scalar")
    bounds = offsets.tolist()
    rising = all(a <= b for a, b in zip(bounds, bounds[1:], strict=False))
    if not bounds or bounds[0] != 0 or not rising or bounds[-1] > values.shape[0]:
        expected = f"offsets that rise from 0 to at most {values.shape[0]}"
        raise MalformedMessage("$.offsets", expected, "others")
    if lengths is None:
        return
    rows = [b - a for a, b in zip(bounds, bounds[1:], strict=False)]
    given = lengths.tolist()
    if len(given) != len(rows) or not all(
        0 <= n <= most for n, most in zip(given, rows, strict=True)
    ):
        raise MalformedMessage("$.lengths", "a length for each row, within it", "others")


register_unpacker(TypeCode.JAGGED, _unpack_jagged)
