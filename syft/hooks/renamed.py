"""Names of earlier versions that are not there, and what to write instead.

Whoever reads one gets :class:`~syft.exceptions.NotThere`, an ``AttributeError`` that says so, and
``hasattr`` says False.
"""

from __future__ import annotations

from typing import Final, NoReturn

import torch

from syft.exceptions import NotThere

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
    "AdditiveSharingTensor": _SHARE,
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


def not_there(name: str) -> NotThere | None:
    """The error for a name of the package of earlier versions; None for any other name.

    >>> print(not_there("make_hook"), not_there("nonsense"))
    sy.make_hook is not there: sy.TorchHook(torch). None
    """
    planned = name in _PLANNED
    instead = _PLANNED.get(name) or _GONE.get(name)
    return None if instead is None else NotThere(f"sy.{name}", instead, planned)


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
