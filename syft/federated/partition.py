"""Partitions: how a simulation divides one data set among clients, alike or not.

Federated learning is hard where clients hold different things, so results are compared over
partitions of known kinds.  Each is drawn from a generator of its own: the same seed gives the same
bits, whatever torch's global seed is, and leaves that as it is.  Nothing here is for secrecy.

Which client has how many samples of which label: drawn with characters, and as SVG.

A few lines of text serve a terminal, and a picture by hand needs no plotting library.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, overload

import numpy as np
import torch
from numpy.typing import NDArray

from syft.exceptions import UnusableSetting

Rows = NDArray[np.int64]
Seed = int | torch.Generator
Labels = torch.Tensor | Sequence[int] | NDArray[Any]
"""One number for each sample; a data set keeps them in one of these forms."""


class Partition(Sequence[torch.Tensor]):
    """Index tensors, one for each client: together they hold each sample once.

    ``targets`` are the labels of all samples: a tensor, an array or a list.  ``print`` draws how
    many samples of each label each client has, and a notebook shows the same as a picture.  It is
    what :func:`dataset.federate(workers, partition)
    <syft.federated.federated_dataset.dataset_federate>` takes.

    ``seed`` is a number or a ``torch.Generator``, of which one number is drawn.

    Raises :class:`~syft.exceptions.UnusableSetting` for no clients, an ``alpha`` that is not over
    0, more shards than samples, and ``targets`` that are not one number for each sample.

    >>> labels = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    >>> partition = sy.Partition.by_label(labels, clients=2)
    >>> list(partition)
    [tensor([0, 1, 2, 3]), tensor([4, 5, 6, 7])]
    >>> print(partition)
    8 samples, labels 0 to 1, a column each (█ is 4)
    client 0  █·  4
    client 1  ·█  4
    """

    def __init__(self, targets: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        self.targets = targets
        self.parts = list(parts)

    @classmethod
    def iid(cls, targets: Labels, clients: int, seed: Seed = 0) -> Partition:
        """Samples drawn blindly: every client has the same mixture, and as many as the others.

        >>> [len(rows) for rows in sy.Partition.iid(torch.zeros(7), clients=3)]
        [3, 2, 2]
        """
        draw = _generator(seed)
        targets, labels = _labels(targets, clients)
        return cls._of(targets, np.array_split(draw.permutation(len(labels)), clients))

    @classmethod
    def dirichlet(cls, targets: Labels, clients: int, alpha: float, seed: Seed = 0) -> Partition:
        """Of each label, shares drawn from a Dirichlet distribution with parameter ``alpha``.

        At 0.1 most of a label is at one client or two, at 100 all clients are nearly alike.  A
        client may have nothing.  Source: Hsu, Qi, Brown, "Measuring the effects of non-identical
        data distribution for federated visual classification" (2019); as is usual since, the
        distribution is drawn over clients for each label.

        >>> labels = torch.arange(100) % 10
        >>> sum(len(rows) for rows in sy.Partition.dirichlet(labels, clients=4, alpha=0.5))
        100
        """
        if not alpha > 0:
            raise UnusableSetting("alpha", "over 0", str(alpha))
        draw = _generator(seed)
        targets, labels = _labels(targets, clients)
        pieces: list[list[Rows]] = [[] for _ in range(clients)]
        for label in np.unique(labels):
            rows = draw.permutation(np.flatnonzero(labels == label))
            shares = draw.dirichlet(np.full(clients, alpha))
            cuts = np.floor(np.cumsum(shares[:-1]) * len(rows)).astype(np.int64)
            for client, piece in enumerate(np.split(rows, np.minimum(cuts, len(rows)))):
                pieces[client].append(piece)
        return cls._of(targets, [np.concatenate([*several, _NONE]) for several in pieces])

    @classmethod
    def shards(
        cls, targets: Labels, clients: int, shards_per_client: int = 2, seed: Seed = 0
    ) -> Partition:
        """Samples sorted by label and cut into equal shards, of which each client gets some.

        With two shards most clients know two labels.  Source: McMahan et al.,
        "Communication-efficient learning of deep networks from decentralized data" (2017).

        >>> labels = torch.arange(100) % 10
        >>> parts = sy.Partition.shards(labels, clients=5)
        >>> [len(labels[rows].unique()) for rows in parts]
        [2, 2, 2, 2, 2]
        """
        draw = _generator(seed)
        targets, labels = _labels(targets, clients)
        count = clients * shards_per_client
        if not clients <= count <= max(len(labels), clients):
            got = f"{shards_per_client} for {clients} clients and {len(labels)} samples"
            raise UnusableSetting("shards_per_client", "1 or more, of a sample at least", got)
        shards = np.array_split(np.argsort(labels, kind="stable"), count)
        dealt = np.split(draw.permutation(count), clients)
        return cls._of(targets, [np.concatenate([shards[at] for at in few]) for few in dealt])

    @classmethod
    def by_label(cls, targets: Labels, clients: int) -> Partition:
        """Each label at one client, in turns; with more clients than labels, several share one.

        Nothing is drawn.

        >>> labels = torch.arange(6) % 3
        >>> [labels[rows].tolist() for rows in sy.Partition.by_label(labels, clients=2)]
        [[0, 2, 0, 2], [1, 1]]
        """
        targets, labels = _labels(targets, clients)
        pieces: list[list[Rows]] = [[] for _ in range(clients)]
        known = np.unique(labels)
        for at, label in enumerate(known):
            holders = range(at % clients, clients, max(len(known), 1))
            if len(known) >= clients:
                holders = range(at % clients, at % clients + 1)
            rows = np.array_split(np.flatnonzero(labels == label), len(holders))
            for client, piece in zip(holders, rows, strict=True):
                pieces[client].append(piece)
        return cls._of(targets, [np.concatenate([*several, _NONE]) for several in pieces])

    @classmethod
    def _of(cls, targets: torch.Tensor, parts: Sequence[Rows]) -> Partition:
        device = targets.device
        return cls(targets, [torch.from_numpy(np.sort(rows)).to(device) for rows in parts])

    def counts(self) -> LabelCounts:
        """How many samples of each label each client has.

        >>> labels = torch.tensor([5, 5, 7])
        >>> sy.Partition.by_label(labels, clients=2).counts().table
        [[2, 0], [0, 1]]
        """
        known, numbers = torch.unique(self.targets, return_inverse=True)
        table = [torch.bincount(numbers[rows], minlength=len(known)).tolist() for rows in self]
        return LabelCounts(known.tolist(), table)

    @overload
    def __getitem__(self, client: int) -> torch.Tensor: ...

    @overload
    def __getitem__(self, client: slice) -> list[torch.Tensor]: ...

    def __getitem__(self, client: int | slice) -> Any:
        """The index tensor of a client."""
        return self.parts[client]

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(self.parts)

    def __str__(self) -> str:
        return text_chart(self.counts())

    def __repr__(self) -> str:
        return f"<Partition of {len(self.targets)} samples over {len(self)} clients>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return svg_chart(self.counts())


_NONE: Rows = np.zeros(0, np.int64)


def _labels(targets: Labels, clients: int) -> tuple[torch.Tensor, NDArray[Any]]:
    """The labels, as both kinds of array, once the arguments are known to be sensible."""
    if clients < 1:
        raise UnusableSetting("clients", "1 or more", str(clients))
    if not isinstance(targets, torch.Tensor):
        targets = torch.as_tensor(targets, device="cpu")
    if targets.dim() != 1:
        raise UnusableSetting("targets", "one number for each sample", str(tuple(targets.shape)))
    return targets, targets.detach().cpu().numpy()


def _generator(seed: Seed) -> np.random.Generator:
    """A generator of one partition's own."""
    if isinstance(seed, torch.Generator):
        drawn = torch.empty((), dtype=torch.int64, device=seed.device).random_(generator=seed)
        seed = int(drawn)
    return np.random.default_rng(seed)


_HEIGHTS: Final = "▁▂▃▄▅▆▇█"
_MOST_COLUMNS: Final = 40
_ROW: Final = 22
_WIDTH: Final = 480


@dataclass(frozen=True)
class LabelCounts:
    """For each client (a row of ``table``) how many samples it has of each of ``labels``.

    >>> LabelCounts([0, 1], [[3, 0], [1, 2]]).grouped(most=1).table
    [[3], [3]]
    """

    labels: list[Any]
    table: list[list[int]]

    def grouped(self, most: int = _MOST_COLUMNS) -> LabelCounts:
        """The same with neighbouring labels added up, so that there are ``most`` at most."""
        step = max(1, -(-len(self.labels) // most))
        starts = range(0, len(self.labels), step)
        table = [[sum(row[at : at + step]) for at in starts] for row in self.table]
        return LabelCounts([self.labels[at] for at in starts], table)


def text_chart(counts: LabelCounts) -> str:
    """A line for each client: a column of the height of each label's count, and the total.

    >>> print(text_chart(LabelCounts([0, 1, 2], [[8, 1, 0], [0, 4, 4]])))
    17 samples, labels 0 to 2, a column each (█ is 8)
    client 0  █▁·  9
    client 1  ·▄▄  8
    """
    columns = counts.grouped()
    highest = max((max(row, default=0) for row in columns.table), default=0)
    width = len(f"client {len(counts.table) - 1}")
    lines = [_heading(counts, columns, highest)]
    for client, row in enumerate(columns.table):
        bars = "".join(_bar(count, highest) for count in row)
        lines.append(f"{f'client {client}':{width}}  {bars}  {sum(row)}")
    return "\n".join(lines)


def _heading(counts: LabelCounts, columns: LabelCounts, highest: int) -> str:
    total = sum(map(sum, counts.table))
    if not counts.labels:
        return f"{total} samples"
    step = -(-len(counts.labels) // len(columns.labels))
    each = "a column each" if step == 1 else f"{step} to a column"
    return (
        f"{total} samples, labels {counts.labels[0]} to {counts.labels[-1]}, "
        f"{each} (█ is {highest})"
    )


def _bar(count: int, highest: int) -> str:
    if not count:
        return "·"
    return _HEIGHTS[-(-count * len(_HEIGHTS) // highest) - 1]


def svg_chart(counts: LabelCounts) -> str:
    """A bar for each client, as long as it has samples, a colour for each label.

    >>> svg_chart(LabelCounts([0, 1], [[3, 1], [0, 2]])).count("<rect")
    3
    """
    columns = counts.grouped()
    longest = max([*map(sum, columns.table), 1])
    height = _ROW * len(columns.table)
    drawn = [
        _svg_row(client, row, columns.labels, longest) for client, row in enumerate(columns.table)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 160}" height="{height}" '
        f'font-family="sans-serif" font-size="12">{"".join(drawn)}</svg>'
    )


def _svg_row(client: int, row: list[int], labels: list[Any], longest: int) -> str:
    top, left = client * _ROW, 80.0
    base = top + 15
    parts = [f'<text x="0" y="{base}">client {client}</text>']
    for at, count in enumerate(row):
        if not count:
            continue
        width = _WIDTH * count / longest
        hue = round(360 * at / len(row))
        title = html.escape(f"label {labels[at]}: {count}")
        parts.append(
            f'<rect x="{left:.1f}" y="{top + 2}" width="{width:.1f}" height="{_ROW - 4}" '
            f'fill="hsl({hue},60%,60%)"><title>{title}</title></rect>'
        )
        left += width
    return f'{"".join(parts)}<text x="{left + 6:.1f}" y="{base}">{sum(row)}</text>'
