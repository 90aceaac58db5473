"""A step of an optimizer as one call, where what it does to pointers is held back.

Four fifths of what a repeated training step costs the program that issues it is the Python code of
torch's optimizer, which does the same each time.  So what a step has held is kept
(:class:`~syft.workers.client.segment.Segment`), and the next step holds it again without that code,
as long as all is as it was: the optimizer's class is one of those known here, its options, its
parameters and its state are the same, every parameter has a gradient of its kind, and nobody has
registered a hook.  The gradients are read as torch reads them.

What a step moves in Python is a table by class: nothing for SGD, and for Adam and AdamW the count
of steps, from which two numbers follow.  Torch computed them when the step was kept, and they must
be what the formula here gives, to the last bit.  Any other step runs in full.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, Final

import torch
from torch.optim import SGD, Adam, AdamW, Optimizer

from syft.callers import place_of_user
from syft.chain.wrapper import Wrapper
from syft.hooks.ledger import Ledger
from syft.hooks.optimizer_state import StateFollower
from syft.ops.control import RECORDING
from syft.ops.nested import leaves
from syft.ops.table import BY_NAME
from syft.program.program import slots_in
from syft.tensors.pointer import PointerTensor, own_leaf
from syft.torch_private import (
    any_autocast_enabled,
    dispatch_modes,
    function_modes,
    is_tracing,
    step_hooks,
)
from syft.workers.client.batch import Batch
from syft.workers.client.connection import Connection
from syft.workers.client.group import MessageGroup
from syft.workers.client.segment import Mark, Segment

_KINDS: Final = (SGD, Adam, AdamW)
"""The optimizers of which it is known what a step moves in Python; their subclasses may do else."""
_ADDCDIV, _DIV = (BY_NAME[f"torch._foreach_{name}_"] for name in ("addcdiv", "div"))
"""The operations that take the two numbers which follow from the count of steps of Adam."""
_MOST_STEPS: Final = 1 << 24
"""From so many on, a count in float32 does not count any more."""


class _Unusual(Exception):
    """A step that is not kept."""


class WholeSteps:
    """Surrounds the steps of optimizers.

    ``ledger`` undoes it.

    >>> ledger = Ledger()
    >>> WholeSteps(ledger).surround()
    >>> w = torch.ones(2, requires_grad=True)
    >>> w.sum().backward()
    >>> torch.optim.SGD([w], lr=0.5).step()
    >>> w
    tensor([0.5000, 0.5000], requires_grad=True)
    >>> ledger.undo()
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: weakref.WeakKeyDictionary[Optimizer, KnownStep] = weakref.WeakKeyDictionary()

    def surround(self) -> None:
        """Surround them: called once, when a module is sent."""
        for kind in _KINDS:
            if "step" in vars(kind):
                kind([torch.zeros(1)])  # torch puts something around it when the first one is made
                self._ledger.surround(kind, "step", self._around)

    def _around(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def surrounded(self_: Optimizer, *args: Any, **kwargs: Any) -> Any:
            if args or kwargs or type(self_) not in _KINDS or not _is_usual(self_):
                return step(self_, *args, **kwargs)
            known = self._known.get(self_)
            if known is not None and known.hold_again(self_):
                return None
            return self._in_full(self_, step)

        return surrounded

    def _in_full(self, optimizer: Optimizer, step: Callable[..., Any]) -> Any:
        """Have torch take a step, and keep what that held."""
        self._known.pop(optimizer, None)
        try:
            begun = _Begun(optimizer)
        except _Unusual:
            return step(optimizer)
        result = step(optimizer)
        try:
            self._known[optimizer] = KnownStep(optimizer, begun)
        except (_Unusual, KeyError):
            pass
        return result


def _is_usual(optimizer: Any) -> bool:
    """Whether nothing but torch's own code, and what the hook has registered, has part in a step
    that is taken now."""
    first = [one for group in optimizer.param_groups[:1] for one in group["params"][:1]]
    if [*map(type, first)] != [Wrapper] or vars(optimizer).keys() & _SCALED or _modes_differ():
        return False
    return all(
        type(getattr(hook, "__self__", None)) is StateFollower for hook in step_hooks(optimizer)
    )


def _modes_differ() -> bool:
    """Whether a mode of torch is on in which operations are others, or somebody looks at them."""
    if any_autocast_enabled() or torch.get_default_dtype() is not torch.float32:
        return True
    if RECORDING.get() is not None or torch.is_inference_mode_enabled():
        return True
    return bool(function_modes() or dispatch_modes() or is_tracing())


_SCALED: Final = frozenset(("grad_scale", "found_inf"))
"""What a ``GradScaler`` leaves in an optimizer."""


def _links_of(optimizer: Optimizer) -> list[PointerTensor]:
    """The pointers of all parameters, each to a tensor of its own at one worker."""
    links = [own_leaf(one) for group in optimizer.param_groups for one in group["params"]]
    found = [link for link in links if link is not None]
    if len(found) < len(links) or len({link.connection for link in found}) != 1:
        raise _Unusual
    return found


def _open_group(connection: Connection) -> MessageGroup:
    """The group that would hold the operations of a step."""
    group = connection.groups.current
    if group is None or not connection.operations.may_wait(group):
        raise _Unusual
    return group


def _gradients_of(links: Sequence[PointerTensor]) -> list[int]:
    """The ids of the gradients, each of the kind of its leaf; they are read in torch's order."""
    connection = links[0].connection
    ids = []
    for link in links:
        gradient = connection.operations.gradient(link)
        its: Any = None if gradient is None else gradient.child
        own = type(its) is PointerTensor and not its.depth and its.connection is connection
        if not own or not connection.facts.are_alike(its.id_at_location, link.id_at_location):
            raise _Unusual
        ids.append(its.id_at_location)
    return ids


def _batch_of(group: MessageGroup) -> Batch:
    batch = group.batch
    if batch is None or batch.autocast is not None:
        raise _Unusual
    return batch


_STEP: Final = object()
"""Stands in a state for the count of steps, which is here."""


def _state_of(optimizer: Optimizer, links: Sequence[PointerTensor]) -> list[Any]:
    """The state of each parameter: names, and ids of tensors at the worker of the parameters."""
    state: list[Any] = []
    connection = links[0].connection
    for group in optimizer.param_groups:
        for one in group["params"]:
            for name, value in (optimizer.state.get(one) or {}).items():
                state.append((name, _told(name, value, connection)))
            state.append(None)
    return state


def _told(name: str, value: Any, connection: Connection) -> Any:
    """A value of a state: the id of a tensor at a worker, or what stands for the count of steps."""
    link = value.child if type(value) is Wrapper else None
    if type(link) is PointerTensor and not link.depth and link.connection is connection:
        return link.id_at_location
    counts = name == "step" and type(value) is torch.Tensor and value.is_cpu
    if value is not None and not (counts and value.numel() == 1 and value.dtype is torch.float32):
        raise _Unusual
    return None if value is None else _STEP


def _counts_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """The counts of steps that the state of the parameters has."""
    states = [
        optimizer.state.get(one) for group in optimizer.param_groups for one in group["params"]
    ]
    return [state["step"] for state in states if state and "step" in state]


def _options_of(optimizer: Optimizer) -> list[Any]:
    """The options of each group, with their types: 1 is no 1.0, and -0.0 no 0.0."""
    options: list[Any] = []
    for group in optimizer.param_groups:
        for name, value in group.items():
            if name != "params":
                if isinstance(value, tuple):
                    options.append(tuple(map(type, value)))
                options += (name, type(value), value or repr(value))
        options.append(len(group["params"]))
    return options


def _objects_in(optimizer: Optimizer) -> list[Any]:
    """The names and values of the options: where these are the same objects, so are the options."""
    items = [item for group in optimizer.param_groups for item in group.items()]
    return [one for item in items if item[0] != "params" for one in item]


def _counts_in(optimizer: Optimizer) -> list[int]:
    """How many parameters each group has."""
    return [len(group["params"]) for group in optimizer.param_groups]


class _Begun:
    """What a step begins with.  Raises :class:`_Unusual`."""

    __slots__ = ("links", "options", "state", "gradients", "mark", "group")

    def __init__(self, optimizer: Optimizer) -> None:
        self.links = _links_of(optimizer)
        self.options = _options_of(optimizer)
        if any(isinstance(one, torch.Tensor) for one in leaves(self.options)):
            raise _Unusual
        self.state = _state_of(optimizer, self.links)
        connection = self.links[0].connection
        with connection.lock:
            self.group = _open_group(connection)
            self.gradients = _gradients_of(self.links)
            self.mark = Mark(_batch_of(self.group))


class KnownStep:
    """What a step of an optimizer has held, and with what.

    It refers to objects of the worker by their ids, and keeps none of them.
    """

    __slots__ = (
        "connection",
        "counts",
        "flags",
        "given",
        "ids",
        "objects",
        "options",
        "roles",
        "segment",
        "state",
    )

    def __init__(self, optimizer: Optimizer, begun: _Begun) -> None:
        mark = begun.mark
        batch = mark.batch
        self.connection: Connection = begun.links[0].connection
        self.flags = batch.flags
        self.options, self.state = begun.options, begun.state
        self.given = _objects_in(optimizer)
        self.counts = _counts_in(optimizer)
        self.ids = [link.id_at_location for link in begun.links]
        whole = begun.group.batch is batch and begun.group.are_dead(mark.results)
        if not whole or _state_of(optimizer, begun.links) != self.state:
            raise _Unusual  # something was asked meanwhile, or is new in the state
        self.objects = self.ids + [
            told[1] for told in self.state if told is not None and type(told[1]) is int
        ]
        self.segment = Segment(mark, begun.gradients + self.objects)
        self.roles = _roles_in(self.segment) if type(optimizer) is not SGD else []
        if self._numbers(optimizer, counted=0) != self.segment.numbers:
            raise _Unusual

    def hold_again(self, optimizer: Optimizer) -> bool:
        """Hold what a step does, if all is as it was; whether it is."""
        try:
            links = _links_of(optimizer)
            if not self._fits(optimizer, links):
                return False
            with self.connection.lock:
                group = _open_group(self.connection)
                objects = _gradients_of(links) + self.objects
                batch = _batch_of(group)
                numbers = self._numbers(optimizer, counted=1)
                if batch.flags != self.flags:
                    return False
                if not self.segment.hold(batch, objects, numbers, place_of_user()):
                    return False
                group.follow_all(links)
        except _Unusual:
            return False
        for count in _counts_of(optimizer):
            count += 1
        return True

    def _fits(self, optimizer: Optimizer, links: Sequence[PointerTensor]) -> bool:
        """Whether parameters, options and state are what they were."""
        return (
            [link.id_at_location for link in links] == self.ids
            and links[0].connection is self.connection
            and (self._is_given(optimizer) or _options_of(optimizer) == self.options)
            and _state_of(optimizer, links) == self.state
        )

    def _is_given(self, optimizer: Optimizer) -> bool:
        """Whether the options are the same objects, which takes less time than to compare them."""
        given = _objects_in(optimizer)
        same = len(given) == len(self.given) and all(map(is_, given, self.given))
        return same and _counts_in(optimizer) == self.counts

    def _numbers(self, optimizer: Optimizer, counted: int) -> list[float]:
        """The numbers of a step, that many steps after the counts."""
        if not self.roles:
            return self.segment.numbers
        (group,) = optimizer.param_groups[:1]
        (first, second), rate = group["betas"], group["lr"]
        counts = {count.item() for count in _counts_of(optimizer)}
        if len(counts) != 1 or len(optimizer.param_groups) != 1:
            raise _Unusual
        steps = counts.pop() + counted
        if not 0 < steps < _MOST_STEPS:
            raise _Unusual
        by_role = {_ADDCDIV: (rate / (1 - first**steps)) * -1, _DIV: (1 - second**steps) ** 0.5}
        pairs = zip(self.roles, self.segment.numbers, strict=True)
        return [by_role.get(role, number) for role, number in pairs]


def _roles_in(segment: Segment) -> list[int]:
    """Which numbers of a step of Adam follow from the count of steps, by the operation that takes
    them: each of the two has one, for all parameters."""
    roles = [-1] * len(segment.numbers)
    slots = segment.number_slots()
    for one in segment.actions:
        if one.op in (_ADDCDIV, _DIV):
            for slot in slots_in(one.args[-1]):
                roles[slots.index(slot)] = one.op
    if sorted(role for role in roles if role >= 0) != sorted((_ADDCDIV, _DIV)):
        raise _Unusual
    return roles
