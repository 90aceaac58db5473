"""Programs that go through the table: each operation, with a private operand in each place in which
a tensor can stand, once so that it succeeds and once so that it fails.

What random programs come to depends on luck.  These do not: a row is tried with every sample until
one reaches it.  A row that none reaches is missing for a reason, and the reasons are in a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

import torch

from syft.exceptions import NotSendable, SyftError
from syft.ops.nested import replace
from syft.ops.table import BY_NAME
from syft.workers.hardening.precautions import RUNNABLE
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.further_samples import further_samples
from tests.privacy.two_worlds.generator import RandomProgram
from tests.privacy.two_worlds.report import Row
from tests.privacy.two_worlds.samples import DTYPES, Sample
from tests.privacy.two_worlds.unreachable_rows import why_never

ROWS = 12
"""The rows of one program: each takes two commands or more."""
MOST_TRIED = 24
"""How many samples are tried of a row that there is a reason not to reach; others take them all."""


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
    found = _with_place(program, name, place)
    if why_never((name, place, succeeded)) is not None:
        found = found[:MOST_TRIED]
    owned = name.endswith("_")  # or it would fail because the target is somebody else's
    if succeeded:
        for sample in working_first([*further_samples(name, place), *found]):
            yield partial(_call, program, sample, place, _as_it_is, owned)
            yield partial(_call_alone, program, sample, place)
    else:
        for sample in found:
            for change in (_wrong_operand, _one_too_many, _unknown_keyword):
                yield partial(_call, program, sample, place, change, owned)


def _with_place(program: RandomProgram, name: str, place: str) -> list[Sample]:
    """Samples of an operation with a tensor in a place: of each dtype, in any order."""
    found = [
        sample
        for dtype in dict.fromkeys(DTYPES)
        for sample in program.samples.of(name, dtype, False)
        if place in sample.positions()
    ]
    program.rng.shuffle(found)
    return found


def working_first(samples: Iterable[Sample]) -> Iterator[Sample]:
    """The samples that torch computes here, and then the others.

    Torch's databases have the same samples for an operation and for its in-place variant, which
    refuses those whose result is of another dtype or shape.
    """
    others = []
    for sample in samples:
        if works(sample):
            yield sample
        else:
            others.append(sample)
    yield from others


def works(sample: Sample) -> bool:
    """Whether a worker that holds no private data would compute a sample."""
    function = RUNNABLE[BY_NAME[sample.name]]
    if function is None:  # torch does not have it in this version
        return False
    args, kwargs = replace(
        (sample.args, sample.kwargs),
        lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf,
    )
    try:
        function(*args, **kwargs)
    except Exception:  # whatever torch raises
        return False
    return True


Change = Callable[[RandomProgram, Sequence[Any], dict[str, Any], str], tuple[Any, dict[str, Any]]]


def _call(program: RandomProgram, sample: Sample, place: str, change: Change, owned: bool) -> None:
    laid = program.laid_out(sample, place, owned)
    args, kwargs = change(program, laid.args, dict(laid.kwargs), place)
    program.call(sample.name, *args, **kwargs)


def _call_alone(program: RandomProgram, sample: Sample, place: str) -> None:
    """Call an operation with one private operand, the first in a place, which she may write to.

    What torch reads as a number from another operand is public in such a call.
    """
    private, numbers = sample.first_in(place), count()

    def placed(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return program.own(program.put(leaf, next(numbers) == private))

    args, kwargs = replace((sample.args, sample.kwargs), placed)
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
