"""An optimizer for each worker, of one that is given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.optim import Optimizer

from syft.exceptions import UnknownWorker, UnusableSetting


class Optims:
    """One optimizer for each worker, over the same parameters and with the settings of ``optim``: a
    model that goes from worker to worker then has averages of its own at each, as with momentum or
    Adam.  They begin without averages, also if ``optim`` has some.

    >>> model = torch.nn.Linear(1, 1)
    >>> optims = Optims(["bob", "alice"], optim=torch.optim.Adam(model.parameters(), lr=0.1))
    >>> optims.get_optim("bob") is optims.get_optim("alice"), optims.count()
    (False, 2)
    """

    def __init__(self, workers: Iterable[Any], optim: Optimizer) -> None:
        if not isinstance(optim, Optimizer):
            expected = "an optimizer, as torch.optim.Adam(model.parameters()) is"
            raise UnusableSetting("optim", expected, f"a {type(optim).__name__}")
        kind: Any = type(optim)
        names = [worker if isinstance(worker, str) else worker.id for worker in workers]
        self.optimizers: dict[str, Optimizer] = {
            name: kind([dict(group) for group in optim.param_groups]) for name in names
        }

    def get_optim(self, worker: Any) -> Optimizer:
        """That of a worker, or of the worker of a name; raises
        :class:`~syft.exceptions.UnknownWorker` for one that has none."""
        name = worker if isinstance(worker, str) else worker.id
        if name not in self.optimizers:
            raise UnknownWorker(name, "Optims", tuple(self.optimizers))
        return self.optimizers[name]

    def count(self) -> int:
        """How many there are."""
        return len(self.optimizers)
