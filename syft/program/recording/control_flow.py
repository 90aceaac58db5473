"""``sy.cond`` and ``sy.while_loop``: decisions by values, in a form that a plan can keep.

Outside a recording they are ``if`` and ``while``.  Inside one, each branch is recorded as a program
of its own, whose inputs are the arguments and then what the branch captures from outside.  The
recording continues with the values of the path that is taken, so gradients flow as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from syft.exceptions import CannotRecord
from syft.ops import control
from syft.ops.control import RECORDING, Branch
from syft.ops.nested import leaves, replace
from syft.ops.table import COND, WHILE_LOOP
from syft.program.lowered import Lowered
from syft.program.program import Slot
from syft.program.recording.builder import ProgramBuilder, refuse_foreign
from syft.program.recording.environment.source_line import user_line
from syft.program.recording.symbolic import Origin, concrete, is_symbolic, symbolic
from syft.program.recording.tracer import Tracer
from syft.torch_private import alias_of


def cond(pred: Any, then: Branch, otherwise: Branch, *args: Any) -> Any:
    """Call ``then(*args)`` if ``pred`` is true, else ``otherwise(*args)``; a plan keeps both.

    ``pred`` is a tensor of one element or a number.  While a plan is recorded both are called, so
    they must return the same structure of tensors and numbers.  They may use and write to tensors
    of the surrounding function.

    Raises :class:`~syft.exceptions.CannotRecord` if the two return different structures.

    >>> x = torch.tensor([-1.0, 2.0])
    >>> cond(x.sum() > 0, lambda x: x * 2, lambda x: -x, x)
    tensor([-2.,  4.])
    """
    recording = RECORDING.get()
    if recording is None or not (isinstance(pred, torch.Tensor) or is_symbolic(pred)):
        return (then if pred else otherwise)(*args)
    return recording.cond(pred, then, otherwise, args)


def while_loop(test: Branch, body: Branch, *args: Any) -> Any:
    """Call ``body`` on ``args``, then on its own results, as long as ``test`` of them is true.

    The values are tensors and numbers.  ``body`` returns as many as it takes: one, or a tuple.  A
    plan keeps the loop, and evaluates ``test`` at each call.

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
            values = _as_tuple(body(*values), len(args))
    return values[0] if len(args) == 1 else tuple(values)


# ----------------------------------------------------------------------------------- recording


@dataclass(frozen=True, slots=True)
class _TracedBranch:
    """A branch that was run once: the builder of its program, and what it returned."""

    builder: ProgramBuilder
    result: Any
    outputs: list[Any]
    """The slots and numbers in what it returned."""


class ControlFlowTracer:
    """Records the branches and loops of the function that a tracer is recording.

    >>> tracer = Tracer()
    >>> with tracer:
    ...     x = torch.ones(1)
    ...     y = ControlFlowTracer(tracer).cond(x > 0, torch.neg, torch.abs, [x])
    >>> y
    tensor([-1.])
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    @property
    def tracer(self) -> Tracer:
        """What records the function."""
        return self._tracer

    def cond(self, pred: Any, then: Branch, otherwise: Branch, args: Sequence[Any]) -> Any:
        """Record both branches, and return the values of the one that ``pred`` selects now."""
        tracer, args = self._tracer, tuple(args)
        inputs = [leaf for leaf in leaves(args) if _is_value(leaf)]

        def traced(branch: Branch) -> _TracedBranch:
            return self._trace(inputs, lambda values: branch(*_with_values(args, values)))

        branches = traced(then), traced(otherwise)
        first, second = (replace(branch.result, _kind_of_value) for branch in branches)
        if first != second:
            raise CannotRecord(
                "sy.cond whose branches return different things",
                str(user_line()),
                "let both return the same structure of tensors and numbers",
            )
        with tracer.paused():
            captured = self._capture(branches)
            programs = [branch.builder.program(tuple(branch.outputs)) for branch in branches]
            operands = [*inputs, *captured]
            action = tracer.new_action(COND, (pred, *programs, tuple(operands)))
            runs = Lowered(programs[0]), Lowered(programs[1])
            values = control.cond(concrete(pred), *runs, list(map(concrete, operands)))
            action.out, own = self._bind(values)
        tracer.builder.actions.append(action)
        return _with_values(branches[0].result, own)

    def while_loop(self, test: Branch, body: Branch, args: Sequence[Any]) -> tuple[Any, ...]:
        """Record a loop, and return the values after its last iteration."""
        tracer, inputs = self._tracer, list(args)
        if not all(map(_is_value, inputs)):
            raise _not_a_loop("takes something else than tensors and numbers")

        def checked_body(values: Sequence[Any]) -> tuple[Any, ...]:
            results = _as_tuple(body(*values), len(inputs))
            _check_kinds(inputs, results)
            return results

        traced_test = self._trace(inputs, lambda values: test(*values))
        traced_body = self._trace(inputs, checked_body)
        with tracer.paused():
            captured = self._capture((traced_test, traced_body))
            unchanged = traced_body.builder.given[len(inputs) :]
            programs = [
                traced_test.builder.program(_single_output(traced_test)),
                traced_body.builder.program((*traced_body.outputs, *unchanged)),
            ]
            operands = [*inputs, *captured]
            action = tracer.new_action(WHILE_LOOP, (*programs, tuple(operands)))
            runs = Lowered(programs[0]), Lowered(programs[1])
            values = control.while_loop(*runs, list(map(concrete, operands)))
            slots, own = self._bind(values[: len(inputs)])
        action.out = slots + (None,) * len(captured)
        tracer.builder.actions.append(action)
        return tuple(own)

    def refuse(self, what: str, instead: str) -> NoReturn:
        """Raise :class:`~syft.exceptions.CannotRecord`, even if the function catches it."""
        self._tracer.refuse(what, instead)

    def paused(self) -> AbstractContextManager[None]:
        """A context in which nothing is recorded."""
        return self._tracer.paused()

    def _trace(self, inputs: list[Any], run: Callable[[Sequence[Any]], Any]) -> _TracedBranch:
        """Run a branch on objects that stand for its inputs."""
        with self._tracer.nested_builder() as builder:
            result = run(self._stand_ins(builder, inputs))
            with self._tracer.paused():
                outputs = [builder.operand(leaf) for leaf in leaves(result) if _is_value(leaf)]
            return _TracedBranch(builder, result, outputs)

    def _stand_ins(self, builder: ProgramBuilder, inputs: list[Any]) -> list[Any]:
        """An alias of each tensor and a new symbolic number for each number."""
        tracer = self._tracer
        own: list[Any] = []
        for value in inputs:
            if isinstance(value, torch.Tensor):
                refuse_foreign(value)
                with tracer.paused():
                    alias = alias_of(value)
                    builder.add_alias(alias, value)
                own.append(alias)
            else:
                slot = builder.add_input()
                own.append(symbolic(concrete(value), tracer.handle, slot, Origin.VALUE))
        return own

    def _capture(self, branches: Iterable[_TracedBranch]) -> list[Any]:
        """Add an input to each branch for all that any of them captured; returns these values."""
        captured: dict[int, Any] = {}
        for branch in branches:
            builder = branch.builder
            captured.update((id(item.tensor), item.tensor) for item in builder.snapshots)
            captured.update((key, item[0]) for key, item in builder.captured_numbers.items())
            for snapshot in (*builder.snapshots, *builder.aliased):
                if snapshot.is_written:
                    self._tracer.builder.mark_written(snapshot.tensor)
        for branch in branches:
            _add_inputs(branch.builder, captured)
        return list(captured.values())

    def _bind(self, results: Sequence[Any]) -> tuple[tuple[Slot, ...], list[Any]]:
        """The slots of the results of branches, and the results as the function is to see them."""
        builder = self._tracer.builder
        builder.has_data_dependent = True  # shapes may depend on which branch was taken
        slots, own = [], []
        for value in results:
            if isinstance(value, torch.Tensor):
                slot, value = builder.bind_result(value, data_dependent=True)
            else:
                slot = builder.new_slot()
                value = symbolic(value, self._tracer.handle, slot, Origin.VALUE)
            slots.append(slot)
            own.append(value)
        return tuple(slots), own


def _add_inputs(builder: ProgramBuilder, captured: Iterable[int]) -> None:
    """Give a branch an input for each captured value, used or not, in the common order."""
    own = {id(snapshot.tensor): snapshot.slot for snapshot in builder.snapshots}
    own.update((key, slot) for key, (_, slot) in builder.captured_numbers.items())
    builder.given += [own.get(key) or builder.new_slot() for key in captured]


def _is_value(leaf: Any) -> bool:
    """Whether a leaf may differ at the next call: a tensor or a number."""
    return isinstance(leaf, (torch.Tensor, int, float))


def _with_values(structure: Any, values: Sequence[Any]) -> Any:
    """A structure with other values in place of its tensors and numbers."""
    rest = iter(values)
    return replace(structure, lambda leaf: next(rest) if _is_value(leaf) else leaf)


def _kind_of_value(leaf: Any) -> Any:
    """What must be equal in two branches: the kind of a tensor or number, or the leaf itself."""
    if isinstance(leaf, torch.Tensor):
        return torch.Tensor
    return float if _is_value(leaf) else leaf


def _as_tuple(result: Any, count: int) -> tuple[Any, ...]:
    """What the body of a loop returned, as a tuple."""
    values = (result,) if count == 1 and not isinstance(result, (tuple, list)) else result
    if not isinstance(values, (tuple, list)) or len(values) != count:
        raise _not_a_loop(f"does not return {count} values")
    return tuple(values)


def _check_kinds(before: Sequence[Any], after: Sequence[Any]) -> None:
    """Refuse a body that returns another kind of value than it takes."""
    if list(map(_kind_of_value, before)) != list(map(_kind_of_value, after)):
        raise _not_a_loop("returns a tensor for a number, or a number for a tensor")


def _single_output(test: _TracedBranch) -> Any:
    """What the test of a loop returns."""
    if not _is_value(test.result):
        raise _not_a_loop("has a test that returns neither a tensor nor a number")
    return test.outputs[0]


def _not_a_loop(what: str) -> CannotRecord:
    instead = "let the body return tensors and numbers, as many as it takes"
    return CannotRecord(f"a sy.while_loop that {what}", str(user_line()), instead)
