"""How wrappers travel: as their first link, whose class brings its own codec.

A link's decoder returns a wrapper.  A dispatch-level wrapper also carries what torch keeps on the
wrapper itself: requires_grad, grad, parameter-ness, tags and description.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syft.chain.wrapper import Wrapper
from syft.codes import TypeCode
from syft.exceptions import MalformedMessage
from syft.serde.tensors.attributes import attach, pack_attributes
from syft.serde.expect import expect_fields
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, pack, register, unpack_at


def _pack_wrapper(wrapper: Wrapper, packer: Packer) -> Operand:
    link = pack(wrapper.child, packer)
    if wrapper.child.at_function_level:
        return link
    return (int(TypeCode.WRAPPER), pack_attributes(wrapper, packer), link)


def _unpack_wrapper(operand: Sequence[Any], unpacker: Unpacker) -> Any:
    expect_fields(operand, 2)
    wrapper = unpack_at(operand[2], unpacker, ".link")
    if type(wrapper) is not Wrapper or wrapper.child.at_function_level:
        raise MalformedMessage("$.link", "a dispatch-level link", type(wrapper).__name__)
    return attach(wrapper, operand[1], unpacker)


register(TypeCode.WRAPPER, Wrapper, _pack_wrapper, _unpack_wrapper)
