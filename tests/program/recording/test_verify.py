"""What a recording cannot keep is refused, or warned about, by name and line."""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import syft as sy
from syft.exceptions import CannotRecord, FrozenPath
from syft.program.recording.record import record
from syft.program.recording.tracer import Tracer

from tests.program.replaying import assert_unchanged, recorded, replay, snapshot

X = torch.tensor([[1.0, 2.0, 3.0], [-4.0, 5.0, 6.0]])


class Doubled(torch.autograd.Function):
    """A derivative of the user's own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad * 2


def seeded(x: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(3)
    return x + torch.rand(3)


def seeded_at_the_end(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    torch.manual_seed(3)
    return y


def seeded_within(x: torch.Tensor) -> torch.Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return x + torch.rand(3)


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    SCRIPTED = torch.jit.script(torch.nn.functional.relu)


def write_unseen(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    with torch._C.DisableTorchFunction():
        y.add_(1)
    return y


def swallowing(x: torch.Tensor) -> torch.Tensor:
    with contextlib.suppress(CannotRecord):
        torch.Tensor(2)
    return x + 1


def swallowing_numpy(x: torch.Tensor) -> torch.Tensor:
    with contextlib.suppress(CannotRecord):
        x.numpy()
    return x + 1


class Keeping:
    """Keeps a tensor from one call to the next."""

    def __init__(self) -> None:
        self.last = torch.zeros(3)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.last = self.last + x.sum()
        return self.last


LEAF = torch.ones(3, requires_grad=True)
LINEAR = nn.Linear(3, 1)
COUNT = itertools.count()
DEEPCOPY = "torch.Tensor.__deepcopy__"
UNSEEN = "a tensor that is made where torch shows nothing of it"
HOOKED = torch.ones(3, requires_grad=True)
HOOKED.register_hook(lambda grad: grad * 2)


class OfTheirOwn(torch.Tensor):
    """A kind of tensor that neither torch nor syft knows."""


OWN = torch.ones(3).as_subclass(OfTheirOwn)
DRAWN = np.random.default_rng(0)
LARGE = np.ones(1 << 18)
ROWS = np.array([1, 0])

REFUSED: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "numpy": (lambda x: x.numpy(), "torch.Tensor.numpy"),
    "asarray": (lambda x: np.asarray(x), "torch.Tensor.__array__"),
    "from_numpy": (lambda x: x + torch.from_numpy(np.random.rand(3)), "a tensor that is made"),
    "array": (lambda x: x[np.array(["a"])], "an array of <U1"),
    "array_of_values": (lambda x: x + torch.as_tensor(DRAWN.random(3)), "a tensor that is made"),
    "written_array": (lambda x: torch.from_numpy(np.ones(3)).add_(x[0]), "a tensor that is made"),
    "trained": (lambda x: x * torch.Tensor([1.0]).requires_grad_(), f"{UNSEEN}, and then"),
    "counted": (lambda x, calls=[]: (calls.append(0), x + torch.Tensor([len(calls)])), "a tensor"),
    "large": (lambda x: x.sum() + torch.from_numpy(LARGE).sum(), "a tensor that is made"),
    "legacy_size": (lambda x: x + torch.Tensor(2, 3).fill_(1), "aten.empty.memory_format, which"),
    "unused": (lambda x: (torch.Tensor(2), x)[1], "aten.empty.memory_format, which ran"),
    "script": (SCRIPTED, "aten.relu.default, which ran"),
    "write": (write_unseen, "aten.add_.Tensor, which ran"),
    "swallowed": (swallowing, "aten.empty.memory_format, which ran"),
    "swallowed_too": (swallowing_numpy, "torch.Tensor.numpy"),
    "hook": (lambda x: x.register_hook(print), "torch.Tensor.register_hook"),
    "nested": (
        lambda x: torch.nested.nested_tensor([x, x]).to_padded_tensor(0.0),
        "a nested tensor",
    ),
    "kind": (lambda x: x + OWN, "a tensor of the class OfTheirOwn"),
    "hooked": (lambda x: x + HOOKED, "a tensor with a backward hook"),
    "function": (lambda x: Doubled.apply(x), "torch.autograd.Function"),
    "seed": (seeded, "torch.manual_seed"),
    "seed_at_the_end": (seeded_at_the_end, "torch.manual_seed"),
    "seed_within": (seeded_within, "torch.manual_seed"),
    "graph": (lambda x, w=LEAF * 2: x + w, "a tensor that was computed outside with a gradient"),
    "keeping": (Keeping(), "a tensor that the function keeps from one call to the next"),
    "deepcopy": (lambda x: copy.deepcopy([x, x[0]]), f"{DEEPCOPY} of tensors that share memory"),
    "deepcopy_of_a_leaf": (
        lambda x: copy.deepcopy(x.requires_grad_()),
        f"{DEEPCOPY} of a tensor that requires grad",
    ),
    "deepcopy_expanded": (
        lambda x: copy.deepcopy(x[:1].expand(4, 3)).add_(1),
        f"{DEEPCOPY} of a tensor whose elements share memory",
    ),
    "deepcopy_overlapping": (
        lambda x: copy.deepcopy(x.as_strided((2, 2), (1, 1))),
        f"{DEEPCOPY} of a tensor whose elements share memory",
    ),
    "deepcopy_of_a_module": (
        lambda x: copy.deepcopy(LINEAR)(x),
        "a parameter that the function makes",
    ),
    "differing": (lambda x: x + torch.Tensor([next(COUNT)]), f"{UNSEEN}, and differs between two"),
    "larger": (lambda x: torch.from_numpy(np.ones(1 << 18)), f"{UNSEEN}, of more than a megabyte"),
    "written": (lambda x: x + torch.Tensor([1.0]).add_(1), f"{UNSEEN}, and then written to or"),
    "vmap": (lambda x: torch.vmap(torch.neg)(x), "a torch.func transform"),
    "unknown": (lambda x: torch.ops.aten.add(x, x), "torch.ops.aten.add"),
    "apply": (lambda x: x.apply_(lambda v: v + 1), "torch.Tensor.apply_"),
    "object": (lambda x: (x, object()), "an operand of the type builtins.object"),
    "parameter": (lambda x: nn.Linear(3, 3)(x), "a parameter that the function makes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name_and_line(name: str) -> None:
    function, what = REFUSED[name]
    before = X.clone(), X._version
    with pytest.raises(CannotRecord) as caught:
        record(function, [X])
    assert caught.value.what.startswith(what)
    assert re.fullmatch(rf"(before )?{re.escape(__file__)}:\d+", caught.value.line)
    assert torch.equal(X, before[0]) and X._version == before[1]


MADE: dict[str, Callable[[torch.Tensor], Any]] = {
    "from_numpy": lambda x: x + torch.from_numpy(np.ones(3)),
    "array": lambda x: x * torch.as_tensor(np.arange(3.0)),
    "copy": lambda x: x * torch.tensor(np.arange(3), dtype=torch.float64),
    "size": lambda x: x + torch.from_numpy(np.ones(x.shape[1])),
    "index": lambda x: x[ROWS],
    "mask": lambda x: x[np.array([False, True])],
    "legacy": lambda x: x + torch.Tensor([1.0, 2.0, 3.0]),
    "legacy_kind": lambda x: x.long() + torch.LongTensor([1]),
    "unused": lambda x: (torch.Tensor([1.0]), x)[1],
    "result": lambda x: torch.Tensor([1.0]),
    "view": lambda x: torch.Tensor([1.0, 2.0])[1:],
    "nan": lambda x: x + torch.Tensor([math.nan, 2.0, 3.0]),
    "branch": lambda x: sy.cond(
        x.sum() > 0, lambda x: x * torch.from_numpy(np.ones(3)), lambda x: x.double(), x
    ),
    "deepcopy": lambda x: copy.deepcopy({"a": x, "b": [x, x * 2]})["b"][1],
    "deepcopy_turned": lambda x: copy.deepcopy(x.t()[::2]),
}
"""What makes tensors of numbers where torch shows nothing of it, and what copies them."""


@pytest.mark.parametrize("name", MADE)
def test_constants_are_made_anew_by_each_call(name: str) -> None:
    recording = recorded(MADE[name], X)
    for _ in range(2):
        result = replay(recording, -X)
        torch.testing.assert_close(result, MADE[name](-X), equal_nan=True)
        result.zero_()  # it belongs to the caller


def test_an_array_that_was_written_to_is_another_constant() -> None:
    rows = np.array([1, 0])
    plan = sy.func2plan(args_shape=[(2, 3)])(lambda x: x[rows])
    assert torch.equal(plan(X), X.flip(0))
    rows[:] = 1
    assert not plan.is_built
    assert torch.equal(plan(X), X[[1, 1]])


def test_a_copy_is_recorded_of_what_requires_no_grad() -> None:
    plan = sy.func2plan(args_shape=[(2, 3)])(lambda x: copy.deepcopy(x))
    with pytest.raises(CannotRecord, match="__deepcopy__"):
        plan(X.clone().requires_grad_())


def test_a_remote_tensor_is_refused(bob: sy.VirtualWorker) -> None:
    pointers = [torch.ones(3).send(bob)]
    with pytest.raises(CannotRecord, match="torch.Tensor.add of a pointer to worker 'bob'"):
        record(lambda x: x + pointers[0], [X])
    pointers.clear()


def test_a_warning_made_an_error_leaves_all_as_it_was() -> None:
    model = nn.BatchNorm1d(3)
    before = snapshot(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(FrozenPath):
            record(lambda x: model(x) if x.sum() > 0 else x, [X])
    assert_unchanged(model, before)


def test_a_function_that_takes_one_size_only_is_recorded_at_that() -> None:
    weight = torch.ones(3, 2)
    recording = recorded(lambda x: x @ weight, torch.ones(3))
    assert replay(recording, torch.full((3,), 2.0)).tolist() == [6, 6]


def test_a_function_that_can_run_once_only_is_believed() -> None:
    left = [torch.ones(3)]
    recording = recorded(lambda x: x + left.pop(), torch.ones(3))
    assert replay(recording, torch.zeros(3)).tolist() == [1, 1, 1]


def test_without_the_check_only_the_first_run_counts() -> None:
    recording = record(lambda x: x + torch.Tensor([1.0]), [torch.ones(3)], check=False)
    assert replay(recording, torch.zeros(2)).tolist() == [1, 1]


@pytest.mark.parametrize("name", ["RAdam", "ASGD", "Adafactor", "LBFGS"])
def test_optimizers_that_decide_by_values_are_refused(name: str) -> None:
    model = nn.Linear(3, 1)
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(X).pow(2).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    with pytest.raises(CannotRecord, match=f"torch.optim.{name}") as caught:
        record(lambda x: optimizer.step(closure), [X])
    assert "decides by the value" in caught.value.instead


def test_an_optimizer_before_its_first_step_is_refused() -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters())

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    with pytest.raises(CannotRecord, match="take one step first"):
        record(step, [X])


class Rooted(torch.optim.Optimizer):
    """Computes with a step count in a way that nobody sees."""

    def step(self, closure: Any = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            state.setdefault("step", torch.zeros(())).add_(1)
            with torch.no_grad():
                parameter.sub_(parameter.grad, alpha=1 / math.sqrt(state["step"].item() ** 1.0))


def test_an_optimizer_that_computes_unseen_is_refused() -> None:
    model = nn.Linear(3, 1)
    optimizer = Rooted(model.parameters(), {})

    def step(x: torch.Tensor) -> None:
        model(x).sum().backward()
        optimizer.step()

    step(X)
    with pytest.raises(CannotRecord, match="decides by the value of a tensor") as caught:
        record(step, [X])
    assert caught.value.what.endswith("Rooted")


def test_what_only_the_second_run_shows_is_refused() -> None:
    runs: list[int] = []

    def function(x: torch.Tensor) -> Any:
        runs.append(1)
        return x + 1 if len(runs) == 1 else x.numpy()

    with pytest.raises(CannotRecord, match="torch.Tensor.numpy"):
        record(function, [X])


def test_a_write_that_torch_does_not_show_is_refused() -> None:
    held = torch.ones(3)

    def function(x: torch.Tensor) -> Any:
        y = x + held
        with torch._C.DisableTorchFunction():
            held.add_(1)
        return y

    with pytest.raises(CannotRecord, match="something wrote to unseen"):
        record(function, [X])
    assert held.tolist() == [1, 1, 1]


def test_a_function_without_a_hash_is_unknown() -> None:
    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self) -> None:
            """Do nothing."""

    with pytest.raises(CannotRecord, match="it has no number"):
        Tracer().__torch_function__(Unhashable(), ())


def test_constants_of_other_kinds_differ() -> None:
    runs: list[int] = []

    def function(x: torch.Tensor) -> Any:
        runs.append(1)
        return torch.sum(x, dim=0 if len(runs) == 1 else (0,))

    with pytest.warns(FrozenPath, match="a number that Python computed"):
        record(function, [X])
