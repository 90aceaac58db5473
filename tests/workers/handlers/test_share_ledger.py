"""Every tensor that a worker receives while others compute on shares has a row in the ledger."""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import syft as sy
from syft.codes import CollectiveCode
from syft.crypto.dealing import StreamName
from syft.crypto.kernels import kernel_from
from syft.crypto.programs.local_operations import LOCAL_OPERATIONS, run_local
from syft.crypto.programs.share_dealing import deals_of, letters_of
from syft.crypto.programs.share_gates import GATES
from syft.crypto.programs.share_program import (
    ShareCode,
    ShareProgram,
    opened_constants,
    outs_of,
)
from syft.program.flow import reads_of
from syft.program.program import Action, Slot
from syft.crypto.ring_products import ring_map, ring_product
from syft.serde.packer import Unpacker
from syft.serde.registry import unpack_at
from syft.workers.wire.messages import Exchange, Start
from syft.workers.wire.references import REF
from tests.workers.handlers.share_ledger import (
    OPENED,
    Row,
    corrections,
    plain_results,
    rows_of_program,
    named,
    stream_words,
)

NOTHING = np.zeros(0, np.int64)


class Audit:
    """What was recorded of some sessions, and the rows that explain it."""

    def __init__(self, log: Any, workers: dict[str, Any]) -> None:
        self.workers = workers
        self.keys: dict[tuple[str, ...], dict[int, bytes]] = {}
        """Those of the parties of a session; by who takes part, with its provider or without."""
        self.dealers: dict[tuple[str, ...], int | None] = {}
        """The rank of the provider in sessions in which it is a party."""
        self.between: set[bytes] = set()
        """What any two parties have told each other for their keys, in one direction."""
        self.seeds: list[bytes] = []
        self.plain: dict[int, torch.Tensor] = {}
        """The values behind stored shares, also of masked ones, by their ids."""
        self.used: dict[tuple[bytes, StreamName, int], str] = {}
        """Which tensor each word of a key stream hides."""
        self.codes: collections.Counter[ShareCode] = collections.Counter()
        self.rows = 0
        starts: dict[int, dict[int, tuple[Start, list[Any]]]] = {}
        letters: dict[int, dict[tuple[int, str], list[Any]]] = {}
        for entry in log:
            if entry.receiver not in workers:
                continue
            unpacker = Unpacker(entry.buffers)
            message = entry.message
            if type(message) is Start:
                args = [
                    value if _refers(value) else unpack_at(value, unpacker, "")
                    for value in message.args
                ]
                starts.setdefault(message.execution, {})[message.rank] = message, args
            elif type(message) is Exchange:
                values = [unpack_at(value, unpacker, "") for value in message.values]
                place = message.rank, entry.receiver
                letters.setdefault(message.execution, {}).setdefault(place, []).append(values)
            else:
                assert not entry.buffers, f"{type(message).__name__} brings a tensor"
        for execution, parts in starts.items():
            start = next(iter(parts.values()))[0]
            code = CollectiveCode(start.program)
            if code is CollectiveCode.DEAL and len(parts) > 1:
                code = CollectiveCode.SHARES
            read = {
                CollectiveCode.OPEN_SESSION: self._open,
                CollectiveCode.SPLIT: self._split,
                CollectiveCode.SHARES: self._run,
            }[code]
            read(start.parties, parts, letters.pop(execution, {}))
        assert not letters, "letters of executions that nobody started"
        texts = b"".join(bytes(str(entry.message), "latin-1") for entry in log.to("me"))
        for keys in self.keys.values():
            assert len(set(keys.values())) == len(keys)
            assert not any(key in texts for key in (*keys.values(), *self.between))

    def _open(self, names: tuple[str, ...], parts: Any, letters: Any) -> None:
        start, dealer = parts[0]
        provider = dealer[0] if dealer else len(names) - 1
        parties = names if dealer else names[:-1]
        keys: dict[int, bytes] = {}
        between: list[bytes] = []
        for (sender, receiver), (values,) in letters.items():
            if sender == provider:
                key, *said = values
                assert said[: len(dealer)] == dealer
                keys[names.index(receiver)], values = key, said[len(dealer) :]
            assert receiver in parties and len(values) == (sender < len(parties))
            between += values
        assert len(set(between)) == len(parties) * (len(parties) - 1) and not self.between & {
            *between
        }
        self.between |= {*between}
        if dealer:  # its own key crosses no line
            (session,) = start.outs
            keys[provider] = (
                self.workers[names[provider]].core.store.objects[session].keys[provider]
            )
        assert sorted(keys) == list(range(len(parties)))
        assert not self.between & {*keys.values()}
        self.keys[names] = self.keys[parties] = keys
        self.dealers[names] = dealer[0] if dealer else None

    def _split(self, names: tuple[str, ...], parts: Any, letters: Any) -> None:
        ((out,),) = {tuple(start.outs) for start, _ in parts.values() if start.outs}
        shares = [self.workers[name].core.store.objects[out].value for name in self._parties()]
        self.plain[out] = torch.stack(shares).sum(0)
        rest = self.plain[out].clone()
        for (_, receiver), ((value, shape, device),) in sorted(letters.items()):
            assert device == self.plain[out].device
            if type(value) is bytes:
                self._fresh(value)
                rest -= _drawn(value, shape)
            else:
                assert receiver == self._parties()[-1]
                hidden = rest - value  # what the holder keeps, or nothing
                is_party = names[-1] == receiver
                assert bool((hidden != 0).all()) is is_party and bool(hidden.any()) is is_party
        self.rows += len(letters)

    def _parties(self) -> list[str]:
        return [name for name in self.workers if name not in ("dealer", "olga")]

    def _fresh(self, seed: bytes) -> None:
        assert len(seed) == 32 and seed not in self.seeds, "a seed draws one share"
        self.seeds.append(seed)

    # ------------------------------------------------------------------------------- share programs

    def _run(self, names: tuple[str, ...], parts: Any, letters: Any) -> None:
        parties = len(self.keys[names])
        keys = [self.keys[names][rank] for rank in range(parties)]
        starts = [parts[rank] for rank in range(parties)]
        _, counter, program, *_ = starts[0][1]
        assert all(args[1] == counter for _, args in starts)
        inputs = [
            self._input([args[3 + index] for _, args in starts]) for index in range(program.inputs)
        ]
        steps = self._in_the_clear(program, inputs, counter, keys, [one for one, _ in starts])
        self._check_corrections(program, names, counter, keys, letters)
        expected = rows_of_program(program, steps, counter, keys)
        self._check_openings(program, names, keys, letters, expected)
        self.codes.update(step.op for step in program.actions)

    def _input(self, given: Sequence[Any]) -> torch.Tensor:
        if _refers(given[0]):
            return self.plain[given[0][1]]
        total = given[-1][0].clone()
        for seed, shape in (one[:2] for one in given[:-1]):
            self._fresh(seed)
            total += _drawn(seed, shape)
        self.rows += len(given)
        return total

    def _in_the_clear(
        self,
        program: ShareProgram,
        inputs: list[torch.Tensor],
        counter: int,
        keys: list[bytes],
        starts: list[Start],
    ) -> list[tuple[int, np.ndarray]]:
        """Compute the program on values; returns the operand of each instruction by then."""
        values: dict[int, Any] = dict(enumerate(inputs))
        steps = []
        for place, step in enumerate(opened_constants(program)):
            operands = [values[slot] for slot in reads_of(step)]
            x = operands[0].detach().clone().numpy() if operands else NOTHING
            steps.append((place, x))
            made = _made(step, operands, values, x, named(step, counter, place), keys)
            values.update(zip(outs_of(step), made, strict=False))
        revealed = {
            step.out.index: step.args[1] for step in program.actions if step.op == ShareCode.REVEAL
        }
        for rank, start in enumerate(starts):
            here = [slot for slot in program.results if revealed.get(slot, rank) == rank]
            for slot, out in zip(here, start.outs, strict=len(start.outs) != len(here) + 1):
                if slot not in revealed:
                    self.plain[out] = values[slot]
        return steps

    def _check_corrections(
        self, program: ShareProgram, names: Any, counter: int, keys: list[bytes], letters: Any
    ) -> None:
        last, dealer = len(keys) - 1, self.dealers.get(names)
        if dealer == last:
            return  # nobody receives any
        if dealer is None:
            dealt = letters.pop((last + 1, names[last]), [])
        else:  # they come before what it opens
            count = len(letters_of(deals_of(program)))
            dealt = letters.get((dealer, names[last]), [])[:count]
            del letters.get((dealer, names[last]), [])[:count]
        said: dict[int, list[torch.Tensor]] = {}
        for value in itertools.chain.from_iterable(dealt):
            if type(value) is int:
                assert value not in said
                found = said[value] = []
            else:
                found.append(value)
        for place, step in enumerate(opened_constants(program)):
            rows = corrections(step, named(step, counter, place), keys)
            found = said.pop(place, [])
            assert len(found) == len(rows)
            for row, tensor in zip(rows, found, strict=True):
                hidden = row.hidden(keys[:-1])
                assert np.array_equal(hidden, tensor.numpy()), (step.op, "correction")
                self._use(row, keys[:-1], f"correction of {ShareCode(step.op).name}")
        assert not said, "corrections that no instruction needs"

    def _check_openings(
        self,
        program: ShareProgram,
        names: Any,
        keys: list[bytes],
        letters: Any,
        expected: list[Row],
    ) -> None:
        """Match what all parties sent with the rows, by what their sums are."""
        parties = range(len(keys))
        reveals = [step.args[1] for step in program.actions if step.op == ShareCode.REVEAL]
        sent = []
        for rank in parties:
            to = {
                other: [
                    value.numpy()
                    for letter in letters.pop((rank, names[other]), [])
                    for value in self._without_digest(letter)
                ]
                for other in parties
                if other != rank
            }
            common = min(to.values(), key=len)
            for other, tensors in to.items():
                assert len(tensors) == len(expected) + reveals.count(other), "without a row"
                rest = iter(tensors)  # the others are shares of what ``other`` is to learn
                assert all(any(np.array_equal(one, had) for had in rest) for one in common)
            sent.append(common)
        assert not letters
        # Of two parties, one has only letters in which shares of a revealed value may be.
        choices = [itertools.combinations(one, len(expected)) for one in sent]
        left = {(row.how == "^", row.hidden(keys).tobytes()): row for row in expected}
        assert any(_explained(choice, left) for choice in itertools.product(*choices)), "no row"
        for row in expected:
            self._use(row, keys, "opening")

    def _without_digest(self, letter: list[Any]) -> list[Any]:
        """What is opened in a letter: the first may begin with a hash of public facts."""
        return letter[1:] if type(letter[0]) is bytes and len(letter[0]) == 32 else letter

    def _use(self, row: Row, keys: Sequence[bytes], what: str) -> None:
        self.rows += 1
        for key in keys:
            for word in row.words.reshape(-1).tolist():
                place = key, row.name, word
                assert place not in self.used, f"{what}: {self.used[place]} is hidden by that word"
                self.used[place] = what


def _explained(sent: Sequence[Sequence[np.ndarray]], rows: dict[tuple[bool, bytes], Row]) -> bool:
    """Whether what all parties sent adds up to each of the rows."""
    left = dict(rows)
    for shares in zip(*sent, strict=True):
        added = functools.reduce(np.add, shares), functools.reduce(np.bitwise_xor, shares)
        keys = [(bool(bits), total.tobytes()) for bits, total in enumerate(added)]
        if not any(left.pop(key, None) for key in keys):
            return False
    return not left


def _refers(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and value[:1] in ([REF], (REF,))


def _drawn(seed: bytes, shape: Sequence[int]) -> torch.Tensor:
    count = torch.Size(shape).numel()
    words = stream_words(seed, None, np.arange(count))
    return torch.from_numpy(words.copy()).view(tuple(shape))


def _made(
    step: Action,
    operands: list[torch.Tensor],
    values: dict[int, Any],
    x: np.ndarray,
    name: StreamName,
    keys: list[bytes],
) -> Sequence[torch.Tensor]:
    def given(value: Any) -> Any:
        if type(value) is Slot:
            return values[value.index]
        return tuple(map(given, value)) if type(value) is tuple else value

    if step.op == ShareCode.LOCAL:
        number, positional, keywords = step.args
        return run_local(LOCAL_OPERATIONS[number], given(positional), keywords, 1 << 40)
    if step.op == ShareCode.PUBLIC:
        return (step.args[0].clone(),)
    if step.op == ShareCode.LINEAR:
        kernel, factor = kernel_from(*step.args[:2]), step.args[3:]
        if not factor:
            return (ring_map(kernel, operands[0]),)
        pair = (factor[0], operands[0]) if factor[1] else (operands[0], factor[0])
        return (ring_product(kernel, *pair),)
    if step.op == ShareCode.PRODUCT:
        return (ring_product(kernel_from(*step.args[:2]), *operands),)
    if step.op in GATES:
        return [torch.from_numpy(one) for one in plain_results(step, x, name, keys)]
    return (operands[0].clone(),)  # MASK: what is behind the mask; REVEAL: what is learnt


# --------------------------------------------------------------------------------------- programs


def mlp(share: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    weights = [share(one.detach(), True) for one in model.parameters()]
    hidden = F.relu(F.linear(share(torch.randn(5, 3)), *weights[:2]))
    loss = (F.linear(hidden, *weights[2:]) - share(torch.randn(5, 2))).square().sum()
    loss.backward()
    with torch.no_grad():
        weights[0] -= weights[0].grad * 0.1
    return [loss.detach(), F.linear(share(torch.randn(1, 3)), *weights[:2]), weights[3].grad]


def pictures(share: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    x = share(torch.randn(2, 1, 6, 6))
    y = F.conv2d(x, share(torch.randn(2, 1, 3, 3)))
    y = F.max_pool2d(y, 2)
    return [F.avg_pool2d(x, 2), F.conv2d(x, torch.randn(1, 1, 2, 2).fix_precision()), y]


def integers(share: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    x = share(torch.tensor([1, -(2**62), 2**63 - 1, 0, 7]))
    y = share(torch.tensor([1, 2**62, -(2**63), 5, -7]))
    z = x * y + torch.tensor([1, 2, 3, 4, 5])
    z[1:3] = y[:2]
    many = share(torch.arange(-40, 40))
    return [x < y, x == y, z, x.refresh(), many == 3, (many >= 0) * many, many.relu()]


PROGRAMS = [mlp, pictures, integers]


@pytest.fixture(params=[2, 3])
def workers(request: pytest.FixtureRequest, hook: sy.TorchHook) -> dict[str, Any]:
    names = [*("alice", "bob", "carl")[: request.param], "dealer", "olga"]
    return {name: sy.VirtualWorker(hook, id=name) for name in names}


def among(workers: dict[str, Any]) -> dict[str, Any]:
    parties = [one for name, one in workers.items() if name not in ("dealer", "olga")]
    return {"workers": parties, "provider": workers["dealer"]}


def sharing(workers: dict[str, Any], dealer: int | None = None) -> Callable[..., torch.Tensor]:
    parties, provider = among(workers).values()
    settings = {"crypto_provider": provider if dealer is None else parties[dealer]}

    def share(x: torch.Tensor, requires_grad: bool = False) -> torch.Tensor:
        if x.is_floating_point():
            x = x.fix_precision()
        allowed = dealer is not None
        return x.share(
            *parties, **settings, requires_grad=requires_grad, allow_dealing_party=allowed
        )

    return share


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_what_workers_receive_is_in_the_ledger(
    hook: sy.TorchHook, workers: dict[str, Any], program: Callable[..., list[torch.Tensor]]
) -> None:
    with hook.record() as log:
        results = [result.get() for result in program(sharing(workers))]
    audit = Audit(log, workers)
    assert audit.rows > 20 and len(audit.used) > 500 and results


@pytest.mark.parametrize("dealer", [0, 1, -1])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__)
def test_a_party_that_deals_gives_the_others_nothing_more(
    hook: sy.TorchHook,
    workers: dict[str, Any],
    program: Callable[..., list[torch.Tensor]],
    dealer: int,
) -> None:
    with hook.record() as log:
        share = sharing(workers, dealer)
        kept = share(torch.tensor([1]))
        results = [result.get() for result in program(share)]
    audit = Audit(log, workers)
    assert audit.rows > 15 and len(audit.used) > 500 and results and kept.get().tolist() == [1]


def test_splits_and_reveals_are_in_the_ledger(hook: sy.TorchHook, workers: dict[str, Any]) -> None:
    parties, provider = among(workers).values()
    secret = torch.randint(-(2**62), 2**62, (40,))
    held = [secret.send(workers[name]) for name in ("olga", "alice", parties[-1].id)]
    with hook.record() as log:
        x, y, z = (one.share(*parties, crypto_provider=provider) for one in held)
        pointers = [(x * y).reveal(to=party) for party in parties]
        both = x + z
    audit = Audit(log, workers)
    assert audit.codes[ShareCode.REVEAL] == len(parties) and audit.rows > 5
    assert all(torch.equal(pointer.get(), secret * secret) for pointer in pointers)
    assert torch.equal(both.get(), 2 * secret)


def test_every_instruction_has_rows_and_is_met(hook: sy.TorchHook, workers: dict[str, Any]) -> None:
    assert set(OPENED) == set(ShareCode), "say in the ledger what a new instruction opens"
    with hook.record() as log:
        for program in PROGRAMS:
            for result in program(sharing(workers)):
                result.get()
        sharing(workers)(torch.arange(3)).reveal(to=workers["bob"])
    assert set(Audit(log, workers).codes) == set(ShareCode)
