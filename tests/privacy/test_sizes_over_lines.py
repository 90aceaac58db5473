"""What limits tell of private sizes where requests are queued, and where the worker is elsewhere.

Replies come later there, and several requests are on their way at once.  The attacks are those of
``two_worlds/test_private_sizes.py`` by pointers.  One worker holds the data of both worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import SyftError
from syft.workers.core.peer_limits import PeerLimits

pytestmark = pytest.mark.every_shell

FEW = PeerLimits(bytes=4000, results=12, elements=5000)
"""Limits that small tensors meet; a store with these counts every object."""
SIZE = 20
THRESHOLDS = (-1.0, 8.5, 14.5)
WORLDS = (
    torch.arange(float(SIZE)),
    torch.tensor([1.0, 4.0, 9.0, 16.0, 25.0]).repeat(SIZE // 5),
)
"""The values of each world: some other number of them is above each threshold but the first."""

Attack = Callable[[Any, Any], Iterator[str]]


@pytest.fixture
def strict(hook: sy.TorchHook) -> sy.VirtualWorker:
    """A queued worker whose limits are few."""
    return sy.VirtualWorker(hook, id="strict", peer_limits=FEW, pipelined=True)


def outcome(act: Callable[[], Any]) -> tuple[Any, str]:
    """What was made, and what the caller is told once the worker has come to it."""
    try:
        made = act()
        sy.synchronize()
        return made, "done"
    except SyftError as error:
        return None, f"{type(error).__name__}: {error}".partition("\n")[0]


def left(worker: Any) -> str:
    """How many bytes the caller may still have: public memory is asked for, by halves."""
    least, most = 0, 1 << 12
    while least < most:
        middle = (least + most) // 2
        if outcome(lambda count=middle: worker.torch.zeros(count, dtype=torch.uint8))[1] == "done":
            least = middle + 1
        else:
            most = middle
    return str(least)


def expanded(worker: Any, secret: Any) -> Iterator[str]:
    """The text says how much was asked for."""
    for threshold in THRESHOLDS:
        yield outcome(lambda t=threshold: secret[secret > t].unsqueeze(0).expand(2**40, -1))[1]


def repeated(worker: Any, secret: Any) -> Iterator[str]:
    for threshold in THRESHOLDS:
        chosen = secret[secret > threshold]
        for count in (40, 100, 2**38):
            yield outcome(lambda it=chosen, count=count: it.repeat(count))[1]


def charged(worker: Any, secret: Any) -> Iterator[str]:
    """What is left for public memory."""
    for threshold in THRESHOLDS:
        chosen = [secret[secret > threshold], (secret[secret > threshold] * 2).double()]
        yield left(worker)
        chosen.pop()
        yield left(worker)


def charged_at_once(worker: Any, secret: Any) -> Iterator[str]:
    """Public memory is asked for before it is known that there is room for what is private."""

    def both(threshold: float, count: int) -> Any:
        chosen = secret[secret > threshold].repeat(10)
        return chosen, worker.torch.zeros(count, dtype=torch.uint8), chosen.repeat(3)

    for threshold in THRESHOLDS:
        for count in (500, 3000):
            yield outcome(lambda t=threshold, c=count: both(t, c))[1]


def in_a_group(worker: Any, secret: Any) -> Iterator[str]:
    for threshold in THRESHOLDS:
        for count in (40, 100, 2**38):

            def grouped(threshold: float = threshold, count: int = count) -> Any:
                with worker.group():
                    return secret[secret > threshold].repeat(count)

            yield outcome(grouped)[1]


ATTACKS: tuple[Attack, ...] = (expanded, repeated, charged, charged_at_once, in_a_group)


def told(worker: Any, attack: Attack, world: int, private: bool) -> list[str]:
    """All that a caller is told by an attack on the data of one world."""
    tag = f"#{world}"
    data = WORLDS[world].clone()
    worker.hold((data.private_tensor(["ann"]) if private else data).tag(tag))
    (secret,) = worker.search(tag)
    told = list(attack(worker, secret))
    del secret
    sy.synchronize()
    worker.clear_objects()
    return told


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_limits_at_the_end_of_a_line_tell_no_private_size(attack: Attack, strict: Any) -> None:
    one, other = (told(strict, attack, world, private=True) for world in (0, 1))
    assert one == other
    public = [told(strict, attack, world, private=False) for world in (0, 1)]
    assert public[0] != public[1], "the attack does not come to the size"
    assert not any("PermissionDenied" in text for text in one)
