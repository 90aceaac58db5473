"""Fingerprints in every spelling, and connections that compare them whether asked to or not."""

from __future__ import annotations

import hashlib
import hmac
import io
import socket
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syft.exceptions import FingerprintMismatch, UnusableSetting
from syft.trust import pinned_tls
from syft.trust.certificates import Identity, client_context, own_certificate, server_context
from syft.trust.pinned_tls import check_pin, fingerprint_of, parse_fingerprint
from tests.trust.meeting import REPLY, SECRET, End, meet, tls_server

OTHER = "sha256:" + "ab" * 32


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return own_certificate(tmp_path_factory.mktemp("own"))


@pytest.fixture
def server(own: Identity) -> End:
    return tls_server(server_context(own.cert_path, own.key_path))


# ------------------------------------------------------------------------------------ fingerprints


@given(der=st.binary())
def test_a_fingerprint_is_the_hash_in_one_printed_form(der: bytes) -> None:
    assert fingerprint_of(der) == "sha256:" + hashlib.sha256(der).hexdigest()


@given(
    digest=st.binary(min_size=32, max_size=32),
    prefix=st.sampled_from(["", "sha256:", "SHA256:", "sha-256: ", "SHA256 Fingerprint="]),
    colons=st.booleans(),
    capitals=st.booleans(),
    around=st.sampled_from(["", " ", "\n", "\t  "]),
)
def test_a_fingerprint_is_understood_in_every_spelling(
    digest: bytes, prefix: str, colons: bool, capitals: bool, around: str
) -> None:
    text = digest.hex(":") if colons else digest.hex()
    written = f"{around}{prefix}{text.upper() if capitals else text}{around}"
    assert parse_fingerprint(written) == f"sha256:{digest.hex()}"
    assert parse_fingerprint(parse_fingerprint(written)) == f"sha256:{digest.hex()}"


@given(text=st.text() | st.text("0123456789abcdef:", max_size=100))
def test_other_texts_are_no_fingerprints(text: str) -> None:
    if len(text.replace(":", "")) != 64:
        with pytest.raises(UnusableSetting, match="a fingerprint must be 'sha256:' and 64"):
            parse_fingerprint(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "sha256:", "ab" * 31, "ab" * 33, "ag" * 32, "ab" * 31 + "a", "sha1:" + "ab" * 32),
        *("md5:" + "ab" * 32, "ab:" * 32, ":" + "ab" * 32, "a:b" + "ab" * 31),
        ":".join(["abab"] * 16),
        "\u0661" * 64,
        "sha256:sha256:" + "ab" * 32,
        "ab" * 32 + " " + "ab" * 32,
    ],
)
def test_what_is_nearly_a_fingerprint_is_none(text: str) -> None:
    with pytest.raises(UnusableSetting):
        parse_fingerprint(text)
    with pytest.raises(UnusableSetting):
        client_context(text)


def test_a_long_text_is_not_quoted_whole() -> None:
    with pytest.raises(UnusableSetting) as caught:
        parse_fingerprint("x" * 10_000)
    assert len(str(caught.value)) < 200


# ------------------------------------------------------------------------------------- comparisons


def test_the_comparison_takes_constant_time(
    own: Identity, server: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    compare = hmac.compare_digest

    def comparing(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return compare(a, b)

    monkeypatch.setattr(pinned_tls.hmac, "compare_digest", comparing)

    def client(connection: socket.socket) -> bytes:
        with client_context(OTHER).wrap_socket(connection) as tls:
            return tls.recv(1)

    assert isinstance(meet(server, client).client, FingerprintMismatch)
    assert compared == [(OTHER.encode(), own.fingerprint.encode())]


def test_a_pin_can_be_checked_again_by_hand(own: Identity, server: End) -> None:
    def client(connection: socket.socket) -> bytes:
        with client_context(own.fingerprint).wrap_socket(connection) as tls:
            check_pin(tls, own.fingerprint.upper().replace("SHA256:", ""))
            with pytest.raises(FingerprintMismatch, match="expected sha256:abab.*got sha256:"):
                check_pin(tls, OTHER)
            tls.sendall(SECRET)
            return tls.recv(100)

    assert meet(server, client).client == REPLY


def test_who_shows_no_certificate_is_nobody(own: Identity) -> None:
    """A server sees a client without a certificate."""

    def serve(connection: socket.socket) -> bytes:
        context = server_context(own.cert_path, own.key_path)
        with context.wrap_socket(connection, server_side=True) as tls:
            with pytest.raises(FingerprintMismatch, match="got no certificate"):
                check_pin(tls, own.fingerprint)
            return b"checked"

    def client(connection: socket.socket) -> bytes:
        with client_context(own.fingerprint).wrap_socket(connection) as tls:
            return tls.recv(100)

    assert meet(serve, client).server == b"checked"


# ------------------------------------------------------- connections that nobody compares by hand

WAYS = {
    "send": lambda tls: tls.send(SECRET),
    "sendall": lambda tls: tls.sendall(SECRET),
    "write": lambda tls: tls.write(SECRET),
    "sendfile": lambda tls: tls.sendfile(io.BytesIO(SECRET)),
    "read": lambda tls: tls.read(10),
    "read into": lambda tls: tls.read(10, bytearray(10)),
    "recv": lambda tls: tls.recv(10),
    "recv_into": lambda tls: tls.recv_into(bytearray(10)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("right", [True, False])
def test_nothing_passes_before_the_comparison(
    own: Identity, server: End, way: str, right: bool
) -> None:
    """OpenSSL would do the handshake by itself at the first byte, and nobody would compare."""

    def client(connection: socket.socket) -> bytes:
        context = client_context(own.fingerprint if right else OTHER)
        with context.wrap_socket(connection, do_handshake_on_connect=False) as tls:
            WAYS[way](tls)
        return b"passed"

    outcome = meet(server, client)
    assert isinstance(outcome.client, FingerprintMismatch), outcome
    assert outcome.client.got == "no handshake yet"
    assert outcome.server == b"" or isinstance(outcome.server, OSError), outcome


@pytest.mark.parametrize("way", ["send", "sendall", "write", "sendfile"])
@pytest.mark.parametrize("receive", ["read", "recv", "recv_into"])
def test_everything_passes_after_it(own: Identity, server: End, way: str, receive: str) -> None:
    def client(connection: socket.socket) -> bytes:
        context = client_context(own.fingerprint)
        with context.wrap_socket(connection, do_handshake_on_connect=False) as tls:
            tls.do_handshake()
            WAYS[way](tls)
            if receive == "recv_into":
                buffer = bytearray(100)
                return bytes(buffer[: tls.recv_into(buffer)])
            return getattr(tls, receive)(100)

    outcome = meet(server, client)
    assert (outcome.server, outcome.client) == (SECRET, REPLY)


def test_a_socket_is_closed_when_the_certificate_is_another_one(server: End) -> None:
    closed = []

    def client(connection: socket.socket) -> bytes:
        tls = client_context(OTHER).wrap_socket(connection, do_handshake_on_connect=False)
        try:
            tls.do_handshake()
        finally:
            closed.append(tls.fileno() == -1)
        return b""

    assert isinstance(meet(server, client).client, FingerprintMismatch)
    assert closed == [True]


def test_a_socket_that_connects_later_compares_as_well(own: Identity) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        for fingerprint in (own.fingerprint, OTHER):
            outcome = _connect_later(listening, own, fingerprint)
            assert isinstance(outcome, FingerprintMismatch) is (fingerprint == OTHER), outcome


def _connect_later(listening: socket.socket, own: Identity, pin: str) -> object:
    def serve(unused: socket.socket) -> bytes:
        with listening.accept()[0] as connection:
            connection.settimeout(10)
            return tls_server(server_context(own.cert_path, own.key_path))(connection)

    def client(unused: socket.socket) -> bytes:
        with client_context(pin).wrap_socket(socket.socket()) as tls:
            tls.settimeout(10)
            tls.connect(listening.getsockname())
            tls.sendall(SECRET)
            return tls.recv(100)

    return meet(serve, client).client


class Memory:
    """Both ends of a connection in memory, as those use them who carry the bytes themselves."""

    def __init__(self, own: Identity, pin: str) -> None:
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.sent = there
        self.client = client_context(pin).wrap_bio(back, there)
        context = server_context(own.cert_path, own.key_path)
        self.server = context.wrap_bio(there, back, server_side=True)

    def shake_hands(self) -> None:
        for end in (self.client, self.server, self.client, self.server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass


def test_a_connection_in_memory_compares_too(own: Identity) -> None:
    right, wrong = Memory(own, own.fingerprint), Memory(own, OTHER)
    right.shake_hands()
    right.client.write(SECRET)
    assert right.server.read(100) == SECRET
    right.server.write(REPLY)
    buffer = bytearray(100)
    assert right.client.read(100, buffer) == len(REPLY) and buffer.startswith(REPLY)
    with pytest.raises(FingerprintMismatch):
        wrong.shake_hands()
    with pytest.raises(FingerprintMismatch):
        wrong.client.do_handshake()
    sent = wrong.sent.pending
    for way in (lambda: wrong.client.write(SECRET), lambda: wrong.client.read(10)):
        with pytest.raises(FingerprintMismatch, match="no handshake yet"):
            way()
    assert wrong.sent.pending == sent


def test_a_connection_in_memory_carries_nothing_before_its_handshake(own: Identity) -> None:
    memory = Memory(own, own.fingerprint)
    for way in (lambda: memory.client.write(SECRET), lambda: memory.client.read(10)):
        with pytest.raises(FingerprintMismatch, match="no handshake yet"):
            way()
    assert memory.sent.pending == 0
    with pytest.raises(FingerprintMismatch, match="got no certificate"):
        check_pin(memory.client, own.fingerprint)


def test_the_context_is_of_the_standard_library(own: Identity, tmp_path: Path) -> None:
    assert isinstance(client_context(own.fingerprint), ssl.SSLContext)
    assert client_context(own.fingerprint).pin == own.fingerprint
