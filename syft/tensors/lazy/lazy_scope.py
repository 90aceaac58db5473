"""``sy.lazy()``: a region of a program in which new tensors are lazy, run at their lines, or run by
a backend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper
from syft.exceptions import UnusableSetting
from syft.ops.control import RECORDING
from syft.ops.nested import Arguments, Keywords
from syft.tensors.lazy.lazy_backends import Backend, BackendRunner, compiled_by_inductor
from syft.tensors.lazy.lazy_link import LazyTensor, captured_here
from syft.tensors.lazy.lazy_trace import TRACE
from syft.torch_private import TorchDispatchMode

_BACKENDS: Final[dict[str, Backend]] = {"inductor": compiled_by_inductor}
_LIFT: Final = torch.ops.aten.lift_fresh.default


class NewTensorsLazy(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees each operation of aten, also those without a tensor, and has it be recorded."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        if Wrapper in types or RECORDING.get() is not None:
            return func(*args, **(kwargs or {}))
        if func is _LIFT:  # torch.tensor([1.0, 2.0])
            return captured_here(args[0])
        return LazyTensor.call(func, args, kwargs or {})


def _backend_of(backend: Backend | str) -> Backend:
    if callable(backend):
        return backend
    if backend not in _BACKENDS:
        raise UnusableSetting("backend", "'inductor' or a function of a program", repr(backend))
    return _BACKENDS[backend]


@contextmanager
def lazy(on: bool = True, backend: Backend | str | None = None) -> Iterator[None]:
    """A context in which new tensors and parameters are lazy; with ``lazy(False)`` lazy tensors run
    each operation at its line, which shows where an error comes from.

    ``backend`` runs programs in the place of the loop: ``"inductor"`` for ``torch.compile``, or a
    function of a program that returns what runs it, or None.  With a backend and ``on=False`` new
    tensors are as always, and lazy ones are run by it.

    ``SYFT_LAZY=0`` in the environment runs each operation at its line, whatever the program says.
    Not seen: what numpy's memory becomes a tensor by, as ``torch.from_numpy``.

    >>> with lazy():
    ...     x = torch.ones(2) * 3
    >>> x
    (Wrapper)><lazy 2 float32, 2 operations behind it>
    >>> with lazy(False):
    ...     x + 1
    (Wrapper)>LazyTensor>tensor([4., 4.])
    """
    run_program = None if backend is None else BackendRunner(_backend_of(backend))
    before = TRACE.run_by(run_program, at_once=not on and backend is None)
    new_tensors: Any = NewTensorsLazy
    scope = new_tensors() if on else nullcontext()
    try:
        with scope:
            yield
    finally:
        TRACE.run_by(*before)
