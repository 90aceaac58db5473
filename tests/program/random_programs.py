"""Programs drawn at random, each with what plain torch does for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies

from syft.ops.table import BY_NAME
from syft.program.program import Action, Mode, Program, Slot

SHAPE = (3, 3)
STATE, CONSTANTS = 1, 1
MODES = (None, None, None, Mode(grad=False), Mode(grad=True))


@dataclass(frozen=True)
class Step:
    """One operation: its name in the op table, its operands, and the same in plain Python."""

    name: str
    operands: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]
    plain: Callable[..., Any]
    takes: int
    results: int = 1


STEPS = (
    Step("torch.Tensor.add", lambda a, b: ((a, b), {}), lambda a, b: a + b, 2),
    Step("torch.mul", lambda a: ((a, 0.5), {}), lambda a: a * 0.5, 1),
    Step("torch.Tensor.tanh", lambda a: ((a,), {}), lambda a: a.tanh(), 1),
    Step("torch.Tensor.__rsub__", lambda a: ((a, 2), {}), lambda a: 2 - a, 1),
    Step("torch.addcmul", lambda a, b, c: ((a, b, c), {}), torch.addcmul, 3),
    Step(
        "torch.addmm",
        lambda a, b, c: ((a, b, c), {"beta": 0.5}),
        lambda a, b, c: torch.addmm(a, b, c, beta=0.5),
        3,
    ),
    Step(
        "torch.cumsum", lambda a: ((), {"input": a, "dim": 0}), lambda a: torch.cumsum(a, dim=0), 1
    ),
    Step(
        "torch.linalg.multi_dot",
        lambda a, b: (([a, b],), {}),
        lambda a, b: torch.linalg.multi_dot([a, b]),
        2,
    ),
    Step(
        "torch.Tensor.__getitem__",
        lambda a: ((a, (slice(None), [2, 0, 1])), {}),
        lambda a: a[:, [2, 0, 1]],
        1,
    ),
    Step(
        "torch.sort",
        lambda a: ((a,), {"dim": 1, "descending": True}),
        lambda a: torch.sort(a, dim=1, descending=True),
        1,
        results=2,
    ),
    Step("torch.Tensor.mul_", lambda a: ((a, 0.5), {}), lambda a: a.mul_(0.5), 1, results=0),
    Step(
        "torch.Tensor.__setitem__",
        lambda a, b: ((a, (slice(0, 3), Ellipsis), b), {}),
        lambda a, b: a.__setitem__((slice(0, 3), ...), b),
        2,
        results=0,
    ),
)


@dataclass(frozen=True)
class Case:
    """A program, and the same computation as a Python function of the same values."""

    program: Program
    plain: Callable[[Sequence[Any]], Any]

    def values(self, requires_grad: bool = False) -> list[torch.Tensor]:
        """Inputs and state, the same ones each time."""
        generator = torch.Generator().manual_seed(0)
        count = self.program.inputs + self.program.state
        made = [torch.randn(SHAPE, generator=generator) for _ in range(count)]
        return [value.requires_grad_() if requires_grad else value for value in made]


@strategies.composite
def cases(draw: strategies.DrawFn, in_place: bool = True, modes: bool = False) -> Case:
    """A program of up to twelve actions, with nested operands, keywords and several results."""
    inputs = draw(strategies.integers(1, 3))
    constant = torch.arange(9.0).view(SHAPE) / 9
    known = list(range(inputs + STATE + CONSTANTS))
    number = len(known)
    actions, plan = [], []
    steps = [step for step in STEPS if step.results or in_place]
    for _ in range(draw(strategies.integers(0, 12))):
        step = draw(strategies.sampled_from(steps))
        pool = known if step.results else [slot for slot in known if slot != inputs + STATE]
        taken = tuple(draw(strategies.sampled_from(pool)) for _ in range(step.takes))
        if step.name.endswith("__setitem__") and taken[0] == taken[1]:
            continue
        operands = [Slot(slot) for slot in taken]
        args, kwargs = step.operands(*operands)
        out, number = pattern(draw, step.results, number, known)
        mode = draw(strategies.sampled_from(MODES)) if modes else None
        actions.append(Action(BY_NAME[step.name], args, kwargs, out, mode))
        plan.append((step, taken, out, mode))
    outputs = {
        "last": Slot(known[-1]),
        "some": [Slot(slot) for slot in draw(strategies.lists(strategies.sampled_from(known)))],
        "plain": (1, None),
    }
    program = Program(inputs, tuple(actions), outputs, STATE, (constant,))
    return Case(program, plain(plan, outputs, constant))


def pattern(
    draw: strategies.DrawFn, results: int, number: int, known: list[int]
) -> tuple[Any, int]:
    """Where the results go; of two, the second (indices) goes nowhere or where nobody looks."""
    if results == 0:
        return None, number
    known.append(number)
    if results == 1:
        return Slot(number), number + 1
    if draw(strategies.booleans()):
        return (Slot(number), None), number + 1
    return (Slot(number), Slot(number + 1)), number + 2


def plain(plan: list[Any], outputs: Any, constant: torch.Tensor) -> Callable[[Sequence[Any]], Any]:
    """The oracle: the same steps, called by hand."""

    def run(values: Sequence[Any]) -> Any:
        found = dict(enumerate([*values, constant]))
        surrounding = torch.is_grad_enabled()
        for step, taken, out, mode in plan:
            with torch.set_grad_enabled(surrounding if mode is None else mode.grad):
                result = step.plain(*(found[slot] for slot in taken))
            if isinstance(out, Slot):
                found[out.index] = result
            elif out is not None:
                found[out[0].index] = result[0]
        return {
            "last": found[outputs["last"].index],
            "some": [found[slot.index] for slot in outputs["some"]],
            "plain": (1, None),
        }

    return run
