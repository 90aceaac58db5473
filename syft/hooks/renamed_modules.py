"""Modules of earlier versions that are not there, and what to write instead.

A program written for an earlier version begins with imports.  ``No module named 'syft.frameworks'``
would leave its author to guess; an import of such a module fails with a text that says what there
is.  Python asks for it when all its own ways have found nothing, so no import becomes slower.

``from syft import Protocol`` comes here too: of a package, Python looks for a module of that name
when there is no such attribute.  What the package's ``__getattr__`` raised is lost on the way, and
a ``ModuleNotFoundError`` with the module's name would be; a plain ``ImportError`` is not.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Final

from syft.exceptions import NotThere
from syft.hooks.renamed import not_there

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
        error = not_there(name) if package == "syft" else None
        if error is not None:
            raise ImportError(str(error), name=fullname)


def explain_renamed_modules() -> None:
    """Have Python ask :class:`RenamedModules` last; once, however often it is called."""
    if RenamedModules not in sys.meta_path:
        sys.meta_path.append(RenamedModules)
