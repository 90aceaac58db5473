"""The comparison with other libraries: its cases, its processes, its tables."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from benchmarks.compare.__main__ import compare
from benchmarks.compare.cases import CASES, drawn_inputs, window_maximum
from benchmarks.compare.comparison_table import (
    OWN_POOLS,
    Measured,
    best,
    cell,
    details,
    ratio,
    times,
)
from benchmarks.compare.parties import bytes_sent
from benchmarks.compare.peer_process import Library, PeerFailed, PeerProcess
from benchmarks.compare.torch_network import Network

# -------------------------------------------------------------------------------------- the cases


@pytest.mark.parametrize(("size", "stride"), [(2, 2), (3, 2), (3, 1), (5, 3), (1, 1)])
def test_a_tournament_is_a_max_pooling(size: int, stride: int) -> None:
    x = torch.randn(2, 3, 11, 12)
    pooled = window_maximum(torch.maximum, x, size, stride, (2, 3))
    assert torch.equal(pooled, functional.max_pool2d(x, size, stride))


def test_the_residual_network_has_as_many_parameters_as_the_paper_s() -> None:
    # 11,689,512 with 4,800 scales and 4,800 shifts of batch norms; folded, the shifts are left.
    parameters = Network(CASES["ResNet-18 on 64x64"]).parameters()
    assert sum(parameter.numel() for parameter in parameters) == 11_689_512 - 4_800


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].parameters])
def test_values_keep_their_size_in_the_networks(name: str) -> None:
    case = CASES[name]
    with torch.no_grad():
        out = Network(case)(*map(torch.from_numpy, drawn_inputs(case)))
    assert out.shape == (case.inputs[0][0], 1000 if "ResNet" in name else 10)
    # Fixed precision of 64 bits holds them, and they are no mere rounding errors.
    assert 0.1 < out.std() < 30


def test_what_is_drawn_is_the_same_each_time() -> None:
    case = CASES["MLP 784-500-10, batch 1"]
    assert (drawn_inputs(case)[0] == drawn_inputs(case)[0]).all()
    one, other = Network(case).state_dict(), Network(case).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


# ---------------------------------------------------------------------------------- the processes


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel is asked for what it sent")
def test_the_bytes_of_every_connection_are_counted() -> None:
    before = bytes_sent()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
    with sender, receiver:
        sender.sendall(bytes(1000))
        receiver.sendall(bytes(34))
        assert bytes_sent() - before == 1034
        # To count them closes nothing.
        assert len(receiver.recv(2000)) == 1000


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """An environment that is complete, with this Python in it."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "installed").touch()
    return tmp_path


@pytest.fixture
def peer(installed: Path) -> Iterator[PeerProcess]:
    process = PeerProcess(Library("an echo", str(installed), "tests.echo_peer"))
    yield process
    process.close()


def test_a_case_is_prepared_once_and_then_timed(peer: PeerProcess) -> None:
    first = peer.ask("1000")
    # The error of the rank that says the largest.
    assert first["error"] == 1001
    assert "ms" not in first
    second = peer.ask("1000")
    assert second["ms"] > 0
    # Two ranks sent so much.
    assert second["bytes"] == 2000
    # Another case is prepared again.
    assert "error" in peer.ask("10")


def test_what_ends_is_told_and_started_again(peer: PeerProcess) -> None:
    measured = compare([peer], "end", 2, 0.0)["an echo"]
    assert measured.failure == "failed, see .benchmarks/an-echo.log"
    assert measured.milliseconds == []
    measured = compare([peer], "10", 2, 0.0)["an echo"]
    assert len(measured.milliseconds) == 2
    assert measured.sent == [20, 20]


def test_what_is_not_installed_is_told(tmp_path: Path) -> None:
    process = PeerProcess(Library("nothing", str(tmp_path), "tests.echo_peer"))
    with pytest.raises(PeerFailed, match="not installed"):
        process.ask("10")


# -------------------------------------------------------------------------------------- the tables


def measured(*milliseconds: float, failure: str = "") -> Measured:
    """Figures with these times."""
    each = list(milliseconds)
    return Measured(each, [2 * one for one in each], [3e6 for _ in each], 1e-5, failure)


def test_a_cell_is_the_median_and_the_least() -> None:
    assert cell(measured(3.0, 1.0, 200.0)) == "3.00 (1.00)"
    assert cell(measured(failure="not installed")) == "not installed"
    assert cell(measured()) == "-"


def test_the_faster_protocol_counts() -> None:
    slow, fast = measured(3.0), measured(2.0)
    assert best({"a": slow, "b": fast}) == ("b", fast)
    assert best({"a": measured(failure="failed"), "b": fast}) == ("b", fast)


def test_a_ratio_needs_both() -> None:
    assert ratio(measured(30.0), measured(2.0)) == "15.0"
    assert ratio(measured(30.0), measured()) == ratio(measured(), measured(2.0)) == "-"


def test_the_tables() -> None:
    results = {
        "syft": {"relu": measured(2.0, 4.0, 3.0)},
        "syft ahead": {"relu": measured(1.5)},
        "CrypTen": {"relu": measured(failure="not installed")},
        OWN_POOLS: {"relu": measured(9.0)},
        "SPU semi2k": {"relu": measured(7.0)},
        "SPU aby3": {"relu": measured(6.0)},
    }
    row = times(["relu"], results).splitlines()[-1].split("|")[1:-1]
    assert [figure.strip() for figure in row] == [
        "relu",
        "3.00 (2.00)",
        "1.50 (1.50)",
        "not installed",
        "9.00 (9.00)",
        "6.00 (6.00) aby3",
        "-; -",
        "3.00; 6.00",
        "2.00; 4.00",
    ]
    assert [line.replace(" ", "") for line in details(["relu"], results).splitlines()[2:]] == [
        "|relu|syft|6.00|3.00|1.0e-05|3|",
        "|relu|syftahead|3.00|3.00|1.0e-05|1|",
        "|relu|CrypTen'sownpools|18.0|3.00|1.0e-05|1|",
        "|relu|SPUsemi2k|14.0|3.00|1.0e-05|1|",
        "|relu|SPUaby3|12.0|3.00|1.0e-05|1|",
    ]
