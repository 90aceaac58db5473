"""Programs that go through the table: each operation, with a private operand in each place in which
a tensor can stand, once so that it succeeds and once so that it fails.

What random programs come to depends on luck.  These do not: a row that is not reached is missing
for a reason, and the reasons are in a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from syft.exceptions import NotSendable, SyftError
from syft.ops.nested import replace
from syft.ops.table import BY_NAME, FLAGS, REVEALS
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.generator import RandomProgram
from tests.privacy.two_worlds.report import Row
from tests.privacy.two_worlds.samples import DTYPES, Sample

ROWS = 12
"""The rows of one program: each takes two commands or more."""
MOST_TRIED = 24
"""How many samples are tried before a row counts as missing."""


def run_rows(program: RandomProgram, rows: Iterable[Row]) -> None:
    """Reach these rows, or find that they cannot be, up to the first difference."""
    program.put_basics()
    for name, place in rows:
        for succeeded in (True, False):
            for attempt in _attempts(program, name, place, succeeded):
                if program.both.difference is not None:
                    return
                try:
                    attempt()
                except (NotSendable, ValueError, SyftError):  # a sample that no message can carry
                    continue
                if (name, place, succeeded) in program.covered:
                    break
    program.look()
    program.note_messages()


def _attempts(
    program: RandomProgram, name: str, place: str, succeeded: bool
) -> Iterator[Callable[[], Any]]:
    changes = (_as_it_is,) if succeeded else (_wrong_operand, _one_too_many, _unknown_keyword)
    for sample in _with_place(program, name, place):
        for change in changes:
            for owned in (name.endswith("_"), True) if succeeded else (False,):
                yield partial(_call, program, sample, place, change, owned)


def _with_place(program: RandomProgram, name: str, place: str) -> list[Sample]:
    """Samples of an operation with a tensor in a place: of each dtype, the simple ones first."""
    found = [
        sample
        for dtype in dict.fromkeys(DTYPES)
        for sample in program.samples.of(name, dtype, False)
        if place in sample.positions()
    ]
    program.rng.shuffle(found)
    return found[:MOST_TRIED]


Change = Callable[[RandomProgram, Sequence[Any], dict[str, Any], str], tuple[Any, dict[str, Any]]]


def _call(program: RandomProgram, sample: Sample, place: str, change: Change, owned: bool) -> None:
    laid = program.laid_out(sample, place, owned)
    args, kwargs = change(program, laid.args, dict(laid.kwargs), place)
    program.call(sample.name, *args, **kwargs)


def _as_it_is(
    program: RandomProgram, args: Sequence[Any], kwargs: dict[str, Any], place: str
) -> tuple[Any, dict[str, Any]]:
    return args, kwargs


def _wrong_operand(
    program: RandomProgram, args: Sequence[Any], kwargs: dict[str, Any], place: str
) -> tuple[Any, dict[str, Any]]:
    """Another tensor in one of the other places."""
    wrong = program.put(torch.ones(2, 7, 11), False)
    others = [at for at in range(len(args)) if str(at) != place]
    if not others:
        return [*args, wrong], kwargs
    at = program.rng.choice(others)
    changed = replace(args[at], lambda leaf: wrong if isinstance(leaf, Reference) else leaf)
    return [*args[:at], wrong if changed is args[at] else changed, *args[at + 1 :]], kwargs


def _one_too_many(
    program: RandomProgram, args: Sequence[Any], kwargs: dict[str, Any], place: str
) -> tuple[Any, dict[str, Any]]:
    return [*args, *(["one too many"] * 12)], kwargs


def _unknown_keyword(
    program: RandomProgram, args: Sequence[Any], kwargs: dict[str, Any], place: str
) -> tuple[Any, dict[str, Any]]:
    return args, {**kwargs, "no_such_argument": 1}


# --------------------------------------------------------------------------------- what cannot be


def why_never(row: tuple[str, str, bool]) -> str | None:
    """Why a row of the table cannot be reached; None if it must be."""
    name, place, succeeded = row
    last = name.rpartition(".")[2]
    if succeeded and FLAGS[BY_NAME[name]] & REVEALS:
        return "it returns values, which is refused"
    if last in NEVER:
        return NEVER[last]
    return NEVER_SUCCEED.get((last, place)) or NEVER_SUCCEED.get((last, "")) if succeeded else None


NEVER: dict[str, str] = {
    "triplet_margin_with_distance_loss": "torch's samples hand it a function, which cannot travel",
}
"""Operations that cannot be called, and why, by the last part of their names."""
NEVER_SUCCEED: dict[tuple[str, str], str] = {
    ("narrow", "2"): "a private number would be an offset",
    ("tensor_split", "1"): "private numbers would be sizes",
    ("_foreach_norm", "1"): "a private number would be the order of a norm",
    ("_foreach_powsum", "1"): "a private number would be the exponent of a sum",
    ("gaussian_nll_loss", "2"): "it reads whether a variance is negative",
    ("segment_reduce", ""): "its check reads offsets and lengths",
    ("istft", ""): "it reads whether windows overlap",
    ("cov", ""): "it reads sums of weights",
    ("corrcoef", ""): "it reads sums of weights",
}
"""Operations that are refused for a private operand in a place, or in any, and why."""
