"""SPU 0.9.5: semi2k with two parties, or aby3 with three.

In semi2k the first party is trusted with the triples, its quickest way to have them.  The settings
are its defaults, but for the field (64 bits), the fractional bits (18, its own choice for that
field) and one thread.  It pins jax 0.4.34 or older and numpy 1.26, so it has an environment of its
own, of Python 3.10 or 3.11.  Images are laid out channels last, as its convolutions take them, and
are so before they are shared.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from benchmarks.compare.cases import CASES, Array, drawn_inputs, drawn_parameters, window_maximum
from benchmarks.compare.parties import Prepared, Rank, Ranks, coordinate, free_port

PARTIES = {"semi2k": 2, "aby3": 3}
FRACTION_BITS = 18


class JaxLayers:
    """The layers, as operations of jax, channels last: SPU compiles what jax traces."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.parameters = parameters

    def linear(self, x: Any, name: str) -> Any:
        """Return ``x @ weight + bias``."""
        return x @ self.parameters[f"{name}_weight"] + self.parameters[f"{name}_bias"]

    def conv(self, x: Any, name: str, stride: int = 1, padding: int = 0) -> Any:
        """Return the convolution plus bias."""
        from jax import lax

        product = lax.conv_general_dilated(
            x,
            self.parameters[f"{name}_weight"],
            (stride, stride),
            ((padding, padding), (padding, padding)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return product + self.parameters[f"{name}_bias"]

    def relu(self, x: Any) -> Any:
        """Return the positive part."""
        from jax import numpy

        return numpy.maximum(x, 0)

    def max_pool(self, x: Any, size: int, stride: int, padding: int = 0) -> Any:
        """Return the maximum of each window; zeros are padded, as no value is less than they."""
        from jax import numpy

        edge = (padding, padding)
        if padding:
            x = numpy.pad(x, ((0, 0), edge, edge, (0, 0)))
        return window_maximum(numpy.maximum, x, size, stride, (1, 2))

    def average(self, x: Any) -> Any:
        """Return the mean over height and width."""
        return x.mean((1, 2))

    def flat(self, x: Any) -> Any:
        """Return channels, height and width as one dimension, in this order."""
        return x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1)


def _channels_last(name: str, array: Array) -> Array:
    """Lay out an image, or the weight of a layer, as these layers take it."""
    orders = {("", 4): (0, 2, 3, 1), ("weight", 4): (2, 3, 1, 0), ("weight", 2): (1, 0)}
    order = orders.get((name.rpartition("_")[2], array.ndim))
    return array if order is None else array.transpose(order).copy()


class Party:
    """One rank: a virtual machine of SPU, connected to the others."""

    def __init__(self, protocol: str, addresses: list[str], rank: int) -> None:
        import spu
        from spu import libspu

        self.rank, self.count = rank, len(addresses)
        config = libspu.RuntimeConfig(
            protocol=spu.parse_protocol_kind(protocol.upper()),
            field=libspu.FieldType.FM64,
            fxp_fraction_bits=FRACTION_BITS,
        )
        config.max_concurrency = 1
        config.beaver_type = libspu.RuntimeConfig.BeaverType.TrustedFirstParty
        description = libspu.link.Desc()
        description.recv_timeout_ms = 600_000
        for index, address in enumerate(addresses):
            description.add_party(f"party{index}", address)
        self.link = libspu.link.create_brpc(description, rank)
        self.runtime = spu.Runtime(self.link, config)
        self.io = spu.Io(self.count, config)
        self.variables: list[str] = []
        """What the virtual machine holds of the last case."""

    def prepare(self, name: str) -> Prepared:
        """Compile the case, and share what it takes."""
        import numpy
        from spu import libspu
        from spu.utils import frontend

        case = CASES[name]
        inputs = [_channels_last("", array) for array in drawn_inputs(case)]
        parameters = {
            key: _channels_last(key, array) for key, array in drawn_parameters(case).items()
        }

        def traced(parameters: dict[str, Any], *inputs: Any) -> Any:
            return case.run(JaxLayers(parameters), *inputs)

        # The order in which jax flattens a dictionary.
        operands = [parameters[key] for key in sorted(parameters)] + inputs
        names = [f"in{index}" for index in range(len(operands))]
        secret = libspu.Visibility.VIS_SECRET
        executable, _ = frontend.compile(
            frontend.Kind.JAX,
            traced,
            [parameters, *inputs],
            {},
            names,
            [secret] * len(names),
            lambda outputs: [f"out{index}" for index in range(len(outputs))],
        )
        for stale in self.variables:
            self.runtime.del_var(stale)
        self.variables = [*names, "out0"]
        for operand_name, operand in zip(names, operands, strict=True):
            self.runtime.set_var(operand_name, self._shared(operand))

        def run() -> Any:
            self.runtime.run(executable)

        def error(_: Any) -> float:
            result = self._revealed("out0")
            if result is None:
                return 0.0
            plain = numpy.asarray(traced(parameters, *inputs), numpy.float32)
            return float(numpy.abs(result - plain).max())

        return Prepared(run, error)

    def barrier(self) -> None:
        """Wait for the other parties."""
        self.link.barrier()

    def _shared(self, array: Array) -> Any:
        """Share a value of party 0; every party returns its own share."""
        from spu import libspu

        if self.rank == 0:
            shares = self.io.make_shares(array, libspu.Visibility.VIS_SECRET)
            for other in range(1, self.count):
                self._send(other, shares[other])
            return shares[0]
        return self._received(0)

    def _revealed(self, name: str) -> Any:
        """Show a result to party 0; the others get None."""
        share = self.runtime.get_var(name)
        if self.rank == 0:
            others = [self._received(other) for other in range(1, self.count)]
            return self.io.reconstruct([share, *others])
        self._send(0, share)
        return None

    def _send(self, other: int, share: Any) -> None:
        for part in (share.meta, str(len(share.share_chunks)), *share.share_chunks):
            self.link.send(other, part)

    def _received(self, other: int) -> Any:
        from spu import libspu

        share = libspu.Share()
        share.meta = self.link.recv(other)
        share.share_chunks = [self.link.recv(other) for _ in range(int(self.link.recv(other)))]
        return share


def main() -> None:
    """Coordinate, or be one rank: ``PROTOCOL [ADDRESSES RANK]``."""
    protocol = sys.argv[1]
    if len(sys.argv) == 4:
        os.environ["JAX_PLATFORMS"] = "cpu"
        party = Party(protocol, sys.argv[2].split(","), int(sys.argv[3]))
        Rank(party.prepare, party.barrier).serve()
        return
    addresses = ",".join(f"127.0.0.1:{free_port()}" for _ in range(PARTIES[protocol]))
    ranks = Ranks("benchmarks.compare.spu_peer", PARTIES[protocol], protocol, addresses)
    try:
        coordinate(ranks.run, ranks.used, sys.stdin)
    finally:
        ranks.close()


if __name__ == "__main__":
    main()
