"""A certificate known by its fingerprint, and a TLS connection that goes to no other.

A worker makes its certificate itself, so no authority vouches for it.  Whoever connects knows the
fingerprint instead (SHA-256 of the certificate, in hexadecimal), from the worker's owner, as with
SSH.  That is the stronger statement: no authority can issue another certificate that fits.

OpenSSL cannot verify a certificate that it has only a hash of, so its own verification is off in
such a context, and the comparison here takes its place.  It is part of the handshake: a context of
:class:`PinnedContext` makes connections that compare before they are handed out and refuse to carry
data before they have compared, whether or not their user thinks of it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import ssl
from typing import TYPE_CHECKING, Any

from syft.exceptions import FingerprintMismatch, UnusableSetting

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_PREFIX = "sha256:"
_WRITTEN = re.compile(
    r"\s*(?:sha-?256(?: fingerprint)?[:=]\s*)?([0-9a-f]{64}|[0-9a-f]{2}(?::[0-9a-f]{2}){31})\s*",
    re.IGNORECASE | re.ASCII,
)
_MOST_SHOWN = 120


def fingerprint_of(der: bytes) -> str:
    """Return the fingerprint of a certificate (DER), in the one form that is printed.

    >>> fingerprint_of(b"certificate")[:19]
    'sha256:03d66dd08835'
    """
    return _PREFIX + hashlib.sha256(der).hexdigest()


def parse_fingerprint(text: str) -> str:
    """Return a fingerprint in the printed form, however it was written down.

    With or without ``sha256:``, in capitals, with colons (as OpenSSL and browsers show it).
    Raises :class:`~syft.exceptions.UnusableSetting` for everything else.

    >>> written = "SHA256 Fingerprint=" + ":".join(["AB"] * 32)
    >>> parse_fingerprint(written) == "sha256:" + "ab" * 32
    True
    """
    match = _WRITTEN.fullmatch(text)
    if match is None:
        expected = "'sha256:' and 64 hexadecimal digits"
        raise UnusableSetting("a fingerprint", expected, repr(text)[:_MOST_SHOWN])
    return _PREFIX + match[1].replace(":", "").lower()


def check_pin(connection: ssl.SSLSocket | ssl.SSLObject, fingerprint: str) -> None:
    """Compare the certificate that the other end has shown with a fingerprint, in constant time.

    Raises :class:`~syft.exceptions.FingerprintMismatch` if it is another one or there is none, and
    :class:`~syft.exceptions.UnusableSetting` as :func:`parse_fingerprint` does.

    >>> import ssl
    >>> nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(
    ...     ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost"
    ... )
    >>> check_pin(nobody, "sha256:" + "ab" * 32)
    Traceback (most recent call last):
        ...
    syft.exceptions.FingerprintMismatch: The worker's certificate is not the pinned one: expected \
sha256:abab..., got no certificate. Nothing was sent. Ask the worker's owner for its fingerprint; \
if it has not changed, somebody is in between.
    """
    expected = parse_fingerprint(fingerprint)
    try:
        der = connection.getpeercert(binary_form=True)
    except ValueError:  # the handshake is not done
        der = None
    if der is None:
        raise FingerprintMismatch(expected, "no certificate")
    got = fingerprint_of(der)
    if not hmac.compare_digest(expected.encode(), got.encode()):
        raise FingerprintMismatch(expected, got)


class _Comparing:
    """What both kinds of connection share: whether the comparison was made, and making it."""

    context: ssl.SSLContext
    _compared = False

    def _compare(self) -> None:
        check_pin(self, self._pin)  # type: ignore[arg-type]
        self._compared = True

    def _require_comparison(self) -> None:
        if not self._compared:
            raise FingerprintMismatch(self._pin, "no handshake yet")

    @property
    def _pin(self) -> str:
        assert isinstance(self.context, PinnedContext)
        return self.context.pin


class PinnedSocket(_Comparing, ssl.SSLSocket):
    """A TLS socket that compares the certificate as the last step of its handshake.

    OpenSSL finishes a handshake by itself when something is read or written, so reading and writing
    ask whether the comparison was made.

    >>> issubclass(PinnedSocket, ssl.SSLSocket)
    True
    """

    def do_handshake(self, block: bool = False) -> None:
        """Do the handshake; close the socket if the certificate is another one."""
        super().do_handshake(block)
        try:
            self._compare()
        except FingerprintMismatch:
            self.close()
            raise

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        """Read what was received, after the comparison."""
        self._require_comparison()
        return super().read(len, buffer)

    def write(self, data: ReadableBuffer) -> int:
        """Send data, after the comparison."""
        self._require_comparison()
        return super().write(data)

    def send(self, data: ReadableBuffer, flags: int = 0) -> int:
        """Send data, after the comparison."""
        self._require_comparison()
        return super().send(data, flags)


class PinnedObject(_Comparing, ssl.SSLObject):
    """As :class:`PinnedSocket`, for those who carry the bytes themselves (``wrap_bio``).

    >>> issubclass(PinnedObject, ssl.SSLObject)
    True
    """

    def do_handshake(self) -> None:
        """Do the handshake, or a step of it, and at its end compare the certificate."""
        super().do_handshake()
        self._compare()

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        """Read what was received, after the comparison."""
        self._require_comparison()
        return super().read(len, buffer)

    def write(self, data: ReadableBuffer) -> int:
        """Send data, after the comparison."""
        self._require_comparison()
        return super().write(data)


class PinnedContext(ssl.SSLContext):
    """A context for clients whose connections go to the owner of one certificate.

    :func:`~syft.trust.certificates.client_context` makes it.

    >>> import ssl
    >>> PinnedContext(ssl.PROTOCOL_TLS_CLIENT).sslsocket_class.__name__
    'PinnedSocket'
    """

    sslsocket_class = PinnedSocket
    sslobject_class = PinnedObject
    pin: str
    """The fingerprint, as it is printed."""
