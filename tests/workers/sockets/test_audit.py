"""What the owner of a worker is told of callers: each line of the audit log, by real sockets."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
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
from syft.workers.core import audit as audit_module
from tests.trust.test_chained_log import verified
from tests.workers.sockets.raw_caller import RawCaller

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

    @property
    def audit(self) -> audit_module.Audit:
        assert self.server.core.audit is not None
        return self.server.core.audit

    def lines(self, what: str | None = None) -> list[dict[str, Any]]:
        with self.server.owning():
            if self.server.core.audit is not None:
                self.server.core.audit._second -= 1  # the second is over
                self.server.core.audit.tick()
        return [one for one in read(self.path) if what in (None, one["what"])]


def until_true(holds: Callable[[], bool]) -> None:
    """Wait until something holds, which it does soon."""
    until = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


def times(lines: list[dict[str, Any]]) -> int:
    """How often happened what lines tell."""
    return sum(one.get("times", 1) for one in lines)


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
    assert by["refuse"][1]["of"] == ["objects of ann"]
    assert by["not let in"][0]["error"] == "token" and by["not let in"][0]["host"] == "127.0.0.1"
    counted = [one for one in lines if one["what"] == "operations"]
    sets = {(one["user"], *one["of"]): one["count"] for one in counted}
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


def test_a_thousand_reads_and_searches_are_few_lines(watched: Watched) -> None:
    """What says the same is counted for a twentieth of a second; nothing is left out."""
    ann, ben = watched.connect("ann"), watched.connect("ben")
    sent = [torch.ones(3).send(ann) for _ in range(500)]
    for x in sent:
        x.get()
        assert not ann.search("#a") and not ann.search("#b") and not ben.search("#b")
    del sent, x
    reads, searches = watched.lines("read"), watched.lines("search")
    assert times(reads) == 500 and sum(one["bytes"] for one in reads) == 6000
    by = [(one["user"], tuple(one["words"]), one.get("times", 1)) for one in searches]
    for user, words in (("ann", ("#a",)), ("ann", ("#b",)), ("ben", ("#b",))):
        assert sum(count for *key, count in by if key == [user, words]) == 500
    assert all(one["bytes"] % one.get("times", 1) == 0 for one in searches)
    assert len(reads) + len(searches) < 1800, "a line each were 2000"
    assert verified(watched.path)[0] == 0


def test_a_thousand_refused_requests_are_few_lines(watched: Watched) -> None:
    ann, eve = watched.connect("ann"), watched.connect("eve")
    x = torch.ones(3).send(ann)
    watched.server.hold(torch.full((2,), SECRET).tag("#mine").private_tensor(["ann"]))
    (mine,) = eve.search("#mine")
    for _ in range(200):
        with pytest.raises(ObjectNotFound):
            make_pointer(eve.connection(), int(x.id_at_location), False).get()
        with pytest.raises(PermissionDenied):
            mine.copy().get()
    del x, mine
    lines = watched.lines("refuse")
    for error in "not there for this caller", "PermissionDenied":
        assert times([one for one in lines if one["error"] == error]) == 200
    assert len(lines) < 350, "a line each were 400"


def test_what_happens_between_two_reads_stands_between_them(watched: Watched) -> None:
    ann = watched.connect("ann")
    x, y = torch.ones(3).send(ann), torch.ones(3).send(ann)
    x.get()
    with pytest.raises(ObjectNotFound):
        make_pointer(ann.connection(), 5, False).get()
    watched.audit.event("leave", reason="it is tried")
    y.get()
    whats = [one["what"] for one in watched.lines() if one["what"] != "operations"]
    assert whats == ["start", "connect", "read", "leave", "read"]


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
    until_true(lambda: watched.audit.broken is not None)
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
    assert times(watched.lines("read")) == 3 and len(watched.lines("resume")) == 1
    assert verified(watched.path)[0] == 0
    del x, kept


def test_what_is_refused_while_the_disk_is_full_fills_nothing(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = watched.connect("ann")
    kept = torch.ones(2).send(ann)
    watched.lines()
    full = [True]
    write = chained_log.os.write

    def fill(file: int, data: bytes) -> int:
        if full[0]:
            raise OSError(28, "No space left on device")
        return write(file, data)

    monkeypatch.setattr(chained_log.os, "write", fill)
    monkeypatch.setattr(audit_module, "_MOST_WAITING", 5)
    audit = watched.audit
    for _ in range(8):
        audit.event("leave", reason="it is tried")
    with pytest.raises(WorkerRefused):
        watched.connect("ben")
    for _ in range(30):
        with pytest.raises(AuditFailed):
            kept.get()
    full[0] = False
    assert kept.copy().get().tolist() == [1, 1]
    assert kept.get().tolist() == [1, 1]
    del kept
    lines = watched.lines()
    (resumed,) = [one for one in lines if one["what"] == "resume"]
    assert resumed["left_out"] == 3 and [one["what"] for one in lines].count("leave") == 5
    assert len(lines) < 20 and verified(watched.path)[0] == 0


def test_a_disk_that_has_room_again_is_noticed_though_nobody_asks(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(file: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    audit = watched.audit
    with monkeypatch.context() as patched:
        patched.setattr(chained_log.os, "write", fill)
        audit.event("leave", reason="it is tried")
        assert audit.broken == "No space left on device"
    until_true(lambda: audit.broken is None)


def test_lines_that_are_lost_at_the_end_are_told(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fill(file: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    ann = watched.connect("ann")
    with monkeypatch.context() as patched, caplog.at_level("ERROR", "syft.worker"):
        patched.setattr(chained_log.os, "write", fill)
        watched.server.close()
    (said,) = caplog.messages
    assert "the end of the audit log is not on the disk (No space left on device; " in said
    assert "lines are lost" in said
    with pytest.raises(WorkerLost):
        ann.objects_count()
    chained_log.ChainedLog(watched.path).close()


def test_probes_of_a_limited_token_are_lines(watched: Watched) -> None:
    token = watched.book.make("eve", time.time(), read=["#public"])
    ann = watched.connect("ann")
    eve = sy.connect(str(watched.server.address), token, id="bob of eve", blocking=True)
    watched.callers.append(eve)
    (salaries,) = ann.search("#salaries")
    hers = torch.ones(3).send(ann)
    for pointer in salaries, hers:
        with pytest.raises(ObjectNotFound):
            make_pointer(eve.connection(), int(pointer.id_at_location), False).get()
    with pytest.raises(ObjectNotFound):  # the control: nothing is there
        make_pointer(eve.connection(), 12345, False).get()
    del salaries, hers, pointer
    refused = [(one["user"], one["of"], one["error"]) for one in watched.lines("refuse")]
    why = "not there for this caller"
    assert refused == [("eve", ["#salaries"], why), ("eve", ["objects of ann"], why)]


def test_names_of_users_are_never_cut(watched: Watched, capsys: pytest.CaptureFixture[str]) -> None:
    """What is told of an operation on the owner's data and on ann's has both, however long the
    tags are, and is found for ann."""
    tags = [f"#{letter * 90}" for letter in "abcdefgh"]
    held = [torch.ones(2).tag(tag, "#all") for tag in tags for _ in range(4)]
    held += [torch.ones(2).tag(f"#number{n}", "#all") for n in range(30)]
    watched.server.hold(*held)
    ann, ben = watched.connect("ann"), watched.connect("ben")
    hers = torch.ones(2).private_tensor(["ann", "ben"]).tag("#hers").send(ann, user="ann")
    found = [*ben.search("#all"), *ben.search("#hers")]
    assert len(found) == len(held) + 1
    total = torch.stack(found).sum(0)
    assert total.get().tolist() == [63, 63]
    del found, total, hers
    (line,) = [one for one in watched.lines("operations") if "torch.stack" in one["count"]]
    assert line["of"][-1] == "objects of ann" and line["of"][-2] == "… (18 more)"
    assert len(line["of"]) == 22 and all(len(one) < 240 for one in line["of"])
    assert main(["log", str(watched.path), "--user", "ann", "--what", "operations"]) == 0
    assert "1 torch.stack" in capsys.readouterr().out


def test_what_callers_choose_forges_no_line(
    watched: Watched, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    forged = "x\n2026-01-01T00:00:00.000Z  read  ben\x1b[2K\r\u202e"
    ann = watched.connect("ann", "ann  read=1")
    assert not ann.search(forged, "a  bytes=5", "a, b", "x" * 500, *(f"w{n}" for n in range(30)))
    with caplog.at_level("INFO", "syft.worker"), RawCaller(watched.server.port) as raw:
        token = watched.book.make("eve", time.time())
        assert raw.greet(token=token, name="-")["kind"] == "welcome"
        raw.say(kind="bye", reason=forged + "y" * 1000)
        until_true(lambda: bool(watched.lines("leave")))
    (left,) = watched.lines("leave")
    assert left["reason"].isprintable() and len(left["reason"]) < 300
    (search,) = watched.lines("search")
    assert len(search["words"]) == 21 and search["words"][-1] == "… (14 more)"
    assert search["words"][3] == "x" * 200 + "… (300 more)"
    assert main(["log", str(watched.path)]) == 0
    shown = capsys.readouterr().out
    rows = shown.splitlines()
    assert len(rows) == len(watched.lines()) and shown.replace("\n", "").isprintable()
    (row,) = [one for one in rows if "  search  " in one]
    assert re.findall(r"  (\w+)=", re.sub(r'"(?:[^"\\]|\\.)*"', "", row)) == ["words", "bytes"]
    assert '"a, b", ' in row and "\\u202e" in row
    (row,) = [one for one in rows if "  leave  " in one]
    assert '  "-"  ' in row, "who is called so is not nobody"
    assert not any(
        line.startswith("2026-01-01T") for one in caplog.messages for line in one.split("\n")
    )


def test_refused_addresses_of_one_network_are_one_line_a_second(watched: Watched) -> None:
    visits = watched.server.reception.visits
    for number in range(50):
        visits.refused(f"2001:db8::{number:x}", "token")
    visits.refused("2001:db8:0:1::1", "token")
    hosts = [one["host"] for one in watched.lines("not let in")]
    assert hosts == ["2001:db8::0", "2001:db8:0:1::1"]


def test_who_comes_from_ever_new_addresses_takes_no_memory(watched: Watched) -> None:
    """A thousand addresses are known at most: of the one that is forgotten more lines are told."""
    visits = watched.server.reception.visits
    for number in (*range(1001), 1000, 0):
        visits.refused(f"10.0.{number // 250}.{number % 250}", "token")
    hosts = [one["host"] for one in watched.lines("not let in")]
    assert len(hosts) == 1002 and hosts[-2:] == ["10.0.4.0", "10.0.0.0"]


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
    assert "Behind" not in whole
    with watched.path.open("ab") as more:
        more.write(b"torn")
    assert "Behind the last line are 4 bytes of none" in said("--verify")
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
    until_true(lambda: any(one["what"] == "read" for one in read(watched.path)))
    reads = [one for one in read(watched.path) if one["what"] == "read"]
    assert [one["bytes"] for one in reads] == [20]
    watched.server.stop("the disk is being replaced")
    with pytest.raises(WorkerLost):
        while True:
            ann.search("#x")
    watched.server.close()
    assert [one["what"] for one in read(watched.path)][-1] == "stop"
