"""``@sy.protocol(alice=RoleWorker())``: what several parties do together, recorded once.

A protocol has three forms: a function, a class with a ``forward`` and modules that were sent to
roles, and a chain of plans.  All are built, looked at and deployed alike.
"""

from __future__ import annotations

import copy as copying
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from syft.exceptions import ProtocolError
from syft.hooks.torch_hook import TorchHook
from syft.ids import new_id
from syft.notebook_html import line
from syft.ops.control import RECORDING
from syft.ops.nested import leaves, replace
from syft.plans.building.interface import Outline, example_arguments, signature_of
from syft.program.program import Slot
from syft.protocols.deployment import Deployment
from syft.protocols.lane_drawing import draw
from syft.protocols.promised import (
    PROTOCOL_OF,
    PromisedTensor,
    declared_at,
    input_names,
    inputs_of,
    replayed,
    undeclare,
    workers_of,
)
from syft.protocols.role_building import BuiltProtocol, Recorded, stand_in
from syft.protocols.role_worker import LOCAL, ROLE, RoleWorker, named_in
from syft.protocols.tapes import Role, roles_of
from syft.workers.client.transport import Location
from syft.workers.shells.worker import Worker


@dataclass(slots=True)
class ProtocolRecord:
    """What a protocol has besides its function and its modules."""

    id: int | str
    built: BuiltProtocol | None = None
    roles: list[Role] = field(default_factory=list)
    tags: set[str] = field(default_factory=set)
    description: str | None = None


class Protocol(nn.Module):
    """What several parties do together.

    As a class of your own: modules that were sent to a role lie with it, the others with whoever
    runs the protocol, and ``forward`` is what is done.

    >>> hook, alice = sy.TorchHook(torch), sy.RoleWorker("alice")
    >>> class Net(sy.Protocol):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.first = torch.nn.Linear(2, 3)
    ...         self.second = torch.nn.Linear(3, 1).send(alice)
    ...     def forward(self, x):
    ...         return self.second(self.first(x).send(alice)).get()
    >>> net = Net()
    >>> _ = net.build(torch.ones(1, 2))
    >>> list(net.plans), net.inputs
    (['local', 'alice'], {'local': {'x': 'float32 (1, 2)'}, 'alice': {}})
    """

    __slots__ = ("_record",)  # not in __dict__: a recording refers to that, and would hold itself

    def __new__(cls, *parts: Any) -> Any:
        """Make a chain of plans for ``sy.Protocol([("worker1", plan), …])``, and for
        ``sy.Protocol(worker1, worker2)`` a protocol of what was declared at these workers."""
        if cls is Protocol and parts:
            cls = ChainProtocol if isinstance(parts[0], (list, tuple)) else PromiseProtocol
        return super().__new__(cls)

    def __init__(self, *parts: Any) -> None:
        super().__init__()
        self._record = ProtocolRecord(new_id())

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """The same protocol with copies of its modules, not deployed.

        The parties are the same.  One with modules of its own is built again.
        """
        made = memo[id(self)] = Protocol.__new__(type(self))
        return self._copy_to(made, copying.deepcopy(vars(self), memo))

    def __copy__(self) -> Any:
        """The same protocol with the same modules, not deployed."""
        return self._copy_to(Protocol.__new__(type(self)), vars(self))

    def _copy_to(self, made: Any, attributes: dict[str, Any]) -> Any:
        vars(made).update(attributes)
        record = self._record
        made._record = ProtocolRecord(
            new_id(), tags=set(record.tags), description=record.description
        )
        made._take_over(self)
        return made

    def _take_over(self, original: Any) -> None:
        """Have what a copy shares with its original."""

    def _take_over_recording(self, original: Any) -> None:
        self._record.built, self._record.roles = original._record.built, original._record.roles

    @property
    def name(self) -> str:
        """The name of the protocol: that of its function or of its class."""
        return type(self).__name__

    @property
    def id(self) -> int | str:
        """The id of the protocol here."""
        return self._record.id

    def _recorded(self) -> Recorded:
        """What it is recorded from."""
        functions = [type(self).forward, *_initialisers(type(self))]
        roles = {role.name or name: role for name, role in named_in(functions).items()}
        for part in self.modules():
            role = vars(part).get(ROLE)
            if role is not None and role not in roles.values():
                if role.name is None:
                    raise ProtocolError(
                        f"{type(part).__name__} of {self.name} was sent to a role without a name",
                        'give it one, RoleWorker("alice"), or a variable that forward() uses',
                    )
                roles[role.name] = role
        return Recorded(self.name, self.forward, roles, functions, self)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What is done, where a class of yours says so; otherwise a call is refused.

        Raises :class:`~syft.exceptions.ProtocolError`.
        """
        instead = f"deploy it, and run that: {self.name}.deploy(...).run(...)"
        raise ProtocolError(f"a call of the protocol {self.name!r}", instead)

    # ------------------------------------------------------------------------------- building

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """Record the protocol on these arguments; returns what its function returned.

        Later executions may have arguments of other sizes, as with plans.  Arguments that are
        pointers stand for tensors like those that they point to.

        Raises :class:`~syft.exceptions.ProtocolError`, with the line and the roles, for an
        operation on values of several roles, a role of another protocol and a decision by values,
        :class:`~syft.exceptions.CannotRecord` and :class:`~syft.exceptions.WrongArguments`.
        """
        recording = RECORDING.get()
        if recording is not None:
            recording.refuse(f"the building of protocol {self.name!r}", "build it before")
        args, kwargs = replace((tuple(args), kwargs), stand_in)
        built, result = self._recorded().build(args, kwargs)
        plan, record = built.plan, self._record
        interface = plan.blueprint.interface
        options = [name for name, _ in interface.options]
        kinds = [*map(_described, plan.inputs), *["float"] * len(options)]
        pairs = zip(leaves(plan.program.outputs), leaves(result), strict=True)
        results = [_described(value) for leaf, value in pairs if type(leaf) is Slot]
        record.roles = roles_of(built.cut, [*interface.input_names(), *options], kinds, results)
        record.built = built
        return result

    @property
    def is_built(self) -> bool:
        """Whether it is recorded."""
        return self._record.built is not None

    def _built(self, doing: str) -> BuiltProtocol:
        built = self._record.built
        if built is None:
            instead = f"record it first: {self.name}.build(example arguments)"
            raise ProtocolError(f"{doing} the protocol {self.name!r}, which is not built", instead)
        change = built.plan.change()
        if change is not None:
            raise ProtocolError(f"{doing} the protocol {self.name!r}: {change}", "build it again")
        return built

    # ------------------------------------------------------------------------------ deploying

    def deploy(
        self, *workers: Location, actors: Mapping[str, Location] | None = None, **named: Location
    ) -> Any:
        """Put each role at a worker, with a copy of its state; one message goes to each.

        Workers are given by the names of the roles, or in the order of the roles after ``local``,
        which is here unless it is named.  ``actors`` names, for inputs, the worker from which each
        will come; the others come from here.  A protocol may be deployed several times.

        Raises :class:`~syft.exceptions.ProtocolError` for a role that is unknown, missing or named
        twice, :class:`~syft.exceptions.UnknownWorker`, and
        :class:`~syft.exceptions.PlansNotAllowed` where the owner of a worker allows none.
        """
        built, owner = self._built("a deployment of"), TorchHook.current().local_worker
        places = self._places(workers, named)
        found = {role: owner.get_worker(places.get(role, owner)) for role in built.names}
        known = [name for inputs in self.inputs.values() for name in inputs]
        unknown = [name for name in actors or {} if name not in known]
        if unknown:
            raise ProtocolError(
                f"actors= of {unknown[0]!r}, which is no input of {self.name!r}",
                f"its inputs are {', '.join(known)}",
            )
        givers = {name: owner.get_worker(actor).id for name, actor in (actors or {}).items()}
        return Deployment(self.name, built, self._record.roles, found, givers, owner)

    def _places(
        self, workers: Sequence[Location], named: Mapping[str, Location], every: bool = True
    ) -> dict[str, Location]:
        """The workers by role; raises for a role that needs one and has none, if ``every`` must."""
        names = [role for role in self.plans if role != LOCAL]
        listed = f"the roles of {self.name!r} are {', '.join(names)}"
        if len(workers) > len(names):
            raise ProtocolError(f"{len(workers)} workers for {len(names)} roles", listed)
        places = dict(zip(names, workers, strict=False))
        for name in named:
            if name in places:
                raise ProtocolError(f"two workers for the role {name!r}", "name one")
            if name not in self.plans:
                raise ProtocolError(f"a worker for {name!r}, which is no role", listed)
        places.update(named)
        if every:
            self._check_complete(places)
        return places

    def _check_complete(self, places: Mapping[str, Location]) -> None:
        """Raise unless each role that does anything has a worker."""
        for role in self._record.roles:
            if not (role.is_idle or role.name in places or role.name == LOCAL):
                instead = f"name one: deploy({role.name}=worker)"
                raise ProtocolError(f"no worker for the role {role.name!r}", instead)

    # -------------------------------------------------------------------------------- reading

    @property
    def plans(self) -> dict[str, Role]:
        """What each role does, by its name; none before the protocol is built."""
        return {role.name: role for role in self._record.roles}

    @property
    def code(self) -> str:
        """What all roles do, as Python source with ``value -> role`` where they send."""
        self._built("the code of")
        return "\n\n".join(role.code for role in self._record.roles if not role.is_idle)

    @property
    def inputs(self) -> dict[str, dict[str, str]]:
        """What users give each role, by names, and what each was like when it was built."""
        return {role.name: dict(role.inputs) for role in self._record.roles}

    @property
    def outputs(self) -> dict[str, dict[str, str]]:
        """What stays with each role, by names, and what each was like when it was built."""
        return {role.name: dict(role.outputs) for role in self._record.roles}

    def draw(self) -> str:
        """A drawing as SVG: a lane for each role, with an arrow for each value that is sent."""
        self._built("a drawing of")
        return draw(self.name, [role for role in self._record.roles if not role.is_idle])

    def __repr__(self) -> str:
        head = f"<Protocol {self.name} id:{self.id}{' built' * self.is_built}>"
        lines = [
            f" - {role.name}: takes ({_listed(role.inputs)}), keeps ({_listed(role.outputs)})"
            for role in self._record.roles
        ]
        return "\n".join([head, *lines])

    def _repr_html_(self) -> str:
        """A notebook shows this: its drawing, once it is built."""
        head = line(self.name, "Protocol", "" if self.is_built else "not built")
        return f"{head}<div>{self.draw()}</div>" if self.is_built else head

    def _repr_svg_(self) -> str | None:
        """The drawing, for whoever shows pictures only."""
        return self.draw() if self.is_built else None


class FunctionProtocol(Protocol):
    """A protocol of a function; :func:`protocol` makes it."""

    __slots__ = ("_function", "_roles")

    def __init__(self, function: Callable[..., Any], roles: dict[str, RoleWorker]) -> None:
        super().__init__()
        self._function, self._roles = function, roles

    def _take_over(self, original: Any) -> None:
        self._function, self._roles = original._function, dict(original._roles)
        self._take_over_recording(original)

    @property
    def name(self) -> str:
        """The name of the function."""
        return getattr(self._function, "__name__", type(self._function).__name__)

    def _recorded(self) -> Recorded:
        return Recorded(self.name, self._function, self._roles, [self._function])


class ChainProtocol(Protocol):
    """A chain of plans, each at a worker of its own: ``sy.Protocol([("worker1", plan), …])``.

    The result of each plan goes on to the next worker.

    >>> plan = sy.func2plan(args_shape=[(1,)])(lambda x: x + 1)
    >>> chain = sy.Protocol([("first", plan), ("second", plan)])
    >>> chain.deploy(alice, bob).run(torch.tensor([1.0])).get()
    tensor([3.])
    """

    __slots__ = ("_plans", "_deployed")

    def __init__(self, plans: Sequence[tuple[str, Any]]) -> None:
        super().__init__()
        self._plans, self._deployed = dict(plans), None
        if not plans:
            raise ProtocolError("a chain of no plans", 'name some: [("worker1", plan)]')
        if len(self._plans) != len(plans):
            raise ProtocolError("two plans for one role of a chain", "give each a name of its own")

    def _take_over(self, original: Any) -> None:
        self._plans, self._deployed = dict(original._plans), None
        self._take_over_recording(original)

    @property
    def name(self) -> str:
        """The names of its roles."""
        return "_".join(self._plans)

    def _recorded(self) -> Recorded:
        roles = {name: RoleWorker(name) for name in self._plans}
        plans = tuple(self._plans.items())

        def chain(x: Any) -> Any:
            for name, plan in plans:
                x = plan(x.send(roles[name]))
            return x

        return Recorded(self.name, chain, roles, [])

    def deploy(self, *workers: Location, **settings: Any) -> Any:
        """Put each plan at a worker; returns the protocol, which runs there."""
        if not self.is_built:
            first: Any = next(iter(self._plans.values()))
            self.build(*first._built("deployed in a protocol").examples())
        self._deployed = super().deploy(*workers, **settings)
        return self

    def run(self, *args: Any) -> Any:
        """Run the plans one after the other; returns a pointer to what the last one gives."""
        if self._deployed is None:
            instead = "name the workers first: protocol.deploy(alice, bob)"
            raise ProtocolError(f"a run of {self.name!r}, which is not deployed", instead)
        return self._deployed.run(*args)


class PromiseProtocol(Protocol):
    """A protocol of promises: ``sy.Protocol(worker1, worker2)``, of what was declared there.

    Its roles are called as the workers, which take them unless :meth:`deploy` names others.

    >>> x, y = alice.Promise.FloatTensor(shape=(2,)), bob.Promise.FloatTensor(shape=(2,))
    >>> _ = (x.move(bob) + y).declare_output()
    >>> total = sy.Protocol(alice, bob)
    >>> total.inputs
    {'local': {}, 'alice': {'alice_1': 'float32 (2,)'}, 'bob': {'bob_1': 'float32 (2,)'}}
    >>> total.deploy().run(torch.ones(2), torch.ones(2)).get()
    tensor([2., 2.])
    """

    __slots__ = ("_inputs", "_outputs", "_checks", "_workers")

    def __init__(self, *workers: Any) -> None:
        super().__init__()
        others = [each for each in workers if not isinstance(each, Worker)]
        if others:
            instead = "name workers, at which outputs were declared, or a chain of plans in a list"
            raise ProtocolError(f"a protocol of {others[0]!r}, which is no worker", instead)
        outputs = declared_at(workers)
        try:
            self._of(outputs)
        except Exception as error:
            error.add_note("The outputs stay declared: undeclare_output() takes one back.")
            raise
        undeclare(workers)

    def _take_over(self, original: Any) -> None:
        self._inputs, self._outputs = original._inputs, original._outputs
        self._checks, self._workers = original._checks, original._workers
        self._take_over_recording(original)

    def _of(self, outputs: Sequence[PromisedTensor]) -> None:
        inputs = inputs_of(outputs)
        self._inputs = dict(zip(input_names(inputs), inputs, strict=True))
        self._outputs, self._checks, self._workers = outputs, (), workers_of(outputs)
        self.build(*[one.example for one in inputs])

    @classmethod
    def of(cls, outputs: Sequence[PromisedTensor]) -> PromiseProtocol:
        """The protocol of some promises."""
        made: PromiseProtocol = super().__new__(cls)
        Protocol.__init__(made)
        made._of(outputs)
        return made

    @property
    def name(self) -> str:
        """The names of its workers."""
        return "_".join(self._workers)

    def _recorded(self) -> Recorded:
        names = {name: str(one.worker.id) for name, one in self._inputs.items()}
        roles = {name: RoleWorker(name) for name in self._workers}
        function = replayed([*self._inputs.values()], self._outputs, self._checks)
        positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
        taken = [inspect.Parameter(name, positional) for name in names]
        function.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
        models = [name for name, one in self._inputs.items() if one.is_model]
        return Recorded(self.name, function, roles, [], places=names, models=models)

    def deploy(
        self, *workers: Location, actors: Mapping[str, Location] | None = None, **named: Location
    ) -> Any:
        """Put each role at a worker: at that of its name, unless another one is named."""
        places = {**self._workers, **self._places(workers, named, every=False)}
        return super().deploy(actors=actors, **places)


PROTOCOL_OF.append(PromiseProtocol.of)


class AssignedProtocol(FunctionProtocol):
    """A protocol whose roles are assigned to workers, and which is then called as a function."""

    __slots__ = ("_assigned", "_input_roles", "_deployed")

    def __init__(
        self, function: Callable[..., Any], roles: Sequence[str], args_shape: Mapping[str, Any]
    ) -> None:
        super().__init__(function, {name: RoleWorker(name) for name in roles})
        self._assigned: dict[str, Location] = {}
        self._deployed: Deployment | None = None
        self._check_roles(args_shape, "shapes of inputs for")
        parameters = [name for name in signature_of(function, roles).parameters]
        shapes = [(role, shape) for role, each in args_shape.items() for shape in each]
        self._input_roles = {
            name: role for name, (role, _) in zip(parameters, shapes, strict=False)
        }
        if shapes:
            examples = [example_arguments(self.name, [shape])[0] for _, shape in shapes]
            self.build(*examples)

    def _take_over(self, original: Any) -> None:
        super()._take_over(original)
        self._assigned, self._deployed = dict(original._assigned), None
        self._input_roles = dict(original._input_roles)

    def _check_roles(self, names: Iterable[str], what: str) -> None:
        """Raise for a name that is no role."""
        for name in names:
            if name not in (*self._roles, LOCAL):
                instead = f"its roles are {', '.join(self._roles)}"
                raise ProtocolError(f"{what} {name!r}, which is no role of {self.name!r}", instead)

    def _recorded(self) -> Recorded:
        found = super()._recorded()
        found.places = self._input_roles
        return found

    def assign(self, role: str, worker: Location) -> None:
        """Have a worker take a role."""
        self.assign_roles({role: worker})

    def assign_roles(self, workers: Mapping[str, Location]) -> None:
        """Have workers take roles; raises :class:`~syft.exceptions.ProtocolError` for others."""
        self._check_roles(workers, "a worker for")
        self._assigned.update(workers)
        self._deployed = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.is_built:
            self.build(*args, **kwargs)
        if self._deployed is None:
            places: dict[str, Any] = dict(self._assigned)
            self._deployed = self.deploy(**places)
        return self._deployed.run(*args, **kwargs)


def func2protocol(
    roles: Sequence[str] = (), args_shape: Mapping[str, Any] | None = None
) -> Callable[[Callable[..., Any]], AssignedProtocol]:
    """A protocol of a function with these roles, which workers are assigned to; then it is called.

    ``args_shape`` has the shapes of the inputs that each role gives, by roles; the parameters of
    the function that are no roles are these inputs, in this order.

    >>> @sy.func2protocol(roles=["first", "second"], args_shape={"first": [(2,)]})
    ... def foo(first, second, x):
    ...     return (x + 1).move(second) * 2
    >>> foo.assign_roles({"first": alice, "second": bob})
    >>> foo(torch.ones(2)).get()
    tensor([4., 4.])
    """
    if isinstance(roles, str):
        raise ProtocolError(f"roles={roles!r}", f"name them in a list: roles=[{roles!r}]")
    return lambda function: AssignedProtocol(function, roles, args_shape or {})


def protocol(**roles: RoleWorker) -> Callable[[Callable[..., Any]], FunctionProtocol]:
    """A protocol of a function, in which these names are roles; ``local`` is whoever runs it.

    The function sends tensors to roles as to workers: ``send``, ``move``, ``get``.  The roles are
    its parameters of these names, or stand in variables of these names while it is recorded.
    Raises :class:`~syft.exceptions.ProtocolError` for what is no role.

    >>> @sy.protocol(alice=sy.RoleWorker())
    ... def foo(x):
    ...     y = x - 1
    ...     return y.send(alice).abs()
    >>> _ = foo.build(torch.tensor([-1.0]))
    >>> print(foo.code)
    def local(x):
        _1 = x.sub(1)  # 0: torch.Tensor.sub
        _1 -> alice  # 1
    <BLANKLINE>
    def alice(from_local):
        _1 = from_local.abs()  # 0: torch.Tensor.abs
        return _1
    """
    for name, role in roles.items():
        if not isinstance(role, RoleWorker):
            raise ProtocolError(
                f"{name}={role!r} in sy.protocol()", f"a role is a RoleWorker: {name}=RoleWorker()"
            )

    def made(function: Callable[..., Any]) -> FunctionProtocol:
        try:
            inspect.signature(function)
        except (TypeError, ValueError):
            what = f"sy.protocol() of {function!r}, whose arguments Python does not know"
            raise ProtocolError(what, "write a function that calls it") from None
        return FunctionProtocol(function, roles)

    return made


def _initialisers(kind: type) -> Sequence[Callable[..., Any]]:
    """The ``__init__`` of a class and of those above it, up to :class:`Protocol`."""
    above = kind.__mro__[: kind.__mro__.index(Protocol)]
    return [vars(each)["__init__"] for each in above if "__init__" in vars(each)]


def _described(value: Any) -> str:
    """What an input or a result was like: dtype and shape, or the class of a number."""
    if isinstance(value, (torch.Tensor, Outline)):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    return type(value).__name__


def _listed(values: dict[str, str]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in values.items())
