"""What leaves a worker for another one: every kind of request, by whom, and to where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

import pytest
import torch

import syft as sy

from syft.codes import CollectiveCode
from syft.exceptions import MalformedMessage, PermissionDenied, ProviderDenied
from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.serde.limits import Limits
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.core.peer import Peer
from syft.workers.core.sent_labels import (
    guard_fields,
    guard_from_fields,
    note_bound,
    received_guard,
    terms_of,
    users_of,
)
from syft.workers.execution.leaving import (
    check_dealing,
    check_gradients_leave,
    may_leave,
    takes_over,
)
from syft.workers.execution.public_sizes import sizes_at_most
from syft.workers.labels.crossings import Follower, followers
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, note, protect
from syft.workers.wire.definitions import Group, InputKind
from syft.workers.wire.messages import (
    Abort,
    Allow,
    Annotate,
    Await,
    Cancel,
    ClearGradients,
    Command,
    Convert,
    Describe,
    Done,
    Drop,
    Duplicate,
    Exchange,
    Failure,
    Fetch,
    FetchAll,
    GiveUp,
    Gradients,
    Holds,
    Message,
    Move,
    Promise,
    Put,
    PutAll,
    Relay,
    Request,
    Run,
    Search,
    Share,
    Start,
    decode,
    encode,
)
from syft.workers.wire.terms import Terms
from tests.chain.refusal import refusal
from tests.workers.core.peers import command, error_in, ref, sociable
from syft.serde.frame import Frame

SECRET, PUBLIC, OUT = 5, 20, 100
"""The owner's private data, what was computed from it being 6; public data; an id for results."""

Left = tuple[str, str, Guard | None]
"""Where something went, in what, and under which guard."""


class Scene:
    """A core that knows everybody, what it sent them, and who makes the requests."""

    def __init__(self, user: str, *destinations: str, hidden: bool = False) -> None:
        self.left: list[Left] = []
        self.core = sociable()
        self.core.connect = self._connect  # type: ignore[assignment]
        self.laptop, self.alice, self.carl = (
            Peer(name, user) for name in ("laptop", "alice", "carl")
        )
        self.destinations = destinations
        terms = Terms(destinations, ("ann",), most=(2,))
        self.store(SECRET, torch.tensor([7.0, 8.0]), Peer("home", "ann"), ("ann",), hidden, terms)
        self.store(PUBLIC, torch.ones(2), self.laptop)
        factor = 1 if hidden else ref(PUBLIC)  # of two elements, by which the size would be public
        self.ask(command("torch.Tensor.mul", ref(SECRET), factor, out=6, flags=9))

    def _connect(self, to: str | Peer) -> Any:
        return Line(self, to if isinstance(to, str) else to.name)

    def store(self, id: int, value: torch.Tensor, peer: Peer, *label: Any) -> None:
        """Store a tensor, with users, whether its shape is private, and the rest of its guard."""
        packer = Packer()
        users, hidden, terms = label or (None, False, None)
        message = Put(1, id, pack(value, packer), users, hidden, (), terms)
        assert self.ask(message, *packer.buffers, peer=peer) == Done(1)

    def ask(self, message: Message, *buffers: torch.Tensor, peer: Peer | None = None) -> Any:
        """Make a request; returns the reply, and notes what goes elsewhere."""
        peer = peer or self.laptop
        reply = None
        for to, frame in self.core.receive(Frame(encode(message), list(buffers)), peer):
            answer: Any = decode(frame.header)
            if isinstance(to, str):
                if isinstance(answer, Exchange):
                    limits = self.core.limits
                    about = answer.users, answer.shape_hidden, answer.terms
                    guard = received_guard(*about, limits, None)
                    self.left.append((to, "a round", guard))
                    assert frame.private is (guard is not None)
            elif to is peer:
                reply = answer
        return reply

    def went_to(self, place: str) -> list[Left]:
        """What went to a worker, private values only."""
        return [one for one in self.left if one[0] == place and one[2] is not None]

    def state(self) -> Any:
        """What somebody might have changed."""
        return {
            id: (
                value.detach().tolist(),
                value.grad if value.is_leaf else None,
                full_guard_of(value),
            )
            for id, value in self.core.store.objects.items()
        }


class Line:
    """A connection to another worker, which takes everything."""

    def __init__(self, scene: Scene, place: str) -> None:
        self.scene, self.place, self.garbage = scene, place, list[int]()
        self.operations = self

    def put(
        self,
        value: Any,
        id: int,
        guard: Guard | None = None,
        writers: Any = (),
        source: int | None = None,
    ) -> int:
        assert self.scene.core.serving is not None
        self.scene.left.append((self.place, "a value", guard))
        return id

    def ask(self, kind: Any, *fields: Any, **named: Any) -> None:
        """Take a request."""

    def command(self, *args: Any, **kwargs: Any) -> None:
        """Take a command."""


def follow_leaf(scene: Scene) -> None:
    """Alice has moved a leaf to bob; the private loss of it is 32."""
    packer = Packer()
    leaf = Put(1, 30, pack(torch.ones(2, requires_grad=True), packer), source=9)
    assert scene.ask(leaf, *packer.buffers, peer=scene.alice) == Done(1)
    scene.ask(command("torch.Tensor.mul", ref(30), ref(6), out=31, flags=9))
    scene.ask(command("torch.Tensor.sum", ref(31), out=32, flags=9))


def backward(scene: Scene) -> Any:
    follow_leaf(scene)
    return scene.ask(command("torch.Tensor.backward", ref(32)))


def backward_in_a_group(scene: Scene) -> Any:
    follow_leaf(scene)
    step = Action(BY_NAME["torch.Tensor.backward"], (Slot(0),), {}, None)
    definition = Group((InputKind.REFERENCE,), Program(1, (step,), ()))
    return scene.ask(Run(1, 0, [32], OUT, 1, define=pack(definition, Packer())))


def remote_get(scene: Scene) -> Any:
    """Worker alice fetches the object, for its store."""
    reply = scene.ask(Fetch(1, 6, keep=True, guarded=True), peer=scene.alice)
    if type(reply) is not Failure:
        scene.left.append(("alice", "an answer", Guard(frozenset(reply.value[2][1:]))))
    return reply


def start(scene: Scene) -> Any:
    message = Start(1, int(CollectiveCode.SUM), 7, ("bob", "alice"), 0, (ref(6),), (OUT,))
    return scene.ask(message)


def second_round(scene: Scene) -> Any:
    """What carl sends is private, and goes into the sum that alice gets."""
    parties = ("bob", "carl", "alice")
    starting = Start(1, int(CollectiveCode.SUM), 7, parties, 0, (ref(PUBLIC),), (OUT,))
    scene.ask(starting)
    assert scene.went_to("alice") == []
    terms = Terms((*scene.destinations, "carl"), ("ann",))
    replies: list[Any] = []
    key_and_shape, masked = torch.tensor([1, 2, 3, 4, 2]), torch.zeros(2, dtype=torch.int64)
    for round, value in enumerate((key_and_shape, masked)):
        packer, another = Packer(), Packer()
        from_carl = Exchange(7, round, 1, (pack(value, packer),), ("ann",), False, terms)
        scene.ask(from_carl, *packer.buffers, peer=scene.carl)
        from_alice = Exchange(7, round, 2, (pack(value, another),))
        exchange = Frame(encode(from_alice), list(another.buffers))
        for to, frame in scene.core.receive(exchange, scene.alice):
            message: Any = decode(frame.header)
            if isinstance(to, Peer):
                replies.append(message)
            elif isinstance(message, Exchange):
                scene.left.append((to, "a round", Guard(frozenset(message.users or ()))))
    return replies[0] if replies else None


SENDING: dict[type[Message], Sequence[Callable[[Scene], Any]]] = {
    Move: (lambda scene: scene.ask(Move(1, 6, "alice")),),
    Relay: (lambda scene: scene.ask(Relay(1, 6, "alice")),),
    Fetch: (remote_get,),
    Start: (start,),
    Exchange: (second_round,),
    Command: (backward,),
    Run: (backward_in_a_group,),
}
"""The kinds of requests that send a value to another worker, here to alice."""

WAYS = [(kind.__name__, way) for kind, ways in SENDING.items() for way in ways]

KEEPING: dict[type[Message], Callable[[], Message]] = {
    Put: lambda: Put(1, OUT, (32, 0, (0,), None, 0), ("ann",)),
    PutAll: lambda: PutAll(1, OUT, (38, None, (), ())),
    FetchAll: lambda: FetchAll(1, (6,), keep=True),
    Drop: lambda: Drop(1, (6,)),
    Duplicate: lambda: Duplicate(1, 6, OUT),
    Search: lambda: Search(1, ()),
    Annotate: lambda: Annotate(1, 6, ("#mine",)),
    Share: lambda: Share(6, ("zoe",)),
    Allow: lambda: Allow(1, 6, ("zoe",), OUT),
    Describe: lambda: Describe(1, 6),
    Promise: lambda: Promise(1, (OUT,)),
    Abort: lambda: Abort(7, 0, "no more"),
    Convert: lambda: Convert(1, 6, 1, (2,), OUT),
    Holds: lambda: Holds(1, 6, b"\x01" * 32),
    Cancel: lambda: Cancel(1, 5),
    GiveUp: lambda: GiveUp(1, 40, "no more"),
    Await: lambda: Await(1, 6),
    Gradients: lambda: Gradients(1, (6,), OUT),
    ClearGradients: lambda: ClearGradients(1, (6,)),
}
"""The kinds that send nothing but their reply."""


def test_every_kind_of_request_has_a_row() -> None:
    assert {*SENDING, *KEEPING} == set(get_args(Request)) and not {*SENDING} & {*KEEPING}


@pytest.mark.parametrize("way", [way for _, way in WAYS], ids=[name for name, _ in WAYS])
@pytest.mark.parametrize("destinations", [(), ("carl",)], ids=["nowhere", "elsewhere"])
def test_nothing_private_leaves_unless_it_may(
    way: Callable[[Scene], Any], destinations: tuple[str, ...]
) -> None:
    scene = Scene("eve", *destinations)
    before = scene.state()
    reply = way(scene)
    error = error_in(reply)
    assert type(error) is PermissionDenied, error
    assert (error.to, error.worker, error.user) == ("alice", "bob", "eve")
    assert scene.went_to("alice") == []
    after = scene.state()
    assert {id: after[id] for id in before} == before, "nothing has changed"
    assert all(gradient is None for _, gradient, _ in after.values())


@pytest.mark.parametrize("way", [way for _, way in WAYS], ids=[name for name, _ in WAYS])
@pytest.mark.parametrize("who", ["named", "admitted"])
def test_what_may_leave_leaves_with_its_guard(way: Callable[[Scene], Any], who: str) -> None:
    scene = Scene("eve", "alice") if who == "named" else Scene("ann")
    reply = way(scene)
    assert type(reply) is not Failure, error_in(reply)
    *_, (_, _, guard) = scene.went_to("alice")
    assert guard is not None and guard.users == {"ann"}


PASSES = backward, backward_in_a_group


@pytest.mark.parametrize("way", [way for _, way in WAYS if way not in (second_round, *PASSES)])
def test_a_private_shape_leaves_for_those_who_may_read_it(way: Callable[[Scene], Any]) -> None:
    scene = Scene("eve", "alice", hidden=True)
    assert type(error_in(way(scene))) is PermissionDenied and scene.went_to("alice") == []


@pytest.mark.parametrize("way", PASSES)
def test_a_gradient_of_a_public_shape_leaves_as_another_does(way: Callable[[Scene], Any]) -> None:
    """It is that of a leaf, whatever it was computed from."""
    for destinations, sent in ((("alice",), True), ((), False)):
        scene = Scene("eve", *destinations, hidden=True)
        assert (type(way(scene)) is not Failure) is sent
        guards = [guard for _, _, guard in scene.went_to("alice")]
        assert len(guards) == sent and not any(guard and guard.shape_hidden for guard in guards)


@pytest.mark.parametrize("kind", KEEPING, ids=lambda kind: kind.__name__)
def test_the_others_send_nothing(kind: type[Message]) -> None:
    scene = Scene("eve", "alice")
    letters = scene.core.receive(Frame(encode(KEEPING[kind]()), []), scene.laptop)
    assert scene.left == []
    assert all(to is scene.laptop and not frame.buffers for to, frame in letters)


def test_destinations_meet_as_users_do() -> None:
    one = Guard(frozenset({"ann"}), destinations=frozenset({"alice", "carl"}))
    other = Guard(frozenset({"ann"}), destinations=frozenset({"alice"}))
    both = one.meet(other)
    assert may_leave(both, "alice", None) and not may_leave(both, "carl", None)
    assert not may_leave(both.meet(Guard(frozenset({"ann"}))), "alice", None)
    assert may_leave(both.meet(Guard(frozenset({"ann"}))), "alice", "ann")


def test_owners_meet_as_users_do() -> None:
    ann, both, nobody = (Guard(frozenset(), owners=frozenset(names)) for names in ("a", "ab", ""))
    assert ann.meet(both).owners == {"a"} and ann.meet(nobody).owners == frozenset()
    unsent = Guard(frozenset())
    assert unsent.meet(Guard(frozenset(), True)).owners is None
    assert unsent.meet(ann).owners == ann.meet(unsent).owners == frozenset()


@pytest.mark.parametrize(
    "one, other, both",
    [
        (None, None, None),
        (None, {"a"}, {"a"}),
        ({"a"}, None, {"a"}),
        ({"a", "b"}, {"b", "c"}, {"b"}),
        ({"a"}, {"b"}, set()),
        (None, set(), set()),
    ],
)
def test_who_may_deal_for_two_values(one: Any, other: Any, both: Any) -> None:
    guards = [
        Guard(frozenset({"ann"}), providers=None if some is None else frozenset(some))
        for some in (one, other)
    ]
    assert guards[0].meet(guards[1]).providers == both
    assert guards[1].meet(guards[0]).providers == both


def test_a_guard_survives_the_way() -> None:
    about = frozenset({"alice"}), frozenset({"ann"}), frozenset({"carol", "dan"})
    sealed = Guard(frozenset({"ann", "bea"}), True, ValueError("7"), *about)
    terms = terms_of(sealed, "bob", for_caller=True)
    back = received_guard(users_of(sealed), True, terms, Limits(), "eve")
    again = guard_from_fields(guard_fields(sealed, "bob"))
    for guard in (back, again):
        assert guard is not None
        assert guard.users == sealed.users and guard.shape_hidden
        assert guard.destinations == {"alice", "bob"} and guard.owners == {"ann"}
        assert guard.providers == {"carol", "dan"}
        assert repr(guard.error) == "ValueError('7')"
    assert guard_from_fields(guard_fields(None, "bob")) is None


def test_whose_a_guard_is() -> None:
    mine = Guard(frozenset({"ann"}))
    terms = terms_of(mine, "me", for_caller=False)
    assert received_guard(("ann",), False, terms, Limits(), "me") == Guard(
        frozenset({"ann"}), owners=frozenset({"me"})
    )
    held = received_guard(("ann",), False, None, Limits(), None)
    assert held is not None and held.owners is None, "the owner of the worker sent it"
    moved = terms_of(held, "bob", for_caller=True)
    arrived = received_guard(("ann",), False, moved, Limits(), "eve")
    assert arrived is not None and arrived.owners == frozenset(), "not of whoever had it moved"


@pytest.mark.parametrize(
    "fields",
    [
        (),
        (None,),
        (("ann",), False, (), (), None, "no error"),
        (("ann",), False, (), None, None, None),
        ((1,), False, (), (), None, None),
        ("ann", False, (), (), None, None),
        (("ann",), 1, (), (), None, None),
        (("ann",), False, (), (), 5, None),
        (("ann",), False, (), (), None),
    ],
)
def test_a_guard_that_is_none_is_refused(fields: tuple[Any, ...]) -> None:
    with pytest.raises(MalformedMessage):
        guard_from_fields(fields)


def test_an_error_that_is_none_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        received_guard(("ann",), False, Terms((), None, [2, 5]), Limits(), "me")


class Silent(Follower):
    """Sends nothing."""

    def came(self, gradient: torch.Tensor, guard: Guard | None) -> None:
        """Nothing."""

    send = came


def test_several_may_follow_a_leaf() -> None:
    leaf = torch.ones(1, requires_grad=True)
    Silent("alice").follow(leaf)
    Silent("carl").follow(leaf)
    assert followers(leaf) == {"alice", "carl"}


@pytest.mark.parametrize(
    "function, before",
    [
        (torch.Tensor.backward, (None, None, False)),
        (torch.autograd.backward, (None, None, False, None)),
    ],
)
def test_a_pass_that_names_tensors_sends_no_gradients(
    function: Any, before: tuple[Any, ...]
) -> None:
    """Named by place or by name; the arguments in front of them alone name none."""
    followed, other = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    Silent("eve").follow(followed)
    args, guard = ((followed * other).sum(), *before), Guard(frozenset({"ann"}))

    def leaves(*more: Any, **named: Any) -> bool:
        try:
            check_gradients_leave(function, (*args, *more), named, guard, "bob", None)
        except PermissionDenied as error:
            assert "backward: this value on 'bob' may not go to 'eve'" in str(error)
            return True
        return False

    assert leaves() and leaves(inputs=None) and leaves(None)
    for named in (followed, [other, followed], (followed,), other, [other]):
        assert not leaves(named) and not leaves(inputs=named)
    check_gradients_leave(torch.autograd.grad, (args[0], followed), {}, guard, "bob", None)


def test_who_may_deal_for_a_value() -> None:
    free, narrow = Guard(frozenset()), Guard(frozenset({"ann"}), providers=frozenset({"carol"}))
    for guard in (None, free, narrow):
        check_dealing(guard, "carol", "bob")
    for guard in (None, free):
        check_dealing(guard, "eve", "bob")
    with pytest.raises(ProviderDenied, match="'eve' is not among its allow_providers="):
        check_dealing(narrow, "eve", "bob")


def test_what_failed_leaves_sealed() -> None:
    """Whoever may not read a value does not learn that there is none; whoever may, gets the
    error."""
    scene = Scene("eve", "alice")
    scene.store(40, torch.tensor([5]), Peer("home", "ann"), ("ann",), False, Terms(("alice",)))
    taking = command("torch.take", ref(6), ref(40), out=41, flags=9)
    assert scene.ask(taking) == Done(1)
    assert scene.ask(Move(1, 41, "alice")) == Done(1)
    ((_, _, guard),) = scene.went_to("alice")
    assert guard is not None and isinstance(guard.error, IndexError)
    scene = Scene("ann")
    note(scene.core.store.objects[6].untyped_storage(), guard=guard)
    assert type(error_in(scene.ask(Move(1, 6, "alice")))) is IndexError
    assert scene.went_to("alice") == []


# ------------------------------------------------------------- the program of the worker's owner


def test_the_hook_sends_no_gradient_that_may_not_go(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    """Also where no check came before: in the program of the worker's owner."""
    source = torch.ones(2, requires_grad=True).send(alice)
    moved = (source * 2).move(bob, requires_grad=True)
    (leaf,) = [x for x in bob._objects.values() if x.requires_grad]
    acting = bob.core.acting_guard
    bob.core.acting_guard = Guard(frozenset({"ann"}), destinations=frozenset({"carl"}))
    leaf.sum().backward()
    bob.core.acting_guard = acting
    assert source.grad is None
    leaf.sum().backward()
    assert source.grad.get().tolist() == [2, 2]
    del leaf, moved


def test_the_owner_of_the_worker_may(bob: sy.VirtualWorker) -> None:
    (held,) = bob.hold(torch.ones(2).private_tensor(["ann"]))
    found = bob.connection_to(bob).pointer(held)
    assert refusal(lambda: bob.search([str(held)])[0].allow("eve")) == (
        f"PermissionDenied: allow: object {held} on 'bob' holds what belongs to the owner of the "
        "worker, and 'me' may not change it. Ask the owner to."
    )
    wider = found.allow("bea")
    assert bob.search([str(wider.id_at_location)])[0].get(user="bea").tolist() == [1, 1]
    found.child.garbage_collect_data = False
    del wider, found
    bob.clear_objects()


@pytest.mark.parametrize("most", [5, "ab", (), (2,), (4, 4), (True,), (4.0,), (2**70,)])
def test_a_bound_that_is_none_is_refused(most: Any) -> None:
    """It is stated by whoever sends the value: not below the sizes, and a size for each of them."""
    value = torch.ones(3)
    note_bound(value, most)
    protect(value, Guard(frozenset({"ann"}), shape_hidden=True))
    with pytest.raises(MalformedMessage, match=r"\$.terms: expected a bound of the value's sizes"):
        note_bound(value, most)
    note_bound(value, None)
    assert sizes_at_most(value) is None
    note_bound(value, [3])
    assert sizes_at_most(value) == (3,)


def test_a_leaf_comes_back_as_what_it_was_or_not_at_all() -> None:
    private = torch.ones(2)
    protect(private, Guard(frozenset()))
    for other in (torch.nn.Parameter(torch.ones(2)), private, torch.ones(2).double()):
        left = torch.ones(2)
        assert not takes_over(left, other) and left.tolist() == [1, 1]
