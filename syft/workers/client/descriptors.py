"""The descriptors of tensors that facts follow from: of what is sent, and of what is made of it.

The form is that of :mod:`syft.serde.tensors.strided`, so what is sent need not be described twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from syft.codes import TypeCode
from syft.ops.table import BY_NAME, COLUMNS, ops_where
from syft.serde.torch_types import DTYPE_CODES, DTYPES
from syft.workers.wire.references import REF

TENSOR: Final = int(TypeCode.TENSOR)
CPU: Final = (0, None)
_PLAIN_TENSORS: Final = frozenset((torch.Tensor, torch.nn.Parameter))
SET_DATA: Final = BY_NAME["torch.Tensor.data.__set__"]
_CONVERT: Final = BY_NAME["torch.Tensor.to"]
SAME_KIND: Final = ops_where("like", "first")
"""The operations whose result is of the kind of their first argument."""
_TO: Final = {
    op: getattr(torch, dtype) for op, dtype in COLUMNS["like"].items() if dtype != "first"
}
"""The operations that change the dtype alone, and to which one."""
LIKE_FIRST: Final = SAME_KIND.union(_TO, (_CONVERT,))


def id_of(args: Sequence[Any], place: int) -> int | None:
    """The id of the object that an operand refers to; None if it refers to none.

    >>> id_of(((REF, 7), 2), 0), id_of(((REF, 7), 2), 1)
    (7, None)
    """
    operand: Any = args[place] if len(args) > place else None
    if type(operand) in (list, tuple) and len(operand) == 2 and operand[0] == REF:
        return int(operand[1])
    return None


def descriptor_of(dtype: torch.dtype, shape: Sequence[int]) -> Sequence[Any]:
    """The descriptor of a strided tensor on the CPU, as far as facts follow from it.

    >>> descriptor_of(torch.float32, (2, 3))
    (32, 0, (2, 3), None, None, (0, None))
    """
    return TENSOR, DTYPE_CODES[dtype], shape, None, None, CPU


def dtype_made(op: int, operands: Sequence[Any]) -> torch.dtype | None:
    """The dtype to which ``x.double()``, or ``x.to(None, dtype, False)`` with these operands,
    converts; None for any other call.

    >>> dtype_made(BY_NAME["torch.Tensor.double"], ())
    torch.float64
    """
    if op != _CONVERT:
        return _TO.get(op)
    if len(operands) != 3 or operands[0] is not None or operands[2] is not False:
        return None
    named = operands[1]
    if type(named) not in (list, tuple) or len(named) != 2 or named[0] != TypeCode.DTYPE:
        return None
    return DTYPES.get(named[1])


def is_plain(value: Any) -> bool:
    """Whether a value arrives as a strided tensor, and not a quantized one.

    >>> is_plain(torch.ones(2)), is_plain(torch.eye(2).to_sparse())
    (True, False)
    """
    if type(value) not in _PLAIN_TENSORS or value.layout is not torch.strided:
        return False
    return not (value.is_quantized or value.is_nested)
