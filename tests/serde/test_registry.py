"""Every type code has a codec and a sample; the registry refuses what it does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
import torch

from syft.codes import ConversionCode, TypeCode
from syft.exceptions import LimitExceeded, MalformedMessage, NotSendable, SyftError
from syft.serde import (
    Limits,
    Packer,
    Unpacker,
    decode_header,
    deserialize,
    encode_header,
    pack,
    register,
    register_code,
    register_hint,
    register_packer,
    serialize,
    unpack,
    unpack_at,
)
from syft.serde import registry
from syft.serde.registry import check_complete, missing_entries
from syft.tensors import conversions
from syft.tensors.fixed.fixed_link import FALLBACK, FixedPrecisionTensor
from syft.tensors.pointer import PointerTensor
from tests.serde.samples import ABOVE_SERDE, SAMPLES, same

CASES = [
    pytest.param(make, id=f"{code.name}-{index}")
    for code, makers in SAMPLES.items()
    for index, make in enumerate(makers)
]


def test_every_code_has_a_codec_and_every_code_of_serde_a_sample() -> None:
    assert set(SAMPLES) | ABOVE_SERDE == set(TypeCode)
    assert not set(SAMPLES) & ABOVE_SERDE
    assert missing_entries() == []


@pytest.mark.parametrize("table", [registry._UNPACK, registry._WRITES])
def test_a_worker_does_not_start_without_a_codec(
    monkeypatch: pytest.MonkeyPatch, table: dict[int, Any]
) -> None:
    check_complete()
    monkeypatch.delitem(table, int(TypeCode.SLICE))
    assert missing_entries() == ["TypeCode.SLICE"]
    check_complete()  # it looked once, when it started
    check_complete.cache_clear()
    for _ in range(2):
        with pytest.raises(SyftError) as caught:
            check_complete()
        assert str(caught.value) == (
            "no entry for TypeCode.SLICE: import the modules that register them (import syft "
            "imports all of its own)"
        )


def test_tables_of_the_layers_above_are_asked_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(conversions.CONVERSIONS, int(ConversionCode.FIX_PRECISION))
    monkeypatch.delitem(FixedPrecisionTensor.rules, FALLBACK)
    assert sorted(missing_entries()) == [
        "conversion FIX_PRECISION",
        "the rules of syft.tensors.fixed.fallback",
    ]


def test_rules_without_effect_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PointerTensor.rules, print, print)
    assert missing_entries() == [f"a number for {print}"]
    monkeypatch.undo()
    pooling = "syft.tensors.fixed.rules.pooling"
    kept = {op: f for op, f in FixedPrecisionTensor.rules.items() if f.__module__ != pooling}
    monkeypatch.setattr(FixedPrecisionTensor, "rules", kept)
    assert missing_entries() == [f"the rules of {pooling}"]


@pytest.mark.parametrize("make", CASES)
@pytest.mark.parametrize("owns", [True, False], ids=["owned", "copied"])
def test_round_trip_in_steps(make: Callable[[], Any], owns: bool) -> None:
    value = make()
    packer = Packer(gradients=True)
    header = encode_header(pack(value, packer))
    unpacker = Unpacker(packer.buffers, owns_buffers=owns)
    assert same(value, unpack(decode_header(header), unpacker))
    unpacker.finish()


@pytest.mark.parametrize("make", CASES)
def test_round_trip_of_bytes(make: Callable[[], Any]) -> None:
    value = make()
    assert same(value, deserialize(serialize(value)))
    assert same(value, deserialize(bytes(serialize(value))))


@pytest.mark.parametrize("make", CASES)
def test_msgpack_package_sees_the_same_tuples(make: Callable[[], Any]) -> None:
    operand = pack(make(), Packer())
    seen = msgpack.unpackb(encode_header(operand), use_list=False, strict_map_key=True)
    assert same(seen, operand)
    assert msgpack.packb(operand) == encode_header(operand)


@pytest.mark.parametrize("make", CASES)
def test_the_code_of_a_sample_is_its_own(make: Callable[[], Any], request: Any) -> None:
    operand = pack(make(), Packer())
    assert isinstance(operand, tuple)
    assert TypeCode(operand[0]).name == request.node.callspec.id.split("-")[0]
    assert type(operand[0]) is int


class Secret:
    """A class without a codec, whose repr must not appear in any error."""

    def __repr__(self) -> str:
        return "hunter2"


class StrangeTensor(torch.Tensor):
    """A tensor subclass that nobody registered."""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            Secret(),
            "Cannot send a value of type tests.serde.test_registry.Secret: send tensors, numbers, "
            "strings, torch's own values and containers of these.",
        ),
        (
            torch.ones(1).as_subclass(StrangeTensor),
            "Cannot send a value of type tests.serde.test_registry.StrangeTensor: this subclass of "
            "torch.Tensor has no codec; send x.as_subclass(torch.Tensor).",
        ),
        (
            torch.nn.Linear(1, 1),
            "Cannot send a value of type torch.nn.modules.linear.Linear: use module.send(worker), "
            "or send its state_dict().",
        ),
        (
            torch.nn.UninitializedParameter(),
            "Cannot send a value of type torch.nn.parameter.UninitializedParameter: run the lazy "
            "module once, so that it has a shape.",
        ),
        (memoryview(b"x"), "Cannot send a value of type memoryview: send bytes(view)."),
    ],
)
def test_values_outside_are_refused_by_type(value: Any, text: str) -> None:
    with pytest.raises(NotSendable) as caught:
        pack([value], Packer())
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("operand", "text"),
    [
        ([], "at $.args: expected a value headed by a type code, got an array of 0."),
        ({1: 2}, "at $.args: expected a value headed by a type code, got a map."),
        ([True, 1], "at $.args[head]: expected a type code, got a bool."),
        ([None], "at $.args[head]: expected a type code, got nil."),
        ([[2]], "at $.args[head]: expected a type code, got an array of 1."),
        ([2, 1, [3, [99]]], "at $.args[1][0][head]: expected a type code that is known here, got "),
        ([2, [7, 0, [2, 5, [200]], 1]], "at $.args[0][1][1][head]: expected a type code that is "),
    ],
)
def test_paths_of_malformed_operands(operand: Any, text: str) -> None:
    with pytest.raises(MalformedMessage) as caught:
        unpack_at(operand, Unpacker([]), ".args")
    assert str(caught.value).startswith(f"Malformed message {text}")
    assert caught.value.args[0] == caught.value.path


def test_nothing_is_registered_twice() -> None:
    nothing: Any = None
    with pytest.raises(SyftError, match=r"^TypeCode.SLICE has a codec already$"):
        register(TypeCode.SLICE, Secret, nothing, nothing)
    with pytest.raises(SyftError, match=r"^TypeCode.SLICE has a codec already$"):
        register_code(TypeCode.SLICE, nothing, nothing)
    with pytest.raises(SyftError, match=r"^list has a codec already$"):
        register_packer(list, nothing)
    with pytest.raises(SyftError, match=r"^memoryview has a hint already$"):
        register_hint(memoryview, "other words")
    assert pack([slice(1)], Packer()) == (3, (7, None, 1, None))


def nested(levels: int) -> Any:
    """Return a list in a list in a list …"""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_depth_is_limited_on_both_sides() -> None:
    assert deserialize(serialize(nested(64))) == nested(64)
    with pytest.raises(NotSendable, match="nested more than 64 levels deep"):
        serialize(nested(65))
    with pytest.raises(LimitExceeded) as caught:
        deserialize(serialize(nested(4)), Limits(max_depth=3))
    assert caught.value.args == ("$[0][0][0]", "max_depth", 3, 4)


def test_a_container_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(NotSendable, match="no container holds itself"):
        serialize(value)


def test_items_are_limited_over_all_containers() -> None:
    value = [(1, 2), {3: 4}]
    assert deserialize(serialize(value), Limits(max_items=6)) == value
    with pytest.raises(LimitExceeded) as caught:
        deserialize(serialize(value), Limits(max_items=5))
    assert caught.value.args == ("$[1]", "max_items", 5, 6)


def test_a_sender_counts_items_as_the_receiver_does() -> None:
    value = [(1, 2), {3: 4}, torch.Size([1])]
    operand = pack(value, Packer(limits=Limits(max_items=8)))
    assert unpack(operand, Unpacker([], Limits(max_items=8))) == value
    with pytest.raises(NotSendable, match="more than 7 items: send it in parts"):
        pack(value, Packer(limits=Limits(max_items=7)))
    with pytest.raises(LimitExceeded):
        unpack(operand, Unpacker([], Limits(max_items=7)))


def test_what_is_small_in_memory_and_large_written_down_is_refused() -> None:
    value: Any = (1, 2)
    for _ in range(40):
        value = (value, value)
    with pytest.raises(NotSendable, match="more than 1048576 items"):
        serialize(value)


def test_depth_and_items_start_again_for_siblings() -> None:
    assert deserialize(serialize([[[1]], [[2]], [[3]]]), Limits(max_depth=3)) == [
        [[1]],
        [[2]],
        [[3]],
    ]
