"""What guards a private value in a message, as data that both ends know.

The users who may read a value, and whether its shape is private, are fields of the messages that
carry it.  The rest is here, in one record: most private values have none of it.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Terms(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a message says of a private value besides who may read it.

    ``destinations`` are the workers to which it may go on behalf of anybody.  ``owners`` may let
    others read it (None: the sender).  ``error`` is the exception, as an operand, that stands for a
    value which could not be computed.  ``providers`` may deal for shares of it (None: all workers).
    ``most`` are the sizes that a tensor of private shape has at most, whatever the values are; None
    if they have no bound.
    """

    destinations: tuple[str, ...] = ()
    owners: tuple[str, ...] | None = None
    error: Any = None
    providers: tuple[str, ...] | None = None
    most: tuple[int, ...] | None = None
