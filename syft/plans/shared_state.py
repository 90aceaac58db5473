"""Converting the state of a plan in place: fixed precision, sharing among workers, and back.

The state stays where it is, in the user's modules and tensors, so they are converted with the plan.
So are the running means that an optimizer keeps, with the digits that they have where it makes them
on shared tensors.  Its counts of steps stay as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from syft.chain.wrapper import Wrapper, first_link
from syft.exceptions import HookError
from syft.ops.nested import replace
from syft.plans.building.build import BuiltPlan, Recipe
from syft.tensors.fixed.fixed_link import is_fixed
from syft.tensors.fixed.grid import Grid
from syft.tensors.fixed.precision import choose_grid
from syft.tensors.fixed.rules.finer_digits import encoded_state
from syft.torch_private import exchange_contents


class HeldState(nn.Module):
    """The state of a built plan as one module, for the methods that convert modules.

    >>> plan = sy.func2plan(args_shape=[(2,)], state=[torch.ones(2)])(lambda x, state: x)
    >>> len(list(HeldState(plan._record.built, plan._recipe()).buffers()))
    1
    """

    def __init__(self, built: BuiltPlan, recipe: Recipe | None) -> None:
        super().__init__()
        entries = [] if recipe is None else recipe.entries()
        parts = [entry for entry in entries if isinstance(entry, nn.Module)]
        self._modules.update((str(at), part) for at, part in enumerate(parts))
        self._running: list[torch.Tensor] = []
        for place in built.state.places:
            found: Any = place.tensor
            if not place.is_optimizers or place.is_running:
                table = self._parameters if isinstance(found, nn.Parameter) else self._buffers
                table[place.name] = found
            if place.is_running:
                self._running.append(found)

    def convert(self, method: str, *args: Any, **kwargs: Any) -> None:
        """Call a method that the hook has given modules."""
        found = getattr(nn.Module, method, None)
        if found is None:
            raise HookError("torch is not hooked", "call sy.TorchHook(torch) first")
        with contextlib.ExitStack() as undoing:
            if method in ("fix_precision", "encrypt"):
                digits = {name: kwargs[name] for name in _DIGITS if name in kwargs}
                grid = choose_grid(*(args if method == "fix_precision" else ()), **digits)
                self._encode_running(grid, undoing)
            found(self, *args, **kwargs)
            undoing.pop_all()

    def _encode_running(self, grid: Grid, undoing: contextlib.ExitStack) -> None:
        """Encode what optimizers keep, with digits of its own; the rest is encoded by a method."""
        plain = [one for one in self._running if not is_fixed(one)]
        for one, encoded in [(one, encoded_state(one.detach(), grid)) for one in plain]:
            exchange_contents(one, encoded)
            undoing.callback(exchange_contents, one, encoded)

    @property
    def has_shares(self) -> bool:
        """Whether workers share a part of it."""
        return any(first_link(one).shared_cell() for one in (*self.parameters(), *self.buffers()))


_DIGITS = ("precision_fractional", "base")


def stand_ins(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Arguments to record with: zeros for encoded and shared tensors, which nobody may read.

    >>> hook = sy.TorchHook(torch)
    >>> stand_ins((torch.ones(2).fix_precision(), 3), {})
    ((tensor([0., 0.]), 3), {})
    """
    args, kwargs = replace((tuple(args), kwargs), _stand_in)
    return args, kwargs


def _stand_in(value: Any) -> Any:
    if type(value) is not Wrapper or not (is_fixed(value) or value.child.shared_cell()):
        return value
    zeros = torch.zeros(value.shape, dtype=value.dtype, device=value.device)
    return zeros.requires_grad_(value.requires_grad)
