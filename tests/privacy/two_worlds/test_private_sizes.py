"""Attack 9: limits, and what is charged, tell how large something is whose shape is private.

A limit is seen by whoever meets it: its text says how much was asked for, and what is left for the
next public command says how much was charged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from syft.codes import CollectiveCode
from syft.program.program import Program, Slot
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.core.peer_limits import DEFAULT_PEER_LIMITS, PeerLimits
from syft.workers.wire import messages
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.attacks import Attack, action, check, learned, ones
from tests.privacy.two_worlds.leaks import LEAKS
from tests.privacy.two_worlds.observer import Failed, Observer
from tests.privacy.two_worlds.runner import wrong_charges
from tests.privacy.two_worlds.world import OBSERVER, OWNER, TwoWorlds, fixed

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of some of this

FEW = PeerLimits(bytes=4000, results=12, elements=5000)
"""Limits that small tensors meet; a store with these counts every object."""
SIZE = 20


def told_of_public_data(attack: Attack, limits: PeerLimits) -> str | None:
    """What the attack itself tells of a size: afterwards nobody asks for a shape."""
    with fixed():
        both = TwoWorlds(limits=limits)
        try:
            attack(Observer(both, guarded=False))
            return None if both.difference is None else str(both.difference)
        finally:
            both.close()


def private(eve: Observer, one: int = 7, other: int = 13, size: int = SIZE) -> Reference:
    """A private tensor with so many positive elements."""
    return eve.secret(*(torch.where(torch.arange(size) < n, 1.0, -1.0) for n in (one, other)))


def chosen(eve: Observer, one: int = 7, other: int = 13, size: int = SIZE) -> Any:
    """A tensor with so many elements, of which that is the secret."""
    it = private(eve, one, other, size)
    return eve.call("torch.masked_select", it, eve.call("torch.gt", it, 0))


def by_owner(eve: Observer, name: str, *args: Any, **kwargs: Any) -> Reference:
    """What the owner makes, of whose replies the observer sees nothing."""
    eve.call(name, *args, sender=OWNER, **kwargs)
    return Reference(eve.next_id)


def dropped(eve: Observer, it: Any) -> None:
    """A pointer dies."""
    if isinstance(it, Reference):
        eve.request(messages.Drop(0, (it.id,)))


def search(fails: Callable[[int], bool], most: int) -> None:
    """Find by halves the least number for which something fails."""
    least = 0
    while least < most:
        middle = (least + most) // 2
        if fails(middle):
            most = middle
        else:
            least = middle + 1


def probe(eve: Observer, worker: str = "bob") -> None:
    """How much the observer may still have: public memory is asked for, by halves."""

    def fails(count: int) -> bool:
        made = eve.call("torch.zeros", count, dtype=torch.uint8, worker=worker)
        if isinstance(made, Failed):
            return True
        eve.request(messages.Drop(0, (made.id,)), worker=worker)
        return False

    search(fails, 1 << 13)


def repeated(eve: Observer, it: Any) -> None:
    """How often something may be repeated."""

    def fails(count: int) -> bool:
        made = eve.call("torch.Tensor.repeat", it, count)
        dropped(eve, made)
        return isinstance(made, Failed)

    search(fails, 1 << 12)


# ------------------------------------------------------------------------------ texts and refusals


def expanded(eve: Observer) -> None:
    row = eve.call("torch.unsqueeze", chosen(eve), 0)
    eve.call("torch.Tensor.expand", row, 2**40, -1)


def tiled(eve: Observer) -> None:
    eve.call("torch.Tensor.repeat", chosen(eve), 2**38)


def multiplied(eve: Observer) -> None:
    it = chosen(eve)
    for _ in range(4):
        it = eve.call("torch.Tensor.repeat", it, 2**8)


def bisected(eve: Observer) -> None:
    repeated(eve, chosen(eve))


def outer(eve: Observer) -> None:
    it = chosen(eve)
    for count in range(60, 200, 4):
        eve.call("torch.outer", it, ones(eve, count))


def padded(eve: Observer) -> None:
    it = chosen(eve)
    search(lambda n: isinstance(eve.call("torch.nn.functional.pad", it, (n, 0)), Failed), 1 << 11)


def pieces(eve: Observer) -> None:
    for name, args in (
        ("torch.Tensor.split", (1,)),
        ("torch.unbind", ()),
        ("torch.Tensor.chunk", (100,)),
        ("torch.tensor_split", (100,)),
    ):
        eve.call(name, chosen(eve), *args)


def in_a_group(eve: Observer) -> None:
    it = chosen(eve)
    for count in (1, 50, 99, 100, 101, 150, 200, 2**38):
        tile = action("torch.Tensor.repeat", Slot(0), count, out=Slot(1))
        made = eve.group(Program(1, (tile,), (Slot(1),)), [it], 1)
        dropped(eve, None if isinstance(made, Failed) else made[0])


def in_a_plan(eve: Observer) -> None:
    it = chosen(eve)
    for count in (1, 50, 99, 100, 101, 150, 200, 2**38):
        tile = action("torch.Tensor.repeat", Slot(0), count, out=Slot(1))
        made = eve.plan(Program(1, (tile,), (Slot(1),)), [it], 1)
        dropped(eve, None if isinstance(made, Failed) else made[0])


def in_a_longer_program(eve: Observer) -> None:
    """The shape is private inside the program only."""
    it = private(eve)
    for count in (50, 90, 95, 100, 130, 150, 200, 2**38):
        actions = (
            action("torch.gt", Slot(0), 0, out=Slot(1)),
            action("torch.masked_select", Slot(0), Slot(1), out=Slot(2)),
            action("torch.Tensor.repeat", Slot(2), count, out=Slot(3)),
        )
        made = eve.group(Program(1, actions, (Slot(3),)), [it], 1)
        dropped(eve, None if isinstance(made, Failed) else made[0])


def of_the_owner(eve: Observer) -> None:
    """The owner chooses, and the observer asks for much of it."""
    it = private(eve)
    found = by_owner(eve, "torch.masked_select", it, by_owner(eve, "torch.gt", it, 0))
    repeated(eve, found)
    eve.call("torch.Tensor.repeat", found, 2**38)


# ------------------------------------------------------------------------------------ what is left


def charged(eve: Observer) -> None:
    chosen(eve)
    probe(eve)


def credited(eve: Observer) -> None:
    it = chosen(eve)
    other = eve.call("torch.mul", it, 2)
    dropped(eve, it)
    probe(eve)
    dropped(eve, other)
    probe(eve)


def of_classes(eve: Observer) -> None:
    it = eve.call("torch.Tensor.long", chosen(eve))
    assert isinstance(eve.call("torch.nn.functional.one_hot", it, 3), Reference)
    probe(eve)


def _made_by(name: str, *args: Any, **kwargs: Any) -> Attack:
    def attack(eve: Observer) -> None:
        eve.call(name, chosen(eve), *args, **kwargs)
        probe(eve)

    attack.__name__ = name
    return attack


def in_a_tuple(eve: Observer) -> None:
    """Results that torch makes as views of one tensor."""
    eve.call("torch.nonzero", eve.secret(torch.ones(5, 5), torch.eye(5)), as_tuple=True)
    probe(eve)


def _chosen_by(name: str, *args: Any) -> Attack:
    def attack(eve: Observer) -> None:
        it = eve.secret(*(torch.arange(SIZE).sub(SIZE - n).clamp(min=0) for n in (4, 9)))
        made = eve.call(name, it, *args)
        eve.call("torch.Tensor.clone", made)  # what was made may lie in memory of the size of it
        probe(eve)

    attack.__name__ = name
    return attack


def by_a_mask(eve: Observer) -> None:
    it = private(eve)
    eve.call("torch.Tensor.__getitem__", ones(eve, SIZE, 2), eve.call("torch.gt", it, 0))
    probe(eve)


def into_a_target(eve: Observer) -> None:
    """A result of private size is written to memory that is there."""
    target, view = ones(eve, 2), None
    view = eve.call("torch.Tensor.detach", target)
    eve.call("torch.mul", chosen(eve), 2, out=target, grad=False)
    probe(eve)
    dropped(eve, view)
    probe(eve)


def written_over(eve: Observer) -> None:
    target = ones(eve, 7)
    eve.call("torch.Tensor.copy_", target, chosen(eve), grad=False)
    probe(eve)
    eve.call("torch.Tensor.repeat", target, 100)
    probe(eve)


def side_by_side(eve: Observer) -> None:
    one, other = chosen(eve), chosen(eve, 7, 12)
    for name in ("torch.cat", "torch.stack"):
        eve.call(name, [one, other, one])
        probe(eve)


def added(eve: Observer) -> None:
    one, other = chosen(eve), chosen(eve, 7, 12, 30)
    eve.call("torch.add", one, other)
    probe(eve)
    eve.call("torch.add", one, ones(eve, 7))
    probe(eve)


def a_view_that_fails(eve: Observer) -> None:
    """A view lies in memory that is there, and what stands for one that failed does too."""
    for one, other in ((0, 3), (3, 0)):
        it = chosen(eve, one, other)
        part = eve.call("torch.Tensor.narrow", it, 0, 0, 1)
        row = eve.call("torch.Tensor.select", it, 0, 0)
        dropped(eve, it)
        probe(eve)
        dropped(eve, part)
        probe(eve)
        dropped(eve, row)
        probe(eve)


def perhaps_a_view(eve: Observer) -> None:
    """Indices of one element are contiguous, and of several are not."""
    it = private(eve, 1, 9)
    mask = eve.call("torch.gt", it, 0)
    for name, args in (("reshape", (-1,)), ("contiguous", ()), ("flatten", ()), ("t", ())):
        found = eve.call("torch.nonzero", mask)
        made = eve.call(f"torch.Tensor.{name}", found, *args)
        dropped(eve, found)
        probe(eve)
        dropped(eve, made)


def public_memory_of_a_private_size(eve: Observer) -> None:
    eve.call("torch.Tensor.expand_as", ones(eve, 1), chosen(eve))
    probe(eve)


def copied(eve: Observer) -> None:
    it = chosen(eve)
    out = eve.id()
    eve.request(messages.Duplicate(eve.count(), it.id, out))
    probe(eve)
    repeated(eve, Reference(out))


def changed_in_place(eve: Observer) -> None:
    it = chosen(eve)
    eve.call("torch.Tensor.unsqueeze_", it, 0, grad=False)
    probe(eve)
    repeated(eve, eve.call("torch.Tensor.flatten", it))


def resized_like(eve: Observer) -> None:
    target = ones(eve, 3)
    eve.call("torch.Tensor.resize_as_", target, chosen(eve), grad=False)
    probe(eve)


def a_leaf_and_its_gradient(eve: Observer) -> None:
    """The owner's gradients have the size of the leaf."""
    it = private(eve)
    leaf = by_owner(eve, "torch.masked_select", it, by_owner(eve, "torch.gt", it, 0))
    eve.call("torch.Tensor.requires_grad_", leaf, sender=OWNER, grad=False)
    loss = by_owner(eve, "torch.sum", by_owner(eve, "torch.mul", leaf, 2))
    eve.call("torch.Tensor.backward", loss, sender=OWNER)
    gradient = eve.call("torch.Tensor.grad.__get__", leaf)
    probe(eve)
    repeated(eve, gradient)
    eve.gradient(leaf.id)


def moved(eve: Observer) -> None:
    """The owner has it moved.  At the next worker the memory is that of the first one's caller."""
    it = private(eve)
    found = by_owner(eve, "torch.masked_select", it, by_owner(eve, "torch.gt", it, 0))
    eve.request(messages.Move(eve.count(), found.id, "alice"), sender=OWNER)
    eve.known.setdefault("alice", []).append(found.id)
    for count in range(0, 3990, 10):
        mine = eve.call("torch.zeros", count, dtype=torch.uint8)
        if eve.move(mine, "alice") is mine:
            eve.request(messages.Drop(0, (mine.id,)), worker="alice")
        dropped(eve, mine)
    eve.call("torch.Tensor.repeat", found, 2**38, worker="alice")


def joined(eve: Observer) -> None:
    """A tensor is put over the memory of one of private size, and gets other sizes there."""
    it, other = chosen(eve), ones(eve, 3)
    eve.call("torch.Tensor.data.__set__", other, it)
    dropped(eve, it)
    probe(eve)
    for _ in range(4):
        eve.call("torch.Tensor.t_", other, grad=False)
    eve.call("torch.Tensor.copy_", ones(eve, 1), other, grad=False)
    probe(eve)
    repeated(eve, other)


def sparse(eve: Observer) -> None:
    """How many elements are not zero is private, and the owner has made a sparse tensor."""
    for name in ("to_sparse", "to_sparse_csr"):
        it = eve.secret(*(torch.arange(SIZE).reshape(4, 5) // n for n in (4, 9)))
        made = by_owner(eve, f"torch.Tensor.{name}", it)
        out = eve.id()
        eve.request(messages.Duplicate(eve.count(), made.id, out))
        probe(eve)


def letters_of_a_sum(eve: Observer) -> None:
    """The observer has one party send so much ahead that a sum of the owner's just fits, or not."""

    def start(it: Reference, worker: str, execution: int, sender: str) -> Reference:
        out, parties = eve.id(worker), ("bob", "alice")
        operand, rank = pack(it, Packer()), parties.index(worker)
        about = int(CollectiveCode.SUM), execution, parties, rank, (operand,), (out,)
        eve.request(messages.Start(eve.count(), *about), worker=worker, sender=sender)
        return Reference(out)

    for execution, ndim in enumerate((6, 6, 6, 6, 5), 1):  # 1,672 bytes of 2,000
        start(eve.public(torch.ones((1,) * ndim), "alice"), "alice", execution, OBSERVER)
    it = eve.secret(*(torch.where(torch.arange(SIZE) < n, 1.0, -1.0) for n in (7, 13)), "alice")
    mask = by_owner(eve, "torch.gt", it, 0, worker="alice")
    found = by_owner(eve, "torch.masked_select", it, mask, worker="alice")
    start(found, "alice", 100, OWNER)
    total = start(eve.secret(torch.ones(1), torch.ones(1)), "bob", 100, OWNER)
    eve.describe(total.id)


ATTACKS: tuple[tuple[Attack, PeerLimits], ...] = (
    (letters_of_a_sum, PeerLimits(letters=2000)),
    *((attack, DEFAULT_PEER_LIMITS) for attack in (expanded, tiled, multiplied)),
    *(
        (attack, FEW)
        for attack in (
            expanded,
            tiled,
            bisected,
            outer,
            padded,
            pieces,
            in_a_group,
            in_a_plan,
            in_a_longer_program,
            of_the_owner,
            charged,
            credited,
            by_a_mask,
            into_a_target,
            written_over,
            side_by_side,
            added,
            perhaps_a_view,
            public_memory_of_a_private_size,
            copied,
            changed_in_place,
            resized_like,
            joined,
            in_a_tuple,
            sparse,
            moved,
            a_leaf_and_its_gradient,
            a_view_that_fails,
            of_classes,
            _made_by("torch.Tensor.double"),
            _made_by("torch.Tensor.type", torch.float64),
            _made_by("torch.Tensor.unsqueeze", 0),
            _made_by("torch.Tensor.clone"),
            _made_by("torch.nonzero"),
            _made_by("torch.unique"),
            _made_by("torch.cumsum", 0),
            _made_by("torch.rand_like"),
            _made_by("torch.empty_like"),
            _chosen_by("torch.nonzero"),
            _chosen_by("torch.argwhere"),
            _chosen_by("torch.unique"),
            _chosen_by("torch.unique_consecutive"),
            _chosen_by("torch.bincount"),
            _chosen_by("torch.repeat_interleave"),
        )
    ),
)


def _name(case: Any) -> str:
    return case.__name__ if callable(case) else "default" if case is DEFAULT_PEER_LIMITS else "few"


@pytest.mark.parametrize(("attack", "limits"), ATTACKS, ids=_name)
def test_limits_tell_no_private_size(attack: Attack, limits: PeerLimits) -> None:
    check(attack, limits)


@pytest.mark.parametrize(("attack", "limits"), ATTACKS, ids=_name)
def test_limits_tell_public_sizes(attack: Attack, limits: PeerLimits) -> None:
    assert told_of_public_data(attack, limits), "the attack does not come to the size"


# ------------------------------------------------------------------------------- at each edge


def _command(eve: Observer, name: str, it: Any, args: tuple[Any, ...]) -> Any:
    return eve.call(name, it, *args)


def _group(eve: Observer, name: str, it: Any, args: tuple[Any, ...]) -> Any:
    return _in_one(eve.group, name, it, args)


def _plan(eve: Observer, name: str, it: Any, args: tuple[Any, ...]) -> Any:
    return _in_one(eve.plan, name, it, args)


def _in_one(run: Callable[..., Any], name: str, it: Any, args: tuple[Any, ...]) -> Any:
    """An operation as a program, whose next action asks for public memory."""
    if isinstance(it, Failed):
        return it
    actions = (
        action(name, Slot(0), *args, out=Slot(1)),
        action("torch.zeros", 600, out=Slot(2)),
    )
    return run(Program(1, actions, (Slot(1), Slot(2))), [it], 2)


WAYS = (_command, _group, _plan)
MULTIPLYING: dict[str, Callable[[int], tuple[Any, ...]]] = {
    "torch.Tensor.repeat": lambda count: (count,),
    "torch.tile": lambda count: ((count,),),
    "torch.Tensor.expand": lambda count: (count, -1),
    "torch.nn.functional.pad": lambda count: ((0, count),),
    "torch.outer": lambda count: (torch.ones(count),),
    "torch.tensor_split": lambda count: (count,),
    "torch.kron": lambda count: (torch.ones(count),),
    "torch.cartesian_prod": lambda count: (torch.ones(count),),
}
"""Operations that make of a tensor as much as a number says."""


def at_each_edge(name: str, way: Callable[..., Any]) -> Attack:
    """As much as just fits each limit and a little more, for each size that there may be."""
    sizes, limits = (7, 13, SIZE), (FEW.elements, FEW.bytes // 4, FEW.bytes // 8, FEW.results * 7)
    counts = {limit // size + more for size in sizes for limit in limits for more in (0, 1)}

    def attack(eve: Observer) -> None:
        it = chosen(eve)
        for count in sorted(counts):
            args = [
                eve.public(arg) if isinstance(arg, torch.Tensor) else arg
                for arg in MULTIPLYING[name](count)
            ]
            made = way(eve, name, it, tuple(args))
            for one in made if isinstance(made, list) else [made]:
                dropped(eve, one)
            for arg in args:
                dropped(eve, arg)
        probe(eve)

    return attack


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
@pytest.mark.parametrize("name", MULTIPLYING)
def test_no_edge_of_a_limit_tells_a_private_size(name: str, way: Callable[..., Any]) -> None:
    check(at_each_edge(name, way), FEW)


@pytest.mark.parametrize("name", MULTIPLYING)
def test_the_edges_of_limits_tell_public_sizes(name: str) -> None:
    assert told_of_public_data(at_each_edge(name, _command), FEW)


@pytest.mark.parametrize("leak", ["sizes", "memory"])
def test_an_edge_finds_limits_by_true_sizes(leak: str) -> None:
    with LEAKS[leak]():
        assert learned(at_each_edge("torch.Tensor.repeat", _command), limits=FEW) is not None


def of_the_owner_without_a_bound(eve: Observer) -> None:
    """The owner makes something of a size that is a private number: it has no bound."""
    number = eve.secret(torch.tensor(10), torch.tensor(100_000))
    it = by_owner(eve, "torch.zeros", number)
    for name in ("torch.neg", "torch.sum", "torch.Tensor.detach", "torch.zeros_like"):
        eve.call(name, it)
    eve.request(messages.Duplicate(eve.count(), it.id, eve.id()))
    eve.move(it, "alice")
    for name in ("torch.Tensor.copy_", "torch.Tensor.set_", "torch.Tensor.resize_as_"):
        eve.call(name, ones(eve, 10), it, grad=False)
    eve.call("torch.add", ones(eve), ones(eve, 4))  # a traceback tells which way it went
    for run in (eve.group, eve.plan):
        program = Program(2, (action("torch.add", Slot(0), Slot(1), out=Slot(2)),), (Slot(2),))
        run(program, [ones(eve), ones(eve, 4)], 1)
        run(program, [it, ones(eve, 4)], 1)
    probe(eve)


@pytest.mark.parametrize("limits", [DEFAULT_PEER_LIMITS, PeerLimits(bytes=10**6)], ids=_name)
def test_what_has_no_bound_tells_no_size(limits: PeerLimits) -> None:
    check(of_the_owner_without_a_bound, limits)
    assert told_of_public_data(of_the_owner_without_a_bound, limits)


# ---------------------------------------------------------------------- what is charged is there


def _run(eve: Observer, kind: str, inputs: list[Any], name: str, *args: Any) -> None:
    actions = (action(name, *args), action("torch.Tensor.clone", Slot(0), out=Slot(len(inputs))))
    program = Program(len(inputs), actions, (Slot(len(inputs)),))
    assert not isinstance(getattr(eve, kind)(program, inputs, 1), Failed)


ALTERING: dict[str, Callable[[Observer, Any, Any], Any]] = {
    "grown": lambda eve, x, y: eve.call("torch.Tensor.resize_", x, 90, grad=False),
    "grown by out=": lambda eve, x, y: eve.call("torch.mul", y, 2, out=x, grad=False),
    "grown in a group": lambda eve, x, y: _run(
        eve, "group", [x], "torch.Tensor.resize_", Slot(0), 90
    ),
    "grown in a plan": lambda eve, x, y: _run(
        eve, "plan", [x], "torch.Tensor.resize_", Slot(0), 90
    ),
    "set": lambda eve, x, y: eve.call("torch.Tensor.data.__set__", x, y, grad=False),
    "set in a group": lambda eve, x, y: _run(
        eve, "group", [x, y], "torch.Tensor.data.__set__", Slot(0), Slot(1)
    ),
    "written": lambda eve, x, y: eve.call("torch.Tensor.copy_", x, private(eve), grad=False),
    "gone": lambda eve, x, y: eve.request(messages.Relay(eve.count(), x.id, "eve")),
}
"""How an object gets other memory, or more of it, beside another object."""


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("name", ALTERING)
def test_what_is_charged_is_the_memory_that_is_there(name: str, guarded: bool) -> None:
    with fixed():
        both = TwoWorlds(limits=PeerLimits(bytes=1 << 19))
        eve = Observer(both)
        made = [private(eve, size=n) if guarded else ones(eve, n) for n in (SIZE, 90)]
        x, y = (eve.call("torch.Tensor.clone", it) for it in made)
        view = eve.call("torch.Tensor.detach", x)
        before = both.worlds[0].peers["bob", "eve"].session.account.bytes
        ALTERING[name](eve, x, y)
        assert both.difference is None and not wrong_charges(both.worlds)
        for it in (*made, x, y, view):
            dropped(eve, it)
        both.close()
    assert before >= 4 * (SIZE + 90)


GROWING: dict[str, tuple[tuple[str, tuple[Any, ...]], ...]] = {
    "written": (("torch.Tensor.requires_grad_", ()), ("torch.Tensor.add_", (1,))),
    "another dimension": (("torch.Tensor.unsqueeze_", (1,)),),
    "resized": (("torch.Tensor.resize_", (90,)),),
}
"""What is done in place to a small object in the memory of a large one."""


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("name", GROWING)
def test_a_large_object_is_charged_for_memory_that_a_small_one_grows(
    name: str, guarded: bool
) -> None:
    with fixed():
        both = TwoWorlds(limits=DEFAULT_PEER_LIMITS)
        eve = Observer(both)
        row = eve.call("torch.unsqueeze", chosen(eve) if guarded else ones(eve, SIZE), 0)
        eve.call("torch.Tensor.expand", row, 2**27, -1)
        for called, args in GROWING[name]:
            eve.call(called, row, *args, grad=False)
        charged_for = both.worlds[0].peers["bob", "eve"].session.account.bytes
        assert both.difference is None and not wrong_charges(both.worlds)
        both.close()
    resized = 90 + SIZE * guarded  # where a private view begins is not told
    assert charged_for == 4 * (resized if name == "resized" else SIZE)
