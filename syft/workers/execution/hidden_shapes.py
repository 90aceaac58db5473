"""Predictions of commands on tensors whose shapes are private.

A shape that follows from private values is private too (``x[mask]``), and its public form has for
each dimension a size or a bound (:mod:`~syft.workers.execution.public_sizes`).  How many dimensions
there are, the dtype and the graph follow from the program, and everybody may know them.  So a
command on such a tensor is predicted several times, each time with other sizes in the place of the
private ones: the bounds, larger ones, 1 and 0.  A size of a result that is the same in all of these
is public, and one that is not is private, with a bound again: ``x[mask] @ w`` has a private number
of rows, and ``x[mask].mean(0)`` and ``cross_entropy(x[mask], y[mask])`` have no private size at
all.

What is predicted follows from public forms alone, so a wrong prediction tells nothing.  A result
that is not as predicted is a failure that follows from values, and is sealed
(:mod:`syft.workers.execution.predicted_run`).  So a command need not run for all sizes: those for
which it does not are sealed.  It has to run for two of the larger ones, or where all private sizes
are 1, which torch extends.  A command that only runs for some sizes (``x[x > 0].view(2, 3)``) has
no prediction, and is refused for those who may not know the sizes, and so is one of which the
number of results follows from them (``split``)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from math import prod
from typing import Any, Final, cast

import torch

from syft.ops.evaluate import evaluate, kept, signature_of
from syft.ops.nested import Function, leaves, replace, tensors_in
from syft.ops.outcome import ANY, Given, Made, Outcome, Verdict, size_of_memory
from syft.workers.execution.public_sizes import (
    Call,
    forms_beyond,
    forms_of,
    hides_shape,
    is_viewed,
    largest_form,
    public_shape,
    sizes_at_most,
)

NO_PREDICTION = Outcome(Verdict.UNKNOWN)
"""What is known of a command that has no prediction."""
_ENOUGH: Final = 2
"""The forms with large sizes for which a command has to run."""

IsPublic = Callable[[torch.Tensor], bool]


def hidden_prediction(
    function: Function,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    is_public: IsPublic = lambda tensor: False,
    counted: bool = False,
) -> Outcome:
    """The prediction of a call with strided tensors, the shapes of some of which are private.

    It is ``RESIZES``, or not complete if it cannot be told without the sizes.  ``counted`` says
    that the number of results may follow from a size: it has to be the same for all of them.

    >>> from syft.workers.labels.guards import Guard
    >>> from syft.workers.labels.memory_labels import protect
    >>> from syft.workers.execution.public_sizes import note_sizes
    >>> x = torch.ones(7, 2); protect(x, Guard(frozenset(), shape_hidden=True))
    >>> note_sizes(x, (9, 2), shape=(ANY, 2))
    >>> result = hidden_prediction(torch.mul, (x, 2), {}).result
    >>> result.shape, result.most
    ((-1, 2), (9, 2))
    >>> hidden_prediction(torch.sum, (x, 0), {}).result.shape
    (2,)
    >>> hidden_prediction(torch.Tensor.view, (x, 14), {}).verdict.name
    'UNKNOWN'
    """
    inputs = tensors_in(args, kwargs)
    if not any(map(hides_shape, inputs)):  # that there is a command is private
        return changed(evaluate(function, args, kwargs, is_public), verdict=Verdict.RESIZES)
    about = function, args, kwargs, is_public, counted, inputs
    try:
        signature = signature_of(function, *largest_form(args, kwargs), is_public)
    except TypeError:
        return _prediction(*about)
    return kept((signature, counted, *map(_public_form, inputs)), _prediction, *about)


def _public_form(tensor: torch.Tensor) -> Hashable:
    """What is public of a tensor beside its sizes at most; None if its shape is."""
    if not hides_shape(tensor):
        return None
    return public_shape(tensor), sizes_at_most(tensor) is None, is_viewed(tensor)


def _prediction(
    function: Function,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    is_public: IsPublic,
    counted: bool,
    inputs: Sequence[torch.Tensor],
) -> Outcome:
    def each(forms: Iterable[Call]) -> list[Outcome]:
        return [evaluate(function, given, named, is_public) for given, named in forms]

    ones, *within = each(forms_of(tuple(args), kwargs))
    none, larger = map(each, forms_beyond(tuple(args), kwargs))
    if larger[0].verdict is Verdict.READS:
        return larger[0]
    base = _base(ones, larger, inputs)
    if base is None or _shows_views(base, inputs):
        return NO_PREDICTION
    possible = [one for one in (ones, *within, *none) if one.is_complete]
    alike = _of_kind(base, possible, inputs)
    if not alike or (counted and len(alike) < len(possible)):
        return NO_PREDICTION
    return _joined(base, alike, _of_kind(base, larger, inputs), inputs)


def is_bounded(prediction: Outcome) -> bool:
    """Whether each size that a command leaves has a bound which everybody may know.

    >>> x = torch.ones(3, dtype=torch.int64)
    >>> is_bounded(evaluate(torch.nonzero, (x,), {}))
    True
    >>> is_bounded(evaluate(torch.repeat_interleave, (x,), {}))
    False
    """
    made = [*leaves(prediction.result), *(after for _, after in prediction.changed)]
    return all(type(one) is not Made or one.most is not None for one in made)


def _base(
    ones: Outcome, larger: Sequence[Outcome], inputs: Sequence[torch.Tensor]
) -> Outcome | None:
    """What the command is in most forms with large sizes, or else in the one with sizes of 1; None
    if it runs for too few."""
    complete = [one for one in larger if one.is_complete]
    if complete and len(complete) >= min(_ENOUGH, len(larger)):
        kinds = [_kind(one, inputs) for one in complete]
        return complete[kinds.index(max(kinds, key=kinds.count))]
    return ones if ones.is_complete else None


def _of_kind(
    base: Outcome, outcomes: Iterable[Outcome], inputs: Sequence[torch.Tensor]
) -> list[Outcome]:
    """The complete outcomes of the same kind as one."""
    kind = _kind(base, inputs)
    return [one for one in outcomes if one.is_complete and _kind(one, inputs) == kind]


def _shows_views(outcome: Outcome, inputs: Sequence[torch.Tensor]) -> bool:
    """Whether a graph is written to a tensor that may have views, or to one of them."""
    return any(made.reaches and is_viewed(inputs[place]) for place, made in outcome.changed)


def _kind(outcome: Outcome, inputs: Sequence[torch.Tensor]) -> Hashable:
    """What of an outcome everybody is told whatever the sizes are."""
    result = outcome.result
    found = tuple([_look(leaf, inputs) for leaf in leaves(result)])
    after = tuple([(place, _look(made, inputs)) for place, made in outcome.changed])
    return type(result), found, after, outcome.writes


def _look(leaf: Any, inputs: Sequence[torch.Tensor]) -> Hashable:
    if type(leaf) is Made:
        return len(leaf.shape), leaf.dtype, leaf.requires_grad, leaf.reaches
    if type(leaf) is Given:
        tensor = inputs[leaf.place]
        reaches = (leaf.place,) if tensor.requires_grad else ()
        return tensor.ndim, tensor.dtype, tensor.requires_grad, reaches
    return leaf is None


def _joined(
    base: Outcome,
    possible: Sequence[Outcome],
    larger: Sequence[Outcome],
    inputs: Sequence[torch.Tensor],
) -> Outcome:
    """One prediction of outcomes of one kind: of those with sizes that there may be, and larger."""
    every = [base, *possible, *larger]
    count = len(possible)
    bounded = all(sizes_at_most(leaf) is not None for leaf in inputs)

    def join(place: int, among: Callable[[Outcome], Sequence[Any]]) -> list[Any]:
        return [among(one)[place] for one in every]

    results = iter(range(len(_results_of(base))))
    after = [
        (place, _Joined(join(at, _after_of), count, inputs, bounded).after(place))
        for at, (place, _) in enumerate(base.changed)
    ]
    return changed(
        base,
        verdict=Verdict.RESIZES,
        result=replace(
            base.result,
            lambda leaf: _Joined(join(next(results), _results_of), count, inputs, bounded).result(
                base.writes
            ),
        ),
        changed=tuple(after),
        draws=any(one.draws for one in every),
        grown=frozenset().union(*(one.grown for one in every)),
    )


def _results_of(outcome: Outcome) -> list[Any]:
    return [*leaves(outcome.result)]


def _after_of(outcome: Outcome) -> list[Made]:
    return [made for _, made in outcome.changed]


@dataclass(frozen=True, slots=True)
class _Joined:
    """One result in all forms, after the first of which are ``count`` with sizes that there may
    be."""

    found: Sequence[Any]
    count: int
    inputs: Sequence[torch.Tensor]
    bounded: bool

    def result(self, writes: Sequence[int]) -> Any:
        """A result with the sizes that are the same in all forms.

        It lies in memory of its own if it does so in one of the forms, or in memory of which the
        size is public.
        """
        first = next((one for one in self.found if type(one) is Made), None)
        if first is None:
            given = self.found[0]
            if given is None or given.place in writes or hides_shape(self.inputs[given.place]):
                return given
            first = _like(self.inputs[given.place], given.place)
        if self._is_apart():
            return self._apart(first)
        shape = self._shape()
        most, unknown = self._most(shape), (ANY,) * len(shape)
        return changed(first, shape=shape, stride=unknown, nbytes=-1, most=most)

    def after(self, place: int) -> Made:
        """What an input is afterwards, by the same rules."""
        shape = self._shape()
        made: Made = self.found[0]
        hidden = hides_shape(self.inputs[place]) or (made.shares and self._hides(made.within))
        if ANY not in shape and not hidden:
            return made
        most, unknown = self._most(shape), (ANY,) * len(shape)
        return changed(made, shape=shape, stride=unknown, nbytes=-1, most=most)

    def _hides(self, place: int) -> bool:
        return hides_shape(self.inputs[place])

    def _is_apart(self) -> bool:
        """Whether a result may lie in memory of its own, or in that of a public size."""
        made = (one for one in self.found if type(one) is Made)
        given = (one for one in self.found if type(one) is Given)
        apart = any(not one.shares or not self._hides(one.within) for one in made)
        return apart or any(not self._hides(one.place) for one in given)

    def _apart(self, first: Made) -> Made:
        """A result in memory of its own, of which all is known if none of its sizes is private."""
        shape = self._shape()
        if ANY in shape:
            most, unknown = self._most(shape), (ANY,) * len(shape)
            return changed(first, shape=shape, stride=unknown, nbytes=-1, within=-1, most=most)
        own = next((one for one in self.found if type(one) is Made and not one.shares), first)
        whole = prod(shape) * first.dtype.itemsize
        stride = own.stride
        if ANY in stride or size_of_memory(shape, stride, first.dtype.itemsize) != whole:
            stride = torch.empty(shape, device="meta").stride()
        return changed(first, shape=shape, stride=stride, nbytes=whole, within=-1, most=shape)

    def _shapes(self) -> Iterator[tuple[int, ...]]:
        for one in self.found:
            yield one.shape if type(one) is Made else public_shape(self.inputs[one.place])

    def _shape(self) -> tuple[int, ...]:
        """The sizes that are the same in all forms."""
        return tuple(
            its[0] if len({*its}) == 1 else ANY for its in zip(*self._shapes(), strict=True)
        )

    def _most(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """The largest of each of the sizes that there may be; None if one has no bound."""
        if ANY not in shape:
            return shape
        possible = self.found[1 : self.count + 1]
        found = [
            one.most if type(one) is Made else sizes_at_most(self.inputs[one.place])
            for one in possible
        ]
        if not self.bounded or None in found:
            return None
        return tuple(map(max, zip(*cast(Any, found), strict=True)))


def _like(tensor: torch.Tensor, place: int) -> Made:
    """A copy of an input of public shape."""
    shape = tuple(tensor.shape)
    stride = torch.empty(shape, device="meta").stride()
    kind = tensor.dtype, tensor.device, tensor.requires_grad
    reaches = (place,) if tensor.requires_grad else ()
    return Made(shape, stride, *kind, reaches, -1, tensor.numel() * tensor.itemsize, shape)
