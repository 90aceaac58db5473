"""Messages by number, as they were written once: today's code reads them, and writes them so.

``python -m tests.workers.wire.test_frames`` writes the files that are missing, and never one again.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.serde.frame import Frame, from_bytes, to_bytes
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.wire import messages
from syft.workers.wire.messages import (
    COUNT_SHIFT,
    GRAD_MODE,
    Await,
    Cancel,
    ClearGradients,
    Cancelled,
    Done,
    Failure,
    Forgotten,
    Gradients,
    NotBegun,
    Message,
    Parked,
    Run,
    Skipped,
    Value,
)
from syft.workers.wire.definitions import Group, InputKind
from tests.workers.core.peers import ME, error_in, lonely, put

FOLDER = Path(__file__).parents[2] / "frames" / "messages"
R, N, V = InputKind


def _group() -> Group:
    """A group with an input of each kind, a result that nobody wants and one of several."""
    actions = (
        Action(BY_NAME["torch.Tensor.mul"], (Slot(0), Slot(1)), {}, Slot(3)),
        Action(BY_NAME["torch.Tensor.add_"], (Slot(3), Slot(2)), {}, None),
        Action(BY_NAME["torch.sum"], (Slot(3),), {"dim": 0, "keepdim": True}, Slot(4)),
    )
    return Group((R, N, V), Program(3, actions, (None, Slot(4))))


_TWO = GRAD_MODE | 2 << COUNT_SHIFT


def _defining() -> bytearray:
    packer = Packer()
    define = pack(_group(), packer)
    value = pack(torch.tensor([10.0, 20.0]), packer)
    run = Run(7, 3, (5, 0.5, value), 100, _TWO, (1, (12, 4)), define, (("cpu", (19, 3)),))
    return to_bytes(Frame(messages.encode(run), packer.buffers), compressed=False)


def _again() -> bytearray:
    run = Run(8, 3, (None, 0.25, None), 110, _TWO)
    return to_bytes(Frame(messages.encode(run), []))


def _asking() -> bytearray:
    run = Run(9, 3, (None, 0.25, None), 120, _TWO, failures=0)
    return to_bytes(Frame(messages.encode(run), []))


def _bare(message: Message) -> bytearray:
    return to_bytes(Frame(messages.encode(message), []))


def _hostile(*fields: Any) -> bytearray:
    return _bare(Run(*fields))


_PROGRAM = (41, 1, 0, (), (), (2, (40, 0)))
GOLDEN = {
    "run_define": _defining,
    "run_again": _again,
    "run_asking": _asking,
    "cancel": lambda: _bare(Cancel(10, 9)),
    "await": lambda: _bare(Await(11, 5)),
    "gradients": lambda: _bare(Gradients(12, (5,), 7, (), 0)),
    "clear_gradients": lambda: _bare(ClearGradients(13, (5,), (7,))),
}
REPLIES: dict[str, Message] = {
    "done": Done(7),
    "value": Value(7, (2, 1, 2.5, (0, 5))),
    "failure": Failure(7, (29, 3, ("wrong",), None, ())),
    "failure_of_an_action": Failure(7, (29, 3, ("wrong",), None, ()), 2),
    "parked": Parked(7, (5, 2**62), True),
    "skipped": Skipped(7),
    "forgotten": Forgotten(),
    "cancelled": Cancelled(7),
    "not_begun": NotBegun(7),
}
HOSTILE = {
    "unknown_number": lambda: _hostile(9, 3, (5,), 100, 1),
    "number_of_nobody": lambda: _hostile(9, 1024, (5,), 100, 1, (), (42, b"\x00", _PROGRAM)),
    "kind_of_nothing": lambda: _hostile(9, 3, (5,), 100, 1, (), (42, b"\x03", _PROGRAM)),
    "fewer_kinds_than_inputs": lambda: _hostile(9, 3, (), 100, 1, (), (42, b"", _PROGRAM)),
    "nothing_before": lambda: _hostile(9, 3, (None,), 100, 1, (), (42, b"\x00", _PROGRAM)),
    "reference_as_value": lambda: _hostile(9, 3, ((0, 5),), 100, 1, (), (42, b"\x02", _PROGRAM)),
    "ids_beyond_63_bits": lambda: _hostile(9, 3, (5,), 2**63, 9, (), (42, b"\x00", _PROGRAM)),
    "drops_without_end": lambda: _hostile(9, 3, (5,), 100, 1, ((0, 2**62),)),
    "a_plan_as_a_group": lambda: _hostile(9, 3, (5,), 100, 1, (), (42, b"\x00", (2, 1))),
    "results_of_another_number": lambda: _hostile(9, 3, (5,), 100, 17, (), (42, b"\x00", _PROGRAM)),
    "a_reply_to_a_worker": lambda: _bare(Skipped(9)),
    "failures_as_text": lambda: _hostile(9, 3, (5,), 100, 1, (), None, None, "0"),
}
ANSWERS = {
    "unknown_number": "worker 'bob' does not know what number 3 stands for; it may have been "
    "cleared: send the definition again",
    "number_of_nobody": "Message over a limit at $.number: NUMBERS is 1024, got 1024. "
    "Send less at once, or raise the limit on both sides.",
    "kind_of_nothing": "Malformed message at $.define.kinds: expected kinds of inputs, from 0 to "
    "2, got 3.",
    "fewer_kinds_than_inputs": "Malformed message at $.define.program: expected 0 inputs and no "
    "state, got 1 inputs and 0 state tensors.",
    "nothing_before": "Malformed message at $.inputs[0]: expected an input, got nil, and nothing "
    "before it.",
    "reference_as_value": "Malformed message at $.inputs[0]: expected a value that came along, "
    "got a reference.",
    "ids_beyond_63_bits": "Malformed message at $.out: expected 1 ids from 0 to 2**63 - 1, got "
    "9223372036854775808.",
    "drops_without_end": "Malformed message at $.drop: expected at most 65536 ids, got "
    "4611686018427387904.",
    "a_plan_as_a_group": "Malformed message at $.define.program: expected a program, got an array "
    "of 2.",
    "results_of_another_number": "the call of number 3 gives 1 result at worker 'bob' where its "
    "caller expected 2 results; none was stored. The two ends run different versions of torch or "
    "syft.",
    "a_reply_to_a_worker": "Malformed message at $[0]: expected a request, got a reply.",
    "failures_as_text": "Malformed message at $[9]: expected `int | null`, got `str`.",
}


def write_missing() -> list[str]:
    """Write the frames that have no file yet, and return their names."""
    FOLDER.mkdir(exist_ok=True)
    makers = {**GOLDEN, **HOSTILE}
    makers.update((name, partial(_bare, reply)) for name, reply in REPLIES.items())
    missing = [name for name in makers if not (FOLDER / f"{name}.bin").exists()]
    for name in missing:
        (FOLDER / f"{name}.bin").write_bytes(makers[name]())
    return missing


def test_every_file_is_in_a_table_and_every_line_has_a_file() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {*GOLDEN, *REPLIES, *HOSTILE}
    assert set(HOSTILE) == set(ANSWERS)


def test_golden() -> None:
    core = lonely()
    put(core, 5, torch.tensor([1.0, 2.0]))
    for name, make in GOLDEN.items():
        data = (FOLDER / f"{name}.bin").read_bytes()
        assert make() == data
        ((_, reply),) = core.receive(from_bytes(data), ME)
        expected = messages.Value if name == "gradients" else messages.Done
        assert type(messages.decode(reply.header)) is expected
    assert core.store.open(101).tolist() == [31.5] and core.store.open(111).tolist() == [30.75]
    assert core.store.open(121).tolist() == [30.75]
    assert 100 not in core.store.objects


@pytest.mark.parametrize("name", REPLIES)
def test_golden_replies(name: str) -> None:
    data = (FOLDER / f"{name}.bin").read_bytes()
    assert _bare(REPLIES[name]) == data
    reply = messages.read_reply(from_bytes(data).header)
    assert type(reply) is type(REPLIES[name])
    assert _bare(reply) == data


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name: str) -> None:
    core = lonely()
    put(core, 5, torch.tensor([1.0, 2.0]))
    data = (FOLDER / f"{name}.bin").read_bytes()
    ((_, answer),) = core.receive(from_bytes(data), ME)
    assert str(error_in(messages.decode(answer.header))) == ANSWERS[name]
    assert list(core.store.objects) == [5]


if __name__ == "__main__":
    print("\n".join(write_missing()) or "nothing is missing")
