"""Runs notebooks from top to bottom in a fresh kernel, and stores in them what each cell shows.

    python -m tools.store_outputs examples/tutorials/01_basic_tools.ipynb …

What is stored is what a reader sees on the site and on a code host, where nothing is run.  Streams
that a cell writes in pieces become one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 600
"""How long one cell may run."""

Output = dict[str, Any]


class CellFailed(Exception):
    """A cell of a notebook raised, and does not say in its metadata that it is to."""


def store(path: Path) -> None:
    """Run the cells of a notebook and write what they show into it.

    A cell that is meant to raise says so as in Jupyter: by the tag ``raises-exception``.  The
    kernel runs in the notebook's folder, and imports the package that lies beside this file.
    """
    notebook = json.loads(path.read_text(encoding="utf-8"))
    manager = KernelManager(kernel_name="python3")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}  # a relative one would be another place there
    env["SYFT_PROGRESS"] = "0"  # how far something is, is for who waits
    manager.start_kernel(cwd=str(path.parent), env=env, extra_arguments=["--log-level=ERROR"])
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        for number, cell in enumerate(code, start=1):
            cell["execution_count"] = number
            cell["outputs"] = _outputs(client, "".join(cell["source"]), number)
            raised = [one["evalue"] for one in cell["outputs"] if one["output_type"] == "error"]
            if raised and "raises-exception" not in cell["metadata"].get("tags", ()):
                raise CellFailed(f"{path.name}, cell {number}: {raised[0]}")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    text = json.dumps(notebook, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _outputs(client: Any, source: str, number: int) -> list[Output]:
    """What a cell shows, in the form in which notebooks store it."""
    outputs: list[Output] = []

    def keep(message: dict[str, Any]) -> None:
        kind, content = message["header"]["msg_type"], message["content"]
        if kind == "stream":
            if not (outputs and outputs[-1].get("name") == content["name"]):
                outputs.append({"output_type": kind, "name": content["name"], "text": ""})
            outputs[-1]["text"] += content["text"]
        elif kind in ("display_data", "execute_result"):
            output = {"output_type": kind, "data": content["data"], "metadata": {}}
            outputs.append(output | ({"execution_count": number} if kind[0] == "e" else {}))
        elif kind == "error":
            outputs.append({"output_type": kind, **content})

    client.execute_interactive(source, timeout=SECONDS, output_hook=keep, allow_stdin=False)
    for output in outputs:
        if "text" in output:
            output["text"] = output["text"].splitlines(keepends=True)
    return outputs


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        store(Path(argument))
