"""What seldom happens to lazy tensors: full caches, odd arguments, shapes that would change."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import LocationMismatch, NotALeaf, ProgramError, StaleOperand, UnusableSetting
from syft.exceptions import UnsupportedOperation
from syft.program.lint import lint
from syft.tensors.lazy import call_kinds, lazy_backends, lazy_values
from syft.tensors.lazy.lazy_handles import lazy_instead
from syft.tensors.lazy.lazy_program import CALLS, LazyAction, LazyProgram


@pytest.fixture(autouse=True)
def hooked(hook: sy.TorchHook) -> None:
    """Torch knows ``to_lazy``."""


def test_kinds_and_metas_that_pile_up_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_kinds, "_MOST_KINDS", 4)
    monkeypatch.setattr(call_kinds, "_KINDS", {})
    monkeypatch.setattr(lazy_values, "_MOST_METAS", 4)
    for size in range(1, 9):
        x = torch.arange(float(size)).to_lazy()
        assert torch.equal(
            (x * 2 + x.sum()).to_eager(), torch.arange(float(size)) * 2 + sum(range(size))
        )
    assert len(call_kinds._KINDS) <= 8


@pytest.mark.parametrize(
    "change", [lambda x: x.resize_(5), lambda x: x.set_(torch.ones(5).to_lazy())]
)
def test_a_lazy_tensor_keeps_its_shape(change: Any) -> None:
    with pytest.raises(UnsupportedOperation, match="keeps its shape"):
        change(torch.ones(2).to_lazy())


def test_a_leaf_is_sent_with_its_gradient(bob: sy.VirtualWorker) -> None:
    w = torch.ones(2).to_lazy().requires_grad_()
    (w * 3).sum().backward()
    there: Any = w.send(bob)  # type: ignore[attr-defined]
    assert there.grad.get().tolist() == [3, 3] and there.requires_grad
    with pytest.raises(NotALeaf):
        (w * 2).send(bob)


def test_modules_elsewhere_are_not_made_lazy(bob: sy.VirtualWorker) -> None:
    model: Any = torch.nn.Linear(2, 1).send(bob)  # type: ignore[operator]
    with pytest.raises(LocationMismatch, match="to_lazy"):
        model.to_lazy()
    already = torch.nn.Linear(2, 1).to_lazy()
    assert already.to_lazy().weight.is_lazy()
    assert lazy_instead(already.weight).requires_grad


def test_a_backend_is_a_function_or_a_known_name() -> None:
    with pytest.raises(UnusableSetting, match="inductor"), sy.lazy(backend="nobody"):
        pass


def test_results_of_two_runners_are_compared() -> None:
    one = torch.ones(2)
    assert lazy_backends._are_close(one, one + 1e-9)
    assert not lazy_backends._are_close(one, torch.ones(3))
    assert not lazy_backends._are_close(one, one.double())


def test_a_program_has_names_and_numbers_of_overloads() -> None:
    x = torch.ones(2).to_lazy()
    number = call_kinds.overload_facts(torch.ops.aten.neg.default).number
    assert (-x).to_eager().tolist() == [-1, -1]
    assert LazyAction(number, (), {}, None).name == "aten.neg.default"
    with pytest.raises(ProgramError, match="the number of an overload"):
        lint(LazyProgram(0, (LazyAction(len(CALLS) + 1, (), {}, None),), ()))


def test_an_argument_without_a_hash_has_the_call_run_now() -> None:
    x = torch.arange(4.0).to_lazy()
    assert call_kinds.overload_facts(torch.ops.aten.resize_.default).as_view is None
    with pytest.raises(call_kinds.NotRecordable):
        call_kinds.kind_of_call(
            call_kinds.overload_facts(torch.ops.aten.neg.default), (x, {1}), {}, [], []
        )


def test_two_handles_of_one_view_are_one_value() -> None:
    base = torch.arange(4.0)
    view = base[:2]
    first, second = view.to_lazy(), view.to_lazy()
    assert torch.equal((first + second + view).to_eager(), torch.tensor([0.0, 3.0]))
    view.add_(1)
    assert torch.equal((view.to_lazy() * 2).to_eager(), torch.tensor([2.0, 4.0]))


def test_a_wrong_prediction_is_refused_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_kinds, "_WRONG_METAS", frozenset())
    monkeypatch.setattr(call_kinds, "_KINDS", {})
    weight, rows = torch.arange(15.0).view(5, 3), torch.tensor([[0, 1], [2, 3]])

    def bags() -> Any:
        return torch.ops.aten._embedding_bag(
            weight.to_lazy(), rows.view(-1), torch.tensor([0, 2]), False, 1
        )

    with pytest.raises(UnsupportedOperation, match="torch predicts"):
        [one.to_eager() for one in bags()]
    wanted = torch.ops.aten._embedding_bag(weight, rows.view(-1), torch.tensor([0, 2]), False, 1)
    assert torch.equal(bags()[0].to_eager(), wanted[0]), "from now on it runs at its line"


def test_a_plain_operand_that_is_used_often_is_not_kept_often() -> None:
    plain, total = torch.ones(2), torch.zeros(2).to_lazy()
    handle: Any = plain.to_lazy()
    for _ in range(600):
        total = total + plain
        total.to_eager()
    root = handle.child.value.root
    assert len(root.watched) < 100 and len(root.aliases) < 100
    later = handle * 2
    plain.add_(1)
    with pytest.raises(StaleOperand):
        later.to_eager()
