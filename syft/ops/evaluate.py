"""What an operation will do, worked out on tensors without values before it runs.

An operation is *evaluated* by running it on tensors that have shapes, dtypes and a place in a
graph, but no values.  It can depend on nothing else, so everything that an outcome says of an
operation on private values is public: what it writes, whether it draws random numbers, what its
results are, what memory it takes, and which failures come of shapes and dtypes.  What the operation
does to the values can be kept from everybody, because nobody needs it to describe what happened.

Limits, private commands and hidden sizes ask it, and what was evaluated once is kept for all of
them, by signature: all that goes into an outcome.  Callers that need only the number of results
ask :mod:`syft.ops.returns`, which is cheaper.  Two engines run operations
(:mod:`syft.ops.engines`): tensors without memory come first, and torch's fake tensors where those
cannot tell.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace as replaced
from typing import Any, Final

import torch

from syft.ops.engines import (
    EvaluatedCall,
    device_of,
    fake_outcome,
    memoryless_outcome,
    stand_on,
)
from syft.ops.nested import Function, parts, replace, tensors_in
from syft.ops.outcome import Outcome, Use, Verdict
from syft.ops.table import FLOATS_COMPUTE, flags_of
from syft.torch_private import any_autocast_enabled, kind_of_view

_MOST_KEPT: Final = 4096
_KEPT: Final[OrderedDict[Hashable, Outcome]] = OrderedDict()
"""The outcomes of the latest calls, by signature."""


def ignores_values(function: Any) -> bool:
    """Whether the outcomes of a function are the same for all floats among its arguments.

    >>> ignores_values(torch._foreach_addcdiv_), ignores_values(torch.arange)
    (True, False)
    """
    return bool(flags_of(function) & FLOATS_COMPUTE)


def evaluate(
    function: Function,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    is_public: Callable[[torch.Tensor], bool] = lambda tensor: False,
) -> Outcome:
    """What a call will do that has strided tensors among its arguments, or none.

    A number that the call takes from a tensor of one element is known if the tensor ``is_public``.

    >>> x = torch.ones(2, 3)
    >>> outcome = evaluate(torch.sum, (x, 1), {})
    >>> outcome.verdict.name, outcome.result.shape, outcome.writes, outcome.use.peak
    ('RUNS', (2,), (), 8)
    >>> evaluate(torch.Tensor.item, (x[:1, :1],), {}).verdict.name
    'READS'
    """
    call = EvaluatedCall(function, tuple(args), kwargs, tensors_in(args, kwargs), {})
    outcome = _kept_or_made(call)
    if outcome.verdict is Verdict.READS:
        numbers = _numbers_among(call.inputs, is_public)
        if numbers:
            return _kept_or_made(EvaluatedCall(function, call.args, kwargs, call.inputs, numbers))
    return outcome


def use_of(
    function: Function,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    is_public: Callable[[torch.Tensor], bool] = lambda tensor: False,
) -> Use:
    """What a call will use, on any device; ``elements`` is None if that cannot be told.

    >>> x = torch.ones(3, 1)
    >>> use_of(torch.Tensor.expand, (x, 3, 2**50), {})
    Use(elements=3377699720527872, peak=0, results=1)
    >>> use_of(torch.cov, (x,), {}).elements
    9
    """
    inputs = tensors_in(args, kwargs)
    numbers = _numbers_among(inputs, is_public)
    return _kept_or_made(
        EvaluatedCall(function, tuple(args), kwargs, inputs, numbers, for_use=True)
    ).use


def _standing(call: EvaluatedCall) -> EvaluatedCall:
    """A call with stand-ins for its inputs."""
    standing = {id(tensor): _stand_in(tensor) for tensor in call.inputs}
    args, kwargs = replace((call.args, call.kwargs), lambda leaf: standing.get(id(leaf), leaf))
    return EvaluatedCall(call.function, args, kwargs, [*standing.values()], call.numbers, True)


def _stand_in(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without memory of the sizes of another one, for one without a graph on the CPU."""
    sizes = tensor.shape, tensor.stride()
    made = torch.empty_strided(*sizes, dtype=tensor.dtype, device="meta")
    stand_on(made, torch.device("cpu"))
    return made


def _numbers_among(
    inputs: Sequence[torch.Tensor], is_public: Callable[[torch.Tensor], bool]
) -> dict[int, Any]:
    """The values of the tensors of one element that are public, by place."""
    return {
        place: tensor.item()
        for place, tensor in enumerate(inputs)
        if tensor.numel() == 1 and is_public(tensor)
    }


def _kept_or_made(call: EvaluatedCall) -> Outcome:
    try:
        key = _signature(call)
    except TypeError:  # an argument that has no hash: a set, say
        return _made_of(call)
    return kept(key, _made_of, call)


def kept(key: Hashable, make: Callable[..., Outcome], *about: Any) -> Outcome:
    """The outcome that was made under a key, or else what is made of these arguments.

    >>> kept("a key", Outcome, Verdict.FAILS).verdict, kept("a key", Outcome, Verdict.RUNS).verdict
    (<Verdict.FAILS: ...>, <Verdict.FAILS: ...>)
    """
    outcome = _KEPT.get(key)
    if outcome is None:
        outcome = _KEPT[key] = make(*about)
        if len(_KEPT) > _MOST_KEPT:
            _KEPT.popitem(last=False)
    else:
        _KEPT.move_to_end(key)
    return outcome


_NO_GENERATOR: Final = "generator is not supported in refs"
"""What torch says of operations that its fake tensors run without a given generator alone."""


def _made_of(call: EvaluatedCall) -> Outcome:
    outcome = _run_of(call)
    if _NO_GENERATOR in outcome.failure[1] and "generator" in call.kwargs:
        return _run_of(replaced(call, kwargs={**call.kwargs, "generator": None}))
    return outcome


def _run_of(call: EvaluatedCall) -> Outcome:
    if call.for_use:
        call = _standing(call)
    with torch.set_grad_enabled(torch.is_grad_enabled() and not call.for_use):
        outcome = memoryless_outcome(call)
        if outcome is None and call.for_use:
            outcome = memoryless_outcome(call, equal=True)
        return fake_outcome(call) if outcome is None else outcome


# -------------------------------------------------------------------------------------- signatures


def signature_of(
    function: Function,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    is_public: Callable[[torch.Tensor], bool] = lambda tensor: False,
) -> Hashable:
    """All that the outcome of a call depends on; raises TypeError if that cannot be said.

    >>> x, y = torch.ones(2), torch.zeros(2)
    >>> signature_of(torch.sum, (x,), {}) == signature_of(torch.sum, (y,), {})
    True
    """
    inputs = tensors_in(args, kwargs)
    numbers = _numbers_among(inputs, is_public)
    return _signature(EvaluatedCall(function, tuple(args), kwargs, inputs, numbers))


def _signature(call: EvaluatedCall) -> Hashable:
    """All that an outcome depends on; raises TypeError if that cannot be said."""
    places = {id(tensor): place for place, tensor in enumerate(call.inputs)}
    memories: dict[int, int] = {}
    if call.for_use:
        looks: Any = tuple([(each.shape, each.stride(), each.dtype) for each in call.inputs])
    else:
        looks = tuple([_look(tensor, memories) for tensor in call.inputs])
    by_type = ignores_values(call.function)
    given = _shape_of(call.args, places, by_type), _shape_of(call.kwargs, places, by_type)
    numbers = _shape_of(call.numbers, places) if call.numbers else None
    modes = (torch.get_default_dtype(),) if call.for_use else _modes()
    return (call.function, given, numbers, looks, *modes)


def _look(tensor: torch.Tensor, memories: dict[int, int]) -> Hashable:
    storage = tensor.untyped_storage()
    memory = memories.setdefault(storage._cdata, len(memories))
    flags = tensor.requires_grad, tensor.is_leaf, _look_of_view(tensor), tensor.is_inference()
    lazy = tensor.is_conj(), tensor.is_neg()
    extent = tensor.shape, tensor.stride(), tensor.storage_offset(), storage.nbytes()
    device = tensor.device, device_of(tensor)
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
    if isinstance(value, torch.Tensor):
        return torch.Tensor, places[id(value)]
    kind = type(value)
    if kind is int:
        return kind, value
    inside = parts(value)
    if inside is not None:
        return kind, tuple([(key, _shape_of(item, places, by_type)) for key, item in inside])
    if isinstance(value, (float, complex)):
        return (kind,) if by_type else (kind, repr(value))  # -0.0 is not 0.0, and nan is nan
    if isinstance(value, torch.Generator):
        return torch.Generator, value.device
    hash(value)
    return kind, value
