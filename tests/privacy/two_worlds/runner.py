"""Runs random programs in two worlds, and counts.

In a test they run in this process.  From the command line each handful runs in a child process,
so that an operation which ends the process, or never comes to an end, is a line of the report.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from syft.exceptions import NotSendable, ObjectNotFound, PermissionDenied
from syft.serde.errors import unpack_error
from syft.serde.frame import Frame
from syft.serde.packer import Unpacker
from syft.workers.core.peer_limits import DEFAULT_PEER_LIMITS
from syft.workers.labels.walk import elements_of
from syft.workers.wire import messages
from tests.privacy.two_worlds.generator import COMMANDS, RandomProgram
from tests.privacy.two_worlds.report import Report
from tests.privacy.two_worlds.samples import Samples
from tests.privacy.two_worlds.sizes_and_streams import limits_for
from tests.privacy.two_worlds.table_programs import ROWS, run_rows
from tests.privacy.two_worlds.world import OWNER, TwoWorlds, World, fixed, shrink

CHUNK = 400
"""The programs that a child process runs; predictions are kept from one to the next."""
PATIENCE = 120
"""The seconds that it may take for one."""
TABLE = "/table/"
"""What the seed of a program contains that goes through the table."""
MOST_SHRUNK = 20
"""The differences of a run for which the shortest program is looked for."""


def run_program(samples: Samples, seed: str, alike: bool = False, shrinking: bool = True) -> Report:
    """One program, in this process: a random one, or, with ``TABLE`` in its seed, one that goes
    through rows of the table."""
    report, wrong = Report(), ""
    with fixed():
        both = TwoWorlds(alike, DEFAULT_PEER_LIMITS if TABLE in seed else limits_for(seed))
        try:
            program = RandomProgram(both, samples, seed)
            if TABLE in seed:
                first = int(seed.rpartition("/")[2]) * ROWS
                run_rows(program, sorted(samples.expected())[first : first + ROWS])
            else:
                program.run()
            _count(report, program)
            report.sealed = count_sealed(both.worlds, program.results)
            wrong = wrong_charges(both.worlds)
        finally:
            requests, difference = both.requests, both.difference
            both.close()
    if difference is not None:
        shortest = shrink(requests, alike, both.limits) if shrinking else requests[-1:]
        report.differences.append((seed, str(difference), [one.text for one in shortest]))
    elif wrong:
        report.differences.append((seed, wrong, [one.text for one in requests]))
    return report


def wrong_charges(worlds: Sequence[World]) -> str:
    """What is charged for an object that has other memory, or more of it, by now; "" if nothing is.

    Which object that is may follow from nothing that the worlds share, so they need not differ.
    Other layouts than strided are left out: what writes to one gives it other memory each time.
    """
    for world in worlds:
        for worker in world.workers.values():
            charges, objects = worker.core.store.charges, worker.core.store.objects
            for id, charge in charges.charged.items():
                charged = {place: charges._memory[place].bytes for place in charge.storages}
                found = charges.memory_of(objects[id])
                there = {place: size for place, (_, size) in found.items()}
                only_tagged = charge.tags is not None and not charged
                if charged != there and not only_tagged and _is_strided(objects[id]):
                    charged_for, has = sorted(charged.values()), sorted(there.values())
                    return f"{id} at {worker.id} is charged as {charged_for} bytes, and has {has}"
    return ""


def _is_strided(value: Any) -> bool:
    return getattr(elements_of(value), "layout", torch.strided) is torch.strided


def _count(report: Report, program: RandomProgram) -> None:
    for _, private, succeeded in program.outcomes:
        report.commands += 1
        report.private += private
        report.succeeded += succeeded
        report.failed_publicly += not succeeded
    report.marks.update(program.marks)
    report.covered.update(program.covered)
    report.kinds.update(program.kinds)


def count_sealed(worlds: Sequence[World], results: Iterable[tuple[str, int]]) -> int:
    """The commands with a result that is there for everybody, but whose failure its owner is told
    in one of the worlds.

    The owner is admitted, so a result that she cannot read, although it is stored, is a failure
    that the observer was not told of.
    """
    return sum(any(is_sealed(world, id) for world in worlds) for _, id in results)


def is_sealed(world: World, id: int) -> bool:
    """Whether the owner is told of a failure when she asks for an object that is there."""
    for name in ("bob", "alice"):
        if id in world.workers[name].core.store.objects:
            return _is_sealed_at(world, name, id)
    return False


def _is_sealed_at(world: World, name: str, id: int) -> bool:
    core, peer = world.workers[name].core, world.peers[name, OWNER]
    reply = core.respond(Frame(messages.encode(messages.Fetch(0, id, 0, True)), []), peer)
    message = None if reply is None else messages.decode(reply.header)
    if not isinstance(message, messages.Failure):
        return False
    error, _ = unpack_error(message.error, Unpacker([]))
    return not isinstance(error, (ObjectNotFound, PermissionDenied, NotSendable))


def run_here(samples: Samples, seed: int, commands: int, alike: bool = False) -> Report:
    """So many commands, or a few more, in this process."""
    total, number = Report(), 0
    while total.commands < commands:
        total.add(run_program(samples, f"{seed}/{number}", alike))
        number += 1
    return total


# --------------------------------------------------------------------------------- in children


def run_apart(
    samples: Samples,
    seed: int,
    commands: int,
    jobs: int = 1,
    alike: bool = False,
    told: Callable[[Report], None] = lambda report: None,
    whole_table: bool = False,
) -> Report:
    """So many commands in child processes, ``jobs`` of them at a time.

    ``told`` is called with the sum so far after each child.  With ``whole_table`` the programs that
    go through the table come first.
    """
    total = Report()
    names = [f"{seed}/{number}" for number in range(-(-commands // COMMANDS))]
    if whole_table:
        names = [f"{seed}{TABLE}{at}" for at in range(-(-len(samples.expected()) // ROWS))] + names
    size = min(CHUNK, max(1, -(-len(names) // jobs)))
    chunks = iter([names[first : first + size] for first in range(0, len(names), size)])

    def started(count: int) -> list[Child]:
        shrinking = len(total.differences) < MOST_SHRUNK
        return [Child(samples, seeds, alike, shrinking) for seeds in islice(chunks, count)]

    for report in reports_of(started(jobs), lambda: started(1)):
        total.add(report)
        told(total)
    return total


def reports_of(running: list[Child], more: Callable[[], list[Child]] = list) -> Iterator[Report]:
    """The report of each child that comes to its end; after each, ``more`` are started.

    All of them are listened to at once: a child whose pipe is full waits.
    """
    while running:
        ready = wait([child.reader for child in running], PATIENCE)
        for child in [*running]:
            if child.goes_on(child.reader in ready):
                continue
            running.remove(child)
            report, rest = child.end()
            yield report
            running += more() if rest is None else [rest]


class Child:
    """A process that runs some programs, and reports each."""

    def __init__(
        self,
        samples: Samples,
        seeds: Sequence[str],
        alike: bool,
        shrinking: bool,
        run: Callable[[Samples, str, bool, bool], Report] = run_program,
    ) -> None:
        self.seeds = seeds
        self.report = Report()
        self._given = alike, shrinking, run
        self._samples = samples
        self._done, self._heard = 0, time.monotonic()
        context = multiprocessing.get_context("fork")  # it has the samples already
        self.reader, writer = context.Pipe(duplex=False)
        given = (samples, seeds, *self._given, writer)
        self._process = context.Process(target=_serve, args=given)
        self._process.start()
        writer.close()

    def goes_on(self, ready: bool) -> bool:
        """Take the report of a program, if one is ``ready``; whether more are to be expected."""
        if not ready:
            return time.monotonic() - self._heard < PATIENCE
        try:
            self.report.add(self.reader.recv())
        except EOFError:
            return False
        self._done, self._heard = self._done + 1, time.monotonic()
        return self._done < len(self.seeds)

    def end(self) -> tuple[Report, Child | None]:
        """End the process; returns its report, and another one for the programs after one that
        ended it."""
        self._process.join(1)
        code = self._process.exitcode
        self._process.kill()
        self._process.join()
        self.reader.close()
        if self._done == len(self.seeds):
            return self.report, None
        what = "did not come to an end" if code is None else f"ended the process with {code}"
        self.report.ended.append(f"program {self.seeds[self._done]} {what}")
        rest = self.seeds[self._done + 1 :]
        return self.report, Child(self._samples, rest, *self._given) if rest else None


def _serve(
    samples: Samples,
    seeds: Sequence[str],
    alike: bool,
    shrinking: bool,
    run: Callable[[Samples, str, bool, bool], Report],
    writer: Connection,
) -> None:
    torch.set_num_threads(1)  # the parent's threads are not here, and torch would wait for them
    for seed in seeds:
        writer.send(run(samples, seed, alike, shrinking))
