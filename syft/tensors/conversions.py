"""Changing how a tensor is represented, wherever it is.

``fix_precision`` and ``float_precision`` are not torch functions, so the op table does not know
them.  They are *conversions*: numbered functions of this table that any worker runs on its own
tensors.  :meth:`~syft.chain.link.Link.convert` finds the worker: a pointer asks the other worker, a
multi-pointer every worker, a link before a local tensor asks the next link.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch

from syft.chain.wrapper import Wrapper, first_link
from syft.codes import ConversionCode
from syft.exceptions import HookError, MalformedMessage
from syft.serde.registry import register_check, unpack_at
from syft.tensors.fixed import precision as fixed
from syft.workers.core.access import Access
from syft.workers.core.pipeline import Call, Declaration, handles
from syft.workers.labels.memory_labels import full_guard_of, protect
from syft.workers.wire.messages import Convert, Reply


@dataclass(frozen=True, slots=True)
class Conversion:
    """A numbered function from a tensor to the same values in another representation."""

    code: ConversionCode
    function: Callable[..., torch.Tensor]

    def __call__(self, tensor: torch.Tensor, *args: Any) -> torch.Tensor:
        return self.function(tensor, *args)

    @property
    def name(self) -> str:
        """The name of the method, for error texts.

        >>> FIX_PRECISION.name
        'fix_precision'
        """
        return self.code.name.lower()


CONVERSIONS: dict[int, Conversion] = {}
"""Every conversion, by its number on the wire."""


def register_conversion(code: ConversionCode, function: Callable[..., torch.Tensor]) -> Conversion:
    """Enter a conversion in the table under its number; refuses a number that is taken.

    >>> register_conversion(ConversionCode.FIX_PRECISION, fixed.fix_precision)
    Traceback (most recent call last):
    ...
    syft.exceptions.HookError: conversion FIX_PRECISION is registered already: choose a free number.
    """
    if int(code) in CONVERSIONS:
        raise HookError(f"conversion {code.name} is registered already", "choose a free number")
    return CONVERSIONS.setdefault(int(code), Conversion(code, function))


FIX_PRECISION = register_conversion(ConversionCode.FIX_PRECISION, fixed.fix_precision)
FLOAT_PRECISION = register_conversion(ConversionCode.FLOAT_PRECISION, fixed.float_precision)


register_check(lambda: [f"conversion {c.name}" for c in ConversionCode if c not in CONVERSIONS])


def convert(tensor: torch.Tensor, conversion: Conversion, *args: Any) -> torch.Tensor:
    """Run a conversion where the tensor is; the result stays there.

    >>> x = convert(torch.tensor([0.5]).send(bob), FIX_PRECISION)
    >>> x.get()
    (Wrapper)>FixedPrecisionTensor>tensor([32768])
    """
    return first_link(tensor).convert(tensor, conversion, args)


def _conversion(call: Call) -> Conversion:
    """The conversion that a request asks for."""
    conversion = CONVERSIONS.get(call.message.code)
    if conversion is None:
        raise MalformedMessage("$.code", "the number of a conversion", str(call.message.code))
    return conversion


@handles(
    Convert,
    Declaration(
        reads="id",
        makes="out",
        plain="code, args",
        action=lambda call: cast(Conversion, call.read).name,
        reading=_conversion,
        access=Access(reads_attributes=True, recorded=True),
        walks=True,
    ),
)
def convert_object(call: Call, message: Convert) -> Reply:
    """Convert an object of this worker and store the result under the id the caller chose."""
    args = unpack_at(message.args, call.unpacker(objects=False), ".args")
    return call.store(message.out, call.tried(call.read, message.id, args))


# ------------------------------------------------------------------------- what torch.Tensor learns


def fix_precision(
    tensor: torch.Tensor, precision_fractional: int | None = None, base: int | None = None
) -> torch.Tensor:
    """Encode the tensor in fixed precision, where it is.

    See :func:`syft.tensors.fixed.precision.fix_precision` for the grid and the errors.  What is
    private stays so: the encoded tensor may be sent and read as the tensor may.

    >>> x = torch.tensor([0.5, 1.25]).send(bob).fix_precision()  # encoded by bob
    >>> (x + x).get()
    (Wrapper)>FixedPrecisionTensor>tensor([ 65536, 163840])
    """
    converted = convert(tensor, FIX_PRECISION, precision_fractional, base)
    for link in first_link(converted).remote_links():
        link.grid = fixed.choose_grid(precision_fractional, base)
    protect(converted, full_guard_of(tensor))
    return converted


def fix_precision_(
    tensor: torch.Tensor, precision_fractional: int | None = None, base: int | None = None
) -> torch.Tensor:
    """Encode the tensor in place: the same object, so that optimizers and modules keep working.

    The gradient of a tensor in this process is encoded too; a remote tensor loses its gradient.

    >>> hook = sy.TorchHook(torch)
    >>> x = torch.tensor([0.5, 1.25])
    >>> x.fix_precision_() is x, x
    (True, (Wrapper)>FixedPrecisionTensor>tensor([32768, 81920]))
    """
    if type(tensor) is Wrapper and tensor.child.at_function_level:
        return _exchange_links(tensor, fix_precision(tensor, precision_fractional, base))
    guard = full_guard_of(tensor)
    encoded = fixed.fix_precision_(tensor, precision_fractional, base)
    protect(encoded, guard)
    return encoded


def float_precision(tensor: torch.Tensor) -> torch.Tensor:
    """Decode a tensor in fixed precision to float32, where it is.

    >>> hook = sy.TorchHook(torch)
    >>> x = torch.tensor([0.5, 1.25]).fix_precision()
    >>> (x * x).float_precision()
    tensor([0.2500, 1.5625])
    """
    decoded = convert(tensor, FLOAT_PRECISION)
    protect(decoded, full_guard_of(tensor))
    return decoded


def float_precision_(tensor: torch.Tensor) -> torch.Tensor:
    """Decode a tensor in fixed precision in place.

    >>> hook = sy.TorchHook(torch)
    >>> x = torch.tensor([0.5, 1.25]).fix_precision()
    >>> x.float_precision_() is x, x
    (True, tensor([0.5000, 1.2500]))
    """
    if type(tensor) is Wrapper and tensor.child.at_function_level:
        return _exchange_links(tensor, float_precision(tensor))
    return fixed.float_precision_(tensor)


def _exchange_links(tensor: Wrapper, other: torch.Tensor) -> Wrapper:
    """Give a function-level wrapper the first link of another one, which is dropped."""
    if type(other) is Wrapper:
        tensor.child, other.child = other.child, tensor.child
    return tensor
