"""A public index outside is an error at the line that has it, as torch's is."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from syft.tensors.shared.shared_values import get_shared, share_values
from tests.tensors.fixed.blind_ring import BlindRing, blind, reveal
from tests.tensors.shared.local_parties import local_session

X = torch.arange(12).view(3, 4)


def at(*places):
    return torch.tensor(places)


OUTSIDE = {
    "index": lambda x: x[at(3)],
    "index before": lambda x: x[:, at(-5)],
    "a later index": lambda x: x[at(0), at(4)],
    "behind a mask": lambda x: x.view(1, 3, 4)[torch.ones(1, 3).bool(), at(4)],
    "a short mask": lambda x: x[torch.tensor([True, False])],
    "a mask of two dimensions": lambda x: x[torch.ones(2, 2).bool()],
    "index_select": lambda x: x.index_select(-1, at(4)),
    "index_select before": lambda x: x.index_select(0, at(-1)),
    "gather": lambda x: x.gather(1, at(4).view(1, 1)),
    "take": lambda x: x.take(at(12)),
    "embedding": lambda x: F.embedding(at(3), x),
    "scatter": lambda x: x.scatter(1, at(4).view(1, 1), 1),
    "scatter_add": lambda x: x.scatter_add(0, at(3).view(1, 1), x),
    "index_add": lambda x: x.index_add(0, at(3), x[:1]),
    "index_copy": lambda x: x.index_copy(0, at(3), x[:1]),
    "index_fill": lambda x: x.index_fill(0, at(-4), 1),
    "index_put": lambda x: x.index_put((at(3),), at(1)),
    "put": lambda x: x.put(at(12), at(1)),
    "assignment": lambda x: x.__setitem__(at(3), 1),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_outside(name):
    """Over shares nothing runs at that line, so nobody else could raise there."""
    with pytest.raises((IndexError, RuntimeError)):
        OUTSIDE[name](X.clone())
    shared = share_values(X, local_session())
    with pytest.raises(IndexError, match="out of bounds|does not match"):
        OUTSIDE[name](shared)
    assert torch.equal(get_shared([shared])[0], X)


INSIDE = {
    "from the end": lambda x: x[at(-3), at(-4)],
    "take from the end": lambda x: x.take(at(-12)),
    "fill from the end": lambda x: x.index_fill(0, at(-3), 1),
    "nothing": lambda x: x[torch.zeros(0, dtype=torch.int64)],
    "all and one": lambda x: x[..., at(1)],
    "a number": lambda x: x[0, 0].take(at(0)),
    "a row of a number": lambda x: x[0, 0].index_select(0, at(0)),
    "fill a number": lambda x: x[0, 0].index_fill(0, at(0), 5),
    "a mask": lambda x: x[torch.tensor([True, False, True])],
}


@pytest.mark.parametrize("name", INSIDE)
def test_an_index_inside(name):
    assert torch.equal(reveal(INSIDE[name](blind(X, BlindRing()))), INSIDE[name](X))
