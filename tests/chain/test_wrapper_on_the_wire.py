"""Wrappers on the wire: their first link, and for dispatch-level ones what torch keeps outside."""

from __future__ import annotations

import pytest
import torch

import syft as sy
from syft.chain.wrapper import Wrapper
from syft.codes import TypeCode
from syft.exceptions import MalformedMessage
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack


def there_and_back(value: torch.Tensor) -> torch.Tensor:
    packer = Packer(gradients=True)
    operand = pack(value, packer)
    return unpack(operand, Unpacker(packer.buffers))


def test_a_dispatch_level_wrapper_keeps_grad_parameter_and_tags(hook: sy.TorchHook) -> None:
    x = torch.nn.Parameter(torch.tensor([1.0, 2.0]).fix_precision()).tag("#a").describe("words")
    x.grad = torch.tensor([3.0, 4.0]).fix_precision()
    back = there_and_back(x)
    assert type(back) is Wrapper
    assert isinstance(back, torch.nn.Parameter)
    assert back.requires_grad
    assert back.grad.float_prec().tolist() == [3.0, 4.0]
    assert (back.tags, back.description) == ({"#a"}, "words")


def test_a_logging_tensor(hook: sy.TorchHook) -> None:
    back = there_and_back(sy.LoggingTensor().on(torch.tensor([1.0])))
    assert repr(back) == "(Wrapper)>LoggingTensor>tensor([1.])"


@pytest.mark.parametrize(
    ("operand", "text"),
    [
        ((int(TypeCode.WRAPPER), None), "expected"),
        ((int(TypeCode.WRAPPER), None, 3), "expected a dispatch-level link, got int"),
        ((int(TypeCode.LOGGING_TENSOR), 3), "expected a tensor, got int"),
        ((int(TypeCode.LOGGING_TENSOR),), "expected"),
        ((int(TypeCode.MULTI_POINTER), 3), "expected pointers to several workers, got"),
        ((int(TypeCode.MULTI_POINTER),), "expected pointers to several workers, got"),
        ((int(TypeCode.POINTER), 1, "bob", True, 0), "a value that stands on its own"),
        ((int(TypeCode.POINTER), 1, "bob", 7, 0), "true or false"),
        ((int(TypeCode.POINTER), 1, 5, True, 0), "a worker's name"),
        ((int(TypeCode.POINTER), 1, "bob", True, 65), "$.depth"),
        ((int(TypeCode.POINTER), 1), "expected"),
    ],
)
def test_links_that_break_the_format(operand: tuple[object, ...], text: str) -> None:
    with pytest.raises(MalformedMessage) as caught:
        unpack(operand, Unpacker([]))
    assert text in str(caught.value)


def test_a_function_level_link_where_a_dispatch_level_one_belongs() -> None:
    packer = Packer()
    inner = pack(sy.LoggingTensor().on(torch.ones(1)), packer)
    with pytest.raises(MalformedMessage, match="a dispatch-level link, got Wrapper"):
        unpack((int(TypeCode.WRAPPER), None, inner), Unpacker(packer.buffers))
