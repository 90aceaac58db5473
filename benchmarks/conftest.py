"""What a benchmark asks for: ``ratio``, ``amount``, workers; at the end of the run, the table.

A figure over its bar is shown as such and never fails the run: on a shared machine a failing
timing teaches people to run things twice.  README.md beside this file says how to read the figures.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

import syft as sy
from benchmarks.figures import Figure, table
from benchmarks.recording import Amount, Ratio

_FIGURES = pytest.StashKey[list[Figure]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--figures=FILE``."""
    parser.addoption("--figures", type=Path, help="write the table of figures into this file")


def pytest_configure(config: pytest.Config) -> None:
    """Start with no figures."""
    config.stash[_FIGURES] = []


@pytest.fixture
def ratio(benchmark: BenchmarkFixture, pytestconfig: pytest.Config) -> Ratio:
    """Measure a subject against a floor: ``ratio(name, subject, floor, at_most=, earlier=)``."""
    return Ratio(benchmark, pytestconfig.stash[_FIGURES])


@pytest.fixture
def amount(pytestconfig: pytest.Config) -> Amount:
    """Note a figure that is no ratio: ``amount(name, value, at_most=, earlier=, unit=)``."""
    return Amount(pytestconfig.stash[_FIGURES])


@pytest.fixture
def hook() -> Iterator[sy.TorchHook]:
    """A hook of this benchmark's own."""
    hook = sy.TorchHook(torch)
    yield hook
    hook.close()


@pytest.fixture
def bob(hook: sy.TorchHook) -> sy.VirtualWorker:
    """A worker in this process that answers at once."""
    return sy.VirtualWorker(hook, id="bob")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch on one thread: steadier where others use the machine too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the table, and write it where ``--figures`` says."""
    figures = config.stash[_FIGURES]
    if not figures:
        return
    machine = f"Python {platform.python_version()}, torch {metadata.version('torch')}"
    text = f"{table(figures)}\n\n{machine}, {platform.machine()}"
    terminalreporter.section("figures")
    terminalreporter.write_line(text)
    over = [figure.name for figure in figures if not figure.met]
    if over:
        terminalreporter.write_line(f"over their bar: {'; '.join(over)}")
    path: Path | None = config.getoption("--figures")
    if path is not None:
        path.write_text(text + "\n")
