"""References may name what a chain wraps: steps down ``.child``, at most so many."""

from __future__ import annotations

from typing import Any

from syft.chain.link import Link
from syft.chain.wrapper import Wrapper, wrap
from syft.exceptions import MalformedMessage

MAX_DEPTH = 64
"""The most ``.child`` steps of a reference."""


def descend(value: Any, depth: int) -> Any:
    """Follow ``.child`` ``depth`` times; a link found there is returned in a new wrapper.

    Raises :class:`~syft.exceptions.MalformedMessage` when the chain is shorter than that.
    """
    too_deep = MalformedMessage(
        "$.depth", "at most as many .child steps as the chain has", str(depth)
    )
    if not 0 <= depth <= MAX_DEPTH:
        raise too_deep
    link: Any = value
    for _ in range(depth):
        if not isinstance(link, (Wrapper, Link)):
            raise too_deep
        link = link.child if isinstance(link, Wrapper) else link.next_in_chain()
    return wrap(link) if isinstance(link, Link) else link
