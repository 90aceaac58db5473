"""The fast way of private commands: as the general one, or not taken."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.ops.evaluate import evaluate
from syft.ops.table import BY_NAME, FLAGS, FRESH
from syft.workers.execution import private_results as module
from syft.workers.execution.moved_memory import NoHoldings
from syft.workers.execution.predicted_run import run_predicted
from syft.workers.execution.private_results import (
    NOTHING,
    UNCLEAR,
    common_guard,
)
from syft.workers.execution.public_sizes import public_size
from syft.workers.handlers import commands
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, label_of, protect

ANN, BEA = Guard(frozenset({"ann"})), Guard(frozenset({"bea"}))
HIDDEN = Guard(frozenset({"ann"}), shape_hidden=True)


def private_result(function: Any, values: Any, guard: Guard, **named: Any) -> Any:
    return module.private_result(function, values, named, guard)


def private(tensor: torch.Tensor, guard: Guard = ANN) -> torch.Tensor:
    protect(tensor, guard)
    return tensor


def test_the_guard_of_values() -> None:
    x = private(torch.ones(2))
    assert common_guard([torch.ones(2), 3, None, "text"]) is None
    assert common_guard([x, 3, torch.ones(1), x[:1]]) == ANN
    assert common_guard([x, private(torch.ones(2))]) == ANN
    assert common_guard([1, [x, torch.ones(1)]]) == ANN
    other = private(torch.ones(2), BEA)
    strange = [other, [other], [(1, 2)], (1, 2), torch.eye(2).to_sparse(), torch.float32]
    assert all(common_guard([x, other]) is UNCLEAR for other in strange)
    for guard in (ANN.sealed(ValueError()), Guard(frozenset({"ann"}), shape_hidden=True)):
        assert common_guard([private(torch.ones(2), guard)]) is UNCLEAR


def test_a_guard_on_a_tensor_or_its_memory_is_found() -> None:
    x = torch.ones(2)
    view = private(x[:1])
    assert full_guard_of(x) == full_guard_of(view) == ANN
    protect(view, BEA)
    assert full_guard_of(x) == full_guard_of(x) == full_guard_of(view)


def test_what_is_made_is_guarded_and_in_memory_of_its_own() -> None:
    x, w = private(torch.ones(2)), torch.ones(2, requires_grad=True)
    for _ in range(2):
        result = private_result(torch.mul, (x, w), ANN)
        assert result is not NOTHING and result.requires_grad and full_guard_of(result) == ANN
    assert full_guard_of(w) is None


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (torch.Tensor.t_, (torch.ones(2, 3),)),
        (torch.bernoulli, (torch.ones(2),)),
        (torch.Tensor.view, (torch.ones(2), 1, 2)),
        (torch.Tensor.contiguous, (torch.ones(2),)),
        (torch.max, (torch.ones(2, 2), 0)),
        (torch.repeat_interleave, (torch.tensor([1, 2]),)),
        (torch.bincount, (torch.tensor([1, 2]),)),
        (torch.masked_select, (torch.ones(2, requires_grad=True), torch.tensor([True, False]))),
        (torch.add, (torch.ones(2), torch.ones(3))),
        (torch.take, (torch.ones(2), torch.tensor([7]))),
        (torch.Tensor.item, (torch.ones(1),)),
    ],
)
def test_other_commands_take_the_general_path(function: Any, args: Any) -> None:
    private(args[0])
    for _ in range(2):
        assert private_result(function, args, ANN) is NOTHING


@pytest.mark.parametrize("mask", [[True, False, True], [False] * 3, [True] * 3])
@pytest.mark.parametrize("function", [torch.Tensor.__getitem__, torch.masked_select, torch.nonzero])
def test_a_result_of_a_private_size_has_the_labels_of_the_general_way(
    function: Any, mask: list[bool]
) -> None:
    x, rows = private(torch.arange(3.0)), private(torch.tensor(mask))
    args = (x * 1, rows) if function is not torch.nonzero else (rows,)
    private(args[0])
    quick = private_result(function, args, ANN)
    slow = run_predicted(
        function, args, {}, evaluate(function, args, {}), HIDDEN, NoHoldings(), True
    )
    assert quick is not NOTHING and quick.equal(slow) and quick.equal(function(*args))
    assert label_of(quick) == label_of(slow) and label_of(quick).most is not None
    places = quick.untyped_storage(), slow.untyped_storage()
    assert label_of(places[0]) == label_of(places[1]) and full_guard_of(quick) == HIDDEN
    assert public_size(quick).bounded


def test_a_result_that_is_larger_than_its_bound_takes_the_general_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = private(torch.ones(3))
    results = iter([torch.ones(2, 1), torch.ones(4, 1), torch.ones(2), torch.ones(3, 1)[:2]])

    def made(x: torch.Tensor) -> Any:
        return x.nonzero() if type(x) is not torch.Tensor else next(results).long()

    monkeypatch.setattr(module, "evaluate", lambda *call: evaluate(torch.nonzero, *call[1:]))
    found = [private_result(made, (x,), ANN) for _ in range(3)]
    assert [result is NOTHING for result in found] == [False, True, True]


def test_what_is_not_as_predicted_takes_the_general_path(monkeypatch: pytest.MonkeyPatch) -> None:
    x = private(torch.ones(2))
    results = iter([x + 1, x.double(), torch.ones(3), None, (x + 1).requires_grad_()])

    def made(x: torch.Tensor) -> Any:
        return x + 1 if type(x) is not torch.Tensor else next(results)

    found = [private_result(made, (x,), ANN) for _ in range(5)]
    assert [result is NOTHING for result in found] == [False, True, True, True, True]


def test_what_writes_to_memory_of_its_guard_runs_in_place() -> None:
    x, y, public = private(torch.ones(2)), private(torch.ones(2)), torch.ones(2)
    assert private_result(torch.Tensor.add_, (x, public), ANN, alpha=2) is x
    assert x.tolist() == [3, 3] and full_guard_of(public) is None
    for scale in (0.5, 0.25):
        written = private_result(torch._foreach_mul_, ([x, y], scale), ANN)
        assert written[0] is x and written[1] is y, "else the general path would write again"
    assert x.tolist() == [0.375] * 2 and y.tolist() == [0.125] * 2
    assert private_result(torch.Tensor.__setitem__, (x, 0, 7.0), ANN) is None
    assert x.tolist() == [7, 0.375]


@pytest.mark.parametrize("other", [torch.ones(2), private(torch.ones(2), BEA)])
def test_what_would_write_to_other_memory_takes_the_general_path(other: torch.Tensor) -> None:
    x = private(torch.ones(2))
    assert private_result(torch.Tensor.add_, (other, x), ANN) is NOTHING
    assert private_result(torch._foreach_mul_, ([x, other], 2.0), ANN) is NOTHING
    assert other.tolist() == x.tolist() == [1, 1]


def test_integers_and_truths_are_written_in_place_where_no_failure_comes_half_way() -> None:
    x, mask = private(torch.arange(3)), private(torch.tensor([True, False, True]))
    for function, args in (
        (torch.Tensor.add_, (x, 1)),
        (torch.Tensor.masked_fill_, (x, mask, 0)),
        (torch.Tensor.logical_not_, (mask,)),
    ):
        assert private_result(function, args, ANN) is args[0]
    assert x.tolist() == [0, 2, 0] and mask.tolist() == [False, True, False]
    for function, args in (
        (torch.Tensor.floor_divide_, (x, x + 1)),
        (torch.Tensor.index_fill_, (x, 0, x, 7)),
    ):
        assert private_result(function, args, ANN) is NOTHING


def test_a_write_that_fails_takes_the_general_path() -> None:
    x, index = private(torch.ones(2)), private(torch.tensor([7]))
    assert private_result(torch.Tensor.put_, (x, index, x[:1]), ANN) is NOTHING
    with torch.autocast("cpu"):
        assert private_result(torch.Tensor.add_, (x, 1), ANN) is NOTHING


def test_what_is_kept_is_not_for_a_call_with_a_tensor_in_two_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its places are others: here the second factor would be taken for what is written."""
    for first in (False, True):  # the call with one tensor twice comes later, or earlier
        monkeypatch.setattr(module, "_KEPT", {})
        x, public = private(torch.ones(2)), torch.zeros(2)
        own = {"tensor1": torch.ones(2), "out": private(torch.ones(2)), "tensor2": x}
        twice = {"tensor1": public, "out": public * 1, "tensor2": x}
        calls = [(torch.zeros(2), own), (public, twice)]
        for total, named in reversed(calls) if first else calls:
            made = private_result(torch.addcmul, (total,), ANN, **named)
            assert made is (NOTHING if named is twice else own["out"])
        assert twice["out"].tolist() == [0, 0] and full_guard_of(twice["out"]) is None


@pytest.mark.parametrize("name", ["index_add_", "scatter_add_"])
@pytest.mark.parametrize("alone", [False, True], ids=["several users", "one user"])
@pytest.mark.parametrize("hidden", [False, True], ids=["public", "private"])
def test_a_write_that_fails_half_way_has_run_once(
    hook: sy.TorchHook, name: str, alone: bool, hidden: bool
) -> None:
    """What it has written till then is there once, as in torch."""
    bob = sy.VirtualWorker(hook, id="bob")
    ann = bob.as_user("ann")
    beas = None if alone else torch.ones(1).send(bob.as_user("bea"))
    numbers = torch.zeros(3), torch.tensor([0, 7]), torch.ones(2)
    given = [(one.private_tensor(["ann"]) if hidden else one).send(ann) for one in numbers]
    wanted = torch.zeros(3)
    for target, index, source in ((wanted, *numbers[1:]), given):
        with pytest.raises((IndexError, RuntimeError), match="out of"):
            getattr(target, name)(0, index, source)
    assert given[0].get().tolist() == wanted.tolist() == [1, 0, 0]
    del beas


def test_floats_that_only_scale_share_a_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT", {})
    x = private(torch.ones(2))
    for number in (0.1, 0.2, 3):
        private_result(torch.mul, (x, number), ANN)
        private_result(torch.Tensor.fill_, (x, number), ANN)
    assert len(module._KEPT) == 2 + 3


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_KEPT", 2)
    x = private(torch.ones(2))
    for number in range(9):
        assert private_result(torch.add, (x, number), ANN) is not NOTHING
        assert len(module._KEPT) <= 2


def test_what_is_in_larger_memory_or_an_operand_is_for_the_general_path() -> None:
    """A key does not tell these apart."""
    x = private(torch.ones(2, dtype=torch.complex64))

    def part(x: torch.Tensor) -> torch.Tensor:
        size = 4 if x.is_conj() else 2
        return torch.zeros(size)[:2].detach() if size == 4 else torch.zeros(2)

    assert private_result(part, (x,), ANN).tolist() == [0, 0]
    assert private_result(part, (private(torch.ones(2, dtype=torch.complex64).conj()),), ANN) is (
        NOTHING
    )
    lazy = private(torch.ones(3, dtype=torch.complex64).conj())
    assert private_result(torch.resolve_conj, (lazy,), ANN).tolist() == [1, 1, 1]
    plain = private(torch.ones(3, dtype=torch.complex64))
    assert private_result(torch.resolve_conj, (plain,), ANN) is NOTHING
    with torch.inference_mode():
        assert private_result(torch.add, (x, 1), ANN) is NOTHING


def test_several_new_tensors() -> None:
    x, y = private(torch.ones(2)), private(torch.full((3,), 4.0))
    roots = private_result(torch._foreach_sqrt, ([x, y],), ANN)
    assert [root.tolist() for root in roots] == [[1, 1], [2, 2, 2]]
    assert all(full_guard_of(root) == ANN for root in roots)
    assert type(private_result(torch.unbind, (x,), ANN)) is object, "views of an operand"
    made = [[torch.ones(2)], [torch.ones(2), torch.ones(3)[:2]], (torch.ones(2), torch.ones(2))]

    def several(x: torch.Tensor) -> Any:
        return made.pop() if made and x.is_conj() else [torch.ones(2), torch.ones(2)]

    z = private(torch.ones(2, dtype=torch.complex64))
    assert len(private_result(several, (z,), ANN)) == 2
    for _ in range(3):
        assert private_result(several, (private(z.clone().conj()),), ANN) is NOTHING


def test_what_is_charged_for_a_private_size_is_its_bound(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the op table says of the operation that made it."""
    op = BY_NAME["torch.masked_select"]
    flags = [*FLAGS[:op], FLAGS[op] | FRESH, *FLAGS[op + 1 :]]
    monkeypatch.setattr(commands, "FLAGS", flags)
    found = []
    for kept in (0, 10, 10_000):
        bob = sy.VirtualWorker(hook, id="bob")
        values = torch.where(torch.arange(10_000) < kept, 1.0, -1.0)
        x = values.private_tensor(["ann"]).send(bob.as_user("ann"))
        held = [x[x > 0], torch.masked_select(x, x > 0), torch.nonzero(x > 0)]
        charged = bob.core.store.charges.charged.values()
        found.append([(charge.account.objects, charge.account.bytes) for charge in charged])
        del held
    assert found[0] == found[1] == found[2] != []
