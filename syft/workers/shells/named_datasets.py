"""Data sets that an owner offers under a key, which callers train with: ``w.fit(dataset_key=...)``.

A data set is two tagged tensors, so a caller finds it by a search like any other, and who may find
and read what is decided where it always is.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from syft.chain.wrapper import Wrapper
from syft.exceptions import UnusableSetting
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.labels.origin import set_writers, writers_of

DATA: Final = "#data"
TARGET: Final = "#target"


def key_tag(key: str) -> str:
    """The tag that the two tensors of a data set have.

    >>> key_tag("xor"), key_tag("#xor")
    ('#xor', '#xor')
    """
    return key if key.startswith("#") else f"#{key}"


class NamedDatasets:
    """What the owner of a worker offers under keys; part of every worker of this process."""

    def add_dataset(self, dataset: Any, key: str) -> None:
        """Offer a data set to whoever trains at this worker, as ``fit(dataset_key=key)``.

        ``dataset`` is a ``sy.BaseDataset`` of this process, or another object with tensors
        ``data`` and ``targets``.  They are held with the tags ``#data`` and ``#target`` and that of
        the key, by which a search finds them too; what is private stays private.  Another data set
        under the same key takes the place of the first.

        Raises :class:`~syft.exceptions.UnusableSetting` for a key that is no text, a data set at a
        worker, and one with a ``transform``, which would be a function of the owner's that callers
        run.

        >>> bob.add_dataset(sy.BaseDataset(torch.eye(2), torch.arange(2)), key="two")
        >>> [len(bob.search("#two", tag)) for tag in ("#data", "#target")]
        [1, 1]
        """
        if not isinstance(key, str) or not key.strip("#"):
            raise UnusableSetting("key", "a text", repr(key))
        if getattr(dataset, "transform", None) is not None:
            instead = "without a transform: apply it to the data before"
            raise UnusableSetting("dataset", instead, "one with a transform")
        if not hasattr(dataset, "data") or not hasattr(dataset, "targets"):
            raise UnusableSetting("dataset", "a sy.BaseDataset", f"a {type(dataset).__name__}")
        parts = [_offered(dataset.data, key, DATA), _offered(dataset.targets, key, TARGET)]
        worker: Any = self
        known: dict[str, list[int]] = vars(self).setdefault("_offered", {})
        former, known[key] = known.get(key, []), worker.hold(*parts)
        store = worker.core.store
        for id in former:
            if id in store:
                store.take(id, f"the data set {key!r} was replaced")


def _offered(tensor: torch.Tensor, key: str, part: str) -> torch.Tensor:
    """The tensor under tags of its own, as private as it is; its memory is not copied."""
    if type(tensor) is Wrapper:
        raise UnusableSetting("dataset", "in this process", "one at a worker: get() it first")
    offered: Any = tensor.detach()
    protect(offered, full_guard_of(tensor))
    set_writers(offered, writers_of(tensor))
    offered._tags = {key_tag(key), part}
    return offered  # type: ignore[no-any-return]
