"""Actions of random programs about what goes beside values: gradients, settings of operations,
failures near the edge of a grid, and questions that a plan asks of its inputs.

Each leans towards the operands for which there is something to be told: leaves with a private
gradient, numbers of which one world's have no place on the grid, and shapes that follow from
private values.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import torch

import syft as sy
from syft.codes import ConversionCode
from syft.ops.calls import parameters
from syft.ops.nested import leaves, replace
from syft.ops.table import BY_NAME, FLAGS, INPLACE_OPTION
from syft.program.program import Action, Program, Slot
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.tensors.fixed.precision import fix_precision
from syft.workers.execution.public_facts import TOLD
from syft.workers.wire import messages
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds.observer import Failed
from tests.privacy.two_worlds.samples import Sample

if TYPE_CHECKING:
    from tests.privacy.two_worlds.generator import RandomProgram

QUESTIONS = tuple(
    name
    for known in TOLD
    for name in (f"torch.Tensor.{known}.__get__", f"torch.Tensor.{known}")
    if name in BY_NAME
)
"""The questions about one tensor that have a public answer, if its shape is public."""
GRAPH_QUESTIONS = tuple(
    f"torch.Tensor.{name}.__get__" for name in ("is_leaf", "requires_grad", "grad")
)

# --------------------------------------------------------------------------------------- gradients


def hand_out(program: RandomProgram) -> None:
    """Something is handed out that has a gradient, which is private more often than not."""
    leaf = _with_gradient(program)
    if leaf is None:
        return
    observer, rng = program.observer, program.rng
    other = program.some() or leaf
    way = rng.randrange(6)
    if way < 2:
        copy = Reference(observer.id())
        _request(program, messages.Duplicate, leaf.id, copy.id)
        for it in (copy, leaf):
            observer.fetch(it.id)
            observer.gradient(it.id)
    elif way == 2:
        _request(program, messages.FetchAll, (leaf.id, other.id), True)
    elif way == 3:
        to = rng.choice(("alice", "eve"))
        if not isinstance(observer.move(leaf, to, grad=rng.random() < 0.3), Failed):
            observer.gradient(leaf.id, to)
    elif way == 4:
        there = observer.public(torch.ones(3))
        if _request(program, messages.Relay, there.id, rng.choice(("alice", "eve"))):
            name = rng.choice(("torch.Tensor.copy_", "torch.mul"))
            program.call(name, there, leaf, grad=rng.random() < 0.3)
    else:
        observer.sum_private({"bob": leaf, "eve": _like(program, leaf, "eve")}, _far(program))


def _with_gradient(program: RandomProgram) -> Reference | None:
    """A leaf with a gradient: one that is there, or a new one."""
    there = [id for id in program.observer.known.get("bob", ()) if program.has_gradient(id)]
    rng = program.rng
    if there and rng.random() < 0.3:
        return Reference(rng.choice(there))
    way = rng.randrange(4)
    if way == 0:
        leaf = program.put(torch.ones(3, requires_grad=True), rng.random() < 0.2)
        product = program.call("torch.mul", leaf, program.put(torch.arange(3.0), True))
        program.call("torch.Tensor.backward", program.call("torch.sum", product))
        return leaf
    shape = rng.choice(((3,), (), (2, 2)))
    gradient = torch.arange(torch.Size(shape).numel()).reshape(shape)
    if way == 1:  # inside a chain
        grid = rng.random() < 0.5
        chain = (
            fix_precision(torch.ones(shape)) if grid else sy.LoggingTensor().on(torch.ones(shape))
        )
        leaf = target = program.put(chain, False)
        target = Reference(leaf.id, 2)
        gradient = gradient if grid else gradient.float()
    else:
        leaf = target = program.put(torch.ones(shape, requires_grad=True), rng.random() < 0.1)
        gradient = gradient.float()
    private = program.put(gradient, rng.random() < 0.8)
    name, *args = rng.choice((("torch.mul", 1), ("torch.Tensor.detach",), ("torch.neg",)))
    made = program.call(name, private, *args)
    program.call("torch.Tensor.grad.__set__", target, made, grad=False)
    return leaf


def _like(program: RandomProgram, it: Reference, worker: str) -> Reference:
    tensor = program.here(it.id)
    return program.put(torch.ones(() if tensor is None else tensor.shape), False, worker)


def _far(program: RandomProgram) -> int:
    return program.observer.count() + 10**6


def _request(program: RandomProgram, kind: type[Any], id: int, *fields: Any) -> bool:
    """Send a message about whole objects, and write down what became of it."""
    observer = program.observer
    answer = observer.request(kind(observer.count(), id, *fields), op=kind.__name__)
    program.note(kind.__name__, id in observer.private, answer, (Reference(id),))
    return not isinstance(answer, Failed)


# ----------------------------------------------------------------------------- the edges of a grid

_EDGES = (1e9, 1e13, 1.4e14, 1.5e14, 1e18, 1e30, float("inf"), float("nan"), 0.0, -1.0)
_GRIDS = ((), (), (3,), (9, 10), (30, 2))
_OF_ONE = tuple(f"torch.{name}" for name in ("log", "sqrt", "reciprocal", "exp", "neg", "sum"))
_OF_TWO = tuple(f"torch.{name}" for name in ("add", "sub", "mul", "div", "pow", "maximum")) + tuple(
    f"torch.Tensor.{name}" for name in ("add_", "sub_", "mul_", "div_", "copy_")
)


def on_grids(program: RandomProgram) -> None:
    """A conversion to fixed precision and back, some arithmetic, and questions about all of it."""
    rng = program.rng
    plain = _near_an_edge(program)
    known = [plain, _converted(program, plain, ConversionCode.FIX_PRECISION, rng.choice(_GRIDS))]
    _ask(program, known[-1])
    if rng.random() < 0.5:
        chain = rng.choice(known[1:])
        if rng.random() < 0.4:
            made = program.call(rng.choice(_OF_ONE), chain)
        else:
            other = _near_an_edge(program) if rng.random() < 0.5 else rng.choice(known)
            known.append(other)
            made = program.call(rng.choice(_OF_TWO), chain, other)
        if isinstance(made, Reference):
            known.append(made)
            _ask(program, made)
    last = known[-1]
    if rng.random() < 0.8:
        last = _converted(program, last, ConversionCode.FLOAT_PRECISION, ())
        _ask(program, last)
    if rng.random() < 0.5:
        program.call("torch.Tensor.backward", program.call("torch.sum", last))
        _ask(program, rng.choice(known))


def _near_an_edge(program: RandomProgram) -> Any:
    """Two numbers, those of one world perhaps without a place on a grid; a leaf, a result, or
    without gradients."""
    rng = program.rng
    one = torch.tensor([1.0, 2.0], requires_grad=rng.random() < 0.6)
    other = torch.tensor([1.0, rng.choice(_EDGES)], requires_grad=one.requires_grad)
    worlds = [one, other]
    rng.shuffle(worlds)
    made: Any = program.observer.secret(*worlds, destinations=program.destinations)
    result = program.call("torch.mul", made, 1) if rng.random() < 0.4 else made
    return result if isinstance(result, Reference) else made


def _converted(program: RandomProgram, it: Any, code: ConversionCode, args: Any) -> Reference:
    observer, packer, out = program.observer, Packer(), program.observer.id()
    operand = pack(args, packer)
    if _request(program, messages.Convert, it.id, int(code), operand, out):
        observer.private.add(out)
    return Reference(out)


def _ask(program: RandomProgram, it: Any) -> None:
    """Questions about something and what is inside it, mostly about its graph."""
    rng = program.rng
    if not isinstance(it, Reference):
        return
    for _ in range(2):
        name = rng.choice(GRAPH_QUESTIONS if rng.random() < 0.6 else QUESTIONS)
        program.call(name, Reference(it.id, rng.choice((0, 0, 0, 1, 2))))
    if rng.random() < 0.3:
        program.observer.gradient(it.id)


# ------------------------------------------------------------------------- what plans ask of inputs

_ANSWERS: dict[str, tuple[Any, ...]] = {
    "dtype": ("torch.float32", "torch.int64"),
    "device": ("cpu", "cuda"),
    "layout": ("torch.strided", "torch.sparse_coo"),
    "dim": (1, 2, 3),
    "requires_grad": (True, False),
    "is_contiguous": (True, False),
}
"""What an interface fixes, with answers; a test compares the names with those of the interface."""
_CHOOSING = ("torch.nonzero", "torch.unique", "torch.argwhere", "torch.unique_consecutive")
_SHAPING: tuple[tuple[Any, ...], ...] = (
    ("torch.Tensor.t",),
    ("torch.Tensor.t",),
    ("torch.unsqueeze", 0),
    ("torch.unsqueeze", -1),
    ("torch.Tensor.mT.__get__",),
    ("torch.mul", 2),
    ("torch.Tensor.detach",),
)
_PLAN = Program(1, (Action(BY_NAME["torch.mul"], (Slot(0), 1), {}, Slot(1)),), (Slot(1),))


def ask_by_a_plan(program: RandomProgram) -> None:
    """A plan is called that fixes a property, on something whose shape follows from values."""
    rng = program.rng
    rows = rng.random() < 0.4  # a transposed matrix of one row is contiguous, one of two is not
    made = _hidden(program, rows)
    for _ in range(1 if rows else rng.choice((0, 1, 1, 2))):
        name, *args = _SHAPING[0] if rows else rng.choice(_SHAPING)
        made = program.call(name, made, *args)
    if not isinstance(made, Reference):
        return
    observer = program.observer
    if not rows and rng.random() < 0.2:
        target = program.put(torch.zeros(rng.choice(((0,), (2,), (0, 1)))), False)
        result = observer.write_plan(_PLAN, [made], [target])
    else:
        likely = ("is_contiguous", "dim") if rng.random() < 0.5 else (*_ANSWERS,)
        names = ["is_contiguous"] if rows else rng.sample(likely, 1)
        fixed = tuple((name, (rng.choice((*_ANSWERS[name], None)),)) for name in names)
        result = observer.plan(_PLAN, [made], 1, fixed=fixed)
    program.note("plan", made.id in observer.private, result, (made,))


def _hidden(program: RandomProgram, rows: bool) -> Any:
    """Something whose shape follows from private values: ``rows`` of a matrix, or anything."""
    rng = program.rng
    shape = (3, 2) if rows else rng.choice(((3,), (3, 2)))
    numbers = program.put(torch.randn(shape, generator=program.numbers), True)
    if rows or rng.random() < 0.6:
        rows = program.call("torch.select", numbers, 1, 0) if len(shape) == 2 else numbers
        above = program.call("torch.gt", rows, 0)
        return program.call("torch.Tensor.__getitem__", numbers, above)
    made = program.call(rng.choice(_CHOOSING), numbers)
    return next((leaf for leaf in leaves(made) if isinstance(leaf, Reference)), made)


# -------------------------------------------------------------------------------------- settings


def set_privately(program: RandomProgram) -> None:
    """A private number in the place of a setting: a flag or a number among the arguments of a
    sample, or a keyword that it leaves out.  Nothing may follow from what it is."""
    rng = program.rng
    flagged = rng.choice([name for name in _FLAGGED if name in program.samples.forms])
    sample = program.samples.draw(rng, flagged if rng.random() < 0.5 else None)
    if sample is None:
        return
    args, kwargs = sample.args, dict(sample.kwargs)
    given = [leaf for leaf in leaves((args, kwargs)) if type(leaf) in _NUMBERS]
    left_out = [
        name
        for name in [*parameters(BY_NAME[sample.name])][len(args) :]
        if name not in kwargs and name not in ("out", "dtype", "layout", "device")
    ]
    number = _setting(program)
    if left_out and (not given or rng.random() < 0.5):
        kwargs["inplace" if "inplace" in left_out else rng.choice(left_out)] = number
    elif given:
        changed, places = rng.randrange(len(given)), count()

        def placed(leaf: Any) -> Any:
            return number if type(leaf) in _NUMBERS and next(places) == changed else leaf

        args, kwargs = replace((args, kwargs), placed)
    laid = program.laid_out(Sample(sample.name, args, kwargs))
    program.call(laid.name, *laid.args, grad=rng.random() < 0.5, **laid.kwargs)


def _setting(program: RandomProgram) -> Reference:
    """A private number, more often than not a flag that differs between the worlds."""
    rng, named = program.rng, program.destinations
    if rng.random() < 0.6:
        worlds = [torch.tensor(flag) for flag in rng.sample((True, False), 2)]
        return program.observer.secret(*worlds, destinations=named)
    return program.put(torch.tensor(rng.choice((0, 1, 2, 0.5))), True, bad=0)


_NUMBERS = (bool, int, float)
_FLAGGED = tuple(name for name, op in BY_NAME.items() if FLAGS[op] & INPLACE_OPTION)
"""The operations that a flag tells to write to their operand."""


BESIDE_VALUES = ((hand_out, 8), (on_grids, 10), (ask_by_a_plan, 4), (set_privately, 8))
"""The actions, with how often they are drawn; see ``WEIGHTS`` of the generator."""
