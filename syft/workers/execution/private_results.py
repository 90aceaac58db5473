"""The fast way of private commands that make one tensor, or write in place: most of them.

If all private operands have one guard, and the forecast says that the result is a new tensor in
memory of its own, there is nothing to write, to draw or to join.  Such a command is a function
call, a comparison of the result with what was forecast, and a guard.  A command that only writes
to memory of that very guard needs no more than the call.  Whatever is unlike that, a failure too,
is left to :mod:`syft.workers.execution.operation`, which runs the command again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import torch

from syft.ops.evaluate import evaluate, ignores_values
from syft.ops.nested import EXACT_TENSOR_TYPES, SCALAR_TYPES, tensors_in
from syft.ops.outcome import Given, Made, Outcome, Verdict
from syft.torch_private import any_autocast_enabled
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import BLANK, LABEL, Label, full_guard_of

UNCLEAR: Final = Guard(frozenset())
"""What :func:`common_guard` returns if the general path has to look."""

NOTHING: Final = object()
"""What :func:`private_result` returns if the general path has to run a command."""


@dataclass(frozen=True, slots=True)
class _Writing:
    """A command that writes to these inputs, by place, and returns some of its inputs, nested as in
    ``result``."""

    places: tuple[int, ...]
    result: Any


@dataclass(frozen=True, slots=True)
class _Several:
    """A command that makes these new tensors, in a container of this kind."""

    kind: type
    made: tuple[Made, ...]


_Kind = Made | _Several | _Writing | None
_MOST_KEPT: Final = 4096
_KEPT: Final[dict[Hashable, _Kind]] = {}
"""What commands do, by :func:`_key`; None for those that are not for this path."""
_UNSEEN: Final = _Writing((), None)
"""What stands for a command that was not seen before."""


def common_guard(values: Iterable[Any]) -> Guard | None:
    """The one guard of the private ones among strided tensors and numbers; None if all are public.

    ``UNCLEAR`` if guards differ, an earlier command failed, a shape is hidden, or there is anything
    else among the values.

    >>> common_guard([torch.ones(2), 3]), common_guard([torch.eye(2).to_sparse()]) is UNCLEAR
    (None, True)
    """
    found: Guard | None = None
    for value in values:
        kind = type(value)
        if kind in EXACT_TENSOR_TYPES:
            try:
                guard = value.untyped_storage().__dict__.get(LABEL, BLANK).guard
            except NotImplementedError:  # of another layout
                return UNCLEAR
        else:
            guard = _guard_inside(value, kind)
        if guard is not found and guard is not None:
            if _is_strange(guard) or guard != (found or guard):
                return UNCLEAR
            found = guard
    return found


def _guard_inside(value: Any, kind: type) -> Guard | None:
    if kind in SCALAR_TYPES:
        return None
    return common_guard(value) if kind is list else UNCLEAR


def _is_strange(guard: Guard) -> bool:
    return guard is UNCLEAR or guard.error is not None or guard.shape_hidden


def private_result(
    function: Callable[..., Any], values: Sequence[Any], named: dict[str, Any], guard: Guard
) -> Any:
    """What a function makes of these values, guarded, or what it has written; ``NOTHING`` if this
    path is not for them.

    The private ones among the values have this guard; see :func:`common_guard`.

    >>> x, guard = torch.ones(2), Guard(frozenset())
    >>> private_result(torch.add, (x, 1), {}, guard)
    tensor([2., 2.])
    >>> private_result(torch.Tensor.add_, (x, 1), {}, guard) is NOTHING
    True
    >>> x.untyped_storage().__dict__[LABEL] = Label(guard)
    >>> private_result(torch.Tensor.add_, (x, 1), {}, guard)
    tensor([2., 2.])
    """
    made = _known(function, values, named)
    if made is None:
        return NOTHING
    if isinstance(made, _Writing):
        return _written(function, values, named, guard, made)
    try:
        result = function(*values, **named)
    except Exception:
        return NOTHING
    if isinstance(made, _Several):
        return _guarded(result, made, values, guard)
    if type(result) is not torch.Tensor or not _is_as_forecast(result, made, values):
        return NOTHING
    result.untyped_storage().__dict__[LABEL] = _label_with(guard)
    return result


_shared_label = BLANK
"""The label of the latest result, which the next one has too if its guard is the same."""


def _label_with(guard: Guard) -> Label:
    """The label of new memory with this guard: labels never change, so results have the same."""
    global _shared_label
    label = _shared_label
    if label.guard is not guard:
        label = _shared_label = Label(guard)
    return label


def _known(function: Callable[..., Any], values: Sequence[Any], named: dict[str, Any]) -> _Kind:
    """What a command does, in ordinary modes; None if it is not for this path."""
    if any_autocast_enabled() or torch.is_inference_mode_enabled():
        return None
    key = _key(function, values, named)
    made = _KEPT.get(key, _UNSEEN)
    return _learned(key, function, values, named) if made is _UNSEEN else made


def _guarded(result: Any, several: _Several, values: Sequence[Any], guard: Guard) -> Any:
    """Several results, if each is as forecast."""
    found = cast(Sequence[Any], result if type(result) is several.kind else ())
    if len(found) != len(several.made):
        return NOTHING
    for one, made in zip(found, several.made, strict=True):
        if type(one) is not torch.Tensor or not _is_as_forecast(one, made, values):
            return NOTHING
    for one in found:
        one.untyped_storage().__dict__[LABEL] = _label_with(guard)
    return result


def _is_as_forecast(result: torch.Tensor, made: Made, values: Sequence[Any]) -> bool:
    """Whether a result is the new plain tensor that was forecast.  Outside of inference mode what
    is lazy is a view."""
    if result.shape != made.shape or result.stride() != made.stride or result._is_view():
        return False
    if result.dtype is not made.dtype or result.requires_grad is not made.requires_grad:
        return False
    if result.untyped_storage().nbytes() != made.nbytes:
        return False
    for value in values:
        if value is result:  # what a command does depends on more than is in its key
            return False
    return True


def _written(
    function: Callable[..., Any],
    values: Sequence[Any],
    named: dict[str, Any],
    guard: Guard,
    writing: _Writing,
) -> Any:
    """Write in place, if that is memory of this very guard."""
    inputs = tensors_in(values, named)
    for place in writing.places:
        if full_guard_of(inputs[place]) != guard:
            return NOTHING
    try:
        result = function(*values, **named)
    except Exception:
        return NOTHING
    return result if _is_given(result, writing.result, inputs) else NOTHING


def _is_given(result: Any, expected: Any, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether a result is the inputs that were expected."""
    if type(expected) is Given:
        return result is inputs[expected.place]
    if expected is None:
        return result is None
    same = type(result) is type(expected) and len(result) == len(expected)
    return same and all(
        one is inputs[other.place] for one, other in zip(result, expected, strict=True)
    )


def _key(function: Any, values: Sequence[Any], named: dict[str, Any]) -> Hashable:
    """What decides nearly always what a command does.

    What else does (views, lazy conjugates, inference tensors) makes it raise, or shows in the
    result, and then the general path runs it.  Where it runs shows in neither.
    """
    key = [function, torch.is_grad_enabled(), torch.get_default_dtype()]
    by_type = ignores_values(function)
    _add_looks(key, values, by_type)
    for name, value in named.items():
        key.append(name)
        _add_looks(key, (value,), by_type)
    return tuple(key)


def _add_looks(key: list[Any], values: Iterable[Any], by_type: bool) -> None:
    for value in values:
        if isinstance(value, torch.Tensor):
            key += (value.shape, value.stride(), value.dtype, value.requires_grad)
        elif type(value) is list:
            key += (list, len(value))
            _add_looks(key, value, by_type)
        elif type(value) is float and by_type:
            key.append(float)
        else:
            key += (type(value), value)


def _learned(key: Hashable, function: Any, values: Sequence[Any], named: dict[str, Any]) -> _Kind:
    """Evaluate a command for the first time."""
    made = _kind_of(evaluate(function, tuple(values), named))
    if len(_KEPT) >= _MOST_KEPT:
        _KEPT.clear()
    _KEPT[key] = made
    return made


def _kind_of(forecast: Outcome) -> _Kind:
    """What of a forecast this path needs; None if it is not for it."""
    result = forecast.result
    if forecast.verdict is not Verdict.RUNS or forecast.draws or forecast.changed:
        return None
    if not forecast.writes:
        return _made_only(result)
    several = result if type(result) in (list, tuple) else () if result is None else (result,)
    return _Writing(forecast.writes, result) if _are_given(several) else None


def _made_only(result: Any) -> Made | _Several | None:
    """New tensors that share no memory with an input: one, or a list or tuple of them."""
    kind = type(result)
    several = result if kind in (list, tuple) else (result,)
    if not all(type(made) is Made and not made.shares for made in several):
        return None
    return result if kind is Made else _Several(kind, tuple(several))


def _are_given(results: Iterable[Any]) -> bool:
    return all(type(result) is Given for result in results)
