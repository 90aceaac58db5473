"""A worker in a child process that serves over a socket, as users have it.

What the owner of the worker does and sees goes over a link of its own
(:mod:`tests.shells.link`), which no client has.
"""

from __future__ import annotations

import itertools
import select
import time
from pathlib import Path
from typing import Any

import syft as sy
from syft.exceptions import WorkerClosed, WorkerIdTaken
from syft.serde import deserialize, serialize
from syft.trust.tokens import TokenBook
from tests.shells.link import Link
from tests.shells.owner import ACTIONS, OwnersSide
from tests.shells.processes import ChildProcesses

_TOKENS = itertools.count()


class Served:
    """What a hook for workers behind sockets knows: where processes come from, and tokens."""

    def __init__(self, processes: ChildProcesses, folder: Path) -> None:
        self.processes = processes
        self.folder = folder
        self.forget()

    def forget(self) -> None:
        """Have no users: a worker of the next test may be called as one of this test."""
        self.path = self.folder / f"tokens-{next(_TOKENS)}.json"
        self.book = TokenBook(self.path)
        self.tokens: dict[str, str] = {}

    def get(self, user: str) -> str:
        """A token of any user: tests act for several."""
        if user not in self.tokens:
            self.tokens[user] = self.book.make(user, time.time(), plans=True)
        return self.tokens[user]


class ServedWorker(OwnersSide, sy.WebsocketClientWorker):
    """A worker behind a socket, in a process of its own."""

    def __init__(self, hook: sy.TorchHook, id: str, pipelined: bool = False) -> None:
        network: Any = hook.local_worker.network
        if id in network.workers:
            raise WorkerIdTaken(id)
        served: Served = network.served
        self.processes = served.processes
        self.child = served.processes.take()
        self.process = self.child.process
        self.owners_link = self.child.link
        self.id = id
        port = self.act("serve", str(served.path))
        super().__init__(hook, port=port, id=id, blocking=not pipelined, tokens=served)

    def act(self, action: str, value: Any = None) -> Any:
        """Have the process of the worker do one of ``ACTIONS``."""
        token = next(_TOKENS)
        link = self.owners_link
        link.send("call", action, self.id, token, serialize(value))
        while not link.closed:
            note = link.take()
            if note is None:
                link.wait()
            elif note[0] == "answer" and note[3] == token:
                return deserialize(note[4])
        raise WorkerClosed(self.id)

    def clear_objects(self) -> Any:
        """Drop every object."""
        super().clear_objects()
        self.collect()  # the worker has said so
        return self

    def close(self) -> None:
        if not self.closed:
            super().close()
            self.processes.give_back(self.child)


def serve_behind_socket(link: Link) -> None:
    """Serve one worker over a socket, in a child process, until the link is closed."""
    server: sy.WebsocketServerWorker | None = None
    while not link.closed:
        note = link.take()
        if note is None:
            select.select([link.end], [], [])
            link.fill()
        elif note[0] == "leave":
            link.leave()
        elif note[0] == "call":
            _, action, target, token, body = note
            if action == "serve":
                server = sy.WebsocketServerWorker(
                    port=0,
                    id=target,
                    tokens=deserialize(body),
                    anonymous=True,
                    allow_plans=True,
                    dial=("127.0.0.0/8",),
                )
                # The owner of each knows the workers of all tests, by their names.
                server.core.place_of = str
                server.core.place_of_caller = _name_of
                server.__enter__()
                answer: Any = server.port
            else:
                assert server is not None
                with server.owning():
                    answer = ACTIONS[action](server.network, link, target, deserialize(body))
            link.send("answer", "", "", token, serialize(answer))
    if server is not None:
        server.close()


def _name_of(peer: Any) -> str:
    name: str = peer.name
    return name
