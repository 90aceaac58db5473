"""Answers of a worker to questions about its objects, checked before they are used.

A reply that can be read may still hold anything.  What is handed to the user's program as it is
needs no check; what this library takes apart does, so that a worker that answers nonsense is named
as what is wrong, at the line that asked.
"""

from __future__ import annotations

from typing import Any

import torch

from syft.exceptions import MalformedMessage

_LARGEST_ID = 1 << 63


def values_in(answer: Any, count: int) -> tuple[Any, ...]:
    """The ``count`` values of an answer.

    Raises :class:`~syft.exceptions.MalformedMessage` if it holds fewer, more, or no values.

    >>> values_in([5, 6], 2)
    (5, 6)
    """
    if not isinstance(answer, list | tuple) or len(answer) != count:
        raise MalformedMessage("$.value", f"{count} values", type(answer).__name__)
    return tuple(answer)


def tensor_in(answer: Any) -> torch.Tensor:
    """The tensor that an answer is; raises :class:`~syft.exceptions.MalformedMessage` otherwise.

    >>> tensor_in(torch.ones(2))
    tensor([1., 1.])
    """
    if not isinstance(answer, torch.Tensor):
        raise MalformedMessage("$.value", "a tensor", type(answer).__name__)
    return answer


def summary_in(answer: Any) -> tuple[Any, ...]:
    """Tags, description and shape of an object, and the interface of a plan as the fourth item.

    Raises :class:`~syft.exceptions.MalformedMessage`.

    >>> summary_in((["#digits"], None, torch.Size([2])))
    (['#digits'], None, torch.Size([2]))
    """
    summary = tuple(answer) if type(answer) in (list, tuple) else ()
    if 3 <= len(summary) <= 4:
        tags, description, shape = summary[:3]
        described = description is None or type(description) is str
        shaped = shape is None or type(shape) is torch.Size
        tagged = type(tags) in (list, tuple) and all(type(tag) is str for tag in tags)
        if described and shaped and tagged:
            return summary
    expected = "the tags, the description and the shape of an object"
    raise MalformedMessage("$.value", expected, type(answer).__name__)


def summaries_in(answer: Any) -> list[tuple[int, tuple[Any, ...]]]:
    """The ids of the objects that a search has found, each with its summary.

    Raises :class:`~syft.exceptions.MalformedMessage`.

    >>> summaries_in([(5, ["#digits"], None, torch.Size([2]))])
    [(5, (['#digits'], None, torch.Size([2])))]
    """
    if type(answer) not in (list, tuple):
        raise MalformedMessage("$.value", "a list of objects", type(answer).__name__)
    found = []
    for item in answer:
        fields = item if type(item) in (list, tuple) else ()
        if not fields or type(fields[0]) is not int or not 0 <= fields[0] < _LARGEST_ID:
            raise MalformedMessage("$.value", "the id of an object first", type(item).__name__)
        found.append((fields[0], summary_in(fields[1:])))
    return found
