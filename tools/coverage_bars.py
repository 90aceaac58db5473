"""Whether enough lines of ``syft/`` ran, and enough of its branches.

    python -m tools.coverage_bars FILE --lines=100 --branches=97.5    FILE: a report in JSON

A decision that always went the same way shows in no line.  The bar of coverage.py itself is one for
the sum of lines and branches, in which a hundred branches make up for a hundred lines.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

_SHARES = {"lines": "percent_statements_covered", "branches": "percent_branches_covered"}


def main(arguments: Sequence[str]) -> str:
    """The complaint about a report whose shares are under the bars, in percent; "" about others."""
    parser = argparse.ArgumentParser(description="Bars for what ran under test.")
    parser.add_argument("report", type=Path)
    for what in _SHARES:
        parser.add_argument(f"--{what}", type=float, required=True)
    asked = vars(parser.parse_args(arguments))
    totals = json.loads(asked["report"].read_text(encoding="utf-8"))["totals"]
    return "\n".join(
        f"{totals[share]:.3f} % of the {what} ran, and the bar is {asked[what]:g} %"
        for what, share in _SHARES.items()
        if totals[share] < asked[what]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) or 0)
