"""``TorchHook(torch)``: adds methods to torch's classes, and makes the local worker.

Torch's override protocols pass calls on sent, encrypted or wrapped tensors to syft.  Where torch
asks nobody, a function is surrounded: six methods that go through all parameters of a module, when
the first one is sent (:mod:`syft.hooks.whole_modules`), ``step`` of each scheduler, since only a
call shows that one steps while a plan is recorded, the transforms of ``torch.func``
(:mod:`syft.hooks.function_transforms`), ``torch.cond`` and ``torch.while_loop``
(:mod:`syft.hooks.torch_control_flow`), ``torch.as_tensor``, one way of checkpoints, and ``to``,
which may name a worker (:mod:`syft.hooks.devices`).
``close()`` removes all of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, ClassVar, Final

import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from syft.chain.wrapper import first_link, may_take_data
from syft.exceptions import HookError
from syft.hooks import (
    bulk,
    in_place,
    labels,
    lazy_parts,
    module_methods,
    renamed,
    sending,
    sharing_methods,
    tensor_methods,
)
from syft.hooks.checkpoints import surround_checkpoints
from syft.hooks.copied_tensors import surround_copies
from syft.hooks.devices import DeviceHook
from syft.hooks.function_transforms import surround_transforms
from syft.hooks.ledger import EXTENSIONS, Attribute, Ledger
from syft.hooks.module_methods import ModuleAttribute
from syft.hooks.optimizer_state import StateFollower, encode_optimizer
from syft.hooks.sending import Location
from syft.hooks.short_tracebacks import shorten_tracebacks
from syft.hooks.torch_control_flow import surround_control_flow
from syft.hooks.whole_modules import WholeModules
from syft.hooks.whole_steps import WholeSteps
from syft.notebook_html import line, table
from syft.plans.abstract_plan import AbstractPlan
from syft.plans.building.optimizers import refuse_in_a_plan
from syft.plans.remote.plan_sending import LocalPlanSender
from syft.tensors import conversions, multi_pointer
from syft.tensors.bare_pointer import forward_methods
from syft.tensors.lazy import lazy_handles
from syft.tensors.shared.sessions import sessions_of
from syft.tensors.shared.shared_values import refresh
from syft.workers.client.transport import Owner
from syft.workers.shells.message_trace import MessageLog, Trace
from syft.workers.shells.virtual import VirtualWorker
from syft.workers.shells.worker import WORKER_HEAD

TENSOR_METHODS: Final[dict[str, Callable[..., Any]]] = {
    "get": tensor_methods.get,
    "get_": in_place.get_,
    "move": tensor_methods.move,
    "copy": tensor_methods.copy,
    "allow": tensor_methods.allow,
    "remote_get": tensor_methods.remote_get,
    "remote_send": tensor_methods.remote_send,
    "begin_msg_group": tensor_methods.begin_msg_group,
    "release_msg_group": tensor_methods.release_msg_group,
    "describe": labels.set_description,
    "private_tensor": sending.private_tensor,
    "combine": multi_pointer.combine_with,
    "fix_precision": conversions.fix_precision,
    "fix_prec": conversions.fix_precision,
    "fix_precision_": conversions.fix_precision_,
    "fix_prec_": conversions.fix_precision_,
    "float_precision": conversions.float_precision,
    "float_prec": conversions.float_precision,
    "float_precision_": conversions.float_precision_,
    "float_prec_": conversions.float_precision_,
    "refresh": refresh,
    "decrypt": sharing_methods.decrypt,
    "to_lazy": lazy_handles.to_lazy,
    "to_eager": lazy_handles.to_eager,
    "is_lazy": lazy_handles.is_lazy,
}
"""Methods that ``torch.Tensor`` gets and that need no local worker."""

TENSOR_ATTRIBUTES: Final[dict[str, Callable[[torch.Tensor], Any]]] = {
    "location": tensor_methods.location,
    "id": labels.tensor_id,
    "id_at_location": labels.id_at_location,
    "tags": labels.tags,
    "description": labels.description,
    "disable_gc": renamed.disable_gc,
    "create_pointer": renamed.create_pointer,
}

MODULE_METHODS: Final[dict[str, Callable[..., Any]]] = {
    "get": module_methods.get_module,
    "move": module_methods.move_module,
    "copy": module_methods.copy_module,
    "fix_precision": module_methods.encode_module,
    "fix_prec": module_methods.encode_module,
    "float_precision": module_methods.decode_module,
    "float_prec": module_methods.decode_module,
    "decrypt": sharing_methods.decrypt_module,
    "to_lazy": lazy_parts.make_module_lazy,
    "to_eager": lazy_parts.make_module_eager,
}
"""Methods that ``nn.Module`` gets and that need no local worker."""

MODULE_ATTRIBUTES: Final[dict[str, Callable[[nn.Module], Any]]] = {
    "location": module_methods.module_location,
}

_SCHEDULERS: Final = [
    kind for kind in vars(lr_scheduler).values() if hasattr(kind, "step") and "step" in vars(kind)
]
_SCHEDULERS.remove(Optimizer)


class TorchHook:
    """Adds syft's methods to torch; a second call returns the first hook.

    ``local_worker`` is the worker of this process, by default a new one called ``me``.
    ``is_client`` sets its ``is_client_worker``, which is true for a new hook by default; a second
    call without it changes nothing.  ``verbose`` is taken for programs written for earlier
    versions, and changes nothing: ``sy.trace()`` lists messages.

    Raises :class:`~syft.exceptions.HookError`, and leaves torch as it was, if torch is hooked
    already with another local worker, if it has an attribute of a name that syft adds, or if
    ``module`` is not torch.

    >>> hook = TorchHook(torch)
    >>> TorchHook(torch) is hook
    True
    >>> hook.local_worker.id
    'me'
    """

    _current: ClassVar[TorchHook | None] = None

    local_worker: VirtualWorker
    _ledger: Ledger
    _whole: WholeModules
    _devices: DeviceHook

    def __new__(
        cls,
        module: ModuleType,
        local_worker: VirtualWorker | None = None,
        is_client: bool | None = None,
        verbose: bool = False,
    ) -> TorchHook:
        if module is not torch:
            raise HookError(f"cannot hook {module!r}", "pass the torch module: TorchHook(torch)")
        current = cls._current
        if current is not None:
            if local_worker is not None and local_worker is not current.local_worker:
                raise HookError(
                    f"torch is hooked already, with local worker {current.local_worker.id!r}",
                    "close that hook first: sy.hook.close()",
                )
            if is_client is not None:
                current.local_worker.is_client_worker = is_client
            return current
        self = super().__new__(cls)
        self.local_worker = local_worker or VirtualWorker(None, id="me")
        self._ledger = Ledger()
        try:
            self._whole = WholeModules(self._ledger, WholeSteps(self._ledger).surround)
            self._add_methods()
            self._devices = DeviceHook(self.local_worker, self._ledger, self._whole)
            follower = StateFollower(self.local_worker)
            self._ledger.register(register_optimizer_step_pre_hook, follower.before_step)
            for scheduler in _SCHEDULERS:
                self._ledger.surround(scheduler, "step", refuse_in_a_plan)
            self._ledger.register(register_optimizer_step_post_hook, follower.after_step)
            surround_transforms(self._ledger)
            surround_copies(self._ledger)
            surround_control_flow(self._ledger)
            surround_checkpoints(self._ledger)
        except BaseException:
            self._ledger.undo()
            if local_worker is None:
                self.local_worker.close()
            raise
        self.local_worker.is_client_worker = is_client is not False
        cls._current = self
        shorten_tracebacks(self._ledger)
        self._ledger.replace(AbstractPlan, "sender", LocalPlanSender(self.local_worker))
        return self

    def __repr__(self) -> str:
        return f"<TorchHook {self._state()}>"

    def _repr_html_(self) -> str:
        """A notebook shows this: who has hooked torch, and the workers known to it."""
        workers = self.local_worker.network.workers.values()
        cells = [worker.cells_shown() for worker in workers]
        return line("TorchHook", self._state()) + table(WORKER_HEAD, cells, named=True)

    def _state(self) -> str:
        name = self.local_worker.id
        return f"torch is hooked by {name}" if TorchHook._current is self else f"of {name}, closed"

    @classmethod
    def current(cls) -> TorchHook:
        """The hook in force; raises :class:`~syft.exceptions.HookError` if torch is not hooked.

        >>> TorchHook.current() is hook
        True
        """
        if cls._current is None:
            raise HookError("torch is not hooked", "call sy.TorchHook(torch) first")
        return cls._current

    def close(self) -> None:
        """Restore torch, and close every worker of the network.

        >>> hook.close()
        >>> hasattr(torch.Tensor, "send")
        False
        """
        if TorchHook._current is not self:
            return
        TorchHook._current = None
        self._ledger.undo()
        for worker in list(self.local_worker.network.workers.values()):
            worker.close()

    def record(self) -> MessageLog:
        """A recording of every message between workers, as a context manager.

        >>> with hook.record() as log:
        ...     pass
        >>> len(log)
        0
        """
        return MessageLog(self.local_worker.network)

    def _add_methods(self) -> None:
        local = self.local_worker
        for name, method in {**TENSOR_METHODS, **_tensor_methods_of(local)}.items():
            self._ledger.add(torch.Tensor, name, method)
        for name, compute in {**TENSOR_ATTRIBUTES, "owner": _owner_of_tensor(local)}.items():
            assign = partial(labels.set_own, name)
            self._ledger.add(torch.Tensor, name, Attribute(name, compute, assign))
        for name in renamed.COLLECTING:
            attribute = Attribute(name, renamed.collects, renamed.set_collects)
            self._ledger.add(torch.Tensor, name, attribute)
        self._ledger.add(torch.Tensor, "child", None)
        self._ledger.implement("_has_compatible_shallow_copy_type", may_take_data)
        forward_methods()
        sharing = {name: _owned(method, local) for name, method in _SHARING_MODULES.items()}
        for name, method in {**MODULE_METHODS, **sharing, "send": self._send_module()}.items():
            self._ledger.add(nn.Module, name, ModuleAttribute(name, method, is_method=True))
        for name, answer in {**MODULE_ATTRIBUTES, "owner": _owner_of_module(local)}.items():
            self._ledger.add(nn.Module, name, ModuleAttribute(name, answer, is_method=False))
        for name in ("fix_precision", "fix_prec"):
            self._ledger.add(Optimizer, name, encode_optimizer)
        for target, name, added in EXTENSIONS:
            self._ledger.add(target, name, added)

    def _send_module(self) -> Callable[..., nn.Module]:
        local, whole = self.local_worker, self._whole

        def send(
            module: nn.Module,
            *locations: Any,
            user: str | None = None,
            allow: Iterable[str] = (),
        ) -> nn.Module:
            whole.surround()
            about: dict[str, Any] = {"user": user, "allow": allow}
            return module_methods.send_module(module, *locations, owner=local, **about)

        send.__doc__ = module_methods.send_module.__doc__
        return send


# --------------------------------------------- methods and attributes that need the local worker


def _tensor_methods_of(local: VirtualWorker) -> dict[str, Callable[..., Any]]:
    def tag(tensor: torch.Tensor, *tags: str, allow: Iterable[str] = ()) -> torch.Tensor:
        labels.tag(tensor, *tags, allow=allow)
        for worker in local.network.hosts.values():
            worker.core.store.owner_tagged()
        if not local.is_client_worker:
            labels.offer(tensor, local)
        return tensor

    tag.__doc__ = labels.tag.__doc__
    return {"tag": tag, **{name: _owned(method, local) for name, method in _OWNED.items()}}


_OWNED: Final[dict[str, Callable[..., Any]]] = {
    "send": sending.send,
    "send_": sending.send_,
    "share": sharing_methods.share,
    "share_": in_place.share_,
    "reveal": sharing_methods.reveal,
    "encrypt": sharing_methods.encrypt,
}
_SHARING_MODULES: Final[dict[str, Callable[..., Any]]] = {
    "share": sharing_methods.share_module,
    "encrypt": sharing_methods.encrypt_module,
}


def _owned(method: Callable[..., Any], local: VirtualWorker) -> Callable[..., Any]:
    """A function that needs the local worker, as a method."""

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self, *args, owner=local, **kwargs)

    called.__name__, called.__doc__ = method.__name__, method.__doc__
    signature = inspect.signature(method)
    shown = [each for name, each in signature.parameters.items() if name != "owner"]
    called.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return called


def _owner_of_tensor(local: VirtualWorker) -> Callable[[torch.Tensor], Owner]:
    def owner(tensor: torch.Tensor) -> Owner:
        """The worker that holds the tensor, or the pointer to it.

        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> x.owner is hook.local_worker, torch.ones(2).owner is hook.local_worker
        (True, True)
        """
        return first_link(tensor).owner or local

    return owner


def _owner_of_module(local: VirtualWorker) -> Callable[[nn.Module], Owner]:
    def owner(module: nn.Module) -> Owner:
        """The worker that holds the module, or the pointers to its parameters.

        >>> model = torch.nn.Linear(2, 1)
        >>> model.send(bob).owner is hook.local_worker
        True
        """
        owners = (first_link(tensor).owner for tensor in module_methods.tensors_of(module))
        return next(owners, None) or local

    return owner


def trace() -> Trace:
    """A list of every message between workers, as a context manager; print it to see a table.

    Raises :class:`~syft.exceptions.HookError` if torch is not hooked.

    >>> x = torch.ones(2).send(bob)
    >>> with sy.trace() as trace:
    ...     y = x + x
    >>> print(trace)  # doctest: +NORMALIZE_WHITESPACE
    ms  from  to   bytes  what
    ...me    bob     ...  torch.Tensor.add
    ...bob   me       3  Done
    2 messages, ... bytes, ... ms
    """
    return Trace(TorchHook.current().local_worker.network)


def send_all(
    tensors: Any,
    location: Location,
    user: str | None = None,
    garbage_collect_data: bool = True,
) -> Any:
    """Send many tensors to a worker in one message: what ``x.send(worker)`` does for each of them.

    ``tensors`` is an iterable of tensors, for which a list of pointers is returned, or a mapping
    (a ``state_dict``), for which a mapping of the same kind is.  A tensor that is listed twice is
    sent twice.  Either all of them are stored there or none is.

    Raises :class:`~syft.exceptions.NotALeaf` for the result of a recorded computation,
    :class:`~syft.exceptions.UnknownWorker`, :class:`~syft.exceptions.PermissionDenied`, and
    :class:`~syft.exceptions.HookError` if torch is not hooked.

    >>> pointers = sy.send_all([torch.ones(2), torch.zeros(3)], bob)
    >>> pointers[1].shape, bob
    (torch.Size([3]), <VirtualWorker id:bob #objects:2>)
    """
    owner = TorchHook.current().local_worker

    def send(values: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        return bulk.send_all(values, location, owner, user, garbage_collect_data)

    return bulk.in_mapping(tensors, send) if isinstance(tensors, Mapping) else send(tensors)


def get_all(pointers: Any, user: str | None = None, keep: bool = False) -> Any:
    """Fetch many remote tensors in one message: what ``pointer.get()`` does for each of them.

    ``pointers`` is an iterable, for which a list is returned, or a mapping (the ``state_dict`` of
    a remote module), for which a mapping of the same kind is.  Pointers to several workers cost
    one message each, all of which are sent before one is waited for.  The objects are removed
    there, unless ``keep`` is set; if one of them cannot be fetched, all stay.  What the data owner
    holds always stays, and so do parameters and a ``state_dict``: their module points to them, and
    ``module.get()`` takes them away.  Two pointers to one object give one tensor.  Shared tensors
    are put together, and their shares stay.

    Raises :class:`~syft.exceptions.NothingToGet` if a tensor is here,
    :class:`~syft.exceptions.ObjectNotFound`, and :class:`~syft.exceptions.PermissionDenied`, which
    names the first object that ``user`` may not read.

    >>> x, y = torch.ones(2).send(bob), torch.zeros(2).send(alice)
    >>> sy.get_all([x, y, x + x])
    [tensor([1., 1.]), tensor([0., 0.]), tensor([2., 2.])]

    The values of a remote module, which stays there, in one message:

    >>> model = torch.nn.Linear(2, 1).send(bob)
    >>> list(sy.get_all(model.state_dict(keep_vars=True)))
    ['weight', 'bias']
    """

    def fetch(values: Iterable[torch.Tensor]) -> list[Any]:
        stay = keep or hasattr(pointers, "_metadata")  # a state_dict
        return sharing_methods.get_all(values, user, stay)

    return bulk.in_mapping(pointers, fetch) if isinstance(pointers, Mapping) else fetch(pointers)


def device(worker: Location) -> torch.device:
    """The device of torch that a worker is: tensors on it are at the worker.

    Raises :class:`~syft.exceptions.UnknownWorker`, and :class:`~syft.exceptions.HookError` if torch
    is not hooked.

    >>> x = torch.ones(2).to(sy.device(bob))
    >>> x.device == sy.device(bob), (x + torch.ones(2, device=x.device)).cpu()
    (True, tensor([2., 2.]))
    """
    return TorchHook.current()._devices.device(worker)


def synchronize() -> None:
    """Wait for every queued worker, and raise the first error that was not raised before.

    >>> bob = sy.VirtualWorker(hook, id="bob", pipelined=True)
    >>> y = torch.ones(2).send(bob) + torch.ones(3).send(bob)
    >>> sy.synchronize()
    Traceback (most recent call last):
    ...
    RuntimeError: The size of tensor a (2) must match the size of tensor b (3) ...
    """
    local = TorchHook.current().local_worker
    sessions = sessions_of(local)
    for session in sessions:
        session.flush()
    local.network.run()
    try:
        for connection in [one for one in local.connections() if one.outstanding]:
            if not connection.transport.closed:
                connection.synchronize()
    finally:  # what ends a session is told as its end
        for session in sessions:
            session.check_failures()
