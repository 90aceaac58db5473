"""Methods of torch that touch every parameter of a module, as one message to each worker.

``model.state_dict()`` calls ``detach`` of every parameter, ``model.double()`` converts each one: a
message each, if they are at a worker.  So while such a method runs, a group of messages
(:mod:`syft.workers.client.group`) is open for every worker that holds a part of the module.  What
torch's own method does, and in which order, stays as it is.  An error of the worker is raised when
the method ends, as if the user had opened a group around the call.  An error of the method itself
does not take back what was done before it: that is sent, as torch would have done it.

Gradients are taken away before ``zero_grad``, which finds none then: by a message of their own, or
by operations of an open group.

Torch has no registration for these methods, so they are surrounded, by the ledger, when the first
module is sent: a process without remote modules runs torch's methods.  In any other a plain module
pays one look at its tables (0.5 to 1 µs a part).

What waits for a promise would hold back the whole group, so a worker where a parameter was promised
gets its messages one by one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final

import torch
from torch import nn
from torch.optim import Optimizer

from syft.chain.wrapper import Wrapper, first_link, place_of
from syft.exceptions import LocationMismatch
from syft.hooks.ledger import Ledger
from syft.ops.control import RECORDING
from syft.tensors.pointer import PointerTensor, own_leaf
from syft.workers.client.connection import Connection
from syft.workers.client.group import MessageGroup

_INSIDE: ContextVar[bool] = ContextVar("inside a method of a whole module", default=False)
"""Whether a surrounded method is running: what it calls of its parts goes into its groups."""


def remote_parameters(module: nn.Module) -> Iterator[Wrapper]:
    """The parameters and buffers of a module and its parts that are no plain tensors.

    >>> [x.location.id for x in remote_parameters(nn.Linear(2, 1).send(bob))]
    ['bob', 'bob']
    """
    for part in _parts_of(module):
        for name in ("_parameters", "_buffers"):
            table = part.__dict__.get(name) or {}  # a traced module has none
            if Wrapper in map(type, table.values()):
                yield from (tensor for tensor in table.values() if type(tensor) is Wrapper)


def _parts_of(module: nn.Module) -> list[nn.Module]:
    """A module and all its parts, each once: ``modules()`` takes several times as long."""
    parts, seen = [module], {module}
    for part in parts:
        for child in (part.__dict__.get("_modules") or {}).values():
            if child is not None and child not in seen:
                seen.add(child)
                parts.append(child)
    return parts


def _parameters_of(part: nn.Module | Optimizer) -> Iterator[torch.Tensor | None]:
    """The parameters of an optimizer, or of a module and its parts (None for one left out)."""
    if isinstance(part, nn.Module):
        for module in _parts_of(part):
            yield from (module.__dict__.get("_parameters") or {}).values()
    else:
        for group in part.param_groups:
            yield from group["params"]


@contextlib.contextmanager
def one_message_each(tensors: Iterable[Wrapper]) -> Iterator[None]:
    """A context in which what is done with these tensors is one message to each of their workers.

    >>> x, y = torch.ones(2).send(bob), torch.zeros(2).send(bob)
    >>> before = bob.stats.messages_in
    >>> with one_message_each([x, y]):
    ...     parts = [x.detach(), y.detach()]
    >>> bob.stats.messages_in - before
    1
    """
    groups: list[MessageGroup] = []
    try:
        for connection in _without_promises(tensors):
            if not connection.transport.closed:
                groups.append(connection.message_group())
                groups[-1].begin()
                connection.facts.begin()  # what comes of it is of a known kind
        yield
    finally:
        _release(groups)


def _release(groups: Sequence[MessageGroup]) -> None:
    """Send what each group holds, whatever becomes of the others."""
    if groups:
        try:
            groups[0].release()
        finally:
            _release(groups[1:])


def _without_promises(tensors: Iterable[Wrapper]) -> list[Connection]:
    """The connections to the workers of these tensors, where none of them was promised."""
    waits: dict[Connection, bool] = {}
    for tensor in tensors:
        for link in tensor.child.remote_links():
            parked = link.pending is not None and link.pending.parked
            promised = parked or link.connection.garbage.owns(link.id_at_location)
            waits[link.connection] = waits.get(link.connection, False) or promised
    return [connection for connection, promised in waits.items() if not promised]


class WholeModules:
    """Surrounds the methods of torch that go through all parameters of a module.

    ``ledger`` undoes it; ``also`` is called then, too.

    >>> ledger = Ledger()
    >>> WholeModules(ledger).surround()
    >>> nn.Linear(2, 1).requires_grad_(False).weight.requires_grad
    False
    >>> ledger.undo()
    """

    def __init__(self, ledger: Ledger, also: Callable[[], None] | None = None) -> None:
        self._ledger, self._also = ledger, also
        self._surrounded = False

    def surround(self) -> None:
        """Surround them, unless that was done: called when a module is sent."""
        if not self._surrounded:
            self._surrounded = True
            for name in _METHODS:
                self._ledger.surround(nn.Module, name, _together)
            self._ledger.surround(nn.Module, "load_state_dict", _checked_before)
            for target in (nn.Module, Optimizer):
                self._ledger.surround(target, "zero_grad", _cleared_before)
            if self._also is not None:
                self._also()


def _together(method: Callable[..., Any]) -> Callable[..., Any]:
    """The same method, with one message to each worker for all that it does with a module."""

    def surrounded(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if _INSIDE.get() or RECORDING.get() is not None:
            return method(self, *args, **kwargs)
        token = _INSIDE.set(True)
        try:
            found = list(remote_parameters(self))
            if not found:
                return method(self, *args, **kwargs)
            with one_message_each(found):
                return method(self, *args, **kwargs)
        finally:
            _INSIDE.reset(token)

    return surrounded


def _checked_before(load_state_dict: Callable[..., Any]) -> Callable[..., Any]:
    """The same method, which checks first where the module and the state are."""

    def surrounded(self: nn.Module, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        check_places(self, state_dict, kwargs.get("assign") or args[1:2] == (True,))
        return _together(load_state_dict)(self, state_dict, *args, **kwargs)

    return surrounded


def check_places(module: nn.Module, state: Mapping[str, Any], assign: bool = False) -> None:
    """Raise :class:`~syft.exceptions.LocationMismatch` for a state at another place than the
    module.

    Torch lists what each tensor raises, and leaves its text out.  A state that is here goes to
    wherever the module is, and with ``assign`` the module takes any.

    >>> check_places(nn.Linear(2, 1), nn.Linear(2, 1).state_dict())
    """
    if assign:
        return
    mine = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    wrapped = {name: value for name, value in state.items() if type(value) is Wrapper}
    remote = {
        name: value
        for name, value in wrapped.items()
        if not _takes_values(mine.get(name, value), value)
    }
    if not any(value.child.at_function_level for value in remote.values()):
        return
    for name, value in remote.items():
        place = first_link(mine[name]).location if name in mine else value.child.location
        if value.child.at_function_level and place is not value.child.location:
            raise _elsewhere(name, "here" if place is None else place.id, place_of(value))


def _takes_values(mine: torch.Tensor, value: Wrapper) -> bool:
    """Whether a parameter that is here takes the values of a tensor on a device."""
    links = value.child.remote_links()
    return bool(links) and links[0].connection.device is not None and type(mine) is not Wrapper


def _elsewhere(name: str, module: str, state: str) -> LocationMismatch:
    """The error of a state at another place (made here: a frame that holds what it raises would
    keep the pointers of the state)."""
    error = LocationMismatch(f"load_state_dict: {name!r}", (module, state))
    error.add_note(
        "sy.get_all(state, keep=True) brings a whole state here; a module takes it where it is, "
        "and at a worker too."
    )
    return error


def _cleared_before(zero_grad: Callable[..., Any]) -> Callable[..., Any]:
    """The same method, which finds no gradients: one message to each worker has taken them away."""

    def surrounded(self: nn.Module | Optimizer, set_to_none: bool = True) -> None:
        if set_to_none and RECORDING.get() is None:
            if clear_gradients(_parameters_of(self)):
                return  # torch would find none
        zero_grad(self, set_to_none)

    return surrounded


def clear_gradients(parameters: Iterable[torch.Tensor | None]) -> bool:
    """Take the gradients away that remote leaves have, or may have, in a message to each worker;
    whether none of the parameters has one now.

    Those are left alone whose gradient may be reached through another pointer.

    >>> x = torch.ones(2).send(bob).requires_grad_()
    >>> x.sum().backward()
    >>> clear_gradients([x, torch.ones(2)]), clear_gradients([x])
    (False, True)
    >>> x.grad is None
    True
    """
    found: dict[Connection, list[PointerTensor]] = {}
    all_found = True
    for parameter in parameters:
        link = own_leaf(parameter)
        if link is not None:
            found.setdefault(link.connection, []).append(link)
        else:
            all_found = all_found and parameter is None
    for connection, links in found.items():
        connection.operations.clear_gradients(links)
    return all_found


_METHODS: Final = ("state_dict", "requires_grad_", "_apply")
"""With ``load_state_dict``, the methods of a module that are one message to each worker."""
