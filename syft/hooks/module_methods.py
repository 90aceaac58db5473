"""The methods added to ``nn.Module``: send, get, move and copy, in place.

Parameters and buffers stay the same Python objects (``torch.utils.swap_tensors`` exchanges their
contents), so an optimizer made before ``model.send(bob)`` keeps working.  All tensors are sent
before any is exchanged, and sent back if one fails, so that an error never leaves a module partly
here and partly there.
"""

from __future__ import annotations

import contextlib
import copy as copying
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.nn.utils.weight_norm import WeightNorm

from syft.chain.wrapper import Wrapper, first_link
from syft.exceptions import NotSendable
from syft.hooks import bulk, places, tensor_methods
from syft.hooks.lazy_modules import has_shape, keep_here, send_when_shaped
from syft.tensors import conversions
from syft.tensors.shared.shared_values import get_each
from syft.torch_private import exchange_contents
from syft.workers.client.answers import tensor_in
from syft.workers.client.transport import Owner
from syft.workers.labels.origin import names_in

Change = Callable[[torch.Tensor], torch.Tensor]
ChangeAll = Callable[[list[torch.Tensor]], list[torch.Tensor]]
Undo = Callable[[torch.Tensor, torch.Tensor], None]

_REGISTERING = frozenset(
    method.__code__
    for method in (nn.Module.register_parameter, nn.Module.register_buffer, nn.Module.add_module)
)


class ModuleAttribute:
    """A method or computed attribute of ``nn.Module`` that a user's module may override by name.

    Python prefers attributes of the instance.  Parameters, buffers and submodules are in tables of
    the module, which are looked at here.  Torch refuses to register one under a name that
    ``hasattr`` finds, so the methods that register get an AttributeError.
    """

    def __init__(self, name: str, function: Callable[[nn.Module], Any], is_method: bool) -> None:
        self._name = name
        self._function = function
        self._is_method = is_method
        self.__doc__ = function.__doc__

    def __get__(self, module: nn.Module | None, owner: type | None = None) -> Any:
        if module is None:
            return self._function if self._is_method else self
        for table in ("_parameters", "_buffers", "_modules"):
            held = module.__dict__.get(table)
            if held and self._name in held:
                return held[self._name]
        if sys._getframe(1).f_code in _REGISTERING:
            raise AttributeError(self._name)
        if self._is_method:
            return types.MethodType(self._function, module)
        return self._function(module)


def tensors_of(module: nn.Module) -> list[torch.Tensor]:
    """Every parameter and buffer of a module that has a shape, each once even if it is shared.

    >>> len(tensors_of(nn.BatchNorm1d(3)))
    5
    """
    found: dict[int, torch.Tensor] = {id(tensor): tensor for tensor in module.parameters()}
    found.update((id(tensor), tensor) for tensor in module.buffers())
    return list(filter(has_shape, found.values()))


def _state_of(module: nn.Module) -> list[torch.Tensor]:
    """The same, and what parts have as plain attributes that was made in a forward pass, and went
    to a worker."""
    found = tensors_of(module)
    for part in module.modules():
        found += places.gone(part)
    return found


def replace_tensors(module: nn.Module, change: Change, undo: Undo | None = None) -> nn.Module:
    """Replace the contents of every parameter and buffer by ``change(tensor)``.

    Returns the module.  If one change fails, ``undo(tensor, changed)`` is called for those made so
    far.  Raises :class:`~syft.exceptions.NotSendable` if an autograd graph still holds one of them.
    """
    old = _state_of(module)
    with contextlib.ExitStack() as undoing:
        new = []
        for tensor in old:
            changed = change(tensor)
            if undo is not None:
                undoing.callback(undo, tensor, changed)
            new.append(_part_like(tensor, changed))
        _swap_module(module, old, new)
        undoing.pop_all()
    return module


def exchange_tensors(
    module: nn.Module,
    change: ChangeAll,
    undo: Undo | None = None,
    only: list[torch.Tensor] | None = None,
) -> nn.Module:
    """Replace the contents of every parameter and buffer (of those in ``only``) by those of
    ``change(tensors)``, all made at once; otherwise as :func:`replace_tensors`."""
    old = _state_of(module) if only is None else only
    new = change(old)
    try:
        _swap_module(module, old, [_part_like(*pair) for pair in zip(old, new, strict=True)])
    except NotSendable:
        if undo is not None:
            for tensor, changed in zip(old, new, strict=True):
                undo(tensor, changed)
        raise
    return module


def _let_go_of_normalised(parts: list[nn.Module]) -> None:
    """Cut the graph of weights that the former ``nn.utils.weight_norm`` computes at each call."""
    for part in parts:
        for hook in part._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm):
                part.__dict__[hook.name] = part.__dict__[hook.name].detach()


def _swap_module(module: nn.Module, old: list[torch.Tensor], new: list[torch.Tensor]) -> None:
    parts = [*module.modules()]
    if any(isinstance(part, torch.jit.ScriptModule) for part in parts):
        raise NotSendable("a module of TorchScript", "send the module that it was compiled from")
    _let_go_of_normalised(parts)
    recurrent = [part for part in parts if isinstance(part, nn.RNNBase)]
    for part in recurrent:  # torch exchanges no tensor that has weak references
        part._flat_weight_refs = [None for _ in part._flat_weights]
    try:
        _swap_all(old, new)
    finally:
        for part in recurrent:
            part._flat_weight_refs = [
                None if weight is None else weakref.ref(weight) for weight in part._flat_weights
            ]


def _swap_all(old: list[torch.Tensor], new: list[torch.Tensor]) -> None:
    done = 0
    try:
        for mine, theirs in zip(old, new, strict=True):
            exchange_contents(mine, theirs)
            done += 1
    except RuntimeError as error:
        for mine, theirs in zip(old[:done], new[:done], strict=True):
            exchange_contents(mine, theirs)
        raise NotSendable(
            "a module whose parameters are still held by a graph or a weak reference",
            f"delete the outputs and losses computed with it first ({error})",
        ) from error


def as_kind_of(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """Make ``new`` count as a parameter (or buffer) if ``old`` does.

    >>> type(as_kind_of(nn.Parameter(torch.ones(1)), torch.zeros(1))).__name__
    'Parameter'
    """
    if isinstance(old, nn.Parameter):
        if type(new) is torch.Tensor:
            gradient, new = new.grad, nn.Parameter(new.detach(), requires_grad=new.requires_grad)
            new.grad = gradient
        elif type(new) is not nn.Parameter:
            new._is_param = True
    for mark in ("_is_buffer", "persistent"):
        value = getattr(old, mark, None)
        if value is not None:
            new.__dict__[mark] = value
    return new


def _part_like(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """The same for a part of a module."""
    return _marked(as_kind_of(old, new))


def _marked(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor, marked as part of a module if it is at a worker."""
    if type(tensor) is Wrapper and tensor.child.remote_links():
        tensor_methods.mark_as_part(tensor)
    return tensor


def send_module(
    module: nn.Module,
    *locations: Any,
    owner: Owner,
    user: str | None = None,
    allow: Iterable[str] = (),
) -> nn.Module:
    """Send every parameter and buffer to a worker in one message; returns the module, changed in
    place.

    ``allow`` names the users who may use them too, as for tensors.  What is there already stays as
    it is, so that a cell can be run again.  Raises :class:`~syft.exceptions.NotSendable` unless
    exactly one worker is named, and for a module that is at another worker: it is moved.

    >>> model = torch.nn.Linear(2, 1)
    >>> model.send(bob).weight.location
    <VirtualWorker id:bob #objects:2>
    """
    if len(locations) != 1:
        raise NotSendable(
            f"a module to {len(locations)} workers", "send a copy to each: model.copy().send(bob)"
        )
    adopt = getattr(locations[0], "adopt", None)
    if adopt is not None:  # a role of a protocol, which has copies once it is deployed
        return adopt(module)  # type: ignore[no-any-return]
    place, users = owner.get_worker(locations[0]), names_in("allow", allow)
    here = [tensor for tensor in tensors_of(module) if not _is_at(tensor, place)]
    exchange_tensors(
        module, lambda tensors: bulk.send_all(tensors, place, owner, user), bulk.unsend, here
    )
    for link in chain.from_iterable(first_link(one).remote_links() for one in tensors_of(module)):
        link.connection.show_to(link.id_at_location, users)
    again = partial(send_module, owner=owner, user=user, allow=users)
    send_when_shaped(module, lambda part: again(part, place))
    places.follow(module)
    return module


def _is_at(tensor: torch.Tensor, place: Any) -> bool:
    """Whether a tensor is at a worker; False if it is here.

    Raises :class:`~syft.exceptions.NotSendable` if it is at another one.
    """
    link = first_link(tensor)
    if not link.remote_links():
        return False
    if link.location is not place:
        instead = f"model.move({place.id}) takes it there; or bring it here first: model.get()"
        raise NotSendable(f"a module that is at {link.place()}", instead)
    return True


def get_module(module: nn.Module, user: str | None = None) -> nn.Module:
    """Bring every parameter and buffer here in one message; returns the module, changed in place.

    The values of a shared module are put together here, and stay in fixed precision.

    Gradients are brought too, and a gradient can show the samples it was computed from: call
    ``module.zero_grad()`` first if you may not see the data.

    >>> model = torch.nn.Linear(2, 1)
    >>> model.send(bob)(torch.ones(3, 2).send(bob)).get().shape
    torch.Size([3, 1])
    >>> model.get().weight.shape, bob.objects_count()
    (torch.Size([1, 2]), 0)
    """
    places.unfollow(module)
    keep_here(module)
    if any(first_link(tensor).shared_cell() for tensor in tensors_of(module)):

        def together(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
            return get_each(tensors, user, lambda rest: [one.detach().clone() for one in rest])

        return exchange_tensors(module, together)
    pointers = [link for tensor in _state_of(module) for link in first_link(tensor).remote_links()]

    def fetched(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return list(map(tensor_in, bulk.get_all(tensors, user, keep=True, call="get")))

    exchange_tensors(module, fetched)
    bulk.discard_all(pointers)
    return module


def move_module(module: nn.Module, location: Any, user: str | None = None) -> nn.Module:
    """Move every parameter and buffer to another worker; returns the module, changed in place.

    >>> model = torch.nn.Linear(2, 1).send(alice)
    >>> model.move(bob).location, alice.objects_count()
    (<VirtualWorker id:bob #objects:2>, 0)
    """
    if _is_owner(tensors_of(module), location):
        return get_module(module, user)
    moved = replace_tensors(
        module,
        lambda tensor: tensor_methods.moved(tensor, location, user=user),
        lambda tensor, moved: _unmove(tensor, moved, user),
    )
    if keep_here(moved):
        send: Any = moved.send
        send(location, user=user)
    return moved


def _unmove(tensor: torch.Tensor, moved: torch.Tensor, user: str | None) -> None:
    """Undo a move: the data goes back to where ``tensor`` points."""
    links = first_link(tensor).remote_links()
    if links and moved is not tensor:
        place = tensor_methods.location(tensor)
        bulk.take_duty(links, tensor_methods.moved(moved, place, user=user))


def _is_owner(tensors: list[torch.Tensor], location: Any) -> bool:
    """Whether ``location`` is the worker that owns the pointers to these tensors."""
    owner = first_link(tensors[0]).owner if tensors else None
    return owner is not None and owner.get_worker(location) is owner


def copy_module(module: nn.Module) -> nn.Module:
    """A deep copy; remote parameters are copied where they are.

    >>> model = torch.nn.Linear(2, 1)
    >>> duplicate = model.copy().send(bob)  # the model itself stays here
    >>> print(duplicate.location, model.location)
    <VirtualWorker id:bob #objects:2> None
    """
    duplicate = copying.deepcopy(module)
    for tensor in tensors_of(duplicate):
        _marked(tensor)
    return duplicate


def module_location(module: nn.Module) -> Any:
    """The worker that holds the module's first parameter or buffer; None when it is here.

    >>> model = torch.nn.Linear(2, 1)
    >>> model.location is None, model.send(bob).location is bob
    (True, True)
    """
    for tensor in tensors_of(module):
        return tensor_methods.location(tensor)
    return None


def encode_module(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
    """Encode every floating-point parameter and buffer in fixed precision, in place.

    >>> hook = sy.TorchHook(torch)
    >>> model = torch.nn.Linear(2, 1).fix_precision()
    >>> isinstance(model.weight, torch.nn.Parameter), type(model.weight.child).__name__
    (True, 'FixedPrecisionTensor')
    """
    return replace_tensors(
        module,
        lambda tensor: _converted(
            tensor, lambda leaf: conversions.fix_precision(leaf, *args, **kwargs)
        ),
    )


def decode_module(module: nn.Module) -> nn.Module:
    """Decode every fixed-precision parameter and buffer, in place.

    >>> hook = sy.TorchHook(torch)
    >>> model = torch.nn.Linear(2, 1).fix_precision().float_precision()
    >>> type(model.weight).__name__
    'Parameter'
    """
    return replace_tensors(module, lambda tensor: _converted(tensor, conversions.float_precision))


def _converted(tensor: torch.Tensor, convert: Change) -> torch.Tensor:
    """The converted values and gradient as a new leaf, which does not keep the original alive."""
    if not tensor.is_floating_point():
        return tensor.detach().clone()
    made = convert(tensor.detach()).requires_grad_(tensor.requires_grad)
    if tensor.grad is not None:
        made.grad = convert(tensor.grad.detach())
    return made
