"""Lazy tensors: what makes one, when it runs, and what it shares memory with."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import syft as sy
from syft.exceptions import LocationMismatch, StaleOperand, UnsupportedOperation
from syft.tensors.lazy.lazy_trace import TRACE
from syft.tensors.lazy.lowered_slices import LoweredSlice
from syft.torch_private import TorchDispatchMode


class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations of what runs in it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ran: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ran[func._schema.name.partition("::")[2]] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """Counts the operations of the programs that run."""
    mode = Counting()

    def run(program: LoweredSlice, values: list[Any]) -> Any:
        with mode:
            return program.run(values)

    monkeypatch.setattr(TRACE, "run_program", run, raising=False)
    return mode


@pytest.fixture(autouse=True)
def nothing_pending(hook: sy.TorchHook) -> Iterator[None]:
    """Each test begins and ends with an empty trace."""
    TRACE.run_for([])
    TRACE.pending.clear()
    yield
    TRACE.pending.clear()


# ---------------------------------------------------------------------------------------- handles


def test_a_handle_shares_memory_and_runs_nothing() -> None:
    x = torch.randn(4, 3)
    lazy = x.to_lazy()
    y = lazy.t()[0] * 2
    assert len(TRACE.pending) == 3
    assert (x.is_lazy(), lazy.is_lazy(), y.is_lazy()) == (False, True, True)
    assert lazy.to_lazy() is lazy and x.to_eager() is x
    assert lazy.to_eager().data_ptr() == x.data_ptr()
    assert (y.shape, y.stride(), y.dtype, y.device) == ((4,), (1,), x.dtype, x.device)
    assert isinstance(lazy, torch.Tensor) and lazy.type() == x.type() and lazy.is_cpu
    assert torch.equal(y.to_eager(), x.t()[0] * 2)


def test_each_operation_runs_once_and_unneeded_ones_never(counting: Counting) -> None:
    x = torch.randn(8).to_lazy()
    shared = x.exp()
    first, second, unneeded = shared + 1, shared * 2, shared.sin()
    for one in (first, second, first, second.sum()):
        one.to_eager()
    del unneeded
    TRACE.flush()
    ran = {name: counting.ran[name] for name in ("exp", "add", "mul", "sum", "sin")}
    assert ran == {"exp": 1, "add": 1, "mul": 1, "sum": 1, "sin": 0}


def test_mixed_operands_are_lazy() -> None:
    x = torch.randn(3)
    for result in (x.to_lazy() + x, x + x.to_lazy(), torch.cat([x, x.to_lazy()])):
        assert result.is_lazy()
    assert torch.equal((x + x.to_lazy()).to_eager(), x + x)


def test_printing_runs_nothing() -> None:
    x = torch.ones(64, 10).to_lazy()
    y = (x * 2 + 1).relu()
    assert repr(y) == "(Wrapper)><lazy 64x10 float32, 3 operations behind it>"
    assert not y.child.is_constant and len(TRACE.pending) == 3
    y.to_eager()
    assert y.child.is_constant and repr(y).startswith("(Wrapper)>LazyTensor>tensor([[3., ")
    y.add_(1)
    assert repr(y).endswith("1 operation behind it>")
    assert repr(y.sum()) == "(Wrapper)><lazy number float32, 2 operations behind it>"


ASKING: dict[str, Callable[[torch.Tensor], Any]] = {
    "item": lambda y: y[0, 0].item(),
    "bool": lambda y: bool(y[0, 0] > 0),
    "float": lambda y: float(y[1, 1]),
    "numpy": lambda y: y.numpy().tolist(),
    "asarray": lambda y: np.asarray(y).tolist(),
    "tolist": lambda y: y.tolist(),
    "equal": lambda y: torch.equal(y, y + 0),
    "allclose": lambda y: torch.allclose(y, y + 0),
    "nonzero": lambda y: y.nonzero().tolist(),
    "mask": lambda y: y[y > 0].tolist(),
    "unique": lambda y: y.unique().tolist(),
    "format": lambda y: f"{y.sum():.3f}",
    "into a plain tensor": lambda y: torch.zeros(3, 3).add_(y).tolist(),
    "out a plain tensor": lambda y: torch.add(y, 1, out=torch.zeros(3, 3)).tolist(),
    "pickle": lambda y: pickle.loads(pickle.dumps(y)).tolist(),
    "torch.tensor": lambda y: torch.tensor(y).tolist(),
    "split": lambda y: [part.tolist() for part in y.tensor_split((y[0] * 0 + 1).long()[:1])],
}


@pytest.mark.parametrize("how", ASKING)
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch.tensor(tensor)
def test_what_asks_for_a_value(how: str) -> None:
    x = torch.randn(3, 3)
    assert ASKING[how]((x.to_lazy() * 2).sin()) == ASKING[how]((x * 2).sin())


def test_saving(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to_lazy()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt")
    assert type(loaded["0.weight"]) is torch.Tensor
    assert torch.equal(loaded["0.weight"], model.state_dict()["0.weight"].to_eager())
    assert type(pickle.loads(pickle.dumps(model))[0].weight) is nn.Parameter


def test_it_is_sent_and_encoded_computed(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2).to_lazy() * 3
    assert x.send(bob).get().tolist() == [3, 3]
    assert x.fix_precision().float_precision().tolist() == [3, 3]
    model = nn.Linear(2, 1).to_lazy()
    assert model.send(bob)(torch.ones(1, 2).send(bob)).get().shape == (1, 1)
    model.get()


# ---------------------------------------------------------------------------- memory that is shared


def test_writes_and_views_keep_their_order() -> None:
    plain = torch.randn(4, 3)

    def program(b: torch.Tensor) -> list[torch.Tensor]:
        view = b.t()[0]
        before = b + 0
        view.mul_(3)
        b[1] += 1
        late = b.sum()
        b.t_()
        view.sub_(1)
        return [before, late, view, b, b[0] + 0]

    want = program(plain.clone())
    for order in ((0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (1, 4, 0, 2, 3)):
        got = program(plain.clone().to_lazy())
        for place in order:
            assert torch.equal(got[place].to_eager(), want[place]), order
        assert [one.stride() for one in got] == [one.stride() for one in want]


def test_a_write_that_a_plain_tensor_sees_is_there_at_once() -> None:
    x = torch.zeros(3)
    lazy = x.to_lazy()
    before = lazy + 0
    lazy.add_(1)
    assert x.tolist() == [1, 1, 1] and before.tolist() == [0, 0, 0]
    doubled = lazy * 2
    plain = doubled.to_eager()
    doubled.view(3).sub_(1)
    assert plain.tolist() == [1, 1, 1]
    del plain
    doubled.sub_(1)
    assert len(TRACE.pending) == 1 and doubled.tolist() == [0, 0, 0]


def test_a_saved_tensor_that_a_lazy_write_changes_is_refused_by_torch() -> None:
    w = torch.ones(3, requires_grad=True)
    x = torch.ones(3)
    product = (w * x).sum()  # saves x
    x.to_lazy().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_a_plain_operand_that_changed_is_named_with_its_line() -> None:
    x = torch.ones(3)
    lost = x.to_lazy() * 2 + 1
    kept = torch.zeros(3).to_lazy() + 5
    x.add_(1)
    with pytest.raises(StaleOperand, match=r"aten.mul.Tensor was recorded at .*test_lazy.*\.py:"):
        lost.to_eager()
    with pytest.raises(StaleOperand):
        lost.sum().to_eager()
    assert kept.tolist() == [5, 5, 5]
    assert (x.to_lazy() * 2).tolist() == [4, 4, 4]


def test_a_change_is_named_though_an_operation_between_runs_at_once() -> None:
    plain, seen = torch.ones(2), torch.zeros(2)
    before = plain.to_lazy() + 1
    plain.mul_(2)
    with pytest.raises(StaleOperand, match="aten.add.Tensor was recorded at"):
        seen.copy_(plain.to_lazy())
    with pytest.raises(StaleOperand):
        before.to_eager()


def test_a_plain_operand_may_change_between_two_uses() -> None:
    x, lazy = torch.ones(3), torch.zeros(3).to_lazy()
    first = (lazy + x).to_eager()
    x.add_(1)
    assert first.tolist() == [1, 1, 1] and (lazy + x).tolist() == [2, 2, 2]
    waiting = lazy + x
    x.add_(1)
    with pytest.raises(StaleOperand):
        lazy + x
    with pytest.raises(StaleOperand):
        waiting.to_eager()
    assert (lazy + x).tolist() == [3, 3, 3]


def test_data_takes_a_plain_tensor() -> None:
    model = nn.Linear(2, 2).to_lazy()
    model.weight.data = torch.ones(2, 2)
    assert model.weight.is_lazy() and model.weight.tolist() == [[1, 1], [1, 1]]


# ------------------------------------------------------------------------------------------ errors


def test_a_wrong_shape_is_told_at_the_line() -> None:
    x = torch.ones(2, 3).to_lazy()
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        x @ x


def test_a_wrong_value_is_told_with_its_line() -> None:
    indices = torch.tensor([0, 9]).to_lazy()
    bad = F.embedding(indices, torch.ones(3, 2).to_lazy())
    worse, good = bad + 1, indices + 1
    for one in (worse, bad, worse):
        with pytest.raises(IndexError) as caught:
            one.to_eager()
        assert any("Recorded at" in note and "test_lazy" in note for note in caught.value.__notes__)
    assert good.tolist() == [1, 10]
    with pytest.raises(IndexError):
        worse * 2


def test_what_is_written_after_an_error_is_not_written() -> None:
    weight = torch.ones(3, 2).to_lazy() * 1
    weight.to_eager()
    bad = F.embedding(torch.tensor([7]).to_lazy(), weight)
    before = weight + 1
    weight.add_(bad.sum())
    after = weight * 2
    with pytest.raises(IndexError):
        after.to_eager()
    with pytest.raises(IndexError):
        TRACE.flush()
        after.sum().to_eager()
    assert weight.tolist() == [[1, 1]] * 3 and before.tolist() == [[2, 2]] * 3


def test_other_kinds_are_refused(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x = torch.ones(2).to_lazy()
    with pytest.raises(LocationMismatch, match="bob"):
        x + torch.ones(2).send(bob)
    with pytest.raises(LocationMismatch, match="FixedPrecisionTensor"):
        x + torch.ones(2).fix_precision()
    with pytest.raises(LocationMismatch, match="bob"):
        torch.ones(2).send(bob).to_lazy()
    with pytest.raises(UnsupportedOperation, match="to_eager"):
        x.data_ptr()


# ------------------------------------------------------------------------------------ derivatives


def test_conversions_are_differentiable() -> None:
    x = torch.randn(3, requires_grad=True)
    (((x * 2).to_lazy().exp()).to_eager() * 3).sum().backward()
    assert torch.allclose(x.grad, 6 * (x * 2).exp())
    leaf = x.to_lazy()
    assert leaf.is_leaf and leaf.requires_grad and leaf.to_eager().is_leaf
    seen: list[bool] = []
    leaf.register_hook(lambda gradient: seen.append(gradient.is_lazy()))
    (leaf * 2).sum().backward()
    assert seen == [True] and leaf.grad.tolist() == [2, 2, 2]


def test_second_derivatives_transforms_and_checkpoints() -> None:
    x = torch.randn(4).to_lazy().requires_grad_()
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.allclose(second.to_eager(), 6 * x.detach().to_eager())
    plain = torch.arange(3.0)
    for transformed in (
        torch.func.vmap(lambda t: t * 2),
        torch.func.grad(lambda t: (t**3).sum()),
        torch.func.jacrev(torch.sin),
        lambda t: torch.func.jvp(torch.sin, (t,), (t,))[1],
    ):
        result = transformed(plain.to_lazy())
        assert result.is_lazy() and torch.equal(result.to_eager(), transformed(plain))
    for reentrant in (False, True):
        x.grad = None
        kept = torch.utils.checkpoint.checkpoint(torch.exp, x, use_reentrant=reentrant)
        kept.sum().backward()
        assert torch.equal(x.grad.to_eager(), x.detach().exp().to_eager())


# --------------------------------------------------------------------------------- what it holds


def test_values_die_with_their_handles() -> None:
    x = torch.randn(10)
    y = x.to_lazy() * 2
    there = weakref.ref(y.child.value)
    kept = weakref.ref(x)
    y.to_eager()
    del x, y
    assert there() is None and kept() is None


def test_what_piles_up_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syft.tensors.lazy.lazy_trace.MOST_PENDING", 10)
    x = torch.zeros(2).to_lazy()
    for _ in range(25):
        x = x + 1
    assert len(TRACE.pending) <= 10 and x.tolist() == [25, 25]


def test_random_numbers_are_drawn_at_their_lines() -> None:
    def program(x: torch.Tensor) -> list[Any]:
        torch.manual_seed(5)
        first = F.dropout(x, 0.5)
        second = torch.rand(2)
        third = torch.bernoulli(x * 0.5)
        torch.manual_seed(6)
        return [torch.rand_like(x), third, second, first]

    x = torch.ones(50)
    want, got = program(x), program(x.to_lazy())
    assert all(torch.equal(mine, theirs.to_eager()) for mine, theirs in zip(want, got))


def test_backward_passes_of_several_threads() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    other = copy.deepcopy(model).to_lazy()
    inputs = [torch.randn(5, 4) for _ in range(6)]
    found: dict[int, list[Any]] = {}

    def work(place: int) -> None:
        loss = other(inputs[place].to_lazy()).square().sum()
        grads = torch.autograd.grad(loss, list(other.parameters()))
        found[place] = [one.to_eager() for one in grads]

    threads = [threading.Thread(target=work, args=(place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for place, x in enumerate(inputs):
        want = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
        assert all(map(torch.equal, want, found[place]))


def test_a_custom_operation() -> None:
    @torch.library.custom_op("syft_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert torch.ops.syft_tests.twice(torch.ones(2).to_lazy() + 1).tolist() == [4, 4]
    twice.register_fake(lambda x: torch.empty_like(x))
    y = torch.ops.syft_tests.twice(torch.ones(3).to_lazy() + 1)
    assert y.is_lazy() and y.tolist() == [4, 4, 4]


def test_lazy_conjugates() -> None:
    x = torch.randn(3, dtype=torch.complex64)

    def program(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.conj()
        return [y * 2, y.imag + 1, y.clone(), y.sum(), y.real, y.resolve_conj(), y.imag]

    for mine, theirs in zip(program(x), program(x.to_lazy())):
        assert theirs.is_lazy() and theirs.is_neg() == mine.is_neg()
        assert torch.equal(mine, theirs.to_eager())
    assert x.to_lazy().conj()[0].item() == x.conj()[0].item()


def test_autocast_keeps_what_it_casts(hook: sy.TorchHook) -> None:
    x, w = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        lazy = w.to_lazy()
        y = x.to_lazy() @ lazy
        assert y.dtype is torch.bfloat16 and y.to_eager().dtype is torch.bfloat16
    saved: list[torch.dtype] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.dtype)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x.to_lazy() @ w.to_lazy()
    assert saved == [torch.bfloat16]


def test_nothing_is_left_of_a_cycle() -> None:
    gc.collect()
    x = torch.ones(2).to_lazy()
    y = x * 2
    y.add_(1)
    view = y.view(2, 1)
    view.to_eager()
    seen = [weakref.ref(one.child.value) for one in (x, y, view)]
    del x, y, view
    assert [one() for one in seen] == [None] * 3
