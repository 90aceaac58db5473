"""The operations of every worker, wherever it runs: search, group messages, use its torch.

A shell derives from :class:`Worker` and provides the transport to its worker
(:meth:`Worker.transport_for`).  Everything else is requested over a connection.

``bob.torch``: torch's functions, run at worker bob.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Final, NoReturn

import torch

from syft.chain.wrapper import first_link
from syft.exceptions import (
    NothingToGet,
    OperationRefused,
    UnknownOperation,
    UnusableSetting,
    WorkerClosed,
    WorkerIdTaken,
)
from syft.ids import first_id, new_id
from syft.notebook_html import table
from syft.ops.returns import returns
from syft.ops.table import BY_NAME, REFUSED_NAMES, name_of
from syft.serde.registry import register_hint
from syft.workers.client.answers import summaries_in
from syft.workers.client.connection import Connection
from syft.workers.client.group import MessageGroup
from syft.workers.client.operands import Operands
from syft.workers.client.transport import Location, Owner, Transport
from syft.workers.shells.network import Network
from syft.workers.shells.shown_objects import NothingFound
from syft.workers.shells.training_calls import TrainingCalls
from syft.workers.wire.messages import GiveUp, Search

Query = str | int | Iterable[str | int]
"""What a search takes: a tag or an id, or several of them."""

WORKER_HEAD: Final = ("worker", "kind", "where", "objects", "tags")
"""The columns of a table of workers."""


class Worker(TrainingCalls, ABC):
    """A worker as users see it: the ``location`` of a pointer. Abstract.

    >>> sorted(Worker.__abstractmethods__)
    ['close', 'transport_for']
    """

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> NoReturn:
        """Raises :class:`~syft.exceptions.UnusableSetting`: torch was given a worker.

        >>> torch.ones(2).to(bob)
        Traceback (most recent call last):
        ...
        syft.exceptions.UnusableSetting: an argument of torch.Tensor.to must be a tensor, ...
        """
        expected = "a tensor, a number or a device"
        got = f"a {cls.__name__}: x.send(worker) puts x there, and x.move(worker) takes it there"
        raise UnusableSetting(f"an argument of {name_of(func)}", expected, got)

    id: str
    """Its name in this process."""
    network: Network
    """The workers known to it."""
    closed: bool = False
    is_lazy: bool = False
    """Whether operations are held back until somebody wants a value: see :meth:`Worker.lazy`."""
    announces: bool = False
    """Whether it tells its networks when a message is queued for it in this process."""

    @abstractmethod
    def transport_for(self, caller: Owner) -> Transport:
        """A new transport from ``caller`` to this worker."""

    @abstractmethod
    def close(self) -> None:
        """Leave the network. Later requests raise :class:`~syft.exceptions.WorkerClosed`."""

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return table(WORKER_HEAD, [self.cells_shown()], named=True)

    def cells_shown(self) -> tuple[str, ...]:
        """Its row in a table of workers: what this program knows without asking it.

        >>> bob.cells_shown()
        ('bob', 'VirtualWorker', 'in this process', '0', '')
        """
        return self.id, type(self).__name__, self.place_shown(), "", ""

    def place_shown(self) -> str:
        """Where it is, in words."""
        return "closed" if self.closed else ""

    def as_user(self, user: str) -> WorkerAsUser:
        """This worker as ``user`` has it: every request that is made through it is hers.

        So her name need not be said again: what is sent there, found there or computed from it may
        be read, sent on to another worker, shared and copied as far as its guards admit her.
        Within one program the name is a claim.  To a worker of another process her token opens the
        way: that of the connection, or one of its ``tokens=``.

        Raises :class:`~syft.exceptions.TokenMissing` if nothing here proves who she is, and
        :class:`~syft.exceptions.UnusableSetting` for what is no name.

        >>> ann = bob.as_user("ann")
        >>> x = torch.ones(2).private_tensor(["ann"]).send(ann)
        >>> (x + x).get()
        tensor([2., 2.])
        >>> ann is bob.as_user("ann"), x.location
        (True, <VirtualWorker id:bob as:ann>)
        """
        views: dict[str, WorkerAsUser] = self.__dict__.setdefault("_as_users", {})
        if not isinstance(user, str) or not user:
            got = repr(user) if isinstance(user, str) else f"a value of type {type(user).__name__}"
            raise UnusableSetting("user", "the name of a user (a string)", got)
        if user not in views:
            self.check_speaks_for(user)
            views[user] = WorkerAsUser(self, user)
        return views[user]

    def check_speaks_for(self, user: str) -> None:
        """Raise :class:`~syft.exceptions.TokenMissing` unless this program may ask for ``user``;
        within one program it may.

        >>> bob.check_speaks_for("ann")
        """
        return

    def caller_for(self, owner: Owner) -> Owner:
        """By whom this worker is asked, if a program of ``owner`` asks it.

        >>> bob.caller_for(hook.local_worker) is hook.local_worker
        True
        """
        return owner

    def check_known(self, network: Network, asked: str) -> None:
        """Raise :class:`~syft.exceptions.UnknownWorker` unless it is known in a network, and
        :class:`~syft.exceptions.WorkerIdTaken` if another worker has its name there.

        >>> bob.check_known(bob.network, "me")
        """
        if network.find(self.id, asked) is not self:
            raise WorkerIdTaken(self.id)

    def work(self, most: int = 1) -> bool:
        """Handle one message queued for this worker in this process, or up to ``most``; False if
        there is none."""
        return False

    def connection(self) -> Connection:
        """The connection over which the user's program sends requests to this worker.

        Raises :class:`~syft.exceptions.WorkerClosed`.
        """
        if self.closed:
            raise WorkerClosed(self.id)
        return self.network.local.connection_to(self.id)

    def search(self, *query: Query) -> list[Any]:
        """Pointers to the objects that carry every word of ``query`` as a tag (or as their id).

        Words are given one by one or in a list; a number is an id.  An object is found under the
        id that it has there (``pointer.id_at_location``).  A plan is found by the id of the plan it
        is a copy of too (``plan.id``), the copy that came last first.

        The pointers belong to the network's first worker (``sy.local_worker``) and, unlike others,
        do not delete what they point to when they are dropped.

        >>> ids = bob.hold(torch.ones(2).tag("#digits", "#train"), torch.zeros(2).tag("#digits"))
        >>> len(bob.search("#digits")), [found.get() for found in bob.search(["#digits", "#train"])]
        (2, [tensor([1., 1.])])
        >>> len(bob.search("#digits", "#train")), len(bob.search(ids[0]))
        (1, 1)
        """
        return found_by(self.connection(), *query)

    def promise(self, sender: str | None = None) -> torch.Tensor:
        """A pointer to an object that will arrive later: operations on it wait until it is present.

        Provide the object with ``x.send(worker, id=promise.child.id_at_location)``.  It is taken
        from ``sender`` alone, a user, or a caller (a worker that sends, say) that acts for no user;
        by default from whoever promises it.  From anybody else it is refused with
        :class:`~syft.exceptions.PermissionDenied`.

        >>> x = bob.promise()
        >>> y = x + 1  # waits on bob
        >>> kept = torch.ones(2).send(bob, id=x.child.id_at_location)
        >>> y.get()
        tensor([2., 2.])
        """
        pointer: torch.Tensor = self.connection().promise(new_id(), sender)
        return pointer

    def give_up(self, promise: torch.Tensor, reason: str) -> None:
        """Give up a promise made by :meth:`promise`, and say why.

        Everything that waits for it, and what waits for that, fails with
        :class:`~syft.exceptions.PromiseGivenUp`.  A value that is sent to it later is refused.
        Raises :class:`~syft.exceptions.PermissionDenied` if somebody else promised it,
        :class:`~syft.exceptions.MalformedMessage` if it was kept, and
        :class:`~syft.exceptions.NothingToGet` for a tensor that is no pointer to this worker.

        >>> x = bob.promise()
        >>> y = x + 1
        >>> bob.give_up(x, "the sensor broke")
        >>> y.get()
        Traceback (most recent call last):
        ...
        syft.exceptions.PromiseGivenUp: ... was given up: the sensor broke. ...
        """
        connection = self.connection()
        for link in first_link(promise).remote_links():
            if link.connection is connection:
                connection.ask(GiveUp, link.id_at_location, reason)
                return
        raise NothingToGet("give_up")

    def within(self, seconds: float | None) -> contextlib.AbstractContextManager[None]:
        """A context in which waiting for the worker ends after so many seconds, if it is one of
        another process; a worker of this process works while it is waited for.

        >>> with bob.within(1.0):
        ...     torch.ones(1).send(bob).get()
        tensor([1.])
        """
        return contextlib.nullcontext()

    def cancel(self) -> int:
        """Withdraw what this program has asked the worker and the worker has not begun; returns how
        many requests that were.

        Each of them fails with :class:`~syft.exceptions.RequestWithdrawn`, which is raised by its
        handle.  What it was to make is missing: pointers to that, and to what follows from it, say
        so when they are used.  What the worker is in the middle of ends as it would.  Operations
        that wait for promised objects are withdrawn too.

        Raises :class:`~syft.exceptions.WorkerClosed`.

        >>> dan = sy.VirtualWorker(hook, id="dan", pipelined=True)
        >>> x = torch.ones(2).send(dan)
        >>> sy.synchronize()
        >>> y = x + 1
        >>> dan.cancel()
        1
        >>> y.child.handle.exception()
        RequestWithdrawn('dan')
        >>> x.get()
        tensor([1., 1.])
        """
        return self.connection().requests.cancel()

    def group(self) -> MessageGroup:
        """Collect the requests to this worker inside a ``with`` block, and send them in one
        message.

        A repeated group is sent as a number and the inputs that changed since the last time.
        Inside the block, a request for a value or a shape sends the collected requests first.
        After an exception nothing is sent.  Groups of several workers may be open at once; a group
        inside another one of the same worker joins it.

        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> with bob.group():
        ...     y = (x * 2 + 1).relu()
        >>> y.get()
        tensor([3., 5.])
        """
        return self.connection().message_group()

    def lazy(self) -> MessageGroup:
        """Have what this program asks of the worker inside a ``with`` block travel together.

        Everything is done as it would be without, and in the same order; only when it travels is
        another matter: when a value is asked for, when something else must see it, when it becomes
        much, and at the end of the block, also after an exception.  A training step is one message.
        A worker that was made with ``lazy=True`` is always so.

        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> with hook.record() as log, bob.lazy():
        ...     y = (x * 2 + 1).relu()
        >>> [type(entry.message).__name__ for entry in log.to("bob")], y.get()
        (['Run'], tensor([3., 5.]))
        """
        return self.connection().message_group(lazy=True)

    @property
    def torch(self) -> RemoteNamespace:
        """Torch's functions, run at this worker: ``bob.torch.zeros(2, 3)`` gives a pointer.

        >>> bob.torch.zeros(2).get()
        tensor([0., 0.])
        """
        return RemoteNamespace(self.connection(), "torch")


class WorkerAsUser(Worker):
    """A worker as one user has it (:meth:`Worker.as_user`), over a connection of her own.

    It has what every worker has, and nothing of what is the owner's.
    """

    def __init__(self, worker: Worker, user: str) -> None:
        self.id, self.network = worker.id, worker.network
        self._worker, self._user = worker, user

    def __repr__(self) -> str:
        return f"<{type(self._worker).__name__} id:{self.id} as:{self._user}>"

    def place_shown(self) -> str:
        """Where the worker is, and as whom this program asks it."""
        return " · ".join(filter(None, [self._worker.place_shown(), f"as {self._user}"]))

    @property
    def is_lazy(self) -> bool:  # type: ignore[override]  # as the worker is
        """Whether operations are held back."""
        return self._worker.is_lazy

    @property
    def closed(self) -> bool:  # type: ignore[override]  # it is the worker's
        """Whether the worker has left."""
        return self._worker.closed

    def connection(self) -> Connection:
        """Her connection to the worker; raises :class:`~syft.exceptions.WorkerClosed`."""
        connection: Connection = self.network.local.connection_to(self)
        return connection

    def as_user(self, user: str) -> WorkerAsUser:
        """The worker as another user has it."""
        return self._worker.as_user(user)

    def caller_for(self, owner: Owner) -> Owner:
        """A program of ``owner`` asks the worker as the user, and the workers that follow too."""
        here = owner.root if isinstance(owner, CallerAsUser) else owner
        callers: dict[str, Owner] = vars(here).setdefault("_callers_as", {})
        return callers.setdefault(self._user, CallerAsUser(here, self._user))

    def check_known(self, network: Network, asked: str) -> None:
        """As the worker itself does."""
        self._worker.check_known(network, asked)

    def transport_for(self, caller: Owner) -> Transport:
        """A transport of her own to the worker."""
        return self._worker.transport_for(caller)

    def close(self) -> None:
        """Close the worker, for every user of this program."""
        self._worker.close()


class CallerAsUser:
    """A worker of this program as it calls others for one user: it finds them as she has them.

    >>> me = bob.as_user("ann").connection().owner
    >>> me, me.get_worker(alice), me.get_worker("me") is me
    (<me as:ann>, <VirtualWorker id:alice as:ann>, True)
    """

    def __init__(self, owner: Owner, user: str) -> None:
        self.id, self.core = owner.id, owner.core
        self.user: str | None = user
        self.root = owner

    def __repr__(self) -> str:
        return f"<{self.id} as:{self.user}>"

    def get_worker(self, worker: Any) -> Any:
        """That worker as the user has it; raises as the caller's own ``get_worker`` does."""
        if worker is self or isinstance(worker, WorkerAsUser):
            return worker
        found = self.root.get_worker(worker)
        return self if found is self.root else found.as_user(self.user)

    def connection_to(self, worker: str | Location) -> Any:
        """Her connection to a worker."""
        there = self.get_worker(worker)
        return self.root.connection_to(self.root if there is self else there)

    def connections(self) -> list[Any]:
        """The open connections of the caller, for whomever they are."""
        return self.root.connections()


register_hint(Worker, "x.send(worker) puts x there, and x.move(worker) takes it there")


def found_by(connection: Connection, *query: Query) -> list[Any]:
    """Pointers to the results of a search at the other end of a connection."""
    words = words_in(query)
    found = pointers_found(connection, connection.ask(Search, words))
    return found or NothingFound(connection.location.id, words)


def pointers_found(connection: Connection, answer: Any) -> list[Any]:
    """Pointers to what the other end of a connection has answered to a search."""
    return [connection.found(id, summary) for id, summary in summaries_in(answer)]


def words_in(query: Query | tuple[Query, ...]) -> tuple[str, ...]:
    """The words of a query: a text is one, and a number is the id that it writes.

    Raises :class:`~syft.exceptions.UnusableSetting`.

    >>> words_in(("#a", ["#b", 5]))
    ('#a', '#b', '5')
    """
    if isinstance(query, str):
        return (query,)
    if isinstance(query, int):
        return (str(int(query)),)
    if not isinstance(query, Iterable):
        expected = "tags (strings) and ids (numbers)"
        raise UnusableSetting("a query", expected, f"a value of type {type(query).__name__}")
    return tuple(word for part in query for word in words_in(part))


class RemoteNamespace:
    """A dotted name under ``torch`` at another worker; a call runs that function there."""

    __slots__ = ("_connection", "_name")

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name

    def __repr__(self) -> str:
        return f"<{self._name} at {self._connection.location.id}>"

    def __getattr__(self, name: str) -> RemoteNamespace:
        full = f"{self._name}.{name}"
        if name.startswith("__") or not _is_operation_or_prefix(full):
            raise AttributeError(f"{full} is not an operation that can run on another worker")
        return RemoteNamespace(self._connection, full)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._connection.requests.check_not_recording(f"{self._name} at")
        if self._name in REFUSED_NAMES:
            raise OperationRefused(self._name, REFUSED_NAMES[self._name])
        if self._name not in BY_NAME:
            raise UnknownOperation(self._name)
        number = BY_NAME[self._name]
        operands = Operands(self._connection, number)
        packed, keywords = operands.pack(args, kwargs)
        expected = returns(number, args, kwargs)
        out = new_id() if expected is None else first_id(expected.count)
        value = self._connection.operations.command(
            number, packed, keywords, out, operands.packer.buffers, expected
        )
        return self._connection.operations.results(value, out, expected)


def _is_operation_or_prefix(name: str) -> bool:
    """Whether an operation has this name, or a name that starts with it and a dot."""
    if name in BY_NAME or name in REFUSED_NAMES:
        return True
    prefix = name + "."
    return any(known.startswith(prefix) for known in BY_NAME)
