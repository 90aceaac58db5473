"""The newest torch that pip offers as a build for CPUs alone, if it is newer than the pinned one.

Other builds bring gigabytes of libraries for GPUs, which no build server is to fetch unasked.

    python -m tools.newest_torch    prints the version, or nothing
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from packaging.version import Version

_PIN = re.compile(r"^torch==(\S+)", re.MULTILINE)
_LISTED = re.compile(r"^Available versions: (.*)$", re.MULTILINE)


def newest(listing: str, requirements: str) -> str:
    """The newest version for CPUs in what ``pip index versions`` lists; "" if it is not newer than
    the version in ``requirements``.

    >>> newest("torch (9.1)\\nAvailable versions: 9.1, 9.0.1+cpu, 9.0+cpu", "torch==9.0\\n")
    '9.0.1+cpu'
    >>> newest("torch (9.1)\\nAvailable versions: 9.1, 9.0+cpu", "torch==9.0\\n")
    ''
    """
    (pinned,) = _PIN.findall(requirements)
    listed = [one for line in _LISTED.findall(listing) for one in line.split(", ")]
    found = max((Version(one) for one in listed if one.endswith("+cpu")), default=Version("0"))
    return str(found) if Version(found.public) > Version(pinned) else ""


def main() -> str:
    """Ask pip.  An index that does not answer offers nothing."""
    command = [sys.executable, "-m", "pip", "index", "versions", "torch"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return newest(done.stdout, Path("requirements.txt").read_text())


if __name__ == "__main__":
    print(main(), end="")
