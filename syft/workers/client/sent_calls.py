"""The sender's end of the numbers: what went over a connection, and so need not go again."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from typing import Any

import msgspec

from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.wire.numbering import BARE, NUMBERS, NumberedCall, Table, same, weight_of
from syft.workers.wire.definitions import Definition

_encode = msgspec.msgpack.encode


class Calls:
    """The meanings of the numbers of one connection at the other end, by key.

    >>> calls = Calls()
    >>> calls.find("double") is None
    True
    """

    __slots__ = ("user", "_table", "_keys")

    def __init__(self) -> None:
        self.user: str | None = None
        """For whom it went: the other end takes nothing up that was sent for another user."""
        self._table = Table()
        self._keys: dict[Hashable, NumberedCall] = {}

    def find(self, key: Hashable) -> NumberedCall | None:
        """The entry of a key, if the other end still knows it; it counts as used now."""
        entry, used = self._keys.get(key), self._table.entries
        if entry is None or used.get(entry.number) is not entry:
            return None
        used.move_to_end(entry.number)  # as `Table.use`
        return entry

    def define(self, key: Hashable, definition: Definition) -> NumberedCall:
        """Give a number to a definition that the other end does not know yet."""
        used = self._table.entries
        if len(used) < NUMBERS:
            number = next(number for number in range(NUMBERS) if number not in used)
        else:
            number = next(iter(used))
        entry = NumberedCall(number, key, definition.kinds, definition.actions)
        self._table.enter(entry)
        self._keys[key] = entry
        if len(self._keys) > NUMBERS:
            self._keys = {known.what: known for known in self._table if self._knows(known)}
        return entry

    def _knows(self, entry: NumberedCall) -> bool:
        return self._keys.get(entry.what) is entry

    def forget(self, key: Hashable) -> None:
        """Take it that the other end does not know this one (any more)."""
        self._keys.pop(key, None)

    def clear(self) -> None:
        """Take it that the other end knows nothing."""
        self._table = Table()
        self._keys.clear()

    def changes(self, entry: NumberedCall, inputs: Sequence[Any], packer: Packer) -> list[Any]:
        """The inputs as they travel: nil for what is as it was the last time."""
        if entry.bare:
            return entry.differences(inputs)
        last = entry.last
        changed: list[Any] = []
        for index, (value, kind) in enumerate(zip(inputs, entry.kinds, strict=True)):
            if kind > BARE:
                changed.append(self._value(entry, index, value, packer))
            else:
                changed.append(None if same(value, last[index]) else value)
                last[index] = value
        return changed

    def _value(self, entry: NumberedCall, index: int, value: Any, packer: Packer) -> Any:
        digest = _digest(value, packer)
        if entry.last[index] == digest:
            return None
        self._table.keep(entry, index, digest, weight_of(value))
        return pack(value, packer)


def _digest(value: Any, like: Packer) -> bytes:
    """A hash of all that would travel."""
    packer = Packer(like.worker, like.destination, like.limits, gradients=like.gradients)
    state = hashlib.blake2b(_encode(pack(value, packer)), digest_size=32)
    for buffer in packer.buffers:
        state.update(memoryview(buffer.cpu().numpy()))  # type: ignore[arg-type]
    return state.digest()


def ranges(ids: Sequence[int]) -> tuple[int | tuple[int, int], ...]:
    """A list of ids with runs of three or more as ``(first id, how many)``.

    >>> ranges([9, 7, 8, 3, 1])
    (1, 3, (7, 3))
    """
    if len(ids) < 3:
        return tuple(ids)
    ids = sorted(ids)
    parts: list[int | tuple[int, int]] = []
    start = 0
    for end in range(1, len(ids) + 1):
        if end < len(ids) and ids[end] == ids[end - 1] + 1:
            continue
        if end - start >= 3:
            parts.append((ids[start], end - start))
        else:
            parts.extend(ids[start:end])
        start = end
    return tuple(parts)
