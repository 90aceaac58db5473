"""Links to an object at another worker: all of them fetch it, move it and describe it.

Each method is one message over the link's connection.  The torch calls themselves are
:class:`~syft.tensors.pointer.PointerTensor`'s.

The *duty to collect* (``garbage_collect_data``) means that the remote object is dropped when this
link is.  Of all links to one object one has it at most; a link that travels to another worker
hands it over.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import torch

from syft.chain.link import Delivery, Link
from syft.chain.wrapper import Wrapper, wrap
from syft.exceptions import UnsupportedOperation
from syft.ids import new_id
from syft.foreign_text import printable
from syft.notebook_html import described_columns, kind_shown, line, names, table
from syft.ops.nested import Arguments
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.tensors.conversions import Conversion
from syft.workers.client.answers import summary_in
from syft.workers.client.connection import Connection
from syft.workers.client.handles import FetchHandle
from syft.workers.client.pending import Pending
from syft.workers.labels.cell import unsealed
from syft.workers.wire.messages import (
    Allow,
    Annotate,
    Convert,
    Describe,
    Duplicate,
    Fetch,
    Relay,
    Search,
    Share,
)


class Summary:
    """Facts about a remote tensor that need no question: tags, description, shape.

    >>> Summary(["#digits"], None, torch.Size([2])).show()
    '\\n\\tTags: #digits \\n\\tShape: torch.Size([2])'
    """

    __slots__ = ("tags", "description", "shape")

    def __init__(self, tags: list[str], description: str | None, shape: torch.Size | None) -> None:
        self.tags = tags
        self.description = description
        self.shape = shape

    def show(self) -> str:
        """The lines that a repr adds after the pointer."""
        text = f"\n\tTags: {' '.join(self.tags)} " if self.tags else ""
        if self.shape is not None:
            text += f"\n\tShape: {self.shape}"
        if self.description:
            text += f"\n\tDescription: {self.description.splitlines()[0][:40]}..."
            text += "".join(f"\n\t\t{name}: {kind}" for name, kind in _columns(self.description))
        return text


_MOST_COLUMNS: Final = 20


def _columns(description: str | None) -> list[tuple[str, str]]:
    """The columns that a description tells of, as they are shown: of many, the first ones."""
    told = described_columns(description)
    shown = [(printable(name)[:60], printable(kind)[:60]) for name, kind in told[:_MOST_COLUMNS]]
    more = len(told) - len(shown)
    return [*shown, ("…", f"{more:,} more")] if more else shown


class RemoteLink(Link):
    """A link to object ``id_at_location`` at the other end of ``connection``. Abstract.

    ``depth`` counts ``.child`` steps down the remote tensor's own chain.  With
    ``garbage_collect_data`` the remote object is dropped when the link is.
    """

    __slots__ = ("connection", "id_at_location", "depth", "garbage_collect_data", "__dict__")

    connection: Connection
    id_at_location: int

    # Rarely set, so kept out of the slots: a pointer is made for every result.
    _summary: Summary | None = None
    pending: Pending | None = None
    private_kind: tuple[torch.dtype, torch.Size, int] | None = None
    """Of a private tensor that was sent: dtype, shape, and how often facts were forgotten then."""
    asked: Connection | None = None
    """Over which connection, if it is another one, the request that is on its way was made."""
    moved: bool = False
    """Whether the object came from another worker, so that gradients may come from there."""

    def __init__(
        self,
        connection: Connection,
        id_at_location: int,
        garbage_collect_data: bool = True,
        depth: int = 0,
    ) -> None:
        self.connection = connection
        self.id_at_location = id_at_location
        self.garbage_collect_data = garbage_collect_data
        self.depth = depth

    def remote_links(self) -> list[Any]:
        """This link alone: the data is at one worker."""
        return [self]

    @property
    def stays(self) -> bool:
        """Whether the object stays at its worker when it is fetched: it is a part of a chain there,
        or a constant for which other pointers of this program stand too."""
        connection, id = self.connection, self.id_at_location
        return self.depth > 0 or (
            connection.garbage.has_owners(id) and id in connection.contents.values()
        )

    # ------------------------------------------------------------------------------ in a notebook

    def note_private(self, tensor: torch.Tensor) -> None:
        """Note for notebooks that a plain tensor is private at the worker to which it was sent."""
        self.private_kind = tensor.dtype, tensor.shape, self.connection.facts.losses

    def _repr_html_(self) -> str:
        """A notebook shows this: where the tensor is, and what is known of it without asking."""
        private = "" if self.private_kind is None else "private"
        summary = self._summary
        tags = "" if summary is None else names(summary.tags)
        description = summary.description or "" if summary is not None else ""
        arrow = f"{self.owner.id}:{self.id} -> {self.place()}:{self.id_at_location}"
        place = f"{self.place()}{'.child' * self.depth}"
        facts = (place, self._kind_seen(), private, tags, description.partition("\n")[0])
        shown = line(*facts, title=arrow, before="→ ")
        columns = _columns(description)
        return shown + table(["column", "kind"], columns, named=True) if columns else shown

    @property
    def description_seen(self) -> str | None:
        """The description as far as this end knows it, without asking."""
        return None if self._summary is None else self._summary.description

    def _kind_seen(self) -> str:
        """``float32 (4, 3)``, as far as this end knows it."""
        if self.depth:
            return ""
        facts = self.connection.facts
        dtype, shape = facts.kind_seen(self.id_at_location)
        if self.private_kind is not None and self.private_kind[2] == facts.losses:
            dtype, shape, _ = self.private_kind
        if shape is None and self._summary is not None:
            shape = self._summary.shape
        return kind_shown(dtype, shape)

    # ------------------------------------------------------------------------------ send, get, move

    def deliver(self, tensor: torch.Tensor, delivery: Delivery) -> torch.Tensor:
        """Send the pointer: the data stays where it is, and so does a graph behind it."""
        return delivery.put(tensor, self.owner)

    def get(self, user: str | None = None, sum_results: bool = False, keep: bool = False) -> Any:
        """Fetch the remote object and drop it there, unless ``keep`` or another pointer needs it.

        What is inside a remote chain, or shared by several pointers, is always kept.  A pointer
        that was fetched and kept does not collect: what it points to lives as long as the pointer
        that stayed.

        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> x.child.get(keep=True), bob.objects_count()
        (tensor([1., 2.]), 1)
        """
        keep = keep or self.stays
        value = self.connection.ask(Fetch, self.id_at_location, self.depth, keep, user=user)
        if not keep:
            self._object_left()
        return value

    def start_get(self, user: str | None = None, keep: bool = False) -> FetchHandle:
        """Start to fetch the remote object, without waiting for it; ``keep`` leaves it there too.

        >>> bob = sy.VirtualWorker(hook, id="bob", pipelined=True)
        >>> torch.ones(2).send(bob).child.start_get().result()
        tensor([1., 1.])
        """
        keep = keep or self.stays
        seq = self.connection.requests.next_seq()
        pending = self.connection.start(Fetch(seq, self.id_at_location, self.depth, keep, user))
        if not keep:
            self.connection.replies.when_settled(
                pending, partial(_fetched, weakref.ref(self), pending)
            )
        return FetchHandle(self.connection, pending, self)

    def gather(self, fetched: Iterator[Any]) -> Any:
        """The next object of ``fetched``, which is that of this link."""
        return next(fetched)

    def move(self, location: Any, requires_grad: bool = False, user: str | None = None) -> Any:
        """Move the remote object to another worker, directly; it keeps its id.

        A move to the owner of the pointer brings the tensor itself.  A graph behind it goes on from
        where it arrives, unless torch records nothing here.  A part of a remote chain cannot be
        moved out of it: raises :class:`~syft.exceptions.UnsupportedOperation`.
        """
        destination = self.owner.get_worker(location)
        if destination is self.location:
            here = wrap(self)
            return here.requires_grad_() if requires_grad else here
        arrives = requires_grad or (None if torch.is_grad_enabled() else False)
        if destination is self.owner:
            requests = self.connection.requests  # asked before it is asked for its graph
            requests.check_not_recording("get() from")
            if not (requires_grad or self._has_graph()):
                return self.get(user)
        self._check_whole("move", "copy the part and move that")
        id = self.id_at_location
        if destination is self.owner:
            self.connection.move_home(id, arrives, user)
            self._object_left()
            return unsealed(destination.core.store.take(id, "it was moved home"))
        connection = self.owner.connection_to(destination)
        pending = self.connection.move(id, connection, arrives, user)
        collects = self.garbage_collect_data
        self._object_leaves(pending)
        moved: Any = self._link_to(connection, id, collects, pending)
        moved.child.asked, moved.child.moved = self.connection, True
        return moved

    def _has_graph(self) -> bool:
        """Whether gradients may go on from the remote tensor, and torch records here."""
        return torch.is_grad_enabled() and wrap(self).requires_grad

    def copy(self, memo: dict[int, Any] | None = None) -> torch.Tensor:
        """A copy of the remote tensor, at the same worker, and a pointer to it.

        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> duplicate = x.child.copy()
        >>> bob.objects_count()
        2
        """
        if self.depth:  # the request copies whole objects
            part = wrap(self)
            if not part.is_leaf:
                return part.clone()
            return part.detach().clone().requires_grad_(part.requires_grad)
        out = new_id()
        pending = self.connection.order(Duplicate, self.id_at_location, out, made=(out,))
        return self._link_to(self.connection, out, True, pending)

    def allow(
        self,
        users: tuple[str, ...],
        destinations: tuple[str, ...] = (),
        providers: tuple[str, ...] = (),
    ) -> torch.Tensor:
        """A copy at the same worker that ``users`` may read too, that may go to the workers
        ``destinations``, and for which ``providers`` may deal; returns a pointer to it.

        >>> x = torch.ones(2).private_tensor(["ann"]).send(bob, user="ann")
        >>> x.child.allow(("bea",)).get(user="bea")
        tensor([1., 1.])
        """
        self._check_whole("allow", "copy the part and allow that")
        out = new_id()
        request = (self.id_at_location, users, out, destinations)
        pending = self.connection.order(Allow, *request, providers=providers, made=(out,))
        return self._link_to(self.connection, out, True, pending)

    def _link_to(
        self, connection: Connection, id: int, collects: bool, pending: Pending | None = None
    ) -> Wrapper:
        """A link of this kind to another object that has the same value and tags."""
        link = type(self)(connection, id, collects)
        link.pending = pending
        link._summary = self._summary
        return wrap(link)

    def remote_get(self, user: str | None = None) -> torch.Tensor:
        """Have the other worker fetch what the remote object points to."""
        return self._relay(None, user)

    def remote_send(self, location: Any, user: str | None = None) -> torch.Tensor:
        """Have the other worker send the remote object on, and keep a pointer to it."""
        name = location if isinstance(location, str) else location.id
        self.owner.get_worker(name)  # raises for a worker that is not known here
        return self._relay(name, user)

    def _check_whole(self, action: str, instead: str) -> None:
        """Refuse what is done to whole objects on a part of one: the rest would not follow."""
        if self.depth:
            whole = f"call it on the whole tensor (the pointer itself), or {instead}"
            raise UnsupportedOperation(action, "a part of a remote chain", whole)

    def _relay(self, to: str | None, user: str | None) -> Wrapper:
        self._check_whole("remote_get" if to is None else "remote_send", "get the part")
        self._follow(self.connection.order(Relay, self.id_at_location, to, user=user))
        self.connection.facts.drop((self.id_at_location,))  # it is another tensor now
        return wrap(self)

    def _follow(self, pending: Pending | None) -> None:
        """Have the handle tell of a request that is on its way, if there is one."""
        if pending is not None:
            self.pending, self.asked = pending, None

    def convert(self, tensor: torch.Tensor, conversion: Conversion, args: Arguments) -> Wrapper:
        """Convert the data at the other worker, and return a pointer to the result there."""
        self._check_whole(conversion.name, "get the part")
        out = new_id()
        packed = pack(args, Packer())
        code = int(conversion.code)
        pending = self.connection.order(
            Convert, self.id_at_location, code, packed, out, made=(out,)
        )
        link = type(self)(self.connection, out)
        link.pending = pending
        return wrap(link)

    # ------------------------------------------------------------------------------ duty to collect

    def discard(self) -> None:
        """Drop the remote object, whoever points to it.

        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> x.child.discard()
        >>> bob.objects_count()
        0
        """
        self.garbage_collect_data = False
        self.connection.garbage.append(self.id_at_location)

    def _object_left(self) -> None:
        """Note that the object is not at the other worker any more."""
        self.garbage_collect_data = False
        self.connection.garbage.stop_owning(self.id_at_location)

    def _object_leaves(self, pending: Pending | None) -> None:
        """Note that the object has left the other worker, or does when the request is done."""
        if pending is None:
            self._object_left()
            return
        collects, self.garbage_collect_data = self.garbage_collect_data, False
        about = self.connection, self.id_at_location, collects, pending
        self.connection.replies.when_settled(pending, partial(_moved, weakref.ref(self), *about))

    def share_with(self, to: str) -> None:
        """Let worker ``to`` change the object, before a copy of this link goes there.

        Where its requests may overtake this one, it waits until that is done.
        """
        if to != self.location.id:
            self.connection.requests.tell(Share(self.id_at_location, (to,)))
            if self.connection.transport.overtakes:
                self.connection.ask(Search, (str(self.id_at_location),))

    def leave(self) -> None:
        """Hand the duty to collect over to the copy of this link that has left."""
        self.garbage_collect_data = False

    def take_duty_of(self, other: RemoteLink) -> None:
        """Take the duty to collect over from another link to the same object, if that has it."""
        self.garbage_collect_data = other.garbage_collect_data
        other.garbage_collect_data = False

    # ------------------------------------------------------------------------ tags and descriptions

    @property
    def tags(self) -> set[str]:
        """The tags of the remote tensor, asked for at each call."""
        return set(self._describe().tags)

    @property
    def description(self) -> str | None:
        """The description of the remote tensor, asked for at each call."""
        return self._describe().description

    def _describe(self) -> Summary:
        summary = Summary(*summary_in(self.connection.ask(Describe, self.id_at_location))[:3])
        self._summary = summary if summary.tags or summary.description else None
        return summary

    def annotate(self, tags: tuple[str, ...], description: str | None) -> None:
        """Add tags to the remote tensor, and set its description unless it is None.

        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> x.child.annotate(("#digits",), "two of them")
        >>> x.child.tags, x.child.description
        ({'#digits'}, 'two of them')
        """
        pending = self.connection.order(Annotate, self.id_at_location, tags, description)
        self._follow(pending)
        if pending is None:
            self._describe()
            return
        known = self._summary or Summary([], None, None)
        merged = sorted({*known.tags, *tags})
        self._summary = Summary(merged, description or known.description, known.shape)


def _fetched(link: weakref.ref[RemoteLink], pending: Pending) -> None:
    """A fetched object need not be collected; after a failure it is still there."""
    pointer = link()
    if pointer is not None and not pending.failed:
        pointer.garbage_collect_data = False


def _moved(
    link: weakref.ref[RemoteLink], connection: Connection, id: int, collects: bool, pending: Pending
) -> None:
    """An object that a move has left here is collected as before; if its pointer is gone, at
    once."""
    pointer = link()
    if not pending.failed:
        connection.garbage.stop_owning(id)
    elif pointer is not None:
        pointer.garbage_collect_data = collects
    elif collects:
        connection.garbage.append(id)
