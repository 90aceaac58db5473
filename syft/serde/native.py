"""Codecs for Python's own values: numbers, strings and containers.

Types that MessagePack has (None, bool, 64-bit int, float, str, bytes) are sent as they are.  Every
other value becomes a tuple that starts with its type code, so that a tuple arrives as a tuple and a
set as a set.  Subclasses are refused with three exceptions: named tuples, whose class only the
sender has, arrive as plain tuples; members of int and str enumerations and numpy scalars arrive as
numbers and strings.
"""

from __future__ import annotations

import collections
import enum
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from syft.codes import PYTHON_TYPES, TypeCode
from syft.exceptions import MalformedMessage
from syft.serde.expect import expect_fields, expect_int, expect_type, malformed
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import (
    INT_HIGH,
    INT_LOW,
    Operand,
    PackValue,
    UnpackOperand,
    not_sendable,
    pack,
    pack_items,
    register,
    register_hint,
    register_packer,
    unpack_items,
)

# ------------------------------------------------------------------------------ numbers and text


def _pack_int(value: int, packer: Packer) -> Operand:
    if INT_LOW <= value < INT_HIGH:
        return value
    return int(TypeCode.BIG_INT), value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)


def _unpack_big_int(operand: Sequence[Any], unpacker: Unpacker) -> int:
    expect_fields(operand, 1)
    digits = expect_type(operand[1], bytes, "bytes", ".digits")
    return int.from_bytes(digits, "little", signed=True)


def _pack_str(value: str, packer: Packer) -> Operand:
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return int(TypeCode.SURROGATE_STR), value.encode("utf-8", "surrogatepass")
    return value


def _unpack_surrogate_str(operand: Sequence[Any], unpacker: Unpacker) -> str:
    expect_fields(operand, 1)
    data: bytes = expect_type(operand[1], bytes, "bytes", ".text")
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise malformed("UTF-8 with surrogates", operand[1], ".text") from error


def _pack_complex(value: complex, packer: Packer) -> Operand:
    return int(TypeCode.COMPLEX), value.real, value.imag


def _unpack_complex(operand: Sequence[Any], unpacker: Unpacker) -> complex:
    expect_fields(operand, 2)
    real = expect_type(operand[1], float, "a float", ".real")
    imag = expect_type(operand[2], float, "a float", ".imag")
    return complex(real, imag)


def _pack_bytearray(value: bytearray, packer: Packer) -> Operand:
    return int(TypeCode.BYTEARRAY), bytes(value)


def _unpack_bytearray(operand: Sequence[Any], unpacker: Unpacker) -> bytearray:
    expect_fields(operand, 1)
    return bytearray(expect_type(operand[1], bytes, "bytes", ".data"))


def _is_enum(kind: type) -> bool:
    return issubclass(kind, enum.Enum)


def _pack_enum_int(value: Any, packer: Packer) -> Operand:
    return _pack_int(int(value), packer)


def _pack_enum_str(value: str, packer: Packer) -> Operand:
    return _pack_str(str.__str__(value), packer)


register(TypeCode.BIG_INT, int, _pack_int, _unpack_big_int)
register(TypeCode.SURROGATE_STR, str, _pack_str, _unpack_surrogate_str)
register(TypeCode.COMPLEX, complex, _pack_complex, _unpack_complex)
register(TypeCode.BYTEARRAY, bytearray, _pack_bytearray, _unpack_bytearray)

# ------------------------------------------------------------------------------------ containers


def _sequence_packer(code: TypeCode) -> PackValue:
    number = int(code)

    def pack_sequence(value: Any, packer: Packer) -> Operand:
        return pack_items(value, packer, number)

    return pack_sequence


def _sequence_unpacker(build: Callable[[list[Any]], Any]) -> UnpackOperand:
    def unpack_sequence(operand: Sequence[Any], unpacker: Unpacker) -> Any:
        return build(unpack_items(operand[1:], unpacker))

    return unpack_sequence


def _set_unpacker(build: Callable[[list[Any]], Any]) -> UnpackOperand:
    def unpack_set(operand: Sequence[Any], unpacker: Unpacker) -> Any:
        values = unpack_items(operand[1:], unpacker)
        items = _hashed(build, values, "items")
        if len(items) != len(values):
            raise MalformedMessage("$", "distinct items", "an item twice")
        return items

    return unpack_set


def _hashed(build: Callable[[Any], Any], values: Any, what: str) -> Any:
    try:
        return build(values)
    except TypeError as error:
        # Unhashable items are the only reason for which building a set or dict fails.
        raise MalformedMessage("$", f"{what} that can be hashed", str(error)) from error


def _is_named_tuple(kind: type) -> bool:
    return hasattr(kind, "_fields")


_pack_tuple = _sequence_packer(TypeCode.TUPLE)
register(TypeCode.TUPLE, tuple, _pack_tuple, _sequence_unpacker(tuple), _is_named_tuple)
register(TypeCode.LIST, list, _sequence_packer(TypeCode.LIST), _sequence_unpacker(list))
register(TypeCode.SET, set, _sequence_packer(TypeCode.SET), _set_unpacker(set))
register(
    TypeCode.FROZENSET, frozenset, _sequence_packer(TypeCode.FROZENSET), _set_unpacker(frozenset)
)


def _mapping_packer(code: TypeCode) -> PackValue:
    number = int(code)

    def pack_mapping(value: dict[Any, Any], packer: Packer) -> Operand:
        return pack_items(chain.from_iterable(value.items()), packer, number)

    return pack_mapping


def _mapping_unpacker(build: Callable[[Any], Any]) -> UnpackOperand:
    def unpack_mapping(operand: Sequence[Any], unpacker: Unpacker) -> Any:
        if not len(operand) % 2:
            raise MalformedMessage("$", "a value for every key", f"{len(operand) - 1} fields")
        values = unpack_items(operand[1:], unpacker)
        mapping = _hashed(build, zip(values[::2], values[1::2], strict=True), "keys")
        if 2 * len(mapping) != len(values):
            raise MalformedMessage("$", "distinct keys", "a key twice")
        return mapping

    return unpack_mapping


register(TypeCode.DICT, dict, _mapping_packer(TypeCode.DICT), _mapping_unpacker(dict))
register(
    TypeCode.ORDERED_DICT,
    collections.OrderedDict,
    _mapping_packer(TypeCode.ORDERED_DICT),
    _mapping_unpacker(collections.OrderedDict),
)
register_hint(dict, "send dict(value), or an OrderedDict")
register_hint(list, "send list(value)")
register_hint(tuple, "send tuple(value)")
register_hint(set, "send set(value)")

# --------------------------------------------------------------------- slices, ranges, singletons


def _pack_slice(value: slice, packer: Packer) -> Operand:
    return (
        int(TypeCode.SLICE),
        pack(value.start, packer),
        pack(value.stop, packer),
        pack(value.step, packer),
    )


def _unpack_slice(operand: Sequence[Any], unpacker: Unpacker) -> slice:
    expect_fields(operand, 3)
    return slice(*unpack_items(operand[1:], unpacker))


def _pack_range(value: range, packer: Packer) -> Operand:
    bounds = (value.start, value.stop, value.step)
    return (int(TypeCode.RANGE), *[_pack_int(bound, packer) for bound in bounds])


def _unpack_range(operand: Sequence[Any], unpacker: Unpacker) -> range:
    expect_fields(operand, 3)
    start, stop, step = unpack_items(operand[1:], unpacker)
    for bound, where in ((start, "[0]"), (stop, "[1]"), (step, "[2]")):
        expect_type(bound, int, "an int", where)
    if step == 0:
        raise MalformedMessage("$[2]", "a step other than 0", "0")
    return range(start, stop, step)


def _singleton(code: TypeCode, value: Any) -> None:
    number = int(code)

    def pack_singleton(value: Any, packer: Packer) -> Operand:
        return (number,)

    def unpack_singleton(operand: Sequence[Any], unpacker: Unpacker) -> Any:
        expect_fields(operand, 0)
        return value

    register(code, type(value), pack_singleton, unpack_singleton)


def _pack_type(value: type, packer: Packer) -> Operand:
    if value not in PYTHON_TYPES:
        raise not_sendable(type(value))
    return int(TypeCode.PYTHON_TYPE), PYTHON_TYPES.index(value)


def _unpack_type(operand: Sequence[Any], unpacker: Unpacker) -> type:
    expect_fields(operand, 1)
    return PYTHON_TYPES[expect_int(operand[1], ".type", high=len(PYTHON_TYPES) - 1)]


register(TypeCode.SLICE, slice, _pack_slice, _unpack_slice)
register(TypeCode.RANGE, range, _pack_range, _unpack_range)
register(TypeCode.PYTHON_TYPE, type, _pack_type, _unpack_type)
_singleton(TypeCode.ELLIPSIS, Ellipsis)
_singleton(TypeCode.NOT_IMPLEMENTED, NotImplemented)
register_hint(type, "of the classes only bool, int, float and complex travel (as dtypes)")
register_hint(memoryview, "send bytes(view)")

# --------------------------------------------------------------------------- enums, numpy scalars


def _pack_numpy_scalar(value: np.generic, packer: Packer) -> Operand:
    return pack(value.item(), packer)


def _is_plain_scalar(kind: type) -> bool:
    # .item() of a long double is a long double, and of a date or a record not a number.
    numbers = (np.bool_, np.integer, np.floating, np.complexfloating, np.str_, np.bytes_)
    odd = (np.longdouble, np.clongdouble, np.timedelta64)
    return issubclass(kind, numbers) and not issubclass(kind, odd)


# Enumerations derive from int or str, and are looked up as subclasses of these.
register_packer(enum.IntEnum, _pack_enum_int, _is_enum)
register_packer(enum.IntFlag, _pack_enum_int, _is_enum)
register_packer(enum.StrEnum, _pack_enum_str, _is_enum)
register_packer(np.generic, _pack_numpy_scalar, _is_plain_scalar)
register_hint(np.generic, "send a Python number")
register_hint(np.ndarray, "send torch.from_numpy(array)")
