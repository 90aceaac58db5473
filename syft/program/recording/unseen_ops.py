"""What sees the aten operations that run while no function of torch is seen.

A recording sees functions of torch; below them run aten operations.  One that runs by itself was
started in a way that no override is told of: a legacy constructor, a compiled extension, a scripted
module, a write that something does to a tensor behind torch's back.  The program would miss it.

It watches the second run of a recording only.  An operation that is watched takes ten times as
long, so the tracer switches the watch off for the time of every call that it sees itself: that
costs a microsecond a call, 0.07 ms of the 1.4 ms that recording 50 tiny operations takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from torch.utils._python_dispatch import TorchDispatchMode

from syft.exceptions import CannotRecord
from syft.program.recording.source_line import user_line
from syft.ops.nested import Arguments, Keywords


class Canary(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses every operation that it sees, and puts the parts of the refusal in ``refusals``.

    >>> import torch
    >>> with Canary([]):
    ...     _ = torch.Tensor([1.0])
    Traceback (most recent call last):
    ...
    syft.exceptions.CannotRecord: A plan cannot keep aten.lift_fresh.default, which ran where \
torch shows nothing of it ...
    """

    def __init__(self, refusals: list[tuple[str, str, str]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._refusals = refusals

    def __torch_dispatch__(
        self,
        operation: Any,
        types: Iterable[type],
        args: Arguments = (),
        kwargs: Keywords | None = None,
    ) -> NoReturn:
        instead = (
            "use ordinary functions of torch, not torch.Tensor([...]), numpy, torch.jit, compiled "
            "extensions or a custom autograd.Function"
        )
        what = f"{operation}, which ran where torch shows nothing of it"
        refusal = (what, str(user_line()), instead)
        self._refusals.append(refusal)
        raise CannotRecord(*refusal)
