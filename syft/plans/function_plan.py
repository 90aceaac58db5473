"""``@sy.func2plan()``: a plan of a function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, overload

from torch import nn

from syft.exceptions import WrongArguments
from syft.plans.building.build import STATE, Recipe
from syft.plans.building.examples import example_arguments
from syft.plans.building.interface import signature_of
from syft.plans.building.script_module import as_python
from syft.plans.building.state import Entry, State, check_entries
from syft.plans.plan import Plan


class FunctionPlan(Plan):
    """A plan of a function; :func:`func2plan` makes it.

    Its state is what ``state=`` lists, and whatever else the function uses that is written to or
    trained, such as a model and optimizer in its closure.

    >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
    >>> isinstance(plan, FunctionPlan), isinstance(plan, sy.Plan)
    (True, True)
    """

    def __init__(self, function: Callable[..., Any], state: Sequence[Entry] = ()) -> None:
        super().__init__()
        if state and STATE not in signature_of(function).parameters:
            got = "state= for a function without that parameter"
            raise WrongArguments(name_of(function), "its state from a parameter 'state'", got)
        functools.update_wrapper(self, function, updated=())
        self._function: Callable[..., Any] | None = function
        self._name = name_of(function)
        self._state = State(state)

    @property
    def name(self) -> str:
        """The name of the function."""
        return self._name

    @property
    def _is_module(self) -> bool:
        return False

    def _kind(self) -> str:
        return "Plan"

    def _recipe(self) -> Recipe | None:
        function = self._function
        if function is None:
            return None
        signature = signature_of(function)
        takes_state = bool(self._state.entries)
        if takes_state:
            signature = signature_of(function, without=(STATE,))
        return Recipe(
            self._name,
            function,
            function,
            signature,
            self._state.sources(),
            self._state if takes_state else None,
        )

    def train(self, mode: bool = True) -> FunctionPlan:
        """Set the mode of the modules in its state, as ``nn.Module`` does; returns the plan.

        A plan that was recorded in another mode has to be built again.

        >>> model = torch.nn.Dropout()
        >>> @sy.func2plan(args_shape=[(2,)], state=[model])
        ... def plan(x, state):
        ...     return state.read()[0](x)
        >>> _ = plan.eval(); model.training, plan.is_built
        (False, False)
        """
        super().train(mode)
        for entry in self._state.read():
            if isinstance(entry, nn.Module):
                entry.train(mode)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        duplicate = super().__deepcopy__(memo)
        built = self._record.built
        if built is not None and built.replays_only:
            # The function would use the state in its closure, which is the original's.
            duplicate._function = None
        return duplicate


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function, or the class of another callable object.

    >>> name_of(len), name_of(functools.partial(max, 3))
    ('len', 'partial')
    """
    return getattr(function, "__name__", type(function).__name__)


def _calling(model: nn.Module) -> Callable[..., Any]:
    """A function that calls a module, with the parameters of its ``forward``."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    call.__name__ = type(model).__name__
    call.__signature__ = signature_of(model.forward)  # type: ignore[attr-defined]
    return call


Decorator = Callable[[Callable[..., Any]], FunctionPlan]


@overload
def func2plan(
    args_shape: Callable[..., Any], state: Sequence[Entry] = (), *, trace_autograd: bool = False
) -> FunctionPlan: ...


@overload
def func2plan(
    args_shape: Sequence[Any] | None = None,
    state: Sequence[Entry] = (),
    *,
    trace_autograd: bool = False,
) -> Decorator: ...


def func2plan(
    args_shape: Sequence[Any] | Callable[..., Any] | None = None,
    state: Sequence[Entry] = (),
    *,
    trace_autograd: bool = False,
) -> Decorator | FunctionPlan:
    """Make a plan of the decorated function, or of a module; both may be TorchScript.

    Without arguments the parentheses may be left out: ``@sy.func2plan``.

    ``args_shape`` lists the shapes of the arguments: ``(1, 2)``, ``(-1, 2)`` for any batch size,
    ``((1, 2), torch.int64)`` with a dtype.  With it, the plan is built at once.  ``state`` lists
    tensors, modules and optimizers that belong to the plan and are sent with it; the function gets
    them from its argument ``state``: ``bias, model = state.read()``.  ``trace_autograd`` is taken
    for programs written for earlier versions: backward passes are recorded in any case.

    Raises :class:`~syft.exceptions.WrongArguments` for malformed shapes and state, and whatever
    :meth:`~syft.plans.plan.Plan.build` raises.

    >>> @sy.func2plan(args_shape=[(-1, 2)], state=(torch.tensor([1.0]),))
    ... def shift(x, state):
    ...     bias, = state.read()
    ...     return x + bias
    >>> shift.is_built, shift(torch.zeros(3, 2)).shape
    (True, torch.Size([3, 2]))
    """

    if callable(args_shape):
        return _decorated(args_shape, None, state)
    return functools.partial(_decorated, args_shape=args_shape, state=state)


def _decorated(
    function: Callable[..., Any], args_shape: Sequence[Any] | None, state: Sequence[Entry]
) -> FunctionPlan:
    function = as_python(function)
    if isinstance(function, nn.Module):
        function = _calling(function)
    plan = FunctionPlan(function, check_entries(name_of(function), state))
    if args_shape is not None:
        plan.build(*example_arguments(plan.name, args_shape))
    return plan
