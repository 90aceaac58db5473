"""What a recording expects of its inputs: properties that the function asked for, and sizes.

``torch.zeros(3, dtype=x.dtype)`` records the dtype that ``x`` had.  A dtype or a number of
dimensions is a Python value that cannot be traced.  So a plan keeps the value of each such property
for its inputs.  Sizes are traced and free to change, unless Python decided by them (``range(n)``):
then the program expects the same outcome (:func:`syft.ops.numbers.expect`).

A call with inputs of which something else is true is recorded anew where the function is, and
refused elsewhere, as at the worker to which the plan was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from syft.exceptions import MalformedMessage, OtherPath, WrongArguments
from syft.ops.nested import leaves
from syft.ops.table import may_alter
from syft.program.lowered import Lowered
from syft.program.program import Action, Program, slots_in
from syft.program.recording.recorded_actions import EXPECT, OF_SIZES
from syft.serde.expect import expect_type

Fixed = tuple[tuple[str, tuple[Any, ...]], ...]
"""Names of properties, each with its value for every input (None for a number)."""

PROPERTIES: dict[str, Callable[[torch.Tensor], Any]] = {
    "dtype": lambda tensor: str(tensor.dtype),
    "device": lambda tensor: str(tensor.device),
    "layout": lambda tensor: str(tensor.layout),
    "dim": torch.Tensor.dim,
    "requires_grad": lambda tensor: tensor.requires_grad,
    "is_contiguous": torch.Tensor.is_contiguous,
}
"""How to read each property, by the names in :mod:`syft.program.recording.op_facts`."""


def fixed_in(names: Iterable[str], inputs: Sequence[Any]) -> Fixed:
    """The values of these properties for the inputs.

    >>> fixed_in(["dtype"], [torch.ones(2), 3])
    (('dtype', ('torch.float32', None)),)
    """
    return tuple((name, tuple(_values(name, inputs))) for name in sorted(names))


def check_fixed(plan: str, fixed: Fixed, inputs: Sequence[Any], names: Sequence[str]) -> None:
    """Refuse inputs whose properties have other values; ``names`` are the names of the inputs.

    Raises :class:`~syft.exceptions.WrongArguments`.

    >>> fixed = fixed_in(["dim"], [torch.ones(2)])
    >>> check_fixed("f", fixed, [torch.ones(5)], ["x"])
    >>> check_fixed("f", fixed, [torch.ones(2, 2)], ["x"])
    Traceback (most recent call last):
    ...
    syft.exceptions.WrongArguments: Plan 'f' takes dim 1 for x (it asks for the dim, and was built \
with that: build it again for another), and got dim 2.
    """
    for name, recorded in fixed:
        now = list(_values(name, inputs))
        for input_name, before, value in zip(names, recorded, now, strict=True):
            if before != value:
                why = f"it asks for the {name}, and was built with that: build it again for another"
                expected = f"{name} {before} for {input_name} ({why})"
                raise WrongArguments(plan, expected, f"{name} {value}")


def _values(name: str, inputs: Sequence[Any]) -> Iterable[Any]:
    property_of = PROPERTIES[name]
    return (property_of(value) if isinstance(value, torch.Tensor) else None for value in inputs)


def expect_fixed(value: Any, inputs: int, where: str) -> Fixed:
    """Check the fixed properties that arrived for a number of inputs; returns them.

    Raises :class:`~syft.exceptions.MalformedMessage`.

    >>> expect_fixed((("dim", (1,)),), 1, ".fixed")
    (('dim', (1,)),)
    """
    for index, pair in enumerate(expect_type(value, tuple, "a tuple", where)):
        here = f"{where}[{index}]"
        if not isinstance(pair, tuple) or len(pair) != 2 or type(pair[0]) is not str:
            raise MalformedMessage(f"${here}", "a name and values", "something else")
        if pair[0] not in PROPERTIES:
            raise MalformedMessage(f"${here}", "the name of a property", "another text")
        values = expect_type(pair[1], tuple, "a tuple", here)
        if len(values) != inputs:
            raise MalformedMessage(f"${here}", f"{inputs} values", str(len(values)))
        for each in values:
            expect_type(each, (str, bool, int, type(None)), "a plain value", here)
    fixed: Fixed = value
    return fixed


_MOST_KNOWN = 1 << 12
"""Sizes and numbers that were found to fit, which are kept to find it out once."""


class Expectations:
    """Whether a call goes the way that was recorded: what its inputs must be like.

    >>> plan = sy.func2plan(args_shape=[(2, 3)])(lambda x: sum(x[i] for i in range(x.shape[0])))
    >>> expected = Expectations(plan.program, ())
    >>> expected.are_met([torch.ones(2, 5)]), expected.are_met([torch.ones(3, 5)])
    (True, False)
    """

    def __init__(self, program: Program, fixed: Fixed) -> None:
        self._fixed = fixed
        first = _last_expected(program)
        self._early = Program(program.inputs, program.actions[:first], (), program.state)
        self._early_run: Lowered | None = None
        self.are_inside = _expects(program, first)
        """Whether something is expected of what the program computes, so that only a further run of
        the function tells which way it goes."""
        self.deciding = _deciding_inputs(program)
        self._known: set[tuple[Any, ...]] = set()

    @property
    def are_none(self) -> bool:
        """Whether any inputs will do."""
        return not self.deciding and not self._fixed

    def key(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The sizes and numbers among the inputs by which the function decides."""
        key: list[Any] = []
        for value in map(values.__getitem__, self.deciding):
            key += (value.shape,) if isinstance(value, torch.Tensor) else (type(value), value)
        return tuple(key)

    def are_met(self, values: Sequence[Any]) -> bool:
        """Whether inputs (and state) are what was expected, as far as is known."""
        for name, recorded in self._fixed:
            if tuple(_values(name, values[: len(recorded)])) != recorded:
                return False
        if not self.deciding:
            return True
        key = self.key(values)
        if key not in self._known:
            if self.are_inside or not self._hold(values):
                return False
            self.learn(key)
        return True

    def _hold(self, values: Sequence[Any]) -> bool:
        if self._early_run is None:
            self._early_run = Lowered(self._early)
        try:
            self._early_run.run(values)
        except OtherPath:
            return False
        return True

    def learn(self, key: tuple[Any, ...]) -> None:
        """Take it that a call with these sizes and numbers goes the way that was recorded."""
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known.add(key)


def _last_expected(program: Program) -> int:
    """How many actions there are up to the last expectation before anything has an effect."""
    last = 0
    for index, action in enumerate(program.actions):
        if action.op == EXPECT:
            last = index + 1
        elif action.op not in OF_SIZES:
            break
    return last


def _expects(program: Program, first: int = 0) -> bool:
    """Whether a program expects something after its first actions, or one inside it does."""
    return any(map(_action_expects, program.actions[first:]))


def _action_expects(action: Action) -> bool:
    nested = (leaf for leaf in leaves(action.args) if isinstance(leaf, Program))
    return action.op == EXPECT or any(map(_expects, nested))


def _indices(operand: Any) -> set[int]:
    return {slot.index for slot in slots_in(operand)}


def _deciding_inputs(program: Program) -> list[int]:
    """The inputs whose sizes or values the expectations of a program follow from."""
    wanted: set[int] = set()
    for action in reversed(program.actions):
        operands = _indices((action.args, action.kwargs))
        results = _indices(action.out)
        if may_alter(action.op, action.kwargs):
            results |= operands
        if not wanted.isdisjoint(results) or _action_expects(action):
            wanted |= operands
    return sorted(index for index in wanted if index < program.inputs)
