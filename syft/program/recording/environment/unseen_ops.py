"""Finds aten operations that run outside of the torch functions that the tracer sees.

The tracer sees functions of torch, and aten operations run inside them.  An operation that runs
outside of all of them was started in a way that ``__torch_function__`` is not called for: by a
legacy constructor, a compiled extension, a scripted module, or a write to a tensor through another
library.  The program would lack it.

This mode is active only when the function runs again.  An operation takes ten times as long under
it, so the tracer disables it during every call that it sees itself.  That costs a microsecond a
call: 0.07 ms of the 1.4 ms that recording 50 tiny operations takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from syft.exceptions import CannotRecord
from syft.program.recording.environment.source_line import user_line
from syft.torch_private import TorchDispatchMode
from syft.ops.nested import Arguments, Keywords


class RefuseUnseenOps(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses every operation that it sees, and adds the parts of the refusal to ``refusals``.

    >>> with RefuseUnseenOps([]):
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
