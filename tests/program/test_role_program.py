"""A role of a protocol as data: which of its values come from users, stay, or cross to others."""

from __future__ import annotations

from syft.program.program import Program, Slot
from syft.program.role_program import RoleProgram


def test_what_crosses_is_numbered_for_each_other_role_in_the_order_of_places() -> None:
    role = RoleProgram(
        "alice",
        Program(4, (), tuple(map(Slot, range(4)))),
        sources=(1, None, 2, 1),
        targets=(2, 2, None, 1),
    )
    assert role.letters_from == {1: (0, 3), 2: (2,)}
    assert role.letters_to == {2: (0, 1), 1: (3,)}
    assert role.user_inputs == (1,)
    assert role.kept_outputs == (2,)
