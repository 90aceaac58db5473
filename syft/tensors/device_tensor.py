"""Tensors on ``sy.device(bob)``: pointers that say they are on a device of torch.

Such a tensor is a :class:`~syft.tensors.pointer.PointerTensor` over a connection with a device
(:mod:`syft.workers.client.device_connection`).  Here is what differs from a pointer without one:
``.to`` and ``.cpu()``, and ``device=`` among the arguments of a call on pointers.

Functions that make tensors of numbers (``torch.zeros(3, device=...)``) have no tensor among their
arguments, so no link is asked.  Torch's dispatcher is: the device has its one open key
(PrivateUse1), and each function of :data:`_MAKERS` a kernel there, which makes the tensor at the
worker.  All others (``torch.tensor``, ``x.to(device)`` of a tensor that is here) first make an
empty tensor in C, and then write to it.  What stands between is a :class:`NewTensor`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final, NoReturn

import torch

from syft.chain.link import Rule
from syft.chain.wrapper import Wrapper, make_opaque, wrap
from syft.exceptions import HookError, NotSendable, UnknownDevice
from syft.ids import new_id
from syft.ops.nested import Arguments, Keywords, leaves, replace
from syft.ops.returns import ONE_TENSOR
from syft.ops.table import BY_NAME, FACTORY, FUNCTIONS, NAMES, NUMBERS, function_of, ops_with
from syft.tensors.pointer import PointerTensor, packed
from syft.torch_private import DisableTorchFunctionSubclass, make_wrapper
from syft.workers.client.connection import Connection
from syft.workers.client.device_connection import DeviceConnection
from syft.workers.client.transport import Location, Owner

KIND: Final = "syft"
"""The type of these devices: ``torch.device("syft", 1)`` is the first worker that became one.

None is number 0, which a bare number means to torch (``x.to(0)``) as soon as the type has a name:
nothing goes to a worker that nobody named.
"""
_MOST: Final = 127
"""The highest number that a device of torch can have."""


class Devices:
    """The workers of ``owner`` that are devices of torch, by number; ``send`` puts a tensor at one.

    A number stands for one worker for good: a tensor never is on another one than when it was made.
    """

    def __init__(self, owner: Owner, send: Callable[..., Any]) -> None:
        self.owner, self.send = owner, send
        self._workers: list[Location] = []
        self._connections: dict[int, DeviceConnection] = {}

    def of(self, worker: Location) -> torch.device:
        """The device that a worker is; it gets the next number if it is none yet."""
        if worker not in self._workers:
            if len(self._workers) == _MOST:
                raise UnknownDevice(worker.id, self._known(), f"torch numbers {_MOST} of them")
            self._workers.append(worker)
        return torch.device(KIND, 1 + self._workers.index(worker))

    def connection(self, device: torch.device) -> DeviceConnection:
        """The connection for tensors on a device.

        Raises :class:`~syft.exceptions.UnknownDevice` if no worker is that device.
        """
        index = device.index or 0
        if not 0 < index <= len(self._workers):
            raise UnknownDevice(str(device), self._known())
        line = self.owner.connection_to(self._workers[index - 1])
        known = self._connections.get(index)
        if known is None or known.line is not line:
            known = self._connections[index] = DeviceConnection(line, torch.device(KIND, index))
        return known

    def _known(self) -> tuple[str, ...]:
        return tuple(f"{KIND}:{at} is {one.id}" for at, one in enumerate(self._workers, 1))


class _Current:
    """The devices of the hook in force."""

    devices: Devices | None = None


def use(devices: Devices | None) -> None:
    """Have torch find workers among these devices; None where there are none any more."""
    _Current.devices = devices


def devices_in_force() -> Devices:
    """The devices of the hook in force; raises :class:`~syft.exceptions.HookError` if there are
    none."""
    if _Current.devices is None:
        raise HookError("no worker is a device", "call sy.TorchHook(torch), and sy.device(bob)")
    return _Current.devices


def device_meant(place: Any) -> torch.device:
    """The device that an argument of a call names: torch's, or the worker of that name.

    Raises :class:`~syft.exceptions.UnknownWorker`, which lists those that are known.

    >>> device_meant("cpu")
    device(type='cpu')
    """
    if type(place) is str:
        try:
            return torch.device(place)
        except RuntimeError:
            devices = devices_in_force()
            return devices.of(devices.owner.get_worker(place))
    return torch.device(place)


# ---------------------------------------------------------------------------- from place to place


def on_device(tensor: Any, device: torch.device) -> Any:
    """A tensor that is here, or behind a pointer, on a device; the tensor itself if it is there."""
    link = tensor.child if type(tensor) is Wrapper else None
    if not isinstance(link, PointerTensor):
        return tensor.to(device)
    connection = devices_in_force().connection(device)
    if link.connection is connection:
        return tensor
    if link.connection.line is connection.line:
        return connection.marked(PointerTensor.forward(_TO, (tensor,), {"copy": False}))
    there = _again(tensor).child.move(connection.location)
    return connection.marked(there)


def _again(tensor: Any) -> Any:
    """Another tensor with the same values, in the graph of this one: a move takes it away."""
    return tensor.view_as(tensor) if tensor.layout is torch.strided else tensor.clone()


def brought_home(tensor: Any) -> torch.Tensor:
    """The values of a tensor on a device, in this process; the tensor there stays.

    Where a graph is recorded, gradients go back to it from here, as after ``x.move(local_worker)``.
    """
    if torch.is_grad_enabled() and tensor.requires_grad:
        home: torch.Tensor = _again(tensor).child.move(devices_in_force().owner)
        return home
    found: torch.Tensor = tensor.detach().child.get()
    return found


def _placed(tensor: Any, device: torch.device, **changes: Any) -> Any:
    """What ``tensor.to(device, ...)`` returns for a pointer, or a tensor that is here."""
    if device.type == KIND:
        tensor = on_device(tensor, device)
        return tensor.to(**changes) if changes else tensor
    if _is_on_device(tensor):
        tensor = brought_home(tensor)
    return tensor.to(device, **changes)


def _is_on_device(tensor: Any) -> bool:
    link = tensor.child if type(tensor) is Wrapper else None
    return isinstance(link, PointerTensor) and link.connection.device is not None


_TO: Final = BY_NAME["torch.Tensor.to"]
_NAMES: Final = ("dtype", "non_blocking", "copy")


@PointerTensor.rule(function_of(_TO))
def _to(*args: Any, **kwargs: Any) -> Any:
    """``x.to(...)``, which may name a device, a worker, or a tensor like which to be."""
    tensor = args[0]
    named, changes = _named_in(args[1:], kwargs)
    if named is not None:
        device = device_meant(named)
        if device.type == KIND or _is_on_device(tensor):
            return _placed(tensor, device, **changes)
    return PointerTensor.forward(_TO, args, kwargs)


def _named_in(args: Arguments, kwargs: Keywords) -> tuple[Any, Keywords]:
    """Where ``x.to(...)`` is to go, None if it stays, and what else the arguments say."""
    first = args[0] if args else kwargs.get("other", kwargs.get("device"))
    rest = args[1:]
    if isinstance(first, torch.Tensor):
        changes: Keywords = dict(zip(_NAMES[1:], rest, strict=False), dtype=first.dtype)
        return first.device, changes | _without(kwargs, "other")
    if isinstance(first, torch.dtype | torch.memory_format):  # x.to(torch.float64)
        return None, {}
    changes = dict(zip(_NAMES, rest, strict=False)) | _without(kwargs, "device")
    return first, {name: one for name, one in changes.items() if one}


def _without(kwargs: Keywords, name: str) -> Keywords:
    return {key: value for key, value in kwargs.items() if key != name}


def _goes_to(number: int, device: Callable[..., Any]) -> Rule:
    """A rule for a method that is named after a device of this machine."""

    def go(*args: Any, **kwargs: Any) -> Any:
        if not _is_on_device(args[0]):
            return PointerTensor.forward(number, args, kwargs)
        return FUNCTIONS[number](brought_home(args[0]), *args[1:], **kwargs)  # type: ignore[misc]

    return go


_SETS: Final = BY_NAME["torch.Tensor.__setitem__"]
_PACKS: Final = BY_NAME["torch._pack_padded_sequence"]


@PointerTensor.rule(function_of(_SETS))
def _setitem(*args: Any, **kwargs: Any) -> Any:
    """``x[index] = y``; a tensor on a device takes the values of one that is here, as by copy_."""
    if len(args) == 3 and type(args[2]) is torch.Tensor and args[2].dim():
        if _is_on_device(args[0]) and type(args[0].child) is PointerTensor:
            args = (*args[:2], on_device(args[2], args[0].device))
    return PointerTensor.forward(_SETS, args, kwargs)


@PointerTensor.rule(function_of(_PACKS))
def _pack_padded(*args: Any, **kwargs: Any) -> Any:
    """The sizes of the batches are on no device: torch wants them on the CPU."""
    data, sizes = PointerTensor.forward(_PACKS, args, kwargs)
    sizes.child.connection = sizes.child.connection.line
    return data, sizes


for _name in ("cpu", "cuda"):
    _number = BY_NAME[f"torch.Tensor.{_name}"]
    PointerTensor.rule(function_of(_number))(_goes_to(_number, torch.device))


_COPY: Final = BY_NAME["torch.Tensor.copy_"]


@PointerTensor.rule(function_of(_COPY))
def _copy(*args: Any, **kwargs: Any) -> Any:
    """``x.copy_(y)``; a tensor that is here takes the values of one on a device."""
    if len(args) > 1 and type(args[0]) is not Wrapper and _is_on_device(args[1]):
        return args[0].copy_(brought_home(args[1]))
    return PointerTensor.forward(_COPY, args, kwargs)


def _made_on(number: int) -> Rule:
    """A rule for an operation that takes ``device=`` and tensors (``torch.zeros_like``)."""

    def make(*args: Any, **kwargs: Any) -> Any:
        named = kwargs.get("device")
        device = None if named is None else device_meant(named)
        if device is None or device.type != KIND and not any(map(_is_on_device, args)):
            return PointerTensor.forward(number, args, kwargs)
        made = PointerTensor.forward(number, args, _without(kwargs, "device"))
        return made.to(device)

    return make


_TAKES_DEVICE: Final = [
    op
    for op, name in enumerate(NAMES)
    if FUNCTIONS[op] is not None
    and (name.startswith("torch.Tensor.new_") or name.endswith("_like") or op in ops_with(FACTORY))
]
for _number in _TAKES_DEVICE:
    # Calls without keywords are as fast as others: `PointerTensor.rule` would change that.
    PointerTensor.rules.setdefault(function_of(_number), _made_on(_number))


# ------------------------------------------------------------------- what torch makes on a device


_requires_grad: Final = torch.Tensor.requires_grad.__get__  # type: ignore[attr-defined]


class NewTensor(PointerTensor):
    """A tensor on a device that a function of torch is making, in C, or has just made.

    An empty one is made at the worker when something is done with it.  Before that torch may write
    a tensor to it that is here, which is sent then.  Torch notes in C that it requires grad, where
    nobody is told: the first call on it looks, and puts a pointer in the place of this link.
    """

    __slots__ = ("_wrapper", "_empty")

    def __init__(self, connection: Connection, empty: tuple[Any, Any, Any] | None) -> None:
        self.connection, self.garbage_collect_data, self.depth = connection, False, 0
        self._empty = empty
        self._wrapper: weakref.ref[Wrapper] | None = None

    def __getattr__(self, name: str) -> Any:
        if name != "id_at_location":
            raise AttributeError(name)
        size, strides, dtype = self._empty  # type: ignore[misc]
        if strides is None:
            made = _made(self.connection, "torch.empty", (size,), {"dtype": dtype})
        else:
            made = _made(self.connection, "torch.empty_strided", (size, strides), {"dtype": dtype})
        self.take(made)
        return self.id_at_location

    def take(self, made: Any) -> None:
        """Stand for what a pointer points to, which does not collect it any more."""
        self.id_at_location, self.pending = made.child.id_at_location, made.child.pending
        self.garbage_collect_data, made.child.garbage_collect_data = True, False

    def under_wrapper(self) -> Wrapper:
        """A wrapper over this link: of the size of an empty tensor, since torch looks at that."""
        if self._empty is None:
            wrapper: Wrapper = make_opaque()
        else:
            size, strides, dtype = self._empty
            dtype, device = dtype or torch.get_default_dtype(), torch.device(KIND, 0)
            wrapper = make_wrapper(Wrapper, size, strides=strides, dtype=dtype, device=device)
        wrapper.child = self
        self._wrapper = weakref.ref(wrapper)
        return wrapper

    def _under(self) -> Wrapper | None:
        """The wrapper over this link."""
        return None if self._wrapper is None else self._wrapper()

    def settled(self) -> Any:
        """The pointer that stands in the place of this link from now on."""
        link: Any = PointerTensor(self.connection, self.id_at_location)
        link.pending = self.pending
        self.garbage_collect_data = False
        wrapper, self._wrapper = self._under(), None
        if wrapper is None:
            return link
        with DisableTorchFunctionSubclass():
            requires_grad = _requires_grad(wrapper)
            if requires_grad:
                torch.Tensor.requires_grad_(wrapper, False)
        wrapper.child = link
        if requires_grad:
            wrapper.requires_grad_()
        return link

    @classmethod
    def call(cls, operation: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Run a call on pointers in the place of these links."""
        for value in leaves((args, kwargs)):
            if type(value) is Wrapper and type(value.child) is NewTensor:
                value.child.settled()
        return Wrapper.__torch_function__(operation, (), args, kwargs)

    def reference(self, connection: Connection) -> tuple[int, ...] | None:
        """How a command names the tensor, which has a pointer from now on."""
        found: tuple[int, ...] | None = self.settled().reference(connection)
        return found

    def _begun(self, name: str, args: Arguments) -> Any:
        """What comes of an empty tensor that torch writes to, or lays out anew."""
        if name == "copy_":
            return _written(args[0], args[1])
        size, strides, *offset = args[1:]
        if self._empty is None or self.garbage_collect_data or any(offset):
            return super().below(torch.ops.aten.as_strided.default, args, {})
        return NewTensor(self.connection, (size, strides, self._empty[2])).under_wrapper()

    def below(self, operation: Any, args: Arguments, kwargs: Keywords) -> Any:
        """Run what torch does in C with the tensor that it makes: it is not complete yet."""
        name = operation.overloadpacket.__name__
        if name == "lift_fresh":
            return args[0]
        if args and args[0] is self._under() and name in ("copy_", "as_strided"):
            return self._begun(name, args)
        function = getattr(torch.Tensor, name, None) if "out" not in kwargs else None
        function = function or getattr(torch, name, None)
        if function not in NUMBERS or not operation._schema.is_mutable:
            return super().below(operation, args, kwargs)
        PointerTensor.forward(NUMBERS[function], replace(args, _bare), replace(kwargs, _bare))
        return kwargs["out"] if "out" in kwargs else args[0]


def _bare(value: Any) -> Any:
    """A pointer to the tensor of a new link, in whose place it does not come yet."""
    if type(value) is not Wrapper or type(value.child) is not NewTensor:
        return value
    return wrap(PointerTensor(value.child.connection, value.child.id_at_location, False))


def _settling(name: str) -> Callable[..., Any]:
    def method(self: NewTensor, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.settled(), name)(*args, **kwargs)

    method.__name__, method.__doc__ = name, getattr(PointerTensor, name).__doc__
    return method


_OF_A_POINTER: Final = """get start_get move copy deliver allow convert remote_get remote_send
    annotate"""
for _name in _OF_A_POINTER.split():
    setattr(NewTensor, _name, _settling(_name))


def _made(connection: Connection, name: str, args: Arguments, kwargs: Keywords) -> Any:
    """A pointer to what a function of numbers makes at the worker of a connection."""
    number = BY_NAME[name]
    given = {key: value for key, value in kwargs.items() if value is not None}
    connection, operands, keywords, buffers = packed(connection, number, args, given)
    out = new_id()
    value = connection.operations.command(number, operands, keywords, out, buffers)
    return connection.operations.results(value, out, ONE_TENSOR, fresh=True)


def refuse_gradient() -> NoReturn:
    """Refuse to bring a tensor with a gradient to a device.

    >>> refuse_gradient()
    Traceback (most recent call last):
    ...
    syft.exceptions.NotSendable: Cannot send a tensor that requires grad to a device: ...
    """
    raise NotSendable(
        "a tensor that requires grad to a device",
        "its gradient would not come back here: x.detach().to(device).requires_grad_() is a "
        "leaf there, and model.to(device) takes a module with its gradients",
    )


def _written(target: Any, source: torch.Tensor) -> Any:
    """Write a tensor that is here to one that is being made on a device: it is sent."""
    if source.requires_grad and torch.is_grad_enabled():
        refuse_gradient()
    link = target.child
    dtype = link._empty[2]
    devices = devices_in_force()
    sent = devices.send(source.detach(), link.connection.location, owner=devices.owner)
    if dtype is not None and dtype is not source.dtype:
        sent = sent.to(dtype)
    link.take(sent)
    return target


def _no_memory(source: Any, target: Any, non_blocking: bool = False) -> Any:
    """The kernel that copies between memories, which torch calls where no class is asked."""
    if type(target) is Wrapper and type(target.child) is NewTensor:
        return _written(target, source)
    return _refuse_below("copy_")


def _refuse_below(name: str) -> NoReturn:
    raise HookError(f"aten::{name} reaches below a tensor on a device", "write it with x.to(...)")


def _maker(name: str) -> Callable[..., Any]:
    """The kernel of a function that makes tensors of numbers."""

    def make(*args: Any, device: Any = None, dtype: Any = None, **kwargs: Any) -> Wrapper:
        for unused in ("pin_memory", "layout"):  # of another layout torch asks another key
            kwargs.pop(unused, None)
        connection = devices_in_force().connection(torch.device(device))
        link = NewTensor(connection, None)
        function = f"torch.{name.replace('fft_', 'fft.')}"
        link.take(_made(connection, function, args, {"dtype": dtype, **kwargs}))
        return link.under_wrapper()

    return make


def _empty(size: Any, strides: Any = None, *, device: Any, dtype: Any = None, **_: Any) -> Wrapper:
    connection = devices_in_force().connection(torch.device(device))
    return NewTensor(connection, (tuple(size), strides, dtype)).under_wrapper()


_MAKERS: Final = """zeros ones full eye eye.m arange arange.start arange.start_step linspace
    logspace rand randn randint randint.low randperm tril_indices triu_indices scalar_tensor
    hann_window hann_window.periodic hamming_window hamming_window.periodic
    hamming_window.periodic_alpha hamming_window.periodic_alpha_beta bartlett_window
    bartlett_window.periodic blackman_window blackman_window.periodic kaiser_window
    kaiser_window.periodic kaiser_window.beta fft_fftfreq fft_rfftfreq range range.step"""

KERNELS: Final[dict[str, Callable[..., Any]]] = {
    "empty.memory_format": _empty,
    "empty_strided": _empty,
    "_copy_from": _no_memory,
    **{name: _maker(name.partition(".")[0]) for name in _MAKERS.split()},
}
"""What torch calls for its operations on these devices, where no tensor is asked."""
