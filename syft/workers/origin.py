"""The line of the user's program from which something was asked, for the notes of errors."""

from __future__ import annotations

import os
import sys

import torch

_HIDDEN = tuple(
    os.path.dirname(os.path.dirname(os.path.abspath(path))) + os.sep
    for path in (__file__, torch.nn.__file__)
)
"""Folders whose frames are not the user's line: syft's own and torch's."""

_TENSOR_CARD = 3
"""How many fields the card of a tensor has; a plan's has one more."""


def line_of_user() -> str:
    """``file:line`` of the innermost frame that is neither syft's nor torch's.

    >>> line_of_user().rpartition(":")[2].isdigit()
    True
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HIDDEN):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
