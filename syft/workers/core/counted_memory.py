"""The storages that are counted at one worker, each once, whoever uses it.

While a storage is counted, no other one gets its address, by which it is found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from syft.torch_private import free_place, hold_place
from syft.workers.core.peer_limits import Account

Storages = Mapping[int, tuple[torch.UntypedStorage, int]]
"""Storages with their bytes, by the address of the storage itself."""


class CountedStorage:
    """A storage that is counted: who is charged for it, and how many objects and graphs use it."""

    __slots__ = ("account", "bytes", "uses", "_place")

    def __init__(self, account: Account, storage: torch.UntypedStorage, bytes: int) -> None:
        self.account = account
        self.bytes = bytes
        self.uses = 0
        self._place: int = hold_place(storage)
        account.bytes += bytes

    def has(self, bytes: int) -> None:
        """Charge for as many bytes from now on."""
        self.account.bytes += bytes - self.bytes
        self.bytes = bytes

    def __del__(self, free: Callable[[int], None] = free_place) -> None:
        free(self._place)


class CountedMemory(dict[int, CountedStorage]):
    """What is counted, by the address of the storage itself.

    >>> ann, memory, storage = Account(), CountedMemory(), torch.ones(2).untyped_storage()
    >>> place = storage._cdata; memory.new({place: (storage, 8)})
    8
    >>> memory.use(place, storage, 8, ann).uses, memory.new({place: (storage, 8)}), ann.bytes
    (1, 0, 8)
    >>> memory.leave((place,)); ann.bytes, len(memory)
    (0, 0)
    """

    def __init__(self) -> None:
        super().__init__()
        self._dying: list[Any] = []

    def let_go(self, last: Any) -> None:
        """Let what ``last`` refers to as its ``parents`` go, and what these refer to, one after the
        other: a chain may be longer than the stack of the interpreter."""
        dying = self._dying
        dying.append(last.parents)
        last.parents = ()
        if len(dying) == 1:  # else it is called from the loop below
            while dying:
                dying[0] = None
                if len(dying) > 1:
                    dying.pop()
                else:
                    del dying[0]

    def new(self, sizes: Storages) -> int:
        """The bytes of the storages among these that are not counted yet."""
        return sum(size for place, (_, size) in sizes.items() if place not in self)

    def use(
        self, place: int, storage: torch.UntypedStorage, bytes: int, account: Account
    ) -> CountedStorage:
        """Note one more use of a storage; ``account`` is charged for it if nobody is yet."""
        found = self.get(place)
        if found is None:
            found = self[place] = CountedStorage(account, storage, bytes)
        found.uses += 1
        return found

    def leave(self, places: tuple[int, ...]) -> None:
        """Note that some storages have one use less."""
        for place in places:
            found = self[place]
            found.uses -= 1
            if not found.uses:
                found.account.bytes -= found.bytes
                del self[place]
