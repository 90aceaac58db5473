"""The torch modes an action runs under, where they differ from those a recording began with."""

from __future__ import annotations

import torch

from syft.program.program import Mode
from syft.torch_private import any_autocast_enabled

_DEVICES = ("cpu", "cuda")
Autocast = tuple[tuple[str, torch.dtype | None], ...]


class Modes:
    """The modes at one moment, to tell later ones from.

    >>> modes = Modes()
    >>> modes.now()
    >>> with torch.no_grad():
    ...     modes.now()
    Mode(grad=False, inference=False, autocast=())
    """

    __slots__ = ("_grad", "_inference", "_autocast")

    def __init__(self) -> None:
        self._grad = torch.is_grad_enabled()
        self._inference = torch.is_inference_mode_enabled()
        self._autocast = _autocast()

    def now(self) -> Mode | None:
        """The modes of this moment; None where they are those of the beginning."""
        grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        autocast = self._changed() if self._autocast or any_autocast_enabled() else ()
        if grad is self._grad and inference is self._inference and not autocast:
            return None
        return Mode(grad, inference, autocast)

    def _changed(self) -> Autocast:
        """The devices whose autocast is another than at the beginning."""
        before, now = dict(self._autocast), dict(_autocast())
        return tuple(
            (device, now.get(device))
            for device in _DEVICES
            if before.get(device) is not now.get(device)
        )


def _autocast() -> Autocast:
    if not any_autocast_enabled():
        return ()
    return tuple(
        (device, torch.get_autocast_dtype(device))
        for device in _DEVICES
        if torch.is_autocast_enabled(device)
    )
