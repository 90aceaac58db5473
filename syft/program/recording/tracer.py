"""What sees the torch calls of a function while it is recorded, and notes them down.

It is a ``TorchFunctionMode``, so it sees calls above autograd: operators, methods, functions and
factories, properties and their setters, ``backward`` and what an optimizer does in its ``step``.
Whatever a function of torch does inside is part of that one action.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from syft.exceptions import CannotRecord, FrozenPath
from syft.ops.control import RECORDING, Branch
from syft.program.recording.builder import Draft, Noted, Place
from syft.program.recording.control_flow import record_cond, record_loop
from syft.program.recording.random_state import Randomness
from syft.program.recording.gradients import Gradients
from syft.program.recording.mode_changes import Modes
from syft.ops.table import BY_NAME, FLAGS, NUMBERS, Function, OpFlag, name_of
from syft.program.recording.properties import PROPERTY_OF
from syft.program.recording.results import bound
from syft.program.recording.source_line import SourceLine, asked_by_us, module_here, user_line
from syft.torch_private import NO_FUNCTION, DisableTorchDispatch, inside_custom_function
from syft.program.recording.symbolic import Origin, Tape, Writer, plain, traced
from syft.program.recording.unlisted import run_unlisted
from syft.program.recording.value_shapes import shaped_by_values
from syft.ops.nested import Arguments, Keywords, leaves, replace
from syft.ops.calls import mutated_argument as written
from syft.ops.calls import DECOMPOSITIONS as WRITTEN_OUT

Given = tuple[Arguments, Keywords]
Decision = tuple[str, str, Any]
"""What Python decided by a size: the line, what it did, and the value."""

_METADATA = int(OpFlag.METADATA)
_REVEALS = int(OpFlag.REVEALS)
_GRADIENT = int(OpFlag.GRADIENT)
_RANDOM = int(OpFlag.RANDOM)
_INPLACE = int(OpFlag.INPLACE)
_MUTATES_OTHERS = int(OpFlag.MUTATES_OTHERS)
_BACKWARD = int(OpFlag.GRADIENT | OpFlag.MUTATES_OTHERS)
_ANSWERS = int(OpFlag.METADATA | OpFlag.REVEALS)
_MAY_WRITE = int(OpFlag.INPLACE | OpFlag.INPLACE_OPTION | OpFlag.MUTATES_OTHERS)
_EFFECTS = int(OpFlag.INPLACE | OpFlag.MUTATES_OTHERS | OpFlag.NOTHING | OpFlag.RANDOM)
_SHAPES = int(OpFlag.SHAPE_FROM_VALUES)

_SIZES = frozenset(
    BY_NAME[f"torch.{name}"]
    for name in ("Tensor.shape.__get__", "Tensor.size", "Tensor.numel", "Tensor.nelement")
    + ("Tensor.stride", "Tensor.storage_offset", "Tensor.nbytes.__get__", "numel")
)
"""Metadata that are numbers and follow from sizes."""
_LENGTH = BY_NAME["torch.Tensor.__len__"]
_TYPE = BY_NAME["torch.Tensor.type"]
_TO = BY_NAME["torch.Tensor.to"]
_ITEM = BY_NAME["torch.Tensor.item"]
_GET_GRAD = frozenset(BY_NAME[f"torch.Tensor.{name}.__get__"] for name in ("grad", "_grad"))
_LISTS = frozenset(
    number
    for name, number in BY_NAME.items()
    if name.endswith(("split", "chunk", "split_with_sizes")) or name.endswith(".unbind")
)
"""Operations with as many results as a size says."""

_UNKNOWN = SourceLine("", 0)


class Tracer(TorchFunctionMode, Writer):
    """Writes down what runs under it.

    With ``again`` it is the second time: nobody is warned, and numbers taken from tensors are moved
    by one, so that what was computed from them shows.  The lines of that time are not looked up.

    >>> from syft.ops.table import NAMES
    >>> tracer = Tracer()
    >>> with tracer:
    ...     _ = torch.ones(2) + 1
    >>> [NAMES[noted.op] for noted in tracer.draft.noted]
    ['torch.ones', 'torch.Tensor.add']
    """

    def __init__(
        self,
        again: bool = False,
        decisions: list[Decision] | None = None,
        random: Randomness | None = None,
    ) -> None:
        super().__init__()
        self.again = again
        self.decisions: list[Decision] = [] if decisions is None else decisions
        self.random = Randomness() if random is None else random
        self.looks = False
        self.fixed: set[str] = set()
        self.draft = Draft(0)
        self.tape = Tape(self)
        self.modes = Modes()
        self.gradients = Gradients()
        self.optimizers: list[str] = []
        self.warned: set[str] = set()
        self.refusals: list[tuple[str, str, str]] = []
        self.idle = False
        self._homes = itertools.count(1)

    # -- what torch calls

    def __torch_function__(
        self,
        function: Function,
        types: Iterable[type],
        args: Arguments = (),
        kwargs: Keywords | None = None,
    ) -> Any:
        try:
            if not self.again:
                return self._seen(function, args, kwargs or {})
            with DisableTorchDispatch():  # the canary is to see what happens between such calls
                return self._seen(function, args, kwargs or {})
        except CannotRecord as error:
            self.refusals.append((error.what, error.line, error.instead))
            raise

    def _seen(self, function: Function, args: Arguments, kwargs: Keywords) -> Any:
        """Run a function and note it down, in the way its flags ask for."""
        if self.idle:
            return function(*args, **kwargs)
        try:
            number = NUMBERS.get(function)
        except TypeError:  # it has no hash, so it stands in no table
            number = None
        if number is None:
            return run_unlisted(function, args, kwargs)
        if number in WRITTEN_OUT:
            with self:
                return WRITTEN_OUT[number](*args, **kwargs)
        flags = FLAGS[number]
        if flags & _ANSWERS:
            answer = self._size if flags & _METADATA else self._reveal
            return answer(number, function, args, kwargs)
        return self._run(number, flags, function, args, kwargs)

    def _run(
        self, number: int, flags: int, function: Function, args: Arguments, kwargs: Keywords
    ) -> Any:
        """Run an operation and note it down."""
        draft = self.draft
        if flags & _RANDOM:
            self.random.about_to_draw(kwargs.get("generator"), user_line())
        given = args, kwargs
        noted = self.noted(number, args, kwargs)
        if draft.met_traced:
            draft.met_traced = False
            args, kwargs = replace(args, plain), replace(kwargs, plain)
        target = None
        if flags & _MAY_WRITE or "out" in kwargs:
            target = self._write(flags, args, kwargs)
        if flags & _BACKWARD == _BACKWARD:
            result = self.gradients.backward(draft, noted, lambda: function(*args, **kwargs))
        elif number in _GET_GRAD:
            return self.gradients.read(draft, noted, args[0])
        else:
            result = function(*args, **kwargs)
        if flags & _RANDOM:
            self.random.drawn(kwargs.get("generator"))
        if flags & _INPLACE:
            self.gradients.set(draft, noted, args)
        elif target is None:
            self.looks = self.looks or number in _LISTS
            volatile = self._is_volatile(noted, flags, given)
            noted.out, result = bound(draft, result, volatile)
            if noted.out is None and not flags & _EFFECTS:
                return result  # nothing came back, and nothing happened
        draft.noted.append(noted)
        return result

    def noted(self, number: int, args: Arguments, kwargs: Keywords | None = None) -> Noted:
        """An action, with the line and the modes of this moment."""
        operand = self.draft.operand
        mode = self.modes.now()
        line = _UNKNOWN if self.again else user_line(3)  # we are called by one of us, and so is it
        if mode is not None and not mode.grad and inside_custom_function():
            raise CannotRecord("a custom autograd.Function", str(user_line()), NO_FUNCTION)
        return Noted(
            number,
            tuple([operand(arg) for arg in args]),
            {key: operand(value) for key, value in kwargs.items()} if kwargs else {},
            None,
            mode,
            line,
            self.optimizers[-1] if self.optimizers else None,
        )

    def _write(self, flags: int, args: Arguments, kwargs: Keywords) -> Any:
        """Say which tensors are about to be written to; returns those that were asked to be."""
        target = written(flags, args, kwargs)
        if target is None and flags & _INPLACE:
            target = kwargs.get("tensor")  # torch.nn.init hands it over so
        for tensor in leaves(target):
            if isinstance(tensor, torch.Tensor):
                self.draft.write(tensor)
        if flags & _MUTATES_OTHERS and not flags & _GRADIENT:
            for tensor in leaves((args, kwargs)):
                if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                    self.draft.write(tensor)
        return target

    def _is_volatile(self, noted: Noted, flags: int, given: Given) -> bool:
        """Whether the shape of a result follows from values."""
        draft = self.draft
        if flags & _SHAPES and shaped_by_values(noted.op, *given):
            draft.has_volatile = True
            return True
        return draft.has_volatile and any(
            type(leaf) is Place and leaf.volatile for leaf in leaves((noted.args, noted.kwargs))
        )

    # -- numbers

    def _size(self, number: int, function: Function, args: Arguments, kwargs: Keywords) -> Any:
        """Metadata: sizes of what is computed are traced, everything else is a plain answer.

        ``x.type(dtype)`` is none: it is written down as ``x.to(device, dtype)``.
        """
        result = function(*replace(args, plain), **replace(kwargs, plain))
        if number == _TYPE and isinstance(result, torch.Tensor):
            args = (args[0], result.device, result.dtype)
            return self._run(_TO, FLAGS[_TO], torch.Tensor.to, args, {})
        if number in _SIZES:
            tensor = args[0] if args else next(iter(kwargs.values()))
            place = self._varying(tensor)
            self.looks = self.looks or (place is not None and not asked_by_us(4))
            return result if place is None else self._numbers(number, place, args, kwargs, result)
        if number == _LENGTH and not asked_by_us(4):
            place = self._varying(args[0])
            if place is not None:
                origin = Origin.VALUE if place.volatile else Origin.SIZE
                self.looks = True
                self.decide("len() of a tensor", origin, result)
        read = PROPERTY_OF.get(number)
        if read is not None and read not in self.fixed and not asked_by_us(4):
            if any(map(self._is_ours, leaves((args, kwargs)))):
                self.fixed.add(read)
        return result

    def _is_ours(self, value: Any) -> bool:
        """Whether a value is a tensor that the program is given or makes."""
        draft = self.draft
        return draft.snapshot_of(value) is None and draft.place_of(value) is not None

    def _varying(self, tensor: torch.Tensor) -> Place | None:
        """The place of a tensor whose size may be another the next time."""
        draft = self.draft
        if draft.home:
            place = draft.operand(tensor)
            assert type(place) is Place
            return place
        return None if draft.snapshot_of(tensor) is not None else draft.place_of(tensor)

    def _numbers(
        self, number: int, place: Place, args: Arguments, kwargs: Keywords, result: Any
    ) -> Any:
        """Note an action that makes numbers; returns them as traced ones."""
        noted = self.noted(number, args, kwargs)
        self.draft.met_traced = False
        origin = Origin.VALUE if place.volatile else Origin.SIZE
        tape, home = self.tape, self.draft.home
        if isinstance(result, tuple):
            noted.out = tuple([Place(home) for _ in result])
            pairs = zip(result, noted.out, strict=True)
            items: list[Any] = [traced(item, tape, part, origin) for item, part in pairs]
            result = torch.Size(items) if type(result) is torch.Size else tuple(items)
            if not items:
                return result
        else:
            noted.out = Place(home)
            result = traced(result, tape, noted.out, origin)
        self.draft.noted.append(noted)
        return result

    def _reveal(self, number: int, function: Function, args: Arguments, kwargs: Keywords) -> Any:
        """A value that comes to Python: traced if it is a number from ``item()``, else frozen."""
        if number != _ITEM:
            result = function(*replace(args, plain), **replace(kwargs, plain))
            self.decide(name_of(function), Origin.VALUE, result)
            return result
        noted = self.noted(number, args, kwargs)
        result = function(*args, **kwargs)
        if not isinstance(result, (int, float)):
            self.decide("item() of a complex number", Origin.VALUE, result)
            return result
        if self.again and not isinstance(result, bool):
            result += 1
        noted.out = Place(self.draft.home)
        self.draft.noted.append(noted)
        return traced(result, self.tape, noted.out, Origin.VALUE)

    def compute(self, name: str, operands: tuple[Any, ...]) -> Place:
        """Note arithmetic on numbers."""
        return self.note(f"syft.ops.numbers.{name}", *operands)

    def compare(self, name: str, operands: tuple[Any, ...]) -> Place:
        """Note a comparison of numbers: there is none on numbers alone, so tensors do it."""
        first, second = operands
        dtype = torch.float64 if isinstance(first, float) else torch.int64
        tensor = self.note("torch.scalar_tensor", first, dtype=dtype)
        answer = self.note(f"torch.Tensor.{name}", tensor, second)
        return self.note("torch.Tensor.item", answer)

    def note(self, name: str, *operands: Any, **keywords: Any) -> Place:
        """Note an action with one result, without running it; operands may be places."""
        noted = self.noted(BY_NAME[name], operands, keywords)
        self.draft.met_traced = False
        noted.out = place = Place(self.draft.home)
        self.draft.noted.append(noted)
        return place

    def decide(self, what: str, origin: Origin, value: Any) -> None:
        """Be told that Python decides by a value: only the path taken now is recorded.

        A decision by a size is looked at again when the function has run with other sizes.
        """
        line = str(user_line())
        if self.optimizers and origin is Origin.VALUE:
            instead = "it decides by the value of a tensor; use one that does not, such as AdamW"
            raise CannotRecord(self.optimizers[-1], line, instead)
        what += module_here()
        if origin is Origin.SIZE:
            self.decisions.append((line, what, value))
        elif not self.again and line not in self.warned:
            self.warned.add(line)
            warn_frozen(line, what)

    # -- programs inside this one

    def cond(self, pred: Any, then: Branch, otherwise: Branch, args: Sequence[Any]) -> Any:
        """Record a branch."""
        return record_cond(self, pred, then, otherwise, args)

    def while_loop(self, test: Branch, body: Branch, args: Sequence[Any]) -> tuple[Any, ...]:
        """Record a loop."""
        return record_loop(self, test, body, args)

    @contextlib.contextmanager
    def nested(self) -> Iterator[Draft]:
        """Write another program, which goes into the one being written."""
        around, modes = self.draft, self.modes
        self.draft, self.modes = Draft(next(self._homes)), Modes()
        try:
            yield self.draft
        finally:
            with self.unseen():
                self.draft.restore()
            self.draft, self.modes = around, modes

    @contextlib.contextmanager
    def unseen(self) -> Iterator[None]:
        """A context in which nothing is noted down."""
        token, self.idle = RECORDING.set(None), True
        try:
            yield
        finally:
            self.idle = False
            RECORDING.reset(token)


def warn_frozen(line: str, what: str) -> None:
    """Warn, at the user's line, that a decision is frozen in the program."""
    text = (
        f"{line}: {what} decides what the function does, and a plan keeps only the path that is "
        "taken now. sy.cond and sy.while_loop keep both."
    )
    file, _, number = line.rpartition(":")
    warnings.warn_explicit(FrozenPath(text), FrozenPath, file, int(number))
