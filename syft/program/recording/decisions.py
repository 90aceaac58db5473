"""Decisions that Python makes by the values of tensors: a program keeps one outcome only.

The user is warned, at the line that decides.  An optimizer may not decide by values at all.  A
decision by a size or by a number of the call is an action of the program, which expects the same
outcome at every call (:func:`syft.ops.numbers.expect`).
"""

from __future__ import annotations

import warnings

from syft.exceptions import CannotRecord, FrozenPath
from syft.program.recording.environment.source_line import enclosing_module, user_line


class DecisionLog:
    """The decisions of one run.  With ``rerun`` it does not warn.

    >>> log = DecisionLog(rerun=True)
    >>> log.add("torch.Tensor.__bool__")
    >>> log.warned_lines
    set()
    """

    def __init__(self, rerun: bool = False) -> None:
        self.optimizers: list[str] = []
        """The optimizers that are taking a step, the innermost last."""
        self.warned_lines: set[str] = set()
        self._rerun = rerun

    def add(self, what: str) -> None:
        """Warn of a decision, and refuse that of an optimizer."""
        line = str(user_line())
        if self.optimizers:
            instead = "it decides by the value of a tensor; use one that does not, such as AdamW"
            raise CannotRecord(self.optimizers[-1], line, instead)
        module = enclosing_module()
        if module is not None:
            what = f"{what} inside {module}"
        if not self._rerun and line not in self.warned_lines:
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
