"""Which leaves have a gradient after a backward pass that is held back: known from the last time.

An optimizer asks each parameter for its gradient.  The answer follows from the operations since the
gradients were known, and from what they are given; so where the same operations on the same leaves
were asked about before, the answer is that of then, and nothing has to be sent.  It says what kind
of gradient there is, never a value.

What is not one of the operations must be as it was: which of the inputs require gradients, what
graphs are behind them, and what gradients there were before.  An input is the same object, or a
tensor that was sent without a graph, of the same kind as then.  Whatever may change one of these
has the answers forgotten.  The worker compares as well: should it find another kind of gradient, it
says so, and nothing is computed with that.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import torch

from syft.ops.table import ALTERS, FLAGS, GRADIENT, INPLACE, NOTHING, SETS_GRADIENT, ops_where
from syft.workers.wire.definitions import InputKind
from syft.workers.wire.references import REF, REFS

_MOST_ANSWERS: Final = 256
_MOST_PLAIN: Final = 1 << 12

_SETTING: Final = ops_where("sets", "requires_grad")
WRITING: Final = INPLACE | NOTHING | ALTERS
"""The flags of operations that change something."""


class KnownGradients:
    """The kinds of gradients that were asked for, by what had been asked to be done before.

    >>> known = KnownGradients(hook.local_worker.connection_to(bob))
    >>> known.find("a key") is None
    True
    """

    __slots__ = ("_answers", "_connection", "_plain")

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._answers: dict[Hashable, tuple[int, ...]] = {}
        self._plain: dict[int, Hashable] = {}

    @property
    def used(self) -> bool:
        """Whether anything is kept."""
        return bool(self._answers or self._plain)

    def note_sent(self, id: int, value: Any) -> None:
        """Note a tensor that was sent, if it has no graph and begins none."""
        if type(value) is torch.Tensor and not value.requires_grad:
            while len(self._plain) >= _MOST_PLAIN:
                del self._plain[next(iter(self._plain))]
            self._plain[id] = value.dtype, value.shape, value.layout, value.device

    def note(self, op: int, args: Sequence[Any]) -> None:
        """Note an operation: what it changes may have another graph then, or require a gradient."""
        if FLAGS[op] & WRITING and not FLAGS[op] & (GRADIENT | SETS_GRADIENT):
            if torch.is_grad_enabled() or op in _SETTING:
                self._note_write(args[0] if args else None)

    def _note_write(self, target: Any) -> None:
        if type(target) in (tuple, list) and target[:1] in ((REF,), [REFS]):
            for id in target[1:]:
                self._plain.pop(id, None)
        self._answers.clear()

    def key(self, batch: Any, links: Sequence[Any]) -> Hashable | None:
        """What the gradients of leaves follow from, after the operations of a batch; None if that
        is not known."""
        facts = self._connection.facts
        if facts.passes != batch.first_pass + batch.passes or not batch.passes:
            return None
        before = []
        for link in links:
            passes, gradient = link.gradient_known or (-1, None)
            if passes < batch.first_pass:
                return None
            before.append((passes - batch.first_pass, gradient is None))
        given = tuple(map(self._kind, batch.inputs, batch.kinds))
        ids = tuple([link.id_at_location for link in links])
        modes = batch.flags, batch.autocast
        return batch.key(), modes, facts.alterations, given, ids, tuple(before)

    def _kind(self, given: Any, kind: int) -> Hashable:
        """What gradients may follow from in an input."""
        if kind == InputKind.REFERENCE:
            kind_sent: Hashable = self._plain.get(given, given)
            return kind_sent
        if isinstance(given, torch.Tensor):
            return given.dtype, given.shape, given.requires_grad
        return kind

    def find(self, key: Hashable) -> tuple[int, ...] | None:
        """The kinds of gradients that were found before, by :meth:`key`."""
        return self._answers.get(key)

    def learn(self, key: Hashable, kinds: Sequence[int]) -> None:
        """Keep what the worker has answered."""
        if len(self._answers) >= _MOST_ANSWERS:
            self._answers.clear()
        self._answers[key] = tuple(kinds)
