"""Guards: the users who may read a value, recorded on the value itself.

A guard is an attribute of memory, and not an entry in a list of ids or on a tensor object.  So all
tensors over the same memory (a view, ``x.data``, the tensor that a chain wraps) are as private, no
matter how and when they are made.  There is one such label, in the owner's program and at a worker,
and one function that reads it: :func:`full_guard_of`.  What is handed over with a tensor (its
gradient) has memory of its own, and :func:`travelling_guard_of` is asked for both.

A result of an operation gets the meet of its inputs' guards: the users whom all of them admit.  A
gradient gets the guard of its loss.  Reading is denied by default: only the users in a guard may
see values, value-dependent shapes and error texts.

A guard does not hide shapes and dtypes that follow from the program alone.  If a command fails
because of private values, that it failed is private too: its results exist nevertheless, and their
guard is *sealed* with the error, which whoever may read the values gets in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from operator import methodcaller
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper
from syft.ops.nested import EXACT_TENSOR_TYPES
from syft.program.recording.environment.snapshot import LABELS
from syft.torch_private import COO_PARTS
from syft.workers.execution.holders import Holder

GUARD: Final = "_guard"
"""The attribute of memory that holds its guard, and of a tensor that has none in this process."""
_NOBODY: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Guard:
    """The users who may read a value, whether its shape depends on private values, and the error
    that stands for the value, if a command failed to make it.

    ``destinations`` are the workers to which it may go on behalf of anybody.  ``owners`` are those
    who may let others read it: of a value that was computed, those to whom all inputs belong.  None
    stands for whoever sends it first, or the owner of the worker that holds it.  ``providers`` are
    the workers that may deal for shares of it, whoever shares it; None stands for all.

    >>> Guard(frozenset({"ann"})).admits("ann"), Guard(frozenset({"ann"})).admits(None)
    (True, False)
    """

    users: frozenset[str]
    shape_hidden: bool = False
    error: Exception | None = field(default=None, compare=False)
    destinations: frozenset[str] = frozenset()
    owners: frozenset[str] | None = None
    providers: frozenset[str] | None = None

    def admits(self, user: str | None) -> bool:
        """Whether ``user`` may read the value; False for a caller without a user."""
        return user is not None and user in self.users

    def meet(self, other: Guard) -> Guard:
        """The guard of a result computed from two guarded values: the users who may read both.

        >>> Guard(frozenset({"ann", "bea"})).meet(Guard(frozenset({"bea"}), True))
        Guard(users=frozenset({'bea'}), shape_hidden=True, ...)
        """
        if other is self:
            return self
        hidden = self.shape_hidden or other.shape_hidden
        owners = self.owners
        if owners != other.owners:
            owners = (owners or _NOBODY) & (other.owners or _NOBODY)
        destinations = self.destinations & other.destinations
        error = self.error or other.error
        providers = self.providers
        if providers != other.providers and other.providers is not None:
            providers = other.providers if providers is None else providers & other.providers
        return Guard(self.users & other.users, hidden, error, destinations, owners, providers)

    def sealed(self, error: Exception) -> Guard:
        """The guard of what could not be computed because of this error.

        >>> Guard(frozenset()).sealed(ValueError("7 is too large")).error
        ValueError('7 is too large')
        """
        return changed(self, error=self.error or without_frames(error))

    def check_open(self) -> None:
        """Raise the error of what could not be computed, for a user whom the guard admits."""
        if self.error is not None:
            raise without_frames(self.error)


def without_frames(error: Exception) -> Exception:
    """The same error without its traceback and causes, whose frames would keep tensors alive.

    >>> without_frames(IndexError("7 is out of range"))
    IndexError('7 is out of range')
    """
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    return copy


def full_guard_of(value: Any) -> Guard | None:
    """The guard of a tensor, or of all tensors in a holder; None if everyone may read it.

    It is noted on the memory in which a tensor lies, also on that of what a chain wraps, so it is
    that of every other tensor over the same memory.  Only a tensor without memory in this process
    has the guard itself, and what stands for a view that could not be made (:func:`seal_view`).

    >>> x = torch.ones(2); protect(x, Guard(frozenset({"ann"})))
    >>> full_guard_of(x[:1]), full_guard_of(x * 1)
    (Guard(users=frozenset({'ann'}), ...), None)
    """
    if type(value) in EXACT_TENSOR_TYPES and value.layout is torch.strided:
        guard: Guard | None = value.untyped_storage().__dict__.get(GUARD)
        own: Guard | None = value.__dict__.get(GUARD)
        return guard if own is None else meet_guards(guard, own)
    guard = None
    for place in _places(value):
        guard = meet_guards(guard, place.__dict__.get(GUARD))
    return guard


def protect(value: Any, guard: Guard | None) -> None:
    """Add a guard to a tensor, or to all tensors of a holder: to their memory.

    The result is the meet with the guard that is there already.  None changes nothing.
    """
    if guard is not None:
        for place in _places(value):
            place.__dict__[GUARD] = meet_guards(place.__dict__.get(GUARD), guard)


def seal_view(view: torch.Tensor, guard: Guard) -> None:
    """Seal a tensor alone, and not the memory in which it lies, which can be read: the view that it
    stands for could not be made.

    >>> x, guard = torch.ones(2), Guard(frozenset(), shape_hidden=True)
    >>> protect(x, guard); view = x[:0]; seal_view(view, guard.sealed(ValueError("no such view")))
    >>> full_guard_of(x).error, full_guard_of(view).error
    (None, ValueError('no such view'))
    """
    view.__dict__[GUARD] = guard


def _places(value: Any) -> Sequence[Any]:
    """That on which a guard is noted: the memory of a tensor, or what is at the end of its chain,
    if that is no memory of this process."""
    if isinstance(value, Holder):
        return [place for tensor in value.tensors() for place in _places(tensor)]
    if not isinstance(value, torch.Tensor):
        return ()
    return storages_of(value) or (_end_of(value),)


def _end_of(tensor: torch.Tensor) -> torch.Tensor:
    while type(tensor) is Wrapper and (behind := tensor.child.tensor_behind()) is not None:
        tensor = behind
    return tensor


def travelling_guard_of(tensor: torch.Tensor | Holder) -> Guard | None:
    """The guard of a tensor together with its gradients, which are sent along with it."""
    guard, gradients = full_guard_of(tensor), gradients_behind(tensor)
    return combined((tensor, *gradients)) if gradients else guard


def gradients_behind(tensor: torch.Tensor | Holder) -> list[torch.Tensor]:
    """The gradient of a tensor, that of the gradient, and so on; those of all that is in a chain or
    in a holder.

    >>> x = torch.ones(2, requires_grad=True); x.grad = torch.ones(2, requires_grad=True)
    >>> x.grad.grad = torch.zeros(2); [gradient.sum().item() for gradient in gradients_behind(x)]
    [2.0, 0.0]
    """
    plain: Any = tensor if type(tensor) in EXACT_TENSOR_TYPES else None
    if plain is not None and (not plain.is_leaf or plain.grad is None):
        return []  # nearly always
    todo = list(tensor.tensors()) if isinstance(tensor, Holder) else [tensor]
    found: dict[int, torch.Tensor] = {}
    while todo:
        tensor = todo.pop()
        below, gradient = _parts_with_gradients(tensor)
        todo += () if below is None else (below,)
        if gradient is not None and id(gradient) not in found:
            found[id(gradient)] = gradient
            todo.append(gradient)
    return list(found.values())


def _parts_with_gradients(tensor: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The next tensor of a chain, and the gradient of the tensor itself."""
    link = tensor.child if type(tensor) is Wrapper else None
    if link is not None and link.at_function_level:
        return link.tensor_behind(), None
    below = None if link is None else link.elements()
    return below, tensor.grad if tensor.is_leaf else None


def protect_all(tensor: torch.Tensor | Holder, guard: Guard | None) -> None:
    """The same for a tensor that has arrived with a guard, and for the gradients that it brought.

    >>> x = torch.ones(2, requires_grad=True); x.grad = torch.ones(2)
    >>> protect_all(x, Guard(frozenset())); full_guard_of(x.grad)
    Guard(users=frozenset(), shape_hidden=False, ...)
    """
    protect(tensor, guard)
    for gradient in gradients_behind(tensor):
        protect(gradient, guard)


def combined(values: Iterable[Any]) -> Guard | None:
    """The guard of a result computed from ``values``: the meet of all their guards."""
    result: Guard | None = None
    for value in values:
        result = meet_guards(result, full_guard_of(value))
    return result


def meet_guards(one: Guard | None, other: Guard | None) -> Guard | None:
    """The guard of a result computed from two values, each of which may have no guard.

    >>> meet_guards(None, Guard(frozenset({"ann"})))
    Guard(users=frozenset({'ann'}), shape_hidden=False, ...)
    """
    if one is None or other is None:
        return one or other
    return one.meet(other)


# ---------------------------------------------------------------------------------------- memory


def innermost(value: Any) -> torch.Tensor | None:
    """The tensor on which operations on a chain run in this process; None if there is none.

    >>> x = torch.ones(2); innermost(x) is x
    True
    """
    while type(value) is Wrapper:
        value = value.child.tensor_behind()
    return value if isinstance(value, torch.Tensor) else None


def elements_of(value: Any) -> torch.Tensor | None:
    """The tensor that holds the elements of a chain, which those of a grid have too; None if they
    are at another worker.

    >>> from syft.tensors.fixed.precision import fix_precision
    >>> x = fix_precision(torch.ones(1)); elements_of(x), innermost(x)
    (tensor([65536]), None)
    """
    while type(value) is Wrapper:
        value = value.child.elements()
    return value if isinstance(value, torch.Tensor) else None


def memory_of(value: Any) -> set[int]:
    """The addresses of the storages of a tensor, or of the tensor it wraps.

    >>> x = torch.ones(2); memory_of(x) == memory_of(x[:1]), memory_of("text")
    (True, set())
    """
    return {storage.data_ptr() for storage in storages_of(value)} - {0}


def storages_of(value: Any) -> list[torch.UntypedStorage]:
    """The storages of a tensor, or of the tensor it wraps.

    >>> len(storages_of(torch.ones(2))), len(storages_of(torch.eye(2).to_sparse()))
    (1, 2)
    """
    if isinstance(value, Holder):
        return [storage for tensor in value.tensors() for storage in storages_of(tensor)]
    return [part.untyped_storage() for part in strided_parts_of(value)]


def strided_parts_of(value: Any) -> tuple[torch.Tensor, ...]:
    """The strided tensors that hold the elements of a tensor, or of the tensor it wraps.

    >>> x = torch.ones(2); strided_parts_of(x)[0] is x, len(strided_parts_of(x.to_sparse()))
    (True, 2)
    """
    tensor = elements_of(value)
    return () if tensor is None else _parts(tensor)


def _parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The strided tensors that hold the elements of a tensor of any layout."""
    if tensor.layout is torch.strided:
        return (tensor,) if type(tensor) in EXACT_TENSOR_TYPES else ()
    return tuple(part(tensor) for part in _PARTS.get(tensor.layout, ()))


_ROWS: Final = (torch.Tensor.crow_indices, torch.Tensor.col_indices, torch.Tensor.values)
_COLUMNS: Final = (torch.Tensor.ccol_indices, torch.Tensor.row_indices, torch.Tensor.values)
_PARTS: Final[dict[torch.layout, tuple[Callable[[Any], torch.Tensor], ...]]] = {
    torch.sparse_coo: COO_PARTS,
    torch.sparse_csr: _ROWS,
    torch.sparse_bsr: _ROWS,
    torch.sparse_csc: _COLUMNS,
    torch.sparse_bsc: _COLUMNS,
    torch.jagged: (methodcaller("values"), methodcaller("offsets")),
}
"""How to get the strided tensors of a tensor, by its layout."""


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor: values, grad, class (tensor or parameter), tags and guard; no graph.

    The gradient is as private as the one that is copied.

    >>> twin = copy_of(torch.ones(2, requires_grad=True)); twin.requires_grad, twin.is_leaf
    (True, True)
    """
    twin = bare_copy_of(tensor)
    protect(twin, full_guard_of(tensor))
    if tensor.is_leaf and tensor.grad is not None:
        twin.grad = tensor.grad.detach().clone()
        protect(twin.grad, full_guard_of(tensor.grad))
    return twin


LABELS.append(lambda tensor, copy: protect(copy, full_guard_of(tensor)))  # constants of programs


def bare_copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor without gradient and graph, that nothing guards: values, class and tags.

    >>> x = torch.ones(2); protect(x, Guard(frozenset())); full_guard_of(bare_copy_of(x)) is None
    True
    """
    twin = tensor.detach().clone()
    if tensor.requires_grad:
        twin.requires_grad_()
    if isinstance(tensor, torch.nn.Parameter):
        if type(tensor) is torch.nn.Parameter:
            twin = torch.nn.Parameter(twin.detach(), requires_grad=tensor.requires_grad)
        else:
            twin._is_param = True
    return with_words_of(tensor, twin)


def with_words_of(tensor: torch.Tensor, twin: torch.Tensor) -> torch.Tensor:
    """Give ``twin`` the tags and the description of a tensor, and return it."""
    for name in ("_tags", "_description"):
        if name in tensor.__dict__:
            twin.__dict__[name] = tensor.__dict__[name]
    return twin
