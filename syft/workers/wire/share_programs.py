"""How share programs travel: as every program does, and known by their encoded form when they come
again.

A model sends the same program for each input, and the program is part of each request.  So what is
known is neither taken apart nor checked again; but for its constants, whose elements are no part of
that form.

What arrives has the form of a program; whether it makes sense is checked before it runs
(:func:`syft.crypto.programs.share_lint.lint`).  Everything in it is public and travels with it: a
reference would let somebody pass a stored tensor off as a public one, so none is resolved in here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from syft.codes import TypeCode
from syft.crypto.programs.share_program import ShareProgram
from syft.program.codec import count_items, kept_form, unpack_constants, unpack_form
from syft.serde.expect import expect_fields
from syft.serde.frame import encode_header
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import pack_items, register

_MOST_KNOWN: Final = 64
_LONGEST: Final = 1 << 16
"""Bytes of an encoded program that is kept."""
_KNOWN: Final[OrderedDict[bytes, ShareProgram]] = OrderedDict()
"""The programs that have come last, without their constants, by their encoded form."""


def pack_share_program(program: ShareProgram, packer: Packer) -> tuple[Any, ...]:
    """The operand of a program.

    >>> pack_share_program(ShareProgram(1, (), ()), Packer())
    (70, 1, 0, (), (), (2,))
    """
    constants = pack_items(program.constants, packer)
    head = int(TypeCode.SHARE_PROGRAM), program.inputs, program.state, constants
    return *head, *kept_form(program)


def unpack_share_program(operand: Sequence[Any], unpacker: Unpacker) -> ShareProgram:
    """The program of an operand; raises :class:`~syft.exceptions.MalformedMessage`."""
    expect_fields(operand, 5)
    name = encode_header(tuple(operand))
    # What is public may be as large as the message: nothing is kept of it.
    most, worker = unpacker.limits.max_bytes, unpacker.worker
    unpacker.worker = None
    try:
        known = _KNOWN.get(name)
        if known is not None:
            count_items(known.facts["items"], unpacker)
            return known.on(unpack_constants(operand[3], unpacker, most)) if operand[3] else known
        before = unpacker.items
        program = unpack_form(ShareProgram, operand, unpacker, most)
        program.facts["items"] = unpacker.items - before
    finally:
        unpacker.worker = worker
    if len(name) <= _LONGEST:
        _KNOWN[name] = program.on(())
        if len(_KNOWN) > _MOST_KNOWN:
            _KNOWN.popitem(last=False)
    return program


register(TypeCode.SHARE_PROGRAM, ShareProgram, pack_share_program, unpack_share_program)
