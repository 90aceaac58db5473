"""Optimizers inside a plan: their state exists before the recording, and their options after it.

An optimizer makes its momentum buffers and running averages during its first step.  A recording of
that step would make them anew at each replay, so :func:`prepare` has the optimizer make them
before, by the very method its first step would have called.  An optimizer that is found only when
the function runs (in a closure) is prepared when it steps: :class:`PreparedOptimizers`.

Some optimizers decide by values which formula to use, or count their steps in Python.  A recording
would freeze that decision, so they are refused by name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from itertools import islice
from types import TracebackType
from typing import Any, NamedTuple

import torch
from torch import optim
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_pre_hook

from syft.exceptions import CannotRecord
from syft.ops.control import RECORDING
from syft.ops.nested import replace
from syft.plans.building.options import Option, options_of, parts_of, put
from syft.program.recording.environment.source_line import user_line
from syft.program.recording.trace import UNSEEN
from syft.torch_private import DisableTorchFunction, make_optimizer_state
from syft.program.recording.symbolic import concrete, is_symbolic

_FORMULA = "it decides by the number of its steps which formula to use"
_STEP_BETWEEN_CALLS = (
    "let a scheduler step between the calls of the plan, or hand the number over as an argument"
)
_MADE_INSIDE = (
    "the function makes it, and its state would begin anew with each call; make it before, outside "
    "of the function"
)
_TAKE_ANOTHER = "step outside of the plan, or take Adam, AdamW or NAdam"

# Why a recorded step would not do what the next step does.  With capturable=True (CUDA only) torch
# leaves the decision to the tensors, and a recording keeps it.
_REFUSED: dict[type[optim.Optimizer], str] = {
    optim.RAdam: f"{_FORMULA}; {_TAKE_ANOTHER}",
    optim.ASGD: f"{_FORMULA}; {_TAKE_ANOTHER}",
    optim.Adafactor: f"it decides by the sizes of its updates how far to go; {_TAKE_ANOTHER}",
    optim.LBFGS: f"it decides by the losses how often to evaluate the model; {_TAKE_ANOTHER}",
    optim.SparseAdam: f"it counts its steps in Python; {_TAKE_ANOTHER}",
}


class StateTensor(NamedTuple):
    """Where a tensor of the state is: ``container[key]``, and its name.

    ``is_optimizers`` says that an optimizer made it, so that nothing asks for its gradient, and
    ``is_running`` that it has a number for each of a parameter, and goes where the parameter goes.
    """

    name: str
    container: dict[str, Any]
    key: str
    is_optimizers: bool = False
    is_running: bool = False

    @property
    def tensor(self) -> torch.Tensor:
        """The tensor that is there now."""
        found: torch.Tensor = self.container[self.key]
        return found


def prepare(optimizer: optim.Optimizer, line: str = "state of the plan") -> None:
    """Make the state of an optimizer exist, exactly as its first step would begin with it.

    Existing state, parameters and gradients stay as they are.  ``line`` is the source line that an
    error names.

    Raises :class:`~syft.exceptions.CannotRecord` for an optimizer whose steps do not all run the
    same operations.

    >>> optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(2))])
    >>> prepare(optimizer)
    >>> [place.name for place in state_of(optimizer)]
    ['0.step', '0.exp_avg', '0.exp_avg_sq']
    """
    _refuse(optimizer, line)
    with DisableTorchFunction():
        for group in optimizer.param_groups:
            _prepare_group(optimizer, group, line)


def state_of(optimizer: optim.Optimizer) -> list[StateTensor]:
    """Where an optimizer keeps its tensors: its state for each parameter, and tensor options.

    The number in a name is that of the parameter, as in ``optimizer.state_dict()``.

    >>> sgd = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=torch.tensor(0.1), momentum=1)
    >>> prepare(sgd)
    >>> [place.name for place in state_of(sgd)]
    ['0.momentum_buffer', 'groups.0.lr']
    """
    places: list[StateTensor] = []
    for number, parameter in enumerate(_parameters(optimizer)):
        if parameter in optimizer.state:
            places += tensors_in(str(number), optimizer.state[parameter], parameter)
    for number, group in enumerate(optimizer.param_groups):
        places += tensors_in(f"groups.{number}", group)
    return places


class MadeInside(CannotRecord):
    """The function makes an optimizer, whose state would have been made before the recording."""


class PreparedOptimizers:
    """A context for recording: every optimizer that steps inside it has its state.

    ``given`` are those of before, and ``known`` these and others that the function may use; the
    ``options`` of all that are numbers are inputs.  ``stepped`` are those that
    step inside, or have a scheduler that does, in order.  The exit restores their options:
    ``group["lr"] = lr`` may have put a traced number there.  ``changed`` are the options that the
    last run changed, each with the name of its optimizer and what the run left there.

    An optimizer that the function makes is another one in each run, and begins anew in each call:
    its first step is recorded as it is.  That one is made inside is known by the first further run,
    in which :class:`MadeInside` is raised; ``some_made`` says so to the next recording.

    The exit raises :class:`~syft.exceptions.CannotRecord` if a step counts in Python.  If the
    recording failed because an option changes with every run (a scheduler), it names the option.

    >>> sgd = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    >>> with PreparedOptimizers([sgd]):
    ...     sgd.param_groups[0]["lr"] = 0.2
    >>> sgd.param_groups[0]["lr"]
    0.1
    """

    def __init__(
        self,
        given: Sequence[optim.Optimizer] = (),
        known: Sequence[optim.Optimizer] | None = None,
        some_made: bool = False,
    ) -> None:
        self.known = known = given if known is None else known
        self._some_made = some_made
        self.stepped: dict[optim.Optimizer, None] = {}
        self.options = options_of(known)
        self.changed: list[tuple[str, Option, Any]] = []
        self._numbers = [part for option in self.options for part in parts_of(option.value)]
        self._added: set[optim.Optimizer] = set()
        self._new: set[optim.Optimizer] = set()
        self._saved: set[optim.Optimizer] = set()
        self._options: list[_Saved] = []
        self._counts: list[_Saved] = []
        for optimizer in known:
            if optimizer in given:
                self._add(optimizer, "state of the plan")
            else:
                self._save_options(optimizer)

    def __enter__(self) -> PreparedOptimizers:
        self._outer = _PREPARED.set(self)
        self._handle = register_optimizer_step_pre_hook(self._before_step)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._handle.remove()
        _PREPARED.reset(self._outer)
        self.changed = list(self._changed_options())
        known = {id(option.group) for option in self.options}
        others = [saved for saved in self._options if id(saved.container) not in known]
        options = [(name, option.key) for name, option, _ in self.changed] + _changed(others)
        counts = _changed(self._counts)
        for saved in self._options:
            for key in saved.container.keys() - saved.values.keys():
                del saved.container[key]
        for saved in (*self._options, *self._counts):
            saved.container.update(saved.values)
        if error is None and counts:
            raise _counting(*counts[0], "state of the plan")
        if isinstance(error, CannotRecord):
            made = [one for one in self.stepped if one not in self.known]
            if made and error.what.endswith(UNSEEN) and not self._some_made:
                raise MadeInside(_name(made[0]), error.line, _MADE_INSIDE) from None
            _raise_reason(error, options, counts)

    def put(self, numbers: Sequence[Any]) -> None:
        """Begin a run in which the options are these numbers."""
        put(self.options, numbers)
        self._numbers = list(numbers)

    def _changed_options(self) -> Iterator[tuple[str, Option, Any]]:
        names = {id(saved.container): saved.name for saved in self._options}
        given = iter(self._numbers)
        for option in self.options:
            before, now = list(islice(given, len(option.kinds))), option.group.get(option.key)
            if list(map(id, parts_of(now))) != list(map(id, before)):
                yield names[id(option.group)], option, now

    def _before_step(self, optimizer: optim.Optimizer, args: Any, kwargs: Any) -> None:
        if _PREPARED.get() is not self:  # another thread's
            return
        if self._some_made and self._is_new(optimizer):
            return
        self.stepped[optimizer] = None
        if optimizer not in self._added:
            self._add(optimizer, str(user_line()))

    def _is_new(self, optimizer: optim.Optimizer) -> bool:
        """Whether the function has made it: it has no state at its first step."""
        if not optimizer.state and optimizer not in self.known:
            _refuse(optimizer, str(user_line()))
            self._new.add(optimizer)
        return optimizer in self._new

    def _add(self, optimizer: optim.Optimizer, line: str) -> None:
        prepare(optimizer, line)
        self._added.add(optimizer)
        if optimizer not in self._saved:
            self._save_options(optimizer)
        name = _name(optimizer)
        own = vars(optimizer)
        counts = {key: value for key, value in own.items() if type(value) in (int, float)}
        self._counts.append(_Saved(name, own, counts))
        for state in optimizer.state.values():
            counts = {key: value for key, value in state.items() if isinstance(value, (int, float))}
            self._counts.append(_Saved(name, state, counts))

    def _save_options(self, optimizer: optim.Optimizer) -> None:
        self._saved.add(optimizer)
        for group in optimizer.param_groups:
            values = dict(zip(group, map(_plain, group.values())))
            self._options.append(_Saved(_name(optimizer), group, values))


_PREPARED: ContextVar[PreparedOptimizers | None] = ContextVar("prepared", default=None)
"""The optimizers of the function that is being recorded."""


class _Saved(NamedTuple):
    """The values in a dict of an optimizer before the recording; ``name`` is the optimizer's."""

    name: str
    container: dict[str, Any]
    values: dict[str, Any]


def _plain(value: Any) -> Any:
    """An option without the symbolic numbers that the function put there before the first step."""
    return replace(value, concrete) if isinstance(value, tuple) else concrete(value)


def _changed(saved: Sequence[_Saved]) -> list[tuple[str, str]]:
    """The numbers that have changed: the name of the optimizer, and the key."""
    return [
        (name, key)
        for name, container, values in saved
        for key, value in values.items()
        if isinstance(value, (int, float)) and not _is_same(concrete(container.get(key)), value)
    ]


def _is_same(now: Any, value: int | float) -> bool:
    """Whether there is still a number, or the same NaN; a tensor may be there instead."""
    return now is value or isinstance(now, (int, float)) and now == value


def _raise_reason(
    error: CannotRecord, options: list[tuple[str, str]], counts: list[tuple[str, str]]
) -> None:
    """Raise what a refusal of an optimizer comes from, if that is a number which it changed."""
    for changes, refusal in ((counts, _counting), (options, _changing)):
        for name, key in changes:
            if name == error.what:
                raise refusal(name, key, error.line) from None


def refuse_changes(
    changed: Sequence[tuple[str, Option, Any]], read: Mapping[tuple[int, str], str], end: str
) -> None:
    """Refuse a change of an option that the program reads, at the line where it does.

    The next run of the program would begin with what this one began with.  A change to a plain
    number, which follows from no input, would be frozen; ``end`` is its line.  Raises
    :class:`~syft.exceptions.CannotRecord`.

    >>> refuse_changes([], {}, "train.py:9")
    """
    for name, option, now in changed:
        is_frozen = not any(is_symbolic(part) or torch.is_tensor(part) for part in parts_of(now))
        line = read.get((id(option.group), option.key), end if is_frozen else None)
        if line is not None:
            raise _changing(name, option.key, line)


def refuse_in_a_plan(step: Callable[..., None]) -> Callable[..., None]:
    """What refuses the step of a scheduler while a plan is recorded; else it steps.

    It counts its steps in Python, so all steps of the plan would be this one.  An optimizer that
    the function makes is another one in each recording, so its scheduler may step inside too.

    >>> refuse_in_a_plan(lambda scheduler: None)(None)
    """

    def surrounded(self: Any, *args: Any, **kwargs: Any) -> None:
        recording, prepared = RECORDING.get(), _PREPARED.get()
        if recording is not None and prepared is not None:
            if self.optimizer in prepared.known:
                recording.refuse(f"a step of {type(self).__name__}", _STEP_BETWEEN_CALLS)
            prepared.stepped[self.optimizer] = None
        step(self, *args, **kwargs)

    return surrounded


class UnsteppedSchedulers:
    """A context for recording in which schedulers that are known must not step.

    Where torch is hooked, :func:`refuse_in_a_plan` refuses the step itself, and of all others.
    Raises :class:`~syft.exceptions.CannotRecord` at the end, and puts their counts back.

    >>> with UnsteppedSchedulers([], "train.py:9"):
    ...     pass
    """

    def __init__(self, schedulers: Sequence[LRScheduler], line: str) -> None:
        self._before = [(each, dict(vars(each))) for each in schedulers]
        self._line = line

    def __enter__(self) -> UnsteppedSchedulers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        stepped = [each for each, was in self._before if _counts(vars(each)) != _counts(was)]
        for scheduler, was in self._before:
            vars(scheduler).update(was)
        if stepped and kind is None:
            what = f"a step of {type(stepped[0]).__name__}"
            raise CannotRecord(what, self._line, _STEP_BETWEEN_CALLS)


def _counts(attributes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in attributes.items() if type(value) is int}


def _changing(name: str, key: str, line: str) -> CannotRecord:
    return CannotRecord(f"a change of {key!r} of {name}", line, _STEP_BETWEEN_CALLS)


def _counting(name: str, key: str, line: str) -> CannotRecord:
    reason = f"it keeps {key!r} as a Python number, which a step changes; {_TAKE_ANOTHER}"
    return CannotRecord(name, line, reason)


def _refuse(optimizer: optim.Optimizer, line: str) -> None:
    """Refuse an optimizer that is known to decide by values."""
    reasons = [_REFUSED[kind] for kind in type(optimizer).__mro__ if kind in _REFUSED]
    capturable = all(group.get("capturable", False) for group in optimizer.param_groups)
    if reasons and not capturable:
        raise CannotRecord(_name(optimizer), line, reasons[0])


def _prepare_group(optimizer: optim.Optimizer, group: dict[str, Any], line: str) -> None:
    trained = [parameter for parameter in group["params"] if parameter.requires_grad]
    with _gradients(trained):
        known = make_optimizer_state(optimizer, group)
    if isinstance(optimizer, optim.SGD):
        _prepare_momentum(optimizer, group, trained, line)
    if not known and not all(optimizer.state.get(parameter) for parameter in trained):
        _refuse_first_step(optimizer, line)


@contextlib.contextmanager
def _gradients(parameters: Sequence[torch.Tensor]) -> Iterator[None]:
    """A context in which parameters without a gradient have zeros for one.

    An optimizer makes state only for parameters that have a gradient.
    """
    without = [parameter for parameter in parameters if parameter.grad is None]
    try:
        for parameter in without:
            parameter.grad = torch.zeros_like(parameter)
        yield
    finally:
        for parameter in without:
            parameter.grad = None


def _prepare_momentum(
    optimizer: optim.SGD, group: dict[str, Any], trained: list[torch.Tensor], line: str
) -> None:
    """Make the momentum buffers of SGD.

    SGD makes them in its first step, as a copy of the gradient.  A buffer of zeros gives the same,
    unless later gradients are dampened.
    """
    if group["momentum"] == 0:
        return
    for parameter in trained:
        state = optimizer.state[parameter]
        if state.get("momentum_buffer") is None:
            if group["dampening"] != 0:  # torch does not dampen the first step
                _refuse_first_step(optimizer, line)
            state["momentum_buffer"] = torch.zeros_like(parameter)


def _refuse_first_step(optimizer: optim.Optimizer, line: str) -> None:
    reason = "it differs from the later steps; take one step before you build the plan"
    raise CannotRecord(f"the first step of {_name(optimizer)}", line, reason)


def tensors_in(
    name: str, container: dict[str, Any], parameter: torch.Tensor | None = None
) -> Iterator[StateTensor]:
    """Where the tensors are in a group or in the state for a parameter, tuples included.

    >>> [place.name for place in tensors_in("groups.0", {"betas": (torch.ones(()), 0.9)})]
    ['groups.0.betas.0']
    """
    for key, value in container.items():
        if isinstance(value, tuple):
            parts = {f"{key}.{number}": part for number, part in enumerate(value)}
            yield from tensors_in(name, parts, parameter)
        elif isinstance(value, torch.Tensor):
            running = parameter is not None and value.shape == parameter.shape
            yield StateTensor(f"{name}.{key}", container, key, True, running and key not in _COUNTS)


_COUNTS = {"step", "mu_product"}
"""What an optimizer keeps as one number for a parameter, also for one of a single number."""


def _parameters(optimizer: optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _name(optimizer: optim.Optimizer) -> str:
    kind = type(optimizer)
    in_torch = kind.__module__.startswith("torch.optim.")
    return f"{'torch.optim' if in_torch else kind.__module__}.{kind.__qualname__}"
