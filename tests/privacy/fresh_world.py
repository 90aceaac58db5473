"""A worker with private data as its owner made it, and a stranger who uses the public interface.

An attack is a function of a :class:`World`: what a stranger does with tensors and workers, as a
user's program would.  It returns whatever she has got: pointers, tensors, numbers.  It is run in
two worlds that differ in the values of what is secret, and all that she can observe is compared:
what she has got, what everything of it answers, the errors with their tracebacks, what has come to
a worker of her own, and, within one process, the kinds of the messages that came to her.
"""

from __future__ import annotations

import contextlib
import logging
import random
import re
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import syft as sy
from syft.chain.wrapper import Wrapper
from syft.workers.core.peer_limits import DEFAULT_PEER_LIMITS, PeerLimits
from syft.workers.wire.messages import Exchange
from tests.shells.child import make_worker
from tests.shells.owner import inspect, seed
from tests.shells.served import Served

ONE = torch.tensor([2.5, -1.0, 4.0, -3.0])
OTHER = torch.tensor([1.25, 7.0, -2.0, 1.5])
"""The secret of each world: two numbers of the first and three of the second are more than one."""
SINGULAR = torch.zeros(2, 2), torch.eye(2)
"""Matrices of which that of the second world has an inverse."""
INDICES = [0, 1], [0, 9]
"""Indices of which those of the second world lie outside."""
_ID = re.compile(
    r"127\.0\.0\.1:\d+|0x[0-9a-f]+|(?<![.\d])[0-9]{9,}|#[0-9]{6,}|(?<=under reference )[0-9a-f]{8}"
)
PLACES = (
    "immediate",
    pytest.param("queued", marks=pytest.mark.database(together="attacks at queued workers")),
    pytest.param("socket", marks=pytest.mark.database(together="attacks over sockets")),
)
"""Where the workers are: in this process, answering at once or later, or each in another one."""
_QUESTIONS = ("shape", "dtype", "layout", "requires_grad", "is_leaf", "ndim")


class World:
    """Two honest workers, ``bob`` and ``alice``, and ``mallory``, who belongs to the stranger.

    ``ann`` owns what is secret.  ``eve`` is bob as the stranger has it, and ``dan`` is bob as
    another user has it, who works with her.
    """

    def __init__(
        self,
        number: int,
        private: bool,
        limits: PeerLimits = DEFAULT_PEER_LIMITS,
        queued: bool = False,
        served: Served | None = None,
    ) -> None:
        self.number, self.private = number, private
        self.hook = sy.TorchHook(torch)
        self.log = self.hook.record()
        self.log.__enter__()
        if served is None:
            self.bob: Any = sy.VirtualWorker(
                self.hook, id="bob", peer_limits=limits, pipelined=queued
            )
        else:
            network: Any = self.hook.local_worker.network
            network.served = served
            served.forget()
            self.bob = make_worker(self.hook, "bob")
        self.alice = make_worker(self.hook, "alice", pipelined=queued)
        self.mallory = make_worker(self.hook, "mallory", pipelined=queued)
        for worker in (self.bob, self.alice, self.mallory):
            seed(worker, 7)
        self.ann, self.eve, self.dan = (self.bob.as_user(name) for name in ("ann", "eve", "dan"))
        self.kept: list[Any] = []
        self.names = 0

    def secret(
        self, one: Any = ONE, other: Any = OTHER, at: Any = None, grad: bool = False, **terms: Any
    ) -> Any:
        """Something of ann's, of which everybody may know the shape, as eve finds it."""
        self.names += 1
        tag = f"#secret{self.names}"
        made = (one, other)[self.number]
        made = (made if isinstance(made, torch.Tensor) else torch.tensor(made)).clone()
        made = made.requires_grad_() if grad else made
        if self.private:
            made = made.private_tensor(["ann"], **terms)
        at = self.bob if at is None else at
        self.kept.append(made.tag(tag).send(at.as_user("ann")))
        (found,) = at.as_user("eve").search(tag)
        return found

    def public(self, *numbers: float, grad: bool = False, at: Any = None) -> Any:
        """Something of eve's own."""
        made = torch.tensor(numbers or (0.0, 0.0, 0.0, 0.0), dtype=torch.float32)
        return made.requires_grad_(grad).send(self.eve if at is None else at)

    def ones(self) -> Any:
        """A leaf of hers, of ones."""
        return self.public(1, 1, 1, 1, grad=True)

    def tried(self, *steps: Callable[[], Any]) -> list[str]:
        """What each of these comes to, errors too."""
        return [self.outcome(step) for step in steps]

    def outcome(self, step: Callable[[], Any]) -> str:
        """What something returns or raises, as text."""
        try:
            return self.seen(step())
        except Exception as error:  # whatever it is, it is what the stranger is told
            return told(error, isinstance(self.bob, sy.VirtualWorker))

    def seen(self, it: Any) -> str:
        """All that can be seen of something, as text without ids."""
        if isinstance(it, Wrapper):
            return self._asked(it)
        if isinstance(it, torch.Tensor):
            values = it.tolist() if it.layout is torch.strided else it
            gradient = it.grad if it.is_leaf else None
            along = "" if gradient is None else f" with {self.seen(gradient)}"
            return f"{it.dtype} {tuple(it.shape)} {values}{along}"
        if isinstance(it, dict):
            return f"{{{', '.join(f'{key}: {self.seen(value)}' for key, value in it.items())}}}"
        if isinstance(it, (list, tuple)) and type(it) is not torch.Size:
            return f"({', '.join(map(self.seen, it))})"
        return without_ids(repr(it))

    def _asked(self, it: Any) -> str:
        asked = [self.outcome(lambda name=name: getattr(it, name)) for name in _QUESTIONS]
        asked.append(self.outcome(lambda: it.copy().get()))
        gradient = self.outcome(lambda: _gradient_of(it))
        return f"<{'; '.join((*asked, gradient, without_ids(repr(it))))}>"

    def close(self) -> list[str]:
        """What is at the stranger's worker, and what the workers show; then all is dropped."""
        held = [self.seen(value) for value in inspect(self.mallory).objects.values()]
        self.log.__exit__(None, None, None)
        # what parties exchange is masked anew each time
        came = [it.buffers for it in self.log.to("mallory") if type(it.message) is not Exchange]
        held += [repr(buffer.numpy().tobytes()) for buffers in came for buffer in buffers]
        if isinstance(self.bob, sy.VirtualWorker):  # elsewhere several go on at once, by themselves
            held += [type(it.message).__name__ for it in self.log.to("me")]
        counts = [worker.objects_count() for worker in (self.bob, self.alice, self.mallory)]
        self.kept.clear()
        self.hook.close()
        return [*held, repr(counts)]


def _gradient_of(it: Any) -> Any:
    gradient = it.grad
    return None if gradient is None else gradient.copy().get()


def without_ids(text: str) -> str:
    """A text without what is drawn anew each time."""
    return _ID.sub("#", text)


def told(error: BaseException, frames: bool) -> str:
    """What an error tells: its class, its text, its notes and where it arose.

    Without ``frames``, which depend on which of several processes was first, if these go on by
    themselves.
    """
    every = "".join(traceback.format_exception(error)).splitlines(keepends=True)
    lines = "".join(line for line in every if frames or not line.startswith(" "))
    return without_ids(f"{type(error).__name__}: {error} {lines}")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """A context without warnings and logs."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


Attack = Callable[[World], Any]


class Attacks(dict[str, Attack]):
    """A table of attacks by their names."""

    def enter(self, attack: Attack) -> Attack:
        """Enter an attack into the table."""
        self[attack.__name__] = attack
        return attack

    def check(self, name: str, **settings: Any) -> None:
        """Assert that a stranger learns nothing of what is private."""
        assert (found := difference(self[name], private=True, **settings)) is None, found

    def check_reaches(self, name: str, **settings: Any) -> None:
        """Assert that she learns something of what is public, each time the same."""
        assert difference(self[name], private=False, **settings) is not None
        one, again = (observed(self[name], 0, private=False, **settings) for _ in range(2))
        assert one == again, "what is observed does not follow from the secret alone"


def tests_of(attacks: Attacks) -> tuple[Callable[..., None], Callable[..., None]]:
    """The two tests of a table, at each place: of what is private nothing is learned; and its
    control, that the same attack learns what is public."""

    @pytest.mark.parametrize("name", attacks)
    def test_nothing_is_learned(name: str, place: dict[str, Any]) -> None:
        attacks.check(name, **place)

    @pytest.mark.parametrize("name", attacks)
    def test_something_is_learned(name: str, place: dict[str, Any]) -> None:
        attacks.check_reaches(name, **place)

    return test_nothing_is_learned, test_something_is_learned


def observed(attack: Attack, number: int, private: bool, **settings: Any) -> list[str]:
    """All that the stranger observes of an attack in one world."""
    torch.manual_seed(7)
    random.seed(7)
    world = World(number, private, **settings)
    with quiet():
        try:
            got = [world.outcome(lambda: attack(world))]
        finally:
            got += world.close()
    return got


def difference(attack: Attack, private: bool, **settings: Any) -> str | None:
    """Where what is observed differs in the two worlds; None if it does not."""
    one, other = (observed(attack, number, private, **settings) for number in (0, 1))
    if one == other:
        return None
    a, b = "\n".join(one), "\n".join(other)
    place = next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), 0)
    return f"{a[max(0, place - 60) : place + 60]!r} against {b[max(0, place - 60) : place + 60]!r}"
