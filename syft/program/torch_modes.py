"""Torch's modes (grad mode, inference mode, autocast): noticed by a recording, entered by a run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from syft.program.program import Mode
from syft.torch_private import any_autocast_enabled

_DEVICES = ("cpu", "cuda")
Autocast = tuple[tuple[str, torch.dtype | None], ...]


@contextlib.contextmanager
def mode_context(mode: Mode | None) -> Iterator[None]:
    """A context in which the torch modes are those an action was recorded under.

    >>> with mode_context(Mode(grad=False)):
    ...     torch.is_grad_enabled()
    False
    """
    if mode is None:
        yield
        return
    with contextlib.ExitStack() as modes:
        if mode.inference:
            modes.enter_context(torch.inference_mode())
        modes.enter_context(torch.set_grad_enabled(mode.grad))
        for device, dtype in mode.autocast:
            context = torch.autocast(device, dtype=dtype, enabled=dtype is not None)
            modes.enter_context(context)
        yield


class ModeChanges:
    """Compares the modes of later moments with those of the moment it was made.

    >>> changes = ModeChanges()
    >>> changes.current()
    >>> with torch.no_grad():
    ...     changes.current()
    Mode(grad=False, inference=False, autocast=())
    """

    __slots__ = ("_grad", "_inference", "_autocast")

    def __init__(self) -> None:
        self._grad = torch.is_grad_enabled()
        self._inference = torch.is_inference_mode_enabled()
        self._autocast = _autocast_now()

    def current(self) -> Mode | None:
        """The modes of this moment; None if none has changed."""
        grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        autocast = self._autocast_changes() if self._autocast or any_autocast_enabled() else ()
        if grad is self._grad and inference is self._inference and not autocast:
            return None
        return Mode(grad, inference, autocast)

    def _autocast_changes(self) -> Autocast:
        """The devices whose autocast has changed, with its dtype; None where it is off now."""
        before, now = dict(self._autocast), dict(_autocast_now())
        return tuple(
            (device, now.get(device))
            for device in _DEVICES
            if before.get(device) is not now.get(device)
        )


def _autocast_now() -> Autocast:
    if not any_autocast_enabled():
        return ()
    return tuple(
        (device, torch.get_autocast_dtype(device))
        for device in _DEVICES
        if torch.is_autocast_enabled(device)
    )
