"""Sending plans: a copy goes to each worker, if it would do there what the plan does here.

So the state of a plan that is sent must be whole tensors in this process, which share no memory and
have no Python functions of the user's (hooks); and its random numbers must come from torch's own
generator, because a worker would have another one.

MultiPointerPlan: pointers to copies of one plan, one at each of several workers.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from syft.chain.wrapper import Wrapper, place_of
from syft.exceptions import LocationMismatch, NotALeaf, NotSendable, PermissionDenied
from syft.ids import new_id
from syft.ops.nested import every_tensor, leaves, replace
from syft.plans.building.build import BuiltPlan
from syft.plans.plan_record import PlanRecord, PlanSender
from syft.plans.remote.pointer_plan import SENT_OPTIONS, PointerPlan
from syft.plans.remote.stored_plan import StoredPlan
from syft.program.program import Program
from syft.tensors.multi_pointer import MultiPointerTensor, combine_results
from syft.tensors.pointer import PointerTensor
from syft.workers.client.transport import Location, Owner
from syft.workers.labels.memory_labels import travelling_guard_of
from syft.workers.shells.virtual import VirtualWorker

_REMOVE_HOOKS = "a hook is a Python function, which cannot travel: remove it"
_USE_TORCHS_GENERATOR = (
    "at a worker it would draw other numbers: let it draw from torch's own generator"
)
_TAKE_VIEW_INSIDE = (
    "at a worker they would be two tensors: put one of them in the state, and take the view inside "
    "the function"
)


class LocalPlanSender(PlanSender):
    """Sends plans over the connections of a worker in this process.

    >>> sender = LocalPlanSender(sy.VirtualWorker(id="me"))
    >>> sender.worker
    <VirtualWorker id:me #objects:0>
    """

    def send(
        self,
        record: PlanRecord,
        built: BuiltPlan,
        locations: Sequence[VirtualWorker | str],
        garbage_collect_data: bool,
        user: str | None,
        allow: tuple[str, ...] = (),
    ) -> PointerPlan | MultiPointerPlan:
        """Put a copy of the plan at each location; returns the pointer to it, or to all of them.

        The users ``allow`` find it too.  Raises :class:`~syft.exceptions.NotSendable`,
        :class:`~syft.exceptions.UnknownWorker`, :class:`~syft.exceptions.PermissionDenied`, and
        what :func:`check_state` raises.
        """
        owner = self.worker
        workers = [owner.get_worker(location) for location in locations]  # before anything is sent
        if not workers:
            raise NotSendable("a plan to nobody", "name at least one worker: plan.send(bob)")
        stored = stored_plan(record, built)
        check_program(built.blueprint.program)
        check_state(built.state.names, stored.state, owner.id)
        guard = travelling_guard_of(stored)
        for asking in [user or worker.caller_for(owner).user for worker in workers]:
            if guard is not None and not guard.admits(asking):
                raise PermissionDenied("send", owner.id, asking)
        pointers, options = [], built.assumptions.of_options()
        for worker in workers:
            connection, id = owner.connection_to(worker), new_id()
            connection.put(stored, id, guard=guard)
            connection.show_to(id, allow)
            SENT_OPTIONS[id] = options
            pointer = PointerPlan(connection, id, stored.blueprint.interface, garbage_collect_data)
            pointer.lines = built.program.lines
            pointers.append(pointer)
        return pointers[0] if len(pointers) == 1 else MultiPointerPlan(pointers)

    def offer(self, record: PlanRecord, built: BuiltPlan) -> None:
        """Put the plan into the worker's own store, unless the worker is a mere client."""
        owner = self.worker
        if owner.is_client_worker:
            return
        store = owner.core.store
        if record.number in store:
            store.take(record.number, "the plan was built or tagged again")
        owner.core.hold(record.number, stored_plan(record, built))
        owner.core.own(record.number)


def stored_plan(record: PlanRecord, built: BuiltPlan) -> StoredPlan:
    """A plan as a worker stores it, with the state as it is now.

    >>> plan = sy.func2plan(args_shape=[(2,)])(torch.abs).tag("#abs")
    >>> stored_plan(plan._record, plan._record.built).tags
    {'#abs'}
    """
    state, tags = built.state.read(), set(record.tags)
    return StoredPlan(built.present(), state, tags, record.description, str(record.id))


# ---------------------------------------------------------------------------------------- checks


def check_program(program: Program) -> None:
    """Refuse a program that draws from a generator of the user's.

    Raises :class:`~syft.exceptions.NotSendable`.

    >>> check_program(sy.func2plan(args_shape=[(2,)])(torch.rand_like).program)
    """
    for action in program.actions:
        for leaf in leaves((action.args, list(action.kwargs.values()))):
            if isinstance(leaf, torch.Generator):
                what = f"a plan that draws from a torch.Generator ({action.name})"
                raise NotSendable(what, _USE_TORCHS_GENERATOR)
            if isinstance(leaf, Program):
                check_program(leaf)


def check_state(names: Sequence[str], state: Sequence[torch.Tensor], owner: str) -> None:
    """Refuse state that would not be the same at a worker.

    Raises :class:`~syft.exceptions.LocationMismatch` for tensors that are not here,
    :class:`~syft.exceptions.NotALeaf` for results with a graph, and
    :class:`~syft.exceptions.NotSendable` for tensors that share memory or have hooks.

    >>> x = torch.ones(4)
    >>> check_state(["left", "right"], [x[:2], x[2:]], "me")
    >>> check_state(["all", "right"], [x, x[2:]], "me")
    Traceback (most recent call last):
    ...
    syft.exceptions.NotSendable: Cannot send a plan whose state 'all' and 'right' share memory: at \
a worker they would be two tensors: put one of them in the state, and take the view inside the \
function.
    """
    for name, tensor in zip(names, state, strict=True):
        _check_tensor(name, tensor, owner)
    _check_memory(names, state)


def _check_tensor(name: str, tensor: torch.Tensor, owner: str) -> None:
    if type(tensor) is Wrapper:
        raise LocationMismatch(f"the plan's state {name!r}", (owner, place_of(tensor)))
    if tensor.requires_grad and not tensor.is_leaf:
        raise NotALeaf(type(tensor.grad_fn).__name__)
    if tensor._backward_hooks or tensor._post_accumulate_grad_hooks:
        raise NotSendable(f"a plan whose state {name!r} has a backward hook", _REMOVE_HOOKS)


def _check_memory(names: Sequence[str], state: Sequence[torch.Tensor]) -> None:
    """Refuse tensors that share memory; among sorted extents, some neighbours overlap if any do."""
    extents = sorted(
        (*_extent(tensor), name)
        for name, tensor in zip(names, state, strict=True)
        if tensor.layout is torch.strided and tensor.numel()
    )
    for (memory, _, end, one), (same, start, _, other) in itertools.pairwise(extents):
        if memory == same and start < end:
            what = f"a plan whose state {one!r} and {other!r} share memory"
            raise NotSendable(what, _TAKE_VIEW_INSIDE)


def _extent(tensor: torch.Tensor) -> tuple[int, int, int]:
    """The storage of a tensor, and its first byte and the one after its last in it."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    start = int(tensor.storage_offset()) * tensor.itemsize
    return tensor.untyped_storage().data_ptr(), start, start + int(last + 1) * tensor.itemsize


class MultiPointerPlan:
    """Pointers to copies of one plan, one at each worker.

    Called with multi-pointers it runs at every worker; called with pointers to one of them, there.

    >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
    >>> pointer = plan.send(alice, bob)
    >>> pointer
    [PointerPlan | me:...
    ... -> alice:...
    ... -> bob:...
    ]
    >>> pointer(torch.ones(2).send(alice, bob)).get()
    [tensor([2., 2.]), tensor([2., 2.])]
    """

    def __init__(self, pointers: Sequence[PointerPlan]) -> None:
        self.id = new_id()
        self.pointers: dict[str, PointerPlan] = {}
        for pointer in pointers:
            name = pointer.location.id
            if name in self.pointers:
                raise LocationMismatch("one plan for each worker", (name, name))
            self.pointers[name] = pointer

    def __repr__(self) -> str:
        places = "".join(f"\n\t -> {pointer.place()}" for pointer in self.pointers.values())
        return f"[PointerPlan | {self.owner.id}:{self.id}{places}\n]"

    def _repr_html_(self) -> str:
        """What a notebook shows: a line for each copy."""
        return "<br>".join(pointer._repr_html_() for pointer in self.pointers.values())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        several, single = _pointers_in((args, kwargs))
        for copies in several:
            if copies.pointers.keys() != self.pointers.keys():
                raise self._mismatch(copies.place())
        if several:
            return self._call_everywhere(args, kwargs)
        for link in single:
            pointer = self.pointers.get(link.location.id)
            if pointer is not None:
                return pointer(*args, **kwargs)
        tensors = every_tensor(args, kwargs)
        raise self._mismatch(next(map(place_of, tensors), "nowhere"))

    def _call_everywhere(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        results = [
            pointer(*_operands_at(name, args), **_operands_at(name, kwargs))
            for name, pointer in self.pointers.items()
        ]
        out = kwargs.get("out")
        is_parameter = next(iter(self.pointers.values())).interface.takes("out")
        return combine_results(results) if out is None or is_parameter else out

    def _mismatch(self, place: str) -> LocationMismatch:
        return LocationMismatch(f"plan {self.name}", ("+".join(self.pointers), place))

    @property
    def name(self) -> str:
        """The name of the plan."""
        return next(iter(self.pointers.values())).name

    @property
    def owner(self) -> Owner:
        """The worker that holds the pointers."""
        return next(iter(self.pointers.values())).owner

    @property
    def location(self) -> list[Location]:
        """The workers that hold the plan."""
        return [pointer.location for pointer in self.pointers.values()]

    def get(self, user: str | None = None) -> list[Any]:
        """Bring every copy here, each with its own state, and remove it there.

        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
        >>> [back(torch.ones(2)) for back in plan.send(alice, bob).get()]
        [tensor([2., 2.]), tensor([2., 2.])]
        """
        return [pointer.get(user) for pointer in self.pointers.values()]


def _pointers_in(operands: Any) -> tuple[list[MultiPointerTensor], list[PointerTensor]]:
    """The pointers to several workers among the operands of a call, and those to one."""
    links = [leaf.child for leaf in leaves(operands) if type(leaf) is Wrapper]
    several = [link for link in links if isinstance(link, MultiPointerTensor)]
    return several, [link for link in links if isinstance(link, PointerTensor)]


def _operands_at(worker: str, operands: Any) -> Any:
    """The operands of a call as one of the workers has them."""

    def part(leaf: Any) -> Any:
        if type(leaf) is Wrapper and type(leaf.child) is MultiPointerTensor:
            return leaf.child.pointers[worker]
        return leaf

    return replace(operands, part)
