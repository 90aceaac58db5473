"""Very many callers at once: slow ones, idle ones, and ones that all ask."""

from __future__ import annotations

import contextlib
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import torch

import syft as sy
from syft.serde.frame import Frame, to_parts
from syft.workers.wire import messages
from syft.workers.wire.messages import Drop, Duplicate, Search
from tests.workers.sockets.attacks.stranger import BINARY, TEXT, Stranger, frame, syft_frame
from tests.workers.sockets.attacks.victim import Victim
from tests.workers.sockets.line_records import is_served

FILES = 4096


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    """Let this process have so many files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard not in (-1, resource.RLIM_INFINITY) and hard < FILES:
        pytest.skip(f"this system lets a process open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def served_in(victim: Victim) -> float:
    """Let an honest client in; how many seconds that took."""
    began = time.perf_counter()
    with Stranger(victim.port) as honest:
        assert honest.greet(name="honest")["kind"] == "welcome"
        assert type(honest.ask(Search(1, ("#nothing",)))).__name__ == "Value"
    return time.perf_counter() - began


def test_slow_callers_are_dropped_while_others_are_served() -> None:
    """1,000 connections: some say nothing, some a byte now and then, in each stage of the door."""
    with Victim(files=FILES) as victim, contextlib.ExitStack() as closing:
        stages: list[Callable[[], Stranger]] = [
            lambda: Stranger(victim.port, upgrade=False),
            lambda: Stranger(victim.port, upgrade=False),
            lambda: Stranger(victim.port),
        ]
        request = b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: " + b"w" * 9000
        drops = [b"", request, frame(TEXT, b"{" * 9000)]
        slow = [(index % 3, closing.enter_context(stages[index % 3]())) for index in range(1000)]
        began = time.monotonic()
        times = []
        sent = 0
        while time.monotonic() - began < 20:
            for kind, stranger in slow:
                if kind:
                    stranger.attempt(drops[kind][sent : sent + 1])
            sent += 1
            times.append(served_in(victim))
            if victim.ask("openings") == 0:
                break
            time.sleep(0.2)
        gone = time.monotonic() - began
        times.sort()
        print(
            f"1,000 slow callers were dropped within {gone:.1f} s; an honest one was served in "
            f"{times[len(times) // 2] * 1000:.1f} ms (median), {times[-1] * 1000:.1f} ms (worst)"
        )
        assert gone < 15
        assert times[len(times) // 2] < 1


def test_idle_callers_take_little_memory() -> None:
    with Victim(files=FILES) as victim, contextlib.ExitStack() as idle:
        served_in(victim)
        before = victim.memory
        for _ in range(1000):
            idle.enter_context(Stranger(victim.port)).greet()  # before the worker hangs up
        growth = victim.memory - before
        took = served_in(victim)
        print(f"1,000 idle connections: {growth:.1f} MB; the next served in {took * 1000:.1f} ms")
        assert growth < 20


# ------------------------------------------------------------------------------------- cross-talk


def put(id: int, value: float) -> bytes:
    """A request to store one number."""
    return put_value(id, torch.tensor([value]))


def put_value(id: int, value: torch.Tensor) -> bytes:
    """A request to store a tensor."""
    packed = sy.serde.serialize(value)  # its header is the operand
    header, buffers = _operand(packed)
    head = messages.encode(messages.Put(id, id, header))
    return frame(BINARY, b"".join(map(bytes, to_parts(Frame(head, buffers), False))))


def _operand(packed: bytes | bytearray) -> tuple[object, list[torch.Tensor]]:
    from syft.serde.frame import decode_header, from_bytes

    parsed = from_bytes(bytes(packed))
    return tuple(decode_header(parsed.header)), parsed.buffers


def ask_all(victim: Victim, number: int, count: int, wrong: list[str]) -> None:
    """One client: stores a number of its own, and asks for it in many ways, without waiting."""
    with Stranger(victim.port) as stranger:
        stranger.greet(name="me")
        mine = 1_000_000 * (number + 1)
        stranger.send(put(mine, float(number)))
        got: Counter[int] = Counter()
        for start in range(0, count, 50):
            seqs = range(mine + start + 1, mine + start + 1 + min(50, count - start))
            data = b""
            for seq in seqs:
                if seq % 2:
                    request = messages.encode(messages.Fetch(seq, mine, keep=True))
                else:
                    request = messages.encode(Search(seq, (str(number), f"#{number}")))
                data += frame(BINARY, syft_frame(request))
            stranger.send(data)
            while sum(got.values()) < start + len(seqs):
                opcode, reply = stranger.read()
                if is_served(opcode, reply):
                    got.update(checked(reply, mine, number, wrong))
        if got != Counter(range(mine + 1, mine + count + 1)):
            wrong.append(f"client {number}: a reply is missing, or came twice")


def checked(reply: bytes, mine: int, number: int, wrong: list[str]) -> list[int]:
    """Whether a reply belongs to this client; its number, but for that to the first request."""
    parsed = sy.serde.frame.from_bytes(reply)
    message = messages.decode(parsed.header)
    if message.seq == mine:
        return []
    if not mine < message.seq < mine + 1_000_000:
        wrong.append(f"client {number} got the reply to {message.seq}")
    if parsed.buffers and parsed.buffers[0].view(torch.float32).tolist()[0] != float(number):
        wrong.append(f"client {number} got {parsed.buffers[0]}")
    if message.seq % 2 and not parsed.buffers:
        wrong.append(f"client {number} got {message}")
    return [message.seq]


def cross_talk(clients: int, requests: int) -> None:
    wrong: list[str] = []
    with Victim(files=FILES) as victim:
        began = time.perf_counter()
        threads = [
            threading.Thread(target=ask_all, args=(victim, number, requests, wrong))
            for number in range(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - began
        print(f"{clients} clients called me, {requests} requests each: {seconds:.1f} s, all right")
    assert not wrong, wrong[:5]


def test_each_client_gets_its_own_answers_exactly_once() -> None:
    cross_talk(64, 100)


@pytest.mark.soak
def test_each_client_gets_a_thousand_answers_exactly_once() -> None:
    cross_talk(64, 1000)


def test_guessed_ids_let_strangers_change_nothing() -> None:
    with Victim() as victim, Stranger(victim.port) as me, Stranger(victim.port) as eve:
        me.greet(name="me")
        eve.greet(name="me")
        me.send(put(5000, 1.0))
        assert type(me.ask(Duplicate(2, 5000, 5001))) is messages.Done
        eve.ask(Drop(1, tuple(range(4990, 5010))))
        taken = eve.ask(Duplicate(2, 5000, 5001))
        assert type(taken) is messages.Failure, "the id is another's"
        assert type(eve.ask(messages.Annotate(3, 5000, ("#x",)))) is messages.Failure
        assert victim.ask("objects") == 2


# ------------------------------------------------------------------------------------------ a soak


def work(operations: int) -> tuple[float, float]:
    """Operations of one stranger, in windows; how memory at the worker grew, and how long."""
    with Victim(files=FILES, log="WARNING") as victim, Stranger(victim.port) as me:
        me.greet(name="me")
        me.send(put(1, 1.0))
        seq, before, began = 10, 0.0, time.perf_counter()
        received = 0
        for start in range(0, operations, 100):
            data = b""
            for _ in range(100):
                seq += 2
                requests = Duplicate(seq, 1, seq, (seq - 2,) if seq > 12 else ())
                data += frame(BINARY, syft_frame(messages.encode(requests)))
            me.send(data)
            replies = 0
            while replies < 100:
                replies += is_served(*me.read())
            received += replies + (start == 0)
            me.tell({"kind": "received", "count": received - 1})
            if start == operations // 5:
                before = victim.memory
        return victim.memory - before, time.perf_counter() - began


@pytest.mark.parametrize("operations", [20_000, pytest.param(1_000_000, marks=pytest.mark.soak)])
def test_memory_stays_flat(operations: int) -> None:
    growth, seconds = work(operations)
    print(f"{operations} operations: {growth:+.1f} MB, {operations / seconds:.0f} a second")
    assert growth < 5
