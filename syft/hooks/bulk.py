"""``sy.send_all`` and ``sy.get_all``: many tensors in one message each way.

A message costs about twenty times what a small tensor costs, so ten thousand tensors are sent and
fetched together, and so are the parameters of a module.  Either all of them arrive or none does.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from itertools import chain as joined
from typing import Any

import torch
from torch import nn

from syft.chain.wrapper import Wrapper, first_link
from syft.exceptions import NothingToGet
from syft.hooks.sending import guard_to_send, leaf_to_send, summary_of
from syft.tensors.pointer import make_pointer
from syft.tensors.remote_link import RemoteLink
from syft.workers.client.answers import values_in
from syft.workers.client.connection import Connection
from syft.workers.client.transport import Location, Owner
from syft.workers.labels.guards import Guard
from syft.workers.wire.messages import FetchAll, PutAll

# ------------------------------------------------------------------------------------------ sending


class Parcel:
    """The tensors that go over one connection in one message, with the pointers to them.

    The pointers get their ids when it is sent.
    """

    __slots__ = ("connection", "tensors", "pointers", "guards")

    def __init__(self, connection: Connection) -> None:
        connection.requests.check_not_recording(PutAll.verb)  # before any tensor is looked at
        self.connection = connection
        self.tensors: list[torch.Tensor] = []
        self.pointers: list[Wrapper] = []
        self.guards: dict[int, Guard] = {}

    def add(self, tensor: torch.Tensor, guard: Guard | None) -> Wrapper:
        """Take a tensor along; returns the pointer to it."""
        if guard is not None:
            self.guards[len(self.tensors)] = guard
        pointer = make_pointer(self.connection, 0, False, summary=summary_of(tensor))
        self.tensors.append(tensor)
        self.pointers.append(pointer)
        return pointer

    def send(self, garbage_collect_data: bool) -> None:
        """Send the message, unless there is nothing in it, and complete the pointers."""
        if not self.tensors:
            return
        ids, pending = self.connection.put_all(self.tensors, self.guards)
        for place, (pointer, id) in enumerate(zip(self.pointers, ids, strict=True)):
            link: Any = pointer.child
            tensor = self.tensors[place]
            link.id_at_location = id
            link.garbage_collect_data = garbage_collect_data
            if garbage_collect_data and type(tensor) is not Wrapper and tensor.requires_grad:
                self.connection.facts.leaf_sent(link, tensor)
            if place in self.guards and type(tensor) is not Wrapper:
                link.note_private(tensor)
            if pending is not None:
                link.pending = pending

    def take_back(self) -> None:
        """Undo :meth:`send`: pointers among the tensors take back their duty to collect."""
        for tensor, pointer in zip(self.tensors, self.pointers, strict=True):
            unsend(tensor, pointer)


class BulkDelivery:
    """Copies for one location that go in one message; the Delivery that each link gets.

    A pointer of another worker's goes over the connection of that worker.
    """

    __slots__ = ("_location", "_owner", "_user", "_own", "_parcels")

    def __init__(self, location: Location, owner: Owner, user: str | None) -> None:
        self._location = location
        self._owner = owner
        self._user = user
        self._own = Parcel(owner.connection_to(location))
        self._parcels = {self._own.connection: self._own}

    def put(self, tensor: torch.Tensor, sender: Owner | None = None) -> Wrapper:
        """Take a tensor along; the pointer is complete when :meth:`send` has returned."""
        parcel = self._own
        if sender is not None and sender is not self._owner:
            connection = sender.connection_to(self._location)
            parcel = self._parcels.setdefault(connection, Parcel(connection))
        return parcel.add(tensor, guard_to_send(tensor, self._location, self._owner, self._user))

    def put_leaf(self, tensor: torch.Tensor) -> Wrapper:
        """The same, but of a tensor without a graph: see
        :func:`~syft.hooks.sending.leaf_to_send`."""
        tensor = leaf_to_send(tensor)
        return self._own.add(tensor, guard_to_send(tensor, self._location, self._owner, self._user))

    def send(self, garbage_collect_data: bool) -> None:
        """Send everything, or leave everything as it was."""
        sent: list[Parcel] = []
        try:
            for parcel in self._parcels.values():
                parcel.send(garbage_collect_data)
                sent.append(parcel)
        except BaseException:
            for parcel in sent:
                parcel.take_back()
            raise


def send_all(
    tensors: Iterable[torch.Tensor],
    location: Location | str,
    owner: Owner,
    user: str | None = None,
    garbage_collect_data: bool = True,
) -> list[torch.Tensor]:
    """Put a copy of each tensor at a worker, in one message; returns the pointers.

    See :func:`syft.hooks.torch_hook.send_all`.

    >>> send_all([torch.ones(2), torch.zeros(2)], bob, hook.local_worker)[1].get()
    tensor([0., 0.])
    """
    place = owner.get_worker(location)
    delivery = BulkDelivery(place, place.caller_for(owner), user)
    pointers = [first_link(tensor).deliver(tensor, delivery) for tensor in tensors]
    delivery.send(garbage_collect_data)
    return pointers


def unsend(tensor: torch.Tensor, sent: torch.Tensor) -> None:
    """Undo a send: a pointer that went to another worker takes back its duty to collect."""
    links = first_link(tensor).remote_links()
    if links:
        take_duty(links, first_link(sent).get())


def take_duty(links: list[Any], pointer: torch.Tensor) -> None:
    """Have links take back the duty to collect from those of ``pointer``, which is another pointer
    to the same."""
    for link, other in zip(links, first_link(pointer).remote_links(), strict=False):
        link.take_duty_of(other)


# ----------------------------------------------------------------------------------------- fetching


class Order:
    """The objects that are asked of one worker, each once, and what came back."""

    __slots__ = ("connection", "places", "kept")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.places: dict[tuple[int, int], Any] = {}
        """The fetched object by its id and depth."""
        self.kept = False
        """Whether some of them have to stay at the worker."""

    def add(self, link: RemoteLink) -> None:
        """Ask for the object of a link."""
        self.places[link.id_at_location, link.depth] = None
        self.kept = self.kept or link.stays

    def ask(self, user: str | None, keep: bool) -> Callable[[], None]:
        """Send the request; returns the function that waits for the answer and takes it in."""
        ids = tuple(place if place[1] else place[0] for place in self.places)
        answer = self.connection.ask_later(FetchAll, ids, keep=keep, user=user)

        def take_in() -> None:
            found = values_in(answer(), len(self.places))
            self.places.update(zip(self.places, found, strict=True))

        return take_in

    def fetched(self, link: RemoteLink) -> Any:
        """The object of a link, once it is here."""
        return self.places[link.id_at_location, link.depth]


def get_all(
    pointers: Iterable[torch.Tensor],
    user: str | None = None,
    keep: bool = False,
    call: str = "get_all",
) -> list[Any]:
    """Fetch what pointers point to, in one message for each worker.

    See :func:`syft.hooks.torch_hook.get_all`; errors name the method that the user called.

    >>> get_all([torch.ones(2).send(bob), torch.zeros(2).send(bob)])
    [tensor([1., 1.]), tensor([0., 0.])]
    """
    wanted = list(pointers)
    chains = [first_link(pointer) for pointer in wanted]
    links = [chain.remote_links() for chain in chains]
    if not all(links):
        raise NothingToGet(call)
    orders = _orders(joined.from_iterable(links))
    # With several workers, the objects are dropped when all of them have answered.
    belongs = [isinstance(pointer, nn.Parameter) for pointer in wanted]  # to a module that needs it
    stay = keep or len(orders) > 1 or any(belongs) or any(order.kept for order in orders.values())
    _ask_all(orders.values(), user, stay)
    values = [
        chain.gather(orders[link.connection].fetched(link) for link in several)
        for chain, several in zip(chains, links, strict=True)
    ]
    if not keep:
        free = (several for several, left in zip(links, belongs, strict=True) if not left)
        _release(joined.from_iterable(free), orders, stay, user)
    return values


def _orders(links: Iterable[RemoteLink]) -> dict[Connection, Order]:
    """What is asked of each worker."""
    orders: dict[Connection, Order] = {}
    for link in links:
        if link.connection not in orders:
            orders[link.connection] = Order(link.connection)
        orders[link.connection].add(link)
    return orders


def _ask_all(orders: Iterable[Order], user: str | None, keep: bool) -> None:
    """Send all requests before one is waited for, and take in what comes."""
    answers: list[Callable[[], None]] = []
    try:
        for order in orders:
            answers.append(order.ask(user, keep))
    finally:
        _await_all(answers)


def _await_all(answers: Iterable[Callable[[], None]]) -> None:
    """Take in every answer, then raise the first error among them."""
    first: Exception | None = None
    for answer in answers:
        try:
            answer()
        except Exception as error:  # the others are taken in too: nobody asks for them later
            first = first or error
    if first is not None:
        try:
            raise first
        finally:
            del first  # its traceback refers to this frame


def _release(
    links: Iterable[RemoteLink], orders: Mapping[Connection, Order], drop: bool, user: str | None
) -> None:
    """Note that the objects of these links are here now; ``drop`` those that are still there too.

    What is inside a remote chain stays, and so does what several pointers share.  A pointer that is
    still there has its duty to collect: it is fetched again, which takes it and the duty away.
    """
    dropped: list[RemoteLink] = []
    fetched_again: list[RemoteLink] = []
    for link in links:
        if not link.stays:
            link.garbage_collect_data = False
            link.connection.facts.drop((link.id_at_location,))
            points_on = drop and _points_on(orders[link.connection].fetched(link))
            (fetched_again if points_on else dropped).append(link)
    again = _orders(fetched_again)
    _ask_all(again.values(), user, keep=False)
    for connection, order in again.items():
        for place, pointer in order.places.items():
            take_duty(first_link(orders[connection].places[place]).remote_links(), pointer)
    if drop:
        discard_all(dropped)


def _points_on(value: Any) -> bool:
    """Whether an object that was fetched is a pointer, or contains one."""
    return type(value) is Wrapper and bool(first_link(value).remote_links())


def discard_all(links: Iterable[RemoteLink]) -> None:
    """Drop remote objects, whoever points to them: their ids go with the next request, or in one
    message to a queued worker that has nothing to do.

    What came from another worker is gone before anything else is asked of anybody: a gradient that
    follows it from there is refused then, and would be lost otherwise.

    >>> x = torch.ones(2).send(bob)
    >>> discard_all([x.child])
    >>> bob
    <VirtualWorker id:bob #objects:0>
    """
    ids: dict[Connection, dict[int, None]] = {}
    at_once: set[Connection] = set()
    for link in links:
        link.garbage_collect_data = False
        ids.setdefault(link.connection, {})[link.id_at_location] = None
        if link.moved:
            at_once.add(link.connection)
    for connection, several in ids.items():
        connection.garbage.extend(several)
        if connection in at_once:
            connection.flush_before_others()
        elif connection.transport.is_idle():
            connection.flush()


def in_mapping(
    tensors: Mapping[Any, Any], change: Callable[[list[torch.Tensor]], list[Any]]
) -> Mapping[Any, Any]:
    """A copy of a mapping with its tensors changed, all at once; what is no tensor stays.

    >>> in_mapping({"a": torch.ones(1), "b": 3}, lambda tensors: [x + 1 for x in tensors])
    {'a': tensor([2.]), 'b': 3}
    """
    keys = [key for key, value in tensors.items() if isinstance(value, torch.Tensor)]
    changed = change([tensors[key] for key in keys])
    copied: Any = copy.copy(tensors)  # a state_dict has attributes besides its items
    copied.update(zip(keys, changed, strict=True))
    return copied  # type: ignore[no-any-return]
