"""The link of lazy tensors: it records the operations of aten that reach it, or has them run.

The wrapper reports the shape, strides, dtype and device that the result will have.  Torch's
autograd works above it: forward, backward and optimizers reach this link as overloads of aten.
What is recorded and when it runs is the business of :mod:`syft.tensors.lazy.lazy_trace`.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from syft.callers import place_of_user
from syft.chain.link import Delivery, Level, Link
from syft.chain.wrapper import Wrapper
from syft.exceptions import UnsupportedOperation
from syft.ops.calls import written_by
from syft.ops.nested import Arguments, Keywords, every_tensor, replace
from syft.tensors.device_tensor import refuse_gradient
from syft.tensors.lazy.call_kinds import (
    CallKind,
    NotRecordable,
    kind_of_call,
    overload_facts,
    plain_results,
)
from syft.tensors.lazy.lazy_trace import TRACE, PendingCall
from syft.tensors.lazy.lazy_values import (
    LazyValue,
    TensorMeta,
    captured,
    meta_of,
    register_memory,
    root_at,
)
from syft.torch_private import (
    DisableTorchFunction,
    below_autograd,
    correct_aliasing,
    mark_as_turned,
    usual_keys,
)

_DETACH = torch.ops.aten.detach.default


class LazyTensor(Link):
    """A tensor whose value is computed when it is asked.

    >>> from syft.tensors.lazy.lazy_handles import to_lazy
    >>> x = to_lazy(torch.tensor([1.0, 2.0]))
    >>> y = x + 1
    >>> y
    (Wrapper)><lazy 2 float32, 1 operation behind it>
    >>> y.child.is_constant, y.sum().item(), y.child.is_constant
    (False, 5.0, True)
    """

    __slots__ = ("value",)

    level = Level.DISPATCH
    sorts_operands = True

    def __init__(self, value: LazyValue) -> None:
        self.value = value
        value.handle = weakref.ref(self)

    @property
    def is_constant(self) -> bool:
        """Whether its value is there already."""
        with TRACE.lock:
            return self.value.real is not None and not TRACE.behind(self.value)

    @classmethod
    def call(cls, operation: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Record one operation of aten, or run it now if it cannot wait."""
        if operation is _DETACH and type(args[0]) is Wrapper:
            return over(args[0].child)
        facts = overload_facts(operation)
        with TRACE.lock:
            if facts.as_view is not None and type(args[0]) is Wrapper:
                args[0].child = cls.call(facts.as_view, args, kwargs).child
                corrected: Any = correct_aliasing
                return corrected(operation, args, kwargs, args[0])
            operands: list[LazyValue] = []
            floats: list[float] = []
            try:
                kind = kind_of_call(facts, args, kwargs, operands, floats)
            except NotRecordable as reason:
                if reason.args:
                    return Wrapper.by_first_link(operation, args, kwargs)
                return run_now(operation, args, kwargs, None)
            if kind.at_once or kind.writes and _must_be_seen(kind, operands):
                return run_now(operation, args, kwargs, kind)
            TRACE.check_operands(operands)
            call = PendingCall(kind, operands, floats, place_of_user(3))
            result = _results(call, args, kwargs)
            TRACE.add(call)
            return result

    def show(self) -> str:
        """What it will be, without running anything; its value once that is there."""
        value = self.value
        with TRACE.lock:
            behind = TRACE.behind(value) if TRACE.pending else 0
        if behind or value.real is None:
            meta = value.meta
            size = "x".join(map(str, meta.shape)) or "number"
            dtype = str(meta.dtype).removeprefix("torch.")
            operations = "operation" if behind == 1 else "operations"
            failed = "failed" if value.error else f"{behind} {operations} behind it"
            return f"<lazy {size} {dtype}, {failed}>"
        return f"LazyTensor>{value.real!r}"

    def place(self) -> str:
        """Where the value is, or will be."""
        return "here"

    def array(self, dtype: Any = None) -> Any:
        """The value as an array of numpy, computed if it is not there."""
        return np.asarray(self.computed(), dtype)

    def deliver(self, tensor: torch.Tensor, delivery: Delivery) -> torch.Tensor:
        """Send the value, which is computed first: ``x.send(worker)``."""
        if tensor.grad_fn is not None:
            return delivery.put_leaf(tensor)  # refuses a tensor of a graph
        plain = self.computed().requires_grad_(tensor.requires_grad)
        if tensor.grad is not None:
            plain.grad = plain_of(value_of(tensor.grad))
        return delivery.put_leaf(plain)

    def convert(self, tensor: torch.Tensor, conversion: Any, args: Arguments) -> torch.Tensor:
        """Convert the value, which is computed first."""
        converted: torch.Tensor = conversion(self.computed(), *args)
        return converted

    def in_its_place(self, tensor: torch.Tensor) -> torch.Tensor:
        """A lazy tensor over the memory of a plain one: ``x.data = plain``."""
        return captured_here(tensor) if type(tensor) is not Wrapper else tensor

    def computed(self) -> torch.Tensor:
        """The value as a plain tensor over the same memory, computed if it is not there."""
        return plain_of(self.value)


# ------------------------------------------------------------------------------------- recording


def over(link: Any) -> Wrapper:
    """A new wrapper over a link."""
    meta = link.value.meta
    wrapper: Wrapper = meta.make_wrapper()
    wrapper.child = link
    if meta.conj or meta.neg:
        mark_as_turned(wrapper, meta.conj, meta.neg)
    return wrapper


def wrapped(value: LazyValue) -> Wrapper:
    """A new lazy tensor over a value that nobody has yet."""
    return over(LazyTensor(value))


def _must_be_seen(kind: CallKind, operands: Sequence[LazyValue]) -> bool:
    """Whether a call writes to memory that plain tensors share, or to a plain tensor."""
    targets = [operands[place] for place in kind.writes]
    return any(one.handle is None or one.root.is_seen_outside() for one in targets)


def _results(call: PendingCall, args: Arguments, kwargs: Keywords) -> Any:
    """The tensors that a recorded call returns, and the links to them noted with it."""
    kind = call.kind
    if kind.makes_one:
        within = kind.within[0]
        base = call.operands[within].root if within >= 0 else None
        link = LazyTensor(LazyValue(kind.outs[0], base, call))
        call.handles = (link.value.handle,)  # type: ignore[assignment]
        return over(link)
    tensors = every_tensor(args, kwargs)
    results: list[Any] = []
    handles: list[Any] = []
    for out, within in zip(kind.outs, kind.within, strict=False):
        if type(out) is int:
            results.append(tensors[out])
        elif type(out) is TensorMeta:
            base = call.operands[within].root if within >= 0 else None
            link = LazyTensor(LazyValue(out, base, call, len(handles)))
            handles.append(link.value.handle)
            results.append(over(link))
        else:
            results.append(None)
    call.handles = handles
    if kind.container is None:
        return results[0] if results else None
    return kind.container(results)


# ------------------------------------------------------------------------------------ running now


def run_now(operation: Any, args: Arguments, kwargs: Keywords, kind: CallKind | None) -> Any:
    """Run an operation on the values of its operands, which are computed first."""
    tensors = every_tensor(args, kwargs)
    written = every_tensor(list(written_by(operation, args, kwargs)))
    if kind is not None and kind.changes_shapes:
        _refuse_new_shapes(operation, written)
    values = list(map(value_of, filter(_is_wrapper, tensors)))
    with TRACE.writing(values, list(filter(None, map(_root_of, written)))):
        reals = {id(one): _real_beside(one) for one in tensors}

        def real(leaf: Any) -> Any:
            return reals.get(id(leaf), leaf)

        given = replace(args, real), replace(kwargs, real)
        with DisableTorchFunction(), below_autograd(counting=True):
            result = operation(*given[0], **given[1])
    known = {id(reals[id(one)]): one for one in tensors}
    known.update({id(one): one for one in plain_results(operation, result)})

    def lazily(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and id(leaf) not in known:
            return _lazily(leaf, tensors, values)
        return known.get(id(leaf), leaf)

    return replace(result, lazily)


def _refuse_new_shapes(operation: Any, written: list[torch.Tensor]) -> None:
    if any(map(_is_wrapper, written)):
        raise UnsupportedOperation(
            str(operation), "LazyTensor", "a lazy tensor keeps its shape: call to_eager() first"
        )


def _lazily(
    made: torch.Tensor, operands: Sequence[torch.Tensor], values: Sequence[LazyValue]
) -> torch.Tensor:
    """A result of an operation that has run; at a worker the graph of its operands does not go
    on."""
    if type(made) is not Wrapper:
        return _constant(made, values)
    if torch.is_grad_enabled() and any(one.requires_grad for one in operands):
        refuse_gradient()
    return made


def value_of(tensor: Any) -> LazyValue:
    """The value of a lazy tensor."""
    value: LazyValue = tensor.child.value
    return value


def _is_wrapper(tensor: torch.Tensor) -> bool:
    return type(tensor) is Wrapper


def _real_beside(tensor: torch.Tensor) -> torch.Tensor:
    return real_of(value_of(tensor)) if type(tensor) is Wrapper else tensor


def _root_of(tensor: torch.Tensor) -> LazyValue | None:
    if type(tensor) is Wrapper:
        return value_of(tensor).root
    return root_at(tensor) if tensor.layout is torch.strided else None


def _constant(tensor: torch.Tensor, values: Sequence[LazyValue]) -> torch.Tensor:
    """The lazy tensor of a result that is there; one without strided memory stays as it is."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return tensor
    address = tensor.untyped_storage().data_ptr()
    bases = [
        value.root
        for value in values
        if address and value.real is not None
        if value.real.untyped_storage().data_ptr() == address
    ]
    return wrapped(LazyValue(meta_of(tensor), bases[0] if bases else None, real=tensor))


def real_of(value: LazyValue) -> torch.Tensor:
    """The tensor of a value that has run; raises the error with which it failed."""
    if value.error is not None:
        raise value.error
    real = value.real
    assert real is not None
    return real


def plain_of(value: LazyValue) -> torch.Tensor:
    """A plain tensor over the memory of a value, which is computed if it is not there."""
    with TRACE.lock:
        TRACE.run_for([value])
        real = real_of(value)
        TRACE.check_unchanged(value.root)
        with usual_keys(), torch.no_grad():
            shown = real.detach()
        if value.root.watched is None or all(pair[0] is not real for pair in value.root.watched):
            value.root.watch(real)
            register_memory(value.root, real)
        return shown


def captured_here(tensor: torch.Tensor) -> Wrapper:
    """A lazy tensor over the memory of a plain one, without its graph."""
    with usual_keys(), torch.no_grad():
        shown = tensor.detach()
    return wrapped(captured(tensor, shown))
