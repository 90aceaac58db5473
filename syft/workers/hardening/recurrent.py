"""Recurrent layers with checks of the sizes of their operands.

Torch makes these checks in the Python code of ``torch.nn.LSTM``, ``GRU`` and ``RNN``.  A command or
a program calls ``torch.lstm`` itself, which makes none.  Its kernels then read and write past the
memory of their operands (torch 2.13: hidden states of another batch, weights of another size,
lengths that do not fit the data).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from syft.exceptions import OperationRefused
from syft.ops.nested import leaves, replace
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

    def call(*args: Any, **kwargs: Any) -> Any:
        given = _matched(args, kwargs, gates == 4)
        if given is None:
            raise TypeError(f"{function.__name__}() received an invalid combination of arguments")
        given = _inside(given)
        if given is not None:
            _check_layer(given, gates)
        return function(*args, **kwargs)

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
        given = _inside({**dict(zip(_CELL, args, strict=False)), **kwargs})
        if given is not None:
            _check_cell(given, gates)
        return function(*args, **kwargs)

    return call


def refused(function: Layer) -> Layer:
    """A function that raises OperationRefused in the place of a kernel without checks.

    >>> refused(torch.mkldnn_rnn_layer)()
    Traceback (most recent call last):
    ...
    syft.exceptions.OperationRefused: ...
    """

    def refuse(*args: Any, **kwargs: Any) -> Any:
        name = f"torch.{function.__name__}"
        raise OperationRefused(name, "it is a part of torch.lstm and its like: call one of these")

    return refuse


# -------------------------------------------------------------------------------------- operands


def _matched(args: Sequence[Any], kwargs: Given, two_states: bool) -> Given | None:
    """The operands by name, for padded or packed sequences; None if they match neither."""
    for names in (_PADDED, _PACKED):
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        is_whole = len(args) + len(kwargs) == len(names) and given.keys() == frozenset(names)
        if is_whole and _has_kinds(given, two_states):
            return given
    return None


def _has_kinds(given: Given, two_states: bool) -> bool:
    tensors = [value for name, value in given.items() if name in ("input", "data", "batch_sizes")]
    lists = [given["params"]]
    (lists if two_states else tensors).append(given["hx"])
    return (
        all(isinstance(value, torch.Tensor) for value in tensors)
        and all(isinstance(value, (list, tuple)) for value in lists)
        and isinstance(given["num_layers"], int)
    )


def _inside(given: Given) -> Given | None:
    """The operands with each chain replaced by its innermost tensor; None if one is remote."""

    def inside(leaf: Any) -> Any:
        return innermost(leaf) if isinstance(leaf, torch.Tensor) else leaf

    if any(isinstance(leaf, torch.Tensor) and innermost(leaf) is None for leaf in leaves(given)):
        return None
    found: Given = replace(given, inside)
    return found


# ---------------------------------------------------------------------------------------- checks


def _check_layer(given: Given, gates: int) -> None:
    """Raise the errors of ``torch.nn`` for operands whose sizes do not match."""
    weights, layers = given["params"], given["num_layers"]
    if layers < 1:
        raise ValueError("num_layers must be greater than zero")
    directions = 2 if given["bidirectional"] else 1
    data, batch = _data(given)
    out, hidden = _widths(weights, gates)
    states = _states(given["hx"], gates, 3)
    for (name, state), width in zip(states, (out, hidden), strict=False):
        _expect(f"Expected {name} size", state, (layers * directions, batch, width))
    first = _sizes(gates, hidden, out, given["has_biases"], data.shape[-1])
    later = _sizes(gates, hidden, out, given["has_biases"], out * directions)
    sizes = first * directions + later * directions * (layers - 1)
    if len(weights) != len(sizes):
        raise RuntimeError(f"Expected {len(sizes)} weights, got {len(weights)}")
    for index, (weight, size) in enumerate(zip(weights, sizes, strict=True)):
        _expect(f"Expected weight {index} of size", weight, size)


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
    if lengths is not None:
        return _packed_data(given["data"], lengths)
    data: torch.Tensor = given["input"]
    if data.ndim != 3:
        raise ValueError(f"RNN: Expected input to be 3D, got {data.ndim}D instead")
    return data, data.shape[0 if given["batch_first"] else 1]


def _packed_data(data: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, int]:
    if data.ndim != 2:
        raise ValueError(f"RNN: Expected packed input to be 2D, got {data.ndim}D instead")
    if lengths.ndim != 1 or lengths.dtype is not torch.int64 or not len(lengths):
        raise ValueError("batch_sizes should be a 1D tensor of int64 with an element a step")
    sizes = lengths.tolist()
    if sizes[-1] < 1 or sizes != sorted(sizes, reverse=True) or sum(sizes) != len(data):
        raise ValueError("batch_sizes should not increase, and add up to the length of the data")
    return data, sizes[0]


def _states(hx: Any, gates: int, dimensions: int) -> list[tuple[str, torch.Tensor]]:
    """The hidden state, and for an LSTM the cell state, each with its name in errors."""
    if gates != 4:
        states = [("hidden", hx)]
    elif isinstance(hx, (list, tuple)) and len(hx) == 2:
        states = [("hidden[0]", hx[0]), ("hidden[1]", hx[1])]
    else:
        raise RuntimeError("lstm expects two hidden states")
    for name, state in states:
        if not isinstance(state, torch.Tensor) or state.ndim != dimensions:
            raise RuntimeError(f"Expected {name} to be a tensor of {dimensions} dimensions")
    return states


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
    for name, state in _states(given.get("hx"), gates, 2):
        _expect(f"Expected {name} size", state, (data.shape[0], width))
    sizes = _sizes(gates, width, width, True, data.shape[1])
    for index, (weight, size) in enumerate(zip(weights, sizes, strict=True)):
        if weight is not None or index < 2:
            _expect(f"Expected weight {index} of size", weight, size)


def _expect(what: str, tensor: Any, size: tuple[int, ...]) -> None:
    got = list(tensor.shape) if isinstance(tensor, torch.Tensor) else tensor
    if got != list(size):
        raise RuntimeError(f"{what} {size}, got {got}")
