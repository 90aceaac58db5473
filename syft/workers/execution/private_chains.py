"""Running a command on private chains for a user who may not see their values.

There are no forecasts through links: their rules look at values, and fake tensors have none.  So
the command is tried first, on chains of the same kinds over ones.  The trial depends on nothing
private, so what it comes to is public: if it fails, that is told, and the command does not run.
Otherwise the command runs, and its results look like those of the trial.  If it fails, or makes
anything else, the results of the trial stand for its own, and their guard is sealed.

A kind of link says what its twin over ones is (:meth:`~syft.chain.link.Link.with_ones`).  Commands
on one that has none are refused, be it private or not: a pointer to another worker has none, where
the trial would leave results.  Public tensors take part as copies, so that a trial writes to
nothing; a command that would write to one of them is refused.

The price: such a command runs twice, and a link that logs does so twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Protocol, cast

import torch

from syft.chain.wrapper import Wrapper, copy_with_graph, twin_with_ones
from syft.exceptions import PermissionDenied, SyftError
from syft.ops.nested import Function, leaves, replace
from syft.ops.outcome import size_of_memory
from syft.workers.execution.foreseen import Unforeseen, call_drawing, fitted
from syft.workers.execution.foreseen_failures import foreseen_failure
from syft.workers.execution.plain_tensors import is_plain, plain_copy, reaching
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.labels.reached_graph import ReachedGraph, reached_graph
from syft.workers.labels.walk import elements_of, recorded_of

_PUBLIC_ERRORS: Final = (RuntimeError, ValueError, TypeError, IndexError)


class NoTwin(Exception):
    """An operand has no twin on which an operation could be tried."""


class Overwrites(Exception):
    """An operation writes private values to a public operand."""


class Trial:
    """An operation tried on twins of its operands.

    Raises :class:`NoTwin` if one of them has none, :class:`Overwrites`, and the error of an
    operation that fails on the twins, marked as one that everybody may see.

    >>> from syft.workers.labels.guards import Guard
    >>> from syft.workers.labels.memory_labels import protect
    >>> x = sy.LoggingTensor().on(torch.tensor([7.0])); protect(x, Guard(frozenset()))
    >>> Trial(torch.add, (x, 1), {}).result
    (Wrapper)>LoggingTensor>tensor([2.])
    """

    def __init__(self, function: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self._twins: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        """The operands with their twins, by the ``id()`` of the operand."""
        args, kwargs = replace((tuple(args), kwargs), self._twin)
        public = [twin for one, twin in self._twins.values() if full_guard_of(one) is None]
        before = [*map(_version, public)]
        try:
            self.result = call_drawing(function, args, kwargs)
        except SyftError as error:
            error.__dict__["foreseen"] = True
            raise
        except Exception as error:
            kind = type(error) if type(error) in _PUBLIC_ERRORS else RuntimeError
            text = f"{error} (tried with ones in the place of private values)"
            raise foreseen_failure(kind, text) from None
        if [*map(_version, public)] != before:
            raise Overwrites
        self._given = {
            id(twin): operand
            for operand, twin in self._twins.values()
            if full_guard_of(operand) is not None
        }

    def _twin(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        found = self._twins.get(id(leaf))
        if found is not None:
            return found[1]
        if type(leaf) is Wrapper or full_guard_of(leaf) is not None:
            twin = twin_with_ones(leaf)
        else:
            twin = copy_with_graph(leaf)
        if twin is None:
            raise NoTwin
        self._twins[id(leaf)] = leaf, twin
        return twin

    def run(self, call: Callable[[], Any], written: Iterable[torch.Tensor], guard: Guard) -> Any:
        """What ``call`` returns, which runs the operation on its own operands and guards what it
        makes, if that looks like the result of the trial; what stands for it, sealed, if not.

        ``written`` are the operands to which the operation may write.  If ``guard``, that of the
        results, hides shapes, these need not be alike.
        """
        try:
            operands = [operand for operand, _ in self._twins.values()]  # they say on which devices
            result = call_drawing(lambda *given: call(), operands, {})
            return fitted(result, self.result, partial(self._fit, guard.shape_hidden))
        except Exception as error:
            sealed = guard.sealed(error)
        for operand in written:
            self._bring(operand)
            protect(operand, sealed)
        result = replace(self.result, self._stand_in)
        for leaf in leaves(result):
            if isinstance(leaf, torch.Tensor):
                protect(leaf, sealed)
        return result

    def _fit(self, hidden: bool, found: Any, expected: Any) -> Any:
        given = self._given.get(id(expected))
        if given is not None:
            if found is not given:
                raise Unforeseen("another tensor instead of an operand")
        elif not _are_alike(found, expected, hidden):
            raise Unforeseen("a result of another kind or shape")
        return found if found is given else _plainly(found)

    def _stand_in(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        given = self._given.get(id(leaf))
        return self._made(leaf) if given is None else given

    def _made(self, leaf: torch.Tensor) -> torch.Tensor:
        """A result of the trial: a leaf, or one with a graph that leads to operands."""
        if type(leaf) is Wrapper and leaf.child.at_function_level:
            link: Any = leaf.child
            return cast(torch.Tensor, link.like().on(self._made(link.tensor)))
        if leaf.grad_fn is None:
            return cast(torch.Tensor, _plainly(leaf))
        return reaching(_plainly(leaf.detach()), self._reached_by(leaf))

    def _reached_by(self, made: torch.Tensor) -> list[torch.Tensor]:
        """The operands to which the graph of a tensor of the trial leads, but for that which it is
        the twin of."""
        graph = reached_graph([made])
        pairs = ((recorded_of(one), recorded_of(twin)) for one, twin in self._twins.values())
        others = [(one, twin) for one, twin in pairs if one is not None and twin is not made]
        return [one for one, twin in others if one.requires_grad and _reaches(graph, twin)]

    def _bring(self, operand: torch.Tensor) -> None:
        """Give an operand the shape and the graph that the trial has given to its twin."""
        twin = self._twins[id(operand)][1]
        if not _are_alike(operand, twin, graphs=False):
            operand.data = twin.detach()
        made, recorded = recorded_of(twin), recorded_of(operand)
        reached = [] if made is None or recorded is None else self._reached_by(made)
        if recorded is not None and reached:
            reaching(recorded, reached)


class Converting(Protocol):
    """A function that makes a tensor of one, and its name."""

    @property
    def name(self) -> str:
        """What it is called in errors."""

    def __call__(self, tensor: torch.Tensor, *args: Any) -> torch.Tensor:
        """The tensor that it makes."""


def converted(
    conversion: Converting, value: torch.Tensor, args: Sequence[Any], worker: str, user: str | None
) -> torch.Tensor:
    """The guarded result; for one who may not see the values that of a trial, sealed, if it fails.

    Raises only what would be raised whatever the values are, or for one who may see them.
    """
    guard = full_guard_of(value)

    def call() -> torch.Tensor:
        result = conversion(value, *args)
        protect(result, guard)
        return result

    if guard is None or guard.admits(user):
        return call()
    try:
        trial = Trial(conversion, (value, *args), {})
    except NoTwin:
        what = f"{conversion.name} of what cannot be tried without the values"
        raise PermissionDenied(what, worker, user) from None
    return cast(torch.Tensor, trial.run(call, (), guard))


def _reaches(graph: ReachedGraph, twin: torch.Tensor | None) -> bool:
    return twin is not None and graph.reaches(twin)


def _version(tensor: torch.Tensor) -> Any:
    """What changes when a tensor is written: the version of its elements, or these themselves."""
    elements = elements_of(tensor)
    return id(elements), None if elements is None else elements._version


def _are_alike(one: Any, other: Any, hidden: bool = False, graphs: bool = True) -> bool:
    """Whether two results are of the same kinds, shape and dtype; if shapes are hidden, they need
    the same number of dimensions only.  With ``graphs`` both or none have a graph, too."""
    if type(one) is not type(other) or not isinstance(one, torch.Tensor):
        return one is other
    if type(one) is Wrapper and type(one.child) is not type(other.child):
        return False
    pairs = (one, other), (elements_of(one), elements_of(other))
    return all(
        _form(mine, hidden, graphs) == _form(theirs, hidden, graphs) for mine, theirs in pairs
    )


def _form(tensor: torch.Tensor | None, hidden: bool, graphs: bool) -> Any:
    """What may be asked about a tensor (:mod:`syft.workers.execution.public_facts`)."""
    if tensor is None:
        return None
    extent = tensor.ndim if hidden else tensor.shape
    graph = graphs and (tensor.requires_grad, tensor.is_leaf)
    return extent, tensor.dtype, tensor.device, tensor.layout, graph


def _plainly(result: Any) -> Any:
    """A result in one form, also one behind a link that logs, and no chain on a grid; see
    :mod:`syft.workers.execution.plain_tensors`."""
    if type(result) is Wrapper and result.child.at_function_level:
        link: Any = result.child
        inner = _plainly(link.tensor)
        return result if inner is link.tensor else link.like().on(inner)
    if type(result) is Wrapper or not isinstance(result, torch.Tensor):
        return result
    strides = torch.empty_like(result.detach(), device="meta").stride()
    nbytes = size_of_memory(result.shape, strides, result.itemsize)
    if result.stride() == strides and is_plain(result, nbytes):
        return result
    copy = plain_copy(result, strides)
    protect(copy, full_guard_of(result))
    return copy
