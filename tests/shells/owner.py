"""What the owner of a worker does and sees, wherever the worker runs: only tests ask for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

import syft as sy
from syft.chain.wrapper import Wrapper
from syft.workers.core.stats import Stats
from syft.workers.labels.guards import Guard
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.labels.origin import set_writers, writers_of


@dataclass(frozen=True)
class Inspection:
    """What a worker holds."""

    objects: dict[int, Any]
    """By id; text stands for what is no plain tensor."""
    parked: int
    """How many operations wait for promised objects."""
    promised: list[int]
    admitted: dict[int, list[str] | None]
    """Who may read each object (None: everybody)."""
    active: bool
    """Whether operations wait, or objects are in use by some that run."""
    executions: int
    """How many collective operations are under way."""
    ended: int
    """How many it remembers that are over."""
    counters: dict[str, int]

    def __len__(self) -> int:
        return len(self.objects)


class Shown(str):
    """The repr of an object."""

    def __repr__(self) -> str:
        return str(self)


def inspect(worker: Any) -> Inspection:
    """What a worker holds, in this process or in another, once nothing is under way."""
    if isinstance(worker, sy.VirtualWorker):
        fields = _inspected(worker)
    elif worker.closed:
        return Inspection({}, 0, [], {}, False, 0, 0, {})
    else:
        worker.network.local.collect()
        fields = worker.act("inspect")
    objects = fields["objects"].items()
    shown = {id: Shown(value) if isinstance(value, str) else value for id, value in objects}
    return Inspection(**{**fields, "objects": shown})


def seed(worker: Any, number: int) -> None:
    """Seed the random numbers that a worker draws: those of its process."""
    if isinstance(worker, sy.VirtualWorker):
        torch.manual_seed(number)
    else:
        worker.act("seed", number)


def _inspected(worker: sy.VirtualWorker) -> dict[str, Any]:
    worker.collect()
    core = worker.core
    objects = core.store.objects
    guards = {id: full_guard_of(value) for id, value in objects.items()}
    return {
        "objects": {id: _shown(value) for id, value in objects.items()},
        "parked": len(core.dataflow.tasks),
        "promised": list(core.store.promised),
        "admitted": {id: guard and sorted(guard.users) for id, guard in guards.items()},
        "active": core.dataflow.active,
        "executions": len(core.sessions),
        "ended": len(core.ended),
        "counters": {name: getattr(core.stats, name) for name in Stats.__slots__},
    }


def _shown(value: Any) -> Any:
    plain = isinstance(value, torch.Tensor) and type(value) is not Wrapper
    return value if plain else repr(value)


class OwnersSide:
    """The methods of a worker that its owner calls, for a worker in another process."""

    def act(self, action: str, value: Any = None) -> Any:
        """Have the process of the worker do one of ``ACTIONS``."""
        worker: Any = self
        return worker.hub.call(worker.link, action, worker.id, value)

    def hold(self, *tensors: torch.Tensor, allow_writes: Iterable[str] = ()) -> list[int]:
        """Put tensors of the data owner into the store, with their guards."""
        guards = [full_guard_of(tensor) for tensor in tensors]
        users = [None if guard is None else sorted(guard.users) for guard in guards]
        writers = [sorted({*allow_writes, *writers_of(tensor)}) for tensor in tensors]
        ids: list[int] = self.act("hold", [*zip(tensors, users, writers, strict=True)])
        return ids

    def add_dataset(self, dataset: Any, key: str) -> None:
        """Offer a data set of the owner, as private as it is."""
        guard = full_guard_of(dataset.data)
        users = None if guard is None else sorted(guard.users)
        self.act("offer", (dataset.data, dataset.targets, users, key))

    def collect(self) -> None:
        """Bring in the ids of all dropped pointers, and let everybody finish."""
        worker: Any = self
        worker.network.local.collect()

    def clear_objects(self) -> Any:
        """Drop every object."""
        self.collect()
        self.act("clear")
        return self

    def objects_count(self) -> int:
        """How many objects the worker holds."""
        return len(inspect(self))

    def list_objects(self) -> list[int]:
        """The ids of the objects the worker holds."""
        return list(inspect(self).objects)

    @property
    def stats(self) -> Stats:
        """What reached the worker, and what it answered."""
        stats = Stats()
        for name, count in self.act("inspect")["counters"].items():
            setattr(stats, name, count)
        return stats

    def __repr__(self) -> str:
        worker: Any = self
        return f"<{type(self).__name__} id:{worker.id} #objects:{self.objects_count()}>"


def _open(hub: Any, link: Any, target: str, _: Any) -> None:
    sy.VirtualWorker(SimpleNamespace(local_worker=SimpleNamespace(network=hub)), target)


def _hold(hub: Any, link: Any, target: str, values: list[Any]) -> list[int]:
    for tensor, users, writers in values:
        protect(tensor, None if users is None else Guard(frozenset(users)))
        set_writers(tensor, writers)
    ids: list[int] = hub.hosts[target].hold(*(tensor for tensor, _, _ in values))
    return ids


def _offer(hub: Any, link: Any, target: str, value: Any) -> None:
    data, targets, users, key = value
    for tensor in (data, targets):
        protect(tensor, None if users is None else Guard(frozenset(users)))
    hub.hosts[target].add_dataset(sy.BaseDataset(data, targets), key)


def _clear(hub: Any, link: Any, target: str, _: Any) -> None:
    hub.hosts[target].clear_objects()


def _gone(hub: Any, link: Any, target: str, _: Any) -> None:
    worker = hub.workers.get(target)
    if worker is not None:
        del hub.workers[target]
        worker.close()


def _seed(hub: Any, link: Any, target: str, number: int) -> None:
    torch.manual_seed(number)


def _settle(hub: Any, link: Any, target: str, _: Any) -> bool:
    at_work = hub.is_at_work()
    return hub.flush() | hub.settle(asking=link) | at_work


ACTIONS: dict[str, Callable[[Any, Any, str, Any], Any]] = {
    "open": _open,
    "inspect": lambda hub, link, target, _: _inspected(hub.hosts[target]),
    "hold": _hold,
    "offer": _offer,
    "clear": _clear,
    "gone": _gone,
    "settle": _settle,
    "seed": _seed,
    "names": lambda hub, link, target, _: list(hub.workers),
}
