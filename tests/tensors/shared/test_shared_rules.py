"""The rules for private numbers, over integers that parties share.

The cases are those of the blind ring.  Here every instruction is run by parties that compute on the
values, so what is tested is what the client records: operations, shapes, memory, order.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from syft.tensors.fixed.fixed_link import is_fixed
from syft.tensors.fixed.grid import decode
from syft.tensors.fixed.precision import fix_precision
from syft.tensors.shared.shared_values import get_shared, share_values
from tests.tensors.fixed import test_blind_rules as rules
from tests.tensors.shared.clear_parties import clear_session
from tests.tensors.shared.local_parties import local_session


def shared(x: torch.Tensor, session: Any) -> torch.Tensor:
    if not x.is_floating_point():
        return share_values(x, session)
    return share_values(fix_precision(x.detach()), session, requires_grad=x.requires_grad)


def opened(x: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    if type(x) is torch.Tensor:
        return x
    (plain,) = get_shared([x])
    return decode(plain.child.child, plain.child.grid, dtype) if is_fixed(plain) else plain


@pytest.mark.parametrize("name", rules.CASES)
def test_a_rule_over_shares(name, monkeypatch):
    monkeypatch.setattr(rules, "blind", shared)
    monkeypatch.setattr(rules, "reveal", opened)
    torch.manual_seed(0)
    function, *operands = rules.CASES[name]
    rules.compare(function, operands, clear_session(), rules.bounds_of(name, noisy=True))


PROTOCOLS = """
multiply;divide by a number;matmul;linear;conv2d;conv_transpose2d;avg_pool2d of borders;max_pool2d
adaptive_avg_pool2d;relu;abs;sign;clamp;max;argmax;maximum;equal;different;at most;where;masked_fill
logical;any;slice;cat;pad by reflection;index rows;index by a public mask;scatter;index_put
assignment;mse_loss;cross_entropy;batch_norm in evaluation;softmax;sigmoid
""".replace("\n", ";").strip(";").split(";")
"""A sample of the cases that takes every instruction, and many local operations."""


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_rule_over_real_shares(name, monkeypatch):
    monkeypatch.setattr(rules, "blind", shared)
    monkeypatch.setattr(rules, "reveal", opened)
    function, *operands = rules.CASES[name]
    parties = 2 + len(name) % 2
    rules.compare(function, operands, local_session(parties), rules.bounds_of(name, noisy=True))
