"""Both ends of a connection's numbers: what the sender relies on, the receiver has."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import syft as sy
from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.serde.packer import Packer
from syft.workers.client.connection import Connection
from syft.workers.client.pending import STORED
from syft.workers.client.sent_calls import Calls, ranges
from syft.workers.wire.references import expanded
from syft.workers.wire import numbering
from syft.workers.wire.definitions import Group, InputKind
from syft.workers.wire.numbering import MAX_BYTES, NUMBERS, NumberedCall, Table, weight_of
from tests.chain.refusal import refusal

R, N, V = InputKind


def adding(count: int) -> Group:
    """A program that adds ``count`` to each element, one by one."""
    add = BY_NAME["torch.add"]
    actions = tuple(Action(add, (Slot(index), 1), {}, Slot(index + 1)) for index in range(count))
    return Group((R,), Program(1, actions, (Slot(count),)))


def table_of(worker: sy.VirtualWorker) -> Table:
    """What the numbers of its one caller stand for at a worker."""
    (peer,) = worker.core.peers
    assert peer.session.numbers is not None
    return peer.session.numbers


def _one_call(connection: Connection, count: int, source: Any) -> None:
    """Run a program, or something that fails, at random."""
    choice = random.random()
    if choice < 0.05:  # a definition that the other end refuses
        wrong = Group((R, R), adding(1).program)
        text = refusal(lambda: connection.operations.run(("bad", count), lambda: wrong, [1, 2]))
        assert "MalformedMessage" in text
    elif choice < 0.1:  # an id that is not there
        text = refusal(
            lambda: connection.operations.run(("add", count), lambda: adding(count), [12345])
        )
        assert "ObjectNotFound" in text
    else:
        inputs = [source.id_at_location]
        first, value = connection.operations.run(("add", count), lambda: adding(count), inputs)
        assert value is STORED
        result = connection.pointer(first).get()
        assert torch.equal(result, torch.full(tuple(source.shape), float(count)))


@pytest.mark.parametrize("seed", range(6))
def test_ends_agree_on_what_is_known(
    bob: sy.VirtualWorker, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbering, "MAX_ACTIONS", 130)
    random.seed(seed)
    x = torch.zeros(2).send(bob)  # type: ignore[attr-defined]
    y = torch.zeros(2, 2).send(bob)  # type: ignore[attr-defined]
    for _ in range(300):
        _one_call(x.child.connection, random.randrange(1, 15), random.choice([x, y]))
    assert bob.stats.cache_hits > 50
    assert len(table_of(bob).entries) < 14


def test_there_are_so_many_numbers(bob: sy.VirtualWorker) -> None:
    x = torch.zeros(2).send(bob)  # type: ignore[attr-defined]
    connection = x.child.connection
    for _ in range(2):
        for key in range(NUMBERS + 10):
            first, _ = connection.operations.run(key, lambda: adding(1), [x.id_at_location])
            connection.garbage.append(first)
    assert sorted(table_of(bob).entries) == list(range(NUMBERS))
    assert len(connection.replies.calls._keys) <= NUMBERS
    assert bob.stats.cache_hits == 0  # each was forgotten before it came again
    first, _ = connection.operations.run(NUMBERS + 9, lambda: adding(1), [x.id_at_location])
    connection.garbage.append(first)
    assert bob.stats.cache_hits == 1


def test_only_what_differs_travels() -> None:
    calls = Calls()
    definition = Group((R, N, V), Program(3, (), ()))
    entry = calls.define("key", definition)
    assert calls.find("key") is entry and calls.find("other") is None
    value = torch.ones(2)
    first = calls.changes(entry, [5, 0.5, value], Packer())
    assert first[:2] == [5, 0.5] and first[2][0] == 32
    assert calls.changes(entry, [5, 0.5, torch.ones(2)], Packer()) == [None, None, None]
    value.add_(1)
    again = calls.changes(entry, [6, 1, value], Packer())
    assert again[:2] == [6, 1] and again[2] is not None
    assert calls.changes(entry, [6, 1.0, value], Packer()) == [None, 1.0, None]
    for zero in (0.0, -0.0, 0.0, 0):  # equal, and not the same
        sent = calls.changes(entry, [6, zero, value], Packer())[1]
        assert repr(sent) == repr(zero)
    calls.forget("key")
    assert calls.find("key") is None
    calls.define("key", definition)
    calls.clear()
    assert calls.find("key") is None


def test_a_value_that_is_too_large_is_sent_each_time() -> None:
    calls = Calls()
    entry = calls.define("key", Group((V,), Program(1, (), ())))
    for value in (torch.zeros(()).expand(MAX_BYTES), torch.Generator()):
        for _ in range(2):
            assert calls.changes(entry, [value], Packer()) != [None]


def test_weights_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbering, "MAX_BYTES", 100)
    table = Table()
    entries = [NumberedCall(number, number, (2, 2), 1) for number in range(3)]
    for entry in entries:
        table.enter(entry)
        assert table.keep(entry, 0, "value", 40)
    assert [entry.number for entry in table] == [1, 2] and table.weight == 80
    assert not table.keep(entries[2], 1, "value", 70)
    assert table.keep(entries[2], 0, "value", 90) and table.weight == 90
    assert [entry.number for entry in table] == [2]
    table.remove(2)
    table.remove(2)
    assert table.weight == table.actions == 0


def test_a_gradient_weighs_too() -> None:
    leaf = torch.ones(3, requires_grad=True)
    leaf.sum().backward()
    assert weight_of(leaf) == 2 * (64 + 12)
    assert weight_of([leaf * 2, "text", None]) == 4 * 64 + 12 + 4


def test_whatever_is_kept_weighs() -> None:
    def is_more(value: Any, size: int) -> bool:
        return weight_of(value) > size

    assert is_more("x" * 1000, 1000) and is_more(b"x" * 1000, 1000)
    assert is_more([[]] * 1000, 1000) and is_more({str(n): () for n in range(1000)}, 2000)
    assert is_more({"x" * 1000: 1}, 1000) and is_more(1 << 64000, 1000)
    assert is_more(slice("x" * 1000, None), 1000)
    indices = torch.zeros((2, 50), dtype=torch.long)
    empty = torch.sparse_coo_tensor(indices, torch.ones(50, 0), check_invariants=True)
    assert empty.numel() == 0 and is_more(empty, MAX_BYTES)


def test_another_user_starts_anew(me: sy.VirtualWorker, bob: sy.VirtualWorker) -> None:
    x = torch.zeros(2).send(bob)  # type: ignore[attr-defined]
    connection = x.child.connection
    for user, known in ((None, False), (None, True), ("ann", False), ("ann", True), (None, False)):
        me.user = user
        hits = bob.stats.cache_hits
        first, _ = connection.operations.run("key", lambda: adding(1), [x.id_at_location])
        connection.garbage.append(first)
        assert (bob.stats.cache_hits > hits) is known


def test_two_ids_are_no_range() -> None:
    assert ranges([5, 4]) == (5, 4)


@pytest.mark.parametrize("seed", range(20))
def test_ranges_name_the_same_ids(seed: int) -> None:
    random.seed(seed)
    ids: list[Any] = random.sample(range(60), random.randrange(50))
    short = ranges(ids)
    assert sorted(expanded(short)) == sorted(ids)
    assert len(short) <= len(ids)
