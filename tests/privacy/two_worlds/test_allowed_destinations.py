"""Attack 4, where the owner has named a worker: what may go to alice goes there, and no further.

Ann's data at bob may go to alice, on behalf of anybody.  The observer moves it there and computes
with it at alice.  She sees that it went, and nothing else: alice keeps
the guard that came along, so that what is there can neither be read nor go to a worker of hers.
What failed at bob arrives sealed, and looks like any other value.

Each attack says what of ann's data it leaves where.  A second test reads that as ann and compares
it with plain torch: a worker that lets nothing leave would pass the first one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from syft.program.program import Program, Slot
from syft.workers.wire import messages
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.arrivals import (
    Left,
    at_alice,
    check_arrives,
    computed,
    doubled,
    failed_take,
    own,
    secret_at_alice,
    twice,
)
from tests.privacy.two_worlds.attacks import (
    ONE,
    OTHER,
    action,
    check,
    check_reaches,
    named,
    ones,
    secret,
    succeeded,
)
from tests.privacy.two_worlds.observer import Observer
from tests.privacy.two_worlds.world import OWNER

Attack = Callable[[Observer], list[Left]]


# ------------------------------------------------------------------------------------------ moves


def move(eve: Observer) -> list[Left]:
    return [Left(at_alice(eve), "alice", twice)]


def move_and_back(eve: Observer) -> list[Left]:
    private = at_alice(eve)
    succeeded(eve.move(private, "bob", "alice"))
    return [Left(private, "bob", twice)]


def move_on(eve: Observer) -> list[Left]:
    """From alice to a worker of the observer's."""
    private = at_alice(eve)
    eve.move(private, "eve", "alice")
    eve.request(messages.Relay(eve.count(), private.id, "eve"), worker="alice")
    return [Left(private, "alice", twice)]


def fetched_by_her_worker(eve: Observer) -> list[Left]:
    """For herself, and as a worker that wants it for its store."""
    private = at_alice(eve)
    for guarded in (False, True):
        fetch = messages.Fetch(eve.count(), private.id, 0, True, guarded=guarded)
        eve.request(fetch, worker="alice")
    eve.request(messages.FetchAll(eve.count(), (private.id,), True), worker="alice")
    return [Left(private, "alice", twice)]


def move_elsewhere(eve: Observer) -> list[Left]:
    """Alice is named, and not the observer's worker."""
    private = doubled(eve)
    eve.move(private, "eve")
    return [Left(private, "bob", twice, ("alice",))]


def move_what_failed(eve: Observer) -> list[Left]:
    private = failed_take(eve)
    succeeded(eve.move(private, "alice"))
    after = succeeded(eve.call("torch.mul", private, 2, worker="alice"))
    return [
        Left(private, "alice", lambda x: x[1:2], failed=IndexError),
        Left(after, "alice", lambda x: x[1:2] * 2, failed=IndexError),
    ]


def move_a_view(eve: Observer) -> list[Left]:
    base = ones(eve, 1, 3)
    view = eve.call("torch.Tensor.view", base, 3)
    eve.call("torch.Tensor.copy_", base, named(eve, 1, 3), grad=False)
    succeeded(eve.move(view, "alice"))
    return [Left(view, "alice", lambda x: x), Left(base, "bob", lambda x: x[None], ("alice",))]


def move_a_leaf_with_its_gradient(eve: Observer) -> list[Left]:
    """The leaf is public; the gradient, which goes along, is not."""
    leaf = ones(eve, grad=True)
    loss = eve.call("torch.sum", eve.call("torch.mul", leaf, named(eve)))
    eve.call("torch.Tensor.backward", loss)
    succeeded(eve.move(leaf, "alice"))
    return [Left(leaf, "alice", lambda x: x, gradient=True)]


def relay_a_leaf_with_its_gradient(eve: Observer) -> list[Left]:
    """It comes back with the gradient, which is as private as when it went."""
    leaf = ones(eve, grad=True)
    loss = eve.call("torch.sum", eve.call("torch.mul", leaf, named(eve)))
    eve.call("torch.Tensor.backward", loss)
    for to in ("alice", None):
        succeeded(eve.request(messages.Relay(eve.count(), leaf.id, to)))
    return [Left(leaf, "bob", lambda x: x, gradient=True)]


def move_to_whom_waits(eve: Observer) -> list[Left]:
    """What waits at alice for an object that bob is to send runs as privately as after it came."""
    private, target = doubled(eve), own(eve)
    eve.request(messages.Promise(eve.count(), (private.id,), "bob"), worker="alice")
    product = eve.call("torch.mul", private, 2, worker="alice")
    eve.call("torch.Tensor.add_", target, private, worker="alice", grad=False)
    succeeded(eve.move(private, "alice"))
    return [
        Left(private, "alice", twice),
        Left(product, "alice", lambda x: x * 4),
        Left(target, "alice", lambda x: x * 2 + 1),
    ]


def move_what_is_still_to_come(eve: Observer) -> list[Left]:
    """Bob sends on what ann sends later; the observer asked for it before."""
    promised = eve.id()
    eve.request(messages.Promise(eve.count(), (promised,), OWNER))
    product = eve.call("torch.mul", Reference(promised), 2)
    eve.move(product, "alice")
    eve.secret_under(promised, ONE, OTHER, destinations=("alice",))
    return [Left(product, "alice", twice)]


def relay(eve: Observer) -> list[Left]:
    """The object goes to alice, and bob keeps a pointer, by which he computes there."""
    private = doubled(eve)
    succeeded(eve.request(messages.Relay(eve.count(), private.id, "alice")))
    product = eve.call("torch.mul", private, 2)
    eve.call("torch.Tensor.item", eve.call("torch.sum", private))
    eve.call("torch.masked_select", private, eve.call("torch.gt", private, 1))
    for value in (private, product):
        eve.fetch(value.id, depth=1)
        succeeded(eve.request(messages.Relay(eve.count(), value.id, None)))
    return [Left(private, "bob", twice), Left(product, "bob", lambda x: x * 4)]


def relay_of_what_failed(eve: Observer) -> list[Left]:
    private = failed_take(eve)
    succeeded(eve.request(messages.Relay(eve.count(), private.id, "alice")))
    succeeded(eve.request(messages.Relay(eve.count(), private.id, None)))
    return [Left(private, "bob", lambda x: x[1:2], failed=IndexError)]


def a_private_shape(eve: Observer) -> list[Left]:
    """How many values are above one may not leave, also where the values may."""
    private = doubled(eve)
    chosen = eve.call("torch.masked_select", private, eve.call("torch.gt", private, 1))
    eve.move(chosen, "alice")
    eve.request(messages.Relay(eve.count(), chosen.id, "alice"))
    return [Left(chosen, "bob", lambda x: (x * 2)[x > 0.5], ("alice",))]


# --------------------------------------------------------------- whose destinations, and who says


def meets_what_may_go_nowhere(eve: Observer) -> list[Left]:
    mixed = eve.call("torch.add", doubled(eve), secret(eve))
    eve.move(mixed, "alice")
    return [Left(mixed, "bob", lambda x: x * 3, ())]


def meets_other_destinations(eve: Observer) -> list[Left]:
    wide = named(eve, destinations=("alice", "eve"))
    mixed = eve.call("torch.add", named(eve), wide)
    eve.move(mixed, "eve")
    succeeded(eve.move(mixed, "alice"))
    eve.move(mixed, "eve", "alice")
    return [Left(mixed, "alice", twice)]


def meets_at_alice(eve: Observer) -> list[Left]:
    """What came from bob may go back, and what was computed with alice's own may not."""
    private = at_alice(eve)
    mixed = eve.call("torch.add", private, secret_at_alice(eve), worker="alice")
    eve.move(mixed, "bob", "alice")
    succeeded(eve.move(private, "bob", "alice"))
    return [Left(mixed, "alice", lambda x: x * 3, ()), Left(private, "bob", twice)]


def meets_at_alice_what_may_go_back(eve: Observer) -> list[Left]:
    private = at_alice(eve)
    mixed = eve.call("torch.add", private, secret_at_alice(eve, "bob"), worker="alice")
    succeeded(eve.move(mixed, "bob", "alice"))
    return [Left(mixed, "bob", lambda x: x * 3)]


def allowed_by_the_owner(eve: Observer) -> list[Left]:
    """The copy may go to alice; what was computed from the first one may not."""
    private = secret(eve)
    before = computed(eve, private)
    copy = computed(eve, eve.allow(private, ("alice",)))
    eve.move(before, "alice")
    succeeded(eve.move(copy, "alice"))
    eve.move(copy, "eve", "alice")
    return [Left(before, "bob", twice, ()), Left(copy, "alice", twice)]


def allowed_by_the_owner_at_alice(eve: Observer) -> list[Left]:
    """Ann owns her data at alice too, by her name, and lets nobody else widen it."""
    private = at_alice(eve)
    for place, where in ((private, "alice"), (doubled(eve), "bob")):
        out = eve.id(where)
        eve.request(messages.Allow(eve.count(), place.id, ("eve",), out, ("eve",)), worker=where)
        eve.move(Reference(out), "eve", where)
    copy = computed(eve, eve.allow(private, ("carl",), "alice"), worker="alice")
    eve.move(copy, "eve", "alice")
    return [Left(copy, "alice", lambda x: x * 4, ("alice", "bob", "carl"))]


# ------------------------------------------------------------------------------------- at alice


def computed_at_alice(eve: Observer) -> list[Left]:
    private, target = at_alice(eve), own(eve)
    view = eve.call("torch.Tensor.view", target, 3, worker="alice")
    eve.call("torch.Tensor.copy_", target, private, worker="alice", grad=False)
    eve.call("torch.Tensor.item", eve.call("torch.sum", private, worker="alice"), worker="alice")
    eve.call("torch.Tensor.tolist", private, worker="alice")
    eve.call("torch.bernoulli", eve.call("torch.sigmoid", private, worker="alice"), worker="alice")
    eve.call("torch.rand", 2, worker="alice")
    return [Left(target, "alice", twice), Left(view, "alice", twice)]


def fails_at_alice(eve: Observer) -> list[Left]:
    private = failed_take(eve, "alice")
    succeeded(eve.move(private, "bob", "alice"))
    return [Left(private, "bob", lambda x: x[1:2], failed=IndexError)]


def chosen_at_alice(eve: Observer) -> list[Left]:
    """The size that follows from values at alice does not come back."""
    private = at_alice(eve)
    mask = eve.call("torch.gt", private, 1, worker="alice")
    chosen = eve.call("torch.masked_select", private, mask, worker="alice")
    eve.move(chosen, "bob", "alice")
    eve.call("torch.Tensor.numel", chosen, worker="alice")
    return [Left(chosen, "alice", lambda x: (x * 2)[x > 0.5])]


SQUARE = Program(
    2,
    (
        action("torch.mul", Slot(0), Slot(0), out=Slot(2)),
        action("torch.Tensor.add_", Slot(1), Slot(2), out=None),
    ),
    (Slot(2),),
)


def square(numbers: torch.Tensor) -> torch.Tensor:
    return (numbers * 2) ** 2


def group_at_alice(eve: Observer) -> list[Left]:
    target = own(eve)
    (result,) = eve.group(SQUARE, [at_alice(eve), target], 1, "alice")
    succeeded(eve.move(result, "bob", "alice"))
    return [Left(result, "bob", square), Left(target, "alice", lambda x: square(x) + 1)]


def plan_at_alice(eve: Observer) -> list[Left]:
    target = own(eve)
    (result,) = eve.plan(SQUARE, [at_alice(eve), target], 1, "alice")
    eve.move(result, "eve", "alice")
    return [Left(result, "alice", square), Left(target, "alice", lambda x: square(x) + 1)]


ATTACKS: tuple[Attack, ...] = (
    move,
    move_and_back,
    move_on,
    fetched_by_her_worker,
    move_elsewhere,
    move_what_failed,
    move_a_view,
    move_a_leaf_with_its_gradient,
    relay_a_leaf_with_its_gradient,
    move_to_whom_waits,
    move_what_is_still_to_come,
    relay,
    relay_of_what_failed,
    a_private_shape,
    meets_what_may_go_nowhere,
    meets_other_destinations,
    meets_at_alice,
    meets_at_alice_what_may_go_back,
    allowed_by_the_owner,
    allowed_by_the_owner_at_alice,
    computed_at_alice,
    fails_at_alice,
    chosen_at_alice,
    group_at_alice,
    plan_at_alice,
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_may_go_to_one_worker_teaches_nothing(attack: Attack) -> None:
    check(attack)


@pytest.mark.parametrize("attack", ATTACKS)
def test_it_is_where_it_may_be(attack: Attack) -> None:
    check_arrives(attack)


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_attacks_come_to_the_secret(attack: Attack) -> None:
    check_reaches(attack)
