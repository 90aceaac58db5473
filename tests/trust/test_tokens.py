"""Tokens: what opens the door, what does not, and the file in which they are kept."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syft.exceptions import FileRefused, UnknownToken, UnusableSetting
from syft.trust import tokens
from syft.trust.tokens import Grant, TokenBook
from tests.shells.processes import PROCESSES
from tests.trust.threads import run_at_once

DAY = 86_400.0
NOW = 1_000_000_000.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


@pytest.fixture(params=["memory", "file"])
def book(request: pytest.FixtureRequest, path: Path) -> TokenBook:
    return TokenBook(None if request.param == "memory" else path)


# ------------------------------------------------------------------------------ what opens the door


def test_a_token_opens_the_door_with_what_it_was_made_for(book: TokenBook) -> None:
    ann = book.make("ann", NOW, days=2, read=["#mnist", "#iris"], plans=True)
    ben = book.make("ben", NOW, read=[])
    assert book.check(ann, NOW) == Grant("ann", frozenset({"#iris", "#mnist"}), True, NOW + 2 * DAY)
    assert book.check(ben, NOW) == Grant("ben", frozenset(), False, NOW + 30 * DAY)
    assert book.check(book.make("eve", NOW), NOW) == Grant("eve", None, False, NOW + 30 * DAY)


def test_the_text_is_as_promised_and_has_256_random_bits(book: TokenBook) -> None:
    made = {book.make("ann", NOW) for _ in range(50)}
    assert len(made) == 50
    for text in made:
        match = re.fullmatch(r"syft_([0-9a-f]{16})_([A-Za-z0-9_-]{43})", text)
        assert match is not None and len(text) < tokens._MOST_TEXT
    secrets = [text.split("_", 2)[2] for text in made]
    assert all(len({secret[place] for secret in secrets}) > 5 for place in range(42))


def test_a_token_expires(book: TokenBook) -> None:
    text = book.make("ann", NOW, days=0.5)
    assert book.check(text, NOW + DAY / 2 - 1) is not None
    assert book.check(text, NOW + DAY / 2) is None
    assert book.check(text, math.nan) is None, "a clock that shows nothing admits nobody"


def test_a_revoked_token_is_refused_and_the_others_are_not(book: TokenBook) -> None:
    texts = [book.make(user, NOW) for user in ("ann", "ben", "eve")]
    book.revoke(book.rows()[1].key_id)
    assert [book.check(text, NOW) is None for text in texts] == [False, True, False]
    assert [row.user for row in book.rows()] == ["ann", "eve"]


def test_revoking_what_is_not_there_says_so(book: TokenBook) -> None:
    with pytest.raises(UnknownToken, match="no token with the id '00'"):
        book.revoke("00")


def test_every_changed_character_makes_another_token(book: TokenBook) -> None:
    text = book.make("ann", NOW)
    for place in range(len(text)):
        for other in "aB3_-":
            changed = text[:place] + other + text[place + 1 :]
            assert (book.check(changed, NOW) is None) is (changed != text), changed
    for changed in (text[:-1], text + "A", text.upper(), f" {text}", f"{text}\n", "", "syft__"):
        assert book.check(changed, NOW) is None


def test_the_secret_of_one_token_does_not_open_another(book: TokenBook) -> None:
    first, second = book.make("ann", NOW), book.make("ben", NOW)
    mixed = f"{first[:21]}_{second[22:]}"
    assert len(mixed) == len(first) and book.check(mixed, NOW) is None


@given(
    text=st.one_of(st.text(), st.text("syft_0af-", max_size=200), st.text().map("syft_".__add__))
)
def test_any_other_text_is_refused(text: str) -> None:
    book = TokenBook()
    book.make("ann", NOW)
    assert book.check(text, NOW) is None


def test_texts_from_a_wire_may_hold_halves_of_surrogate_pairs() -> None:
    assert TokenBook().check("syft_\ud800_\udfff", NOW) is None


@pytest.mark.parametrize("text", ["", "syft_0123456789abcdef_x", "x" * 129, "known", "other"])
def test_each_check_hashes_and_compares_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the key id is known, or the text is a token at all, cannot be told from the work."""
    book = TokenBook()
    made = book.make("ann", NOW)
    text = {"known": made[:-1] + "!", "other": made}.get(text, text)
    compared: list[tuple[str, str]] = []
    hashed: list[int] = []
    sha256, compare = hashlib.sha256, hmac.compare_digest

    def comparing(a: str, b: str) -> bool:
        compared.append((a, b))
        return compare(a, b)

    def hashing(content: bytes) -> hashlib._Hash:
        hashed.append(len(content))
        return sha256(content)

    monkeypatch.setattr(tokens.hmac, "compare_digest", comparing)
    monkeypatch.setattr(tokens.hashlib, "sha256", hashing)
    assert (book.check(text, NOW) is None) is (text != made)
    assert len(compared) == len(hashed) == 1 and hashed[0] <= 128
    assert {len(part) for part in compared[0]} == {64}


# ---------------------------------------------------------------------------------- what it refuses


@pytest.mark.parametrize("user", ["", "a" * 256, "a\nb", "\x00", 7, None])
def test_names_that_make_no_sense_are_refused(book: TokenBook, user: str) -> None:
    with pytest.raises(UnusableSetting, match="user must be 1 to 255 printable characters"):
        book.make(user, NOW)
    with pytest.raises(UnusableSetting, match="a tag to read must be"):
        book.make("ann", NOW, read=["#mnist", user])
    assert book.rows() == []


@pytest.mark.parametrize("days", [0, -1, math.nan, math.inf, 36_501])
def test_every_token_expires_some_day(book: TokenBook, days: float) -> None:
    with pytest.raises(UnusableSetting, match="days must be a number over 0, and at most 36500"):
        book.make("ann", NOW, days=days)


@pytest.mark.parametrize("now", [-1.0, math.nan, math.inf, 1e300])
def test_a_clock_that_shows_no_time_makes_no_token(book: TokenBook, now: float) -> None:
    with pytest.raises(UnusableSetting, match="now must be seconds since 1970"):
        book.make("ann", now)
    assert book.rows() == []


def test_a_text_is_no_list_of_tags(book: TokenBook) -> None:
    with pytest.raises(UnusableSetting, match="read must be a list of tags, got '#mnist'"):
        book.make("ann", NOW, read="#mnist")


# ----------------------------------------------------------------------------------------- the file


def test_the_file_holds_no_secret_and_is_the_owners_alone(path: Path) -> None:
    text = TokenBook(path).make("ann", NOW, read=["#b", "#a"])
    content = path.read_text()
    assert text not in content and text.split("_", 2)[2] not in content
    assert path.stat().st_mode & 0o777 == 0o600
    (row,) = json.loads(content)["tokens"]
    assert row["digest"] == hashlib.sha256(text.encode()).hexdigest()
    assert row["token"] == {
        "key_id": text[5:21],
        "user": "ann",
        "read": ["#a", "#b"],
        "plans": False,
        "made": NOW,
        "expires": NOW + 30 * DAY,
    }


def test_no_listing_shows_a_secret(book: TokenBook) -> None:
    text = book.make("ann", NOW)
    assert text.split("_", 2)[2] not in repr(book.rows())
    assert hashlib.sha256(text.encode()).hexdigest() not in repr(book.rows())


def test_another_process_sees_what_changed(path: Path) -> None:
    running, command_line = TokenBook(path), TokenBook(path)
    assert running.check("syft_0_0", NOW) is None, "a file that is not there yet admits nobody"
    text = command_line.make("ann", NOW)
    assert running.check(text, NOW) is not None
    command_line.revoke(text[5:21])
    assert running.check(text, NOW) is None
    again = command_line.make("ann", NOW)
    assert running.check(again, NOW) is not None
    path.unlink()
    assert running.check(again, NOW) is None, "a file that has vanished admits nobody"


def test_an_unchanged_file_is_not_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = TokenBook(path)
    text = book.make("ann", NOW)
    assert book.check(text, NOW) is not None
    monkeypatch.setattr(tokens, "read_private", None)
    assert book.check(text, NOW) is not None


def test_a_file_that_others_may_read_by_now_is_refused_while_the_worker_runs(path: Path) -> None:
    book = TokenBook(path)
    text = book.make("ann", NOW)
    assert book.check(text, NOW) is not None
    path.chmod(0o640)
    for _ in range(2):
        with pytest.raises(FileRefused, match=r"others may read or write it \(mode 0640\)"):
            book.check(text, NOW)
    with pytest.raises(FileRefused):
        book.make("ben", NOW)
    path.chmod(0o600)
    assert book.check(text, NOW) is not None


GOOD = {
    "digest": "ab" * 32,
    "token": {
        **{"key_id": "0123456789abcdef", "user": "ann", "read": None, "plans": False},
        **{"made": 0.0, "expires": 1e9},
    },
}


def changed(**fields: object) -> dict[str, object]:
    return {**GOOD, "token": {**GOOD["token"], **fields}}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps({"format": 2, "tokens": []}).encode(),
        json.dumps({"format": 1, "tokens": [], "more": 1}).encode(),
        json.dumps({"format": 1, "tokens": [{**GOOD, "digest": "AB" * 32}]}).encode(),
        json.dumps({"format": 1, "tokens": [{**GOOD, "digest": "ab" * 32 + "\n"}]}).encode(),
        json.dumps({"format": 1, "tokens": [changed(key_id="x")]}).encode(),
        json.dumps({"format": 1, "tokens": [changed(expires=None)]}).encode(),
        json.dumps({"format": 1, "tokens": [changed(expires=math.inf)]}).encode(),
        json.dumps({"format": 1, "tokens": [changed(expires=1e300)]}).encode(),
        json.dumps({"format": 1, "tokens": [changed(made=-1.0)]}).encode(),
        json.dumps({"format": 1, "tokens": [changed(admin=True)]}).encode(),
        json.dumps({"format": 1, "tokens": [GOOD, GOOD]}).encode(),
    ],
)
def test_a_file_of_another_form_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)
    for ask in (lambda book: book.check("syft_0_0", NOW), TokenBook.rows):
        with pytest.raises(FileRefused, match="no token file of this version|two tokens have one"):
            ask(TokenBook(path))
    assert path.read_bytes() == content


def test_the_form_that_the_cases_above_break_is_right(path: Path) -> None:
    path.write_text(json.dumps({"format": 1, "tokens": [GOOD]}))
    path.chmod(0o600)
    assert [row.user for row in TokenBook(path).rows()] == ["ann"]


def test_a_path_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileRefused, match="cannot be read"):
        TokenBook(tmp_path).rows()
    with pytest.raises(FileRefused, match="cannot be read"):
        TokenBook(str(tmp_path / ("n" * 300))).rows()


def test_threads_lose_no_token(book: TokenBook, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    write = book._write

    def write_later(tokens: object) -> None:
        time.sleep(0.001)
        write(tokens)

    monkeypatch.setattr(book, "_write", write_later)

    def make() -> None:
        made.extend(book.make("ann", NOW) for _ in range(5))

    run_at_once(make, 4)
    assert len(made) == 20 and all(book.check(text, NOW) is not None for text in made)


def _make_five(path: str) -> list[str]:
    return [TokenBook(path).make(f"user {os.getpid()}", NOW) for _ in range(5)]


def test_processes_lose_no_token(path: Path) -> None:
    with PROCESSES.Pool(2) as pool:
        made = sum(pool.map(_make_five, [str(path)] * 4), [])
        pool.close()
        pool.join()
    book = TokenBook(path)
    assert len(made) == 20 and all(book.check(text, NOW) is not None for text in made)
