"""A plan as TorchScript, for what still loads it; torch itself has given the format up."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Collection, Mapping, Sequence

import torch

from syft.plans.export.fx import Arguments
from syft.plans.export.tracing import traceable
from syft.program.program import Program


def to_torchscript(
    program: Program,
    arguments: Arguments,
    state: Mapping[str, torch.Tensor],
    examples: Sequence[torch.Tensor],
    *,
    name: str = "Plan",
    batched: Collection[int] | None = None,
) -> torch.jit.ScriptModule:
    """Trace a program of a forward pass with ``torch.jit.trace``; warns that torch deprecates it.

    Arguments and errors are those of :func:`~syft.plans.export.torch_export.to_exported`.  The
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
        stacklevel=3,  # whoever asked the plan for it
    )
    plan = traceable(program, arguments, state, examples, name, batched)
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        # What the warning above says, in terms of torch.jit.
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
