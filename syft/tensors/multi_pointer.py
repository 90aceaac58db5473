"""MultiPointerTensor: one tensor for pointers to several workers.

``x.send(bob, alice)`` puts a copy at each; an operation runs at every worker, on its own operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import torch

from syft.chain.link import Level, Link
from syft.ops.nested import Arguments, Keywords, leaves, rebuild_tuple, replace
from syft.chain.wrapper import Wrapper, wrap
from syft.ops.calls import mutated_argument
from syft.codes import TypeCode
from syft.exceptions import (
    LocationMismatch,
    MalformedMessage,
    UnsupportedOperation,
    UnusableSetting,
)
from syft.ops.table import REVEALS, flags_of, name_of
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, pack, register, unpack_items
from syft.tensors.pointer import PointerTensor


class MultiPointerTensor(Link):
    """Pointers to tensors at several workers, one for each worker id.

    >>> x = torch.ones(2).send(alice, bob)
    >>> x
    (Wrapper)>[MultiPointerTensor]
    ...-> [PointerTensor | me:... -> alice:...]
    ...-> [PointerTensor | me:... -> bob:...]
    >>> (x + 1).get(sum_results=True)
    tensor([4., 4.])
    """

    __slots__ = ("pointers",)

    level = Level.FUNCTION

    def __init__(self, pointers: dict[str, Wrapper]) -> None:
        self.pointers = pointers

    @property
    def child(self) -> dict[str, Any]:
        """The pointers, by worker id.

        >>> torch.ones(2).send(alice, bob).child.child["bob"]
        [PointerTensor | me:... -> bob:...]
        """
        return {name: pointer.child for name, pointer in self.pointers.items()}

    @property
    def locations(self) -> list[Any]:
        """The workers that hold the data.

        >>> x = torch.ones(2).send(alice, bob)
        >>> x.child.locations
        [<VirtualWorker id:alice #objects:1>, <VirtualWorker id:bob #objects:1>]
        """
        return [link.location for link in self.child.values()]

    def show(self) -> str:
        """``[MultiPointerTensor]`` and a line for each pointer."""
        lines = "".join(f"\n\t-> {link.show()}" for link in self.child.values())
        return f"[MultiPointerTensor]{lines}"

    def _repr_html_(self) -> str:
        """A notebook shows this: a line for each pointer."""
        return "<br>".join(str(link._repr_html_()) for link in self.child.values())

    def place(self) -> str:
        """The names of the workers that hold the data.

        >>> torch.ones(2).send(alice, bob).child.place()
        'alice+bob'
        """
        return "+".join(self.pointers)

    # ------------------------------------------------------------ what a tensor's methods call

    @property
    def location(self) -> list[Any]:
        """The workers that hold the data: what ``x.location`` returns."""
        return self.locations

    def remote_links(self) -> list[Any]:
        """The pointers, one for each worker."""
        return [link for part in self.pointers.values() for link in part.child.remote_links()]

    def get(
        self, user: str | None = None, sum_results: bool = False, keep: bool = False
    ) -> list[Any] | torch.Tensor:
        """Fetch every part: a list in the order of the workers, or (``sum_results``) their sum."""
        parts = [part.child.get(user, keep=keep) for part in self.pointers.values()]
        return reduce(torch.add, parts) if sum_results else parts

    def gather(self, fetched: Iterator[Any]) -> list[Any]:
        """The parts, in the order of the workers."""
        return [part.child.gather(fetched) for part in self.pointers.values()]

    def move(self, location: Any, requires_grad: bool = False, user: str | None = None) -> Any:
        """Refused: there is more than one tensor to move."""
        instead = "move its parts one by one, or get it and send it again"
        raise UnsupportedOperation("move", "MultiPointerTensor", instead)

    def copy(self, memo: dict[int, Any] | None = None) -> torch.Tensor:
        """Copies at each worker, and pointers to them."""
        return combine(part.child.copy(memo) for part in self.pointers.values())

    def allow(
        self,
        users: tuple[str, ...],
        destinations: tuple[str, ...] = (),
        providers: tuple[str, ...] = (),
    ) -> torch.Tensor:
        """Copies at each worker that more users may read, and pointers to them."""
        about = users, destinations, providers
        return combine(part.child.allow(*about) for part in self.pointers.values())

    def convert(self, tensor: torch.Tensor, conversion: Any, args: Arguments) -> torch.Tensor:
        """Convert the data at each worker."""
        parts = self.pointers.values()
        return combine(part.child.convert(part, conversion, args) for part in parts)

    # ----------------------------------------------------------------------------- torch calls

    @classmethod
    def call(cls, operation: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Run the operation at every worker, and combine the results."""
        names = _names(operation, args, kwargs)
        results = []
        for name in names:

            def at(value: Any, name: str = name) -> Any:
                if type(value) is Wrapper and isinstance(value.child, MultiPointerTensor):
                    return value.child.pointers[name]
                return value

            results.append(operation(*replace(args, at), **replace(kwargs, at)))
        found = combine_results(results)
        special = getattr(operation, "__name__", "").startswith("__")  # Python wants one number
        if type(found) is list and special and flags_of(operation) & REVEALS:
            instead = "each worker has one of its own: get() is a list of them"
            raise UnsupportedOperation(name_of(operation), cls.__name__, instead)
        target = mutated_argument(flags_of(operation), args, kwargs)
        return found if target is None or results[0] is None else target


def _names(operation: Any, args: Arguments, kwargs: Keywords) -> list[str]:
    """The workers of all multi-pointers in the arguments: they must be the same."""
    found: list[str] | None = None
    for leaf in leaves((args, kwargs)):
        if type(leaf) is Wrapper and isinstance(leaf.child, MultiPointerTensor):
            names = sorted(leaf.child.pointers)
            if found is not None and names != sorted(found):
                raise LocationMismatch(name_of(operation), ("+".join(found), leaf.child.place()))
            found = found or list(leaf.child.pointers)
        elif type(leaf) is Wrapper:
            place = found or ["several workers"]
            raise LocationMismatch(name_of(operation), ("+".join(place), leaf.child.place()))
    return found or []


def combine_results(results: list[Any]) -> Any:
    """One result from the workers' results: multi-pointers for tensors, a value if all are equal,
    otherwise a list.

    >>> combine_results([1, 1]), combine_results([1, 2])
    (1, [1, 2])
    """
    first = results[0]
    if not any(isinstance(leaf, torch.Tensor) for leaf in leaves(first)):
        return first if all(result == first for result in results) else results
    return _combine_nested(results)


def _combine_nested(results: list[Any]) -> Any:
    """One nested value of multi-pointers from the workers' nested values of pointers."""
    first = results[0]
    if isinstance(first, torch.Tensor):
        return combine(results)
    if isinstance(first, dict):
        return {key: combine_results([result[key] for result in results]) for key in first}
    columns = [combine_results(list(column)) for column in zip(*results, strict=True)]
    return rebuild_tuple(first, columns) if isinstance(first, tuple) else columns


def combine(pointers: Any) -> Wrapper:
    """Combine pointers to tensors at different workers into one multi-pointer.

    Raises :class:`~syft.exceptions.LocationMismatch` for tensors that are not pointers, and
    :class:`~syft.exceptions.UnusableSetting` for two at the same worker.

    >>> combine([torch.ones(2).send(alice), torch.zeros(2).send(bob)]).get()
    [tensor([1., 1.]), tensor([0., 0.])]
    """
    by_name: dict[str, Wrapper] = {}
    for pointer in pointers:
        if type(pointer) is not Wrapper or not isinstance(pointer.child, PointerTensor):
            raise LocationMismatch("combine", ("several workers", "here"))
        name = pointer.child.location.id
        if name in by_name:
            raise UnusableSetting("workers", "different workers", f"{name!r} twice")
        by_name[name] = pointer
    return wrap(MultiPointerTensor(by_name))


def combine_pointers(*pointers: torch.Tensor) -> Wrapper:
    """Combine pointers to tensors at different workers into one multi-pointer.

    >>> x = sy.combine_pointers(torch.ones(2).send(alice), torch.zeros(2).send(bob))
    >>> (x + 1).get()
    [tensor([2., 2.]), tensor([1., 1.])]
    """
    return combine(pointers)


def combine_with(tensor: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    """Combine this pointer with pointers to other workers into one multi-pointer.

    >>> x = torch.ones(2).send(alice).combine(torch.zeros(2).send(bob))
    >>> (x + 1).get()
    [tensor([2., 2.]), tensor([1., 1.])]
    """
    return combine([tensor, *others])


def _pack(link: MultiPointerTensor, packer: Packer) -> Operand:
    pointers = [pack(pointer, packer) for pointer in link.pointers.values()]
    return (int(TypeCode.MULTI_POINTER), *pointers)


def _unpack(operand: Sequence[Any], unpacker: Unpacker) -> Wrapper:
    pointers = unpack_items(operand[1:], unpacker)
    if not pointers or not all(type(pointer) is Wrapper for pointer in pointers):
        raise MalformedMessage("$", "pointers to several workers", "something else")
    return combine(pointers)


register(TypeCode.MULTI_POINTER, MultiPointerTensor, _pack, _unpack)
