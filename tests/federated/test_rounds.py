"""Rounds in a user's loop: who is in them, what is late or lost, and runs that are resumed."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import FileRefused, TooFewClients, UnusableSetting
from syft.federated import round_loop
from syft.federated import run_file
from syft.federated.round_records import Why, sampled
from syft.tensors.pointer import make_pointer
from tests.federated.round_runs import ROUNDS, coordinate, run, save_again_and_again
from tests.shells.child import make_worker
from tests.shells.forked import ForkedProgram
from tests.workers.sockets.attacks.victim import Victim

NAMES = ("alice", "bob", "carol")


@pytest.fixture
def workers(hook: sy.TorchHook) -> list[sy.VirtualWorker]:
    return [sy.VirtualWorker(hook, id=name) for name in NAMES]


def report_ones(round: Any, *values: float) -> None:
    for client, value in zip(round.clients, values, strict=True):
        round.report(client, torch.full((2,), value).send(client), samples=value)


# -------------------------------------------------------------------------------------- reporting


@pytest.mark.every_shell
def test_a_round_is_the_average_of_what_is_reported(hook: sy.TorchHook) -> None:
    clients = [make_worker(hook, name) for name in NAMES]
    model = nn.Linear(2, 2)
    run = sy.rounds(clients, count=2, minimum=3, deadline=60)
    for round in run:
        copies = {}
        for client in round.clients:
            with round.attempt(client):
                copies[client.id] = model.copy().send(client)  # type: ignore[operator]
                copies[client.id].weight.data += round.number + len(copies)
                assert round.report(client, copies[client.id], len(copies))
        mean = round.average()
        torch.testing.assert_close(mean["weight"], model.weight + round.number + 14 / 6)
        assert torch.equal(mean["bias"], model.bias)
        assert copies["bob"].weight.location is clients[1]  # they stay where they are
    assert [record.reported for record in run.history] == [{"alice": 1, "bob": 2, "carol": 3}] * 2
    for client in clients:
        client.close()


@pytest.mark.parametrize(
    ("make", "check"),
    [
        (lambda x: x, lambda mean: mean.tolist() == [2.0, 2.0]),
        (lambda x: [x], lambda mean: mean[0].tolist() == [2.0, 2.0]),
        (lambda x: {"a": x}, lambda mean: mean["a"].tolist() == [2.0, 2.0]),
    ],
)
def test_an_average_is_of_the_kind_of_the_updates(make: Any, check: Any, workers: Any) -> None:
    for place in (lambda x, client: x, lambda x, client: x.send(client)):
        for round in sy.rounds(workers, count=1, rule="median"):
            for client, value in zip(round.clients, (1.0, 2.0, 9.0), strict=True):
                round.report(client, make(place(torch.full((2,), value), client)))
            assert check(round.average())


def test_who_fails_is_missing_and_an_error_of_the_program_is_raised(workers: Any) -> None:
    alice, bob, carol = workers
    bob.close()
    run = sy.rounds(workers, count=1)
    for round in run:
        with round.attempt(alice):  # fails there: shapes do not fit
            torch.ones(2).send(alice) @ torch.ones(3).send(alice)
        with round.attempt(bob):
            round.report(bob, torch.ones(2).send(bob))
        with pytest.raises(ZeroDivisionError), round.attempt(carol):
            _ = 1 / 0
        assert not round.report(alice, torch.ones(2))
        assert round.report(carol, torch.ones(2).send(carol))
        assert round.average().tolist() == [1.0, 1.0]
    (record,) = run.history
    assert record.reported == {"carol": 1}
    assert record.missing["alice"].why is Why.FAILED
    assert "size" in record.missing["alice"].text
    assert record.missing["bob"].why is Why.LOST and "'bob' is closed" in str(record.missing["bob"])


def test_an_error_that_comes_later_is_data_too(hook: sy.TorchHook) -> None:
    clients = [sy.VirtualWorker(hook, id=name, pipelined=True) for name in NAMES]
    run = sy.rounds(clients, count=2)
    for round in run:
        for client in round.clients:
            with round.attempt(client):
                x: Any = torch.ones(2).send(client)
                wrong = client.id == "bob" and round.number == 0
                round.report(client, x.view(7) if wrong else x + 1)
        assert round.average().tolist() == [2.0, 2.0]
    assert [sorted(record.missing) for record in run.history] == [["bob"], []]
    assert run.history[0].missing["bob"].why is Why.FAILED


def test_what_is_late_is_in_no_round(workers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(round_loop, "monotonic", lambda: now[0])
    alice, bob, carol = workers
    run = sy.rounds(workers, count=2, deadline=30)
    late: Any = None
    for round in run:
        assert round.report(alice, torch.ones(1).send(alice))
        if round.number:
            assert late.report(bob, torch.ones(1) * 50) is False
            assert round.report(bob, torch.ones(1) * 3)
        now[0] += 31
        assert round.report(carol, torch.ones(1) * 99) is False
        assert round.average().tolist() == [2.0 if round.number else 1.0]
        late = round
    first, second = run.history
    assert {name: str(one) for name, one in first.missing.items()} == {
        "bob": "silent",
        "carol": "late",
    }
    assert second.reported == {"alice": 1, "bob": 1}


def test_rounds_and_runs_say_what_they_are(workers: Any) -> None:
    run = sy.rounds(workers, count=2, sample=2)
    assert repr(run) == "<rounds with 3 clients, the next one is 0>"
    for round in run:
        assert repr(round) == f"<round {round.number} with {', '.join(round.asked)}>"
    assert repr(run) == "<rounds with 3 clients, the next one is 2>"


def test_who_is_in_a_round_stays_in_it_when_more_is_asked_of_it(workers: Any) -> None:
    for round in sy.rounds(workers, count=1):
        report_ones(round, 1.0, 2.0, 3.0)
        assert list(round.updates) == list(NAMES)
        with round.attempt(workers[0]):  # fails there: shapes do not fit
            torch.ones(2).send(workers[0]) @ torch.ones(3).send(workers[0])
        assert not round.missing
        torch.testing.assert_close(round.average(), torch.full((2,), 14 / 6))


@pytest.mark.parametrize("begins", [True, False])
def test_a_queue_that_is_worked_off_too_late_is_late(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    """Bob works on what he was asked beyond the deadline, or nobody waits for him before."""
    clients = [sy.VirtualWorker(hook, id=name, pipelined=True) for name in NAMES[:2]]
    there, now = clients[1].core.store.objects, [100.0]
    monkeypatch.setattr(round_loop, "monotonic", lambda: now[0] + 31 * bool(there))
    for round in sy.rounds(clients, count=1, deadline=30):
        for client in round.clients:
            round.report(client, torch.ones(2).send(client) + 1)
        now[0] += 0 if begins else 31
        late = {"bob"} if begins else set(NAMES[:2])
        assert round.updates.keys() == set(NAMES[:2]) - late
        assert {name: str(why) for name, why in round.missing.items()} == dict.fromkeys(
            late, "late"
        )


def test_a_worker_that_does_not_answer_is_late_and_the_others_are_not(hook: sy.TorchHook) -> None:
    """One worker is stopped for longer than the deadline; what it does later is not mixed in."""
    import os
    import signal

    with contextlib.ExitStack() as stack:
        victims = {name: stack.enter_context(Victim(id=name, log="ERROR")) for name in NAMES[:2]}
        clients = [
            sy.WebsocketClientWorker(hook, port=victim.port, id=name)
            for name, victim in victims.items()
        ]
        run = sy.rounds(clients, count=2, deadline=1.0)
        for round in run:
            if round.number == 0:
                stop_all_of(victims["alice"].pid)
            for client in round.clients:
                with round.attempt(client):
                    round.report(client, torch.full((2,), 1.0 + round.number).send(client) + 1)
            assert round.average().tolist() == [2.0 + round.number] * 2
            if round.number == 0:
                os.kill(victims["alice"].pid, signal.SIGCONT)
        first, second = run.history
        assert first.missing["alice"].why is Why.LATE and list(first.reported) == ["bob"]
        assert list(second.reported) == ["alice", "bob"]
        for client in clients:
            client.close()


def stop_all_of(process: int) -> None:
    """Stop a process, and wait until each of its threads is stopped."""
    import os
    import signal

    os.kill(process, signal.SIGSTOP)
    until = time.monotonic() + 30
    for thread in Path(f"/proc/{process}/task").iterdir():
        while "State:\tT" not in (thread / "status").read_text():
            assert time.monotonic() < until
            time.sleep(0.01)


def test_what_the_program_raises_while_it_waits_is_raised(hook: sy.TorchHook) -> None:
    """An alarm of its own rings while it waits for a worker, which is not missing by that."""
    import os
    import signal

    class Alarm(Exception):
        """An alarm of the program."""

    def ring(number: int, frame: Any) -> None:
        raise Alarm

    with Victim(id="bob", log="ERROR") as victim:
        bob = sy.WebsocketClientWorker(hook, port=victim.port, id="bob")
        before = signal.signal(signal.SIGALRM, ring)
        for round in sy.rounds([bob], count=1, deadline=60):
            x = torch.ones(2).send(bob)
            stop_all_of(victim.pid)
            round.report(bob, x + 1)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            try:
                with pytest.raises(Alarm):
                    round.average()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                os.kill(victim.pid, signal.SIGCONT)
                signal.signal(signal.SIGALRM, before)
            assert not round.missing and round.average().tolist() == [2.0, 2.0]
        bob.close()


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (torch.tensor([1.0, torch.nan]), "NaN in ''"),
        (torch.tensor([1.0, torch.inf]), "unlike those of most"),
        (torch.ones(3), "unlike those of most"),
        (torch.ones(2, dtype=torch.float64), "unlike those of most"),
        ([torch.ones(2)], "unlike those of most"),
        (torch.tensor([1.0, torch.inf]).bfloat16(), "dtypes unlike those of most"),
        (torch.ones(2).to(torch.float8_e4m3fn), "dtypes unlike those of most"),
        (torch.eye(2).to_sparse_csr(), "shapes or dtypes unlike those of most"),
        (torch.tensor([torch.inf, 0.0]).to_sparse(), "infinities or integers"),
        (torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "dtypes unlike"),
        (torch.ones(2, device="meta"), "unlike those of most"),
    ],
)
def test_a_bad_update_is_left_out_by_name(workers: Any, update: Any, text: str) -> None:
    alice, bob, carol = workers
    run = sy.rounds(workers, count=1)
    for round in run:
        round.report(alice, torch.ones(2))
        round.report(bob, update)
        round.report(carol, torch.ones(2) * 3)
        assert round.average().tolist() == [2.0, 2.0]
    missing = run.history[0].missing["bob"]
    assert missing.why is Why.REFUSED and text in missing.text


@pytest.mark.parametrize("rule", ["mean", "median"])
def test_a_large_integer_is_a_bad_update_unless_most_have_it(workers: Any, rule: Any) -> None:
    for bad, usual in ((2**60, 3), (3, 2**60)):
        for round in sy.rounds(workers, count=1, rule=rule):
            for client, count in zip(round.clients, (usual, bad, usual), strict=True):
                round.report(client, [torch.ones(1), torch.tensor(count)])
            assert int(round.average()[1]) == usual
            assert round.missing["bob"].why is Why.REFUSED


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_masks_of_half_precision_have_an_average(workers: Any, dtype: torch.dtype) -> None:
    mask = torch.tensor([1.0, -torch.inf], dtype=dtype)
    for round in sy.rounds(workers, count=1):
        for client in round.clients:
            round.report(client, mask.clone())
        assert torch.equal(round.average(), mask) and not round.missing


def test_what_torch_cannot_read_is_a_bad_update_too(workers: Any) -> None:
    strange = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    for round in sy.rounds(workers[:2], count=1):
        for client in round.clients:
            round.report(client, strange)
        assert not round.updates
        assert "isnan" in round.missing["bob"].text or "quint" in round.missing["bob"].text


@pytest.mark.parametrize("kind", ["tensor", "list", "module"])
def test_what_comes_in_the_place_of_a_tensor_is_a_bad_update(workers: Any, kind: str) -> None:
    """Bob says that his update is what this program alone may read, or something else."""
    secret = (torch.ones(1, 2) * 9).send(workers[2])
    id = int(cast(Any, secret).id_at_location)
    connection = cast(Any, workers[1]).connection_to(workers[2])
    fixed: Any = torch.ones(1, 2)
    for wrong in (make_pointer(connection, id, False), fixed.fix_precision()):
        for round in sy.rounds(workers, count=1):
            for client in round.clients:
                x: Any = nn.Linear(2, 1) if kind == "module" else torch.ones(1, 2)
                x = x.send(client)
                if client.id == "bob":
                    at = int((x.weight if kind == "module" else x).id_at_location)
                    client.core.store.objects[at] = wrong
                round.report(client, [x] if kind == "list" else x)
            round.average()
            missing = round.missing["bob"]
            assert missing.why is Why.REFUSED and "no plain tensor" in missing.text
    assert secret.get().tolist() == [[9, 9]]


def test_an_update_of_another_form_is_left_out_of_a_secure_round(workers: Any) -> None:
    for wrong in (torch.ones(3), torch.ones(2, dtype=torch.float64)):
        for round in sy.rounds(workers, count=1, secure=True, minimum=2):
            for client in round.clients:
                x = wrong if client.id == "bob" else torch.ones(2)
                round.report(client, x.send(client))
            assert round.average().tolist() == [1.0, 1.0]
            assert round.missing["bob"].why is Why.REFUSED


def test_masks_that_all_have_are_no_bad_updates(workers: Any) -> None:
    mask = torch.tensor([0.0, -torch.inf])
    for round in sy.rounds(workers, count=1):
        for client in round.clients[:2]:
            round.report(client, [mask.clone(), torch.ones(1)])
        round.report(round.clients[2], [torch.zeros(2), torch.ones(1) * 9])  # alone, though finite
        assert torch.equal(round.average()[0], mask)


def test_too_few_clients_are_said_by_name_and_the_loop_may_go_on(workers: Any) -> None:
    run = sy.rounds(workers, count=2, minimum=2)
    workers[0].close()
    seen = []
    for round in run:
        with round.attempt(workers[0]):
            round.report(workers[0], torch.ones(1).send(workers[0]))
        round.report(workers[1], torch.ones(1).send(workers[1]))
        try:
            round.average()
        except TooFewClients as error:
            seen.append((error.what, error.reported, error.minimum, str(error)))
    assert [parts[:3] for parts in seen] == [("Round 0", 1, 2), ("Round 1", 1, 2)]
    assert re_match(seen[0][3], "alice (lost: Worker 'alice' is closed", "carol (silent)")


def re_match(text: str, *parts: str) -> bool:
    return all(part in text for part in parts)


def test_a_lost_worker_may_be_put_back(hook: sy.TorchHook, workers: Any) -> None:
    run = sy.rounds(workers, count=2, minimum=3)
    workers[0].close()
    for round in run:
        if round.number == 0:
            continue
        run.clients["alice"] = sy.VirtualWorker(hook, id="alice")
        report_ones(round, 1.0, 2.0, 3.0)
        assert len(round.updates) == 3


@pytest.mark.every_shell
def test_secure_rounds(hook: sy.TorchHook) -> None:
    clients = [make_worker(hook, name) for name in NAMES]
    for round in sy.rounds(clients, count=1, minimum=2, secure=True, deadline=60):
        for client, value in zip(round.clients, (1.0, 2.0, 3.0), strict=True):
            round.report(client, [torch.full((2,), value).send(client)], samples=value)
        (mean,) = round.average()
        torch.testing.assert_close(mean, torch.full((2,), 14 / 6), atol=1e-6, rtol=0)
        assert round.updates["bob"][0].location is clients[1]
    for client in clients:
        client.close()


# --------------------------------------------------------------------------------------- sampling


def test_sampling_is_even_and_follows_from_names_seed_and_round(workers: Any) -> None:
    names = [f"client {number}" for number in range(10)]
    counts = Counter(name for number in range(3000) for name in sampled(names, 3, 7, number))
    assert min(counts.values()) > 780 and max(counts.values()) < 1020
    assert sampled(names, 3, 7, 0) == sampled(reversed(names), 3, 7, 0)
    assert len({tuple(sampled(names, 3, seed, 0)) for seed in range(50)}) > 20
    torch.manual_seed(1)
    first = [round.asked for round in sy.rounds(workers, count=9, sample=2, seed=4)]
    torch.manual_seed(2)
    again = [round.asked for round in sy.rounds(workers[::-1], count=9, sample=2, seed=4)]
    assert first == again and len(set(first)) == 3


def test_seeds_of_clients_differ_by_round_client_and_seed(workers: Any) -> None:
    seeds = {
        round.seed(client)
        for seed in range(3)
        for round in sy.rounds(workers, count=4, seed=seed)
        for client in round.clients
    }
    assert len(seeds) == 36


# ----------------------------------------------------------------------------------------- resuming


def killed_after(clients: Any, path: Path, rounds: int) -> None:
    """A run whose program ends in the midst of a round."""

    def say(number: int) -> None:
        if number == rounds:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(clients, path, say=say)


def test_a_run_goes_on_with_the_same_bits(workers: Any, tmp_path: Path) -> None:
    wanted, _ = run(workers, None)
    for rounds in (0, 1, 7, 19):
        killed_after(workers, tmp_path / "run.db", rounds)
        torch.manual_seed(99)
        random.seed(99)
    found, rounds_of = run(workers, tmp_path / "run.db")
    assert found == wanted
    assert [record.number for record in rounds_of.history] == list(range(ROUNDS))
    again, _ = run(workers, tmp_path / "run.db")  # nothing is left to do
    assert again == wanted
    assert [path.name for path in tmp_path.iterdir()] == ["run.db"]


def test_random_generators_go_on(workers: Any, tmp_path: Path) -> None:
    def draw(own: torch.Generator) -> tuple[float, ...]:
        drawn = float(torch.rand(1)), float(torch.rand(1, generator=own))
        return (*drawn, random.gauss(0, 1), float(np.random.randn()))

    def begun(path: Path | None, stop: int) -> list[Any]:
        torch.manual_seed(7)
        random.seed(7)
        np.random.seed(7)
        own, found = torch.Generator(), []
        for round in sy.rounds(workers, count=5, state=[own], resume=path):
            if round.number == stop:
                break
            found.append(draw(own))
        return found

    whole = begun(None, 5)
    first = begun(tmp_path / "run.db", 2)
    torch.manual_seed(99)
    assert first + begun(tmp_path / "run.db", 5) == whole


def test_a_run_with_everything_in_its_state(workers: Any, tmp_path: Path) -> None:
    def whole(stop: int | None) -> Any:
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)
        model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        own, count = torch.Generator().manual_seed(1), torch.zeros(1)
        state = [model, optimizer, schedule, own, count]
        path = None if stop is None else tmp_path / "whole.db"
        for round in sy.rounds(workers, count=6, state=state, resume=path):
            if round.number == stop:
                break
            scale = random.random() + np.random.rand() + float(torch.rand(1, generator=own))
            optimizer.zero_grad()
            (model(torch.randn(4, 2)).square().sum() * scale).backward()
            optimizer.step()
            schedule.step()
            count += 1
        return [*model.state_dict().values(), count, torch.tensor(schedule.get_last_lr())]

    wanted = whole(None)
    for stop in (3, 4, 9):
        found = whole(stop)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_clients_of_a_file_may_be_gone_and_others_are_another_run(
    hook: sy.TorchHook, workers: Any, tmp_path: Path
) -> None:
    path = tmp_path / "run.db"
    killed_after(workers, path, 2)
    _, rounds_of = run(workers[1:], path)
    absent = [record.missing.get("alice") for record in rounds_of.history]
    assert absent[:2] == [None, None] and {str(one) for one in absent[2:]} == {"absent"}
    dan = sy.VirtualWorker(hook, id="dan")
    with pytest.raises(FileRefused, match="its clients are alice, bob, carol, and not dan"):
        run([*workers, dan], path)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"seed": 6}, "seed is 5 there, and 6 here"),
        ({"sample": 2}, "sample is None there, and 2 here"),
        ({"rule": "median"}, r"rule is Mean\(\) there, and Median\(\) here"),
        ({"secure": True, "minimum": 2}, "secure is False there, and True here"),
        ({"state": [nn.Linear(3, 3)]}, r"state\[0\] is Linear of weight \(2, 3\)"),
        ({"state": [nn.Linear(3, 2)]}, r"state\[1\] is SGD there, and None here"),
    ],
)
def test_a_file_of_another_run_is_refused(
    workers: Any, tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    path = tmp_path / "run.db"
    killed_after(workers, path, 1)
    model = nn.Linear(3, 2)
    state = [model, torch.optim.SGD(model.parameters(), lr=0.7)]
    settings = {"seed": 5, "state": state, **options}
    before = path.read_bytes()
    with pytest.raises(FileRefused, match=f"run.db': it is of another run: {problem}"):
        next(iter(sy.rounds(workers, resume=path, **settings)))
    assert path.read_bytes() == before


def opened(workers: Any, path: Path) -> Any:
    return next(iter(sy.rounds(workers, state=[nn.Linear(3, 2)], resume=path)))


def test_a_file_that_was_cut_or_changed_is_refused(workers: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    whole = b""
    for _ in sy.rounds(workers, count=3, state=[nn.Linear(3, 2)], resume=path):
        whole = path.read_bytes()
    cuts = [0, 1, 15, 16, 99, 100, 4096, len(whole) // 2, len(whole) - 4096, len(whole) - 1]
    for cut in cuts:
        path.write_bytes(whole[:cut])
        with pytest.raises(FileRefused, match="run.db': it was cut"):
            opened(workers, path)
    changed = 0
    for at in random.Random(1).sample(range(len(whole)), 60):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with contextlib.suppress(FileRefused):  # a byte of the free room in a page is none of it
            assert opened(workers, path).number == 2
            changed -= 1
        changed += 1
    assert changed > 20
    path.write_bytes(whole)
    assert opened(workers, path).number == 2


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE rounds SET record = replace(record, 'silent', 'absent') WHERE number = 1",
        "DELETE FROM rounds WHERE number = 1",
        "UPDATE run SET number = 1",
        "UPDATE run SET settings = replace(settings, 'bob', 'eve')",
        "UPDATE state SET bytes = CAST(substr(bytes, 1, length(bytes) - 1) || x'07' AS BLOB)",
        "INSERT INTO run SELECT * FROM run",
        "DROP TABLE state",
    ],
)
def test_a_file_that_was_changed_as_a_database_is_refused(
    workers: Any, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "run.db"
    for _ in sy.rounds(workers, count=3, state=[nn.Linear(3, 2)], resume=path):
        pass
    with contextlib.closing(sqlite3.connect(path)) as base, base:
        assert base.execute(change).rowcount
    with pytest.raises(FileRefused, match="cut or changed"):
        opened(workers, path)


def test_a_sample_is_one_of_those_in_the_file(workers: Any, tmp_path: Path) -> None:
    """Of three clients that were sampled one is gone when the program starts again."""

    def asked(clients: Any, count: int, name: str = "run") -> list[tuple[str, ...]]:
        settings: Any = {"sample": 3, "resume": tmp_path / name, "state": [torch.zeros(1)]}
        run = sy.rounds(clients, count=count, **settings)
        return [(*(client.id for client in round.clients),) for round in run]

    assert asked(workers, 1) == [NAMES]
    assert asked(workers[:2], 2) == [NAMES[:2]]
    with pytest.raises(UnusableSetting, match="sample must be a whole number from 1 to 2"):
        asked(workers[:2], 2, "another")


def test_what_a_state_dict_lacks_goes_on_too(workers: Any, tmp_path: Path) -> None:
    """A buffer that is not persistent, and gradients that are added up over rounds."""

    def train(path: Path, stop: int | None = None) -> list[Any]:
        torch.manual_seed(1)
        model, scale = nn.Sequential(nn.Linear(2, 2)), torch.ones(2, requires_grad=True)
        model[0].register_buffer("seen", torch.zeros(2), persistent=False)
        seen: Any = model[0]
        for round in sy.rounds(workers[:1], count=4, state=[model, scale], resume=path):
            if round.number == stop:
                break
            (model(torch.rand(3, 2)) * scale).sum().backward()
            seen.seen += seen.seen + round.number + 1
            round.report(workers[0], [p.detach() + p.grad for p in model.parameters()])
            for p, value in zip(model.parameters(), round.average(), strict=True):
                p.data.copy_(value + seen.seen)
        return [*model.state_dict().values(), seen.seen, *(p.grad for p in model.parameters())] + [
            scale.grad
        ]

    whole = train(tmp_path / "whole")
    train(tmp_path / "cut", stop=2)
    assert all(map(torch.equal, train(tmp_path / "cut"), whole))


def test_what_is_no_file_of_a_run_is_refused(workers: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    path.write_text("weights")
    with pytest.raises(FileRefused, match="no file of sy.rounds"):
        opened(workers, path)
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE x (y)")
    with pytest.raises(FileRefused, match="no file of sy.rounds"):
        opened(workers, path)
    with pytest.raises(FileRefused, match="unable to open database file"):
        opened(workers, tmp_path / "nowhere" / "run.db")
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileRefused, match="unable to open database file"):
        opened(workers, tmp_path / "folder")


def test_a_file_of_another_version_is_refused(workers: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    killed_after(workers, path, 1)
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA user_version = 9")
    with pytest.raises(FileRefused, match="of version 9, and this syft reads version 2"):
        opened(workers, path)


@pytest.mark.parametrize("length", [250, 300])
def test_a_name_that_no_file_can_have_is_refused(workers: Any, tmp_path: Path, length: int) -> None:
    """The name is too long, or that of the file which is to be given the name."""
    with pytest.raises(FileRefused, match="File name too long.*name a file that can be made"):
        opened(workers, tmp_path / ("x" * length))


def test_a_state_that_does_not_fit_leaves_the_file_to_others(workers: Any, tmp_path: Path) -> None:
    """The optimizer of the file has one group, and this one has two: torch says that."""
    path = tmp_path / "run.db"

    def begun(groups: int) -> Any:
        weights = [torch.ones(2, requires_grad=True) for _ in range(2)]
        several = [{"params": weights}] if groups == 1 else [{"params": [x]} for x in weights]
        return next(iter(sy.rounds(workers, state=[torch.optim.SGD(several)], resume=path)))

    begun(1)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="different number of parameter groups"):
        begun(2)
    assert path.read_bytes() == before and begun(1).number == 0


def test_a_state_with_a_function_in_it_is_refused(workers: Any, tmp_path: Path) -> None:
    groups = [{"params": [torch.ones(2, requires_grad=True)], "own": lambda x: x}]
    run = sy.rounds(workers, state=[torch.optim.SGD(groups)], resume=tmp_path / "run.db")
    with pytest.raises(UnusableSetting, match="state must be of numbers, texts and tensors"):
        next(iter(run))
    assert not list(tmp_path.iterdir())


def test_one_program_at_a_time_uses_a_file(workers: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    for _ in sy.rounds(workers, count=1, state=[nn.Linear(3, 2)], resume=path):
        with pytest.raises(FileRefused, match="another process uses it"):
            opened(workers, path)
    assert "pickle" not in Path(round_loop.__file__).read_text()


def test_a_disk_that_is_full_loses_no_round(
    workers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(base: sqlite3.Connection, state: bytes) -> None:
        base.execute("INSERT INTO state VALUES (0, ?)", (state[:20],))
        raise sqlite3.OperationalError("database or disk is full")

    path, model = tmp_path / "run.db", nn.Linear(3, 2)
    with pytest.raises(FileRefused, match="it cannot be written or read .database or disk is full"):
        for round in sy.rounds(workers, count=3, state=[model], resume=path):
            if round.number == 1:
                monkeypatch.setattr(run_file, "_put_state", full)
    monkeypatch.undo()
    assert opened(workers, path).number == 1


def test_a_model_that_is_not_kept_is_told(workers: Any, tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    with pytest.warns(UserWarning, match="load the average into the objects of state="):
        for round in sy.rounds(workers, count=1, state=[model], resume=tmp_path / "run.db"):
            for client in round.clients:
                round.report(client, {"weight": torch.ones(1, 2)})
            round.average()


# --------------------------------------------------------------------------------- real processes


@pytest.fixture
def victims() -> Iterator[dict[str, Victim]]:
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(Victim(id=name, log="ERROR")) for name in NAMES}


def test_a_kill_at_any_moment_leaves_a_whole_file(hook: sy.TorchHook, tmp_path: Path) -> None:
    """Also while it is written, which is nearly always: the state is that of its round."""
    generator, path, last = random.Random(2), tmp_path / "run.db", -1
    with tempfile.TemporaryFile("w+") as log:
        for _ in range(12):
            program = ForkedProgram(save_again_and_again, str(path), error=log.fileno())
            line = program.stdout.readline()
            log.seek(0)
            assert line, log.read()[-3000:]
            assert int(line) >= last, "no round that has ended is lost"
            time.sleep(generator.random() * 0.1)
            program.kill()
            seen = [line, *program.stdout.read().split()]
            last = int(seen[-1])
            program.wait()
            program.close()
    bob = sy.VirtualWorker(hook, id="bob")
    count, large = torch.zeros(1), torch.zeros(300_000)
    round = next(iter(sy.rounds([bob], state=[count, large], resume=path)))
    assert last <= round.number <= last + 1 and float(count) == round.number
    assert {file.name for file in tmp_path.iterdir()} <= {"run.db", "run.db-journal"}


def test_a_killed_coordinator_and_a_killed_client_change_no_bit(
    hook: sy.TorchHook, victims: dict[str, Victim], tmp_path: Path
) -> None:
    """The coordinator is killed at random again and again, and one of three workers once."""
    generator = random.Random(0)
    path, kills, seen = tmp_path / "run.db", 0, -1
    ports = {name: victim.port for name, victim in victims.items()}
    with tempfile.TemporaryFile("w+") as log:
        while True:
            program = ForkedProgram(coordinate, ports, str(path), error=log.fileno())
            stop_after = generator.randrange(1, 4) if kills < 5 else 99
            line = ""
            for line in program.stdout:
                if not line.strip().isdigit():
                    break
                assert int(line) >= seen
                seen = int(line)
                stop_after -= 1
                if seen >= 6 and victims["bob"].process.poll() is None:
                    victims["bob"].kill()
                if not stop_after:
                    time.sleep(generator.random() * 0.1)
                    program.kill()
                    kills += 1
                    break
            program.wait()
            program.close()
            if len(line.strip()) == 64:
                break
            log.seek(0)
            assert stop_after <= 0, log.read()[-3000:]
    with contextlib.closing(sqlite3.connect(path)) as base:
        rows = base.execute("SELECT record FROM rounds ORDER BY number").fetchall()
    reporting = [list(json.loads(text)["reported"]) for (text,) in rows]
    assert kills == 5 and len(reporting) == ROUNDS
    assert reporting[0] == list(NAMES) and reporting[-1] == ["alice", "carol"]
    workers = [sy.VirtualWorker(hook, id=name) for name in NAMES]
    undisturbed, _ = run(workers, None, reporting)
    assert line.strip() == undisturbed
    everybody, _ = run(workers, None)  # the control: who reports makes a difference
    assert everybody != undisturbed


# ---------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"minimum": 0}, "minimum must be a whole number from 1 to 3, got 0"),
        ({"minimum": 4}, "minimum must be a whole number from 1 to 3, got 4"),
        ({"minimum": True}, "minimum must be"),
        ({"minimum": 3, "sample": 2}, "minimum must be a whole number from 1 to 2"),
        ({"minimum": 1, "secure": True}, "minimum must be a whole number from 2"),
        ({"sample": 4}, "sample must be a whole number from 1 to 3"),
        ({"count": -1}, "count must be a whole number from 0"),
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"deadline": 0}, "deadline must be seconds over 0"),
        ({"deadline": float("nan")}, "deadline must be seconds over 0"),
        ({"resume": "run.db"}, "state must be what a resumed run goes on with"),
        ({"state": [len]}, "state must be modules, optimizers"),
        ({"rule": "median", "secure": True, "minimum": 2}, "rule must be the mean"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    workers: Any, options: dict[str, Any], error: str
) -> None:
    with pytest.raises(UnusableSetting, match=error):
        sy.rounds(workers, **options)


def test_clients_and_reports_that_make_no_sense_are_refused(
    hook: sy.TorchHook, workers: Any
) -> None:
    for clients in ([], [workers[0], workers[0]], [1]):
        with pytest.raises(UnusableSetting, match="clients must be one worker or more"):
            sy.rounds(clients)
    there: Any = nn.Linear(1, 1)
    with pytest.raises(UnusableSetting, match="state must be in this process"):
        sy.rounds(workers, state=[there.send(workers[0])])
    for round in sy.rounds(workers, count=1, sample=1):
        (client,) = round.clients
        other = next(worker for worker in workers if worker is not client)
        with pytest.raises(UnusableSetting, match="client must be one that this round has asked"):
            round.report(other, torch.ones(1))
        for samples in (-1, float("nan"), "3", True):
            with pytest.raises(UnusableSetting, match="samples must be a finite number from 0"):
                round.report(client, torch.ones(1), samples)  # type: ignore[arg-type]
        round.report(client, torch.ones(1))
        with pytest.raises(UnusableSetting, match="one that has not reported in this round"):
            round.report(client, torch.ones(1))
