"""``@sy.method2plan``: methods of a plan class, besides ``forward``, that are plans themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from syft.exceptions import ProgramError
from syft.plans.abstract_plan import AbstractPlan
from syft.plans.building.build import Recipe
from syft.plans.building.interface import signature_of
from syft.plans.building.state import Source
from syft.plans.plan import Plan
from syft.plans.plan_record import PlanRecord


class MethodPlan(AbstractPlan):
    """A method of one instance of a plan class, as a plan; ``net.encode`` makes it.

    It shares the state of the instance.  The instance keeps the recording, so that each access to
    the method gives the same plan.
    """

    __slots__ = ("instance", "_method", "_record")

    def __init__(self, instance: Plan, method: Callable[..., Any], record: PlanRecord) -> None:
        self.instance = instance
        self._method = method
        self._record = record

    @property
    def name(self) -> str:
        """The name of the method."""
        return self._method.__name__

    def _kind(self) -> str:
        return type(self.instance).__name__

    def _recipe(self) -> Recipe:
        bound = self._method.__get__(self.instance)
        source = Source.of(type(self.instance).__name__, self.instance)
        return Recipe(self.name, bound, self._method, signature_of(bound), [source])


class method2plan:
    """Make the decorated method of a plan class a plan of its own, besides ``forward``.

    The method of each instance is built, called and sent by itself, with the state of the instance.
    ``@sy.method2plan()`` is the same.

    >>> class Coder(sy.Plan):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.key = torch.tensor([3.0])
    ...     @sy.method2plan
    ...     def encode(self, x):
    ...         return x + self.key
    ...     @sy.method2plan
    ...     def decode(self, x):
    ...         return x - self.key
    >>> coder = Coder()
    >>> coder.decode(coder.encode(torch.ones(1)))
    tensor([1.])
    >>> coder.encode.send(bob)(torch.ones(1).send(bob)).get()
    tensor([4.])
    """

    _method: Callable[..., Any]

    def __init__(self, method: Callable[..., Any] | None = None) -> None:
        if method is not None:
            self(method)

    def __call__(self, method: Callable[..., Any]) -> method2plan:
        """Decorate the method; a decorator with parentheses is called with it afterwards."""
        self._method = method
        self.__doc__ = method.__doc__
        return self

    def __set_name__(self, owner: type, name: str) -> None:
        if name == "forward":  # the whole plan already records that
            setattr(owner, name, self._method)

    def __get__(self, instance: nn.Module | None, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if not isinstance(instance, Plan):
            name = type(instance).__name__
            raise ProgramError(f"method2plan is for plans: let {name} inherit from sy.Plan")
        records = instance._record.methods
        record = records.get(self._method.__name__)
        if record is None:
            record = records[self._method.__name__] = PlanRecord()
        return MethodPlan(instance, self._method, record)
