"""The programs of the old tutorials, with the calls of PySyft 0.2 as users wrote them.

``old_programs.txt`` has one for each row of ``docs/old_tutorials.md``; only the loading of data is
small.  A program begins with its name, and with words of the warnings that it gives, all of which
must come, and no other; after ``!`` stand words of the error with which it ends.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
import warnings
from pathlib import Path
from typing import Any, Final

import pytest
import torch

import syft as sy
from syft.hooks.renamed import RenamedModules


def read_programs() -> dict[str, tuple[list[str], str]]:
    """By name: what it says, and the program."""
    text = Path(__file__).with_name("old_programs.txt").read_text()
    found = {}
    for case in text.removeprefix("== ").split("\n== "):
        head, program = case.split("\n", 1)
        name, *words = head.split(" | ")
        found[name] = (words, program)
    return found


PROGRAMS: Final = read_programs()


def _small_images() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(32, 1, 8, 8), torch.arange(32) % 10


def _forget_modules_of_earlier_versions() -> None:
    """Each program imports them as if it were the first."""
    for name, module in [*sys.modules.items()]:
        if isinstance(getattr(getattr(module, "__spec__", None), "loader", None), RenamedModules):
            del sys.modules[name]
            parent, _, last = name.rpartition(".")
            vars(sys.modules.get(parent, sy)).pop(last, None)


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_old_program(name: str, hook: sy.TorchHook, tmp_path: Path) -> None:
    words, program = PROGRAMS[name]
    ends = next((word.removeprefix("!") for word in words if word.startswith("!")), None)
    _forget_modules_of_earlier_versions()
    torch.manual_seed(0)
    with contextlib.ExitStack() as stack, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")

        def served(kind: Any, **settings: Any) -> Any:
            return stack.enter_context(kind(**settings))

        names: dict[str, Any] = {
            "__name__": "__main__",
            "path": tmp_path / "model.pt",
            "small_images": _small_images,
            "served": served,
        }
        try:
            # TorchScript reads the source of what it compiles.
            linecache.cache[name] = len(program), None, program.splitlines(keepends=True), name
            exec(compile(program, name, "exec"), names)
        except (ImportError, AttributeError) as error:
            assert ends is not None and ends in str(error), error
        else:
            assert ends is None, "it runs now"
        names.clear()
        for worker in [*hook.local_worker.network.workers.values()]:
            if isinstance(worker, sy.VirtualWorker):
                worker.clear_objects()
    hook.local_worker.is_client_worker = True
    texts = [str(one.message) for one in caught if issubclass(one.category, UserWarning)]
    wanted = [word for word in words if not word.startswith("!")]
    assert all(any(word in text for text in texts) for word in wanted), texts
    assert all(any(word in text for word in wanted) for text in texts), texts


def test_how_many_run() -> None:
    """Of 30 rows; what 0.2.9 wrote another way than 0.2.4 is a program more."""
    ends = [name for name, (words, _) in PROGRAMS.items() if words and words[-1].startswith("!")]
    assert len(PROGRAMS) == 31 and len(ends) <= 4
