"""``dataset.federate(workers)``: a data set of this process is divided among workers.

For simulations and demonstrations, and for those who own the data and rent the workers.  Data
that workers hold already is found, not sent: see
:meth:`~syft.federated.federated_dataset.FederatedDataset.from_search`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset, default_collate

from syft.exceptions import UnusableSetting
from syft.federated.base_dataset import BaseDataset, Tensor
from syft.federated.federated_dataset import FederatedDataset
from syft.hooks.ledger import EXTENSIONS
from syft.hooks.torch_hook import TorchHook
from syft.status_line import counted
from syft.workers.client.transport import Location

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
