"""Errors that a command raises whatever the values are, so that everybody may see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from syft.exceptions import PermissionDenied
from syft.ops.forms import FORMS
from syft.ops.nested import leaves
from syft.ops.table import name_of
from syft.workers.labels.memory_labels import combined


def predicted_failure(kind: type[Exception], *args: str) -> Exception:
    """An error that a command raises whatever the values are, so that everybody may see it.

    >>> is_predicted(predicted_failure(ValueError, "a wrong shape")), is_predicted(ValueError())
    (True, False)
    """
    error = kind(*args)
    error.__dict__["predicted"] = True
    return error


def is_predicted(error: Exception) -> bool:
    """Whether an error was made by :func:`predicted_failure`.

    >>> is_predicted(IndexError("1234 is out of range"))
    False
    """
    return "predicted" in error.__dict__


def refusal(
    what: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    worker: str,
    user: str | None,
) -> PermissionDenied:
    """The refusal of a call on private values: which one, for which arguments, and what to do.

    It says nothing that follows from values: which arguments are private, everybody knows.

    >>> from syft.workers.labels.guards import Guard
    >>> from syft.workers.labels.memory_labels import protect
    >>> x = torch.ones(2); protect(x, Guard(frozenset()))
    >>> error = refusal("a question", torch.add, [1, x], {}, "bob", "eve")
    >>> print(error)  # doctest: +NORMALIZE_WHITESPACE
    torch.add of private argument 1, a question: this value on 'bob' is private, and user 'eve' may
    not read it. Be admitted, with as_user(...) or a token, or ask the owner.
    >>> str(refusal("a question", torch.add, [], {}, "bob", "eve")).startswith("torch.add, a")
    True
    """
    given = (*enumerate(args), *kwargs.items())
    private = [str(place) for place, value in given if combined(leaves(value)) is not None]
    form = FORMS.get(function)
    way = _WAYS.get(what) if form is None else f"it needs {form.needs}"
    ways = (*([way] if way else ()), _ADMITTED)
    of = f" of private argument {', '.join(private)}" if private else ""
    action, instead = f"{name_of(function)}{of}, {what}", "; or ".join(ways)
    return PermissionDenied(action, worker, user, instead=instead)


_ADMITTED: Final = "be admitted, with as_user(...) or a token, or ask the owner"
READS: Final = "an operation that reads its value"
UNTOLD: Final = "an operation whose effects torch cannot tell without the values"
UNTOLD_SIZES: Final = "an operation whose effects cannot be told without the values of its sizes"
NO_BOUND: Final = "an operation whose result has a private size without a public bound"
PRIVATE_PASS: Final = "a backward pass over a private shape"
SPLIT_SIZES: Final = "an operation that tells its size"
OTHER_LAYOUT: Final = "an operation on a tensor of another layout"
CHAIN: Final = "an operation on a chain (fixed precision, or a link that logs)"
QUESTION: Final = "a question without a public answer"
_MASK: Final = "use a mask, as with torch.where, instead of a part of private size"
_WAYS: Final = {
    READS: "do not branch on it, as torch.optim.LBFGS does on the loss (torch.optim.SGD does not)",
    UNTOLD: "compute the same with operations that run, listed in docs/strangers.md",
    **dict.fromkeys((UNTOLD_SIZES, PRIVATE_PASS, SPLIT_SIZES), _MASK),
    NO_BOUND: "give a size, as with minlength= or output_size=",
    OTHER_LAYOUT: "use a dense one, which its owner makes with to_dense()",
    CHAIN: "compute on plain tensors, before fix_precision() or after float_precision()",
    QUESTION: "ask what docs/strangers.md lists as answered",
}
"""What a caller who may not see the values may write instead, by what is refused."""
