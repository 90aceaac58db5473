"""Limits on the size of one message.

Each limit is checked *before* memory of that size is allocated.  The defaults admit a model of a
few gigabytes and prevent that a hostile frame exhausts the machine's memory; both sides of a
connection may agree on others.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that a receiver checks.

    >>> Limits(max_dims=4).max_dims
    4
    """

    max_bytes: int = 1 << 32
    """Bytes of a whole frame, and of all its tensor buffers together once decompressed."""
    max_header_bytes: int = 1 << 24
    """Bytes of the MessagePack header."""
    max_buffers: int = 1 << 16
    """Tensor buffers in one frame."""
    max_depth: int = 64
    """Levels of nesting of typed values."""
    max_items: int = 1 << 20
    """Items of all containers of one message together."""
    max_dims: int = 64
    """Dimensions of a tensor; torch itself stops at 64."""
    max_elements: int = 1 << 32
    """Elements of a tensor, repeated ones of an expanded tensor included."""
    max_text: int = 1 << 16
    """Characters of a traceback or note that come with an error."""
    max_actions: int = 100_000
    """Actions of a program, and values it is given before the first."""
    max_constant_bytes: int = 1 << 26
    """Bytes of the constants of a program together."""
    max_steps: int = 1 << 18
    """Actions that the turns of all loops of a program may have together in one run."""


DEFAULT_LIMITS = Limits()
"""The limits where none are given."""
