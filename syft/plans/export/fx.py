"""A plan as a ``torch.fx.GraphModule``, for every tool that works on torch.fx graphs.

The module holds the state tensors of the plan themselves under their names, and its ``forward``
runs the actions one by one.  It needs nothing of syft to run, takes any shape that the operations
take, and the other formats are made from it.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch.fx import GraphModule

from syft.exceptions import ProgramError
from syft.plans.export.graph import GraphBuilder
from syft.program.lint import lint
from syft.program.program import Program, Slot, slots_in

ArgumentSpec = Sequence[str] | Mapping[str, Any]
"""The names of the arguments, or for each name the structure in which its inputs stand."""

_RESERVED: Final = frozenset(dir(GraphModule)) | {"training"}


def to_fx(
    program: Program,
    arguments: ArgumentSpec,
    state: Mapping[str, torch.Tensor],
    *,
    name: str = "Plan",
    numbers: Collection[int] = (),
) -> GraphModule:
    """Make a ``torch.fx.GraphModule`` of a program.

    ``arguments`` names the inputs of the program; if inputs are nested, it gives for each argument
    of the module the structure in which they stand.  ``state`` has the tensors of the program's
    state under their names, in order; the module holds these tensors, not copies.  ``numbers`` are
    the inputs that are Python numbers; only branches need to know them.

    What was recorded in inference mode runs under ``no_grad``.

    Raises :class:`~syft.exceptions.ProgramError` for a malformed
    program and names that do not fit, and
    :class:`~syft.exceptions.UnsupportedOperation` for a branch that torch cannot do.

    >>> from syft.ops.table import BY_NAME
    >>> from syft.program.program import Action
    >>> add = Action(BY_NAME["torch.add"], (Slot(0), Slot(1)), {}, Slot(2))
    >>> program = Program(inputs=1, state=1, actions=(add,), outputs={"sum": Slot(2)})
    >>> module = to_fx(program, ["x"], {"layer.bias": torch.ones(2)})
    >>> module(torch.zeros(2)), [name for name, _ in module.named_buffers()]
    ({'sum': tensor([1., 1.])}, ['layer.bias'])
    >>> print(module.code.strip())
    def forward(self, x):
        layer_bias = self.layer.bias
        add = torch.add(x, layer_bias);  x = layer_bias = None
        return {'sum': add}
    """
    lint(program)
    builder = GraphBuilder(program)
    builder.numbers.update(numbers)
    structures = argument_structures(program, arguments)
    placeholders = {argument: builder.graph.placeholder(argument) for argument in structures}
    for argument, structure in structures.items():
        if any(slots_in(structure)):
            builder.unpack(structure, placeholders[argument])
    if len(state) != program.state:
        raise ProgramError(f"the state has {program.state} tensors, and {len(state)} came")
    slots = iter(range(program.inputs, program.given))
    paths = attribute_names(state, len(program.constants))
    for path, tensor in zip(paths, (*state.values(), *program.constants), strict=True):
        builder.values[next(slots)] = builder.attribute(path, tensor)
    builder.write()
    return builder.module(builder.operand(program.outputs), name)


def argument_structures(program: Program, arguments: ArgumentSpec) -> dict[str, Any]:
    """Give for each argument the structure in which its inputs stand, and check that all do.

    Raises :class:`~syft.exceptions.ProgramError` if names and inputs do not fit.

    >>> argument_structures(Program(inputs=2, actions=(), outputs=Slot(0)), ["x", "y"])
    {'x': Slot(0), 'y': Slot(1)}
    """
    structures = _named_structures(arguments)
    for argument in structures:
        if not argument.isidentifier() or keyword.iskeyword(argument) or argument == "self":
            raise ProgramError(f"{argument!r} cannot be the name of an argument")
    found = sorted(slot.index for slot in slots_in(structures))
    if found != list(range(program.inputs)):
        raise ProgramError(
            f"the program has {program.inputs} inputs, and the arguments name "
            f"{', '.join(map(str, found)) or 'none'} of them: name each once"
        )
    return structures


def _named_structures(arguments: ArgumentSpec) -> dict[str, Any]:
    if isinstance(arguments, Mapping):
        return dict(arguments)
    named = {argument: Slot(index) for index, argument in enumerate(arguments)}
    return named if len(named) == len(arguments) else {}  # a name stood twice


def attribute_names(state: Mapping[str, torch.Tensor], constants: int) -> Iterator[str]:
    """Yield where a module keeps each tensor of the state, and then each constant.

    A name that a module uses for something else, or that is the beginning of another name, gets an
    underscore.  Characters other than letters and digits become underscores, because torch.fx
    writes names into source code as they are.

    >>> list(attribute_names({"fc.weight": torch.ones(1), "train": torch.ones(1)}, constants=1))
    ['fc.weight', 'train_', 'constant_0']
    """
    taken: set[str] = set()
    names = [".".join(map(_free_name, name.split("."))) for name in state]
    begun = {begin for name in names for begin in _beginnings(name)}
    for name in (*names, *(f"constant_{index}" for index in range(constants))):
        while name in taken or name in begun:
            name += "_"
        taken.add(name)
        yield name


def _free_name(part: str) -> str:
    part = re.sub(r"\W", "_", part)
    return f"{part}_" if part in _RESERVED or keyword.iskeyword(part) or not part else part


def _beginnings(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts)))
