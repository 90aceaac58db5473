"""What a protocol sends: values that the parties open together.

A protocol is a generator.  It yields a :class:`ShareOpening` of its own shares, and is resumed
with the opened values.  It does not know who carries them.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class ShareOpening:
    """Shares to be opened, of dtype int64: added up modulo 2^64, or if ``bits`` joined by xor.

    Whoever carries them does not copy: nobody writes to these tensors, nor to what comes back.

    >>> ShareOpening((torch.tensor([1]),)).bits
    False
    """

    shares: Sequence[torch.Tensor]
    bits: bool = False


Protocol = Generator[ShareOpening, Sequence[torch.Tensor], Any]
"""Yields openings; returns the party's shares of the result."""
