"""The places of what an operation returned, in a draft.

A place belongs to one object.  An operation that had nothing to do (``x.contiguous()``,
``x.to(...)``) returns its argument, though with other values it may make something new; so its
result is shown to the function as an object of its own.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.program.recording.builder import Draft
from syft.torch_private import alias_of
from syft.ops.nested import rebuild_tuple


def bound(draft: Draft, value: Any, volatile: bool) -> tuple[Any, Any]:
    """The pattern of places for a result, and the result as the function is to see it.

    The pattern is None for a result without tensors.  ``volatile`` says that its shapes follow from
    values.

    >>> draft, x = Draft(0), torch.ones(2)
    >>> place, same = bound(draft, x, False)
    >>> same is x, draft.place_of(x) is place
    (True, True)
    >>> other, own = bound(draft, x, False)
    >>> own is x, own.data_ptr() == x.data_ptr(), draft.place_of(own) is other
    (False, True, True)
    """
    if isinstance(value, torch.Tensor):
        own = alias_of(value) if draft.knows(value) else value
        return draft.bind(own, volatile), own
    if not isinstance(value, (tuple, list)):
        return None, value
    pairs = [bound(draft, item, volatile) for item in value]
    pattern = tuple([place for place, _ in pairs])
    if all(place is None for place in pattern):
        return None, value
    items = [own for _, own in pairs]
    if all(own is item for own, item in zip(items, value, strict=True)):
        return pattern, value
    return pattern, items if isinstance(value, list) else rebuild_tuple(value, items)
