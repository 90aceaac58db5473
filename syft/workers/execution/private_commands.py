"""Running one command on private values: what is computed from them is as private as they are.

Everything computed from a private value gets the guard of that value: results, gradients, and all
tensors that the command wrote.  A command of somebody who may not see the values does what its
prediction says (:mod:`syft.workers.execution.predicted_run`), or is refused.  A backward pass has
rules of its own (:mod:`syft.workers.execution.backward_passes`).

Where there is no prediction (layouts other than strided, chains), a command runs for those who may
see the values.  What it may write, by its flags in the op table, is moved to private memory first,
and what it has written is found by its version counter.  Others may convert to fixed precision and
back (:func:`converted`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from typing import Any, Final, Protocol

import torch

from syft.chain.wrapper import Wrapper
from syft.exceptions import PermissionDenied
from syft.ops.evaluate import evaluate
from syft.ops.forms import FORMS
from syft.ops.nested import EXACT_TENSOR_TYPES, Function, every_tensor, leaves
from syft.ops.outcome import Outcome, Verdict
from syft.ops.table import (
    BOUNDED,
    COLUMNS,
    ELEMENTWISE,
    FACTORY,
    GRADIENT,
    INPLACE,
    METADATA,
    MUTATES_OTHERS,
    NUMBERS,
    READS_GRADIENT,
    SHAPE_FROM_VALUES,
    SPLITS,
    ops_where,
)
from syft.workers.execution.backward_passes import run_private_pass
from syft.workers.execution.hidden_shapes import NO_PREDICTION, hidden_prediction, is_bounded
from syft.workers.execution.leaving import check_gradients_leave
from syft.workers.execution.moved_memory import Holdings, Immovable, move_written
from syft.workers.execution.predicted_failures import (
    CHAIN,
    NO_BOUND,
    OTHER_LAYOUT,
    QUESTION,
    READS,
    SPLIT_SIZES,
    UNTOLD,
    UNTOLD_SIZES,
    predicted_failure,
    refusal,
)
from syft.workers.execution.predicted_run import (
    apart_from_lower,
    call_drawing,
    calling,
    run_predicted,
    with_own_streams,
)
from syft.workers.execution.private_results import (
    NOTHING,
    UNCLEAR,
    common_guard,
    private_result,
)
from syft.workers.execution.public_facts import is_answer, is_told
from syft.workers.execution.public_sizes import note_gradient
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import combined, full_guard_of, protect
from syft.workers.labels.walk import innermost, storages_of


def run_guarded(
    function: Function,
    args: list[Any],
    kwargs: dict[str, Any],
    op_flags: int,
    guard: Guard,
    holdings: Holdings,
    worker: str,
    user: str | None,
    decided: bool = False,
) -> Any:
    """Call ``function`` on inputs guarded by ``guard``, and guard its results and effects.

    ``holdings`` are told of tensors that the call moves to new memory.  ``decided`` says that a
    private value has decided that there is this call: then no shape of what it makes is public.
    Raises
    :class:`~syft.exceptions.PermissionDenied` when the operation would return a value to a ``user``
    who may not read it.
    """
    args, kwargs = with_own_streams(args, kwargs, guard)
    admitted = guard.admits(user)
    if not admitted and op_flags & (METADATA | GRADIENT):
        _check_may_ask(function, args, kwargs, op_flags, guard, worker, user)
        if op_flags & METADATA and _is_answer(answer := function(*args, **kwargs)):
            return answer
    if op_flags & GRADIENT:
        try:
            return run_private_pass(function, args, kwargs, guard, holdings, worker, user)
        except Immovable:
            raise refusal(_SHARED, function, args, kwargs, worker, user) from None
    if op_flags & READS_GRADIENT:
        return _own_guard_kept(function(*args, **kwargs), guard, args)
    result = _quick_result(function, args, kwargs, guard)
    if result is not NOTHING:
        return result
    command = _Command(function, args, kwargs, op_flags, guard, worker, user, decided)
    return command.run(holdings)


def _quick_result(function: Function, args: list[Any], kwargs: dict[str, Any], guard: Guard) -> Any:
    """What a command makes or writes that is for the fast way; ``NOTHING`` if it is not."""
    found = common_guard((*args, *kwargs.values()))
    if found is UNCLEAR or found != guard or guard.error is not None:
        return NOTHING
    return private_result(function, args, kwargs, guard)


def _check_may_ask(
    function: Function,
    args: list[Any],
    kwargs: dict[str, Any],
    op_flags: int,
    guard: Guard,
    worker: str,
    user: str | None,
) -> None:
    """Raise if a command asks what is not told of private tensors, or sends their gradients where
    they may not go."""
    if op_flags & METADATA and not is_answer(function, args, kwargs, guard):
        raise refusal(QUESTION, function, args, kwargs, worker, user)
    if op_flags & GRADIENT:
        check_gradients_leave(function, args, kwargs, guard, worker, user)


@dataclass(frozen=True, slots=True)
class _Command:
    """A command for the general way: what :func:`run_guarded` is given, but for the holdings."""

    function: Function
    args: list[Any]
    kwargs: dict[str, Any]
    op_flags: int
    guard: Guard
    worker: str
    user: str | None
    decided: bool

    def run(self, holdings: Holdings) -> Any:
        """Do what is predicted; without a prediction, call the function if that may be seen."""
        prediction, command = self._in_its_form(self._prediction())
        try:
            if prediction.is_complete and (self._is_admitted or is_bounded(prediction)):
                return command._run_predicted(prediction, holdings)
            if self._is_admitted:
                self.guard.check_open()
                return self._moved(holdings)._run_and_see()
        except Immovable:
            raise self._denied(_SHARED) from None
        self._check_may_be_seen(prediction)
        return self._run_and_see()

    @property
    def _is_admitted(self) -> bool:
        return self.guard.admits(self.user)

    def _denied(self, what: str) -> PermissionDenied:
        """The refusal of this command, with what its caller may do; told by public facts alone."""
        return refusal(what, self.function, self.args, self.kwargs, self.worker, self.user)

    def _tensors(self) -> list[torch.Tensor]:
        return every_tensor((self.args, self.kwargs))

    def _prediction(self) -> Outcome:
        """The prediction, as far as there are predictions: of ordinary tensors."""
        if not _all_strided(self._tensors()):
            return NO_PREDICTION
        if not self.guard.shape_hidden:
            return evaluate(self.function, self.args, self.kwargs, _is_public)
        counted = bool(self.op_flags & SPLITS)
        return hidden_prediction(self.function, self.args, self.kwargs, _is_public, counted)

    def _in_its_form(self, prediction: Outcome) -> tuple[Outcome, _Command]:
        """The prediction of the form of the operation, if it has one and needs it, and what
        runs."""
        form = FORMS.get(self.function)
        if form is not None and not (self._is_admitted or prediction.verdict is Verdict.FAILS):
            formed = changed(self, function=form.predicted)._prediction()
            if formed.is_complete:
                return formed, changed(self, function=form.run or self.function)
        return prediction, self

    def _run_predicted(self, prediction: Outcome, holdings: Holdings) -> Any:
        hidden = prediction.verdict is Verdict.RESIZES
        guard = changed(self.guard, shape_hidden=True) if hidden else self.guard
        call = self.function, self.args, self.kwargs
        return run_predicted(*call, prediction, guard, holdings, self._is_admitted, self.decided)

    def _moved(self, holdings: Holdings) -> _Command:
        """The same command after what it may write was moved."""
        targets = [each for each in self._written() if full_guard_of(each) != self.guard]
        if not _all_strided(targets):
            raise Immovable
        moves = move_written(targets, self.guard, holdings)
        args, kwargs = moves.within((self.args, self.kwargs))
        return changed(self, args=args, kwargs=kwargs)

    def _written(self) -> list[torch.Tensor]:
        """The operands to which the command may write, by its flags."""
        written: list[Any] = [self.kwargs.get("out")]
        if self.op_flags & MUTATES_OTHERS:
            written += (self.args, self.kwargs)
        elif self.op_flags & INPLACE:
            written += self.args[:1]
        return every_tensor(written)

    def _guard_of_results(self) -> Guard:
        hides = _shape_depends(self.function, self.op_flags, self.args, self.kwargs)
        return changed(self.guard, shape_hidden=True) if hides else self.guard

    def _run_and_see(self) -> Any:
        """Call the function, and guard what it is found to have written and what it returns."""
        inputs = self._tensors()
        before = [(tensor, _version(tensor)) for tensor in inputs]
        draws = not self.op_flags & (BOUNDED | METADATA)
        run = call_drawing if draws else calling
        result = run(self.function, self.args, self.kwargs)
        for tensor, version in before:
            if _version(tensor) != version:
                protect(tensor, self.guard)
        result = apart_from_lower(result, inputs, self.guard)
        guard = self._guard_of_results()
        for leaf in leaves(result):
            if isinstance(leaf, torch.Tensor):
                protect(leaf, guard)
            elif not (self._is_admitted or tells_nothing(leaf, self.function, guard)):
                raise self._denied("an operation that returns its value")
        return result

    def _check_may_be_seen(self, prediction: Outcome) -> None:
        """Raise what a command comes to that has no complete prediction: what it does would be
        seen.

        What tells metadata, or sets it, may run.
        """
        if prediction.verdict is Verdict.FAILS:
            raise predicted_failure(*prediction.failure)
        if not (self.op_flags & METADATA or NUMBERS.get(self.function) in COLUMNS["sets"]):
            raise self._denied(self._refusal(prediction))

    def _refusal(self, prediction: Outcome) -> str:
        """What kind of command may not run, because what it does would be seen."""
        if prediction.verdict is Verdict.READS:
            return READS
        if prediction.is_complete:
            return NO_BOUND
        if self.guard.shape_hidden and self.op_flags & SPLITS:
            return SPLIT_SIZES
        inputs = self._tensors()
        if any(map(_is_of_other_layout, inputs)):
            return OTHER_LAYOUT
        if any(type(tensor) is Wrapper for tensor in inputs):
            return CHAIN
        return UNTOLD_SIZES if self.guard.shape_hidden else UNTOLD


def _own_guard_kept(
    gradient: torch.Tensor | None, guard: Guard, args: list[Any]
) -> torch.Tensor | None:
    """A gradient, which is as private as its own memory; as private as its leaf, if it has none.
    It is no larger than its leaf."""
    if gradient is not None and not storages_of(gradient):
        protect(gradient, guard)
    if gradient is not None and args and guard.shape_hidden:
        note_gradient(gradient, args[0])
    return gradient


def _is_answer(result: Any) -> bool:
    """Whether a result is no tensor: ``x.type(torch.int64)`` is none of the questions."""
    return not any(isinstance(leaf, torch.Tensor) for leaf in leaves(result))


def _is_public(tensor: torch.Tensor) -> bool:
    return full_guard_of(tensor) is None


_SHARED: Final = "a write to memory that a chain or a tensor of another kind shares"


def _all_strided(inputs: list[torch.Tensor]) -> bool:
    """Whether all are ordinary tensors, which predictions understand."""
    return all(
        type(tensor) in EXACT_TENSOR_TYPES
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        for tensor in inputs
    )


def _is_of_other_layout(tensor: torch.Tensor) -> bool:
    """Whether the elements of a tensor are not all there is to it, as in one array of numbers."""
    return type(tensor) is not Wrapper and not _all_strided([tensor])


class Converting(Protocol):
    """A function that makes a tensor of one, and its name."""

    @property
    def name(self) -> str:
        """What it is called in errors."""

    def __call__(self, tensor: torch.Tensor, *args: Any) -> torch.Tensor:
        """The tensor that it makes."""


def converted(
    conversion: Converting, value: torch.Tensor, args: Sequence[Any], worker: str, user: str | None
) -> torch.Tensor:
    """What a conversion makes of a tensor, as private as that.

    Of one who may not see the values, the conversion is run on zeros first: if that fails, so would
    it whatever the values are, and the error is told.  If the values fail (one is too large, say),
    what was made of zeros stands for the result, sealed.
    """
    guard = full_guard_of(value)
    blank = None
    if guard is not None and not guard.admits(user):
        blank = _of_zeros(conversion, value, args, worker, user)
    try:
        result = conversion(value, *args)
    except Exception as error:
        if guard is None or blank is None:
            raise
        result, guard = blank, guard.sealed(error)
    protect(result, guard)
    return result


def _of_zeros(
    conversion: Converting, value: torch.Tensor, args: Sequence[Any], worker: str, user: str | None
) -> torch.Tensor:
    """What a conversion makes of zeros: a leaf, or one with a graph that leads to the tensor."""
    zeros = _zeros_like(value)
    if zeros is None:
        what = f"{conversion.name} of what is neither dense nor in fixed precision"
        raise PermissionDenied(what, worker, user)
    try:
        if value.is_leaf:
            made = conversion(zeros.requires_grad_(value.requires_grad), *args)
            if made.is_leaf:
                return made
        everything = torch.ones(value.shape, dtype=torch.bool, device=value.device)
        return conversion(value.masked_fill(everything, 0), *args)
    except Exception as error:
        error.__dict__["predicted"] = True
        raise


def _zeros_like(value: torch.Tensor) -> torch.Tensor | None:
    """Zeros of the kind of a tensor; None if a conversion might tell more of it than its kind."""
    if type(value) is not Wrapper:
        return torch.zeros_like(value.detach()) if _all_strided([value]) else None
    elements = value.child.elements()
    if elements is None or value.child.at_function_level or not _all_strided([elements]):
        return None
    return value.child.over(torch.zeros_like(elements))


def guard_for(args: list[Any], kwargs: dict[str, Any]) -> Guard | None:
    """The guard of what is computed from these arguments."""
    return combined(leaves((args, kwargs)))


def tells_nothing(value: Any, function: Function, guard: Guard) -> bool:
    """Whether a result of a function that is no tensor reveals only what the program reveals.

    >>> private = Guard(frozenset())
    >>> tells_nothing(None, torch.Tensor.backward, private)
    True
    >>> tells_nothing(3, torch.Tensor.item, private), tells_nothing(3, torch.Tensor.dim, private)
    (False, True)
    """
    return value is None or is_told(function, guard)


def _shape_depends(
    function: Function, op_flags: int, args: list[Any], kwargs: dict[str, Any]
) -> bool:
    """Whether the shape of a result may reveal values: that of a flagged operation, or a size taken
    from a tensor (``x[:n]``, ``x.expand(n)``, ``zeros(n)``).

    The offset of a result in the memory it shares with an input (``x[n]``) counts as its shape.
    """
    if function is torch.Tensor.__getitem__:
        return any(map(_selects_by_value, leaves(args[1:]))) or _slices_by_value(args[1])
    if op_flags & SHAPE_FROM_VALUES:
        return True
    sizes = args if op_flags & FACTORY else args[1:]
    if op_flags & ELEMENTWISE or NUMBERS.get(function) in _TAKING_NUMBERS:
        return False
    return any(map(_is_size, leaves((sizes, kwargs))))


def _selects_by_value(index: Any) -> bool:
    if not isinstance(index, torch.Tensor):
        return False
    if index.dtype in (torch.bool, torch.uint8):
        return True
    return index.ndim == 0 and full_guard_of(index) is not None  # a view whose offset is private


def _slices_by_value(index: Any) -> bool:
    parts = index if isinstance(index, (tuple, list)) else [index]
    return any(
        isinstance(leaf, torch.Tensor)
        for part in parts
        if isinstance(part, slice)
        for leaf in leaves(part)
    )


def _is_size(value: Any) -> bool:
    """Whether torch accepts a value, if it is a tensor, in the place of an integer."""
    if not isinstance(value, torch.Tensor) or type(value) is Wrapper or value.numel() != 1:
        return False
    return not (value.is_floating_point() or value.is_complex())


_TAKING_NUMBERS: Final = ops_where("integers", "values")


def _version(tensor: torch.Tensor | None) -> object:
    """The version counter; an inference tensor has none, and always counts as written."""
    plain = innermost(tensor)
    if plain is None:
        return None
    return object() if plain.is_inference() else plain._version
