"""Torch's own cases over the other kinds of tensor: the same operators, a few samples of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
import torch
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.opinfo.core import SampleInput

import syft as sy
from syft.exceptions import EncodingError
from tests.torch_suite.agreement import (
    Raised,
    check_backward,
    check_equal,
    check_forward,
    outcome,
)
from tests.torch_suite.carriers import (
    Carrier,
    Drawing,
    FixedCarrier,
    LoggingCarrier,
    MultiCarrier,
    NestedCarrier,
    PointerCarrier,
    Travellers,
)
from tests.torch_suite.cases import (
    Case,
    DEVICES,
    GRADIENT_CASES,
    OP_CASES,
    UNDEFINED,
)
from tests.torch_suite.known_failures import parameters

pytestmark = [
    # Torch's cases call what is deprecated or slow on purpose, and torch says so, once a process.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.parametrize("device", DEVICES),
]

SOME = 3
"""How many samples of each operator and dtype are tried."""

FLOATS = [case for case in OP_CASES if case.dtype is torch.float32]

KINDS: dict[str, Callable[[sy.VirtualWorker, sy.VirtualWorker, sy.VirtualWorker], Carrier]] = {
    "logging": lambda bob, alice, queued: LoggingCarrier(),
    "multi": lambda bob, alice, queued: MultiCarrier((bob, alice)),
    "nested": lambda bob, alice, queued: NestedCarrier(bob, alice),
    "queued": lambda bob, alice, queued: PointerCarrier(queued),
}


@pytest.fixture
def queued(hook: sy.TorchHook) -> sy.VirtualWorker:
    """A worker whose commands run when somebody waits."""
    return sy.VirtualWorker(hook, id="queued", pipelined=True)


@pytest.fixture(autouse=True)
def drawn_under_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a queued worker draw while the seed of a case holds.

    Some cases of torch seed this process, call their operator, and restore the generator.  A queued
    worker of this process shares the generator, but may run the operator only after that.
    """

    def waited_for(operator: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = operator(*args, **kwargs)
        sy.synchronize()
        return result

    seeded = common_methods_invocations.wrapper_set_seed
    monkeypatch.setattr(
        common_methods_invocations,
        "wrapper_set_seed",
        lambda operator, *args, **kwargs: seeded(waited_for, operator, *args, **kwargs),
    )


def _over_kinds(cases: Iterable[Case], suffix: str = "") -> list[Any]:
    """Every case with every kind of tensor."""
    made = []
    for kind in KINDS:
        for row in parameters(kind + suffix, ((case.name, case) for case in cases)):
            made.append(pytest.param(kind, *row.values, id=f"{kind}-{row.id}", marks=row.marks))
    return made


@pytest.mark.parametrize(("kind", "case"), _over_kinds(OP_CASES))
def test_forward(
    kind: str,
    case: Case,
    device: str,
    bob: sy.VirtualWorker,
    alice: sy.VirtualWorker,
    queued: sy.VirtualWorker,
) -> None:
    for sample in case.samples(device, most=SOME):
        carrier = KINDS[kind](bob, alice, queued)
        if not isinstance(carrier, MultiCarrier):
            check_forward(case, sample, carrier)
            continue
        with Drawing() as drawing:
            check_forward(case, sample, carrier)
        for first, second in carrier.pairs:
            check_equal(first, second, drawing.drawn or case.op.name in UNDEFINED)


@pytest.mark.parametrize(("kind", "case"), _over_kinds(GRADIENT_CASES, "_gradient"))
def test_backward(
    kind: str,
    case: Case,
    device: str,
    bob: sy.VirtualWorker,
    alice: sy.VirtualWorker,
    queued: sy.VirtualWorker,
) -> None:
    for sample in case.samples(device, requires_grad=True, most=SOME):
        check_backward(case, sample, KINDS[kind](bob, alice, queued))


# ------------------------------------------------------------------------------ fixed precision


def _encodable(sample: SampleInput) -> bool:
    """Whether fixed precision can hold the numbers of a sample."""
    operands = (sample.input, sample.args, sample.kwargs)
    sent = outcome(lambda: Travellers(FixedCarrier(None)).send(operands))
    return not (isinstance(sent, Raised) and isinstance(sent.error, EncodingError))


@pytest.mark.parametrize("case", parameters("fixed", ((case.name, case) for case in FLOATS)))
def test_fixed_precision_at_a_worker(case: Case, device: str, bob: sy.VirtualWorker) -> None:
    """The same integers as in this process; an operator without a rule is refused there as here."""
    for sample in filter(_encodable, case.samples(device, most=SOME)):
        check_forward(case, sample, FixedCarrier(bob), FixedCarrier(None))


def test_fixed_precision_has_rules(device: str, hook: sy.TorchHook) -> None:
    """Of the operators, so many compute in fixed precision that comparing them says something."""
    computed = 0
    for case in FLOATS:
        for sample in filter(_encodable, case.samples(device, most=1)):
            travellers = Travellers(FixedCarrier(None))
            there = travellers.send((sample.input, sample.args, sample.kwargs))
            if travellers.sent:
                result = outcome(partial(case.op, there[0], *there[1], **there[2]))
                computed += not isinstance(result, Raised)
    assert computed >= 500
