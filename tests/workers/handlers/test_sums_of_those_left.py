"""Sums that go on when parties leave: at every step, against attackers, and over real processes."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import syft as sy
from syft.codes import CollectiveCode
from syft.crypto.mask_stream import MaskStream, ZeroShares
from syft.crypto.seed_sharing import SHARE_BYTES, KeyPair, fewest, joined
from syft.exceptions import (
    PermissionDenied,
    RemoteFailure,
    UnsupportedOperation,
    UnknownWorker,
    WorkerClosed,
)
from syft.tensors.collective_call import sum_of_those_left
from syft.workers.handlers import executions, private_sums
from syft.workers.handlers.party_programs import PROGRAMS, Failed, Letter, Party
from syft.workers.wire.messages import Exchange
from tests.shells.child import make_worker
from tests.shells.owner import inspect
from tests.workers.sockets.attacks.victim import Victim

_PROGRAM = PROGRAMS[int(CollectiveCode.SUM_OF_THOSE_LEFT)]
STEPS = 9
"""More than the rounds of any party."""

Letters = dict[tuple[int, int, int], torch.Tensor]
"""By sender, receiver and number."""

Tamper = Callable[[int, int, int, Letters], torch.Tensor]


def honest(sender: int, receiver: int, number: int, letters: Letters) -> torch.Tensor:
    return letters[sender, receiver, number]


class Play:
    """A sum without workers: what each party has got, or why it has stopped, and all letters.

    Who is in ``leave`` goes in a step, after so many letters of that step.
    """

    def __init__(
        self,
        inputs: list[torch.Tensor],
        minimum: int,
        leave: Mapping[int, tuple[int, int]] | None = None,
        tamper: Tamper = honest,
    ) -> None:
        self.results: dict[int, Any] = {}
        self.stopped: dict[int, Exception] = {}
        self.letters: Letters = {}
        self._leave, self._tamper = dict(leave or {}), tamper
        self._programs = {
            rank: _PROGRAM(Party(rank, len(inputs)), x, minimum) for rank, x in enumerate(inputs)
        }
        self._waiting: dict[int, Any] = {}
        self._counts: Counter[tuple[int, int]] = Counter()
        self._steps: Counter[int] = Counter()
        for rank in list(self._programs):
            self._advance(rank, None)
        while any([self._read(rank) for rank in list(self._programs)]):
            pass
        assert not self._programs, "parties wait for each other"

    def _read(self, rank: int) -> bool:
        """Go on, if all is there for which a party waits."""
        found = {name: self._letter(rank, *name) for name in self._waiting[rank]}
        if any(one is None for one in found.values()):
            return False
        self._advance(rank, found)
        return True

    def _letter(self, rank: int, sender: int, number: int) -> Letter | None:
        if (sender, rank, number) in self.letters:
            return Letter((self._tamper(sender, rank, number, self.letters),))
        return None if sender in self._programs else Letter((), error=Failed((), "it has left"))

    def _advance(self, rank: int, received: Any) -> None:
        try:
            self._send(rank, self._programs[rank].send(received))
        except StopIteration as end:
            self.results[rank] = end.value
            del self._programs[rank]
        except Exception as error:
            self.stopped[rank] = error
            del self._programs[rank]

    def _send(self, rank: int, step: Any) -> None:
        after, letters = self._leave.get(rank, (STEPS, 0))
        leaves = self._steps[rank] == after
        for to, (tensor,) in itertools.islice(step.send.items(), letters if leaves else None):
            self.letters[rank, to, self._counts[rank, to]] = tensor
            self._counts[rank, to] += 1
        self._waiting[rank] = step.expect
        self._steps[rank] += 1
        if leaves:
            del self._programs[rank]


def check(played: Play, inputs: list[torch.Tensor], leave: Mapping[int, Any]) -> None:
    """All that stay have the sum of the same parties, and all that stay are in it."""
    stay = set(range(len(inputs))) - set(leave)
    assert played.results.keys() == stay and not played.stopped
    total, there = played.results[0]
    counted = [rank for rank, flag in enumerate(there.tolist()) if flag]
    assert stay <= set(counted)
    expected = torch.stack([inputs[rank] for rank in counted]).sum(0)
    for found, flags in played.results.values():
        assert torch.equal(flags, there)
        torch.testing.assert_close(found, expected, rtol=0, atol=len(inputs) * 2.0**-25)


def numbers(count: int) -> list[torch.Tensor]:
    return [torch.randn(5, dtype=torch.float64) for _ in range(count)]


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_all_stay(count: int) -> None:
    inputs = numbers(count)
    for minimum in {fewest(count), count}:
        check(Play(inputs, minimum), inputs, {})
    whole = [torch.tensor([[2**62, rank]]) for rank in range(count)]
    check(Play(whole, fewest(count)), whole, {})


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_parties_leave_anywhere(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 8))
    minimum = data.draw(st.integers(fewest(size), size))
    gone = data.draw(st.sets(st.integers(1, size - 1), max_size=size - minimum))
    step = st.tuples(st.integers(0, 6), st.integers(0, size))
    leave = {rank: data.draw(step) for rank in sorted(gone)}
    inputs = numbers(size)
    played = Play(inputs, minimum, leave)
    leave = {rank: at for rank, at in leave.items() if rank not in played.results}
    check(played, inputs, leave)


@settings(deadline=None, max_examples=40)
@given(st.integers(3, 7), st.integers(0, 5), st.integers(0, 6))
def test_too_few_stay(size: int, step: int, letters: int) -> None:
    gone = range(1, size - fewest(size) + 2)
    leave = {rank: (step, letters) for rank in gone}
    played = Play(numbers(size), fewest(size), leave)
    if played.results:  # what party 0 needs had come, from some that have left since
        assert step == 5
        return
    for rank, error in played.stopped.items():
        assert isinstance(error, RemoteFailure), rank
        assert "parties are left, and it needs" in str(error) or "has left" in str(error)


@pytest.mark.parametrize("step", range(7))
def test_the_first_party_leaves(step: int) -> None:
    played = Play(numbers(4), 3, {0: (step, 0)})
    for rank in range(1, 4):
        assert "the first party, which adds, has left" in str(played.stopped[rank])


def test_a_letter_that_cannot_be_read_is_one_that_has_not_come() -> None:
    inputs = numbers(5)
    for number, wrong in itertools.product((0, 1), (torch.zeros(2), torch.zeros(4, 4))):

        def tamper(sender: int, receiver: int, at: int, letters: Letters) -> torch.Tensor:
            changed = (sender, at) == (3, number)  # noqa: B023
            return wrong if changed else letters[sender, receiver, at]  # noqa: B023

        played = Play(inputs, 4, tamper=tamper)
        total, there = played.results[0]
        assert there.tolist() == [1, 1, 1, 0, 1]
        torch.testing.assert_close(total, sum(inputs) - inputs[3], rtol=0, atol=1e-6)
        assert "left this one out" in str(played.stopped[3])


def test_a_key_that_is_none_and_other_shapes_are_not_heard() -> None:
    inputs = [*numbers(4), torch.ones(6, dtype=torch.float64)]
    total, there = Play(inputs, 4).results[0]
    assert there.tolist() == [1, 1, 1, 1, 0]

    def tamper(sender: int, receiver: int, at: int, letters: Letters) -> torch.Tensor:
        tensor = letters[sender, receiver, at]
        if (sender, at) != (2, 0):
            return tensor
        return torch.cat([torch.zeros(4, dtype=torch.int64), tensor[4:]])

    assert Play(numbers(5), 4, tamper=tamper).results[0][1].tolist() == [1, 1, 0, 1, 1]


def test_shares_of_another_key_than_its_own_end_the_sum() -> None:
    """Party 3 has split a secret of 32 bytes that is not that of its key, and leaves: the masks
    that the others have with it would follow from another key, and stay in the sum."""

    def tamper(sender: int, receiver: int, at: int, letters: Letters) -> torch.Tensor:
        tensor = letters[sender, receiver, at]
        wrong = (sender, at) == (3, 1)
        return torch.cat([tensor[SHARE_BYTES:], tensor[:SHARE_BYTES]]) if wrong else tensor

    inputs, leave = numbers(5), {3: (4, 0)}
    played = Play(inputs, 4, leave, tamper)
    assert "party 3 has not given shares of its secrets" in str(played.stopped[0])
    assert not played.results
    honestly = Play(inputs, 4, leave)
    assert honestly.results[0][1].tolist() == [1, 1, 1, 0, 1], "the control"


@pytest.mark.parametrize("minimum", [0, 1, 2, 6])
def test_a_minimum_that_is_none_is_refused(minimum: int) -> None:
    with pytest.raises(UnsupportedOperation, match="4 to 5 of 5 parties"):
        next(_PROGRAM(Party(0, 5), torch.ones(1), minimum))


def test_nobody_makes_a_worker_split_seeds_for_hours() -> None:
    begun = time.monotonic()
    with pytest.raises(UnsupportedOperation, match="512 of them at most"):
        next(_PROGRAM(Party(0, 100_000), torch.ones(1), 100_000))
    next(program := _PROGRAM(Party(0, 512), torch.ones(1), 512))
    gone = Letter((), error=Failed((), "it has left"))
    program.send({(rank, 0): gone for rank in range(1, 512)})
    assert time.monotonic() - begun < 5


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 8), st.data())
def test_those_that_have_heard_of_each_other(size: int, data: st.DataObject) -> None:
    """Whatever parties say, those that party 0 chooses have all heard of each other; where most
    have, and a few of none, they are those."""
    ranks = st.sets(st.integers(0, size - 1))
    heard = {rank: data.draw(ranks) for rank in range(size)}
    found = private_sums.mutual(heard)
    assert 0 in found and set(found) <= set(heard)
    assert all(b in heard[a] for a in found for b in found if a != b)
    deaf = data.draw(st.sets(st.integers(1, size), max_size=(size - 1) // 2)) & set(heard)
    everybody = set(range(size))
    heard = {rank: set() if rank in deaf else everybody for rank in heard}
    assert private_sums.mutual(heard) == sorted(everybody - deaf)


def test_hostile_lists_cost_little() -> None:
    begun = time.monotonic()
    size = 512
    assert private_sums.mutual({rank: set() for rank in range(size)}) == [0]
    chain = {rank: {other for other in range(size) if other >= rank} for rank in range(size)}
    assert private_sums.mutual(chain) == [0]
    assert time.monotonic() - begun < 5


# ------------------------------------------------------------- no single update is ever opened


def opened(played: Play, victim: int, size: int, views: Mapping[int, list[int]]) -> torch.Tensor:
    """What the first party makes of all that it has got: the input of a party, if it has shares of
    both of its secrets.  ``views`` are the parties that it has said are in the sum, to each."""
    letters, together = played.letters, list(range(size))
    secret, seed = {}, {}
    mine = bytes(letters[victim, 0, 1].tolist())
    secret[1], seed[1] = mine[:SHARE_BYTES], mine[SHARE_BYTES:]
    for rank, view in views.items():
        text = bytes(letters[rank, 0, 5].tolist())
        at = together.index(victim) * SHARE_BYTES
        target = seed if victim in view else secret
        target[rank + 1] = text[at : at + SHARE_BYTES]
    pair = KeyPair(joined(secret))
    public = {
        rank: private_sums._key_in(letters[rank, 0, 0]) for rank in range(1, size) if rank != victim
    }
    public[0] = private_sums._key_in(letters[0, victim, 0])
    assert pair.public == private_sums._key_in(letters[victim, 0, 0])
    keys = {rank: pair.key_with(private_sums._PURPOSE, key) for rank, key in public.items()}
    masked = letters[victim, 0, 3]
    bare = masked - MaskStream(joined(seed)).draw(masked.shape)
    zero = ZeroShares(victim, keys).added(torch.zeros_like(bare))
    return (bare - zero).double() / 2**24


def test_a_first_party_that_lies_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says to party 3 that its numbers are in the sum, and to the others that they are not.

    The control: where the parties neither compare what they are told nor need more than half of
    all, it gets both secrets of party 3, and its input.
    """
    inputs, size = numbers(5), 5
    views = {1: [0, 1, 2, 4], 2: [0, 1, 2, 4], 3: [0, 1, 2, 3, 4], 4: [0, 1, 2, 4]}
    played = Play(inputs, 4, tamper=echoing(size, views))
    answered = [rank for rank in range(1, size) if (rank, 0, 5) in played.letters]
    assert answered == [1, 2, 4], "who is told another story than the others gives nothing"
    with pytest.raises(KeyError):
        opened(played, 3, size, views)

    monkeypatch.setattr(private_sums, "fewest", lambda parties: 2)
    monkeypatch.setattr(private_sums._PartOfThoseLeft, "compare", nothing)
    played = Play(inputs, 2, tamper=echoing(size, views))
    found = opened(played, 3, size, {3: views[3], 1: views[1]})
    torch.testing.assert_close(found, inputs[3], rtol=0, atol=1e-6)


def nothing(part: Any) -> Iterator[Any]:
    """A step in which letters are exchanged, and not read."""
    yield part._to_all(part._view(), part.party.others)


@pytest.mark.parametrize("size", [3, 4, 5, 6, 7])
def test_no_story_gets_both_secrets_of_a_party(size: int) -> None:
    """Whatever party 0 says to each about one of them, it never has enough shares of both."""
    minimum, victim = fewest(size), 1
    everybody = list(range(size))
    without = [rank for rank in everybody if rank != victim]
    answered = 0
    for told in itertools.product((everybody, without), repeat=size - 1):
        views = dict(enumerate(told, start=1))
        played = Play(numbers(size), minimum, tamper=echoing(size, views))
        given: Counter[bool] = Counter()
        for rank, view in views.items():
            if (rank, 0, 5) in played.letters:
                given[victim in view] += 1
        assert min(given[True], given[False]) == 0
        answered += sum(given.values())
    assert answered, "where enough are told the same, they answer"


def echoing(size: int, views: Mapping[int, list[int]]) -> Tamper:
    """A first party that tells each another story of who is in the sum, and sends each the hash
    that it has just got from it."""

    def tamper(sender: int, receiver: int, number: int, letters: Letters) -> torch.Tensor:
        if sender == 0 and number == 3:
            return private_sums._flags(views[receiver], size)
        if sender == 0 and number == 4:
            return letters[receiver, 0, 4]
        return letters[sender, receiver, number]

    return tamper


def test_what_the_first_party_gets_of_a_party_is_uniform() -> None:
    """An input of zeros: what is left of it when all known masks are off has random bits."""
    count = 500
    inputs = [torch.zeros(count, dtype=torch.int64) for _ in range(4)]
    played = Play(inputs, 3)
    masked = played.letters[2, 0, 3]
    shares = {1: bytes(played.letters[2, 0, 1].tolist())[SHARE_BYTES:]}
    for rank in (1, 2, 3):
        at = 2 * SHARE_BYTES
        shares[rank + 1] = bytes(played.letters[rank, 0, 5].tolist())[at : at + SHARE_BYTES]
    seed = joined(dict(itertools.islice(shares.items(), 3)))
    bare = masked - MaskStream(seed).draw(masked.shape)  # its own mask is known, if it stays
    for left in (masked, bare):
        bits = (left.unsqueeze(1) >> torch.arange(64)) & 1
        assert bool(((bits.double().mean(0) - 0.5).abs() < 6 * 0.5 / count**0.5).all())


# ----------------------------------------------------------------------------------- over workers

NAMES = ("alice", "bob", "carl", "dora", "emil")


def totals(rows: Any) -> list[Any]:
    """What each party has: the sum and who is in it, or the class of an error."""
    found: list[Any] = []
    for row in rows:
        try:
            total, there = row if isinstance(row, list) else (row, row)
            if isinstance(row, WorkerClosed):
                raise row
            found.append((total.get().tolist(), there.get().tolist()))
        except sy.exceptions.SyftError as error:
            found.append(type(error))
    return found


@pytest.mark.every_shell
@pytest.mark.parametrize("pipelined", [False, True])
def test_workers_that_stay_have_the_sum(hook: sy.TorchHook, pipelined: bool) -> None:
    parties = [make_worker(hook, id=name, pipelined=pipelined) for name in NAMES]
    inputs = [torch.tensor([rank, 10.0]).send(place) for rank, place in enumerate(parties)]
    assert totals(sum_of_those_left(inputs, 4)) == [([10.0, 50.0], [1] * 5)] * 5
    parties[3].close()
    found = totals(sum_of_those_left(inputs, 4))
    assert found[3] in (WorkerClosed, sy.exceptions.WorkerLost)
    assert found[:3] + found[4:] == [([7.0, 40.0], [1, 1, 1, 0, 1])] * 4
    parties[2].close()
    found = totals(sum_of_those_left(inputs, 4))
    assert all(isinstance(one, type) for one in found)
    for rank in (0, 1, 4):
        assert not inspect(parties[rank]).executions
    for party in parties:
        party.close()


def test_a_worker_that_says_that_it_is_another_one_is_left_out(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dora's letters say that they are carl's; that failed the sum of all others."""

    def lying(execution: int, number: int, rank: int, *rest: Any) -> Exchange:
        return Exchange(execution, number, 2 if rank == 3 else rank, *rest)

    monkeypatch.setattr(executions, "Exchange", lying)
    places = [sy.VirtualWorker(hook, id=name) for name in ("alice", "bob", "carl", "dora")]
    xs = [torch.tensor([float(value)]).send(place) for value, place in enumerate(places)]
    rows: Any = sum_of_those_left(xs, 3)
    for row in rows[:3]:
        assert [one.get().tolist() for one in row] == [[3.0], [1, 1, 1, 0]]
    with pytest.raises(RemoteFailure, match="left this one out"):
        rows[3][0].child.handle.result()
    sy.synchronize()


@pytest.mark.parametrize(("one", "other", "left_out"), [(0, 2, 2), (1, 3, 1), (3, 2, 2)])
def test_two_workers_without_a_connection_are_not_both_in_a_sum(
    hook: sy.TorchHook, one: int, other: int, left_out: int
) -> None:
    names = ("alice", "bob", "carl", "dora")
    places = [sy.VirtualWorker(hook, id=name) for name in names]

    def cut(here: int, there: int) -> None:
        core = places[here].core
        addressed = core.addressed

        def without(name: str) -> Any:
            if name == names[there]:
                raise UnknownWorker(name, core.name, ())
            return addressed(name)

        core.addressed = without  # type: ignore[method-assign]

    cut(one, other)
    cut(other, one)
    xs = [torch.tensor([float(value)]).send(place) for value, place in enumerate(places)]
    rows: Any = sum_of_those_left(xs, 3)
    stay = [int(rank != left_out) for rank in range(4)]
    for rank, row in enumerate(rows):
        if rank == left_out:
            with pytest.raises(RemoteFailure, match="the sum of those left failed"):
                row[0].child.handle.result()
        else:
            assert [one.get().tolist() for one in row] == [[6.0 - left_out], stay]


def test_a_worker_leaves_in_the_midst(hook: sy.TorchHook) -> None:
    """At each number of messages after which it may be."""
    seen = set()
    for messages in range(0, 60, 2):
        parties = [sy.VirtualWorker(hook, id=name, pipelined=True) for name in NAMES]
        inputs = [torch.tensor([2.0**rank]).send(place) for rank, place in enumerate(parties)]
        sy.synchronize()
        rows = sum_of_those_left(inputs, 4)
        for _ in range(messages):
            hook.local_worker.network.step()
        parties[2].close()
        found = totals(rows)
        stay = [found[rank] for rank in (0, 1, 3, 4)]
        assert stay[0] in [([27.0], [1, 1, 0, 1, 1]), ([31.0], [1] * 5)]
        assert stay == [stay[0]] * 4
        seen.add(stay[0][0][0])
        del rows, inputs
        for party in parties:
            party.close()
    assert seen == {27.0, 31.0}


def test_a_sum_is_as_private_as_what_is_in_it(hook: sy.TorchHook) -> None:
    parties = [sy.VirtualWorker(hook, id=name) for name in NAMES[:3]]
    x: Any = torch.tensor([5.0])
    hers = x.private_tensor(["ann"], allow_destinations=NAMES).send(parties[0], user="ann")
    others = [torch.ones(1).send(place) for place in parties[1:]]
    for row in sum_of_those_left([hers, *others], 3):
        total, there = row  # type: ignore[misc]
        for one in (total, there):
            with pytest.raises(PermissionDenied):
                one.get()
        assert total.get(user="ann").tolist() == [7.0]
    closed = x.clone().private_tensor(["ann"]).send(parties[0], user="ann")
    rows = sum_of_those_left([closed, *others], 3)
    with pytest.raises(PermissionDenied, match="may not go to"):
        rows[0][0].get(user="ann")  # type: ignore[index]
    for row in rows[1:]:
        with pytest.raises(sy.exceptions.SyftError):
            row[0].get()  # type: ignore[index]


def test_real_processes_of_which_one_is_killed_in_the_midst(hook: sy.TorchHook) -> None:
    """It is stopped first, so that the others wait for it, and then killed."""
    with contextlib.ExitStack() as stack:
        where = {"log": "ERROR", "dial": ["127.0.0.0/8"]}
        victims = {name: stack.enter_context(Victim(id=name, **where)) for name in NAMES[:4]}
        places = [
            sy.WebsocketClientWorker(hook, port=victim.port, id=name)
            for name, victim in victims.items()
        ]
        inputs = [torch.full((1000,), 1.0 + rank).send(at) for rank, at in enumerate(places)]
        first = totals(sum_of_those_left(inputs, 3))
        assert first == [([10.0] * 1000, [1] * 4)] * 4
        os.kill(victims["carl"].pid, signal.SIGSTOP)
        timer = threading.Timer(0.3, victims["carl"].kill)
        timer.start()
        begun = time.monotonic()
        found = totals(sum_of_those_left(inputs, 3))
        timer.join()
        assert found[2] is sy.exceptions.WorkerLost
        assert found[:2] + found[3:] == [([7.0] * 1000, [1, 1, 0, 1])] * 3
        assert time.monotonic() - begun < 20
        for place in places:
            place.close()
