"""What a worker runs in the place of torch functions that trust their arguments: one table.

A worker must survive every operation that a caller requests, and it survives only exceptions.  Some
kernels of torch crash, loop for ever, or read and write beyond their operands for hostile values
and sizes; some leave memory unwritten.  :data:`TABLE` says of each what is checked or done before
it, and why.  Its rows were found by calling every operation with hostile operands in a process of
its own (``tests/torch_suite/hostile_calls.py``), and over freed memory of two contents
(``tests/torch_suite/two_contents.py``).  A row goes once torch has mended what it says.

A check raises what torch raises for its like.  A chain whose data is at another worker is checked
there.  A private command is predicted as if its values were good, and checked when it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import groupby
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

import torch

from syft.exceptions import OperationRefused
from syft.ops.nested import EXACT_TENSOR_TYPES, Function
from syft.ops.table import FUNCTIONS, NAMES
from syft.program.recording.operation_tracer import OperationTracer
from syft.torch_private import is_non_overlapping_and_dense_or_false, is_zero_tensor
from syft.workers.hardening.recurrent import cell, layer
from syft.workers.hardening.unwritten import (
    Clearing,
    CopyingGradient,
    FunctionWrapper,
    NotingHoles,
    OnACopy,
    PassOverZeros,
)
from syft.workers.hardening.whole_passes import WholePass
from syft.workers.labels.reached_graph import retain_grad
from syft.workers.labels.walk import innermost

Given = dict[str, Any]
Check = Callable[[Given], None]
Rule = Callable[[Function], Function]
C = TypeVar("C", bound=Callable[..., Any])

TRIED: Final = "2.13"
"""The torch version that the rows of the table were tried with, on CPU."""

MOST_TERMS: Final = 1 << 16
"""The highest degree of a special polynomial; a kernel takes as many steps for each element."""


class Precaution(NamedTuple):
    """A row of the table: the ends of the names of operations, what a worker makes of torch's
    function, what torch does without it, and the torch version that it was tried with.

    >>> row = Precaution(r"neg_?", lambda function: abs, "it shows how rows are written")
    >>> row.covers("torch.Tensor.neg_"), row.covers("torch.negative"), row.torch
    (True, False, '2.13')
    """

    names: str
    rule: Rule
    why: str
    torch: str = TRIED

    def covers(self, name: str) -> bool:
        """Whether the row is about the operation of this name."""
        return _ending_in(self.names)(name) is not None


@cache
def _ending_in(names: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(rf"(?:.*\.)?(?:{names})").fullmatch


TABLE: Final[list[Precaution]] = []
"""What a worker makes of operations.  Where several rows cover one, the last runs first."""


def _replace(names: str, why: str, operands: str = "") -> Callable[[C], C]:
    """Add a row; one with ``operands``, the names of parameters by place, has a check of these."""

    def add(rule: C) -> C:
        made: Rule = partial(Checked, names=operands, check=rule) if operands else rule
        TABLE.append(Precaution(names, made, why))
        return rule

    return add


def _check(names: str, operands: str, why: str) -> Callable[[C], C]:
    return _replace(names, why, operands)


class Checked(FunctionWrapper):
    """A torch function that checks its operands first.  ``names`` are those of its parameters by
    place.

    >>> div = Checked(torch.div, "input other", _divisor)
    >>> div(torch.tensor([7]), 2, rounding_mode="trunc")
    tensor([3])
    """

    __slots__ = ("_names", "_check")

    def __init__(self, function: Function, names: str, check: Check) -> None:
        super().__init__(function)
        self._names = names.split()
        self._check = check

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(self._names, args, strict=False)), **kwargs}
        if "self" in given:
            given.setdefault(self._names[0], given["self"])
        self._check(given)
        return self.function(*args, **kwargs)


# ----------------------------------------------------------------- what the rules are written with


def _tensor(given: Given, name: str) -> torch.Tensor | None:
    """The tensor of a name, if it is given and its data is here."""
    return innermost(given.get(name))


def _values(given: Given, name: str) -> torch.Tensor | None:
    """The same if it has values, which those of a prediction do not."""
    inside = innermost(given.get(name))
    return inside if type(inside) in EXACT_TENSOR_TYPES else None


def _integers(value: Any) -> torch.Tensor | None:
    """An operand as a tensor of integers; None if it is of other numbers, or not here."""
    if type(value) is int:
        return torch.tensor(value, device="cpu")
    inside = _values({"": value}, "")
    if inside is None or inside.layout is not torch.strided or inside.is_quantized:
        return None
    integer = not (inside.is_floating_point() or inside.is_complex())
    return inside.detach() if integer and inside.dtype is not torch.bool else None


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _finite(*names: str) -> Check:
    def check(given: Given) -> None:
        for name in names:
            inside = _values(given, name)
            if inside is not None and not bool(torch.isfinite(inside).all()):
                raise RuntimeError(f"the input tensor {name} should not contain infs or NaNs.")

    return check


def _between(least: float, most: float, names: str, text: str) -> Check:
    """Refuse other numbers under these names, alone or in lists; flags are none."""
    every = names.split()

    def check(given: Given) -> None:
        for value in (given[name] for name in every if name in given):
            for number in _items(value) or (value,):
                if type(number) in (int, float) and not least <= number <= most:
                    raise RuntimeError(text.format(number))

    return check


def _within(values: torch.Tensor, least: int, most: int) -> bool:
    return not values.numel() or least <= int(values.min()) <= int(values.max()) <= most


# ---------------------------------------------------------------------------------- values

_OFFSETS: Final = "numbers are used as offsets into memory, unchecked"

_check(r"(_linalg_)?eigvals", "A", "LAPACK does not end")(_finite("A"))
_check(r"binomial", "count prob", "does not end")(_finite("count", "prob"))
_check(r"matrix_power", "input n", "the exponent has no negative: torch multiplies for ever")(
    _between(1 - 2**63, inf, "n", "integer overflow: the exponent of a matrix is -2**63")
)
_check(r"soft_margin_loss", "input target reduction", "the loss of no elements is not written")(
    _between(0, 2, "reduction", "expected a reduction from 0 to 2, got {}")
)
_check(r"_?upsample_\w+[1-3]d(_aa)?", "input output_size third fourth fifth sixth", _OFFSETS)(
    _between(
        *(1e-6, 1e6, "third fourth fifth sixth scale_factors scales scales_d scales_h scales_w"),
        "interpolation: expected scales between 1e-06 and 1e+06",
    )
)
_modes = _between(
    *(0, 2, "mode interpolation_mode padding_mode"),
    "grid_sampler: expected an interpolation and a padding from 0 to 2",
)


@_check(r"div_?|divide_?", "input other", "no result for the smallest integer by -1: SIGFPE")
def _divisor(given: Given) -> None:
    if given.get("rounding_mode") != "trunc":
        return
    divided, divisor = _integers(given.get("input")), _integers(given.get("other"))
    if divided is None or divisor is None or not bool((divisor == -1).any()):
        return
    least = torch.iinfo(torch.result_type(divided, divisor)).min
    if bool(((divided == least) & (divisor == -1)).any()):
        raise RuntimeError("integer overflow: the smallest integer divided by -1")


@_check(r"lcm_?", "input other", "SIGFPE for the smallest int64")
def _multiples(given: Given) -> None:
    text = "integer overflow: the smallest integer has no least common multiple"
    both = map(_integers, (given.get("input"), given.get("other")))
    if any((one == torch.iinfo(one.dtype).min).any() for one in both if one is not None):
        raise RuntimeError(text)


@_check(r"\w+_polynomial_\w+", "x n", "a step for each degree and element, without a limit")
def _degree(given: Given) -> None:
    highest, inside = given.get("n"), _values(given, "n")
    if inside is not None:
        highest = inside.max().item() if inside.numel() else 0
    if isinstance(highest, (int, float)) and highest > MOST_TERMS:
        raise RuntimeError(f"a polynomial of a degree over {MOST_TERMS}")


@_check(r"(linalg_)?ldl_solve", "LD pivots", "LAPACK goes on to the other half of a block anywhere")
def _blocks(given: Given) -> None:
    pivots = _values(given, "pivots")
    if pivots is None or not pivots.ndim or not pivots.numel():
        return
    for row in (pivots.reshape(-1, pivots.shape[-1]) < 0).tolist():
        if any(negative and len(list(run)) % 2 for negative, run in groupby(row)):
            text = "ldl_solve: expected negative pivots in twos, as ldl_factor returns them"
            raise RuntimeError(text)


@_check(r"_pad_packed_sequence", "data batch_sizes", "lengths are written outside of their memory")
def _batches(given: Given) -> None:
    sizes = _values(given, "batch_sizes")
    if sizes is None or sizes.ndim != 1:
        return
    text = "_pad_packed_sequence: expected batch sizes over 0, none larger than the one before"
    if bool((sizes < 1).any()) or bool((sizes[1:] > sizes[:-1]).any()):
        raise RuntimeError(text)


@_check(
    *(r"grid_sampler(_2d|_3d)?|grid_sample", "input grid mode padding_mode"),
    "the backward pass goes to clipped places that are NaN; an unknown mode writes no result",
)
def _grid(given: Given) -> None:
    _modes(given)
    if given.get("padding_mode", 0) not in (0, "zeros"):
        _finite("grid")(given)


@_check(r"choose_qparams_optimized", "input numel n_bins ratio bit_width", _OFFSETS)
def _qparams(given: Given) -> None:
    _finite("input")(given)
    inside = _tensor(given, "input")
    fits = inside is None or given.get("numel") == inside.numel()
    bins, ratio, bits = given.get("n_bins", 0), given.get("ratio", 0), given.get("bit_width", 1)
    if not (fits and 0 < bins <= MOST_TERMS and 0 <= ratio <= 1 and 0 < bits <= 8):
        text = "the number of elements, 1 to 65536 bins, a ratio from 0 to 1 and 1 to 8 bits."
        raise RuntimeError(f"choose_qparams_optimized: expected {text}")


@_check(r"Tensor\.(set_|data\.__set__)", "self source", "segfault if one of them alone is nested")
def _alike(given: Given) -> None:
    tensors = [one for one in (_tensor(given, "self"), _tensor(given, "source")) if one is not None]
    if len({one.is_nested for one in tensors}) == 2:
        raise RuntimeError("a nested tensor and one that is none cannot have one memory")


@_check(r"segment_reduce", "data reduce", _OFFSETS)
def _segments(given: Given) -> None:  # lengths that do not fill the axis are harmless
    data = _tensor(given, "data")
    for name, text in (
        ("offsets", "offsets between 0 and the size of data along the axis."),
        ("lengths", "lengths from 0 that add up to the size of data at most."),
    ):
        places = _tensor(given, name)
        if data is None or places is None or not 0 < places.ndim <= data.ndim:
            continue
        sums = places.sum(-1) if name == "lengths" else places
        if not all(_within(one, 0, data.shape[places.ndim - 1]) for one in (places, sums)):
            raise ValueError(f"segment_reduce: expected {text}")


@_check(r"ctc_loss", "log_probs targets input_lengths target_lengths", _OFFSETS)
def _ctc(given: Given) -> None:  # padding is not checked
    scores, labels = _tensor(given, "log_probs"), _tensor(given, "targets")
    if scores is None or labels is None or scores.ndim < 2:
        return
    inputs, lengths = _lengths(given.get("input_lengths")), _lengths(given.get("target_lengths"))
    if inputs is not None and not _within(inputs, 0, scores.shape[0]):
        raise ValueError("ctc_loss: expected input lengths between 0 and the length of log_probs.")
    rows = scores.shape[1] if scores.ndim == 3 else 1
    used = labels if lengths is None else _used_targets(labels, lengths, rows)
    if not _within(used, 0, scores.shape[-1] - 1):
        raise ValueError("ctc_loss: expected targets between 0 and the number of classes - 1.")


def _lengths(lengths: Any) -> torch.Tensor | None:
    """The lengths as a flat tensor; None if their data is at another worker."""
    if lengths is None or isinstance(lengths, torch.Tensor):
        lengths = innermost(lengths)
        return None if lengths is None else lengths.reshape(-1).cpu()
    return torch.as_tensor(lengths, device="cpu").reshape(-1)


def _used_targets(labels: torch.Tensor, lengths: torch.Tensor, rows: int) -> torch.Tensor:
    """The targets without their padding; raises ValueError for lengths that exceed them."""
    longest = labels.shape[-1] if labels.ndim else 0
    padded = labels.ndim == 2
    total = lengths.max() if padded and len(lengths) else lengths.sum()
    if not _within(lengths, 0, longest) or int(total) > longest:
        raise ValueError("ctc_loss: expected target lengths that lie within the targets.")
    if not padded or not labels.shape[0] == len(lengths) == rows:
        return labels
    places = torch.arange(longest, device=labels.device)
    return labels[places < lengths.to(labels.device)[:, None]]


# ------------------------------------------------------------------------- sizes and layouts

_ELEMENTS: Final = "as many elements of one operand are taken as another one has"
_NORM: Final = "input weight bias running_mean running_var"
_STATISTICS: Final = "observer_on fake_quant_on running_min running_max scale zero_point"


@_check(r"resize_|set_", "input source", "gradients of sgn are copied from address 0")
def _with_memory(given: Given) -> None:
    operands = _tensor(given, "input"), _tensor(given, "source")
    if any(one is not None and is_zero_tensor(one) for one in operands):
        raise RuntimeError("ZeroTensors have no memory: use .clone() to have a tensor that has")


@_check(r"_neg_view_copy", "input", "segfault for a quantized tensor")
def _not_quantized(given: Given) -> None:
    inside = _tensor(given, "input")
    if inside is not None and inside.is_quantized:
        raise RuntimeError("a quantized tensor has no negative view")


@_check(
    *(r"as_strided_", "input size stride storage_offset"),
    "the number of bytes goes round: a tensor through all memory is taken for a small one",
)
def _strides(given: Given) -> None:
    inside, size, stride = _tensor(given, "input"), given.get("size"), given.get("stride")
    if inside is None or not all(map(int, _items(size))):
        return
    steps = zip(map(int, _items(size)), map(int, _items(stride)), strict=False)
    last = sum((count - 1) * step for count, step in steps) + int(given.get("storage_offset") or 0)
    if (last + 1) * inside.itemsize >= 1 << 63:
        raise RuntimeError("as_strided_: expected sizes and strides of fewer than 2**63 bytes")


@_check(
    r"_scaled_dot_product_flash_attention_for_cpu", "query key value", "gaps in rows are not seen"
)
def _rows(given: Given) -> None:
    for name in ("query", "key", "value"):
        x = _tensor(given, name)
        if x is not None and x.dim() and x.layout is torch.strided and x.stride(-1) != 1:
            text = f"attention: expected {name} with a last dimension of stride 1: contiguous()"
            raise RuntimeError(text)


@_check(r"_weight_norm", "v g dim", _ELEMENTS)
def _weight_norm(given: Given) -> None:
    weight, magnitude, dim = _tensor(given, "v"), _tensor(given, "g"), given.get("dim", 0)
    if weight is None or magnitude is None:
        return
    expected = [size if at == dim else 1 for at, size in enumerate(weight.shape)]
    if not 0 <= dim < weight.ndim and not magnitude.ndim:
        expected = []  # the norm of all elements
    fits = (list(magnitude.shape), magnitude.dtype) == (expected, weight.dtype)
    if not fits or not weight.numel() or not -1 <= dim < weight.ndim:
        raise RuntimeError(
            f"_weight_norm: expected g of size {expected} for v of size {list(weight.shape)} and "
            f"dim {dim}, got {list(magnitude.shape)}"
        )


@_check(r"native_batch_norm|_native_batch_norm_legit", f"{_NORM} training", _ELEMENTS)
@_check(r"batch_norm_update_stats", "input running_mean running_var", _ELEMENTS)
def _batch_norm(given: Given, statistics: bool = False) -> None:
    """``statistics`` says that both of these are needed."""
    inside = _tensor(given, "input")
    if inside is None:
        return
    if inside.ndim < 2:
        raise RuntimeError(f"batch norm: expected at least 2 dimensions, got {inside.ndim}")
    for name in _NORM.split()[1:]:
        _check_channels(name, _tensor(given, name), inside)
    mean, training = given.get("running_mean"), given.get("training")
    if isinstance(mean, bool):  # the overload without statistics
        training = mean
    elif mean is not None and given.get("running_var") is not None:
        return
    if statistics or training is False:
        raise RuntimeError("batch norm: expected running_mean and running_var")


def _check_channels(name: str, part: torch.Tensor | None, inside: torch.Tensor) -> None:
    if part is not None and list(part.shape) != [inside.shape[1]]:
        sizes = f"{[inside.shape[1]]}, got {list(part.shape)}"
        raise RuntimeError(f"batch norm: expected {name} of size {sizes}")
    if part is not None and part.dtype not in (inside.dtype, torch.float32):
        raise RuntimeError(f"batch norm: expected {name} of {inside.dtype}, got {part.dtype}")


_check(r"_batch_norm_with_update", _NORM, _ELEMENTS)(partial(_batch_norm, statistics=True))


@_check(r"lu_unpack", "LU_data LU_pivots", _ELEMENTS)
def _pivots(given: Given) -> None:
    factors, pivots = _tensor(given, "LU_data"), _tensor(given, "LU_pivots")
    if factors is None or pivots is None or factors.ndim < 2:
        return
    expected, got = [*factors.shape[:-2], min(factors.shape[-2:])], list(pivots.shape)
    if got != expected:
        raise RuntimeError(f"lu_unpack: expected pivots of size {expected}, got {got}")


@_check(
    r"fused_moving_avg_obs_fake_quant",
    f"input {_STATISTICS} averaging_const quant_min quant_max ch_axis per_row_fake_quant "
    "symmetric_quant",
    _ELEMENTS,
)
def _quantizers(given: Given) -> None:
    inside, axis = _tensor(given, "input"), given.get("ch_axis")
    what = "fused_moving_avg_obs_fake_quant: expected"
    if inside is None or not isinstance(axis, int) or not -inside.ndim <= axis < inside.ndim:
        raise RuntimeError(f"{what} an axis of a tensor")
    elements = inside.shape[axis] if given.get("per_row_fake_quant", False) else 1
    for name in _STATISTICS.split():
        part, expected = _tensor(given, name), 1 if name.endswith("_on") else elements
        got = "none" if part is None else part.numel()
        if got != expected:
            raise RuntimeError(f"{what} {name} of {expected} elements, got {got}")


# ------------------------------------------------------------------------------------- lists


@_check(r"_chunk_cat", "tensors dim num_chunks", "any dimension is taken")
def _chunks(given: Given) -> None:
    dim = given.get("dim", 0)
    for tensor in map(innermost, _items(given.get("tensors"))):
        fits = tensor is None or isinstance(dim, int) and -tensor.ndim <= dim < tensor.ndim
        if not fits:
            raise RuntimeError(f"_chunk_cat: expected tensors that have dimension {dim}")


@_check(r"_foreach_lerp_?", "input tensors1 weight", _ELEMENTS)
def _lists(given: Given) -> None:
    expected = len(given.get("input") or ())
    for name, value in given.items():
        if isinstance(value, (list, tuple)) and len(value) != expected:
            text = f"expected lists of {expected} tensors, got {name} with {len(value)}"
            raise RuntimeError(text)


def _optimizer(given: Given, needed: str = "", option: str = "", needed_with: str = "") -> None:
    """The lists of ``needed`` must not be empty, nor ``needed_with`` if an option is on."""
    parameters, value = list(given.get("params") or ()), given.get(option, 0)
    is_on = not isinstance(value, (int, float)) or value != 0
    must = f"params grads {needed} {needed_with if is_on else ''}".split()
    for name in dict.fromkeys([*must, *(key for key in given if _items(given[key]))]):
        _check_list(name, list(given.get(name) or ()), parameters)


def _check_list(name: str, items: list[Any], parameters: list[Any]) -> None:
    if len(items) != len(parameters):
        raise RuntimeError(f"expected {len(parameters)} {name}, got {len(items)}")
    same = _is_step if name == "state_steps" else _same_layout
    if not all(map(same, parameters, items)):
        raise RuntimeError(f"expected {name} laid out like the parameters")


def _same_layout(parameter: Any, other: Any) -> bool:
    one, two = innermost(parameter), innermost(other)
    if one is None or two is None:
        return one is two
    return (
        one.layout is two.layout is torch.strided
        and (one.shape, one.stride(), one.dtype, one.device)
        == (two.shape, two.stride(), two.dtype, two.device)
        and bool(is_non_overlapping_and_dense_or_false(one))
    )


def _is_step(parameter: Any, step: Any) -> bool:
    inside = innermost(step)
    return inside is not None and inside.numel() == 1


_check(r"_fused_sgd_", "params grads momentum_buffer_list", _ELEMENTS)(
    partial(_optimizer, option="momentum", needed_with="momentum_buffer_list")
)
_ADAM: Final = "exp_avgs exp_avg_sqs {} state_steps"
_check(r"_fused_adamw?_", f"params grads {_ADAM.format('max_exp_avg_sqs')}", _ELEMENTS)(
    partial(_optimizer, needed=_ADAM.format(""), option="amsgrad", needed_with="max_exp_avg_sqs")
)
_check(r"_fused_adagrad_", "params grads state_sums state_steps", _ELEMENTS)(
    partial(_optimizer, needed="state_sums state_steps")
)


# ------------------------------------------------------------------------------ replacements


@_replace(r"Tensor\.view", "segfault for a quantized tensor as another dtype")
def _view(function: Function) -> Function:
    def view(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values()) if tensor.is_quantized else ()
        if any(isinstance(value, torch.dtype) for value in given):
            text = "a quantized tensor has no view as other dtype"
            raise OperationRefused("torch.Tensor.view", text)
        return function(tensor, *args, **kwargs)

    return view


@_replace(r"torch\.sparse_(coo|compressed|csr|csc|bsr|bsc)_tensor", "bad indices are followed")
def _own_indices(constructor: Function) -> Function:
    """A constructor of sparse tensors that checks its indices, and copies them, so that they cannot
    be changed after the check."""

    def construct(*args: Any, **kwargs: Any) -> Any:
        named = {name: _own(value) for name, value in kwargs.items()}
        return constructor(*map(_own, args), **{**named, "check_invariants": True})

    return construct


def _own(value: Any) -> Any:
    """A copy of a tensor that may be an index; any other value unchanged."""
    if not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex():
        return value
    return value.clone()


@_replace(r"Tensor\.(_?indices|(crow|ccol|col|row)_indices)", "written indices are followed")
def _copying(getter: Function) -> Function:
    return lambda *args, **kwargs: getter(*args, **kwargs).clone()


_RECURRENT: Final = "kernels read and write past operands whose sizes do not fit one another"
for _kind, _gates in (("lstm", 4), ("gru", 3), ("rnn_(tanh|relu)", 1)):
    _replace(rf"torch\.{_kind}", _RECURRENT)(partial(layer, gates=_gates))
    _replace(rf"torch\.{_kind}_cell", _RECURRENT)(partial(cell, gates=_gates))


@_replace(r"torch\.(mkldnn_rnn_layer|miopen_rnn|_cudnn_rnn)", _RECURRENT)
def _refused(function: Function) -> Function:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        instead = "it is a part of torch.lstm and its like: call one of these"
        raise OperationRefused(f"torch.{function.__name__}", instead)

    return refuse


_BEYOND: Final = "memory beyond the elements of the result is not written"
_replace(r"mse_loss|smooth_l1_loss|unique_consecutive|unique_dim", _BEYOND)(
    partial(Clearing, beyond=True)
)
_replace(r"(functional\.|_nn\.)(unfold|im2col)", _BEYOND)(
    lambda function: Clearing(CopyingGradient(function), beyond=True)
)
_replace(*(r"Tensor\.backward|autograd\.(backward|grad)", "nobody writes the gradient of a hole"))(
    lambda function: WholePass(PassOverZeros(function))
)
_replace(
    *(r"as_strided_?|Tensor\.(set_|data\.__set__)|resize(_as)?_", "views may reach into holes")
)(NotingHoles)
_replace(r"cov", "it writes to its operand where that has one observation and weights")(OnACopy)
_replace(r"Tensor\.retain_grad", "a private pass asks what keeps gradients")(lambda _: retain_grad)

_any = _ending_in("|".join(row.names for row in TABLE))  # to ask each row takes 40 ms
for _number, _name in enumerate(NAMES):
    for _row in TABLE if _any(_name) else ():
        _function = OperationTracer.checked.get(_number, FUNCTIONS[_number])
        if _function and _row.covers(_name):
            OperationTracer.checked[_number] = _row.rule(_function)

RUNNABLE: list[Function | None] = [
    OperationTracer.checked.get(number, function) for number, function in enumerate(FUNCTIONS)
]
"""The op table's functions by number, with what a worker runs in the place of some."""
