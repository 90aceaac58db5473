"""Questions before something runs on shared tensors: what it costs, and dealing for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syft.hooks.torch_hook import TorchHook
from syft.tensors.shared.ahead import (
    MOST_BYTES_AHEAD,
    Cost,
    StockLevel,
    cost_of,
    prepare_runs,
    stock_level,
)


def cost(function: Callable[..., Any], *args: Any) -> Cost:
    """The cost of a run of a function, module or plan on shared arguments; nothing is sent for it.

    It is run without values, and what it computes is dropped.  Optimizers that it steps are left as
    they were, without the gradients; other shared tensors that a function keeps must be made anew
    in the next run.  The cost is that of every run but the first,
    in which what stays, such as weights, is opened behind its mask: ``once`` bytes more.

    Raises :class:`~syft.exceptions.UnsupportedOperation` if the function asks for values, and
    :class:`~syft.exceptions.HookError` if torch is not hooked.

    >>> x = torch.ones(64).fix_precision().share(alice, bob, crypto_provider=carol)
    >>> sy.cost(torch.relu, x)
    Cost(rounds=4, sent=784, dealt=..., instructions=4, programs=1, once=0)
    """
    return cost_of(TorchHook.current().local_worker, function, args)


def prepare(
    function: Callable[..., Any], *args: Any, n: int, most_bytes: int = MOST_BYTES_AHEAD
) -> StockLevel:
    """Have the provider deal now for the next ``n`` runs of a function, module or plan.

    Such a run then sends the provider nothing, and waits for nothing from it.  It is known by what
    it needs: it has arguments of the same shapes, which were not used before, it runs with
    gradients recorded or not as they are now (``torch.no_grad``), and its result is fetched before
    something else is recorded.  Any other run is dealt for when it comes.  Returns
    when everything is at the parties.  Besides, what stays between runs is opened behind its mask.

    Raises :class:`~syft.exceptions.StockFull` if more than ``most_bytes`` would wait for the
    workers that share the tensors, :class:`~syft.exceptions.LimitExceeded` if the last of them
    keeps less, and what :func:`cost` raises.

    >>> x = torch.ones(8).fix_precision().share(alice, bob, crypto_provider=carol)
    >>> sy.prepare(torch.relu, x, n=3).runs
    3
    >>> _ = torch.relu(x).get()
    >>> sy.stock().runs
    2
    """
    return prepare_runs(TorchHook.current().local_worker, function, args, n, most_bytes)


def stock() -> StockLevel:
    """For how many runs was dealt ahead, and the bytes that wait at the parties.

    Raises :class:`~syft.exceptions.HookError` if torch is not hooked.

    >>> x = torch.ones(8).fix_precision().share(alice, bob, crypto_provider=carol)
    >>> print(sy.stock())
    0 runs dealt ahead, 0 bytes
    """
    return stock_level(TorchHook.current().local_worker)
