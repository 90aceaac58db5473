"""What runs programs of lazy tensors in the place of the loop."""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
from syft.exceptions import ProgramError
from syft.tensors.lazy import lazy_backends
from syft.tensors.lazy.lazy_program import LazyProgram
from syft.tensors.lazy.lazy_trace import TRACE


@pytest.fixture(autouse=True)
def hooked(hook: sy.TorchHook) -> Iterator[None]:
    """Torch knows ``to_lazy``."""
    yield
    TRACE.pending.clear()


KERNEL = (
    "aten.unsqueeze.default aten.unsqueeze.default aten.sub.Tensor aten.pow.Tensor_Scalar "
    "aten.sum.dim_IntList aten.neg.default aten.exp.default aten.mm.default"
).split()


def gaussian(program: LazyProgram) -> Any:
    """Computes ``exp(-|x - y|^2) @ v`` row by row, without the matrix; declines all else."""
    if [action.name for action in program.actions] != KERNEL:
        return None

    def run(values: list[Any]) -> Any:
        x, y, v = values[:3]
        rows = [torch.exp(-(row - y).square().sum(-1)) @ v for row in x]
        return (torch.stack(rows),)

    return run


def test_a_pattern_alone() -> None:
    def kernel(x: torch.Tensor, y: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.exp(-((x[:, None] - y[None]) ** 2).sum(-1)) @ v

    x, y, v = torch.randn(300, 3), torch.randn(200, 3), torch.randn(200, 2)
    with sy.lazy(False, backend=gaussian):
        result = kernel(x.to_lazy(), y.to_lazy(), v.to_lazy()).to_eager()
        assert (x.to_lazy() * 2).tolist() == (x * 2).tolist()  # declined
    assert torch.allclose(result, kernel(x, y, v), atol=1e-5)


@pytest.mark.parametrize(
    ("results", "text"),
    [
        ((torch.ones(3),), r"gave \(3,\) torch.float32 for a result of \(2,\) torch.float32"),
        ((torch.ones(2).long(),), "torch.int64 for a result"),
        ((1.5,), "gave a float where a tensor was expected"),
        ((), "gave 0 for 1 results"),
        (torch.ones(2), "gave Tensor for 1 results"),
    ],
)
def test_wrong_results_are_refused(results: Any, text: str) -> None:
    def wrong(program: LazyProgram) -> Any:
        return lambda values: results

    with sy.lazy(False, backend=wrong):
        y = torch.ones(2).to_lazy() * 2
        for _ in range(2):
            with pytest.raises(ProgramError, match=f"the backend wrong .*{text}|{text}"):
                y.to_eager()


def test_a_result_gets_the_strides_that_were_told() -> None:
    def transposed(program: LazyProgram) -> Any:
        return lambda values: ((values[0].t().contiguous() * 2).t(),)

    x = torch.arange(6.0).view(2, 3)
    with sy.lazy(False, backend=transposed):
        y = x.to_lazy() * 2
        assert torch.equal(y.to_eager(), x * 2) and y.to_eager().stride() == (3, 1)


def test_a_view_must_lie_in_its_memory() -> None:
    def copying(program: LazyProgram) -> Any:
        return lambda values: (values[0].t().clone(),)

    x = torch.ones(2, 3).to_lazy()
    with sy.lazy(False, backend=copying):
        view = x.t()
        with pytest.raises(ProgramError, match="a copy of shape"):
            view.to_eager()


def test_what_a_backend_raises_is_raised_where_the_value_is_asked() -> None:
    def failing(program: LazyProgram) -> Any:
        return lambda values: operator.truediv(1, 0)

    with sy.lazy(False, backend=failing):
        y = torch.ones(2).to_lazy() * 2
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                y.sum().to_eager()
    assert (torch.ones(2).to_lazy() + 1).tolist() == [2, 2]


def _training(steps: int, lr: float = 0.1) -> tuple[list[float], dict[str, Any]]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    reference, x, labels = copy.deepcopy(net), torch.randn(6, 4), torch.randint(0, 3, (6,))
    net.to_lazy()
    found = []
    for one in (net, reference):
        optimizer = torch.optim.SGD(one.parameters(), lr=lr)
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = F.cross_entropy(one(x), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        found.append(losses)
    assert found[0] == pytest.approx(found[1], rel=1e-5)
    return found[0], net.to_eager().state_dict()


def test_compiling_after_some_equal_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[torch.fx.GraphModule] = []

    def compile(module: torch.fx.GraphModule, **options: Any) -> Any:
        assert options == {"backend": "inductor", "fullgraph": True, "dynamic": False}
        compiled.append(module)
        return module

    monkeypatch.setattr(torch, "compile", compile)
    with sy.lazy(False, backend="inductor"):
        _training(2)
        before = len(compiled)
        _training(6)
    assert before == 0 and len(compiled) == 1
    assert not any("alpha" in node.kwargs for module in compiled for node in module.graph.nodes)


def test_a_compiled_program_that_is_wrong_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(module: torch.fx.GraphModule, **options: Any) -> Any:
        return lambda *tensors: [one + 1 for one in module(*tensors)]

    monkeypatch.setattr(torch, "compile", wrong)
    x = torch.randn(5)
    with sy.lazy(False, backend="inductor"), pytest.warns(UserWarning, match="another result"):
        for _ in range(6):
            assert torch.equal((x.to_lazy() * 2 + 1).to_eager(), x * 2 + 1)


def test_alpha_is_multiplied_before_it_is_compiled() -> None:
    seen: list[Any] = []

    def watch(program: LazyProgram) -> Any:
        return lambda values: seen.append((program, [*values]))

    a, b = torch.randn(3, 3), torch.randn(3, 3)
    with sy.lazy(False, backend=watch):
        want = torch.add(a.to_lazy(), b.to_lazy() @ b, alpha=3).to_eager()
    program, values = seen[0]
    module = lazy_backends.graph_of(program, values[program.tensors :])
    assert torch.allclose(module(*values[: program.tensors])[0], want)
    assert not any("alpha" in node.kwargs for node in module.graph.nodes)


@pytest.mark.soak
def test_inductor_itself() -> None:
    with sy.lazy(False, backend="inductor"):
        _training(8)
