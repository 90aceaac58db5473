"""The dynamic form of a protocol: what is done with promises is noted, and replayed."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import (
    LocationMismatch,
    ProtocolError,
    UnsupportedOperation,
    WrongParties,
)


@pytest.fixture
def three(hook):
    made = [sy.VirtualWorker(hook, id=f"worker{n}") for n in (1, 2, 3)]
    yield made
    sy.synchronize()
    hook.local_worker.collect()
    for worker in made:
        worker.close()


def test_the_average_of_models(three):
    models = [worker.Promise.Model() for worker in three]
    total = (models[0].move(three[2]) + models[1].move(three[2]) + models[2]) / 3
    total.declare_output()
    (models[0] * 2).declare_output()
    protocol = sy.Protocol(*three)
    assert list(protocol.plans) == ["local", "worker1", "worker2", "worker3"]
    deployed = protocol.deploy()
    nets = [nn.Linear(2, 1) for _ in range(3)]
    vectors = [nn.utils.parameters_to_vector(net.parameters()).detach() for net in nets]
    doubled, average = deployed.run(*nets)
    assert (doubled.location, average.location) == (three[0], three[2])
    torch.testing.assert_close(average.get(), sum(vectors) / 3)
    torch.testing.assert_close(doubled.get(), 2 * vectors[0])
    execution = deployed.start()
    for number in (2, 0, 1):
        deployed.submit(execution, **{f"worker{number + 1}": vectors[number]})
    torch.testing.assert_close(execution.outputs["worker3"].get(), sum(vectors) / 3)


def test_the_dynamic_form_equals_the_static_form(three):
    one, two, _ = three

    @sy.protocol(worker1=sy.RoleWorker(), worker2=sy.RoleWorker())
    def static(x, y):
        return torch.sin(x.send(worker1) @ x.send(worker1)).move(worker2) * y[0] - 3  # noqa: F821

    x, y = one.Promise.FloatTensor(shape=(2, 2)), two.Promise.FloatTensor(shape=(2, 2))
    (torch.sin(x @ x).move(two) * y[0] - 3).declare_output()
    dynamic = sy.Protocol(one, two)
    static.build(torch.ones(2, 2), torch.ones(2, 2))
    a, b = torch.randn(2, 2), torch.randn(2, 2)
    found = dynamic.deploy().run(a, b).get()
    assert torch.equal(found, static.deploy(worker1=one, worker2=two).run(a, b).get())
    assert torch.equal(found, torch.sin(a @ a) * b[0] - 3)


def test_a_promise_is_kept(three):
    x = three[0].Promise.FloatTensor(shape=(2,))
    y = 2 * (x - 1).abs().clamp(min=0.5)
    assert not y.is_kept()
    with pytest.raises(ProtocolError, match="not kept"):
        y.value()
    x.keep(torch.tensor([0.0, 4.0])).keep(torch.tensor([1.0, 1.0]))
    assert y.is_kept()
    assert y.value().get().tolist() == [2, 6]
    assert y.value().get().tolist() == [1, 1]
    assert not y.is_kept()
    with pytest.raises(ProtocolError, match="keep the promises that it is made of"):
        y.keep(torch.ones(2))


def test_workers_whose_names_are_no_names_of_parameters(hook):
    workers = [sy.VirtualWorker(hook, id=name) for name in ("a-b", "a b", "2", "local")]
    total = sum(worker.Promise.FloatTensor().move(workers[2]) for worker in workers)
    total.declare_output()
    protocol = sy.Protocol(workers[2])
    assert {role: list(inputs) for role, inputs in protocol.inputs.items()} == {
        "local": ["local_1"],
        "a-b": ["a_b_1"],
        "a b": ["a_b_2"],
        "2": ["_2_1"],
    }
    deployed = protocol.deploy()
    execution = deployed.start()
    for name in ("a_b_2", "2", "local_1", "a-b"):
        deployed.submit(execution, **{name: torch.ones(2)})
    assert execution.outputs["2"].get().tolist() == [4, 4]
    del execution, deployed
    for worker in workers:
        worker.close()


def test_what_a_promise_is_kept_by(three):
    x, y = (three[0].Promise.FloatTensor(shape=(2,)) for _ in range(2))
    for wrong, text in (("words", "kept by a str"), (nn.Linear(1, 1), "kept by a Linear")):
        with pytest.raises(ProtocolError, match=text):
            x.keep(wrong)
    for wrong in (torch.ones(2).send(three[1]), torch.ones(2).send(three[0], three[1])):
        with pytest.raises(LocationMismatch, match="worker1 and worker"):
            x.keep(wrong)
    total = torch.cat([x, torch.zeros(1, dtype=torch.float32)]) + torch.cat([y, y])[:3]
    x.keep(torch.ones(2).send(three[0]))
    y.keep(torch.ones(5))
    assert total.value().get().tolist() == [2, 2, 1]
    model = three[0].Promise.Model()
    net = nn.Linear(1, 1)
    both = nn.utils.parameters_to_vector(net.parameters()).detach()
    assert torch.equal((model.keep(net) * 2).value().get(), both * 2)


def test_what_promises_refuse(three):
    x, y = (worker.Promise.FloatTensor(shape=(2,)) for worker in three[:2])
    with pytest.raises(LocationMismatch, match="worker1 and worker2"):
        x + y
    shares = x.share(*three)
    with pytest.raises(UnsupportedOperation, match="mul"):
        shares * shares
    with pytest.raises(UnsupportedOperation, match="divided by the same"):
        shares + shares / 3
    with pytest.raises(WrongParties):
        x.share(three[0])
    with pytest.raises(ProtocolError, match="no output was declared"):
        sy.Protocol(*three)
    with pytest.raises(AttributeError):
        x.no_such_method


def test_promises_are_not_written_to(three):
    """What is replayed is what outputs are made of, so nothing would be left of a write."""
    x, y = (three[0].Promise.FloatTensor(shape=(2,)) for _ in range(2))
    mean = torch.nn.functional.batch_norm
    for written in (
        lambda: x.add_(1),
        lambda: x.zero_(),
        lambda: x.requires_grad_(),
        lambda: torch.relu_(x),
        lambda: torch.nn.functional.relu(x, inplace=True),
        lambda: torch.add(y, 1, out=x),
        lambda: x.__setitem__(0, 1.0),
        lambda: torch._foreach_add_([x, y], 1),
        lambda: mean(torch.ones(2, 2), x, y, training=True),
        lambda: x.backward(),
        lambda: torch.autograd.backward(x),
        lambda: x.retain_grad(),
    ):
        with pytest.raises(UnsupportedOperation, match="promises are not written to"):
            written()
    for name in ("share_memory_", "register_hook", "apply_", "numpy", "storage"):
        with pytest.raises(AttributeError, match=f"a promise has no {name}: only methods"):
            getattr(x, name)
    with pytest.raises(ProtocolError, match="a decision by a promise"):
        bool(x > 0)
    for loop in (lambda: list(x), lambda: 1 in x, lambda: torch.tensor([*x])):
        with pytest.raises(ProtocolError, match="a loop over a promise"):
            loop()


def test_comparing_promises_makes_others(three):
    x = three[0].Promise.FloatTensor(shape=(2,))
    assert len({x, x + 1, x}) == 2
    total = x
    total += 1
    equal, unequal, both = x == 1, x != 1, ((x == 1) | ~(x > 0)) & (abs(-x) < 3)
    for each in (equal, unequal, both, total):
        each.declare_output()
    found = sy.Protocol(three[0]).deploy().run(torch.tensor([1.0, 4.0]))
    wanted = [[True, False], [False, True], [True, False], [2.0, 5.0]]
    assert [each.get().tolist() for each in found] == wanted


def test_parts_of_what_operations_give(three):
    x = three[0].Promise.FloatTensor(shape=(2, 2))
    low, at = x.min(1)[0], x.min(1)[1]
    for each in (low, at, x.chunk(2)[1], x[..., 0], x.flatten()[torch.tensor([3, 0])]):
        each.declare_output()
    found = sy.Protocol(three[0]).deploy().run(torch.tensor([[4.0, 2.0], [1.0, 3.0]]))
    wanted = [[2, 1], [1, 0], [[1, 3]], [4, 1], [3, 4]]
    assert [each.get().tolist() for each in found] == wanted
    assert copy.deepcopy([x])[0] is copy.copy(x) is x


def test_public_numbers_and_sums_of_shares(three):
    x, y = (worker.Promise.FloatTensor(shape=(2,)) for worker in three[:2])
    shares = [each.share(*three) for each in (x, y)]
    total = -sum(shares) * 0.5
    for share in total.values():
        share.declare_output()
    values = torch.tensor([1.5, -2.0]), torch.tensor([4.0, 5.0])
    found = [each.get() for each in sy.Protocol(*three).deploy().run(*values)]
    assert total.opened(found).tolist() == [-2.75, -1.5]
    assert (shares[0] * 2.0).bound == 2 * shares[0].bound
    assert (shares[0] * 0.0).scale == shares[0].scale
    for number in (float("nan"), float("inf"), "2"):
        with pytest.raises(UnsupportedOperation, match="mul"):
            shares[0] * number
    with pytest.raises(UnsupportedOperation, match="add"):
        1 + shares[0]


def test_secure_aggregation(three):
    worker1, worker2, worker3 = three
    models = [worker.Promise.Model() for worker in three]
    shares = [model.share(worker1, worker2, worker3) for model in models]
    new_model_shares = (shares[0] + shares[1] + shares[2]) / 3
    for name in ("worker1", "worker2", "worker3"):
        new_model_shares[name].declare_output()
    deployed = sy.Protocol(worker1, worker2, worker3).deploy()
    values = [torch.randn(5) for _ in three]
    found = []
    for _ in range(2):
        outputs = [each.get() for each in deployed.run(*[v.send(w) for v, w in zip(values, three)])]
        opened = new_model_shares.opened(outputs)
        torch.testing.assert_close(opened, sum(values) / 3, atol=1e-4, rtol=0)
        found.append(outputs)
    assert all(not torch.equal(a, b) for a, b in zip(*found, strict=True))  # drawn anew
    assert all(abs(share.double()).max() > 2**50 for share in found[0])  # and nothing is seen


def test_masks_are_of_the_generator_of_the_system(three, monkeypatch):
    from syft.ops import secret_integers

    seen = []
    plain = secret_integers.secrets.token_bytes
    monkeypatch.setattr(
        secret_integers.secrets, "token_bytes", lambda n: seen.append(n) or plain(n)
    )
    x = three[0].Promise.FloatTensor(shape=(4,))
    for part in x.share(*three).values():
        part.declare_output()
    deployed = sy.Protocol(*three).deploy()
    seen.clear()
    torch.manual_seed(0)
    first = [each.get() for each in deployed.run(torch.ones(4))]
    torch.manual_seed(0)
    second = [each.get() for each in deployed.run(torch.ones(4))]
    assert seen == [32] * 4
    assert not any(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("beyond", [1e20, float("nan"), float("-inf"), 2.0**36])
def test_what_the_grid_cannot_hold_is_refused(hook: sy.TorchHook, beyond: float) -> None:
    alice, bob = (sy.VirtualWorker(hook, id=name) for name in ("alice", "bob"))
    one, other = (worker.Promise.FloatTensor(shape=(2,)) for worker in (alice, bob))
    total = one.share(alice, bob) + other.share(alice, bob)
    for share in total.values():
        share.declare_output()
    deployed = sy.Protocol(alice, bob).deploy()
    with pytest.raises(UnsupportedOperation, match=r"beyond 2\^36"):
        deployed.run(torch.tensor([1.0, beyond]), torch.ones(2)).get()
    shares = deployed.run(torch.tensor([1.0, 2.0**36 - 2.0**12]), torch.ones(2))
    assert total.opened([share.get() for share in shares]).tolist() == [2, 2.0**36 - 2.0**12]


def test_a_product_that_nobody_sees(three):
    """Beaver's multiplication, with a dealer who is told nothing."""

    @sy.protocol(alice=sy.RoleWorker(), bea=sy.RoleWorker(), dealer=sy.RoleWorker())
    def product(x, y, alice, bea, dealer):
        zeros = dealer.torch.zeros(4, dtype=torch.int64)
        a, b, a1, b1, c1 = (sy.secret_like(zeros) for _ in range(5))
        c2, x1, y1 = a * b - c1, sy.secret_like(x), sy.secret_like(y)
        hers = [one.send(alice) for one in (x1, y1, a1, b1, c1)]
        beas = [one.send(bea) for one in (x - x1, y - y1, a - a1, b - b1, c2)]
        (d1, e1), (d2, e2) = ([p[0] - p[2], p[1] - p[3]] for p in (hers, beas))
        d, e = d1 + d2.move(alice), e1 + e2.move(alice)
        z1 = hers[4] + d * hers[3] + e * hers[2] + d * e
        z2 = beas[4] + d.move(bea) * beas[3] + e.move(bea) * beas[2]
        return z1, z2

    x, y = torch.randint(-(2**62), 2**62, (2, 4))
    product.build(torch.ones(4).long(), torch.ones(4).long())
    roles = {name: plan.program for name, plan in product.plans.items()}
    assert not roles["dealer"].sources, "the dealer is told nothing"
    local = roles["local"].program
    made = {action.out.index: action.name for action in local.actions}
    copied = {action.out.index: action.args[0].index for action in local.actions}
    to_alice = [local.outputs[place].index for place in roles["local"].letters_to[1]]
    assert [made[copied[slot]].rpartition(".")[2] for slot in to_alice] == ["secret_like"] * 2
    deployed = product.deploy(alice=three[0], bea=three[1], dealer=three[2])
    runs = [[part.get() for part in deployed.run(x, y)] for _ in range(2)]
    for parts in runs:
        assert torch.equal(parts[0] + parts[1], x * y), "modulo 2^64"
    assert not (runs[0][0] == runs[1][0]).any(), "the parts are drawn anew"
