"""Drawn programs of three roles give at workers what they give here, each value sent as a copy.

They send, compute, decide inside a role, use constants at several roles, write to values and to
parts of them, and go backward in between.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy

ROLES = ("local", "alice", "labs")
Move = Callable[[torch.Tensor, str], torch.Tensor]
ALONE: list[Callable[[Any], Any]] = [
    torch.sin,
    torch.tanh,
    lambda x: x.flip(0),
    lambda x: x.view(-1),
    lambda x: sy.cond(x.sum() > 0, lambda y: y * 2, lambda y: -y, x),
]
TOGETHER = [torch.add, torch.mul, torch.sub]


class Drawn:
    """A program of values with their roles, drawn step by step from a seed."""

    def __init__(self, seed: int, trains: bool, move: Move) -> None:
        self.draw, self.trains, self.move = random.Random(seed), trains, move
        self.pool: list[tuple[Any, str]] = []
        self.constants = [torch.full((3,), 2.0), torch.arange(3.0)]
        self.steps = [self.send, self.compute, self.combine, self.use_constant, self.write]
        self.steps += [self.go_backward] if trains else [self.write]

    def run(self, inputs: list[Any], state: dict[str, Any]) -> tuple[Any, ...]:
        for value in inputs:
            role = self.draw.choice(ROLES)
            self.pool.append((self.move(value * 1, role), role))
        self.pool += [(state[role], role) for role in ROLES]
        for _ in range(self.draw.randint(5, 18)):
            self.draw.choice(self.steps)(*self.draw.choice(self.pool))
        if not self.trains:
            return tuple(value.clone() for value, _ in self.pool)
        end = self.draw.choice(ROLES)
        total = sum(self.move(value, end).sum() for value, _ in self.draw.sample(self.pool, 4))
        self.go_backward(total, end)
        gradients = (state[role].grad for role in ROLES)
        return total.detach(), *(torch.zeros(3) if g is None else g.clone() for g in gradients)

    def send(self, value: Any, role: str) -> None:
        to = self.draw.choice(ROLES)
        self.pool.append((self.move(value, to), to))

    def compute(self, value: Any, role: str) -> None:
        self.pool.append((self.draw.choice(ALONE)(value), role))

    def combine(self, value: Any, role: str) -> None:
        other, there = self.draw.choice(self.pool)
        other = other if there == role else self.move(other, role)
        self.pool.append((self.draw.choice(TOGETHER)(value, other), role))

    def use_constant(self, value: Any, role: str) -> None:
        constant = self.draw.choice(self.constants)
        if self.draw.random() < 0.5:
            self.pool.append((value * constant, role))
            return
        total = constant.clone()
        total += value
        self.pool.append((total, role))

    def write(self, value: Any, role: str) -> None:
        if self.trains:  # to a copy, which nothing has used in a graph
            value = value.clone()
            self.pool.append((value, role))
        target = value[:1] if self.draw.random() < 0.5 else value
        target.mul_(self.draw.choice([0.5, -1.0, 2.0]))

    def go_backward(self, value: Any, role: str) -> None:
        total = value.sum()
        if total.requires_grad:
            total.backward(retain_graph=True)


@pytest.fixture
def pair(hook):
    made = [sy.VirtualWorker(hook, id=name) for name in ("bob", "carol")]
    yield made
    for worker in made:
        worker.close()


@pytest.mark.parametrize("trains", [False, True], ids=["writes", "trains"])
@pytest.mark.parametrize("seed", range(15))
def test_a_drawn_program_gives_what_it_gives_here(pair, seed, trains):
    state = {role: torch.randn(3, requires_grad=trains) for role in ROLES}
    plain = copy.deepcopy(state)
    roles = {role: sy.RoleWorker(state=(state[role],)) for role in ROLES}

    def forget(tensors):
        for tensor in tensors.values():
            tensor.grad = None

    @sy.protocol(**roles)
    def drawn(x, y):
        own = {name: role.state.read()[0] for name, role in roles.items()}
        if trains:
            forget(own)
        return Drawn(seed, trains, lambda value, role: value.move(role)).run([x, y], own)

    drawn.build(torch.randn(3), torch.randn(3))
    deployed = drawn.deploy(alice=pair[0], labs=pair[1])
    for _ in range(2):
        inputs = [torch.randn(3) for _ in range(2)]
        forget(plain)
        wanted = Drawn(seed, trains, lambda value, role: value.clone()).run(inputs, plain)
        for found, want in zip(deployed.run(*inputs), wanted, strict=True):
            found = found if found.location is None else found.get()
            torch.testing.assert_close(found, want.detach())
