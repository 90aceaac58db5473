"""Handles: a command that may still be on its way, as something to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, cast

from syft.chain.link import Link
from syft.chain.wrapper import wrap
from syft.workers.client.connection import Connection
from syft.workers.client.pending import OpenPromise, Pending

_PAUSE = 5e-4
"""Seconds between two looks at a worker of another process."""
_BRISK_TURNS = 16

PATIENCE = 4096
"""How many turns an awaited handle leaves to other coroutines, which may keep a promise, while no
worker has anything to do."""


class Handle:
    """The command that makes what a pointer points to: ``wait()``, ``done()``, ``result()``,
    ``await``.

    On an immediate worker a command is done when the call returns, unless it waits for a promised
    input.  The handle of a promise itself is done when that is kept or given up.

    >>> bob = sy.VirtualWorker(hook, id="bob", pipelined=True)
    >>> handle = (torch.ones(2).send(bob) + 1).child.handle
    >>> handle.done(), handle.result().get()
    (False, tensor([2., 2.]))
    """

    __slots__ = ("_connection", "_pending", "_link")

    def __init__(self, connection: Connection, pending: Pending | None, link: Link) -> None:
        self._connection = connection
        self._pending = pending
        self._link = link
        if type(pending) is OpenPromise:
            connection.ask_about(pending)

    def done(self) -> bool:
        """Whether the command has run (or failed); never waits.

        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> (x + 1).child.handle.done()  # bob is immediate
        True
        """
        if self._connection.groups.that_uses(self._link.id_at_location) is not None:
            return False
        return self._pending is None or self._connection.replies.catch_up(self._pending)

    def wait(self) -> None:
        """Let queued workers work until the command has run; raise what it raised.

        Raises :class:`~syft.exceptions.ObjectNotReady` when nothing under way can bring its inputs.

        >>> bob = sy.VirtualWorker(hook, id="bob", pipelined=True)
        >>> handle = (torch.ones(2).send(bob) + 1).child.handle
        >>> handle.wait(); handle.done()
        True
        """
        self._send()
        if self._pending is not None:
            self._connection.replies.wait(self._pending)

    def result(self) -> Any:
        """The pointer to what the command made, once it has; raises what the command raised.

        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> (x + 1).child.handle.result().get()
        tensor([2., 3.])
        """
        self.wait()
        return wrap(self._link)

    def succeeded(self) -> bool:
        """Whether the command has run without an error; never waits.

        >>> bob = sy.VirtualWorker(hook, id="bob", pipelined=True)
        >>> handle = (torch.ones(2).send(bob) + 1).child.handle
        >>> handle.succeeded(), handle.wait(), handle.succeeded()
        (False, None, True)
        """
        return self.done() and (self._pending is None or not self._pending.failed)

    def exception(self) -> Exception | None:
        """The error that the command raised, once it has run; None if it succeeded.

        Raises :class:`~syft.exceptions.ObjectNotReady` when nothing under way can bring its inputs.

        >>> bob = sy.VirtualWorker(hook, id="bob", pipelined=True)
        >>> x = torch.ones(2).send(bob)
        >>> x.view(7).child.handle.exception()
        RuntimeError("shape '[7]' is invalid for input of size 2")
        """
        self._send()
        if self._pending is None:
            return None
        self._connection.replies.wait_settled(self._pending)
        try:
            self._connection.replies.take(self._pending)
        except Exception as error:
            return error
        return None

    def add_done_callback(self, callback: Callable[[Handle], object]) -> None:
        """Call ``callback`` with this handle when the command has run or failed.

        It is called where the reply is read: while this program waits for something at the same
        worker, asks it something or synchronizes.  If the command is done, it is called at once.

        >>> bob = sy.VirtualWorker(hook, id="bob", pipelined=True)
        >>> x = torch.ones(2).send(bob)
        >>> x.child.handle.add_done_callback(lambda handle: print("sent", handle.done()))
        >>> sy.synchronize()
        sent True
        """
        self._send()
        if self._pending is None:
            callback(self)
        else:
            self._connection.replies.when_settled(self._pending, partial(callback, self))

    def __await__(self) -> Generator[Any, None, Any]:
        self._send()
        # As wait(), but while workers are idle another coroutine may still keep a promise.
        connection, pending = self._connection, self._pending
        if pending is not None:
            idle = 0
            while not connection.replies.catch_up(pending):
                idle = 0 if connection.replies.poll() else idle + 1
                remote = connection.transport.overtakes
                if idle > PATIENCE and (pending.parked or not remote):
                    break
                if remote and idle > _BRISK_TURNS and _runs_asyncio():
                    yield from asyncio.sleep(_PAUSE).__await__()
                else:
                    yield  # lets other coroutines run; any event loop takes a bare yield as that
        return self.result()

    def _send(self) -> None:
        """Send the command, if an open group holds it back."""
        with self._connection.lock:
            group = self._connection.groups.that_uses(self._link.id_at_location)
            if group is not None:
                group.flush()
                self._pending = group.pending


def _runs_asyncio() -> bool:
    """Whether a loop of asyncio runs this coroutine."""
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False


class FetchHandle(Handle):
    """A fetch that nobody waits for yet: ``result()`` and ``await`` give the tensor.

    The tensor is removed at its worker when the fetch has run, and is in this handle from then on.

    >>> bob = sy.VirtualWorker(hook, id="bob", pipelined=True)
    >>> handle = torch.ones(2).send(bob).get(wait=False)
    >>> handle.done(), handle.result(), handle.done()
    (False, tensor([1., 1.]), True)
    """

    __slots__ = ("_value",)

    def result(self) -> Any:
        """The tensor, once it has come; raises what the fetch raised.

        >>> torch.ones(2).send(bob).get(wait=False).result()
        tensor([1., 1.])
        """
        if not hasattr(self, "_value"):
            pending = cast(Pending, self._pending)
            self._connection.replies.wait_settled(pending)
            self._value = self._connection.replies.take(pending)
        return self._value
