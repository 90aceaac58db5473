"""Forecasts of commands on tensors whose shapes are private.

A shape that follows from private values is private too (``x[x > 0]``).  How many dimensions there
are, the dtype and the graph follow from the program, and everybody may know them.  So a command on
such a tensor is forecast with a tensor of one element in its place, which fits wherever torch
extends sizes of one.  Of what comes out, the number of dimensions counts, and not the sizes.  How
large it is at most is told by the same forecast of tensors as large as the private ones may be
(:func:`~syft.workers.execution.public_sizes.forms_of`).

A command that only runs for some sizes (``x[x > 0].view(2, 3)``) has no such forecast, and is
refused for those who may not know the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace as changed
from typing import Any, cast

from syft.ops.evaluate import evaluate
from syft.ops.nested import leaves, replace, tensors_in
from syft.ops.outcome import ANY, Made, Outcome, Verdict
from syft.workers.execution.public_sizes import forms_of, sizes_at_most

NO_FORECAST = Outcome(Verdict.UNKNOWN)
"""What is known of a command that has no forecast."""


def hidden_forecast(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> Outcome:
    """The forecast of a call with strided tensors, the shapes of some of which are private.

    Its verdict is ``RESIZES``, or ``UNKNOWN`` if it cannot be told without the sizes.

    >>> from syft.workers.labels.guards import Guard
    >>> from syft.workers.labels.memory_labels import protect
    >>> from syft.workers.execution.public_sizes import note_sizes
    >>> x = torch.ones(7); protect(x, Guard(frozenset(), shape_hidden=True)); note_sizes(x, (9,))
    >>> result = hidden_forecast(torch.mul, (x, 2), {}).result
    >>> result.shape, result.most
    ((-1,), (9,))
    >>> hidden_forecast(torch.Tensor.view, (x, 7), {}).verdict.name
    'UNKNOWN'
    """
    first, *further = forms_of(tuple(args), kwargs)
    forecast = evaluate(function, *first)
    if not forecast.is_complete:
        return NO_FORECAST
    found = [evaluate(function, *form) for form in further]
    others = [one for one in found if one.is_complete and _are_alike(one, forecast)]
    bounded = all(sizes_at_most(leaf) is not None for leaf in tensors_in(args, kwargs))
    results = [iter([*leaves(one.result)]) for one in others]
    return changed(
        forecast,
        verdict=Verdict.RESIZES,
        result=replace(
            forecast.result, lambda leaf: _without_sizes(leaf, map(next, results), bounded)
        ),
        changed=_after(forecast, others, bounded),
        grown=forecast.grown.union(*(one.grown for one in found)),
    )


def is_bounded(forecast: Outcome) -> bool:
    """Whether each size that a command leaves has a bound which everybody may know.

    >>> x = torch.ones(3, dtype=torch.int64)
    >>> is_bounded(evaluate(torch.nonzero, (x,), {}))
    True
    >>> is_bounded(evaluate(torch.repeat_interleave, (x,), {}))
    False
    """
    made = [*leaves(forecast.result), *(after for _, after in forecast.changed)]
    return all(type(one) is not Made or one.most is not None for one in made)


def _are_alike(one: Outcome, other: Outcome) -> bool:
    """Whether two forecasts are of results in containers of one form."""
    return len([*leaves(one.result)]) == len([*leaves(other.result)])


def _after(
    forecast: Outcome, others: Sequence[Outcome], bounded: bool
) -> tuple[tuple[int, Made], ...]:
    """What inputs are afterwards that are not as before in some form of the arguments."""
    found: dict[int, list[Made]] = {}
    for one in (forecast, *others):
        for place, after in one.changed:
            found.setdefault(place, []).append(after)
    return tuple(
        (place, _without_sizes(after[0], after[1:], bounded)) for place, after in found.items()
    )


def _without_sizes(leaf: Any, others: Iterable[Any], bounded: bool) -> Any:
    """A result of which the sizes are those at most in all forms, and which lies in memory of its
    own if it does so in one of them."""
    made = [one for one in (leaf, *others) if type(one) is Made]
    apart = next((one for one in made if not one.shares), None)
    if type(leaf) is not Made and apart is None:
        return leaf
    first = made[0]
    any_sizes = (ANY,) * len(first.shape)
    within = first.within if apart is None else -1
    most = _largest(made, len(any_sizes)) if bounded or not any_sizes else None
    return changed(first, shape=any_sizes, stride=any_sizes, nbytes=-1, within=within, most=most)


def _largest(made: Iterable[Made], ndim: int) -> tuple[int, ...] | None:
    """The largest of each of the sizes of results with so many dimensions; None if one has no
    bound."""
    found = [one.most for one in made if len(one.shape) == ndim]
    return None if None in found else tuple(map(max, zip(*cast(Any, found), strict=True)))
