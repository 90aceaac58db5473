"""``sy.connect``: a worker of another process by its address, for the hook that is in force."""

from __future__ import annotations

from typing import Any

from syft.hooks.torch_hook import TorchHook
from syft.workers.sockets.address import Address
from syft.workers.sockets.client import WebsocketClientWorker


def connect(
    address: str, token: str | None = None, id: str | None = None, **settings: Any
) -> WebsocketClientWorker:
    """The worker at an address: ``ws://host:port`` on this machine, ``wss://host:port`` elsewhere,
    or ``unix:///path``.

    ``id`` is its name in this program, by default the one that it has.  ``settings`` are those of
    :class:`~syft.workers.sockets.client.WebsocketClientWorker`.

    Raises :class:`~syft.exceptions.WrongAddress`, :class:`~syft.exceptions.HookError` if torch is
    not hooked, and what the constructor raises.

    >>> with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
    ...     dan = sy.connect(str(server.address))
    ...     print((torch.ones(2).send(dan) + 1).get())
    ...     dan.close()
    tensor([2., 2.])
    """
    parsed = Address.parse(address)
    hook = TorchHook.current()
    return WebsocketClientWorker(
        hook, parsed.host, parsed.port, id, address=parsed, token=token, **settings
    )
