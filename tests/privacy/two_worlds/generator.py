"""Random programs of an observer, on public and private objects, drawn from a seed.

A program is a short life of two worlds: some objects, some twenty commands, questions in between,
and at the end questions about everything.  Nine of ten commands are of torch's own samples, laid
onto stored objects with at least one private one among them, at a random place.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch

from syft.chain.wrapper import Wrapper
from syft.codes import ErrorCode
from syft.exceptions import NotSendable, SyftError
from syft.ops.nested import leaves, replace
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.wire import messages
from syft.workers.wire.references import Reference
from tests.privacy.two_worlds import sizes_and_streams
from tests.privacy.two_worlds.beside_values import BESIDE_VALUES
from tests.privacy.two_worlds.biased_operands import BIASED, sweep
from tests.privacy.two_worlds.between_workers import NAMED, collective, follow, travel
from tests.privacy.two_worlds.observer import Failed, Observer
from tests.privacy.two_worlds.on_shares import ON_SHARES
from tests.privacy.two_worlds.programs import random_group
from tests.privacy.two_worlds.samples import MOST_ELEMENTS, Sample, Samples, is_repeatable
from tests.privacy.two_worlds.values import failing_values, other_than
from tests.privacy.two_worlds.vocabulary import (
    BASICS,
    FAILING,
    KINDS,
    METADATA_NAMES,
    SAFE_NAMES,
    TOUCHES,
    VIEWS,
    WRITES,
)
from tests.privacy.two_worlds.whole_objects import whole_object_message
from tests.privacy.two_worlds.world import OBSERVER, READER, TwoWorlds

COMMANDS = 24
"""The commands of one program."""
GRADIENTS, CHAINS, LIMITS = "on private gradients", "on private chains or plans", "at a limit"
"""What the commands are counted by: those that succeed on something private that has a graph or a
gradient; on a private chain, or as a program; and those that reach a limit, or just do not."""
PROGRAMS = ("plan", "group", "program")


class RandomProgram:
    """One program: its draws, and the observer who sends its requests."""

    def __init__(self, both: TwoWorlds, samples: Samples, seed: str) -> None:
        self.both = both
        self.samples = samples
        self.rng = random.Random(seed)
        self.pool = samples.pool(seed)
        self.numbers = torch.Generator().manual_seed(self.rng.randrange(2**63))
        self.observer = Observer(both)
        self.destinations = self.rng.choice(NAMED)
        """The workers to which all that ann stores may go."""
        self.outcomes: list[tuple[str, bool, bool]] = []
        """Of each command: its name, whether an operand was private, and whether it succeeded."""
        self.covered: list[tuple[str, str, bool]] = []
        """Of each private operand: the operation, its place, and whether the command succeeded."""
        self.private_sizes: list[Reference] = []
        """Objects at bob whose shape is private."""
        self.kinds: set[tuple[str, str]] = set()
        """The layouts and dtypes of private objects, and the kinds of messages sent."""
        self.marks = Counter[str]()
        """How many commands were of the kinds that matter."""
        self.of_reader = 0.3 if self.rng.random() < 0.25 else 0.0
        """The share of what is not ann's that only another user of the observer's may read."""
        self.results: list[tuple[str, int]] = []
        """The private results, with the command that made each."""

    # -------------------------------------------------------------------------------- objects

    def here(self, id: int, worker: str = "bob") -> torch.Tensor | None:
        """An object as it is in the first world: only for choosing what comes next.

        A pointer is none: to look at it would send requests in the first world alone.
        """
        found = self.both.worlds[0].workers[worker].core.store.objects.get(id)
        return found if isinstance(found, torch.Tensor) and type(found) is not Wrapper else None

    def has_gradient(self, id: int, worker: str = "bob") -> bool:
        """Whether an object is a leaf with a gradient; torch refuses to say of some views."""
        tensor = self.here(id, worker)
        try:
            return tensor is not None and tensor.is_leaf and tensor.grad is not None
        except RuntimeError:
            return False

    def some(self, worker: str = "bob") -> Reference | None:
        """A stored object that is not too large to compute with."""
        known = self.observer.known.get(worker, [])
        for _ in range(8):
            id = self.rng.choice(known) if known else 0
            tensor = self.here(id, worker)
            if tensor is not None and tensor.numel() <= MOST_ELEMENTS:
                return Reference(id)
        return None

    def put(
        self, tensor: torch.Tensor, private: bool, worker: str = "bob", bad: float = 0.15
    ) -> Reference:
        """Store a copy of a tensor, with another value in the second world if it is private.

        ``bad`` is the chance that the value of one world makes many operations fail.
        """
        if not private:
            for_all = self.rng.random() >= self.of_reader
            made = self.observer.public if for_all else self.observer.of_reader
            return made(tensor, worker)
        self.kinds |= {("layout", str(tensor.layout)), ("dtype", str(tensor.dtype))}
        other = other_than(tensor, self.rng, self.numbers)
        if self.rng.random() < bad:
            worlds = [tensor, failing_values(tensor)]
            self.rng.shuffle(worlds)
            tensor, other = worlds
        named = () if worker == OBSERVER else self.destinations
        return self.observer.secret(tensor, other, worker, named)

    def own(self, reference: Reference) -> Reference:
        """A copy of an object that belongs to the observer, and is as private."""
        if reference.id not in self.observer.private:
            return reference
        copy = self.observer.call("torch.Tensor.clone", reference, count=1)
        return copy if isinstance(copy, Reference) else reference

    def put_basics(self) -> None:
        """Objects of the usual kinds, public and private."""
        for private in (False, True):
            for make in BASICS:
                if self.rng.random() < 0.4:
                    self.put(make(), private)
        for make in self.rng.sample(KINDS, 4):
            self.put(make(), self.rng.random() < 0.8)

    # ------------------------------------------------------------------------------- commands

    def run(self) -> None:
        """The whole program, or up to the first difference."""
        self.put_basics()
        while len(self.outcomes) < COMMANDS and self.both.difference is None:
            action = self.rng.choices(ACTIONS, WEIGHTS)[0]
            try:
                action(self)
            except (NotSendable, ValueError, SyftError):  # a sample that no message can carry
                self.outcomes.append(("", False, False))
        sweep(self)
        self.look()
        self.both.compare_shown()
        self.note_messages()

    def note_messages(self) -> None:
        """Write down the kinds of the messages that were sent."""
        for request in self.both.requests:
            self.kinds.add(("message", type(messages.decode(request.header)).__name__))

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        """Run an operation and write down what became of it."""
        observer = self.observer
        references = [leaf for leaf in leaves((args, options)) if isinstance(leaf, Reference)]
        inputs = {reference.id for reference in references}
        private = not inputs.isdisjoint(observer.private)
        if not inputs.isdisjoint(observer.readers) and self.rng.random() < 0.7:
            options.setdefault("sender", READER)
        result = observer.call(name, *args, **options)
        succeeded = not isinstance(result, Failed)
        self.note(name, private, result, references, options.get("worker", "bob"))
        if private and self.both.requests:
            places = self.both.requests[-1].positions
            self.covered += [(name, place, succeeded) for place in places]
            self.results += [
                (name, leaf.id) for leaf in leaves(result) if isinstance(leaf, Reference)
            ]
        return result

    def call_at_limit(self, name: str, *args: Any, **options: Any) -> Any:
        """The same of a command that was chosen to fit a limit, or just not."""
        before = self.marks[LIMITS]
        result = self.call(name, *args, **options)
        self.marks[LIMITS] = before + 1
        return result

    def note(
        self,
        kind: str,
        private: bool,
        answer: Any,
        inputs: Iterable[Reference] = (),
        worker: str = "bob",
    ) -> None:
        """Write down what became of a command, by its answer."""
        failed = isinstance(answer, Failed)
        self.outcomes.append((kind, private, not failed))
        if failed:
            self.marks[LIMITS] += answer.code == int(ErrorCode.LIMIT_EXCEEDED)
        elif private:
            objects = self.both.worlds[0].workers[worker].core.store.objects
            found = [objects.get(it.id) for it in inputs]
            hers = [objects.get(it.id) for it in inputs if it.id in self.observer.private]
            self.marks[GRADIENTS] += any(map(_has_gradients, hers))
            self.marks[CHAINS] += kind in PROGRAMS or any(type(it) is Wrapper for it in found)

    def laid_out(
        self, sample: Sample, place: str | None = None, owned: bool | None = None
    ) -> Sample:
        """The sample with stored objects for its tensors, at least one of them private: the first
        one in this place, if one is given."""
        tensors = sample.tensors()
        share = self.rng.choice((0.2, 0.5, 1.0)) if is_repeatable(sample.name) else 1.0
        sure = self.rng.randrange(len(tensors)) if self.rng.random() < 0.9 else -1
        if place is not None:
            sure = sample.first_in(place)
        # She may write to no private object but her own.
        if owned is None:
            owned = self.rng.random() < (0.8 if sample.name.endswith("_") else 0.15)
        index = -1

        def placed(leaf: Any) -> Any:
            nonlocal index
            if not isinstance(leaf, torch.Tensor):
                return leaf
            index += 1
            stored = self.put(leaf, index == sure or self.rng.random() < share)
            return self.own(stored) if owned else stored

        args, kwargs = replace((sample.args, sample.kwargs), placed)
        return Sample(sample.name, args, kwargs)

    def failing(self) -> None:
        """A call that fails in one of the worlds for the values that it is given."""
        name = self.rng.choice([name for name in FAILING if name in self.samples.forms])
        sample = self.samples.draw(self.rng, name)
        if sample is not None:
            args, kwargs = replace(
                (sample.args, sample.kwargs),
                lambda leaf: (
                    self.put(leaf, True, bad=0.7) if isinstance(leaf, torch.Tensor) else leaf
                ),
            )
            self.call(name, *args, **kwargs)

    def from_samples(self) -> None:
        """A call of torch's samples, sometimes changed so that it fails or writes elsewhere."""
        sample = self.rng.choice(self.pool)
        for leaf in leaves((sample.args, sample.kwargs)):
            if not isinstance(leaf, torch.Tensor):
                pack(leaf, Packer())  # raises for what cannot travel, before anything is stored
        laid = self.laid_out(sample)
        args, kwargs = list(laid.args), dict(laid.kwargs)
        change = self.rng.random()
        target = self.some()
        if change < 0.08 and target is not None and "out" not in kwargs:
            self._write_to(target, kwargs)
        elif change < 0.14 and target is not None:
            args[self.rng.randrange(len(args))] = target
        elif change < 0.16:
            args.append(self.rng.choice((0, -1, 7, None, True, 2.5)))
        writes = sample.name.endswith("_")
        grad = self.rng.random() < (0.4 if writes else 0.85)
        self.call(sample.name, *args, grad=grad, **{k: v for k, v in kwargs.items()})

    def view(self) -> None:
        """A view, a copy or an attribute of an object."""
        target = self.some()
        if target is not None:
            name, args = self.rng.choice(VIEWS)
            more = (target,) if name.endswith("_as") else args
            self.call(name, target, *more)

    def write(self) -> None:
        """One object written into another."""
        target, source = self.some(), self.some()
        if target is not None and source is not None:
            name = self.rng.choice(WRITES)
            self.call(name, target, source, grad=self.rng.random() < 0.5)

    def touch(self) -> None:
        """A change of one object by itself."""
        target = self.some()
        if target is not None:
            self.call(self.rng.choice(TOUCHES), target, grad=self.rng.random() < 0.5)

    def backward(self) -> None:
        """A backward pass from an object that has a graph, if there is one."""
        roots = [
            id
            for id in self.observer.known["bob"]
            if (tensor := self.here(id)) is not None
            and tensor.requires_grad
            and not tensor.is_nested  # ones of its shape have none
            and (tensor.is_floating_point() or tensor.is_complex())
        ]
        if not roots:
            return
        # The later ones are results, and the last graph was probably not freed yet.
        root = Reference(self.rng.choice(roots[-6:]))
        tensor = self.here(root.id)
        assert tensor is not None
        start = self.put(torch.ones(tensor.shape, dtype=tensor.dtype), self.rng.random() < 0.3)
        options: dict[str, Any] = {
            key: True for key in ("retain_graph", "create_graph") if self.rng.random() < 0.3
        }
        if self.rng.random() < 0.7:
            self.call("torch.Tensor.backward", root, start, **options)
        else:
            leaf = Reference(self.rng.choice(roots))
            self.call("torch.autograd.grad", root, leaf, start, allow_unused=True, **options)

    def anything(self) -> None:
        """Any operation of the table on anything."""
        name = self.rng.choice(SAFE_NAMES)
        args = [self._argument() for _ in range(self.rng.choice((1, 1, 2, 2, 3)))]
        args[0] = self.some() or args[0]
        if not any(isinstance(leaf, Reference) for leaf in leaves(args)):
            return
        target = self.some() if self.rng.random() < 0.15 else None
        options: dict[str, Any] = {}
        if target is not None:
            self._write_to(target, options)
        self.call(name, *args, **options)

    def _write_to(self, target: Reference, options: dict[str, Any]) -> None:
        """Have a call write its result to an object that is there.

        Not so where the secrets are alike: a call that fails leaves the target enlarged, with
        freed memory in it, which differs between the worlds without a secret.
        """
        if not self.both.alike:
            options["out"] = target

    def _argument(self, depth: int = 0) -> Any:
        draw = self.rng.random()
        if draw < 0.7:
            return self.some() or 1
        if draw < 0.9 or depth:
            return self.rng.choice((0, 1, 2, 3, -1, 0.5, True, False, None, "mean"))
        return [self._argument(1) for _ in range(self.rng.randint(1, 3))]

    def metadata(self) -> None:
        """A question about something."""
        target = self.some()
        if target is not None:
            self.call(self.rng.choice(METADATA_NAMES), target)

    def group(self) -> None:
        """Several operations in one message, or as a plan, perhaps with a branch."""
        made = random_group(self.rng, self.pool)
        if made is None:
            return
        inputs = [self.put(tensor, self.rng.random() < 0.4) for tensor in made.inputs]
        private = any(reference.id in self.observer.private for reference in inputs)
        kind, run = self.rng.choice((("group", self.observer.group), ("plan", self.observer.plan)))
        result = run(made.program, inputs, made.results)
        failed = isinstance(result, Failed)
        self.note(kind, private, result, inputs)
        if private:
            self.covered.append((kind, "inputs", not failed))
            if not failed:
                self.results += [(kind, reference.id) for reference in result]

    def whole_object(self) -> None:
        """A request about a whole object: move, copy, take away, tag."""
        target = self.some()
        if target is None:
            return
        observer = self.observer
        other = (self.some() or target).id
        message, packer = whole_object_message(observer, self.rng, target.id, other)
        private = target.id in observer.private
        kind = type(message).__name__
        answer = observer.request(message, packer, op=kind)
        self.note(kind, private, answer, (target,))

    def promised(self) -> None:
        """A command that waits for an object that comes later."""
        observer = self.observer
        target = self.some()
        if target is None:
            return
        id = observer.id()
        observer.request(messages.Promise(observer.count(), (id,)))
        self.call("torch.Tensor.mul", Reference(id), target)
        packer = Packer()
        operand = pack(torch.ones(1), packer)
        observer.request(messages.Put(observer.count(), id, operand), packer)

    # ------------------------------------------------------------------------------ questions

    def ask(self) -> None:
        """Questions about a few objects, in the middle."""
        known = self.observer.known["bob"]
        self.look([id for id in known if self.rng.random() < 0.05])

    def look(self, among: Iterable[int] | None = None) -> None:
        """Questions about the public objects, and about some of the private ones: what is private
        or not there makes an error with a traceback, so that is asked for less often."""
        observer, rng = self.observer, self.rng
        for worker, known in list(observer.known.items()):
            for id in dict.fromkeys(known) if among is None else among:
                there = all(id in w.workers[worker].core.store.objects for w in self.both.worlds)
                expected = there and id not in observer.private
                if rng.random() < (1 if expected else 0.08 if there else 0.01):
                    chance = 0.9 if id in observer.readers else 0.3
                    sender = READER if rng.random() < chance else OBSERVER
                    observer.fetch(id, worker, sender=sender)
                if there and rng.random() < 0.15:
                    self._look_closer(id, worker)

    def _look_closer(self, id: int, worker: str) -> None:
        ways: tuple[Callable[[], object], ...] = (
            lambda: self.observer.describe(id, worker),
            lambda: self.observer.gradient(id, worker),
            lambda: self.observer.call(
                self.rng.choice(METADATA_NAMES), Reference(id), worker=worker
            ),
        )
        self.rng.choice(ways)()


def _has_gradients(value: Any) -> bool:
    """Whether a plain tensor has a graph or a gradient."""
    if not isinstance(value, torch.Tensor) or type(value) is Wrapper:
        return False
    return value.requires_grad or (value.is_leaf and value.grad is not None)


ACTIONS: tuple[Callable[[RandomProgram], None], ...] = (
    RandomProgram.from_samples,
    RandomProgram.failing,
    RandomProgram.backward,
    RandomProgram.view,
    RandomProgram.write,
    RandomProgram.touch,
    RandomProgram.anything,
    RandomProgram.metadata,
    RandomProgram.group,
    RandomProgram.whole_object,
    collective,
    RandomProgram.promised,
    RandomProgram.ask,
    travel,
    follow,
    *sizes_and_streams.ACTIONS,
    *(action for action, _ in (*BESIDE_VALUES, *BIASED, *ON_SHARES)),
)
WEIGHTS = (
    *(44, 54, 8, 7, 7, 5, 6, 2, 4, 3, 1, 1, 1, 2, 2),
    *sizes_and_streams.WEIGHTS,
    *(often for _, often in (*BESIDE_VALUES, *BIASED, *ON_SHARES)),
)
