"""The record of a plan: its id, tags, description and recording; and what sends such a plan.

Pointers to plans import plans, because they make a plan of what they fetch.  So a plan cannot
import pointers: it is sent by a :class:`PlanSender`, which the hook provides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from syft.exceptions import NotBuilt
from syft.ids import new_id
from syft.plans.building.build import BuiltPlan, Recipe, copied
from syft.workers.shells.virtual import VirtualWorker


class PlanRecord:
    """The id, tags, description and recording of a plan; ``methods`` holds those of its methods.

    ``built`` is the recording that was made or called last, and ``earlier`` are others: of calls
    with sizes or properties by which the function decided otherwise.  ``number`` is the id under
    which the plan is offered in the local worker's store.
    """

    __slots__ = ("id", "tags", "description", "built", "earlier", "methods", "number")

    def __init__(self, id: int | str | None = None) -> None:
        self.number = new_id()
        self.id: int | str = self.number if id is None else id
        self.tags: set[str] = set()
        self.description: str | None = None
        self.built: BuiltPlan | None = None
        self.earlier: list[BuiltPlan] = []
        self.methods: dict[str, PlanRecord] = {}

    def replay(self, built: BuiltPlan) -> None:
        """Make one of the recordings the one that was called last."""
        if built is not self.built and self.built is not None:
            self.earlier = [self.built, *(other for other in self.earlier if other is not built)]
            self.built = built


def copied_record(record: PlanRecord, recipe: Recipe | None, memo: dict[int, Any]) -> PlanRecord:
    """The record of a copy of a plan: another id, the same tags, and copies of the state.

    A recording that no longer holds is not copied: the call of the copy records again.

    Raises :class:`~syft.exceptions.NotBuilt` for one that no longer holds and whose state is in
    the closure of its function, because the copy could not record again.

    >>> PlanRecord("net").tags == copied_record(PlanRecord("net"), None, {}).tags
    True
    """
    duplicate = PlanRecord()
    duplicate.tags, duplicate.description = set(record.tags), record.description
    built = record.built
    if built is None:
        return duplicate
    if recipe is None or built.holds():
        duplicate.built = copied(built, recipe, memo)
    elif built.replays_only:
        raise NotBuilt("copied", built.change() or "")
    return duplicate


class PlanSender(ABC):
    """Sends plans on behalf of a worker in this process. Abstract; the hook provides one.

    >>> sorted(PlanSender.__abstractmethods__)
    ['offer', 'send']
    """

    def __init__(self, worker: VirtualWorker) -> None:
        self.worker = worker

    @abstractmethod
    def send(
        self,
        record: PlanRecord,
        built: BuiltPlan,
        locations: Sequence[VirtualWorker | str],
        garbage_collect_data: bool,
        user: str | None,
        allow: tuple[str, ...] = (),
    ) -> Any:
        """Put a copy of the plan at each location; returns the pointer to it, or to all of them."""

    @abstractmethod
    def offer(self, record: PlanRecord, built: BuiltPlan) -> None:
        """Put the plan into the worker's own store, unless the worker is a mere client."""
