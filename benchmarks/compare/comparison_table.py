"""The tables of the comparison: what was measured, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

OWN_POOLS: Final = "CrypTen's own pools"


@dataclass
class Measured:
    """The figures of one library on one case; ``failure`` says why there are none."""

    milliseconds: list[float] = field(default_factory=list)
    cpu_milliseconds: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    """Bytes, of all processes of the library together."""
    error: float = 0.0
    """The largest difference from the result in plain torch or jax."""
    failure: str = ""

    @property
    def typical(self) -> float:
        """The median of the times; infinite where there are none."""
        return median(self.milliseconds) if self.milliseconds else float("inf")


def rounded(value: float) -> str:
    """Write three digits, and no fraction of what is larger.

    >>> rounded(1234.5), rounded(56.78), rounded(1.234)
    ('1234', '56.8', '1.23')
    """
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f}"


def cell(measured: Measured) -> str:
    """Write the median and, in brackets, the least; or why there is none."""
    if not measured.milliseconds:
        return measured.failure or "-"
    return f"{rounded(measured.typical)} ({rounded(min(measured.milliseconds))})"


def ratio(peer: Measured, ours: Measured) -> str:
    """Write how many times as long the peer takes."""
    if not peer.milliseconds or not ours.milliseconds:
        return "-"
    return rounded(peer.typical / ours.typical)


def best(candidates: dict[str, Measured]) -> tuple[str, Measured]:
    """Choose the fastest; where none has a figure, the first."""
    name = min(candidates, key=lambda name: candidates[name].typical)
    return name, candidates[name]


def times(cases: Sequence[str], results: dict[str, dict[str, Measured]]) -> str:
    """Write the table of times; ``results`` are by library, then by case.

    The libraries whose names begin with ``SPU`` are one column: the faster of its protocols.  The
    ratios are to syft, and to what it takes when the provider has dealt before.
    """
    rows = []
    for case in cases:
        ours, ahead = results["syft"][case], results["syft ahead"][case]
        crypten, own = results["CrypTen"][case], results[OWN_POOLS][case]
        name, spu = best({name: each[case] for name, each in results.items() if "SPU" in name})
        protocol = f" {name.removeprefix('SPU ')}" if spu.milliseconds else ""
        figures = [cell(each) for each in (ours, ahead, crypten, own, spu)]
        figures[-1] += protocol
        ratios = [f"{ratio(peer, ours)}; {ratio(peer, ahead)}" for peer in (crypten, own, spu)]
        rows.append([case, *figures, *ratios])
    peers = ["CrypTen", "own pools", "SPU"]
    over = [f"{peer} / syft; ahead" for peer in peers]
    return markdown(["ms", "syft", "dealt ahead", *peers, *over], rows)


def details(cases: Sequence[str], results: dict[str, dict[str, Measured]]) -> str:
    """Write what else was measured: processor time, bytes, errors."""
    rows = []
    for case in cases:
        for name, measured in ((name, each[case]) for name, each in results.items()):
            if not measured.milliseconds:
                continue
            figures = [rounded(median(measured.cpu_milliseconds))]
            figures.append(rounded(median(measured.sent) / 1e6))
            figures += [f"{measured.error:.1e}", str(len(measured.milliseconds))]
            rows.append([case, name, *figures])
    header = ["case", "library", "processor ms", "MB sent", "largest error", "runs"]
    return markdown(header, rows)


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table with columns of equal width.

    >>> print(markdown(["a", "b"], [["1", "long"]]))
    | a | b    |
    |---|------|
    | 1 | long |
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    written = [
        "| " + " | ".join(map(str.ljust, line, widths)) + " |"  # one line for each row
        for line in lines
    ]
    written.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(written)
