"""Holes that were in workers once, each put back for a while: random programs must find them.

``python -m tests.privacy.two_worlds --leak copies`` says after how many commands they do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch

from syft.chain.wrapper import Wrapper
from syft.plans.remote import plan_call
from syft.serde.packer import Packer
from syft.workers.execution import leaving, private_chains
from syft.workers.execution.private_chains import Trial
from syft.workers.labels import memory_labels
from syft.workers.labels.memory_labels import bare_copy_of, full_guard_of, protect
from syft.workers.labels.walk import recorded_of
from tests.privacy.two_worlds.report import Report
from tests.privacy.two_worlds.runner import run_program
from tests.privacy.two_worlds.samples import Samples


@contextlib.contextmanager
def _with(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _copy_of_what_is_named(tensor: torch.Tensor) -> torch.Tensor:
    """A copy whose gradient nobody was asked about."""
    twin = bare_copy_of(tensor)
    protect(twin, full_guard_of(tensor))
    if tensor.is_leaf and tensor.grad is not None:
        twin.grad = tensor.grad.detach().clone()
    return twin


def _gradients_before_chains(tensor: Any) -> list[torch.Tensor]:
    """The gradients of a tensor, but for those of what is inside a chain."""
    recorded = recorded_of(tensor) if isinstance(tensor, torch.Tensor) else None
    if recorded is None or not recorded.is_leaf or recorded.grad is None:
        return []
    return [recorded.grad]


def _reaching_always(self: Trial, leaf: torch.Tensor) -> torch.Tensor:
    """What stands for a result, with a graph to all operands, be it a leaf or not."""
    if type(leaf) is Wrapper and leaf.child.at_function_level:
        link: Any = leaf.child
        return cast(torch.Tensor, link.like().on(_reaching_always(self, link.tensor)))
    if not leaf.requires_grad:
        return cast(torch.Tensor, private_chains._plainly(leaf))
    operands = [recorded_of(operand) for operand, _ in self._twins.values()]
    reached = [each for each in operands if each is not None and each.requires_grad]
    return private_chains._reaching(leaf.detach(), reached)


def _without_a_graph(self: Trial, operand: torch.Tensor) -> None:
    """What was to be written keeps the graph that it had."""
    twin = self._twins[id(operand)][1]
    if not private_chains._are_alike(operand, twin, graphs=False):
        operand.data = twin.detach()


def _nothing(*args: Any) -> None:
    pass


LEAKS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "copies": lambda: _with(leaving, "copy_of", _copy_of_what_is_named),
    "elements": lambda: _with(memory_labels, "gradients_behind", _gradients_before_chains),
    "operands": lambda: _with(Packer, "gradients", property(lambda self: True, _nothing)),
    "leaves": lambda: _with(Trial, "_made", _reaching_always),
    "writes": lambda: _with(Trial, "_bring", _without_a_graph),
    "plans": lambda: _with(plan_call, "_check_may_ask", _nothing),
}
"""By name: a copy of a tensor whose gradient is not asked about; a gradient inside a chain; one
that goes along with an operand; a stand-in that is no leaf; a write that leaves no graph; a
property that a plan asks for."""


def look_for(leak: str, samples: Samples, seed: int, most: int) -> Report:
    """Run random programs with a hole until they find it: the report, of ``most`` commands or a few
    more if they do not."""
    report, number = Report(), 0
    with LEAKS[leak]():
        while report.commands < most and not report.differences:
            report.add(run_program(samples, f"{seed}/{number}"))
            number += 1
    return report
