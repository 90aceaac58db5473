"""The thread that looks after a program's lines while nobody waits for a worker.

It answers heartbeats and what workers ask, writes requests that were collected, tells workers which
pointers are gone, and shows how far large transfers are and what is waited for.  While the program
itself reads and writes, it does next to nothing.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from syft.workers.sockets.calling import CallingBoard
from syft.workers.sockets.progress import Progress

_BRISK: Final = 0.002
"""Seconds between two looks while the program makes requests."""
_CALM: Final = 0.02
"""The same while it does not."""
_IDLE_AFTER: Final = 0.1
_FLUSH_AFTER: Final = 0.05
"""Seconds after the last request until the ids of dropped pointers are sent by themselves."""


class Keeper:
    """Looks after the lines of ``board`` until :meth:`stop`."""

    def __init__(self, board: CallingBoard) -> None:
        self._board = board
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="syft keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; it may be waiting for the monitor, which the caller leaves meanwhile."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            with self._board.monitor as monitor:
                held = monitor.leave()
                try:
                    self._thread.join()
                finally:
                    monitor.enter_again(held)

    def _run(self) -> None:
        try:
            self._look_after_lines()
        finally:
            self._board.memory.forget()

    def _look_after_lines(self) -> None:
        pause, looked = _CALM, time.monotonic()
        progress = Progress()
        while not self._stopped.wait(pause):
            board = self._board
            now = time.monotonic()
            board.contain(None, self._show, progress, now)
            quiet = now - board.active
            if quiet < _BRISK:
                pause = _BRISK
                continue
            pause = _BRISK if quiet < _IDLE_AFTER else _CALM
            if board.monitor.lock.acquire(blocking=False):
                try:
                    self._look(quiet)
                finally:
                    looked = time.monotonic()
                    board.monitor.lock.release()
            else:
                board.contain(None, board.sign, max(looked, board.active))

    def _show(self, progress: Progress, now: float) -> None:
        board = self._board
        progress.look(list(board.lines), now, board.awaited())

    def _look(self, quiet: float) -> None:
        board, active = self._board, self._board.active
        self._push_all()
        board.contain(None, board.turn, None, False)
        if quiet > _FLUSH_AFTER:
            board.contain(None, board.network.flush_idle)
            self._push_all()
        for act in (board.beat, board.relays.look, board.memory.look):
            board.contain(None, act)
        board.active = active

    def _push_all(self) -> None:
        board = self._board
        for line in list(board.lines):
            if line.websocket is not None and line.websocket.queued:
                board.contain(line, board.push, line)
