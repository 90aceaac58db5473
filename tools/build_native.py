"""Build the extension in C beside its source, if there is a compiler: ``make native``.

Installing the package builds it too (``setup.py``).  This is for a checkout: it installs nothing,
and without a compiler it says what that means, and succeeds.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "syft" / "_native.c"
WITHOUT = "syft runs without its extension in C: every operation works, pointers take twice as long"


def target(folder: Path = SOURCE.parent) -> Path:
    """The file that this Python imports as ``syft._native``.

    >>> target().name.startswith("_native.")
    True
    """
    return folder / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"


def command(built: Path) -> list[str]:
    """The compiler as Python itself was built with it, and what it is to do.

    >>> command(target())[-1].endswith("_native.c")
    True
    """
    shared = shlex.split(os.environ.get("LDSHARED") or sysconfig.get_config_var("LDSHARED"))
    if compiler := os.environ.get("CC"):
        shared[: len(shlex.split(sysconfig.get_config_var("CC")))] = shlex.split(compiler)
    headers = sysconfig.get_path("include")
    return [*shared, "-O2", "-fPIC", "-Wall", f"-I{headers}", "-o", str(built), str(SOURCE)]


def main(words: list[str] | None = None) -> int:
    """Build it unless it is there and younger than its source; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.build_native", description=__doc__)
    parser.add_argument("--into", type=Path, default=SOURCE.parent, help="the folder to build in")
    built = target(parser.parse_args(words).into)
    if built.exists() and built.stat().st_mtime >= SOURCE.stat().st_mtime:
        return 0
    wanted = command(built)
    if shutil.which(wanted[0]) is None:
        print(f"no C compiler ({wanted[0]}): {WITHOUT}")
        return 0
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        print(f"Python's headers are not installed: {WITHOUT}")
        return 0
    return subprocess.run(wanted, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
