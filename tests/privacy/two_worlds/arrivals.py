"""What an attack leaves where the owner of private data let it go, read as that owner.

An attack that teaches nothing may have done nothing.  So attacks on data that may go to alice say
what they leave at which worker; here ann asks for that, in both worlds, and compares it with
what plain torch makes of her numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from syft.serde.errors import unpack_error
from syft.serde.frame import Frame
from syft.serde.packer import Unpacker
from syft.serde.registry import unpack
from syft.workers.labels.memory_labels import full_guard_of
from syft.workers.wire import messages
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.attacks import ONE, OTHER, named, succeeded
from tests.privacy.two_worlds.observer import Observer
from tests.privacy.two_worlds.world import OWNER, TwoWorlds, World, fixed

Expected = Callable[[torch.Tensor], torch.Tensor]
BOTH = ("alice", "bob")


@dataclass(frozen=True, slots=True)
class Left:
    """An object, or the gradient of a leaf, that an attack leaves at a worker.

    ``expected`` makes the values of ann's numbers, or is None if no gradient came; ``failed`` is
    the error that ann gets in the first world in place of them.  ``destinations`` are those of its
    guard.
    """

    what: Any
    worker: str
    expected: Expected | None
    destinations: Sequence[str] = BOTH
    gradient: bool = False
    failed: type[Exception] | None = None

    def check(self, world: World, numbers: torch.Tensor, failed: bool) -> None:
        """Assert that it is there, under its guard, and what ann reads."""
        id = self.what.id if isinstance(self.what, Reference) else self.what
        worker = world.workers[self.worker]
        stored = worker.core.store.objects[id]
        value = stored.grad if self.gradient else stored
        if self.expected is None:
            assert value is None
            return
        guard = full_guard_of(value)
        assert guard is not None and guard.users == {OWNER}
        assert guard.destinations == {*self.destinations}
        if self.gradient:
            found = guard.error or value.detach()
        else:
            found = _read(world, self.worker, id)
        if failed:
            assert self.failed is not None and type(found) is self.failed
        else:
            torch.testing.assert_close(found, self.expected(numbers))


def _read(world: World, worker: str, id: int) -> Any:
    """What ann gets when she asks for an object, which stays: a tensor or an error."""
    core, peer = world.workers[worker].core, world.peers[worker, OWNER]
    reply = core.respond(Frame(messages.encode(messages.Fetch(0, id, 0, True)), []), peer)
    message: Any = messages.decode(reply.header)
    if isinstance(message, messages.Failure):
        return unpack_error(message.error, Unpacker([]))[0]
    return unpack(message.value, Unpacker(list(reply.buffers))).detach()


def check_arrives(attack: Callable[[Observer], Sequence[Left]]) -> None:
    """Assert that an attack leaves what it says, in both worlds."""
    with fixed():
        both = TwoWorlds()
        try:
            left = attack(Observer(both))
            assert both.difference is None, str(both.difference)
            for number, (world, numbers) in enumerate(zip(both.worlds, (ONE, OTHER), strict=True)):
                for one in left:
                    one.check(world, numbers, one.failed is not None and not number)
        finally:
            both.close()


# ---------------------------------------------------------- steps that several attacks begin with


def twice(numbers: torch.Tensor) -> torch.Tensor:
    return numbers * 2


def doubled(eve: Observer, **about: Any) -> Reference:
    """What the observer computed at bob from ann's data is an object of hers: she may move it."""
    return computed(eve, named(eve, **about), **about)


def computed(eve: Observer, private: Reference, worker: str = "bob", **about: Any) -> Reference:
    found: Reference = succeeded(eve.call("torch.mul", private, 2, worker=worker))
    return found


def at_alice(eve: Observer, **about: Any) -> Reference:
    """Twice ann's data, moved to alice."""
    found: Reference = succeeded(eve.move(doubled(eve, **about), "alice"))
    return found


def failed_take(eve: Observer, worker: str = "bob") -> Reference:
    """A result that is there in both worlds; in the first one its command failed for its index.

    If nothing is private, everybody sees that it failed.
    """
    index = eve.secret(torch.tensor([9]), torch.tensor([1]), worker, BOTH)
    at = named(eve, worker=worker, destinations=BOTH)
    found = eve.call("torch.take", at, index, worker=worker)
    return succeeded(found) if eve.guarded else Reference(0)


def own(eve: Observer, worker: str = "alice") -> Reference:
    """Ones of the observer's, which everybody may read."""
    return eve.public(torch.ones(3), worker)


def secret_at_alice(eve: Observer, *destinations: str) -> Reference:
    return named(eve, worker="alice", destinations=destinations)


def phase_of_eigenvectors(
    eve: Observer, part: Reference, at: str = "bob", destinations: tuple[str, ...] = BOTH
) -> Any:
    """A number whose backward pass fails, since it depends on the phase of eigenvectors, unless the
    gradient that comes in is zero: so it is in the second world."""
    turn = eve.public(torch.tensor([[1, 2j], [-2j, 3]]), at)
    factor = eve.secret(torch.tensor(1.0), torch.tensor(0.0), at, destinations)
    matrix = eve.call("torch.mul", part, turn, worker=at)
    found = eve.call("torch.sum", eigenvectors(eve, matrix, at), worker=at)
    return eve.call("torch.real", eve.call("torch.mul", found, factor, worker=at), worker=at)


def eigenvectors(eve: Observer, matrix: Any, at: str) -> Any:
    """The second result of ``eigh``, if there is one."""
    found = eve.call("torch.linalg.eigh", matrix, worker=at)
    return found[1] if isinstance(found, tuple) else found
