"""Recurrent layers with checks of the sizes of their operands.

Torch makes these checks in the Python code of ``torch.nn.LSTM``, ``GRU`` and ``RNN``.  A command or
a program calls ``torch.lstm`` itself, which makes none.  Its kernels then read and write past the
memory of their operands (torch 2.13: hidden states of another batch, weights of another size,
lengths that do not fit the data).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.ops.nested import every_tensor, replace
from syft.workers.labels.walk import innermost

_OPTIONS = ("params", "has_biases", "num_layers", "dropout", "train", "bidirectional")
_PADDED = ("input", "hx", *_OPTIONS, "batch_first")
_PACKED = ("data", "batch_sizes", "hx", *_OPTIONS)
_CELL = ("input", "hx", "w_ih", "w_hh", "b_ih", "b_hh")

Given = dict[str, Any]
Layer = Callable[..., Any]


def layer(function: Layer, gates: int) -> Layer:
    """A recurrent layer that checks its operands; ``gates`` is 4 for an LSTM, 3 for a GRU, else 1.

    >>> lstm = layer(torch.lstm, 4)
    >>> weights = [torch.ones(8, 3), torch.ones(8, 2)]
    >>> hidden = [torch.zeros(1, 5, 2)] * 2
    >>> lstm(torch.ones(1, 4, 3), hidden, weights, False, 1, 0.0, False, False, False)
    Traceback (most recent call last):
    ...
    RuntimeError: Expected hidden[0] size (1, 4, 2), got [1, 5, 2]
    """

    kinds: dict[str, Any] = {
        **dict.fromkeys(("input", "data", "batch_sizes", "hx"), torch.Tensor),
        **dict.fromkeys(("params", "hx") if gates == 4 else ("params",), (list, tuple)),
        "num_layers": int,
    }

    def call(*args: Any, **kwargs: Any) -> Any:
        for names in (_PADDED, _PACKED):
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            is_whole = len(args) + len(kwargs) == len(names) and given.keys() == frozenset(names)
            if is_whole and all(isinstance(given[name], kinds.get(name, object)) for name in names):
                _check_here(_check_layer, given, gates)
                return function(*args, **kwargs)
        raise TypeError(f"{function.__name__}() received an invalid combination of arguments")

    return call


def cell(function: Layer, gates: int) -> Layer:
    """One step of a recurrent layer that checks its operands in the same way.

    >>> step = cell(torch.gru_cell, 3)
    >>> step(torch.ones(1, 3), torch.zeros(2, 2), torch.ones(6, 3), torch.ones(6, 2))
    Traceback (most recent call last):
    ...
    RuntimeError: Expected hidden size (1, 2), got [2, 2]
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        _check_here(_check_cell, {**dict(zip(_CELL, args, strict=False)), **kwargs}, gates)
        return function(*args, **kwargs)

    return call


# ---------------------------------------------------------------------------------------- checks


def _check_here(check: Callable[[Given, int], None], given: Given, gates: int) -> None:
    """Check operands, chains as their innermost tensors; not those of which one is remote."""

    def inside(leaf: Any) -> Any:
        return innermost(leaf) if isinstance(leaf, torch.Tensor) else leaf

    if all(innermost(tensor) is not None for tensor in every_tensor(given)):
        check(replace(given, inside), gates)


def _check_layer(given: Given, gates: int) -> None:
    """Raise the errors of ``torch.nn`` for operands whose sizes do not match."""
    weights, layers = given["params"], given["num_layers"]
    if layers < 1:
        raise ValueError("num_layers must be greater than zero")
    directions = 2 if given["bidirectional"] else 1
    data, batch = _data(given)
    out, hidden = _widths(weights, gates)
    _check_states(given["hx"], gates, *((layers * directions, batch, n) for n in (out, hidden)))
    first = _sizes(gates, hidden, out, given["has_biases"], data.shape[-1])
    later = _sizes(gates, hidden, out, given["has_biases"], out * directions)
    sizes = first * directions + later * directions * (layers - 1)
    if len(weights) != len(sizes):
        raise RuntimeError(f"Expected {len(sizes)} weights, got {len(weights)}")
    _expect_weights(weights, sizes)


def _widths(weights: Any, gates: int) -> tuple[int, int]:
    """The widths of the hidden state and of the cells, read from the second weight."""
    second = weights[1] if len(weights) > 1 else None
    if not isinstance(second, torch.Tensor) or second.ndim != 2:
        raise RuntimeError("Expected at least two matrices as weights")
    rows, out = second.shape
    return out, rows // gates if gates == 4 else out


def _data(given: Given) -> tuple[torch.Tensor, int]:
    """The data of the sequences, and the number of sequences."""
    lengths = given.get("batch_sizes")
    data: torch.Tensor = given["input" if lengths is None else "data"]
    kind, dimensions = ("input", 3) if lengths is None else ("packed input", 2)
    if data.ndim != dimensions:
        raise ValueError(f"RNN: Expected {kind} to be {dimensions}D, got {data.ndim}D instead")
    if lengths is None:
        return data, data.shape[0 if given["batch_first"] else 1]
    return data, _largest_batch(lengths, data)


def _largest_batch(lengths: torch.Tensor, data: torch.Tensor) -> int:
    """The number of sequences at the first step of packed ones."""
    if lengths.ndim != 1 or lengths.dtype is not torch.int64 or not len(lengths):
        raise ValueError("batch_sizes should be a 1D tensor of int64 with an element a step")
    sizes = lengths.tolist()
    if sizes[-1] < 1 or sizes != sorted(sizes, reverse=True) or sum(sizes) != len(data):
        raise ValueError("batch_sizes should not increase, and add up to the length of the data")
    return int(sizes[0])


def _check_states(hx: Any, gates: int, *sizes: tuple[int, ...]) -> None:
    """The hidden state has the first size, and the cell state of an LSTM the second."""
    if gates != 4:
        return _expect("Expected hidden size", hx, sizes[0])
    if not isinstance(hx, (list, tuple)) or len(hx) != 2:
        raise RuntimeError("lstm expects two hidden states")
    for index, (state, size) in enumerate(zip(hx, sizes, strict=True)):
        _expect(f"Expected hidden[{index}] size", state, size)


def _sizes(gates: int, hidden: int, out: int, biases: bool, width: int) -> list[tuple[int, ...]]:
    """The sizes of the weights of one direction of one layer."""
    rows = gates * hidden
    sizes: list[tuple[int, ...]] = [(rows, width), (rows, out)]
    if biases:
        sizes += [(rows,), (rows,)]
    return sizes if out == hidden else [*sizes, (out, hidden)]


def _check_cell(given: Given, gates: int) -> None:
    data, weights = given.get("input"), [given.get(name) for name in _CELL[2:]]
    if not isinstance(data, torch.Tensor) or data.ndim != 2:
        raise ValueError("RNNCell: Expected input to be a 2D tensor")
    width, _ = _widths(weights, gates)
    _check_states(given.get("hx"), gates, *[(data.shape[0], width)] * 2)
    _expect_weights(weights, _sizes(gates, width, width, True, data.shape[1]), 2)


def _expect_weights(weights: Any, sizes: list[tuple[int, ...]], needed: int | None = None) -> None:
    """Of ``needed`` weights, and of others that are given, or of all."""
    for index, (weight, size) in enumerate(zip(weights, sizes, strict=True)):
        if weight is not None or needed is None or index < needed:
            _expect(f"Expected weight {index} of size", weight, size)


def _expect(what: str, tensor: Any, size: tuple[int, ...]) -> None:
    got = list(tensor.shape) if isinstance(tensor, torch.Tensor) else tensor
    if got != list(size):
        raise RuntimeError(f"{what} {size}, got {got}")
