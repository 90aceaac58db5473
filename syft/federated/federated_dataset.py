"""FederatedDataset: the parts of one data set, each at a worker of its own.

It is a table of :class:`~syft.federated.base_dataset.BaseDataset` by worker.  The parts may have
been sent there, or found there: then their data never passes through this process.

FederatedDataLoader: batches of a federated data set, as pointers.

The rows of each batch are chosen here and picked where they lie: only small index tensors travel,
those of many batches in one message, and a batch is two operations on pointers.  As with torch's
own loader a batch is a copy, so writing to it does not change the data.

``dataset.federate(workers)``: a data set of this process is divided among workers.

For simulations and demonstrations, and for those who own the data and rent the workers.  Data
that workers hold already is found, not sent: see
:meth:`~syft.federated.federated_dataset.FederatedDataset.from_search`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, Final

import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset, default_collate

from syft.exceptions import UnusableSetting
from syft.federated.base_dataset import BaseDataset, Tensor, Transform, columns_seen
from syft.federated.columns import Columns
from syft.federated.private_grid import PrivateGridNetwork
from syft.hooks.ledger import EXTENSIONS
from syft.hooks.torch_hook import TorchHook
from syft.status_line import counted
from syft.workers.client.transport import Location


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
        of each, and if two of them publish columns that differ: in name, kind, order or categories.

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
        _check_columns(parts)
        return cls(parts)

    @property
    def workers(self) -> list[str]:
        """The names of the workers that hold parts.

        >>> sy.FederatedDataset([]).workers
        []
        """
        return list(self.datasets)

    def __getitem__(self, worker: Any) -> BaseDataset:
        """The part at a worker; raises :class:`~syft.exceptions.UnusableSetting` for others."""
        name = getattr(worker, "id", worker)
        if name not in self.datasets:
            expected = f"a worker that holds a part ({', '.join(self.datasets) or 'none does'})"
            rows = ": FederatedDataLoader goes through the rows" if isinstance(name, int) else ""
            raise UnusableSetting("worker", expected, f"{name!r}{rows}")
        return self.datasets[name]

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


def _check_columns(parts: Iterable[BaseDataset]) -> None:
    """Refuse parts whose published columns differ: one model could not be trained on them."""
    first: tuple[Any, Columns] | None = None
    for part in parts:
        columns = columns_seen(part.data)
        if columns is None:
            continue
        if first is None:
            first = part.location, columns
        difference = first[1].differs_from(columns)
        if difference is not None:
            places = f"{first[0].id} and {part.location.id}"
            raise UnusableSetting("columns", "the same at all workers", f"{difference} at {places}")


def _words(query: str | Iterable[str]) -> tuple[str, ...]:
    return (query,) if isinstance(query, str) else tuple(query)


_AHEAD: Final = 64
"""For so many batches the rows are sent in one message."""
_MOST_SHUFFLED: Final = 1 << 27
"""The most rows of one worker whose order is drawn here: a gigabyte of numbers.  How many there are
is what the worker says."""

Batch = Any
"""``(data, target)``, or what ``collate_fn`` makes of its samples."""


def _lazily(steps: Iterator[dict[Any, Any]]) -> Iterator[dict[Any, Any]]:
    """The same steps; what is asked of their workers until the next one is held back."""
    for step in steps:
        with contextlib.ExitStack() as open_groups:
            for worker in step:
                open_groups.enter_context(worker.lazy())
            yield step


class FederatedDataLoader:
    """Iterates over a :class:`~syft.federated.federated_dataset.FederatedDataset` in batches.

    A step gives ``(data, target)``, two pointers to one worker: ``data.location``.  The workers
    follow one another.  With ``num_iterators`` over 1 a step is a dictionary from workers to
    batches, of that many workers at once; with ``iter_per_worker``, of all.  Workers that are
    through are missing from it.

    ``shuffle`` draws another order of each worker's rows for each epoch, from ``generator`` or
    torch's; of no more than 134,217,728 rows at one worker.  ``drop_last`` leaves out each worker's
    last batch if it is not full.  ``collate_fn`` makes a batch of a list of samples, which are
    pairs of pointers.  With ``lazy``, what is asked of a batch's workers until the next batch
    travels together (:meth:`~syft.workers.shells.worker.Worker.lazy`).  ``num_workers`` and
    ``pin_memory`` are taken for programs written for earlier versions, and change nothing.

    Raises :class:`~syft.exceptions.UnusableSetting` for a ``batch_size`` under 1, for more
    iterators than there are workers, and when it comes to a worker with too many rows to shuffle.

    >>> data = sy.BaseDataset(torch.eye(5), torch.arange(5))
    >>> loader = sy.FederatedDataLoader(data.federate((bob, alice)), batch_size=2)
    >>> [(target.location.id, target.get().tolist()) for data, target in loader]
    [('bob', [0, 1]), ('bob', [2]), ('alice', [3, 4])]
    >>> len(loader)
    3
    """

    def __init__(
        self,
        federated_dataset: FederatedDataset,
        batch_size: int = 8,
        shuffle: bool = False,
        num_iterators: int = 1,
        drop_last: bool = False,
        collate_fn: Callable[[list[tuple[Tensor, Tensor]]], Any] | None = None,
        iter_per_worker: bool = False,
        *,
        generator: torch.Generator | None = None,
        lazy: bool = False,
        num_workers: int = 0,
        pin_memory: bool = False,
    ) -> None:
        if not isinstance(federated_dataset, FederatedDataset):
            got = f"a {type(federated_dataset).__name__}: divide it with .federate(workers)"
            raise UnusableSetting("federated_dataset", "a FederatedDataset", got)
        if not isinstance(batch_size, int) or batch_size < 1:
            raise UnusableSetting("batch_size", "1 or more", repr(batch_size))
        most = max(1, len(federated_dataset.workers))
        if not 1 <= num_iterators <= most:
            raise UnusableSetting("num_iterators", f"from 1 to {most}", str(num_iterators))
        self.federated_dataset = federated_dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.collate_fn = collate_fn
        self.generator = generator
        self.lazy = lazy
        self.num_iterators = most if iter_per_worker else num_iterators
        self._by_worker = iter_per_worker or num_iterators > 1

    def __len__(self) -> int:
        ends = [0] * self.num_iterators
        for part in self.federated_dataset:  # the next one goes to the iterator that ends first
            first = ends.index(min(ends))
            ends[first] += -(-self._rows_used(part) // self.batch_size)
        return max(ends)

    def __iter__(self) -> Iterator[Any]:
        steps = _lazily(self._steps()) if self.lazy else self._steps()
        if self._by_worker:
            return steps
        return (batch for step in steps for batch in step.values())

    def _steps(self) -> Iterator[dict[Any, Batch]]:
        """Batches of several workers at a time, by worker."""
        dice = self._dice()
        waiting = [(part.location, self._batches(part, dice)) for part in self.federated_dataset]
        running: list[tuple[Any, Iterator[Batch]]] = []
        while waiting or running:
            step = {}
            still: list[tuple[Any, Iterator[Batch]]] = []
            queue = running + waiting
            while queue and len(still) < self.num_iterators:
                worker, batches = queue.pop(0)
                batch = next(batches, None)
                if batch is not None:
                    step[worker] = batch
                    still.append((worker, batches))
            running, waiting = still, queue
            if step:
                yield step

    def _dice(self) -> torch.Generator | None:
        """What one epoch is shuffled with: one number of torch's generator seeds it."""
        if not self.shuffle:
            return None
        seed = torch.empty((), dtype=torch.int64, device="cpu").random_(generator=self.generator)
        return torch.Generator().manual_seed(int(seed))

    def _rows_used(self, part: BaseDataset) -> int:
        rows = len(part)
        return rows - rows % self.batch_size if self.drop_last else rows

    def _batches(self, part: BaseDataset, dice: torch.Generator | None) -> Iterator[Batch]:
        """The batches of one worker."""
        used, several = self._rows_used(part), self.batch_size * _AHEAD
        order = None if dice is None else _shuffled(part, dice)[:used]
        for start in range(0, used, several):
            end = min(start + several, used)
            rows: Tensor = (
                torch.arange(start, end, device="cpu") if order is None else order[start:end]
            )
            for chosen in part.send_rows(list(rows.split(self.batch_size))):
                yield self._collated(*part[chosen])

    def _collated(self, data: Tensor, targets: Tensor) -> Batch:
        if self.collate_fn is None:
            return data, targets
        return self.collate_fn(list(zip(data.unbind(), targets.unbind(), strict=True)))


def _shuffled(part: BaseDataset, dice: torch.Generator) -> torch.Tensor:
    """The rows of one worker in an order drawn here, if it does not say that there are too many."""
    rows = len(part)
    if rows > _MOST_SHUFFLED:
        got = f"{rows:,}, as {part.location.id!r} says (shuffle=False needs no memory for them)"
        raise UnusableSetting("the rows to shuffle", f"at most {_MOST_SHUFFLED:,}", got)
    return torch.randperm(rows, generator=dice, device="cpu")


_LABELS = ("_tags", "_description")


def dataset_federate(
    dataset: Dataset[Any],
    workers: Iterable[Location | str],
    partition: Sequence[torch.Tensor] | None = None,
    user: str | None = None,
) -> FederatedDataset:
    """Divide a data set of pairs ``(x, y)`` among workers; the hook adds it to
    ``torch.utils.data.Dataset`` as ``federate``.

    Each worker gets as many samples as the others, or one more, in the order of the data set; with
    ``partition`` those of its index tensor (see :class:`~syft.federated.partition.Partition`).
    Tags, guards and a ``transform`` of a :class:`~syft.federated.base_dataset.BaseDataset` go
    along.  Of any other data set the samples are read here, once, and put together as torch's
    ``DataLoader`` does: what a random transform does to them is settled then, and they are public.
    ``user`` names the user who sends, which private tensors check.

    Raises :class:`~syft.exceptions.UnusableSetting` for no workers or one named twice, for a data
    set without a length, of anything but pairs of tensors and numbers, or that was sent already,
    and for a partition into another number of parts.

    >>> data = torch.utils.data.TensorDataset(torch.eye(3), torch.arange(3))
    >>> sy.dataset_federate(data, (bob, alice))
    FederatedDataset
        Distributed across: bob (2), alice (1)
        Number of datapoints: 3
    >>> data.federate((bob, alice), [torch.tensor([2]), torch.tensor([0, 1])])["bob"].get()[0]
    (tensor([0., 0., 1.]), tensor(2))
    """
    places = _places(workers)
    if isinstance(dataset, IterableDataset) or not isinstance(dataset, Sized):
        raise UnusableSetting("dataset", "a data set with a length", f"a {type(dataset).__name__}")
    chosen = (
        torch.arange(len(dataset), device="cpu").tensor_split(len(places))
        if partition is None
        else partition
    )
    if len(chosen) != len(places):
        raise UnusableSetting("partition", f"{len(places)} parts", str(len(chosen)))
    whole = _whole(dataset)
    return FederatedDataset(  # one part after another: of a large data set there is one copy here
        _part(dataset, whole, rows).send(place, user)
        for rows, place in counted(zip(chosen, places, strict=True), "federate", len(places))
    )


def _places(workers: Iterable[Location | str]) -> list[Any]:
    """The workers, which must be different ones."""
    if isinstance(workers, str) or not isinstance(workers, Iterable):
        raise UnusableSetting("workers", "a list of workers", f"a {type(workers).__name__}")
    local = TorchHook.current().local_worker
    places = [local.get_worker(worker) for worker in workers]
    if not places or len(set(places)) < len(places):
        names = ", ".join(place.id for place in places) or "nobody"
        raise UnusableSetting("workers", "different workers, at least one", names)
    return places


def _whole(dataset: Dataset[Any]) -> BaseDataset | None:
    """The data set as tensors, if that is what it is made of."""
    if isinstance(dataset, BaseDataset):
        if dataset.location is not None:
            place = dataset.location.id
            raise UnusableSetting("dataset", "here", f"one at {place}: get() it first")
        return dataset
    if type(dataset) is TensorDataset and len(dataset.tensors) == 2:
        return BaseDataset(*dataset.tensors)
    return None


def _part(dataset: Any, whole: BaseDataset | None, rows: torch.Tensor) -> BaseDataset:
    """Some samples as a data set."""
    if whole is None:
        return BaseDataset(*_collated(dataset, rows.tolist()))
    # The transform goes along, so what it is applied to is not changed here.
    data, targets = BaseDataset(whole.data, whole.targets)[rows]
    _label(data, whole.data)
    _label(targets, whole.targets)
    return BaseDataset(data, targets, whole.transform)


def _label(part: Tensor, whole: Tensor) -> None:
    for name in _LABELS:
        if name in whole.__dict__:
            part.__dict__[name] = whole.__dict__[name]


def _collated(dataset: Any, rows: list[int]) -> tuple[Tensor, Tensor]:
    """Samples put together; of none, what they would be."""
    pair = default_collate([dataset[row] for row in rows or [0]])
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise UnusableSetting("dataset", "one of pairs (x, y)", f"samples of {len(pair)} parts")
    data, targets = pair
    return (data, targets) if rows else (data[:0], targets[:0])


EXTENSIONS.append((Dataset, "federate", dataset_federate))
