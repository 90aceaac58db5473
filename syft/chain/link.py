"""A link: what one kind of tensor does with a torch call.

A chain is a sequence of links joined by ``.child``, with one
:class:`~syft.chain.wrapper.Wrapper` at its head::

    (Wrapper)>LoggingTensor>tensor([1., 2.])
    (Wrapper)>[PointerTensor | me:1 -> bob:2]

Torch passes every call on the wrapper to its first link.  A link receives calls at one of two
levels:

* ``Level.FUNCTION``: above autograd.  The link receives the call as written and passes it on:
  to another worker, or to the tensor further down the chain.  The torch that runs it records the
  graph, so ``.backward()`` is one more call to pass on.
* ``Level.DISPATCH``: below autograd.  The wrapper has the true shape and dtype, torch records the
  graph here, and the link computes the aten operations of forward and backward.

The methods that the hook adds to ``torch.Tensor`` (``get``, ``move``, ``copy``, ``location``, …)
are answered by the first link as well.  The defaults in :class:`Link` are the answers of a tensor
that is in this process; :data:`PLAIN` gives them for tensors without a chain.

A new kind of tensor is one file with one class and one table.  The class sets the level, and
overrides what its kind answers differently.  The table, filled by :meth:`Link.rule`, holds what
particular operations do.  See ``docs/new_tensor_type.md``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final, Protocol, TypeVar

import torch

from syft.exceptions import HookError, NothingToGet, UnsupportedOperation
from syft.ops.nested import Arguments, Keywords
from syft.serde.registry import register_hint

Rule = Callable[..., Any]

_BELOW: Final = (
    "functionalize, jit.trace and torch.tensor(x) reach below the chain; write it with ordinary "
    "tensor operations: x.clone() in the place of torch.tensor(x)"
)
RuleType = TypeVar("RuleType", bound=Rule)


class Level(enum.Enum):
    """Where a link receives calls: above autograd (function) or below it (dispatch).

    >>> [level.name for level in Level]
    ['FUNCTION', 'DISPATCH']
    """

    FUNCTION = "function"
    DISPATCH = "dispatch"


class Delivery(Protocol):
    """The sending end of ``x.send(worker)``, as a link sees it in :meth:`Link.deliver`."""

    def put(self, tensor: torch.Tensor, sender: Any = None) -> torch.Tensor:
        """Put a copy of ``tensor`` at the worker, on behalf of worker ``sender``."""

    def put_leaf(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same, but refuse a tensor with an autograd graph behind it."""


class Link:
    """One link of a chain. Abstract: a subclass defines how it shows itself and runs a call.

    A subclass sets ``level`` and overrides :meth:`call` and :meth:`show`, and those of the other
    methods that its kind answers differently.  Each subclass has a table ``rules`` of its own,
    which starts with the rules of its parent.

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
    operands: ClassVar[tuple[type[Link], ...]] = ()
    """Other kinds of dispatch-level links that may stand beside this kind in one call."""
    real_numbers: ClassVar[bool] = True
    """Whether its dtype is that of its elements, and not of what they stand for."""
    sorts_operands: ClassVar[bool] = False
    """Whether :meth:`call` at dispatch level looks at the kinds of its operands itself."""
    goes_along: ClassVar[bool] = False
    """Whether the tensor is nobody's data, and goes to wherever it is used."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.rules = dict(cls.rules)
        cls.at_function_level = cls.level is Level.FUNCTION

    @classmethod
    def rule(cls, *operations: Any) -> Callable[[RuleType], RuleType]:
        """Enter the decorated function in the table of this class, for each of ``operations``.

        ``operations`` are torch functions (``torch.add``, ``torch.Tensor.add``,
        ``torch.Tensor.shape.__get__``) at function level and aten overloads
        (``torch.ops.aten.add.Tensor``) at dispatch level.  Raises
        :class:`~syft.exceptions.HookError` if this class has a rule for an operation already.

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

    # ------------------------------------------------------------------------------- torch calls

    @classmethod
    def call(cls, operation: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Run one torch call that has a wrapper over this kind of link among its arguments.

        ``operation`` is a torch function at function level and an aten overload at dispatch
        level; ``args`` and ``kwargs`` hold wrappers.

        >>> Link.call(torch.add, (), {})
        Traceback (most recent call last):
        ...
        syft.exceptions.UnsupportedOperation: ...
        """
        raise UnsupportedOperation(str(operation), cls.__name__, "this kind of link runs nothing")

    def below(self, operation: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Run an aten overload that torch calls in C, where it asked no link above autograd.

        >>> Link().below(torch.ops.aten.add.Tensor, (), {})
        Traceback (most recent call last):
        ...
        syft.exceptions.UnsupportedOperation: ...
        """
        raise UnsupportedOperation(str(operation), type(self).__name__, _BELOW)

    # ----------------------------------------------------------------------------- the chain itself

    def show(self) -> str:
        """The part of the repr after ``(Wrapper)>``."""
        raise NotImplementedError

    def _repr_html_(self) -> str | None:
        """A notebook shows this; None where it shows the repr."""
        return None

    def place(self) -> str:
        """Where the data is, for error texts: the name of a worker or of the kind of link.

        >>> Link().place()
        'Link'
        """
        return type(self).__name__

    def next_in_chain(self) -> Any:
        """The value of ``.child`` of this link: the next link, or the plain tensor at the end."""
        return getattr(self, "child", None)

    def tensor_behind(self) -> torch.Tensor | None:
        """The tensor in this process that this link stands before, plain or a wrapper; or None."""
        return None

    def elements(self) -> torch.Tensor | None:
        """The tensor in this process whose memory is that of the elements, a wrapper if a chain
        goes on; None if they are elsewhere.

        >>> Link().elements() is None
        True
        """
        return self.tensor_behind()

    def array(self, dtype: Any = None) -> Any:
        """The values as an array of numpy, if they are in this process; None if not.

        >>> Link().array() is None
        True
        """
        return None

    def computed(self) -> torch.Tensor | None:
        """The plain tensor that stands for the wrapper where torch stores or converts it; None if
        the values are not to be had so.

        >>> Link().computed() is None
        True
        """
        return None

    def in_its_place(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor that takes the place of this one's data, ``x.data = tensor``, as this kind."""
        return tensor

    def go_to(self, connection: Any) -> None:
        """Send the tensor over ``connection`` for good, if it goes along with what uses it."""

    def reference(self, connection: Any) -> tuple[int, ...] | None:
        """How a command over ``connection`` names this tensor; None if it is not over there."""
        return None

    def __repr__(self) -> str:
        return self.show()

    # ---------------------------------------------------------------- where the data of a tensor is

    @property
    def location(self) -> Any:
        """The worker that holds the data (several: a list); None if it is in this process."""
        return None

    @property
    def owner(self) -> Any:
        """The worker that holds the pointer; None if the data is in this process."""
        return None

    @property
    def id(self) -> int | None:
        """The pointer's own id at its owner; None if the data is in this process."""
        return None

    @property
    def id_at_location(self) -> int | None:
        """The id of the one remote object; None if the data is in this process."""
        return None

    def remote_links(self) -> list[Any]:
        """The pointers at the end of the chain: one for each worker that holds the data.

        Tags, descriptions and message groups reach the workers through these.

        >>> Link().remote_links()
        []
        """
        return []

    def shared_cell(self) -> Any:
        """The handle of the shares in which several workers hold the data; None if none do.

        >>> Link().shared_cell() is None
        True
        """
        return None

    # ----------------------------------------------------------------- what a tensor's methods call

    def deliver(self, tensor: torch.Tensor, delivery: Delivery) -> torch.Tensor:
        """Send ``tensor``, the wrapper over this link: what ``x.send(worker)`` does.

        By default a copy of the tensor is put at the worker, unless a graph is behind it.
        """
        return delivery.put_leaf(tensor)

    def get(self, user: str | None = None, sum_results: bool = False, keep: bool = False) -> Any:
        """Bring the data into this process: what ``x.get()`` does; ``keep`` leaves it there too.

        >>> Link().get()
        Traceback (most recent call last):
        ...
        syft.exceptions.NothingToGet: get(): this tensor is here already (it was never sent, or \
has been fetched). Use it as it is.
        """
        raise NothingToGet("get")

    def gather(self, fetched: Iterator[Any]) -> Any:
        """What :meth:`get` returns, made of objects that were fetched: the next ones of
        ``fetched``, one for each of :meth:`remote_links`.

        >>> Link().gather(iter(()))
        Traceback (most recent call last):
        ...
        syft.exceptions.NothingToGet: get_all(): this tensor is here already (it was never sent, \
or has been fetched). Use it as it is.
        """
        raise NothingToGet("get_all")

    def move(self, location: Any, requires_grad: bool = False, user: str | None = None) -> Any:
        """Move the data to another worker: what ``x.move(worker)`` does.

        Returns a wrapper over this same link if the data is at ``location`` already.
        """
        raise NothingToGet("move")

    def copy(self, memo: dict[int, Any] | None = None) -> torch.Tensor:
        """A copy with its own memory, where the data is: what ``x.copy()`` and ``deepcopy`` do.

        Dispatch-level wrappers are copied by their own operations and do not call this.
        """
        raise UnsupportedOperation("copy.deepcopy", type(self).__name__, "send or compute a copy")

    def over(self, elements: torch.Tensor) -> torch.Tensor | None:
        """A tensor of the same kind over other elements of the same shape, without a graph; None if
        this kind does not say how to make one: then its memory is not moved.

        >>> Link().over(torch.ones(2)) is None
        True
        """
        return None

    def allow(
        self,
        users: tuple[str, ...],
        destinations: tuple[str, ...] = (),
        providers: tuple[str, ...] = (),
    ) -> torch.Tensor:
        """A copy where the data is that more users may read: what ``x.allow("ann")`` does."""
        raise NothingToGet("allow")

    def remote_get(self, user: str | None = None) -> torch.Tensor:
        """Have the worker that holds a pointer fetch the data: what ``x.remote_get()`` does."""
        raise NothingToGet("remote_get")

    def remote_send(self, location: Any, user: str | None = None) -> torch.Tensor:
        """Have the worker that holds the data send it on: what ``x.remote_send(worker)`` does."""
        raise NothingToGet("remote_send")

    def convert(self, tensor: torch.Tensor, conversion: Any, args: Arguments) -> torch.Tensor:
        """Change the representation of the data, where it is: what ``x.fix_precision()`` does.

        ``tensor`` is the wrapper over this link, ``conversion`` a
        :class:`~syft.tensors.conversions.Conversion`.
        """
        converted: torch.Tensor = conversion(tensor, *args)
        return converted


class _NoLink(Link):
    """The stand-in for a link of a tensor without a chain."""

    __slots__ = ()

    def show(self) -> str:
        return "no link"


PLAIN: Final = _NoLink()
"""Stands for the missing link of a plain tensor: it gives every default answer."""

register_hint(
    Link,
    "a kind of link travels once it has a codec: syft.serde.register(...), docs/new_tensor_type.md",
)
