"""Files that one user alone may read and write, written whole or not at all.

A token file or a private key that others can read is as good as published, so such a file is
refused, and not quietly repaired: somebody may have read it already.  A file is written beside its
place and renamed, so that a reader or a crash never sees half of it.

The folder's mode is not asked for: whoever may write there can replace the file, and the file that
he puts there is his own, which is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from syft.exceptions import FileRefused

Stamp = tuple[int, ...]
"""What differs as soon as a file was replaced, written to or given another mode."""


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the parts of a file's status that tell whether it has changed.

    >>> stamp_of(os.stat(".")) == stamp_of(os.stat("."))
    True
    """
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read_private(path: Path) -> tuple[bytes, Stamp]:
    """Read a file that nobody but this process's user, and root, may read or write.

    Returns its bytes and its stamp.  Raises :class:`~syft.exceptions.FileRefused` for one that
    others may read or write, that belongs to somebody else, or that is no ordinary file, and
    ``OSError`` as ``open`` does.  What is checked is the open file, so that no other can take its
    place in between.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder, "key"), b"secret")
    ...     read_private(Path(folder, "key"))[0]
    b'secret'
    """
    with open(path, "rb", opener=_open_at_once) as file:
        status = os.fstat(file.fileno())
        _check_private(path, status)
        return file.read(), stamp_of(status)


def _open_at_once(path: str, flags: int) -> int:
    # Without O_NONBLOCK a named pipe would wait here for somebody who writes.
    return os.open(path, flags | os.O_NONBLOCK)


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise FileRefused(str(path), "it is no ordinary file", "name a file")
    if status.st_uid not in (os.geteuid(), 0):
        whose = f"it belongs to user {status.st_uid}, and this process runs as {os.geteuid()}"
        raise FileRefused(str(path), whose, "make it this user's with chown")
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        others = f"others may read or write it (mode {mode:04o})"
        raise FileRefused(str(path), others, f"chmod 600 {path}, and replace what was in it")


def write_atomically(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file so that it is seen whole or not at all, also after a crash.

    A symbolic link stays one: the file that it leads to is replaced.  Raises ``OSError`` as
    ``open`` does; then nothing has changed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder, "key"), b"secret")
    ...     oct(Path(folder, "key").stat().st_mode & 0o777), os.listdir(folder)
    ('0o600', ['key'])
    """
    path = Path(os.path.realpath(path))
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    made = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(made, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(made, mode)
            os.fsync(made)
        os.replace(beside, path)
    except BaseException:
        beside.unlink()
        raise
    # The new name is safe from a crash only when the folder is on the disk as well.
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes and threads from changing a file meanwhile, if they ask here as well.

    The lock is on an empty file beside it, ``<name>.lock``, which stays: were it removed, two could
    hold locks on two files of that name.  It ends with the process that holds it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder, "key")):
    ...     os.listdir(folder)
    ['key.lock']
    """
    path = Path(os.path.realpath(path))
    beside = path.with_name(f"{path.name}.lock")
    held = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
