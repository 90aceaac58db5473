"""Aten operations that run outside every function that is seen are refused by name."""

from __future__ import annotations

import pytest
import torch

from syft.exceptions import CannotRecord
from syft.program.recording.trace import RefuseUnseenOps
from syft.program.recording.tracer import Tracer


def test_it_names_the_operation_and_the_line() -> None:
    refusals: list[tuple[str, str, str]] = []
    with pytest.raises(CannotRecord) as caught:
        with RefuseUnseenOps(refusals):
            torch.ones(2).add(1)
    error = caught.value
    assert error.what == "aten.ones.default, which ran where torch shows nothing of it"
    assert error.line.startswith(f"{__file__}:")
    assert refusals == [(error.what, error.line, error.instead)]


def test_a_refused_write_is_not_done() -> None:
    x = torch.ones(2)
    with pytest.raises(CannotRecord, match="aten.add_.Tensor"):
        with RefuseUnseenOps([]):
            x.add_(1)
    assert x.tolist() == [1, 1]


def test_what_a_tracer_sees_it_does_not() -> None:
    tracer = Tracer(rerun=True)
    x = torch.ones(2)
    with tracer, RefuseUnseenOps(tracer.refusals):
        y = (x + 1).sum()
        assert f"{y}" == "4.0" and x.shape == (2,)
        with pytest.raises(CannotRecord, match="aten.mul.Tensor"):
            with torch._C.DisableTorchFunction():
                y * y
        y = y + 1
    assert y.item() == 5 and len(tracer.refusals) == 1
