"""What goes wrong while a computation is recorded, and while the recording is run."""

from __future__ import annotations

from syft.exceptions.syft_error import SyftError


class ProgramError(SyftError):
    """A recorded computation is malformed, or did not go as it was recorded.

    >>> print(ProgramError("it gave 3 results where 2 were recorded"))
    it gave 3 results where 2 were recorded
    """


class NotBuilt(ProgramError, RuntimeError):
    """The plan is not recorded, or what it was recorded with has changed since.

    >>> print(NotBuilt("sent to a worker"))
    A plan needs to be built before being sent to a worker.
    >>> print(NotBuilt("sent to a worker", "lr of SGD was 0.1 and is 0.01 now"))
    A plan needs to be built again before being sent to a worker: lr of SGD was 0.1 and is 0.01 \
now. A call of it builds it, and so does plan.build(...).
    """

    def __init__(self, action: str, change: str = "") -> None:
        super().__init__(action, change)
        self.action, self.change = action, change

    def __str__(self) -> str:
        if not self.change:
            return f"A plan needs to be built before being {self.action}."
        return (
            f"A plan needs to be built again before being {self.action}: {self.change}. "
            "A call of it builds it, and so does plan.build(...)."
        )


class CannotRecord(ProgramError):
    """A step that a recording cannot keep, so that a replay would silently do something else.

    >>> print(CannotRecord("torch.manual_seed", "train.py:12", "seed before you call the plan"))
    A plan cannot keep torch.manual_seed (train.py:12): seed before you call the plan.
    """

    def __init__(self, what: str, line: str, instead: str) -> None:
        super().__init__(what, line, instead)
        self.what, self.line, self.instead = what, line, instead

    def __str__(self) -> str:
        return f"A plan cannot keep {self.what} ({self.line}): {self.instead}."


class WrongArguments(ProgramError):
    """A plan was called with arguments of another number or kind than it takes.

    >>> print(WrongArguments("double", "1 tensor", "2 tensors"))
    Plan 'double' takes 1 tensor, and got 2 tensors.
    """

    def __init__(self, plan: str, expected: str, got: str) -> None:
        super().__init__(plan, expected, got)
        self.plan, self.expected, self.got = plan, expected, got

    def __str__(self) -> str:
        return f"Plan {self.plan!r} takes {self.expected}, and got {self.got}."


class OtherPath(ProgramError):
    """A size or number by which the function of a plan decides is not as it was when recorded.

    ``first`` and ``second`` are the numbers, ``sign`` is how they were compared (``is`` for one
    number and what it was), and ``holds`` is the answer that was recorded.

    >>> print(OtherPath(">", 5, 3, False))
    This plan was recorded for another answer to `5 > 3`: build it with arguments like these, and \
send it again where it was sent.
    """

    action = -1
    """The number of the action that found it."""

    def __init__(self, sign: str, first: float, second: float, holds: bool) -> None:
        super().__init__(sign, first, second, holds)
        self.sign, self.first, self.second, self.holds = sign, first, second, holds

    def __str__(self) -> str:
        how = f"for another answer to `{self.first} {self.sign} {self.second}`"
        if self.sign == "is":
            how = f"where a size or number is {self.second}, and now it is {self.first}"
        return (
            f"This plan was recorded {how}: build it with arguments like these, and send "
            "it again where it was sent."
        )


class StateMismatch(ProgramError):
    """A state tensor of a plan was replaced by one that does not fit what was recorded.

    >>> print(StateMismatch("net", "fc1.weight", "float32 (3, 2)", "float32 (5, 2)"))
    Plan 'net': state 'fc1.weight' was recorded as float32 (3, 2) and is now float32 (5, 2). Put a \
tensor of the same shape and dtype there, or build the plan again.
    """

    def __init__(self, plan: str, name: str, expected: str, got: str) -> None:
        super().__init__(plan, name, expected, got)
        self.plan, self.name, self.expected, self.got = plan, name, expected, got

    def __str__(self) -> str:
        return (
            f"Plan {self.plan!r}: state {self.name!r} was recorded as {self.expected} and is now "
            f"{self.got}. Put a tensor of the same shape and dtype there, or build the plan again."
        )


class PlansNotAllowed(ProgramError):
    """The owner of the worker does not allow plans there.

    >>> print(PlansNotAllowed("bob"))
    Worker 'bob' runs no plans. Its owner can allow them: allow_plans=True.
    """

    def __init__(self, worker: str) -> None:
        super().__init__(worker)
        self.worker = worker

    def __str__(self) -> str:
        return f"Worker {self.worker!r} runs no plans. Its owner can allow them: allow_plans=True."


class FrozenPath(UserWarning):
    """While a plan was recorded, Python took a branch by a value that may differ in a later call.

    The plan keeps only the path that was taken.  ``sy.cond`` and ``sy.while_loop`` keep both.

    >>> issubclass(FrozenPath, UserWarning)
    True
    """
