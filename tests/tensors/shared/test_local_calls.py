"""Geometries of what is recorded: those of torch, whichever way they are found, and soon."""

from __future__ import annotations

import subprocess
import sys

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from syft.crypto.kernels import Kernel, KernelCode
from syft.exceptions import ProgramError
from syft.tensors.shared import local_calls
from syft.tensors.shared.cells import Geometry
from syft.tensors.shared.shared_values import get_shared, share_values, shared_cell
from tests.tensors.shared.clear_parties import clear_session

CALLS = [
    lambda x, y: x + y,
    lambda x, y: x.t() - y.t(),
    lambda x, y: x * 3,
    lambda x, y: -x.t(),
    lambda x, y: torch.cat([x, y], 1),
    lambda x, y: torch.stack([x, y]),
    lambda x, y: x.sum(0),
    lambda x, y: x.unsqueeze(1) + y,
    lambda x, y: x.flip(0),
    lambda x, y: x.expand(2, *x.shape),
    lambda x, y: x.repeat(2, 3),
    lambda x, y: x[:, 1:].clone(),
    lambda x, y: x.take(torch.tensor([0, 1])),
    lambda x, y: torch.where(torch.eye(x.shape[0], x.shape[1]).bool(), x, y),
    lambda x, y: x.split(1)[1],
]


@pytest.mark.parametrize("number", range(len(CALLS)))
@pytest.mark.parametrize("few", [0, 1 << 16])
@pytest.mark.parametrize("shape", [(2, 3), (2, 1), (4, 4)])
def test_geometries_are_those_of_torch(number, few, shape, monkeypatch):
    monkeypatch.setattr(local_calls, "_FEW", few)
    monkeypatch.setattr(local_calls, "_GEOMETRIES", {})
    session = clear_session()
    x, y = torch.randint(9, shape), torch.randint(9, shape)
    want = CALLS[number](x, y)
    got = CALLS[number](share_values(x, session), share_values(y, session))
    assert shared_cell(got).geometry == Geometry.of(want)
    assert torch.equal(get_shared([got])[0], want)


@settings(deadline=None)
@given(*[st.lists(st.integers(0, 4), max_size=4).map(tuple)] * 2)
def test_products_have_the_shape_to_which_their_factors_broadcast(one, other):
    try:
        want = (torch.empty(one) * torch.empty(other)).shape
    except RuntimeError:
        with pytest.raises(ProgramError, match="MULTIPLY of shapes"):
            Kernel(KernelCode.MULTIPLY).shape(one, other)
    else:
        assert Kernel(KernelCode.MULTIPLY).shape(one, other) == want


FIRST = """
import sys, torch, syft as sy
hook = sy.TorchHook(torch)
alice, bob, carol = (sy.VirtualWorker(hook, id=name) for name in ("alice", "bob", "carol"))
share = lambda x: x.fix_precision().share(alice, bob, crypto_provider=carol)
x = share(torch.tensor([[1.0, -2.0]]))
print((x * x + x).relu().sum().get().float_precision())
print(share(torch.nn.Linear(2, 1))(torch.cat([x, -x])).get().shape, (x > 0).get())
print("torch._dynamo" in sys.modules)
"""


def test_the_first_operations_of_a_process_do_not_import_the_compiler():
    """It takes torch a second or more, which somebody who tries one product would wait."""
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "False", done.stdout
