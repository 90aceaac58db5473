"""Private chains: strangers convert them, and compute nothing on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import syft as sy
from syft.chain.link import Level, Link
from syft.chain.wrapper import Wrapper, wrap_like
from syft.exceptions import PermissionDenied
from syft.ops.table import BY_NAME, FLAGS, FUNCTIONS, NUMBERS, OF_TWO
from syft.tensors.conversions import FIX_PRECISION, FLOAT_PRECISION
from syft.tensors.fixed.fixed_link import FixedPrecisionTensor
from syft.tensors.fixed.precision import fix_precision
from syft.workers.execution.backward_passes import run_private_pass
from syft.workers.execution.moved_memory import NoHoldings
from syft.workers.execution.predicted_failures import is_predicted
from syft.workers.execution.private_commands import converted, guard_for, run_guarded
from syft.workers.execution.public_facts import _FACTS, Basis
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.labels.reached_graph import reached_graph
from syft.workers.labels.walk import elements_of
from tests.tensors.fixed.blind_ring import BlindRing, blind

ANN = Guard(frozenset({"ann"}))


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


def part(*values: float) -> torch.Tensor:
    """What is part of larger memory, in strange strides, with dimensions of one element."""
    return private(torch.tensor(values).repeat(6, 1).t()[:, None, ::2])


def repeated(*values: float) -> torch.Tensor:
    return private(torch.tensor(values)[:, None, None].expand(-1, 1, 3))


GRAPHS = (plain, leaf, result, part, repeated)
GRIDS = (fixed, fixed_leaf, fixed_result)


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
        if isinstance(tensor, torch.Tensor):
            found += [tensor.stride(), tensor.untyped_storage().nbytes(), tensor._is_view()]
    return found


def convert(conversion: Any) -> Any:
    return lambda x, *args: converted(conversion, x, args, "bob", None)


SMALL = (1.0, 2.0)
Call = tuple[Callable[[Any], Any], Callable[[Any], Any], tuple[float, float]]


def conversions() -> Iterator[Call]:
    """What makes a tensor, a conversion of it, and values for which that fails."""
    for make in (*GRAPHS, *GRIDS):
        yield make, lambda x: convert(FIX_PRECISION)(x, 9, 10), (1.0, 1e11)
    for make in GRAPHS:
        yield make, convert(FIX_PRECISION), (1.0, 1e30)
    for make in GRIDS:
        yield make, convert(FLOAT_PRECISION), (1.0, 1e9)


def shown_of(call: Any, given: torch.Tensor, grad: bool) -> tuple[Any, bool]:
    """What a stranger sees of a conversion and of a backward pass after it, and whether it was
    sealed."""
    with torch.set_grad_enabled(grad):
        made = call(given)
    shown = [facts(made), facts(given)]
    is_sealed = error_of(made) is not None
    if made.requires_grad:
        start = private(torch.ones_like(made.detach()))
        run_private_pass(torch.Tensor.backward, (made, start), {}, ANN, NoHoldings(), "bob", None)
        shown += [facts(each.grad) for each in (made, given) if each.is_leaf]
    return shown, is_sealed


@pytest.mark.parametrize("grad", [True, False])
def test_all_that_is_told_of_what_failed_is_as_if_it_had_succeeded(grad: bool) -> None:
    """Also which leaves get a gradient: the graph leads to where that of a success leads."""
    failed = 0
    for number, (make, call, bad) in enumerate(conversions()):
        one, is_sealed = shown_of(call, make(*SMALL), grad)
        two, failed_here = shown_of(call, make(*bad), grad)
        assert one == two, number
        assert not is_sealed
        failed += failed_here
    assert failed > 10


def test_what_fails_whatever_the_values_are_is_told_and_does_not_run() -> None:
    for x in (plain(1.0), fixed(1.0), leaf(1.0), result(1.0)):
        with pytest.raises(Exception, match="fractional digits") as told:
            convert(FIX_PRECISION)(x, -1)
        assert is_predicted(told.value) and error_of(x) is None


@pytest.mark.parametrize("make", [fixed, lambda *values: logged(torch.tensor(values))])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: run("torch.add", x, y),
        lambda x, y: run("torch.Tensor.add_", x, y),
        lambda x, y: run("torch.Tensor.__getitem__", x, y.bool()),
        lambda x, y: run("torch.Tensor.item", x),
        lambda x, y: run("torch.add", y, 1, out=x),
    ],
)
def test_what_computes_on_a_chain_is_refused_by_name(make: Any, call: Any) -> None:
    """An admitted user goes on as before."""
    x, y = make(1.5), plain(2.0)
    before = elements_of(x)
    with pytest.raises(PermissionDenied, match=r"on a chain \(fixed precision.*before fix_prec"):
        call(x, private(y))
    public = torch.ones(1)
    with pytest.raises(PermissionDenied, match="on a chain"):
        run("torch.add", x, public)
    assert elements_of(x) is before and error_of(x) is None and full_guard_of(public) is None
    assert run("torch.mul", x, y, user="ann").shape == (1,)
    assert run("torch.Tensor.dim", x) == 1


def test_what_a_grid_stands_for_comes_back() -> None:
    x = convert(FIX_PRECISION)(result(1.5, -2.0))
    back = convert(FLOAT_PRECISION)(x)
    assert back.tolist() == [1.5, -2.0] and error_of(back) is None and back.requires_grad


def test_what_is_neither_dense_nor_on_a_grid_is_not_converted(hook: sy.TorchHook) -> None:
    there = torch.ones(2).send(sy.VirtualWorker(hook, id="chains"))
    grid = FixedPrecisionTensor(blind(torch.ones(2), BlindRing()), fixed(1.0).child.grid)
    for x in (
        logged(torch.ones(2)),
        private(sy.LoggingTensor().on(there)),
        private(torch.eye(2).to_sparse()),
        private(wrap_like(grid, torch.ones(2), torch.float32)),
        private(_Nowhere.like(torch.ones(2))),
    ):
        with pytest.raises(PermissionDenied, match="neither dense nor in fixed precision"):
            convert(FIX_PRECISION)(x)
    del there, x


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


def test_a_pass_does_not_come_to_what_comes_later() -> None:
    x = torch.ones(2, requires_grad=True)
    middle = x * 2
    graph = reached_graph([middle])
    assert graph.reaches(middle) and not graph.reaches(middle.sum())
