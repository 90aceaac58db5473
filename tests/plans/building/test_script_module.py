"""TorchScript, walked through in Python: the same numbers as in C++, and gradients too."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
from syft.exceptions import CannotRecord
from syft.plans.building.script_functions import DTYPES, called
from syft.plans.building.script_module import UnpackedScript, as_python

# torch.jit.trace says of each size check inside torch's own modules that it took one path.
pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0].flatten(1)


class Arithmetic(nn.Module):
    """Sizes, slices and what is made of them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, c = x.shape
        y = x.reshape(b * c // 2, 2).sum(1).reshape(b, -1)
        z = torch.cat([y, y * 2], 1)[:, 1:3]
        low, high = torch.split(z, 1, dim=1)
        z = torch.where(z > 0, z, torch.zeros_like(z)).softmax(-1) + low - high / (b + 1 - c)
        return (z + x.new_zeros(b, 2) + x[:, torch.tensor([0, 1])]).double()


class Control(nn.Module):
    """Branches, loops, lists and dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.names = ["a", "b"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = [x]
        for layer in self.layers:
            found.append(layer(found[len(found) - 1]))
        table = {"a": found[0], "b": found[2]}
        total = torch.zeros_like(x)
        for name in self.names:
            total = total + table[name]
        for turn in range(min(3, len(found))):
            if turn % 2 == 1 and not total.is_cuda:
                total = total * float(turn)
        first, *rest = (total, total + 1, total + 2) if x.dim() > 1 else (x, x, x)
        assert x.dtype == torch.float32, "a check, which is left out"
        return first + rest[0] * max(2, 1) + torch.ones(2, 4, device=x.device)[0:1]


class Activations(nn.Sequential):
    def __init__(self) -> None:
        kinds = (nn.GELU, nn.Tanh, nn.LeakyReLU, nn.SiLU, nn.ELU, nn.Hardtanh, nn.Softplus)
        inner = [nn.Linear(4, 4), nn.ReLU(inplace=True), *(kind() for kind in kinds)]
        super().__init__(*inner, nn.LogSigmoid(), nn.Linear(4, 2), nn.GLU())


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding="same"),
        nn.AdaptiveAvgPool2d(4),
        nn.GroupNorm(2, 2),
        nn.Upsample(scale_factor=2.0),
        nn.ConvTranspose2d(2, 1, 2),
        nn.AvgPool2d(2),
        nn.InstanceNorm2d(1, track_running_stats=True),
        nn.Dropout2d(0.5),
    )


def signals() -> nn.Module:
    return nn.Sequential(nn.Conv1d(2, 3, 2), nn.MaxPool1d(2), nn.BatchNorm1d(3), nn.PReLU())


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "attention": (Attention, lambda: torch.randn(2, 3, 4)),
    "arithmetic": (Arithmetic, lambda: torch.randn(2, 4)),
    "control": (Control, lambda: torch.randn(2, 4)),
    "activations": (Activations, lambda: torch.randn(3, 4)),
    "convolutions": (convolutions, lambda: torch.randn(2, 1, 6, 6)),
    "signals": (signals, lambda: torch.randn(2, 2, 12)),
}


@pytest.mark.parametrize("way", ["traced", "scripted"])
@pytest.mark.parametrize("name", CASES)
def test_the_same_results_and_gradients(name: str, way: str) -> None:
    torch.manual_seed(0)
    make, data = CASES[name]
    model, x = make(), data()
    script: Any = torch.jit.script(model)
    if way == "traced":
        script = torch.jit.trace(model, x, check_trace=False)  # type: ignore[no-untyped-call]
    unpacked = UnpackedScript(copy.deepcopy(script))
    assert list(unpacked.state_dict()) == list(script.state_dict())
    results = []
    for each in (unpacked, script):
        torch.manual_seed(1)
        leaf = x.clone().requires_grad_()
        result = each(leaf)
        result.sum().backward()
        gradients = [parameter.grad for parameter in each.parameters()]
        results.append([result, leaf.grad, *gradients, *each.buffers()])
    assert all(map(torch.equal, *results))


def test_an_unpacked_and_its_script_have_one_memory_and_a_copy_has_its_own() -> None:
    holder: Any = torch.jit.script(_Recurrent())
    unpacked = UnpackedScript(holder)
    x = torch.ones(1, 1, 2)
    other = copy.deepcopy(unpacked)
    with torch.no_grad():
        for parameter in unpacked.parameters():
            parameter.zero_()
    assert not holder(x).any() and not unpacked(x).any() and other(x).any()
    assert other.script is holder
    with pytest.raises(CannotRecord, match="a TorchScript ModuleList .its forward.: it has none"):
        UnpackedScript(torch.jit.script(nn.ModuleList([nn.Linear(2, 3)])))


class _Recurrent(nn.Module):
    """A module whose script keeps its weights in a list as well."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


class _WithStates(nn.Module):
    """A recurrent layer that gets its first state from the caller."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self, x: torch.Tensor, h: torch.Tensor | None = None, c: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if h is None:
            y, last = self.layer(x)
        else:
            y, last = self.layer(x, h)
        return y, last


class _WithBothStates(_WithStates):
    def forward(
        self, x: torch.Tensor, h: torch.Tensor | None = None, c: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if h is None or c is None:
            y, (last, cell) = self.layer(x)
        else:
            y, (last, cell) = self.layer(x, (h, c))
        return y, last + cell


def _gradients(module: nn.Module, call: Callable[..., Any], args: list[Any]) -> list[torch.Tensor]:
    """The results of a recurrent layer, and the gradients of all that went into it."""
    leaves = [arg.clone().requires_grad_() for arg in args]
    module.zero_grad()
    torch.manual_seed(3)
    results = _tensors(call(*leaves))
    sum((each * each.detach().cos()).sum() for each in results).backward()  # type: ignore
    found = [*results, *(leaf.grad for leaf in leaves), *(p.grad for p in module.parameters())]
    return [each.detach().clone() for each in found if each is not None]


def _tensors(found: Any) -> list[torch.Tensor]:
    if isinstance(found, torch.Tensor):
        return [found]
    return [tensor for each in found for tensor in _tensors(each)]


@pytest.mark.parametrize("settings", [{}, {"num_layers": 2, "dropout": 0.5, "bidirectional": True}])
@pytest.mark.parametrize("given", [False, True], ids=["", "given_state"])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("inside", [False, True], ids=["bare", "inside"])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_script_of_a_recurrent_layer(
    kind: Any, inside: bool, batch_first: bool, given: bool, settings: dict[str, Any]
) -> None:
    """Bare, or called by the module that was scripted: what the plain layer gives, here and as a
    plan, which is recorded with other sizes too."""
    torch.manual_seed(0)
    module: nn.Module = kind(3, 4, batch_first=batch_first, **settings)
    rows = 4 if settings else 1
    args = [torch.randn(5, 2, 3), torch.randn(rows, 5 if batch_first else 2, 4)]
    args = [args[0], args[1], torch.randn_like(args[1])] if given else args[:1]
    if kind is not nn.LSTM:
        args = args[:2]
    if inside:
        module = (_WithBothStates if kind is nn.LSTM else _WithStates)(module)
    script = torch.jit.script(copy.deepcopy(module))

    def as_taken(call: Callable[..., Any]) -> Callable[..., Any]:
        """A bare LSTM takes its two states as a tuple."""
        if kind is nn.LSTM and given and not inside:
            return lambda x, h, c: call(x, (h, c))
        return call

    expected = _gradients(module, as_taken(module), args)
    unpacked = as_python(script)
    assert _close(_gradients(unpacked, as_taken(unpacked), args), expected)
    plan = sy.func2plan()(as_taken(as_python(script)))
    plan.build(*args)
    with torch.no_grad():
        torch.manual_seed(3)
        assert _close(_tensors(plan(*args)), expected[: len(_tensors(module(*args[:1])))])


def _close(found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    pairs = zip(found, expected, strict=True)
    return all(torch.allclose(one, other, rtol=1e-5, atol=1e-6) for one, other in pairs)


def test_a_recurrent_layer_at_a_worker_and_what_it_does_not_take(hook: sy.TorchHook) -> None:
    bob: Any = sy.VirtualWorker(hook, id="bob")
    lstm, x = nn.LSTM(3, 4, batch_first=True), torch.randn(2, 5, 3)
    plan = sy.func2plan(args_shape=[(-1, 5, 3)])(torch.jit.script(lstm))
    there = plan.send(bob)(x.send(bob))  # type: ignore[attr-defined]
    found = [there[0].get(), there[1][0].get(), there[1][1].get()]
    assert _close(found, _tensors(lstm(x)))
    unpacked = as_python(torch.jit.script(lstm))
    assert _close(_tensors(unpacked(input=x)), _tensors(lstm(x)))
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3]), batch_first=True)
    with pytest.raises(CannotRecord, match="a packed sequence .*: pad it: torch.nn.utils.rnn"):
        unpacked(packed)
    with pytest.raises(CannotRecord, match="a packed sequence"):
        unpacked(input=packed)
    with pytest.raises(RuntimeError, match=r"Expected hidden\[0\] size \(1, 2, 4\)"):
        unpacked(x, (torch.ones(1, 3, 4), torch.ones(1, 3, 4)))


def test_the_mode_of_a_scripted_module_is_followed() -> None:
    unpacked = UnpackedScript(torch.jit.script(nn.Sequential(nn.Dropout(0.5))))
    x = torch.ones(100)
    assert (unpacked(x) == 0).any() and torch.equal(unpacked.eval()(x), x)
    assert not UnpackedScript(torch.jit.script(nn.Sequential(nn.Dropout(0.5)).eval())).training


def test_a_script_from_a_file() -> None:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(nn.Linear(2, 1)), file)
        file.seek(0)
        script = torch.jit.load(file)
    unpacked = UnpackedScript(script)
    assert [type(each) for each in unpacked.parameters()] == [nn.Parameter, nn.Parameter]
    unpacked(torch.ones(1, 2)).backward()
    with torch.no_grad():
        unpacked.weight -= unpacked.weight.grad  # type: ignore[operator]
    assert torch.equal(script.weight, unpacked.weight)


def test_a_plan_of_a_script() -> None:
    model = nn.Linear(2, 1)
    plan = sy.func2plan(args_shape=[(-1, 2)])(torch.jit.script(model))
    assert torch.equal(plan(torch.ones(3, 2)), model(torch.ones(3, 2)))
    assert {id(each) for each in plan.parameters()} == {id(each) for each in model.parameters()}
    assert [action.name for action in plan.actions] == ["torch.nn.functional.linear"]


def scale(x: torch.Tensor, factor: float = 2.0, what: str = "all") -> torch.Tensor:
    if what == "none":
        return x
    return x * factor


def test_a_plan_of_a_scripted_function_takes_its_arguments() -> None:
    function = as_python(torch.jit.script(scale))
    x = torch.ones(2)
    assert function(x).sum() == 4 and function(x, factor=3.0).sum() == 6
    assert function(x, what="none") is x and function.__name__ == "scale"


def squares(pred: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(pred, target)


def test_checks_that_only_warn_are_left_out() -> None:
    function = as_python(torch.jit.script(squares))
    plan = sy.func2plan(args_shape=[(-1, 2), (-1, 2)])(function)
    names = [action.name for action in plan.actions]
    assert names == ["torch.broadcast_tensors", "torch._C._nn.mse_loss"]
    x, y = torch.randn(5, 2), torch.randn(5, 2)
    assert torch.equal(plan(x, y), F.mse_loss(x, y))


def writes_when_it_warns(x: torch.Tensor, values: list[torch.Tensor]) -> torch.Tensor:
    if x.dim() > 1:
        x.add_(1)
        warnings.warn("two dimensions", stacklevel=2)
    return x


def test_a_branch_that_does_more_than_warn_is_kept() -> None:
    function = as_python(torch.jit.script(writes_when_it_warns))
    assert function(torch.zeros(1, 1), []).item() == 1 and function(torch.zeros(1), []).item() == 0


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return x + self.count


def sorts(x: torch.Tensor) -> torch.Tensor:
    values = [2, 1]
    values.sort()
    return x + values[0]


def pops(x: torch.Tensor) -> torch.Tensor:
    values = [2, 1]
    return x + values.pop()


@pytest.mark.parametrize(
    "make, what",
    [
        (Counting, "prim::SetAttr"),
        (lambda: sorts, "aten::sort .*test_script_"),
        (lambda: pops, "aten::pop .*test_script_"),
    ],
)
def test_what_no_plan_can_keep_is_refused_with_the_scripts_line(make: Any, what: str) -> None:
    unpacked = as_python(torch.jit.script(make()))
    with pytest.raises(CannotRecord, match=f"TorchScript's {what}"):
        unpacked(torch.ones(2))


def test_what_the_recording_refuses_names_the_scripts_line_too() -> None:
    script = torch.jit.trace(lambda x: x.set_(x), torch.ones(2), check_trace=False)
    with pytest.raises(CannotRecord) as caught:
        sy.func2plan(args_shape=[(2,)])(script)
    assert any("TorchScript's aten::set_" in note for note in caught.value.__notes__)


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
@pytest.mark.parametrize("number", range(12))
def test_dtypes_have_torchscripts_numbers(number: int) -> None:
    dtype = DTYPES[number]
    script: Any = torch.jit.trace(  # type: ignore[no-untyped-call]
        lambda x: x.to(dtype), torch.ones(2), check_trace=False
    )
    assert as_python(script)(torch.ones(2)).dtype is dtype


def test_the_loss_in_c_takes_the_mean() -> None:
    schema = "aten::mse_loss(Tensor self, Tensor target, int reduction=Mean) -> Tensor"
    x = torch.randn(3)
    assert torch.equal(called("mse_loss", schema, [x, x + 1, 1]), F.mse_loss(x, x + 1))
