"""How a plan is called: its parameters, its inputs, its results and its state.

An :class:`Interface` turns the arguments of a call into the inputs of a program, and the results of
the program into what the call returns.  A :class:`Blueprint` is an interface with its program: a
plan without its state.  Both are frozen and hold no data, so one blueprint serves the plan here,
its copies, and every pointer to it.

``out=``: the results of a call of a plan, written into tensors that are there.

It means what it means for a function of torch.  A result is copied into its target, which it must
fit in shape; an empty target is resized; nothing with a graph is written.  Unlike torch, a target
that is not empty is never resized.  The results are computed first, so a plan may use its targets.

A plan here and a plan at a worker write alike.  They differ in how a single operation runs.

Example inputs of a plan: made from shapes, or like those it was built with.

``args_shape`` of :func:`~syft.plans.function_plan.func2plan` gives only shapes and dtypes, and an
exporter needs inputs to trace with.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Final, NamedTuple

import torch

from syft.exceptions import ProgramError, WrongArguments
from syft.notebook_html import counted
from syft.ops.table import BY_NAME, FUNCTIONS
from syft.plans.building.input_properties import Fixed
from syft.plans.building.template import FLOAT, TENSOR, kind_of, match, template_of
from syft.program.program import Program, Slot, fill_slots, slots_in
from syft.serde.expect import describe
from syft.workers.labels.walk import innermost, memory_of

Parameter = inspect.Parameter
_BY_POSITION: Final = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME: Final = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_ANY_ARGUMENTS: Final = inspect.Signature(
    [Parameter("args", Parameter.VAR_POSITIONAL), Parameter("kwargs", Parameter.VAR_KEYWORD)]
)


@dataclass(frozen=True, slots=True)
class Interface:
    """How a plan is called: its parameters, its inputs, its results and its state.

    ``template`` holds for each parameter the argument it was built with, with a slot in place of
    each input; ``kinds`` are the kinds of these inputs.  ``outputs`` is what a call returns, with
    ``Slot(i)`` in place of result ``i``; ``results`` are the kinds of the results.  ``state`` names
    the state tensors, and ``parameters`` says which of them count as parameters.  ``modes`` are
    the modes of its modules (training or not), and ``fixed`` the properties that its inputs must
    have.  ``options`` are the names of further inputs, which are options of optimizers, with the
    number that each is where the optimizer is not known.

    >>> interface = interface_of("f", signature_of(lambda x, lr=0.1: x), (torch.ones(2),), {})
    >>> interface.bind((torch.zeros(2),), {})
    [tensor([0., 0.]), 0.1]
    """

    name: str
    signature: inspect.Signature
    template: dict[str, Any]
    kinds: tuple[str, ...]
    outputs: Any = None
    results: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    parameters: tuple[bool, ...] = ()
    modes: tuple[bool, ...] = ()
    fixed: Fixed = ()
    options: tuple[tuple[str, int | float], ...] = field(default=(), compare=False)
    is_flat: bool = field(init=False, repr=False, compare=False)
    """Whether each parameter is one input, and may be given by position."""

    def __post_init__(self) -> None:
        parameters = self.signature.parameters.values()
        in_order = list(self.template.values()) == [Slot(i) for i in range(len(parameters))]
        by_position = all(parameter.kind in _BY_POSITION for parameter in parameters)
        object.__setattr__(self, "is_flat", in_order and by_position)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The inputs of the program in the arguments of a call.

        Raises :class:`~syft.exceptions.WrongArguments`.

        >>> interface = interface_of("f", signature_of(lambda x, lr=0.1: x), (torch.ones(2),), {})
        >>> interface.bind((), {"x": torch.zeros(1), "lr": 2.0})
        [tensor([0.]), 2.0]
        """
        arguments = bound_arguments(self.name, self.signature, args, kwargs)
        return match(self.name, self.template, self.kinds, arguments)

    def fits(self, args: Sequence[Any]) -> bool:
        """Whether positional arguments already are the inputs, so that :meth:`bind` can be skipped.

        >>> interface = interface_of("f", signature_of(lambda x, lr=0.1: x), (torch.ones(2),), {})
        >>> interface.fits((torch.zeros(1), 2.0)), interface.fits((torch.zeros(1),))
        (True, False)
        """
        if len(args) != len(self.kinds) or not self.is_flat:
            return False
        return all(kind_of(arg) is kind for arg, kind in zip(args, self.kinds, strict=True))

    def arguments(self, inputs: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments for the function, with ``inputs`` in their places.

        >>> interface = interface_of("f", signature_of(lambda x, lr=0.1: x), (torch.ones(2),), {})
        >>> interface.arguments([torch.zeros(1), 2.0])
        ((tensor([0.]), 2.0), {})
        """
        filled = inspect.BoundArguments(
            self.signature, fill_slots(self.template, dict(enumerate(inputs)))
        )
        return filled.args, filled.kwargs

    def like_recorded(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call as they are recorded: an int that stands for a float is one.

        >>> interface = interface_of("f", signature_of(lambda x: x), (0.5,), {})
        >>> interface.like_recorded((2,), {})
        ((2.0,), {})
        """
        inputs = zip(self.bind(args, kwargs), self.kinds, strict=True)
        return self.arguments([float(each) if kind is FLOAT else each for each, kind in inputs])

    def state_shown(self) -> str:
        """How many tensors the state consists of, for notebooks.

        >>> interface_of("f", signature_of(lambda x: x), (torch.ones(2),), {}).state_shown()
        'no state'
        """
        return f"state: {counted(len(self.state), 'tensor')}" if self.state else "no state"

    def takes(self, name: str) -> bool:
        """Whether a keyword of this name is an argument of the function.

        >>> signature = signature_of(lambda x, **named: x)
        >>> interface = interface_of("f", signature, (torch.ones(2),), {"out": 3})
        >>> interface.takes("x"), interface.takes("out"), interface.takes("y")
        (True, True, False)
        """
        parameter = self.signature.parameters.get(name)
        if parameter is not None:
            return parameter.kind in _BY_NAME
        return any(
            name in self.template[parameter.name]
            for parameter in self.signature.parameters.values()
            if parameter.kind is Parameter.VAR_KEYWORD
        )

    def targets(self, out: Any) -> list[Any]:
        """The tensors to which the results of a call with ``out=`` are written, in order.

        Raises :class:`~syft.exceptions.WrongArguments`.

        >>> pair = Interface("f", inspect.Signature(), {}, (), (Slot(0), Slot(1)), (TENSOR,) * 2)
        >>> pair.targets((torch.zeros(1), torch.ones(1)))
        [tensor([0.]), tensor([1.])]
        """
        if set(self.results) != {TENSOR}:
            kinds = ", ".join(self.results) or "nothing"
            raise WrongArguments(self.name, TENSORS_ONLY, f"it for {kinds}")
        return match(self.name, {"out": self.outputs}, self.results, {"out": out})

    def nested_results(self, results: Sequence[Any]) -> Any:
        """What a call returns, given the flat results of the program.

        >>> returns = {"loss": Slot(0), "text": "done"}
        >>> Interface("f", inspect.Signature(), {}, (), returns).nested_results([0.5])
        {'loss': 0.5, 'text': 'done'}
        """
        return fill_slots(self.outputs, dict(enumerate(results)))

    def input_names(self) -> list[str]:
        """A name for each input: that of its parameter, with a number where it holds several.

        >>> interface = interface_of("f", signature_of(lambda x, lr=0.1: x), (torch.ones(2),), {})
        >>> interface.input_names()
        ['x', 'lr']
        """
        names: list[str] = []
        for name, pattern in self.template.items():
            count = len(list(slots_in(pattern)))
            names += [name] if type(pattern) is Slot else [f"{name}_{i}" for i in range(count)]
        return names


def interface_of(
    name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Interface:
    """The interface of a function, from the arguments it is built with.

    >>> interface_of("f", inspect.signature(lambda x, n: x), (torch.ones(2),), {"n": 3}).template
    {'x': Slot(0), 'n': Slot(1)}
    """
    template, kinds = template_of(bound_arguments(name, signature, args, kwargs))
    return Interface(name, signature, template, kinds)


def signature_of(function: Callable[..., Any], without: Sequence[str] = ()) -> inspect.Signature:
    """A function's parameters and defaults, without annotations.

    A parameter whose default is a Python module (``torch=torch``) is no argument of a plan: the
    function has its default for it, and what follows is given by name.  A function of torch's that
    does not tell its parameters takes anything.

    >>> signature_of(lambda x, *, lr=0.1: x), signature_of(torch.abs)
    (<Signature (x, *, lr=0.1)>, <Signature (*args, **kwargs)>)
    >>> signature_of(lambda x, torch=torch, lr=0.1: torch.abs(x))
    <Signature (x, *, lr=0.1)>
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return _ANY_ARGUMENTS
    left: list[Parameter] = []
    by_name_only = False
    names = {Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD}
    if any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters):
        names = {Parameter.KEYWORD_ONLY}  # what follows could not be given by name
    for parameter in parameters:
        if isinstance(parameter.default, ModuleType) and parameter.kind in names:
            by_name_only = True
        elif parameter.name not in without:
            in_order = parameter.kind is Parameter.POSITIONAL_OR_KEYWORD
            kind = Parameter.KEYWORD_ONLY if by_name_only and in_order else parameter.kind
            left.append(parameter.replace(annotation=Parameter.empty, kind=kind))
    return inspect.Signature(left)


def bound_arguments(
    name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The argument of each parameter, with defaults; raises WrongArguments.

    >>> bound_arguments("f", inspect.signature(lambda x, lr=0.1: x), (1,), {})
    {'x': 1, 'lr': 0.1}
    """
    try:
        arguments = signature.bind(*args, **kwargs)
    except TypeError as error:
        count = len(args) + len(kwargs)
        got = f"{count} argument{'s' * (count != 1)} ({error})"
        raise WrongArguments(name, str(signature), got) from None
    arguments.apply_defaults()
    return arguments.arguments


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A plan without its state: its interface and its program.

    The outputs of ``program`` are its results in one flat tuple; ``interface.outputs`` says how a
    call returns them.
    """

    interface: Interface
    program: Program

    def nested(self) -> Program:
        """The program as it was recorded: it returns what the function returns."""
        results = dict(enumerate(self.program.outputs))
        return replace(self.program, outputs=fill_slots(self.interface.outputs, results))

    def with_constants(self, constants: tuple[torch.Tensor, ...]) -> Blueprint:
        """The same blueprint with other constants; itself if there are none.

        >>> blueprint = Blueprint(Interface("f", inspect.Signature(), {}, ()), Program(0, (), ()))
        >>> blueprint.with_constants(()) is blueprint
        True
        """
        if not constants:
            return self
        return replace(self, program=replace(self.program, constants=constants))


def with_flat_outputs(program: Program) -> Program:
    """The same program with its results in one flat tuple.

    >>> with_flat_outputs(Program(2, (), {"a": Slot(1), "b": [Slot(0), None]})).outputs
    (Slot(1), Slot(0))
    """
    return replace(program, outputs=tuple(slots_in(program.outputs)))


COPY: Final = BY_NAME["torch.Tensor.copy_"]
CLONE: Final = BY_NAME["torch.Tensor.clone"]
RESIZE: Final = BY_NAME["torch.Tensor.resize_as_"]

TENSORS_ONLY: Final = "out= for tensors only"


def run_here(op: int, *args: torch.Tensor) -> Any:
    """Run one of the operations of :func:`write_results` in this process.

    >>> run_here(CLONE, torch.ones(2))
    tensor([1., 1.])
    """
    function: Any = FUNCTIONS[op]
    return function(*args)


def check_writable(plan: str, results: Sequence[Any], targets: Sequence[torch.Tensor]) -> None:
    """Check that the results are tensors, and that no graph would be lost.

    Raises :class:`~syft.exceptions.WrongArguments`, :class:`~syft.exceptions.ProgramError`.

    >>> check_writable("double", [torch.ones(2)], [torch.zeros(2)])
    """
    for index, (result, target) in enumerate(zip(results, targets, strict=True)):
        if not isinstance(result, torch.Tensor):
            raise WrongArguments(plan, TENSORS_ONLY, f"it for {type(result).__name__}")
        if torch.is_grad_enabled() and (result.requires_grad or target.requires_grad):
            raise ProgramError(
                f"Plan {plan!r}: what is written with out= has no graph, and result {index} or its "
                "target requires grad. Call the plan under torch.no_grad(), or without out="
            )


def check_fits(plan: str, index: int, result: torch.Tensor, target: torch.Tensor) -> None:
    """Check that a result can be written into its target: shape and dtype.

    Raises :class:`~syft.exceptions.WrongArguments`.

    >>> check_fits("double", 0, torch.ones(2), torch.zeros(3))
    Traceback (most recent call last):
    ...
    syft.exceptions.WrongArguments: Plan 'double' takes float32 (2,) as out for result 0, and got \
float32 (3,).
    """
    fits = result.shape == target.shape or not target.numel()
    if not (fits and torch.can_cast(result.dtype, target.dtype)):
        expected = f"{_shape_and_dtype(result)} as out for result {index}"
        raise WrongArguments(plan, expected, _shape_and_dtype(target))


def write_results(
    results: Sequence[torch.Tensor],
    targets: Sequence[torch.Tensor],
    run: Callable[..., Any] = run_here,
) -> None:
    """Copy results into their targets, one of which may share memory with another result.

    ``run`` runs an operation, given by number, on tensors.

    >>> x, y = torch.zeros(2), torch.ones(2)
    >>> write_results([y, x], [x, y]); x, y
    (tensor([1., 1.]), tensor([0., 0.]))
    """
    kept = [
        result if result is target or not _may_overlap(result, targets) else run(CLONE, result)
        for result, target in zip(results, targets, strict=True)
    ]
    for result, target in zip(kept, targets, strict=True):
        if not target.numel():  # be the result empty or not, which its shape may keep private
            run(RESIZE, target, result)
        run(COPY, target, result)


def _may_overlap(result: torch.Tensor, targets: Sequence[torch.Tensor]) -> bool:
    """Whether a result may share memory with a target; of memory elsewhere nothing is known."""
    if innermost(result) is None:
        return True
    return not memory_of(result).isdisjoint(set().union(*map(memory_of, targets)))


def _shape_and_dtype(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


_SIZE_FOR_ANY = 2
"""The size that stands for -1, any size: torch treats a size of 1 specially."""


class Outline(NamedTuple):
    """The shape, dtype and device of an input.

    >>> Outline.of(torch.ones(2)).example()
    tensor([1., 1.])
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Outline:
        """The outline of a tensor."""
        return cls(tuple(tensor.shape), tensor.dtype, tensor.device)

    def example(self) -> torch.Tensor:
        """A tensor with this outline: ones, or zeros for an integer or bool dtype."""
        fractional = self.dtype.is_floating_point or self.dtype.is_complex
        make = torch.ones if fractional else torch.zeros
        return make(self.shape, dtype=self.dtype, device=self.device)


def example_arguments(plan: str, shapes: Any) -> list[torch.Tensor]:
    """One tensor for each shape: ones, or zeros for an integer or bool dtype.

    A shape is a sequence of sizes, with -1 for any size, or a pair of such a sequence and a dtype.
    Raises :class:`~syft.exceptions.WrongArguments`.

    >>> [tuple(example.shape) for example in example_arguments("f", [(1, 2), (-1, 3)])]
    [(1, 2), (2, 3)]
    >>> example_arguments("f", [((2,), torch.int64)])
    [tensor([0, 0])]
    """
    if not isinstance(shapes, (list, tuple)):
        raise WrongArguments(plan, "a list of shapes as args_shape", describe(shapes))
    return [_outline_of_shape(plan, shape).example() for shape in shapes]


def _outline_of_shape(plan: str, shape: Any) -> Outline:
    dtype = torch.get_default_dtype()
    if isinstance(shape, Sequence) and len(shape) == 2 and isinstance(shape[1], torch.dtype):
        shape, dtype = shape
    if not isinstance(shape, Sequence) or not all(map(_is_size, shape)):
        expected = "shapes such as (-1, 2) or ((-1, 2), torch.int64) as args_shape"
        raise WrongArguments(plan, expected, repr(shape))
    sizes = tuple(_SIZE_FOR_ANY if size == -1 else size for size in shape)
    return Outline(sizes, dtype, torch.get_default_device())


def _is_size(size: Any) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= -1
