"""Linear regression on shares, against torch's least squares in the open."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

import syft as sy
from syft.exceptions import LocationMismatch, UnusableSetting
from syft.federated.least_squares import two_sided_p


def plain_fit(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Coefficients and their standard errors, in float64."""
    x, y = x.double(), y.double().view(-1, 1)
    w = torch.linalg.lstsq(x, y).solution
    left = ((y - x @ w) ** 2).sum() / (len(x) - x.shape[1])
    return w.flatten(), (left * torch.linalg.inv(x.t() @ x).diagonal()).sqrt()


def with_ones(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, torch.ones(len(x), 1)], dim=1)


class Owners:
    """Two owners with rows, and workers that hold shares and deal."""

    def __init__(self, hook: sy.TorchHook) -> None:
        names = "ann", "ben", "carol", "dan"
        self.ann, self.ben, self.carol, self.dan = (sy.VirtualWorker(hook, id=n) for n in names)
        self.parties = {"crypto_provider": self.carol, "hbc_worker": self.dan}
        drawn = torch.Generator().manual_seed(3)
        self.x = torch.randn(40, 3, generator=drawn)
        self.y = self.x @ torch.tensor([1.0, -2.0, 0.0]) + 0.3
        self.y += 0.2 * torch.randn(40, generator=drawn)

    def parts(self, rows: torch.Tensor) -> list[torch.Tensor]:
        return [rows[:15].send(self.ann), rows[15:].send(self.ben)]


@pytest.fixture
def owners(hook: sy.TorchHook) -> Owners:
    return Owners(hook)


@pytest.mark.parametrize("intercept", [True, False])
def test_a_regression_equals_that_in_the_open(owners: Owners, intercept: bool, capsys: Any) -> None:
    model = sy.EncryptedLinearRegression(**owners.parties, fit_intercept=intercept)
    x = owners.x.double()  # a dtype is the owner's affair
    model.fit(owners.parts(x), owners.parts(owners.y.view(-1, 1)))
    w, errors = plain_fit(with_ones(owners.x) if intercept else owners.x, owners.y)
    torch.testing.assert_close(model.coef.double(), w[:3], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(model.se_coef.double(), errors[:3], atol=1e-4, rtol=1e-3)
    expected = with_ones(owners.x) @ torch.cat([w, w.new_zeros(1)])[:4].float()
    torch.testing.assert_close(model.predict(owners.x), expected, atol=1e-3, rtol=1e-3)
    assert model.pvalue_coef[1] < 1e-6 and model.pvalue_coef[2] > 0.01
    model.summarize()
    shown = capsys.readouterr().out
    assert shown.count("coef") == 3 and ("intercept" in shown) == intercept


def test_a_scan_equals_one_regression_for_each_column(owners: Owners, capsys: Any) -> None:
    covariates = with_ones(owners.x[:, :1])
    scan = sy.DASH(**owners.parties)
    scan.fit(*map(owners.parts, (owners.x[:, 1:], covariates, owners.y)))
    for number in range(2):
        w, errors = plain_fit(torch.cat([owners.x[:, 1 + number, None], covariates], 1), owners.y)
        torch.testing.assert_close(scan.coef[number].double(), w[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(scan.se_coef[number].double(), errors[0], atol=1e-4, rtol=1e-3)
    scan.summarize()
    assert capsys.readouterr().out.count("coef") == 2


UNSOLVABLE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a column twice": lambda x: torch.cat([x, x[:, :1]], dim=1),
    "nearly a sum of others": lambda x: torch.cat([x, x.sum(1, keepdim=True) + x[:, :1] / 1e3], 1),
    "a second intercept": with_ones,
    "small numbers": lambda x: x / 1000,
    "large numbers": lambda x: x * 1000,
}


@pytest.mark.parametrize("name", UNSOLVABLE)
def test_what_the_grid_cannot_solve_is_refused(owners: Owners, name: str) -> None:
    x = UNSOLVABLE[name](owners.x)
    model = sy.EncryptedLinearRegression(**owners.parties)
    with pytest.raises(
        UnusableSetting, match="each column, and the target, must be of numbers near 1"
    ):
        model.fit(owners.parts(x), owners.parts(owners.y))
    with pytest.raises(UnusableSetting, match="fitted first"):
        model.summarize()
    covariates = sy.DASH(**owners.parties)
    with pytest.raises(UnusableSetting, match="numbers near 1"):
        covariates.fit(*map(owners.parts, (owners.x[:, 1:], with_ones(x), owners.y)))
    model.fit(owners.parts(owners.x), owners.parts(owners.y))  # the control
    with pytest.raises(UnusableSetting, match="the target"):
        model.fit(owners.parts(owners.x), owners.parts(owners.y * 1000))


def test_what_the_grid_cannot_tell_is_no_number(owners: Owners) -> None:
    exact = owners.x @ torch.tensor([1.0, -2.0, 0.5])
    model = sy.EncryptedLinearRegression(**owners.parties)
    model.fit(owners.parts(owners.x), owners.parts(exact))
    torch.testing.assert_close(model.coef, torch.tensor([1.0, -2.0, 0.5]), atol=1e-4, rtol=1e-4)
    assert model.se_coef.isnan().all() and model.pvalue_coef.isnan().all()
    scan, covariates = sy.DASH(**owners.parties), with_ones(owners.x[:, :1])
    columns = torch.stack([owners.x[:, 0] * 2 - 1, owners.x[:, 1], owners.x[:, 2] / 1000], dim=1)
    scan.fit(*map(owners.parts, (columns, covariates, owners.y)))
    for found in (scan.coef, scan.se_coef, scan.pvalue):
        assert found.isnan().tolist() == [True, False, True]


def test_many_columns_take_no_more_memory_at_once() -> None:
    t = torch.linspace(-5, 5, 500)
    together = two_sided_p(t.view(50, 10), 90_001)
    alone = [two_sided_p(one, 90_001).item() for one in t[::50]]
    torch.testing.assert_close(together.flatten()[::50], torch.tensor(alone).double())


def test_nobody_but_the_owner_sees_rows_or_sums(owners: Owners, hook: sy.TorchHook) -> None:
    with hook.record() as log:
        model = sy.EncryptedLinearRegression(**owners.parties)
        model.fit(owners.parts(owners.x), owners.parts(owners.y))
    dealt = {type(entry.message).__name__ for entry in log.to("carol")}
    assert "Put" not in dealt and "PutAll" not in dealt
    assert not any(one.shape == (4, 4) and one.is_floating_point() for one in held(owners.dan))


def held(worker: Any) -> list[torch.Tensor]:
    return [one for one in worker._objects.values() if type(one) is torch.Tensor]


WRONG: dict[str, tuple[Callable[[Owners], Any], str]] = {
    "no lists": (lambda it: ([], []), "the lists of fit"),
    "lists of two lengths": (lambda it: (it.parts(it.x), it.parts(it.y)[:1]), "2, 1"),
    "rows of two lengths": (lambda it: (it.parts(it.x), it.parts(it.y[:30])), "what ben has"),
    "few rows": (
        lambda it: ([it.x[:4].send(it.ann)], [it.y[:4].send(it.ann)]),
        "the number of rows must be more than 4",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_rows_that_do_not_fit_together_are_refused(owners: Owners, name: str) -> None:
    make, text = WRONG[name]
    model = sy.EncryptedLinearRegression(**owners.parties)
    with pytest.raises(UnusableSetting, match=text):
        model.fit(*make(owners))
    with pytest.raises(UnusableSetting, match="fitted first"):
        model.predict(owners.x)


def test_rows_of_one_owner_are_at_one_worker(owners: Owners) -> None:
    x, y = owners.parts(owners.x), owners.parts(owners.y)
    model = sy.EncryptedLinearRegression(**owners.parties)
    for lists in ((x, y[::-1]), ([owners.x], [owners.y])):
        with pytest.raises(LocationMismatch, match="the rows of one owner"):
            model.fit(*lists)


@given(st.integers(1, 300), st.floats(0, 30))
def test_the_probability_is_the_integral_of_the_density(freedom: int, t: float) -> None:
    ends = torch.linspace(0, t, 20_001, dtype=torch.float64)
    density = (
        torch.distributions.StudentT(torch.tensor(float(freedom)).double()).log_prob(ends).exp()
    )
    inside = 2 * torch.trapezoid(density, ends).item()
    assert math.isclose(two_sided_p(torch.tensor([t]), freedom).item(), 1 - inside, abs_tol=1e-5)


def test_many_degrees_of_freedom_are_nearly_normal() -> None:
    t = torch.tensor([0.0, 1.0, -2.0, 5.0])
    pair = [two_sided_p(t, freedom) for freedom in (99_999, 100_001)]
    torch.testing.assert_close(*pair, atol=1e-5, rtol=0)
