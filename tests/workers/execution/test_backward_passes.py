"""Backward passes at a worker with private values: what they leave is known before they run."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import PermissionDenied, UnsupportedOperation
from syft.ops.evaluate import _look
from syft.workers.execution.backward_passes import backward_call
from syft.workers.execution.backward_passes import run_private_pass, run_public_pass
from syft.workers.execution.moved_memory import NoHoldings, move_written
from syft.workers.execution.predicted_failures import is_predicted
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.labels.reached_graph import AGAIN

ANN = Guard(frozenset({"ann"}))


def run(function: Any, *args: Any, user: str | None = None, **kwargs: Any) -> Any:
    """A pass over private values, for a stranger."""
    return run_private_pass(function, args, kwargs, ANN, NoHoldings(), "bob", user)


def public(function: Any, *args: Any, **kwargs: Any) -> Any:
    return run_public_pass(function, args, kwargs, NoHoldings())


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor(values or (1.0, 2.0), requires_grad=True)


def private(tensor: torch.Tensor) -> torch.Tensor:
    protect(tensor, ANN)
    return tensor


def loss_of(*leaves: torch.Tensor) -> torch.Tensor:
    """A private loss, whose gradients are 3 and 5."""
    secret = private(torch.tensor([3.0, 5.0]))
    return private(sum((each * secret).sum() for each in leaves))  # type: ignore[arg-type]


class Fails(torch.autograd.Function):
    """What fails in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise ValueError("1234")


def error_of(tensor: torch.Tensor | None) -> Exception | None:
    guard = full_guard_of(tensor)
    assert guard is not None and guard.users == {"ann"}
    return guard.error


# ------------------------------------------------------------------------------- what a pass leaves


def test_a_gradient_is_private_and_has_the_value_that_torch_computes() -> None:
    w = leaf()
    run(torch.Tensor.backward, loss_of(w))
    assert w.grad is not None and w.grad.tolist() == [3, 5] and error_of(w.grad) is None
    assert full_guard_of(w) is None


def test_a_public_gradient_that_is_there_stays_public_and_as_it_was() -> None:
    w = leaf()
    before = w.grad = torch.ones(2)
    saved = (before * leaf()).sum()
    run(torch.Tensor.backward, loss_of(w))
    assert w.grad is not before and w.grad.tolist() == [4, 6]
    assert before.tolist() == [1, 1] and full_guard_of(before) is None
    saved.backward()
    again = w.grad
    run(torch.Tensor.backward, loss_of(w))
    assert w.grad is again and again.tolist() == [7, 11], "from then on it is added in place"


def test_a_pass_that_fails_is_sealed_and_leaves_gradients_everywhere() -> None:
    w, v = leaf(), leaf()
    loss = private(Fails.apply(v).sum() + loss_of(w))  # type: ignore[no-untyped-call]
    run(torch.Tensor.backward, loss)
    for each in (w, v):
        assert each.grad is not None and str(error_of(each.grad)) == "1234"
    with pytest.raises(ValueError, match="1234"):
        loss = private(Fails.apply(v).sum())  # type: ignore[no-untyped-call]
        run(torch.Tensor.backward, loss, user="ann")


def test_what_gets_no_gradient_gets_zeros() -> None:
    cut = leaf()

    class Cut(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
            return None

    run(torch.Tensor.backward, private(Cut.apply(cut).sum()))  # type: ignore[no-untyped-call]
    assert cut.grad is not None and cut.grad.tolist() == [0, 0] and error_of(cut.grad) is None


def test_the_memory_of_a_public_start_is_not_taken_over() -> None:
    w, start = leaf(), torch.ones(2)
    run(torch.Tensor.backward, private(w.view(2)), start)
    assert w.grad is not None and error_of(w.grad) is None
    w.grad.add_(1)
    assert start.tolist() == [1, 1] and full_guard_of(start) is None


def test_the_memory_of_a_public_start_on_a_chain_is_not_taken_over(hook: sy.TorchHook) -> None:
    """The gradients of chains are not laid out anew, so only the copy of the start parts them."""
    w = torch.tensor([1.0, 2.0]).fix_precision().requires_grad_()
    start = torch.ones(2).fix_precision()
    run(torch.Tensor.backward, private(w.view(2)), start)
    assert w.grad is not None and error_of(w.grad) is None
    assert full_guard_of(start) is None, "its owner may read it as before"
    w.grad.add_(1)
    assert start.float_precision().tolist() == [1, 1]


def test_a_root_may_be_a_leaf() -> None:
    w = leaf()
    run(torch.Tensor.backward, w, private(torch.ones(2)))
    assert w.grad is not None and w.grad.tolist() == [1, 1] and error_of(w.grad) is None


def test_two_gradients_never_share_memory() -> None:
    w, v = leaf(), leaf()
    made = w.view(2) + v.view(2)
    run(torch.Tensor.backward, private(made), private(torch.ones(2)))
    assert w.grad is not None and v.grad is not None
    assert w.grad.untyped_storage()._cdata != v.grad.untyped_storage()._cdata


def test_gradients_have_the_strides_of_their_leaves() -> None:
    w = torch.ones(2, 3).t().requires_grad_()
    run(torch.autograd.backward, [private(w.t().contiguous().sum())])
    assert w.grad is not None and w.grad.stride() == w.stride()
    wide = torch.ones(1).expand(3).requires_grad_()
    run(torch.Tensor.backward, private(wide.sum()))
    assert wide.grad is not None and wide.grad.stride() == (1,)


def test_a_sparse_gradient_becomes_dense() -> None:
    table = torch.ones(3, 2, requires_grad=True)
    table.grad = torch.ones(3, 2).to_sparse()
    rows = torch.nn.functional.embedding(torch.tensor([1]), table, sparse=True)
    run(torch.Tensor.backward, private(rows.sum()))
    assert table.grad.layout is torch.strided and table.grad.tolist() == [[1, 1], [2, 2], [1, 1]]
    table.grad = None
    rows = torch.nn.functional.embedding(torch.tensor([1]), table, sparse=True)
    run(torch.Tensor.backward, private(rows.sum()))
    assert table.grad.layout is torch.strided  # type: ignore[attr-defined]


def test_a_result_that_keeps_its_gradient() -> None:
    w = leaf()
    made = w * 2
    made.retain_grad()
    kept = (w * 3).detach()

    class Shown(NoHoldings):
        def shown(self) -> list[torch.Tensor]:
            return [made, kept]

    loss = private((made * private(torch.ones(2))).sum())
    run_private_pass(torch.Tensor.backward, (loss,), {}, ANN, Shown(), "bob", None)
    assert made.grad is not None and error_of(made.grad) is None and kept.grad is None


# --------------------------------------------------------------------------------- what is returned


def test_gradients_that_are_returned() -> None:
    w, other = leaf(), leaf()
    found = run(torch.autograd.grad, loss_of(w), [w, other], allow_unused=True)
    assert found[0].tolist() == [3, 5] and error_of(found[0]) is None and found[1] is None
    assert w.grad is None
    found = run(torch.autograd.grad, loss_of(w), [w, other], materialize_grads=True)
    assert [each.tolist() for each in found] == [[3, 5], [0, 0]]
    found = run(torch.autograd.grad, loss_of(w), {"w": w})
    assert found["w"].tolist() == [3, 5]
    loss = private(Fails.apply(w).sum())  # type: ignore[no-untyped-call]
    (found,) = run(torch.autograd.grad, loss, w)
    assert found.tolist() == [0, 0] and type(error_of(found)) is ValueError


def test_a_gradient_with_a_graph_always_has_one() -> None:
    w = leaf()
    (first,) = run(torch.autograd.grad, private((w**3).sum()), w, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), w)
    assert torch.allclose(second, 6 * w.detach())
    (flat,) = run(torch.autograd.grad, private(w.sum()), w, create_graph=True)
    assert flat.requires_grad and flat.grad_fn is not None, "whatever the formula is"
    flat.sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(torch.Tensor.backward, private((w**3).sum()), create_graph=True)
    assert w.grad is not None and w.grad.requires_grad and error_of(w.grad) is None
    w.grad = None  # or the graph keeps itself alive


def test_a_pass_limited_to_inputs() -> None:
    w, v, unused = leaf(), leaf(), leaf()
    run(torch.Tensor.backward, loss_of(w, v), inputs=[w, unused])
    assert w.grad is not None and v.grad is None and unused.grad is None


# ------------------------------------------------------------------------------ what does not begin


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda w: ((w * 2,), {}), "only for scalar outputs"),
        (lambda w: ((w.detach(),), {}), "does not require grad"),
        (lambda w: ((w * 2, torch.ones(3)), {}), "Mismatch in shape"),
        (lambda w: ((w * 2, torch.ones(2) * 1j), {}), "Mismatch: grad_output"),
        (lambda w: (((w * 2j).sum(),), {}), "real scalar outputs"),
        (lambda w: ((w * 2, 3), {}), "takes tensors"),
        (lambda w: ((w.sum(),), {"inputs": []}), "cannot be empty"),
        (lambda w: ((w.sum(),), {"inputs": [3]}), "must be tensors"),
        (lambda w: ((w.sum(),), {"inputs": [w.detach()]}), "does not require grad"),
        (lambda w: ((w.sum(),), {"graph": 1}), "unexpected keyword"),
    ],
)
def test_what_does_not_fit_is_told_to_everybody(make: Any, text: str) -> None:
    args, kwargs = make(leaf())
    with pytest.raises((RuntimeError, TypeError), match=text) as caught:
        run(torch.Tensor.backward, *args, **kwargs)
    assert is_predicted(caught.value)


def test_gradients_that_cannot_be_returned() -> None:
    w, other = leaf(), leaf()
    for kwargs in ({}, {"allow_unused": False}):
        with pytest.raises(RuntimeError, match="appears to not have been used"):
            run(torch.autograd.grad, loss_of(w), [other], **kwargs)
    with pytest.raises(ValueError, match="got: allow_unused=False"):
        run(torch.autograd.grad, loss_of(w), w, allow_unused=False, materialize_grads=True)
    with pytest.raises(RuntimeError, match="got 2 tensors and 1 gradients"):
        run(torch.autograd.backward, [w.sum(), w.sum()], [torch.ones(())])


def test_a_private_flag_is_refused_by_its_name() -> None:
    w, flag = leaf(), private(torch.tensor(True))
    for name in ("retain_graph", "create_graph"):
        with pytest.raises(PermissionDenied, match=f"a private {name}"):
            run(torch.Tensor.backward, loss_of(w), **{name: flag})
    run(torch.Tensor.backward, loss_of(w), retain_graph=torch.tensor(True))
    run(torch.Tensor.backward, loss_of(w), retain_graph=flag, user="ann")
    batch = torch.ones(3, 2)
    with pytest.raises(PermissionDenied, match="is_grads_batched"):
        run(torch.autograd.grad, w * 1, w, batch, is_grads_batched=True)


# ------------------------------------------------------------------------------- graphs used twice


def test_a_public_pass_through_what_a_private_one_used_up() -> None:
    w = leaf()
    made = w.exp()
    run(torch.Tensor.backward, private((made * private(torch.ones(2))).sum()))
    with pytest.raises(RuntimeError, match="a second time") as caught:
        public(torch.Tensor.backward, made.sum())
    assert str(caught.value) == AGAIN
    public(torch.Tensor.backward, (w + 1).sum())


def test_whether_the_private_pass_failed_makes_no_difference() -> None:
    w = leaf()
    made = w.exp()
    loss = private(Fails.apply(made).sum())  # type: ignore[no-untyped-call]
    run(torch.Tensor.backward, loss)
    with pytest.raises(RuntimeError, match="a second time"):
        public(torch.Tensor.backward, made.sum())


def test_a_graph_that_is_retained_can_be_used_again() -> None:
    w = leaf()
    made = w.exp()
    loss = private((made * private(torch.ones(2))).sum())
    run(torch.Tensor.backward, loss, retain_graph=True)
    public(torch.Tensor.backward, made.sum())


def test_what_a_limited_pass_does_not_come_to_can_be_used_again() -> None:
    w, v = leaf(), leaf()
    one, two = w.exp(), v.exp()
    loss = private((one * two).sum())
    run(torch.autograd.grad, loss, [w])
    public(torch.Tensor.backward, two.sum())
    with pytest.raises(RuntimeError, match="a second time"):
        public(torch.Tensor.backward, one.sum())
    part = w.exp()
    again = private((part * v.exp()).sum())
    run(torch.autograd.grad, again, [part])
    public(torch.Tensor.backward, part.sum())


# -------------------------------------------------------------------------------- moved leaves


def test_a_leaf_that_was_moved_gets_the_gradients_of_its_older_graphs() -> None:
    w = leaf()
    older = (w * 2).sum()
    new = move_written([w], ANN, NoHoldings()).of(w)
    public(torch.Tensor.backward, older, retain_graph=True)
    assert new.grad.tolist() == [2, 2]
    new.grad = None
    public(torch.Tensor.backward, older, retain_graph=True)
    assert new.grad.tolist() == [2, 2], "it does not count what was taken away"
    run(torch.Tensor.backward, private(older + loss_of(new)))
    assert new.grad.tolist() == [7, 9] and error_of(new.grad) is None


def test_old_and_new_leaves_in_one_graph_with_gradients_of_their_own() -> None:
    w = leaf()
    older = (w**2).sum()
    new = move_written([w], ANN, NoHoldings()).of(w)
    new.grad = private(torch.ones(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(torch.Tensor.backward, private(older + (new**2).sum()), create_graph=True)
    assert new.grad.tolist() == [5, 9] and error_of(new.grad) is None and w.grad is None
    new.grad = None


def test_a_moved_leaf_stands_for_the_one_in_the_graph() -> None:
    w = leaf()
    older = (w * 2).sum()
    new = move_written([w], ANN, NoHoldings()).of(w)
    (found,) = public(torch.autograd.grad, older, [new])
    assert found.tolist() == [2, 2]
    (found,) = run(torch.autograd.grad, loss_of(w), new)
    assert found.tolist() == [3, 5]
    new.requires_grad_(False)
    public(torch.Tensor.backward, (w * leaf()).sum())
    assert new.grad is None


def test_a_public_pass_adds_to_a_private_gradient() -> None:
    w = leaf()
    run(torch.Tensor.backward, loss_of(w))
    public(torch.Tensor.backward, (w * 2).sum())
    assert w.grad is not None and w.grad.tolist() == [5, 7] and error_of(w.grad) is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        public(torch.Tensor.backward, (w**2).sum(), create_graph=True)
    assert w.grad.tolist() == [7, 11] and error_of(w.grad) is None
    w.grad = None


def test_wrong_arguments_of_a_public_pass() -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        public(torch.Tensor.backward, leaf().sum(), graph=True)
    with pytest.raises(RuntimeError, match="scalar outputs"):
        public(torch.Tensor.backward, leaf() * 2)


def test_gradients_by_their_older_name() -> None:
    call = backward_call(torch.autograd.backward, ([leaf() * 2],), {"grad_variables": [3]})
    assert call.starts == (3,)
    w = leaf()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(torch.autograd.backward, [private(w * 2)], grad_variables=[torch.ones(2)])
    assert w.grad is not None and w.grad.tolist() == [2, 2]


def test_a_pass_from_another_workers_tensor_is_refused(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    w, there = leaf(), leaf().send(bob)
    with pytest.raises(PermissionDenied, match="a backward pass of another worker's tensor"):
        run(torch.autograd.backward, [loss_of(w), there.sum()])
    assert w.grad is None


def test_a_gradient_of_another_kind_than_its_leaf_is_refused(hook: sy.TorchHook) -> None:
    w, x = leaf(), torch.tensor([3.0, 5.0]).fix_precision()
    run(torch.Tensor.backward, private((w * x).sum()))
    error = error_of(w.grad)
    assert type(error) is UnsupportedOperation and "encode it (fix_precision()) before" in str(
        error
    )
    assert w.grad is not None and w.grad.tolist() == [0, 0], "as if there were none"


def test_a_pass_over_a_private_shape_or_another_layout_is_refused() -> None:
    hidden = Guard(frozenset({"ann"}), shape_hidden=True)
    loss = torch.ones(2, requires_grad=True) * 2
    sparse = torch.eye(4).to_sparse_bsr((2, 2)).requires_grad_()
    for args, guard, text in (
        ((loss, torch.ones(2)), hidden, "a private shape"),
        ((sparse, torch.eye(4)), Guard(frozenset({"ann"})), "another layout"),
    ):
        call = torch.Tensor.backward, args, {}, guard, NoHoldings(), "bob", None
        with pytest.raises(PermissionDenied, match=text):
            run_private_pass(*call)
    assert sparse.grad is None


# Gradients that were there before: the shapes of them are those of two numbers.
BEFORE = {
    "none": lambda: None,
    "plain": lambda: torch.zeros(2),
    "expanded": lambda: torch.zeros(1).expand(2),
    "conjugate": lambda: torch.zeros(2, dtype=torch.complex64).conj(),
    "strided": lambda: torch.zeros(4)[::2],
    "part": lambda: torch.zeros(4)[1:3],
}


class Shown(NoHoldings):
    """What shows some tensors to the owner's program."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self._tensors = tensors

    def shown(self) -> tuple[torch.Tensor, ...]:
        return self._tensors


def refuse(gradient: torch.Tensor) -> None:
    raise ValueError("this pass is to fail")


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("is_leaf", [False, True])
@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
def test_gradients_look_the_same_if_a_pass_failed(
    before: str, create_graph: bool, is_leaf: bool
) -> None:
    looks = []
    for fails in (False, True):
        there = BEFORE[before]()
        dtype = torch.float32 if there is None else there.dtype
        x = torch.ones(2, dtype=dtype, requires_grad=True)
        y = x if is_leaf else x * 2
        if not is_leaf:
            y.retain_grad()
        y.grad = there
        loss = (y * y).sum()
        loss = private(loss.real if loss.is_complex() else loss)
        if fails:
            loss.register_hook(refuse)
        flags = {"create_graph": create_graph}
        run_private_pass(torch.Tensor.backward, (loss,), flags, ANN, Shown(y), "bob", None)
        memories: dict[int, int] = {}
        assert x.grad is not None and y.grad is not None
        looks.append([_look(each, memories) for each in (x.grad, y.grad)])
    assert looks[0] == looks[1]


def test_a_private_gradient_that_a_hook_takes_away_is_no_more() -> None:
    """A program of the worker's owner may step, and free the gradient, while the pass runs."""
    w = leaf()
    run(torch.Tensor.backward, loss_of(w))
    taken: list[Any] = []

    def take(parameter: torch.Tensor) -> None:
        taken.append(parameter.grad)
        parameter.grad = None

    handle = w.register_post_accumulate_grad_hook(take)
    public(torch.Tensor.backward, (w * 2).sum())
    handle.remove()
    assert w.grad is None and taken[0].tolist() == [5, 7]


def test_a_private_flag_of_a_pass_is_refused() -> None:
    x = torch.ones(2, requires_grad=True)
    loss = (x * 2).sum()
    retain = torch.tensor(True)
    for value in (loss, retain):
        protect(value, ANN)
    call = torch.Tensor.backward, (loss,), {"retain_graph": retain}, ANN, NoHoldings(), "bob", None
    with pytest.raises(PermissionDenied, match="a private retain_graph"):
        run_private_pass(*call)
    assert x.grad is None
