"""``worker.as_user("ann")``: what an admitted user does, and nobody has to say again who she is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import (
    LocationMismatch,
    NotShareable,
    PermissionDenied,
    TokenMissing,
    UnusableSetting,
)
from syft.trust.tokens import TokenBook
from tests.shells.child import make_worker

VALUES = [1.5, -2.0, 4.0]


@dataclass
class Scene:
    """Workers as one user has them, and private data of ann's at bob as that user finds it."""

    hook: sy.TorchHook
    bob: Any
    alice: Any
    carol: Any
    dealer: Any
    found: torch.Tensor


@pytest.fixture(params=["immediate", "queued"])
def workers(request: pytest.FixtureRequest, hook: sy.TorchHook) -> list[Any]:
    queued = request.param == "queued"
    names = ("bob", "alice", "carol", "dealer")
    workers = [make_worker(hook, id=name, pipelined=queued) for name in names]
    ann = workers[0].as_user("ann")
    kept = torch.tensor(VALUES).private_tensor(["ann"]).tag("#private").send(ann, allow_writes=())
    request.addfinalizer(lambda: kept.location)  # it lives as long as the test
    return workers


def scene_of(user: str, hook: sy.TorchHook, workers: list[Any]) -> Scene:
    """The workers as a user has them."""
    views = [worker.as_user(user) for worker in workers]
    return Scene(hook, *views, found=views[0].search("#private")[0])


def training(scene: Scene) -> list[float]:
    """The gradient of a model that was trained on the data."""
    model = nn.Linear(3, 1, bias=False)
    model.send(scene.bob)
    model(scene.found).backward()
    gradient: list[float] = model.weight.grad.flatten().tolist()  # type: ignore[union-attr]
    model.get()
    return gradient


def planned(scene: Scene) -> Any:
    """What a plan returns that was sent to the worker."""

    @sy.func2plan(args_shape=[(3,)])
    def same(x: torch.Tensor) -> torch.Tensor:
        return x * 1

    return same.send(scene.bob)(scene.found).get().tolist()


def grouped(scene: Scene) -> Any:
    """What a group of messages computes."""
    with scene.bob.group():
        y = scene.found + 1
        z = y - 1
    return z.get().tolist()


def shared(scene: Scene) -> Any:
    """The values, once they have been shared by three workers."""
    parties = scene.alice, scene.carol
    x = (scene.found * 1).fix_precision().share(*parties, crypto_provider=scene.dealer)
    return x.decrypt().tolist()


def shared_from_here(scene: Scene) -> Any:
    """The same of a private tensor of the program."""
    x = torch.tensor(scene.found.tolist()).private_tensor(["ann"]).fix_precision()
    parties = scene.alice, scene.carol
    return x.share(*parties, crypto_provider=scene.dealer).decrypt().tolist()


def shared_from_both(scene: Scene) -> Any:
    """What was shared by a worker, less numbers of the program that are shared likewise."""
    parties: list[Any] = [scene.alice, scene.carol]
    x = (scene.found * 1).fix_precision().share(*parties, crypto_provider=scene.dealer)
    y = torch.zeros(3).fix_precision().share(*parties, crypto_provider=scene.dealer)
    return (x - y).get().float_precision().tolist()


def shared_model(scene: Scene) -> Any:
    """What a model that was shared where it is makes of the data, shared too."""
    model = nn.Linear(3, 3, bias=False)
    model.weight.data = torch.eye(3)
    parties: list[Any] = [scene.alice, scene.carol]
    model.send(scene.bob).fix_precision().share(*parties, crypto_provider=scene.dealer)
    x = (scene.found * 1).fix_precision().share(*parties, crypto_provider=scene.dealer)
    return model(x).get().float_precision().tolist()


def sealed(scene: Scene) -> Any:
    """The values out of an error that quotes one, or the values if there was none.

    Those who may not read the data get zeros instead of the error, and cannot read those."""
    try:
        torch.ones(3).send(scene.bob)[scene.found.long().abs() + 3].tolist()
    except IndexError as error:
        return VALUES if any("Traceback" in note for note in error.__notes__) else []
    return []


DONE: dict[str, Callable[[Scene], Any]] = {
    "get": lambda s: s.found.copy().get().tolist(),
    "compute and read": lambda s: [(s.found[i] + 1).item() - 1 for i in range(3)],
    "read as a list": lambda s: s.found.tolist(),
    "read as numbers": lambda s: [float(s.found[i]) for i in range(3)],
    "branch on it": lambda s: VALUES if bool((s.found[0] > 1).all()) else [],
    "a size that depends on values": lambda s: s.found[s.found != 0].tolist(),
    "the shape of a selection": lambda s: VALUES[: s.found[s.found != 0].shape[0]],
    "get several": lambda s: torch.stack(sy.get_all([s.found + 0.0, s.found * 1]))[0].tolist(),
    "move": lambda s: s.found.copy().move(s.alice).get().tolist(),
    "move by name": lambda s: s.found.copy().move("alice").get().tolist(),
    "move, and compute": lambda s: (s.found.copy().move(s.alice) * 1).get().tolist(),
    "move home": lambda s: s.found.copy().move(s.hook.local_worker).tolist(),
    "send on": lambda s: s.found.copy().send(s.alice).get().get().tolist(),
    "send on, and fetch": lambda s: s.found.copy().send(s.alice).remote_get().get().tolist(),
    "train": training,
    "plan": planned,
    "group": grouped,
    "share": shared,
    "share a model": shared_model,
    "share from both ends": shared_from_both,
    "share from here": shared_from_here,
    "sealed error": sealed,
}


@pytest.mark.every_shell
@pytest.mark.parametrize("name", DONE)
def test_an_admitted_user_does_everything_without_being_named_again(
    name: str, hook: sy.TorchHook, workers: list[Any]
) -> None:
    got = DONE[name](scene_of("ann", hook, workers))
    assert got == pytest.approx(VALUES, abs=1e-3)


@pytest.mark.every_shell
@pytest.mark.parametrize("name", DONE)
@pytest.mark.parametrize("user", ["bea", None])
def test_nobody_else_reads_it_in_any_of_these_ways(
    user: str | None, name: str, hook: sy.TorchHook, workers: list[Any]
) -> None:
    if user is None:
        scene = Scene(hook, *workers, found=workers[0].search("#private")[0])
    else:
        scene = scene_of(user, hook, workers)
    denied = ""
    try:
        DONE[name](scene)
    except PermissionDenied as error:
        denied = str(error)
    assert "is private" in denied or "may not go" in denied


def test_a_claim_does_not_beat_a_token(hook: sy.TorchHook) -> None:
    book = TokenBook(None)
    ann, ben = (book.make(user, time.time()) for user in ("ann", "ben"))
    with sy.WebsocketServerWorker(hook, port=0, id="bob", tokens=book) as server:
        server.hold(torch.tensor(VALUES).private_tensor(["ann"]).tag("#private"))
        address = str(server.address)
        with_bens = sy.connect(address, ben, blocking=True)
        with pytest.raises(TokenMissing, match="user 'ann'"):
            with_bens.as_user("ann")
        (found,) = with_bens.as_user("ben").search("#private")
        with pytest.raises(PermissionDenied, match="user 'ben' may not read it"):
            found.tolist()
        del found
        with_bens.close()
        for_ann = sy.connect(address, ben, tokens={"ann": ben}, blocking=True)
        (found,) = for_ann.as_user("ann").search("#private")  # the token under her name is ben's
        with pytest.raises(PermissionDenied, match="user 'ben' may not read it"):
            found.tolist()
        del found
        for_ann.close()
        both = sy.connect(address, ben, tokens={"ann": ann}, blocking=True)
        (found,) = both.as_user("ann").search("#private")
        assert found.tolist() == VALUES
        (bens,) = both.search("#private")
        with pytest.raises(PermissionDenied, match="user 'ben' may not read it"):
            bens.tolist()
        del found, bens
        both.close()


def test_one_user_does_not_use_what_another_one_has_made(hook: sy.TorchHook) -> None:
    bob = sy.VirtualWorker(hook, id="bob")
    ann, bea = bob.as_user("ann"), bob.as_user("bea")
    other = sy.VirtualWorker(hook, id="alice").as_user("bea")
    hers = torch.ones(2).private_tensor(["ann"]).send(ann)
    beas = torch.ones(2).private_tensor(["bea"]).send(bea)
    with pytest.raises(LocationMismatch, match="as:ann> and <VirtualWorker id:bob as:bea>"):
        hers + beas
    with pytest.raises(LocationMismatch, match="as:ann> and <VirtualWorker id:bob #objects"):
        hers + torch.ones(2).send(bob)
    for user, own in (("ann", hers), ("bea", beas)):
        with pytest.raises(PermissionDenied, match="may not go"):
            own.copy().send(bob.as_user("eve")).remote_get()
        assert own.tolist() == [1, 1], user
    with pytest.raises(PermissionDenied, match="user 'bea' may not read it"):
        hers.get(user="bea")
    with pytest.raises(PermissionDenied, match="send: "):
        torch.ones(2).private_tensor(["ann"]).send(bea)
    with pytest.raises(PermissionDenied, match="send: "):
        torch.ones(2).long().private_tensor(["ann"]).share(ann, other, crypto_provider="me")


def test_a_user_of_a_worker_is_one_view_that_leaves_with_it(hook: sy.TorchHook) -> None:
    bob, me = sy.VirtualWorker(hook, id="bob"), hook.local_worker
    ann = bob.as_user("ann")
    assert ann.as_user("ann") is ann and ann.as_user("bea") is bob.as_user("bea")
    assert ann.place_shown() == "in this process · as ann" and ann.cells_shown()[0] == "bob"
    x = torch.ones(2).long().private_tensor(["ann"]).send(ann)
    owner: Any = x.owner
    assert ann.caller_for(owner) is owner and owner.get_worker("me") is owner
    assert x.move(ann) is not None and x.location is ann
    assert {one.location for one in owner.connections()} == {ann}
    assert owner.connection_to(me).location is me, "the program is the owner of its own worker"
    with pytest.raises(NotShareable, match="as_user"):
        x.share(bob, "me", crypto_provider="bob", user="ann")
    del x, owner
    assert ann.closed is False
    ann.close()
    assert bob.closed and ann.closed


@pytest.mark.parametrize("name", ["", None, 3])
def test_what_is_no_name_is_refused(hook: sy.TorchHook, name: object) -> None:
    bob = sy.VirtualWorker(hook, id="bob")
    with pytest.raises(UnusableSetting, match="user must be the name of a user"):
        bob.as_user(name)  # type: ignore[arg-type]


def test_a_plan_sent_as_nobody_names_both_places_when_it_is_called_with_data_of_a_user(
    hook: sy.TorchHook, workers: list[Any]
) -> None:
    @sy.func2plan(args_shape=[(3,)])
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    bob = workers[0]
    ann = bob.as_user("ann")
    (found,) = ann.search("#private")
    sent = double.send(bob)
    with pytest.raises(LocationMismatch, match="through the worker that its arguments") as raised:
        sent(found)
    assert raised.value.places == (str(bob), str(ann))
    del sent, raised
    assert double.send(ann)(found).get().tolist() == [2 * value for value in VALUES]
