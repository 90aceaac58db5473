"""What the graph of a result keeps in memory, besides the objects at a worker.

Torch keeps a graph as long as a result of it lives, and with it what its operations saved: their
operands and results, masks, indices.  So a caller is charged for these too.

What a graph saved is not asked of the graph itself.  Where something is private that would tell
whether an operation failed: what stands for its result saves nothing.  And torch frees a chain of
nodes one inside the other once Python has seen them, so a long one would exceed the stack.  So the
prediction of an operation says it (:mod:`syft.ops.evaluate`), by the forms of its operands.  Where
there is none it is all that the operation was given and has made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from syft.ops.engines import stand_on
from syft.ops.evaluate import evaluate
from syft.ops.nested import EXACT_TENSOR_TYPES, Function, leaves, replace
from syft.ops.outcome import Given, Made, Outcome
from syft.workers.execution.public_sizes import hides_shape, public_size
from syft.workers.labels.walk import recorded_of

NODE: Final = 600
"""The bytes of a node of a graph itself (583 for an addition, by torch 2.13)."""
_FEW: Final = 4
"""The nodes of an operation of which nothing is known."""

_WIDEST: Final = 8
"""The bytes of an element of what is no plain tensor."""

Memory = dict[int, tuple[torch.UntypedStorage, int]]


@dataclass(slots=True)
class Kept:
    """What a graph keeps: the ``memory`` of operands and results, by the address of the storage
    itself, other ``bytes``, and those of its ``nodes``.

    ``reached`` are the operands, by place, to which it leads.  It is ``exact`` if it is certain
    that a backward pass from each result comes to all of that.
    """

    memory: Memory = field(default_factory=dict)
    bytes: int = 0
    nodes: int = 0
    reached: tuple[int, ...] = ()
    exact: bool = True


def is_recorded(tensor: torch.Tensor) -> bool:
    """Whether autograd of this process records what is done to a tensor; nobody else is asked.

    >>> is_recorded(torch.ones(2)), is_recorded(torch.ones(2, requires_grad=True))
    (False, True)
    """
    recorded = tensor if type(tensor) in EXACT_TENSOR_TYPES else recorded_of(tensor)
    return recorded is not None and bool(recorded.requires_grad)


def has_graph(value: Any) -> bool:
    """Whether autograd of this process has recorded how an object was made.

    >>> x = torch.ones(2, requires_grad=True); has_graph(x), has_graph(x * 2), has_graph("text")
    (False, True, False)
    """
    if type(value) in EXACT_TENSOR_TYPES:
        return bool(value.requires_grad) and not value.is_leaf
    recorded = recorded_of(value) if isinstance(value, torch.Tensor) else None
    return recorded is not None and bool(recorded.requires_grad) and not recorded.is_leaf


def is_leaf(value: Any) -> bool:
    """Whether a backward pass may leave a gradient at an object.

    >>> is_leaf(torch.ones(2)), is_leaf(torch.ones(2, requires_grad=True))
    (False, True)
    """
    recorded = recorded_of(value) if isinstance(value, torch.Tensor) else None
    return recorded is not None and bool(recorded.requires_grad) and recorded.is_leaf


def gradient_bytes(leaf: torch.Tensor) -> int:
    """The bytes of the gradient that a backward pass may leave at a tensor, each element once more
    that ``expand`` repeats.

    >>> gradient_bytes(torch.ones(1, requires_grad=True).expand(9).detach().requires_grad_())
    36
    >>> gradient_bytes(torch.ones(9))
    0
    """
    if not leaf.requires_grad:
        return 0
    size = leaf.element_size() if type(leaf) in EXACT_TENSOR_TYPES else _WIDEST
    return public_size(leaf).elements * size


def beginnings(inputs: Iterable[torch.Tensor]) -> list[torch.Tensor | None]:
    """The operands to which graphs may lead, as autograd knows them; None for the others.

    >>> x = torch.ones(2, requires_grad=True); beginnings([x, x.detach()])[0] is x
    True
    """
    return [recorded_of(tensor) if is_recorded(tensor) else None for tensor in inputs]


def outcome_of(
    function: Function, args: Sequence[Any], kwargs: dict[str, Any], inputs: Sequence[torch.Tensor]
) -> Outcome | None:
    """What a call will do, by what everybody may know of its operands; None if that is not enough.

    It is asked of what stands for them: where they lie in memory, and what they are views of, says
    nothing of what is saved.

    >>> x = torch.ones(2, requires_grad=True); outcome_of(torch.exp, (x,), {}, [x]).saved.results
    True
    """
    if not all(map(_may_stand, inputs)):
        return None
    standing = {id(tensor): _stand_in(tensor) for tensor in inputs}

    def change(leaf: Any) -> Any:
        return standing.get(id(leaf), leaf)

    outcome = evaluate(function, replace(tuple(args), change), replace(kwargs, change))
    return outcome if outcome.is_complete and outcome.saved is not None else None


def _may_stand(tensor: torch.Tensor) -> bool:
    """Whether the form of a tensor is public, and all there is to it."""
    plain = type(tensor) in EXACT_TENSOR_TYPES and tensor.layout is torch.strided
    return plain and not tensor.is_quantized and not hides_shape(tensor)


def _stand_in(tensor: torch.Tensor) -> torch.Tensor:
    sizes: Any = tensor.shape, tensor.stride()
    made = torch.empty_strided(*sizes, dtype=tensor.dtype, device="meta")
    if tensor.requires_grad:
        made.requires_grad_()
        if not tensor.is_leaf:
            with torch.enable_grad():
                made = made.clone()
    stand_on(made, tensor.device)
    return made


def predicted(
    outcome: Outcome | None, results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
) -> Kept:
    """What the graph of results keeps by the prediction of a call, all of whose tensors ``inputs``
    are; as much as it may be without one.

    >>> x = torch.ones(2, requires_grad=True); outcome = outcome_of(torch.exp, (x,), {}, [x])
    >>> y = x.exp(); kept = predicted(outcome, [y], [x]); y.untyped_storage()._cdata in kept.memory
    True
    """
    saved = None if outcome is None else outcome.saved
    if outcome is None or saved is None:
        return at_most(results, inputs)
    memory = memory_of(inputs[place] for place in saved.inputs)
    memory.update(memory_of(results if saved.results else ()))
    ends = _ends_of(outcome)
    reached = tuple(set().union(*ends))
    exact = len(results) == 1 or not (memory or saved.bytes) and len(ends) == 1
    return Kept(memory, saved.bytes, NODE * saved.nodes, reached, exact)


def _ends_of(outcome: Outcome) -> set[tuple[int, ...]]:
    """The operands that the graph of each result, or of what was written, reaches."""
    made = [*leaves(outcome.result), *(after for _, after in outcome.changed)]
    return {_reached(one) for one in made if one is not None and _leads_on(one)}


def _leads_on(made: Made | Given) -> bool:
    return isinstance(made, Given) or made.requires_grad


def _reached(made: Made | Given) -> tuple[int, ...]:
    return (made.place,) if isinstance(made, Given) else made.reaches


def at_most(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> Kept:
    """The most that the graph of results may keep: all that the operation was given and has made,
    and as much as that again on the way.

    >>> x = torch.ones(2, requires_grad=True); kept = at_most([x * 2], [x])
    >>> len(kept.memory), kept.exact
    (2, False)
    """
    made = memory_of(results)
    bytes = sum(size for _, size in made.values())
    reached = tuple(place for place, start in enumerate(beginnings(inputs)) if start is not None)
    return Kept({**memory_of(inputs), **made}, bytes, _FEW * NODE, reached, False)


def memory_of(values: Iterable[torch.Tensor]) -> Memory:
    """All memory of some tensors, with the bytes that everybody may know of.

    >>> x = torch.ones(2); [size for _, size in memory_of([x, x[:1]]).values()]
    [8]
    """
    found: Memory = {}
    for value in values:
        found.update(public_size(value).memory)
    return found
