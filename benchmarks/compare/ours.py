"""syft: two parties and a provider, each a worker in a process of its own, and their client.

The same lines as the other scripts of the comparison; a rank is one of the workers.  What is timed
is what the client does until the parties have the result, the way to them and back included: it
reads one element.  With ``ahead`` as argument, the provider deals before the clock starts.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import torch

import syft as sy
from benchmarks.compare.cases import CASES, drawn_inputs
from benchmarks.compare.parties import Answer, Prepared, Rank, Ranks, coordinate, say, used
from benchmarks.compare.torch_network import Network
from syft.node.freed_memory import keep_freed_memory

WORKERS = ("alice", "bob", "carol")
"""Two parties, and the provider of what they multiply and compare with."""

HEARTBEAT = 60.0
"""Seconds: what idle lines say to each other is not measured."""


class SharingClient:
    """The client of the three workers, which prepares cases and runs them.

    Each run has inputs that were shared for it: what was opened behind a mask is not opened again,
    so a second run on the same inputs would cost less than a first one.
    """

    def __init__(self, ranks: Ranks, ahead: bool) -> None:
        self.ranks = ranks
        self.ahead = ahead
        addresses = [told["address"] for told in ranks.ask("address")]
        self.alice, self.bob, self.carol = (
            sy.connect(address, heartbeat=HEARTBEAT) for address in addresses
        )
        self.rank = Rank(self._prepare, sy.synchronize)
        self._share_inputs: Callable[[], None] = lambda: None

    def run(self, name: str) -> Answer:
        """Prepare or run a case."""
        return self.rank.answer(name)

    def used(self) -> Answer:
        """Say what the workers and the client have used so far."""
        here, there = used(), self.ranks.used()
        return {key: here[key] + there[key] for key in here}

    def make_ready(self) -> None:
        """What comes before a run."""
        self._share_inputs()
        sy.synchronize()

    def _prepare(self, name: str) -> Prepared:
        case = CASES[name]
        plain: list[Any] = [torch.from_numpy(array) for array in drawn_inputs(case)]
        shared: list[Any] = []
        # A fresh network: sharing replaces its parameters.
        network: Any = Network(case)
        if case.parameters:
            self._share(network.fix_precision())

        def share_inputs() -> None:
            shared[:] = [self._share(x.fix_precision()) for x in plain]
            if self.ahead:
                sy.prepare(network, *shared, n=1)

        def run() -> Any:
            result = network(*shared)
            result.flatten()[:1].get()
            return result

        def error(result: Any) -> float:
            revealed = result.get()
            if revealed.dtype is not torch.bool and not revealed.is_floating_point():
                revealed = revealed.float_precision()
            return float((revealed.double() - Network(case)(*plain).double()).abs().max())

        share_inputs()
        self._share_inputs = share_inputs
        return Prepared(run, error)

    def _share(self, owner: Any) -> Any:
        return owner.share(self.alice, self.bob, crypto_provider=self.carol)


def _worker(rank: int) -> None:
    """Serve on another thread, and answer the coordinator on this one; as ``syft worker`` does."""
    torch.set_num_threads(1)
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as folder:
        server = sy.WebsocketServerWorker(
            host="127.0.0.1",
            port=0,
            id=WORKERS[rank],
            state=folder,
            anonymous=True,
            heartbeat=HEARTBEAT,
        )
        threading.Thread(target=server.start, daemon=True).start()
        for line in sys.stdin:
            say({"address": str(server.address)} if line.strip() == "address" else used())
        server.stop()


def main() -> None:
    """Coordinate, or be one worker: ``[ahead | RANK]``."""
    arguments = sys.argv[1:]
    if arguments and arguments != ["ahead"]:
        _worker(int(arguments[0]))
        return
    sy.TorchHook(torch)
    torch.set_num_threads(1)
    ranks = Ranks("benchmarks.compare.ours", len(WORKERS))
    try:
        client = SharingClient(ranks, ahead=bool(arguments))
        # Here, so that the provider deals for what will run, not for a run that records gradients.
        torch.set_grad_enabled(False)
        coordinate(client.run, client.used, sys.stdin, client.make_ready)
    finally:
        ranks.close()


if __name__ == "__main__":
    main()
