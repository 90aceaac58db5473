"""Groups of messages: the same results as one message each, in one message."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import NothingToGet, ProgramError
from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.client.group import NOT_HELD
from syft.workers.wire.definitions import Group, InputKind
from syft.workers.wire.messages import GRAD_MODE, Failure, Run
from syft.workers.wire.references import REF
from tests.chain.refusal import refusal
from tests.shells.child import make_worker
from tests.shells.owner import inspect

pytestmark = pytest.mark.every_shell

Tensor = Any  # type checkers cannot know of the methods that the hook adds

STEPS: list[Callable[[Tensor, Tensor, float], Tensor]] = [
    lambda x, y, f: x + y,
    lambda x, y, f: x * f,
    lambda x, y, f: torch.add(x, y, alpha=2),
    lambda x, y, f: torch.cat([x, y])[1:4],
    lambda x, y, f: torch.where(x > f, x, y),
    lambda x, y, f: x.mul_(f),
    lambda x, y, f: torch.relu_(x),
    lambda x, y, f: x.view(1, 3).sum(0, keepdim=True).flatten(),
    lambda x, y, f: x.to(torch.float64).to(torch.float32),
    lambda x, y, f: torch.clamp(x, min=-f, max=f),
    lambda x, y, f: x.t().clone().fill_(2),
    lambda x, y, f: torch.nn.functional.softmax(x, dim=0, dtype=torch.float32),
]


def run_steps(steps: list[int], x: Tensor, y: Tensor, f: float) -> list[Tensor]:
    """What a random program computes: all its intermediate values."""
    values = [x, y]
    for step in steps:
        values.append(STEPS[step](values[-1], values[-2], f))
    return values[2:]


@pytest.mark.parametrize("seed", range(25))
def test_a_group_computes_what_torch_computes(worker: sy.VirtualWorker, seed: int) -> None:
    random.seed(seed)
    steps = [random.randrange(len(STEPS)) for _ in range(random.randrange(1, 12))]
    for _ in range(3):
        x, y, f = torch.randn(3), torch.randn(3), random.random()
        p, q = x.send(worker), y.send(worker)  # type: ignore[attr-defined]
        with worker.group():
            held = run_steps(steps, p, q, f)
        for there, here in zip(held, run_steps(steps, x, y, f), strict=True):
            assert torch.equal(there.copy().get(), here)
        del held, there


def test_a_repeated_group_is_one_small_message(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    x, y = torch.ones(3).send(bob), torch.ones(3).send(bob)

    def twenty(factor: float) -> Tensor:
        with bob.group():
            z = x
            for _ in range(10):
                z = z * factor + y
        return z

    sizes = []
    for factor in (2.0, 2.0, 0.3, 0.7):
        with hook.record() as log:
            z = twenty(factor)
        assert [type(entry.message) for entry in log.to("bob")] == [Run]
        sizes.append(log.to("bob")[0].nbytes)
        expected = torch.ones(3)
        for _ in range(10):
            expected = expected * factor + 1
        assert torch.equal(z.get(), expected)
    assert max(sizes[1:]) <= 200 < sizes[0]
    assert sizes[1] < 60  # the floats are those of the last time
    assert bob.stats.cache_hits == 3
    del log


def test_only_wanted_results_are_stored(worker: sy.VirtualWorker) -> None:
    x = torch.ones(3).send(worker)
    with worker.group():
        y = ((x + 1) * 2).exp()
        z = y.log()
        del y
        kept = (z + 1) if z is not None else None
    assert worker.objects_count() == 3
    assert torch.equal(kept.get(), torch.full((3,), 5.0))
    del z
    assert worker.objects_count() == 1


def test_all_results_that_live_get_ids_in_a_row(bob: sy.VirtualWorker) -> None:
    x = torch.ones(3).send(bob)
    with bob.group():
        values = [x + number for number in range(4)]
    first = values[0].id_at_location
    assert [value.id_at_location - first for value in values] == [0, 1, 2, 3]
    del values
    assert bob.objects_count() == 1


def test_an_input_may_die_inside(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    x = torch.ones(3).send(worker)
    with worker.group():
        y = x + 1
        del x
    assert torch.equal(y.get(), torch.full((3,), 2.0))
    worker.collect()
    assert worker.objects_count() == 0


def test_looking_at_the_store_inside_sends_nothing_away(bob: sy.VirtualWorker) -> None:
    x, other = torch.ones(3).send(bob), torch.ones(1).send(bob)
    with bob.group():
        y = x + 1
        y = y + 1  # the first result has no pointer any more
        del other
        assert len(inspect(bob)) == 2
    assert bob.objects_count() == 2
    assert y.get().tolist() == [3, 3, 3]


def test_a_question_sends_what_is_held_first(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    x = torch.ones(3).send(worker)
    sy.synchronize()
    with hook.record() as log, worker.group():
        y = x + 1
        assert y.shape == (3,)
        z = y * 2
        assert float(z.sum()) == 12
        values, indices = z.max(0)  # several results, of which it is known how many
        first, *_ = z.split(1)  # how many there are follows from the shape
        w = z + values
    with log:
        sy.synchronize()
    assert torch.equal(w.get(), torch.full((3,), 8.0))
    assert values.get() == 4
    kinds = [type(entry.message).__name__ for entry in log.to(worker.id)]
    assert kinds == ["Run", "Command", "Run", "Command", "Run", "Command", "Run"]
    del z, indices, first, _, log


def test_tensors_that_are_sent_are_held_too(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    constant = torch.arange(1000.0)
    sizes = []
    for _ in range(3):
        with hook.record() as log, worker.group():
            x = constant.send(worker)
            y = x.add_(1).sum()
        with log:
            sy.synchronize()
        (entry,) = log.to(worker.id)
        sizes.append(entry.nbytes)
        assert y.get() == constant.sum() + 1000
        assert torch.equal(x.get(), constant + 1)  # each time a new one
    assert sizes[0] > 4000 and max(sizes[1:]) < 60
    constant[3] = 0.5
    with worker.group():
        x = constant.send(worker)
    assert torch.equal(x.get(), constant)
    del log, y


def test_a_tensor_is_taken_as_it_is_when_it_is_sent(worker: sy.VirtualWorker) -> None:
    source = torch.ones(2)
    with worker.group():
        x = source.send(worker)
        source.fill_(7)
    assert x.get().tolist() == [1, 1]


@pytest.mark.parametrize(
    "call, local",
    [
        (lambda x, local: x[local], torch.tensor([1, 0])),
        (lambda x, local: x[(local,)], torch.tensor([1, 0])),
        (lambda x, local: torch.add(x, local), torch.tensor(2.0)),
        (lambda x, local: torch.clamp(x, min=local), torch.tensor(6.0)),
        (lambda x, local: torch.zeros_like(x).copy_(local), torch.tensor([1.0, 2.0])),
    ],
    ids=["index", "tuple", "number", "named", "copied"],
)
def test_an_operand_is_taken_as_it_is_when_the_operation_is_held(
    worker: sy.VirtualWorker,
    call: Callable[[Tensor, torch.Tensor], Tensor],
    local: torch.Tensor,
) -> None:
    values, local = torch.tensor([5.0, 7.0]), local.clone()
    expected = call(values, local)
    x = values.send(worker)
    with worker.group() as group:
        y = call(x, local)
        assert group._batch is not None
        (held,) = (each for each in group._batch.inputs if isinstance(each, torch.Tensor))
        before = held.clone()
        local.fill_(0)
        assert torch.equal(held, before), "what is held is a copy"
    assert torch.equal(y.get(), expected)


def test_leaves_stay_leaves(worker: sy.VirtualWorker) -> None:
    with worker.group():
        w = torch.ones(2, requires_grad=True).send(worker)
        p = torch.nn.Parameter(torch.ones(2)).send(worker)
        loss = (w * 3 + p).sum()
        loss.backward()
    home = w.get()
    assert home.grad.tolist() == [3, 3] and home.is_leaf
    assert type(p.get()) is torch.nn.Parameter
    del loss


def test_what_cannot_be_held_goes_by_itself(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    x = torch.ones(2).send(bob)
    logged = sy.LoggingTensor().on(torch.ones(2)).send(bob)
    with hook.record() as log, bob.group():
        y = x + 1
        private = torch.ones(2).private_tensor(["ann"]).send(bob, user="ann")
        inner = logged.child.child.child + y  # inside a remote chain
        z = torch.zeros(2).send(alice).send(bob)
        named = torch.ones(2).send(bob, id=77)
    kinds = [type(entry.message).__name__ for entry in log.to("bob")]
    assert kinds == ["Run", "Put", "Command", "Put", "Put"]
    assert inner.get().tolist() == [3, 3] and z.get().get().tolist() == [0, 0]
    assert named.id_at_location == 77
    del y, private, log


def test_a_tensor_inside_a_call_goes_along(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    x = torch.ones(100).send(bob)
    for turn in range(3):
        with hook.record() as log, bob.group():
            y = x * torch.tensor(2.0)
            y.copy_(torch.arange(100.0))
        (entry,) = log.to("bob")
        assert (entry.nbytes < 60) == bool(turn)
        assert torch.equal(y.get(), torch.arange(100.0))
    del log


def test_a_generator_goes_along(bob: sy.VirtualWorker) -> None:
    x = torch.zeros(50).send(bob)
    generator = torch.Generator().manual_seed(3)
    seen = []
    for _ in range(2):
        with bob.group():
            y = torch.bernoulli(x + 0.5, generator=generator)
        seen.append(y.get())
    assert not torch.equal(*seen)


def test_modes_inside_a_group(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    w = torch.ones(2, 2, requires_grad=True).send(worker)
    sy.synchronize()
    with hook.record() as log, worker.group():
        with torch.no_grad():
            a = w * 2
        b = w * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            c = w @ w
        d = w @ w
    with log:
        sy.synchronize()
    assert len(log.to(worker.id)) == 3  # autocast does not change inside a batch
    assert [value.requires_grad for value in (a, b, c, d)] == [False, True, True, True]
    assert (c.dtype, d.dtype) == (torch.bfloat16, torch.float32)
    with worker.group(), torch.inference_mode():
        e = w * 2
    assert not e.requires_grad
    del log


def test_nothing_is_sent_after_an_exception(hook: sy.TorchHook, worker: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(worker)
    with hook.record() as log:
        with pytest.raises(ZeroDivisionError) as caught, worker.group():
            y = (x + 1) * 2
            x.add_(1)
            1 / 0
    assert len(log) == 0
    place = worker.id
    assert caught.value.__notes__ == [
        f"3 operations were held back in a group for worker {place!r} and dropped: nothing of the "
        "group was sent."
    ]
    reason = (
        f"ObjectNotFound: Worker {place!r} holds no object {y.id_at_location}: it was to be made "
        "in a group of messages that an exception ended before it was sent."
    )
    assert refusal(lambda: y.get()) == reason
    assert refusal(lambda: (y + 1).get()) == reason
    del caught, log
    assert x.get().tolist() == [1, 1]


def test_the_note_counts_one_and_none(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(bob)
    for count in (0, 1):
        with pytest.raises(ValueError) as caught, bob.group():
            if count:
                x.neg()
            raise ValueError
        notes = getattr(caught.value, "__notes__", [])
        assert len(notes) == count and all(note.startswith("1 operation was") for note in notes)
        del caught


def test_nested_groups_join_the_outer_one(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(bob)
    with hook.record() as log, bob.group():
        y = x + 1
        with bob.group():
            z = y + 1
        w = z + 1
        with pytest.raises(KeyError), bob.group():
            v = w + 1
            raise KeyError
    assert len(log.to("bob")) == 1
    assert v.get().tolist() == [5, 5]
    del log, w, z, y


def test_groups_of_two_workers(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    x, y = torch.ones(2).send(bob), torch.ones(2).send(alice)
    with hook.record() as log, bob.group(), alice.group():
        for _ in range(3):
            x, y = x + 1, y * 2
    assert len(log.to("bob")) == len(log.to("alice")) == 1
    assert x.get().tolist() == [4, 4] and y.get().tolist() == [8, 8]
    with bob.group(), alice.group():
        z = torch.ones(2).send(alice) + 1
        there = z.send(bob)  # bob may use the pointer at once
        assert there.remote_get().get().tolist() == [2, 2]
    del log


def test_an_error_in_a_group_names_the_action(worker: sy.VirtualWorker) -> None:
    x, y = torch.ones(2).send(worker), torch.ones(3).send(worker)

    results = []

    def run() -> None:
        with worker.group():
            results.append((x * 2) + y)
        sy.synchronize()

    for _ in range(2):
        assert refusal(run).startswith("RuntimeError: The size of tensor a (2) must match")
    assert "should have made it failed" in refusal(lambda: results[0].get())
    results.clear()
    with worker.group():
        z = (x * 2) + x
    assert z.get().tolist() == [3, 3]


def _notes(run: Callable[[], object]) -> str:
    """The notes of what is raised."""
    try:
        run()
    except Exception as error:
        return "\n".join(error.__notes__)
    raise AssertionError("nothing was raised")


def _line_of(action: str) -> str:
    """``file:line`` of the line of this file that ends with a remark."""
    with open(__file__, encoding="utf-8") as file:
        number = next(n for n, line in enumerate(file, 1) if line.rstrip().endswith(f"# {action}"))
    return f"{__file__}:{number}"


def test_an_operation_that_fails_loses_only_what_depends_on_it(worker: sy.VirtualWorker) -> None:
    x, y = torch.ones(2).send(worker), torch.ones(3).send(worker)
    made: dict[str, Tensor] = {}

    def run() -> None:
        with worker.group():
            made["before"] = x * 2
            made["failed"] = x + y  # this fails
            made["follows"] = made["failed"].mul(2)
            made["after"] = made["before"] * 3
            x.add_(1)
            with torch.no_grad():
                made["later"] = x * 2
        sy.synchronize()

    for count in range(1, 3):
        assert f"asked for at {_line_of('this fails')}." in _notes(run)
        assert made["before"].get().tolist() == [2 * count] * 2
        assert made["after"].get().tolist() == [6 * count] * 2
        assert made["later"].get().tolist() == [2 * count + 2] * 2
        assert "should have made it failed" in refusal(lambda: made["failed"].get())
        assert "should have made it failed" in refusal(lambda: made["follows"].get())
    made.clear()


def test_an_operation_that_fails_by_itself_after_another_is_named_too(
    worker: sy.VirtualWorker,
) -> None:
    x, y = torch.ones(2).send(worker), torch.ones(3).send(worker)
    made = []

    def run() -> None:
        with worker.group():
            made.append(x + y)
            made.append(torch.matmul(x, y))
            made.append(x - 1)
        sy.synchronize()

    assert "torch.matmul, failed by itself: RuntimeError(" in _notes(run)
    assert made[-1].get().tolist() == [0, 0]
    made.clear()


def test_begin_and_release(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(bob)
    with hook.record() as log:
        assert x.begin_msg_group() is x
        y = x + 1
        y.begin_msg_group()
        z = y + 1
        z.release_msg_group()
        assert len(log) == 0
        z.release_msg_group()
    assert len(log.to("bob")) == 1 and z.get().tolist() == [3, 3]
    with pytest.raises(ProgramError, match="no group of messages for worker 'bob' is open"):
        x.release_msg_group()
    for method in ("begin_msg_group", "release_msg_group"):
        with pytest.raises(NothingToGet, match=method):
            getattr(torch.ones(2), method)()
    del log


def test_handles_of_held_results(worker: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(worker)
    with worker.group():
        y = x + 1
        handle = y.child.handle
        assert not handle.done()
        assert handle.result().get().tolist() == [2, 2]
        z = x + 2
        after = z.child.handle
    after.wait()
    assert after.done() and z.get().tolist() == [3, 3]
    del y, handle, after


def test_promised_inputs_park_the_group(bob: sy.VirtualWorker) -> None:
    p = bob.promise()
    with bob.group():
        y = (p * 2).neg()
        z = y + 1
        del y
    assert not z.child.handle.done()
    torch.ones(2).send(bob, id=p.child.id_at_location)
    assert z.get().tolist() == [-1, -1]
    q = bob.promise()
    with bob.group():
        y = q + 1
    del y, q
    assert bob.objects_count() == 1  # nothing waits any more


def test_clearing_and_closing_lose_the_numbers(
    hook: sy.TorchHook, worker: sy.VirtualWorker
) -> None:
    for _ in range(2):
        x = torch.ones(2).send(worker)
        with worker.group():
            y = x + 1
        assert y.get().tolist() == [2, 2]
        worker.clear_objects()
        del x
    name = worker.id
    worker.close()
    again = make_worker(hook, id=name)
    x = torch.ones(2).send(again)
    with again.group():
        y = x + 1
    assert y.get().tolist() == [2, 2]
    assert again.stats.cache_hits == 0


@pytest.mark.virtual_only("makes the worker forget what it keeps for its callers")
def test_a_worker_that_lost_its_numbers_is_told_again(worker: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(worker)

    def run() -> Tensor:
        with worker.group():
            y = x + 1
        return y.get()

    assert run().tolist() == [2, 2]
    for peer in worker.core.peers:
        peer.session.numbers = None  # and the caller is not told
    assert "does not know what number 0 stands for" in refusal(run)
    assert run().tolist() == [2, 2]


def test_what_runs_by_its_number_comes_after_what_is_held(
    hook: sy.TorchHook, worker: sy.VirtualWorker
) -> None:
    x = torch.ones(2).send(worker)
    negative = Action(BY_NAME["torch.neg"], (Slot(0),), {}, Slot(1))
    group = Group((InputKind.REFERENCE,), Program(1, (negative,), (Slot(1),)))
    connection = x.child.connection
    with worker.group():
        x.mul_(3)
        first, _ = connection.operations.run("neg", lambda: group, [x.id_at_location])
    assert connection.pointer(first).get().tolist() == [-3, -3]


def test_after_a_worker_was_cleared_a_repeated_group_is_defined_again(
    hook: sy.TorchHook, worker: sy.VirtualWorker
) -> None:
    defined = []
    for clears in (False, False, True, False, True, True):
        if clears:
            worker.clear_objects()
        x = torch.ones(2).send(worker)
        with hook.record() as log:
            with worker.group():
                y = x + 1
            assert y.get().tolist() == [2, 2]
        runs = [entry.message for entry in log.to(worker.id) if isinstance(entry.message, Run)]
        defined += [run.define is not None for run in runs]
        assert not [entry for entry in log if isinstance(entry.message, Failure)]
        del log
    assert defined == [True, False, True, False, True, True]
    assert worker.stats.cache_hits == 2


def test_what_another_caller_knows_is_forgotten_too(
    hook: sy.TorchHook, worker: sy.VirtualWorker
) -> None:
    connection = sy.VirtualWorker(hook, id="carl").connection_to(worker)

    def run() -> None:
        id = connection.put(torch.ones(2), None)
        with connection.message_group():
            y = connection.pointer(id) + 1
        assert y.get().tolist() == [2, 2]

    run()
    hits = worker.stats.cache_hits
    run()
    assert worker.stats.cache_hits == hits + 1
    worker.clear_objects()
    run()
    assert worker.stats.cache_hits == hits + 1


def test_a_command_with_data_sends_only_what_differs(
    hook: sy.TorchHook,
) -> None:
    worker = make_worker(hook, id="worker", pipelined=True)
    x, sizes = torch.zeros(100).send(worker), []
    values = [torch.arange(100.0), torch.arange(100.0), torch.ones(100)]
    sy.synchronize()
    for value in values:
        with hook.record() as log:
            assert x.copy_(value) is x
            sy.synchronize()
        assert [type(entry.message) for entry in log.to(worker.id)] == [Run]
        sizes.append(log.to(worker.id)[0].nbytes)
        assert torch.equal((x + 0).get(), value)
    assert sizes[0] > 400 < sizes[2] and sizes[1] < 30
    with hook.record() as log:
        x.copy_(torch.ones(50).repeat(2)[:100])
        x.copy_(torch.tensor(2.0).expand(100))  # 4 bytes of data
        sy.synchronize()
    kinds = [type(entry.message).__name__ for entry in log.to(worker.id)]
    assert kinds == ["Run", "Command"]
    assert "RuntimeError" in refusal(partial(failing_copy, x))
    assert x.get().tolist() == [2.0] * 100
    del log


def test_an_immediate_worker_gets_it_as_it_is(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    x = torch.zeros(100).send(bob)
    with hook.record() as log:
        x.copy_(torch.ones(100))
    assert [type(entry.message).__name__ for entry in log.to("bob")] == ["Command"]


def failing_copy(x: Tensor) -> None:
    """A copy that does not fit."""
    x.copy_(torch.ones(99))
    sy.synchronize()


def test_operands_that_no_program_takes_are_not_held(bob: sy.VirtualWorker) -> None:
    x = torch.ones(2).send(bob)
    packer = Packer()
    chain = pack(sy.LoggingTensor().on(torch.ones(2)), packer)
    with bob.group() as group:
        y = x + 1
        for operand in ((99, 1), chain):
            args = ((REF, y.id_at_location), operand)
            mode = (GRAD_MODE, None)
            assert group.hold(0, args, None, None, packer.buffers, mode) is NOT_HELD
            assert not group.holds(y.child)
    assert y.get().tolist() == [2, 2]


def test_floats_inside_containers_are_inputs_too(hook: sy.TorchHook, bob: sy.VirtualWorker) -> None:
    x = torch.arange(4.0).view(1, 1, 4).send(bob)
    with hook.record() as log:
        for factor in (1.5, 2.0):
            with bob.group():
                wider = torch.nn.functional.interpolate(x, scale_factor=[factor])
    assert wider.shape == (1, 1, 8)
    runs = [entry.message for entry in log.to("bob") if type(entry.message).__name__ == "Run"]
    assert [run.define is None for run in runs] == [False, True]
