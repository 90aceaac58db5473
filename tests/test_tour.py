"""The tour runs, fits a terminal, and reaches every function that it has a sentence about."""

from __future__ import annotations

import re
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from syft import tour
from syft.ids import new_id
from tests.test_project import ROOT

STOPS = ["plain", "send", "add", "get", "plan", "private", "refused", "shares"]


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """What the tour prints, as a user sees it, by the name of the stop."""
    done = subprocess.run(
        [sys.executable, "-m", "syft.tour"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    parts = re.split(r"^(\w+): ", done.stdout, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _called(text: str) -> list[str]:
    """The places that are shown, as the table of sentences names their files."""
    return re.findall(r" syft/([\w/]+\.py):\d+$", text, flags=re.MULTILINE)


def test_it_has_its_stops(printed: dict[str, str]) -> None:
    assert list(printed) == STOPS
    assert not _called(printed["plain"]) and "0 functions of syft ran.\n" in printed["plain"]
    for name in STOPS[1:]:
        assert 5 <= len(_called(printed[name])) <= 30, name
    assert "tensor([2., 4.])" in printed["get"]
    assert "PermissionDenied: get: this value on 'dan' is private" in printed["refused"]
    assert "tensor([ 65536, 262144])" in printed["shares"]


def test_it_can_be_read_in_a_terminal(printed: dict[str, str]) -> None:
    lines = [line for text in printed.values() for line in text.splitlines()]
    assert len(lines) > 100 and max(map(len, lines)) <= tour.WIDTH == 100


def test_every_function_with_a_sentence_is_reached(printed: dict[str, str]) -> None:
    shown = " ".join(" ".join(text.split()) for text in printed.values())
    never = [place for place, sentence in tour.SENTENCES.items() if sentence not in shown]
    assert not never, "it was renamed, or no stop reaches it any more: mend SENTENCES in tour.py"
    assert {file for text in printed.values() for file in _called(text)} == {
        place.partition(":")[0] for place in tour.SENTENCES
    }


def test_each_sentence_is_one() -> None:
    for place, sentence in tour.SENTENCES.items():
        assert re.fullmatch(r"[A-Z][^.]*(torch\.Tensor[^.]*)?\.", sentence), place


def test_a_call_comes_below_the_one_that_made_it(printed: dict[str, str]) -> None:
    names = ["PointerTensor.call", "Operations.make", "WorkerCore.respond", "handle "]
    found = [re.search(rf"^( *){name}", printed["add"], flags=re.MULTILINE) for name in names]
    margins = [len(match[1]) for match in found if match]
    assert len(margins) == len(names) and margins == sorted(set(margins))


def test_stops_are_chosen_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    tour.main(["get", "plain"])
    assert re.findall(r"^(\w+): ", capsys.readouterr().out, flags=re.MULTILINE) == ["get", "plain"]
    with pytest.raises(SystemExit, match="no stop 'gat'; there are plain, send, add"):
        tour.main(["gat"])


def test_what_is_refused_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    tour.main(["refused"])
    assert "PermissionDenied" in capsys.readouterr().out


def test_a_long_name_has_a_line_of_its_own() -> None:
    place = "workers/execution/private_results.py:private_result"
    short = tour._shown(tour.Seen(place, 0, 1), 1)
    assert [len(line) for line in short[:1]] == [100] and "private_result  " in short[0]
    deep = tour._shown(tour.Seen(place, 30, 1_000_000), 123_456)
    assert deep[0].endswith("(123456 times)") and deep[1].strip().startswith("syft/workers")


def test_calls_are_counted_by_the_functions_around_them() -> None:
    """As the interpreter tells them: what measures lines does not see what it calls for that."""
    calls = tour.LiveCalls({"ids.py:new_id": "An id is drawn."})
    inside: Any = SimpleNamespace(f_code=new_id.__code__)
    outside: Any = SimpleNamespace(f_code=test_it_has_its_stops.__code__)
    told = [("call", outside), ("call", inside), ("c_call", inside), ("call", inside)]
    told += [("return", inside), ("return", inside), ("call", inside)]
    for event, frame in told:
        calls._note(frame, event, None)
    assert [(seen.place, seen.depth) for seen in calls.seen] == [("ids.py:new_id", 0)]
    assert calls.times == {"ids.py:new_id": 3} and calls.functions == 1
