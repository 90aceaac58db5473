"""The wrapper: the ``torch.Tensor`` at the head of every chain, which torch's overrides call.

No torch function is replaced.  Before torch runs a function it asks the classes of the arguments:
``__torch_function__`` above autograd, ``__torch_dispatch__`` below it.  So a call on plain tensors
never runs code of this file, and one wrapper class serves both kinds of link.

Functions that would read the memory of the wrapper itself, which holds no data, are refused here:
numpy, pickling, storages, dlpack.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any, Final, NoReturn

import numpy as np
import torch

from syft.chain.chosen_methods import ChosenMethods
from syft.chain.link import PLAIN, Link
from syft.codes import TypeCode
from syft.exceptions import DataStaysPut, LocationMismatch, MalformedMessage, UnsupportedOperation
from syft.ops.nested import Arguments, Keywords, is_container, leaves, replace
from syft.program.recording.builder import FOREIGN, register_foreign
from syft.serde.expect import expect_fields
from syft.serde.packer import Packer, Unpacker
from syft.serde.registry import Operand, pack, register, unpack_at
from syft.serde.tensors.attributes import attach_attributes, pack_attributes
from syft.torch_private import (
    MKLDNN,
    DisableTorchFunctionSubclass,
    function_modes,
    hide_from_compiler,
    is_overriding,
    make_wrapper,
)

SETTINGS: dict[Any, Callable[[Arguments, Keywords], AbstractContextManager[Any]]] = {}
"""Torch's own settings for a function on dispatch-level tensors, by function.

Some functions choose a fused kernel before they reach the dispatch level; a setting makes them
consist of operations that links know.  A kind of link fills this in on import.
"""


class Wrapper(ChosenMethods, torch.Tensor):
    """A tensor whose data is elsewhere: at another worker, or inside its first link.

    Only :func:`wrap` and :func:`wrap_like` make wrappers.  ``.child`` is the first
    :class:`~syft.chain.link.Link`.

    >>> x = torch.tensor([1.0, 2.0]).send(bob)
    >>> isinstance(x, torch.Tensor), type(x).__name__, x.child
    (True, 'Wrapper', [PointerTensor | me:... -> bob:...])
    """

    child: Link

    # ------------------------------------------------------------------------ torch's overrides

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        for arg in args:
            if type(arg) is list and arg:  # of an operation on lists
                arg = arg[0]
            if type(arg) is Wrapper:
                link = arg.child
                if link.at_function_level:
                    return link.call(func, args, kwargs or {})
                break
        if (found := _function_level_link(args, kwargs)) is not None:
            return found.call(func, args, kwargs or {})
        if (instead := _INSTEAD.get(func)) is not None:
            return instead(func, *args, **(kwargs or {}))
        settings = SETTINGS.get(func)
        with DisableTorchFunctionSubclass():
            if settings is None:
                return func(*args, **(kwargs or {}))
            with settings(args, kwargs or {}):
                return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Any:
        if args and type(args[0]) is Wrapper and args[0].child.sorts_operands:
            return args[0].child.call(func, args, kwargs or {})
        if func is _COMPATIBLE:  # in inference mode
            return may_take_data(*args)
        return cls.by_first_link(func, args, kwargs or {})

    @classmethod
    def by_first_link(cls, func: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Have an operation run by the kind of link that all its wrappers have; refuse others."""
        links = links_in(args, kwargs)
        first = links[0]
        for link in links:
            if link.at_function_level:
                if func.name() == _TAKEN:
                    raise LocationMismatch("torch.Tensor.set_", (link.place(), "here"))
                return link.below(func, args, kwargs)
            if type(link) is not type(first):
                first = _kind_that_takes(func, first, link)
        return first.call(func, args, kwargs)

    # -------------------------------------------------- attributes that torch stores in C

    @property
    def data(self) -> Any:
        """The tensor without its graph (``torch.Tensor.data``), through the chain.

        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> x.requires_grad_().data.requires_grad
        False
        """
        if self.child.at_function_level:
            return self.child.call(_get_data, (self,), {})
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        if self.child.at_function_level:
            self.child.call(_set_data, (self, value), {})
            return
        value = self.child.in_its_place(value)
        if type(value) is not Wrapper or type(value.child) is not type(self.child):
            kind = type(self.child).__name__
            raise LocationMismatch("torch.Tensor.data", (f"a {kind}", place_of(value)))
        if _form(value) == _form(self):  # also a gradient, which cannot be swapped while it is one
            detached: Any = value.detach()
            self.child = detached.child
            return
        replacement = value.detach().requires_grad_(self.requires_grad)
        _keep_parameterness(self, replacement)
        replacement.grad = self.grad
        torch.utils.swap_tensors(self, replacement)  # type: ignore[no-untyped-call]

    # `model.send()` keeps the hash of a parameter: optimizers have dictionaries keyed by it.
    __hash__ = torch.Tensor.__hash__

    def __dir__(self) -> list[str]:
        return sorted({*dir(type(self)), *self.__dict__})

    # -------------------------------------------------------------------------------------- repr

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        head = "Parameter containing:\n" if getattr(self, "_is_param", False) else ""
        return f"{head}(Wrapper)>{self.child.show()}"

    __str__ = __repr__

    def _repr_html_(self) -> str | None:
        """A notebook shows this; nothing is asked of a worker for it."""
        return self.child._repr_html_()

    def __format__(self, spec: str) -> str:
        if spec and self.dim() == 0:  # as in torch, f"{loss:.3f}" reads the value
            return format(self.item(), spec)
        try:
            return format(repr(self), spec)
        except ValueError:  # a format of numbers
            if self.numel() == 1:
                return format(self.item(), spec)
        instead = "format one of them, x[0], or get() it first"
        raise UnsupportedOperation(f"format {spec!r}", "a tensor of several elements", instead)

    # ------------------------------------------------------------------------------------- copies

    def __copy__(self) -> torch.Tensor:
        """Another tensor over the same memory: a leaf of its own if it requires grad."""
        duplicate: torch.Tensor
        if not self.child.at_function_level:
            duplicate = self.view_as(self)
        elif self.child.remote_links() and self.requires_grad:
            duplicate = self.detach().requires_grad_()
        else:
            duplicate = wrap(self.child)
        _keep_parameterness(self, duplicate)
        return duplicate

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        duplicate = self.child.copy(memo) if self.child.at_function_level else _deepcopy_leaf(self)
        _keep_parameterness(self, duplicate)
        memo[id(self)] = duplicate
        return duplicate

    # --------------------------------------- functions that would bypass the chain: refused

    def _refuse(self, action: str) -> NoReturn:
        if self.child.computed() is not None:
            raise UnsupportedOperation(action, type(self.child).__name__, "call to_eager() first")
        raise DataStaysPut(action, f"(Wrapper)>{self.child.show()}".partition("\n")[0])

    def __reduce_ex__(self, protocol: Any) -> Any:
        if (plain := self.child.computed()) is None:
            self._refuse("pickling")
        plain.requires_grad_(self.requires_grad and self.is_leaf)
        kind = torch.nn.Parameter if getattr(self, "_is_param", False) else torch.Tensor
        return plain.as_subclass(kind).__reduce_ex__(protocol)  # type: ignore[no-untyped-call]

    def set_(self, *args: Any, **kwargs: Any) -> Any:  # torch's own asks no link at this level
        """Take the memory of another tensor, where that is."""
        if self.child.at_function_level:
            return self.child.call(torch.Tensor.set_, (self, *args), kwargs)
        return super().set_(*args, **kwargs)

    def apply_(self, function: Callable[[Any], Any]) -> Any:
        """Refused: a function of Python numbers would read and write memory that is not here.

        torch's own would do so without asking, and end the process.
        """
        if self.child.at_function_level:
            return self.child.call(torch.Tensor.apply_, (self, function), {})
        self._refuse("apply_()")

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """Refused unless the data is here.  Raises :class:`~syft.exceptions.DataStaysPut`.

        >>> x = torch.tensor([1.0, 2.0]).send(bob)
        >>> x.numpy()
        Traceback (most recent call last):
        ...
        syft.exceptions.DataStaysPut: ...
        """
        array = self.child.array()
        return self._refuse("numpy()") if array is None else array

    def __array__(self, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        array = self.child.array(dtype)
        return self._refuse("numpy conversion") if array is None else array

    def __array_function__(self, func: Any, types: Any, args: Arguments, kwargs: Keywords) -> Any:
        if func in _ABOUT_SHAPES:
            return func._implementation(*args, **kwargs)

        def array(value: Any) -> Any:
            return np.asarray(value) if type(value) is Wrapper else value

        return func(*replace(args, array), **replace(kwargs, array))

    def __round__(self, decimals: int | None = None) -> NoReturn:
        written = "x.round()" if decimals is None else f"x.round(decimals={decimals})"
        raise UnsupportedOperation("round(x)", type(self.child).__name__, f"write {written}")

    def __dlpack__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse("dlpack export")

    def data_ptr(self) -> NoReturn:
        """Refused: there is no memory here.  Raises :class:`~syft.exceptions.DataStaysPut`."""
        self._refuse("data_ptr()")

    def untyped_storage(self) -> NoReturn:
        """Refused: there is no memory here.  Raises :class:`~syft.exceptions.DataStaysPut`."""
        self._refuse("untyped_storage()")

    def storage(self) -> NoReturn:
        """Refused: there is no memory here.  Raises :class:`~syft.exceptions.DataStaysPut`."""
        self._refuse("storage()")

    def share_memory_(self) -> NoReturn:
        """Refused: there is no memory here.  Raises :class:`~syft.exceptions.DataStaysPut`."""
        self._refuse("share_memory_()")


def _near(name: str, about: str) -> property:
    """An attribute that asks the first link itself where nobody is between: torch's way to its
    override takes as long as the rest."""
    theirs: Any = inspect.getattr_static(torch.Tensor, name)
    get = theirs.__get__

    def read(tensor: Any) -> Any:
        link = tensor.child
        if not link.at_function_level or function_modes() or not is_overriding():
            return get(tensor)
        return link.call(get, (tensor,), {})

    read.__name__, read.__doc__ = name, about
    hide_from_compiler(read)
    return property(read, theirs.__set__, theirs.__delete__)


NEAR_ATTRIBUTES: Final = {
    "requires_grad": "Whether gradients are computed for it, through the chain.",
    "is_leaf": "Whether no graph has made it, through the chain.",
    "grad": "Its gradient where it is, through the chain; None if it has none.",
}
"""The attributes of a wrapper that ask the first link themselves."""
for _name, _about in NEAR_ATTRIBUTES.items():
    setattr(Wrapper, _name, _near(_name, _about))

_TAKEN: Final = "aten::set_.source_Tensor"

_ABOUT_SHAPES = (np.shape, np.ndim, np.size)
"""The functions of numpy that need no value."""

_PASSED_ON = frozenset((Wrapper, int, float, bool))


def _near_method(name: str, operation: Any) -> Callable[..., Any]:
    """The same for a method or an operator, which torch knows as ``operation``; torch sees to what
    is given anything but wrappers and numbers."""
    theirs: Any = getattr(torch.Tensor, name)
    computes = name in _WITH_NUMBERS

    def method(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        link = tensor.child
        between = kwargs or function_modes() or not is_overriding()
        if between or not (link.at_function_level and _PASSED_ON.issuperset(map(type, args))):
            if computes and type(args[0]) is np.ndarray:
                return theirs(*_with_number(tensor, args[0]))
            if operation is torch.Tensor.__getitem__ and type(args[0]) is str:
                instead = "a tensor has no columns of a name: the first one is x[:, 0]"
                raise UnsupportedOperation(f"x[{args[0]!r}]", type(link).__name__, instead)
            return theirs(tensor, *args, **kwargs)
        return link.call(operation, (tensor, *args), {})

    method.__name__, method.__doc__ = name, theirs.__doc__
    hide_from_compiler(method)
    return method


def _reflected(name: str) -> Callable[..., Any]:
    """The operator of what stands on the right of an array of numpy; torch sees to all else."""
    theirs: Any = getattr(torch.Tensor, name)

    def method(tensor: Any, other: Any) -> Any:
        if type(other) is np.ndarray:
            tensor, other = _with_number(tensor, other)
        return theirs(tensor, other)

    method.__name__, method.__doc__ = name, theirs.__doc__
    hide_from_compiler(method)
    return method


def _with_number(tensor: Any, array: Any) -> tuple[Any, Any]:
    """A wrapper and an array of numpy with one number, of which torch makes numpy's business: as a
    number beside a tensor of the dtype that numpy would choose."""
    link: Any = tensor.child
    if array.ndim:
        instead = "make a tensor of it, torch.from_numpy(array), and send that"
        raise UnsupportedOperation("an array of numpy", type(link).__name__, instead)
    if link.real_numbers:
        mine = torch.empty(0, dtype=tensor.dtype).numpy().dtype
        tensor = tensor.to(torch.from_numpy(np.zeros((), np.result_type(mine, array))).dtype)
    return tensor, array.item()


_WITH_NUMBERS: Final = ("__add__", "__sub__", "__mul__", "__truediv__")
NEAR: Final[dict[str, Any]] = {
    "__getitem__": torch.Tensor.__getitem__,
    "__add__": torch.Tensor.add,
    "__sub__": torch.Tensor.sub,
    "__mul__": torch.Tensor.mul,
    "__truediv__": torch.Tensor.div,
    "__matmul__": torch.Tensor.matmul,
    "sum": torch.Tensor.sum,
}
"""The methods of a wrapper that ask the first link themselves, and what torch knows them as."""
for _name, _operation in NEAR.items():
    setattr(Wrapper, _name, _near_method(_name, _operation))
for _name in ("__radd__", "__rsub__", "__rmul__", "__rtruediv__"):
    setattr(Wrapper, _name, _reflected(_name))


def reroute_near(route: Callable[[Any, Any], Any]) -> None:
    """Have ``route(method, operation)`` stand in the place of each of these methods, and of the
    functions that read attributes."""
    for name, operation in NEAR.items():
        method = getattr(Wrapper, name)
        setattr(Wrapper, name, wraps(method)(route(method, operation)))
    for name in NEAR_ATTRIBUTES:
        near = getattr(Wrapper, name)
        read = wraps(near.fget)(route(near.fget, getattr(torch.Tensor, name).__get__))
        setattr(Wrapper, name, property(read, near.fset, near.fdel))


# The compiler would trace into the worker.
hide_from_compiler(Wrapper.__torch_function__)
hide_from_compiler(Wrapper.__torch_dispatch__)

_get_data = torch.Tensor.data.__get__  # type: ignore[attr-defined]
_set_data = torch.Tensor.data.__set__  # type: ignore[attr-defined]


_COMPATIBLE: Final = torch.ops.aten._has_compatible_shallow_copy_type.default


def may_take_data(target: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether torch may give ``target`` the memory of ``source``, as ``target.data = source`` does.

    Torch asks this of no class, and a wrapper at dispatch level would pass for a dense tensor; one
    that read a plain tensor without memory would end the process.

    >>> may_take_data(torch.ones(2), torch.ones(3))
    True
    """
    if type(source) is Wrapper and type(target) is not Wrapper:
        raise UnsupportedOperation(
            "plain.data = it",
            type(source.child).__name__,
            "a plain tensor has no chain; put the wrapper in its place (module.weight = "
            "nn.Parameter(it)), or convert the module: module.share(), fix_precision() or send()",
        )
    return _COMPATIBLE.decompose(target, source)  # type: ignore[no-any-return]


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    """The data as torch's own part of a wrapper describes it."""
    shape, strides = tuple(tensor.shape), tensor.stride()
    return shape, strides, tensor.storage_offset(), tensor.dtype, tensor.device


_OPAQUE = ((), None, None, None, torch.float32, MKLDNN)
"""Size, strides, offset, memory format, dtype and layout, by position: keywords cost 30 %.

The layout is one that no plain tensor has.  So torch's C code refuses ``plain.grad = wrapper``,
which calls no override.  The size is that of a number: where torch's argument parser expects a
number (``add(x, alpha=wrapper)``) it accepts a tensor without dimensions, and calls the override.
"""

make_opaque = partial(make_wrapper, Wrapper, *_OPAQUE)


def wrap(link: Link) -> Wrapper:
    """Put a function-level link under a new wrapper (a tensor without memory: 0.8 µs).

    >>> from syft.tensors.local import LocalLink
    >>> wrap(LocalLink())
    (Wrapper)>LocalLink>None
    """
    wrapper: Wrapper = make_opaque()
    wrapper.child = link
    return wrapper


def wrap_like(link: Link, like: torch.Tensor, dtype: torch.dtype | None = None) -> Wrapper:
    """Put a dispatch-level link under a new wrapper that reports the shape, strides and device of
    ``like``.

    ``dtype`` is what the wrapper reports, if not the dtype of ``like``: a fixed-point tensor holds
    int64 and reports float32.

    >>> from syft.tensors.fixed.precision import fix_precision
    >>> link = fix_precision(torch.ones(3)).child
    >>> wrap_like(link, torch.ones(3, dtype=torch.int64), torch.float32).dtype
    torch.float32
    """
    wrapper: Wrapper = make_wrapper(
        Wrapper,
        like.shape,
        strides=like.stride(),
        storage_offset=like.storage_offset(),
        dtype=dtype or like.dtype,
        device=like.device,
    )
    wrapper.child = link
    return wrapper


def first_link(tensor: torch.Tensor | None) -> Link:
    """The link at the head of a tensor's chain; for a plain tensor :data:`~syft.chain.link.PLAIN`.

    >>> from syft.tensors.local import LocalLink
    >>> first_link(LocalLink().on(torch.ones(2))), first_link(torch.ones(2)).remote_links()
    (LocalLink>tensor([1., 1.]), [])
    """
    return tensor.child if type(tensor) is Wrapper else PLAIN


def _described(wrapper: Wrapper) -> str:
    """The name of a wrapper in errors about a recording: that of its first link."""
    link = wrapper.child
    describe = FOREIGN.get(type(link))
    return f"a {type(link).__name__}" if describe is None else describe(link)


register_foreign(Wrapper, _described)


def links_in(args: Arguments, kwargs: Keywords) -> list[Link]:
    """The links of all wrappers in the arguments, nested ones too, from left to right.

    >>> links_in((1, [torch.ones(2)]), {})
    []
    """
    links: list[Link] = []
    for arg in args:
        if type(arg) is Wrapper:
            links.append(arg.child)
        elif is_container(arg) or type(arg) is slice:
            links.extend(leaf.child for leaf in leaves(arg) if type(leaf) is Wrapper)
    if kwargs:
        links.extend(leaf.child for leaf in leaves(kwargs) if type(leaf) is Wrapper)
    return links


def place_of(value: Any) -> str:
    """Where a value is, for error texts: a worker's name, or ``"here"``.

    >>> place_of(3)
    'here'
    """
    return value.child.place() if type(value) is Wrapper else "here"


def _kind_that_takes(func: Any, one: Link, other: Link) -> Link:
    """Which of two dispatch-level links of different kinds runs a call on both."""
    if isinstance(other, one.operands):
        return one
    if isinstance(one, other.operands):
        return other
    kinds = [f"a {type(link).__name__} ({link.place()})" for link in (one, other)]
    raise LocationMismatch(str(func), tuple(kinds))


def _function_level_link(args: Arguments, kwargs: Keywords | None) -> Link | None:
    for arg in args:
        if type(arg) is Wrapper:
            if arg.child.at_function_level:
                return arg.child
        elif is_container(arg) or type(arg) is slice:
            for leaf in leaves(arg):
                if type(leaf) is Wrapper and leaf.child.at_function_level:
                    return leaf.child
    if kwargs:
        return _function_level_link(tuple(kwargs.values()), None)
    return None


def _split_by(func: Any, tensor: Any, *places: Any, **kwargs: Any) -> Any:
    """``tensor_split``, whose indices torch reads from memory without asking a link."""

    def computed(value: Any) -> Any:
        plain = value.child.computed() if type(value) is Wrapper else None
        return value if plain is None else plain

    with DisableTorchFunctionSubclass():
        return func(tensor, *map(computed, places), **replace(kwargs, computed))


def _nested_list(tensor: torch.Tensor) -> Any:
    """``tolist()`` value by value; below autograd torch has none for subclasses."""
    if (plain := first_link(tensor).computed()) is not None:
        return plain.tolist()
    return [_nested_list(part) for part in tensor.unbind(0)] if tensor.dim() else tensor.item()


_INSTEAD: Final[dict[Any, Callable[..., Any]]] = {
    torch.Tensor.tolist: lambda func, tensor: _nested_list(tensor),
    torch.tensor_split: _split_by,
    torch.Tensor.tensor_split: _split_by,
}
"""What runs in the place of functions that look into memory that a wrapper has not."""


def _keep_parameterness(old: torch.Tensor, new: torch.Tensor) -> None:
    """Copy the attribute by which ``isinstance(x, nn.Parameter)`` is decided for subclasses."""
    if getattr(old, "_is_param", False):
        new._is_param = True


def _deepcopy_leaf(tensor: Wrapper) -> torch.Tensor:
    if not tensor.is_leaf:
        raise UnsupportedOperation(
            "copy.deepcopy",
            type(tensor.child).__name__,
            "only leaves can be copied; detach first",
        )
    duplicate = tensor.detach().clone().requires_grad_(tensor.requires_grad)
    if tensor.grad is not None:
        duplicate.grad = copy.deepcopy(tensor.grad)
    return duplicate


# ------------------------------------------------------------------------------------------- codec


def _pack_wrapper(wrapper: Wrapper, packer: Packer) -> Operand:
    link = pack(wrapper.child, packer)
    if wrapper.child.at_function_level:
        return link
    return (int(TypeCode.WRAPPER), pack_attributes(wrapper, packer), link)


def _unpack_wrapper(operand: Sequence[Any], unpacker: Unpacker) -> Any:
    expect_fields(operand, 2)
    wrapper = unpack_at(operand[2], unpacker, ".link")
    if type(wrapper) is not Wrapper or wrapper.child.at_function_level:
        raise MalformedMessage("$.link", "a dispatch-level link", type(wrapper).__name__)
    return attach_attributes(wrapper, operand[1], unpacker)


register(TypeCode.WRAPPER, Wrapper, _pack_wrapper, _unpack_wrapper)
