"""Lists of pointers among the arguments of a call."""

from __future__ import annotations

import pytest
import torch

import syft as sy
from syft.exceptions import LocationMismatch
from syft.workers.wire.messages import Command
from syft.workers.wire.references import REFS

pytestmark = pytest.mark.every_shell


def tensors(worker: sy.VirtualWorker, count: int = 3) -> list[torch.Tensor]:
    return [torch.full((2,), float(index)).send(worker) for index in range(count)]


def test_a_list_of_pointers_travels_as_ids(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    given = tensors(worker)
    with hook.record() as log:
        joined = torch.cat(given)
        torch._foreach_mul_(given, [2.0, 3.0, 4.0])
        roots = torch._foreach_sqrt(given)
        sy.synchronize()
    ids = [x.id_at_location for x in given]
    sent = [e.message.args for e in log.to("worker") if type(e.message) is Command]
    assert [list(args[0]) for args in sent] == [[REFS, *ids]] * 3
    assert joined.get().tolist() == [0, 0, 1, 1, 2, 2]
    assert [x.get().square().round().tolist() for x in roots] == [[0, 0], [3, 3], [8, 8]]
    del log


@pytest.mark.parametrize("where", ["first", "last"])
def test_a_list_with_a_tensor_of_this_process_is_refused(
    worker: sy.VirtualWorker, where: str
) -> None:
    here, given = torch.ones(2), tensors(worker)
    given.insert(0 if where == "first" else 3, here)
    with pytest.raises(LocationMismatch):
        torch.cat(given)


def test_a_list_with_a_pointer_to_another_worker_is_refused(
    hook: sy.TorchHook, worker: sy.VirtualWorker
) -> None:
    other = torch.ones(2).send(sy.VirtualWorker(hook, id="other"))
    for given in ([*tensors(worker), other], [other, *tensors(worker)]):
        with pytest.raises(LocationMismatch):
            torch.cat(given)


def test_lists_in_a_group(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    given = tensors(worker)
    sy.synchronize()
    with hook.record() as log:
        with worker.group():
            torch._foreach_add_(given, torch._foreach_neg(given), alpha=2.0)
            total = torch.stack(given).sum()
        sy.synchronize()
    assert len(log.to("worker")) == 1 and total.get().item() == -6
    del log


def test_a_list_of_integers_or_of_mixed_numbers(worker: sy.VirtualWorker) -> None:
    x = torch.arange(6.0).reshape(2, 3).send(worker)
    assert x.reshape([3, 2]).shape == (3, 2)
    assert torch.quantile(x, torch.tensor([0.5]).send(worker)).get().tolist() == [2.5]
    given = [x, x]
    assert [y.get().sum().item() for y in torch._foreach_mul(given, [1.0, 2])] == [15, 30]


def test_the_rank_of_what_is_made_of_a_list_is_known(
    hook: sy.TorchHook, worker: sy.VirtualWorker
) -> None:
    for _ in range(3):
        made = torch.stack(tensors(worker))
        sy.synchronize()
        with hook.record() as log:
            assert made.dim() == 2
        asked = len(log.to("worker"))
        del log
    assert asked == 0


def test_a_list_may_hold_a_promise(worker: sy.VirtualWorker) -> None:
    promise, x = worker.promise(), torch.ones(2).send(worker)
    both = [x, promise]
    total = torch.stack(both)
    torch._foreach_add_(both, 1.0)
    kept = torch.zeros(2).send(worker, id=promise.id_at_location)
    assert total.get().tolist() == [[1, 1], [0, 0]]
    assert [y.copy().get().tolist() for y in both] == [[2, 2], [1, 1]]
    del kept
