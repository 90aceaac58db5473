"""Whatever a worker does, the programs that call it go on: they wait no longer than they should,
get errors that say what is wrong, keep little, and use other workers meanwhile."""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import syft as sy
from syft.exceptions import MalformedMessage, SyftError, WorkerLost, WorkerTimeout
from syft.workers.sockets import client as client_module
from syft.workers.wire import messages
from tests.sampling import fewer
from tests.workers.sockets.attacks.hostile_worker import HostileWorker
from tests.workers.sockets.attacks.stranger import BINARY, TEXT

# --------------------------------------------------------------- what programs ask of workers


def compute(mallory: Any) -> None:
    (torch.ones(2).send(mallory) + 1).get()


def send_much(mallory: Any) -> None:
    torch.ones(20_000).send(mallory).get()


def look_for(mallory: Any) -> None:
    mallory.search("#x")


def list_all(mallory: Any) -> None:
    mallory.list_objects_remote()


def synchronize(mallory: Any) -> None:
    x = torch.ones(2).send(mallory)
    y = x + x
    sy.synchronize()
    assert y.id_at_location > 0


def train(mallory: Any) -> None:
    model = torch.nn.Linear(2, 1).send(mallory)
    model(torch.ones(1, 2).send(mallory)).sum().backward()
    model.get()


def call_a_plan(mallory: Any) -> None:
    double = sy.func2plan(args_shape=[(2,)])(lambda x: (x + x, x))
    plan = double.send(mallory)
    first, _ = plan(torch.ones(2).send(mallory))
    assert isinstance(plan.tags, set) and isinstance(plan.description, str | None)
    first.get()
    plan.get()


def ask_about(mallory: Any) -> None:
    x = torch.ones(2, 3).send(mallory)
    y = x @ x.t()
    assert isinstance(x.tags, set) and isinstance(x.description, str | None)
    _ = x.dtype, y.shape, y.requires_grad, y.grad, repr(x), x[0][0].item(), bool(x.sum() > 0)


def group(mallory: Any) -> None:
    x = torch.ones(2).send(mallory)
    with mallory.group():
        y = x * 2
    sy.get_all([x, y])


def promise(mallory: Any) -> None:
    promised = mallory.promise()
    torch.ones(2).send(mallory, id=promised.child.id_at_location)
    promised.get()


PROGRAMS: list[Callable[[Any], None]] = [
    *(compute, send_much, look_for, list_all, synchronize, train),
    *(call_a_plan, ask_about, group, promise),
]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting may last a moment here, and not ten seconds."""
    monkeypatch.setattr(client_module, "_PATIENCE", 0.2)


def is_predicted(error: Exception, connecting: bool) -> bool:
    """Whether an error is one that a program must expect: of this library, one that the worker has
    raised, or what the program does with a value that is another than it thought."""
    if isinstance(error, SyftError) or (connecting and isinstance(error, OSError)):
        return True
    if any(note.startswith("Raised on worker") for note in getattr(error, "__notes__", ())):
        return True
    return traceback.extract_tb(error.__traceback__)[-1].filename == __file__


def attempt(act: Callable[[], Any], seed: int, deeds: list[str], connecting: bool = False) -> Any:
    """Do something that may fail; what it returns, or the kind of its error."""
    try:
        return act()
    except Exception as error:
        assert is_predicted(error, connecting), (seed, deeds, traceback.format_exception(error))
        return type(error)


def one_case(hook: sy.TorchHook, seed: int) -> float:
    """Two programs at a worker of this seed; returns the seconds of the longer one."""
    random_ = random.Random(seed)
    with HostileWorker(seed, random_.choice([0.6, 0.9, 0.97])) as hostile:
        settings = {"heartbeat": 0.05, "timeout": 0.15, "blocking": random_.random() < 0.4}
        settings["id"] = random_.choice([None, "mallory"])
        longest = 0.0
        mallory = attempt(
            lambda: sy.WebsocketClientWorker(hook, port=hostile.port, **settings),
            *(seed, hostile.deeds, True),
        )
        if isinstance(mallory, type):
            return longest
        for program in random_.choices(PROGRAMS, k=2):
            began = time.monotonic()
            attempt(partial(program, mallory), seed, hostile.deeds)
            longest = max(longest, time.monotonic() - began)
        attempt(mallory.close, seed, hostile.deeds)
        assert mallory.closed
    return longest


def memory() -> float:
    """Resident memory of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def cases(hook: sy.TorchHook, seeds: range) -> str:
    """So many cases; what is to be told of them."""
    bob = sy.VirtualWorker(hook, id="bob")
    died: Counter[str] = Counter()
    outer, threading.excepthook = threading.excepthook, lambda args: died.update([str(args)])
    callers = len(hook.local_worker.callers)
    times, before = [], 0.0
    try:
        for number, seed in enumerate(seeds):
            times.append(one_case(hook, seed))
            assert (torch.ones(2).send(bob) + 1).get().tolist() == [2.0, 2.0], "others go on"
            if number == len(seeds) // 5:
                before = memory()
    finally:
        threading.excepthook = outer
        bob.close()
    assert not died, died
    assert len(hook.local_worker.callers) <= callers + 1, "nothing is kept of workers that are left"
    times.sort()
    assert times[-1] < 10, "each wait has an end"
    return (
        f"{len(seeds)} hostile workers: a program took {times[len(times) // 2] * 1000:.0f} ms "
        f"(median), {times[-1]:.1f} s (the longest); {memory() - before:+.1f} MB"
    )


def test_hostile_workers(hook: sy.TorchHook, pytestconfig: pytest.Config) -> None:
    first = random.randrange(10**9)
    print(cases(hook, range(first, first + fewer(60, pytestconfig))))


@pytest.mark.soak
def test_twenty_thousand_hostile_workers(hook: sy.TorchHook) -> None:
    first = random.randrange(10**9)
    print(cases(hook, range(first, first + 20_000)))


# ----------------------------------------------------------------- one misdeed after another


class Answering(HostileWorker):
    """A worker that keeps all rules, but answers one kind of request with a value of its choice."""

    def __init__(self, kind: str, value: Any) -> None:
        super().__init__(0, honesty=1.0)
        self.kind, self.value = kind, value

    def _reply(self, request: Any) -> Any:
        if type(request).__name__ == self.kind:
            return messages.Value(request.seq, self.value)
        return messages.Done(request.seq)


SIZE, TAGS = (18, 2), (3, "#x")

WRONG_ANSWERS: list[tuple[Callable[[Any], None], str, Any]] = [
    *((list_all, "Search", answer) for answer in (5, "x", (3, 5), (3, (3,)), (3, (3, "x")))),
    *((list_all, "Search", (3, (3, id, TAGS, None, SIZE))) for id in (-1, 2**63, True, None)),
    *((look_for, "Search", (3, (3, 5, *summary))) for summary in ((), (TAGS,), (TAGS, None, 5))),
    *(
        (look_for, "Search", (3, (3, 5, *summary)))
        for summary in ((5, None, SIZE), (TAGS, 5, SIZE))
    ),
    (look_for, "Search", (3, (3, 5, (3, 7), None, SIZE))),
    (look_for, "Search", (3, (3, 5, TAGS, None, SIZE, 5))),
    (look_for, "Search", (3, (3, 5, TAGS, None, SIZE, 5, 6))),
    *((train, "FetchAll", answer) for answer in (5, (3, 5), (3, 5, 6))),
    (group, "FetchAll", (3, 5)),
    (ask_about, "Describe", 5),
    (call_a_plan, "Describe", (3, 1, 2, 3)),
    (call_a_plan, "Run", (3, 5)),
    (call_a_plan, "Run", 5),
]


@pytest.mark.parametrize(
    "program, kind, value", WRONG_ANSWERS, ids=[f"{each[1]}{each[2]}" for each in WRONG_ANSWERS]
)
@pytest.mark.parametrize("blocking", [False, True])
def test_nonsense_is_called_so_where_it_was_asked_for(
    hook: sy.TorchHook, program: Callable[[Any], None], kind: str, value: Any, blocking: bool
) -> None:
    with Answering(kind, value) as hostile:
        mallory = sy.WebsocketClientWorker(
            hook, port=hostile.port, heartbeat=0.2, timeout=2, blocking=blocking
        )
        with pytest.raises(MalformedMessage):
            program(mallory)
        mallory.close()


def test_a_plan_that_is_none_is_refused(hook: sy.TorchHook) -> None:
    double = sy.func2plan(args_shape=[(2,)])(lambda x: x + x)
    with Answering("Fetch", 5) as hostile:
        mallory = sy.WebsocketClientWorker(hook, port=hostile.port, heartbeat=0.2, timeout=2)
        with pytest.raises(MalformedMessage):
            double.send(mallory).get()
        mallory.close()


def test_a_flood_of_questions_before_a_connection_breaks(hook: sy.TorchHook) -> None:
    """Each answer fails to be written: the connection is given up once, and not in each answer."""

    class Asking(HostileWorker):
        def _answer(self, opcode: int, data: bytes) -> None:
            for number in range(3000):
                self._tell({"kind": "meet", "number": number, "name": "bob"})
            self._resets()

    with Asking(0, honesty=1.0) as hostile:
        mallory = sy.WebsocketClientWorker(hook, port=hostile.port, heartbeat=0.2, timeout=2)
        with pytest.raises((WorkerLost, WorkerTimeout)):  # it can be reached again each time
            compute(mallory)
        mallory.close()


@pytest.mark.parametrize("blocking", [False, True])
def test_a_reply_to_a_request_that_could_not_be_read_is_a_failure(
    hook: sy.TorchHook, blocking: bool
) -> None:
    class Vague(HostileWorker):
        def _reply(self, request: Any) -> Any:
            self._say(messages.Done(-1))
            self._say(messages.Value(-1, 5))
            return messages.Done(request.seq)

    with Vague(0, honesty=1.0) as hostile:
        mallory = sy.WebsocketClientWorker(
            hook, port=hostile.port, heartbeat=0.2, timeout=2, blocking=blocking
        )
        x = torch.ones(2).send(mallory)
        assert (x + x).id_at_location != x.id_at_location, "it is the reply to neither"
        mallory.close()
        del x


class Slow(HostileWorker):
    """A worker that shows signs of life, and never answers."""

    def _answer(self, opcode: int, data: bytes) -> None:
        if opcode not in (BINARY, TEXT):
            super()._answer(opcode, data)


def test_sending_much_takes_no_longer_than_a_program_waits(hook: sy.TorchHook) -> None:
    with Slow(0, honesty=1.0) as hostile:
        mallory = sy.WebsocketClientWorker(hook, port=hostile.port, heartbeat=0.1, timeout=0.2)
        with pytest.raises(WorkerTimeout) as raised:
            send_much(mallory)
        assert raised.value.seconds == 0.2
        with pytest.raises(WorkerTimeout):
            mallory.work()
        mallory.close()


def test_each_thread_has_a_time_limit_of_its_own(hook: sy.TorchHook) -> None:
    limits: list[float | None] = [0.2, 0.5, 0.3]
    lasted: dict[float | None, float] = {}
    with Slow(0, honesty=1.0) as hostile:
        mallory = sy.WebsocketClientWorker(hook, port=hostile.port, heartbeat=0.1, timeout=60)

        def wait(seconds: float | None) -> None:
            began = time.monotonic()
            with pytest.raises(WorkerTimeout) as raised, mallory.within(seconds):
                mallory.list_objects_remote()
            lasted[raised.value.seconds] = time.monotonic() - began

        threads = [threading.Thread(target=wait, args=(seconds,)) for seconds in limits]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(lasted) == [0.2, 0.3, 0.5]
        assert all(seconds <= took for seconds, took in lasted.items())
        assert mallory.patience == 60 and not mallory.line.deadlines
        with mallory.within(None), mallory.within(5):
            assert mallory.patience == 5
        mallory.close()
