"""PointerTensor: a tensor that is at another worker.

Every torch call on it becomes one command to that worker, whose torch runs it and records the
graph.  The caller chooses the id of the result and returns a pointer to it without waiting.  Values
and shapes are asked for.  The remote object is dropped with its last pointer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Final, cast

import torch

from syft.chain.link import Level, Rule, RuleType
from syft.chain.wrapper import Wrapper, make_opaque, wrap
from syft.codes import TypeCode
from syft.exceptions import (
    LocationMismatch,
    MalformedMessage,
    UnsupportedOperation,
)
from syft.ids import first_id, new_id
from syft.ops.calls import DECOMPOSITIONS, mutated_argument
from syft.ops.nested import Arguments, Keywords, leaves
from syft.ops.returns import MOST, ONE_TENSOR, returns
from syft.ops.table import (
    ALTERS,
    BINARY,
    BY_NAME,
    FLAGS,
    GRADIENT,
    INPLACE,
    METADATA,
    NOTHING,
    NUMBERS,
    ONE,
    SPLITS,
    asked_by,
    function_of,
    number_of,
    ops_with,
)
from syft.program.recording.builder import register_foreign
from syft.serde.expect import expect_fields, expect_int, expect_type
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, register, register_check
from syft.tensors.bare_pointer import BarePointer
from syft.tensors.remote_link import Summary
from syft.workers.client.connection import STORED, Connection, Pending
from syft.workers.client.facts import FACTS, UNKNOWN
from syft.workers.client.group import Held
from syft.workers.client.handles import Handle
from syft.workers.client.operands import Operands
from syft.workers.client.remote_reference import RemoteReference
from syft.workers.core.peer import EVERYTHING
from syft.workers.core.pipeline import Call, Declaration, handles
from syft.workers.core.sent_labels import guard_from_fields, note_bound
from syft.workers.execution.leaving import check_no_graph
from syft.workers.labels.cell import elsewhere, guard_of, kind_of
from syft.workers.labels.guards import meet_guards
from syft.workers.labels.memory_labels import protect_all, travelling_guard_of
from syft.workers.wire.messages import Done, Fetch, Relay
from syft.workers.wire.references import REF, REFS

_BARE = frozenset((float, bool, str, type(None)))
_LIST = int(TypeCode.LIST)
_ON_LISTS = frozenset(
    number for name, number in BY_NAME.items() if name.startswith("torch._foreach_")
)
"""The operations on lists of tensors, for which a tuple is a list."""
_WRAPPERS, _FLOATS = frozenset((Wrapper,)), frozenset((float,))
_NEW = ONE | BINARY
"""The operations that make one new tensor of pointers and numbers."""
_WRITING = INPLACE | NOTHING | GRADIENT | ALTERS
"""The operations that change something."""
OPERATIONS: dict[Any, int] = {
    operation: number
    for operation, number in NUMBERS.items()
    if FLAGS[number] & _NEW and not FLAGS[number] & _WRITING
}
"""The numbers of those that have no rule here: nearly every call is one of them."""
_unset = object.__new__
_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1


class PointerTensor(RemoteReference, BarePointer):
    """The link that stands for object ``id_at_location`` at another worker.

    ``depth`` counts ``.child`` steps down the remote tensor's own chain.  With
    ``garbage_collect_data`` the remote object is dropped when the pointer is.

    >>> x = torch.tensor([1.0, 2.0]).send(bob)
    >>> x.child
    [PointerTensor | me:... -> bob:...]
    >>> (x * 2).sum().get()
    tensor(6.)
    """

    __slots__ = ()

    level = Level.FUNCTION

    # Rarely set, as ``_summary`` is.
    _parent: PointerTensor | None = None
    gradient_known: tuple[int, Any] | None = None
    """Facts of the connection about the gradient: see :class:`~syft.workers.client.facts.Facts`."""
    grid: Any = None
    """The grid of remote numbers in fixed precision, where it was chosen at this end."""
    may_be_argument: bool = False
    """Whether the tensor may be the very one that another pointer is for (``x.contiguous()``, what
    a plan returns): what is known of its gradient might be changed through that one."""

    # --------------------------------------------------------------------------- what it points to

    @property
    def handle(self) -> Handle:
        """A handle of the command that makes the remote object: it waits, or tells if it is done.

        >>> bob = sy.VirtualWorker(hook, id="bob", pipelined=True)
        >>> y = torch.ones(2).send(bob) + 1
        >>> y.child.handle.done(), y.child.handle.result().get()
        (False, tensor([2., 2.]))
        """
        return Handle(self.asked or self.connection, self.pending, self)

    @property
    def child(self) -> PointerTensor:
        """A pointer to the ``.child`` of the remote tensor, one link further down its chain.

        >>> x = sy.LoggingTensor().on(torch.ones(2)).send(bob)
        >>> x.child.child.child.add(1).get()  # the tensor behind the LoggingTensor
        tensor([2., 2.])
        """
        deeper = PointerTensor(self.connection, self.id_at_location, False, self.depth + 1)
        deeper._parent = self
        return deeper

    @child.setter
    def child(self, value: Any) -> None:
        if type(value) is not PointerTensor or value._parent is not self:
            instead = "a remote chain is changed in place, or made anew and sent"
            raise UnsupportedOperation("an assignment to .child", "PointerTensor", instead)
        # `pointer.child.child += 1` gives back what it was given: there is nothing left to do.

    # ----------------------------------------------------------------------------- the chain itself

    def show(self) -> str:
        """``[PointerTensor | me:1 -> bob:2]``, and the tags if there are any."""
        attribute = ".child" * self.depth
        arrow = f"{self.owner.id}:{self.id} -> {self.location.id}:{self.id_at_location}"
        summary = self._summary.show() if self._summary is not None else ""
        return f"[PointerTensor | {arrow}]{attribute}{summary}"

    def place(self) -> str:
        """The name of the worker that holds the data.

        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> x.child.place()
        'bob'
        """
        return self.location.id

    def reference(self, connection: Connection) -> tuple[int, ...] | None:
        """How a command over ``connection`` names the tensor, if it is at the other end."""
        if connection is not self.connection and connection.line is not self.connection.line:
            return None
        if self.depth:
            return (REF, self.id_at_location, self.depth)
        return (REF, self.id_at_location)

    # --------------------------------------------------------------------------------- torch calls

    @classmethod
    def call(cls, operation: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Forward one torch call; returns a pointer to the new tensor, or the returned value.

        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> PointerTensor.call(torch.add, (x, 1), {}).get()  # what torch.add(x, 1) does
        tensor([2., 3.])
        """
        number = OPERATIONS.get(operation)
        if number is None or kwargs:
            rule = cls.rules.get(operation)
            if rule is None:  # `number_of` raises for a refused operation
                return cls.forward(number_of(operation), args, kwargs)
            return rule(*args, **kwargs)
        connection: Connection | None = None
        operands: list[Any] = []
        for value in args:
            kind = type(value)
            if kind is Wrapper:
                link = value.child
                if type(link) is not PointerTensor or link.depth:
                    return cls.forward(number, args, kwargs)
                connection = connection or link.connection
                if connection is not link.connection:
                    return cls.forward(number, args, kwargs)
                operands.append((REF, link.id_at_location))
            elif kind is float or kind is bool or kind is int and _MIN_INT <= value <= _MAX_INT:
                operands.append(value)
            else:
                return cls.forward(number, args, kwargs)
        if connection is None:
            return cls.forward(number, args, kwargs)
        out = new_id()
        value = connection.operations.make(number, operands, out)
        if value is not STORED:
            return _not_yet_stored(connection, out, value)
        link = _unset(PointerTensor)  # its ``__init__`` takes three times as long
        link.connection, link.id_at_location = connection, out
        link.garbage_collect_data, link.depth = True, 0
        wrapper = make_opaque()  # as ``wrap``
        wrapper.child = link
        return wrapper

    @classmethod
    def rule(cls, *operations: Any) -> Callable[[RuleType], RuleType]:
        """Enter the decorated function as :meth:`~syft.chain.link.Link.rule` does."""
        for operation in operations:
            OPERATIONS.pop(operation, None)
        return super().rule(*operations)

    @classmethod
    def forward(cls, number: int, args: Arguments, kwargs: Keywords) -> Any:
        """Forward one torch call of any kind, past the rules."""
        flags, connection = FLAGS[number], _connection_of(args, kwargs)
        connection, operands, keywords, buffers = packed(connection, number, args, kwargs)
        target = mutated_argument(flags, args, kwargs) if kwargs or flags & _WRITING else None
        crosses = flags & GRADIENT and connection.crossed
        making = target is None and not flags & NOTHING
        expected = None if crosses else returns(number, args, kwargs) if making else ONE_TENSOR
        if making and expected is None and flags & SPLITS:
            expected = connection.operations.returned(number, operands, keywords)
        out = 0
        if making:
            several = expected is not None and expected is not ONE_TENSOR
            out = first_id(expected.count) if several else new_id()  # type: ignore[union-attr]
        value = connection.operations.command(number, operands, keywords, out, buffers, expected)
        if crosses:
            connection.operations.gradients_crossed()
        if making:
            return connection.operations.results(value, out, expected, fresh=bool(flags & _NEW))
        if type(value) is Pending:
            _make_wait(value, args[:1] if target is None else target)
        elif type(value) is Held and connection.transport.queued:
            _follow_written(connection, args[:1] if target is None else target)
        return None if flags & NOTHING else target


register_foreign(PointerTensor, lambda link: f"a pointer to worker {link.location.id!r}")


def _not_yet_stored(connection: Connection, out: int, value: Any) -> Any:
    """The result of a call that makes one new tensor, if that is not there yet."""
    if type(value) is not Pending:
        return connection.operations.results(value, out, ONE_TENSOR, fresh=True)
    link = PointerTensor(connection, out)
    link.pending = value
    return wrap(link)


def reroute_calls(route: Callable[[Any], Any]) -> None:
    """Have ``route(call)`` stand in the place of :meth:`PointerTensor.call`."""
    call = vars(PointerTensor)["call"].__func__
    PointerTensor.call = classmethod(wraps(call)(route(call)))  # type: ignore[assignment]


def taken_up(
    connection: Connection, seq: int, header: bytes, drop: tuple[int, ...], out: int
) -> Any:
    """What a call returns whose command the extension in C has written; ``STORED`` if its result is
    there, and needs a pointer."""
    value = connection.operations.exchanged(seq, header, drop, out)
    return value if value is STORED else _not_yet_stored(connection, out, value)


def _make_wait(pending: Pending, target: Any) -> None:
    """Have the handles of the tensors that a command writes to wait for that command."""
    for leaf in leaves(target):
        if type(leaf) is Wrapper and type(leaf.child) is PointerTensor:
            leaf.child.pending, leaf.child.asked = pending, None


def _follow_written(connection: Connection, target: Any) -> None:
    """The same for a command that is held back."""
    group = connection.groups.current
    for leaf in leaves(target):
        if group is not None and type(leaf) is Wrapper and type(leaf.child) is PointerTensor:
            group.follow(leaf.child, written=True)


def packed(
    connection: Connection, number: int, args: Arguments, kwargs: Keywords
) -> tuple[Connection, Any, Keywords | None, list[torch.Tensor]]:
    """The connection for the results, the operands, and the data that travels along."""
    operands = _flat(args, connection)
    if operands is not None and not kwargs:
        return connection, operands, None, []
    if operands is None and number in _ON_LISTS:  # which takes fewer bytes
        args = tuple([list(value) if type(value) is tuple else value for value in args])
        operands = _flat(args, connection)
    values = None if operands is None else _flat(kwargs.values(), connection)
    if values is not None:
        return connection, operands, dict(zip(kwargs, values, strict=True)) or None, []
    packing = Operands(connection, number)
    packed_args, packed_kwargs = packing.pack(args, kwargs)
    return packing.connection, packed_args, packed_kwargs, packing.packer.buffers


def _flat(values: Iterable[Any], connection: Connection) -> list[Any] | None:
    """The operands of a call with only pointers over this connection and plain values.

    None for any other call, which :class:`~syft.workers.client.operands.Operands` packs.
    """
    packed: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is Wrapper:
            link = value.child
            if type(link) is not PointerTensor or link.depth or link.connection is not connection:
                return None
            packed.append((REF, link.id_at_location))
        elif kind in _BARE or (kind is int and _MIN_INT <= value <= _MAX_INT):
            packed.append(value)
        elif kind is list:
            items = _flat_list(value, connection)
            if items is None:
                return None
            packed.append(items)
        else:
            return None
    return packed


def _flat_list(values: list[Any], connection: Connection) -> list[Any] | None:
    """The same for a list of nothing but such pointers, or of floats, as one operand."""
    kinds: set[Any] = set(map(type, values)) if len(values) < MOST else set()
    if kinds == _WRAPPERS:
        ids = [REFS]
        for value in values:
            link = value.child
            if type(link) is not PointerTensor or link.depth or link.connection is not connection:
                return None
            ids.append(link.id_at_location)
        return ids
    return [_LIST, *values] if kinds == _FLOATS else None


def _connection_of(args: Arguments, kwargs: Keywords) -> Connection:
    """The connection of the first pointer in the arguments."""
    first = args[0] if args else None
    if type(first) is list and first:
        first = first[0]
    if type(first) is Wrapper and type(first.child) is PointerTensor:
        return first.child.connection
    for leaf in leaves((args, kwargs)):
        if type(leaf) is Wrapper and type(leaf.child) is PointerTensor:
            return leaf.child.connection
    raise UnsupportedOperation("this call", "PointerTensor", "no pointer is among its arguments")


@Connection.maker("tensor")
def make_pointer(
    connection: Connection,
    id: int,
    garbage_collect_data: bool = True,
    depth: int = 0,
    summary: tuple[Any, ...] | None = None,
) -> Wrapper:
    """A wrapped pointer to object ``id`` at the other end of ``connection``.

    >>> x = torch.tensor([1.0, 2.0]).send(bob)
    >>> make_pointer(hook.local_worker.connection_to(bob), x.id_at_location, False).get()
    tensor([1., 2.])
    """
    link = _unset(PointerTensor)  # as in ``call``
    link.connection, link.id_at_location = connection, id
    link.garbage_collect_data, link.depth = garbage_collect_data, depth
    if summary is not None:
        link._summary = Summary(*summary)
    wrapper: Wrapper = make_opaque()
    wrapper.child = link
    return wrapper


# ------------------------------------------------------------------------------------------ codec


def _pack(link: PointerTensor, packer: Packer) -> Operand:
    """Inside a command a reference; otherwise the pointer itself with its duty to collect, which
    the pointer here keeps until the message is sent."""
    if packer.destination is not None:
        reference = link.reference(packer.destination)
        if reference is None:
            raise LocationMismatch("a command", (packer.destination.location.id, link.place()))
        return reference
    link.connection.groups.never_hold()  # the receiver may use the pointer at any time
    link.connection.let_others_refer()
    twice = any(other is link for other in packer.leaving)
    collects = link.garbage_collect_data and not (twice or packer.stays)
    if collects:
        packer.leaving.append(link)
    return (int(TypeCode.POINTER), link.id_at_location, link.location.id, collects, link.depth)


def _unpack(operand: Any, unpacker: Unpacker) -> Wrapper:
    expect_fields(operand, 4)
    id = expect_int(operand[1], ".id")
    name = expect_type(operand[2], str, "a worker's name", ".location")
    asked = expect_type(operand[3], bool, "true or false", ".collects")
    depth = expect_int(operand[4], ".depth", high=64)
    if (worker := unpacker.worker) is None:
        raise MalformedMessage("$", "a value that stands on its own", "a pointer")
    collects = asked and worker.core.owners.may_collect(worker.core.serving, id, name)
    return make_pointer(worker.connect(name), id, collects, depth)


register(TypeCode.POINTER, PointerTensor, _pack, _unpack)


# ---------------------------------------------------------------------- operations of its own


class GraphElsewhere:
    """The ``.grad_fn`` of a pointer to a tensor with a graph."""

    __slots__ = ("_place",)

    def __init__(self, place: str) -> None:
        self._place = place

    def __repr__(self) -> str:
        return f"<grad_fn at {self._place}>"


@PointerTensor.rule(torch.Tensor.grad_fn.__get__)  # type: ignore[union-attr]
def _grad_fn(pointer: Wrapper) -> GraphElsewhere | None:
    """Whether the remote tensor has a graph; the graph itself stays at its worker."""
    return None if pointer.is_leaf else GraphElsewhere(pointer.child.place())


def _plain_link(args: Arguments, kwargs: Keywords) -> PointerTensor | None:
    """The pointer that is the only argument of a call."""
    if kwargs or len(args) != 1 or type(args[0]) is not Wrapper:
        return None
    link = args[0].child
    return link if type(link) is PointerTensor and not link.depth else None


def own_leaf(tensor: Any) -> PointerTensor | None:
    """The pointer behind a tensor, if no other one of its connection can be to the same tensor.

    >>> own_leaf(torch.ones(2).send(bob)), own_leaf(torch.ones(2))
    ([PointerTensor | me:... -> bob:...], None)
    """
    link = tensor.child if type(tensor) is Wrapper else None
    if type(link) is not PointerTensor or link.depth:
        return None
    if link.may_be_argument or not link.garbage_collect_data:
        return None
    return None if link.connection.garbage.owns(link.id_at_location) else link


def _asking(number: int) -> Rule:
    """A rule for an operation that asks for a fact: it asks only if the answer is not known."""

    def ask(*args: Any, **kwargs: Any) -> Any:
        link = args[0].child if len(args) == 1 and type(args[0]) is Wrapper and not kwargs else None
        if type(link) is not PointerTensor or link.depth:
            return PointerTensor.forward(number, args, kwargs)
        return link.connection.operations.fact(number, link.id_at_location)

    return ask


for _number in FACTS:
    PointerTensor.rule(function_of(_number))(_asking(_number))


def _asking_now(number: int) -> Rule:
    """A rule for a question whose answer anybody may change: it is asked each time."""

    def ask(*args: Any, **kwargs: Any) -> Any:
        link = args[0].child if len(args) == 1 and not kwargs else None
        if type(link) is not PointerTensor or link.depth:
            return PointerTensor.forward(number, args, kwargs)
        connection, out = link.connection, new_id()
        answer = connection.operations.command(
            number, ((REF, link.id_at_location),), None, out, [], None
        )
        return answer if type(answer) is bool else connection.operations.results(answer, out, None)

    return ask


for _number in ops_with(METADATA) - FACTS:
    if asked_by(_number) == {"requires_grad"}:
        PointerTensor.rule(function_of(_number))(_asking_now(_number))

_COMPATIBLE = BY_NAME["torch._has_compatible_shallow_copy_type"]


@PointerTensor.rule(function_of(_COMPATIBLE))
def _compatible(*args: Any, **kwargs: Any) -> Any:
    """Whether ``x.data = y`` is allowed, which ``module.to`` asks of every parameter."""
    mine, theirs = (_plain_link(args[place : place + 1], kwargs) for place in (0, 1))
    if mine is not None and theirs is not None and mine.connection is theirs.connection:
        if mine.connection.operations.are_strided((mine.id_at_location, theirs.id_at_location)):
            return True
    return PointerTensor.forward(_COMPATIBLE, args, kwargs)


_GET, _SET, _DELETE = (
    BY_NAME[f"torch.Tensor.grad.__{name}__"] for name in ("get", "set", "delete")
)
READS_GRADIENT: Final = function_of(_GET)
QUESTIONS: Final = {READS_GRADIENT: _GET, **{function_of(number): number for number in FACTS}}
"""The numbers of those that are answered with what is known here, as long as that holds."""


@PointerTensor.rule(READS_GRADIENT)
def _gradient(*args: Any, **kwargs: Any) -> Any:
    """The gradient, asked for with those of all other leaves."""
    link = own_leaf(args[0]) if len(args) == 1 and not kwargs else None
    if link is None:
        return PointerTensor.forward(_GET, args, kwargs)
    return link.connection.operations.gradient(link)


def _setting(number: int) -> Rule:
    """A rule for an operation that sets one gradient: what is known of the others stays."""

    def set_gradient(*args: Any, **kwargs: Any) -> None:
        PointerTensor.forward(number, args, kwargs)
        leaf = own_leaf(args[0]) if args else None
        if leaf is None:
            _connection_of(args, kwargs).facts.forget_gradients()
        else:
            gradient = UNKNOWN if args[1:] and args[1] is not None else None
            leaf.connection.facts.set_gradient(leaf, gradient)

    return set_gradient


for _number in (_SET, _DELETE):
    PointerTensor.rule(function_of(_number))(_setting(_number))

for _number, _written_out in DECOMPOSITIONS.items():
    PointerTensor.rule(function_of(_number))(_written_out)

# A call without a number is refused before its rule is looked up.
register_check(lambda: [f"a number for {op}" for op in PointerTensor.rules if op not in NUMBERS])


def _sent_to(call: Call) -> Sequence[str]:
    """The worker where an object goes that becomes a pointer."""
    return () if call.message.to is None else (call.core.place_of(call.message.to),)


@handles(
    Relay,
    Declaration(
        takes="id",
        leaves="worker `to`",
        to=_sent_to,
        action=lambda call: "remote_get" if call.message.to is None else "remote_send",
        alters=EVERYTHING,
    ),
)
def relay(call: Call, message: Relay) -> Done:
    """Send an object on and keep a pointer to it, or replace a pointer by what it points to."""
    core, peer = call.core, call.peer
    stored = call.stored(message.id)
    if not issubclass(kind := kind_of(stored), torch.Tensor):
        raise UnsupportedOperation("remote_send", kind.__name__, "move it")
    guard, user, pointing = guard_of(stored), call.user, elsewhere(stored)
    if message.to is not None:
        value = call.to_send(stored, "remote_send")
        check_no_graph(value, guard)
        connection = core.connect(message.to)
        id = new_id()
        connection.put(value, id, guard=guard, writers=core.owners.names(peer, message.id))
        kept: torch.Tensor = make_pointer(cast(Connection, connection), id)
    elif pointing is not None and isinstance(link := pointing.child, PointerTensor):
        id, depth = link.id_at_location, link.depth
        kept, *about, most = link.connection.ask(
            Fetch, id, depth, keep=depth > 0, user=user, guarded=True
        )
        link.garbage_collect_data = False
        protect_all(kept, meet_guards(guard, guard_from_fields(about)))
        note_bound(kept, most)
        if travelling_guard_of(kept) is not None:
            core.guard()
    else:
        instead = "it acts on a pointer to a pointer; get() brings this one here"
        raise UnsupportedOperation("remote_get", "what is a tensor at its worker", instead)
    core.store.replace(message.id, kept)
    return Done(message.seq)
