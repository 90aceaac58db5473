"""The two engines of evaluations: where one may answer for the other, they say the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.ops.engines import (
    EvaluatedCall,
    _may_stand,
    _stays_on_cpu,
    fake_outcome,
    memoryless_outcome,
)
from syft.ops.nested import replace, tensors_in
from syft.ops.outcome import Outcome
from tests.torch_suite.cases import GRADIENT_CASES, OP_CASES, Case, seed
from tests.torch_suite.known_failures import parameters

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

SAMPLES = 3


def call_of(function: Any, *args: Any, **kwargs: Any) -> EvaluatedCall:
    return EvaluatedCall(function, args, kwargs, tensors_in(args, kwargs), {})


def both(call: EvaluatedCall) -> tuple[Outcome | None, Outcome]:
    return memoryless_outcome(call), fake_outcome(call)


def told(outcome: Outcome) -> Any:
    """All that an outcome says but for what it uses, which follows from torch's decompositions."""
    return outcome.verdict, outcome.result, outcome.writes, outcome.changed, outcome.draws


def own(tensor: Any) -> Any:
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return tensor
    made = tensor.detach().clone().requires_grad_(tensor.requires_grad)
    return made * 1 if made.requires_grad and made.dim() % 2 else made


FORWARD = [(case.name, case) for case in OP_CASES]
BACKWARD = [(case.name, case) for case in GRADIENT_CASES]


def check(case: Case, requires_grad: bool) -> None:
    variants = (case.op.op, case.op.method_variant, case.op.inplace_variant)
    for sample in case.samples("cpu", requires_grad=requires_grad, most=SAMPLES):
        for function in variants:
            args, kwargs = replace(((sample.input, *sample.args), dict(sample.kwargs)), own)
            strange = [x for x in tensors_in(args, kwargs) if x.layout is not torch.strided]
            if function is None or strange:
                continue
            seed()
            quick, slow = both(call_of(function, *args, **kwargs))
            if quick is not None:
                assert told(quick) == told(slow)


@pytest.mark.parametrize("case", parameters("engines", FORWARD))
def test_engines_agree(case: Case) -> None:
    check(case, requires_grad=False)


@pytest.mark.parametrize("case", parameters("engines-gradient", BACKWARD))
def test_engines_agree_with_gradients(case: Case) -> None:
    check(case, requires_grad=True)


def test_what_may_stand_for_a_tensor_is_plain_and_on_the_cpu() -> None:
    found = [_may_stand(one, False) for one in (torch.ones(2), torch.eye(2).to_sparse())]
    assert found == [True, False]
    stays = [
        _stays_on_cpu(EvaluatedCall(torch.zeros, (2,), {"device": device}, (), {}))
        for device in (None, "cpu", "meta", 0)  # a number is an accelerator's
    ]
    assert stays == [True, True, False, False]
