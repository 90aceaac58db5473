"""The seed of a run, and the sample of torch's databases that it draws: a plugin of pytest.

torch's databases make 17,000 tests, minutes of them.  With ``--sample=0.25`` a run takes every
fourth test marked ``database``, others each time, so that over some days all of them run.  The
choice is a hash of the seed and the test's name; therefore all processes of a run agree on it, and
it does not depend on the order of tests.  Each test function, and each kind of tensor it goes
through, keeps at least one case, unless the cases of many functions are drawn ``together``.

What is not one of torch's cases is marked so only where each case tries the same again with other
random numbers.  ``--cases=0.25`` does likewise with the cases of every other test that has many,
and ``--examples=0.25`` with the examples of hypothesis.

``--seed`` also seeds hypothesis, on a build server too, where hypothesis by itself would try the
same examples each time.  Without it a seed is drawn.  It is printed, and for each test that failed
the command that runs it again.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

FEWEST_EXAMPLES = 10
"""How many examples a test of hypothesis tries in any run, if it has as many."""

FEWEST_CASES = 3
"""How many cases a test that is not marked runs in any run, if it has as many."""

MOST_COMMANDS = 20
"""How many failed tests are listed as commands."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--sample=SHARE``, ``--cases=SHARE``, ``--examples=SHARE`` and ``--seed=NUMBER``."""
    group = parser.getgroup("sampling")
    group.addoption(
        "--sample",
        type=share,
        default=1.0,
        metavar="SHARE",
        help="run this share of the tests marked `database`, from above 0 to 1",
    )
    group.addoption(
        "--cases",
        type=share,
        default=1.0,
        metavar="SHARE",
        help="run this share of the cases of each other test, from above 0 to 1",
    )
    group.addoption(
        "--examples",
        type=share,
        default=1.0,
        metavar="SHARE",
        help="try this share of the examples of each test of hypothesis, from above 0 to 1",
    )
    group.addoption(
        "--seed",
        type=int,
        metavar="NUMBER",
        help="what the sample and hypothesis are drawn from; another one each time if not given",
    )


def share(text: str) -> float:
    """Read a share: above zero, because a sample of nothing would pass for a test."""
    number = float(text)
    if not 0 < number <= 1:
        raise ValueError(f"expected a share above 0, of at most 1; got {text}")
    return number


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Settle the seed; a process of pytest-xdist is given that of the run."""
    config.addinivalue_line(
        "markers", "database: a case of torch's own databases; `make test` runs a sample of them"
    )
    given = getattr(config, "workerinput", {}).get("seed", config.option.seed)
    config.option.seed = random.SystemRandom().randrange(10**9) if given is None else given
    if getattr(config.option, "hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(config.option.seed)
    settings.register_profile("seeded", settings.default, derandomize=False)
    settings.load_profile("seeded")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand the seed to a process of pytest-xdist."""
    node.workerinput["seed"] = node.config.option.seed


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that are not in the sample, and examples of the others."""
    option = config.option
    if option.examples < 1.0:
        try_fewer_examples(items, option.examples)
    marked = [item for item in items if item.get_closest_marker("database")]
    others = [item for item in items if not item.get_closest_marker("database")]
    drawn = draw(marked, option.sample, option.seed)
    drawn |= draw(others, option.cases, option.seed, FEWEST_CASES)
    if len(drawn) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in drawn])
        items[:] = [item for item in items if item in drawn]


def draw(items: Iterable[pytest.Item], part: float, seed: int, fewest: int = 1) -> set[pytest.Item]:
    """Choose a part of each group of tests: those of one function whose marker says the same, or
    all that are marked to be drawn ``together``."""
    groups: dict[Any, list[pytest.Item]] = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("database")
        function = item.nodeid.partition("[")[0]
        group = (function, mark.args) if mark is not None else (function,)
        groups[mark and mark.kwargs.get("together") or group].append(item)
    drawn: set[pytest.Item] = set()
    for members in groups.values():
        members.sort(key=lambda item: rank(seed, item.nodeid))
        drawn.update(members[: max(fewest, math.ceil(part * len(members)))])
    return drawn


def try_fewer_examples(items: Iterable[pytest.Item], part: float) -> None:
    """Have tests of hypothesis try a part of their examples.

    Most say themselves how many they try, and a profile would only reach those that do not.
    """
    functions = {getattr(item, "obj", None) for item in items}
    for function in filter(is_hypothesis_test, functions):
        own: Any = function
        whole = own._hypothesis_internal_use_settings or settings.default
        fewest = min(whole.max_examples, FEWEST_EXAMPLES)
        count = max(fewest, math.ceil(part * whole.max_examples))
        own._hypothesis_internal_use_settings = settings(whole, max_examples=count)


def fewer(count: int, config: pytest.Config) -> int:
    """How many tries a test makes that draws ``count`` of them by itself, without hypothesis."""
    return math.ceil(config.option.examples * count)


def rank(seed: int, name: str) -> bytes:
    """The place of a test in the order of a seed, the same in every process."""
    return hashlib.sha256(f"{seed} {name}".encode()).digest()


def pytest_report_header(config: pytest.Config) -> str:
    """Say at the beginning what was drawn."""
    return description(config)


def description(config: pytest.Config) -> str:
    """What a run needs to be told to draw the same again."""
    shares = {name: getattr(config.option, name) for name in ("sample", "cases")}
    sampled = "".join(f" --{name}={part:g}" for name, part in shares.items() if part < 1)
    return f"drawn with{sampled}{examples(config)} --seed={config.option.seed}"


def examples(config: pytest.Config) -> str:
    """How this run was told to try fewer examples."""
    return f" --examples={config.option.examples:g}" if config.option.examples < 1 else ""


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say at the end what was drawn, and how to run again what failed."""
    reports = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    named = dict.fromkeys(report.nodeid for report in reports)
    failed = [name for name in named if os.path.exists(name.partition("::")[0])]
    if failed:
        terminalreporter.section("to run a failed test again")
        for nodeid in failed[:MOST_COMMANDS]:
            terminalreporter.write_line(command(nodeid, config))
        if failed[MOST_COMMANDS:]:
            terminalreporter.write_line(f"and {len(failed) - MOST_COMMANDS} more")
    terminalreporter.write_line(description(config))


def command(nodeid: str, config: pytest.Config) -> str:
    """The command that runs one test as this run did."""
    python = os.path.relpath(sys.executable)
    python = sys.executable if python.startswith("..") else python
    return f"{python} -m pytest {shlex.quote(nodeid)}{examples(config)} --seed={config.option.seed}"
