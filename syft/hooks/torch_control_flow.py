"""``torch.cond`` and ``torch.while_loop`` in plans, and on tensors whose data is not here.

Torch compiles their branches by Dynamo, which knows neither links nor recordings.  In a plan both
are kept, as :func:`~syft.program.recording.control_flow.cond` keeps them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from syft.chain.wrapper import Wrapper
from syft.hooks.ledger import Ledger
from syft.ops.control import RECORDING
from syft.ops.nested import leaves
from syft.program.recording.control_flow import cond, while_loop

Function = Callable[..., Any]


def surround_control_flow(ledger: Ledger) -> None:
    """Have the two of torch be ours in a plan, and on remote tensors.

    >>> x = torch.ones(2).send(bob)
    >>> @sy.func2plan(args_shape=[(2,)])
    ... def sign(x):
    ...     return torch.cond(x.sum() > 0, torch.ones_like, torch.zeros_like, (x,))
    >>> sign(x).get(), sign(-x).get()
    (tensor([1., 1.]), tensor([0., 0.]))
    """
    ledger.surround(torch, "cond", functools.partial(_choosing, _cond))
    ledger.surround(torch, "while_loop", functools.partial(_choosing, _while_loop))


def _choosing(ours: Function, torchs: Function) -> Function:
    def chosen(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():  # inside a branch of torch's own
            return torchs(*args, **kwargs)
        remote = any(type(leaf) is Wrapper for leaf in leaves((args, kwargs)))
        return (ours if remote or RECORDING.get() is not None else torchs)(*args, **kwargs)

    return chosen


def _cond(pred: Any, true_fn: Function, false_fn: Function, operands: Sequence[Any] = ()) -> Any:
    return cond(pred, true_fn, false_fn, *operands)


def _while_loop(cond_fn: Function, body_fn: Function, carried_inputs: Sequence[Any]) -> Any:
    found = while_loop(cond_fn, body_fn, *carried_inputs)
    return (found,) if len(carried_inputs) == 1 else found
