"""Print, for every package the requirement files pin, what it weighs and under what licence.

The rows of the table in docs/design/0001-dependencies.md start from this output.  A size is the
sum of the files that the package's own wheel installed (byte code made later is left out); what
else it pulls in is named beside it, because that is installed too and weighs as well.

    .venv/bin/python tools/dependency_sizes.py requirements.txt requirements-dev.txt
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)
_LICENCE_CLASSIFIER = "License :: OSI Approved :: "


def pinned(path: Path) -> Iterator[str]:
    """Yield the names that a requirement file pins, in the order they stand there."""
    for match in _PIN.finditer(path.read_text()):
        yield match.group(1)


def installed_bytes(name: str) -> int:
    """Add up the files that a package's wheel installed, in bytes."""
    files = metadata.files(name) or []
    paths = (Path(str(file.locate())) for file in files if file.suffix != ".pyc")
    return sum(path.stat().st_size for path in paths if path.is_file())


def licence(name: str) -> str:
    """Read a package's licence from its metadata: classifiers, expression, or free text."""
    fields = metadata.metadata(name)
    found = [
        line.removeprefix(_LICENCE_CLASSIFIER)
        for line in fields.get_all("Classifier", [])
        if line.startswith(_LICENCE_CLASSIFIER)
    ]
    for key in ("License-Expression", "License"):
        if key in fields and not found:
            found.append(fields[key])
    return ", ".join(found) or "unknown"


def requires(name: str) -> str:
    """Name what a package pulls in besides itself, extras left out."""
    lines = [line for line in metadata.requires(name) or [] if "extra ==" not in line]
    return ", ".join(sorted({re.split(r"[^A-Za-z0-9._-]", line)[0] for line in lines})) or "-"


def row(name: str) -> str:
    """Make one row of the table: name, version, megabytes, licence, what it pulls in."""
    megabytes = installed_bytes(name) / 1e6
    cells = (name, metadata.version(name), f"{megabytes:.1f}", licence(name), requires(name))
    return "| " + " | ".join(cells) + " |"


def main(paths: list[str]) -> None:
    """Print the rows of every requirement file named."""
    print("| package | version | MB | licence | pulls in |")
    print("|---|---|---|---|---|")
    for path in paths:
        for name in pinned(Path(path)):
            print(row(name))


if __name__ == "__main__":
    main(sys.argv[1:])
