"""What fits runs as torch runs it; what does not is refused before a kernel sees it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.ops.table import BY_NAME, FUNCTIONS, NAMES
from syft.workers.execution.allowance import pieces, used_by
from syft.workers.execution.private_commands import run_guarded
from syft.workers.hardening.precautions import RUNNABLE, TABLE, TRIED, Check, Checked, Precaution
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of

ONE, TWO, THREE = torch.ones(1), torch.ones(2), torch.ones(3)
NO_PLACE = torch.full((1, 3, 3, 2), float("nan"))
LEAST = torch.tensor([-(2**63)])


def both(name: str) -> tuple[Any, Any]:
    number = BY_NAME[name]
    return RUNNABLE[number], FUNCTIONS[number]


def check_of(name: str) -> Check:
    function = RUNNABLE[BY_NAME[name]]
    assert isinstance(function, Checked)
    return function._check


ATTENTION = "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu"
ROWS = torch.arange(8.0).view(1, 1, 2, 4)[..., :2]

REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("torch.div", (LEAST, -1), {"rounding_mode": "trunc"}),
    ("torch.Tensor.div_", (LEAST.clone(), torch.tensor(-1)), {"rounding_mode": "trunc"}),
    ("torch.lcm", (LEAST, THREE.long()), {}),
    ("torch.matrix_power", (torch.eye(2), -(2**63)), {}),
    ("torch.special.laguerre_polynomial_l", (ONE, torch.tensor([2**30])), {}),
    ("torch.linalg.eigvals", (torch.full((2, 2), float("nan")),), {}),
    ("torch.Tensor.as_strided_", (TWO.clone(), (2, 9), (2**62 - 8, 1)), {}),
    ("torch.choose_qparams_optimized", (torch.ones(4), 4, -1, 0.5, 8), {}),
    ("torch._C._nn.upsample_linear1d", (torch.ones(1, 1, 4), [4], False, 1e-300), {}),
    ("torch.Tensor.resize_", (torch._efficientzerotensor(3), 4), {}),
    ("torch.native_batch_norm", (torch.ones(2, 3), None, None, ONE, THREE, True, 0.1, 1e-5), {}),
    ("torch.native_batch_norm", (torch.ones(2, 3), THREE, THREE, None, None, False, 0.1, 1e-5))
    + ({},),
    ("torch.fused_moving_avg_obs_fake_quant", (TWO, ONE, ONE, TWO, ONE, ONE, ONE, 0.1, 0, 255, 0))
    + ({},),
    ("torch._fused_adam_", ([TWO], [TWO], [TWO], [TWO], [], [ONE]), {"lr": 0.1, "amsgrad": True}),
    ("torch._fused_adagrad_", ([TWO], [TWO], [], [ONE]), {"lr": 0.1}),
    ("torch.grid_sampler_2d", (torch.ones(1, 1, 2, 2), NO_PLACE, 0, 1, False), {}),
    (
        "torch.nn.functional.grid_sample",
        (torch.ones(1, 1, 2, 2), NO_PLACE),
        {"padding_mode": "border"},
    ),
    ("torch._neg_view_copy", (torch.quantize_per_tensor(TWO, 0.1, 0, torch.qint8),), {}),
    ("torch._weight_norm", (torch.ones(40), torch.ones(5)), {}),
    ("torch._weight_norm", (torch.ones(2, 2), torch.tensor(1.0), -1), {"dim": 5}),
    ("torch.native_batch_norm", (THREE, None, None, None, None, True, 0.1, 1e-5), {}),
    ("torch.native_batch_norm", (torch.ones(2, 3), TWO, None, None, None, True, 0.1, 1e-5), {}),
    ("torch.native_batch_norm", (torch.ones(2, 3), None, THREE.long(), None, None, True, 0.1, 0.1))
    + ({},),
    ("torch._native_batch_norm_legit", (torch.ones(2, 3), None, None, False, 0.1, 1e-5), {}),
    ("torch.lu_unpack", (torch.eye(3), torch.ones(2, dtype=torch.int32)), {}),
    ("torch.linalg.ldl_solve", (torch.eye(3), torch.tensor([1, 2, -3]).int(), torch.eye(3)), {}),
    ("torch.linalg.ldl_solve", (torch.eye(3), torch.tensor([-1, 2, -3]).int(), torch.eye(3)), {}),
    ("torch._chunk_cat", ([torch.tensor(1.0)], -1, 3), {}),
    *((ATTENTION, (*[ROWS] * at, ROWS.mT, *[ROWS] * (2 - at)), {}) for at in range(3)),
    ("torch._foreach_lerp_", ([TWO], [TWO], []), {}),
    ("torch.fused_moving_avg_obs_fake_quant", (TWO, ONE, ONE, ONE, ONE, ONE, ONE, 0.1, 0, 255, 9))
    + ({},),
    ("torch._fused_sgd_", ([TWO], [THREE], []), {"lr": 0.1, "momentum": 0.0}),
    ("torch._fused_sgd_", ([TWO], [TWO], []), {"lr": 0.1, "momentum": 0.9}),
    ("torch._fused_adam_", ([TWO], [TWO], [TWO], [TWO], [], [TWO]), {"lr": 0.1}),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: str(case[0]))
def test_what_does_not_fit_is_refused(case: Any) -> None:
    name, args, kwargs = case
    function, bare = both(name)
    assert function is not bare and function == bare and hash(function) == hash(bare)
    with pytest.raises(RuntimeError):
        function(*args, **kwargs)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.names)
def test_each_row_is_about_operations_and_says_why(row: Precaution) -> None:
    """One that torch renamed would protect nobody."""
    assert any(map(row.covers, NAMES)) and row.why and row.torch == TRIED


def test_what_runs_otherwise_is_what_rows_are_about() -> None:
    covered = {name for name in NAMES if any(row.covers(name) for row in TABLE)}
    both_ways = zip(NAMES, RUNNABLE, FUNCTIONS, strict=True)
    assert {name for name, ours, torchs in both_ways if ours is not torchs} >= {
        name for name in covered if FUNCTIONS[BY_NAME[name]] is not None
    }


ALLOWED: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("torch.div", (torch.tensor([7, -7]), torch.tensor(-1)), {"rounding_mode": "trunc"}),
    ("torch.div", (TWO, -1), {"rounding_mode": "trunc"}),
    ("torch.div", (TWO, torch.eye(2).to_sparse().sum()), {}),
    ("torch.special.hermite_polynomial_h", (ONE, torch.ones(0)), {}),
    ("torch.lcm", (torch.tensor([4]), torch.tensor([6])), {}),
    ("torch.grid_sampler_2d", (torch.ones(1, 1, 2, 2), torch.zeros(1, 3, 3, 2), 0, 1, False), {}),
    ("torch._weight_norm", (torch.ones(3, 2), torch.ones(3, 1)), {}),
    ("torch.native_batch_norm", (torch.ones(2, 3), THREE, THREE, THREE, THREE, False, 0.1, 1e-5))
    + ({},),
    ("torch._native_batch_norm_legit", (torch.ones(2, 3), None, None, True, 0.1, 1e-5), {}),
    ("torch.lu_unpack", tuple(torch.linalg.lu_factor(torch.eye(3))), {}),
    ("torch.linalg.ldl_solve", (*torch.linalg.ldl_factor(1 - torch.eye(2)), torch.eye(2)), {}),
    (ATTENTION, (ROWS, ROWS, ROWS.mT.contiguous()), {}),
    ("torch._foreach_lerp_", ([torch.ones(2)], [torch.zeros(2)], 0.5), {}),
]


@pytest.mark.parametrize("case", ALLOWED, ids=lambda case: str(case[0]))
def test_what_fits_runs_as_in_torch(case: Any) -> None:
    name, args, kwargs = case
    function, bare = both(name)
    torch.testing.assert_close(function(*args, **kwargs), bare(*args, **kwargs))


def test_a_named_operand_is_found() -> None:
    with pytest.raises(RuntimeError, match="integer overflow"):
        both("torch.matrix_power")[0](self=torch.eye(2), n=-(2**63))


def test_what_is_at_another_worker_is_checked_there(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2, 3).send(bob)
    names = ("torch._weight_norm", "torch.native_batch_norm", "torch.lu_unpack")
    for name in names:
        check_of(name)({"v": x, "g": x, "input": x, "LU_data": x, "LU_pivots": x})
    check_of(ATTENTION)({"query": x, "key": x})
    check_of("torch._fused_sgd_")({"params": [x], "grads": [x]})
    check_of("torch.div")(
        {"input": torch.eye(2).long().to_sparse(), "other": -1, "rounding_mode": "trunc"}
    )
    assert used_by(BY_NAME["torch.Tensor.add"], torch.Tensor.add, [x, 2], {}).elements == 1
    assert pieces(BY_NAME["torch.unbind"], (x,), {}) == 1


def test_sizes_from_values_by_hand() -> None:
    def made(name: str, *args: Any) -> int | None:
        op, read = BY_NAME[name], sum(map(torch.Tensor.numel, filter(torch.is_tensor, args)))
        found = used_by(op, RUNNABLE[op], args, {}).elements  # type: ignore[arg-type]
        return None if found is None else found - read

    x = torch.ones(4)
    assert made("torch.repeat_interleave", x, torch.ones(4)) == 4
    assert made("torch.repeat_interleave", x, 3) == 12
    assert made("torch.bincount", torch.ones(0).long()) == 1


@pytest.mark.parametrize(
    "name, good, bad",
    [
        ("torch.lcm", (torch.tensor([4]), torch.tensor([6])), (torch.tensor([4]), LEAST)),
        ("torch.linalg.eigvals", (torch.eye(2),), (NO_PLACE[0, :2, :2, 0],)),
    ],
)
def test_private_operands_are_predicted_as_good_and_checked_when_they_run(
    name: str, good: Any, bad: Any
) -> None:
    """The check reads values, which a prediction does not have; its failure is sealed."""
    function, private = both(name)[0], Guard(frozenset({"ann"}))
    results = [
        run_guarded(function, [*args], {}, 0, private, [], "bob", None) for args in (good, bad)
    ]
    guards = [full_guard_of(result) for result in results]
    assert results[0].shape == results[1].shape and results[0].dtype is results[1].dtype
    assert guards[0] is not None and guards[0].error is None
    assert guards[1] is not None and type(guards[1].error) is RuntimeError


def test_what_is_not_here_is_not_checked() -> None:
    """Pivots of another worker, or none: torch refuses these itself."""
    for pivots in (None, torch.tensor(3), torch.zeros(2, 0, dtype=torch.int32)):
        check_of("torch.linalg.ldl_solve")({"pivots": pivots})
    check_of("torch.matrix_power")({"n": -(2**63) + 1})
    check_of("torch.special.laguerre_polynomial_l")({"n": torch.zeros(0, dtype=torch.int64)})
