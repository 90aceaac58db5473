"""A certificate for the life of a process: made when it is needed, and kept by nobody.

A worker on a loopback address has no certificate, since nobody else hears what is said there.  What
another program passes on for it has to be encrypted all the same, and who asks is told its
fingerprint.
"""

from __future__ import annotations

import ssl
import tempfile

from syft.trust.certificates import own_certificate, server_context


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
