"""The only code that writes to torch, and how it is undone.

Every attribute that is added to a torch class, and every hook that is registered with torch, goes
through one ledger, so that closing the hook can take each away again.  Nothing that exists is ever
replaced by something else; a method of torch may be *surrounded*: what stands in its place calls
it.  ``tests/test_house.py`` checks that no other file of the package writes to torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import torch

from syft.exceptions import HookError

EXTENSIONS: Final[list[tuple[type, str, Any]]] = []
"""What rooms above this one have a hook add to classes of torch: they fill it when they are
imported."""


_KEYS: Final = ("AutogradCPU", "AutogradCUDA")
"""Where torch looks for the kernel of an operation; one of torch's for every key would come before
one of ours for every key ("Autograd")."""


class Removable(Protocol):
    """The handle that torch returns for a registered hook: it removes the hook again."""

    def remove(self) -> None:
        """Remove the hook."""


class Ledger:
    """The list of everything that was added to torch; :meth:`undo` removes all of it.

    >>> class Target: pass
    >>> ledger = Ledger(); ledger.add(Target, "answer", 42); Target.answer
    42
    >>> ledger.undo(); hasattr(Target, "answer")
    False
    """

    def __init__(self) -> None:
        self._removals: list[Callable[[], object]] = []

    def add(self, target: type, name: str, value: Any) -> None:
        """Add an attribute to a class; raises :class:`~syft.exceptions.HookError` if it has one."""
        if hasattr(target, name):
            raise HookError(
                f"{target.__name__}.{name} exists already", "syft never replaces what torch has"
            )
        setattr(target, name, value)
        self._removals.append(functools.partial(delattr, target, name))

    def replace(self, target: Any, name: str, value: Any) -> None:
        """Set an attribute that a class, module or object has, until it is undone or somebody else
        sets it.

        >>> class Target: answer = 41
        >>> ledger = Ledger(); ledger.replace(Target, "answer", 42)
        >>> Target.answer, ledger.undo(), Target.answer
        (42, None, 41)
        """
        before = vars(target)[name]
        setattr(target, name, value)

        def restore() -> None:
            if vars(target).get(name) is value:  # else somebody has put another in its place
                setattr(target, name, before)

        self.when_undone(restore)

    def surround(
        self, target: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> None:
        """Put ``around(method)``, which calls the method, in the place of a method of a class.

        >>> class Target:
        ...     def answer(self): return 42
        >>> ledger, method = Ledger(), Target.answer
        >>> ledger.surround(Target, "answer", lambda method: lambda self: method(self) + 1)
        >>> Target().answer(), ledger.undo(), Target.answer is method
        (43, None, True)
        """
        method = vars(target)[name]
        self.replace(target, name, functools.update_wrapper(around(method), method))

    def implement(self, name: str, kernel: Callable[..., Any]) -> None:
        """Have torch call a function for an operation of aten that it calls in C, where no class is
        asked.  Torch's own kernel stays: the function may call ``decompose`` of the operation.

        >>> ledger, calls = Ledger(), []
        >>> ledger.implement("is_same_size", lambda x, y: calls.append("called") or True)
        >>> torch.ones(1).is_same_size(torch.ones(2)), ledger.undo()
        (True, None)
        >>> torch.ones(1).is_same_size(torch.ones(2)), calls
        (False, ['called'])
        """
        library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        for key in _KEYS:
            library.impl(name, kernel, key)  # type: ignore[no-untyped-call]
        self._removals.append([library].clear)  # without it, torch takes the kernel away

    def implement_on_open_device(self, kernels: Mapping[str, Callable[..., Any]]) -> None:
        """Have torch call functions for operations of aten on the type of device that it leaves
        open, where no tensor of a class of ours is among the arguments."""
        library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        for name, kernel in kernels.items():
            library.impl(name, kernel, "PrivateUse1")  # type: ignore[no-untyped-call]
        casts = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]
        passing_on = torch.library.fallthrough_kernel
        casts.fallback(passing_on, "AutocastPrivateUse1")  # type: ignore[no-untyped-call]
        self._removals.append([library, casts].clear)

    def shadow(self, target: type, name: str, value: Any) -> None:
        """Set an attribute of a class that a class above it has, too."""
        setattr(target, name, value)
        self._removals.append(functools.partial(delattr, target, name))

    def register(self, registration: Callable[..., Removable], function: Any) -> None:
        """Register a function with one of torch's own registrations, which return a handle."""
        self._removals.append(registration(function).remove)

    def when_undone(self, call: Callable[[], object]) -> None:
        """Have :meth:`undo` call this."""
        self._removals.append(call)

    def undo(self) -> None:
        """Remove everything that was added, last first."""
        while self._removals:
            self._removals.pop()()


class Attribute:
    """A computed attribute that an instance may override, which a ``property`` would forbid, unless
    ``assign`` says what setting it does.

    It has ``__set__`` because ``torch.overrides.get_overridable_functions``, which
    ``torch.compile`` calls, reads ``__set__`` of every attribute of ``torch.Tensor`` that has
    ``__get__``.
    """

    def __init__(
        self,
        name: str,
        compute: Callable[[Any], Any],
        assign: Callable[[Any, Any], None] | None = None,
    ) -> None:
        self._name = name
        self._compute = compute
        self._assign = assign
        self.__doc__ = compute.__doc__

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        own = instance.__dict__
        return own[self._name] if self._name in own else self._compute(instance)

    def __set__(self, instance: Any, value: Any) -> None:
        if self._assign is None:
            instance.__dict__[self._name] = value
        else:
            self._assign(instance, value)

    def __delete__(self, instance: Any) -> None:
        if self._name not in instance.__dict__:
            raise AttributeError(self._name)
        del instance.__dict__[self._name]
