"""What a call of an op does: what it writes to, and ops that take a Python function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import triplet_margin_with_distance_loss

from syft.ops.calls import (
    STATISTICS,
    argument,
    has_parameter,
    mutated_argument,
    statistics_written,
)
from syft.ops.evaluate import evaluate
from syft.ops.outcome import Verdict
from syft.ops.table import BY_NAME, FLAGS, INPLACE_OPTION, NAMES, number_of, ops_with
from tests.program.replaying import agrees, tensors


def flags(operation: object) -> int:
    return FLAGS[number_of(operation)]


def test_each_way_of_mutating() -> None:
    assert mutated_argument(flags(torch.Tensor.add_), (1, 2), {}) == 1
    assert mutated_argument(flags(torch.Tensor.add), (1, 2), {}) is None
    assert mutated_argument(flags(torch.add), (1, 2), {"out": 3}) == 3
    assert mutated_argument(flags(torch.nn.functional.dropout), (1,), {"inplace": True}) == 1
    assert (
        mutated_argument(flags(torch.nn.functional.dropout), (), {"input": 1, "inplace": True}) == 1
    )
    assert mutated_argument(flags(torch.nn.functional.dropout), (1,), {"inplace": False}) is None


# ---------------------------------------------------------------------------- running statistics

X = torch.arange(12.0).reshape(1, 2, 6)
MODES: list[Callable[[], Any]] = [torch.enable_grad, torch.no_grad, torch.inference_mode]
NOT_ON_A_CPU = {
    f"torch.{name}"
    for name in ("cudnn_batch_norm", "miopen_batch_norm", "batch_norm_gather_stats")
    + ("batch_norm_gather_stats_with_counts",)
}


def normalization(name: str, training: bool) -> list[Any]:
    """Arguments of a normalization, with zeros and ones for the running statistics."""
    running = [torch.zeros(2), torch.ones(2)]
    if name == "torch.batch_norm_update_stats":
        return [X, *running, 0.1]
    if name.startswith("torch.nn"):
        return [X, *running, None, None, training, 0.1, 1e-5]
    if name == "torch.ops.aten._batch_norm_with_update":
        return [X, torch.ones(2), torch.zeros(2), *running, 0.1, 1e-5]
    cudnn = [False] if name in ("torch.batch_norm", "torch.instance_norm") else []
    return [X, None, None, *running, training, 0.1, 1e-5, *cudnn]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", sorted({NAMES[op] for op in STATISTICS} - NOT_ON_A_CPU))
def test_what_a_normalization_writes(name: str, training: bool, mode: Callable[[], Any]) -> None:
    op = BY_NAME[name]
    function = resolved(name)
    args = normalization(name, training)
    said = {id(one) for one in statistics_written(op, args, {})}
    with mode():
        outcome = evaluate(function, args, {})
        inputs = [one for one in args if isinstance(one, torch.Tensor)]
        before = [one.clone() for one in inputs]
        function(*args)
    written = {id(one) for one, was in zip(inputs, before, strict=True) if not one.equal(was)}
    assert said == written
    if outcome.verdict is not Verdict.UNKNOWN:
        assert written == {id(inputs[place]) for place in outcome.writes}


def resolved(name: str) -> Callable[..., Any]:
    found: Any = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]


def test_arguments_are_found_by_place_name_and_default() -> None:
    op = BY_NAME["torch.nn.functional.batch_norm"]
    assert statistics_written(op, (X,), {"running_mean": 1, "training": 5}) == (1, None)
    assert statistics_written(op, (X, 1, 2), {"training": False}) == ()
    assert argument(BY_NAME["torch.Tensor.__eq__"], "other", (1, 2), {}) is None
    for name, place in (("torch.Tensor.backward", 4), ("torch.autograd.backward", 5)):
        assert argument(BY_NAME[name], "inputs", range(9), {}) == place
    assert all(has_parameter(op, "inplace") for op in ops_with(INPLACE_OPTION))


READ_ONLY = """_batch_norm_impl_index_backward _batch_norm_no_update
    _batch_norm_with_update_functional batch_norm_backward _native_batch_norm_legit_functional
    _native_batch_norm_legit_no_training native_batch_norm_backward
    cudnn_batch_norm_backward miopen_batch_norm_backward"""
INSIDE = "_batch_norm_impl_index"
"""It is no op of the table, and torch decomposes it wherever it decomposes ``batch_norm``."""


def test_every_operation_with_running_statistics_is_decided_about() -> None:
    """A newer torch may have more: whether they write is to be tried."""
    taking = {
        schema.name.removeprefix("aten::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::")
        and any(argument.name == "running_mean" for argument in schema.arguments)
    }
    writing = {NAMES[op].rpartition(".")[2] for op in STATISTICS}
    assert taking - writing == {*READ_ONLY.split(), INSIDE}


# ------------------------------------------------------------------------- functions of the user's


@pytest.mark.parametrize(
    "options",
    [{}, {"swap": True, "reduction": "sum"}, {"margin": 0.25, "reduction": "none"}],
    ids=str,
)
def test_a_loss_with_a_distance_of_the_users_own(options: dict[str, Any]) -> None:
    def loss(anchor: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor) -> torch.Tensor:
        return triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=lambda one, other: (one - other).abs().amax(-1),
            **options,
        )

    shapes = [(4, 3)] * 3
    recording = agrees(loss, tensors(*shapes, grad=True), tensors(*shapes, grad=True, seed=8))
    assert len(recording.program.actions) > 5
