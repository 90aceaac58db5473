"""What is shown of tensors that take long to send or to fetch."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import syft as sy
import syft.status_line as status_module
from syft.serde.limits import Limits
from syft.status_line import StatusLine
from syft.workers.sockets.line import Line
from syft.workers.sockets.line_messages import Busy
from syft.workers.sockets.progress import Progress, Transfer
from tests.terminal import Terminal, show_at

MB = 1_000_000


@pytest.fixture
def line() -> Line:
    line = Line("bob", Limits(), odd=False)
    websocket: Any = SimpleNamespace(arriving=None, queued=0, written=500)
    line.websocket = websocket
    return line


def _arrived(line: Line, received: int, expected: int) -> None:
    line.websocket.arriving = SimpleNamespace(received=received, expected=expected)  # type: ignore


def test_what_is_sent(line: Line, terminal: Terminal) -> None:
    websocket: Any = line.websocket
    progress = Progress()
    for second in range(5):
        websocket.written, websocket.queued = 500 + second * 100 * MB, (4 - second) * 100 * MB
        progress.look([line], float(second))
    assert terminal.texts() == [
        "bob: sending 400 MB [######..................] 25 %, 100 MB/s, 3 s left",
        "bob: sending 400 MB [############............] 50 %, 100 MB/s, 2 s left",
        "bob: sending 400 MB [##################......] 75 %, 100 MB/s, 1 s left",
        "bob: sending 400 MB took 4.0 s, 100 MB/s",
    ]


def test_what_is_fetched_and_the_next_one(line: Line, terminal: Terminal) -> None:
    progress = Progress()
    for now, received in ((0.0, 10), (2.0, 40), (2.5, 5), (4.0, 80)):
        _arrived(line, received * MB, 100 * MB)
        progress.look([line], now)
    texts = terminal.texts()
    assert texts[0].startswith("bob: fetching 100 MB [") and "40 %, 20 MB/s" in texts[0]
    assert len(texts) == 2 and "80 %" in texts[1], "the second has a time of its own"


def test_what_is_short_or_small_shows_nothing(line: Line, terminal: Terminal) -> None:
    progress = Progress()
    _arrived(line, 1, 1000)
    progress.look([line], 0.0)
    progress.look([line], 5.0)
    _arrived(line, 1, 5 * MB)
    progress.look([line], 10.0)
    progress.look([line], 10.05)  # too soon for another look
    progress.look([line], 10.9)
    line.websocket.arriving = None  # type: ignore
    progress.look([line], 11.5)
    assert terminal.getvalue() == ""


def test_a_connection_that_breaks(line: Line, terminal: Terminal) -> None:
    progress = Progress()
    for now in (0.0, 2.0):
        _arrived(line, 10 * MB, 50 * MB)
        progress.look([line], now)
    line.websocket = None
    progress.look([line], 3.0)
    assert terminal.texts()[-1] == "bob: fetching 50 MB was interrupted"
    assert terminal.getvalue().endswith("\n") and terminal.getvalue().count("\n") == 1


def test_nothing_has_come_yet() -> None:
    transfer = Transfer("bob", "sending", 0.0, 0)
    transfer.total = 5 * MB
    assert transfer.text(1.0) == "bob: sending 5 MB [........................] 0 %, 0 B/s"


def test_what_is_waited_for(line: Line, terminal: Terminal) -> None:
    """Beside a transfer it is not shown; when the wait is over its line ends."""
    progress = Progress()
    for now, awaited in ((0.0, ""), (1.0, "bob: runs a"), (2.0, "bob: runs ab"), (3.0, "")):
        progress.look([line], now, awaited)
    assert terminal.getvalue() == "\rbob: runs a\rbob: runs ab\rbob: runs ab\n"
    for now in (4.0, 6.0):
        _arrived(line, int(now) * MB, 50 * MB)
        progress.look([line], now, "bob: runs a")
    assert "runs" not in terminal.texts()[-1]


def test_a_worker_that_computes_is_shown(
    hook: sy.TorchHook, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says each second what it runs, while somebody waits for that."""
    monkeypatch.setattr(status_module, "PAUSE", 0.0)
    with sy.WebsocketServerWorker(hook, port=0, id="bob") as server:
        bob: Any = sy.connect(str(server.address))
        x = torch.ones(2, 2).send(bob)  # type: ignore[attr-defined]
        board, line = bob.board, bob.line
        assert board.awaited() == ""
        board.acts[Busy](line, Busy("torch.matmul", "ann", 2.5, 0))
        assert board.awaited() == ""  # nobody waits
        board._reading.add(line)
        assert board.awaited() == "bob: it runs torch.matmul for user 'ann' since 2.5 s"
        board._reading.discard(line)
        x.get()
        board._reading.add(line)
        assert board.awaited() == ""  # that was what was asked before
        board._reading.discard(line)
        bob.close()


def test_it_never_raises(line: Line, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Progress()
    for now in (0.0, 2.0):
        _arrived(line, 10 * MB, 50 * MB)
        progress.look([line], now)
    for broken in (io.StringIO(), None):
        show_at(broken, monkeypatch)
        if broken is not None:
            broken.close()
        progress.look([line], now + 1.0)
        StatusLine().write("anything")
