"""What torch's recurrent kernels would follow out of their memory is refused before they run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import FrozenPath, OperationRefused, OtherPath
from syft.ops.table import BY_NAME
from syft.program.recording.operation_tracer import OperationTracer
from syft.workers.hardening.precautions import RUNNABLE
from syft.workers.hardening.recurrent import cell, layer

STEPS, BATCH, WIDTH, HIDDEN = 3, 4, 5, 6
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
MODULES = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn_tanh": nn.RNN, "rnn_relu": nn.RNN}
LENGTHS = [4, 4, 2]


class Reached(Exception):
    """The kernel would have run."""


def kernel(*args: Any, **kwargs: Any) -> Any:
    """Stands for a kernel of torch."""
    raise Reached


def operands(
    name: str, layers: int = 1, biases: bool = True, both: bool = False, packed: bool = False
) -> list[Any]:
    """Operands of a recurrent layer that fit one another."""
    torch.manual_seed(3)
    kind: Any = MODULES[name]
    module = kind(WIDTH, HIDDEN, layers, bias=biases, bidirectional=both)
    weights = [weight.detach() for weight in module._flat_weights]
    state = torch.randn(layers * (2 if both else 1), BATCH, HIDDEN)
    hx = [state, state + 1] if name == "lstm" else state
    options = [weights, biases, layers, 0.0, False, both]
    if packed:
        return [torch.randn(sum(LENGTHS), WIDTH), torch.tensor(LENGTHS), hx, *options]
    return [torch.randn(STEPS, BATCH, WIDTH), hx, *options, False]


FORMS = [
    {},
    {"layers": 2, "both": True},
    {"layers": 3, "biases": False},
    {"packed": True},
    {"packed": True, "layers": 2, "both": True},
]


def run(name: str, *args: Any, **kwargs: Any) -> Any:
    """What a worker calls."""
    function = RUNNABLE[BY_NAME[f"torch.{name}"]]
    assert function is not None
    return function(*args, **kwargs)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("name", GATES)
def test_what_fits_runs_as_in_torch(name: str, form: dict[str, Any]) -> None:
    args = operands(name, **form)
    expected = getattr(torch, name)(*args)
    for got, want in zip(run(name, *args), expected, strict=True):
        assert torch.equal(got, want)


def test_the_other_order_of_dimensions_and_keywords_are_those_of_torch() -> None:
    args = operands("lstm")
    data = args[0].transpose(0, 1)
    expected = torch.lstm(data, *args[1:-1], True)
    got = run("lstm", data, *args[1:-1], batch_first=True)
    assert all(map(torch.equal, got, expected))


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported:UserWarning")
def test_projections_are_those_of_torch() -> None:
    weights = [weight.detach() for weight in nn.LSTM(5, 7, 2, proj_size=6)._flat_weights]
    hx = [torch.randn(2, BATCH, 6), torch.randn(2, BATCH, 7)]
    args = [torch.randn(STEPS, BATCH, 5), hx, weights, True, 2, 0.0, False, False, False]
    expected = torch.lstm(*args)
    assert all(map(torch.equal, run("lstm", *args), expected))
    with pytest.raises(RuntimeError, match=r"Expected hidden\[1\] size \(2, 4, 7\), got \[2, 4, 6"):
        run("lstm", args[0], [hx[0], hx[0]], *args[2:])


def resized(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensor with one dimension shorter, longer or gone, or with one too many."""
    for dim, size in enumerate(tensor.shape):
        for other in {0, 1, size - 1, size + 1} - {size}:
            shape = [*tensor.shape[:dim], other, *tensor.shape[dim + 1 :]]
            yield tensor.new_zeros(shape)
    yield tensor.new_zeros(tensor.shape[1:])
    yield tensor.new_zeros((1, *tensor.shape))


def spoiled(args: list[Any]) -> Iterator[list[Any]]:
    """The operands with another size of one of the tensors in the lists, or fewer of these."""
    for place, value in enumerate(args):
        if isinstance(value, list):
            yield [*args[:place], value[:-1], *args[place + 1 :]]
            for index, tensor in enumerate(value):
                for other in resized(tensor):
                    changed = [*value[:index], other, *value[index + 1 :]]
                    yield [*args[:place], changed, *args[place + 1 :]]
        elif isinstance(value, torch.Tensor) and value.ndim > 1:
            for other in resized(value):
                if other.shape[1:] != value.shape[1:] or place:
                    yield [*args[:place], other, *args[place + 1 :]]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("name", GATES)
def test_sizes_that_do_not_fit_never_reach_the_kernel(name: str, form: dict[str, Any]) -> None:
    checked = layer(kernel, GATES[name])
    args = operands(name, **form)
    with pytest.raises(Reached):
        checked(*args)
    count = 0
    for wrong in spoiled(args):
        with pytest.raises((RuntimeError, ValueError)):
            checked(*wrong)
        count += 1
    assert count > 20


@pytest.mark.parametrize("name", GATES)
def test_numbers_that_do_not_fit_never_reach_the_kernel(name: str) -> None:
    checked = layer(kernel, GATES[name])
    data, hx, weights, biases, layers, *rest = operands(name)
    for wrong in (not biases, layers), (biases, layers + 1), (biases, 0), (biases, -1):
        with pytest.raises((RuntimeError, ValueError)):
            checked(data, hx, weights, *wrong, *rest)
    with pytest.raises((RuntimeError, ValueError)):
        checked(data, hx, weights, biases, layers, 0.0, False, True, False)
    with pytest.raises((RuntimeError, ValueError)):
        checked(data, hx, weights, biases, layers, 0.0, False, False, True)


@pytest.mark.parametrize(
    "lengths", [[], [0], [4, 4, 1], [4, 4, 3], [2, 4, 4], [5, 6, -1], [10], [4, 4, 2, 0], [-10]]
)
@pytest.mark.parametrize("name", GATES)
def test_lengths_that_do_not_fit_never_reach_the_kernel(name: str, lengths: list[int]) -> None:
    args = operands(name, packed=True)
    with pytest.raises((RuntimeError, ValueError)):
        layer(kernel, GATES[name])(args[0], torch.tensor(lengths, dtype=torch.int64), *args[2:])


def test_lengths_of_another_kind_never_reach_the_kernel() -> None:
    args = operands("gru", packed=True)
    for wrong in args[1].float(), args[1][None], args[1].int():
        with pytest.raises(ValueError, match="batch_sizes should be a 1D tensor of int64"):
            layer(kernel, 3)(args[0], wrong, *args[2:])


def test_the_words_are_those_of_torch() -> None:
    module, data = nn.LSTM(WIDTH, HIDDEN), torch.randn(STEPS, BATCH, WIDTH)
    good, bad = torch.zeros(1, BATCH, HIDDEN), torch.zeros(1, 2, HIDDEN)
    args = operands("lstm")
    for hx in [bad, good], [good, bad]:
        with pytest.raises(RuntimeError) as theirs:
            module(data, tuple(hx))
        with pytest.raises(RuntimeError) as ours:
            run("lstm", data, hx, *args[2:])
        assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("change", [{"params": torch.ones(2)}, {"hx": None}, {"num_layers": 1.5}])
def test_calls_that_torch_does_not_know_are_refused(change: dict[str, Any]) -> None:
    names = "input hx params has_biases num_layers dropout train bidirectional batch_first".split()
    given = {**dict(zip(names, operands("gru"), strict=True)), **change}
    for function in layer(kernel, 3), torch.gru:
        with pytest.raises(TypeError, match="invalid combination of arguments"):
            function(**given)
    with pytest.raises(TypeError, match="invalid combination of arguments"):
        layer(kernel, 3)(*operands("gru")[:-1])


CELL_KINDS = {"lstm_cell": 4, "gru_cell": 3, "rnn_tanh_cell": 1, "rnn_relu_cell": 1}


def cell_operands(name: str, biases: bool = True) -> list[Any]:
    """Operands of a recurrent cell that fit one another."""
    torch.manual_seed(4)
    rows = CELL_KINDS[name] * HIDDEN
    state = torch.randn(BATCH, HIDDEN)
    weights = [torch.randn(rows, WIDTH), torch.randn(rows, HIDDEN)]
    weights += [torch.randn(rows), torch.randn(rows)] if biases else []
    hx = [state, state + 1] if name == "lstm_cell" else state
    return [torch.randn(BATCH, WIDTH), hx, *weights]


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("name", CELL_KINDS)
def test_cells_are_checked_too(name: str, biases: bool) -> None:
    args = cell_operands(name, biases)
    expected, got = getattr(torch, name)(*args), run(name, *args)
    assert all(map(torch.equal, got, expected)) if name == "lstm_cell" else got.equal(expected)
    checked = cell(kernel, CELL_KINDS[name])
    for place, value in enumerate(args):
        if isinstance(value, torch.Tensor):
            for other in resized(value):
                with pytest.raises((RuntimeError, ValueError)):
                    checked(*args[:place], other, *args[place + 1 :])
    for hx in ([], [args[0]], None, [torch.ones(BATCH, HIDDEN), torch.ones(2, HIDDEN)]):
        with pytest.raises((RuntimeError, ValueError)):
            checked(args[0], hx, *args[2:])
    with pytest.raises((RuntimeError, ValueError)):
        checked(*args[:2])


def test_what_is_not_here_is_checked_where_it_is(bob: sy.VirtualWorker) -> None:
    args = operands("gru")
    pointers = [args[0].send(bob), args[1][:, :2].send(bob), [w.send(bob) for w in args[2]]]
    with pytest.raises(RuntimeError, match=r"Expected hidden size \(1, 4, 6\), got \[1, 2, 6\]"):
        layer(torch.gru, 3)(*pointers, *args[3:])
    pointers.clear()
    step = cell_operands("gru_cell")
    sent = [tensor.send(bob) for tensor in step]
    assert torch.equal(cell(torch.gru_cell, 3)(*sent).get(), torch.gru_cell(*step))


def test_kernels_that_are_parts_of_others_are_refused(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(bob)
    zeros = [0, 1, 1, True, False, False, False]
    with pytest.raises(OperationRefused, match="a part of torch.lstm and its like"):
        torch.mkldnn_rnn_layer(x, x, x, x, x, x, x, False, [], *zeros)


@pytest.mark.parametrize("name", GATES)
def test_a_plan_takes_another_batch_size_here_and_there(name: str, bob: sy.VirtualWorker) -> None:
    torch.manual_seed(5)
    kind: Any = MODULES[name]
    module = kind(WIDTH, HIDDEN, 2, bidirectional=True)
    plan = sy.func2plan(args_shape=[(STEPS, BATCH, WIDTH)])(lambda x: module(x)[0])
    pointer = plan.send(bob)
    for batch in (1, BATCH, 9):
        x = torch.randn(STEPS, batch, WIDTH)
        expected = module(x)[0]
        torch.testing.assert_close(plan(x), expected)
        torch.testing.assert_close(pointer(x.send(bob)).get(), expected)


def test_a_plan_checks_the_states_it_is_given_here_and_there(bob: sy.VirtualWorker) -> None:
    module = nn.LSTM(WIDTH, HIDDEN)
    state = torch.zeros(1, BATCH, HIDDEN)

    @sy.func2plan(args_shape=[(STEPS, BATCH, WIDTH), state.shape, state.shape])
    def plan(x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> Any:
        return module(x, (h, c))[0]

    wrong = torch.zeros(1, 2, HIDDEN)
    x = torch.ones(STEPS, BATCH, WIDTH)
    with pytest.raises(RuntimeError, match=r"Expected hidden\[1\] size"):
        plan(x, state, wrong)
    pointer, operands = plan.send(bob), [value.send(bob) for value in (x, wrong, state)]
    with pytest.raises(
        OtherPath, match="recorded for another answer to `2 == 4`"
    ):  # the module compares
        pointer(*operands)
    operands.clear()


@pytest.mark.parametrize("name", GATES)
def test_a_recording_calls_them_with_care(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan is recorded with other sizes of each input by itself, which a first state does not
    fit.  The function itself is called with what the user gave alone."""
    assert OperationTracer.checked[BY_NAME[f"torch.{name}"]] is RUNNABLE[BY_NAME[f"torch.{name}"]]
    steps, hidden, *rest = operands(name)
    given, rest[-1] = steps.transpose(0, 1), True  # rows are sequences, so a state is for as many
    states = hidden if isinstance(hidden, list) else [hidden]
    function, shapes = getattr(torch, name), []

    def run(x: torch.Tensor, *states: torch.Tensor) -> Any:
        return function(x, list(states) if name == "lstm" else states[0], *rest)

    checked = OperationTracer.checked[BY_NAME[f"torch.{name}"]]

    def watched(x: torch.Tensor, *args: Any) -> Any:
        shapes.append(tuple(x.shape))
        return checked(x, *args)

    monkeypatch.setitem(OperationTracer.checked, BY_NAME[f"torch.{name}"], watched)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FrozenPath)
        plan = sy.func2plan()(run)
        plan.build(given, *states)
    assert len(set(shapes)) > 1, "other sizes were tried, and none of them without a check"
    assert (BATCH, STEPS, WIDTH) in shapes, "and then these"
    for one, other in zip(plan(given, *states), run(given, *states), strict=True):
        assert torch.equal(one, other)
