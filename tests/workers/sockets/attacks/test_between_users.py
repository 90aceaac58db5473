"""What ann sends to a worker with tokens is ann's: ben neither finds it nor uses it by its id.

Each attack is made three times: on what ann has shared with ben, where it has to succeed, on what
she has not, where it must not, and on an id of nothing, where it has to end in the same way.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch

import syft as sy
from syft.codes import TypeCode
from syft.hooks.module_methods import send_module
from syft.hooks.sending import send
from syft.ids import new_id
from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.tensors.pointer import make_pointer
from syft.trust.tokens import TokenBook
from syft.workers.sockets.client import WebsocketClientWorker as Client
from syft.workers.wire.definitions import Group, InputKind
from syft.workers.wire.messages import (
    COUNT_SHIFT,
    Describe,
    Duplicate,
    Fetch,
    Gradients,
    Promise,
    Put,
    Run,
    Search,
)

VALUES = torch.tensor([3.0, 5.0, 7.0])


class Scene:
    """Workers bob and alice with tokens, as ann and ben see them."""

    def __init__(self, hook: sy.TorchHook, here: Any, there: Any, book: TokenBook) -> None:
        self.hook, self.here = hook, here
        tokens = {user: book.make(user, time.time(), plans=True) for user in ("ann", "ben")}
        self.of: dict[str, tuple[Client, Client]] = {}
        self.me = hook.local_worker
        for user, token in tokens.items():
            program = sy.VirtualWorker(None, id=f"program of {user}")
            as_seen = [
                sy.WebsocketClientWorker(
                    self._program(program), address=one.address, token=token, blocking=True
                )
                for one in (here, there)
            ]
            self.of[user] = (as_seen[0], as_seen[1])

    def _program(self, worker: Any) -> Any:
        class Program:
            local_worker = worker
            network = worker.network

        return Program()

    def connection(self, user: str, place: int = 0) -> Any:
        worker = self.of[user][place]
        return worker.network.local.connection_to(worker)

    def pointer(self, user: str, id: int, place: int = 0) -> torch.Tensor:
        """What a program of that user has in hand that was told an id."""
        return make_pointer(self.connection(user, place), id, False)

    def send(self, value: torch.Tensor, **settings: Any) -> int:
        """Ann sends a tensor to bob; its id there."""
        pointer = self.hook_send(value, **settings)
        return int(pointer.id_at_location)

    def hook_send(self, value: torch.Tensor, who: str = "ann", **settings: Any) -> Any:
        worker = self.of[who][0]
        return send(
            value, worker, owner=worker.network.local, garbage_collect_data=False, **settings
        )


@pytest.fixture
def scene(hook: sy.TorchHook) -> Iterator[Scene]:
    book = TokenBook()
    with (
        sy.WebsocketServerWorker(hook, port=0, id="bob", tokens=book, allow_plans=True) as here,
        sy.WebsocketServerWorker(hook, port=0, id="alice", tokens=book) as there,
    ):
        scene = Scene(hook, here, there, book)
        yield scene
        for pair in scene.of.values():
            for worker in pair:
                with contextlib.suppress(Exception):
                    worker.close()


def search_everything(scene: Scene, id: int) -> object:
    return [one for one in scene.connection("ben").ask(Search, ()) if one[0] == id] or None


def search_by_tag(scene: Scene, id: int) -> object:
    return scene.connection("ben").ask(Search, ("#anns",)) or None


def search_by_id(scene: Scene, id: int) -> object:
    return scene.connection("ben").ask(Search, (str(id),)) or None


def get(scene: Scene, id: int) -> object:
    return scene.connection("ben").ask(Fetch, id, keep=True)


def use(scene: Scene, id: int) -> object:
    return (scene.pointer("ben", id) + 1).get()


def use_in_a_list(scene: Scene, id: int) -> object:
    own = scene.hook_send(torch.zeros(3), "ben")
    return torch.stack([own, scene.pointer("ben", id)]).get()


def copy(scene: Scene, id: int) -> object:
    out = new_id()
    scene.connection("ben").ask(Duplicate, id, out)
    return scene.connection("ben").ask(Fetch, out)


def describe(scene: Scene, id: int) -> object:
    return scene.connection("ben").ask(Describe, id)


def ask_for_its_shape(scene: Scene, id: int) -> object:
    return scene.pointer("ben", id).shape


def ask_for_its_gradient(scene: Scene, id: int) -> object:
    return scene.connection("ben").ask(Gradients, (id,), new_id())


def write_into_ones_own(scene: Scene, id: int) -> object:
    own = scene.hook_send(torch.zeros(3), "ben")
    own.copy_(scene.pointer("ben", id))
    return own.get()


def a_group(scene: Scene, id: int) -> object:
    with scene.of["ben"][0].group():
        result = scene.pointer("ben", id) * 2 + 1
    return result.get()


def a_plan(scene: Scene, id: int) -> object:
    plan = sy.func2plan(args_shape=[(3,)])(lambda x: x * 2)
    return plan(scene.pointer("ben", id)).get()


def a_collective(scene: Scene, id: int) -> object:
    alice = scene.of["ben"][1]
    other = send(torch.zeros(3), alice, owner=alice.network.local)
    totals = sy.sum_private(scene.pointer("ben", id), other)
    return totals[0].get()


def a_copy_that_goes_on(scene: Scene, id: int) -> object:
    moved = (scene.pointer("ben", id) * 1).move(scene.of["ben"][1])
    return moved.get()


def a_pointer_at_another_worker(scene: Scene, id: int) -> object:
    """Alice, who acts for ben, fetches it from bob."""
    alice = scene.of["ben"][1]
    there = send(scene.pointer("ben", id), alice, owner=alice.network.local)
    return (there + 0).get().get()


def a_pointer_of_bob_to_itself(scene: Scene, id: int) -> object:
    """Bob gets a pointer to its own object, and follows it for ben."""
    out = new_id()
    scene.connection("ben").ask(Put, out, (int(TypeCode.POINTER), id, "bob", False, 0))
    return (scene.pointer("ben", out) * 1).get().get()


def a_pointer_among_the_inputs_of_a_run(scene: Scene, id: int) -> object:
    """A group gets a value along with it that is bob's pointer to itself."""
    add = Action(BY_NAME["torch.Tensor.add"], (Slot(0), 1), {}, Slot(1))
    program = Program(1, (add,), (Slot(1),))
    group = pack(Group((InputKind.VALUE,), program), Packer())
    pointer, out = (int(TypeCode.POINTER), id, "bob", False, 0), new_id()
    scene.connection("ben").ask(Run, 777, [pointer], out, 1 << COUNT_SHIFT, define=group)
    return scene.pointer("ben", out).get().get()


ATTACKS: list[Callable[[Scene, int], object]] = [
    search_everything,
    search_by_tag,
    search_by_id,
    get,
    use,
    use_in_a_list,
    copy,
    describe,
    ask_for_its_shape,
    ask_for_its_gradient,
    write_into_ones_own,
    a_group,
    a_plan,
    a_collective,
    a_copy_that_goes_on,
    a_pointer_at_another_worker,
    a_pointer_of_bob_to_itself,
    a_pointer_among_the_inputs_of_a_run,
]


def outcome(scene: Scene, attack: Callable[[Scene, int], object], id: int) -> str:
    """What came of an attack; the words of an error, without ids and places."""
    try:
        found = attack(scene, id)
    except Exception as error:
        for place in (0, 1):  # an error that is told twice
            with contextlib.suppress(sy.exceptions.SyftError):
                scene.connection("ben", place).ask(Search, ("#none",))
        text = f"{type(error).__name__}: {error}".splitlines()[0].replace(str(id), "ID")
        return re.sub(r"\d{6,}", "N", text)
    return "nothing" if found is None else "success"


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_what_ann_sends_is_anns(scene: Scene, attack: Callable[[Scene, int], object]) -> None:
    never = outcome(scene, attack, new_id())
    shared = scene.send(VALUES.clone().tag("#anns"), allow=("ben",))
    assert outcome(scene, attack, shared) == "success", "the control"
    with scene.here.owning():
        del scene.here.core.store.origins[shared]
        scene.here.core.store.drop_all([shared], "the control is over")
    closed = scene.send(VALUES.clone().tag("#anns"))
    assert outcome(scene, attack, closed) == never
    assert never != "success"
    with scene.here.owning():
        assert torch.equal(scene.here.core.store.objects[closed], VALUES)


def pointer_of_bob_to_itself(
    scene: Scene, id: int, collects: bool = False, user: str = "ben"
) -> torch.Tensor:
    """What a user has in hand of a pointer that he has bob keep to an object of bob's."""
    out = new_id()
    link = (int(TypeCode.POINTER), id, "bob", collects, 0)
    scene.connection(user).ask(Put, out, link)
    return make_pointer(scene.connection(user), out, collects)


def follow(pointer: torch.Tensor, scene: Scene, id: int) -> torch.Tensor:
    return (pointer * 1).get().get()


def write(scene: Scene, id: int) -> None:
    pointer_of_bob_to_itself(scene, id).add_(1)


def take(scene: Scene, id: int) -> None:
    pointer_of_bob_to_itself(scene, id).get().get()


def take_through_two(scene: Scene, id: int) -> None:
    first = pointer_of_bob_to_itself(scene, id)
    pointer_of_bob_to_itself(scene, int(first.id_at_location)).get().get().get()


def drop(scene: Scene, id: int) -> None:
    """The pointer at bob collects what it leads to."""
    pointer_of_bob_to_itself(scene, id, collects=True).get()


def drop_with_its_pointer(scene: Scene, id: int) -> None:
    pointer_of_bob_to_itself(scene, id, collects=True)


CHANGES: list[Callable[[Scene, int], None]] = [
    write,
    take,
    take_through_two,
    drop,
    drop_with_its_pointer,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("whose", ["the owner's", "ann's", "ben's"])
def test_bob_has_no_rights_of_his_own_while_he_asks_himself(
    scene: Scene, change: Callable[[Scene, int], None], whose: str
) -> None:
    """For ben a pointer of bob to bob leads to nothing that ben might not do himself."""
    if whose == "the owner's":
        (id,) = scene.here.hold(VALUES.clone().tag("#owners"))
    elif whose == "ann's":
        id = scene.send(VALUES.clone(), allow=("ben",))
    else:
        id = int(scene.hook_send(VALUES.clone(), "ben").id_at_location)
    with contextlib.suppress(sy.exceptions.SyftError):
        change(scene, id)
    for user in ("ann", "ben"):  # what bob drops goes with the next request to himself
        own = scene.hook_send(torch.zeros(3), user)
        with contextlib.suppress(sy.exceptions.SyftError):
            pointer = pointer_of_bob_to_itself(scene, int(own.id_at_location), user=user)
            (pointer + 1).get().get()
    with scene.here.owning():
        found = scene.here.core.store.objects.get(id)
    is_whole = found is not None and torch.equal(found, VALUES)
    assert is_whole == (whose != "ben's"), "the control: what is his own, he changes"


def test_a_pointer_of_bob_to_itself_finds_nothing_that_comes_later(scene: Scene) -> None:
    """Ann moves a tensor to bob, under the id that it has had at alice."""
    for allow in (("ben",), ()):
        alice = scene.of["ann"][1]
        x = send(VALUES.clone(), alice, owner=alice.network.local, garbage_collect_data=False)
        id = int(x.id_at_location)
        early = pointer_of_bob_to_itself(scene, id)
        moved = x.move(scene.of["ann"][0])
        assert moved.id_at_location == id
        if allow:
            moved.tag("#now", allow=allow)
        with contextlib.suppress(sy.exceptions.SyftError):
            early.add_(1)
        assert (scene.pointer("ann", id) * 1).get().tolist() == VALUES.tolist()
        found = outcome(scene, partial(follow, early), id)
        assert (found == "success") == bool(allow), "the control"


def test_what_ann_computes_through_bobs_pointer_to_itself_is_anns(scene: Scene) -> None:
    id = scene.send(VALUES.clone())
    result = pointer_of_bob_to_itself(scene, id, user="ann") * 2
    assert outcome(scene, use, int(result.id_at_location)) != "success"
    with scene.here.owning():
        owners = {one.owner for one in scene.here.core.store.origins.values()}
    assert owners == {"ann"}
    assert result.get().get().tolist() == [6, 10, 14]


def test_what_is_made_through_bobs_pointer_to_itself_counts_as_anns(hook: sy.TorchHook) -> None:
    """The objects lie at bob, and the pointers to them that bob keeps for her: two for each."""
    book, limits = TokenBook(), sy.PeerLimits(objects=20)
    with (
        sy.WebsocketServerWorker(hook, port=0, id="bob", tokens=book, peer_limits=limits) as here,
        sy.WebsocketServerWorker(hook, port=0, id="alice", tokens=book) as there,
    ):
        scene = Scene(hook, here, there, book)
        pointer = pointer_of_bob_to_itself(scene, scene.send(VALUES.clone()), user="ann")
        kept = [pointer * 2 for _ in range(6)]
        with pytest.raises(sy.exceptions.LimitExceeded, match="objects is 20"):
            for _ in range(6):
                kept.append(pointer * 2)
                scene.connection("ann").ask(Search, ("#none",))
        for worker in (*scene.of["ann"], *scene.of["ben"]):
            worker.close()


@pytest.mark.parametrize("way", ["sent", "moved"])
@pytest.mark.parametrize("shared", [True, False])
def test_a_promise_does_not_take_what_others_bring(scene: Scene, way: str, shared: bool) -> None:
    """Ben promises that something will come from ann, under an id that he was told."""
    id, allow = new_id(), ("ben",) if shared else ()
    scene.connection("ben").ask(Promise, (id,), "ann")
    later = scene.pointer("ben", id) * 2
    if way == "sent":
        scene.send(VALUES.clone(), id=id, allow_writes=allow)
    else:
        alice = scene.of["ann"][1]
        owner = alice.network.local
        x = send(VALUES.clone(), alice, owner=owner, id=id, allow_writes=allow)
        moved = x.move(scene.of["ann"][0])
        assert moved.id_at_location == id
    assert (scene.pointer("ann", id) + 1).get().tolist() == [4, 6, 8]
    if shared:
        assert later.get().tolist() == [6, 10, 14], "the control"
        return
    with scene.here.owning():
        ids = [id for id, one in scene.here.core.store.objects.items() if torch.is_tensor(one)]
    assert len(ids) == 1
    assert outcome(scene, use, ids[0]) != "success"
    assert outcome(scene, use, id) != "success", "what he promised is yet to come"


def test_ann_herself_goes_on_to_find_and_use_it(scene: Scene) -> None:
    id = scene.send(VALUES.clone().tag("#anns"))
    found = scene.connection("ann").ask(Search, ("#anns",))
    assert [one[0] for one in found] == [id]
    assert (scene.pointer("ann", id) + 1).get().tolist() == [4, 6, 8]
    moved = scene.pointer("ann", id).move(scene.of["ann"][1])
    there = scene.connection("ann", 1).ask(Search, ("#anns",))
    assert [one[0] for one in there] == [moved.id_at_location]
    assert not scene.connection("ben", 1).ask(Search, ()), "it is ann's there too"
    assert moved.get().tolist() == VALUES.tolist()


def test_what_the_owner_holds_is_there_for_all(scene: Scene) -> None:
    scene.here.hold(VALUES.clone().tag("#owners"))
    for user in ("ann", "ben"):
        ((id, *_),) = scene.connection(user).ask(Search, ("#owners",))
        result = scene.pointer(user, id) + 1
        assert result.get().tolist() == [4, 6, 8]
    ((id, *_),) = scene.connection("ann").ask(Search, ("#owners",))
    kept = scene.pointer("ann", id) * 2
    assert outcome(scene, use, int(kept.id_at_location)) != "success", "what is made of it is ann's"


def test_it_may_be_shared_later_as_private_and_with_those_who_may_write(scene: Scene) -> None:
    id = scene.send(VALUES.clone())
    copied = scene.pointer("ann", id).allow("ben")
    assert outcome(scene, use, int(copied.id_at_location)) == "success"
    assert outcome(scene, use, id) != "success"
    private = scene.send(VALUES.clone().private_tensor(["ann", "ben"]), user="ann")
    assert outcome(scene, use, private) == "success"
    other = scene.send(VALUES.clone().private_tensor(["ann"]), user="ann")
    assert outcome(scene, describe, other) != "success"
    written = scene.send(VALUES.clone(), allow_writes=("ben",))
    assert scene.pointer("ben", written).add_(1).get().tolist() == [4, 6, 8]


def test_a_result_is_shared_with_its_tag(scene: Scene) -> None:
    result = scene.pointer("ann", scene.send(VALUES.clone())) * 2
    id = int(result.id_at_location)
    assert outcome(scene, use, id) != "success"
    result.tag("#double", allow=("ben",))
    assert outcome(scene, use, id) == "success"
    with pytest.raises(sy.exceptions.NotSendable, match="name them with send"):
        torch.ones(2).tag("#here", allow=("ben",))


def test_an_id_of_anothers_object_may_be_ones_own(scene: Scene) -> None:
    """That it is taken is not told either: the two objects stand beside each other."""
    id = scene.send(VALUES.clone())
    scene.hook_send(torch.zeros(3), "ben", id=id)
    assert (scene.pointer("ben", id) + 1).get().tolist() == [1, 1, 1]
    assert (scene.pointer("ann", id) + 1).get().tolist() == [4, 6, 8]
    ((found, *_),) = scene.connection("ben").ask(Search, ())
    assert found == id


def adding(number: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: x.long() + number


def test_a_number_that_is_the_id_of_anothers_object_is_a_number(scene: Scene) -> None:
    """To change it, in what ben computes with or says, would give him a wrong number."""
    for id in (new_id(), scene.send(VALUES.clone())):
        own = scene.hook_send(torch.zeros(1, dtype=torch.int64).tag(f"#{id}"), "ben")
        assert (own + id).get().item() == id
        with scene.of["ben"][0].group():
            result = own + id
        assert result.get().item() == id
        plan = sy.func2plan(args_shape=[(1,)])(adding(id))
        assert [plan(own).get().item() for _ in range(2)] == [id, id]
        assert scene.hook_send(torch.tensor([id]), "ben").get().item() == id
        found = scene.connection("ben").ask(Search, (f"#{id}",))
        assert [one[0] for one in found] == [own.id_at_location]


def test_a_module_and_a_plan_are_shared_by_name(scene: Scene) -> None:
    ann, _ = scene.of["ann"]
    for allow in ((), ("ben",)):
        module = torch.nn.Linear(3, 1)
        send_module(module, ann, owner=ann.network.local, allow=allow)
        used = outcome(scene, use, int(module.weight.id_at_location))
        assert (used == "success") == bool(allow)


def test_without_tokens_all_is_as_it_was(hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="bob") as server:
        one = sy.connect(str(server.address), id="bob for one")
        x = VALUES.clone().tag("#anns").send(one)
        other = sy.connect(str(server.address), id="bob for another")
        assert [found.get().tolist() for found in other.search("#anns")] == [VALUES.tolist()]
        del x
        one.close()
        other.close()
