"""Train where the data is, one message a step: a whole training step as a plan.

alice and bob each hold some of scikit-learn's handwritten digits.  A training step (forward, loss,
backward, optimizer) is recorded once, as a plan; then a batch costs one message of a few dozen
bytes.  The same training without a plan ends with the same parameters, bit by bit.

Run it with ``python examples/train_with_a_plan.py``.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

import syft as sy

Tensor = Any  # a torch.Tensor, with methods that type checkers cannot know of
Batches = list[tuple[Tensor, Tensor]]

torch.manual_seed(1)
torch.set_num_threads(1)  # the tensors are tiny: a second thread would only be waited for
hook = sy.TorchHook(torch)
alice, bob = sy.VirtualWorker(hook, id="alice"), sy.VirtualWorker(hook, id="bob")
model: Any = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)


def train_step(model: nn.Module, optimizer: Any, images: Tensor, labels: Tensor) -> Tensor:
    """An ordinary training step, as PyTorch's tutorials write it."""
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.detach()


@sy.func2plan(args_shape=[(-1, 64), ((-1,), torch.int64)], state=(model, optimizer))
def planned_step(images: Tensor, labels: Tensor, state: Any) -> Tensor:
    """The same step as a plan: recorded here, it runs anywhere."""
    my_model, my_optimizer = state.read()
    return train_step(my_model, my_optimizer, images, labels)


def with_a_plan(worker: sy.VirtualWorker, batches: Batches) -> Any:
    """Send the plan, call it for each batch, bring it home with what it has learned."""
    there = planned_step.send(worker)
    for images, labels in batches:
        there(images, labels)
    return there.get().state_dict()


def without_a_plan(worker: sy.VirtualWorker, batches: Batches) -> Any:
    """Send the model, and after it each operation of each step."""
    there, its_optimizer = copy.deepcopy((model, optimizer))
    there.send(worker)
    for images, labels in batches:
        train_step(there, its_optimizer, images, labels)
    its_optimizer.zero_grad()
    return there.get().state_dict()


def rounds(way: Any, sites: dict[Any, Batches], images: Tensor, labels: Tensor) -> Iterator[float]:
    """Train at every site and average, round by round; yields the test accuracy after each."""
    for number in range(8):
        torch.manual_seed(number)  # both ways drop the same units
        learned = [way(worker, batches) for worker, batches in sites.items()]
        means = {name: sum(one[name] for one in learned) / len(learned) for name in learned[0]}
        model.load_state_dict(means)
        right = model.eval()(images).argmax(dim=1) == labels
        model.train()
        yield right.float().mean().item()


def shared_out() -> tuple[tuple[Tensor, Tensor], dict[Any, Batches]]:
    """Digits to test with, and for each worker pointers to the batches it holds."""
    pixels, digits = load_digits(return_X_y=True)
    order = torch.randperm(len(digits))
    images: Tensor = torch.tensor(pixels, dtype=torch.float32)[order] / 16
    labels: Tensor = torch.tensor(digits)[order]
    sites: dict[Any, Batches] = {}
    for worker, held in ((alice, slice(0, 600)), (bob, slice(600, 1200))):
        pairs: Any = zip(images[held].split(32), labels[held].split(32), strict=True)
        sites[worker] = [(x.send(worker), y.send(worker)) for x, y in pairs]
    return (images[1200:], labels[1200:]), sites


def main() -> int:
    """Train both ways and compare; the exit status says whether they agree."""
    test, sites = shared_out()
    there = planned_step.send(bob)
    there(*sites[bob][0])
    with sy.trace() as trace:
        there(*sites[bob][1])
    print(f"a training step, from the second on\n{trace}")

    start, ends = copy.deepcopy(model.state_dict()), []
    for way in (with_a_plan, without_a_plan):
        model.load_state_dict(start)
        print(f"\n{way.__name__.replace('_', ' ')}: accuracy after each round")
        began = time.perf_counter()
        with sy.trace() as trace:
            print("  " + "  ".join(f"{one:.1%}" for one in rounds(way, sites, *test)))
        took = time.perf_counter() - began
        print(f"  {len(trace):,} messages, {trace.nbytes:,} bytes, {took:.1f} seconds")
        ends.append(copy.deepcopy(model.state_dict()))
    same = all(map(torch.equal, ends[0].values(), ends[1].values()))
    print(f"\nthe same parameters, bit by bit: {'yes' if same else 'NO'}")
    return not same


if __name__ == "__main__":
    sys.exit(main())
