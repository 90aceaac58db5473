"""Many tensors in one operand: small ones of the same kind are stacked in one buffer.

A tensor of ten floats costs ten times its copy when it travels alone: a descriptor of its own, a
buffer of its own, and the checks of both.  In a :class:`Bundle`, tensors with the same dtype,
shape, device and flags lie behind each other in one buffer and have one descriptor.  What has more
to say than that (a gradient, tags, strides, another layout), or so much data that one more copy of
it would cost more than its descriptor, is packed as it would be alone.

Each tensor that is unpacked has memory of its own, so that dropping one frees it, and guarding one
guards no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syft.codes import TensorFlag, TypeCode
from syft.exceptions import LimitExceeded, MalformedMessage
from syft.serde.expect import expect_fields, malformed, prepend
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, pack_items, register, unpack_items
from syft.serde.tensors.attributes import attach_attributes
from syft.serde.tensors.strided import COPYABLE, pack_strided, unpack_plain

SMALL = 1 << 16
"""The most bytes of a tensor that is stacked.  A frame that holds as many larger ones as it may
have buffers is over the limit on its bytes anyway."""

_STACKABLE = COPYABLE - {torch.complex32}
"""The dtypes of tensors that are stacked; torch warns about operations on complex32."""

_KINDS: dict[type, int] = {torch.Tensor: 0, torch.nn.Parameter: int(TensorFlag.PARAMETER)}
_REQUIRES_GRAD = int(TensorFlag.REQUIRES_GRAD)

Kind = tuple[torch.dtype, torch.Size, torch.device, int]


class Bundle(list[Any]):
    """A list of tensors that travel together; it arrives as a list of the same order.

    >>> from syft.serde import deserialize, serialize
    >>> deserialize(serialize(Bundle([torch.ones(2), torch.zeros(2)])))
    [tensor([1., 1.]), tensor([0., 0.])]
    """


def kind_of(tensor: Any) -> Kind | None:
    """What tensors of one stack have in common; None for one that is packed alone.

    >>> kind_of(torch.ones(2))
    (torch.float32, torch.Size([2]), device(type='cpu'), 0)
    >>> kind_of(torch.ones(2, 3).t()) is None
    True
    """
    flags = _KINDS.get(type(tensor))
    if flags is None or tensor.layout is not torch.strided or tensor.is_nested:
        return None
    if tensor.__dict__ or tensor.dtype not in _STACKABLE or tensor.is_meta:
        return None
    if tensor.nbytes > SMALL or not tensor.is_contiguous():
        return None
    if tensor.is_leaf:
        if tensor.grad is not None:
            return None
        if tensor.requires_grad:
            flags |= _REQUIRES_GRAD
    return tensor.dtype, tensor.shape, tensor.device, flags


def _pack(bundle: Bundle, packer: Packer) -> Operand:
    packer.items += len(bundle)
    if packer.items > packer.max_items:
        raise packer.too_many()
    stacks: dict[Any, list[int]] = {}
    for index, tensor in enumerate(bundle):
        stacks.setdefault(kind_of(tensor), []).append(index)
    alone = stacks.pop(None, [])
    for kind in [kind for kind, members in stacks.items() if len(members) == 1]:
        alone += stacks.pop(kind)
    order = tuple(index for members in (*stacks.values(), alone) for index in members)
    in_order = order == tuple(range(len(order)))
    with torch.no_grad():
        packed = tuple(
            (kind[3], pack_strided(torch.stack([bundle[index] for index in members]), packer))
            for kind, members in stacks.items()
        )
    rest = pack_items((bundle[index] for index in alone), packer)
    return int(TypeCode.BUNDLE), None if in_order else order, packed, rest


def _unpack(operand: Sequence[Any], unpacker: Unpacker) -> Bundle:
    expect_fields(operand, 3)
    _, order, stacks, alone = operand
    for field, where in ((stacks, ".stacks"), (alone, ".alone")):
        if type(field) is not list and type(field) is not tuple:
            raise malformed("an array", field, where)
    tensors: list[Any] = []
    for index, stack in enumerate(stacks):
        try:
            tensors += _unstack(stack, unpacker)
        except (MalformedMessage, LimitExceeded) as error:
            prepend(error, f".stacks[{index}]")
            raise
    try:
        tensors += unpack_items(alone, unpacker)
    except (MalformedMessage, LimitExceeded) as error:
        prepend(error, ".alone")
        raise
    return Bundle(tensors if order is None else _ordered(tensors, order))


def _unstack(stack: Any, unpacker: Unpacker) -> Sequence[torch.Tensor]:
    if (type(stack) is not list and type(stack) is not tuple) or len(stack) != 2:
        raise malformed("flags and a tensor", stack)
    flags, operand = stack
    _count_rows(operand, unpacker)
    stacked = unpack_plain(operand, unpacker, ".tensor")
    unbind: Any = torch.unbind_copy  # which torch's stubs say to return nothing
    rows: Sequence[torch.Tensor] = unbind(stacked)
    if flags == 0 and type(flags) is int:
        return rows
    attributes = (flags, None, None, None)
    return [attach_attributes(row, attributes, unpacker) for row in rows]


def _count_rows(operand: Any, unpacker: Unpacker) -> None:
    """Count the tensors of a stack as items before one is made: they may be without any data."""
    shape = operand[2] if isinstance(operand, list | tuple) and len(operand) > 2 else None
    rows = shape[0] if isinstance(shape, list | tuple) and shape else None
    if type(rows) is not int or rows < 1:
        raise MalformedMessage("$.tensor", "a tensor with one or more rows", "none")
    unpacker.items += rows
    if unpacker.items > unpacker.max_items:
        raise LimitExceeded("$", "max_items", unpacker.max_items, unpacker.items)


def _ordered(tensors: list[Any], order: Any) -> list[Any]:
    """The tensors in the order of the list that was packed."""
    numbers = type(order) in (list, tuple) and all(type(index) is int for index in order)
    if not numbers or sorted(order) != list(range(len(tensors))):
        raise malformed(f"the numbers from 0 to {len(tensors) - 1}, each once", order, ".order")
    placed: list[Any] = [None] * len(tensors)
    for index, tensor in zip(order, tensors, strict=True):
        placed[index] = tensor
    return placed


register(TypeCode.BUNDLE, Bundle, _pack, _unpack)
