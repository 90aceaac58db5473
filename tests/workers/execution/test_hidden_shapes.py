"""Commands on tensors of private sizes: which run, what is told of the results, and what they are.

A stranger has ``x[mask]`` and ``y[mask]`` of a private mask.  What a command tells is the same for
each number of elements that the mask chooses; what an admitted user reads is what torch computes,
or the error that torch raises.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from syft.exceptions import PermissionDenied
from syft.ops.nested import leaves
from syft.ops.outcome import ANY
from syft.ops.table import BY_NAME, FLAGS, FUNCTIONS
from syft.workers.execution.hidden_shapes import hidden_prediction
from syft.workers.execution.moved_memory import NoHoldings
from syft.workers.execution.private_commands import guard_for, run_guarded
from syft.workers.execution.public_sizes import (
    forget_sizes,
    hides_shape,
    public_shape,
    sizes_at_most,
)
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect

ANN = Guard(frozenset({"ann"}))
ROWS = 6
COUNTS = (0, 1, 2, 5, ROWS)

Call = tuple[Any, ...]


class Data:
    """Rows that a mask chooses, their classes, and public tensors."""

    def __init__(
        self, choose: Callable[[torch.Tensor], torch.Tensor], do: Callable[..., Any]
    ) -> None:
        torch.manual_seed(2)
        self.do = do
        self.x, self.y = choose(torch.randn(ROWS, 4)), choose(torch.arange(ROWS) % 3)
        self.g = choose(torch.randn(ROWS, 4, requires_grad=True))
        self.u = choose(torch.rand(ROWS))
        self.w, self.b = torch.randn(3, 4, requires_grad=True), torch.randn(3, requires_grad=True)
        self.m, self.v = torch.zeros(4), torch.ones(4)


def plain(count: int) -> Data:
    """The data as it is if ``count`` rows are chosen."""
    return Data(lambda tensor: tensor[mask_of(count)], of_torch)


def of_torch(name: str, *args: Any, **kwargs: Any) -> Any:
    """What torch returns."""
    function: Any = FUNCTIONS[BY_NAME[name]]
    return function(*args, **kwargs)


def mask_of(count: int) -> torch.Tensor:
    """A mask that chooses some rows."""
    return torch.arange(ROWS) % ROWS >= ROWS - count


def private(count: int) -> Data:
    """The same as a stranger has it."""

    def choose(tensor: torch.Tensor) -> torch.Tensor:
        leaf, mask = tensor.detach().requires_grad_(tensor.requires_grad), mask_of(count)
        protect(leaf, ANN)
        protect(mask, ANN)
        found: torch.Tensor = run("torch.Tensor.__getitem__", leaf, mask)
        return found

    return Data(choose, run)


def run(name: str, *args: Any, user: str | None = None, **kwargs: Any) -> Any:
    """What a stranger's command returns."""
    number = BY_NAME[name]
    guard = guard_for([*args], kwargs)
    assert guard is not None
    about = FLAGS[number], guard, NoHoldings(), "bob", user
    return run_guarded(FUNCTIONS[number], [*args], kwargs, *about)


def _f(name: str) -> str:
    return f"torch.nn.functional.{name}"


N = ANY
RUNS: dict[str, tuple[Callable[[Data], Call], tuple[Any, ...]]] = {
    "twice": (lambda d: ("torch.mul", d.x, 2), ((N, 4),)),
    "of one mask": (lambda d: ("torch.add", d.x, d.g), ((N, 4),)),
    "a column": (lambda d: ("torch.Tensor.__getitem__", d.x, (slice(None), 0)), ((N,),)),
    "some rows": (lambda d: ("torch.Tensor.__getitem__", d.x, slice(3)), ((N, 4),)),
    "the first row": (lambda d: ("torch.Tensor.__getitem__", d.x, 0), ((4,),)),
    "chosen again": (
        lambda d: ("torch.Tensor.__getitem__", d.x, d.do("torch.gt", d.u, 0.5)),
        ((N, 4),),
    ),
    "linear": (lambda d: (_f("linear"), d.x, d.w, d.b), ((N, 3),)),
    "linear of a graph": (lambda d: (_f("linear"), d.g, d.w, d.b), ((N, 3),)),
    "matmul": (lambda d: ("torch.matmul", d.x, d.w.t()), ((N, 3),)),
    "gram": (lambda d: ("torch.matmul", d.do("torch.t", d.x), d.x), ((4, 4),)),
    "kernel": (lambda d: ("torch.matmul", d.x, d.do("torch.t", d.x)), ((N, N),)),
    "mean": (lambda d: ("torch.mean", d.x, 0), ((4,),)),
    "mean of all": (lambda d: ("torch.mean", d.g), ((),)),
    "sum of rows": (lambda d: ("torch.sum", d.g, 1), ((N,),)),
    "var": (lambda d: ("torch.var", d.x, 0), ((4,),)),
    "std": (lambda d: ("torch.std", d.x, 0), ((4,),)),
    "max": (lambda d: ("torch.max", d.x, 0), ((4,), (4,))),
    "sort": (lambda d: ("torch.sort", d.x, 0), ((N, 4), (N, 4))),
    "median": (lambda d: ("torch.median", d.x, 0), ((4,), (4,))),
    "quantile": (lambda d: ("torch.quantile", d.u, 0.5), ((),)),
    "topk": (lambda d: ("torch.topk", d.u, 2), ((2,), (2,))),
    "centred": (lambda d: ("torch.sub", d.x, d.m), ((N, 4),)),
    "softmax": (lambda d: ("torch.softmax", d.g, 1), ((N, 4),)),
    "cross entropy": (lambda d: (_f("cross_entropy"), d.g, d.y), ((),)),
    "each cross entropy": (
        lambda d: ("torch.nn.functional.cross_entropy", d.g, d.y, None, None, -100, None, "none"),
        ((N,),),
    ),
    "squared error": (lambda d: (_f("mse_loss"), d.g, d.x), ((),)),
    "layer norm": (lambda d: (_f("layer_norm"), d.x, (4,)), ((N, 4),)),
    "one hot": (lambda d: (_f("one_hot"), d.y, 3), ((N, 3),)),
    "embedding": (lambda d: (_f("embedding"), d.y, d.w), ((N, 4),)),
    "cat": (lambda d: ("torch.cat", [d.x, d.w]), ((N, 4),)),
    "cat of hidden": (lambda d: ("torch.cat", [d.x, d.g]), ((N, 4),)),
    "cat of columns": (lambda d: ("torch.cat", [d.x, d.g], 1), ((N, 8),)),
    "stack": (lambda d: ("torch.stack", [d.x, d.g]), ((2, N, 4),)),
    "chunks of columns": (lambda d: ("torch.chunk", d.g, 2, 1), ((N, 2), (N, 2))),
    "flat": (lambda d: ("torch.reshape", d.x, (-1,)), ((N,),)),
    "flat and back": (
        lambda d: ("torch.reshape", d.do("torch.reshape", d.x, (-1,)), (-1, 4)),
        ((N, 4),),
    ),
    "squeezed": (lambda d: ("torch.squeeze", d.do("torch.sum", d.x, 1, True)), ((N,),)),
    "distances": (lambda d: ("torch.cdist", d.x, d.w.detach()), ((N, 3),)),
    "expanded": (lambda d: ("torch.Tensor.expand", d.x, 3, -1, -1), ((3, N, 4),)),
    "counts": (lambda d: ("torch.bincount", d.y, None, 3), ((3,),)),
    "covariance": (lambda d: ("torch.cov", d.do("torch.t", d.x)), ((4, 4),)),
    "histogram": (lambda d: ("torch.histc", d.u, 5), ((5,),)),
    "right or wrong": (lambda d: ("torch.eq", d.do("torch.argmax", d.x, 1), d.y), ((N,),)),
    "outer": (lambda d: ("torch.outer", d.u, d.u), ((N, N),)),
    "least squares": (
        lambda d: ("torch.linalg.lstsq", d.x, d.do("torch.unsqueeze", d.u, 1)),
        ((4, 1), (0,), (), (0,)),
    ),
    "singular values": (lambda d: ("torch.linalg.svdvals", d.x), ((N,),)),
}
"""Commands that run, and the public sizes of what they make."""


def told(result: Any) -> tuple[Any, ...]:
    """What a stranger may know of results."""
    return tuple(
        (public_shape(leaf), sizes_at_most(leaf), leaf.dtype, leaf.requires_grad, leaf.is_leaf)
        for leaf in leaves(result)
    )


def error_of(result: Any) -> Exception | None:
    """The error that stands for results."""
    errors = [getattr(full_guard_of(leaf), "error", None) for leaf in leaves(result)]
    return next((error for error in errors if error is not None), None)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", RUNS)
def test_what_runs_comes_to_what_torch_computes(name: str) -> None:
    call, shapes = RUNS[name]
    found = set()
    for count in COUNTS:
        function, *args = call(data := private(count))
        result = data.do(function, *args)
        found.add(told(result))
        hidden = [hides_shape(leaf) for leaf in leaves(result)]
        assert all(hides for hides, shape in zip(hidden, shapes, strict=True) if ANY in shape)
        error = error_of(result)
        try:
            function, *args = call(data := plain(count))
            wanted = data.do(function, *args)
        except (RuntimeError, IndexError) as failure:
            assert type(error) is type(failure)
            continue
        if error is not None:
            assert name == "squeezed" and count == 1, error
            continue
        for got, want in zip(leaves(result), leaves(wanted), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)
    assert [tuple(shape for shape, *_ in each) for each in found] == [shapes]


REFUSED: dict[str, Callable[[Data], Call]] = {
    "a view of fixed sizes": lambda d: ("torch.Tensor.view", d.x, 2, 4),
    "as many pieces as rows": lambda d: ("torch.split", d.x, 1),
    "each row": lambda d: ("torch.unbind", d.x),
    "pieces of one row or two": lambda d: ("torch.chunk", d.x, 2),
    "a public tensor of as many rows as there are at most": lambda d: (
        "torch.matmul",
        d.do("torch.t", d.x),
        torch.ones(ROWS, 2),
    ),
    "a weight of another width": lambda d: (_f("linear"), d.x, torch.ones(3, 5)),
    "a value": lambda d: ("torch.Tensor.item", d.do("torch.sum", d.x)),
    "the shape": lambda d: ("torch.Tensor.size", d.x),
    "one size": lambda d: ("torch.Tensor.size", d.x, 1),
    "how many": lambda d: ("torch.numel", d.x),
}
"""Commands of a stranger that are refused whatever the sizes are."""


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_run_for_most_sizes_is_refused(name: str) -> None:
    texts = set()
    for count in COUNTS:
        function, *args = REFUSED[name](data := private(count))
        with pytest.raises(PermissionDenied) as refused:
            data.do(function, *args)
        texts.add(str(refused.value))
    assert len(texts) == 1, "a refusal does not tell how many there are"


def test_the_number_of_dimensions_is_told_of_what_has_a_public_form() -> None:
    for count in COUNTS:
        data = private(count)
        assert run("torch.Tensor.dim", data.x) == 2 == run("torch.Tensor.ndim.__get__", data.x)
        assert run("torch.Tensor.dim", run("torch.Tensor.__getitem__", data.x, 0)) == 1
        forget_sizes(data.x)
        with pytest.raises(PermissionDenied, match="a question without a public answer"):
            run("torch.Tensor.dim", data.x)


@pytest.mark.parametrize("decided", [False, True])
def test_a_public_size_of_what_a_private_value_decided_is_private(decided: bool) -> None:
    """That there is the command follows from a value, and its shape with it."""
    data = private(2)
    hidden = changed(ANN, shape_hidden=True)
    total = run_guarded(torch.sum, [data.x], {}, 0, hidden, NoHoldings(), "bob", None, decided)
    assert hides_shape(total) is decided
    plain = torch.ones(2)
    protect(plain, ANN)
    total = run_guarded(torch.sum, [plain], {}, 0, hidden, NoHoldings(), "bob", None, decided)
    assert hides_shape(total) is decided


def test_what_is_written_keeps_a_public_shape() -> None:
    for count in COUNTS:
        data, target, statistics = private(count), torch.zeros(4), torch.zeros(4)
        for each in (target, statistics):
            protect(each, ANN)
        written = run("torch.Tensor.add_", target, run("torch.sum", data.x, 0))
        into = torch.zeros(4)
        protect(into, ANN)
        assert run("torch.mean", data.x, 0, out=into) is into
        run(_f("batch_norm"), data.x, statistics, data.v, training=True)
        for each in (written, into, statistics):
            assert not hides_shape(each) and each.shape == (4,)
        grown = run("torch.mul", data.x, 2, out=run("torch.empty_like", target))
        assert hides_shape(grown) and sizes_at_most(grown) == (ROWS, 4)
        assert public_shape(grown) == (ANY, 4)


def test_a_graph_over_private_sizes_leads_where_it_is_predicted_to() -> None:
    """A backward pass leaves a gradient in each leaf, how many rows there may be."""
    for count in COUNTS:
        data = private(count)
        scores = run(_f("linear"), data.x, data.w, data.b)
        loss = run(_f("cross_entropy"), scores, data.y)
        run("torch.Tensor.backward", loss)
        for leaf in (data.w, data.b):
            assert leaf.grad is not None and full_guard_of(leaf.grad) == ANN
        other = plain(count)
        F.cross_entropy(F.linear(other.x, other.w, other.b), other.y).backward()
        torch.testing.assert_close(data.w.grad, other.w.grad, equal_nan=True)


def test_a_pass_to_what_has_a_private_size_is_refused() -> None:
    data = private(2)
    leaf = run("torch.Tensor.requires_grad_", run("torch.Tensor.detach", data.x))
    loss = run("torch.sum", run("torch.mul", leaf, 2))
    with pytest.raises(PermissionDenied, match="a backward pass over a private shape"):
        run("torch.Tensor.backward", loss)
    assert leaf.grad is None
    run("torch.Tensor.backward", loss, user="ann")
    assert leaf.grad is not None and hides_shape(leaf.grad)
    gradient = run("torch.Tensor.grad.__get__", leaf)
    assert public_shape(gradient) == (ANY, 4) and sizes_at_most(gradient) == (ROWS, 4)


def test_a_graph_is_written_where_there_are_no_views() -> None:
    """Whether there is a view follows from the size, and a graph that is written shows in it."""
    for count in COUNTS:
        data = private(count)
        scores = run(_f("linear"), data.x, data.w)
        assert run("torch.relu_", scores) is scores and scores.requires_grad
        assert error_of(scores) is None
        wanted = F.relu(F.linear(plain(count).x, data.w))
        torch.testing.assert_close(scores.detach(), wanted.detach())
        row = run("torch.Tensor.__getitem__", data.x, 0)
        for target in (data.x, row):
            with pytest.raises(PermissionDenied, match="cannot be told without the values"):
                run("torch.Tensor.mul_", target, data.w.sum())
            run("torch.Tensor.mul_", target, 2)
        assert not data.x.requires_grad and not row.requires_grad


@pytest.mark.parametrize("count", COUNTS)
def test_what_is_told_of_a_result_is_not_told_of_an_operand(count: int) -> None:
    """For some sizes ``broadcast_tensors`` returns the operand itself, not a view of it."""
    rows = private(count).x
    before = public_shape(rows), sizes_at_most(rows)
    made, _ = run("torch.broadcast_tensors", rows, torch.zeros(5, 4))
    assert public_shape(made) == (5, 4) and made is not rows
    assert before == (public_shape(rows), sizes_at_most(rows)) == ((ANY, 4), (ROWS, 4))


def test_what_is_written_with_a_graph_has_the_same_shape_for_all_sizes() -> None:
    for count in COUNTS:
        data, target = private(count), torch.zeros(4)
        protect(target, ANN)
        written = run("torch.Tensor.addmv_", target, run("torch.t", data.g), data.u)
        assert written is target and error_of(target) is None
        assert not hides_shape(target) and target.shape == (4,) and target.requires_grad
        other = plain(count)
        torch.testing.assert_close(target.detach(), (other.g.t() @ other.u).detach())


def test_a_result_of_a_public_shape_has_memory_for_all_its_elements() -> None:
    """Where torch returns a view of a smaller public tensor, which tells nothing of the sizes."""
    for count in (0, 1, 2):
        row = torch.arange(4.0).view(1, 4)
        made, *_ = run("torch.broadcast_tensors", row, private(count).x, torch.zeros(5, 1))
        assert not hides_shape(made) and made.shape == (5, 4) and made.stride() == (4, 1)
        assert made.untyped_storage().nbytes() == 5 * 4 * 4
        if count == 1:
            assert error_of(made) is None and torch.equal(made, row.expand(5, 4))
        else:
            assert type(error_of(made)) is RuntimeError and not made.any()


def test_what_has_no_equality_is_predicted_anew() -> None:
    rows = private(2).x

    def taken(x: torch.Tensor, count: set[int]) -> torch.Tensor:
        return x.new_zeros(max(count))

    for count in ({3}, {5}):
        found = hidden_prediction(taken, (rows, bytearray(count)), {})
        assert found.result.shape == (max(count),), "and not that of the one before"
