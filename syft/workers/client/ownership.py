"""Which objects at the other end pointers here own, and how the last one's death gets there.

A pointer that dies only leaves its id in ``garbage``; the next request carries it away, or an idle
line does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syft.serde.frame import Frame
from syft.workers.client.monitor import exclusive
from syft.workers.client.requests import RequestSender
from syft.workers.client.transport import Location, Owner, Transport
from syft.workers.wire import messages


class IdleGarbage(list[int]):
    """The ids of dropped pointers to a worker that need not wait for the next request.

    They are sent at once if the worker is idle, and otherwise when the transport comes to it: the
    next request may never come.
    """

    __slots__ = ("flush", "is_idle", "flush_soon")

    def __init__(
        self,
        flush: Callable[[], None],
        is_idle: Callable[[], bool],
        flush_soon: Callable[[], None],
    ) -> None:
        self.flush, self.is_idle, self.flush_soon = flush, is_idle, flush_soon

    def append(self, id: int) -> None:
        """Keep an id; called when a pointer dies, at any line of the program."""
        list.append(self, id)  # super() costs more
        if self.is_idle():
            self.flush()
        else:
            self.flush_soon()


class Ownership(RequestSender):
    """What a connection knows of the pointers to objects at the other end."""

    __slots__ = ("groups", "holding", "_owners")

    def __init__(self, owner: Owner, location: Location, transport: Transport) -> None:
        super().__init__(owner, location, transport)
        if transport.exchange is None:
            self.garbage = IdleGarbage(self._drop_now, transport.is_idle, transport.flush_soon)
        self.groups: dict[int, Any] = {}
        """The open group of messages of each thread that has one."""
        self.holding = 0  # groups that are open, or whose operations are being sent
        self._owners: dict[int, int] = {}

    @exclusive
    def flush_idle(self) -> bool:
        """Send the ids of dropped pointers now, from any thread; whether there were any.

        It takes no number that a request could take.  A request in the making names no dropped
        pointer: the arguments of the call keep theirs.  Only a group may, so ids stay here while a
        group is open; these ids were there before it was found that none is.
        """
        ids = list(self.garbage)
        if self.holding or self._owners or self.transport.closed:
            return False
        taken = tuple(filter(self._take, ids))
        if taken:
            self.transport.deliver(Frame(messages.encode(messages.Drop(0, taken)), []))
        return bool(taken)

    def _take(self, id: int) -> bool:
        """Take an id out of the garbage, unless a request of another thread has taken it."""
        try:
            self.garbage.remove(id)
        except ValueError:
            return False
        return True

    def _drop_now(self) -> None:
        """Send the ids of dropped pointers, while a pointer dies; if other threads are at work, the
        next request takes them along."""
        if self.lock.acquire(blocking=False):  # a destructor must not wait
            try:
                if self.flush_idle():
                    self.transport.advance(block=False)
            finally:
                self.lock.release()

    def _take_garbage(self) -> tuple[int, ...]:
        # Popped one by one: a pointer may die, here or in another thread, at any line of this.
        garbage, ids = self.garbage, []
        try:
            if len(garbage) == 1 and not (self._owners or self.groups):  # nearly always
                last = (garbage.pop(),)
                if self.facts.active:
                    self.facts.drop(last)
                return last
            for _ in range(len(garbage)):
                ids.append(garbage.pop())
        except IndexError:  # another thread has sent the rest
            pass
        for group in self.groups.values():
            ids = group.kept_from(ids)
        if self.facts.active:
            self.facts.drop(ids)
        return tuple(filter(self._is_last, ids) if self._owners else ids)

    def _is_last(self, id: int) -> bool:
        """Whether nobody else here points to an object that several pointers own."""
        left = self._owners.pop(id, 1) - 1
        if left:
            self._owners[id] = left
        return not left

    def add_owner(self, id: int) -> None:
        """Count one more pointer that owns an object (of a promise: the one that keeps it too)."""
        if id in self._owners:
            self._owners[id] += 1

    def owns(self, id: int) -> bool:
        """Whether pointers here to this object are counted, and one is left."""
        return id in self._owners

    def has_owners(self, id: int) -> bool:
        """Whether several pointers here own this object."""
        return self._owners.get(id, 0) > 1

    @exclusive
    def start_owning(self, id: int) -> None:
        """Count the pointers here that own an object, of which there is one."""
        self._owners[id] = 1

    def stop_owning(self, id: int) -> None:
        """Count no more: the object has left, and what may get its id is another one."""
        with self.lock:  # as `exclusive`, which takes longer
            self._owners.pop(id, None)
            self.facts.drop((id,))  # it may come back as it is not now
