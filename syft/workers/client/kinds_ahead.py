"""What an operation makes, by its operands: worked out here, so that a shape need not be asked.

A program that reads ``x.shape`` on its way would wait for a worker in another process each time.
Where the operands are of known kinds, the operation is run on tensors without memory (``"meta"``),
which takes some ten microseconds.  An operation whose result depends on values does not run on
these, or is left out here; then the worker is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from syft.exceptions import SyftError
from syft.ops.nested import every_tensor
from syft.ops.table import (
    BY_NAME,
    FACTORY,
    FAKE_FIRST,
    FLAGS,
    FUNCTIONS,
    REVEALS,
    SHAPE_FROM_VALUES,
)
from syft.serde.packer import Unpacker
from syft.serde.registry import unpack
from syft.torch_private import unobserved

ExampleOf = Callable[[int], torch.Tensor | None]
"""A tensor of the kind of an object, by its id; None if the kind is not known."""

_META: Final = torch.device("meta")
_INDEXING: Final = BY_NAME["torch.Tensor.__getitem__"]
_BY_MASK: Final = frozenset((torch.bool, torch.uint8))
_DEPENDS: Final = FAKE_FIRST | REVEALS


class _UnknownKind(SyftError):
    """An operand is of a kind that is not known."""


class _Examples:
    """Stands for a worker where operands are unpacked: a reference becomes an example."""

    def __init__(self, example_of: ExampleOf) -> None:
        self._example_of = example_of

    def resolve(self, id: int, depth: int = 0) -> torch.Tensor:
        """An example of the kind of an object, without memory."""
        example = None if depth else self._example_of(id)
        if example is None:
            raise _UnknownKind(id)
        return torch.empty_strided(
            example.shape, example.stride(), dtype=example.dtype, device=_META
        )


def examples_made(
    op: int, args: Sequence[Any], kwargs: Mapping[str, Any], example_of: ExampleOf
) -> list[torch.Tensor] | None:
    """Tensors of the kinds of those that an operation makes of such operands, without memory.

    None if that cannot be told.

    >>> from syft.codes import TypeCode
    >>> from syft.ops.table import BY_NAME
    >>> size = [int(TypeCode.LIST), 2, 3]
    >>> examples_made(BY_NAME["torch.ones"], (size,), {}, lambda id: None)[0].shape
    torch.Size([2, 3])
    """
    if FLAGS[op] & _DEPENDS or "device" in kwargs:
        return None
    try:
        found = every_tensor(_run(op, args, kwargs, _Examples(example_of)))
    except Exception:  # whatever it is, the worker is asked, and says it
        return None
    return found if all(map(_is_usual, found)) else None


def _run(op: int, args: Sequence[Any], kwargs: Mapping[str, Any], examples: Any) -> Any:
    """The result of an operation on examples."""
    unpacker = Unpacker([], worker=examples)
    given = [_unpacked(value, unpacker) for value in args]
    named = {name: _unpacked(value, unpacker) for name, value in kwargs.items()}
    if FLAGS[op] & SHAPE_FROM_VALUES:
        deciding = every_tensor(given[1:] if op == _INDEXING else (given, named))
        if any(op != _INDEXING or one.dtype in _BY_MASK for one in deciding):
            raise _UnknownKind("what values decide")
    if FLAGS[op] & FACTORY:
        named["device"] = _META
    function: Any = FUNCTIONS[op]
    with unobserved(), torch.no_grad():
        return function(*given, **named)


def _unpacked(value: Any, unpacker: Unpacker) -> Any:
    return unpack(value, unpacker) if type(value) in (tuple, list) else value


def _is_usual(tensor: torch.Tensor) -> bool:
    strided = tensor.layout is torch.strided and tensor.device == _META
    return strided and not (tensor.is_quantized or tensor.is_nested)
