"""Messages to a role that no client sends: whatever is refused leaves nothing behind, costs whom it
comes from, and ends nothing that does not need it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.codes import CollectiveCode
from syft.exceptions import (
    InputRefused,
    LimitExceeded,
    MalformedMessage,
    ObjectNotFound,
    PermissionDenied,
    PlansNotAllowed,
    ProgramError,
    RemoteFailure,
    UnknownWorker,
    WorkerLost,
)
from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.program.role_program import RoleProgram
from syft.serde.errors import pack_error
from syft.serde.frame import Frame
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.core.peer import Peer
from syft.workers.core.peer_limits import PeerLimits
from syft.workers.core.state_machine import WorkerCore
from syft.workers.handlers.executions import MAX_SESSIONS
from syft.workers.handlers.mailbox import MAX_PARTY_MESSAGES
from syft.workers.handlers.role_runs import FROM_USERS
from syft.workers.handlers.stored_role import StoredRole
from syft.workers.wire.messages import (
    Abort,
    Command,
    Done,
    Exchange,
    Failure,
    Put,
    Start,
    decode,
    encode,
)
from syft.workers.wire.references import REF
from tests.workers.core.peers import error_in, lonely, put, ref, sociable

S = Slot
ROLE, OUT = 3, 70
PARTIES = ("bob", "alice", "me")


def op(name: str, *args: Any, out: Any = None) -> Action:
    return Action(BY_NAME[name], args, {}, out)


ADDING = RoleProgram(
    "bob",
    Program(3, (op("torch.add", S(0), S(1), out=S(3)), op("torch.neg", S(2), out=S(4))), (S(3),)),
    (None, 1, 1),
    (None,),
)
"""bob adds an input of a user to a letter of alice, and needs another one for nothing."""


def by(rank: int) -> Any:
    """An input that comes later from this party."""
    return pack((rank,), Packer())


class Place:
    """bob, with a role, and what he sends."""

    def __init__(
        self, role: RoleProgram = ADDING, limits: PeerLimits | None = None, state: Any = ()
    ) -> None:
        self.core = sociable()
        if limits is not None:
            connect = self.core.connect
            self.core = WorkerCore("bob", connect, peer_limits=limits)
        self.core.allow_plans = True
        self.me, self.alice, self.eve = Peer("me"), Peer("alice"), Peer("eve")
        packer = Packer()
        self.told(Put(1, ROLE, pack(StoredRole(role, state), packer)), packer=packer)

    def told(self, message: Any, peer: Peer | None = None, packer: Packer | None = None) -> Any:
        """What bob says to each, because of a message."""
        frame = Frame(encode(message), packer.buffers if packer else [])
        letters = self.core.receive(frame, peer or self.me)
        return [
            (to.name if isinstance(to, Peer) else f"at {to}", decode(frame.header))
            for to, frame in letters
        ]

    def start(self, *inputs: Any, execution: int = 9, **changes: Any) -> Any:
        about: dict[str, Any] = {"outs": (OUT,), "parties": PARTIES, "rank": 0, **changes}
        args = (ref(ROLE), *inputs)
        return self.told(Start(5, int(CollectiveCode.ROLE), execution, args=args, **about))

    def letter(self, number: int, rank: int, peer: Peer, **changes: Any) -> Any:
        packer = Packer()
        value = pack(changes.pop("value", torch.ones(2)), packer)
        execution = changes.pop("execution", 9)
        return self.told(Exchange(execution, number, rank, (value,), **changes), peer, packer)

    def is_clean(self) -> bool:
        accounts = [one.account for one in (self.me, self.alice, self.eve)]
        charged = any(one.promises or one.executions or one.letters for one in accounts)
        return not (self.core.sessions or self.core.store.promised or charged)


# ------------------------------------------------------------------------- starts that are refused


@pytest.mark.parametrize(
    ("argument", "error"),
    [
        ([REF], MalformedMessage),
        ([REF, [4]], MalformedMessage),
        ([REF, 4, "deep"], ObjectNotFound),
        ((), MalformedMessage),
        ([REF, 4], ObjectNotFound),
        (pack((7,), Packer()), MalformedMessage),
        (pack((1, 2), Packer()), MalformedMessage),
        ((1, 2), MalformedMessage),
    ],
)
def test_a_start_that_names_no_input_leaves_nothing(argument: Any, error: type[Exception]) -> None:
    place = Place(SENDING)
    told = place.start(argument, outs=())
    assert {to for to, _ in told} == {"at alice", "me"}, "who waits for what it sends is told"
    (failure,) = [message for to, message in told if to == "me"]
    (abort,) = [message for to, message in told if to == "at alice"]
    assert type(error_in(failure)) is error and type(abort) is Abort
    assert place.is_clean()
    again = place.start(argument, outs=())
    assert "a fresh execution" in str(error_in(again[-1][1])) and len(again) == 1


SENDING = RoleProgram(
    "bob", Program(1, (op("torch.Tensor.add_", S(0), 1, out=S(1)),), (S(1),)), (None,), (1,)
)
"""bob adds one to an input of a user, in place, and sends it to alice."""


def test_a_start_that_may_not_write_leaves_nothing() -> None:
    place = Place(SENDING)
    put(place.core, 4, torch.ones(2), place.eve)
    told = place.start(ref(4), outs=())
    assert {to for to, _ in told} == {"at alice", "me"} and place.is_clean()
    assert type(error_in(told[-1][1])) is PermissionDenied


def test_a_start_for_which_there_is_no_room_to_wait_leaves_nothing() -> None:
    place = Place(SENDING, PeerLimits(parked=1))
    core = place.core
    put(core, 4, torch.ones(2), place.me)
    for id in (40, 41):
        core.store.promise(id)
    add = BY_NAME["torch.add"]
    place.told(Command(6, add, (ref(40), ref(4)), 50, 0))
    told = place.start(ref(41), outs=())
    assert {to for to, _ in told} == {"at alice", "me"} and not core.sessions
    assert type(error_in(told[-1][1])) is LimitExceeded
    assert place.me.account.executions == 0


@pytest.mark.parametrize("outs", [(70, 70), (-70, 71), (0, 71)])
def test_results_have_ids_of_their_own(outs: tuple[int, ...]) -> None:
    program = Program(1, (), (S(0), S(0)))
    place = Place(RoleProgram("bob", program, (None,), (None, None)))
    ((_, failure),) = place.start(3, outs=outs)
    assert type(error_in(failure)) is MalformedMessage and place.is_clean()


@pytest.mark.parametrize(
    ("inputs", "changes", "text"),
    [
        ((), {}, "$.args: expected 1 inputs of users, got 0"),
        ((3, 4), {}, "$.args: expected 1 inputs of users, got 2"),
        ((pack("three", Packer()),), {}, "$.args[0]: expected a tensor here or a number"),
        ((3,), {"outs": ()}, "$.outs: expected 1 ids, got 0"),
        ((3,), {"outs": (70, 71)}, "$.outs: expected 1 ids, got 2"),
        ((3,), {"parties": ("bob",)}, "the 2 roles of the protocol, each another worker"),
        ((3,), {"parties": ("alice", "bob"), "rank": 1}, "each another worker"),
    ],
)
def test_a_start_that_does_not_fit_its_role_says_where(
    inputs: Any, changes: dict[str, Any], text: str
) -> None:
    place = Place()
    given = {"parties": ("bob", "alice"), **changes}
    told = place.start(*inputs, **given)
    error = error_in(told[-1][1])
    assert told[-1][0] == "me" and type(error) is MalformedMessage and text in str(error)
    assert place.is_clean()


def test_only_roles_are_started() -> None:
    place = Place()
    put(place.core, 4, torch.ones(2), place.me)
    start = Start(5, int(CollectiveCode.ROLE), 9, PARTIES, 0, (ref(4), 3), (OUT,))
    (error,) = [error_in(message) for to, message in place.told(start) if to == "me"]
    assert type(error) is MalformedMessage and "expected a role, got Tensor" in str(error)
    assert place.is_clean()


@pytest.mark.parametrize("whose", ["everybody", "one"])
def test_a_role_that_is_there_runs_no_more_when_plans_are_not_allowed(whose: str) -> None:
    place = Place()
    if whose == "one":
        place.me.plans = False
    else:
        place.core.allow_plans = False
    told = place.start(3)
    assert type(error_in(told[-1][1])) is PlansNotAllowed and place.is_clean()


def test_what_is_no_tensor_and_no_number_is_not_sent() -> None:
    reads = Program(1, (op("torch.Tensor.dtype.__get__", S(0), out=S(1)),), (S(1),))
    place = Place(RoleProgram("bob", reads, (None,), (1,)))
    put(place.core, 4, torch.ones(2), place.me)
    told = place.start(ref(4), outs=())
    (abort,) = [message for to, message in told if to == "at alice"]
    assert type(abort) is Abort and abort.numbers == (0,), "alice, who waits for it, is told"
    error = error_in(told[-1][1])
    assert type(error) is ProgramError and "output 0 is a dtype: send tensors" in str(error)
    assert place.is_clean()


# ----------------------------------------------------------------- letters that will not come


def lost(*numbers: int, text: str = "no", execution: int = 9, rank: int = 1) -> Abort:
    return Abort(execution, rank, text, numbers, pack_error(ValueError(text), Packer()))


def test_letters_that_will_not_come_are_counted_before_a_start() -> None:
    place = Place(limits=PeerLimits(letters=5000))
    account = place.alice.account
    assert place.told(lost(0, text="x" * 900), place.alice) == []
    assert account.letters > 900, "the error too"
    place.told(lost(0), place.alice)
    first = account.letters
    assert place.told(lost(0), place.alice) and account.letters == first, "it has come"
    told = place.told(lost(*range(1, 2000)), place.alice)
    assert [(to, type(message)) for to, message in told] == [("at alice", Abort)], "once"
    assert account.letters == 0, "they count no more when the execution has failed"
    told = place.start(3)
    assert "peer_limits.letters" in str(error_in(told[-1][1])) and place.is_clean()


def test_no_letters_are_lost_that_nobody_has() -> None:
    place = Place()
    for number in (-1, 1 << 20):
        ((_, failure),) = place.told(lost(number), place.alice)
        assert type(error_in(failure)) is LimitExceeded and place.is_clean()
    ((_, failure),) = place.told(lost(*range(MAX_PARTY_MESSAGES + 1)), place.alice)
    assert type(error_in(failure)) is LimitExceeded and place.is_clean(), "alice is lost as a whole"
    told = place.start(3)
    assert "MAX_PARTY_MESSAGES" in str(error_in(told[-1][1])) and place.is_clean()


def test_a_letter_of_the_same_number_changes_no_charge() -> None:
    place = Place()
    for _ in range(3):
        place.letter(0, 1, place.alice)
        place.told(lost(0), place.alice)
    assert place.alice.account.letters == place.core.sessions[9].mailbox.bytes_of(place.alice.place)
    place.start(3)
    place.letter(1, 1, place.alice)
    assert place.is_clean() and OUT in place.core.store.objects


def test_letters_that_will_not_come_are_counted_while_they_wait_for_a_turn() -> None:
    role = RoleProgram("bob", Program(1, (op("torch.Tensor.add_", S(1), S(0)),), (), 1), (1,), ())
    place = Place(role, PeerLimits(letters=5000), [torch.zeros(2)])
    place.start(execution=9, outs=())
    place.start(execution=10, outs=())
    account = place.alice.account
    assert place.told(lost(0, text="x" * 900, execution=10), place.alice) == []
    assert (first := account.letters) > 900
    place.told(lost(0, text="x" * 900, execution=10), place.alice)
    assert account.letters == first, "once"
    place.letter(0, 1, place.alice)
    assert place.is_clean()


def test_letters_that_will_not_come_are_too_large_after_a_start_too() -> None:
    place = Place(limits=PeerLimits(letters=5000))
    place.start(3)
    told = place.told(lost(0, text="x" * 9000), place.alice)
    assert "peer_limits.letters" in str(error_in(told[-1][1])) and place.is_clean()


def test_that_a_letter_will_not_come_changes_nothing_once_it_has_come() -> None:
    place = Place()
    place.start(3)
    place.letter(0, 1, place.alice)
    assert place.told(lost(0), place.alice) == []
    place.letter(1, 1, place.alice)
    assert place.core.store.objects[OUT].tolist() == [4.0, 4.0] and place.is_clean()


def test_who_has_said_that_it_sends_nothing_sends_nothing() -> None:
    role = RoleProgram("bob", Program(1, (op("torch.Tensor.add_", S(1), S(0)),), (), 1), (1,), ())
    place = Place(role, state=[torch.zeros(2)])
    place.start(execution=9, outs=())
    place.start(execution=10, outs=())
    error = pack_error(ValueError("no"), Packer())
    assert place.told(Abort(10, 1, "no", None, error), place.alice) == []
    ((_, failure),) = place.letter(0, 1, place.alice, execution=10, seq=8)
    refused = error_in(failure)
    assert type(refused) is InputRefused and refused.why == "it was said that it would not come"
    told = [message for to, message in place.letter(0, 1, place.alice) if to == "me"]
    assert [type(message) for message in told] == [Done, Failure], "the second has failed"
    assert place.is_clean()


def test_long_errors_of_what_may_never_start_are_cut() -> None:
    place = Place()
    text = "y" * 100_000
    place.told(Abort(9, 1, text, None, pack_error(ValueError(text), Packer())), place.alice)
    (failed,) = place.core.aborted.values()
    assert len(failed.text) <= 1000 and len(str(failed.error)) < 3000
    told = place.start(3)
    assert type(error_in(told[-1][1])) is RemoteFailure


def gone(rank: int) -> Abort:
    error = pack_error(WorkerLost("alice", "its process has ended"), Packer())
    return Abort(9, rank, "alice is gone", None, error)


def test_who_has_started_an_execution_may_say_that_a_party_is_gone() -> None:
    """bob may have no connection to alice, over which he would hear it."""
    place = Place()
    place.start(3)
    place.letter(1, 1, place.alice)
    for peer, rank in ((place.eve, 1), (place.me, 7), (place.me, -1)):
        assert place.told(gone(rank), peer) == []
    assert 9 in place.core.sessions, "it may be said of a party, and by its starter"
    place = Place()
    place.start(3)
    ((to, failure),) = place.told(gone(1), place.me)
    assert to == "me" and type(error_in(failure)) is WorkerLost and place.is_clean()


# ---------------------------------------------------------------------- whose letters they are


def test_a_wrong_rank_ends_nothing() -> None:
    place = Place()
    place.start(by(2))
    ((_, failure),) = place.letter(FROM_USERS, 0, place.me, seq=8)
    refused = error_in(failure)
    assert type(refused) is InputRefused and refused.why == "its sender has rank 2, and says 0"
    assert place.letter(FROM_USERS, 2, place.me, seq=9) == [("me", Done(9))]
    assert place.letter(0, 7, place.alice) == [], "who is not asked is not told"
    place.letter(0, 1, place.alice)
    place.letter(1, 1, place.alice)
    assert place.core.store.objects[OUT].tolist() == [2.0, 2.0] and place.is_clean()


def test_a_wrong_rank_before_the_start_loses_that_letter() -> None:
    place = Place()
    place.letter(1, 7, place.alice)
    place.start(3)
    told = place.letter(0, 1, place.alice)
    assert "as alice has" in str(error_in(told[-1][1])), "one part has failed"
    assert place.core.store.objects[OUT].tolist() == [4.0, 4.0] and place.is_clean()


def test_who_is_no_party_is_not_told_who_is() -> None:
    place = Place()
    place.start(by(2))
    for number in (FROM_USERS, 0, 77):
        ((_, failure),) = place.letter(number, 1, place.eve, seq=8)
        assert error_in(failure).why == "it takes none from there"  # type: ignore[attr-defined]
    ((_, failure),) = place.letter(FROM_USERS, 1, place.alice, seq=8)
    assert "it is to come from 'me'" in str(error_in(failure)), "a party is told"


def test_an_execution_that_has_ended_is_not_opened_again() -> None:
    place = Place()
    place.core.place_of_caller = str
    eve = Peer("eve")
    program: Any = type("Program", (), {})()
    eve.place = program, "eve"
    place.start(3)
    for number in (0, 1):
        place.letter(number, 1, place.alice)
    place.core.store.drop(OUT, "nobody wants it")
    place.letter(0, 1, eve)
    assert 9 in place.core.sessions, "another program has executions of its own"
    ((_, failure),) = place.start(3)
    assert "a fresh execution" in str(error_in(failure))
    ((_, failure),) = place.letter(0, 1, place.alice, seq=8)
    assert error_in(failure).why == "it has ended"  # type: ignore[attr-defined]


def test_a_number_with_a_label_is_refused() -> None:
    """What is computed with it would be public: of a number nobody knows who may read it."""
    for users in (None, ("ann",)):
        place = Place()
        place.start(3)
        place.letter(1, 1, place.alice)
        told = place.letter(0, 1, place.alice, value=7, users=users)
        assert place.is_clean()
        if users is None:
            assert place.core.store.objects[OUT] == 10
        else:
            assert "a public number, or a tensor" in str(error_in(told[-1][1]))


def test_a_letter_has_one_tensor_or_number() -> None:
    several = (1, 2)
    for values in (("text",), several, ()):
        place = Place()
        place.start(3)
        place.letter(1, 1, place.alice)
        told = place.told(Exchange(9, 0, 1, values), place.alice)
        error = error_in(told[-1][1])
        assert type(error) is MalformedMessage and "one tensor or number" in str(error)
        assert place.is_clean()


@pytest.mark.parametrize("others", [False, True])
def test_an_unreadable_letter_before_a_start_is_told_with_that(others: bool) -> None:
    place = Place()
    unreadable: Any = ([999],)
    if others:
        place.letter(FROM_USERS, 2, place.me)
    place.told(Exchange(9, 0, 1, unreadable), place.alice)
    assert (9 in place.core.sessions) is others, "what another party has sent is kept"
    told = place.start(by(2))
    assert "malformed message" in str(error_in(told[-1][1])).lower() and place.is_clean()


def test_an_unreadable_letter_of_who_is_no_party_ends_nothing() -> None:
    unreadable: Any = ([999],)
    for early in (True, False):
        place = Place()
        if not early:
            place.start(3)
        place.letter(0, 1, place.alice)
        ((_, failure),) = place.told(Exchange(9, 0, 1, unreadable, seq=8), place.eve)
        assert type(error_in(failure)) is MalformedMessage
        if early:
            place.start(3)
        place.letter(1, 1, place.alice)
        assert place.core.store.objects[OUT].tolist() == [4.0, 4.0]


# ----------------------------------------------------------------------- how many there may be


def test_executions_of_some_stop_nobody_else() -> None:
    place = Place()
    several = [Peer(f"user {number}", f"user {number}") for number in range(3)]
    for number in range(MAX_SESSIONS + 1):
        message = Start(
            5, int(CollectiveCode.ROLE), 100 + number, PARTIES, 0, (ref(ROLE), 3), (900 + number,)
        )
        place.told(message, several[number % 3])
    assert sum(one.call is not None for one in place.core.sessions.values()) == MAX_SESSIONS + 1
    place.start(3, execution=9999)
    for number in (0, 1):
        place.letter(number, 1, place.alice, execution=9999)
    assert place.core.store.objects[OUT].tolist() == [4.0, 4.0]


def test_who_waits_for_letters_that_were_displaced_is_told() -> None:
    place = Place()
    for execution in range(9, 9 + MAX_SESSIONS + 1):
        place.letter(0, 1, Peer("alice"), execution=execution)
    told = place.start(3)
    assert "max_sessions" in str(error_in(told[-1][1])) and 9 not in place.core.sessions


def test_a_failure_that_cannot_be_told_ends_nothing_else() -> None:
    """alice is not known here any more when her letter is lost."""
    program = Program(
        2,
        (op("torch.Tensor.view", S(0), 7, out=S(2)), op("torch.neg", S(1), out=S(3))),
        (S(2), S(3)),
    )
    place = Place(RoleProgram("bob", program, (None, None), (1, None)))
    place.start(by(2), by(2))
    known = lonely()

    def addressed(name: str) -> Any:
        raise UnknownWorker(name, "bob", ())

    place.core.addressed = addressed
    place.letter(FROM_USERS, 2, place.me)
    place.letter(FROM_USERS + 1, 2, place.me)
    assert place.core.store.objects[OUT].tolist() == [-1.0, -1.0]
    assert place.is_clean() and not known.sessions
