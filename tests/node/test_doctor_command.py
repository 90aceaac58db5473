"""``syft doctor``: what each step finds, where it stops, and what it advises."""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import syft as sy
from syft.node import doctor_command as checkup
from syft.node.cli import main
from syft.ops.table import NAMES
from syft.trust.certificates import own_certificate
from syft.trust.tokens import TokenBook
from syft.version import software
from syft.workers.core.peer_limits import PeerLimits

Examine = Callable[..., dict[str, str]]


@pytest.fixture
def examine(capsys: pytest.CaptureFixture[str]) -> Examine:
    """Runs the command; returns what it says of each step, advice included."""

    def run(*arguments: str, status: int = 0) -> dict[str, str]:
        assert main(["doctor", *arguments]) == status
        printed, said = capsys.readouterr()
        assert said == ""
        found: dict[str, str] = {}
        step = ""
        for line in printed.splitlines():
            if line.startswith(" "):
                found[step] += f" | {line.strip()}"
            else:
                step = line[6:18].strip()
                found[step] = f"{line[:6].strip()}: {line[18:]}"
        return found

    return run


def test_a_connection_that_is_well(examine: Examine, hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as dan:
        found = examine(str(dan.address))
        left = dan.objects_count()
    assert list(found) == list(checkup.STEPS)
    assert all(said.startswith("ok: ") for said in found.values())
    assert found["encryption"] == "ok: none, and none is needed: the worker is on this machine"
    assert found["greeting"] == "ok: worker dan answers, a worker of syft"
    assert found["versions"].endswith("operations, and there too")
    assert found["caller"] == "ok: the worker takes you for no user (no token), and takes no plans"
    said = "a heartbeat every 2 s, objects kept 60 s for who is gone; one user may have"
    assert said in found["limits"] and "connections     1,024" in found["limits"]
    assert "bytes           17 GB" in found["limits"]
    assert " µs, the median of 200; 95 of 100 within " in found["round trip"]
    assert found["throughput"].endswith("B/s back, in tensors of 8.0 MB")
    assert left == 0


def test_a_unix_socket(examine: Examine, hook: sy.TorchHook, tmp_path: Path) -> None:
    with sy.WebsocketServerWorker(hook, unix=tmp_path / "d", id="dan", allow_plans=True) as dan:
        assert examine(str(dan.address))["caller"].endswith("takes plans")
    gone = examine(str(dan.address), status=1)
    assert "Start it, or correct the path" in gone["address"]


# ----------------------------------------------------------------------------- tokens and pins


@pytest.fixture
def own(tmp_path: Path) -> Any:
    return own_certificate(tmp_path / "state")


@contextmanager
def encrypted(hook: sy.TorchHook, own: Any, **settings: Any) -> Iterator[str]:
    """The address of a worker that speaks TLS."""
    both = {"cert_path": own.cert_path, "key_path": own.key_path}
    with sy.WebsocketServerWorker(hook, port=0, id="dan", **both, **settings) as dan:
        yield str(dan.address)


def test_pins_and_authorities(examine: Examine, hook: sy.TorchHook, own: Any) -> None:
    with encrypted(hook, own) as address:
        pinned = examine(address, "--fingerprint", own.fingerprint)
        assert pinned["encryption"] == "ok: TLS 1.3, and the certificate is the pinned one"
        vouched = examine(address, "--ca-file", str(own.cert_path))["encryption"]
        assert (
            vouched == f"ok: TLS 1.3, and {own.cert_path} vouches for the certificate of 127.0.0.1"
        )
        for options, advice in [
            ((), "Give the fingerprint that the worker printed"),
            (("--fingerprint", "sha256:" + "ab" * 32), "Connect only if the owner confirms"),
            (("--fingerprint", "ab"), "A fingerprint is sha256: and 64 digits"),
            (("--ca-file", "nowhere"), "Give the fingerprint that the worker printed"),
        ]:
            found = examine(address, *options, status=1)
            assert list(found) == ["address", "encryption"], options
            assert found["encryption"].startswith("FAIL: ") and advice in found["encryption"]
        plain = examine(address.replace("wss", "ws"), status=1)
        assert list(plain) == ["address", "encryption", "greeting"]
        assert "If it prints wss:// at its start, use that." in plain["greeting"]
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as dan:
        found = examine(str(dan.address).replace("ws", "wss"), status=1)
        assert "If it prints ws:// at its start, use that." in found["encryption"]


def test_tokens(
    examine: Examine, hook: sy.TorchHook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = TokenBook(tmp_path / "tokens.json")
    token = book.make("ann", time.time())
    kept = tmp_path / "token"
    kept.write_text(token + "\n")
    with sy.WebsocketServerWorker(hook, port=0, id="dan", tokens=book) as dan:
        address = str(dan.address)
        monkeypatch.setattr("sys.stdin", io.StringIO(token))
        for given in (["--token", token], ["--token-file", str(kept)], ["--token-file", "-"]):
            assert "takes you for user ann" in examine(address, *given)["caller"]
        refused = examine(address, status=1)
        assert list(refused) == ["address", "encryption", "greeting", "versions", "caller"]
        assert "no token was given" in refused["caller"] and "syft token new" in refused["caller"]
        for _ in range(10):
            refused = examine(address, "--token", token[:-2] + "xx", status=1)
            assert "the token is unknown or has expired" in refused["caller"]
        assert "Wait a minute" in examine(address, "--token", token, status=1)["caller"]


def test_a_token_file_holds_one_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content in ("", "one two"):
        (tmp_path / "token").write_text(content)
        assert main(["doctor", "ws://127.0.0.1:1", "--token-file", str(tmp_path / "token")]) == 1
        assert "it does not hold one token alone" in capsys.readouterr().err


# ------------------------------------------------------------------------------ where it stops


@contextmanager
def listener(answer: bytes | None) -> Iterator[str]:
    """The address of a program that is no worker: it says something, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for _ in range(2):
                caller, _ = listening.accept()
                with caller:
                    if answer:
                        caller.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"ws://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


def test_what_is_no_worker(examine: Examine) -> None:
    for answer in (b"HTTP/1.1 404 Not Found\r\n\r\n", b"SSH-2.0-OpenSSH_9.6\r\n", None):
        with listener(answer) as address:
            found = examine(address, status=1)
        assert list(found) == ["address", "encryption", "greeting"]
        assert found["greeting"].startswith("FAIL: ") and " | " in found["greeting"]


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("bob", "Copy the address that the worker printed"),
        ("ws://127.0.0.1:1", "Nobody listens there."),
        ("ws://no-such-host.invalid:8777", "No such host is known here."),
    ],
)
def test_an_address_where_nobody_is(examine: Examine, address: str, advice: str) -> None:
    found = examine(address, status=1)
    assert list(found) == ["address"] and advice in found["address"]


def test_another_version_says_which_end_is_older(
    examine: Examine, hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as dan:
        monkeypatch.setattr("syft.workers.sockets.dialling.PROTOCOL", 9)
        found = examine(str(dan.address), status=1)
        assert list(found)[-1] == "versions"
        assert "this worker is the older one" in found["versions"]
        assert "Install the same version of syft at both ends." in found["versions"]
        monkeypatch.undo()
        for version, older in (("syft 0.2", "here"), ("syft 0.10", "the worker")):
            monkeypatch.setattr(checkup, "software", lambda version=version: version)
            said = examine(str(dan.address))["versions"]
            there = f"there {software()} with {len(NAMES):,} operations: {older} is the older one"
            assert said.endswith(there)


def test_a_worker_that_does_not_say_what_one_may_have(
    examine: Examine, hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As workers of earlier versions."""
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as dan:
        monkeypatch.setattr(dan.reception.admissions, "limits", lambda limits: None)
        found = examine(str(dan.address))
    assert found["limits"].endswith("objects kept 60 s for who is gone")


def test_a_limit_that_is_too_low_for_the_measurement(examine: Examine, hook: sy.TorchHook) -> None:
    limits = PeerLimits(bytes=1_000_000)
    with sy.WebsocketServerWorker(hook, port=0, id="dan", peer_limits=limits) as dan:
        found = examine(str(dan.address), status=1)
    assert list(found)[-1] == "throughput"
    assert "Over a limit of worker 'dan'" in found["throughput"]


def test_what_the_other_end_says_moves_no_cursor() -> None:
    finding = checkup.Finding("caller", "refused: \x1b[2J\nok    caller", "Ask the owner.")
    assert str(finding).splitlines()[0].endswith(r"refused: \x1b[2J\nok    caller")
