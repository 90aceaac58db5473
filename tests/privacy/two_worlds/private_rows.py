"""What an observer does with rows that a private mask chooses, another number in each world.

She trains on them, counts, sorts and joins them, and writes with them.  Sizes of a result that
follow from public ones are public, and the others are private, so what she is told of both is the
same however many rows there are: none, one or many.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.observer import Observer

if TYPE_CHECKING:
    from tests.privacy.two_worlds.generator import RandomProgram

ROWS = 6
COUNTS = ((0, 3), (1, 5), (1, 0), (2, ROWS), (5, 4))
"""How many rows the mask chooses in each world."""


@dataclass
class Chosen:
    """Rows that a mask chooses, in one place ``x`` and ``y``, and others; ``call`` runs an
    operation."""

    eve: Observer
    call: Callable[..., Any]
    x: Any
    """Numbers, of 4 columns."""
    y: Any
    """Their classes, of 3."""
    u: Any
    """A number of each."""
    other: Any
    """Rows of 4 columns that another mask chooses."""
    w: Any
    """A public weight, which she trains, of 3 rows."""
    b: Any
    """Its bias."""
    rng: random.Random

    def scores(self) -> Any:
        """What a model makes of the rows."""
        return self.call(_f("linear"), self.x, self.w, self.b)

    def loss(self) -> Any:
        """How wrong that is."""
        return self.call(_f("cross_entropy"), self.scores(), self.y)


def _f(name: str) -> str:
    return f"torch.nn.functional.{name}"


def rows(
    eve: Observer,
    call: Callable[..., Any],
    counts: tuple[int, int],
    rng: random.Random,
    destinations: tuple[str, ...] = (),
) -> Chosen:
    """Private tensors, and what masks choose of them."""
    numbers = torch.Generator().manual_seed(rng.randrange(2**32))
    order = torch.randperm(ROWS, generator=numbers)

    def mask(one: int, other: int) -> Reference:
        return eve.secret(order < one, order < other, "bob", destinations)

    def secret(tensor: torch.Tensor) -> Reference:
        return eve.secret(tensor, tensor.flip(0), "bob", destinations)

    first, second = mask(*counts), mask(*rng.choice(COUNTS))
    x, z = (secret(torch.randn(ROWS, 4, generator=numbers)) for _ in range(2))
    y, u = secret(torch.arange(ROWS) % 3), secret(torch.rand(ROWS, generator=numbers))
    x, y, u = (call("torch.Tensor.__getitem__", it, first) for it in (x, y, u))
    other = call("torch.Tensor.__getitem__", z, second)
    w, b = torch.randn(3, 4, generator=numbers), torch.zeros(3)
    public = (eve.public(it.requires_grad_()) for it in (w, b))
    return Chosen(eve, call, x, y, u, other, *public, rng)


def train(it: Chosen, steps: int = 2) -> None:
    """A few steps, after which the observer asks for the shapes of her weights and gradients."""
    for _ in range(steps):
        it.call("torch.Tensor.backward", it.loss())
        for leaf in (it.w, it.b):
            gradient = it.call("torch.Tensor.grad.__get__", leaf)
            it.call("torch.Tensor.add_", leaf, gradient, alpha=-0.1, grad=False)
            it.call("torch.Tensor.shape.__get__", gradient)
            it.call("torch.Tensor.zero_", gradient, grad=False)


def train_by_grad(it: Chosen) -> Any:
    return it.call("torch.autograd.grad", it.loss(), [it.w, it.b])


def train_on_what_is_hard(it: Chosen) -> None:
    """The loss of each row chooses rows again."""
    each = it.call(_f("cross_entropy"), it.scores(), it.y, None, None, -100, None, "none")
    mean = it.call("torch.mean", it.call("torch.Tensor.detach", each))
    mask = it.call("torch.gt", each, mean)
    chosen = it.call("torch.Tensor.__getitem__", each, mask)
    it.call("torch.Tensor.backward", it.call("torch.mean", chosen))
    it.call("torch.Tensor.grad.__get__", it.w)


def normalize(it: Chosen) -> None:
    """Batch norm in training, whose statistics are public before, fails for one row."""
    mean, var = it.eve.public(torch.zeros(4)), it.eve.public(torch.ones(4))
    made = it.call(_f("batch_norm"), it.x, mean, var, None, None, True)
    it.call("torch.sum", made, 0)
    for one in (mean, var):
        it.call("torch.Tensor.shape.__get__", one)
        it.call("torch.mul", one, 2)


def write_into(it: Chosen) -> None:
    """Results of private and of public sizes are written to public memory, of which she has a
    view."""
    name, args = it.rng.choice((("torch.mul", (2,)), ("torch.mean", (0,)), ("torch.sum", (1,))))
    target = it.eve.public(torch.zeros(4))
    view = it.call("torch.Tensor.__getitem__", target, slice(2))
    it.call(name, it.x, *args, out=target, grad=False)
    for one in (target, view):
        it.call("torch.Tensor.shape.__get__", one)
        it.call("torch.add", one, 1)


def _program(it: Chosen) -> Program:
    actions = (
        _action(_f("linear"), Slot(0), Slot(1), out=2),
        _action("torch.relu", Slot(2), out=3),
        _action(it.rng.choice(("torch.mean", "torch.sum", "torch.amax")), Slot(3), 0, out=4),
        _action("torch.matmul", Slot(2), Slot(1), out=5),
    )
    return Program(2, actions, (Slot(4), Slot(5)))


def _action(name: str, *args: Any, out: int) -> Action:
    return Action(BY_NAME[name], args, {}, Slot(out))


def in_a_program(it: Chosen) -> Any:
    if not isinstance(it.x, Reference):
        return it.x
    run = it.rng.choice((it.eve.group, it.eve.plan))
    return run(_program(it), [it.x, it.w], 2)


def asked(it: Chosen) -> None:
    """Questions about the rows and about what has a public size."""
    for made in (it.x, it.call("torch.mean", it.x, 0), it.call("torch.t", it.x)):
        for name in (
            "shape.__get__",
            "numel",
            "stride",
            "is_contiguous",
            "dim",
            "requires_grad.__get__",
        ):
            it.call(f"torch.Tensor.{name}", made)
        it.call("torch.Tensor.size", made, 0)


USES: dict[str, Callable[[Chosen], Any]] = {
    "train": train,
    "train by grad": train_by_grad,
    "train on what is hard": train_on_what_is_hard,
    "normalize": normalize,
    "write into": write_into,
    "in a program": in_a_program,
    "asked": asked,
    "linear": lambda it: it.scores(),
    "matmul": lambda it: it.call("torch.matmul", it.x, it.call("torch.t", it.w)),
    "gram": lambda it: it.call("torch.matmul", it.call("torch.t", it.x), it.x),
    "gram of two": lambda it: it.call("torch.matmul", it.call("torch.t", it.x), it.other),
    "kernel": lambda it: it.call("torch.matmul", it.x, it.call("torch.t", it.other)),
    "mean": lambda it: it.call("torch.mean", it.x, 0),
    "var": lambda it: it.call("torch.var", it.x, 0),
    "max": lambda it: it.call("torch.max", it.x, 0),
    "topk": lambda it: it.call("torch.topk", it.u, 2),
    "median": lambda it: it.call("torch.median", it.x, 0),
    "quantile": lambda it: it.call("torch.quantile", it.u, 0.3),
    "first": lambda it: it.call("torch.Tensor.__getitem__", it.x, 0),
    "some": lambda it: it.call("torch.Tensor.__getitem__", it.x, slice(3)),
    "column": lambda it: it.call("torch.Tensor.__getitem__", it.x, (slice(None), 1)),
    "written row": lambda it: it.call(
        "torch.Tensor.add_", it.call("torch.Tensor.__getitem__", it.x, 0), 1, grad=False
    ),
    "changed": lambda it: it.call("torch.Tensor.unsqueeze_", it.x, 0, grad=False),
    "transposed": lambda it: it.call("torch.Tensor.t_", it.x, grad=False),
    "in place": lambda it: it.call("torch.Tensor.mul_", it.x, it.other, grad=False),
    "in place by a mean": lambda it: it.call(
        "torch.Tensor.sub_", it.x, it.call("torch.mean", it.x, 0), grad=False
    ),
    "of two masks": lambda it: it.call("torch.add", it.x, it.other),
    "cat": lambda it: it.call("torch.cat", [it.x, it.other]),
    "cat of columns": lambda it: it.call("torch.cat", [it.x, it.other], 1),
    "cat with a weight": lambda it: it.call("torch.cat", [it.x, it.w]),
    "stack": lambda it: it.call("torch.stack", [it.x, it.other]),
    "squeezed": lambda it: it.call("torch.squeeze", it.call("torch.unsqueeze", it.u, 1)),
    "squeezed scores": lambda it: it.call("torch.squeeze", it.scores()),
    "flat": lambda it: it.call("torch.reshape", it.x, (-1,)),
    "in twos": lambda it: it.call("torch.reshape", it.x, (-1, 2)),
    "in eights": lambda it: it.call("torch.reshape", it.x, (-1, 8)),
    "of a fixed size": lambda it: it.call("torch.reshape", it.x, (3, 4)),
    "pieces": lambda it: it.call("torch.chunk", it.x, it.rng.choice((2, 3)), it.rng.choice((0, 1))),
    "each": lambda it: it.call("torch.unbind", it.x, it.rng.choice((0, 1))),
    "embedding": lambda it: it.call(_f("embedding"), it.y, it.w),
    "one hot": lambda it: it.call(_f("one_hot"), it.y, 3),
    "counts": lambda it: it.call("torch.bincount", it.y, None, 3),
    "gathered": lambda it: it.call("torch.index_select", it.w, 0, it.y),
    "added by class": lambda it: it.call(
        "torch.index_add", it.eve.public(torch.zeros(3, 4)), 0, it.y, it.x
    ),
    "distances": lambda it: it.call("torch.cdist", it.x, it.other),
    "least squares": lambda it: it.call(
        "torch.linalg.lstsq", it.x, it.call("torch.unsqueeze", it.u, 1)
    ),
    "singular values": lambda it: it.call("torch.linalg.svd", it.x, False),
    "dropout": lambda it: it.call(_f("dropout"), it.x, 0.5, True),
    "sorted": lambda it: it.call("torch.sort", it.x, 0),
    "unique": lambda it: it.call("torch.unique", it.y),
    "convolved": lambda it: it.call(
        "torch.conv1d",
        it.call("torch.unsqueeze", it.x, 1),
        it.call("torch.unsqueeze", it.w, 1),
    ),
    "expanded": lambda it: it.call("torch.Tensor.expand", it.x, 3, -1, -1),
    "as large as": lambda it: it.call("torch.Tensor.expand_as", it.eve.public(torch.ones(4)), it.x),
    "contiguous": lambda it: it.call("torch.Tensor.contiguous", it.call("torch.t", it.x)),
    "data": lambda it: it.call("torch.Tensor.data.__set__", it.eve.public(torch.ones(4)), it.x),
}
"""What is done with the rows."""


def use_rows(program: RandomProgram) -> None:
    """Some of that, in a row, on one choice."""
    rng = program.rng
    it = rows(program.observer, program.call, rng.choice(COUNTS), rng, program.destinations)
    for name in rng.sample([*USES], 3):
        made = USES[name](it)
        found = [one for one in (made if isinstance(made, (list, tuple)) else [made])]
        program.private_sizes += [one for one in found if isinstance(one, Reference)]
    program.private_sizes += [one for one in (it.x, it.u) if isinstance(one, Reference)]
