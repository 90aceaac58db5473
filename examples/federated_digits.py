"""Train on handwritten digits that never leave their two owners, and prove it.

alice and bob each hold half of scikit-learn's handwritten digits, each in a process of her or his
own, which this program starts and talks to over a socket.  You, the data scientist, find the digits
by their tags, send each owner a copy of your model, train it there with ordinary PyTorch, bring the
parameters home, and average.  Every message between the workers is recorded, and all that reached
your worker, ``me``, is searched for images and labels.

What this shows is that the data stayed where it was.  What the parameters themselves may tell about
the data they were trained on is another question; secure sums and differential privacy answer that.

Run it with ``make demo``, or ``python examples/federated_digits.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

import syft as sy
from syft.workers.wire.messages import Done, Value
from syft.workers.shells.message_trace import LoggedMessage

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any
# A worker in this process or in another one: training is the same.
AnyWorker = Any

OUTPUT = Path(__file__).parent / "output"
OWNERS = ("alice", "bob")
BATCH = 32
SEED = 1

# --------------------------------------------------------------------- 1. what the data owners do


@dataclass(frozen=True)
class Digits:
    """Handwritten digits: images as rows of 64 pixels between 0 and 1, labels from 0 to 9."""

    images: Tensor
    labels: Tensor

    def part(self, start: int, stop: int) -> Digits:
        """Some of them, as a data set of their own."""
        return Digits(self.images[start:stop].clone(), self.labels[start:stop].clone())


def handwritten_digits() -> Digits:
    """All 1797 digits that come with scikit-learn, shuffled."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SEED))
    return Digits(
        torch.tensor(images, dtype=torch.float32)[order] / 16, torch.tensor(labels)[order]
    )


def pooled(parts: Sequence[Digits]) -> Digits:
    """All the parts in one place."""
    return Digits(
        torch.cat([part.images for part in parts]), torch.cat([part.labels for part in parts])
    )


def share_of(owner: str) -> dict[str, Digits]:
    """The digits that alice or bob has: a fifth of them to test with, the others to train on."""
    digits = handwritten_digits()
    half, test = len(digits.labels) // 2, len(digits.labels) // 10
    start = OWNERS.index(owner) * half
    return {
        "test": digits.part(start, start + test),
        "train": digits.part(start + test, start + half),
    }


def publish(worker: sy.VirtualWorker, name: str, digits: Digits) -> None:
    """Hold digits on the owner's own worker, where others can find them by their tags."""
    what = f"{len(digits.labels)} handwritten digits"
    images = digits.images.tag("#digits", f"#{name}", "#images").describe(f"{what}, 64 pixels each")
    labels = digits.labels.tag("#digits", f"#{name}", "#labels").describe(f"{what}: what they show")
    worker.hold(images, labels)


def serve(owner: str) -> None:
    """Hold an owner's share and serve it, until the program that reads the address has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for that program, which ends this one
    hook = sy.TorchHook(torch)
    with sy.WebsocketServerWorker(hook, port=0, id=owner) as worker:
        for name, digits in share_of(owner).items():
            publish(worker, name, digits)
        print(worker.address, flush=True)
        sys.stdin.read()


@contextlib.contextmanager
def served(owners: Sequence[str]) -> Iterator[list[str]]:
    """The addresses of the owners' workers, in processes of their own that start together."""
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as ends:
        processes = []
        for owner in owners:
            command = [sys.executable, __file__, "--serve", owner]
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
            processes.append(ends.enter_context(process))
        try:
            yield [process.stdout.readline().strip() for process in processes if process.stdout]
        finally:
            for process in processes:
                if process.stdin is not None:
                    process.stdin.close()  # an owner's process ends then


# ------------------------------------------------------- 2. plain PyTorch, which knows of no worker


def new_model() -> nn.Module:
    """A small convolutional network for images of 8×8 pixels."""
    torch.manual_seed(SEED)
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, kernel_size=3),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 2 * 2, 10),
    )


def new_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Gradient descent with momentum."""
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, digits: Digits, order: Tensor
) -> Tensor:
    """One pass over the digits in the given order; returns the mean loss.

    The same lines train here on plain tensors, and there on pointers.
    """
    total: Tensor = 0.0
    batches = order.split(BATCH)
    for rows in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(digits.images[rows]), digits.labels[rows])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += loss.detach()
    # Gradients would come home with the parameters, and single images can be read off them.
    optimizer.zero_grad()
    return total / len(batches)


def count_right(model: nn.Module, digits: Digits) -> Tensor:
    """How many digits the model reads rightly."""
    with torch.no_grad():
        return (model(digits.images).argmax(dim=1) == digits.labels).sum()


# ------------------------------------------------------------------ 3. what the data scientist does


class Site:
    """One data owner, seen from outside: pointers to what she holds, and a model to send her."""

    def __init__(self, worker: AnyWorker, model: nn.Module) -> None:
        self.worker = worker
        self.train_set = self._find("#train")
        self.test_set = self._find("#test")
        self.size = len(self.train_set.labels)
        self.model: Any = copy.deepcopy(model)
        # Made once, before the model is ever sent; it follows the parameters there and back.
        self.optimizer = new_optimizer(self.model)

    def _find(self, tag: str) -> Digits:
        (images,) = self.worker.search(["#digits", tag, "#images"])
        (labels,) = self.worker.search(["#digits", tag, "#labels"])
        return Digits(images, labels)

    def train(self, start: dict[str, Tensor], order: Tensor) -> float:
        """Train for one pass at the owner's, from the given parameters; returns the mean loss."""
        self.model.load_state_dict(start)
        self.model.send(self.worker)
        loss = train(self.model, self.optimizer, self.train_set, order.send(self.worker))
        self.model.get()
        return float(loss.get())

    def count_right(self, model: nn.Module) -> int:
        """How many of the owner's test digits a model reads rightly: a single number."""
        there: Any = copy.deepcopy(model)
        there.send(self.worker)
        return int(count_right(there, self.test_set).get())


def average(sites: Sequence[Site]) -> dict[str, Tensor]:
    """The mean of the sites' parameters, each weighted by how many digits it has seen."""
    states = [site.model.state_dict() for site in sites]
    weights = [site.size / sum(site.size for site in sites) for site in sites]
    return {
        name: torch.stack([w * state[name] for w, state in zip(weights, states, strict=True)]).sum(
            0
        )
        for name in states[0]
    }


@dataclass
class Curves:
    """What a training run looked like: mean losses and test accuracy, round by round."""

    losses: dict[str, list[float]]
    accuracy: list[float] = field(default_factory=list)


def train_where_the_data_lies(workers: Sequence[AnyWorker], rounds: int) -> Curves:
    """Federated averaging: each round one pass at every owner's, then the mean of the models."""
    model = new_model()
    sites = [Site(worker, model) for worker in workers]
    curves = Curves({site.worker.id: [] for site in sites})
    tests = sum(len(site.test_set.labels) for site in sites)
    dice = torch.Generator().manual_seed(SEED)
    # Without a terminal there is no bar, only a line for each round.
    with tqdm(total=rounds * len(sites), desc="training", unit="pass", disable=None) as bar:
        for number in range(1, rounds + 1):
            start = model.state_dict()
            for site in sites:
                loss = site.train(start, torch.randperm(site.size, generator=dice))
                curves.losses[site.worker.id].append(loss)
                bar.update()
            model.load_state_dict(average(sites))
            curves.accuracy.append(sum(site.count_right(model) for site in sites) / tests)
            losses = "   ".join(
                f"{name} {values[-1]:.4f}" for name, values in curves.losses.items()
            )
            tqdm.write(f"round {number:2d}   loss: {losses}   accuracy {curves.accuracy[-1]:.4f}")
    return curves


def train_with_everything_here(training: Digits, test: Digits, rounds: int) -> Curves:
    """The same model on the pooled data: what nobody could do, for comparison."""
    model = new_model()
    optimizer = new_optimizer(model)
    curves = Curves({"central": []})
    dice = torch.Generator().manual_seed(SEED)
    for _ in range(rounds):
        order = torch.randperm(len(training.labels), generator=dice)
        curves.losses["central"].append(float(train(model, optimizer, training, order)))
        curves.accuracy.append(int(count_right(model, test)) / len(test.labels))
    return curves


# -------------------------------------------------------------------- 4. what reached the scientist

Numbers = NDArray[np.float64]

A_FEW = 10
"""So many pixels or labels in a row are a leak; fewer may be chance."""
ALIKE = 0.999
"""Numbers that correlate with an image better than this are the image."""
FORMATS = ("float32", "int64", "float64", "float16", "int32", "int16", "uint8")
"""Tensor data is read in each of these formats, whatever the message says it is."""
PRECISE = ("header", "float32", "int64", "float64")
"""Those in which an image could hide at another brightness or scale."""


class LeakFinder:
    """Looks for images and labels in messages.

    Everything in a message is read as rows of numbers: those in its header, also in texts, and its
    tensor data in every number format.  A leak is

    - ten numbers or more in a row that are all pixels or labels (0, 1/16 … 1, or 0, 1 … 16), and of
      at least four kinds: from one image or from many, in any order;
    - 64 numbers in a row that are an image but for brightness and contrast, such as stand in the
      gradient of a layer that has seen it.
    """

    def __init__(self, images: Tensor) -> None:
        self._images = _normalized(images.numpy()).T

    def leaks(self, entry: LoggedMessage) -> list[str]:
        """What a message gives away, in words; nothing, one hopes."""
        return [
            f"{leak} in a message from {entry.sender} (its {source})"
            for source, numbers in rows_of_numbers(entry)
            for leak in self._leaks_in(source, numbers)
        ]

    def _leaks_in(self, source: str, numbers: Numbers) -> Iterator[str]:
        if len(numbers) >= A_FEW and longest_run(numbers) >= A_FEW:
            yield "pixels or labels"
        if source.endswith(PRECISE) and self._shows_an_image(numbers):
            yield "an image"

    def _shows_an_image(self, numbers: Numbers) -> bool:
        pixels = len(self._images)
        if len(numbers) < pixels:
            return False
        windows = _normalized(np.lib.stride_tricks.sliding_window_view(numbers, pixels))
        return bool((np.abs(windows @ self._images) > ALIKE).any())


def rows_of_numbers(entry: LoggedMessage) -> Iterator[tuple[str, Numbers]]:
    """Everything in a message that could be read as a row of numbers, and where it stands."""
    header = list(_leaves(msgspec.structs.astuple(entry.message)))
    yield "header", np.fromiter(_numbers_among(header), np.float64)
    raws = [("tensor data", buffer.numpy().tobytes()) for buffer in entry.buffers]
    raws += [("bytes", leaf) for leaf in header if isinstance(leaf, bytes)]
    for source, raw in raws:
        for name in FORMATS:
            whole = len(raw) // np.dtype(name).itemsize * np.dtype(name).itemsize
            with np.errstate(all="ignore"):
                numbers = np.frombuffer(raw[:whole], name).astype(np.float64)
                yield f"{source} as {name}", np.where(np.abs(numbers) < 1e30, numbers, -1.0)


def longest_run(numbers: Numbers) -> int:
    """How many pixels or labels stand in a row at most, where at least four of them differ.

    >>> longest_run(np.array([0.1, 0.5, 0.0625, 7.0, 9.0, -3.0])), longest_run(np.zeros(99))
    (4, 0)
    """
    sixteenths = numbers * 16
    possible = (sixteenths == np.round(sixteenths)) & (sixteenths >= 0)
    possible &= (sixteenths <= 16) | ((sixteenths % 16 == 0) & (sixteenths <= 256))
    edges = np.flatnonzero(np.diff(possible, prepend=False, append=False))
    runs = (numbers[start:stop] for start, stop in zip(edges[::2], edges[1::2], strict=True))
    return max((len(run) for run in runs if len(np.unique(run)) > 3), default=0)


def _normalized(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Rows with mean 0 and length 1, so that a product of two is their correlation."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    unit = np.divide(centred, length, out=np.zeros_like(centred), where=length > 0)
    return np.asarray(unit, np.float32)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _numbers_among(leaves: Iterable[Any]) -> Iterator[float]:
    for leaf in leaves:
        if isinstance(leaf, (int, float)):
            yield float(leaf)
        elif isinstance(leaf, str):
            yield from map(float, re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", leaf))


DONE = "done"
NOTHING = "no, or nothing"
NAMES = "ids, shapes and tags"
GRADIENTS = "which parameters have gradients"
NUMBER = "one number: a loss, a count, a length"
MODEL = "the parameters of the model"
OTHER = "something else"


@dataclass
class Evidence:
    """What reached ``me``: messages and bytes of each kind, and what the search found in them."""

    messages: dict[str, int]
    nbytes: dict[str, int]
    leaks: list[str]

    def __str__(self) -> str:
        rows = [
            ("what reached me", "messages", "bytes"),
            *((kind, f"{n:,}", f"{self.nbytes[kind]:,}") for kind, n in self.messages.items()),
            ("all of it", f"{sum(self.messages.values()):,}", f"{sum(self.nbytes.values()):,}"),
        ]
        return "\n".join(f"  {kind:45}{n:>10}{size:>12}" for kind, n, size in rows)


def examine(entries: Iterable[LoggedMessage], digits: Digits, model: nn.Module) -> Evidence:
    """Sort messages by what they carry, and look for the digits in every one of them."""
    finder = LeakFinder(digits.images)
    size = sum(parameter.nbytes for parameter in model.parameters())
    kinds = (DONE, NOTHING, NAMES, GRADIENTS, NUMBER, MODEL, OTHER)
    evidence = Evidence(dict.fromkeys(kinds, 0), dict.fromkeys(kinds, 0), [])
    for entry in entries:
        kind = _kind(entry, size)
        evidence.messages[kind] += 1
        evidence.nbytes[kind] += entry.nbytes
        evidence.leaks += finder.leaks(entry)
    return evidence


def _kind(entry: LoggedMessage, size_of_model: int) -> str:
    if isinstance(entry.message, Done):
        return DONE
    if not isinstance(entry.message, Value):
        return OTHER
    sizes = [buffer.nbytes for buffer in entry.buffers]
    if len(sizes) == 1 and sizes[0] <= 8:
        return NUMBER
    if sizes:
        return MODEL if sum(sizes) == size_of_model else OTHER
    return _kind_of_header(entry.message.value)


def _kind_of_header(value: Any) -> str:
    if value is None or value is False:
        return NOTHING
    if isinstance(value, (int, float)):
        return NUMBER
    if isinstance(value, bytes):  # one for each parameter: none, of its kind, of another kind
        return GRADIENTS if set(value) <= {0, 1, 2} else OTHER
    exact = all(leaf is None or isinstance(leaf, (int, str)) for leaf in _leaves(value))
    return NAMES if exact else OTHER


# ----------------------------------------------------------------------------- 5. the whole story


@dataclass
class Story:
    """Everything that a run of this file shows."""

    federated: Curves
    central: Curves
    evidence: Evidence
    expected: dict[str, int]
    """How many messages that carry values there must be: what the code above asks for."""

    def problems(self) -> list[str]:
        """The claims of this file that do not hold."""
        ours, theirs = self.federated.accuracy[-1], self.central.accuracy[-1]
        seen = {kind: self.evidence.messages[kind] for kind in self.expected}
        claims = {
            f"no image and no label reached me ({len(self.evidence.leaks)} found)": (
                not self.evidence.leaks
            ),
            f"nothing reached me but what was asked for ({seen})": seen == self.expected,
            f"both models are right 95 times of 100 ({ours:.4f}, {theirs:.4f})": (
                min(ours, theirs) >= 0.95
            ),
            f"the two are within 2 points ({ours:.4f}, {theirs:.4f})": abs(ours - theirs) <= 0.02,
        }
        return [claim for claim, holds in claims.items() if not holds]


def run(rounds: int) -> Story:
    """Train where the data lies, train again on the pooled data, and look at what was said."""
    hook = sy.TorchHook(torch)
    with served(OWNERS) as addresses:
        workers = [sy.connect(address) for address in addresses]
        with hook.record() as log:
            federated = train_where_the_data_lies(workers, rounds)
        for worker in workers:
            worker.close()

    # What nobody could do: have all of the digits in one place, and compare.
    shares = [share_of(owner) for owner in OWNERS]
    training, testing = (pooled([share[name] for share in shares]) for name in ("train", "test"))
    central = train_with_everything_here(training, testing, rounds)
    evidence = examine(log.to("me"), handwritten_digits(), new_model())
    hook.close()
    visits = rounds * len(OWNERS)
    expected = {
        # a visit: the mean loss, and the count of digits read rightly; an owner: how many she has
        NUMBER: 2 * visits + 2 * len(OWNERS),
        MODEL: visits,
        OTHER: 0,
    }
    return Story(federated, central, evidence, expected)


def draw(story: Story, path: Path) -> None:
    """Save the curves as a PNG."""
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    figure.suptitle("Handwritten digits that stay with their owners")
    left, right = figure.subplots(1, 2)
    rounds = range(1, len(story.central.accuracy) + 1)
    colours = {"alice": "tab:orange", "bob": "tab:green", "central": "tab:blue"}
    for curves in (story.federated, story.central):
        for name, losses in curves.losses.items():
            label = "all data in one place" if name == "central" else f"at {name}'s"
            left.plot(rounds, losses, ".-", color=colours[name], label=label)
    left.set(title="Training loss", xlabel="round", ylabel="mean cross-entropy", yscale="log")
    left.legend(loc="upper right")
    for curves, label, colour in (
        (story.federated, "data with its owners", "tab:red"),
        (story.central, "all data in one place", "tab:blue"),
    ):
        percent = [100 * value for value in curves.accuracy]
        right.plot(rounds, percent, ".-", color=colour, label=f"{label}: {percent[-1]:.1f} %")
    right.set(title="Test digits read rightly", xlabel="round", ylabel="accuracy, %")
    right.legend(loc="lower right", title="after the last round")
    for axes in (left, right):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the whole story; the exit status says whether every claim holds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12, help="rounds of averaging (12)")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder for the picture")
    parser.add_argument("--serve", choices=OWNERS, help="be one of the owners: serve the digits")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the tensors are tiny: a second thread would only be waited for
    if options.serve is not None:
        serve(options.serve)
        return 0

    began = time.perf_counter()
    story = run(options.rounds)
    picture = options.output / "federated_digits.png"
    draw(story, picture)

    print(f"""
test accuracy
  averaged model, data with its owners {story.federated.accuracy[-1]:>8.2%}
  the same model, all data in one place{story.central.accuracy[-1]:>8.2%}

{story.evidence}

images and labels found in it: {len(story.evidence.leaks) or "none"}
curves: {picture}
{time.perf_counter() - began:.0f} seconds""")
    problems = story.problems()
    for problem in problems:
        print(f"DOES NOT HOLD: {problem}", file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
