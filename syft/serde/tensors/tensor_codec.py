"""The codec of plain tensors: selects the functions for each kind of tensor.

Strided tensors are packed by ``strided``; sparse, jagged and quantized ones by ``layouts``.  A
tensor subclass without a codec of its own is refused, because its class may change what the data
means.  The kinds without a documented memory format are refused by name: oneDNN (mkldnn), nested
tensors of the strided layout, and parameters that have no shape yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from syft.codes import TypeCode
from syft.exceptions import NotSendable
from syft.serde.tensors.attributes import attach_attributes, pack_attributes
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import (
    Operand,
    register,
    register_hint,
    register_packer,
)
from syft.serde.tensors.layouts import pack_compressed, pack_coo, pack_jagged, pack_quantized
from syft.serde.tensors.strided import SIZES, pack_strided, pack_usual, unpack_strided
from syft.torch_private import JAGGED, MKLDNN

PackTensor: TypeAlias = Callable[[torch.Tensor, Packer], Operand]

_STRIDED = torch.strided
_CPU_DEVICE = (0, None)


def pack_tensor(tensor: torch.Tensor, packer: Packer) -> Operand:
    """Pack a plain tensor, a Parameter or a Buffer.

    >>> pack_tensor(torch.ones(2, dtype=torch.int8), Packer())
    (32, 6, (2,), None, 0)
    """
    if tensor.layout is not _STRIDED or tensor.dtype not in SIZES or tensor.is_nested:
        return _pack_special(tensor, packer)
    usual = pack_usual(tensor, len(packer.buffers))
    if usual is not None:
        packer.buffers.append(usual[1])
        return usual[0]
    operand = pack_strided(tensor.detach() if tensor.requires_grad else tensor, packer)
    attributes = pack_attributes(tensor, packer)
    if attributes is None:
        return operand
    device = operand[5] if len(operand) > 5 else _CPU_DEVICE
    return (*operand[:5], device, attributes)


def _pack_special(tensor: torch.Tensor, packer: Packer) -> Operand:
    if tensor.is_nested and tensor.layout is _STRIDED:
        raise NotSendable(
            "a nested tensor of the strided layout",
            "make it with layout=torch.jagged, or send a list of its tensors (x.unbind())",
        )
    if tensor.is_meta:
        raise NotSendable(
            f"a {tensor.layout} tensor on the meta device", "send a strided one, or its shape"
        )
    if tensor.dtype not in SIZES:
        return pack_quantized(tensor, packer)
    return _BY_LAYOUT.get(tensor.layout, _refuse_layout)(tensor, packer)


def _refuse_layout(tensor: torch.Tensor, packer: Packer) -> Operand:
    name = "mkldnn (oneDNN)" if tensor.layout is MKLDNN else str(tensor.layout)
    raise NotSendable(f"a tensor of layout {name}", "send x.to_dense()")


_BY_LAYOUT: dict[torch.layout, PackTensor] = {
    torch.sparse_coo: pack_coo,
    torch.sparse_csr: pack_compressed,
    torch.sparse_csc: pack_compressed,
    torch.sparse_bsr: pack_compressed,
    torch.sparse_bsc: pack_compressed,
}


def unpack_tensor(operand: Sequence[Any], unpacker: Unpacker) -> torch.Tensor:
    """Build the tensor of a descriptor, with its attributes.

    >>> packer = Packer()
    >>> unpack_tensor(pack_tensor(torch.eye(2), packer), Unpacker(packer.buffers))
    tensor([[1., 0.],
            [0., 1.]])
    """
    tensor = unpack_strided(operand, unpacker)
    return tensor if len(operand) == 5 else attach_attributes(tensor, operand[6], unpacker)


register(TypeCode.TENSOR, torch.Tensor, pack_tensor, unpack_tensor)
register_packer(torch.nn.Parameter, pack_tensor)
register_packer(JAGGED, pack_jagged)
register_hint(
    torch.Tensor, "this subclass of torch.Tensor has no codec; send x.as_subclass(torch.Tensor)"
)
register_hint(torch.nn.UninitializedParameter, "run the lazy module once, so that it has a shape")
register_hint(torch.nn.parameter.UninitializedBuffer, "run the lazy module once first")
register_hint(torch.nn.Module, "use module.send(worker), or send its state_dict()")
