"""A log whose lines hang together: each carries a hash of itself and of the line before it.

Whoever changes, adds or removes a line breaks the chain there, or has to write all that follows
anew: then the last hash is another one, which the owner may have noted elsewhere.  A line is
``<64 hex digits> <JSON object>``, the digits being the SHA-256 of those of the line before and the
object as it is written.  So a dozen lines of Python verify it without syft
(``docs/audit.md``).

A file is only ever appended to, each line in one write, before what it tells of is answered: a
process that is killed at any moment loses no line that it has written.  It may leave a part of one.
That is no JSON object, and stays; the next line counts its bytes (``torn``), and the chain goes on
from the last whole line.  A file that has grown is renamed, with a number, and the first line of
the next one names the hash it goes on from (``after``).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from syft.exceptions import AuditBroken, AuditFailed, FileRefused

START: Final = "0" * 64
"""What the first line of a chain goes on from."""
_MOST: Final = 64 << 20
_LINE = re.compile(rb"([0-9a-f]{64}) (\{.*\})\n?")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class ChainedLog:
    """Appends records to a file; ``most`` is its size in bytes from which a new one is begun.

    One process writes to a file.  Raises :class:`~syft.exceptions.FileRefused` for a file that
    cannot be written, or that another worker writes to.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = ChainedLog(Path(folder, "audit.log"))
    ...     log.append({"what": "start"})
    ...     log.close()
    ...     [record["what"] for record in read(Path(folder, "audit.log"))]
    ['start']
    """

    def __init__(self, path: str | os.PathLike[str], most: int = _MOST) -> None:
        self.path = Path(os.path.realpath(path))
        self.failed: str | None = None
        """Why nothing can be written now."""
        self._most = most
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._file = self._opened()
            except BaseException:
                os.close(self._lock)
                raise
        except BlockingIOError:
            instead = "stop that one, or name another file (--audit)"
            raise FileRefused(str(path), "another worker writes to it", instead) from None
        except OSError as error:
            problem = f"the audit log cannot be written there ({error.strerror})"
            instead = "name another file, or say --audit none"
            raise FileRefused(str(path), problem, instead) from None
        self._size = os.fstat(self._file).st_size
        self._begun = self._size > 0
        self._chain, self._torn, self._open_line = _end_of(self.path, self._size)

    def _opened(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        return os.open(self.path, flags, 0o600)

    @property
    def head(self) -> str:
        """The hash of the last line."""
        return self._chain

    def append(self, record: Mapping[str, Any]) -> None:
        """Write a line.

        Raises :class:`~syft.exceptions.AuditFailed` if that cannot be; the next attempt goes on
        where this one ended.
        """
        try:
            if self._size >= self._most:
                self._rotate()
            more: dict[str, Any] = {} if self._begun else {"after": self._chain}
            if self._torn:
                more["torn"] = self._torn
            text = _encode({**record, **more} if more else record)
            chain = hashlib.sha256(self._chain.encode() + text).hexdigest()
            line = b"%s%s %s\n" % (b"\n" if self._open_line else b"", chain.encode(), text)
            written = os.write(self._file, line)
        except OSError as error:
            self.failed = error.strerror or type(error).__name__
            raise AuditFailed(self.failed) from None
        self._size += written
        if written < len(line):
            self._note_torn(line[:written])
            self.failed = "a line was written in part: is the disk full?"
            raise AuditFailed(self.failed)
        self._begun, self._chain, self._torn, self._open_line = True, chain, 0, False
        self.failed = None

    def _note_torn(self, part: bytes) -> None:
        """Count a part of a line that was written."""
        if self._open_line and part:
            self._open_line, part = False, part[1:]
        if part:
            self._torn += len(part)
            self._open_line = True

    def _rotate(self) -> None:
        """Rename the file, and begin another one."""
        os.fsync(self._file)
        number = max((number for number, _ in _earlier(self.path)), default=0) + 1
        if self.path.exists():  # unless that was all that could be done the last time
            os.rename(self.path, f"{self.path}.{number:06}")
        fresh = self._opened()
        os.close(self._file)
        self._file, self._size, self._begun, self._open_line = fresh, 0, False, False

    def close(self) -> None:
        """Have what was written be on the disk, and let another process write."""
        os.fsync(self._file)
        os.close(self._file)
        os.close(self._lock)


def _earlier(path: Path) -> list[tuple[int, Path]]:
    """The files before the present one, by number."""
    found = path.parent.glob(f"{path.name}.*")
    numbered = ((one.suffix[1:], one) for one in found)
    return sorted((int(number), one) for number, one in numbered if number.isdecimal())


def files_of(path: str | os.PathLike[str]) -> list[Path]:
    """The files of a log, the oldest first.

    >>> files_of("/no/such/file")
    []
    """
    path = Path(path)
    return [one for _, one in _earlier(path)] + ([path] if path.exists() else [])


def _end_of(path: Path, size: int) -> tuple[str, int, bool]:
    """The last hash of a log, the bytes of torn lines after it, and whether a line is open."""
    files = files_of(path)
    torn, is_open = 0, False
    for file in reversed(files):
        content = file.read_bytes()
        is_open |= file == path and not content.endswith(b"\n") and bool(content)
        for line in reversed(content.splitlines()):
            found = _LINE.fullmatch(line)
            if found is not None and _record(found[2]) is not None:
                return found[1].decode(), torn, is_open
            torn += len(line)
    return START, torn, is_open


def _record(text: bytes) -> dict[str, Any] | None:
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def read(path: str | os.PathLike[str], verified: bool = True) -> Iterator[dict[str, Any]]:
    """The records of a log, the oldest first; each with its hash as ``chain``.

    Raises :class:`~syft.exceptions.AuditBroken` where the chain is broken, if it is ``verified``,
    and ``OSError`` for a file that cannot be read.

    >>> list(read("/no/such/file"))
    []
    """
    chain: str | None = None
    torn = 0
    for file in files_of(path):
        with open(file, "rb") as lines:
            for number, line in enumerate(lines, 1):
                found = _LINE.fullmatch(line)
                record = None if found is None else _record(found[2])
                if found is None or record is None:
                    torn += len(line.rstrip(b"\n"))
                    continue
                before = record.get("after", START) if chain is None else chain
                whole = hashlib.sha256(str(before).encode() + found[2]).hexdigest()
                if verified and (whole.encode() != found[1] or record.get("torn", 0) != torn):
                    raise AuditBroken(str(file), number)
                chain, torn = found[1].decode(), 0
                yield {**record, "chain": chain}
