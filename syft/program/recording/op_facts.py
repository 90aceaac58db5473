"""What a recording must know about a torch function beyond the flags of the op table.

- Which ops return sizes, other numbers or gradients, and are recorded in another way.
- Which property of a tensor a function reads.  ``torch.zeros(3, dtype=x.dtype)`` is recorded with
  the dtype of the example.  So the recording lists the properties that were read, and what was
  built fits inputs that have the same ones.
- Which calls return a data-dependent shape, as far as the operands tell.  The op table sets the
  flag if some call of the op does.  If that were taken for every call, each size behind a
  ``torch.where`` or a ``torch.arange`` would count as a value, and the user would be warned of
  decisions that are the same for all values.
- Which functions without a number may run while a function is recorded.  Most are refused, because
  a program cannot hold them.  Some concern this process alone and leave nothing behind that an
  action would have to make; those just run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn

import torch

from syft.exceptions import CannotRecord
from syft.ops.nested import Arguments, Keywords, leaves
from syft.ops.table import (
    BY_NAME,
    METADATA,
    OF_TWO,
    REFUSED_NAMES,
    Function,
    asked_by,
    name_of,
    ops_with,
)
from syft.program.recording.environment.snapshot import storage_of
from syft.program.recording.environment.source_line import user_line
from syft.program.recording.symbolic import Origin, origin_of

# --------------------------------------------------------------- ops with a treatment of their own

LENGTH: Final = BY_NAME["torch.Tensor.__len__"]
SAME_SIZE: Final = frozenset(op for op in OF_TWO if "shape" in asked_by(op))
SIZES: Final = frozenset(
    number
    for number in ops_with(METADATA)
    if not asked_by(number).isdisjoint(("shape", "strides", "storage_offset"))
) - {LENGTH, *OF_TWO}
"""Metadata that are numbers and follow from sizes."""
TYPE: Final = BY_NAME["torch.Tensor.type"]
MAKERS: Final = frozenset(BY_NAME[f"torch.{name}"] for name in ("tensor", "as_tensor", "asarray"))
"""What makes a tensor of an array of numpy."""
ITEM: Final = BY_NAME["torch.Tensor.item"]
UNBINDS: Final = frozenset(
    BY_NAME[f"torch.{name}"] for name in ("unbind", "Tensor.unbind", "unbind_copy")
)


def _number_of_chunks(size: Any, chunks: Any) -> Any:
    return chunks if size == 0 else -(-size // -(-size // chunks))


def _number_of_splits(size: Any, length: Any) -> Any:
    return 1 if size == 0 else -(-size // length)


PARTS: Final[dict[int, Callable[[Any, Any], Any]]] = {
    **dict.fromkeys(UNBINDS, lambda size, _: size),
    **{
        number: count
        for count, names in (
            (_number_of_chunks, "chunk Tensor.chunk unsafe_chunk Tensor.unsafe_chunk"),
            (
                _number_of_splits,
                "split Tensor.split unsafe_split Tensor.unsafe_split split_copy "
                "_C._VariableFunctions.split",
            ),
        )
        for name in names.split()
        if (number := BY_NAME.get(f"torch.{name}")) is not None
    },
}
"""How many results they have, by the size of the dimension and what else they are given."""

# ------------------------------------------------------------------------ properties of tensors

FIXED: Final = frozenset(
    ("dtype", "device", "layout", "dim", "requires_grad", "is_contiguous"),
)
"""The properties for which a recording can require that its inputs have those of the examples."""
PROPERTIES_OF: Final = {
    number: properties
    for number in ops_with(METADATA)
    if (properties := asked_by(number) & FIXED) and number not in SIZES
}
"""The properties of tensors, beside sizes and values, that an op of the table reads."""

# ------------------------------------------------------------------------- data-dependent shapes


def has_data_dependent_shape(op: int, args: Arguments, kwargs: Keywords) -> bool:
    """Whether the shape of a flagged op's result depends on values, for these operands.

    >>> where, mask, x = BY_NAME["torch.where"], torch.ones(2) > 0, torch.ones(2)
    >>> has_data_dependent_shape(where, (mask,), {})
    True
    >>> has_data_dependent_shape(where, (mask, x, -x), {})
    False
    """
    rule = _SHAPE_RULES.get(op)
    return rule is None or rule(args, kwargs)


def _has_mask(args: Arguments, kwargs: Keywords) -> bool:
    """An index selects by values if there is a mask in it."""
    masks = (torch.bool, torch.uint8)
    return any(isinstance(leaf, torch.Tensor) and leaf.dtype in masks for leaf in leaves(args[1:]))


def _is_condition_only(args: Arguments, kwargs: Keywords) -> bool:
    """A condition without two tensors to choose from returns the indices where it holds."""
    return len(args) + len(kwargs) == 1


def _has_value(args: Arguments, kwargs: Keywords) -> bool:
    """The length of a range follows from its bounds, which may come from values."""
    return any(map(_comes_from_value, leaves((args, kwargs))))


def _comes_from_value(leaf: Any) -> bool:
    return origin_of(leaf) is Origin.VALUE


def _is_counted_by_values(args: Arguments, kwargs: Keywords) -> bool:
    """The number of repeats or parts is a number, or follows from the elements of a tensor."""
    count = args[1] if len(args) > 1 else next(map(kwargs.get, _COUNTS.intersection(kwargs)), None)
    return not isinstance(count, (int, list, tuple)) or any(map(_comes_from_value, leaves(count)))


_COUNTS: Final = frozenset(("repeats", "indices", "sections", "indices_or_sections"))
_SHAPE_RULES: Final[dict[int, Callable[[Arguments, Keywords], bool]]] = {
    BY_NAME[f"torch.{name}"]: rule
    for rule, names in (
        (_has_mask, ("Tensor.__getitem__",)),
        (_is_condition_only, ("where", "Tensor.where")),
        (_has_value, ("arange", "range")),
        (_is_counted_by_values, ("repeat_interleave", "Tensor.repeat_interleave")),
        (_is_counted_by_values, ("tensor_split", "Tensor.tensor_split")),
    )
    for name in names
}

# -------------------------------------------------------------------- functions without a number

_LOCAL_REASONS: Final = frozenset(
    (
        "grad mode is state of the worker; every command carries its own",
        "autocast is state of the worker; every command carries its own",
        "each side shows for itself: get() the tensor, if you may",
        "a tensor is hashed by its identity, which is local",
        "it gives out raw memory addresses",
        "it gives out the raw memory of a tensor, all of it and not only what the tensor shows",
        "it reaches into the counts that keep the tensor alive",
        "it makes a Python value, which is local: make it where you are",
        "it belongs to the profiler, which watches its own process",
        "it computes with Python numbers, which are local",
    )
)
"""Reasons in ``refused.txt`` against running a function for others that allow running it here."""
_LOCAL_NAMES: Final = frozenset(
    ("torch.Tensor._backward_hooks.__get__", "torch.Tensor._post_accumulate_grad_hooks.__get__")
)


def copied_deeply(tensor: torch.Tensor, memo: dict[Any, Any]) -> torch.Tensor:
    """What ``copy.deepcopy`` gives, as operations: of a tensor without a gradient.

    Tensors that share memory share it in a deep copy of both, which a program has no operation for.

    >>> copied_deeply(torch.ones(2), {})
    tensor([1., 1.])
    """
    if id(tensor) in memo:
        return memo[id(tensor)]  # type: ignore[no-any-return]
    memory = "memory", storage_of(tensor)
    if tensor.requires_grad:
        _refuse_copy("a tensor that requires grad", "copy it by clone(), or by detach().clone()")
    if memory in memo:
        _refuse_copy("tensors that share memory", "copy each by clone()")
    copy = memo[id(tensor)] = memo[memory] = tensor.clone()
    return copy


def check_deep_copy(tensor: torch.Tensor) -> None:
    """Refuse a deep copy of a tensor of which elements share memory: they do in the copy, too, and
    not in a clone.

    >>> check_deep_copy(torch.ones(2).expand(3, 2))
    Traceback (most recent call last):
    ...
    syft.exceptions.CannotRecord: A plan cannot keep torch.Tensor.__deepcopy__ of a tensor whose \
elements share memory (...): copy it by clone(), which has memory for each.
    """
    strided = tensor.layout is torch.strided
    reached = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)) if strided else ():
        if size > 1 and stride <= reached:
            instead = "copy it by clone(), which has memory for each"
            _refuse_copy("a tensor whose elements share memory", instead)
        reached += stride * (size - 1)


def _refuse_copy(what: str, instead: str) -> NoReturn:
    copying = f"{name_of(torch.Tensor.__deepcopy__)} of {what}"
    raise CannotRecord(copying, str(user_line()), instead)


def run_unlisted(function: Function, args: Arguments, kwargs: Keywords) -> Any:
    """Run a function that has no number, without recording it.

    Raises :class:`~syft.exceptions.CannotRecord` if a program would lack what the function does.

    >>> run_unlisted(torch.Tensor.__repr__, (torch.ones(1),), {})
    'tensor([1.])'
    """
    name = name_of(function)
    reason = REFUSED_NAMES.get(name)
    if reason in _LOCAL_REASONS or name in _LOCAL_NAMES:
        return function(*args, **kwargs)
    instead = reason or "it has no number; write it with other torch operations"
    raise CannotRecord(name, str(user_line()), instead)
