"""What predictions say of every operator of torch's own database is what the operator does."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.ops.evaluate import _look, evaluate
from syft.ops.nested import leaves, replace, tensors_in
from syft.ops.outcome import Made, Outcome, Verdict
from syft.workers.execution.predicted_run import _Labels, _check_writes, _fitted, _stand_ins
from syft.workers.labels.guards import Guard
from tests.torch_suite.cases import GRADIENT_CASES, OP_CASES, Case, seed
from tests.torch_suite.known_failures import parameters

pytestmark = [
    # Torch's cases call what is deprecated or slow on purpose, and torch says so, once a process.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

SAMPLES = 6

NOT_RUN: dict[Verdict, frozenset[str]] = {
    Verdict.READS: frozenset(
        """allclose corrcoef cov equal istft item narrow nn.functional.gaussian_nll_loss
        nn.functional.one_hot tensor_split""".split()
    ),
    Verdict.RESIZES: frozenset(
        """argwhere bincount combinations linalg.lstsq masked_select nn.functional.ctc_loss nonzero
        repeat_interleave unique unique_consecutive""".split()
    ),
    Verdict.UNKNOWN: frozenset("geqrf histogram histogramdd to_sparse".split()),
    Verdict.FAILS: frozenset(),
}
"""The operators of which some calls that succeed are predicted to do something else than to run."""

FORWARD = [(case.name, case) for case in OP_CASES]
BACKWARD = [(case.name, case) for case in GRADIENT_CASES]


def own(tensor: Any) -> Any:
    """A tensor of its own, as a worker holds it."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided:
        return tensor
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def content(tensor: torch.Tensor) -> bytes:
    """The bytes of its elements."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous().flatten()
    return plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def looks(result: Any, prediction: Outcome, inputs: list[torch.Tensor]) -> list[Any]:
    """All that later predictions depend on, of the new results of a call and of what it changed."""
    memories: dict[int, int] = {}
    places = [place for place, _ in prediction.changed]
    found = [_look(inputs[place], memories) for place in places]
    for leaf, expected in zip(leaves(result), leaves(prediction.result), strict=True):
        if type(expected) is Made and not expected.shares:
            found.append(_look(leaf, memories))
    return found


def check(case: Case, requires_grad: bool) -> None:
    for sample in case.samples("cpu", requires_grad=requires_grad, most=SAMPLES):
        args, kwargs = replace(((sample.input, *sample.args), dict(sample.kwargs)), own)
        inputs = tensors_in(args, kwargs)
        strange = [x for x in inputs if x.layout is not torch.strided or x.is_quantized]
        if strange or not inputs:
            continue
        as_given = [own(tensor) for tensor in inputs]
        before = [(tensor.shape, content(tensor)) for tensor in inputs]
        prediction = evaluate(case.op.op, args, kwargs)
        assert [(tensor.shape, content(tensor)) for tensor in inputs] == before
        assert evaluate(case.op.op, args, kwargs).verdict is prediction.verdict
        seed()
        stream = torch.default_generator.get_state()
        try:
            result = case.op.op(*args, **kwargs)
        except Exception:
            continue  # with these values, or with any
        if prediction.verdict is not Verdict.RUNS:
            assert case.op.name in NOT_RUN[prediction.verdict]
            continue
        result = _fitted(result, prediction, inputs)
        _check_writes(prediction, inputs)
        failed = _stand_ins(prediction, as_given, _Labels(Guard(frozenset()), False))
        assert looks(result, prediction, inputs) == looks(failed, prediction, as_given)
        now = [(tensor.shape, content(tensor)) for tensor in inputs]
        written = {place for place, pair in enumerate(zip(before, now)) if pair[0] != pair[1]}
        assert written <= set(prediction.writes)
        assert prediction.draws or torch.equal(stream, torch.default_generator.get_state())


@pytest.mark.parametrize("case", parameters("prediction", FORWARD))
def test_a_prediction_is_what_happens(case: Case) -> None:
    check(case, requires_grad=False)


@pytest.mark.parametrize("case", parameters("prediction-gradient", BACKWARD))
def test_a_prediction_with_gradients_is_what_happens(case: Case) -> None:
    check(case, requires_grad=True)


def test_what_is_checked_can_fail() -> None:
    """A prediction of another call fits none of the results."""
    x = torch.ones(2, 3)
    prediction = evaluate(torch.sum, (x, 0), {})
    assert type(prediction) is Outcome
    with pytest.raises(Exception, match="another shape"):
        _fitted(torch.sum(x, 1), prediction, [x])
