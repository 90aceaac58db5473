"""The numbers among the options of optimizers, as inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import optim

import syft as sy
from syft.plans.building.options import Option, Options, fixed_options, numbers_in, options_of, put
from syft.plans.building.template import FLOAT, INT
from syft.plans.remote.plan_sending import stored_plan
from syft.plans.remote.pointer_plan import PointerPlan


@pytest.mark.parametrize(
    "value, kinds, now, numbers",
    [
        (0.1, (FLOAT,), 1, [1.0]),
        (0.1, (FLOAT,), True, None),
        (0.1, (FLOAT,), "0.1", None),
        (0.1, (FLOAT,), torch.tensor(0.1), None),
        (0.1, (FLOAT,), (0.1,), None),
        (3, (INT,), 4, [4]),
        (3, (INT,), 4.0, None),
        ((0.9, 0.5), (FLOAT, FLOAT), [0.1, 0], [0.1, 0.0]),
        ((0.9, 0.5), (FLOAT, FLOAT), (0.1,), None),
        ((0.9, 0.5), (FLOAT, FLOAT), (0.1, None), None),
    ],
)
def test_what_stands_there_now_may_be_of_the_same_kinds(
    value: Any, kinds: tuple[str, ...], now: Any, numbers: Any
) -> None:
    found = Option("SGD", {}, "lr", value, kinds).numbers(now)
    assert found == numbers and list(map(type, found or ())) == list(map(type, numbers or ()))


def test_flags_texts_and_tensors_are_no_numbers() -> None:
    weight = torch.ones(1)
    adam = optim.Adam([weight], lr=torch.tensor(0.1), amsgrad=True)
    adam.param_groups[0] |= {"name": "all", "pair": (0.1, None), "count": 3, "nothing": ()}
    found = {option.key: option.kinds for option in options_of([adam])}
    assert found == {
        "betas": (FLOAT, FLOAT),
        "eps": (FLOAT,),
        "weight_decay": (FLOAT,),
        "count": (INT,),
    }


def test_a_list_is_looked_into_at_every_call() -> None:
    adam = optim.NAdam([torch.ones(1)], betas=[0.9, 0.99])  # type: ignore[arg-type]
    options = Options(options_of([adam]), [1, 2])
    assert options.hold() and options.numbers == (0.9, 0.99)
    adam.param_groups[0]["betas"][0] = 0.5
    assert options.hold() and options.numbers == (0.5, 0.99)
    assert options.named() == (("betas.0", 0.5), ("betas.1", 0.99))
    put(options.all, [0.0] * len(numbers_in(options.all)))
    assert adam.param_groups[0]["betas"] == [0.0, 0.0]


def test_an_option_that_is_gone_is_named() -> None:
    sgd = optim.SGD([torch.ones(1)], lr=0.1)
    options = Options(options_of([sgd]), [0])
    del sgd.param_groups[0]["lr"]
    assert not options.hold()
    assert list(options.changes()) == [("SGD", "lr", 0.1, None)]
    assert options.numbers == (0.1,)


def test_groups_after_the_first_are_named() -> None:
    weights = torch.ones(1), torch.ones(1)
    sgd = optim.SGD([{"params": [weight]} for weight in weights], lr=0.1)
    options = options_of([sgd])
    every = [index for index, option in enumerate(options) if option.key == "lr"]
    named = Options(options, every).named()
    assert named == (("lr", 0.1), ("groups.1.lr", 0.1))
    assert fixed_options(named).named() == named and fixed_options(named).hold()


def test_a_plan_with_other_options_than_were_sent_goes_on_with_its_own() -> None:
    sgd = optim.SGD([torch.ones(1)], lr=0.1)

    @sy.func2plan(args_shape=[(1,)], state=[sgd])
    def scaled(x: Any, state: Any) -> Any:
        return x * state.read()[0].param_groups[0]["lr"]

    stored = stored_plan(scaled._record, scaled._record.built)
    others = Options(options_of([optim.SGD([torch.ones(1)], lr=0.5)]), [1])
    assert float(PointerPlan.make_plan(stored, others)(torch.ones(1))) == pytest.approx(0.1)
