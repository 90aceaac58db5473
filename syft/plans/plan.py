"""Plan: a function or a module that is recorded once and then runs anywhere, in one message.

A class of the user's that inherits from :class:`Plan` is a module whose ``forward`` is recorded;
:func:`~syft.plans.function_plan.func2plan` makes a plan of a function.  A plan that was fetched
from a worker is a :class:`Plan` without either: it only replays.

A built plan never calls its Python function again.  Its state stays where it was: in the module,
or in the user's model and optimizer.
"""

from __future__ import annotations

import copy as copying
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from syft.exceptions import ProgramError, StateMismatch, UnsupportedOperation
from syft.plans.abstract_plan import AbstractPlan
from syft.plans.building.assumptions import Assumptions, sets_requires_grad
from syft.plans.building.build import BuiltPlan, Recipe
from syft.plans.building.interface import Blueprint, signature_of
from syft.plans.building.optimizers import StateTensor
from syft.plans.building.options import Options, fixed_options
from syft.plans.building.state import BoundState, Source
from syft.plans.counted import Counted
from syft.plans.plan_record import PlanRecord, copied_record


class Plan(AbstractPlan, nn.Module):
    """A module whose ``forward`` is recorded by :meth:`build` or by its first call.

    Its parameters, buffers and plain tensor attributes are the state of the plan.  ``id`` is a
    number or a name of your own.

    >>> hook = sy.TorchHook(torch)
    >>> class Net(sy.Plan):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.fc = torch.nn.Linear(2, 1, bias=False)
    ...     def forward(self, x):
    ...         return self.fc(x)
    >>> net = Net()
    >>> net
    <Net Net id:... owner:me>
    >>> _ = net.build(torch.ones(1, 2))
    >>> net
    <Net Net id:... owner:me built>
    def Net(x, state):
        fc_weight, = state.read()
        ...
    """

    __slots__ = ("_record",)  # not in __dict__: a recording refers to that, and would hold itself

    def __init__(self, id: int | str | None = None) -> None:
        super().__init__()
        self._record = PlanRecord(id)

    @property
    def name(self) -> str:
        """The name of the plan: that of its function or of its class."""
        if type(self) is not Plan or self._record.built is None:
            return type(self).__name__
        return self._record.built.blueprint.interface.name

    def _kind(self) -> str:
        return type(self).__name__

    @property
    def _is_module(self) -> bool:
        """Whether the plan is a module of the user's, with a forward and state in itself."""
        return type(self) is not Plan

    def _recipe(self) -> Recipe | None:
        if not self._is_module:
            return None
        forward: Any = type(self).forward
        return Recipe(
            self.name,
            partial(nn.Module.__call__, self),
            forward,
            signature_of(self.forward),
            [Source.of(self.name, self)],
        )

    def __setattr__(self, name: str, value: Any) -> None:
        # torch would register a module or parameter of that name, which the property would hide.
        if isinstance(value, (torch.Tensor, nn.Module)) and name in _RESERVED:
            raise AttributeError(f"{name!r} is an attribute of every plan: choose another name")
        super().__setattr__(name, value)

    def train(self, mode: bool = True) -> Any:
        """Set the mode, as ``nn.Module`` does; returns the plan.

        Raises :class:`~syft.exceptions.ProgramError` for a plan that came without its function and
        was built in the other mode, since it only replays what was recorded.

        >>> model = torch.nn.Dropout().eval()
        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: model(x))
        >>> fetched = plan.send(bob).get()
        >>> fetched.training, fetched.eval() is fetched
        (False, True)
        """
        built = self._record.built
        if built is not None and self._recipe() is None:
            if not set(built.blueprint.interface.modes) <= {mode}:
                raise ProgramError(
                    f"Plan {self.name!r} was built in {'evaluation' if mode else 'training'} mode "
                    "and came without its function, so that is what it replays: build it in the "
                    "other mode where its function is."
                )
        return super().train(mode)

    # -------------------------------------------------------------------------------------- state

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """The parameters with their names, as ``nn.Module`` gives them.

        Of a plan that is not a module itself: the part of its state that requires grad.

        >>> model = torch.nn.Linear(2, 1)
        >>> plan = sy.func2plan(args_shape=[(1, 2)])(lambda x: model(x))
        >>> [name for name, _ in plan.named_parameters()]
        ['weight', 'bias']
        """
        if self._is_module:
            yield from super().named_parameters(prefix, recurse, remove_duplicate)
            return
        yield from self._named_state(prefix, parameters=True)

    def parameters(self, recurse: bool = True) -> Counted[nn.Parameter]:
        """The parameters, as ``nn.Module`` gives them, with a length.

        >>> model = torch.nn.Linear(2, 1)
        >>> len(sy.func2plan(args_shape=[(1, 2)])(lambda x: model(x)).parameters())
        2
        """
        return Counted(parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """The buffers with their names.

        Of a plan that is not a module itself: the part of its state that does not require grad.

        >>> plan = sy.func2plan(args_shape=[(2,)], state=[torch.ones(2)])(lambda x, state: x)
        >>> list(plan.named_buffers())
        [('state.0', tensor([1., 1.]))]
        """
        if self._is_module:
            yield from super().named_buffers(prefix, recurse, remove_duplicate)
            return
        yield from self._named_state(prefix, parameters=False)

    def _named_state(self, prefix: str, parameters: bool) -> Iterator[tuple[str, Any]]:
        built = self._record.built
        if built is None:
            return
        interface = built.blueprint.interface
        for name, tensor, is_parameter in zip(
            interface.state, built.state.read(), interface.parameters, strict=True
        ):
            if is_parameter is parameters:
                yield f"{prefix}.{name}" if prefix else name, tensor

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The state by name, as ``nn.Module`` gives it.

        Of a plan that is not a module itself: all state it was recorded with.

        >>> model = torch.nn.Linear(2, 1)
        >>> plan = sy.func2plan(args_shape=[(1, 2)])(lambda x: model(x))
        >>> list(plan.state_dict())
        ['weight', 'bias']
        """
        if self._is_module:
            return super().state_dict(*args, **kwargs)
        built = self._record.built
        if built is None:
            return {}
        return {
            name: tensor.detach()
            for name, tensor in zip(built.state.names, built.state.read(), strict=True)
        }

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Copy values into the state, as ``nn.Module`` does.

        A plan that is not a module itself takes exactly the names of its :meth:`state_dict`, and
        raises :class:`~syft.exceptions.StateMismatch` for a missing, unknown or other tensor.

        >>> plan = sy.func2plan(args_shape=[(2,)], state=[torch.ones(2)])(lambda x, state: x)
        >>> plan.load_state_dict({"state.0": torch.zeros(2)}); plan.state_dict()
        {'state.0': tensor([0., 0.])}
        """
        if self._is_module:
            return super().load_state_dict(state_dict, *args, **kwargs)
        state = self._built("given a state").state
        present = dict(zip(state.names, state.read(), strict=True))
        for name in {**present, **state_dict}:
            mine, theirs = _shape(present.get(name)), _shape(state_dict.get(name))
            if mine != theirs:
                raise StateMismatch(self.name, name, mine, theirs)
        with torch.no_grad():
            for name, tensor in present.items():
                tensor.copy_(state_dict[name])
        return None

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        if self._is_module:
            return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        instead = "convert the model it was made from, and build the plan again"
        raise UnsupportedOperation("converting its state", "Plan", instead)

    # ------------------------------------------------------------------------------------- copies

    def copy(self) -> Any:
        """A plan with an id and tensors of its own, built if this one is.

        >>> plan = sy.func2plan(args_shape=[(2,)], state=[torch.ones(2)])(
        ...     lambda x, state: state.read()[0].add_(x)
        ... )
        >>> duplicate = plan.copy()
        >>> duplicate(torch.ones(2)), plan.state_dict()
        (tensor([2., 2.]), {'state.0': tensor([1., 1.])})
        """
        return copying.deepcopy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        duplicate = type(self).__new__(type(self))
        memo[id(self)] = duplicate
        attributes = copying.deepcopy(self.__dict__, memo)
        object.__setattr__(duplicate, "__dict__", attributes)
        duplicate._record = copied_record(self._record, duplicate._recipe(), memo)
        return duplicate

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._record = PlanRecord()


def replaying_plan(
    blueprint: Blueprint, state: Sequence[torch.Tensor], options: Options | None = None
) -> Plan:
    """A built plan without a Python function, which owns the state tensors.

    Without ``options`` of optimizers here, those in its interface stay as they are.

    >>> double = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
    >>> replaying_plan(double._record.built.blueprint, [])(torch.ones(2))
    tensor([2., 2.])
    """
    interface = blueprint.interface
    tensors = dict(zip(interface.state, state, strict=True))
    places = [StateTensor(name, tensors, name) for name in tensors]
    bound = BoundState(interface.name, places, not sets_requires_grad(blueprint.program))
    plan = Plan()
    plan.training = interface.modes != (False,)
    assumptions = Assumptions(options=options or fixed_options(interface.options))
    plan._record.built = BuiltPlan(blueprint, blueprint.nested(), bound, assumptions)
    return plan


def _shape(value: Any) -> str:
    return str(tuple(value.shape)) if isinstance(value, torch.Tensor) else "nothing"


_RESERVED = frozenset(name for name in dir(Plan) if isinstance(getattr(Plan, name), property))
