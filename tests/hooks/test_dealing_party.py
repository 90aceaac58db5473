"""``share(allow_dealing_party=True)``: one of the parties deals, where that is asked for."""

from __future__ import annotations

import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from syft.exceptions import (
    LocationMismatch,
    PermissionDenied,
    SessionEnded,
    SharedOperationFailed,
    WorkerLost,
    WrongParties,
)
from syft.tensors.shared.sessions import session_among
from syft.workers.handlers import share_runs
from tests.shells.child import make_worker

STEP = 2.0**-16
NAMES = "alice", "bob", "carl"


class Sharing:
    """Two or three parties, of which one deals."""

    def __init__(self, hook, count, dealer, pipelined=False):
        self.parties = [make_worker(hook, name, pipelined=pipelined) for name in NAMES[:count]]
        self.provider = self.parties[dealer]

    @property
    def settings(self):
        return {"crypto_provider": self.provider, "allow_dealing_party": True}

    def __call__(self, x, **settings):
        if isinstance(x, nn.Module) or x.is_floating_point():
            x = x.fix_precision()
        return x.share(*self.parties, **self.settings, **settings)


CASES = [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]


@pytest.fixture(params=CASES, ids=str)
def share(hook, request):
    return Sharing(hook, *request.param)


@pytest.fixture(params=[(2, 0), (2, 1), (3, 1)], ids=str)
def few(hook, request):
    return Sharing(hook, *request.param)


def near(x, want, steps=4.0):
    return (x.get().float_precision() - want).abs().max() <= steps * STEP


# ---------------------------------------------------------------------------------------- computing


def test_numbers(share):
    plain, other = torch.tensor([1.5, -2.0, 0.25]), torch.tensor([2.0, 3.0, -4.0])
    x, y = share(plain), share(other)
    assert near(x * y, plain * other) and near(x @ y, plain @ other)
    assert near((x * y).relu(), (plain * other).relu())
    assert torch.equal((x > y).get(), plain > other) and torch.equal((x == x).get(), plain == plain)
    assert near(x.exp(), plain.exp(), 20) and near(x.max(), plain.max())
    z = share(torch.tensor([3, -4]))
    assert (z * z).get().tolist() == [9, 16] and (z < 0).get().tolist() == [False, True]
    assert z.refresh().get().tolist() == [3, -4]
    z += 1
    assert (z * z).get().tolist() == [16, 9]


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(1, 2, 3), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(F.max_pool2d(F.relu(self.conv(x)), 2).flatten(1))


def test_a_module_forward_and_backward(share):
    plain, model = Pictures(), Pictures()
    model.load_state_dict(plain.state_dict())
    share(model)
    x, y = torch.randn(2, 1, 6, 6), torch.randn(2, 3)
    for one, a, b in ((plain, x, y), (model, share(x), share(y))):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
        F.mse_loss(one(a), b).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert near(model(share(x)), plain(x).detach(), 60)
    for want, got in zip(plain.parameters(), model.decrypt().parameters(), strict=True):
        assert (want - got).abs().max() <= 40 * STEP


def test_wherever_a_provider_is_named(few):
    settings = {"workers": few.parties, **few.settings}
    x = torch.tensor([[0.5, -2.0]]).encrypt(**settings)
    assert (x * x).decrypt().tolist() == [[0.25, 4.0]]
    model = nn.Linear(2, 1)
    want = model(torch.tensor([[0.5, -2.0]])).detach()
    assert (model.encrypt(**settings)(x).decrypt() - want).abs().max() < 4 * STEP
    layer = nn.Linear(2, 1)
    plan = sy.func2plan(args_shape=[(1, 2)])(lambda x: layer(x))
    want = layer(torch.tensor([[0.5, -2.0]])).detach()
    plan.fix_precision().share(*few.parties, **few.settings)
    assert (plan(x).decrypt() - want).abs().max() < 4 * STEP
    plan.get().float_precision()
    clients = [torch.full((2,), 2.0 * rank).send(one) for rank, one in enumerate(few.parties[:2])]
    mean = sy.federated_average(clients, **settings)
    assert mean.tolist() == [1.0, 1.0]


def test_a_remote_tensor_is_split_by_its_holder(hook, few):
    olga = make_worker(hook, "olga")
    x = torch.tensor([3, -4])
    for holder in (olga, *few.parties):
        shared = x.send(holder).share(*few.parties, **few.settings)
        assert torch.equal((shared * shared).get(), x * x)
        fixed = torch.tensor([0.5]).send(holder).fix_precision()
        assert near(fixed.share(*few.parties, **few.settings) * 2.5, torch.tensor([1.25]))
    assert shared.reveal(to=few.parties[0]).get().tolist() == [3, -4]


def test_this_process_may_be_the_party_that_deals(hook, alice):
    x = torch.tensor([3, -4])
    for named in ({}, {"crypto_provider": "me"}):
        with pytest.raises(WrongParties, match="allow_dealing_party=True, if .* may read"):
            x.share(alice, "me", **named)
        shared = x.share(alice, "me", allow_dealing_party=True, **named)
        assert (shared * shared).get().tolist() == [9, 16]


def test_sockets(hook):
    names = NAMES[:2]
    servers = [sy.WebsocketServerWorker(hook, port=0, id=name) for name in names]
    with servers[0], servers[1]:
        workers = [
            sy.WebsocketClientWorker(hook, port=server.port, id=server.id) for server in servers
        ]
        for provider in workers:
            x = torch.tensor([1.5, -2.0]).fix_precision()
            shared = x.share(*workers, crypto_provider=provider, allow_dealing_party=True)
            assert near((shared * shared).relu(), torch.tensor([2.25, 4.0]))
            sy.prepare(torch.relu, shared, n=1)
            assert near(torch.relu(shared), torch.tensor([1.5, 0.0]))
            del shared
        for worker in workers:
            worker.close()


# ---------------------------------------------------------------------------------------- asking


def test_it_must_be_asked_for(alice, bob):
    x, model = torch.tensor([1]), nn.Linear(1, 1).fix_precision()
    remote = x.send(bob)
    for call in (x.share, remote.share, model.share):
        text = "alice would also deal, .*; or say allow_dealing_party=True, if alice may read ever"
        with pytest.raises(WrongParties, match=text):
            call(alice, bob, crypto_provider=alice)
        with pytest.raises(WrongParties, match="name two workers"):
            call(alice, crypto_provider=alice, allow_dealing_party=True)
    for secret in (x, nn.Linear(1, 1)):
        with pytest.raises(WrongParties, match="allow_dealing_party"):
            secret.encrypt(workers=[alice, bob], crypto_provider=alice)
    model.float_precision()


def test_it_changes_nothing_where_no_party_deals(hook, alice, bob):
    carol = make_worker(hook, "carol")
    x = torch.tensor([1]).share(alice, bob, crypto_provider=carol, allow_dealing_party=True)
    y = torch.tensor([2]).share(alice, bob, crypto_provider=carol)
    assert (x * y).get().tolist() == [2]
    with hook.record() as log:
        (x * x).get()
    assert log.to("carol")


def test_sessions_of_the_two_kinds_do_not_mix(hook, few):
    carol = make_worker(hook, "carol")
    x = few(torch.tensor([1]))
    y = torch.tensor([2]).share(*few.parties, crypto_provider=carol)
    with pytest.raises(LocationMismatch, match=f"with provider {few.provider.id}"):
        x + y
    sessions = [
        session_among(hook.local_worker, few.parties, provider, None, True)
        for provider in (few.provider, carol, few.provider)
    ]
    assert sessions[0] is sessions[2] is not sessions[1]


# ------------------------------------------------------------------------------------ ahead of time


def test_it_deals_ahead(share):
    model, x = share(nn.Linear(4, 3)), torch.randn(2, 4)
    want = model(share(x)).get().float_precision()
    one = share(x)
    cost = sy.cost(model, one)
    level = sy.prepare(model, one, n=2)
    assert (level.runs, level.nbytes) == (2, 2 * cost.dealt)
    for left in (1, 0):
        with sy.trace() as trace:
            found = model(one if left else share(x))
            sy.synchronize()
        (program,) = trace.programs
        assert program.ahead and program.dealt == cost.dealt and program.sent == cost.sent
        assert near(found, want) and sy.stock().runs == left
    with sy.trace() as trace:
        assert near(model(share(x)), want)
    assert [(program.ahead, program.sent) for program in trace.programs] == [(False, cost.sent)]


# -------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize("pipelined", [False, True], ids=["immediate", "queued"])
@pytest.mark.parametrize("dealer", [0, 1])
def test_a_failure_is_undone(hook, monkeypatch, dealer, pipelined):
    share, stored, on = Sharing(hook, 2, dealer, pipelined), share_runs._stored, []

    def failing(here, *rest):
        if on and here.worker == on[0]:
            raise MemoryError(f"{on[0]} is full")
        return stored(here, *rest)

    monkeypatch.setattr(share_runs, "_stored", failing)
    x = share(torch.tensor([1, -2]))
    x += 10
    assert x.get().tolist() == [11, 8]
    for name in ("alice", "bob"):
        on[:] = [name]
        with pytest.raises(SharedOperationFailed, match=f"{name} is full"):
            x.mul_(x)
            (x > 0).get()
        on.clear()
        assert x.get().tolist() == [11, 8]
    sy.prepare(torch.relu, x, n=1)
    assert torch.relu(x).get().tolist() == [11, 8] and sy.stock().runs == 0
    assert (x * x).get().tolist() == [121, 64]


@pytest.mark.parametrize("gone", [0, 1])
def test_it_ends_where_a_party_is_gone(hook, gone):
    share = Sharing(hook, 2, 0)
    x = share(torch.tensor([1, -2]))
    x.get()
    share.parties[gone].close()
    with pytest.raises((SessionEnded, WorkerLost)):
        (x * x).get()


def test_nothing_stays(share):
    x = share(torch.tensor([1.0, -2.0]))
    (x * x).relu().get()
    sy.prepare(torch.relu, x, n=2)
    del x
    gc.collect()
    for worker in share.parties:
        torch.ones(1).send(worker).get()
        assert not worker.core.store.objects


# ---------------------------------------------------------------------------------- private values


def test_what_is_private_goes_to_a_dealing_party_that_its_owner_names(hook, few):
    dan, rest = make_worker(hook, "dan"), [one for one in few.parties if one is not few.provider]
    x = torch.tensor([1, 2])
    private = x.private_tensor(["ann"], allow_destinations=[dan, *rest]).send(dan, user="ann")
    with pytest.raises((PermissionDenied, SessionEnded), match=few.provider.id):
        private.share(*few.parties, **few.settings).decrypt()
    with pytest.raises(PermissionDenied):
        x.private_tensor(["ann"], allow_destinations=rest).share(*few.parties, **few.settings)
    named = [dan, *few.parties]
    allowed = x.private_tensor(["ann"], allow_destinations=named).send(dan, user="ann")
    for shared in (
        allowed.share(*few.parties, **few.settings),
        x.private_tensor(["ann"], allow_destinations=named).share(*few.parties, **few.settings),
    ):
        with pytest.raises(PermissionDenied):
            (shared * shared).get()
        assert (shared * shared).get(user="ann").tolist() == [1, 4]
