"""What a data scientist computes from data that she may not see: programs, each a function.

A program gets ``Data``: private tensors at a worker, and a function that brings public ones there.
It never reads a value, and returns what an admitted user reads later, or a list of that.  The same
function runs in plain torch, where its data is public and here; both must come to the same.

They are written as one writes torch, and not as the worker likes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import rnn

Program = Callable[["Data"], Any]


@dataclass
class Data:
    """Private tensors, and ``there``, which brings a public tensor or module to them."""

    x: Any
    """Numbers, of 24 samples with 4 features."""
    y: Any
    """Their classes: 0, 1 or 2."""
    target: Any
    """A number for each sample."""
    mask: Any
    """Which samples belong to a subset."""
    holes: Any
    """``x``, with nan in some places."""
    images: Any
    """24 images of 1 × 8 × 8."""
    words: Any
    """24 sequences of 5 tokens, out of 10."""
    there: Callable[[Any], Any]


PROGRAMS: dict[str, Program] = {}


def program(run: Program) -> Program:
    """Have a function be one of the programs, under its name."""
    PROGRAMS[run.__name__] = run
    return run


def trained(d: Data, model: nn.Module, loss: Callable[[Any], Any], **how: Any) -> Any:
    """The parameters after five steps; ``how`` are the optimizer and its settings."""
    kind: Any = how.pop("kind", torch.optim.SGD)
    model = d.there(model)
    optimizer = kind(model.parameters(), lr=how.pop("lr", 0.05), **how)
    for _ in range(5):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def mlp(inputs: int = 4, outputs: int = 3) -> nn.Module:
    """A small network."""
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs))


# ---------------------------------------------------------------------------------- training


@program
def linear_regression(d: Data) -> Any:
    return trained(d, nn.Linear(4, 1), lambda m: F.mse_loss(m(d.x).squeeze(1), d.target))


@program
def logistic_regression(d: Data) -> Any:
    wanted = (d.y > 0).float()
    loss = F.binary_cross_entropy_with_logits
    return trained(d, nn.Linear(4, 1), lambda m: loss(m(d.x).squeeze(1), wanted))


@program
def network(d: Data) -> Any:
    return trained(d, mlp(), lambda m: F.cross_entropy(m(d.x), d.y))


@program
def network_by_adam(d: Data) -> Any:
    return trained(d, mlp(), lambda m: F.cross_entropy(m(d.x), d.y), kind=torch.optim.Adam)


@program
def network_by_adamw_with_decay(d: Data) -> Any:
    how: Any = {"kind": torch.optim.AdamW, "weight_decay": 0.1}
    return trained(d, mlp(), lambda m: F.cross_entropy(m(d.x), d.y), **how)


@program
def network_with_momentum(d: Data) -> Any:
    return trained(d, mlp(), lambda m: F.cross_entropy(m(d.x), d.y), momentum=0.9, nesterov=True)


@program
def network_by_rmsprop(d: Data) -> Any:
    return trained(d, mlp(), lambda m: F.cross_entropy(m(d.x), d.y), kind=torch.optim.RMSprop)


@program
def regression_by_lbfgs(d: Data) -> Any:
    model = d.there(nn.Linear(4, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = F.mse_loss(model(d.x).squeeze(1), d.target)
        loss.backward()
        return loss

    optimizer.step(closure)
    return [parameter.detach() for parameter in model.parameters()]


@program
def convolutions(d: Data) -> Any:
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
    )
    return trained(d, model, lambda m: F.cross_entropy(m(d.images), d.y))


@program
def convolutions_with_batch_norm(d: Data) -> Any:
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(4, 3)),
    )
    return trained(d, model, lambda m: F.cross_entropy(m(d.images), d.y))


class Sequences(nn.Module):
    """Embedded tokens, a recurrent network, and a layer on its last state."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 6)
        self.network = kind(6, 5, batch_first=True)
        self.last = nn.Linear(5, 3)

    def forward(self, words: Any) -> Any:
        """Scores of the classes."""
        states, _ = self.network(self.embedding(words))
        return self.last(states[:, -1])


@program
def lstm(d: Data) -> Any:
    return trained(d, Sequences(nn.LSTM), lambda m: F.cross_entropy(m(d.words), d.y))


@program
def gru(d: Data) -> Any:
    return trained(d, Sequences(nn.GRU), lambda m: F.cross_entropy(m(d.words), d.y))


@program
def bag_of_words(d: Data) -> Any:
    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag, self.last = nn.EmbeddingBag(10, 6), nn.Linear(6, 3)

        def forward(self, words: Any) -> Any:
            return self.last(self.bag(words))

    return trained(d, Bag(), lambda m: F.cross_entropy(m(d.words), d.y))


@program
def packed_sequences(d: Data) -> Any:
    """The lengths are public: they belong to the program."""
    lengths = torch.tensor([5, 4, 3, 2] * 6)
    embedding, network = d.there(nn.Embedding(10, 6)), d.there(nn.GRU(6, 5, batch_first=True))
    packed = rnn.pack_padded_sequence(
        embedding(d.words), lengths, batch_first=True, enforce_sorted=False
    )
    return network(packed)[1].detach()


@program
def attention(d: Data) -> Any:
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10, 8)
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.last = nn.Linear(8, 3)

        def forward(self, words: Any) -> Any:
            words = self.embedding(words)
            return self.last(self.attention(words, words, words, need_weights=False)[0].mean(1))

    return trained(d, Attending(), lambda m: F.cross_entropy(m(d.words), d.y))


@program
def trained_on_a_subset(d: Data) -> Any:
    return trained(d, mlp(), lambda m: F.cross_entropy(m(d.x[d.mask]), d.y[d.mask]))


@program
def regression_on_a_subset(d: Data) -> Any:
    rows = d.target > 0
    return trained(
        d, nn.Linear(4, 1), lambda m: F.mse_loss(m(d.x[rows]).squeeze(1), d.target[rows])
    )


@program
def trained_on_what_the_model_finds_hard(d: Data) -> Any:
    def loss(model: Any) -> Any:
        each = F.cross_entropy(model(d.x), d.y, reduction="none")
        return each[each > each.detach().mean()].mean()

    return trained(d, mlp(), loss)


@program
def batch_norm_on_a_subset(d: Data) -> Any:
    model = nn.Sequential(
        *(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.0)),
        nn.Linear(8, 3),
    )
    return trained(d, model, lambda m: F.cross_entropy(m(d.x[d.mask]), d.y[d.mask]))


@program
def convolutions_on_a_subset(d: Data) -> Any:
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        nn.Linear(36, 3),
    )
    return trained(d, model, lambda m: F.cross_entropy(m(d.images[d.mask]), d.y[d.mask]))


@program
def classifier_of_a_subset_with_squeezed_scores(d: Data) -> Any:
    def loss(model: Any) -> Any:
        wanted = (d.y[d.mask] > 0).float()
        return F.binary_cross_entropy_with_logits(model(d.x[d.mask]).squeeze(), wanted)

    return trained(d, nn.Linear(4, 1), loss, kind=torch.optim.Adam)


@program
def least_squares_on_a_subset(d: Data) -> Any:
    return torch.linalg.lstsq(d.x[d.mask], d.target[d.mask][:, None]).solution


@program
def components_of_a_subset(d: Data) -> Any:
    rows = d.x[d.mask]
    rows = (rows - rows.mean(0)) / rows.std(0)
    return torch.linalg.eigvalsh(rows.T @ rows)


@program
def neighbours_in_a_subset(d: Data) -> Any:
    return d.y[d.mask][torch.cdist(d.x, d.x[d.mask]).argmin(1)]


@program
def folds_by_masks(d: Data) -> Any:
    model = d.there(mlp())
    return [F.cross_entropy(model(d.x[fold]), d.y[fold]).detach() for fold in (d.mask, ~d.mask)]


@program
def weighted_classes(d: Data) -> Any:
    weights = 1.0 / (torch.bincount(d.y, minlength=3).float() + 1.0)
    return trained(d, mlp(), lambda m: F.cross_entropy(m(d.x), d.y, weight=weights))


@program
def weighted_classes_of_one_hot_counts(d: Data) -> Any:
    weights = 1.0 / (F.one_hot(d.y, 3).sum(0).float() + 1.0)
    return trained(d, mlp(), lambda m: F.cross_entropy(m(d.x), d.y, weight=weights))


@program
def smoothed_labels_and_clipped_gradients(d: Data) -> Any:
    model = d.there(mlp())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(model(d.x), d.y, label_smoothing=0.1).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


@program
def minibatches_with_a_schedule(d: Data) -> Any:
    model = d.there(mlp())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for _ in range(2):
        for rows in torch.arange(24).split(8):
            optimizer.zero_grad()
            F.cross_entropy(model(d.x[rows]), d.y[rows]).backward()
            optimizer.step()
        schedule.step()
    return [parameter.detach() for parameter in model.parameters()]


@program
def early_stopping_without_looking(d: Data) -> Any:
    """The best parameters so far are kept by ``where``, since nobody may branch on the loss."""
    model = d.there(nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    best, kept = None, [parameter.detach().clone() for parameter in model.parameters()]
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(d.x), d.y)
        loss.backward()
        optimizer.step()
        loss = loss.detach()
        better = loss < 10.0 if best is None else loss < best
        best = loss if best is None else torch.minimum(best, loss)
        pairs = zip(model.parameters(), kept, strict=True)
        kept = [torch.where(better, parameter.detach(), old) for parameter, old in pairs]
    return kept


@program
def autoencoder(d: Data) -> Any:
    return trained(d, mlp(4, 4), lambda m: F.smooth_l1_loss(m(d.x), d.x))


@program
def contrastive_loss(d: Data) -> Any:
    def loss(model: Any) -> Any:
        points = F.normalize(model(d.x), dim=1)
        same = (d.y[:, None] == d.y[None, :]).float()
        return (same * (1 - points @ points.T)).sum() / same.sum()

    return trained(d, mlp(), loss)


@program
def least_squares_by_newton(d: Data) -> Any:
    return torch.linalg.solve(d.x.T @ d.x + d.there(0.1 * torch.eye(4)), d.x.T @ d.target)


# ----------------------------------------------------------------------------------- metrics


@program
def accuracy(d: Data) -> Any:
    return (d.there(mlp())(d.x).argmax(1) == d.y).float().mean()


@program
def accuracy_of_a_subset(d: Data) -> Any:
    right = d.there(mlp())(d.x).argmax(1) == d.y
    return right[d.mask].float().mean()


@program
def confusion_by_bincount(d: Data) -> Any:
    guess = d.x[:, :3].argmax(1)
    return torch.bincount(d.y * 3 + guess, minlength=9).reshape(3, 3)


@program
def confusion_by_scatter(d: Data) -> Any:
    guess = d.x[:, :3].argmax(1)
    ones = torch.ones_like(d.y)
    return d.there(torch.zeros(9, dtype=torch.int64)).scatter_add(0, d.y * 3 + guess, ones)


@program
def confusion_by_index_put(d: Data) -> Any:
    guess = d.x[:, :3].argmax(1)
    matrix = d.there(torch.zeros(3, 3))
    return matrix.index_put((d.y, guess), torch.ones_like(d.target), accumulate=True)


@program
def precision_and_recall(d: Data) -> Any:
    guess, truth = d.x[:, 0] > 0, d.y > 0
    hits = (guess & truth).sum()
    return [hits / guess.sum().clamp(min=1), hits / truth.sum().clamp(min=1)]


@program
def roc_by_thresholds(d: Data) -> Any:
    scores, truth = torch.sigmoid(d.x[:, 0]), d.y > 0
    above = scores[None, :] >= d.there(torch.linspace(0, 1, 11)[:, None])
    return [(above & truth).sum(1) / truth.sum(), (above & ~truth).sum(1) / (~truth).sum()]


@program
def area_by_ranks(d: Data) -> Any:
    truth = (d.y > 0).float()
    ranks = d.x[:, 0].argsort().argsort().float() + 1
    positive = truth.sum()
    return ((ranks * truth).sum() - positive * (positive + 1) / 2) / (positive * (24 - positive))


@program
def area_by_trapezoids(d: Data) -> Any:
    order = d.x[:, 0].argsort(descending=True)
    hits = (d.y > 0).float()[order].cumsum(0)
    misses = d.there(torch.arange(1, 25)) - hits
    return torch.trapezoid(hits / hits[-1], misses / misses[-1])


@program
def r_squared(d: Data) -> Any:
    guess = d.x.sum(1)
    rest = ((d.target - guess) ** 2).sum()
    return 1 - rest / ((d.target - d.target.mean()) ** 2).sum()


@program
def top_k_accuracy(d: Data) -> Any:
    found = d.there(mlp())(d.x).topk(2, dim=1).indices
    return (found == d.y[:, None]).any(1).float().mean()


@program
def f1_of_each_class(d: Data) -> Any:
    guess, truth = F.one_hot(d.x[:, :3].argmax(1), 3), F.one_hot(d.y, 3)
    return 2 * (guess & truth).sum(0) / (guess.sum(0) + truth.sum(0))


# -------------------------------------------------------------------------------- clustering


@program
def k_means(d: Data) -> Any:
    centres = d.x[:3]
    for _ in range(3):
        nearest = torch.cdist(d.x, centres).argmin(1)
        member = F.one_hot(nearest, 3).float()
        centres = (member.T @ d.x) / member.sum(0)[:, None].clamp(min=1)
    return centres


@program
def k_means_by_index_add(d: Data) -> Any:
    centres = d.x[:3]
    nearest = ((d.x[:, None] - centres[None]) ** 2).sum(-1).argmin(1)
    sums = torch.zeros_like(centres).index_add(0, nearest, d.x)
    return sums / torch.bincount(nearest, minlength=3)[:, None].clamp(min=1)


@program
def k_means_by_masks(d: Data) -> Any:
    nearest = torch.cdist(d.x, d.x[:3]).argmin(1)
    return torch.stack([d.x[nearest == each].mean(0) for each in range(3)])


@program
def nearest_neighbours(d: Data) -> Any:
    apart = torch.cdist(d.x, d.x) + d.there(torch.eye(24) * 100)
    return d.y[apart.topk(3, largest=False).indices].mode(1).values


@program
def cluster_sizes(d: Data) -> Any:
    return F.one_hot(torch.cdist(d.x, d.x[:3]).argmin(1), 3).sum(0)


# -------------------------------------------------------------------------------- statistics


@program
def moments(d: Data) -> Any:
    return [d.x.mean(0), d.x.var(0), d.x.std(0, unbiased=False), *torch.std_mean(d.x)]


@program
def quantiles(d: Data) -> Any:
    return [torch.quantile(d.x, d.there(torch.tensor([0.25, 0.5, 0.75])), dim=0), d.x.quantile(0.9)]


@program
def medians(d: Data) -> Any:
    return [d.x.median(), d.x.median(0).values, d.holes.nanmedian()]


@program
def counts_by_histc(d: Data) -> Any:
    return torch.histc(d.x, bins=5, min=-2, max=2)


@program
def counts_by_histc_between_extremes(d: Data) -> Any:
    return torch.histc(d.x, bins=5)


@program
def histogram(d: Data) -> Any:
    return torch.histogram(d.x.flatten(), d.there(torch.linspace(-3, 3, 7))).hist


@program
def histogram_with_a_range(d: Data) -> Any:
    return list(torch.histogram(d.x.flatten(), bins=4, range=(-2.0, 2.0)))


@program
def histogram_by_buckets(d: Data) -> Any:
    edges = d.there(torch.linspace(-3, 3, 7))
    return F.one_hot(torch.bucketize(d.x.flatten(), edges), 8).sum(0)


@program
def counts_of_classes(d: Data) -> Any:
    return torch.bincount(d.y, minlength=3)


@program
def weighted_counts(d: Data) -> Any:
    return torch.bincount(d.y, weights=d.target, minlength=3)


@program
def covariance(d: Data) -> Any:
    return torch.cov(d.x.T)


@program
def correlation(d: Data) -> Any:
    return torch.corrcoef(d.x.T)


@program
def least_squares(d: Data) -> Any:
    return torch.linalg.lstsq(d.x, d.target[:, None]).solution


@program
def unique_classes(d: Data) -> Any:
    return d.y.unique()


@program
def order_statistics(d: Data) -> Any:
    return [
        d.x.sort(0).values,
        d.x.topk(3, dim=0).values,
        d.target.cumsum(0),
        d.x.kthvalue(2, 0)[0],
    ]


@program
def trimmed_mean(d: Data) -> Any:
    return d.x.sort(0).values[2:-2].mean(0)


@program
def mean_of_a_subset(d: Data) -> Any:
    return d.x[d.mask].mean(0)


@program
def moving_windows(d: Data) -> Any:
    return [d.target.unfold(0, 4, 1).mean(1), F.avg_pool1d(d.x.T[None], 3, 1)[0]]


@program
def pivot_by_index_add(d: Data) -> Any:
    return d.there(torch.zeros(3, 4)).index_add(0, d.y, d.x)


@program
def pivot_by_scatter_reduce(d: Data) -> Any:
    return d.there(torch.zeros(3)).scatter_reduce(0, d.y, d.target, "mean", include_self=False)


@program
def principal_components_by_svd(d: Data) -> Any:
    _, sizes, turned = torch.linalg.svd(d.x - d.x.mean(0), full_matrices=False)
    return [sizes, turned.abs()]


@program
def principal_components_by_eigh(d: Data) -> Any:
    middle = d.x - d.x.mean(0)
    sizes, turned = torch.linalg.eigh(middle.T @ middle / 23)
    return [sizes, turned.abs()]


@program
def standardised(d: Data) -> Any:
    return (d.x - d.x.mean(0, keepdim=True)) / d.x.std(0, keepdim=True)


@program
def imputed(d: Data) -> Any:
    return torch.where(d.holes.isnan(), d.holes.nanmean(0), d.holes)


@program
def imputed_in_place(d: Data) -> Any:
    filled = d.holes.clone()
    filled[filled.isnan()] = 0.0
    return filled
