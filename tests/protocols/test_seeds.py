"""The programs of the document that asked for protocols with roles, as they stand there."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy

DOCUMENT = Path(__file__).resolve().parents[3] / "shared/seeds/protocols_with_roles.txt"

pytestmark = pytest.mark.skipif(not DOCUMENT.exists(), reason="the document is not here")


def snippet(first: str, last: str) -> str:
    """The text of the document from one line to another."""
    text = DOCUMENT.read_text(encoding="utf-8", errors="replace")
    start = text.index(first)
    return textwrap.dedent(text[start : text.index(last, start) + len(last)])


def names(**more: Any) -> dict[str, Any]:
    return {
        "sy": sy,
        "torch": torch,
        "th": torch,
        "nn": nn,
        "F": F,
        "RoleWorker": sy.RoleWorker,
        **more,
    }


@pytest.fixture
def workers(hook):
    made = {name: sy.VirtualWorker(hook, id=name) for name in ("james", "bob", "andrew", "dan")}
    yield made
    sy.synchronize()
    for worker in made.values():
        worker.close()
    hook.local_worker.collect()


def test_the_workflow(workers, capsys):
    space = names(**workers)
    exec(snippet("@sy.protocol(alice=RoleWorker())", "return z_ptr"), space)
    exec(snippet("# build constructs a tape", "foo.deploy(local=andrew, alice=dan)"), space)
    assert space["res"].location is workers["bob"] and space["res"].get() == 0.5
    assert space["foo_deployed2"].run(torch.tensor([-1.0])).get() == 2
    shown = capsys.readouterr().out
    assert re.match(r"\{'local': .*, 'alice': .*\}", shown, re.S)
    assert "alice" not in space
    del space["res"], space["foo_deployed"], space["foo_deployed2"]


def test_the_function_with_state(workers):
    space = names()
    exec(snippet("@sy.protocol(\n     alice=RoleWorker(state", 'on the "local worker"'), space)
    foo = space["foo"]
    foo.build(torch.tensor([1.0, 2.0]), torch.ones(3))
    deployed = foo.deploy(alice=workers["james"], bob=workers["bob"])
    x, bias = torch.tensor([1.0, 4.0]), torch.tensor([1.0, 2.0, 3.0]).send(workers["james"])
    (fc1,), (fc2,) = (foo._roles[name].state.read() for name in ("alice", "bob"))
    expected = F.log_softmax(fc2(fc1((x - x.mean()) / x.std()) + bias.copy().get()), dim=0)
    torch.testing.assert_close(deployed.run(x, bias), expected.detach())


def test_the_class(workers):
    space = names()
    text = snippet(
        "alice, bob  = RoleWorker()", "self.fc3(x)\n        return F.log_softmax(x, dim=0)"
    )
    exec(text, space)
    net = space["Net"]()
    net.build(torch.ones(4, 2))
    deployed = net.deploy(alice=workers["james"], bob=workers["bob"])
    x = torch.randn(4, 2)
    expected = F.log_softmax(net.fc3(F.relu(net.fc2(F.relu(net.fc1(x))))), dim=0)
    torch.testing.assert_close(deployed.run(x).get(), expected.detach())


def test_tensors_created_remotely(workers):
    space = names()
    exec(snippet("@sy.protocol(alice=RoleWorker())\ndef foo(x):\n    y =x", "z + noise"), space)
    space["foo"].build(torch.tensor([-1]))
    deployed = space["foo"].deploy(alice=workers["bob"])
    found = {int(deployed.run(torch.tensor([-100])).get()) for _ in range(30)}
    assert found <= set(range(100, 110)) and len(found) > 2


def test_secure_aggregation(hook):
    space = names(hook=hook)
    text = snippet("# Secure aggregation protocol", "sy.Protocol(worker1, worker2, worker3)")
    exec(text, space)
    deployed = space["secure_aggregation_protocol"].deploy()
    values = [torch.randn(7) for _ in range(3)]
    shares = [each.get() for each in deployed.run(*values)]
    opened = space["new_model_shares"].opened(shares)
    torch.testing.assert_close(opened, sum(values) / 3, atol=1e-4, rtol=0)
    sy.synchronize()
    for number in (1, 2, 3):
        space[f"worker{number}"].close()
    del deployed
    hook.local_worker.collect()
