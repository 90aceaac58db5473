"""Linear regression on rows of several owners, solved on shares: nobody sees a row, or the sums.

Each owner's worker computes the sums of products of its own columns, with plain torch, and splits
them among two parties.  These add the shares and solve the equations on them.  What is opened are
coefficients, their standard errors, and how many of the comparisons below fail.  The number of rows
costs nothing beyond the owners' own sums.

The error of a coefficient is that of solving on a grid (``docs/fixed_precision.md``).  For columns
that are too small or too large for it, or nearly sums of others, the solution would be any numbers.
So it is compared, on shares, whether means of squares are from 2^-8 to 2^10, and whether an inverse
is one.  If not, nothing else is opened, and ``fit`` raises.  A standard error that the grid cannot
tell, as that of a line through all points, is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from syft.chain.wrapper import first_link, place_of
from syft.exceptions import LocationMismatch, UnusableSetting

_BITS = 20
"""The default of bits after the point: four more than tensors get otherwise."""
_LEAST, _MOST = 2.0**-8, 2.0**10
"""Means of squares that are neither lost on the grid nor beyond what products hold there."""
_OFF = 2.0**-6
"""How far a product with the inverse may be off."""
_TOLD = 64
"""The steps of the grid from which on the square of an error is told, to about a hundredth."""
_AT_ONCE = 1 << 22
_ALMOST_NORMAL = 100_000
"""From this many degrees of freedom on, Student's distribution is taken for the normal one."""


def two_sided_p(t: torch.Tensor, freedom: int) -> torch.Tensor:
    """The probability that Student's t is further from zero than this, in float64.

    It is right to some 1e-14, so what is smaller is 0 or that.  Source: Abramowitz and Stegun,
    26.7.3 and 26.7.4: a sum of ``freedom / 2`` terms.

    >>> two_sided_p(torch.tensor([0.0, 2.2281, 1.9600]), 10)[:2]
    tensor([1.0000, 0.0500], dtype=torch.float64)
    >>> two_sided_p(torch.tensor([1.96]), 10**6)
    tensor([0.0500], dtype=torch.float64)
    """
    t = t.double().abs()
    if freedom >= _ALMOST_NORMAL:
        return torch.erfc(t / math.sqrt(2))
    angle = torch.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    powers = torch.arange(odd, max(freedom - 1, odd), 2, dtype=torch.float64)
    factors = torch.ones_like(powers)
    factors[1:] = ((powers[:-1] + 1) / (powers[:-1] + 2)).cumprod(0)
    parts = torch.split(torch.cos(angle).flatten(), max(1, _AT_ONCE // max(1, len(powers))))
    sums = torch.cat([(factors * part[:, None] ** powers).sum(-1) for part in parts])
    within = torch.sin(angle) * sums.view(angle.shape)
    return (1 - (2 / math.pi * (angle + within) if odd else within)).clamp(0, 1)


class _OnShares:
    """What both regressions have: the parties, and how owners' sums become shares."""

    def __init__(self, crypto_provider: Any, hbc_worker: Any, precision_fractional: int) -> None:
        self.crypto_provider, self.hbc_worker = crypto_provider, hbc_worker
        self.precision_fractional = precision_fractional
        self.rows = 0
        self.freedom = 0

    def _sums(self, owners: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
        """The shared sums over all owners of what each computes of its own tensors."""
        parties = [owners[0][0].location, self.hbc_worker]  # type: ignore[attr-defined]
        shared = [
            [
                part.encrypt(  # type: ignore[attr-defined]
                    workers=parties,
                    crypto_provider=self.crypto_provider,
                    precision_fractional=self.precision_fractional,
                    base=2,
                )
                for part in own
            ]
            for own in owners
        ]
        return [sum(parts[1:], parts[0]) for parts in zip(*shared, strict=True)]

    def _count(self, lists: Sequence[Sequence[torch.Tensor]], coefficients: int) -> None:
        """Note how many rows there are; raises unless the lists have rows of the same owners."""
        if not lists[0] or len({len(one) for one in lists}) != 1:
            lengths = ", ".join(str(len(one)) for one in lists)
            raise UnusableSetting("the lists of fit", "one pointer of each owner each", lengths)
        for row in zip(*lists, strict=True):
            _check_one_owner(row)
        rows = sum(map(len, lists[0]))
        if rows <= coefficients:
            expected = f"more than {coefficients}, one for each coefficient"
            raise UnusableSetting("the number of rows", expected, str(rows))
        self.rows, self.freedom = rows, rows - coefficients

    def _errors(self, squares: torch.Tensor) -> torch.Tensor:
        """The standard errors of coefficients, of what they are the squares of but for a factor;
        NaN for those that the grid cannot tell."""
        found = _opened(squares)
        told = found >= _TOLD / 2**self.precision_fractional
        return torch.where(told, found / self.freedom, math.nan).sqrt()

    def _check_fitted(self) -> None:
        if not hasattr(self, "coef"):
            raise UnusableSetting(
                type(self).__name__, "fitted first, with fit(...)", "no coefficients"
            )


class EncryptedLinearRegression(_OnShares):
    """Least squares of a target on the columns of several owners, solved on shares.

    ``hbc_worker`` and the first owner hold the shares; ``crypto_provider`` deals for them.  After
    :meth:`fit`: ``coef``, ``intercept``, ``se_coef``, ``se_intercept``, ``pvalue_coef`` and
    ``pvalue_intercept``, as plain tensors.

    >>> x = torch.tensor([[0.0], [0.5], [1.0], [1.5]]); y = 2 * x[:, 0] + 1
    >>> lists = [[x[:2].send(bob), x[2:].send(alice)], [y[:2].send(bob), y[2:].send(alice)]]
    >>> model = sy.EncryptedLinearRegression(crypto_provider=carol, hbc_worker=alice)
    >>> model.fit(*lists); model.coef.round(decimals=2), model.intercept.round(decimals=2)
    (tensor([2.]), tensor(1.))
    """

    def __init__(
        self,
        crypto_provider: Any,
        hbc_worker: Any,
        precision_fractional: int = _BITS,
        fit_intercept: bool = True,
    ) -> None:
        super().__init__(crypto_provider, hbc_worker, precision_fractional)
        self.fit_intercept = fit_intercept

    def fit(self, X_ptrs: Sequence[torch.Tensor], y_ptrs: Sequence[torch.Tensor]) -> None:
        """Solve for the coefficients: ``X_ptrs[i]`` (rows, columns) and ``y_ptrs[i]`` (rows, or
        rows and 1) are pointers to what one owner has.

        Raises :class:`~syft.exceptions.UnusableSetting` for lists or rows that do not fit together
        and for columns that cannot be solved for on the grid, and
        :class:`~syft.exceptions.LocationMismatch` for rows that are not at one owner.
        """
        columns = X_ptrs[0].shape[1] + self.fit_intercept if X_ptrs else 0
        self._count([X_ptrs, y_ptrs], columns)
        xx, xy, yy = self._sums([self._own(*pair) for pair in zip(X_ptrs, y_ptrs, strict=True)])
        w, inverse = torch.linalg.solve(xx, xy).view(-1), torch.linalg.inv(xx)
        _check_inverse(xx, inverse, yy.view(-1))
        squares = (yy - w.view(1, -1) @ xy).view(()) * inverse.diagonal()
        values, errors = _opened(w), self._errors(squares)
        p = two_sided_p(values / errors, self.freedom).float()
        plain = columns - self.fit_intercept
        self.coef, self.se_coef, self.pvalue_coef = values[:plain], errors[:plain], p[:plain]
        last = [one[plain:].sum() for one in (values, errors)]  # 0 without an intercept
        self.intercept, self.se_intercept = last
        self.pvalue_intercept = p[-1] if self.fit_intercept else torch.tensor(1.0)

    def _own(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        """An owner's parts of the equations, divided by the number of all rows."""
        x, y = x.float(), y.float().view(-1, 1)
        if self.fit_intercept:
            x = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
        return [x.t() @ x / self.rows, x.t() @ y / self.rows, y.t() @ y / self.rows]

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        """What the coefficients say of rows; raises :class:`~syft.exceptions.UnusableSetting`
        before :meth:`fit`."""
        self._check_fitted()
        return x.float() @ self.coef + self.intercept

    def summarize(self) -> None:
        """Print the coefficients with their standard errors and p-values."""
        self._check_fitted()
        rows = [
            (f"coef{number}", *row)
            for number, row in enumerate(
                zip(self.coef, self.se_coef, self.pvalue_coef, strict=True), start=1
            )
        ]
        if self.fit_intercept:
            rows.append(("intercept", self.intercept, self.se_intercept, self.pvalue_intercept))
        _print("SMPC Linear Regression Results", rows)


class DASH(_OnShares):
    """For each column of several owners: least squares of a target on that column alone, beside
    covariates that all of them have; solved on shares.

    This is the scan of association studies: thousands of columns, few covariates.  After
    :meth:`fit`: ``coef``, ``se_coef`` and ``pvalue``, a number for each column, as plain tensors.

    >>> x = torch.tensor([[0.0, 1.0], [0.5, -1.0], [1.0, 0.5], [1.5, -1.0], [0.2, 0.1]])
    >>> c, y = torch.ones(5, 1), 2 * x[:, 0] + 1
    >>> lists = [[one[:3].send(bob), one[3:].send(alice)] for one in (x, c, y)]
    >>> scan = sy.DASH(crypto_provider=carol, hbc_worker=alice)
    >>> scan.fit(*lists); scan.coef[0].round(decimals=2), scan.pvalue.shape
    (tensor(2.), torch.Size([2]))
    """

    def __init__(
        self, crypto_provider: Any, hbc_worker: Any, precision_fractional: int = _BITS
    ) -> None:
        super().__init__(crypto_provider, hbc_worker, precision_fractional)

    def fit(
        self,
        X_ptrs: Sequence[torch.Tensor],
        C_ptrs: Sequence[torch.Tensor],
        y_ptrs: Sequence[torch.Tensor],
    ) -> None:
        """Solve for one coefficient of each column of ``X_ptrs`` beside those of ``C_ptrs``, in
        which a column of ones stands for an intercept; otherwise as
        :meth:`EncryptedLinearRegression.fit`.

        A column that is too small for the grid, or nearly a sum of covariates, gets NaN."""
        covariates = C_ptrs[0].shape[1] if C_ptrs else 0
        self._count([X_ptrs, C_ptrs, y_ptrs], covariates + 1)
        lists = zip(X_ptrs, C_ptrs, y_ptrs, strict=True)
        cc, cx, cy, xx, xy, yy = self._sums([self._own(*row) for row in lists])
        right = torch.cat([cx, cy], dim=1)
        inverse = torch.linalg.inv(cc)
        _check_inverse(cc, inverse, torch.cat([xx, yy.view(-1)]))
        solved = inverse @ right
        of_x, of_y = solved[:, :-1], solved[:, -1:]
        left_xx, left_xy = xx - (cx * of_x).sum(0), xy - (cx * of_y).sum(0)
        left_yy = (yy - (cy * of_y).sum()).view(())
        coef = left_xy / left_xx
        squares = (left_yy - coef * left_xy) / left_xx
        sure = (left_xx >= _LEAST).get().bool()
        self.coef = torch.where(sure, _opened(coef), math.nan)
        self.se_coef = torch.where(sure, self._errors(squares), math.nan)
        self.pvalue = two_sided_p(self.coef / self.se_coef, self.freedom).float()

    def _own(self, x: torch.Tensor, c: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        """An owner's sums of products, divided by the number of all rows."""
        x, c, y = x.float(), c.float(), y.float().view(-1, 1)
        products = [c.t() @ c, c.t() @ x, c.t() @ y, (x * x).sum(0), (x * y).sum(0), (y * y).sum()]
        return [one / self.rows for one in products]

    def summarize(self) -> None:
        """Print the coefficients with their standard errors and p-values."""
        self._check_fitted()
        rows = zip(self.coef, self.se_coef, self.pvalue, strict=True)
        _print("DASH Results", [(f"coef{n}", *row) for n, row in enumerate(rows, start=1)])


def _check_one_owner(row: Sequence[torch.Tensor]) -> None:
    """Raise unless these are pointers to as many rows of one owner."""
    places = tuple(map(place_of, row))
    if len(set(places)) != 1 or not first_link(row[0]).remote_links():
        instead = "send X and y of one owner to one worker"
        raise LocationMismatch("the rows of one owner", tuple(dict.fromkeys(places)), instead)
    if len({len(one) for one in row}) != 1:
        sizes = ", ".join(str(len(one)) for one in row)
        raise UnusableSetting(f"what {places[0]} has", "as many rows in each list", sizes)


def _check_inverse(matrix: torch.Tensor, inverse: torch.Tensor, others: torch.Tensor) -> None:
    """Raise unless one is nearly the inverse of the other, of means of squares that the grid can
    hold: those of the matrix, and ``others``."""
    squares = matrix.diagonal()
    off = ((matrix @ inverse - torch.eye(len(matrix))).abs() > _OFF).sum()
    wrong = off + (squares < _LEAST).sum() + (squares > _MOST).sum() + (others > _MOST).sum()
    if wrong.get():  # type: ignore[attr-defined]
        what = "of numbers near 1, and none nearly a sum of others"
        raise UnusableSetting("each column, and the target,", what, "what the grid cannot solve")


def _opened(shared: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = shared.decrypt()  # type: ignore[attr-defined]
    return found


def _print(title: str, rows: Sequence[tuple[Any, ...]]) -> None:
    line = "=" * 52
    print(f"{line}\n{title:^52}\n{line}\n{'':<13}{'value':>13}{'stderr':>13}{'p-value':>13}")
    for name, *numbers in rows:
        print(f"{name:<13}" + "".join(f"{float(number):>13.4f}" for number in numbers))
    print(line)
