"""What an operation does to the objects it names, and the keys by which conflicts are found.

An object has two parts that operations read and write: its *values*, and its *attributes*
(gradient, tags, description).  The values are known by keys: the id, the memory of a tensor and the
tensor object itself, where they are there.  Two objects with a key in common may share memory.  The
attributes that belong to key ``k`` have the key ``attribute_of(k)``, which stands for the memory of
the gradient too.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from syft.chain.wrapper import Wrapper
from syft.workers.labels.walk import gradient_of, innermost, memory_of, recorded_of, tensors_of

Key = Hashable
"""An id, ``("memory", address)``, ``("object", number)``, ``ELSEWHERE``, or one of attributes."""

ELSEWHERE: Final = "elsewhere"
"""The one key of everything that pointers in the store stand for at other workers."""


@dataclass(frozen=True, slots=True)
class Access:
    """What one operation does to its inputs; every input that is not written is read.

    ``writes`` are the ids whose values are written, ``sets`` those whose attributes are.
    ``reads_attributes`` says that it reads the attributes of all inputs.  ``backward`` runs a
    backward pass over the graphs of the inputs.  ``fresh`` results share no memory with any input;
    a result may otherwise be a view of each.  ``gives_gradient``: the result is the gradient.
    ``recorded`` says that autograd may record it.  ``joins``: the inputs may share memory after it.
    ``takes`` are the ids of the inputs that it takes out of the store.

    Three fields matter for who may do it, and not for the order.  ``only_object``: what it writes
    is the tensor object (its shape, whether it requires grad), not its memory.  ``roots``: a
    backward pass adds to the gradients of the leaves behind these inputs.  ``accumulates``: it adds
    to the gradients of these inputs themselves.
    """

    writes: Collection[int] = ()
    sets: Collection[int] = ()
    reads_attributes: bool = False
    backward: bool = False
    fresh: bool = False
    gives_gradient: bool = False
    recorded: bool = False
    joins: bool = False
    takes: Collection[int] = ()
    only_object: bool = False
    roots: Collection[int] = ()
    accumulates: Collection[int] = ()

    @property
    def changes(self) -> bool:
        """Whether it has an effect besides its results.

        >>> Access().changes, Access(writes=(5,)).changes
        (False, True)
        """
        return bool(self.writes or self.sets or self.backward)


READS: Final = Access()
"""The access of an operation that only reads."""


def taking(ids: Sequence[int]) -> Access:
    """The access of a request that takes objects out of the store, if there are any of these."""
    return Access(writes=ids, reads_attributes=True, takes=ids)


def attribute_of(key: Key) -> Key:
    """The key of the attributes that belong to a key of values.

    >>> attribute_of(7)
    ('attribute', 7)
    """
    return ("attribute", key)


def is_attribute(key: Key) -> bool:
    """Whether a key is one of attributes.

    >>> is_attribute(attribute_of(7)), is_attribute(7)
    (True, False)
    """
    return type(key) is tuple and key[0] == "attribute"


def attributes_of(keys: Iterable[Key]) -> set[Key]:
    """The keys of attributes that belong to keys of values.

    Memory has none: a view of a tensor has a gradient and tags of its own.

    >>> attributes_of({7, ("memory", 4096)})
    {('attribute', 7)}
    """
    return {attribute_of(key) for key in keys if type(key) is not tuple or key[0] != "memory"}


def keys_of(value: Any) -> set[Key]:
    """The keys of an object in the store.

    >>> x = torch.ones(2)
    >>> len(keys_of(x)), len(keys_of(x) & keys_of(x[:1]))
    (2, 1)
    """
    keys: set[Key] = {("memory", address) for address in memory_of(value)}
    for tensor in tensors_of(value) or (value,):
        keys |= {("object", id(tensor)), ("object", id(recorded_of(tensor)))}
    if type(value) is Wrapper and innermost(value) is None:
        keys.add(ELSEWHERE)
    return keys


def gradient_keys(value: Any) -> set[Key]:
    """The keys of the gradients that are there now of a tensor, or of the tensors in a holder.

    >>> x = torch.ones(2, requires_grad=True); x.sum().backward()
    >>> gradient_keys(x) == keys_of(x.grad)
    True
    """
    keys: set[Key] = set()
    for tensor in tensors_of(value):
        gradient = gradient_of(tensor)
        if gradient is not None:
            keys |= keys_of(gradient)
    return keys
