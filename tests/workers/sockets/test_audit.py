"""What the owner of a worker is told of callers: each line of the audit log, by real sockets."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import AuditFailed, FileRefused, ObjectNotFound, PermissionDenied, WorkerLost
from syft.exceptions import WorkerRefused
from syft.node.cli import main
from syft.tensors.pointer import make_pointer
from syft.trust import chained_log
from syft.trust.chained_log import read
from syft.trust.tokens import TokenBook
from tests.trust.test_chained_log import verified

SECRET = 4321.0


class Watched:
    """A worker with an audit log, and those who call it."""

    def __init__(self, hook: sy.TorchHook, path: Path) -> None:
        self.hook, self.path, self.book = hook, path, TokenBook()
        settings: dict[str, Any] = {"tokens": self.book, "audit": path, "allow_plans": True}
        self.server = sy.WebsocketServerWorker(hook, port=0, id="bob", **settings)
        held = torch.full((4,), SECRET).tag("#salaries")
        self.server.hold(held.private_tensor(["ann"]))
        self.callers: list[Any] = []

    def connect(self, user: str, id: str | None = None) -> Any:
        token, id = self.book.make(user, time.time(), plans=True), id or f"bob of {user}"
        bob = sy.connect(str(self.server.address), token, id=id, blocking=True)
        self.callers.append(bob)
        return bob

    def lines(self, what: str | None = None) -> list[dict[str, Any]]:
        with self.server.owning():
            if self.server.core.audit is not None:
                self.server.core.audit._second -= 1  # the second is over
                self.server.core.audit.tick()
        return [one for one in read(self.path) if what in (None, one["what"])]


@pytest.fixture
def watched(hook: sy.TorchHook, tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(hook, tmp_path / "audit.log")
    with watched.server:
        yield watched
        for bob in watched.callers:
            with contextlib.suppress(sy.exceptions.SyftError):
                bob.close()


def test_a_day_of_two_users(watched: Watched) -> None:
    ann, ben = watched.connect("ann"), watched.connect("ben")
    (found,) = ann.search("#salaries")
    mean = found.mean()
    assert mean.get().item() == SECRET
    (other,) = ben.search("#salaries")
    product = other * 2
    with pytest.raises(PermissionDenied):
        product.get()
    assert (torch.ones(8).send(ben) + 1).sum().item() == 16
    hidden = torch.ones(3).send(ann)
    pointer = make_pointer(ben.connection(), int(hidden.id_at_location), False)
    with pytest.raises(ObjectNotFound):
        pointer.get()
    with pytest.raises(WorkerRefused):
        sy.connect(str(watched.server.address), "syft_0123456789abcdef_wrong", id="eve")
    del found, mean, other, product, hidden, pointer
    ben.close()
    lines = watched.lines()
    told = [(one["what"], one.get("user")) for one in lines if one["what"] != "operations"]
    assert told == [
        ("start", None),
        ("connect", "ann"),
        ("connect", "ben"),
        ("search", "ann"),
        ("read", "ann"),
        ("search", "ben"),
        ("refuse", "ben"),
        ("read", "ben"),
        ("refuse", "ben"),
        ("not let in", None),
        ("leave", "ben"),
    ]
    by = {what: [one for one in lines if one["what"] == what] for what, _ in told}
    assert [one["words"] for one in by["search"]] == [["#salaries"]] * 2
    assert by["read"][0]["bytes"] == 4 and by["read"][0]["by"] == "Fetch"
    assert by["refuse"][0]["error"] == "PermissionDenied"
    assert by["refuse"][1]["error"] == "not there for this caller"
    assert by["refuse"][1]["of"] == "objects of ann"
    assert by["not let in"][0]["error"] == "token" and by["not let in"][0]["host"] == "127.0.0.1"
    counted = [one for one in lines if one["what"] == "operations"]
    sets = {(one["user"], one["of"]): one["count"] for one in counted}
    assert sets["ann", "#salaries"] == {"torch.Tensor.mean": 1}
    assert sets["ben", "#salaries"] == {"torch.Tensor.mul": 1}
    text = watched.path.read_text()
    assert "4321" not in text and "0123456789abcdef" not in text, "no values and no tokens"
    assert verified(watched.path)[0] == 0


def test_what_leaves_in_other_ways_is_a_line_too(watched: Watched) -> None:
    ann = watched.connect("ann", "bob")
    assert torch.arange(4.0).send(ann)[2].item() == 2
    plan = sy.func2plan(args_shape=[(3,)])(lambda x: (x * 2).sum().item())
    assert plan(torch.ones(3).send(ann)) == 6
    with sy.WebsocketServerWorker(watched.hook, port=0, id="eve", tokens=watched.book) as there:
        token = watched.book.make("ann", time.time())
        eve = sy.connect(str(there.address), token, blocking=True)
        moved = torch.ones(3).send(ann).move(eve)
        totals = sy.sum_private(torch.ones(2).send(ann), torch.ones(2).send(eve))
        assert totals[0].get().tolist() == [2, 2] and moved.get().tolist() == [1, 1, 1]
        del moved, totals
        eve.close()
    reads = [one["by"] for one in watched.lines("read")]
    assert reads.count("torch.Tensor.item") >= 1 and "Fetch" in reads
    sent, shared = watched.lines("send")
    assert shared["by"] == "Start"
    assert sent["to"][0].startswith("eve") and sent["bytes"] == 12 and sent["by"] == "Move"
    letters = [one["count"] for one in watched.lines("operations")]
    assert any("letters to eve" in count for count in letters), letters
    (dialled,) = watched.lines("dial")
    assert dialled["to"] == [str(there.address)]


def test_an_address_that_is_not_listed_is_a_line(hook: sy.TorchHook, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with (
        sy.WebsocketServerWorker(hook, port=0, id="bob", dial=(), audit=path) as server,
        sy.WebsocketServerWorker(hook, port=0, id="eve") as there,
    ):
        bob, eve = sy.connect(str(server.address)), sy.connect(str(there.address))
        assert torch.ones(2).send(bob).move(eve).get().tolist() == [1, 1]
        bob.close()
        eve.close()
    (line,) = [one for one in read(path) if one["what"] == "refuse"]
    assert (line["by"], line["to"]) == ("dial", [str(there.address)])


def test_a_thousand_operations_are_few_lines(watched: Watched) -> None:
    ann = watched.connect("ann")
    x = torch.ones(2).send(ann)
    began = time.monotonic()
    for _ in range(1000):
        y = x + 1
    assert y.get().tolist() == [2, 2]
    seconds = time.monotonic() - began
    lines = watched.lines("operations")
    assert sum(one["count"].get("torch.Tensor.add", 0) for one in lines) == 1000
    assert len(lines) <= seconds + 3
    del x, y


def test_a_full_disk_serves_nobody_and_says_so(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = watched.connect("ann")
    x, kept = torch.ones(2).send(ann), torch.arange(3.0).send(ann)
    write, full = chained_log.os.write, [True]

    def fill(file: int, data: bytes) -> int:
        if full[0]:
            raise OSError(28, "No space left on device")
        return write(file, data)

    monkeypatch.setattr(chained_log.os, "write", fill)
    assert (x * 1).get().tolist() == [1, 1], "the last that is done: its line waits"
    time.sleep(0.1)
    with pytest.raises(AuditFailed, match="No space left on device"):
        kept.get()
    with pytest.raises(AuditFailed):
        _ = (x + 1).shape
        x.copy().get()
    with pytest.raises(WorkerRefused, match="cannot write its audit log"):
        watched.connect("ben")
    full[0] = False
    assert kept.get().tolist() == [0, 1, 2], "nothing was lost that was not handed over"
    assert (x + 1).get().tolist() == [2, 2]
    watched.connect("ben")
    monkeypatch.undo()
    whats = [one["what"] for one in watched.lines() if one["what"] != "operations"]
    assert whats.count("read") == 3 and "resume" in whats
    assert verified(watched.path)[0] == 0
    del x, kept


def test_two_workers_do_not_write_to_one_file(watched: Watched, hook: sy.TorchHook) -> None:
    with pytest.raises(FileRefused, match="another worker writes to it"):
        sy.WebsocketServerWorker(hook, port=0, id="eve", audit=watched.path)


def test_what_the_command_shows(
    watched: Watched, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ann, ben = watched.connect("ann"), watched.connect("ben")
    x = torch.ones(2).send(ann)
    assert (x + 1).get().tolist() == [2, 2]
    with pytest.raises(ObjectNotFound):
        make_pointer(ben.connection(), int(x.id_at_location), False).get()
    watched.lines()
    file = str(watched.path)

    def said(*options: str) -> str:
        status = main(["log", file, *options])
        out, err = capsys.readouterr()
        return out + err + ("" if status == 0 else f"({status})")

    assert "connect" in said() and "start" in said()
    of_ben = said("--user", "ben")
    assert "refuse" in of_ben and "objects of ann" in of_ben and "read" not in of_ben
    assert "refuse" in said("--user", "ann"), "what was done to what is hers"
    assert said("--since", "1d") == said() and said("--since", "2999-01-01") == ""
    assert {json.loads(one)["what"] for one in said("--json").splitlines()} >= {"start", "read"}
    assert said("--what", "search") == ""
    whole = said("--verify")
    assert "lines, whole" in whole
    head = whole.split()[-1]
    assert "whole" in said("--verify", head) and "lines are gone" in said(
        "--verify", "0" * 63 + "1"
    )
    assert "--since must be a time" in said("--since", "yesterday")
    assert main(["log", "--state", str(tmp_path / "none")]) == 1
    content = watched.path.read_bytes()
    watched.path.write_bytes(content.replace(b'"ben"', b'"eve"', 1))
    assert "is broken at line" in said("--verify")
    watched.path.write_bytes(content)
    del x


def test_a_worker_that_is_lost_has_written_what_it_answered(
    watched: Watched,
) -> None:
    ann = watched.connect("ann")
    assert torch.ones(5).send(ann).get().sum() == 5
    time.sleep(0.1)  # it has had a moment to spare
    reads = [one for one in read(watched.path) if one["what"] == "read"]
    assert [one["bytes"] for one in reads] == [20]
    watched.server.stop("the disk is being replaced")
    with pytest.raises(WorkerLost):
        while True:
            ann.search("#x")
    watched.server.close()
    assert [one["what"] for one in read(watched.path)][-1] == "stop"
