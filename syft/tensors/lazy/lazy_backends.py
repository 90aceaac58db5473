"""What may run programs of lazy tensors in the place of the loop.

A *backend* is a function of a :class:`~syft.tensors.lazy.lazy_program.LazyProgram`.  It returns
what runs the program: a function of the list of inputs (tensors first, then floats) that returns
the outputs as a tuple.  Or it returns None, and the loop runs it.  So a backend can look for one
pattern alone and leave everything else.

Its results must have the shapes and dtypes that the program says, views must lie in the memory of
what they are views of, and what the program writes in place must be written.

:func:`compiled_by_inductor` is the backend of ``torch.compile``.  It takes programs that came three
times with the same floats, and holds the first result against that of the loop.
"""

from __future__ import annotations

import operator
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch.fx import Graph, GraphModule

from syft.callers import warn_user
from syft.ops.calls import written_by
from syft.ops.nested import replace
from syft.program.program import Action, Slot, slots_in
from syft.tensors.lazy.lazy_program import LazyProgram
from syft.tensors.lazy.lowered_slices import LoweredSlice
from syft.torch_private import usual_keys

Running = Callable[[list[Any]], Any]
"""What runs a program on its inputs."""
Backend = Callable[[LazyProgram], Running | None]
"""What makes programs ready to run in another way, or declines."""

_AFTER: Final = 3
"""So often must the same program come, with the same floats, before it is compiled."""
_TOLERANCE: Final = {torch.float64: 1e-8, torch.float32: 1e-4}
"""By how much a compiled result may differ, relatively; others by 0.02."""


class BackendRunner:
    """Runs programs by a backend, and by the loop those that it declines.

    >>> from syft.tensors.lazy.lazy_handles import to_eager, to_lazy
    >>> from syft.tensors.lazy.lazy_scope import lazy
    >>> def show(program):
    ...     print([action.name for action in program.actions])
    >>> with lazy(False, backend=show):
    ...     x = to_eager(to_lazy(torch.ones(2)) + 1)
    ['aten.add.Tensor']
    """

    __slots__ = ("_backend", "_ready")

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._ready: weakref.WeakKeyDictionary[LoweredSlice, Running | None] = (
            weakref.WeakKeyDictionary()
        )

    def __call__(self, lowered: LoweredSlice, values: list[Any]) -> Any:
        """Run a program."""
        if lowered not in self._ready:
            self._ready[lowered] = self._backend(lowered.program)
        run = self._ready[lowered]
        if run is None:
            return lowered.run(values)
        results = run(values)
        if results is None:  # not this time
            return lowered.run(values)
        return lowered.checked(results, f"the backend {_name(self._backend)}")


def _name(backend: Any) -> str:
    return getattr(backend, "__name__", type(backend).__name__)


def compiled_by_inductor(program: LazyProgram) -> Running | None:
    """What runs a program by ``torch.compile``, once it has come three times with equal floats.

    Torch compiles floats into the code, so a program whose floats change at each step, as those of
    Adam do, stays with the loop.  So does one that writes to memory which two of its inputs share,
    and one whose first compiled result is not that of the loop: a warning says so.
    """
    return _Compiling(program).run


class _Compiling:
    """One program on its way to be compiled."""

    __slots__ = ("_program", "_floats", "_seen", "_compiled", "_declined")

    def __init__(self, program: LazyProgram) -> None:
        self._program = program
        self._floats: list[float] | None = None
        self._seen = 0
        self._compiled: Running | None = None
        self._declined = False

    def run(self, values: list[Any]) -> Any:
        """Run it, or return None: then the loop does."""
        if self._declined:
            return None
        tensors, floats = values[: self._program.tensors], values[self._program.tensors :]
        if floats != self._floats:
            self._floats, self._seen, self._compiled = floats, 0, None
        self._seen += 1
        if self._compiled is not None:
            return self._compiled(tensors)
        if self._seen >= _AFTER:
            self._try(tensors)
        return None

    def _try(self, tensors: list[torch.Tensor]) -> None:
        """Compile it, run it on copies, and keep it if the result is that of the loop."""
        memories = Counter(one.untyped_storage().data_ptr() for one in tensors)
        for place in written_inputs(self._program):
            if memories[tensors[place].untyped_storage().data_ptr()] > 1:
                self._declined = True
                return
        module = graph_of(self._program, self._floats or [])
        copies = [[one.clone() for one in tensors] for _ in range(2)]
        with usual_keys(), torch.no_grad():
            ready = torch.compile(module, backend="inductor", fullgraph=True, dynamic=False)
            found = [*ready(*copies[0]), *copies[0]]
            wanted = [*module(*copies[1]), *copies[1]]
        if not all(map(_are_close, wanted, found)):
            self._declined = True
            warn_user(
                "the compiled form of a lazy program gave another result than the loop, so it is "
                "not used; its operations: "
                + ", ".join(action.name for action in self._program.actions[:8])
            )
            return

        def run(tensors: list[torch.Tensor]) -> Any:
            with usual_keys(), torch.no_grad():
                return tuple(ready(*tensors))

        self._compiled = run


def _are_close(wanted: torch.Tensor, found: torch.Tensor) -> bool:
    if (wanted.shape, wanted.dtype) != (found.shape, found.dtype):
        return False
    if not wanted.dtype.is_floating_point and not wanted.dtype.is_complex:
        return torch.equal(wanted, found)
    most = _TOLERANCE.get(wanted.dtype, 2e-2)
    return torch.allclose(wanted, found, rtol=most, atol=most / 10, equal_nan=True)


def written_inputs(program: LazyProgram) -> set[int]:
    """The inputs that a program writes to, also through views, by place.

    >>> from syft.tensors.lazy.lazy_program import LazyAction, number_of_overload
    >>> turn = LazyAction(number_of_overload(torch.ops.aten.t.default), (Slot(1),), {}, Slot(2))
    >>> fill = number_of_overload(torch.ops.aten.zero_.default)
    >>> written_inputs(LazyProgram(2, (turn, LazyAction(fill, (Slot(2),), {}, None)), ()))
    {1}
    """
    roots = {place: place for place in range(program.inputs)}
    found: set[int] = set()
    for action in program.actions:
        overload = program.overload_of(action)
        written = slots_in(list(written_by(overload, action.args, action.kwargs)))
        found.update(roots[slot.index] for slot in written if slot.index in roots)
        shares = any(one.alias_info is not None for one in overload._schema.returns)
        for slot in slots_in(action.out):
            source = next(slots_in(action.args), None)
            if shares and source is not None and source.index in roots:
                roots[slot.index] = roots[source.index]
    return found


# ------------------------------------------------------------------------------------ as a graph


def graph_of(program: LazyProgram, floats: Sequence[float]) -> GraphModule:
    """A program as a module of torch.fx on its tensors, with its floats written into it.

    >>> from syft.tensors.lazy.lazy_program import LazyAction, number_of_overload
    >>> add = number_of_overload(torch.ops.aten.add.Tensor)
    >>> action = LazyAction(add, (Slot(0), Slot(0)), {"alpha": 3}, Slot(1))
    >>> graph_of(LazyProgram(1, (action,), (Slot(1),)), [])(torch.ones(2))
    (tensor([4., 4.]),)
    """
    graph = Graph()
    slots: dict[int, Any] = {}
    for place in range(program.tensors):
        slots[place] = graph.placeholder(f"x{place}")
    for place, number in enumerate(floats, program.tensors):
        slots[place] = number
    for action in program.actions:
        _add_node(graph, program, action, slots)
    graph.output(_filled(program.outputs, slots))
    return GraphModule(torch.nn.Module(), graph)


def _filled(pattern: Any, slots: dict[int, Any]) -> Any:
    return replace(pattern, lambda leaf: slots[leaf.index] if type(leaf) is Slot else leaf)


def _add_node(graph: Graph, program: LazyProgram, action: Action, slots: dict[int, Any]) -> None:
    args, kwargs = _filled(action.args, slots), _filled(action.kwargs, slots)
    if "alpha" in kwargs and not isinstance(args[1], list):
        # torch 2.13's inductor for CPUs makes addmm of add(x, mm(a, b), alpha=s), without alpha.
        scaled = graph.call_function(_TIMES, (args[1], kwargs.pop("alpha")))
        args = (args[0], scaled, *args[2:])
    node = graph.call_function(program.overload_of(action), args, kwargs)
    if type(action.out) is Slot:
        slots[action.out.index] = node
    elif action.out is not None:
        for place, slot in _parts(action.out):
            slots[slot.index] = graph.call_function(operator.getitem, (node, place))


def _parts(out: Any) -> Iterator[tuple[int, Slot]]:
    for place, one in enumerate(out):
        if type(one) is Slot:
            yield place, one


_TIMES: Final = torch.ops.aten.mul.Tensor
