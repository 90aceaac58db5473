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
from syft.federated.columns import Columns
from syft.hooks import bulk, labels
from syft.hooks.torch_hook import TorchHook
from syft.foreign_text import printable
from syft.notebook_html import kind_shown, line
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
    has :func:`federate <syft.federated.federated_dataset.dataset_federate>` too.

    Raises :class:`~syft.exceptions.LocationMismatch` if the two lie apart, and
    :class:`~syft.exceptions.UnusableSetting` if they are no tensors, not at one worker, or not of
    one length (which is asked of a worker when it is first needed).

    What it shows of itself are kinds, sizes, its description and its columns, and never a value.

    >>> there = sy.BaseDataset(torch.eye(3), torch.tensor([0, 1, 2])).send(bob)
    >>> there.location, len(there), there[0][1].get()
    (<VirtualWorker id:bob #objects:2>, 3, tensor(0))
    """

    def __init__(
        self,
        data: Tensor,
        targets: Tensor,
        transform: Transform | None = None,
        columns: Columns | None = None,
    ) -> None:
        for name, tensor in (("data", data), ("targets", targets)):
            if not isinstance(tensor, torch.Tensor):
                raise UnusableSetting(name, "a tensor", f"a {type(tensor).__name__}")
        self.data: Tensor = data
        self.targets: Tensor = targets
        self.transform = transform
        self._columns = columns
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

    @property
    def columns(self) -> Columns | None:
        """The columns of the table that it was read from, or that its description tells of; None if
        there are none.

        Of data that was found at a worker the description is asked for.

        >>> data = torch.ones(2, 1).describe("ward 3\\n2 rows\\n- age: integer")
        >>> sy.BaseDataset(data, torch.ones(2)).send(bob).columns["age"]
        <Column 'age': integer>
        """
        if self._columns is not None:
            return self._columns
        return Columns.in_description(labels.description(self.data))

    def publish(self, *categories: str, text: str | None = None) -> BaseDataset:
        """Tell those who find the data of its columns; returns the data set.

        Its description then has the names and kinds of the columns and the number of rows, after
        ``text`` or the description that it has.  Of the columns named in ``categories`` the table
        of categories is told too.  Values, counts of empty cells and other tables are not.

        Raises :class:`~syft.exceptions.UnusableSetting` for a data set without columns, and for a
        name of a column without categories.

        >>> hook = sy.TorchHook(torch)
        >>> from syft.federated.columns import Column, ColumnKind
        >>> age, ill = Column("age", ColumnKind.INTEGER), Column("ill", ColumnKind.BOOLEAN)
        >>> columns = Columns([age], target=ill)
        >>> dataset = sy.BaseDataset(torch.ones(2, 1), torch.ones(2), columns=columns)
        >>> print(dataset.publish(text="ward 3").data.description)
        ward 3
        2 rows
        - age: integer
        - ill: boolean, target
        """
        if self._columns is None:
            raise UnusableSetting("dataset", "one with columns, as of sy.read_dataset", "none")
        known = labels.description(self.data) if text is None else text
        first = (known or "").partition("\n")[0]
        labels.set_description(self.data, self._columns.published(len(self), first, categories))
        return self

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
        made = BaseDataset(data, targets, self.transform, self._columns)
        made._length = self._length
        return made

    def __repr__(self) -> str:
        text = f"BaseDataset\n\tData: {_shown(self.data)}\n\ttargets: {_shown(self.targets)}"
        if self._is_here and (description := labels.description(self.data)):
            text += f"\n\tDescription: {printable(description.partition(chr(10))[0])[:80]}"
        own = self._own_columns()
        return text if own is None else "\n\t".join([text, *repr(own).splitlines()])

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        own = self._own_columns()
        below = "" if own is None else own._repr_html_()
        if not self._is_here:
            parts = (x._repr_html_() or line("data") for x in (self.data, self.targets))
            return "<br>".join([line("BaseDataset"), *parts]) + below
        description = (labels.description(self.data) or "").partition("\n")[0]
        kinds = (kind_shown(x.dtype, x.shape) for x in (self.data, self.targets))
        return line("BaseDataset", *kinds, description) + below

    @property
    def _is_here(self) -> bool:
        """Whether values are in this process."""
        return self._location is None and first_link(self.data).shared_cell() is None

    def _own_columns(self) -> Columns | None:
        """The columns, unless a pointer shows them with its description; nobody is asked."""
        if self._location is None:
            return self.columns if self._is_here else self._columns
        return self._columns if columns_seen(self.data) is None else None


def columns_seen(pointer: Tensor) -> Columns | None:
    """The columns that the description of a pointer tells of, without asking its worker.

    >>> text = "ward 3\\n2 rows\\n- age: integer"
    >>> columns_seen(torch.ones(2, 1).describe(text).send(bob))
    age: integer
    """
    link: Any = first_link(pointer)
    return Columns.in_description(link.description_seen)


def _shown(tensor: Tensor) -> str:
    """A pointer, or what kind of tensor is here, without its values."""
    link = first_link(tensor)
    here = link.location is None and link.shared_cell() is None
    return kind_shown(tensor.dtype, tensor.shape) if here else repr(tensor)


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
