"""TorchHook: what torch learns, and that it forgets all of it again."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.optim import optimizer as optim_module

import syft as sy
from tests.chain.refusal import refusal, shown
from tests.outside import outside
from tests.shells.owner import inspect

TENSOR_METHODS = """to_lazy to_eager is_lazy
send send_ gc garbage_collection garbage_collect_data disable_gc create_pointer
get get_ move copy allow remote_get remote_send tag describe private_tensor combine
share share_ reveal refresh encrypt decrypt
begin_msg_group release_msg_group
fix_precision fix_prec fix_precision_ fix_prec_ float_precision float_prec float_precision_
float_prec_ location owner id id_at_location tags description child""".split()
MODULE_METHODS = """to_lazy to_eager
send get move copy fix_precision fix_prec float_precision float_prec location
share encrypt decrypt
owner obj""".split()


def test_verbose_is_taken() -> None:
    hook = sy.TorchHook(torch, verbose=True)
    assert sy.TorchHook(torch, None, True, False) is hook


def test_loaders_with_processes_of_their_own(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    """Plain tensors go from process to process as they do without a hook."""
    x, held = torch.arange(8.0).view(4, 2), torch.ones(2).send(bob)
    data = torch.utils.data.TensorDataset(x, torch.arange(4))
    loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=1)
    for _ in range(2):
        parts = [part for part, _ in loader]
        assert torch.equal(torch.cat(parts), x)
    assert (parts[0].send(bob) + held).tolist() == [[1.0, 2.0], [3.0, 4.0]]


def identities(target: type) -> dict[str, int]:
    return {name: id(value) for name, value in vars(target).items()}


def namespaces() -> list[dict[str, int]]:
    modules = (torch, torch.nn.functional, torch.linalg, torch.fft, torch.special, torch.optim)
    spaces = [{name: id(value) for name, value in vars(module).items()} for module in modules]
    classes = (torch.Tensor, nn.Module, nn.Parameter, nn.Linear, torch.optim.Optimizer)
    return spaces + [identities(target) for target in classes]


def test_close_restores_every_attribute() -> None:
    before, listing = namespaces(), dir(torch.Tensor)
    hooks_before = dict(optim_module._global_optimizer_pre_hooks)
    hook = sy.TorchHook(torch)
    assert set(vars(torch.Tensor)) - set(before[6]) == set(TENSOR_METHODS)
    assert set(vars(nn.Module)) - set(before[7]) == set(MODULE_METHODS)
    assert set(vars(torch.optim.Optimizer)) - set(before[-1]) == {"fix_precision", "fix_prec"}
    hook.close()
    assert namespaces() == before
    assert dir(torch.Tensor) == listing
    assert dict(optim_module._global_optimizer_pre_hooks) == hooks_before
    hook.close()  # a second time does nothing


def test_hooking_replaces_nothing_but_what_it_surrounds() -> None:
    """Two conversions, control flow, and four methods of modules, which may name a worker."""
    before = namespaces()
    sy.TorchHook(torch)
    changed = [
        {name for name in old if new[name] != old[name]}
        for old, new in zip(before, namespaces(), strict=True)
    ]
    assert changed[0] == {"as_tensor", "asarray", "cond", "while_loop"} and changed[7] == {
        "to",
        "to_empty",
        "cpu",
        "cuda",
    }
    assert not any(changed[1:7] + changed[8:])


def test_the_hook_is_idempotent(hook: sy.TorchHook) -> None:
    assert sy.TorchHook(torch) is hook
    assert sy.TorchHook(torch, local_worker=hook.local_worker) is hook
    assert sy.hook is hook
    assert sy.local_worker is hook.local_worker
    assert sy.hook.local_worker is sy.local_worker
    assert sy.TorchHook.current() is hook


def test_the_local_worker(hook: sy.TorchHook) -> None:
    assert repr(hook.local_worker) == "<VirtualWorker id:me #objects:0>"
    assert hook.local_worker.is_client_worker is True


def test_a_local_worker_of_ones_own() -> None:
    mine = sy.VirtualWorker(None, id="laptop")
    hook = sy.TorchHook(torch, local_worker=mine, is_client=False)
    assert sy.local_worker is mine
    assert mine.is_client_worker is False
    bob = sy.VirtualWorker(hook, id="bob")
    x = torch.ones(2).send(bob)
    assert shown(x) == "(Wrapper)>[PointerTensor | laptop:N -> bob:N]"
    other = sy.VirtualWorker(None, id="other")
    assert refusal(lambda: sy.TorchHook(torch, local_worker=other)) == (
        "HookError: torch is hooked already, with local worker 'laptop': close that hook first: "
        "sy.hook.close()."
    )
    assert sy.hook is hook


def test_a_hook_can_be_made_again_after_close() -> None:
    first = sy.TorchHook(torch)
    first.close()
    second = sy.TorchHook(torch, local_worker=sy.VirtualWorker(None, id="again"))
    assert second is not first
    assert sy.local_worker.id == "again"


def test_something_else_than_torch() -> None:
    assert refusal(lambda: sy.TorchHook("torch")) == (
        "HookError: cannot hook 'torch': pass the torch module: TorchHook(torch)."
    )
    assert not hasattr(torch.Tensor, "send")


@pytest.mark.parametrize("target", [torch.Tensor, nn.Module])
def test_a_hook_that_fails_leaves_torch_as_it_was(
    target: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks_before = dict(optim_module._global_optimizer_pre_hooks)
    closed: list[str] = []
    close = sy.VirtualWorker.close
    monkeypatch.setattr(
        sy.VirtualWorker, "close", lambda worker: (closed.append(worker.id), close(worker))
    )
    mine = sy.VirtualWorker(None, id="mine", is_client_worker=True)
    with monkeypatch.context() as patch:
        patch.setattr(target, "location", "somebody's own", raising=False)
        before = namespaces()
        for local in (None, mine):
            assert refusal(lambda local=local: sy.TorchHook(torch, local, is_client=False)) == (
                f"HookError: {target.__name__}.location exists already: syft never replaces what "
                "torch has."
            )
            assert namespaces() == before
            assert dict(optim_module._global_optimizer_pre_hooks) == hooks_before
    assert closed == ["me"], "a worker that was passed stays open"
    assert mine.is_client_worker
    assert refusal(sy.TorchHook.current).startswith("HookError: torch is not hooked")
    assert sy.TorchHook(torch, mine).local_worker is mine


def test_is_client_applies_to_a_hook_that_is_there(hook: sy.TorchHook) -> None:
    assert sy.TorchHook(torch, is_client=False) is hook
    assert not hook.local_worker.is_client_worker
    sy.TorchHook(torch)
    assert not hook.local_worker.is_client_worker, "not asked to change it"
    sy.TorchHook(torch, is_client=True)
    assert hook.local_worker.is_client_worker


def test_before_hooking() -> None:
    message = "HookError: torch is not hooked: call sy.TorchHook(torch) first."
    assert refusal(lambda: sy.hook) == message
    assert refusal(lambda: sy.local_worker) == message
    assert refusal(sy.synchronize) == message
    assert refusal(sy.TorchHook.current) == message
    assert refusal(lambda: sy.nonsense) == (
        "AttributeError: module 'syft' has no attribute 'nonsense'"
    )


def test_what_is_used_after_close() -> None:
    hook = sy.TorchHook(torch)
    bob = sy.VirtualWorker(hook, id="bob")
    x = torch.ones(2).send(bob)
    hook.close()
    assert refusal(lambda: x + x).startswith("WorkerClosed") or "holds no object" in refusal(
        lambda: x + x
    )
    assert not hasattr(torch.ones(1), "send")
    assert torch.equal(torch.ones(2) + 1, torch.tensor([2.0, 2.0]))


def test_a_plain_tensor_has_no_child(hook: sy.TorchHook) -> None:
    x = torch.ones(2)
    assert x.child is None
    assert type(x + x) is torch.Tensor
    assert x.location is None
    assert x.id_at_location is None
    assert x.owner is hook.local_worker
    assert x.id == x.id
    assert (x.tags, x.description) == (set(), None)


def test_tensors_may_have_attributes_of_these_names(hook: sy.TorchHook) -> None:
    x = torch.ones(2)
    x.location, x.owner, x.tags, x.id = "mine", 1, [2], 3
    assert (x.location, x.owner, x.tags, x.id) == ("mine", 1, [2], 3)


def test_is_client_worker_false_offers_tagged_tensors(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    me = hook.local_worker
    x = torch.ones(2).tag("#kept")
    assert me.search("#kept") == []
    me.is_client_worker = False
    y = torch.tensor([5.0]).tag("#mine", "#other").tag("#third")
    assert list(inspect(me).objects) == [y.id]
    (found,) = bob.request_search(["#mine", "#third"], location=me)
    assert shown(found).startswith(
        "(Wrapper)>[PointerTensor | bob:N -> me:N]\n\tTags: #mine #other"
    )
    assert (found + 1).get().tolist() == [6.0]
    pointer = x.send(bob).tag("#remote")
    assert len(inspect(me)) == 1
    del found, pointer
    me.clear_objects()


def test_record_sees_every_message(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    with hook.record() as log:
        torch.ones(2).send(bob)
    assert len(log) >= 2


def test_synchronize_raises_the_first_unseen_error(hook: sy.TorchHook) -> None:
    dan = sy.VirtualWorker(hook, id="dan", pipelined=True)
    x = torch.ones(2).send(dan)
    sy.synchronize()
    y = x.matmul(torch.ones(5, 5).send(dan))
    assert refusal(sy.synchronize).startswith("RuntimeError: mat1 and mat2 shapes")
    sy.synchronize()
    assert "ObjectNotFound" in refusal(y.get)


def test_importing_syft_changes_nothing() -> None:
    code = "import torch; a = dir(torch.Tensor); import syft; assert dir(torch.Tensor) == a"
    subprocess.run([sys.executable, "-c", code], env=outside(), check=True)
