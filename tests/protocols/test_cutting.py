"""A protocol is cut into roles that compute together what its function computes."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from syft.exceptions import CannotRecord, ProtocolError
from syft.protocols.passing_on import given_directly
from syft.protocols.protocol import BuiltProtocol, Recorded
from syft.protocols.role_worker import RoleWorker
from tests.protocols.simulator import simulate

alice = "a variable of the user's that has the name of a role"


def recorded(function, *args, **roles) -> BuiltProtocol:
    roles = {name: role or RoleWorker() for name, role in roles.items()}
    return Recorded(function.__name__, function, roles, [function]).build(args, {})[0]


SEEDS = range(6)


def run(built: BuiltProtocol, inputs, seeds=SEEDS):
    """The outputs, equal in every order of arrival; the state is written once for each seed."""
    before = [tensor.detach().clone() for tensor in built.plan.state.read()]
    grads = [tensor.requires_grad for tensor in built.plan.state.read()]
    results = []
    for seed in seeds:
        state = [t.clone().requires_grad_(g) for t, g in zip(before, grads, strict=True)]
        cut = given_directly(built.cut) if seed % 2 else built.cut
        results.append((simulate(cut, list(inputs), state, seed), state))
    for outputs, state in results[1:]:
        for one, other in zip([*results[0][0], *results[0][1]], [*outputs, *state], strict=True):
            torch.testing.assert_close(one, other)
    return results[0][0]


def programs(built: BuiltProtocol) -> dict[str, list[str]]:
    return {
        role.name: [action.name.rpartition(".")[2] for action in role.program.actions]
        for role in built.cut.roles
    }


def test_what_the_caller_only_sends_on_is_given_to_who_gets_it(hook):
    def foo(x, y, z):
        kept = y + 1
        both = x.send(alice) * x.send(alice) + y.send(alice)
        z.add_(1)
        return both.move(bob) - z.send(bob), kept  # noqa: F821

    arguments = [torch.tensor([float(n)]) for n in range(3)]
    built = recorded(foo, *arguments, alice=None, bob=None)
    local, at_alice, at_bob = given_directly(built.cut).roles
    assert (local.sources, local.targets) == ((None, None), (None, 2)), "y and z are of use there"
    assert at_alice.sources == (None, None, None)
    assert at_bob.sources == (1, 0), "z was written to before it was sent"
    found = run(built, [torch.tensor([n]) for n in (3.0, 4.0, 5.0)])
    assert [one.item() for one in found] == [9 + 4 - 6, 5]


def test_the_first_example(hook):
    def foo(x):
        y = x - 1
        y_ptr = y.send(alice)
        z_ptr = y_ptr.abs()
        return z_ptr

    built = recorded(foo, torch.tensor([-1.0]), alice=None)
    assert programs(built) == {"local": ["sub", "clone"], "alice": ["abs"]}
    assert built.cut.outputs == ((1, 0),)
    assert run(built, [torch.tensor([1.5])])[0] == 0.5
    assert isinstance(alice, str)


def test_names_are_restored_after_an_error(hook):
    def foo(x):
        assert isinstance(alice, RoleWorker)
        raise KeyError("mine")

    with pytest.raises(KeyError):
        recorded(foo, torch.ones(1), alice=None)
    assert isinstance(alice, str)


def test_names_in_closures_and_parameters(hook):
    bob = 3

    def foo(x, alice):
        return x.send(alice).move(bob) + 1

    built = recorded(foo, torch.ones(2), alice=None, bob=None)
    assert bob == 3
    assert programs(built) == {"local": ["clone"], "alice": ["clone"], "bob": ["add"]}
    assert torch.equal(run(built, [torch.ones(2)])[0], torch.full((2,), 2.0))


def test_state_and_a_pointer_argument(hook):
    first, second = nn.Linear(2, 3), nn.Linear(3, 2)

    def foo(x, bias):
        x = (x - x.mean()) / x.std()
        x = x.send(alice)
        (fc1,) = alice.state.read()
        x = fc1(x)
        x += bias
        x = x.move(bob)  # noqa: F821
        (fc2,) = bob.state.read()  # noqa: F821
        x = fc2(x)
        x = x.get()
        return F.log_softmax(x, dim=0)

    built = recorded(
        foo,
        torch.tensor([1.0, 2.0]),
        torch.ones(3),
        alice=RoleWorker(state=(first,)),
        bob=RoleWorker(state=(second,)),
    )
    assert built.cut.inputs == ((0,), (1,), ())
    assert [len(each) for each in built.cut.state] == [0, 2, 2]
    x, bias = torch.tensor([1.0, 4.0]), torch.tensor([1.0, 2.0, 3.0])
    expected = F.log_softmax(second(first((x - x.mean()) / x.std()) + bias), dim=0)
    torch.testing.assert_close(run(built, [x, bias])[0].detach(), expected.detach())


def test_tensors_made_at_a_role(hook):
    def foo(x):
        y = x.send(alice)
        z = y.abs()
        (noise,) = alice.torch.randint(0, 10, (1,))
        return z + noise

    built = recorded(foo, torch.tensor([-1]), alice=None)
    assert "randint" in programs(built)["alice"] and programs(built)["local"] == ["clone"]
    found = {int(run(built, [torch.tensor([-100])], [0])[0]) for _ in range(40)}
    assert found <= set(range(100, 110)) and len(found) > 3


def test_factories_belong_to_whoever_uses_them(hook):
    constant = torch.tensor([5.0, 6.0])

    def foo(x):
        one = torch.ones(2)
        y = x.send(alice) + one
        z = x.send(bob) * one + constant  # noqa: F821
        total = torch.zeros(2)
        part = total[:1]
        part.add_(1)  # total is written to, so it has one place
        return y, z, one, total.add_(y.get())

    built = recorded(foo, torch.tensor([-1.0, 2.0]), alice=None, bob=None)
    assert programs(built)["alice"].count("ones") == programs(built)["bob"].count("ones") == 1
    assert programs(built)["local"].count("zeros") == 1 and "zeros" not in programs(built)["bob"]
    x = torch.tensor([3.0, 4.0])
    y, z, one, total = run(built, [x])
    assert (
        torch.equal(y, x + 1) and torch.equal(z, x + constant) and torch.equal(one, torch.ones(2))
    )
    assert torch.equal(total, x + 1 + torch.tensor([1.0, 0.0]))


def test_mixed_places_name_the_line_and_both_roles(hook):
    def foo(x):
        return x.send(alice) + x.send(bob)  # noqa: F821

    with pytest.raises(ProtocolError, match=r"test_cutting.py:\d+: .*add.* alice and of bob"):
        recorded(foo, torch.ones(2), alice=None, bob=None)


def test_random_numbers_of_two_roles_are_refused(hook):
    def foo(x):
        noise = torch.rand(2)
        return x.send(alice) + noise, x.send(bob) + noise  # noqa: F821

    with pytest.raises(ProtocolError, match=r"random numbers.*bob.torch.rand.*move\(alice\)"):
        recorded(foo, torch.ones(2), alice=None, bob=None)


def test_numbers_of_other_roles_are_refused(hook):
    def foo(x):
        return x.send(bob) * x.send(alice).sum().item()  # noqa: F821

    with pytest.raises(ProtocolError, match="a number that was read there"):
        recorded(foo, torch.ones(2), alice=None, bob=None)


def test_branches_by_values_are_refused(hook):
    def foo(x):
        return x.send(alice) if x.sum() > 0 else x

    with pytest.raises(ProtocolError, match="test_cutting.py:.*decides what the function does"):
        recorded(foo, torch.ones(2), alice=None)


def test_a_number_of_the_call_goes_to_all_who_use_it(hook):
    def foo(x, n):
        return x.send(alice) * n + n, x.send(bob) / n, x * n  # noqa: F821

    built = recorded(foo, torch.ones(2), 3, alice=None, bob=None)
    assert [rank for rank, _ in built.cut.takers(1)] == [0, 1, 2]
    first, second, third = run(built, [torch.ones(2), 5])
    assert first.tolist() == [10, 10] and second.tolist() == (torch.ones(2) / 5).tolist()
    assert third.tolist() == [5, 5]


def test_a_number_is_no_result(hook):
    def foo(x, n):
        return x.send(alice), n + 1

    with pytest.raises(ProtocolError, match="'foo' returns a number that it computes"):
        recorded(foo, torch.ones(2), 3, alice=None)


def test_branches_and_loops_inside_a_role(hook):
    def foo(x):
        y = sy.cond(x.send(alice).sum() > 0, lambda y: y * 2, lambda y: -y, x.send(alice))
        return sy.while_loop(lambda y: y.sum() < 100, lambda y: y * 3, y)

    built = recorded(foo, torch.ones(2), alice=None)
    for x in (torch.tensor([1.0, 2.0]), torch.tensor([-1.0, -3.0])):
        expected = x * 2 if x.sum() > 0 else -x
        while expected.sum() < 100:
            expected = expected * 3
        assert torch.equal(run(built, [x])[0], expected)


def test_sending_inside_a_branch_is_refused(hook):
    def foo(x):
        return sy.cond(x.sum() > 0, lambda x: x.send(alice), lambda x: -x, x)

    with pytest.raises(CannotRecord, match="another role inside a branch"):
        recorded(foo, torch.ones(2), alice=None)


def test_a_place_that_is_no_role(hook, bob):
    def foo(x):
        return x.send(bob)

    with pytest.raises(ProtocolError, match="send.. to 'bob', which is no role.*local, alice"):
        recorded(foo, torch.ones(2), alice=None)


# --------------------------------------------------------------------------- back-propagation


def split_step(first, second, optimizer=torch.optim.SGD, **settings):
    """A step of split learning, and its state in the order of a plain step."""

    def step(x, y):
        (net1, opt1), (net2, opt2) = alice.state.read(), bob.state.read()  # noqa: F821
        opt1.zero_grad()
        opt2.zero_grad()
        hidden = torch.relu(net1(x.send(alice)))
        loss = F.mse_loss(net2(hidden.move(bob)), y.send(bob))  # noqa: F821
        loss.backward()
        opt1.step()
        opt2.step()
        return loss.detach()

    roles = {
        "alice": RoleWorker(state=(first, optimizer(first.parameters(), **settings))),
        "bob": RoleWorker(state=(second, optimizer(second.parameters(), **settings))),
    }
    return step, roles


def test_a_constant_whose_copy_is_written_to_is_for_all(hook):
    def foo(x):
        two, total = torch.full((2,), 2.0), torch.full((2,), 2.0)
        sums = two.clone()
        sums += x.send(alice)
        total += x.send(bob)  # noqa: F821
        return sums, x.send(bob) * two, total  # noqa: F821

    built = recorded(foo, torch.ones(2), alice=None, bob=None)
    found = run(built, [torch.tensor([3.0, 4.0])])
    assert [each.tolist() for each in found] == [[5, 6], [6, 8], [5, 6]]


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        (torch.optim.SGD, {"lr": 0.1}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (torch.optim.Adam, {"lr": 0.05}),
    ],
)
def test_split_learning_equals_plain_torch(hook, optimizer, settings):
    torch.manual_seed(0)
    first, second = nn.Linear(4, 3), nn.Linear(3, 1)
    plain1, plain2 = copy.deepcopy((first, second))
    both = [optimizer(each.parameters(), **settings) for each in (plain1, plain2)]
    step, roles = split_step(first, second, optimizer, **settings)
    x, y = torch.randn(8, 4), torch.randn(8, 1)
    built = recorded(step, x, y, **roles)
    state = [t.detach().clone().requires_grad_(t.requires_grad) for t in built.plan.state.read()]
    names = built.plan.state.names
    for seed in range(20):
        numbers = built.plan.assumptions.options.numbers
        (loss,) = simulate(built.cut, [x, y, *numbers], state, seed)
        for each in both:
            each.zero_grad()
        expected = F.mse_loss(plain2(torch.relu(plain1(x))), y)
        expected.backward()
        for each in both:
            each.step()
        torch.testing.assert_close(loss, expected.detach())
    for role, model in (("alice", plain1), ("bob", plain2)):
        found = {name: t for name, t in zip(names, state, strict=True) if name.startswith(role)}
        for name, parameter in model.named_parameters():
            (mine,) = [t for key, t in found.items() if key.endswith(name) and "optim" not in key]
            torch.testing.assert_close(mine, parameter)
    there = {role.name: set(role.targets) for role in built.cut.roles}
    assert 1 in there["bob"] and 2 in there["alice"]  # gradients go back, and nothing else does


def graph_with_everything(x, a, b, move):
    """Values that go to and fro, and share graphs: ``move(value, role)`` sends."""
    h = torch.tanh(a @ x)
    sent1, sent2 = move(h[:1], "bob"), move(h[1:], "bob")
    k = torch.tanh(sent1 * b.sum() + sent2.sum())
    back = move(k, "alice")
    both = back * h.sum() + h
    last = move(both, "bob") * b
    return (last**2).sum() + move(back, "bob").sum()


def test_gradients_of_a_graph_that_goes_to_and_fro(hook):
    torch.manual_seed(1)
    a, b = torch.randn(3, 2, requires_grad=True), torch.randn(3, requires_grad=True)

    def step(x):
        (a,), (b,) = alice.state.read(), bob.state.read()  # noqa: F821
        a.grad, b.grad = torch.zeros_like(a), torch.zeros_like(b)
        places = {"alice": alice, "bob": bob}  # noqa: F821
        value = graph_with_everything(x.send(alice), a, b, lambda v, to: v.move(places[to]))
        value.backward()
        with torch.no_grad():
            a -= 0.01 * a.grad
            b -= 0.01 * b.grad
        return value.detach()

    roles = {"alice": RoleWorker(state=(a,)), "bob": RoleWorker(state=(b,))}
    x = torch.randn(2)
    built = recorded(step, x, **roles)
    state = [t.detach().clone().requires_grad_() for t in built.plan.state.read()]
    a1, b1 = a.detach().clone().requires_grad_(), b.detach().clone().requires_grad_()
    for seed in range(20):
        (value,) = simulate(built.cut, [x], state, seed)
        a1.grad = b1.grad = None
        expected = graph_with_everything(x, a1, b1, lambda v, to: v)
        expected.backward()
        with torch.no_grad():
            a1 -= 0.01 * a1.grad
            b1 -= 0.01 * b1.grad
        torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(state, [a1, b1])


def test_gradients_accumulate_without_zero_grad(hook):
    first, second = nn.Linear(2, 2), nn.Linear(2, 1)

    def step(x):
        (net1,), (net2,) = alice.state.read(), bob.state.read()  # noqa: F821
        net2(net1(x.send(alice)).move(bob)).sum().backward()  # noqa: F821
        return net1.weight.grad.clone()

    built = recorded(
        step, torch.ones(2), alice=RoleWorker(state=(first,)), bob=RoleWorker(state=(second,))
    )
    state = [t.detach().clone().requires_grad_() for t in built.plan.state.read()]
    once = simulate(built.cut, [torch.ones(2)], state, 0)[0]
    twice = simulate(built.cut, [torch.ones(2)], state, 1)[0]
    torch.testing.assert_close(twice, 2 * once)
    assert first.weight.grad is None


def test_no_gradient_under_no_grad(hook):
    weight = torch.ones(2, requires_grad=True)

    def step(x):
        (w,) = alice.state.read()
        with torch.no_grad():
            y = (w * x.send(alice)).move(bob)  # noqa: F821
        return y.requires_grad_(), y

    built = recorded(step, torch.ones(2), alice=RoleWorker(state=(weight,)), bob=None)
    assert "clone" not in programs(built)["bob"]


def test_gradients_by_functions_are_refused_over_roles(hook):
    first = nn.Linear(2, 2)

    def step(x):
        (net,) = alice.state.read()
        loss = net(x.send(alice)).move(bob).sum()  # noqa: F821
        return torch.autograd.grad(loss, [net.weight], allow_unused=True)

    with pytest.raises(CannotRecord, match="torch.autograd.grad over several roles"):
        recorded(step, torch.ones(2), alice=RoleWorker(state=(first,)), bob=None)


def test_a_second_derivative_is_refused_over_roles(hook):
    first = nn.Linear(2, 2)

    def step(x):
        (net,) = alice.state.read()
        net(x.send(alice)).move(bob).sum().backward(create_graph=True)  # noqa: F821

    with pytest.raises(CannotRecord, match="create_graph"):
        recorded(step, torch.ones(2), alice=RoleWorker(state=(first,)), bob=None)


def test_state_of_two_roles_is_refused(hook):
    model = nn.Linear(2, 1)

    def step(x):
        return x.send(alice)

    roles = {"alice": RoleWorker(state=(model,)), "bob": RoleWorker(state=(model,))}
    with pytest.raises(ProtocolError, match="state of alice and of bob"):
        recorded(step, torch.ones(2), **roles)


def test_gradients_that_are_zeroed_before_they_exist(hook):
    torch.manual_seed(0)
    first, second = nn.Linear(2, 2), nn.Linear(2, 1)
    plain1, plain2 = copy.deepcopy((first, second))

    def step(x):
        (net1,), (net2,) = alice.state.read(), bob.state.read()  # noqa: F821
        net1.zero_grad(set_to_none=False)
        net2.zero_grad(set_to_none=False)
        net2(net1(x.send(alice)).move(bob)).sum().backward()  # noqa: F821
        with torch.no_grad():
            for parameter in (*net1.parameters(), *net2.parameters()):
                parameter -= 0.1 * parameter.grad

    x = torch.randn(3, 2)
    built = recorded(step, x, alice=RoleWorker(state=(first,)), bob=RoleWorker(state=(second,)))
    state = [t.detach().clone().requires_grad_() for t in built.plan.state.read()]
    for seed in range(3):
        simulate(built.cut, [x], state, seed)
        plain1.zero_grad()
        plain2.zero_grad()
        plain2(plain1(x)).sum().backward()
        with torch.no_grad():
            for parameter in (*plain1.parameters(), *plain2.parameters()):
                parameter -= 0.1 * parameter.grad
    torch.testing.assert_close(state, [*plain1.parameters(), *plain2.parameters()])


def test_two_backward_passes_over_one_crossing(hook):
    weight = torch.tensor([2.0, 3.0], requires_grad=True)

    def step(x):
        (w,) = alice.state.read()
        there = (w * x.send(alice)).move(bob)  # noqa: F821
        there.sum().backward(retain_graph=True)
        (there * 10).sum().backward()
        return w.grad.clone()

    x = torch.tensor([1.0, 4.0])
    built = recorded(step, x, alice=RoleWorker(state=(weight,)), bob=None)
    state = [t.detach().clone().requires_grad_() for t in built.plan.state.read()]
    assert simulate(built.cut, [x], state, 0)[0].tolist() == [11.0, 44.0]
