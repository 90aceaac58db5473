"""What a call returns, as far as its op and arguments tell: one tensor, or several in a container.

A caller that knows this chooses the ids of the results and goes on; only where it cannot be known
(a Python value, a number of tensors that follows from a shape) it has to wait for the reply.  For
most ops the flags say it (``ONE``, ``TENSOR``), for others the column ``returns`` names a rule of
this module.

The worker checks the number of tensors, because it may run another version of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from syft.ops.nested import Arguments, Keywords
from syft.ops.table import BINARY, COLUMNS, FLAGS, ONE, ONE_UNLESS_INPLACE, TENSOR

MOST: Final = 1 << 16
"""The most tensors whose ids a caller chooses; a call that returns more is waited for."""


@dataclass(frozen=True, slots=True)
class Returns:
    """What a call returns.

    ``present`` says of each item whether it is a tensor (otherwise it is None).  ``container``
    makes of the items what is returned; None stands for one tensor without a container.

    >>> Returns(tuple, (True, False)).count
    1
    """

    container: Callable[[Sequence[Any]], Any] | None
    present: tuple[bool, ...]

    @property
    def count(self) -> int:
        """How many tensors come back."""
        return sum(self.present)

    def build(self, tensors: Sequence[Any]) -> Any:
        """The value of the call, from its tensors in order.

        >>> Returns(tuple, (True, False, True)).build(["x", "y"])
        ('x', None, 'y')
        """
        if self.container is None:
            return tensors[0]
        rest = iter(tensors)
        return self.container([next(rest) if here else None for here in self.present])


Rule = Callable[[Arguments, Keywords], Returns | None]

ONE_TENSOR: Final = Returns(None, (True,))
"""What most operations return."""

_SCALARS = (int, float, complex, torch.Tensor)
_CERTAIN = ONE | TENSOR | ONE_UNLESS_INPLACE


def returns(op: int, args: Arguments, kwargs: Keywords) -> Returns | None:
    """What a call of an op returns; None if the caller cannot know.

    It is asked for calls that mutate nothing: without ``out=``, and not with a true ``inplace=``.

    >>> from syft.ops.table import BY_NAME
    >>> x = torch.ones(3)
    >>> returns(BY_NAME["torch.Tensor.sort"], (x,), {}).container
    <class 'torch.return_types.sort'>
    >>> returns(BY_NAME["torch.Tensor.max"], (x,), {}) is ONE_TENSOR
    True
    >>> returns(BY_NAME["torch.Tensor.tolist"], (x,), {})
    """
    flags = FLAGS[op]
    if flags & _CERTAIN:
        return ONE_TENSOR
    if flags & BINARY:
        return ONE_TENSOR if len(args) == 2 and isinstance(args[1], _SCALARS) else None
    rule = _RULES.get(op)
    found = None if rule is None else rule(args, kwargs)
    return None if found is None or len(found.present) > MOST else found


# -------------------------------------------------------------------- the same for every call


def _always(what: Returns | None) -> Rule:
    return lambda args, kwargs: what


def _tuple(count: int) -> Returns:
    return Returns(tuple, (True,) * count)


def _named(name: str) -> Returns | None:
    """What torch returns under its own name; None, and the caller waits, if this torch has none."""
    kind = getattr(torch.return_types, name, None)
    return None if kind is None else Returns(kind, (True,) * kind.n_sequence_fields)


# ---------------------------------------------------------------------- by what the call is given


def _given(args: Arguments, kwargs: Keywords, place: int, name: str, default: Any = None) -> Any:
    """The argument of that place or name."""
    return args[place] if len(args) > place else kwargs.get(name, default)


def _reduced(name: str) -> Rule:
    """Without ``dim`` one tensor; with it values and indices; between two tensors the larger."""
    along = _named(name)

    def rule(args: Arguments, kwargs: Keywords) -> Returns | None:
        other = _given(args, kwargs, 1, "dim")
        return ONE_TENSOR if other is None or isinstance(other, torch.Tensor) else along

    return rule


def _where(args: Arguments, kwargs: Keywords) -> Returns | None:
    return ONE_TENSOR if len(args) + len(kwargs) == 3 else None  # alone: one index a dimension


def _nonzero(args: Arguments, kwargs: Keywords) -> Returns | None:
    """With ``as_tuple`` one index a dimension."""
    return None if kwargs.get("as_tuple") else ONE_TENSOR


def _cut(pieces: Callable[[Any], int | None], name: str) -> Rule:
    """As many as ``pieces`` says of the second argument."""

    def rule(args: Arguments, kwargs: Keywords) -> Returns | None:
        count = pieces(_given(args, kwargs, 1, name))
        return None if count is None else _tuple(count)

    return rule


def _by_sizes(sizes: Any) -> int | None:
    return len(sizes) if isinstance(sizes, list | tuple) else None


def _by_places(places: Any) -> int | None:
    if isinstance(places, list | tuple):
        return len(places) + 1
    return min(places, MOST + 1) if type(places) is int and places > 0 else None


def _one_each(args: Arguments, kwargs: Keywords) -> Returns | None:
    """One tensor for one; a tuple for several, or for a list."""
    if len(args) == 1 and isinstance(args[0], torch.Tensor):
        return ONE_TENSOR
    return _for_each(args, kwargs)


def _for_each(args: Arguments, kwargs: Keywords) -> Returns | None:
    """A tuple of as many tensors as are given, by themselves or in a list."""
    given = args[0] if len(args) == 1 and isinstance(args[0], list | tuple) else args
    return _tuple(len(given)) if given and _are_tensors(given) else None


def _are_tensors(values: Sequence[Any]) -> bool:
    return all(isinstance(value, torch.Tensor) for value in values)


def _quantized(args: Arguments, kwargs: Keywords) -> Returns | None:
    return ONE_TENSOR if args and isinstance(args[0], torch.Tensor) else None


def _foreach(args: Arguments, kwargs: Keywords) -> Returns | None:
    """As many as the first list has."""
    for given in (*args, *kwargs.values()):
        if isinstance(given, list | tuple):
            return _tuple(len(given))
    return None


def _flagged(place: int) -> Rule:
    """Indices come along if ``return_indices`` says so."""

    def rule(args: Arguments, kwargs: Keywords) -> Returns:
        return _tuple(2) if _given(args, kwargs, place, "return_indices", False) else ONE_TENSOR

    return rule


def _unique(first: int) -> Rule:
    """``return_inverse`` and ``return_counts`` each add a tensor."""

    def rule(args: Arguments, kwargs: Keywords) -> Returns:
        more = sum(
            bool(_given(args, kwargs, first + index, name, False))
            for index, name in enumerate(("return_inverse", "return_counts"))
        )
        return _tuple(1 + more) if more else ONE_TENSOR

    return rule


def _attention(args: Arguments, kwargs: Keywords) -> Returns:
    """The weights are None unless they are needed."""
    return Returns(tuple, (True, bool(_given(args, kwargs, 15, "need_weights", True))))


def _typed(args: Arguments, kwargs: Keywords) -> Returns | None:
    """Without a type, ``x.type()`` tells it as a text."""
    return None if _given(args, kwargs, 1, "dtype") is None else ONE_TENSOR


def _gradients(args: Arguments, kwargs: Keywords) -> Returns | None:
    """One for each input, unless some may be unused: those are None."""
    inputs = _given(args, kwargs, 1, "inputs")
    unused = _given(args, kwargs, 6, "allow_unused", False)
    if unused and not _given(args, kwargs, 8, "materialize_grads", False):
        return None
    return _tuple(1 if isinstance(inputs, torch.Tensor) else len(inputs))


_MAKERS: Final[dict[str, Callable[[str], Rule]]] = {
    "tuple": lambda count: _always(_tuple(int(count))),
    "named": lambda name: _always(_named(name)),
    "reduced": _reduced,
    "sizes": lambda name: _cut(_by_sizes, name),
    "places": lambda name: _cut(_by_places, name),
    "flagged": lambda place: _flagged(int(place)),
    "unique": lambda first: _unique(int(first)),
    "where": lambda _: _where,
    "nonzero": lambda _: _nonzero,
    "one_each": lambda _: _one_each,
    "each": lambda _: _for_each,
    "of_tensor": lambda _: _quantized,
    "lists": lambda _: _foreach,
    "attention": lambda _: _attention,
    "typed": lambda _: _typed,
    "gradients": lambda _: _gradients,
}
"""What makes a rule of what the column ``returns`` says after its first word, by this word."""


def _rule(value: str) -> Rule:
    word, _, argument = value.partition(",")
    return _MAKERS[word](argument)


_RULES: Final = {op: _rule(value) for op, value in COLUMNS["returns"].items()}
