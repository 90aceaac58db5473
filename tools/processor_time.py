"""How much processor time the commands of a run of make took, all processes together.

A run that others measure on a busy machine, or on more cores, takes another time by the clock and
nearly the same here.  Linux counts it: what a process has waited for is in ``/proc``.  Elsewhere
the run is said to be done and no time is given.

    python -m tools.processor_time begin FILE PID    notes in FILE what the process PID has taken
    python -m tools.processor_time since FILE PID    prints what it has taken since
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def taken(pid: int) -> float | None:
    """The seconds, user and system, of the processes that ``pid`` started and that have ended.

    None where the system does not say.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def main(arguments: list[str]) -> str:
    """Note the time, or say what was taken since it was noted."""
    what, file, pid = arguments
    now = taken(int(pid))
    if what == "begin":
        Path(file).write_text(f"{now or 0}\n")
        return ""
    if now is None:
        return "all checks passed"
    minutes, seconds = divmod(round(now - float(Path(file).read_text())), 60)
    return f"all checks passed in {minutes} min {seconds:02} s of processor time (user + sys)"


if __name__ == "__main__":
    if text := main(sys.argv[1:]):
        print(text)
