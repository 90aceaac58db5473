"""Calls of every operation with hostile arguments, in a process that may die.

Torch's kernels trust their callers in places: some divide by zero, some read as many elements as
another operand says.  An exception is an answer; a signal is not.  So the operations that a worker
runs for others are called here with arguments drawn at random: numbers at the ends of their range,
NaN and infinity, sizes that do not fit, empty tensors.  The types are right in most calls, since a
call of wrong types ends in torch's argument parser.

Every tensor lies at the end of its memory, and the page after it may not be touched.  So a kernel
that reads or writes past an operand ends the process too, and is found.

Torch does not enlarge such memory.  A call after which an operand is larger than its memory all the
same is found too (``SIGABRT``): what reads it next would go past its end.

Run as a program it is the child: it calls one draw after another, and writes the number of each
before it is made.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import random
import resource
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
SECONDS = 4
"""How long one call may take before it counts as one that never ends."""
MEMORY = 6 << 30
"""The address space of the child: torch refuses what goes beyond."""

INTS = (0, 1, -1, 2, 3, 4, -2, 5, 7, 64, 1000, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, -(2**63))
SMALL = (0, 1, 2, 3, -1, 1, 2, 4)
FLOATS = (0.0, 1.0, -1.0, 0.5, 2.5, -0.0, 1e-300, 1e308, float("nan"), float("inf"), -float("inf"))
SHAPES = (
    *((), (0,), (1,), (3,), (2,), (5,), (2, 3), (3, 2), (3, 3), (1, 3), (0, 3), (2, 0)),
    *(
        (2, 3, 4),
        (1, 2, 3),
        (3, 3, 3),
        (1, 1, 4, 4),
        (2, 3, 4, 5),
        (1, 2, 3, 4, 5),
        (40,),
        (16, 16),
    ),
)
DTYPES = (torch.float32,) * 6 + (torch.int64,) * 3 + (torch.float64, torch.int32, torch.uint8)
MORE_DTYPES = (torch.bool, torch.complex64, torch.int8, torch.int16, torch.bfloat16, torch.float16)
WORDS = (
    *("mean", "sum", "none", "trunc", "floor", "max", "min", "prod", "amax", "reflect", "zeros"),
    *("constant", "replicate", "circular", "bilinear", "nearest", "bicubic", "ortho", "fro"),
    *("tanh", "left", "right", "linear", "midpoint", "reduced", "complete", "U", "L", "ij,jk->ik"),
)

# ----------------------------------------------------------------------------- memory with a guard


class GuardedMemory:
    """Pieces of memory, each of which ends where a page begins that may not be touched."""

    SIZE = 1 << 16

    def __init__(self, pieces: int = 64) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.pieces = []
        for _ in range(pieces):
            memory = mmap.mmap(-1, self.SIZE + mmap.PAGESIZE)
            address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            end = ctypes.c_void_p(address + self.SIZE)
            assert libc.mprotect(end, mmap.PAGESIZE, 0) == 0
            self.pieces.append(memory)
        self.next = 0

    def hold(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same values at the end of a piece; a tensor that is too large stays where it is."""
        count = tensor.numel()
        if not 0 < tensor.nbytes <= self.SIZE or tensor.layout is not torch.strided:
            return tensor
        memory = self.pieces[self.next % len(self.pieces)]
        self.next += 1
        held = torch.frombuffer(
            memory, dtype=tensor.dtype, count=count, offset=self.SIZE - tensor.nbytes
        )
        return held.reshape(tensor.shape).copy_(tensor)


# ---------------------------------------------------------------------------------------- drawing


class Draw:
    """The arguments of one call, drawn from a seed."""

    def __init__(self, seed: str, memory: GuardedMemory) -> None:
        self.random = random.Random(seed)
        self.memory = memory
        self.shape = self.random.choice(SHAPES)
        self.dtype = self.random.choice(DTYPES)
        if self.random.random() < 0.2:
            self.dtype = self.random.choice(MORE_DTYPES)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def tensor(self) -> torch.Tensor:
        shape = self.random.choice(SHAPES) if self.chance(0.35) else self.shape
        dtype = self.random.choice(DTYPES + MORE_DTYPES) if self.chance(0.25) else self.dtype
        return self.values(shape, dtype)

    def values(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor of values that are all tame, or that are taken from the ends of the range."""
        count = torch.Size(shape).numel()
        tame = self.chance(0.4)
        if dtype.is_floating_point or dtype.is_complex:
            pool: Sequence[float] = (0.5, 1.0, 2.0, -1.5) if tame else FLOATS
            numbers = torch.tensor([self.random.choice(pool) for _ in range(count)])
            made = numbers.to(dtype)
        elif dtype is torch.bool:
            made = torch.tensor([self.chance(0.5) for _ in range(count)], dtype=dtype)
        else:
            info = torch.iinfo(dtype)
            wild = (info.min, info.max, -1, 0, 1, 3, 1000)
            ends = [max(info.min, min(info.max, number)) for number in (SMALL if tame else wild)]
            made = torch.tensor([self.random.choice(ends) for _ in range(count)], dtype=dtype)
        held = self.memory.hold(made.reshape(shape))
        if held.is_floating_point() and self.chance(0.1):
            held.requires_grad_()
        return held

    def integer(self) -> int:
        return self.random.choice(SMALL if self.chance(0.7) else INTS)

    def of_type(self, kind: str) -> Any:
        """A value for an argument of this type of torch's schemas."""
        if kind.startswith("Optional["):
            return None if self.chance(0.4) else self.of_type(kind[9:-1])
        if kind.startswith("List["):
            inner, most = kind[5:-1], 4
            return [self.of_type(inner) for _ in range(self.random.randrange(most))]
        if kind == "any":
            kind = self.random.choice(("Tensor", "Tensor", "Tensor", "int", "number", "List[int]"))
        return _MAKERS.get(kind, Draw.nothing)(self)

    def number(self) -> Any:
        return self.integer() if self.chance(0.5) else self.random.choice(FLOATS)

    def nothing(self) -> None:
        return None


_MAKERS: dict[str, Callable[[Draw], Any]] = {
    "Tensor": Draw.tensor,
    "int": Draw.integer,
    "SymInt": Draw.integer,
    "float": lambda draw: draw.random.choice(FLOATS),
    "number": Draw.number,
    "Scalar": Draw.number,
    "bool": lambda draw: draw.chance(0.5),
    "str": lambda draw: draw.random.choice(WORDS),
    "ScalarType": lambda draw: draw.random.choice(DTYPES + MORE_DTYPES),
    "Device": lambda draw: torch.device("cpu"),
}


@dataclass(frozen=True)
class Parameter:
    """One parameter of an overload."""

    name: str
    kind: str
    keyword: bool
    optional: bool


@cache
def overloads(name: str) -> list[list[Parameter]]:
    """The overloads of an operation, from torch's schemas; empty if it has none."""
    space, _, leaf = name.rpartition(".")
    if leaf in ("__get__", "__set__", "__delete__"):
        return []
    inside = f"{space.rpartition('.')[2]}_{leaf}"  # torch.linalg.eigvals is aten::linalg_eigvals
    for candidate in (inside, leaf, leaf.strip("_"), leaf.replace("__i", "__")):
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{candidate}")
        found = [
            [
                Parameter(one.name, str(one.type), one.kwarg_only, one.has_default_value())
                for one in schema.arguments
            ]
            for schema in schemas
            if not schema.overload_name.endswith("out")
        ]
        if found:
            return found
    return []


def drawn_call(name: str, seed: str, memory: GuardedMemory) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of one call of an operation."""
    draw = Draw(seed, memory)
    known = overloads(name)
    if not known:
        count = draw.random.randrange(1, 5)
        return [draw.tensor(), *(draw.of_type("any") for _ in range(count - 1))], {}
    args, kwargs = [], {}
    for parameter in draw.random.choice(known):
        if parameter.kind in ("Layout", "Generator", "Optional[Generator]", "Optional[Layout]"):
            continue
        if parameter.optional and draw.chance(0.4):
            if not parameter.keyword and not kwargs:
                break
            continue
        if parameter.keyword:
            kwargs[parameter.name] = draw.of_type(parameter.kind)
        else:
            args.append(draw.of_type(parameter.kind))
    return args, kwargs


# ------------------------------------------------------------------------- samples of torch's tests


@cache
def samples_of(name: str) -> list[tuple[list[Any], dict[str, Any]]]:
    """The inputs that torch's own tests use for an operation, if they know it."""
    from tests.torch_suite.cases import Case, op_db

    leaf = name.rpartition(".")[2]
    found: list[tuple[list[Any], dict[str, Any]]] = []
    for op in op_db:
        if op.name.rpartition(".")[2].strip("_") != leaf.strip("_"):
            continue
        dtype = torch.float32 if torch.float32 in op.dtypes else torch.int64
        try:
            made = Case(op, dtype).samples("cpu", most=12)
        except Exception:  # a sample of torch's that this machine cannot make
            continue
        found += [([one.input, *one.args], dict(one.kwargs)) for one in made]
    return found


def altered_call(
    name: str, seed: str, memory: GuardedMemory
) -> tuple[list[Any], dict[str, Any]] | None:
    """A call of torch's own tests with something hostile in it; None if there is none."""
    samples = samples_of(name)
    if not samples:
        return None
    draw = Draw(seed, memory)
    args, kwargs = draw.random.choice(samples)
    chance = draw.random.choice((0.0, 0.15, 0.4))

    def alter(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(alter, value)) if type(value) in (list, tuple) else value
        hostile = draw.chance(chance)
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided or value.is_quantized or value.numel() > 4096:
                return value
            shape = draw.random.choice(SHAPES) if hostile and draw.chance(0.4) else value.shape
            if hostile:
                return draw.values(tuple(shape), value.dtype)
            return memory.hold(value.detach().contiguous())
        if not hostile or isinstance(value, (str, bool)):
            return value
        return {int: draw.integer, float: draw.number}.get(type(value), lambda: value)()

    return [alter(arg) for arg in args], {key: alter(value) for key, value in kwargs.items()}


# ------------------------------------------------------------------------------------- both ends


def call_of(name: str, seed: int, place: int, memory: GuardedMemory) -> tuple[list[Any], Any]:
    """Draw number ``place`` of an operation: every other one is a changed call of torch's tests."""
    text = f"{seed}:{name}:{place}"
    made = altered_call(name, text, memory) if place % 2 else None
    return made or drawn_call(name, text, memory)


def shown(value: Any) -> str:
    """A short text of an argument."""
    if isinstance(value, torch.Tensor):
        few = value.detach().flatten()[:6].tolist() if value.layout is torch.strided else "..."
        return f"{str(value.dtype)[6:]}{tuple(value.shape)}{few}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(shown, value))}]"
    return repr(value)


@dataclass(frozen=True)
class Death:
    """A call that ended the process, or did not end."""

    name: str
    seed: int
    place: int
    signal: str

    def __str__(self) -> str:
        args, kwargs = call_of(self.name, self.seed, self.place, GuardedMemory())
        named = [f"{key}={shown(value)}" for key, value in kwargs.items()]
        text = ", ".join([*map(shown, args), *named])
        return f"{self.signal}: {self.name}({text})  # seed {self.seed}, place {self.place}"


def deaths(names: Sequence[str], seed: int, places: int, bare: bool = False) -> list[Death]:
    """Make ``places`` calls of each operation in child processes; returns those that ended one.

    ``bare`` calls torch's own functions, without what a worker puts in their place.
    """
    child = subprocess.run(
        [sys.executable, "-m", "tests.torch_suite.hostile_calls", str(seed), str(places)]
        + [str(int(bare))],
        input="\n".join(names),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    if child.returncode:
        raise RuntimeError(child.stderr[-2000:])
    found = [line[1:].split() for line in child.stdout.splitlines() if line.startswith("!")]
    return [Death(name, seed, int(place), how) for name, place, how in found]


def main(seed: int, places: int, bare: int) -> None:
    """Make the calls in one forked process after another, each of which goes on behind the call
    that ended the one before."""
    names = sys.stdin.read().split("\n")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in names:
        samples_of(name)
    place = memoryview(mmap.mmap(-1, 16)).cast("q")  # the call that is being made
    while place[0] < len(names):
        sys.stdout.flush()
        child = os.fork()
        if not child:
            _make_calls(names, seed, places, place, bare)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            return
        how = signal.Signals(os.WTERMSIG(status)).name
        print(f"!{names[place[0]]} {place[1]} {how}")
        place[1] += 1


def _make_calls(names: Sequence[str], seed: int, places: int, place: memoryview, bare: int) -> None:
    from syft.ops.table import BY_NAME, FUNCTIONS, may_alter
    from syft.workers.hardening.unwritten import sizes_within_memory
    from syft.workers.hardening.precautions import RUNNABLE

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.close(1)
    os.close(2)
    memory = GuardedMemory()
    while place[0] < len(names):
        number = BY_NAME[names[place[0]]]
        function = (FUNCTIONS if bare else RUNNABLE)[number]
        while place[1] < places:
            args, kwargs = call_of(names[place[0]], seed, place[1], memory)
            kept = not bare and may_alter(number, kwargs)
            with sizes_within_memory((args, kwargs)) if kept else contextlib.nullcontext():
                _call(function, args, kwargs)
            _end_if_beyond_memory((args, kwargs))
            place[1] += 1
        place[0], place[1] = place[0] + 1, 0


def _call(function: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    signal.alarm(SECONDS)
    torch.manual_seed(0)
    modes = torch.is_grad_enabled(), torch.get_default_dtype()
    try:
        function(*args, **kwargs)
    except Exception:  # any exception is an answer
        return
    finally:
        torch.set_grad_enabled(modes[0])
        torch.set_default_dtype(modes[1])
        signal.alarm(0)


def _end_if_beyond_memory(operands: Any) -> None:
    from syft.ops.nested import leaves
    from syft.workers.hardening.unwritten import is_beyond_memory

    if any(map(is_beyond_memory, leaves(operands))):
        os.abort()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
