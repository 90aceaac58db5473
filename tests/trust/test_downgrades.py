"""Attacks on TLS over real sockets: every one is refused, and nothing is sent before.

Each attack is also tried on a careless peer, where it must succeed: otherwise its refusal would say
nothing.
"""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from syft.exceptions import FingerprintMismatch
from syft.trust.certificates import Identity, client_context, own_certificate, server_context
from tests.outside import outside
from tests.trust.authority import DAY, TODAY, Shown, issue
from tests.trust.meeting import (
    REPLY,
    SECRET,
    End,
    careless_client,
    meet,
    plain_client,
    plain_server,
    tls_client,
    tls_server,
    weakened,
)

OLD = {
    "TLS 1.0": (ssl.TLSVersion.TLSv1, "ALL"),
    "TLS 1.1": (ssl.TLSVersion.TLSv1_1, "ALL"),
    "TLS 1.2": (ssl.TLSVersion.TLSv1_2, "ALL"),
    "TLS 1.2 without authentication": (ssl.TLSVersion.TLSv1_2, "aNULL"),
    "TLS 1.2 without encryption": (ssl.TLSVersion.TLSv1_2, "eNULL"),
}
"""What an end may insist on: a version, and ciphers."""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return own_certificate(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    return issue(tmp_path_factory.mktemp("authority"), "authority")


def test_the_two_right_ends_talk(own: Identity) -> None:
    server = tls_server(server_context(own.cert_path, own.key_path))
    outcome = meet(server, tls_client(client_context(own.fingerprint)))
    assert (outcome.server, outcome.client) == (SECRET, REPLY)


# ---------------------------------------------------------------------------- old versions, ciphers


@pytest.mark.parametrize("name", OLD)
def test_a_server_that_speaks_something_old_gets_nothing(own: Identity, name: str) -> None:
    def server() -> End:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(own.cert_path, own.key_path)
        return tls_server(weakened(context, *OLD[name]))

    assert meet(server(), tls_client(weakened(careless_client(), *OLD[name]))).server == SECRET
    for context in (client_context(own.fingerprint), client_context(None, own.cert_path)):
        outcome = meet(server(), tls_client(context))
        assert isinstance(outcome.client, ssl.SSLError), outcome
        assert isinstance(outcome.server, ssl.SSLError), outcome


@pytest.mark.parametrize("name", OLD)
def test_a_client_that_speaks_something_old_is_turned_away(own: Identity, name: str) -> None:
    client = tls_client(weakened(careless_client(), *OLD[name]))
    careless = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    careless.load_cert_chain(own.cert_path, own.key_path)
    assert meet(tls_server(weakened(careless, None, OLD[name][1])), client).server == SECRET
    outcome = meet(tls_server(server_context(own.cert_path, own.key_path)), client)
    assert isinstance(outcome.server, ssl.SSLError), outcome
    assert isinstance(outcome.client, OSError), outcome


def test_text_sent_to_a_tls_port_is_not_read(own: Identity) -> None:
    assert meet(plain_server, plain_client).server == SECRET
    outcome = meet(tls_server(server_context(own.cert_path, own.key_path)), plain_client)
    assert isinstance(outcome.server, ssl.SSLError), outcome


def test_a_port_without_tls_gets_nothing_to_read(own: Identity) -> None:
    outcome = meet(plain_server, tls_client(client_context(own.fingerprint)))
    assert isinstance(outcome.client, ssl.SSLError), outcome
    assert isinstance(outcome.server, bytes) and SECRET not in outcome.server


# ----------------------------------------------------------------------------------- certificates

Servers = dict[str, Callable[[Path, Shown, Identity], Shown]]

IMPOSTORS: Servers = {
    "its own certificate": lambda folder, authority, own: issue(folder, "x", host="localhost"),
    "another authority's": lambda folder, authority, own: issue(
        folder, "x", issue(folder, "authority"), host="localhost"
    ),
    "another host's": lambda folder, authority, own: issue(
        folder, "x", authority, host="other.example"
    ),
    "an expired one": lambda folder, authority, own: issue(
        folder, "x", authority, host="localhost", begins=TODAY - 9 * DAY, ends=TODAY - DAY
    ),
    "one of tomorrow": lambda folder, authority, own: issue(
        folder, "x", authority, host="localhost", begins=TODAY + DAY, ends=TODAY + 9 * DAY
    ),
    "one that a host has issued": lambda folder, authority, own: issue(
        folder, "x", issue(folder, "host", authority, host="other.example"), host="localhost"
    ),
}


@pytest.mark.parametrize("name", IMPOSTORS)
def test_without_a_pin_a_wrong_certificate_is_refused(
    tmp_path: Path, authority: Shown, own: Identity, name: str
) -> None:
    shown = IMPOSTORS[name](tmp_path, authority, own)
    server = tls_server(server_context(shown.cert_path, shown.key_path))
    assert meet(server, tls_client(careless_client())).server == SECRET
    for context in (
        client_context(None, authority.cert_path),
        client_context(ca_file=authority.cert_path),
        client_context(shown.fingerprint, authority.cert_path),
        client_context(),
    ):
        outcome = meet(server, tls_client(context))
        assert isinstance(outcome.client, ssl.SSLCertVerificationError), outcome
        assert isinstance(outcome.server, ssl.SSLError), outcome


@pytest.mark.parametrize("name", IMPOSTORS)
def test_with_a_pin_a_wrong_certificate_is_refused(
    tmp_path: Path, authority: Shown, own: Identity, name: str
) -> None:
    shown = IMPOSTORS[name](tmp_path, authority, own)
    server = tls_server(server_context(shown.cert_path, shown.key_path))
    outcome = meet(server, tls_client(client_context(own.fingerprint)))
    assert isinstance(outcome.client, FingerprintMismatch), outcome
    assert outcome.client.args == (own.fingerprint, shown.fingerprint)
    assert outcome.server == b"" or isinstance(outcome.server, OSError), outcome


def test_a_right_certificate_of_the_authority_is_not_the_pinned_one(
    tmp_path: Path, authority: Shown, own: Identity
) -> None:
    shown = issue(tmp_path, "x", authority, host="localhost")
    server = tls_server(server_context(shown.cert_path, shown.key_path))
    assert meet(server, tls_client(client_context(None, authority.cert_path))).client == REPLY
    both = client_context(shown.fingerprint, authority.cert_path)
    assert meet(server, tls_client(both)).client == REPLY
    outcome = meet(server, tls_client(client_context(own.fingerprint, authority.cert_path)))
    assert isinstance(outcome.client, FingerprintMismatch), outcome
    assert outcome.server != SECRET


def test_with_a_pin_the_host_name_does_not_matter(own: Identity) -> None:
    server = tls_server(server_context(own.cert_path, own.key_path))
    client = tls_client(client_context(own.fingerprint), host="other.example")
    assert meet(server, client).client == REPLY


def test_a_host_name_must_be_given_where_it_is_verified(own: Identity) -> None:
    def client(connection: object) -> bytes:
        client_context(None, own.cert_path).wrap_socket(connection)
        return b""

    outcome = meet(plain_server, client)
    assert isinstance(outcome.client, ValueError) and "server_hostname" in str(outcome.client)


# --------------------------------------------------------------------------------- no way around it


ASK = """
    import os, socket, ssl, sys, threading
    from syft.trust.certificates import client_context, own_certificate, server_context
    from syft.exceptions import FingerprintMismatch
    from tests.trust.meeting import SECRET, meet, tls_client, tls_server
    own = own_certificate(sys.argv[1])
    server = tls_server(server_context(own.cert_path, own.key_path))
    for context in (client_context(), client_context("ab" * 32)):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        outcome = meet(server, tls_client(context))
        wrong = ssl.SSLCertVerificationError, FingerprintMismatch
        assert isinstance(outcome.client, wrong), outcome
        assert outcome.server != SECRET
    outcome = meet(server, tls_client(client_context(own.fingerprint)))
    assert outcome.server == SECRET, outcome
    print("held")
"""

LAX = """
    openssl_conf = start
    [start]
    ssl_conf = ssl
    [ssl]
    system_default = lax
    [lax]
    MinProtocol = TLSv1
    CipherString = ALL:aNULL:eNULL:@SECLEVEL=0
    VerifyMode = None
"""


def test_no_environment_variable_turns_verification_off(tmp_path: Path) -> None:
    lax = tmp_path / "openssl.cnf"
    lax.write_text(textwrap.dedent(LAX))
    keys = tmp_path / "keys"
    environment = {
        **outside(),
        "OPENSSL_CONF": str(lax),
        "SSLKEYLOGFILE": str(keys),
        "PYTHONHTTPSVERIFY": "0",
        "SSL_CERT_FILE": str(tmp_path / "nothing"),
        "CURL_CA_BUNDLE": "",
        "NODE_TLS_REJECT_UNAUTHORIZED": "0",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-c", textwrap.dedent(ASK), str(tmp_path / "own")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "held\n", done.stderr
    assert not keys.exists(), "the keys of connections are written nowhere"
