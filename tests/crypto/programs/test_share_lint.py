"""Programs and deals that were changed on the way are refused, or still run to an end."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from syft.crypto.kernels import Kernel, KernelCode
from syft.crypto.programs.local_operations import number_of
from syft.crypto.programs.share_dealing import deals_of
from syft.crypto.programs.share_lint import lint, lint_deals
from syft.crypto.programs.share_program import ShareCode, ShareProgram
from syft.program.program import Action, Slot
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack_at
from syft.exceptions import EncodingError, MaterialError, ProgramError
from tests.crypto.program_runs import Recorded, run_all
from tests.crypto.ring_programs import instruction, program_of

aten = torch.ops.aten
S = Slot
MULTIPLY = Kernel(KernelCode.MULTIPLY)
NEG, SPLIT = number_of(aten.neg.default), number_of(aten.split.Tensor)
TAKE, ZERO_ = number_of(aten.take.default), number_of(aten.zero_.default)


def sample() -> ShareProgram:
    made = Recorded((2, 3), (3,))
    masks = made.mask(0), made.mask(1)
    product = made.divide(made.product(MULTIPLY, *masks), 3)
    summed = made.local(aten.add.Tensor, S(product), S(1), alpha=2)
    value, sign = made.positive(summed, 1)
    public = made.public(torch.arange(3))
    padded = made.linear(Kernel(KernelCode.REFLECTION_PAD1D, ((1, 1),)), value)
    part, _ = made.local(aten.unbind.int, S(padded), 0)
    made.write(aten.copy_.default, S(1), S(public))
    below = made.compare(ShareCode.NEGATIVE, 1)
    nothing = made.compare(ShareCode.ZERO, below)
    shown = made.reveal(sign, 1)
    return made.program(part, nothing, shown)


SAMPLE = sample()


def test_the_sample_is_well_formed_and_uses_every_instruction():
    lint(SAMPLE, 2)
    assert {one.op for one in SAMPLE.actions} == set(ShareCode)
    assert len(run_all(SAMPLE, [torch.arange(6).view(2, 3), torch.arange(3)]).results) == 2


def one(code: Any, args: Any, outs: Any = (1,)) -> ShareProgram:
    return program_of(1, (instruction(code, args, outs),), ())


def product(**changed: Any) -> ShareProgram:
    """A product of one mask with itself, with some arguments changed."""
    fields = {
        **{"code": 1, "settings": (), "x": S(1), "y": S(1), "x_mask": (0, 0), "x_shape": (2,)},
        **{"y_mask": (0, 0), "y_shape": (2,), "shape": (2,)},
    }
    mask = instruction(ShareCode.MASK, (S(0), (2,)), (1,))
    args = tuple({**fields, **changed}.values())
    return program_of(1, (mask, instruction(ShareCode.PRODUCT, args, (2,))), (2,))


WRONG = {
    "inputs below zero": program_of(-1, (), ()),
    "too many inputs": program_of(1 << 20, (), ()),
    "too many instructions": program_of(0, (instruction(ShareCode.LOCAL, (), ()),) * 20000, ()),
    "a result without a value": program_of(1, (), (1,)),
    "a result twice": program_of(1, (), (0, 0)),
    "no code": one(2.0, (torch.arange(2),)),
    "a code that is a bool": one(True, (NEG, (S(0),), ())),
    "an unknown code": one(99, (S(0),)),
    "no tuple": one(ShareCode.MASK, [S(0), (2,)]),
    "an operand before its value": one(ShareCode.MASK, (S(5), (2,))),
    "its own result": one(ShareCode.MASK, (S(1), (2,))),
    "an operand that is a number": one(ShareCode.MASK, (0, (2,))),
    "a slot below zero": one(ShareCode.MASK, (S(-1), (2,))),
    "no operand": one(ShareCode.MASK, ()),
    "no shape": one(ShareCode.MASK, (S(0),)),
    "a shape of a list": one(ShareCode.MASK, (S(0), [2])),
    "a shape of bools": one(ShareCode.MASK, (S(0), (True,))),
    "a size below zero": one(ShareCode.MASK, (S(0), (-1,))),
    "a size beyond memory": one(ShareCode.MASK, (S(0), (1 << 41,))),
    "sizes beyond memory": one(ShareCode.MASK, (S(0), (1 << 21, 1 << 21))),
    "too many dimensions": one(ShareCode.MASK, (S(0), (1,) * 17)),
    "too many arguments": one(ShareCode.MASK, (S(0), (2,), 3)),
    "a slot as the shape": one(ShareCode.NEGATIVE, (S(0), S(0))),
    "a filled slot": one(ShareCode.MASK, (S(0), (2,)), (0,)),
    "no result": one(ShareCode.MASK, (S(0), (2,)), ()),
    "two results": one(ShareCode.MASK, (S(0), (2,)), (1, 2)),
    "the same slot twice": one(ShareCode.POSITIVE, (S(0), 1, (2,)), (1, 1)),
    "one result of two": one(ShareCode.POSITIVE, (S(0), 1, (2,))),
    "a list of results": one(ShareCode.MASK, (S(0), (2,)), [1]),
    "a result in a slot far away": one(ShareCode.MASK, (S(0), (2,)), (1 << 21,)),
    "too many bits": one(ShareCode.DIVIDE, (S(0), 63, (2,))),
    "bits below zero": one(ShareCode.DIVIDE, (S(0), -1, (2,))),
    "bits that are no number": one(ShareCode.DIVIDE, (S(0), None, (2,))),
    "a public float": one(ShareCode.PUBLIC, (torch.ones(2),)),
    "a public number": one(ShareCode.PUBLIC, (2,)),
    "no public tensor": one(ShareCode.PUBLIC, ()),
    "a bilinear kernel of one operand": one(ShareCode.LINEAR, (1, (), S(0))),
    "a factor of a linear kernel": one(ShareCode.LINEAR, (46, (), S(0), torch.arange(2), True)),
    "a public float as a factor": one(ShareCode.LINEAR, (1, (), S(0), torch.ones(2), True)),
    "a number as a factor": one(ShareCode.LINEAR, (1, (), S(0), 2, True)),
    "a factor in no place": one(ShareCode.LINEAR, (1, (), S(0), torch.arange(2), 1)),
    "two public factors": one(ShareCode.LINEAR, (1, (), torch.arange(2), torch.arange(2), True)),
    "a factor without a place": one(ShareCode.LINEAR, (1, (), S(0), torch.arange(2))),
    "an unknown kernel": one(ShareCode.LINEAR, (999, (), S(0))),
    "a reveal to nobody": one(ShareCode.REVEAL, (S(0), 2)),
    "a reveal to a name": one(ShareCode.REVEAL, (S(0), "bob")),
    "an unknown operation": one(ShareCode.LOCAL, (1 << 20, (S(0),), ())),
    "an operation below zero": one(ShareCode.LOCAL, (-1, (S(0),), ())),
    "two arguments of three": one(ShareCode.LOCAL, (NEG, (S(0),))),
    "positional arguments in a list": one(ShareCode.LOCAL, (NEG, [S(0)], ())),
    "an operation of no share": one(ShareCode.LOCAL, (NEG, (torch.arange(2),), ())),
    "a share as an index": one(ShareCode.LOCAL, (TAKE, (S(0), S(0)), ())),
    "a float tensor": one(ShareCode.LOCAL, (NEG, (S(0), torch.ones(2)), ())),
    "a float": one(ShareCode.LOCAL, (NEG, (S(0), 1.5), ())),
    "a name": one(ShareCode.LOCAL, (NEG, (S(0), "x"), ())),
    "a number beyond 64 bits": one(ShareCode.LOCAL, (SPLIT, (S(0), 1 << 63), ()), (1,)),
    "a keyword beyond 64 bits": one(ShareCode.LOCAL, (SPLIT, (S(0), 1), (("dim", 1 << 70),))),
    "deep nesting": one(ShareCode.LOCAL, (NEG, (S(0), ((((1,),),),)), ())),
    "an unknown keyword": one(ShareCode.LOCAL, (NEG, (S(0),), (("out", 1),))),
    "no keyword": one(ShareCode.LOCAL, (NEG, (S(0),), ("dim",))),
    "a tensor as a keyword": one(ShareCode.LOCAL, (SPLIT, (S(0), 1), (("dim", S(0)),))),
    "writing to no share": one(ShareCode.LOCAL, (ZERO_, (torch.arange(2), S(0)), ()), ()),
    "no result of a split": one(ShareCode.LOCAL, (SPLIT, (S(0), 1), ()), ()),
    "a mask at another place": product(x_mask=(0, 1)),
    "a mask of another program": product(x_mask=(3, 0)),
    "a mask of another shape": product(x_shape=(1,)),
    "a mask without a place": product(y_mask=(0,)),
    "a mask far away": product(y_mask=(0, 1 << 32)),
    "a mask by a number": product(y_mask=7),
    "a shape that is not the result's": product(shape=(3,)),
    "operands that do not fit": product(code=6, settings=(5,)),
    "a linear kernel of two": product(code=47, settings=((2, 2),) * 5),
}


@pytest.mark.parametrize("name", WRONG)
def test_programs_that_are_not_well_formed_are_refused(name):
    with pytest.raises(ProgramError):
        lint(WRONG[name], 2)


def test_what_is_masked_or_revealed_is_no_share():
    mask = instruction(ShareCode.MASK, (S(0), (2,)), (1,))
    reveal = instruction(ShareCode.REVEAL, (S(0), 0), (2,))
    for slot, kind in ((1, "masked"), (2, "plain")):
        negate = instruction(ShareCode.LOCAL, (NEG, (S(slot),), ()), (3,))
        with pytest.raises(ProgramError, match=f"action 2, LOCAL: slot {slot} holds {kind}"):
            lint(program_of(1, (mask, reveal, negate), ()), 2)


def test_a_product_is_of_masked_values():
    divide = instruction(ShareCode.DIVIDE, (S(0), 3, (2,)), (1,))
    args = (1, (), S(1), S(1), (3, 0), (2,), (3, 0), (2,), (2,))
    with pytest.raises(ProgramError, match="slot 1 holds share, not a masked"):
        lint(program_of(1, (divide, instruction(ShareCode.PRODUCT, args, (2,))), ()), 2)


def test_masks_of_inputs_belong_to_programs_before():
    args = (1, (), S(0), S(0), (3, 0), (2,), (3, 0), (2,), (2,))
    lint(one(ShareCode.PRODUCT, args), 2)
    with pytest.raises(ProgramError, match="not behind mask"):
        lint(one(ShareCode.PRODUCT, (*args[:4], (0, 0), *args[5:])), 2)


# ---------------------------------------------------------------------------------- random changes

atoms = st.one_of(
    st.integers(-2, 20),
    st.sampled_from([True, None, 1.5, "x", 1 << 70, torch.arange(2), torch.ones(2)]),
    st.builds(Slot, st.integers(-1, 20)),
)
anything = st.recursive(atoms, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=6)


@st.composite
def changed_programs(draw: Any) -> ShareProgram:
    steps = list(SAMPLE.actions)
    place = draw(st.integers(0, len(steps) - 1))
    step = steps[place]
    kind = draw(st.sampled_from(["argument", "code", "outs", "swap", "drop", "inner"]))
    if kind in ("argument", "inner") and step.args:
        args = list(step.args)
        at = draw(st.integers(0, len(args) - 1))
        if kind == "inner" and type(args[at]) is tuple and args[at]:
            inner = list(args[at])
            inner[draw(st.integers(0, len(inner) - 1))] = draw(anything)
            args[at] = tuple(inner)
        else:
            args[at] = draw(anything)
        steps[place] = Action(step.op, tuple(args), {}, step.out)
    elif kind == "code":
        steps[place] = Action(draw(st.sampled_from(ShareCode)), step.args, {}, step.out)
    elif kind == "outs":
        outs = draw(st.lists(st.integers(-1, 20), max_size=3).map(tuple))
        steps[place] = instruction(step.op, step.args, outs)
    elif kind == "swap":
        other = draw(st.integers(0, len(steps) - 1))
        steps[place], steps[other] = steps[other], steps[place]
    else:
        del steps[place]
    return ShareProgram(SAMPLE.inputs, tuple(steps), SAMPLE.outputs, constants=SAMPLE.constants)


@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(changed_programs())
def test_changed_programs_are_refused_or_run_to_an_end(program):
    """All parties end alike: with results, or with an error before anything hangs."""
    try:
        lint(program, 2)
    except ProgramError:
        return
    lint_deals(deals_of(program))
    try:
        run_all(program, [torch.arange(6).view(2, 3), torch.arange(3)], most_elements=1 << 16)
    except (ProgramError, MaterialError, EncodingError):
        pass
    except (RuntimeError, IndexError, TypeError, ValueError) as error:  # torch's, about arguments
        assert "parties are done" not in str(error)


DEALS = deals_of(SAMPLE)

WRONG_DEALS = [
    None,
    [],
    (None,),
    ((0, 6),),
    ((-1, 6, (1, (2,))),),
    ((1 << 32, 6, (1, (2,))),),
    ((0, 6, [1, (2,)]),),
    ((0, 6, (1,)),),
    ((0, 6, (1, (2,), 3)),),
    ((0, 4, ((2,),)),),
    ((0, True, (torch.arange(2),)),),
    ((0, 10, (1,)),),
    ((0, 99, ()),),
    ((0, 5, (1, (), (0, 0), (2,), (0, 0), (2,), (3,))),),
    (DEALS[0], DEALS[0]),
    (DEALS[1], DEALS[0]),
    DEALS * 8192,
]


@pytest.mark.parametrize("deals", WRONG_DEALS, ids=lambda deals: repr(deals)[:40])
def test_deals_that_are_not_well_formed_are_refused(deals):
    lint_deals(DEALS)
    with pytest.raises(ProgramError):
        lint_deals(deals)


def test_other_elements_of_a_known_program_are_checked_too() -> None:
    """A program of the same form is known; a divisor of zero in the place of three is not."""
    divide = Action(ShareCode.DIVIDE, (Slot(0), (Slot(1),), (2,)), {}, Slot(2))
    sent = [
        ShareProgram(1, (divide,), (Slot(2),), constants=(torch.tensor([number]),))
        for number in (3, 5, 0)
    ]
    three, five, zero = (unpacked(program) for program in sent)
    assert three.facts is five.facts is zero.facts  # the control: it is a known program
    lint(three, 2)
    lint(five, 2)
    assert deals_of(three) != deals_of(five)
    with pytest.raises(ProgramError, match="a factor of 0 to 0"):
        lint(zero, 2)


def unpacked(program: ShareProgram) -> ShareProgram:
    packer = Packer()
    operand = pack(program, packer)
    made: ShareProgram = unpack_at(operand, Unpacker(packer.buffers), "")
    return made


def test_a_public_tensor_is_no_result() -> None:
    mask = Action(ShareCode.MASK, (Slot(0), (2,)), {}, Slot(2))
    public = (torch.tensor([3]),)
    lint(ShareProgram(1, (mask,), (Slot(2),), constants=public), 2)
    with pytest.raises(ProgramError, match="a public tensor as a result"):
        lint(ShareProgram(1, (mask,), (Slot(1),), constants=public), 2)
