"""A worker that keeps the rules only now and then, for the programs that call it.

It shares no code with the client that it attacks, but for the encoding of messages.  What it does
follows from a seed.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from syft.workers.wire import messages
from tests.workers.sockets.attacks.mutations import SAMPLES, TEXTS, mutated, mutated_text
from tests.workers.sockets.attacks.stranger import BINARY, CLOSE, PING, TEXT, frame, syft_frame
from tests.workers.sockets.line_records import UNCOUNTED, message_of, said_in

ABSURD: list[Any] = [
    *(0, -1, 1, 2**31, 2**63, 2**70, -(2**70), 1e300, -0.0, 1e-9),
    *(float("nan"), float("inf"), None, "", "\x00\x1b[2J\n", "\u202e", "x" * 9000, [], {}, True),
]
"""What no field of a welcome should be."""

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_PATIENCE = 3.0


class Gone(Exception):
    """The client, or the worker itself, has ended the connection."""


class HostileWorker:
    """Serves one connection after another on a thread of its own, as ``seed`` says.

    ``honesty`` is the share of the times at which it does what it should.
    """

    def __init__(self, seed: int, honesty: float = 0.8) -> None:
        self.random = random.Random(seed)
        self.honesty = honesty
        self.deeds: list[str] = []
        """What it has done, for whoever wants to know why a client did what it did."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.01)
        self.port: int = self._listener.getsockname()[1]
        self._stop = False
        self._socket: socket.socket | None = None
        self._read = b""
        self._received = 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> HostileWorker:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop = True
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        while not self._stop:
            try:
                self._socket, _ = self._listener.accept()
            except TimeoutError:
                continue
            self._read, self._until = b"", time.monotonic() + _PATIENCE
            with self._socket, contextlib.suppress(Gone, OSError):
                self._socket.settimeout(0.01)
                self._serve()

    def _honest(self) -> bool:
        return self.random.random() < self.honesty

    def _choose(self, *deeds: Callable[[], None]) -> None:
        deed = self.random.choice(deeds)
        self.deeds.append(deed.__name__)
        deed()

    # ---------------------------------------------------------------------------------- bytes

    def _send(self, data: bytes) -> None:
        """Write bytes, which the client may be slow to read."""
        assert self._socket is not None
        data_left = memoryview(data)
        while data_left:
            try:
                data_left = data_left[self._socket.send(data_left) :]
            except TimeoutError:
                self._check_time()

    def _check_time(self) -> None:
        if self._stop or time.monotonic() > self._until:
            raise Gone

    def _take(self, count: int) -> bytes:
        assert self._socket is not None
        while len(self._read) < count:
            try:
                data = self._socket.recv(1 << 16)
            except TimeoutError:
                self._check_time()
                continue
            if not data:
                raise Gone
            self._read += data
        data, self._read = self._read[:count], self._read[count:]
        return data

    def _frame(self) -> tuple[int, bytes]:
        head = self._take(2)
        size = head[1] & 127
        if size > 125:
            size = int.from_bytes(self._take(2 if size == 126 else 8), "big")
        key = self._take(4)
        turned = (key * (size // 4 + 1))[:size]
        mixed = int.from_bytes(self._take(size), "big") ^ int.from_bytes(turned, "big")
        return head[0] & 15, mixed.to_bytes(size, "big")

    def _tell(self, record: Any) -> None:
        self._send(frame(*message_of(record), key=None))

    def _say(self, message: Any, channel: int = 0) -> None:
        self._send(frame(BINARY, syft_frame(messages.encode(message), channel), key=None))

    # -------------------------------------------------------------------------- one connection

    def _serve(self) -> None:
        key = self._request()
        if self._honest():
            self._switch(key)
        else:
            self._bad_handshake(key)
        opcode, hello = self._frame()
        resumed = b'"resume":' in hello
        while opcode != TEXT:
            opcode, hello = self._frame()
        if not self._honest():
            self._choose(self._texts, self._binary, self._pings, self._silence, self._noise)
        if not resumed:
            self._received = 0
        self._welcome(self._honest(), resumed)
        while True:
            opcode, data = self._frame()
            said = said_in(opcode, data)
            if opcode == BINARY and (said is None or said["kind"] not in UNCOUNTED):
                self._received += 1
            if self._honest():
                self._answer(opcode, data)
            else:
                self._misbehave()

    def _request(self) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._take(1)
        for line in data.split(b"\r\n"):
            if line.lower().startswith(b"sec-websocket-key:"):
                return line.partition(b":")[2].strip()
        raise Gone

    def _switch(self, key: bytes, more: bytes = b"", rest: bytes = b"") -> None:
        accept = base64.b64encode(hashlib.sha1(key + _GUID).digest())
        self._send(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n" + more + b"\r\n" + rest
        )

    def _bad_handshake(self, key: bytes) -> None:
        random_ = self.random
        deeds: dict[str, bytes] = {
            "redirect": b"HTTP/1.1 301 Moved\r\nLocation: ws://127.0.0.1:1/\r\n\r\n",
            "megabytes": b"HTTP/1.1 101 S\r\n" + b"X: " + b"y" * (1 << 20),
            "headers": b"HTTP/1.1 101 S\r\n" + b"".join(b"X%d: y\r\n" % i for i in range(300)),
            "ok": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "many": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
            "unauthorized": b"HTTP/1.1 401 U\r\nWWW-Authenticate: Basic\r\n\r\n",
            "no HTTP": random_.randbytes(300) + b"\r\n\r\n",
            "half": b"HTTP/1.1 101 Switch",
            "nothing": b"",
        }
        name = random_.choice([*deeds, "extension", "protocol", "accept", "early", "gone"])
        self.deeds.append(name)
        if name == "extension":
            self._switch(key, b"Sec-WebSocket-Extensions: permessage-deflate\r\n")
        elif name == "protocol":
            self._switch(key, b"Sec-WebSocket-Protocol: chat\r\n")
        elif name == "accept":
            self._switch(b"another" + key)
        elif name == "early":
            self._switch(key, rest=self._attack())
        elif name == "gone":
            raise Gone
        else:
            self._send(deeds[name])
            self._silence()

    def _welcome(self, honest: bool, resumed: bool) -> None:
        welcome: dict[str, Any] = {
            **{"kind": "welcome", "worker": "mallory", "protocol": 3, "ops": 0, "line": "l"},
            **{"secret": "s", "name": "me", "heartbeat": 0.05, "lease": 1.0},
            "received": self._received if resumed else 0,
        }
        if not honest:
            self.deeds.append("welcome")
            if self.random.random() < 0.1:
                welcome = {"kind": "refused", "code": "\x1b", "reason": "\x1b[2J" * 500}
            for _ in range(self.random.choice([1, 1, 2])):
                name = self.random.choice(
                    [*welcome, "sizes", "ops", "software", "fingerprint", "user", "plans"]
                )
                welcome[name] = self.random.choice(ABSURD)
                if name == "sizes" and self.random.random() < 0.8:
                    sizes = ("max_bytes", "max_header_bytes", "max_buffers")
                    welcome[name] = {each: self.random.choice(ABSURD[:7]) for each in sizes}
        self._tell(welcome)

    def _answer(self, opcode: int, data: bytes) -> None:
        """Answer as a worker would."""
        said = said_in(opcode, data)
        if said is not None:
            if said["kind"] == "settle":
                self._tell({"kind": "settled", "number": said["number"], "moved": False})
        elif opcode == BINARY:
            self._tell({"kind": "received", "count": self._received})
            _, size = struct.unpack_from("<II", data, 8)
            count = struct.unpack_from("<I", data, 8)[0]
            at = 16 + 24 * count
            with contextlib.suppress(Exception):
                request = messages.decode(data[at : at + size])
                self._say(self._reply(request))
        elif opcode == PING:
            self._send(frame(10, data, key=None))
        elif opcode == CLOSE:
            raise Gone

    def _reply(self, request: Any) -> Any:
        """The reply to a request: what it should be, or another value."""
        kind = type(request).__name__
        if kind not in ("Search", "Fetch", "FetchAll", "Describe") and self._honest():
            return messages.Done(request.seq)
        self.deeds.append(f"any value for {kind}")
        return messages.Value(request.seq, self._any_value())

    def _any_value(self, depth: int = 0) -> Any:
        """What any operand may be."""
        simple = self.random.choice([0, 5, -1, 2**63, 1.5, "x", "", b"y", None, True, (8,), (0, 7)])
        if depth > 2 or self.random.random() < 0.4:
            return simple
        items = [self._any_value(depth + 1) for _ in range(self.random.randrange(4))]
        return (self.random.choice([2, 3, 18]), *items)

    # ---------------------------------------------------------------------------- misbehaviour

    def _misbehave(self) -> None:
        self._choose(
            *(self._texts, self._binary, self._pings, self._silence, self._noise, self._mutated),
            *(self._wrong_replies, self._meetings, self._counts, self._huge, self._half),
            *(self._closes, self._opens, self._resets, self._many_replies, self._requests),
        )

    def _attack(self) -> bytes:
        random_ = self.random
        kind = random_.randrange(8)
        if kind == 0:
            return random_.randbytes(random_.randrange(1, 200))
        if kind < 3:
            return frame(*mutated_text(random_), key=None)
        if kind == 3:
            return mutated(random_, frame(BINARY, random_.choice(SAMPLES), key=None))
        return frame(BINARY, mutated(random_, random_.choice(SAMPLES)), key=None)

    def _mutated(self) -> None:
        for _ in range(self.random.randrange(1, 6)):
            self._send(self._attack())

    def _texts(self) -> None:
        for _ in range(self.random.randrange(1, 30)):
            self._send(frame(*self.random.choice(TEXTS), key=None))

    def _binary(self) -> None:
        for _ in range(self.random.randrange(1, 30)):
            self._send(frame(BINARY, self.random.choice(SAMPLES), key=None))

    def _pings(self) -> None:
        until = time.monotonic() + self.random.choice([0.0, 0.1, 0.3])
        while True:
            self._send(frame(PING, bytes(self.random.choice([0, 125])), key=None) * 50)
            if time.monotonic() > until:
                return

    def _silence(self) -> None:
        until = time.monotonic() + self.random.choice([0.02, 0.1, 0.4])
        while time.monotonic() < until:
            self._check_time()
            time.sleep(0.02)

    def _noise(self) -> None:
        self._send(self.random.randbytes(self.random.randrange(1, 3000)))

    def _wrong_replies(self) -> None:
        for _ in range(self.random.randrange(1, 20)):
            seq = self.random.choice([-1, 0, 1, 2, 3, 2**40, 2**63 - 1, -(2**63)])
            reply = self.random.choice(
                [
                    *(messages.Done(seq), messages.Value(seq, (0, 5)), messages.Parked(seq, (5,))),
                    *(messages.Skipped(seq), messages.Forgotten(), messages.Stale(True)),
                    *(messages.Cancelled(seq), messages.Failure(seq, (29, 1, (), None, ()))),
                    *(messages.Value(seq, (1, 5, "bob", True, 0)), messages.Failure(seq, None)),
                ]
            )
            self._say(reply, self.random.choice([0, 0, 0, 1, 4, 5, 9]))

    def _many_replies(self) -> None:
        reply = frame(BINARY, syft_frame(messages.encode(messages.Done(2**40))), key=None)
        for _ in range(self.random.choice([10, 100])):
            self._send(reply * 100)

    def _requests(self) -> None:
        requests = [messages.Search(1, ()), messages.Fetch(1, 5), messages.Drop(1, (1, 2, 3))]
        for _ in range(self.random.choice([1, 300])):
            self._say(self.random.choice(requests), self.random.choice([0, 1, 2, 4]))

    def _meetings(self) -> None:
        for number in range(self.random.choice([1, 300])):
            name = self.random.choice(["bob", "me", "mallory", "alice", "\x1b[2J", "x" * 9000])
            user = self.random.choice([None, "ann", "\x00"])
            self._tell({"kind": "meet", "number": number, "name": name, "user": user})

    def _counts(self) -> None:
        kind = self.random.choice(["received", "settled", "introduction", "told"])
        number = self.random.choice([-1, 0, 1, 2, 3, 2**31, 2**63, 2**70])
        record = {"kind": kind, "number": number, "moved": True, "name": "x", "count": number}
        self._tell(record)

    def _huge(self) -> None:
        size = self.random.choice([1 << 20, 1 << 31, 1 << 62])
        kind = self.random.randrange(4)
        table = struct.pack("<QQII", size, size, 0, 0)
        prefix = struct.pack("<4sBBHII", b"syft", 1, 0, 0, 1, 1)
        if kind == 0:
            self._send(frame(BINARY, b"syft", size=size, wide=8, key=None))
        elif kind == 1:
            self._send(frame(BINARY, prefix + table + b"\xc0" * 100, size=size, wide=8, key=None))
        elif kind == 2:
            self._send(frame(TEXT, b"{" * 100, size=size, wide=8, key=None))
        else:
            prefix = struct.pack("<4sBBHII", b"syft", 1, 0, 0, min(size, 2**32 - 1), 2**32 - 1)
            self._send(frame(BINARY, prefix + bytes(100), size=size, wide=8, key=None))
        self._silence()

    def _half(self) -> None:
        data = self._attack()
        self._send(data[: self.random.randrange(len(data) + 1)])
        self._silence()

    def _closes(self) -> None:
        code = self.random.choice(
            [b"", b"\x03", b"\x03\xe8", b"\xff\xff", b"\x03\xe8\xff", bytes(99)]
        )
        self._send(frame(CLOSE, code, key=None))
        for _ in range(self.random.randrange(4)):
            self._say(messages.Done(self.random.randrange(5)))

    def _opens(self) -> None:
        for _ in range(self.random.choice([1, 50])):
            self._tell(
                {
                    "kind": "open",
                    "channel": self.random.choice([-1, 0, 1, 4, 6, 7, 2**16, 2**70]),
                    "source": self.random.choice(["bob", "me", "alice", "", "\x1b"]),
                    "target": self.random.choice(["me", "bob", "nobody"]),
                    "beside": self.random.choice([None, 0, 7, -1]),
                }
            )

    def _resets(self) -> None:
        assert self._socket is not None
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Gone
