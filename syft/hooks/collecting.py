"""Whether an object at a worker dies with the pointer to it, under the names of earlier versions.

``x.send(bob, garbage_collect_data=False)`` says it when the object is sent.  What is written to an
attribute that nobody reads would be lost without a word, so the old names are attributes of every
tensor.
"""

from __future__ import annotations

import torch

from syft.chain.wrapper import first_link
from syft.exceptions import UnsupportedOperation

NAMES = ("gc", "garbage_collection", "garbage_collect_data")
"""The names that earlier versions had for it on one kind of tensor or another."""


def collects(tensor: torch.Tensor) -> bool:
    """Whether the object at the worker is dropped with this pointer; False for a tensor here.

    Set to False, the object stays when the pointer is dropped.

    >>> x = torch.ones(2).send(bob)
    >>> x.gc
    True
    >>> x.gc = False
    >>> del x
    >>> bob
    <VirtualWorker id:bob #objects:1>
    """
    links = first_link(tensor).remote_links()
    return bool(links) and all(link.garbage_collect_data for link in links)


def set_collects(tensor: torch.Tensor, value: bool) -> None:
    """Set whether the object at the worker is dropped with this pointer.

    Raises :class:`~syft.exceptions.UnsupportedOperation` for a tensor that is here, and for True
    where it is False: the object may be somebody else's, or belong to another pointer.

    >>> x = torch.ones(2).send(bob)
    >>> set_collects(x, False)
    >>> x.gc
    False
    """
    links = first_link(tensor).remote_links()
    if not links:
        instead = "say it when you send it: x.send(worker, garbage_collect_data=False)"
        raise UnsupportedOperation("garbage_collect_data", "a tensor that is here", instead)
    for link in links:
        link.gc = value
