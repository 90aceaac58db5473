"""Secure averages and rounds that go on when clients leave, whoever it is."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import (
    PermissionDenied,
    SyftError,
    TooFewClients,
    UnsupportedOperation,
    UnusableSetting,
    WorkerLost,
)
from syft.federated import secure_mean
from syft.federated.round_records import Why
from tests.workers.sockets.attacks.victim import Victim

NAMES = ("alice", "bob", "carl", "dora", "emil")


@pytest.fixture
def workers(hook: sy.TorchHook) -> list[sy.VirtualWorker]:
    return [sy.VirtualWorker(hook, id=name) for name in NAMES]


def sent(workers: Any, *values: float) -> dict[str, list[torch.Tensor]]:
    return {
        place.id: [torch.full((3,), float(value)).send(place)]
        for place, value in zip(workers, values, strict=True)
    }


def average(updates: Any, **options: Any) -> list[float]:
    (mean,) = sy.federated_average(updates, secure=True, **options)
    return [round(value, 5) for value in mean.tolist()]


def test_all_stay(workers: Any) -> None:
    updates = sent(workers, 1, 2, 3, 4, 5)
    weights = dict(zip(NAMES, (1, 2, 3, 4, 0), strict=True))
    assert average(updates, minimum=4) == [3.0] * 3
    assert average(updates, weights=weights, minimum=2) == [3.0] * 3
    assert average(list(updates.values())[:2], minimum=2) == [1.5] * 3


@pytest.mark.parametrize("gone", [0, 2, 4])
def test_one_is_gone_before(workers: Any, gone: int) -> None:
    updates = sent(workers, 1, 2, 3, 4, 5)
    weights = dict(zip(NAMES, (1, 2, 3, 4, 5), strict=True))
    workers[gone].close()
    left = [rank for rank in range(5) if rank != gone]
    wanted = sum((rank + 1) ** 2 for rank in left) / sum(rank + 1 for rank in left)
    with pytest.warns(UserWarning, match=f"Not in the average: {NAMES[gone]} .WorkerClosed."):
        found = average(updates, weights=weights, minimum=3)
    assert found == [round(wanted, 5)] * 3
    with pytest.raises(SyftError):  # the control: without a minimum all are needed
        average(updates, weights=weights)


@pytest.mark.parametrize("gone", [0, 2, 4])
def test_one_leaves_while_the_sum_is_made(
    hook: sy.TorchHook, gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any number of messages.  If the first one leaves, which adds, the others begin anew."""
    begin, seen = secure_mean.sum_of_those_left, set()
    without = (15 - (gone + 1)) / 4  # of carl it is the mean of all
    for messages in range(0, 44, 4):
        workers = [sy.VirtualWorker(hook, id=name, pipelined=True) for name in NAMES]
        updates = sent(workers, 1, 2, 3, 4, 5)
        sy.synchronize()
        asked: list[int] = []

        def begin_and_leave(*args: Any) -> Any:
            rows = begin(*args)
            if not asked:  # noqa: B023
                for _ in range(messages):  # noqa: B023
                    hook.local_worker.network.step()
                # To close a queued worker has it work off its queue: this one has no time to.
                hook.local_worker.network.lose(NAMES[gone], "its process has ended")
                workers[gone].close()  # noqa: B023
            asked.append(len(rows))  # noqa: B023
            return rows

        monkeypatch.setattr(secure_mean, "sum_of_those_left", begin_and_leave)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            found = average(updates, minimum=4)
        told = [str(warning.message) for warning in warned]
        assert found in ([3.0] * 3, [without] * 3)
        if found == [without] * 3 and gone != 2:
            assert len(told) == 1 and f"Not in the average: {NAMES[gone]} (" in told[0]
        elif gone != 2:
            assert not told
        seen.add((found[0], tuple(asked)))
        monkeypatch.undo()
        del updates
        for worker in workers:
            worker.close()
    if gone == 0:
        assert (without, (5, 4)) in seen
    assert {asked for _, asked in seen} <= {(5,), (5, 4)}


@pytest.mark.parametrize("closed", [True, False])
def test_what_stays_has_its_digits_when_most_of_the_weight_leaves(
    workers: Any, closed: bool
) -> None:
    """What the others add is 10^-12 of what they have: all of it was rounded away."""
    updates = sent(workers[:3], 1, 2, 3 if closed else float("nan"))
    if closed:
        workers[2].close()
    weights = dict(zip(NAMES, (1, 3, 1e12), strict=False))
    with pytest.warns(UserWarning, match="Not in the average: carl"):
        assert average(updates, weights=weights, minimum=2) == [1.75] * 3


def test_who_is_left_out_of_a_round_is_not_who_is_called_almost_so(hook: sy.TorchHook) -> None:
    places = [sy.VirtualWorker(hook, id=name) for name in ("lab", "lab at home", "zoe")]
    for round in sy.rounds(places, count=1, secure=True, minimum=2):
        for client in round.clients:
            value = float("nan") if client.id == "lab at home" else 1.0
            round.report(client, torch.full((1,), value).send(client))
        torch.testing.assert_close(round.average(), torch.ones(1), rtol=0, atol=1e-6)
        assert list(round.missing) == ["lab at home"] and list(round.updates) == ["lab", "zoe"]


def leave_at_the_sum(worker: Any, before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a worker leave just before the first sum is asked for, or when it is there."""
    begin = secure_mean.sum_of_those_left

    def begin_and_leave(*args: Any) -> Any:
        if before:
            worker.close()
        rows = begin(*args)
        worker.close()
        return rows

    monkeypatch.setattr(secure_mean, "sum_of_those_left", begin_and_leave)


@pytest.mark.parametrize(("gone", "wanted"), [(0, 3.5), (3, 2.75)])
def test_one_leaves_before_it_is_asked(
    workers: Any, monkeypatch: pytest.MonkeyPatch, gone: int, wanted: float
) -> None:
    updates = sent(workers, 1, 2, 3, 4, 5)
    leave_at_the_sum(workers[gone], True, monkeypatch)
    with pytest.warns(UserWarning, match=f"Not in the average: {NAMES[gone]} .WorkerClosed."):
        assert average(updates, minimum=4) == [wanted] * 3


def test_one_leaves_before_the_others_weigh_anew(
    workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of the weight has numbers without a place; dora is gone when the rest is weighed."""
    updates = sent(workers, 1, 2, float("nan"), 4, 5)
    weights = dict(zip(NAMES, (1, 1, 1e12, 1, 2), strict=True))
    leave_at_the_sum(workers[3], False, monkeypatch)
    with pytest.warns(UserWarning, match="Not in the average: carl .*, dora .WorkerClosed."):
        assert average(updates, weights=weights, minimum=2) == [3.25] * 3


def test_what_has_no_place_in_shares_is_named_also_if_it_is_here(workers: Any) -> None:
    updates = {"me": [torch.full((3,), float("nan"))], **sent(workers[:1], 1)}
    shares = {"workers": workers[1:3], "crypto_provider": workers[3]}
    with pytest.raises(UnusableSetting, match="others in '0' of update me"):
        average(updates, **shares)


def test_too_few_stay(workers: Any) -> None:
    updates = sent(workers, 1, 2, 3, 4, 5)
    for place in workers[:2]:
        place.close()
    with pytest.raises(
        TooFewClients, match="The secure sum has 3 of the 4 .*alice .Worker 'alice'"
    ):
        average(updates, minimum=4)
    with pytest.warns(UserWarning, match="Not in the average: alice .*, bob"):
        assert average(updates, minimum=3) == [4.0] * 3


def test_numbers_without_a_place_leave_their_client_out(workers: Any) -> None:
    updates = sent(workers, 1, 2, float("nan"), 4, 5)
    with pytest.warns(UserWarning, match="Not in the average: carl .UnsupportedOperation."):
        assert average(updates, minimum=4) == [3.0] * 3
    sy.synchronize()  # what was told is not raised again


def test_workers_clip_and_leave(workers: Any) -> None:
    updates = sent(workers, 1, 2, 1e6, 4, 5)
    workers[0].close()
    rule = sy.ClippedMean(3.0**0.5)
    with pytest.warns(UserWarning, match="alice"):
        assert average(updates, rule=rule, minimum=3) == [1.0] * 3


@pytest.mark.parametrize("minimum", [None, 3])
def test_integers_alone_are_what_they_are_around(workers: Any, minimum: int | None) -> None:
    """A clipped mean moves no integers: nothing is added up where there is nothing else."""
    updates = {place.id: [torch.tensor([3]).send(place)] for place in workers}
    rule = sy.ClippedMean(1.0, around=[torch.tensor([7])])
    (mean,) = sy.federated_average(updates, rule=rule, secure=True, minimum=minimum)
    assert mean.dtype is torch.int64 and mean.tolist() == [7]
    here = [[torch.tensor([3])], [torch.tensor([5])]]
    assert sy.federated_average(here, rule=rule)[0].tolist() == [7], "and so without secrecy"


def test_numbers_that_no_client_can_add_are_an_error(workers: Any) -> None:
    updates = sent(workers, *[float("nan")] * 5)
    with pytest.raises(UnsupportedOperation, match="NaN, infinity and numbers beyond 2.39 / 5"):
        average(updates, minimum=4)


def test_who_may_not_read_the_updates_gets_no_mean(hook: sy.TorchHook, workers: Any) -> None:
    def private(place: Any) -> Any:
        x: Any = torch.ones(3)
        own = {"allowed_users": ("ann",), "allow_destinations": NAMES}
        return [x.private_tensor(**own).send(place)]

    updates = {place.id: private(place) for place in workers}
    workers[4].close()
    with pytest.raises(PermissionDenied):
        average(updates, minimum=3)
    with pytest.warns(UserWarning, match="emil"):
        assert average(updates, minimum=3, user="ann") == [1.0] * 3


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"minimum": 1}, "minimum must be a whole number from 2, got 1"),
        ({"minimum": True}, "minimum must be a whole number from 2"),
        ({"minimum": 2, "secure": False}, "minimum must be left out, but with secure=True"),
    ],
)
def test_a_minimum_that_makes_no_sense_is_refused(
    workers: Any, options: dict[str, Any], error: str
) -> None:
    with pytest.raises(UnusableSetting, match=error):
        sy.federated_average(sent(workers, 1, 2, 3, 4, 5), **{"secure": True, **options})
    shares = {"workers": workers[:2], "crypto_provider": workers[2], "minimum": 2}
    with pytest.raises(UnusableSetting, match="but with secure=True and masks"):
        sy.federated_average(sent(workers, 1, 2, 3, 4, 5), **shares)


def test_secure_rounds_go_on(hook: sy.TorchHook) -> None:
    """One of four processes is stopped while the others add, and killed; who was left out is said,
    and the next round is without it."""
    with contextlib.ExitStack() as stack:
        where: dict[str, Any] = {"log": "ERROR", "dial": ["127.0.0.0/8"]}
        victims = {name: stack.enter_context(Victim(id=name, **where)) for name in NAMES[:4]}
        clients = [
            sy.WebsocketClientWorker(hook, port=victim.port, id=name)
            for name, victim in victims.items()
        ]
        model = nn.Linear(2, 1)
        run = sy.rounds(clients, count=3, minimum=2, secure=True, deadline=30)
        timer = None
        for round in run:
            values = {}
            for client in round.clients:
                with round.attempt(client):
                    copied: Any = model
                    copied = copied.copy().send(client)
                    nn.init.constant_(copied.weight, NAMES.index(client.id) + 1.0)
                    round.report(client, copied, samples=10)
                    values[client.id] = NAMES.index(client.id) + 1.0
            names = list(round.updates)
            if round.number == 1:
                os.kill(victims["carl"].pid, signal.SIGSTOP)
                timer = threading.Timer(0.3, victims["carl"].kill)
                timer.start()
            mean = round.average()
            left = [name for name in names if not (round.number and name == "carl")]
            wanted = sum(values[name] for name in left) / len(left)
            torch.testing.assert_close(
                mean["weight"], torch.full((1, 2), wanted), atol=1e-5, rtol=0
            )
        assert timer is not None
        timer.join()
        first, second, third = run.history
        assert list(first.reported) == list(NAMES[:4]) and not first.missing
        assert list(second.reported) == ["alice", "bob", "dora"] == list(third.reported)
        assert second.missing["carl"].why is Why.LOST and third.missing["carl"].why is Why.LOST
        for client in clients:
            with contextlib.suppress(WorkerLost):
                client.close()
