"""What every kind of plan can do: be built, called, read, sent and found.

A class whose instances are plans (:class:`~syft.plans.plan.Plan`) and a single method of it
(:func:`~syft.plans.method_plan.method2plan`) differ in what they are recorded from and in where
they keep the recording; everything else is here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from syft.exceptions import (
    HookError,
    NotBuilt,
    NotSendable,
    PermissionDenied,
    ProgramError,
    UnsupportedOperation,
)
from syft.ids import new_id
from syft.plans.building.build import Built, Recipe, build, copied
from syft.plans.exportable import Exportable
from syft.plans.remote.multi_pointer_plan import MultiPointerPlan
from syft.plans.remote.pointer_plan import PointerPlan
from syft.plans.building.input_properties import check_fixed
from syft.plans.remote.sendable import check_program, check_state
from syft.plans.remote.stored_plan import StoredPlan
from syft.program.code import code_of
from syft.ops.control import RECORDING
from syft.program.program import Action, Program
from syft.workers.core.permissions import travelling_guard_of
from syft.workers.client.transport import Location
from syft.workers.shells.virtual import VirtualWorker

_HERE = "a plan computes where its data is: "
_INSTEAD = "call it with such tensors here (its operations run one by one), or send() it"


class Record:
    """What is known of a plan, apart from what it is recorded from."""

    __slots__ = ("id", "tags", "description", "built", "methods", "number")

    def __init__(self, id: int | str | None = None) -> None:
        self.number = new_id()
        self.id: int | str = self.number if id is None else id
        self.tags: set[str] = set()
        self.description: str | None = None
        self.built: Built | None = None
        self.methods: dict[str, Record] = {}


def copied_record(record: Record, recipe: Recipe | None, memo: dict[int, Any]) -> Record:
    """What is known of a copy of a plan: an id of its own, and copies of the state.

    >>> Record("net").tags == copied_record(Record("net"), None, {}).tags
    True
    """
    twin = Record()
    twin.tags, twin.description = set(record.tags), record.description
    if record.built is not None:
        twin.built = copied(record.built, recipe, memo)
    return twin


class Recordable(Exportable):
    """Something that is recorded once, and replayed from then on. Abstract.

    A subclass says what it is recorded from (:meth:`_recipe`) and keeps a :class:`Record`.
    """

    __slots__ = ()

    local_worker: ClassVar[VirtualWorker | None] = None
    """The worker on whose behalf this program speaks, while torch is hooked; the hook sets it."""

    _record: Record

    @abstractmethod
    def _recipe(self) -> Recipe | None:
        """What the plan is recorded from; None for one that only replays."""

    @abstractmethod
    def _kind(self) -> str:
        """What the repr calls it."""

    # ---------------------------------------------------------------------------------- building

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Record the plan on these arguments; returns what the function returned.

        The function is run for its operations, not for what it does: state and random numbers are
        afterwards as before.  The sizes of the arguments do not matter later; bools, strings and
        None among them have decided what was recorded, and are fixed.

        Raises :class:`~syft.exceptions.CannotRecord` for what a recording cannot keep,
        :class:`~syft.exceptions.WrongArguments`, and warns
        (:class:`~syft.exceptions.FrozenPath`) where the function decides by a value.

        >>> import torch, syft as sy
        >>> @sy.func2plan()
        ... def double(x):
        ...     return x + x
        >>> double.build(torch.ones(2)), double.is_built
        (tensor([2., 2.]), True)
        """
        recipe = self._recipe()
        if recipe is None:
            raise ProgramError(f"Plan {self.name!r} came without its function: it only replays.")
        known = self._record
        known.built, result = build(recipe, args, kwargs)
        if known.tags:
            self._offer()
        return result

    @property
    def is_built(self) -> bool:
        """Whether the plan is recorded, for the mode (training or not) and options of now.

        >>> import torch, syft as sy
        >>> sy.func2plan()(lambda x: x + x).is_built
        False
        """
        built = self._record.built
        return built is not None and built.holds()

    def _built(self, action: str) -> Built:
        """What was built, for things as they are now; raises NotBuilt."""
        built = self._last_built(action)
        change = built.change()
        if change is not None:
            raise NotBuilt(action, change)
        return built

    def _last_built(self, action: str) -> Built:
        """What was built last, whatever has changed since; raises NotBuilt."""
        built = self._record.built
        if built is None:
            raise NotBuilt(action)
        return built

    # ------------------------------------------------------------------------------------ calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        built = self._record.built
        if built is not None and built.is_free:  # nearly nothing is to be looked at
            if not kwargs and tuple(map(type, args)) in built.accepted:
                return (built.run or built.lower())(args)
        elif built is None or not built.holds():
            if RECORDING.get() is not None:  # part of another plan: that one records it
                return self._call_function(args, kwargs)
            built = self._build_for(args, kwargs)
        inputs: Sequence[Any] = args
        if kwargs or tuple(map(type, args)) not in built.accepted:
            inputs = built.bind(args, kwargs)
        fixed = built.blueprint.interface.fixed
        if fixed:
            check_fixed(self.name, fixed, inputs, built.blueprint.interface.input_names())
        if built.cells.places:
            inputs = [*inputs, *built.cells.read()]
        return (built.run or built.lower())(inputs)

    def _build_for(self, args: Any, kwargs: Any) -> Built:
        """Build the plan for a call, as things are now."""
        built = self._record.built
        if built is not None and self._recipe() is None:
            raise ProgramError(
                f"Plan {self.name!r}: {built.change()}. It came without its function and only "
                "replays: put that back, or build it where its function is."
            )
        self.build(*args, **kwargs)
        return self._built("called")

    def _call_function(self, args: Any, kwargs: Any) -> Any:
        recipe = self._recipe()
        if recipe is None:
            built = self._record.built
            raise NotBuilt("called", built.change() or "" if built is not None else "")
        if recipe.state is not None:
            kwargs = {**kwargs, "state": recipe.state}
        return recipe.function(*args, **kwargs)

    # ------------------------------------------------------------------------------------ reading

    @property
    def program(self) -> Program:
        """The program that was recorded last; raises :class:`~syft.exceptions.NotBuilt`."""
        return self._last_built("read").program

    @property
    def actions(self) -> tuple[Action, ...]:
        """The recorded actions, in order; none before the plan is built.

        >>> import torch, syft as sy
        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
        >>> [action.name for action in plan.actions]
        ['torch.Tensor.add']
        """
        return self.program.actions if self.is_built else ()

    @property
    def code(self) -> str:
        """The program that was recorded last, as Python source.

        >>> import torch, syft as sy
        >>> @sy.func2plan(args_shape=[(2,)])
        ... def double(x):
        ...     return x + x
        >>> print(double.code)
        def double(x):
            _1 = x.add(x)  # 0: torch.Tensor.add
            return _1
        """
        interface = self._last_built("read").blueprint.interface
        return code_of(self.program, self.name, interface.input_names(), interface.state)

    def __repr__(self) -> str:
        known = self._record
        built = " built" if self.is_built else ""
        code = f"\n{self.code}" if built else ""
        return f"<{self._kind()} {self.name} id:{known.id} owner:{self._owner_name()}{built}>{code}"

    # ------------------------------------------------------------------------------------ sending

    def send(
        self,
        *locations: Location | str,
        garbage_collect_data: bool = True,
        user: str | None = None,
    ) -> Any:
        """Put a copy of the plan at a worker and return a pointer to it; this one stays usable.

        With several ``locations``, a copy goes to each and one pointer stands for all.  The state
        goes along as it is now.  ``user`` says who sends, which matters for private state.

        Raises :class:`~syft.exceptions.NotBuilt`, :class:`~syft.exceptions.PlansNotAllowed` if
        the owner of the worker allows none, :class:`~syft.exceptions.UnknownWorker`,
        :class:`~syft.exceptions.NotSendable`, :class:`~syft.exceptions.PermissionDenied`.

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> alice, bob = (sy.VirtualWorker(hook, id=name) for name in ("alice", "bob"))
        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
        >>> plan.send(alice), plan.send(bob)
        ([PointerPlan | me:... -> alice:...], [PointerPlan | me:... -> bob:...])
        """
        built = self._built("sent to a worker")
        owner = self._owner()
        places = [owner.get_worker(place) for place in locations]  # before anything is sent
        if not places:
            raise NotSendable("a plan to nobody", "name at least one worker: plan.send(bob)")
        stored = self._stored(built)
        check_program(built.blueprint.program)
        check_state(built.cells.names, stored.state, owner.id)
        guard = travelling_guard_of(stored)
        if guard is not None and not guard.admits(user or owner.user):
            raise PermissionDenied("send", owner.id, user or owner.user)
        pointers = []
        for place in places:
            connection, id = owner.connection_to(place), new_id()
            connection.put(stored, id, guard=guard)
            pointer = PointerPlan(connection, id, built.blueprint.interface, garbage_collect_data)
            pointer.lines = built.program.lines
            pointers.append(pointer)
        return pointers[0] if len(pointers) == 1 else MultiPointerPlan(pointers)

    def _stored(self, built: Built) -> StoredPlan:
        known = self._record
        state = built.cells.read()
        return StoredPlan(built.blueprint, state, set(known.tags), known.description)

    def get(self) -> Any:
        """The plan itself: it is here, and stays here when a copy of it is sent.

        >>> import torch, syft as sy
        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
        >>> plan.get() is plan
        True
        """
        return self

    def move(self, *locations: Any) -> Any:
        """Refused: a plan that is here is sent.

        Raises :class:`~syft.exceptions.UnsupportedOperation`.

        >>> import torch, syft as sy
        >>> sy.func2plan()(lambda x: x).move("bob")
        Traceback (most recent call last):
        ...
        syft.exceptions.UnsupportedOperation: ...
        """
        raise UnsupportedOperation("move", "Plan", "plan.send(worker) puts a copy of it there")

    def _cannot_convert(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: what a plan was recorded with cannot be exchanged for another kind of tensor.

        Raises :class:`~syft.exceptions.UnsupportedOperation`.
        """
        raise UnsupportedOperation("converting its state", "Plan", _HERE + _INSTEAD)

    fix_precision = fix_prec = fix_precision_ = fix_prec_ = _cannot_convert
    float_precision = float_prec = float_precision_ = float_prec_ = _cannot_convert
    share = share_ = encrypt = decrypt = _cannot_convert

    # --------------------------------------------------------------------------------- whose it is

    def _owner(self) -> VirtualWorker:
        """The local worker; raises :class:`~syft.exceptions.HookError` if torch is not hooked."""
        owner = Recordable.local_worker
        if owner is None:
            raise HookError("torch is not hooked", "call sy.TorchHook(torch) first")
        return owner

    def _owner_name(self) -> str:
        owner = Recordable.local_worker
        return "nobody" if owner is None else owner.id

    @property
    def id(self) -> int | str:
        """The plan's id at its owner."""
        return self._record.id

    @property
    def owner(self) -> VirtualWorker:
        """The worker that holds the plan: the local one."""
        return self._owner()

    @property
    def location(self) -> None:
        """None: the plan is in this process."""
        return None

    # -------------------------------------------------------------------------------- annotations

    @property
    def tags(self) -> set[str]:
        """The plan's tags."""
        return set(self._record.tags)

    @property
    def description(self) -> str | None:
        """What the plan is, in words."""
        return self._record.description

    def tag(self, *tags: str) -> Any:
        """Add tags, by which the plan can be found with ``search``; returns the plan.

        A sent plan takes them along.  When the local worker is not a mere client
        (``sy.local_worker.is_client_worker = False``), a built plan that is tagged here is put
        into its store, for others to find.

        >>> import torch, syft as sy
        >>> hook = sy.TorchHook(torch)
        >>> bob = sy.VirtualWorker(hook, id="bob")
        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x).tag("#double")
        >>> pointer = plan.send(bob)
        >>> bob.search("#double")
        [[PointerPlan | me:... -> bob:...]]
        """
        _check_text("tag", *tags)
        self._record.tags.update(tags)
        self._offer()
        return self

    def describe(self, description: str) -> Any:
        """Say in words what the plan is; returns the plan.

        >>> import torch, syft as sy
        >>> sy.func2plan()(lambda x: x + x).describe("twice as much").description
        'twice as much'
        """
        _check_text("description", description)
        self._record.description = description
        return self

    def _offer(self) -> None:
        """Put a plan that is built into the local worker's store, for others to find."""
        owner, built = Recordable.local_worker, self._record.built
        if owner is None or owner.is_client_worker or built is None:
            return
        store = owner.core.store
        if self._record.number in store.objects:
            store.take(self._record.number, "the plan was built or tagged again")
        owner.core.hold(self._record.number, self._stored(built))
        store.origins[self._record.number] = None  # it is the owner's: no pointer is its last


def _check_text(what: str, *texts: str) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise NotSendable(f"a {what} of type {type(text).__name__}", f"a {what} is a string")
