"""What one request does to the graphs at a worker: with which it begins, and which it leaves.

Most requests leave none, and are asked so by a look at their results.  Of the others it is found
out then what their operands were.  What writes to its operands may change how their graphs begin,
so that is noted before it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syft.exceptions import LimitExceeded
from syft.workers.core.charges import is_large
from syft.workers.core.graphs import Coming
from syft.workers.core.store import FAILED, ObjectStore
from syft.workers.labels.walk import tensors_of


class RequestGraphs:
    """The graphs of one request.

    >>> store = ObjectStore("bob"); store.put(5, torch.ones(2, requires_grad=True))
    >>> store.objects[6] = store.objects[5].exp()
    >>> RequestGraphs(store).made({6: store.objects[6]}, lambda: {5: store.objects[5]})
    >>> 6 in store.charges.graphs.records
    True
    """

    __slots__ = ("operands", "little", "bytes", "_store", "_coming")

    def __init__(self, store: ObjectStore) -> None:
        self.operands: tuple[Any, dict[str, Any], Any] | None = None
        """The arguments of a command, and what is called on them if that is in ordinary modes; they
        tell more than what is named."""
        self.little = False
        """Whether it makes nothing large of small tensors, and writes nothing."""
        self.bytes = 0
        """What a program has made on the way, which the graphs of its results may keep."""
        self._store = store
        self._coming: Coming | None = None

    def begin(self, named: dict[int, Any]) -> None:
        """Note the graphs with which the request begins, if there are any, that names these
        objects."""
        charges = self._store.charges
        args, kwargs, function = self.operands or (None, {}, None)
        if args is None:
            args = [tensors_of(value) for value in named.values()]
        self._coming = charges.graphs.coming(named, args, kwargs, function)

    def made(self, made: dict[int, Any], named: Callable[[], dict[int, Any]]) -> None:
        """Charge the caller for the graphs of objects that the request has made and stored;
        ``named`` returns those that it names.

        Raises :class:`~syft.exceptions.LimitExceeded`, and removes them, if that is too much.
        """
        graphs = self._store.charges.graphs
        if self._coming is None:
            if self.little and self._are_small(made) and graphs.counts(named(), len(made)):
                graphs.left -= len(made)
                return
            self.begin(named())
        try:
            if self._coming is not None:
                self._coming.bytes = self.bytes
                graphs.made(self._coming, made)
        except LimitExceeded:
            for id in made:
                self._store.remove(id, FAILED)
            raise

    def _are_small(self, made: dict[int, Any]) -> bool:
        """Whether objects are as small as those that are not counted, as far as that is public."""
        charges = self._store.charges
        return not (charges.flags or any(is_large(one, charges.guarded) for one in made.values()))

    def wrote(self) -> None:
        """Charge the caller for the graphs that the request has written to objects."""
        self._store.charges.graphs.wrote(self._coming, True)
