"""References to objects of the other side, inside operands."""

from __future__ import annotations

from typing import Any

import pytest

from syft.codes import TypeCode
from syft.exceptions import LimitExceeded, MalformedMessage
from syft.serde.limits import Limits
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import _WRITES, pack, unpack
from syft.workers.wire.references import REF, REFS, Reference, ids_in


class Store:
    def resolve(self, *fields: int) -> Any:
        return fields


def test_a_reference_names_an_object_and_a_depth() -> None:
    assert pack(Reference(5), Packer()) == (REF, 5)
    assert pack(Reference(5, 2), Packer()) == (REF, 5, 2)
    unpacker = Unpacker([], worker=Store())
    assert unpack([REF, 5], unpacker) == (5,)
    assert unpack([REF, 5, 2], unpacker) == (5, 2)


@pytest.mark.parametrize("operand", [[REF], [REF, "5"], [REF, 5.0], [REF, True], [REF, 1, 2, 3]])
def test_another_shape_of_reference_is_refused(operand: Any) -> None:
    with pytest.raises(MalformedMessage, match=r"expected a reference \(id, depth\)"):
        unpack(operand, Unpacker([], worker=Store()))


def test_a_list_of_references_is_its_ids() -> None:
    assert _WRITES[REFS]([Reference(5), Reference(6)], Packer()) == [REFS, 5, 6]
    assert unpack([REFS, 5, 6], Unpacker([], worker=Store())) == [(5,), (6,)]
    assert unpack([REFS], Unpacker([], worker=Store())) == []
    with pytest.raises(MalformedMessage, match=r"\$\[1\]: expected a reference"):
        unpack([REFS, 5, "6"], Unpacker([], worker=Store()))
    with pytest.raises(LimitExceeded):
        unpack([REFS, 5, 6, 7], Unpacker([], Limits(max_items=2), worker=Store()))


def test_a_value_that_stands_on_its_own_holds_no_reference() -> None:
    with pytest.raises(MalformedMessage, match="a value that stands on its own"):
        unpack([REF, 5], Unpacker([]))


def test_the_ids_inside_an_operand_are_found_wherever_they_are() -> None:
    operand = (
        (REF, 1),
        [int(TypeCode.LIST), [REF, 2, 1], [int(TypeCode.SLICE), [REF, 3], None, 7]],
        {"out": (REF, 4), "dim": 0},
        "text",
        b"\x00\x01",
        [True, 9],
        [REF],
        [REF, "not an id"],
        (REFS, 5, 6, "not an id"),
        [int(TypeCode.TUPLE), [REFS], [REFS, 7]],
    )
    assert ids_in(operand) == set(range(1, 8))
    assert ids_in((REFS, (REF, 8))) == {8}, "a number that is an operand"
