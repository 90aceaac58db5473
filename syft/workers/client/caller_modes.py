"""The torch modes of the caller, as they travel with what it asks for."""

from __future__ import annotations

from typing import Any

import torch
from torch import float32, get_default_dtype, is_grad_enabled

from syft.exceptions import UnsupportedOperation
from syft.torch_private import (
    any_autocast_enabled,
    custom_function,
    inside_custom_function,
    open_device,
)
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.wire.messages import DEFAULT_DTYPE, GRAD_MODE, INFERENCE_MODE


def modes() -> tuple[int, Any]:
    """The flags and the autocast state with which a command of this line travels.

    >>> modes() == (GRAD_MODE, None)
    True
    """
    flags = GRAD_MODE if is_grad_enabled() else mode_without_grad()
    casting = any_autocast_enabled() or get_default_dtype() is not float32
    return flags, autocast_state() if casting else None


def mode_without_grad() -> int:
    """The flags of a command where autograd records nothing.

    Raises :class:`~syft.exceptions.UnsupportedOperation` in the forward of a custom
    ``torch.autograd.Function``, whose backward would be lost.

    >>> mode_without_grad()
    0
    """
    if torch.is_inference_mode_enabled():
        return INFERENCE_MODE
    if inside_custom_function():
        what, instead = custom_function()
        raise UnsupportedOperation(what, "PointerTensor", instead)
    return 0


def autocast_state() -> tuple[Any, ...]:
    """``(device type, packed dtype)`` for each device on which autocast is on, and
    ``("default", packed dtype)`` if the default dtype is not float32.

    >>> autocast_state()
    ()
    """
    dtypes = {
        device: torch.get_autocast_dtype(device)
        for device in ("cpu", "cuda")
        if torch.is_autocast_enabled(device)
    }
    of_devices = open_device()
    if torch.is_autocast_enabled(of_devices):  # workers, which compute on their CPUs
        dtypes["cpu"] = torch.get_autocast_dtype(of_devices)
    if (default := torch.get_default_dtype()) is not torch.float32:
        dtypes[DEFAULT_DTYPE] = default
    return tuple((place, pack(dtype, Packer())) for place, dtype in dtypes.items())
