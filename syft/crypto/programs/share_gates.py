"""The instructions that use dealt randomness: how each is dealt, and the protocol that uses it.

One table serves the provider, which deals without seeing an operand, and the parties.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from syft.crypto.dealing import Dealer
from syft.crypto.gates.comparison import deal_negative, deal_positive, negative, positive
from syft.crypto.gates.equality import deal_zero, zero
from syft.crypto.gates.public_factors import Factor
from syft.crypto.gates.truncation import deal_divide, divide
from syft.crypto.opening import Protocol
from syft.crypto.programs.share_program import ShareCode
from syft.program.program import Action


@dataclass(frozen=True, slots=True)
class Gate:
    """One kind of instruction: ``args = (x, *public)``."""

    deal: Callable[..., Any]
    """``deal(dealer, *public)`` makes the material."""
    run: Callable[[int, Any, torch.Tensor], Protocol]
    """``run(rank, material, x)`` is the protocol."""


def _deal_divide(dealer: Dealer, factor: Factor, shape: tuple[int, ...]) -> Any:
    return deal_divide(dealer, shape, factor)


def _deal_positive(dealer: Dealer, factor: Factor, shape: tuple[int, ...]) -> Any:
    return deal_positive(dealer, shape, factor)


def _divide(rank: int, material: Any, x: torch.Tensor) -> Protocol:
    # For a factor of 1 the result is x, in memory of its own.
    return divide(rank, material, x.clone() if material is None else x)


GATES: Final[dict[int, Gate]] = {
    ShareCode.DIVIDE: Gate(_deal_divide, _divide),
    ShareCode.NEGATIVE: Gate(deal_negative, negative),
    ShareCode.POSITIVE: Gate(_deal_positive, positive),
    ShareCode.ZERO: Gate(deal_zero, zero),
}
"""The gates of one operand, by their code."""


def is_corrected(instruction: Action) -> bool:
    """Whether the last party needs corrections for an instruction.

    >>> from syft.program.program import Slot
    >>> is_corrected(Action(ShareCode.DIVIDE, (Slot(0), 16, (2,)), {}, Slot(1)))
    True
    >>> is_corrected(Action(ShareCode.MASK, (Slot(0), (2,)), {}, Slot(1)))
    False
    """
    if instruction.op == ShareCode.DIVIDE:
        return bool(instruction.args[1] != 0)
    return instruction.op == ShareCode.PRODUCT or instruction.op in GATES
