"""What torch does with a whole module is one message to each worker, and does what torch does."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import CannotRecord, ObjectNotFound, WorkerClosed
from syft.workers.wire.messages import Drop
from tests.shells.owner import inspect

pytestmark = pytest.mark.every_shell

COUNT = 12
"""How many layers the modules have: enough to tell one message from one a parameter."""


class Tagged(nn.Linear):
    """A layer with state of its own kind, and hooks around its state."""

    def __init__(self) -> None:
        super().__init__(3, 3)
        self.seen = seen = []
        self.register_state_dict_post_hook(lambda *args: seen.append("saved"))
        self.register_load_state_dict_post_hook(lambda *args: seen.append("loaded"))

    def get_extra_state(self) -> dict[str, int]:
        return {"version": 3}

    def set_extra_state(self, state: dict[str, int]) -> None:
        assert state == {"version": 3}


def make() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Linear(3, 3) for _ in range(COUNT)]
    return nn.Sequential(*layers, nn.BatchNorm1d(3), Tagged(), nn.Dropout(0.0))


def work(log: Any, to: str = "worker") -> list[str]:
    """The messages to a worker besides the ids of dropped pointers."""
    names = [type(entry.message).__name__ for entry in log.to(to)]
    return [name for name in names if name != "Drop"]


def same(one: Any, other: Any) -> bool:
    """Whether two state dicts have the same keys, metadata and values, wherever they are."""
    assert type(one) is type(other) and one._metadata == other._metadata
    assert list(one) == list(other)
    for mine, theirs in zip(one.values(), other.values(), strict=True):
        if not torch.is_tensor(mine):
            assert mine == theirs
        elif not torch.equal(mine.copy().get() if mine.location else mine, theirs):
            return False
    return True


Act = Callable[[nn.Module], Any]

METHODS: dict[str, tuple[Act, int]] = {
    "state_dict": (lambda model: model.state_dict(), 1),
    "state_dict(prefix)": (lambda model: model.state_dict(prefix="x."), 1),
    "state_dict(keep_vars)": (lambda model: model.state_dict(keep_vars=True), 0),
    "load_state_dict": (lambda model: model.load_state_dict(make().state_dict()), 1),
    "zero_grad": (lambda model: model.zero_grad(), 1),
    "requires_grad_": (lambda model: model.requires_grad_(False), 1),
    "double": (lambda model: model.double(), 1),
    "float": (lambda model: model.float(), 1),
    "half": (lambda model: model.half(), 1),
    "bfloat16": (lambda model: model.bfloat16(), 1),
    "to": (lambda model: model.to(torch.float64), 1),
    "there and back": (lambda model: model.double().float().double().half(), 4),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_whole_module_is_one_message(
    hook: sy.TorchHook, worker: sy.VirtualWorker, name: str
) -> None:
    act, messages = METHODS[name]
    model, duplicate = make().send(worker), make()
    sy.synchronize()
    with hook.record() as log:
        result = act(model)
        sy.synchronize()
    assert len(work(log)) <= messages
    expected = act(duplicate)
    assert (result is model) == (expected is duplicate)
    assert [x.dtype for x in model.parameters()] == [x.dtype for x in duplicate.parameters()]
    assert [x.requires_grad for x in model.parameters()] == [
        x.requires_grad for x in duplicate.parameters()
    ]
    assert all(isinstance(x, nn.Parameter) for x in model.parameters())
    assert model.location.id == "worker"
    if isinstance(expected, OrderedDict):
        assert same(result, expected)
        assert all(
            x.requires_grad is ("keep_vars" in name) for n, x in result.items() if "ght" in n
        )
        result = {key: value for key, value in result.items() if "vars" not in name}
    assert same(model.state_dict(), duplicate.state_dict())
    assert model[-2].seen == duplicate[-2].seen
    del log, result


def test_the_gradients_of_an_optimizer(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    model = make().send(worker)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(4, 3).send(worker)).sum().backward()
    sy.synchronize()
    with hook.record() as log:
        optimizer.zero_grad()
        sy.synchronize()
        assert all(parameter.grad is None for parameter in model.parameters())
        optimizer.zero_grad()
        model.zero_grad()
    assert work(log) == ["ClearGradients"], "and it is known that there are none"
    del log


def test_gradients_that_are_kept_are_zeros(worker: sy.VirtualWorker) -> None:
    model = make().send(worker)
    model(torch.randn(4, 3).send(worker)).sum().backward()
    for clear in (model.zero_grad, torch.optim.SGD(model.parameters(), lr=0.1).zero_grad):
        clear(set_to_none=False)
        assert model[0].weight.grad.copy().get().eq(0).all()


def test_clearing_in_a_group_goes_with_the_group(
    hook: sy.TorchHook, worker: sy.VirtualWorker
) -> None:
    model = make().send(worker)
    model(torch.randn(4, 3).send(worker)).sum().backward()
    sy.synchronize()
    with hook.record() as log, worker.group():
        model.zero_grad()
        sy.synchronize()
    assert set(work(log)) == {"Run"}
    assert all(parameter.grad is None for parameter in model.parameters())
    del log


def test_the_gradient_behind_another_pointer_is_cleared_too(worker: sy.VirtualWorker) -> None:
    model = nn.Linear(2, 1).send(worker)
    model(torch.ones(1, 2).send(worker)).sum().backward()
    alias = torch.atleast_2d(model.weight)  # the very same tensor
    assert alias.grad.copy().get().tolist() == [[1, 1]]
    model.zero_grad()
    assert alias.grad is None and model.weight.grad is None


def test_modules_at_two_workers_are_cleared_at_both(hook: sy.TorchHook) -> None:
    workers = [sy.VirtualWorker(hook, id=name) for name in ("left", "right")]
    parts = nn.ModuleList(nn.Linear(2, 2).send(worker) for worker in workers)
    parts.append(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(parts.parameters(), lr=0.1)
    for part, place in zip(parts, [*workers, None], strict=True):
        x = torch.ones(1, 2)
        part(x if place is None else x.send(place)).sum().backward()
    optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in parts.parameters())


def test_nothing_is_cleared_at_a_worker_that_was_closed(hook: sy.TorchHook) -> None:
    worker = sy.VirtualWorker(hook, id="gone")
    model = nn.Linear(2, 1).send(worker)
    model(torch.ones(1, 2).send(worker)).sum().backward()
    worker.close()
    with pytest.raises(WorkerClosed):
        model.zero_grad()


def test_a_state_dict_shares_memory_with_the_parameters(worker: sy.VirtualWorker) -> None:
    model = make().send(worker)
    state = model.state_dict()
    with torch.no_grad():
        model[0].weight.fill_(7)
    assert state["0.weight"].copy().get().eq(7).all()


def test_loading_what_is_at_the_worker(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    model, other = make().send(worker), make()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(1)
    expected = {
        name: value.clone() for name, value in other.state_dict().items() if "_e" not in name
    }
    there = other.send(worker).state_dict()
    sy.synchronize()
    with hook.record() as log:
        keys = model.load_state_dict(there)
        sy.synchronize()
    assert work(log) == ["Run"] and str(keys) == "<All keys matched successfully>"
    state = sy.get_all(model.state_dict(keep_vars=True), keep=True)
    assert all(torch.equal(state[name], value) for name, value in expected.items())
    assigned = make()
    assigned.load_state_dict(there, assign=True)
    assert assigned.location.id == "worker" and assigned[0].weight.requires_grad
    del log, there


def test_what_does_not_fit_is_said_as_torch_says_it(worker: sy.VirtualWorker) -> None:
    model, duplicate, wrong = make().send(worker), make(), make().state_dict()
    wrong["0.weight"] = torch.zeros(2, 2)
    wrong["1.bias"] = torch.full((3,), 9.0)
    wrong["stray"] = wrong.pop("2.bias")
    texts = []
    for module in (model, duplicate):
        with pytest.raises(RuntimeError) as caught:
            module.load_state_dict(wrong)
        texts.append(str(caught.value))
    assert texts[0] == texts[1] and "size mismatch" in texts[0] and "stray" in texts[0]
    assert model[1].bias.copy().get().tolist() == [9, 9, 9], "what fits was loaded, as in torch"
    keys = [
        str(module.load_state_dict(wrong | {"0.weight": torch.zeros(3, 3)}, strict=False))
        for module in (model, duplicate)
    ]
    assert keys[0] == keys[1]
    del caught


def test_a_group_of_the_user_stays_open(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    model = make().send(worker)
    x = torch.ones(3).send(worker)
    sy.synchronize()
    with hook.record() as log, worker.group():
        y = x + 1
        state = model.state_dict()
        z = y * 2
        assert work(log) == []
    with log:
        sy.synchronize()
    assert work(log) == ["Run"]
    assert z.get().tolist() == [4, 4, 4] and state["0.bias"].copy().get().shape == (3,)
    del log, state


def test_an_exception_of_the_user_leaves_no_group_open(
    hook: sy.TorchHook, worker: sy.VirtualWorker
) -> None:
    model = make().send(worker)

    def fail(*args: Any) -> None:
        raise ValueError("not today")

    handle = model[3].register_state_dict_pre_hook(fail)
    with pytest.raises(ValueError, match="not today"):
        model.state_dict()
    handle.remove()
    sy.synchronize()
    with hook.record() as log:
        y = model[0].weight + 1
        sy.synchronize()
    assert work(log) == ["Command"]
    assert len(model.state_dict()) == len(make().state_dict())
    del log, y


def test_a_hook_of_the_user_may_ask_the_worker(worker: sy.VirtualWorker) -> None:
    model, seen = make().send(worker), []
    inner = nn.Linear(3, 3).send(worker)
    model[3].register_state_dict_pre_hook(lambda *args: seen.append(inner.bias.sum().item()))
    model[4].register_state_dict_pre_hook(lambda *args: seen.append(list(inner.state_dict())))
    assert same(model.state_dict(), make().state_dict())
    assert len(seen) == 2 and seen[1] == ["weight", "bias"]


def test_parts_at_several_workers_and_here(
    hook: sy.TorchHook, worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    model = make()
    for part in model[1:4]:
        part.send(worker)
    for part in model[5:9]:
        part.send(alice)
    sy.synchronize()
    with hook.record() as log:
        state = model.state_dict()
        model.requires_grad_(False)
        sy.synchronize()
    assert len(work(log)) == len(work(log, "alice")) == 2
    assert same(state, make().state_dict())
    places = [value.location for value in state.values() if torch.is_tensor(value)]
    assert places.count(None) > 4 and not any(p.requires_grad for p in model.parameters())
    del log, state


def test_a_tensor_at_two_workers(
    hook: sy.TorchHook, worker: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    model = nn.Module()
    model.register_buffer("x", torch.ones(2).send(worker, alice))
    model.register_buffer("y", torch.ones(2).send(worker, alice))
    nn.Linear(1, 1).send(worker)
    sy.synchronize()
    with hook.record() as log:
        state = model.state_dict()
        sy.synchronize()
    assert work(log) == work(log, "alice") == ["Run"]
    assert [x.tolist() for x in state["x"].copy().get()] == [[1, 1], [1, 1]]
    del log, state


def test_a_parameter_that_is_gone(worker: sy.VirtualWorker) -> None:
    model = make().send(worker)
    sy.synchronize()
    last = model[2].bias.child
    last.connection.requests.tell(Drop(0, (last.id_at_location,)))  # somebody else took it away
    with pytest.raises(ObjectNotFound):
        model.state_dict()
        sy.synchronize()
    last.garbage_collect_data = False
    with pytest.raises(ObjectNotFound):
        model.load_state_dict(make().state_dict())
        sy.synchronize()
    assert model[0].weight.sum().item() is not None


def test_what_was_promised_holds_nothing_back(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).send(worker)
    promise = worker.promise()
    model[0].register_buffer("late", promise)
    sy.synchronize()
    state = model.state_dict()
    assert state["1.bias"].copy().get().shape == (2,)
    model[0].late = promise + 1
    sy.synchronize()
    later = model.state_dict()
    assert later["1.bias"].copy().get().shape == (2,)
    kept = torch.ones(2).send(worker, id=promise.id_at_location)
    assert state["0.late"].copy().get().tolist() == [1, 1]
    assert later["0.late"].copy().get().tolist() == [2, 2]
    del kept, state, later


def test_a_worker_that_was_closed(hook: sy.TorchHook) -> None:
    carl = sy.VirtualWorker(hook, id="carl")
    model = nn.Linear(2, 2).send(carl)
    carl.close()
    with pytest.raises(WorkerClosed):
        model.state_dict()


def test_a_plan_that_is_built_does_not_open_a_group(worker: sy.VirtualWorker) -> None:
    model = nn.Linear(2, 2).send(worker)
    with pytest.raises(CannotRecord):
        sy.func2plan([(1,)])(lambda x: [model.state_dict(), x][1])
    assert model.weight.child.connection.groups.current is None


def test_private_parameters_stay_private(worker: sy.VirtualWorker) -> None:
    model = nn.Module()
    model.register_buffer("x", torch.ones(2).private_tensor(["ann"]).send(worker, user="ann"))
    model.register_buffer("y", torch.ones(2).send(worker))
    nn.Linear(1, 1).send(worker)
    state = model.state_dict()
    with pytest.raises(sy.exceptions.PermissionDenied):
        state["x"].get()
    assert state["x"].get(user="ann").tolist() == [1, 1]
    model.double()
    with pytest.raises(sy.exceptions.PermissionDenied):
        model.x.get()
    assert model.x.get(user="ann").dtype is model.y.dtype is torch.float64


def test_a_plain_module_is_torchs_own_matter(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    nn.Linear(1, 1).send(worker)
    hook.local_worker.network.flush()  # that it is gone is told now, and not while this looks on
    sy.synchronize()  # and answered
    shared = nn.Linear(3, 3)
    model = nn.Sequential(make(), shared, shared)
    model.register_module("nothing", None)
    with hook.record() as log, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(model.state_dict()) == len(make().state_dict()) + 4
        model.double().requires_grad_(False).zero_grad()
        torch.optim.SGD(model.parameters(), lr=0.1).zero_grad()
    assert len(log) == 0
    del log


def test_torchs_methods_are_as_they_were(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    owners = (nn.Module, torch.optim.Optimizer)
    nn.Linear(1, 1).send(worker)
    surrounded = [owner.zero_grad for owner in owners]
    assert all(method.__wrapped__.__qualname__ == method.__qualname__ for method in surrounded)
    before = [method.__wrapped__ for method in surrounded]
    hook.close()
    assert [owner.zero_grad for owner in owners] == before


def test_nothing_is_left_at_the_worker(worker: sy.VirtualWorker) -> None:
    model = make().send(worker)
    held = len(inspect(worker))
    state = model.double().state_dict()
    model.zero_grad()
    del state
    sy.synchronize()
    assert len(inspect(worker)) == held
    model.get()


def test_a_traced_module_is_as_before(worker: sy.VirtualWorker) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))
    model = nn.Linear(2, 1).send(worker)
    assert list(traced.state_dict()) == ["weight", "bias"]
    traced.double().requires_grad_(False).zero_grad()
    assert traced.weight.dtype is torch.float64 and model.location.id == "worker"
