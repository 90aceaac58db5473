"""Rounds in a loop of the user's own: who takes part, who has reported in time, and where to go on.

A round asks some clients, and goes on with those that have reported.  That a client is lost, fails
or is late is a fact about the round, and no error of the loop: it stands in the record, and what
comes late is used in no round.  After each round all that the next one depends on is in one file
(:mod:`syft.federated.run_file`).  So a run whose process was killed has the bits of one that was
not, if as many clients report: which ones is in the record.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from time import monotonic
from typing import Any, Final, cast

import torch
from torch import nn

from syft.chain.wrapper import Wrapper, first_link
from syft.exceptions import (
    StoreError,
    TooFewClients,
    UnusableSetting,
    WorkerClosed,
    WorkerError,
    WorkerTimeout,
)
from syft.federated.averaging import average_of
from syft.federated.kept_state import KeptState
from syft.federated.local_batches import seed_of
from syft.federated.round_records import Missing, RoundRecord, RoundSettings, Why, sampled
from syft.federated.secure_mean import LeftFromMean, Secrecy
from syft.federated.rules import NamedRule, Rule, rule_of
from syft.federated.run_file import RunFile
from syft.federated.running_mean import LARGE, wide_enough
from syft.federated.updates import Table, Tensor, made_like, table_of
from syft.tensors.pointer import PointerTensor

_RAISED_THERE: Final = "Raised on worker "
"""How the note of an error begins that was raised at a worker."""

_UNCHANGED: Final = (
    "The round has an average, and the state that is kept is as it was before: load the average "
    "into the objects of state=, as by model.load_state_dict(round.average())"
)


@dataclass(slots=True)
class _Report:
    """An update that was reported, as what is to be waited for at its worker."""

    update: Any
    samples: float
    table: Table
    handles: dict[Any, Any]

    def there(self) -> Any:
        """The update as it was reported, as a table if it is a module."""
        return self.table if isinstance(self.update, nn.Module) else self.update

    def values(self) -> Any:
        """The update with what has come of it, as a table if it is a module."""
        table = {
            key: self.handles[key].result() if key in self.handles else x.detach()
            for key, x in self.table.items()
        }
        return table if isinstance(self.update, nn.Module) else made_like(self.update, table)


class FederatedRound:
    """One round of :func:`syft.rounds`: its clients, what they report, and what becomes of that.

    It is over when :meth:`average` or :attr:`updates` is asked for, or with the turn of the loop:
    what is reported afterwards is not used.

    >>> [round.asked for round in sy.rounds([bob, alice], count=1)]
    [('alice', 'bob')]
    """

    def __init__(self, run: FederatedRounds, number: int, asked: Sequence[str]) -> None:
        self.number = number
        """How many rounds there were before."""
        self.asked = tuple(asked)
        """The names of those who were sampled."""
        self.missing: dict[str, Missing] = {}
        """Who is known not to be in this round, and why; all of them when it is over."""
        self._run = run
        deadline = run.settings.deadline
        self._until = None if deadline is None else monotonic() + deadline
        self._reports: dict[str, _Report] = {}
        self._updates: dict[str, Any] | None = None
        self.averaged = False
        """Whether the average was asked for."""
        for name in asked:
            if name not in run.clients:
                self.missing[name] = Missing(Why.ABSENT)

    def __repr__(self) -> str:
        return f"<round {self.number} with {', '.join(self.asked)}>"

    @property
    def clients(self) -> list[Any]:
        """The workers that were sampled, but for those that are missing already.

        >>> [len(round.clients) for round in sy.rounds([bob, alice], count=2, sample=1)]
        [1, 1]
        """
        return [self._run.clients[name] for name in self.asked if name not in self.missing]

    def seed(self, client: Any) -> int:
        """A number for a generator of a client in this round; it is the same in every run.

        >>> run = sy.rounds([bob], count=1)
        >>> [round.seed(bob) == round.seed("bob") for round in run]
        [True]
        """
        place = int.from_bytes(hashlib.sha256(_name_of(client).encode()).digest()[:8], "little")
        return seed_of("client", self._run.settings.seed, self.number, place)

    @property
    def time_left(self) -> float | None:
        """Seconds until the deadline, 0 after it; None if there is none.

        >>> [29 < round.time_left <= 30 for round in sy.rounds([bob], count=1, deadline=30)]
        [True]
        """
        return None if self._until is None else max(0.0, self._until - monotonic())

    # ------------------------------------------------------------------------------- reporting

    @contextlib.contextmanager
    def attempt(self, client: Any) -> Iterator[None]:
        """A block in which a client is at work: if that fails at its worker, it is missing.

        Waiting for the worker ends at the deadline.  An error of the program itself is raised as
        ever.

        >>> bob.close()
        >>> for round in sy.rounds([bob, alice], count=1):
        ...     for client in round.clients:
        ...         with round.attempt(client):
        ...             _ = round.report(client, torch.ones(2).send(client))
        ...     print(round.average(), round.missing["bob"].why)
        tensor([1., 1.]) lost
        """
        name = self._checked(client)
        try:
            with self._limited(client):
                yield
        except Exception as error:
            found = _missing_by(error)
            if found is None:
                raise
            self._drop(name, found)

    def report(self, client: Any, update: Any, samples: float = 1) -> bool:
        """Report what a client has trained, from how many samples; False if it comes too late.

        ``update`` is a module, a table or a list of tensors, or a tensor, here or at the worker.
        Nobody waits here: the round waits until the deadline, for all of them at once.

        Raises :class:`~syft.exceptions.UnusableSetting` for a client that was not asked or has
        reported already, and for a number of samples that is negative or not finite.

        >>> for round in sy.rounds([bob], count=1):
        ...     in_time = round.report(bob, torch.ones(2).send(bob))
        ...     round.average(), in_time
        (tensor([1., 1.]), True)
        """
        name = self._checked(client)
        number = isinstance(samples, Real) and not isinstance(samples, bool)
        if not (number and 0 <= samples < float("inf")):
            raise UnusableSetting("samples", "a finite number from 0", repr(samples))
        if name in self._reports:
            raise UnusableSetting("client", "one that has not reported in this round", repr(name))
        table = table_of(update)
        if self._updates is not None or self.time_left == 0:
            self._drop(name, Missing(Why.LATE))
        if name in self.missing:
            return False
        with self.attempt(client):
            handles = self._handles(table)
            self._reports[name] = _Report(update, samples, table, handles)
        return name not in self.missing

    def _handles(self, table: Table) -> dict[Any, Any]:
        """What is to be waited for: that tensors come here; with ``secure`` that they are made."""
        away = {key: x for key, x in table.items() if type(x) is Wrapper}
        if self._run.settings.secure:
            return {key: cast(PointerTensor, first_link(x)).handle for key, x in away.items()}
        bare: dict[Any, Tensor] = {key: x.detach() for key, x in away.items()}
        return {key: x.get(user=self._run.settings.user, wait=False) for key, x in bare.items()}

    def _checked(self, client: Any) -> str:
        name = _name_of(client)
        if name not in self.asked:
            wanted = f"one that this round has asked: {', '.join(self.asked)}"
            raise UnusableSetting("client", wanted, repr(name))
        return name

    def _drop(self, name: str, missing: Missing) -> None:
        """Note why a client is missing, unless it is over and the client is in it."""
        if self._updates is None or name not in self._updates:
            self._reports.pop(name, None)
            self.missing.setdefault(name, missing)

    @contextlib.contextmanager
    def _limited(self, client: Any) -> Iterator[None]:
        """A context in which waiting for a worker ends at the deadline."""
        left = self.time_left
        worker = self._run.clients.get(_name_of(client))
        if left is None or worker is None:
            yield
        else:
            with worker.within(left):
                yield

    # ------------------------------------------------------------------------------ when it is over

    @property
    def updates(self) -> dict[str, Any]:
        """What has come in time, by the names of the clients, in the order of :attr:`asked`.

        It waits until all have reported or the deadline is over.  A module is a table of tensors.
        With ``secure`` updates are what was reported, and stay where they are.

        >>> for round in sy.rounds([bob, alice], count=1):
        ...     _ = round.report(bob, torch.ones(1).send(bob))
        ...     round.updates, str(round.missing["alice"])
        ({'bob': tensor([1.])}, 'silent')
        """
        if self._updates is None:
            self._updates = self._gathered()
        return self._updates

    @property
    def samples(self) -> dict[str, float]:
        """The numbers of samples of those whose updates are there.

        >>> for round in sy.rounds([bob], count=1):
        ...     _ = round.report(bob, torch.ones(1), samples=20)
        ...     round.samples
        {'bob': 20}
        """
        return {name: self._reports[name].samples for name in self.updates}

    def average(self) -> Any:
        """What becomes of the updates by the rule of the run, weighted by samples.

        It is a table of tensors for modules (``model.load_state_dict``), and of the kind of the
        updates otherwise.

        Raises :class:`~syft.exceptions.TooFewClients` if fewer than ``minimum`` have reported: the
        run may be resumed with this round, or the loop goes on with the next one.

        >>> for round in sy.rounds([bob, alice], count=1, rule=sy.ClippedMean(1.0)):
        ...     _ = round.report(bob, torch.tensor([9.0]).send(bob))
        ...     _ = round.report(alice, torch.tensor([0.0]).send(alice))
        ...     round.average()
        tensor([0.5000])
        """
        run, found = self._run.settings, self.updates
        if len(found) < run.minimum:
            missing = [f"{name} ({one})" for name, one in self.missing.items()]
            raise TooFewClients(f"Round {self.number}", len(found), run.minimum, tuple(missing))
        weights = list(self.samples.values()) if run.rule.weighs else None
        how = Secrecy(run.user, run.minimum) if run.secure else None
        self.averaged = True
        try:
            names = list(found)
            return average_of(list(found.values()), weights, run.rule, how, run.user, names)
        finally:
            if how is not None:
                self._leave_out(how.left_out)

    def record(self) -> RoundRecord:
        """What became of this round; it is over then.

        >>> [round.record().missing["bob"].why.value for round in sy.rounds([bob], count=1)]
        ['silent']
        """
        return RoundRecord(self.number, self.asked, self.samples, dict(self.missing))

    def _leave_out(self, gone: Mapping[str, LeftFromMean]) -> None:
        """Note whose updates are not in a secure sum, by what errors call them."""
        found = self.updates
        for label, why in gone.items():
            there = [one for one in found if label.startswith(f"{one} at ")]
            for name in [label] if label in found else there:
                found.pop(name)
                reason = why.text if why.lost else f"{why.error}: {why.text}"
                self.missing[name] = Missing(Why.LOST if why.lost else Why.FAILED, reason)

    def _gathered(self) -> dict[str, Any]:
        for name in self.asked:
            if name not in self._reports:
                self._drop(name, Missing(Why.SILENT))
        for name, report in list(self._reports.items()):
            self._wait_for(name, report)
        found = {}
        for name in self.asked:
            if name in self._reports:
                report = self._reports[name]
                found[name] = report.there() if self._run.settings.secure else report.values()
        return self._fitting(found)

    def _wait_for(self, name: str, report: _Report) -> None:
        """Wait until an update is there, or drop its client."""
        try:
            for handle in report.handles.values():
                if not handle.done() and self.time_left != 0:
                    with self._limited(name):
                        handle.wait()
                    if self.time_left == 0:
                        self._drop(name, Missing(Why.LATE))
                        return
                if not handle.done():
                    self._drop(name, Missing(Why.LATE))
                    return
                self._check_plain(handle.result())
        except Exception as error:
            found = _missing_by(error)
            if found is None:
                raise
            self._drop(name, found)

    def _check_plain(self, value: Any) -> None:
        """Raise for what has come in the place of a tensor: what leads elsewhere would be followed
        with the rights of this program."""
        if self._run.settings.secure:
            return
        if type(value) is Wrapper or not isinstance(value, torch.Tensor):
            raise _Unfit("what came is no plain tensor")

    def _fitting(self, found: dict[str, Any]) -> dict[str, Any]:
        """The updates that are alike, and numbers: the others are dropped by name.  With ``secure``
        nobody sees the numbers."""
        tables = {name: table_of(update) for name, update in found.items()}
        self._refuse_unlike(tables, _form, "names, shapes or dtypes")
        if not self._run.settings.secure:
            self._refuse_unlike(tables, _marks, "infinities or integers from 2^53 on")
        return {name: update for name, update in found.items() if name not in self.missing}

    def _refuse_unlike(
        self, tables: Mapping[str, Table], read: Callable[[Table], Any], what: str
    ) -> None:
        """Drop the clients of whose updates ``read`` gives something else than of most, or that it
        cannot read."""
        seen = {}
        for name, table in tables.items():
            if name in self.missing:
                continue
            try:
                seen[name] = read(table)
            except Exception as error:
                missing = _missing_by(error)
                if missing is None:
                    raise
                self._drop(name, missing)
        usual = Counter(seen.values()).most_common(1)[0][0] if seen else None
        for name, one in seen.items():
            if one != usual:
                self._drop(name, Missing(Why.REFUSED, f"{what} unlike those of most updates"))


class _Unfit(Exception):
    """Why an update is not averaged."""


def _form(table: Table) -> frozenset[Any]:
    """By what tables are alike before a number of them is read."""
    return frozenset((key, tuple(x.shape), x.dtype, x.is_meta) for key, x in table.items())


def _marks(table: Table) -> frozenset[Any]:
    """What has a mean only where all have the same: infinities, and integers that float64 lacks."""
    try:
        marks = {key: _mark(x) for key, x in table.items()}
    except (RuntimeError, TypeError) as error:  # torch has no numbers of such a tensor
        raise _Unfit(f"{type(error).__name__}: {error}".partition("\n")[0]) from error
    if wrong := [repr(key) for key, mark in marks.items() if mark is None]:
        raise _Unfit(f"NaN in {', '.join(wrong)}")
    return frozenset(marks.items())


def _mark(x: torch.Tensor) -> bytes | None:
    """A hash of infinities with zeros between, or of a whole tensor with large integers; None for
    NaN, and nothing for other numbers."""
    dense = x.detach() if x.layout is torch.strided else x.detach().to_dense()
    wide = dense.to(wide_enough(dense.dtype))
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        return _hash_of(dense) if bool((wide.abs() >= LARGE).any()) else b""
    if bool(wide.isnan().any()):
        return None
    infinite = wide.isinf()
    return _hash_of(torch.where(infinite, wide, 0)) if bool(infinite.any()) else b""


def _hash_of(x: torch.Tensor) -> bytes:
    numbers = x.cpu().resolve_conj().resolve_neg().numpy()
    return hashlib.sha256(numbers.tobytes()).digest()


def _name_of(client: Any) -> str:
    return client if isinstance(client, str) else str(client.id)


def _missing_by(error: Exception) -> Missing | None:
    """Why a client is missing after an error; None if it is an error of this program."""
    text = str(error).partition("\n")[0]
    if isinstance(error, WorkerTimeout):
        return Missing(Why.LATE)
    if isinstance(error, _Unfit):
        return Missing(Why.REFUSED, text)
    if isinstance(error, WorkerClosed):
        return Missing(Why.LOST, text)
    notes = getattr(error, "__notes__", ())
    if isinstance(error, WorkerError | StoreError) or any(
        note.startswith(_RAISED_THERE) for note in notes
    ):
        return Missing(Why.FAILED, f"{type(error).__name__}: {text}")
    return None


class FederatedRounds:
    """A run of rounds, which :func:`syft.rounds` makes: a loop over it gets one after the other.

    >>> run = sy.rounds([bob, alice], count=2)
    >>> [round.number for round in run]
    [0, 1]
    """

    def __init__(
        self, clients: Sequence[Any], settings: RoundSettings, state: KeptState, path: Path | None
    ) -> None:
        self.clients: dict[str, Any] = {worker.id: worker for worker in clients}
        """The workers by name.  One that was lost may be put back when it is connected again."""
        self.settings = settings
        self.names = sorted(self.clients)
        """All from whom clients are sampled; those of the file, once it is read."""
        self.history: list[RoundRecord] = []
        """What became of the rounds so far, those before a resumption among them."""
        self._state, self._path = state, path
        self._next = 0

    def __repr__(self) -> str:
        return f"<rounds with {len(self.names)} clients, the next one is {self._next}>"

    def __iter__(self) -> Iterator[FederatedRound]:
        settings = self.settings
        file = None if self._path is None else self._opened(self._path)
        try:
            while settings.count is None or self._next < settings.count:
                chosen = sampled(
                    self.names, settings.sample or len(self.names), settings.seed, self._next
                )
                before = self._state.digest() if file is not None else b""
                round = FederatedRound(self, self._next, chosen)
                yield round
                round.updates  # what has not come yet is late from now on
                self.history.append(round.record())
                self._next += 1
                if file is not None:
                    if round.averaged and before == self._state.digest():
                        warnings.warn(_UNCHANGED, stacklevel=2)
                    file.save(self._next, self._state.packed(), self.history[-1].to_json())
        finally:
            if file is not None:
                file.close()

    def _opened(self, path: Path) -> RunFile:
        """The file of this run; the state is as the file has it from now on."""
        settings = {
            **self.settings.described(),
            **self._state.described(),
        }
        file = RunFile(path, settings, sorted(self.clients), self._state.packed())
        try:
            kept = file.kept
            self.names, self._next = kept.clients, kept.number
            self.history = [RoundRecord.from_json(record) for record in kept.records]
            self._state.restore(kept.state)
        except BaseException:
            file.close()
            raise
        return file


def _check_clients(workers: Sequence[Any]) -> None:
    names = {getattr(worker, "id", None) for worker in workers}
    if not workers or len(names) != len(workers) or any(not isinstance(n, str) for n in names):
        raise UnusableSetting("clients", "one worker or more, each once", repr(workers))


def rounds(
    clients: Iterable[Any],
    *,
    count: int | None = None,
    sample: int | None = None,
    minimum: int = 1,
    deadline: float | None = None,
    seed: int = 0,
    state: Iterable[Any] = (),
    resume: str | Path | None = None,
    rule: Rule | NamedRule = "mean",
    secure: bool = False,
    user: str | None = None,
) -> FederatedRounds:
    """Rounds of federated training in a loop of your own: ``for round in sy.rounds(workers, ...)``.

    Each round asks ``sample`` of the ``clients`` (by default all), which are workers.  You send
    them the model, have them train, and report what they have.  ``round.average()`` waits until
    ``deadline`` seconds after the round has begun, and raises
    :class:`~syft.exceptions.TooFewClients` if fewer than ``minimum`` have reported.  Who is lost,
    fails or is late is in ``round.missing`` and ``run.history``, with the reason, and in no
    average.  There are ``count`` rounds, or any number.

    ``resume`` names a file.  After each round it holds ``state`` (models, optimizers, learning rate
    schedulers, generators and tensors of this process, which your loop changes in place), torch's,
    Python's and numpy's generators, and the records.  The same program, started again, goes on
    with the round after the last that ended, as if it had never been killed: the weights have the
    same bits if the same clients report.  A round that your loop leaves with ``break`` has not
    ended.  What workers keep from round to round, as averages of optimizers there, is not in the
    file.

    ``rule``, ``secure`` and ``user`` are those of :func:`syft.federated_average`.

    Raises :class:`~syft.exceptions.UnusableSetting` for settings that make no sense, and, when the
    loop begins, :class:`~syft.exceptions.FileRefused` for a file of another run, one that was cut
    or changed, or that another process uses.

    >>> model = torch.nn.Linear(1, 1)
    >>> run = sy.rounds([bob, alice], count=3, minimum=2, deadline=30, state=[model])
    >>> for round in run:
    ...     for client in round.clients:
    ...         with round.attempt(client):
    ...             copy = model.copy().send(client)
    ...             copy.weight.data += 1
    ...             _ = round.report(client, copy, samples=10)
    ...     _ = model.load_state_dict(round.average())
    >>> run.history[-1].reported
    {'alice': 10, 'bob': 10}
    """
    workers, elements = list(clients), KeptState(state)
    _check_clients(workers)
    if resume is not None and not len(elements):
        raise UnusableSetting("state", "what a resumed run goes on with, as [model]", "nothing")
    path = None if resume is None else Path(resume)
    # A file says how many it knows; a name that cannot be looked up is refused when it is opened.
    known = None if path is not None and os.path.exists(path) else len(workers)
    settings = RoundSettings(
        known, count, sample, minimum, deadline, seed, rule_of(rule), secure, user
    )
    return FederatedRounds(workers, settings, elements, path)
