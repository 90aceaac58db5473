"""What seldom happens to protocols: odd roles, names without a value, options that change."""

from __future__ import annotations

import functools
import copy
import itertools
import warnings

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import CannotRecord, ProtocolError, UnsupportedOperation, WrongArguments
from syft.protocols.role_worker import bound_names, named_in
from tests.protocols.test_deployment import nothing_left, simple

RoleWorker = sy.RoleWorker


@pytest.fixture
def pair(hook):
    made = [sy.VirtualWorker(hook, id=name) for name in ("bob", "carol")]
    yield made
    for worker in made:
        worker.close()


# ----------------------------------------------------------------------------------------- copies


def two_halves(role):
    class Net(sy.Protocol):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(2, 3), nn.Linear(3, 1).send(role)

        def forward(self, x):
            return self.second(self.first(x).send(role))

    return Net()


def test_a_copy_of_a_class_has_modules_of_its_own(hook, pair):
    net, x = two_halves(RoleWorker("alice")), torch.ones(1, 2)
    net.build(x)
    other, same = copy.deepcopy(net), copy.copy(net)
    assert len({net.id, other.id, same.id}) == 3
    assert other.first is not net.first and same.first is net.first
    with torch.no_grad():
        other.second.weight.zero_()
        other.second.bias.fill_(7)
    for each in (other, same):
        with pytest.raises(ProtocolError, match="'Net', which is not built"):
            each.deploy(alice=pair[0])
        each.build(x)
    assert list(other.plans) == ["local", "alice"]
    found = [each.deploy(alice=pair[0]).run(x).get() for each in (net, other, same)]
    assert found[1] == 7 and torch.equal(found[0], found[2]) and found[0] != 7


def test_copies_of_other_protocols_are_built_and_not_deployed(hook, pair):
    one, x = simple(), torch.tensor([-3.0])
    assert copy.deepcopy(one).deploy(alice=pair[0]).run(x).get() == 4

    plan = sy.func2plan(args_shape=[(1,)])(lambda x: x + 1)
    chain = sy.Protocol([("first", plan), ("second", plan)])
    chain.deploy(*pair)
    with pytest.raises(ProtocolError, match="which is not deployed"):
        copy.deepcopy(chain).run(x)
    assert copy.deepcopy(chain).deploy(*pair).run(x).get() == -1

    assigned = sy.func2protocol(["a", "b"], {"a": [(1,)]})(lambda a, b, x: (x + 1).move(b))
    assigned.assign_roles({"a": pair[0], "b": pair[1]})
    other = copy.deepcopy(assigned)
    other.assign("b", pair[0])
    other.assign("a", pair[1])
    assert (assigned(x).location, other(x).location) == (pair[1], pair[0])

    (pair[0].Promise.FloatTensor(shape=(1,)) * 2).declare_output()
    assert copy.deepcopy(sy.Protocol(pair[0])).deploy().run(x).get() == -6


def test_what_is_no_protocol_is_refused(hook, pair):
    inner, x = simple(), torch.ones(1)
    for wrong, text in (
        (lambda: inner(x), r"a call of the protocol 'foo': deploy it, and run that"),
        (lambda: sy.Protocol().build(x), "a call of the protocol 'Protocol'"),
        (lambda: sy.Protocol([]), "a chain of no plans"),
        (lambda: sy.Protocol("bob"), "a protocol of 'bob', which is no worker"),
        (lambda: sy.func2protocol(roles="a"), r"roles='a': name them in a list: roles=\['a'\]"),
    ):
        with pytest.raises(ProtocolError, match=text):
            wrong()
    outer = sy.protocol(alice=RoleWorker())(lambda x: inner.build(x))
    with pytest.raises(CannotRecord, match="A protocol cannot keep the building of protocol 'foo'"):
        outer.build(x)


def test_shapes_are_of_inputs_of_roles(hook):
    with pytest.raises(ProtocolError, match="shapes of inputs for 'c', which is no role of"):
        sy.func2protocol(["a", "b"], {"c": [(1,)]})(lambda a, b, x: x.move(b))
    with pytest.raises(ProtocolError, match="a role called 'actors'"):
        sy.protocol(actors=RoleWorker())(lambda x: x).build(torch.ones(1))


def test_what_was_declared_stays_until_there_is_a_protocol(hook, pair):
    x, y = (worker.Promise.FloatTensor(shape=(n,)) for worker, n in zip(pair, (2, 3), strict=True))
    total = x.move(pair[1]) + y
    total.declare_output()
    with pytest.raises(RuntimeError, match="must match the size") as caught:
        sy.Protocol(pair[1])
    assert "undeclare_output() takes one back" in caught.value.__notes__[-1]
    wrong = (y * 2).declare_output()
    assert wrong.undeclare_output() is wrong
    x.example = torch.ones(3)
    total = sy.Protocol(pair[1]).deploy().run(torch.ones(3), torch.ones(3))
    assert total.get().tolist() == [2, 2, 2]
    with pytest.raises(ProtocolError, match="no output was declared"):
        sy.Protocol(pair[1])


# ------------------------------------------------------------------------------------------ roles


def test_a_role_takes_its_state_first():
    model = nn.Linear(2, 1)
    assert RoleWorker((model,)).state.read() == (model,)
    with pytest.raises(ProtocolError, match="name it by a text"):
        RoleWorker((model,), state=(model,))


def test_a_module_is_no_state_while_a_protocol_is_built(hook):
    model = nn.Linear(2, 1)

    @sy.protocol(alice=RoleWorker())
    def late(x):
        return model.send(alice)(x.send(alice))  # noqa: F821

    with pytest.raises(ProtocolError, match="a module that is sent to the role 'alice'") as caught:
        late.build(torch.ones(1, 2))
    assert "alice=RoleWorker(state=(module,))" in str(caught.value)


def test_the_cost_of_a_protocol_that_takes_a_number(hook, pair):
    @sy.protocol(alice=RoleWorker())
    def scaled(x, factor):
        return x.send(alice) * factor  # noqa: F821

    scaled.build(torch.ones(3), 2.0)
    deployed = scaled.deploy(alice=pair[0])
    cost = deployed.cost(torch.ones(3), 2.0)
    assert cost.messages == 1 and cost.bytes == 12, "the number is sent to whoever uses it"


def test_functions_of_a_role_are_of_torch(hook):
    alice = RoleWorker("alice")
    assert alice.torch.float32 is torch.float32
    with pytest.raises(ProtocolError, match="torch.nn.functional.dropout of the role 'alice'"):
        alice.torch.nn.functional.dropout(torch.ones(2))


def test_whatever_can_be_called_may_name_roles(hook, pair):
    def scaled(factor, x):
        return x.send(alice) * factor  # noqa: F821

    class Doubling:
        def __call__(self, x):
            return x.send(alice) * 2  # noqa: F821

    class Module(torch.nn.Module):
        def forward(self, x):
            return x.send(alice) * 2  # noqa: F821

    for function in (Doubling(), functools.partial(scaled, 2), Module()):
        doubling = sy.protocol(alice=RoleWorker())(function)
        doubling.build(torch.ones(1))
        assert doubling.deploy(alice=pair[0]).run(torch.tensor([3.0])).get() == 6
    with pytest.raises(ProtocolError, match="whose arguments Python does not know"):
        sy.protocol(alice=RoleWorker())(torch.abs)


def test_an_object_that_is_called_names_its_roles_itself(hook, pair):
    class Doubling:
        def __init__(self, role):
            self.role = role

        def __call__(self, x):
            return x.send(self.role) * 2

    alice = RoleWorker("alice")
    doubling = sy.protocol(alice=alice)(Doubling(alice))
    doubling.build(torch.ones(1))
    assert doubling.deploy(alice=pair[0]).run(torch.tensor([3.0])).get() == 6


def test_what_is_no_role_is_refused(hook):
    with pytest.raises(ProtocolError, match="alice='bob' in sy.protocol"):
        sy.protocol(alice="bob")
    with pytest.raises(ProtocolError, match=r"RoleWorker\('ann'\) is called 'alice'"):
        sy.protocol(alice=RoleWorker("ann"))(lambda x: x).build(torch.ones(1))

    @sy.protocol(alice=RoleWorker(), bob=RoleWorker())
    def twice(x):
        return x.send(alice, bob)  # noqa: F821

    with pytest.raises(ProtocolError, match=r"send\(\) to 2 roles at once"):
        twice.build(torch.ones(1))

    @sy.protocol(alice=RoleWorker())
    def foreign(x):
        return x.send(RoleWorker("zoe"))

    with pytest.raises(ProtocolError, match="'zoe', which is no role of this protocol"):
        foreign.build(torch.ones(1))


def test_a_variable_without_a_value_has_none_again():
    def around():
        def inner():
            return somebody

        role = RoleWorker("somebody")
        with bound_names([inner], {"somebody": role}):
            assert inner() is role and named_in([inner]) == {"somebody": role}
        with pytest.raises(NameError):
            inner()
        assert named_in([inner, print]) == {}
        somebody = 1
        return somebody

    around()


def test_roles_are_found_in_functions_inside():
    zoe = RoleWorker()

    def outer(x):
        return [each.send(zoe) for each in (lambda: [x])()]

    assert named_in([outer]) == {"zoe": zoe}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (lambda x: x.send("alice", id=0), r"send\(id=...\)"),
        (lambda x: x.send("alice", user="ann"), r"send\(user=...\)"),
        (lambda x: x.send("alice", allow=["ann"]), r"send\(allow=...\)"),
        (lambda x: x.send("alice", allow_writes=["ann"]), r"send\(allow_writes=...\)"),
        (lambda x: x.send("alice", garbage_collect_data=False), r"garbage_collect_data=...\)"),
        (lambda x: x.move("alice", requires_grad=True), r"move\(requires_grad=...\)"),
        (lambda x: x.move("alice", user="ann"), r"move\(user=...\)"),
        (lambda x: x.get(user="ann"), r"get\(user=...\)"),
        (lambda x: x.get(wait=False), r"get\(wait=...\)"),
        (lambda x: x.get(sum_results=True), r"get\(sum_results=...\)"),
        (lambda x: x.remote_get(user="ann"), r"remote_get\(user=...\)"),
        (lambda x: x.send_("alice"), r"send_\(\)"),
        (lambda x: x.get_(), r"get_\(\)"),
        (lambda x: x.remote_send("alice"), r"remote_send\(\)"),
        (lambda x: x.tag("#x"), r"tag\(\)"),
        (lambda x: x.describe("x"), r"describe\(\)"),
        (lambda x: x.private_tensor(["ann"]), r"private_tensor\(\)"),
        (lambda x: x.location or x, "x.location"),
    ],
)
def test_what_would_mean_nothing_in_a_protocol_is_refused(hook, body, text):
    """It was taken, and nothing came of it."""
    protocol = sy.protocol(alice=RoleWorker())(lambda x: body(x * 1))
    with pytest.raises(ProtocolError, match=rf"{text} in the function of a protocol \(\S+:\d+\)"):
        protocol.build(torch.ones(1))
    x = torch.ones(1)
    assert x.tag("#x").location is None and x.tags == {"#x"}


def test_a_role_that_only_a_module_knows(hook, pair):
    def part(role):
        return nn.Linear(2, 2).send(role)

    class Net(sy.Protocol):
        def __init__(self):
            super().__init__()
            self.there = part(RoleWorker("lab"))

        def forward(self, x):
            return self.there(x.send("lab"))

    net = Net()
    net.build(torch.ones(1, 2))
    want = net.there(torch.ones(3, 2))
    assert torch.equal(net.deploy(lab=pair[0]).run(torch.ones(3, 2)).get(), want.detach())


# ---------------------------------------------------------------------------------------- looking


def test_what_notebooks_show(hook, pair):
    foo = simple()
    assert "not built" in sy.protocol(alice=RoleWorker())(lambda x: x)._repr_html_()
    assert "<svg" in foo._repr_html_()
    shown = foo.plans["alice"]._repr_html_()
    assert "1 action" in shown and "takes nothing" in shown
    cost = foo.deploy(alice=pair[0]).cost(torch.ones(3))
    assert "<td>local</td>" in cost._repr_html_() and str(cost).endswith("1 message, 12 bytes")


def test_a_long_lane_says_how_many_more_there_are(hook):
    @sy.protocol(alice=RoleWorker())
    def long(x):
        y = x.send(alice)  # noqa: F821
        for _ in range(60):
            y = y + 1
        return y

    long.build(torch.ones(1))
    assert "more</text>" in long.draw()


# ---------------------------------------------------------------------------------------- running


def test_a_protocol_whose_module_changes_is_built_again(hook, pair):
    alice = RoleWorker("alice")

    class Net(sy.Protocol):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(2, 2)
            self.factor = 2.0

        def forward(self, x):
            return (self.first(x) * self.factor).send(alice)

    net = Net()
    net.build(torch.ones(1, 2))
    net.deploy(alice=pair[0])
    net.factor = 3.0
    with pytest.raises(ProtocolError, match="build it again"):
        net.deploy(alice=pair[0])


def test_options_that_change_after_deploying(hook, pair):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @sy.protocol(alice=RoleWorker(state=(model, optimizer)))
    def step(x):
        net, opt = alice.state.read()  # noqa: F821
        opt.zero_grad()
        loss = net(x.send(alice)).sum()  # noqa: F821
        loss.backward()
        opt.step()
        return loss.detach()

    step.build(torch.ones(1, 2))
    deployed = step.deploy(alice=pair[0])
    deployed.run(torch.ones(1, 2))
    optimizer.param_groups[0]["nesterov"] = True
    optimizer.param_groups[0]["momentum"] = 0.9
    with pytest.raises(ProtocolError, match="build the protocol again, and deploy it"):
        deployed.run(torch.ones(1, 2))


def test_arguments_of_another_kind(hook, pair):
    deployed = simple().deploy(alice=pair[0])
    with pytest.raises(WrongArguments, match="int"):
        deployed.start(x=3)
    execution = deployed.start(torch.tensor([1.0]))
    with pytest.raises(KeyError):
        execution.outputs["carol"]
    assert list(execution.outputs) == ["alice"] and len(execution.outputs) == 1
    assert repr(execution.wait()) == "<Execution of foo, done>" and execution.id > 0
    del execution, deployed
    nothing_left(*pair)


def test_a_role_with_nothing_to_do_has_no_outputs(hook, pair):
    @sy.protocol(alice=RoleWorker(), idle=RoleWorker())
    def alone(x):
        return x.send(alice) * 2  # noqa: F821

    alone.build(torch.ones(1))
    execution = alone.deploy(alice=pair[0], idle=pair[1]).start(torch.ones(1))
    execution.wait()
    assert execution.outputs["idle"] == () and execution.outputs["alice"].get() == 2
    assert list(execution.outputs) == ["alice"], "it is not among those that have some"
    with pytest.raises(KeyError):
        execution.outputs["nobody"]


def test_warnings_of_the_function_are_shown(hook):
    @sy.protocol(alice=RoleWorker())
    def warns(x):
        warnings.warn("it is late", stacklevel=1)
        return x.send(alice)  # noqa: F821

    with pytest.warns(UserWarning, match="it is late"):
        warns.build(torch.ones(1))


def test_chains_and_assigned_roles(hook, pair):
    plan = sy.func2plan(args_shape=[(1,)])(lambda x: x + 1)
    with pytest.raises(ProtocolError, match="two plans for one role"):
        sy.Protocol([("one", plan), ("one", plan)])
    with pytest.raises(ProtocolError, match="which is not deployed"):
        sy.Protocol([("one", plan)]).run(torch.ones(1))

    @sy.func2protocol(roles=["lab"])
    def late(x, lab):
        return x.send(lab) * 2

    late.assign_roles({"lab": pair[0]})
    assert late(torch.ones(2)).get().tolist() == [2, 2], "it is built by its first call"
    assert late(torch.ones(2) * 3).get().tolist() == [6, 6], "and deployed once"


def test_gradients_by_torch_autograd_inside_a_role(hook, pair):
    @sy.protocol(alice=RoleWorker())
    def slope(x):
        y = x.send(alice).requires_grad_()  # noqa: F821
        (found,) = torch.autograd.grad((y**3).sum(), y)
        return found

    slope.build(torch.ones(2))
    found = slope.deploy(alice=pair[0]).run(torch.tensor([1.0, 2.0]))
    assert found.get().tolist() == [3, 12]


# ----------------------------------------------------------------------------------------- shares


def test_promised_shares_do_not_wrap(hook, pair):
    x = pair[0].Promise.FloatTensor(shape=(2,)).share(*pair)
    y = pair[1].Promise.IntTensor(shape=(2,)).share(*pair)
    total = sum(itertools.repeat(x, 7), x) - y  # 9 of 2048 at most
    assert (total * 227).bound <= 1 << 63
    with pytest.raises(UnsupportedOperation, match="may exceed 63 bits"):
        total * 228
    with pytest.raises(UnsupportedOperation, match="may exceed 63 bits"):
        (x * 2048) + x
    for number in (0, float("nan"), float("inf"), "2"):
        with pytest.raises(UnsupportedOperation, match="truediv"):
            x / number
    for share in (total * 3).values():
        share.declare_output()
    shares = sy.Protocol(*pair).deploy().run(torch.tensor([1.5, -2.0]), torch.tensor([4, 5]))
    assert total.opened([share.get() for share in shares]).tolist() == [24.0, -63.0]
