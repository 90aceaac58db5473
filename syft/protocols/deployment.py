"""A protocol deployed: each role at a worker, and executions of it.

A deployment has copies of the state of the roles, of its own, which its executions write to.  An
execution may start before its inputs are there: they come later, from here or from the workers that
the deployment names.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import Any, Final

from syft.exceptions import (
    InputRefused,
    LocationMismatch,
    ObjectNotReady,
    ProgramError,
    ProtocolError,
    WrongArguments,
)
from syft.program.program import fill_slots, slots_in
from syft.program.recording.environment.source_line import add_recorded_line
from syft.program.role_program import RoleProgram
from syft.protocols.execution_cost import ExecutionCost, cost_of
from syft.protocols.given_inputs import GivenInputs
from syft.protocols.passing_on import given_directly
from syft.protocols.role_building import BuiltProtocol, is_pointer, speaking_of_protocols
from syft.protocols.tapes import Role
from syft.workers.client.role_executions import RoleExecution, start, store_role
from syft.workers.client.handles import PATIENCE
from syft.workers.client.transport import Location, Owner
from syft.workers.wire.references import Reference

_PAUSE: Final = 5e-4
"""Seconds between two looks at workers of other processes."""
_BRISK_TURNS: Final = 16


class Deployment:
    """A protocol whose roles are at workers.

    >>> @sy.protocol(carol=sy.RoleWorker())
    ... def foo(x):
    ...     return x.send(carol).abs()
    >>> _ = foo.build(torch.tensor([-1.0]))
    >>> deployed = foo.deploy(carol=bob)
    >>> deployed, deployed.run(torch.tensor([-3.0])).get()
    (<Deployment of foo: local at me, carol at bob>, tensor([3.]))
    """

    def __init__(
        self,
        name: str,
        built: BuiltProtocol,
        tapes: Sequence[Role],
        workers: Mapping[str, Any],
        actors: Mapping[str, str],
        owner: Owner,
    ) -> None:
        self.name, self.tapes, self.workers, self._owner = name, list(tapes), dict(workers), owner
        self._built, self._actors = built, dict(actors)
        self._inputs = GivenInputs(name, built)
        self._names = self._inputs.names
        with speaking_of_protocols():
            state = built.plan.state.read()
        self._unseen: list[RoleExecution] = []
        """Runs of which not all roles had ended when their results were returned."""
        here = workers[tapes[0].name].id == owner.id
        self._cut = given_directly(built.cut) if here else built.cut
        """Who does what: what the caller would only send on, it gives to who gets it."""
        self._copied = {
            (rank, place)
            for number in range(len(self._names))
            for rank, place in set(self._cut.takers(number)) - set(built.cut.takers(number))
            if rank
        }
        """The inputs, by rank and place, that are copies of what the caller's role would send."""
        busy = [rank for rank, role in enumerate(self._cut.roles) if not role.is_idle]
        self._rank = {rank: at for at, rank in enumerate(busy)}
        """The roles that have something to do, by their ranks among all."""
        self._taken_by: dict[int, list[tuple[int, int]]] = {}
        """The ranks of the roles that take an input, and its place among theirs, as far as that was
        asked."""
        self._check_apart([tapes[rank].name for rank in busy])
        lines = {rank: owner.connection_to(workers[tapes[rank].name]) for rank in busy}
        self._handles = [
            store_role(
                lines[rank],
                _renumbered(self._cut.roles[rank], self._rank),
                [state[place] for place in self._cut.state[rank]],
            )
            for rank in busy
        ]

    def _check_apart(self, roles: Sequence[str]) -> None:
        """Raise unless all roles that have something to do are at workers of their own."""
        taken: dict[Any, str] = {}
        for role in roles:
            other = taken.setdefault(self.workers[role].id, role)
            if other != role:
                raise ProtocolError(
                    f"the roles {other!r} and {role!r} at one worker, {self.workers[role].id!r}",
                    "deploy each role at another worker",
                )

    def __repr__(self) -> str:
        places = ", ".join(f"{role} at {worker.id}" for role, worker in self.workers.items())
        return f"<Deployment of {self.name}: {places}>"

    # ------------------------------------------------------------------------------ executions

    def start(self, *args: Any, **kwargs: Any) -> Execution:
        """Start an execution with the arguments that there are; others come by :meth:`submit`.

        An argument that is a pointer to the worker that takes it is used where it is.
        Raises :class:`~syft.exceptions.WrongArguments` for an unknown argument or one of another
        kind, :class:`~syft.exceptions.LocationMismatch` for a pointer to another worker.
        """
        with speaking_of_protocols():
            given = self._inputs.some_in(args, kwargs, later=self._actors)
        self._check_options()
        return Execution(self, given)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Execute the protocol; returns what its function returned when it was built.

        What is at another worker is a pointer, and is not waited for; what is here is a tensor.
        A run that gives nothing is waited for.  What has failed in an earlier run is raised.
        Raises :class:`~syft.exceptions.WrongArguments` unless all arguments are there.
        """
        with speaking_of_protocols():
            given = self._inputs.all_in(args, kwargs)
        self._check_options()
        self._raise_unseen()
        execution = Execution(self, given)
        result = execution.result()
        if not self._built.cut.outputs:  # nobody could ask later what became of it
            execution.wait()
        self._unseen.append(execution.running)
        self._raise_unseen()
        return result

    __call__ = run

    def _raise_unseen(self) -> None:
        """Raise what an earlier run raised after its results were returned."""
        if not self._unseen:
            return
        ended: list[RoleExecution] = []
        runs, self._unseen = self._unseen, []
        for running in runs:
            (ended if running.done() else self._unseen).append(running)
        with _Explained(self):
            for running in ended:
                running.wait()

    def submit(self, execution: Execution, by: Location | str | None = None, **inputs: Any) -> None:
        """Give an execution inputs that it has not: ``submit(execution, x=value)``.

        A role stands for the only input that users give it: ``submit(execution, alice=value)``.
        ``by`` is the worker that gives them, if it is not this one.
        Raises :class:`~syft.exceptions.WrongArguments`, also for a pointer, and
        :class:`~syft.exceptions.InputRefused` for an input that is there, that another worker is to
        give, or that comes after the execution has ended.
        """
        giver = self._owner.get_worker(by) if isinstance(by, str) else by
        for name, value in inputs.items():
            execution.submit(name, value, giver)

    def _input(self, name: str) -> str:
        """The name of an input, given its own or that of the role that takes it."""
        if name in self._names:
            return name
        taken = [self._names[at] for tape_at in self._ranks_of(name) for at in self._taken(tape_at)]
        if len(taken) == 1:
            return taken[0]
        inputs = {tape.name: list(tape.inputs) for tape in self.tapes if tape.inputs}
        raise WrongArguments(self.name, f"the inputs of the roles, {inputs}", f"{name!r}")

    def _ranks_of(self, role: str) -> list[int]:
        return [rank for rank, tape in enumerate(self.tapes) if tape.name == role]

    def _taken(self, rank: int) -> list[int]:
        """The arguments of the function that a role takes."""
        return [at for at in self._built.cut.inputs[rank] if at < len(self._names)]

    def _check_options(self) -> None:
        """Raise unless what decided the recording is as it was, such as options of optimizers."""
        assumptions = self._built.plan.assumptions
        if not assumptions.holds():
            raise ProtocolError(
                f"an execution of {self.name!r}: {assumptions.change()}",
                "build the protocol again, and deploy it",
            )

    # --------------------------------------------------------------------------- for executions

    def places_of(self, name: str) -> list[tuple[int, int]]:
        """The roles that take an input, and its place among their inputs."""
        takers = self._takers(self._names.index(name))
        return [(self._rank[rank], place) for rank, place in takers]

    def _takers(self, number: int) -> list[tuple[int, int]]:
        found = self._taken_by.get(number)
        if found is None:
            found = self._taken_by[number] = self._cut.takers(number)
        return found

    def why_refused(self, name: str, by: Location | None) -> str | None:
        """Why an input is not taken from whoever gives it; None if it is."""
        expected = self._actors.get(name, self._owner.id)
        given = self._owner.id if by is None else by.id
        return None if given == expected else f"it is to come from {expected!r}, not {given!r}"

    def submitted(self, name: str, value: Any) -> tuple[str, Any]:
        """The name of an input that comes later, and the value as it is sent."""
        with speaking_of_protocols():
            name = self._input(name)
            if is_pointer(value):
                what = f"a tensor of this program as {name!r} (start() and run() take a pointer)"
                raise WrongArguments(self.name, what, "a pointer")
            return name, self._inputs.checked(name, value)

    def begin(self, given: Mapping[str, Any]) -> RoleExecution:
        """Start an execution with what is given."""
        inputs: dict[tuple[int, int], Any] = {}
        for name, value in given.items():
            for rank, place in self._takers(self._names.index(name)):
                at = 0 if (rank, place) in self._copied else rank
                inputs[self._rank[rank], place] = self._operand(name, at, rank, value)
        options = self._built.plan.assumptions.options.numbers
        for at, number in enumerate(options, len(self._names)):
            for rank, place in self._takers(at):
                inputs[self._rank[rank], place] = number
        actors = {
            place: actor for name, actor in self._actors.items() for place in self.places_of(name)
        }
        return start(self._handles, inputs, {at: actors[at] for at in actors if at not in inputs})

    def _operand(self, name: str, at: int, rank: int, value: Any) -> Any:
        """What is sent to the role of a rank for an argument that is used by the one ``at``: the
        value, or a reference to what is there; of what that one only sends on, a copy."""
        if not is_pointer(value):
            return value
        place, link = self.workers[self.tapes[at].name], value.child
        if link.location is not place:
            raise LocationMismatch(
                f"input {name!r} of {self.name!r}", (str(place.id), str(link.location.id))
            )
        if at != rank:
            return value.detach().get()
        id: int = link.id_at_location  # it is at one worker
        return Reference(id)

    def nested(self, outputs: Callable[[int], Sequence[Any]]) -> Any:
        """What the function returned, with the outputs of the roles in their places."""
        found = [outputs(self._rank[rank])[place] for rank, place in self._cut.outputs]
        pattern = self._built.plan.program.outputs
        slots = [slot.index for slot in slots_in(pattern)]
        return fill_slots(pattern, dict(zip(slots, found, strict=True)))

    def kept_by(self, role: str) -> int | None:
        """Where a role stands among those that have something to do."""
        ranks = self._ranks_of(role)
        return self._rank.get(ranks[0]) if ranks else None

    def explain(self, error: Exception, missing: Collection[tuple[int, int]]) -> None:
        """Add to the error of a role the line of the action that failed, or which inputs it waits
        for."""
        if isinstance(error, ObjectNotReady):
            names = [n for n in self._names if not set(missing).isdisjoint(self.places_of(n))]
            if names:
                error.add_note(f"Missing inputs of {self.name!r}, which submit() gives: {names}.")
        notes = " ".join(getattr(error, "__notes__", ()))
        for role in self._cut.roles:
            if f"role {role.name!r}" in notes:
                add_recorded_line(error, role.program.lines)

    # ------------------------------------------------------------------------------------- cost

    def cost(self, *args: Any, **kwargs: Any) -> ExecutionCost:
        """What an execution on such arguments sends from role to role: messages and bytes.

        It is computed here, on copies of the arguments and of the state that is here now; nothing
        is sent.
        """
        with speaking_of_protocols():
            given = self._inputs.all_in(args, kwargs)
        return cost_of(self._built, given, self.tapes)


def _renumbered(role: RoleProgram, rank: Mapping[int, int]) -> RoleProgram:
    """A role among those that have something to do."""

    def moved(ranks: Sequence[int | None]) -> tuple[int | None, ...]:
        return tuple(None if each is None else rank[each] for each in ranks)

    return dataclasses.replace(role, sources=moved(role.sources), targets=moved(role.targets))


class Execution:
    """One execution of a protocol: what it waits for, and what it gives.

    >>> @sy.protocol(carol=sy.RoleWorker())
    ... def foo(x, y):
    ...     return x.send(carol) + y.send(carol)
    >>> _ = foo.build(torch.ones(1), torch.ones(1))
    >>> deployed = foo.deploy(carol=bob)
    >>> execution = deployed.start(x=torch.ones(1))
    >>> deployed.submit(execution, y=torch.ones(1))
    >>> execution.outputs["carol"].get(), execution.done()
    (tensor([2.]), True)
    """

    def __init__(self, deployment: Deployment, given: Mapping[str, Any]) -> None:
        self._deployment, self._given = deployment, set(given)
        self.running = deployment.begin(given)
        """The execution as the connections have it."""

    def __repr__(self) -> str:
        return f"<Execution of {self._deployment.name}, {repr(self.running).rpartition('; ')[2]}"

    @property
    def id(self) -> int:
        """The number of the execution, which its messages carry."""
        return self.running.number

    def submit(self, name: str, value: Any, by: Location | None = None) -> None:
        """Give an input that is missing; see :meth:`Deployment.submit`."""
        name, value = self._deployment.submitted(name, value)
        places = self._deployment.places_of(name)
        why = self._deployment.why_refused(name, by)
        if name in self._given:
            why = "it was given already"
        if why is not None:
            what = f"input {name!r} of {self._deployment.name!r}"
            takes = next((rank for rank, _ in places), 0)
            raise InputRefused(self.running.parties[takes], what, why)
        for rank, place in places:
            self.running.submit(rank, place, value, by)
        self._given.add(name)

    @property
    def outputs(self) -> Mapping[str, Any]:
        """What stays with each role, by its name: one value, or a tuple of them.

        What is at another worker is a pointer; what is here is waited for.
        """
        return _Outputs(self._deployment, self.running)

    def result(self) -> Any:
        """What the function of the protocol returned: pointers, and tensors of what is here."""
        with _Explained(self._deployment, self.running):
            return self._deployment.nested(self.running.outputs)

    def wait(self, timeout: float | None = None) -> Execution:
        """Wait until each role has run; returns the execution.

        Raises what failed first, with the line where it was written,
        :class:`~syft.exceptions.WorkerTimeout` after so many seconds, and
        :class:`~syft.exceptions.ObjectNotReady` where nothing under way can end it.
        """
        with _Explained(self._deployment, self.running):
            self.running.wait(timeout)
        return self

    def done(self) -> bool:
        """Whether each role has run, or failed; never waits."""
        return self.running.done()

    def cancel(self, reason: str = "it is not wanted any more") -> None:
        """End it at every worker, and free what it has there."""
        self.running.cancel(reason)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait as a coroutine does; the value is :meth:`result`."""
        return self._awaited().__await__()

    async def _awaited(self) -> Any:
        idle = 0
        while not self.running.done() and idle < PATIENCE:  # another coroutine may bring an input
            idle = 0 if self.running.progress() else idle + 1
            await asyncio.sleep(_PAUSE if idle > _BRISK_TURNS else 0)
        return self.wait().result()


class _Outputs(Mapping[str, Any]):
    """The outputs of an execution, by the names of roles."""

    def __init__(self, deployment: Deployment, running: RoleExecution) -> None:
        self._deployment, self.running = deployment, running

    def __getitem__(self, role: str) -> Any:
        rank = self._deployment.kept_by(role)
        if rank is None:
            if role not in self._deployment.workers:
                raise KeyError(role)
            return ()
        with _Explained(self._deployment, self.running):
            values = self.running.outputs(rank)
        return values[0] if len(values) == 1 else tuple(values)

    def __iter__(self) -> Iterator[str]:
        return (tape.name for tape in self._deployment.tapes if tape.outputs)

    def __len__(self) -> int:
        return len(list(iter(self)))


class _Explained:
    """A context that adds to an error of a role the line of the action that failed."""

    def __init__(self, deployment: Deployment, running: RoleExecution | None = None) -> None:
        self._deployment, self._running = deployment, running

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception):
            self._deployment.explain(error, self._running.missing if self._running else ())
        if isinstance(error, ProgramError):
            error.recorded = "protocol"
