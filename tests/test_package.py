"""The package as others install it: a wheel, and a clone, each in an environment of its own.

Nothing is fetched: an environment is made without pip, sees torch and setuptools of the present one
by a line in a ``.pth`` file, and gets syft alone.  Its programs run in the folder that holds the
clone, where ``import syft`` could take the clone's folder for a package without files.
"""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def run(*command: str | Path, folder: Path) -> str:
    """Run a program that must end well, without what this process measures or was told."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("COV", "PY"))}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}:\n{done.stdout[-5000:]}{done.stderr[-5000:]}"
    return done.stdout


def pip(*words: str | Path, folder: Path) -> None:
    """Have the pip of this environment do something, offline and without dependencies."""
    run(sys.executable, "-m", "pip", "-q", *words, folder=folder)


OFFLINE = ("--no-index", "--no-deps", "--no-build-isolation")


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds a clone in a folder called syft."""
    wanted = Requirement(PROJECT["build-system"]["requires"][0])
    present = Version(metadata.version(wanted.name))
    if present not in wanted.specifier:
        pytest.skip(f"building needs {wanted}, and {present} is installed; nothing is fetched here")
    folder = tmp_path_factory.mktemp("beside")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "syft", folder / "syft" / "syft", ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "syft_command.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "syft" / name)
    return folder


@pytest.fixture(scope="module")
def wheel(beside: Path) -> Path:
    """A wheel of the clone."""
    pip("wheel", *OFFLINE, "-w", beside / "wheels", "./syft", folder=beside)
    (found,) = (beside / "wheels").glob("*.whl")
    return found


@pytest.fixture
def unhurried(request: pytest.FixtureRequest) -> None:
    """Leave out what takes half a minute from a run that draws from the databases: `make test`."""
    if request.config.option.sample < 1:
        pytest.skip("installs the package, which takes half a minute: `make test-all` runs it")


def environment(folder: Path) -> Path:
    """Make an environment that sees the packages of this one, but no syft; return its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    paths = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", "venv", paths))
    # What .pth files of the environment named there add, an editable syft among it, is not seen.
    (packages / "present.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


WHERE = "import syft; print(syft.__file__)"


def test_the_metadata_names_the_package_and_its_licence(wheel: Path) -> None:
    name = PROJECT["project"]["name"]
    assert name != "syft", "somebody else's on the package index"
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        (path,) = [path for path in names if path.endswith(".dist-info/METADATA")]
        fields = email.message_from_string(archive.read(path).decode())
        scripts = archive.read(path.replace("METADATA", "entry_points.txt")).decode()
    assert (fields["Name"], fields["License-Expression"]) == (name, "Apache-2.0")
    assert fields["Requires-Python"] == PROJECT["project"]["requires-python"]
    assert fields["Description-Content-Type"] == "text/markdown"
    assert fields.get_payload() == (ROOT / "README.md").read_text()
    assert "syft = syft_command:main" in scripts
    tops = {path.partition("/")[0] for path in names}
    assert tops == {
        "syft",
        "syft_command.py",
        path.partition("/")[0],
    }, "no tests, no tools, no examples"
    assert {"syft/py.typed", "syft/ops/ops.txt"} <= set(names)


@pytest.mark.usefixtures("unhurried")
def test_a_wheel_runs_the_readme_beside_a_clone(wheel: Path, beside: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "installed")
    pip("--python", python, "install", *OFFLINE, wheel, folder=beside)
    assert Path(run(python, "-c", WHERE, folder=beside).strip()).is_relative_to(tmp_path)
    shutil.copy(ROOT / "README.md", beside)
    assert run(python, "-m", "doctest", "-o", "ELLIPSIS", "README.md", folder=beside) == ""
    assert "worker" in run(python.parent / "syft", "--help", folder=beside)
    assert run(python.parent / "syft", "--version", folder=beside).startswith("syft 0.")


@pytest.mark.usefixtures("unhurried")
def test_an_installed_clone_is_found_beside_itself(beside: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "editable")
    pip("--python", python, "install", *OFFLINE, "-e", "./syft", folder=beside)
    assert Path(run(python, "-c", WHERE, folder=beside).strip()).is_relative_to(beside / "syft")
