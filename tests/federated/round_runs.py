"""A run of rounds as a program has it: a model, an optimizer of its own, and random numbers."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

import syft as sy

ROUNDS = 20


def train(model: nn.Module, client: Any, seed: int) -> Any:
    """A step of a client on data of its own, which follows from a seed."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(8, 3, generator=generator).send(client)
    copied: Any = model
    copied = copied.copy().send(client)
    optimizer = torch.optim.SGD(copied.parameters(), lr=0.1)
    copied(x).square().mean().backward()
    optimizer.step()
    return copied


def run(
    clients: Sequence[Any],
    path: Path | None,
    reporting: Sequence[Sequence[str]] | None = None,
    say: Any = lambda number: None,
    **options: Any,
) -> tuple[str, Any]:
    """All rounds; the bits of the weights, and the run.  ``reporting`` names who reports in each
    round, where not all that can do."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9)
    rounds = sy.rounds(
        clients, count=ROUNDS, state=[model, optimizer], resume=path, seed=5, **options
    )
    for round in rounds:
        say(round.number)
        for client in round.clients:
            if reporting is not None and client.id not in reporting[round.number]:
                continue
            with round.attempt(client):
                round.report(client, train(model, client, round.seed(client)), samples=8)
        follow(model, optimizer, round.average())
    return digest_of(model), rounds


def follow(model: nn.Module, optimizer: Any, mean: Mapping[str, torch.Tensor]) -> None:
    """A step of the optimizer towards a mean, with noise of torch's own generator."""
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape) * 1e-3
        parameter.grad = parameter.detach() - mean[name] + noise
    optimizer.step()


def digest_of(model: nn.Module) -> str:
    """The bits of the weights."""
    values = [value.numpy().tobytes() for value in model.state_dict().values()]
    return hashlib.sha256(b"".join(values)).hexdigest()


def coordinate(ports: dict[str, int], path: str) -> None:
    """A program that runs all rounds with the workers at these ports that can be reached."""
    torch.set_num_threads(1)
    hook = sy.TorchHook(torch)
    clients = []
    for name, port in ports.items():
        try:
            clients.append(sy.WebsocketClientWorker(hook, port=port, id=name))
        except (OSError, sy.exceptions.SyftError):
            continue

    def say(number: int) -> None:
        print(number, flush=True)
        time.sleep(0.03)  # so that whoever reads this is not far behind

    digest, _ = run(clients, Path(path), say=say, deadline=20.0)
    print(digest, flush=True)


def save_again_and_again(path: str) -> None:
    """A program that does nothing but end rounds; the state has the number of the round in it."""
    hook = sy.TorchHook(torch)
    count, large = torch.zeros(1), torch.zeros(300_000)
    state = [count, large]
    clients = [sy.VirtualWorker(hook, id="bob")]
    for round in sy.rounds(clients, state=state, resume=Path(path)):
        assert float(count) == round.number and bool((large == count).all()), "another state"
        count += 1
        large += 1
        print(round.number, flush=True)
