"""What torch's exporters need besides the graph: values to trace with, and values to check with.

``torch.export`` and ``torch.jit.trace`` run a module once and record the operations.  The result
may not take another batch size, so that is tested: the result is run with one row more and compared
with the module it was made of.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch.fx import GraphModule

from syft.exceptions import OtherPath, ProgramError, UnsupportedOperation, WrongArguments
from syft.plans.export.branch_nodes import every_action
from syft.plans.export.fx import ArgumentSpec, argument_structures, to_fx
from syft.program.program import Program, fill_slots, slots_in
from syft.ops.table import BY_NAME, FLAGS, GRADIENT, RANDOM, READS_GRADIENT, SETS_GRADIENT
from syft.ops.nested import every_tensor

_ON_GRADIENTS: Final = GRADIENT | READS_GRADIENT | SETS_GRADIENT
_ENSURE_GRADIENT: Final = BY_NAME["syft.ops.control.ensure_grad"]
_TOLERANCE: Final = 1e-3
"""Of the check, in float32; another format may order a sum differently."""


@dataclass(frozen=True, slots=True)
class Traceable:
    """A program of a forward pass with values for its inputs.

    ``values`` are those to trace with; ``larger`` are the same with one row more, or None if the
    module takes no other batch size; ``batched`` are the inputs that have such a row.
    """

    module: GraphModule
    structures: dict[str, Any]
    values: list[Any]
    larger: list[Any] | None
    batched: frozenset[int]
    has_random: bool

    def arguments(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments of the module for these values of its inputs."""
        return tuple(fill_slots(list(self.structures.values()), dict(enumerate(values))))

    def check(self, exported: torch.nn.Module) -> None:
        """Raise :class:`~syft.exceptions.ProgramError` if a result of a tracer disagrees.

        It is compared at another batch size, if the module takes one.  Copies of both are run, so
        that running statistics do not change.
        """
        values = self.values if self.larger is None else self.larger
        expected = _run(self.module, self.arguments(values))
        got = _run(exported, self.arguments(values))
        for ours, theirs in zip(every_tensor(expected), every_tensor(got), strict=True):
            same = ours.shape == theirs.shape
            if same and not self.has_random:
                theirs = theirs.to(ours.dtype)
                same = torch.allclose(ours, theirs, _TOLERANCE, _TOLERANCE, equal_nan=True)
            if not same:
                shapes = [tuple(value.shape) for value in values if isinstance(value, torch.Tensor)]
                raise ProgramError(
                    f"torch exported something else than was recorded: with inputs of the shapes "
                    f"{', '.join(map(str, shapes))} the results differ"
                )


def traceable(
    program: Program,
    arguments: ArgumentSpec,
    state: Mapping[str, torch.Tensor],
    examples: Sequence[Any],
    name: str,
    batched: Collection[int] | None,
) -> Traceable:
    """Make a program and examples of its inputs ready for a tracer.

    ``batched`` are the inputs that have a row for each element of a batch; by default all are, if
    their first dimensions are equal.  To lengthen only some inputs would be a guess, and a wrong
    guess does harm in some of torch's kernels (``torch.lstm`` with its first state).

    Raises :class:`~syft.exceptions.UnsupportedOperation` for a program that computes gradients and
    for a Python number among the inputs, and :class:`~syft.exceptions.WrongArguments` if there are
    not as many examples as inputs.
    """
    _refuse_training(program)
    if len(examples) != program.inputs:
        raise WrongArguments(name, f"{program.inputs} values", str(len(examples)))
    structures = argument_structures(program, arguments)
    _refuse_numbers(structures, examples)
    module = to_fx(program, structures, state, name=name)
    values = list(examples)
    grown = _batched(values) if batched is None else frozenset(batched)
    has_random = any(FLAGS[action.op] & RANDOM for _, action in every_action(program))
    made = Traceable(module, structures, values, None, grown, has_random)
    larger = _one_row_more(values, grown)
    if not grown or not _takes(module, made.arguments(larger)):
        return made
    while any(len(values[index]) < 2 for index in grown):  # torch makes a size of 1 a constant
        values, larger = larger, _one_row_more(larger, grown)
    return replace(made, values=values, larger=larger)


def _refuse_training(program: Program) -> None:
    for index, action in every_action(program):
        if FLAGS[action.op] & _ON_GRADIENTS or action.op == _ENSURE_GRADIENT:
            raise UnsupportedOperation(
                f"action {index}, {action.name}",
                "Export",
                "a training step cannot be exported; export the plan of the forward pass",
            )


def _refuse_numbers(structures: dict[str, Any], examples: Sequence[Any]) -> None:
    for argument, structure in structures.items():
        for slot in slots_in(structure):
            if not isinstance(examples[slot.index], torch.Tensor):
                raise UnsupportedOperation(
                    f"the number among the inputs of the plan, in {argument!r}",
                    "Export",
                    "torch would keep the number of this call; give it as a tensor",
                )


def _batched(values: Sequence[torch.Tensor]) -> frozenset[int]:
    """The inputs that have a first dimension, if it is of the same length in all of them."""
    sizes = {index: value.shape[0] for index, value in enumerate(values) if value.dim()}
    return frozenset(sizes if len(set(sizes.values())) == 1 else ())


def _one_row_more(values: Sequence[torch.Tensor], batched: frozenset[int]) -> list[torch.Tensor]:
    """The same values with the last row twice; a batch without rows gets one of zeros."""
    return [
        (
            torch.cat(
                [
                    value.detach(),
                    value.detach()[-1:] if len(value) else value.new_zeros(1, *value.shape[1:]),
                ]
            )
            if index in batched
            else value
        )
        for index, value in enumerate(values)
    ]


def _takes(module: GraphModule, arguments: tuple[Any, ...]) -> bool:
    """Whether the operations take these arguments; torch has no one class for such errors."""
    try:
        _run(module, arguments)
    except (RuntimeError, ValueError, IndexError, TypeError, AssertionError, OtherPath):
        return False
    return True


@contextlib.contextmanager
def without_torch_notes() -> Iterator[None]:
    """A context without torch's warnings about torch's own code.

    Copying an exported module makes torch 2.13 warn of a class that torch's own pytree uses.

    >>> with without_torch_notes():
    ...     warnings.warn("`isinstance(treespec, LeafSpec)` is deprecated", FutureWarning)
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
        yield


def _run(module: torch.nn.Module, arguments: tuple[Any, ...]) -> Any:
    """Run a copy, without gradients, and without drawing from the process's random numbers."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        return copy.deepcopy(module)(*arguments)
