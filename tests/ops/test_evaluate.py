"""Predictions: what a call will do, from the looks of its tensors alone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from syft.ops import evaluate as module
from syft.ops.evaluate import evaluate
from syft.ops.nested import tensors_in
from syft.ops.outcome import Given, Made, Outcome, Verdict
from syft.ops.table import ALTERS, FLAGS, FUNCTIONS, INPLACE


def of(function: Any, *args: Any, public: tuple[Any, ...] = (), **kwargs: Any) -> Outcome:
    """A prediction, in which the values of the ``public`` arguments may be read."""
    return evaluate(function, args, kwargs, lambda x: any(x is one for one in public))


def test_a_result_is_known_but_for_its_values() -> None:
    x, w = torch.ones(2, 3), torch.ones(3, 4, requires_grad=True)
    prediction = of(torch.matmul, x, w)
    assert prediction.verdict is Verdict.RUNS and not prediction.draws and prediction.writes == ()
    made = Made((2, 4), (4, 1), torch.float32, torch.device("cpu"), True, (1,), -1, 32, (2, 4))
    assert prediction.result == made
    with torch.no_grad():
        assert not of(torch.matmul, x, w).result.requires_grad


def test_whether_a_result_lies_in_the_memory_of_an_input() -> None:
    x = torch.ones(2, 3)
    assert of(torch.Tensor.view, x, 6).result.shares and of(torch.Tensor.t, x).result.shares
    assert of(torch.Tensor.contiguous, x).result == Given(0)
    assert not of(torch.Tensor.contiguous, x.t()).result.shares


def test_whether_a_view_may_be_written() -> None:
    """What was predicted of one view does not count for another that looks like it."""
    x = torch.ones(2, 3, requires_grad=True)
    with torch.no_grad():
        without_graph = (x * 1)[0]
    views = [x[0], (x * 1).unbind()[0], without_graph, (x * 1)[0], (x * 1)[0].detach()]
    found = []
    for view in views:
        prediction = evaluate(torch.Tensor.add_, (view, x[1].exp()), {})
        found.append(prediction.verdict)
        if prediction.verdict is Verdict.FAILS:
            with pytest.raises(prediction.failure[0]):
                view.add_(x[1].exp())
        else:
            view.add_(x[1].exp())
    assert found == [Verdict.FAILS] * 3 + [Verdict.RUNS] * 2


def _in_place() -> Iterator[Any]:
    """The operations on two tensors that write the first one and leave its shape."""
    for number, flags in enumerate(FLAGS):
        if flags & INPLACE and not flags & ALTERS and (function := FUNCTIONS[number]) is not None:
            try:
                function(torch.ones(5, 1), torch.ones(5, 1))
            except Exception:  # it takes other operands
                continue
            yield function


def test_no_write_in_place_enlarges_its_target() -> None:
    """Decompositions of torch do that in some operations, where torch raises."""
    tried = 0
    for function in _in_place():
        target, other = torch.ones(5, 1), torch.ones(5)
        prediction = of(function, target, other)
        try:
            function(target, other)
        except Exception:
            tried += 1
            assert prediction.verdict is Verdict.FAILS or not prediction.changed, function
        assert target.shape == (5, 1)
    assert tried > 40


def test_results_are_nested_as_they_will_be() -> None:
    x = torch.ones(2, 3)
    result = of(torch.max, x, 1).result
    assert type(result) is torch.return_types.max and result.indices.dtype is torch.int64
    assert [made.shape for made in of(torch.split, x, 2, 1).result] == [(2, 2), (2, 1)]
    assert of(torch.Tensor.requires_grad_, x, False).result == Given(0)
    assert of(torch.Tensor.grad.__get__, x).result is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("call", "writes"),
    [
        ((torch.Tensor.add_, "x", "y"), (0,)),
        ((torch.Tensor.copy_, "x", "y"), (0,)),
        ((torch._foreach_mul_, ["x", "y"], 2.0), (0, 1)),
        ((torch.Tensor.t_, "x"), (0,)),
        ((torch.add, "x", "y"), ()),
        ((torch.nn.functional.relu, "x", True), (0,)),
    ],
)
def test_what_is_written_is_known(call: Any, writes: tuple[int, ...]) -> None:
    tensors = {"x": torch.ones(3, 3), "y": torch.ones(3, 3)}

    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(item) for item in value]
        return tensors.get(value, value) if isinstance(value, str) else value

    function, *args = map(filled, call)
    assert of(function, *args).writes == writes
    assert of(torch.add, tensors["x"], 1, out=tensors["y"]).writes == (1,)


def test_a_view_of_what_is_written_is_written_too() -> None:
    x = torch.ones(3)
    assert of(torch._foreach_add_, [x[:2]], [x[1:]]).writes == (0, 1)


@pytest.mark.parametrize("training", [True, False])
def test_running_statistics_are_written_in_training(training: bool) -> None:
    x, mean, variance = torch.ones(4, 2), torch.zeros(2), torch.ones(2)
    prediction = of(torch.nn.functional.batch_norm, x, mean, variance, training=training)
    assert prediction.writes == ((1, 2) if training else ())


def test_what_a_write_changes_besides_values() -> None:
    x, w = torch.ones(2), torch.ones(2, requires_grad=True)
    ((place, after),) = of(torch.Tensor.mul_, x, w).changed
    assert place == 0 and after.requires_grad and after.reaches == (1,)
    ((_, turned),) = of(torch.Tensor.t_, torch.ones(2, 3)).changed
    assert turned.shape == (3, 2)
    assert of(torch.Tensor.mul_, x, 2).changed == ()


def test_random_numbers_are_predicted() -> None:
    x = torch.ones(3)
    assert of(torch.bernoulli, x).draws and of(torch.Tensor.normal_, x).draws
    assert not of(torch.dropout, x, 0.5, False).draws and of(torch.dropout, x, 0.5, True).draws
    generator = torch.Generator()
    assert of(torch.bernoulli, x, generator=generator).draws


@pytest.mark.parametrize(
    ("function", "args", "error"),
    [
        (torch.add, (torch.ones(2), torch.ones(3)), RuntimeError),
        (torch.sum, (torch.ones(2), 5), IndexError),
        (torch.Tensor.add_, (torch.ones(1), torch.ones(3)), RuntimeError),
        (torch.Tensor.copysign_, (torch.ones(1), torch.ones(3)), RuntimeError),
        (torch.Tensor.view, (torch.ones(2), 7), RuntimeError),
    ],
)
def test_a_failure_that_shapes_decide(function: Any, args: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        function(*args)
    prediction = of(function, *args)
    assert prediction.verdict is Verdict.FAILS
    kind, text = prediction.failure
    assert kind is error and text and "0x" not in text


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (torch.Tensor.item, (torch.ones(1),)),
        (torch.Tensor.__getitem__, (torch.ones(3), torch.tensor(1))),
        (torch.zeros, (torch.tensor(3),)),
        (torch.equal, (torch.ones(2), torch.ones(2))),
        (torch.tensor_split, (torch.ones(3), torch.tensor([1]))),
        (torch.Tensor.dim, (torch.ones(3),)),
    ],
)
def test_a_value_that_is_read_or_returned(function: Any, args: Any) -> None:
    assert of(function, *args).verdict is Verdict.READS


def test_a_public_number_may_be_read() -> None:
    x, index = torch.arange(3.0), torch.tensor(1)
    assert of(torch.Tensor.__getitem__, x, index, public=(index,)).result.shape == ()
    assert of(torch.zeros, torch.tensor(3), public=(x,)).verdict is Verdict.READS
    sizes = [torch.tensor(3), torch.tensor(4)]
    shapes = [evaluate(torch.zeros, (n,), {}, lambda x: True).result.shape for n in sizes]
    assert shapes == [(3,), (4,)]
    failure = of(torch.Tensor.__getitem__, x, torch.tensor(7), public=(x,))
    assert failure.verdict is Verdict.READS, "the index is not public"


def _masked(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0]


def _least_squares(x: torch.Tensor) -> Any:
    return torch.linalg.lstsq(x.view(3, 1), x.view(3, 1))


@pytest.mark.parametrize("function", [torch.nonzero, torch.unique, _masked, _least_squares])
def test_shapes_that_follow_from_values(function: Any) -> None:
    assert of(function, torch.ones(3)).verdict is Verdict.RESIZES


def _shrink(x: torch.Tensor) -> None:
    x.data = x[x > 0]


def test_a_shape_that_follows_from_values_has_a_number_of_dimensions() -> None:
    prediction = of(torch.nonzero, torch.ones(3))
    assert prediction.result.shape == (-1, 1) and prediction.result.dtype is torch.int64
    assert prediction.is_complete and not of(_least_squares, torch.ones(3)).is_complete
    shrunk = of(_shrink, torch.ones(3))
    assert shrunk.verdict is Verdict.RESIZES and not shrunk.is_complete


def test_what_torch_cannot_tell() -> None:
    assert of(torch.geqrf, torch.ones(2, 2)).verdict is Verdict.UNKNOWN
    assert of(torch.Tensor.to_sparse, torch.ones(2)).verdict is Verdict.UNKNOWN
    view = torch.eye(2).to_sparse().coalesce().values()
    assert of(torch.Tensor.neg, view).verdict is Verdict.UNKNOWN


def test_results_that_are_not_strided_are_not_predicted() -> None:
    def sparse(x: torch.Tensor) -> torch.Tensor:
        return torch.sparse_coo_tensor(torch.zeros(1, 1, dtype=torch.int64), x, (2,))

    assert of(sparse, torch.ones(1)).verdict is Verdict.UNKNOWN


def test_an_error_of_the_fake_tensors_is_none_of_the_call() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("not for meta tensors")

    assert of(fails, torch.ones(1)).verdict is Verdict.UNKNOWN


def test_an_error_of_a_class_of_its_own_is_told_as_a_runtime_error() -> None:
    class Own(Exception):
        """An error that no client knows."""

    def fails(x: torch.Tensor) -> torch.Tensor:
        raise Own(f"at 0x7f00 of {tuple(x.shape)}")

    assert of(fails, torch.ones(2)).failure == (RuntimeError, "at  of (2,)")


# ------------------------------------------------------------------------------------- signatures


def test_equal_calls_share_a_prediction_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: OrderedDict[Any, Any] = OrderedDict()
    monkeypatch.setattr(module, "_KEPT", kept)
    x = torch.ones(2, 3)

    def number(function: Any, *args: Any, **kwargs: Any) -> int:
        evaluate(function, args, kwargs)
        return len(kept)

    assert number(torch.add, x, 1) == number(torch.add, x * 5, 1) == 1
    same = [
        (torch.add, (x, 2), {}),
        (torch.add, (x, 1.0), {}),
        (torch.pow, (x, 0.0), {}),
        (torch.pow, (x, -0.0), {}),
        (torch.add, (x, True), {}),
        (torch.add, (x, x), {}),
        (torch.add, (x, x.clone()), {}),
        (torch.add, (x, x[:]), {}),
        (torch.add, (x.t(), 1), {}),
        (torch.add, (x.double(), 1), {}),
        (torch.add, (x.clone().requires_grad_(), 1), {}),
        (torch.add, (x.clone().requires_grad_() * 1, 1), {}),
        (torch.add, (x[:1], 1), {}),
        (torch.add, (x[1:], 1), {}),
        (torch.sum, (x, [0]), {}),
        (torch.sum, (x, (0,)), {}),
        (torch.sum, (x,), {"dim": 0}),
        (torch.sum, (x,), {"dim": 0, "dtype": torch.float64}),
        (torch.Tensor.__getitem__, (x, slice(1)), {}),
    ]
    before = len(kept)
    for count, (function, args, kwargs) in enumerate(same, before + 1):
        assert number(function, *args, **kwargs) == count
    with torch.no_grad():
        assert number(torch.add, x, 1) == before + len(same) + 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert number(torch.add, x, 1) == before + len(same) + 2
    assert number(torch.bernoulli, x, generator=torch.Generator()) == len(kept)
    monkeypatch.setattr(module, "_MOST_KEPT", 5)
    number(torch.neg, x)
    assert len(kept) <= before + len(same) + 3


def test_the_latest_predictions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_KEPT", 2)
    kept: OrderedDict[Any, Any] = OrderedDict()
    monkeypatch.setattr(module, "_KEPT", kept)
    x = torch.ones(2)
    made: list[Any] = []
    original = module._made_of
    monkeypatch.setattr(module, "_made_of", lambda call: made.append(call) or original(call))
    for dim in (1, 2, 1, 3, 1, 2):
        evaluate(torch.mul, (x, dim), {})
    assert len(kept) == 2 and [call.args[1] for call in made] == [1, 2, 3, 2]


def test_tensors_are_listed_once_in_their_order() -> None:
    x, y = torch.ones(2), torch.zeros(2)
    assert [id(t) for t in tensors_in((y, [x, y]), {"a": (x, 3)})] == [id(y), id(x)]


def test_wrong_arguments_fail_whatever_the_values_are() -> None:
    x = torch.ones(2)
    found = evaluate(torch.special.chebyshev_polynomial_v, (x, x, x), {})
    assert found.verdict is Verdict.FAILS and found.failure[0] is TypeError
    assert "fake" not in found.failure[1].lower()


def test_what_has_no_hash_is_predicted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: OrderedDict[Any, Any] = OrderedDict()
    monkeypatch.setattr(module, "_KEPT", kept)
    x = torch.ones(2, 3)

    def summed(x: torch.Tensor, dims: set[int]) -> torch.Tensor:
        return x.sum(tuple(dims))

    for dims, shape in (({0}, (3,)), ({0, 1}, ())):
        assert evaluate(summed, (x, dims), {}).result.shape == shape
    assert len(kept) == 0
