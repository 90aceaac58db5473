"""Calls to make: of every operation of the op table for which torch's databases have arguments.

The arguments are those of torch's own tests, so that most calls succeed.  The ``_foreach_``
operations are in none of the lists that have samples for single calls; theirs are found by trying.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal.opinfo.core import OpInfo

from syft.exceptions import NotSendable
from syft.ops.nested import leaves
from syft.ops.table import FUNCTIONS, NAMES, NUMBERS
from syft.serde.packer import Packer
from syft.serde.registry import pack
from tests.torch_suite.cases import OP_CASES, Case

MOST_ELEMENTS = 2000
MOST_SAMPLES = 12

BLOCK = 400
"""The programs, one after the other, that draw from the same samples ..."""
POOL = 1200
"""... which are so many, so that the predictions of a program are those of earlier ones."""

DTYPES = (torch.float32,) * 5 + (
    torch.float64,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.bfloat16,
    torch.uint8,
)

CRASHES: dict[str, str] = {}
"""Parts of names of operations that end the process for some operands, and which: none, since the
table of operations that workers run checks what torch's kernels trust
(:mod:`syft.workers.hardening.precautions`)."""


ROUNDED = ("lstsq",)
"""Parts of names of operations whose last bits depend on where in memory LAPACK's workspace is."""


def is_repeatable(name: str) -> bool:
    """Whether an operation gives the same bits again, so that public results can be compared."""
    return not any(part in name for part in ROUNDED)


def is_safe(name: str) -> bool:
    """Whether an operation survives arguments that nobody would hand to it."""
    return not any(part in name for part in CRASHES)


@dataclass(frozen=True, slots=True)
class Sample:
    """The arguments of one call, with tensors in them."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def tensors(self) -> list[torch.Tensor]:
        """Every tensor among the arguments."""
        found = leaves((self.args, self.kwargs))
        return [leaf for leaf in found if isinstance(leaf, torch.Tensor)]

    def first_in(self, place: str) -> int:
        """The number of the first tensor in a place, among all tensors in their order."""
        before = 0
        for at, value in [*enumerate(self.args), *self.kwargs.items()]:
            count = sum(isinstance(leaf, torch.Tensor) for leaf in leaves(value))
            if str(at) == place and count:
                return before
            before += count
        raise ValueError(f"no tensor in place {place}")

    def positions(self) -> Iterator[str]:
        """The places in which a tensor stands."""
        for place, value in [*enumerate(self.args), *self.kwargs.items()]:
            if any(isinstance(leaf, torch.Tensor) for leaf in leaves(value)):
                yield str(place)


def can_travel(sample: Sample) -> bool:
    """Whether all arguments of a sample can be sent, and none is written to by keyword."""
    try:
        for leaf in leaves((sample.args, sample.kwargs)):
            pack(leaf, Packer())
    except NotSendable:
        return False
    return "out" not in sample.kwargs


class Samples:
    """Everything that can be called, by name; samples are made when first asked for."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, torch.dtype, bool], list[Sample]] = {}
        self.forms: dict[str, list[OpInfo]] = {}
        for op in {id(case.op): case.op for case in OP_CASES}.values():
            for name in names_of(op):
                if is_safe(name):
                    self.forms.setdefault(name, []).append(op)
        self.lists = {
            name: found
            for name in NAMES
            if "_foreach_" in name and (found := [*foreach_samples(name)])
        }
        self.names = sorted([*self.forms, *self.lists])
        self._pool: tuple[str, list[Sample]] = ("", [])
        self._expected: set[tuple[str, str]] = set()

    def of(self, name: str, dtype: torch.dtype, grad: bool) -> list[Sample]:
        """The samples of an operation at a dtype; of another dtype where it does not support it."""
        if name in self.lists:
            return self.lists[name]
        key = (name, dtype, grad)
        if key not in self._made:
            self._made[key] = [
                sample for op in self.forms[name] for sample in _samples(name, op, dtype, grad)
            ]
        return self._made[key]

    def draw(self, rng: random.Random, name: str | None = None) -> Sample | None:
        """A sample of any operation, or of this one."""
        chosen = name or rng.choice(self.names)
        dtype, grad = rng.choice(DTYPES), rng.random() < 0.5
        found = self.of(chosen, dtype, grad)
        return rng.choice(found) if found else None

    def pool(self, program: str) -> list[Sample]:
        """The samples from which a program draws, by its seed (``7/1234``)."""
        run, _, number = program.rpartition("/")
        block = f"{run} block {int(number) // BLOCK}"
        if self._pool[0] != block:
            rng = random.Random(block)
            names = rng.sample(self.names, len(self.names)) * (POOL // len(self.names) + 1)
            drawn = [self.draw(rng, name) for name in names[:POOL]]
            self._pool = block, [sample for sample in drawn if sample is not None]
        return self._pool[1]

    def make_all(self) -> None:
        """Make every sample, so that processes that are forked share them."""
        for name in self.names:
            for dtype in dict.fromkeys(DTYPES):
                self.of(name, dtype, False)
                self.of(name, dtype, True)

    def expected(self) -> set[tuple[str, str]]:
        """The operations and places where a private operand can stand."""
        if self._expected:
            return self._expected
        found = self._expected
        for name in self.names:
            for dtype in dict.fromkeys(DTYPES):
                for sample in self.of(name, dtype, False):
                    found.update((name, place) for place in sample.positions())
        return found


def names_of(op: OpInfo) -> set[str]:
    """The names in the op table under which an operator of torch's database can be called."""
    forms = [op.op, op.method_variant, op.operator_variant]
    forms += [op.inplace_variant, op.inplace_operator_variant]
    for alias in op.aliases:
        forms += [alias.op, alias.method_variant, alias.inplace_variant]
    found: set[str] = set()
    for form in forms:
        try:
            number = NUMBERS.get(form)
        except TypeError:  # not hashable
            continue
        if number is not None:
            found.add(NAMES[number])
    return found


def _samples(name: str, op: OpInfo, dtype: torch.dtype, grad: bool) -> Iterator[Sample]:
    kind = dtype if dtype in op.dtypes else next(iter(sorted(op.dtypes, key=str)), torch.float32)
    differentiable = op.supports_autograd and (kind.is_floating_point or kind.is_complex)
    case = Case(op, kind)
    try:
        made = case.samples("cpu", requires_grad=grad and differentiable, most=MOST_SAMPLES)
    except Exception:  # some generators refuse a dtype that the operator supports
        return
    for one in made:
        args = tuple(map(_as_tuple, (one.input, *one.args)))
        sample = Sample(name, args, {key: _as_tuple(item) for key, item in one.kwargs.items()})
        tensors = sample.tensors()
        if tensors and all(tensor.numel() <= MOST_ELEMENTS for tensor in tensors):
            yield sample


def _as_tuple(value: Any) -> Any:
    """A size as a tuple, in which a tensor can stand for a number."""
    return tuple(value) if isinstance(value, torch.Size) else value


def foreach_samples(name: str) -> Iterator[Sample]:
    """The arguments that a ``_foreach_`` operation takes, of those that any of them takes."""
    function = FUNCTIONS[NUMBERS_BY_NAME[name]]

    def lists(count: int) -> list[list[torch.Tensor]]:
        return [[torch.ones(3), torch.arange(1.0, 3.0)] for _ in range(count)]

    shapes: list[Callable[[], tuple[Any, ...]]] = [
        lambda: (*lists(1),),
        lambda: (*lists(2),),
        lambda: (*lists(1), 0.5),
        lambda: (*lists(1), [0.5, 2.0]),
        lambda: (*lists(1), torch.tensor(2.0)),
        lambda: (*lists(3),),
        lambda: (*lists(3), 0.5),
        lambda: (*lists(2), 0.5),
        lambda: (*lists(3), torch.tensor([0.5, 2.0])),
        lambda: (2.0, *lists(1)),
    ]
    for make in shapes:
        try:
            if function is not None:
                function(*make())
        except (TypeError, RuntimeError, ValueError):
            continue
        yield Sample(name, make(), {})


NUMBERS_BY_NAME = {name: number for number, name in enumerate(NAMES)}
