"""Every dtype, layout, named tuple and enumeration of the installed torch has a number, or is
refused by name, if that torch is newer than the tables."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from syft.codes import (
    NAMED_TUPLES,
    DeviceCode,
    DTypeCode,
    LayoutCode,
    MemoryFormatCode,
    QSchemeCode,
)
from syft.exceptions import MalformedMessage, NotSendable, SyftError
from syft.serde import Packer, Unpacker, deserialize, pack, serialize, unpack
from syft.serde.tensors.strided import SIZES
from syft.torch_private import MKLDNN
from syft.serde.torch_types import DTYPES, MEMORY_FORMATS, QSCHEMES, device_of
from tests.serde.samples import same


def in_torch(kind: type) -> set[Any]:
    """Return torch's objects of a kind."""
    return {value for value in vars(torch).values() if isinstance(value, kind)}


NEWEST_KNOWN = (2, 13)
"""The torch all of whose objects have numbers; what a newer one adds is refused by name."""

NEWER = tuple(int(part) for part in torch.__version__.split(".")[:2]) > NEWEST_KNOWN


@pytest.mark.filterwarnings("ignore:BComplex32 support is experimental:UserWarning")
@pytest.mark.parametrize(
    "kind, table",
    [(torch.dtype, DTYPES), (torch.memory_format, MEMORY_FORMATS), (torch.qscheme, QSCHEMES)],
)
def test_every_one_of_a_kind_travels(kind: type, table: dict[int, Any]) -> None:
    values = in_torch(kind)
    assert len(values) > 3
    for value in values:
        if value in table.values() or not NEWER:
            assert deserialize(serialize(value)) is value
        else:
            refused_by_name(kind.__name__, value)


def refused_by_name(what: str, value: Any) -> None:
    """Check that an object without a number is refused, and a tensor of such a dtype."""
    refused = pytest.raises(NotSendable, match=f"the {what} {value}: use another {what}")
    with refused:
        serialize(value)
    if isinstance(value, torch.dtype):
        with refused:
            serialize(torch.zeros(2, dtype=value))


def test_a_dtype_without_a_number_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(SIZES, torch.bfloat16)
    with pytest.raises(NotSendable, match="the dtype torch.bfloat16: use another dtype"):
        serialize(torch.zeros(2, dtype=torch.bfloat16))


def test_every_layout_but_mkldnn_travels() -> None:
    for layout in in_torch(torch.layout) - {MKLDNN}:
        assert deserialize(serialize(layout)) is layout
    with pytest.raises(NotSendable, match="the layout torch._mkldnn: use another layout"):
        serialize(MKLDNN)


@pytest.mark.parametrize("codes", [DTypeCode, LayoutCode, MemoryFormatCode, QSchemeCode])
def test_every_number_names_something_in_this_torch(codes: Any) -> None:
    assert all(hasattr(torch, code.name.lower()) for code in codes)


def test_every_device_type_in_the_table_travels() -> None:
    for code in set(DeviceCode) - {DeviceCode.PRIVATEUSEONE}:
        device = torch.device(code.name.lower())
        assert deserialize(serialize(device)) == device
    with pytest.raises(NotSendable, match="the device vulkan: move the value to cpu or cuda"):
        serialize(torch.device("vulkan"))


def test_a_type_of_device_that_each_process_defines_does_not_travel() -> None:
    with pytest.raises(NotSendable, match="move the value to cpu or cuda"):
        serialize(torch.device("privateuseone", 1))
    with pytest.raises(MalformedMessage, match="device"):
        device_of(DeviceCode.PRIVATEUSEONE, 1)


def test_every_return_type_of_torch_is_in_the_table() -> None:
    classes: list[Any] = torch.return_types.all_return_types
    for cls in classes:
        assert f"torch.return_types.{cls.__name__}" in NAMED_TUPLES
        value = cls(range(cls.n_sequence_fields))
        assert same(value, deserialize(serialize(value)))


@pytest.mark.parametrize(
    "cls", [torch.nn.attention.SDPBackend, torch.nn.functional.ScalingType], ids=str
)
def test_every_member_of_an_enumeration_travels(cls: Any) -> None:
    for member in cls.__members__.values():
        assert deserialize(serialize(member)) == member


def test_infos_of_every_dtype() -> None:
    unknown = {torch.float4_e2m1fn_x2}
    floats = {dtype for dtype in DTYPES.values() if dtype.is_floating_point} - unknown
    integers = {
        getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)
    }
    assert len(floats) == 9
    for info in (*map(torch.finfo, floats), *map(torch.iinfo, integers)):
        assert deserialize(serialize(info)) == info


def test_an_info_that_does_not_know_its_dtype_is_refused() -> None:
    with pytest.raises(NotSendable, match="Cannot send this finfo: send the dtype"):
        serialize(torch.finfo(torch.float4_e2m1fn_x2))


def test_a_generator_sends_a_seed_drawn_from_it() -> None:
    draws = []
    for _ in range(2):
        generator = torch.Generator().manual_seed(5)
        sent = [deserialize(serialize(generator)) for _ in range(2)]
        draws.append([torch.rand(3, generator=each).tolist() for each in sent])
        assert draws[-1][0] != draws[-1][1], "every use must get other numbers"
        assert torch.rand(3, generator=torch.Generator().manual_seed(5)).tolist() not in draws[-1]
    assert draws[0] == draws[1], "the same seed must give the same numbers"


def test_packed_sequence_is_usable() -> None:
    lengths = [torch.ones(2, 3), torch.zeros(4, 3)]
    packed = pack_sequence(lengths, enforce_sorted=False)
    torch.manual_seed(0)
    gru = torch.nn.GRU(3, 2)
    again = deserialize(serialize(packed))
    assert type(again) is PackedSequence
    assert torch.equal(gru(again)[1], gru(packed)[1])


def batch(*sizes: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Return batch sizes as a tensor."""
    return torch.tensor(sizes, dtype=dtype)


@pytest.mark.parametrize(
    ("data", "sizes", "order", "text"),
    [
        (3, batch(1), None, "$.data: expected a tensor, got an int"),
        (torch.ones(1), 1, None, "$.batch_sizes: expected a tensor, got an int"),
        (
            torch.ones(3),
            batch(1, 2),
            None,
            "$.batch_sizes: expected positive sizes that never rise",
        ),
        (
            torch.ones(1),
            batch(1, 0),
            None,
            "$.batch_sizes: expected positive sizes that never rise",
        ),
        (torch.ones(4), batch(2, 1), None, "$.data: expected 3 rows, got 4"),
        (torch.tensor(1.0), batch(1), None, "$.data: expected 1 rows, got a scalar"),
        (torch.ones(1), batch(1, dtype=torch.int32), None, "$.batch_sizes: expected int64 lengths"),
        (torch.ones(1), batch(1).to_sparse(), None, "$.batch_sizes: expected int64 lengths"),
        (
            torch.ones(1),
            batch(1),
            (batch(0), None),
            "$.unsorted_indices: expected a tensor, or nil",
        ),
        (torch.ones(1), batch(1), ("x", "x"), "$.sorted_indices: expected a tensor, or nil"),
    ],
)
def test_malformed_packed_sequences(data: Any, sizes: Any, order: Any, text: str) -> None:
    packer = Packer()
    operand = (28, *[pack(item, packer) for item in (data, sizes, *(order or (None, None)))])
    with pytest.raises(MalformedMessage) as caught:
        unpack(operand, Unpacker(packer.buffers))
    assert str(caught.value).startswith(f"Malformed message at {text}")


@pytest.mark.parametrize(
    ("operand", "text"),
    [
        ([18, -(2**63)], "Malformed message at $[0]: expected an int from -92233720"),
        ([18, 1, 2.0], "Malformed message at $[1]: expected an int, got a float."),
        (
            [19, 300],
            "Malformed message at $.dtype: expected a dtype that this torch has, got number",
        ),
        ([19, "float32"], "Malformed message at $.dtype: expected a dtype number, got a str."),
        ([20, 0], "Malformed message at $: expected 2 fields after type code 20, got 1."),
        ([20, 99, None], "Malformed message at $.device: expected a device that this torch has"),
        ([20, 1, 1000], "Malformed message at $.device.index: expected an int from 0 to 127"),
        ([21, 9], "Malformed message at $.layout: expected a layout that this torch has"),
        ([15], "Malformed message at $.name: expected a named tuple number, got nil."),
        ([15, 0, 1], "Malformed message at $: expected 3 fields after type code 15, got 2."),
        ([15, 9999], "Malformed message at $.name: expected a named tuple that this torch has"),
        ([24, 0, None, -1], "Malformed message at $.seed: expected an int from 0 to"),
        ([24, 2, None, 1], "Malformed message at $.device: expected a device that draws random"),
        (
            [24, 1, 99, 1],
            "Cannot send a generator on cuda:99: the receiving machine has no such dev",
        ),
        ([24, 6, 0, 1], "Cannot send a generator on xla:0: the receiving machine has no such dev"),
        ([25, 9], "Malformed message at $.dtype: expected a dtype with finfo, got torch.int64."),
        ([26, 0], "Malformed message at $.dtype: expected a dtype with iinfo, got torch.float32."),
        ([27, 0, 77], "Malformed message at $.value: expected a SDPBackend that this torch has"),
        ([27, 77, 0], "Malformed message at $.enum: expected a torch enumeration that this torch"),
        ([37], "Malformed message at $.name: expected a torch options number, got nil."),
        ([37, 9], "Malformed message at $.name: expected a torch options that this torch has"),
        ([37, 0, True], "Malformed message at $: expected 6 fields after type code 37, got 2."),
        (
            [37, 0, False, None, "nonsense", "auto", None],
            "Malformed message at $: expected a LinearCrossEntropyOptions, got ",
        ),
        ([37, 0, False, None, "auto", "nonsense", None], "Malformed message at $.acc_policy: "),
        ([37, 0, False, None, 7, "auto", None], "Malformed message at $.chunking_method: "),
    ],
    ids=repr,
)
def test_malformed(operand: Any, text: str) -> None:
    with pytest.raises(SyftError) as caught:
        unpack(operand, Unpacker([]))
    assert str(caught.value).startswith(text)
