"""A client of a syft worker in Python's standard library alone, to show what the protocol needs.

It searches by tag, reads public tensors and calls plans that a worker holds.  It follows
``docs/wire.md``, section "Lines", and nothing else: neither syft nor torch is imported.  What it
leaves out, that page allows: it serves nothing itself, does not resume a broken line, and waits for
each reply.  It is one file, so that it can be copied as it is.

    python examples/clients/minimal_client.py ws://127.0.0.1:8777 '#digits'
    python examples/clients/minimal_client.py wss://host:8777 '#digits' \\
        --token-file token.txt --fingerprint sha256:… --call '#mean'
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import ipaddress
import json
import os
import secrets
import socket
import ssl
import struct
import sys
from array import array
from array import typecodes as array_types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

MOST: Final = 1 << 30
"""Bytes of a message that this client takes."""


class ClientError(Exception):
    """What went wrong between this client and the worker, in one sentence."""


class Refused(ClientError):
    """The worker does not let this client in; ``code`` is for programs."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.code, self.reason = code, reason

    def __str__(self) -> str:
        return f"the worker refuses this client ({self.code}): {self.reason}"


class Failure(ClientError):
    """A request failed at the worker: an ErrorCode, and the arguments of the exception."""

    NAMES: Final = {135: "object not found", 151: "permission denied", 159: "plans not allowed"}

    def __init__(self, code: int, arguments: Sequence[Any]) -> None:
        super().__init__(code, arguments)
        self.code, self.arguments = code, arguments

    def __str__(self) -> str:
        said = ", ".join(map(str, self.arguments))
        return f"{self.NAMES.get(self.code, f'error {self.code}')}: {said}"


# ------------------------------------------------------------------------------------ MessagePack


def packed(value: Any) -> bytes:
    """Encode nil, integers, texts, bytes, and lists of these; booleans as well."""
    return _PACK[type(value)](value)


def _packed_int(value: int) -> bytes:
    if -32 <= value < 128:
        return bytes([value & 255])
    return struct.pack(">Bq", 0xD3, value) if value < 0 else struct.pack(">BQ", 0xCF, value)


_PACK: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda value: b"\xc0",
    bool: lambda value: b"\xc3" if value else b"\xc2",
    int: _packed_int,
    str: lambda value: struct.pack(">BI", 0xDB, len(value.encode())) + value.encode(),
    bytes: lambda value: struct.pack(">BI", 0xC6, len(value)) + value,
    list: lambda value: struct.pack(">BI", 0xDD, len(value)) + b"".join(map(packed, value)),
}
_WORDS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS: Final = dict(zip(range(0xCA, 0xD4), "fdBHIQbhiq", strict=True))
_SIZED: Final = {0xC4: "B", 0xC5: "H", 0xC6: "I", 0xD9: "B", 0xDA: "H", 0xDB: "I"}
_ARRAYS: Final = {0xDC: "H", 0xDD: "I"}


class Unpacker:
    """Decodes one MessagePack value; maps and extensions do not occur, and are refused."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def whole(self) -> Any:
        """The value, if it ends where the data ends."""
        value = self._value(0)
        if self.at != len(self.data):
            raise ClientError("a header has more than one value")
        return value

    def _value(self, depth: int) -> Any:
        tag = self._bytes(1)[0]
        if tag < 0x80 or tag >= 0xE0:
            return tag if tag < 0x80 else tag - 256
        if tag in _WORDS:
            return _WORDS[tag]
        if tag in _NUMBERS:
            return self._number(_NUMBERS[tag])
        if 0xA0 <= tag < 0xC0 or tag in _SIZED:
            data = self._bytes(self._number(_SIZED[tag]) if tag in _SIZED else tag & 31)
            return data if tag in (0xC4, 0xC5, 0xC6) else data.decode()
        if not 0x90 <= tag < 0xA0 and tag not in _ARRAYS:
            raise ClientError(f"a header holds what no value begins with: {tag:#x}")
        size = self._number(_ARRAYS[tag]) if tag in _ARRAYS else tag & 15
        if depth > 200 or size > len(self.data) - self.at:
            raise ClientError("an array is nested too deep, or longer than the header")
        return [self._value(depth + 1) for _ in range(size)]

    def _number(self, form: str) -> Any:
        return struct.unpack(f">{form}", self._bytes(struct.calcsize(f">{form}")))[0]

    def _bytes(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self.data):
            raise ClientError("a header ends too early")
        return self.data[self.at - size : self.at]


# ------------------------------------------------------------------------------------------- LZ4


def unlz4(data: bytes, size: int) -> bytes:
    """Decompress one LZ4 frame of ``size`` bytes; its checksums are left to TLS and TCP."""
    magic, flags = struct.unpack_from("<IB", data)
    if magic != 0x184D2204 or flags >> 6 != 1:
        raise ClientError("a buffer is no LZ4 frame")
    at = 7 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
    out = bytearray()
    while True:
        (length,) = struct.unpack_from("<I", data, at)
        block = data[at + 4 : at + 4 + (length & 0x7FFFFFFF)]
        at += 4 + len(block) + (4 if flags & 16 else 0)
        if not length:
            break
        if length >> 31:
            out += block
        else:
            _unlz4_block(block, out, size)
    if len(out) != size:
        raise ClientError("a buffer has another size than its frame says")
    return bytes(out)


def _unlz4_block(block: bytes, out: bytearray, most: int) -> None:
    """Append one block: literals, and copies of what came before, in turns."""
    at = 0

    def length(short: int) -> int:
        nonlocal at
        total, more = short, short == 15
        while more:
            total, more, at = total + block[at], block[at] == 255, at + 1
        return total

    while at < len(block):
        token, at = block[at], at + 1
        literals = length(token >> 4)
        out += block[at : at + literals]
        at += literals
        if at >= len(block):
            return
        offset, at = block[at] | block[at + 1] << 8, at + 2
        copied = length(token & 15) + 4
        if not 0 < offset <= len(out) or len(out) + copied > most:
            raise ClientError("an LZ4 block points outside of itself")
        start = len(out) - offset
        piece = out[start : start + copied]
        out += (piece * (copied // len(piece) + 1))[:copied]


# ----------------------------------------------------------------------------- WebSocket (RFC 6455)

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
_WIDE: Final = {126: 2, 127: 8}


class WebSocket:
    """The client's end of a connection."""

    def __init__(self, address: str, fingerprint: str | None = None, timeout: float = 10) -> None:
        self.socket = _dial(address, fingerprint, timeout)
        self.buffer = bytearray()
        try:
            self._shake_hands(address)
        except BaseException:
            self.socket.close()
            raise

    def _shake_hands(self, address: str) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        host = "localhost" if address.startswith("unix:") else urlsplit(address).netloc
        lines = (
            *("GET / HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade"),
            *(f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13"),
            *("Sec-WebSocket-Protocol: syft", "", ""),
        )
        self.socket.sendall("\r\n".join(lines).encode())
        while b"\r\n\r\n" not in self.buffer:
            if len(self.buffer) > 16384:
                raise ClientError("no worker answered at this address")
            self._read_more()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        status, *rest = head.decode("latin-1").split("\r\n")
        fields = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in rest}
        proof = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
        given = fields.get("sec-websocket-accept"), fields.get("sec-websocket-protocol")
        if " 101" not in status or given != (base64.b64encode(proof).decode(), "syft"):
            raise ClientError(f"no worker answered at this address: {status}")

    def _read_more(self) -> None:
        data = self.socket.recv(1 << 18)
        if not data:
            raise ClientError("the worker has closed the connection")
        self.buffer += data

    def send(self, opcode: int, data: bytes) -> None:
        """Send a message in one frame, masked with a random key."""
        key, size = os.urandom(4), len(data)
        if size < 126:
            head = struct.pack("BB", 0x80 | opcode, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack(">BBH", 0x80 | opcode, 0x80 | 126, size)
        else:
            head = struct.pack(">BBQ", 0x80 | opcode, 0x80 | 127, size)
        mask = int.from_bytes((key * (size // 4 + 1))[:size], "big")
        body = (int.from_bytes(data, "big") ^ mask).to_bytes(size, "big")
        self.socket.sendall(head + key + body)

    def receive(self) -> tuple[int, bytes]:
        """The next text or binary message; answers heartbeats, and makes them."""
        kind, whole = 0, b""
        while True:
            first, data = self._frame()
            opcode = first & 15
            if opcode == PING:
                self.send(PONG, data)
            elif opcode == CLOSE:
                raise ClientError(f"the worker has left: {data[2:].decode(errors='replace')}")
            elif opcode != PONG:
                kind, whole = opcode or kind, whole + data
                if len(whole) > MOST:
                    raise ClientError("the worker sent a message that is too large")
                if first & 0x80:
                    return kind, whole

    def _frame(self) -> tuple[int, bytes]:
        first, size = self._bytes(2)
        if size > 125:
            size = MOST + 1 if size > 127 else int.from_bytes(self._bytes(_WIDE[size]), "big")
        if size > MOST or first & 0x70:
            raise ClientError("the worker sent a frame that is too large, masked or extended")
        return first, self._bytes(size)

    def _bytes(self, size: int) -> bytes:
        silent = 0
        while len(self.buffer) < size:
            try:
                self._read_more()
            except TimeoutError:
                silent += 1
                if silent == 3:
                    raise ClientError("the worker has fallen silent") from None
                self.send(PING, b"")
            else:
                silent = 0
        data = bytes(self.buffer[:size])
        del self.buffer[:size]
        return data


def _dial(address: str, fingerprint: str | None, timeout: float) -> socket.socket:
    """A connected socket: encrypted for ``wss://``, and plain on this machine alone."""
    parts = urlsplit(address)
    if parts.scheme == "unix":
        local = socket.socket(socket.AF_UNIX)
        local.settimeout(timeout)
        local.connect(parts.netloc + parts.path)
        return local
    if parts.scheme not in ("ws", "wss") or not parts.hostname or not parts.port:
        raise ClientError(f"{address!r} is none of ws://host:port, wss://host:port, unix:///path")
    plain = socket.create_connection((parts.hostname, parts.port), timeout)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if parts.scheme == "wss":
        return _secured(plain, parts.hostname, fingerprint)
    if not ipaddress.ip_address(plain.getpeername()[0]).is_loopback:
        plain.close()
        raise ClientError(
            "ws:// is for this machine alone: use wss:// and the worker's fingerprint"
        )
    return plain


def _secured(plain: socket.socket, host: str, fingerprint: str | None) -> ssl.SSLSocket:
    """TLS 1.3 with the worker of this fingerprint, or of a name that an authority vouches for."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if fingerprint is not None:  # the comparison below takes the place of an authority
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    secured = context.wrap_socket(plain, server_hostname=host)
    if fingerprint is not None:
        found = hashlib.sha256(secured.getpeercert(binary_form=True) or b"").hexdigest()
        wanted = fingerprint.lower().removeprefix("sha256:").replace(":", "")
        if not hmac.compare_digest(found, wanted):
            secured.close()
            raise ClientError(f"the worker's certificate is not the pinned one: sha256:{found}")
    return secured


# ---------------------------------------------------------------------------------------- frames

HEAD, ENTRY = struct.Struct("<4sBBHII"), struct.Struct("<QQII")


def frame(header: bytes, buffers: Sequence[bytes] = (), channel: int = 0) -> bytes:
    """A frame with uncompressed buffers."""
    table = b"".join(ENTRY.pack(len(data), len(data), 0, 0) for data in buffers)
    whole = bytearray(HEAD.pack(b"syft", 1, 0, channel, len(buffers), len(header)) + table + header)
    for data in buffers:
        whole += bytes(-len(whole) % 64) + data
    return bytes(whole)


def unframe(data: bytes) -> tuple[Any, list[bytes]]:
    """The header of a frame, decoded, and its buffers, decompressed."""
    magic, version, flags, _, buffers, size = HEAD.unpack_from(data)
    at = HEAD.size + buffers * ENTRY.size
    if (magic, version, flags) != (b"syft", 1, 0) or at + size > len(data):
        raise ClientError("this is no frame of version 1")
    header = Unpacker(data[at : at + size]).whole()
    end = at + size
    found: list[bytes] = []
    for stored, raw, compression, _ in ENTRY.iter_unpack(data[HEAD.size : at]):
        start = end + -end % 64
        end = start + stored
        if raw + sum(map(len, found)) > MOST or end > len(data):
            raise ClientError("a buffer is too large, or longer than its frame")
        found.append(unlz4(data[start:end], raw) if compression else data[start:end])
    if end != len(data):
        raise ClientError("a frame is longer than what it holds")
    return header, found


# ---------------------------------------------------------------------------------------- values

CONTAINERS: Final = {2: tuple, 3: list, 5: list, 6: list, 18: tuple}  # TUPLE, LIST, SET, …, SIZE
TENSOR, EXCEPTION = 32, 29

DTYPES: Final = (  # names and formats of struct, by DTypeCode
    *("float32 f", "float64 d", "float16 e", "bfloat16 H", "bool ?", "uint8 B", "int8 b"),
    *("int16 h", "int32 i", "int64 q", "uint16 H", "uint32 I", "uint64 Q"),
    *("complex32 ee", "complex64 ff", "complex128 dd"),
)


@dataclass(frozen=True)
class Tensor:
    """A tensor: its elements as they lie in memory, and the stride of each dimension."""

    dtype: str
    form: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    data: bytes

    def elements(self) -> Sequence[Any]:
        """The elements in the order of memory, as numbers (``array.array`` where there is one)."""
        form, data = self.form, self.data
        if self.dtype == "bfloat16":  # each is the upper half of a float32
            pairs = zip(data[::2], data[1::2], strict=True)
            form, data = "f", bytes(chain.from_iterable((0, 0, low, high) for low, high in pairs))
        if form in array_types and sys.byteorder == "little":
            return array(form, data)
        size = len(data) // struct.calcsize(f"<{form[0]}")
        found = struct.unpack(f"<{size}{form[0]}", data)
        return found if len(form) == 1 else [*map(complex, found[::2], found[1::2])]

    def tolist(self) -> Any:
        """The elements as nested lists."""
        elements = self.elements()

        def nested(at: int, dims: int) -> Any:
            if dims == len(self.shape):
                return elements[at]
            stride = self.strides[dims]
            return [nested(at + index * stride, dims + 1) for index in range(self.shape[dims])]

        return nested(0, 0)


def value_of(operand: Any, buffers: Sequence[bytes]) -> Any:
    """The value of an operand; what this client does not know stays as it came."""
    if not isinstance(operand, list) or not operand:
        return operand
    code, *fields = operand
    if code == TENSOR:
        return _tensor(fields, buffers)
    values = [value_of(field, buffers) for field in fields]
    return CONTAINERS[code](values) if code in CONTAINERS else operand


def _tensor(fields: list[Any], buffers: Sequence[bytes]) -> Tensor:
    code, shape, strides, buffer = fields[:4]
    if not 0 <= code < len(DTYPES) or buffer is None:
        raise ClientError(f"this client reads no tensors of DTypeCode {code}")
    name, form = DTYPES[code].split()
    if strides is None:
        strides = [1] * len(shape)
        for dim in reversed(range(len(shape) - 1)):
            strides[dim] = strides[dim + 1] * shape[dim + 1]
    last = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    needed = 0 if 0 in shape else (last + 1) * struct.calcsize(f"<{form}")
    if len(buffers[buffer]) != needed or min([*shape, *strides], default=0) < 0:
        raise ClientError("a tensor does not fit its buffer")
    return Tensor(name, form, tuple(shape), tuple(strides), buffers[buffer])


# ------------------------------------------------------------------------------------ the client

FETCH, DROP, SEARCH, RUN = 3, 4, 7, 18
DONE, VALUE, FAILURE, PARKED, FORGOTTEN, STALE = 32, 33, 34, 35, 37, 38
PLAN_CALL = 43
LINE: Final = 3
"""The channel of what is said of the line."""
RECEIVED, BUSY, BYE = 1, 11, 16
UNREADABLE: Final = (ValueError, TypeError, LookupError, struct.error)
"""What is raised below for bytes that break the rules of a frame."""


@dataclass(frozen=True)
class Found:
    """An object that a search found; of a plan, ``interface`` says what a call takes and gives."""

    id: int
    tags: list[str]
    description: str | None
    shape: tuple[int, ...] | None
    interface: tuple[Any, ...] | None = None


class Client:
    """A line to a worker, and the requests that this client can make over it.

    Raises :class:`Refused` if the worker does not let it in, and :class:`ClientError` or
    ``OSError`` if there is no worker.
    """

    def __init__(
        self, address: str, token: str | None = None, fingerprint: str | None = None
    ) -> None:
        self.websocket = WebSocket(address, fingerprint)
        self._numbers, self._received, self._told = count(1), 0, 0
        try:
            self.welcome = self._greet({} if token is None else {"token": token})
            """What the worker said of itself: ``worker``, ``user``, ``plans``, …"""
            self.websocket.socket.settimeout(self.welcome["heartbeat"])
        except BaseException:
            self.websocket.socket.close()
            raise

    def _greet(self, proof: dict[str, str]) -> dict[str, Any]:
        """Say hello; returns the welcome."""
        versions = {"protocol": 3, "ops": 0, "software": "minimal_client.py"}
        hello = {"kind": "hello", "name": "minimal client", **versions, **proof}
        self.websocket.send(TEXT, json.dumps(hello).encode())
        kind, data = self.websocket.receive()
        answer = json.loads(data) if kind == TEXT else {}
        if not isinstance(answer, dict):
            raise ClientError("a text message is no object")
        if answer.get("kind") == "refused":
            raise Refused(answer["code"], answer["reason"])
        if answer.get("kind") != "welcome":
            raise ClientError("the worker did not answer with a welcome")
        return {"heartbeat": 2.0, "user": None, "plans": False, **answer}

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Say goodbye: the worker frees what this client made there."""
        try:
            self.tell(BYE, "this client has finished")
            self.websocket.send(CLOSE, struct.pack(">H", 1000))
        except OSError:
            pass
        self.websocket.socket.close()

    def tell(self, code: int, *fields: Any) -> None:
        """Say something about the line."""
        self.websocket.send(BINARY, frame(packed([code, *fields]), channel=LINE))

    def ask(self, code: int, *fields: Any) -> Any:
        """Make a request, and wait for its value; raises :class:`Failure` if it failed."""
        seq = next(self._numbers)
        self.websocket.send(BINARY, frame(packed([code, seq, *fields])))
        try:
            return self._answer(seq)
        except UNREADABLE as error:
            raise ClientError(f"the worker sent what this client cannot read: {error}") from error

    def _answer(self, seq: int) -> Any:
        """The value of the reply to a request."""
        code = PARKED
        while code in (PARKED, FORGOTTEN, STALE):
            (code, *fields), buffers = self._next_frame()
        if code not in (DONE, VALUE, FAILURE) or fields[0] not in (seq, -1):
            raise ClientError(f"a reply to request {seq} was expected, and {[code, *fields]} came")
        if code == FAILURE:
            _, error, arguments, *_ = fields[1]
            raise Failure(error, [value_of(argument, buffers) for argument in arguments])
        return value_of(fields[1], buffers) if code == VALUE else None

    def _next_frame(self) -> tuple[Any, list[bytes]]:
        """The next frame; says now and then how many messages have arrived."""
        while True:
            kind, data = self.websocket.receive()
            if kind == TEXT:
                raise ClientError("a text came after the welcome")
            header, buffers = unframe(data)
            of_line = data[6] == LINE
            if of_line and header[0] in (RECEIVED, BUSY):
                continue  # they are not counted
            self._received += 1
            if of_line or buffers or self._received - self._told >= 64:
                self._told = self._received
                self.tell(RECEIVED, self._received)
            if not of_line:
                return header, buffers

    def search(self, *words: str) -> list[Found]:
        """The objects that carry each of these tags."""
        return [Found(*item) for item in self.ask(SEARCH, list(words))]

    def read(self, id: int, keep: bool = True) -> Any:
        """The value of an object: a :class:`Tensor`, for one."""
        return self.ask(FETCH, id, 0, keep)

    def call(self, plan: Found, *ids: int) -> list[Any]:
        """Call a plan with objects of the worker; returns its results, and keeps none there."""
        if plan.interface is None:
            raise ClientError(f"object {plan.id} is no plan")
        results = len(plan.interface[5])
        # 62 random bits, so that no other object has one of these ids
        first = secrets.randbits(62)
        define = [PLAN_CALL, plan.id, bytes(len(ids))]
        values = self.ask(RUN, 0, list(ids), first, results << 3, [], define)
        if values is None:
            values = [[0, first + index] for index in range(results)]
        return [self._result(value) for value in values]

    def _result(self, value: Any) -> Any:
        """A result: a reference to a tensor at the worker is fetched, a number is there."""
        return self.read(value[1], keep=False) if isinstance(value, list) else value


# ---------------------------------------------------------------------------------- command line


def shown(value: Any) -> str:
    """A value in one line."""
    if not isinstance(value, Tensor):
        return plain(repr(value))
    first = ", ".join(f"{element:.6g}" for element in value.elements()[:6])
    more = ", …" if len(value.elements()) > 6 else ""
    return f"{value.dtype} {list(value.shape)}: {first}{more}"


def plain(text: str) -> str:
    """A text of others without characters that would steer the terminal."""
    return text if text.isprintable() else ascii(text)


def report(client: Client, words: Sequence[str], plan_tag: str | None) -> None:
    """Print what a search finds, and what a plan makes of the tensors among it."""
    found = client.search(*words)
    worker, software = client.welcome["worker"], client.welcome.get("software", "unknown software")
    print(plain(f"{len(found)} at {worker} ({software})"))
    for item in found:
        print(plain(f"{item.id} {' '.join(item.tags)} {item.description or ''}".rstrip()))
        try:
            if item.interface is None:
                print(f"    {shown(client.read(item.id))}")
            else:
                names = ", ".join(parameter[0] for parameter in item.interface[1])
                print(f"    plan {plain(item.interface[0])}({plain(names)})")
        except Failure as failure:
            print(f"    {plain(str(failure))}")
    if plan_tag is not None:
        plan = next(iter(client.search(plan_tag)), None)
        if plan is None:
            raise ClientError(f"nothing has the tag {plan_tag}")
        inputs = [item.id for item in found if item.interface is None]
        for value in client.call(plan, *inputs):
            print(f"{plan_tag} gives {shown(value)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Search a worker; the exit code is 1 if that failed."""
    parser = argparse.ArgumentParser(description="Search a syft worker by tags.")
    parser.add_argument("address", help="ws://host:port, wss://host:port or unix:///path")
    parser.add_argument("words", nargs="*", help="tags that the objects carry")
    parser.add_argument("--token-file", type=Path, help="where the token is")
    parser.add_argument("--fingerprint", help="the worker's certificate: sha256:…")
    parser.add_argument("--call", metavar="TAG", help="a plan to call with the tensors found")
    given = parser.parse_args(arguments)
    try:
        token = given.token_file.read_text().strip() if given.token_file else None
        with Client(given.address, token, given.fingerprint) as client:
            report(client, given.words, given.call)
    except (ClientError, OSError) as error:
        print(plain(f"{type(error).__name__}: {error}"), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
