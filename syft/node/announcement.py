"""What a worker prints when it starts: where it is, what it holds, and how to connect.

The lines for Python can be pasted as they are, but for a token, which the worker does not know: it
keeps hashes alone.
"""

from __future__ import annotations

import keyword
import socket
from collections.abc import Iterator, Sequence
from os import PathLike

from syft.node.offered_data import OfferedTensor
from syft.workers.sockets.address import Address
from syft.workers.sockets.server import WebsocketServerWorker

_EVERYWHERE = ("", "0.0.0.0", "::")


def announcement(
    server: WebsocketServerWorker,
    held: Sequence[OfferedTensor] = (),
    token_file: str | PathLike[str] | None = None,
) -> str:
    """Everything that is said at the start.

    >>> with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
    ...     print(announcement(server))
    worker dan serves at ws://127.0.0.1:...
      certificate: none, it is reached from this machine alone
      callers:     everybody who reaches it, without a token
      plans:       refused (--allow-plans)
      data:        none
    connect with
      import torch
      import syft as sy
    <BLANKLINE>
      hook = sy.TorchHook(torch)
      dan = sy.connect("ws://127.0.0.1:...")
    """
    return "\n".join(_lines(server, held, token_file))


def _lines(
    server: WebsocketServerWorker,
    held: Sequence[OfferedTensor],
    token_file: str | PathLike[str] | None,
) -> Iterator[str]:
    yield f"worker {server.id} serves at {reached_at(server)}"
    identity = server.identity
    none = "none, it is reached from this machine alone"
    yield f"  certificate: {none if identity is None else identity.fingerprint}"
    yield f"  callers:     {_callers(server, token_file)}"
    yield f"  plans:       {'allowed' if server.core.allow_plans else 'refused (--allow-plans)'}"
    if server.audit is not None:
        yield f"  audit log:   {server.audit} (syft log)"
    yield f"  data:        {'' if held else 'none'}".rstrip()
    for offered in held:
        shape, dtype = list(offered.tensor.shape), str(offered.tensor.dtype)
        yield f"    {' '.join(offered.tags)} {dtype} {shape}, {offered.access}"
        yield from (f"      {line}" for line in _columns(offered))
    yield "connect with"
    for line in lines_to_connect(server, token_file):
        yield f"  {line}".rstrip()


def _columns(offered: OfferedTensor) -> Iterator[str]:
    """What the owner is told of a table: the kinds that were found in it, and what was not read."""
    if offered.columns is not None:
        seen = "published" if offered.published else "shown to nobody (say --publish-columns)"
        yield f"columns, {seen}:"
        yield from (f"  {line}" for line in repr(offered.columns).splitlines())
    yield from (f"note: {note}" for note in offered.notes)


def _callers(server: WebsocketServerWorker, token_file: str | PathLike[str] | None) -> str:
    if token_file is None:
        return "everybody who reaches it, without a token"
    known = f"with a token of {token_file}"
    return f"{known}, and everybody else without one" if server.reception.anonymous else known


def reached_at(server: WebsocketServerWorker) -> Address:
    """The address to call: where a worker listens everywhere, that is this host's name.

    >>> with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
    ...     reached_at(server) == server.address
    True
    """
    address = server.address
    if address.scheme == "unix" or address.host not in _EVERYWHERE:
        return address
    return Address(address.scheme, socket.gethostname(), address.port)


def lines_to_connect(
    server: WebsocketServerWorker, token_file: str | PathLike[str] | None = None
) -> list[str]:
    """What a data scientist types.

    >>> with sy.WebsocketServerWorker(hook, port=0, id="dan-2") as server:
    ...     lines_to_connect(server)[-1]
    'worker = sy.connect("ws://127.0.0.1:...")'
    """
    name = server.id
    if not name.isidentifier() or keyword.iskeyword(name):
        name = "worker"
    settings = [f'"{reached_at(server)}"']
    if token_file is not None:
        settings.append('token="syft_..."')
    if server.identity is not None:
        settings.append(f'fingerprint="{server.identity.fingerprint}"')
    call = f"{name} = sy.connect({', '.join(settings)})"
    if token_file is not None:
        call += f"  # syft token new --user NAME --token-file {token_file}"
    return ["import torch", "import syft as sy", "", "hook = sy.TorchHook(torch)", call]
