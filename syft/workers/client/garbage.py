"""What has no pointer here any more: ids on their way to the worker, which drops the objects.

A pointer that dies only leaves its id; the next request carries it away, or an idle line does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from syft.serde.frame import Frame
from syft.workers.client.facts import Facts
from syft.workers.client.monitor import exclusive
from syft.workers.client.open_groups import OpenGroups
from syft.workers.client.transport import Transport
from syft.workers.wire.messages import Drop, encode


class Garbage:
    """The ids of dropped pointers to one worker, and how many pointers own an object there.

    ``append`` keeps an id; it is called when a pointer dies, at any line of the program.  Over a
    line to a worker that need not be waited for, the ids are sent at once if the worker is idle,
    and otherwise when the transport comes to it: the next request may never come.
    """

    __slots__ = ("append", "ids", "lock", "owners", "_facts", "_groups", "_transport")

    def __init__(self, transport: Transport, facts: Facts, groups: OpenGroups) -> None:
        self.ids: list[int] = []
        self.append: Callable[[int], None] = self.ids.append
        if transport.exchange is None:
            self.append = self._append_and_flush
        self.lock: Any = transport.monitor.lock
        self.owners: dict[int, int] = {}
        """How many pointers own an object, of those that several own."""
        self._facts = facts
        self._groups = groups
        self._transport = transport

    def extend(self, ids: Iterable[int]) -> None:
        """Keep several ids for the next request, which is about to come."""
        self.ids.extend(ids)

    def _append_and_flush(self, id: int) -> None:
        """Keep an id, and send all of them now or soon."""
        self.ids.append(id)
        if self._transport.is_idle():
            self._flush_now()
        else:
            self._transport.flush_soon()

    @exclusive
    def flush_idle(self) -> bool:
        """Send the ids of dropped pointers now, from any thread; whether there were any.

        It takes no number that a request could take.  A request in the making names no dropped
        pointer: the arguments of the call keep theirs.  Only a group may, so ids stay here while a
        group is open; these ids were there before it was found that none is.
        """
        ids = list(self.ids)
        groups = self._groups
        if groups.holding or groups.held or self.owners or self._transport.closed:
            return False
        taken = tuple(filter(self._take_one, ids))
        if taken:
            self._transport.deliver(Frame(encode(Drop(0, taken)), []))
        return bool(taken)

    def _take_one(self, id: int) -> bool:
        """Take an id out, unless a request of another thread has taken it."""
        try:
            self.ids.remove(id)
        except ValueError:
            return False
        return True

    def _flush_now(self) -> None:
        """Send the ids while a pointer dies; if other threads are at work, the next request takes
        them along."""
        if self.lock.acquire(blocking=False):  # a destructor must not wait
            try:
                if self.flush_idle():
                    self._transport.advance(block=False)
            finally:
                self.lock.release()

    def take(self) -> tuple[int, ...]:
        """Take all ids out, for a request that carries them away."""
        # Popped one by one: a pointer may die, here or in another thread, at any line of this.
        garbage, ids, groups = self.ids, [], self._groups.open
        try:
            if len(garbage) == 1 and not (self.owners or groups):  # nearly always
                last = (garbage.pop(),)
                if self._facts.active:
                    self._facts.drop(last, dead=True)
                return last
            for _ in range(len(garbage)):
                ids.append(garbage.pop())
        except IndexError:  # another thread has sent the rest
            pass
        for group in groups.values():
            ids = group.kept_from(ids)
        if self._facts.active:
            self._facts.drop(ids, dead=True)
        return tuple(filter(self._is_last, ids) if self.owners else ids)

    # ------------------------------------------------------------ which objects pointers here own

    def _is_last(self, id: int) -> bool:
        """Whether nobody else here points to an object that several pointers own."""
        left = self.owners.pop(id, 1) - 1
        if left:
            self.owners[id] = left
        return not left

    def add_owner(self, id: int) -> None:
        """Count one more pointer that owns an object (of a promise: the one that keeps it too)."""
        if id in self.owners:
            self.owners[id] += 1

    def owns(self, id: int) -> bool:
        """Whether pointers here to this object are counted, and one is left."""
        return id in self.owners

    def has_owners(self, id: int) -> bool:
        """Whether several pointers here own this object."""
        return self.owners.get(id, 0) > 1

    @exclusive
    def start_owning(self, id: int) -> None:
        """Count the pointers here that own an object, of which there is one."""
        self.owners[id] = 1

    def stop_owning(self, id: int) -> None:
        """Count no more: the object has left, and what may get its id is another one."""
        with self.lock:  # as `exclusive`, which takes longer
            self.owners.pop(id, None)
            self._facts.drop((id,))  # it may come back as it is not now
