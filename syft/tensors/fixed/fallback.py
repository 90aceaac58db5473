"""Operations without a rule: decode, compute in float64, encode.

Exponentials, norms, losses and hundreds of others have no meaning on the integers.  The integers
are not encrypted, so the numbers are decoded, torch computes in float64, and results of a floating
dtype are encoded again (with an error of half a step, besides the effect of the rounded inputs);
integers and booleans stay plain.

The strategy for an operation is chosen once and cached:

* a composite operation is decomposed into others, which may have rules (torch decomposes it by
  itself, but not in ``inference_mode``);
* an in-place or ``out=`` form runs the functional form and copies the result into its target;
* ``_foreach_…`` runs the single operation for each item of the lists;
* operations that draw random numbers compute in float32, so that a seed gives the same numbers as
  without fixed precision;
* a view without a rule is refused, because a decoded copy would not be a view;
* everything else is decoded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from syft.torch_private import decompositions, has_composite_kernel
from syft.ops.calls import written_arguments
from syft.ops.nested import Arguments, Keywords, replace
from syft.exceptions import EncodingError
from syft.tensors.fixed.grid import Grid, encode
from syft.tensors.fixed.fixed_link import (
    FALLBACK,
    FixedPrecisionTensor,
    argument,
    decoded,
    fixed,
    grid_among,
    is_fixed,
    no_rule,
    store,
)
from syft.tensors.fixed.rings.ring_link import functional_form

Strategy = Callable[..., Any]

aten = torch.ops.aten

REFUSED = {
    "aten::_fused_adam_": "build the optimizer with fused=False",
    "aten::_fused_adamw_": "build the optimizer with fused=False",
    "aten::_fused_sgd_": "build the optimizer with fused=False",
    "aten::_fused_adagrad_": "build the optimizer with fused=False",
}

FLOAT32_ONLY = frozenset({"aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward"})
"""Operations whose only kernel is a float32 one."""


@FixedPrecisionTensor.rule(FALLBACK)
def fall_back(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operation without a rule."""
    return strategy_of(op)(op, *args, **kwargs)


def fall_back_privately(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operation without a rule on integers that nobody may read: by others that have one.

    Raises :class:`~syft.exceptions.UnsupportedOperation` if torch has no decomposition for it.
    """
    return private_strategy_of(op)(op, *args, **kwargs)


FixedPrecisionTensor.private_rules[FALLBACK] = fall_back_privately


@functools.cache
def private_strategy_of(op: Any) -> Strategy:
    """The function that computes an operation without a rule on private integers; cached.

    >>> [private_strategy_of(op).__name__ for op in (aten.silu.default, aten.sort.default)]
    ['by_decomposition', 'refuse_privately']
    """
    strategy = strategy_of(op)
    if strategy in (refuse, decompose, for_each, into_target):
        return strategy
    return by_decomposition if op in decompositions else refuse_privately


def by_decomposition(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run the operations that torch's own table of decompositions gives."""
    return decompositions[op](*args, **kwargs)


def refuse_privately(op: Any, *_: Any, **__: Any) -> Any:
    """Refuse an operation that would have to read private integers."""
    raise no_rule(op, LINEAR_INSTEAD if "linalg_" in op._schema.name else PRIVATE_INSTEAD)


PRIVATE_INSTEAD = (
    "its numbers are private and it has no approximation; write it with the operations listed in "
    "docs/fixed_precision.md, or get() the tensor first"
)
LINEAR_INSTEAD = (
    "its numbers are private; torch.linalg.inv, solve and det take such (least squares are "
    "solve(A.T @ A, A.T @ b)), or get() the tensor first"
)


@functools.cache
def strategy_of(op: Any) -> Strategy:
    """The function that computes an operation without a rule; cached for each operation.

    >>> strategy_of(aten.exp.default).__name__, strategy_of(aten.exp_.default).__name__
    ('in_float64', 'into_target')
    """
    name = op._schema.name
    if name in REFUSED:
        return refuse
    if has_composite_kernel(op.name(), "CompositeImplicitAutograd"):
        return decompose
    if name.startswith("aten::_foreach_"):
        return for_each
    if name in FLOAT32_ONLY or torch.Tag.nondeterministic_seeded in op.tags:
        return in_float32
    if op._schema.is_mutable:
        return into_target if functional_form(op) is not None else in_float64
    views = any(result.alias_info is not None for result in op._schema.returns)
    return refuse if views else in_float64


def refuse(op: Any, *_: Any, **__: Any) -> Any:
    """Refuse an operation for which decoding would give another result than the caller expects."""
    raise no_rule(
        op, REFUSED.get(op._schema.name, "a decoded copy would not be a view; clone() first")
    )


# -------------------------------------------------------------------------- one op into others


def decompose(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run the operations that a composite one consists of."""
    return op.decompose(*args, **kwargs)


def into_target(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run the functional form, and copy its results into the targets."""
    names = [argument.name for argument in op._schema.arguments if argument.is_out]
    outs = [kwargs.pop(name) for name in names]
    result = functional_form(op)(*args, **kwargs)
    if not names:
        return store(op, args[0], result)
    results = result if isinstance(result, (tuple, list)) else (result,)
    for out, value in zip(outs, results, strict=True):
        if out.shape != value.shape:
            raise no_rule(op, f"out= must have the shape of the result, {tuple(value.shape)}")
    stored = [store_out(op, out, value) for out, value in zip(outs, results, strict=True)]
    return tuple(stored) if len(stored) > 1 else stored[0]


def store_out(op: Any, out: Any, value: Any) -> Any:
    """Write one result of an ``out=`` form; indices and booleans may go to plain tensors."""
    if not is_fixed(out) and not is_fixed(value):
        return out.copy_(value)
    return store(op, out, value)


def for_each(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run the single operation for each item of the lists."""
    name = op._schema.name.removeprefix("aten::_foreach_")
    single = getattr(aten, _SINGLE.get(name, name))
    lengths = [len(arg) for arg in args if isinstance(arg, (list, tuple))]
    if name.startswith("addc") and len(args) > 3:
        kwargs["value"] = args[3]
        args = args[:3]
    results = [
        single(*(_item(arg, i) for arg in args), **{k: _item(v, i) for k, v in kwargs.items()})
        for i in range(lengths[0])
    ]
    return None if name.endswith("_") else results


_SINGLE = {"norm": "linalg_vector_norm"}


def _item(value: Any, index: int) -> Any:
    item = value[index] if isinstance(value, (list, tuple)) else value
    return item


# ------------------------------------------------------------------------------------- decoding


def in_float64(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Decode, compute in float64, encode."""
    return compute(op, args, kwargs, torch.float64)


def in_float32(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Decode, compute in float32, encode."""
    return compute(op, args, kwargs, torch.float32)


def compute(op: Any, args: Arguments, kwargs: Keywords, dtype: torch.dtype) -> Any:
    """Run ``op`` on numbers of ``dtype``; write changed arguments back and encode the results."""
    grid = grid_among(op, (args, kwargs))

    def plain(value: Any) -> Any:
        if is_fixed(value):
            return decoded(value.child, dtype)
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.to(dtype, copy=True)
        if isinstance(value, torch.dtype) and value.is_floating_point:
            return dtype
        return value

    plain_args, plain_kwargs = replace(args, plain), replace(kwargs, plain)
    result = op(*plain_args, **plain_kwargs)
    targets: dict[int, Any] = {}
    for before, after in _written_arguments(op, (args, kwargs), (plain_args, plain_kwargs)):
        if not is_fixed(before) and torch.equal(before.to(dtype), after):
            continue
        targets[id(after)] = store(op, before, after)
    return replace(result, lambda value: _encode_result(op, value, grid, targets))


def _written_arguments(
    op: Any, before: tuple[Arguments, Keywords], after: tuple[Arguments, Keywords]
) -> Iterator[tuple[Any, Any]]:
    """The arguments that the operation writes to: as passed, and decoded."""
    for place, name in written_arguments(op):
        old, new = (argument(place, name, *each) for each in (before, after))
        if isinstance(old, torch.Tensor):
            yield old, new


def _encode_result(op: Any, value: Any, grid: Grid, targets: dict[int, Any]) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if id(value) in targets:
        return targets[id(value)]
    if value.is_complex():
        raise no_rule(op, "its result is complex; call .float_prec() first")
    if not value.is_floating_point():
        return value
    try:
        return fixed(encode(value, grid), grid)
    except EncodingError as error:
        value_text = f"{error.value}, a result of {op},"
        raise EncodingError(value_text, error.range, _INSTEAD) from None


_INSTEAD = "keep the arguments where the operation has a result in this range"
