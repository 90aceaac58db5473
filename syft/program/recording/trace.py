"""One run of a function under a tracer, which leaves the user's tensors and torch as before."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from syft.exceptions import CannotRecord
from syft.program.recording.unseen_ops import Canary
from syft.ops.control import RECORDING
from syft.program.recording.builder import Noted
from syft.program.recording.random_state import Randomness
from syft.program.recording.gradients import Gradients, Unconnected
from syft.program.program import Program
from syft.program.recording.snapshot import Snapshot
from syft.program.recording.source_line import SourceLine, end_of, user_line
from syft.program.recording.tracer import Decision, Tracer
from syft.program.recording.symbolic import Origin, plain, traced
from syft.ops.nested import replace


@dataclass(frozen=True, slots=True)
class Take:
    """What one run gave: the program, and what the check looks at."""

    program: Program
    captured: tuple[torch.Tensor, ...]
    result: Any
    noted: list[Noted]
    met: list[Snapshot]
    """The tensors from outside, after those named as state."""
    made: list[Any]
    """Every object that was seen, alive so that identities stay what they are."""
    decisions: list[Decision]
    warned: set[str]
    """The lines that the user was warned about already."""
    looks: bool
    """Whether the user's code has looked at sizes."""
    fixed: frozenset[str]
    """Which other properties of tensors it has looked at."""
    generators: dict[torch.Generator, SourceLine]
    """Random generators that it has drawn from."""


def take(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    state: Sequence[torch.Tensor],
    again: bool = False,
    decisions: list[Decision] | None = None,
    generators: Collection[torch.Generator] = (),
) -> Take:
    """Run a function once and write down what it does.

    ``decisions`` are put down in the list that is given, so that they are there if it raises.
    ``generators`` are those it drew from another time.
    """
    missing: tuple[torch.Tensor, ...] = ()
    decisions = [] if decisions is None else decisions
    while True:
        decisions.clear()
        tracer = Tracer(again, decisions, Randomness(generators))
        tracer.gradients = Gradients(missing)
        try:
            return _attempt(tracer, function, inputs, state)
        except Unconnected as error:
            missing += tuple(error.tensors)


def _attempt(
    tracer: Tracer,
    function: Callable[..., Any],
    inputs: Sequence[Any],
    state: Sequence[torch.Tensor],
) -> Take:
    draft = tracer.draft
    values = [_handed_in(tracer, value) for value in inputs]
    for tensor in state:
        draft.meet(tensor)
    try:
        with tracer.random, _optimizers_watched(tracer), _current(tracer), tracer:
            result = _called(function, values, tracer)
            with tracer.unseen():
                noted = draft.noted
                tracer.random.check(
                    noted[-1].line if noted and noted[-1].line.file else end_of(function)
                )
        outputs = draft.operand(result)
        return _finished(tracer, outputs, replace(result, plain), len(state))
    finally:
        tracer.tape.writer = None
        draft.restore()


def _called(function: Callable[..., Any], values: list[Any], tracer: Tracer) -> Any:
    """What the function returns; whoever catches a refusal on the way, it is raised here again."""
    refusals = tracer.refusals
    try:
        with Canary(refusals) if tracer.again else contextlib.nullcontext():
            result = function(*values)
    except CannotRecord:
        raise
    except Exception as error:  # such as TorchScript's, which gives errors a class of its own
        if refusals:
            raise CannotRecord(*refusals[0]) from error
        raise
    if refusals:
        raise CannotRecord(*refusals[0])
    return result


def _handed_in(tracer: Tracer, value: Any) -> Any:
    """What the function gets for an input: a clone, or a traced number."""
    if isinstance(value, torch.Tensor):
        clone = value.detach().clone().requires_grad_(value.requires_grad)
        tracer.draft.give(clone)
        return clone
    place = tracer.draft.give()
    if type(value) not in (int, float):
        return value
    return traced(value, tracer.tape, place, Origin.VALUE)


@contextlib.contextmanager
def _current(tracer: Tracer) -> Iterator[None]:
    """Let ``sy.cond`` know that a recording goes on."""
    token = RECORDING.set(tracer)
    try:
        yield
    finally:
        RECORDING.reset(token)


@contextlib.contextmanager
def _optimizers_watched(tracer: Tracer) -> Iterator[None]:
    """Know which optimizer is taking a step: none of them may decide by a value."""

    def begin(optimizer: Any, args: Any, kwargs: Any) -> None:
        module = type(optimizer).__module__
        module = "torch.optim" if module.startswith("torch.optim.") else module
        tracer.optimizers.append(f"{module}.{type(optimizer).__qualname__}")

    def end(optimizer: Any, args: Any, kwargs: Any) -> None:
        tracer.optimizers.pop()

    handles = register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _finished(tracer: Tracer, outputs: Any, result: Any, state: int) -> Take:
    """Put the tensors met into order, and complete the program."""
    draft = tracer.draft
    if draft.numbers:
        instead = "let sy.cond or sy.while_loop return it"
        raise CannotRecord("a number that was made inside a branch", str(user_line()), instead)
    met = draft.snapshots[state:]
    captured: list[Snapshot] = []
    constants: list[Snapshot] = []
    for snapshot in met:
        _check_met(snapshot)
        (captured if _is_state(snapshot) else constants).append(snapshot)
    for snapshot in (*draft.snapshots[:state], *captured, *constants):
        draft.given.append(snapshot.place)
    program = draft.program(
        outputs,
        state=state + len(captured),
        constants=tuple([snapshot.as_constant() for snapshot in constants]),
        opening=tracer.gradients.early.values(),
    )
    return Take(
        program,
        tuple([snapshot.tensor for snapshot in captured]),
        result,
        draft.noted,
        met,
        draft.kept,
        tracer.decisions,
        tracer.warned,
        tracer.looks,
        frozenset(tracer.fixed),
        tracer.random.met,
    )


def _is_state(snapshot: Snapshot) -> bool:
    """Whether a tensor from outside belongs to the state: it learns, or was written to."""
    tensor = snapshot.tensor
    return snapshot.written or tensor.requires_grad or isinstance(tensor, nn.Parameter)


def _check_met(snapshot: Snapshot) -> None:
    """Refuse tensors from outside that a program cannot hold after all."""
    tensor, line = snapshot.tensor, str(snapshot.line)
    if tensor.grad_fn is not None:
        instead = "its graph cannot travel: hand it in as an argument, or use its detach()"
        raise CannotRecord("a tensor that was computed outside with a gradient", line, instead)
    if snapshot.changed_unseen:
        instead = "write to it by ordinary operations of torch"
        raise CannotRecord("a tensor that something wrote to unseen", line, instead)
