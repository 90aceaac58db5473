"""BarePointer: what makes a pointer without a wrapper, as ``pointer.child.child``, act as a tensor.

Every torch call on it, every operator and every attribute is that of the wrapped pointer.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any, Final

import torch

from syft.chain.link import Link
from syft.chain.wrapper import Wrapper, wrap
from syft.ops.nested import Arguments, Keywords, replace
from syft.tensors.remote_link import RemoteLink

_METHODS: Final = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_OWN: Final = frozenset(
    ("__dir__", "__setstate__", "__format__", "__hash__", "__repr__", "__str__")
)
"""Special methods by which Python asks the link about itself."""


class BarePointer(RemoteLink):
    """A remote link that acts as a tensor where it stands without a wrapper. Abstract.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> bob = sy.VirtualWorker(hook, id="bob")
    >>> x = sy.LoggingTensor().on(torch.ones(2)).send(bob)
    >>> inside = x.child.child.child  # the tensor behind the LoggingTensor
    >>> (1 + inside).get(), (inside == 1).get(), inside.requires_grad
    (tensor([2., 2.]), tensor([True, True]), False)
    """

    __slots__ = ()

    __hash__ = Link.__hash__  # beside an `==` that compares elements: a tensor is hashed so too
    __array_priority__ = torch.Tensor.__array_priority__  # numpy leaves `array + link` to the link

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        def dressed(value: Any) -> Any:
            return wrap(value) if isinstance(value, BarePointer) else value

        return func(*replace(args, dressed), **replace(kwargs or {}, dressed))

    def __format__(self, spec: str) -> str:
        return format(wrap(self), spec) if spec else repr(self)


def _operator(name: str) -> Callable[..., Any]:
    """A special method of a bare link: what the tensor does."""

    def forward(self: BarePointer, *args: Any, **kwargs: Any) -> Any:
        result = getattr(wrap(self), name)(*args, **kwargs)
        # In place the result is the tensor itself, so `d += 1` leaves in d what was there.
        return self if type(result) is Wrapper and result.child is self else result

    forward.__name__ = name
    return forward


class _Attribute:
    """An attribute of a bare link that would hide the tensor's if it were set (``grad``)."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, link: BarePointer | None, kind: type | None = None) -> Any:
        return self if link is None else getattr(wrap(link), self._name)

    def __set__(self, link: BarePointer, value: Any) -> None:
        setattr(wrap(link), self._name, value)


class _Method:
    """An attribute of a tensor, such as a method, that no kind of link has."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, link: BarePointer | None, kind: type | None = None) -> Any:
        return self if link is None else getattr(wrap(link), self._name)


def forward_methods() -> None:
    """Have bare links forward every attribute that tensors have now and links have not.

    The hook calls this when it has added its own.  A `__getattr__` would do without, and make every
    attribute of every pointer slow to read: 50 ns more each.

    >>> forward_methods()
    >>> "add_" in dir(BarePointer), "send" in dir(BarePointer)
    (True, True)
    """
    for name in dir(torch.Tensor):
        if not (name.startswith("__") or hasattr(BarePointer, name)):
            setattr(BarePointer, name, _Method(name))


# Python looks for special methods on the class.  So the class gets every one that a wrapper has, by
# this rule and not by a list in which one may be missing.
for _name in dir(Wrapper):
    _theirs = inspect.getattr_static(Wrapper, _name)
    if inspect.isdatadescriptor(_theirs) and not _name.startswith("_"):
        setattr(BarePointer, _name, _Attribute(_name))
    elif _name.startswith("__") and isinstance(_theirs, _METHODS) and _name not in _OWN:
        if _theirs is not inspect.getattr_static(object, _name, None):
            setattr(BarePointer, _name, _operator(_name))

forward_methods()
