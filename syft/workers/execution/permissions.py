"""Guards: the users who may read a value, recorded on the value itself.

A guard is an attribute of the tensor, not an entry in a list of ids, so it goes wherever the data
goes.  A result of an operation gets the meet of its inputs' guards: the users whom all of them
admit.  A gradient gets the guard of its loss.  At a worker the guard is also on the tensor's
memory, so that every other tensor over the same memory (a view, ``x.data``, the tensor that a chain
wraps) is as private, no matter how and when it is made.  Reading is denied by default: only the
users in a guard may see values, value-dependent shapes and error texts.

A guard does not hide shapes and dtypes that follow from the program alone.  If a command fails
because of private values, that it failed is private too: its results exist nevertheless, and their
guard is *sealed* with the error, which whoever may read the values gets in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from dataclasses import replace as changed
from operator import methodcaller
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper
from syft.ops.nested import EXACT_TENSOR_TYPES
from syft.torch_private import COO_PARTS
from syft.workers.execution.holders import Holder

GUARD: Final = "_guard"
"""The attribute of tensors and of memory that holds their guards."""
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


def guard_of(value: Any) -> Guard | None:
    """The guard on a tensor and on the tensors that its chain wraps; None if everyone may read it.

    Workers use :func:`full_guard_of`, which includes the guard of the memory.
    """
    if not isinstance(value, torch.Tensor):
        return None
    guard: Guard | None = value.__dict__.get(GUARD)
    if type(value) is Wrapper:
        inner = guard_of(value.child.tensor_behind())
        if inner is not None:
            return inner if guard is None else guard.meet(inner)
    return guard


def set_guard(tensor: torch.Tensor | Holder, guard: Guard | None) -> None:
    """Put a guard on a tensor, or on all tensors of a holder.

    The result is the meet with the guard that a tensor has already.  None changes nothing.
    """
    if guard is None:
        return
    if isinstance(tensor, Holder):
        for held in tensor.tensors():
            set_guard(held, guard)
        return
    present = guard_of(tensor)
    tensor.__dict__[GUARD] = guard if present is None else present.meet(guard)


def full_guard_of(value: Any) -> Guard | None:
    """The guard of a tensor held by a worker: its own, combined with the guard of its memory."""
    if isinstance(value, Holder):
        return combined(value.tensors())
    if not isinstance(value, torch.Tensor):
        return None
    guard = guard_of(value)
    for storage in storages_of(value):
        guard = meet_guards(guard, storage.__dict__.get(GUARD))
    return guard


def travelling_guard_of(tensor: torch.Tensor | Holder) -> Guard | None:
    """The guard of a tensor together with its gradients, which are sent along with it."""
    return combined((tensor, *gradients_behind(tensor)))


def gradients_behind(tensor: torch.Tensor | Holder) -> list[torch.Tensor]:
    """The gradient of a tensor, that of the gradient, and so on; those of all that is in a holder.

    >>> x = torch.ones(2, requires_grad=True); x.grad = torch.ones(2, requires_grad=True)
    >>> x.grad.grad = torch.zeros(2); [gradient.sum().item() for gradient in gradients_behind(x)]
    [2.0, 0.0]
    """
    todo = list(tensor.tensors()) if isinstance(tensor, Holder) else [tensor]
    found: dict[int, torch.Tensor] = {}
    while todo:
        recorded: torch.Tensor | None = todo.pop()
        while type(recorded) is Wrapper and recorded.child.at_function_level:
            recorded = recorded.child.tensor_behind()
        if recorded is None or not recorded.is_leaf:
            continue
        gradient = recorded.grad
        if gradient is not None and id(gradient) not in found:
            found[id(gradient)] = gradient
            todo.append(gradient)
    return list(found.values())


def protect(tensor: torch.Tensor | Holder, guard: Guard | None) -> None:
    """Add a guard to a tensor held by a worker, and to its memory."""
    if guard is None:
        return
    if isinstance(tensor, Holder):
        for held in tensor.tensors():
            protect(held, guard)
        return
    set_guard(tensor, guard)
    for storage in storages_of(tensor):
        storage.__dict__[GUARD] = meet_guards(storage.__dict__.get(GUARD), guard)


def protect_all(tensor: torch.Tensor | Holder, guard: Guard | None) -> None:
    """The same for a tensor that has arrived with a guard, and for the gradients that it brought.

    >>> x = torch.ones(2, requires_grad=True); x.grad = torch.ones(2)
    >>> protect_all(x, Guard(frozenset())); full_guard_of(x.grad)
    Guard(users=frozenset(), shape_hidden=False, ...)
    """
    protect(tensor, guard)
    for gradient in gradients_behind(tensor):
        protect(gradient, guard)


def guard_of_memory(tensor: torch.Tensor) -> Guard | None:
    """The guard of the memory of a strided tensor at a worker, where the guard of the tensor is
    too; a fast path.

    >>> x = torch.ones(2)
    >>> protect(x, Guard(frozenset()))
    >>> guard_of_memory(x[:1]) == full_guard_of(x)
    True
    """
    guard: Guard | None = tensor.untyped_storage().__dict__.get(GUARD)
    own = tensor.__dict__.get(GUARD)
    return guard if own is None or own is guard else full_guard_of(tensor)


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

    >>> twin = copy_of(torch.ones(2, requires_grad=True)); twin.requires_grad, twin.is_leaf
    (True, True)
    """
    twin = bare_copy_of(tensor)
    if tensor.is_leaf and tensor.grad is not None:
        twin.grad = tensor.grad.detach().clone()
        set_guard(twin.grad, guard_of(tensor.grad))
    set_guard(twin, guard_of(tensor))
    return twin


def bare_copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor without gradient and graph, that nothing guards: values, class and tags.

    >>> x = torch.ones(2); set_guard(x, Guard(frozenset())); guard_of(bare_copy_of(x)) is None
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
