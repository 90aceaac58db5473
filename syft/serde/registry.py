"""The table of codecs: Python class to operand, type code to Python value.

An *operand* is the form of a value in a message header: None, bool, int of 64 bits, float, str and
bytes as they are, anything else a tuple that starts with its ``TypeCode``.  Each class registers
its codec where it is defined; the number is in ``syft.codes``.  A class without a codec is refused:
no default reads attributes, and no class is looked up by a name that arrived.

:func:`check_complete` refuses to start a worker whose tables lack an entry.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from syft.codes import RESERVED, TypeCode, WireCode
from syft.exceptions import (
    LimitExceeded,
    MalformedMessage,
    NotSendable,
    SyftError,
)
from syft.serde.expect import malformed, prepend
from syft.serde.packer import Packer, Unpacker

Operand: TypeAlias = None | bool | int | float | str | bytes | Sequence[Any]
"""A value in a header; a sequence starts with a type code."""

PackValue: TypeAlias = Callable[[Any, Packer], Operand]
UnpackOperand: TypeAlias = Callable[[Sequence[Any], Unpacker], Any]
Admits: TypeAlias = Callable[[type], bool]

_PACK: dict[type, PackValue] = {}
_PACK_SUBCLASS: dict[type, tuple[Admits, PackValue]] = {}
_UNPACK: dict[int, UnpackOperand] = {}
_WRITES: dict[int, PackValue] = {}
_HINTS: dict[type, str] = {}
_CHECKS: list[Callable[[], Iterable[str]]] = []

# Types that are their own operand; integers and texts are checked before they are packed.
_BARE_OUT = frozenset({type(None), bool, float, bytes})
INT_LOW, INT_HIGH = -(2**63), 2**64
_BARE_IN = frozenset({type(None), bool, int, float, str, bytes})

_MAY_TRAVEL = "send tensors, numbers, strings, torch's own values and containers of these"


def register(
    code: WireCode,
    cls: type,
    pack: PackValue,
    unpack: UnpackOperand,
    subclasses: Admits | None = None,
) -> None:
    """Give a class its codec, and the subclasses for which ``subclasses(cls)`` is true.

    ``pack(value, packer)`` returns the operand, ``unpack(operand, unpacker)`` gets the whole
    operand, type code included.  A class or code that has a codec already is refused.

    >>> register(TypeCode.SLICE, int, lambda value, packer: value, lambda operand, unpacker: 0)
    Traceback (most recent call last):
    ...
    syft.exceptions.SyftError: TypeCode.SLICE has a codec already
    """
    register_code(code, pack, unpack)
    register_packer(cls, pack, subclasses)


def register_code(code: WireCode, pack: PackValue, unpack: UnpackOperand) -> None:
    """Give a type code its two functions, and no class: for codes of several classes, or of values
    that another packer tells apart.

    >>> register_code(TypeCode.LIST, lambda value, packer: (3,), lambda operand, unpacker: [])
    Traceback (most recent call last):
    ...
    syft.exceptions.SyftError: TypeCode.LIST has a codec already
    """
    if code in _UNPACK:
        raise SyftError(f"TypeCode.{code.name} has a codec already")
    _WRITES[int(code)] = pack
    _UNPACK[int(code)] = unpack


def register_packer(cls: type, pack: PackValue, subclasses: Admits | None = None) -> None:
    """Give a class its packer alone: for classes that share the type code of another one.

    >>> register_packer(list, lambda value, packer: None)
    Traceback (most recent call last):
    ...
    syft.exceptions.SyftError: list has a codec already
    """
    if cls in _PACK:
        raise SyftError(f"{cls.__qualname__} has a codec already")
    _PACK[cls] = pack
    if subclasses is not None:
        _PACK_SUBCLASS[cls] = (subclasses, pack)


def register_hint(cls: type, instead: str) -> None:
    """Set what the refusal of an instance of ``cls`` or of a subclass tells to do instead.

    >>> register_hint(memoryview, "send bytes(view)")
    Traceback (most recent call last):
    ...
    syft.exceptions.SyftError: memoryview has a hint already
    """
    if cls in _HINTS:
        raise SyftError(f"{cls.__qualname__} has a hint already")
    _HINTS[cls] = instead


def register_check(missing: Callable[[], Iterable[str]]) -> None:
    """Have :func:`missing_entries` ask about one more table: ``missing()`` names what it lacks.

    For tables of the layers above, which serde cannot import.
    """
    _CHECKS.append(missing)


def missing_entries() -> list[str]:
    """Name what is missing in the tables that other modules fill: an empty list if nothing is.

    >>> missing_entries()
    []
    """
    known = _UNPACK.keys() & _WRITES.keys()
    missing = [f"TypeCode.{code.name}" for code in TypeCode if code not in known | RESERVED]
    for check in _CHECKS:
        missing += check()
    return missing


@functools.cache
def check_complete() -> None:
    """Raise :class:`~syft.exceptions.SyftError` if a table lacks an entry; workers call this when
    they start.

    The tables are looked at once in a process; later calls cost a dictionary lookup.

    >>> check_complete()
    """
    missing = missing_entries()
    if missing:
        raise SyftError(
            f"no entry for {', '.join(missing)}: import the modules that register them (import "
            "syft imports all of its own)"
        )


def pack(value: Any, packer: Packer) -> Operand:
    """Turn a value into the operand that stands for it in a header.

    >>> pack((1, slice(2, None)), Packer())
    (2, 1, (7, 2, None, None))
    """
    kind = type(value)
    if kind in _BARE_OUT:
        return value  # type: ignore[no-any-return]
    if kind is int and INT_LOW <= value < INT_HIGH:
        return value  # type: ignore[no-any-return]
    encode = _PACK.get(kind)
    if encode is None:
        encode = _pack_of_subclass(kind)
    return encode(value, packer)


def pack_items(items: Iterable[Any], packer: Packer, *head: int) -> tuple[Operand, ...]:
    """Count and pack the items of a container, one level further down, behind the numbers in
    ``head``.

    >>> pack_items((1, range(2)), Packer(), 2)
    (2, 1, (9, 0, 2, 1))
    """
    depth = packer.depth = packer.depth + 1
    if depth > packer.max_depth:
        raise packer.too_deep()
    operands: list[Operand] = [*head]
    for item in items:
        kind = type(item)
        if kind in _BARE_OUT or kind is int and INT_LOW <= item < INT_HIGH:
            operands.append(item)
        else:
            operands.append(pack(item, packer))
    packer.depth = depth - 1
    packer.items = count = packer.items + len(operands) - len(head)
    if count > packer.max_items:
        raise packer.too_many()
    return tuple(operands)


def _pack_of_subclass(kind: type) -> PackValue:
    """Find the codec of the nearest base class that admits this subclass."""
    for base in kind.__mro__[1:]:
        if base in _PACK_SUBCLASS:
            admits, encode = _PACK_SUBCLASS[base]
            if admits(kind):
                return encode
    raise not_sendable(kind)


def not_sendable(kind: type) -> NotSendable:
    """Make the refusal for an instance of a class without a codec.

    >>> print(not_sendable(memoryview))
    Cannot send a value of type memoryview: send bytes(view).
    """
    for base in kind.__mro__:
        if base in _HINTS:
            return NotSendable(_type_name(kind), _HINTS[base])
    return NotSendable(_type_name(kind), _MAY_TRAVEL)


def _type_name(kind: type) -> str:
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"a value of type {module}{kind.__qualname__}"


def unpack(operand: Any, unpacker: Unpacker) -> Any:
    """Turn an operand back into the value it stands for.

    >>> unpack([2, 1, [7, 2, None, None]], Unpacker([]))
    (1, slice(2, None, None))
    """
    kind = type(operand)
    if kind in _BARE_IN:
        return operand
    if (kind is not list and kind is not tuple) or not operand:
        raise malformed("a value headed by a type code", operand)
    code = operand[0]
    if type(code) is not int:
        raise malformed("a type code", code, "[head]")
    decode = _UNPACK.get(code)
    if decode is None:
        raise MalformedMessage("$[head]", "a type code that is known here", f"code {code}")
    unpacker.depth += 1
    if unpacker.depth > unpacker.max_depth:
        raise LimitExceeded("$", "max_depth", unpacker.max_depth, unpacker.depth)
    value = decode(operand, unpacker)
    unpacker.depth -= 1
    return value


def unpack_at(operand: Any, unpacker: Unpacker, piece: str) -> Any:
    """Unpack a field, with ``piece`` (such as ``".step"``) in the path of what goes wrong.

    >>> unpack_at([7], Unpacker([]), ".index")
    Traceback (most recent call last):
    ...
    syft.exceptions.MalformedMessage: Malformed message at $.index: expected 3 fields after \
type code 7, got 0.
    """
    try:
        return unpack(operand, unpacker)
    except (MalformedMessage, LimitExceeded) as error:
        prepend(error, piece)
        raise


def unpack_items(items: Sequence[Any], unpacker: Unpacker) -> list[Any]:
    """Count and unpack the items of a container; a path gets the ``[index]`` of the item.

    >>> unpack_items([1, [3, 2.5]], Unpacker([]))
    [1, [2.5]]
    """
    unpacker.items = count = unpacker.items + len(items)
    if count > unpacker.max_items:
        raise LimitExceeded("$", "max_items", unpacker.max_items, count)
    values: list[Any] = []
    try:
        for item in items:
            values.append(item if type(item) in _BARE_IN else unpack(item, unpacker))
    except (MalformedMessage, LimitExceeded) as error:
        prepend(error, f"[{len(values)}]")
        raise
    return values
