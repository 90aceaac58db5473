"""A plan as a ``torch.export.ExportedProgram`` or as TorchScript, which run without Python.

Torch has deprecated TorchScript; it is here for the runtimes that still load it.

A plan as an ONNX file, for the runtimes of phones, browsers and servers without Python.

The packages that write the format are not dependencies of syft; torch imports them when a plan is
exported.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import torch
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import OutputKind

from syft.exceptions import UnsupportedOperation
from syft.ops.nested import leaves, replace
from syft.plans.export.fx import ArgumentSpec
from syft.plans.export.tracing import Traceable, traceable, without_torch_notes
from syft.program.program import Program, Slot


def to_exported(
    program: Program,
    arguments: ArgumentSpec,
    state: Mapping[str, torch.Tensor],
    examples: Sequence[torch.Tensor],
    *,
    name: str = "Plan",
    batched: Collection[int] | None = None,
) -> ExportedProgram:
    """Export a program of a forward pass with ``torch.export``.

    ``arguments`` and ``state`` are as in :func:`~syft.plans.export.fx.to_fx`; ``examples`` are
    tensors for the program's inputs.  ``batched`` are the inputs whose first dimension is the
    batch; by default all are, if their first dimensions are equal.  If the program takes another
    batch size than that of the examples, so does the result: this is tested.

    Raises :class:`~syft.exceptions.UnsupportedOperation` for a program that computes gradients and
    for a Python number among the inputs, :class:`~syft.exceptions.WrongArguments` if examples are
    missing, :class:`~syft.exceptions.ProgramError` if torch's result gives other values than the
    program, and what ``torch.export`` raises.

    >>> from syft.ops.table import BY_NAME
    >>> from syft.program.program import Action, Slot
    >>> double = Action(BY_NAME["torch.add"], (Slot(0), Slot(0)), {}, Slot(1))
    >>> program = Program(inputs=1, actions=(double,), outputs=Slot(1))
    >>> exported = to_exported(program, ["x"], {}, [torch.ones(2)])
    >>> exported.module()(torch.ones(3))
    tensor([2., 2., 2.])
    """
    return exported_from(traceable(program, arguments, state, examples, name, batched))


def exported_from(plan: Traceable) -> ExportedProgram:
    """Export what is ready for a tracer, and check the result."""
    with without_torch_notes():
        exported = torch.export.export(
            plan.module, plan.arguments(plan.values), dynamic_shapes=_dynamic_shapes(plan)
        )
        plan.check(exported.module())
    return exported


def _dynamic_shapes(plan: Traceable) -> dict[str, Any] | None:
    """Which dimensions may change: the first one of each batch."""
    if plan.larger is None:
        return None

    def spec(leaf: Any) -> Any:
        return {0: Dim.DYNAMIC} if type(leaf) is Slot and leaf.index in plan.batched else None

    changing: dict[str, Any] = replace(plan.structures, spec)
    return changing


def to_torchscript(
    program: Program,
    arguments: ArgumentSpec,
    state: Mapping[str, torch.Tensor],
    examples: Sequence[torch.Tensor],
    *,
    name: str = "Plan",
    batched: Collection[int] | None = None,
) -> torch.jit.ScriptModule:
    """Trace a program of a forward pass with ``torch.jit.trace``; warns that torch deprecates it.

    Arguments and errors are those of :func:`to_exported`.  The
    result has tensors of its own.

    >>> from syft.ops.table import BY_NAME
    >>> from syft.program.program import Action, Slot
    >>> double = Action(BY_NAME["torch.add"], (Slot(0), Slot(0)), {}, Slot(1))
    >>> program = Program(inputs=1, actions=(double,), outputs=Slot(1))
    >>> with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
    ...     script = to_torchscript(program, ["x"], {}, [torch.ones(2)])
    >>> script(torch.ones(3))
    tensor([2., 2., 2.])
    """
    warnings.warn(
        "torch has deprecated TorchScript. Use export(), which makes a torch.export program, or "
        "to_onnx(path).",
        DeprecationWarning,
        stacklevel=3,  # the caller of the plan's property
    )
    plan = traceable(program, arguments, state, examples, name, batched)
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        # torch.jit says the same as the warning above.
        warnings.filterwarnings("ignore", r"`torch\.jit\.\w+` is", DeprecationWarning)
        script: torch.jit.ScriptModule = torch.jit.trace(  # type: ignore[no-untyped-call]
            copy.deepcopy(plan.module),
            plan.arguments(plan.values),
            check_trace=False,
            strict=False,
        )
        script.load_state_dict(plan.module.state_dict())  # tracing ran it once
        plan.check(script)
    return script


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
