"""Which argument a torch call writes to: what it gives back then is that argument, and nothing new.

Links make new wrappers for results.  ``x.add_(1)``, ``torch.add(x, 1, out=y)`` and
``relu(x, inplace=True)`` must hand back the very ``x`` or ``y`` they were given.
"""

from __future__ import annotations

from typing import Any

from syft.ops.nested import Arguments, Keywords
from syft.ops.table import OpFlag

_INPLACE = int(OpFlag.INPLACE)
_INPLACE_OPTION = int(OpFlag.INPLACE_OPTION)


def written(flags: int, args: Arguments, kwargs: Keywords) -> Any:
    """The argument an operation with these flags writes to and returns; None if it makes new
    tensors.

    >>> from syft.ops.table import BY_NAME, FLAGS
    >>> written(FLAGS[BY_NAME["torch.Tensor.add_"]], ("x", 1), {})
    'x'
    >>> written(FLAGS[BY_NAME["torch.add"]], ("x", 1), {"out": "y"})
    'y'
    >>> written(FLAGS[BY_NAME["torch.nn.functional.relu"]], (), {"input": "x", "inplace": True})
    'x'
    >>> written(FLAGS[BY_NAME["torch.add"]], ("x", 1), {"out": None})
    """
    out = kwargs.get("out")
    if out is not None:
        return out
    if flags & _INPLACE or (flags & _INPLACE_OPTION and kwargs.get("inplace")):
        return args[0] if args else kwargs.get("input")
    return None
