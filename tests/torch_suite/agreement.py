"""What it means for a kind of tensor to agree with native torch: results, inputs, gradients.

They agree to the last bit, because a worker calls the same kernels on equal values.  The exception
is measured, not listed: if results differ, native torch runs once more on copies of the operands
laid out as they arrive (``tests/torch_suite/layouts.py``).  Only if torch itself gives another
result there, ours may be off by a few units in the last place.  Refused: a table of such operators,
which depends on the processor.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.testing._internal.opinfo.core import SampleInput

from syft.ops.nested import leaves, replace
from syft.chain.wrapper import Wrapper
from tests.torch_suite.carriers import Carrier, Native, Travellers
from tests.torch_suite.cases import ROUNDED, UNDEFINED, Case, seed
from tests.torch_suite.layouts import each_once


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


FEW = 4
"""Units in the last place by which a result may be off where native torch differs from itself.

The unit is that of the largest number in the tensor, because the error of a sum follows its largest
terms.  Summing n terms in another order changes a result by about the square root of n units; the
products in torch's samples have five to ten terms.
"""

MOST = 64
"""Units up to which the difference of native torch from itself counts as rounding.

With the memory of every matrix turned round, which is more than a message does, nine of ten
operators of the database differ by less than 5 units, and the worst (``logsumexp``) by 33.
"""


def check_equal(
    want: Any,
    got: Any,
    shape_only: bool = False,
    rounded: bool = False,
    again: Callable[[], Any] | None = None,
) -> None:
    """Assert that two results of one operator agree, tensors inside containers included.

    ``again`` computes what native torch gives on operands in another layout.  It is called only if
    the results differ, and a tensor may be off only where its result differs too.
    """
    pairs = list(_tensor_pairs(want, got))
    wrong = {}
    for index, (mine, theirs) in enumerate(pairs):
        try:
            _check_tensor(mine, theirs, shape_only, rounded)
        except AssertionError as error:
            wrong[index] = error
    if wrong and again is not None:
        try:
            anew = [itself for _, itself in _tensor_pairs(want, again())]
        except AssertionError:  # another kind of result: that is no rounding
            raise next(iter(wrong.values())) from None
        wrong = {at: wrong[at] for at in wrong if not is_excused(*pairs[at], anew[at])}
    for error in wrong.values():
        raise error


def _tensor_pairs(want: Any, got: Any) -> Iterator[tuple[torch.Tensor, Any]]:
    """The tensors of a result, each with what stands in its place in another; the rest is equal."""
    if isinstance(want, Raised) or isinstance(got, Raised):
        _check_raised(want, got)
    elif isinstance(want, torch.Tensor):
        yield want, got
    elif isinstance(want, (tuple, list)):
        assert type(want) is type(got) and len(want) == len(got), (type(want), type(got))
        for mine, theirs in zip(want, got, strict=True):
            yield from _tensor_pairs(mine, theirs)
    elif isinstance(want, dict):
        assert isinstance(got, dict) and list(want) == list(got)
        yield from _tensor_pairs(list(want.values()), list(got.values()))
    else:
        assert type(want) is type(got) and (want == got or want != want), (want, got)


def is_excused(want: torch.Tensor, got: Any, itself: Any) -> bool:
    """Whether a result may differ from native torch's, because that differs from ``itself``.

    ``itself`` is the result of native torch on the same values in another layout.
    """
    own = units_off(want, itself)
    return 0 < own <= MOST and units_off(want, got) <= max(FEW, own)


def units_off(want: Any, got: Any) -> float:
    """The largest difference, in units in the last place of the largest number in ``want``.

    It is infinite if the two differ in kind, or in more than finite floating-point numbers.
    """
    if not (isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor)):
        return math.inf
    if kind_of(want) != kind_of(got):
        return math.inf
    if not (want.is_floating_point() or want.is_complex()) or want.is_nested:
        return math.inf
    mine, theirs = widened(want), widened(got)
    apart = (mine != theirs) & ~(mine.isnan() & theirs.isnan())
    if not apart.any():
        return 0.0
    largest = mine[mine.isfinite()].abs().max().item() if mine.isfinite().any() else 0.0
    difference = (mine - theirs)[apart].abs().max().item()
    if not largest or not math.isfinite(difference):
        return math.inf
    return difference / (largest * torch.finfo(want.dtype).eps)


def kind_of(tensor: torch.Tensor) -> Any:
    """What of a tensor may differ in no case."""
    return tensor.shape, tensor.dtype, tensor.layout, tensor.is_nested


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers of a tensor, such that their differences are exact."""
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    tensor = tensor.detach()
    return (tensor if tensor.layout is torch.strided else tensor.to_dense()).to(wide)


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
    native = native or Native()
    operands = (sample.input, sample.args, sample.kwargs)
    anew = each_once(operands, carrier.arrives)  # first, because a call may change its operands
    got = forward(there or call, operands, carrier)
    want = forward(call, operands, native)
    check_equal(
        want,
        got,
        shape_only=case.op.name in UNDEFINED,
        rounded=case.op.name in ROUNDED or case.op.formatted_name in carrier.rounded,
        again=partial(forward, call, anew, native),
    )


def forward(call: Call, operands: Any, carrier: Carrier) -> tuple[Any, Any]:
    """What a call on operands of some kind returns, and the operands after it."""
    travellers = Travellers(carrier)
    sent = travellers.send(operands)
    with contextlib.nullcontext() if travellers.sent else carrier.factories():
        result = outcome(carrier.waited(partial(call, sent[0], *sent[1], **sent[2])))
    return travellers.fetch(result), travellers.fetch(sent)


def as_leaf(value: Any) -> Any:
    """A tensor as a leaf of its own: some of torch's samples are views of another sample's leaf."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad)


def check_backward(case: Case, sample: SampleInput, carrier: Carrier) -> None:
    """Back-propagate through one sample here and there: the gradients of all leaves agree."""
    operands = replace((sample.input, sample.args, sample.kwargs), as_leaf)
    anew = each_once(operands, carrier.arrives)
    travellers = Travellers(carrier)
    there = travellers.send(operands)
    got = outcome(carrier.waited(partial(back_propagate, case, sample, there)))
    want = outcome(partial(back_propagate, case, sample, operands))
    check_equal(want, got)
    if not isinstance(want, Raised):

        def again() -> Any:
            outcome(partial(back_propagate, case, sample, anew))
            return gradients(anew)

        check_equal(
            gradients(operands),
            travellers.fetch(gradients_there(operands, there)),
            rounded=case.op.name in ROUNDED or case.op.formatted_name in carrier.rounded,
            again=again,
        )


def gradients(operands: Any) -> list[torch.Tensor | None]:
    """The gradients of the leaves among some operands."""
    return gradients_there(operands, operands)


def gradients_there(operands: Any, there: Any) -> list[torch.Tensor | None]:
    """The gradients of what stands in ``there`` in the place of a leaf among the operands."""
    return [
        theirs.grad
        for mine, theirs in zip(leaves(operands), leaves(there), strict=True)
        if isinstance(mine, torch.Tensor) and mine.requires_grad
    ]


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
