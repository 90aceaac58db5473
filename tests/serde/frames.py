"""The golden and hostile frames in tests/frames, and the script that writes missing ones.

Run ``python -m tests.serde.frames`` after adding a type code or an attack.  A file that exists is
never written again: that today's code reads what was written then is what golden ones are for.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lz4.frame
import torch

from syft.codes import TypeCode
from syft.serde import Frame, encode_header, serialize, to_bytes
from tests.serde.samples import SAMPLES

FOLDER = Path(__file__).parent.parent / "frames"


def golden_name(code: TypeCode) -> str:
    """Return the name of the golden file of a code."""
    return f"{int(code):03d}_{code.name.lower()}.bin"


def golden_value(code: TypeCode) -> list[Any]:
    """Return what the golden file of a code holds: a list of all its samples."""
    return [make() for make in SAMPLES[code]]


def compressed_value() -> torch.Tensor:
    """Return what the golden file with a compressed buffer holds."""
    return torch.arange(4096) // 64


def framed(operand: Any, *buffers: bytes) -> bytes:
    """Return a frame with any header and any buffers."""
    tensors = [torch.frombuffer(bytearray(b), dtype=torch.uint8) for b in buffers]
    return bytes(to_bytes(Frame(encode_header(operand), tensors), compressed=False))


def raw(header: bytes) -> bytes:
    """Return a frame whose header is these bytes."""
    return bytes(to_bytes(Frame(header, [])))


def claims(**fields: int) -> bytes:
    """Return the frame of a small tensor with numbers of its first lines replaced."""
    places = {
        "version": (4, "<B"),
        "flags": (5, "<B"),
        "reserved": (6, "<H"),
        "count": (8, "<I"),
        "header": (12, "<I"),
        "stored": (16, "<Q"),
        "raw": (24, "<Q"),
        "compression": (32, "<I"),
    }
    data = bytearray(serialize(torch.arange(3.0)))
    for name, value in fields.items():
        offset, form = places[name]
        struct.pack_into(form, data, offset, value)
    return bytes(data)


def bomb() -> bytes:
    """Return a frame whose buffer decompresses to more than it says."""
    packed: bytes = lz4.frame.compress(bytes(10**6))
    entry = struct.pack("<QQII", len(packed), 10**5, 1, 0)
    header = encode_header((32, 5, (10**5,), None, 0))
    head = b"syft" + struct.pack("<BBHII", 1, 0, 0, 1, len(header)) + entry + header
    return head + bytes(-len(head) % 64) + packed


def branches(levels: int) -> Any:
    """Return a program with a branch with a branch, and so on."""
    slot = (40, 0)
    program: Any = (41, 1, 0, (), (), slot)
    for _ in range(levels):
        branch = (1916, (1, program, (41, 1, 0, (), (), slot), (3, slot)))
        program = (41, 1, 0, (), (branch,), slot)
    return program


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "Malformed message at $: expected at least 16 bytes, got 0 bytes."),
    "wrong_magic": (
        lambda: b"PK\x03\x04" + bytes(60),
        "Malformed message at $.magic: expected a syft frame, got other bytes.",
    ),
    "pickle": (
        lambda: b"\x80\x04\x95\x1d" + bytes(7) + b"\x8c\x05posix\x94\x8c\x06system\x94\x93.",
        "Malformed message at $.magic: expected a syft frame, got other bytes.",
    ),
    "future_version": (
        lambda: claims(version=2),
        "Malformed message at $.version: expected version 1, got version 2.",
    ),
    "unknown_flags": (
        lambda: claims(flags=128),
        "Malformed message at $.flags: expected zero, got 128.",
    ),
    "truncated_table": (
        lambda: claims()[:30],
        "Malformed message at $.header: expected at least 47 bytes, got 30 bytes.",
    ),
    "truncated_buffer": (
        lambda: claims()[:-1],
        "Malformed message at $.buffers[0]: expected 12 bytes of buffer, got the end of the frame.",
    ),
    "trailing_garbage": (
        lambda: claims() + b"GET / HTTP/1.1",
        "Malformed message at $: expected 76 bytes, got 90 bytes.",
    ),
    "huge_header": (
        lambda: claims(header=2**32 - 1),
        "Message over a limit at $.header: max_header_bytes is 16777216, got 4294967295. "
        "Send less at once, or raise the limit on both sides.",
    ),
    "many_buffers": (
        lambda: claims(count=2**32 - 1),
        "Message over a limit at $.buffers: max_buffers is 65536, got 4294967295. "
        "Send less at once, or raise the limit on both sides.",
    ),
    "huge_buffer": (
        lambda: claims(stored=2**63, raw=2**63),
        "Message over a limit at $.buffers[0]: max_bytes is 4294967296, got 9223372036854775808. "
        "Send less at once, or raise the limit on both sides.",
    ),
    "unknown_compression": (
        lambda: claims(compression=9),
        "Malformed message at $.buffers[0]: expected a known compression, got 9 and 0.",
    ),
    "not_lz4": (
        lambda: claims(compression=1),
        "Malformed message at $.buffers[0]: expected an LZ4 frame, got LZ4F_decompress failed with "
        "code: ERROR_frameType_unknown.",
    ),
    "lz4_bomb": (
        bomb,
        "Malformed message at $.buffers[0]: expected one LZ4 frame of 100000 bytes, got 100000 "
        "bytes, and more.",
    ),
    "deep_arrays": (
        lambda: raw(b"\x91" * 100_000),
        "Message over a limit at $.header: max_depth is 64, got 100000. "
        "Send less at once, or raise the limit on both sides.",
    ),
    "deep_lists": (
        lambda: raw(b"\x92\x03" * 65 + b"\xc0"),
        f"Message over a limit at ${'[0]' * 64}: max_depth is 64, got 65. "
        "Send less at once, or raise the limit on both sides.",
    ),
    "array_of_four_billion": (
        lambda: raw(b"\xdd\xff\xff\xff\xff"),
        "Malformed message at $.header: expected MessagePack, got Input data was truncated.",
    ),
    "map": (
        lambda: raw(b"\x81\xa1a\x01"),
        "Malformed message at $: expected a value headed by a type code, got a map.",
    ),
    "extension": (
        lambda: raw(b"\xd4\x05a"),
        "Malformed message at $: expected a value headed by a type code, got a Ext.",
    ),
    "unknown_code": (
        lambda: framed((2, 1, (3, (99, 1)))),
        "Malformed message at $[1][0][head]: expected a type code that is known here, got code 99.",
    ),
    "code_is_a_bool": (
        lambda: framed((True, 1)),
        "Malformed message at $[head]: expected a type code, got a bool.",
    ),
    "unhashable_key": (
        lambda: framed((4, (3, 1), 2)),
        "Malformed message at $: expected keys that can be hashed, got unhashable type: 'list'.",
    ),
    "range_without_step": (
        lambda: framed((9, 0, 10, 0)),
        "Malformed message at $[2]: expected a step other than 0, got 0.",
    ),
    "shape_overflows": (
        lambda: framed((32, 0, (2**62, 4), None, 0), bytes(16)),
        "Message over a limit at $.shape: max_elements is 4294967296, got 18446744073709551616. "
        "Send less at once, or raise the limit on both sides.",
    ),
    "shape_beyond_buffer": (
        lambda: framed((32, 0, (1000, 1000), None, 0), bytes(16)),
        "Malformed message at $.buffer: expected a buffer of 4000000 bytes, got 16 bytes.",
    ),
    "strides_beyond_buffer": (
        lambda: framed((32, 0, (2, 2), (2**60, 1), 0), bytes(16)),
        "Malformed message at $.strides: expected strides that fill memory, got gaps or overlaps.",
    ),
    "negative_stride": (
        lambda: framed((32, 0, (4,), (-1,), 0), bytes(16)),
        "Malformed message at $.strides[0]: expected an int from 0 to 9223372036854775807, got -1.",
    ),
    "many_dims": (
        lambda: framed((32, 0, (1,) * 1000, None, 0), bytes(4)),
        "Message over a limit at $.shape: max_dims is 64, got 1000. "
        "Send less at once, or raise the limit on both sides.",
    ),
    "buffer_twice": (
        lambda: framed((2, (32, 5, (4,), None, 0), (32, 5, (4,), None, 0)), bytes(4)),
        "Malformed message at $[1].buffer: expected an unused buffer (the frame has 1), got buffer "
        "0.",
    ),
    "buffer_unused": (
        lambda: framed((2, 1), bytes(4)),
        "Malformed message at $.buffers[0]: expected a tensor that uses this buffer, got none in "
        "the header.",
    ),
    "sparse_index_out_of_range": (
        lambda: framed(
            (34, (2, 2), (32, 9, (2, 1), None, 0), (32, 0, (1,), None, 1), False, None),
            struct.pack("<qq", 0, 2**40),
            bytes(4),
        ),
        "Malformed message at $: expected a COO tensor, got size is inconsistent with indices: for "
        "dim 1, size is 2 but found index 1099511627776.",
    ),
    "quantized_zero_scale": (
        lambda: framed((33, 23, (4,), None, 0, (0, 0.0, 0), (0, None), None), bytes(4)),
        "Malformed message at $.scale: expected a positive, finite scale, got 0.0.",
    ),
    "jagged_offsets": (
        lambda: framed(
            (36, (32, 5, (4,), None, 0), (32, 9, (2,), None, 1), None, None),
            bytes(4),
            struct.pack("<qq", 0, 1000),
        ),
        "Malformed message at $.offsets: expected offsets that rise from 0 to at most 4, got "
        "others.",
    ),
    "device_not_here": (
        lambda: framed((32, 5, (4,), None, 0, (1, 100), None), bytes(4)),
        "Cannot send a tensor on cuda:100: the receiving machine has no such device; move it with "
        ".to() before sending.",
    ),
    "bundle_of_a_million_empty_tensors": (
        lambda: framed((38, None, ((0, (32, 0, (2**32, 0), None, 0)),), ()), bytes(1)),
        "Message over a limit at $.stacks[0]: max_items is 1048576, got 4294967296. "
        "Send less at once, or raise the limit on both sides.",
    ),
    "bundle_with_a_place_twice": (
        lambda: framed((38, (0, 0), ((0, (32, 5, (2,), None, 0)),), ()), bytes(2)),
        "Malformed message at $.order: expected the numbers from 0 to 1, each once, got an array "
        "of 2.",
    ),
    "bundle_of_wrong_flags": (
        lambda: framed((38, None, ((6, (32, 5, (2,), None, 0)),), ()), bytes(2)),
        "Malformed message at $.stacks[0].flags: expected flags that go together, got 6.",
    ),
    "program_with_a_forward_reference": (
        lambda: framed((41, 1, 0, (), ((11, ((40, 1),)),), (40, 1))),
        "Malformed message at $.actions[0].args[0]: expected a slot that has its value already, "
        "got Slot(1).",
    ),
    "program_with_a_huge_slot": (
        lambda: framed((41, 1, 0, (), ((11, ((40, 2**62),)),), (40, 1))),
        "Malformed message at $.actions[0].args[0]: expected a slot that has its value already, "
        "got Slot(4611686018427387904).",
    ),
    "program_with_an_unknown_op": (
        lambda: framed((41, 1, 0, (), ((10**6, ((40, 0),)),), (40, 1))),
        "Malformed message at $.actions[0].op: expected an op of the table that this torch has, "
        "got op 1000000.",
    ),
    "program_that_takes_an_object_of_the_store": (
        lambda: framed((41, 0, 0, ((0, 12345),), (), (40, 0))),
        "Malformed message at $.constants[0]: expected a tensor, got an array of 2.",
    ),
    "programs_in_programs": (
        lambda: framed(branches(20)),
        f"Message over a limit at ${'.actions[0].args[1]' * 10}: max_depth is 64, got 66. "
        "Send less at once, or raise the limit on both sides.",
    ),
}
"""Name of the file without its ending: how it was made, and what it must be answered."""


def write_missing() -> list[str]:
    """Write the frames that have no file yet, and return their names."""
    frames = {f"golden/{golden_name(c)}": serialize(golden_value(c), False) for c in SAMPLES}
    frames["golden/compressed.bin"] = serialize(compressed_value())
    frames.update({f"hostile/{name}.bin": bytearray(make()) for name, (make, _) in HOSTILE.items()})
    missing = [name for name in frames if not (FOLDER / name).exists()]
    for name in missing:
        (FOLDER / name).write_bytes(frames[name])
    return missing


if __name__ == "__main__":
    print("\n".join(write_missing()) or "nothing is missing")
