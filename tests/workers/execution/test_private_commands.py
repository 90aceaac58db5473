"""One command on private values: its results and effects are as private as its inputs."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import PermissionDenied
from syft.ops.table import BY_NAME, FLAGS, FUNCTIONS, NAMES, OpFlag
from syft.workers.execution.backward_passes import run_public_pass
from syft.workers.execution.moved_memory import Moves, NoHoldings
from syft.workers.execution.private_commands import guard_for, run_guarded
from syft.workers.execution.public_sizes import note_sizes, public_size, sizes_at_most
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect

ANN = Guard(frozenset({"ann"}))


class Arguments(NoHoldings):
    """What holds tensors here: nothing; the latest moves are kept."""

    latest = Moves()

    def moved(self, moves: Moves) -> None:
        self.latest = moves

    def now(self, tensor: torch.Tensor) -> torch.Tensor:
        """What a tensor was moved to by the latest operation that moved any."""
        found: torch.Tensor = self.latest.of(tensor)
        return found


HOLDINGS = Arguments()


def guarded(name: str, *args: Any, user: str | None = None, **kwargs: Any) -> Any:
    """Run an operation of the table on guarded arguments."""
    number = BY_NAME[name]
    guard = guard_for(list(args), kwargs)
    assert guard is not None
    return run_guarded(
        FUNCTIONS[number], list(args), kwargs, FLAGS[number], guard, HOLDINGS, "bob", user
    )


def private(*values: float) -> torch.Tensor:
    tensor = torch.tensor(values)
    protect(tensor, ANN)
    return tensor


def test_results_of_every_shape_are_guarded() -> None:
    secret = private(1.0, 2.0)
    assert full_guard_of(guarded("torch.Tensor.add", secret, 1)) == ANN
    assert [full_guard_of(part) for part in guarded("torch.Tensor.max", secret, 0)] == [ANN, ANN]
    assert [full_guard_of(part) for part in guarded("torch.Tensor.unbind", secret)] == [ANN, ANN]


def test_a_plain_value_is_for_its_users_only() -> None:
    secret = private(1.0)
    with pytest.raises(PermissionDenied, match="an operation that re(turn|ad)s its value"):
        guarded("torch.Tensor.item", secret)
    assert guarded("torch.Tensor.item", secret, user="ann") == 1.0
    assert guarded("torch.Tensor.shape.__get__", secret) == (1,)
    assert guarded("torch.Tensor.__setitem__", secret, 0, 5.0) is None


def test_a_hidden_shape_tells_dtype_and_device_only() -> None:
    secret = private(1.0)
    protect(secret, Guard(frozenset({"ann"}), shape_hidden=True))
    assert guarded("torch.Tensor.dtype.__get__", secret) is torch.float32
    assert guarded("torch.Tensor.device.__get__", secret) == torch.device("cpu")
    with pytest.raises(PermissionDenied):
        guarded("torch.Tensor.shape.__get__", secret)


def test_what_is_written_is_guarded_and_what_is_only_read_is_not() -> None:
    secret, target, read = private(1.0, 2.0), torch.zeros(2), torch.ones(2)
    alias = target.view(2, 1)
    guarded("torch.addcmul", target, secret, read, out=target)
    assert full_guard_of(HOLDINGS.now(target)) == ANN
    assert full_guard_of(read) is full_guard_of(target) is full_guard_of(alias) is None
    assert target.tolist() == [0, 0], "what a graph saved is as it was"


def test_what_has_no_prediction_moves_what_it_may_write_for_those_who_may_see_the_values() -> None:
    sparse = torch.eye(2).to_sparse()
    protect(sparse, ANN)
    target = torch.zeros(2, 2)
    made = guarded("torch.Tensor.add_", target, sparse, user="ann")
    assert made is HOLDINGS.now(target) and full_guard_of(made) == ANN
    assert full_guard_of(target) is None and not target.any()
    logged = sy.LoggingTensor().on(private(1.0, 2.0).view(2, 1))
    mean, variance = torch.zeros(1), torch.ones(1)
    statistics = logged, mean, variance
    guarded("torch.nn.functional.batch_norm", *statistics, training=True, user="ann")
    assert full_guard_of(HOLDINGS.now(mean)) == full_guard_of(HOLDINGS.now(variance)) == ANN
    assert full_guard_of(variance) is None and variance.item() == 1
    with pytest.raises(PermissionDenied, match=", an operation on a chain"):
        guarded("torch.nn.functional.batch_norm", *statistics, training=True)
    public = sy.LoggingTensor().on(torch.zeros(2))
    with pytest.raises(PermissionDenied, match=", a write to memory that a chain"):
        guarded("torch.Tensor.add_", public, private(1.0, 2.0), user="ann")
    own = sy.LoggingTensor().on(private(1.0, 2.0))
    guarded("torch.Tensor.add_", own, 1, user="ann")
    assert full_guard_of(own) == ANN and full_guard_of(public) is None


def test_a_chain_tells_neither_a_value_nor_a_shape_that_follows_from_one() -> None:
    logged = sy.LoggingTensor().on(private(1.0, 2.0))
    with pytest.raises(PermissionDenied, match=", an operation on a chain"):
        guarded("torch.equal", logged, logged)
    assert guarded("torch.equal", logged, logged, user="ann") is True
    part = guarded("torch.Tensor.__getitem__", logged, torch.tensor([True, False]), user="ann")
    assert full_guard_of(part).shape_hidden


def test_a_result_of_a_chain_in_public_memory_is_copied() -> None:
    inner = torch.ones(2)
    public = sy.LoggingTensor().on(inner)
    made = guarded("torch.Tensor.expand_as", public, private(1.0, 2.0), user="ann")
    assert full_guard_of(made) == ANN and full_guard_of(inner) is None


def test_what_shares_the_memory_of_a_chain_is_not_moved() -> None:
    target = torch.zeros(2)
    logged = sy.LoggingTensor().on(target)

    class Chain(Arguments):
        def sharing(self, places: Any) -> tuple[torch.Tensor, ...]:
            return (logged,)

    call = torch.Tensor.add_, [target, private(1.0, 2.0)], {}, OpFlag.INPLACE, ANN
    for user in (None, "ann"):
        with pytest.raises(PermissionDenied, match=", a write to memory that a chain"):
            run_guarded(*call, Chain(), "bob", user)
    assert target.tolist() == [0, 0] and full_guard_of(target) is None


def test_a_failure_is_raised_for_those_who_may_see_the_values() -> None:
    secret, index = private(1.0, 2.0), torch.tensor([7])
    with pytest.raises(IndexError):
        guarded("torch.take", secret, index, user="ann")
    assert guarded("torch.take", secret, index).tolist() == [0]


def hidden(*values: float) -> torch.Tensor:
    tensor = torch.tensor(values)
    protect(tensor, Guard(frozenset({"ann"}), shape_hidden=True))
    note_sizes(tensor, (7,))
    return tensor


def test_a_failure_that_follows_from_a_hidden_shape_is_sealed() -> None:
    fits = guarded("torch.Tensor.add", hidden(1.0, 2.0, 3.0), torch.ones(3))
    fails = guarded("torch.Tensor.add", hidden(1.0, 2.0), torch.ones(3, requires_grad=True))
    assert fits.tolist() == [2, 3, 4] and fails.shape == (3,) and fails.requires_grad
    guards = [full_guard_of(tensor) for tensor in (fits, fails)]
    assert guards == [ANN, ANN], "there are three elements, or it fails"
    assert [guard is not None and type(guard.error) for guard in guards] == [
        type(None),
        RuntimeError,
    ]
    target = torch.zeros(3)
    sealed = guarded("torch.Tensor.add_", target, hidden(1.0, 2.0))
    guard = full_guard_of(sealed)
    assert guard is not None and guard.error is not None and sealed.shape == (3,)
    chosen = guarded("torch.Tensor.masked_select", hidden(1.0, 2.0), torch.ones(3) > 0)
    guard = full_guard_of(chosen)
    assert guard is not None and guard.shape_hidden and guard.error is not None
    with pytest.raises(RuntimeError, match="broadcast"):  # these shapes are public
        guarded("torch.Tensor.masked_select", private(1.0, 2.0), torch.ones(3) > 0)


def test_what_runs_for_some_sizes_only_is_refused_for_hidden_ones() -> None:
    for name, args in (
        ("torch.Tensor.view", (2, 1)),
        ("torch.Tensor.split", (1,)),
        ("torch.Tensor.item", ()),
    ):
        with pytest.raises(PermissionDenied):
            guarded(name, hidden(1.0, 2.0), *args)
    assert guarded("torch.Tensor.view", hidden(1.0, 2.0), 2, 1, user="ann").shape == (2, 1)


def test_other_layouts_are_refused_for_those_who_may_not_see_the_values() -> None:
    sparse = torch.eye(2).to_sparse()
    protect(sparse, ANN)
    with pytest.raises(PermissionDenied, match="a tensor of another layout"):
        guarded("torch.Tensor.to_dense", sparse)
    assert guarded("torch.Tensor.layout.__get__", sparse) is torch.sparse_coo
    assert guarded("torch.Tensor.to_dense", sparse, user="ann").tolist() == [[1, 0], [0, 1]]


def test_an_inference_tensor_is_guarded_when_it_is_written() -> None:
    with torch.inference_mode():
        target = torch.zeros(2)
    guarded("torch.Tensor.add", private(1.0, 2.0), target)
    assert full_guard_of(target) is None
    with torch.inference_mode():
        guarded("torch.Tensor.add_", target, private(1.0, 2.0))
    moved = HOLDINGS.now(target)
    assert full_guard_of(moved) == ANN and moved.tolist() == [1, 2] and moved.is_inference()
    assert full_guard_of(target) is None and target.tolist() == [0, 0]


def test_a_shape_that_its_users_choose_by_a_value_is_hidden_from_others() -> None:
    number, values = torch.tensor(2), torch.arange(9.0)
    protect(number, ANN)
    mask = values > 3
    protect(mask, ANN)
    row = torch.tensor([2])
    protect(row, ANN)
    for index in (number, slice(number), (slice(None, number),), slice(row), mask):
        result = guarded("torch.Tensor.__getitem__", values, index, user="ann")
        guard = full_guard_of(result)
        assert guard is not None and guard.shape_hidden
    made = full_guard_of(guarded("torch.zeros", number, user="ann"))
    assert made is not None and made.shape_hidden
    logged = sy.LoggingTensor().on(private(1.0, 0.0))
    found = full_guard_of(guarded("torch.nonzero", logged, user="ann"))
    assert found is not None and found.shape_hidden
    plain = full_guard_of(guarded("torch.add", torch.ones(2), number, user="ann"))
    assert plain is not None and not plain.shape_hidden


def test_running_statistics_are_found_by_their_values() -> None:
    secret = private(1.0, 2.0).view(2, 1)
    protect(secret, ANN)
    mean, variance, weight = torch.zeros(1), torch.ones(1), torch.ones(1)
    arguments = (secret, mean, variance, weight)
    guarded("torch.nn.functional.batch_norm", *arguments, training=False)
    assert [full_guard_of(tensor) for tensor in arguments[1:]] == [None] * 3
    guarded("torch.nn.functional.batch_norm", *arguments, training=True)
    now = [full_guard_of(HOLDINGS.now(tensor)) for tensor in arguments[1:]]
    assert now == [ANN, ANN, None] and mean.item() == 0, "the old ones keep their values"


def test_gradients_are_guarded_by_what_they_were_added_to() -> None:
    weight = torch.ones(2, requires_grad=True)
    untouched = torch.ones(2, requires_grad=True)
    loss = (weight * private(1.0, 2.0)).sum()
    protect(loss, ANN)
    guarded("torch.Tensor.backward", loss)
    assert full_guard_of(weight.grad) == ANN and full_guard_of(untouched.grad) is None
    public = (weight * 2).sum() + untouched.sum()
    run_public_pass(torch.Tensor.backward, [public], {}, HOLDINGS)
    assert full_guard_of(weight.grad) == ANN and full_guard_of(untouched.grad) is None
    logged = sy.LoggingTensor().on((untouched * 2).sum())
    protect(logged, ANN)
    guarded("torch.Tensor.backward", logged)
    assert full_guard_of(untouched.grad) == ANN


COUNTING: list[tuple[Any, ...]] = [(), (1,), (2,), (3,), ([1, 1],)]


def _count(name: str, size: int, extra: tuple[Any, ...]) -> int | None:
    try:
        result = FUNCTIONS[BY_NAME[name]](torch.ones(size, size), *extra)  # type: ignore[misc]
    except (RuntimeError, TypeError, ValueError, IndexError):
        return None  # it does not take these
    return len(result) if isinstance(result, (tuple, list)) else None


PARTS = re.compile(r".*(split|chunk|unbind|topk|sort|max|median|aminmax|mode|qr|slogdet).*")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_count_of_results_that_tells_a_hidden_size_is_refused() -> None:
    hidden = torch.ones(4, 4)
    protect(hidden, Guard(frozenset({"ann"}), shape_hidden=True))
    note_sizes(hidden, (4, 4))
    telling = set()
    for name in filter(PARTS.fullmatch, NAMES):
        number = BY_NAME.get(name)
        if number is None or FUNCTIONS[number] is None or FLAGS[number] & OpFlag.ONE:
            continue
        for extra in COUNTING:
            if (few := _count(name, 4, extra)) is None:
                continue
            if few != _count(name, 8, extra):
                telling.add(name)
                with pytest.raises(PermissionDenied):
                    guarded(name, hidden, *extra, user="eve")
                assert len(guarded(name, hidden, *extra, user="ann")) == few
    assert len(telling) >= 12 and {"torch.unbind", "torch.Tensor.split", "torch.chunk"} <= telling


def test_other_results_of_a_hidden_size_come_as_they_are() -> None:
    hidden = torch.ones(4, 4)
    protect(hidden, Guard(frozenset({"ann"}), shape_hidden=True))
    note_sizes(hidden, (4, 4))
    values, _ = guarded("torch.max", hidden, 0, user="eve")
    assert full_guard_of(values) == Guard(frozenset({"ann"}), shape_hidden=True)


HIDDEN = Guard(frozenset({"ann"}), shape_hidden=True)


def bounded(tensor: torch.Tensor, most: tuple[int, ...], guard: Guard = HIDDEN) -> torch.Tensor:
    """A tensor of a private shape that is public up to its sizes at most."""
    protect(tensor, guard)
    note_sizes(tensor, most)
    return tensor


def in_one_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata


@pytest.mark.parametrize("error", [None, ValueError("no")])
@pytest.mark.parametrize(
    "name, args, most",
    [("unsqueeze", (0,), (1, 7, 2)), ("t", (), (2, 7)), ("select", (1, 0), (7,))],
)
def test_a_view_of_a_private_shape_lies_in_that_memory(
    name: str, args: tuple[Any, ...], most: tuple[int, ...], error: Exception | None
) -> None:
    guard = HIDDEN if error is None else HIDDEN.sealed(error)
    base = bounded(torch.ones(3, 2), (7, 2), guard)
    view = guarded(f"torch.Tensor.{name}", base, *args, user="eve")
    assert in_one_memory(view, base) and full_guard_of(view) == guard
    assert sizes_at_most(view) == most
    assert view.shape == getattr(torch.ones(3, 2), name)(*args).shape


def test_a_view_that_fails_in_secret_is_one_of_nothing_in_that_memory() -> None:
    """An element that is not there is zero; with it there is one more byte of memory in use."""
    empty, filled = bounded(torch.empty(0), (7,)), bounded(torch.ones(1), (7,))
    found, other = (guarded("torch.Tensor.select", one, 0, 0) for one in (empty, filled))
    assert in_one_memory(found, empty) and found.tolist() == 0 and other.tolist() == 1
    assert found.shape == other.shape == () and sizes_at_most(found) == sizes_at_most(other) == ()
    guard = full_guard_of(found)
    assert guard is not None and guard.shape_hidden and type(guard.error) is IndexError
    assert full_guard_of(other) == HIDDEN


def test_a_generator_draws_from_the_system_where_that_it_draws_is_private() -> None:
    generator = torch.Generator().manual_seed(5)
    before = generator.get_state()
    first, second = (
        guarded("torch.bernoulli", bounded(torch.full((64,), 0.5), (64,)), generator=generator)
        for _ in range(2)
    )
    assert torch.equal(generator.get_state(), before), "nobody sees that there was a command"
    assert not torch.equal(first, second)


def test_a_bound_of_what_others_share_is_that_of_its_memory() -> None:
    base = bounded(torch.ones(3), (7,))
    view = base.detach()
    note_sizes(view, (7,), in_own_memory=False)
    guarded("torch.Tensor.resize_as_", view, base)
    assert sizes_at_most(view) == (7,) and public_size(view).memory == public_size(base).memory


def test_a_conversion_asked_for_as_a_type_is_private_in_every_layout() -> None:
    """``x.type()`` is a question, and ``x.type(dtype)`` is none."""
    for secret in (torch.tensor([1.5, 0.0]), torch.tensor([1.5, 0.0]).to_sparse()):
        protect(secret, ANN)
        assert guarded("torch.Tensor.type", secret, user="eve").endswith("FloatTensor")
        made = guarded("torch.Tensor.type", secret, torch.int64, user="eve")
        assert full_guard_of(made) == ANN and made.to_dense().tolist() == [1, 0]
