"""What a command will do, worked out on tensors without values before it runs.

A *forecast* is the command run on fake tensors, which have shapes, dtypes and a place in a graph,
but no values.  It can depend on nothing else, so everything that a forecast says of a command on
private values is public: what it writes, whether it draws random numbers, what its results are, and
which failures come of shapes and dtypes.  What the command does to the values can be kept from
everybody, because nobody needs it to describe what happened.

Fake tensors are torch's own (``FakeTensorMode``).  Their settings matter: no fallback to real
kernels, and no cache of torch's, with which a forecast would depend on earlier ones.  They are kept
by signature here: all that goes into one.

Schemas mark what an operation writes, except those of a few batch normalizations; a test compares
them with what the operations do.
"""

from __future__ import annotations

import enum
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import torch

from syft.ops.calls import written_by
from syft.ops.nested import leaves, parts, replace
from syft.ops.table import FLOATS_COMPUTE, flags_of
from syft.torch_private import (
    FakeFailure,
    TorchDispatchMode,
    any_autocast_enabled,
    fake_failure,
    fake_text,
    fake_modules,
    graph_start,
    kind_of_view,
    no_log_of_fakes,
)
from syft.workers.execution.plain_tensors import size_of_memory
from syft.workers.execution.public_sizes import device_stood_on

Function = Callable[..., Any]

_MOST_KEPT: Final = 4096
_ADDRESS: Final = re.compile("0x[0-9a-f]+")
_MOST_TEXT: Final = 1000


def ignores_values(function: Any) -> bool:
    """Whether the forecasts of a function are the same for all floats among its arguments.

    >>> ignores_values(torch._foreach_addcdiv_), ignores_values(torch.arange)
    (True, False)
    """
    return bool(flags_of(function) & FLOATS_COMPUTE)


class Verdict(enum.Enum):
    """What a forecast comes to."""

    RUNS = "its results and writes are known"
    FAILS = "it fails whatever the values are"
    READS = "it would take a number from a value, to decide what it does or to return it"
    RESIZES = "the shapes of its results follow from values"
    UNKNOWN = "torch cannot tell without values"


ANY: Final = -1
"""A size that follows from values."""


@dataclass(frozen=True, slots=True)
class Made:
    """A new tensor among the results: all that can be known of it without values.

    A size or stride of ``ANY`` follows from values.  ``reaches`` are the inputs, by place, to which
    its graph leads; ``within`` is the first input in whose memory it lies (-1: none).  ``nbytes``
    is the size of memory of its own; -1 if a size or stride follows from values.  ``most`` are its
    sizes at most, whatever the values are; None if they have no bound.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    reaches: tuple[int, ...]
    within: int
    nbytes: int
    most: tuple[int, ...] | None

    @property
    def shares(self) -> bool:
        """Whether it lies in the memory of an input."""
        return self.within >= 0


@dataclass(frozen=True, slots=True)
class Given:
    """A result that is an input, by place."""

    place: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a command will do.

    ``result`` is nested as the result is, with :class:`Made`, :class:`Given` and None in it.
    ``writes`` are the inputs, by place, whose memory or metadata it writes; ``changed`` is what
    those are afterwards that are not as before.  ``failure`` is the class and the text of the error
    of ``FAILS``.
    """

    verdict: Verdict
    result: Any = None
    writes: tuple[int, ...] = ()
    changed: tuple[tuple[int, Made], ...] = ()
    draws: bool = False
    failure: tuple[type[Exception], str] = (RuntimeError, "")

    @property
    def is_complete(self) -> bool:
        """Whether it says all that a caller who may not see the values gets to know.

        >>> Forecast(Verdict.RUNS).is_complete, Forecast(Verdict.RESIZES).is_complete
        (True, False)
        """
        if self.verdict is Verdict.RESIZES:
            return self.result is not None or bool(self.writes)
        return self.verdict is Verdict.RUNS


def tensors_in(args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors among the arguments, each once, in their order.

    >>> x = torch.ones(2)
    >>> len(tensors_in((x, [x, torch.ones(1)]), {"out": None}))
    2
    """
    found = {id(leaf): leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
    return list(found.values())


@dataclass(frozen=True, slots=True)
class _Call:
    """A call to forecast; ``numbers`` are the values of some inputs, by place."""

    function: Function
    args: Sequence[Any]
    kwargs: dict[str, Any]
    inputs: Sequence[torch.Tensor]
    numbers: dict[int, Any]


class Forecasts:
    """The forecasts of the commands seen so far; the latest 4,096 of them are kept.

    >>> x = torch.ones(2, 3)
    >>> forecast = Forecasts().of(torch.sum, (x, 1), {})
    >>> forecast.verdict.name, forecast.result.shape, forecast.writes
    ('RUNS', (2,), ())
    >>> Forecasts().of(torch.Tensor.item, (x[:1, :1],), {}).verdict.name
    'READS'
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Forecast] = OrderedDict()

    def of(
        self,
        function: Function,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        is_public: Callable[[torch.Tensor], bool] = lambda tensor: False,
    ) -> Forecast:
        """The forecast of a call with strided tensors among its arguments.

        A number that the call takes from a tensor of one element is known if the tensor
        ``is_public``.
        """
        call = _Call(function, tuple(args), kwargs, tensors_in(args, kwargs), {})
        forecast = self._kept_or_made(call)
        if forecast.verdict is Verdict.READS:
            numbers = {
                place: tensor.item()
                for place, tensor in enumerate(call.inputs)
                if tensor.numel() == 1 and is_public(tensor)
            }
            if numbers:
                return self._kept_or_made(_Call(function, call.args, kwargs, call.inputs, numbers))
        return forecast

    def _kept_or_made(self, call: _Call) -> Forecast:
        try:
            key = _signature(call)
        except TypeError:  # an argument that has no hash: a set, say
            return _made_of(call)
        forecast = self._kept.get(key)
        if forecast is None:
            forecast = self._kept[key] = _made_of(call)
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return forecast

    def __len__(self) -> int:
        return len(self._kept)


# -------------------------------------------------------------------------------------- signatures


def _signature(call: _Call) -> Hashable:
    """All that a forecast depends on; raises TypeError if that cannot be said."""
    places = {id(tensor): place for place, tensor in enumerate(call.inputs)}
    memories: dict[int, int] = {}
    looks = tuple(_look(tensor, memories) for tensor in call.inputs)
    by_type = ignores_values(call.function)
    given = _shape_of(call.args, places, by_type), _shape_of(call.kwargs, places, by_type)
    numbers = _shape_of(call.numbers, places) if call.numbers else None
    return (call.function, given, numbers, looks, *_modes())


def _look(tensor: torch.Tensor, memories: dict[int, int]) -> Hashable:
    storage = tensor.untyped_storage()
    memory = memories.setdefault(storage._cdata, len(memories))
    flags = tensor.requires_grad, tensor.is_leaf, _look_of_view(tensor), tensor.is_inference()
    lazy = tensor.is_conj(), tensor.is_neg()
    extent = tensor.shape, tensor.stride(), tensor.storage_offset(), storage.nbytes()
    device = tensor.device, device_stood_on(tensor)
    return type(tensor), tensor.dtype, device, extent, memory, flags, lazy


def _look_of_view(tensor: torch.Tensor) -> Hashable:
    """What of a view decides whether it may be written in place; None for what is no view."""
    base = tensor._base
    return None if base is None else (kind_of_view(tensor), base.is_leaf, base.requires_grad)


def _modes() -> tuple[Hashable, ...]:
    autocast: Hashable = None
    if any_autocast_enabled():
        autocast = tuple(
            (device, torch.get_autocast_dtype(device))
            for device in ("cpu", "cuda")
            if torch.is_autocast_enabled(device)
        )
    inference = torch.is_inference_mode_enabled()
    return torch.is_grad_enabled(), inference, autocast, torch.get_default_dtype()


def _shape_of(value: Any, places: dict[int, int], by_type: bool = False) -> Hashable:
    """An argument with the places of inputs in it, and of floats only that they are some if
    ``by_type``; raises TypeError for what has no equality."""
    inside = parts(value)
    if inside is not None:
        return type(value), tuple((key, _shape_of(item, places, by_type)) for key, item in inside)
    if isinstance(value, torch.Tensor):
        return torch.Tensor, places[id(value)]
    if isinstance(value, (float, complex)):
        if by_type:
            return (type(value),)
        return type(value), repr(value)  # -0.0 is not 0.0, and nan is nan
    if isinstance(value, torch.Generator):
        return torch.Generator, value.device
    hash(value)
    return type(value), value


# ---------------------------------------------------------------------------------------- forecasts


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the memory that is written, and whether random numbers are drawn."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.written: set[int] = set()
        self.draws = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        named = kwargs or {}
        self.draws |= torch.Tag.nondeterministic_seeded in func.tags
        for value in written_by(func, args, named):
            self.written.update(map(_memory, tensors_in(value, None)))
        target = args[0] if args and isinstance(args[0], torch.Tensor) else None
        shape = None if target is None else target.shape
        result = func(*args, **named)
        if target is not None and target.shape != shape and not _may_reshape(func):
            raise RuntimeError(  # as the real operation does, which some decompositions forget
                f"output with shape {list(shape or ())} doesn't match the broadcast shape "
                f"{list(target.shape)}"
            )
        return result


def _may_reshape(func: Any) -> bool:
    """Whether an aten operation may give what it writes another shape, as torch marks it."""
    return not func._schema.name.endswith("_") or torch.Tag.inplace_view in func.tags


def _memory(tensor: torch.Tensor) -> int:
    address: int = tensor.untyped_storage()._cdata
    return address


def _made_of(call: _Call) -> Forecast:
    """Run a call on fake tensors."""
    fake_tensor, symbolic_shapes = fake_modules()
    shapes = symbolic_shapes.ShapeEnv(
        allow_scalar_outputs=False, allow_dynamic_output_shape_ops=True
    )
    mode = fake_tensor.FakeTensorMode(allow_fallback_kernels=False, shape_env=shapes)
    mode.cache_enabled = False
    watch = _Watch()
    with warnings.catch_warnings(), no_log_of_fakes():
        warnings.simplefilter("ignore")
        try:
            fakes: list[Any] = [_fake_of(mode, tensor) for tensor in call.inputs]
        except Exception:  # a view of a sparse tensor
            return Forecast(Verdict.UNKNOWN)
        for place, number in call.numbers.items():
            fakes[place].constant = torch.full_like(call.inputs[place].detach(), number)
        place_of = {id(tensor): fake for tensor, fake in zip(call.inputs, fakes, strict=True)}
        before = _Inputs(fakes)
        try:
            with mode, watch:
                args, kwargs = replace(
                    (call.args, call.kwargs), lambda leaf: place_of.get(id(leaf), leaf)
                )
                result = call.function(*args, **kwargs)
        except Exception as error:
            return _failure(error)
        return before.forecast(result, watch)


def _fake_of(mode: Any, tensor: torch.Tensor) -> torch.Tensor:
    device = device_stood_on(tensor)
    if device is None:
        return cast(torch.Tensor, mode.from_tensor(tensor, static_shapes=True))
    with mode:
        fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
    return fake.requires_grad_() if tensor.requires_grad else fake


def _failure(error: Exception) -> Forecast:
    """What it means that a call on fake tensors raised."""
    verdict = _VERDICTS[fake_failure(error)]
    if verdict is not Verdict.FAILS:
        return Forecast(verdict)
    text = _ADDRESS.sub("", fake_text(error))[:_MOST_TEXT]
    kind = type(error) if type(error) in _PUBLIC_ERRORS else RuntimeError
    return Forecast(Verdict.FAILS, failure=(kind, text))


_VERDICTS: Final = {
    FakeFailure.READS_VALUES: Verdict.READS,
    FakeFailure.SIZES_FROM_VALUES: Verdict.RESIZES,
    FakeFailure.OF_FAKES: Verdict.UNKNOWN,
    FakeFailure.OF_THE_CALL: Verdict.FAILS,
}
_PUBLIC_ERRORS: Final = frozenset((RuntimeError, ValueError, TypeError, IndexError))


class _Inputs:
    """Fake inputs as they are before a call, to see what it changed."""

    def __init__(self, fakes: Sequence[torch.Tensor]) -> None:
        self._fakes = fakes
        self._before = [_state(fake) for fake in fakes]
        self._memory = [_memory(fake) for fake in fakes]
        self._starts = {
            graph_start(fake): place for place, fake in enumerate(fakes) if fake.requires_grad
        }

    def forecast(self, result: Any, watch: _Watch) -> Forecast:
        """The forecast of a call that returned this."""
        places = {id(fake): place for place, fake in enumerate(self._fakes)}
        verdict = _unfit(result)
        if verdict is not None:
            return Forecast(verdict)
        writes, changed = self._writes(watch.written)
        made = replace(result, lambda leaf: self._made(leaf, places))
        if not _are_known(after for _, after in changed):
            return Forecast(Verdict.RESIZES)
        verdict = Verdict.RUNS if _are_known(leaves(made)) else Verdict.RESIZES
        return Forecast(verdict, made, writes, changed, watch.draws)

    def _made(self, leaf: torch.Tensor | None, places: dict[int, int]) -> Made | Given | None:
        if leaf is None:
            return None
        place = places.get(id(leaf))
        return self._look(leaf) if place is None else Given(place)

    def _look(self, tensor: torch.Tensor) -> Made:
        shape, stride = _numbers(tensor.shape), _numbers(tensor.stride())
        memory = _memory(tensor)
        return Made(
            shape,
            stride,
            tensor.dtype,
            tensor.device,
            tensor.requires_grad,
            self._reached(tensor),
            self._memory.index(memory) if memory in self._memory else -1,
            -1 if ANY in (*shape, *stride) else size_of_memory(shape, stride, tensor.itemsize),
            _at_most(tensor.shape),
        )

    def _writes(self, written: set[int]) -> tuple[tuple[int, ...], tuple[tuple[int, Made], ...]]:
        """The inputs that are written, and those among them that are not as before."""
        writes, changed = [], []
        for place, fake in enumerate(self._fakes):
            moved = _state(fake) != self._before[place] or _memory(fake) != self._memory[place]
            if moved or self._memory[place] in written:
                writes.append(place)
            if moved:
                changed.append((place, self._look(fake)))
        return tuple(writes), tuple(changed)

    def _reached(self, tensor: torch.Tensor) -> tuple[int, ...]:
        """The inputs to which the graph of a tensor leads."""
        found, seen, todo = set(), set(), [tensor.grad_fn]
        while todo:
            node = todo.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if node in self._starts:
                found.add(self._starts[node])
            else:
                todo.extend(parent for parent, _ in node.next_functions)
        return tuple(sorted(found))


def _state(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What of a tensor a call may change besides its values."""
    extent = _numbers(tensor.shape), _numbers(tensor.stride())
    return (*extent, tensor.dtype, tensor.requires_grad, tensor.grad_fn)


def _unfit(result: Any) -> Verdict | None:
    """What a call comes to that returns other things than strided tensors."""
    found = [leaf for leaf in leaves(result) if leaf is not None]
    if not all(isinstance(leaf, torch.Tensor) for leaf in found):
        return Verdict.READS
    return None if all(leaf.layout is torch.strided for leaf in found) else Verdict.UNKNOWN


def _numbers(sizes: Sequence[Any]) -> tuple[int, ...]:
    """Sizes or strides; torch has symbols for those that follow from values."""
    return tuple(size if type(size) is int else ANY for size in sizes)


def _at_most(sizes: Sequence[Any]) -> tuple[int, ...] | None:
    """The largest values of sizes; None if one has no bound.  Torch knows that of its symbols."""
    found = []
    for size in sizes:
        if type(size) is not int:
            size = size.node.shape_env.bound_sympy(size.node.expr).upper
            if not getattr(size, "is_Integer", False):
                return None
        found.append(int(size))
    return tuple(found)


def _are_known(found: Iterable[Made | Given | None]) -> bool:
    """Whether none of the sizes among results follows from values."""
    return all(type(made) is not Made or ANY not in (*made.shape, *made.stride) for made in found)
