"""Links nest in any order, compute, and survive being sent and fetched."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable

import pytest
import torch

import syft as sy
from syft.chain.wrapper import Wrapper
from tests.chain.refusal import shown
from tests.shells.child import make_worker
from tests.shells.owner import inspect

pytestmark = pytest.mark.every_shell

Make = Callable[[], torch.Tensor]
POINTER_TO = "(Wrapper)>[PointerTensor | me:N -> {}:N]"


@pytest.fixture
def carl(hook: sy.TorchHook) -> sy.VirtualWorker:
    return make_worker(hook, id="carl")


def logged(tensor: torch.Tensor) -> torch.Tensor:
    return sy.LoggingTensor().on(tensor)


def plain() -> torch.Tensor:
    return torch.tensor([1.0, 2.0])


LOG, FIX = "LoggingTensor>", "FixedPrecisionTensor>"
TENSOR = "tensor([2., 4.])"
CHAINS: dict[str, tuple[Callable[..., torch.Tensor], list[str]]] = {
    # how it is made of (bob, alice, carl), and what it shows: doubled, then fetched step by step
    "logging of pointer": (
        lambda b, a, c: logged(plain().send(b)),
        [f"(Wrapper)>{LOG}[PointerTensor | me:N -> bob:N]", f"(Wrapper)>{LOG}{TENSOR}"],
    ),
    "logging of logging": (
        lambda b, a, c: logged(logged(plain())),
        [f"(Wrapper)>{LOG}{LOG}{TENSOR}"],
    ),
    "pointer to logging": (
        lambda b, a, c: logged(plain()).send(b),
        [POINTER_TO.format("bob"), f"(Wrapper)>{LOG}{TENSOR}"],
    ),
    "pointer to logging of logging": (
        lambda b, a, c: logged(logged(plain())).send(b),
        [POINTER_TO.format("bob"), f"(Wrapper)>{LOG}{LOG}{TENSOR}"],
    ),
    "pointer to pointer to logging": (
        lambda b, a, c: logged(plain()).send(b).send(a),
        [POINTER_TO.format("alice"), POINTER_TO.format("bob"), f"(Wrapper)>{LOG}{TENSOR}"],
    ),
    "logging of pointer to logging": (
        lambda b, a, c: logged(logged(plain()).send(b)),
        [f"(Wrapper)>{LOG}[PointerTensor | me:N -> bob:N]", f"(Wrapper)>{LOG}{LOG}{TENSOR}"],
    ),
    "pointer to logging of pointer": (
        lambda b, a, c: logged(plain().send(b)).send(a),
        [
            POINTER_TO.format("alice"),
            f"(Wrapper)>{LOG}[PointerTensor | me:N -> bob:N]",
            f"(Wrapper)>{LOG}{TENSOR}",
        ],
    ),
    "pointer to fixed precision": (
        lambda b, a, c: plain().fix_precision().send(b),
        [POINTER_TO.format("bob"), f"(Wrapper)>{FIX}tensor([131072, 262144])"],
    ),
    "pointer to logging of fixed precision": (
        lambda b, a, c: logged(plain().fix_precision()).send(b),
        [POINTER_TO.format("bob"), f"(Wrapper)>{LOG}{FIX}tensor([131072, 262144])"],
    ),
    "pointer to pointer to pointer": (
        lambda b, a, c: plain().send(b).send(a).send(c),
        [POINTER_TO.format("carl"), POINTER_TO.format("alice"), POINTER_TO.format("bob"), TENSOR],
    ),
    "pointer to pointer at the same worker": (
        lambda b, a, c: plain().send(b).send(b),
        [POINTER_TO.format("bob"), POINTER_TO.format("bob"), TENSOR],
    ),
    "pointer to me": (
        lambda b, a, c: plain().send("me"),
        [POINTER_TO.format("me"), TENSOR],
    ),
}


@pytest.fixture(params=CHAINS)
def chain(
    request: pytest.FixtureRequest,
    bob: sy.VirtualWorker,
    alice: sy.VirtualWorker,
    carl: sy.VirtualWorker,
) -> tuple[Make, list[str]]:
    make, steps = CHAINS[request.param]
    return (lambda: make(bob, alice, carl)), steps


def test_it_computes_and_comes_home(chain: tuple[Make, list[str]]) -> None:
    make, steps = chain
    value = make()
    value = value + value
    for index, step in enumerate(steps):
        assert shown(value) == step
        if index + 1 < len(steps):
            value = value.get()


def test_it_behaves_like_a_tensor(chain: tuple[Make, list[str]]) -> None:
    x = chain[0]()
    assert (x.shape, x.dtype, len(x)) == (torch.Size([2]), torch.float32, 2)
    assert x.add_(1) is x
    assert x.tolist() == [2.0, 3.0]
    x[0] = 9.0
    assert [row.item() for row in x] == [9.0, 3.0]
    assert x.max(0).values.item() == 9.0
    assert torch.cat([x, x]).shape == (4,)
    assert torch.add(x, x, out=x) is x
    assert (x + torch.tensor(1.0)).tolist() == [19.0, 7.0]
    duplicate = copy.deepcopy(x)
    duplicate.zero_()
    assert x.tolist() == [18.0, 6.0]
    leaf = x.copy().requires_grad_()
    (leaf * leaf).sum().backward()
    assert leaf.grad.tolist() == [36.0, 12.0]


def test_it_survives_a_journey(chain: tuple[Make, list[str]], hook: sy.TorchHook) -> None:
    make, _ = chain
    there = make_worker(hook, id="there", pipelined=True)
    x = make()
    before = shown(x)
    pointer = x.send(there)
    assert shown(pointer) == POINTER_TO.format("there")
    assert (pointer * 2).tolist() == [2.0, 4.0]
    back = pointer.get()
    assert type(back) is Wrapper
    assert shown(back) == before
    assert back.tolist() == [1.0, 2.0]


def test_nothing_is_left_of_it(chain: tuple[Make, list[str]], hook: sy.TorchHook) -> None:
    make, _ = chain
    value = make()
    del value
    for worker in hook.local_worker.network.workers.values():
        assert inspect(worker).objects == {}


def test_multi_pointers_nest_too(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, carl: sy.VirtualWorker
) -> None:
    several = logged(plain()).send(bob, alice)
    assert [shown(part) for part in (several * 2).get()] == [f"(Wrapper)>{LOG}{TENSOR}"] * 2
    wrapped = logged(plain().send(bob, alice))
    assert wrapped.location == [bob, alice]
    doubled = wrapped + wrapped
    assert shown(doubled).startswith("(Wrapper)>LoggingTensor>[MultiPointerTensor]\n\t-> [Pointer")
    assert [shown(part) for part in doubled.get()] == [f"(Wrapper)>{LOG}{TENSOR}"] * 2
    assert shown(wrapped.get(sum_results=True)) == f"(Wrapper)>{LOG}{TENSOR}"
    remote = plain().send(bob, alice).send(carl)
    assert shown(remote) == POINTER_TO.format("carl")
    assert [part.tolist() for part in (remote + 1).get().get()] == [[2.0, 3.0]] * 2


def test_a_logging_tensor_logs_where_it_is(
    bob: sy.VirtualWorker, caplog: pytest.LogCaptureFixture, shell: str
) -> None:
    pointer = logged(plain()).send(bob)
    times = 1 if shell == "virtual" else 0  # a child has a log of its own
    with caplog.at_level(logging.INFO, logger="syft.tensors.logging"):
        caplog.clear()
        pointer + pointer
        assert caplog.messages == ["torch.Tensor.add"] * times
        caplog.clear()
        twice = logged(pointer)
        torch.cat([twice, twice])
        assert caplog.messages == ["torch.cat"] * (1 + times)


def test_moving_keeps_the_links_in_front(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    moved = logged(plain().send(bob)).move(alice)
    assert shown(moved) == f"(Wrapper)>{LOG}[PointerTensor | me:N -> alice:N]"
    assert inspect(bob).objects == {}
