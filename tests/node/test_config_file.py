"""The options of ``syft worker`` in a file, and what may stand in it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

import syft as sy
from syft.node.cli import command_line, main
from syft.node.worker_command import NOT_STARTED, worker_options
from tests.node.started import StartedWorker

EVERY_KIND = """
id = "carol"
port = 0
anonymous = true
allow-plans = false
lease = 5.5
memory = "2GB"
trusted-proxy = ["10.0.0.0/8", "unix"]

[limit]
objects = 10_000
tags = 7

[[data]]
file = "ages.csv"
tag = ["ages", "people"]
public = true

[[data]]
file = "study.npz"
describe = 'of a "study"'
private = "ann"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savetxt("ages.csv", np.arange(4).reshape(2, 2), "%d", ",", header="id,age", comments="")
    np.savez("study.npz", scores=np.ones(3))
    (tmp_path / "worker.toml").write_text(EVERY_KIND)
    return tmp_path / "worker.toml"


def parsed(*arguments: str) -> dict[str, object]:
    """What the command makes of arguments."""
    whole = worker_options().with_file(arguments)
    return vars(command_line().parse_args(["worker", *whole]))


def test_a_file_says_what_could_be_typed(file: Path) -> None:
    typed = ["--id", "carol", "--port", "0", "--anonymous", "--lease", "5.5", "--memory", "2GB"]
    typed += ["--trusted-proxy", "10.0.0.0/8", "--trusted-proxy", "unix"]
    typed += [
        "--limit",
        "objects=10000",
        "--limit",
        "tags=7",
        "--data",
        "ages.csv",
        "--tag",
        "ages",
    ]
    typed += ["people", "--public", "--data", "study.npz", "--describe", 'of a "study"']
    wanted = {**parsed(*typed, "--private", "ann"), "config": str(file)}
    assert parsed(f"--config={file}") == wanted


def test_what_is_typed_wins_wherever_it_stands(file: Path) -> None:
    for arguments in (["--id", "bob", "--config", str(file)], ["--config", str(file), "--id=bob"]):
        found = parsed(*arguments)
        assert (found["id"], found["lease"], found["memory"]) == ("bob", 5.5, 2_000_000_000)


def test_nothing_typed_is_about_a_file_of_data_of_the_file(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last one of them would have become public."""
    for option in ("--public", "--tag=x", "--private=eve"):
        with pytest.raises(SystemExit) as ended:
            main(["worker", "--config", str(file), option])
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert f"{option.partition('=')[0]} belongs to the --data before it, and there is" in said
    found = parsed("--config", str(file), "--data", "more.csv", "--public")["data"]
    assert isinstance(found, list)
    assert [(one.path, one.readers) for one in found] == [
        *(("ages.csv", None), ("study.npz", ["ann"]), ("more.csv", None))
    ]


@pytest.mark.parametrize("option", ["--conf", "--con", "--confi"])
def test_no_option_is_abbreviated(
    file: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    """The worker would have started without the file."""
    for arguments in ([option, str(file)], [f"{option}={file}"]):
        with pytest.raises(SystemExit) as ended:
            main(["worker", *arguments])
        assert ended.value.code == 2 and "unrecognized arguments" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command_line().parse_args(["worker", "--por", "1"])


def test_one_file_has_the_options(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["worker", "--config", str(file), f"--config={file}"])
    assert "--config is given twice" in capsys.readouterr().err


def test_what_is_typed_wins_over_what_may_be_repeated(tmp_path: Path) -> None:
    path = tmp_path / "worker.toml"
    path.write_text(
        'dial = ["10.0.0.0/8"]\ntrusted-proxy = ["10.0.0.0/8", "unix"]\n[limit]\nobjects = 10\n'
        'tags = 7\n[destination]\nalice = "/a.sock"\ndan = "/d.sock"'
    )
    typed = ["--trusted-proxy", "10.0.0.7", "--limit", "objects=5", "--destination=dan=/e.sock"]
    found = parsed("--config", str(path), *typed)
    assert found["trusted_proxy"] == ["10.0.0.7"] and found["dial"] == ["10.0.0.0/8"]
    assert found["limit"] == [("tags", 7), ("objects", 5)]
    assert found["destination"] == ["alice=/a.sock", "dan=/e.sock"]


def test_what_is_printed_says_the_same(
    file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["worker", "--config", str(file), "--lease", "9", "--print-config"]) == 0
    text = capsys.readouterr().out
    assert "# heartbeat = 2.0" in text and "lease = 9\n" in text and "# allow-plans = false" in text
    assert tomllib.loads(text)["data"][1]["describe"] == 'of a "study"'
    (tmp_path / "again.toml").write_text(text)
    wanted = parsed("--config", str(file), "--lease", "9")
    assert parsed("--config", "again.toml") == {**wanted, "config": "again.toml"}


def test_every_option_can_be_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed without any has all of them, each with what it is if nothing is said."""
    assert main(["worker", "--print-config"]) == 0
    printed = capsys.readouterr().out.splitlines()
    helped = worker_options()._known.keys() - worker_options()._about_files - {"data"}
    assert {line.removeprefix("# ").split(" =")[0] for line in printed} == helped
    bare = [line.removeprefix("# ") for line in printed if not line.endswith("=")]
    (tmp_path / "all.toml").write_text("\n".join(bare))
    wanted = {**parsed(), "config": str(tmp_path / "all.toml")}
    assert parsed("--config", str(tmp_path / "all.toml")) == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot = 8777", "a key 'prot', and no option is called so. Instead: the nearest is 'port'"),
        ("token_file = 'x'", "the nearest is 'token-file'"),
        ("tag = ['x']", "a key 'tag', and no option is called so"),
        ("config = 'x'", "a key 'config', and no option"),
        ("[[data]]\ntag = ['x']", "no text under the key 'file'"),
        ("[[data]]\nfile = 'a'\ntags = ['x']", "the nearest is 'tag'"),
        ("anonymous = 'yes'", "'anonymous' is neither true nor false"),
        ("id = ['a', 'b']", "'id' has 2 values"),
        ("port = true", "'port' is no text or number"),
        ("[port]\nx = 1", "'port' is no text or number"),
        (
            "[[data]]\nfile = 'a'\nprivate = []",
            "argument --private: expected at least one argument",
        ),
        ("[[data]]\nfile = 'a'\ntag = ['a', '--public']", "'tag' has a value that begins with --"),
        ("[[data]]\nfile = 'a'\nprivate = ['-x']", "argument --private: expected at least one"),
        ("[[data]]\nfile = 'a'\npublic = true\nprivate = 'ann'", "a: "),
        ("dial = [true]", "'dial' is no text or number"),
        ("port = 'x'", "argument --port: invalid port value: 'x'"),
        ("id = ", "it is no TOML"),
        ("id = '\xff'", "it is no TOML"),
    ],
)
def test_what_a_file_may_not_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    path = tmp_path / "worker.toml"
    path.write_bytes(text.encode("latin-1"))
    assert main(["worker", "--config", str(path)]) == NOT_STARTED
    (line,) = capsys.readouterr().err.splitlines()
    assert str(path) in line and said in line


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["worker", f"--config={tmp_path}/none.toml"]) == NOT_STARTED
    assert "none.toml" in capsys.readouterr().err


@pytest.mark.parametrize(
    "limit",
    [
        "memory = 0",
        "connections = 0",
        "lease = -1",
        "heartbeat = 0",
        "wrong-tokens = 0",
        "message-size = 0",
        "lockout = 0",
        "[limit]\nobjects = 0",
        "[limit]\nbytes = -5",
    ],
)
def test_a_limit_that_lets_nothing_through_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], limit: str
) -> None:
    (tmp_path / "worker.toml").write_text(limit)
    assert main(["worker", "--config", str(tmp_path / "worker.toml")]) == NOT_STARTED
    name = limit.partition("]\n")[2] or limit
    (line,) = capsys.readouterr().err.splitlines()
    assert name.split(" ")[0] in line and "worker.toml" in line


def test_a_worker_of_a_file(hook: sy.TorchHook, file: Path, tmp_path: Path) -> None:
    with StartedWorker(tmp_path, "--config", str(file), "--token-file", "t.json") as started:
        carol = sy.connect(started.address, id="carol")
        assert "worker bob serves" in started.printed, "what is typed wins"
        (ages,) = carol.search("#people")
        assert torch.equal(ages.copy().get(), torch.arange(4).reshape(2, 2))
        assert carol.welcome.limits["objects"] == 10_000 and carol.welcome.lease == 5.5
        assert carol.welcome.limits["bytes"] == 2_000_000_000
        carol.close()
