"""``sy.device(bob)``: a worker as a device of torch.

Torch has one open type of device, which gets its name, ``"syft"``, when the first worker becomes a
device; torch keeps that name until the process ends.  All else is undone when the hook is closed:
the kernels that make tensors at a worker, and what surrounds ``to`` of tensors and modules, where
the name of a worker may stand (``x.to("bob")``), which torch's C code would refuse.

A module goes to a device, and back, as by ``send`` and ``get``: in one message, and its parameters
stay the same objects.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any, Final

import torch
from torch import nn

from syft.chain.wrapper import Wrapper, first_link
from syft.exceptions import UnsupportedOperation
from syft.hooks import bulk, module_methods, sending
from syft.hooks.lazy_modules import send_when_shaped
from syft.hooks.ledger import Ledger
from syft.hooks.sending import Location
from syft.tensors.device_tensor import (
    KIND,
    KERNELS,
    Devices,
    device_meant,
    devices_in_force,
    on_device,
    use,
)
from syft.torch_private import name_open_device
from syft.workers.client.transport import Owner

_PLACES: Final = (str, torch.device, int)


class _Backend:
    """What torch asks of the module of a type of device."""

    def is_initialized(self) -> bool:
        """Nothing has to be prepared."""
        return True

    def is_available(self) -> bool:
        """Whether it is an accelerator of this machine, for which memory would be pinned."""
        return False

    def device_count(self) -> int:
        """How many torch may use by itself, as an accelerator of this machine: none."""
        return 0

    def current_device(self) -> int:
        """The one that ``torch.device("syft")`` is."""
        return 0

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        """``torch.manual_seed`` seeds this process: a worker draws with its own generator."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """The dtypes of autocast there, which is that of the worker's CPU."""
        return [torch.bfloat16, torch.float16]


class _To:
    """``x.to``, where the name of a worker may stand too.  ``torch.Tensor.to`` itself stays the one
    of torch: classes of tensors and modes know it by identity."""

    def __init__(self, theirs: Any) -> None:
        self._theirs = theirs
        self.__doc__ = theirs.__doc__

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        return self._theirs if tensor is None else MethodType(self._moved, tensor)

    def _moved(self, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if args and type(args[0]) is int and torch.cuda.is_available():
            args = (torch.device("cuda", args[0]), *args[1:])  # as before a type had its name
        try:
            return self._theirs(tensor, *args, **kwargs)
        except (RuntimeError, UnsupportedOperation):
            place = args[0] if args else kwargs.get("device")
            device = None if type(tensor) is Wrapper else _of_ours(place)
            if device is None or type(place) is not str and _is_usual(tensor):
                raise
        return _sent(tensor, device, args, kwargs)


class DeviceHook:
    """What the hook does when the first worker becomes a device, and how it is undone."""

    def __init__(self, owner: Owner, ledger: Ledger, whole: Any) -> None:
        self._owner, self._ledger, self._whole = owner, ledger, whole
        self._devices: Devices | None = None
        for name in ("to", "cpu", "cuda"):
            ledger.surround(nn.Module, name, partial(self._going, name))
        ledger.surround(nn.Module, "to_empty", self._going_empty)

    def device(self, worker: Location | str) -> torch.device:
        """The device that a worker is."""
        found = self._owner.get_worker(worker)
        return self._begun().of(found)

    def _begun(self) -> Devices:
        if self._devices is None:
            name_open_device(KIND, _Backend())
            self._devices = Devices(self._owner, sending.send)
            self._ledger.implement_on_open_device(KERNELS)
            use(self._devices)
            self._ledger.when_undone(partial(use, None))
            self._ledger.shadow(torch.Tensor, "to", _To(torch.Tensor.to))
            self._whole.surround()
        return self._devices

    # ------------------------------------------------------------------------ model.to(device)

    def _going(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """``model.to``, ``cpu`` or ``cuda``, where parts of the module are on a device, or go to
        one."""

        def go(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            place, rest, named = (
                _place_among(args, kwargs) if name == "to" else (name, args, kwargs)
            )
            if place is None:
                return method(module, *args, **kwargs)
            device = self._meant(place)
            if device.type == KIND:
                self._to_device(module, device)
                return method(module, *rest, **named) if rest or named else module
            if any(map(_is_on_device, module_methods.tensors_of(module))):
                module_methods.get_module(module)
            return method(module, *args, **kwargs)

        return go

    def _going_empty(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """``model.to_empty``, which may name a device or a worker."""

        def go(module: nn.Module, *, device: Any, recurse: bool = True) -> Any:
            if device is None or self._meant(device).type != KIND:
                return method(module, device=device, recurse=recurse)
            method(module, device="cpu", recurse=recurse)
            return module.to(device)

        return go

    def _meant(self, place: Any) -> torch.device:
        if type(place) is str and self._devices is None:
            try:
                return torch.device(place)
            except RuntimeError:
                return self.device(place)
        return device_meant(place)

    def _to_device(self, module: nn.Module, device: torch.device) -> None:
        devices = self._begun()
        connection = devices.connection(device)
        place, owner = connection.location, self._owner
        tensors = module_methods.tensors_of(module)
        here = [tensor for tensor in tensors if not first_link(tensor).remote_links()]
        if len(here) < len(tensors):
            away = [tensor for tensor in tensors if first_link(tensor).remote_links()]
            module_methods.exchange_tensors(
                module, lambda parts: [on_device(part, device) for part in parts], None, away
            )

        def send(parts: list[torch.Tensor]) -> list[torch.Tensor]:
            sent = bulk.send_all(parts, place, owner)
            return list(map(connection.marked, sent))

        module_methods.exchange_tensors(module, send, bulk.unsend, here)
        send_when_shaped(module, lambda part: self._to_device(part, device))


def _of_ours(place: Any) -> torch.device | None:
    """The device of a worker that a place names; None if torch knows the place itself.

    >>> _of_ours(torch.float64)
    """
    if type(place) not in (str, torch.device):
        return None
    device = device_meant(place)
    return device if device.type == KIND else None


def _is_usual(tensor: torch.Tensor) -> bool:
    """Whether torch's own ``to`` can write a tensor to a device: into an empty one of its form."""
    return tensor.layout is torch.strided and not tensor.is_quantized


def _sent(tensor: torch.Tensor, device: torch.device, args: Any, kwargs: Any) -> torch.Tensor:
    """``tensor.to(...)`` with a device in the place of a name; of another layout, it is sent."""
    args, kwargs = (args and (device, *args[1:])), (kwargs if args else kwargs | {"device": device})
    if _is_usual(tensor):
        return tensor.to(*args, **kwargs)
    sent: Any = tensor.send  # type: ignore[attr-defined]
    moved: torch.Tensor = sent(devices_in_force().connection(device).location).to(*args, **kwargs)
    return moved


def _is_on_device(tensor: torch.Tensor) -> bool:
    links = first_link(tensor).remote_links()
    return bool(links) and links[0].connection.device is not None


def _place_among(args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """The place that the arguments of ``model.to`` name, if any, and the other arguments."""
    if args and isinstance(args[0], _PLACES):
        named = dict(zip(("dtype", "non_blocking"), args[1:], strict=False)) | kwargs
        return args[0], (), {name: value for name, value in named.items() if value}
    other = args[0] if args else kwargs.get("tensor")
    if type(other) is Wrapper and _is_on_device(other):
        return other.device, (), {"dtype": other.dtype}
    place = kwargs.get("device")
    return place, args, {name: value for name, value in kwargs.items() if name != "device"}
