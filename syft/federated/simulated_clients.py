"""Rounds of federated averaging with many simulated clients, in this process.

For research and for tests of a federated programme before anybody's data is touched: how does it
train on ten, a hundred, a thousand clients with such shares of the data?
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.utils.data import TensorDataset, default_collate

from syft.chain.wrapper import Wrapper
from syft.exceptions import UnusableSetting
from syft.federated.base_dataset import BaseDataset
from syft.federated.stacked_memory import KeptStacks, keep_pages
from syft.federated.local_batches import LocalBatches, seed_of, steps_together
from syft.federated.rules import Aggregate, ClippedMean, NamedRule, Rule, rule_of
from syft.federated.stacked_clients import Loss, Parameters, StackedSGD, obstacle, stacked_gradients
from syft.status_line import Steps

MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
Samples = tuple[torch.Tensor, torch.Tensor]

_STACK_BYTES: Final = 31 << 20
"""Parameters of clients that are trained at once, unless ``clients_at_once`` says how many: what is
larger has new pages of memory in each step (:mod:`~syft.federated.stacked_memory`)."""
_ACCELERATOR_STACK_BYTES: Final = 256 << 20
_LARGE_BYTES: Final = 2 << 20
"""Parameters of a model that a processor trains faster one client after another: what a step of one
client reads and writes stays in the cache."""

_MOST_AT_ONCE: Final = 128

_LAYER_BYTES: Final = 10 << 20
"""What a convolution makes of a step of all clients that are trained at once.  Fewer clients leave
the processor waiting for Python, and more of them leave its cache."""
_FEWEST_IMAGES: Final = 4
"""Clients whose images are convolved at once, however large they are."""


@dataclass(frozen=True, slots=True)
class RoundReport:
    """What came of a round.

    ``clients`` took part, ``samples`` each; ``losses`` are the mean losses of each client over its
    batches, while it trained, and ``loss`` is their mean by samples.
    """

    number: int
    clients: list[int]
    samples: list[int]
    losses: torch.Tensor

    @property
    def loss(self) -> float:
        """The mean loss of all samples.

        >>> RoundReport(0, [0, 1], [1, 3], torch.tensor([1.0, 2.0])).loss
        1.75
        """
        weights = torch.tensor(self.samples, dtype=torch.float64, device="cpu")
        return float((self.losses.double() * weights).sum() / weights.sum())


class SimulatedClients:
    """Clients with data of their own who train one model in rounds (McMahan et al., 2017).

    In a round each client trains a copy of ``model`` on its samples, ``epochs`` times, and the
    model becomes the mean of the copies, weighted by samples.  ``datasets`` has for each client a
    pair of tensors ``(x, y)``, or a data set of such samples, in this process; a transform is
    applied once.  ``loss_fn(output, y)`` gives the mean loss of a batch.
    ``optimizer(parameters)`` makes each client's optimizer, anew in each round.  ``batch_size``,
    ``epochs``, ``shuffle``, ``drop_last`` and ``max_nr_batches`` (the most steps of a client in a
    round; 0 is any number) divide its samples.

    **Clients are trained many at once** with ``torch.optim.SGD`` and a model that
    ``torch.func.vmap`` can run; otherwise one by one, and :attr:`obstacle` says why: another
    optimizer, buffers that a step changes (the statistics of BatchNorm), random numbers (dropout),
    ways that depend on values, parameters of more than 2 MB on a CPU.  Either way gives the same
    but for rounding.  Batches of different sizes are different steps, so clients with as many
    samples are fastest.  ``clients_at_once`` says how many: by default 128, or as many as have
    parameters of 31 MB (256 MB on an accelerator), and with convolutions 4, or as many as the first
    of them makes 10 MB of.  1 trains one by one, and more do so with models of any size.

    ``rule`` says what the model becomes, as for :func:`syft.federated_average`: the mean by
    samples, the ``"median"``, or a :class:`syft.TrimmedMean` of clients that count the same; or a
    :class:`syft.ClippedMean` around the model of the round.

    ``seed`` settles the order of the samples, and what a model draws; torch's own seed neither
    matters nor changes.  The same seed gives the same bits on one machine, if torch's kernels do.
    The model stays where it is, and batches go there.

    Raises :class:`~syft.exceptions.UnusableSetting` for settings that make no sense, and for data
    or a model that is not here.

    >>> x = torch.randn(60, 2)
    >>> y = (x.sum(1) > 0).long()
    >>> model = torch.nn.Linear(2, 2)
    >>> clients = sy.SimulatedClients(
    ...     model,
    ...     [(x[rows], y[rows]) for rows in sy.Partition.iid(y, clients=6)],
    ...     torch.nn.functional.cross_entropy,
    ...     lambda parameters: torch.optim.SGD(parameters, lr=0.5, momentum=0.9),
    ...     batch_size=5,
    ... )
    >>> losses = [clients.round().loss for _ in range(5)]
    >>> losses[-1] < losses[0], clients.obstacle
    (True, '')
    """

    def __init__(
        self,
        model: nn.Module,
        datasets: Iterable[Any],
        loss_fn: Loss,
        optimizer: MakeOptimizer,
        *,
        batch_size: int,
        epochs: int = 1,
        shuffle: bool = True,
        drop_last: bool = False,
        max_nr_batches: int = 0,
        seed: int = 0,
        clients_at_once: int | None = None,
        rule: Rule | NamedRule = "mean",
    ) -> None:
        self.batches = LocalBatches(batch_size, epochs, shuffle, drop_last, max_nr_batches)
        if clients_at_once is not None and clients_at_once < 1:
            raise UnusableSetting("clients_at_once", "1 or more", str(clients_at_once))
        if any(type(tensor) is Wrapper for tensor in model.state_dict(keep_vars=True).values()):
            raise UnusableSetting("model", "a module in this process", "one that is not")
        self.model = model
        self.datasets = [_samples_of(dataset) for dataset in datasets]
        """The samples of each client, as two tensors."""
        self.seed = seed
        self.rounds = 0
        """How many rounds there have been."""
        self.obstacle: str | None = None
        """Why clients are trained one by one; empty if they are not, None before it is known."""
        self.rule = rule_of(rule)
        if isinstance(self.rule, ClippedMean) and self.rule.around is not None:
            raise UnusableSetting("around", "left out: it is the model of each round", "one")
        self._loss_fn = loss_fn
        self._optimizer = optimizer
        self._at_once = clients_at_once
        self._fast = True
        self._stacks = KeptStacks()

    def __len__(self) -> int:
        return len(self.datasets)

    def round(self, clients: Sequence[int] | None = None) -> RoundReport:
        """Train one round and change the model; ``clients`` are the numbers of those who take part.

        Clients without samples for a batch take no part.  Raises
        :class:`~syft.exceptions.UnusableSetting` for unknown or repeated clients, if there is
        nobody left, and for clients that have trained to NaN or Inf: it names them and their
        tensors.  The model is then as it was before; leave them out, or lower their learning rate.

        >>> model = torch.nn.Linear(1, 1)
        >>> samples = [(torch.ones(count, 1), torch.ones(count, 1)) for count in (4, 2)]
        >>> loss = torch.nn.functional.mse_loss
        >>> clients = sy.SimulatedClients(model, samples, loss, torch.optim.SGD, batch_size=2)
        >>> clients.round().samples, clients.round([1]).samples
        ([4, 2], [2])
        """
        chosen = self._taking_part(clients)
        counts = [self._count(client) for client in chosen]
        mean = self._rule_of_round().begin(sum(counts), "client")
        losses = []
        size = self._size_of_chunk(chosen[0])
        samples = sum(self.batches.most(self._count(client)) for client in chosen)
        with Steps(f"round {self.rounds}", samples) as steps:
            for start in range(0, len(chosen), size):
                losses.append(self._train(chosen[start : start + size], mean, steps))
        with torch.no_grad():
            state = self.model.state_dict(keep_vars=True)
            for name, value in mean.values().items():
                state[name].copy_(value)
        report = RoundReport(self.rounds, chosen, counts, torch.cat(losses))
        self.rounds += 1
        return report

    def order(self, client: int, number: int) -> list[torch.Tensor]:
        """The batches of a client in round ``number``, as indices of its samples.

        >>> samples = [(torch.ones(3, 1), torch.ones(3, 1))]
        >>> loss = torch.nn.functional.mse_loss
        >>> clients = sy.SimulatedClients(
        ...     torch.nn.Linear(1, 1), samples, loss, torch.optim.SGD, batch_size=2, shuffle=False
        ... )
        >>> clients.order(0, 0)
        [tensor([0, 1]), tensor([2])]
        """
        return self.batches.batches(self._count(client), self._order_seed(client, number))

    # ------------------------------------------------------------------------------- who takes part

    def _taking_part(self, clients: Sequence[int] | None) -> list[int]:
        chosen = list(range(len(self))) if clients is None else list(clients)
        if len(set(chosen)) < len(chosen) or not set(chosen) <= set(range(len(self))):
            wanted = f"different numbers under {len(self)}"
            raise UnusableSetting("clients", wanted, str(chosen))
        chosen = [client for client in chosen if self.batches.used(self._count(client))]
        if not chosen:
            raise UnusableSetting("clients", "some with samples for a batch", "none")
        return chosen

    def _rule_of_round(self) -> Rule:
        """The rule, which clips around the model as it is when the round begins."""
        if not isinstance(self.rule, ClippedMean):
            return self.rule
        state = self.model.state_dict()
        return ClippedMean(self.rule.norm, {name: x.clone() for name, x in state.items()})

    def _count(self, client: int) -> int:
        return len(self.datasets[client][0])

    def _order_seed(self, client: int, number: int) -> int:
        return seed_of("order", self.seed, number, client)

    def _size_of_chunk(self, client: int) -> int:
        if self._at_once is not None:
            return self._at_once
        most_bytes = _STACK_BYTES if self._device.type == "cpu" else _ACCELERATOR_STACK_BYTES
        most = max(1, min(_MOST_AT_ONCE, most_bytes // max(1, self._nbytes)))
        for part in self.model.modules():
            if isinstance(part, nn.Conv2d):
                batch = self.datasets[client][0][: self.batches.batch_size]
                layer = batch.nbytes // part.in_channels * part.out_channels
                return min(most, max(_FEWEST_IMAGES, _LAYER_BYTES // max(1, layer)))
        return most

    # ------------------------------------------------------------------------------------- training

    def _train(self, clients: list[int], mean: Aggregate, steps: Steps) -> torch.Tensor:
        """Train some clients and add them to the mean; returns their losses."""
        if len(clients) > 1 and not self.obstacle:
            losses = self._train_together(clients, mean, steps)
            if losses is not None:
                return losses
        return torch.stack([self._train_alone(client, mean, steps) for client in clients])

    def _train_alone(self, client: int, mean: Aggregate, steps: Steps) -> torch.Tensor:
        """Train one client as a loop over its batches."""
        device = self._device
        model = copy.deepcopy(self.model)
        optimizer = self._optimizer(list(model.parameters()))
        data, targets = self.datasets[client]
        total, count = torch.zeros((), dtype=torch.float64, device=device), 0
        with self._own_random_numbers(client):
            for rows in self.order(client, self.rounds):
                x, y = data[rows.to(data.device)], targets[rows.to(targets.device)]
                loss = self._loss_fn(model(x.to(device)), y.to(device))
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                total += loss.detach() * len(rows)
                count += len(rows)
                steps.done(len(rows))
        mean.add(model.state_dict(), self._count(client), str(client))
        return total.cpu() / count

    def _train_together(
        self, clients: list[int], mean: Aggregate, steps: Steps
    ) -> torch.Tensor | None:
        """Train several clients at once; None if that cannot be done, and nothing was."""
        names = dict(self.model.named_parameters())
        optimizer = self._optimizer(list(names.values()))
        if self.obstacle is None:
            self.obstacle = self._obstacle_outside(optimizer) or None
            if self.obstacle:
                return None
        sgd = StackedSGD(optimizer.param_groups, names, len(clients), self._stacks)
        keep_pages()
        data, targets = (
            torch.cat([self.datasets[client][part] for client in clients]) for part in (0, 1)
        )
        counts = [self._count(client) for client in clients]
        seeds = [self._order_seed(client, self.rounds) for client in clients]
        totals = torch.zeros(len(clients), dtype=torch.float64, device=self._device)
        seen = torch.zeros_like(totals)
        for step in steps_together(self.batches, counts, seeds):
            x = data[step.rows.to(data.device)].to(self._device)
            y = targets[step.rows.to(targets.device)].to(self._device)
            if self._obstacle_inside(sgd, x[:2], y[:2], clients[0]):
                return None
            trained = sgd.of(step.clients)
            losses, gradients = self._gradients(trained, x, y)
            sgd.step(step.clients, gradients)
            places, length = step.clients.to(totals.device), step.rows.shape[1]
            totals.index_add_(0, places, losses.double() * length)
            seen[places] += length
            steps.done(step.rows.numel())
        mean.add_stacked(sgd.parameters, counts, clients)
        return (totals / seen).cpu()

    def _gradients(
        self, trained: Parameters, x: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor | None]]:
        """The losses and gradients of a step.

        A layout of images that suited the first batch, and does not suit one of another size, is
        given up; what fails without it as well raises.
        """
        if self._fast:
            try:
                return stacked_gradients(self.model, self._loss_fn, trained, x, y)
            except RuntimeError:  # torch's, of what vmap or a kernel cannot do in that layout
                self._fast = False
        return stacked_gradients(self.model, self._loss_fn, trained, x, y, fast=False)

    def _obstacle_outside(self, optimizer: torch.optim.Optimizer) -> str:
        """Why several cannot be trained at once, apart from the model."""
        if type(optimizer) is not torch.optim.SGD:
            return f"its optimizer is {type(optimizer).__name__}, not SGD"
        if self._at_once is None and self._device.type == "cpu" and self._nbytes > _LARGE_BYTES:
            return "its parameters have more than 2 MB, and one by one is faster"
        kinds = {(x.shape[1:], x.dtype, y.shape[1:], y.dtype) for x, y in self.datasets}
        return "" if len(kinds) == 1 else "the samples of its clients differ in shape or dtype"

    def _obstacle_inside(
        self, sgd: StackedSGD, data: torch.Tensor, targets: torch.Tensor, client: int
    ) -> str:
        """What is in the way of the model, found out by the first batch; and whether it may have
        its images in a fast layout."""
        if self.obstacle is not None:
            return self.obstacle
        with self._own_random_numbers(client):
            for fast in (True, False):
                found = obstacle(self.model, self._loss_fn, sgd, data, targets, fast)
                if not found:
                    break
        self.obstacle, self._fast = found, fast
        return found

    @property
    def _nbytes(self) -> int:
        """What the parameters of one client take."""
        return sum(parameter.nbytes for parameter in self.model.parameters())

    @property
    def _device(self) -> torch.device:
        """Where the model is."""
        for parameter in self.model.parameters():
            return parameter.device
        raise UnusableSetting("model", "a module with parameters", "one without")

    @contextlib.contextmanager
    def _own_random_numbers(self, client: int) -> Iterator[None]:
        """A context with random numbers of one client and round; afterwards all is as it was."""
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(seed_of("model", self.seed, self.rounds, client))
            yield


def _samples_of(dataset: Any) -> Samples:
    """The samples of a data set as two tensors."""
    pair = _pair_of(dataset)
    if len(pair) != 2 or not all(type(part) is torch.Tensor for part in pair):
        raise UnusableSetting("datasets", "pairs of tensors in this process", "something else")
    data, targets = pair
    if len(data) != len(targets):
        wanted = f"as many targets as samples: {len(data)}"
        raise UnusableSetting("datasets", wanted, str(len(targets)))
    return data, targets


def _pair_of(dataset: Any) -> Any:
    """What a data set holds, all of it; samples are put together as torch's ``DataLoader`` does."""
    if isinstance(dataset, tuple):
        return dataset
    if isinstance(dataset, TensorDataset):
        return dataset.tensors
    if isinstance(dataset, BaseDataset):
        return dataset[:]
    return default_collate([dataset[number] for number in range(len(dataset))])
