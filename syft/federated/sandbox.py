"""``sy.create_sandbox(globals())``: a hook, six workers and data at each, in one line.

For notebooks and first steps.  The data sets ship with scikit-learn, so nothing is downloaded; each
worker holds an equal share of each, drawn blindly, as its owner: it can be found, used and read,
and not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final

import torch

from syft.exceptions import WorkerIdTaken
from syft.federated.partition import Partition
from syft.federated.private_grid import PrivateGridNetwork
from syft.hooks.torch_hook import TorchHook
from syft.status_line import counted
from syft.workers.shells.virtual import VirtualWorker

# A torch.Tensor.  Type checkers cannot know of the methods that the hook adds to it.
Tensor = Any

NAMES: Final = ("bob", "theo", "jason", "alice", "andy", "jon")
"""The workers of a sandbox."""

DATA_SETS: Final = ("breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine")
"""Its data sets, as scikit-learn calls them and as their tags do."""


def create_sandbox(gbs: dict[str, Any], verbose: bool = True, download_data: bool = True) -> None:
    """Put a hook, six workers and a grid of them into a dictionary, such as ``globals()``.

    The names are ``torch``, ``hook``, ``bob``, ``theo``, ``jason``, ``alice``, ``andy``, ``jon``,
    ``workers`` (a list of the six) and ``grid``
    (a :class:`~syft.federated.private_grid.PrivateGridNetwork`).  Each worker holds data with the
    tags ``#digits #data`` and ``#digits #target``, and so on for the names in ``DATA_SETS``, unless
    ``download_data`` is false (nothing is downloaded anyway).  Run again, it takes the workers that
    are there.  ``verbose`` says what is done.

    Raises :class:`ImportError` if scikit-learn is not installed, and
    :class:`~syft.exceptions.WorkerIdTaken` if one of the names is that of a worker of another kind.

    >>> names = {}
    >>> sy.create_sandbox(names, verbose=False)
    Setting up Sandbox...
    Done!
    >>> found = names["grid"].search("#digits", "#data")
    >>> sorted(found), found["bob"][0].shape
    (['alice', 'andy', 'bob', 'jason', 'jon', 'theo'], torch.Size([300, 64]))
    """
    collection = _scikit_learn() if download_data else None
    say: Callable[[str], object] = print if verbose else _silent
    print("Setting up Sandbox...")
    say("\t- Hooking PyTorch")
    hook = TorchHook(torch)
    say(f"\t- Creating Virtual Workers: {', '.join(NAMES)}")
    workers = [_worker(hook, name) for name in NAMES]
    names = DATA_SETS if collection is not None else ()
    # What is said of each is enough; without that it is shown how far this is.
    for name in names if verbose else counted(names, "create_sandbox", len(names)):
        say(f"\t- Distributing {name} (#{name}) amongst the workers")
        _distribute(name, collection, workers)
    say("\t- Storing hook, workers and a grid of them as variables")
    grid = PrivateGridNetwork(*workers)
    gbs.update(torch=torch, hook=hook, workers=workers, grid=grid)
    gbs.update(zip(NAMES, workers, strict=True))
    print("Done!")


def _silent(text: str) -> None:
    """Say nothing."""


def _scikit_learn() -> ModuleType:
    try:
        from sklearn import datasets
    except ImportError:
        raise ImportError(
            "The data of a sandbox ships with scikit-learn, which is not installed: "
            "pip install scikit-learn, or call create_sandbox(..., download_data=False)."
        ) from None
    module: ModuleType = datasets
    return module


def _worker(hook: TorchHook, name: str) -> VirtualWorker:
    """The virtual worker of that name, new or the one that is there."""
    there = hook.local_worker.network.workers.get(name)
    if there is None:
        return VirtualWorker(hook, id=name)
    if not isinstance(there, VirtualWorker):
        raise WorkerIdTaken(name)
    return there


def _distribute(name: str, collection: Any, workers: list[VirtualWorker]) -> None:
    """Have each worker hold its share of a data set, unless it does already."""
    missing = [worker for worker in workers if not worker.search([f"#{name}", "#data"])]
    if not missing:
        return
    loaded = getattr(collection, f"load_{name}")()
    data = torch.tensor(loaded.data, dtype=torch.float32, device="cpu")
    targets = torch.tensor(loaded.target, device="cpu")
    targets = targets.float() if targets.is_floating_point() else targets.long()
    everybody = torch.zeros(len(data), device="cpu")
    for worker, rows in zip(workers, Partition.iid(everybody, len(workers)), strict=True):
        if worker in missing:
            worker.hold(*_described(name, data[rows], targets[rows]))


def _described(name: str, data: Tensor, targets: Tensor) -> Iterator[Tensor]:
    """The two tensors with their tags."""
    for part, tensor in (("data", data), ("target", targets)):
        yield tensor.tag(f"#{name}", f"#{part}").describe(f"{name} of scikit-learn: the {part}")
