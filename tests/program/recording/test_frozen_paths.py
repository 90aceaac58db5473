"""What Python decides by a size or a value is frozen in a program, and the user is told where."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from syft.exceptions import FrozenPath, OtherPath
from syft.program.lowered import Lowered
from syft.program.recording.record import record

from tests.program.replaying import recorded

X = torch.tensor([[1.0, 2.0, 3.0], [-4.0, 5.0, 6.0]])
LEAF = torch.ones(3, requires_grad=True)


def branch(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x * 2
    return -x


def only_three(x: torch.Tensor) -> torch.Tensor:
    assert x.shape[1] == 3
    return x * 2


class Counting:
    """Names its result by the number of the call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.calls += 1
        return {f"call {self.calls}": x}


AVERAGING = nn.BatchNorm1d(3, momentum=None)

NAMING = Counting()
CALLS = itertools.count()

FROZEN: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "branch": (branch, "torch.Tensor.__bool__"),
    "int": (lambda x: x + int(x[0, 0]), "torch.Tensor.__int__"),
    "float": (lambda x: x + float(x[0, 0]), "torch.Tensor.__float__"),
    "tolist": (lambda x: x + x.tolist()[0][0], "torch.Tensor.tolist"),
    "equal": (lambda x: x if torch.equal(x, x * 2) else x + 1, "torch.equal"),
    "item": (lambda x: x if x.sum().item() > 0 else -x, "a branch on a number"),
    "item_int": (lambda x: x + int(x.sum().item()), "int() of a number"),
    "item_root": (lambda x: x * math.sqrt(x.sum().item() ** 2), "float() of a number"),
    "mask": (lambda x: x if x[x > 0].shape[0] > 3 else -x, "a branch on a number"),
    "in_list": (lambda x: x if x.sum().item() in (8.0, 9.0) else -x, "a branch on a number"),
    "item_text": (lambda x: (x, f"{x.sum().item():.1f}")[0], "the text of a number"),
    "names": (NAMING, "a number or a name that Python made for the result"),
    "returned": (lambda x: (x, math.sqrt(x.sum().item() ** 2)), "float() of a number"),
    "every_other_call": (lambda x: x * 2 if next(CALLS) % 2 else -x, "which operations run"),
    "layer": (lambda x: AVERAGING(x), "torch.Tensor.__float__ inside BatchNorm1d decides"),
    "unique": (lambda x: x if x.unique().numel() else -x, "a branch on a number"),
}


@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_path_warns_and_names_the_line(name: str) -> None:
    function, what = FROZEN[name]
    with pytest.warns(FrozenPath) as caught:
        record(function, [X])
    warning = caught[0]
    assert warning.filename == __file__
    text = str(warning.message)
    assert text.startswith(f"{__file__}:{warning.lineno}: ") and what in text
    assert text.endswith("sy.cond and sy.while_loop keep both.")


def test_a_program_of_nothing_warns_once_of_the_decision_that_led_there() -> None:
    calls = itertools.count()

    def nothing_at_first(x: torch.Tensor) -> torch.Tensor:
        if bool(x) and not next(calls):
            return x
        return x + 1

    with pytest.warns(FrozenPath, match="torch.Tensor.__bool__ decides") as caught:
        recording = record(nothing_at_first, [torch.tensor(2.0)])
    assert len(caught) == 1 and recording.program.actions == ()


COLUMNS = torch.ones(3, 2)
LSTM = nn.LSTM(3, 2, batch_first=True)
ATTENTION = nn.MultiheadAttention(3, 1, batch_first=True)
CONVOLUTION = nn.Conv2d(1, 2, (1, 3))

QUIET: dict[str, Callable[[torch.Tensor], Any]] = {
    "columns": lambda x: x @ COLUMNS * (2 if x.shape[1] == 3 else 1),
    "root_of_columns": lambda x: x @ COLUMNS / math.sqrt(x.size(-1)),
    "fixed_by_weights": lambda x: x @ COLUMNS / math.sqrt((x @ COLUMNS).size(-1)),
    "view": lambda x: x.view(x.shape[0], -1) + x.shape[1],
    "mean": lambda x: x.sum() / x.shape[0] + x.size(1) ** 0.5,
    "unpacked": lambda x: [a + b + c for a, b, c in [x.unbind(1)]][0],
    "recurrent": lambda x: LSTM(x.view(1, x.shape[0], 3))[0],
    "attention": lambda x: ATTENTION(*[x.view(1, x.shape[0], 3)] * 3)[0],
    "convolution": lambda x: CONVOLUTION(x.view(1, 1, x.shape[0], 3)),
    "assertion": lambda x: nn.functional.cross_entropy(x, torch.zeros(x.shape[0]).long()),
    "weights": lambda x: x * len(LEAF),
    "format": lambda x: (x, f"{x.sum()}")[0],
    "not_a_number": lambda x: x.clamp(max=float("nan")),
}


@pytest.mark.parametrize("name", QUIET)
def test_what_does_not_vary_does_not_warn(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recorded(QUIET[name], X)


BY_SIZE: dict[str, Callable[[torch.Tensor], Any]] = {
    "length": lambda x: x * len(x),
    "size": lambda x: x if x.shape[0] > 10 else -x,
    "size_int": lambda x: x * int(x.shape[0] / 2),
    "size_hash": lambda x: x * {2: 1}.get(x.shape[0], 1),
    "loop": lambda x: [x + i for i in range(x.shape[0])][0],
    "rows": lambda x: [row * 2 for row in x][0],
    "columns": lambda x: x if x.shape[1] > 3 else -x,
    "root_of_columns": lambda x: x / math.sqrt(x.size(-1)),
    "columns_int": lambda x: x * int(x.shape[1] * 1.5),
    "columns_len": lambda x: x * len(x[0]),
    "parity": lambda x: x if x.shape[0] % 2 else -x,
    "columns_loop": lambda x: sum(x[:, i] for i in range(x.shape[1])),
    "columns_iterated": lambda x: sum(c for c in x.T),
    "even_rows": lambda x: x.reshape(-1, 2, 3) * int(x.shape[0]),
    "even_columns": lambda x: x[:, 1:].reshape(-1, 2) * int(x.shape[1]),
    "asserted": only_three,
    "nothing_at_first": lambda x: x if x.shape[0] == 2 else -x,
    "text": lambda x: ({f"n{x.shape[0]}": x}, str(x.shape[1]))[0],
    "square": lambda x: x.view(math.isqrt(x.numel() + 3), -1) @ torch.ones(2, 2),
    "begins_later": lambda x: sum([x] * (x.shape[0] - 2), x),
    "number_too": lambda x: x[[0, 1][x.shape[1] - 2]] * int(x.shape[0]),
}


@pytest.mark.parametrize("name", BY_SIZE)
def test_a_decision_by_a_size_is_expected_and_not_warned_of(name: str) -> None:
    function = BY_SIZE[name]
    lowered = Lowered(recorded(function, X).program)
    others = 0
    for rows, columns in ((2, 3), (3, 3), (2, 4), (4, 6), (1, 3), (1, 1), (0, 3), (12, 11)):
        x = torch.arange(float(rows * columns)).reshape(rows, columns)
        try:
            got = lowered.run([x])
        except OtherPath:
            others += 1
        except (RuntimeError, IndexError, ValueError) as error:
            with pytest.raises(type(error)):
                function(x)
        else:
            torch.testing.assert_close(got, function(x), rtol=0, atol=0)
    assert 0 < others < 8


def test_inputs_of_many_dimensions_end() -> None:
    runs = []

    def function(*given: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        if [value.shape for value in given] != [(2,) * 5] * 8:
            raise ValueError
        return given[0].sum() * 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        record(function, [torch.ones(2, 2, 2, 2, 2) for _ in range(8)])
    assert len(runs) == 26


@pytest.mark.parametrize(
    "names", ["dtype", "device", "dim", "layout", "requires_grad", "dtype device layout"]
)
def test_the_properties_that_a_function_reads_are_listed(names: str) -> None:
    functions: dict[str, list[Callable[[torch.Tensor], Any]]] = {
        "dtype": [
            lambda x: torch.zeros(3, dtype=x.dtype),
            lambda x: x if (x * 2).is_floating_point() else -x,
            lambda x: x if torch.is_complex(input=x) else -x,
        ],
        "device": [lambda x: torch.zeros(3, device=x.device), lambda x: x if x.is_cuda else -x],
        "dim": [lambda x: x.sum(tuple(range(1, x.ndim))), lambda x: x if x.dim() == 1 else -x],
        "layout": [lambda x: x if x.is_sparse else -x],
        "requires_grad": [lambda x: x if x.requires_grad else -x],
        "dtype device layout": [lambda x: torch.zeros(3).type(x.type())],
    }
    for function in functions[names]:
        assert record(function, [X]).fixed == set(names.split())


def test_properties_that_torch_reads_and_those_of_state_are_not_listed() -> None:
    layer = nn.Linear(3, 2)
    for function in (
        lambda x: layer(x).to(layer.weight.dtype),
        lambda x: LSTM(x.unsqueeze(0))[0],
        lambda x: torch.zeros_like(x) + x.new_zeros(3),
    ):
        assert record(function, [X]).fixed == frozenset()
