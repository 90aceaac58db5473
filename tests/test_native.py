"""The extension in C: it does what the Python code does, and leaves it what it does not know.

The tests of pointers run with it and without (``tests/conftest.py``).  Here are the bytes, what is
counted, each state in which it declines, its memory, and a machine without a compiler.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

import syft as sy
from syft import c_extension, ids
from syft.tensors.pointer import PointerTensor
from syft.workers.client.operations import Operations
from syft.workers.core.charges import Charges
from syft.workers.wire.messages import encode, read_request
from tools import build_native

ROOT = Path(__file__).parent.parent

built = pytest.mark.skipif(c_extension.EXTENSION is None, reason="the extension in C was not built")


def take(operation: Any, *args: Any) -> Any:
    """The result of an operation in C, or NotImplemented."""
    assert c_extension.EXTENSION is not None
    return c_extension.EXTENSION.call(operation, args)


NUMBERS = st.one_of(
    st.floats(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-40, 300),
    st.builds(
        lambda bits, beside, sign: sign * (2**bits + beside),
        st.sampled_from([5, 7, 8, 15, 16, 31, 32]),
        st.integers(-1, 1),
        st.sampled_from([-1, 1]),
    ),
)


def state(bob: sy.VirtualWorker, connection: Any) -> tuple[Any, ...]:
    """What a request changes at both ends, but for the ids."""
    stats, store = bob.core.stats, bob.core.store
    counted = stats.messages_in, stats.messages_out, stats.bytes_in, stats.bytes_out
    facts = [(op, len(args), expected) for op, args, _, _, expected, _ in connection.facts.noted]
    kept = len(store.objects), len(store._gone), len(store._charged), store.charges.flags
    return (
        counted,
        facts,
        kept,
        connection.requests.seq,
        list(connection.garbage.ids),
        bob.core.serving,
    )


# ------------------------------------------------------------------------------------------ bytes


@built
@given(numbers=st.lists(NUMBERS, max_size=3))
def test_a_message_is_written_as_the_encoder_writes_it(numbers: list[Any]) -> None:
    hook = sy.TorchHook(torch)
    bob = sy.VirtualWorker(hook, id="bob")
    x: Any = torch.ones(2).send(bob)
    connection, headers = x.child.connection, list[bytes]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Operations, "exchanged", lambda self, *written: headers.append(written[1]))
        bob.core._latest = None  # the worker has to note who asks: the message goes to Python
        assert take(Tensor.add, x, *numbers) is None  # nothing was asked: what `exchanged` gave
    (header,) = headers
    message: Any = read_request(header)
    assert encode(message) == header
    mine = [each if type(each) is not float else repr(each) for each in message.args[1:]]
    assert mine == [each if type(each) is not float else repr(each) for each in numbers]
    assert [type(each) for each in message.args[1:]] == [type(each) for each in numbers]
    assert message.args[0] == [0, x.id_at_location] and message.seq == connection.requests.seq
    hook.close()


def outcome(call: Callable[[], Any]) -> tuple[Any, ...]:
    """What a call returns or raises, as something that can be compared."""
    try:
        result = call()
    except (RuntimeError, TypeError, ValueError, IndexError, OverflowError) as error:
        return type(error), str(error)
    return result.dtype, repr(result)


@given(
    number=NUMBERS, name=st.sampled_from(["add", "mul", "sub", "div", "pow", "eq", "sum", "roll"])
)
def test_numbers_arrive_as_they_are(number: Any, name: str) -> None:
    hook = sy.TorchHook(torch)
    x: Any = torch.tensor([1.5, -2.0])
    there: Any = x.send(sy.VirtualWorker(hook, id="bob"))
    operation = getattr(Tensor, name)
    assert outcome(lambda: operation(there, number).get()) == outcome(lambda: operation(x, number))
    hook.close()


@built
def test_the_same_is_counted_noted_and_kept(hook: sy.TorchHook) -> None:
    def program(name: str) -> tuple[Any, ...]:
        bob = sy.VirtualWorker(hook, id=name)
        x: Any = torch.tensor([1.0, 2.0]).send(bob)
        column: Any = torch.ones(128, 1).send(bob)
        row: Any = torch.ones(1, 128).send(bob)
        wide = column + row
        charged = len(bob.core.store._charged), bob.core.store.charges.flags
        assert x.dim() == 1  # facts are noted from now on
        large: Any = torch.ones(5000).send(bob)
        y = x * 2 + True - 70000 / x
        for _ in range(50):  # numbers of requests of two sizes
            y = (y + y) * x[0] + x.sum()
        with torch.no_grad():
            y = y.sum() + (x @ x)
            grown = large + large
        with pytest.raises(IndexError):
            x[7]
        found = state(bob, x.child.connection)
        assert torch.equal(grown.get(), torch.full((5000,), 2.0))
        return found, charged, wide.get().sum(), y.get()

    before = c_extension.use(False)
    try:
        expected = program("bob")
        c_extension.use(True)
        assert program("dan") == expected
    finally:
        c_extension.use(before)


@built
def test_what_fails_says_so_as_before(bob: sy.VirtualWorker) -> None:
    x: Any = torch.ones(2).send(bob)
    y: Any = torch.ones(3).send(bob)
    with pytest.raises(RuntimeError, match="must match the size of tensor b") as caught:
        x + y
    assert any("Raised on worker 'bob'" in note for note in caught.value.__notes__)
    assert bob.core.serving is None and len(bob._objects) == 2
    x.child.gc, gone = False, x.id_at_location
    bob.core.store.remove(gone, "it was cleared away")
    with pytest.raises(sy.exceptions.ObjectNotFound, match="it was cleared away"):
        x + x
    del caught


@built
def test_an_interrupt_is_passed_on(bob: sy.VirtualWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    x: Any = torch.ones(2).send(bob)

    def interrupted(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Charges, "check_known", interrupted)
    with pytest.raises(KeyboardInterrupt):
        x.repeat(2)
    monkeypatch.undo()
    assert bob.core.serving is None and x.repeat(2).get().tolist() == [1, 1, 1, 1]


# ------------------------------------------------------------------------------- what it declines


def declines(bob: sy.VirtualWorker, x: Any, *args: Any) -> None:
    """Assert that an operation is left to Python, and that nothing is done before."""
    connection = x.child.connection
    before = state(bob, connection)
    assert take(Tensor.add, x, *args) is NotImplemented
    assert state(bob, connection) == before


@built
@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 1j, "1", None, [1.0], (1,), 1.0 + 0j])
def test_it_declines_what_is_no_plain_number(bob: sy.VirtualWorker, number: Any) -> None:
    x: Any = torch.ones(2).send(bob)
    declines(bob, x, number)


@built
def test_it_declines_other_operands(bob: sy.VirtualWorker, alice: sy.VirtualWorker) -> None:
    x: Any = torch.ones(2).send(bob)
    declines(bob, x, torch.ones(2))
    declines(bob, x, torch.ones(2).send(alice))
    declines(bob, x, *[1] * 8)
    declines(bob, x, sy.LoggingTensor().on(torch.ones(2)))
    inner = sy.LoggingTensor().on(torch.ones(2)).send(bob)
    assert take(Tensor.add, inner.child.child, 1) is NotImplemented  # a link without a wrapper
    assert take(Tensor.add, 1, 2) is NotImplemented
    assert take(Tensor.add_, x, 1) is NotImplemented
    assert take("no operation", x) is NotImplemented


@built
@pytest.mark.parametrize(
    "mode",
    [
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.inference_mode(),
        lambda: (
            sy.messages_grouped() if hasattr(sy, "messages_grouped") else torch.inference_mode()
        ),
    ],
)
def test_it_declines_in_modes(bob: sy.VirtualWorker, mode: Callable[[], Any]) -> None:
    x: Any = torch.ones(2).send(bob)
    with mode():
        declines(bob, x, x)


@built
def test_it_declines_another_default_dtype(bob: sy.VirtualWorker) -> None:
    x: Any = torch.ones(2).send(bob)
    torch.set_default_dtype(torch.float64)
    try:
        declines(bob, x, x)
    finally:
        torch.set_default_dtype(torch.float32)


@built
def test_it_declines_where_somebody_looks_on(bob: sy.VirtualWorker) -> None:
    x: Any = torch.ones(2).send(bob)
    seen: list[Any] = []
    bob.network.observers.append(lambda *what: seen.append(what))
    declines(bob, x, x)
    assert (x + x).get().tolist() == [2, 2] and len(seen) == 4
    bob.network.observers.clear()


@built
def test_it_declines_in_a_group_and_with_many_to_drop(bob: sy.VirtualWorker) -> None:
    x: Any = torch.ones(2).send(bob)
    connection = x.child.connection
    with connection.message_group():
        declines(bob, x, x)
        y = x + x
    many = [x + 1 for _ in range(9)]
    del many
    declines(bob, x, x)
    assert (y + x).get().tolist() == [3, 3]
    connection.garbage.start_owning(x.id_at_location)
    declines(bob, x, x)
    connection.garbage.stop_owning(x.id_at_location)


@built
def test_it_declines_queued_and_closed_workers(hook: sy.TorchHook) -> None:
    queued = sy.VirtualWorker(hook, id="queued", pipelined=True)
    x: Any = torch.ones(2).send(queued)
    assert take(Tensor.add, x, x) is NotImplemented
    closed = sy.VirtualWorker(hook, id="closed")
    y: Any = torch.ones(2).send(closed)
    closed.close()
    assert take(Tensor.add, y, y) is NotImplemented
    with pytest.raises(sy.exceptions.WorkerClosed):
        y + y


@built
def test_it_declines_for_another_user_and_while_it_serves(
    hook: sy.TorchHook, bob: sy.VirtualWorker, me: sy.VirtualWorker
) -> None:
    x: Any = torch.ones(2).send(bob)
    me.user = "ann"
    declines(bob, x, x)
    me.user, me.core.serving = None, object()
    declines(bob, x, x)
    me.core.serving = None
    assert (x + x).get().tolist() == [2, 2]


class Doubling(TorchFunctionMode):
    """A mode that doubles every sum."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is Tensor.add else result


@built
def test_modes_see_operators(bob: sy.VirtualWorker) -> None:
    x: Any = torch.ones(2).send(bob)
    with Doubling():
        y = x + x
    assert y.get().tolist() == [4, 4]


OBSERVED: dict[str, Callable[[], Any]] = {
    "hooks": lambda: torch.autograd.graph.saved_tensors_hooks(repr, repr),
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
    "dispatch": lambda: FlopCounterMode(display=False),
}


@built
@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
@pytest.mark.parametrize("name", OBSERVED)
def test_what_observes_this_thread_sees_no_tensor_of_the_worker(
    bob: sy.VirtualWorker, name: str
) -> None:
    start: Any = torch.ones(2, requires_grad=True)
    x = start.send(bob)
    with OBSERVED[name]() as observer:
        y = x * x
    y.sum().backward()
    assert x.grad.get().tolist() == [2, 2]
    if name == "dispatch":
        assert observer.get_total_flops() == 0
        with FlopCounterMode(display=False) as counter:
            torch.ones(2, 2).mm(torch.ones(2, 2))
            x.dot(y)
        assert counter.get_total_flops() == 16, "what is here is counted, and nothing at the worker"


STATES: dict[str, Callable[[Any], None]] = {
    "guarded": lambda core: core.guard(),
    "promised": lambda core: core.store.promise(77),
    "given up": lambda core: core.store.give_up(78, 78, "it broke"),
    "contested": lambda core: setattr(core, "contested", True),
    "confined": lambda core: setattr(core, "confined", True),
    "tags watched": lambda core: setattr(core.store.tags, "watched", True),
    "somebody else asked": lambda core: setattr(core, "_latest", None),
    "something to send": lambda core: core.outbox.append(("nobody", None)),
}


@built
@pytest.mark.parametrize("name", STATES)
def test_the_worker_leaves_unusual_states_to_python(
    bob: sy.VirtualWorker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x: Any = torch.ones(2).send(bob)
    asked: list[int] = []
    respond = type(bob.core).respond

    def noting(core: Any, frame: Any, peer: Any) -> Any:
        asked.append(1)
        core.outbox.clear()
        return respond(core, frame, peer)

    monkeypatch.setattr(type(bob.core), "respond", noting)
    y = x + x
    assert not asked, "what is usual is done in C"
    STATES[name](bob.core)
    z = x + x
    assert asked, "the message was left to Python"
    monkeypatch.undo()
    bob.core.store.kept(77)
    assert torch.equal(z.get(), y.get())


@built
def test_private_values_stay_private(bob: sy.VirtualWorker) -> None:
    secret: Any = torch.ones(2).private_tensor(allowed_users=["ann"]).send(bob, user="ann")
    open_one: Any = torch.ones(2).send(bob)
    mixed = secret + open_one
    with pytest.raises(sy.exceptions.PermissionDenied):
        mixed.get()
    assert (open_one + open_one).get().tolist() == [2, 2]
    assert mixed.get(user="ann").tolist() == [2, 2]


@built
def test_an_object_dropped_and_used_in_one_message_is_missing(bob: sy.VirtualWorker) -> None:
    x: Any = torch.ones(2).send(bob)
    x.child.connection.garbage.append(x.id_at_location)
    with pytest.raises(sy.exceptions.ObjectNotFound, match="dropped its last pointer"):
        x + x
    x.child.gc = False


@built
def test_an_id_that_is_taken_is_refused(bob: sy.VirtualWorker) -> None:
    x: Any = torch.ones(2).send(bob)
    y: Any = torch.zeros(2).send(bob)
    ids._pool.append(y.id_at_location)  # the next one that is drawn
    with pytest.raises(sy.exceptions.ObjectIdTaken):
        x + x
    assert y.get().tolist() == [0, 0]


@built
def test_limits_hold(hook: sy.TorchHook) -> None:
    limits = sy.workers.core.peer_limits.PeerLimits(bytes=1 << 20, elements=1 << 16)
    bob = sy.VirtualWorker(hook, id="bob", peer_limits=limits)
    x: Any = torch.ones(1 << 12, 1).send(bob)
    with pytest.raises(sy.exceptions.LimitExceeded):
        x @ x.t()
    kept = []
    with pytest.raises(sy.exceptions.LimitExceeded):
        for _ in range(100):
            kept.append(x.view(1 << 12).repeat(4))
    assert bob.core.store.charges.flags and len(kept) < 40


# ------------------------------------------------------------------------------ memory and loading


def repeat(bob: sy.VirtualWorker, times: int) -> None:
    """Run operations that succeed, are declined and fail."""
    x: Any = torch.ones(2).send(bob)
    longer: Any = torch.ones(3).send(bob)
    for _ in range(times):
        ((x + x) * 2.5).sub(300)
        for z in (x[0], x @ x, x.sum()):
            del z
        take(Tensor.add, x, 2**63)
        try:
            x.add(longer)
        except RuntimeError:
            pass


@built
def test_no_object_is_left(bob: sy.VirtualWorker) -> None:
    repeat(bob, 700)  # tombstones, facts and errors that are kept are there
    gc.collect()
    objects, blocks = len(gc.get_objects()), sys.getallocatedblocks()
    constants = [sys.getrefcount(each) for each in (PointerTensor, Tensor, Tensor.add, 0)]
    repeat(bob, 700)
    gc.collect()
    assert abs(len(gc.get_objects()) - objects) < 200
    assert sys.getallocatedblocks() - blocks < 2000
    again = [sys.getrefcount(each) for each in (PointerTensor, Tensor, Tensor.add, 0)]
    assert all(abs(now - before) < 100 for now, before in zip(again, constants, strict=True))


SHORT = """
import torch, syft as sy
from syft import c_extension
hook = sy.TorchHook(torch)
bob = sy.VirtualWorker(hook, id="bob")
x = torch.tensor([1.0, 2.0]).send(bob)
for number in (1, -1, 2.5, True, 2**40):
    y = (x + number) * x - x[0] / x.sum()
print(c_extension.EXTENSION is not None, c_extension.use(True), (x + x).get().tolist(), y.dim())
"""


def said(**environment: str) -> str:
    """What the program above prints in a process of its own."""
    words = [sys.executable, "-c", SHORT]
    kept = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(words, env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@built
def test_a_debugging_allocator_finds_nothing() -> None:
    assert said(PYTHONMALLOC="debug", PYTHONDEVMODE="0") == "True True [2.0, 4.0] 1\n"


def test_it_can_be_turned_off() -> None:
    assert said(SYFT_NATIVE="0") == "False False [2.0, 4.0] 1\n"


@built
def test_it_refuses_what_it_cannot_work_on() -> None:
    extension: Any = c_extension.EXTENSION
    with pytest.raises(TypeError, match="setup.. needs numbers"):
        extension.setup()
    with pytest.raises(TypeError, match="a tuple of arguments"):
        extension.call(Tensor.add, [1])
    with pytest.raises(TypeError, match="missing required argument"):
        extension.Route()
    with pytest.raises(TypeError):
        extension.call([], ())


# --------------------------------------------------------------------------------------- building


def test_without_a_compiler_there_is_no_extension(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert build_native.main(["--into", str(tmp_path)]) == 0
    assert "syft runs without" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@built
def test_it_is_built_once(tmp_path: Path) -> None:
    assert build_native.main(["--into", str(tmp_path)]) == 0
    (made,) = tmp_path.iterdir()
    age = made.stat().st_mtime_ns
    assert build_native.main(["--into", str(tmp_path)]) == 0
    assert made.stat().st_mtime_ns == age


def _native_file() -> str:
    from syft import _native

    return _native.__file__


@built
def test_a_build_that_is_older_than_its_source_is_left_out(tmp_path: Path) -> None:
    """What it calls and reads may have another name by now."""
    shutil.copytree(ROOT / "syft", tmp_path / "syft")
    (tmp_path / "syft" / "_native.c").touch()
    assert c_extension.is_stale(tmp_path / "syft" / Path(_native_file()).name)
    kept = {name: text for name, text in os.environ.items() if not name.startswith("COV")}
    program = "from syft.c_extension import EXTENSION; print(EXTENSION is None)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd=tmp_path, env=kept, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
    assert "make native" in done.stderr
