"""The only code that writes to torch, and the way back.

Every attribute that is added to a torch class goes through one ledger, so that closing the hook can
take each away again.  Nothing that exists is ever replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syft.exceptions import HookError


class Ledger:
    """What was added to which class; :meth:`undo` removes all of it.

    >>> class Target: pass
    >>> ledger = Ledger(); ledger.add(Target, "answer", 42); Target.answer
    42
    >>> ledger.undo(); hasattr(Target, "answer")
    False
    """

    def __init__(self) -> None:
        self._added: list[tuple[type, str]] = []

    def add(self, target: type, name: str, value: Any) -> None:
        """Add an attribute to a class; raises :class:`~syft.exceptions.HookError` if it has one."""
        if hasattr(target, name):
            raise HookError(
                f"{target.__name__}.{name} exists already", "syft never replaces what torch has"
            )
        setattr(target, name, value)
        self._added.append((target, name))

    def undo(self) -> None:
        """Remove everything that was added, last first."""
        while self._added:
            target, name = self._added.pop()
            delattr(target, name)


class Attribute:
    """A computed attribute that an instance may override, which a ``property`` would forbid.

    It has ``__set__`` because torch takes every attribute of ``torch.Tensor`` that has ``__get__``
    to have that too (``torch.overrides.get_overridable_functions``, which ``torch.compile`` calls).
    """

    def __init__(self, name: str, compute: Callable[[Any], Any]) -> None:
        self._name = name
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        own = instance.__dict__
        return own[self._name] if self._name in own else self._compute(instance)

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self._name] = value

    def __delete__(self, instance: Any) -> None:
        if self._name not in instance.__dict__:
            raise AttributeError(self._name)
        del instance.__dict__[self._name]
