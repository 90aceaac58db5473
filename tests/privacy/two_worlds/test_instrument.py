"""The instrument itself: it finds what leaks, and nothing where nothing does."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from syft.exceptions import PermissionDenied
from syft.ops import evaluate
from syft.ops.outcome import Outcome, Verdict
from syft.serde.frame import Frame
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.core import charges
from syft.workers.core.peer import Peer
from syft.workers.core.peer_limits import PeerLimits
from syft.workers.core.pipeline import Call
from syft.workers.core.state_machine import WorkerCore
from syft.workers.execution import private_commands
from syft.workers.handlers import commands
from syft.workers.wire import messages
from syft.workers.wire.messages import Command, Describe, Fetch, Value
from tests.privacy.two_worlds import __main__ as command_line
from tests.privacy.two_worlds import generator, runner, sizes_and_streams, world
from tests.privacy.two_worlds.attacks import Learned, check, check_all, learned, secret, zeros
from tests.privacy.two_worlds.beside_values import BESIDE_VALUES
from tests.privacy.two_worlds.biased_operands import BIASED
from tests.privacy.two_worlds.generator import CHAINS, GRADIENTS, LIMITS
from tests.privacy.two_worlds.leaks import LEAKS, look_for
from tests.privacy.two_worlds.observer import Observer
from tests.privacy.two_worlds.on_shares import ON_SHARES
from tests.privacy.two_worlds.prediction_caches import PredictionCaches
from tests.privacy.two_worlds.report import Report
from tests.privacy.two_worlds.runner import Child, reports_of, run_apart, run_here, run_program
from tests.privacy.two_worlds.samples import Samples
from tests.privacy.two_worlds.world import TwoWorlds, fixed, replay, shrink

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's samples use much that is deprecated

MOST_COMMANDS = 20_000
"""Within which random programs find each hole that is put back."""
Leak = Callable[[WorkerCore, torch.Tensor, Peer], Any]


def tells_sum(core: WorkerCore, tensor: torch.Tensor, peer: Peer) -> Any:
    return float(tensor.sum())


def quotes_value(core: WorkerCore, tensor: torch.Tensor, peer: Peer) -> Any:
    raise ValueError(f"not with {tensor[0]}")


def fails_by_value(core: WorkerCore, tensor: torch.Tensor, peer: Peer) -> Any:
    return 1 if tensor[0] > 0 else [][1]


def has_a_size(core: WorkerCore, tensor: torch.Tensor, peer: Peer) -> Any:
    return [0] * int(tensor[0] > 0)


def keeps_an_id(core: WorkerCore, tensor: torch.Tensor, peer: Peer) -> Any:
    if tensor[0] > 0:
        core.store.put(777, torch.zeros(1))


def draws_by_value(core: WorkerCore, tensor: torch.Tensor, peer: Peer) -> Any:
    torch.rand(1 + int(tensor[0] > 0))


def says_another_thing(core: WorkerCore, tensor: torch.Tensor, peer: Peer) -> Any:
    if tensor[0] > 0:
        core.answer(peer, messages.Stale(True))


def writes_to_all(core: WorkerCore, tensor: torch.Tensor, peer: Peer) -> Any:
    for other in core.store.objects.values():
        if other is not tensor:
            other.data.fill_(float(tensor[0]))


def sends_it_away(core: WorkerCore, tensor: torch.Tensor, peer: Peer) -> Any:
    core.connect("eve").put(tensor.detach(), 5)


def sends_it_to_a_friend(core: WorkerCore, tensor: torch.Tensor, peer: Peer) -> Any:
    core.connect("alice").put(tensor.detach(), 5)


def logs_it(core: WorkerCore, tensor: torch.Tensor, peer: Peer) -> Any:
    logging.getLogger("syft.worker").info("a sum: %s", tensor.sum())


def tells_shape(core: WorkerCore, tensor: torch.Tensor, peer: Peer) -> Any:
    return tensor.numel()


LEAKY: tuple[Leak, ...] = (
    tells_sum,
    quotes_value,
    fails_by_value,
    has_a_size,
    keeps_an_id,
    draws_by_value,
    says_another_thing,
    writes_to_all,
    sends_it_away,
    logs_it,
)


def serve_with(leak: Leak, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have workers answer a question for tags by something else."""

    def handler(core: WorkerCore, message: Describe, frame: Frame, peer: Peer) -> Any:
        answer = leak(core, core.store.open(message.id), peer)
        return Value(message.seq, pack(answer, Packer()))

    monkeypatch.setitem(WorkerCore.handlers, Describe, handler)


def describe_secret(eve: Observer) -> None:
    """Ask for the tags of a secret, then look at what anybody may look at."""
    public, private = zeros(eve), secret(eve)
    eve.describe(private.id)
    drawn = eve.call("torch.rand", 2)
    for id in (public.id, drawn.id, 777, 5):
        eve.fetch(id)


@pytest.mark.parametrize("leak", LEAKY)
def test_a_leaky_worker_is_found(leak: Leak, monkeypatch: pytest.MonkeyPatch) -> None:
    with fixed():
        honest, both = TwoWorlds(), TwoWorlds()
        describe_secret(Observer(honest))
        assert honest.difference is None
        serve_with(leak, monkeypatch)
        describe_secret(Observer(both))
        assert both.difference is not None
        shortest = shrink(both.requests)
        honest.close()
        both.close()
    assert 2 <= len(shortest) <= 4
    assert any("private" in request.text for request in shortest)


@pytest.mark.parametrize("leak", [tells_shape])
def test_an_innocuous_worker_is_not_found(leak: Leak, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_with(leak, monkeypatch)
    check(describe_secret)


def test_what_honest_workers_tell_one_another_is_not_seen() -> None:
    with fixed():
        both = TwoWorlds()
        eve = Observer(both)
        private = secret(eve)
        for one in both.worlds:
            core = one.workers["bob"].core
            sends_it_to_a_friend(core, core.store.open(private.id), one.peers["bob", "eve"])
            assert not one.received
        both.close()


def test_a_worker_whose_secrets_are_alike_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with fixed():
        both = TwoWorlds()
        serve_with(tells_sum, monkeypatch)
        describe_secret(Observer(both))
        assert replay(both.requests, alike=True) is None
        assert shrink(both.requests, alike=True) == both.requests
        both.close()


def test_an_exception_that_gets_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(core: WorkerCore, tensor: torch.Tensor, peer: Peer) -> Any:
        core.respond = lambda frame, peer: 1 / int(tensor[0] > 0)  # type: ignore[method-assign]

    serve_with(broken, monkeypatch)
    found = learned(describe_secret)
    assert found is not None and "ZeroDivisionError" in found


def test_secrets_may_differ_in_values_only() -> None:
    with fixed():
        both = TwoWorlds()
        with pytest.raises(ValueError, match="more than their values"):
            Observer(both).secret(torch.zeros(2), torch.zeros(3))
        both.close()


def test_the_process_is_left_as_it_was() -> None:
    state = torch.get_rng_state()
    check(lambda eve: eve.call("torch.rand", 3))
    assert torch.equal(torch.get_rng_state(), state)


def test_attacks_that_succeed_are_named() -> None:
    def attack(eve: Observer) -> None:
        eve.request(messages.Fetch(1, secret(eve).id, 0, True, "ann"))

    with pytest.raises(Learned, match="1 of 2:\n(.*\n)*read"):
        check_all({"read": attack, "look": describe_secret})


def sums_up(eve: Observer) -> None:
    eve.call("torch.sum", secret(eve, 2, 3), dim=0)


def fails_for_some(call: Any) -> Outcome:
    """A prediction that looks at a value, as none may."""
    found = made_of(call)
    positive = bool(call.inputs[0].flatten()[0] > 0)
    return replace(found, verdict=Verdict.FAILS) if positive else found


made_of = evaluate._made_of


def test_a_prediction_that_depends_on_a_value_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If both worlds used one table of predictions, the second would find that of the first."""
    monkeypatch.setattr(evaluate, "_made_of", fails_for_some)
    own = PredictionCaches(), PredictionCaches()
    monkeypatch.setattr(world, "OF_WORLDS", own)
    assert learned(sums_up) is not None
    monkeypatch.setattr(world, "OF_WORLDS", (own[0], own[0]))
    assert learned(sums_up) is None


def test_workers_have_their_own_predictions_afterwards() -> None:
    before = vars(PredictionCaches.present())
    check(sums_up)
    after = vars(PredictionCaches.present())
    assert before.keys() == after.keys()
    assert all(after[name] is value for name, value in before.items())


def test_several_processes_send_the_same_bytes() -> None:
    """No address, no order of a set and no id of a process is in anything that is sent."""
    programs = [f"7/{number}" for number in range(6)]
    command = [sys.executable, "-m", "tests.privacy.two_worlds.transcript", *programs]
    shown = {
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": number},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for number in ("1", "2")
    }
    (text,) = shown
    assert len({*text.split()}) == 2 * len(programs)


# ------------------------------------------------------------------------------ random programs


def test_identical_secrets_give_identical_transcripts(
    samples: Samples, request: pytest.FixtureRequest
) -> None:
    report = run_here(samples, request.config.option.seed, 1200, alike=True)
    assert not report.differences, report
    assert report.succeeded > report.commands / 2, "at least half of the commands succeed"
    assert report.private > report.commands / 2
    assert report.commands == report.succeeded + report.failed_publicly


def test_a_program_is_the_same_each_time(samples: Samples) -> None:
    one, two = (run_program(samples, "3/3", alike=True) for _ in range(2))
    assert one == two and one != run_program(samples, "3/4", alike=True)


def test_random_programs_find_a_leak(samples: Samples, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that does not look at the guards of some operations is found within a second."""
    guarded, common = Call.guard.fget, commands.common_guard  # type: ignore[attr-defined]

    def forgetful(call: Call) -> Any:
        message = call.message
        careless = type(message) is Command and len(message.args) == 1 and not message.kwargs
        return None if careless else guarded(call)

    monkeypatch.setattr(Call, "guard", property(forgetful))
    monkeypatch.setattr(
        commands, "common_guard", lambda values: common(values) if len(values) > 1 else None
    )
    found = [run_program(samples, f"1/{n}").differences for n in range(10)]
    assert any("Fetch" in text for one in found for _, text, _ in one)


def test_children_report_what_a_process_would(samples: Samples) -> None:
    told: list[int] = []
    apart = run_apart(samples, 5, 60, 2, True, lambda report: told.append(report.commands))
    assert apart.commands >= 60 and told[-1] == apart.commands
    assert not apart.differences and not apart.ended


def test_the_command_line_reports(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    table = tmp_path / "table"
    monkeypatch.setattr(Samples, "make_all", lambda self: None)
    monkeypatch.setattr(Samples, "expected", lambda self: {("torch.add", "0"), ("torch.sub", "9")})
    given = ["--seed", "4", "--commands", "24", "--alike", "--table", str(table)]
    monkeypatch.setattr(sys, "argv", ["two_worlds", *given])
    assert command_line.main() == 0
    shown = capsys.readouterr()
    assert "0 differences" in shown.out and "of 4 rows" in shown.out
    assert "torch.sub" in table.read_text()
    monkeypatch.setattr(sys, "argv", ["two_worlds", *given, "--whole-table"])
    assert command_line.main() == 1


def ends_badly(samples: Samples, seed: str, alike: bool, shrinking: bool) -> Report:
    if seed == "crash":
        os._exit(9)
    if seed == "sleep":
        time.sleep(60)
    return Report(commands=1)


def test_a_program_that_ends_the_process_is_reported(
    samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "PATIENCE", 1)
    seeds = ["a", "crash", "b", "sleep", "c"]
    report = Report()
    for part in reports_of([Child(samples, seeds, False, False, ends_badly)]):
        report.add(part)
    assert report.commands == 3
    assert report.ended == [
        "program crash ended the process with 9",
        "program sleep did not come to an end",
    ]


def test_what_only_the_owner_is_told_counts_as_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    def sealed(core: WorkerCore, message: Fetch, frame: Frame, peer: Peer) -> Any:
        raise IndexError("what went wrong") if peer.user == "ann" else PermissionDenied("", "", "")

    with fixed():
        both = TwoWorlds()
        private = secret(Observer(both))
        results = [("torch.add", private.id), ("torch.add", 1)]
        assert runner.count_sealed(both.worlds[:1], results) == 0
        monkeypatch.setitem(WorkerCore.handlers, Fetch, sealed)
        assert runner.count_sealed(both.worlds[:1], results) == 1
        both.close()


def test_what_is_charged_for_other_memory_is_found() -> None:
    with fixed():
        both = TwoWorlds(limits=PeerLimits(bytes=4000))
        public = zeros(Observer(both))
        assert not runner.wrong_charges(both.worlds)
        for other, text in ((torch.zeros(5), "[20]"), (torch.zeros(3), "[12]")):
            both.worlds[1].workers["bob"].core.store.objects[public.id] = other
            assert runner.wrong_charges(both.worlds).endswith(f"[12] bytes, and has {text}")
        both.close()


def test_reports_add_up_and_name_what_is_missing() -> None:
    one, other = Report(commands=2, sealed=1), Report(commands=3, differences=[("7", "x", ["y"])])
    one.covered["torch.add", "0", True] += 1
    one.add(other)
    assert one.commands == 5 and one.sealed == 1
    rows = {("torch.add", "0"), ("torch.add", "1")}
    assert one.missing(rows) == [
        ("torch.add", "0", False),
        ("torch.add", "1", True),
        ("torch.add", "1", False),
    ]
    assert [line.split() for line in one.table(rows).splitlines()] == [
        ["torch.add", "0", "1", "0"],
        ["torch.add", "1", "0", "0"],
    ]
    assert "program 7: x\n    y" in str(one)


FOUND_BY = {
    "memory": 7,
    "results": 3,
    "streams": 5,
    "elements": 5,
    "operands": 2,
    "plans": 3,
    "repeated": 2,
}
"""The seeds for holes that take more than a few programs with the first one."""
LEANING = {action for action, _ in (*BESIDE_VALUES, *BIASED, *ON_SHARES)} | {
    *sizes_and_streams.ACTIONS
}


@pytest.mark.parametrize("leak", sorted(LEAKS))
def test_random_programs_find_each_hole_that_is_put_back(
    leak: str, samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the actions alone that lean towards these holes: ``--leak`` counts it with all."""
    often = [
        often if action in LEANING else 0
        for action, often in zip(generator.ACTIONS, generator.WEIGHTS, strict=True)
    ]
    monkeypatch.setattr(generator, "WEIGHTS", often)
    report = look_for(leak, samples, FOUND_BY.get(leak, 1), 1000)
    assert report.differences, report


@pytest.mark.parametrize("leak", sorted(LEAKS))
def test_random_programs_find_each_hole_among_all_actions(
    leak: str, samples: Samples, request: pytest.FixtureRequest
) -> None:
    if request.config.option.sample < 1:
        pytest.skip("thousands of commands are for `make test-all`")
    assert look_for(leak, samples, request.config.option.seed, MOST_COMMANDS).differences


def test_no_hole_is_left_open(samples: Samples) -> None:
    """Each patch is taken back, and names what is there."""
    before = [vars(module).copy() for module in (charges, private_commands, evaluate)]
    for leak in LEAKS.values():
        with leak():
            pass
    assert before == [vars(module) for module in (charges, private_commands, evaluate)]


def test_the_commands_are_of_the_kinds_that_matter(samples: Samples) -> None:
    """A tenth succeeds on private values with gradients and on chains or plans; a twentieth comes
    to a limit."""
    report = run_here(samples, 7, 1500)
    assert not report.differences, report
    assert report.marks[GRADIENTS] >= report.commands / 10, report
    assert report.marks[CHAINS] >= report.commands / 10, report
    assert report.marks[LIMITS] >= report.commands / 20, report
