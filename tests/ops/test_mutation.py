"""Which argument an operation writes to."""

from __future__ import annotations

import torch

from syft.ops.mutation import written
from syft.ops.table import FLAGS, number_of


def flags(operation: object) -> int:
    return FLAGS[number_of(operation)]


def test_each_way_of_writing() -> None:
    assert written(flags(torch.Tensor.add_), (1, 2), {}) == 1
    assert written(flags(torch.Tensor.add), (1, 2), {}) is None
    assert written(flags(torch.add), (1, 2), {"out": 3}) == 3
    assert written(flags(torch.nn.functional.dropout), (1,), {"inplace": True}) == 1
    assert written(flags(torch.nn.functional.dropout), (), {"input": 1, "inplace": True}) == 1
    assert written(flags(torch.nn.functional.dropout), (1,), {"inplace": False}) is None
