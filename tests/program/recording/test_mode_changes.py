"""An action notes the modes it ran under where they differ from those at the beginning."""

from __future__ import annotations

import contextlib

import torch

from syft.program.recording.mode_changes import Modes
from syft.program.program import Mode


def bfloat16(enabled: bool = True) -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled)


def test_modes_that_are_as_at_the_beginning_are_none() -> None:
    for surroundings in (contextlib.nullcontext, torch.no_grad, torch.inference_mode, bfloat16):
        with surroundings():
            assert Modes().now() is None


def test_grad_mode_and_inference() -> None:
    modes = Modes()
    with torch.no_grad():
        assert modes.now() == Mode(grad=False)
        with torch.enable_grad():
            assert modes.now() is None
    with torch.inference_mode():
        assert modes.now() == Mode(grad=False, inference=True)
    with torch.no_grad():
        modes = Modes()
        with torch.enable_grad():
            assert modes.now() == Mode(grad=True)


def test_autocast_that_is_switched_on() -> None:
    modes = Modes()
    with bfloat16():
        assert modes.now() == Mode(grad=True, autocast=(("cpu", torch.bfloat16),))
        with bfloat16(enabled=False):
            assert modes.now() is None


def test_autocast_that_is_switched_off_or_over() -> None:
    with bfloat16():
        modes = Modes()
        with bfloat16(enabled=False):
            assert modes.now() == Mode(grad=True, autocast=(("cpu", None),))
        with torch.autocast("cpu", dtype=torch.float16):
            assert modes.now() == Mode(grad=True, autocast=(("cpu", torch.float16),))
