"""Sending a constant once: where it was sent before, a pointer to that will do.

The sender remembers under which id it put which content, as long as it has a pointer to it.  Before
it relies on that it asks the other worker whether the object is there and unchanged: somebody may
have fetched it, or written to it.  The id itself is as random as any other, so nobody else can put
something there first; and whether a private object has some content is not told to those who may
not read it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from syft.ids import digest, has_content, new_id
from syft.workers.client.connection import Connection
from syft.workers.labels.memory_labels import travelling_guard_of
from syft.workers.wire.messages import Holds

_MOST = 1024
"""After so many contents, those are forgotten to which no pointer is left."""
_NAMES = frozenset(("_tags", "_description"))


def put_once(
    connection: Connection, tensor: torch.Tensor, content: Callable[[torch.Tensor], int]
) -> int | None:
    """The id of a tensor at the other end, where it is sent unless it is there; None if it is of a
    kind that cannot be shared (it is private, requires grad, or carries tags)."""
    if not has_content(tensor) or travelling_guard_of(tensor) or _NAMES & set(tensor.__dict__):
        return None
    key = content(tensor)
    id = connection.contents.get(key)
    if id is not None and connection.garbage.owns(id) and connection.ask(Holds, id, digest(tensor)):
        connection.garbage.add_owner(id)
        return id
    id = new_id()
    connection.put(tensor, id)
    connection.garbage.start_owning(id)
    connection.contents[key] = id
    if len(connection.contents) > _MOST:
        known = connection.contents.items()
        connection.contents = {key: id for key, id in known if connection.garbage.owns(id)}
    return id
