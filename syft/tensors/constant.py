"""Tensors that a forward pass makes for itself: they go to wherever they are used.

``torch.arange(n)`` for positions, ``torch.zeros(2, 3)`` for a first state, ``torch.randn(n)`` for
noise: what a module makes inside its ``forward`` is nobody's data.  So in the forward pass of a
module that was sent, such a tensor stands behind a :class:`ConstantTensor`.  As long as it meets
nothing but numbers and its like, it is computed here, and may be read here.  In a call on remote
tensors it travels along, as a number does.  A call that may write to it, or return its memory, has
it sent first: from then on it is a remote tensor, and so is every view of it.

What a program has loaded is no constant, and nothing that was computed from it is one: it stays
here, and a call that needs it elsewhere is refused, as ever.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from typing import Any, ClassVar, Final

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from syft.callers import SYFT, TORCH
from syft.chain.wrapper import Wrapper
from syft.ops.calls import may_keep, mutated_argument
from syft.ops.control import RECORDING
from syft.ops.nested import Arguments, Keywords, every_tensor, leaves, replace
from syft.ops.table import FACTORY, FUNCTIONS, flags_of, ops_with
from syft.serde.packer import Packer
from syft.serde.registry import Operand, pack, register_packer
from syft.tensors.local import LocalLink
from syft.tensors.pointer import make_pointer
from syft.workers.client.connection import Connection
from syft.workers.labels.memory_labels import full_guard_of

MAKERS: Final = frozenset(FUNCTIONS[number] for number in ops_with(FACTORY))
"""The functions of torch that make a tensor of nothing but numbers."""

_LIBRARIES: Final = (SYFT, os.path.join(TORCH, "nn"), os.path.join(TORCH, "masked"))
"""Where tensors are made that need no help: those of torch's own modules travel by themselves."""

_MEMORY: Final = "_constants"
"""The attribute of memory that says which constants lie there."""
_MOST_REFERENCES: Final = 64

WENT: Final = "_was_constant"
"""The attribute of the wrapper of a constant that was sent: its module brings it back."""


class _SharedMemory:
    """The memory of constants: the wrappers that lie there, and what is known of it."""

    __slots__ = ("wrappers", "loaded", "lent")

    def __init__(self) -> None:
        self.wrappers: list[weakref.ref[Wrapper]] = []
        self.loaded = False
        """Whether something that the program has loaded may be there, or may lie in it, too."""
        self.lent = False
        """Whether an array of numpy lies there, which could not follow."""

    def constants(self) -> list[Wrapper]:
        """The wrappers of the constants that are there."""
        found = [wrapper for reference in self.wrappers if (wrapper := reference()) is not None]
        self.wrappers = list(map(weakref.ref, found))
        return found


def _memory_of(tensor: torch.Tensor) -> _SharedMemory:
    if tensor.layout is not torch.strided:  # no two of them lie in the same memory
        return _SharedMemory()
    memory: _SharedMemory = tensor.untyped_storage().__dict__.setdefault(_MEMORY, _SharedMemory())
    return memory


class ConstantTensor(LocalLink):
    """Stands before a tensor that a forward pass made, and that goes to where it is used.

    >>> x = torch.tensor([1.0, 2.0]).send(bob)
    >>> ones = ConstantTensor().on(torch.ones(2))
    >>> ones * 2, (x + ones * 2).get()
    ((Wrapper)>ConstantTensor>tensor([2., 2.]), tensor([3., 4.]))
    >>> ones.add_(x).get(), ones.location
    (tensor([2., 3.]), <VirtualWorker id:bob #objects:...>)
    """

    __slots__ = ("memory",)

    goes_along: ClassVar[bool] = True

    def on(self, tensor: torch.Tensor) -> Wrapper:
        """Put this link before ``tensor``, and note the wrapper at the tensor's memory.

        >>> ConstantTensor().on(torch.ones(2))
        (Wrapper)>ConstantTensor>tensor([1., 1.])
        """
        wrapper = super().on(tensor)
        self.memory = _memory_of(tensor)
        if len(self.memory.wrappers) >= _MOST_REFERENCES:
            self.memory.constants()
        self.memory.wrappers.append(weakref.ref(wrapper))
        return wrapper

    def array(self, dtype: Any = None) -> Any:
        """The values as an array of numpy, which cannot be written to.

        >>> ConstantTensor().on(torch.ones(2)).child.array()
        array([1., 1.], dtype=float32)
        """
        self.memory.lent = True
        array = self._attached().numpy()
        array = array if dtype is None else array.astype(dtype)
        array.flags.writeable = False
        return array

    def reference(self, connection: Any) -> tuple[int, ...] | None:
        """Not None if the tensor may travel along with a command."""
        tensor = self._attached()
        graph = tensor.requires_grad and torch.is_grad_enabled()
        return None if graph or self.memory.loaded or full_guard_of(tensor) is not None else ()

    def go_to(self, connection: Connection) -> None:
        """Send the tensor: every constant in its memory is a pointer from now on.

        One that requires grad stays, and one whose memory has been loaded or lent.
        """
        tensor = self._attached()
        constants = self.memory.constants()
        graph = any(_as_tensor(one).requires_grad for one in constants)
        if graph or self.memory.lent or self.reference(connection) is None:
            return
        whole = _whole_memory_of(tensor)
        with connection.lock:  # what is noted of the last request is noted of this one
            sent: Any = make_pointer(connection, connection.put(whole, None))
            if connection.replies.pending or connection.groups.open:
                connection.follow_last(sent.child)
        for wrapper in constants:
            link: Any = wrapper.child
            mine, link.tensor = link.tensor, None
            same = mine is whole or _place_of(mine) == _place_of(whole)
            wrapper.child = sent.child if same else sent.as_strided(*_place_of(mine)).child
            wrapper.__dict__[WENT] = True

    @classmethod
    def call(cls, operation: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Run a call here if all its tensors are here, and where the other ones are if not.

        >>> ConstantTensor.call(torch.add, (ConstantTensor().on(torch.ones(2)), torch.ones(2)), {})
        tensor([2., 2.])
        """
        tensors = every_tensor(args, kwargs)
        if all(map(_is_constant, tensors)):
            return super().call(operation, args, kwargs)
        for one in tensors:
            if type(one) is Wrapper and one.child.at_function_level and type(one.child) is not cls:
                return type(one.child).call(operation, args, kwargs)
        flags = flags_of(operation)
        target = mutated_argument(flags, args, kwargs)
        for one in tensors:
            if _is_constant(one) and may_keep(flags, target, one):
                one.child.memory.loaded = True  # type: ignore[attr-defined]
        result = operation(*replace(args, _as_tensor), **replace(kwargs, _as_tensor))
        return result if target is None or result is None else target


def _whole_memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor over all the memory in which another one lies: that of which it is a view, if that
    fills it."""
    if tensor.layout is not torch.strided:
        return tensor
    whole = (tensor if tensor._base is None else tensor._base).detach()
    storage = whole.untyped_storage()
    if whole.is_contiguous() and whole.nbytes == storage.nbytes():
        return whole
    return torch.empty(0, dtype=whole.dtype, device=whole.device).set_(storage)


def _place_of(tensor: torch.Tensor) -> tuple[Any, Any, Any]:
    return tensor.size(), tensor.stride(), tensor.storage_offset()


def _is_constant(value: Any) -> bool:
    """Whether a value is a constant, in whose memory nothing was loaded."""
    link: Any = value.child if type(value) is Wrapper else None
    return type(link) is ConstantTensor and not link.memory.loaded


def _as_tensor(value: Any) -> Any:
    """The tensor behind a constant."""
    link: Any = value.child if type(value) is Wrapper else None
    return link._attached() if type(link) is ConstantTensor else value


def _pack(link: ConstantTensor, packer: Packer) -> Operand:
    return pack(link._attached(), packer)


register_packer(ConstantTensor, _pack)


class MakingConstants(TorchFunctionMode):
    """A mode in which tensors that are made of nothing but numbers are changed by ``made``.

    What is to be on a device that only a worker has is made here on the CPU, and ``sent`` takes it
    to the worker.

    >>> with MakingConstants(lambda tensor: ConstantTensor().on(tensor)):
    ...     ones, loaded = torch.ones(2), torch.tensor(np.ones(2))
    >>> ones, loaded
    ((Wrapper)>ConstantTensor>tensor([1., 1.]), tensor([1., 1.], dtype=torch.float64))
    """

    def __init__(
        self,
        made: Callable[[torch.Tensor], torch.Tensor],
        sent: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.made, self.sent = made, sent

    def __torch_function__(
        self, func: Any, types: Any, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.to and self.sent is not None and _is_constant(args[0]):
            return self._moved(args[0], args[1:], kwargs)
        if func not in MAKERS or RECORDING.get() is not None:
            return func(*args, **kwargs)
        device = kwargs.get("device")
        elsewhere = self.sent is not None and device is not None and not _is_here(device)
        result = func(*args, **{**kwargs, "device": None} if elsewhere else kwargs)
        if type(result) is not torch.Tensor or any(map(_holds_data, leaves((args, kwargs)))):
            return result
        if elsewhere and self.sent is not None:
            return self.sent(result).to(device)
        return result if _is_called_by_library() else self.made(result)

    def _moved(self, constant: Any, args: Arguments, kwargs: Keywords) -> Any:
        """``constant.to(...)``, at the worker if only that has the device."""
        devices = [one for one in (*args, *kwargs.values()) if isinstance(one, _NAMES_A_DEVICE)]
        if self.sent is not None and not all(map(_is_here, devices)):
            constant = self.sent(_as_tensor(constant))
        return constant.to(*args, **kwargs)


def _is_called_by_library() -> bool:
    """Whether the caller of the caller is a library, which a mode between the two is not."""
    frame = sys._getframe(2)
    while frame.f_code.co_name == "__torch_function__" and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename.startswith(_LIBRARIES)


_NAMES_A_DEVICE: Final = (torch.device, str)


def _is_here(device: Any) -> bool:
    """Whether this process can make tensors on a device."""
    kind = torch.device(device).type
    return kind in _EVERYWHERE or torch.get_device_module(kind).is_available()


_EVERYWHERE: Final = frozenset(("cpu", "meta", "syft"))


def _holds_data(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or isinstance(value, np.ndarray) and value.ndim > 0
