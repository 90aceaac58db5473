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
from syft.program.recording.op_facts import FIXED, PROPERTIES_OF
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
    assert set().union(*PROPERTIES_OF.values()) == FIXED == set(PROPERTIES) == set(CASES)


MORE: dict[str, tuple[Callable[[Any, Any], Any], str, Any]] = {
    "the layout by type()": (
        lambda x, y: x * (2 if x.type() == "torch.FloatTensor" else 3),
        "layout",
        (torch.eye(2).to_sparse(), torch.ones(2, 2)),
    ),
    "a dtype that has dimensions": (
        lambda x, y: torch.zeros(1, dtype=torch.result_type(x, y)),
        "dim",
        (torch.ones(2, 2), torch.ones(2, dtype=torch.float64)),
    ),
    "one size": (
        lambda x, y: x * (2 if torch.is_same_size(x, y) else 3),
        "dim",
        (torch.ones(2, 2), torch.ones(2)),
    ),
}


@pytest.mark.parametrize("name", MORE)
def test_a_question_fixes_all_that_its_answer_follows_from(name: str) -> None:
    function, fixed, others = MORE[name]
    y = torch.ones((), dtype=torch.float64) if "dtype" in name else torch.ones(2, 2)
    plan = sy.func2plan()(function)
    plan.build(torch.ones(2, 2), y)
    assert fixed in dict(plan._record.built.blueprint.interface.fixed)
    made = plan(*others)
    expected = function(*others)
    assert made.dtype == expected.dtype and torch.equal(made.to_dense(), expected.to_dense())


def test_a_plan_that_compares_sizes_fits_tensors_of_one_size() -> None:
    plan = sy.func2plan(args_shape=[(-1, 2), (-1, 2)])(
        lambda x, y: x * 2 if x.is_same_size(y) else x * 3
    )
    x, y = torch.ones(5, 2), torch.ones(4, 2)
    assert torch.equal(plan(x, x), x * 2) and torch.equal(plan(x, y), x * 3)
    assert torch.equal(plan(y, x), y * 3) and torch.equal(plan(y, y), y * 2)


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
