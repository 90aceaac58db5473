"""Messages changed where it hurts: valid MessagePack, of the right form, with wrong contents.

A random byte in a frame is nearly always found by the parser, so it says little about what comes
after.  Here a message of each kind is taken apart, some of its parts are changed, and it is put
together again: another id, a count that is wrong, a tensor where text should be, a list that lost
an item, a buffer that is too short.  Most of these get past the parser.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, get_args

import msgspec
import msgpack  # type: ignore[import-untyped]
import torch

from syft.codes import DTypeCode, TypeCode
from syft.ops.table import BY_NAME
from syft.program.program import Action, Program, Slot
from syft.serde.frame import Frame, from_bytes, to_bytes
from syft.serde.packer import Packer
from syft.serde.registry import pack
from syft.workers.wire import messages
from syft.workers.wire.definitions import Group, InputKind
from tests.workers.samples import SAMPLES

OWN, PUBLIC, PRIVATE = 5, 6, 7
"""The ids of an object of the sender's, and of two of somebody else's, one of them private."""
IDS = (OWN, PUBLIC, PRIVATE, 0, -1, 99, 2**31, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
NUMBERS = (0, 1, 2, 3, 8, 9, 16, 17, -1, 255, 2**16, 2**31, 2**53)
FLOATS = (0.0, -0.0, 1.5, float("nan"), float("inf"), 1e308)
TEXTS = ("", "ann", "eve", "bob", "alice", "#a", "out", "dim", "x" * 300, "\x00", "\u2028")

# Places of a command that are not drawn at random: any number would be some operation of torch.
SAFE_OPS = tuple(
    BY_NAME[f"torch.Tensor.{name}"]
    for name in ("add", "mul", "__getitem__", "sum", "add_", "shape.__get__", "size", "copy_")
) + (-1, 10**6, 2**63 - 1)


def operands() -> list[Any]:
    """Operands that are right by themselves: references, tensors, containers, and what is none."""
    found: list[Any] = [[0, id] for id in (OWN, PUBLIC, PRIVATE, 99)]
    found += [[0, PRIVATE, 1], [0, OWN, 64], [0], [0, "5"], [int(TypeCode.POINTER), 1, "eve", True]]
    found += [
        pack(value, Packer()) for value in (True, 3, 2.5, "text", None, (1, 2), [1], {"a": 1})
    ]
    found += [pack(value, Packer()) for value in (slice(1), ..., torch.float32, torch.Size([2]))]
    found += [[int(code)] for code in TypeCode] + [[int(code), 0, 0, 0] for code in TypeCode]
    found += [tensor_operand(DTypeCode.FLOAT32, shape) for shape in ([2], [3], [2**40], [-1], [])]
    found += [tensor_operand(code, [2]) for code in DTypeCode]
    return found


def tensor_operand(code: DTypeCode, shape: list[int], buffer: int = 0) -> list[Any]:
    """A tensor of any dtype and shape in a buffer, fitting or not."""
    return [int(TypeCode.TENSOR), int(code), shape, None, buffer]


OPERANDS = operands()


def whole_messages() -> list[Frame]:
    """A message of each kind of request that would do something if nothing was changed."""
    kinds = get_args(messages.Request)
    found = [
        Frame(messages.encode(_unconditional(sample)), [])
        for sample in SAMPLES
        if isinstance(sample, kinds)
    ]
    packer = Packer()
    value = pack(torch.ones(2), packer)
    found.append(Frame(messages.encode(messages.Put(2, 10, value)), packer.buffers))
    add = Action(BY_NAME["torch.Tensor.add"], (Slot(0), Slot(1)), {}, Slot(2))
    group = Group((InputKind.REFERENCE, InputKind.NUMBER), Program(2, (add,), (Slot(2),)))
    run = messages.Run(3, 1, [OWN, 2.0], 20, 9, (), pack(group, Packer()))
    found.append(Frame(messages.encode(run), []))
    for name, args in (("add", ([0, PRIVATE], [0, OWN])), ("add_", ([0, OWN], [0, PRIVATE]))):
        op, out = BY_NAME[f"torch.Tensor.{name}"], 0 if name == "add_" else 30
        found.append(Frame(messages.encode(messages.Command(4, op, args, out, 9)), []))
    return found


def _unconditional(sample: messages.Message) -> messages.Message:
    """The same without the count of failures, after the first of which the others are skipped."""
    if not hasattr(sample, "seq") or sample.failures is None:
        return sample
    return msgspec.structs.replace(sample, failures=None)


@dataclass
class Mutator:
    """Draws changed frames from a seed."""

    rng: random.Random

    def frame(self, whole: Frame) -> bytes:
        """A frame like this one, with one to three of its parts changed."""
        fields = msgpack.unpackb(whole.header)
        buffers = [buffer.clone() for buffer in whole.buffers]
        for _ in range(self.rng.randint(1, 3)):
            self._change(fields)
        if self.rng.random() < 0.15:
            buffers = self._buffers(buffers)
        return bytes(to_bytes(Frame(msgpack.packb(fields), buffers), compressed=False))

    def _change(self, fields: list[Any]) -> None:
        places = [
            (holder, at)
            for holder, at in walk(fields)
            if holder is not fields or at or self.rng.random() < 0.05
        ]
        holder, at = self.rng.choice(places or [(fields, 0)])
        draw = self.rng.random()
        if holder is fields and fields[0] == messages.Command.__struct_config__.tag and at == 2:
            holder[at] = self.rng.choice(SAFE_OPS)
        elif draw < 0.75:
            holder[at] = self._like(holder[at])
        elif draw < 0.9 or not isinstance(holder, list):
            holder[at] = deepcopy(self.rng.choice(OPERANDS))
        elif draw < 0.95 and len(holder) > 1:
            del holder[at]
        else:
            holder.insert(at, deepcopy(holder[at]))

    def _like(self, value: Any) -> Any:
        """Another value of the same type."""
        rng = self.rng
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return rng.choice(IDS if rng.random() < 0.5 else NUMBERS)
        if isinstance(value, float):
            return rng.choice(FLOATS)
        if isinstance(value, str):
            return rng.choice(TEXTS)
        if isinstance(value, bytes):
            return rng.randbytes(rng.choice((0, 1, 32, 33)))
        if isinstance(value, list):
            return rng.choice(([], value + deepcopy(value), value[::-1], value[:-1], [value]))
        return rng.choice((None, [], 0, [OWN], {}))

    def _buffers(self, buffers: list[torch.Tensor]) -> list[torch.Tensor]:
        """One buffer too many, too few, too short or too long."""
        other = torch.zeros(self.rng.choice((0, 1, 7, 8, 64)), dtype=torch.uint8)
        return self.rng.choice(([], [*buffers, other], [other], [other] * len(buffers)))


def walk(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in nested lists and maps, as what holds it and the index or key there."""
    keys: Any = range(len(value)) if isinstance(value, list) else list(value)
    for key in keys:
        yield value, key
        if isinstance(value[key], (list, dict)):
            yield from walk(value[key])


def passes_parser(data: bytes) -> bool:
    """Whether a frame and the message in it are of the right form."""
    try:
        messages.read_request(from_bytes(data).header)
    except Exception:
        return False
    return True
