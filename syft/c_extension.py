"""The extension in C for the common operation on pointers, where it was built (``_native.c``).

The Python code is the source, and does all that the extension leaves to it.  Without a compiler, or
with ``SYFT_NATIVE=0`` in the environment, nothing changes but the time that an operation takes.
:mod:`syft.tensors.native_calls` names what the C code calls and reads.  What it takes, what it
leaves, and why it is written in C: ``docs/design/0028-native.md``.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Extension(NamedTuple):
    """The functions in C."""

    call: Callable[[Any, tuple[Any, ...]], Any]
    """The result of an operation on these arguments, or NotImplemented if Python has to run it."""
    Route: Callable[..., Any]
    """What stands in the place of a function of (cls, operation, args, kwargs), or with an
    operation of a method: it tries the operation, and otherwise calls that function."""
    setup: Callable[..., None]
    """Takes, by name, what the C code calls and reads, and begins to take operations."""
    use: Callable[[bool], bool]
    """Whether operations are taken from now on; returns what was so."""


def is_stale(built: Path) -> bool:
    """Whether a built file lies beside a source that was changed after it: what it reads and calls
    may not be there any more."""
    source = built.with_name("_native.c")
    return source.exists() and source.stat().st_mtime > built.stat().st_mtime


EXTENSION: Extension | None = None
"""The extension, unless it was not built, is not wanted, or was built of an older source."""

try:
    from syft._native import Route, __file__ as _built, call, setup, use as _use
except ImportError:  # there was no compiler
    pass
else:
    if is_stale(Path(_built)):
        warnings.warn(
            "syft._native is older than its source, and left out: make native", stacklevel=1
        )
    elif os.environ.get("SYFT_NATIVE") != "0":
        EXTENSION = Extension(call, Route, setup, _use)


def use(wanted: bool) -> bool:
    """Have the extension take operations from now on, or none, if it is there; returns what was so.

    >>> before = use(False)  # a profiler sees each call of a function in Python
    >>> use(before)
    False
    """
    return EXTENSION is not None and EXTENSION.use(wanted)
