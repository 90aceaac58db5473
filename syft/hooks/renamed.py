"""Names of earlier versions that are not there, and what to write instead.

Whoever reads one gets :class:`~syft.exceptions.NotThere`, an ``AttributeError`` that says so, and
``hasattr`` says False.

Whether an object at a worker dies with the pointer to it, under the names of earlier versions.

``x.send(bob, garbage_collect_data=False)`` says it when the object is sent.  What is written to an
attribute that nobody reads would be lost without a word, so the old names are attributes of every
tensor.

Modules of earlier versions, whose names have moved, and those that are not there.

A program written for an earlier version begins with imports.  What is a name of the package now is
found where it was, with a warning that says so.  ``No module named 'syft.generic'`` would leave its
author to guess; an import of such a module fails with a text that says what there is.  Python asks
when all its own ways have found nothing, so no import becomes slower.

``from syft import NumpyTensor`` comes here too: of a package, Python looks for a module of that
name when there is no such attribute.  What the package's ``__getattr__`` raised is lost on the way,
and a ``ModuleNotFoundError`` with the module's name would be; a plain ``ImportError`` is not.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any, ClassVar, Final, NoReturn

import torch

import syft.serde as serde
from syft.callers import warn_user
from syft.chain.wrapper import first_link
from syft.exceptions import NotThere, UnsupportedOperation

_SHARE: Final = (
    "x.fix_precision().share(alice, bob, crypto_provider=carol) computes on private numbers"
)
_CONNECT: Final = "sy.connect(address) gives a worker of another process"
_WIDER: Final = "x.fix_precision(precision_fractional=...) chooses the number of digits"

_PLANNED: Final = {
    "PublicGridNetwork": _CONNECT,
    "DataCentricFLClient": _CONNECT,
    "NodeClient": _CONNECT,
    "ModelCentricFLClient": "send a plan of a training step to each worker (docs/plans.md)",
    "FLClient": "send a plan of a training step to each worker (docs/plans.md)",
    "keygen": _SHARE,
    "PaillierTensor": _SHARE,
}
_GONE: Final = {
    "NumpyTensor": "send torch.from_numpy(array)",
    "PrivateTensor": 'x.private_tensor(allowed_users=["ann"]) is a method of every tensor',
    "ReplicatedSharingTensor": _SHARE,
    "AutogradTensor": "torch's own autograd works on every kind of tensor",
    "LargePrecisionTensor": _WIDER,
    "CRTPrecisionTensor": _WIDER,
    "AbstractTensor": "a kind of tensor of your own inherits from sy.LocalLink",
    "Promise": "worker.promise() is a pointer to what will arrive",
    "PlaceHolder": "a plan numbers its values itself: print(plan.code)",
    "make_hook": "sy.TorchHook(torch)",
    "ID_PROVIDER": "sy.ids.new_id() draws an id",
    "BaseWorker": "sy.VirtualWorker, sy.WebsocketServerWorker and sy.connect give workers",
}
"""For each name: what the package has in its place."""


def not_there(name: str, there: Sequence[str]) -> AttributeError:
    """The error for a name that the package has not: what it has in its place, if the name is of an
    earlier version, or else those of the names ``there`` that look like it.

    >>> print(not_there("make_hook", []))
    sy.make_hook is not there: sy.TorchHook(torch).
    >>> print(not_there("virtualworkr", ["Plan", "VirtualWorker"]))
    module 'syft' has no attribute 'virtualworkr'. Did you mean 'VirtualWorker'?
    >>> print(not_there("nonsense", ["Plan"]))
    module 'syft' has no attribute 'nonsense'
    """
    instead = _PLANNED.get(name) or _GONE.get(name)
    if instead is not None:
        return NotThere(f"sy.{name}", instead, name in _PLANNED)
    lower = {one.lower(): one for one in there}
    alike = difflib.get_close_matches(name.lower(), lower, n=1)
    meant = f". Did you mean {lower[alike[0]]!r}?" if alike else ""
    return AttributeError(f"module 'syft' has no attribute {name!r}{meant}", name=name)


def disable_gc(tensor: torch.Tensor) -> NoReturn:
    """Refused: it changed something when it was read, as any inspector of objects does.

    >>> hook = sy.TorchHook(torch)
    >>> torch.ones(2).disable_gc
    Traceback (most recent call last):
    ...
    syft.exceptions.NotThere: disable_gc is not there: write x.gc = False, ...
    """
    instead = "write x.gc = False, since reading an attribute changes nothing"
    raise NotThere("disable_gc", instead)


def create_pointer(tensor: torch.Tensor) -> NoReturn:
    """Refused: a pointer is made with what it points to.

    >>> hook = sy.TorchHook(torch)
    >>> torch.ones(2).create_pointer
    Traceback (most recent call last):
    ...
    syft.exceptions.NotThere: create_pointer is not there: x.send(worker) puts a copy there and ...
    """
    instead = (
        "x.send(worker) puts a copy there and returns a pointer, and worker.search(id) gives one "
        "to what is there already"
    )
    raise NotThere("create_pointer", instead)


COLLECTING = ("gc", "garbage_collection", "garbage_collect_data")
"""The names that earlier versions had for it on one kind of tensor or another."""


def collects(tensor: torch.Tensor) -> bool:
    """Whether the object at the worker is dropped with this pointer; False for a tensor here.

    Set to False, the object stays when the pointer is dropped.

    >>> x = torch.ones(2).send(bob)
    >>> x.gc
    True
    >>> x.gc = False
    >>> del x
    >>> bob
    <VirtualWorker id:bob #objects:1>
    """
    links = first_link(tensor).remote_links()
    return bool(links) and all(link.garbage_collect_data for link in links)


def set_collects(tensor: torch.Tensor, value: bool) -> None:
    """Set whether the object at the worker is dropped with this pointer.

    Raises :class:`~syft.exceptions.UnsupportedOperation` for a tensor that is here, and for True
    where it is False: the object may be somebody else's, or belong to another pointer.

    >>> x = torch.ones(2).send(bob)
    >>> set_collects(x, False)
    >>> x.gc
    False
    """
    links = first_link(tensor).remote_links()
    if not links:
        instead = "say it when you send it: x.send(worker, garbage_collect_data=False)"
        raise UnsupportedOperation("garbage_collect_data", "a tensor that is here", instead)
    for link in links:
        link.gc = value


def _packages_of(name: str) -> list[str]:
    """The packages above a module, but for the whole, the innermost first.

    >>> _packages_of("syft.frameworks.torch.fl")
    ['syft.frameworks.torch', 'syft.frameworks']
    """
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(len(parts) - 1, 1, -1)]


_WORKERS: Final = "sy.VirtualWorker, sy.WebsocketServerWorker and sy.connect give workers"
_LINKS: Final = "a kind of tensor of your own inherits from sy.LocalLink (docs/new_tensor_type.md)"

_MODULES: Final = {
    "syft.execution": "plans are sy.func2plan, sy.method2plan, sy.Plan and sy.State",
    "syft.frameworks": (
        "sy.federated_avg averages models, and kinds of tensors are sy.PointerTensor, "
        "sy.MultiPointerTensor, sy.FixedPrecisionTensor and sy.LoggingTensor"
    ),
    "syft.generic": _LINKS,
    "syft.grid": "sy.PrivateGridNetwork searches workers, and sy.connect(address) gives one",
    "syft.messaging": "plans are sy.func2plan and sy.Plan; messages are the package's own affair",
    "syft.workers.base": _WORKERS,
    "syft.workers.node_client": _WORKERS,
}
"""For each module that is not there: what the package has in its place."""

_MOVED: Final = {
    "syft.execution.plan": ("Plan", "func2plan"),
    "syft.execution.state": ("State",),
    "syft.federated.floptimizer": ("Optims",),
    "syft.frameworks.torch.fl": ("BaseDataset", "FederatedDataLoader", "FederatedDataset"),
    "syft.frameworks.torch.fl.utils": ("federated_avg",),
    "syft.frameworks.torch.linalg": ("DASH", "EncryptedLinearRegression"),
    "syft.frameworks.torch.tensors.decorators.logging": ("LoggingTensor",),
    "syft.frameworks.torch.tensors.interpreters.additive_shared": ("AdditiveSharingTensor",),
    "syft.frameworks.torch.tensors.interpreters.precision": ("FixedPrecisionTensor",),
    "syft.generic.pointers.multi_pointer": ("MultiPointerTensor",),
    "syft.generic.pointers.pointer_plan": ("PointerPlan",),
    "syft.generic.pointers.pointer_tensor": ("PointerTensor",),
    "syft.grid.private_grid": ("PrivateGridNetwork",),
    "syft.messaging.plan": ("Plan", "func2plan"),
    "syft.sandbox": ("create_sandbox",),
    "syft.workers.virtual": ("VirtualWorker",),
    "syft.workers.websocket_client": ("WebsocketClientWorker",),
    "syft.workers.websocket_server": ("WebsocketServerWorker",),
}
"""For each module whose names are names of the package now: these."""

_COMPRESSION: Final = "syft.serde.compression"


class _SetBefore(ModuleType):
    """A module of earlier versions in which programs set something, which changes nothing now."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        codes = {"NO_COMPRESSION": 40, "LZ4": 41, "ZSTD": 42}
        vars(self).update(codes, default_compress_scheme=codes["LZ4"])

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("__"):
            warn_user(f"{self.__name__} is a module of earlier versions: {name} changes nothing")
        super().__setattr__(name, value)


_ABOVE: Final = {above for name in _MOVED for above in _packages_of(name)} - {
    "syft.federated",
    "syft.workers",
}
"""The packages in which modules with such names lay, and which are there no more."""


_ModuleSpec: Any = type(__spec__)


class RenamedModules:
    """The last of Python's finders: makes the modules of earlier versions whose names have moved,
    and says of the others, and of names, what to write."""

    public: ClassVar[Callable[[str], Any]]
    """What the package has under a name."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> Any:
        """A module of earlier versions that has what it had.

        Raises :class:`ModuleNotFoundError` for one that has nothing that is still there, and
        :class:`ImportError` for a name of the package then; finds nothing else.

        >>> import warnings
        >>> with warnings.catch_warnings(action="ignore"):
        ...     from syft.workers.websocket_client import WebsocketClientWorker
        >>> WebsocketClientWorker is sy.WebsocketClientWorker
        True
        >>> from syft.workers.base import BaseWorker
        Traceback (most recent call last):
        ...
        ModuleNotFoundError: syft.workers.base is not there: sy.VirtualWorker, ...
        >>> from syft import NumpyTensor
        Traceback (most recent call last):
        ...
        ImportError: sy.NumpyTensor is not there: send torch.from_numpy(array).
        """
        if fullname in _MOVED or fullname in _ABOVE or fullname == _COMPRESSION:
            return _ModuleSpec(fullname, RenamedModules(), is_package=True)
        above = next((one for one in (fullname, *_packages_of(fullname)) if one in _MODULES), None)
        if above is not None:
            raise ModuleNotFoundError(str(NotThere(fullname, _MODULES[above])), name=fullname)
        package, _, name = fullname.rpartition(".")
        error = not_there(name, ()) if package == "syft" else None
        if isinstance(error, NotThere):
            raise ImportError(str(error), name=fullname)
        return None

    def create_module(self, spec: Any) -> ModuleType | None:
        """What is set in is made here, the others by Python."""
        return _SetBefore(spec.name) if spec.name == _COMPRESSION else None

    def exec_module(self, module: ModuleType) -> None:
        """Give a module the names that it had, with one warning that says where they are now."""
        names = _MOVED.get(module.__name__, ())
        vars(module).update((name, RenamedModules.public(name)) for name in names)
        vars(module)["__getattr__"] = partial(_not_in, module.__name__)
        if names:
            now = ", ".join(f"sy.{name}" for name in names)
            warn_user(f"{module.__name__} is a module of earlier versions: write {now}")


def _not_in(module: str, name: str) -> NoReturn:
    """Raise what is said of a name that a module of earlier versions had, or had not."""
    if not name.startswith("__"):
        above = next((one for one in (module, *_packages_of(module)) if one in _MODULES), None)
        if above is not None:
            raise NotThere(f"{module}.{name}", _MODULES[above])
    raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)


def explain_renamed_modules(public: Callable[[str], Any]) -> None:
    """Have Python ask :class:`RenamedModules` last; once, however often it is called.  ``public``
    gives the names of the package."""
    RenamedModules.public = staticmethod(public)
    vars(serde).setdefault("compression", _SetBefore(_COMPRESSION))
    if RenamedModules not in sys.meta_path:
        sys.meta_path.append(RenamedModules)
