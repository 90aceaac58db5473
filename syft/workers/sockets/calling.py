"""The lines of a program that calls: whoever waits for a reply runs the loop meanwhile.

What happens while nobody waits is the business of one thread, the *keeper*: it writes what is left
to be written, answers heartbeats and what workers ask, tells workers which pointers are gone, and
shows how far large transfers are and what is waited for.  While the program itself reads and
writes, it does next to nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from syft.exceptions import WireError, WorkerLost, WorkerRefused, WorkerTimeout
from syft.workers.core.peer import Peer, Session
from syft.workers.shells.network import Network
from syft.workers.sockets.board import IDLE, Board
from syft.workers.sockets.dialling import NOBODY_IS_THERE, Dial, text_of
from syft.workers.sockets.large_memory import LargeMemory
from syft.workers.sockets.line import Line
from syft.workers.sockets.line_messages import Busy, Bye, Introduction, Meet, Open, Resume
from syft.workers.sockets.progress import Progress
from syft.workers.sockets.steady_clock import seconds_ahead
from syft.workers.sockets.tunnels import Relays
from syft.workers.sockets.websocket import GOING_AWAY, WebSocket

_BRISK: Final = 0.002
"""Seconds between two looks of the keeper while the program makes requests."""
_CALM: Final = 0.02
"""The same while it does not."""
_IDLE_AFTER: Final = 0.1
_FLUSH_AFTER: Final = 0.05
"""Seconds after the last request until the ids of dropped pointers are sent by themselves."""
_UNSAID: Final = (
    "it has not said what it runs, and may answer later (a larger timeout= waits longer)"
)


class CallingBoard(Board):
    """The lines from this process to workers of others."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self._dials: dict[Line, Dial] = {}
        self.memory = LargeMemory()
        """Where large tensors of all lines are received."""
        self.busy: dict[Line, Busy] = {}
        """What a worker said of what it is doing."""
        self._moved_when_told = -1  # the requests that had been made when it was said
        self.introduce: Callable[[Line, Meet], Introduction] = _nobody
        self.relays = Relays(self, self.revive)
        self.acts |= {Open: self.opened, Busy: self._told_busy, Meet: self._introduced}

    # ------------------------------------------------------------------------------- waiting

    def _beside(self, line: Line | None, wait: bool, most: float) -> bool:
        with self.monitor.lock:
            self.active = time.monotonic()
            if not wait:
                return super()._beside(line, wait, most)
            if line is None:
                alone = self._polls or len(self._reading) == len(self.lines)
                return not alone and super()._beside(line, wait, most)
            if [line] == self.lines and self._read_alone(line):
                return True
            if line.deadlines:
                most = min(most, self._time_left(line))
            return super()._beside(line, wait, most)

    def _read_alone(self, line: Line) -> bool:
        """Wait for the only line, and take in what comes; False if there is something else to do
        first.  This is what a program does nearly always, in fewer steps."""
        websocket = line.websocket
        if websocket is None or self._reading or self._ready or self._polls or line.deadlines:
            return False
        if websocket.queued:
            self.write(line)
        if websocket.queued or websocket.messages or not websocket.stream.blocks:
            return False
        self._reading.add(line)
        try:
            came = self._read(line, self.monitor)
        finally:
            self._reading.discard(line)
            if self.monitor.waiting:
                self.monitor.notify()
        if not came:
            self.contain(line, self.beat_line, line, time.monotonic())
        elif self._ready:
            self._serve_ready()
            self.write_all()
        return True

    def _time_left(self, line: Line) -> float:
        """Seconds until the wait of this thread is over.

        Raises :class:`~syft.exceptions.WorkerTimeout` if it has lasted too long.
        """
        until, seconds = line.deadlines.get(threading.get_ident(), (None, 0.0))
        if until is None:
            return IDLE
        left = until - time.monotonic()
        if left > 0:
            return left
        busy = self.busy.get(line)
        why = _UNSAID if busy is None else _what_it_runs(busy)
        raise WorkerTimeout(line.name, seconds, why)

    def awaited(self) -> str:
        """What some thread waits for, as far as workers have said it; empty if nobody waits.

        It is called by the keeper beside threads that wait, so what it says may be over.
        """
        if self._moved_when_told != self.moved:  # what is waited for was asked later
            return ""
        reading, busy = tuple(self.lines if self._polls else self._reading), self.busy
        told = [(line, busy[line]) for line in reading if line in busy]
        return "; ".join(f"{line.name}: {_what_it_runs(one)}" for line, one in told)

    def sign(self, since: float) -> None:
        """Have each worker hear of this program although the monitor has been held ``since``, and
        nobody answers heartbeats: for an operation of a worker of this process, say."""
        now = time.monotonic()
        for line in list(self.lines):
            websocket = line.websocket
            if websocket is not None and now - max(since, line.signed) >= line.heartbeat:
                line.signed = now
                websocket.sign()

    def failed(self, line: Line | None, error: Exception) -> None:
        """See :meth:`Switchboard.failed`; whoever waits for the line is told what was raised."""
        if line is not None and not isinstance(error, OSError | WireError):
            line.ended = line.ended or f"a fault of this program: {error!r}"
        super().failed(line, error)

    # --------------------------------------------------------------------------- connections

    def begin(self, line: Line, websocket: WebSocket, dial: Dial) -> None:
        """Begin to carry a line; ``dial`` makes its further connections."""
        self._dials[line] = dial
        self.add(line, websocket, 0)

    def add(self, line: Line, websocket: WebSocket, received: int) -> None:
        """See :meth:`Board.add`."""
        websocket.memory = self.memory.take
        super().add(line, websocket, received)

    def leave(self, line: Line) -> None:
        """Say that this end leaves, and end the line: when the other end has freed what was there,
        if that does not take long."""
        if line.websocket is not None:
            line.tell(Bye(f"{line.name}'s caller has left"))
            until = time.monotonic() + line.heartbeat
            while line.websocket is not None and time.monotonic() < until:
                try:
                    written = line.flush()
                except OSError:
                    break
                line.websocket.stream.wait(not written, 0.1)
                self._read(line)
                self._serve_ready()
        self.remove(line, "this program has closed it")

    def remove(self, line: Line, reason: str) -> None:
        """End a line; the worker asks nothing any more."""
        super().remove(line, reason)
        for channel in line.channels.values():
            if channel.host is not None:
                channel.host.callers.pop(channel.peer, None)
        self._dials.pop(line, None)
        self.busy.pop(line, None)

    def drop(self, line: Line, why: str) -> None:
        """See :meth:`Board.drop`; the worker is told, if it still hears."""
        if line.websocket is not None:
            line.websocket.close(GOING_AWAY, "")
        super().drop(line, why)

    def comes_back(self, line: Line) -> bool:
        """No: this end makes the connections, when it waits for a line."""
        return False

    def gone(self, line: Line, error: Exception) -> None:
        """The next wait for the line tries to go on with it."""

    def reconnects(self, line: Line) -> bool:
        """Go on with a line over a new connection, once; raises WorkerLost if that fails."""
        if line.ended is not None:
            raise WorkerLost(line.name, line.ended)
        if line in self._reading:
            self.monitor.wait(line.heartbeat)
            return True
        self._reading.add(line)
        held = self.monitor.leave()
        try:
            resume = Resume(line.id, line.secret, line.received)
            try:
                websocket, welcome = self._dials[line](resume, line.heartbeat)
            finally:
                self.monitor.enter_again(held)
                self._reading.discard(line)
                self.monitor.notify()
        except (OSError, WireError) as error:
            line.refused = isinstance(error, NOBODY_IS_THERE)
            line.why_not = f"{line.why} ({text_of(error)})"
            raise WorkerLost(line.name, line.why_not) from None
        except WorkerRefused as error:
            line.end(error.reason)
            raise WorkerLost(line.name, error.reason) from None
        line.ahead = seconds_ahead(welcome.clock)
        self.add(line, websocket, welcome.received)
        self.push(line)
        return True

    def look_for(self, line: Line) -> None:
        """Try to go on with a line; raises if nobody is there: a program that waits for no answer
        would not hear of it."""
        if line.ended is None and self.revive(line) is not None and line.ended is None:
            raise WorkerLost(line.name, line.why_not)

    def revive(self, line: Line) -> str | None:
        """Go on with a line over a new connection, if that is possible now; returns why not, if
        nobody answers any more where the worker was: a process that knew the line would."""
        try:
            if line.websocket is None:
                self.reconnects(line)
        except WorkerLost:
            if line.refused:
                return f"nobody answers any more where {line.name} was"
            return line.ended
        return None

    def look_at(self, line: Line) -> None:
        """See whether a line goes on: a worker that has started anew does not know it.

        Raises :class:`OSError` if nobody answers where the worker was.
        """
        with self.monitor:
            self.turn(None, False)
            if line.websocket is not None or line.ended is not None:
                return
            try:
                self.reconnects(line)
            except WorkerLost as lost:
                if line.ended is None:
                    raise ConnectionRefusedError(str(lost)) from None

    # ---------------------------------------------------------------------- what workers ask

    def opened(self, line: Line, opening: Open) -> None:
        """Serve the requests that the worker at the other end has for another one of this program.

        Whatever it says of their source: only the worker itself speaks over its line.
        """
        channel = line.opened(opening.channel)
        channel.host = self.network.hosts.get(opening.target)
        channel.peer = Peer(line.name, None, Session(), users=())
        channel.caller = self.network.workers.get(line.name)
        if channel.host is not None:
            channel.host.callers[channel.peer] = channel

    def _told_busy(self, line: Line, busy: Busy) -> None:
        self.busy[line] = busy
        self._moved_when_told = self.moved

    def _introduced(self, line: Line, meet: Meet) -> None:
        line.tell(self.introduce(line, meet))
        self.push(line)


class Keeper:
    """Looks after the lines of ``board`` on a thread until :meth:`stop`."""

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
        board.contain(None, board.turn, None, False)
        if quiet > _FLUSH_AFTER:
            board.contain(None, board.network.flush_idle)
            board.contain(None, board.write_all)
        for act in (board.relays.look, board.memory.look):
            board.contain(None, act)
        board.active = active


def _nobody(line: Line, meet: Meet) -> Introduction:
    return Introduction(meet.number, meet.name, unknown=True)


def _what_it_runs(busy: Busy) -> str:
    """What a worker has said that it is busy with."""
    whose = "" if busy.user is None else f" for user {busy.user!r}"
    return f"it runs {busy.operation}{whose} since {busy.seconds:.1f} s"
