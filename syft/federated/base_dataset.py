"""BaseDataset: data and targets that lie at one worker, or in this process.

A data set that was sent is two pointers, so everything done to it is an operation on pointers: its
rows are chosen where they lie, and what is private stays private without a rule of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import Dataset

from syft.chain.wrapper import Wrapper, first_link
from syft.exceptions import LocationMismatch, UnusableSetting
from syft.hooks import bulk
from syft.hooks.torch_hook import TorchHook
from syft.workers.client.transport import Location
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.labels.origin import set_writers, writers_of

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any
Index = int | slice | list[int] | torch.Tensor
Transform = Callable[[Tensor], Tensor]


class BaseDataset(Dataset[tuple[Tensor, Tensor]]):
    """Data and targets, row by row: two tensors of this process, two pointers to one worker, or two
    shared tensors.

    ``transform`` is applied to the data whenever rows are read: to one sample, or to a batch.  Of
    pointers it makes pointers, so it runs where the data is.  As a ``torch.utils.data.Dataset`` it
    has :func:`federate <syft.federated.federating.dataset_federate>` too.

    Raises :class:`~syft.exceptions.LocationMismatch` if the two lie apart, and
    :class:`~syft.exceptions.UnusableSetting` if they are no tensors, not at one worker, or not of
    one length (which is asked of a worker when it is first needed).

    >>> there = sy.BaseDataset(torch.eye(3), torch.tensor([0, 1, 2])).send(bob)
    >>> there.location, len(there), there[0][1].get()
    (<VirtualWorker id:bob #objects:2>, 3, tensor(0))
    """

    def __init__(self, data: Tensor, targets: Tensor, transform: Transform | None = None) -> None:
        for name, tensor in (("data", data), ("targets", targets)):
            if not isinstance(tensor, torch.Tensor):
                raise UnusableSetting(name, "a tensor", f"a {type(tensor).__name__}")
        self.data: Tensor = data
        self.targets: Tensor = targets
        self.transform = transform
        self._length: int | None = None
        self._location = _one_place(data)
        if self._location is not _one_place(targets):
            raise LocationMismatch("BaseDataset", (_named(data), _named(targets)))
        if self._location is None:
            self._length = self._counted()

    @property
    def location(self) -> Any:
        """The worker that holds the data; None if it is here, or shared.

        >>> sy.BaseDataset(torch.ones(2), torch.ones(2)).send(bob).location is bob
        True
        """
        return self._location

    def __len__(self) -> int:
        if self._length is None:
            self._length = self._counted()
        return self._length

    def _counted(self) -> int:
        """How many rows both have."""
        rows, targets = len(self.data), len(self.targets)
        if rows != targets:
            raise UnusableSetting("targets", f"as many as the data: {rows}", str(targets))
        return rows

    def __getitem__(self, index: Index) -> tuple[Tensor, Tensor]:
        """A sample, or the samples of a slice, list or index tensor, which may be at the worker."""
        chosen = self._index_there(index)
        data, targets = _rows(self.data, chosen), _rows(self.targets, chosen)
        return (data if self.transform is None else self.transform(data)), targets

    def _index_there(self, index: Index) -> Any:
        """The index where the data is; its numbers go to a worker once for both tensors."""
        if isinstance(index, list):
            index = torch.tensor(index, dtype=torch.int64, device="cpu")
        if not isinstance(index, torch.Tensor) or self._location is None:
            return index
        if type(index) is Wrapper:
            return index
        if index.dtype is torch.bool:
            index = index.nonzero().flatten()
        return self.send_rows([index])[0]

    def send_rows(self, indices: list[torch.Tensor]) -> list[Tensor]:
        """Send index tensors to where the data is, in one message; pointers to them choose rows.

        >>> there = sy.BaseDataset(torch.eye(3), torch.tensor([0, 1, 2])).send(bob)
        >>> (rows,) = there.send_rows([torch.tensor([2, 0])])
        >>> there[rows][1].get()
        tensor([2, 0])
        """
        owner: Any = first_link(self.data).owner
        return bulk.send_all(indices, self._location, owner)

    # ------------------------------------------------------------------------------ where it lies

    def send(
        self, location: Location | str, user: str | None = None, garbage_collect_data: bool = True
    ) -> BaseDataset:
        """The data set at a worker, sent in one message; this one stays as it is.

        ``user`` and ``garbage_collect_data`` are those of ``x.send``, and so are the errors.

        >>> sy.BaseDataset(torch.ones(2), torch.zeros(2)).send(bob).targets.get()
        tensor([0., 0.])
        """
        owner = TorchHook.current().local_worker
        place = owner.get_worker(location)
        tensors = [self.data, self.targets]
        data, targets = bulk.send_all(tensors, place, owner, user, garbage_collect_data)
        return self._holding(data, targets)

    def get(self, user: str | None = None) -> BaseDataset:
        """The data set in this process: fetched and removed at its worker, or put together.

        Raises :class:`~syft.exceptions.NothingToGet` if it is here already, and
        :class:`~syft.exceptions.PermissionDenied` for what ``user`` may not read.

        >>> sy.BaseDataset(torch.ones(2), torch.zeros(2)).send(bob).get().targets
        tensor([0., 0.])
        """
        if self._location is None:
            return self._holding(self.data.get(user=user), self.targets.get(user=user))
        return self._holding(*bulk.get_all([self.data, self.targets], user))

    # -------------------------------------------------------------------------- what it is made of

    def fix_precision(
        self, precision_fractional: int | None = None, base: int | None = None
    ) -> BaseDataset:
        """The data set in fixed precision, encoded where it is; integer targets stay integers.

        >>> hook = sy.TorchHook(torch)
        >>> sy.BaseDataset(torch.tensor([0.5]), torch.tensor([1])).fix_precision().data
        (Wrapper)>FixedPrecisionTensor>tensor([32768])
        """

        def encoded(tensor: Tensor) -> Tensor:
            fractions = tensor.dtype.is_floating_point
            return tensor.fix_precision(precision_fractional, base) if fractions else tensor

        return self._holding(encoded(self.data), encoded(self.targets))

    fix_prec = fix_precision

    def float_precision(self) -> BaseDataset:
        """The data set with what is in fixed precision decoded to float32, where it is.

        >>> hook = sy.TorchHook(torch)
        >>> encoded = sy.BaseDataset(torch.tensor([0.5]), torch.tensor([1])).fix_precision()
        >>> encoded.float_precision()[0]
        (tensor(0.5000), tensor(1))
        """

        def decoded(tensor: Tensor) -> Tensor:
            return tensor.float_precision() if tensor.dtype.is_floating_point else tensor

        return self._holding(decoded(self.data), decoded(self.targets))

    float_prec = float_precision

    def share(self, *workers: Location | str, **settings: Any) -> BaseDataset:
        """The data set split among workers; ``settings`` and errors are those of ``x.share``.

        >>> encoded = sy.BaseDataset(torch.tensor([0.5]), torch.tensor([1])).fix_precision()
        >>> encoded.share(alice, bob, crypto_provider=carol).get().targets
        tensor([1])
        """
        return self._holding(
            self.data.share(*workers, **settings), self.targets.share(*workers, **settings)
        )

    def _holding(self, data: Tensor, targets: Tensor) -> BaseDataset:
        """A data set of as many rows with the same transform."""
        made = BaseDataset(data, targets, self.transform)
        made._length = self._length
        return made

    def __repr__(self) -> str:
        return f"BaseDataset\n\tData: {self.data}\n\ttargets: {self.targets}"


def _one_place(tensor: Tensor) -> Any:
    place = first_link(tensor).location
    if isinstance(place, list):
        names = ", ".join(worker.id for worker in place)
        raise UnusableSetting("data", "at one worker", f"a tensor at {names}")
    return place


def _named(tensor: Tensor) -> str:
    place = first_link(tensor).location
    return "me" if place is None else str(place.id)


def _rows(tensor: Tensor, index: Any) -> Tensor:
    """Some rows of a tensor; of a private one they are as private."""
    if isinstance(index, torch.Tensor) and type(index) is not Wrapper:
        index = index.to(tensor.device)
    rows = tensor[index]
    if type(tensor) is not Wrapper:
        protect(rows, full_guard_of(tensor))
        set_writers(rows, writers_of(tensor))
    return rows
