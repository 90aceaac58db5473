"""Changing how a tensor is represented, wherever it is.

``fix_precision`` and ``float_precision`` are not torch functions, so the op table does not know
them. They are *conversions*: numbered functions of this table that any worker runs on its own
tensors. Here they find their way down a chain: to another worker for a pointer, to every worker
for a multi-pointer, past a logging link, and to the function itself for a tensor that is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from syft.chain.wrapper import Wrapper
from syft.codes import ConversionCode
from syft.exceptions import HookError, MalformedMessage, UnsupportedOperation
from syft.ids import new_id
from syft.serde.frame import Frame
from syft.serde.packer import Packer
from syft.serde.registry import pack, unpack_at
from syft.tensors.fixed import precision as fixed
from syft.tensors.local import LocalLink
from syft.tensors.multi_pointer import MultiPointerTensor, combine
from syft.tensors.pointer import PointerTensor, make_pointer
from syft.workers.core.commands import unpacker_for
from syft.workers.core.peer import Peer
from syft.workers.core.state_machine import Held, WorkerCore
from syft.workers.wire.messages import Convert, Done, Reply
from syft.workers.core.permissions import full_guard_of, protect

Conversion = Callable[..., torch.Tensor]

CONVERSIONS: dict[int, Conversion] = {}


def conversion(code: ConversionCode, function: Conversion) -> None:
    """Enter a conversion in the table under its number; refuses a number that is taken.

    >>> conversion(ConversionCode.FIX_PRECISION, fixed.fix_precision)
    Traceback (most recent call last):
    ...
    syft.exceptions.HookError: conversion FIX_PRECISION is registered already: choose a free number.
    """
    if int(code) in CONVERSIONS:
        raise HookError(f"conversion {code.name} is registered already", "choose a free number")
    CONVERSIONS[int(code)] = function


conversion(ConversionCode.FIX_PRECISION, fixed.fix_precision)
conversion(ConversionCode.FLOAT_PRECISION, fixed.float_precision)


def convert(tensor: torch.Tensor, code: ConversionCode, *args: Any) -> torch.Tensor:
    """Run a conversion where the tensor is; the result stays there.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> bob = sy.VirtualWorker(hook, id="bob")
    >>> x = convert(torch.tensor([0.5]).send(bob), ConversionCode.FIX_PRECISION)
    >>> x.get()
    (Wrapper)>FixedPrecisionTensor>tensor([32768])
    """
    link = tensor.child if type(tensor) is Wrapper else None
    if isinstance(link, PointerTensor):
        return _convert_there(link, code, args)
    if isinstance(link, MultiPointerTensor):
        return combine(convert(part, code, *args) for part in link.pointers.values())
    if isinstance(link, LocalLink) and link.tensor is not None:
        return link.like().on(convert(link.tensor, code, *args))
    return CONVERSIONS[int(code)](tensor, *args)


def _convert_there(link: PointerTensor, code: ConversionCode, args: tuple[Any, ...]) -> Wrapper:
    if link.depth:
        instead = "convert the whole tensor (the pointer itself), or get the part first"
        raise UnsupportedOperation(code.name.lower(), "a part of a remote chain", instead)
    out = new_id()
    packed = pack(args, Packer())
    link.connection.ask(Convert, link.id_at_location, int(code), packed, out)
    return make_pointer(link.connection, out)


@WorkerCore.handles(Convert)
def handle(core: WorkerCore, message: Convert, frame: Frame, peer: Peer) -> Any:
    """Convert an object of this worker and store the result under the id the caller chose."""
    core.forget(message.drop, peer)
    core.store.check_free(message.out)
    function = CONVERSIONS.get(message.code)
    if function is None:
        raise MalformedMessage("$.code", "the number of a conversion", str(message.code))

    def act(held: Held) -> Reply:
        args = unpack_at(message.args, unpacker_for(core, frame, held), ".args")
        value = core.resolve(message.id, 0, held)
        guard = full_guard_of(value)
        try:
            result = function(value, *args)
        except Exception as error:  # its text may quote private values
            hidden = guard is not None and not guard.admits(peer.user)
            return core.failure(message.seq, error, hidden=hidden)
        protect(result, guard)
        core.store.put(message.out, result)
        return Done(message.seq)

    return core.when_ready(message.seq, peer, act, (message.id,), (message.out,))


# ------------------------------------------------------------------------- what torch.Tensor learns


def fix_precision(
    tensor: torch.Tensor, precision_fractional: int | None = None, base: int | None = None
) -> torch.Tensor:
    """Encode the tensor in fixed precision, where it is.

    See :func:`syft.tensors.fixed.precision.fix_precision` for the grid and the errors.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> bob = sy.VirtualWorker(hook, id="bob")
    >>> x = torch.tensor([0.5, 1.25]).send(bob).fix_precision()  # encoded by bob
    >>> (x + x).get()
    (Wrapper)>FixedPrecisionTensor>tensor([ 65536, 163840])
    """
    return convert(tensor, ConversionCode.FIX_PRECISION, precision_fractional, base)


def fix_precision_(
    tensor: torch.Tensor, precision_fractional: int | None = None, base: int | None = None
) -> torch.Tensor:
    """Encode the tensor in place: the same object, so that optimizers and modules keep working.

    A gradient is encoded with a tensor that is here; a remote tensor starts without one.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> x = torch.tensor([0.5, 1.25])
    >>> x.fix_precision_() is x, x
    (True, (Wrapper)>FixedPrecisionTensor>tensor([32768, 81920]))
    """
    if type(tensor) is Wrapper and tensor.child.at_function_level:
        return _become(tensor, fix_precision(tensor, precision_fractional, base))
    return fixed.fix_precision_(tensor, precision_fractional, base)


def float_precision(tensor: torch.Tensor) -> torch.Tensor:
    """Decode a tensor in fixed precision to float32, where it is.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> x = torch.tensor([0.5, 1.25]).fix_precision()
    >>> (x * x).float_precision()
    tensor([0.2500, 1.5625])
    """
    return convert(tensor, ConversionCode.FLOAT_PRECISION)


def float_precision_(tensor: torch.Tensor) -> torch.Tensor:
    """Decode a tensor in fixed precision in place.

    >>> import torch, syft as sy
    >>> hook = sy.TorchHook(torch)
    >>> x = torch.tensor([0.5, 1.25]).fix_precision()
    >>> x.float_precision_() is x, x
    (True, tensor([0.5000, 1.2500]))
    """
    if type(tensor) is Wrapper and tensor.child.at_function_level:
        return _become(tensor, float_precision(tensor))
    return fixed.float_precision_(tensor)


def _become(tensor: Wrapper, other: torch.Tensor) -> Wrapper:
    """Exchange the first links of two function-level wrappers; the old one is dropped."""
    if type(other) is Wrapper:
        tensor.child, other.child = other.child, tensor.child
    return tensor
