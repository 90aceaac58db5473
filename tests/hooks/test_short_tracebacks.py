"""What is printed of an error that nobody catches, in programs and in notebooks."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from syft.callers import SYFT, TORCH
from syft.exceptions import NothingToGet, SyftError
from syft.hooks.ledger import Ledger
from syft.hooks.short_tracebacks import shorten_tracebacks, shortened

ROOT = Path(sy.__file__).parent.parent

PROGRAM = """
import torch
import syft as sy

hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")
x = torch.ones(2, 3).send(bob)

def multiply(x):
    return x @ x  # the mistake

multiply(x)
"""


def run(*command: str, debug: str = "") -> str:
    """Run a program with this Python; returns what it writes."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SYFT_DEBUG": debug, "NO_COLOR": "1"}
    # A program that is run from the folder of syft would be part of it for IPython.
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=240
    )
    return done.stdout + done.stderr


@pytest.fixture
def commands(tmp_path: Path) -> dict[str, list[str]]:
    """How the program is run: as a file, and as a cell of an IPython shell."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    shell = ["-m", "IPython", "--simple-prompt", "--colors=NoColor", f"--ipython-dir={tmp_path}"]
    return {"file": [str(file)], "shell": [*shell, "-c", PROGRAM]}


@pytest.mark.parametrize("kind", ["file", "shell"])
def test_a_program_shows_its_own_lines(commands: dict[str, list[str]], kind: str) -> None:
    shown = run(*commands[kind])
    assert "return x @ x  # the mistake" in shown and "multiply(x)" in shown
    assert "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)" in shown
    assert "Raised on worker 'bob', asked for at " in shown
    assert "frames inside syft are left out: SYFT_DEBUG=1 shows all]" in shown
    assert SYFT not in shown and TORCH not in shown


@pytest.mark.parametrize("kind", ["file", "shell"])
def test_or_everything(commands: dict[str, list[str]], kind: str) -> None:
    shown = run(*commands[kind], debug="1")
    assert "return x @ x  # the mistake" in shown
    assert f"{SYFT}workers/client/replies.py" in shown and "left out" not in shown
    assert "Traceback on worker 'bob'" in shown and f"{SYFT}workers/handlers/commands.py" in shown


# ------------------------------------------------------------------------- which frames and errors


def caught(function: Callable[[], Any]) -> BaseException:
    """Return what a function raises.

    Its frames keep what calls this alive, and so the pointers in it: let go of it in the end.
    """
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def printed(error: BaseException) -> str:
    """The text of an error while it is short, which it is afterwards no more."""
    before = "".join(traceback.format_exception(error))
    with shortened(error):
        text = "".join(traceback.format_exception(error))
    assert "".join(traceback.format_exception(error)) == before
    return text


def test_frames_of_torch_between_are_left_out(bob: sy.VirtualWorker) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 1)).send(bob)
    x = torch.ones(1, 3).send(bob)
    text = printed(caught(lambda: model(x)))
    assert TORCH not in text and f'"{SYFT}' not in text
    assert "caught(lambda: model(x))" in text


def test_a_function_of_the_user_is_shown_inside(bob: sy.VirtualWorker) -> None:
    """A plan calls it."""

    def wrong(x: torch.Tensor) -> torch.Tensor:
        return x.get()

    text = printed(caught(lambda: sy.func2plan(args_shape=[(2,)])(wrong)))
    assert SYFT not in text and "sy.func2plan" in text
    assert "return x.get()" in text, "the line that the plan called"


def test_errors_that_syft_caught_itself_are_left_out() -> None:
    def internal() -> None:
        """As code of syft would do it."""
        code = (
            "try:\n    {}['internal']\nexcept KeyError as error:\n    raise kind('get') from error"
        )
        exec(compile(code, f"{SYFT}internal.py", "exec"), {"kind": NothingToGet})

    text = printed(caught(internal))
    assert "KeyError" not in text and "NothingToGet" in text and "1 frame inside" in text

    def while_handling() -> None:
        try:
            [][3]
        except IndexError:
            internal()

    text = printed(caught(while_handling))
    assert "KeyError" not in text and "IndexError" in text, "that of the user stays"
    assert "During handling of the above exception" in text


def test_causes_of_the_user_are_kept(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2, 3).send(bob)

    def explain() -> None:
        try:
            x @ x
        except RuntimeError as error:
            raise ValueError("of the user") from error

    text = printed(caught(explain))
    assert "direct cause" in text and "ValueError: of the user" in text
    assert "shapes cannot be multiplied" in text and SYFT not in text
    assert text.count("left out") == 1, "what did not come through syft lacks nothing"


def test_causes_in_a_circle() -> None:
    code = """
try:
    {}[1]
except KeyError as error:
    error.__cause__ = error
    raise kind('get')
"""
    error = caught(lambda: exec(compile(code, f"{SYFT}x.py", "exec"), {"kind": NothingToGet}))
    assert "KeyError" not in printed(error)


def test_errors_in_a_group(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2, 3).send(bob)
    text = printed(ExceptionGroup("both", [caught(lambda: x @ x), caught(lambda: x.numpy())]))
    assert text.count("left out") == 2 and SYFT not in text


def test_an_error_of_any_class_is_short_that_a_worker_has_raised(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(bob)
    text = printed(caught(lambda: x[5]))
    assert "IndexError: index 5 is out of bounds" in text and "on worker 'bob'" in text
    assert f'"{SYFT}' not in text and "left out" in text


def test_what_is_no_mistake_of_the_user_stays_whole(bob: sy.VirtualWorker) -> None:
    """A fault of syft is to be seen."""
    x = torch.ones(2).send(bob)
    connection, x.child.connection = x.child.connection, None
    text = printed(caught(lambda: x + 1))
    x.child.connection = connection
    assert "AttributeError" in text and f"{SYFT}tensors/pointer.py" in text


def test_what_did_not_come_through_syft_stays_whole() -> None:
    error = caught(lambda: torch.nn.Linear(2, 1)(torch.ones(3)))
    assert TORCH in printed(error) and "left out" not in printed(error)


def test_what_no_line_of_the_user_led_to_stays_whole() -> None:
    """As in a thread of syft."""
    hook = sy.TorchHook(torch)
    error = caught(lambda: torch.ones(2).get())
    assert error.__traceback__ is not None and error.__traceback__.tb_next is not None
    error.__traceback__ = error.__traceback__.tb_next.tb_next
    assert SYFT in printed(error)
    hook.close()


@pytest.mark.parametrize("notes", ["no list", 7, [4217]])
def test_notes_of_any_kind(notes: Any, bob: sy.VirtualWorker) -> None:
    error = caught(lambda: torch.ones(2).send(bob).numpy())
    vars(error)["__notes__"] = notes
    with shortened(error):
        assert "left out" in error.__notes__[-1]
    assert vars(error)["__notes__"] == notes
    del error


# ------------------------------------------------------------------- who prints, and until when


def test_the_hook_gives_back_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    hook = sy.TorchHook(torch)
    assert sys.excepthook is not sys.__excepthook__
    hook.close()
    assert sys.excepthook is sys.__excepthook__


def test_what_others_print_with_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def theirs(*error: Any) -> None:
        raise AssertionError("not called")

    monkeypatch.setattr(sys, "excepthook", theirs)
    before = Ledger()
    shorten_tracebacks(before)
    assert sys.excepthook is theirs
    before.undo()
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    after = Ledger()
    shorten_tracebacks(after)
    monkeypatch.setattr(sys, "excepthook", theirs)
    after.undo()
    assert sys.excepthook is theirs


def test_what_the_hook_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, bob: sy.VirtualWorker
) -> None:
    error = caught(lambda: torch.ones(2).send(bob).numpy())
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    short = Ledger()
    shorten_tracebacks(short)
    sys.excepthook(type(error), error, error.__traceback__)
    short.undo()
    del error
    shown = capsys.readouterr().err
    assert "DataStaysPut: numpy() would read" in shown and SYFT not in shown


class Shell:
    """What a shell of IPython does with handlers of errors."""

    def __init__(self) -> None:
        self.custom_exceptions: tuple[Any, ...] = ()
        self.CustomTB: Any = None
        self.shown: list[str] = []

    def set_custom_exc(self, kinds: tuple[Any, ...], handler: Any) -> None:
        self.custom_exceptions, self.CustomTB = kinds, handler

    def showtraceback(self, error: Any, tb_offset: Any, running_compiled_code: bool) -> None:
        self.shown.append("".join(traceback.format_exception(*error)))


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell in which this process seems to run."""
    shell = Shell()
    monkeypatch.setattr(builtins, "get_ipython", lambda: shell, raising=False)
    return shell


def test_a_shell_is_told_how_to_show_errors(shell: Shell) -> None:
    hook = sy.TorchHook(torch)
    bob = sy.VirtualWorker(hook, id="bob")
    error = caught(lambda: torch.ones(2).send(bob).numpy())
    assert issubclass(SyftError, shell.custom_exceptions)
    shell.CustomTB(shell, type(error), error, error.__traceback__)
    assert "DataStaysPut" in shell.shown[0] and SYFT not in shell.shown[0]
    del error
    hook.close()
    assert shell.custom_exceptions == () and shell.CustomTB is None


@pytest.mark.parametrize(
    ("mistake", "meant"),
    [
        (lambda x: x.to("bob"), "That is no device. To bring it to a worker: x.send(worker)"),
        (lambda x: x.head, "'head' is of tables of pandas: a tensor has no names for its rows"),
        (lambda x: x.reshap, "Did you mean 'reshape'?"),
    ],
)
def test_a_shell_shows_what_may_have_been_meant(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, mistake: Callable[[Any], Any], meant: str
) -> None:
    hook = sy.TorchHook(torch)
    error = caught(lambda: mistake(torch.ones(2)))
    for _ in range(2):
        shell.CustomTB(shell, type(error), error, error.__traceback__)
    assert [text.count(f"\n{meant}") for text in shell.shown] == [1, 1]
    monkeypatch.setenv("SYFT_DEBUG", "1")
    other = caught(lambda: mistake(torch.ones(2)))
    shell.CustomTB(shell, type(other), other, other.__traceback__)
    assert f"\n{meant}" not in shell.shown[2]
    del error, other
    hook.close()


def test_what_others_told_a_shell_stays(shell: Shell) -> None:
    theirs = object()
    shell.set_custom_exc((KeyError,), theirs)
    short = Ledger()
    shorten_tracebacks(short)
    assert shell.CustomTB is theirs
    short.undo()
    assert shell.custom_exceptions == (KeyError,)
    shell.set_custom_exc((), None)
    short = Ledger()
    shorten_tracebacks(short)
    shell.set_custom_exc((KeyError,), theirs)
    short.undo()
    assert shell.CustomTB is theirs


def test_a_cell_of_a_notebook_is_named_by_its_number() -> None:
    cells = (
        "import torch, syft as sy\nbob = sy.VirtualWorker(sy.TorchHook(torch), id='bob')",
        "try:\n    torch.ones(2).send(bob) @ torch.ones(3).send(bob)\n"
        "except RuntimeError as error:\n    print(error.__notes__[0])",
        "@sy.func2plan(args_shape=[(2,)])\ndef double(x):\n    return x * 2\n"
        "print(double.program.lines)",
    )
    code = (
        "from IPython.core.interactiveshell import InteractiveShell as Shell\n"
        f"shell = Shell.instance()\nfor cell in {cells!r}: shell.run_cell(cell, store_history=True)"
    )
    shown = run("-c", code)
    assert "asked for at Cell In[2]:2" in shown and "Cell In[3]:3" in shown


def test_outside_a_shell_nothing_is_imported() -> None:
    code = "import torch, sys, syft as sy; sy.TorchHook(torch); print('IPython' in sys.modules)"
    assert run("-c", code).strip() == "False"
