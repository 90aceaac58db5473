"""Attack: routines that hand out a tensor together with something else: gradients, parts, facts.

The label is on memory, and a gradient has memory of its own.  So whoever hands out a tensor asks
for the tensor and for all that goes with it, and a copy has the label of what it is a copy of.
What a plan asks about its inputs is asked on behalf of its caller.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import syft as sy
from syft.codes import ConversionCode
from syft.plans.building.input_properties import PROPERTIES, Fixed
from syft.program.program import Program, Slot
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.tensors.fixed.precision import fix_precision
from syft.workers.execution.public_facts import TOLD
from syft.workers.wire import messages
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds import beside_values
from tests.privacy.two_worlds.attacks import (
    ONE,
    OTHER,
    Attack,
    action,
    check,
    check_reaches,
    ones,
    secret,
    succeeded,
    zeros,
)
from tests.privacy.two_worlds.observer import Observer

Put = Callable[[torch.Tensor], torch.Tensor]


def plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def logged(tensor: torch.Tensor) -> torch.Tensor:
    return sy.LoggingTensor().on(tensor)


def send(eve: Observer, kind: type[Any], *fields: Any) -> Any:
    """Send a message about whole objects to bob."""
    return eve.request(kind(eve.count(), *fields), op=kind.__name__)


def give(eve: Observer, leaf: Reference, private: Reference) -> Reference:
    """Make what is computed of a secret the gradient of a leaf, which is public."""
    result = succeeded(eve.call("torch.mul", private, 1))
    succeeded(eve.call("torch.Tensor.grad.__set__", leaf, result, grad=False))
    return leaf


def holder(eve: Observer) -> Reference:
    """A public leaf of hers, whose gradient is private."""
    return give(eve, ones(eve, grad=True), secret(eve))


def copied(eve: Observer, it: Reference) -> Reference:
    copy = Reference(eve.id())
    succeeded(send(eve, messages.Duplicate, it.id, copy.id))
    return copy


# ------------------------------------------------------------------------------------- gradients


def a_copy(eve: Observer) -> None:
    copied(eve, holder(eve))


def a_copy_of_a_copy(eve: Observer) -> None:
    copied(eve, copied(eve, holder(eve)))


def a_copy_whose_gradient_is_a_view(eve: Observer) -> None:
    """What shares the memory of a private gradient is the gradient of another leaf."""
    other = ones(eve, grad=True)
    gradient = eve.call("torch.Tensor.grad.__get__", holder(eve))
    view = eve.call("torch.Tensor.view", gradient, 3)
    succeeded(eve.call("torch.Tensor.grad.__set__", other, view, grad=False))
    copied(eve, other)


def a_copy_of_what_a_pass_left(eve: Observer, put: Put) -> None:
    leaf = eve.public(put(torch.ones(3)).requires_grad_())
    private = eve.secret(put(ONE), put(OTHER))
    loss = eve.call("torch.sum", eve.call("torch.mul", leaf, private))
    succeeded(eve.call("torch.Tensor.backward", loss))
    copied(eve, leaf)


def the_gradient_of_a_gradient(eve: Observer) -> None:
    leaf = ones(eve, grad=True)
    succeeded(eve.call("torch.Tensor.grad.__set__", leaf, holder(eve), grad=False))
    copied(eve, leaf)
    send(eve, messages.FetchAll, (leaf.id,), True)


def the_gradient_of_elements(eve: Observer, put: Put, whole: bool) -> None:
    """What is inside a chain has a gradient that the chain has not."""
    chain = eve.public(put(torch.ones(3)))
    private = eve.secret(ONE.long(), OTHER.long()) if whole else secret(eve)
    give(eve, Reference(chain.id, 2), private)
    copied(eve, chain)
    send(eve, messages.FetchAll, (chain.id,), True)
    eve.move(chain, "eve")


def several_at_once(eve: Observer) -> None:
    leaf, other = holder(eve), ones(eve)
    send(eve, messages.FetchAll, (other.id, leaf.id), True)
    send(eve, messages.FetchAll, ((other.id, 0), leaf.id), False)


def fetched_for_a_store(eve: Observer) -> None:
    send(eve, messages.Fetch, holder(eve).id, 0, True, None, True)


def moved(eve: Observer, to: str, grad: bool) -> None:
    eve.move(holder(eve), to, grad=grad)


def relayed(eve: Observer, to: str) -> None:
    leaf = holder(eve)
    send(eve, messages.Relay, leaf.id, to)
    send(eve, messages.Relay, leaf.id, None)


def an_operand_for_another_worker(eve: Observer) -> None:
    """A public number goes along with a command to eve's worker; its private gradient does not."""
    there, number = ones(eve), eve.public(torch.ones((), requires_grad=True))
    succeeded(send(eve, messages.Relay, there.id, "eve"))
    give(eve, number, eve.secret(torch.tensor(3.5), torch.tensor(-8.0)))
    succeeded(eve.call("torch.mul", there, number, grad=False))


def what_is_written_at_another_worker(eve: Observer) -> None:
    there = ones(eve)
    succeeded(send(eve, messages.Relay, there.id, "eve"))
    succeeded(eve.call("torch.Tensor.copy_", there, holder(eve), grad=False))


def a_sum_with_another_worker(eve: Observer) -> None:
    """The values of a public leaf are added up, and its private gradient stays."""
    eve.sum_private({"bob": holder(eve), "eve": eve.public(torch.ones(3), "eve")}, 10**6)


def in_a_program(eve: Observer) -> None:
    """A program that takes the gradient."""
    program = Program(
        1,
        (
            action("torch.Tensor.grad.__get__", Slot(0), out=Slot(1)),
            action("torch.Tensor.clone", Slot(1), out=Slot(2)),
        ),
        (Slot(1), Slot(2)),
    )
    for run in (eve.group, eve.plan):
        succeeded(run(program, [holder(eve)], 2))


def the_state_of_a_plan(eve: Observer) -> None:
    """A plan with a parameter of hers, and its copy."""
    program = Program(
        1, (action("torch.Tensor.grad.__get__", Slot(1), out=Slot(2)),), (Slot(2),), state=1
    )
    plan = succeeded(eve.stored_plan(program, 1, state=[torch.nn.Parameter(torch.ones(3))]))
    (weight,) = succeeded(eve.state_of(plan, program))
    give(eve, weight, secret(eve))
    copy = copied(eve, plan)
    succeeded(eve.state_of(copy, program))
    for it in (plan, copy):
        eve.fetch(it.id)
        eve.move(it, "eve")


GRADIENTS: dict[str, Attack] = {
    "a copy": a_copy,
    "a copy of a copy": a_copy_of_a_copy,
    "a copy whose gradient is a view": a_copy_whose_gradient_is_a_view,
    "a copy of what a pass left": partial(a_copy_of_what_a_pass_left, put=plain),
    "the gradient of a gradient": the_gradient_of_a_gradient,
    "the gradient of what logs": partial(the_gradient_of_elements, put=logged, whole=False),
    "the gradient of integers": partial(the_gradient_of_elements, put=fix_precision, whole=True),
    "several at once": several_at_once,
    "fetched for a store": fetched_for_a_store,
    "moved to alice": partial(moved, to="alice", grad=False),
    "moved": partial(moved, to="eve", grad=False),
    "moved as a leaf": partial(moved, to="eve", grad=True),
    "sent on": partial(relayed, to="eve"),
    "sent on to alice": partial(relayed, to="alice"),
    "an operand for another worker": an_operand_for_another_worker,
    "what is written at another worker": what_is_written_at_another_worker,
    "a sum with another worker": a_sum_with_another_worker,
    "in a program": in_a_program,
    "the state of a plan": the_state_of_a_plan,
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_private_gradient_stays_when_its_leaf_is_handed_out(name: str) -> None:
    check(GRADIENTS[name])


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_public_gradient_is_seen(name: str) -> None:
    check_reaches(GRADIENTS[name])


# ---------------------------------------------------------- what a failure reports of a conversion


def converted(eve: Observer, it: Reference, code: ConversionCode, *args: Any) -> Reference:
    found = Reference(eve.id())
    send(eve, messages.Convert, it.id, int(code), pack(args, Packer()), found.id)
    return found


def fixed_leaf(eve: Observer, operation: str = "") -> None:
    """Numbers of which those of the second world have a place on a grid: the first are too large
    for it."""
    leaf = eve.secret(
        torch.tensor([1e30, 1.0], requires_grad=True), torch.tensor([2.0, 1.0], requires_grad=True)
    )
    it = eve.call(operation, leaf, 1) if operation else leaf
    chain = converted(eve, it, ConversionCode.FIX_PRECISION)
    tell_all(eve, chain)
    back = converted(eve, chain, ConversionCode.FLOAT_PRECISION)
    tell_all(eve, back)
    eve.call("torch.Tensor.backward", eve.call("torch.sum", back))
    tell_all(eve, leaf)


def tell_all(eve: Observer, *references: Any) -> None:
    """Ask all questions that are answered, of a chain those about its parts too."""
    for reference in references:
        for depth in range(3):
            for name in TOLD:
                for way in (f"torch.Tensor.{name}.__get__", f"torch.Tensor.{name}"):
                    if way in sy.ops.table.BY_NAME:
                        eve.call(way, Reference(reference.id, depth))
        eve.gradient(reference.id)


CONVERSIONS: dict[str, Attack] = {
    "a leaf": fixed_leaf,
    "a result": partial(fixed_leaf, operation="torch.mul"),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_whether_a_conversion_overflowed_is_not_told(name: str) -> None:
    check(CONVERSIONS[name])


@pytest.mark.parametrize("name", CONVERSIONS)
def test_whether_a_conversion_of_public_numbers_overflowed_is_seen(name: str) -> None:
    check_reaches(CONVERSIONS[name])


# ------------------------------------------------------------------- what a plan asks of its inputs

_FIRST = Program(1, (action("torch.mul", Slot(0), 1, out=Slot(1)),), (Slot(1),))


def chosen(eve: Observer, matrix: bool = False) -> Any:
    """Numbers above zero: the first one alone in the first world, two or none in the second."""
    one, other = torch.tensor([1.0, -1.0]), torch.tensor([1.0, 2.0])
    private = eve.secret(one, other)
    above = eve.call("torch.gt", private, 0)
    found = succeeded(eve.call("torch.Tensor.__getitem__", private, above))
    if not matrix:
        return found
    grown = eve.call("torch.unsqueeze", found, 1)
    return succeeded(eve.call("torch.Tensor.t", eve.call("torch.cat", [grown, grown], 1)))


def asks(eve: Observer, name: str, matrix: bool, value: Any) -> None:
    fixed: Fixed = ((name, (value,)),)
    eve.plan(_FIRST, [chosen(eve, matrix)], 1, fixed=fixed)


ANSWERS: dict[str, tuple[Any, ...]] = {
    "dtype": ("torch.float32", "torch.int64", None),
    "device": ("cpu", "cuda", None),
    "layout": ("torch.strided", "torch.sparse_coo", None),
    "dim": (1, 2, None),
    "requires_grad": (False, True, None),
    "is_contiguous": (True, False, None),
}


def test_each_property_of_an_interface_is_a_question_with_an_answer() -> None:
    assert (
        PROPERTIES.keys() == ANSWERS.keys() == beside_values._ANSWERS.keys()
        and PROPERTIES.keys() <= TOLD.keys()
    )


@pytest.mark.parametrize("name", ANSWERS)
def test_a_plan_does_not_tell_how_many_there_are(name: str) -> None:
    for matrix in (False, True):
        for value in ANSWERS[name]:
            check(partial(asks, name=name, matrix=matrix, value=value))


def test_a_plan_tells_whether_public_numbers_are_contiguous() -> None:
    check_reaches(partial(asks, name="is_contiguous", matrix=True, value=True))


def writes_chosen(eve: Observer, empty: bool) -> None:
    """A plan writes numbers, none of them in the first world, to what has none."""
    one, other = torch.tensor([-1.0, -1.0]), torch.tensor([1.0, 2.0])
    private = eve.secret(one, other)
    above = eve.call("torch.gt", private, 0)
    found = succeeded(eve.call("torch.Tensor.__getitem__", private, above))
    target = eve.public(torch.zeros(0)) if empty else zeros(eve, 2)
    eve.write_plan(_FIRST, [found], [target])


@pytest.mark.parametrize("empty", [True, False])
def test_a_plan_that_writes_does_not_tell_how_many_there_are(empty: bool) -> None:
    check(partial(writes_chosen, empty=empty))
    check_reaches(partial(writes_chosen, empty=empty))
