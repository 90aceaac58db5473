"""Frames: the layout of the bytes, one copy, and every way of breaking them."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable

import lz4.frame
import pytest
import torch

from syft.exceptions import LimitExceeded, MalformedMessage
from syft.serde import (
    Frame,
    Limits,
    Packer,
    Unpacker,
    decode_header,
    deserialize,
    encode_header,
    from_bytes,
    pack,
    serialize,
    to_bytes,
    to_parts,
    unpack,
)
from syft.serde import buffers
from syft.serde.buffers import LARGE, MIN_SIZE, compress, decompress


def octets(*values: int) -> torch.Tensor:
    """Return a buffer."""
    return torch.tensor(values, dtype=torch.uint8)


def random_bytes(count: int) -> torch.Tensor:
    """Return a buffer that does not compress."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (count,), dtype=torch.uint8, generator=generator)


def test_layout_of_a_frame() -> None:
    data = to_bytes(Frame(b"\xc0", [octets(1, 2, 3), octets(), octets(4)]))
    assert data[:16] == b"syft" + struct.pack("<BBHII", 1, 0, 0, 3, 1)
    assert data[16:88] == b"".join(struct.pack("<QQII", n, n, 0, 0) for n in (3, 0, 1))
    assert data[88:89] == b"\xc0" and not any(data[89:128])
    assert data[128:131] == b"\x01\x02\x03" and not any(data[131:192])
    assert data[192:] == b"\x04"


def test_large_parts_of_a_frame_are_the_memory_of_the_tensors() -> None:
    buffer = random_bytes(50_000)
    parts = to_parts(Frame(b"\xc0", [buffer]))
    assert b"".join(parts) == to_bytes(Frame(b"\xc0", [buffer]))
    buffer[0] += 1
    assert bytes(parts[-1])[0] == int(buffer[0])


def test_small_parts_are_copies_and_their_tensors_can_be_enlarged() -> None:
    buffer = random_bytes(5000)
    parts = to_parts(Frame(b"\xc0", [buffer, buffer[:0]]))
    expected = int(buffer[0])
    buffer.add_(1)
    assert bytes(parts[-3])[0] == expected and not parts[-1]
    assert buffer.resize_(9000).shape == (9000,)


@pytest.mark.parametrize("compressed", [True, False])
def test_round_trip(compressed: bool) -> None:
    buffers = [
        octets(),
        random_bytes(10),
        random_bytes(100_001),
        torch.zeros(10**6).view(torch.uint8),
    ]
    frame = Frame(encode_header([1, 2]), buffers)
    data = to_bytes(frame, compressed)
    assert (len(data) < 200_000) is compressed
    for form in (data, bytes(data), memoryview(data)):
        again = from_bytes(form)
        assert again.header == frame.header and again.exclusive
        assert all(map(torch.equal, again.buffers, buffers))
    assert again.nbytes == frame.nbytes == len(frame.header) + sum(b.numel() for b in buffers)


def test_buffers_are_aligned_in_a_bytearray() -> None:
    data = to_bytes(Frame(b"\xc0", [random_bytes(100_001), random_bytes(100_000)]))
    first, second = from_bytes(data, share=True).buffers
    start = torch.frombuffer(data, dtype=torch.uint8).data_ptr()
    assert (first.data_ptr() - start) % 64 == (second.data_ptr() - start) % 64 == 0
    assert start < first.data_ptr() < second.data_ptr() < start + len(data)


def test_owned_copies() -> None:
    frame = Frame(b"\xc0", [octets(1)])
    copy = frame.owned()
    frame.buffers[0].zero_()
    assert copy.exclusive and not frame.exclusive and copy.buffers[0].tolist() == [1]


def test_large_frames_and_buffers_are_copied_faithfully() -> None:
    large = random_bytes(LARGE + 1001)
    frame = Frame(b"\xc0", [octets(7), large, octets(8)])
    data = to_bytes(frame, compressed=False)
    assert data == b"".join(to_parts(frame, compressed=False))
    for form in (data, bytes(data)):
        assert torch.equal(from_bytes(form).buffers[1], large)
    copy = frame.owned().buffers[1]
    assert torch.equal(copy, large) and copy.data_ptr() != large.data_ptr()
    packer = Packer()
    operand = pack(large.view(5, -1).t(), packer)
    again = unpack(operand, Unpacker(packer.buffers, owns_buffers=False))
    assert torch.equal(again, large.view(5, -1).t()) and again.data_ptr() != large.data_ptr()
    again.resize_(LARGE * 2)


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("form", [bytes, bytearray])
def test_a_buffer_can_be_resized(form: Callable[[bytes], bytes], compressed: bool) -> None:
    for size in (0, 1, 60_000, 100_000, LARGE + 1):
        frame = Frame(b"\xc0", [torch.ones(size, dtype=torch.uint8)])
        (buffer,) = from_bytes(form(to_bytes(frame, compressed=compressed))).buffers
        assert buffer.resize_(2 * LARGE)[:size].all()


def test_the_memory_of_the_bytes_is_used_only_on_request() -> None:
    large = random_bytes(100_000)
    for value in (large, torch.zeros_like(large)):  # zeros are compressed
        data = to_bytes(Frame(b"\xc0", [value, value[:7]]))
        for form, share in ((data, False), (bytes(data), True), (data, True)):
            first, second = from_bytes(form, share=share).buffers
            assert torch.equal(first, value) and torch.equal(second, value[:7])
            assert second.untyped_storage().resizable()
            mine = form is data or value is not large  # decompressed bytes are nobody else's
            assert first.untyped_storage().resizable() is not (share and mine)


def test_huge_pages_are_a_hint_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "_HUGE_PAGES", None)
    large = random_bytes(LARGE)
    assert torch.equal(buffers.copy_buffer(large), large)
    assert len(buffers.join_bytes([bytes(LARGE), b"x"])) == LARGE + 1


def test_memoryviews_of_other_items_are_read_as_bytes() -> None:
    data = to_bytes(Frame(b"\xc0" * 16, []))
    assert from_bytes(memoryview(data).cast("I")).header == b"\xc0" * 16


GOOD = bytes(to_bytes(Frame(b"\xc0", [random_bytes(100), random_bytes(10)]), False))


def patched(offset: int, form: str, value: int) -> bytes:
    """Return the good frame with one number replaced."""
    data = bytearray(GOOD)
    struct.pack_into(form, data, offset, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "$: expected at least 16 bytes, got 0 bytes."),
        (GOOD[:15], "$: expected at least 16 bytes, got 15 bytes."),
        (b"sift" + GOOD[4:], "$.magic: expected a syft frame, got other bytes."),
        (patched(4, "<B", 2), "$.version: expected version 1, got version 2."),
        (patched(5, "<B", 1), "$.flags: expected zero, got 1."),
        (patched(6, "<H", 1), "$.channel: expected 0 outside of a line, got 1."),
        (GOOD[:60], "$.header: expected at least 65 bytes, got 60 bytes."),
        (patched(12, "<I", 10**6), "$.header: expected at least 1000064 bytes, got 266 bytes."),
        (patched(8, "<I", 1000), "$.header: expected at least 24017 bytes, got 266 bytes."),
        (GOOD[:150], "$.buffers[0]: expected 100 bytes of buffer, got the end of the frame."),
        (GOOD[:-1], "$.buffers[1]: expected 10 bytes of buffer, got the end of the frame."),
        (GOOD + b"\0", "$: expected 266 bytes, got 267 bytes."),
        (patched(16, "<Q", 99), "$.buffers[0]: expected at most 100 stored bytes, got 99."),
        (patched(24, "<Q", 99), "$.buffers[0]: expected at most 99 stored bytes, got 100."),
        (patched(32, "<I", 7), "$.buffers[0]: expected a known compression, got 7 and 0."),
        (patched(36, "<I", 1), "$.buffers[0]: expected a known compression, got 0 and 1."),
        (patched(66, "<B", 1), "$.buffers[0]: expected padding of zeros, got other bytes."),
        (patched(250, "<B", 1), "$.buffers[1]: expected padding of zeros, got other bytes."),
        (bytes(to_bytes(Frame(b"\xc0", []))) + b"x", "$: expected 17 bytes, got 18 bytes."),
    ],
)
def test_broken_frames(data: bytes, text: str) -> None:
    for form in (data, bytearray(data), memoryview(data)):
        with pytest.raises(MalformedMessage) as caught:
            from_bytes(form)
        assert str(caught.value) == f"Malformed message at {text}"


@pytest.mark.parametrize(
    ("limits", "arguments"),
    [
        (Limits(max_bytes=265), ("$", "max_bytes", 265, 266)),
        (Limits(max_buffers=1), ("$.buffers", "max_buffers", 1, 2)),
        (Limits(max_header_bytes=0), ("$.header", "max_header_bytes", 0, 1)),
    ],
)
def test_frames_over_a_limit(limits: Limits, arguments: tuple[object, ...]) -> None:
    with pytest.raises(LimitExceeded) as caught:
        from_bytes(GOOD, limits)
    assert caught.value.args == arguments


def test_what_a_buffer_claims_to_hold_is_limited_before_it_is_made() -> None:
    data = bytearray(serialize(torch.zeros(10**6)))
    struct.pack_into("<Q", data, 24, 2**40)
    with pytest.raises(LimitExceeded) as caught:
        from_bytes(bytes(data))
    assert caught.value.args == ("$.buffers[0]", "max_bytes", 2**32, 2**40)
    struct.pack_into("<Q", data, 24, 2**30)
    with pytest.raises(MalformedMessage, match=r"\$.buffers\[0\]: expected at most \d+ bytes, got"):
        from_bytes(bytes(data))


# ---------------------------------------------------------------------------------------- header


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xc1", "MessagePack, got MessagePack data is malformed: invalid opcode"),
        (b"", "MessagePack, got Input data was truncated"),
        (b"\xdd\xff\xff\xff\xff", "MessagePack, got Input data was truncated"),
        (b"\xdf\xff\xff\xff\xff", "MessagePack, got Input data was truncated"),
        (b"\xc0\xc0", "MessagePack, got MessagePack data is malformed: trailing characters"),
        (b"\xd9\x01\xff", "MessagePack, got 'utf-8' codec can't decode byte 0xff in position 0"),
    ],
)
def test_broken_headers(data: bytes, text: str) -> None:
    with pytest.raises(MalformedMessage) as caught:
        decode_header(data)
    assert str(caught.value).startswith(f"Malformed message at $.header: expected {text}")


def test_headers_over_a_limit() -> None:
    with pytest.raises(LimitExceeded) as caught:
        decode_header(b"\xc0\xc0", Limits(max_header_bytes=1))
    assert caught.value.args == ("$.header", "max_header_bytes", 1, 2)
    with pytest.raises(LimitExceeded, match=r"\$.header: max_depth is 64"):
        decode_header(b"\x91" * 100_000)


@pytest.mark.parametrize(
    "data", [b"\x81\x01\x02", b"\xd6\xff\0\0\0\0", b"\xc7\x02\x05aa"], ids=["map", "time", "ext"]
)
def test_other_things_that_messagepack_knows_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage, match="expected a value headed by a type code"):
        deserialize(to_bytes(Frame(data, [])))


# ----------------------------------------------------------------------------------- compression


def test_compression_is_decided_by_content() -> None:
    weights = torch.randn(50_000, generator=torch.Generator().manual_seed(0)).view(torch.uint8)
    update = torch.zeros(50_000)
    update[::500] = 1.0
    assert compress(memoryview(weights.numpy())) is None  # type: ignore[arg-type]
    packed = compress(memoryview(update.view(torch.uint8).numpy()))  # type: ignore[arg-type]
    assert packed is not None and len(packed) * 30 < 200_000
    assert compress(memoryview(bytes(MIN_SIZE - 1))) is None


def test_a_buffer_that_compresses_only_in_places_is_left_alone() -> None:
    noise = bytes(random_bytes(300_000).tolist())
    assert compress(memoryview(noise + bytes(20_000))) is None
    assert compress(memoryview(noise[:60_000] + bytes(20_000))) is None


def test_a_small_buffer_is_tried_whole() -> None:
    assert compress(memoryview(bytes(MIN_SIZE))) is not None


@pytest.mark.parametrize(
    ("packed", "size", "text"),
    [
        (b"not an lz4 frame", 100, r"expected an LZ4 frame, got LZ4F_decompress failed"),
        (
            lz4.frame.compress(bytes(100)),
            101,
            r"expected one LZ4 frame of 101 bytes, got 100 bytes",
        ),
        (
            lz4.frame.compress(bytes(100)),
            99,
            r"expected one LZ4 frame of 99 bytes, got 99 bytes, an",
        ),
        (lz4.frame.compress(bytes(100)) + b"x", 100, r"of 100 bytes, got 100 bytes, and more"),
        (lz4.frame.compress(bytes(100))[:-6], 100, r"expected one LZ4 frame of 100 bytes, got 0"),
        (b"", 100, r"expected at most 0 bytes, got 100"),
    ],
)
def test_broken_compression(packed: bytes, size: int, text: str) -> None:
    with pytest.raises(MalformedMessage, match=r"\$.buffers\[0\]: .*" + text):
        decompress(memoryview(packed), size, "$.buffers[0]")


def test_a_bomb_produces_no_more_than_it_declared() -> None:
    bomb = lz4.frame.compress(bytes(1 << 26), store_size=True)
    tracemalloc.start()
    with pytest.raises(MalformedMessage, match="expected one LZ4 frame of 1000 bytes"):
        decompress(memoryview(bomb), 1000, "$")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
