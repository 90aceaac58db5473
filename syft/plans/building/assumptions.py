"""What decided the recording of a plan, and whether it is still the case.

A recording assumes which modules there are, whether they train, their hooks and constant attributes
(``dropout.p``), the options of an optimizer, and which parameters it steps.  It keeps the values
that the function found in its closure and around it (:mod:`syft.plans.building.reads`), and copies
of tensors that nothing trains or writes to.  These are observed
when a plan is recorded and compared at every call, by loops that run in C.  When one of them has
changed, the plan is not built any more, and an error names the change.

Not observed: what a run of the function itself changes (a module that counts its calls), and writes
that torch does not count (``x.data.add_(1)``, and by numpy to the memory of a tensor).  An array of
numpy that the function finds is compared with a copy: a recording takes only small ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import chain, filterfalse
from operator import is_, itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from syft.ops.table import ops_where
from syft.plans.building.optimizers import StateTensor, tensors_in
from syft.plans.building.options import Options
from syft.plans.building.reads import CODE, LENGTH, Fact, Surroundings, is_constant, value_at
from syft.plans.building.state import BoundState
from syft.program.program import Program
from syft.ops.nested import leaves
from syft.program.recording.environment.snapshot import version_of
from syft.program.recording.record import MOST_BYTES
from syft.torch_private import OPTIMIZER_MARKS


class Count(NamedTuple):
    """A module or optimizer of class ``owner`` had ``number`` of ``what``, in ``container``."""

    owner: str
    what: str
    container: Sized
    number: int


class Observations(NamedTuple):
    """The state of modules and optimizers at one moment.

    ``stepped`` holds for each group of an optimizer its list of parameters, and what was in it.
    ``copies`` are facts whose value is a copy of an option that is a tensor (``lr``), or a part of
    it that is, or of an array of numpy.  ``read`` are places that the function reads besides.
    ``copied`` are tensors of which the program has copies, each with what :func:`written_state`
    was.
    """

    facts: list[Fact]
    counts: list[Count]
    stepped: list[tuple[list[torch.Tensor], list[torch.Tensor]]]
    copies: Sequence[Fact] = ()
    read: Sequence[Fact] = ()
    copied: Sequence[tuple[torch.Tensor, Any]] = ()

    def unchanged_since(self, before: Observations) -> Observations:
        """These observations, without the facts that had another value ``before``.

        A run of the function changed those, and every later run will: a module that counts its
        calls.

        >>> model = nn.ReLU()
        >>> model.calls = 0
        >>> before = observe([model])
        >>> model.calls = 2
        >>> [fact.key for fact in observe([model]).unchanged_since(before).facts]
        ['training', 'inplace']
        """
        was = {(id(fact.container), fact.key): fact.value for fact in before.facts}
        facts = [
            fact
            for fact in self.facts
            if _is_equal(fact.value, was.get((id(fact.container), fact.key), fact.value))
        ]
        read = [fact for fact in before.read if _is_still(fact)]
        return self._replace(facts=facts, read=read)

    def without(self, options: Options) -> Observations:
        """These observations without the options that are inputs of the plan."""
        places = {(id(option.group), option.key) for option in options.all}
        facts = [fact for fact in self.facts if (id(fact.container), fact.key) not in places]
        return self._replace(facts=facts)


def written_state(tensor: torch.Tensor) -> tuple[int, bool]:
    """What differs after a write to a tensor: torch's count of them, and whether it requires grad.

    >>> written_state(torch.ones(2).add_(1))
    (1, False)
    """
    return version_of(tensor), tensor.requires_grad


_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_STEP_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_GROUPS = "param_groups"
_OPTIMIZER_ATTRIBUTES = ("state", _GROUPS)
_IN_EVERY_MODULE = frozenset(vars(nn.Module())) - {"training"}


def observe(entries: Sequence[Any], reads: Surroundings | None = None) -> Observations:
    """Observe the modules and optimizers among the entries, with all their parts.

    ``reads`` is what the function reads besides; it may ask for options that are not there yet.

    >>> observed = observe([nn.Sequential(nn.Dropout(0.1))])
    >>> [(fact.key, fact.value) for fact in observed.facts]
    [('training', True), ('0', Dropout(p=0.1, inplace=False)), ('training', True), ('p', 0.1), \
('inplace', False)]
    """
    optimizers = [entry for entry in entries if isinstance(entry, Optimizer)]
    groups = list(chain.from_iterable(optimizer.param_groups for optimizer in optimizers))
    stepped = {id(tensor) for group in groups for tensor in group["params"]}
    facts: list[Fact] = []
    counts: list[Count] = []
    for part in modules_in(entries):
        facts += _facts_of_module(part, stepped)
        counts += _counts_of_module(part)
    for optimizer in optimizers:
        facts += _facts_of_optimizer(optimizer)
        counts += _counts_of_optimizer(optimizer)
    lists = [(group["params"], list(group["params"])) for group in groups]
    if reads is None:
        return Observations(facts, counts, lists)
    facts += _absent_options(optimizers, reads.texts)
    return Observations(facts, counts, lists, list(_copied_arrays(reads.facts)), reads.facts)


def _absent_options(optimizers: Sequence[Optimizer], texts: set[str]) -> Iterator[Fact]:
    """The options that code may ask for by their name, and that are not there."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for key in sorted(texts - group.keys()):
                yield Fact(type(optimizer).__name__, group, key, None)


def with_copies(
    observed: Observations,
    copied: Sequence[torch.Tensor],
    places: Sequence[StateTensor],
    state: BoundState,
) -> Observations:
    """The same observations, and those of the tensors of which a program has copies.

    These have to stay where they are, in all ``places`` that are known, and as they are.  Those
    of the state are read anew where they are.
    """
    own = {(id(place.container), place.key) for place in state.places}
    read = [fact for fact in observed.read if (id(fact.container), fact.key) not in own]
    ids = {id(tensor) for tensor in copied}
    read += [
        Fact("what it uses", place.container, place.key, place.tensor)
        for place in places
        if id(place.tensor) in ids
    ]
    return observed._replace(read=read, copied=[(each, written_state(each)) for each in copied])


def modules_in(entries: Sequence[Any]) -> Iterator[nn.Module]:
    """The modules among the entries with all their parts, each once.

    >>> list(modules_in([nn.Sequential(nn.ReLU()), 3]))[1]
    ReLU()
    """
    known: set[nn.Module] = set()
    for entry in entries:
        if isinstance(entry, nn.Module):
            for _, part in entry.named_modules(memo=known):
                yield part


def _facts_of_module(part: nn.Module, stepped: set[int]) -> Iterator[Fact]:
    name, own = type(part).__name__, vars(part)
    for key, value in own.items():
        if key not in _IN_EVERY_MODULE and is_constant(value):
            yield Fact(name, own, key, value)
    for table in ("_modules", *_HOOKS):
        for key, value in own[table].items():
            yield Fact(name, own[table], key, value)
    for key, value in own["_parameters"].items():
        if value is None or id(value) in stepped:  # the optimizer goes on with the one it has
            yield Fact(name, own["_parameters"], key, value)


def _counts_of_module(part: nn.Module) -> Iterator[Count]:
    name, own = type(part).__name__, vars(part)
    yield Count(name, "attributes", own, len(own))
    for table in ("_modules", *_HOOKS):
        yield _counted(name, own, table)


def _counted(owner: str, container: dict[str, Any], key: str) -> Count:
    return Count(owner, key.lstrip("_"), container[key], len(container[key]))


def _facts_of_optimizer(optimizer: Optimizer) -> Iterator[Fact]:
    name, own = type(optimizer).__name__, vars(optimizer)
    for key in _OPTIMIZER_ATTRIBUTES:
        yield Fact(name, own, key, own[key])
    for key, value in own.items():
        if key not in OPTIMIZER_MARKS and is_constant(value):
            yield Fact(name, own, key, value)
    for table in _STEP_HOOKS:
        for key, value in own[table].items():
            yield Fact(name, own[table], key, value)
    for group in optimizer.param_groups:
        for key, value in group.items():
            if not isinstance(value, torch.Tensor):  # tensors are state
                yield Fact(name, group, key, value)


def _counts_of_optimizer(optimizer: Optimizer) -> Iterator[Count]:
    name, own = type(optimizer).__name__, vars(optimizer)
    for table in (_GROUPS, *_STEP_HOOKS):
        yield _counted(name, own, table)
    for group in optimizer.param_groups:
        yield _counted(name, group, "params")


_NOTHING = Observations([], [], [])
NO_OPTIONS = Options()


_SETS_GRAD = ops_where("sets", "requires_grad")


def sets_requires_grad(program: Program) -> bool:
    """Whether a program sets which tensors require grad; then it does not matter before the call.

    >>> sets_requires_grad(sy.func2plan(args_shape=[(2,)])(lambda x: x.requires_grad_()).program)
    True
    """
    for action in program.actions:
        nested = (leaf for leaf in leaves(action.args) if isinstance(leaf, Program))
        if action.op in _SETS_GRAD or any(map(sets_requires_grad, nested)):
            return True
    return False


class Assumptions:
    """What was observed when a plan was recorded, and whether it is still the case.

    >>> model = nn.Dropout()
    >>> assumptions = Assumptions(observe([model]))
    >>> assumptions.holds(), model.eval() and assumptions.holds()
    (True, False)
    >>> assumptions.change()
    'training of Dropout was True and is False now'
    """

    __slots__ = (
        *("_observed", "_containers", "_keys", "_values", "_counted", "_counts", "_steps"),
        *("_copies", "_read", "_written", "_states", "options", "__weakref__"),
    )

    def __init__(self, observed: Observations = _NOTHING, options: Options = NO_OPTIONS) -> None:
        self._observed = observed = observed.without(options)
        self.options = options
        facts = [*observed.facts, *filter(_is_in_dict, observed.read)]
        self._read = list(filterfalse(_is_in_dict, observed.read))
        self._written = list(map(itemgetter(0), observed.copied))
        self._states = list(map(itemgetter(1), observed.copied))
        self._containers = [fact.container for fact in facts]
        self._keys = [fact.key for fact in facts]
        self._values = [fact.value for fact in facts]
        self._counted = [count.container for count in observed.counts]
        self._counts = [count.number for count in observed.counts]
        self._steps = [now for now, _ in observed.stepped], [
            tensor for _, then in observed.stepped for tensor in then
        ]
        self._copies = observed.copies

    def of_options(self) -> Assumptions:
        """The same about optimizers, their options that are tensors now, and numbers and texts that
        the function reads: not about what a plan that was sent has copies of.

        >>> sgd = torch.optim.SGD([torch.ones(1)], lr=0.1)
        >>> options = Assumptions(observe([sgd])).of_options()
        >>> sgd.param_groups[0]["lr"] = 0.2; options.change()
        'lr of SGD was 0.1 and is 0.2 now'
        """
        observed = self._observed
        facts = list(filter(_is_of_options, observed.facts))
        counts = [count for count in observed.counts if count.what in (_GROUPS, "params")]
        read = [fact for fact in observed.read if _is_shown(fact.value)]
        groups = {id(fact.container): fact for fact in facts if "params" in fact.container}
        copies = [
            Fact(fact.owner, place.container, place.key, place.tensor.detach().clone())
            for fact in groups.values()
            for place in tensors_in("", fact.container)
        ]
        seen = Observations(facts, counts, observed.stepped, copies, read)
        return Assumptions(seen, self.options)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was observed."""
        return not (self._keys or self._read or self._written)

    @property
    def copied(self) -> Sequence[tuple[torch.Tensor, Any]]:
        """The tensors of which the program has a copy; see :class:`Observations`."""
        return self._observed.copied

    @property
    def is_certain(self) -> bool:
        """Whether nothing can change of what was observed: there is nothing, and no option.

        >>> Assumptions().is_certain
        True
        """
        return self.is_empty and not self.options.all

    def holds(self) -> bool:
        """Whether everything is as it was observed."""
        if self.is_empty:
            return self.options.hold()
        if list(map(len, self._counted)) != self._counts:
            return False
        lists, stepped = self._steps
        if stepped and not all(map(is_, chain.from_iterable(lists), stepped)):
            return False
        now = list(map(dict.get, self._containers, self._keys))
        if not (all(map(is_, now, self._values)) or all(map(_is_equal, now, self._values))):
            return False
        if not all(map(_is_still, self._read)):
            return False
        if list(map(written_state, self._written)) != self._states:
            return False
        return self.options.hold() and all(map(_equals_copy, self._copies))

    def change(self) -> str | None:
        """The first difference, in words; None if everything holds.

        >>> Assumptions().change()
        """
        return next(iter(self._changes()), None)

    def _changes(self) -> Iterable[str]:
        for owner, container, key, value in (*self._observed.facts, *self._observed.read):
            now = value_at(container, key)
            if not _is_equal(now, value):
                yield f"{key} of {owner} {_from_to(value, now)}"
        for owner, key, value, now in self.options.changes():
            yield f"{key} of {owner} {_from_to(value, now)}"
        for fact in self._copies:
            if not _equals_copy(fact):
                now = value_at(fact.container, fact.key)
                yield f"{fact.key} of {fact.owner} {_from_to(fact.value, now)}"
        yield from self._changes_of_lists()

    def _changes_of_lists(self) -> Iterable[str]:
        for owner, what, counted, number in self._observed.counts:
            if len(counted) != number:
                yield f"the number of {what} of {owner} was {number} and is {len(counted)} now"
        for params, then in self._observed.stepped:
            if not all(map(is_, params, then)):
                yield "a parameter of an optimizer was another one"
        for tensor, state in self._observed.copied:
            if written_state(tensor) != state:
                yield f"a tensor of shape {tuple(tensor.shape)} that it uses was written to"


def _is_of_options(fact: Fact) -> bool:
    return "params" in fact.container or (_GROUPS in fact.container and fact.key != "state")


def _is_in_dict(fact: Fact) -> bool:
    return isinstance(fact.container, dict) and fact.key is not LENGTH


def _is_still(fact: Fact) -> bool:
    return _is_equal(value_at(fact.container, fact.key), fact.value)


def _from_to(value: Any, now: Any) -> str:
    if _is_shown(value) and _is_shown(now):
        return f"was {value!r} and is {now!r} now"
    return "is another one now"


def _copied_arrays(facts: Iterable[Fact]) -> Iterator[Fact]:
    """The arrays of numpy among facts, as copies; a recording takes no larger ones."""
    for fact in facts:
        if isinstance(fact.value, np.ndarray) and fact.value.nbytes <= MOST_BYTES:
            yield fact._replace(value=fact.value.copy())


def _equals_copy(fact: Fact) -> bool:
    """Whether an option is still a tensor equal to its copy, or an array."""
    now = value_at(fact.container, fact.key)
    if isinstance(fact.value, np.ndarray):
        return isinstance(now, np.ndarray) and now.tobytes() == fact.value.tobytes()
    return (
        isinstance(now, torch.Tensor)
        and now.device == fact.value.device
        and torch.equal(now, fact.value)
    )


def _is_shown(value: Any) -> bool:
    return is_constant(value) and not isinstance(value, CODE)


def _is_equal(now: Any, value: Any) -> bool:
    """Whether two values are equal; what is not constant must be the same object."""
    if now is value:
        return True
    if type(now) is tuple and type(value) is tuple:
        return len(now) == len(value) and all(map(_is_equal, now, value))
    return (
        type(now) is type(value) and is_constant(value) and is_constant(now) and bool(now == value)
    )
