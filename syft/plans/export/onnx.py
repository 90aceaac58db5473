"""A plan as an ONNX file, for the runtimes of phones, browsers and servers without Python.

The packages that write the format are not dependencies of syft; torch imports them when a plan is
exported.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from syft.exceptions import UnsupportedOperation
from syft.plans.export.fx import ArgumentSpec
from syft.plans.export.torch_export import exported_from
from syft.plans.export.tracing import traceable, without_torch_notes
from syft.program.program import Program, Slot
from syft.ops.nested import leaves

_MOST_IN_ONE_FILE: Final = 1 << 30
"""Bytes of state; the format's own limit is 2 GiB for everything in one file."""
_WRITTEN: Final = frozenset(
    (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)
)


def to_onnx(
    program: Program,
    arguments: ArgumentSpec,
    state: Mapping[str, torch.Tensor],
    examples: Sequence[torch.Tensor],
    path: str | os.PathLike[str],
    *,
    name: str = "Plan",
    batched: Collection[int] | None = None,
) -> None:
    """Write a program of a forward pass to an ONNX file.

    Arguments and errors are those of :func:`~syft.plans.export.torch_export.to_exported`.  The
    format has no place for writes to state (batch norm in training mode) or for results that are
    not tensors; such a program raises :class:`~syft.exceptions.UnsupportedOperation`.
    ``ModuleNotFoundError`` says which packages to install.

    >>> import os, tempfile
    >>> from syft.ops.table import BY_NAME
    >>> from syft.program.program import Action, Slot
    >>> add = Action(BY_NAME["torch.add"], (Slot(0), Slot(1)), {}, Slot(2))
    >>> program = Program(inputs=2, actions=(add,), outputs=Slot(2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "add.onnx")
    ...     to_onnx(program, ["x", "y"], {}, [torch.ones(2), torch.ones(2)], path)
    ...     os.path.getsize(path) > 0
    True
    """
    _refuse_values(program)
    exported = exported_from(traceable(program, arguments, state, examples, name, batched))
    external = sum(tensor.nbytes for tensor in state.values()) > _MOST_IN_ONE_FILE
    try:
        with without_torch_notes():
            _refuse_writes(exported)
            torch.onnx.export(exported, f=path, verbose=False, external_data=external)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "to_onnx needs two packages that are no part of syft: pip install onnx onnxscript",
            name=error.name,
        ) from error


def _refuse_values(program: Program) -> None:
    for leaf in leaves(program.outputs):
        if type(leaf) is not Slot:
            what = f"{leaf!r} among the results"
            raise UnsupportedOperation(what, "ONNX", "return tensors only")


def _refuse_writes(exported: ExportedProgram) -> None:
    """Refuse writes to state or inputs.  Decomposing turns them into outputs of their own kinds."""
    for output in exported.run_decompositions({}).graph_signature.output_specs:
        if output.kind in _WRITTEN:
            what = f"a write to {output.target!r}"
            raise UnsupportedOperation(
                what, "ONNX", "export a plan that only reads, as of model.eval()"
            )
