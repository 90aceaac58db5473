"""Building a plan: a function is recorded once, and the places of its state are kept beside it.

What the function may use besides its arguments is looked up first: the elements of its state, and
the modules and optimizers that its body names (a closure).  So every tensor that the recording
captured has a name and a place where it lives, and what decided the path (training or not, the
options of an optimizer) is compared at every call.
"""

from __future__ import annotations

import copy as copying
import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from syft.exceptions import FrozenPath
from syft.ops.control import RECORDING
from syft.ops.nested import EXACT_TENSOR_TYPES, every_tensor, leaves, replace
from syft.plans.building.assigned_buffers import AssignedBuffers
from syft.plans.building.assumptions import (
    Assumptions,
    modules_in,
    observe,
    sets_requires_grad,
    with_copies,
)
from syft.plans.building.interface import (
    Blueprint,
    Interface,
    Outline,
    interface_of,
    with_flat_outputs,
)
from syft.plans.building.input_properties import Expectations, check_fixed, fixed_in
from syft.plans.building.optimizers import (
    MadeInside,
    PreparedOptimizers,
    StateTensor,
    UnsteppedSchedulers,
    refuse_changes,
)
from syft.plans.building.options import Options, numbers_in, split_decisions
from syft.plans.building.reads import Surroundings
from syft.plans.building.shapeless_modules import give_shapes, without_shape
from syft.plans.building.state import BoundState, Source, State, places_of
from syft.plans.building.template import INT, kind_of, plain_number
from syft.program.lowered import Lowered
from syft.program.program import Program, Slot, slots_in, without_inputs
from syft.program.recording.environment.source_line import last_line_of
from syft.program.recording.record import Recording, record
from syft.program.recording.symbolic import concrete, is_symbolic
from syft.workers.hardening.precautions import RUNNABLE

_ENTRY = attrgetter("entry")
STATE = "state"
"""The parameter through which a function gets the elements of its state."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a plan is recorded from: a function with its parameters, and where its state is.

    ``state`` is the argument of that name, if the function takes one; ``body`` is the function
    that is searched for names of modules and optimizers.
    """

    name: str
    function: Callable[..., Any]
    body: Callable[..., Any]
    signature: inspect.Signature
    sources: list[Source]
    state: State | None = None

    def reads(self) -> Surroundings:
        """What the body reads besides its arguments, as it is now."""
        return Surroundings(self.body, [source.entry for source in self.sources])

    def known(self, reads: Surroundings) -> list[Source]:
        """The elements of the state, and the modules and optimizers that the body names."""
        given = [source.entry for source in self.sources]
        return [
            *self.sources,
            *[
                Source.of(name, entry)
                for name, entry in reads.direct.items()
                if not any(entry is other for other in given)
            ],
        ]

    def entries(self) -> list[Any]:
        """The same elements, modules and optimizers without their names."""
        return [source.entry for source in self.known(self.reads())]

    def takes(self, name: str) -> bool:
        """Whether a keyword of this name is an argument of the function."""
        parameters = self.signature.parameters
        return name in parameters or any(
            parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()
        )

    def call(self, interface: Interface, inputs: Sequence[Any]) -> Any:
        """Call the function on the inputs of an interface."""
        args, kwargs = interface.arguments(inputs)
        if self.state is not None:
            kwargs[STATE] = self.state
        return self.function(*args, **kwargs)


@dataclass(slots=True)
class BuiltPlan:
    """A plan that has been recorded: its blueprint, and where its state lives here.

    ``program`` returns what the function returns, nested as it was.  ``replays_only`` says that
    some of the state was found in the closure of the function: a copy of the plan has state of its
    own, which the function would not use.
    """

    blueprint: Blueprint
    program: Program
    state: BoundState
    assumptions: Assumptions
    inputs: tuple[Any, ...] = ()
    """The outline of each tensor it was built with, and each number."""
    replays_only: bool = False
    makes_optimizers: bool = False
    """Whether the function makes optimizers, which only further runs of it show."""
    accepted: set[tuple[type, ...]] = field(default_factory=set)
    """Types of positional arguments that need no binding; it makes the common call fast."""
    expected: Expectations = field(init=False)
    """What the inputs of a call must be like."""
    is_stateless: bool = field(init=False)
    """Whether a call depends on nothing but its arguments."""
    run: Callable[[Sequence[Any]], Any] | None = field(init=False, default=None)
    """The program made ready to run.  None before the first call: some plans are only sent."""

    def __post_init__(self) -> None:
        self.expected = Expectations(self.program, self.blueprint.interface.fixed)
        self.is_stateless = (
            not self.state.places
            and self.expected.are_none
            and self.assumptions.is_empty
            and not self.assumptions.options.all
        )

    def lower(self) -> Callable[[Sequence[Any]], Any]:
        """Make the program ready to run."""
        self.run = run = Lowered(self.program, RUNNABLE).run
        return run

    def holds(self) -> bool:
        """Whether nothing that decided the recording has changed."""
        return self.assumptions.holds() and (not self.state.places or self.state.holds())

    def change(self) -> str | None:
        """What has changed, in words; None if nothing has."""
        return None if self.holds() else self.assumptions.change() or self.state.change()

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Sequence[Any]:
        """The inputs in the arguments of a call; raises WrongArguments."""
        interface = self.blueprint.interface
        if not kwargs and interface.fits(args):
            self.accepted.add(tuple(map(type, args)))
            return args
        return interface.bind(args, kwargs)

    def values(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Sequence[Any]:
        """The inputs in the arguments of a call, the options and the state: what the program runs
        on.

        Raises :class:`~syft.exceptions.WrongArguments`,
        :class:`~syft.exceptions.StateMismatch`.
        """
        if kwargs or tuple(map(type, args)) not in self.accepted:
            args = self.bind(args, kwargs)
        numbers = self.assumptions.options.numbers
        if self.state.places:
            return [*args, *numbers, *self.state.read()]
        return [*args, *numbers] if numbers else args

    def meets(self, values: Sequence[Any]) -> bool:
        """Whether a call on these values goes the way that was recorded, as far as is known."""
        if self.expected.are_none:
            return True
        recording = RECORDING.get()
        if recording is None:
            return self.expected.are_met(values)
        with recording.paused():
            return self.expected.are_met(list(map(concrete, values)))

    def can_be_recorded(self, arguments: Any) -> bool:
        """Whether the function could run here: its arguments and its state are in this process."""
        tensors = every_tensor(arguments)
        tensors += [place.tensor for place in self.state.places]
        return all(type(tensor) in EXACT_TENSOR_TYPES for tensor in tensors)

    def refuse(self, values: Sequence[Any]) -> None:
        """Raise for values that :meth:`meets` is false of.

        Raises :class:`~syft.exceptions.WrongArguments`, :class:`~syft.exceptions.OtherPath`.
        """
        interface = self.blueprint.interface
        inputs = values[: len(interface.kinds)]
        check_fixed(interface.name, interface.fixed, inputs, interface.input_names())

    def present(self) -> Blueprint:
        """The blueprint with the options as they are now: for whoever does not know the optimizers.

        Only after :meth:`holds`.
        """
        options = self.assumptions.options.named()
        interface = self.blueprint.interface
        return changed(self.blueprint, interface=changed(interface, options=options))

    def examples(self) -> list[Any]:
        """Inputs like those the plan was built with."""
        return [each.example() if isinstance(each, Outline) else each for each in self.inputs]


def build(
    recipe: Recipe, args: Sequence[Any], kwargs: dict[str, Any], check: bool = True
) -> tuple[BuiltPlan, Any]:
    """Record a function on arguments; returns what was built, and what the function returned.

    With ``check`` it is run again to find what a recording cannot keep.

    Raises :class:`~syft.exceptions.CannotRecord`, :class:`~syft.exceptions.WrongArguments`.

    >>> recipe = sy.func2plan()(lambda x: x + x)._recipe()
    >>> built, result = build(recipe, (torch.ones(2),), {})
    >>> result, built.blueprint.interface.kinds
    (tensor([2., 2.]), ('tensor',))
    """
    interface = interface_of(recipe.name, recipe.signature, args, kwargs)
    inputs = list(map(plain_number, interface.bind(args, kwargs)))
    reads = recipe.reads()
    known = recipe.known(reads)
    reached = list(map(Source.of, reads.found, reads.found.values()))
    entries = list(map(_ENTRY, (*known, *reached)))
    modules = list(modules_in(entries))
    buffers = AssignedBuffers(modules, str(last_line_of(recipe.body)))
    recorded = partial(_recorded, recipe, interface, inputs, check=check, buffers=buffers)
    if lazy := without_shape(modules):
        give_shapes(
            lazy,
            partial(
                _recorded, *(changed(recipe, sources=[]), interface, inputs, (), (), False, buffers)
            ),
        )
    before = observe(entries, reads)
    given, others = _optimizers(known), _optimizers(reached)
    makes_optimizers = False
    with UnsteppedSchedulers(reads.schedulers, str(last_line_of(recipe.body))):
        try:
            recording, options, stepped = recorded(given, given)
        except MadeInside:
            makes_optimizers, recorded = True, partial(recorded, some_made=True)
            recording, options, stepped = recorded(given, given)
        if others or not stepped.keys() <= {*given}:  # once more, with the options of all as inputs
            ready = list(dict.fromkeys([*given, *stepped]))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FrozenPath)
                again = list(dict.fromkeys([*ready, *others]))
                recording, options, stepped = recorded(ready, again)
    found = [optimizer for optimizer in stepped if optimizer not in given]
    known += [Source.of(f"optimizer{i + 1}", optimizer) for i, optimizer in enumerate(found)]
    state = [place.tensor for place in places_of(recipe.sources)]
    tensors = [*state, *recording.captured]
    bound = BoundState(recipe.name, _places(tensors, known, reached))
    observed = observe(list(map(_ENTRY, (*known, *reached))), reads)
    observed = observed.unchanged_since(before)
    observed = with_copies(observed, recording.constants, places_of([*known, *reached]), bound)
    built = BuiltPlan(
        _blueprint(
            *(interface, recording, bound, tensors, inputs),
            *(_modes([*known, *reached]), options.named()),
        ),
        recording.program,
        bound,
        Assumptions(observed, options),
        tuple(map(_outline, inputs)),
        replays_only=bool(recording.captured),
        makes_optimizers=makes_optimizers,
    )
    built.expected.learn(built.expected.key([*inputs, *options.numbers]))
    for part in modules_in(recipe.entries()):
        _make_plain(vars(part))
    return built, recording.result


def _recorded(
    recipe: Recipe,
    interface: Interface,
    inputs: Sequence[Any],
    given: Sequence[Optimizer],
    optimizers: Sequence[Optimizer],
    check: bool,
    buffers: AssignedBuffers,
    some_made: bool = False,
) -> tuple[Recording, Options, dict[Optimizer, None]]:
    """Record a function whose last inputs are the options of optimizers, of which those that are
    ``given`` to it have their state from the beginning.

    Returns the recording, the options that it reads, and the optimizers that took a step in it, in
    order: others are among them if the function's body does not name all.
    """
    count = len(inputs)

    def function(*values: Any) -> Any:
        prepared.put(values[count:])
        return buffers.run(partial(recipe.call, interface), values[:count])

    with PreparedOptimizers(given, optimizers, some_made) as prepared:
        state = [place.tensor for place in places_of(recipe.sources)]
        numbers = numbers_in(prepared.options)
        recording = buffers.until_known(
            lambda: record(function, [*inputs, *numbers], state, check, len(numbers))
        )
    buffers.check_unshared(recording.program, [*state, *recording.captured], recording.constants)
    lines = _first_reads(recording.program)
    owners = [(id(each.group), each.key) for each in prepared.options for _ in each.kinds]
    places = range(count, count + len(numbers))
    read = {owner: lines[at] for at, owner in zip(places, owners, strict=True) if at in lines}
    refuse_changes(prepared.changed, read, str(last_line_of(recipe.body)))
    decisions, program = split_decisions(recording.program, count)
    lines = _first_reads(program)
    program = without_inputs(program, {at: None for at in places if at not in lines})
    used = [at - count for at in places if at in lines]
    options = Options(prepared.options, used, decisions)
    return changed(recording, program=program), options, prepared.stepped


def _first_reads(program: Program) -> dict[int, str]:
    """The slots that a program reads, each with the line where it does first."""
    lines = dict.fromkeys([slot.index for slot in slots_in(program.outputs)], "its results")
    for action, line in zip(reversed(program.actions), reversed(program.lines), strict=True):
        lines.update((slot.index, line) for slot in slots_in((action.args, action.kwargs)))
    return lines


def _make_plain(attributes: dict[str, Any]) -> None:
    """Put plain numbers where a forward has kept a size or a number of the recording."""
    kept = {key: concrete(value) for key, value in attributes.items() if is_symbolic(value)}
    attributes.update(kept)


def _modes(known: Sequence[Source]) -> tuple[bool, ...]:
    """The modes of all modules: none, one, or both."""
    modules = modules_in([source.entry for source in known])
    return tuple(sorted({module.training for module in modules}))


def _blueprint(
    interface: Interface,
    recording: Recording,
    state: BoundState,
    tensors: Sequence[torch.Tensor],
    inputs: Sequence[Any],
    modes: tuple[bool, ...],
    options: tuple[tuple[str, int | float], ...],
) -> Blueprint:
    program: Program = recording.program
    numbers = itertools.count()

    def numbered(leaf: Any) -> Any:
        return Slot(next(numbers)) if type(leaf) is Slot else leaf

    complete = changed(
        interface,
        outputs=replace(program.outputs, numbered),
        results=tuple(_result_kinds(program.outputs, recording.result)),
        state=tuple(state.names),
        parameters=tuple(map(_is_parameter, tensors)),
        modes=modes,
        fixed=fixed_in(recording.fixed, inputs),
        options=options,
    )
    return Blueprint(complete, with_flat_outputs(program))


def _result_kinds(pattern: Any, value: Any) -> Iterator[str]:
    """The kind of each result: of the values at the slots of the outputs."""
    for leaf, item in zip(leaves(pattern), leaves(value), strict=True):
        if type(leaf) is Slot:
            yield kind_of(item) or INT  # a bool is a number here


def _outline(value: Any) -> Any:
    return Outline.of(value) if isinstance(value, torch.Tensor) else value


def _is_parameter(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, nn.Parameter) or tensor.requires_grad


def _optimizers(sources: Sequence[Source]) -> list[Optimizer]:
    """The optimizers among sources, each once: one may have two names."""
    found = [source.entry for source in sources if isinstance(source.entry, Optimizer)]
    return list(dict.fromkeys(found))


def _places(
    tensors: Sequence[torch.Tensor], known: Sequence[Source], reached: Sequence[Source]
) -> list[StateTensor]:
    """Where each tensor lives; the plan itself holds one that is in no known source.

    The names of those in a source that was only ``reached`` begin with that of the source.
    """
    found = {id(place.tensor): place for place in places_of(known)}
    for source in reached:
        for each in places_of([source]):
            name = f"{source.name}.{each.name}"
            found.setdefault(id(each.tensor), each._replace(name=name))
    own: dict[str, Any] = {}
    places = []
    for tensor in tensors:
        place = found.get(id(tensor))
        if place is None:
            name = f"captured.{len(own)}"
            own[name] = tensor
            place = StateTensor(name, own, name)
        places.append(place)
    return places


def copied(built: BuiltPlan, recipe: Recipe | None, memo: dict[int, Any]) -> BuiltPlan:
    """The same program over copies of its state, for a copy of the plan and its recipe.

    >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
    >>> plan.copy().is_built
    True
    """
    options = built.assumptions.options.moved(
        lambda group: (
            copying.deepcopy(group, memo) if recipe is None or id(group) in memo else group
        )
    )
    state = built.state.moved(
        lambda place: place._replace(container=copying.deepcopy(place.container, memo)),
        not (built.replays_only and sets_requires_grad(built.blueprint.program)),
    )
    observed = observe([])
    if recipe is not None:
        reads = recipe.reads()
        sources = [*recipe.known(reads), *map(Source.of, reads.found, reads.found.values())]
        observed = observe([source.entry for source in sources], reads)
        constants = [memo.get(id(tensor), tensor) for tensor, _ in built.assumptions.copied]
        observed = with_copies(observed, constants, places_of(sources), state)
    return changed(built, state=state, assumptions=Assumptions(observed, options))
