"""FederatedDataset: the parts of one data set, each at a worker of its own.

It is a table of :class:`~syft.federated.base_dataset.BaseDataset` by worker.  The parts may have
been sent there, or found there: then their data never passes through this process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from syft.exceptions import UnusableSetting
from syft.federated.base_dataset import BaseDataset, Transform
from syft.federated.private_grid import PrivateGridNetwork


class FederatedDataset:
    """Data sets that lie at different workers, at most one at each.

    It is indexed by a worker or its name, and iterating gives the parts in their order.

    Raises :class:`~syft.exceptions.UnusableSetting` for a data set that is at no worker, and for
    two at one.

    >>> parts = [sy.BaseDataset(torch.ones(2), torch.ones(2)).send(w) for w in (bob, alice)]
    >>> federated = sy.FederatedDataset(parts)
    >>> federated.workers, len(federated), federated["bob"] is federated[bob]
    (['bob', 'alice'], 4, True)
    >>> federated
    FederatedDataset
        Distributed across: bob (2), alice (2)
        Number of datapoints: 4
    """

    def __init__(self, datasets: Iterable[BaseDataset]) -> None:
        self.datasets: dict[str, BaseDataset] = {}
        """The parts by the name of their worker."""
        for dataset in datasets:
            place = dataset.location
            if place is None:
                raise UnusableSetting("datasets", "data sets at workers", "one that is here")
            if place.id in self.datasets:
                raise UnusableSetting("datasets", "one for each worker", f"two at {place.id}")
            self.datasets[place.id] = dataset

    @classmethod
    def from_search(
        cls,
        workers: PrivateGridNetwork | Iterable[Any],
        data: str | Iterable[str],
        targets: str | Iterable[str],
        transform: Transform | None = None,
    ) -> FederatedDataset:
        """The data set that workers hold already, found by tags; nothing of it comes here.

        ``data`` and ``targets`` are tags, one or several that must all be there.  Workers that hold
        neither are left out.  So are those that cannot be reached, with a warning, as
        :meth:`PrivateGridNetwork.search <syft.federated.private_grid.PrivateGridNetwork.search>`
        says.

        Raises :class:`~syft.exceptions.UnusableSetting` if a worker holds anything but one tensor
        of each.

        >>> ids = bob.hold(torch.eye(3).tag("#X"), torch.arange(3).tag("#Y"))
        >>> sy.FederatedDataset.from_search([alice, bob], "#X", "#Y")
        FederatedDataset
            Distributed across: bob (3)
            Number of datapoints: 3
        """
        grid = workers if isinstance(workers, PrivateGridNetwork) else PrivateGridNetwork(*workers)
        found: list[dict[str, list[Any]]] = []
        lost: set[str] = set()
        for query in (data, targets):
            found.append(grid.search(*_words(query)))
            lost.update(grid.unreachable)
        parts = []
        for name in [worker.id for worker in grid.workers if worker.id not in lost]:
            pair = [table.get(name, []) for table in found]
            counts = [len(pointers) for pointers in pair]
            if counts == [0, 0]:
                continue
            if counts != [1, 1]:
                wanted = "tags that one tensor of data and one of targets have at each worker"
                raise UnusableSetting("tags", wanted, f"{counts[0]} and {counts[1]} at {name}")
            parts.append(BaseDataset(pair[0][0], pair[1][0], transform))
        return cls(parts)

    @property
    def workers(self) -> list[str]:
        """The names of the workers that hold parts.

        >>> sy.FederatedDataset([]).workers
        []
        """
        return list(self.datasets)

    def __getitem__(self, worker: Any) -> BaseDataset:
        """The part at a worker; raises KeyError if there is none."""
        return self.datasets[getattr(worker, "id", worker)]

    def __len__(self) -> int:
        return sum(map(len, self))

    def __iter__(self) -> Iterator[BaseDataset]:
        return iter(self.datasets.values())

    def __repr__(self) -> str:
        shares = ", ".join(f"{name} ({len(part)})" for name, part in self.datasets.items())
        return (
            f"FederatedDataset\n    Distributed across: {shares or 'nobody'}\n"
            f"    Number of datapoints: {sum(map(len, self))}"
        )


def _words(query: str | Iterable[str]) -> tuple[str, ...]:
    return (query,) if isinstance(query, str) else tuple(query)
