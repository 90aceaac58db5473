"""What a plan is once it is built: its interface and its program, without any state.

One blueprint serves the plan here, its copies, and every pointer to it: it is frozen, and shared.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from syft.plans.building.interface import Interface
from syft.program.program import fill_slots as fill
from syft.program.program import Program, slots_in


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A plan without its state.

    The outputs of ``program`` are its results in a row; ``interface.outputs`` says how a call
    returns them.
    """

    interface: Interface
    program: Program

    def nested(self) -> Program:
        """The program as it was recorded: it returns what the function returns."""
        results = dict(enumerate(self.program.outputs))
        return replace(self.program, outputs=fill(self.interface.outputs, results))


def with_constants(blueprint: Blueprint, constants: tuple[torch.Tensor, ...]) -> Blueprint:
    """The same blueprint with other constants; one without any is shared.

    >>> import inspect
    >>> nothing = Blueprint(Interface("f", inspect.Signature(), {}, ()), Program(0, (), ()))
    >>> with_constants(nothing, ()) is nothing
    True
    """
    if not constants:
        return blueprint
    return replace(blueprint, program=replace(blueprint.program, constants=constants))


def flat(program: Program) -> Program:
    """The same program with its results in a row.

    >>> from syft.program.program import Slot
    >>> flat(Program(2, (), {"a": Slot(1), "b": [Slot(0), None]})).outputs
    (Slot(1), Slot(0))
    """
    return replace(program, outputs=tuple(slots_in(program.outputs)))
