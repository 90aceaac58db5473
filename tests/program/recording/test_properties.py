"""The properties that a recording notes are ones a tensor has."""

from __future__ import annotations

import torch

from syft.ops.table import FLAGS, NAMES, OpFlag
from syft.program.recording.properties import PROPERTY_OF


def test_each_names_something_of_a_tensor() -> None:
    x = torch.ones(2)
    assert all(getattr(x, read) is not None for read in set(PROPERTY_OF.values()))


def test_each_is_asked_for_by_metadata() -> None:
    assert all(FLAGS[number] & OpFlag.METADATA for number in PROPERTY_OF)
    assert not any("size" in NAMES[number].split(".") for number in PROPERTY_OF)
