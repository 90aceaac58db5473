"""Modes are compared with those at the beginning, and entered for one action."""

from __future__ import annotations

import contextlib

import torch

from syft.program.program import Mode
from syft.program.torch_modes import ModeChanges, mode_context


def bfloat16(enabled: bool = True) -> torch.autocast:
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled)


def test_modes_that_are_as_at_the_beginning_are_none() -> None:
    for surroundings in (contextlib.nullcontext, torch.no_grad, torch.inference_mode, bfloat16):
        with surroundings():
            assert ModeChanges().current() is None


def test_grad_mode_and_inference() -> None:
    modes = ModeChanges()
    with torch.no_grad():
        assert modes.current() == Mode(grad=False)
        with torch.enable_grad():
            assert modes.current() is None
    with torch.inference_mode():
        assert modes.current() == Mode(grad=False, inference=True)
    with torch.no_grad():
        modes = ModeChanges()
        with torch.enable_grad():
            assert modes.current() == Mode(grad=True)


def test_autocast_that_is_switched_on() -> None:
    modes = ModeChanges()
    with bfloat16():
        assert modes.current() == Mode(grad=True, autocast=(("cpu", torch.bfloat16),))
        with bfloat16(enabled=False):
            assert modes.current() is None


def test_autocast_that_is_switched_off_or_over() -> None:
    with bfloat16():
        modes = ModeChanges()
        with bfloat16(enabled=False):
            assert modes.current() == Mode(grad=True, autocast=(("cpu", None),))
        with torch.autocast("cpu", dtype=torch.float16):
            assert modes.current() == Mode(grad=True, autocast=(("cpu", torch.float16),))


def test_no_mode_is_that_of_the_caller() -> None:
    with mode_context(None):
        assert torch.is_grad_enabled()
    with torch.no_grad(), mode_context(None):
        assert not torch.is_grad_enabled()
