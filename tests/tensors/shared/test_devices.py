"""Shared tensors stay on the device of what was shared: at the parties, and when they come back.

Where there is no GPU, ``make stand-in-gpu`` runs this with a stand-in for one.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy

OPERATIONS = {
    "mul": lambda x, y: x * y,
    "matmul": lambda x, y: x @ y.t(),
    "a number": lambda x, y: x / 3 + 2,
    "a number that is a tensor": lambda x, y: x * torch.tensor(2.0) - torch.tensor(1.0),
    "compared with a tensor": lambda x, y: x > torch.tensor(0.0),
    "public": lambda x, y: x * torch.full((3,), 2.0, device=x.device) + y,
    "gt": lambda x, y: x > y,
    "eq": lambda x, y: x == x.clone(),
    "where": lambda x, y: torch.where(x > 0, y, torch.tensor(0.0)),
    "relu": lambda x, y: x.relu(),
    "clamp": lambda x, y: x.clamp(-0.5, 0.5),
    "max": lambda x, y: x.max(1)[0],
    "argmax": lambda x, y: x.argmax(1),
    "cat": lambda x, y: torch.cat([x, y]),
    "index": lambda x, y: x[torch.tensor([1, 0], device=x.device), 1:],
    "embedding": lambda x, y: F.embedding(torch.tensor([1, 0], device=x.device), x),
    "sigmoid": lambda x, y: x.sigmoid(),
    "softmax": lambda x, y: x.softmax(1),
    "layer norm": lambda x, y: F.layer_norm(x, (3,)),
    "mse": lambda x, y: F.mse_loss(x, y),
    "conv1d": lambda x, y: F.conv1d(x[None], y[None, :, :2]),
    "conv_transpose1d": lambda x, y: F.conv_transpose1d(x[None], y[:, None]),
    "max_pool1d": lambda x, y: F.max_pool1d(x[None], 2, 1),
}


@pytest.fixture
def parties(hook):
    return [sy.VirtualWorker(hook, id=name) for name in ("alice", "bob", "carol")]


@pytest.fixture
def share(parties, device):
    """A function that shares floats that are on the device."""
    alice, bob, carol = parties

    def shared(x, **settings):
        return x.to(device).fix_precision().share(alice, bob, crypto_provider=carol, **settings)

    return shared


X = torch.tensor([[0.5, -1.25, 2.0], [1.5, 0.25, -0.75]])
Y = torch.tensor([[1.0, 0.5, -2.0], [-1.0, 0.75, 0.5]])


def opened(value, device):
    assert value.device.type == device.type
    plain = value.get()
    assert plain.device.type == device.type
    return plain.float_precision() if plain.is_floating_point() else plain


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_stays_on_its_device(name, share, device):
    operation = OPERATIONS[name]
    want = operation(X.to(device), Y.to(device))
    got = opened(operation(share(X), share(Y)), device)
    assert got.dtype == want.dtype
    assert torch.allclose(got.double(), want.double(), atol=0.01)


def test_shares_are_on_the_device_at_every_party(share, parties, device):
    x = share(X)
    kept = [x * x, x > 0]
    sy.synchronize()
    for party in parties[:2]:
        held = [getattr(one, "value", None) for one in party.core.store.objects.values()]
        found = [one.device.type for one in held if isinstance(one, torch.Tensor)]
        assert len(found) >= len(kept) and set(found) == {device.type}


def test_whole_numbers_and_what_was_opened_before(parties, device):
    """The second product has no share among its operands, only what was opened behind masks."""
    alice, bob, carol = parties
    x = torch.tensor([1, -2, 3], device=device).share(alice, bob, crypto_provider=carol)
    for _ in range(2):
        assert opened(x * x, device).tolist() == [1, 4, 9]


def test_a_network_is_trained_on_its_device(share, device, parties):
    alice, bob, carol = parties
    plain, duplicate = (
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)) for _ in range(2)
    )
    duplicate.load_state_dict(plain.state_dict())
    plain.to(device)
    shared = duplicate.to(device).fix_precision().share(alice, bob, crypto_provider=carol)
    for model, x in ((plain, X.to(device)), (shared, share(X))):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5)
        for _ in range(2):
            optimizer.zero_grad()
            ((model(x) - 1) ** 2).sum().backward()
            optimizer.step()
    shared.get().float_precision()
    for one, other in zip(shared.parameters(), plain.parameters(), strict=True):
        assert one.device.type == device.type
        assert torch.allclose(one, other, atol=0.01)


def test_what_was_dealt_ahead_is_used_on_the_device(share, device):
    x = share(X)
    sy.prepare(torch.relu, x, n=1)
    assert torch.allclose(opened(torch.relu(x), device), X.to(device).relu(), atol=0.001)
    assert sy.stock().runs == 0


def test_a_remote_tensor_is_split_on_its_device(parties, hook, device):
    alice, bob, carol = parties
    x = torch.tensor([1, -2, 3], device=device).send(sy.VirtualWorker(hook, id="dan"))
    shared = x.share(alice, bob, crypto_provider=carol)
    assert opened(shared * shared, device).tolist() == [1, 4, 9]
    assert shared.reveal(to=alice).get().device.type == device.type


@pytest.mark.parametrize("dealer", [0, 1])
def test_a_party_that_deals_keeps_the_device(parties, device, dealer):
    """What it deals for itself as the last party is on the CPU, as what is sent is."""
    *workers, _ = parties
    settings = {"crypto_provider": workers[dealer], "allow_dealing_party": True}
    x = X.to(device).fix_precision().share(*workers, **settings)
    assert torch.allclose(opened(x * x, device), (X * X).to(device), atol=0.001)
    sy.prepare(torch.relu, x, n=1)
    assert torch.allclose(opened(torch.relu(x), device), X.to(device).relu(), atol=0.001)
    assert sy.stock().runs == 0


def test_a_device_by_default_changes_nothing_of_what_is_elsewhere(share, device):
    """What syft makes by itself goes where it is needed, not to torch's default device."""
    torch.set_default_device(device)
    try:
        x = share(X)
        sy.prepare(torch.relu, x, n=1)
        assert sy.cost(torch.relu, x).rounds == 4
        assert torch.allclose(opened(torch.relu(x), device), X.to(device).relu(), atol=0.001)
    finally:
        torch.set_default_device(None)
