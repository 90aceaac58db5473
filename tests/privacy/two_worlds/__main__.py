"""``python -m tests.privacy.two_worlds --seed 7 --commands 100000``: random programs, and a report.

The exit status is 1 if the worlds differed, if a program ended the process, or, with
``--whole-table``, if an operation was not tried with a private operand in each of its places.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

import torch

from tests.privacy.two_worlds.leaks import LEAKS, look_for
from tests.privacy.two_worlds.report import Report
from tests.privacy.two_worlds.runner import run_apart
from tests.privacy.two_worlds.samples import Samples
from tests.privacy.two_worlds.unreachable_rows import why_never


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.privacy.two_worlds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--alike", action="store_true", help="the same secrets in both worlds")
    parser.add_argument("--table", type=Path, help="where to write the table of coverage")
    parser.add_argument("--whole-table", action="store_true", help="fail if a row is missing")
    parser.add_argument("--leak", choices=LEAKS, help="put a hole back, which is to be found")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    samples = Samples()
    if not given.leak:
        samples.make_all()
    began = time.monotonic()

    def told(report: Report) -> None:
        speed = report.commands / (time.monotonic() - began)
        text = f"{report.commands} commands, {len(report.differences)} differences, {speed:.0f}/s"
        print(f"\r{text}", end="", file=sys.stderr, flush=True)

    if given.leak:
        report = look_for(given.leak, samples, given.seed, given.commands)
        print(f"seed {given.seed}, leak {given.leak!r}: {report}")
        return 0 if report.differences else 1
    report = run_apart(
        samples, given.seed, given.commands, given.jobs, given.alike, told, given.whole_table
    )
    print(file=sys.stderr)
    expected = samples.expected()
    missing = report.missing(expected)
    print(f"seed {given.seed}: {report}")
    print(f"{2 * len(expected) - len(missing)} of {2 * len(expected)} rows of the table reached")
    if given.whole_table:
        for row in missing:
            how, why = "in success" if row[2] else "in failure", why_never(row)
            print("not reached:", *row[:2], how, "" if why is None else f"({why})")
    missing = [row for row in missing if why_never(row) is None]
    if given.table is not None:
        given.table.write_text(report.table(expected) + "\n", encoding="utf-8")
    wanting = given.whole_table and missing
    return 1 if report.differences or report.ended or wanting else 0


if __name__ == "__main__":
    sys.exit(main())
