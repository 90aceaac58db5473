"""What somebody who may not see a value may ask about it: a list, and everything else is refused.

A question about a tensor (its shape, its dtype) has an answer that follows from the program, as
long as the prediction fixes it: a command that fails in secret leaves results of the same shape,
strides, dtype, device and graph as one that succeeds.  It does not leave the same version counter,
node of the graph, place in memory or names.  So the op table says for each question which
properties its answer follows from (``asks=``), and each property has a row here: whether the
prediction fixes it, and why.  A question is answered if all its properties are fixed; one without
properties, or with one that has no row, is refused.

Of a value whose shape is private as well, only what follows from its dtype, device and layout is
told, and the number of its dimensions if it has a public form
(:mod:`~syft.workers.execution.public_sizes`).

Tags and descriptions are not asked of torch: their owner wrote them in order to be found, so they
are shown to everybody (:mod:`syft.workers.handlers.objects`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any, Final

import torch

from syft.ops.nested import Function, every_tensor, leaves
from syft.ops.table import (
    FLAGS,
    FUNCTIONS,
    METADATA,
    NUMBERS,
    OF_TWO,
    PROGRAM_FUNCTIONS,
    asked_by,
    name_of,
)
from syft.workers.execution.public_sizes import extent_of, hides_shape
from syft.workers.labels.guards import Guard


class Basis(enum.Enum):
    """What the answer to a question follows from."""

    KIND = "dtype, device and layout"
    RANK = "the number of dimensions"
    FORM = "shape and strides"
    GRAPH = "the graph, as far as a prediction knows it"
    SECRET = "what no prediction knows"


PROPERTIES: Final[dict[str, tuple[Basis, str]]] = {
    "dtype": (Basis.KIND, "the prediction fixes it"),
    "device": (Basis.KIND, "a result is where its inputs are"),
    "layout": (Basis.KIND, "the prediction fixes it"),
    "shape": (Basis.FORM, "the prediction fixes it"),
    "dim": (Basis.RANK, "the length of the shape; where that is private, of its public form"),
    "strides": (Basis.FORM, "results are brought to the strides of the prediction"),
    "is_contiguous": (Basis.FORM, "shape and strides"),
    "requires_grad": (
        Basis.GRAPH,
        "the prediction fixes it, and a result that requires grad has a graph, sealed or not",
    ),
    "gradient": (Basis.GRAPH, "it is of the kind that the requested passes leave"),
    "version": (Basis.SECRET, "it counts writes, also those of a command that failed in secret"),
    "node": (Basis.SECRET, "a sealed result has another node in its graph"),
    "names": (Basis.SECRET, "results that stand for a failure have no names"),
    "storage_offset": (Basis.SECRET, "where values lie in memory is nobody's business"),
    "memory": (Basis.SECRET, "where values lie in memory is nobody's business"),
    "lazy": (Basis.SECRET, "whether a kernel left a conjugation or a sign is not predicted"),
    "format": (Basis.SECRET, "there are no predictions of sparse and quantized tensors"),
    "machine": (Basis.SECRET, "it asks about the machine of the worker"),
    "unused": (Basis.SECRET, "nothing needs it"),
}
"""The properties that the answers to questions follow from (``asks=`` in the op table): what is
known of each, and why it is public or not."""

_ORDER: Final = (*Basis,)
_NO_ROW: Final = Basis.SECRET, ""


def _least_known(properties: Iterable[str]) -> Basis:
    bases = [PROPERTIES.get(name, _NO_ROW)[0] for name in properties]
    return max(bases, key=_ORDER.index, default=Basis.SECRET)


_FACTS: Final[dict[Function, Basis]] = {
    function: _least_known(asked_by(number))
    for number, function in (*enumerate(FUNCTIONS), *PROGRAM_FUNCTIONS.items())
    if function is not None and FLAGS[number] & METADATA
}
TOLD: Final[dict[str, Basis]] = {
    name_of(function).removesuffix(".__get__").rpartition(".")[2]: basis
    for function, basis in _FACTS.items()
    if basis is not Basis.SECRET
}
"""What the answers follow from that are given, by the last part of the name of the question."""


def is_told(function: Function, guard: Guard) -> bool:
    """Whether everybody may know what this function answers about a value with this guard.

    Only questions are: a function that computes something is not.

    >>> private = Guard(frozenset())
    >>> is_told(torch.Tensor.dim, private), is_told(torch.Tensor.is_set_to, private)
    (True, False)
    >>> is_told(torch.Tensor.dim, Guard(frozenset(), shape_hidden=True))
    False
    """
    return _is_known(_FACTS.get(function, Basis.SECRET), guard)


def is_answer(
    function: Function, args: Sequence[Any], kwargs: dict[str, Any], guard: Guard
) -> bool:
    """Whether everybody may know what a call answers of which operands have this guard.

    >>> private = Guard(frozenset())
    >>> is_answer(torch.Tensor.dim, [torch.ones(2)], {}, private)
    True
    """
    told = is_told(function, guard) or _asks_rank(function, args, kwargs)
    return told and asks_only(function, args, kwargs)


def _asks_rank(function: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a question is how many dimensions a tensor of private sizes has, which is public."""
    if _FACTS.get(function) is not Basis.RANK:
        return False
    given = every_tensor(args, kwargs)
    return any(map(hides_shape, given)) and all(extent_of(one) is not None for one in given)


def in_public_form(guard: Guard) -> bool:
    """Whether everybody may know what is told of an object without asking torch: its summary, that
    it is not here, and why.  It leaves out what is private.

    >>> in_public_form(Guard(frozenset()))
    True
    """
    return True


def tells(name: str, guard: Guard) -> bool:
    """The same by the name of a property: plans fix properties of their inputs by name.

    >>> hidden = Guard(frozenset(), shape_hidden=True)
    >>> tells("dtype", hidden), tells("is_contiguous", hidden), tells("version", hidden)
    (True, False, False)
    """
    return _is_known(_least_known((name,)), guard)


def _is_known(follows_from: Basis, guard: Guard) -> bool:
    if follows_from is Basis.SECRET:
        return False
    return follows_from is Basis.KIND or not guard.shape_hidden


def asks_only(function: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether no tensor stands where a question takes a number, whose value the answer would tell.

    >>> x, private = torch.ones(2, 3), torch.tensor(1)
    >>> asks_only(torch.Tensor.size, (x, 1), {}), asks_only(torch.Tensor.size, (x, private), {})
    (True, False)
    """
    if NUMBERS.get(function) in OF_TWO:
        return True
    others = {name: value for name, value in kwargs.items() if args or name != "input"}
    return not any(isinstance(leaf, torch.Tensor) for leaf in leaves((args[1:], others)))
