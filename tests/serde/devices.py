"""The devices that this machine has, as test parameters."""

from __future__ import annotations

import pytest
import torch

DEVICES = ["cpu"]
if torch.cuda.is_available():
    DEVICES += [pytest.param("cuda:0", marks=pytest.mark.cuda)]  # type: ignore[list-item]
