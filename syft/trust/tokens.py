"""Tokens: what a user shows to a worker, and the book in which the worker's owner keeps them.

A token is ``syft_<key id>_<secret>``.  The key id (64 bits) finds the row and is no secret; the
secret has 256 bits from the operating system.  The book keeps a SHA-256 hash of the whole text.
That is enough here: a slow hash (scrypt, Argon2) makes guessing of *passwords* expensive, which
people choose, and nobody guesses 256 random bits at any speed.  A slow hash would only give
strangers a way to keep a worker busy.

Every check hashes and compares once, in constant time, also where the key id is unknown or the text
is no token at all, so that the time of a refusal tells nothing about the book.

The book is a JSON file that its owner alone may read (:mod:`syft.trust.private_files`).  A running
worker sees within one check that the file has changed: a token that was revoked on the command line
is refused from then on.  A file that has vanished admits nobody.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from syft.exceptions import FileRefused, UnknownToken, UnusableSetting
from syft.trust.private_files import Stamp, locked, read_private, stamp_of, write_atomically

_PREFIX = "syft"
_MOST_TEXT = 128
"""Longer texts are no tokens (those have 65 characters), and are not hashed."""

_DAY = 86_400.0
_MOST_DAYS = 36_500
_MOST_NAME = 255

_NOBODYS_DIGEST = secrets.token_hex(32)
"""Compared with where the key id is unknown; nothing hashes to it."""


_YEAR_10000 = 253_402_300_800
_Seconds = Annotated[float, msgspec.Meta(ge=0, lt=_YEAR_10000)]
"""Since 1970, and no more than a date can show."""


@dataclass(frozen=True)
class Grant:
    """What the holder of a token may do, as whom, and until when (``expires``, seconds since 1970).

    >>> Grant("ann", frozenset({"#mnist"}), False, 1e9).user
    'ann'
    """

    user: str
    read: frozenset[str] | None
    """The tags that the user may read; None: all."""
    plans: bool
    """Whether the user may store and run plans."""
    expires: float
    lease: float | None = None
    """How many seconds what its holder has made outlives a connection; None: as the worker says."""


class TokenRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A token in the owner's listing, which shows no secret (times in seconds since 1970).

    >>> book = TokenBook()
    >>> text = book.make("ann", now=0.0, days=1)
    >>> [(row.user, row.expires, row.key_id in text) for row in book.rows()]
    [('ann', 86400.0, True)]
    """

    key_id: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{16}\Z")]
    user: str
    read: frozenset[str] | None
    plans: bool
    made: _Seconds
    expires: _Seconds
    lease: Annotated[float, msgspec.Meta(gt=0, le=30 * 86_400)] | None = None


class _HashedToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the file."""

    digest: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    token: TokenRow


class _TokenFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole file."""

    format: Annotated[int, msgspec.Meta(ge=1, le=1)]
    tokens: list[_HashedToken]


_ENCODER = msgspec.json.Encoder(order="sorted")
_DECODER = msgspec.json.Decoder(_TokenFile)
_Tokens = Mapping[str, _HashedToken]


class TokenBook:
    """The tokens of one worker, in a file or, without a path, in memory.

    Any number of processes may use the file at the same time.

    >>> book = TokenBook()
    >>> text = book.make("ann", now=0.0, days=30, read=["#mnist"])
    >>> book.check(text, now=1.0)
    Grant(user='ann', read=frozenset({'#mnist'}), plans=False, expires=2592000.0, lease=None)
    >>> print(book.check(text, now=31 * 86_400.0), book.check("syft_guessed", now=1.0))
    None None
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._path = None if path is None else Path(path)
        self._lock = threading.Lock()
        # One tuple, so that a thread never sees the stamp of one file and the tokens of another.
        self._seen: tuple[Stamp | None, _Tokens] = (None, {})

    def make(
        self,
        user: str,
        now: float,
        days: float = 30,
        read: Iterable[str] | None = None,
        plans: bool = False,
        lease: float | None = None,
    ) -> str:
        """Make a token and return its text, which cannot be seen again.

        ``read`` are the tags that the user may read (None: all); ``plans``: may store and run
        plans.  ``lease`` is how many seconds what the user has made at a worker outlives a
        connection (None: as long as the worker says).  ``now`` is in seconds since 1970.  Raises
        :class:`~syft.exceptions.UnusableSetting` for names or days that make no sense,
        :class:`~syft.exceptions.FileRefused` as :meth:`check` does, and ``OSError`` where the file
        cannot be written.

        >>> TokenBook().make("ann", now=0.0).count("_") >= 2
        True
        """
        _check_name("user", user)
        tags = None if read is None else _checked_tags(read)
        if not 0 < days <= _MOST_DAYS:
            raise UnusableSetting("days", f"a number over 0, and at most {_MOST_DAYS}", repr(days))
        if lease is not None and not 0 < lease <= 30 * _DAY:
            raise UnusableSetting("a lease", "over 0 seconds, and at most 30 days", repr(lease))
        expires = now + days * _DAY
        if not 0 <= now <= expires < _YEAR_10000:
            raise UnusableSetting("now", "seconds since 1970", repr(now))
        key_id = secrets.token_hex(8)
        text = f"{_PREFIX}_{key_id}_{secrets.token_urlsafe(32)}"
        row = TokenRow(key_id, user, tags, plans, now, expires, lease)
        with self._changing():
            self._write({**self._tokens(), key_id: _HashedToken(_digest(text), row)})
        return text

    def check(self, text: str, now: float) -> Grant | None:
        """Return what a token's holder may do; None for one that is wrong, revoked or expired.

        ``now`` is in seconds since 1970.  Raises :class:`~syft.exceptions.FileRefused` if the file
        is not what was written there, or others may read it by now.

        >>> print(TokenBook().check("syft_0123456789abcdef_secret", now=0.0))
        None
        """
        tokens = self._tokens()
        if len(text) > _MOST_TEXT:
            text = ""
        held = tokens.get(_key_id(text))
        expected = _NOBODYS_DIGEST if held is None else held.digest
        same = hmac.compare_digest(_digest(text), expected)
        # Written so that a clock that shows no number admits nobody.
        if held is None or not same or not now < held.token.expires:
            return None
        row = held.token
        return Grant(row.user, row.read, row.plans, row.expires, row.lease)

    def revoke(self, key_id: str) -> None:
        """Take a token out of the book; from now on it is refused.

        Raises :class:`~syft.exceptions.UnknownToken` if it is not there, and
        :class:`~syft.exceptions.FileRefused` as :meth:`check` does.

        >>> book = TokenBook()
        >>> text = book.make("ann", now=0.0)
        >>> book.revoke(book.rows()[0].key_id)
        >>> print(book.check(text, now=1.0))
        None
        """
        with self._changing():
            tokens = dict(self._tokens())
            if tokens.pop(key_id, None) is None:
                raise UnknownToken(key_id)
            self._write(tokens)

    def rows(self) -> list[TokenRow]:
        """Return every token of the book, expired ones too, the oldest first, without secrets.

        Raises :class:`~syft.exceptions.FileRefused` as :meth:`check` does.

        >>> TokenBook().rows()
        []
        """
        return [held.token for held in self._tokens().values()]

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Let nobody else change the book meanwhile: no thread, and no process."""
        with self._lock, contextlib.nullcontext() if self._path is None else locked(self._path):
            yield

    def _write(self, tokens: _Tokens) -> None:
        if self._path is None:
            self._seen = (None, tokens)
            return
        content = _ENCODER.encode(_TokenFile(1, list(tokens.values())))
        write_atomically(self._path, msgspec.json.format(content, indent=1) + b"\n")

    def _tokens(self) -> _Tokens:
        """The tokens by key id, read anew if the file is another one than the last time."""
        if self._path is None:
            return self._seen[1]
        try:
            if stamp_of(os.stat(self._path)) != self._seen[0]:
                content, stamp = read_private(self._path)
                self._seen = (stamp, _decoded(content, self._path))
        except FileNotFoundError:
            self._seen = (None, {})
        except OSError as error:
            problem = f"it cannot be read ({error.strerror})"
            raise FileRefused(str(self._path), problem, "name a file of this user's") from None
        return self._seen[1]


def _decoded(content: bytes, path: Path) -> _Tokens:
    try:
        held = _DECODER.decode(content).tokens
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        problem = f"it is no token file of this version of syft ({error})"
        raise FileRefused(str(path), problem, "make one with `syft token new`") from None
    tokens = {row.token.key_id: row for row in held}
    if len(tokens) < len(held):
        raise FileRefused(str(path), "two tokens have one id", "remove one of them")
    return tokens


def _key_id(text: str) -> str:
    prefix, _, rest = text.partition("_")
    return rest.partition("_")[0] if prefix == _PREFIX else ""


def _digest(text: str) -> str:
    # What came over a wire may hold halves of surrogate pairs.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _checked_tags(tags: Iterable[str]) -> frozenset[str]:
    if isinstance(tags, str):
        raise UnusableSetting("read", "a list of tags", repr(tags))
    found = frozenset(tags)
    for tag in found:
        _check_name("a tag to read", tag)
    return found


def _check_name(setting: str, name: str) -> None:
    if not (isinstance(name, str) and 0 < len(name) <= _MOST_NAME and name.isprintable()):
        expected = f"1 to {_MOST_NAME} printable characters"
        raise UnusableSetting(setting, expected, repr(name)[:_MOST_NAME])
