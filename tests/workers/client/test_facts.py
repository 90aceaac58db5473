"""What is known is not asked for again, and is never stale."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import CannotRecord, ObjectNotFound, ObjectNotReady, WorkerClosed
from syft.ops.table import ALTERS, BY_NAME, FLAGS, FUNCTIONS, NAMES
from syft.workers.client import facts as facts_module
from syft.workers.client.facts import FACTS, UNKNOWN, Facts
from syft.workers.wire.messages import Command, Drop, Run, Share, Stale
from syft.workers.wire.references import REF
from tests.shells.child import make_worker
from tests.shells.owner import inspect

pytestmark = pytest.mark.every_shell

DIM, SHAPE = BY_NAME["torch.Tensor.dim"], BY_NAME["torch.Tensor.shape.__get__"]
NEG, ADD = BY_NAME["torch.Tensor.neg"], BY_NAME["torch.Tensor.add"]


@pytest.fixture(params=["immediate", "queued"])
def worker(hook: sy.TorchHook, request: pytest.FixtureRequest) -> Iterator[Any]:
    dan = make_worker(hook, "dan", request.param == "queued")
    yield dan
    dan.close()


def waiting(log: Any) -> list[str]:
    """The requests to dan that were waited for."""
    return [
        NAMES[entry.message.op] if type(entry.message) is Command else type(entry.message).__name__
        for entry in log.to("dan")
        if getattr(entry.message, "failures", None) is not None
    ]


# ----------------------------------------------------------------------------- training steps


def mlp() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3)), torch.randn(5, 8)


def cnn() -> tuple[nn.Module, torch.Tensor]:
    layers = [nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(18, 3)), torch.randn(5, 1, 8, 8)


class Last(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, -1]


def transformer() -> tuple[nn.Module, torch.Tensor]:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.Sequential(layer, Last(), nn.Linear(8, 3)), torch.randn(5, 4, 8)


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters),
}


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Any, target: Any) -> Any:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), target)
    loss.backward()
    optimizer.step()
    return loss


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("make", [mlp, cnn, transformer])
def test_a_training_step_waits_for_its_gradients_and_its_loss(
    hook: sy.TorchHook, worker: Any, make: Callable[[], Any], optimizer: str
) -> None:
    torch.manual_seed(0)
    model, x = make()
    target = torch.randint(3, (5,))
    batch, wanted = x.send(worker), target.send(worker)
    model.send(worker)
    sy.synchronize()
    steps = OPTIMIZERS[optimizer](model.parameters())
    for number in range(3):
        with hook.record() as log:
            step(model, steps, batch, wanted).get()
        # Batch norm asks for the dimensions of what comes of the convolution, the first time; where
        # that would be to wait for another process, they are worked out here.
        known = number or hook.local_worker.connection_to(worker).facts.ahead
        first = ["torch.Tensor.dim"] if make is cnn and not known else []
        assert waiting(log) == [*first, "Gradients", "Fetch"]
    steps.zero_grad()
    model.get()
    del log


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_repeated_step_in_a_group_is_one_message(
    hook: sy.TorchHook, worker: Any, optimizer: str
) -> None:
    torch.manual_seed(0)
    model, x = mlp()
    target = torch.randint(3, (5,))
    duplicate = mlp()[0]
    duplicate.load_state_dict(model.state_dict())
    here, there = OPTIMIZERS[optimizer](duplicate.parameters()), None
    batch, wanted = x.send(worker), target.send(worker)
    model.send(worker)
    there = OPTIMIZERS[optimizer](model.parameters())
    for number in range(4):
        expected = step(duplicate, here, x, target)
        with hook.record() as log, worker.group():
            loss = step(model, there, batch, wanted)
        with log:
            sy.synchronize()
        if number:
            assert [type(entry.message) for entry in log.to("dan")] == [Run]
        torch.testing.assert_close(loss.get(), expected.detach())
    there.zero_grad()
    model.get()
    for mine, theirs in zip(model.parameters(), duplicate.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)
    del log


def test_a_batch_that_is_sent_anew_is_of_a_known_kind(hook: sy.TorchHook, worker: Any) -> None:
    model, x = cnn()
    model.send(worker)
    for number in range(3):
        with hook.record() as log:
            model(x.send(worker)).sum().get()
        assert waiting(log)[-1] == "Fetch"
        if number > 1:
            assert [what for what in waiting(log) if what != "Put"] == ["Fetch"]
    model.get()
    del log


# ---------------------------------------------------------------------------------- gradients


def leaf(worker: Any, *values: float) -> Any:
    return torch.tensor(values, requires_grad=True).send(worker)


def test_the_gradients_of_all_leaves_are_one_question(hook: sy.TorchHook, worker: Any) -> None:
    leaves = [leaf(worker, float(number)) for number in range(20)]
    sum(x * x for x in leaves[:10]).sum().backward()
    with hook.record() as log:
        gradients = [x.grad for x in leaves]
        assert [x.grad is None for x in leaves] == [False] * 10 + [True] * 10
        assert gradients[3] is leaves[3].grad
    assert waiting(log) == ["Gradients"]
    assert [x.get().item() for x in gradients[:10]] == [2.0 * number for number in range(10)]
    assert leaves[3].grad.get() == 6, "the gradient that was fetched is asked for again"
    del log, gradients


def test_a_gradient_that_was_replaced(worker: Any) -> None:
    x, y = leaf(worker, 1.0, 2.0), leaf(worker, 3.0)
    (x.sum() * y).backward()
    assert x.grad.copy().get().tolist() == [3, 3]
    x.grad = torch.tensor([5.0, 6.0]).send(worker)
    assert x.grad.copy().get().tolist() == [5, 6]
    x.grad = None
    assert x.grad is None and y.grad.copy().get().tolist() == [3]
    del y.grad
    assert y.grad is None
    (x.sum() * y).backward()
    assert x.grad.copy().get().tolist() == [3, 3]
    x.grad.mul_(2)
    assert x.grad.copy().get().tolist() == [6, 6]
    (x.sum() * y).backward()
    assert x.grad.copy().get().tolist() == [9, 9]


def same(x: torch.Tensor) -> torch.Tensor:
    return x


ALIASES: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "contiguous": lambda worker, x: x.contiguous(),
    "atleast_1d": lambda worker, x: torch.atleast_1d(x),
    "one of several": lambda worker, x: torch.atleast_1d(x, x)[1],
    "the worker's torch": lambda worker, x: worker.torch.atleast_1d(x),
    "a plan": lambda worker, x: sy.func2plan(args_shape=[(2,)])(same).send(worker)(x),
    "same id": lambda worker, x: x.child.connection.pointer(
        x.id_at_location, garbage_collect_data=False
    ),
}
"""Pointers to the very tensor that ``x`` is for."""


@pytest.mark.parametrize("how", [*ALIASES, "in a group", "set in a group"])
def test_a_gradient_that_was_set_through_another_pointer(worker: Any, how: str) -> None:
    x = leaf(worker, 1.0, 2.0)
    assert x.grad is None
    other = ALIASES.get(how, ALIASES["same id"])(worker, x)
    assert x.grad is None, "and that is known from now on"
    new = torch.tensor([5.0, 6.0]).send(worker)
    if how == "set in a group":
        with worker.group():
            other.grad = new
            assert x.grad.copy().get().tolist() == [5, 6]
    else:
        other.grad = new
    if how == "in a group":
        with worker.group():
            assert x.grad.copy().get().tolist() == [5, 6]
    assert x.grad.copy().get().tolist() == [5, 6]
    x.grad = None
    assert other.grad is None
    del other, new


def test_a_gradient_that_was_set_inside_a_chain(worker: Any) -> None:
    local = sy.LoggingTensor().on(torch.ones(2)).requires_grad_()
    local.child.child.grad = torch.tensor([5.0, 6.0])
    x = sy.LoggingTensor().on(torch.ones(2)).send(worker).requires_grad_()
    assert x.grad is None
    x.child.child.child.grad = torch.tensor([5.0, 6.0]).send(worker)
    assert x.grad.copy().get().child.child.tolist() == local.grad.child.child.tolist()


def test_what_one_user_was_told_is_not_told_to_another(hook: sy.TorchHook, worker: Any) -> None:
    me, alice = hook.local_worker, make_worker(hook, "alice")
    secret = torch.tensor([1.0, -1.0]).private_tensor(["ann"]).send(worker, user="ann")
    hidden = secret[secret > 0]
    pointers = [hidden, (hidden * 1).send(alice)]
    try:
        for _ in range(2):
            me.user = "ann"
            assert [pointer.shape for pointer in pointers] == [(1,), (1,)]
            for other in ("bea", None):
                me.user = other
                assert type(hidden + 1) is type(hidden), "nobody is asked"
                for pointer in pointers:
                    with pytest.raises(sy.exceptions.PermissionDenied):
                        pointer.shape  # noqa: B018
    finally:
        me.user = None
    del secret, hidden, pointers, pointer
    alice.close()


def test_what_is_noted_while_nobody_tells_of_changes_is_not_kept(worker: Any, other: Any) -> None:
    x = torch.zeros(2, 3).send(worker)
    theirs = other(x)
    sy.synchronize()
    theirs.squeeze_()  # we are told, and then no more
    done(worker, theirs)
    x.grad = None
    duplicate = x.clone()
    sy.synchronize()
    with torch.no_grad():
        theirs.resize_(4)
    done(worker, theirs)
    assert (duplicate.shape, x.shape) == ((2, 3), (4,))


def test_a_gradient_that_was_removed_while_nobody_tells_of_changes(worker: Any, other: Any) -> None:
    x = leaf(worker, 1.0, 2.0)
    theirs = other(x)
    for _ in range(2):
        (theirs * 2).sum().backward()
        done(worker, theirs)
        assert x.shape == (2,)  # reads the notice; the answer is known
        x.grad = None
    (theirs * 2).sum().backward()
    done(worker, theirs)
    assert x.grad.copy().get().tolist() == [2, 2]


def test_a_leaf_that_was_sent_in_a_group(worker: Any, other: Any) -> None:
    with worker.group():
        x = leaf(worker, 1.0, 2.0)
    sy.synchronize()
    theirs = other(x)
    (theirs * 2).sum().backward()
    done(worker, theirs)
    assert x.grad.copy().get().tolist() == [2, 2]


def test_what_failed_has_changed_nothing(worker: Any) -> None:
    x, y = leaf(worker, 1.0, 2.0), torch.ones(3, dtype=torch.int64).send(worker)
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    with pytest.raises(RuntimeError):
        x.data = y
        sy.synchronize()
    assert (x.dtype, x.shape) == (torch.float32, (2,))


def test_what_was_never_sent_has_changed_nothing(worker: Any) -> None:
    x, y = torch.ones(2).send(worker), torch.ones(3, dtype=torch.int64).send(worker)
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    with pytest.raises(ValueError, match="^halt"), worker.group():
        x.data = y
        z = torch.ones(5).send(worker)
        raise ValueError("halt")
    assert (x.dtype, x.shape) == (torch.float32, (2,))
    with pytest.raises(ObjectNotFound):
        z.shape  # noqa: B018


def test_zero_grad_leaves_nothing_at_the_worker(worker: Any) -> None:
    layer = nn.Linear(2, 2)
    layer.send(worker)
    for _ in range(3):
        layer(torch.ones(1, 2).send(worker)).sum().backward()
        assert all(parameter.grad is not None for parameter in layer.parameters())
        layer.zero_grad()
        sy.synchronize()
        held = set(inspect(worker).objects)
        assert {parameter.id_at_location for parameter in layer.parameters()} >= held
    layer.get()


def test_a_leaf_that_is_gone_is_no_obstacle(worker: Any) -> None:
    x, y = leaf(worker, 1.0), leaf(worker, 2.0)
    assert x.grad is None and y.grad is None
    (x * y).backward()
    x.child.connection.requests.tell(Drop(0, (x.id_at_location,)))  # somebody else took it away
    assert y.grad.copy().get() == 1
    with pytest.raises(ObjectNotFound):
        x.grad  # noqa: B018
    x.child.garbage_collect_data = False


def test_a_leaf_that_died_is_not_asked_for(worker: Any) -> None:
    x, y = leaf(worker, 1.0), leaf(worker, 2.0)
    (x * y).backward()
    del x
    assert y.grad.copy().get() == 1


def test_a_gradient_behind_a_promise_waits(worker: Any) -> None:
    promise, x = worker.promise(), leaf(worker, 1.0, 2.0)
    assert x.grad is None
    (x * promise).sum().backward()
    with pytest.raises(ObjectNotReady):
        x.grad  # noqa: B018
    kept = torch.tensor([3.0, 4.0]).send(worker, id=promise.id_at_location)
    assert x.grad.copy().get().tolist() == [3, 4]
    del kept


def test_a_gradient_of_another_kind(worker: Any) -> None:
    table = nn.Embedding(4, 2, sparse=True)
    table.send(worker)
    table(torch.tensor([1, 1]).send(worker)).sum().backward()
    assert table.weight.grad.is_sparse is True and table.weight.is_sparse is False
    dense = leaf(worker, 1.0)
    dense.sum().backward()
    assert dense.grad.is_sparse is False and table.weight.grad.is_sparse is True
    table.zero_grad()
    table.get()


def test_intermediate_results_have_gradients_too(worker: Any) -> None:
    x = leaf(worker, 1.0, 2.0)
    y = x * 3
    y.retain_grad()
    assert y.grad is None
    (y * y).sum().backward()
    assert y.grad.copy().get().tolist() == [6, 12]
    assert x.grad.copy().get().tolist() == [18, 36]
    y.grad = None
    assert y.grad is None


# ------------------------------------------------------------------------------------ others


@pytest.fixture
def other(hook: sy.TorchHook, worker: Any) -> Iterator[Callable[[torch.Tensor], torch.Tensor]]:
    """A second client of dan: it gives pointers of its own to objects there, which it may change
    too."""
    eve = sy.VirtualWorker(hook, id="eve")
    connection = eve.connection_to(worker)

    def pointer(x: Any) -> torch.Tensor:
        sy.synchronize()
        x.child.connection.requests.tell(Share(x.id_at_location, ("eve",)))
        return connection.pointer(x.id_at_location, garbage_collect_data=False)

    yield pointer
    eve.close()


def done(worker: Any, pointer: torch.Tensor) -> None:
    pointer.child.connection.synchronize()


def test_a_backward_pass_of_another_client(worker: Any, other: Any) -> None:
    x = leaf(worker, 1.0, 2.0)
    assert x.grad is None
    theirs = other(x)
    (theirs * theirs).sum().backward()
    done(worker, theirs)
    assert x.grad.copy().get().tolist() == [2, 4]
    theirs.grad = None
    done(worker, theirs)
    assert x.grad is None
    (x * 3).sum().backward()
    assert x.grad.copy().get().tolist() == [3, 3]
    assert theirs.grad.copy().get().tolist() == [3, 3]
    del theirs


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.resize_(4, 1),
        lambda x: x.unsqueeze_(0),
        lambda x: setattr(x, "data", x.new_zeros(3, 1, 1).double()),
        lambda x: torch.add(x.new_ones(2, 1), 1, out=x),
    ],
)
@pytest.mark.parametrize("whose", ["mine", "theirs", "mine, in a group"])
def test_a_shape_that_changes(worker: Any, other: Any, change: Any, whose: str) -> None:
    here = torch.zeros(0)
    x = torch.zeros(0).send(worker)
    assert (x.shape, x.dim(), x.dtype) == ((0,), 1, torch.float32)
    pointer = other(x) if whose == "theirs" else x
    if whose == "mine, in a group":
        with worker.group():
            change(x)
            assert x.dim() > 1
    else:
        change(pointer)
    change(here)
    done(worker, pointer)
    assert (x.shape, x.dim(), x.dtype) == (here.shape, here.dim(), here.dtype)
    del pointer


def test_only_those_who_know_are_told(hook: sy.TorchHook, worker: Any, other: Any) -> None:
    x, y = torch.zeros(2).send(worker), torch.zeros(2).send(worker)
    y.unsqueeze_(0)
    sy.synchronize()
    theirs = other(x)
    with hook.record() as log:
        theirs.unsqueeze_(0)
        theirs.squeeze_()
        theirs.unsqueeze_(0)
        done(worker, theirs)
        assert x.dim() == 2
        theirs.squeeze_()
        done(worker, theirs)
        y.unsqueeze_(0)
        theirs.unsqueeze_(0)
        done(worker, theirs)
        assert x.dim() == 2
    told = [entry for entry in log if type(entry.message) is Stale]
    assert [(entry.sender, entry.receiver) for entry in told] == [("dan", "me")] * 2
    del log, theirs, told


def test_a_backward_pass_of_somebody_else_does_not_end_what_is_told(
    worker: Any, other: Any
) -> None:
    x = leaf(worker, 1.0, 2.0)
    assert x.dim() == 1 and x.grad is None
    theirs = other(x)
    (theirs * theirs).sum().backward()
    done(worker, theirs)
    assert x.grad.copy().get().tolist() == [2, 4]
    with torch.no_grad():
        theirs.data = theirs.new_zeros(2, 3)
    done(worker, theirs)
    assert x.dim() == 2
    del theirs


def test_what_a_group_sends_is_of_a_known_kind(hook: sy.TorchHook, worker: Any) -> None:
    assert torch.ones(2, 3).send(worker).dim() == 2
    first = torch.ones(4).send(worker)
    assert first.dim() == 1
    with hook.record() as log, worker.group():
        x = torch.ones(4).send(worker)
        assert x.dim() == 1
    assert not waiting(log)
    del log


def test_gradients_that_go_on_to_another_worker_are_waited_for(
    hook: sy.TorchHook, worker: Any
) -> None:
    carl = make_worker(hook, "carl")
    x = leaf(worker, 1.0, 2.0)
    y = (x * 3).move(carl, requires_grad=True)
    (gradient,) = torch.autograd.grad((y * y).sum(), y)
    assert gradient.get().tolist() == [6, 12]
    del y, gradient, x
    carl.close()


def test_a_plan_may_change_what_it_is_given(worker: Any) -> None:
    @sy.func2plan(args_shape=[(2,)])
    def grow(x: torch.Tensor) -> torch.Tensor:
        x.unsqueeze_(0)
        return x * 1

    x = torch.zeros(2).send(worker)
    assert x.dim() == 1
    pointer = grow.send(worker)
    pointer(x)
    assert x.dim() == 2
    del pointer


def test_an_id_that_is_used_again(worker: Any) -> None:
    x = torch.zeros(2).send(worker, id=7)
    assert x.dim() == 1 and x.shape == (2,)
    del x
    sy.synchronize()
    y = torch.zeros(3, 4).to_sparse().send(worker, id=7)
    assert y.dim() == 2 and y.shape == (3, 4) and y.is_sparse
    del y
    sy.synchronize()
    z = torch.zeros(2, 2, 2).send(worker, id=7)
    assert z.dim() == 3 and not z.is_sparse


def test_a_worker_that_was_cleared(worker: Any) -> None:
    x = torch.zeros(2).send(worker)
    assert x.dim() == 1
    worker.clear_objects()
    with pytest.raises(ObjectNotFound):
        x.dim()


def test_shapes_that_follow_from_values_are_asked_for(worker: Any) -> None:
    x = torch.tensor([1.0, 2.0, 3.0]).send(worker)
    for size in (1, 2, 3):
        n = torch.tensor(size).send(worker)
        assert x[:n].shape == (size,) and x.dim() == 1
        assert x[:n].squeeze().dim() == (size > 1)
        assert x[x <= size].shape == (size,)


DIMENSIONS: dict[str, tuple[Any, tuple[int, int]]] = {
    "squeeze": (torch.squeeze, (1, 3)),
    "squeeze_copy": (torch.squeeze_copy, (1, 3)),
    "cov": (torch.cov, (1, 3)),
    "corrcoef": (torch.corrcoef, (1, 3)),
    "solve": (lambda rows, many: torch.linalg.solve(many, rows.t()), (2, 3)),
}


@pytest.mark.parametrize("name", DIMENSIONS)
def test_dimensions_that_follow_from_a_size_that_is_a_value(worker: Any, name: str) -> None:
    function, sizes = DIMENSIONS[name]
    row, many = torch.ones(1, 3).send(worker), torch.eye(3).repeat(3, 1, 1).send(worker)
    assert row.dim() == 2
    for number in sizes:
        size = torch.tensor(number).send(worker)
        rows = row.expand(size, 3)
        made = function(rows, many) if name == "solve" else function(rows)
        assert made.dim() == made.get().dim()


def test_what_was_asked_of_a_private_tensor_is_refused_each_time(hook: sy.TorchHook) -> None:
    dan = make_worker(hook, "dan")
    secret = torch.tensor([1.0, -1.0]).private_tensor(allowed_users=["ann"]).send(dan, user="ann")
    mine = torch.tensor([1.0, -1.0]).send(dan)
    assert mine[mine > 0].shape == (1,)
    for _ in range(2):
        with pytest.raises(sy.exceptions.PermissionDenied):
            secret[secret > 0].shape  # noqa: B018
    del secret, mine
    dan.close()


# ------------------------------------------------------------------------- what was sent before


def in_bulk(x: torch.Tensor, worker: Any) -> torch.Tensor:
    return sy.send_all([x], worker)[0]


def in_a_group(x: torch.Tensor, worker: Any) -> torch.Tensor:
    with worker.group():
        return x.send(worker)


def alone(x: torch.Tensor, worker: Any) -> torch.Tensor:
    return x.send(worker)


WAYS = [alone, in_bulk, in_a_group]
KINDS = [
    torch.zeros(2, 3),
    torch.tensor(4),
    torch.zeros(0, 2, dtype=torch.complex64),
    torch.zeros(3, 2, dtype=torch.bfloat16).t(),
    nn.Parameter(torch.zeros(2)),
    torch.zeros(2, dtype=torch.bool),
    torch.eye(2).to_sparse(),
    torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
]


def answer(op: int, x: torch.Tensor) -> Any:
    """What an operation that asks for a fact says; the class of what it raises."""
    try:
        return FUNCTIONS[op](x)  # type: ignore[misc]
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("x", KINDS, ids=lambda x: f"{x.dtype}-{x.layout}")
def test_all_that_is_known_of_what_was_sent(
    hook: sy.TorchHook, worker: Any, way: Any, x: torch.Tensor
) -> None:
    pointer = way(x, worker)
    sy.synchronize()
    with hook.record() as log:
        told = {NAMES[op]: answer(op, pointer) for op in FACTS}
    assert told == {NAMES[op]: answer(op, x) for op in FACTS}
    if x.layout is torch.strided and not x.is_quantized:
        assert waiting(log) == []
    del log


def by_this_client(change: Any, x: Any, theirs: Any, worker: Any) -> None:
    change(x)


def by_another_client(change: Any, x: Any, theirs: Any, worker: Any) -> None:
    change(theirs)
    done(worker, theirs)


def by_a_group(change: Any, x: Any, theirs: Any, worker: Any) -> None:
    with worker.group():
        change(x)


def by_a_group_of_another_client(change: Any, x: Any, theirs: Any, worker: Any) -> None:
    with theirs.child.connection.message_group():
        change(theirs)
    done(worker, theirs)


def by_a_plan(change: Any, x: Any, theirs: Any, worker: Any) -> None:
    @sy.func2plan(args_shape=[tuple(SMALL.shape)])
    def changing(y: torch.Tensor) -> torch.Tensor:
        change(y)
        return y * 1

    there = changing.send(worker)
    there(x)
    del there


SMALL = torch.zeros(1, 3)
CHANGES: dict[str, Callable[[Any], Any]] = {
    "resize_": lambda x: x.resize_(2, 2, 2),
    "t_": lambda x: x.t_(),
    "squeeze_": lambda x: x.squeeze_(),
    "data": lambda x: setattr(x, "data", x.new_zeros(4).double()),
    "as_strided_": lambda x: x.as_strided_((3,), (1,)),
    "requires_grad_": lambda x: x.requires_grad_(),
    "add_": lambda x: x.add_(1),
}


@pytest.mark.parametrize(
    "by", [by_this_client, by_another_client, by_a_group, by_a_group_of_another_client, by_a_plan]
)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_altered_between_the_send_and_the_first_question(
    worker: Any, other: Any, way: Any, by: Any
) -> None:
    for how, change in CHANGES.items():
        if by is by_a_plan and how not in ("t_", "squeeze_", "add_"):
            continue  # a plan refuses it
        here, x = SMALL.clone(), way(SMALL.clone(), worker)
        sy.synchronize()
        theirs = other(x)
        by(change, x, theirs, worker)
        change(here)
        assert (x.shape, x.dim(), x.dtype) == (here.shape, here.dim(), here.dtype), how
        del theirs


def test_a_result_that_is_written_over_what_was_sent(worker: Any) -> None:
    x, y = torch.zeros(0).send(worker), torch.ones(2, 2).send(worker)
    torch.add(y, 1, out=x)
    assert x.shape == (2, 2)


def test_what_comes_back_is_another_tensor(hook: sy.TorchHook, worker: Any) -> None:
    carl = make_worker(hook, "carl")
    x = torch.zeros(2).send(worker)
    away = x.move(carl)
    away.unsqueeze_(0)
    back = away.move(worker)
    assert back.shape == (1, 2)
    for fetch in (lambda x: x.get(), lambda x: sy.get_all([x])):
        y = torch.zeros(2).send(worker)
        sy.synchronize()
        fetch(y)
        with pytest.raises(ObjectNotFound):
            y.shape  # noqa: B018
    del back, away
    carl.close()


def test_what_somebody_else_puts_in_its_place(worker: Any, other: Any) -> None:
    x = torch.zeros(2).send(worker)
    sy.synchronize()
    theirs = other(x)
    assert theirs.get().shape == (2,)
    connection = theirs.child.connection
    connection.put(torch.zeros(3, 4), x.id_at_location)
    connection.synchronize()
    assert x.shape == (3, 4)
    del theirs


def test_a_pointer_that_takes_its_place(hook: sy.TorchHook, worker: Any, other: Any) -> None:
    carl = make_worker(hook, "carl")
    x = torch.zeros(2, 3).send(worker)
    assert x.dim() == 2
    theirs = other(x)
    theirs.remote_send(carl)
    done(worker, theirs)
    assert x.get().location.id == "carl"
    del theirs
    carl.close()


def test_what_was_cleared_is_not_known(worker: Any) -> None:
    x = torch.zeros(2).send(worker)
    sy.synchronize()
    worker.clear_objects()
    with pytest.raises(ObjectNotFound):
        x.dim()


def test_what_is_sent_privately_is_asked_for(hook: sy.TorchHook, worker: Any) -> None:
    secret = torch.ones(2).private_tensor(allowed_users=["ann"]).send(worker, user="ann")
    several = sy.send_all([torch.ones(2).private_tensor(["ann"])], worker, user="ann")
    sy.synchronize()
    with hook.record() as log:
        assert secret.dim() == several[0].dim() == 1
    assert len(waiting(log)) == 2
    del log, several


def test_an_id_that_the_caller_chose(hook: sy.TorchHook, worker: Any) -> None:
    x = torch.zeros(2).send(worker, id=7)
    sy.synchronize()
    with hook.record() as log:
        assert x.dim() == 1
    assert len(waiting(log)) == 1, "it may stand for something else by now"
    del log


def test_the_gradient_of_a_leaf_that_was_sent(hook: sy.TorchHook, worker: Any, other: Any) -> None:
    x, y, z = leaf(worker, 1.0, 2.0), *sy.send_all(
        [torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)], worker
    )
    had = torch.ones(2, requires_grad=True)
    had.sum().backward()
    had = had.send(worker)
    sy.synchronize()
    with hook.record() as log:
        assert x.grad is None and y.grad is None
    assert waiting(log) == []
    theirs = other(z)
    theirs.sum().backward()
    done(worker, theirs)
    assert z.grad.copy().get().tolist() == [1, 1]
    assert had.grad.copy().get().tolist() == [1, 1]
    del log, theirs


@pytest.mark.parametrize("how", ["backward", "in a group", "set", "set through another pointer"])
def test_a_gradient_that_comes_before_the_first_question(worker: Any, how: str) -> None:
    x = leaf(worker, 1.0, 2.0)
    if how == "backward":
        (x * x).sum().backward()
    elif how == "in a group":
        with worker.group():
            (x * x).sum().backward()
            assert x.grad is not None
    elif how == "set":
        x.grad = torch.tensor([2.0, 4.0]).send(worker)
    else:
        x.contiguous().grad = torch.tensor([2.0, 4.0]).send(worker)
    assert x.grad.copy().get().tolist() == [2, 4]


def test_a_plan_that_is_built_asks_nothing(worker: Any) -> None:
    x = leaf(worker, 1.0, 2.0)
    for question in (lambda: x.dim(), lambda: x.grad):
        with pytest.raises(CannotRecord):
            sy.func2plan([(1,)])(lambda y: [question(), y][1])  # noqa: B023


def test_a_worker_that_is_closed_answers_nothing(hook: sy.TorchHook) -> None:
    dan = make_worker(hook, "dan")
    x = leaf(dan, 1.0)
    dan.close()
    for question in (lambda: x.dim(), lambda: x.grad):
        with pytest.raises(WorkerClosed):
            question()


def test_what_is_kept_of_what_was_sent_is_bounded(
    worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts_module, "_MOST_SENT", 4)
    monkeypatch.setattr(facts_module, "_MOST_LEAVES", 4)
    kept = [torch.zeros(1, number).send(worker) for number in range(6)]
    many = sy.send_all([torch.zeros(number) for number in range(6)], worker)
    assert len(kept[0].child.connection.facts._sent) <= 4
    assert [x.shape for x in kept] == [(1, number) for number in range(6)]
    assert [x.shape for x in many] == [(number,) for number in range(6)]
    del many


def test_a_fact_of_part_of_a_chain_is_asked_for(worker: Any) -> None:
    x = torch.ones(2, 3).send(worker)
    assert (x.dim(), torch.Tensor.size(x, 1), x.size()) == (2, 3, (2, 3))
    chain = sy.LoggingTensor().on(torch.ones(2, 3)).send(worker)
    assert chain.child.child.dim() == 2
    assert chain.child.child.grad is None


# ----------------------------------------------------------------------------------- the table


def test_what_asks_for_a_fact_alters_nothing() -> None:
    assert not [NAMES[op] for op in FACTS if FLAGS[op] & ALTERS]
    assert len(FACTS) > 20


def test_a_key_is_made_of_the_operation_and_its_inputs() -> None:
    facts = Facts()
    facts.learn(DIM, 1, 2)
    one = facts_module.Returns(None, (True,))
    for out, args, autocast in (
        (10, ((REF, 1), 5), None),
        (11, ((REF, 1), 5), None),
        (12, ((REF, 1), 5.0), None),
        (13, ((REF, 2), 5), None),
        (14, ((REF, 1), 5), "cpu"),
        (15, ([1, [(REF, 1)], "a"],), None),
        (16, ([1, [(REF, 1)], "a"],), None),
        (17, (object(),), None),
    ):
        facts.note(ADD, args, None, out, one, autocast)
    facts.learn(DIM, 10, 2)
    assert facts.known(DIM, 11) == 2
    facts.learn(DIM, 15, 1)
    assert facts.known(DIM, 16) == 1
    assert all(facts.known(DIM, id) is UNKNOWN for id in (12, 13, 14, 17))
    facts.learn(SHAPE, 10, (2,))
    assert facts.known(SHAPE, 11) is UNKNOWN, "sizes may follow from values"
    facts.note(ADD, ((REF, 10), 1), {"alpha": 2}, 20, one, None)
    facts.note(ADD, ((REF, 11), 1), {"alpha": 2}, 21, one, None)
    facts.learn(DIM, 20, 7)
    assert facts.known(DIM, 21) == 7
    facts.note(ADD, ((REF, 11), 1), {"out": (REF, 1)}, 0, one, None)
    assert not facts.active and facts.known(DIM, 1) is UNKNOWN


def test_what_an_operation_makes_of_the_same_kind(hook: sy.TorchHook, worker: Any) -> None:
    x = torch.zeros(2, 3).send(worker)
    assert x.dim() == 2
    copies = [
        x.detach(),
        x.clone(),
        x.data,
        x.double(),
        x.to(None, torch.float16, False),
        x.float(),
    ]
    asked = [torch.detach(input=x), x.to(torch.float64), x.to(None, None, False)]
    with hook.record() as log:
        assert [y.shape for y in copies] == [(2, 3)] * 6
        assert [y.dtype for y in copies[3:]] == [torch.float64, torch.float16, torch.float32]
    assert waiting(log) == []
    assert [y.dtype for y in asked] == [torch.float32, torch.float64, torch.float32]
    copies[-1].unsqueeze_(0)  # it is x
    assert (x.shape, copies[0].shape) == ((1, 2, 3), (2, 3))
    copies[0].t_()
    x.data = copies[0]
    assert (x.shape, copies[0].shape, copies[1].shape) == ((3, 2), (3, 2), (2, 3))
    del log, copies, asked


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "_MOST", 8)
    facts = Facts()
    one = facts_module.Returns(None, (True,))
    for id in range(100):
        facts.learn(DIM, id, id)
        facts.note(NEG, ((REF, id),), None, 1000 + id, one, None)
        assert facts.known(DIM, id) == id
    assert len(facts._known) <= 8 and len(facts._numbers) <= 8
    for id in (1, 2, 3):
        for op in sorted(FACTS)[:4]:
            facts.learn(op, id, op)
            assert facts.known(op, id) == op and len(facts._known) <= 8
    facts.drop(range(2000))
    assert not facts._keys
    for id in range(20):
        facts.note(NEG, ((REF, 1),), None, 100 + id, one, None)
        assert facts.known(DIM, 100 + id) is UNKNOWN
        assert len(facts._keys) <= 10, "what is dropped without a word is forgotten"


def test_what_is_made_like_what_was_sent_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "_MOST_SENT", 8)
    facts, clone = Facts(), BY_NAME["torch.Tensor.clone"]
    facts.sent_all((1,), (torch.ones(2, 3),))
    assert facts.known(DIM, 1) == 2
    for id in range(100, 150):
        facts.note(clone, ((REF, 1),), None, id, facts_module.Returns(None, (True,)), None)
        facts.known(DIM, id)
        assert len(facts._sent) <= 8


def test_a_nested_tensor_in_a_group_is_refused_as_elsewhere(worker: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    with pytest.raises(sy.exceptions.NotSendable), worker.group():
        nested.send(worker)
