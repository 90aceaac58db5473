"""Exceptions come back as the class they were, or as the nearest one that has a number."""

from __future__ import annotations

import builtins
import inspect
import zipfile
from typing import Any

import pytest
import torch

import syft.exceptions
from syft.exceptions import LimitExceeded, MalformedMessage, NotSendable, RemoteFailure
from syft.serde import Limits, Packer, Unpacker, decode_header, encode_header
from syft.serde.errors import ERRORS, HIDDEN_TEXT, pack_error, unpack_error
from tests.serde.samples import same

SYFT_ERRORS = [
    cls
    for _, cls in inspect.getmembers(syft.exceptions, inspect.isclass)
    if cls.__module__ == "syft.exceptions" and not issubclass(cls, Warning)
]


def crossed(error: BaseException, **options: Any) -> Exception:
    """Return the exception after a way over the wire."""
    return traced(error, **options)[0]


def traced(error: BaseException, **options: Any) -> tuple[Exception, str | None]:
    """Return the exception after a way over the wire, and its traceback."""
    packer = Packer()
    header = encode_header(pack_error(error, packer, **options))
    assert packer.buffers == []
    return unpack_error(decode_header(header), Unpacker([]))


def test_every_class_of_syft_has_a_number() -> None:
    assert set(SYFT_ERRORS) <= set(ERRORS.values())


def test_every_builtin_exception_has_a_number() -> None:
    found = {value for value in vars(builtins).values() if isinstance(value, type)}
    found = {cls for cls in found if issubclass(cls, Exception)}
    assert found <= set(ERRORS.values())


@pytest.mark.parametrize("cls", ERRORS.values(), ids=lambda cls: cls.__name__)
def test_every_class_comes_back_as_itself(cls: type[Exception]) -> None:
    error = make(cls)
    again = crossed(error)
    assert type(again) is cls and same(again.args, error.args) and str(again) == str(error)


def make(cls: type[Exception]) -> Exception:
    """Make an error of a class with plausible arguments."""
    if cls is UnicodeDecodeError:
        return UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
    if cls is UnicodeEncodeError:
        return UnicodeEncodeError("ascii", "é", 0, 1, "ordinal not in range(128)")
    if cls is UnicodeTranslateError:
        return UnicodeTranslateError("é", 0, 1, "no")
    if cls is ExceptionGroup:
        return ExceptionGroup("two", [ValueError("a"), KeyError("b")])
    if issubclass(cls, SyntaxError):
        return cls("bad", ("file.py", 3, 1, "x = = 1"))
    names = list(inspect.signature(cls.__init__).parameters.values())[1:]
    if cls in SYFT_ERRORS and names and names[0].name != "args":
        names_of_two = ("alice", "bob")
        kinds = {"int": 7, "float": 7.5, "bool": True, "tuple[str, ...]": names_of_two}
        return cls(*[kinds.get(str(parameter.annotation), "text") for parameter in names])
    return cls("text", 3)


def test_what_an_error_keeps() -> None:
    again = crossed(FileNotFoundError(2, "No such file", "data.csv"))
    assert isinstance(again, FileNotFoundError) and again.filename == "data.csv"
    assert str(again) == "[Errno 2] No such file: 'data.csv'"
    assert crossed(StopIteration(5)).value == 5  # type: ignore[attr-defined]
    syntax = SyntaxError("bad", ("file.py", 3, 1, "x = = 1"))
    assert crossed(syntax).lineno == 3  # type: ignore[attr-defined]
    key = crossed(KeyError((1, "a")))
    assert key.args == ((1, "a"),)
    noted = ValueError("x")
    noted.add_note("look here")
    assert crossed(noted).__notes__ == ["look here"]
    vars(noted)["__notes__"] = "no list"
    assert not hasattr(crossed(noted), "__notes__")


def test_members_of_a_group_come_back_too() -> None:
    again = crossed(ExceptionGroup("two", [ValueError("a"), zipfile.BadZipFile("b")]))
    assert isinstance(again, ExceptionGroup)
    assert [type(error) for error in again.exceptions] == [ValueError, RemoteFailure]


def raised(depth: int = 3) -> Exception:
    """Return an exception that has a traceback."""
    try:
        dict[str, int]()["missing" * depth]
    except KeyError as error:
        return error
    raise AssertionError


def test_the_traceback_travels_as_text() -> None:
    error, trace = traced(raised())
    assert type(error) is KeyError and trace is not None
    assert trace.startswith("Traceback (most recent call last)") and "in raised" in trace
    assert traced(KeyError("fresh"))[1] is None
    assert traced(raised(), trace="told otherwise")[1] == "told otherwise"
    long = traced(raised(), trace="x" * 10**6 + "end")[1]
    assert long is not None and len(long) == 2**16 and long.endswith("end")


@pytest.mark.parametrize("cause", [True, False])
def test_what_was_handled_when_an_error_was_raised_does_not_travel(cause: bool) -> None:
    """Its text may quote a value, and nobody has asked whether that may be seen."""
    try:
        try:
            raise StopIteration(torch.tensor([41.5]))
        except StopIteration as ended:
            raise KeyError("here") from (ended if cause else None)
    except KeyError as error:
        error.__suppress_context__ = False
        packed = pack_error(error, Packer())
    assert "here" in packed[3] and "41.5" not in repr(packed) and "StopIteration" not in packed[3]


def test_the_traceback_of_an_error_as_a_value_is_a_note() -> None:
    again = crossed(ExceptionGroup("one", [raised()]))
    assert isinstance(again, ExceptionGroup)
    assert "in raised" in again.exceptions[0].__notes__[0]


class Special(LookupError):
    """A class that the other side does not have."""


class Worded(LookupError):
    """A class with its own text."""

    def __str__(self) -> str:
        return f"worded: {self.args}"


class Mute(LookupError):
    """A class whose text cannot be made."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_a_class_without_a_number_becomes_its_nearest_base() -> None:
    again = crossed(Special("a", 2))
    assert type(again) is LookupError and again.args == ("a", 2)
    assert crossed(Worded(1)).args == ("worded: (1,)",)
    assert crossed(Mute(1)).args == ("<exception str() failed>",)


def test_a_class_with_nothing_in_common_becomes_a_remote_failure() -> None:
    again = crossed(zipfile.BadZipFile("truncated"))
    assert same(again.args, RemoteFailure("zipfile.BadZipFile", "truncated").args)
    assert type(again) is RemoteFailure
    again = crossed(KeyboardInterrupt("stop"))
    assert str(again) == "KeyboardInterrupt: stop"


@pytest.mark.parametrize("argument", [torch.ones(2), object(), [torch.ones(1)], lambda: None])
def test_arguments_that_cannot_travel_become_text(argument: Any) -> None:
    again = crossed(ValueError("bad", argument))
    text = str(ValueError("bad", argument))
    assert again.args == (text.replace(f"{id(argument):#x}", "0x..."),)


def test_strings_that_are_no_unicode_survive() -> None:
    assert crossed(ValueError("a\ud800")).args == ("a\ud800",)
    assert str(crossed(zipfile.BadZipFile("a\ud800"))) == "zipfile.BadZipFile: a\ud800"


def test_hidden_errors_say_nothing_but_their_class() -> None:
    secret = ValueError("the salary is 4217")
    secret.add_note("4217")
    for error in (secret, zipfile.BadZipFile("4217"), raised(4217), NotSendable("4217", "4217")):
        operand = pack_error(error, Packer(), hidden=True)
        assert "4217" not in str(operand) and "missing" not in str(operand)
    again, trace = traced(secret, hidden=True)
    assert type(again) is ValueError and str(again) == HIDDEN_TEXT and trace is None
    assert (
        str(crossed(zipfile.BadZipFile("x"), hidden=True)) == f"zipfile.BadZipFile: {HIDDEN_TEXT}"
    )
    made = crossed(NotSendable("x", "y"), hidden=True)
    assert str(made) == f"syft.exceptions.NotSendable: {HIDDEN_TEXT}"


@pytest.mark.parametrize(
    ("code", "arguments", "text"),
    [
        (30, [1], "UnicodeDecodeError: 1"),
        (30, ["utf-8", b"", 2**63, 1, "x"], f"UnicodeDecodeError: utf-8, b'', {2**63}, 1, x"),
        (130, ["a", "b", 3], "syft.exceptions.UnknownWorker: a, b, 3"),
        (130, ["a", "b", [3, 4]], "syft.exceptions.UnknownWorker: a, b, [4]"),
        (26, ["bad", [2, 1]], "SyntaxError: bad, (1,)"),
        (26, ["bad", [2]], "SyntaxError: bad, ()"),
        (49, ["group", [3]], "ExceptionGroup: group, []"),
        (150, [], "syft.exceptions.LimitExceeded: "),
    ],
    ids=repr,
)
def test_arguments_that_a_class_refuses(code: int, arguments: list[Any], text: str) -> None:
    error, _ = unpack_error([29, code, arguments, None, []], Unpacker([]))
    assert type(error) is RemoteFailure and str(error) == text


@pytest.mark.parametrize(
    ("operand", "text"),
    [
        (None, "$: expected an exception, got nil"),
        ([], "$: expected an exception, got an array of 0"),
        ([2, 1], "$: expected an exception, got an array of 2"),
        ([29, 1, []], "$: expected 4 fields after type code 29, got 2"),
        ([29, 99, [], None, []], "$.class: expected a exception class that this torch has"),
        ([29, 1, 3, None, []], "$.args: expected an array, got an int"),
        ([29, 1, [[99]], None, []], "$.args[0][head]: expected a type code that is known"),
        ([29, 1, [], 3, []], "$.traceback: expected a text, got an int"),
        ([29, 1, [], 0, []], "$.traceback: expected a text, got an int"),
        ([29, 1, [], None, None], "$.notes: expected an array, got nil"),
        ([29, 1, [], None, [3]], "$.notes: expected a text, got an int"),
    ],
    ids=repr,
)
def test_malformed(operand: Any, text: str) -> None:
    with pytest.raises(MalformedMessage) as caught:
        unpack_error(operand, Unpacker([]))
    assert str(caught.value).startswith(f"Malformed message at {text}")


def test_long_texts_are_refused() -> None:
    for operand in ([29, 1, [], "xxxx", []], [29, 1, [], None, ["xxxx"]]):
        with pytest.raises(LimitExceeded, match="max_text is 3, got 4"):
            unpack_error(operand, Unpacker([], Limits(max_text=3)))


class Unnamed:
    """An object whose text is its address."""


class Foreign(Exception):
    """An error of no class that can travel."""


@pytest.mark.parametrize("cls", [ValueError, KeyError, Foreign])
def test_addresses_are_not_sent(cls: type[Exception]) -> None:
    thing = Unnamed()
    address = f"{id(thing):x}"
    try:
        raise cls(f"not with {thing!r}")
    except cls as error:
        error.add_note(repr(thing))
        assert address in repr(error)
        again, trace = traced(error)
        whole, _ = traced(error, trace=repr(thing))
    assert "0x..." in str(again) and trace is not None and "0x..." in trace
    shown = [str(again), trace, *again.__notes__, *whole.__notes__]
    assert not any(address in text for text in shown)


def test_the_frames_in_a_text_of_torch_are_not_sent() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.ops.aten.upsample_bilinear2d(torch.ones(3), torch.tensor(1.0))
    assert __file__ in str(raised.value), "torch lists the frames of its caller"
    again = str(crossed(RuntimeError(str(raised.value))))
    assert __file__ not in again and "_ops.py" not in again
    assert "Expected a value of type" in again and "iteration over a 0-d tensor" in again


def test_small_hexadecimal_numbers_are_sent() -> None:
    assert crossed(ValueError("flags are 0x1f", 0x7F0000000000)).args == (
        "flags are 0x1f",
        0x7F0000000000,
    )
