"""Calls whose number of results is known beforehand wait for nothing, whatever the results are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional

import syft as sy
from syft.exceptions import MalformedMessage, ObjectIdTaken, ObjectNotReady, ResultMismatch
from syft.ids import first_id, new_id
from syft.ops.returns import MOST, ONE_TENSOR, Returns, _always, _named, returns
from syft.ops.table import BY_NAME
from syft.workers.wire.messages import COUNT_SHIFT, IN_CONTAINER, Command
from syft.workers.wire.references import REF
from tests.shells.child import make_worker
from tests.shells.owner import inspect
from tests.workers.core.peers import ask, error_in, lonely, put, ref

pytestmark = pytest.mark.every_shell

SORT = BY_NAME["torch.Tensor.sort"]
X = torch.tensor([[3.0, 1.0, 2.0], [5.0, 6.0, 4.0]])

KNOWN: dict[str, Callable[[torch.Tensor], Any]] = {
    "relu": lambda x: functional.relu(x),
    "max_pool2d": lambda x: functional.max_pool2d(x[None], 2),
    "dropout": lambda x: functional.dropout(x, training=False),
    "to": lambda x: x.to(torch.float64),
    "to the same": lambda x: x.to(torch.float32),
    "flatten": lambda x: x.flatten(),
    "1 - x": lambda x: 1 - x,
    "x ** 2": lambda x: x**2,
    "x == x": lambda x: x == x,
    "where": lambda x: torch.where(x > 2, x, 0.0),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "max(dim)": lambda x: x.max(dim=1),
    "sort": lambda x: x.sort(1, descending=True),
    "topk": lambda x: torch.topk(x, 2),
    "split": lambda x: x.split([1, 2], dim=1),
    "tensor_split": lambda x: torch.tensor_split(x, 2, dim=1),
    "meshgrid": lambda x: torch.meshgrid(x[0], x[1], indexing="ij"),
    "std_mean": lambda x: torch.std_mean(x, dim=0),
    "eigh": lambda x: torch.linalg.eigh(x @ x.T).eigenvalues,
    "foreach": lambda x: torch._foreach_mul([x, x[0]], 2.0),
    "attention": lambda x: functional.multi_head_attention_forward(
        x[:, None, :2], x[:, None, :2], x[:, None, :2], 2, 1, x.new_ones(6, 2), None, None, None,
        False, 0.0, x.new_ones(2, 2), None, need_weights=False,
    ),
    "unique": lambda x: torch.unique(x > 2, return_counts=True),
    "dim, then indices": lambda x: x.min(0).indices,
}  # fmt: skip


@pytest.fixture(params=["immediate", "queued"])
def worker(hook: sy.TorchHook, request: pytest.FixtureRequest) -> Iterator[Any]:
    dan = make_worker(hook, "dan", request.param == "queued")
    yield dan
    dan.close()


def home(value: Any) -> Any:
    """The value with what the pointers in it point to."""
    if isinstance(value, torch.Tensor):
        return value.get()
    if value is None:
        return None
    items = [home(item) for item in value]
    return items if type(value) is list else type(value)(tuple(items))


def same(value: Any, other: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return torch.equal(value, other) and value.dtype is other.dtype
    if value is None:
        return other is None
    return type(value) is type(other) and all(map(same, value, other))


def test_nothing_is_waited_for(hook: sy.TorchHook, worker: Any) -> None:
    x = X.clone().send(worker)
    for name, call in KNOWN.items():
        sy.synchronize()
        with hook.record() as log:
            found = call(x)
        sent = [entry.message for entry in log.to("dan")]
        assert all(m.failures is None for m in sent if type(m) is Command), name
        assert same(home(found), call(X)), name


def test_a_promise_is_no_obstacle(worker: Any) -> None:
    promise = worker.promise()
    found = {name: call(promise) for name, call in KNOWN.items()}
    kept = X.clone().send(worker, id=promise.id_at_location)
    for name, call in KNOWN.items():
        assert same(home(found[name]), call(X)), name
    del kept


def test_a_group_is_not_interrupted(hook: sy.TorchHook, worker: Any) -> None:
    x = X.clone().send(worker)
    for name, call in KNOWN.items():
        sy.synchronize()
        with hook.record() as log, worker.group():
            found = call(x)
        with log:
            sy.synchronize()
        assert len(log.to("dan")) == 1, name
        assert same(home(found), call(X)), name


def test_of_several_results_each_lives_by_itself(worker: Any) -> None:
    x = X.clone().send(worker)
    values, indices = x.sort()
    del values
    sy.synchronize()
    worker_holds = inspect(worker).objects
    assert indices.id_at_location in worker_holds and len(worker_holds) == 2
    assert indices.get().tolist() == [[1, 2, 0], [2, 0, 1]]


def test_an_argument_that_comes_back_is_the_same_tensor(worker: Any) -> None:
    x = X.clone().send(worker)
    y = x.contiguous()
    y.add_(1)
    assert torch.equal(x.get(), X + 1)
    assert torch.equal(y.get(), X + 1)


def test_what_cannot_be_known_waits(worker: Any) -> None:
    promise = worker.promise()
    for question in (
        lambda: promise.tolist(),
        lambda: promise.shape,
        lambda: promise.split(1),
        lambda: promise.chunk(2),
        lambda: torch.where(promise),
        lambda: promise == "a",
        lambda: torch.autograd.grad(promise, promise, allow_unused=True),
    ):
        with pytest.raises(ObjectNotReady):
            question()
    kept = X.clone().send(worker, id=promise.id_at_location)
    assert [part.get().tolist() for part in promise.split(1)] == [[row] for row in X.tolist()]
    assert (promise == "a") is False
    del kept


def test_gradients_come_without_waiting(worker: Any) -> None:
    x = X.clone().requires_grad_().send(worker)
    promise = worker.promise()
    (gradient,) = torch.autograd.grad((x * promise).sum(), x)
    kept = torch.full_like(X, 2.0).send(worker, id=promise.id_at_location)
    assert torch.equal(gradient.get(), torch.full_like(X, 2.0))
    del kept


def test_functions_at_the_worker_need_not_be_waited_for(hook: sy.TorchHook, worker: Any) -> None:
    with hook.record() as log:
        x = worker.torch.arange(3)
        values, indices = worker.torch.max(x, 0)
    assert all(entry.message.failures is None for entry in log.to("dan"))
    assert (values.get(), indices.get()) == (2, 2)
    assert [part.get().tolist() for part in worker.torch.chunk(x, 3)] == [[0], [1], [2]]


# ------------------------------------------------------------ a worker of another version, or none


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (1 << COUNT_SHIFT, "1 tensor"),
        (3 << COUNT_SHIFT | IN_CONTAINER, "3 tensors"),
        (1 << COUNT_SHIFT | IN_CONTAINER, "a container of 1 tensor"),
    ],
)
def test_another_number_of_results_is_refused(flags: int, expected: str) -> None:
    core = lonely()
    put(core, 5, X)
    before = dict(core.store.objects)
    told = Command(2, SORT, (ref(5),), 77, flags)
    error = error_in(ask(core, told))
    assert type(error) is ResultMismatch
    assert (error.op, error.worker, error.expected) == ("torch.Tensor.sort", core.name, expected)
    assert error.got == "2 tensors"
    assert core.store.objects == before and not core.store.promised


@pytest.mark.parametrize("op", ["torch.Tensor.tolist", "torch.Tensor.dim", "torch.Tensor.neg"])
def test_values_in_the_place_of_tensors_are_refused(op: str) -> None:
    core = lonely()
    put(core, 5, X)
    error = error_in(
        ask(core, Command(2, BY_NAME[op], (ref(5),), 77, 2 << COUNT_SHIFT | IN_CONTAINER))
    )
    assert type(error) is ResultMismatch and set(core.store.objects) == {5}


@pytest.mark.parametrize(
    ("out", "count"), [(77, MOST + 1), (77, 2**50), (2**63 - 1, 2), (2**63, 2), (-4, 2)]
)
def test_ids_beyond_the_limits_are_refused(out: int, count: int) -> None:
    core = lonely()
    put(core, 5, X)
    for parked in (False, True):
        if parked:
            core.store.promise(6)
        command = Command(2 + parked, SORT, (ref(5),), out, count << COUNT_SHIFT | IN_CONTAINER)
        assert type(error_in(ask(core, command))) is MalformedMessage
        assert set(core.store.objects) == {5}


def test_an_id_that_is_taken_is_refused() -> None:
    core = lonely()
    put(core, 5, X)
    put(core, 78, X)
    command = Command(3, SORT, (ref(5),), 77, 2 << COUNT_SHIFT | IN_CONTAINER)
    assert type(error_in(ask(core, command))) is ObjectIdTaken
    grad_mode = 1
    command = Command(4, BY_NAME["torch.Tensor.neg"], (ref(5),), 78, grad_mode | 1 << COUNT_SHIFT)
    assert type(error_in(ask(core, command))) is ObjectIdTaken
    assert set(core.store.objects) == {5, 78}


def test_the_caller_has_the_error_and_no_objects(worker: Any) -> None:
    x = X.clone().send(worker)
    connection = x.child.connection
    three = Returns(tuple, (True, True, True))
    out = first_id(3)

    def call() -> None:
        value = connection.operations.command(
            SORT, ((REF, x.id_at_location),), None, out, [], three
        )
        pointers = connection.operations.results(value, out, three)
        sy.synchronize()
        del pointers

    with pytest.raises(
        ResultMismatch, match="gives 2 tensors at worker 'dan' where its caller expected 3"
    ):
        call()
    sy.synchronize()
    assert set(inspect(worker).objects) == {x.id_at_location}


def test_too_many_results_are_waited_for() -> None:
    x = [X] * (MOST + 1)
    assert returns(BY_NAME["torch._foreach_neg"], (x,), {}) is None
    assert returns(BY_NAME["torch._foreach_neg"], (x[1:],), {}) is not None
    assert returns(BY_NAME["torch.Tensor.tensor_split"], (X, 10**9), {}) is None
    assert returns(BY_NAME["torch.Tensor.tensor_split"], (X, 0), {}) is None
    assert returns(BY_NAME["torch._foreach_neg"], (X,), {}) is None
    assert returns(BY_NAME["torch.broadcast_tensors"], (), {}) is None
    assert returns(BY_NAME["torch.quantize_per_tensor"], ([X],), {}) is None
    assert returns(BY_NAME["torch.Tensor.exp"], (X,), {}) is ONE_TENSOR
    assert new_id() != new_id()


def test_a_function_mode_of_the_caller_is_not_that_of_the_worker(worker: Any) -> None:
    class Refuse(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, *_: Any) -> Any:
            raise AssertionError(f"{function} ran under the caller's mode")

    x = worker.torch.arange(3)
    connection = x.child.connection
    with Refuse():
        connection.synchronize()
    assert x.get().tolist() == [0, 1, 2]


def test_a_name_that_this_torch_does_not_have_is_waited_for() -> None:
    """Later ones have no ``torch.return_types.qr``: it cannot be told beforehand what comes."""
    assert _named("no_such_function") is None
    assert _always(None)((), {}) is None
