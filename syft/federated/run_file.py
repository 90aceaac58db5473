"""The file of a run of rounds: a database of SQLite with one state and what became of each round.

A round is one transaction, so that a process may be killed at any line: the file then holds the
round before.  What is in it is values of :mod:`syft.serde` and JSON, and nothing in it is executed
or unpickled.  A hash over all of it tells a whole file from one that was cut or changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from syft.exceptions import FileRefused

_APPLICATION: Final = 0x73796674
"""SQLite's number for the kind of a file: ``syft`` in ASCII."""

_VERSION: Final = 2

_PART: Final = 1 << 28
"""Bytes of a state in one row: SQLite takes at most 10^9."""

_ANEW: Final = "name another file for resume=, or remove this one to begin anew"

_NOT_WHOLE: Final = "it was cut or changed, or is no file of sy.rounds"

_DAMAGE: Final = "malformed", "not a database", "no such table", "corrupt"
"""How SQLite says that a file is not as it was written."""

_TABLES: Final = """
CREATE TABLE run (settings TEXT NOT NULL, number INTEGER NOT NULL, digest BLOB NOT NULL);
CREATE TABLE rounds (number INTEGER PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE state (part INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class KeptRun:
    """Where a run is: its clients, the round that comes, the state before it, and the records of
    those before.

    >>> KeptRun(["bob"], 0, b"", []).number
    0
    """

    clients: list[str]
    number: int
    state: bytes
    records: list[dict[str, Any]]


class RunFile:
    """The file of one run, which this process alone uses until it is closed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = RunFile(Path(folder) / "run.db", {"seed": "1"}, ["bob"], b"the beginning")
    ...     file.save(1, b"after one round", {"number": 0})
    ...     file.close()
    ...     again = RunFile(Path(folder) / "run.db", {"seed": "1"}, ["bob"], b"")
    ...     again.kept.state, again.kept.records
    ...     again.close()
    (b'after one round', [{'number': 0}])
    """

    def __init__(
        self, path: Path, settings: Mapping[str, str], clients: Sequence[str], state: bytes
    ) -> None:
        """Open a file, or make one with the state in which a run begins.

        Some of the clients of a run may be gone; others than those of the file are of another run.

        Raises :class:`~syft.exceptions.FileRefused` for a file of another run, one that was cut or
        is none of a run, one that another process uses, and where none can be made.
        """
        self._path = path
        with self._refused():
            if not path.exists():
                self._make(settings, clients, state)
            self._base = sqlite3.connect(path, timeout=1.0, isolation_level=None)
        try:
            with self._refused():
                self._lock()
                self._check_size()
                self._check_kind()
                self.kept = self._read(settings, clients)
        except BaseException:
            self._base.close()
            raise

    def save(self, number: int, state: bytes, record: Mapping[str, Any]) -> None:
        """Keep that a round has ended: all of it, or nothing if the process is killed meanwhile.

        Raises :class:`~syft.exceptions.FileRefused` where it cannot be written.
        """
        self.kept.records.append(dict(record))
        with self._refused(), self._transaction(self._base):
            text = json.dumps(record)
            self._base.execute("INSERT INTO rounds VALUES (?, ?)", (number - 1, text))
            self._base.execute("DELETE FROM state")
            _put_state(self._base, state)
            self._texts.append(text)
            digest = _digest(self._settings, number, self._texts, state)
            self._base.execute("UPDATE run SET number = ?, digest = ?", (number, digest))

    def close(self) -> None:
        """Let other processes use the file."""
        self._base.close()

    # ------------------------------------------------------------------------------------- opening

    def _make(self, settings: Mapping[str, str], clients: Sequence[str], state: bytes) -> None:
        """Make a file that holds a beginning as soon as it has its name."""
        new = self._path.with_name(f"{self._path.name}.new-{os.getpid()}")
        new.unlink(missing_ok=True)
        base = sqlite3.connect(new, isolation_level=None)
        try:
            base.execute(f"PRAGMA application_id = {_APPLICATION}")
            base.execute(f"PRAGMA user_version = {_VERSION}")
            base.executescript(_TABLES)
            with self._transaction(base):
                text = json.dumps({"settings": dict(settings), "clients": list(clients)})
                digest = _digest(text, 0, [], state)
                base.execute("INSERT INTO run VALUES (?, 0, ?)", (text, digest))
                _put_state(base, state)
            base.close()
            with contextlib.suppress(FileExistsError):  # another process was faster
                os.link(new, self._path)
        finally:
            base.close()
            new.unlink(missing_ok=True)

    def _lock(self) -> None:
        """Keep other processes out as long as this one is there."""
        self._base.execute("PRAGMA synchronous = FULL")
        self._base.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._base.execute("BEGIN EXCLUSIVE")
        self._base.execute("COMMIT")

    def _check_size(self) -> None:
        """Refuse a file that lacks pages: SQLite fills up the last one.

        Nothing here opens the file itself: to close it would let go of SQLite's lock."""
        (pages,) = self._base.execute("PRAGMA page_count").fetchone()
        (size,) = self._base.execute("PRAGMA page_size").fetchone()
        if self._path.stat().st_size != pages * size or not pages:
            self._refuse(_NOT_WHOLE)

    def _check_kind(self) -> None:
        (application,) = self._base.execute("PRAGMA application_id").fetchone()
        (version,) = self._base.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION:
            self._refuse(_NOT_WHOLE)
        if version != _VERSION:
            self._refuse(f"it is of version {version}, and this syft reads version {_VERSION}")

    def _read(self, settings: Mapping[str, str], clients: Sequence[str]) -> KeptRun:
        base = self._base
        rows = base.execute("SELECT settings, number, digest FROM run").fetchall()
        texts = base.execute("SELECT record FROM rounds ORDER BY number").fetchall()
        parts = base.execute("SELECT bytes FROM state ORDER BY part").fetchall()
        self._texts = [text for (text,) in texts]
        state = b"".join(part for (part,) in parts)
        if len(rows) != 1 or rows[0][2] != _digest(rows[0][0], rows[0][1], self._texts, state):
            self._refuse("it was cut or changed: its hash is another one")
        self._settings, number, _ = rows[0]
        kept = json.loads(self._settings)
        self._check_settings(kept["settings"], settings)
        others = [name for name in clients if name not in kept["clients"]]
        if others:
            known, named = ", ".join(kept["clients"]), ", ".join(others)
            self._refuse(f"it is of another run: its clients are {known}, and not {named}")
        records = [json.loads(text) for text in self._texts]
        return KeptRun(kept["clients"], number, state, records)

    def _check_settings(self, there: Mapping[str, str], here: Mapping[str, str]) -> None:
        for name in sorted(there.keys() | here.keys()):
            if there.get(name) != here.get(name):
                found = f"{name} is {there.get(name)} there, and {here.get(name)} here"
                self._refuse(f"it is of another run: {found}")

    # ---------------------------------------------------------------------------------- failing

    def _refuse(self, problem: str) -> None:
        raise FileRefused(str(self._path), problem, _ANEW)

    @contextlib.contextmanager
    def _refused(self) -> Iterator[None]:
        """A context in which what SQLite and the system say is said of this file."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            text = str(error)
            if "locked" in text:
                raise FileRefused(
                    str(self._path), "another process uses it", "end that one"
                ) from None
            damaged = any(word in text for word in _DAMAGE)
            problem = _NOT_WHOLE if damaged else "it cannot be written or read"
            raise FileRefused(str(self._path), f"{problem} ({text})", _ANEW) from error
        except OSError as error:
            problem = error.strerror or str(error)
            raise FileRefused(str(self._path), problem, "name a file that can be made") from error

    @staticmethod
    @contextlib.contextmanager
    def _transaction(base: sqlite3.Connection) -> Iterator[None]:
        base.execute("BEGIN IMMEDIATE")
        try:
            yield
            base.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # SQLite may have undone it by itself
                base.execute("ROLLBACK")
            raise


def _put_state(base: sqlite3.Connection, state: bytes) -> None:
    view = memoryview(state)
    for part, at in enumerate(range(0, len(view), _PART)):
        base.execute("INSERT INTO state VALUES (?, ?)", (part, view[at : at + _PART]))


def _digest(settings: str, number: int, texts: Sequence[str], state: bytes) -> bytes:
    """The hash of all that a file holds; each part with its length: none runs into another."""
    found = hashlib.sha256()
    for part in (
        settings.encode(),
        str(number).encode(),
        *(text.encode() for text in texts),
        state,
    ):
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.digest()
