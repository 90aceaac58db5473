"""A role: a party of a protocol that exists while the protocol is built, and then is a worker.

The function of a protocol sends tensors to roles as it would to workers.  What it calls a role is a
:class:`RoleWorker`: it has a name, state, and functions of torch that run there.

``x.send(alice)`` in such a function may name a role that no variable of the user's holds.  So the
names of the roles are bound for the time of the recording, also over what they meant before.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import CellType, CodeType, FunctionType
from typing import Any, Final

import torch
from torch import nn

from syft.exceptions import ProtocolError
from syft.ops.control import RECORDING
from syft.ops.nested import replace
from syft.plans.building.state import Entry, State, check_entries
from syft.program.program import RoleMark
from syft.program.recording.control_flow import ControlFlowTracer
from syft.program.recording.role_crossings import ROLES, Crossings
from syft.program.recording.environment.source_line import user_line

LOCAL: Final = "local"
"""The name of the role of whoever runs the protocol, which every protocol has."""

ROLE: Final = "_role"
"""The attribute of a module that was sent to a role."""

_BINDING: Final = threading.RLock()
"""Held while names are bound: other threads would read them."""


class RoleWorker:
    """A party of a protocol: a worker that exists for the build only.

    ``name`` is needed only where the role has none otherwise: in ``sy.protocol(alice=...)`` it has,
    and a role in a variable is called as the variable.  ``state`` are modules, tensors and
    optimizers that lie with the role; each deployment has copies of its own.

    Raises :class:`~syft.exceptions.WrongArguments` for other state.

    >>> alice = RoleWorker("alice", state=(torch.ones(1),))
    >>> alice, alice.state.read()
    (<RoleWorker alice>, (tensor([1.]),))
    """

    def __init__(self, name: str | None = None, state: Iterable[Entry] = ()) -> None:
        if not (name is None or isinstance(name, str)):
            if tuple(state):
                instead = 'name it by a text, RoleWorker("alice", state=(...))'
                raise ProtocolError(f"a role called {name!r}", instead)
            name, state = None, name  # RoleWorker((model,))
        self.name: str | None = name
        self.state = State(check_entries("RoleWorker", state))

    def __repr__(self) -> str:
        return f"<RoleWorker {self.name or '(no name yet)'}>"

    def __deepcopy__(self, memo: Any) -> RoleWorker:
        return self  # a copy of a protocol has the same parties

    def adopt(self, module: nn.Module) -> nn.Module:
        """Have a module, and all in it, lie with the role: what ``module.send(role)`` calls.

        Raises :class:`~syft.exceptions.ProtocolError` while a protocol is built.

        >>> alice = RoleWorker("alice")
        >>> alice.adopt(torch.nn.Linear(2, 1))
        Linear(in_features=2, out_features=1, bias=True)
        """
        if ROLES.get() is not None:
            raise ProtocolError(
                f"a module that is sent to the role {self.name!r} ({user_line()})",
                f"let it be state of the role: {self.name}=RoleWorker(state=(module,))",
            )
        for part in module.modules():
            vars(part)[ROLE] = self
        return module

    @property
    def torch(self) -> Any:
        """Functions of torch that run at this role: ``noise = alice.torch.randn(2)``.

        Each execution runs them anew.  They may be called while a protocol is built.
        """
        return _Functions(self, torch, "torch")


class _Functions:
    """A namespace of torch whose functions run at a role."""

    def __init__(self, role: RoleWorker, what: Any, name: str) -> None:
        self._role, self._what, self._name = role, what, name

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._what, name)
        if isinstance(found, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            return found
        return _Functions(self._role, found, f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return recording_of(self._role, self._name).at(self._role, self._what, args, kwargs)


class RoleRecording:
    """What is known of the roles while their function runs: their ranks, and what crosses.

    >>> RoleRecording([RoleWorker("alice")]).names
    ['alice']
    """

    def __init__(self, roles: Iterable[RoleWorker]) -> None:
        self.roles = list(roles)
        self.crossings: Crossings | None = None

    @property
    def names(self) -> list[str]:
        """The names of the roles by their ranks."""
        return [str(role.name) for role in self.roles]

    def rank_of(self, place: Any, doing: str) -> int:
        """The rank of a role; raises :class:`~syft.exceptions.ProtocolError` for anything else."""
        for rank, role in enumerate(self.roles):
            if role is place or (isinstance(place, str) and role.name == place):
                return rank
        shown = place.name if isinstance(place, RoleWorker) else getattr(place, "id", place)
        raise ProtocolError(
            f"{doing} {shown!r}, which is no role of this protocol ({user_line()})",
            f"its roles are {', '.join(self.names)}: name one of them",
        )

    def rank_in(self, places: Sequence[Any], doing: str) -> int:
        """The rank of the only place; raises :class:`~syft.exceptions.ProtocolError`."""
        if len(places) != 1:
            raise ProtocolError(
                f"{doing} {len(places)} roles at once ({user_line()})", "send a copy to each"
            )
        return self.rank_of(places[0], doing)

    # ------------------------------------------------------------- what the function may call

    def send(self, tensor: torch.Tensor, places: Sequence[Any]) -> torch.Tensor:
        """The copy of a tensor at a role."""
        return self._running().cross(tensor, self.rank_in(places, "send() to"))

    def get(self, tensor: torch.Tensor) -> torch.Tensor:
        """The copy of a tensor at the role of whoever runs the protocol."""
        return self._running().cross(tensor, 0)

    def at(self, role: RoleWorker, function: Any, args: Any, kwargs: Any) -> Any:
        """What a function of torch returns that runs at a role."""
        rank = self.rank_of(role, "a call at")
        with self._running().marked(RoleMark(rank)):
            return function(*args, **kwargs)

    def _running(self) -> Crossings:
        assert self.crossings is not None
        return self.crossings

    def recorded(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call the function of a protocol, which is being recorded."""
        recording = RECORDING.get()
        assert isinstance(recording, ControlFlowTracer)
        self.crossings, token = Crossings(recording.tracer), ROLES.set(self)
        try:
            return replace(function(*args, **kwargs), _without_graph)
        finally:
            ROLES.reset(token)
            self.crossings = None


def _without_graph(value: Any) -> Any:
    """A result without its graph, which may lead to another role.

    A backward pass after the execution would end where a value came from another role.
    """
    has_graph = isinstance(value, torch.Tensor) and value.requires_grad
    return value.detach() if has_graph else value


def recording_of(role: RoleWorker, doing: str) -> RoleRecording:
    """The recording of roles that is going on; raises :class:`~syft.exceptions.ProtocolError`.

    >>> recording_of(RoleWorker("alice"), "torch.ones")
    Traceback (most recent call last):
    ...
    syft.exceptions.ProtocolError: torch.ones of the role 'alice', while no protocol is built: ...
    """
    recording = ROLES.get()
    if not isinstance(recording, RoleRecording):
        raise ProtocolError(
            f"{doing} of the role {role.name!r}, while no protocol is built",
            "a role exists only in the function of a protocol",
        )
    return recording


# ---------------------------------------------------------------------------------------- names


@contextlib.contextmanager
def bound_names(
    functions: Iterable[Callable[..., Any]], roles: Mapping[str, RoleWorker]
) -> Iterator[None]:
    """A context in which the names of roles mean the roles, in these functions and around them.

    >>> def who(): return somebody
    >>> with bound_names([who], {"somebody": RoleWorker("somebody")}):
    ...     who()
    <RoleWorker somebody>
    """
    with _BINDING, contextlib.ExitStack() as undoing:
        for function in functions:
            body = _body_of(function)
            if body is not None:
                cells = zip(body.__code__.co_freevars, body.__closure__ or (), strict=True)
                for name, cell in cells:
                    if name in roles:
                        undoing.callback(_set_cell(cell, roles[name]))
                for name, role in roles.items():
                    if name != LOCAL or name not in body.__globals__:
                        undoing.callback(_set_global(body.__globals__, name, role))
        yield


def _body_of(function: Any) -> FunctionType | None:
    """The function of Python that a call runs, if there is one: that of a method, of a module, of
    another object that can be called, or of a ``functools.partial``."""
    while isinstance(function, partial):
        function = function.func
    body = inspect.unwrap(getattr(function, "__func__", function))
    if not isinstance(body, FunctionType):
        called = type(body).forward if isinstance(body, nn.Module) else type(body).__call__
        body = inspect.unwrap(called)
    return body if isinstance(body, FunctionType) else None


def _set_cell(cell: CellType, role: RoleWorker) -> Callable[[], None]:
    """Put a role into a variable of a surrounding function; returns what undoes it."""
    try:
        before = [cell.cell_contents]
    except ValueError:  # it has no value yet
        before = []
    cell.cell_contents = role

    def undo() -> None:
        if before:
            cell.cell_contents = before[0]
        else:
            del cell.cell_contents

    return undo


def _set_global(around: dict[str, Any], name: str, role: RoleWorker) -> Callable[[], None]:
    """Put a role into a variable of a module; returns what undoes it."""
    before = [around[name]] if name in around else []
    around[name] = role

    def undo() -> None:
        if before:
            around[name] = before[0]
        else:
            around.pop(name, None)

    return undo


def named_in(functions: Iterable[Callable[..., Any]]) -> dict[str, RoleWorker]:
    """The roles that stand in variables around functions, by the names that these use.

    >>> alice = RoleWorker()
    >>> named_in([lambda x: x.send(alice)])
    {'alice': <RoleWorker (no name yet)>}
    """
    found: dict[str, RoleWorker] = {}
    for function in functions:
        body = _body_of(function)
        if body is None:
            continue
        for name in _names_in(body.__code__):
            value = body.__globals__.get(name)
            if isinstance(value, RoleWorker):
                found.setdefault(name, value)
        for name, cell in zip(body.__code__.co_freevars, body.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):
                if isinstance(cell.cell_contents, RoleWorker):
                    found.setdefault(name, cell.cell_contents)
    return found


def _names_in(code: CodeType) -> Iterator[str]:
    """The names of the module that code uses, and of the functions in it."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _names_in(part)
