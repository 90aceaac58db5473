"""What an operation reads and makes is found without running it on anybody's values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as replaced
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import LimitExceeded
from syft.ops.nested import leaves, replace
from syft.ops.table import BY_NAME, FUNCTIONS, ops_where
from syft.workers.core.peer_limits import PeerLimits
from syft.workers.execution import allowance
from syft.workers.execution.allowance import pieces, used_by
from syft.workers.execution.private_commands import run_guarded
from syft.workers.execution.public_sizes import sizes_at_most
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect


def use(name: str, *args: Any, **kwargs: Any) -> Any:
    op = BY_NAME[name]
    return used_by(op, FUNCTIONS[op], list(args), kwargs)  # type: ignore[arg-type]


def real(name: str, *args: Any, **kwargs: Any) -> tuple[int, int]:
    """The elements and bytes of the results of a call."""
    function: Any = FUNCTIONS[BY_NAME[name]]
    copies = replace(args, lambda leaf: leaf.clone() if torch.is_tensor(leaf) else leaf)
    made = [leaf for leaf in leaves(function(*copies, **kwargs)) if isinstance(leaf, torch.Tensor)]
    parts: list[torch.Tensor] = []
    for each in made:
        parts += [each] if each.layout is torch.strided else [each._indices(), each._values()]
    sizes = [part.untyped_storage().nbytes() for part in parts]
    return sum(map(torch.Tensor.numel, parts)), sum(sizes)


COLUMN, ROW = torch.rand(60, 1), torch.rand(1, 50)
SPECTRUM = torch.stft(torch.rand(400), 40, window=torch.ones(40), return_complex=True)
WEIGHTS = torch.ones(1, dtype=torch.int64)

UNTOLD: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("torch.cov", (COLUMN,), {}),
    ("torch.cov", (COLUMN,), {"fweights": WEIGHTS}),
    ("torch.corrcoef", (COLUMN,), {}),
    ("torch.geqrf", (ROW,), {}),
    ("torch.Tensor.to_sparse", (COLUMN,), {}),
    ("torch.Tensor.to_sparse", (COLUMN.view(3, 4, 5),), {}),
    ("torch.masked_select", (COLUMN, COLUMN > 0), {}),
    ("torch.masked_select", (COLUMN, ROW > -1), {}),
    ("torch.nonzero", (COLUMN,), {}),
    ("torch.Tensor.__getitem__", (COLUMN, COLUMN > 0), {}),
    ("torch.unique", (COLUMN,), {}),
    ("torch.unique", (COLUMN,), {"return_inverse": True, "return_counts": True}),
    ("torch.linalg.lstsq", (ROW, ROW), {}),
    ("torch.istft", (SPECTRUM, 40), {}),
    ("torch.histogramdd", (torch.rand(3, 3), [5, 6, 7]), {}),
    ("torch.histogramdd", (torch.rand(3, 3), [torch.arange(5.0)] * 3), {}),
    ("torch.histogramdd", (torch.rand(3, 3), 5), {}),
    ("torch.repeat_interleave", (COLUMN, 5), {}),
    ("torch.combinations", (COLUMN[:, 0],), {}),
]
"""Operations whose sizes follow from values, or for which torch has no kernel without values."""


@pytest.mark.filterwarnings("ignore")  # torch warns of few observations, and of windows
@pytest.mark.parametrize("case", UNTOLD, ids=lambda case: str(case[0]))
def test_no_operation_makes_more_than_it_is_said_to(case: Any) -> None:
    name, args, kwargs = case
    elements, nbytes = real(name, *args, **kwargs)
    said = use(name, *args, **kwargs)
    assert said.elements >= elements > 0 and said.peak >= nbytes > 0


SQUARES: dict[str, Callable[[Any], Any]] = {
    "cov": torch.cov,
    "corrcoef": torch.corrcoef,
    "lstsq": lambda x: torch.linalg.lstsq(x.t(), x.t()),
    "masked_select": lambda x: torch.masked_select(x, x.t() > 0),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SQUARES)
def test_what_makes_the_square_of_what_it_reads_is_refused(hook: sy.TorchHook, name: str) -> None:
    dan = sy.VirtualWorker(hook, id="dan", peer_limits=PeerLimits(elements=1 << 16))
    large, small = torch.ones(512, 1).send(dan), torch.ones(8, 1).send(dan)
    with pytest.raises(LimitExceeded, match="peer_limits.elements"):
        SQUARES[name](large)
    assert SQUARES[name](small) is not None


def test_reading_for_use_takes_public_numbers() -> None:
    """A size in a tensor is taken as it is, and the device does not matter."""
    assert use("torch.zeros", torch.tensor(10**9)).elements == 10**9 + 1
    assert use("torch.zeros", 10, device=torch.device("cpu")).elements == 10
    assert use("torch.zeros", 10, device="cuda").elements == 10
    assert use("torch.zeros", 10**5, device=0).elements >= 10**5  # fake tensors know no such device


def test_memory_that_an_operand_gets_is_told() -> None:
    assert use("torch.Tensor.resize_", torch.ones(4), 10**9).peak == 4 * (10**9 - 4)


def test_what_has_no_prediction_is_what_is_read() -> None:
    sparse = torch.eye(3).to_sparse()
    assert use("torch.Tensor.sum", sparse).elements == 18
    assert use("torch.zeros", {1}).elements >= 1  # a set has no hash, and is no size
    assert use("torch.Tensor.backward", torch.ones(5)).elements == 5


@pytest.mark.parametrize("name, many", [("mul_", 2), ("add_", 2), ("logical_not_", 1), ("neg_", 1)])
def test_an_operation_that_is_measured_writes_to_no_operand(name: str, many: int) -> None:
    x = torch.tensor(3)
    use(f"torch.Tensor.{name}", *[x] * many)
    assert x.item() == 3


def test_an_integer_that_is_written_under_limits_is_written_once(hook: sy.TorchHook) -> None:
    limits = PeerLimits(objects=20, bytes=1 << 20, elements=1 << 10)
    dan = sy.VirtualWorker(hook, id="dan", peer_limits=limits)
    large, x = torch.ones(1 << 9, 1).send(dan), torch.tensor(2).send(dan)
    for power in (4, 16, 256):
        x.mul_(x)
        assert x.copy().get().item() == power
    del large


def test_an_integer_that_is_no_size_hides_no_memory() -> None:
    x, mask = torch.ones(100), torch.ones(100, dtype=torch.bool)
    as_tensor = use("torch.masked_fill", x, mask, torch.tensor(3))
    assert as_tensor.peak == use("torch.masked_fill", x, mask, 3).peak == 400


def test_a_mask_may_be_larger_than_what_it_selects_from() -> None:
    """Torch's own bound of a selection is the size of its first operand."""
    guard = Guard(frozenset())
    private, mask = torch.ones(1), torch.ones(5, dtype=torch.bool)
    protect(private, guard)
    result = run_guarded(torch.masked_select, [private, mask], {}, 0, guard, [], "bob", None)
    assert full_guard_of(result) == replaced(guard, shape_hidden=True)
    assert result.shape == (5,) and sizes_at_most(result) == (5,)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, torch.float64, torch.bool])
def test_no_private_number_decides_what_an_operation_may_use(dtype: torch.dtype) -> None:
    small, large = (torch.tensor(value).to(dtype) for value in (3, 2.0**60))
    asked = sorted(ops_where("pieces") | ops_where("makes"))
    told = [op for op in asked if uses(op, small) != uses(op, large)]
    assert bool(told) == (dtype is torch.int64)  # public numbers do decide
    for value in (small, large):
        protect(value, Guard(frozenset({"ann"})))
    assert [op for op in asked if uses(op, small) != uses(op, large)] == []


def uses(op: int, number: torch.Tensor) -> list[Any]:
    """What a call with a number as an argument may use, wherever the number stands, and what is
    raised where no such call exists."""
    x = torch.arange(6).reshape(2, 3)
    found: list[Any] = []
    for args in ([x, number], [x, x, number], [number], [x, [number, number]]):
        try:
            function: Any = FUNCTIONS[op]
            found.append((pieces(op, args, {}), used_by(op, function, args, {})))
        except Exception as error:
            found.append((type(error), str(error)))
    return found


CUTS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *((name, (size,), {}) for name in ("split", "unsafe_split") for size in (1, 3, 100)),
    ("split", ([1, 3],), {}),
    ("split", (2, 1), {}),
    ("split", (2,), {"dim": -1}),
    ("split_with_sizes", ([1, 3],), {}),
    *(("chunk", (many,), {}) for many in (1, 3, 4, 100)),
    ("chunk", (3, 1), {}),
    ("unsafe_chunk", (2,), {"dim": 2}),
    *(("tensor_split", (many,), {"dim": 1}) for many in (1, 3, 30, [1], [1, 5, 2], (0, 0))),
    *(("tensor_split", (torch.tensor(many),), {}) for many in (1, 3, 30, [1], [1, 5, 2])),
    ("hsplit", (3,), {}),
    ("hsplit", ([1, 2],), {}),
    ("vsplit", (2,), {}),
    ("dsplit", (5,), {}),
    ("unbind", (), {}),
    ("unbind", (1,), {}),
    ("unbind", (), {"dim": -1}),
]
"""Calls that cut a tensor of 4 x 6 x 10."""


@pytest.mark.parametrize("name, args, kwargs", CUTS)
@pytest.mark.parametrize("shape", [(4, 6, 10), (0, 6, 10), (4, 6, 0)])
def test_what_is_cut_is_counted_as_torch_does_it(
    name: str, args: Any, kwargs: Any, shape: tuple[int, ...]
) -> None:
    x = torch.ones(shape)
    try:
        cut = getattr(x, name)(*args, **kwargs)
    except RuntimeError:
        return  # sizes that do not add up
    op = BY_NAME[f"torch.Tensor.{name}"]
    used = used_by(op, FUNCTIONS[op], [x, *args], kwargs)  # type: ignore[arg-type]
    assert used.results == max(1, len(cut)) and used.peak == 0
    read = sum(leaf.numel() for leaf in (x, *args) if isinstance(leaf, torch.Tensor))
    assert used.elements == read + max(x.numel(), sum(part.numel() for part in cut))
    if not any(map(torch.is_tensor, args)):
        assert pieces(op, [x, *args], kwargs) == len(cut)


def test_only_the_dimension_that_is_cut_counts(hook: sy.TorchHook) -> None:
    dan = sy.VirtualWorker(hook, id="dan", peer_limits=PeerLimits(results=50, elements=1 << 16))
    x = torch.ones(3, 1000).send(dan)
    assert len(x.split(1)) == len(x.chunk(1000)) == len(x.unbind()) == len(x.vsplit(3)) == 3
    parts = torch.tensor_split(x, torch.tensor(10).send(dan), dim=1)
    assert [part.shape[1] for part in parts] == [100] * 10
    with pytest.raises(LimitExceeded, match="peer_limits.results"):
        x.split(1, dim=1)
    with pytest.raises(LimitExceeded, match="peer_limits.results"):
        torch.tensor_split(x, torch.tensor(51).send(dan))
    empty = torch.ones(0, 3).send(dan)
    with pytest.raises(LimitExceeded, match="peer_limits.results"):
        empty.chunk(10**9)  # torch makes as many as are asked for


def test_what_is_cut_into_too_many_pieces_is_not_cut_to_see_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(allowance, "use_of", None)
    for name, args in (
        ("tensor_split", (10**9,)),
        ("split", (1,)),
        ("chunk", (10**9,)),
        ("tensor_split", (torch.tensor(10**9),)),
    ):
        op = BY_NAME[f"torch.Tensor.{name}"]
        used = used_by(op, None, [torch.ones(10**5), *args], {})  # type: ignore[arg-type]
        assert used.results >= 10**5


def test_calls_that_look_alike_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "_known", {})
    x, y = torch.ones(3, 1), torch.ones(1, 4)
    first = [
        use("torch.add", x, y),
        use("torch.Tensor.repeat", x, torch.tensor(5), 1),
        use("torch.Tensor.repeat", x, torch.tensor(7), 1),
        use("torch.cat", [x, x], dim=1),
    ]
    assert [used.peak for used in first] == [48, 60, 84, 24]
    again = [
        lambda: use("torch.add", x + 1, y),
        lambda: use("torch.Tensor.repeat", x, torch.tensor(5), 1),
        lambda: use("torch.Tensor.repeat", x, torch.tensor(7), 1),
        lambda: use("torch.cat", [x, x], dim=1),
    ]
    other = [
        lambda: use("torch.add", x.double(), y),
        lambda: use("torch.add", x.expand(3, 4), y),
        lambda: use("torch.add", y, x),
        lambda: use("torch.Tensor.repeat", x, torch.tensor(6), 1),
        lambda: use("torch.Tensor.repeat", x, 5, True),
        lambda: use("torch.cat", [x, x], dim=0),
        lambda: use("torch.cat", (x, x), dim=1),
        lambda: use("torch.cat", [x, x.clone()], dim=1),
    ]
    with monkeypatch.context() as patched:
        patched.setattr(allowance, "use_of", None)
        assert [call() for call in again] == first
        for call in other:
            with pytest.raises(TypeError):
                call()


def test_what_is_kept_of_calls_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "_known", {})
    monkeypatch.setattr(allowance, "_MOST_KNOWN", 3)
    for size in range(1, 9):
        assert use("torch.zeros", size).peak == 4 * size
    assert 0 < len(allowance._known) <= 3


def test_a_factor_in_a_tensor_is_a_size_too() -> None:
    x = torch.ones(1, 1, 3)
    given = {"scale_factor": torch.tensor(10.0**6), "recompute_scale_factor": True}
    assert use("torch.nn.functional.interpolate", x, **given).elements > 10**6


def test_chains_that_compute_here_are_under_limits(hook: sy.TorchHook) -> None:
    x = torch.ones(3, 1).fix_precision()
    assert use("torch.Tensor.expand", x, 3, 2**50).elements > 2**51
    assert use("torch.Tensor.add", sy.LoggingTensor().on(torch.ones(5)), 1).elements == 10
    repeated = x.expand(3, 10**8)
    for name in ("torch.Tensor.sum", "torch.Tensor.contiguous"):
        assert use(name, repeated).peak == 24 * 10**8
    assert use("torch.Tensor.sum", x).peak < 100 and use("torch.Tensor.t", repeated).peak == 0
