"""A worker's own certificate: made once, kept, and refused when something is wrong with it."""

from __future__ import annotations

import datetime
import ipaddress
import os
import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID

from syft.exceptions import FileRefused, UnusableSetting
from syft.trust import certificates
from syft.trust.certificates import Identity, client_context, own_certificate, server_context
from tests.shells.processes import PROCESSES
from tests.trust.authority import issue
from tests.trust.meeting import REPLY, meet, tls_client, tls_server

NOW = datetime.datetime(2026, 5, 4, tzinfo=datetime.UTC).timestamp()
YEAR = 365.25 * 86_400


def certificate_of(identity: Identity) -> x509.Certificate:
    return x509.load_pem_x509_certificate(identity.cert_path.read_bytes())


def extension(certificate: x509.Certificate, kind: type[x509.ExtensionType]) -> object:
    return certificate.extensions.get_extension_for_class(kind).value


# ------------------------------------------------------------------------------------ what is made


def test_the_first_start_makes_it_and_the_next_find_it(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    made = own_certificate(folder, now=NOW)
    contents = made.cert_path.read_bytes(), made.key_path.read_bytes()
    assert own_certificate(str(folder), names=["more.example"], now=NOW + 9 * YEAR) == made
    assert (made.cert_path.read_bytes(), made.key_path.read_bytes()) == contents
    assert sorted(os.listdir(folder)) == ["certificate.pem", "certificate.pem.lock", "key.pem"]
    assert own_certificate(tmp_path / "c", now=NOW).fingerprint != made.fingerprint


def test_the_key_is_the_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = own_certificate(tmp_path / "own")
    finally:
        os.umask(before)
    assert made.key_path.stat().st_mode & 0o777 == 0o600
    assert made.cert_path.stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700


def test_what_stands_in_it(tmp_path: Path) -> None:
    made = own_certificate(tmp_path, names=["bob.example", "10.0.0.7", "localhost"], now=NOW)
    certificate = certificate_of(made)
    key = certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name == "secp256r1"
    assert isinstance(certificate.signature_hash_algorithm, hashes.SHA256)
    assert made.fingerprint == "sha256:" + certificate.fingerprint(hashes.SHA256()).hex()
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    assert begins.timestamp() == NOW - 86_400, "clocks differ"
    assert abs((ends.timestamp() - NOW) / YEAR - 10) < 0.01
    names = extension(certificate, x509.SubjectAlternativeName)
    assert isinstance(names, x509.SubjectAlternativeName)
    hosts = ["localhost", socket.gethostname(), "bob.example"]
    assert names.get_values_for_type(x509.DNSName) == list(dict.fromkeys(hosts))
    assert names.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address(text) for text in ("127.0.0.1", "::1", "10.0.0.7")
    ]
    constraints = extension(certificate, x509.BasicConstraints)
    assert constraints == x509.BasicConstraints(ca=False, path_length=None)
    usage = extension(certificate, x509.ExtendedKeyUsage)
    assert usage == x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])


def test_two_certificates_differ_in_key_and_number(tmp_path: Path) -> None:
    one, other = (certificate_of(own_certificate(tmp_path / name)) for name in "ab")
    assert one.serial_number != other.serial_number
    assert one.public_key() != other.public_key()


@pytest.mark.parametrize("name", ["", "a b", "b\u00fccher.example", "x" * 254, "a\x00b"])
def test_names_that_no_certificate_holds_are_refused_and_nothing_is_made(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(UnusableSetting, match="a name in a certificate must be an IP address or"):
        own_certificate(tmp_path / "own", names=[name])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["", "b\u00fccher", "a b", "x" * 300])
def test_a_host_name_that_no_certificate_holds_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(certificates.socket, "gethostname", lambda: name)
    names = extension(certificate_of(own_certificate(tmp_path)), x509.SubjectAlternativeName)
    assert isinstance(names, x509.SubjectAlternativeName)
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]


def test_it_can_stand_for_itself_as_an_authority(tmp_path: Path) -> None:
    """Who has the file instead of the fingerprint verifies the host name too."""
    made = own_certificate(tmp_path)
    server = tls_server(server_context(made.cert_path, made.key_path))
    for host in ("localhost", "127.0.0.1", "::1"):
        context = client_context(None, made.cert_path)
        assert meet(server, tls_client(context, host)).client == REPLY
    outcome = meet(server, tls_client(client_context(None, made.cert_path), "other.example"))
    assert isinstance(outcome.client, ssl.SSLCertVerificationError)


def _fingerprint(folder: str) -> str:
    return own_certificate(folder).fingerprint


def test_processes_that_start_at_once_get_one_identity(tmp_path: Path) -> None:
    with PROCESSES.Pool(2) as pool:
        found = pool.map(_fingerprint, [str(tmp_path / "own")] * 8, chunksize=1)
        pool.close()
        pool.join()
    assert set(found) == {own_certificate(tmp_path / "own").fingerprint}


def test_what_is_there_is_read_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = own_certificate(tmp_path)
    for name in ("locked", "write_atomically"):
        monkeypatch.setattr(certificates, name, None)
    assert own_certificate(tmp_path) == made


def test_a_crash_between_key_and_certificate_is_made_good(tmp_path: Path) -> None:
    made = own_certificate(tmp_path)
    key = made.key_path.read_bytes()
    made.cert_path.unlink()
    again = own_certificate(tmp_path)
    assert made.key_path.read_bytes() == key
    assert certificate_of(again).public_key() == _key(made).public_key()


def _key(identity: Identity) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(identity.key_path.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


# --------------------------------------------------------------------------------- what is refused


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    made = own_certificate(tmp_path)
    made.key_path.chmod(0o644)
    with pytest.raises(FileRefused, match=r"others may read or write it \(mode 0644\)"):
        own_certificate(tmp_path)


def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    made = own_certificate(tmp_path)
    made.key_path.unlink()
    with pytest.raises(FileRefused, match="its key, .*key.pem, is gone") as caught:
        own_certificate(tmp_path)
    assert "remove both files to have new ones made" in caught.value.instead
    assert not made.key_path.exists()


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    made, other = own_certificate(tmp_path / "a"), own_certificate(tmp_path / "b")
    made.key_path.write_bytes(other.key_path.read_bytes())
    with pytest.raises(FileRefused, match="key.pem is not its key"):
        own_certificate(tmp_path / "a")
    with pytest.raises(FileRefused, match=r"(?i)key.*mismatch"):
        server_context(made.cert_path, made.key_path)


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    own_certificate(tmp_path, now=NOW)
    with pytest.raises(FileRefused, match="it expired on 2036-05-04"):
        own_certificate(tmp_path, now=NOW + 10.1 * YEAR)


def pem(key: object, password: bytes | None = None) -> bytes:
    encryption = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        pem(ec.generate_private_key(ec.SECP256R1()), b"password"),
        pem(ed25519.Ed25519PrivateKey.generate()),
    ],
)
def test_a_file_without_a_key_of_ours_is_refused(tmp_path: Path, content: bytes) -> None:
    made = own_certificate(tmp_path)
    made.key_path.write_bytes(content)
    with pytest.raises(FileRefused, match="it holds no key that syft has made"):
        own_certificate(tmp_path)


def test_a_file_without_a_certificate_is_refused(tmp_path: Path) -> None:
    made = own_certificate(tmp_path)
    made.cert_path.write_bytes(made.key_path.read_bytes())
    with pytest.raises(FileRefused, match="it holds no certificate"):
        own_certificate(tmp_path)


def test_a_server_needs_a_certificate_and_a_key_without_password(tmp_path: Path) -> None:
    made = own_certificate(tmp_path / "own")
    locked = tmp_path / "locked.pem"
    locked.write_bytes(pem(_key(made), b"password"))
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"")
    for cert, key in [
        (made.cert_path, locked),  # and nobody is asked for the password at the terminal
        (made.cert_path, empty),
        (empty, made.key_path),
        (tmp_path / "nothing", made.key_path),
        (made.cert_path, tmp_path / "nothing"),
    ]:
        with pytest.raises(FileRefused, match="name a certificate and its key") as caught:
            server_context(cert, key)
        assert str(key) in caught.value.problem and caught.value.path == str(cert)


def test_a_server_can_show_a_chain(tmp_path: Path) -> None:
    root = issue(tmp_path, "root")
    middle = issue(tmp_path, "middle", root)
    leaf = issue(tmp_path, "leaf", middle, host="localhost")
    chain = tmp_path / "chain.pem"
    chain.write_bytes(leaf.cert_path.read_bytes() + middle.cert_path.read_bytes())
    server = tls_server(server_context(chain, leaf.key_path))
    assert meet(server, tls_client(client_context(None, root.cert_path))).client == REPLY


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_authorities_are_needed_where_a_file_of_them_is_named(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "authorities.pem"
    if content is not None:
        path.write_bytes(content)
    for fingerprint in (None, "ab" * 32):
        with pytest.raises(FileRefused, match="no certificates can be read from it"):
            client_context(fingerprint, path)


def test_contexts_speak_tls_1_3_alone(tmp_path: Path) -> None:
    made = own_certificate(tmp_path)
    contexts = [
        server_context(made.cert_path, made.key_path),
        client_context(),
        client_context(made.fingerprint),
        client_context(made.fingerprint, made.cert_path),
    ]
    assert {context.minimum_version for context in contexts} == {ssl.TLSVersion.TLSv1_3}
    assert {context.keylog_filename for context in contexts} == {None}
    assert contexts[0].num_tickets == 0
    modes = [(context.verify_mode, context.check_hostname) for context in contexts[1:]]
    verified = (ssl.CERT_REQUIRED, True)
    assert modes == [verified, (ssl.CERT_NONE, False), verified]
