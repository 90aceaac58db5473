"""Record a function, replay the program on other inputs, and compare with the function itself."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from syft.program.lint import lint
from syft.program.lowered import Lowered
from syft.program.recording.record import Recording, record
from syft.ops.nested import leaves

SEED = 7


def tensors(*shapes: tuple[int, ...], grad: bool = False, seed: int = SEED) -> list[torch.Tensor]:
    """Tensors of these shapes, drawn apart from the default generator."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).requires_grad_(grad) for shape in shapes]


def recorded(function: Callable[..., Any], *inputs: Any) -> Recording:
    """A recording of the function, whose program is well formed."""
    recording = record(function, inputs)
    lint(recording.program)
    return recording


def replay(recording: Recording, *inputs: Any) -> Any:
    """Run the program on these inputs and the tensors it captured."""
    return Lowered(recording.program).run([*inputs, *recording.captured])


def agrees(
    function: Callable[..., Any], inputs: Sequence[Any], *others: Sequence[Any]
) -> Recording:
    """Replay equals the function on other inputs: results, gradients and random numbers."""
    recording = recorded(function, *inputs)
    for values in (inputs, *others):
        torch.manual_seed(SEED)
        expected = observed(lambda *given: function(*given), values)
        torch.manual_seed(SEED)
        got = observed(lambda *given: replay(recording, *given), values)
        assert_same(got, expected)
    return recording


def observed(function: Callable[..., Any], values: Sequence[Any]) -> list[Any]:
    """What a function returns, what it wrote to its inputs, and the gradients of the sum."""
    given = [
        (
            value.detach().clone().requires_grad_(value.requires_grad)
            if isinstance(value, torch.Tensor)
            else value
        )
        for value in values
    ]
    result = function(*given)
    found = list(leaves(result))
    total = [leaf.sum() for leaf in found if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    needing = [value for value in given if isinstance(value, torch.Tensor) and value.requires_grad]
    if total and needing:
        found += torch.autograd.grad(sum(total), needing, allow_unused=True)
    return [*found, *given]


def assert_same(got: Sequence[Any], expected: Sequence[Any]) -> None:
    """Equal bit for bit, and of the same kinds."""
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        if not isinstance(other, torch.Tensor):
            assert (type(one), one) == (type(other), other)
            continue
        assert one.dtype == other.dtype and one.shape == other.shape
        assert one.requires_grad == other.requires_grad
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def snapshot(model: nn.Module) -> dict[str, Any]:
    """The tensors of a model and their gradients, copied."""
    return {
        name: (tensor.detach().clone(), copy.deepcopy(tensor.grad), tensor._version)
        for name, tensor in (*model.named_parameters(), *model.named_buffers())
    }


def assert_unchanged(model: nn.Module, before: dict[str, Any]) -> None:
    """The model is as it was: values, gradients, version counters."""
    for name, (value, grad, version) in snapshot(model).items():
        old_value, old_grad, old_version = before[name]
        assert torch.equal(value, old_value), name
        assert (grad is None) == (old_grad is None), name
        assert grad is None or torch.equal(grad, old_grad), name
        assert version == old_version, name
