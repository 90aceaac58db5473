"""Changed messages of a stranger: the worker outlives them, and nobody's objects change."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import torch

from syft.serde.frame import from_bytes
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import WorkerCore
from syft.workers.labels.memory_labels import full_guard_of
from syft.workers.wire import messages
from syft.workers.wire.messages import Done, Fetch
from tests.workers.core.hostile_messages import (
    OWN,
    PRIVATE,
    PUBLIC,
    Mutator,
    passes_parser,
    whole_messages,
)
from tests.workers.core.peers import ask, command, put, ref, sociable, value_in

pytestmark = pytest.mark.filterwarnings("ignore")  # torch remarks on named tensors and ComplexHalf

ROUNDS = 40
"""The changed frames for each message."""
SECRET = [1234.5, -8765.25]
ANN, EVE = "ann", "eve"


def worker() -> tuple[WorkerCore, Peer, Peer]:
    """A worker with a public and a private object of ann's, and one of eve's."""
    core, ann, eve = sociable(), Peer(ANN, ANN), Peer(EVE)
    assert put(core, PUBLIC, torch.tensor([3.0, 4.0]), ann) == Done(1)
    assert put(core, PRIVATE, torch.tensor(SECRET), ann, users=(ANN,)) == Done(1)
    assert put(core, OWN, torch.tensor([1.0, 2.0]), eve) == Done(1)
    return core, ann, eve


def replies(core: WorkerCore, data: bytes, peer: Peer) -> list[tuple[Any, messages.Message, Any]]:
    letters = core.receive(from_bytes(data), peer)
    return [(to, messages.decode(frame.header), frame.buffers) for to, frame in letters]


def frames(seed: int) -> list[tuple[str, bytes]]:
    mutator = Mutator(random.Random(seed))
    return [
        (type(messages.decode(whole.header)).__name__, mutator.frame(whole))
        for whole in whole_messages()
        for _ in range(ROUNDS)
    ]


def test_at_least_half_of_them_pass_the_parser(request: pytest.FixtureRequest) -> None:
    passed: Counter[str] = Counter()
    made: Counter[str] = Counter()
    for kind, data in frames(request.config.option.seed):
        made[kind] += 1
        passed[kind] += passes_parser(data)
    assert sum(passed.values()) >= sum(made.values()) / 2
    assert all(passed[kind] for kind in made), "some of each kind"


def test_the_share_counts_what_it_says() -> None:
    whole = whole_messages()
    mutator = Mutator(random.Random(1))
    assert not passes_parser(b"") and not passes_parser(mutator.frame(whole[0])[:-1])
    texts = {mutator.frame(whole[0]) for _ in range(50)}
    assert len(texts) > 30 and any(map(passes_parser, texts)) and not all(map(passes_parser, texts))


def test_a_stranger_changes_and_learns_nothing(request: pytest.FixtureRequest) -> None:
    secrets = [torch.tensor([value]).view(torch.uint8).tolist() for value in SECRET]
    core, ann, eve = worker()
    for number, (kind, data) in enumerate(frames(request.config.option.seed + 1)):
        if number % ROUNDS == 0:
            core, ann, eve = worker()
        if not passes_parser(data):
            continue
        for _, reply, buffers in replies(core, data, eve):
            sent = [byte for buffer in buffers for byte in buffer.flatten().tolist()]
            assert not any(contains(sent, secret) for secret in secrets), (kind, reply)
            assert "1234.5" not in str(reply) and "8765.25" not in str(reply), (kind, reply)
        guard = full_guard_of(core.store.objects[PRIVATE])
        assert guard is not None and guard.users == {ANN}, (kind, data)
        assert value_in(core, Fetch(2, PRIVATE, keep=True), ann).tolist() == SECRET, (kind, data)
        assert value_in(core, Fetch(3, PUBLIC, keep=True), ann).tolist() == [3.0, 4.0], (kind, data)
    check_alive(core, ann)


def contains(sent: list[int], part: list[int]) -> bool:
    return any(sent[at : at + len(part)] == part for at in range(len(sent) - len(part) + 1))


def check_alive(core: WorkerCore, peer: Peer) -> None:
    made = ask(core, command("torch.Tensor.add", ref(PUBLIC), ref(PUBLIC), out=77), peer=peer)
    assert made == Done(1)
    assert value_in(core, Fetch(2, 77), peer).tolist() == [6.0, 8.0]
