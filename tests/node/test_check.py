"""``syft check``: a health check without torch and without a token."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import syft as sy
import syft_command
from syft.node.metrics import MetricsServer
from syft.trust.tokens import TokenBook

ROOT = Path(syft_command.__file__).parent


def test_no_torch_is_imported() -> None:
    program = (
        "import sys, syft_command\n"
        "assert syft_command.main(['check', 'ws://127.0.0.1:1']) == 1\n"
        "assert not {'torch', 'numpy', 'syft'} & sys.modules.keys(), sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("syft: no answer of a worker at ws://127.0.0.1:1: ")


def test_a_worker_that_answers(
    hook: sy.TorchHook, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan", tokens=TokenBook(None)) as server:
        asked = MetricsServer(server, "127.0.0.1", 0)
        assert syft_command.main(["check", str(server.address)]) == 0
        assert syft_command.main(["check", f"{server.address}/behind/a-proxy"]) == 0
        assert syft_command.main(["check", f"http://{asked.address}/readyz"]) == 0
        assert syft_command.main(["check", f"http://{asked.address}/nothing"]) == 1
        assert not server.reception.guests
        asked.close()
    with sy.WebsocketServerWorker(hook, unix=tmp_path / "dan.sock", id="dan") as server:
        assert syft_command.main(["check", str(server.address)]) == 0
    assert capsys.readouterr().out.count("ok: ") == 4


def test_an_encrypted_worker(
    hook: sy.TorchHook, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    settings = {"host": "0.0.0.0", "port": 0, "id": "dan", "cert_names": ["127.0.0.1"]}
    with sy.WebsocketServerWorker(hook, **settings, state=tmp_path, anonymous=True) as server:
        assert server.identity is not None
        address, shown = f"wss://127.0.0.1:{server.port}", server.identity.fingerprint
        assert syft_command.main(["check", address, "--fingerprint", shown]) == 0
        ca_file = str(server.identity.cert_path)
        assert syft_command.main(["check", address, "--ca-file", ca_file]) == 0
        assert syft_command.main(["check", address]) == 1
        assert "certificate" in capsys.readouterr().err
        assert syft_command.main(["check", address, "--fingerprint", f"sha256:{'0' * 64}"]) == 1
        assert f"its certificate is another one, {shown}" in capsys.readouterr().err


@contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """A server that says the same to everybody, and then nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(4096)
                sock.sendall(b"".join(answers))
                sock.settimeout(5)
                while sock.recv(4096):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"ws://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", "it is no WebSocket (HTTP/1.1 200 OK)"),
        (b"HTTP/1.1 \x1b[2J\x07no\r\n\r\n", "it is no WebSocket (HTTP/1.1 [2Jno)"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "it is no WebSocket (SSH-2.0-OpenSSH)"),
        (b"", "it does not answer in time"),
        (b"HTTP/1.1 101 x\r\nSec-WebSocket-Accept: no\r\n\r\n", "it is no WebSocket"),
    ],
)
def test_what_is_no_worker(capsys: pytest.CaptureFixture[str], answer: bytes, said: str) -> None:
    with answering(answer) as address:
        assert syft_command.main(["check", address, "--timeout", "0.5"]) == 1
    assert said in capsys.readouterr().err


@contextmanager
def dripping(scheme: str) -> Iterator[str]:
    """A server that sends a byte of an answer now and then."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        over = threading.Event()

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(4096)
                while not over.wait(0.1):
                    sock.sendall(b"H")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/readyz"
        over.set()
        thread.join()


@pytest.mark.parametrize("scheme", ["ws", "http"])
def test_who_answers_a_byte_at_a_time_does_not_answer_in_time(
    capsys: pytest.CaptureFixture[str], scheme: str
) -> None:
    began = time.monotonic()
    with dripping(scheme) as address:
        assert syft_command.main(["check", address, "--timeout", "0.5"]) == 1
        assert time.monotonic() - began < 5
    assert "it does not answer in time" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "x"])
def test_times_that_are_none(capsys: pytest.CaptureFixture[str], seconds: str) -> None:
    with pytest.raises(SystemExit) as ended:
        syft_command.main(["check", "ws://127.0.0.1:1", "--timeout", seconds])
    assert ended.value.code == 2 and "invalid number of seconds value" in capsys.readouterr().err


def test_a_mistake_of_ours_is_no_answer_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(options: object) -> None:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(syft_command, "_ask", fail)
    with pytest.raises(ZeroDivisionError):
        syft_command.main(["check", "ws://127.0.0.1:1"])


@pytest.mark.parametrize("address", ["", "dan", "ws://dan", "ws://127.0.0.1:x", "ftp://dan:1"])
def test_addresses_that_are_none(capsys: pytest.CaptureFixture[str], address: str) -> None:
    assert syft_command.main(["check", address]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_all_else_is_the_whole_command(capsys: pytest.CaptureFixture[str]) -> None:
    for version in (["--version"], ["--help"]):
        try:
            assert syft_command.main(version) == 0
        except SystemExit as ended:
            assert not ended.code
    printed = capsys.readouterr().out
    assert "syft 0." in printed and ", torch 2." in printed and "syft check ADDRESS" in printed
