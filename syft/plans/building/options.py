"""The numbers among the options of optimizers: inputs of a plan that every call reads anew.

A scheduler changes ``group["lr"]`` between two steps.  So while a plan is recorded, symbolic
numbers stand in the groups: what the optimizer computes from them is recorded, and what it decides
by them (``weight_decay != 0``) is expected.  A call then takes the numbers that stand in the groups
here at that moment, after its arguments.  Numbers that the program does not read are no inputs.

Every other option (a flag, a text, None) is a fact that the recording assumes.
"""

from __future__ import annotations

import copy as copying
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace as changed
from operator import is_
from typing import Any, NamedTuple

from torch.optim import Optimizer

from syft.ops.nested import replace
from syft.plans.building.input_properties import Expectations
from syft.plans.building.template import FLOAT, INT, kind_of
from syft.program.program import Action, Program, slots_in, without_inputs
from syft.program.recording.recorded_actions import EXPECT, OF_SIZES
from syft.program.recording.symbolic import is_symbolic

Number = int | float


class Option(NamedTuple):
    """``group[key]`` is a number, or a tuple or list of numbers, of the ``kinds``.

    It was ``value`` when the plan was recorded.  ``owner`` is the class of the optimizer.
    """

    owner: str
    group: dict[str, Any]
    key: str
    value: Any
    kinds: tuple[str, ...]

    def numbers(self, now: Any) -> list[Number] | None:
        """The numbers in what stands there now; None if they are of other kinds, or not as many.

        >>> rate = Option("SGD", {}, "lr", 0.1, (FLOAT,))
        >>> rate.numbers(1), rate.numbers(None)
        ([1.0], None)
        """
        if isinstance(now, _SEVERAL) is not isinstance(self.value, _SEVERAL):
            return None
        parts = parts_of(now)
        if len(parts) != len(self.kinds):
            return None
        numbers = list(map(_as_kind, parts, self.kinds))
        return None if None in numbers else numbers


_SEVERAL = (tuple, list)


def parts_of(value: Any) -> tuple[Any, ...]:
    """What is in a tuple or a list; of anything else, itself.

    >>> parts_of([0.9, 0.99]), parts_of(0.1)
    ((0.9, 0.99), (0.1,))
    """
    return tuple(value) if isinstance(value, _SEVERAL) else (value,)


def _as_kind(value: Any, kind: str) -> Any:
    """The value as a number of a kind, as which an int may stand for a float; else None."""
    given = _kind_of(value)
    if kind is FLOAT and (given is FLOAT or given is INT):
        return float(value)
    return value if given is kind else None


def _kind_of(value: Any) -> str | None:
    """The kind of a number, and None for one of a recording that goes on, maybe in another thread.

    Only its recorder may read it.
    """
    return None if is_symbolic(value) else kind_of(value)


def options_of(optimizers: Sequence[Optimizer]) -> list[Option]:
    """The options of optimizers that are numbers, one group after the other.

    >>> sgd = torch.optim.SGD([torch.ones(1)], lr=1)
    >>> [(option.key, option.kinds) for option in options_of([sgd])][:2]
    [('lr', ('float',)), ('momentum', ('float',))]
    """
    found: list[Option] = []
    for optimizer in optimizers:
        owner, floats = type(optimizer).__name__, _declared_as_floats(type(optimizer))
        for group in optimizer.param_groups:
            for key, value in group.items():
                kinds = _kinds_of(value, key in floats)
                if kinds:  # a list may be written to in place
                    found.append(Option(owner, group, key, copying.copy(value), kinds))
    return found


def _declared_as_floats(kind: type) -> set[str]:
    """The options of a class that are floats, even where they are written as ints: ``lr=1``."""
    parameters = inspect.signature(kind).parameters.values()
    return {each.name for each in parameters if "float" in str(each.annotation)}


def _kinds_of(value: Any, is_float: bool) -> tuple[str, ...]:
    """The kinds of the numbers in an option; none if there is anything else in it."""
    kinds = list(map(_kind_of, parts_of(value)))
    if not all(kind is FLOAT or kind is INT for kind in kinds):
        return ()
    return tuple([FLOAT if is_float else str(kind) for kind in kinds])


def numbers_in(options: Sequence[Option]) -> list[Number]:
    """The numbers with which a plan is recorded, in order.

    >>> numbers_in([Option("Adam", {}, "betas", (0.9, 0), (FLOAT, FLOAT))])
    [0.9, 0.0]
    """
    return [number for option in options for number in option.numbers(option.value) or ()]


def put(options: Sequence[Option], numbers: Sequence[Any]) -> None:
    """Put other numbers into the groups, such as the symbolic ones of a recording.

    >>> rate = Option("SGD", {"lr": 0.1}, "lr", 0.1, (FLOAT,))
    >>> put([rate], [0.2]); rate.group
    {'lr': 0.2}
    """
    given = iter(numbers)
    for option in options:
        option.group[option.key] = replace(option.value, lambda _: next(given))


class Options:
    """The options that a plan reads, as they are now.

    ``numbers`` are the inputs of its program that come after its arguments, as of the last time
    when :meth:`hold` was true; ``used`` says which of all numbers they are.  ``decisions`` is what
    the recording expects of all numbers, as its inputs, alone.

    >>> sgd = torch.optim.SGD([torch.ones(1)], lr=0.1)
    >>> plan = sy.func2plan(args_shape=[(1,)], state=[sgd])(
    ...     lambda x, state: x * state.read()[0].param_groups[0]["lr"]
    ... )
    >>> sgd.param_groups[0]["lr"] = 0.5
    >>> options = plan._record.built.assumptions.options
    >>> options.hold(), options.numbers, options.named()
    (True, (0.5,), (('lr', 0.5),))
    """

    __slots__ = ("numbers", "all", "used", "_decided", "_groups", "_keys", "_last")

    def __init__(
        self,
        options: Sequence[Option] = (),
        used: Sequence[int] = (),
        decisions: Program | None = None,
    ) -> None:
        self.all, self.used = options, used
        self._decided = None if decisions is None else Expectations(decisions, ())
        self._groups = [option.group for option in options]
        self._keys = [option.key for option in options]
        self._last = _unchanging(option.value for option in options)
        self.numbers = self._taken(numbers_in(options))

    def _taken(self, numbers: Sequence[Number]) -> tuple[Number, ...]:
        return tuple([numbers[index] for index in self.used])

    def hold(self) -> bool:
        """Whether the optimizers decide by their numbers as they did; ``numbers`` are new then."""
        now = list(map(dict.get, self._groups, self._keys))
        if all(map(is_, now, self._last)):
            return True
        numbers: list[Number] = []
        for option, value in zip(self.all, now, strict=True):
            found = option.numbers(value)
            if found is None:
                return False
            numbers += found
        if self._decided is not None and not self._decided.are_met(numbers):
            return False
        self.numbers, self._last = self._taken(numbers), _unchanging(now)
        return True

    def changes(self) -> Iterator[tuple[str, str, Any, Any]]:
        """What makes :meth:`hold` false: owner and key of each option, what it was, and is now.

        >>> list(Options().changes())
        []
        """
        deciding = set() if self._decided is None else {*self._decided.deciding}
        first = 0
        for option in self.all:
            now, last = option.group.get(option.key), first + len(option.kinds)
            numbers = option.numbers(now)
            if numbers is None or (
                numbers != option.numbers(option.value) and deciding & {*range(first, last)}
            ):
                yield option.owner, option.key, option.value, now
            first = last

    def named(self) -> tuple[tuple[str, Number], ...]:
        """The numbers with a name for each; those of the first group have the shortest."""
        names: list[str] = []
        groups = list(dict.fromkeys(map(id, self._groups)))
        for option in self.all:
            at = groups.index(id(option.group))
            name = f"groups.{at}.{option.key}" if at else option.key
            several = isinstance(option.value, _SEVERAL)
            names += [f"{name}.{i}" if several else name for i in range(len(option.kinds))]
        return tuple(zip([names[index] for index in self.used], self.numbers, strict=True))

    def moved(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Options:
        """The same options in other groups, such as those of a copied optimizer."""
        duplicate = copying.copy(self)
        duplicate.all = [option._replace(group=change(option.group)) for option in self.all]
        duplicate._groups = [option.group for option in duplicate.all]
        return duplicate


def _unchanging(values: Iterable[Any]) -> list[Any]:
    """The values, with tuples for lists: a list that was changed in place is still the same."""
    return [tuple(value) if isinstance(value, list) else value for value in values]


def fixed_options(named: Sequence[tuple[str, Number]]) -> Options:
    """The options of a plan that came without its optimizers: numbers that stay.

    >>> fixed_options([("lr", 0.1)]).numbers
    (0.1,)
    """
    group: dict[str, Any] = dict(named)
    options = [Option("", group, name, value, _kinds_of(value, False)) for name, value in named]
    return Options(options, range(len(options)))


def split_decisions(program: Program, first: int) -> tuple[Program, Program]:
    """What a program expects of its inputs from the ``first`` on alone, and the rest of it.

    :meth:`Options.hold` finds out before a call, in the process that knows the optimizers, whether
    they decide as they did.  So the program need not, and where it runs nothing need be known of a
    number that the optimizers only decide by.

    >>> from syft.program.program import Slot
    >>> decided = Action(EXPECT, ("gt", Slot(1), 0, True), {}, None)
    >>> decisions, rest = split_decisions(Program(2, (decided,), Slot(0), lines=("",)), 1)
    >>> decisions.inputs, decisions.actions[0].args, rest.actions
    (1, ('gt', Slot(0), 0, True), ())
    """
    found = _following(program, range(first, program.inputs))
    expected = {id(action) for action in found if action.op == EXPECT}
    left = [at for at, one in enumerate(program.actions) if id(one) not in expected]
    actions = tuple([program.actions[at] for at in left])
    lines = tuple([program.lines[at] for at in left])
    marks = tuple([program.marks[at] for at in left]) if program.marks else ()
    decisions = Program(program.inputs, tuple(found), ())
    rest = changed(program, actions=actions, lines=lines, marks=marks)
    return without_inputs(decisions, dict.fromkeys(range(first))), rest


def _following(program: Program, inputs: Iterable[int]) -> list[Action]:
    """What a program computes with numbers, and expects of them, that follow from these inputs."""
    known = set(inputs)
    found: list[Action] = []
    for action in program.actions:
        slots = {slot.index for slot in slots_in((action.args, action.kwargs))}
        if action.op in OF_SIZES and slots and slots <= known:
            found.append(action)
            known.update(slot.index for slot in slots_in(action.out))
    return found
