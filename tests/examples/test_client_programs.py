"""Both small clients as programs: they find the same, and say the same of workers that lie."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import msgspec
import pytest
import torch

import syft as sy
from examples.clients import minimal_client
from syft.serde import serialize
from syft.trust.certificates import own_certificate
from syft.trust.tokens import TokenBook
from tests.examples.served_data import TENSORS, put_plans, serving

PROGRAM = Path(minimal_client.__file__)
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed")

Run = Callable[..., subprocess.CompletedProcess[str]]


def finished(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(params=["python", pytest.param("node", marks=needs_node)])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a client as somebody does who has installed nothing: ``-S`` leaves packages out."""
    command = [sys.executable, "-I", "-S", str(PROGRAM)]
    if request.param == "node":
        command = [str(NODE), str(PROGRAM.with_suffix(".mjs"))]
    return lambda *arguments: finished([*command, *arguments])


@pytest.fixture
def server(hook: sy.TorchHook) -> Iterator[sy.WebsocketServerWorker]:
    with serving(hook, allow_plans=True) as server:
        there = put_plans(hook, server)
        yield server
        there.plans.clear()
        there.close()


def test_it_prints_what_it_finds(run: Run, server: sy.WebsocketServerWorker) -> None:
    before, address = server.objects_count(), str(server.address)
    done = run(address, "#matrix", "--call", "#mean")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("1 at bob (syft ")
    assert set(lines[1].split()[1:]) == {"#data", "#matrix", "data", "for"}
    assert lines[2:] == [
        "    float32 [3, 4]: 0, 1, 2, 3, 4, 5, …",
        "#mean gives float32 [4]: 4, 5, 6, 7",
    ]
    assert run(address, "#extremes").stdout.endswith(" #extremes\n    plan extremes(x, y)\n")
    done = run(address, "#secret")
    assert "    permission denied: get, bob" in done.stdout and done.returncode == 0
    assert server.objects_count() == before


def test_it_shows_the_kinds_of_numbers(run: Run, server: sy.WebsocketServerWorker) -> None:
    for tag, shown in {
        "#negative": "float32 [3]: -1.5, 2.25, inf",
        "#bool": "bool [4]: 0, 1, 1, 1",
        "#scalar": "int64 []: 7",
        "#empty": "float32 [3, 0, 2]: ",
        "#complex64": "complex64 [4]: 0+0j, 1+0j, 3+0j, 100+0j",
    }.items():
        said = run(str(server.address), tag).stdout.replace("Infinity", "inf")
        assert said.endswith(f"\n    {shown}\n")


def test_texts_of_others_do_not_steer_the_terminal(
    run: Run, server: sy.WebsocketServerWorker
) -> None:
    escape: Any = torch.zeros(1).tag("#escape").describe("\x1b[2J")
    server.hold(escape)
    done = run(str(server.address), "#escape")
    assert "#escape " in done.stdout and "\x1b" not in done.stdout


def test_it_says_what_is_wrong(run: Run, hook: sy.TorchHook, tmp_path: Path) -> None:
    book, file = TokenBook(), tmp_path / "token"
    with serving(hook, tokens=book) as server:
        address = str(server.address)
        done = run(address)
        assert (done.returncode, done.stdout) == (1, "")
        refusal = "Refused: the worker refuses this client (token): no token was given\n"
        assert done.stderr == refusal
        file.write_text(book.make("ann", time.time()) + "\n")
        done = run(address, "#secret", "--token-file", str(file))
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith("    float32 [1]: 42\n")
        done = run(address, "--token-file", str(file), "--call", "#none")
        assert (done.returncode, done.stderr) == (1, "ClientError: nothing has the tag #none\n")
    done = run("ws://127.0.0.1:1")
    assert done.returncode == 1 and "refused" in done.stderr.lower()
    done = run("http://127.0.0.1:80")
    assert done.returncode == 1 and "is none of ws://host:port" in done.stderr


def test_encrypted_and_pinned(run: Run, hook: sy.TorchHook, tmp_path: Path) -> None:
    with serving(hook, host="0.0.0.0", state=tmp_path, anonymous=True) as server:
        address = f"wss://127.0.0.1:{server.port}"
        fingerprint = own_certificate(tmp_path).fingerprint
        colons = ":".join(fingerprint[at : at + 2] for at in range(7, 71, 2)).upper()
        for written in (fingerprint, f"SHA256:{colons}"):
            done = run(address, "#scalar", "--fingerprint", written)
            assert done.stdout.endswith("    int64 []: 7\n"), done.stderr
        done = run(address, "--fingerprint", "sha256:" + "ab" * 32)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.endswith(f"not the pinned one: {fingerprint}\n")
        done = run(address)
        assert done.returncode == 1 and "self-signed certificate" in done.stderr.replace(" s", "-s")
        assert run(f"ws://127.0.0.1:{server.port}").returncode == 1


def test_an_older_tls_is_refused(run: Run, tmp_path: Path) -> None:
    identity = own_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.cert_path, identity.key_path)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    outcome: list[str] = []

    def serve() -> None:
        sock, _ = listener.accept()
        try:
            with context.wrap_socket(sock, server_side=True):
                outcome.append("a handshake")
        except OSError:
            outcome.append("none")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        address = f"wss://127.0.0.1:{listener.getsockname()[1]}"
        assert run(address, "--fingerprint", identity.fingerprint).returncode == 1
        thread.join()
    assert outcome == ["none"]


def test_over_a_unix_socket(run: Run, hook: sy.TorchHook, tmp_path: Path) -> None:
    with serving(hook, unix=tmp_path / "bob.sock") as server:
        assert run(str(server.address), "#scalar").stdout.endswith("    int64 []: 7\n")


# --------------------------------------------------------------------------------- JavaScript alone

DUMP = """
import { Client } from "%s";
const client = await Client.connect("%s");
const dumped = {};
for (const tag of %s) {
  const [{ id, shape }] = await client.search(tag);
  const value = await client.read(id);
  dumped[tag] = [value.dtype, shape, value.toList()];
}
const [plan] = await client.search("#extremes");
const inputs = await Promise.all(["#matrix", "#noise"].map((tag) => client.search(tag)));
const [low, high, rows] = await client.call(plan, ...inputs.map(([found]) => found.id));
dumped.plan = ["", [], [low.toList(), high.toList(), rows]];
for (let count = 0; count < 300; count += 1) await client.search("#scalar");
const text = (key, value) => (typeof value === "bigint" || value === Infinity ? `${value}` : value);
console.log(JSON.stringify(dumped, text));
process.stdin.once("end", () => client.close()).resume();
"""


@needs_node
def test_each_tensor_is_read_as_torch_has_it(server: sy.WebsocketServerWorker) -> None:
    script = DUMP % (PROGRAM.with_suffix(".mjs"), server.address, json.dumps([*TENSORS]))
    before = server.objects_count()
    command = [str(NODE), "--input-type=module", "-e", script]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as client:
        assert client.stdin is not None and client.stdout is not None
        dumped = json.loads(client.stdout.readline())
        assert server.objects_count() == before, "the results were taken away"
        (guest,) = (g for g in server.reception.guests.values() if g.name == "minimal client")
        assert guest.line.sent > 300 and guest.line.kept < 200
        client.stdin.close()
        assert (client.wait(60), client.stdout.read()) == (0, "")
    for tag, tensor in TENSORS.items():
        dtype, shape, values = dumped[tag]
        assert (f"torch.{dtype}", shape) == (str(tensor.dtype), list(tensor.shape))
        expected = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        found = torch.tensor([*map(float, _flat(values))], dtype=torch.float64)
        assert found.tolist() == expected.double().flatten().tolist(), tag
        assert _shape(values) == _shape(expected.tolist())
    matrix, noise = TENSORS["#matrix"], TENSORS["#noise"]
    assert dumped["plan"][2] == [matrix.amin(0).tolist(), noise.amax().item(), 3]


def _flat(values: Any) -> Iterator[Any]:
    if isinstance(values, list):
        for value in values:
            yield from _flat(value)
    else:
        yield values


def _shape(values: Any) -> Any:
    return [*map(_shape, values)] if isinstance(values, list) else None


# -------------------------------------------------------------------------------- workers that lie


def text(said: bytes) -> bytes:
    """A text message of a server."""
    size = bytes([len(said)]) if len(said) < 126 else struct.pack(">BH", 126, len(said))
    return b"\x81" + size + said


def reply(header: Any, cut: int = 0, channel: int = 0) -> bytes:
    """A frame of a server, as a message."""
    whole = minimal_client.frame(msgspec.msgpack.encode(header), channel=channel)
    whole = whole[: len(whole) - cut]
    return bytes([0x82, len(whole)]) + whole


WELCOME = text(b'{"kind":"welcome","worker":"bob","heartbeat":0.1}')
BUSY = reply([11, "add", None, 1.5, 1], channel=3)
COMPRESSED = bytes(serialize(torch.zeros(2000)))


@pytest.fixture
def lying() -> Iterator[Callable[[bytes], str]]:
    """Serves one connection, says certain bytes, and waits until the client leaves."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def serve(said: bytes, handshake: bool) -> None:
        sock, _ = listener.accept()
        with sock:
            request = b""
            while b"\r\n\r\n" not in request:
                request += sock.recv(4096)
            key = request.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0]
            proof = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
            answer = b"HTTP/1.1 101 Switching Protocols\r\nsec-websocket-protocol:syft\r\n"
            answer += b"Sec-WebSocket-Accept: " + base64.b64encode(proof) + b"\r\n\r\n"
            sock.sendall(answer + said if handshake else said)
            try:
                while data := sock.recv(4096):
                    start.heard += data  # type: ignore[attr-defined]
            except ConnectionError:
                pass

    def start(said: bytes, handshake: bool = True) -> str:
        threads.append(threading.Thread(target=serve, args=(said, handshake)))
        threads[-1].start()
        return f"ws://127.0.0.1:{listener.getsockname()[1]}"

    start.heard, start.threads = b"", threads  # type: ignore[attr-defined]
    yield start
    for thread in threads:
        thread.join()
    listener.close()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (text(b'{"kind":"received","count":1}'), "did not answer with a welcome"),
        (b"\x88\x06\x03\xe9done", "the worker has left: done"),
        (b"\x81\xff" + bytes(20), "masked"),
        (b"\xc1\x01x", "extended"),
        (b"\x81\x7f\x7f" + b"\xff" * 7, "too large"),
        (WELCOME + reply([33, 7, 5]), "a reply to"),
        (WELCOME + reply([36, 1]), "a reply to"),
        (WELCOME + reply([33, 1, [2, [32, 99, [2], None, 0]]]), "no tensors of DTypeCode 99"),
        (WELCOME + reply([33, 1, 5], cut=1), "ClientError: "),
        (WELCOME + reply([33, 1, {"a": 1}]), "what no value begins with"),
        (WELCOME + reply([34, -1, [29, 149, ["$"], None, []]]), "Failure: error 149: $"),
        (WELCOME + b"\x82\x7e\x00\xff" + b"syft\x01\0" + b"\xff" * 249, "ClientError: "),
    ],
    ids=itertools.count(),
)
def test_a_worker_that_lies(run: Run, lying: Any, said: bytes, expected: str) -> None:
    done = run(lying(said), "#x")
    assert (done.returncode, done.stdout) == (1, "")
    assert expected in done.stderr and done.stderr.count("\n") == 1


def heard_frames(lying: Any) -> list[tuple[int, bytes]]:
    """What a client said: opcodes, and what came with them."""
    for thread in lying.threads:
        thread.join()
    data, frames = lying.heard, []
    while data:
        size, at = data[1] & 127, 2
        if size == 126:
            size, at = int.from_bytes(data[2:4], "big"), 4
        key, body = data[at : at + 4], data[at + 4 : at + 4 + size]
        frames.append((data[0] & 15, bytes(a ^ b for a, b in zip(body, key * size, strict=False))))
        data = data[at + 4 + size :]
    return frames


def test_a_silent_worker_is_asked_twice_and_given_up(run: Run, lying: Any) -> None:
    assert "fallen silent" in run(lying(WELCOME), "#x").stderr
    assert [opcode for opcode, _ in heard_frames(lying)].count(9) == 2


def test_a_server_that_is_no_worker(run: Run, lying: Any) -> None:
    done = run(lying(b"HTTP/1.1 200 OK\r\n\r\n", False))
    assert "no worker answered at this address: HTTP/1.1 200 OK" in done.stderr


def test_notices_heartbeats_and_messages_in_pieces(run: Run, lying: Any) -> None:
    found = reply([33, 1, [3, [2, 5, [3, "#x"], None, [18, 2]]]])
    pieces = (
        b"\x02\x04" + found[2:6] + b"\x89\x02hi" + b"\x80" + bytes([len(found) - 6]) + found[6:]
    )
    notices = BUSY + reply([38, False]) + reply([37]) + reply([35, 1, [], False])
    operand, _ = minimal_client.unframe(COMPRESSED)
    frame = _with_header(COMPRESSED, msgspec.msgpack.encode([33, 2, operand]))
    said = (
        WELCOME
        + notices
        + pieces
        + b"\x8a\x00"
        + struct.pack(">BBH", 0x82, 126, len(frame))
        + frame
    )
    done = run(lying(said), "#x")
    assert done.stderr == ""
    assert (10, b"hi") in heard_frames(lying), "the heartbeat was answered"
    assert done.stdout.splitlines()[1:] == ["5 #x", "    float32 [2000]: 0, 0, 0, 0, 0, 0, …"]


def _with_header(frame: bytes, header: bytes) -> bytes:
    """A frame of one buffer with another header."""
    size = struct.unpack_from("<I", frame, 12)[0]
    stored = struct.unpack_from("<Q", frame, 16)[0]
    assert frame[32:36] == b"\1\0\0\0", "the buffer is compressed"
    head = frame[:12] + struct.pack("<I", len(header)) + frame[16:40] + header
    assert len(frame) == -(-(40 + size) // 64) * 64 + stored
    return head + bytes(-len(head) % 64) + frame[len(frame) - stored :]
