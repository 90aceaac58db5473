"""What a worker stores of shared tensors goes nowhere, and nothing is told about it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.crypto.dealing import StreamName
from syft.crypto.programs.beaver_products import MaskedValue
from syft.exceptions import PermissionDenied, WorkerLost
from syft.workers.core.peer import Peer
from syft.workers.core.shares import (
    Confined,
    MaskedShare,
    MaterialAhead,
    SharingSession,
    StoredShare,
)
from tests.crypto.parties import zeros_of

OWNER = Peer("me", user="ann")
SESSION = SharingSession("bob", ("alice", "bob", "dealer"), 1, [bytes(32)], zeros_of(1, 2), OWNER)


def stored() -> list[Confined]:
    one, other = torch.tensor([1, 2]), torch.tensor([3, 4])
    corrections = {0: [one]}
    return [
        StoredShare(SESSION, one),
        MaskedShare(SESSION, MaskedValue(one, other, StreamName(1, 0))),
        MaterialAhead(SESSION, 1, (), corrections),
        SESSION,
    ]


@pytest.mark.parametrize("value", stored(), ids=lambda value: type(value).__name__)
def test_it_is_not_copied_and_not_sent(value: Confined) -> None:
    for act, use in (
        ("copy", lambda: value.duplicate()),
        ("send()", lambda: value.admit("carl", allow_plans=True)),
    ):
        with pytest.raises(PermissionDenied) as caught:
            use()
        assert (caught.value.action, caught.value.worker) == (act, "bob")
        assert caught.value.user is None


@pytest.mark.parametrize("value", stored(), ids=lambda value: type(value).__name__)
def test_no_operation_moves_its_memory(value: Confined) -> None:
    before = [(tensor, tensor.tolist()) for tensor in value.tensors()]

    def successor(tensor: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(tensor)

    value.exchange(successor)
    after = list(value.tensors())
    assert len(after) == len(before)
    for found, (tensor, numbers) in zip(after, before, strict=True):
        assert found is tensor and found.tolist() == numbers


@pytest.mark.parametrize("value", stored()[:3], ids=lambda value: type(value).__name__)
def test_nothing_is_told_about_what_a_session_holds(value: Confined) -> None:
    assert value.summary() is None


@pytest.mark.parametrize("value", stored(), ids=lambda value: type(value).__name__)
def test_only_the_owner_of_the_session_uses_it(value: Confined) -> None:
    value.check_owner(OWNER, "reveal")
    strangers: list[Any] = [Peer("me", user="ann"), Peer("eve")]
    for stranger in strangers:
        with pytest.raises(PermissionDenied, match="reveal"):
            value.check_owner(stranger, "reveal")


@pytest.mark.parametrize(
    ("rank", "dealer", "error", "found"),
    [
        (0, None, WorkerLost("carl", "gone"), True),
        (0, None, WorkerLost("bob", "gone"), False),
        (0, None, ValueError("carl"), False),
        (2, None, WorkerLost("carl", "gone"), False),
        (0, 2, WorkerLost("carl", "gone"), False),
        (0, 2, WorkerLost("bob", "gone"), False),
    ],
)
def test_parties_do_without_a_provider_that_holds_no_share(
    rank: int, dealer: int | None, error: Exception, found: bool
) -> None:
    names = ("alice", "bob", "carl")
    session = SharingSession(
        names[rank], names, rank, [bytes(32)], zeros_of(rank, 2), OWNER, dealer
    )
    assert session.can_do_without(error) is found
