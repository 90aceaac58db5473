"""The opening handshake of RFC 6455, by the ``websockets`` package: it reads HTTP, so we do not.

The package speaks by its sans-I/O protocol objects over our sockets.  No extension is offered or
accepted: compression would cost more time than the network, and would tell by its size what private
values are alike.  A request with an ``Origin`` is refused: a page in a browser must not speak to a
worker on the same machine.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from websockets.client import ClientProtocol
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from syft.workers.sockets.streams import Stream

SUBPROTOCOL: Final = Subprotocol("syft")

_QUIET: Final = logging.getLogger("syft.handshake")
_QUIET.setLevel(logging.WARNING)

_END: Final = b"\r\n\r\n"
_MOST: Final = 1 << 14
"""Bytes of the head of a request or of an answer."""


class ServerHandshake:
    """The serving end, which takes what has come and never waits.

    After :meth:`advance` has returned True the connection is open, and :attr:`rest` is what came
    after the request.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.since = time.monotonic()
        self.rest = b""
        self.forwarded: list[str] = []
        """What proxies say of whence the connection comes."""
        self._data = bytearray()
        self._memory = memoryview(bytearray(4096))

    def advance(self) -> bool:
        """Read what is there; whether the connection is open.

        Raises :class:`ConnectionError` if the other end is gone or asks for something else.
        """
        while _END not in self._data:
            count = self.stream.read(self._memory)
            if count is None:
                return False
            if not count or len(self._data) > _MOST:
                raise ConnectionAbortedError("the opening handshake was not completed")
            self._data += self._memory[:count]
        head, _, rest = bytes(self._data).partition(_END)
        self.rest = rest
        protocol = ServerProtocol(
            origins=[None], extensions=[], subprotocols=[SUBPROTOCOL], logger=_QUIET
        )
        protocol.receive_data(head + _END)
        requests = [event for event in protocol.events_received() if isinstance(event, Request)]
        if not requests:
            raise ConnectionAbortedError("this is no request for a WebSocket")
        self.forwarded = requests[0].headers.get_all("X-Forwarded-For")
        response = protocol.accept(requests[0])
        protocol.send_response(response)
        self.stream.write([b"".join(protocol.data_to_send())])
        if response.status_code != 101:
            raise ConnectionAbortedError(f"the opening handshake was refused: {response.body!r}")
        return True


def open_client(stream: Stream, uri: str, until: float) -> bytes:
    """Open the calling end; returns what came after the answer.

    Waits until the monotonic time ``until``.  Raises :class:`OSError` if the other end is gone, is
    no worker, or does not answer in time.
    """
    protocol = ClientProtocol(
        parse_uri(uri), extensions=[], subprotocols=[SUBPROTOCOL], logger=_QUIET
    )
    protocol.send_request(protocol.connect())
    request = b"".join(protocol.data_to_send())
    while request:
        request = request[stream.write([request]) :]
        if request:
            _wait(stream, True, until)
    data = bytearray()
    memory = memoryview(bytearray(4096))
    while _END not in data:
        count = stream.read(memory)
        if count is None:
            _wait(stream, False, until)
        elif not count or len(data) > _MOST:
            raise ConnectionAbortedError("no worker answered at this address")
        else:
            data += memory[:count]
    head, _, rest = bytes(data).partition(_END)
    status = head.partition(b"\r\n")[0].decode("latin-1")
    if b" 101 " not in head[:16]:  # a page, or what a proxy says of a worker that is not there
        raise ConnectionAbortedError(f"no worker answered at this address: {status}")
    protocol.receive_data(head + _END)
    if protocol.handshake_exc is not None:
        raise ConnectionAbortedError(
            f"no worker answered at this address: {protocol.handshake_exc}"
        ) from None
    return rest


def _wait(stream: Stream, write: bool, until: float) -> None:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the worker did not answer in time")
    stream.wait(write, left)
