"""Addresses of workers: ``ws://host:port``, ``wss://host:port`` and ``unix:///path``.

Behind a proxy that serves several, a worker has a path too: ``wss://host:port/bob``.

Off this machine everything is encrypted: ``ws://`` is for loopback alone.  That is decided by the
address a connection has in the end, and not by the name that somebody wrote.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from syft.exceptions import InsecureAddress, WrongAddress


@dataclass(frozen=True)
class Address:
    """Where a worker is. ``scheme`` is ``ws``, ``wss`` or ``unix``.

    >>> Address.parse("ws://localhost:8777")
    Address(scheme='ws', host='localhost', port=8777, path='')
    >>> print(Address.parse("unix:///tmp/bob.sock"))
    unix:///tmp/bob.sock
    """

    scheme: str
    host: str
    port: int = 0
    path: str = ""
    """What a proxy in front of the worker knows it by, as ``/bob``."""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read an address; raises :class:`~syft.exceptions.WrongAddress`."""
        parts = urlsplit(str(text))
        if parts.scheme == "unix" and parts.path:
            return cls("unix", parts.netloc + parts.path)
        port = _port_of(parts)
        extra = parts.query or parts.fragment or parts.username or not _is_path(parts.path)
        if parts.scheme not in ("ws", "wss") or not parts.hostname or port is None or extra:
            raise WrongAddress(text)
        return cls(parts.scheme, parts.hostname, port, parts.path.rstrip("/"))

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix://{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    @property
    def uri(self) -> str:
        """What the opening handshake asks for.

        >>> Address.parse("unix:///tmp/bob.sock").uri
        'ws://localhost/'
        """
        if self.scheme == "unix":
            return "ws://localhost/"
        return str(self) if self.path else f"{self}/"

    def dial(self, seconds: float) -> socket.socket:
        """A connected socket, not encrypted yet.

        Raises :class:`OSError`, and :class:`~syft.exceptions.InsecureAddress` for ``ws://`` off
        this machine.
        """
        try:
            return self._dialled(seconds)
        except OSError as error:
            about = (
                f"no worker answers at {self}; is it running? `syft doctor {self}` tries each step"
            )
            if error.errno is None:  # the text is all that it has
                raise type(error)(f"{error} ({about})") from None
            error.strerror = f"{error.strerror} ({about})"
            raise

    def _dialled(self, seconds: float) -> socket.socket:
        if self.scheme == "unix":
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.settimeout(seconds)
                sock.connect(self.host)
            except OSError:
                sock.close()
                raise
            return sock
        sock = socket.create_connection((self.host, self.port), seconds)
        if self.scheme == "ws" and not is_loopback(sock.getpeername()[0]):
            sock.close()
            raise InsecureAddress(str(self))
        return sock


def _is_path(text: str) -> bool:
    """Whether a request may ask for a path as it is: in letters that need no quoting."""
    return re.fullmatch(r"(/[A-Za-z0-9._~-]+)*/?", text) is not None


def _port_of(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether an IP address is one of this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("::ffff:127.0.0.1")
    (True, True, True)
    >>> is_loopback("10.0.0.1"), is_loopback("localhost")
    (False, False)
    """
    try:
        address = ipaddress.ip_address(host.split("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
