"""A worker's certificate, and the TLS contexts of both ends.

A worker makes its certificate on its first start, without asking anybody, and keeps it: its
fingerprint is what clients pin (:mod:`syft.trust.pinned_tls`).  A worker with a name in public DNS
can be given one of an authority instead.

TLS 1.3 alone is spoken.  It has no cipher suite without authentication, encryption or forward
secrecy, so there is nothing to negotiate downwards.  Sessions are not resumed: every handshake
shows the certificate.

A client knows a fingerprint, or it verifies the certificate and the host name with the system's
authorities or a given file of them; with both, both must hold.  There is no third way: no argument,
environment variable or combination of them turns verification off.

A certificate for the life of a process: made when it is needed, and kept by nobody.

A worker on a loopback address has no certificate, since nobody else hears what is said there.  What
another program passes on for it has to be encrypted all the same, and who asks is told its
fingerprint.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import socket
import ssl
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from syft.exceptions import FileRefused, UnusableSetting
from syft.trust.pinned_tls import PinnedContext, check_pin, fingerprint_of, parse_fingerprint
from syft.trust.private_files import locked, read_private, write_atomically

# With check_pin and its kin, so that a shell finds all of TLS here.
__all__ = [
    "Identity",
    "check_pin",
    "client_context",
    "fingerprint_of",
    "own_certificate",
    "parse_fingerprint",
    "server_context",
]

CERTIFICATE_NAME = "certificate.pem"
KEY_NAME = "key.pem"

_VALID = datetime.timedelta(days=3653)
_CLOCKS_DIFFER = datetime.timedelta(days=1)
_ALWAYS_NAMED = ("localhost", "127.0.0.1", "::1")
_DNS_NAME = re.compile(r"[A-Za-z0-9_*.-]{1,253}")
_FilePath = str | os.PathLike[str]


@dataclass(frozen=True)
class Identity:
    """Where a worker's certificate and private key lie, and the fingerprint to tell its clients.

    >>> Identity(Path("certificate.pem"), Path("key.pem"), "sha256:ab").fingerprint
    'sha256:ab'
    """

    cert_path: Path
    key_path: Path
    fingerprint: str


def own_certificate(
    folder: _FilePath, names: Iterable[str] = (), now: float | None = None
) -> Identity:
    """Return the identity that is kept in a folder, made there if there is none.

    The certificate is for ECDSA on P-256, valid ten years, for ``localhost``, this host's name and
    ``names`` (DNS names or IP addresses).  A certificate that is there stays as it is, whatever
    ``names`` say: another one would have another fingerprint, and clients that pinned it would be
    turned away.  Processes that start at the same time get the same identity.

    ``now`` is in seconds since 1970, by default the time.  Raises
    :class:`~syft.exceptions.FileRefused` if what is there does not belong together, others may read
    the key, or the certificate has expired; :class:`~syft.exceptions.UnusableSetting` for names
    that no certificate can hold; and ``OSError`` where nothing can be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = own_certificate(folder, names=["worker.example"])
    ...     made == own_certificate(folder), made.fingerprint[:7]
    (True, 'sha256:')
    """
    folder = Path(folder)
    date = datetime.datetime.fromtimestamp(time.time() if now is None else now, datetime.UTC)
    general_names = _general_names([*_ALWAYS_NAMED, *_host_name(), *names])
    cert_path, key_path = folder / CERTIFICATE_NAME, folder / KEY_NAME
    # The certificate is written last.  Where both are there, the folder may be read-only.
    if not (key_path.exists() and cert_path.exists()):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_what_is_missing(cert_path, key_path, general_names, date)
    key, certificate = _read_key(key_path), _read_certificate(cert_path)
    if certificate.public_key() != key.public_key():
        raise FileRefused(str(cert_path), f"{key_path} is not its key", _START_AFRESH)
    if date > certificate.not_valid_after_utc:
        expired = f"it expired on {certificate.not_valid_after_utc:%Y-%m-%d}"
        raise FileRefused(str(cert_path), expired, _START_AFRESH)
    der = certificate.public_bytes(serialization.Encoding.DER)
    return Identity(cert_path, key_path, fingerprint_of(der))


_START_AFRESH = (
    "put back the one that belongs there, or remove both files to have new ones made; clients must "
    "then be told the new fingerprint"
)


def _make_what_is_missing(
    cert_path: Path, key_path: Path, names: list[x509.GeneralName], now: datetime.datetime
) -> None:
    with locked(cert_path):
        if not key_path.exists():
            if cert_path.exists():
                raise FileRefused(str(cert_path), f"its key, {key_path}, is gone", _START_AFRESH)
            write_atomically(key_path, _new_key())
        # A crash between the two leaves a key alone, for which the certificate is made now.
        if not cert_path.exists():
            content = _new_certificate(_read_key(key_path), names, now)
            write_atomically(cert_path, content, mode=0o644)


def _host_name() -> list[str]:
    """This host's name, if a certificate can hold it."""
    name = socket.gethostname()
    return [name] if _DNS_NAME.fullmatch(name) else []


def _general_names(names: Iterable[str]) -> list[x509.GeneralName]:
    return [_general_name(name) for name in dict.fromkeys(names)]


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        pass
    if _DNS_NAME.fullmatch(name) is None:
        expected = "an IP address or a DNS name (in ASCII: xn--... for others)"
        raise UnusableSetting("a name in a certificate", expected, repr(name)[:300])
    return x509.DNSName(name)


def _new_key() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _new_certificate(
    key: ec.EllipticCurvePrivateKey, names: list[x509.GeneralName], now: datetime.datetime
) -> bytes:
    """A certificate (PEM) that its own key has signed, for nothing but to be a TLS server."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "syft worker")])
    signing_alone = x509.KeyUsage(True, *[False] * 8)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(signing_alone, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(read_private(path)[0], password=None)
    except (ValueError, TypeError):  # TypeError: it is encrypted
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise FileRefused(str(path), "it holds no key that syft has made", _START_AFRESH)
    return key


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        raise FileRefused(str(path), "it holds no certificate", _START_AFRESH) from None


def server_context(cert: _FilePath, key: _FilePath) -> ssl.SSLContext:
    """Return the TLS context of a server: TLS 1.3 with this certificate (chain) and key, in PEM.

    Raises :class:`~syft.exceptions.FileRefused` if they are not there, are not readable without a
    password, or do not belong together.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = own_certificate(folder)
    ...     server_context(made.cert_path, made.key_path).minimum_version.name
    'TLSv1_3'
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    try:
        # Without a password OpenSSL would ask for one at the terminal.
        context.load_cert_chain(cert, key, password="")
    except OSError as error:
        problem = f"{error.strerror or error} (its key: {os.fspath(key)})"
        instead = "name a certificate and its key, in PEM, without a password"
        raise FileRefused(os.fspath(cert), problem, instead) from None
    return context


def client_context(
    fingerprint: str | None = None, ca_file: _FilePath | None = None
) -> ssl.SSLContext:
    """Return the TLS context of a client: TLS 1.3 with the worker of this fingerprint alone.

    Without a fingerprint the certificate must be for the host name that is dialled
    (``server_hostname``) and be vouched for by an authority in ``ca_file`` (PEM), or by one of the
    system's.  With a fingerprint, no authority is needed; if ``ca_file`` is named as well, all of
    it must hold.  Connections of the context compare fingerprints themselves; where somebody wants
    to be sure, :func:`check_pin` compares once more.

    Raises :class:`~syft.exceptions.UnusableSetting` for what is no fingerprint, an empty one too,
    and :class:`~syft.exceptions.FileRefused` for a ``ca_file`` without certificates.

    >>> client_context().verify_mode.name, client_context().check_hostname
    ('CERT_REQUIRED', True)
    >>> client_context("AB" * 32).pin == "sha256:" + "ab" * 32
    True
    """
    if fingerprint is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    else:
        context = PinnedContext(ssl.PROTOCOL_TLS_CLIENT)
        context.pin = parse_fingerprint(fingerprint)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # A client context verifies chain and host name unless told otherwise.
    if ca_file is not None:
        _load_authorities(context, ca_file)
    elif isinstance(context, PinnedContext):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        context.load_default_certs()
    return context


def _load_authorities(context: ssl.SSLContext, ca_file: _FilePath) -> None:
    try:
        context.load_verify_locations(ca_file)
    except OSError as error:
        problem = f"no certificates can be read from it ({error.strerror or error})"
        instead = "name a file of certificates of authorities, in PEM"
        raise FileRefused(os.fspath(ca_file), problem, instead) from None


def passing_context() -> tuple[ssl.SSLContext, str]:
    """Return the TLS context of a server with a new certificate, and its fingerprint.

    OpenSSL reads keys from files alone, so the key is in a folder of this user for the milliseconds
    of this call.

    >>> context, fingerprint = passing_context()
    >>> context.minimum_version.name, fingerprint[:7]
    ('TLSv1_3', 'sha256:')
    """
    with tempfile.TemporaryDirectory() as folder:
        made = own_certificate(folder)
        return server_context(made.cert_path, made.key_path), made.fingerprint
