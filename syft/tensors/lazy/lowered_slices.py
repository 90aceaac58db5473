"""Programs of lazy tensors made ready to run, found again by their key, and what runs them.

The key of a slice of the trace is what was recorded: kinds of calls, numbers of operands, and which
results are kept.  A training step has the same key each time, so it is made a program and lowered
once, and afterwards found by one look into a dictionary.

The first run of a program compares each result with what was predicted of it, so a prediction that
is wrong shows before it matters: a shape or a dtype refuses the operation by name, other strides
are put right from then on.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import torch

from syft.exceptions import ProgramError, UnsupportedOperation
from syft.ops.nested import replace
from syft.program.lint import lint
from syft.program.lowered import Lowered, Partial
from syft.program.program import Action, Slot
from syft.tensors.lazy.call_kinds import FLOAT, OPERAND, CallKind
from syft.tensors.lazy.lazy_program import CALLS, LazyAction, LazyProgram, number_restrided
from syft.tensors.lazy.lazy_values import TensorMeta, meta_of

MOST_PROGRAMS: Final = 256
"""How many programs are kept; the one that was used longest ago goes first."""


class LoweredSlice:
    """One distinct program, lowered: ``calls`` are pairs of a kind and the numbers of its operands.

    A number below zero is ``~place`` among the inputs that are tensors, any other one that of a
    result, counted through all calls.  ``keep`` are the numbers of the results to return.
    """

    __slots__ = (
        "program",
        "tensors",
        "runs",
        "_calls",
        "_keep",
        "_floats",
        "_lowered",
        "_checked",
        "__weakref__",
    )

    def __init__(
        self,
        calls: Sequence[tuple[CallKind, Sequence[int]]],
        tensors: int,
        floats: int,
        keep: Sequence[int],
    ) -> None:
        self._calls, self._keep = calls, keep
        self.tensors, self._floats = tensors, floats
        self.runs = 0
        self._checked = False
        self._make()

    def _make(self) -> None:
        given = self.tensors + self._floats
        float_slots, results = itertools.count(self.tensors), itertools.count(given)
        actions = [_action(*call, given, float_slots, results) for call in self._calls]
        outputs = tuple([Slot(given + number) for number in self._keep])
        self.program = LazyProgram(given, tuple(actions), outputs)
        self.program.facts["tensors"] = self.tensors
        lint(self.program)
        writing = {place for place, (kind, _) in enumerate(self._calls) if kind.writes}
        self._lowered = Lowered(self.program, CALLS, goes_on=True, barriers=writing)

    def checked(self, results: Any, who: str) -> tuple[torch.Tensor, ...]:
        """The results of another runner, in the strides that lazy tensors have told already.

        Raises :class:`~syft.exceptions.ProgramError` if these are not as many tensors of the shapes
        and dtypes that the program makes.
        """
        made = [out for kind, _ in self._calls for out in kind.outs if type(out) is TensorMeta]
        metas = [made[number] for number in self._keep]
        if not isinstance(results, (tuple, list)) or len(results) != len(metas):
            raise ProgramError(f"{who} gave {_told(results)} for {len(metas)} results")
        return tuple([_as_told(meta, one, who) for meta, one in zip(metas, results, strict=True)])

    def run(self, values: list[Any]) -> Any:
        """Run it; the results to keep, or a Partial."""
        self.runs += 1
        if self._checked:
            return self._lowered.run(values)
        wrong: list[int] = []
        results = self._lowered.run_with(values, self._check(wrong))
        if not isinstance(results, Partial):
            self._checked = True
            if wrong:
                self._make()
        return results

    def _check(self, wrong: list[int]) -> Callable[..., Any]:
        """A call of an action that compares its results with what was predicted."""
        places = {id(action): at for at, action in enumerate(self.program.actions)}

        def call(action: Action, function: Any, args: Any, kwargs: Any) -> Any:
            place = places[id(action)]
            kind = self._calls[place][0]
            result = function(*args, **kwargs)
            if kind.container is None:
                meta = kind.outs[0] if kind.outs else None
                if type(meta) is TensorMeta and meta_of(result) is not meta:
                    return self._put_right(place, kind, meta, result, wrong)
                return result
            for meta, one in zip(kind.outs, result, strict=True):
                if type(meta) is TensorMeta and meta_of(one) is not meta:
                    kind.at_once = True
                    _check_fits(kind, meta, one)
            return result

        return call

    def _put_right(
        self, place: int, kind: CallKind, meta: TensorMeta, result: torch.Tensor, wrong: list[int]
    ) -> torch.Tensor:
        """A result with the strides that were predicted; a view keeps its own."""
        _check_fits(kind, meta, result)
        if kind.within[0] >= 0:
            kind.at_once = True
            return result
        wrong.append(place)
        kind.number = number_restrided(kind.facts.overload, meta.shape, meta.stride)
        made = torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device=meta.device)
        return made.copy_(result)


def _told(results: Any) -> str:
    return str(len(results)) if isinstance(results, (tuple, list)) else type(results).__name__


def _as_told(meta: TensorMeta, one: Any, who: str) -> torch.Tensor:
    """One result, copied to other strides if it has not those that were told."""
    if not isinstance(one, torch.Tensor):
        raise ProgramError(f"{who} gave a {type(one).__name__} where a tensor was expected")
    if not meta.fits(one):
        expected, got = f"{meta.shape} {meta.dtype}", f"{tuple(one.shape)} {one.dtype}"
        raise ProgramError(f"{who} gave {got} for a result of {expected}")
    if one.stride() == meta.stride:
        return one
    made = torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device=meta.device)
    return made.copy_(one)


def _check_fits(kind: CallKind, meta: TensorMeta, result: torch.Tensor) -> None:
    if meta.fits(result):
        return
    kind.at_once = True
    raise UnsupportedOperation(
        str(kind.facts.overload),
        "LazyTensor",
        f"torch predicts {meta.shape} {meta.dtype}, and it gives {tuple(result.shape)} "
        f"{result.dtype}; from now on it runs at its line",
    )


def _action(
    kind: CallKind, numbers: Sequence[int], given: int, floats: Any, results: Any
) -> LazyAction:
    """One call as an action of a program."""
    operands = iter(numbers)

    def filled(leaf: Any) -> Any:
        if leaf is OPERAND:
            number = next(operands)
            return Slot(~number if number < 0 else given + number)
        return Slot(next(floats)) if leaf is FLOAT else leaf

    args, kwargs = replace(kind.args, filled), replace(kind.kwargs, filled)
    outs = tuple([Slot(next(results)) if type(out) is TensorMeta else None for out in kind.outs])
    out = outs if kind.container is not None else (outs[0] if outs else None)
    return LazyAction(kind.number, args, kwargs, out)


class SliceCache:
    """The lowered programs by key, as many as :data:`MOST_PROGRAMS`.

    ``lowered`` counts those that were made, ``found`` how often one was found again.
    """

    __slots__ = ("lowered", "found", "_kept")

    def __init__(self) -> None:
        self.lowered = self.found = 0
        self._kept: OrderedDict[Hashable, LoweredSlice] = OrderedDict()

    def find(self, key: Hashable, make: Callable[[], LoweredSlice]) -> LoweredSlice:
        """The program of a key."""
        one = self._kept.get(key)
        if one is not None:
            self.found += 1
            self._kept.move_to_end(key)
            return one
        self.lowered += 1
        one = self._kept[key] = make()
        if len(self._kept) > MOST_PROGRAMS:
            self._kept.popitem(last=False)
        return one
