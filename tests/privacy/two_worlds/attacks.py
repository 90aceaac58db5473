"""What every attack has in common: two new worlds, the attack, and a look at everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from syft.ops.table import BY_NAME
from syft.program.program import Action
from syft.workers.core.peer_limits import DEFAULT_PEER_LIMITS, PeerLimits
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.observer import Failed, Observer
from tests.privacy.two_worlds.world import TwoWorlds, fixed
from tests.sampling import rank

ONE = torch.tensor([1234.5, -8765.25, 3.0])
OTHER = torch.tensor([-77.0, 4096.5, 0.25])
"""The secret of each world."""

Attack = Callable[[Observer], Any]


class Learned(AssertionError):
    """The observer can tell the worlds apart."""


def learned(
    attack: Attack, guarded: bool = True, limits: PeerLimits = DEFAULT_PEER_LIMITS
) -> str | None:
    """What the observer learns by an attack and then by asking for everything; None if nothing.

    Without guards an attack must succeed; if not, it was none.
    """
    with fixed():
        both = TwoWorlds(limits=limits)
        try:
            observer = Observer(both, guarded)
            attack(observer)
            if both.difference is None:
                observer.look()
            return None if both.difference is None else str(both.difference)
        finally:
            both.close()


def check(attack: Attack, limits: PeerLimits = DEFAULT_PEER_LIMITS) -> None:
    """Raise :class:`Learned` if the observer learns anything by an attack."""
    found = learned(attack, limits=limits)
    if found is not None:
        raise Learned(found)


def check_all(attacks: dict[str, Attack]) -> None:
    """The same for many attacks; the error names those that succeed."""
    found = {name: text for name, attack in attacks.items() if (text := learned(attack))}
    if found:
        texts = [f"{name}: {text}" for name, text in [*found.items()][:20]]
        raise Learned(f"{len(found)} of {len(attacks)}:\n" + "\n".join([*texts, " ".join(found)]))


SHARES = [pytest.param(1.0, id="all", marks=pytest.mark.soak), pytest.param(0.25, id="some")]
"""How many of the operations of the table a test takes: a quarter, others each time, or all."""


def drawn(attacks: dict[str, Attack], seed: int, share: float) -> dict[str, Attack]:
    """That share of the attacks: the same ones for the same seed."""
    return {
        name: attack
        for name, attack in attacks.items()
        if int.from_bytes(rank(seed, name)[:4]) < share * 2**32
    }


def check_reaches(attack: Attack, limits: PeerLimits = DEFAULT_PEER_LIMITS) -> None:
    """Assert that an attack would succeed on data that is not private: if not, it is none."""
    found = learned(attack, guarded=False, limits=limits)
    assert found is not None, "the attack does not come to the secret"


def secret(eve: Observer, *shape: int) -> Any:
    """A private tensor at bob: three numbers, or as many as fill a shape."""
    if not shape:
        return eve.secret(ONE, OTHER)
    return eve.secret(_filled(ONE, shape), _filled(OTHER, shape))


def named(
    eve: Observer, *shape: int, worker: str = "bob", destinations: tuple[str, ...] = ("alice",)
) -> Any:
    """The same, where the owner names workers to which it may go."""
    shape = shape or (3,)
    return eve.secret(_filled(ONE, shape), _filled(OTHER, shape), worker, destinations)


def _filled(numbers: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return numbers.repeat(count // 3 + 1)[:count].reshape(shape)


def zeros(eve: Observer, *shape: int, grad: bool = False) -> Any:
    """A public tensor of zeros at bob."""
    return eve.public(torch.zeros(shape or (3,), requires_grad=grad))


def ones(eve: Observer, *shape: int, grad: bool = False) -> Any:
    """A public tensor of ones at bob."""
    return eve.public(torch.ones(shape or (3,), requires_grad=grad))


def succeeded(result: Any) -> Any:
    """A result of a step on public data alone, without which the attack would be none."""
    assert not isinstance(result, Failed), "a public step of the attack failed"
    return result


def action(name: str, *args: Any, out: Any = None, **kwargs: Any) -> Action:
    """One action of a program, by the name of its operation."""
    return Action(BY_NAME[name], args, kwargs, out)


def data_of(eve: Observer, reference: Reference) -> Reference:
    """The same memory without its graph and its version counter."""
    found: Reference = eve.call("torch.Tensor.data.__get__", reference)
    return found


def whole(eve: Observer, one: int = 1, other: int = 2) -> Reference:
    """A private integer."""
    return eve.secret(torch.tensor(one), torch.tensor(other))


def real(eve: Observer, one: float = 1.0, other: float = 2.0) -> Reference:
    """A private number."""
    return eve.secret(torch.tensor(one), torch.tensor(other))


def flag(eve: Observer) -> Reference:
    """A private truth."""
    return eve.secret(torch.tensor(True), torch.tensor(False))
