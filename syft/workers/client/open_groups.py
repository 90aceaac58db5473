"""The open groups of messages of one connection: one for each thread that has opened one.

What a group holds back is sent before anything that may depend on it, in whichever thread.

A *lazy* connection has a group that is always open.  It takes the operations of every thread, each
thread in its turn.
"""

from __future__ import annotations

import atexit
import contextlib
import weakref
from collections.abc import Hashable
from threading import get_ident
from typing import Any, Final

from syft.exceptions import SyftError
from syft.workers.client.batch import Repeated
from syft.workers.client.group import GroupingConnection, MessageGroup
from syft.workers.client.known_gradients import KnownGradients
from syft.workers.client.monitor import exclusive

_ALWAYS: Final = 0
"""In the place of a thread, for the group that takes the operations of all of them."""


class Turn:
    """Which thread had the last operation held back for a worker, and over which connection: what
    is held of one is sent before another has its turn, so that everything is done in its order."""

    __slots__ = ("group", "thread")

    def __init__(self) -> None:
        self.group: MessageGroup | None = None
        self.thread = 0


class OpenGroups:
    """The open group of each thread, and what to do with what they hold.

    >>> x, groups = torch.ones(2).send(bob), hook.local_worker.connection_to(bob).groups
    >>> with bob.group():
    ...     y = x + 1
    ...     groups.current is groups.that_holds(y.id_at_location)
    True
    """

    __slots__ = (
        "open",
        "holding",
        "lock",
        "gradients",
        "always",
        "repeated",
        "_connection",
        "_turn",
        "__weakref__",
    )

    def __init__(self, connection: GroupingConnection) -> None:
        self.open: dict[int, MessageGroup] = {}
        """The groups by their threads."""
        self.holding = 0
        """How many are open, or are being sent."""
        self.lock = connection.lock
        self.gradients = KnownGradients(connection)
        """What is known of the gradients that a held backward pass will leave."""
        self.repeated: dict[Hashable, Repeated] = {}
        """What groups have held and may hold again."""
        self.always: MessageGroup | None = None
        """The group of a lazy connection."""
        self._connection = connection
        self._turn = Turn()

    def hold_always(self, turn: Turn) -> None:
        """Hold operations back from now on; ``turn`` is that of all lazy connections to a worker.

        >>> dan = sy.VirtualWorker(hook, id="dan", lazy=True)
        >>> dan.connection().groups.always
        <MessageGroup to dan: open, 0 operations held back>
        """
        self._turn = turn
        self.always = self.open[_ALWAYS] = MessageGroup(self._connection, lazy=True, always=True)
        _LAZY.add(self)

    def never_hold(self) -> None:
        """Hold nothing back any more: another worker may use what is there at any time."""
        if self.always is not None:
            always, self.always = self.always, None
            del self.open[_ALWAYS]
            always.flush()

    @property
    def current(self) -> MessageGroup | None:
        """The open group of this thread."""
        if not self.open:
            return None
        return self.open.get(get_ident()) or (self.always and self._in_turn(self.always))

    @current.setter
    def current(self, group: MessageGroup | None) -> None:
        if group is None:
            self.open.pop(get_ident(), None)
        else:
            self.open[get_ident()] = group

    def _in_turn(self, group: MessageGroup) -> MessageGroup:
        turn, thread = self._turn, get_ident()
        if turn.group is not group or turn.thread != thread:
            try:
                if turn.group is not None:
                    turn.group.flush()
            finally:
                turn.group, turn.thread = group, thread
        return group

    @property
    def held(self) -> bool:
        """Whether the group that is always open holds anything."""
        return self.always is not None and self.always.count > 0

    @exclusive
    def send_if_quiet(self) -> None:
        """Send what is held if nothing has come since the last call: an idle program calls this
        again and again."""
        always = self.always
        if always is not None and always.is_quiet() and self._connection.transport.queued:
            always.flush()

    def new(self, lazy: bool = False) -> MessageGroup:
        """A new group of messages, which is not open yet."""
        return MessageGroup(self._connection, lazy)

    def send(self) -> None:
        """Send what the group of this thread holds: something that comes now may depend on it."""
        group = self.current
        if group is not None:
            group.flush()

    @exclusive
    def that_uses(self, id: int | None) -> MessageGroup | None:
        """The group of any thread that holds something to be done with an object."""
        return next((group for group in self.open.values() if group.uses(id)), None)

    @exclusive
    def that_holds(self, operands: Any, other: bool = False) -> MessageGroup | None:
        """The group of any thread that holds what makes one of the operands; with ``other``, of one
        that is not this thread."""
        for thread, group in self.open.items():
            mine = thread == get_ident() or thread == _ALWAYS
            if not (other and mine) and group.holds(operands):
                return group
        return None

    def send_elsewhere(self, operands: Any) -> None:
        """Send what other threads hold, if that makes one of the operands."""
        while self.open and (group := self.that_holds(operands, other=True)) is not None:
            group.flush()


_LAZY: weakref.WeakSet[OpenGroups] = weakref.WeakSet()


@atexit.register
def _send_at_exit() -> None:
    """A program that ends without a word to its workers still does what it asked of them."""
    for groups in list(_LAZY):
        with contextlib.suppress(SyftError):
            groups.send()
