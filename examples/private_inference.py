"""Read handwritten digits with a model that nobody sees, on images that nobody sees.

A hospital has images, a company has a trained model, and neither shows the other what it has.
alice and bob, two workers in processes of their own, get a share of each: integers that are uniform
by themselves.  carol, a third one, deals the randomness they need and gets no share.  What you
write is PyTorch: ``model(images)``.  The answers are the model's, and only you put them together.

The same network runs in plain PyTorch beside it: the digits that both read rightly are counted.

Run it with ``make demo``, or ``python examples/private_inference.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import syft as sy

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any

WORKERS = ("alice", "bob", "carol")
TRAINING = 1200
SEED = 1

# ------------------------------------------------------------------------------- 1. plain PyTorch


def digits() -> tuple[Tensor, Tensor]:
    """All 1797 digits that come with scikit-learn, shuffled: images (n, 1, 8, 8), and labels."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(SEED))
    return (
        torch.tensor(images, dtype=torch.float32)[order].view(-1, 1, 8, 8) / 16,
        torch.tensor(labels)[order],
    )


def new_model() -> nn.Module:
    """A small convolutional network for images of 8×8 pixels."""
    torch.manual_seed(SEED)
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 2 * 2, 10),
    )


def train(model: Any, images: Tensor, labels: Tensor, epochs: int = 12) -> None:
    """Train as anybody would; the company does this before anything is shared."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(epochs):
        order: Any = torch.randperm(len(labels))
        for rows in order.split(32):
            loss: Any = F.cross_entropy(model(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


# ------------------------------------------------------------------------- 2. three other processes


def serve(name: str) -> None:
    """Be one of the workers, until the program that reads the address has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for that program, which ends this one
    torch.set_num_threads(1)
    hook = sy.TorchHook(torch)
    with sy.WebsocketServerWorker(hook, port=0, id=name) as worker:
        print(worker.address, flush=True)
        sys.stdin.read()


@contextlib.contextmanager
def served(names: Sequence[str]) -> Iterator[list[str]]:
    """The addresses of workers in processes of their own, which start together."""
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as ends:
        processes = []
        for name in names:
            command = [sys.executable, __file__, "--serve", name]
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
            processes.append(ends.enter_context(process))
        try:
            yield [process.stdout.readline().strip() for process in processes if process.stdout]
        finally:
            for process in processes:
                if process.stdin is not None:
                    process.stdin.close()  # a worker's process ends then


# ------------------------------------------------------------------------------ 3. the same, shared


def shared_with(model: nn.Module, alice: Any, bob: Any, carol: Any) -> Any:
    """A copy of a model whose parameters are shared."""
    copied: Any = copy.deepcopy(model)
    return copied.fix_precision().share(alice, bob, crypto_provider=carol)


def read(model: Any, images: Any, alice: Any, bob: Any, carol: Any) -> Tensor:
    """The scores of a shared model for images, which are shared too; still shared."""
    return model(images.fix_precision().share(alice, bob, crypto_provider=carol))


@dataclass(frozen=True)
class Outcome:
    """What both ways of reading the same digits came to."""

    private: Tensor
    """The scores of the shared model for the shared images, put together."""
    plain: Tensor
    labels: Tensor
    seconds: float
    cost: sy.Cost
    """Of one batch."""
    batch: int

    def accuracy(self, scores: Tensor) -> float:
        """The part of the digits that is read rightly."""
        return float((scores.argmax(dim=1) == self.labels).float().mean())

    def problems(self) -> list[str]:
        """The claims of this file that do not hold."""
        ours, theirs = self.accuracy(self.private), self.accuracy(self.plain)
        error = float((self.private - self.plain).abs().max())
        claims = {
            f"the accuracies are within 0.2 points ({ours:.4f}, {theirs:.4f})": (
                abs(ours - theirs) <= 0.002
            ),
            f"no score is off by more than 0.01 ({error:.5f})": error <= 0.01,
        }
        return [claim for claim, holds in claims.items() if not holds]


def read_privately(model: nn.Module, images: Tensor, labels: Tensor, batch: int) -> Outcome:
    """Share model and images among three processes, and read the images there."""
    with torch.no_grad():
        plain = model(images)
    hook = sy.TorchHook(torch)
    with served(WORKERS) as addresses, torch.no_grad():
        workers = [sy.connect(address) for address in addresses]
        shared = shared_with(model, *workers)
        cost = sy.cost(read, shared, images[:batch], *workers)
        read(
            shared, images[:batch], *workers
        ).get()  # the weights are opened under their masks, once
        began = time.perf_counter()
        scores = [read(shared, part, *workers).decrypt() for part in images.split(batch)]
        seconds = time.perf_counter() - began
        del shared
        for worker in workers:
            worker.close()
    hook.close()
    return Outcome(torch.cat(scores), plain, labels, seconds, cost, batch)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the whole story; the exit status says whether every claim holds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=512, help="images to read privately (512)")
    parser.add_argument("--batch", type=int, default=128, help="images at once (128)")
    parser.add_argument("--serve", choices=WORKERS, help="be one of the workers")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # three other processes compute
    if options.serve is not None:
        serve(options.serve)
        return 0

    images, labels = digits()
    model = new_model()
    train(model, images[:TRAINING], labels[:TRAINING])
    chosen = slice(TRAINING, TRAINING + options.images)
    outcome = read_privately(model, images[chosen], labels[chosen], options.batch)
    count, cost, batch = len(outcome.labels), outcome.cost, outcome.batch
    print(f"""private inference, {count} test images in batches of {batch}, three processes
  digits read rightly, plain            {outcome.accuracy(outcome.plain):>8.2%}
  digits read rightly, shared           {outcome.accuracy(outcome.private):>8.2%}
  seconds an image                      {outcome.seconds / count:>8.4f}
  rounds a batch                        {cost.rounds:>8}
  bytes a party sends an image          {cost.sent / batch:>8,.0f}
  bytes dealt an image                  {cost.dealt / batch:>8,.0f}""")
    problems = outcome.problems()
    for problem in problems:
        print(f"DOES NOT HOLD: {problem}", file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
