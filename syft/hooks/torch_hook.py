"""``TorchHook(torch)``: gives torch its new methods, and this process its local worker.

Nothing of torch is replaced.  Calls on sent, encrypted or wrapped tensors find their way by
torch's own override protocols, so a plain tensor costs after the hook what it cost before.
``close()`` takes every added attribute away again.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import nn

from syft.exceptions import HookError
from syft.hooks import module_methods, tensor_methods
from syft.hooks.ledger import Attribute, Ledger
from syft.hooks.module_methods import ModuleAttribute
from syft.hooks.optimizer_state import StateFollower
from syft.plans.abstract_plan import AbstractPlan
from syft.plans.remote.sending import LocalPlanSender
from syft.tensors import conversions
from syft.tensors.multi_pointer import combine
from syft.workers.client.transport import Owner
from syft.workers.shells.message_log import MessageLog
from syft.workers.shells.message_trace import Trace
from syft.workers.shells.virtual import VirtualWorker


class TorchHook:
    """Hooks torch; a second call returns the hook that is there.

    ``local_worker`` is the worker this process speaks as (by default a new one called ``me``);
    ``is_client`` sets its ``is_client_worker`` (without it: true for a new hook, and left alone on
    one that is there).  Raises :class:`~syft.exceptions.HookError`, and leaves torch as it was, if
    torch is hooked already with another local worker, if it has an attribute of a name that syft
    adds, or if something else than torch is passed.

    >>> hook = TorchHook(torch)
    >>> TorchHook(torch) is hook
    True
    >>> hook.local_worker.id
    'me'
    """

    _current: ClassVar[TorchHook | None] = None

    local_worker: VirtualWorker
    _ledger: Ledger
    _follower: StateFollower

    def __new__(
        cls,
        module: ModuleType,
        local_worker: VirtualWorker | None = None,
        is_client: bool | None = None,
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
            self._teach_tensors()
            self._teach_modules()
            self._follower = StateFollower(self.local_worker)
        except BaseException:
            self._ledger.undo()
            if local_worker is None:
                self.local_worker.close()
            raise
        self.local_worker.is_client_worker = is_client is not False
        cls._current = self
        AbstractPlan.sender = LocalPlanSender(self.local_worker)
        return self

    @classmethod
    def current(cls) -> TorchHook:
        """The hook in force; raises :class:`~syft.exceptions.HookError` if torch is not hooked.

        >>> hook = TorchHook(torch)
        >>> TorchHook.current() is hook
        True
        """
        if cls._current is None:
            raise HookError("torch is not hooked", "call sy.TorchHook(torch) first")
        return cls._current

    def close(self) -> None:
        """Take back everything that was added to torch, and close every worker of the network.

        >>> hook = TorchHook(torch)
        >>> hook.close()
        >>> hasattr(torch.Tensor, "send")
        False
        """
        if TorchHook._current is not self:
            return
        TorchHook._current = None
        AbstractPlan.sender = None
        self._ledger.undo()
        self._follower.close()
        for worker in list(self.local_worker.network.workers.values()):
            worker.close()

    def record(self) -> MessageLog:
        """A recording of every message between workers, as a context manager.

        >>> hook = TorchHook(torch)
        >>> with hook.record() as log:
        ...     pass
        >>> len(log)
        0
        """
        return MessageLog(self.local_worker.network)

    # ------------------------------------------------------------------------- what torch learns

    def _teach_tensors(self) -> None:
        def send(
            tensor: torch.Tensor,
            *locations: tensor_methods.Location,
            garbage_collect_data: bool = True,
            id: tensor_methods.Id = None,
            user: str | None = None,
        ) -> torch.Tensor:
            owner = self.local_worker
            return tensor_methods.send(
                tensor,
                *locations,
                owner=owner,
                garbage_collect_data=garbage_collect_data,
                id=id,
                user=user,
            )

        def owner(tensor: torch.Tensor) -> Owner:
            """The worker that holds the tensor, or the pointer to it.

            >>> import torch, syft as sy
            >>> hook = sy.TorchHook(torch)
            >>> bob = sy.VirtualWorker(hook, id="bob")
            >>> x = torch.tensor([1.0, 2.0]).send(bob)
            >>> x.owner is hook.local_worker, torch.ones(2).owner is hook.local_worker
            (True, True)
            """
            link = tensor_methods.pointer_of(tensor)
            return self.local_worker if link is None else link.owner

        def tag(tensor: torch.Tensor, *tags: str) -> torch.Tensor:
            tensor_methods.tag(tensor, *tags)
            if not self.local_worker.is_client_worker:
                tensor_methods.offer(tensor, self.local_worker)
            return tensor

        def combined(tensor: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
            """Combine this pointer with pointers to other workers into one multi-pointer.

            >>> import torch, syft as sy
            >>> hook = sy.TorchHook(torch)
            >>> alice, bob = (sy.VirtualWorker(hook, id=name) for name in ("alice", "bob"))
            >>> x = torch.ones(2).send(alice).combine(torch.zeros(2).send(bob))
            >>> (x + 1).get()
            [tensor([2., 2.]), tensor([1., 1.])]
            """
            return combine([tensor, *others])

        send.__doc__ = tensor_methods.send.__doc__
        tag.__doc__ = tensor_methods.tag.__doc__
        methods: dict[str, Callable[..., Any]] = {
            "send": send,
            "get": tensor_methods.get,
            "move": tensor_methods.move,
            "copy": tensor_methods.copy,
            "remote_get": tensor_methods.remote_get,
            "remote_send": tensor_methods.remote_send,
            "tag": tag,
            "describe": tensor_methods.describe,
            "begin_msg_group": tensor_methods.begin_msg_group,
            "release_msg_group": tensor_methods.release_msg_group,
            "private_tensor": tensor_methods.private_tensor,
            "combine": combined,
            "fix_precision": conversions.fix_precision,
            "fix_prec": conversions.fix_precision,
            "fix_precision_": conversions.fix_precision_,
            "fix_prec_": conversions.fix_precision_,
            "float_precision": conversions.float_precision,
            "float_prec": conversions.float_precision,
            "float_precision_": conversions.float_precision_,
            "float_prec_": conversions.float_precision_,
        }
        attributes: dict[str, Callable[..., Any]] = {
            "location": tensor_methods.location,
            "owner": owner,
            "id": tensor_methods.identity,
            "id_at_location": tensor_methods.id_at_location,
            "tags": tensor_methods.tags,
            "description": tensor_methods.description,
        }
        for name, method in methods.items():
            self._ledger.add(torch.Tensor, name, method)
        for name, compute in attributes.items():
            self._ledger.add(torch.Tensor, name, Attribute(name, compute))
        self._ledger.add(torch.Tensor, "child", None)

    def _teach_modules(self) -> None:
        def send(module: nn.Module, *locations: Any, user: str | None = None) -> nn.Module:
            return module_methods.send(module, *locations, owner=self.local_worker, user=user)

        def owner(module: nn.Module) -> Owner:
            """The worker that holds the module, or the pointers to its parameters.

            >>> import torch, syft as sy
            >>> hook = sy.TorchHook(torch)
            >>> bob = sy.VirtualWorker(hook, id="bob")
            >>> model = torch.nn.Linear(2, 1)
            >>> model.send(bob).owner is hook.local_worker
            True
            """
            for tensor in module_methods.tensors_of(module):
                link = tensor_methods.pointer_of(tensor)
                return self.local_worker if link is None else link.owner
            return self.local_worker

        send.__doc__ = module_methods.send.__doc__
        methods: dict[str, Callable[..., Any]] = {
            "send": send,
            "get": module_methods.get,
            "move": module_methods.move,
            "copy": module_methods.copy,
            "fix_precision": module_methods.fix_precision,
            "fix_prec": module_methods.fix_precision,
            "float_precision": module_methods.float_precision,
            "float_prec": module_methods.float_precision,
        }
        for name, method in methods.items():
            self._ledger.add(nn.Module, name, ModuleAttribute(name, method, is_method=True))
        for name, compute in {"location": module_methods.location, "owner": owner}.items():
            self._ledger.add(nn.Module, name, ModuleAttribute(name, compute, is_method=False))


def trace() -> Trace:
    """A list of every message between workers, as a context manager; print it to see a table.

    Raises :class:`~syft.exceptions.HookError` if torch is not hooked.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> bob = sy.VirtualWorker(hook, id="bob")
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


def synchronize() -> None:
    """Let every queued worker finish, and raise the first error nobody has seen yet.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> bob = sy.VirtualWorker(hook, id="bob", pipelined=True)
    >>> y = torch.ones(2).send(bob) + torch.ones(3).send(bob)
    >>> sy.synchronize()
    Traceback (most recent call last):
    ...
    RuntimeError: The size of tensor a (2) must match the size of tensor b (3) ...
    """
    local = TorchHook.current().local_worker
    local.network.run()
    for connection in local.connections():
        if not connection.transport.closed:
            connection.synchronize()
