"""One name for copies of a plan at several workers: called with operands that each of them has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syft.chain.wrapper import Wrapper, place_of
from syft.exceptions import LocationMismatch
from syft.ids import new_id
from syft.plans.remote.pointer_plan import PointerPlan
from syft.ops.nested import leaves, replace
from syft.tensors.multi_pointer import MultiPointerTensor, combine_results
from syft.tensors.pointer import PointerTensor
from syft.workers.client.transport import Location, Owner


class MultiPointerPlan:
    """Pointers to copies of one plan, one at each worker.

    Called with multi-pointers it runs at every worker; called with pointers to one of them, there.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> alice, bob = (sy.VirtualWorker(hook, id=name) for name in ("alice", "bob"))
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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors = [leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        links = [leaf.child for leaf in tensors if type(leaf) is Wrapper]
        several = [link for link in links if isinstance(link, MultiPointerTensor)]
        if several:
            for each in several:
                if set(each.pointers) != set(self.pointers):
                    raise self._mismatch(each.place())
            pointers = self.pointers.items()
            return combine_results(
                [p(*_at(name, args), **_at(name, kwargs)) for name, p in pointers]
            )
        for link in links:
            if isinstance(link, PointerTensor) and link.location.id in self.pointers:
                return self.pointers[link.location.id](*args, **kwargs)
        raise self._mismatch(place_of(tensors[0]) if tensors else "nowhere")

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

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> alice, bob = (sy.VirtualWorker(hook, id=name) for name in ("alice", "bob"))
        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
        >>> [back(torch.ones(2)) for back in plan.send(alice, bob).get()]
        [tensor([2., 2.]), tensor([2., 2.])]
        """
        return [pointer.get(user) for pointer in self.pointers.values()]


def _at(name: str, arguments: Any) -> Any:
    """The arguments as the worker of that name has them."""

    def part(leaf: Any) -> Any:
        if type(leaf) is Wrapper and type(leaf.child) is MultiPointerTensor:
            return leaf.child.pointers[name]
        return leaf

    return replace(arguments, part)
