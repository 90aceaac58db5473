"""Which gradients go along with a plan: those its program goes on from, and no others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.program.unread_gradients import without_unread_gradients
from syft.program.recording.record import record

pytestmark = pytest.mark.every_shell

Tensor = Any


def clear_first(weight: Tensor, x: Tensor) -> None:
    weight.grad = None
    (weight * x).sum().backward()


def clear_last(weight: Tensor, x: Tensor) -> None:
    (weight * x).sum().backward()
    weight.grad = None


def clear_to_zero(weight: Tensor, x: Tensor) -> None:
    weight.grad.zero_()
    (weight * x).sum().backward()


def delete(weight: Tensor, x: Tensor) -> None:
    del weight.grad
    torch.autograd.backward((weight * x).sum())


def add_up(weight: Tensor, x: Tensor) -> None:
    torch.autograd.backward((weight * x).sum())


def read(weight: Tensor, x: Tensor) -> Tensor:
    return weight.grad + x


def look_and_clear(weight: Tensor, x: Tensor) -> Tensor:
    if weight.grad is not None:
        weight.grad = None
    return weight * x


def replace(weight: Tensor, x: Tensor) -> None:
    (weight.grad,) = torch.autograd.grad((weight * x).sum(), [weight])


def in_a_branch(weight: Tensor, x: Tensor) -> Tensor:
    return sy.cond(x.sum() > 0, lambda w: w * 2, lambda w: w, weight)


def only_use(weight: Tensor, x: Tensor) -> Tensor:
    return weight * x


CASES = [
    (clear_first, False),
    (clear_last, True),
    (clear_to_zero, True),
    (delete, False),
    (add_up, True),
    (read, True),
    (look_and_clear, False),
    (replace, False),
    (in_a_branch, True),
    (only_use, False),
]


@pytest.mark.parametrize("function, kept", CASES, ids=[case[0].__name__ for case in CASES])
@pytest.mark.parametrize("kind", ["parameter", "leaf"])
def test_gradients_that_are_used_go_along(function: Any, kept: bool, kind: str) -> None:
    weight = torch.ones(3, requires_grad=True)
    if kind == "parameter":
        weight = nn.Parameter(weight)
    weight.grad = torch.full((3,), 2.0)
    other = torch.zeros(3)
    program = record(lambda x: function(weight, x), [torch.ones(3)], [weight, other]).program
    sent, plain = without_unread_gradients(program, [weight, other])
    assert plain is other
    assert (sent is weight) is kept
    assert (sent.grad is not None) is kept
    assert type(sent) is type(weight) and sent.requires_grad
    assert sent.data_ptr() == weight.data_ptr()
    assert torch.equal(weight.grad, torch.full((3,), 2.0))


def test_a_frozen_parameter_stays_frozen() -> None:
    weight = nn.Parameter(torch.ones(3), requires_grad=False)
    weight.grad = torch.ones(3)
    program = record(lambda x: weight * x, [torch.ones(3)], [weight]).program
    (sent,) = without_unread_gradients(program, [weight])
    assert sent.grad is None and not sent.requires_grad


def test_keywords_and_results_count_as_uses() -> None:
    weight = torch.ones(3, requires_grad=True)
    weight.grad = torch.full((3,), 2.0)
    for function in (lambda x: weight.grad, lambda x: torch.add(x, other=weight.grad)):
        program = record(function, [torch.ones(3)], [weight]).program
        (sent,) = without_unread_gradients(program, [weight])
        assert sent is weight
