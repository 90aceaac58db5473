"""CrypTen 0.4.1: two parties and a trusted third party, over gloo.

What had to be done for it to run beside torch 2.13, all of it here or in the requirements:

- It asks for the package ``sklearn``, which was retired, and for torchvision, which it only needs
  for examples: it is installed without its dependencies, and those that it imports by name.
- ``crypten.nn.onnx_converter`` imports ``torch.onnx._internal.registration.registry``, which is
  gone, and does not use it here: an empty module stands in.
- Its own ``max_pool2d`` also finds where each maximum was, and sends five times as much as a
  tournament of ReLUs: that is the argument ``own``, and the tournament ``pairs``.
- Networks are written as operations on its tensors.  That is what its modules call, and it leaves
  the export to ONNX out, which newer versions of torch write differently.

Gradients are off.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from types import ModuleType
from typing import Any

import torch

from benchmarks.compare.cases import CASES, drawn_inputs, drawn_parameters, window_maximum
from benchmarks.compare.parties import COUNT, Prepared, Rank, Ranks, coordinate, say, used
from benchmarks.compare.torch_network import Network

_REGISTRATION = "torch.onnx._internal.registration"

PARTIES = 2
PROVIDER = PARTIES

OWN = "own"
"""The argument for CrypTen's own pooling."""


def _import_crypten() -> Any:
    """Import it with a stand-in for the module that torch no longer has."""
    stand_in = ModuleType(_REGISTRATION)
    stand_in.__dict__["registry"] = None
    sys.modules.setdefault(_REGISTRATION, stand_in)
    import crypten

    return crypten


class SharedLayers:
    """The layers, as operations on CrypTen's tensors."""

    def __init__(self, parameters: dict[str, Any], own_pools: bool) -> None:
        self.parameters = parameters
        self.own_pools = own_pools

    def linear(self, x: Any, name: str) -> Any:
        """Return ``x @ weight.T + bias``."""
        return x.matmul(self.parameters[f"{name}_weight"].t()) + self.parameters[f"{name}_bias"]

    def conv(self, x: Any, name: str, stride: int = 1, padding: int = 0) -> Any:
        """Return the convolution plus bias."""
        product = x.conv2d(self.parameters[f"{name}_weight"], stride=stride, padding=padding)
        return product + self.parameters[f"{name}_bias"].view(-1, 1, 1)

    def relu(self, x: Any) -> Any:
        """Return the positive part."""
        return x.relu()

    def max_pool(self, x: Any, size: int, stride: int, padding: int = 0) -> Any:
        """Return the maximum of each window; zeros are padded, as no value is less than they."""
        if self.own_pools:
            return x.max_pool2d(size, stride=stride, padding=padding)
        if padding:
            x = x.pad((padding,) * 4)
        return window_maximum(lambda a, b: b + (a - b).relu(), x, size, stride, (2, 3))

    def average(self, x: Any) -> Any:
        """Return the mean over height and width."""
        return x.mean((2, 3))

    def flat(self, x: Any) -> Any:
        """Return all but the batch as one dimension."""
        return x.flatten(start_dim=1)


def _prepare(crypten: Any, name: str, own_pools: bool) -> Prepared:
    """Share what the case takes, party 0 being the owner of all of it."""
    case = CASES[name]
    inputs = [torch.from_numpy(array) for array in drawn_inputs(case)]
    parameters = {key: torch.from_numpy(array) for key, array in drawn_parameters(case).items()}
    shared = [crypten.cryptensor(tensor, src=0) for tensor in inputs]
    layers = SharedLayers(
        {key: crypten.cryptensor(tensor, src=0) for key, tensor in parameters.items()}, own_pools
    )

    def run() -> Any:
        with crypten.no_grad():
            return case.run(layers, *shared)

    def error(result: Any) -> float:
        with torch.no_grad():
            plain = Network(case)(*inputs).double()
        # Its own decoding adds one to a negative value without a fraction.
        revealed = result._tensor.reveal().double() / result.encoder.scale
        return float((revealed - plain).abs().max())

    return Prepared(run, error)


def _count_only() -> None:
    """Answer for the provider, which runs no case by itself: what it has used."""
    for line in sys.stdin:
        say(used() if line.strip() == COUNT else {})


def _rank(pools: str, rendezvous: str, rank: int) -> None:
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(PARTIES),
        "RENDEZVOUS": f"file://{rendezvous}",
        "DISTRIBUTED_BACKEND": "gloo",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    torch.set_num_threads(1)
    crypten = _import_crypten()
    crypten.cfg.mpc.provider = "TTP"
    if rank == PROVIDER:
        from crypten.mpc.provider.ttp_provider import TTPServer

        threading.Thread(target=_count_only, daemon=True).start()
        TTPServer()
        return
    crypten.init()
    barrier = crypten.communicator.get().barrier
    Rank(lambda name: _prepare(crypten, name, pools == OWN), barrier).serve()


def main() -> None:
    """Coordinate, or be one rank: ``own | pairs [RENDEZVOUS RANK]``."""
    pools = sys.argv[1]
    if len(sys.argv) == 4:
        _rank(pools, sys.argv[2], int(sys.argv[3]))
        return
    with tempfile.TemporaryDirectory() as folder:
        rendezvous = f"{folder}/rendezvous"
        ranks = Ranks("benchmarks.compare.crypten_peer", PARTIES + 1, pools, rendezvous)
        try:
            coordinate(ranks.run, ranks.used, sys.stdin)
        finally:
            ranks.close()


if __name__ == "__main__":
    main()
