"""One order for every request: what its kind declares is checked, and then it is done.

A handler is registered with a :class:`Declaration` of what its kind of message does to the objects
of a worker.  A kind without one has no handler, and a worker without all handlers does not start.
What a handler itself has to do begins when all this is done:

1. *drop*: what the message lists is dropped, as far as it is the caller's.  What is not there for
   its caller, it does not name from here on.
2. *read*: the kind's own look at the message (``reading``), before any object is touched.
3. *free*: nothing may be there under the ids of ``makes``: ``ObjectIdTaken``, ``PromiseGivenUp``.
4. *own*: what it names is there for its caller; what it ``sets``, writes or ``takes`` is its
   caller's: ``PermissionDenied``.
5. *keep*: what it makes is no promise of others: ``PermissionDenied``, ``ObjectIdTaken``.
6. *wait*: it is parked until all is there that it names, and what came earlier has changed that.
7. *memory*: the memory that it changes is its caller's: ``PermissionDenied``; what it ``walks``
   through repeats no element too often: ``LimitExceeded``.
8. *run*: the handler; what it ``alters`` is told, and counted anew, when it ends.  Tensors leave in
   replies by :meth:`Call.hand_over` alone, and numbers and texts by :meth:`Call.tell`: they ask the
   labels of what it is that leaves, or comes from it.  What goes on to the workers ``to`` is handed
   out by :meth:`Call.to_send`, and sent by :meth:`Call.post`, if it may go.
9. *store*: :meth:`Call.store` tells those who know of the id, charges, and notes whose it is.
10. *reply*: one of ``answers``, or a ``Failure``; another one is ``HookError``.

``leaves`` and ``answers`` stand in ``docs/wire.md`` too, in a table that is made of declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Final

import msgspec
import torch
from msgspec.structs import fields

from syft.exceptions import HookError, PermissionDenied
from syft.ops.nested import replace
from syft.ops.table import GRADIENT
from syft.serde.frame import Frame
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack
from syft.serde.tensors.bundle import Bundle
from syft.serde.tensors.strided import pack_usual
from syft.workers.core.access import READS, Access, taking
from syft.workers.core.findable import as_there
from syft.workers.core.request_graphs import RequestGraphs
from syft.workers.core.owners import Permit
from syft.workers.core.peer import KINDS, Peer
from syft.workers.core.state_machine import Answer, Handler, HeldInputs, WorkerCore
from syft.workers.core.store_view import NoObjects, StoreView, object_itself
from syft.workers.execution.backward_passes import run_public_pass
from syft.workers.execution.kept_memory import has_graph
from syft.workers.execution.leaving import check_leaving
from syft.workers.execution.moved_memory import Holdings
from syft.workers.execution.private_commands import Converting, converted, run_guarded
from syft.workers.labels.cell import Stored, elements_guard_of, guard_of, unsealed
from syft.workers.labels.guards import Guard, meet_guards
from syft.workers.labels.memory_labels import full_guard_of
from syft.workers.labels.origin import ObjectOrigin
from syft.workers.wire import messages
from syft.workers.wire.messages import Done, Failure, Reply, Value
from syft.workers.wire.references import expanded, ids_at

_NOT_ASKED = Guard(frozenset())
HERE: Final = ""
"""Where a value goes that stays: that of a collective operation of one party."""


def run_as_private(
    core: WorkerCore,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    flags: int,
    guard: Guard | None,
    holdings: Holdings,
    user: str | None,
    decided: bool = False,
) -> Any:
    """Run an operation whose results are guarded by ``guard``, as the gradients are that it sends.

    A gradient that it adds to stays private, also if its inputs are public (None for ``guard``).
    """
    if guard is None:
        if flags & GRADIENT:
            return run_public_pass(function, args, kwargs, holdings)
        return function(*args, **kwargs)
    acting, core.acting_guard = core.acting_guard, guard
    try:
        about = flags, guard, holdings, core.name, user, decided
        return run_guarded(function, list(args), kwargs, *about)
    finally:
        core.acting_guard = acting


class Call(msgspec.Struct, eq=False):
    """One request on its way: the message, its caller, and what the steps have found so far.

    ``read`` is what the kind's own look at the message has returned.  ``held`` are the inputs of a
    request that has waited, by id, which may have been dropped meanwhile.  ``backing`` is where
    that comes from for which its results stand, if this worker does not see their memory.  ``left``
    is the reply that has passed :meth:`hand_over` or :meth:`tell`.
    """

    core: WorkerCore
    message: Any
    frame: Frame
    peer: Peer
    held: HeldInputs | None = None
    read: Any = None
    permit: Permit | None = None
    backing: ObjectOrigin | None = None
    left: Answer | Value | None = None
    _graphs: RequestGraphs | None = None
    _guard: Guard | None = _NOT_ASKED

    def unpacker(self, sharing: str = "", objects: bool = True) -> Unpacker:
        """An unpacker for the operands: references are objects of this worker, or their cells;
        without ``objects`` there are none.

        ``sharing`` names what may use the caller's shares.
        """
        frame, limits, view = self.frame, self.core.limits, StoreView if objects else NoObjects
        operands = view(self.core, self.held, sharing)
        return Unpacker(frame.buffers, limits, operands, owns_buffers=frame.exclusive)

    def run(self, function: Callable[..., Any], flags: int, id: int) -> Any:
        """What an operation makes of an object, as it was predicted, and as private as that."""
        core, value = self.core, object_itself(self.core, self.held, id)
        guard = full_guard_of(value) if core.store.charges.guarded else None
        if guard is None and not flags & GRADIENT:  # as `run_as_private`
            return function(value)
        return run_as_private(
            core, function, [value], {}, flags, guard, core.holdings, self.peer.user
        )

    def tried(self, function: Converting, id: int, args: Sequence[Any]) -> torch.Tensor:
        """What a function makes of an object, as private as that; for one who may not read the
        object it fails as it does on ones, or never."""
        value = object_itself(self.core, self.held, id)
        return converted(function, value, args, self.core.name, self.peer.user)

    def check_repeated(self) -> None:
        """Raise :class:`~syft.exceptions.LimitExceeded` if what the request names repeats elements
        more often than the caller may have a request go through them."""
        held, store = self.held, self.core.store
        for id in self._ids():
            store.charges.check_repeated(held[id] if held and id in held else store.open(id))

    def check_memory(self, permit: Permit, sharing: str = "") -> None:
        """Raise :class:`~syft.exceptions.PermissionDenied` if the request would change memory that
        is another's."""
        permit.check_memory(partial(object_itself, self.core, self.held, sharing=sharing))

    def whole(self, id: int) -> Stored:
        """The object of an id, a share too, or its cell."""
        held = self.held
        store = self.core.store
        return store.seal(held[id]) if held and id in held else store.read(id)

    def stored(self, id: int, depth: int = 0) -> Stored:
        """The object that a reference identifies, or its cell; refuses shares."""
        return self.core.store.seal(object_itself(self.core, self.held, id, depth))

    def store(self, id: int, value: Any) -> Done:
        """Store what the request makes under a new id."""
        self.core.comes_back((id,), self.peer)
        self.core.store.put(id, value)
        self.note_made((id,))
        return Done(self.message.seq)

    def note_made(self, ids: Iterable[int]) -> None:
        """Note that the request has made these objects, and charge the caller for their graphs.

        Raises :class:`~syft.exceptions.LimitExceeded`, and removes them, if that is too much.
        """
        objects = self.core.store.objects
        found = {id: objects[id] for id in ids if has_graph(objects.get(id))}
        if found:
            self.graphs.made(found, self.named)
        self.core.note_made(ids, self.backing)

    @property
    def graphs(self) -> RequestGraphs:
        """With which graphs the request begins, and which it makes."""
        if self._graphs is None:
            self._graphs = RequestGraphs(self.core.store)
        return self._graphs

    def _ids(self) -> Iterable[int]:
        """The objects that the request names."""
        return _NAMING[type(self.message)](self)

    def named(self) -> dict[int, Any]:
        """The objects that the request names, as far as they are here."""
        objects, held = self.core.store.objects, self.held or {}
        found = ((id, held.get(id, objects.get(id))) for id in self._ids())
        return {id: value for id, value in found if value is not None}

    @property
    def user(self) -> str | None:
        """The user for whom the request is made; raises if its caller cannot speak for them."""
        named: str | None = getattr(self.message, "user", None)
        return self.peer.user_named(named, self.core.name) if named else self.peer.user

    def check_leaves(
        self,
        guard: Guard | None,
        action: str = "get",
        id: int | None = None,
        only: str = "",
        approved: Container[str] = (),
    ) -> None:
        """Raise :class:`~syft.exceptions.PermissionDenied` if a value may not leave for the user
        whom the request names, or on behalf of that user for the workers where the request has it
        go: all of them, or the ``only`` one that its caller calls so.

        What is private and goes nowhere is refused: nobody could be asked about it.  To the
        ``approved`` workers it may go whoever asks, as the owner has said, if its shape is public.
        """
        user, here = self.user, self.core.name
        if guard is None:
            return
        places: Collection[str] | None = self._places
        if places is None:
            guard.check_admits(user, here, action)
            return
        if only:
            places = {self.core.place_of(only)}.intersection(places)
        if not places:
            raise self._undeclared()
        for place in places:
            if place != HERE and (place not in approved or guard.shape_hidden):
                check_leaving(guard, place, user, action, here, id)

    @property
    def _places(self) -> Sequence[str] | None:
        """The workers where what the request sends goes, or ``HERE``; None if that is its user."""
        to = DECLARATIONS[type(self.message)].to
        return None if to is None else to(self)

    def _undeclared(self) -> HookError:
        return HookError(f"{type(self.message).__name__} goes to no worker", "declare where")

    def to_send(self, stored: Stored, action: str, gradients: bool = True) -> Any:
        """An object, with its gradients or without, if it may leave for the workers where the
        request has it go; it is the only way to send one on."""
        if self._places is None:
            raise self._undeclared()
        guard = guard_of(stored) if gradients else elements_guard_of(stored)
        self.check_leaves(guard, action, getattr(self.message, "id", None))
        value = unsealed(stored)
        self.core.store.charges.check_repeated(value, sent=True)
        if self.core.audit is not None:
            count = getattr(value, "nbytes", 0)
            self.core.audit.sent(self.message, self.peer, self._ids(), self._places, count)
        return value

    def post(
        self,
        guard: Guard | None,
        action: str,
        letters: Iterable[tuple[str, Iterable[Any], Callable[[tuple[Any, ...]], messages.Message]]],
        private: bool,
        approved: Container[str] | None = None,
    ) -> None:
        """Send values on in messages, each to a worker where the request has them go, if all that
        is guarded so may go to all of these; with ``approved`` workers, only to those that get
        it."""
        if approved is None:
            self.check_leaves(guard, action)
        for to, values, message in letters:
            if approved is not None:
                self.check_leaves(guard, action, only=to, approved=approved)
            packer = Packer(limits=self.core.limits)
            operands = tuple(
                pack(value.contiguous() if isinstance(value, torch.Tensor) else value, packer)
                for value in values
            )
            if self.core.audit is not None:
                self.core.audit.posted(self.peer, to, sum(one.nbytes for one in packer.buffers))
            self.core.post(to, message(operands), packer.buffers, private=private)
            packer.sent()

    def hand_over(
        self,
        value: Any,
        remove: Callable[[], object] = bool,
        along: Callable[[Any, Guard | None], tuple[Any, ...]] | None = None,
        action: Callable[[int], str] = lambda index: "get",
        stays: bool = False,
    ) -> Answer:
        """Reply with a tensor, a plan or several, if each of them may leave for the caller.

        It is the only way to reply with tensors, and opens cells.  ``along`` makes what travels
        with a value of it and its guard, and ``remove`` takes it out of the store once it is
        packed.  ``action`` names the value of an index in errors.
        """
        _ = self.user  # for whom the caller speaks
        guarded = self.core.store.charges.guarded
        value, guard = self._opened(value, action) if guarded else (value, None)
        usual = pack_usual(value, 0) if along is None else None
        if usual is not None:
            self._note_read(usual[1:2])
            remove()
            answer = Value(self.message.seq, usual[0]), [usual[1]]
            self.left = Answer(*answer, guard is not None)
            return self.left
        for one in value if isinstance(value, Bundle) else (value,):
            self.core.store.charges.check_repeated(one, sent=True)
        packer = Packer(worker=self.core, stays=stays, gradients=True)
        operand = pack(value if along is None else (value, *along(value, guard)), packer)
        packer.hand_over(self.peer.name)
        self._note_read(packer.buffers)
        remove()
        packer.sent()
        message = Value(self.message.seq, operand)
        self.left = Answer(message, packer.buffers, private=guard is not None)
        return self.left

    def _note_read(self, buffers: Iterable[torch.Tensor]) -> None:
        """Tell the owner that values leave for the caller."""
        if self.core.audit is not None:
            count = sum(buffer.nbytes for buffer in buffers)
            self.core.audit.read(self.message, self.peer, self._ids(), count)

    def tell(self, value: Any, told: Callable[[Guard], bool]) -> Value:
        """Reply with numbers or texts, if everything that the request names is the user's to read.

        Otherwise ``told`` has to say, of a guard that does not admit the user, that this follows
        from public facts.  Raises :class:`~syft.exceptions.PermissionDenied` if not.  It is the
        only way to reply with what is no tensor.
        """
        guard = self.guard if self.core.store.charges.guarded else None
        if not (guard is None or guard.admits(self.user) or told(guard)):
            raise PermissionDenied("a reply that tells a value", self.core.name, self.user)
        if self.core.audit is not None:
            self.core.audit.told(self.message, self.peer, self._ids, value)
        self.left = Value(self.message.seq, value)
        return self.left

    def altered(self, lost: int) -> None:
        """Tell the others that what they know of some objects may be no more true, and count the
        named anew if their memory may be another one; see :class:`Declaration`."""
        if lost & KINDS:
            self.core.store.charges.altered(self._ids())
        if self.core.watched:
            self.core.altered(self.peer, lost)

    @property
    def guard(self) -> Guard | None:
        """The guard of what is computed from the elements of all that the request names."""
        if self._guard is _NOT_ASKED:
            self._guard = self.core.store.guard_of(self._ids(), self.held or {})
        return self._guard

    def _opened(self, value: Any, action: Callable[[int], str]) -> tuple[Any, Guard | None]:
        """The value with objects in the place of cells, if each may leave, and its guard."""
        guards: list[Guard | None] = []

        def opened(stored: Stored) -> Any:
            guards.append(guard_of(stored))
            id = getattr(self.message, "id", None)
            self.check_leaves(guards[-1], action(len(guards) - 1), id)
            return unsealed(stored)

        several = isinstance(value, Bundle)
        value = Bundle(map(opened, value)) if several else replace(value, opened)
        return value, reduce(meet_guards, guards, None)


Act = Callable[[Call, Any], Reply | Answer | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What one kind of request does.  The first fields are names of fields of its message.

    ``reads``, ``sets`` and ``takes`` have the ids of objects of which it reads the value, sets the
    attributes, and which it takes out of the store; where the message has ``keep``, of others it
    reads them.  ``makes`` has the ids under which it stores an object each, and ``returns`` the
    first one of its results, which may be fewer.  ``plain`` are the numbers that are no ids.

    ``leaves`` says to whom values go; without, no reply has tensors.  ``to`` are the workers where
    they go, if they do not go to the user who asks.  ``answers`` are the replies besides a failure.
    Without ``waits`` it looks at what is there now; with ``stays`` its caller cannot withdraw it.
    With ``walks`` it goes through every element of what it names, and is refused where that is more
    than its caller may have an operation make.

    ``alters`` says what callers are told to forget of objects, ``KINDS``, ``GRADIENTS`` or both;
    where that is kinds, it may also give the named other memory, which is counted anew.
    ``operands`` says that its handler notes itself what it writes.  ``refused`` undoes what
    ``reading`` has noted, for a request that an error ends.

    ``action`` names in errors what it does to what is another's; without, it may be done to all
    that it names.  Functions stand for what follows from more than one field: ``reading`` returns
    :attr:`Call.read`, ``named`` the ids that it waits for, ``outs`` those of results, and
    ``access`` what it does to the named.
    """

    reads: str = ""
    sets: str = ""
    takes: str = ""
    makes: str = ""
    returns: str = ""
    plain: str = ""
    leaves: str = ""
    to: Callable[[Call], Sequence[str] | None] | None = None
    answers: Sequence[type[messages.Message]] = (Done,)
    waits: bool = True
    stays: bool = False
    walks: bool = False
    action: str | Callable[[Call], str] = ""
    reading: Callable[[Call], Any] | None = None
    named: Callable[[Call], Iterable[int]] | None = None
    outs: Callable[[Call], Sequence[int]] | None = None
    access: Access | Callable[[Call], Access] = READS
    refused: Callable[[Call, Exception], None] | None = None
    operands: bool = False
    alters: int | Callable[[Call], int] = 0

    def named_in(self, message: Any) -> Sequence[int]:
        """The ids of the objects that a message names, which has one field for them."""
        return ids_at(message, self.reads or self.sets or self.takes)


DECLARATIONS: dict[type[messages.Message], Declaration] = {}
"""What each kind of request does."""
_NAMING: dict[type[messages.Message], Callable[[Call], Iterable[int]]] = {}
"""Which objects a request names."""
_ACCESSES: dict[type[messages.Message], Callable[[Call], Access]] = {}
"""What it does to them."""


def handles(kind: type[messages.Message], declared: Declaration) -> Callable[[Act], Handler]:
    """Register the decorated function as the last steps of one kind of message.  It is replaced by
    the steps from the second one on.

    Raises :class:`~syft.exceptions.HookError` for a second one, and for a declaration that leaves
    out a field which may name an object.
    """
    names = declared.reads, declared.sets, declared.takes, declared.makes, declared.returns
    given = set(filter(None, ", ".join((*names, declared.plain)).split(", ")))
    of = {field.name: str(field.type) for field in fields(kind)}
    numeric = {name for name, type in of.items() if "int" in type or "Any" in type}
    wrong = (given - of.keys()) | (numeric - given - {"seq", "drop", "failures"})
    if wrong:
        raise HookError(f"{kind.__name__} is declared without {wrong}", "say what it does with it")

    def enter(act: Act) -> Handler:
        if kind in WorkerCore.handlers:
            raise HookError(f"{kind.__name__} has a handler already", "keep one of them")
        DECLARATIONS[kind] = declared
        _NAMING[kind], _, _ACCESSES[kind] = _effects(declared)
        WorkerCore.handlers[kind] = _steps(declared, act, "drop" in of)
        return _steps(declared, act, False)

    return enter


def shortcut(kind: type[messages.Message]) -> Callable[[Handler], Handler]:
    """Let the decorated function have the messages of a kind first: it does the drops and the
    common messages, and leaves the others to the steps."""

    def enter(handler: Handler) -> Handler:
        WorkerCore.handlers[kind] = handler
        return handler

    return enter


def _steps(declared: Declaration, act: Act, dropping: bool) -> Handler:
    """The steps of one kind of message, with the first one if ``dropping``."""
    begun, refused = _later_steps(declared, act), declared.refused

    def steps(core: WorkerCore, message: Any, frame: Frame, peer: Peer) -> Any:
        if dropping and message.drop:
            core.forget(expanded(message.drop), peer)
        call = Call(core, as_there(core, message, peer), frame, peer)
        try:
            return begun(call)
        except Exception as error:
            if refused is not None:
                refused(call, error)
            raise

    return steps


def _later_steps(declared: Declaration, act: Act) -> Callable[[Call], Reply | Answer | None]:
    """The steps of one kind of message from the second one on."""
    reading, waits, makes = declared.reading, declared.waits, declared.makes
    named, outs, access = _effects(declared)
    answers: Sequence[type[messages.Message]] = (*declared.answers, Failure)

    def begun(call: Call) -> Reply | Answer | None:
        core = call.core
        if reading is not None:
            call.read = reading(call)
        if makes:
            core.store.check_all_free(outs(call))
        if core.contested:
            _own(declared.action, call, named, access)
        if waits and core.dataflow.active:
            run = partial(_perform, answers, act, call)
            about = named(call), tuple(outs(call)), access(call)
            return core.when_ready(call.message.seq, call.peer, run, *about)
        if makes:
            core.check_keeps(outs(call), call.peer)
        return _perform(answers, act, call, None)

    return begun


def _own(
    action: str | Callable[[Call], str],
    call: Call,
    named: Callable[[Call], Iterable[int]],
    access: Callable[[Call], Access],
) -> None:
    """Check that a request names nothing that is not there for its caller, and changes nothing but
    its caller's, where objects belong to several."""
    if not action:
        call.core.owners.check_shown(call.peer, named(call))
    else:
        doing = action if isinstance(action, str) else action(call)
        call.permit = call.core.owners.permit(call.peer, named(call), access(call), doing)


def _perform(
    answers: Sequence[type[messages.Message]], act: Act, call: Call, held: HeldInputs | None
) -> Reply | Answer | None:
    """The last steps of a request, which may have waited."""
    call.held = held
    if call.permit is not None:
        call.check_memory(call.permit)
        call.backing = call.permit.backing(partial(object_itself, call.core, held))
    declared = DECLARATIONS[type(call.message)]
    if declared.walks:
        call.check_repeated()
    alters = declared.alters
    lost = alters if isinstance(alters, int) else alters(call)
    unnoted = declared.returns and not declared.operands
    writes = unnoted and _ACCESSES[type(call.message)](call).changes
    if writes:
        call.graphs.begin(call.named())
    try:
        found = act(call, call.message)
    finally:  # what fails may have given memory to its arguments before
        if lost:
            call.altered(lost)
        if writes:
            call.graphs.wrote()
    _check_answer(answers, call, found)
    return found


def _check_answer(
    answers: Sequence[type[messages.Message]], call: Call, found: Reply | Answer | None
) -> None:
    """Raise :class:`~syft.exceptions.HookError` for a reply that is not declared, or that has not
    passed the labels."""
    reply = found
    if type(found) is Answer:
        if found is not call.left or not DECLARATIONS[type(call.message)].leaves:
            kind, instead = type(call.message).__name__, "declare it, and reply with call.hand_over"
            raise HookError(f"{kind} was answered with tensors", instead)
        reply = found.message
    elif type(found) is Value and found is not call.left:
        kind = type(call.message).__name__
        raise HookError(f"{kind} was answered with a bare value", "reply with call.tell")
    if reply is not None and type(reply) not in answers:
        kind, other = type(call.message).__name__, type(reply).__name__
        raise HookError(f"{kind} was answered with {other}", "declare that it may be")


def _effects(
    declared: Declaration,
) -> tuple[
    Callable[[Call], Iterable[int]], Callable[[Call], Sequence[int]], Callable[[Call], Access]
]:
    """What a message names, what it makes, and what it does to the named."""
    named = declared.named or (lambda call: declared.named_in(call.message))
    outs = declared.outs or (lambda call: ids_at(call.message, declared.makes))
    return named, outs, _access(declared)


def _access(declared: Declaration) -> Callable[[Call], Access]:
    """What a message does to what it names."""
    fixed = declared.access
    if not isinstance(fixed, Access):
        return fixed
    if declared.takes:
        return lambda call: taking(declared.named_in(call.message))
    if declared.sets:
        return lambda call: Access(sets=declared.named_in(call.message))
    return lambda call: fixed
