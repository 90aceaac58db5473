"""The tutorials: each runs from top to bottom, and says what its text promises."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import syft as sy
from tests.plans.notebook import code_cells, run_cell

TUTORIALS = Path(__file__).parents[2] / "examples" / "tutorials"

# By tutorial: what it must show, in this order, and what it must not.
SHOWN = {
    "plans_that_train": [r"^True$", "def step", r"Run \d+, new", r"Run \d+$", r"tensor\(True\)"],
    "branches_and_loops": [
        "FrozenPath",
        r"tensor\(\[-10\.\]\)",
        r"\(tensor\(\[10\.\]\), tensor\(\[-6\.\]\)\)",
        r"tensor\(\[0\.6250, 0\.1250\]\)",
        r"\[-1\.,  0\.,  1\.\]",
        "sy.cond",
        "torch.Tensor.sum",
        "call_method",
    ],
    "messages_in_bulk": [
        "10 messages",
        "2 messages",
        r"tensor\(6\.1099\)",
        r"Run \d+$",
        "cache hits: 1",
        "Holds",
    ],
    "workers_in_other_processes": [
        r"#salaries torch\.float64 \[2\], private: read by nobody",
        r"bob = sy\.connect\(.ws://127\.0\.0\.1:\d+.\)",
        r"^'bob'$",
        r"torch\.Size\(\[200, 3\]\) tensor\(-0\.0227",
        "is private, and no user was named",
        r"^0\.000000$",
        r"1\.0000, -2\.0000,  0\.5000",
        "mat1 and mat2 shapes cannot be multiplied",
        "^exit status 0$",
        r"was lost: its owner has stopped it \(SIGTERM\)",
    ],
    "encrypted_arithmetic": [
        r"crypto provider: carol\*",
        r"^sum:   tensor\(\[25, 30, 35\]\)$",
        r"tensor\(\[ 25,  60, 105\]\)",
        r"tensor\(\[False,  True,  True\]\)",
        "its values are shared; get\\(\\) it first",
        r"tensor\(\[0\.824\d, 3\.694\d\]\)",
        "1 letter, 2000 numbers",
        r"alice  bob    16,026  Exchange",
        r"tensor\(\[26, 32, 38\]\)$",
        r"tensor\(\[0, 0, 0\]\)$",
        "is private, and no user was named",
        r"^tensor\(4950\.\)$",
    ],
    "private_inference": [
        r"^ plain: 9[5-9]\.\d\d%",
        r"^shared: 9[5-9]\.\d\d%",
        r"agree on 39[5-7] of 397 images",
        r"read:   tensor\(\[\d",
        r"largest error: 0\.00[01]",
        r"^20 rounds, [\d,]+ bytes sent by a party, [\d,]+ bytes dealt",
        r"^alice -> bob     12,\d\d\d bytes an image$",
    ],
    "secure_aggregation": [
        r"PointerTensor \| me:\d+ -> ann",
        r"ben's update left the clinic: tensor\(\[ *-?\d{15,}",
        r"largest difference: \d\.\de-0[78]$",
        r"all three together: 9\d\.\d%",
        r"^ann alone: [3-7]\d\.\d%$",
        r"^messages to me with as many numbers: 2 ",
        r"largest difference: \d\.\de-05$",
    ],
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_tutorial_runs_and_shows_what_it_promises(name: str, hook: sy.TorchHook) -> None:
    names: dict[str, Any] = {}
    shown = ""
    for number, source in enumerate(code_cells(TUTORIALS / f"{name}.ipynb")):
        shown += run_cell(source, names, f"{name}, cell {number}")
    names.clear()
    for worker in hook.local_worker.network.workers.values():
        worker.clear_objects()  # what the owner of the data held, in the story
    position = 0
    for pattern in SHOWN[name]:
        found = re.compile(pattern, re.MULTILINE).search(shown, position)
        assert found is not None, f"{pattern!r} is not in\n{shown[position:]}"
        position = found.end()


def test_every_tutorial_is_run() -> None:
    there = {path.stem for path in TUTORIALS.glob("*.ipynb")}
    assert there == {*SHOWN, "introduction_to_plans"}
