"""``torch.as_tensor`` and ``torch.asarray`` of tensors whose data is not here.

Torch looks at the dtype of the wrapper then, which says nothing, and asks no link.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from syft.chain.wrapper import Wrapper
from syft.hooks.ledger import Ledger

Function = Callable[..., Any]


def surround_copies(ledger: Ledger) -> None:
    """Have a conversion of a remote tensor be one at its worker.

    >>> x = torch.tensor([1, 2]).send(bob)
    >>> torch.as_tensor(x) is x, torch.as_tensor(x, dtype=torch.float32).get()
    (True, tensor([1., 2.]))
    """
    ledger.surround(torch, "as_tensor", functools.partial(_asking_links, _as_tensor))
    ledger.surround(torch, "asarray", functools.partial(_asking_links, _as_array))


def _asking_links(ours: Function, torchs: Function) -> Function:
    def convert(*args: Any, **kwargs: Any) -> Any:
        data = args[0] if args else None
        return (ours if type(data) is Wrapper else torchs)(*args, **kwargs)

    return convert


def _as_tensor(
    data: torch.Tensor, dtype: torch.dtype | None = None, device: Any = None
) -> torch.Tensor:
    changes = {"dtype": dtype, "device": device}
    given = {name: value for name, value in changes.items() if value is not None}
    return data.to(**given) if given else data


def _as_array(
    data: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> torch.Tensor:
    converted = _as_tensor(data.detach() if requires_grad is False else data, dtype, device)
    converted = converted.clone() if copy else converted
    return converted.requires_grad_() if requires_grad else converted
