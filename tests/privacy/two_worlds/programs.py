"""Random groups: several of torch's samples as one program, with branches and loops.

Results of an action are handed on to later ones, where one tensor is certain to come back.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from syft.ops.nested import replace
from syft.ops.table import BINARY, BY_NAME, FLAGS, INPLACE, ONE, TENSOR
from syft.program.program import Action, Program, Slot
from tests.privacy.two_worlds.samples import Sample, can_travel, is_repeatable


@dataclass(frozen=True, slots=True)
class RandomGroup:
    """A program, the tensors that are its inputs, and the number of its results."""

    program: Program
    inputs: list[torch.Tensor]
    results: int


def random_group(rng: random.Random, samples: Sequence[Sample]) -> RandomGroup | None:
    """A program of two to four operations; None if no message can carry one of them."""
    drawn = [rng.choice(samples) for _ in range(rng.randint(2, 4))]
    calls = [sample for sample in drawn if can_travel(sample) and is_repeatable(sample.name)]
    if not calls:
        return None
    inputs: list[torch.Tensor] = []
    for sample in calls:
        inputs += sample.tensors()
    if rng.random() < 0.3:
        inputs.append(torch.ones(3))
    actions: list[Action] = []
    results: list[Slot] = []
    following, taken = len(inputs), 0
    for sample in calls:

        def slot(leaf: Any) -> Any:
            nonlocal taken
            if not isinstance(leaf, torch.Tensor):
                return leaf
            taken += 1
            handed_on = results and rng.random() < 0.15
            return rng.choice(results) if handed_on else Slot(taken - 1)

        args, kwargs = replace((sample.args, sample.kwargs), slot)
        op = BY_NAME[sample.name]
        out = Slot(following) if gives_one(op) and "out" not in kwargs else None
        actions.append(Action(op, args, kwargs, out))
        if out is not None:
            results.append(out)
            following += 1
    if taken < len(inputs):
        condition, operand = Slot(taken), rng.choice(results or [Slot(0)])
        actions += _branch(condition, operand, following)
        results.append(Slot(following + 1))
    return RandomGroup(Program(len(inputs), tuple(actions), tuple(results)), inputs, len(results))


def gives_one(op: int) -> bool:
    """Whether an operation is certain to return one new tensor."""
    return bool(FLAGS[op] & (ONE | TENSOR | BINARY)) and not FLAGS[op] & INPLACE


def _branch(condition: Slot, operand: Slot, following: int) -> list[Action]:
    """One of two operations, as the sum of a tensor decides."""
    ways = [
        Program(1, (Action(BY_NAME[name], (Slot(0),), {}, Slot(1)),), Slot(1))
        for name in ("torch.neg", "torch.abs")
    ]
    return [
        Action(BY_NAME["torch.Tensor.sum"], (condition,), {}, Slot(following)),
        Action(
            BY_NAME["syft.ops.control.cond"],
            (Slot(following), *ways, [operand]),
            {},
            Slot(following + 1),
        ),
    ]
