"""Backward passes over several roles, at workers: each gives what plain torch gives."""

from __future__ import annotations

import copy
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from syft.exceptions import CannotRecord
from tests.protocols.test_deployment import nothing_left

RoleWorker = sy.RoleWorker


@pytest.fixture(params=[False, True], ids=["immediate", "queued"])
def pair(request, hook):
    made = [sy.VirtualWorker(hook, id=name, pipelined=request.param) for name in ("bob", "carol")]
    yield made
    nothing_left(*made)
    for worker in made:
        worker.close()
    hook.local_worker.collect()


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize("where", ["local", "carol"])
def test_gradients_may_be_cleared_at_the_end(pair, where):
    torch.manual_seed(0)
    first, second = nn.Linear(4, 3), nn.Linear(3, 1)
    plain1, plain2 = copy.deepcopy((first, second))
    bob = RoleWorker(state=(first, sgd(first)))
    other = RoleWorker(where, state=(second, sgd(second)))

    @sy.protocol(bob=bob, **{where: other})
    def step(x, y):
        (net1, opt1), (net2, opt2) = bob.state.read(), other.state.read()
        hidden = torch.relu(net1(x.send(bob))).move(other)
        loss = F.mse_loss(net2(hidden), y.send(other))
        loss.backward()
        for each in (opt1, opt2):
            each.step()
            each.zero_grad()
        return loss.detach()

    x, y = torch.randn(8, 4), torch.randn(8, 1)
    step.build(x, y)
    deployed = step.deploy(bob=pair[0], **({} if where == "local" else {where: pair[1]}))
    optimizers = sgd(plain1), sgd(plain2)
    for _ in range(3):
        expected = F.mse_loss(plain2(torch.relu(plain1(x))), y)
        expected.backward()
        for each in optimizers:
            each.step()
            each.zero_grad()
        found = deployed.run(x, y)
        torch.testing.assert_close(found if where == "local" else found.get(), expected.detach())


def test_a_pass_between_two_sends_of_a_value(pair):
    weight = torch.tensor([2.0, 3.0], requires_grad=True)

    @sy.protocol(bob=RoleWorker(state=(weight,)), carol=RoleWorker())
    def twice(x):
        (w,) = bob.state.read()  # noqa: F821
        w.grad = None
        value = w * x.send(bob)  # noqa: F821
        for factor in (1, 10):
            (value.move(carol) * factor).sum().backward(retain_graph=True)  # noqa: F821
        found = w.grad.clone()
        w.grad = None
        return found

    x = torch.tensor([1.0, 4.0])
    twice.build(x)
    deployed = twice.deploy(bob=pair[0], carol=pair[1])
    for _ in range(2):
        assert deployed.run(x).get().tolist() == [11.0, 44.0]


# ------------------------------------------------------------------- what arrived is a value again


def sent_on(w, x, move):
    s = w * move(x, "bob")
    return move(move(s * s, "carol"), "dan").sum()


def sent_on_and_used(w, x, move):
    there = move(w * move(x, "bob"), "carol")
    return (there * move(move(there, "dan") * 3, "carol")).sum()


def sent_home(w, x, move):
    return move((w * move(x, "bob")).sum(), "local")


def a_parameter(w, x, move):
    return (move(move(w, "carol"), "dan") ** 2).sum() + move(move(x, "bob").sum(), "dan")


def written_there(w, x, move):
    there = move(w * move(x, "bob"), "carol")
    there += 2
    return (nn.ReLU(inplace=True)(there) ** 2).sum()


def of_a_slice(w, x, move):
    there = move((w * move(x, "bob"))[:1], "carol")
    there[0] *= 5
    return there.sum() * 2


def gradient_of(body, x, **more):
    """A protocol that gives the gradient of a weight of bob's, and what plain torch gives it."""
    weight = torch.tensor([2.0, -3.0], requires_grad=True)

    @sy.protocol(bob=RoleWorker(state=(weight,)), carol=RoleWorker(), **more)
    def step(x):
        (w,) = bob.state.read()  # noqa: F821
        w.grad = None
        body(w, x, lambda value, role: value.move(role)).backward()
        found = w.grad.clone()
        w.grad = None
        return found

    step.build(x)
    plain = weight.detach().clone().requires_grad_()
    body(plain, x, lambda value, role: value).backward()
    return step, plain


@pytest.mark.parametrize(
    "body", [sent_on, sent_on_and_used, sent_home, a_parameter, written_there, of_a_slice]
)
def test_what_arrived_is_a_value_as_any_other(hook, pair, body):
    dan, x = sy.VirtualWorker(hook, id="dan"), torch.tensor([1.0, 4.0])
    step, plain = gradient_of(body, x, dan=RoleWorker())
    deployed = step.deploy(bob=pair[0], carol=pair[1], dan=dan)
    for _ in range(2):
        torch.testing.assert_close(deployed.run(x).get(), plain.grad)
    del deployed
    nothing_left(dan)
    dan.close()


def test_what_arrived_keeps_its_gradient(pair):
    @sy.protocol(bob=RoleWorker(), carol=RoleWorker())
    def step(x):
        there = (x.send(bob).requires_grad_() * 3).move(carol)  # noqa: F821
        there.retain_grad()
        (there**2).sum().backward()
        return there.grad.clone()

    x = torch.tensor([1.0, 4.0])
    step.build(x)
    assert step.deploy(*pair).run(x).get().tolist() == [6.0, 24.0]


def test_a_pass_that_gives_what_arrived_no_gradient(pair):
    """The sign of a determinant has none; torch leaves the gradients behind it as they were."""
    weight = torch.eye(2).requires_grad_()

    @sy.protocol(bob=RoleWorker(state=(weight,)), carol=RoleWorker())
    def signs(x):
        (w,) = bob.state.read()  # noqa: F821
        w.grad = None
        (w * 3).sum().backward()
        arrived = (w * x.send(bob)).move(carol)  # noqa: F821
        sign, _ = torch.slogdet(arrived)
        sign.backward()
        return w.grad.clone(), sign.detach()

    x = torch.tensor([[2.0, 1.0], [1.0, -2.0]])
    signs.build(x)
    gradient, sign = signs.deploy(bob=pair[0], carol=pair[1]).run(x)
    assert gradient.get().tolist() == [[3.0, 3.0], [3.0, 3.0]] and sign.get() == -1


def test_what_is_written_to_after_it_was_sent(pair):
    """The gradient is of what was sent, and the graph behind the tensor is another one now."""
    weight = torch.tensor([2.0, 3.0], requires_grad=True)

    def protocol(copied):
        @sy.protocol(bob=RoleWorker(state=(weight,)), carol=RoleWorker())
        def step(x):
            (w,) = bob.state.read()  # noqa: F821
            w.grad = None
            value = w * x.send(bob)  # noqa: F821
            there = (value.clone() if copied else value).move(carol)  # noqa: F821
            value.mul_(2)
            (there**2).sum().backward()
            return w.grad.clone()

        return step

    x = torch.tensor([1.0, 4.0])
    with pytest.raises(CannotRecord, match=r"sent at \S+:\d+ and then written to .*its clone\(\)"):
        protocol(copied=False).build(x)
    right = protocol(copied=True)
    right.build(x)
    assert right.deploy(*pair).run(x).get().tolist() == [4.0, 96.0]


# ----------------------------------------------------------- gradients by functions, within a role


def slope_there(w, x, move):
    there = move(w * move(x, "bob"), "carol")
    (slope,) = torch.autograd.grad((there**3).sum(), [there])
    return slope.sum() + there.sum()


def penalty(w, x, move):
    there = move(torch.tanh(w * move(x, "bob")), "carol")
    value = torch.tanh(there).sum()
    (slope,) = torch.autograd.grad(value, [there], create_graph=True)
    return value + (slope**2).sum()


def named_inputs(w, x, move):
    there = move(w * move(x, "bob"), "carol")
    own = there.detach().requires_grad_()
    (there * own).sum().backward(inputs=[own])
    return (there * own.grad).sum()


@pytest.mark.parametrize("body", [slope_there, penalty, named_inputs])
def test_gradients_of_what_is_at_one_role(pair, body):
    x = torch.tensor([0.5, 0.25])
    step, plain = gradient_of(body, x)
    torch.testing.assert_close(step.deploy(*pair).run(x).get(), plain.grad)


def of_a_value_elsewhere(w, x, there):
    return torch.autograd.grad(there.sum(), [w])


def on_the_way_back(w, x, there):
    back = (there * 2).move("bob").move("carol")
    return torch.autograd.grad((back * there).sum(), [there])


def of_a_parameter_that_was_sent(w, x, there):
    sent = w.move("carol")
    return torch.autograd.grad((sent * there).sum(), [w])


def with_inputs_elsewhere(w, x, there):
    there.sum().backward(inputs=[w])


def with_a_graph(w, x, there):
    there.sum().backward(create_graph=True)


@pytest.mark.parametrize(
    "body",
    [
        of_a_value_elsewhere,
        on_the_way_back,
        of_a_parameter_that_was_sent,
        with_inputs_elsewhere,
        with_a_graph,
    ],
)
def test_gradients_over_several_roles_by_functions_are_refused(pair, body):
    @sy.protocol(bob=RoleWorker(state=(torch.ones(2, requires_grad=True),)), carol=RoleWorker())
    def step(x):
        (w,) = bob.state.read()  # noqa: F821
        body(w, x, (w * x.send(bob)).move(carol))  # noqa: F821

    with pytest.raises(CannotRecord, match="over several roles"):
        step.build(torch.ones(2))


ROLES = ("local", "bob", "carol")


def drawn_graph(seed, weights, move):
    """A graph of values at drawn roles, each sent where it is needed."""
    draw = random.Random(seed)
    pool = [(torch.tanh(weights[role]), role) for role in ROLES]
    for _ in range(12):
        (value, _), (other, role) = draw.choice(pool), draw.choice(pool)
        moved = move(value, role)
        made = draw.choice([torch.mul, torch.add, torch.minimum])(moved, other)
        pool.append((draw.choice([torch.sin, torch.tanh, torch.clone])(made), role))
        if draw.random() < 0.3:
            pool.append((moved, role))
    end = draw.choice(ROLES)
    return sum(move(value, end).sum() for value, _ in draw.sample(pool, 5))


@pytest.mark.parametrize("seed", range(12))
def test_drawn_graphs_over_three_roles(pair, seed):
    weights = {role: torch.randn(3, requires_grad=True) for role in ROLES}
    roles = {name: RoleWorker(state=(weights[name],)) for name in ROLES}

    @sy.protocol(**roles)
    def step():
        own = {name: role.state.read()[0] for name, role in roles.items()}
        for each in own.values():
            each.grad = torch.zeros_like(each)
        drawn_graph(seed, own, lambda value, role: value.move(role)).backward()
        return tuple(each.grad.clone() for each in own.values())

    step.build()
    plain = {role: weight.detach().clone().requires_grad_() for role, weight in weights.items()}
    drawn_graph(seed, plain, lambda value, role: value).backward()
    deployed = step.deploy(*pair)
    for _ in range(2):
        for found, weight in zip(deployed.run(), plain.values(), strict=True):
            found = found if found.location is None else found.get()
            torch.testing.assert_close(
                found, torch.zeros(3) if weight.grad is None else weight.grad
            )
