"""Outputs are stored by the package of this tree, wherever the notebook is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.store_outputs import store

ROOT = Path(__file__).resolve().parents[2]


def test_a_notebook_is_run_with_the_package_beside_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", ".")
    source = "import os\nimport tools\nprint(list(tools.__path__)[0])\nprint(os.getcwd())\n6 * 7"
    cell = {"cell_type": "code", "metadata": {}, "source": source}
    file = tmp_path / "one.ipynb"
    file.write_text(json.dumps({"cells": [cell]}))
    store(file)
    (stored,) = json.loads(file.read_text())["cells"]
    printed, shown = stored["outputs"]
    assert "".join(printed["text"]) == f"{ROOT / 'tools'}\n{tmp_path}\n"
    assert (stored["execution_count"], shown["data"]["text/plain"]) == (1, "42")
