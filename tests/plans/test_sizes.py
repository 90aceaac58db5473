"""A plan at another size gives what its function gives there, or is refused by name."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, strategies
from torch import nn

import syft as sy
from syft.exceptions import OtherPath, WrongArguments
from syft.ops.nested import leaves, replace
from syft.plans.abstract_plan import MOST_RECORDINGS
from tests.chain.refusal import refusal

Tensor = Any


def loop(x: Tensor) -> Tensor:
    for i in range(x.shape[0]):
        x = x + i
    return x


def unpacked(x: Tensor) -> Tensor:
    rows, columns = x.shape
    return x * rows + columns


def checked(x: Tensor) -> Tensor:
    assert x.shape[1] == 2, f"two columns, and not {x.shape[1]}"
    return x * 2


def helper(x: Tensor) -> int:
    return 1 if len(x) > 3 else 2


def inside(x: Tensor) -> Tensor:
    hidden = torch.cat([x, x * 2]) + 1
    return sum(hidden[i] for i in range(hidden.shape[0] // 2))


def enumerated(x: Tensor) -> Tensor:
    for dim, size in enumerate(x.shape):
        x = x + dim if size > 2 else x * 3
    return x


def written(x: Tensor) -> Tensor:
    y = torch.zeros(1)
    y.add_(1)
    return y * (x * 2).shape[0] if (x * 2).shape[0] > 2 else y


FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "loop": loop,
    "unpacked": unpacked,
    "checked": checked,
    "helper": lambda x: x * helper(x),
    "inside": inside,
    "enumerated": enumerated,
    "written": written,
    "len": lambda x: x * len(x),
    "len_of_rows": lambda x: x * len(list(x)),
    "branch": lambda x: x if x.shape[0] > 3 else -x,
    "float": lambda x: x / float(x.shape[0] + 1),
    "int": lambda x: x * int(x.shape[0] / 2),
    "bool": lambda x: x + 1 if x.shape[0] else x.sum(),
    "text": lambda x: {f"rows {x.shape[0]}": x},
    "repr": lambda x: {repr(x.size()): x},
    "numel": lambda x: x + x.numel(),
    "size": lambda x: x.reshape(x.size(1), x.size(0)),
    "mean": lambda x: x.sum() / (x.shape[0] + 1),
    "arange": lambda x: torch.arange(x.shape[0]),
    "zeros": lambda x: torch.zeros(x.shape[0], 2) + x.sum(),
    "zeros_of_shape": lambda x: torch.zeros(x.shape),
    "zip": lambda x: sum((a * b for a, b in zip(x, x + 1, strict=True)), torch.zeros(())),
    "rows": lambda x: torch.stack([row * 2 for row in x] or [x]),
    "unbind": lambda x: x.unbind(1)[-1] * len(x.unbind()),
    "chunk": lambda x: [part + 1 for part in x.chunk(2)],
    "split": lambda x: [part.sum() for part in torch.split(x, 2)],
    "split_by_name": lambda x: [part.sum() for part in x.split(split_size=3, dim=1)],
    "tuple": lambda x: x * 2 if tuple(x.shape) == (3, 2) else x,
    "shape": lambda x: x * 2 if x.shape == (3, 2) else x,
    "in": lambda x: x * 2 if x.shape[0] in (1, 4) else x,
    "list": lambda x: x * sum([1] * x.shape[0]),
    "index": lambda x: x * [1, 2, 3, 4, 5, 6, 7][x.shape[0]],
    "hash": lambda x: x * {3: 5}.get(x.shape[0], 1),
    "max": lambda x: x * max(x.shape[0], 3) + min(x.shape),
    "root": lambda x: x / math.sqrt(x.shape[0] + 1),
    "isqrt": lambda x: x * math.isqrt(x.shape[0]),
    "prod": lambda x: x * math.prod(x.shape) + x.shape.numel(),
    "half": lambda x: sum([x] * (x.shape[0] // 4), x),
    "parity": lambda x: x if x.shape[0] % 2 else -x,
    "bits": lambda x: x * (x.shape[0] & 1),
    "bit_length": lambda x: x * x.shape[0].bit_length(),
    "reduce": lambda x: functools.reduce(torch.add, x.unbind(), torch.zeros(())),
    "product": lambda x: len(list(itertools.product(range(len(x)), repeat=2))) + x,
    "broadcast": lambda x: x + torch.ones(3, 1),
    "squeezed": lambda x: x.squeeze(),
    "branches": lambda x: sy.cond(
        x.sum() > 0, lambda x: x * len(x), lambda x: x - x.shape[0], x + 1
    ),
    "while": lambda x: sy.while_loop(lambda n, y: n < 2, lambda n, y: (n + 1, y * len(y)), 0, x),
    "closure": lambda x: (lambda: x * len(x))(),
    "argument": lambda x, n=2: [x + i for i in range(n)][-1],
}
SIZES = [(3, 2), (4, 2), (1, 2), (0, 2), (2, 2), (1, 1), (6, 5), (3, 1), (3, 2)]


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives with all that was at a worker, or the class of its error."""
    try:
        return replace(
            call(), lambda leaf: leaf.get() if type(leaf).__name__ == "Wrapper" else leaf
        )
    except (OtherPath, WrongArguments):
        return OtherPath
    except (RuntimeError, AssertionError, IndexError, ValueError) as error:
        return type(error)


def agree(got: Any, expected: Any) -> bool:
    if isinstance(got, type) or isinstance(expected, type):
        return got is expected
    if isinstance(expected, dict) and list(got) != list(expected):
        return False
    pairs = list(itertools.zip_longest(leaves(got), leaves(expected)))
    return all(
        torch.equal(one, other) if isinstance(other, torch.Tensor) else bool(one == other)
        for one, other in pairs
    )


def ones(rows: int, columns: int) -> Tensor:
    return torch.arange(float(rows * columns)).reshape(rows, columns) - 1


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::syft.exceptions.FrozenPath")
def test_at_every_size_a_plan_is_its_function(
    name: str, hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    function = FUNCTIONS[name]
    plan = sy.func2plan()(function)
    plan.build(ones(3, 2))
    pointer, fetched = plan.send(bob), plan.send(bob).get()
    for size in SIZES:
        x = ones(*size)
        expected = outcome(lambda: function(x))  # noqa: B023
        assert agree(outcome(lambda: plan(x)), expected), size  # noqa: B023
        for got in (
            outcome(lambda: pointer(x.send(bob))),  # noqa: B023
            outcome(lambda: fetched(x)),  # noqa: B023
        ):
            refused = got is OtherPath and size != (3, 2)
            assert refused or agree(got, expected) or isinstance(expected, type), (size, got)


@pytest.mark.parametrize("name", ["loop", "inside", "len_of_rows", "chunk", "half"])
def test_a_class_and_its_methods_too(name: str, hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    function = FUNCTIONS[name]

    class Net(sy.Plan):
        def forward(self, x: Tensor) -> Tensor:
            return function(x)

        @sy.method2plan
        def encode(self, x: Tensor) -> Tensor:
            return function(x)

    net = Net()
    for plan in (net, net.encode):
        plan.build(ones(3, 2))
        pointer = plan.send(bob)
        for size in SIZES:
            x = ones(*size)
            assert agree(outcome(lambda: plan(x)), outcome(lambda: function(x)))  # noqa: B023
            got = outcome(lambda: pointer(x.send(bob)))  # noqa: B023
            assert got is OtherPath or agree(got, function(x))


MODULES: dict[str, Callable[[], nn.Module]] = {
    "attention": lambda: nn.MultiheadAttention(4, 2, batch_first=True),
    "encoder": lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
    "lstm": lambda: nn.LSTM(4, 3, batch_first=True),
    "gru": lambda: nn.GRU(4, 3, 2),
    "adaptive": lambda: nn.Sequential(nn.AdaptiveAvgPool1d(2), nn.Flatten()),
    "norm": lambda: nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 2)),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_take_other_sizes_everywhere(
    name: str, hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    model = MODULES[name]().eval()

    def function(x: Tensor) -> Tensor:
        result = model(x, x, x) if name == "attention" else model(x)
        return result[0] if isinstance(result, tuple) else result

    plan = sy.func2plan()(function)
    plan.build(torch.ones(2, 3, 4))
    pointer = plan.send(bob)
    for size in [(2, 3, 4), (1, 3, 4), (5, 2, 4), (2, 1, 4)]:
        x = torch.randn(size)
        assert torch.equal(plan(x), function(x))
        assert torch.equal(pointer(x.send(bob)).get(), function(x))


def test_a_step_that_trains_goes_each_way() -> None:
    def step(model: nn.Module, optimizer: Any, x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = sum(model(row).pow(2).sum() for row in x) / float(len(x))
        loss.backward()
        optimizer.step()
        return loss.detach()

    results = []
    for planned in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5), nn.Linear(3, 1))
        pair = model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        call: Any = functools.partial(step, *pair)
        if planned:
            call = sy.func2plan(state=pair)(lambda x, state: step(*state.read(), x))
            call.build(ones(3, 2))
        torch.manual_seed(1)
        results.append([call(ones(rows, 2)) for rows in (3, 4, 1, 3, 4, 2)])
        results[-1] += model.state_dict().values()
    assert all(map(torch.equal, *results))


def test_nothing_has_run_where_a_call_is_refused(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    count = torch.zeros(1)

    @sy.func2plan(state=(count,))
    def counted(x: Tensor, state: Any) -> Tensor:
        state.read()[0].add_(1)
        return loop(x)

    counted.build(ones(3, 2))
    pointer = counted.send(bob)
    with pytest.raises(OtherPath, match="a size or number is 3, and now it is 4") as caught:
        pointer(ones(4, 2).send(bob))
    assert any("test_sizes.py" in note for note in caught.value.__notes__)
    del caught
    pointer(ones(3, 2).send(bob))
    assert pointer.state_dict()["state.0"].get() == 1


def test_recordings_are_bounded_and_found_again() -> None:
    plan = sy.func2plan()(loop)
    plan.build(ones(1, 2))
    for rows in range(1, MOST_RECORDINGS + 1):
        assert torch.equal(plan(ones(rows, 2)), loop(ones(rows, 2)))
    text = refusal(lambda: plan(ones(MOST_RECORDINGS + 1, 2)))
    assert f"one of its {MOST_RECORDINGS} recordings" in text and "plan.build" in text
    assert torch.equal(plan(ones(2, 2)), loop(ones(2, 2)))


def test_a_plan_inside_a_plan_goes_its_way() -> None:
    inner = sy.func2plan()(loop)
    inner.build(ones(3, 2))
    outer = sy.func2plan()(lambda x: inner(x) * 2)
    outer.build(ones(3, 2))
    for rows in (3, 4, 1, 3):
        assert torch.equal(outer(ones(rows, 2)), loop(ones(rows, 2)) * 2)


@given(strategies.sampled_from(sorted(FUNCTIONS)), *[strategies.integers(0, 6)] * 4)
@pytest.mark.filterwarnings("ignore::syft.exceptions.FrozenPath")
def test_recorded_at_any_size(name: str, rows: int, columns: int, more: int, wide: int) -> None:
    function, first = FUNCTIONS[name], ones(rows, columns)
    plan = sy.func2plan()(function)
    if isinstance(outcome(lambda: function(first)), type):
        return
    plan.build(first)
    for size in ((more, wide), (rows, columns), (more, columns)):
        x = ones(*size)
        expected = outcome(lambda: function(x))  # noqa: B023
        assert agree(outcome(lambda: plan(x)), expected), size  # noqa: B023
