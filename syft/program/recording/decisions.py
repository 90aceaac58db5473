"""Decisions that Python makes by values or sizes, of which a program keeps one outcome only.

The user is warned of a decision by a value, at the line that decides.  A decision by a size is
listed instead: whether it matters is known when the function has run with other sizes
(:mod:`syft.program.recording.verify`).  An optimizer may not decide by values at all.
"""

from __future__ import annotations

import warnings
from typing import Any

from syft.exceptions import CannotRecord, FrozenPath
from syft.program.recording.environment.source_line import enclosing_module, user_line
from syft.program.recording.symbolic import Origin

Decision = tuple[str, str, Any]
"""What Python decided by a size: the line, what it did, and the value."""


class DecisionLog:
    """The decisions of one run; ``by_size`` is the list that decisions by sizes are added to.

    With ``rerun`` it does not warn.

    >>> log = DecisionLog()
    >>> log.add("len() of a tensor", Origin.SIZE, 3)
    >>> [(what, value) for _, what, value in log.by_size]
    [('len() of a tensor', 3)]
    """

    def __init__(self, rerun: bool = False, by_size: list[Decision] | None = None) -> None:
        self.by_size: list[Decision] = [] if by_size is None else by_size
        self.optimizers: list[str] = []
        """The optimizers that are taking a step, the innermost last."""
        self.warned_lines: set[str] = set()
        self._rerun = rerun

    def add(self, what: str, origin: Origin, value: Any) -> None:
        """List a decision by a size, or warn of one by a value."""
        line = str(user_line())
        if self.optimizers and origin is Origin.VALUE:
            instead = "it decides by the value of a tensor; use one that does not, such as AdamW"
            raise CannotRecord(self.optimizers[-1], line, instead)
        module = enclosing_module()
        if module is not None:
            what = f"{what} inside {module}"
        if origin is Origin.SIZE:
            self.by_size.append((line, what, value))
        elif not self._rerun and line not in self.warned_lines:
            self.warned_lines.add(line)
            warn_frozen(line, what)


def warn_frozen(line: str, what: str) -> None:
    """Warn, at the user's line, that a decision is frozen in the program."""
    text = (
        f"{line}: {what} decides what the function does, and a plan keeps only the path that is "
        "taken now. sy.cond and sy.while_loop keep both."
    )
    file, _, number = line.rpartition(":")
    warnings.warn_explicit(FrozenPath(text), FrozenPath, file, int(number))
