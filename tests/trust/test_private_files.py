"""Files that one user alone may read: what is refused, and that nothing half-written is seen."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from syft.exceptions import FileRefused
from syft.trust import private_files
from syft.trust.private_files import locked, read_private, stamp_of, write_atomically


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    write_atomically(path, b"content")
    return path


def test_what_was_written_is_read_with_its_stamp(path: Path) -> None:
    assert read_private(path) == (b"content", stamp_of(path.stat()))


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_others_may_not_read_it_whatever_the_mask_of_the_process(path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_atomically(path, b"new")
        with locked(path):
            pass
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.with_name("secret.lock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("bit", [0o040, 0o020, 0o010, 0o004, 0o002, 0o001])
def test_a_file_that_others_may_use_is_refused(path: Path, bit: int) -> None:
    path.chmod(0o600 | bit)
    with pytest.raises(FileRefused) as caught:
        read_private(path)
    assert caught.value.path == str(path)
    assert caught.value.problem == f"others may read or write it (mode {0o600 | bit:04o})"
    assert caught.value.instead.startswith(f"chmod 600 {path}")


def test_a_file_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:
        assert read_private(path)[0] == b"content", "root may be trusted"
        os.chown(path, 12345, -1)
    with pytest.raises(FileRefused, match=r"belongs to user \d+, and this process runs as \d+"):
        read_private(path)


def test_what_is_no_ordinary_file_is_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileRefused, match="no ordinary file"):
        read_private(pipe)
    with pytest.raises(IsADirectoryError):
        read_private(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_private(tmp_path / "nothing")


def test_refusals_leave_no_file_open(path: Path, tmp_path: Path) -> None:
    path.chmod(0o644)
    before = len(os.listdir("/dev/fd"))
    for name in (path, tmp_path):
        with pytest.raises((FileRefused, IsADirectoryError)):
            read_private(name)
    assert len(os.listdir("/dev/fd")) == before


def test_the_stamp_changes_with_content_mode_and_file(path: Path) -> None:
    seen = {stamp_of(path.stat())}
    path.write_bytes(b"other, longer")
    seen.add(stamp_of(path.stat()))
    path.chmod(0o400)
    seen.add(stamp_of(path.stat()))
    write_atomically(path, b"content")
    seen.add(stamp_of(path.stat()))
    assert len(seen) == 4


def test_a_symbolic_link_stays_one(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    with locked(link):
        write_atomically(link, b"new")
    assert link.is_symlink() and path.read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path)) == ["link", "secret", "secret.lock"]


def test_a_failure_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(private_files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"content"
    assert os.listdir(path.parent) == ["secret"], "what was written so far is gone"


def test_a_reader_never_sees_half_of_a_file(path: Path) -> None:
    contents = [bytes([value]) * 200_000 for value in range(20)]
    write_atomically(path, contents[0])
    stop = threading.Event()
    seen: list[bytes] = []

    def look() -> None:
        while not stop.is_set():
            seen.append(read_private(path)[0])

    reader = threading.Thread(target=look)
    reader.start()
    for content in contents:
        write_atomically(path, content)
    stop.set()
    reader.join()
    assert seen and set(seen) <= set(contents)


def is_locked(path: Path) -> bool:
    """Whether somebody holds the lock, asked as another process would."""
    with open(path.with_name(f"{path.name}.lock"), "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_the_lock_lets_one_in_at_a_time(path: Path) -> None:
    with locked(path):
        assert is_locked(path)
    assert not is_locked(path)
    with pytest.raises(ZeroDivisionError), locked(path):
        raise ZeroDivisionError
    assert not is_locked(path), "a failure ends it too"


def test_who_comes_second_waits(path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with locked(path):
            order.append("second")

    thread = threading.Thread(target=second)
    with locked(path):
        thread.start()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_another_mode_can_be_asked_for(path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_atomically(path, b"public", mode=0o644)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644
