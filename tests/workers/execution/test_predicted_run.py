"""Private commands that run as their predictions say, whatever the values are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.ops.evaluate import _look, evaluate
from syft.ops.outcome import Made, Outcome, Verdict
from syft.workers.execution.hidden_shapes import hidden_prediction
from syft.workers.execution.moved_memory import NoHoldings
from syft.workers.execution.predicted_run import run_predicted, with_own_streams
from syft.workers.execution.public_sizes import note_sizes
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect

ANN = Guard(frozenset({"ann"}))


def private(tensor: torch.Tensor) -> torch.Tensor:
    protect(tensor, ANN)
    return tensor


def run(function: Any, *args: Any, like: Any = None, guard: Guard = ANN, **kwargs: Any) -> Any:
    """Run a call by its prediction, or by that of ``like``."""
    prediction = evaluate(like or function, args, kwargs)
    return run_predicted(function, args, kwargs, prediction, guard, NoHoldings())


def error_of(tensor: torch.Tensor) -> Exception | None:
    guard = full_guard_of(tensor)
    assert guard is not None and guard.users == {"ann"}
    return guard.error


def test_a_result_is_private_and_its_inputs_are_as_they_were() -> None:
    x, secret = torch.ones(2), private(torch.tensor([1.0, 2.0]))
    result = run(torch.add, x, secret)
    assert result.tolist() == [2, 3] and error_of(result) is None
    assert full_guard_of(x) is None


def test_what_is_written_is_private_even_if_the_call_fails_half_way() -> None:
    index, out = private(torch.tensor([1, 7])), torch.zeros(2)
    view = out[:1]
    result = run(torch.take, torch.arange(4.0), index, out=out)
    assert type(error_of(result)) is IndexError
    assert type(error_of(result[:1])) is IndexError, "its memory is as private"
    assert out.tolist() == [0, 0] and full_guard_of(out) is full_guard_of(view) is None


VIEWING: dict[str, Any] = {
    "view_as": lambda x, secret: (torch.Tensor.view_as, x, secret),
    "expand_as": lambda x, secret: (torch.Tensor.expand_as, x, secret),
    "type_as": lambda x, secret: (torch.Tensor.type_as, x, secret),
    "to": lambda x, secret: (torch.Tensor.to, x, secret),
    "broadcast": lambda x, secret: (torch.broadcast_tensors, secret, x),
    "atleast": lambda x, secret: (torch.atleast_3d, secret, x),
}


@pytest.mark.parametrize("leaf", [False, True], ids=["plain", "leaf"])
@pytest.mark.parametrize("case", VIEWING.values(), ids=VIEWING)
def test_a_result_that_is_a_view_of_public_memory_is_as_public(case: Any, leaf: bool) -> None:
    """As in torch, what is written to one of the two shows in the other, and gradients go on."""
    public, secret = torch.ones(2, 3, requires_grad=leaf), private(torch.zeros(2, 3))
    result = run(*case(public, secret))
    one = result if isinstance(result, torch.Tensor) else result[1]
    assert full_guard_of(one) is None and full_guard_of(public) is None
    with torch.no_grad():
        public.add_(1)
        one.mul_(3)
    assert public.flatten().tolist() == one.flatten().tolist() == [6] * 6
    if not isinstance(result, torch.Tensor):
        assert full_guard_of(result[0]) is not None
    if leaf:
        (one * 2).sum().backward()
        assert public.grad is not None and public.grad.tolist() == [[2] * 3] * 2


def test_a_view_that_follows_from_values_is_a_private_copy() -> None:
    """Where it lies would tell."""

    def picked(x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        return x.narrow(0, int(place), 1)

    public, secret = torch.arange(3.0), private(torch.tensor(2))
    made = Made((1,), (1,), torch.float32, public.device, False, (), 0, 12, (1,))
    prediction = Outcome(Verdict.RUNS, made)
    result = run_predicted(picked, (public, secret), {}, prediction, ANN, NoHoldings())
    assert result.tolist() == [2] and error_of(result) is None and full_guard_of(public) is None


def test_what_fails_leaves_zeros_as_they_were_predicted() -> None:
    index = private(torch.tensor([5]))
    table = torch.ones(3, 2, requires_grad=True)
    result = run(torch.nn.functional.embedding, index, table)
    assert result.tolist() == [[0, 0]] and result.requires_grad
    assert type(error_of(result)) is IndexError
    result.sum().backward()
    assert table.grad is not None and table.grad.tolist() == [[0, 0]] * 3


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_what_is_resized_looks_the_same_if_that_failed(size: int) -> None:
    """Torch refuses a negative deviation before it resizes what it writes to."""
    looks = []
    for deviation in (1.0, -1.0):
        out, mean = private(torch.zeros(2, 2)), torch.zeros(size)
        result = run(torch.normal, mean, private(torch.full((size,), deviation)), out=out)
        assert result is out and (error_of(out) is None) is (deviation > 0)
        looks.append(_look(out, {}))
    assert looks[0] == looks[1]


def test_what_is_written_has_the_strides_of_the_prediction() -> None:
    out, x = private(torch.zeros(0)), private(torch.arange(6.0).view(2, 3))
    result = run(lambda x, out: torch.add(x.t(), 0, out=out), x, out, like=in_rows)
    assert result is out and out.stride() == (2, 1) and out.tolist() == [[0, 3], [1, 4], [2, 5]]


def in_rows(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.add(x.t().contiguous(), 0, out=out)


def test_what_comes_of_what_failed_has_failed() -> None:
    sealed = ANN.sealed(ValueError("7"))
    x = torch.zeros(2)
    protect(x, sealed)
    result = run(torch.add, x, 1, guard=sealed)
    assert result.shape == (2,) and type(error_of(result)) is ValueError
    made = run(fail, x, like=torch.exp, guard=sealed)
    assert made.shape == (2,) and str(error_of(made)) == "7", "the first failure counts"


def test_several_results_fail_together() -> None:
    def fails(x: torch.Tensor, dim: int) -> Any:
        raise IndexError("1234")

    x = private(torch.ones(2, 3))
    values, indices = run(fails, x, 1, like=torch.max)
    assert values.shape == indices.shape == (2,) and indices.dtype is torch.int64
    assert type(error_of(values)) is type(error_of(indices)) is IndexError


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, dim: x,
        lambda x, dim: (x.sum(dim), x),
        lambda x, dim: None,
        lambda x, dim: x.sum(dim).double(),
        lambda x, dim: x.sum(dim).requires_grad_(),
        lambda x, dim: [x.sum(dim)],
        lambda x, dim: 3,
    ],
)
def test_a_result_that_was_not_predicted_is_none(wrong: Any) -> None:
    result = run(wrong, private(torch.ones(2, 3)), 1, like=torch.sum)
    assert result.tolist() == [0, 0] and type(error_of(result)).__name__ == "Unpredicted"


def test_an_input_or_none_that_was_not_predicted() -> None:
    x = private(torch.ones(2))
    result = run(lambda x: x.clone(), x, like=lambda x: x.requires_grad_(False))
    assert result is x and type(error_of(x)).__name__ == "Unpredicted"
    assert run(lambda x: x, private(torch.ones(2)), like=lambda x: None) is None


def test_results_are_laid_out_as_predicted() -> None:
    x = private(torch.arange(6.0).view(2, 3))
    result = run(lambda x: (x + 1).t().contiguous().t(), x, like=lambda x: x + 1)
    assert result.stride() == (3, 1) and result.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_random_numbers_leave_the_public_stream_as_it_was() -> None:
    torch.manual_seed(0)
    before = torch.default_generator.get_state()
    drawn = [run(torch.bernoulli, private(torch.full((50,), 0.5))) for _ in range(2)]
    assert torch.equal(torch.default_generator.get_state(), before)
    assert not torch.equal(*drawn)


def test_a_generator_that_is_given_twice_is_one_stream() -> None:
    given = torch.Generator().manual_seed(5)
    (one, other), named = with_own_streams([given, given], {"generator": given}, ANN)
    assert one is other is named["generator"] and one is not given
    assert torch.rand(1, generator=one) != torch.rand(1, generator=other), "it goes on"


# ------------------------------------------------------------ writes that change more than values


def fail(*args: Any) -> Any:
    """A call that fails because of values."""
    raise ValueError("1234")


def test_what_would_have_got_a_graph_gets_one() -> None:
    target, weight = torch.ones(2), torch.ones(2, requires_grad=True)
    result = run(fail, target, weight, private(torch.ones(2)), like=_multiply)
    assert result.requires_grad and result.grad_fn is not None and not target.requires_grad
    result.sum().backward()
    assert weight.grad is not None and weight.grad.tolist() == [0, 0]
    assert type(error_of(result)) is ValueError and full_guard_of(target) is None


def _multiply(target: torch.Tensor, weight: torch.Tensor, secret: torch.Tensor) -> torch.Tensor:
    return target.mul_(weight).mul_(secret)


def test_what_would_have_got_another_shape_gets_it() -> None:
    target = private(torch.ones(2, 3))
    run(fail, target, like=torch.Tensor.t_)
    assert target.shape == (3, 2) and target.tolist() == [[0, 0]] * 3
    leaf = private(torch.ones(2))
    run(fail, leaf, like=torch.Tensor.requires_grad_)
    assert leaf.requires_grad and leaf.is_leaf


def test_a_write_that_was_not_predicted_is_a_failure() -> None:
    target = private(torch.ones(2, 3))
    run(lambda x: x, target, like=torch.Tensor.t_)
    assert target.shape == (3, 2) and type(error_of(target)).__name__ == "Unpredicted"


def test_what_is_written_with_a_hidden_shape_gets_its_number_of_dimensions() -> None:
    hidden = Guard(ANN.users, shape_hidden=True)
    x, out = torch.ones(2), torch.zeros(2, 2)
    for tensor in (x, out):
        protect(tensor, hidden)
    call = (x, 1), {"out": out}
    prediction = hidden_prediction(torch.add, *call)

    def add(x: torch.Tensor, one: int, out: torch.Tensor) -> torch.Tensor:
        raise ValueError

    result = run_predicted(add, *call, prediction, hidden, NoHoldings())
    assert result is out and out.ndim == 1 and type(error_of(out)) is ValueError


def test_a_copy_where_a_view_was_predicted_is_no_result() -> None:
    hidden, guard = torch.ones(3), Guard(frozenset({"ann"}), shape_hidden=True)
    protect(hidden, guard)
    note_sizes(hidden, (7,))
    prediction = hidden_prediction(torch.Tensor.unsqueeze, [hidden, 0], {})

    def copied(x: torch.Tensor, dim: int) -> torch.Tensor:
        return x.unsqueeze(dim).clone()

    found = run_predicted(copied, [hidden, 0], {}, prediction, guard, NoHoldings())
    assert "in memory of its own instead of a view" in str(error_of(found))
    assert hidden.tolist() == [1, 1, 1]


def test_a_graph_that_was_not_predicted_is_no_result() -> None:
    """A backward pass would leave no gradient where one is expected, as a private size says."""
    hidden, guard = torch.ones(3), Guard(frozenset({"ann"}), shape_hidden=True)
    protect(hidden, guard)
    note_sizes(hidden, (7,))
    weight = torch.ones(1, requires_grad=True)
    prediction = hidden_prediction(torch.mul, [hidden, weight], {})

    def cut(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (x * weight.detach()).requires_grad_() * 1

    found = run_predicted(cut, [hidden, weight], {}, prediction, guard, NoHoldings())
    assert "a result with another graph" in str(error_of(found)) and found.requires_grad
    right = run_predicted(torch.mul, [hidden, weight], {}, prediction, guard, NoHoldings())
    assert error_of(right) is None and right.tolist() == [1, 1, 1]


def test_a_view_that_needs_other_values_is_as_private_as_they_are() -> None:
    def picky(x: torch.Tensor, secret: torch.Tensor) -> torch.Tensor:
        if secret.min() < 5:
            raise ValueError("too small")
        return x.view_as(secret)

    x, secret = torch.tensor([1.0, 2.0]), private(torch.tensor([5.0, 7.0]))
    result = run(picky, x, secret, like=torch.Tensor.view_as)
    assert result.tolist() == [1, 2] and error_of(result) is None
    assert full_guard_of(x) is None
    plain = run(torch.Tensor.view_as, x, secret)
    assert full_guard_of(plain) is None, "the control: of other values it is the same"
