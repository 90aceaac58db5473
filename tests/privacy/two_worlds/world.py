"""Two worlds that differ in the secret only, and what an observer receives in each.

A *world* is a few workers in this process: ``bob`` and ``alice``, who are honest, and ``eve``, a
worker that belongs to the observer.  ``ann`` owns private data at bob and at alice.  The observer
is a user whom ann does not admit; she sends requests over connections of hers: ``eve`` and
``eve2``, and ``dan`` as another user, who owns private data that is the same in both worlds.
The *transcript* is every byte that reaches her: all frames to her connections, in
order, and all frames to her worker; and every line of the workers' logs, which their owners may
show.

Both worlds are sent the same frames.  Only the buffers of private tensors differ, which ann sends.
Whatever else a worker could differ in is fixed: the ids that it draws, the masks of collective
operations and torch's generator are the same function of the request's number in both worlds.  So
any difference between the two transcripts follows from the secret.

Torch's generator belongs to the process.  Each world has its own state of it, so a private value
that decides how many numbers are drawn shows in what is drawn later.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import random
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch.nested._internal import nested_tensor

from syft import ids
from syft.crypto import mask_stream
from syft.exceptions import WorkerClosed
from syft.serde.frame import Frame
from syft.workers.core.peer import Peer
from syft.workers.core.peer_limits import DEFAULT_PEER_LIMITS, PeerLimits
from syft.workers.execution import predicted_run
from syft.workers.shells.connection_table import CallerLine
from syft.workers.shells.virtual import VirtualWorker
from tests.privacy.two_worlds.prediction_caches import OF_WORLDS, PredictionCaches

_NESTED = cast(Any, nested_tensor)

Note = tuple[bytes, ...]
"""What the observer received at once: where it came from, a header, and the buffers."""

WORKERS = ("bob", "alice", "eve")
OBSERVER = "eve"
OWNER = "ann"
READER = "dan"
"""A user as whom the observer reads data of his own, which is the same in both worlds."""
REPLY, ESCAPED, COUNTS, LOGGED = b"reply", b"escaped", b"counts", b"logged"
SENDERS = {"eve": None, "eve2": None, "ann": "ann", READER: READER}
"""Who sends requests, and the user for whom."""


@dataclass(frozen=True, slots=True)
class Request:
    """One frame to one worker; in the second world its buffers are ``others``, if there are any.

    What follows ``others`` is for reports: it is not sent.
    """

    worker: str
    sender: str
    header: bytes
    buffers: tuple[torch.Tensor, ...] = ()
    others: tuple[torch.Tensor, ...] | None = None
    text: str = ""
    op: str = ""
    positions: tuple[str, ...] = ()
    """The places of the private operands, for the table of coverage."""
    stream: int = 0
    """From what the ids and masks are drawn that a worker draws while it handles this."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first request after which the transcripts differ, and what was received then."""

    at: int
    request: Request
    received: tuple[list[Note], list[Note]] = field(repr=False)

    def __str__(self) -> str:
        one, other = self.received
        if len(one) != len(other):
            return f"{len(one)} frames against {len(other)} after {self.request.text}"
        first, second = next((a, b) for a, b in zip(one, other, strict=True) if a != b)
        a, b = b"|".join(first), b"|".join(second)
        place = next(
            (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
        )
        near = slice(max(0, place - 24), place + 40)
        return f"{a[near]!r} against {b[near]!r} after {self.request.text}"


class ObserverLine:
    """The way back to a sender; what goes to the observer is noted down."""

    def __init__(self, world: World, sender: str) -> None:
        self.world = world
        self.noted = sender != OWNER

    @property
    def caller(self) -> VirtualWorker:
        """The worker to which requests in the other direction go: the observer's own."""
        if not self.noted:
            raise WorkerClosed(OWNER)
        return self.world.workers[OBSERVER]

    def take(self, frame: Frame) -> None:
        """A frame for the sender."""
        if self.noted:
            self.world.note(REPLY, frame)


class World:
    """The workers of one world, and what the observer has received there since last asked."""

    def __init__(
        self, random_state: torch.Tensor, caches: PredictionCaches, limits: PeerLimits
    ) -> None:
        self.caches = caches
        self.received: list[Note] = []
        self.random_state = random_state
        self.nested_sizes = 1_000_000
        """The next name of a size of nested tensors, which torch counts: ``j1000000``."""
        first = VirtualWorker(None, id=WORKERS[0], peer_limits=limits)
        hook = cast(Any, SimpleNamespace(local_worker=first))
        self.workers = {first.id: first}
        for name in WORKERS[1:]:
            self.workers[name] = VirtualWorker(hook, id=name, peer_limits=limits)
        self.network = first.network
        self.network.observers.append(self._observe)
        self.peers: dict[tuple[str, str], Peer] = {}
        for worker in self.workers.values():
            for sender, user in SENDERS.items():
                peer = self.peers[worker.id, sender] = Peer(sender, user)
                worker.callers[peer] = cast(CallerLine, ObserverLine(self, sender))

    def _observe(self, sender: str, receiver: str, frame: Frame) -> None:
        if receiver == OBSERVER != sender:
            self.note(sender.encode(), frame)

    def note(self, kind: bytes, frame: Frame) -> None:
        """Write down a frame that reached the observer."""
        buffers = (buffer.numpy().tobytes() for buffer in frame.buffers)
        self.received.append((kind, frame.header, *buffers))

    def handle(self, request: Request, buffers: Sequence[torch.Tensor]) -> list[Note]:
        """Have the worker handle a request, and all that it causes; return what was received."""
        worker = self.workers[request.worker]
        peer = self.peers[request.worker, request.sender]
        DRAWN.start(request.stream)
        self.caches.use()
        _NESTED._tensor_id_counter = self.nested_sizes
        torch.set_rng_state(self.random_state)
        LOG.lines = self.received
        try:
            letters = worker.core.receive(Frame(request.header, list(buffers)), peer)
            self.network.carry(letters, worker)
        except Exception as error:  # a worker must not let one out; if it does, both must
            self.received.append((ESCAPED, f"{type(error).__name__}: {error}".encode()))
        self.random_state = torch.get_rng_state()
        self.nested_sizes = _NESTED._tensor_id_counter
        received, self.received = self.received, []
        received.append((COUNTS, *self._counts()))
        return received

    def _counts(self) -> Iterator[bytes]:
        """What the programs of workers' owners may show anybody: their counters, and how many
        objects there are, after what was dropped is collected.

        Not the bytes: those of what the owner of private data fetches and moves are in them.
        """
        while self.network.flush():
            self.network.run()
        for name, worker in self.workers.items():
            stats = worker.core.stats
            counts = stats.messages_in, stats.messages_out, stats.cache_hits
            yield f"{name} {len(worker.core.store.objects)} {counts}".encode()

    def shown(self) -> list[bytes]:
        """What these programs show of their workers, as text and in a table."""
        return [f"{it!r} {it.cells_shown()}".encode() for it in self.workers.values()]

    def close(self) -> None:
        """Drop everything; the cycle collector is not needed for what is left."""
        self.network.observers.clear()
        for worker in self.workers.values():
            worker.core.clear("the world ends")
            worker.callers.clear()
        for worker in self.workers.values():
            worker.close()
        self.peers.clear()
        self.workers.clear()


class Log(logging.Handler):
    """Notes down what workers log, as their owners would read it."""

    lines: list[Note] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != TOLD_TO_OWNERS:
            self.lines.append((LOGGED, f"{record.name}: {record.getMessage()}".encode()))


TOLD_TO_OWNERS = "syft.tensors.logging"
"""What a LoggingTensor says while it computes, which may fail half-way: to the owner of the worker,
who could look at the memory."""


LOG = Log()


class Drawn:
    """What a worker draws while it handles a request: functions of the request's number."""

    def __init__(self) -> None:
        self.stream = 0
        self.drawn = 0

    def start(self, stream: int) -> None:
        """Begin with the numbers of another request."""
        self.stream, self.drawn = stream, 0

    def pop(self) -> int:
        """The next id, as the pool of :mod:`syft.ids` hands it out: shifted by a bit."""
        self.drawn += 1
        return (self.stream << 32) + self.drawn << 1

    def token_bytes(self, count: int) -> bytes:
        """The next mask, in the place of the function of the module ``secrets``."""
        self.drawn += 1
        return random.Random(self.pop()).randbytes(count)

    def randbits(self, count: int) -> int:
        """The seed of what a private command draws: another user of the observer's may read that.

        It counts as no draw: how many there are may follow from private values.
        """
        return random.Random(self.stream).getrandbits(count)


DRAWN = Drawn()


@contextlib.contextmanager
def fixed() -> Iterator[None]:
    """A context in which worlds may run; what they change in the process is as before after it.

    The cycle collector is off, because what it frees is noticed by other workers, at a time that
    depends on everything in the process.
    """
    state, pool, level = torch.get_rng_state(), ids._pool, logging.getLogger("syft").level
    nested_sizes = _NESTED._tensor_id_counter
    collecting = gc.isenabled()
    patched = cast(Any, (mask_stream, predicted_run))
    secrets = [module.secrets for module in patched]
    for module in patched:
        module.secrets = DRAWN
    cast(Any, ids)._pool = DRAWN
    caches = PredictionCaches.present()
    logger = logging.getLogger("syft")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(LOG)
    logger.propagate = False
    gc.disable()
    try:
        with warnings.catch_warnings(), torch.enable_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        if collecting:
            gc.enable()
        caches.use()
        _NESTED._tensor_id_counter = nested_sizes
        cast(Any, ids)._pool = pool
        for module, before in zip(patched, secrets, strict=True):
            module.secrets = before
        torch.set_rng_state(state)
        logger.removeHandler(LOG)
        logger.setLevel(level)
        logger.propagate = True


class TwoWorlds:
    """Two worlds that are sent the same requests, until what is received differs.

    With ``alike`` both are sent the same secrets too, so that a difference is the fault of the
    instrument, or of something in a worker that is random.
    """

    def __init__(self, alike: bool = False, limits: PeerLimits = DEFAULT_PEER_LIMITS) -> None:
        state = torch.Generator().manual_seed(0).get_state()
        first, second = (World(state, caches, limits) for caches in OF_WORLDS)
        self.worlds = first, second
        self.limits = limits
        self.requests: list[Request] = []
        self.difference: Difference | None = None
        self.alike = alike

    def send(self, request: Request) -> list[Note]:
        """Send a request to both worlds; returns what is received in the first one.

        Once the transcripts differ, nothing is sent any more.
        """
        if self.difference is not None:
            return []
        request = replace(request, stream=request.stream or len(self.requests) + 1)
        self.requests.append(request)
        others = request.buffers if request.others is None or self.alike else request.others
        one = self.worlds[0].handle(request, request.buffers)
        other = self.worlds[1].handle(request, others)
        if one != other:
            self.difference = Difference(len(self.requests) - 1, request, (one, other))
        return one

    def compare_shown(self) -> None:
        """Compare what the programs of workers' owners show of them."""
        if self.difference is None and self.requests:
            one, other = ([(COUNTS, *world.shown())] for world in self.worlds)
            if one != other:
                about = replace(self.requests[-1], text="what is shown of workers")
                self.difference = Difference(len(self.requests) - 1, about, (one, other))

    def close(self) -> None:
        """Drop both worlds."""
        for world in self.worlds:
            world.close()


def replay(
    requests: Sequence[Request], alike: bool = False, limits: PeerLimits = DEFAULT_PEER_LIMITS
) -> Difference | None:
    """Send requests to two new worlds; returns the first difference, if there is one."""
    with fixed():
        both = TwoWorlds(alike, limits)
        try:
            for request in requests:
                both.send(request)
                if both.difference is not None:
                    return both.difference
            return None
        finally:
            both.close()


def shrink(
    requests: Sequence[Request], alike: bool = False, limits: PeerLimits = DEFAULT_PEER_LIMITS
) -> list[Request]:
    """The requests without those that are not needed for a difference.

    Halves, quarters and so on are left out as long as what is left differs, at last single ones.
    Each keeps the stream of numbers that it had, so that nothing else changes.
    """
    kept = list(requests)
    if replay(kept, alike, limits) is None:  # then it does not follow from the requests alone
        return kept
    size = max(1, len(kept) // 2)
    while True:
        start = 0
        while start < len(kept):
            rest = kept[:start] + kept[start + size :]
            found = replay(rest, alike, limits)
            if found is not None:
                kept = rest[: found.at + 1]
            else:
                start += size
        if size == 1:
            return kept
        size //= 2
