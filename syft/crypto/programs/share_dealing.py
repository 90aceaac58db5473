"""Dealing for a share program: what the provider is told of it, and what it sends the last party.

The provider gets no operand and no public tensor but the factors of divisions, only which
instruction at which place needs what.  It can run far ahead of the parties.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from syft.crypto.dealing import ProviderDealer
from syft.crypto.gates.public_factors import frozen_factor
from syft.crypto.kernels import kernel_from
from syft.crypto.mask_stream import MaskCipher
from syft.crypto.programs.beaver_products import deal_product
from syft.crypto.programs.share_gates import GATES, is_corrected
from syft.crypto.programs.share_program import (
    divides_by_tensors,
    ShareCode,
    ShareProgram,
    opened_constants,
    stream_of,
    stream_of_mask,
)
from syft.program.program import Slot

Deal = tuple[int, int, tuple[Any, ...]]
"""The place of an instruction, its code, and its arguments without slots."""


def deals_of(program: ShareProgram) -> tuple[Deal, ...]:
    """What has to be dealt for a program; found once, unless it divides by public tensors.

    >>> from syft.program.program import Action
    >>> divide = Action(ShareCode.DIVIDE, (Slot(0), 16, (2,)), {}, Slot(1))
    >>> deals_of(ShareProgram(1, (divide,), (Slot(1),)))
    ((0, 6, (16, (2,))),)
    """
    known: tuple[Deal, ...] | None = program.facts.get("deals")
    if known is not None:
        return known
    deals = tuple(
        (
            place,
            int(instruction.op),
            tuple([frozen_factor(value) for value in instruction.args if type(value) is not Slot]),
        )
        for place, instruction in enumerate(opened_constants(program))
        if is_corrected(instruction)
    )
    if not divides_by_tensors(program):
        program.facts["deals"] = deals
    return deals


def elements_of(deals: Sequence[Deal]) -> int:
    """The elements that a provider works with for deals that have passed ``lint_deals``: a few
    bytes may ask for many.

    >>> elements_of(((0, 6, (16, (2,))), (1, 5, (1, (), (1, 0), (3, 1), (1, 0), (1, 3), (3, 3)))))
    35
    """
    return sum(map(_elements_of, deals))


def _elements_of(deal: Deal) -> int:
    _, code, public = deal
    if code == ShareCode.PRODUCT:
        return math.prod(public[3]) + math.prod(public[5]) + math.prod(public[6])
    return _GATE_WORDS * math.prod(public[-1])


_GATE_WORDS = 10
"""Words that a comparison needs for an element, at most."""


def letters_of(deals: Sequence[Deal]) -> list[list[int]]:
    """The places of deals whose corrections travel together: as many as stay small.

    What is large goes by itself, so that a party begins with it while the rest is dealt.

    >>> letters_of(((0, 6, (16, (2,))), (1, 6, (16, (2,))), (4, 6, (16, (5000,)))))
    [[0, 1], [4]]
    >>> letters_of(((0, 6, (16, (0,))),))
    [[0]]
    """
    letters: list[list[int]] = []
    room = 0
    for deal in deals:
        size = _elements_of(deal)
        if size > room or not letters:  # what comes first may be empty
            letters.append([])
            room = _MOST_TOGETHER
        letters[-1].append(deal[0])
        room -= size
    return letters


_MOST_TOGETHER = 1 << 15
"""The elements that a provider works with for one letter, unless a single instruction has more."""


def deal_program(
    deals: Sequence[Deal],
    keys: Sequence[bytes | MaskCipher],
    counter: int,
    device: torch.device | str = "cpu",
) -> Iterator[tuple[int, list[torch.Tensor]]]:
    """The corrections for deals that have passed ``lint_deals``, one instruction after the other.

    ``keys`` are those of the parties, in their order, or ciphers of them; ``counter`` is the
    program's.

    >>> deal, = deal_program(((0, 6, (16, (2,))),), [b"a" * 32, b"b" * 32], 1)
    >>> deal[0]
    0
    """
    masks = _Masks(deals, counter)
    ciphers = [key if isinstance(key, MaskCipher) else MaskCipher(key) for key in keys]
    for place, code, public in deals:
        dealer = ProviderDealer(ciphers, stream_of(ShareCode(code), public, counter, place), device)
        if code == ShareCode.PRODUCT:
            number, settings, *factors, shape = public
            a, b = (masks.drawn(dealer, *factors[i : i + 2]) for i in (0, 2))
            deal_product(dealer, kernel_from(number, settings), a, b, shape)
        else:
            GATES[ShareCode(code)].deal(dealer, *public)
        yield place, dealer.corrections


class _Masks:
    """The masks of factors, each drawn once and kept until its last product."""

    def __init__(self, deals: Sequence[Deal], counter: int) -> None:
        self._counter = counter
        self._kept: dict[Any, torch.Tensor] = {}
        self._uses = Counter(
            factor
            for _, code, public in deals
            if code == ShareCode.PRODUCT
            for factor in (public[2:4], public[4:6])
        )

    def drawn(
        self, dealer: ProviderDealer, mask: tuple[int, int], shape: tuple[int, ...]
    ) -> torch.Tensor:
        """The sum of all parties' shares of a mask."""
        factor = (mask, shape)
        if factor not in self._kept:
            name = stream_of_mask(mask, shape, self._counter)
            self._kept[factor] = dealer.again(name, shape)
        self._uses[factor] -= 1
        return self._kept[factor] if self._uses[factor] else self._kept.pop(factor)
