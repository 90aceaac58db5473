"""Tensors laid out in another order, for every order of their dimensions."""

from __future__ import annotations

import itertools

import pytest
import torch

from syft.federated.stacked_memory import KeptStacks, laid_out, order_of, restored

ORDERS = [(0, *rest) for rest in itertools.permutations((1, 2, 3))]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_an_order_is_found_again(order: tuple[int, ...]) -> None:
    x = torch.arange(120).view(2, 3, 4, 5)
    laid = laid_out(x, order)
    assert torch.equal(laid, x) and order_of(laid) == order
    assert laid.permute(order).is_contiguous()
    assert torch.equal(restored(x.permute(order), order), x)


def test_what_has_the_order_is_not_copied() -> None:
    x = torch.ones(2, 3, 4).transpose(1, 2)
    assert laid_out(x, order_of(x)).data_ptr() == x.data_ptr()
    assert order_of(torch.ones(2, 1).expand(2, 3)) == (0, 1)


def test_stacks_are_made_anew_only_if_they_do_not_fit(device: torch.device) -> None:
    stacks, value = KeptStacks(), torch.arange(6.0).view(2, 3)
    first = stacks.of("x", value, 3)
    assert torch.equal(first, value.expand(3, 2, 3))
    assert stacks.of("x", value + 1, 2).data_ptr() == first.data_ptr()
    assert stacks.of("y", value, 3).data_ptr() != first.data_ptr()
    others = [(value, 4), (value.double(), 2), (value.view(3, 2), 2), (value.to(device), 1)]
    for other, clients in others:
        made = stacks.of("x", other, clients)
        assert torch.equal(made, other.expand(clients, *other.shape))
        assert (made.dtype, made.device) == (other.dtype, other.device)


def test_the_order_of_the_first_gradient_stays() -> None:
    stacks, value = KeptStacks(), torch.arange(6.0).view(2, 3)
    gradient = torch.ones(2, 3, 2).transpose(1, 2)
    for clients in (2, 3, 1):
        stacked = stacks.of("x", value, clients)
        laid = stacks.like("x", stacked, gradient)
        assert torch.equal(laid, value.expand(clients, 2, 3)) and order_of(laid) == (0, 2, 1)
        assert stacks.like("x", laid, torch.ones(clients, 2, 3)) is laid
