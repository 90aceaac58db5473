"""What an observer can do, one call a request: the vocabulary of attacks and of random programs.

Every call builds one frame, which both worlds are sent.  Objects are named by
:class:`~syft.workers.wire.references.Reference`, ids are counted, so the frames depend on nothing
but the calls and what the observer was answered in the first world (which is the same in the
second one, or there is a difference already).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from inspect import Parameter, Signature
from typing import Any

import torch

from syft.codes import CollectiveCode
from syft.ops.calls import mutated_argument
from syft.ops.nested import leaves
from syft.ops.table import BY_NAME, FLAGS
from syft.plans.building.input_properties import Fixed
from syft.plans.building.interface import Blueprint, Interface
from syft.plans.building.template import TENSOR
from syft.plans.remote.plan_call import PlanCall
from syft.plans.remote.stored_plan import StoredPlan
from syft.program.program import Program, Slot
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack
from syft.workers.wire import messages
from syft.workers.wire.definitions import Definition, Group, InputKind
from syft.workers.wire.messages import COUNT_SHIFT, GRAD_MODE, Message
from syft.workers.wire.references import Reference
from syft.workers.wire.terms import Terms
from tests.privacy.two_worlds.shown import is_list, shown
from tests.privacy.two_worlds.world import (
    OBSERVER,
    OWNER,
    READER,
    REPLY,
    Note,
    Request,
    TwoWorlds,
)

FAR = 100
"""The distance between the ids of two results: enough for those that follow the first one."""

BASIC = (
    "torch.Tensor.shape.__get__",
    "torch.Tensor.dtype.__get__",
    "torch.Tensor.requires_grad.__get__",
    "torch.Tensor.is_leaf.__get__",
    "torch.Tensor.stride",
    "torch.Tensor.storage_offset",
)
"""What the observer asks of every object at the end."""


DONE = object()
"""The answer to a request that succeeded with nothing to add."""


class Failed:
    """The answer to a request that failed, with the number of the exception's class."""

    def __init__(self, code: int) -> None:
        self.code = code


class _Named:
    """Leaves references in a reply as they are."""

    @staticmethod
    def resolve(id: int, depth: int = 0) -> Reference:
        return Reference(id, depth)


class Observer:
    """Sends requests to two worlds, mostly as the observer, and sometimes as the owner."""

    def __init__(self, both: TwoWorlds, guarded: bool = True) -> None:
        self.both = both
        self.guarded = guarded
        """Whether the owner says that her tensors are private."""
        self.seq = 0
        self.next_id = 1000
        self.known: dict[str, list[int]] = {}
        """The ids that she can name, by worker."""
        self.private: set[int] = set()
        """Those among them that should be private; for reports, and to save questions."""
        self.readers: set[int] = set()
        """Those that she may read as another user alone."""
        self.numbers = Counter[str]()
        """How many programs she has had each worker run."""

    # ------------------------------------------------------------------------------- requests

    def id(self, worker: str = "bob") -> int:
        """A fresh id."""
        self.next_id += FAR
        self.known.setdefault(worker, []).append(self.next_id)
        return self.next_id

    def request(
        self,
        message: Message,
        packer: Packer | None = None,
        others: Sequence[torch.Tensor] | None = None,
        worker: str = "bob",
        sender: str = OBSERVER,
        **about: Any,
    ) -> Any:
        """Send one message; returns the value of the reply, or :class:`Failed`."""
        buffers = () if packer is None else tuple(buffer.clone() for buffer in packer.buffers)
        if "text" not in about:
            about["text"] = str(message)[:200]
        request = Request(
            worker,
            sender,
            messages.encode(message),
            buffers,
            None if others is None else tuple(buffer.clone() for buffer in others),
            **about,
        )
        received = self.both.send(request)
        if sender == OWNER:
            return None
        return self._value(received, getattr(message, "seq", 0))

    def _value(self, received: Iterable[Note], seq: int) -> Any:
        replies = [messages.decode(note[1]) for note in received if note[0] is REPLY]
        for reply in replies:
            if getattr(reply, "seq", None) == seq:
                if isinstance(reply, messages.Failure):
                    return Failed(reply.error[1])
                return self._unpacked(reply.value) if isinstance(reply, messages.Value) else DONE
        return DONE

    def _unpacked(self, operand: Any) -> Any:
        try:
            return unpack(operand, Unpacker([], worker=_Named))
        except Exception:  # a value with buffers: she has its bytes in the transcript
            return None

    def count(self) -> int:
        """The next sequence number."""
        self.seq += 1
        return self.seq

    # -------------------------------------------------------------------------------- objects

    def public(self, tensor: torch.Tensor, worker: str = "bob") -> Reference:
        """The observer stores a tensor of hers."""
        packer = Packer()
        id = self.id(worker)
        operand = pack(tensor, packer)
        self.request(
            messages.Put(self.count(), id, operand),
            packer,
            worker=worker,
            text=f"{id} = {tensor.dtype} {tuple(tensor.shape)} (public)",
        )
        return Reference(id)

    def of_reader(self, tensor: torch.Tensor, worker: str = "bob") -> Reference:
        """The observer stores a tensor as another user, who alone may read it."""
        packer, id = Packer(), self.id(worker)
        message = messages.Put(self.count(), id, pack(tensor, packer), users=(READER,))
        text = f"{id} = {tensor.dtype} {tuple(tensor.shape)} (for {READER})"
        self.request(message, packer, worker=worker, sender=READER, text=text)
        self.readers.add(id)
        return Reference(id)

    def secret(
        self,
        one: torch.Tensor,
        other: torch.Tensor,
        worker: str = "bob",
        destinations: tuple[str, ...] = (),
    ) -> Reference:
        """The owner stores a private tensor, which differs between the worlds in its values, and
        which may go to the workers ``destinations``.

        If she does not say that it is private, the observer does not ask for its value either.
        """
        id = self.id(worker)
        if not self.guarded:
            self.known[worker].remove(id)
        return self.secret_under(id, one, other, worker, destinations)

    def secret_under(
        self,
        id: int,
        one: torch.Tensor,
        other: torch.Tensor,
        worker: str = "bob",
        destinations: tuple[str, ...] = (),
    ) -> Reference:
        """The same, under an id that was promised."""
        packer, second = Packer(), Packer()
        self.private.add(id)
        users = (OWNER,) if self.guarded else None
        terms = Terms(destinations) if destinations and self.guarded else None
        label: dict[str, Any] = {"users": users, "terms": terms}
        message = messages.Put(self.count(), id, pack(one, packer), **label)
        again = messages.Put(self.seq, id, pack(other, second), **label)
        if messages.encode(message) != messages.encode(again):
            raise ValueError("the two secrets differ in more than their values")
        self.request(
            message,
            packer,
            second.buffers,
            worker=worker,
            sender=OWNER,
            text=f"{id} = {one.dtype} {tuple(one.shape)} (private)",
        )
        return Reference(id)

    def allow(
        self, private: Reference, destinations: tuple[str, ...], worker: str = "bob"
    ) -> Reference:
        """The owner makes a copy of a private tensor that may go to more workers."""
        id = self.id(worker)
        self.private.add(id)
        if not self.guarded:
            self.known[worker].remove(id)
        message = messages.Allow(self.count(), private.id, (), id, destinations)
        self.request(message, worker=worker, sender=OWNER)
        return Reference(id)

    def move(self, it: Any, to: str, at: str = "bob", grad: bool = False) -> Any:
        """Have one worker send an object to another; returns the reference, or :class:`Failed`."""
        if isinstance(it, Failed):
            return it
        message = messages.Move(self.count(), it.id, to, grad)
        answer = self.request(message, worker=at, op="move")
        self.known.setdefault(to, []).append(it.id)
        return answer if isinstance(answer, Failed) else it

    def call(
        self,
        name: str,
        *args: Any,
        grad: bool = True,
        count: int = 0,
        in_container: bool = False,
        worker: str = "bob",
        sender: str = OBSERVER,
        **kwargs: Any,
    ) -> Any:
        """Run an operation; returns its result, with references for tensors, or :class:`Failed`."""
        failed = next((leaf for leaf in leaves((args, kwargs)) if isinstance(leaf, Failed)), None)
        if failed is not None:
            return failed  # as a pointer to what failed would tell its user
        op = BY_NAME[name]
        packer = Packer()
        operands = tuple(pack(arg, packer) for arg in args)
        named = {key: pack(value, packer) for key, value in kwargs.items()} or None
        written = mutated_argument(FLAGS[op], args, kwargs)
        out = 0 if isinstance(written, Reference) or is_list(written) else self.id(worker)
        flags = (GRAD_MODE if grad else 0) | (count << COUNT_SHIFT) | (4 if in_container else 0)
        inputs = {leaf.id for leaf in leaves((args, kwargs)) if isinstance(leaf, Reference)}
        private = not inputs.isdisjoint(self.private)
        result = self.request(
            messages.Command(self.count(), op, operands, out, flags, (), named),
            packer,
            worker=worker,
            sender=sender,
            text=f"{name}{shown(args)}{shown(kwargs) if kwargs else ''} -> {out}",
            op=name,
            positions=tuple(self._private_positions(args, kwargs)) if private else (),
        )
        if private:
            self.private.update(
                [out], *([i.id for i in leaves(written) if isinstance(i, Reference)],)
            )
        if isinstance(result, Failed):
            return result
        if not out:
            return written
        found = [leaf.id for leaf in leaves(result) if isinstance(leaf, Reference)]
        self.known[worker].extend(id for id in found if id != out)
        if private:
            self.private.update(found)
        elif not inputs.isdisjoint(self.readers):
            self.readers.update([out, *found])
        return Reference(out) if result is DONE else result

    def _private_positions(self, args: Any, kwargs: dict[str, Any]) -> Iterable[str]:
        for place, value in [*enumerate(args), *kwargs.items()]:
            if any(
                isinstance(leaf, Reference) and leaf.id in self.private for leaf in leaves(value)
            ):
                yield str(place)

    def group(
        self,
        program: Program,
        inputs: Sequence[Reference | torch.Generator],
        results: int,
        worker: str = "bob",
    ) -> Any:
        """Run a program in one message; its results follow one another from the id returned."""
        definition = Group(_kinds(inputs), program)
        return self._run("group", definition, program, inputs, results, worker)

    def plan(
        self,
        program: Program,
        inputs: Sequence[Reference | torch.Generator],
        results: int,
        worker: str = "bob",
        fixed: Fixed = (),
    ) -> Any:
        """The same with a plan, which is stored first; ``fixed`` are properties that its inputs
        must have."""
        plan = self.stored_plan(program, results, worker, fixed)
        if isinstance(plan, Failed):
            return plan
        return self.run_plan(plan, program, inputs, results, worker)

    def stored_plan(
        self,
        program: Program,
        results: int,
        worker: str = "bob",
        fixed: Fixed = (),
        state: Sequence[torch.Tensor] = (),
    ) -> Any:
        """Store a plan; returns the reference, or :class:`Failed`."""
        packer, id = Packer(), self.id(worker)
        operand = pack(self._stored(program, results, fixed, state), packer)
        answer = self.request(
            messages.Put(self.count(), id, operand), packer, worker=worker, text=f"{id} = a plan"
        )
        return answer if isinstance(answer, Failed) else Reference(id)

    def secret_plan(
        self,
        program: Program,
        results: int,
        one: Sequence[torch.Tensor],
        other: Sequence[torch.Tensor],
    ) -> Reference:
        """The owner stores a plan with a private state, which differs between the worlds."""
        packers = Packer(), Packer()
        operands = [
            pack(self._stored(program, results, (), state), packer)
            for state, packer in zip((one, other), packers, strict=True)
        ]
        id = self.id()
        self.private.add(id)
        message = messages.Put(self.count(), id, operands[0], users=(OWNER,))
        text, others = f"{id} = a plan (private)", packers[1].buffers
        self.request(message, packers[0], others, sender=OWNER, text=text)
        return Reference(id)

    @staticmethod
    def _stored(
        program: Program, results: int, fixed: Fixed, state: Sequence[torch.Tensor]
    ) -> StoredPlan:
        count = program.inputs
        names = [f"x{index}" for index in range(count)]
        interface = Interface(
            "attack",
            Signature([Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]),
            {name: Slot(index) for index, name in enumerate(names)},
            (TENSOR,) * count,
            tuple(Slot(index) for index in range(results)),
            (TENSOR,) * results,
            state=tuple(f"w{index}" for index in range(len(state))),
            parameters=(True,) * len(state),
            fixed=fixed,
        )
        return StoredPlan(Blueprint(interface, program), [*state], set(), None)

    def run_plan(
        self,
        plan: Reference,
        program: Program,
        inputs: Sequence[Reference | torch.Generator],
        results: int,
        worker: str = "bob",
        sender: str = OBSERVER,
    ) -> Any:
        """Run a plan that is stored."""
        call = PlanCall(plan.id, _kinds(inputs))
        return self._run("plan", call, program, inputs, results, worker, sender)

    def state_of(self, plan: Reference, program: Program, worker: str = "bob") -> Any:
        """The state of a stored plan, under ids of its own."""
        return self._run("state", PlanCall(plan.id, None), program, (), program.state, worker)

    def write_plan(
        self,
        program: Program,
        inputs: Sequence[Reference],
        targets: Sequence[Reference],
        worker: str = "bob",
    ) -> Any:
        """Run a plan that writes its results to objects that are there."""
        plan = self.stored_plan(program, len(targets), worker)
        if isinstance(plan, Failed):
            return plan
        given = (*inputs, *targets)
        call = PlanCall(plan.id, (InputKind.REFERENCE,) * len(given), len(targets))
        return self._run("plan", call, program, given, 0, worker, grad=False)

    def _run(
        self,
        kind: str,
        definition: Definition,
        program: Program,
        inputs: Sequence[Reference | torch.Generator],
        results: int,
        worker: str,
        sender: str = OBSERVER,
        grad: bool = True,
    ) -> Any:
        packer = Packer()
        define = pack(definition, packer)
        out = self.id(worker)
        self.known[worker].extend(range(out + 1, out + results))
        self.numbers[worker] += 1
        plan = definition.id if isinstance(definition, PlanCall) else 0
        ids = [one.id for one in inputs if isinstance(one, Reference)]
        private = any(id in self.private for id in (plan, *ids))
        given = [one.id if isinstance(one, Reference) else pack(one, packer) for one in inputs]
        flags = (GRAD_MODE if grad else 0) | (results << COUNT_SHIFT)
        answer = self.request(
            messages.Run(self.count(), self.numbers[worker], given, out, flags, (), define),
            packer,
            worker=worker,
            sender=sender,
            text=f"a {kind} of {[one.name for one in program.actions]} on {shown(inputs)} -> {out}",
            op=kind,
            positions=("inputs",) if private else (),
        )
        if private:
            self.private.update(range(out, out + results))
            self.private.update(ids)
        return (
            answer if isinstance(answer, Failed) else [Reference(out + i) for i in range(results)]
        )

    def sum_private(self, inputs: dict[str, Reference], execution: int) -> list[int]:
        """Start a collective sum at each worker named; returns the ids of the results."""
        return self.start_sum(tuple(inputs), inputs, execution)

    def start_sum(
        self, parties: tuple[str, ...], inputs: dict[str, Reference], execution: int
    ) -> list[int]:
        """Start a sum at some workers, which are told of these parties."""
        outs = []
        for worker, reference in inputs.items():
            out, rank = self.id(worker), parties.index(worker)
            outs.append(out)
            operand = pack(reference, Packer())
            message = messages.Start(
                self.count(), int(CollectiveCode.SUM), execution, parties, rank, (operand,), (out,)
            )
            self.request(message, worker=worker, text=f"sum_private {parties} {reference.id}")
        if any(reference.id in self.private for reference in inputs.values()):
            self.private.update(outs)
        return outs

    # ------------------------------------------------------------------------------ questions

    def fetch(self, id: int, worker: str = "bob", depth: int = 0, sender: str = OBSERVER) -> Any:
        """Ask for a value, which stays where it is."""
        message = messages.Fetch(self.count(), id, depth, True)
        return self.request(message, worker=worker, sender=sender)

    def look(self) -> None:
        """Ask for everything about every object that she can name: values, metadata, gradients."""
        for worker, known in list(self.known.items()):
            for id in dict.fromkeys(known):
                if not isinstance(self.describe(id, worker), Failed):
                    self.fetch(id, worker)
                    for name in BASIC:
                        self.call(name, Reference(id), worker=worker)
                    self.gradient(id, worker)
            self.request(messages.Search(self.count(), ()), worker=worker)

    def describe(self, id: int, worker: str = "bob") -> Any:
        """Ask for tags, description and shape."""
        return self.request(messages.Describe(self.count(), id), worker=worker)

    def gradient(self, id: int, worker: str = "bob") -> None:
        """Ask for the gradient of a leaf, and look at it."""
        out = id + FAR // 2
        self.request(messages.Gradients(self.count(), (id,), out), worker=worker)
        self.fetch(out, worker)
        self.request(messages.Drop(0, (out,)), worker=worker)


def _kinds(inputs: Sequence[Reference | torch.Generator]) -> tuple[InputKind, ...]:
    return tuple(
        InputKind.REFERENCE if isinstance(one, Reference) else InputKind.VALUE for one in inputs
    )
