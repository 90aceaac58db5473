"""Whatever arrives as a program is refused with the path to what is wrong, or can be lowered."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies

from syft.exceptions import LimitExceeded, MalformedMessage, WireError
from syft.program.codec import unpack_program
from syft.program.lowered import Lowered
from syft.ops.table import BY_NAME, FUNCTIONS, NAMES
from syft.program.program import Action, Program, Slot
from syft.serde import DEFAULT_LIMITS, Frame, deserialize, encode_header, serialize, to_bytes
from syft.serde.expect import prepend
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack, unpack_at

ADD, NEG = BY_NAME["torch.Tensor.add"], BY_NAME["torch.Tensor.neg"]
SHAPE = BY_NAME["torch.Tensor.shape.__get__"]
COND = BY_NAME["syft.ops.control.cond"]
ABSENT = next(
    name
    for name, function in zip(NAMES, FUNCTIONS, strict=True)
    if function is None and not name.startswith("syft.")
)
"""A numbered op that this torch does not have."""

SLOT = [40, 0]
SAME = [41, 1, 0, [], [], SLOT]


def program(*actions: Any, outputs: Any = SLOT) -> list[Any]:
    return [41, 1, 0, [], list(actions), outputs]


def nested(levels: int) -> Any:
    inner: Any = SAME
    for _ in range(levels):
        inner = program([COND, [1, inner, SAME, [3, SLOT]]])
    return inner


OPS = "an op of the table that this torch has"
VALUED = "a slot that has its value already"
PATTERN = "1, nil or an array of these"

MALFORMED: dict[str, tuple[Any, str, str, str]] = {
    "fields": ([41, 1, 0, [], []], "", "5 fields after type code 41", "4"),
    "inputs": ([41, "1", 0, [], [], SLOT], ".inputs", "an int", "a str"),
    "bool inputs": ([41, True, 0, [], [], SLOT], ".inputs", "an int", "a bool"),
    "negative state": (
        [41, 1, -1, [], [], SLOT],
        ".state",
        "an int from 0 to 9223372036854775807",
        "-1",
    ),
    "constants": ([41, 1, 0, None, [], SLOT], ".constants", "an array", "nil"),
    "constant": ([41, 1, 0, [1], [], SLOT], ".constants[0]", "a tensor", "an int"),
    "empty constant": ([41, 1, 0, [[]], [], SLOT], ".constants[0]", "a tensor", "an array of 0"),
    "constant from the store": (
        [41, 1, 0, [[0, 123]], [], SLOT],
        ".constants[0]",
        "a tensor",
        "an array of 2",
    ),
    "constant with a strange head": (
        [41, 1, 0, [[[32], 0]], [], SLOT],
        ".constants[0]",
        "a tensor",
        "an array of 2",
    ),
    "constant without buffer": (
        [41, 1, 0, [[32, 0, [2], None, 0]], [], SLOT],
        ".constants[0].buffer",
        "an unused buffer (the frame has 0)",
        "buffer 0",
    ),
    "actions": ([41, 1, 0, [], 3, SLOT], ".actions", "an array", "an int"),
    "action": (
        program(7),
        ".actions[0]",
        "op, operands[, results[, keywords[, mode]]]",
        "an int",
    ),
    "short action": (
        program([NEG]),
        ".actions[0]",
        "op, operands[, results[, keywords[, mode]]]",
        "an array of 1",
    ),
    "long action": (
        program([NEG, [SLOT], 1, None, None, None]),
        ".actions[0]",
        "op, operands[, results[, keywords[, mode]]]",
        "an array of 6",
    ),
    "unknown op": (program([10**6, [SLOT]]), ".actions[0].op", OPS, "op 1000000"),
    "negative op": (program([-1, [SLOT]]), ".actions[0].op", OPS, "op -1"),
    "named op": (program(["os.system", ["ls"]]), ".actions[0].op", OPS, "a str"),
    "op that is an array": (program([[0], [SLOT]]), ".actions[0].op", OPS, "an array of 1"),
    "op of another torch": (program([BY_NAME[ABSENT], [SLOT]]), ".actions[0].op", OPS, ABSENT),
    "operands": (program([NEG, SLOT[1]]), ".actions[0].args", "an array", "an int"),
    "wrong arity": (
        program([NEG, [SLOT]], [SHAPE, [SLOT] * 3]),
        ".actions[1].args",
        "at most 2 operands",
        "3",
    ),
    "forward reference": (
        program([NEG, [SLOT]], [NEG, [SLOT]], [NEG, [[40, 4]]]),
        ".actions[2].args[0]",
        VALUED,
        "Slot(4)",
    ),
    "itself": (program([NEG, [[40, 1]]]), ".actions[0].args[0]", VALUED, "Slot(1)"),
    "huge slot": (
        program([NEG, [[40, 2**63 - 1]]]),
        ".actions[0].args[0]",
        VALUED,
        "Slot(9223372036854775807)",
    ),
    "huger slot": (
        program([NEG, [[40, 2**63]]]),
        ".actions[0].args[0].slot",
        "an int from 0 to 9223372036854775807",
        "9223372036854775808",
    ),
    "negative slot": (
        program([NEG, [[40, -1]]]),
        ".actions[0].args[0].slot",
        "an int from 0 to 9223372036854775807",
        "-1",
    ),
    "slot that is a text": (
        program([ADD, [SLOT, [3, [40, "0"]]]]),
        ".actions[0].args[1][0].slot",
        "an int",
        "a str",
    ),
    "slot without number": (
        program([NEG, [[40]]]),
        ".actions[0].args[0]",
        "1 fields after type code 40",
        "0",
    ),
    "result that is a slot number": (
        program([NEG, [SLOT], 7]),
        ".actions[0].out",
        PATTERN,
        "an int",
    ),
    "result that is true": (program([NEG, [SLOT], True]), ".actions[0].out", PATTERN, "a bool"),
    "result that is a float": (
        program([NEG, [SLOT], [1, 1.0]]),
        ".actions[0].out[1]",
        PATTERN,
        "a float",
    ),
    "deep results": (
        program([NEG, [SLOT], [[[[[1]]]]]]),
        ".actions[0].out" + "[0]" * 4,
        PATTERN,
        "an array of 1",
    ),
    "keywords": (program([NEG, [SLOT], 1, 5]), ".actions[0].kwargs", "an array", "an int"),
    "odd keywords": (
        program([NEG, [SLOT], 1, ["alpha"]]),
        ".actions[0].kwargs",
        "a name and a value in turn",
        "others",
    ),
    "keyword that is a number": (
        program([NEG, [SLOT], 1, [1, 1]]),
        ".actions[0].kwargs",
        "a name and a value in turn",
        "others",
    ),
    "keyword twice": (
        program([NEG, [SLOT], 1, ["a", 1, "a", 2]]),
        ".actions[0].kwargs",
        "distinct names",
        "a name twice",
    ),
    "keyword without value": (
        program([ADD, [SLOT, 1], 1, ["alpha", [40, 5]]]),
        ".actions[0].kwargs['alpha']",
        VALUED,
        "Slot(5)",
    ),
    "mode": (program([NEG, [SLOT], 1, None, "x"]), ".actions[0].mode", "an int", "a str"),
    "mode bits": (
        program([NEG, [SLOT], 1, None, 4]),
        ".actions[0].mode",
        "an int from 0 to 3",
        "4",
    ),
    "empty mode": (
        program([NEG, [SLOT], 1, None, []]),
        ".actions[0].mode",
        "an int",
        "an array of 0",
    ),
    "no mode": (program([NEG, [SLOT], 1, None, None]), ".actions[0].mode", "an int", "nil"),
    "autocast": (
        program([NEG, [SLOT], 1, None, [1, 0]]),
        ".actions[0].mode",
        "a device and a dtype",
        "an int",
    ),
    "autocast device": (
        program([NEG, [SLOT], 1, None, [1, [77, None]]]),
        ".actions[0].mode",
        "a device that this torch has",
        "number 77",
    ),
    "autocast device that imports": (
        program([NEG, [SLOT], 1, None, [1, [6, None]]]),
        ".actions[0].mode.autocast",
        "cpu or cuda, and a dtype",
        "'xla'",
    ),
    "autocast of many devices": (
        program([NEG, [SLOT], 1, None, [1, *[[0, 3]] * 300_000]]),
        ".actions[0].mode",
        "each device once",
        "300000 devices",
    ),
    "autocast of a device twice": (
        program([NEG, [SLOT], 1, None, [1, [0, 3], [0, None]]]),
        ".actions[0].mode.autocast",
        "each device once",
        "cpu twice",
    ),
    "autocast dtype": (
        program([NEG, [SLOT], 1, None, [1, [0, "x"]]]),
        ".actions[0].mode",
        "a dtype number",
        "a str",
    ),
    "a tensor among operands": (
        program([ADD, [SLOT, [32, 0, [0], None, None, [2, None], None]]]),
        ".actions[0].args[1]",
        "a slot or a plain value",
        "a tensor (its place is among the constants)",
    ),
    "a program among operands": (
        program([ADD, [SLOT, SAME]]),
        ".actions[0].args[1]",
        "a slot or a plain value",
        "a Program",
    ),
    "a branch of two inputs": (
        program([COND, [1, SAME, [41, 2, 0, [], [], SLOT], [3, SLOT]]]),
        ".actions[0].args[2]",
        "a program of 1 inputs",
        "2 inputs and 0 values of its own",
    ),
    "inside a branch": (
        program([COND, [1, SAME, program([NEG, [[40, 9]]]), [3, SLOT]]]),
        ".actions[0].args[2].actions[0].args[0]",
        VALUED,
        "Slot(9)",
    ),
    "outputs": (program(outputs=[3, [40, 1]]), ".outputs[0]", VALUED, "Slot(1)"),
    "unknown code in the outputs": (
        program(outputs=[3, [99, 1]]),
        ".outputs[0][head]",
        "a type code that is known here",
        "code 99",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(name: str) -> None:
    operand, path, expected, got = MALFORMED[name]
    with pytest.raises(MalformedMessage) as caught:
        deserialize(to_bytes(Frame(encode_header(operand), [])))
    assert caught.value.args == (f"${path}", expected, got)


def test_the_path_goes_on_from_where_the_program_stands() -> None:
    operand, path, expected, got = MALFORMED["forward reference"]
    with pytest.raises(MalformedMessage) as caught:
        unpack_at(operand, Unpacker([]), ".program")
    assert caught.value.args == (f"$.program{path}", expected, got)


# ----------------------------------------------------------------------------------------- limits


def refused(operand: Any, limits: Any = DEFAULT_LIMITS, buffers: Any = ()) -> tuple[Any, ...]:
    with pytest.raises(LimitExceeded) as caught:
        unpack_at(operand, Unpacker(list(buffers), limits), ".program")
    return caught.value.args


def test_a_million_actions() -> None:
    operand = program(*[[NEG, [SLOT]]] * 10**6)
    assert refused(operand) == ("$.program.actions", "max_actions", 100_000, 10**6)


def test_as_many_actions_as_are_allowed() -> None:
    arrived = unpack(program(*[[NEG, [SLOT]]] * 1000), Unpacker([]))
    assert Lowered(arrived).run([torch.ones(1)]).tolist() == [1.0]


def test_operands_without_end() -> None:
    operand = program(*[[ADD, [SLOT, *[1] * 4000]]] * 300)
    assert refused(operand)[1] == "max_items"


def test_results_without_end() -> None:
    operand = program(*[[NEG, [SLOT], [1, [1] * 4000]]] * 300)
    assert refused(operand)[1] == "max_items"
    assert len(list(unpack(program([NEG, [SLOT], [None] * 9]), Unpacker([])).actions[0].out)) == 9


def test_values_that_double_with_each_action() -> None:
    """They would take a second, and a gigabyte for each few bytes more."""

    def doubled(times: int) -> Any:
        pair = [41, 1, 0, [], [], [2, SLOT, SLOT]]
        conds = [[COND, [1, pair, pair, [3, [40, index]]]] for index in range(times)]
        return program(*conds, outputs=[40, times])

    for times in (1, 40):
        with pytest.raises(MalformedMessage, match="a tuple of 2 slots, got a Slot"):
            unpack(doubled(times), Unpacker([]))


def test_inputs_and_state_without_end() -> None:
    assert refused([41, 10**15, 0, [], [], SLOT])[:3] == (
        "$.program.inputs",
        "max_actions",
        100_000,
    )
    assert refused([41, 1, 100_000, [], [], SLOT])[3] == 100_001


@pytest.mark.parametrize("levels", [11, 30])
def test_programs_in_programs(levels: int) -> None:
    path, limit, allowed, got = refused(nested(levels))
    assert path == "$.program" + ".actions[0].args[1]" * (got // 6 - 1) and limit == "max_depth"
    assert allowed == 64 < got


def test_a_few_levels_of_programs_are_allowed() -> None:
    arrived = unpack(nested(8), Unpacker([]))
    assert Lowered(arrived).run([torch.ones(1)]).tolist() == [1.0]
    with pytest.raises(MalformedMessage, match="at most 8 levels of programs"):
        unpack(nested(9), Unpacker([]))


def test_ten_thousand_levels() -> None:
    # Written by hand, because the encoder would not write it.
    level = b"\x96\x29\x01\x00\x90\x91\x92\x00\x91"  # a program of one action with one operand
    data = to_bytes(Frame(level * 10_000 + b"\xc0", []))
    with pytest.raises(LimitExceeded) as caught:
        deserialize(data)
    assert caught.value.args[1] == "max_depth"


def test_large_constants() -> None:
    limits = dataclasses.replace(DEFAULT_LIMITS, max_constant_bytes=99)
    constants = (torch.ones(15), torch.ones(10))
    packer = Packer()
    operand = pack(Program(0, (), Slot(0), constants=constants), packer)
    answer = refused(operand, limits, packer.buffers)
    assert answer == ("$.program.constants[1]", "max_constant_bytes", 99, 100)
    allowed = dataclasses.replace(limits, max_constant_bytes=100)
    assert unpack(operand, Unpacker(packer.buffers, allowed)).constants[1].equal(torch.ones(10))


def test_constants_with_too_many_elements() -> None:
    operand = [41, 0, 0, [[32, 5, [2**20, 2**20], [0, 0], 0]], [], None]
    buffer = torch.zeros(1, dtype=torch.uint8)
    path, limit, _, got = refused(operand, buffers=[buffer])
    assert (path, limit, got) == ("$.program.constants[0].shape", "max_elements", 2**40)


# ---------------------------------------------------------------------------------- random programs

INTS = strategies.integers(-2, 45) | strategies.sampled_from([COND, 1902, 1917, 1918, len(NAMES)])
PLAIN = INTS | strategies.none() | strategies.floats() | strategies.booleans() | strategies.text()
NESTED = strategies.recursive(
    PLAIN, lambda inner: strategies.lists(inner, max_size=6), max_leaves=30
)
SLOTS = strategies.tuples(strategies.just(40), strategies.integers(0, 4)).map(list)
OPERANDS = strategies.lists(SLOTS | PLAIN | NESTED, max_size=4)
RESULTS = strategies.sampled_from([1, None, [1, 1], [None, 1], 2])
ACTIONS = strategies.lists(
    strategies.tuples(strategies.integers(0, len(NAMES)) | INTS, OPERANDS).map(list)
    | strategies.tuples(strategies.integers(0, 1925), OPERANDS, RESULTS).map(list)
    | strategies.tuples(strategies.integers(0, 1925), OPERANDS, RESULTS, NESTED, NESTED).map(list)
    | NESTED,
    max_size=4,
)


def expect_wire_error_or_program(operand: Any) -> bool:
    try:
        arrived = unpack(operand, Unpacker([]))
    except WireError as error:
        assert error.args[0].startswith("$")
        return False
    if isinstance(arrived, Program):
        Lowered(arrived)
        assert deserialize(serialize(arrived)) == arrived or has_nan(operand)
    return True


def has_nan(operand: Any) -> bool:
    if isinstance(operand, list):
        return any(map(has_nan, operand))
    return bool(operand != operand)


@given(fields=NESTED)
@settings(max_examples=300, deadline=None)
def test_random_fields(fields: Any) -> None:
    expect_wire_error_or_program([41, *fields] if isinstance(fields, list) else [41, fields])


@given(actions=ACTIONS, inputs=strategies.integers(0, 3), outputs=SLOTS | NESTED)
@settings(max_examples=400, deadline=None)
def test_random_actions(actions: Any, inputs: int, outputs: Any) -> None:
    expect_wire_error_or_program([41, inputs, 1, [], actions, outputs])


@given(
    ops=strategies.lists(strategies.integers(0, len(NAMES) - 1), min_size=1, max_size=3),
    count=strategies.integers(0, 3),
)
@settings(max_examples=300, deadline=None)
def test_any_op_of_any_count(ops: list[int], count: int) -> None:
    expect_wire_error_or_program(program(*[[op, [SLOT] * count] for op in ops]))


def test_some_random_programs_do_arrive() -> None:
    arrived = [
        expect_wire_error_or_program(program([op, [SLOT] * count]))
        for op in range(len(NAMES))
        for count in (1, 2)
    ]
    assert sum(arrived) > len(NAMES)


def test_broken_bytes_of_a_good_program() -> None:
    good = Program(1, (Action(NEG, (Slot(0),), {}, Slot(1)),), Slot(1), 0, (torch.ones(2),))
    data = bytes(serialize(good, compressed=False))
    outcomes = set()
    for place in range(len(data)):
        for flip in (1, 0x80, 0xFF):
            broken = bytearray(data)
            broken[place] ^= flip
            try:
                deserialize(broken)
                outcomes.add("arrived")
            except WireError:
                outcomes.add("refused")
    assert outcomes == {"arrived", "refused"}


def test_the_codec_is_what_the_registry_calls() -> None:
    assert unpack_program(SAME, Unpacker([])) == unpack(SAME, Unpacker([]))
    error = MalformedMessage("$", "x", "y")
    prepend(error, ".program")
    assert error.path == "$.program"


RING = [70, 1, 0, [], [[10**9, [SLOT, SLOT]]], [2, SLOT]]
"""A program of another vocabulary: its numbers mean something else."""


def test_a_program_of_shares_is_no_branch_and_no_group():
    """Control: a program of torch's operations in its place is one."""
    for inner in (SAME, RING):
        for operand, where in (
            (program([COND, [1, SAME, inner, [3, SLOT]]]), "$.actions[0].args[2]"),
            ([42, b"\0", [*inner[:5], [2, SLOT]]], "$.program"),
        ):
            if inner is SAME:
                unpack(operand, Unpacker([]))
                continue
            with pytest.raises(MalformedMessage) as caught:
                unpack(operand, Unpacker([]))
            assert caught.value.args[:2] == (where, "a program")
