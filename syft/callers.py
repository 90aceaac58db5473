"""Whose code a stack frame runs: syft's, torch's or the user's.

Errors of another worker name the line of the user's program that asked.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Final

import torch

SYFT: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep
"""The folder of syft's own code."""
TORCH: Final = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
"""The folder of torch's Python code."""

_LIBRARIES: Final = (SYFT, TORCH)


def line_of_user() -> str:
    """``file:line`` of the innermost frame that is neither syft's nor torch's.

    >>> line_of_user().rpartition(":")[2].isdigit()
    True
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


@functools.lru_cache(maxsize=4096)
def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARIES)
