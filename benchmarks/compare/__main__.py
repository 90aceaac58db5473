"""Run every library on every case in turns, and write the tables: ``make compare``.

In turns, so that all libraries see the same machine: one run each, again and again.  Each has its
processes ready meanwhile, which wait.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.compare.cases import CASES
from benchmarks.compare.comparison_table import OWN_POOLS, Measured, details, times
from benchmarks.compare.peer_process import Library, PeerFailed, PeerProcess

LIBRARIES = (
    Library("syft", ".venv", "benchmarks.compare.ours"),
    Library("syft ahead", ".venv", "benchmarks.compare.ours", ("ahead",)),
    Library("CrypTen", ".venv-crypten", "benchmarks.compare.crypten_peer", ("pairs",)),
    Library(OWN_POOLS, ".venv-crypten", "benchmarks.compare.crypten_peer", ("own",), pools=True),
    Library("SPU semi2k", ".venv-spu", "benchmarks.compare.spu_peer", ("semi2k",)),
    Library("SPU aby3", ".venv-spu", "benchmarks.compare.spu_peer", ("aby3",)),
)

MOST_RUNS = 30

NOTES = """\
Milliseconds: the median and, in brackets, the least.  Each library has three processes on loopback
(SPU's semi2k two), each with one thread; they run in turns.  Operands and parameters are shared
before the clock starts, operands anew for each run; it stops when the parties have their shares of
the result.  Dealing is in the time, except where syft's provider has dealt before (`sy.prepare`).
CrypTen 0.4.1: two parties and its trusted third party; maxima of windows as a tournament and, in
the column "own pools", by its own function.  SPU 0.9.5: the faster of semi2k (the first
party is trusted with the triples) and aby3 (three parties, no two of which may show each other what
they see).  The batch norms of ResNet-18 are folded into its convolutions.

The second table: processor time and bytes sent are of all processes together, framing and what goes
to the provider and from it included.  The error is the largest difference from plain torch or jax;
greater-than differs, by 1, where two values are one on the grid."""


def _prepare(peers: Sequence[PeerProcess], case: str) -> dict[str, Measured]:
    """Have each library share the operands and check the result."""
    measured = {peer.library.name: Measured() for peer in peers}
    for peer in peers:
        mine = measured[peer.library.name]
        if peer.library.pools and not CASES[case].pools:
            mine.failure = "-"
            continue
        try:
            mine.error = peer.ask(case)["error"]
        except PeerFailed as failed:
            mine.failure = str(failed)
    return measured


def compare(
    peers: Sequence[PeerProcess], case: str, least_runs: int, seconds: float
) -> dict[str, Measured]:
    """Measure one case: ``least_runs`` of each library at least, and for so many seconds."""
    measured = _prepare(peers, case)
    began = time.monotonic()
    for turn in range(max(least_runs, MOST_RUNS)):
        if turn >= least_runs and time.monotonic() - began > seconds:
            break
        for peer in peers:
            mine = measured[peer.library.name]
            if mine.failure:
                continue
            try:
                answer = peer.ask(case)
            except PeerFailed as failed:
                mine.failure = str(failed)
                continue
            mine.milliseconds.append(answer["ms"])
            mine.cpu_milliseconds.append(answer["cpu_ms"])
            mine.sent.append(answer["bytes"])
    return measured


def main() -> None:
    """Compare, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="at least so many (%(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each case (%(default)s)")
    parser.add_argument("--case", action="append", choices=CASES, help="only this one; repeatable")
    names = [library.name for library in LIBRARIES]
    parser.add_argument("--library", action="append", choices=names, help="the same")
    parser.add_argument("--write", type=Path, help="a file for the tables")
    options = parser.parse_args()
    cases = options.case or list(CASES)
    chosen = options.library or names
    peers = [PeerProcess(library) for library in LIBRARIES if library.name in chosen]
    results = {name: {case: Measured() for case in cases} for name in names}
    loads = [os.getloadavg()[0]]
    try:
        for case in cases:
            for name, measured in compare(peers, case, options.runs, options.seconds).items():
                results[name][case] = measured
            loads.append(os.getloadavg()[0])
            print(times([case], results), flush=True)
    finally:
        for peer in peers:
            peer.close()
    machine = f"{os.cpu_count()} cores ({platform.machine()}), load average {loads[0]:.1f} before"
    machine += f" and {max(loads):.1f} at most meanwhile (the libraries themselves make 2 to 3)."
    parts = [f"# Sharing, beside CrypTen and SPU\n\n{machine}\n\n{NOTES}"]
    parts += [times(cases, results), details(cases, results)]
    written = "\n\n".join(parts) + "\n"
    print(written)
    if options.write is not None:
        options.write.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
