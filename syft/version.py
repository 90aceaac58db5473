"""The version of the package, for people: the other end of a connection is told."""

from __future__ import annotations

from typing import Final

import torch

VERSION: Final = "0.3.0"


def software() -> str:
    """What runs in this process.

    >>> software().startswith("syft 0.")
    True
    """
    return f"syft {VERSION}, torch {torch.__version__}"
