"""What an interface may hold: it is shown to anybody, whatever the plan computes with.

So there must be no data in it that a guard would have to protect, and its names must be names
wherever they are shown or written.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from syft.exceptions import MalformedMessage
from syft.serde.torch_types import NUMBERED_KINDS

_PLAIN: Final = frozenset(
    (int, float, bool, complex, str, bytes, bytearray, type(None), type(Ellipsis), type, range)
    + (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme, torch.Size)
    + (torch.finfo, torch.iinfo, torch.Generator, *NUMBERED_KINDS)
)
_IN_NO_NAME: Final = frozenset("'\"`\\")


def expect_plain(value: Any, where: str, *also: type) -> None:
    """Raise :class:`~syft.exceptions.MalformedMessage` for what is neither a plain value, nor of
    the classes in ``also``, nor a container of these.

    >>> expect_plain({"x": (1, [None])}, ".x")
    >>> expect_plain([torch.ones(1)], ".x")
    Traceback (most recent call last):
    ...
    syft.exceptions.MalformedMessage: Malformed message at $.x: expected plain values, got a \
Tensor.
    """
    if type(value) in _PLAIN or type(value) in also:
        return
    if isinstance(value, dict):
        expect_plain((*value, *value.values()), where, *also)
    elif isinstance(value, slice):
        expect_plain((value.start, value.stop, value.step), where, *also)
    elif isinstance(value, (tuple, list, set, frozenset)):
        for item in value:
            expect_plain(item, where, *also)
    else:
        expected = " and ".join(["plain values", *(f"{kind.__name__}s" for kind in also)])
        raise MalformedMessage(f"${where}", expected, f"a {type(value).__name__}")


def expect_name(text: str, where: str) -> None:
    """Raise :class:`~syft.exceptions.MalformedMessage` for a text with quotes, backslashes or
    control characters.

    >>> expect_name("layers.0.weight", ".x")
    >>> expect_name("x\\n", ".x")
    Traceback (most recent call last):
    ...
    syft.exceptions.MalformedMessage: Malformed message at $.x: expected a name without quotes, \
backslashes and control characters, got a text with some.
    """
    if not text.isprintable() or not _IN_NO_NAME.isdisjoint(text):
        expected = "a name without quotes, backslashes and control characters"
        raise MalformedMessage(f"${where}", expected, "a text with some")
