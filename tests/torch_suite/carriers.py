"""How plain tensors become tensors of each kind, and how results come back.

What differs between the kinds when torch's cases run over them is only that: one class for each.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import syft as sy
from syft.ops.nested import leaves, replace
from syft.chain.wrapper import Wrapper
from syft.ops.table import FLAGS, NAMES, NUMBERS, OpFlag
from syft.tensors.logging import LoggingTensor
from tests.torch_suite.layouts import as_it_arrives

RANDOM = frozenset(number for number, flags in enumerate(FLAGS) if flags & OpFlag.RANDOM)


class Carrier:
    """How a plain tensor becomes one of some kind, and how a result comes back. Abstract."""

    keeps_kind: ClassVar[bool] = True
    """Whether every tensor computed from tensors of this kind is one, too."""
    rounded: ClassVar[frozenset[str]] = frozenset()
    """The operators that torch computes by other kernels on tensors of a subclass."""

    def send(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as this kind of tensor."""
        raise NotImplementedError

    def fetch(self, result: torch.Tensor) -> Any:
        """What lies behind a result, to be compared with what lies behind another's."""
        raise NotImplementedError

    def arrives(self, tensor: torch.Tensor) -> torch.Tensor:
        """A plain copy of a plain tensor, in the layout that it has after it was sent."""
        return as_it_arrives(tensor)

    def factories(self) -> contextlib.AbstractContextManager[Any]:
        """What is in force while an operator runs that is given no tensor."""
        return contextlib.nullcontext()

    def waited(self, act: Callable[[], Any]) -> Callable[[], Any]:
        """``act``, such that what goes wrong later on another worker goes wrong in it."""
        return act


class Native(Carrier):
    """Plain tensors, as native torch has them: what everything else is held against."""

    keeps_kind: ClassVar[bool] = False

    def send(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def fetch(self, result: torch.Tensor) -> torch.Tensor:
        return result


@dataclass
class PointerCarrier(Carrier):
    """Tensors at a worker.  Factory functions run there too, as ``bob.torch.ones``."""

    worker: sy.VirtualWorker

    def send(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.send(self.worker)

    def fetch(self, result: torch.Tensor) -> torch.Tensor:
        return result.get()

    def factories(self) -> contextlib.AbstractContextManager[Any]:
        return FactoriesAt(self.worker)

    def waited(self, act: Callable[[], Any]) -> Callable[[], Any]:
        def act_and_wait() -> Any:
            result = act()
            sy.synchronize()
            return result

        return act_and_wait if self.worker.pipelined else act

    def place(self, module: nn.Module) -> nn.Module:
        """The module, where its operands are."""
        return module.send(self.worker)

    def bring(self, module: nn.Module) -> nn.Module:
        """The module, here again."""
        return module.get()


@dataclass
class DeviceCarrier(PointerCarrier):
    """Tensors and modules on the device that a worker is: nothing is called but ``to``."""

    @property
    def device(self) -> torch.device:
        """The device."""
        return sy.device(self.worker)

    def send(self, tensor: torch.Tensor) -> torch.Tensor:
        device = self.device  # before `to` is looked up: the first device changes it
        return tensor.detach().to(device).requires_grad_(tensor.requires_grad)

    def fetch(self, result: torch.Tensor) -> torch.Tensor:
        assert result.device == self.device
        return result.detach().cpu().requires_grad_(result.requires_grad)

    def factories(self) -> contextlib.AbstractContextManager[Any]:
        return self.device

    def place(self, module: nn.Module) -> nn.Module:
        return module.to(self.device)

    def bring(self, module: nn.Module) -> nn.Module:
        return module.to("cpu")


class FactoriesAt(TorchFunctionMode):
    """Runs functions that create tensors and are given none at a worker."""

    def __init__(self, worker: sy.VirtualWorker) -> None:
        self.worker = worker

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        number = NUMBERS.get(func)
        if number is None or not FLAGS[number] & OpFlag.FACTORY:
            return func(*args, **(kwargs or {}))
        remote = self.worker.torch
        for part in NAMES[number].split(".")[1:]:
            remote = getattr(remote, part)
        return remote(*args, **(kwargs or {}))


@dataclass
class NestedCarrier(Carrier):
    """Pointers to pointers: the data at one worker, a pointer to it at another."""

    inner: sy.VirtualWorker
    outer: sy.VirtualWorker

    def send(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.send(self.inner).send(self.outer)

    def fetch(self, result: torch.Tensor) -> torch.Tensor:
        return result.get().get()


@dataclass
class MultiCarrier(Carrier):
    """A copy at each of two workers, which must come to the same result."""

    workers: tuple[sy.VirtualWorker, sy.VirtualWorker]
    pairs: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)

    def send(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.send(*self.workers)

    def fetch(self, result: torch.Tensor) -> torch.Tensor:
        first, second = result.get()
        self.pairs.append((first, second))
        return first


class LoggingCarrier(Carrier):
    """A LoggingTensor before a tensor in this process."""

    def send(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is torch.strided:
            # Unlike a copy of the values, this keeps a view a view into memory of the same size.
            return LoggingTensor().on(copy.deepcopy(tensor))
        return LoggingTensor().on(tensor.copy())

    def fetch(self, result: torch.Tensor) -> torch.Tensor:
        return result.child.child

    def arrives(self, tensor: torch.Tensor) -> torch.Tensor:
        """No message was sent: the layout is what it was, and a lazy conjugate stays lazy."""
        plain = tensor.detach()
        copied = copy.deepcopy(plain) if plain.layout is torch.strided else plain.clone()
        return copied.requires_grad_(tensor.requires_grad)


@dataclass
class FixedCarrier(Carrier):
    """Floating-point tensors in fixed precision; at a worker, if one is given.

    What is compared is the integers, and their grid.
    """

    worker: sy.VirtualWorker | None
    keeps_kind: ClassVar[bool] = False  # integers are not encoded

    def send(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.is_floating_point() and tensor.layout is torch.strided:
            tensor = tensor.fix_precision()
        else:
            tensor = tensor.copy()
        return tensor if self.worker is None else tensor.send(self.worker)

    def fetch(self, result: torch.Tensor) -> Any:
        if self.worker is not None:
            result = result.get()
        if type(result) is not Wrapper:
            return result
        return result.child.child, str(result.child.grid)


class LazyCarrier(Carrier):
    """Lazy tensors: what an operator does is recorded, and runs when its results are fetched."""

    keeps_kind: ClassVar[bool] = False  # sparse results are there at once
    rounded: ClassVar[frozenset[str]] = frozenset(
        (
            *("linalg_cond", "linalg_eigvals", "linalg_eigvalsh", "linalg_svdvals"),
            *("masked_fill", "norm_nuc", "prod"),
        )
    )  # isTensorSubclassLike in torch's C++: singular vectors too; no in-place way back

    def send(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = LoggingCarrier().arrives(tensor)
        return tensor.to_lazy() if tensor.layout is torch.strided else tensor

    def fetch(self, result: torch.Tensor) -> torch.Tensor:
        return result.detach().to_eager()

    def arrives(self, tensor: torch.Tensor) -> torch.Tensor:
        return LoggingCarrier().arrives(tensor)

    def waited(self, act: Callable[[], Any]) -> Callable[[], Any]:
        def act_and_compute() -> Any:
            result = act()
            for leaf in leaves(result):
                if isinstance(leaf, torch.Tensor):
                    leaf.detach().to_eager()
            return result

        return act_and_compute


class Drawing(TorchFunctionMode):
    """Notices functions that draw random numbers."""

    drawn = False

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.drawn = self.drawn or NUMBERS.get(func) in RANDOM
        return func(*args, **(kwargs or {}))


@dataclass
class Travellers:
    """The tensors of one sample, sent: a tensor that is in it twice is sent once."""

    carrier: Carrier
    sent: dict[int, torch.Tensor] = field(default_factory=dict)
    fetched: dict[int, tuple[torch.Tensor, Any]] = field(default_factory=dict)

    def send(self, value: Any) -> Any:
        """``value`` with every tensor in it sent."""
        return replace(value, self._send)

    def fetch(self, value: Any) -> Any:
        """``value`` with every tensor in it fetched, each once."""
        return replace(value, self._fetch)

    def _send(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in self.sent:
            self.sent[id(leaf)] = self.carrier.send(leaf)
        return self.sent[id(leaf)]

    def _fetch(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if type(leaf) is not Wrapper:
            assert not self.carrier.keeps_kind or not self.sent, "a plain tensor came back"
            return leaf
        if id(leaf) not in self.fetched:  # the leaf is kept too, so that its id is not used again
            self.fetched[id(leaf)] = leaf, self.carrier.fetch(leaf)
        return self.fetched[id(leaf)][1]
