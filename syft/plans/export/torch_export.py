"""A plan as a ``torch.export.ExportedProgram`` or as TorchScript, which run without Python.

Torch has deprecated TorchScript; it is here for the runtimes that still load it.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from syft.ops.nested import replace
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
