"""Torch modes in a torch.fx graph: calls that switch a mode on, and calls that switch it back.

A graph is a flat list of calls, so a region of ``no_grad`` is written as torch's own tracers do it:
enter, the calls, exit.  An exit restores the mode found at the entry, because a program may run
under any mode.

A call that fails does not reach the exits, so a module with such regions is of a class that
restores the modes (:class:`ModeKeepingModule`).  Inference mode, a faster kind of ``no_grad``, is
written as ``no_grad``: torch has no way to leave it that does not depend on when an error is freed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from syft.plans.export.branch_nodes import every_action
from syft.program.program import Mode, Program
from syft.torch_private import enter_autocast, exit_autocast, set_grad_enabled


class ModeCalls:
    """The mode that a graph under construction is in at its end.

    >>> graph = Graph()
    >>> modes = ModeCalls(graph)
    >>> modes.switch(Mode(grad=False))
    >>> modes.switch(None)
    >>> [node.name for node in graph.nodes]
    ['is_grad_enabled', '_set_grad_enabled', '_set_grad_enabled_1']
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._mode: Mode | None = None
        self._exits: list[tuple[Callable[..., object], Node]] = []

    def switch(self, mode: Mode | None) -> None:
        """Add the calls that switch to another mode; None is the surrounding one."""
        if mode == self._mode:
            return
        for leave, state in reversed(self._exits):
            self._graph.call_function(leave, (state,))
        self._exits.clear()
        self._mode = mode
        if mode is not None:
            self._enter(mode)

    def _enter(self, mode: Mode) -> None:
        call = self._graph.call_function
        self._exits.append((set_grad_enabled, call(torch.is_grad_enabled)))
        call(set_grad_enabled, (mode.grad and not mode.inference,))
        for device, dtype in mode.autocast:
            # None for the cache: as it is.
            entered = call(enter_autocast, (device, dtype, dtype is not None, None))
            self._exits.append((exit_autocast, entered))


class ModeKeepingModule(GraphModule):
    """A graph module that leaves torch's modes as they were, also when an operation in it fails."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph."""
        with modes_kept():
            return super().__call__(*args, **kwargs)


@contextlib.contextmanager
def modes_kept() -> Iterator[None]:
    """A context that restores grad mode and autocast if its body raises.

    >>> with contextlib.suppress(KeyError), modes_kept():
    ...     _ = set_grad_enabled(False), enter_autocast("cpu", torch.bfloat16, True, None)
    ...     raise KeyError
    >>> torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
    (True, False)
    """
    grad, nesting = torch.is_grad_enabled(), _autocast_nesting()
    accelerator = torch.accelerator.current_accelerator()
    devices = ["cpu"] if accelerator is None else ["cpu", accelerator.type]
    casts = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices]
    try:
        yield
    except BaseException:
        set_grad_enabled(grad)
        for device, enabled, dtype in casts:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        for _ in range(_autocast_nesting() - nesting):
            if not torch.autocast_decrement_nesting():  # the outermost clears what it had cast
                torch.clear_autocast_cache()
        raise


def has_modes(program: Program) -> bool:
    """Whether any action, in a branch too, was recorded under a mode of its own.

    >>> has_modes(Program(inputs=0, actions=(), outputs=None))
    False
    """
    return any(action.mode is not None for _, action in every_action(program))


def _autocast_nesting() -> int:
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()
