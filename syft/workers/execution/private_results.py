"""The fast way of private commands that make one tensor, or write in place: most of them.

If all private operands have one guard and public shapes, and the prediction says that the result is
a new tensor in memory of its own, there is nothing to write, to draw or to join.  Such a command is
a function call, a comparison of the result with what was predicted, and a guard, which hides the
shape if that follows from values: then the bounds of the prediction are noted with it.  A command
that only writes to memory of that very guard needs no more than the call, if no value can make it
fail half-way.  Whatever is unlike that, a failure too, is left to
:mod:`syft.workers.execution.operation`, which runs the command again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace as changed
from functools import lru_cache
from math import prod
from typing import Any, Final

import torch
from torch import get_default_dtype, is_grad_enabled, is_inference_mode_enabled

from syft.ops.evaluate import evaluate
from syft.ops.forms import FORMS
from syft.ops.nested import EXACT_TENSOR_TYPES, SCALAR_TYPES, every_tensor
from syft.ops.outcome import Given, Made, Outcome, Verdict
from syft.ops.table import FLOATS_COMPUTE, NUMBERS, functions_with, ops_where
from syft.torch_private import any_autocast_enabled
from syft.workers.execution.predicted_run import has_shape
from syft.workers.execution.public_sizes import extent_within
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import BLANK, LABEL, Label, full_guard_of

UNCLEAR: Final = Guard(frozenset())
"""What :func:`common_guard` returns if the general path has to look."""

NOTHING: Final = object()
"""What :func:`private_result` returns if the general path has to run a command."""


_OPEN: Final = (None, False)
"""Error and hidden shape of the guards that this way is for."""
_MOST_KEPT: Final = 4096
_KEPT: Final[dict[Hashable, Outcome | None]] = {}
"""What commands do, by what :func:`_known` looks at; None for those that are not for this path."""
_UNSEEN: Final = Outcome(Verdict.UNKNOWN)
"""What stands for a command that was not seen before."""
_CONTAINERS: Final = (list, tuple)
_IGNORING_VALUES: Final = functions_with(FLOATS_COMPUTE)
"""The functions that do the same for all floats among their arguments."""
_FAILING_FIRST: Final = ops_where("fails", "first")
"""What may run again after a failure, whatever it writes."""


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
        if guard is found or guard is None:
            continue
        if (guard.error, guard.shape_hidden) != _OPEN or guard is UNCLEAR:
            return UNCLEAR
        if found is not None and guard != found:
            return UNCLEAR
        found = guard
    return found


def _guard_inside(value: Any, kind: type) -> Guard | None:
    if kind in SCALAR_TYPES:
        return None
    return common_guard(value) if kind is list else UNCLEAR


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
    outcome = _known(function, values, named)
    if outcome is None:
        return NOTHING
    inputs = every_tensor(values, named) if outcome.writes else ()
    if inputs and not _may_be_written(inputs, outcome.writes, guard):
        return NOTHING
    try:
        result = function(*values, **named)
    except Exception:
        return NOTHING
    if not _is_as_expected(result, outcome.result, values, inputs):
        return NOTHING
    if not inputs:
        _protect_new(result, outcome, guard)
    return result


_shared_label = BLANK
"""The label of the latest result, which the next one has too if its guard is the same."""


def _protect_new(result: Any, outcome: Outcome, guard: Guard) -> None:
    """Guard new results.  Labels never change, so results of one guard have the same one."""
    global _shared_label
    label = _shared_label
    if outcome.verdict is Verdict.RESIZES:
        label, result.__dict__[LABEL] = _hiding_labels(guard, outcome.result)
    elif label.guard is not guard:
        label = _shared_label = Label(guard)
    for one in (result,) if type(result) is torch.Tensor else result:
        one.untyped_storage().__dict__[LABEL] = label


@lru_cache(maxsize=1024)
def _hiding_labels(guard: Guard, made: Made) -> tuple[Label, Label]:
    """The labels of a result of a private shape computed from values of this guard: of its memory,
    and of the tensor."""
    most = made.most or ()
    memory = Label(changed(guard, shape_hidden=True), most=prod(most) * made.dtype.itemsize)
    return memory, Label(most=extent_within(most, made.shape))


def _known(
    function: Callable[..., Any], values: Sequence[Any], named: dict[str, Any]
) -> Outcome | None:
    """What a command does, in ordinary modes; None if it is not for this path.

    What decides that nearly always is the key.  What else does (views, lazy conjugates, inference
    tensors) makes the command raise, or shows in the result, and then the general path runs it.
    Where it runs shows in neither.
    """
    if any_autocast_enabled() or is_inference_mode_enabled():
        return None
    looks = [function, is_grad_enabled(), get_default_dtype()]
    by_type = function in _IGNORING_VALUES
    _add_looks(looks, values, by_type)
    for name, value in named.items():
        looks.append(name)
        _add_looks(looks, (value,), by_type)
    key = tuple(looks)
    outcome = _KEPT.get(key, _UNSEEN)
    return _seen_first(key, function, values, named) if outcome is _UNSEEN else outcome


def _seen_first(
    key: Hashable, function: Callable[..., Any], values: Sequence[Any], named: dict[str, Any]
) -> Outcome | None:
    """What a command does that was not seen before, which is kept."""
    found = evaluate(function, tuple(values), named)
    inputs = every_tensor(values, named) if found.writes else ()
    if _are_repeated(inputs):
        return None
    fits = _is_for_this_path(found) or (_makes_bounded(found) and function not in FORMS)
    sure = NUMBERS.get(function) in _FAILING_FIRST or _are_real(inputs)
    outcome = found if fits and sure else None
    if len(_KEPT) >= _MOST_KEPT:
        _KEPT.clear()
    _KEPT[key] = outcome
    return outcome


def _is_as_expected(
    result: Any, made: Any, values: Sequence[Any], inputs: Sequence[torch.Tensor]
) -> bool:
    """Whether a result is the input that was expected, or the new plain tensor, or a container of
    such.  Outside of inference mode what is lazy is a view."""
    if type(made) is not Made:
        return _are_as_expected(result, made, values, inputs)
    if type(result) is not torch.Tensor or result._is_view():
        return False
    if result.dtype is not made.dtype or result.requires_grad is not made.requires_grad:
        return False
    nbytes = made.nbytes
    if nbytes < 0:
        fits, nbytes = has_shape(result, made), result.numel() * result.itemsize
    else:
        fits = result.shape == made.shape and result.stride() == made.stride
    if not fits or result.untyped_storage().nbytes() != nbytes:
        return False
    for value in values:
        if value is result:  # what a command does depends on more than is in its key
            return False
    return True


def _are_as_expected(
    result: Any, made: Any, values: Sequence[Any], inputs: Sequence[torch.Tensor]
) -> bool:
    """The same for what is not one new tensor."""
    if type(made) is Given:
        return result is inputs[made.place]
    if made is None:
        return result is None
    if type(result) is not type(made) or len(result) != len(made):
        return False
    return all(_is_as_expected(*each, values, inputs) for each in zip(result, made, strict=True))


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


def _may_be_written(inputs: Sequence[torch.Tensor], places: Iterable[int], guard: Guard) -> bool:
    """Whether the tensors of these places are those that will be written, and have this guard."""
    if _are_repeated(inputs):
        return False
    return all(full_guard_of(inputs[place]) == guard for place in places)


def _are_repeated(inputs: Sequence[torch.Tensor]) -> bool:
    """Whether a tensor is there twice: places count each tensor once, and a key does not tell."""
    return len(inputs) > len(set(map(id, inputs)))


def _are_real(inputs: Sequence[torch.Tensor]) -> bool:
    """Whether no tensor has integers or truths, which may be indices or divisors: a write that
    fails because of one may have begun, and must not be run again."""
    return all(one.is_floating_point() or one.is_complex() for one in inputs)


def _is_for_this_path(outcome: Outcome) -> bool:
    """Whether a command makes new tensors that share no memory with an input, one or a list or
    tuple of them, or writes and returns some of its inputs."""
    if outcome.verdict is not Verdict.RUNS or outcome.draws or outcome.changed:
        return False
    result = outcome.result
    several = result if type(result) in _CONTAINERS else (result,)
    if outcome.writes:
        return result is None or all(type(one) is Given for one in several)
    return all(type(one) is Made and not one.shares for one in several)


def _makes_bounded(outcome: Outcome) -> bool:
    """Whether a command makes one new tensor without a graph, in memory of its own, of a shape that
    follows from values within public bounds, and does nothing else."""
    if outcome.verdict is not Verdict.RESIZES or outcome.draws or outcome.writes:
        return False
    made = outcome.result
    if type(made) is not Made or made.shares or made.requires_grad:
        return False
    return made.nbytes < 0 and made.most is not None
