"""``torch.utils.checkpoint`` with ``use_reentrant=True``, which is a custom ``autograd.Function``
whose backward would be lost: tensors that are elsewhere, and plans, take the other way of torch's.
"""

from __future__ import annotations

from typing import Any, Final

import torch.utils.checkpoint as theirs

from syft.chain.wrapper import Wrapper
from syft.hooks.ledger import Ledger
from syft.ops.control import RECORDING
from syft.ops.nested import leaves


def surround_checkpoints(ledger: Ledger) -> None:
    """Have torch ask :class:`Checkpoint` for the way with reentrance.

    >>> from syft.hooks.ledger import Ledger
    >>> ledger = Ledger(); surround_checkpoints(ledger); theirs.CheckpointFunction.__name__
    'Checkpoint'
    >>> ledger.undo(); theirs.CheckpointFunction.__name__
    'CheckpointFunction'
    """
    ledger.replace(theirs, "CheckpointFunction", Checkpoint)


_TORCHS: Final[Any] = theirs.CheckpointFunction


class Checkpoint:
    """What stands in the place of torch's function."""

    @staticmethod
    def apply(function: Any, preserve: bool, *args: Any) -> Any:
        """Call the function; what it saves for the backward pass is computed again there."""
        if RECORDING.get() is None and not any(map(_is_seen, leaves(args))):
            return _TORCHS.apply(function, preserve, *args)
        return theirs.checkpoint(function, *args, use_reentrant=False, preserve_rng_state=preserve)


def _is_seen(value: Any) -> bool:
    return type(value) is Wrapper and value.child.at_function_level
