"""What is recorded replays as the function itself would run, with other values and other sizes."""

from __future__ import annotations

import collections
import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from syft.exceptions import FrozenPath
from syft.program.lowered import Lowered
from syft.program.recording.record import record

from tests.program.replaying import agrees, assert_unchanged, recorded, replay, snapshot, tensors

HELD = torch.tensor([0.5, -1.0, 2.0])
"""A tensor that functions here take from outside."""


def factories(x: torch.Tensor) -> Any:
    rows = x.shape[0]
    made = torch.zeros(rows, 3) + torch.ones(3) + torch.full((rows, 1), 0.5)
    return x + made, torch.arange(rows), torch.eye(rows), torch.tensor([1.0, 2.0, 3.0]) * x


def in_place(x: torch.Tensor) -> Any:
    y = x * 1
    y.add_(1).mul_(2)
    y += x
    y -= 0.5
    torch.relu_(y)
    return y, x


def writes_to_input(x: torch.Tensor) -> Any:
    x.mul_(2)
    return x


def writes_through_views(x: torch.Tensor) -> Any:
    y = torch.zeros_like(x)
    y[0] = x[-1]
    y[:, 1:2].add_(3)
    y.view(-1)[0] = 7
    flat = y.t()
    flat[0] += 1
    return y, flat


def output_arguments(x: torch.Tensor) -> Any:
    y = torch.empty(0)
    torch.add(x, 1, out=y)
    values, indices = torch.empty(0), torch.empty(0, dtype=torch.long)
    torch.sort(x, dim=0, out=(values, indices))
    return y, values, indices


def random_numbers(x: torch.Tensor) -> Any:
    noise = torch.randn(x.shape) + torch.rand_like(x)
    return F.dropout(x, 0.5) + noise, torch.randperm(5), torch.bernoulli(torch.full_like(x, 0.5))


def keywords(x: torch.Tensor) -> Any:
    return torch.clamp(input=x, min=torch.zeros(3), max=HELD.abs()), torch.sum(input=x, dim=0)


def nested_operands(x: torch.Tensor) -> Any:
    rows = torch.tensor([0, 1])
    stacked = torch.cat([x, torch.stack((x[0], x[1]))])
    return stacked[rows, 1:], stacked[..., None].shape, torch.einsum("ij,kj->ik", x, x)


def set_items(x: torch.Tensor) -> Any:
    y = x.clone()
    y[torch.tensor([0, 1]), torch.tensor([1, 2])] = torch.tensor([5.0, 6.0])
    y[x > 100] = 0
    y[:1, ::2] = x[:1, :1]
    return y


def several_results(x: torch.Tensor) -> Any:
    best = x.max(dim=1)
    top = torch.topk(x, 2)
    first, second = x[:2].unbind()
    parts = x.split([1, 2], dim=1)
    return best, best.values + 1, top.indices, first - second, parts[1], torch.var_mean(x)


def properties(x: torch.Tensor) -> Any:
    return x.T, x.mT + 1, x.data * 2, x.real, x.requires_grad, x.dtype, x.ndim, x.is_leaf


def setters(x: torch.Tensor) -> Any:
    y = torch.zeros(3)
    y.data = HELD
    y = y.clone()
    y.requires_grad = True
    (y * x).sum().backward()
    grad = y.grad
    y.grad = None
    assert y.grad is None
    (y * 2).sum().backward()
    return grad, y.grad


def gradients(x: torch.Tensor) -> Any:
    w = HELD.clone().requires_grad_()
    loss = (x * w).pow(2).sum()
    (grad,) = torch.autograd.grad(loss, w, create_graph=True)
    grad.sum().backward()
    return w.grad, grad.detach()


def modes(x: torch.Tensor) -> Any:
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 3
    c = x.detach() + 1
    return a, b, c, torch.is_grad_enabled()


def inference(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = x.detach() * 2
    return y.clone()


def autocast(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.T
        with torch.autocast("cpu", enabled=False):
            z = x @ x.T
    return y, z


def sizes(x: torch.Tensor) -> Any:
    rows, columns = x.shape
    mean = x.sum() / x.numel()
    flat = x.reshape(rows * columns)
    half = flat[: rows // 2]
    scale = rows**0.5 - 1 / x.size(0) + math.ceil(rows / 2) + math.floor(rows / 2)
    return mean * scale, half, x.view(x.size()[::-1]), divmod(rows, 2), -rows, abs(1 - rows)


def numbers_from_tensors(x: torch.Tensor) -> Any:
    total = x.sum().item()
    return x * (1 - 0.9**total), round(total, 2), total % 3


def operators(x: torch.Tensor) -> Any:
    y = x.abs() + 1
    return 1 - y, 2 / y, 2**y, y**2, y // 2, 7 % y, y == 1, y != x, y < 2, -y, ~(y > 1), abs(x)


def initialised(x: torch.Tensor) -> Any:
    w = torch.empty(3, 3)
    nn.init.xavier_uniform_(w)
    b = torch.empty(3)
    nn.init.constant_(b, 0.25)
    return x @ w + b


def conversions(x: torch.Tensor) -> Any:
    y = x.contiguous()
    z = x.to(torch.float32)
    w = x.float()
    z = z + 1
    kinds = x.type(torch.int32), x.type("torch.DoubleTensor"), x.type(dtype=torch.float32), x.type()
    return y + z + w, x.double(), x.to(HELD), x.expand(x.shape), y, kinds


def iteration(x: torch.Tensor) -> Any:
    first, second, third = x.T
    return first + second * third, torch.stack([column * 2 for column in x.T])


def structures(x: torch.Tensor) -> Any:
    return {"a": [x + 1, None], "b": ({"c": x * 2}, "text", 3)}


def nothing(x: torch.Tensor) -> Any:
    return x


BATCHED: list[Callable[..., Any]] = [
    factories, in_place, writes_to_input, writes_through_views, output_arguments, random_numbers,
    keywords, nested_operands, set_items, several_results, properties, setters, gradients, modes,
    inference, autocast, sizes, numbers_from_tensors, operators, initialised, conversions,
    iteration, structures, nothing,
]  # fmt: skip


@pytest.mark.parametrize("function", BATCHED, ids=lambda function: function.__name__)
def test_replay_is_the_function_at_other_sizes(function: Callable[..., Any]) -> None:
    one, two, three, four = tensors((2, 3), (2, 3), (5, 3), (3, 3))
    agrees(function, [one], [two], [three], [four])


@pytest.mark.parametrize(
    "function",
    [factories, nested_operands, several_results, modes, sizes, conversions, iteration],
    ids=lambda function: function.__name__,
)
def test_gradients_flow_through_a_replay(function: Callable[..., Any]) -> None:
    one, two, three = tensors((2, 3), (2, 3), (5, 3), grad=True)
    agrees(function, [one], [two], [three])


def test_a_value_of_another_kind_goes_the_other_way_round_a_conversion() -> None:
    recording = recorded(lambda x: (x.float().add_(1), x), torch.ones(2))
    x = torch.ones(2, dtype=torch.float64)
    result, same = replay(recording, x)
    assert result.dtype == torch.float32 and result.tolist() == [2, 2]
    assert same.tolist() == [1, 1]


def test_numbers_are_inputs() -> None:
    def function(x: torch.Tensor, n: int, rate: float) -> Any:
        return x * (rate / n), x.repeat(n), n + 1, torch.full((n,), rate)

    agrees(function, [torch.ones(2), 2, 0.5], [torch.ones(3), 5, 0.25], [torch.ones(1), 1, 2.5])


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)), (3, 4)),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Dropout(0.25), nn.Linear(27, 4),
        ),
        (2, 1, 8, 8),
    ),
    "lstm": (lambda: nn.LSTM(4, 3, num_layers=2, batch_first=True, dropout=0.2), (2, 5, 4)),
    "gru": (lambda: nn.GRU(4, 3, batch_first=True, bidirectional=True), (2, 5, 4)),
    "transformer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True), (2, 5, 8)
    ),
    "embedding_bag": (lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), (2, 4)),
    "instance_norm": (
        lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True), (2, 3, 4)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("training", [True, False])
def test_modules(name: str, training: bool) -> None:
    make, (_, *shape) = MODELS[name]
    torch.manual_seed(0)
    model = make().train(training)
    before = snapshot(model)
    one, two, three = tensors((2, *shape), (2, *shape), (5, *shape))
    recording = recorded(model, one)
    assert_unchanged(model, before)
    for x in (one, two, three):
        state = {key: value.clone() for key, value in model.state_dict().items()}
        torch.manual_seed(1)
        expected = model(x)
        after = {key: value.clone() for key, value in model.state_dict().items()}
        model.load_state_dict(state)
        torch.manual_seed(1)
        got = replay(recording, x)
        for mine, theirs in zip(_flat(got), _flat(expected), strict=True):
            torch.testing.assert_close(mine, theirs)
        assert all(torch.equal(model.state_dict()[key], value) for key, value in after.items())


def _flat(value: Any) -> list[torch.Tensor]:
    return (
        [value] if isinstance(value, torch.Tensor) else [leaf for v in value for leaf in _flat(v)]
    )


def test_attention() -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    one, two = tensors((2, 5, 8), (4, 3, 8))
    recording = recorded(lambda q: attention(q, q, q), one)
    torch.testing.assert_close(replay(recording, two), attention(two, two, two))


def test_state_comes_first_and_what_was_met_follows() -> None:
    weight, bias = torch.ones(3, requires_grad=True), torch.zeros(3)
    counter = torch.zeros(())

    def function(x: torch.Tensor) -> torch.Tensor:
        counter.add_(1)
        return x * weight + bias + HELD

    recording = record(function, [torch.ones(2, 3)], state=[bias])
    assert [id(tensor) for tensor in recording.captured] == [id(counter), id(weight)]
    program = recording.program
    assert (program.inputs, program.state, len(program.constants)) == (1, 3, 1)
    assert torch.equal(program.constants[0], HELD)
    assert counter.item() == 0
    values = [torch.ones(1, 3), torch.full((3,), 5.0), counter, weight]
    assert Lowered(program).run(values).tolist() == [[6.5, 5, 8]]
    assert counter.item() == 1


def test_a_program_in_a_program_is_recorded_inline() -> None:
    inner = recorded(sizes, tensors((2, 3))[0])
    lowered = Lowered(inner.program)
    agrees(lambda x: lowered.run([x + 1])[0] * 2, tensors((2, 3)), tensors((6, 3)))


def test_unused_sizes_are_not_kept() -> None:
    recording = recorded(lambda x: (x.shape, x + 1, x.size(0) * 2, x[0].item())[1], torch.ones(2))
    assert [action.name for action in recording.program.actions] == [
        "torch.Tensor.add",
        "torch.Tensor.__getitem__",
    ]


def test_each_action_names_its_line() -> None:
    recording = recorded(lambda x: nn.functional.relu(x), torch.ones(2))
    file, line = recording.program.lines[0].rsplit(":", 1)
    code = test_each_action_names_its_line.__code__
    assert file == __file__ and int(line) == code.co_firstlineno + 1


def test_traced_numbers_are_plain_afterwards() -> None:
    kept = []
    record(lambda x: kept.append(x.shape[0]) or x, [torch.ones(3)], check=False)
    assert kept[0] + 1 == 4 and type(kept[0] + 1) is int and (kept[0] > 2) is True
    assert bool(kept[0]) and hash(kept[0]) == hash(3)


def test_nothing_holds_on_to_what_was_recorded() -> None:
    held = []

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * x.shape[0]
        held.append(weakref.ref(y))
        return y + 1

    recording = record(function, [torch.ones(3)])
    assert [reference() for reference in held] == [None, None]
    del recording
    with pytest.raises(ZeroDivisionError):
        record(lambda x: function(x) / (1 // 0), [torch.ones(3)])
    assert held[-1]() is None


def test_everything_is_as_before_after_an_error() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    before, seed = snapshot(model), torch.get_rng_state()

    def function(x: torch.Tensor) -> None:
        model(x + torch.rand(3)).sum().backward()
        with torch.no_grad():
            model[0].weight.data = torch.zeros(5)
            model[0].bias.data.add_(1)
            model[0].bias.requires_grad_(False)
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        record(function, [torch.ones(4, 3)])
    assert_unchanged(model, before)
    assert model[0].bias.requires_grad and torch.equal(seed, torch.get_rng_state())


def test_a_graph_from_before_still_runs_backward() -> None:
    weight = torch.ones(3, requires_grad=True)
    loss = (weight * weight).sum()

    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            weight.add_(x)
        return weight * 1

    record(function, [torch.ones(3)])
    loss.backward()
    assert weight.grad is not None and weight.grad.tolist() == [2, 2, 2]


def test_fifty_operations_are_fifty_actions() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(25):
            x = torch.abs(x + 1)
        return x

    assert len(recorded(function, torch.ones(2)).program.actions) == 50


class Pair(list[Any]):
    """A list of a class of its own."""


def test_operands_and_results_in_containers_of_every_kind() -> None:
    lstm = nn.LSTM(3, 2)
    lengths = torch.tensor([3, 2])

    def function(x: torch.Tensor) -> Any:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths)
        output, _ = lstm(packed)
        return collections.OrderedDict(a=torch.cat(Pair([x, x])), b=Pair([x + 1])), output.data

    recording = record(function, tensors((3, 2, 3)), check=False)
    (x,) = tensors((3, 2, 3), seed=1)
    got, expected = replay(recording, x), function(x)
    assert torch.equal(got[1], expected[1])
    assert torch.equal(got[0]["a"], expected[0]["a"])


def test_answers_that_are_no_tensors() -> None:
    def function(x: torch.Tensor) -> Any:
        none = torch.autograd.grad(x.sum(), HELD.clone().requires_grad_(), allow_unused=True)
        return x == "text", x.sum().shape, none, torch.atleast_1d(x, x + 1), x.equal(x)

    (x,) = tensors((3,), grad=True)
    with pytest.warns(FrozenPath, match="torch.Tensor.equal"):
        recording = record(function, [x.abs().detach().requires_grad_()])
    result = replay(recording, torch.ones(3))
    assert result[:3] == (False, (), (None,)) and result[3][1].tolist() == [2, 2, 2]


def test_a_complex_number_is_frozen() -> None:
    with pytest.warns(FrozenPath, match="a complex number"):
        record(lambda x: x * x.sum().item(), [torch.ones(2, dtype=torch.complex64)])


def test_sparse_tensors_from_outside() -> None:
    held = torch.eye(3).to_sparse()
    recording = recorded(lambda x: torch.mm(held, x), torch.ones(3, 2))
    assert torch.equal(replay(recording, torch.full((3, 2), 2.0)), torch.full((3, 2), 2.0))


def test_tensors_of_inference_mode_are_put_back() -> None:
    with torch.inference_mode():
        held = torch.ones(3)

    def function(x: torch.Tensor) -> Any:
        with torch.inference_mode():
            held.add_(1)
        return x + held

    recording = recorded(function, torch.ones(3))
    assert held.tolist() == [1, 1, 1] and recording.captured[0] is held


def test_a_truth_is_a_plain_input() -> None:
    recording = recorded(lambda x, flip: -x if flip else x, torch.ones(2), True)
    assert replay(recording, torch.ones(2), False).tolist() == [-1, -1]


def test_a_number_of_another_recording_is_plain() -> None:
    kept: list[Any] = []
    record(lambda x: kept.append(x.shape[0]) or x, [torch.ones(3)], check=False)
    recording = recorded(lambda x: torch.add(x, kept[0]), torch.ones(2))
    assert recording.program.actions[0].args[1] == 3


def test_numbers_of_numpy_are_numbers() -> None:
    recording = recorded(lambda x: torch.mul(x, np.float64(2)), torch.ones(2))
    assert replay(recording, torch.full((2,), 3.0)).tolist() == [6, 6]


def test_arithmetic_on_the_same_numbers_is_recorded_once() -> None:
    """Zero has a sign, and a comparison no slot before it is an operand."""

    def scaled(x: Any, a: float, b: float) -> Any:
        once = [x * (1 - a) for _ in range(3)] + [x * (1.0 - a)]
        zeros = [x + a * 0.0, x + a * -0.0]
        compared = [x + ((a > 1) + 1), x + ((b > 1) + 1)]
        return torch.stack(once + zeros + compared)

    x = torch.full((2,), -0.0)
    program = record(scaled, [x, 2.0, 0.5]).program
    assert [action.name for action in program.actions].count("syft.ops.numbers.sub") == 2
    for numbers in ((2.0, 0.5), (-3.0, 4.0)):
        got, expected = Lowered(program).run([x, *numbers]), scaled(x, *numbers)
        assert torch.equal(got, expected) and torch.equal(got.signbit(), expected.signbit())
