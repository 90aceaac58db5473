"""What supervisors are told: whether a worker is there, and counts."""

from __future__ import annotations

import re
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

import syft as sy
import syft_command
from syft.node import metrics
from syft.node.cli import main
from syft.node.metrics import _MOST_AT_ONCE, MetricsServer, samples
from syft.trust import chained_log
from syft.trust.tokens import TokenBook
from syft.workers.sockets.admission import Admissions
from tests.node.started import StartedWorker


def page(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@contextmanager
def supervised(server: sy.WebsocketServerWorker) -> Iterator[str]:
    """Where a worker is supervised that serves."""
    asked = MetricsServer(server, "127.0.0.1", 0)
    while not server.board.serves:
        time.sleep(0.01)
    yield asked.address
    asked.close()


def counted(text: str) -> dict[str, float]:
    rows = [row.rsplit(" ", 1) for row in text.splitlines() if not row.startswith("#")]
    return {name: float(value) for name, value in rows}


def test_counts_of_what_users_do(hook: sy.TorchHook) -> None:
    book = TokenBook(None)
    token = book.make('ann "the first"', time.time())
    with (
        sy.WebsocketServerWorker(hook, port=0, id="dan", tokens=book) as server,
        supervised(server) as address,
    ):
        dan = sy.connect(str(server.address), token)
        with pytest.raises(sy.exceptions.WorkerRefused):
            sy.connect(str(server.address), id="another")
        x = torch.full((30_000,), 1234567.0).send(dan)
        assert dan.objects_count() == 1
        status, text = page(address, "/metrics")
        found = counted(text)
        dan.close()
        del x
    assert status == 200
    assert found['syft_user_bytes{user="ann \\"the first\\""}'] == 120_000
    assert found['syft_refused_total{code="token"}'] == 1
    assert (found["syft_connections"], found["syft_admitted_total"]) == (1, 1)
    assert found["syft_received_bytes_total"] > 120_000 and found["syft_resident_bytes"] > 1e6
    assert found["syft_requests_total"] == 2 and found["syft_running_seconds"] == 0
    assert "1234567" not in text, "never values"
    for row in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) .+|[a-z_]+(\{.*\})? [0-9.e+-]+", row), row


def test_nobody_waits_for_an_operation(hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server, supervised(server) as address:
        with server.owning():  # as an operation does, which would be waited for for ever
            assert page(address, "/healthz") == (200, "ok\n")
            assert page(address, "/readyz") == (200, "ready\n")
            assert "syft_requests_total 0" in page(address, "/metrics")[1]
        assert page(address, "/")[0] == 404


def test_a_worker_that_can_let_nobody_in_is_not_ready(hook: sy.TorchHook, tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    with (
        sy.WebsocketServerWorker(hook, port=0, id="dan", tokens=file) as server,
        supervised(server) as address,
    ):
        assert page(address, "/readyz")[0] == 200
        file.write_text("no tokens")
        status, text = page(address, "/readyz")
        assert status == 503 and "tokens.json" in text
        assert page(address, "/healthz")[0] == 200
        server.stop("it is to go")
        assert page(address, "/healthz") == (503, "it is to go\n")


def test_a_worker_that_cannot_write_its_audit_log_is_not_ready(
    hook: sy.TorchHook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(file: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with (
        sy.WebsocketServerWorker(hook, port=0, id="dan", audit=tmp_path / "audit.log") as server,
        supervised(server) as address,
    ):
        assert page(address, "/readyz")[0] == 200
        with monkeypatch.context() as patched:
            patched.setattr(chained_log.os, "write", fill)
            sy.connect(str(server.address)).close()
            status, text = page(address, "/readyz")
            assert status == 503 and "audit log cannot be written (No space left" in text
            assert page(address, "/healthz")[0] == 200
        until = time.monotonic() + 20
        while page(address, "/readyz")[0] != 200:
            assert time.monotonic() < until, "it goes on by itself"
            time.sleep(0.1)


def test_who_says_nothing_keeps_nobody_from_asking(hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server, supervised(server) as address:
        host, port = address.split(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(2 * _MOST_AT_ONCE)]
        until = time.monotonic() + 30
        while True:  # those beyond the limit are closed at once, and the others after a while
            try:
                assert page(address, "/healthz")[0] == 200
                break
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.2)
        for one in silent:
            one.close()
    assert not [one for one in threading.enumerate() if one.name == "syft metrics"]


def test_who_asks_a_byte_at_a_time_is_hung_up_on(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if each byte comes in time; and so is who does not read the answer."""
    monkeypatch.setattr(metrics, "_PATIENCE", 1.0)
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server, supervised(server) as address:
        host, port = address.split(":")
        began = time.monotonic()
        with socket.create_connection((host, int(port))) as slow:
            slow.settimeout(0.1)
            gone = False
            while not gone:
                try:
                    slow.sendall(b"G")
                    gone = slow.recv(1) == b""
                except TimeoutError:
                    pass
                except OSError:
                    gone = True
                assert time.monotonic() - began < 4, "a time limit for each byte is none"
        assert page(address, "/healthz")[0] == 200


def test_users_come_and_go_while_they_are_counted() -> None:
    """A dictionary must not be walked through while another thread adds to it."""
    known, over = Admissions(), threading.Event()

    def churn() -> None:
        number = 0
        while not over.is_set():
            held = [known.account(f"{number} {one}", None) for one in range(50)]
            number += 1
        del held

    threads = [threading.Thread(target=churn) for _ in range(2)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            assert all(kind == "user" for kind, _ in known.accounts())
    finally:
        over.set()
        sys.setswitchinterval(before)
        for thread in threads:
            thread.join()
    assert not known.accounts()


def test_an_address_of_ipv6(hook: sy.TorchHook) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 here ({error})")
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
        asked = MetricsServer(server, "::1", 0)
        assert asked.address.startswith("[::1]:")
        assert page(asked.address, "/metrics")[0] == 200
        assert syft_command.main(["check", f"http://{asked.address}/metrics"]) == 0
        asked.close()


def test_the_command_says_where_it_is_supervised(hook: sy.TorchHook, tmp_path: Path) -> None:
    with StartedWorker(tmp_path, "--metrics-port", "0") as started:
        line = next(row for row in started.process.stdout if "supervised at" in row)
        address = line.split("http://")[1].split()[0]
        sy.connect(started.address).close()
        assert page(address, "/readyz") == (200, "ready\n")
        assert started.stop(signal.SIGTERM) == 0


def test_a_port_that_is_taken_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["worker", "--port", "0", "--metrics-port", port]) == 2
    said = capsys.readouterr().err
    assert "--metrics-port must be an address of this machine that is free" in said and port in said


def test_memory_is_told_where_the_system_has_no_files_about_it(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a Mac: it is the most that the process has held then."""

    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
        found = {name: rows for name, *_, rows in samples(server)}["syft_resident_bytes"]
        monkeypatch.setattr(metrics, "open", refuse, raising=False)
        most = {name: rows for name, *_, rows in samples(server)}["syft_resident_bytes"]
    assert 1e6 < found[0][1] <= most[0][1] * 1.01


def test_each_count_has_one_name(hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
        names = [name for name, *_ in samples(server)]
    assert len(set(names)) == len(names) and all(name.startswith("syft_") for name in names)
