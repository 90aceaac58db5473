"""PrivateGridNetwork: several workers that are searched together.

All are asked before the first answer is waited for, so a search takes as long as the slowest
worker.  A worker that cannot be reached must not spoil what the others hold: it is left out, noted
and warned of.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from syft.callers import warn_user
from syft.exceptions import SyftError, UnusableSetting, WorkerClosed, WorkerTimeout
from syft.workers.labels.guards import without_frames
from syft.workers.shells.worker import Worker, pointers_found, words_in
from syft.workers.wire.messages import Search


class PrivateGridNetwork:
    """The workers whose names are known to this program, in this process or in others.

    Raises :class:`~syft.exceptions.UnusableSetting` for what is no worker.

    >>> sy.PrivateGridNetwork(alice, bob)
    <PrivateGridNetwork of alice, bob>
    """

    def __init__(self, *workers: Any) -> None:
        for worker in workers:
            if not isinstance(worker, Worker):
                raise UnusableSetting("workers", "workers", f"a {type(worker).__name__}")
        self.workers: list[Any] = list(workers)
        self.unreachable: dict[str, SyftError] = {}
        """Why workers were left out of the last search, by their names."""

    def search(self, *query: str) -> dict[str, list[Any]]:
        """Pointers to what carries every word of ``query`` as a tag, by the name of its worker.

        Workers that hold nothing of the kind are not in it.  A worker that is closed, lost, or does
        not answer within its ``timeout``, is left out too: a warning names it, and
        ``grid.unreachable`` says why.  Any other error is raised when all have answered.

        >>> ids = bob.hold(torch.ones(2).tag("#mnist", "#data"))
        >>> grid = sy.PrivateGridNetwork(alice, bob)
        >>> grid.search("#mnist", "#data")  # doctest: +NORMALIZE_WHITESPACE
        {'bob': [(Wrapper)>[PointerTensor | me:... -> bob:...]
            Tags: #data #mnist
            Shape: torch.Size([2])]}
        """
        self.unreachable = {}
        errors: list[Exception] = []
        answers: dict[str, Callable[[], list[Any]]] = {}
        words = words_in(query)
        found: dict[str, list[Any]] = {}
        for worker in self.workers:
            with self._noting(worker.id, errors):
                answers[worker.id] = _search_later(worker, words)
        for name, answer in answers.items():
            with self._noting(name, errors):
                found[name] = answer()
        if errors:
            raise errors[0]
        if self.unreachable:
            reasons = "; ".join(map(str, self.unreachable.values()))
            warn_user(f"Left out of the search: {reasons}")
        return {name: pointers for name, pointers in found.items() if pointers}

    @contextlib.contextmanager
    def _noting(self, name: str, errors: list[Exception]) -> Iterator[None]:
        """Note that a worker cannot be reached, and keep other errors until all have answered."""
        try:
            yield
        except (WorkerClosed, WorkerTimeout) as error:
            noted: Any = without_frames(error)
            self.unreachable[name] = noted
        except Exception as error:
            errors.append(without_frames(error))

    def __repr__(self) -> str:
        names = ", ".join(worker.id for worker in self.workers)
        return f"<PrivateGridNetwork of {names or 'nobody'}>"


def _search_later(worker: Any, words: tuple[str, ...]) -> Callable[[], list[Any]]:
    """Ask a worker; returns the function that waits for its answer."""
    connection = worker.connection()
    answer = connection.ask_later(Search, words)
    return lambda: pointers_found(connection, answer())
