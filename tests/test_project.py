"""What the project promises about itself, held by reading its own files.

One set of checks, named in three places (Makefile, .pre-commit-config.yaml, .travis.yml); versions
named in three others (pyproject.toml, the requirement files, the design document); and rules about
the source that no linter of ours knows.
"""

from __future__ import annotations

import ast
import configparser
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "syft").rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def read(name: str) -> str:
    """Read one file of the project."""
    return (ROOT / name).read_text()


def relative(path: Path) -> str:
    """Name a file from the root, for a message."""
    return path.relative_to(ROOT).as_posix()


# ------------------------------------------------------------------- one set of checks, three homes


def recipe(target: str) -> list[str]:
    """List the commands that ``make target`` would run in a tree where nothing is installed."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}
    environment.pop("MFLAGS", None)
    command = ["make", "--always-make", "--dry-run", "--no-print-directory", target]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.replace("\\\n", " ").splitlines()


def hooks() -> dict[str, dict[str, object]]:
    """Read the pre-commit hooks by their id."""
    config = yaml.safe_load(read(".pre-commit-config.yaml"))
    assert [repo["repo"] for repo in config["repos"]] == ["local"], "only hooks of our own venv"
    return {hook["id"]: hook for hook in config["repos"][0]["hooks"]}


def test_make_test_runs_every_check_and_pytest_last() -> None:
    commands = recipe("test")
    order = ["black --check", "flake8", "lint-imports", "mypy --strict", "sphinx-build -W"]
    places = [
        next(at for at, command in enumerate(commands) if f".venv/bin/{tool} " in f"{command} ")
        for tool in order
    ]
    assert places == sorted(places)
    assert sum(" -m pytest " in command for command in commands) == 1
    assert " -m pytest " in commands[-2] and "processor_time since" in commands[-1]
    (start,) = (at for at, one in enumerate(commands) if "processor_time begin" in one)
    installed = max(at for at, one in enumerate(commands) if " pip " in one)
    assert installed < start < min(places), "what was installed does not count"


def pytest_arguments(command: str) -> list[str]:
    """Read what a command of make hands to pytest."""
    assert " -m pytest " in command, command
    return shlex.split(command.partition(" -m pytest ")[2])


DATABASES = "tests/torch_suite"
TWO_WORLDS = "tests/privacy/two_worlds"
"""Attacks that call the operations of the databases: they run without coverage, as those do."""


NARROWING = {"-k", "--deselect", "--ignore", "--ignore-glob", "--lf", "--sw", "-x"}


def test_make_test_leaves_out_nothing_but_cases_and_coverage() -> None:
    arguments = pytest_arguments(recipe("tests")[-1])
    assert arguments == pytest_arguments(recipe("test")[-2])
    shares = dict(re.findall(r"--(sample|cases|examples)=(\S+)", " ".join(arguments)))
    assert {name: float(share) >= 0.1 for name, share in shares.items()} == {
        "sample": True,
        "cases": True,
        "examples": True,
    }
    assert arguments[arguments.index("-m") + 1] == "not soak"
    assert not (NARROWING | {"--seed"}) & {word.partition("=")[0] for word in arguments}
    assert not [word for word in arguments if (ROOT / word).exists()], "every folder"
    assert not [word for word in arguments if word.startswith("--cov")]


def test_make_test_all_runs_every_check_and_every_case() -> None:
    commands = recipe("test-all")
    assert commands[-1] == recipe("stand-in-gpu")[-1]
    checks = [one for one in recipe("test") if "pytest" not in one and "_time" not in one]
    assert [one.replace(WITHOUT_MODULES, "") for one in checks] == commands[: len(checks)]
    covered, databases = (pytest_arguments(one) for one in commands if " -m pytest -n" in one)
    folders = [DATABASES, TWO_WORLDS]
    ignored = [f"--ignore={folder}" for folder in folders]
    assert set(ignored) <= set(covered) and set(folders) <= set(databases)
    assert {"--sample=1", "--examples=1", "--cov"} <= set(covered)
    (bars,) = (one.split() for one in commands if "tools.coverage_bars" in one)
    assert f"--cov-report=json:{bars[-3]}" in covered and "--lines=100" in bars
    for arguments in (covered, databases):
        assert arguments[arguments.index("-m") + 1] == "not soak"
        others = {word.partition("=")[0] for word in arguments if word not in ignored}
        assert not NARROWING & others and "--durations=10" in arguments


DRAWN_ELSEWHERE = [
    "tests/conftest.py",  # every shell
    "tests/crypto/test_leakage.py",  # secrets, by gate
    "tests/examples/test_tutorials.py",  # most notebooks: they show what other tests hold
    "tests/privacy/fresh_world.py",  # attacks at queued workers and over sockets
    "tests/test_sampling.py",  # a text
    "tests/workers/core/test_backward_order.py",  # seeds
    "tests/workers/handlers/test_share_uniformity.py",  # secrets
]


def test_only_databases_repetitions_and_tutorials_are_drawn_from() -> None:
    marking = [
        relative(path)
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if re.search(r"\bmark\.database\b", path.read_text())
    ]
    elsewhere = [name for name in marking if not name.startswith(DATABASES)]
    assert elsewhere == DRAWN_ELSEWHERE != marking


WITHOUT_MODULES = "-D module_pages=0"
"""What `make test` adds to the command that builds the site."""


def test_make_test_builds_the_site_without_the_pages_of_the_modules() -> None:
    assert sum(WITHOUT_MODULES in command for command in recipe("test")) == 1
    (command,) = (command for command in recipe("test") if WITHOUT_MODULES in command)
    whole = command.replace(WITHOUT_MODULES, "")
    assert "sphinx-build -W" in whole
    assert whole == recipe("docs")[-1] and whole in recipe("test-all")


@pytest.mark.parametrize("target", ["lint", "imports", "types", "docs", "tests"])
def test_each_check_is_a_target_of_its_own(target: str) -> None:
    assert recipe(target)[-1] in [line.replace(WITHOUT_MODULES, "") for line in recipe("test")]
    assert f"| `make {target}` |" in read("CONTRIBUTING.md")


def test_make_lists_its_targets() -> None:
    listed = re.findall(r"^([a-z-]+):.*## ", read("Makefile"), re.MULTILINE)
    phony = re.search(r"^\.PHONY:((?:.*\\\n)*.*)$", read("Makefile"), re.MULTILINE)
    assert phony is not None
    assert sorted(phony[1].replace("\\\n", " ").split()) == sorted(listed)


def test_pre_commit_runs_the_commands_of_make() -> None:
    fast = {
        command
        for target in ("lint", "imports", "types")
        for command in recipe(target)
        if re.match(r"\.venv/bin/(?!python)", command)
    }
    assert {hook["entry"] for hook in hooks().values()} == fast
    for name, hook in hooks().items():
        assert hook["language"] == "system", name
        assert hook["pass_filenames"] is False, name


def test_pre_commit_accepts_its_configuration() -> None:
    command = [sys.executable, "-m", "pre_commit", "validate-config", ".pre-commit-config.yaml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_build_servers_call_make_test() -> None:
    travis = yaml.safe_load(read(".travis.yml"))
    assert travis["script"] == "make test"
    assert travis["install"] == "skip"
    lines = [line for line in read(".ci/run").splitlines() if line and not line.startswith("#")]
    assert lines[0] == "set -euo pipefail"
    assert lines[-3:-1] == ["make test", "make covered"]
    assert lines[-1].startswith("make newest-torch || echo "), "another torch fails no commit"
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_the_build_server_runs_the_python_versions_in_the_metadata() -> None:
    prefix = "Programming Language :: Python :: "
    named = [line.removeprefix(prefix) for line in PROJECT["project"]["classifiers"]]
    versions = [version for version in named if re.fullmatch(r"3\.\d+", version)]
    assert yaml.safe_load(read(".travis.yml"))["python"] == versions
    assert PROJECT["project"]["requires-python"] == f">={versions[0]}"
    assert PROJECT["tool"]["mypy"]["python_version"] == versions[0]
    assert PROJECT["tool"]["black"]["target-version"] == [
        "py" + version.replace(".", "") for version in versions
    ]
    major, minor = versions[0].split(".")
    assert f"sys.version_info < ({major}, {minor})" in read("Makefile")


def test_make_refuses_an_old_or_absent_python(tmp_path: Path) -> None:
    old = tmp_path / "python3.8"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.8.1\nexit 1\n')
    old.chmod(0o755)
    # Another VENV, so that the one this runs in is not thought about.
    for python, said in ((old, "is Python 3.8.1"), (tmp_path / "none", "is not there")):
        command = ["make", "demo", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert said in done.stderr
        assert "Python 3.11 or newer" in done.stderr
    assert not (tmp_path / "venv").exists()


# ------------------------------------------------------------------------------- flake8 and pytest


def test_flake8_never_ignores_what_finds_mistakes() -> None:
    config = configparser.ConfigParser()
    config.read_string(read(".flake8"))
    settings = config["flake8"]
    ignored = {code.strip() for code in settings["extend-ignore"].split(",")}
    assert ignored == {"E203", "W503", "E701", "E704"}, "only what black decides"
    assert settings["per-file-ignores"] == "__init__.py: F401"
    assert not {"ignore", "select", "extend-select"} & settings.keys()
    assert settings["max-complexity"] == "10"
    assert settings["max-line-length"] == str(PROJECT["tool"]["black"]["line-length"])


def test_pytest_is_strict() -> None:
    settings = PROJECT["tool"]["pytest"]["ini_options"]
    strict = {"--strict-markers", "--strict-config", "--doctest-modules"}
    assert strict <= set(settings["addopts"])
    assert settings["xfail_strict"] is True
    assert settings["filterwarnings"][0] == "error"
    assert [line for line in settings["filterwarnings"][1:] if line.count(":") < 2] == []


def test_coverage_asks_for_every_line_in_every_process() -> None:
    run, report = PROJECT["tool"]["coverage"]["run"], PROJECT["tool"]["coverage"]["report"]
    assert run["branch"] is True
    assert "subprocess" in run["patch"]
    assert run["source_pkgs"] == ["syft"]
    assert not {"omit", "exclude_lines", "exclude_also"} & (run.keys() | report.keys())
    hidden = [relative(path) for path in SOURCES if "pragma: no cover" in path.read_text()]
    assert hidden == []


# ------------------------------------------------------------------------------------ requirements

PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)$", re.MULTILINE)


def pins(name: str) -> dict[str, Version]:
    """Read the exact versions in one requirement file; nothing else may stand there."""
    text = read(name)
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", "-r "))]
    found = {match[1].lower(): Version(match[2]) for match in PIN.finditer(text)}
    assert len(found) == len(lines), f"{name} pins every package exactly, and once"
    return found


@pytest.mark.parametrize(
    ("file", "declared"),
    [
        ("requirements.txt", PROJECT["project"]["dependencies"]),
        ("requirements-demo.txt", PROJECT["project"]["optional-dependencies"]["demo"]),
    ],
)
def test_pins_are_versions_that_the_metadata_allows(file: str, declared: list[str]) -> None:
    pinned = pins(file)
    requirements = [Requirement(line) for line in declared]
    assert {requirement.name for requirement in requirements} == pinned.keys()
    for requirement in requirements:
        assert pinned[requirement.name] in requirement.specifier, requirement


def test_the_extras_are_those_that_have_a_purpose() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    assert extras.keys() == {"demo", "parquet", "worker"}
    pinned = pins("requirements-dev.txt")
    for requirement in map(Requirement, [*extras["worker"], *extras["parquet"]]):
        assert pinned[requirement.name] in requirement.specifier, requirement


def test_torch_is_pinned_and_installed_alone_before_anything_else() -> None:
    assert pins("requirements.txt")["torch"] == Version("2.13.0")
    assert "torch>=2.11,<2.14" in PROJECT["project"]["dependencies"], "nothing later was tried"
    installs = [command for command in recipe("test") if " install " in command]
    assert installs[0].endswith("install $(grep '^torch==' requirements.txt)")
    assert [re.findall(r"-r (\S+)", command) for command in installs[1:]] == [
        ["requirements-demo.txt"],
        ["requirements-dev.txt"],
    ]


def test_requirement_files_include_one_another() -> None:
    assert "\n-r requirements.txt\n" in read("requirements-demo.txt")
    assert "\n-r requirements-demo.txt\n" in read("requirements-dev.txt")


def test_no_file_names_a_registry() -> None:
    named = re.compile(r"--(extra-)?index-url|--find-links|--trusted-host|://")
    files = ["Makefile", ".ci/run", ".travis.yml", *(path.name for path in ROOT.glob("req*.txt"))]
    assert [name for name in files if named.search(read(name))] == []


def test_no_file_has_marks_of_a_merge() -> None:
    marks = re.compile(r"^(<{7} |>{7} |={7}$)", re.MULTILINE)
    kinds = {".md", ".py", ".txt", ".toml", ".rst", ".cpp", ".ipynb", ".js"}
    folders = ("syft", "tests", "tools", "examples", "benchmarks", "docs")
    texts = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    texts += [path for path in ROOT.iterdir() if path.is_file()]
    wanted = [path for path in texts if path.suffix in kinds and "_build" not in path.parts]
    assert len(wanted) > 800
    assert [str(path) for path in wanted if marks.search(path.read_text("utf-8"))] == []
    assert marks.search("one\n" + "<" * 7 + " HEAD\n")


def test_the_design_document_has_a_row_for_every_dependency() -> None:
    text = read("docs/design/0001-dependencies.md")
    rows = dict(re.findall(r"^\| ([A-Za-z0-9._-]+) \| ([0-9.]+) \|", text, re.MULTILINE))
    described = {name.lower(): Version(version) for name, version in rows.items()}
    files = ("requirements.txt", "requirements-demo.txt", "requirements-dev.txt")
    assert described == {name: pin for file in files for name, pin in pins(file).items()}


# ---------------------------------------------------------------------------- what is shipped, docs


def test_setup_py_says_nothing_but_the_extension() -> None:
    body = ast.parse(read("setup.py")).body
    assert [type(node) for node in body] == [ast.Expr, ast.ImportFrom, ast.Expr]
    extension = "Extension('syft._native', ['syft/_native.c'], optional=True)"
    assert ast.unparse(body[-1]) == f"setup(ext_modules=[{extension}])"


def test_types_tables_and_licence_are_shipped() -> None:
    assert (ROOT / "syft/py.typed").exists()
    data = PROJECT["tool"]["setuptools"]["package-data"]
    assert data == {"syft": ["py.typed", "_native.pyi"], "syft.ops": ["*.txt"]}
    unshipped = [
        relative(path)
        for path in (ROOT / "syft").rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
        if path.name != "py.typed" and path.stem.partition(".")[0] != "_native"  # in setup.py
        if path.parent.name + path.suffix != "ops.txt"
    ]
    assert unshipped == []
    assert PROJECT["project"]["license"] == "Apache-2.0"
    licence = read("LICENSE")
    assert "Apache License" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


def test_every_folder_of_the_package_is_a_package() -> None:
    folders = {path.parent for path in SOURCES}
    assert [relative(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_the_package_says_the_version_of_the_metadata() -> None:
    said = [
        ast.literal_eval(node.value)
        for node in ast.parse(read("syft/version.py")).body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "VERSION" and node.value
    ]
    assert said == [PROJECT["project"]["version"]]


# ------------------------------------------------------------------------------ rules of the source

CODE_LOADERS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "importlib", "imp"}
CODE_LOADERS |= {"runpy", "code", "codeop", "joblib"}
CODE_RUNNERS = {"eval", "exec", "compile", "__import__"}
READERS = {
    *(f"builtins.{name}" for name in CODE_RUNNERS),
    "torch.load",
    "torch.save",
    "sys.modules",
}
MODULES_BELOW_ROOT = {path.relative_to(ROOT / "syft").parts[0].split(".")[0] for path in SOURCES}


def module_name(path: Path) -> str:
    """Name the module that a file of syft/ holds."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(node: ast.Import | ast.ImportFrom, module: str, is_package: bool) -> list[str]:
    """Name the modules that an import statement reads, relative ones resolved."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not node.level:
        return [node.module or ""]
    parts = module.split(".")
    base = parts[: len(parts) - node.level + is_package]
    return [".".join([*base, *([node.module] if node.module else [])])]


def code_from_elsewhere(tree: ast.AST) -> list[str]:
    """Find what could run code that is not in the source: loaders, eval and their kin."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {name.split(".")[0] for name in imported(node, "x.y", False)}
            found += sorted(names & CODE_LOADERS)
        elif isinstance(node, ast.Name) and node.id in CODE_RUNNERS:
            found.append(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found += {f"{node.value.id}.{node.attr}"} & READERS
    return found


def root_imports(tree: ast.AST, module: str, is_package: bool) -> list[str]:
    """Find the imports that bind or read the root package."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            # `import syft.ids` binds the name `syft`; `import syft.ids as ids` does not.
            found += [
                ast.unparse(node)
                for alias in node.names
                if alias.name == "syft" or (alias.name.startswith("syft.") and not alias.asname)
            ]
        elif isinstance(node, ast.ImportFrom) and imported(node, module, is_package) == ["syft"]:
            # `from .. import ids` reads a module that lies beside; anything else is in the root.
            names = {alias.name for alias in node.names}
            found += [ast.unparse(node)] if names - MODULES_BELOW_ROOT else []
    return found


def hidden_imports(tree: ast.AST, module: str, is_package: bool) -> list[str]:
    """Find the imports of our own modules that stand inside a function."""
    return [
        ast.unparse(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
        if any(name.split(".")[0] == "syft" for name in imported(node, module, is_package))
    ]


OWNERS_FILES = "syft/node/data_files.py"
"""Where files that the owner names on the command line are read; bytes from a wire never are."""


def test_nothing_runs_code_from_elsewhere() -> None:
    found = {relative(path): code_from_elsewhere(ast.parse(path.read_text())) for path in SOURCES}
    assert {name: code for name, code in found.items() if code} == {OWNERS_FILES: ["torch.load"]}


def test_the_owners_files_are_read_without_running_what_is_in_them() -> None:
    tree = ast.parse(read(OWNERS_FILES))
    calls = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert "torch.load(path, weights_only=True)" in calls
    assert "np.load(file, allow_pickle=False)" in calls
    assert sum(call.startswith(("torch.load(", "np.load(")) for call in calls) == 2
    readers = [path for path in SOURCES if "data_files" in path.read_text()]
    assert {path.parent.name for path in readers} <= {"node"}


def test_imports_are_open_and_never_the_root() -> None:
    wrong: dict[str, list[str]] = {}
    for path in SOURCES:
        tree, module = ast.parse(path.read_text()), module_name(path)
        is_package = path.name == "__init__.py"
        wrong[module] = hidden_imports(tree, module, is_package)
        if module != "syft":
            wrong[module] += root_imports(tree, module, is_package)
    late = wrong.pop("syft")  # it closes no circle: nobody imports the root
    when_met = wrong.pop("syft.plans.function_plan")  # TorchScript, which most programs never use
    assert when_met == ["from syft.plans.building.script_module import translated"]
    assert {module: found for module, found in wrong.items() if found} == {}
    assert late == [
        "from syft.hooks import connecting",
        "from syft.workers.sockets import client, server",
        "from syft.federated import simulated_clients",
        "from syft.federated import round_loop",
        "from syft.federated import least_squares",
        "from syft.node import dataset_reading",
    ]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import pickle", ["pickle"]),
        ("from importlib import metadata", ["importlib"]),
        ("import importlib.util as u", ["importlib"]),
        ("x = eval('1')", ["eval"]),
        ("run = exec", ["exec"]),
        ("__import__('os')", ["__import__"]),
        ("import builtins\nbuiltins.eval('1')", ["builtins.eval"]),
        ("torch.load(f)", ["torch.load"]),
        ("model.eval()  # exec", []),
        ("'eval(x)'", []),
    ],
)
def test_the_finder_of_foreign_code_finds(code: str, found: list[str]) -> None:
    assert code_from_elsewhere(ast.parse(code)) == found


@pytest.mark.parametrize(
    ("code", "package", "found"),
    [
        ("import syft", False, True),
        ("import syft as sy", False, True),
        ("import syft.ids", False, True),
        ("import syft.ids as ids", False, False),
        ("from syft import TorchHook", False, True),
        ("from syft import ids", False, False),
        ("from syft.ids import new_id", False, False),
        ("from .. import TorchHook", False, True),
        ("from .. import ids, TorchHook", False, True),
        ("from .. import ids", False, False),
        ("from ... import TorchHook", True, False),
        ("from .. import TorchHook", True, True),
        ("from ..ids import new_id", False, False),
        ("from . import frame", False, False),
    ],
)
def test_the_finder_of_root_imports_finds(code: str, package: bool, found: bool) -> None:
    module = "syft.serde" if package else "syft.serde.native"
    assert bool(root_imports(ast.parse(code), module, package)) is found


def test_the_finder_of_hidden_imports_finds() -> None:
    code = "def f():\n    from ..ids import new_id\n    import numpy\n"
    assert hidden_imports(ast.parse(code), "syft.serde.native", False) == [
        "from ..ids import new_id"
    ]


# ------------------------------------------------------------------------------------------- layers


def lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    """Check the layers of a copy of the package."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as f; f()"]
    return subprocess.run(
        [*command, "--no-cache"], cwd=tree, capture_output=True, text=True, check=False
    )


@pytest.fixture
def skeleton(tmp_path: Path) -> Path:
    """Lay out the package's layers with nothing in them, under the project's own contracts."""
    (tmp_path / "pyproject.toml").write_text(read("pyproject.toml"))
    (tmp_path / "syft").mkdir()
    (tmp_path / "syft" / "__init__.py").touch()
    for contract in PROJECT["tool"]["importlinter"]["contracts"]:
        modules = [
            f"{container}.{name}"
            for container in contract.get("containers", ())
            for name in re.findall(r"\w+", " ".join(contract["layers"]))
        ]
        for module in (*modules, *contract.get("forbidden_modules", ())):
            folder = tmp_path.joinpath(*module.split("."))
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "__init__.py").touch()
            if folder.parent != tmp_path:
                (folder.parent / "__init__.py").touch()
    return tmp_path


def test_contracts_hold_where_nothing_is_imported(skeleton: Path) -> None:
    done = lint_imports(skeleton)
    kept = len(PROJECT["tool"]["importlinter"]["contracts"])
    assert f"Contracts: {kept} kept, 0 broken." in done.stdout, done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("module", "code", "broken"),
    [
        ("serde", "import syft.workers", "Imports go downwards only"),
        ("codes", "import syft.ids", "Imports go downwards only"),
        ("workers", "import syft", "Nobody inside the package imports the root"),
        ("workers/deep", "import syft as sy", "Nobody inside the package imports the root"),
        ("utils", "", "Imports go downwards only"),
        ("workers/execution", "import syft.workers.core", "Workers"),
        ("workers/hardening", "import syft.workers.execution", "Workers"),
        (
            "workers/hardening",
            "import syft.workers.labels.guards",
            "What hardens torch's functions",
        ),
        ("workers/hardening", "import syft.workers.wire", "What hardens torch's functions"),
        ("workers/core", "import syft.workers.handlers", "Workers"),
        ("workers/handlers", "import syft.workers.client", "Workers"),
        ("workers/client", "import syft.workers.shells", "Workers"),
        ("plans/building", "import syft.plans.plan", "Plans"),
        ("program/lint", "import syft.program.codec", "Programs"),
        ("tensors/fixed/grid", "import syft.tensors.fixed.rules", "Fixed precision"),
    ],
)
def test_contracts_break(skeleton: Path, module: str, code: str, broken: str) -> None:
    folder = skeleton / "syft" / module
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").write_text(code)
    done = lint_imports(skeleton)
    assert re.search(rf"^{broken}.* BROKEN$", done.stdout, re.M), done.stdout
    assert done.returncode != 0
