"""What an execution of a protocol sends: messages and bytes from role to role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from syft.notebook_html import table
from syft.ops.nested import leaves
from syft.program.lowered import Lowered
from syft.protocols.role_building import BuiltProtocol, stand_in
from syft.protocols.tapes import CommunicationAction, Role
from syft.workers.hardening.precautions import RUNNABLE


@dataclass(frozen=True, slots=True)
class EdgeCost:
    """What goes from one role to another in an execution: ``bytes`` are those of the values."""

    origin: str
    target: str
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ExecutionCost:
    """What goes from role to role in an execution."""

    edges: tuple[EdgeCost, ...]

    @property
    def messages(self) -> int:
        """All messages between roles; an execution has one more for each role, which starts it."""
        return sum(edge.messages for edge in self.edges)

    @property
    def bytes(self) -> int:
        """The bytes of all values between roles."""
        return sum(edge.bytes for edge in self.edges)

    def __str__(self) -> str:
        lines = [
            f"{edge.origin} -> {edge.target}: {edge.messages} message{'s' * (edge.messages != 1)}, "
            f"{edge.bytes} bytes"
            for edge in self.edges
        ]
        return "\n".join(lines or ["nothing goes from role to role"])

    def _repr_html_(self) -> str:
        """A notebook shows this: a table of the edges."""
        rows = [[e.origin, e.target, str(e.messages), str(e.bytes)] for e in self.edges]
        return table(["from", "to", "messages", "bytes"], rows)


def cost_of(built: BuiltProtocol, given: Mapping[str, Any], tapes: Sequence[Role]) -> ExecutionCost:
    """What an execution on these arguments sends, worked out here on copies of them and of the
    state."""
    plan = built.plan
    program = plan.blueprint.program
    sends = [
        action for tape in tapes for action in tape.actions if type(action) is CommunicationAction
    ]
    sent = replace(program, outputs=tuple(program.actions[one.number].out for one in sends))
    names = plan.blueprint.interface.input_names()
    values = [_copy(stand_in(given[name])) for name in names]
    state = map(_copy, plan.state.read())
    with torch.random.fork_rng():
        found = Lowered(sent, RUNNABLE).run([*values, *plan.assumptions.options.numbers, *state])
    edges: dict[tuple[str, str], list[int]] = {}
    for one, value in zip(sends, found, strict=True):
        count = sum(leaf.numel() * leaf.element_size() for leaf in leaves(value))
        edges.setdefault((one.origin, one.target), []).append(count)
    return ExecutionCost(
        tuple(EdgeCost(*edge, len(counts), sum(counts)) for edge, counts in edges.items())
    )


def _copy(value: Any) -> Any:
    """A copy of a tensor without its graph, which a run may write to; a number as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)
