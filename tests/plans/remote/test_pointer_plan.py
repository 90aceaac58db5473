"""Plans at other workers: one message a call, state there, and nothing left behind."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import ObjectNotFound, PlansNotAllowed
from tests.chain.refusal import refusal, shown
from tests.shells.child import goes_on_by_itself, make_worker
from tests.shells.owner import inspect

pytestmark = pytest.mark.every_shell

X = torch.tensor([1.0, -2.0])


@pytest.fixture
def plan() -> sy.Plan:
    """A plan with a number, a keyword and nested results."""

    @sy.func2plan()
    def scaled(x: torch.Tensor, y: torch.Tensor, lr: float = 0.5) -> Any:
        return {"sum": x + y, "parts": (x * lr, [y])}

    scaled.build(X, X)
    return scaled


@pytest.fixture
def counter() -> sy.Plan:
    """A plan that writes to its state."""
    total = torch.zeros(2)

    @sy.func2plan(args_shape=[(2,)], state=(total,))
    def count(x: torch.Tensor, state: sy.State) -> torch.Tensor:
        return state.read()[0].add_(x) * 1

    return count


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))


def sent(hook: sy.TorchHook, action: Any) -> list[str]:
    """The kinds of the messages that an action sends to others."""
    with hook.record() as log:
        action()
    return [type(entry.message).__name__ for entry in log if entry.receiver != "me"]


def test_the_plan_must_be_built(bob: sy.VirtualWorker) -> None:
    plan = sy.func2plan()(lambda x: x)
    with pytest.raises(RuntimeError, match="^A plan needs to be built before being sent to a wor"):
        plan.send(bob)


def test_a_pointer_shows_both_ends(bob: sy.VirtualWorker, plan: sy.Plan) -> None:
    pointer = plan.send(bob)
    assert shown(pointer) == "[PointerPlan | me:N -> bob:N]"
    assert pointer.location is bob and pointer.owner.id == "me" and pointer.name == "scaled"
    assert pointer.id == pointer.id != pointer.id_at_location
    assert pointer.id_at_location in inspect(bob).objects and pointer.is_built
    assert repr(inspect(bob).objects[pointer.id_at_location]) == "<StoredPlan scaled>"


def test_a_call_is_one_message(hook: sy.TorchHook, worker: sy.VirtualWorker, plan: sy.Plan) -> None:
    pointer, x, y = plan.send(worker), X.send(worker), (X + 5).send(worker)
    worker.collect()
    results: list[Any] = []
    for one, other in ((x, y), (x, y), (y, x)):
        kinds = sent(hook, lambda one=one, other=other: results.append(pointer(one, other)))
        assert kinds == ["Run"] or (worker.pipelined and kinds == [])
    assert torch.equal(results[0]["sum"].get(), X + X + 5)


def test_results_are_nested_as_the_function_has_them(
    worker: sy.VirtualWorker, plan: sy.Plan
) -> None:
    pointer, x, y = plan.send(worker), X.send(worker), (X + 5).send(worker)
    result = pointer(x, y)
    assert list(result) == ["sum", "parts"] and type(result["parts"]) is tuple
    assert torch.equal(result["sum"].get(), X + X + 5)
    assert torch.equal(result["parts"][0].get(), X * 0.5)
    assert torch.equal(result["parts"][1][0].get(), X + 5)


def test_arguments_by_name_and_other_numbers(worker: sy.VirtualWorker, plan: sy.Plan) -> None:
    pointer, x = plan.send(worker), X.send(worker)
    assert torch.equal(pointer(y=x, x=x, lr=2.0)["parts"][0].get(), X * 2)
    assert torch.equal(pointer(x, x, lr=3)["parts"][0].get(), X * 3)
    assert torch.equal(pointer(x, x)["parts"][0].get(), X * 0.5)


def test_a_queued_worker_is_not_waited_for(hook: sy.TorchHook, plan: sy.Plan) -> None:
    slow = make_worker(hook, id="slow", pipelined=True)
    pointer, x = plan.send(slow), X.send(slow)
    results = [pointer(x, x)["sum"] for _ in range(3)]
    if not goes_on_by_itself(slow):
        assert not any(result.child.handle.done() for result in results)
    assert torch.equal(results[2].child.handle.result().get(), X + X)
    assert all(result.child.handle.done() for result in results)


def test_two_devices_run_one_plan_at_the_same_time(hook: sy.TorchHook, counter: sy.Plan) -> None:
    devices = [make_worker(hook, id=name, pipelined=True) for name in ("one", "two")]
    pointers = [counter.send(device) for device in devices]
    data = [torch.full((2,), float(n)).send(device) for n, device in enumerate(devices, 1)]
    results = [[pointer(x) for pointer, x in zip(pointers, data)] for _ in range(3)]
    if not goes_on_by_itself(devices[0]):
        assert not any(result.child.handle.done() for row in results for result in row)
    values = [[result.get()[0].item() for result in row] for row in results]
    assert values == [[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]
    assert torch.equal(counter(torch.zeros(2)), torch.zeros(2))  # here nothing happened


def test_numbers_come_back_as_values(worker: sy.VirtualWorker) -> None:
    @sy.func2plan()
    def stats(x: torch.Tensor) -> Any:
        return x.shape[0], x.sum(), x.max().item()

    stats.build(X)
    rows, total, most = stats.send(worker)(torch.ones(5).send(worker))
    assert (rows, most) == (5, 1.0) and total.get() == 5


def test_other_arguments_are_refused_here(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker, plan: sy.Plan
) -> None:
    pointer, x, other = plan.send(bob), X.send(bob), X.send(alice)
    chain = sy.LoggingTensor().on(X).send(bob)
    chained = sy.LoggingTensor().on(X.send(bob))
    for arguments, text in [
        ((x, other), "LocationMismatch: plan scaled: the operands lie at bob and alice."),
        ((x, X), "LocationMismatch: plan scaled: the operands lie at bob and me."),
        ((x, X.send(bob, alice)), "the operands lie at bob and bob+alice."),
        ((x,), "WrongArguments: Plan 'scaled' takes (x, y, lr=0.5), and got 1 argument"),
        ((x, 3), "WrongArguments: Plan 'scaled' takes a tensor for y, and got an int."),
        ((x, x, "fast"), "takes a float for lr, and got a str."),
        ((x, chained), "UnsupportedOperation"),
        ((x, chain.child.child), "takes a tensor for y"),
    ]:
        messages: list[str] = []
        with hook.record() as log:
            messages.append(refusal(lambda arguments=arguments: pointer(*arguments)))
        assert text in messages[0] and not [e for e in log if type(e.message).__name__ == "Run"]


def test_an_error_there_names_the_action_and_both_lines(
    bob: sy.VirtualWorker, plan: sy.Plan
) -> None:
    pointer, x, y = plan.send(bob), X.send(bob), torch.ones(3).send(bob)
    with pytest.raises(RuntimeError) as caught:
        pointer(x, y)
    notes = "\n".join(caught.value.__notes__)
    assert "In action 0, torch.Tensor.add" in notes and f"asked for at {__file__}" in notes
    assert f"Action 0 was recorded at {__file__}:" in notes
    assert torch.equal(pointer(x, x)["sum"].get(), X + X)  # the worker goes on
    del caught


def test_the_state_stays_there_until_it_is_fetched(
    worker: sy.VirtualWorker, counter: sy.Plan
) -> None:
    pointer = counter.send(worker)
    for _ in range(3):
        pointer(X.send(worker))
    assert torch.equal(counter.state_dict()["state.0"], torch.zeros(2))
    back = pointer.get()
    assert type(back) is sy.Plan and back.name == "count" and back.is_built
    assert torch.equal(back.state_dict()["state.0"], X * 3)
    assert torch.equal(back(X), X * 4) and worker.objects_count() == 0
    assert "came without its function" in refusal(lambda: back.build(X))
    assert "object" in refusal(lambda: pointer(X.send(worker)).get())
    assert torch.equal(back.send(worker)(X.send(worker)).get(), X * 5)
    assert back.code.splitlines()[1:] == counter.code.splitlines()[1:]


def test_a_pointer_lives_on_without_the_plan(worker: sy.VirtualWorker) -> None:
    def make() -> Any:
        net = nn.Linear(2, 1)
        return sy.func2plan(args_shape=[(-1, 2)])(lambda x: net(x)).send(worker), net(X)

    pointer, expected = make()
    assert torch.equal(pointer(X.send(worker)).get(), expected)


def test_pointers_to_the_state_share_its_memory(
    hook: sy.TorchHook, worker: sy.VirtualWorker, model: nn.Module
) -> None:
    pointer = sy.func2plan(args_shape=[(-1, 2)])(lambda x: model(x)).send(worker)
    state = pointer.state_dict()
    assert list(state) == list(model.state_dict())
    for name, value in model.state_dict().items():
        assert torch.equal(state[name].copy().get(), value)
    first, *_ = pointer.parameters()
    assert isinstance(first, torch.Tensor) and len(list(pointer.named_parameters())) == 4
    with torch.no_grad():
        first.zero_()
        model[0].weight.zero_()
    assert torch.equal(pointer(X.send(worker)).get(), model(X))
    pointer(X.send(worker)).sum().backward()
    model(X).sum().backward()
    assert torch.equal(first.grad.get(), model[0].weight.grad)
    nothing = sy.func2plan(args_shape=[(2,)])(lambda x: x).send(worker)
    assert nothing.state_dict() == {}


def test_training_there_equals_training_here(
    hook: sy.TorchHook, worker: sy.VirtualWorker, model: nn.Module
) -> None:
    duplicate = copy.deepcopy(model)

    def train(net: nn.Module, x: torch.Tensor, y: torch.Tensor, lr: float) -> torch.Tensor:
        loss = (net(x) - y).square().mean()
        net.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.sub_(lr * parameter.grad)
        return loss

    plan = sy.func2plan()(lambda x, y, lr: train(model, x, y, lr))
    plan.build(torch.ones(3, 2), torch.ones(3, 1), 0.1)
    pointer = plan.send(worker)
    for seed, rows in enumerate((4, 4, 3, 5)):
        g = torch.Generator().manual_seed(seed)
        x, y = torch.randn(rows, 2, generator=g), torch.randn(rows, 1, generator=g)
        loss = pointer(x.send(worker), y.send(worker), lr=0.1 / (seed + 1))
        assert torch.equal(loss.get(), train(duplicate, x, y, 0.1 / (seed + 1)))
    trained = pointer.get()
    model.load_state_dict(trained.state_dict())
    for mine, theirs in zip(model.parameters(), duplicate.parameters()):
        assert torch.equal(mine, theirs)


def test_plans_are_found_copied_and_moved(
    hook: sy.TorchHook, worker: sy.VirtualWorker, alice: sy.VirtualWorker, counter: sy.Plan
) -> None:
    pointer = counter.tag("#counter").describe("counts").send(worker)
    assert pointer.tags == {"#counter"} and pointer.description == "counts"
    pointer.tag("#more").describe("counts on")
    (found,) = worker.search(["#counter", "#more"])
    assert found.description == "counts on" and repr(found).startswith("[PointerPlan")
    assert torch.equal(found(X.send(worker)).get(), X)
    del found
    duplicate = pointer.copy()
    assert torch.equal(pointer(X.send(worker)).get(), X * 2)
    assert torch.equal(duplicate(X.send(worker)).get(), X * 2) and duplicate.tags == {
        "#counter",
        "#more",
    }
    moved = pointer.move(alice)
    assert moved.move(alice) is moved and moved.location is alice
    assert torch.equal(moved(X.send(alice)).get(), X * 3)
    home = moved.move("me")
    assert torch.equal(home(X), X * 4) and home.tags == {"#counter", "#more"}
    assert "pp.copy().move(worker)" in refusal(lambda: duplicate.send(alice))
    assert "moved it to alice" in refusal(lambda: pointer(X.send(worker)).get())


def test_the_remote_plan_dies_with_its_pointer(bob: sy.VirtualWorker, plan: sy.Plan) -> None:
    pointer, kept = plan.send(bob), plan.send(bob, garbage_collect_data=False)
    assert bob.objects_count() == 2
    del pointer
    assert bob.objects_count() == 1
    kept.garbage_collect_data = True
    del kept
    assert bob.objects_count() == 0


def test_what_became_of_a_plan_is_told(bob: sy.VirtualWorker, plan: sy.Plan) -> None:
    pointer, x = plan.send(bob), X.send(bob)
    _ = pointer(x, x)
    (found,) = bob.search(str(pointer.id_at_location))
    found.get()
    for _ in range(2):  # known by its number, and defined again
        with pytest.raises(ObjectNotFound, match="me fetched it with get"):
            pointer(x, x)
    other = plan.send(bob)
    bob.clear_objects()
    with pytest.raises(ObjectNotFound, match="cleared"):
        other(x, x)


def test_calls_wait_for_promised_inputs(bob: sy.VirtualWorker, counter: sy.Plan) -> None:
    pointer, x = counter.send(bob), bob.promise()
    result, second = pointer(x), pointer(X.send(bob))
    assert not result.child.handle.done() and not second.child.handle.done()
    del pointer  # the calls have what they need
    kept = X.send(bob, id=x.child.id_at_location)
    assert torch.equal(result.get(), X) and torch.equal(second.get(), X * 2)
    del kept


def test_owners_may_refuse_plans(hook: sy.TorchHook, plan: sy.Plan) -> None:
    shy = sy.VirtualWorker(hook, id="shy", allow_plans=False)
    with pytest.raises(PlansNotAllowed) as caught:
        plan.send(shy)
    assert str(caught.value) == (
        "Worker 'shy' runs no plans for you. Its owner can allow them: allow_plans=True, and a "
        "token with --plans."
    )
    del caught
    shy.core.allow_plans = True
    pointer, x = plan.send(shy), X.send(shy)
    shy.core.allow_plans = False
    with pytest.raises(PlansNotAllowed):
        pointer(x, x)
    assert torch.equal((x + x).get(), X + X)


def test_it_is_sent_to_somebody(bob: sy.VirtualWorker, plan: sy.Plan) -> None:
    assert "NotSendable: Cannot send a plan to nobody" in refusal(plan.send)
    assert "UnknownWorker" in refusal(lambda: plan.send(bob, "nobody"))
    assert bob.objects_count() == 0


def test_without_a_hook_there_is_nobody_to_send_it(plan: sy.Plan) -> None:
    assert "HookError: torch is not hooked" in refusal(lambda: plan.send("bob"))
    assert "HookError" in refusal(lambda: plan.owner)


def test_state_that_cannot_travel_is_refused(
    hook: sy.TorchHook, bob: sy.VirtualWorker, model: nn.Module
) -> None:
    whole = torch.ones(4)
    plan = sy.func2plan(args_shape=[(2,)], state=(whole, whole[1:3]))(lambda x, state: x)
    assert "state 'state.0' and 'state.1' share memory" in refusal(lambda: plan.send(bob))
    apart = sy.func2plan(args_shape=[(2,)], state=(whole[:2], whole[2:], whole[:0]))(
        lambda x, state: x + state.read()[1]
    )
    assert torch.equal(apart.send(bob)(X.send(bob)).get(), X + 1)
    grown = sy.func2plan(args_shape=[(2,)], state=(model[0].weight * 2,))(lambda x, state: x)
    assert "NotALeaf" in refusal(lambda: grown.send(bob))
    away = sy.func2plan(args_shape=[(-1, 2)])(lambda x: model(x))
    model.send(bob)
    assert "LocationMismatch: the plan's state" in refusal(lambda: away.send(bob))
    assert torch.equal(away(X.send(bob)).get(), model.get()(X))  # but it runs there, op by op


def test_what_is_tagged_here_is_found_by_others(hook: sy.TorchHook, counter: sy.Plan) -> None:
    me, carl = hook.local_worker, sy.VirtualWorker(hook, id="carl")
    counter.tag("#mine")
    assert me.search("#mine") == []
    me.is_client_worker = False
    counter.tag("#here")
    (found,) = carl.request_search(["#mine", "#here"], location=me)
    assert shown(found) == "[PointerPlan | carl:N -> me:N]"
    counter.build(X)  # and is offered anew
    later = sy.func2plan()(lambda x: x).tag("#later")
    assert me.search("#later") == []
    later.build(X)
    (pointer,) = me.search("#later")
    assert pointer.location is me
    del found, pointer
    me.clear_objects()
    assert "a tag is a string" in refusal(lambda: counter.tag(3))  # type: ignore[arg-type]
    assert "a description is a string" in refusal(lambda: counter.describe(None))  # type: ignore


def test_what_a_worker_could_not_do_is_not_sent(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    model = torch.nn.Linear(2, 1)
    plan = sy.func2plan(args_shape=[(1, 2)], state=(model,))(lambda x, state: state.read()[0](x))
    handle = model.weight.register_hook(lambda grad: grad * 0)
    assert refusal(lambda: plan.send(bob)) == (
        "NotSendable: Cannot send a plan whose state 'weight' has a backward hook: a hook is a "
        "Python function, which cannot travel: remove it."
    )
    handle.remove()
    plan.send(bob)
    generator = torch.Generator()
    plain = sy.func2plan(args_shape=[(2,)])(lambda x: torch.rand(2, generator=generator) + x)
    branched = sy.func2plan(args_shape=[(2,)])(
        lambda x: sy.cond(
            x.sum() > 0, lambda x: x.clone().normal_(generator=generator), torch.abs, x
        )
    )
    for drawing in (plain, branched):
        assert "Cannot send a plan that draws from a torch.Generator" in refusal(
            lambda: drawing.send(bob)  # noqa: B023
        )


def test_a_pointer_has_no_methods_of_the_class(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    pointer = sy.func2plan(args_shape=[(2,)])(lambda x: x + x).send(bob)
    assert refusal(lambda: pointer.upd) == (
        "AttributeError: 'PointerPlan' object has no attribute 'upd': a pointer stands for one "
        "plan. A method that is a plan is sent by itself: net.method.send(worker)"
    )


def test_a_call_within_a_group_sends_what_is_held_first(
    hook: sy.TorchHook, worker: sy.VirtualWorker, plan: sy.Plan
) -> None:
    pointer, x = plan.send(worker), X.send(worker)
    with hook.record() as log:
        with worker.group():
            doubled = x + x
            outcome = pointer(doubled, doubled)["sum"]
            more = outcome + 1.0
        assert torch.equal(more.get(), X * 4 + 1)
    assert len([entry for entry in log.to(worker.id) if type(entry.message).__name__ == "Run"]) == 3
    del outcome, doubled


def test_indices_are_sent_with_the_call(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    @sy.func2plan(args_shape=[(3,), ((2,), torch.int64)])
    def picked(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return x[index] * 2

    x, index = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2, 0])
    pointer, there = picked.send(worker), x.send(worker)
    for _ in range(2):
        assert pointer(there, index).get().tolist() == [6.0, 2.0]
    total = torch.zeros(2).send(worker)
    assert pointer(there, index=index, out=total) is total and total.get().tolist() == [6.0, 2.0]
    for wrong in (index.private_tensor(["ann"]), torch.zeros(2**17 + 1).long(), index.float()):
        text = refusal(lambda wrong=wrong: pointer(there, wrong))
        assert text.startswith("LocationMismatch: plan picked: the operands lie at worker and me")
