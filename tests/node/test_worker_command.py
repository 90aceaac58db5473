"""``syft worker`` in processes of its own: what it holds, says and leaves behind."""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import syft as sy
from syft.exceptions import PermissionDenied, WorkerClosed, WorkerRefused
from syft.node import worker_command
from syft.node.cli import main
from syft.node.offered_data import OfferedFile, read_offered
from syft.node.serving_process import Stopping, serve_until_stopped
from syft.node.worker_log import logging_to
from syft.trust.certificates import own_certificate
from tests.node.started import StartedWorker

AGES = torch.tensor([[1, 20], [2, 30]])
SCORES = torch.tensor([0.5, 0.25, 0.125], dtype=torch.float32)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a table of ages and an archive with scores."""
    np.savetxt(tmp_path / "ages.csv", AGES.numpy(), "%d", ",", header="id,age", comments="")
    np.savez(tmp_path / "study.npz", scores=SCORES.numpy())
    return tmp_path


def tokens_of(folder: Path, capsys: pytest.CaptureFixture[str], *users: str) -> list[str]:
    """Tokens made on the command line."""
    made = []
    for user in users:
        given = ["token", "new", "--user", user, "--token-file", str(folder / "tokens.json")]
        assert main(given) == 0
        made.append(capsys.readouterr().out.strip())
    return made


def fetched(worker: Any, tag: str, **options: Any) -> torch.Tensor:
    """A tensor of the owner, copied there and read."""
    (found,) = worker.search(tag)
    return found.copy().get(**options)


@pytest.fixture
def stubborn(hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch) -> sy.WebsocketServerWorker:
    """A worker whose loop fails at once."""
    server = sy.WebsocketServerWorker(hook, port=0, id="dan")

    def fail() -> None:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(server.board, "run", fail)
    return server


def test_a_worker_that_fails_says_so_and_ends(
    stubborn: sy.WebsocketServerWorker, capsys: pytest.CaptureFixture[str]
) -> None:
    with logging_to(sys.stderr, "dan", "json", "info") as line:
        assert serve_until_stopped(stubborn, "here I am", line) == 1
    printed, said = capsys.readouterr()
    (last,) = [json.loads(row) for row in said.splitlines() if '"traceback"' in row]
    assert printed == "here I am\n" and last["level"] == "critical"
    assert "ZeroDivisionError: a mistake of ours" in last["traceback"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_what_the_signals_do(hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr("os._exit", left.append)
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as dan:
        stopping = Stopping(dan)
        stopping.on_signal(signal.SIGTERM, None)
        assert dan.board.stopping == stopping.reason == "its owner has stopped it (SIGTERM)"
        assert left == []
        stopping.on_signal(signal.SIGINT, None)
        assert left == [128 + signal.SIGINT]


# -------------------------------------------------------------------------------- what it holds


def test_what_was_printed_connects_and_who_may_read_is_as_said(
    files: Path, capsys: pytest.CaptureFixture[str], hook: sy.TorchHook
) -> None:
    ann, ben = tokens_of(files, capsys, "ann", "ben")
    tokens = str(files / "tokens.json")
    said = ["--data", str(files / "ages.csv"), "--tag", "people", "--describe", "ids and ages"]
    said += ["--private", "ann", "--data", str(files / "study.npz"), "--tag", "#public", "--public"]
    said += ["--data", str(files / "study.npz"), "--tag", "closed", "--token-file", tokens]
    with StartedWorker(files, *said, "--host", "0.0.0.0", "--state", str(files / "state")) as bob:
        assert bob.address.startswith("wss://")
        assert re.search(
            r"#people #ages torch.int64 \[2, 2\], private: read by ann$", bob.printed, re.M
        )
        assert "#public #scores torch.float32 [3], public: read by everybody" in bob.printed
        assert "#closed #scores" in bob.printed and "private: read by nobody" in bob.printed
        line = bob.printed.splitlines()[-1].strip()
        call, _, note = line.partition("  # ")
        assert note == f"syft token new --user NAME --token-file {tokens}"
        # The name of this host may not be known here: it is reached by another of its addresses.
        call = call.replace("syft_...", ann).replace(bob.address, here(bob.address))
        names: dict[str, Any] = {"sy": sy}
        exec(call, names)
        mine = names["bob"]
        theirs = sy.connect(here(bob.address), token=ben, id="b", fingerprint=bob.fingerprint)
        with pytest.raises(WorkerRefused, match="no token was given"):
            sy.connect(here(bob.address), id="c", fingerprint=bob.fingerprint)

        (people,) = mine.search("#people")
        assert people.tags == {"#people", "#ages"} and people.description == "ids and ages"
        assert torch.equal(fetched(mine, "#people"), AGES)
        assert torch.equal(fetched(mine, "#public"), fetched(theirs, "#public"))
        for denied in (lambda: fetched(theirs, "#people"), lambda: fetched(mine, "#closed")):
            with pytest.raises(PermissionDenied):
                denied()
        assert mine.search("#closed")[0].shape == (3,)
        del people
        mine.close()
        theirs.close()
        assert bob.stop(signal.SIGTERM) == 0


def here(address: str) -> str:
    """The same port of this machine, by its loopback address."""
    return f"{address.split('://')[0]}://127.0.0.1:{address.rpartition(':')[2]}"


def test_a_restart_holds_the_same_and_shows_the_same_certificate(
    files: Path, capsys: pytest.CaptureFixture[str], hook: sy.TorchHook
) -> None:
    (ann,) = tokens_of(files, capsys, "ann")
    said = ["--data", str(files / "ages.csv"), "--private", "ann", "--host", "0.0.0.0"]
    said += ["--token-file", str(files / "tokens.json"), "--state", str(files / "state")]
    announced = []
    for stopped_by in (signal.SIGKILL, signal.SIGINT):
        with StartedWorker(files, *said) as bob:
            there = sy.connect(here(bob.address), token=ann, fingerprint=bob.fingerprint)
            assert torch.equal(fetched(there, "#ages"), AGES)
            there.close()
            announced.append(bob.printed.replace(bob.address.rpartition(":")[2], "PORT"))
            assert bob.stop(stopped_by) == (0 if stopped_by == signal.SIGINT else -9)
    assert announced[0] == announced[1]


def test_a_worker_begins_with_the_approvals_of_its_owner(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = files / "approvals.json", []

    def serve(server: sy.WebsocketServerWorker, *_: Any) -> int:
        seen.append(server.core.approved)
        server.close()
        return 0

    assert main(["approve", "0a" * 32, "dan", "--approvals", str(path)]) == 0
    monkeypatch.setattr(worker_command, "serve_until_stopped", serve)
    said = ["worker", "--port", "0", "--id", "bob", "--audit", "none"]
    assert main([*said, "--approvals", str(path)]) == 0
    assert main(said) == 0, "the control"
    assert seen == [{bytes.fromhex("0a" * 32): frozenset({"dan"})}, {}]


def test_a_unix_socket_serves_and_is_gone_afterwards(files: Path, hook: sy.TorchHook) -> None:
    path = files / "bob.sock"
    said = ["--unix", str(path), "--data", str(files / "study.npz"), "--public", "--allow-plans"]
    with StartedWorker(files, *said) as bob:
        assert bob.address == f"unix://{path}" and "plans:       allowed" in bob.printed
        there = sy.connect(bob.address)
        assert torch.equal(fetched(there, "#scores"), SCORES)
        there.close()
        assert bob.stop(signal.SIGTERM) == 0
    assert not path.exists()


def test_a_certificate_of_ones_own_is_used_also_on_this_machine(
    files: Path, hook: sy.TorchHook
) -> None:
    own = own_certificate(files / "own")
    both = ["--tls-cert", str(own.cert_path), "--tls-key", str(own.key_path)]
    with StartedWorker(files, *both, "--anonymous") as bob:
        assert bob.address.startswith("wss://127.0.0.1") and bob.fingerprint == own.fingerprint
        by_authority = sy.connect(bob.address, ca_file=str(own.cert_path))
        assert by_authority.id == "bob"
        by_authority.close()


# ----------------------------------------------------------------------------- how it is stopped


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")]
)
def test_what_runs_ends_and_callers_are_told_before_it_stops(
    number: int, name: str, files: Path, hook: sy.TorchHook
) -> None:
    with StartedWorker(files, "--grace", "120") as bob:
        there = sy.connect(bob.address)
        x = torch.rand(1500, 1500).send(there)
        running = torch.linalg.eigvals(x).abs().sum()
        asked = running.child.start_get()
        there.connection().flush()
        bob.process.send_signal(number)
        with pytest.raises(WorkerClosed) as told:
            asked.result()
            while True:
                x.sum().get()
        assert f"its owner has stopped it ({name})" in str(told.value)
        assert bob.ended() == 0
        assert bob.errors.splitlines()[-1].endswith(f"its owner has stopped it ({name})")
        there.close()


def test_what_runs_for_longer_is_not_waited_for(files: Path, hook: sy.TorchHook) -> None:
    audit = files / "whole.log"
    with StartedWorker(files, "--grace", "0.2", "--audit", str(audit)) as bob:
        there = sy.connect(bob.address)
        x = torch.rand(4000, 4000).send(there)
        y = torch.linalg.svdvals(torch.linalg.eigvals(x).diag())
        there.connection().flush()
        bob.process.send_signal(signal.SIGTERM)
        assert bob.ended() == 0
        (last,) = bob.errors.splitlines()[-1:]
        assert "ends in the midst of torch.linalg.eigvals for me" in last
        assert last.endswith("its owner has stopped it (SIGTERM)")
        with pytest.raises(WorkerClosed):
            y.get()
        there.close()
    assert "(SIGTERM)" in audit.read_text().splitlines()[-1]


def test_a_second_signal_ends_it_at_once(files: Path, hook: sy.TorchHook) -> None:
    with StartedWorker(files, "--log-level", "debug") as bob:
        there = sy.connect(bob.address)
        x = torch.rand(3000, 3000).send(there)
        y = torch.linalg.svdvals(torch.linalg.eigvals(x).diag())
        there.connection().flush()
        bob.process.send_signal(signal.SIGINT)
        bob.wait_for("Ctrl-C again ends at once")
        assert bob.stop(signal.SIGINT) == 128 + signal.SIGINT
        with pytest.raises(WorkerClosed):
            y.get()
        there.close()


# --------------------------------------------------------------------------------- what it shows


def test_a_terminal_shows_a_live_line_under_the_log(files: Path, hook: sy.TorchHook) -> None:
    with StartedWorker(files, "--data", str(files / "ages.csv"), terminal=True) as bob:
        bob.wait_for("bob: 0 connections, 1 object, 0 B in, 0 B out")
        there = sy.connect(bob.address)
        x = torch.ones(1000).send(there)
        bob.wait_for("bob: 1 connection, 2 objects, 4")
        assert re.search(r"\r\x1b\[K[-0-9]{10} [:0-9]{8} info let in me\r\n", bob.screen)
        del x
        there.close()
        bob.process.send_signal(signal.SIGINT)
        bob.wait_for("has stopped")
        assert bob.ended() == 0


def test_without_a_terminal_the_log_is_lines_of_text_or_json(files: Path) -> None:
    for form in ("text", "json"):
        with StartedWorker(files, "--log", form) as bob:
            assert bob.stop(signal.SIGTERM) == 0
            lines = bob.errors.splitlines()
        assert "\r" not in "".join(lines) and "\x1b" not in "".join(lines)
        if form == "json":
            said = [json.loads(line) for line in lines]
            assert {(line["worker"], line["level"]) for line in said} == {("bob", "info")}
            lines = [line["message"] for line in said]
        assert "worker bob serves at ws://127.0.0.1:" in lines[0]
        assert lines[-1].endswith("worker bob has stopped: its owner has stopped it (SIGTERM)")
    with StartedWorker(files, "--log-level", "error") as bob:
        assert bob.stop(signal.SIGTERM) == 0 and bob.errors == ""


def test_it_may_have_as_many_connections_as_the_system_lets_it(files: Path) -> None:
    with StartedWorker(files) as bob:
        limits = Path(f"/proc/{bob.process.pid}/limits")
        if not limits.exists():
            pytest.skip("this system does not tell")
        (files_row,) = [row for row in limits.read_text().splitlines() if "open files" in row]
        assert files_row.split()[3] == files_row.split()[4]


# ------------------------------------------------------------------------- what keeps it from it


Refusal = Callable[..., tuple[int, str]]


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Refusal:
    """The exit status and the error text of a worker that does not start, by its options."""

    def run(*options: str) -> tuple[int, str]:
        status = main(["worker", *options])
        printed, said = capsys.readouterr()
        assert printed == ""
        return status, said

    return run


@pytest.fixture
def taken(hook: sy.TorchHook) -> Iterator[int]:
    """A port that is in use."""
    with sy.WebsocketServerWorker(hook, port=0, id="first") as first:
        yield first.port


def test_a_port_in_use_is_one_clear_line(taken: int) -> None:
    command = [sys.executable, "-m", "syft.node", "worker", "--port", str(taken)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"syft: 127.0.0.1, port {taken} is in use. Stop what uses it, or choose another --port.\n"
    )


def test_a_file_at_the_path_of_the_socket_is_one_clear_line(files: Path, refusal: Refusal) -> None:
    path = files / "ages.csv"
    assert refusal("--unix", str(path)) == (
        2,
        f"syft: {path} is in use. Stop what uses it, or choose another --unix.\n",
    )
    assert path.exists()


def test_an_address_of_another_machine_is_one_clear_line(files: Path, refusal: Refusal) -> None:
    status, said = refusal("--host", "192.0.2.1", "--anonymous", "--state", str(files / "s"))
    assert status == 2 and said.startswith("syft: cannot serve at 192.0.2.1, port 8777: ")
    assert said.count("\n") == 1


def test_a_certificate_that_is_none_is_one_clear_line(files: Path, refusal: Refusal) -> None:
    both = ["--tls-cert", str(files / "ages.csv"), "--tls-key", str(files / "ages.csv")]
    status, said = refusal(*both)
    assert status == 2 and said.startswith(f"syft: Cannot use '{files / 'ages.csv'}'")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--data", "{}/none.npz"], "Cannot use '{}/none.npz': it is not there."),
        (
            ["--data", "{}/ages.csv", "--private", "ann"],
            "--token-file must be given, for --private",
        ),
        (["--host", "0.0.0.0"], "--token-file must be given off this machine"),
        (["--tls-cert", "x"], "--tls-cert must be given together with --tls-key"),
        (["--tls-cert", "{}/x", "--tls-key", "x"], "[Errno 2] No such file or directory: '{}/x'"),
        (["--id", ""], "--id must be 1 to 255 printable characters, got ''."),
        (["--token-file", "{}/ages.csv"], "Cannot use '{}/ages.csv': "),
    ],
)
def test_what_cannot_be_used_is_one_clear_line(
    options: list[str], expected: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["worker", *(option.format(files) for option in options)]) == 2
    printed, said = capsys.readouterr()
    assert printed == "" and said.startswith(f"syft: {expected.format(files)}")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--tag", "a"], "--tag belongs to the --data before it"),
        (["--public", "--data", "x"], "--public belongs to the --data before it"),
        (["--data", "x", "--public", "--private", "a"], "x: it is said to be both"),
        (["--data", "x", "--private", "a", "--public"], "x: it is said to be both"),
        (["--port", "70000"], "invalid port value: '70000'"),
        (["--lease", "-1"], "invalid number of seconds value: '-1'"),
        (["--limit", "byte=9"], "elements) value: 'byte=9'"),
        (["--limit", "bytes=-9"], "elements) value: 'bytes=-9'"),
        (["--limit", "bytes"], "elements) value: 'bytes'"),
        (["--keep-memory", "-1"], "invalid size in MB value: '-1'"),
        (["--log", "xml"], "invalid choice: 'xml'"),
    ],
)
def test_what_was_typed_wrong_is_the_usage(
    options: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["worker", *options])
    assert caught.value.code == 2
    assert expected in capsys.readouterr().err


def test_a_token_file_may_come_later_and_that_is_said(files: Path) -> None:
    tokens = files / "tokens.json"
    with StartedWorker(files, "--token-file", str(tokens)) as bob:
        assert f"with a token of {tokens}\n" in bob.printed
        assert bob.errors.startswith(f"syft: {tokens} is not there yet: nobody has a token")
    with StartedWorker(files, "--token-file", str(tokens), "--anonymous") as bob:
        assert f"with a token of {tokens}, and everybody else without one" in bob.printed


def test_tags_may_be_written_without_the_sign(files: Path) -> None:
    path = str(files / "study.npz")
    (offered,) = read_offered([OfferedFile(path, ["a", "#b", "scores"], None, ["ann", "ann"])])
    assert (
        offered.tags == ("#a", "#b", "#scores") == tuple(sorted(offered.tensor.__dict__["_tags"]))
    )
    assert offered.readers == ("ann",)


def test_a_token_file_may_come_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = argparse.Namespace(
        id="bob",
        tls_cert=None,
        tls_key=None,
        cert_name=[],
        token_file=str(tmp_path / "tokens.json"),
    )
    worker_command._check(options)
    assert "is not there yet" in capsys.readouterr().err
    assert worker_command._seconds("5") == 5
