"""Replacements for torch functions that would crash the worker's process.

A worker must survive every operation that a caller requests, and it survives only exceptions.  Each
entry replaces a function that crashes in torch itself, and names the torch version.  An entry is
removed when torch has fixed the crash.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch

from syft.exceptions import OperationRefused
from syft.ops.table import BY_NAME, FUNCTIONS, NAMES, function_of
from syft.program.recording.operation_tracer import OperationTracer
from syft.workers.hardening import checked_operands as values
from syft.workers.hardening import checked_sizes as sizes
from syft.workers.hardening import unwritten
from syft.workers.hardening.recurrent import cell, layer, refused
from syft.workers.hardening.whole_passes import WholePass
from syft.workers.hardening.written_slices import NotingHoles, PassOverZeros
from syft.workers.labels.reached_graph import retain_grad
from syft.workers.labels.walk import innermost, storages_of


def own_memory(tensor: torch.Tensor) -> None:
    """Move a tensor to memory that torch allocated, unless it is there: numpy's, or a file's.

    Torch cannot enlarge other memory.  A failed ``resize_`` nevertheless leaves the tensor with its
    new size, and the next operation reads or writes outside the memory (torch 2.13).

    >>> import numpy
    >>> x = torch.from_numpy(numpy.ones(2)); own_memory(x)
    >>> x.untyped_storage().resizable()
    True
    """
    if not all(storage.resizable() for storage in storages_of(tensor)):
        inside: Any = innermost(tensor)
        inside.data = inside.detach().clone()


def view(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``torch.Tensor.view``; refuses a quantized tensor as another dtype (torch 2.13: segfault).

    >>> view(torch.ones(4), 2, 2).shape
    torch.Size([2, 2])
    """
    if tensor.is_quantized and any(
        isinstance(value, torch.dtype) for value in (*args, *kwargs.values())
    ):
        raise OperationRefused("torch.Tensor.view", "a quantized tensor has no view as other dtype")
    viewed: torch.Tensor = torch.Tensor.view(tensor, *args, **kwargs)
    return viewed


def checked(constructor: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A constructor of sparse tensors that always checks its indices.

    Torch checks them only with ``check_invariants=True``, and a later operation reads the memory at
    a bad index.  The indices are copied, so that they cannot be changed after the check.

    >>> make = checked(torch.sparse_coo_tensor)
    >>> make(torch.tensor([[5]]), torch.ones(1), (2,))
    Traceback (most recent call last):
    ...
    RuntimeError: size is inconsistent with indices: for dim 0, size is 2 but found index 5
    """

    def construct(*args: Any, **kwargs: Any) -> torch.Tensor:
        own = [_own(value) for value in args]
        named = {name: _own(value) for name, value in kwargs.items()}
        return constructor(*own, **{**named, "check_invariants": True})

    return construct


def _own(value: Any) -> Any:
    """A copy of a tensor that may be an index; any other value unchanged."""
    if not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex():
        return value
    return value.clone()


def copying(getter: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A method that returns a copy of the indices of a sparse tensor.

    A write to the indices themselves would make later operations read arbitrary memory.

    >>> x = torch.eye(2).to_sparse(); _ = copying(torch.Tensor._indices)(x).fill_(10**9)
    >>> int(x._indices().max())
    1
    """

    def copied(*args: Any, **kwargs: Any) -> torch.Tensor:
        return getter(*args, **kwargs).clone()

    return copied


def segment_reduce(data: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``torch.segment_reduce`` with checks of offsets and lengths, which torch lacks.

    ``unsafe=True`` also skips the check that the lengths fill the axis, which is harmless.

    >>> segment_reduce(torch.ones(3), "sum", offsets=torch.tensor([0, 10**9]), unsafe=True)
    Traceback (most recent call last):
    ...
    ValueError: segment_reduce: expected offsets between 0 and the size of data along the axis.
    """
    inside, offsets = innermost(data), innermost(kwargs.get("offsets"))
    if inside is not None and offsets is not None and 0 < offsets.ndim <= inside.ndim:
        if not _within(offsets, 0, inside.shape[offsets.ndim - 1]):
            raise ValueError(
                "segment_reduce: expected offsets between 0 and the size of data along the axis."
            )
    lengths = innermost(kwargs.get("lengths"))
    if inside is not None and lengths is not None and 0 < lengths.ndim <= inside.ndim:
        size = inside.shape[lengths.ndim - 1]
        if not _within(lengths, 0, size) or not _within(lengths.sum(-1), 0, size):
            raise ValueError(
                "segment_reduce: expected lengths from 0 that add up to the size of data at most."
            )
    reduced: torch.Tensor = torch.segment_reduce(data, *args, **kwargs)
    return reduced


def ctc_checked(loss: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A CTC loss that checks its targets and lengths, which torch uses as memory offsets.

    >>> loss = ctc_checked(torch.nn.functional.ctc_loss)
    >>> loss(torch.zeros(4, 1, 3), torch.tensor([[1, 10**9]]), [4], [2])
    Traceback (most recent call last):
    ...
    ValueError: ctc_loss: expected targets between 0 and the number of classes - 1.
    """

    def call(
        log_probs: torch.Tensor,
        targets: torch.Tensor,
        input_lengths: Any,
        target_lengths: Any,
        *args: Any,
        **kwargs: Any,
    ) -> torch.Tensor:
        scores, labels = innermost(log_probs), innermost(targets)
        if scores is not None and labels is not None and scores.ndim > 1:
            _check_ctc(scores, labels, _lengths(input_lengths), _lengths(target_lengths))
        return loss(log_probs, targets, input_lengths, target_lengths, *args, **kwargs)

    return call


def _lengths(lengths: Any) -> torch.Tensor | None:
    """The lengths as a flat tensor; None if their data is at another worker."""
    if isinstance(lengths, torch.Tensor):
        lengths = innermost(lengths)
        return None if lengths is None else lengths.reshape(-1).cpu()
    return torch.as_tensor(lengths, device="cpu").reshape(-1)


def _check_ctc(
    scores: torch.Tensor,
    labels: torch.Tensor,
    input_lengths: torch.Tensor | None,
    target_lengths: torch.Tensor | None,
) -> None:
    """Raise ValueError for targets and lengths that point out of memory; padding is not checked."""
    if input_lengths is not None and not _within(input_lengths, 0, scores.shape[0]):
        raise ValueError("ctc_loss: expected input lengths between 0 and the length of log_probs.")
    rows = scores.shape[1] if scores.ndim == 3 else 1
    used = labels if target_lengths is None else _used_targets(labels, target_lengths, rows)
    if not _within(used, 0, scores.shape[-1] - 1):
        raise ValueError("ctc_loss: expected targets between 0 and the number of classes - 1.")


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


def _within(values: torch.Tensor, least: int, most: int) -> bool:
    return not values.numel() or least <= int(values.min()) <= int(values.max()) <= most


_SPARSE = (
    "torch.sparse_coo_tensor",
    "torch.sparse_compressed_tensor",
    "torch.sparse_csr_tensor",
    "torch.sparse_csc_tensor",
    "torch.sparse_bsr_tensor",
    "torch.sparse_bsc_tensor",
)

_INDICES = ("_indices", "indices", "crow_indices", "ccol_indices", "col_indices", "row_indices")

_REPLACEMENTS: dict[int, Callable[..., Any]] = {
    BY_NAME["torch.Tensor.view"]: view,
    BY_NAME["torch.segment_reduce"]: segment_reduce,
    BY_NAME["torch.Tensor.retain_grad"]: retain_grad,
}
for _precaution, _names in (
    (partial(layer, gates=4), ("torch.lstm",)),
    (partial(layer, gates=3), ("torch.gru",)),
    (partial(layer, gates=1), ("torch.rnn_tanh", "torch.rnn_relu")),
    (partial(cell, gates=4), ("torch.lstm_cell",)),
    (partial(cell, gates=3), ("torch.gru_cell",)),
    (partial(cell, gates=1), ("torch.rnn_tanh_cell", "torch.rnn_relu_cell")),
    (refused, ("torch.mkldnn_rnn_layer", "torch.miopen_rnn", "torch._cudnn_rnn")),
    (checked, _SPARSE),
    (copying, tuple(f"torch.Tensor.{name}" for name in _INDICES)),
    (ctc_checked, ("torch.ctc_loss", "torch.nn.functional.ctc_loss")),
):
    _REPLACEMENTS.update(
        (BY_NAME[name], _precaution(function_of(BY_NAME[name])))
        for name in _names
        if name in BY_NAME
    )

_ADAM: Final = ("params", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps")
_NORM: Final = ("input", "weight", "bias", "running_mean", "running_var", "training")


def _finite(*names: str) -> values.Check:
    return lambda given: values.finite_checked(given, *names)


_CHECKS: Final[tuple[tuple[str, tuple[str, ...], values.Check], ...]] = (
    (r"div_?|divide_?", ("input", "other"), values.divisor_checked),
    (r"lcm_?", ("input", "other"), values.multiples_checked),
    (r"matrix_power", ("input", "n"), values.exponent_checked),
    (r"\w+_polynomial_\w+", ("x", "n"), values.degree_checked),
    (r"(_linalg_)?eigvals", ("A",), _finite("A")),
    (r"_neg_view_copy", ("input",), values.not_quantized),
    (r"resize_|set_", ("input", "source"), values.memory_checked),
    (r"binomial", ("count", "prob"), _finite("count", "prob")),
    (
        r"grid_sampler(_2d|_3d)?|grid_sample",
        ("input", "grid", "mode", "padding_mode"),
        values.grid_checked,
    ),
    (
        r"choose_qparams_optimized",
        ("input", "numel", "n_bins", "ratio", "bit_width"),
        values.qparams_checked,
    ),
    (r"_?upsample_\w+[1-3]d", ("input", "output_size"), values.scales_checked),
    (r"_?upsample_\w+[1-3]d_aa", ("input", "output_size"), values.scales_checked),
    (r"soft_margin_loss", ("input", "target", "reduction"), unwritten.reduction_checked),
    (r"_pad_packed_sequence", ("data", "batch_sizes"), unwritten.batches_checked),
    (r"as_strided_", ("input", "size", "stride", "storage_offset"), sizes.strides_checked),
    (r"_weight_norm", ("v", "g", "dim"), sizes.weight_norm_checked),
    (
        r"_scaled_dot_product_flash_attention_for_cpu",
        ("query", "key", "value"),
        sizes.rows_checked,
    ),
    (r"native_batch_norm|_native_batch_norm_legit", _NORM, sizes.batch_norm_checked),
    (
        r"_batch_norm_with_update",
        _NORM[:-1],
        partial(sizes.batch_norm_checked, statistics=True),
    ),
    (
        r"batch_norm_update_stats",
        ("input", "running_mean", "running_var"),
        sizes.batch_norm_checked,
    ),
    (r"lu_unpack", ("LU_data", "LU_pivots"), sizes.pivots_checked),
    (r"(linalg_)?ldl_solve", ("LD", "pivots"), values.blocks_checked),
    (
        r"fused_moving_avg_obs_fake_quant",
        (
            "input",
            *sizes.QUANTIZER_STATISTICS,
            "averaging_const",
            "quant_min",
            "quant_max",
            "ch_axis",
        )
        + ("per_row_fake_quant", "symmetric_quant"),
        sizes.quantizers_checked,
    ),
    (r"_chunk_cat", ("tensors", "dim", "num_chunks"), sizes.chunks_checked),
    (r"_foreach_lerp_?", ("input", "tensors1", "weight"), sizes.lists_checked),
    (
        r"_fused_sgd_",
        ("params", "grads", "momentum_buffer_list"),
        partial(sizes.optimizer_checked, needed=sizes.sgd_lists),
    ),
    (r"_fused_adamw?_", _ADAM, partial(sizes.optimizer_checked, needed=sizes.adam_lists)),
    (
        r"_fused_adagrad_",
        ("params", "grads", "state_sums", "state_steps"),
        partial(sizes.optimizer_checked, needed=sizes.adagrad_lists),
    ),
)
"""The last part of the names of operations, the names of their parameters by place, and what is
checked."""

_PASSES: Final = r"Tensor\.backward|autograd\.(backward|grad)"
_WRAPPED: Final[tuple[tuple[str, Callable[[Callable[..., Any]], Any]], ...]] = (
    (r"mse_loss|smooth_l1_loss|unique_consecutive|unique_dim", unwritten.ClearingBehind),
    (r"(functional\.|_nn\.)(unfold|im2col)", unwritten.unfolding),
    (_PASSES, PassOverZeros),
    (_PASSES, WholePass),
    (r"as_strided_?|Tensor\.(set_|data\.__set__)|resize(_as)?_", NotingHoles),
)
"""The ends of the names of operations, and what runs them."""

for _number, _name in enumerate(NAMES):
    _found = FUNCTIONS[_number]
    for _pattern, _wrapped in _WRAPPED:
        if _found and re.fullmatch(rf"(.*\.)?({_pattern})", _name):
            _REPLACEMENTS[_number] = _found = _wrapped(_found)
    for _pattern, _parameters, _check in _CHECKS:
        if _found and re.fullmatch(_pattern, _name.rpartition(".")[2]):
            _REPLACEMENTS[_number] = values.CheckedFunction(_found, _parameters, _check)

RUNNABLE: list[Callable[..., Any] | None] = [
    _REPLACEMENTS.get(number, function) for number, function in enumerate(FUNCTIONS)
]
"""The op table's functions by number, with replacements for those that crash."""

OperationTracer.checked.update(_REPLACEMENTS)
