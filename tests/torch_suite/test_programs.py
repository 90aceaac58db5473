"""Every operator of torch's own database, recorded on one sample and replayed on another.

An operator is recorded on the tensors of a sample, as a plan; the plan travels to a worker and is
called there, with pointers to other tensors of the same kind: the same sample drawn with another
seed, or with its elements turned round if it does not depend on the seed.  What comes back must be
what native torch makes of those, an exception included.  What a value decided while the operator
was recorded counts as a failure, whatever comes back.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch.testing._internal import common_methods_invocations
from torch.testing._internal.opinfo.core import SampleInput

import syft as sy
from syft.exceptions import FrozenPath
from syft.program.recording.record import record
from syft.ops.nested import leaves, replace
from tests.torch_suite.agreement import Raised, check_forward, check_equal, outcome
from tests.torch_suite.carriers import PointerCarrier
from tests.torch_suite.cases import DEVICES, OP_CASES, SEED, Case
from tests.torch_suite.known_failures import parameters, share_passing

pytestmark = [
    # Torch's cases call what is deprecated or slow on purpose, and torch says so, once a process.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.parametrize("device", DEVICES),
]

SOME = 3
"""How many samples of each operator are tried."""
OTHER_SEEDS = (SEED + 1, SEED + 2, SEED + 3)


@pytest.fixture(autouse=True)
def unseeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cases that seed before they draw draw only: no program keeps a seed."""

    def draw(operator: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs)

    monkeypatch.setattr(common_methods_invocations, "wrapper_set_seed", draw)


class PlanCarrier(PointerCarrier):
    """Tensors at a worker, for a plan that is there: what it creates is created there anyway."""

    def factories(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()


@pytest.mark.parametrize("case", parameters("program", ((case.name, case) for case in OP_CASES)))
def test_program(case: Case, device: str, bob: sy.VirtualWorker) -> None:
    pairs = list(with_others(case, device))
    assert pairs, "an operator without samples counts as a failure"
    for sample, other in pairs:
        check_program(case, sample, other, bob)


def check_program(
    case: Case, sample: SampleInput, other: SampleInput, bob: sy.VirtualWorker
) -> None:
    """Record the operator on one sample; replayed on the other, it agrees with native torch."""
    built = outcome(partial(plan_of, case, sample))
    if isinstance(built, Raised):  # there is nothing to record: it raises in native torch too
        check_equal(outcome(partial(call, case.op, operands_of(sample))), built)
        return
    pointer = built.send(bob)

    def replay(*args: Any, **kwargs: Any) -> Any:
        return pointer(*tensors_in((args, kwargs)))

    check_forward(case, other, PlanCarrier(bob), there=replay)


def plan_of(case: Case, sample: SampleInput) -> sy.Plan:
    """The operator as a plan of the sample's tensors; everything else is part of the plan."""
    operands = operands_of(sample)
    tensors = tensors_in(operands)
    order = {id(tensor): index for index, tensor in enumerate(tensors)}

    def function(*given: torch.Tensor) -> Any:
        return call(
            case.op,
            replace(operands, lambda leaf: given[order[id(leaf)]] if id(leaf) in order else leaf),
        )

    with warnings.catch_warnings():
        warnings.simplefilter("error", FrozenPath)
        record(function, tensors, check=False)
    plan = sy.func2plan()(function)
    plan.build(*tensors)  # which may warn of other sizes: of these this test says nothing
    return plan


def operands_of(sample: SampleInput) -> Any:
    return (sample.input, *sample.args), sample.kwargs


def call(operator: Callable[..., Any], operands: Any) -> Any:
    args, kwargs = operands
    return operator(*args, **kwargs)


def tensors_in(operands: Any) -> list[torch.Tensor]:
    """The tensors in some operands, each once."""
    found = {id(leaf): leaf for leaf in leaves(operands) if isinstance(leaf, torch.Tensor)}
    return list(found.values())


def with_others(case: Case, device: str) -> Iterator[tuple[SampleInput, SampleInput]]:
    """Samples, each with another of the same kind."""
    samples = case.samples(device, most=SOME)
    drawn = [case.samples(device, most=SOME, number=number) for number in OTHER_SEEDS]
    for index, sample in enumerate(samples):
        again = [others[index] for others in drawn if index < len(others)]
        yield sample, next(
            (other for other in again if is_of_a_kind(sample, other)), sample.transform(turned)
        )


def is_of_a_kind(sample: SampleInput, other: SampleInput) -> bool:
    """Whether two samples differ in the elements of their tensors, and in nothing else."""
    mine, theirs = operands_of(sample), operands_of(other)
    if repr(outline(mine)) != repr(outline(theirs)):
        return False
    pairs = zip(tensors_in(mine), tensors_in(theirs), strict=True)
    return not all(is_equal(one, two) for one, two in pairs)


def is_equal(one: torch.Tensor, two: torch.Tensor) -> bool:
    with contextlib.suppress(AssertionError):
        check_equal(one, two)
        return True
    return False


def outline(operands: Any) -> Any:
    """Operands in which a tensor is only a kind, and the number of the tensor in the whole."""
    order = {id(tensor): index for index, tensor in enumerate(tensors_in(operands))}

    def outlined(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return order[id(leaf)], leaf.layout, leaf.dtype, leaf.shape

    return replace(operands, outlined)


def turned(value: Any) -> Any:
    """The elements of a tensor in the opposite order, if it is a dense one."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return value
    if value.dtype.itemsize == 1:  # torch does not flip numbers of eight bits if they are floats
        return turned(value.view(torch.uint8).short()).to(torch.uint8).view(value.dtype)
    return value.flatten().flip(0).reshape(value.shape)


def test_share_of_operators(device: str) -> None:
    operators = defaultdict(set)
    for case in OP_CASES:
        operators[case.op.formatted_name].add(case.name)
    assert len(operators) >= 690
    assert share_passing("program", operators) >= 0.98


def test_another_sample_has_other_values(device: str) -> None:
    """Most samples are replayed on values that they were not recorded on."""
    cases = [case for case in OP_CASES if case.dtype is torch.float32]
    pairs = [pair for case in cases[::10] for pair in with_others(case, device)]
    others = [other for sample, other in pairs if is_of_a_kind(sample, other)]
    assert len(others) >= 0.8 * len(pairs)
