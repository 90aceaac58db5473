"""Backward passes that are limited to some inputs, where graphs go on at other workers."""

from __future__ import annotations

from typing import Any

from syft.workers.hardening.unwritten import FunctionWrapper
from syft.workers.labels.crossings import idle, limits_of


class WholePass(FunctionWrapper):
    """A torch function that runs a backward pass: refuses to leave out what another worker has.

    >>> from syft.workers.labels.crossings import Follower, note_entry
    >>> class Silent(Follower): came = send = lambda *given: None
    >>> x = torch.ones(2, requires_grad=True); y = torch.ones(2, requires_grad=True)
    >>> Silent("alice").follow(x); note_entry(y); grad = WholePass(torch.autograd.grad)
    >>> grad(x.sum(), x)
    (tensor([1., 1.]),)
    >>> grad((x + y).sum(), y)
    Traceback (most recent call last):
    ...
    syft.exceptions.UnsupportedOperation: A graph that goes on at 'alice' has no rule for ...
    """

    __slots__ = ()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        with idle(limits_of(self, args, kwargs)):
            return self.function(*args, **kwargs)
