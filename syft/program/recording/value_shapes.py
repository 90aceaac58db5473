"""Which calls give results whose shape follows from values, as far as the operands tell.

The op table says it of a function if some call of it does.  Taken at that, every size behind a
``torch.where`` or a ``torch.arange`` would count as a value, and the user be warned of decisions by
it that are the same for all values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.ops.table import BY_NAME
from syft.program.recording.symbolic import KINDS, Origin
from syft.ops.nested import Arguments, Keywords, leaves

_MASKS = (torch.bool, torch.uint8)


def shaped_by_values(op: int, args: Arguments, kwargs: Keywords) -> bool:
    """Whether the shape of what a flagged op gives follows from values for these operands.

    >>> where, mask, x = BY_NAME["torch.where"], torch.ones(2) > 0, torch.ones(2)
    >>> shaped_by_values(where, (mask,), {}), shaped_by_values(where, (mask, x, -x), {})
    (True, False)
    """
    rule = _RULES.get(op)
    return rule is None or rule(args, kwargs)


def _has_mask(args: Arguments, kwargs: Keywords) -> bool:
    """An index chooses by values if there is a mask in it."""
    return any(isinstance(leaf, torch.Tensor) and leaf.dtype in _MASKS for leaf in leaves(args[1:]))


def _is_alone(args: Arguments, kwargs: Keywords) -> bool:
    """A condition without the two tensors it chooses from asks for the places where it holds."""
    return len(args) + len(kwargs) == 1


def _has_value(args: Arguments, kwargs: Keywords) -> bool:
    """A range is as long as its bounds say, and these may come from values."""
    return any(map(_is_value, leaves((args, kwargs))))


def _is_value(leaf: Any) -> bool:
    return isinstance(leaf, KINDS) and leaf.origin is Origin.VALUE


def _is_counted_by_values(args: Arguments, kwargs: Keywords) -> bool:
    """Repeats, or parts, are as many as a number or as the elements of a tensor say."""
    count = args[1] if len(args) > 1 else next(map(kwargs.get, _COUNTS.intersection(kwargs)), None)
    return not isinstance(count, (int, list, tuple)) or any(map(_is_value, leaves(count)))


_COUNTS = frozenset(("repeats", "indices", "sections", "indices_or_sections"))
_RULES: dict[int, Callable[[Arguments, Keywords], bool]] = {
    BY_NAME[f"torch.{name}"]: rule
    for rule, names in (
        (_has_mask, ("Tensor.__getitem__",)),
        (_is_alone, ("where", "Tensor.where")),
        (_has_value, ("arange", "range")),
        (_is_counted_by_values, ("repeat_interleave", "Tensor.repeat_interleave")),
        (_is_counted_by_values, ("tensor_split", "Tensor.tensor_split")),
    )
    for name in names
}
