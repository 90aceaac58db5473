"""Torch's own operators on lazy tensors: values, shapes, dtypes, gradients are those of eager."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Any

import pytest
import torch
from torch.testing._internal.opinfo.core import SampleInput

import syft as sy
from syft.exceptions import UnsupportedOperation
from syft.ops.nested import leaves
from tests.torch_suite.agreement import Raised, check_backward, check_forward, outcome
from tests.torch_suite.carriers import LazyCarrier, Travellers
from tests.torch_suite.cases import DEVICES, GRADIENT_CASES, OP_CASES, Case
from tests.torch_suite.known_failures import parameters, share_passing

pytestmark = [
    # Torch's cases call what is deprecated or slow on purpose, and torch says so, once a process.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.parametrize("device", DEVICES),
]

SOME = 3
"""How many samples of each operator and dtype are tried."""


KEPT_SHAPES = ("resize_", "resize_as_")
"""The operators that give a tensor another size in place: refused by name."""
FORWARD = [case for case in OP_CASES if case.op.name not in KEPT_SHAPES]


@pytest.mark.parametrize("case", parameters("lazy", ((case.name, case) for case in FORWARD)))
def test_forward(case: Case, device: str, hook: sy.TorchHook) -> None:
    for sample in case.samples(device, most=SOME):
        check_forward(case, sample, LazyCarrier())
        check_predictions(case, sample)


def check_predictions(case: Case, sample: SampleInput) -> None:
    """What a lazy result says of itself before it is there is true of it afterwards."""
    travellers = Travellers(LazyCarrier())
    sent = travellers.send((sample.input, sample.args, sample.kwargs))
    result = outcome(partial(case.op, sent[0], *sent[1], **sent[2]))
    if isinstance(result, Raised):
        return
    for leaf in leaves(result):
        if isinstance(leaf, torch.Tensor) and leaf.is_lazy():
            said = look(leaf)
            there = outcome(leaf.detach().to_eager)
            assert isinstance(there, Raised) or look(there) == said


def look(tensor: torch.Tensor) -> Any:
    """What can be known of a tensor without its values."""
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


@pytest.mark.parametrize(
    "case", parameters("lazy_gradient", ((case.name, case) for case in GRADIENT_CASES))
)
def test_backward(case: Case, device: str, hook: sy.TorchHook) -> None:
    for sample in case.samples(device, requires_grad=True, most=SOME):
        check_backward(case, sample, LazyCarrier())


@pytest.mark.parametrize("name", KEPT_SHAPES)
def test_a_lazy_tensor_keeps_its_shape(name: str, device: str, hook: sy.TorchHook) -> None:
    x = torch.ones(2, device=device).to_lazy()
    with pytest.raises(UnsupportedOperation, match="keeps its shape"):
        getattr(x, name)((3,) if name == "resize_" else torch.ones(3, device=device))


def test_share_of_operators(device: str) -> None:
    for kind, cases, least in (("lazy", OP_CASES, 0.99), ("lazy_gradient", GRADIENT_CASES, 0.97)):
        operators = defaultdict(set)
        for case in cases:
            operators[case.op.formatted_name].add(case.name)
        assert share_passing(kind, operators) >= least
