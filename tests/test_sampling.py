"""The seed of a run and the sample of the databases: the same for whoever gives the same seed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.outside import outside
from tests.sampling import share

ROOT = Path(__file__).parent.parent

SUITE = """
import pytest
from hypothesis import given, settings, strategies

CASES = [
    pytest.param(number, marks=pytest.mark.database("even" if number % 2 == 0 else "odd"))
    for number in range(40)
]

@pytest.mark.parametrize("number", CASES)
def test_case(number):
    pass

@pytest.mark.database("few")
def test_one_case():
    pass

@pytest.mark.parametrize("number", range(3))
def test_always(number):
    pass

@settings(database=None, max_examples=5)
@given(strategies.integers(1000, 10**9))
def test_hypothesis(number):
    with open("drawn.txt", "a") as file:
        print(number, file=file)
"""

FAILING = """
import pytest

@pytest.mark.parametrize("text", [pytest.param("it's [0]", marks=pytest.mark.database("kind"))])
def test_fails(text):
    assert not text

@pytest.mark.database("listed")
@pytest.mark.xfail(strict=True)
def test_listed():
    pass
"""

EXAMPLES = """
from hypothesis import given, settings, strategies
from tests.sampling import fewer

tried = dict.fromkeys(["own", "few", "default"], 0)

@settings(max_examples=80, database=None)
@given(strategies.integers())
def test_own(number):
    tried["own"] += 1

@given(strategies.integers())
@settings(max_examples=4, database=None)
def test_few(number):
    tried["few"] += 1

@given(strategies.integers())
def test_default(number):
    tried["default"] += 1

def test_say(pytestconfig):
    tried["by itself"] = fewer(7, pytestconfig)
    print()
    for name, count in tried.items():
        print(name, "tried", count)
"""

SETTINGS = "[pytest]\nmarkers =\n    database: a case\n"


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the suite in a folder, with no more plugins than it needs: they take most of the time."""
    plugins = ["-p", "_hypothesis_pytestplugin", "-p", "xdist.plugin", "-p", "tests.sampling"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-v", *arguments],
        cwd=folder,
        env=outside(PYTHONPATH=str(ROOT), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
        capture_output=True,
        text=True,
        check=False,
    )


def passed(done: subprocess.CompletedProcess[str]) -> set[str]:
    """The names of the tests that passed."""
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (line for line in done.stdout.splitlines() if " PASSED" in f" {line}")
    return {match[1] for line in lines if (match := re.search(r"::(\S+)", line))}


def seed_of(done: subprocess.CompletedProcess[str]) -> str:
    """The seed that a run says it was drawn with, at its beginning and at its end."""
    said = re.findall(r"^drawn with.* --seed=(\d+)$", done.stdout, re.MULTILINE)
    assert len(said) == 2 and said[0] == said[1], done.stdout
    return str(said[0])


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    return tmp_path


def test_a_sample_has_some_of_each_kind_and_all_of_the_rest(suite: Path) -> None:
    names = passed(run(suite, "--sample=0.1", "--seed=1"))
    numbers = [int(name[10:-1]) for name in names if name.startswith("test_case[")]
    assert sorted(number % 2 for number in numbers) == [0, 0, 1, 1]
    assert {"test_one_case", "test_hypothesis", *(f"test_always[{n}]" for n in range(3))} <= names
    assert len(names) == 4 + 5


def test_cases_of_many_functions_are_drawn_together(tmp_path: Path) -> None:
    """Where each function has a case or two, a share of each would be all of them."""
    marked = '@pytest.mark.database(together="others")\ndef test_{}(): pass\n'
    text = "import pytest\n" + "".join(marked.format(number) for number in range(30))
    (tmp_path / "test_suite.py").write_text(text)
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    first, second = (passed(run(tmp_path, "--sample=0.1", f"--seed={n}")) for n in (1, 2))
    assert len(first) == len(second) == 3 and first != second
    assert len(passed(run(tmp_path))) == 30


def test_a_share_of_the_cases_of_what_is_not_marked(tmp_path: Path) -> None:
    numbers = "@pytest.mark.parametrize('number', range({}))\ndef test_{}(number): pass\n"
    text = "import pytest\n" + numbers.format(40, "many") + numbers.format(5, "few")
    (tmp_path / "test_suite.py").write_text(text + numbers.format(2, "two"))
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    drawn = [passed(run(tmp_path, "--cases=0.25", f"--seed={seed}")) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    for names in drawn:
        counts = [sum(name.startswith(f"test_{one}[") for name in names) for one in SIZES]
        assert counts == list(SIZES.values())


SIZES = {"many": 10, "few": 3, "two": 2}


def test_a_seed_draws_the_same_again_and_another_seed_others(
    suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    for seed, build_server in ((1, False), (1, True), (2, True)):
        monkeypatch.delenv("CI", raising=False)
        if build_server:
            monkeypatch.setenv("CI", "true")
        drawn.append(passed(run(suite, "--sample=0.1", f"--seed={seed}")))
    assert drawn[0] == drawn[1] != drawn[2]
    numbers = (suite / "drawn.txt").read_text().split()
    assert numbers[:5] == numbers[5:10] != numbers[10:], "hypothesis is seeded too"


def test_without_a_seed_one_is_drawn_and_said(suite: Path) -> None:
    first, second = run(suite, "--sample=0.2", "-n2"), run(suite, "--sample=0.2")
    assert seed_of(first) != seed_of(second)
    again = run(suite, "--sample=0.2", f"--seed={seed_of(first)}")  # in one process, not in two
    assert passed(again) == passed(first)


def test_a_share_of_the_examples_is_tried(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    (tmp_path / "test_examples.py").write_text(EXAMPLES)
    counts = {}
    for option in ("--examples=1", "--examples=0.25"):
        done = run(tmp_path, option, "-s")
        counts[option] = dict(re.findall(r"^([\w ]+) tried (\d+)$", done.stdout, re.MULTILINE))
    assert counts["--examples=1"] == {"own": "80", "few": "4", "default": "100", "by itself": "7"}
    assert counts["--examples=0.25"] == {"own": "20", "few": "4", "default": "25", "by itself": "2"}
    assert "--examples=0.25 --seed=" in done.stdout


def test_without_a_sample_every_test_runs(suite: Path) -> None:
    assert len(passed(run(suite))) == 40 + 1 + 3 + 1


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "nan", "some"])
def test_a_share_is_above_zero_and_at_most_one(text: str) -> None:
    assert share("0.25") == 0.25 and share("1") == 1.0
    with pytest.raises(ValueError):
        share(text)


def test_what_failed_comes_with_the_command_that_runs_it_again(tmp_path: Path) -> None:
    (tmp_path / "test_failing.py").write_text(FAILING)
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    done = run(tmp_path, "--sample=0.1", "-n1")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "2 failed" in done.stdout, "a listed case that passes is a failure"
    commands = [line for line in done.stdout.splitlines() if " -m pytest " in line]
    assert len(commands) == 2 and all(seed_of(done) in line for line in commands)
    for line, name in zip(sorted(commands), ["test_fails", "test_listed"], strict=True):
        words = shlex.split(line)
        again = run(tmp_path, *words[words.index("pytest") + 1 :])
        assert "1 failed" in again.stdout and name in again.stdout, again.stdout
