"""How a fixed tensor travels, and what is refused when it arrives."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from syft.codes import TypeCode
from syft.exceptions import MalformedMessage
from syft.serde import Packer, Unpacker, deserialize, pack, serialize, unpack
from syft.tensors.fixed.precision import fix_precision, fix_precision_, float_precision

CODE = int(TypeCode.FIXED_PRECISION)


@pytest.mark.parametrize("arguments", [(), (3,), (20, 2), (5, 7)])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_a_round_trip(arguments, shape):
    x = fix_precision(torch.randn(shape), *arguments)
    y = deserialize(serialize(x))
    assert torch.equal(y.child.child, x.child.child) and y.child.grid is x.child.grid
    assert repr(y) == repr(x)


def test_what_hangs_on_the_wrapper_travels():
    p = nn.Parameter(torch.ones(2, 3))
    p.grad = torch.full((2, 3), 0.5)
    fix_precision_(p)
    p._tags = {"#p"}
    q = deserialize(serialize(p))
    assert isinstance(q, nn.Parameter) and q.requires_grad and q._tags == {"#p"}
    assert float_precision(q.grad).tolist() == [[0.5] * 3] * 2
    assert deserialize(serialize(fix_precision(torch.ones(2, 3)).t())).stride() == (1, 3)


def test_the_operand_is_the_grid_and_the_integers():
    packer = Packer()
    operand = pack(fix_precision(torch.ones(2), 3).child, packer)
    assert operand[:3] == (CODE, 10, 3) and operand[3][0] == TypeCode.TENSOR
    assert len(packer.buffers) == 1


CHILD = (int(TypeCode.RANGE), 0, 2, 1)


@pytest.mark.parametrize(
    ("fields", "path", "expected"),
    [
        ((2, 16), "$", "3 fields"),
        ((1, 16, CHILD), "$.base", "an int from 2 to 16"),
        ((17, 16, CHILD), "$.base", "an int from 2 to 16"),
        (("2", 16, CHILD), "$.base", "an int"),
        ((2, -1, CHILD), "$.precision_fractional", "an int from 0 to 60"),
        ((10, 19, CHILD), "$.precision_fractional", "an int from 0 to 18"),
        ((2, 16, CHILD), "$.child", "a dense tensor of int64"),
        ((2, 16, 5), "$.child", "a dense tensor of int64"),
        ((2, 16, [255, 1]), "$.child[head]", "a type code"),
    ],
)
def test_fields_are_checked(fields, path, expected):
    with pytest.raises(MalformedMessage) as caught:
        unpack([CODE, *fields], Unpacker([]))
    assert caught.value.path == path and caught.value.expected.startswith(expected)


def test_only_integers_are_taken_for_integers():
    packer = Packer()
    child = pack(torch.ones(2), packer)
    with pytest.raises(MalformedMessage) as caught:
        unpack([CODE, 2, 16, list(child)], Unpacker(packer.buffers))
    assert (caught.value.path, caught.value.got) == ("$.child", "torch.float32")
