"""A backward pass that waits changes nothing about what the operations around it see.

The oracle is a second worker, which gets the same requests in the same order and waits for nothing,
since every promise is kept before the first.  Replies, values, gradients and graphs must come out
the same at the one that gets its inputs late, in any order.
"""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import syft as sy
from syft.ops.table import BY_NAME
from syft.workers.core.state_machine import WorkerCore
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import protect
from syft.workers.wire.messages import (
    GRAD_MODE,
    Cancel,
    Duplicate,
    Fetch,
    Message,
    Parked,
    decode,
)
from tests.workers.core.peers import ME, command, lonely, ref, sent

GIVEN = (1, 2, 3)
LATE = (8, 9)
LEAVES = (1, 2, 8)


def given(id: int) -> torch.Tensor:
    """What the object of an id is at first: small integers, exact in every order of addition."""
    tensor = torch.arange(1.0, 5.0) * (id % 4 + 1)
    return tensor.requires_grad_() if id in LEAVES else tensor


@contextmanager
def quiet() -> Iterator[None]:
    """Torch warns of the gradient of a tensor that is no leaf, and of graphs of graphs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Requests:
    """A random program as requests; results get ids from 100."""

    def __init__(self, draw: random.Random, length: int) -> None:
        self.draw = draw
        self.usable = [*GIVEN, *LATE]
        self.messages: list[Message] = []
        kinds = [name for name in dir(self) if name.startswith("make_")]
        for seq in range(10, 10 + length):
            self.seq = seq
            getattr(self, draw.choice(kinds))()

    def one(self) -> int:
        return self.draw.choice(self.usable)

    def out(self) -> int:
        self.usable.append(90 + self.seq)
        return self.usable[-1]

    def call(self, name: str, *args: Any, **fields: Any) -> None:
        self.messages.append(command(f"torch.Tensor.{name}", *args, seq=self.seq, **fields))

    def make_product(self) -> None:
        self.call("mul", ref(self.one()), ref(self.one()), out=self.out())

    def make_sum(self) -> None:
        self.call("add", ref(self.one()), ref(self.one()), out=self.out())

    def make_view(self) -> None:
        self.call("view", ref(self.one()), 4, out=self.out())

    def make_unknown_view(self) -> None:
        self.call("reshape", ref(self.one()), 4, out=self.out())

    def make_detached(self) -> None:
        self.call(self.draw.choice(["detach", "clone"]), ref(self.one()), out=self.out())

    def make_written(self) -> None:
        name = self.draw.choice(["add_", "mul_", "copy_"])
        flags = self.draw.choice([0, GRAD_MODE])
        self.call(name, ref(self.one()), ref(self.one()), flags=flags)

    def make_shared(self) -> None:
        name = self.draw.choice(["data.__set__", "set_"])
        self.call(name, ref(self.one()), ref(self.one()))

    def make_setting(self) -> None:
        name = self.draw.choice(["retain_grad", "requires_grad_", "detach_"])
        self.call(name, ref(self.one()))

    def make_backward(self) -> None:
        options = {"retain_graph": self.draw.random() < 0.7}
        if self.draw.random() < 0.2:
            options["create_graph"] = True
        self.call("backward", ref(self.one()), ref(self.draw.choice([3, 9])), kwargs=options)

    make_another_backward = make_backward

    def make_gradients(self) -> None:
        number = BY_NAME["torch.autograd.grad"]
        args = (ref(self.one()), ref(self.one()), ref(3))
        message = command("torch.Tensor.add", *args, seq=self.seq)
        fields = {name: getattr(message, name) for name in message.__struct_fields__}
        self.messages.append(type(message)(**{**fields, "op": number, "out": self.out()}))

    def make_gradient(self) -> None:
        self.call("grad.__get__", ref(self.one()), out=self.out())

    def make_no_gradient(self) -> None:
        self.call("grad.__set__", ref(self.one()), self.draw.choice([None, ref(self.one())]))

    def make_copy(self) -> None:
        self.messages.append(Duplicate(self.seq, self.one(), self.out()))

    def make_question(self) -> None:
        self.messages.append(Fetch(self.seq, self.one(), keep=self.draw.random() < 0.8))


class Replies:
    """A worker, and the last word on each request."""

    def __init__(self) -> None:
        self.core: WorkerCore = lonely()
        self.last: dict[int, str] = {}
        for id in GIVEN:
            self.core.hold(id, given(id))

    def ask(self, message: Message) -> None:
        with quiet():
            for to, reply in sent(self.core, message):
                assert to is ME
                self.note(reply)

    def keep(self, id: int) -> None:
        with quiet():
            self.core.hold(id, given(id))
        for _, frame in self.core.outgoing():
            self.note(decode(frame.header))

    def note(self, reply: Any) -> None:
        if type(reply) is Parked:
            return
        assert reply.seq not in self.last, "one reply besides Parked"
        self.last[reply.seq] = type(reply).__name__

    def state(self) -> dict[int, Any]:
        """Every object, its gradient, and how it takes part in graphs."""
        with quiet():
            return {
                id: (value.tolist(), value.requires_grad, value.is_leaf, shown(value.grad))
                for id, value in self.core.store.objects.items()
                if id < 1000
            }


def shown(gradient: torch.Tensor | None) -> Any:
    return None if gradient is None else gradient.tolist()


@pytest.mark.database
@pytest.mark.parametrize("seed", range(12))
def test_any_program_with_backward_passes_gives_what_it_gives_in_order(seed: int) -> None:
    draw = random.Random(seed)
    parked = ran = 0
    for _ in range(60):
        requests = Requests(draw, draw.randrange(3, 18))
        oracle, late = Replies(), Replies()
        for id in LATE:
            oracle.keep(id)
            late.core.store.promise(id, senders=("me",))
        for message in requests.messages:
            oracle.ask(message)
        missing = list(LATE)
        draw.shuffle(missing)
        for message in requests.messages:
            late.ask(message)
            if missing and draw.random() < 0.05:
                late.keep(missing.pop())
        parked += len(late.core.dataflow)
        while missing:
            late.keep(missing.pop())
        what = "\n".join(map(str, requests.messages))
        assert late.last == oracle.last, what
        assert late.state() == oracle.state(), what
        assert not late.core.dataflow.active and not late.core.dataflow._board._usages
        ran += sum(kind != "Failure" for kind in late.last.values())
    assert parked > 200 and ran > 200


# ---------------------------------------------------------------------------- one rule at a time


@pytest.fixture
def late() -> Replies:
    """A worker that holds 1, 2 and 3, of which 1 and 2 are leaves, and expects 8 and 9."""
    replies = Replies()
    for id in LATE:
        replies.core.store.promise(id, senders=("me",))
    return replies


def start(late: Replies, name: str, *args: Any, **fields: Any) -> str:
    """Send a command; ``Parked``, or the kind of its reply."""
    fields = {"seq": 10 + len(late.last) + len(late.core.dataflow), **fields}
    with quiet():
        *_, (_, reply) = sent(late.core, command(f"torch.Tensor.{name}", *args, **fields))
    late.note(reply)
    return type(reply).__name__


def values(late: Replies, id: int) -> list[float]:
    numbers: list[float] = late.core.store.objects[id].tolist()
    return numbers


def test_what_the_graph_saved_is_not_written_before_the_pass(late: Replies) -> None:
    start(late, "mul", ref(1), ref(3), out=100)
    assert start(late, "backward", ref(100), ref(9)) == "Parked"
    assert start(late, "mul", ref(3), ref(1), out=101) == "Done", "it may be read"
    assert start(late, "add_", ref(3), 1) == "Parked"
    late.keep(9)
    assert set(late.last.values()) == {"Done"} and values(late, 3) == [5, 9, 13, 17]
    assert late.core.store.objects[1].grad.tolist() == [8, 32, 72, 128]


def test_a_graph_that_hides_what_it_saved_reads_everything(late: Replies) -> None:
    start(late, "clone", ref(1), out=100)
    start(late, "view", ref(100), 2, 2, out=101)
    start(late, "mul", ref(3), 1, out=102)
    start(late, "mul_", ref(101), 3)
    start(late, "view", ref(102), 2, 2, out=103)
    start(late, "mul_", ref(101), ref(103))
    assert start(late, "backward", ref(100), ref(9)) == "Parked"
    assert start(late, "mul", ref(3), 2, out=104) == "Done"
    assert start(late, "add_", ref(102), 1) == "Parked"
    assert start(late, "backward", ref(2), ref(3)) == "Done", "it writes no values"
    late.keep(9)
    assert set(late.last.values()) == {"Done"}
    late.core.store.promise(19)
    start(late, "add_", ref(3), ref(19))
    start(late, "clone", ref(1), out=110)
    start(late, "view", ref(110), 2, 2, out=111)
    start(late, "mul_", ref(111), 3)
    assert start(late, "backward", ref(110), ref(9)) == "Parked", "3 may be what was saved"


def test_the_gradient_of_a_promised_leaf_waits_for_the_pass(late: Replies) -> None:
    assert start(late, "mul", ref(8), ref(3), out=100) == "Parked"
    assert start(late, "backward", ref(100), ref(9)) == "Parked"
    late.keep(8)
    assert values(late, 100) == [4, 16, 36, 64]
    assert start(late, "grad.__get__", ref(8), out=101) == "Parked"
    assert start(late, "mul", ref(8), 2, out=102) == "Done"
    late.keep(9)
    assert values(late, 101) == [8, 32, 72, 128]


def test_what_keeps_a_promise_may_bring_a_graph(late: Replies) -> None:
    start(late, "mul", ref(2), ref(3), out=99)
    assert start(late, "backward", ref(8), ref(9)) == "Parked"
    assert start(late, "mul", ref(1), ref(3), out=8) == "Done", "it keeps the promise"
    assert start(late, "grad.__get__", ref(2), out=100) == "Value"
    assert start(late, "grad.__get__", ref(1), out=101) == "Parked"
    assert start(late, "add_", ref(3), 1) == "Parked"
    late.keep(9)
    assert values(late, 101) == [8, 32, 72, 128]


def test_an_opaque_graph_may_come_late(late: Replies) -> None:
    start(late, "clone", ref(1), out=100)
    start(late, "view", ref(100), 2, 2, out=101)
    start(late, "mul_", ref(101), 3)
    assert start(late, "backward", ref(8), ref(9)) == "Parked"
    assert start(late, "view", ref(100), 4, out=8) == "Done"
    assert start(late, "add_", ref(3), 1) == "Parked", "it may be what was saved"
    late.keep(9)
    assert late.core.store.objects[1].grad.tolist() == [6, 12, 18, 24]


def test_a_retained_gradient_waits_for_the_pass(late: Replies) -> None:
    start(late, "mul", ref(1), ref(3), out=100)
    start(late, "retain_grad", ref(100))
    start(late, "mul", ref(100), 2, out=101)
    assert start(late, "backward", ref(101), ref(9)) == "Parked"
    assert start(late, "grad.__get__", ref(100), out=102) == "Parked"
    late.keep(9)
    assert values(late, 102) == [4, 8, 12, 16]


def test_a_gradient_that_is_an_object_too_is_the_same_memory(late: Replies) -> None:
    start(late, "backward", ref(1), ref(3))
    start(late, "grad.__get__", ref(1), out=100)
    assert start(late, "add_", ref(100), ref(9)) == "Parked"
    late.ask(Fetch(50, 1, keep=True))
    assert 50 not in late.last, "its gradient goes along"
    assert start(late, "mul", ref(1), 2, out=101) == "Done"
    late.keep(9)
    assert late.last[50] == "Value" and values(late, 100) == [6, 12, 18, 24]


def test_clearing_gradients_that_wait_holds_no_reader_back(late: Replies) -> None:
    start(late, "mul", ref(1), ref(3), out=100)
    assert start(late, "backward", ref(100), ref(9)) == "Parked"
    assert start(late, "grad.__get__", ref(1), out=101) == "Parked"
    assert start(late, "zero_", ref(101)) == "Parked"
    assert start(late, "mul", ref(1), 2, out=102) == "Done"
    assert start(late, "grad.__set__", ref(1), None) == "Parked"
    assert start(late, "mul", ref(1), 2, out=103) == "Done"
    late.keep(9)
    assert values(late, 101) == [0, 0, 0, 0] and late.core.store.objects[1].grad is None


def test_a_parked_write_brings_its_graph_along(late: Replies) -> None:
    start(late, "mul", ref(3), 1, out=100)
    assert start(late, "mul_", ref(100), ref(8)) == "Parked"
    assert start(late, "add", ref(100), 1, out=101) == "Parked"
    assert start(late, "backward", ref(101), ref(9)) == "Parked"
    late.keep(8)
    assert start(late, "grad.__get__", ref(8), out=102) == "Parked"
    late.keep(9)
    assert values(late, 102) == [8, 32, 72, 128]


def test_what_is_fetched_is_gone_for_those_that_come_after(late: Replies) -> None:
    late.ask(Fetch(50, 8))
    assert start(late, "mul", ref(8), 2, out=100, seq=51) == "Parked"
    late.ask(Cancel(1, 50))
    late.keep(8)
    assert late.last[51] == "Done", "nothing took it"
    late.ask(Fetch(52, 9))
    assert start(late, "mul", ref(9), 2, out=101, seq=53) == "Parked"
    late.keep(9)
    assert late.last[52] == "Value" and late.last[53] == "Failure"


def test_split_learning_with_two_batches_in_flight(
    alice: sy.VirtualWorker, bob: sy.VirtualWorker
) -> None:
    """Alice goes on with the second batch while the gradient of the first is still at bob."""
    torch.manual_seed(0)
    first = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU())
    second = torch.nn.Linear(4, 1)
    expected_first, expected_second = copy.deepcopy(first), copy.deepcopy(second)
    batches = [torch.randn(5, 3), torch.randn(5, 3)]
    for batch in batches:
        expected_second(expected_first(batch)).square().sum().backward()
    first.send(alice)
    second.send(bob)
    sent_to_bob, promises = [], []
    for batch in batches:
        hidden = first(batch.send(alice))
        promise = alice.promise()
        hidden.backward(promise)  # waits for bob
        promises.append(promise)
        sent_to_bob.append(hidden.detach().copy().move(bob).requires_grad_())
    kept = []
    for promise, hidden in zip(promises, sent_to_bob, strict=True):
        second(hidden).square().sum().backward()
        gradient = hidden.grad.copy().get()
        kept.append(gradient.send(alice, id=promise.id_at_location))
    for module, wanted in ((first, expected_first), (second, expected_second)):
        for mine, theirs in zip(module.parameters(), wanted.parameters(), strict=True):
            torch.testing.assert_close(mine.grad.copy().get(), theirs.grad)
        for mine, theirs in zip(module.buffers(), wanted.buffers(), strict=True):
            torch.testing.assert_close(mine.copy().get(), theirs)


def test_pointers_in_a_store_may_be_to_the_same_tensor(
    alice: sy.VirtualWorker, bob: sy.VirtualWorker
) -> None:
    inner = torch.ones(2).send(alice)
    one = inner.view(2).send(bob)
    other = inner.send(bob)
    promise = bob.promise()
    one.add_(promise)
    later = other + 1
    assert not later.child.handle.done(), "it may be the same memory at alice"
    kept = torch.ones(2).send(alice).send(bob, id=promise.id_at_location)
    assert later.get().get().tolist() == [3, 3]
    del kept


def test_passes_that_send_gradients_elsewhere_keep_their_order(late: Replies) -> None:
    called: list[int] = []
    for id in (1, 2):
        late.core.store.objects[id].register_hook(lambda gradient, id=id: called.append(id))
    assert start(late, "backward", ref(1), ref(9)) == "Parked"
    assert start(late, "backward", ref(2), ref(3)) == "Parked"
    late.keep(9)
    assert called == [1, 2]


def test_a_fetch_that_is_refused_takes_nothing(late: Replies) -> None:
    protect(late.core.store.objects[3], Guard(frozenset({"ann"})))
    late.core.guard()
    assert start(late, "add_", ref(3), ref(9)) == "Parked"
    late.ask(Fetch(50, 3))
    assert start(late, "mul", ref(3), 2, out=100, seq=51) == "Parked"
    late.keep(9)
    assert (late.last[50], late.last[51]) == ("Failure", "Done")
