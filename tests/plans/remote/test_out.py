"""``pointer_plan(x, out=o)``: results written into tensors that are there, as torch does it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import syft as sy
from syft.codes import TypeCode
from syft.exceptions import MalformedMessage, PermissionDenied, WrongArguments
from syft.plans.remote.plan_call import PlanCall
from syft.plans.remote.plan_sending import stored_plan
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.handlers.programs import InputKind
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.wire.messages import Done, Run
from tests.chain.refusal import refusal
from tests.plans.remote.test_stored_plan import open_core, put
from tests.shells.child import goes_on_by_itself, make_worker
from tests.shells.owner import inspect
from tests.workers.core.peers import ask, error_in

pytestmark = pytest.mark.every_shell

X = torch.tensor([1.0, -2.0])
REF, NUMBER = InputKind.REFERENCE, InputKind.NUMBER


def plan_of(function: Any, *args: Any, **kwargs: Any) -> sy.Plan:
    plan = sy.func2plan()(function)
    plan.build(*(args or (X,)), **kwargs)
    return plan


def test_the_result_lies_in_the_memory_that_was_there(
    hook: sy.TorchHook, worker: sy.VirtualWorker
) -> None:
    pointer = plan_of(lambda x: x * 2).send(worker)
    x, out = X.send(worker), torch.zeros(2).send(worker)
    view = out[0]
    for _ in range(3):
        with hook.record() as log:
            assert pointer(x, out=out) is out
        x += 1
        worker.collect()
        kinds = [type(entry.message).__name__ for entry in log.to(worker.id)]
        assert kinds == ["Run"] or (worker.pipelined and kinds == [])
    assert len(inspect(worker)) == 4  # the plan, x, out and its view
    assert (view.get().item(), out.get().tolist()) == (6.0, [6.0, 0.0])


def test_a_queued_call_is_what_the_target_waits_for(hook: sy.TorchHook) -> None:
    slow = make_worker(hook, id="slow", pipelined=True)
    pointer = plan_of(lambda x: x * 2).send(slow)
    x, out = X.send(slow), torch.zeros(2).send(slow)
    slow.collect()
    pointer(x, out=out)
    if not goes_on_by_itself(out.location):
        assert not out.child.handle.done()
    assert out.child.handle.result().get().tolist() == [2.0, -4.0]


def test_a_promised_input_is_waited_for(worker: sy.VirtualWorker) -> None:
    pointer = plan_of(lambda x: x * 2).send(worker)
    x, out = worker.promise(), torch.zeros(2).send(worker)
    pointer(x, out=out)
    after = out + 1
    X.send(worker, id=x.child.id_at_location)
    assert (out.get().tolist(), after.get().tolist()) == ([2.0, -4.0], [3.0, -3.0])


def test_several_results_have_several_targets(worker: sy.VirtualWorker) -> None:
    pointer = plan_of(lambda x, y: {"a": x + y, "b": (x - y, [y])}, X, X).send(worker)
    x, y = X.send(worker), torch.ones(2).send(worker)
    out = {"a": x, "b": (torch.zeros(2).send(worker), [torch.zeros(2).send(worker)])}
    assert pointer(x, y, out=out) is out
    assert out["a"].get().tolist() == [2.0, -1.0]
    assert [out["b"][0].get().tolist(), out["b"][1][0].get().tolist()] == [[0.0, -3.0], [1.0, 1.0]]


def test_a_target_may_be_an_argument_and_the_memory_of_another_result(
    worker: sy.VirtualWorker,
) -> None:
    swap = plan_of(lambda x, y: (y, x), X, X).send(worker)
    x, y = X.send(worker), torch.ones(2).send(worker)
    swap(x, y, out=(x, y))
    assert (x.copy().get().tolist(), y.get().tolist()) == ([1.0, 1.0], [1.0, -2.0])
    same = plan_of(lambda x: x).send(worker)
    assert same(x, out=x) is x and x.copy().get().tolist() == [1.0, 1.0]
    four = torch.arange(4.0).send(worker)
    first = plan_of(lambda x: x[:3], torch.ones(4)).send(worker)
    first(four, out=four[1:])
    assert four.get().tolist() == [0.0, 0.0, 1.0, 2.0]


def test_wider_numbers_and_empty_targets_fit(worker: sy.VirtualWorker) -> None:
    pointer, x = plan_of(lambda x: x * 2).send(worker), X.send(worker)
    double = torch.zeros(2, dtype=torch.float64).send(worker)
    assert pointer(x, out=double).get().tolist() == [2.0, -4.0]
    assert pointer(x, out=torch.zeros(0).send(worker)).get().tolist() == [2.0, -4.0]
    assert pointer(x, out=None).get().tolist() == [2.0, -4.0]


def test_what_does_not_fit_is_refused_and_nothing_is_written(bob: sy.VirtualWorker) -> None:
    pointer = plan_of(lambda x: (x, x + 1)).send(bob)
    x, good = X.send(bob), torch.zeros(2).send(bob)
    for wrong, text in (
        (torch.zeros(3), "float32 (2,) as out for result 1, and got float32 (3,)."),
        (torch.zeros(1), "float32 (2,) as out for result 1, and got float32 (1,)."),
        (torch.zeros(2).long(), "float32 (2,) as out for result 1, and got int64 (2,)."),
    ):
        error = refusal(lambda wrong=wrong: pointer(x, out=(good, wrong.send(bob))))
        assert error == f"WrongArguments: Plan '<lambda>' takes {text}"
    assert good.copy().get().tolist() == [0.0, 0.0]
    for out, text in (
        (good, "a tuple of 2 for out, and got a tensor."),
        ((good,), "a tuple of 2 for out, and got a tuple of 1."),
        ((good, 3), "a tensor for out[1], and got an int."),
    ):
        error = refusal(lambda out=out: pointer(x, out=out))
        assert error == f"WrongArguments: Plan '<lambda>' takes {text}"
    assert refusal(lambda: pointer(x, out=(good, X))).startswith("LocationMismatch: plan <lambda>")
    assert refusal(lambda: pointer(out=(good, good))).startswith("WrongArguments: Plan '<lambda>'")
    sizes = plan_of(lambda x: (x, x.shape[0])).send(bob)
    assert refusal(lambda: sizes(x, out=(good, 2))) == (
        "WrongArguments: Plan '<lambda>' takes out= for tensors only, and got it for tensor, int."
    )


def test_what_fails_there_names_its_line(bob: sy.VirtualWorker) -> None:
    pointer = plan_of(lambda x, y: x + y, X, X).send(bob)
    out = torch.zeros(2).send(bob)
    with pytest.raises(RuntimeError) as caught:
        pointer(X.send(bob), torch.ones(3).send(bob), out=out)
    assert f"Action 0 was recorded at {__file__}:" in "\n".join(caught.value.__notes__)
    assert out.get().tolist() == [0.0, 0.0]
    del caught


def test_there_is_no_graph(worker: sy.VirtualWorker) -> None:
    model = nn.Linear(2, 1)
    pointer = plan_of(lambda x: model(x)).send(worker)
    x, out = X.send(worker), torch.zeros(1).send(worker)
    assert refusal(lambda: pointer(x, out=out).get()) == (
        "ProgramError: Plan '<lambda>': what is written with out= has no graph, and result 0 or "
        "its target requires grad. Call the plan under torch.no_grad(), or without out="
    )
    with torch.no_grad():
        pointer(x, out=out)
    assert not out.requires_grad and torch.equal(out.get(), model(X).detach())
    plain = plan_of(lambda x: x.sum(0, keepdim=True)).send(worker)
    leaf = torch.zeros(1, requires_grad=True).send(worker)
    assert "requires grad" in refusal(lambda: plain(x, out=leaf).get())


def test_a_parameter_of_that_name_is_an_argument(worker: sy.VirtualWorker) -> None:
    def own(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return torch.add(x, x, out=out) + 1

    def named(x: torch.Tensor, **rest: torch.Tensor) -> torch.Tensor:
        return x + rest["out"]

    x, out = X.send(worker), torch.ones(2).send(worker)
    pointer = plan_of(own, X, out=torch.ones(2)).send(worker)
    result = pointer(x, out=out)
    assert result is not out and result.get().tolist() == [3.0, -3.0]
    assert out.copy().get().tolist() == [2.0, -4.0]
    result = plan_of(named, X, out=X).send(worker)(x, out=out)
    assert result.get().tolist() == [3.0, -6.0] and out.get().tolist() == [2.0, -4.0]
    rest = plan_of(lambda x, **rest: x * 2).send(worker)
    assert rest(x, out=torch.zeros(2).send(worker)).get().tolist() == [2.0, -4.0]


def test_at_several_workers(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    pointer = plan_of(lambda x: x * 2).send(bob, alice)
    x, out = X.send(bob, alice), torch.zeros(2).send(bob, alice)
    assert pointer(x, out=out) is out
    assert [part.tolist() for part in out.get()] == [[2.0, -4.0]] * 2
    assert pointer(X.send(bob), out=torch.zeros(2).send(bob)).get().tolist() == [2.0, -4.0]
    own = plan_of(lambda x, out: x + out, X, X).send(bob, alice)
    assert [part.tolist() for part in own(x, out=x).get()] == [[2.0, -4.0]] * 2


# ---------------------------------------------------------------------------------- private values


def test_what_is_written_is_as_private_as_the_result(worker: sy.VirtualWorker) -> None:
    secret = X.private_tensor(allowed_users=["ann"]).send(worker, user="ann")
    base = torch.zeros(4).send(worker)
    out, other = base[:2], torch.zeros(2).send(worker)
    pointer = plan_of(lambda x, y: (x * 2, y + 1), X, X).send(worker)
    pointer(secret, X.send(worker), out=(out, other))
    for tensor in (out, base, base[1]):
        assert "PermissionDenied" in refusal(tensor.get)
    assert other.get().tolist() == [2.0, -1.0]
    assert out.get(user="ann").tolist() == [2.0, -4.0]


def test_what_is_written_into_private_memory_is_private(worker: sy.VirtualWorker) -> None:
    secret = X.private_tensor(allowed_users=["ann"]).send(worker, user="ann")
    plan_of(lambda x: x * 2).send(worker)(X.send(worker), out=secret)
    assert "PermissionDenied" in refusal(secret.get)
    assert secret.get(user="ann").tolist() == [2.0, -4.0]


def test_a_hidden_shape_stays_hidden(worker: sy.VirtualWorker) -> None:
    secret = X.private_tensor(allowed_users=["ann"]).send(worker, user="ann")
    pointer = plan_of(lambda x: x[x > 0]).send(worker)
    out = torch.zeros(0).send(worker)
    pointer(secret, out=out)
    assert "PermissionDenied" in refusal(lambda: out.shape)
    assert out.get(user="ann").tolist() == [1.0]
    error = refusal(lambda: pointer(secret, out=torch.zeros(3).send(worker)).get())
    assert "(1,)" not in error and "(3,)" not in error
    again = refusal(lambda: pointer(secret, out=torch.zeros(1).send(worker)).get())
    assert "PermissionDenied" in again and "(1,)" not in again, "whether it fits is private"
    out = torch.zeros(0).send(worker)
    pointer(secret, out=out)
    again = refusal(lambda: pointer(secret, out=out).get())
    assert "PermissionDenied" in again, "so is whether a target of a private shape is empty"


# ---------------------------------------------------------------------------------- by messages


def define(kinds: tuple[InputKind, ...], outs: int) -> Any:
    return pack(PlanCall(5, kinds, outs), Packer())


def test_calls_by_message() -> None:
    plan = plan_of(lambda x, n=2.0: (x * n, x + n))
    core = open_core()
    put(core, stored_plan(plan._record, plan._built("sent")))
    one, other = torch.zeros(2), torch.zeros(2)
    for id, tensor in ((6, X.clone()), (7, one), (8, other)):
        core.hold(id, tensor)
    kinds = (REF, NUMBER, REF, REF)
    inputs = [6, 3.0, 7, 8]
    assert ask(core, Run(1, 0, inputs, 100, 1, define=define(kinds, 2))) == Done(1)
    assert (one.tolist(), other.tolist()) == ([3.0, -6.0], [4.0, 1.0])
    assert ask(core, Run(1, 0, [6, 1.0, 8, 7], 100, 1)) == Done(1)
    assert (one.tolist(), other.tolist()) == ([2.0, -1.0], [1.0, -2.0])
    assert set(core.store.objects) == {5, 6, 7, 8}


@pytest.mark.parametrize(
    "definition, text",
    [
        (define((REF, NUMBER, REF), 1), "an object for each of 2 results"),
        (define((REF, NUMBER, REF, REF, REF), 3), "an object for each of 2 results"),
        (define((REF, REF, REF), 2), "kinds of 4 inputs"),
        (define((REF, NUMBER, REF, NUMBER), 2), "2 objects at the end"),
        (define((REF,), 2), "kinds of 4 inputs"),
        (define((), 2), "2 objects at the end"),
        ((int(TypeCode.PLAN_CALL), 5, bytes((0, 1, 0, 0)), 0), "an int from 1"),
        ((int(TypeCode.PLAN_CALL), 5, bytes((0, 1, 0, 0)), "x"), "an int"),
        ((int(TypeCode.PLAN_CALL), 5, b"", 1, 1), "an id, and the kinds of inputs"),
    ],
)
def test_hostile_calls_are_refused(definition: Any, text: str) -> None:
    plan = plan_of(lambda x, n=2.0: (x * n, x + n))
    core = open_core()
    put(core, stored_plan(plan._record, plan._built("sent")))
    core.hold(6, X.clone())
    error = error_in(ask(core, Run(1, 0, [6, 3.0, 6, 6], 100, 1, define=definition)))
    assert isinstance(error, MalformedMessage) and text in str(error)


def test_a_result_that_is_no_tensor_is_refused_there() -> None:
    plan = plan_of(lambda x: x.shape[0])
    core = open_core()
    put(core, stored_plan(plan._record, plan._built("sent")))
    core.hold(6, X.clone())
    error = error_in(ask(core, Run(1, 0, [6, 6], 100, 1, define=define((REF, REF), 1))))
    assert isinstance(error, WrongArguments) and str(error) == (
        "Plan '<lambda>' takes out= for tensors only, and got it for int."
    )


def test_an_error_about_private_data_keeps_its_text() -> None:
    plan = plan_of(lambda x: x * 2)
    core = open_core()
    put(core, stored_plan(plan._record, plan._built("sent")))
    secret = X.clone()
    protect(secret, Guard(frozenset({"ann"})))
    core.guard()
    core.hold(6, secret)
    core.hold(7, torch.zeros(3))
    run = Run(1, 0, [6, 7], 100, 1, define=define((REF, REF), 1))
    error = error_in(ask(core, run))
    assert "(2,)" not in str(error) and "(3,)" not in str(error)
    assert full_guard_of(core.store.objects[7]) is None


@pytest.mark.parametrize(
    "values, is_hidden",
    [((-1.0, -2.0), True), ((1.0, -2.0), True), ((1.0, -2.0), False)],
    ids=["empty", "not empty", "public and not empty"],
)
def test_a_result_of_a_private_shape_fits_only_what_is_empty_and_public(
    values: tuple[float, ...], is_hidden: bool
) -> None:
    """At the call itself: that a stranger may not read the target afterwards refuses nothing."""
    plan = plan_of(lambda x: x[x > 0])
    core = open_core()
    put(core, stored_plan(plan._record, plan._built("sent")))
    secret, target = torch.tensor(values), torch.tensor(values)
    target = target[target > 0]
    protect(secret, Guard(frozenset({"ann"})))
    if is_hidden:
        protect(target, Guard(frozenset({"ann"}), shape_hidden=True))
    core.guard()
    core.hold(6, secret)
    core.hold(7, target)
    before = target.clone()
    error = error_in(ask(core, Run(1, 0, [6, 7], 100, 1, define=define((REF, REF), 1))))
    assert isinstance(error, PermissionDenied) and "out= for a result of a private shape" in str(
        error
    )
    assert torch.equal(core.store.objects[7], before)
