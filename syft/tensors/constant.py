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
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from syft.callers import SYFT, TORCH
from syft.chain.wrapper import Wrapper
from syft.ops.calls import mutated_argument
from syft.ops.control import RECORDING
from syft.ops.nested import Arguments, Keywords, leaves, replace
from syft.ops.table import FACTORY, FUNCTIONS, flags_of, ops_with
from syft.serde.packer import Packer
from syft.serde.registry import Operand, pack, register_packer
from syft.tensors.local import LocalLink
from syft.tensors.pointer import make_pointer
from syft.workers.client.connection import Connection

MAKERS: Final = frozenset(FUNCTIONS[number] for number in ops_with(FACTORY))
"""The functions of torch that make a tensor of nothing but numbers."""

_LIBRARIES: Final = (SYFT, os.path.join(TORCH, "nn"), os.path.join(TORCH, "masked"))
"""Where tensors are made that need no help: those of torch's own modules travel by themselves."""

_WRAPPERS: Final = "_constants"
"""The attribute of memory that holds references to the wrappers of the constants that lie there."""


WENT: Final = "_was_constant"
"""The attribute of the wrapper of a constant that was sent: its module brings it back."""


class ConstantTensor(LocalLink):
    """Stands before a tensor that a forward pass made, and that goes to where it is used.

    >>> x = torch.tensor([1.0, 2.0]).send(bob)
    >>> ones = ConstantTensor().on(torch.ones(2))
    >>> ones * 2, (x + ones * 2).get()
    ((Wrapper)>ConstantTensor>tensor([2., 2.]), tensor([3., 4.]))
    >>> ones.add_(x).get(), ones.location
    (tensor([2., 3.]), <VirtualWorker id:bob #objects:...>)
    """

    __slots__ = ("loaded",)

    goes_along: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.loaded = False
        """Whether something that the program has loaded was written to it."""

    def on(self, tensor: torch.Tensor) -> Wrapper:
        """Put this link before ``tensor``, and note the wrapper at the tensor's memory.

        >>> len(ConstantTensor().on(torch.ones(2)).child.here())
        2
        """
        wrapper = super().on(tensor)
        tensor.untyped_storage().__dict__.setdefault(_WRAPPERS, []).append(weakref.ref(wrapper))
        return wrapper

    def here(self) -> torch.Tensor | None:
        """The tensor, which may be read in this process."""
        return self._attached()

    def reference(self, connection: Any) -> tuple[int, ...] | None:
        """Not None if the tensor may travel along with a command."""
        tensor = self._attached()
        graph = tensor.requires_grad and torch.is_grad_enabled()
        return None if graph or self.loaded else ()

    def go_to(self, connection: Connection) -> None:
        """Send the tensor: every constant in its memory is a pointer from now on."""
        tensor = self._attached()
        if self.reference(connection) is None:
            return
        whole = (tensor if tensor._base is None else tensor._base).detach()
        if not (whole.is_contiguous() and whole.nbytes == whole.untyped_storage().nbytes()):
            storage = whole.untyped_storage()
            whole = torch.empty(0, dtype=whole.dtype, device=whole.device).set_(storage)
        with connection.lock:  # what is noted of the last request is noted of this one
            sent: Any = make_pointer(connection, connection.put(whole, None))
            if connection.pending or connection.groups:
                connection.follow_last(sent.child)
        for wrapper in _constants_in(tensor):
            link: Any = wrapper.child
            mine = link.tensor
            link.tensor = None
            place = (mine.size(), mine.stride(), mine.storage_offset())
            as_sent = place == (whole.size(), whole.stride(), whole.storage_offset())
            wrapper.child = sent.child if as_sent else sent.as_strided(*place).child
            wrapper.__dict__[WENT] = True

    @classmethod
    def call(cls, operation: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Run a call here if all its tensors are here, and where the other ones are if not.

        >>> ConstantTensor.call(torch.add, (ConstantTensor().on(torch.ones(2)), torch.ones(2)), {})
        tensor([2., 2.])
        """
        others = [one for one in leaves((args, kwargs)) if _is_other(one)]
        if not others:
            return super().call(operation, args, kwargs)
        for one in others:
            if type(one) is Wrapper and one.child.at_function_level:
                return type(one.child).call(operation, args, kwargs)
        target = mutated_argument(flags_of(operation), args, kwargs)
        for written in leaves(target):
            if type(written) is Wrapper and type(written.child) is cls:
                for wrapper in _constants_in(written.child._attached()):
                    wrapper.child.loaded = True  # type: ignore[attr-defined]
        result = operation(*replace(args, _as_tensor), **replace(kwargs, _as_tensor))
        return result if target is None or result is None else target


def _constants_in(tensor: torch.Tensor) -> Iterator[Wrapper]:
    """The wrappers of the constants that lie in the memory of a tensor."""
    for reference in tensor.untyped_storage().__dict__.get(_WRAPPERS, ()):
        wrapper = reference()
        if wrapper is not None and type(wrapper.child) is ConstantTensor:
            yield wrapper


def _is_other(value: Any) -> bool:
    """Whether a value is a tensor, and no constant."""
    if type(value) is Wrapper:
        return type(value.child) is not ConstantTensor
    return isinstance(value, torch.Tensor)


def _as_tensor(value: Any) -> Any:
    """The tensor behind a constant."""
    if type(value) is Wrapper and type(value.child) is ConstantTensor:
        return value.child._attached()
    return value


def _pack(link: ConstantTensor, packer: Packer) -> Operand:
    return pack(link._attached(), packer)


register_packer(ConstantTensor, _pack)


class MakingConstants(TorchFunctionMode):
    """A mode in which tensors that are made of nothing but numbers are changed by ``made``.

    >>> with MakingConstants(lambda tensor: ConstantTensor().on(tensor)):
    ...     ones, loaded = torch.ones(2), torch.tensor(np.ones(2))
    >>> ones, loaded
    ((Wrapper)>ConstantTensor>tensor([1., 1.]), tensor([1., 1.], dtype=torch.float64))
    """

    def __init__(self, made: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.made = made

    def __torch_function__(
        self, func: Any, types: Any, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func not in MAKERS or type(result) is not torch.Tensor or RECORDING.get() is not None:
            return result
        if any(map(_holds_data, leaves((args, kwargs)))):
            return result
        made_by_library = sys._getframe(1).f_code.co_filename.startswith(_LIBRARIES)
        return result if made_by_library else self.made(result)


def _holds_data(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or isinstance(value, np.ndarray) and value.ndim > 0
