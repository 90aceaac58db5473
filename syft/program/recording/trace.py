"""One run of a function under a tracer, which leaves the user's tensors and torch as before.

Finds aten operations that run outside of the torch functions that the tracer sees.

The tracer sees functions of torch, and aten operations run inside them.  An operation that runs
outside of all of them was started in a way that ``__torch_function__`` is not called for: by a
legacy constructor, a compiled extension, a scripted module, or a write to a tensor through another
library.  The program would lack it.

This mode is active only when the function runs again.  An operation takes ten times as long under
it, so the tracer disables it during every call that it sees itself.  That costs a microsecond a
call: 0.07 ms of the 1.4 ms that recording 50 tiny operations takes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from syft.exceptions import CannotRecord
from syft.ops.control import RECORDING
from syft.ops.nested import Arguments, Keywords, replace
from syft.program.held_actions import HeldAction
from syft.program.program import Program
from syft.program.recording.control_flow import ControlFlowTracer
from syft.program.recording.decisions import DecisionLog
from syft.program.recording.environment.random_state import PreservedRandomState
from syft.program.recording.environment.snapshot import Snapshot
from syft.program.recording.environment.source_line import SourceLine, last_line_of, user_line
from syft.program.recording.gradients import GradientTracker, UnusedInBackward
from syft.program.recording.symbolic import Origin, concrete, symbolic
from syft.program.recording.tracer import Tracer
from syft.torch_private import DisableTorchFunction, TorchDispatchMode

_LIFT: Final = torch.ops.aten.lift_fresh.default
"""What makes a tensor of numbers of Python, or of an array."""
UNSEEN: Final = ", which ran where torch shows nothing of it"
"""How the error about an operation that no recording sees goes on."""


@dataclass(frozen=True, slots=True)
class FunctionTrace:
    """What one run of a function gave: its program, and what the verification compares."""

    program: Program
    captured: tuple[torch.Tensor, ...]
    """Tensors of the program's state, after those named as state."""
    result: Any
    actions: list[HeldAction]
    snapshots: list[Snapshot]
    """The tensors from outside that were not named as state."""
    objects: list[Any]
    """Every object that was seen, alive so that identities stay unique."""
    warned_lines: set[str]
    """The lines that the user was warned about already."""
    reads_sizes: bool
    """Whether the user's code read sizes."""
    properties_read: frozenset[str]
    """Which other properties of tensors it read."""
    generators: dict[torch.Generator, SourceLine]
    """Random generators that it drew from."""


def trace_function(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    state: Sequence[torch.Tensor],
    rerun: bool = False,
    generators: Collection[torch.Generator] = (),
    made: Collection[int] = (),
) -> FunctionTrace:
    """Run a function once and record what it does.

    ``generators`` are those that an earlier run drew from, and ``made`` says which of the
    ``snapshots`` are of tensors that the function makes of numbers where torch shows nothing of it.
    """
    unused: tuple[torch.Tensor, ...] = ()
    while True:
        tracer = Tracer(
            rerun,
            DecisionLog(rerun),
            PreservedRandomState(generators),
            GradientTracker(unused),
            {len(state) + index for index in made},
        )
        try:
            return _attempt(tracer, function, inputs, state)
        except UnusedInBackward as error:
            unused += tuple(error.tensors)


def _attempt(
    tracer: Tracer,
    function: Callable[..., Any],
    inputs: Sequence[Any],
    state: Sequence[torch.Tensor],
) -> FunctionTrace:
    builder = tracer.builder
    values = [_stand_in(tracer, value) for value in inputs]
    for tensor in state:
        builder.capture(tensor)
    try:
        with tracer.random_state, _optimizers_tracked(tracer), _announced(tracer), tracer:
            result = _call(function, values, tracer)
            with tracer.paused():
                actions = builder.actions
                tracer.random_state.check(
                    actions[-1].line
                    if actions and actions[-1].line.file
                    else last_line_of(function)
                )
        outputs = builder.operand(result)
        return _finished(tracer, outputs, replace(result, concrete), len(state))
    finally:
        tracer.handle.recorder = None
        builder.restore()


def _call(function: Callable[..., Any], values: list[Any], tracer: Tracer) -> Any:
    """Call the function; re-raises a refusal that the function caught."""
    refusals = tracer.refusals
    try:
        with RefuseUnseenOps(refusals) if tracer.rerun else contextlib.nullcontext():
            result = function(*values)
    except CannotRecord:
        raise
    except Exception as error:  # such as TorchScript's, which replaces the class of an error
        if refusals:
            raise CannotRecord(*refusals[0]) from error
        raise
    if refusals:
        raise CannotRecord(*refusals[0])
    return result


def _stand_in(tracer: Tracer, value: Any) -> Any:
    """What the function gets for an input: a clone of a tensor, or a symbolic number."""
    if isinstance(value, torch.Tensor):
        clone = _copied(value.detach()).requires_grad_(value.requires_grad)
        tracer.builder.add_input(clone)
        return clone
    slot = tracer.builder.add_input()
    if type(value) not in (int, float):
        return value
    return symbolic(value, tracer.handle, slot, Origin.ARGUMENT)


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, of which a function may ask (``is_contiguous``)."""
    copy = tensor.clone()
    if tensor.layout is not torch.strided or copy.stride() == tensor.stride():
        return copy
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    extent = 1 + sum((size - 1) * step for size, step in pairs)
    memory = tensor.as_strided((extent,), (1,)).clone()
    return memory.as_strided(tensor.shape, tensor.stride())


@contextlib.contextmanager
def _announced(tracer: Tracer) -> Iterator[None]:
    """A context in which ``sy.cond`` and ``sy.while_loop`` are recorded."""
    token = RECORDING.set(ControlFlowTracer(tracer))
    try:
        yield
    finally:
        RECORDING.reset(token)


@contextlib.contextmanager
def _optimizers_tracked(tracer: Tracer) -> Iterator[None]:
    """A context in which the tracer knows which optimizer takes a step.

    An optimizer must not decide by values of tensors.
    """

    def begin(optimizer: Any, args: Any, kwargs: Any) -> None:
        module = type(optimizer).__module__
        module = "torch.optim" if module.startswith("torch.optim.") else module
        tracer.decisions.optimizers.append(f"{module}.{type(optimizer).__qualname__}")

    def end(optimizer: Any, args: Any, kwargs: Any) -> None:
        tracer.decisions.optimizers.pop()

    handles = register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _finished(tracer: Tracer, outputs: Any, result: Any, state: int) -> FunctionTrace:
    """Order the tensors from outside, and complete the program."""
    builder = tracer.builder
    if builder.captured_numbers:
        instead = "let sy.cond or sy.while_loop return it"
        raise CannotRecord("a number that was made inside a branch", str(user_line()), instead)
    snapshots = builder.snapshots[state:]
    captured: list[Snapshot] = []
    constants: list[Snapshot] = []
    for snapshot in snapshots:
        _refuse_unusable(snapshot)
        (captured if _is_state(snapshot) else constants).append(snapshot)
    for snapshot in (*builder.snapshots[:state], *captured, *constants):
        builder.given.append(snapshot.slot)
    program = builder.program(
        outputs,
        state=state + len(captured),
        constants=tuple([snapshot.as_constant() for snapshot in constants]),
        prelude=tracer.gradients.ensured.values(),
    )
    return FunctionTrace(
        program,
        tuple([snapshot.tensor for snapshot in captured]),
        result,
        builder.actions,
        snapshots,
        builder.objects,
        tracer.decisions.warned_lines,
        tracer.reads_sizes,
        frozenset(tracer.properties_read),
        tracer.random_state.generators,
    )


def _is_state(snapshot: Snapshot) -> bool:
    """Whether a tensor from outside belongs to the state: it is trained, or was written to."""
    tensor = snapshot.tensor
    return snapshot.is_written or tensor.requires_grad or isinstance(tensor, nn.Parameter)


def _refuse_unusable(snapshot: Snapshot) -> None:
    """Refuse a tensor from outside that a program cannot hold, as is known after the run."""
    tensor, line = snapshot.tensor, str(snapshot.line)
    if tensor.grad_fn is not None:
        instead = "its graph cannot travel: hand it in as an argument, or use its detach()"
        raise CannotRecord("a tensor that was computed outside with a gradient", line, instead)
    if snapshot.changed_unseen:
        instead = "write to it by ordinary operations of torch"
        raise CannotRecord("a tensor that something wrote to unseen", line, instead)


class RefuseUnseenOps(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses every operation that it sees, and adds the parts of the refusal to ``refusals``.

    >>> with RefuseUnseenOps([]):
    ...     _ = torch.Tensor(2)
    Traceback (most recent call last):
    ...
    syft.exceptions.CannotRecord: A plan cannot keep aten.empty.memory_format, which ran where \
torch shows nothing of it ...
    """

    def __init__(self, refusals: list[tuple[str, str, str]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._refusals = refusals

    def __torch_dispatch__(
        self,
        operation: Any,
        types: Iterable[type],
        args: Arguments = (),
        kwargs: Keywords | None = None,
    ) -> Any:
        instead = (
            "use ordinary functions of torch, not torch.Tensor(2), numpy, torch.jit, compiled "
            "extensions or a custom autograd.Function"
        )
        what = f"{operation}{UNSEEN}"
        if operation is _LIFT:  # of numbers of Python: further runs show whether they are constants
            with DisableTorchFunction():
                return operation(*args, **kwargs or {})
        refusal = (what, str(user_line()), instead)
        self._refusals.append(refusal)
        raise CannotRecord(*refusal)
