"""Tensors laid out in another order, for every order of their dimensions."""

from __future__ import annotations

import itertools

import pytest
import torch

from syft.federated.memory_orders import laid_out, order_of, restored

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
