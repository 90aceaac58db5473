"""Medians, trimmed means and clipped means: against numpy, at workers, and against bad clients."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import syft as sy
from syft.exceptions import PermissionDenied, UnusableSetting
from tests.shells.child import make_worker

SHAPES = st.lists(st.integers(0, 3), max_size=3)
DTYPES = st.sampled_from([torch.float16, torch.float32, torch.float64, torch.int64, torch.bool])


def drawn(shape: list[int], dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * 3).to(dtype)


def numpy_middle(updates: list[torch.Tensor], cut: int) -> torch.Tensor:
    rows = np.sort(np.stack([x.double().numpy() for x in updates]), axis=0)
    mean = torch.from_numpy(np.asarray(rows[cut : len(rows) - cut].mean(0)))
    dtype = updates[0].dtype
    return mean.to(dtype) if dtype.is_floating_point else mean.round().to(dtype)


@settings(deadline=None, max_examples=40)
@given(SHAPES, DTYPES, st.integers(1, 7), st.integers(0, 99))
def test_a_median_is_that_of_numpy(
    shape: list[int], dtype: torch.dtype, count: int, seed: int
) -> None:
    updates = [drawn(shape, dtype, seed + number) for number in range(count)]
    found = sy.federated_average(updates, rule="median")
    wanted = numpy_middle(updates, (count - 1) // 2)
    assert found.shape == wanted.shape
    torch.testing.assert_close(found, wanted)


@settings(deadline=None, max_examples=40)
@given(SHAPES, DTYPES, st.integers(3, 9), st.integers(0, 99))
def test_a_trimmed_mean_is_that_of_numpy(
    shape: list[int], dtype: torch.dtype, count: int, seed: int
) -> None:
    updates = [drawn(shape, dtype, seed + number) for number in range(count)]
    found = sy.federated_average(updates, rule=sy.TrimmedMean(0.2))
    torch.testing.assert_close(found, numpy_middle(updates, -(-count // 5)))


@settings(deadline=None, max_examples=40)
@given(SHAPES, st.integers(1, 5), st.floats(1e-3, 20), st.integers(0, 99))
def test_a_clipped_mean_is_the_mean_of_clipped_updates(
    shape: list[int], count: int, norm: float, seed: int
) -> None:
    def model(number: int) -> list[torch.Tensor]:
        return [drawn(shape, torch.float64, number), drawn([2], torch.complex128, number + 500)]

    center, updates = model(seed + 200), [model(seed + number) for number in range(count)]
    total = [torch.zeros_like(x) for x in center]
    for update in updates:
        apart = [x - c for x, c in zip(update, center, strict=True)]
        length = torch.cat([torch.view_as_real(a + 0j).flatten() for a in apart]).norm()
        factor = min(1.0, norm / max(float(length), 1e-30))
        for whole, c, a in zip(total, center, apart, strict=True):
            whole += (c + a * factor) / count
    found = sy.federated_average(updates, rule=sy.ClippedMean(norm, around=center))
    torch.testing.assert_close(found, total)


BAD = (-1e38, 1e30)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("rule", ["median", sy.TrimmedMean(0.25), "clipped"])
def test_bad_clients_move_nothing_far(rule: Any, bad: float) -> None:
    """Of eight clients two send anything.  The mean of all, the control, is far away."""
    good = [torch.randn(5) for _ in range(6)]
    updates = [*good[:3], torch.full((5,), bad), *good[3:], torch.full((5,), bad)]
    rule = sy.ClippedMean(1.0, around=torch.zeros(5)) if rule == "clipped" else rule
    found = sy.federated_average(updates, rule=rule)
    assert float(found.abs().max()) <= float(torch.stack(good).abs().max())
    assert float(sy.federated_average(updates).abs().max()) > 1e20


def test_whose_update_is_no_number_is_named() -> None:
    updates = {"bob": [torch.ones(2)], "eve": [torch.tensor([1.0, torch.nan])]}
    for rule in ("median", sy.ClippedMean(1.0)):
        with pytest.raises(UnusableSetting, match="NaN or Inf in .0. of update eve"):
            sy.federated_average(updates, rule=rule)  # type: ignore[arg-type]


def test_what_all_hold_alike_stays() -> None:
    mask = torch.tensor([0.0, -torch.inf])
    large = torch.tensor([2**60 + 1])
    updates = [[mask.clone(), large.clone(), torch.tensor([float(n)])] for n in range(3)]
    for rule in ("median", sy.TrimmedMean(0.1), sy.ClippedMean(9.0, around=updates[0])):
        found = sy.federated_average(updates, rule=rule)  # type: ignore[arg-type]
        assert torch.equal(found[0], mask) and torch.equal(found[1], large)
        assert found[2].tolist() == [1.0]


def test_an_update_within_the_norm_keeps_its_bits() -> None:
    update, center = torch.randn(50) * 1e-3, torch.randn(50) * 1e3
    found = sy.federated_average([update + center], rule=sy.ClippedMean(10.0, around=center))
    assert torch.equal(found, update + center)


def test_batches_counted_by_a_module_stay_those_of_the_center() -> None:
    around = nn.BatchNorm1d(2)
    around.num_batches_tracked = torch.tensor(7)
    models = [copy.deepcopy(around) for _ in range(2)]
    for model in models:
        model(torch.randn(4, 2) * 1e6)
    mean = sy.federated_average(models, rule=sy.ClippedMean(1.0, around=around))
    assert int(mean.num_batches_tracked) == 7
    assert float((mean.running_var - around.running_var).norm()) <= 1.0 + 1e-5
    with pytest.raises(UnusableSetting, match="integers in 'num_batches_tracked'"):
        sy.federated_average(models, rule=sy.ClippedMean(1.0))


# ------------------------------------------------------------------------------------- at workers


@pytest.mark.every_shell
def test_workers_clip_their_own_and_only_the_mean_is_seen(hook: sy.TorchHook) -> None:
    names = ("bob", "alice", "carol")
    workers = [make_worker(hook, name) for name in names]
    around = nn.BatchNorm1d(3)
    models = [copy.deepcopy(around) for _ in names]
    for number, model in enumerate(models):
        nn.init.constant_(model.weight, 10.0**number)
    rule = sy.ClippedMean(2.0, around=around)
    wanted = sy.federated_average(models, [1, 2, 1], rule=rule).state_dict()
    sent = [model.send(place) for model, place in zip(models, workers, strict=True)]
    for options in ({"secure": True}, {"workers": workers[:2], "crypto_provider": workers[2]}, {}):
        mean = sy.federated_average(sent, [1, 2, 1], rule=rule, **options)
        for name, value in mean.state_dict().items():
            torch.testing.assert_close(value, wanted[name], atol=1e-5, rtol=0)
    median = sy.federated_average(sent, rule="median")
    assert median.weight.tolist() == [10.0] * 3
    for place in workers:
        place.close()


def test_clipping_at_workers_opens_nothing_private(hook: sy.TorchHook) -> None:
    """Who may not read the updates gets no clipped mean; who may, does."""
    workers = [sy.VirtualWorker(hook, id=name) for name in ("bob", "alice")]
    x: Any = torch.ones(2) * 5
    own = {"allowed_users": ("ann",), "allow_destinations": ("bob", "alice")}
    sent = [x.clone().private_tensor(**own).send(place) for place in workers]
    rule = sy.ClippedMean(1.0)
    for user in (None, "ben"):
        with pytest.raises(PermissionDenied):
            sy.federated_average(sent, rule=rule, secure=True, user=user)
    found = sy.federated_average(sent, rule=rule, secure=True, user="ann")
    torch.testing.assert_close(found, torch.ones(2) / 2**0.5, atol=1e-6, rtol=0)


# ---------------------------------------------------------------------------- simulated clients


@pytest.mark.parametrize("at_once", [1, 3, 8])
@pytest.mark.parametrize("rule", ["median", sy.TrimmedMean(0.2), sy.ClippedMean(0.05)])
def test_simulated_clients_follow_the_rule(rule: Any, at_once: int) -> None:
    torch.manual_seed(3)
    datasets = [(torch.randn(6, 3), torch.randint(2, (6,))) for _ in range(8)]
    model = nn.Linear(3, 2)
    before, loss = copy.deepcopy(model), nn.functional.cross_entropy
    clients = sy.SimulatedClients(
        model,
        datasets,
        loss,
        lambda parameters: torch.optim.SGD(parameters, lr=0.3),
        batch_size=3,
        rule=rule,
        clients_at_once=at_once,
    )
    orders = [clients.order(number, 0) for number in range(8)]
    clients.round()
    trained = []
    for (x, y), order in zip(datasets, orders, strict=True):
        copied = copy.deepcopy(before)
        optimizer = torch.optim.SGD(copied.parameters(), lr=0.3)
        for rows in order:
            optimizer.zero_grad()
            loss(copied(x[rows]), y[rows]).backward()
            optimizer.step()
        trained.append(copied)
    if isinstance(rule, sy.ClippedMean):
        rule = sy.ClippedMean(rule.norm, around=before)
    wanted = sy.federated_average(trained, rule=rule).state_dict()
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, wanted[name], atol=1e-5, rtol=1e-5)


# --------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"rule": "mode"}, "rule must be 'mean' or 'median', sy.TrimmedMean"),
        ({"rule": 3}, "rule must be"),
        ({"rule": "median", "weights": [1, 1, 1]}, r"weights must be none: Median\(\) counts all"),
        ({"rule": sy.TrimmedMean(0.4)}, "fraction must be under half of 3 updates"),
        ({"rule": "median", "secure": True}, "rule must be the mean or sy.ClippedMean"),
        ({"rule": sy.ClippedMean(1.0, around=torch.ones(3))}, "updates must be alike"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(UnusableSetting, match=error):
        sy.federated_average([torch.ones(2)] * 3, **options)


def test_rules_refuse_numbers_that_make_no_sense(hook: sy.TorchHook) -> None:
    for fraction in (0, 0.5, -1, float("nan"), True, "0.1"):
        with pytest.raises(UnusableSetting, match="fraction must be between 0 and 0.5"):
            sy.TrimmedMean(fraction)  # type: ignore[arg-type]
    for norm in (0, -1.0, float("nan"), float("inf"), None):
        with pytest.raises(UnusableSetting, match="norm must be a finite number over 0"):
            sy.ClippedMean(norm)  # type: ignore[arg-type]
    bob = sy.VirtualWorker(hook, id="bob")
    with pytest.raises(UnusableSetting, match="around must be in this process"):
        sy.ClippedMean(1.0, around=torch.ones(1).send(bob))
    with pytest.raises(UnusableSetting, match="of real numbers, which have an order"):
        sy.federated_average([torch.ones(1) * 1j] * 2, rule="median")
    with pytest.raises(UnusableSetting, match="around must be left out"):
        sy.SimulatedClients(
            nn.Linear(1, 1),
            [(torch.ones(1, 1), torch.ones(1, 1))],
            nn.functional.mse_loss,
            torch.optim.SGD,
            batch_size=1,
            rule=sy.ClippedMean(1.0, around=nn.Linear(1, 1)),
        )


@pytest.mark.parametrize("rule", ["mean", "median", sy.TrimmedMean(0.1), sy.ClippedMean(9.0)])
def test_what_is_no_tensor_in_a_table_stays_as_it_is(rule: Any) -> None:
    tables = [{"x": torch.tensor([value]), "note": "first"} for value in (1.0, 2.0, 3.0)]
    found = sy.federated_average(tables, rule=rule)
    assert found["note"] == "first" and found["x"].tolist() == [2.0]
