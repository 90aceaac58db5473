"""The common part of a pointer to a tensor and a pointer to a plan: one object at another worker.

The *duty to collect* (``garbage_collect_data``) means that the remote object is dropped when the
pointer is.
"""

from __future__ import annotations

from syft.exceptions import UnsupportedOperation
from syft.ids import new_id
from syft.workers.client.connection import Connection
from syft.workers.client.transport import Location, Owner


class RemoteReference:
    """Stands for object ``id_at_location`` at the other end of ``connection``.

    >>> x = torch.ones(2).send(bob)
    >>> x.child.location, x.child.owner.id, x.child.id == x.child.id
    (<VirtualWorker id:bob #objects:1>, 'me', True)
    """

    __slots__ = ()

    connection: Connection
    id_at_location: int
    garbage_collect_data: bool

    # Rarely set, so no slot: a pointer is made for every result.
    _id: int | None = None

    def __del__(self) -> None:
        if getattr(self, "garbage_collect_data", False):  # else its making has failed
            self.connection.garbage.append(self.id_at_location)

    @property
    def gc(self) -> bool:
        """Whether the remote object is dropped with this pointer; it may be set to False.

        ``garbage_collection`` is the same.  Raises
        :class:`~syft.exceptions.UnsupportedOperation` for True where it is False: the object may be
        somebody else's, or belong to another pointer.

        >>> x = torch.ones(2).send(bob)
        >>> x.child.gc = False
        >>> x.child.garbage_collection
        False
        """
        return self.garbage_collect_data

    @gc.setter
    def gc(self, value: bool) -> None:
        if value and not self.garbage_collect_data:
            instead = "drop the object where it is, or get it"
            raise UnsupportedOperation("gc = True", type(self).__name__, instead)
        self.garbage_collect_data = bool(value)  # type: ignore[misc]  # every subclass has it

    garbage_collection = gc

    @property
    def owner(self) -> Owner:
        """The worker that holds the pointer."""
        return self.connection.owner

    @property
    def location(self) -> Location:
        """The worker that holds the object."""
        return self.connection.location

    @property
    def id(self) -> int:
        """The pointer's own id at its owner."""
        if self._id is None:
            self._id = new_id()  # type: ignore[misc]  # every subclass has a __dict__
        return self._id
