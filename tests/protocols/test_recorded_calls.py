"""What is done on pointers in a block is a protocol: it gives what the static form gives."""

from __future__ import annotations

import copy
import random
import threading
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import syft as sy
from syft.exceptions import (
    CannotRecord,
    LocationMismatch,
    ObjectNotFound,
    OtherPath,
    PermissionDenied,
    ProtocolError,
    WrongArguments,
)

ROLES = ("local", "alice", "labs")


@pytest.fixture(params=[False, True], ids=["immediate", "queued"])
def four(hook, request):
    names = ("one", "two", "three", "four")
    made = [sy.VirtualWorker(hook, id=name, pipelined=request.param) for name in names]
    yield made
    sy.synchronize()
    hook.local_worker.collect()
    for worker in made:
        worker.close()


def here(value: Any) -> torch.Tensor:
    return value if type(value) is torch.Tensor else value.copy().get()


def test_the_example(four):
    one, two, three, four = four
    x = torch.tensor([1.0, 2.0])
    with sy.record_protocol(alice=one, lab=two, x=x) as p:
        y = (x - 1).send(one)
        z = y.abs().move(two) * 2
        result = z.get()
    assert result.tolist() == [0, 2]
    assert y.get().tolist() == [0, 1] and z.location is two  # a role's value stays where it was
    assert list(p.plans) == ["local", "alice", "lab"] and p.draw().startswith("<svg")
    assert p.code.splitlines()[:3] == [
        "def local(x, from_lab):",
        "    _2 = x.sub(1)  # 0: torch.Tensor.sub",
        "    _2 -> alice  # 1",
    ]
    assert p.deploy().run(torch.tensor([-3.0, 6.0])).tolist() == [8, 10]
    moved = p.deploy(alice=three, lab=four)
    assert moved.run(torch.tensor([5.0, 6.0, 7.0])).tolist() == [8, 10, 12]
    assert copy.deepcopy(p).deploy(alice=four, lab=three).run(x).tolist() == [0, 2]


class Drawn:
    """A program of tensors at places, drawn from a seed; the places are roles or their workers."""

    def __init__(self, seed: int, places: dict[str, Any]) -> None:
        self.draw, self.places = random.Random(seed), places
        self.pool: list[tuple[Any, str]] = []

    def run(self, x: Any, y: Any) -> tuple[Any, ...]:
        self.pool = [(x, "local"), (y, "local")]
        for _ in range(self.draw.randint(4, 14)):
            step = self.draw.choice([self.send, self.compute, self.combine, self.ask])
            step(*self.draw.choice(self.pool))
        return tuple(value for value, _ in self.pool[2:])

    def send(self, value: Any, place: str) -> None:
        to = self.draw.choice(ROLES)
        if to == "local":
            self.pool.append((value if place == "local" else value.get(), to))
        else:
            move = value.send if place == "local" else value.move
            self.pool.append((move(self.places[to]), to))

    def compute(self, value: Any, place: str) -> None:
        makes = [
            torch.sin,
            lambda v: v * 2 - v.flip(0),
            lambda v: v.max(0, keepdim=True)[0] + v,
            lambda v: torch.stack([v, torch.full_like(v, 3.0)]).mean(0),
            lambda v: torch.where(v > 0, v, -v)[[1, 0, 2]],
        ]
        self.pool.append((self.draw.choice(makes)(value), place))

    def combine(self, value: Any, place: str) -> None:
        other = self.draw.choice([each for each, where in self.pool if where == place])
        self.pool.append((self.draw.choice([torch.add, torch.mul])(value, other), place))

    def ask(self, value: Any, place: str) -> None:
        self.pool.append((value / value.shape[0] if value.dim() == 1 else value, place))


@pytest.mark.parametrize("seed", range(12))
def test_it_equals_the_static_form(four, seed):
    one, two, three, four = four
    roles = {"alice": sy.RoleWorker(), "labs": sy.RoleWorker()}

    @sy.protocol(**roles)
    def static(x, y):
        return Drawn(seed, roles).run(x, y)

    x, y = torch.randn(3), torch.randn(3)
    static.build(x, y)
    with sy.record_protocol(alice=one, labs=two, x=x, y=y) as p:
        seen = Drawn(seed, {"alice": one, "labs": two}).run(x, y)
        p.returns(*seen)
    for given in ((x, y), (torch.randn(3), torch.randn(3))):
        theirs = static.deploy(alice=three, labs=four).run(*given)
        ours = p.deploy(alice=three, labs=four).run(*given)
        theirs, ours = (each if type(each) is tuple else (each,) for each in (theirs, ours))
        for mine, other in zip(ours, theirs, strict=True):
            assert getattr(mine, "location", None) is getattr(other, "location", None)
            assert torch.equal(here(mine), here(other))
        if given[0] is x:
            for mine, other in zip(ours, seen, strict=True):
                assert torch.equal(here(mine), here(other))


def test_arguments_that_are_pointers_and_parameters(four):
    one, two, *_ = four
    net = torch.nn.Linear(2, 1)
    x, a = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]).send(one)
    named = {"x": x, "a": a, "weight": net.weight, "bias": net.bias}
    with sy.record_protocol(alice=one, labs=two, **named) as p:
        y = net(x.send(one).get()) * (a + x.send(one)).get()
    assert p.inputs["alice"] == {"a": "float32 (2,)"}
    assert a.get().tolist() == [3, 4]
    other = torch.ones(2).send(one)
    found = p.deploy().run(x, other, net.weight, net.bias)
    assert torch.allclose(found, (net(x) * torch.tensor([2.0, 3.0])).detach())
    assert other.get().tolist() == [1, 1] and y.shape == found.shape


def test_what_it_gives(four):
    one, *_ = four
    x = torch.ones(2)
    with sy.record_protocol(alice=one, x=x) as p:
        (x + 1).send(one)
        kept = x * 3
        _ = kept.shape  # a question makes nothing of it
    with sy.record_protocol(alice=one, x=x) as q:
        y = x.send(one)
        z = y + 1
        q.returns(z, y)
    sent, found = p.deploy().run(x)
    assert (sent.get().tolist(), found.tolist()) == ([2, 2], [3, 3])
    assert [each.get().tolist() for each in q.deploy().run(x)] == [[2, 2], [1, 1]]
    with pytest.raises(ProtocolError, match="outside the block"):
        q.returns(x)
    with pytest.raises(ProtocolError, match="makes nothing of its arguments"):
        with sy.record_protocol(alice=one, x=x):
            pass


def test_sizes_and_kinds_that_were_asked_for_are_asked_again(four):
    one, *_ = four
    x = torch.ones(3)
    with sy.record_protocol(alice=one, x=x) as p:
        y = x.send(one)
        y = y.sum() / len(y) if y.dtype == torch.float32 else y
    with sy.record_protocol(alice=one, x=x) as q:
        sum(part for part in x.send(one))
    for each in (p, q):
        deployed = each.deploy()
        assert deployed.run(torch.tensor([1.0, 2.0, 3.0])).get() == (2 if each is p else 6)
        with pytest.raises((OtherPath, ObjectNotFound), match="recorded (for|where)"):
            deployed.run(torch.ones(4)).get()
    with pytest.raises(WrongArguments, match="dtype"):
        p.deploy().run(torch.ones(3).double())
    with sy.record_protocol(alice=one, x=x) as p:
        y = x.send(one)
        y.sum(y.dim() - 1)
    with pytest.raises(WrongArguments, match="dim 1"):
        p.deploy().run(torch.ones(3, 3))


def test_what_torch_gives_back_as_it_was_is_another_tensor(hook, four):
    x = torch.ones(2)
    with sy.record_protocol(alice=four[0], x=x) as p:
        y = x.to(torch.float32) * 2
        z = x * 3
    first, second = p.deploy().run(torch.ones(2).double())
    assert (first.dtype, second.dtype) == (torch.float32, torch.float64)
    assert y is not z


def test_random_numbers_are_drawn_anew(four):
    one, *_ = four
    x = torch.ones(100)
    torch.manual_seed(1)
    with sy.record_protocol(alice=one, x=x) as p:
        noise = torch.rand(100).send(one)
        F.dropout(x.send(one) + noise, 0.5)
    after = torch.rand(2)
    deployed = p.deploy()
    first, second = deployed.run(x).get(), deployed.run(x).get()
    assert not torch.equal(first, second) and first.shape == (100,)
    torch.manual_seed(1)
    torch.rand(100)
    F.dropout(x, 0.5)
    assert torch.equal(torch.rand(2), after)  # confirming it has drawn nothing of the user's


def test_modes_of_the_block_without_gradients(four):
    x = torch.ones(2, requires_grad=True)
    with sy.record_protocol(alice=four[0], x=x) as p, torch.no_grad():
        y = (x * 2).send(four[0])
        shown = repr(y)
    assert "PointerTensor" in shown
    assert p.deploy().run(torch.ones(2)).get().tolist() == [2, 2]


# ------------------------------------------------------------------------------------- refusals

OUTSIDE = torch.tensor([10.0, 20.0])


def _changes(value: Any) -> Any:
    value += 1
    return value


REFUSED = {
    "a number": (lambda x, one, two: x.send(one).sum().item(), "item reads values"),
    "a branch": (lambda x, one, two: 1 if (x.send(one) > 0).all() else 2, "bool.* reads values"),
    "a list": (lambda x, one, two: x.tolist(), "tolist reads values"),
    "numpy": (lambda x, one, two: np.add(x, 1), "no role can run it"),
    "a text": (lambda x, one, two: f"{x.sum():.2f}", "no role can run it"),
    "not named": (lambda x, one, two: x + OUTSIDE, "no argument, .*name it"),
    "unseen": (lambda x, one, two: x + torch.Tensor([1.0, 2.0]), "no argument, .*name it"),
    "in place": (lambda x, one, two: x.add_(1), "add_ writes to a tensor"),
    "+=": (lambda x, one, two: _changes(x.send(one)), "writes to a tensor"),
    "out=": (lambda x, one, two: torch.add(x, x, out=x + 1), "writes to a tensor"),
    "inplace=": (lambda x, one, two: F.relu(x + 1, inplace=True), "writes to a tensor"),
    "gradients": (lambda x, one, two: x.grad, "is about gradients"),
    "a graph": (lambda x, one, two: (x * 2).grad_fn, "asks what may be otherwise"),
    "backward": (lambda x, one, two: (x * 2).sum().backward(), "is about gradients"),
    "no role": (lambda x, one, two: x.send(two), "'two', which stands for no role"),
    "two places": (lambda x, one, two: x.send(one, two), "2 workers at once"),
    "an option": (lambda x, one, two: x.send(one).get(wait=False), "wait"),
    "send_": (lambda x, one, two: x.send_(one), "send_"),
    "location": (lambda x, one, two: x.send(one).location, "x.location"),
    "a tag": (lambda x, one, two: x.send(one).tag("#x"), "tag"),
    "shares": (lambda x, one, two: x.fix_precision(), "writes to a tensor"),
    "a recording": (
        lambda x, one, two: sy.record_protocol(alice=one).__enter__(),
        "sy.record_protocol",
    ),
}


def test_a_failure_of_the_block_is_told_as_that(four):
    with pytest.raises(RuntimeError, match="size of tensor"):
        with sy.record_protocol(alice=four[0], x=torch.ones(2)) as p:
            p.returns(torch.ones(2).send(four[0]) + torch.ones(3).send(four[0]))


@pytest.mark.parametrize("block, text", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(four, block, text):
    one, two, *_ = four
    x = torch.tensor([1.0, 2.0])
    with pytest.raises(ProtocolError, match=text) as refused:
        with sy.record_protocol(alice=one, x=x) as p:
            block(x, one, two)
    assert "test_recorded_calls.py" in str(refused.value)
    assert x.tolist() == [1, 2] and not p.is_built
    with pytest.raises(ProtocolError, match="not built"):
        p.deploy()
    assert (x.send(one) + 1).get().tolist() == [2, 3]  # nothing is recorded any more


def test_mixed_places_fail_as_without_recording(four):
    x = torch.ones(2)
    with pytest.raises(LocationMismatch):
        with sy.record_protocol(alice=four[0], x=x):
            x.send(four[0]) + x


def _from_a_thread(x: torch.Tensor) -> None:
    other = threading.Thread(target=x.add_, args=(1,))
    other.start()
    other.join()


def test_a_write_that_no_call_made_is_found(four):
    one, *_ = four
    x, a = torch.ones(2), torch.ones(2).send(one)
    with pytest.raises(ProtocolError, match="has written to 'x'"):
        with sy.record_protocol(alice=one, x=x):
            x * 2
            _from_a_thread(x)
    with pytest.raises(ProtocolError, match="has written to 'a'"):
        with sy.record_protocol(alice=one, a=a):
            a.set_(a * 3)


@pytest.mark.parametrize("value", [torch.ones(2), torch.tensor([10**7, 10**7])])
def test_a_write_is_found_however_small(four, value):
    """Results are compared as torch may round, and only floating ones; arguments to the bit."""
    x, held = value.clone(), value.clone().numpy()
    more = 1e-6 if value.is_floating_point() else 1

    def add() -> None:
        x.add_(more)

    with pytest.raises(ProtocolError, match="has written to 'x'"):
        with sy.record_protocol(alice=four[0], x=x):
            x * 2
            thread = threading.Thread(target=add)
            thread.start()
            thread.join()
    if not value.is_floating_point():
        with pytest.raises(ProtocolError, match="something else at alice"):
            with sy.record_protocol(alice=four[0], x=value):
                torch.tensor(held).send(four[0]) * 1
                held[0] += 1


def test_a_recording_that_gives_something_else_is_refused(four):
    x, held = torch.ones(2, 2), np.ones(2, dtype=np.float32)
    with pytest.raises(ProtocolError, match="something else at local") as refused:
        with sy.record_protocol(alice=four[0], x=x) as p:
            with torch.autocast("cpu", torch.bfloat16):
                x @ x
    assert "modes of its surroundings" in str(refused.value) and not p.is_built
    with pytest.raises(ProtocolError, match="something else at alice"):
        with sy.record_protocol(alice=four[0], x=x):
            torch.tensor(held).send(four[0]) * 2
            held[0] = 9


def test_private_values(four):
    one, *_ = four
    private = torch.ones(2).private_tensor(allowed_users=["ann"]).send(one, user="ann")
    with pytest.raises(PermissionDenied) as refused:
        with sy.record_protocol(alice=one, a=private) as p:
            private * 2
    assert "values that you may read" in refused.value.__notes__[-1] and not p.is_built


def test_names(hook, four):
    one, *_ = four
    x = torch.ones(2)
    wrong = [
        ({"n": 3}, "n=3"),
        ({"local": one}, "local is who records"),
        ({"local": x}, "local is who records"),
        ({"first": one, "second": one}, "first and second at one worker"),
        ({"first": hook.local_worker}, "local and first at one worker"),
        ({"first": one, "x": x, "y": x}, "two arguments"),
        ({"first": one, "x": x.send(four[1])}, "stands for no role"),
    ]
    for named, text in wrong:
        with pytest.raises(ProtocolError, match=text):
            with sy.record_protocol(**named):
                raise AssertionError

    def in_a_plan(x):
        with sy.record_protocol(alice=one, x=x):
            return x + 1

    with pytest.raises(CannotRecord, match="record_protocol"):
        sy.func2plan(args_shape=[(2,)])(in_a_plan)


def test_an_error_in_the_block_is_the_users(four):
    with pytest.raises(ValueError, match="mine"):
        with sy.record_protocol(alice=four[0], x=torch.ones(2)) as p:
            raise ValueError("mine")
    with pytest.raises(ProtocolError, match="whose block has not ended"):
        p.build(torch.ones(2))


def test_rows_may_be_taken_apart(four):
    one, two, *_ = four
    x = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    with sy.record_protocol(alice=one, lab=two, x=x) as p:
        first, second = (2 * row for row in x.send(one))
        p.returns((first - second).move(two))
    assert p.deploy().run(torch.tensor([[1.0, 1.0], [2.0, 4.0]])).get().tolist() == [-2, -6]
