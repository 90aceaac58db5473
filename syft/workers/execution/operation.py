"""Running one operation for a caller, under the caller's modes.

An operation on public values is a function call.  What is computed from private ones is in
:mod:`syft.workers.execution.private_commands`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch

from syft.exceptions import NoSuchDevice
from syft.ops.control import RECORDING
from syft.ops.nested import Function
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
from syft.workers.wire.messages import DEFAULT_DTYPE, GRAD_MODE, INFERENCE_MODE


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
    return _without_modes(recording, tracing)


def _without_modes(recording: Any, tracing: Any) -> contextlib.ExitStack:
    """A context without what this thread has of all that, which is left as this is called."""
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


_NO_DEVICE: Final = (
    "Torch not compiled with CUDA",
    "No CUDA GPUs are available",
    "Found no NVIDIA driver",
    "CUDA error: invalid device ordinal",
)
"""How torch begins to say that there is no such device."""


def without_device(error: BaseException, worker: str) -> BaseException:
    """What a caller is told of an error: where torch misses a device, one sentence, with the place
    and the notes that the error has.

    >>> without_device(AssertionError("Torch not compiled with CUDA enabled"), "bob")
    NoSuchDevice('bob', 'Torch not compiled with CUDA enabled')
    >>> without_device(ValueError("no size"), "bob")
    ValueError('no size')
    """
    text = error.args[0] if error.args else None
    if not (isinstance(text, str) and text.startswith(_NO_DEVICE)):
        return error
    told = NoSuchDevice(worker, text.splitlines()[0]).with_traceback(error.__traceback__)
    for note in getattr(error, "__notes__", ()):
        told.add_note(note)
    return told
