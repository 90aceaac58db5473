"""What is compared: operations and networks, as shapes and as what is done with them.

Each library of the comparison has an environment of its own.  What they share is this file: it
needs numpy alone, draws the same values everywhere, and writes a network once, over the few layers
that a library has to provide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float32]
Shape: TypeAlias = tuple[int, ...]


class Layers(Protocol):
    """The layers of one library; ``name`` is the layer's, by which it finds its parameters."""

    def linear(self, x: Any, name: str) -> Any:
        """Return ``x @ weight.T + bias``."""

    def conv(self, x: Any, name: str, stride: int = 1, padding: int = 0) -> Any:
        """Return the two-dimensional convolution plus bias."""

    def relu(self, x: Any) -> Any:
        """Return the positive part."""

    def max_pool(self, x: Any, size: int, stride: int, padding: int = 0) -> Any:
        """Return the maximum of each window; what is padded is never negative."""

    def average(self, x: Any) -> Any:
        """Return the mean over height and width, those two dimensions left out."""

    def flat(self, x: Any) -> Any:
        """Return channels, height and width as one dimension, in this order."""


def window_maximum(
    maximum: Callable[[Any, Any], Any], x: Any, size: int, stride: int, axes: tuple[int, int]
) -> Any:
    """Take the maximum of each window in pairs: over ``axes`` in turn, as a tournament.

    CrypTen's own pooling also finds which value was the largest, and sends five times as much;
    SPU's is such a tournament.
    """
    for axis in axes:
        starts = range(size)
        reach = (x.shape[axis] - size) // stride * stride + 1
        players = [
            x[(slice(None),) * axis + (slice(start, start + reach, stride),)] for start in starts
        ]
        while len(players) > 1:
            first, second, *rest = players
            players = [*rest, maximum(first, second)]
        x = players[0]
    return x


@dataclass(frozen=True)
class Case:
    """A row of the table: every operand is shared, the parameters too."""

    name: str
    inputs: tuple[Shape, ...]
    run: Callable[..., Any]
    """Called with the layers and the inputs."""
    parameters: dict[str, Shape] = field(default_factory=dict)
    pools: bool = False
    """Whether it takes maxima of windows."""


def _layer(name: str, *weight: int) -> Iterator[tuple[str, Shape]]:
    """List the parameters of a linear or convolutional layer."""
    yield f"{name}_weight", weight
    yield f"{name}_bias", weight[:1]


# ------------------------------------------------------------------------------------- networks


def _mlp(layers: Layers, x: Any) -> Any:
    return layers.linear(layers.relu(layers.linear(x, "fc1")), "fc2")


_MLP = dict([*_layer("fc1", 500, 784), *_layer("fc2", 10, 500)])


def _cnn(layers: Layers, x: Any) -> Any:
    # ReLU after the pooling: the same values, of a quarter as many comparisons.
    x = layers.relu(layers.max_pool(layers.conv(x, "conv1"), 2, 2))
    x = layers.relu(layers.max_pool(layers.conv(x, "conv2"), 2, 2))
    return layers.linear(layers.relu(layers.linear(layers.flat(x), "fc1")), "fc2")


_CNN = dict(
    [
        *_layer("conv1", 20, 1, 5, 5),
        *_layer("conv2", 50, 20, 5, 5),
        *_layer("fc1", 500, 800),
        *_layer("fc2", 10, 500),
    ]
)

_WIDTHS = (64, 128, 256, 512)
_BLOCKS = [f"{width}_{turn}" for width in _WIDTHS for turn in (0, 1)]
"""The residual blocks of ResNet-18, by name."""


def _residual(layers: Layers, x: Any, block: str) -> Any:
    halves = block.endswith("_0") and block != "64_0"
    stride = 2 if halves else 1
    y = layers.relu(layers.conv(x, f"block{block}_conv1", stride, 1))
    y = layers.conv(y, f"block{block}_conv2", 1, 1)
    return layers.relu(y + (layers.conv(x, f"block{block}_down", 2) if halves else x))


def _resnet18(layers: Layers, x: Any) -> Any:
    x = layers.max_pool(layers.relu(layers.conv(x, "stem", 2, 3)), 3, 2, 1)
    for block in _BLOCKS:
        x = _residual(layers, x, block)
    return layers.linear(layers.average(x), "fc")


def _resnet18_parameters() -> Iterator[tuple[str, Shape]]:
    yield from _layer("stem", 64, 3, 7, 7)
    channels = 64
    for block in _BLOCKS:
        width = int(block.split("_")[0])
        yield from _layer(f"block{block}_conv1", width, channels, 3, 3)
        yield from _layer(f"block{block}_conv2", width, width, 3, 3)
        if width != channels:
            yield from _layer(f"block{block}_down", width, channels, 1, 1)
        channels = width
    yield from _layer("fc", 1000, 512)


# ----------------------------------------------------------------------------------- the table

_MILLION = (1_000_000,)

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Case("mul 1e6", (_MILLION, _MILLION), lambda layers, x, y: x * y),
        Case("matmul 512", ((512, 512), (512, 512)), lambda layers, x, y: x @ y),
        Case("greater-than 1e6", (_MILLION, _MILLION), lambda layers, x, y: x > y),
        Case("relu 1e4", ((10_000,),), lambda layers, x: layers.relu(x)),
        Case("relu 1e6", (_MILLION,), lambda layers, x: layers.relu(x)),
        Case(
            "max pool 2x2 of 16x20x24x24",
            ((16, 20, 24, 24),),
            lambda layers, x: layers.max_pool(x, 2, 2),
            pools=True,
        ),
        Case("MLP 784-500-10, batch 1", ((1, 784),), _mlp, _MLP),
        Case("MLP 784-500-10, batch 64", ((64, 784),), _mlp, _MLP),
        Case("CNN on 28x28, batch 16", ((16, 1, 28, 28),), _cnn, _CNN, pools=True),
        Case(
            "ResNet-18 on 64x64",
            ((1, 3, 64, 64),),
            _resnet18,
            dict(_resnet18_parameters()),
            pools=True,
        ),
    )
}


def drawn_inputs(case: Case) -> list[Array]:
    """Draw the inputs, the same in every process."""
    generator = np.random.default_rng(1)
    return [generator.standard_normal(shape, np.float32) for shape in case.inputs]


def drawn_parameters(case: Case) -> dict[str, Array]:
    """Draw the parameters, so that values keep their size from layer to layer."""
    generator = np.random.default_rng(2)
    drawn = {}
    for name, shape in case.parameters.items():
        # A second convolution of a block adds to what went around it: smaller, or the sums grow.
        scale = 0.5 if name.endswith("_conv2_weight") else 1.4
        fan_in = int(np.prod(shape[1:])) or 1
        if name.endswith("_bias"):
            scale = 0.1
        drawn[name] = generator.standard_normal(shape, np.float32) * np.float32(scale / fan_in**0.5)
    return drawn
