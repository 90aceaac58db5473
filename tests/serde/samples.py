"""One list of samples per type code, and what it means for two values to be the same."""

from __future__ import annotations

import collections
import enum
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.utils.rnn import pack_sequence

from syft.codes import TypeCode
from syft.program import codec  # noqa: F401 (registers programs)
from syft.ops.table import BY_NAME
from syft.program.program import Action, Mode, Program, Slot
from syft.serde.tensors.bundle import Bundle
from syft.torch_private import coo_parts

ABOVE_SERDE = frozenset(
    {TypeCode.REF, TypeCode.POINTER, TypeCode.GROUP, TypeCode.PLAN_CALL, TypeCode.PLAN}
    | {code for code in TypeCode if code >= 64}
)
"""Codes whose codecs live in the layers above serde."""


class Colour(enum.IntEnum):
    """An enumeration that torch does not know."""

    RED = 3


def _with_extras() -> torch.Tensor:
    tensor = torch.tensor([1.0, -2.0], requires_grad=True)
    tensor.grad = torch.tensor([0.5, 0.25])
    tensor.__dict__["_tags"] = {"#boston", "#target"}
    tensor.__dict__["_description"] = "prices"
    return tensor


def _jagged() -> torch.Tensor:
    values, offsets = torch.arange(6.0).view(3, 2), torch.tensor([0, 1, 3])
    return torch.nested.nested_tensor_from_jagged(values, offsets)


def _per_channel() -> torch.Tensor:
    scales, zeros = torch.tensor([0.5, 0.25]), torch.tensor([0, 1])
    return torch.quantize_per_channel(torch.ones(2, 3), scales, zeros, 0, torch.qint8)


def _float_qparams() -> torch.Tensor:
    scales, zeros = torch.tensor([0.5, 0.25]), torch.tensor([0.5, 1.0])
    return torch.quantize_per_channel(torch.ones(2, 4), scales, zeros, 0, torch.quint4x2)


def _program() -> Program:
    """A program with all that an action can have, and a branch."""
    add, sort = BY_NAME["torch.Tensor.add"], BY_NAME["torch.sort"]
    cond = BY_NAME["syft.ops.control.cond"]
    cast = Mode(grad=True, autocast=(("cpu", torch.bfloat16), ("cuda", None)))
    same, double = Program(1, (), Slot(0)), Action(add, (Slot(0), Slot(0)), {}, Slot(1))
    return Program(
        inputs=2,
        actions=(
            Action(add, (Slot(0), Slot(3)), {"alpha": 2.5}, Slot(4), Mode(grad=False)),
            Action(BY_NAME["torch.Tensor.mul_"], (Slot(4), 2), {}, None),
            Action(sort, (Slot(4),), {"dim": 0}, (Slot(5), None), cast),
            Action(cond, (Slot(1), same, Program(1, (double,), Slot(1)), [Slot(5)]), {}, Slot(6)),
        ),
        outputs={"a": Slot(6), "b": [Slot(0), 1]},
        state=1,
        constants=(torch.tensor([1.0, 2.0]),),
    )


def _bundle() -> Bundle:
    """Two stacks, parts of which alternate, and what fits into none."""
    leaf, parameter = torch.ones(3, requires_grad=True), torch.nn.Parameter(torch.zeros(2, 1))
    graded = torch.ones(3, requires_grad=True)
    graded.grad = torch.zeros(3)
    two = torch.nn.Parameter(torch.ones(2, 1))
    mixed = [leaf, parameter, graded, torch.eye(2).to_sparse(), leaf.detach() * 2, two]
    return Bundle([*mixed, torch.arange(6).view(2, 3).t(), torch.full((3,), 7.0)])


SAMPLES: dict[TypeCode, list[Callable[[], Any]]] = {
    TypeCode.TUPLE: [lambda: (1, (None, True), "x"), lambda: ()],
    TypeCode.LIST: [lambda: [1.5, [b"x"], []]],
    TypeCode.DICT: [lambda: {"a": 1, (1, 2): [3]}, lambda: {}],
    TypeCode.SET: [lambda: {7}, set],
    TypeCode.FROZENSET: [lambda: frozenset({7})],
    TypeCode.SLICE: [lambda: slice(1, None, 2), lambda: slice(torch.tensor(1), 3)],
    TypeCode.ELLIPSIS: [lambda: ...],
    TypeCode.RANGE: [lambda: range(10, -3, -2), lambda: range(2**70, 2**71, 2**69)],
    TypeCode.COMPLEX: [lambda: 1.5 - 2j, lambda: complex(-0.0, math.inf)],
    TypeCode.BIG_INT: [lambda: 2**64, lambda: -(2**63) - 1, lambda: 2**64 * 255],
    TypeCode.BYTEARRAY: [lambda: bytearray(b"\x00\xff")],
    TypeCode.SURROGATE_STR: [lambda: "a\ud800é"],
    TypeCode.ORDERED_DICT: [lambda: collections.OrderedDict(b=1, a=torch.ones(1))],
    TypeCode.NAMED_TUPLE: [
        lambda: torch.tensor([[1.0, 3.0], [2.0, 0.0]]).max(dim=1),
        lambda: torch.nn.Linear(1, 1).load_state_dict({}, strict=False),
    ],
    TypeCode.NOT_IMPLEMENTED: [lambda: NotImplemented],
    TypeCode.PYTHON_TYPE: [lambda: float, lambda: bool, lambda: int, lambda: complex],
    TypeCode.SIZE: [lambda: torch.Size([2, 0, 3]), lambda: torch.Size([])],
    TypeCode.DTYPE: [lambda: torch.bfloat16],
    TypeCode.DEVICE: [lambda: torch.device("cuda:1"), lambda: torch.device("cpu")],
    TypeCode.LAYOUT: [lambda: torch.sparse_csr],
    TypeCode.MEMORY_FORMAT: [lambda: torch.channels_last],
    TypeCode.QSCHEME: [lambda: torch.per_tensor_affine],
    TypeCode.GENERATOR: [lambda: torch.Generator().manual_seed(3)],
    TypeCode.FINFO: [lambda: torch.finfo(torch.float16)],
    TypeCode.IINFO: [lambda: torch.iinfo(torch.uint8)],
    TypeCode.TORCH_ENUM: [
        lambda: torch.nn.attention.SDPBackend.FLASH_ATTENTION,
        lambda: torch.nn.attention.SDPBackend.ERROR,
    ],
    TypeCode.PACKED_SEQUENCE: [
        lambda: pack_sequence([torch.ones(1), torch.zeros(3)], enforce_sorted=False),
        lambda: pack_sequence([torch.ones(3), torch.zeros(1)]),
    ],
    TypeCode.EXCEPTION: [lambda: IndexError("index 3 is out of range")],
    TypeCode.TORCH_OPTIONS: [
        lambda: torch.nn.LinearCrossEntropyOptions(acc_policy="compact", acc_dtype=torch.float64),
    ],
    TypeCode.TENSOR: [_with_extras, lambda: torch.arange(6, dtype=torch.int16).view(2, 3).t()],
    TypeCode.QUANTIZED: [
        lambda: torch.quantize_per_tensor(torch.ones(2, 3), 0.5, 1, torch.quint8),
        _per_channel,
        _float_qparams,
    ],
    TypeCode.SPARSE_COO: [lambda: torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse()],
    TypeCode.SPARSE_COMPRESSED: [
        lambda: torch.eye(4).to_sparse_csr(),
        lambda: torch.eye(4).to_sparse_csc(),
        lambda: torch.eye(4).to_sparse_bsr(2),
        lambda: torch.eye(4).to_sparse_bsc(2),
    ],
    TypeCode.JAGGED: [_jagged],
    TypeCode.BUNDLE: [_bundle, lambda: Bundle([torch.ones(2), torch.zeros(2)]), Bundle],
    TypeCode.SLOT: [lambda: Slot(3), lambda: Slot(5000)],
    TypeCode.PROGRAM: [_program, lambda: Program(0, (), None)],
}


def same(left: Any, right: Any) -> bool:
    """Whether two values are the same in kind and content, down to bits, strides and attributes."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return same_tensor(left, right)
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, tuple | list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, set | frozenset):
        return bool(left == right)
    if isinstance(left, slice):
        return same((left.start, left.stop, left.step), (right.start, right.stop, right.step))
    if isinstance(left, torch.Generator):
        return bool(left.device == right.device)
    if isinstance(left, Exception):
        return same(left.args, right.args) and str(left) == str(right)
    if isinstance(left, float | complex):
        return repr(left) == repr(right)
    return bool(left == right)


def same_tensor(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors have the same bits, geometry, kind and attributes."""
    facts = ("layout", "dtype", "device", "requires_grad", "is_leaf", "is_quantized", "is_nested")
    if any(getattr(left, fact) != getattr(right, fact) for fact in facts):
        return False
    notes = ("_tags", "_description", "_is_buffer", "persistent")
    if any(left.__dict__.get(note) != right.__dict__.get(note) for note in notes):
        return False
    if not same(left.grad, right.grad):
        return False
    return same_data(left.detach(), right.detach())


def same_data(left: Any, right: Any) -> bool:
    """Whether the numbers of two tensors agree, bit by bit."""
    if left.layout is torch.jagged:
        return same((left.values(), left.offsets()), (right.values(), right.offsets()))
    if left.shape != right.shape:
        return False
    if left.layout is torch.sparse_coo:
        # torch leaves gaps in the indices of a coalesced tensor; those become row-major.
        pairs = [
            (*map(torch.Tensor.contiguous, coo_parts(x)), x.is_coalesced()) for x in (left, right)
        ]
        return same(*pairs)
    if left.layout in (torch.sparse_csr, torch.sparse_bsr):
        return same(*((x.crow_indices(), x.col_indices(), x.values()) for x in (left, right)))
    if left.layout in (torch.sparse_csc, torch.sparse_bsc):
        return same(*((x.ccol_indices(), x.row_indices(), x.values()) for x in (left, right)))
    if left.is_quantized:
        same_scheme = left.qscheme() == right.qscheme() and left.stride() == right.stride()
        return same_scheme and torch.equal(left.dequantize(), right.dequantize())
    if left.is_meta:
        return bool(left.stride() == right.stride())
    return bits(left) == bits(right)


def bits(tensor: torch.Tensor) -> tuple[tuple[int, ...], list[int]]:
    """Return the strides where they matter, and the bytes of the elements in row-major order."""
    plain = tensor.resolve_conj().resolve_neg()
    # As bytes, because there are dtypes whose elements torch cannot copy.
    size, raw = plain.dtype.itemsize, torch.empty(0, dtype=torch.uint8, device=plain.device)
    strides = [stride * size for stride in plain.stride()]
    where = int(plain.storage_offset()) * size
    raw.set_(plain.untyped_storage(), where, (*plain.shape, size), (*strides, 1))
    return tensor.stride() if tensor.numel() else (), raw.flatten().tolist()
