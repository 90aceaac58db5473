"""``sy.cond`` and ``sy.while_loop``: what a function decides by a value, in a form a plan can keep.

Outside a recording they are ``if`` and ``while``.  Inside one, each branch is recorded as a program
of its own, whose inputs are the arguments and then whatever the branch takes from outside.  The
values of the run that is recorded go on with the path that was taken, so gradients flow as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from syft.exceptions import CannotRecord
from syft.ops import control
from syft.ops.control import RECORDING, Branch
from syft.program.recording.builder import Draft, Place
from syft.program.lowered import Lowered
from syft.ops.table import BY_NAME
from syft.program.program import Program
from syft.program.recording.source_line import user_line
from syft.torch_private import alias_of
from syft.program.recording.symbolic import KINDS, Origin, plain, traced
from syft.ops.nested import leaves, replace

if TYPE_CHECKING:
    from syft.program.recording.tracer import Tracer

_COND = BY_NAME["syft.ops.control.cond"]
_LOOP = BY_NAME["syft.ops.control.while_loop"]


def cond(pred: Any, then: Branch, otherwise: Branch, *args: Any) -> Any:
    """Call ``then(*args)`` if ``pred`` is true, else ``otherwise(*args)``; a plan keeps both.

    ``pred`` is a tensor of one element or a number.  While a plan is recorded both are called, so
    they must return the same structure of tensors and numbers; tensors of the surrounding function
    may be used and written to.

    Raises :class:`~syft.exceptions.CannotRecord` if the two return different structures.

    >>> x = torch.tensor([-1.0, 2.0])
    >>> cond(x.sum() > 0, lambda x: x * 2, lambda x: -x, x)
    tensor([-2.,  4.])
    """
    recording = RECORDING.get()
    if recording is None or not isinstance(pred, (torch.Tensor, *KINDS)):
        return (then if pred else otherwise)(*args)
    return recording.cond(pred, then, otherwise, args)


def while_loop(test: Branch, body: Branch, *args: Any) -> Any:
    """Call ``body`` on what it returned last, first on ``args``, while ``test`` of that is true.

    The values are tensors and numbers. ``body`` returns as many as it takes: one, or a tuple. A
    plan keeps the loop, and decides anew each time how often to go round.

    Raises :class:`~syft.exceptions.CannotRecord` if ``body`` returns something else.

    >>> while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, x * 2), 0, torch.ones(2))
    (3, tensor([8., 8.]))
    """
    recording = RECORDING.get()
    if recording is not None:
        values = recording.while_loop(test, body, args)
    else:
        values = args
        while test(*values):
            values = _as_values(body(*values), len(args))
    return values[0] if len(args) == 1 else tuple(values)


# ----------------------------------------------------------------------------------- recording


@dataclass(frozen=True, slots=True)
class _Part:
    """A branch that was run once: its draft, and what it returned."""

    draft: Draft
    result: Any
    outputs: list[Any]
    """The places and numbers of what it returned, flat."""


def record_cond(
    tracer: Tracer, pred: Any, then: Branch, otherwise: Branch, args: Sequence[Any]
) -> Any:
    """Record a branch in the program that is being written, and take it.

    >>> from syft.program.recording.tracer import Tracer
    >>> tracer = Tracer()
    >>> with tracer:
    ...     x = torch.ones(1)
    ...     y = record_cond(tracer, x > 0, torch.neg, torch.abs, [x])
    >>> y
    tensor([-1.])
    """
    inputs = [leaf for leaf in leaves(tuple(args)) if _varies(leaf)]
    parts = []
    for branch in (then, otherwise):
        with tracer.nested() as draft:
            result = branch(*_filled(tuple(args), _handed(tracer, draft, inputs)))
            parts.append(_Part(draft, result, _outputs(tracer, result)))
    first, second = (replace(part.result, _kind) for part in parts)
    if first != second:
        raise CannotRecord(
            "sy.cond whose branches return different things",
            str(user_line()),
            "let both return the same structure of tensors and numbers",
        )
    with tracer.unseen():
        operands, programs = _programs(tracer, parts, inputs)
        noted = tracer.noted(_COND, (pred, *programs, tuple(operands)))
        first_run, second_run = map(Lowered, programs)
        values = [plain(value) for value in operands]
        results = control.cond(plain(pred), first_run, second_run, values)
        noted.out, own = _bound(tracer, results)
    tracer.draft.noted.append(noted)
    return _filled(parts[0].result, own)


def record_loop(tracer: Tracer, test: Branch, body: Branch, args: Sequence[Any]) -> tuple[Any, ...]:
    """Record a loop in the program that is being written, and go round it."""
    inputs = list(args)
    if not all(map(_varies, inputs)):
        raise _not_a_loop("takes something else than tensors and numbers")
    parts = []
    for branch, count in ((test, 0), (body, len(inputs))):
        with tracer.nested() as draft:
            result = branch(*_handed(tracer, draft, inputs))
            if count:
                result = _as_values(result, count)
                _check_turn(inputs, result)
            parts.append(_Part(draft, result, _outputs(tracer, result)))
    with tracer.unseen():
        operands, programs = _programs(tracer, parts, inputs, loop=True)
        noted = tracer.noted(_LOOP, (*programs, tuple(operands)))
        tests, turns = map(Lowered, programs)
        results = control.while_loop(tests, turns, [plain(value) for value in operands])
        pattern, own = _bound(tracer, results[: len(inputs)])
    noted.out = pattern + (None,) * (len(operands) - len(inputs))
    tracer.draft.noted.append(noted)
    return tuple(own)


def _programs(
    tracer: Tracer, parts: list[_Part], inputs: list[Any], loop: bool = False
) -> tuple[list[Any], list[Program]]:
    """Complete the programs of some branches; returns them after the operands they all take."""
    taken: dict[int, Any] = {}
    for part in parts:
        taken.update((id(snapshot.tensor), snapshot.tensor) for snapshot in part.draft.snapshots)
        taken.update((key, number) for key, (number, _) in part.draft.numbers.items())
        for snapshot in (*part.draft.snapshots, *part.draft.lent):
            if snapshot.written:
                tracer.draft.write(snapshot.tensor)
    programs = []
    for part in parts:
        draft = part.draft
        own = {id(snapshot.tensor): snapshot.place for snapshot in draft.snapshots}
        own.update((key, place) for key, (_, place) in draft.numbers.items())
        draft.given += [own.get(key) or Place(draft.home) for key in taken]
        outputs: Any = tuple(part.outputs)
        if loop and part is parts[0]:
            outputs = _one_answer(part)
        elif loop:
            outputs += tuple(draft.given[len(inputs) :])
        programs.append(draft.program(outputs))
    return [*inputs, *taken.values()], programs


def _handed(tracer: Tracer, draft: Draft, inputs: list[Any]) -> list[Any]:
    """What a branch gets for its inputs: objects of their own, which are its inputs."""
    handed = []
    for value in inputs:
        if isinstance(value, torch.Tensor):
            with tracer.unseen():
                own = alias_of(value)
                draft.lend(own, value)
            handed.append(own)
        else:
            handed.append(traced(plain(value), tracer.tape, draft.give(), Origin.VALUE))
    return handed


def _outputs(tracer: Tracer, result: Any) -> list[Any]:
    with tracer.unseen():
        return [tracer.draft.operand(leaf) for leaf in leaves(result) if _varies(leaf)]


def _bound(tracer: Tracer, results: Sequence[Any]) -> tuple[tuple[Place, ...], list[Any]]:
    """The places of the results of branches, and the results as the function is to see them."""
    draft = tracer.draft
    draft.has_volatile = True  # which branch was taken may have shaped them
    places, own = [], []
    for value in results:
        if isinstance(value, torch.Tensor):
            value = alias_of(value) if draft.knows(value) else value
            places.append(draft.bind(value, volatile=True))
        else:
            places.append(Place(draft.home))
            value = traced(value, tracer.tape, places[-1], Origin.VALUE)
        own.append(value)
    return tuple(places), own


def _varies(leaf: Any) -> bool:
    """Whether a value may be another the next time: a tensor or a number."""
    return isinstance(leaf, (torch.Tensor, int, float))


def _filled(structure: Any, values: Sequence[Any]) -> Any:
    """A structure with other values in place of its tensors and numbers."""
    rest = iter(values)
    return replace(structure, lambda leaf: next(rest) if _varies(leaf) else leaf)


def _kind(leaf: Any) -> Any:
    """What two branches must agree in: the kind of what varies, and the value of what does not."""
    if isinstance(leaf, torch.Tensor):
        return torch.Tensor
    return float if _varies(leaf) else leaf


def _as_values(result: Any, count: int) -> tuple[Any, ...]:
    """What the body of a loop returned, as a tuple."""
    values = (result,) if count == 1 and not isinstance(result, (tuple, list)) else result
    if not isinstance(values, (tuple, list)) or len(values) != count:
        raise _not_a_loop(f"does not return {count} values")
    return tuple(values)


def _check_turn(before: Sequence[Any], after: Sequence[Any]) -> None:
    """Refuse a body that returns another kind of value than it takes."""
    if [_kind(value) for value in before] != [_kind(value) for value in after]:
        raise _not_a_loop("returns a tensor for a number, or a number for a tensor")


def _one_answer(part: _Part) -> Any:
    """What the test of a loop returns."""
    if not _varies(part.result):
        raise _not_a_loop("has a test that returns neither a tensor nor a number")
    return part.outputs[0]


def _not_a_loop(what: str) -> CannotRecord:
    instead = "let the body return tensors and numbers, as many as it takes"
    return CannotRecord(f"a sy.while_loop that {what}", str(user_line()), instead)
