"""Interfaces as plain values, and what is refused on arrival."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from syft.exceptions import MalformedMessage
from syft.plans.remote.interface_codec import pack_interface, unpack_interface
from syft.program.program import Slot
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack, unpack
from tests.plans.building.calls import CALLS, X, interface, two

pytestmark = pytest.mark.every_shell


@pytest.mark.parametrize("function, args, kwargs", CALLS)
def test_an_interface_travels(function: Any, args: Any, kwargs: Any) -> None:
    taken = interface(function, *args, **kwargs)
    arrived = unpack_interface(unpack(pack(pack_interface(taken), Packer()), Unpacker([])))
    assert pack_interface(arrived) == pack_interface(taken)
    values = arrived.bind(args, kwargs)
    assert all(mine is theirs for mine, theirs in zip(values, taken.bind(args, kwargs)))
    assert arrived.is_flat is taken.is_flat


FIELDS = pack_interface(interface(two, X))


@pytest.mark.parametrize(
    "position, value, where",
    [
        (0, 5, "$.interface.name"),
        (8, (1,), "$.interface.modes[0]"),
        (9, (("dim", ()),), "$.interface.fixed[0]"),
        (10, 5, "$.interface.options"),
        (10, (5,), "$.interface.options[0]"),
        (10, (("lr",),), "$.interface.options[0]"),
        (10, (("lr", 0.1, 0.2),), "$.interface.options[0]"),
        (10, (("lr", 1), ("lr", True)), "$.interface.options[1]"),
        (10, ((5, 0.1),), "$.interface.options"),
        (10, (("'", 0.1),), "$.interface.options"),
        (10, (("lr", 0.1), ("lr", 0.2)), "$.interface.options"),
        (1, 5, "$.interface.signature"),
        (1, ((1, 2),), "$.interface.signature"),
        (1, (("x",),), "$.interface.signature"),
        (1, (("not a name", 1),), "$.interface.signature"),
        (1, (("x", 9),), "$.interface.signature"),
        (1, (("x", 1, 5), ("y", 1)), "$.interface.signature"),
        (1, (("x", [])), "$.interface.signature"),
        (2, 5, "$.interface.template"),
        (2, {"x": Slot(1)}, "$.interface.template"),
        (2, {"z": Slot(0), "y": Slot(1)}, "$.interface.template"),
        (3, ("tensor", "float", "bool"), "$.interface.kinds"),
        (3, ("tensor", 5), "$.interface.kinds[1]"),
        (3, "tensor", "$.interface.kinds"),
        (4, Slot(3), "$.interface.outputs"),
        (5, ("tensor",), "$.interface.outputs"),
        (6, ("a",), "$.interface.state"),
        (7, (True,), "$.interface.state"),
        (7, (1,), "$.interface.parameters[0]"),
    ],
)
def test_what_arrives_is_checked(position: int, value: Any, where: str) -> None:
    fields = (*FIELDS[:position], value, *FIELDS[position + 1 :])
    with pytest.raises(MalformedMessage) as caught:
        unpack_interface(fields)
    assert caught.value.path == where


@pytest.mark.parametrize("fields", [None, (), FIELDS[:-1], [*FIELDS]])
def test_fields_are_a_tuple_of_eleven(fields: Any) -> None:
    with pytest.raises(MalformedMessage):
        unpack_interface(fields)


def test_two_state_tensors_have_two_names() -> None:
    fields = (*FIELDS[:6], ("a", "a"), (True, True), *FIELDS[8:])
    with pytest.raises(MalformedMessage):
        unpack_interface(fields)


def test_options_travel_with_their_numbers() -> None:
    taken = replace(interface(two, X), options=(("lr", 0.1), ("groups.1.lr", 2)))
    arrived = unpack_interface(unpack(pack(pack_interface(taken), Packer()), Unpacker([])))
    assert arrived.options == taken.options
