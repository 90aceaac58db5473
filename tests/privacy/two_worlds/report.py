"""What a run of random programs found, and which operations it has tried with private operands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

Row = tuple[str, str]
"""An operation and the place of an argument."""


@dataclass
class Report:
    """The counts of some programs; reports of several runs can be added up."""

    commands: int = 0
    private: int = 0
    succeeded: int = 0
    failed_publicly: int = 0
    sealed: int = 0
    marks: Counter[str] = field(default_factory=Counter)
    """How many commands were of the kinds that matter, by kind."""
    covered: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    """How often an operation had a private operand in a place, and whether it succeeded."""
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    """In how many programs a kind of message was sent, and a dtype or a layout was private."""
    differences: list[tuple[str, str, list[str]]] = field(default_factory=list)
    """The seed of a program, the difference, and the shortest program that shows one."""
    ended: list[str] = field(default_factory=list)
    """The programs that ended the process or did not come to an end, with what happened."""

    def add(self, other: Report) -> None:
        """Add the counts of another report."""
        self.commands += other.commands
        self.private += other.private
        self.succeeded += other.succeeded
        self.failed_publicly += other.failed_publicly
        self.sealed += other.sealed
        self.marks.update(other.marks)
        self.covered.update(other.covered)
        self.kinds.update(other.kinds)
        self.differences += other.differences
        self.ended += other.ended

    def missing(self, expected: Iterable[Row]) -> list[tuple[str, str, bool]]:
        """The rows of the table that were not reached."""
        return [row for row in _both_ways(expected) if not self.covered[row]]

    def reached(self, expected: Iterable[Row]) -> list[tuple[str, str, bool]]:
        """The rows of the table that were reached."""
        return [row for row in _both_ways(expected) if self.covered[row]]

    def table(self, expected: Iterable[Row]) -> str:
        """Operation, place, and how often a private operand stood there in success and failure."""
        rows = sorted({*expected, *((name, place) for name, place, _ in self.covered)})
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join(
            f"{name:{width}} {place:>12} {self.covered[name, place, True]:6}"
            f" {self.covered[name, place, False]:6}"
            for name, place in rows
        )

    def __str__(self) -> str:
        lines = [
            f"{self.commands} commands, {self.private} of them private",
            f"{self.succeeded} succeeded, {self.failed_publicly} failed publicly, "
            f"{self.sealed} were sealed",
            *(f"{count / self.commands:.1%} {mark}" for mark, count in sorted(self.marks.items())),
            f"{len(self.differences)} differences, {len(self.ended)} programs did not end well",
        ]
        for seed, text, requests in self.differences:
            lines += [f"program {seed}: {text}", *(f"    {request}" for request in requests)]
        return "\n".join([*lines, *(self.ended)])


def _both_ways(expected: Iterable[Row]) -> list[tuple[str, str, bool]]:
    """Rows in success and in failure."""
    return [
        (name, place, succeeded) for name, place in sorted(expected) for succeeded in (True, False)
    ]
