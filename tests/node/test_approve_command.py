"""``syft approve``: which roles may send private values on, and to whom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import syft as sy
from syft.exceptions import FileRefused, UnusableSetting
from syft.node.approve_command import read_approvals
from syft.node.cli import main

ONE, OTHER = "0a" * 32, "bb" * 32


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "approvals.json"


def approve(file: Path, *words: str) -> int:
    return main(["approve", *words, "--approvals", str(file)])


def test_destinations_are_set_anew_each_time(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert approve(file, ONE, "bob", "alice", "bob") == 0
    assert "Values may go to: alice and bob." in capsys.readouterr().err
    assert approve(file, OTHER.upper(), "carol") == 0
    assert read_approvals(file) == {ONE: ["alice", "bob"], OTHER: ["carol"]}
    assert approve(file, ONE) == 0
    assert "Values may go to: nowhere." in capsys.readouterr().err
    assert read_approvals(file) == {OTHER: ["carol"]}
    assert file.stat().st_mode & 0o077 == 0, "others may not write to it"


@pytest.mark.parametrize("digest", ["0a", "zz" * 32, "0a" * 33])
def test_what_is_no_digest_is_refused(
    file: Path, digest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert approve(file, digest, "bob") != 0
    assert "64 hexadecimal digits" in capsys.readouterr().err and not file.exists()


@pytest.mark.parametrize("text", ["[]", "{", '{"zz": ["bob"]}', '{"0a": 5}', "null"])
def test_a_file_that_is_no_list_of_approvals(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(FileRefused, match="no list of approvals"):
        read_approvals(file)


def test_a_file_that_others_may_write_to_is_refused(file: Path) -> None:
    file.write_text(json.dumps({ONE: ["bob"]}))
    file.chmod(0o666)
    with pytest.raises(FileRefused):
        read_approvals(file)


def test_the_worker_takes_them_on(hook: sy.TorchHook) -> None:
    with sy.WebsocketServerWorker(hook, port=0, id="dan") as server:
        server.approve(ONE, ["bob"])
        assert server.core.approved == {bytes.fromhex(ONE): frozenset({"bob"})}
        server.approve(bytes.fromhex(ONE), [])
        assert not server.core.approved
        for digest in ("0a", "zz" * 32, b"\n"):
            with pytest.raises(UnusableSetting, match="digest"):
                server.approve(digest, ["bob"])
