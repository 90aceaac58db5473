"""Function-level links before a tensor in this process: what all of them do alike.

Such a link adds something to every operation (it logs, counts, checks), and torch runs the
operation on the tensor behind it, which may be plain or the head of another chain.  By default the
link is taken off each argument, the operation is called, and a new link is put on each resulting
tensor.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from syft.chain.link import Delivery, Level, Link
from syft.chain.wrapper import Wrapper, first_link, links_in, wrap
from syft.exceptions import LocationMismatch, UnsupportedOperation
from syft.ops.calls import mutated_argument
from syft.ops.nested import Arguments, Keywords, replace
from syft.ops.table import flags_of
from syft.torch_private import custom_function, inside_custom_function


class LocalLink(Link):
    """A function-level link before a tensor in this process. Abstract.

    A subclass overrides :meth:`on_call`, or enters rules for single operations with
    ``@MyTensor.rule(torch.add)``: functions of ``(operation, args, kwargs)`` that get arguments
    without links and return a result without links.

    >>> class Counting(sy.LocalLink):
    ...     calls = 0
    ...     @classmethod
    ...     def on_call(cls, operation, args, kwargs):
    ...         cls.calls += 1
    ...         return operation(*args, **kwargs)
    >>> x = Counting().on(torch.ones(2))
    >>> x + x, Counting.calls
    ((Wrapper)>Counting>tensor([2., 2.]), 1)
    """

    __slots__ = ("tensor",)

    level: ClassVar[Level] = Level.FUNCTION

    def __init__(self) -> None:
        self.tensor: torch.Tensor | None = None

    def on(self, tensor: torch.Tensor) -> Wrapper:
        """Put this link before ``tensor`` and return the wrapper at the head of the chain.

        >>> LocalLink().on(torch.ones(2))
        (Wrapper)>LocalLink>tensor([1., 1.])
        """
        self.tensor = tensor
        return wrap(self)

    def like(self) -> LocalLink:
        """A new link of the same kind, for a tensor computed from this one's.

        >>> type(LocalLink().like()).__name__
        'LocalLink'
        """
        return type(self)()

    @property
    def child(self) -> Any:
        """The next link of the chain, or the plain tensor at its end.

        >>> LocalLink().on(LocalLink().on(torch.ones(2))).child.child
        LocalLink>tensor([1., 1.])
        """
        return self.tensor.child if type(self.tensor) is Wrapper else self.tensor

    def tensor_behind(self) -> torch.Tensor | None:
        """The tensor the link stands before.

        >>> LocalLink().on(torch.ones(2)).child.tensor_behind()
        tensor([1., 1.])
        """
        return self.tensor

    def show(self) -> str:
        """``LoggingTensor>tensor([1., 2.])``.

        >>> LocalLink().on(torch.ones(2)).child.show()
        'LocalLink>tensor([1., 1.])'
        """
        child = self.child
        return f"{type(self).__name__}>{child.show() if isinstance(child, Link) else repr(child)}"

    def place(self) -> str:
        """Where the tensor behind the link is.

        >>> LocalLink().on(torch.ones(2)).child.place()
        'LocalLink'
        """
        return self.tensor.child.place() if type(self.tensor) is Wrapper else type(self).__name__

    def _attached(self) -> torch.Tensor:
        if self.tensor is None:
            raise LocationMismatch(type(self).__name__, ("nowhere (no tensor attached)",))
        return self.tensor

    def _behind(self) -> Link:
        """The next link, which answers whatever this one does not change."""
        return first_link(self.tensor)

    # ------------------------------------------ what a tensor's methods call: the next link answers

    @property
    def location(self) -> Any:
        """Where the tensor behind the link is."""
        return self._behind().location

    @property
    def owner(self) -> Any:
        """The worker that holds the pointer behind the link, if there is one."""
        return self._behind().owner

    @property
    def id(self) -> int | None:
        """The id of the pointer behind the link, if there is one."""
        return self._behind().id

    @property
    def id_at_location(self) -> int | None:
        """The id of the remote object behind the link, if there is one."""
        return self._behind().id_at_location

    def remote_links(self) -> list[Any]:
        """The pointers behind the link.

        >>> LocalLink().on(torch.ones(2)).child.remote_links()
        []
        """
        return self._behind().remote_links()

    def deliver(self, tensor: torch.Tensor, delivery: Delivery) -> torch.Tensor:
        """Send this link with what is behind it, as the next link is sent."""
        return self._behind().deliver(tensor, delivery)

    def get(self, user: str | None = None, sum_results: bool = False, keep: bool = False) -> Any:
        """A link of this kind before what the next link fetches."""
        return self._before(self._behind().get(user, sum_results, keep))

    def gather(self, fetched: Iterator[Any]) -> Any:
        """A link of this kind before what the next link makes of the fetched objects."""
        return self._before(self._behind().gather(fetched))

    def _before(self, value: Any) -> Any:
        """A new link of this kind before a tensor, or before each of a list."""
        if type(value) is list:
            return [self.like().on(part) for part in value]
        return self.like().on(value)

    def move(self, location: Any, requires_grad: bool = False, user: str | None = None) -> Wrapper:
        """A link of this kind before the moved tensor."""
        return self.like().on(self._behind().move(location, requires_grad, user))

    def copy(self, memo: dict[int, Any] | None = None) -> torch.Tensor:
        """A link of this kind before a deep copy of the tensor.

        >>> LocalLink().on(torch.ones(2)).child.copy()
        (Wrapper)>LocalLink>tensor([1., 1.])
        """
        return self.like().on(copy.deepcopy(self._attached(), memo))

    def remote_get(self, user: str | None = None) -> torch.Tensor:
        """A link of this kind before the pointer behind it, whose worker fetches the data."""
        return self.like().on(self._behind().remote_get(user))

    def remote_send(self, location: Any, user: str | None = None) -> torch.Tensor:
        """A link of this kind before the pointer behind it, whose worker sends the data on."""
        return self.like().on(self._behind().remote_send(location, user))

    def convert(self, tensor: torch.Tensor, conversion: Any, args: Arguments) -> torch.Tensor:
        """A link of this kind before the converted tensor."""
        return self.like().on(self._behind().convert(self._attached(), conversion, args))

    # -------------------------------------------------------------------------------- torch calls

    @classmethod
    def on_call(cls, operation: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Run an operation that has no rule of its own, on arguments without links.

        >>> LocalLink.on_call(torch.add, (torch.ones(2), 1), {})
        tensor([2., 2.])
        """
        return operation(*args, **kwargs)

    @classmethod
    def call(cls, operation: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Run the rule, or :meth:`on_call`, on arguments without links; the results get links.

        >>> LocalLink.call(torch.add, (LocalLink().on(torch.ones(2)), 1), {})
        (Wrapper)>LocalLink>tensor([2., 2.])
        """
        if inside_custom_function():
            what, instead = custom_function()
            raise UnsupportedOperation(what, cls.__name__, instead)
        first = next(link for link in links_in(args, kwargs) if link.at_function_level)
        if not isinstance(first, LocalLink):
            return type(first).call(operation, args, kwargs)
        kind = type(first)

        def without_link(value: Any) -> Any:
            if type(value) is Wrapper and value.child.at_function_level:
                if type(value.child) is not kind:
                    raise LocationMismatch(str(operation), (first.place(), value.child.place()))
                return value.child._attached()
            return value

        def with_link(value: Any) -> Any:
            return first.like().on(value) if isinstance(value, torch.Tensor) else value

        inner_args, inner_kwargs = replace(args, without_link), replace(kwargs, without_link)
        rule = kind.rules.get(operation)
        if rule is not None:
            result = rule(operation, inner_args, inner_kwargs)
        else:
            result = kind.on_call(operation, inner_args, inner_kwargs)
        target = mutated_argument(flags_of(operation), args, kwargs)
        return replace(result, with_link) if target is None or result is None else target
