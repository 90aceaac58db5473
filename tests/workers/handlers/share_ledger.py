"""A ledger of what workers receive of shared tensors: for each tensor, what hides it.

A *row* says that a tensor is a share of a value behind words of a key stream.  The value is
computed here from the secrets, the words by AES as its standard defines counter mode; the sum over
all parties must be what was sent.  No word may hide two tensors.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

from syft.crypto.dealing import Dealer, StreamName
from syft.crypto.gates.public_factors import factor_for, products
from syft.crypto.kernels import kernel_from
from syft.crypto.programs.beaver_products import deal_product
from syft.crypto.programs.share_gates import GATES
from syft.crypto.programs.share_program import (
    DEALT,
    ShareCode,
    ShareProgram,
    opened_constants,
    stream_of,
    stream_of_mask,
)
from syft.program.program import Action, Slot

WHOLE = 1 << 64


def stream_words(key: bytes, name: StreamName | None, words: np.ndarray) -> np.ndarray:
    """Words of a stream by their numbers: the encrypted counters (NIST SP 800-38A).

    Without a name it is the only stream of its key, from 0 on.
    """
    start = 0
    if name is not None:
        said = hashlib.sha256(f"{name.counter} {name.place} {name.use}".encode()).digest()
        start = int.from_bytes(said[:12], "big") << 32
    blocks = int(words.max()) // 2 + 1 if words.size else 0
    counters = b"".join((start + number).to_bytes(16, "big") for number in range(blocks))
    stream = Cipher(AES(key), ECB()).encryptor().update(counters)
    return np.frombuffer(stream, dtype=np.int64)[words]


@dataclass(frozen=True)
class Row:
    """A tensor that every party sends a share of: ``value`` behind ``words`` of its stream."""

    name: StreamName
    value: np.ndarray
    words: np.ndarray
    how: str
    """``+``: the mask is added, ``-``: subtracted, ``^``: joined by xor."""

    def hidden(self, keys: Sequence[bytes]) -> np.ndarray:
        """The sum of what parties with these keys send."""
        found = self.value.copy()
        for key in keys:
            mask = stream_words(key, self.name, self.words)
            found = {"+": np.add, "-": np.subtract, "^": np.bitwise_xor}[self.how](found, mask)
        return found


# ------------------------------------------------------------------------------------ what is dealt


class KnownDealer(Dealer):
    """Computes what the provider does, and keeps the row of each correction."""

    def __init__(self, keys: Sequence[bytes], name: StreamName) -> None:
        self.keys, self.name, self.at = keys, name, 0
        self.rows: list[Row] = []

    def _next(self, shape: Sequence[int]) -> np.ndarray:
        start, self.at = self.at, self.at + math.prod(shape)
        return np.arange(start, self.at).reshape(shape)

    def uniform(self, shape: Sequence[int]) -> torch.Tensor:
        zeros = np.zeros(tuple(shape), np.int64)
        return torch.from_numpy(Row(self.name, zeros, self._next(shape), "+").hidden(self.keys))

    def uniform_bits(self, shape: Sequence[int]) -> torch.Tensor:
        zeros = np.zeros(tuple(shape), np.int64)
        return torch.from_numpy(Row(self.name, zeros, self._next(shape), "^").hidden(self.keys))

    def derived(self, shape: Sequence[int], value: Callable[[], torch.Tensor]) -> torch.Tensor:
        return self._kept(shape, value(), "-")

    def derived_bits(self, shape: Sequence[int], value: Callable[[], torch.Tensor]) -> torch.Tensor:
        return self._kept(shape, value(), "^")

    def _kept(self, shape: Sequence[int], value: torch.Tensor, how: str) -> torch.Tensor:
        self.rows.append(Row(self.name, value.numpy(), self._next(shape), how))
        return value

    def again(self, name: StreamName, shape: Sequence[int]) -> torch.Tensor:
        return KnownDealer(self.keys, name).uniform(shape)


def corrections(step: Action, name: StreamName, keys: Sequence[bytes]) -> list[Row]:
    """What the provider sends the last party for an instruction: behind the others' words."""
    dealer = KnownDealer(keys, name)
    if step.op == ShareCode.PRODUCT:
        code, settings, _, _, x_mask, x_shape, y_mask, y_shape, shape = step.args
        a, b = (
            dealer.again(stream_of_mask(mask, shape, name.counter), shape)
            for mask, shape in ((x_mask, x_shape), (y_mask, y_shape))
        )
        deal_product(dealer, kernel_from(code, settings), a, b, shape)
    elif step.op in GATES:
        GATES[step.op].deal(dealer, *step.args[1:])
    return dealer.rows


# ----------------------------------------------------------------------------------- what is opened


def planes(bits: np.ndarray) -> np.ndarray:
    """Bits (…, 64 w) as planes (…, w): bit i of word j belongs to element i w + j."""
    rows = bits.reshape(*bits.shape[:-1], 64, -1).astype(np.uint64)
    weights = (np.uint64(1) << np.arange(64, dtype=np.uint64))[:, None]
    return (rows * weights).sum(-2, dtype=np.uint64).view(np.int64)


@dataclass(frozen=True)
class Compared:
    """An opened c = x + r, and what groups of four bits of c and r say about x."""

    name: StreamName
    x: np.ndarray
    c: np.ndarray
    r: np.ndarray
    count: int

    @staticmethod
    def of(name: StreamName, x: np.ndarray, keys: Sequence[bytes]) -> Compared:
        rest = np.zeros(-len(x) % 64, np.int64)
        first = Row(name, x, np.arange(len(x)), "+")
        mask = first.hidden(keys) - x
        c, r = (np.concatenate((one, rest)).view(np.uint64) for one in (x + mask, mask))
        return Compared(name, np.concatenate((x, rest)), c, r, len(x))

    def first(self) -> Row:
        return Row(self.name, self.x[: self.count], np.arange(self.count), "+")

    def bits(self, bits: list[np.ndarray], at: list[int]) -> Row:
        """Planes of bits behind the planes ``at`` these places after the first mask."""
        length = len(self.x) // 64
        starts = np.array(at)[:, None] * length + self.count
        return Row(self.name, planes(np.stack(bits)), starts + np.arange(length), "^")

    def group(self, low: int, width: int, without_top: bool) -> tuple[np.ndarray, np.ndarray]:
        """Whether bits of c are less than those of r, and equal."""
        kept = np.uint64((WHOLE >> 1 if without_top else WHOLE) - 1)
        shift, cut = np.uint64(low), np.uint64((1 << width) - 1)
        one, other = (((word & kept) >> shift) & cut for word in (self.c, self.r))
        return one < other, one == other


def sign_rows(known: Compared, negated: bool) -> Iterator[Row]:
    """Of NEGATIVE and POSITIVE: 27 carries, 6 carries, and the sign."""
    yield known.first()
    leaves = [[known.group(16 * node + 4 * k, 4, True) for k in range(4)] for node in range(4)]
    bits = [leaves[node][k][1] for k in (1, 2, 3) for node in range(4)]
    bits += [leaves[node][k][0] for k in (0, 1, 2) for node in range(4)]
    bits += [leaves[node][0][1] for node in (1, 2, 3)]
    yield known.bits(bits, [5 * k + node for k in range(6) for node in range(4)] + [30, 31, 32])
    nodes = [known.group(16 * node, 16, True) for node in range(4)]
    bits = [nodes[node][1] for node in (1, 2, 3)] + [nodes[node][0] for node in (0, 1, 2)]
    yield known.bits(bits, [5 * k + 4 for k in range(6)])
    yield known.bits([known.x >= 0 if negated else known.x < 0], [33])


def zero_rows(known: Compared) -> Iterator[Row]:
    """Of ZERO: which groups are equal, which nodes are, and whether all are."""
    yield known.first()
    leaves = [known.group(16 * node + 4 * k, 4, False)[1] for k in range(4) for node in range(4)]
    yield known.bits(leaves, [5 * k + node for k in range(4) for node in range(4)])
    nodes = [known.group(16 * node, 16, False)[1] for node in range(4)]
    yield known.bits(nodes, [5 * node + 4 for node in range(4)])
    yield known.bits([known.x == 0], [20])


def _mask(step: Action, x: np.ndarray, name: StreamName, keys: Any) -> Iterator[Row]:
    yield Row(name, x, np.arange(x.size).reshape(x.shape), "-")


def _divide(step: Action, x: np.ndarray, name: StreamName, keys: Any) -> Iterator[Row]:
    if step.args[1] != 0:
        yield Row(name, x.reshape(-1) + (1 << 62), np.arange(x.size), "+")


def _sign(step: Action, x: np.ndarray, name: StreamName, keys: Any) -> Iterator[Row]:
    known = Compared.of(name, x.reshape(-1), keys)
    yield from sign_rows(known, step.op == ShareCode.POSITIVE)


def _zero(step: Action, x: np.ndarray, name: StreamName, keys: Any) -> Iterator[Row]:
    yield from zero_rows(Compared.of(name, x.reshape(-1), keys))


def _nothing(step: Action, x: np.ndarray, name: StreamName, keys: Any) -> Iterator[Row]:
    yield from ()


OPENED: dict[int, Callable[..., Iterator[Row]]] = {
    ShareCode.LOCAL: _nothing,
    ShareCode.PUBLIC: _nothing,
    ShareCode.LINEAR: _nothing,
    ShareCode.MASK: _mask,
    ShareCode.PRODUCT: _nothing,
    ShareCode.DIVIDE: _divide,
    ShareCode.NEGATIVE: _sign,
    ShareCode.POSITIVE: _sign,
    ShareCode.ZERO: _zero,
    ShareCode.REVEAL: _nothing,  # shares of what one party is to learn go to that one
}
"""The rows of each instruction, in their order."""


# -------------------------------------------------------------------------------- plain computation


def product(x: np.ndarray, r: np.ndarray, factor: Any, offset: int) -> np.ndarray:
    """The factor times x as the protocol rounds it, with the mask r of c = x + offset + r."""
    x, r, kept = x.reshape(-1), r.reshape(-1), x.shape
    factor = factor_for(factor, kept)
    c = x + offset + r
    masks = np.where((c < 0) & (r >= 0), products(r, factor, 1 << 64), products(r, factor))
    found: np.ndarray = products(c, factor, offset) - masks
    return found.reshape(kept)


def plain_results(
    step: Action, x: np.ndarray, name: StreamName, keys: Sequence[bytes]
) -> tuple[np.ndarray, ...]:
    """What a gate of one operand makes, in the clear."""
    r = Row(name, np.zeros(x.size, np.int64), np.arange(x.size), "+").hidden(keys).reshape(x.shape)
    factor = step.args[1]
    if step.op == ShareCode.DIVIDE:
        return (x.copy() if factor == 0 else product(x, r, factor, 1 << 62),)
    if step.op == ShareCode.POSITIVE:
        y = x if factor == 0 else product(x, r, factor, 0)
        return np.where(x >= 0, y, 0), (x >= 0).astype(np.int64)
    return (((x < 0) if step.op == ShareCode.NEGATIVE else (x == 0)).astype(np.int64),)


def named(step: Action, counter: int, place: int) -> StreamName:
    """The stream of an instruction, if it has one."""
    if step.op not in DEALT:
        return StreamName(counter, place)
    public = [value for value in step.args if not isinstance(value, Slot)]
    return stream_of(step.op, public, counter, place)


def rows_of_program(
    program: ShareProgram, steps: Sequence[tuple[int, np.ndarray]], counter: int, keys: Any
) -> list[Row]:
    """The rows of instructions at these places with these operands."""
    opened = opened_constants(program)
    return [
        row
        for place, x in steps
        for row in OPENED[opened[place].op](
            opened[place], x, named(opened[place], counter, place), keys
        )
    ]
