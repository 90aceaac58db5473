"""The memory of large tensors is used again only when nobody can notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from syft.serde.buffers import LARGE
from syft.workers.sockets import large_memory
from syft.workers.sockets.large_memory import LargeMemory

SIZE = LARGE + 4


def test_what_is_fetched_again_lies_where_the_last_one_did(dan: sy.WebsocketClientWorker) -> None:
    values = [torch.randn(SIZE // 4) for _ in range(3)]
    pointers: list[Any] = [value.send(dan) for value in values]  # type: ignore[attr-defined]
    first = pointers[0].get()
    place = first.data_ptr()
    second = pointers[1].get()
    assert first.equal(values[0]) and second.equal(values[1])
    assert second.data_ptr() != place, "the first is in use"
    del first
    third = pointers[2].get()
    assert third.equal(values[2]) and third.data_ptr() == place
    assert second.equal(values[1])


Use = Callable[[torch.Tensor], object]


@pytest.mark.parametrize(
    "use",
    [
        lambda buffer: buffer.view(-1)[7:],
        lambda buffer: buffer.numpy(),
        lambda buffer: buffer.untyped_storage(),
        lambda buffer: buffer.__dlpack__(),
    ],
    ids=["view", "numpy", "storage", "dlpack"],
)
def test_memory_in_use_is_left_alone(use: Use) -> None:
    memory = LargeMemory()
    buffer = memory.take(SIZE)
    place, used = buffer.data_ptr(), use(buffer)
    del buffer
    other = memory.take(SIZE)
    assert other.data_ptr() != place
    del used, other


@pytest.mark.parametrize(
    "change",
    [
        lambda buffer: buffer.resize_(2 * SIZE),
        lambda buffer: buffer.share_memory_(),
        lambda buffer: setattr(buffer.untyped_storage(), "guard", "somebody"),
    ],
    ids=["another size", "seen by other processes", "marked"],
)
def test_memory_that_is_not_what_it_was_is_not_used_again(change: Use) -> None:
    memory = LargeMemory()
    buffer = memory.take(SIZE)
    change(buffer)
    place = buffer.data_ptr()
    del buffer
    other = memory.take(SIZE)
    assert other.data_ptr() != place and other.untyped_storage().nbytes() == SIZE
    assert not other.untyped_storage().__dict__


def test_a_tensor_of_used_memory_is_like_a_new_one() -> None:
    memory = LargeMemory()
    buffer = memory.take(SIZE)
    buffer.fill_(7)
    buffer.mark = "the first one's"  # type: ignore[attr-defined]
    place = buffer.data_ptr()
    del buffer
    again = memory.take(SIZE)
    assert again.data_ptr() == place and again._version == 0 and not hasattr(again, "mark")
    assert again.shape == (SIZE,) and again.is_contiguous() and again._base is None
    again.resize_(2 * SIZE).zero_()
    assert again.sum() == 0


def test_small_and_very_large_memory_is_always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_memory, "_MOST_BYTES", SIZE)
    memory = LargeMemory()
    with torch.inference_mode():  # its tensors are of no use without it
        memory.take(SIZE)
    kept = [memory.take(size) for size in (0, LARGE - 1, SIZE + 1)]
    assert [one.numel() for one in kept] == [0, LARGE - 1, SIZE + 1] and not memory._known


def test_only_some_memory_is_remembered() -> None:
    memory = LargeMemory()
    kept = [memory.take(LARGE + number) for number in range(10)]
    assert [one.numel() for one in memory._known] == [LARGE + number for number in range(6, 10)]
    assert len({one.data_ptr() for one in kept}) == 10


def test_memory_that_nobody_wants_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = LargeMemory()
    used, free = memory.take(SIZE), memory.take(SIZE)
    del free
    memory.look()
    assert len(memory._known) == 2, "it has just been made"
    monkeypatch.setattr(large_memory, "_IDLE", 0.0)
    memory.look()
    assert len(memory._known) == 2, "somebody may want it yet"
    memory.look()
    assert [one.data_ptr() for one in memory._known] == [used.data_ptr()]
    memory.forget()
    assert not memory._known


def test_nothing_is_remembered_once_the_last_worker_is_closed(
    hook: sy.TorchHook, server: sy.WebsocketServerWorker
) -> None:
    worker = sy.connect(str(server.address))
    x: Any = torch.randn(SIZE // 4)
    x.send(worker).get()
    board = worker.board
    assert board.memory._known
    worker.close()
    assert not board.memory._known
