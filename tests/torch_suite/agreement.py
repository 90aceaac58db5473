"""What it means for a kind of tensor to agree with native torch: results, inputs, gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.testing._internal.opinfo.core import SampleInput

from syft.ops.nested import leaves, replace
from syft.chain.wrapper import Wrapper
from tests.torch_suite.carriers import Carrier, Native, Travellers
from tests.torch_suite.cases import ROUNDED, UNDEFINED, Case, seed


def outcome(act: Callable[[], Any]) -> Any:
    """What a call returns, or the class of what it raises; under the seed all cases use."""
    seed()
    try:
        return act()
    except Exception as error:  # whatever torch raises here, it must raise there
        # Without its traceback: that leads to the caller's frame, which will hold the error.
        return Raised(error.with_traceback(None))


@dataclass(frozen=True)
class Raised:
    """A call that raised."""

    error: Exception


def check_equal(want: Any, got: Any, shape_only: bool = False, rounded: bool = False) -> None:
    """Assert that two results of one operator agree, tensors inside containers included."""
    if isinstance(want, Raised) or isinstance(got, Raised):
        _check_raised(want, got)
    elif isinstance(want, torch.Tensor):
        _check_tensor(want, got, shape_only, rounded)
    elif isinstance(want, (tuple, list)):
        assert type(want) is type(got) and len(want) == len(got), (type(want), type(got))
        for mine, theirs in zip(want, got, strict=True):
            check_equal(mine, theirs, shape_only, rounded)
    elif isinstance(want, dict):
        assert list(want) == list(got)
        check_equal(list(want.values()), list(got.values()), shape_only, rounded)
    else:
        assert type(want) is type(got) and (want == got or want != want), (want, got)


def _check_raised(want: Any, got: Any) -> None:
    """The same class of exception; an unexpected one is shown with its remote traceback."""
    mine = type(want.error) if isinstance(want, Raised) else type(want)
    theirs = type(got.error) if isinstance(got, Raised) else type(got)
    if mine is not theirs:
        cause = got.error if isinstance(got, Raised) else want.error
        raise AssertionError(
            f"native: {mine.__name__}, here: {theirs.__name__}: {cause}"
        ) from cause
    assert str(want.error) == str(got.error)


def _check_tensor(want: torch.Tensor, got: Any, shape_only: bool, rounded: bool) -> None:
    assert isinstance(got, torch.Tensor), f"{type(got).__name__} instead of a tensor"
    assert type(got) is not Wrapper, f"{got} was not fetched"
    if shape_only:
        assert (got.shape, got.dtype, got.layout) == (want.shape, want.dtype, want.layout)
    elif rounded or want.is_cuda:  # where sums by atomic additions differ from run to run
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4, equal_nan=True)
    else:
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


Call = Callable[..., Any]


def check_forward(
    case: Case,
    sample: SampleInput,
    carrier: Carrier,
    native: Carrier | None = None,
    call: Call | None = None,
    there: Call | None = None,
) -> None:
    """Run one sample on two kinds of tensor: results agree, and what happened to the inputs.

    ``native`` are plain tensors if it is not given; ``call`` is the operator if it is not given,
    and ``there`` what is called on the other kind in its place.
    """
    call = call or case.op
    shape_only, rounded = case.op.name in UNDEFINED, case.op.name in ROUNDED
    operands = (sample.input, sample.args, sample.kwargs)
    ends = []
    for kind, act in ((carrier, there or call), (native or Native(), call)):
        travellers = Travellers(kind)
        sent = travellers.send(operands)
        with contextlib.nullcontext() if travellers.sent else kind.factories():
            result = outcome(kind.waited(partial(act, sent[0], *sent[1], **sent[2])))
        ends.append((travellers.fetch(result), travellers.fetch(sent)))
        del travellers, sent, result
    (got, inputs_there), (want, inputs_here) = ends
    check_equal(want, got, shape_only, rounded)
    check_equal(inputs_here, inputs_there, shape_only, rounded)


def as_leaf(value: Any) -> Any:
    """A tensor as a leaf of its own: some of torch's samples are views of another sample's leaf."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad)


def check_backward(case: Case, sample: SampleInput, carrier: Carrier) -> None:
    """Back-propagate through one sample here and there: the gradients of all leaves agree."""
    operands = replace((sample.input, sample.args, sample.kwargs), as_leaf)
    travellers = Travellers(carrier)
    there = travellers.send(operands)
    got = outcome(carrier.waited(partial(back_propagate, case, sample, there)))
    want = outcome(partial(back_propagate, case, sample, operands))
    check_equal(want, got)
    if not isinstance(want, Raised):
        check_gradients(operands, there, travellers, case.op.name in ROUNDED)


def check_gradients(operands: Any, there: Any, travellers: Travellers, rounded: bool) -> None:
    """The gradients of the tensors here and there agree."""
    for mine, theirs in zip(leaves(operands), leaves(there), strict=True):
        if isinstance(mine, torch.Tensor) and mine.requires_grad:
            check_equal(mine.grad, travellers.fetch(theirs.grad), rounded=rounded)


def back_propagate(case: Case, sample: SampleInput, operands: Any) -> None:
    """Run the operator and go back from its outputs."""
    result = case.op(operands[0], *operands[1], **operands[2])
    go_back(sample.output_process_fn_grad(result))


def go_back(result: Any) -> None:
    """Reduce every differentiable tensor in a result to one number, and back-propagate from it."""
    outputs = [leaf for leaf in leaves(result) if isinstance(leaf, torch.Tensor)]
    # Squared, because the plain sum of a softmax has no gradient.
    losses = [output.abs().square().sum() for output in outputs if output.requires_grad]
    if losses:
        sum(losses[1:], losses[0]).backward()
