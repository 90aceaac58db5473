"""The numbers of a connection: definitions that were run over it, in a table at both ends.

A definition that is run again is sent as its number, with the inputs that differ from the last run.
Both ends keep a table and remove entries by the same rules when it is full, so no messages about
removal are needed.  An end may keep more entries than the other, because only the sender uses the
numbers.  After any failure the sender removes the entry, and sends the definition again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import torch

from syft.exceptions import LimitExceeded
from syft.ops.nested import EXACT_TENSOR_TYPES, NUMBER_OR_NONE_TYPES, container_class

NUMBERS: Final = 1024
"""The number of numbers of a connection."""
MAX_ACTIONS: Final = 1 << 18
"""The most that all definitions of a connection except the newest may count together."""
MAX_BYTES: Final = 1 << 26
"""The most bytes of all input values that a connection keeps."""

BARE: Final = 1
"""The kinds up to this one are sent as they are: ids of objects (0) and numbers (1)."""

_EACH: Final = 64
"""Bytes that each value and each container counts."""


class NumberedCall:
    """The definition of one number, and the inputs of its last run.

    ``what`` is the prepared definition at the worker, and the sender's key for it at the sender.
    """

    __slots__ = ("number", "what", "kinds", "bare", "actions", "last", "weights", "weight")

    def __init__(self, number: int, what: Any, kinds: Iterable[int], actions: int) -> None:
        self.number = number
        self.what = what
        self.kinds = tuple(map(int, kinds))
        self.bare = max(self.kinds, default=0) <= BARE
        """Whether all inputs are ids and numbers."""
        self.actions = actions
        self.last: list[Any] = [None] * len(self.kinds)
        self.weights: dict[int, int] = {}
        self.weight = 0

    def differences(self, inputs: Sequence[Any]) -> list[Any]:
        """Inputs that are all bare, in their wire format: None for each that has not changed.

        >>> entry = NumberedCall(3, "double", (0, 0), 20)
        >>> entry.differences([7, 8]), entry.differences([7, 9])
        ([7, 8], [None, 9])
        """
        last, self.last = self.last, list(inputs)
        changes: list[Any] = []
        for value, before in zip(inputs, last, strict=True):
            alike = type(value) is type(before) is int  # ids, nearly always
            unchanged = value == before and (alike or same(value, before))
            changes.append(None if unchanged else value)
        return changes


def same(value: Any, before: Any) -> bool:
    """Whether an id or a number has not changed, the sign of a zero included.

    >>> same(2, 2), same(2, 2.0), same(0.0, 0.0), same(0.0, -0.0)
    (True, False, True, False)
    """
    if value != before or type(value) is not type(before):
        return False
    return bool(value) or repr(value) == repr(before)


class Table:
    """The entries of one connection by number, the least recently used one first.

    >>> table = Table()
    >>> table.enter(NumberedCall(3, "double", (0,), 20)); table.use(3).what
    'double'
    >>> table.use(4) is None
    True
    """

    __slots__ = ("user", "entries", "actions", "weight")

    def __init__(self, user: str | None = None) -> None:
        self.user = user
        """The user on whose behalf the definitions were sent; another user starts a new table."""
        self.entries: OrderedDict[int, NumberedCall] = OrderedDict()
        self.actions = 0
        self.weight = 0

    def use(self, number: int) -> NumberedCall | None:
        """The entry of a number, which becomes the most recently used one."""
        entry = self.entries.get(number)
        if entry is not None:
            self.entries.move_to_end(number)
        return entry

    def enter(self, entry: NumberedCall) -> None:
        """Define a number; removes the least recently used entries if the table is too large."""
        self.remove(entry.number)
        self.entries[entry.number] = entry
        self.actions += entry.actions
        while self.actions > MAX_ACTIONS and len(self.entries) > 1:
            self.remove(next(iter(self.entries)))

    def remove(self, number: int) -> None:
        """Remove the entry of a number."""
        entry = self.entries.pop(number, None)
        if entry is not None:
            self.actions -= entry.actions
            self.weight -= entry.weight

    def keep(self, entry: NumberedCall, index: int, value: Any, weight: int) -> bool:
        """Store a value as the last one of an input, unless it is too large."""
        weight_before = entry.weights.pop(index, 0)
        entry.weight -= weight_before
        self.weight -= weight_before
        if entry.weight + weight > MAX_BYTES:
            entry.last[index] = None
            return False
        entry.last[index] = value
        entry.weights[index] = weight
        entry.weight += weight
        self.weight += weight
        while self.weight > MAX_BYTES:  # this entry alone is within the limit, so there are others
            self.remove(next(number for number in self.entries if number != entry.number))
        return True

    def __iter__(self) -> Iterator[NumberedCall]:
        return iter(self.entries.values())


def check_number(number: int, most: int = NUMBERS) -> None:
    """Raise :class:`~syft.exceptions.LimitExceeded` for a number out of range; a worker may allow
    fewer than there are.

    >>> check_number(2000)
    Traceback (most recent call last):
    ...
    syft.exceptions.LimitExceeded: Message over a limit at $.number: NUMBERS is 1024, got 2000. \
Send less at once, or raise the limit on both sides.
    """
    if not 0 <= number < min(most, NUMBERS):
        raise LimitExceeded("$.number", "NUMBERS", min(most, NUMBERS), number)


def weight_of(value: Any) -> int:
    """The bytes that a value counts towards ``MAX_BYTES``, the same at both ends of a connection.

    Each value and each container counts 64 bytes, besides the elements of a tensor and the
    characters of a text.  A value with other parts than dense tensors, numbers and texts gets a
    weight over the limit, so it is never kept.

    >>> weight_of(torch.ones(2, 3)), weight_of([5, "text"])
    (88, 196)
    >>> weight_of(torch.Generator()) > MAX_BYTES, weight_of(torch.eye(2).to_sparse()) > MAX_BYTES
    (True, True)
    """
    kind = type(value)
    rule = _WEIGHTS.get(kind) or _WEIGHTS.get(container_class(kind))
    return MAX_BYTES + 1 if rule is None else rule(value)


def _weight_of_tensor(tensor: torch.Tensor) -> int:
    if tensor.layout is not torch.strided:
        return MAX_BYTES + 1
    own: int = _EACH + tensor.numel() * tensor.itemsize
    gradient = tensor.grad if tensor.is_leaf else None
    return own if gradient is None else own + weight_of(gradient)


def _weight_of_bare(value: Any) -> int:
    return _EACH


def _weight_of_int(value: int) -> int:
    return _EACH + value.bit_length() // 8


def _weight_of_text(value: str | bytes) -> int:
    return _EACH + len(value)


def _weight_of_items(value: Iterable[Any]) -> int:
    return _EACH + sum(map(weight_of, value))


def _weight_of_dict(value: dict[Any, Any]) -> int:
    return _weight_of_items(value) + sum(map(weight_of, value.values()))


def _weight_of_slice(value: slice) -> int:
    return _weight_of_items((value.start, value.stop, value.step))


_WEIGHTS: Final[dict[type | None, Callable[[Any], int]]] = {
    **dict.fromkeys(EXACT_TENSOR_TYPES, _weight_of_tensor),
    **dict.fromkeys(NUMBER_OR_NONE_TYPES, _weight_of_bare),
    int: _weight_of_int,
    str: _weight_of_text,
    bytes: _weight_of_text,
    list: _weight_of_items,
    tuple: _weight_of_items,
    dict: _weight_of_dict,
    slice: _weight_of_slice,
}
"""How to weigh a value, by its class; subclasses of containers are weighed as containers."""
