"""syft: two parties and a provider, each a worker in a process of its own, and their client.

The same lines as the other scripts of the comparison; a rank is one of the workers.  What is timed
is what the client does until the parties have the result, the way to them and back included: it
reads one element.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from typing import Any

import torch

import syft as sy
from benchmarks.compare.cases import CASES, drawn_inputs
from benchmarks.compare.parties import Answer, Prepared, Rank, Ranks, coordinate, say, used
from benchmarks.compare.torch_network import Network

WORKERS = ("alice", "bob", "carol")
"""Two parties, and the provider of what they multiply and compare with."""

HEARTBEAT = 60.0
"""Seconds: what idle lines say to each other is not measured."""


class SharingClient:
    """The client of the three workers, which prepares cases and runs them."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        addresses = [told["address"] for told in ranks.ask("address")]
        self.alice, self.bob, self.carol = (
            sy.connect(address, heartbeat=HEARTBEAT) for address in addresses
        )
        self.rank = Rank(self._prepare, sy.synchronize)

    def run(self, name: str) -> Answer:
        """Prepare or run a case."""
        with torch.no_grad():
            return self.rank.answer(name)

    def used(self) -> Answer:
        """Say what the workers and the client have used so far."""
        here, there = used(), self.ranks.used()
        return {key: here[key] + there[key] for key in here}

    def _prepare(self, name: str) -> Prepared:
        case = CASES[name]
        plain: list[Any] = [torch.from_numpy(array) for array in drawn_inputs(case)]
        shared = [self._share(x.fix_precision()) for x in plain]
        # A fresh network: sharing replaces its parameters.
        network: Any = Network(case)
        if case.parameters:
            self._share(network.fix_precision())

        def run() -> Any:
            result = network(*shared)
            result.flatten()[:1].get()
            return result

        def error(result: Any) -> float:
            revealed = result.get()
            if revealed.dtype is not torch.bool and not revealed.is_floating_point():
                revealed = revealed.float_precision()
            return float((revealed.double() - Network(case)(*plain).double()).abs().max())

        return Prepared(run, error)

    def _share(self, owner: Any) -> Any:
        return owner.share(self.alice, self.bob, crypto_provider=self.carol)


def _worker(rank: int) -> None:
    """Serve on another thread, and answer the coordinator on this one."""
    torch.set_num_threads(1)
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
    """Coordinate, or be one worker: ``[RANK]``."""
    if len(sys.argv) == 2:
        _worker(int(sys.argv[1]))
        return
    if not hasattr(torch.Tensor, "share"):
        sy.TorchHook(torch)
    if not hasattr(torch.Tensor, "share"):
        raise SystemExit("this version of syft does not share tensors")
    torch.set_num_threads(1)
    ranks = Ranks("benchmarks.compare.ours", len(WORKERS))
    try:
        client = SharingClient(ranks)
        coordinate(client.run, client.used, sys.stdin)
    finally:
        ranks.close()


if __name__ == "__main__":
    main()
