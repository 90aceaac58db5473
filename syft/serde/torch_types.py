"""Codecs for torch's values that are not tensors: dtype, device, Size, Generator, named tuples, …

Each kind has a table from numbers on the wire to torch's objects, built once from the names in
``syft.codes``.  Names that the installed torch does not have are left out; their numbers are
refused when they arrive.

The state of a ``torch.Generator`` is not sent: two workers would then draw the same "random"
numbers.  Packing draws a 63-bit seed *from* the generator, which advances it.  So every use gets
other numbers, and the same program with the same seed gets the same numbers again.
"""

from __future__ import annotations

import dataclasses
import operator
import typing
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch.nn.utils.rnn import PackedSequence

from syft.codes import (
    NAMED_TUPLES,
    TORCH_ENUMS,
    TORCH_OPTIONS,
    DeviceCode,
    DTypeCode,
    LayoutCode,
    MemoryFormatCode,
    QSchemeCode,
    TypeCode,
    WireCode,
)
from syft.exceptions import MalformedMessage, NotSendable
from syft.serde.expect import MAX_INT, expect_fields, expect_int, malformed
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import (
    Operand,
    pack_items,
    register,
    register_code,
    register_packer,
    unpack_at,
    unpack_items,
)

Kind = TypeVar("Kind")


def _numbered(codes: type[WireCode], cls: type[Kind]) -> dict[int, Kind]:
    """Map each number of ``codes`` to torch's object of that name, if this torch has one."""
    found = ((int(code), getattr(torch, code.name.lower(), None)) for code in codes)
    return {number: value for number, value in found if isinstance(value, cls)}


def _by_value(table: dict[int, Kind]) -> dict[Kind, int]:
    return {value: number for number, value in table.items()}


DTYPES = _numbered(DTypeCode, torch.dtype)
DTYPE_CODES = _by_value(DTYPES)
LAYOUTS = _numbered(LayoutCode, torch.layout)
LAYOUT_CODES = _by_value(LAYOUTS)
MEMORY_FORMATS = _numbered(MemoryFormatCode, torch.memory_format)
QSCHEMES = _numbered(QSchemeCode, torch.qscheme)
QSCHEME_CODES = _by_value(QSCHEMES)
DEVICE_TYPES = {int(code): code.name.lower() for code in DeviceCode}
del DEVICE_TYPES[DeviceCode.PRIVATEUSEONE]  # what that is each process decides, as `sy.device` does
DEVICE_CODES = _by_value(DEVICE_TYPES)


def lookup(table: dict[int, Kind], number: Any, what: str, where: str) -> Kind:
    """Return the object of a number; refuse a number for which this torch has no object.

    >>> lookup(DTYPES, 0, "dtype", ".dtype")
    torch.float32
    """
    if type(number) is not int:
        raise malformed(f"a {what} number", number, where)
    value = table.get(number)
    if value is None:
        raise MalformedMessage(f"${where}", f"a {what} that this torch has", f"number {number}")
    return value


# --------------------------------------------------------------------------- plain table look-ups


def _register_table(code: TypeCode, cls: type, table: dict[int, Any]) -> None:
    head, what = int(code), code.name.lower()
    numbers = _by_value(table)

    def pack_named(value: Any, packer: Packer) -> Operand:
        if value not in numbers:
            raise NotSendable(f"the {what} {value}", f"use another {what}")
        return head, numbers[value]

    def unpack_named(operand: Sequence[Any], unpacker: Unpacker) -> Any:
        expect_fields(operand, 1)
        return lookup(table, operand[1], what, f".{what}")

    register(code, cls, pack_named, unpack_named)


_register_table(TypeCode.DTYPE, torch.dtype, DTYPES)
_register_table(TypeCode.LAYOUT, torch.layout, LAYOUTS)
_register_table(TypeCode.MEMORY_FORMAT, torch.memory_format, MEMORY_FORMATS)
_register_table(TypeCode.QSCHEME, torch.qscheme, QSCHEMES)


def _register_info(code: TypeCode, cls: type) -> None:
    head = int(code)

    def pack_info(value: Any, packer: Packer) -> Operand:
        try:
            return head, DTYPE_CODES[getattr(torch, value.dtype)]
        except NotImplementedError as error:
            # torch has limits of dtypes whose name it cannot give.
            raise NotSendable(f"this {cls.__name__}", "send the dtype") from error

    def unpack_info(operand: Sequence[Any], unpacker: Unpacker) -> Any:
        expect_fields(operand, 1)
        dtype = lookup(DTYPES, operand[1], "dtype", ".dtype")
        if not _has_info(dtype, cls):
            raise MalformedMessage("$.dtype", f"a dtype with {cls.__name__}", str(dtype))
        return cls(dtype)

    register(code, cls, pack_info, unpack_info)


def _has_info(dtype: torch.dtype, cls: type) -> bool:
    if cls is torch.finfo:
        return dtype.is_floating_point or dtype.is_complex
    return dtype in _INTEGERS


_INTEGERS = frozenset(
    dtype for dtype in DTYPES.values() if str(dtype).startswith(("torch.int", "torch.uint"))
)
_register_info(TypeCode.FINFO, torch.finfo)
_register_info(TypeCode.IINFO, torch.iinfo)

# ------------------------------------------------------------------------------ devices and seeds


def device_operand(device: torch.device) -> tuple[int, int | None]:
    """Return the two fields of a device: its type's number and its index.

    >>> device_operand(torch.device("cuda:1"))
    (1, 1)
    """
    number = DEVICE_CODES.get(device.type)
    if number is None:
        raise NotSendable(f"the device {device}", "move the value to cpu or cuda first")
    return number, device.index


def device_of(number: Any, index: Any, where: str = ".device") -> torch.device:
    """Return the device of the two fields; it need not be present on this machine.

    >>> device_of(1, 0)
    device(type='cuda', index=0)
    """
    kind = lookup(DEVICE_TYPES, number, "device", where)
    if index is None:
        return torch.device(kind)
    return torch.device(kind, expect_int(index, f"{where}.index", high=127))


def present_device(number: Any, index: Any, what: str) -> torch.device:
    """Return the device of the two fields, or refuse ``what`` if this machine has no such device.

    >>> present_device(2, None, "a tensor")
    device(type='meta')
    """
    device = device_of(number, index)
    check_present(device, what)
    return device


def check_present(device: torch.device, what: str) -> None:
    """Refuse ``what`` if this machine has no such device.

    >>> check_present(torch.device("cpu"), "a tensor")
    """
    if device.type not in ("cpu", "meta") and (device.index or 0) >= _devices_of(device.type):
        raise NotSendable(
            f"{what} on {device}",
            "the receiving machine has no such device; move it with .to() before sending",
        )


def _devices_of(kind: str) -> int:
    """Count the devices of a type on this machine; types without a counter have none."""
    if kind not in _COUNTED:
        return 0
    return int(torch.get_device_module(kind).device_count())


_COUNTED = ("cuda", "mps", "xpu", "mtia")


def _pack_device(value: torch.device, packer: Packer) -> Operand:
    return (int(TypeCode.DEVICE), *device_operand(value))


def _unpack_device(operand: Sequence[Any], unpacker: Unpacker) -> torch.device:
    expect_fields(operand, 2)
    return device_of(operand[1], operand[2])


def _pack_generator(value: torch.Generator, packer: Packer) -> Operand:
    seed = torch.randint(2**63 - 1, (), generator=value, device=value.device)
    return (int(TypeCode.GENERATOR), *device_operand(value.device), int(seed))


def _unpack_generator(operand: Sequence[Any], unpacker: Unpacker) -> torch.Generator:
    expect_fields(operand, 3)
    seed = expect_int(operand[3], ".seed")
    device = present_device(operand[1], operand[2], "a generator")
    if device.type == "meta":
        raise MalformedMessage("$.device", "a device that draws random numbers", "meta")
    generator = torch.Generator(device)
    generator.manual_seed(seed)
    return generator


register(TypeCode.DEVICE, torch.device, _pack_device, _unpack_device)
register(TypeCode.GENERATOR, torch.Generator, _pack_generator, _unpack_generator)

# ----------------------------------------------------------------------- sizes and named tuples


def _pack_size(value: torch.Size, packer: Packer) -> Operand:
    return pack_items(value, packer, int(TypeCode.SIZE))


def _unpack_size(operand: Sequence[Any], unpacker: Unpacker) -> torch.Size:
    lengths = unpack_items(operand[1:], unpacker)
    for index, length in enumerate(lengths):
        if type(length) is not int or not -MAX_INT <= length <= MAX_INT:  # -1 in `reshape`
            expect_int(length, f"[{index}]", low=-MAX_INT)
    return torch.Size(lengths)


register(TypeCode.SIZE, torch.Size, _pack_size, _unpack_size)


def _object_named(name: str) -> Any:
    """The object of a dotted name from ``syft.codes``; None if this torch does not have it."""
    try:
        return operator.attrgetter(name.removeprefix("torch."))(torch)
    except AttributeError:
        return None


def _arity(cls: Any) -> int:
    fields: Sequence[str] | None = getattr(cls, "_fields", None)
    return int(cls.n_sequence_fields) if fields is None else len(fields)


_NAMED = {n: cls for n, cls in enumerate(map(_object_named, NAMED_TUPLES)) if cls is not None}
_NAMED_NUMBERS = _by_value(_NAMED)


def _pack_named_tuple(value: Any, packer: Packer) -> Operand:
    return pack_items(value, packer, int(TypeCode.NAMED_TUPLE), _NAMED_NUMBERS[type(value)])


def _unpack_named_tuple(operand: Sequence[Any], unpacker: Unpacker) -> Any:
    cls = lookup(_NAMED, operand[1] if len(operand) > 1 else None, "named tuple", ".name")
    expect_fields(operand, 1 + _arity(cls))
    items = unpack_items(operand[2:], unpacker)
    return cls(*items) if hasattr(cls, "_fields") else cls(items)


register_code(TypeCode.NAMED_TUPLE, _pack_named_tuple, _unpack_named_tuple)
for _cls in _NAMED.values():
    register_packer(_cls, _pack_named_tuple)

_ENUMS: dict[int, Any] = {n: cls for n, cls in enumerate(map(_object_named, TORCH_ENUMS)) if cls}
_ENUM_NUMBERS = _by_value(_ENUMS)


def _pack_enum(value: Any, packer: Packer) -> Operand:
    return int(TypeCode.TORCH_ENUM), _ENUM_NUMBERS[type(value)], int(value)


def _unpack_enum(operand: Sequence[Any], unpacker: Unpacker) -> Any:
    expect_fields(operand, 2)
    cls = lookup(_ENUMS, operand[1], "torch enumeration", ".enum")
    value = expect_int(operand[2], ".value", low=-(2**31), high=2**31 - 1)
    members: dict[int, Any] = {int(member): member for member in cls.__members__.values()}
    return lookup(members, value, cls.__name__, ".value")


register_code(TypeCode.TORCH_ENUM, _pack_enum, _unpack_enum)
for _cls in _ENUMS.values():
    register_packer(_cls, _pack_enum)

# ------------------------------------------------------------------------------------- dataclasses

_OPTIONS: dict[int, Any] = {
    n: cls for n, cls in enumerate(map(_object_named, TORCH_OPTIONS)) if cls
}
_OPTIONS_NUMBERS = _by_value(_OPTIONS)


def _pack_options(value: Any, packer: Packer) -> Operand:
    fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
    return pack_items(fields, packer, int(TypeCode.TORCH_OPTIONS), _OPTIONS_NUMBERS[type(value)])


def _fits(value: Any, annotation: Any) -> bool:
    """Whether a value is of the annotated type: a class, a union of classes, or a Literal."""
    if typing.get_origin(annotation) is typing.Literal:
        return type(value) is str and value in typing.get_args(annotation)
    return isinstance(value, annotation)


def _unpack_options(operand: Sequence[Any], unpacker: Unpacker) -> Any:
    cls = lookup(_OPTIONS, operand[1] if len(operand) > 1 else None, "torch options", ".name")
    expect_fields(operand, 1 + len(dataclasses.fields(cls)))
    fields = unpack_items(operand[2:], unpacker)
    for value, field in zip(fields, dataclasses.fields(cls), strict=True):
        if not _fits(value, field.type):
            raise malformed(f"what {cls.__name__} takes there", value, f".{field.name}")
    try:
        return cls(*fields)
    except ValueError as error:  # torch checks what they hold
        raise MalformedMessage("$", f"a {cls.__name__}", str(error)) from error


register_code(TypeCode.TORCH_OPTIONS, _pack_options, _unpack_options)
for _cls in _OPTIONS.values():
    register_packer(_cls, _pack_options)

NUMBERED_KINDS: frozenset[type] = frozenset((*_ENUMS.values(), *_OPTIONS.values()))
"""Torch's own enumerations and dataclasses that travel."""

# ------------------------------------------------------------------------------ packed sequences

_PACKED_FIELDS = (".data", ".batch_sizes", ".sorted_indices", ".unsorted_indices")


def _pack_packed_sequence(value: PackedSequence, packer: Packer) -> Operand:
    return pack_items(value, packer, int(TypeCode.PACKED_SEQUENCE))


def _unpack_packed_sequence(operand: Sequence[Any], unpacker: Unpacker) -> PackedSequence:
    expect_fields(operand, 4)
    data, sizes, sorted_, unsorted_ = (
        unpack_at(item, unpacker, where)
        for item, where in zip(operand[1:], _PACKED_FIELDS, strict=True)
    )
    for value, where in ((data, ".data"), (sizes, ".batch_sizes")):
        if not isinstance(value, torch.Tensor):
            raise malformed("a tensor", value, where)
    for value, where in ((sorted_, ".sorted_indices"), (unsorted_, ".unsorted_indices")):
        if not isinstance(value, torch.Tensor) and (value is not None or sorted_ is not unsorted_):
            raise malformed("a tensor, or nil for both", value, where)
    if type(sizes) is torch.Tensor:
        _expect_batch_sizes(sizes, data)
    return PackedSequence(data, sizes, sorted_, unsorted_)


def _expect_batch_sizes(sizes: torch.Tensor, data: torch.Tensor) -> None:
    """Check the sizes, which the recurrent kernels use without a check."""
    plain = sizes.layout == torch.strided and sizes.device.type == "cpu" and sizes.dim() == 1
    if not plain or sizes.dtype != torch.int64:
        raise MalformedMessage("$.batch_sizes", "int64 lengths on the cpu", str(sizes.dtype))
    lengths = sizes.tolist()
    if lengths != sorted(lengths, reverse=True) or min(lengths, default=1) < 1:
        raise MalformedMessage("$.batch_sizes", "positive sizes that never rise", "others")
    if type(data) is torch.Tensor:
        rows = data.shape[0] if data.dim() else "a scalar"
        if rows != sum(lengths):
            raise MalformedMessage("$.data", f"{sum(lengths)} rows", str(rows))


register(TypeCode.PACKED_SEQUENCE, PackedSequence, _pack_packed_sequence, _unpack_packed_sequence)
