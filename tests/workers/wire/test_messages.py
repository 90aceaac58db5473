"""Messages: frozen records that travel as tuples, and are checked while they are decoded."""

from __future__ import annotations

from typing import get_args

import msgpack
import msgspec
import pytest

from syft.codes import MessageCode
from syft.exceptions import LimitExceeded, MalformedMessage
from syft.workers.wire import messages
from syft.workers.core.state_machine import WorkerCore
from tests.workers.samples import SAMPLES

REQUESTS, REPLIES = get_args(messages.Request), get_args(messages.Reply)


def test_every_number_has_one_message_one_sample_and_one_handler() -> None:
    kinds = {kind.__struct_config__.tag: kind for kind in messages.Message.__subclasses__()}
    assert sorted(kinds) == sorted(int(code) for code in MessageCode)
    assert sorted(type(sample).__name__ for sample in SAMPLES) == sorted(
        kind.__name__ for kind in kinds.values()
    )
    assert {*REQUESTS, *REPLIES} == set(kinds.values()) and not {*REQUESTS} & {*REPLIES}
    assert set(WorkerCore.handlers) == set(REQUESTS)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_a_request_is_no_reply_and_a_reply_is_no_request(sample: messages.Message) -> None:
    header = messages.encode(sample)
    right, wrong = messages.read_request, messages.read_reply
    if type(sample) in REPLIES:
        right, wrong = wrong, right
    assert messages.encode(right(header)) == header
    with pytest.raises(messages.UNREADABLE):
        wrong(header)


def test_what_waits_for_an_answer_counts_the_failures_before_it() -> None:
    """The field comes last, so that an older message, which lacks it, reads as one without it."""
    questions = {kind for kind in REQUESTS if "failures" in kind.__struct_fields__}
    others = {messages.Drop, messages.Start, messages.Exchange, messages.Abort, messages.Cancel}
    others |= {messages.Await, messages.ClearGradients, messages.Share}
    assert questions == set(REQUESTS) - others
    for sample in SAMPLES:
        if type(sample) not in questions:
            assert type(sample).failures is None
            continue
        assert type(sample).__struct_fields__[-1] == "failures" and sample.failures == 0
        fields = msgpack.unpackb(messages.encode(sample))
        assert messages.decode(msgpack.packb(fields[:-1])).failures is None


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_a_message_comes_back_as_it_was(sample: messages.Message) -> None:
    header = messages.encode(sample)
    decoded = messages.decode(header)
    assert type(decoded) is type(sample)
    assert messages.encode(decoded) == header
    assert msgpack.unpackb(header)[0] == type(sample).__struct_config__.tag
    with pytest.raises(AttributeError):
        setattr(decoded, (*type(sample).__struct_fields__, "seq")[0], 5)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_every_field_is_checked(sample: messages.Message) -> None:
    tag, *fields = msgpack.unpackb(messages.encode(sample))
    untyped = {"value", "error", "define"}
    for index, name in enumerate(type(sample).__struct_fields__):
        if name in untyped or (type(sample) is messages.Convert and name == "args"):
            continue
        for wrong in (
            1.5,
            {"a": [1]},
            [[None]] if name not in ("args", "autocast", "inputs", "values") else "x",
        ):
            broken = [*fields[:index], wrong, *fields[index + 1 :]]
            if name == "kwargs" and isinstance(wrong, dict):
                continue
            with pytest.raises(MalformedMessage, match=rf"\$\[{index + 1}\]"):
                messages.decode(msgpack.packb([tag, *broken]))
        assert messages.decode(msgpack.packb([tag, *fields]))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_fields_that_a_later_version_adds_are_ignored(sample: messages.Message) -> None:
    fields = msgpack.unpackb(messages.encode(sample))
    later = messages.decode(msgpack.packb([*fields, {"more": [1]}, None]))
    assert messages.encode(later) == messages.encode(sample)


def test_a_cut_message_is_refused_at_every_length() -> None:
    for sample in SAMPLES:
        header = messages.encode(sample)
        for length in range(len(header)):
            with pytest.raises(MalformedMessage):
                messages.decode(header[:length])
        with pytest.raises(MalformedMessage):
            messages.decode(header + b"\x00")


@pytest.mark.parametrize(
    "header, path, expected",
    [
        (b"", "$", "a MessagePack message"),
        (b"\xc1", "$", "a MessagePack message"),
        (b"\xc0", "$", "`array`"),
        (b"\x90", "$", "`array` of at least length 1"),
        (msgpack.packb(["x"]), "$[0]", "`int`"),
        (msgpack.packb([99, 1]), "$[0]", "Invalid value 99"),
        (msgpack.packb([-1, 1]), "$[0]", "Invalid value -1"),
        (msgpack.packb([int(MessageCode.DONE)]), "$", "`array` of at least length 2"),
        (msgpack.packb([int(MessageCode.SEARCH), 1, [b"#"]]), "$[2][0]", "`str`"),
        (b"\x93\x07\x01\x91\xa1\xff", "$", "UTF-8"),
        (msgpack.packb([int(MessageCode.DROP), 1, [2**64 - 1, "a"]]), "$[2][1]", "`int`"),
    ],
)
def test_what_is_wrong_is_named_with_its_path(header: bytes, path: str, expected: str) -> None:
    with pytest.raises(MalformedMessage) as raised:
        messages.decode(header)
    assert raised.value.path == path
    assert expected in str(raised.value)


def test_nesting_too_deep_to_decode_is_a_limit() -> None:
    deep = b"\x93\x21\x01" + b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(LimitExceeded, match="max_depth"):
        messages.decode(deep)


def test_an_error_of_msgspec_without_a_path_is_about_the_whole() -> None:
    error = messages._malformed("Something went wrong")
    assert (error.path, error.expected, error.got) == (
        "$",
        "Something went wrong",
        "something else",
    )
    assert isinstance(msgspec.ValidationError(), msgspec.DecodeError)
