"""Errors as a user reads them: the user's own lines, and what is wrong, without the inside of syft.

A mistake of the user is shown with the frames of syft left out, and how many they are.  Only what
is *printed* is short: the exception keeps its traceback, so a debugger, a log and ``except`` see
all of it, and nothing is done before an error is about to end a program or a cell.
``SYFT_DEBUG=1`` prints everything (``docs/design/0022-short-tracebacks.md``).
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import itertools
import os
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final, TextIO

import numpy as np
import torch

from syft.callers import SYFT, TORCH, file_and_line, place_of_user, running_shell
from syft.exceptions import SyftError
from syft.hooks.ledger import Ledger

_PACKAGES: Final = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_ASKED_FOR: Final = "Raised on worker "
"""How the note begins that says where a request was made which another worker could not do."""
_ELSEWHERE: Final = "Traceback "
"""How a note begins that holds the traceback of another worker."""

_ALIKE: Final = 0.7
"""How alike a name that is not there and one that is must be for the second to be meant."""
_MADE_TENSORS: Final = (list, tuple, int, float, np.ndarray)
"""What tensors are made of."""
_NO_TENSORS: Final = (*_MADE_TENSORS, type(None))
"""What is taken for a tensor most often."""
_NO_DEVICE: Final = "Expected one of cpu, cuda"
"""How torch's text begins about a string that names no device."""
_ROWS: Final = "a tensor has no names for its rows and columns, so write x[:5]"
_OF_TABLES: Final = {
    **dict.fromkeys(("head", "tail", "iloc", "loc", "columns", "index"), _ROWS),
    "values": "a tensor has nothing but values, and x.get() brings them here",
}
"""What is asked of a table, and what a tensor has instead."""


@contextlib.contextmanager
def shortened(error: BaseException) -> Iterator[None]:
    """A context in which an error has the frames of the user alone, as have those it follows from.

    This is for an error that is about to be printed; afterwards it is as it was.  An error that
    did not come through syft, or that is none of a user's mistakes (a ``KeyError`` deep inside
    syft, say), stays whole, and so does one that no line of the user has led to.

    >>> x = torch.ones(2).send(bob)
    >>> try:
    ...     x.numpy()
    ... except sy.exceptions.DataStaysPut as caught:
    ...     error = caught
    >>> with shortened(error):
    ...     print(error.__traceback__.tb_next, error.__notes__)
    None ['[... frames inside syft are left out: SYFT_DEBUG=1 shows all]']
    >>> error.__traceback__.tb_next is None, hasattr(error, "__notes__")
    (False, False)
    """
    states = [_State(one) for one in _all_of(error)] if _is_wanted() else []
    try:
        internal = {id(state.error) for state in states if _is_internal(state)}
        for state in states:
            if _is_mistake(state) and id(state.error) not in internal:
                state.shorten(internal)
        yield
    finally:
        for state in states:
            state.restore()


def _is_wanted() -> bool:
    """Whether the environment does not ask for everything."""
    return os.environ.get("SYFT_DEBUG", "") in ("", "0")


class _State:
    """An error, and what it was like before it was made shorter."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.cause, self.context = error.__cause__, error.__context__
        self.suppresses = error.__suppress_context__
        self.traceback = error.__traceback__
        self.entries = list(_entries(error.__traceback__))
        self.files = [entry.tb_frame.f_code.co_filename for entry in self.entries]
        self.notes: Any = getattr(error, "__notes__", None)

    def shorten(self, internal: set[int]) -> None:
        """Leave out the frames that are not the user's, and errors that syft raised for itself."""
        files = self.files
        users = [at for at, file in enumerate(files) if not _is_installed(file)]
        if not users or not any(file.startswith(SYFT) for file in files):
            return
        kept = [
            entry
            for entry, file in zip(self.entries[: users[-1] + 1], files)
            if not file.startswith((SYFT, TORCH))
        ]
        self.error.__traceback__ = _chained(kept)
        notes = [note for note in _notes(self.error) if not note.startswith(_ELSEWHERE)]
        vars(self.error)["__notes__"] = [*notes, _left_out(len(files) - len(kept))]
        before = _printed_above(self.error)
        if before is not None and id(before) in internal:
            self.error.__cause__, self.error.__context__ = None, _outside(before, internal)
            self.error.__suppress_context__ = False

    def restore(self) -> None:
        """Make the error what it was."""
        error = self.error
        error.__cause__, error.__context__ = self.cause, self.context
        error.__suppress_context__ = self.suppresses
        error.__traceback__ = self.traceback
        if self.notes is None:
            vars(error).pop("__notes__", None)
        else:
            vars(error)["__notes__"] = self.notes


def _left_out(frames: int) -> str:
    what = "1 frame inside syft is" if frames == 1 else f"{frames} frames inside syft are"
    return f"[{what} left out: SYFT_DEBUG=1 shows all]"


def _notes(error: BaseException) -> list[str]:
    """The notes of an error, which anybody may have set to anything."""
    notes: Any = getattr(error, "__notes__", None)
    return [str(note) for note in notes] if isinstance(notes, list) else []


def _printed_above(error: BaseException) -> BaseException | None:
    """The error that is printed above another one, if any is."""
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _all_of(error: BaseException) -> list[BaseException]:
    """An error, those that are printed with it, and those inside groups, each of them once."""
    found: dict[int, BaseException] = {}
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in found:
            found[id(one)] = one
            waiting += [one.__cause__, one.__context__]
            waiting += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
    return list(found.values())


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _chained(entries: list[TracebackType]) -> TracebackType | None:
    """A traceback of these entries alone."""
    last: TracebackType | None = None
    for entry in reversed(entries):
        last = TracebackType(last, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return last


@functools.cache
def _installed() -> tuple[str, ...]:
    """How the files of syft, torch and Python begin; Python takes 2 ms to say where its own are."""
    python = (sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
    return (SYFT, TORCH, *python, "<frozen ")


def _is_installed(file: str) -> bool:
    """Whether a file is of syft, of Python or of an installed package, and not the user's own."""
    return file.startswith(_installed()) or _PACKAGES[0] in file or _PACKAGES[1] in file


def _is_internal(state: _State) -> bool:
    """Whether an error was raised and caught inside syft, so that the user never met it."""
    files = state.files
    return bool(files) and files[0].startswith(SYFT) and all(map(_is_installed, files))


def _outside(error: BaseException, internal: set[int]) -> BaseException | None:
    """The first error that the user met, of those that one inside syft followed from."""
    found: BaseException | None = error
    for _ in range(len(internal) + 1):  # causes may run in a circle
        if found is None or id(found) not in internal:
            return found
        found = _printed_above(found)
    return None


def _is_mistake(state: _State) -> bool:
    """Whether an error is one that syft means for the user, or torch's own about the operands; or
    code of the user raised it, or the one function of syft that the user called: of any class, it
    is about the arguments then."""
    error = state.error
    if isinstance(error, (SyftError, OSError)) or type(error) in (
        RuntimeError,
        NotImplementedError,
    ):
        return True
    if any(note.startswith(_ASKED_FOR) for note in _notes(error)):
        return True
    below = itertools.takewhile(_is_installed, reversed(state.files))
    return sum(file.startswith(SYFT) for file in below) <= 1


def _meant(error: BaseException) -> str | None:
    """What may have been meant by an attribute that is not there: another one, which Python tells
    where it prints an error, and notebooks do not; or that of a tensor.

    >>> _meant(AttributeError(name="reshap", obj=torch.ones(2))), _meant(KeyError("reshap"))
    ("Did you mean 'reshape'?", None)
    >>> print(_meant(AttributeError(name="sum", obj=[1.0])))
    'sum' is an attribute of tensors, not of list: make one of it, as torch.tensor(...) does.
    >>> print(_meant(AttributeError(name="sum", obj=torch.ones(2).max(dim=0))))
    These are several tensors: write .values.sum for that of the first one.
    """
    if type(error) is RuntimeError and str(error).startswith(_NO_DEVICE):
        sent = "x.send(worker), or x.to(sy.device(worker))"
        return f"That is no device. To bring it to a worker: {sent}."
    if not isinstance(error, AttributeError) or error.name is None:
        return None
    kind: Any = type(error.obj)
    if kind.__module__ == "torch.return_types":
        first = f".{kind.__match_args__[0]}.{error.name}"
        return f"These are several tensors: write {first} for that of the first one."
    ours = kind.__module__.partition(".")[0] == "syft"
    if (ours or kind in _NO_TENSORS) and hasattr(torch.Tensor, error.name):
        make = ": make one of it, as torch.tensor(...) does" if kind in _MADE_TENSORS else ""
        return f"{error.name!r} is an attribute of tensors, not of {kind.__name__}{make}."
    if issubclass(kind, torch.Tensor) and error.name in _OF_TABLES:
        return f"{error.name!r} is of tables of pandas: {_OF_TABLES[error.name]}."
    hooked = ours or issubclass(kind, (torch.Tensor, torch.nn.Module))
    return _alike(error.obj, error.name) if hooked else None


def _alike(owner: Any, name: str) -> str | None:
    known = (*dir(type(owner)), *getattr(owner, "__dict__", ()))
    names = [one for one in known if not one.startswith("_")]
    close = difflib.get_close_matches(name, names, 1, _ALIKE)
    return f"Did you mean {close[0]!r}?" if close else None


# ------------------------------------------------------------------------------ where it is printed


def shorten_tracebacks(ledger: Ledger) -> None:
    """Print errors that nobody catches as :func:`shortened` has them, until the ledger is undone.

    In IPython, of which a Jupyter kernel is one kind, it is the handler of errors; elsewhere it is
    ``sys.excepthook``.  Where somebody else has put a handler, theirs stays, and gets all.

    >>> import sys
    >>> ledger = Ledger(); shorten_tracebacks(ledger)
    >>> sys.excepthook is sys.__excepthook__, ledger.undo(), sys.excepthook is sys.__excepthook__
    (False, None, True)
    """
    ledger.replace(warnings, "showwarning", functools.partial(_show_warning, warnings.showwarning))
    shell = running_shell()
    if shell is not None and not shell.custom_exceptions:
        shell.set_custom_exc((Exception,), _show_in_shell)
        handler = shell.CustomTB
        ledger.when_undone(
            lambda: shell.set_custom_exc((), None) if shell.CustomTB == handler else None
        )
    if sys.excepthook is sys.__excepthook__:
        ledger.replace(sys, "excepthook", functools.partial(_print_short))


def _show_warning(
    shown: Callable[..., None],
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show a warning of torch's that names a line of syft, which ran the operation for a worker, at
    the line of the user that asked.  The parameters are those of ``warnings.showwarning``."""
    if filename.startswith(SYFT) and _is_wanted():
        filename, lineno = file_and_line(place_of_user(3))  # the frame between is of `warnings`
        line = None
    shown(message, category, filename, lineno, file, line)


def _print_short(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    with shortened(error):
        sys.__excepthook__(kind, error, error.__traceback__)


def _show_in_shell(
    shell: Any, kind: Any, error: BaseException, traceback: Any, tb_offset: int | None = None
) -> None:
    """Show an error as IPython would, which calls this in the place of its own method."""
    with shortened(error):
        meant = _meant(error) if _is_wanted() else None
        if meant is not None and meant not in _notes(error):
            vars(error)["__notes__"] = [meant, *_notes(error)]
        shell.showtraceback(
            (kind, error, error.__traceback__), tb_offset=tb_offset, running_compiled_code=True
        )
