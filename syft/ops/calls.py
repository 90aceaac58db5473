"""What one call of an op does, where the op's flags alone do not say it.

- Which argument the call mutates.  Links make new wrappers for results, but ``x.add_(1)``,
  ``torch.add(x, 1, out=y)`` and ``relu(x, inplace=True)`` must return the very ``x`` or ``y`` that
  they were given.
- Which arguments a call writes to, besides what it mutates and returns: schemas do not mark the
  running statistics of normalizations.
- How an op that takes a Python function decomposes into other ops.  The function can neither travel
  nor stand in a program, so the caller calls it: with pointers, or while a recording is active.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from inspect import signature
from types import FunctionType
from typing import Any, Final

import torch

from syft.ops.nested import Arguments, Keywords, leaves
from syft.ops.table import (
    BY_NAME,
    FLAGS,
    FRESH,
    FUNCTIONS,
    INPLACE,
    INPLACE_OPTION,
    JOINS,
    MUTATES_OTHERS,
    NAMES,
    ops_with,
)


def mutated_argument(flags: int, args: Arguments, kwargs: Keywords) -> Any:
    """The argument that a call mutates and returns; None if the call makes new tensors.

    >>> from syft.ops.table import BY_NAME, FLAGS
    >>> mutated_argument(FLAGS[BY_NAME["torch.Tensor.add_"]], ("x", 1), {})
    'x'
    >>> mutated_argument(FLAGS[BY_NAME["torch.add"]], ("x", 1), {"out": "y"})
    'y'
    >>> relu = FLAGS[BY_NAME["torch.nn.functional.relu"]]
    >>> mutated_argument(relu, (), {"input": "x", "inplace": True})
    'x'
    >>> mutated_argument(FLAGS[BY_NAME["torch.add"]], ("x", 1), {"out": None})
    """
    out = kwargs.get("out")
    if out is not None:
        return out
    if flags & INPLACE or (flags & INPLACE_OPTION and kwargs.get("inplace")):
        return args[0] if args else kwargs.get("input")
    return None


def may_keep(flags: int, target: Any, tensor: Any) -> bool:
    """Whether a call may write to a tensor among its arguments, or return its memory; ``target`` is
    what :func:`mutated_argument` says.

    >>> from syft.ops.table import BY_NAME, FLAGS
    >>> add, view = FLAGS[BY_NAME["torch.Tensor.add_"]], FLAGS[BY_NAME["torch.Tensor.view_as"]]
    >>> may_keep(add, "x", "x"), may_keep(add, "x", "y"), may_keep(view, None, "x")
    (True, False, True)
    """
    if target is not None and not flags & (JOINS | MUTATES_OTHERS):
        return any(leaf is tensor for leaf in leaves(target))
    return not flags & FRESH or bool(flags & MUTATES_OTHERS)


@cache
def parameters(op: int) -> dict[str, tuple[int, Any]]:
    """The place of each parameter of an op and its default; none where torch tells of none."""
    function = FUNCTIONS[op]
    if isinstance(function, FunctionType):
        parameters = signature(function, follow_wrapped=False).parameters.values()
        defaults = [None if one.default is one.empty else one.default for one in parameters]
        return {one.name: (at, defaults[at]) for at, one in enumerate(parameters)}
    packet: Any = getattr(torch.ops.aten, NAMES[op].rpartition(".")[2], None)
    has_schema = type(packet) is type(torch.ops.aten.add)
    schema = getattr(packet, packet.overloads()[0])._schema if has_schema else None
    names = [one.name for one in schema.arguments] if schema is not None else []
    return {name: (place, None) for place, name in enumerate(names)}


def argument(op: int, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a call gives for a parameter, or its default; None if the op has no such parameter.

    The parameters of an op in C++ are those of its schema, in whose order it takes them; only
    ``Tensor.where`` takes its own in another one.

    >>> argument(BY_NAME["torch.Tensor.backward"], "inputs", ("x", None, None, False, "y"), {})
    'y'
    >>> argument(BY_NAME["torch.nn.functional.instance_norm"], "use_input_stats", ("x",), {})
    True
    """
    place, default = parameters(op).get(name, (len(args), None))
    return args[place] if place < len(args) else kwargs.get(name, default)


def has_parameter(op: int, name: str) -> bool:
    """Whether an op takes an argument of this name.

    >>> has_parameter(BY_NAME["torch.nn.functional.embedding"], "max_norm")
    True
    """
    return name in parameters(op)


_RUNNING: Final = ("running_mean", "running_var")
STATISTICS: Final = frozenset(
    op for op in ops_with(MUTATES_OTHERS) if has_parameter(op, _RUNNING[0])
)
"""The ops that write to their running statistics and to nothing else that they are given."""


def _trains(op: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return all(
        argument(op, name, args, kwargs) is not False for name in ("training", "use_input_stats")
    )


def statistics_written(op: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The running statistics that a call of one of STATISTICS writes: none in evaluation mode.

    >>> batch_norm = BY_NAME["torch.nn.functional.batch_norm"]
    >>> statistics_written(batch_norm, ("x", "mean", "var"), {"training": True})
    ('mean', 'var')
    >>> statistics_written(batch_norm, ("x", "mean", "var"), {})
    ()
    """
    trains = _trains(op, args, kwargs)
    return tuple(argument(op, name, args, kwargs) for name in _RUNNING) if trains else ()


@cache
def written_arguments(aten: Any) -> tuple[tuple[int, str], ...]:
    """The arguments that an aten op can write, by place and name: those that its schema marks, and
    running statistics.

    >>> written_arguments(torch.ops.aten.maximum.out)
    ((2, 'out'),)
    """
    unmarked = _RUNNING if _number(aten) in STATISTICS else ()
    return tuple(
        (place, one.name)
        for place, one in enumerate(aten._schema.arguments)
        if one.name in unmarked or (one.alias_info is not None and one.alias_info.is_write)
    )


def written_by(aten: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """What a call of an aten op writes.

    >>> list(written_by(torch.ops.aten.add_.Tensor, ("x", "y"), {}))
    ['x']
    """
    op = _number(aten)
    evaluates = op in STATISTICS and not _trains(op, args, kwargs)
    for place, name in written_arguments(aten):
        if not (evaluates and name in _RUNNING):
            yield args[place] if place < len(args) else kwargs.get(name)


def flags_beside(aten: Any) -> int:
    """The flags of the torch function of an overload's name; none if there is no such function.

    >>> from syft.ops.table import FAKE_FIRST
    >>> bool(flags_beside(torch.ops.aten.native_batch_norm.default) & FAKE_FIRST)
    True
    """
    number = _number(aten)
    return FLAGS[number] if number >= 0 else 0


def _number(aten: Any) -> int:
    return BY_NAME.get("torch." + aten._schema.name.removeprefix("aten::"), -1)


def triplet_margin_with_distance_loss(
    anchor: torch.Tensor,
    positive: torch.Tensor,
    negative: torch.Tensor,
    *,
    distance_function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> torch.Tensor:
    """What ``torch.nn.functional.triplet_margin_with_distance_loss`` computes.

    Raises ValueError and RuntimeError where that function does.

    >>> x = torch.ones(1, 2)
    >>> triplet_margin_with_distance_loss(x, x, x, distance_function=lambda a, b: (a - b).sum(1))
    tensor(1.)
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError("anchor, positive and negative must have the same number of dimensions")
    distance = distance_function or torch.nn.functional.pairwise_distance
    far = distance(anchor, negative)
    if swap:
        far = torch.minimum(far, distance(positive, negative))
    loss = torch.clamp_min(margin + distance(anchor, positive) - far, 0)
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


DECOMPOSITIONS: Final[dict[int, Callable[..., Any]]] = {
    BY_NAME["torch.nn.functional.triplet_margin_with_distance_loss"]: (
        triplet_margin_with_distance_loss
    ),
}
"""What to call in place of an op that takes a Python function, by the op's number."""
