"""Labels of shares: whoever may compute with private values does not come to read them.

A client chooses what each party runs, so it may tell each another story.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.codes import CollectiveCode
from syft.crypto.programs.share_program import ShareCode, ShareProgram
from syft.exceptions import (
    MalformedMessage,
    PermissionDenied,
    RemoteFailure,
    SessionEnded,
    SharedOperationFailed,
)
from syft.ids import new_id
from syft.workers.wire.references import Reference
from tests.workers.handlers.sharing_client import Client, pieces, wait
from tests.workers.handlers.test_sharing import MULTIPLY, S, X, Y, local, step
from tests.crypto.ring_programs import program_of

pytestmark = pytest.mark.every_shell

aten = torch.ops.aten
NEGATED = program_of(1, (local(aten.neg.default, (S(0),), 1),), (1,))
NAMES = ["alice", "bob"]


@pytest.fixture
def secret(pair: Client) -> int:
    """Shares of what Ann alone may read; the parties are allowed to hold it."""
    private = Y.clone().private_tensor(["ann"], allow_destinations=NAMES)
    return pair.split(private.send(pair.parties[0], user="ann"), pair.parties[0])


def refused(pair: Client, id: int) -> None:
    for party in pair.parties:
        with pytest.raises(PermissionDenied):
            pair.fetch(id, party)


def tell_each(
    client: Client,
    programs: list[ShareProgram],
    inputs: list[list[Any]],
    outs: list[list[int]] | None = None,
) -> None:
    """Have each party run a program of its own."""
    client.counter += 1
    here = Reference(client.session)
    args: list[Any] = [
        (here, client.counter, program, *given)
        for program, given in zip(programs, inputs, strict=True)
    ]
    made = outs or [[new_id()] for _ in programs]
    wait(client.start(CollectiveCode.SHARES, client.everybody, [*args, None], [*made, ()]))


def test_a_program_knows_which_inputs_share_memory(pair: Client, secret: int) -> None:
    (x,) = pair.share(torch.stack([X, X]))
    (row,) = pair.run(program_of(1, (local(aten.select.int, (S(0), 0, 1), 1),), (1,)), [x])
    steps = (
        local(aten.copy_.default, (S(0), S(1)), 3),
        local(aten.neg.default, (S(2),), 4),
    )
    (negated,) = pair.run(program_of(3, steps, (4,)), [row, secret, x])
    refused(pair, negated)
    assert torch.equal(pair.value(negated, "ann"), -torch.stack([X, Y]))


def test_a_program_that_waits_reads_labels_when_it_runs(pair: Client, secret: int) -> None:
    (x,) = pair.share(X)
    steps = (
        step(ShareCode.POSITIVE, (S(1), 0, (5,)), 2, 3),
        local(aten.copy_.default, (S(0), S(2)), 4),
    )
    written, negated = new_id(), new_id()
    pending = pair.start_run(program_of(2, steps, (4,)), [x, secret], [[written]] * 2)
    pending += pair.start_run(NEGATED, [x], [[negated]] * 2)
    wait(pending)
    refused(pair, negated)
    assert torch.equal(pair.value(negated, "ann"), -Y.clamp(min=0))


REVEAL = program_of(1, (step(ShareCode.REVEAL, (S(0), 1), 1),), (1,))


def test_parties_that_run_other_programs_find_out(pair: Client, secret: int) -> None:
    """Alice sends what hides under a mask; Bob would take it for a share of what he is told."""
    mask = program_of(1, (step(ShareCode.MASK, (S(0), (5,)), 1),), (1,))
    own = pieces(torch.zeros(5, dtype=torch.int64), 2)
    with pytest.raises((MalformedMessage, RemoteFailure), match="shares in the shapes"):
        tell_each(pair, [mask, REVEAL], [[Reference(secret)], [own[1]]])


def test_a_private_share_is_not_revealed_as_part_of_a_public_one(pair: Client, secret: int) -> None:
    """Alice may reveal to Bob, who would keep it as the value of a public tensor."""
    own = pieces(torch.zeros(5, dtype=torch.int64), 2)
    with pytest.raises((MalformedMessage, RemoteFailure), match="shares in the shapes"):
        tell_each(pair, [REVEAL] * 2, [[Reference(secret)], [own[1]]], [[], [new_id()]])
    with pytest.raises((SessionEnded, SharedOperationFailed)):
        pair.fetch(secret, pair.parties[1])


@pytest.mark.parametrize(
    "label",
    [
        (("ann", "eve"), ("alice", "bob"), None),
        (("ann",), ("alice", "eve"), None),
        (("ann",), ("alice", "bob"), ("dealer", "eve")),
    ],
)
def test_labels_are_the_same_at_all_parties(
    pair: Client, secret: int, label: tuple[Any, Any, Any]
) -> None:
    """Bob is told that others may read the result, that it may go elsewhere, or who may deal."""
    users, destinations, providers = label
    fields = (users, False, destinations, (), providers, None)
    own = pieces(torch.zeros(5, dtype=torch.int64), 2, fields)
    square = (*MULTIPLY, S(1), S(1), (0, 0), (5,), (0, 0), (5,), (5,))
    steps = (step(ShareCode.MASK, (S(0), (5,)), 1), step(ShareCode.PRODUCT, square, 2))
    program = program_of(1, steps, (2,))
    with pytest.raises((MalformedMessage, RemoteFailure), match="private"):
        tell_each(pair, [program] * 2, [[Reference(secret)], [own[1]]])


def test_a_letter_that_agrees_is_no_share(pair: Client, secret: int) -> None:
    """What is private and what is not, in one program: each result keeps its own label."""
    (x,) = pair.share(X)
    square = (*MULTIPLY, S(2), S(3), (0, 0), (5,), (0, 1), (5,), (5,))
    cube = (*MULTIPLY, S(3), S(3), (0, 1), (5,), (0, 1), (5,), (5,))
    steps = (
        step(ShareCode.MASK, (S(0), (5,)), 2),
        step(ShareCode.MASK, (S(1), (5,)), 3),
        step(ShareCode.PRODUCT, square, 4),
        step(ShareCode.PRODUCT, cube, 5),
        step(ShareCode.POSITIVE, (S(1), 0, (5,)), 6, 7),
    )
    both, public, positive = pair.run(program_of(2, steps, (4, 5, 6)), [secret, x])
    assert torch.equal(pair.value(public), X * X)
    assert torch.equal(pair.value(positive), X.clamp(min=0))
    refused(pair, both)
    assert torch.equal(pair.value(both, "ann"), X * Y)
