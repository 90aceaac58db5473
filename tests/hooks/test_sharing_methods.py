"""Sharing as users do it: tensors, remote tensors and modules, at workers of this process."""

from __future__ import annotations

import copy
import gc
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from syft.exceptions import (
    LocationMismatch,
    NotSendable,
    NotShareable,
    NothingToGet,
    PermissionDenied,
    ProviderDenied,
    SessionEnded,
    UnknownWorker,
    UnsupportedOperation,
    WorkerClosed,
    WrongParties,
)
from syft.tensors.shared.sessions import session_among, sessions_of
from syft.workers.wire.messages import Fetch, Start
from tests.shells.child import make_worker

pytestmark = pytest.mark.every_shell

STEP = 2.0**-16


@pytest.fixture
def carol(hook):
    return make_worker(hook, "carol")


@pytest.fixture
def dan(hook):
    return make_worker(hook, "dan")


@pytest.fixture
def share(alice, bob, carol):
    """Shares among alice and bob; carol deals."""

    def shared(x, **settings):
        if isinstance(x, nn.Module) or x.is_floating_point():
            x = x.fix_precision()
        return x.share(alice, bob, crypto_provider=carol, **settings)

    return shared


def near(x, want, steps=4.0):
    return (x.get().float_precision() - want).abs().max() <= steps * STEP


# ------------------------------------------------------------------------ tensors of this process


def test_share_and_get(share):
    x = torch.tensor([1, -2, 3])
    shared = share(x)
    assert shared.dtype is torch.int64 and shared.shape == x.shape
    assert torch.equal((shared * shared + 1).get(), x * x + 1)
    assert torch.equal(shared.get(), x)  # it is still there


def test_fixed_precision_stays(share):
    plain = share(torch.tensor([1.5, -0.25])).get()
    assert repr(plain) == "(Wrapper)>FixedPrecisionTensor>tensor([ 98304, -16384])"
    assert plain.float_precision().tolist() == [1.5, -0.25]


def test_each_party_has_uniform_shares(hook, share, alice, bob):
    shared = share(torch.zeros(1000, dtype=torch.int64))
    parts = [
        hook.local_worker.connection_to(name).ask(Fetch, at.id_at_location, keep=True, reading=1)
        for name, at in shared.child.child.items()
    ]
    assert torch.equal(parts[0], -parts[1])
    for part in parts:
        ones = sum(int(word).bit_count() for word in (part & (2**63 - 1)).tolist())
        assert abs(ones - 31500) < 6 * (63000 / 4) ** 0.5


@pytest.mark.parametrize("count", [2, 3, 4])
def test_any_number_of_parties(hook, count):
    parties = [make_worker(hook, f"party{number}") for number in range(count)]
    dealer = make_worker(hook, "dealer")
    x = torch.tensor([3, -4]).share(*parties, crypto_provider=dealer)
    assert (x * x).get().tolist() == [9, 16]
    assert (x > 0).get().tolist() == [True, False]
    assert list(x.child.child) == [party.id for party in parties]


def test_without_a_provider_this_process_deals(alice, bob):
    x = torch.tensor([3, -4]).share(alice, bob)
    assert repr(x).endswith("\n\t*crypto provider: me*")
    assert (x * x).get().tolist() == [9, 16]


def test_workers_by_name_and_in_any_order(share, alice, bob, carol):
    x = torch.tensor([1]).share("bob", "alice", crypto_provider="carol", protocol="snn")
    assert (x + share(torch.tensor([2]))).get().tolist() == [3]


def test_how_shared_tensors_look(share):
    line = r"\n\t-> \[PointerTensor \| me:\d+ -> {}:\d+\]"
    shares = line.format("alice") + line.format("bob") + r"\n\t\*crypto provider: carol\*"
    tail = rf"\[AdditiveSharingTensor\]{shares}"
    assert re.fullmatch(rf"\(Wrapper\)>{tail}", repr(share(torch.tensor([1]))))
    assert re.fullmatch(
        rf"\(Wrapper\)>FixedPrecisionTensor>{tail}", repr(share(torch.tensor([1.0])))
    )
    model = share(nn.Linear(2, 1))
    head = r"Parameter containing:\n\(Wrapper\)>FixedPrecisionTensor>"
    assert re.fullmatch(head + tail, repr(model.bias))


@pytest.mark.parametrize("asked", [False, True])
def test_gradients_are_shared_and_come_home(share, asked):
    x = torch.tensor([1.5, -2.0], requires_grad=not asked)
    shared = share(x, requires_grad=asked)
    assert shared.requires_grad and shared.is_leaf
    (shared * shared).sum().backward()
    plain = shared.get()
    assert plain.requires_grad
    assert plain.grad.float_precision().tolist() == [3.0, -4.0]
    assert near(shared.grad, torch.tensor([3.0, -4.0]))


def test_a_gradient_goes_along(share):
    x = torch.tensor([1.5], requires_grad=True)
    x.grad = torch.tensor([0.25])
    assert share(x.fix_precision_()).grad.get().float_precision().tolist() == [0.25]


def test_reveal_to_one_party(share, alice, carol):
    for x in (torch.tensor([1, -2]), torch.tensor([0.5, -1.5]), torch.tensor([True, False])):
        pointer = share(x).reveal(to=alice)
        assert pointer.location is alice
        assert torch.equal(pointer.get(), x)
    with pytest.raises(NotShareable, match="reveal them to one of alice, bob"):
        share(torch.tensor([1])).reveal(to=carol)


def test_refresh(share):
    x = share(torch.tensor([1.5]))
    fresh = x.refresh()
    assert fresh.get().float_precision().tolist() == [1.5]


@pytest.mark.parametrize("x", [torch.tensor([1, 2]), torch.tensor([0.5, -1.25])])
def test_encrypt_and_decrypt(alice, bob, carol, x):
    shared = x.encrypt(workers=[alice, bob], crypto_provider=carol)
    assert torch.equal((shared + shared).decrypt(), x + x)


def test_encrypt_with_a_precision(alice, bob, carol):
    x = torch.tensor([0.5]).encrypt(
        workers=[alice, bob], crypto_provider=carol, precision_fractional=3
    )
    assert x.get().child.child.tolist() == [500]
    assert x.decrypt().tolist() == [0.5]


def test_public_operands(share):
    x = share(torch.tensor([1.5, -2.0]))
    assert near(x * torch.tensor([2.0, 0.5]), torch.tensor([3.0, -1.0]))
    assert near(x + torch.tensor([1, 2]).fix_precision(), torch.tensor([2.5, 0.0]))
    assert near(x * share(torch.tensor([2, 3])), torch.tensor([3.0, -6.0]))
    assert near(x @ torch.tensor([1.0, 1.0]), torch.tensor(-0.5))


# ------------------------------------------------------------------------------------ what is wrong


def test_wrong_parties(alice, bob, carol):
    x = torch.tensor([1])
    for workers, provider, text in [
        ((), carol, "nobody: name two workers or more"),
        ((alice,), carol, "alice: name two workers or more"),
        ((alice, alice), carol, "alice, alice: name each worker once"),
        ((alice, carol), carol, "alice, carol: carol would also deal, .* this process deals"),
        ((alice, bob, carol), "bob", "bob would also deal, .* name as crypto_provider= a worker"),
        ((alice, "me"), None, "alice, me: this process is one of them, .* a worker that gets no"),
        ((alice, "me"), "me", "alice, me: me would also deal"),
    ]:
        with pytest.raises(WrongParties, match=text):
            x.share(*workers, crypto_provider=provider)
    with pytest.raises(UnknownWorker):
        x.share("alice", "eve")
    with pytest.raises(NotShareable, match="protocol 'securenn'"):
        x.share(alice, bob, protocol="securenn")
    for secret in (x, torch.ones(1).send(alice), nn.Linear(1, 1)):
        with pytest.raises(NotShareable, match="protocol 'paillier'"):
            secret.encrypt("paillier", crypto_provider=carol)
    with pytest.raises(WrongParties, match="name two workers or more"):
        x.encrypt()


def test_who_shares_may_be_a_party_where_another_worker_deals(alice, bob):
    x = torch.tensor([0.5, -2.0]).fix_precision().share(alice, "me", crypto_provider=bob)
    assert (x * x).get().float_precision().tolist() == [0.25, 4.0]


def test_who_shares_deals_unless_another_worker_does(alice, bob):
    x = torch.tensor([0.5, -2.0]).fix_precision().share(alice, bob)
    assert repr(x).endswith("*crypto provider: me*")
    assert (x * x).relu().get().float_precision().tolist() == [0.25, 4.0]
    model = torch.nn.Linear(2, 1).fix_precision().share(alice, bob)
    assert model(x).get().float_precision().shape == (1,)


def test_what_is_shared_is_not_sent(share, alice, carol):
    x, model = share(torch.ones(2)), share(nn.Linear(2, 1))
    calls = [one for y in (x, x > 0, model) for one in (y.send, y.move)]
    for call in (*calls, lambda to: sy.send_all([x], to)):
        for place in (alice, carol):
            with pytest.raises(NotSendable, match=r"send a shared tensor: get\(\) it, or reveal"):
                call(place)
    assert near(x, torch.ones(2)) and model.location is None
    assert x.reveal(to=alice).move(carol).tolist() == [1.0, 1.0]


def test_what_cannot_be_shared(share, alice, bob):
    with pytest.raises(NotShareable, match=r"torch.float32: call .fix_precision\(\) first"):
        torch.ones(2).share(alice, bob)
    with pytest.raises(NotShareable, match="shared already"):
        share(torch.tensor([1])).share(alice, bob)
    with pytest.raises(NothingToGet):
        torch.ones(2).get()
    for plain in (torch.ones(2), torch.ones(2).send(alice)):
        for call in (plain.refresh, plain.decrypt, lambda x=plain: x.reveal(to=alice)):
            with pytest.raises(NothingToGet, match="this tensor is not shared.*get.. it if"):
                call()


def test_sessions_do_not_mix(share, alice, bob, carol, dan):
    x, y = share(torch.tensor([1])), torch.tensor([1]).share(alice, dan, crypto_provider=carol)
    with pytest.raises(LocationMismatch, match="among alice, bob with provider carol"):
        x + y


def test_an_operation_that_is_missing(share):
    with pytest.raises(UnsupportedOperation, match=r"aten.nonzero.*get\(\) it first"):
        share(torch.tensor([1])).nonzero()


def test_a_session_that_ended_is_replaced(hook, share, alice, bob, carol):
    x = share(torch.tensor([1]))
    session = session_among(hook.local_worker, [alice, bob], carol)
    x.get()
    bob.clear_objects()
    with pytest.raises(SessionEnded, match=r"bob"):
        (x * 2).get()
    with pytest.raises(SessionEnded):
        x + 1
    assert session not in sessions_of(hook.local_worker)
    assert share(torch.tensor([2])).get().tolist() == [2]


def test_synchronize_sends_what_waits(share, alice):
    x = share(torch.tensor([1]))
    before = alice.objects_count()
    y = x * 2
    sy.synchronize()
    assert alice.objects_count() == before + 2
    del x, y


def test_shares_go_with_the_tensor(hook, share, alice, bob, carol):
    share(torch.tensor([1])).get()
    gc.collect()
    counts = [worker.objects_count() for worker in (alice, bob, carol)]
    x = share(torch.randn(3))
    (x * x).get()
    del x
    gc.collect()
    for worker in (alice, bob):
        hook.local_worker.connection_to(worker).flush()
    assert [worker.objects_count() for worker in (alice, bob, carol)] == counts


# --------------------------------------------------------------------------------- remote tensors


def test_a_remote_tensor_is_split_by_its_holder(alice, bob, carol, dan):
    with sy.trace() as trace:
        for x, sent in [
            (torch.tensor([1, -2]), torch.tensor([1, -2]).send(dan)),
            (torch.tensor([True, False]), torch.tensor([True, False]).send(dan)),
            (torch.tensor([1, -2]), torch.tensor([1, -2]).send(alice)),
        ]:
            shared = sent.share(alice, bob, crypto_provider=carol)
            assert shared.dtype is x.dtype
            assert torch.equal((shared + shared).get() > 0, (x + x) > 0)
            assert torch.equal(shared.decrypt(), x)
    assert trace


def test_a_remote_tensor_in_fixed_precision(alice, bob, carol, dan):
    x = torch.tensor([[1.5, -2.0]])
    pointer = x.send(dan).fix_precision(precision_fractional=3)
    shared = pointer.share(alice, bob, crypto_provider=carol, requires_grad=True)
    assert shared.requires_grad
    (shared * shared).sum().backward()
    assert torch.allclose(shared.grad.get().float_precision(), 2 * x, atol=0.005)


def test_a_remote_tensor_that_cannot_be_split(alice, bob, carol, dan):
    with pytest.raises(NotShareable, match="without a crypto_provider"):
        torch.tensor([1]).send(dan).share(alice, bob)
    with pytest.raises(NotShareable, match=r"torch.float32: call .fix_precision\(\) first"):
        torch.ones(2).send(dan).share(alice, bob, crypto_provider=carol)
    with pytest.raises(
        NotShareable, match="on behalf of a user: send or find it through worker.as_user"
    ):
        torch.tensor([1]).send(dan).share(alice, bob, crypto_provider=carol, user="ann")


def test_many_are_fetched_at_once_with_remote_ones(share, bob):
    shared, doubled = share(torch.tensor([1, 2])), share(torch.tensor([0.5, -1.0])) * 2
    remote = torch.ones(2).send(bob)
    one, other, third = sy.get_all([shared, remote, doubled])
    assert one.tolist() == [1, 2] and other.tolist() == [1.0, 1.0]
    assert third.float_precision().tolist() == [1.0, -2.0]
    named = sy.get_all({"sum": shared + shared})
    assert named["sum"].tolist() == [2, 4]
    with pytest.raises(NothingToGet):
        sy.get_all([shared, torch.ones(2)])


def test_a_shared_tensor_is_waited_for(share):
    with pytest.raises(UnsupportedOperation, match=r"call get\(\), or sy.get_all\(\)"):
        share(torch.tensor([1])).get(wait=False)


def test_private_tensors_go_where_their_owner_allows(hook, alice, bob, carol, dan):
    x = torch.tensor([1, 2])
    private = x.private_tensor(["ann"], allow_destinations=[dan]).send(dan, user="ann")
    with pytest.raises((PermissionDenied, SessionEnded), match="may not go to"):
        private.share(alice, bob, crypto_provider=carol).decrypt()
    allowed = x.private_tensor(["ann"], allow_destinations=[dan, alice, bob]).send(dan, user="ann")
    shared = allowed.share(alice, bob, crypto_provider=carol)
    doubled = shared * 2
    with pytest.raises(PermissionDenied):
        doubled.get()
    assert doubled.get(user="ann").tolist() == [2, 4]


def test_private_tensors_of_this_process(alice, bob, carol):
    x = torch.tensor([1, 2])
    with pytest.raises(PermissionDenied):
        x.private_tensor(["ann"]).share(alice, bob, crypto_provider=carol)
    allowed = x.private_tensor(["ann"], allow_destinations=[alice, bob])
    shared = allowed.share(alice, bob, crypto_provider=carol)
    with pytest.raises(PermissionDenied):
        (shared * shared).get()
    assert (shared * shared).get(user="ann").tolist() == [1, 4]


def dealt_by(hook, *providers):
    """Ann's data, of which anybody may have shares if these workers deal."""
    x = torch.tensor([1, 2])
    places = ["alice", "bob", "dan"]
    return x.private_tensor(["ann"], allow_destinations=places, allow_providers=providers)


@pytest.mark.parametrize("user", [None, "ann"])
def test_only_whom_the_owner_names_may_deal(hook, alice, bob, carol, dan, user):
    """Whoever shares it, and at a worker as well as in this process."""
    eve = make_worker(hook, "eve")
    held = dealt_by(hook, carol).send(dan, user="ann")
    here = dealt_by(hook, carol)
    message = (
        r"'eve' is not among its allow_providers=: share it with crypto_provider= one of carol"
    )
    for private in (held, held.copy(), held * 2, held.copy().move(alice)):
        with pytest.raises(ProviderDenied, match=message):
            private.share(alice, bob, crypto_provider=eve)
        assert private.share(alice, bob, crypto_provider=carol).get(user="ann").numel() == 2
    with pytest.raises(ProviderDenied, match=message):
        here.share(alice, bob, crypto_provider=eve, user=user)
    with pytest.raises(ProviderDenied, match="'me' is not among"):
        here.share(alice, bob, user=user)
    x = here.share(alice, bob, crypto_provider=carol, user=user)
    assert (x * x).get(user="ann").tolist() == [1, 4]


def test_a_party_that_deals_must_be_named_too(hook, alice, bob, dan):
    settings = {"crypto_provider": alice, "allow_dealing_party": True}
    for names in ((), ("bob",)):
        held = dealt_by(hook, *names).send(dan, user="ann")
        with pytest.raises(ProviderDenied, match="'alice' is not among"):
            held.share(alice, bob, **settings)
    held = dealt_by(hook, alice).send(dan, user="ann")
    assert held.share(alice, bob, **settings).get(user="ann").tolist() == [1, 2]


def test_who_may_deal_for_what_is_computed_from_two(hook, alice, bob, carol, dan):
    eve = make_worker(hook, "eve")
    one, other = (dealt_by(hook, *names) for names in ((carol, eve), (carol,)))
    both = one.send(dan, user="ann") + other.send(dan, user="ann")
    with pytest.raises(ProviderDenied, match="one of carol"):
        both.share(alice, bob, crypto_provider=eve)
    assert both.share(alice, bob, crypto_provider=carol).get(user="ann").tolist() == [2, 4]
    nobody = both + dealt_by(hook, eve).send(dan, user="ann")
    for provider in (carol, eve):
        with pytest.raises(ProviderDenied, match="no worker may deal"):
            nobody.share(alice, bob, crypto_provider=provider)


def test_what_is_revealed_says_who_may_deal(hook, alice, bob, carol, dan):
    eve = make_worker(hook, "eve")
    held = dealt_by(hook, carol).send(dan, user="ann")
    pointer = held.share(alice, bob, crypto_provider=carol).reveal(to=alice)
    with pytest.raises(ProviderDenied):
        pointer.share(alice, bob, crypto_provider=eve)


def test_the_owner_lets_others_deal(hook, alice, bob, carol, dan):
    eve = make_worker(hook, "eve")
    held = dealt_by(hook, carol).send(dan)
    wider = held.allow(providers=[eve])
    for provider in (carol, eve):
        shared = wider.share(alice, bob, crypto_provider=provider)
        assert shared.get(user="ann").tolist() == [1, 2]
    with pytest.raises(ProviderDenied):
        held.share(alice, bob, crypto_provider=eve)


# --------------------------------------------------------------------------------------- modules


def test_a_module_in_place_and_back(share):
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).eval()
    want = {name: value.clone() for name, value in model.state_dict().items()}
    weight = model[0].weight
    assert share(model) is model and model[0].weight is weight
    assert isinstance(weight, nn.Parameter) and weight.requires_grad
    assert type(model[1].num_batches_tracked) is torch.Tensor
    assert model.get() is model
    model.float_precision()
    for name, value in model.state_dict().items():
        assert torch.allclose(value, want[name], atol=STEP)


def test_a_module_short_form(alice, bob, carol):
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    with torch.no_grad():
        want = model(x)
        model.encrypt(
            workers=[alice, bob], crypto_provider=carol, precision_fractional=4, requires_grad=False
        )
        assert not model.weight.requires_grad
        shared = x.encrypt(workers=[alice, bob], crypto_provider=carol, precision_fractional=4)
        assert torch.allclose(model(shared).decrypt(), want, atol=1e-3)
    model.decrypt()
    assert torch.allclose(model(x), want, atol=1e-3)


def test_a_module_that_cannot_be_shared(alice, bob):
    model = nn.Linear(2, 1)
    with pytest.raises(NotShareable, match=r"call .fix_precision\(\) first"):
        model.share(alice, bob)
    with pytest.raises(WrongParties):
        model.encrypt(workers=[alice])
    assert type(model.weight) is nn.Parameter


def _trained(model, x, rate=0.125):
    """A step of SGD, by an optimizer of its own."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    optimizer.zero_grad()
    loss = (model(x) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


@pytest.mark.parametrize("short", [False, True])
def test_a_module_is_split_where_it_is(alice, bob, carol, dan, short):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
    plain, x, weight = copy.deepcopy(model), torch.randn(8, 3), model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    (plain(x) ** 2).mean().backward()
    model.send(dan)
    (model(x.send(dan)) ** 2).mean().backward()  # a gradient goes along
    if short:
        shared = model.encrypt(workers=[alice, bob], crypto_provider=carol)
    else:
        shared = model.fix_precision().share(alice, bob, crypto_provider=carol)
    assert shared is model and model[0].weight is weight and weight.requires_grad
    hidden = x.fix_precision().share(alice, bob, crypto_provider=carol)
    assert near(weight.grad, plain[0].weight.grad)
    optimizer.zero_grad()
    loss = (model(hidden) ** 2).mean()
    loss.backward()
    optimizer.step()
    want = _trained(plain, x)
    assert near(loss, want, steps=20)
    model.get().float_precision()
    assert model[1].num_batches_tracked.item() == 2 and type(model[0].weight) is nn.Parameter
    for mine, other in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(mine, other, atol=5e-4)
        assert torch.allclose(mine.grad, other.grad, atol=2e-3)  # through a batch norm


def test_nothing_of_a_module_at_a_worker_comes_here(alice, bob, carol, dan):
    model = nn.Linear(300, 20).send(dan).fix_precision()
    with sy.trace() as trace:
        model.share(alice, bob, crypto_provider=carol)
        sy.synchronize()
    here = [each.nbytes for each in trace if each.receiver == "me"]
    assert here and sum(here) < 1000, "of 48,000"
    assert len([each for each in trace if "OPEN_SESSION" in each.what]) == 3
    assert model.weight.grad is None
    with pytest.raises(NotShareable, match="shared already"):
        model.share(alice, bob, crypto_provider=carol)


def test_a_module_at_a_worker_that_cannot_be_shared_stays_as_it_is(alice, bob, carol, dan):
    model, x = nn.Linear(3, 2).send(dan), torch.ones(1, 3)
    with pytest.raises(NotShareable, match=r"torch.float32: call .fix_precision\(\) first"):
        model.share(alice, bob, crypto_provider=carol)
    for call in (model.share, lambda *workers: model.encrypt(workers=workers)):
        with pytest.raises(NotShareable, match="without a crypto_provider: name one"):
            call(alice, bob)
    with pytest.raises(WrongParties):
        model.encrypt(workers=[alice], crypto_provider=carol)
    assert model(x.send(dan)).get().shape == (1, 2) and model.location is dan


def test_a_module_is_split_if_its_owner_allows_it(alice, bob, carol, dan):
    x = torch.ones(1, 3).encrypt(workers=[alice, bob], crypto_provider=carol)

    def shared(*destinations):
        model = nn.Linear(3, 2)
        for name in ("weight", "bias"):
            values = getattr(model, name).detach()
            private = values.private_tensor(["ann"], allow_destinations=[dan, *destinations])
            setattr(model, name, nn.Parameter(private))
        want = model.weight.detach().clone()
        model.send(dan, user="ann").fix_precision()
        return model.share(alice, bob, crypto_provider=carol), want

    model, want = shared(alice, bob)
    for reading in (model(x).get, model.get):
        with pytest.raises(PermissionDenied):
            reading()
    assert model(x).decrypt(user="ann").shape == (1, 2)
    assert torch.allclose(model.decrypt(user="ann").weight, want, atol=STEP)
    with pytest.raises((PermissionDenied, SessionEnded), match="may not go to"):
        shared(alice)[0].get(user="ann")


class Net(nn.Module):
    """A small convolutional network with what inference needs."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 4, 3)
        self.out = nn.Linear(4 * 3 * 3, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2, stride=1)
        return self.out(F.dropout(x, training=False).flatten(1))


def test_inference_of_a_convolutional_network(share):
    model, x = Net().eval(), torch.randn(2, 1, 12, 12)
    with torch.no_grad():
        want = model(x)
        got = share(model)(share(x))
        assert near(got, want, 40)
        assert torch.equal(got.argmax(1).get(), want.argmax(1))


def test_training_steps_are_those_of_plain_numbers(share):
    plain = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    model.load_state_dict(plain.state_dict())
    share(model)
    x, y = torch.randn(6, 5), torch.randn(6, 3)
    secret, target = share(x), share(y)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (plain, model)]
    assert optimizers[1].fix_precision() is optimizers[1]
    for _ in range(3):
        for m, optimizer, a, b in zip((plain, model), optimizers, (x, secret), (y, target)):
            optimizer.zero_grad()
            F.mse_loss(m(a), b).backward()
            optimizer.step()
    optimizers.clear()
    for want, got in zip(plain.parameters(), model.get().float_precision().parameters()):
        assert (want - got).abs().max() <= 40 * STEP


def test_one_message_to_each_party_for_a_whole_model(hook, share, alice, bob, carol):
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(3, 4)
    with torch.no_grad():
        share(model)
        shared = share(x)
        out = model(shared)
        with hook.record() as log:
            sy.synchronize()
    started = [entry.receiver for entry in log if isinstance(entry.message, Start)]
    assert sorted(started) == ["alice", "bob", "carol"]
    del out


def test_an_error_of_another_request_is_told_and_ends_nothing(hook, share, carol):
    eve = make_worker(hook, "eve", pipelined=True)
    fay = make_worker(hook, "fay", pipelined=True)
    x = torch.tensor([1, 2]).share(eve, fay, crypto_provider=carol)
    x.get()
    wrong = torch.ones(2).send(fay) + torch.ones(3).send(fay)
    with pytest.raises(RuntimeError, match="must match the size"):
        (x * 2).get()
    assert (x * 2).get().tolist() == [2, 4]
    del wrong


def test_queued_workers(hook):
    parties = [make_worker(hook, name, pipelined=True) for name in ("eve", "fay", "gus")]
    x = torch.tensor([3.0, -4.0]).fix_precision().share(*parties[:2], crypto_provider=parties[2])
    assert (x * x).get().float_precision().tolist() == [9.0, 16.0]
    assert (x > 0).get().tolist() == [True, False]


def test_operands_that_are_shared_otherwise_say_what_to_do(hook, alice, bob, carol):
    dan = sy.VirtualWorker(hook, id="dan")
    x = torch.arange(3).share(alice, bob, crypto_provider=carol)
    for other in (
        torch.arange(3).share(alice, bob, crypto_provider=dan),
        torch.arange(3).share(alice, dan, crypto_provider=carol),
    ):
        with pytest.raises(LocationMismatch, match="same workers with the same crypto_provider"):
            x + other
    with pytest.raises(LocationMismatch, match=r"lie at alice and alice, bob\."):
        x + torch.arange(3).send(alice)
    with pytest.raises(LocationMismatch, match=r"lie at dan and alice, bob\."):
        x.fix_precision() + torch.ones(3).send(dan)
    with pytest.raises(WrongParties, match=r"a list of workers: .*share\(\*workers\)"):
        torch.arange(3).share([alice, bob], crypto_provider=carol)


def test_a_worker_that_is_gone_is_told_once(hook, alice, carol):
    gone = sy.VirtualWorker(hook, id="gone")
    x = torch.arange(3).share(alice, gone, crypto_provider=carol)
    gone.close()
    with pytest.raises(SessionEnded):
        (x * x).get()
    for _ in range(2):  # lines that could not be opened are freed without a word
        with pytest.raises(WorkerClosed):
            torch.arange(3).share(alice, gone, crypto_provider=carol)
    gc.collect()  # what goes wrong there is an error of pytest
    again = sy.VirtualWorker(hook, id="gone")
    with pytest.raises(LocationMismatch, match="which has ended"):
        x + torch.arange(3).share(alice, again, crypto_provider=carol)
