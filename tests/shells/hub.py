"""What the notes mean that cross the sockets between a process and its children.

The parent process is the hub: a frame from one child for another passes through it.
"""

from __future__ import annotations

import itertools
import select
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from syft.exceptions import UnknownWorker, WorkerClosed
from syft.serde import deserialize, from_bytes, serialize, to_parts
from syft.serde.buffers import join_bytes
from syft.serde.frame import Frame
from syft.workers.core.peer import Peer, Session
from syft.workers.execution.operation import neutral_mode
from syft.workers.shells.drop_timer import DropTimer
from syft.workers.shells.network import Network
from tests.shells.link import Link, Note
from tests.shells.processes import ChildProcesses

Action = Callable[["Hub", Link, str, Any], Any]


class Hub(Network):
    """The workers that one process knows; ``links`` lead to those elsewhere (in a child: one).

    ``actions`` are what the process at the other end of a link can call by name, and ``stand_in``
    makes what stands here for a worker elsewhere.  ``processes`` is where children come from.
    """

    def __init__(
        self,
        actions: dict[str, Action],
        stand_in: Callable[..., Any],
        upstream: Link | None = None,
        processes: ChildProcesses | None = None,
    ) -> None:
        super().__init__()
        self.processes = processes
        self.actions, self.stand_in, self.upstream = actions, stand_in, upstream
        self.links: dict[str, Link] = {} if upstream is None else {"": upstream}
        self.transports: dict[tuple[str, str, int], Any] = {}
        self.moved = 0  # how many frames were handled here or passed on
        self.settling = 0
        self._answers: dict[int, bytearray] = {}
        self._tokens = itertools.count()
        self._peers: dict[tuple[str, str, int, str | None], Peer] = {}
        self._sessions: dict[tuple[str, str, int], Session] = {}
        self._waiting: dict[tuple[str, str], list[Note]] = {}
        self.timer: DropTimer | None = None

    def start_timer(self, delay: float) -> None:
        """Send what is dropped while nothing else is sent; for a process that does not serve."""
        self.timer = DropTimer(self.flush_idle, delay)

    def find(self, name: Any, asked: str) -> Any:
        """The worker of that name; a child asks the parent for those it has not met."""
        if self.upstream is not None and name not in self.workers:
            others = self.call(self.upstream, "names", asked)
            if name not in others:
                raise UnknownWorker(str(name), asked, tuple(sorted({*others} - {asked})))
            self.workers[name] = self.stand_in(self, name, self.upstream)
        return super().find(name, asked)

    def call(self, link: Link, action: str, target: str, value: Any = None) -> Any:
        """Have the process at the other end of a link do something that is no request."""
        token = next(self._tokens)
        with self.lock:
            link.send("call", action, target, token, serialize(value))
        while token not in self._answers:
            if link.closed and action == "settle":
                return False  # there is nobody left to finish
            if link.closed:
                raise WorkerClosed(target)
            self.turn()
        return deserialize(self._answers.pop(token))

    def settle(self, asking: Link | None = None) -> bool:
        """Ask everybody else to finish; whether anything happened, or somebody is still at work."""
        before, self.settling = self.moved, self.settling + 1
        others = [pair for pair in self.links.items() if pair[1] is not asking]
        try:
            at_work = [self.call(link, "settle", name) for name, link in others if not link.closed]
        finally:
            self.settling -= 1
        return any(at_work) or self.moved != before

    def is_at_work(self) -> bool:
        """Whether a request is being handled, unless it waits for others to finish."""
        return bool(self._waiting) and not self.settling

    def turn(self, block: bool = True) -> bool:
        """Handle the notes that have come; with ``block``, wait for some."""
        with self.lock:
            return self._turn(block)

    def _turn(self, block: bool) -> bool:
        links = {link.end: link for link in self.links.values() if not link.closed}
        handled = any([self._handle(link) for link in links.values()])
        wait = None if block and not handled else 0
        for end in select.select(links, [], [], wait)[0] if links else ():
            links[end].fill()
            handled |= self._handle(links[end]) | links[end].closed
        return handled

    def _handle(self, link: Link) -> bool:
        handled = False
        while (note := link.take()) is not None:
            handled = True
            kind, source, target, extra, body = note
            if kind == "answer":
                self._answers[extra] = body
            elif kind == "call":
                answer = self.actions[source](self, link, target, deserialize(body))
                link.send("answer", "", "", extra, serialize(answer))
            elif kind == "leave":
                link.leave()
            elif target not in self.hosts:
                self.moved += 1
                self.observe(source, target, from_bytes(bytes(body)))
                if target in self.links:  # or else it has been closed
                    self.links[target].send(*note)
            elif kind == "reply":
                self.moved += 1
                self.transports[target, source, extra].take(from_bytes(body))
            else:
                self._queue(link, note)
        return handled

    def _queue(self, link: Link, note: Note) -> None:
        """Serve the requests of one line in their order, also if one of them waits for others."""
        line = (note[1], note[2])
        if line in self._waiting:
            self._waiting[line].append(note)
            return
        self._waiting[line] = [note]
        while self._waiting[line]:
            self._serve(link, self._waiting[line].pop(0))
        del self._waiting[line]

    def _serve(self, link: Link, note: Note) -> None:
        _, source, target, (number, user), body = note
        self.moved += 1
        host: Any = self.hosts[target]
        peer = self._peers.get((source, target, number, user))
        if peer is None:
            session = self._sessions.setdefault((source, target, number), Session())
            peer = self._peers[source, target, number, user] = Peer(source, user, session)
            host.callers[peer] = SimpleNamespace(
                take=lambda frame: send_frame(self, link, "reply", target, source, number, frame),
                caller=self.workers.setdefault(source, self.stand_in(self, source, link)),
            )
        frame = from_bytes(body)
        self.observe(source, target, frame)
        with neutral_mode():
            letters = host.core.receive(frame, peer)
        self.carry(letters, host)


def send_frame(
    hub: Hub, link: Link, kind: str, source: str, target: str, extra: Any, frame: Frame
) -> None:
    """Send a frame from a worker of this process to one elsewhere, with the number of the
    transport; of a request with the user too."""
    hub.observe(source, target, frame)
    with hub.lock:
        link.send(kind, source, target, extra, join_bytes(to_parts(frame, False)))
