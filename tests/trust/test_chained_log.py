"""A log whose lines hang together: what a kill leaves, what is found that was changed, a full disk,
rotation, and that it is verified without syft."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from syft.exceptions import AuditBroken, AuditFailed, FileRefused
from syft.trust.chained_log import ChainedLog, Records, files_of, read

ROOT = Path(__file__).parents[2]


def sample(among: range, count: int) -> list[int]:
    return random.Random(len(among)).sample(among, min(count, len(among)))


def verifier() -> str:
    """The program of the page for owners that verifies a log without syft."""
    page = (ROOT / "docs" / "audit.md").read_text()
    (program,) = re.findall(r"```python\n# verify.py\n(.*?)```", page, re.DOTALL)
    assert "syft" not in program and program.count("\n") <= 20
    return program


def verified(path: Path) -> tuple[int, str]:
    """What that program says of a log, its exit status first."""
    files = [str(one) for one in files_of(path)]
    done = subprocess.run(
        [sys.executable, "-c", verifier(), *files], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def written(path: Path, count: int, most: int = 1 << 26) -> None:
    log = ChainedLog(path, most)
    for number in range(count):
        log.append({"what": "read", "n": number, "of": 'a "tag"\n', "umlaut": "ä"})
    log.close()


def numbers(path: Path) -> list[int]:
    return [record["n"] for record in read(path) if "n" in record]


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "audit.log"
    written(path, 5)
    written(path, 3)
    assert numbers(path) == [0, 1, 2, 3, 4, 0, 1, 2]
    assert verified(path)[0] == 0
    assert path.stat().st_mode & 0o077 == 0, "it is the owner's alone"


def test_a_log_is_killed_between_any_two_bytes(tmp_path: Path) -> None:
    """Every prefix of a log is one that a kill may leave: it is whole up to the last whole line,
    and the chain goes on behind the torn one, also if that is torn in turn."""
    path, other = tmp_path / "audit.log", tmp_path / "other.log"
    written(path, 3)
    content = path.read_bytes()
    for cut in sample(range(len(content) + 1), 60):
        other.write_bytes(content[:cut])
        whole = content[:cut].count(b"\n")
        found = numbers(other)
        assert found[:whole] == [0, 1, 2][:whole] and len(found) <= whole + 1
        written(other, 1)
        again = other.read_bytes()
        for second in sample(range(cut, len(again)), 3):
            other.write_bytes(again[:second])
            written(other, 1)
            assert numbers(other)[:whole] == [0, 1, 2][:whole]
            assert verified(other)[0] == 0
            other.write_bytes(again)
        assert numbers(other) == [*found, 0]
        assert verified(other)[0] == 0


def changed(line: bytes) -> bytes:
    return line.replace(b'"n":2', b'"n":7')


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [changed(line) for line in lines],
        lambda lines: lines[:2] + lines[3:],
        lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
        lambda lines: [*lines[:3], lines[2], *lines[3:]],
        lambda lines: lines[1:],
        lambda lines: [*lines[:2], lines[2][:-4] + b"\n", *lines[3:]],
        lambda lines: [*lines[:2], b"\n", lines[2][:9] + b"\n", *lines[3:]],
        lambda lines: [*lines[:2], b'{"what":"read"}\n', *lines[3:]],
    ],
)
def test_what_was_changed_is_found(
    tmp_path: Path, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    path = tmp_path / "audit.log"
    written(path, 6)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(change(lines)))
    with pytest.raises(AuditBroken):
        list(read(path))
    status, said = verified(path)
    assert status != 0 and "broken" in said
    path.write_bytes(b"".join(lines))
    assert verified(path)[0] == 0, "the control"


def test_files_hang_together(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    written(path, 40, most=1000)
    files = files_of(path)
    assert len(files) > 2 and files[-1] == path
    assert numbers(path) == list(range(40)) and verified(path)[0] == 0
    written(path, 1, most=1000)
    files[0].unlink()  # an owner may take old ones away
    assert numbers(path)[-1] == 0 and verified(path)[0] == 0
    files[2].unlink()
    with pytest.raises(AuditBroken):
        list(read(path))
    assert verified(path)[0] != 0


def test_a_kill_between_renaming_and_beginning(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    written(path, 4)
    path.rename(f"{path}.000001")
    written(path, 1)
    assert numbers(path) == [0, 1, 2, 3, 0] and verified(path)[0] == 0


def test_one_worker_writes(tmp_path: Path) -> None:
    log = ChainedLog(tmp_path / "audit.log")
    with pytest.raises(FileRefused, match="another worker writes to it"):
        ChainedLog(tmp_path / "audit.log")
    log.close()
    ChainedLog(tmp_path / "audit.log").close()
    (tmp_path / "file").write_text("")
    with pytest.raises(FileRefused, match="cannot be written there"):
        ChainedLog(tmp_path / "file" / "audit.log")


def test_a_full_disk_is_said_and_the_chain_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.log"
    log, write, random_ = ChainedLog(path), os.write, random.Random(5)

    def fill(file: int, data: bytes) -> int:
        part = random_.choice([random_.randrange(len(data)), len(data) - 1])
        fits = random_.choice([len(data), len(data), 0, part])
        if not fits:
            raise OSError(28, "No space left on device")
        return write(file, data[:fits])

    monkeypatch.setattr(os, "write", fill)
    failed = 0
    for number in range(300):
        try:
            log.append({"n": number})
        except AuditFailed:
            failed += 1
            assert log.failed
    assert 10 < failed < 290
    monkeypatch.undo()
    log.append({"n": -1})
    assert log.failed is None
    log.close()
    assert len(numbers(path)) == 301 - failed and verified(path)[0] == 0


@pytest.mark.parametrize("restarted", [False, True])
def test_a_disk_that_is_full_at_any_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """Each byte of several lines is the last that fits: what is whole then is told to be there, a
    line that lacks its line break too, and the chain goes on."""
    path, write, room = tmp_path / "audit.log", os.write, [0]

    def fill(file: int, data: bytes) -> int:
        fits = min(len(data), room[0])
        room[0] -= fits
        if not fits:
            raise OSError(28, "No space left on device")
        return write(file, data[:fits])

    written(path, 1)
    content = path.read_bytes()
    records = [{"n": number} for number in (1, 2, 3)]
    log = ChainedLog(path)
    log.extend(records)
    log.close()
    most = path.stat().st_size - len(content)
    for size in range(most):
        path.write_bytes(content)
        log = ChainedLog(path)
        room[0] = size
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", fill)
            count = log.extend(records)
        assert numbers(path) == list(range(count + 1))
        assert (log.failed is None) == (count == 3)
        if restarted:
            log.close()
            log = ChainedLog(path)
        assert log.extend(records[count:]) == 3 - count
        log.close()
        assert numbers(path) == [0, 1, 2, 3]
        assert size % 20 or verified(path)[0] == 0


def torn_log(path: Path) -> list[bytes]:
    """The lines of a log with a torn one in the middle."""
    written(path, 3)
    path.write_bytes(path.read_bytes()[:-5])
    written(path, 2)
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 5 and len(numbers(path)) == 4
    return lines


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [*lines[:2], lines[2].replace(b'"n":2', b'"n":7'), *lines[3:]],
        lambda lines: [*lines[:2], lines[2][:9] + b"\n" + lines[2][10:], *lines[3:]],
        lambda lines: [*lines[:2], lines[2][1:], *lines[3:]],
        lambda lines: [*lines[:1], b"\n", *lines[1:]],
        lambda lines: [*lines[:4], b"\n", *lines[4:]],
        lambda lines: [b"\n", *lines],
        lambda lines: [*lines[:2], lines[2], b"\n", *lines[3:]],
        lambda lines: [*lines[:2], *lines[3:]],
        lambda lines: [*lines[:4], b"no line\n", *lines[4:]],
    ],
)
def test_what_stands_between_lines_is_in_the_chain(
    tmp_path: Path, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    path = tmp_path / "audit.log"
    lines = torn_log(path)
    assert verified(path)[0] == 0, "the control"
    path.write_bytes(b"".join(change(lines)))
    with pytest.raises(AuditBroken):
        list(read(path))
    status, said = verified(path)
    assert status != 0 and "broken" in said


@pytest.mark.parametrize("end", [b"\n", b"0123 {", b"nothing\n\n", b"\0" * 4096])
def test_what_stands_behind_the_last_line_is_told(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "audit.log"
    written(path, 2)
    path.write_bytes(path.read_bytes() + end)
    records = Records(path)
    assert len(list(records)) == 2 and records.torn == len(end)
    assert f"{len(end)} bytes of no line" in verified(path)[1]
    written(path, 1)
    records = Records(path)
    assert len(list(records)) == 3 and records.torn == 0
    assert verified(path)[0] == 0


@pytest.mark.parametrize("text", [b"{no JSON}", b'{"umlaut":"\xe4"}'])
def test_a_line_with_a_hash_and_no_record_is_no_line(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "audit.log"
    written(path, 2)
    line = b"0" * 64 + b" " + text + b"\n"
    path.write_bytes(path.read_bytes() + line)
    records = Records(path)
    assert len(list(records)) == 2 and records.torn == len(line)
    written(path, 1)
    assert numbers(path) == [0, 1, 0] and verified(path)[0] == 0


def test_a_file_that_could_not_be_begun_is_begun_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has no room for another file after the full one has been renamed."""
    path = tmp_path / "audit.log"
    written(path, 2)
    log = ChainedLog(path, path.stat().st_size)

    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        for _ in range(2):
            with pytest.raises(AuditFailed, match="No space left"):
                log.append({"n": 2})
    log.append({"n": 2})
    log.close()
    assert [file.name for file in files_of(path)] == ["audit.log.000001", "audit.log"]
    assert numbers(path) == [0, 1, 2] and verified(path)[0] == 0


def test_old_files_are_taken_away_behind_torn_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that a full disk has torn at the end of a file is told of in that file, and one that a
    kill has torn at the beginning of a file in that one."""
    path, write = tmp_path / "audit.log", os.write
    written(path, 2)
    most = path.stat().st_size + 30
    log = ChainedLog(path, most)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda file, data: write(file, data[:70]))
        with pytest.raises(AuditFailed):
            log.append({"n": 2, "of": "x" * 40})
    assert path.stat().st_size > most, "a new one would be begun"
    log.append({"n": 2})
    log.append({"n": 3})
    log.close()
    path.write_bytes(path.read_bytes()[:20])
    written(path, 1)
    first, last = files_of(path)
    assert numbers(path) == [0, 1, 2, 0] and verified(path)[0] == 0
    first.unlink()
    assert numbers(last) == [0] and verified(path)[0] == 0


def test_a_disk_that_fails_at_the_end_is_said_and_frees_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: int) -> None:
        raise OSError(5, "Input/output error")

    log = ChainedLog(tmp_path / "audit.log")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(AuditFailed, match="Input/output error"):
            log.close()
    ChainedLog(tmp_path / "audit.log").close()


WRITER = """
import sys
from syft.trust.chained_log import ChainedLog
log = ChainedLog(sys.argv[1], int(sys.argv[3]))
for number in range(int(sys.argv[2]), 1 << 60):
    log.append({"what": "read", "user": "ann", "n": number, "of": "x" * (number * 7 % 300)})
    print(number, flush=True)
"""


def test_killed_at_random_places(tmp_path: Path) -> None:
    """Real processes, killed while they write as fast as they can: each line of which they have
    told is there, in its order.  `make soak` has a hundred thousand lines."""
    path, most = tmp_path / "audit.log", int(os.environ.get("SYFT_AUDIT_LINES", "2000"))
    random_, told, kills = random.Random(7), 0, 0
    size = 60_000 if most < 10_000 else 4_000_000
    while told < most:
        command = [sys.executable, "-c", WRITER, str(path), str(told), str(size)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            patience, until = random_.uniform(0.0, 0.2 if most < 10_000 else 1.0), 0.0
            for line in process.stdout:
                told, until = int(line) + 1, until or time.monotonic() + patience
                if time.monotonic() > until:
                    with contextlib.suppress(ProcessLookupError):
                        process.send_signal(signal.SIGKILL)
                    break
            for line in process.stdout:
                told = int(line) + 1 if line.endswith("\n") else told
        kills += 1
        found = numbers(path)
        assert found[-1] + 1 >= told, "a line was lost of which it had told"
        told = found[-1] + 1
    assert numbers(path) == list(range(told))
    status, said = verified(path)
    assert status == 0, said
    print(f"{told:,} lines, {kills} kills, {len(files_of(path))} files: {said.strip()}")


def test_a_line_is_json_behind_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    written(path, 1)
    digest, text = path.read_text().split(" ", 1)
    assert re.fullmatch("[0-9a-f]{64}", digest) and json.loads(text)["umlaut"] == "ä"


def test_a_text_that_is_none_is_written_all_the_same(tmp_path: Path) -> None:
    """The tag of a file whose name is no UTF-8, for one: it is in the way of no other line."""
    log = ChainedLog(tmp_path / "audit.log")
    assert log.extend([{"of": "#a"}, {"of": "#b\ud800"}, {"of": "#c"}]) == 3
    log.close()
    assert [one["of"] for one in read(tmp_path / "audit.log")] == ["#a", "#b?", "#c"]
    assert verified(tmp_path / "audit.log")[0] == 0
