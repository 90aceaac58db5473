"""What torch's own test cases hand to ``__torch_function__``, and what each call then did.

The flags of the op table are claims about functions of torch.  Here they meet the cases nobody here
wrote: the operator and module databases of torch run under a mode that sees every call, and what a
call did is written down as a few words, so that no tensor outlives its case.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

from syft.ops.calls import mutated_argument
from syft.ops.returns import returns
from syft.ops.table import FLAGS, NUMBERS

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

SAMPLES = 4
STEP = 4
FAILED = (
    RuntimeError,
    ValueError,
    TypeError,
    IndexError,
    AttributeError,
    ArithmeticError,
    AssertionError,
)
"""What torch raises for the samples that some variant of an op does not take."""


Parts = tuple[Any, tuple[str, ...]]


@dataclass(frozen=True)
class Call:
    """One kind of behaviour of one function; many calls are equal."""

    function: Callable[..., Any]
    result: str
    """``one`` fresh tensor, the ``first`` argument, another ``argument``, or the type's name."""
    parts: Parts
    """The type of the result, and of each item in it whether it is a tensor, None, or neither."""
    foretold: Parts | None
    """The same as :mod:`syft.ops.returns` says it from the arguments, if it does."""
    values: bool
    """The result is or contains a Python number, bool or string, or a dtype, device or layout."""
    took_tensors: bool
    drew: bool
    """The random generator moved."""
    mutated_first: bool
    mutated_other: bool
    altered: bool
    """The shape, dtype, device or layout of a given tensor changed."""
    shape_followed_values: bool
    out: bool
    """Called with ``out=``."""
    inplace: bool
    """Called with a true ``inplace=``."""
    shared: bool
    """A tensor of the result shares memory with an argument."""


class Recorder(TorchFunctionMode):
    """Collects what every call does, as a set with one case that showed it."""

    def __init__(self) -> None:
        self.case = ""
        self.calls: dict[Call, str] = {}

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        shapes = shapes_for_zeros(function, args, kwargs)
        first, others = split_first(args, kwargs)
        before = [state(tensor) for tensor in first], [state(tensor) for tensor in others]
        facts = [facts_of(tensor) for tensor in (*first, *others)]
        random_state = torch.get_rng_state()
        result = function(*args, **kwargs)
        call = Call(
            function=function,
            result=kind(result, args, kwargs),
            parts=parts_of(result),
            foretold=foretold(function, args, kwargs),
            values=any(isinstance(leaf, VALUES) for leaf in leaves(result)),
            took_tensors=bool(first or others),
            drew=not torch.equal(random_state, torch.get_rng_state()),
            mutated_first=before[0] != [state(tensor) for tensor in first],
            mutated_other=before[1] != [state(tensor) for tensor in others],
            altered=facts != [facts_of(tensor) for tensor in (*first, *others)],
            shape_followed_values=shapes is not None and shapes != shapes_of(result),
            out=kwargs.get("out") is not None,
            inplace=bool(kwargs.get("inplace")),
            shared=not memory(result).isdisjoint(memory((args, kwargs))),
        )
        self.calls.setdefault(call, self.case)
        return result


VALUES = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout)


def leaves(value: Any) -> Iterator[Any]:
    """Walk what stands in nested containers."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def split_first(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Find the tensors in the first argument and those in all others (but not in ``out=``)."""
    rest = {name: value for name, value in kwargs.items() if name not in ("out", "tensor")}
    first = args[0] if args else kwargs.get("tensor")
    return (
        [leaf for leaf in leaves(first) if isinstance(leaf, torch.Tensor)],
        [leaf for leaf in leaves((args[1:], rest)) if isinstance(leaf, torch.Tensor)],
    )


def state(tensor: torch.Tensor) -> tuple[int, bytes]:
    """What changes when a tensor is mutated: its count of that, and its values.

    The values are looked at as well because batch norm does not count what it does to its running
    statistics.
    """
    counted = 0 if tensor.is_inference() else tensor._version
    if tensor.layout is not torch.strided or tensor.dtype not in (torch.float32, torch.int64):
        return counted, b""
    return counted, tensor.detach().clone().numpy(force=True).tobytes()


def facts_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What is not a value of a tensor."""
    return tensor.shape, tensor.dtype, tensor.device, tensor.layout, tensor.is_quantized


def kind(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Say in a word what came back."""
    first = args[0] if args else kwargs.get("tensor")
    if result is first and first is not None:
        return "first"
    if not isinstance(result, torch.Tensor):
        return type(result).__name__
    return "argument" if any(result is leaf for leaf in leaves((args, kwargs))) else "one"


def memory(value: Any) -> set[int]:
    """The addresses of what tensors hold; those of exotic layouts are passed over."""
    tensors = [leaf for leaf in leaves(value) if type(leaf) in (torch.Tensor, torch.nn.Parameter)]
    strided = [tensor for tensor in tensors if tensor.layout is torch.strided]
    return {tensor.untyped_storage().data_ptr() for tensor in strided} - {0}


def parts_of(result: Any) -> Parts:
    """Say what a result consists of."""
    if isinstance(result, torch.Tensor):
        return None, ("tensor",)
    items = result if isinstance(result, tuple | list) else ()
    return type(result), tuple(map(word_for, items))


def word_for(item: Any) -> str:
    """``tensor``, ``None`` or the name of a type."""
    if isinstance(item, torch.Tensor):
        return "tensor"
    return "None" if item is None else type(item).__name__


def foretold(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Parts | None:
    """Say what a result will consist of, for a call that mutates nothing."""
    number = NUMBERS.get(function)
    if number is None or mutated_argument(FLAGS[number], args, kwargs) is not None:
        return None
    found = returns(number, args, kwargs)
    if found is None:
        return None
    return found.container, tuple("tensor" if here else "None" for here in found.present)


def shapes_of(result: Any) -> list[Any]:
    """The shapes of all tensors in a result; for a sparse one, how many elements it stores."""
    tensors = [leaf for leaf in leaves(result) if isinstance(leaf, torch.Tensor)]
    return [
        (tensor.shape, tensor._nnz()) if tensor.layout is torch.sparse_coo else tensor.shape
        for tensor in tensors
    ]


NOT_ON_ZEROS = {"__setitem__", "__get__", "backward", "segment_reduce", "ctc_loss"}
# Zeros are no pivots, and torch does not look (2.12 ends the process).
NOT_ON_ZEROS |= {"linalg_ldl_solve", "linalg_lu_solve", "lu_solve", "lu_unpack"}


def shapes_for_zeros(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any] | None:
    """Run a call on zeros instead of its values, and say which shapes come back.

    None when zeros will not do: the function refuses them, or mutates, or draws, or is one that
    reads past its memory when indices do not fit.
    """
    name = getattr(function, "__name__", "")
    tensors = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    mutates = name.endswith("_") and not name.endswith("__")
    if not tensors or mutates or name in NOT_ON_ZEROS:
        return None
    if any(tensor.layout is not torch.strided or tensor.is_quantized for tensor in tensors):
        return None
    random_state = torch.get_rng_state()
    try:
        with torch.no_grad():
            zero_args, zero_kwargs = zeros_for(args), zeros_for(kwargs)
            return shapes_of(function(*zero_args, **zero_kwargs))
    except FAILED:
        return None
    finally:
        torch.set_rng_state(random_state)


def zeros_for(value: Any) -> Any:
    """Replace every tensor in nested containers by zeros of its shape."""
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    if isinstance(value, dict):
        return {name: zeros_for(item) for name, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(zeros_for(item) for item in value)
    return value


def record_operators(recorder: Recorder) -> None:
    """Run every operator of torch's database, in each of its forms, forward and backward."""
    op: Any
    for op in op_db:
        recorder.case = op.name
        torch.manual_seed(0)
        dtypes = op.supported_dtypes("cpu")
        dtype = torch.float32 if torch.float32 in dtypes else torch.int64
        gradients = dtype is torch.float32 and op.supports_autograd
        if dtype in dtypes:
            # Not op.sample_inputs(): that looks at the call stack for every sample, which is slow.
            samples = op.sample_inputs_func(op, "cpu", dtype, requires_grad=gradients)
            # The first samples are often scalars; what is particular about an op comes later.
            for sample in itertools.islice(samples, 0, SAMPLES * STEP, STEP):
                for form in forms(op):
                    run_form(recorder, form, sample.input, sample.args, sample.kwargs)


def forms(op: Any) -> list[tuple[Callable[..., Any], bool]]:
    """List the ways to call an operator, and whether each mutates its input."""
    plain = [op.op, op.method_variant, op.operator_variant]
    inplace = [op.inplace_variant, op.inplace_operator_variant]
    for alias in op.aliases:
        plain += [alias.op, alias.method_variant]
        inplace += [alias.inplace_variant]
    return [(form, False) for form in plain if form] + [(form, True) for form in inplace if form]


def run_form(
    recorder: Recorder,
    form: tuple[Callable[..., Any], bool],
    value: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Run one form of an operator on one sample; torch does not take every sample in every form."""
    function, inplace = form
    if inplace:
        value = value.detach().clone()
    try:
        with recorder:
            result = function(value, *args, **kwargs)
            if isinstance(result, torch.Tensor) and result.requires_grad:
                torch.autograd.backward([result.abs().sum()])
    except FAILED:
        pass


def record_modules(recorder: Recorder) -> None:
    """Build and run every module of torch's database, in training and not."""
    for info in module_db:
        recorder.case = info.name
        for training in (True, False):
            inputs = info.module_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
            )
            for given in inputs[:SAMPLES]:
                if given.forward_input is not None:
                    run_module(recorder, info.module_cls, given, training)


def run_module(recorder: Recorder, cls: type[torch.nn.Module], given: Any, training: bool) -> None:
    """Build one module and run it once."""
    try:
        with recorder:
            module = cls(*given.constructor_input.args, **given.constructor_input.kwargs)
            module.train(training)
            module(*given.forward_input.args, **given.forward_input.kwargs)
    except FAILED:
        pass
