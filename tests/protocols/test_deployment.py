"""Protocols at workers: immediate, queued; several deployments; inputs that come later; errors."""

from __future__ import annotations

import asyncio
import copy
import gc
import itertools
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from syft.exceptions import (
    InputRefused,
    LocationMismatch,
    PlansNotAllowed,
    ProtocolError,
    UnknownWorker,
    WrongArguments,
)

RoleWorker = sy.RoleWorker


@pytest.fixture(params=[False, True], ids=["immediate", "queued"])
def workers(request, hook):
    made = [
        sy.VirtualWorker(hook, id=name, pipelined=request.param)
        for name in ("james", "bob", "andrew", "dan")
    ]
    yield made
    sy.synchronize()
    for worker in made:
        worker.close()
    hook.local_worker.collect()


def nothing_left(*workers) -> None:
    gc.collect()
    sy.synchronize()
    for worker in workers:
        worker.collect()
        assert worker.objects_count() == 0, worker
        assert not worker.core.dataflow.tasks, worker


def simple():
    @sy.protocol(alice=RoleWorker())
    def foo(x):
        y = x - 1
        y_ptr = y.send(alice)  # noqa: F821
        z_ptr = y_ptr.abs()
        return z_ptr

    foo.build(torch.Tensor([-1]))
    return foo


def test_the_example_of_the_document(workers):
    james, bob, andrew, dan = workers
    foo = simple()
    assert list(foo.plans) == ["local", "alice"]
    deployed = foo.deploy(local=james, alice=bob)
    result = deployed.run(torch.tensor([1.5]))
    assert result.location is bob and result.get() == 0.5
    again = foo.deploy(local=andrew, alice=dan)
    assert again.run(torch.tensor([-3.0])).get() == 4
    x = torch.tensor([7.0]).send(james)
    sy.synchronize()
    with sy.trace() as log:
        assert deployed.run(x).get() == 6
    assert [each for each in log if "Put" in str(each)] == []  # used where it is
    assert x.get() == 7
    del result, deployed, again, x
    nothing_left(*workers)


def test_messages_of_a_run(hook, workers):
    james, bob = workers[:2]
    foo = simple()
    with sy.trace() as log:
        deployed = foo.deploy(local=james, alice=bob)
        sy.synchronize()
    assert len([each for each in log if "Put" in str(each)]) == 2
    with sy.trace() as log:
        result = deployed.run(torch.tensor([1.5]))
        result.get()
    kinds = [str(each) for each in log]
    assert sum("Start" in each for each in kinds) == 2
    letters = [(each.sender, each.receiver) for each in log if "Exchange" in str(each)]
    assert letters == [("james", "bob")]


def test_state_and_results_here(workers):
    james, bob = workers[:2]
    first, second = nn.Linear(2, 3), nn.Linear(3, 2)

    @sy.protocol(alice=RoleWorker(state=(first,)), carol=RoleWorker(state=(second,)))
    def foo(x, bias):
        x = (x - x.mean()) / x.std()
        x = x.send(alice)  # noqa: F821
        (fc1,) = alice.state.read()  # noqa: F821
        x = fc1(x)
        x += bias
        x = x.move(carol)  # noqa: F821
        (fc2,) = carol.state.read()  # noqa: F821
        return F.log_softmax(fc2(x).get(), dim=0)

    x, bias = torch.tensor([1.0, 4.0]), torch.tensor([1.0, 2.0, 3.0])
    foo.build(torch.tensor([1.0, 2.0]), torch.ones(3))
    deployed = foo.deploy(alice=james, carol=bob)
    expected = F.log_softmax(second(first((x - x.mean()) / x.std()) + bias), dim=0).detach()
    there = bias.send(james)
    for given in (bias, there):
        found = deployed.run(x, given)
        assert found.location is None
        torch.testing.assert_close(found, expected)
    assert torch.equal(there.get(), bias)
    with pytest.raises(LocationMismatch, match="input 'bias'"):
        deployed.run(x, bias.send(bob))


def test_the_class_form(hook, workers):
    james, bob = workers[:2]
    alice, carol = RoleWorker(), RoleWorker()

    class Net(sy.Protocol):
        def __init__(self):
            super(Net, self).__init__()
            self.fc1 = nn.Linear(2, 3)
            self.fc2 = nn.Linear(3, 2).send(alice)
            self.fc3 = nn.Linear(2, 1).send(carol)

        def forward(self, x):
            x = F.relu(self.fc1(x))
            x = x.send(alice)
            x = F.relu(self.fc2(x))
            x = x.move(carol)
            x = self.fc3(x)
            return F.log_softmax(x, dim=0)

    net = Net()
    net.build(torch.ones(4, 2))
    assert {name: len(role.program.program.actions) > 0 for name, role in net.plans.items()} == {
        "local": True,
        "alice": True,
        "carol": True,
    }
    deployed = net.deploy(alice=james, carol=bob)
    x = torch.randn(4, 2)
    expected = F.log_softmax(net.fc3(F.relu(net.fc2(F.relu(net.fc1(x))))), 0)
    torch.testing.assert_close(deployed.run(x).get(), expected.detach())


def test_a_role_without_a_name_is_refused(hook):
    roles = [RoleWorker()]

    class Net(sy.Protocol):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 1).send(roles[0])

        def forward(self, x):
            return self.fc(x.send(roles[0]))

    with pytest.raises(ProtocolError, match="Linear of Net was sent to a role without a name"):
        Net().build(torch.ones(2))


def test_split_learning_at_workers(workers):
    torch.manual_seed(0)
    first, second = nn.Linear(4, 3), nn.Linear(3, 1)
    plain1, plain2 = copy.deepcopy((first, second))

    def optimizer(model):
        return torch.optim.Adam(model.parameters(), lr=0.05)

    alice = RoleWorker(state=(first, optimizer(first)))
    carol = RoleWorker(state=(second, optimizer(second)))

    @sy.protocol(alice=alice, carol=carol)
    def step(x, y):
        (net1, opt1), (net2, opt2) = alice.state.read(), carol.state.read()
        opt1.zero_grad()
        opt2.zero_grad()
        hidden = torch.relu(net1(x)).move(carol)
        loss = F.mse_loss(net2(hidden), y.send(carol))
        loss.backward()
        opt1.step()
        opt2.step()
        return loss.detach()

    x, y = torch.randn(8, 4), torch.randn(8, 1)
    step.build(x, y)
    deployed = step.deploy(alice=workers[0], carol=workers[1])
    x_there = x.send(workers[0])
    optimizers = [optimizer(plain1), optimizer(plain2)]
    running = [deployed.start(x_there, y) for _ in range(20)]
    losses = []
    for execution in running:
        for each in optimizers:
            each.zero_grad()
        loss = F.mse_loss(plain2(torch.relu(plain1(x))), y)
        loss.backward()
        for each in optimizers:
            each.step()
        losses.append(loss.detach())
        torch.testing.assert_close(execution.result().get(), losses[-1])
    again = step.deploy(alice=workers[2], carol=workers[3])  # begins anew
    torch.testing.assert_close(again.run(x, y).get(), losses[0])
    assert deployed.cost(x, y).messages == 3


def test_inputs_of_several_actors_in_every_order(workers):
    james, bob, andrew, dan = workers

    @sy.protocol(alice=RoleWorker(), carol=RoleWorker())
    def foo(x, u, v):
        early = u * 2
        s = x.send(alice) + u  # noqa: F821
        return s.move(carol) * v, early  # noqa: F821

    foo.build(torch.ones(2), torch.ones(2), torch.ones(2))
    assert foo.inputs == {
        "local": {"x": "float32 (2,)"},
        "alice": {"u": "float32 (2,)"},
        "carol": {"v": "float32 (2,)"},
    }
    deployed = foo.deploy(alice=james, carol=bob, actors={"u": andrew, "v": dan})
    x, u, v = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0]), torch.tensor([3.0, 3.0])
    steps = [({"x": x}, None), ({"alice": u}, andrew), ({"carol": v}, dan)]
    for order in itertools.permutations(steps):
        execution = deployed.start()
        for inputs, by in order:
            assert not execution.done()
            deployed.submit(execution, by=by, **inputs)
        assert execution.outputs["carol"].get().tolist() == [33, 66]
        assert execution.outputs["alice"].get().tolist() == [20, 40]
        assert execution.wait().done() and list(execution.outputs) == ["alice", "carol"]
    execution = deployed.start(x=x)
    with pytest.raises(InputRefused):
        deployed.submit(execution, u=u)
        execution.wait()
    execution.cancel()
    sy.synchronize()
    for worker in (andrew, dan):  # what they were answered
        for connection in worker.connections():
            connection.replies.poll()


def test_awaiting_and_running_inside_asyncio(workers):
    foo = simple()
    deployed = foo.deploy(local=workers[0], alice=workers[1])

    async def both():
        execution = deployed.start()

        async def later():
            await asyncio.sleep(0.001)
            deployed.submit(execution, x=torch.tensor([3.0]))

        result, _ = await asyncio.gather(execution, later())
        return result.get(), deployed.run(torch.tensor([5.0])).get()

    assert asyncio.run(both()) == (2, 4)


def test_an_execution_that_is_cancelled_leaves_nothing(workers):
    foo = simple()
    deployed = foo.deploy(local=workers[0], alice=workers[1])
    execution = deployed.start()
    execution.cancel("the sensor broke")
    with pytest.raises(sy.exceptions.SyftError, match="the sensor broke"):
        execution.wait()
    dropped = deployed.start()
    del dropped, execution, deployed
    nothing_left(*workers)


def test_numbers_of_the_call_and_options(workers):
    @sy.protocol(alice=RoleWorker(), carol=RoleWorker())
    def foo(x, n, scale=2.0):
        return x.send(alice) * n, x.send(carol) / scale, x * n  # noqa: F821

    foo.build(torch.ones(2), 3)
    deployed = foo.deploy(alice=workers[0], carol=workers[1])
    first, second, third = deployed.run(torch.ones(2), 5, scale=4.0)
    assert (first.get().tolist(), second.get().tolist()) == ([5, 5], [0.25, 0.25])
    assert third.tolist() == [5, 5]


def test_an_error_names_the_role_the_worker_and_the_line(workers):
    @sy.protocol(alice=RoleWorker(), carol=RoleWorker())
    def foo(x, y):
        product = x.send(alice) @ y.send(alice)  # noqa: F821
        return product.move(carol) * 2, x.send(carol) + 1  # noqa: F821

    foo.build(torch.ones(2, 2), torch.ones(2, 2))
    deployed = foo.deploy(alice=workers[0], carol=workers[1])
    execution = deployed.start(torch.ones(2, 2), torch.ones(3, 3))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
        execution.wait()
    notes = "\n".join(caught.value.__notes__)
    assert "alice" in notes and "test_deployment.py" in notes
    del caught, execution  # which holds this frame, with all that is in it
    assert deployed.run(torch.ones(2, 2), torch.ones(2, 2))[0].get().tolist() == [[4, 4], [4, 4]]


def test_what_gives_nothing_is_waited_for(workers):
    """Nobody would be told what became of the last run."""
    total = torch.zeros(2)

    @sy.protocol(alice=RoleWorker(state=(total,)))
    def adds(x):
        (own,) = alice.state.read()  # noqa: F821
        own += x.send(alice)  # noqa: F821

    adds.build(torch.ones(2))
    deployed = adds.deploy(alice=workers[0])
    assert deployed.run(torch.ones(2)) is None
    with pytest.raises(RuntimeError, match="must match the size"):
        deployed.run(torch.ones(3))
    assert deployed.run(torch.ones(2)) is None


def test_what_deploy_refuses(hook, workers):
    james, bob = workers[:2]
    foo = simple()
    for call, text in (
        (lambda: foo.deploy(), "no worker for the role 'alice'"),
        (lambda: foo.deploy(bob, alice=bob), "two workers for the role 'alice'"),
        (lambda: foo.deploy(alice=bob, carol=bob), "'carol', which is no role"),
        (lambda: foo.deploy(bob, james), "2 workers for 1 roles"),
        (lambda: foo.deploy(bob, actors={"z": bob}), "'z', which is no input"),
        (lambda: foo.deploy(bob, local=bob), f"'local' and 'alice' at one worker, {bob.id!r}"),
    ):
        with pytest.raises(ProtocolError, match=text):
            call()
    with pytest.raises(UnknownWorker):
        foo.deploy(alice="nobody")
    nothing_left(*workers)


def test_plans_may_be_forbidden(hook):
    foo = simple()
    strict = sy.VirtualWorker(hook, id="strict", allow_plans=False)
    with pytest.raises(PlansNotAllowed):
        foo.deploy(alice=strict)
    strict.close()


def test_what_start_and_run_refuse(hook, workers):
    foo = simple()
    deployed = foo.deploy(alice=workers[0])
    for call in (
        lambda: deployed.run(),
        lambda: deployed.run(torch.ones(1), torch.ones(1)),
        lambda: deployed.run(3),
        lambda: deployed.start(y=torch.ones(1)),
    ):
        with pytest.raises(WrongArguments):
            call()
    execution = deployed.start(torch.ones(1))
    with pytest.raises(WrongArguments, match="inputs of the roles"):
        deployed.submit(execution, carol=torch.ones(1))
    with pytest.raises(WrongArguments, match="start.. and run.. take a pointer"):
        deployed.submit(execution, x=torch.ones(1).send(workers[0]))
    execution.wait()
    with pytest.raises(InputRefused):
        deployed.submit(execution, x=torch.ones(1))


def test_what_is_not_built_says_so(hook):
    @sy.protocol(alice=RoleWorker())
    def foo(x):
        return x

    for call in (lambda: foo.deploy(), lambda: foo.code, lambda: foo.draw()):
        with pytest.raises(ProtocolError, match="not built.*foo.build"):
            call()
    assert foo.plans == {} and "built" not in repr(foo)


def test_sending_to_a_role_outside_a_protocol(hook):
    with pytest.raises(sy.exceptions.SyftError):
        torch.ones(2).send(RoleWorker("alice"))
    with pytest.raises(ProtocolError, match="while no protocol is built"):
        RoleWorker("alice").torch.ones(2)


def test_a_plan_and_its_optimizer_inside_a_role(workers):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    @sy.func2plan(state=(model, optimizer))
    def step(x, y, state):
        model, optimizer = state.read()
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step.build(torch.ones(4, 2), torch.ones(4, 1))

    @sy.protocol(alice=RoleWorker(), carol=RoleWorker())
    def foo(x, y):
        return step(x.send(alice), y.send(alice)).detach().move(carol) * 100  # noqa: F821

    x, y = torch.randn(4, 2), torch.randn(4, 1)
    foo.build(x, y)
    deployed = foo.deploy(alice=workers[0], carol=workers[1])
    found = [deployed.run(x, y).get() for _ in range(3)]
    torch.testing.assert_close(found, [step(x, y).detach() * 100 for _ in range(3)])


def test_a_chain_of_plans(workers):
    plans = [
        sy.func2plan(args_shape=[(1,)])(function)
        for function in (lambda x: x + 1, lambda x: x * 2, lambda x: x + 3)
    ]
    names = ["worker1", "worker2", "worker3"]
    chain = sy.Protocol(list(zip(names, plans, strict=True)))
    assert chain.deploy(*workers[:3]) is chain
    result = chain.run(torch.tensor([1.0]))
    assert result.location is workers[2] and result.get() == 7


def test_roles_that_are_assigned(workers):
    @sy.func2protocol(roles=["first", "second"], args_shape={"first": [(2,)], "second": [(2,)]})
    def foo(first, second, x, y):
        return (x + 1).move(second) * y

    assert foo.inputs["first"] == {"x": "float32 (2,)"}
    foo.assign("first", workers[0])
    foo.assign_roles({"second": workers[1]})
    assert foo(torch.ones(2), torch.ones(2) * 3).get().tolist() == [6, 6]
    with pytest.raises(ProtocolError, match="no role"):
        foo.assign("third", workers[0])


def calls_in(function) -> int:
    """How many Python and C functions are called, as ``sys.setprofile`` counts them."""
    events = []
    sys.setprofile(lambda frame, event, arg: events.append(event.endswith("call")))
    try:
        function()
    finally:
        sys.setprofile(None)
    return sum(events)


def test_a_run_of_three_hops_makes_few_calls(hook):
    names = ("first", "second", "third")
    roles = {name: RoleWorker() for name in names}

    @sy.protocol(**roles)
    def hops(x, first, second, third):
        y = (x.send(first) * 2 + 1).abs()
        z = (y.move(second) * 3 - 1).relu()
        return (z.move(third) + 2).sqrt()

    x = torch.ones(4)
    hops.build(x)
    deployed = hops.deploy(**{name: sy.VirtualWorker(hook, id=name) for name in names})
    for _ in range(3):
        deployed.run(x).get()
    assert calls_in(lambda: deployed.run(x).get()) < 2000, "it made 1,780"


def test_the_outputs_of_a_role_that_only_passes_arguments_on(workers):
    @sy.protocol(alice=sy.RoleWorker())
    def doubled(x):
        return x.send(alice) * 2  # noqa: F821

    doubled.build(torch.ones(2))
    execution = doubled.deploy(alice=workers[0]).start(torch.ones(2)).wait()
    assert execution.outputs["local"] == ()
    assert execution.outputs["alice"].get().tolist() == [2, 2]
    with pytest.raises(KeyError):
        execution.outputs["nobody"]
