"""An introduction to plans that was written for 0.2 runs unchanged, and shows what its text says.

It lies beside a checkout, if at all: the project has an introduction of its own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from tests.plans.notebook import code_cells, run_cell

NOTEBOOK = Path(__file__).resolve().parents[3] / "shared/seeds/introduction_to_plans.ipynb"

# By a piece of each cell that shows something: what it shows, with N for every id.
SHOWN = [
    ("plan_double_abs", "<Plan plan_double_abs id:N owner:me>\n"),
    ("pointer_to_data", None),
    ("plan_double_abs.is_built", "False\n"),
    ("# Sending non-built", "A plan needs to be built before being sent to a worker.\n"),
    ("plan_double_abs.build", "tensor([2., 4.])\n"),
    ("plan_double_abs.is_built", "True\n"),
    ("# This cell is executed successfully", "[PointerPlan | me:N -> device_1:N]\n"),
    ("pointer_to_result = pointer_plan", "(Wrapper)>[PointerTensor | me:N -> device_1:N]\n"),
    ("pointer_to_result.get()", "tensor([2., 4.])\n"),
    ("net", "<Net Net id:N owner:me>\n"),
    ("net.build", "tensor([N, N])\n"),
    ("pointer_to_net = net.send", "[PointerPlan | me:N -> device_1:N]\n"),
    ("pointer_to_result = pointer_to_net", "(Wrapper)>[PointerTensor | me:N -> device_1:N]\n"),
    ("pointer_to_result.get()", "tensor([N, N])\n"),
    ("net = Net()\n\n# Build plan", "tensor([N, N])\n"),
    ("pointer_to_net_1 = net.send", "tensor([N, N])\n"),
    ("pointer_to_net_2 = net.send", "tensor([N, N])\n"),
    ("@sy.func2plan(args_shape=[(-1, 1)])", "True\n"),
    ("@sy.func2plan(args_shape=[(1, 2), (-1, 2)])", "True\n"),
    ("pointer_plan = plan_abs.send", "tensor([2, 1])\n"),
]


def with_n(text: str) -> str:
    """A text with N for ids and for the numbers that follow from random weights."""
    return re.sub(r"\d{9,}|-?\d+\.\d{4}", "N", text).replace(", grad_fn=<LogSoftmaxBackward0>", "")


@pytest.mark.skipif(not NOTEBOOK.is_file(), reason="it does not lie beside this checkout")
def test_the_introduction_runs_unchanged_and_shows_what_it_says(hook: sy.TorchHook) -> None:
    names: dict[str, Any] = {}
    shown = []
    for number, source in enumerate(code_cells(NOTEBOOK)):
        text = run_cell(source, names, f"cell {number}")
        if text:
            shown.append((source, with_n(text)))
    for (source, text), (piece, expected) in zip(shown, SHOWN, strict=True):
        assert source.startswith(piece) or f"\n{piece}" in source, (source, piece)
        if expected is not None:
            assert text == expected, source
    devices = names["devices"]
    assert torch.equal(names["plan_abs"](torch.tensor([-3])), torch.tensor([4]))
    names.clear()
    for worker in (hook.local_worker, *devices):
        worker.clear_objects()
