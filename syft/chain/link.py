"""A link: what one kind of tensor does with a torch call.

A chain is a row of links joined by ``.child``, with one :class:`~syft.chain.wrapper.Wrapper` at
its head::

    (Wrapper)>LoggingTensor>tensor([1., 2.])
    (Wrapper)>[PointerTensor | me:1 -> bob:2]

Torch hands every call on the wrapper to its first link.  A link listens at one of two doors:

* ``Level.FUNCTION`` — above autograd.  The link sees the call as written, and *somebody else's
  torch* does the work (another worker's, or the tensor's further down the chain); that torch
  records the graph, so ``.backward()`` is one more call to forward.
* ``Level.DISPATCH`` — below autograd.  The wrapper has a true shape and dtype, torch records the
  graph here, and forward and backward reach the link as aten operations that *we* compute.

A new kind of tensor is one file with one class and one table.  The class says which door, how it
shows itself, and what happens by default; the table (filled by :meth:`Link.rule`, which refuses
duplicates) says what happens for particular operations.  See ``docs/new_tensor_type.md``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch

from syft.ops.nested import Arguments, Keywords
from syft.exceptions import HookError, UnsupportedOperation

Rule = Callable[..., Any]
RuleType = TypeVar("RuleType", bound=Rule)


class Level(enum.Enum):
    """The door a link listens at: above autograd (function) or below it (dispatch).

    >>> [level.name for level in Level]
    ['FUNCTION', 'DISPATCH']
    """

    FUNCTION = "function"
    DISPATCH = "dispatch"


class Link:
    """One link of a chain. Abstract: subclasses say how they show themselves and run a call.

    A subclass sets ``level`` and overrides :meth:`call`, :meth:`show`, :meth:`place` and
    :meth:`duplicate`.  ``rules`` is made afresh for every subclass, starting from the rules of its
    parent.

    >>> import torch
    >>> from syft.chain.wrapper import wrap
    >>> class Nowhere(Link):
    ...     def show(self):
    ...         return "Nowhere"
    >>> wrap(Nowhere())
    (Wrapper)>Nowhere
    """

    __slots__ = ("__weakref__",)

    level: ClassVar[Level] = Level.FUNCTION
    at_function_level: ClassVar[bool] = True
    rules: ClassVar[dict[Any, Rule]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.rules = dict(cls.rules)
        cls.at_function_level = cls.level is Level.FUNCTION

    @classmethod
    def rule(cls, *operations: Any) -> Callable[[RuleType], RuleType]:
        """Enter the decorated function in this class's table, for each of ``operations``.

        ``operations`` are torch functions (``torch.add``, ``torch.Tensor.add``,
        ``torch.Tensor.shape.__get__``) at function level and aten overloads
        (``torch.ops.aten.add.Tensor``) at dispatch level. Raises
        :class:`~syft.exceptions.HookError` for an operation that has a rule in this class already.

        >>> class Adding(Link):
        ...     pass
        >>> @Adding.rule(torch.add, torch.Tensor.add)
        ... def _add(*args, **kwargs):
        ...     return "added"
        >>> Adding.rules[torch.add] is _add, torch.add in Link.rules
        (True, False)
        """

        def enter(handler: RuleType) -> RuleType:
            for operation in operations:
                inherited = getattr(cls.__base__, "rules", {})
                if cls.rules.get(operation) is not inherited.get(operation):
                    raise HookError(
                        f"{cls.__name__} has two rules for {operation}", "keep one of them"
                    )
                cls.rules[operation] = handler
            return handler

        return enter

    # ------------------------------------------------------------------ what a subclass answers

    @classmethod
    def call(cls, operation: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Run one torch call in which a wrapper over this kind of link takes part.

        ``operation`` is a torch function or an aten overload, by level; ``args`` and ``kwargs``
        hold wrappers.

        >>> Link.call(torch.add, (), {})
        Traceback (most recent call last):
        ...
        syft.exceptions.UnsupportedOperation: ...
        """
        raise UnsupportedOperation(str(operation), cls.__name__, "this kind of link runs nothing")

    def show(self) -> str:
        """The part of the repr that stands behind ``(Wrapper)>``."""
        raise NotImplementedError

    def place(self) -> str:
        """Where the data is: a worker's name, or the kind of link when it is in this process.

        >>> Link().place()
        'Link'
        """
        return type(self).__name__

    def next_in_chain(self) -> Any:
        """What ``.child`` of this link gives: the next link, or the plain tensor at the end."""
        return getattr(self, "child", None)

    def tensor_behind(self) -> torch.Tensor | None:
        """The tensor in this process that the link stands before, plain or a wrapper; or None."""
        return None

    def reference(self, connection: Any) -> tuple[int, ...] | None:
        """How a command over ``connection`` names this tensor; None if it is not over there."""
        return None

    def duplicate(self, memo: dict[int, Any]) -> torch.Tensor:
        """A deep copy, as ``copy.deepcopy`` of the wrapper gives it: a new wrapper over a new
        link."""
        raise UnsupportedOperation("copy.deepcopy", type(self).__name__, "send or compute a copy")

    def __repr__(self) -> str:
        return self.show()
