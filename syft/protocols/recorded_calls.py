"""``with sy.record_protocol(alice=bob, x=x) as p:``: what is done on pointers, as a protocol.

All runs as it would without recording, and is noted beside: each call of torch as a promise of what
it made (:mod:`syft.protocols.promised`), at the role of the worker where that lies.  When the block
ends, the notes are replayed under the recorder, as those of promises are, and the protocol runs
once on copies that were made of the arguments before the block.  Its results must be those that
were seen, and the arguments must be as they were: so a write that no call of torch made is found.

Nothing is guessed.  A tensor that is no argument and was not made in the block is refused where it
is used, and so is what the notes could not tell: values that the block reads, and what is called
for its effect.  A size or a dtype that the block asks for is asked again, and must be the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from syft.chain.wrapper import Wrapper
from syft.exceptions import PermissionDenied, ProtocolError
from syft.hooks.torch_hook import TorchHook, synchronize
from syft.ops.control import RECORDING
from syft.ops.nested import leaves, replace
from syft.ops.table import (
    FLAGS,
    METADATA,
    NUMBERS,
    RANDOM,
    READS_GRADIENT,
    UNINITIALIZED,
    Function,
    asked_by,
    name_of,
)
from syft.program.recording.control_flow import ControlFlowTracer
from syft.program.recording.environment.source_line import user_line
from syft.program.recording.op_facts import FIXED
from syft.program.recording.role_crossings import ROLES, refuse_in_protocols
from syft.protocols.promised import PromisedTensor, has_effect
from syft.protocols.protocol import PromiseProtocol, ProtocolRecord
from syft.protocols.role_worker import LOCAL
from syft.torch_private import set_grad_enabled
from syft.workers.shells.worker import Worker

_PASSED: Final = (torch.Tensor.__repr__, set_grad_enabled)
"""Calls that are not noted: results have no graph, and what is printed is for people."""
_ASKED_AGAIN: Final = FIXED | {"shape", "strides", "storage_offset"}
"""What may be asked of a tensor: a recording requires that it is the same, or follows it."""
_DRAWN: Final = RANDOM | UNINITIALIZED
_MOST_APART: Final = 1e-5
"""How far results may be apart, relatively, that are the same: torch may add in another order."""


class Place(NamedTuple):
    """The place of a promise: a role, by its name, and the worker that stands for it."""

    id: str
    worker: Any


class RecordedCalls(TorchFunctionMode):
    """Runs what is called, and notes it: the mode of torch that sees each call of a block, and what
    sends and gets tensors meanwhile.

    ``workers`` are those of the roles by their names, ``inputs`` the arguments by theirs.
    """

    def __init__(self, workers: dict[str, Any], inputs: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.places = {name: Place(name, worker) for name, worker in workers.items()}
        self.notes: dict[int, tuple[torch.Tensor, PromisedTensor]] = {}
        """What is known of each tensor, by its identity; the tensor is kept, so that no other has
        that."""
        self.checks: list[PromisedTensor] = []
        self.used: set[int] = set()
        self.drawn: set[int] = set()
        """The serials of promises of which others are made, and of those that are random."""
        self._is_aside = False
        self.inputs: dict[str, PromisedTensor] = {}
        for name, tensor in inputs.items():
            if self._knows(tensor):
                raise _refused(f"one tensor as two arguments, one of them {name!r}", "name it once")
            self.inputs[name] = self._note(tensor, PromisedTensor(self._place_of(tensor)))
        self.arguments: list[Any] = [*inputs.values()]
        self.copies = [argument.copy() for argument in self.arguments]

    # -------------------------------------------------------------------------- what torch calls

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._is_aside or function in _PASSED:
            return function(*args, **kwargs)
        if function is torch.Tensor.__iter__:
            return iter(self.__torch_function__(torch.unbind, types, args))
        given = replace((args, kwargs), self._promised)
        number = self._number_of(function, *given)
        with self._aside():
            result = function(*args, **kwargs)
        made = [each for each in leaves(result) if each is not None]
        if FLAGS[number] & METADATA:
            self._note_answer(number, function, given, result)
        elif not made or not all(isinstance(each, torch.Tensor) for each in made):
            instead = "let it stay a tensor: a role would keep what was read now"
            raise _refused(f"{name_of(function)} reads values", instead)
        else:
            return self._note_results(number, function, given, result)
        return result

    def _number_of(self, function: Any, args: Any, kwargs: Any) -> int:
        """The number of an operation; raises :class:`~syft.exceptions.ProtocolError` for what is
        none, and for what is called for its effect."""
        number = NUMBERS.get(function)
        if number is None:
            raise _refused(name_of(function), "no role can run it: do it before, or after")
        if FLAGS[number] & READS_GRADIENT or has_effect(number, args, kwargs):
            instead = "use what makes another tensor (x = x + 1); backward passes and steps go "
            raise _refused(
                f"{name_of(function)} writes to a tensor, or is about gradients",
                f"{instead}into the function form, @sy.protocol",
            )
        return number

    def _note_answer(self, number: int, function: Function, given: Any, answer: Any) -> None:
        """Note a question about a tensor: the protocol is for those with the same answer."""
        if not any(isinstance(leaf, PromisedTensor) for leaf in leaves(given)):
            return
        if not asked_by(number) <= _ASKED_AGAIN:
            instead = "a protocol is for the sizes and kinds that the block asks for: ask these"
            raise _refused(f"{name_of(function)} asks what may be otherwise in a role", instead)

        def ask(values: Any) -> None:
            recording = RECORDING.get()
            if isinstance(recording, ControlFlowTracer):
                recording.tracer.user_asks(number)
            if function(*values[0], **values[1]) != answer:
                raise _refused(f"{name_of(function)} has another answer at a role", "ask it before")

        self.checks.append(PromisedTensor(self.places[LOCAL], ask, given))

    def _note_results(self, number: int, function: Function, given: Any, result: Any) -> Any:
        """Note what a call has made; returns it, as tensors of its own."""
        behind = [leaf.serial for leaf in leaves(given) if isinstance(leaf, PromisedTensor)]
        self.used.update(behind)
        is_drawn = bool(FLAGS[number] & _DRAWN) or not self.drawn.isdisjoint(behind)
        # What torch gives back as it was (x.contiguous()) might be another tensor at the next run.
        with self._aside():
            result = replace(result, lambda each: each.view_as(each) if self._knows(each) else each)
        parts = list(leaves(result))
        place = self._place_of(next(each for each in parts if each is not None))
        whole = PromisedTensor(place, lambda values: function(*values[0], **values[1]), given)
        for at, part in enumerate(parts):
            if part is not None:
                self._note(part, PromisedTensor(self._place_of(part), _part(at), whole), is_drawn)
        return result

    # ----------------------------------------------------------------- what sends and gets calls

    def send(self, tensor: torch.Tensor, places: Sequence[Any]) -> torch.Tensor:
        """A copy at the worker of a role: of what ``send`` and ``move`` are called with."""
        if len(places) != 1:
            raise _refused(f"send() to {len(places)} workers at once", "send a copy to each")
        with self._aside():
            worker = TorchHook.current().local_worker.get_worker(places[0])
        return self._cross(tensor, self._role_of(worker))

    def get(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy here."""
        return self._cross(tensor, self.places[LOCAL])

    def _cross(self, tensor: Any, place: Place) -> torch.Tensor:
        before = self._promised(tensor)
        self.used.add(before.serial)
        with self._aside():
            is_remote = type(tensor) is Wrapper
            there = tensor.copy() if is_remote else tensor  # a value of a role stays where it is
            send = there.move if is_remote else there.send
            arrived: torch.Tensor = there.get() if place.id == LOCAL else send(place.worker)
        if self._place_of(arrived).id != place.id:
            raise _refused("a pointer to a pointer", "get() it before")
        self._note(arrived, before.move(place), before.serial in self.drawn)
        return arrived

    # ------------------------------------------------------------------------------------- notes

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        """A context in which calls are not noted."""
        before, self._is_aside, token = self._is_aside, True, ROLES.set(None)
        try:
            yield
        finally:
            self._is_aside = before
            ROLES.reset(token)

    def _knows(self, value: Any) -> bool:
        return id(value) in self.notes

    def _note(
        self, tensor: torch.Tensor, note: PromisedTensor, is_drawn: bool = False
    ) -> PromisedTensor:
        self.notes[id(tensor)] = tensor, note
        if is_drawn:
            self.drawn.add(note.serial)
        return note

    def _promised(self, value: Any) -> Any:
        """The promise of a tensor, anything else as it is."""
        if not isinstance(value, torch.Tensor):
            return value
        if not self._knows(value):
            raise _refused(
                "a tensor that is no argument, and that no call of torch in the block has made",
                "name it: sy.record_protocol(..., name=tensor)",
            )
        return self.notes[id(value)][1]

    def _place_of(self, tensor: torch.Tensor) -> Place:
        """The place where a tensor is; raises :class:`~syft.exceptions.ProtocolError`."""
        if type(tensor) is not Wrapper:
            return self.places[LOCAL]
        links = tensor.child.remote_links()
        if len(links) != 1:
            raise _refused(f"a {type(tensor.child).__name__}", "record what is done with pointers")
        return self._role_of(links[0].location)

    def _role_of(self, worker: Any) -> Place:
        for place in self.places.values():
            if place.worker.id == worker.id:
                return place
        instead = f"name it: sy.record_protocol({worker.id}=worker)"
        raise _refused(f"the worker {worker.id!r}, which stands for no role", instead)

    def returned(
        self, tensors: Sequence[torch.Tensor]
    ) -> list[tuple[torch.Tensor, PromisedTensor]]:
        """What the protocol gives: these tensors, or all of which nothing else was made."""
        known = list(self.notes.values())
        inputs = [note.serial for note in self.inputs.values()]
        ends = [tensor for tensor, one in known if one.serial not in {*self.used, *inputs}]
        found = list(tensors) or ends
        if not found:
            raise _refused("a block that makes nothing of its arguments", "p.returns(tensor)")
        return [(tensor, self._promised(tensor)) for tensor in found]


class RecordedProtocol(PromiseProtocol):
    """What was done in a block, as a protocol: :func:`record_protocol` makes it."""

    __slots__ = ("_returned",)

    def __init__(self, workers: dict[str, Any]) -> None:
        super(PromiseProtocol, self).__init__()
        self._workers, self._outputs = workers, ()
        self._returned: tuple[torch.Tensor, ...] = ()

    def _take_over(self, original: Any) -> None:
        super()._take_over(original)
        self._returned = ()

    def _recorded(self) -> Any:
        if not self._outputs:
            raise ProtocolError(f"a building of {self.name!r}, whose block has not ended", "end it")
        return super()._recorded()

    def returns(self, *tensors: torch.Tensor) -> None:
        """Say in the block what the protocol gives, in this order."""
        if ROLES.get() is None or not all(isinstance(each, torch.Tensor) for each in tensors):
            raise ProtocolError("returns() of no tensors, or outside the block", "say it inside")
        self._returned = tensors

    def close(self, calls: RecordedCalls) -> None:
        """Make the protocol of what was noted, and confirm it.

        Raises :class:`~syft.exceptions.ProtocolError` if it gives something else than the block.
        """
        seen = calls.returned(self._returned)
        self._inputs, self._checks = calls.inputs, calls.checks
        self._outputs, self._returned = [note for _, note in seen], ()
        try:
            synchronize()  # what fails in the block is told as its own failure
            with torch.random.fork_rng(devices=[]):  # what follows draws as without recording
                self.build(*calls.copies)
                self._confirm(calls, seen)
                synchronize()
        except BaseException as error:
            self._record, self._outputs = ProtocolRecord(self.id), ()
            if isinstance(error, PermissionDenied):
                error.add_note("A recording is confirmed: record on values that you may read.")
            raise

    def _confirm(self, calls: RecordedCalls, seen: Sequence[tuple[Any, PromisedTensor]]) -> None:
        instead = (
            "the block must do all by functions of torch, and in the modes of its surroundings"
        )
        for name, given, before in zip(calls.inputs, calls.arguments, calls.copies, strict=True):
            if not _same(before, given, apart=0.0):
                raise ProtocolError(f"a block that is recorded has written to {name!r}", instead)
        found = self.deploy().run(*calls.copies)
        for (tensor, note), other in zip(seen, [found] if len(seen) == 1 else found, strict=True):
            if not _same(tensor, other, _MOST_APART, note.serial in calls.drawn):
                what = f"a recording that gives something else at {note.worker.id} than its block"
                raise ProtocolError(what, instead)


def _same(seen: torch.Tensor, found: torch.Tensor, apart: float, is_drawn: bool = False) -> bool:
    """Whether a tensor is what was seen, or is ``apart`` so little, relatively, as torch may round;
    of random numbers, whether it is of the same kind."""
    if seen.dtype != found.dtype or seen.shape != found.shape:
        return False
    rounds = seen.is_floating_point() or seen.is_complex()
    return is_drawn or torch.allclose(
        seen, found, rtol=apart if rounds else 0.0, atol=0.0, equal_nan=True
    )


def _part(at: int) -> Callable[[Any], Any]:
    """What takes one tensor out of a result."""
    return lambda result: list(leaves(result))[at]


def _refused(what: str, instead: str) -> ProtocolError:
    return ProtocolError(f"{what}, while a protocol is recorded ({user_line()})", instead)


@contextlib.contextmanager
def record_protocol(**named: Any) -> Iterator[RecordedProtocol]:
    """Record what is done in the block, on tensors and pointers, as a protocol.

    ``named`` are the roles, with the workers that stand for them, and the arguments: the tensors
    and pointers that the block begins with.  ``send``, ``move`` and ``get`` make copies, as in the
    function of a protocol.  The protocol gives what ``p.returns(...)`` names, or all tensors of
    which nothing else was made.  When the block ends, the protocol runs once, to be confirmed: so
    record on data that you may read.

    Raises :class:`~syft.exceptions.ProtocolError`, with the line, for a tensor or a worker that is
    not named, values that are read, and what is called for its effect.

    >>> x = torch.tensor([1.0, 2.0])
    >>> with sy.record_protocol(first=alice, x=x) as p:
    ...     y = (x - 3).send(alice).abs().get()
    >>> y, p.inputs
    (tensor([2., 1.]), {'local': {'x': 'float32 (2,)'}, 'first': {}})
    >>> p.deploy(first=bob).run(torch.tensor([7.0]))
    tensor([4.])
    """
    recording = RECORDING.get()
    if recording is not None:
        recording.refuse("sy.record_protocol()", "record it outside")
    refuse_in_protocols("sy.record_protocol()", "record it outside")
    inputs = {name: one for name, one in named.items() if isinstance(one, torch.Tensor)}
    workers = {name: one for name, one in named.items() if name not in inputs}
    owner = TorchHook.current().local_worker
    _check_names(named, inputs, {owner.id: LOCAL})
    protocol, calls = RecordedProtocol(workers), RecordedCalls({LOCAL: owner} | workers, inputs)
    token = ROLES.set(calls)
    try:
        with calls:
            yield protocol
    finally:
        ROLES.reset(token)
    protocol.close(calls)


def _check_names(named: dict[str, Any], inputs: Container[str], roles: dict[Any, str]) -> None:
    """Raise for what is neither worker nor tensor, and for two roles at one worker; ``roles`` are
    the names of those that workers have already."""
    for name, one in named.items():
        if name == LOCAL or not (name in inputs or isinstance(one, Worker)):
            raise ProtocolError(
                f"{name}={one!r} in sy.record_protocol()",
                f"roles are workers, arguments are tensors, and {LOCAL} is who records",
            )
        if name not in inputs and roles.setdefault(one.id, name) != name:
            what = f"the roles {roles[one.id]} and {name} at one worker"
            raise ProtocolError(what, "let another worker stand for one of them")
