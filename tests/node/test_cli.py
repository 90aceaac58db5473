"""The command ``syft``: what is printed where, with which exit status."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import syft_command

from syft.exceptions import FileRefused
from syft.node.cli import main
from syft.trust.tokens import Grant, TokenBook

DAY = 86_400.0
NOW = 1_767_225_600.0  # 2026-01-01 00:00 UTC
TOKEN = re.compile(r"syft_([0-9a-f]{16})_[A-Za-z0-9_-]{43}\n")


class Command:
    """The command line, with a token file and a clock of its own."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path, self.capsys, self.now = path, capsys, NOW

    def __call__(self, *arguments: str, status: int = 0) -> tuple[str, str]:
        given = ["token", *arguments, "--token-file", str(self.path)]
        assert main(given, lambda: self.now) == status
        return tuple(self.capsys.readouterr())

    def new(self, *arguments: str) -> str:
        return self("new", *arguments)[0].strip()


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path / "tokens.json", capsys)


def test_a_new_token_is_alone_on_the_output(command: Command) -> None:
    printed, said = command("new", "--user", "ann")
    assert TOKEN.fullmatch(printed)
    assert printed.strip() not in said
    assert said == (
        "The token of 'ann', until 2026-01-31 00:00 UTC. It is not shown again: "
        f"{command.path} keeps its hash alone.\n"
    )


@pytest.mark.parametrize(
    ("options", "grant"),
    [
        ([], Grant("ann", None, False, NOW + 30 * DAY)),
        (["--days", "0.5"], Grant("ann", None, False, NOW + DAY / 2)),
        (["--plans"], Grant("ann", None, True, NOW + 30 * DAY)),
        (["--read", "#a"], Grant("ann", frozenset({"#a"}), False, NOW + 30 * DAY)),
        (["--read", "a"], Grant("ann", frozenset({"#a"}), False, NOW + 30 * DAY)),  # as --tag a
        (
            ["--read", "#a", "#b", "--read", "#c", "--plans"],
            Grant("ann", frozenset({"#a", "#b", "#c"}), True, NOW + 30 * DAY),
        ),
    ],
)
def test_a_new_token_opens_the_door_to_what_was_said(
    command: Command, options: list[str], grant: Grant
) -> None:
    assert TokenBook(command.path).check(command.new("--user", "ann", *options), NOW) == grant


def test_the_list_shows_every_token_and_no_secret(command: Command) -> None:
    texts = [
        command.new("--user", "ann", "--days", "1", "--plans"),
        command.new("--user", "benjamin", "--read", "#b", "#a"),
    ]
    TokenBook(command.path).make("carl", NOW, read=[])
    command.now = NOW + 2 * DAY
    printed, said = command("list")
    ids = [row.key_id for row in TokenBook(command.path).rows()]
    assert said == ""
    assert printed.splitlines() == [
        "ID                USER      READS       PLANS  MADE                  ENDS",
        f"{ids[0]}  ann       everything  yes    2026-01-01 00:00 UTC  2026-01-02 00:00 UTC "
        "(expired)",
        f"{ids[1]}  benjamin  #a #b       no     2026-01-01 00:00 UTC  2026-01-31 00:00 UTC",
        f"{ids[2]}  carl      nothing     no     2026-01-01 00:00 UTC  2026-01-31 00:00 UTC",
    ]
    assert not any(text.split("_", 2)[2] in printed for text in texts)


def test_a_revoked_token_is_refused_by_a_worker_that_runs(command: Command) -> None:
    text = command.new("--user", "ann")
    running = TokenBook(command.path)
    assert running.check(text, NOW) is not None
    printed, said = command("revoke", text[5:21])
    assert printed == "" and said.startswith(f"Token {text[5:21]} is revoked")
    assert running.check(text, NOW) is None
    assert command("list") == ("", f"There are no tokens in {command.path}.\n")


def test_what_goes_wrong_is_one_line(command: Command, tmp_path: Path) -> None:
    command.new("--user", "ann")
    for arguments, expected in [
        (("revoke", "00"), "syft: There is no token with the id '00'."),
        (("new", "--user", ""), "syft: user must be 1 to 255 printable characters, got ''."),
        (("new", "--user", "ann", "--days", "0"), "syft: days must be a number over 0"),
    ]:
        printed, said = command(*arguments, status=1)
        assert printed == "" and said.startswith(expected) and said.count("\n") == 1
    command.path.chmod(0o644)
    for arguments in (("list",), ("new", "--user", "ben"), ("revoke", "00")):
        printed, said = command(*arguments, status=1)
        assert printed == "" and "others may read or write it (mode 0644)" in said


def test_a_file_that_is_not_there_is_no_empty_book(command: Command) -> None:
    for arguments in (("list",), ("revoke", "00")):
        printed, said = command(*arguments, status=1)
        refused = FileRefused(str(command.path), "it is not there", "make it with `syft token new`")
        assert (printed, said) == ("", f"syft: {refused}\n")
    assert list(command.path.parent.iterdir()) == []


def test_a_folder_that_is_not_there_is_told(command: Command, tmp_path: Path) -> None:
    command.path = tmp_path / "nowhere" / "tokens.json"
    printed, said = command("new", "--user", "ann", status=1)
    assert printed == "" and said.startswith("syft: [Errno 2] No such file or directory")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["token"],
        ["nothing"],
        ["token", "new", "--user", "ann"],
        ["token", "new", "--token-file", "x"],
        ["token", "revoke", "--token-file", "x"],
        ["token", "new", "--user", "a", "--days", "x", "--token-file", "x"],
        ["token", "new", "--user", "a", "--read", "--token-file", "x"],
    ],
)
def test_what_was_typed_wrong_is_the_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("usage: syft")


@pytest.mark.parametrize("arguments", [["--help"], ["token", "--help"], ["token", "new", "-h"]])
def test_help_is_there(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 0
    assert "token" in capsys.readouterr().out


def test_an_interrupt_is_no_traceback(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: Path) -> TokenBook:
        raise KeyboardInterrupt

    monkeypatch.setattr("syft.node.token_command.TokenBook", interrupted)
    assert command("new", "--user", "ann", status=130) == ("", "")


def test_the_command_that_is_installed_is_this_one() -> None:
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"syft": "syft_command:main"}
    assert syft_command.main(["token", "list", "--token-file", "none"]) == 1


def test_the_module_is_the_command(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    command = [sys.executable, "-m", "syft.node", "token", "new", "--user", "ann"]
    done = subprocess.run(
        [*command, "--token-file", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert TOKEN.fullmatch(done.stdout)
    assert [row.user for row in TokenBook(path).rows()] == ["ann"]
    done = subprocess.run(
        [*command, "--token-file", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and done.stderr.startswith("syft: Cannot use")


def test_the_command_is_there_as_a_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["syft", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("syft.node", run_name="__main__")
    assert not ended.value.code and "worker" in capsys.readouterr().out
