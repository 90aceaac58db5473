"""All that holds tensors at a worker, for those that are moved to new memory.

Those are the objects in the store, the gradients of leaves among them, what parked operations hold,
and what executions under way have and will use.  See :mod:`syft.workers.execution.moved_memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from syft.workers.core.dataflow import Dataflow
from syft.workers.core.store import ObjectStore
from syft.workers.execution.moved_memory import Holdings, Moves
from syft.workers.labels.holders import Holder
from syft.workers.labels.walk import Places, gradient_of, lies_in, tensors_of


class StoredTensors(Holdings):
    """The tensors in a store, in the parked operations and in the executions of one worker.

    ``waiting`` returns what each execution has, by names of its own.

    >>> store = ObjectStore("bob"); x = torch.ones(2); store.put(5, x[:1])
    >>> stored, memory = StoredTensors(store, Dataflow(store)), x.untyped_storage()
    >>> [found.shape for found in stored.sharing({memory._cdata: memory})]
    [torch.Size([1])]
    """

    __slots__ = ("_store", "_dataflow", "_waiting")

    def __init__(
        self,
        store: ObjectStore,
        dataflow: Dataflow,
        waiting: Callable[[], Iterable[dict[int, Any]]] = tuple,
    ) -> None:
        self._store = store
        self._dataflow = dataflow
        self._waiting = waiting

    def sharing(self, places: Places) -> Iterator[torch.Tensor]:
        """The tensors that lie in this memory, gradients among them."""
        for tensor in self._tensors():
            if lies_in(tensor, places):
                yield tensor
            gradient = gradient_of(tensor)
            if gradient is not None and lies_in(gradient, places):
                yield gradient

    def moved(self, moves: Moves) -> None:
        """Put the successors where the moved tensors were, and count their memory anew."""
        changed = [id for id in self._store.objects if self._exchange(id, moves)]
        for tensor in self._tensors():
            gradient = gradient_of(tensor)
            if gradient is not None and moves.of(gradient) is not gradient:
                tensor.grad = moves.of(gradient)
        for value in [*self._dataflow.held()]:
            if moves.of(value) is not value:
                self._dataflow.moved(value, moves.of(value))
        for values in self._waiting():
            values.update({name: _moved(value, moves) for name, value in values.items()})
        self._store.charges.altered(changed)

    def _exchange(self, id: int, moves: Moves) -> bool:
        """Put successors into one object, or in its place; whether there are any."""
        objects = self._store.objects
        value = objects[id]
        if not isinstance(value, Holder):
            objects[id] = moves.of(value)
            return objects[id] is not value
        if all(moves.of(tensor) is tensor for tensor in value.tensors()):
            return False
        return _moved(value, moves) is value

    def shown(self) -> Iterable[torch.Tensor]:
        """Results in which the owner's program may keep gradients."""
        return self._store.graphs_of_owner()

    def _tensors(self) -> Iterator[torch.Tensor]:
        waiting = (value for values in self._waiting() for value in values.values())
        for value in (*self._store.objects.values(), *self._dataflow.held(), *waiting):
            yield from tensors_of(value)


def _moved(value: Any, moves: Moves) -> Any:
    """What takes the place of a value: itself, with successors in it, if it holds tensors."""
    if not isinstance(value, Holder):
        return moves.of(value)
    value.exchange(moves.of)
    return value
