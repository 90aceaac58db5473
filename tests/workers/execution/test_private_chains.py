"""Commands on private chains: tried on ones first, and then like that whatever the values are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch

import syft as sy
from syft.chain.link import Level, Link
from syft.chain.wrapper import Wrapper, wrap_like
from syft.exceptions import EncodingError, PermissionDenied
from syft.ops.table import BY_NAME, FLAGS, FUNCTIONS, NUMBERS, OF_TWO
from syft.tensors.conversions import FIX_PRECISION, FLOAT_PRECISION
from syft.tensors.fixed.fixed_link import FixedPrecisionTensor
from syft.tensors.fixed.precision import fix_precision, float_precision
from syft.workers.execution.backward_passes import run_private_pass
from syft.workers.execution.foreseen_failures import is_foreseen
from syft.workers.execution.moved_memory import NoHoldings
from syft.workers.execution.plain_tensors import is_plain
from syft.workers.execution.private_chains import (
    NoTwin,
    Overwrites,
    Trial,
    _are_alike,
    converted,
    _plainly,
)
from syft.workers.execution.private_commands import guard_for, run_guarded
from syft.workers.execution.public_facts import _FACTS, Basis
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.labels.reached_graph import reached_graph
from syft.workers.labels.walk import elements_of
from tests.tensors.fixed.blind_ring import BlindRing, blind

ANN = Guard(frozenset({"ann"}))
TOO_LARGE = 1e30


def private(tensor: torch.Tensor, guard: Guard = ANN) -> torch.Tensor:
    protect(tensor, guard)
    return tensor


def fixed(*values: float, grad: bool = False) -> torch.Tensor:
    made = fix_precision(torch.tensor(values))
    return private(made.requires_grad_() if grad else made)


def logged(tensor: torch.Tensor) -> torch.Tensor:
    return private(sy.LoggingTensor().on(tensor))


def run(name: str, *args: Any, user: str | None = None, **kwargs: Any) -> Any:
    """An operation of the table, for a stranger."""
    number, guard = BY_NAME[name], guard_for(list(args), kwargs)
    assert guard is not None
    call = FUNCTIONS[number], list(args), kwargs, FLAGS[number], guard, NoHoldings(), "bob", user
    return run_guarded(*call)


def error_of(tensor: torch.Tensor | None) -> Exception | None:
    guard = full_guard_of(tensor)
    assert guard is not None and guard.users == {"ann"}
    return guard.error


def look(tensor: torch.Tensor) -> Any:
    """What may be seen of a tensor, and what decides what becomes of it."""
    inside = elements_of(tensor)
    assert inside is not None
    flags = tensor.requires_grad, tensor.is_leaf, tensor._is_view(), inside._is_view()
    extents = [(each.shape, each.dtype, each.stride()) for each in (tensor, inside)]
    return type(tensor), extents, flags, inside.untyped_storage().nbytes()


def index_from(values: torch.Tensor) -> torch.Tensor:
    """0 of small numbers, and 10 of large ones."""
    return private((values * 1e-29).long())


CALLS: dict[str, tuple[Any, Any, Any]] = {
    "a sum": (lambda x, y: run("torch.add", x, y), fixed, 2.0),
    "a sum with a graph": (
        lambda x, y: run("torch.add", x, y),
        lambda *values: fixed(*values, grad=True),
        2.0,
    ),
    "in place": (lambda x, y: run("torch.Tensor.add_", x, y), fixed, 2.0),
    "a part": (
        lambda x, y: run("torch.take", x, index_from(y)),
        lambda *values: logged(torch.tensor(values)),
        2.0,
    ),
    "a part with a graph": (
        lambda x, y: run("torch.Tensor.index_select", x, 0, index_from(y)),
        lambda *values: logged(torch.tensor(values, requires_grad=True)),
        2.0,
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_fails_looks_like_what_succeeds(name: str) -> None:
    call, make, value = CALLS[name]
    looks = []
    for other in (value, TOO_LARGE):
        x, y = make(1.0, -1.0), private(torch.full((2,), other))
        result = call(x, private(y))
        assert (error_of(result) is None) is (other == value)
        looks.append((look(result), look(x), result is x))
    assert looks[0] == looks[1]


def leaf(*values: float) -> torch.Tensor:
    return private(torch.tensor(values, requires_grad=True))


def result(*values: float) -> torch.Tensor:
    return private(leaf(*values) * 1)


def plain(*values: float) -> torch.Tensor:
    return private(torch.tensor(values))


def fixed_leaf(*values: float) -> torch.Tensor:
    return fixed(*values, grad=True)


def fixed_result(*values: float) -> torch.Tensor:
    return private(fixed_leaf(*values) * 1)


def logged_leaf(*values: float) -> torch.Tensor:
    return logged(leaf(*values))


def logged_result(*values: float) -> torch.Tensor:
    return logged(result(*values))


def logged_part(*values: float) -> torch.Tensor:
    """What is part of larger memory, in strange strides."""
    return logged(private(torch.tensor(values).repeat(6, 1).t()[:, ::2]))


GRAPHS = (plain, leaf, result)
GRIDS = (fixed, fixed_leaf, fixed_result)
LOGS = (lambda *values: logged(plain(*values)), logged_leaf, logged_result, logged_part)


def facts(tensor: Any) -> list[Any]:
    """The answers to all questions that are answered, about all parts of a chain."""
    found: list[Any] = [type(tensor)]
    while isinstance(tensor, torch.Tensor):
        for function, basis in _FACTS.items():
            if basis is not Basis.SECRET and NUMBERS.get(function) not in OF_TWO:
                try:
                    found.append(function(tensor))
                except Exception as error:
                    found.append(type(error))
        link = tensor.child if isinstance(tensor, Wrapper) else None
        found.append(type(link))
        if link is not None and link.at_function_level:
            tensor = link.tensor_behind()
        else:
            tensor = None if link is None else link.elements()
    return found


def convert(conversion: Any) -> Any:
    return lambda x, *args: converted(conversion, x, args, "bob", None)


SMALL = (1.0, 2.0)
Call = tuple[Callable[[Any], Any], Callable[[Any, Any], Any], tuple[float, float]]


def calls_of_one() -> Iterator[Call]:
    """What makes a tensor, a function of it, and values for which that fails."""
    for make in (*GRAPHS, *GRIDS):
        yield make, lambda x: convert(FIX_PRECISION)(x, 9, 10), (1.0, 1e11)
    for make in GRAPHS:
        yield make, convert(FIX_PRECISION), (1.0, 1e30)
    for make in GRIDS:
        yield make, convert(FLOAT_PRECISION), (1.0, 1e9)
        for name in ("log", "sqrt", "reciprocal", "exp", "inverse", "rsqrt"):
            yield make, partial(run, f"torch.{name}"), (-1.0, 1e9)


def calls_of_two() -> Iterator[tuple[Callable[[Any], Any], *Call]]:
    """The same for functions of two tensors, which fail for values of the second one."""
    for make in GRIDS:
        for other in (*GRAPHS, *GRIDS):
            bad = (0.0, 1e30 if other in GRAPHS else 1e9)
            for name in ("add", "sub", "mul", "div", "pow", "maximum", "matmul", "dot"):
                yield make, other, partial(run, f"torch.{name}"), bad
            for name in ("add_", "sub_", "mul_", "div_", "copy_"):
                yield make, other, partial(run, f"torch.Tensor.{name}"), bad
    for make in (*GRIDS, *LOGS):
        for name in ("take", "gather", "index_select"):
            place = () if name == "take" else (0,)
            yield make, plain, partial(_at_places, f"torch.{name}", place), (1.0, 1e30)
    for make in LOGS:
        for other in LOGS:
            for name in ("torch.Tensor.index_add_", "torch.Tensor.index_copy_"):
                yield make, other, partial(_into_places, name), (1.0, 1e30)


def _at_places(name: str, place: Any, x: Any, y: Any) -> Any:
    return run(name, x, *place, index_from(y))


def _into_places(name: str, x: Any, y: Any) -> Any:
    return run(name, x, 0, index_from(y.detach()), y)


def shown_of(call: Any, *given: torch.Tensor) -> tuple[Any, bool]:
    """What a stranger sees of a call and of a backward pass after it, and whether it was sealed."""
    try:
        made = call(*given)
    except Exception as error:
        assert is_foreseen(error) or isinstance(error, PermissionDenied)
        return (type(error), str(error)), False
    shown = [facts(each) for each in (made, *given)]
    is_sealed = error_of(made) is not None
    if made.requires_grad:
        loss = run("torch.sum", made)
        guard = full_guard_of(loss)
        assert guard is not None
        run_private_pass(torch.Tensor.backward, (loss,), {}, guard, NoHoldings(), "bob", None)
        shown += [facts(each.grad) for each in given if each.is_leaf]
    return shown, is_sealed


def test_all_that_is_told_of_what_failed_is_as_if_it_had_succeeded() -> None:
    """Also which leaves get a gradient: the graph leads to where that of a success leads."""
    given: list[tuple[Any, list[tuple[torch.Tensor, ...]]]] = [
        (call, [(make(*values),) for values in (SMALL, bad)]) for make, call, bad in calls_of_one()
    ]
    given += [
        (call, [(make(*SMALL), other(*values)) for values in (SMALL, bad)])
        for make, other, call, bad in calls_of_two()
    ]
    failed = 0
    for number, (call, operands) in enumerate(given):
        (one, _), (two, is_sealed) = (shown_of(call, *each) for each in operands)
        assert one == two, (number, call, operands)
        failed += is_sealed
    assert failed > 100


def test_a_result_is_what_the_chain_computes() -> None:
    x, y = fixed(1.5, -2.0), private(torch.tensor([2.0, 3.0]))
    result = run("torch.mul", x, y)
    assert float_precision(result).tolist() == [3, -6] and error_of(result) is None
    assert run("torch.gt", x, 0.0).tolist() == [True, False]


@pytest.mark.parametrize("make", [fixed, lambda *v, grad: logged(torch.tensor(v).requires_grad_())])
def test_a_pass_from_what_failed_leaves_zeros(make: Any) -> None:
    x = make(1.0, 2.0, grad=True)
    index = private(torch.tensor([7, 0]))
    result = run("torch.take", x, index)
    assert error_of(result) is not None and result.requires_grad
    loss = run("torch.sum", result)
    guard = full_guard_of(loss)
    assert guard is not None
    run_private_pass(torch.Tensor.backward, (loss,), {}, guard, NoHoldings(), "bob", None)
    gradient = x.grad
    assert gradient is not None and gradient.shape == (2,)
    assert error_of(gradient) is not None


@pytest.mark.parametrize("kind", ["fixed", "logged", "plain"])
def test_what_failed_leads_to_public_leaves_too(kind: str) -> None:
    index = private(torch.tensor([7, 0]))
    leaf = torch.ones(3, requires_grad=True)
    x: Any = {
        "fixed": lambda: fix_precision(torch.ones(3)).requires_grad_(),
        "logged": lambda: sy.LoggingTensor().on(leaf),
        "plain": lambda: leaf,
    }[kind]()
    result = run("torch.take", x, logged(index) if kind == "plain" else index)
    guard = full_guard_of(result)
    assert guard is not None and guard.error is not None and result.requires_grad
    loss = run("torch.sum", result)
    run_private_pass(torch.Tensor.backward, (loss,), {}, guard, NoHoldings(), "bob", None)
    assert error_of(x.grad) is not None and full_guard_of(x) is None


def test_a_public_operand_is_neither_tried_on_nor_returned() -> None:
    x, statistics = logged(torch.ones(2, 3)), torch.zeros(3)
    with pytest.raises(PermissionDenied, match="writes private values to public ones"):
        run("torch.nn.functional.batch_norm", x, statistics, torch.ones(3), training=True)
    assert statistics.tolist() == [0, 0, 0] and full_guard_of(statistics) is None
    public = torch.ones(3)
    same = run("torch.Tensor.type_as", public, x)
    assert error_of(elements_of(same)) is None and full_guard_of(public) is None


def test_what_fails_with_ones_is_told_and_does_not_run() -> None:
    x = fixed(1.0, 2.0)
    before = elements_of(x)
    with pytest.raises(
        RuntimeError, match=r"size.*\(tried with ones in the place of private"
    ) as no:
        run("torch.Tensor.add_", logged(torch.ones(2)), private(torch.ones(3)))
    assert is_foreseen(no.value)
    with pytest.raises(EncodingError) as told:
        run("torch.Tensor.add_", x, TOO_LARGE)
    assert is_foreseen(told.value) and elements_of(x) is before and error_of(x) is None


class Strange(sy.LocalLink):
    """A link whose results follow from the values in ways that they should not."""


@Strange.rule(torch.neg)
def _neg(operation: Any, args: Any, kwargs: Any) -> Any:
    (x,) = args
    made = {1: x + 1, 2: x.expand(3, 2) + 1, 3: [x, x], 4: x.double(), 5: 7}
    return made[int(x[0].item())]


@Strange.rule(torch.add)
def _add(operation: Any, args: Any, kwargs: Any) -> Any:
    return args[1].add_(args[0])


@pytest.mark.parametrize("value", [2.0, 3.0, 4.0, 6.0])
def test_what_makes_anything_else_than_the_trial_is_sealed(value: float) -> None:
    x = private(Strange().on(torch.full((2,), value)))
    result = run("torch.neg", x)
    assert result.shape == (2,) and result.dtype is torch.float32
    assert error_of(result) is not None


def test_what_may_be_read_and_what_has_no_twin(hook: sy.TorchHook) -> None:
    with pytest.raises(PermissionDenied, match="returns its value"):
        run("torch.Tensor.item", fixed(1.0))
    there = torch.ones(2).send(sy.VirtualWorker(hook, id="chains"))
    with pytest.raises(PermissionDenied, match="cannot be tried"):
        run("torch.mul", there, private(torch.tensor(2.0)))
    with pytest.raises(NoTwin):
        Trial(torch.mul, (private(sy.LoggingTensor().on(there)), 2), {})
    hidden = private(sy.LoggingTensor().on(torch.ones(2)), Guard(ANN.users, shape_hidden=True))
    with pytest.raises(PermissionDenied, match="a chain and a private shape"):
        run("torch.neg", hidden)
    del there


def test_a_public_stream_of_random_numbers_stays_where_it_is() -> None:
    x = logged(torch.full((4,), 0.5))
    before = torch.get_rng_state()
    assert run("torch.bernoulli", x).shape == (4,)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_shape_that_follows_from_values_is_hidden() -> None:
    x = logged(torch.tensor([1.0, -1.0, 2.0]))
    chosen = run("torch.masked_select", x, private(torch.tensor([True, False, True])))
    guard = full_guard_of(chosen)
    assert guard is not None and guard.shape_hidden and guard.error is None
    assert chosen.child.tensor.tolist() == [1, 2]


def test_plain_results_have_one_form() -> None:
    base = private(torch.ones(3, 4))
    result = _plainly(base[:, 1:])
    assert is_plain(result, 36) and full_guard_of(result) == ANN
    assert _plainly(None) is None


def test_a_write_that_changes_a_shape_and_fails_half_way() -> None:
    """What it is written to gets the shape that it would have."""

    def resize(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        x.unsqueeze_(0)
        return x.add_(torch.ones(2)[by.long()])

    shapes = []
    for index in (0, 7):
        x, by = logged(torch.ones(2)), private(torch.tensor([index]))
        trial = Trial(resize, (x, by), {})
        trial.run(lambda x=x, by=by: resize(x, by), [x], ANN)
        shapes.append((x.shape, error_of(x) is None))
    assert shapes == [((1, 2), True), ((1, 2), False)]

    def fail(x: torch.Tensor) -> torch.Tensor:
        if x.child.tensor[0].item() == 1:
            return x.unsqueeze_(0)
        raise ValueError

    x = logged(torch.full((2,), 3.0))
    trial = Trial(fail, (x,), {})
    assert trial.run(lambda: fail(x), [x], ANN) is x and x.shape == (1, 2)


def test_a_trial_that_writes_to_a_public_operand() -> None:
    public, x = torch.zeros(1), logged(torch.ones(1))

    def write(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return target.add_(1)

    with pytest.raises(Overwrites):
        Trial(write, (x, public), {})
    assert public.item() == 0


OTHERS: dict[str, Any] = {
    "another tensor": lambda x: x if is_one(x) else x + 1,
    "a plain one": lambda x: x + 1 if is_one(x) else x.child.tensor + 1,
    "another link": lambda x: x + 1 if is_one(x) else private(Strange().on(torch.ones(2))),
    "nothing": lambda x: None if is_one(x) else [][0],
}


def is_one(x: Any) -> bool:
    return bool(x.child.tensor[0].item() == 1)


@pytest.mark.parametrize("name", OTHERS)
def test_results_of_another_kind_are_sealed(name: str) -> None:
    x = logged(torch.full((2,), 3.0))
    trial = Trial(OTHERS[name], (x,), {})
    result = trial.run(lambda: OTHERS[name](x), (), ANN)
    assert type(result) is type(trial.result)
    assert result is None or error_of(result) is not None


def test_what_returns_a_number_for_some_values_is_sealed() -> None:
    result = run("torch.neg", private(Strange().on(torch.full((2,), 5.0))))
    assert error_of(result) is not None


def test_what_writes_to_a_public_operand_is_refused_by_the_command() -> None:
    x = private(Strange().on(torch.ones(2)))
    with pytest.raises(PermissionDenied, match="writes private values to public ones"):
        run("torch.add", x, torch.zeros(2))


def test_a_gradient_that_cannot_be_moved_refuses_the_pass() -> None:
    leaf = torch.ones(2, requires_grad=True)
    leaf.grad = torch.zeros(2)
    other = sy.LoggingTensor().on(leaf.grad)

    class Sharing(NoHoldings):
        def sharing(self, places: Any) -> tuple[torch.Tensor, ...]:
            return (other,)

    loss = private((leaf * 2).sum())
    number = BY_NAME["torch.Tensor.backward"]
    call = FUNCTIONS[number], [loss], {}, FLAGS[number], ANN, Sharing(), "bob", None
    with pytest.raises(PermissionDenied, match="a chain or a tensor of another kind shares"):
        run_guarded(*call)
    assert leaf.grad.tolist() == [0, 0]


def test_a_gradient_without_memory_here_is_as_private_as_its_leaf() -> None:
    leaf = torch.ones(2, requires_grad=True)
    leaf.grad = torch.zeros(2)
    assert full_guard_of(run("torch.Tensor.grad.__get__", private(leaf))) is None
    x = fixed(1.0, grad=True)
    x.grad = _Nowhere.like(x)
    found = run("torch.Tensor.grad.__get__", x)
    assert full_guard_of(found) == ANN


class _Nowhere(Link):
    """A link below autograd that does not say where its elements are."""

    level = Level.DISPATCH

    @classmethod
    def like(cls, tensor: torch.Tensor) -> torch.Tensor:
        return wrap_like(cls(), tensor.detach(), torch.float32)


def test_what_is_known_of_elements_that_are_elsewhere() -> None:
    """A grid over a ring that nobody may read has no twin; a link without elements has no form."""
    over_ring = FixedPrecisionTensor(blind(torch.ones(2), BlindRing()), fixed(1.0).child.grid)
    assert over_ring.with_ones() is None
    x = fixed(1.0)
    assert _are_alike(_Nowhere.like(x), _Nowhere.like(x)) and not _are_alike(_Nowhere.like(x), x)


def test_a_pass_does_not_come_to_what_comes_later() -> None:
    x = torch.ones(2, requires_grad=True)
    middle = x * 2
    graph = reached_graph([middle])
    assert graph.reaches(middle) and not graph.reaches(middle.sum())
