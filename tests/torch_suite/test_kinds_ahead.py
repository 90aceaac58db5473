"""Shapes and dtypes that a caller works out for itself, over torch's own database: each is what the
worker made, or the caller asks."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import syft as sy
from syft.ops.nested import leaves
from syft.ops.table import NAMES
from syft.workers.client.operations import Operations
from syft.chain.wrapper import Wrapper
from tests.torch_suite.carriers import PointerCarrier, Travellers
from tests.torch_suite.cases import OP_CASES, Case, seed
from tests.torch_suite.known_failures import REASONS, parameters

pytestmark = [
    # Torch's cases call what is deprecated or slow on purpose, and torch says so, once a process.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

CASES = [
    case
    for case in OP_CASES
    if case.dtype in (torch.float32, torch.int64) and f"pointer/{case.name}" not in REASONS
]
SOME = 4
"""How many samples of each operator are tried."""


@pytest.mark.parametrize("case", parameters("ahead", ((case.name, case) for case in CASES)))
def test_kinds_ahead(case: Case, hook: sy.TorchHook) -> None:
    worker = sy.VirtualWorker(hook, id="queued", pipelined=True)
    facts = hook.local_worker.connection_to(worker).facts
    for sample in case.samples("cpu", most=SOME):
        travellers = Travellers(PointerCarrier(worker))
        there = travellers.send((sample.input, sample.args, sample.kwargs))
        facts.begin()
        seed()
        try:
            result = case.op(there[0], *there[1], **there[2])
        except Exception:  # as native torch does: other tests compare that
            continue
        for one in leaves(result):
            if type(one) is Wrapper:
                check_kind(facts._example(facts._key(one.id_at_location)), one)


def check_kind(example: Any, one: torch.Tensor) -> None:
    """What is known of a result is so."""
    if example is None:
        return
    found = one.get()
    assert (example.shape, example.dtype) == (found.shape, found.dtype)
    assert found.layout is torch.strided


def test_most_are_known(hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    command = Operations.command

    def spy(self: Operations, op: int, *operands: Any) -> Any:
        if operands[-1] is None:  # the caller waits for the answer
            asked.append(NAMES[op])
        return command(self, op, *operands)

    monkeypatch.setattr(Operations, "command", spy)
    worker = sy.VirtualWorker(hook, id="queued", pipelined=True)
    x, y = torch.ones(4, 6).send(worker), torch.ones(6, 2).send(worker)
    facts = hook.local_worker.connection_to(worker).facts
    facts.begin()
    z = torch.cat([(x @ y).softmax(-1).view(2, 4), x.t()[:2].unsqueeze(0).squeeze()])
    parts = z.split(3)
    sizes = [one.argmax(1, keepdim=True).float().shape for one in parts]
    assert sizes == [(3, 1), (1, 1)] and parts[0].dtype == torch.float32
    assert not asked
    assert z[z > 0].shape == (16,) and asked == ["torch.Tensor.shape.__get__"]
