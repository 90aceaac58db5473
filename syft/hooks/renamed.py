"""Attributes of tensors in earlier versions that are not there any more, and what to write instead.

Whoever reads one gets an ``AttributeError`` that says so; ``hasattr`` says False.
"""

from __future__ import annotations

from typing import NoReturn

import torch


def disable_gc(tensor: torch.Tensor) -> NoReturn:
    """Refused: it changed something when it was read, as any inspector of objects does.

    >>> hook = sy.TorchHook(torch)
    >>> torch.ones(2).disable_gc
    Traceback (most recent call last):
    ...
    AttributeError: disable_gc is not there: write x.gc = False, ...
    """
    raise AttributeError(
        "disable_gc is not there: write x.gc = False, since reading an attribute changes nothing"
    )


def create_pointer(tensor: torch.Tensor) -> NoReturn:
    """Refused: a pointer is made with what it points to.

    >>> hook = sy.TorchHook(torch)
    >>> torch.ones(2).create_pointer
    Traceback (most recent call last):
    ...
    AttributeError: create_pointer is not there: x.send(worker) puts a copy there and returns ...
    """
    raise AttributeError(
        "create_pointer is not there: x.send(worker) puts a copy there and returns a pointer, and "
        "worker.search(id) gives one to what is there already"
    )
