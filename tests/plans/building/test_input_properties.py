"""A property that was asked for while recording must be the same at each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import MalformedMessage
from syft.plans.building import input_properties
from syft.plans.building.input_properties import PROPERTIES, expect_fixed
from syft.program.recording.op_facts import PROPERTY_OF
from tests.chain.refusal import refusal

CASES: dict[str, tuple[Callable[[Any], Any], torch.Tensor]] = {
    "dtype": (lambda x: torch.zeros(3, dtype=x.dtype) + x, torch.ones(3, dtype=torch.float64)),
    "dim": (lambda x: x * x.dim(), torch.ones(2, 3)),
    "requires_grad": (
        lambda x: x + 1 if x.requires_grad else x - 1,
        torch.ones(3, requires_grad=True),
    ),
    "is_contiguous": (lambda x: x * 2 if x.is_contiguous() else x * 3, torch.ones(6)[::2]),
    "layout": (lambda x: torch.zeros(3, layout=x.layout) + x, torch.ones(3).to_sparse()),
    "device": (lambda x: torch.zeros(3, device=x.device) + x, torch.ones(3, device="meta")),
}


def test_whatever_a_recording_names_is_known() -> None:
    assert set(PROPERTY_OF.values()) == set(PROPERTIES) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_another_property_is_recorded_here_and_refused_elsewhere(
    name: str, hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    function, other = CASES[name]
    x = torch.ones(3)
    plan = sy.func2plan()(function)
    plan.build(x)
    pointer = plan.send(bob)
    fetched = plan.send(bob).get()
    for each in (plan, fetched):
        assert torch.equal(each(x), function(x))
    text = refusal(lambda: fetched(other))
    assert f"it asks for the {name}, and was built with that" in text
    if name in ("dtype", "dim", "requires_grad", "is_contiguous"):
        assert torch.equal(plan(other), function(other)) and torch.equal(plan(x), function(x))
        assert len(plan._record.earlier) == 1
    assert torch.equal(pointer(x.send(bob)).get(), function(x))
    if name != "device":  # nothing on that one can be sent
        # what is sent arrives contiguous
        remote = torch.ones(6).send(bob)[::2] if name == "is_contiguous" else other.send(bob)
        assert f"WrongArguments: Plan '<lambda>' takes {name} " in refusal(lambda: pointer(remote))


def test_sizes_are_free(hook: sy.TorchHook) -> None:
    plan = sy.func2plan(args_shape=[(-1, 2)])(lambda x: x.sum() / x.shape[0])
    assert plan(torch.ones(5, 2)) == 2
    assert plan._record.built.blueprint.interface.fixed == ()


@pytest.mark.parametrize(
    "value",
    [
        5,
        (3,),
        (("dim",),),
        ((3, (1,)),),
        (("color", (1,)),),
        (("dim", 1),),
        (("dim", (1, 2)),),
        (("dim", ([],)),),
    ],
)
def test_what_arrives_is_checked(value: Any) -> None:
    with pytest.raises(MalformedMessage, match=r"\$\.fixed"):
        expect_fixed(value, 1, ".fixed")


def test_how_many_sizes_are_remembered_is_bounded(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_properties, "_MOST_KNOWN", 2)
    plan = sy.func2plan()(lambda x: x + 1 if x.shape[0] < 10 else x - 1)
    plan.build(torch.ones(3))
    expected = plan._built("called").expected
    for rows in (1, 2, 4, 5, 1, 2):
        assert plan(torch.ones(rows)).tolist() == [2] * rows
        assert 0 < len(expected._known) <= 2
