"""What the owner of a worker sees while it serves: its log, and one live line on a terminal.

The log is what module ``syft.workers.sockets`` says to the logger ``syft.worker``, as plain lines
or as JSON, one object a line, on the error stream.  On a terminal the last line counts what is
there; it is rewritten in place, and a line of the log takes it away first.  Where the error stream
is no terminal there is no such line: a file of it would be a list of outdated numbers.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any, TextIO

from syft.foreign_text import contained, printable
from syft.hooks.ledger import Ledger
from syft.workers.sockets.server import WebsocketServerWorker
from syft.workers.sockets.sparse_log import LOG

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")

_ERASE = "\r\x1b[K"


class LiveLine:
    """One line of text that is rewritten in place at the end of a terminal.

    >>> import io
    >>> screen = io.StringIO()
    >>> line = LiveLine(screen)
    >>> line.show("1 object"); line.show("1 object"); line.show("2 objects"); line.erase()
    >>> screen.getvalue().replace("\\r\\x1b[K", "<")
    '<1 object<2 objects<'
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = ""
        self.lock = threading.RLock()
        """Held by whoever writes to the stream."""

    def show(self, text: str) -> None:
        """Have the line say this."""
        with self.lock:
            if text != self._shown:
                self._stream.write(_ERASE + text)
                self._stream.flush()
                self._shown = text

    def erase(self) -> None:
        """Take the line away, so that another one can be written there."""
        with self.lock:
            if self._shown:
                self._stream.write(_ERASE)
                self._shown = ""


class LineAboveHandler(logging.StreamHandler[TextIO]):
    """Writes the lines of a log above a live line.

    >>> import io
    >>> screen = io.StringIO()
    >>> line = LiveLine(screen)
    >>> line.show("1 object")
    >>> LineAboveHandler(screen, line).handle(logging.makeLogRecord({"msg": "hello"})) and None
    >>> screen.getvalue().endswith("hello\\n")
    True
    """

    def __init__(self, stream: TextIO, line: LiveLine) -> None:
        super().__init__(stream)
        self._line = line

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        with self._line.lock:
            self._line.erase()
            super().emit(record)


class TextFormatter(logging.Formatter):
    """``2026-01-01 00:00:00 warning refused a caller: …``, in the time of this machine.

    >>> record = logging.makeLogRecord({"msg": "let in %s", "args": ("ann",), "levelname": "INFO"})
    >>> TextFormatter().format(record)[20:]
    'info let in ann'
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(level)s %(message)s", "%Y-%m-%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record; a traceback that follows is indented."""
        record.level = record.levelname.lower()
        return super().format(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802: the name that the library calls
        """A traceback, none of whose lines looks like a record."""
        return f"    {contained(super().formatException(ei))}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``time`` (UTC, ISO 8601), ``level``, ``worker``, ``message``, and
    ``traceback`` where there is one.

    >>> record = logging.makeLogRecord({"msg": "hi", "levelname": "INFO", "created": 0.0})
    >>> print(JsonFormatter("bob").format(record))
    {"time": "1970-01-01T00:00:00.000+00:00", "level": "info", "worker": "bob", "message": "..."}
    """

    def __init__(self, worker: str) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        said = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "worker": self._worker,
            "message": record.getMessage(),
        }
        if record.exc_info:
            rows = self.formatException(record.exc_info).split("\n")
            said["traceback"] = "\n".join(map(printable, rows))
        return json.dumps(said, ensure_ascii=False)


@contextlib.contextmanager
def logging_to(stream: TextIO, worker: str, form: str, level: str) -> Iterator[LiveLine]:
    """Write the log of a worker to a stream for a while; yields the live line under it.

    ``form`` is one of ``FORMATS``, ``level`` one of ``LEVELS``.

    >>> import io
    >>> with logging_to(io.StringIO(), "bob", "text", "warning") as line:
    ...     LOG.info("not written")
    """
    line = LiveLine(stream)
    handler = LineAboveHandler(stream, line)
    handler.setFormatter(JsonFormatter(worker) if form == "json" else TextFormatter())
    before, patches = LOG.level, Ledger()
    LOG.addHandler(handler)
    LOG.setLevel(level.upper())
    patches.replace(LOG, "propagate", False)
    try:
        yield line
    finally:
        line.erase()
        LOG.removeHandler(handler)
        LOG.setLevel(before)
        patches.undo()


def counts(server: WebsocketServerWorker) -> str:
    """What the live line says: connections, objects, and the bytes that came and went.

    Nothing is locked: the numbers are a moment old.

    >>> with sy.WebsocketServerWorker(hook, port=0, id="dan") as dan:
    ...     counts(dan)
    'dan: 0 connections, 0 objects, 0 B in, 0 B out'
    """
    connections = sum(line.websocket is not None for line in tuple(server.board.lines))
    stats = server.stats
    said = (
        counted(connections, "connection"),
        counted(len(server.core.store), "object"),
        f"{size(stats.bytes_in)} in",
        f"{size(stats.bytes_out)} out",
    )
    return f"{server.id}: {', '.join(said)}"


def counted(number: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "object"), counted(2000, "object")
    ('1 object', '2,000 objects')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def size(number: float) -> str:
    """A number of bytes, in at most four digits.

    >>> size(0), size(999), size(40_000_000), size(1.5e15)
    ('0 B', '999 B', '40 MB', '1,500 TB')
    """
    units = ["B", "kB", "MB", "GB", "TB"]
    while number >= 999.5 and len(units) > 1:
        number /= 1000
        del units[0]
    digits = f"{number:,.0f}" if units[0] == "B" or number >= 9.95 else f"{number:.1f}"
    return f"{digits} {units[0]}"
