"""Random programs on shares, of numbers from 10^-4 to 10^9, beside what they may come to.

A *known* number is a shared tensor, its value in float64, and how far the shared one may be off:
each operation adds its own stated error to what its operands bring.  An operation that would leave
its stated domain, errors counted, is not made; another one is drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from syft.tensors.fixed.precision import fix_precision
from syft.tensors.shared.shared_values import get_shared, share_values
from tests.tensors.shared.local_parties import local_session

STEP = 2.0**-16
SUMS = 2.0**46
"""Sums and what is scaled: 2^62 steps."""
PRODUCTS = 2.0**30
ROWS, COLUMNS = 3, 4


class OutOfDomain(Exception):
    """An operation would leave what it is made for."""


@dataclass
class Known:
    """A shared tensor, its value, and the bound of its error."""

    shared: Any
    value: torch.Tensor
    error: torch.Tensor

    @property
    def most(self) -> torch.Tensor:
        return self.value.abs() + self.error


def known(make: Callable[[], Any], value: torch.Tensor, error: Any, end: float = SUMS) -> Known:
    """The result of an operation, if it is in its domain."""
    error = torch.as_tensor(error, dtype=torch.float64) + value.abs() * 2.0**-48  # float64 itself
    inside((value.abs() + error), end)
    return Known(make(), value, error.expand(value.shape))


def inside(most: torch.Tensor, end: float) -> None:
    if not bool((most < end).all()):
        raise OutOfDomain


def size_drawn(draw: random.Random) -> float:
    return float(10 ** draw.uniform(-4, 9)) * draw.choice([-1, 1])


def large_drawn(draw: random.Random) -> float:
    """Of what is added behind a division: up to the end of sums."""
    return float(10 ** draw.uniform(8, 13.5)) * draw.choice([-1, 1])


class Program:
    """A session, and the numbers that a program has made."""

    def __init__(self, seed: int, parties: int) -> None:
        self.draw = random.Random(seed)
        self.session = local_session(parties)
        self.numbers: list[Known] = []
        self.names: list[str] = []
        self.refused = 0
        for _ in range(3):
            self.numbers.append(self.fresh())

    def fresh(self, size: float | None = None) -> Known:
        size = size_drawn(self.draw) if size is None else size
        spread = [size * self.draw.uniform(0.2, 1) for _ in range(ROWS * COLUMNS)]
        plain = fix_precision(torch.tensor(spread, dtype=torch.float64).view(ROWS, COLUMNS))
        value = plain.child.child.double() * STEP
        return Known(share_values(plain, self.session), value, torch.zeros_like(value))

    def number(self) -> Known:
        return self.draw.choice(self.numbers)

    def step(self) -> None:
        """Make one operation, in its domain."""
        while True:
            name = self.draw.choice([*OPERATIONS, *JOINED])
            try:
                made = OPERATIONS[name](self)
            except OutOfDomain:
                self.refused += 1
                continue
            self.names.append(name)
            if made.value.shape != (ROWS, COLUMNS):
                shape = ROWS, COLUMNS
                made = Known(*(one.expand(shape) for one in (made.shared, made.value, made.error)))
            self.numbers[self.draw.randrange(len(self.numbers))] = made
            return

    def faults(self) -> list[str]:
        """Where results are further off than they may be."""
        found = get_shared([one.shared for one in self.numbers])
        wrong = []
        for one, plain in zip(self.numbers, found, strict=True):
            off = (plain.child.child.double() * STEP - one.value).abs()
            if bool((off > one.error).any()):
                wrong.append(f"{self.names}: {plain} for {one.value}, error {off} > {one.error}")
        return wrong


def run(seed: int, parties: int) -> Program:
    program = Program(seed, parties)
    for _ in range(program.draw.randint(1, 5)):
        program.step()
    return program


# -------------------------------------------------------------------------------------- operations


def plus(p: Program) -> Known:
    x, y, sign = p.number(), p.number(), p.draw.choice([1, -1])
    make = (lambda: x.shared + y.shared) if sign > 0 else (lambda: x.shared - y.shared)
    return known(make, x.value + sign * y.value, x.error + y.error)


def plus_number(p: Program) -> Known:
    x, k = p.number(), size_drawn(p.draw)
    return known(lambda: x.shared + k, x.value + k, x.error + STEP)


def times_number(p: Program) -> Known:
    x, k = p.number(), size_drawn(p.draw)
    k = p.draw.choice([k, float(round(k)), 1 / k])
    inside(x.most, SUMS)
    return known(lambda: x.shared * k, x.value * k, x.error * abs(k) + STEP)


def over_number(p: Program) -> Known:
    x, k = p.number(), size_drawn(p.draw)
    k = p.draw.choice([k, float(round(k) or 7), p.draw.randint(2, 10_001)])
    return known(lambda: x.shared / k, x.value / k, x.error / abs(k) + STEP)


def over_tensor(p: Program) -> Known:
    x = p.number()
    y = torch.tensor([size_drawn(p.draw) for _ in range(COLUMNS)], dtype=torch.float64)
    return known(lambda: x.shared / y, x.value / y, x.error / y.abs() + STEP)


def over(p: Program) -> Known:
    """By a private number: a quotient has the ends of all three."""
    x, y = p.number(), p.number()
    least = (y.value.abs() - y.error).clamp(min=0)
    inside(torch.maximum(x.most, y.most), 2.0**20)
    inside(STEP / least, 0.5)
    inside(x.most / least, 3.3e7)
    quotient = x.value / y.value
    wrong = (x.error + quotient.abs() * y.error + 2 * STEP) / least + STEP + 3e-6 * x.most / least
    return known(lambda: x.shared / y.shared, quotient, wrong)


def product_error(x: Known, y: Known) -> torch.Tensor:
    return x.most * y.error + y.value.abs() * x.error


def times(p: Program) -> Known:
    x, y = p.number(), p.number()
    return known(
        lambda: x.shared * y.shared, x.value * y.value, product_error(x, y) + STEP, PRODUCTS
    )


def matmul(p: Program) -> Known:
    x, y = p.number(), p.number()
    error = x.most @ y.error.t() + x.error @ y.value.abs().t() + STEP
    made = known(lambda: x.shared @ y.shared.t(), x.value @ y.value.t(), error, PRODUCTS)
    return reduced(made, lambda t: t.sum(1, keepdim=True), ROWS)


def reduced(x: Known, function: Callable[[Any], Any], terms: int = 1, more: float = 0.0) -> Known:
    inside(x.most.abs().sum(), SUMS)
    return known(lambda: function(x.shared), function(x.value), function(x.error) + more, SUMS)


def total(p: Program) -> Known:
    return reduced(p.number(), lambda t: t.sum(p.draw.choice([0]), keepdim=True))


def mean(p: Program) -> Known:
    dim = p.draw.choice([0, 1])
    return reduced(p.number(), lambda t: t.mean(dim, keepdim=True), more=STEP)


def spread_of(p: Program) -> Known:
    x = p.number()
    off, error = x.value - x.value.mean(), x.error.max() * 2 + STEP
    inside((off.abs() + error).square(), PRODUCTS)
    inside((off.abs() + error).square().sum(), SUMS)
    n = x.value.numel()
    wrong = ((2 * off.abs() + error) * error + STEP).sum() / (n - 1) + STEP
    return known(lambda: x.shared.var(), x.value.var(), wrong)


def relu(p: Program) -> Known:
    x = p.number()
    return known(lambda: F.relu(x.shared), F.relu(x.value), x.error)


def relu_of_product(p: Program) -> Known:
    """Joined: the division of the product goes behind the addition, where it fits."""
    x, y = p.number(), p.number()
    raw = known(lambda: None, x.value * y.value, product_error(x, y) + STEP, PRODUCTS)
    k = p.draw.choice([large_drawn(p.draw), p.number(), p.fresh(large_drawn(p.draw))])
    added = k.value if isinstance(k, Known) else k
    error = raw.error + (k.error if isinstance(k, Known) else STEP)
    addend = k.shared if isinstance(k, Known) else k
    return known(
        lambda: F.relu(x.shared * y.shared + addend), F.relu(raw.value + added), error + STEP
    )


def relu_of_quotient(p: Program) -> Known:
    x, k = p.number(), p.draw.randint(2, 10_001)
    b = p.draw.choice([p.number(), p.fresh(large_drawn(p.draw))])
    return known(
        lambda: F.relu(x.shared / k + b.shared),
        F.relu(x.value / k + b.value),
        x.error / k + b.error + 2 * STEP,
    )


def layer(p: Program) -> Known:
    """Of a linear layer with a shared bias it is stated that the result fits."""
    x, w, b = p.number(), p.number(), p.number()
    error = x.most @ w.error.t() + x.error @ w.value.abs().t() + 2 * STEP + b.error[0, :ROWS]
    raw = known(lambda: None, x.value @ w.value.t(), error, PRODUCTS)
    value = raw.value + b.value[0, :ROWS]
    inside(value.abs() + error, PRODUCTS)
    made = known(
        lambda: F.relu(F.linear(x.shared, w.shared, b.shared[0, :ROWS])), F.relu(value), error
    )
    return reduced(made, lambda t: t.mean(1, keepdim=True), more=STEP)


def larger(p: Program) -> Known:
    x, y = p.number(), p.number()
    inside(x.most + y.most, 2 * SUMS)
    return known(
        lambda: torch.where(x.shared > y.shared, x.shared, y.shared),
        torch.maximum(x.value, y.value),
        torch.maximum(x.error, y.error) + (x.error + y.error),
    )


def limited(p: Program) -> Known:
    x, end = p.number(), abs(size_drawn(p.draw))
    return known(lambda: x.shared.clamp(-end, end), x.value.clamp(-end, end), x.error + STEP)


def pooled(p: Program) -> Known:
    x = p.number()
    inside(x.most.sum(), SUMS)

    def pool(t: Any) -> Any:
        return F.avg_pool2d(t.reshape(1, 1, ROWS, COLUMNS), 2, 1, 1, count_include_pad=False)

    made = known(
        lambda: pool(x.shared)[0, 0, :ROWS, :COLUMNS],
        pool(x.value)[0, 0, :ROWS, :COLUMNS],
        pool(x.error.contiguous())[0, 0, :ROWS, :COLUMNS] + STEP,
    )
    return made


def loss(p: Program) -> Known:
    x, y = p.number(), p.number()
    off, error = (x.value - y.value).abs(), x.error + y.error
    inside((off + error).square(), PRODUCTS)
    wrong = ((2 * off + error) * error + STEP).mean() + STEP
    return known(lambda: F.mse_loss(x.shared, y.shared), F.mse_loss(x.value, y.value), wrong)


def huber(p: Program) -> Known:
    x, y, delta = p.number(), p.number(), 10 ** p.draw.uniform(-1, 4)
    off, error = (x.value - y.value).abs(), x.error + y.error
    inside((off * max(delta, 1) * 2).sum(), SUMS)  # as a mean has
    wrong = (delta + 1) * (error.max() + 4 * STEP) + 4 * STEP

    want = F.huber_loss(x.value, y.value, delta=delta)
    return known(lambda: F.huber_loss(x.shared, y.shared, delta=delta), want, wrong)


def written(p: Program) -> Known:
    """A step of an optimizer: in place, with a small factor."""
    x, y, rate = p.number(), p.number(), 10 ** p.draw.uniform(-4, 1)

    def make() -> Any:
        target = x.shared.clone()
        target.add_(y.shared, alpha=-rate)
        return target

    return known(make, x.value - rate * y.value, x.error + rate * y.error + STEP)


def between(p: Program) -> Known:
    x, y, weight = p.number(), p.number(), p.draw.uniform(-2, 2)
    inside(x.most + y.most, SUMS)
    return known(
        lambda: torch.lerp(x.shared, y.shared, weight),
        torch.lerp(x.value, y.value, weight),
        x.error + abs(weight) * (x.error + y.error) + STEP,
    )


def with_product(p: Program) -> Known:
    x, y, z, k = p.number(), p.number(), p.number(), 10 ** p.draw.uniform(-4, 2)
    raw = known(lambda: None, y.value * z.value, product_error(y, z) + STEP, PRODUCTS)
    return known(
        lambda: torch.addcmul(x.shared, y.shared, z.shared, value=k),
        x.value + k * raw.value,
        x.error + k * raw.error + STEP,
    )


OPERATIONS: dict[str, Callable[[Program], Known]] = {
    one.__name__: one
    for one in (
        *(
            plus,
            plus_number,
            times_number,
            over_number,
            over_tensor,
            over,
            times,
            matmul,
            total,
            mean,
        ),
        *(spread_of, relu, relu_of_product, relu_of_quotient, layer, larger, limited, pooled),
        *(loss, huber, written, between, with_product),
    )
}

JOINED = 3 * ["relu_of_product", "relu_of_quotient"]
"""What is rewritten before it is sent, and so is drawn more often."""
