"""The arguments of a command as text, for reports."""

from __future__ import annotations

from typing import Any

from syft.ops.nested import leaves, replace
from syft.workers.wire.references import Reference


def is_list(value: Any) -> bool:
    """Whether a value is a container of references."""
    return isinstance(value, (list, tuple)) and any(
        isinstance(leaf, Reference) for leaf in leaves(value)
    )


def shown(value: Any) -> str:
    """Arguments as text, with ids for references."""
    return str(replace(value, lambda leaf: Id(leaf.id) if isinstance(leaf, Reference) else leaf))[
        :160
    ]


class Id(int):
    """An id in a text."""

    def __repr__(self) -> str:
        return f"#{int(self)}"
