"""What is given to executions of protocols: defaults, kinds, properties, and what is written to."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import (
    CannotRecord,
    InputRefused,
    LocationMismatch,
    ObjectNotReady,
    WrongArguments,
)
from tests.protocols.test_deployment import nothing_left

RoleWorker = sy.RoleWorker


@pytest.fixture
def pair(hook):
    made = [sy.VirtualWorker(hook, id=name) for name in ("bob", "carol")]
    yield made
    nothing_left(*made)
    for worker in made:
        worker.close()


def built(function, *args):
    """A protocol of a function whose only role is alice."""
    made = sy.protocol(alice=RoleWorker())(function)
    made.build(*args)
    return made


def scaled(x, factor=2.0, *, shift=0):
    return x.send("alice") * factor + shift


# ---------------------------------------------------------------------- which arguments there are


@pytest.mark.parametrize(
    ("args", "kwargs", "wanted"),
    [
        ([torch.ones(1)], {}, 2),
        ([], {"x": torch.ones(1)}, 2),
        ([torch.ones(1), 3.0], {}, 3),
        ([torch.ones(1)], {"factor": 3, "shift": 1}, 4),
        ([], {"x": torch.ones(1), "shift": 4}, 6),
        ([torch.ones(1), np.float64(0.5)], {}, 0.5),
    ],
)
def test_defaults_are_those_of_the_function(pair, args, kwargs, wanted):
    deployed = built(scaled, torch.ones(1)).deploy(alice=pair[0])
    assert deployed.run(*args, **kwargs).get() == wanted
    assert deployed.start(*args, **kwargs).wait().outputs["alice"].get() == wanted


def test_what_starts_before_its_arguments_are_there(pair):
    deployed = built(scaled, torch.ones(1)).deploy(alice=pair[0])
    execution = deployed.start(factor=5.0)
    deployed.submit(execution, x=torch.ones(1))
    assert execution.wait().outputs["alice"].get() == 5

    def both(x, y):
        return x.send("alice") - y.send("alice")

    deployed = built(both, torch.ones(1), torch.ones(1)).deploy(alice=pair[0])
    execution = deployed.start(torch.ones(1))
    deployed.submit(execution, y=torch.ones(1))
    assert execution.wait().outputs["alice"].get() == 0


def test_a_default_may_come_from_another_worker(pair):
    deployed = built(scaled, torch.ones(1)).deploy(alice=pair[0], actors={"factor": pair[1]})
    execution = deployed.start(torch.ones(1))
    deployed.submit(execution, by=pair[1], factor=7.0)
    assert execution.wait().outputs["alice"].get() == 7


def test_inputs_inside_of_lists_have_names(pair):
    def total(xs, *more):
        return sum([*xs, *more]).send("alice")

    one = torch.ones(1)
    deployed = built(total, [one, one], one).deploy(alice=pair[0])
    assert deployed.run([one, one * 2], one * 3).get() == 6
    execution = deployed.start(xs_0=one)
    deployed.submit(execution, xs_1=one)
    deployed.submit(execution, more_0=one)
    assert execution.wait().outputs["alice"].get() == 3
    assert deployed.run(xs_0=one, xs_1=one, more_0=one).get() == 3


def test_arguments_that_are_missing_or_too_many(pair):
    deployed = built(scaled, torch.ones(1)).deploy(alice=pair[0])
    for args, kwargs, text in (
        ((), {"factor": 1.0}, "no x"),
        ((torch.ones(1),), {"x": torch.ones(1)}, r"2 arguments \(multiple values for argument"),
        ((torch.ones(1), 1.0, 2), {}, "too many positional"),
        ((torch.ones(1),), {"y": 1}, "unexpected keyword argument 'y'"),
    ):
        with pytest.raises(WrongArguments, match=f"^Protocol 'scaled' takes .*{text}"):
            deployed.run(*args, **kwargs)


# --------------------------------------------------------------------------------- what they are


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"x": 3}, "a tensor for x, and got an int"),
        ({"x": None}, "a tensor for x, and got None"),
        ({"x": nn.Linear(1, 1)}, "a tensor for x, and got a Linear"),
        ({"x": [torch.ones(1)]}, "a tensor for x, and got a list of 1"),
        ({"factor": torch.ones(1)}, "a float for factor, and got a tensor"),
        ({"shift": 0.5}, "an int for shift, and got a float"),
        ({"shift": True}, "an int for shift, and got a bool"),
    ],
)
def test_another_kind_is_refused_early_and_late(pair, wrong, text):
    protocol = built(scaled, torch.ones(1))
    deployed = protocol.deploy(alice=pair[0])
    with pytest.raises(WrongArguments, match=text):
        deployed.run(**{"x": torch.ones(1), **wrong})
    late = protocol.deploy(alice=pair[0], actors=dict.fromkeys(wrong, pair[1]))
    execution = late.start(**({} if "x" in wrong else {"x": torch.ones(1)}))
    with pytest.raises(WrongArguments, match=text):
        late.submit(execution, by=pair[1], **wrong)
    execution.cancel()
    del execution, late, deployed


def test_tensors_of_other_kinds_are_refused(hook, pair):
    deployed = built(scaled, torch.ones(1)).deploy(alice=pair[0])
    x = torch.ones(1)
    shared = x.fix_precision().share(*pair, crypto_provider=hook.local_worker)
    for wrong, kind in (
        (x.fix_precision(), "FixedPrecisionTensor"),
        (shared, "FixedPrecisionTensor|AdditiveSharingTensor"),
        (x.send(*pair), "MultiPointerTensor"),
        (x.to_lazy(), "LazyTensor"),
    ):
        with pytest.raises(WrongArguments, match=f"a pointer to one worker, and got a ({kind})"):
            deployed.run(wrong)


def test_what_misses_an_input_says_which(pair):
    deployed = built(scaled, torch.ones(1)).deploy(alice=pair[0])
    execution = deployed.start(shift=3)
    with pytest.raises(ObjectNotReady) as caught:
        execution.wait()
    assert caught.value.__notes__[-1] == "Missing inputs of 'scaled', which submit() gives: ['x']."
    deployed.submit(execution, by="me", x=torch.ones(1))
    assert execution.wait().outputs["alice"].get() == 5


def test_properties_by_which_the_function_decided(pair):
    def padded(x):
        return torch.cat([x, torch.zeros(1, dtype=x.dtype)]).send("alice")

    deployed = built(padded, torch.ones(2)).deploy(alice=pair[0])
    assert deployed.run(torch.ones(3)).get().tolist() == [1, 1, 1, 0]
    with pytest.raises(WrongArguments, match="dtype torch.float32 for x .* got dtype torch.int64"):
        deployed.run(torch.ones(2, dtype=torch.int64))
    execution = deployed.start()
    with pytest.raises(WrongArguments, match="dtype torch.float32 for x"):
        deployed.submit(execution, x=torch.ones(2, dtype=torch.int64))
    deployed.submit(execution, x=torch.ones(1))
    assert execution.wait().outputs["alice"].get().tolist() == [1, 0]


def test_an_input_that_is_given_twice(pair):
    def both(x, y):
        return x.send("alice") - y.send("alice")

    deployed = built(both, torch.ones(1), torch.ones(1)).deploy(alice=pair[0])
    execution = deployed.start(torch.ones(1))
    with pytest.raises(InputRefused, match="refuses input 'x' of 'both' .*: it was given already"):
        deployed.submit(execution, x=torch.ones(1))
    deployed.submit(execution, y=torch.ones(1))
    with pytest.raises(InputRefused, match="refuses input 'y' of 'both' .*: it was given already"):
        deployed.submit(execution, y=torch.ones(1))
    assert execution.wait().outputs["alice"].get() == 0


# ------------------------------------------------------------------------- what happens to them


def test_what_is_written_to_is_a_pointer(pair):
    """A copy is sent of anything else, and what was written would be lost."""

    def adds(x, y):
        y *= 2
        return x.send("alice") + y

    x, y = torch.ones(1), torch.ones(1)
    deployed = built(adds, x, y).deploy(alice=pair[0])
    there = y.clone().send(pair[0])
    assert deployed.run(x, there).get() == 3
    assert there.get() == 2
    with pytest.raises(WrongArguments, match=re.escape("`y = y.clone()`")):
        deployed.run(x, y)
    execution = deployed.start(x)
    with pytest.raises(WrongArguments, match="a pointer for y, since it writes to it"):
        deployed.submit(execution, y=y)
    execution.cancel()


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.view(-1).zero_(),
        lambda x: torch.relu_(x),
        lambda x: x.requires_grad_(),
        lambda x: x.__setitem__(0, 1.0),
        lambda x: torch.add(x, 1, out=x),
    ],
)
def test_what_the_caller_gave_here_is_not_written_to_there(pair, write):
    def writes(x):
        write(x)
        return x.send("alice") + 1

    def copies(x):
        x = x.clone()
        write(x)
        return x.send("alice") + 1

    with pytest.raises(WrongArguments, match="since it writes to it"):
        built(writes, torch.ones(1)).deploy(alice=pair[0]).run(torch.ones(1))
    x = torch.ones(1)
    built(copies, torch.ones(1)).deploy(alice=pair[0]).run(x)
    assert x == 1 and not x.requires_grad


def test_gradients_of_inputs(pair):
    def slope(x):
        (x.send("alice") ** 2).sum().backward()
        return x.grad.clone()

    def own(x):
        x = x.detach().clone().requires_grad_()
        return slope(x)

    x = torch.tensor([3.0], requires_grad=True)
    deployed = built(slope, x).deploy(alice=pair[0])
    with pytest.raises(
        WrongArguments, match=re.escape("`x = x.detach().clone().requires_grad_()`")
    ):
        deployed.run(x)
    with pytest.raises(WrongArguments, match="requires_grad=True for x, as it was built"):
        deployed.run(x.detach())
    protocol = built(own, x.detach())
    assert protocol.deploy(alice=pair[0]).run(x.detach()) == 6
    with pytest.raises(WrongArguments, match="requires_grad=False for x, as it was built"):
        protocol.deploy(alice=pair[0]).run(x)
    assert x.grad is None


def test_a_protocol_without_gradients_takes_either(pair):
    deployed = built(scaled, torch.ones(1)).deploy(alice=pair[0])
    assert not deployed.run(torch.ones(1, requires_grad=True)).get().requires_grad


def test_what_costs_are_asked_for_is_not_changed(pair):
    def adds(x):
        x += 1
        return x.send("alice")

    def sends(x):
        y = x.detach()
        return (y.clone() + 1).send("alice")

    x = torch.ones(2)
    for body in (adds, sends):
        try:
            built(body, x.clone()).deploy(alice=pair[0]).cost(x)
        except WrongArguments:
            assert body is adds
        assert x.tolist() == [1, 1]


# --------------------------------------------------------------------------------------- models


def test_only_a_promised_model_is_given_as_a_module(pair):
    model, vector = pair[0].Promise.Model(), pair[0].Promise.FloatTensor(shape=(2,))
    (model * 2).declare_output()
    (vector * 3).declare_output()
    deployed = sy.Protocol(pair[0]).deploy()
    net = nn.Linear(1, 1)
    both = nn.utils.parameters_to_vector(net.parameters()).detach()
    twice, _ = deployed.run(net, torch.ones(2))
    assert torch.equal(twice.get(), both * 2)
    execution = deployed.start()
    deployed.submit(execution, bob_1=net)
    with pytest.raises(WrongArguments, match="a tensor for bob_2, and got a Linear"):
        deployed.submit(execution, bob_2=net)
    execution.cancel()
    with pytest.raises(WrongArguments, match="a tensor for bob_2, and got a Linear"):
        deployed.run(net, net)


def test_refusals_speak_of_a_protocol(pair):
    def reseeds(x):
        torch.manual_seed(0)
        return x.send("alice")

    with pytest.raises(CannotRecord, match="^A protocol cannot keep torch.manual_seed"):
        built(reseeds, torch.ones(1))
    with pytest.raises(WrongArguments, match="^Protocol 'scaled' takes"):
        built(scaled)


# -------------------------------------------------------------- pointers to what is only sent on


def test_a_role_gets_a_copy_of_what_a_pointer_leads_to_here(pair, hook):
    """What the function only sends on comes to the role without a part of the caller's own."""
    deployed = built(lambda x: x.send("alice").add_(1), torch.ones(1)).deploy(alice=pair[0])
    x = torch.ones(1).send(hook.local_worker)
    assert [deployed.run(x).get().item() for _ in range(2)] == [2, 2]
    assert x.get().item() == 1


def test_what_lies_where_a_role_is_does_not_pass_for_a_copy(pair):
    """It would be written to, or share its memory with what is returned."""
    for function in (lambda x: x.send("alice").add_(1), lambda x: x.send("alice")):
        deployed = built(function, torch.ones(1)).deploy(alice=pair[0])
        x = torch.ones(1).send(pair[0])
        with pytest.raises(LocationMismatch, match="the operands lie at me and bob"):
            deployed.run(x)
        assert x.get().item() == 1


def test_what_is_sent_on_and_then_written_to_is_a_pointer_to_here(pair, hook):
    def function(x):
        sent = x.send("alice")
        x.add_(1)
        return sent * 1

    deployed = built(function, torch.ones(1)).deploy(alice=pair[0])
    x = torch.ones(1).send(hook.local_worker)
    assert [deployed.run(x).get().item() for _ in range(3)] == [1, 2, 3]
    assert x.get().item() == 4
