"""Whoever may read a product of shares, together with the provider, learns the product alone.

The shares of a product are z_i = c_i + E b_i + a_i F, and E F at party 0 besides: the provider has
dealt a, b and c, so each share is an equation in what was opened, E and F, and so in the factors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest
import torch

import syft as sy
from syft.crypto.mask_stream import MaskStream, ZeroShares
from syft.crypto.programs.share_dealing import deal_program, deals_of
from syft.crypto.programs.share_program import ShareCode, ShareProgram, stream_of, stream_of_mask
from syft.exceptions import MalformedMessage, ObjectNotReady, SharedOperationFailed
from syft.tensors.shared.shared_values import shared_cell
from syft.tensors.shared.worker_lines import WorkerLines
from syft.workers.handlers import share_runs
from syft.workers.wire.messages import Drop, Exchange, Start
from tests.crypto.test_leakage import byte_chance
from tests.shells.child import make_worker
from tests.workers.handlers.sharing_client import Client

NAMES = "alice", "bob", "carl", "dora", "emil"
RARE = 1e-12
every_shell = pytest.mark.every_shell
SMALL = 1 << 20
X, Y = (torch.randint(-SMALL, SMALL, (24,)) for _ in range(2))


# -------------------------------------------------------------------------------------- the attack


@dataclass
class Pool:
    """What the provider has: the keys of all parties, and what it was asked to deal for."""

    keys: Sequence[bytes]
    counter: int
    program: ShareProgram

    def dealt(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """For each party a, b and c of the only product."""
        deals = deals_of(self.program)
        ((place, code, public),) = deals
        _, _, x_mask, x_shape, y_mask, y_shape, shape = public
        (_, (last,)), *_ = deal_program(deals, self.keys, self.counter)
        for rank, key in enumerate(self.keys):
            a, b = (
                MaskStream(key, stream_of_mask(mask, size, self.counter).block()).draw(size)
                for mask, size in ((x_mask, x_shape), (y_mask, y_shape))
            )
            name = stream_of(ShareCode(code), public, self.counter, place)
            drawn = MaskStream(key, name.block()).draw(shape)
            yield a, b, last if rank == len(self.keys) - 1 else drawn

    def factors(self, shares: Sequence[torch.Tensor]) -> list[set[tuple[int, int]]]:
        """For each element the small factors that fit what a reader got of all parties.

        E and F are found from their lowest bit on: all equations hold modulo each power of two.
        """
        dealt = [[one.tolist() for one in party] for party in self.dealt()]
        rows = [one.tolist() for one in shares]
        found = []
        for at in range(len(rows[0])):
            known = [(a[at], b[at], row[at] - c[at]) for (a, b, c), row in zip(dealt, rows)]
            masks = sum(a for a, _, _ in known), sum(b for _, b, _ in known)
            pairs = ((_signed(e + masks[0]), _signed(f + masks[1])) for e, f in _opened(known))
            found.append({one for one in pairs if max(map(abs, one)) <= SMALL})
        return found


def _opened(known: Sequence[tuple[int, int, int]]) -> set[tuple[int, int]]:
    """E and F from a_i, b_i and z_i - c_i of each party."""
    candidates = {(0, 0)}
    for bit in range(64):
        candidates = {
            (e + (one << bit), f + (other << bit))
            for (e, f), one, other in product(candidates, (0, 1), (0, 1))
            if _fits(known, e + (one << bit), f + (other << bit), (2 << bit) - 1)
        }
        if not 0 < len(candidates) <= 1 << 12:
            return set()
    return candidates


def _fits(known: Sequence[tuple[int, int, int]], e: int, f: int, cut: int) -> bool:
    return all(
        not (e * b + a * f + (0 if rank else e * f) - rest) & cut
        for rank, (a, b, rest) in enumerate(known)
    )


def _signed(value: int) -> int:
    return ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


def hits(pool: Pool, shares: Sequence[torch.Tensor]) -> int:
    """For how many elements reader and provider find both factors, and no others."""
    truth = zip(X.tolist(), Y.tolist(), strict=True)
    return sum(found == {one} for found, one in zip(pool.factors(shares), truth, strict=True))


class Programs:
    """The programs that were sent, as the provider of a client is told of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[tuple[int, ShareProgram]] = []
        run = WorkerLines.run

        def watched(lines: Any, counter: int, program: ShareProgram, *rest: Any) -> None:
            self.sent.append((counter, program))
            run(lines, counter, program, *rest)

        monkeypatch.setattr(WorkerLines, "run", watched)

    def pool(self, provider: Any) -> Pool:
        """What there is of the only session and product."""
        (session,) = (one for one in provider.core.store.objects.values() if "Session" in repr(one))
        (sent,) = ((number, one) for number, one in self.sent if deals_of(one))
        return Pool(session.keys, *sent)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    return Programs(monkeypatch)


def fetched(x: torch.Tensor) -> list[torch.Tensor]:
    """What a reader gets of each party."""
    cell: Any = shared_cell(x)
    cell.session.flush()
    (row,) = cell.session.lines.fetch([cell.id], None)
    return row


def stored(x: torch.Tensor, parties: Sequence[Any]) -> list[torch.Tensor]:
    """What each party holds."""
    cell: Any = shared_cell(x)
    cell.session.synchronize()
    return [party.core.store.objects[cell.id].value.clone() for party in parties]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_reader_and_provider_do_not_find_the_factors(
    hook: sy.TorchHook, programs: Programs, count: int
) -> None:
    parties = [sy.VirtualWorker(hook, id=name) for name in NAMES[:count]]
    dealer = sy.VirtualWorker(hook, id="dealer")
    x, y = (one.share(*parties, crypto_provider=dealer) for one in (X, Y))
    z = x * y
    shares, told = stored(z, parties), fetched(z)
    pool = programs.pool(dealer)
    assert hits(pool, shares) > len(X) // 2, "with the shares as they are it is found"
    assert hits(pool, told) == 0
    assert not any(one in found for found, one in zip(pool.factors(told), zip(X, Y)))
    assert torch.equal(torch.stack(told).sum(0), X * Y)


@every_shell
@pytest.mark.parametrize("count", [2, 3])
def test_nor_does_a_reader_who_deals(hook: sy.TorchHook, programs: Programs, count: int) -> None:
    """Over every kind of line: it has all that reader and provider have together."""
    parties = [make_worker(hook, id=name) for name in NAMES[:count]]
    x, y = (one.share(*parties) for one in (X, Y))
    z = x * y
    told = fetched(z)
    assert hits(programs.pool(hook.local_worker), told) == 0
    assert torch.equal(torch.stack(told).sum(0), X * Y)


# ------------------------------------------------------------------------------------ what is told

COUNT = 4096


@pytest.mark.parametrize("count", [2, 3, 5])
def test_whatever_is_fetched_is_uniform_beside_the_share(hook: sy.TorchHook, count: int) -> None:
    """So it says nothing of what the share is, to whoever knows all of it but what was opened."""
    parties = [sy.VirtualWorker(hook, id=name) for name in NAMES[:count]]
    dealer = sy.VirtualWorker(hook, id="dealer")
    x = torch.full((COUNT,), -3).share(*parties, crypto_provider=dealer)
    half = torch.full((COUNT,), 0.5).fix_precision().share(*parties, crypto_provider=dealer)
    for result in (x, x + 1, x * x, x.relu(), x > 0, x == 0, half * half, x[:COUNT].refresh()):
        shares, told = stored(result, parties), fetched(result)
        zeros = torch.stack([one - other for one, other in zip(told, shares, strict=True)])
        assert not zeros.sum(0).any()
        for words in zeros:
            assert byte_chance(words) > RARE and byte_chance(words[1:] - words[:-1]) > RARE
        if count > 2:  # nor together with one of the parties
            assert byte_chance(zeros[0] + zeros[1]) > RARE


def test_what_is_revealed_is_uniform_beside_the_share(hook: sy.TorchHook) -> None:
    parties = [sy.VirtualWorker(hook, id=name) for name in NAMES[:3]]
    x = torch.full((COUNT,), 7).share(*parties)
    shares = stored(x, parties)
    with hook.record() as log:
        pointer = x.reveal(to="bob")
        assert bool((pointer.get() == 7).all())
    letters = {
        entry.message.rank: entry.buffers[0].view(torch.int64)
        for entry in log.to("bob")
        if type(entry.message) is Exchange
    }
    assert sorted(letters) == [0, 2]
    for rank, sent in letters.items():
        assert byte_chance(sent - shares[rank]) > RARE


class Masks:
    """Every mask with which a party hid something that it told, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.words: set[int] = set()
        self.many = 0
        added = ZeroShares.added

        def watched(one: Any, share: torch.Tensor, *first: Any) -> torch.Tensor:
            total = added(one, share, *first)
            drawn = (total - share).reshape(-1).tolist()
            self.words.update(drawn)
            self.many += len(drawn)
            return total

        monkeypatch.setattr(ZeroShares, "added", watched)


@pytest.mark.parametrize("pipelined", [False, True], ids=["immediate", "queued"])
def test_no_mask_hides_two_things(
    hook: sy.TorchHook, monkeypatch: pytest.MonkeyPatch, pipelined: bool
) -> None:
    """Not where a value is asked for again, was written to, or comes from a program done again."""
    parties = [sy.VirtualWorker(hook, id=name, pipelined=pipelined) for name in NAMES[:3]]
    dealer = sy.VirtualWorker(hook, id="dealer", pipelined=pipelined)
    masks = Masks(monkeypatch)
    x = torch.arange(50).share(*parties, crypto_provider=dealer)
    for _ in range(3):
        assert torch.equal(x.get(), torch.arange(50))
    x += 1
    x.get()
    _ask_twice(monkeypatch, x)
    _fail_once(monkeypatch, x)
    assert torch.equal(x.get(), torch.arange(50) + 1)
    for party in ("alice", "alice", "carl"):
        assert torch.equal(x.reveal(to=party).get(), torch.arange(50) + 1)
    assert len(masks.words) == masks.many >= 3 * 50 * 10


def _ask_twice(monkeypatch: pytest.MonkeyPatch, x: torch.Tensor) -> None:
    """Have a value asked for once more, after all parties have told it."""
    fetch, left = WorkerLines._fetched, [1]

    def failing(*args: Any) -> Any:
        found = fetch(*args)
        if left:
            left.pop()
            raise ObjectNotReady("alice")
        return found

    monkeypatch.setattr(WorkerLines, "_fetched", failing)
    x.get()
    monkeypatch.setattr(WorkerLines, "_fetched", fetch)
    assert not left


def _fail_once(monkeypatch: pytest.MonkeyPatch, x: torch.Tensor) -> None:
    """Have a program that writes to ``x`` fail and be rolled back, and a reveal with it."""
    keep = share_runs._stored

    def failing(here: Any, *rest: Any) -> Any:
        if here.worker == "bob":
            raise MemoryError("bob is full")
        return keep(here, *rest)

    monkeypatch.setattr(share_runs, "_stored", failing)
    x *= 2
    pointer = x.reveal(to="alice")
    with pytest.raises(SharedOperationFailed, match="bob is full"):
        x.get()
    del pointer
    monkeypatch.setattr(share_runs, "_stored", keep)


@every_shell
@pytest.mark.parametrize("reading", [0, -1, 3, 1 << 63])
def test_a_reading_has_a_number_of_its_own(hook: sy.TorchHook, reading: int) -> None:
    """So that nobody has the same mask hide two values, or none at all hide one."""
    parties = [make_worker(hook, id=name) for name in NAMES[:2]]
    client = Client(hook.local_worker, parties, make_worker(hook, id="dealer"))
    client.open()
    one, other = client.share(torch.tensor([1]), torch.tensor([2]))
    client.fetch(one, parties[0], reading=3)
    for id in (one, other):
        with pytest.raises(MalformedMessage, match="reading"):
            client.fetch(id, parties[0], reading=reading)
    shares = [client.fetch(other, party, reading=2) for party in parties]
    assert torch.stack(shares).sum(0).tolist() == [2], "a lower one may still come, once"
    client.close()


def test_shares_of_two_tensors_do_not_fit_together(hook: sy.TorchHook) -> None:
    """A client who reads one of alice and another of bob gets what is uniform."""
    parties = [sy.VirtualWorker(hook, id=name) for name in NAMES[:2]]
    client = Client(hook.local_worker, parties, sy.VirtualWorker(hook, id="dealer"))
    client.open()
    ones = client.share(torch.ones(COUNT, dtype=torch.int64), torch.zeros(COUNT).long())
    shares = [client.fetch(id, party, reading=9) for id, party in zip(ones, parties, strict=True)]
    held = [party.core.store.objects[id].value for id, party in zip(ones, parties, strict=True)]
    assert byte_chance(sum(shares) - sum(held)) > RARE
    client.close()


# ------------------------------------------------------------------------ what the provider is sent


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_provider_gets_no_openings(hook: sy.TorchHook, count: int) -> None:
    """It is told what to deal for, and sent no tensor: neither what is opened, nor a share."""
    parties = [sy.VirtualWorker(hook, id=name) for name in NAMES[:count]]
    dealer = sy.VirtualWorker(hook, id="dealer")
    with hook.record() as log:
        x, y = (one.share(*parties, crypto_provider=dealer) for one in (X, Y))
        z = (X / 7).fix_precision().share(*parties, crypto_provider=dealer)
        for result in ((x * y).relu(), x < y, x == y, z * z, z / 3):
            result.get()
        (x * y).reveal(to=parties[0])
        x.refresh().get()
    got = [entry for entry in log.to("dealer")]
    assert {type(entry.message) for entry in got} <= {Start, Drop} and len(got) >= 3
    assert not any(entry.buffers for entry in got)
    assert any(type(entry.message) is Exchange for entry in log.to("alice"))
