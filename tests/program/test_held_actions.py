"""Held actions have one key where their program is the same, and others where it is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.ops.table import BY_NAME
from syft.program.held_actions import HeldAction, HeldActions
from syft.program.program import Mode, Slot


def key_of(*operands: Any, results: int = 1, mode: Mode | None = None, **named: Any) -> bytes:
    """The key of one action on an input and these operands."""
    held = HeldActions()
    x = held.input(0.5)
    outs = tuple([held.new_slot() for _ in range(results)])
    out = outs if results > 1 else outs[0]
    held.actions.append(HeldAction(BY_NAME["torch.add"], (x, *operands), named, out, mode))
    return held.key()


DIFFERENT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"args": (1,)}, {"args": (True,)}),
    ({"args": (1,)}, {"args": (1.0,)}),
    ({"args": ((0, 1),)}, {"args": ([0, 1],)}),
    ({"args": ((2, 0, 1),)}, {"args": ([0, 1],)}),
    ({"args": ((0, 1),)}, {"args": ((0, True),)}),
    ({"args": ((0, (1, 2)),)}, {"args": ((0, [1, 2]),)}),
    ({"args": (Slot(0),)}, {"args": ({"index": 0},)}),
    ({"args": (Slot(0),)}, {"args": (Slot(1),)}),
    ({"args": (slice(0, 1),)}, {"args": (slice(0, 2),)}),
    ({"args": (torch.int64,)}, {"args": (torch.int32,)}),
    ({"args": (1,)}, {"args": (), "other": 1}),
    ({"args": (), "alpha": 1}, {"args": (), "other": 1}),
    ({"args": (), "results": 1}, {"args": (), "results": 2}),
    ({"args": ()}, {"args": (), "mode": Mode(grad=False)}),
]


@pytest.mark.parametrize("one, other", DIFFERENT, ids=str)
def test_the_key_tells_what_would_be_another_program(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    def key(of: dict[str, Any]) -> bytes:
        return key_of(*of["args"], **{name: value for name, value in of.items() if name != "args"})

    assert key(one) == key(one) and key(one) != key(other)


def test_slots_of_two_builders_differ() -> None:
    inner, outer = HeldActions(3), HeldActions()
    mine = inner.input()
    assert inner.is_own(mine) and not outer.is_own(mine) and mine != outer.input()
