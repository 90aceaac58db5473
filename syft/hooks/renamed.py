"""Names of earlier versions that are not there, and what to write instead.

Whoever reads one gets :class:`~syft.exceptions.NotThere`, an ``AttributeError`` that says so, and
``hasattr`` says False.

Whether an object at a worker dies with the pointer to it, under the names of earlier versions.

``x.send(bob, garbage_collect_data=False)`` says it when the object is sent.  What is written to an
attribute that nobody reads would be lost without a word, so the old names are attributes of every
tensor.

Modules of earlier versions that are not there, and what to write instead.

A program written for an earlier version begins with imports.  ``No module named 'syft.frameworks'``
would leave its author to guess; an import of such a module fails with a text that says what there
is.  Python asks for it when all its own ways have found nothing, so no import becomes slower.

``from syft import Protocol`` comes here too: of a package, Python looks for a module of that name
when there is no such attribute.  What the package's ``__getattr__`` raised is lost on the way, and
a ``ModuleNotFoundError`` with the module's name would be; a plain ``ImportError`` is not.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Final, NoReturn

import torch

from syft.chain.wrapper import first_link
from syft.exceptions import NotThere, UnsupportedOperation

_SHARE: Final = (
    "x.fix_precision().share(alice, bob, crypto_provider=carol) computes on private numbers"
)
_LEAST_SQUARES: Final = "torch.linalg.solve(x.T @ x, x.T @ y) of shared tensors is least squares"
_CONNECT: Final = "sy.connect(address) gives a worker of another process"
_WIDER: Final = "x.fix_precision(precision_fractional=...) chooses the number of digits"

_PLANNED: Final = {
    "Protocol": "send a plan to each worker, and move the pointer from one to the next",
    "func2protocol": "send a plan to each worker, and move the pointer from one to the next",
    "PublicGridNetwork": _CONNECT,
    "DataCentricFLClient": _CONNECT,
    "NodeClient": _CONNECT,
    "ModelCentricFLClient": "send a plan of a training step to each worker (docs/plans.md)",
    "FLClient": "send a plan of a training step to each worker (docs/plans.md)",
    "keygen": _SHARE,
    "PaillierTensor": _SHARE,
    "EncryptedLinearRegression": _LEAST_SQUARES,
    "DASH": _LEAST_SQUARES,
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
    "Optims": "one optimizer of torch takes parameters at several workers",
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


_WORKERS: Final = "sy.VirtualWorker, sy.WebsocketServerWorker and sy.connect give workers"
_LINKS: Final = "a kind of tensor of your own inherits from sy.LocalLink (docs/new_tensor_type.md)"

_MODULES: Final = {
    "syft.execution": "plans are sy.func2plan, sy.method2plan, sy.Plan and sy.State",
    "syft.federated.floptimizer": (
        "any optimizer of torch does; make one for each worker if each is to have a state of its "
        "own, as with momentum: {name: torch.optim.Adam(model.parameters()) for name in names}"
    ),
    "syft.frameworks": (
        "sy.federated_avg averages models, and kinds of tensors are sy.PointerTensor, "
        "sy.MultiPointerTensor, sy.FixedPrecisionTensor and sy.LoggingTensor"
    ),
    "syft.generic": _LINKS,
    "syft.grid": "sy.PrivateGridNetwork searches workers, and sy.connect(address) gives one",
    "syft.messaging": "plans are sy.func2plan and sy.Plan; messages are the package's own affair",
    "syft.sandbox": "sy.create_sandbox(globals())",
    "syft.workers.base": _WORKERS,
    "syft.workers.node_client": _WORKERS,
    "syft.workers.virtual": _WORKERS,
    "syft.workers.websocket_client": _WORKERS,
    "syft.workers.websocket_server": _WORKERS,
}
"""For each module: what the package has in its place."""


class RenamedModules:
    """The last of Python's finders: says of a module or name of earlier versions what to write."""

    @staticmethod
    def find_spec(
        fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        """Raise :class:`ModuleNotFoundError` for a module of earlier versions, and
        :class:`ImportError` for a name of the package then; find nothing.

        >>> from syft.federated.floptimizer import Optims
        Traceback (most recent call last):
        ...
        ModuleNotFoundError: syft.federated.floptimizer is not there: any optimizer of torch ...
        >>> from syft import Protocol
        Traceback (most recent call last):
        ...
        ImportError: sy.Protocol is not there yet: send a plan to each worker, and move the ...
        """
        instead = _MODULES.get(fullname)
        if instead is not None:
            raise ModuleNotFoundError(str(NotThere(fullname, instead)), name=fullname)
        package, _, name = fullname.rpartition(".")
        error = not_there(name, ()) if package == "syft" else None
        if isinstance(error, NotThere):
            raise ImportError(str(error), name=fullname)


def explain_renamed_modules() -> None:
    """Have Python ask :class:`RenamedModules` last; once, however often it is called."""
    if RenamedModules not in sys.meta_path:
        sys.meta_path.append(RenamedModules)
