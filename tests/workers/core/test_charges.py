"""What a caller has is counted, and goes down again; nobody exceeds a limit or feels another's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.exceptions import LimitExceeded, PermissionDenied
from syft.ops.table import BY_NAME
from syft.tensors.fixed.precision import fix_precision
from syft.workers.core.charges import COUNT, LOOK, SMALL, Charges, is_large
from syft.workers.core.peer import Session
from syft.workers.core.peer_limits import MAX_INSIDE, Nesting
from syft.workers.core.peer_limits import Account, PeerLimits
from syft.workers.core.store import ObjectStore
from syft.workers.execution.public_sizes import note_sizes
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import protect
from tests.workers.core.test_stored_tensors import Box


class Scene:
    """A store with two callers, one of which is served."""

    def __init__(self, **limits: int) -> None:
        self.ann, self.eve = Session(), Session()
        self.serving: Session | None = self.ann
        payer = lambda: None if self.serving is None else self.serving.account  # noqa: E731
        self.store = ObjectStore("bob", PeerLimits(**limits), payer)


def refused(limit: str) -> Any:
    return pytest.raises(LimitExceeded, match=f"worker 'bob': peer_limits.{limit} is")


def test_objects_are_counted_by_caller() -> None:
    scene = Scene(objects=3)
    store = scene.store
    for id in (1, 2, 3):
        store.put(id, torch.ones(2))
    with refused("objects"):
        store.put(4, torch.ones(2))
    assert 4 not in store.objects and scene.ann.account.objects == 3
    scene.serving = scene.eve
    store.put(5, torch.ones(2))
    scene.serving = None  # the owner's program has no limits
    store.put_all({id: torch.ones(2) for id in range(10, 30)})
    scene.serving = scene.ann
    store.drop(1, "dropped")
    store.take(2, "taken")
    store.drop_all([3, 5], "dropped")
    assert scene.ann.account.objects == scene.eve.account.objects == 0
    with refused("objects"):
        store.put_all({6: torch.ones(2), 7: torch.ones(2), 8: torch.ones(2), 9: torch.ones(2)})
    assert not {6, 7, 8, 9} & store.objects.keys(), "all of them or none"
    store.put_all({6: torch.ones(2), 7: torch.ones(2)})
    store.clear("cleared")
    assert scene.ann.account.objects == scene.ann.account.bytes == 0 and not store.charges.charged


def test_what_repeats_elements_is_counted_for_callers_alone() -> None:
    scene = Scene(elements=10**9)
    repeated = torch.ones(1).expand(10**9 + 1)
    with refused("elements"):
        scene.store.charges.check_repeated(repeated)
    scene.serving = None
    scene.store.charges.check_repeated(repeated)


def test_shared_memory_is_counted_once() -> None:
    scene = Scene(bytes=1000)
    base = torch.ones(100)
    scene.store.put(1, base)
    scene.store.put(2, base[:50])
    assert scene.ann.account.bytes == 400
    with refused("bytes"):
        scene.store.put_all({3: torch.ones(100), 4: torch.ones(100)})
    scene.store.drop(1, "dropped")
    assert scene.ann.account.bytes == 400, "the view still holds it"
    scene.store.drop(2, "dropped")
    assert scene.ann.account.bytes == 0


def test_few_small_objects_are_not_looked_at_and_the_limit_still_holds() -> None:
    scene = Scene(objects=320)
    store = scene.store
    kept = 0
    with refused("objects"):
        for kept in range(1000):
            store.put(kept, torch.ones(2))
    assert 300 <= kept <= 320 and scene.ann.account.objects == kept - 20
    assert store.charges.flags == COUNT
    store.drop_all(range(kept), "dropped")
    assert scene.ann.account.objects == 0 and store.charges.flags == 0


def test_a_large_object_is_looked_at_at_once() -> None:
    scene = Scene()
    scene.store.put(1, torch.ones(2))
    assert not scene.store.charges.charged and scene.store.charges.flags == 0
    scene.store.put(2, torch.ones(SMALL + 1))
    assert scene.ann.account.bytes == 4 * (SMALL + 1) and scene.store.charges.flags == LOOK
    scene.store.drop(2, "dropped")
    assert scene.store.charges.flags == 0
    assert is_large("no tensor") and not is_large(torch.ones(SMALL))


def test_a_large_tensor_on_a_grid_is_counted_though_nothing_is_private() -> None:
    """What holds its elements is no tensor on which operations run."""
    scene = Scene()
    scene.store.put(1, fix_precision(torch.ones(3 * SMALL)))
    assert scene.ann.account.bytes == 8 * 3 * SMALL


def test_requests_are_looked_at_as_long_as_an_object_is_large() -> None:
    """However it became one: stored with others, or grown in its place."""
    store = Scene().store
    store.put_all({1: torch.ones(2), 2: torch.ones(SMALL + 1), 3: torch.ones(SMALL + 1)})
    assert store.charges.flags == LOOK
    store.drop(3, "dropped")
    assert store.charges.flags == LOOK, "there is another one"
    store.drop(2, "dropped")
    assert store.charges.flags == 0
    store.objects[1].resize_(SMALL + 1)
    store.charges.altered([1, 404])
    assert store.charges.flags == LOOK
    store.drop(1, "dropped")
    assert store.charges.flags == 0 and not store.charges.charged


def test_what_is_no_operand_has_no_operation_looked_at() -> None:
    """A plan, say: its runs have limits of their own, and its tensors ids of their own."""
    scene = Scene()
    scene.store.put_all({1: Box(torch.ones(100_000)), 2: torch.ones(2)})
    assert scene.store.charges.flags == 0 and scene.ann.account.bytes == 400_000
    scene.store.charges.altered([1])
    assert scene.store.charges.flags == 0
    scene.store.put(3, scene.store.objects[1].tensor[:1])
    assert scene.store.charges.flags == LOOK
    scene.store.drop_all([1, 3], "dropped")
    assert scene.store.charges.flags == scene.ann.account.bytes == 0


def test_large_objects_are_refused_one_by_one() -> None:
    scene = Scene(bytes=1 << 21)
    large = torch.ones(1 << 18)
    scene.store.put(1, large)
    with refused("bytes"):
        scene.store.put(2, torch.ones(1 << 18))
    assert scene.ann.account.bytes == 1 << 20 and 2 not in scene.store.objects
    scene.store.put(2, large[SMALL:])
    scene.store.drop(1, "dropped")
    assert scene.ann.account.bytes == 1 << 20, "the view still holds it"
    scene.store.drop_all((2,), "dropped")
    assert scene.ann.account.bytes == scene.ann.account.objects == 0


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_a_small_view_is_charged_for_the_memory_that_it_keeps(several: bool, guarded: bool) -> None:
    scene = Scene()
    scene.store.charges.guarded = guarded
    base = torch.ones(100_000)
    views = {2: base[:1], 3: base[1:3]}
    scene.store.put(1, base)
    if several:
        scene.store.put_all(views)
    else:
        scene.store.put(2, views[2])
    scene.store.drop(1, "dropped")
    del base
    assert scene.ann.account.bytes == 400_000 and scene.store.charges.flags & LOOK
    scene.store.put(4, views[3][1:])
    scene.store.drop_all((2, 3), "dropped")
    assert scene.ann.account.bytes == 400_000
    scene.store.drop(4, "dropped")
    assert scene.ann.account.bytes == scene.ann.account.objects == 0


def test_memory_that_is_counted_keeps_its_address() -> None:
    """Else another object whose memory has the same one would not be charged, or the first one
    would be charged for it; and which address that is follows from what the process does."""
    addresses = set()
    for counted in (False, True):
        scene = Scene(bytes=1 << 19)
        for id in range(1, 400):
            value = torch.ones(100)
            address = value.untyped_storage()._cdata
            assert not (counted and address in addresses)
            addresses.add(address)
            scene.store.put(id, value)
            if counted:
                value.data = torch.empty(0)  # as the program of the owner may, unknown to the store
                assert scene.ann.account.bytes == 400 * id
            else:
                del value
                scene.store.drop(id, "dropped")
        if not counted:
            assert len(addresses) < 400, "addresses are used again"
        addresses.clear()
        scene.store.clear("cleared")
        assert scene.ann.account.bytes == scene.ann.account.objects == 0


def test_memory_that_grows_is_counted_for_all_that_lie_there() -> None:
    scene = Scene(bytes=1 << 19)
    base = torch.ones(100)
    scene.store.put(1, base)
    scene.store.put(2, base[:50])
    base.resize_(300)
    scene.store.charges.altered((1,))
    assert scene.ann.account.bytes == 1200
    scene.store.drop(1, "dropped")
    assert scene.ann.account.bytes == 1200, "the view still holds it"
    scene.store.replace(2, torch.ones(5))
    assert scene.ann.account.bytes == 20 and scene.ann.account.objects == 1


@pytest.mark.parametrize("tagged", [False, True])
@pytest.mark.parametrize("same", [False, True], ids=("view", "same tensor"))
@pytest.mark.parametrize("way", ["resize_", "set_"])
def test_all_that_lie_in_memory_that_one_was_given_are_counted(
    way: str, same: bool, tagged: bool
) -> None:
    scene = Scene()
    store, value, large = scene.store, torch.ones(10), torch.ones(100_000)
    store.put_all({1: value, 2: value if same else value[:5], 3: large})
    if tagged:
        store.charges.tag(2, 0, ("a",), 1)
    value.resize_(100_000) if way == "resize_" else value.set_(large)
    store.charges.altered((1,))
    store.drop_all((1, 3), "dropped")
    lies_there = way == "resize_" or same
    assert scene.ann.account.bytes == (400_000 if lies_there else 0)
    store.drop(2, "dropped")
    assert scene.ann.account.bytes == scene.ann.account.objects == 0
    assert store.charges._owner.objects == 0


def test_what_holds_a_small_tensor_is_counted_where_that_lies() -> None:
    scene = Scene()
    store, state, large = scene.store, torch.ones(3), torch.ones(100_000)
    store.put_all({1: Box(large[:3])})
    store.objects[1].tensor = state  # a run of the plan has replaced it
    store.charges.altered((1,))
    store.put(2, state)
    assert scene.ann.account.bytes == 12 and 2 not in store.charges.charged
    state.data = torch.ones(2)
    store.charges.altered((2,))
    assert scene.ann.account.bytes == 8
    store.drop(1, "dropped")
    assert scene.ann.account.bytes == scene.ann.account.objects == 0


def test_tags_do_not_make_memory_that_grows_the_owner_s() -> None:
    scene = Scene()
    value = torch.ones(2)
    scene.store.put(1, value)
    scene.store.charges.tag(1, 0, ("a",), 1)
    value.resize_(100_000)
    scene.store.charges.altered((1,))
    account = scene.ann.account
    assert (account.objects, account.bytes, account.tags) == (1, 400_000, 1)
    scene.store.drop(1, "dropped")
    assert (account.objects, account.bytes, account.tags) == (0, 0, 0)
    assert scene.store.charges._owner.objects == 0


def test_the_owner_may_do_what_callers_may_not() -> None:
    scene = Scene(elements=100)
    large = BY_NAME["torch.ones"], torch.ones, [1000], {}
    with refused("elements"):
        scene.store.charges.check(*large)
    scene.serving = None
    scene.store.charges.check(*large)


def test_a_caller_that_has_much_may_make_little_and_the_owner_what_it_likes() -> None:
    scene = Scene(elements=1000, bytes=1600)
    charges = scene.store.charges
    assert charges.most_elements == 200, "of 8 bytes"
    scene.store.put(1, torch.ones(100))
    assert charges.most_elements == 150
    scene.serving = scene.eve
    assert charges.most_elements == 200, "each has its own"
    scene.serving = None
    assert charges.most_elements == 1000


def test_memory_that_grew_is_counted_anew() -> None:
    scene = Scene()
    small, large = torch.ones(2), torch.ones(SMALL + 1)
    scene.store.put(1, small)
    scene.store.put(2, large)
    small.resize_(2 * SMALL)
    large.resize_(4 * SMALL)
    scene.store.charges.altered((1, 2, 99))
    assert scene.ann.account.bytes == 4 * 6 * SMALL and scene.ann.account.objects == 2
    scene.store.charges.altered((1,))
    scene.store.drop_all((1, 2), "dropped")
    assert scene.ann.account.bytes == scene.ann.account.objects == 0


def test_tags_are_counted_by_who_put_them_there() -> None:
    scene = Scene(tags=3, tags_per_object=4, text=5)
    charges = scene.store.charges
    scene.store.put(1, torch.ones(2))
    charges.tag(1, 0, ("a", "b"), 2)
    with refused("tags"):
        charges.tag(1, 2, ("c", "d"), 2)
    with refused("text"):
        charges.tag(1, 2, ("long text",), 0)
    scene.serving = scene.eve
    with refused("tags_per_object"):
        charges.tag(1, 2, ("c", "d", "e"), 3)
    charges.tag(1, 2, ("c",), 1)
    charges.tag(1, 3, ("short",), 0)  # a description
    scene.serving = None
    charges.tag(1, 3, ("of the owner",), 1)
    assert (scene.ann.account.tags, scene.eve.account.tags) == (2, 1)
    scene.store.drop(1, "dropped")
    assert (scene.ann.account.tags, scene.eve.account.tags) == (0, 0)


def test_promises_are_counted_until_they_are_kept() -> None:
    scene = Scene(promises=2)
    store = scene.store
    store.promise(1, by=scene.ann)
    store.promise(1, by=scene.ann)  # the same one again
    store.promise(2, by=scene.ann)
    with refused("promises"):
        store.promise(3, by=scene.ann)
    assert 3 not in store.promised
    store.promise(1, by=scene.eve)  # who promises it now
    assert (scene.ann.account.promises, scene.eve.account.promises) == (1, 1)
    store.put(1, torch.ones(2))
    store.give_up(2, 2, "given up")
    assert (scene.ann.account.promises, scene.eve.account.promises) == (0, 0)


def test_either_all_or_nothing_is_charged() -> None:
    ann = Account()
    charges = Charges("bob", {}, PeerLimits(parked=5, promises=1))
    with refused("promises"):
        charges.enter(ann, parked=1, promises=2)
    assert ann.parked == 0


def test_requests_inside_others_are_bounded_in_number_too() -> None:
    nesting = Nesting("bob")
    nesting.enter()
    with pytest.raises(LimitExceeded, match="MAX_INSIDE"):
        for _ in range(MAX_INSIDE + 2):
            nesting.enter()
            nesting.leave()
    nesting.leave()
    nesting.leave()
    nesting.enter()  # counted anew
    nesting.enter()


@pytest.mark.parametrize("reader", [("eve", "eve"), (None, None), (None, "laptop")])
def test_what_has_a_private_size_without_a_bound_is_not_charged(
    reader: tuple[str | None, str | None],
) -> None:
    """By what a caller may still store they would see how large it is."""
    account, user = Account(), [reader]
    charges = Charges("bob", {}, payer=lambda: account, reader=lambda: user[0])
    charges.guarded = True
    hidden, bounded = torch.ones(5), torch.ones(5)
    guard = Guard(frozenset({"ann"}), shape_hidden=True, owners=frozenset({"desk"}))
    for value in (hidden, bounded):
        protect(value, guard)
    note_sizes(bounded, (9,))
    with pytest.raises(PermissionDenied, match="whose private size has no public bound"):
        charges.charge({1: bounded, 2: hidden})
    assert not charges.charged and account.objects == account.bytes == 0
    charges.charge({1: bounded})
    for id, admitted in enumerate((("ann", None), (None, "desk")), 2):
        user[0] = admitted
        charges.charge({id: hidden})


def test_whoever_has_more_bytes_than_allowed_is_told_how_many() -> None:
    ann = Account()
    charges = Charges("bob", {}, PeerLimits(bytes=100), lambda: ann)
    charges.check_bytes()
    ann.bytes = 150
    with pytest.raises(LimitExceeded, match="bytes is 100, .*150"):
        charges.check_bytes()


def test_what_repeats_elements_of_a_private_size_is_refused_without_a_bound() -> None:
    hidden = torch.ones(1).expand(10**9)
    protect(hidden, Guard(frozenset(), shape_hidden=True))
    charges = Charges("bob", {}, PeerLimits(), Account)
    charges.guarded = True
    Charges("bob", {}, PeerLimits(), lambda: None).check_repeated(hidden)  # the owner's own request
    with pytest.raises(PermissionDenied, match="private"):
        charges.check_repeated(hidden)
