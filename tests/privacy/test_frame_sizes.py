"""The size of a frame does not tell what is in it: private values are sent uncompressed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import syft as sy
from syft.serde.frame import Frame, from_bytes, to_bytes

SIZE = 5000
"""Enough elements that zeros are compressed: buffers below 1 KiB never are."""

Size = tuple[str, str, int]
"""Sender, receiver and length of a frame as bytes."""


class Places:
    """Three workers, and the sizes of all frames between anybody."""

    def __init__(self) -> None:
        self.hook = sy.TorchHook(torch)
        self.bob, self.alice = (sy.VirtualWorker(self.hook, id=name) for name in ("bob", "alice"))
        self.sizes: list[Size] = []
        self.hook.local_worker.network.observers.append(self.note)

    def note(self, sender: str, receiver: str, frame: Frame) -> None:
        buffers = [buffer.contiguous() for buffer in frame.buffers]
        wire = Frame(b"", buffers, private=frame.private)  # ids in headers have several lengths
        self.sizes.append((sender, receiver, len(to_bytes(wire))))

    def close(self) -> None:
        self.hook.local_worker.network.observers.clear()
        self.hook.close()


def fetched(places: Places, x: torch.Tensor) -> None:
    x.send(places.bob, user="ann").get(user="ann")


def fetched_with_others(places: Places, x: torch.Tensor) -> None:
    sent = sy.send_all([x, torch.ones(2)], places.bob, user="ann")
    sy.get_all(sent, user="ann")


def computed(places: Places, x: torch.Tensor) -> None:
    (x.send(places.bob, user="ann") * 2).get(user="ann")


def moved(places: Places, x: torch.Tensor) -> None:
    x.send(places.bob, user="ann").move(places.alice)


def moved_and_fetched(places: Places, x: torch.Tensor) -> None:
    x.send(places.bob, user="ann").move(places.alice).get(user="ann")


def relayed(places: Places, x: torch.Tensor) -> None:
    x.send(places.bob, user="ann").remote_send(places.alice).remote_get()


def summed(places: Places, x: torch.Tensor) -> None:
    sy.sum_private(x.send(places.bob, user="ann"), torch.zeros_like(x).send(places.alice))


def gradient_returned(places: Places, x: torch.Tensor) -> None:
    source = torch.ones(x.shape, requires_grad=True).send(places.alice)
    leaf = (source * 2).move(places.bob, requires_grad=True)
    (leaf * x.send(places.bob, user="ann")).sum().backward()
    source.grad.get(user="ann")


def with_a_gradient(places: Places, x: torch.Tensor) -> None:
    weight = torch.ones(x.shape, requires_grad=True).send(places.bob)
    (weight * x.send(places.bob, user="ann")).sum().backward()
    weight.get(user="ann")


def allowed(places: Places, x: torch.Tensor) -> None:
    x.send(places.bob, user="ann").allow("bea").get(user="bea")


WAYS: list[Callable[[Places, torch.Tensor], Any]] = [
    fetched,
    fetched_with_others,
    computed,
    moved,
    moved_and_fetched,
    relayed,
    summed,
    gradient_returned,
    with_a_gradient,
    allowed,
]


def sizes(way: Callable[[Places, torch.Tensor], Any], value: torch.Tensor) -> list[Size]:
    """The sizes of all frames when this value is private."""
    places = Places()
    try:
        way(places, value.private_tensor(["ann"], allow_destinations=["alice", "bob"]))
        sy.synchronize()
        return places.sizes
    finally:
        places.close()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_zeros_and_noise_take_as_many_bytes(way: Callable[[Places, torch.Tensor], Any]) -> None:
    assert sizes(way, torch.zeros(SIZE)) == sizes(way, torch.rand(SIZE))


@pytest.mark.parametrize("way", [fetched, moved], ids=lambda way: way.__name__)
def test_public_zeros_take_fewer(way: Callable[[Places, torch.Tensor], Any]) -> None:
    """Without this the test above would show nothing."""
    found = []
    for value in (torch.zeros(SIZE), torch.rand(SIZE)):
        places = Places()
        way(places, value)
        found.append(sum(size for *_, size in places.sizes))
        places.close()
    assert found[0] * 10 < found[1]


@given(
    shape=st.lists(st.integers(0, 40), min_size=1, max_size=3),
    dtype=st.sampled_from([torch.float32, torch.int64, torch.bool, torch.complex64, torch.int8]),
    compressed=st.booleans(),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_private_frame_is_raw(shape: list[int], dtype: torch.dtype, compressed: bool) -> None:
    value = torch.zeros(shape, dtype=dtype)
    buffer = value.reshape(-1).view(torch.uint8) if value.numel() else torch.zeros(0).byte()
    private = Frame(b"\xc0", [buffer], private=True)
    assert to_bytes(private, compressed) == to_bytes(Frame(b"\xc0", [buffer]), compressed=False)
    assert private.owned().private
    assert torch.equal(from_bytes(to_bytes(private)).buffers[0], buffer)
