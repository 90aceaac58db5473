"""Building a plan: a function is recorded once, and what it was recorded with is kept beside it.

What the function may use besides its arguments is looked up before: the elements of its state, and
the modules and optimizers its body names (a closure).  So every tensor that the recording met has a
name and a place where it lives, and what decided the path (training or not, the options of an
optimizer) is watched.
"""

from __future__ import annotations

import copy as copying
import dis
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from syft.plans.building.blueprint import Blueprint, flat
from syft.plans.building.interface import INT, Interface, interface_of, kind_of
from syft.plans.building.optimizers import OptimizersPrepared, StateTensor
from syft.plans.building.input_properties import fixed_in
from syft.plans.building.state import Cells, Source, State, places_of
from syft.plans.building.assumptions import Assumptions, modules_in, sets_requires_grad, watched_in
from syft.program.lowered import Lowered
from syft.program.program import Program, Slot
from syft.program.recording.record import Recording, record
from syft.ops.nested import replace
from syft.workers.core.precautions import RUNNABLE

STATE = "state"
"""The parameter through which a function gets the elements of its state."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a plan is recorded from: a function with its parameters, and where its state is.

    ``state`` is what the function gets as its argument of that name, if it takes one; ``body`` is
    the function whose names are looked at for modules and optimizers.
    """

    name: str
    function: Callable[..., Any]
    body: Callable[..., Any]
    signature: inspect.Signature
    sources: list[Source]
    state: State | None = None

    def known(self) -> list[Source]:
        """The elements of the state, and the modules and optimizers that the body names."""
        given = [source[1] for source in self.sources]
        found = [
            source
            for source in sources_in(self.body)
            if not any(source[1] is entry for entry in given)
        ]
        return [*self.sources, *found]

    def watched(self) -> list[Any]:
        """The elements themselves: what decides the recording beside the arguments."""
        return [source[1] for source in self.known()]

    def call(self, interface: Interface, inputs: Sequence[Any]) -> Any:
        """Call the function on the inputs of an interface."""
        args, kwargs = interface.arguments(inputs)
        if self.state is not None:
            kwargs[STATE] = self.state
        return self.function(*args, **kwargs)


@dataclass(slots=True)
class Built:
    """A plan that has been recorded: its blueprint, and where its state lives here.

    ``program`` is the one that returns what the function does.  ``replays_only`` says that state of
    it was found in the closure of the function: a copy of the plan has state of its own, of which
    the function knows nothing.
    """

    blueprint: Blueprint
    program: Program
    cells: Cells
    watch: Assumptions
    inputs: tuple[Any, ...] = ()
    """Of each input the shape, dtype and device it was built with, or the number."""
    replays_only: bool = False
    accepted: set[tuple[type, ...]] = field(default_factory=set)
    """Types of positional arguments that are the inputs as they are: the common call, at a look."""
    is_free: bool = field(init=False)
    """Whether nothing but its arguments decides what a call does."""
    run: Callable[[Sequence[Any]], Any] | None = field(init=False, default=None)
    """The program made ready to run; None before the first call: a plan may only be sent."""

    def __post_init__(self) -> None:
        bound = self.cells.places or self.blueprint.interface.fixed or not self.watch.is_empty
        self.is_free = not bound

    def lower(self) -> Callable[[Sequence[Any]], Any]:
        """Make the program ready to run."""
        self.run = run = Lowered(self.program, RUNNABLE).run
        return run

    def holds(self) -> bool:
        """Whether what decided the recording is as it was."""
        return self.watch.holds() and (not self.cells.places or self.cells.holds())

    def change(self) -> str | None:
        """What is not as it was, in words; None if everything is."""
        return None if self.holds() else self.watch.change() or self.cells.change()

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Sequence[Any]:
        """The inputs in the arguments of a call; raises WrongArguments."""
        interface = self.blueprint.interface
        if not kwargs and interface.fits(args):
            self.accepted.add(tuple(map(type, args)))
            return args
        return interface.bind(args, kwargs)

    def examples(self) -> list[Any]:
        """Inputs such as the plan was built with."""
        return [_example(*each) if isinstance(each, tuple) else each for each in self.inputs]


def build(recipe: Recipe, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Built, Any]:
    """Record a function on arguments; returns what was built, and what the function returned.

    Raises :class:`~syft.exceptions.CannotRecord`, :class:`~syft.exceptions.WrongArguments`.

    >>> import torch, syft as sy
    >>> recipe = sy.func2plan()(lambda x: x + x)._recipe()
    >>> built, result = build(recipe, (torch.ones(2),), {})
    >>> result, built.blueprint.interface.kinds
    (tensor([2., 2.]), ('tensor',))
    """
    interface = interface_of(recipe.name, recipe.signature, args, kwargs)
    inputs = interface.bind(args, kwargs)
    known = recipe.known()
    before = watched_in([source[1] for source in known])
    optimizers = [source[1] for source in known if isinstance(source[1], Optimizer)]
    with OptimizersPrepared(optimizers) as prepared:
        state = [place.container[place.key] for place in places_of(recipe.sources)]
        recording = record(lambda *flat: recipe.call(interface, flat), inputs, state)
        met = [optimizer for optimizer in prepared.optimizers if optimizer not in optimizers]
    known += [(f"optimizer{i + 1}", optimizer, {}, "") for i, optimizer in enumerate(met)]
    tensors = [*state, *recording.captured]
    cells = Cells(recipe.name, _places(tensors, known))
    built = Built(
        _blueprint(interface, recording, cells, tensors, inputs, _modes(known)),
        recording.program,
        cells,
        Assumptions(watched_in([source[1] for source in known]).settled_since(before)),
        tuple(map(_outline, inputs)),
        replays_only=bool(recording.captured),
    )
    return built, recording.result


def _modes(known: Sequence[Source]) -> tuple[bool, ...]:
    """The modes of all modules: none, one, or both."""
    return tuple(sorted({part.training for part in modules_in([source[1] for source in known])}))


def _blueprint(
    interface: Interface,
    recording: Recording,
    cells: Cells,
    tensors: Sequence[torch.Tensor],
    inputs: Sequence[Any],
    modes: tuple[bool, ...],
) -> Blueprint:
    program: Program = recording.program
    numbers = itertools.count()

    def numbered(leaf: Any) -> Any:
        return Slot(next(numbers)) if type(leaf) is Slot else leaf

    complete = changed(
        interface,
        outputs=replace(program.outputs, numbered),
        results=tuple(_result_kinds(program.outputs, recording.result)),
        state=tuple(cells.names),
        parameters=tuple(map(_is_parameter, tensors)),
        modes=modes,
        fixed=fixed_in(recording.fixed, inputs),
    )
    return Blueprint(complete, flat(program))


def _result_kinds(pattern: Any, value: Any) -> Iterator[str]:
    """The kind of each result: of what stands where the outputs have a slot."""
    if type(pattern) is Slot:
        yield kind_of(value) or INT  # a bool is a number here
    elif isinstance(pattern, (tuple, list)):
        for part, item in zip(pattern, value, strict=True):
            yield from _result_kinds(part, item)
    elif isinstance(pattern, dict):
        for key, part in pattern.items():
            yield from _result_kinds(part, value[key])
    elif isinstance(pattern, slice):
        for end in ("start", "stop", "step"):
            yield from _result_kinds(getattr(pattern, end), getattr(value, end))


def _outline(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype, value.device
    return value


def _example(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    fits = dtype.is_floating_point or dtype.is_complex
    return (torch.ones if fits else torch.zeros)(shape, dtype=dtype, device=device)


def _is_parameter(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, nn.Parameter) or tensor.requires_grad


def _places(tensors: Sequence[torch.Tensor], sources: Sequence[Source]) -> list[StateTensor]:
    """Where each tensor lives; one that nothing known holds is held by the plan itself."""
    found = {id(place.container[place.key]): place for place in places_of(sources)}
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


def sources_in(function: Callable[..., Any]) -> list[Source]:
    """The modules and optimizers that the body of a function names, with their names.

    >>> model = nn.Linear(2, 1)
    >>> [name for name, *_ in sources_in(lambda x: model(x) + len(x))]
    ['model']
    """
    function = inspect.unwrap(getattr(function, "__func__", function))
    if not inspect.isfunction(function):
        return []
    names = inspect.getclosurevars(function)
    found = _holders(names.nonlocals)
    shared = _holders(names.globals)
    if shared:  # names of attributes stand among these (`opt.step` beside a plan called step)
        code = dis.get_instructions(function)
        read = {instruction.argval for instruction in code if instruction.opname == "LOAD_GLOBAL"}
        found.update((name, value) for name, value in shared.items() if name in read)
    return [(name, value, {}, "") for name, value in found.items()]


def _holders(names: Mapping[str, Any]) -> dict[str, nn.Module | Optimizer]:
    return {
        name: value for name, value in names.items() if isinstance(value, (nn.Module, Optimizer))
    }


def copied(built: Built, recipe: Recipe | None, memo: dict[int, Any]) -> Built:
    """The same program over copies of its state, for a copy of the plan and its recipe.

    >>> import syft as sy
    >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
    >>> plan.copy().is_built
    True
    """
    return changed(
        built,
        cells=built.cells.changed(
            lambda place: place._replace(container=copying.deepcopy(place.container, memo)),
            not (built.replays_only and sets_requires_grad(built.blueprint.program)),
        ),
        watch=Assumptions() if recipe is None else Assumptions(watched_in(recipe.watched())),
    )
