"""A log whose lines hang together: each carries a hash of itself and of all that stands before it.

Whoever changes, adds or removes a line, or a byte between two, breaks the chain there, or has to
write all that follows anew: then the last hash is another one, which the owner may have noted
elsewhere.  A line is ``<64 hex digits> <JSON object>``, the digits being the SHA-256 of those of
the line before, of whatever stands between the two, and of the object as it is written.  So a dozen
lines of Python verify it without syft (``docs/audit.md``).

A file is only ever appended to, before what it tells of is answered: a process that is killed at
any moment loses no line that it has written.  It may leave a part of one, and so may a full disk.
That is no JSON object, and stays; the next line counts its bytes (``torn``), and the chain goes on
from the last whole line.  What was written in part is looked at as a reader would: a line that
lacks nothing but its line break is there.  A file that has grown is renamed, with a number, and the
first line of the next one names the hash it goes on from (``after``).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
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
        self._chain, self._torn, self._open_line, self._begun = _end_of(self.path)

    def _opened(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        return os.open(self.path, flags, 0o600)

    def append(self, record: Mapping[str, Any]) -> None:
        """Write a line.

        Raises :class:`~syft.exceptions.AuditFailed` if that cannot be; the next attempt goes on
        where this one ended.
        """
        if not self.extend((record,)):
            raise AuditFailed(str(self.failed))

    def extend(self, records: Sequence[Mapping[str, Any]]) -> int:
        """Write lines at once; returns how many are there: fewer than were given, and
        :attr:`failed` says why, if that cannot be."""
        try:
            if self._size >= self._most and not self._torn:
                self._rotate()
            data, head = self._lines(records)
            written = os.write(self._file, data)
        except OSError as error:
            self.failed = error.strerror or type(error).__name__
            return 0
        self._size += written
        if written < len(data):
            count = self._note_part(data[:written])
            whole = count == len(records)
            self.failed = None if whole else "a line was written in part: is the disk full?"
            return count
        self._begun, self._chain, self._torn, self._open_line = True, head, b"", False
        self.failed = None
        return len(records)

    def _lines(self, records: Sequence[Mapping[str, Any]]) -> tuple[bytes, str]:
        """What has to be written for records, and the last hash then."""
        begun, head, torn = self._begun, self._chain, self._torn
        parts = []
        if self._open_line:
            parts.append(b"\n")
            torn += b"\n" if torn else b""
        for record in records:
            if torn or not begun:
                after = {} if begun else {"after": head}
                record = {**record, **after, **({"torn": len(torn)} if torn else {})}
            text = _encoded(record)
            head = _hash(head, torn, text)
            parts += (head.encode(), b" ", text, b"\n")
            begun, torn = True, b""
        return b"".join(parts), head

    def _note_part(self, data: bytes) -> int:
        """Note what was written of some lines; returns how many of them are whole."""
        if self._open_line and data:
            self._torn += b"\n" if self._torn else b""
            self._open_line, data = False, data[1:]
        count = 0
        for line in io.BytesIO(data):
            self._open_line = not line.endswith(b"\n")
            found = _whole(line)
            if found is None:
                self._torn += line
            else:
                self._begun, self._chain, self._torn = True, found[0], b""
                count += 1
        return count

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
        """Have what was written be on the disk, and let another process write.

        Raises :class:`~syft.exceptions.AuditFailed` if it is not there; the file is closed then
        too.
        """
        with contextlib.ExitStack() as closing:
            closing.callback(os.close, self._lock)
            closing.callback(os.close, self._file)
            try:
                os.fsync(self._file)
            except OSError as error:
                raise AuditFailed(error.strerror or type(error).__name__) from None


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


def _end_of(path: Path) -> tuple[str, bytes, bool, bool]:
    """The last hash of a log, what stands behind its line, and of the present file whether its last
    line is open and whether it has a whole one."""
    torn, is_open = b"", False
    for file in reversed(files_of(path)):
        content = file.read_bytes()
        is_open |= file == path and not content.endswith(b"\n") and bool(content)
        for line in reversed(io.BytesIO(content).readlines()):
            found = _whole(line)
            if found is not None:
                return found[0], torn, is_open, file == path
            torn = line + torn
    return START, torn, is_open, False


def _hash(before: str, torn: bytes, text: bytes) -> str:
    """The hash of a line, by that of the line before, and what stands between the two."""
    return hashlib.sha256(b"%s%s%s" % (before.encode(), torn, text)).hexdigest()


def _encoded(record: Mapping[str, Any]) -> bytes:
    """A record as JSON; what is no text, as the name of a file may be, with ``?``."""
    try:
        return _encode(record)
    except UnicodeEncodeError:
        return json.dumps(record, ensure_ascii=False).encode(errors="replace")


def _whole(line: bytes) -> tuple[str, bytes, dict[str, Any]] | None:
    """The hash, the text and the record of a line; None if it is no whole one."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    try:
        return found[1].decode(), found[2], _decode(found[2])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class Records:
    """The records of a log, the oldest first; each with its hash as ``chain``.

    Raises :class:`~syft.exceptions.AuditBroken` where the chain is broken, if it is ``verified``,
    and ``OSError`` for a file that cannot be read.

    >>> list(Records("/no/such/file"))
    []
    """

    def __init__(self, path: str | os.PathLike[str], verified: bool = True) -> None:
        self._path, self._verified = path, verified
        self.torn = 0
        """The bytes behind the last whole line, once all was read: of a line that a kill or a full
        disk has torn, or of none."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        chain: str | None = None
        torn = b""
        for file in files_of(self._path):
            with open(file, "rb") as lines:
                for number, line in enumerate(lines, 1):
                    found = _whole(line)
                    if found is None:
                        torn += line
                        continue
                    shown, text, record = found
                    before = str(record.get("after", START)) if chain is None else chain
                    fits = shown == _hash(before, torn, text) and record.get("torn", 0) == len(torn)
                    if self._verified and not fits:
                        raise AuditBroken(str(file), number)
                    chain, torn = shown, b""
                    yield {**record, "chain": chain}
        self.torn = len(torn)


def read(path: str | os.PathLike[str], verified: bool = True) -> Iterator[dict[str, Any]]:
    """The records of a log, as :class:`Records` has them.

    >>> list(read("/no/such/file"))
    []
    """
    return iter(Records(path, verified))
