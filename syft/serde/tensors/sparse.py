"""Sparse tensors: COO, and the four compressed layouts (CSR, CSC, BSR, BSC).

Indices and values travel as strided tensors.  What they claim is checked by torch's own invariants
(indices in range, sorted where the layout says so, sizes that fit) before the tensor is handed on,
because kernels trust them.  The shape costs no memory, so only its product must be a number that
torch can hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syft.codes import LayoutCode, TypeCode
from syft.exceptions import MalformedMessage
from syft.serde.tensors.attributes import attach, pack_attributes
from syft.serde.expect import MAX_INT, expect_fields, expect_type
from syft.serde.tensors.geometry import expect_shape
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, register_unpacker
from syft.serde.tensors.strided import pack_strided, unpack_plain
from syft.serde.torch_internals import coo_parts
from syft.serde.torch_types import LAYOUT_CODES, LAYOUTS, lookup

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
    return attach(tensor, operand[5], unpacker)


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
    return attach(tensor, operand[6], unpacker)


register_unpacker(TypeCode.SPARSE_COO, _unpack_coo)
register_unpacker(TypeCode.SPARSE_COMPRESSED, _unpack_compressed)
