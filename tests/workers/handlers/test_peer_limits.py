"""A caller that asks for too much is refused, and the worker goes on for all others."""

from __future__ import annotations

import contextlib
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest
import torch

import syft as sy
from syft.chain.wrapper import wrap
from syft.exceptions import LimitExceeded, PromiseGivenUp, RemoteFailure
from syft.ops.nested import every_tensor
from syft.ops.table import BY_NAME
from syft.program.lowered import Lowered
from syft.program.program import Action, Program, Slot
from syft.tensors.pointer import PointerTensor
from syft.workers.core.charges import Charges
from syft.workers.core.peer import Peer, Session
from syft.workers.core.peer_limits import Account, PeerLimits
from syft.workers.core.state_machine import WorkerCore
from syft.workers.handlers import program_sizes
from syft.workers.handlers.program_sizes import SizedProgram, runs_unseen
from syft.workers.handlers.programs import lowered, run_program
from syft.workers.wire.messages import Promise


def strict(hook: sy.TorchHook, **limits: int) -> sy.VirtualWorker:
    return sy.VirtualWorker(hook, id="strict", peer_limits=PeerLimits(**limits))


def refused(limit: str) -> Any:
    return pytest.raises(LimitExceeded, match=f"Over a limit of worker '.*': peer_limits.{limit} ")


EXPENSIVE: dict[str, Callable[[Any, Any], Any]] = {
    "expand": lambda bob, x: x.expand(2**50, 3).sum(),
    "zeros": lambda bob, x: bob.torch.zeros(10**12),
    "full": lambda bob, x: bob.torch.full((10**6, 10**6), 1.0),
    "eye": lambda bob, x: bob.torch.eye(10**6),
    "arange": lambda bob, x: bob.torch.arange(0.0, 1e12),
    "repeat": lambda bob, x: x.repeat(2**40),
    "a size in a tensor": lambda bob, x: x.repeat(torch.tensor(2**40).send(bob)),
    "new_zeros": lambda bob, x: x.new_zeros(2**40),
    "resize": lambda bob, x: x.resize_(2**40),
    "pad": lambda bob, x: torch.nn.functional.pad(x, (2**40, 0)),
    "interpolate": lambda bob, x: torch.nn.functional.interpolate(x.view(1, 1, 3), size=2**40),
    "one_hot": lambda bob, x: torch.nn.functional.one_hot((x * 2**40).long()),
    "one_hot of classes": lambda bob, x: torch.nn.functional.one_hot(x.long(), 2**50),
    "bincount": lambda bob, x: torch.bincount((x * 2**40).long()),
    "minlength": lambda bob, x: torch.bincount(x.long(), minlength=2**40),
    "repeat_interleave": lambda bob, x: torch.repeat_interleave(x, 2**40),
    "repeats": lambda bob, x: torch.repeat_interleave((x * 2**40).long()),
    "combinations": lambda bob, x: torch.combinations(x.expand(100, 3).reshape(-1), r=9),
    "outer products": lambda bob, x: torch.outer(x.repeat(10**6), x.repeat(10**6)),
    "sums": lambda bob, x: x.repeat(10**6)[:, None] + x.repeat(10**6),
    "cartesian": lambda bob, x: torch.cartesian_prod(*[x.repeat(10**4)] * 4),
    "diag_embed": lambda bob, x: x.repeat(10**6).diag_embed(),
    "stft": lambda bob, x: torch.fft.fft(x, n=2**40),
}


@pytest.mark.parametrize("name", EXPENSIVE)
def test_what_would_take_years_or_all_memory_is_refused(name: str, bob: sy.VirtualWorker) -> None:
    x = torch.ones(3).send(bob)
    with pytest.raises(LimitExceeded, match="peer_limits.(elements|bytes) is"):
        EXPENSIVE[name](bob, x)
    assert (x + 1).get().tolist() == [2, 2, 2], "the worker goes on"


@pytest.mark.parametrize("name", ["expand", "sums", "repeat", "one_hot"])
def test_programs_are_under_the_same_limits(name: str, bob: sy.VirtualWorker) -> None:
    x = torch.ones(3).send(bob)
    with pytest.raises(LimitExceeded, match="peer_limits.(elements|bytes) is"):
        with bob.group():
            EXPENSIVE[name](bob, x)
    with bob.group():
        y = x + 1
    assert y.get().tolist() == [2, 2, 2]


def test_a_program_is_looked_at_again_for_inputs_of_other_sizes(hook: sy.TorchHook) -> None:
    bob = strict(hook, elements=1000)
    for size in (3, 3, 5, 40):
        x = torch.ones(size).send(bob)
        y = None
        try:
            with bob.group():
                y = (x[:, None] * x).sum() + 1
            assert y.get() == size**2 + 1 and size < 40
        except LimitExceeded as error:
            assert size == 40 and error.limit == "peer_limits.elements"


def test_a_program_whose_sizes_follow_from_values_is_looked_at_each_time(
    hook: sy.TorchHook,
) -> None:
    bob = strict(hook, elements=1000)
    for largest in (3, 3, 10**9):
        x = torch.tensor([largest]).send(bob)
        y = None
        try:
            with bob.group():
                y = torch.bincount(x)[-1] + 1
            assert y.get() == 2 and largest == 3
        except LimitExceeded as error:
            assert largest == 10**9 and error.limit == "peer_limits.elements"


def actions(*calls: Any) -> tuple[Action, ...]:
    """Actions that write to the slots from the third on, one after another."""
    return tuple(
        Action(BY_NAME[name], args, kwargs, Slot(2 + index))
        for index, (name, args, kwargs) in enumerate(calls)
    )


class Served:
    """Runs of a program for one caller of a worker with limits."""

    def __init__(self, program: Program, **limits: int) -> None:
        self.core = WorkerCore("bob", connect=print, peer_limits=PeerLimits(**limits))
        self.peer = self.core.serving = Peer("ann")
        self.program = lowered(program)

    @property
    def account(self) -> Account:
        return self.peer.session.account

    def run(self, *values: Any) -> Any:
        return run_program(self.core, self.program, values, self.peer)

    def runs_unseen(self, *values: Any) -> bool:
        return runs_unseen(self.program, self.core.store.charges, values)


X, N = Slot(0), Slot(1)
GROWN = ("torch.Tensor.repeat", (X, Slot(2)), {})
FLOAT, STEPS = torch.arange(4.0), torch.arange(8)

READ: dict[str, tuple[tuple[Action, ...], Any, Any]] = {
    "item": (actions(("torch.Tensor.item", (N,), {}), GROWN), torch.tensor(2), torch.tensor(900)),
    "index": (
        actions(("torch.Tensor.__index__", (N,), {}), GROWN),
        torch.tensor(2),
        torch.tensor(900),
    ),
    "a size in a tensor": (
        actions(("torch.Tensor.repeat", (X, N), {})),
        torch.tensor(2),
        torch.tensor(900),
    ),
    "a length in a tensor": (
        actions(
            ("torch.Tensor.expand", (X, 900, 4), {}),
            ("torch.Tensor.narrow", (Slot(2), 0, 0, N), {}),
            ("torch.Tensor.clone", (Slot(3),), {}),
        ),
        torch.tensor(2),
        torch.tensor(900),
    ),
    "a dimension in a tensor": (
        actions(
            ("torch.Tensor.expand", (X, 900, 4), {}),
            ("torch.sum", (Slot(2), N), {}),
            ("torch.Tensor.repeat", (Slot(3), 4), {}),
        ),
        torch.tensor(0),
        torch.tensor(1),
    ),
    "a factor in a tensor": (
        actions(
            ("torch.Tensor.view", (X, 1, 1, 4), {}),
            (
                "torch.nn.functional.interpolate",
                (Slot(2),),
                {"scale_factor": N, "recompute_scale_factor": True},
            ),
        ),
        torch.tensor(2.0),
        torch.tensor(900.0),
    ),
    "a factor": (
        actions(
            ("torch.Tensor.view", (X, 1, 1, 4), {}),
            ("torch.nn.functional.interpolate", (Slot(2),), {"scale_factor": N}),
        ),
        2.0,
        900.0,
    ),
    "a computed number": (
        actions(
            ("syft.ops.numbers.mul", (N, 50), {}),
            ("syft.ops.numbers.floor", (Slot(2),), {}),
            ("torch.Tensor.repeat", (X, Slot(3)), {}),
        ),
        1.0,
        900.0,
    ),
    "a flag": (
        actions(
            ("syft.ops.numbers.mul", (N, 900), {}),
            ("torch.Tensor.repeat", (X, Slot(2)), {}),
        ),
        False,
        True,
    ),
    "a stride": (
        actions(("torch.Tensor.stride", (N, 0), {}), GROWN),
        torch.ones(2).as_strided((1,), (2,)),
        torch.ones(2).as_strided((1,), (900,)),
    ),
}
"""Programs whose sizes follow from a number, with a small and a large one."""


@pytest.mark.parametrize("way", READ)
def test_a_number_that_a_program_reads_from_a_value_is_looked_at_each_time(way: str) -> None:
    steps, small, large = READ[way]
    served = Served(Program(2, steps, steps[-1].out), elements=7500, bytes=13_000)
    served.core.store.put(1, torch.ones(1))
    for _ in range(2):
        served.run(FLOAT, small)
    with refused("(elements|bytes)"):
        served.run(FLOAT, large)
    served.run(FLOAT, small)


def test_numbers_that_only_compute_are_not_looked_at() -> None:
    steps = actions(
        ("syft.ops.numbers.mul", (N, 2), {}),
        ("torch.Tensor.mul", (X, Slot(2)), {}),
        ("torch.Tensor.sum", (Slot(3),), {}),
        ("torch.Tensor.item", (Slot(4),), {}),
    )
    served = Served(Program(2, steps, Slot(5)))
    assert served.run(FLOAT, 1.0) == 12 and served.runs_unseen(FLOAT, 0.5)
    assert not served.runs_unseen(FLOAT, 1), "an int has another dtype"
    assert not served.runs_unseen(STEPS, 1.0) and not served.runs_unseen(FLOAT.cfloat(), 1.0)
    assert not served.runs_unseen(torch.ones(8)[::2], 1.0)


def on_the_way(count: int) -> Program:
    """A program that has ``count`` tensors at once, each of the size of its input, and keeps
    none."""
    made = [("torch.Tensor.add", (X, index), {}) for index in range(count)]
    sums = [
        ("torch.Tensor.add", (Slot(2 + index), Slot(1 + index + count)), {})
        for index in range(count)
    ]
    sums[0] = ("torch.Tensor.add", (Slot(2), 0), {})
    steps = actions(*made, *sums, ("torch.Tensor.sum", (Slot(1 + 2 * count),), {}))
    return Program(2, steps, steps[-1].out)


def one_after_another(count: int) -> Program:
    """A program that makes as many tensors, of which two are there at once."""
    steps = actions(
        ("torch.Tensor.add", (X, 1), {}),
        *(("torch.Tensor.add", (Slot(2 + index), 1), {}) for index in range(count)),
        ("torch.Tensor.sum", (Slot(2 + count),), {}),
    )
    return Program(2, steps, steps[-1].out)


def test_memory_that_a_program_has_on_the_way_counts_while_it_lives() -> None:
    x = torch.ones(25_000)  # 100,000 bytes
    for size in (25_000, 100, 25_000):
        served = Served(on_the_way(12), bytes=10**6)
        with refused("bytes") if size > 100 else contextlib.nullcontext():
            served.run(x[:size], 0)
        assert served.account.bytes == 0
    served = Served(one_after_another(40), bytes=10**6)
    assert served.run(x, 0) == 25_000 * 42 and served.account.bytes == 0
    assert served.runs_unseen(x, 0)
    views = actions(*(("torch.Tensor.view", (Slot(0), -1), {}) for _ in range(40)))
    served = Served(Program(2, views, tuple(action.out for action in views)), bytes=10**6)
    assert len(served.run(x, 0)) == 40, "views of an input need no memory"


def test_what_a_program_reads_into_lists_counts_until_it_ends() -> None:
    steps = actions(*(("torch.Tensor.tolist", (X,), {}) for _ in range(12)))
    served = Served(Program(2, steps, Slot(2)), bytes=10**6)
    with refused("bytes"):
        served.run(torch.ones(2500), 0)
    assert served.run(torch.ones(2), 0) == [1, 1]


def test_a_caller_that_has_much_may_not_run_what_it_ran_with_little() -> None:
    x = torch.ones(25_000)
    served = Served(on_the_way(6), bytes=10**6)
    for _ in range(2):
        served.run(x, 0)
    assert served.runs_unseen(x, 0)
    served.core.store.put(5, torch.ones(125_000))  # half of what it may have
    assert not served.runs_unseen(x, 0)
    with refused("bytes"):
        served.run(x, 0)
    assert served.account.bytes == 500_000
    served.core.store.drop(5, "dropped")
    assert served.runs_unseen(x, 0)


def test_what_the_owner_ran_is_looked_at_for_callers() -> None:
    x = torch.ones(25_000)
    served = Served(on_the_way(12), bytes=10**6)
    served.core.serving = None
    served.run(x, 0)
    served.core.serving = served.peer
    with refused("bytes"):
        served.run(x, 0)


def test_modes_and_layouts_are_among_what_memory_follows_from() -> None:
    steps = actions(
        *(("torch.Tensor.reshape", (X, -1), {}) for _ in range(6)),
        ("torch.stack", ([Slot(2 + index) for index in range(6)],), {}),
        ("torch.Tensor.sum", (Slot(8),), {}),
    )
    served = Served(Program(2, steps, Slot(9)), bytes=10**6)
    x = torch.ones(150, 200)
    served.run(x, 0)
    assert served.runs_unseen(x.clone(), 0)
    assert not served.runs_unseen(x.view(200, 150).t(), 0)
    assert not served.runs_unseen(x.clone().requires_grad_(), 0)
    with refused("bytes"):  # of which each reshape makes a copy
        served.run(x.view(200, 150).t(), 0)
    with torch.no_grad():
        assert not served.runs_unseen(x, 0)


def test_the_sizes_with_which_a_program_ran_are_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program_sizes, "_MOST_KNOWN", 2)
    ann = Session().account
    charges = Charges("bob", {}, PeerLimits(elements=1000), lambda: ann)
    grow = Action(BY_NAME["torch.Tensor.mul"], (Slot(0), Slot(1)), {}, Slot(2))
    program = Lowered(Program(2, (grow,), Slot(2)))
    for factor in (2, 0.5, 5000.0, 0.25):
        made = program_sizes.SizedProgram(program, charges).run([torch.ones(2), factor])
        assert made.tolist() == [factor, factor]
    assert 0 < len(program.known_sizes.peaks) <= 2


def test_the_peak_that_is_remembered_is_what_the_loop_has_at_once() -> None:
    """What is read, what is made, and what died at the action before; not what died earlier."""
    ann = Session().account
    charges = Charges("bob", {}, PeerLimits(), lambda: ann)
    for length, most in ((1, 1), (2, 2), (3, 3), (50, 3)):
        double = [
            Action(BY_NAME["torch.Tensor.add"], (Slot(at), Slot(at)), {}, Slot(at + 1))
            for at in range(length)
        ]
        program = Lowered(Program(1, tuple(double), Slot(length)))
        x = torch.ones(1000)
        program_sizes.SizedProgram(program, charges).run([x])
        assert [*program.known_sizes.peaks.values()] == [4000 * most]
        assert ann.bytes == 0
        ann.bytes = charges.limits.bytes - 4000 * most
        assert program_sizes.runs_unseen(program, charges, [x])
        ann.bytes += 1
        assert not program_sizes.runs_unseen(program, charges, [x])
        ann.bytes = 0


def test_branches_and_private_values_are_under_limits_too(hook: sy.TorchHook) -> None:
    bob = strict(hook, elements=1000)

    @sy.func2plan(args_shape=[(2,)])
    def grow(x: torch.Tensor) -> torch.Tensor:
        grown: torch.Tensor = sy.cond(x.sum() > 1, lambda y: y.repeat(2000), lambda y: y, x)
        return grown

    there = grow.send(bob)
    public = torch.ones(2).send(bob)
    with refused("elements"):
        there(public)
    private = torch.ones(2).private_tensor(allowed_users=["ann"]).send(bob, user="ann")
    with pytest.raises(LimitExceeded):
        private.repeat(2000)
    del there, public, private


PIECES: dict[str, Callable[[Any], Any]] = {
    "split": lambda x: x.split(1),
    "split_with_sizes": lambda x: x.split([1] * 100),
    "chunk": lambda x: x.chunk(10**9),
    "unbind": lambda x: x.unbind(),
    "unbind of a dimension": lambda x: x[None].unbind(dim=1),
    "tensor_split": lambda x: x.tensor_split(10**9),
    "tensor_split at indices": lambda x: x.tensor_split(list(range(100))),
    "hsplit": lambda x: torch.hsplit(x, 100),
}


@pytest.mark.parametrize("name", PIECES)
def test_the_number_of_results_is_bounded(name: str, hook: sy.TorchHook) -> None:
    bob = strict(hook, results=50)
    x = torch.ones(100).send(bob)
    with refused("results"):
        PIECES[name](x)
    assert len(x.split(2)) == len(x.chunk(50)) == len(x.tensor_split(50)) == 50
    assert len(x[:50].unbind()) == 50 and len(x.tensor_split([50])) == 2


def test_the_limits_of_one_are_not_those_of_another(hook: sy.TorchHook) -> None:
    bob = strict(hook, objects=2, bytes=10**6)
    eve = sy.VirtualWorker(hook, id="eve")
    mine = [torch.ones(2).send(bob), torch.ones(2).send(bob)]
    with refused("objects"):
        torch.ones(2).send(bob)
    with refused("objects"):
        mine[0] + 1
    with refused("objects"):
        mine[0].max(dim=0)
    with refused("objects"):
        mine[0].copy()
    kept = []
    with refused("objects"), bob.group():
        kept.append(mine[0] + mine[1])
    kept.clear()
    theirs = eve.connection_to(bob).put(torch.ones(2), None)
    assert bob.core.store.objects[theirs].tolist() == [1, 1]
    eve.connection_to(bob).garbage.append(theirs)
    eve.connection_to(bob).flush()
    del mine
    x = torch.ones(2).send(bob)
    assert (x + 1).get().tolist() == [2, 2]


def test_memory_is_bounded_and_given_back(hook: sy.TorchHook) -> None:
    bob = strict(hook, bytes=10**6)
    x = torch.ones(100_000).send(bob)
    with refused("bytes"):
        torch.ones(200_000).send(bob)
    with refused("bytes"):
        x.double()
    assert (x.expand(2, 100_000)[0, 0]).get() == 1, "a view needs no memory"
    x.resize_(150_000)
    with refused("bytes"):
        bob.torch.zeros(120_000)
    del x
    assert bob.torch.zeros(200_000).sum().get() == 0


def test_small_views_of_large_memory_are_charged_for_it(hook: sy.TorchHook) -> None:
    bob = strict(hook, bytes=10**6)
    kept = []
    with refused("bytes"):
        for _ in range(4):
            kept.append(bob.torch.zeros(100_000)[:1])
    assert len(kept) == 2
    del kept[:]
    first = torch.ones(1).send(bob)
    with refused("bytes"):
        for _ in range(4):
            with bob.group():
                kept.append(first.expand(100_000).clone()[:1])
    assert len(kept) == 3, "the last one is refused when its group ends"
    del kept[:]
    assert bob.torch.zeros(200_000).sum().get() == 0


@pytest.mark.parametrize("way", ["detach", "contiguous", "clone"])
def test_large_memory_is_charged_to_what_keeps_it_and_is_no_view(
    hook: sy.TorchHook, way: str
) -> None:
    bob = strict(hook, bytes=1 << 25)  # 32 objects are not counted
    kept: list[Any] = []
    part = None
    with refused("bytes") if way != "clone" else contextlib.nullcontext():  # a copy is the control
        for _ in range(4):
            part = bob.torch.zeros(2_000_000)[:1].detach()
            kept.append(getattr(part, way)())
    assert len(kept) == (4 if way == "clone" else 3)


@pytest.mark.parametrize("in_group", [False, True])
def test_what_grows_is_under_limits_in_each_run(hook: sy.TorchHook, in_group: bool) -> None:
    bob = strict(hook, bytes=10**6)

    def grow(*several: Any) -> None:
        with bob.group() if in_group else contextlib.nullcontext():
            for x in several:
                x.resize_(100_000)

    grown = [torch.ones(1).send(bob) for _ in range(4)]
    with refused("bytes"):
        grow(*grown)
    del grown
    grown = [torch.ones(1).send(bob) for _ in range(4)]
    with refused("bytes"):  # of sizes with which it has run before
        for x in grown:
            grow(x)
    assert [x.numel() for x in grown] == [100_000, 100_000, 1, 1]


def test_a_pointer_that_leads_back_ends_soon(
    bob: sy.VirtualWorker, alice: sy.VirtualWorker, me: sy.VirtualWorker
) -> None:
    """From two messages it took 38 seconds, and ended where the stack did."""
    y = torch.ones(2).send(bob)
    for to, back in ((bob, bob), (bob, alice)):
        pointers = [wrap(PointerTensor(me.connection_to(back.id), 77, False)).send(to, id=77)]
        if back is alice:
            home = wrap(PointerTensor(me.connection_to("bob"), 77, False))
            pointers.append(home.send(alice, id=77))
        for ask in (pointers[0].sum, pointers[0].size):
            with pytest.raises(LimitExceeded, match="a chain of pointers leads back to it"):
                ask()
        assert (y + 1).get().tolist() == [2, 2]
        del ask
        pointers.clear()


def test_a_tag_more_than_there_may_be_is_refused(hook: sy.TorchHook) -> None:
    bob = strict(hook, tags=10, tags_per_object=6, text=20)
    (id,) = bob.hold(torch.ones(2).tag("#owner"), allow_writes=("me",))
    (x,) = bob.search("#owner")
    x.tag(*(f"#{number}" for number in range(5)))
    with refused("tags_per_object"):
        x.tag("#another")
    with refused("text"):
        x.describe("far too long a text for this worker")
    y = torch.ones(2).send(bob)
    y.tag(*(f"#{number}" for number in range(5)))
    with refused("tags"):
        y.tag("#another")
    assert x.tags == {"#owner", "#0", "#1", "#2", "#3", "#4"}
    del y
    torch.ones(2).send(bob).tag("#one", "#two")
    bob.clear_objects()
    assert id


def test_promises_and_what_waits_are_bounded(hook: sy.TorchHook) -> None:
    bob = strict(hook, promises=8, parked=3)
    promise = bob.promise()
    waiting = [promise + 1, promise + 2, promise + 3]
    with refused("parked"):
        promise + 4
    connection = hook.local_worker.connection_to(bob)
    with refused("promises"):
        connection.ask(Promise, tuple(range(100, 200)))
    promise.child.connection.location.give_up(promise, "enough")
    for result in waiting:
        with pytest.raises(PromiseGivenUp):
            result.get()
    again = bob.promise()
    assert torch.ones(2).send(bob, id=again.child.id_at_location) is not None
    bob.clear_objects()


def test_the_owner_ends_what_waits_for_one_caller(
    hook: sy.TorchHook, bob: sy.VirtualWorker
) -> None:
    """A write that waits holds back the reads of others."""
    x = torch.ones(2).send(bob)
    promise = bob.promise()
    x.add_(promise)
    bob.give_up_promises_of("nobody", "enough")
    assert bob.core.store.promised
    bob.give_up_promises_of("me", "enough")
    assert not bob.core.store.promised and not bob.core.dataflow.tasks
    with pytest.raises(PromiseGivenUp):  # of the write, which nobody waited for
        x.copy().get()
    assert x.get().tolist() == [1, 1]


def test_the_owner_ends_the_collectives_of_one_caller(
    hook: sy.TorchHook, bob: sy.VirtualWorker, alice: sy.VirtualWorker
) -> None:
    """Also those whose inputs are here and which wait for another party."""
    totals = sy.sum_private(torch.ones(2).send(bob), alice.promise())
    assert bob.core.sessions
    bob.give_up_promises_of("me", "enough")
    assert not bob.core.sessions
    with pytest.raises(RemoteFailure, match="enough"):
        totals[0].get()
    alice.clear_objects()


def test_the_sizes_of_chains_are_those_of_their_tensors() -> None:
    program = Lowered(
        Program(1, (Action(BY_NAME["torch.add"], (Slot(0), 1), {}, Slot(1)),), Slot(1))
    )
    charges = Charges("bob", {}, payer=Account)
    sized = SizedProgram(program, charges)
    logged = sy.LoggingTensor().on(torch.ones(2))
    assert not runs_unseen(program, charges, [logged])
    assert sized.run([logged]).child.child.tolist() == [2, 2]
    assert runs_unseen(program, charges, [sy.LoggingTensor().on(torch.zeros(2))])
    assert not runs_unseen(program, charges, [sy.LoggingTensor().on(torch.zeros(3))])


REPEATED: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "copy": ("handlers.objects.duplicate_of", lambda x, y: x.copy()),
    "allow": ("handlers.allowing.released", lambda x, y: x.allow("bea")),
    "fix_precision": ("core.pipeline.converted", lambda x, y: x.fix_precision()),
    "float_precision": (
        "core.pipeline.converted",
        lambda x, y: x[0].fix_precision().expand(x.shape).float_precision(),
    ),
    "copy of a chain": (
        "handlers.objects.duplicate_of",
        lambda x, y: x[0].fix_precision().expand(x.shape).copy(),
    ),
    "sum_private": ("handlers.collective._program", lambda x, y: sy.sum_private(x, y)[0].get()),
    "share": (
        "handlers.sharing._pieces",
        lambda x, y: x.share(x.location, y.location, crypto_provider="dealer").decrypt(),
    ),
}
"""What goes through all elements of an object, and the function that makes memory for them."""


@pytest.mark.parametrize("name", REPEATED)
def test_what_repeats_its_elements_is_as_large_as_it_looks(
    name: str, hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, call = REPEATED[name]
    limits = PeerLimits(bytes=1 << 25)
    ids = "strict", "other", "dealer"
    workers = [sy.VirtualWorker(hook, id=id, peer_limits=limits) for id in ids]

    def repeated(count: int) -> list[Any]:
        one = torch.ones(1, dtype=torch.int64)
        return [one.send(worker).expand(count, 1) for worker in workers[:2]]

    make: Any = pkgutil.resolve_name(f"syft.workers.{place}")

    def made(*args: Any) -> Any:
        assert all(tensor.numel() < 10 for tensor in every_tensor(args))
        return make(*args)

    monkeypatch.setattr(f"syft.workers.{place}", made)
    call(*repeated(4))
    with refused("bytes"):
        call(*repeated((1 << 24) + 1))


WINDOWS: dict[str, Callable[[Any, Any], Any]] = {
    "get": lambda x, worker: x.get(),
    "copy": lambda x, worker: x.copy(),
    "move": lambda x, worker: x.move(worker),
    "remote_send": lambda x, worker: x.remote_send(worker),
    "get_all": lambda x, worker: sy.get_all([x, x[0]]),
    "in a chain": lambda x, worker: x.fix_precision().get(),
}
"""What sends the elements of an object, or copies them."""


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_that_overlap_are_as_large_as_they_are_sent(name: str, hook: sy.TorchHook) -> None:
    limits = PeerLimits(bytes=1 << 25)
    bob, other = (sy.VirtualWorker(hook, id=id, peer_limits=limits) for id in ("strict", "other"))

    def windows(length: int) -> Any:
        return torch.ones(10_000, dtype=torch.int64).send(bob).unfold(0, length, 1)

    WINDOWS[name](windows(2), other)
    with refused("bytes"):
        WINDOWS[name](windows(5_000), other)
    if name == "get":
        assert windows(1)[:1].expand(1 << 24, 1).get().shape == (1 << 24, 1), "each travels once"
    bob.close()
    other.close()
