"""The open groups of messages of one connection: one for each thread that has opened one.

What a group holds back is sent before anything that may depend on it, in whichever thread.
"""

from __future__ import annotations

from threading import get_ident
from typing import Any

from syft.workers.client.group import GroupingConnection, MessageGroup
from syft.workers.client.monitor import exclusive


class OpenGroups:
    """The open group of each thread, and what to do with what they hold.

    >>> x, groups = torch.ones(2).send(bob), hook.local_worker.connection_to(bob).groups
    >>> with bob.group():
    ...     y = x + 1
    ...     groups.current is groups.that_holds(y.id_at_location)
    True
    """

    __slots__ = ("open", "holding", "lock", "_connection")

    def __init__(self, connection: GroupingConnection) -> None:
        self.open: dict[int, MessageGroup] = {}
        """The groups by their threads."""
        self.holding = 0
        """How many are open, or are being sent."""
        self.lock = connection.lock
        self._connection = connection

    @property
    def current(self) -> MessageGroup | None:
        """The open group of this thread."""
        return self.open.get(get_ident()) if self.open else None

    @current.setter
    def current(self, group: MessageGroup | None) -> None:
        if group is None:
            self.open.pop(get_ident(), None)
        else:
            self.open[get_ident()] = group

    def new(self) -> MessageGroup:
        """A new group of messages, which is not open yet."""
        return MessageGroup(self._connection)

    def send(self) -> None:
        """Send what the group of this thread holds: something that comes now may depend on it."""
        group = self.current
        if group is not None:
            group.flush()

    @exclusive
    def that_holds(self, operands: Any, other: bool = False) -> MessageGroup | None:
        """The group of any thread that holds what makes one of the operands; with ``other``, of one
        that is not this thread."""
        for thread, group in self.open.items():
            if group.holds(operands) and not (other and thread == get_ident()):
                return group
        return None

    def send_elsewhere(self, operands: Any) -> None:
        """Send what other threads hold, if that makes one of the operands."""
        while self.open and (group := self.that_holds(operands, other=True)) is not None:
            group.flush()
