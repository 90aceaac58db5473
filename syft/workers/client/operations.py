"""The calling end of torch operations: commands, runs of programs, and what need not be asked.

A *command* is one operation.  An open group holds commands back, to send them as one program; a
program, and a plan, is *run* by its number.  What a result is made of is known beforehand for most
operations (:mod:`syft.ops.returns`), and much of what is asked is known from before
(:mod:`syft.workers.client.facts`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Hashable, Iterable, Sequence
from typing import Any, cast

import torch
from torch import float32, get_default_dtype, is_grad_enabled

from syft.exceptions import MalformedMessage, ObjectNotFound
from syft.ids import first_id, new_id
from syft.ops.control import LIKE_LEAF, NO_GRADIENT, RECORDING
from syft.ops.returns import MOST, ONE_TENSOR, Returns
from syft.ops.table import FLAGS, GRADIENT, NAMES
from syft.serde.frame import Frame
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.torch_private import any_autocast_enabled
from syft.workers.client.caller_modes import autocast_state, mode_without_grad, modes
from syft.workers.client.facts import CHANGING, UNKNOWN, Facts
from syft.workers.client.garbage import Garbage
from syft.workers.client.group import NOT_HELD, Held, MessageGroup
from syft.workers.client.monitor import exclusive
from syft.workers.client.open_groups import OpenGroups
from syft.workers.client.pending import STORED, Pending
from syft.workers.client.replies import Pointers, Replies
from syft.workers.client.requests import Requests
from syft.workers.client.sent_calls import ranges
from syft.workers.wire.definitions import Definition
from syft.workers.wire.messages import (
    COUNT_SHIFT,
    GRAD_MODE,
    IN_CONTAINER,
    ClearGradients,
    Command,
    Gradients,
    Run,
    encode,
)
from syft.workers.wire.references import REF

_WORTH_NUMBERING = range(256, 1 << 16)
"""Bytes of tensor data from which on a command travels by its number: less is no gain, and to hash
more takes longer than to copy it."""


_EXPECTED = 1 << COUNT_SHIFT
"""The flags of a command whose caller expects one tensor."""


class Operations:
    """The torch operations that a connection has run at the other end."""

    __slots__ = (
        "lock",
        "_core",
        "_facts",
        "_garbage",
        "_groups",
        "_owner",
        "_pointers",
        "_replies",
        "_requests",
        "_transport",
    )

    def __init__(
        self,
        requests: Requests,
        replies: Replies,
        facts: Facts,
        garbage: Garbage,
        groups: OpenGroups,
        pointers: Pointers,
    ) -> None:
        self.lock = requests.lock
        self._core = requests.owner.core
        self._facts = facts
        self._garbage = garbage
        self._groups = groups
        self._owner = requests.owner
        self._pointers = pointers
        self._replies = replies
        self._requests = requests
        self._transport = requests.transport

    def make(self, op: int, args: Any, out: int) -> Any:
        """Run an operation that changes nothing and makes one new tensor of pointers and numbers.

        Nearly every command is one of these.  Returns what :meth:`command` does.
        """
        with self.lock:  # as `exclusive`, which takes longer
            if self._groups.open:
                return self.command(op, args, None, out, [])
            flags = _EXPECTED | (GRAD_MODE if is_grad_enabled() else mode_without_grad())
            autocast: tuple[Any, ...] | None = None
            if get_default_dtype() is not float32 or any_autocast_enabled():
                autocast = autocast_state()
            requests, garbage = self._requests, self._garbage
            if self._facts.active:
                self._facts.note(op, args, None, out, ONE_TENSOR, autocast)
            requests.seq = seq = requests.seq + 1  # as `Requests.begin`
            drop = garbage.take() if garbage.ids else ()
            frame = Frame(encode(Command(seq, op, args, out, flags, drop, None, autocast)), [])
            if self._core.serving is not None or self._owner.user is not requests.user:
                requests.check_user()  # as `Requests.send`
            exchange = requests.exchange
            if exchange is None:
                return requests.carry(seq, frame, False, drop, None, (out,))
            answer = exchange(frame)
            if answer.done == seq:
                return STORED
            return requests.received(seq, frame, answer, False, drop, None, (out,))

    def command(
        self,
        op: int,
        args: Any,
        kwargs: dict[str, Any] | None,
        out: int,
        buffers: list[torch.Tensor],
        expected: Returns | None = ONE_TENSOR,
    ) -> Any:
        """Run operation ``op`` at the other worker.

        ``expected`` is what the operation returns, stored under ``out`` and the ids that follow;
        None says that the caller cannot go on without the reply.  An ``out`` of 0 says that the
        result is an argument.  Returns ``STORED`` when the results are stored, a :class:`Pending`
        when nobody knows yet, ``Held`` from an open group, and otherwise what the operation
        returned.
        """
        with self.lock:  # as `exclusive`, which takes longer
            if self._groups.gradients.used:
                self._groups.gradients.note(op, args)
            if self._groups.open or buffers:
                held = self._hold(op, args, kwargs, out, buffers, expected)
                if held is not NOT_HELD:
                    return held
            flags, autocast, made = self._announced(out, expected)
            facts, requests, garbage = self._facts, self._requests, self._garbage
            if facts.active or op in CHANGING or kwargs and "out" in kwargs:
                facts.note(op, args, kwargs, out, expected, autocast)
            answered = expected is None
            failures = self._replies.failures if answered else None
            requests.seq = seq = requests.seq + 1  # as `Requests.begin`
            drop = garbage.take() if garbage.ids else ()
            message = Command(seq, op, args, out, flags, drop, kwargs, autocast, failures)
            frame = Frame(encode(message), buffers)
            exchange = requests.exchange  # as `Requests.send`
            if exchange is None:
                return requests.carry(seq, frame, answered, drop, None, made)
            answer = exchange(frame)
            if answer.done == seq:
                return STORED
            return requests.received(seq, frame, answer, answered, drop, None, made)

    def _announced(self, out: int, expected: Returns | None) -> tuple[int, Any, Collection[int]]:
        """The flags and the autocast state of a command of this line, and the ids of what it makes.

        The other end is told for whom it is.
        """
        if self._core.serving is not None or self._owner.user is not self._requests.user:
            self._requests.check_user()
        flags = GRAD_MODE if is_grad_enabled() else mode_without_grad()
        casting = get_default_dtype() is not float32 or any_autocast_enabled()  # as `modes`
        autocast = autocast_state() if casting else None
        if not out:
            return flags, autocast, ()
        if expected is ONE_TENSOR:
            return flags | _EXPECTED, autocast, (out,)
        if expected is None:
            return flags, autocast, (out,)
        flags |= expected.count << COUNT_SHIFT | IN_CONTAINER * (expected.container is not None)
        return flags, autocast, range(out, out + max(1, expected.count))

    def exchanged(self, seq: int, header: bytes, drop: tuple[int, ...], out: int) -> Any:
        """What :meth:`make` returns of a command that is written already,
        to a worker that answers within the call."""
        frame = Frame(header, [])
        answer = cast(Callable[[Frame], Frame], self._requests.exchange)(frame)
        if answer.done == seq:
            return STORED
        return self._requests.received(seq, frame, answer, False, drop, None, (out,))

    def results(self, value: Any, out: int, expected: Returns | None, fresh: bool = False) -> Any:
        """What a call returns whose :meth:`command` gave back ``value``.

        That is the value itself, or pointers to the objects ``out`` and following in the container
        that ``expected`` says.  ``fresh`` says that none of them can be an argument of the call.

        >>> operations = hook.local_worker.connection_to(bob).operations
        >>> operations.results("what came back", 7, None)
        'what came back'
        """
        if type(value) is Held:
            pointers: list[Any] = value
        elif value is STORED or type(value) is Pending:
            count = 1 if expected is None else expected.count
            pointers = [self._pointers.pointer(id) for id in range(out, out + count)]
        else:
            return value
        for pointer in pointers:
            link = pointer.child
            link.may_be_argument = not fresh
            if type(value) is Pending:
                link.pending = value
        return pointers[0] if expected is None else expected.build(pointers)

    def run(
        self,
        key: Hashable,
        definition: Callable[[], Definition],
        inputs: Sequence[Any],
        results: int = 1,
        answered: bool = False,
        first: int | None = None,
        mode: tuple[int, Any] | None = None,
    ) -> tuple[int, Any]:
        """Run what ``key`` names at the other worker, on ids of objects there, numbers and values.

        ``definition`` makes what it names, and is called only when the other end does not know it.
        The ``results`` are stored under ``first`` (drawn here if None) and the ids that follow.
        ``mode`` is a pair of flags and autocast, if it is not that of the caller.
        Returns the first id, and what :meth:`command` would: ``STORED`` when all results are
        tensors, a :class:`Pending` when nobody knows yet, and otherwise a tuple of the results.
        """
        with self.lock:  # as `exclusive`, which takes longer
            if RECORDING.get() is not None:
                self._requests.check_not_recording(Run.verb)
            if self._groups.open:
                self._groups.send()
                self._groups.send_elsewhere(inputs)
            if mode is None:  # not the commands of a group, which are noted
                self._facts.forget()
                mode = modes()
            if self._transport.replies:
                self._replies.read()  # the numbers may have been forgotten
            if first is None:
                first = new_id() if results == 1 else first_id(results)
            try:
                seq, frame, drop = self._run_frame(
                    key, definition, inputs, first, results, mode, answered
                )
                made = range(first, first + results)
                return first, self._requests.send(seq, frame, answered, drop, key, made)
            except Exception:
                self._replies.calls.forget(key)
                raise

    def _run_frame(
        self,
        key: Hashable,
        definition: Callable[[], Definition],
        inputs: Sequence[Any],
        first: int,
        results: int,
        mode: tuple[int, Any],
        answered: bool,
    ) -> tuple[int, Frame, tuple[int, ...]]:
        flags, autocast = mode[0] | results << COUNT_SHIFT, mode[1]
        serving = self._core.serving
        user = self._owner.user if serving is None else serving.user
        if user != self._replies.calls.user:
            self._replies.calls.clear()
            self._replies.calls.user = user
        entry = self._replies.calls.find(key)
        define: Any = None
        buffers: list[torch.Tensor] = []
        if entry is not None and entry.bare:
            changes = entry.differences(inputs)
        else:
            packer = Packer(worker=self._core, gradients=True)
            if entry is None:
                made = definition()
                define = pack(made, packer)
                entry = self._replies.calls.define(key, made)
            changes = self._replies.calls.changes(entry, inputs, packer)
            buffers = packer.buffers
        failures = self._replies.failures if answered else None
        seq, drop = self._requests.begin()
        dropped = ranges(drop) if len(drop) > 2 else drop
        message = Run(seq, entry.number, changes, first, flags, dropped, define, autocast, failures)
        return seq, Frame(encode(message), buffers), drop

    def _hold(
        self,
        op: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        out: int,
        buffers: list[torch.Tensor],
        expected: Returns | None,
    ) -> Any:
        """Have the open group hold a command back, unless it must be answered now.

        Without one, a command with enough tensor data makes a group of its own, if it goes to a
        queued worker: when it comes again, data that is as it was need not travel.  An immediate
        worker gets it as it is, since looking for what differs takes longer than a copy.
        """
        group = self._groups.current
        self._groups.send_elsewhere((args, *(kwargs or {}).values()))
        made_here = expected if out else None
        if group is not None and expected is not None and self.may_wait(group):
            mode = modes()
            made = group.hold(op, args, kwargs, made_here, buffers, mode)
            if made is not NOT_HELD:
                self._note_held(op, args, kwargs, made, mode[1])
            return made
        self._groups.send()
        if expected is None or not self._is_worth_a_number(buffers):
            return NOT_HELD
        with self._groups.new() as own:
            return own.hold(op, args, kwargs, made_here, buffers, modes())

    def _is_worth_a_number(self, buffers: list[torch.Tensor]) -> bool:
        """Whether a command has enough data to make a group of its own."""
        size = sum(buffer.numel() for buffer in buffers)
        return self._transport.queued and size in _WORTH_NUMBERING

    def may_wait(self, group: MessageGroup) -> bool:
        """Whether an operation may be held back: not in a lazy group while a worker serves, and not
        where one operation would wait for what another one of the same message needs."""
        if not group.lazy:
            return True
        if self._core.serving is not None or self._replies.moves.by_id:
            return False
        owners = self._garbage.owners
        if owners and not owners.keys() <= set(self._pointers.contents.values()):
            return False  # something is promised
        return not self._replies.waits

    def _note_held(
        self,
        op: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        made: Held,
        autocast: Any,
    ) -> None:
        """Note a command that a group holds, which chose the ids of its results."""
        if not (self._facts.active or self._facts.changes(op, kwargs)):
            return
        out = made[0].child.id_at_location if made else 0
        expected = ONE_TENSOR if len(made) == 1 else Returns(None, (True,) * len(made))
        passes = self._facts.passes
        self._facts.note(op, args, kwargs, out, expected, autocast)
        group = self._groups.current
        if FLAGS[op] & GRADIENT and group is not None:
            group.note_backward(passes)

    def fact(self, op: int, id: int) -> Any:
        """The answer to a question about the kind of an object at the other end (its dtype, how
        many dimensions it has), asked for only if it is not known.

        >>> x = torch.ones(2, 3).send(bob)
        >>> from syft.ops.table import number_of
        >>> x.child.connection.operations.fact(number_of(torch.Tensor.dim), x.id_at_location)
        2
        """
        with self.lock:  # as `exclusive`, which takes longer
            if RECORDING.get() is not None:
                self._requests.check_not_recording(f"{NAMES[op]} at")
            self._hear(open=True)
            answer = self._facts.known(op, id)
            if answer is not UNKNOWN:
                return answer
            self._replies.raise_unseen()
            losses = self._facts.losses
            answer = self.command(op, ((REF, id),), None, new_id(), [], None)
            if losses == self._facts.losses:
                self._facts.learn(op, id, answer)
            return answer

    def returned(self, op: int, args: Any, kwargs: dict[str, Any] | None) -> Returns | None:
        """What an operation returns that cuts a tensor into pieces; None if that has to be asked.

        >>> operations = hook.local_worker.connection_to(bob).operations
        >>> operations.returned(0, (), None)
        """
        with self.lock:
            self._hear(open=True)
            count = self._facts.pieces(op, args, kwargs or {})
        return None if count is None or count > MOST else Returns(tuple, (True,) * count)

    @exclusive
    def are_strided(self, ids: Iterable[int]) -> bool:
        """Whether all of these are known to be strided tensors on the CPU."""
        self._hear()
        return self._facts.all_strided(ids)

    @exclusive
    def are_of_dtypes(self, ids: Iterable[int], dtypes: Container[torch.dtype]) -> bool:
        """Whether all of these are known to be such tensors, of one of these dtypes."""
        self._hear()
        return self._facts.all_of_dtypes(ids, dtypes)

    def gradient(self, link: Any) -> Any:
        """The gradient of the leaf behind a pointer: a pointer to it, or None.

        The gradients of all leaves that were asked for over this connection are asked for together,
        and again only after something may have changed them.
        """
        with self.lock:  # as `exclusive`, which takes longer
            self._hear(open=True)
            answer = self._facts.gradient(link)
            return self._asked_gradient(link) if answer is UNKNOWN else answer

    def _asked_gradient(self, link: Any) -> Any:
        """The same, asked for now."""
        self._replies.raise_unseen()
        losses, leaves = self._facts.losses, self._facts.leaves_with(link)
        ids = [leaf.id_at_location for leaf in leaves]
        self._groups.send_elsewhere(ids)
        try:
            group = self._groups.current
            if group is None:
                answers = self._ask_gradients(ids)
            else:
                answers = group.ask_gradients(leaves, modes())
        except ObjectNotFound:  # of another leaf, perhaps
            if len(leaves) == 1:
                raise
            self._facts.forget_leaves()
            return self.gradient(link)
        if losses != self._facts.losses:
            return answers[0][1]
        self._facts.answered()
        for leaf, (kind, gradient) in zip(leaves, answers, strict=True):
            if gradient is not None:
                gradient.child.connection = leaf.connection  # it is on the same device
            self._facts.set_gradient(leaf, gradient)
            if kind == LIKE_LEAF:
                self._facts.alike(gradient.child.id_at_location, leaf.id_at_location)
        return answers[0][1]

    def _ask_gradients(self, ids: Sequence[int]) -> list[tuple[int, Any]]:
        """The kind of gradient that each of these leaves has, and a pointer to it."""
        first = first_id(len(ids))
        made = range(first, first + len(ids))
        seq, drop = self._requests.begin()
        message = Gradients(seq, tuple(ids), first, drop, self._replies.failures)
        kinds = self._requests.send(seq, Frame(encode(message), []), True, drop, None, made)
        if type(kinds) is not bytes or len(kinds) != len(ids):
            raise MalformedMessage("$.value", f"{len(ids)} kinds as bytes", repr(kinds))
        return [
            (kind, None if kind == NO_GRADIENT else self._pointers.resolve(id))
            for id, kind in zip(made, kinds, strict=True)
        ]

    def gradients_crossed(self) -> None:
        """Forget what is known of gradients everywhere: a backward pass has gone on from worker to
        worker, and what the others say of that may come later than the answer."""
        for connection in self._owner.connections():
            connection.facts.forget_gradients()

    @exclusive
    def clear_gradients(self, leaves: Sequence[Any]) -> None:
        """Take away the gradients of these leaves, of those that may have one, in one message."""
        self._hear()
        group = self._groups.current
        if group is not None and self.may_wait(group):
            self._requests.check_open()
            for link in leaves:  # first: nobody wants what they were
                self._facts.set_gradient(link, None)
            group.clear_gradients(leaves, modes())  # of all: the first step is as the others
            return
        self._groups.send()
        links = [link for link in leaves if self._facts.gradient(link) is not None]
        if not links:
            return
        self._requests.check_open()
        seq, drop = self._requests.begin()
        message = ClearGradients(seq, tuple([link.id_at_location for link in links]), drop)
        value = self._requests.send(seq, Frame(encode(message), []), False, drop)
        for link in links:
            self._facts.set_gradient(link, None)
            if type(value) is Pending:
                link.pending, link.asked = value, None

    def _hear(self, open: bool = False) -> None:
        """Take in what the other end has said without being asked; what it told one user is not for
        another.  Raises :class:`~syft.exceptions.WorkerClosed` of a worker that should be ``open``.
        """
        transport = self._transport
        if open and transport.closed:
            self._requests.check_open()
        if self._core.serving is not None or self._owner.user is not self._requests.user:
            self._requests.check_user()
        if transport.collects:
            transport.collect()
        if transport.replies:
            self._replies.read()
