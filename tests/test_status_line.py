"""What is shown of work that lasts, and of each kind of work that shows it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import syft as sy
from syft import status_line
from syft.status_line import StatusLine, Steps, counted, is_wanted
from tests.terminal import Terminal, show_at


class Clock:
    """A clock that goes on by half a second whenever somebody looks."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 0.5
        return self.now


@pytest.fixture
def terminal(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """With a clock that does not depend on how fast this machine is."""
    monkeypatch.setattr(status_line, "time", Clock())
    return terminal


def test_what_lasts_is_shown_with_what_is_left(terminal: Terminal) -> None:
    assert list(counted("abcd", "reading", 4)) == list("abcd")
    assert terminal.texts() == [
        "reading: [############............] 50 %, 1 s left",
        "reading: [##################......] 75 %, 0 s left",
        "reading: [########################] 100 %, 0 s left",
        "reading took 2.5 s",
    ]


def test_what_is_short_shows_nothing(terminal: Terminal) -> None:
    assert list(counted("a", "reading", 1)) == ["a"]
    with Steps("reading", 0):
        pass
    assert terminal.getvalue() == ""


def test_what_ends_otherwise(terminal: Terminal) -> None:
    with pytest.raises(ZeroDivisionError), Steps("reading", 100) as steps:
        steps.done(0)
        steps.done(0)  # nothing is done, so nothing is known of what is left
        steps.done(200)  # more than was announced
        raise ZeroDivisionError
    assert terminal.texts() == [
        "reading: [........................] 0 %",
        "reading: [########################] 100 %, 0 s left",
        "reading was interrupted",
    ]


def test_two_texts_are_a_pause_apart(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_line, "PAUSE", 5.0)
    assert len(list(counted(range(20), "reading", 20))) == 20
    assert len(terminal.texts()) == 3


def test_who_is_shown_it(monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> None:
    assert is_wanted()
    monkeypatch.setenv("SYFT_PROGRESS", "0")
    assert not is_wanted()
    list(counted(range(20), "reading", 20))
    assert terminal.getvalue() == ""
    show_at(io.StringIO(), monkeypatch)
    assert not is_wanted()
    notebook = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})
    show_at(notebook(), monkeypatch)
    assert is_wanted()
    show_at(None, monkeypatch)
    assert not is_wanted()


def test_it_never_raises(monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> None:
    line = StatusLine()
    line.write("a long text")
    line.write("short")
    line.write("", "\n")
    assert terminal.getvalue() == "\ra long text\rshort      \r     \n"
    for broken in (io.StringIO(), None):
        if broken is not None:
            broken.close()
        show_at(broken, monkeypatch)
        line.write("anything")


X, Y = torch.randn(40, 2), torch.arange(40) % 2


def _round(hook: sy.TorchHook, at_once: int | None) -> None:
    torch.manual_seed(0)
    data = [(X[rows], Y[rows]) for rows in sy.Partition.iid(Y, clients=4)]
    sgd: Any = torch.optim.SGD
    model = torch.nn.Linear(2, 2)
    clients = sy.SimulatedClients(
        model, data, F.cross_entropy, sgd, batch_size=2, clients_at_once=at_once
    )
    clients.round()


def _federate(hook: sy.TorchHook) -> None:
    workers = [sy.VirtualWorker(hook, id=f"w{number}") for number in range(4)]
    sy.BaseDataset(X, Y).federate(workers)  # type: ignore[attr-defined]


def _prepare(hook: sy.TorchHook) -> None:
    bob, alice, carol = (sy.VirtualWorker(hook, id=name) for name in ("b", "a", "c"))
    x: Any = torch.ones(2).fix_precision()  # type: ignore[attr-defined]
    sy.prepare(torch.relu, x.share(bob, alice, crypto_provider=carol), n=4)


WORK: dict[str, Callable[[sy.TorchHook], object]] = {
    "round 0": lambda hook: _round(hook, None),
    "round 0 (one by one)": lambda hook: _round(hook, 1),
    "federated_average": lambda hook: sy.federated_average([torch.ones(2) for _ in range(4)]),
    "federate": _federate,
    "dealing ahead": _prepare,
    "create_sandbox": lambda hook: sy.create_sandbox({}, verbose=False),
}


@pytest.mark.parametrize("what", WORK)
def test_work_that_shows_how_far_it_is(hook: sy.TorchHook, terminal: Terminal, what: str) -> None:
    WORK[what](hook)
    for worker in hook.local_worker.network.workers.values():
        worker.clear_objects()
    texts, what = terminal.texts(), what.partition(" (")[0]
    assert texts[0].startswith(f"{what}: [") and texts[-2].startswith(f"{what}: [######")
    assert "100 %" in texts[-2] and texts[-1].startswith(f"{what} took ")
