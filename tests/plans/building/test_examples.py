"""Arguments made of shapes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.plans.building.interface import example_arguments
from tests.chain.refusal import refusal


def test_each_shape_gives_a_tensor() -> None:
    made = example_arguments(
        "f", [(1, 2), (-1, 3), (), [4], ((2, -1), torch.int64), torch.Size([2]), ((1,), torch.bool)]
    )
    assert [(tuple(mock.shape), mock.dtype) for mock in made] == [
        ((1, 2), torch.float32),
        ((2, 3), torch.float32),
        ((), torch.float32),
        ((4,), torch.float32),
        ((2, 2), torch.int64),
        ((2,), torch.float32),
        ((1,), torch.bool),
    ]
    assert made[0].eq(1).all() and not made[4].any()
    assert example_arguments("f", [((1,), torch.complex64)])[0].eq(1).all()


@pytest.mark.parametrize(
    "shapes, text",
    [
        (5, "Plan 'f' takes a list of shapes as args_shape, and got an int."),
        ([5], "Plan 'f' takes shapes such as (-1, 2) or ((-1, 2), torch.int64) as args_shape, and"),
        ([(1, -2)], "and got (1, -2)."),
        ([(True,)], "and got (True,)."),
        ([(1.5,)], "and got (1.5,)."),
        (["12"], "and got '12'."),
        ([(2, torch.int64)], "and got 2."),
    ],
)
def test_what_is_no_shape_is_refused(shapes: Any, text: str) -> None:
    assert text in refusal(lambda: example_arguments("f", shapes))
