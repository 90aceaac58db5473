"""The tables of docs/strangers.md: which operations run on private data for a stranger, who may
not read it, and why the others are refused.

Each operation of the op table is called by a stranger, on the samples that torch's database has for
it or on a few plain arguments, all private.  What such a call comes to follows from shapes and
dtypes, and so it is the same for all values.  Questions are told by the properties that they ask.

``python tools/stranger_table.py`` prints the tables; ``--write`` puts them into the document,
between marker lines.  A test compares the document with what this prints.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch

from syft.exceptions import PermissionDenied
from syft.ops.nested import leaves, replace
from syft.ops.table import BY_NAME, FACTORY, FLAGS, FUNCTIONS, GRADIENT, METADATA, NAMES
from syft.workers.execution.moved_memory import NoHoldings
from syft.workers.execution.predicted_failures import QUESTION
from syft.workers.execution.private_commands import run_guarded
from syft.workers.execution.public_facts import is_told
from syft.workers.hardening.precautions import RUNNABLE
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect
from tests.privacy.two_worlds.samples import Sample, Samples
from tools.wire_tables import between, table

DOCUMENT = Path(__file__).parent.parent / "docs" / "strangers.md"
BEGIN = "<!-- tables: written by tools/stranger_table.py -->"
END = "<!-- end of tables -->"

OWNED: Final = Guard(frozenset({"ann"}))
OF_PRIVATE_SHAPE: Final = Guard(frozenset({"ann"}), shape_hidden=True)
MOST_TRIED: Final = 6
"""How many of torch's samples are tried of an operation."""

RUNS: Final = "runs"
SIZED: Final = "runs, and the shape of the result is private"
BACKWARD: Final = "runs; from or to a tensor of private shape it is refused"
MAKES: Final = "makes tensors, which are public if no operand is private"
UNTRIED: Final = "not called here: neither torch's database nor this tool has arguments for it"
ANSWERED: Final = "answered"
OF_SHAPE: Final = "answered, unless the shape is private"


Verdict = tuple[str, str]
"""What a call comes to, and what a refusal tells to do instead."""

_WHAT: Final = re.compile(r", (an? (?:operation|question|write|backward).*)")
_WAY: Final = re.compile(r"(.*?)(; or )?be admitted, ")


def _plain_arguments() -> Iterator[tuple[Any, ...]]:
    """Arguments for the operations of which torch's database has no samples."""
    x, vector, whole, mask = torch.ones(3, 3), torch.ones(3), torch.arange(4), torch.ones(3) > 0
    yield from ((x,), (vector,), (whole,), (mask,), (torch.ones(1),), ([x, x],), (x, x), (x, x, x))
    yield from ((whole, whole), (x, 1), (whole, 1), (x, 0, whole[:3]), (x, 0, 1), (x, mask, 1.0))
    yield from ((torch.ones(1, 2, 8), 2), (torch.ones(1, 2, 8, 8), 2))


@cache
def _database() -> Samples:
    return Samples()


@cache
def calls_of(name: str) -> list[Sample]:
    """Return the calls by which an operation is judged, which torch computes."""
    if name in _database().names:
        found = [one for one in _database().of(name, torch.float32, False) if one.tensors()]
        found = found[:MOST_TRIED]
    else:
        found = [Sample(name, arguments, {}) for arguments in _plain_arguments()]
    return [*filter(_is_computed, found)]


def _is_computed(sample: Sample) -> bool:
    args, kwargs = replace((sample.args, dict(sample.kwargs)), _copied)
    function: Any = RUNNABLE[BY_NAME[sample.name]]
    try:
        return function(*args, **kwargs) is not NotImplemented
    except Exception:  # whatever torch raises
        return False


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def verdict_on(sample: Sample, change: Callable[[torch.Tensor], torch.Tensor]) -> Verdict | None:
    """Return what a stranger's call on private tensors comes to; None if it fails whatever the
    values are.  ``change`` makes the values, and a verdict is the same for all of them."""

    def private(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        made = change(leaf.detach().clone())
        protect(made, OWNED)
        return made

    args, kwargs = replace((sample.args, dict(sample.kwargs)), private)
    number = BY_NAME[sample.name]
    function: Any = FUNCTIONS[number]
    given = [*args], kwargs, FLAGS[number], OWNED, NoHoldings()
    try:
        result = run_guarded(function, *given, "bob", "eve")
    except PermissionDenied as error:
        return refused_with(error)
    except Exception:  # one that everybody may see, as it follows from shapes
        return None
    guards = [full_guard_of(leaf) for leaf in leaves(result) if isinstance(leaf, torch.Tensor)]
    hidden = any(guard is not None and guard.shape_hidden for guard in guards)
    return (SIZED if hidden else RUNS), ""


def refused_with(error: PermissionDenied) -> Verdict:
    """Return what is refused, and what to do instead."""
    what, way = _WHAT.search(error.action), _WAY.match(error.instead)
    assert what is not None and way is not None, error
    return what[1], way[1]


def as_they_are(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of a sample."""
    return tensor


def verdicts_on(number: int) -> frozenset[Verdict]:
    """Return what a stranger's calls of an operation come to."""
    flags = FLAGS[number]
    if flags & METADATA:
        function: Any = FUNCTIONS[number]
        if is_told(function, OF_PRIVATE_SHAPE):
            return frozenset({(ANSWERED, "")})
        return frozenset({(OF_SHAPE, "") if is_told(function, OWNED) else (QUESTION, "")})
    if flags & GRADIENT:
        return frozenset({(BACKWARD, "")})
    found = [verdict_on(sample, as_they_are) for sample in calls_of(NAMES[number])]
    told = frozenset(verdict for verdict in found if verdict is not None)
    return told or frozenset({(MAKES if flags & FACTORY else UNTRIED, "")})


@cache
def rows() -> dict[frozenset[Verdict], list[str]]:
    """Return the names of the operations by what a stranger's calls of them come to."""
    found: dict[frozenset[Verdict], list[str]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's samples use much that is deprecated
        for number, function in enumerate(FUNCTIONS):
            if function is not None:
                found.setdefault(verdicts_on(number), []).append(NAMES[number])
    return found


# ------------------------------------------------------------------------------------ the document


def _last(name: str) -> str:
    """Return the last part of a name; that of its property, for what sets one."""
    parts = name.removesuffix(".__get__").split(".")
    return ".".join(parts[-2:]) if parts[-1] in ("__set__", "__delete__") else parts[-1]


def compact(names: Iterable[str], others: Iterable[str]) -> str:
    """Return the names of a row: their last parts, where no ``others`` have the same, and
    ``add(_)`` for ``add`` and ``add_``.

    >>> compact(["torch.add", "torch.Tensor.add_", "torch.sub"], ["torch.Tensor.sub"])
    '`add(_)` `torch.sub`'
    """
    taken = set(map(_last, others))
    found = {name if _last(name) in taken else _last(name) for name in names}
    both = {name for name in found if f"{name}_" in found}
    shown = sorted(found - {f"{name}_" for name in both})
    return " ".join(f"`{name}(_)`" if name in both else f"`{name}`" for name in shown)


def _order(what: str) -> tuple[bool, str]:
    """Return by what the parts of a row are sorted: what runs comes first."""
    return what not in (RUNS, SIZED), what


def _row(verdicts: frozenset[Verdict], names: list[str]) -> tuple[str, str, int, str]:
    """Return a row: what calls come to, what to do where they are refused, and the names."""
    others = [name for row, found in rows().items() if row != verdicts for name in found]
    told = "; or: ".join(sorted({what for what, _ in verdicts}, key=_order))
    ways = "; or: ".join(sorted({way for _, way in verdicts if way}))
    return told, ways, len(names), compact(names, others)


HEADINGS: Final = (
    "Operations that run",
    "Operations that run for some arguments",
    "Operations that are refused",
    "Questions",
    "Operations that no call here tells of",
)


def _heading(told: set[str]) -> str:
    """Return the table of a row that comes to this."""
    if told <= {RUNS, SIZED, BACKWARD}:
        return HEADINGS[0]
    if told <= {ANSWERED, OF_SHAPE, QUESTION}:
        return HEADINGS[3]
    if told <= {MAKES, UNTRIED}:
        return HEADINGS[4]
    return HEADINGS[1 if told & {RUNS, SIZED} else 2]


def tables() -> str:
    """Return all tables, as they stand in the document."""
    parts: dict[str, list[tuple[str, str, int, str]]] = {heading: [] for heading in HEADINGS}
    for verdicts, names in rows().items():
        parts[_heading({what for what, _ in verdicts})].append(_row(verdicts, names))
    head = ("what a call comes to", "what to do where it is refused", "operations", "names")
    return "\n\n".join(table(heading, head, sorted(found)) for heading, found in parts.items())


def with_tables(text: str) -> str:
    """Return the document with its tables replaced by those of today."""
    return between(text, BEGIN, END, tables())


def main(arguments: list[str]) -> None:
    """Print the tables, or with ``--write`` bring the document up to date."""
    if arguments == ["--write"]:
        DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(tables())


if __name__ == "__main__":
    main(sys.argv[1:])
