"""Lazy modules in a plan: they get their shape before it is recorded, as from their first call.

A lazy module (``nn.LazyLinear``) makes its parameters when it is first called, of the shape that
its input has.  That is no step of a program: it happens once, and draws random numbers.  So the
function is run until it calls such a module, which is then given what its first call would give it,
and once more until none is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin

from syft.ops.nested import replace
from syft.program.recording.symbolic import concrete


class _Called(BaseException):
    """A lazy module was called, with these arguments; no function of a user catches it."""


def without_shape(modules: Sequence[nn.Module]) -> list[Any]:
    """The lazy modules that were never called.

    >>> without_shape([nn.LazyLinear(2), nn.Linear(2, 2)])
    [LazyLinear(in_features=0, out_features=2, bias=True)]
    """
    lazy = [each for each in modules if isinstance(each, LazyModuleMixin)]
    return [each for each in lazy if each.has_uninitialized_params()]


def give_shapes(modules: Sequence[nn.Module], run: Callable[[], object]) -> None:
    """Give lazy modules the shapes that a run finds out; ``run`` leaves nothing else behind.

    A module that it does not call stays as it is.  Torch changes the class of the others when they
    are called the next time.

    >>> layer = nn.LazyLinear(2)
    >>> give_shapes([layer], lambda: layer(torch.ones(1, 3)))
    >>> layer.weight.shape
    torch.Size([2, 3])
    """
    while waiting := without_shape(modules):
        hooks = [
            each.register_forward_pre_hook(_stop, with_kwargs=True, prepend=True)
            for each in waiting
        ]
        try:
            run()
            return
        except _Called as call:
            module, args, kwargs = call.args
        finally:
            for hook in hooks:
                hook.remove()
        module.initialize_parameters(*replace(args, concrete), **replace(kwargs, concrete))
        if without_shape([module]):  # it is for the recording to say so
            return


def _stop(module: nn.Module, args: Any, kwargs: Any) -> NoReturn:
    raise _Called(module, args, kwargs)
