"""Exceptions as operands: the class by number, its arguments, and the text of its traceback.

An exception arrives as an instance of its own class, so that ``except ObjectNotFound`` works
across machines.  A class without a number arrives as its nearest base class that has one; if that
is only ``Exception``, as a ``RemoteFailure`` that names the class.  Unpacking calls only the
constructors of the classes in the table below, with arguments that were packed like any value.

``hidden`` is for errors about private data: texts, arguments and tracebacks can contain values, so
only the class is sent.

Addresses of Python objects, which some texts quote, are never sent: they tell what else a process
does, and differ between processes that do the same.  Nor are the errors that were being handled
when this one was raised: whether a text may be sent is asked of one error, and a generator that has
ended with a private result is an error too.  Nor are the frames that torch adds to the text of an
error about wrong arguments: they are those of the traceback.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence
from traceback import TracebackException
from typing import Any

import torch

import syft.exceptions as exceptions
from syft.codes import ErrorCode, TypeCode
from syft.exceptions import LimitExceeded, MalformedMessage, NotSendable, RemoteFailure
from syft.serde.expect import expect_fields, expect_type, malformed, prepend
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, pack, pack_items, register, unpack_at, unpack_items
from syft.serde.torch_types import lookup

HIDDEN_TEXT = "the details are hidden, because the data is private"
"""What is sent of an error about private data, besides its class."""

_ADDRESS = re.compile("0x[0-9a-f]{6,16}")
_NO_ADDRESS = "0x..."
_FRAMES = re.compile(r"\n+At:\n(?:  .*\(\d+\): .*(?:\n|$))+")

_TORCH_ERRORS: tuple[type, ...] = (
    torch.OutOfMemoryError,
    torch.linalg.LinAlgError,  # type: ignore[attr-defined]
    torch.AcceleratorError,
)


def _classes() -> dict[int, type[Exception]]:
    """Pair each code with the class of the same name, underscores and case aside."""
    known = {name: value for space in (builtins, exceptions) for name, value in vars(space).items()}
    known.update({cls.__name__.lstrip("_"): cls for cls in _TORCH_ERRORS})
    lowered = {name.lower(): value for name, value in known.items()}
    return {int(code): lowered[code.name.replace("_", "").lower()] for code in ErrorCode}


ERRORS = _classes()
"""Number to exception class."""
_NUMBERS = {cls: number for number, cls in ERRORS.items()}


def pack_error(
    error: BaseException, packer: Packer, trace: str | None = None, hidden: bool = False
) -> tuple[Any, ...]:
    """Pack an exception with its arguments, traceback and notes; ``hidden``: its class alone.

    ``trace`` is sent instead of the exception's own traceback.  If an argument cannot travel, or
    would need a tensor buffer, the error's text is sent in place of all arguments.

    >>> pack_error(IndexError("too far"), Packer())
    (29, 4, ('too far',), None, ())
    >>> pack_error(IndexError("too far"), Packer(), hidden=True)
    (29, 4, ('the details are hidden, because the data is private',), None, ())
    """
    cls = next((base for base in type(error).__mro__ if base in _NUMBERS), Exception)
    foreign = cls is Exception and type(error) is not Exception
    if foreign:
        cls = RemoteFailure
    head = (int(TypeCode.EXCEPTION), _NUMBERS[cls])
    if hidden:
        hint = (_name(type(error)), HIDDEN_TEXT) if foreign else (HIDDEN_TEXT,)
        return (*head, hint, None, ())
    whole = TracebackException.from_exception(error)
    text = _cleaned(str(whole))
    if foreign:
        arguments: tuple[Operand, ...] = (_name(type(error)), pack(text, packer))
    else:
        given = tuple(map(_cleaned, _arguments(error, cls, text)))
        arguments = _pack_arguments(given, text, packer)
    if trace is None and error.__traceback__ is not None:
        trace = "".join(whole.format(chain=False))
    return (*head, arguments, *_pack_texts(trace, _notes(error), packer))


def _pack_texts(trace: str | None, notes: Sequence[Any], packer: Packer) -> tuple[Operand, Operand]:
    """The traceback (its end, where the error is) and the notes, cut to the limit for texts."""
    most = packer.limits.max_text
    sent = None if trace is None else pack(_cleaned(trace)[-most:], packer)
    texts = (_cleaned(str(note))[:most] for note in notes)
    return sent, tuple(pack(text, packer) for text in texts)


def _cleaned(value: Any) -> Any:
    """A text without addresses and frames."""
    if not isinstance(value, str):
        return value
    return _FRAMES.sub("", _ADDRESS.sub(_NO_ADDRESS, value))


def _name(cls: type) -> str:
    return (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )


def _notes(error: BaseException) -> Sequence[Any]:
    notes = getattr(error, "__notes__", ())
    return notes if isinstance(notes, list | tuple) else ()


def _arguments(error: BaseException, cls: type, text: str) -> tuple[Any, ...]:
    """Return the arguments with which ``cls`` makes an error of the same text."""
    if isinstance(error, OSError) and error.filename is not None and len(error.args) == 2:
        # The constructor takes the file's name, which is not in ``args``.
        return (*error.args, error.filename)
    if type(error) is cls or type(error).__str__ is cls.__str__:  # type: ignore[comparison-overlap]
        return error.args
    return (text,)


def _pack_arguments(arguments: tuple[Any, ...], text: str, packer: Packer) -> tuple[Operand, ...]:
    # A packer of its own, so that a failure halfway leaves nothing in the message.
    own = Packer(packer.worker, packer.destination, packer.limits)
    own.depth = packer.depth
    try:
        operands = pack_items(arguments, own)
    except NotSendable:
        return (pack(text, packer),)
    return (pack(text, packer),) if own.buffers else operands


def unpack_error(operand: Any, unpacker: Unpacker) -> tuple[Exception, str | None]:
    """Rebuild an exception; returns it with the text of its traceback, if that was sent.

    >>> unpack_error(pack_error(KeyError("x"), Packer()), Unpacker([]))
    (KeyError('x'), None)
    """
    expect_type(operand, (list, tuple), "an exception", "")
    if not operand or operand[0] != TypeCode.EXCEPTION:
        raise malformed("an exception", operand)
    expect_fields(operand, 4)
    cls = lookup(ERRORS, operand[1], "exception class", ".class")
    arguments = _unpack_field(operand[2], unpacker, ".args")
    trace = unpack_at(operand[3], unpacker, ".traceback")
    notes = _unpack_field(operand[4], unpacker, ".notes")
    for note in notes:
        _expect_text(note, unpacker, ".notes")
    if trace is not None:
        _expect_text(trace, unpacker, ".traceback")
    error = _rebuild(cls, arguments)
    for note in notes:
        error.add_note(note)
    return error, trace


def _expect_text(value: Any, unpacker: Unpacker, where: str) -> None:
    most = unpacker.limits.max_text
    if len(expect_type(value, str, "a text", where)) > most:
        raise LimitExceeded(f"${where}", "max_text", most, len(value))


def _unpack_field(items: Any, unpacker: Unpacker, piece: str) -> list[Any]:
    expect_type(items, (list, tuple), "an array", piece)
    try:
        return unpack_items(items, unpacker)
    except (MalformedMessage, LimitExceeded) as error:
        prepend(error, piece)
        raise


def _rebuild(cls: type[Exception], arguments: list[Any]) -> Exception:
    try:
        error = cls(*arguments)
        text = str(error)
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError):
        # The class refuses these arguments, or cannot show them.
        text = ", ".join(str(argument) for argument in arguments)
        return RemoteFailure(_name(cls), text)
    return error


def _unpack_value(operand: Sequence[Any], unpacker: Unpacker) -> Exception:
    error, trace = unpack_error(operand, unpacker)
    if trace is not None:
        error.add_note(trace.rstrip())
    return error


register(TypeCode.EXCEPTION, Exception, pack_error, _unpack_value, lambda kind: True)
