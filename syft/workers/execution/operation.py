"""Running one operation for a caller: under the caller's modes, and without freed memory showing.

An operation on public values is a function call.  What is computed from private ones is in
:mod:`syft.workers.execution.private_commands`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import torch

from syft.ops.control import RECORDING
from syft.ops.nested import leaves
from syft.torch_private import (
    any_autocast_enabled,
    dispatch_modes,
    function_modes,
    saved_tensor_hooks,
    set_grad_enabled,
    set_tracing_state,
    tracing_state,
    unobserved,
)
from syft.workers.execution.function_wrapper import FunctionWrapper
from syft.workers.labels.walk import elements_of, storages_of, strided_parts_of
from syft.workers.wire.messages import DEFAULT_DTYPE, GRAD_MODE, INFERENCE_MODE

Function = Callable[..., Any]

_COMPRESSED: Final = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
"""The layouts whose parts torch enlarges where they are."""


def run_in_mode(
    function: Function,
    args: Any,
    kwargs: dict[str, Any],
    flags: int,
    autocast: Iterable[tuple[str, torch.dtype]],
) -> Any:
    """Call ``function`` under the caller's grad mode, inference mode, autocast and default dtype.

    >>> run_in_mode(torch.is_grad_enabled, (), {}, 0, ())
    False
    >>> run_in_mode(torch.is_grad_enabled, (), {}, GRAD_MODE, ())
    True
    """
    before = torch.is_grad_enabled()
    set_grad_enabled(bool(flags & GRAD_MODE))
    try:
        with contextlib.ExitStack() as modes:
            if flags & INFERENCE_MODE:
                modes.enter_context(torch.inference_mode())
            wanted = dict(autocast)
            modes.enter_context(_default_dtype(wanted.get(DEFAULT_DTYPE, torch.float32)))
            for device in ("cpu", "cuda"):
                if device in wanted:
                    modes.enter_context(torch.autocast(device, dtype=wanted[device]))
                elif torch.is_autocast_enabled(device):
                    modes.enter_context(torch.autocast(device, enabled=False))
            return function(*args, **kwargs)
    finally:
        set_grad_enabled(before)


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """A context with this default dtype; it belongs to the process, so it is only set if it
    differs: other threads may be at work."""
    before = torch.get_default_dtype()
    if before is dtype:
        yield
        return
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


_NEUTRAL: Final = contextlib.nullcontext()


def neutral_mode() -> contextlib.AbstractContextManager[Any]:
    """A context without the modes, the hooks on saved tensors, the anomaly mode and the trace of
    TorchScript that this thread has, in which a worker handles messages.

    A worker in the process of its caller runs on the caller's thread, and a queued one while some
    caller waits for a result.  The caller's hooks and modes would see the worker's tensors.
    The modes of a command itself are in its message.
    A plan that is being recorded by that caller does not see the command.
    """
    recording = RECORDING.get()
    outer = (
        torch.is_inference_mode_enabled()
        or any_autocast_enabled()
        or function_modes()
        or dispatch_modes()
        or saved_tensor_hooks(True) is not None
        or torch.is_anomaly_enabled()
    )
    tracing = tracing_state()
    if recording is None and not outer and tracing is None:
        return _NEUTRAL
    modes = contextlib.ExitStack()
    if tracing is not None:
        modes.callback(set_tracing_state, tracing)
        set_tracing_state(None)
    if recording is not None:
        modes.enter_context(recording.paused())
    modes.enter_context(unobserved())
    if torch.is_anomaly_enabled():
        modes.enter_context(torch.autograd.set_detect_anomaly(False))
    if torch.is_inference_mode_enabled():
        modes.enter_context(torch.inference_mode(False))
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            modes.enter_context(torch.autocast(device, enabled=False))
    return modes


def clearing(function: Function) -> Function:
    """The same function, with zeros in all memory that it allocates and does not write.

    Freed memory may contain private values of other users.

    >>> clearing(torch.empty)(2)
    tensor([0., 0.])
    >>> clearing(torch.empty) in {torch.empty}
    True
    """
    return _Clearing(function)


class _Clearing(FunctionWrapper):
    __slots__ = ()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        known = {id(storage): (storage, storage.nbytes()) for storage in _memory((args, kwargs))}
        result = self.function(*args, **kwargs)
        if self.function is torch.Tensor.new and _is_data(args[1:]):
            return result
        for storage in _memory(result):
            _, written = known.get(id(storage), (storage, 0))
            clear_behind(storage, written)
        return result


@contextlib.contextmanager
def sizes_within_memory(values: Any) -> Iterator[None]:
    """A context in which a tensor of ``values`` that cannot be enlarged keeps the size it has, and
    in which what fails leaves zeros in the memory that it has given to one.

    Torch gives a tensor its new size first and the memory for it then.  Where it cannot (numpy sees
    the memory, as it does once a tensor has been sent, or there is not as much), the tensor would
    be read and written beyond its memory by what comes next (torch 2.13).  Where it can, and fails
    afterwards (a result of another dtype, a memory format that does not fit), nobody has written
    that memory.

    >>> import numpy
    >>> x = torch.from_numpy(numpy.ones(2))
    >>> with sizes_within_memory([x]):
    ...     x.resize_(4)
    Traceback (most recent call last):
    ...
    RuntimeError: Trying to resize storage that is not resizable
    >>> x
    tensor([1., 1.], dtype=torch.float64)
    """
    tensors = [
        tensor
        for value in leaves(values)
        if (tensor := elements_of(value)) is not None and strided_parts_of(tensor)
    ]
    before = [(tensor, _as_it_is(tensor)) for tensor in tensors]
    memory = [(storage, storage.nbytes()) for storage in _memory(tensors)]
    try:
        yield
    except BaseException:
        for storage, written in memory:
            if storage.nbytes() > written:
                clear_behind(storage, written)
        raise
    finally:
        for tensor, kept in before:
            if is_beyond_memory(tensor):
                tensor.data = kept


class KeepingSizes(FunctionWrapper):
    """A function that runs within :func:`sizes_within_memory` of its operands.

    >>> KeepingSizes(torch.Tensor.resize_)(torch.ones(1), 1)
    tensor([1.])
    """

    __slots__ = ()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        with sizes_within_memory((args, kwargs)):
            return self.function(*args, **kwargs)


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    """Another tensor over the same memory, which stays as it is when this one is given a size."""
    if tensor.layout not in _COMPRESSED:
        return tensor.detach()
    compressed, plain, values = (part.detach() for part in strided_parts_of(tensor))
    return torch.sparse_compressed_tensor(
        compressed, plain, values, tensor.shape, layout=tensor.layout, check_invariants=False
    )


def is_beyond_memory(value: Any) -> bool:
    """Whether a tensor has more elements than its memory, which only a fault of torch can do.

    >>> is_beyond_memory(torch.ones(2)), is_beyond_memory("text")
    (False, False)
    """
    return any(map(_is_part_beyond, strided_parts_of(value)))


def _is_part_beyond(tensor: torch.Tensor) -> bool:
    # torch enlarges no nested tensor
    return not tensor.is_nested and end_of(tensor) > tensor.untyped_storage().nbytes()


def end_of(tensor: torch.Tensor) -> int:
    """Where the last element of a strided tensor ends, in bytes from where its memory begins.

    >>> end_of(torch.arange(6.0)[1:3])
    12
    """
    if not tensor.numel():
        return 0
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.storage_offset() + last + 1) * tensor.itemsize


def clear_behind(storage: torch.UntypedStorage, written: int) -> None:
    """Put zeros behind the bytes of a storage that were written.

    >>> x = torch.ones(3); clear_behind(x.untyped_storage(), 4); x
    tensor([1., 0., 0.])
    """
    memory = torch.empty(0, dtype=torch.uint8, device=storage.device)
    memory.set_(storage)[written:].zero_()


def _memory(values: Any) -> list[torch.UntypedStorage]:
    return [storage for value in leaves(values) for storage in storages_of(value)]


def _is_data(args: tuple[Any, ...]) -> bool:
    """Whether these arguments of ``x.new`` are the elements of the new tensor, and not its size."""
    return any(not isinstance(arg, (int, torch.Size)) for arg in args)
