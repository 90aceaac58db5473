"""MultiPointerPlan: pointers to copies of one plan, one at each of several workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syft.chain.wrapper import Wrapper, place_of
from syft.exceptions import LocationMismatch
from syft.ids import new_id
from syft.ops.nested import every_tensor, leaves, replace
from syft.plans.remote.pointer_plan import PointerPlan
from syft.tensors.multi_pointer import MultiPointerTensor, combine_results
from syft.tensors.pointer import PointerTensor
from syft.workers.client.transport import Location, Owner


class MultiPointerPlan:
    """Pointers to copies of one plan, one at each worker.

    Called with multi-pointers it runs at every worker; called with pointers to one of them, there.

    >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
    >>> pointer = plan.send(alice, bob)
    >>> pointer
    [PointerPlan | me:...
    ... -> alice:...
    ... -> bob:...
    ]
    >>> pointer(torch.ones(2).send(alice, bob)).get()
    [tensor([2., 2.]), tensor([2., 2.])]
    """

    def __init__(self, pointers: Sequence[PointerPlan]) -> None:
        self.id = new_id()
        self.pointers: dict[str, PointerPlan] = {}
        for pointer in pointers:
            name = pointer.location.id
            if name in self.pointers:
                raise LocationMismatch("one plan for each worker", (name, name))
            self.pointers[name] = pointer

    def __repr__(self) -> str:
        places = "".join(f"\n\t -> {pointer.place()}" for pointer in self.pointers.values())
        return f"[PointerPlan | {self.owner.id}:{self.id}{places}\n]"

    def _repr_html_(self) -> str:
        """What a notebook shows: a line for each copy."""
        return "<br>".join(pointer._repr_html_() for pointer in self.pointers.values())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        several, single = _pointers_in((args, kwargs))
        for copies in several:
            if copies.pointers.keys() != self.pointers.keys():
                raise self._mismatch(copies.place())
        if several:
            return self._call_everywhere(args, kwargs)
        for link in single:
            pointer = self.pointers.get(link.location.id)
            if pointer is not None:
                return pointer(*args, **kwargs)
        tensors = every_tensor(args, kwargs)
        raise self._mismatch(next(map(place_of, tensors), "nowhere"))

    def _call_everywhere(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        results = [
            pointer(*_operands_at(name, args), **_operands_at(name, kwargs))
            for name, pointer in self.pointers.items()
        ]
        out = kwargs.get("out")
        is_parameter = next(iter(self.pointers.values())).interface.takes("out")
        return combine_results(results) if out is None or is_parameter else out

    def _mismatch(self, place: str) -> LocationMismatch:
        return LocationMismatch(f"plan {self.name}", ("+".join(self.pointers), place))

    @property
    def name(self) -> str:
        """The name of the plan."""
        return next(iter(self.pointers.values())).name

    @property
    def owner(self) -> Owner:
        """The worker that holds the pointers."""
        return next(iter(self.pointers.values())).owner

    @property
    def location(self) -> list[Location]:
        """The workers that hold the plan."""
        return [pointer.location for pointer in self.pointers.values()]

    def get(self, user: str | None = None) -> list[Any]:
        """Bring every copy here, each with its own state, and remove it there.

        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
        >>> [back(torch.ones(2)) for back in plan.send(alice, bob).get()]
        [tensor([2., 2.]), tensor([2., 2.])]
        """
        return [pointer.get(user) for pointer in self.pointers.values()]


def _pointers_in(operands: Any) -> tuple[list[MultiPointerTensor], list[PointerTensor]]:
    """The pointers to several workers among the operands of a call, and those to one."""
    links = [leaf.child for leaf in leaves(operands) if type(leaf) is Wrapper]
    several = [link for link in links if isinstance(link, MultiPointerTensor)]
    return several, [link for link in links if isinstance(link, PointerTensor)]


def _operands_at(worker: str, operands: Any) -> Any:
    """The operands of a call as one of the workers has them."""

    def part(leaf: Any) -> Any:
        if type(leaf) is Wrapper and type(leaf.child) is MultiPointerTensor:
            return leaf.child.pointers[worker]
        return leaf

    return replace(operands, part)
