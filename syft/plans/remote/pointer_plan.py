"""PointerPlan: a plan at another worker, called with pointers, in one message a call.

The caller chooses the ids of the results, so a call returns pointers at once.  It waits for the
worker only where a single operation would: for results that are values, or if the worker is not
queued.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn
from weakref import WeakValueDictionary

import torch

from syft.chain.wrapper import Wrapper, place_of, wrap
from syft.exceptions import LocationMismatch, MalformedMessage, ProgramError, UnsupportedOperation
from syft.ids import new_id
from syft.notebook_html import line
from syft.ops.control import RECORDING
from syft.plans.building.assumptions import Assumptions
from syft.plans.building.interface import Interface
from syft.plans.building.options import Options, fixed_options
from syft.plans.building.template import KINDS, TENSOR, plain_number
from syft.plans.building.state import Counted
from syft.plans.plan import Plan, replaying_plan
from syft.plans.remote.interface_codec import unpack_interface
from syft.plans.remote.plan_call import PlanCall
from syft.plans.remote.stored_plan import StoredPlan
from syft.program.program import Slot
from syft.program.recording.environment.source_line import add_recorded_line
from syft.tensors.pointer import PointerTensor, make_pointer
from syft.workers.client.answers import summary_in, values_in
from syft.workers.client.connection import STORED, Connection, Pending
from syft.workers.client.operands import is_small_index
from syft.workers.client.remote_reference import RemoteReference
from syft.workers.client.transport import Location
from syft.workers.labels.memory_labels import travelling_guard_of
from syft.workers.wire.definitions import InputKind
from syft.workers.wire.messages import Annotate, Describe, Duplicate, Fetch, Move

SENT_OPTIONS: WeakValueDictionary[int, Assumptions] = WeakValueDictionary()
"""The options with which plans were sent from this process, by the ids of the plans.

Every pointer made here to such a plan has them, also one that a search finds.  They live as long
as one of these pointers."""

_MOVE_INSTEAD = "pp.copy().move(worker) puts a copy there, pp.move(worker) the plan itself"


class PointerPlan(RemoteReference):
    """Stands for plan ``id_at_location`` at another worker; calling it runs the plan there.

    The remote plan dies with its pointer, unless ``garbage_collect_data`` is false.

    >>> @sy.func2plan(args_shape=[(2,)])
    ... def double(x):
    ...     return x + x
    >>> pointer = double.send(bob)
    >>> pointer
    [PointerPlan | me:... -> bob:...]
    >>> pointer(torch.tensor([1.0, 2.0]).send(bob)).get()
    tensor([2., 4.])

    With ``out=`` the results are written into existing tensors at the worker, as torch does it,
    unless ``out`` is a parameter of the plan itself.

    >>> total = torch.zeros(2).send(bob)
    >>> pointer(torch.ones(2).send(bob), out=total) is total, total.get()
    (True, tensor([2., 2.]))

    Arguments are pointers to its worker.  Of those that are here, numbers travel, and public
    tensors of integers or bools, such as indices, of at most a megabyte.
    """

    def __init__(
        self,
        connection: Connection,
        id_at_location: int,
        interface: Interface,
        garbage_collect_data: bool = True,
    ) -> None:
        self.garbage_collect_data = garbage_collect_data
        self.connection = connection
        self.id_at_location = id_at_location
        self.interface = interface
        self._accepted: set[tuple[type, ...]] = set()  # as in BuiltPlan, of what travels by itself
        self._waits = any(kind is not TENSOR for kind in interface.results)
        self._key = ("plan", id_at_location)
        self.lines: Sequence[str] = ()
        """Where each action was recorded, if that was here; errors of a call name the line."""
        known = SENT_OPTIONS.get(id_at_location)
        self._may_change = known is not None and not known.is_certain
        self.options = known or Assumptions(options=fixed_options(interface.options))
        """The options of the optimizers here, which a call sends if they are numbers."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}: a pointer stands for one "
            "plan. A method that is a plan is sent by itself: net.method.send(worker)",
            name=name,
            obj=self,
        )

    def __repr__(self) -> str:
        return f"[PointerPlan | {self.owner.id}:{self.id} -> {self.place()}]"

    def _repr_html_(self) -> str:
        """What a notebook shows: what is known here of the plan, without asking."""
        interface = self.interface
        takes = f"takes {', '.join(interface.signature.parameters)}"
        facts = f"plan {self.name}", takes, interface.state_shown()
        return line(self.location.id, *facts, title=repr(self), before="→ ")

    def place(self) -> str:
        """``bob:2``: the worker that holds the plan, and its id there.

        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
        >>> plan.send(bob).place()
        'bob:...'
        """
        return f"{self.location.id}:{self.id_at_location}"

    # ------------------------------------------------------------------------------------- calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        interface, connection = self.interface, self.connection
        if RECORDING.get() is not None:
            connection.requests.check_not_recording(f"a call of plan {self.name!r} at")
        if self._may_change and not self.options.holds():
            raise self._outdated()
        if "out" in kwargs and not interface.takes("out"):
            out = kwargs.pop("out")
            if out is not None:
                return self._write_to(out, args, kwargs)
        if kwargs or tuple(map(type, args)) not in self._accepted:
            args = self._with_indices_sent(self._bound(args, kwargs))  # they live until it has gone
        inputs = self._operands(args)
        results = len(interface.results)
        try:
            first, value = connection.operations.run(
                self._key, self._definition, inputs, results, self._waits
            )
        except Exception as error:
            add_recorded_line(error, self.lines)
            raise
        if value is STORED and type(interface.outputs) is Slot:
            pointer: Any = make_pointer(connection, first)
            pointer.child.may_be_argument = True
            return pointer
        return interface.nested_results(results_of(connection, first, value, results))

    def _outdated(self) -> ProgramError:
        return ProgramError(
            f"Plan {self.name!r}: {self.options.change()}, and its copy at {self.location.id!r} "
            "is the recording of what was when it was sent: send it again"
        )

    def _with_indices_sent(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs of a call with pointers in the place of small public tensors of integers or
        bools, which are sent."""
        return tuple([_sent_index(self.connection, arg) for arg in args])

    def _operands(self, args: Sequence[Any]) -> list[Any]:
        """The inputs of a call as they are sent: ids, numbers, and the options as they are now."""
        connection, interface = self.connection, self.interface
        operands: list[Any] = []
        for arg, kind in zip(args, interface.kinds):
            if kind is not TENSOR:
                operands.append(plain_number(arg))
                continue
            link = arg.child if type(arg) is Wrapper else None
            if type(link) is PointerTensor and link.connection is connection and not link.depth:
                operands.append(link.id_at_location)  # nearly always
            else:
                operands.append(_reference(connection, interface.name, arg))
        operands += self.options.options.numbers
        return operands

    def _write_to(self, out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the plan, write its results into the tensors in ``out``, and return ``out``.

        Raises :class:`~syft.exceptions.WrongArguments` unless ``out`` is nested as the results are.
        """
        interface, connection = self.interface, self.connection
        args = self._with_indices_sent(self._bound(args, kwargs))
        inputs = self._operands(args)
        targets = interface.targets(out)
        inputs += [_reference(connection, interface.name, target) for target in targets]
        key = (*self._key, "out")
        try:
            _, value = connection.operations.run(key, self._definition_with_out, inputs, 0)
        except Exception as error:
            add_recorded_line(error, self.lines)
            raise
        if type(value) is Pending:
            for target in targets:
                target.child.pending = value
        return out

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The inputs in the arguments of a call."""
        if not kwargs and self.interface.fits(args):
            if _SENT_BY_ID.issuperset(map(type, args)):
                self._accepted.add(tuple(map(type, args)))
            return args
        return tuple(self.interface.bind(args, kwargs))

    def _definition(self) -> PlanCall:
        kinds = [_INPUT_KINDS[kind] for kind in self.interface.kinds]
        kinds += [InputKind.NUMBER] * len(self.interface.options)
        return PlanCall(self.id_at_location, tuple(kinds))

    def _definition_with_out(self) -> PlanCall:
        targets = len(self.interface.results)
        kinds = [*self._definition().kinds, *[InputKind.REFERENCE] * targets]
        return PlanCall(self.id_at_location, tuple(kinds), targets)

    def _definition_of_state(self) -> PlanCall:
        return PlanCall(self.id_at_location, None)

    # ------------------------------------------------------------------------------------- ends

    @property
    def name(self) -> str:
        """The name of the plan: that of its function, or of its class."""
        return self.interface.name

    @property
    def is_built(self) -> bool:
        """True: only built plans are sent."""
        return True

    @property
    def tags(self) -> set[str]:
        """The tags of the plan, asked for at each call."""
        return set(summary_in(self.connection.ask(Describe, self.id_at_location))[0])

    @property
    def description(self) -> str | None:
        """The description of the plan, asked for at each call."""
        text: str | None = summary_in(self.connection.ask(Describe, self.id_at_location))[1]
        return text

    def tag(self, *tags: str) -> PointerPlan:
        """Add tags to the plan, by which ``search`` finds it; returns the pointer.

        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
        >>> pointer = plan.send(bob).tag("#double")
        >>> bob.search("#double")
        [[PointerPlan | me:... -> bob:...]]
        """
        self.connection.ask(Annotate, self.id_at_location, tags, None)
        return self

    def describe(self, description: str) -> PointerPlan:
        """Set the description of the plan; returns the pointer.

        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
        >>> plan.send(bob).describe("twice as much").description
        'twice as much'
        """
        self.connection.ask(Annotate, self.id_at_location, (), description)
        return self

    # ----------------------------------------------------------------------------- the whole plan

    def get(self, user: str | None = None) -> Plan:
        """Bring the plan here, with its state as it is there, and remove it there.

        The plan that comes only replays; the Python function was never sent.  ``user`` is checked
        against the guards of private state.

        Raises :class:`~syft.exceptions.PermissionDenied`,
        :class:`~syft.exceptions.ObjectNotFound`.

        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
        >>> back = plan.send(bob).get()
        >>> back(torch.ones(2)), bob.objects_count()
        (tensor([2., 2.]), 0)
        """
        stored = self.connection.ask(Fetch, self.id_at_location, user=user)
        if not isinstance(stored, StoredPlan):
            raise MalformedMessage("$.value", "a plan", type(stored).__name__)
        self.garbage_collect_data = False
        return self.make_plan(stored, self.options.options)

    @staticmethod
    def make_plan(stored: StoredPlan, options: Options | None = None) -> Plan:
        """A plan of what a worker handed over: it owns the state that came, and only replays.

        It goes on with ``options`` of optimizers here, if it has the same.

        >>> from syft.plans.remote.plan_sending import stored_plan
        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
        >>> PointerPlan.make_plan(stored_plan(plan._record, plan._record.built))(torch.ones(2))
        tensor([2., 2.])
        """
        names = [name for name, _ in stored.blueprint.interface.options]
        if options is not None and names != [name for name, _ in options.named()]:
            options = None
        plan = replaying_plan(stored.blueprint, stored.state, options)
        plan._record.tags, plan._record.description = stored.tags, stored.description
        return plan

    def copy(self) -> PointerPlan:
        """A copy of the plan, with state of its own, at the same worker, and a pointer to it.

        >>> pointer = sy.func2plan(args_shape=[(2,)])(lambda x: x + x).send(bob)
        >>> duplicate = pointer.copy(); bob
        <VirtualWorker id:bob #objects:2>
        """
        out = new_id()
        self.connection.ask(Duplicate, self.id_at_location, out)
        SENT_OPTIONS[out] = self.options
        return PointerPlan(self.connection, out, self.interface)

    def move(self, location: Location | str, user: str | None = None) -> Any:
        """Move the plan directly to another worker; returns a pointer to it there.

        A move to the local worker returns the plan, as :meth:`get` does.

        >>> pointer = sy.func2plan(args_shape=[(2,)])(lambda x: x + x).send(alice)
        >>> moved = pointer.move(bob)
        >>> moved.location, alice.objects_count()
        (<VirtualWorker id:bob #objects:1>, 0)
        """
        destination = self.owner.get_worker(location)
        if destination is self.location:
            return self
        if destination is self.owner:
            return self.get(user)
        self.connection.ask(Move, self.id_at_location, destination.id, user=user)
        collects, self.garbage_collect_data = self.garbage_collect_data, False
        connection = self.owner.connection_to(destination)
        return PointerPlan(connection, self.id_at_location, self.interface, collects)

    def send(self, *locations: Any) -> None:
        """Refused: there are no pointers to pointers to plans.

        Raises :class:`~syft.exceptions.UnsupportedOperation`.

        >>> plan = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
        >>> plan.send(bob).send("me")
        Traceback (most recent call last):
        ...
        syft.exceptions.UnsupportedOperation: ...
        """
        raise UnsupportedOperation("send", "PointerPlan", _MOVE_INSTEAD)

    # -------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """Pointers to the state at the worker, by name; they share memory with the plan's.

        >>> plan = sy.func2plan(args_shape=[(2,)], state=[torch.ones(2)])(lambda x, state: x)
        >>> plan.send(bob).state_dict()
        {'state.0': (Wrapper)>[PointerTensor | me:... -> bob:...]}
        """
        names = self.interface.state
        if not names:
            return {}
        key = (*self._key, "state")
        first, value = self.connection.operations.run(
            key, self._definition_of_state, [], len(names)
        )
        pointers = results_of(self.connection, first, value, len(names))
        return dict(zip(names, pointers, strict=True))

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """Pointers to the parameters at the worker, with their names.

        >>> model = torch.nn.Linear(2, 1)
        >>> pointer = sy.func2plan(args_shape=[(1, 2)])(lambda x: model(x)).send(bob)
        >>> [(name, parameter.location.id) for name, parameter in pointer.named_parameters()]
        [('weight', 'bob'), ('bias', 'bob')]
        """
        are_parameters = self.interface.parameters
        for item, is_parameter in zip(self.state_dict().items(), are_parameters, strict=True):
            if is_parameter:
                yield item

    def parameters(self) -> Counted[Any]:
        """Pointers to the parameters at the worker, with a length; they share memory with the
        plan's.

        >>> model = torch.nn.Linear(2, 1)
        >>> pointer = sy.func2plan(args_shape=[(1, 2)])(lambda x: model(x)).send(bob)
        >>> [parameter.shape for parameter in pointer.parameters()]
        [torch.Size([1, 2]), torch.Size([1])]
        """
        return Counted(pointer for _, pointer in self.named_parameters())


def results_of(connection: Connection, first: int, value: Any, count: int) -> Sequence[Any]:
    """The results of a run: the values that came back, or pointers to consecutive ids.

    The handles of the pointers wait for a run that has not finished.
    """
    if value is not STORED and type(value) is not Pending:
        return values_in(value, count)
    links = [PointerTensor(connection, first + index) for index in range(count)]
    for link in links:
        link.may_be_argument = True
        if type(value) is Pending:
            link.pending = value
    return list(map(wrap, links))


def _sent_index(connection: Connection, value: Any) -> Any:
    """A pointer to a copy at the worker of what travels by itself; any other value as it is."""
    if type(value) is Wrapper or not isinstance(value, torch.Tensor):
        return value
    if not is_small_index(value) or travelling_guard_of(value) is not None:
        return value
    return make_pointer(connection, connection.put(value, None, None))


def _reference(connection: Connection, plan: str, value: Any) -> int:
    """The id by which the worker knows an argument."""
    if type(value) is Wrapper:
        link = value.child
        if type(link) is PointerTensor and link.connection is connection and not link.depth:
            return link.id_at_location
        place = place_of(value)
        if place == connection.location.id:
            if type(link) is PointerTensor and not link.depth:  # another user's
                places = (str(connection.location), str(link.location))
                instead = "send the plan through the worker that its arguments were found through"
                raise LocationMismatch(f"plan {plan}", places, instead)
            instead = "an argument of a plan is a whole object there; compute with it first"
            raise UnsupportedOperation(f"plan {plan}", "pointer into a chain", instead)
    else:
        place = connection.owner.id
    raise LocationMismatch(f"plan {plan}", (connection.location.id, place))


_SENT_BY_ID = frozenset((Wrapper, int, float, bool, type(None)))
_INPUT_KINDS = {kind: InputKind.REFERENCE if kind is TENSOR else InputKind.NUMBER for kind in KINDS}


@Connection.maker("plan")
def make_plan_pointer(
    connection: Connection, id: int, garbage_collect_data: bool = True, summary: Any = None
) -> PointerPlan:
    """A pointer to a plan that a search found."""
    return PointerPlan(connection, id, unpack_interface(summary[3]), garbage_collect_data)
