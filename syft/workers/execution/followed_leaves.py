"""Leaves whose gradients go to another worker, in a backward pass over private values.

A hook on such a leaf sends each gradient on when the request is done that runs the pass: torch may
call it on a thread of a device, while the thread that serves waits for the pass and holds what a
request to another worker needs.  In a pass over private values what is sent would tell of them:
whether torch comes to the leaf before the pass fails follows from values, and that something came
is seen at the other worker.  So during such a pass the hooks are silent.  After it each leaf within
reach sends one gradient, of zeros if none came.  That is so whether the pass succeeds or not.

A leaf that has got new memory shares its hook with the one before it
(:mod:`~syft.workers.execution.moved_memory`).  What came to both is added up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import torch

from syft.chain.wrapper import Wrapper
from syft.workers.labels.crossings import Follower, hooks_of
from syft.workers.labels.guards import Guard
from syft.workers.labels.reached_graph import ReachedGraph


class FollowedLeaves:
    """The leaves among ``leaves`` that a graph reaches and a hook follows, for one pass
    (:class:`~syft.workers.labels.crossings.Follower`).

    A leaf that is a chain is left alone: its gradients have no prediction.  ``has_chains`` says
    that there is one.

    >>> w = torch.ones(2, requires_grad=True)
    >>> FollowedLeaves(ReachedGraph({}, [w]), [w]).leaves
    []
    """

    def __init__(self, graph: ReachedGraph, leaves: Iterable[torch.Tensor]) -> None:
        self.leaves: list[torch.Tensor] = []
        self.has_chains = False
        self._zeros: dict[Follower, list[torch.Tensor]] = {}
        self._kept: dict[Follower, list[torch.Tensor]] = {}
        for leaf in leaves:
            followers = hooks_of(leaf)
            if not followers or not graph.reaches(leaf):
                continue
            if type(leaf) is Wrapper:
                self.has_chains = True
            else:
                self.leaves.append(leaf)
                for hook in followers:
                    self._zeros.setdefault(hook, []).extend(graph.zeros_for(leaf))

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """A context for the pass, in which the hooks keep what comes."""
        for hook in self._zeros:
            hook.kept = self._kept[hook] = []
        try:
            yield
        finally:
            for hook in self._zeros:
                hook.kept = None

    def send(self, guard: Guard) -> None:
        """Have the hooks send what they have kept, or zeros, as plain tensors with this guard.

        Raises what the first hook raises that cannot.
        """
        for hook, zeros in self._zeros.items():
            gradients = {(each.shape, each.dtype): each for each in zeros}
            plain = (each for each in self._kept[hook] if type(each) is not Wrapper)
            for kept in plain:
                gradients[kept.shape, kept.dtype] += kept.detach()
            for gradient in gradients.values():
                hook.send(gradient, guard)
