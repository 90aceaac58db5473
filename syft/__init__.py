"""syft: PyTorch, unchanged, on data that lives elsewhere or that nobody may see."""

import gc as _gc
import typing as _typing
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING

from syft.collector_pause import CollectorPause as _CollectorPause

if _gc.isenabled():
    _pause: _typing.Any = _CollectorPause()

from syft import exceptions as exceptions
from syft import ids as ids
from syft import serde as serde
from syft.chain.link import Level as Level
from syft.chain.link import Link as Link
from syft.chain.wrapper import Wrapper as Wrapper
from syft.federated.averaging import federated_average as federated_average
from syft.federated.averaging import federated_avg as federated_avg
from syft.federated.base_dataset import BaseDataset as BaseDataset
from syft.federated.federated_dataset import FederatedDataset as FederatedDataset
from syft.federated.federated_dataset import FederatedDataLoader as FederatedDataLoader
from syft.federated.federated_dataset import dataset_federate as dataset_federate
from syft.federated.partition import Partition as Partition
from syft.federated.private_grid import PrivateGridNetwork as PrivateGridNetwork
from syft.federated.rules import ClippedMean as ClippedMean
from syft.federated.rules import TrimmedMean as TrimmedMean
from syft.federated.sandbox import create_sandbox as create_sandbox
from syft.federated import fitting as _fitting  # workers train by it
from syft.federated.train_config import TrainConfig as TrainConfig
from syft.hooks.optims import Optims as Optims
from syft.hooks.places import at as at
from syft.hooks.renamed import not_there as _not_there
from syft.hooks.renamed import explain_renamed_modules as _explain_renamed_modules
from syft.hooks.sharing_ahead import cost as cost
from syft.hooks.sharing_ahead import prepare as prepare
from syft.hooks.sharing_ahead import stock as stock
from syft.hooks.torch_hook import TorchHook as TorchHook
from syft.hooks.torch_hook import device as device
from syft.hooks.torch_hook import get_all as get_all
from syft.hooks.torch_hook import send_all as send_all
from syft.hooks.torch_hook import synchronize as synchronize
from syft.hooks.torch_hook import trace as trace
from syft.ops.secret_integers import secret_like as secret_like
from syft.plans.function_plan import func2plan as func2plan
from syft.plans.function_plan import method2plan as method2plan
from syft.plans.plan import Plan as Plan
from syft.plans.remote.pointer_plan import PointerPlan as PointerPlan
from syft.plans.building.state import State as State
from syft.protocols.deployment import Execution as Execution
from syft.protocols.protocol import Protocol as Protocol
from syft.protocols.protocol import func2protocol as func2protocol
from syft.protocols.protocol import protocol as protocol
from syft.protocols.recorded_calls import record_protocol as record_protocol
from syft.protocols.role_worker import RoleWorker as RoleWorker
from syft.protocols.tapes import Role as Role
from syft.program.recording.control_flow import cond as cond
from syft.program.recording.control_flow import while_loop as while_loop
from syft.tensors.collective_call import sum_private as sum_private
from syft.tensors.fixed.precision import FixedPrecisionTensor as FixedPrecisionTensor
from syft.tensors.lazy.lazy_link import LazyTensor as LazyTensor
from syft.tensors.lazy.lazy_scope import lazy as lazy
from syft.tensors.local import LocalLink as LocalLink
from syft.tensors.logging import LoggingTensor as LoggingTensor
from syft.tensors import native_calls as _native_calls  # what the extension in C works on
from syft.tensors.multi_pointer import MultiPointerTensor as MultiPointerTensor
from syft.tensors.multi_pointer import combine_pointers as combine_pointers
from syft.tensors.shared.additive_sharing import AdditiveSharingTensor as AdditiveSharingTensor
from syft.tensors.shared.ahead import Cost as Cost
from syft.tensors.shared.ahead import StockLevel as StockLevel
from syft.tensors.shared.verification import verify_shares as verify_shares
from syft.tensors.pointer import PointerTensor as PointerTensor
from syft.version import VERSION as __version__
from syft.workers.core.peer_limits import PeerLimits as PeerLimits
from syft.workers.shells.virtual import VirtualWorker as VirtualWorker

if TYPE_CHECKING:
    from syft.federated.least_squares import DASH as DASH
    from syft.federated.least_squares import EncryptedLinearRegression as EncryptedLinearRegression
    from syft.federated.round_loop import FederatedRound as FederatedRound
    from syft.federated.round_loop import rounds as rounds
    from syft.federated.simulated_clients import SimulatedClients as SimulatedClients
    from syft.hooks.connecting import connect as connect
    from syft.node.dataset_reading import read_dataset as read_dataset
    from syft.workers.sockets.client import WebsocketClientWorker as WebsocketClientWorker
    from syft.workers.sockets.server import WebsocketServerWorker as WebsocketServerWorker

del TYPE_CHECKING
_explain_renamed_modules(lambda name: globals().get(name) or __getattr__(name))
_pause = None  # ends the pause


_PUBLIC_MODULES = frozenset(("exceptions", "ids", "serde"))


def _import_sockets() -> None:
    from syft.hooks import connecting
    from syft.workers.sockets import client, server

    globals()["connect"] = connecting.connect
    globals()["WebsocketClientWorker"] = client.WebsocketClientWorker
    globals()["WebsocketServerWorker"] = server.WebsocketServerWorker


def _import_simulation() -> None:
    from syft.federated import simulated_clients

    globals()["SimulatedClients"] = simulated_clients.SimulatedClients


def _import_rounds() -> None:
    from syft.federated import round_loop

    globals().update(FederatedRound=round_loop.FederatedRound, rounds=round_loop.rounds)


def _import_least_squares() -> None:
    from syft.federated import least_squares

    globals()["DASH"] = least_squares.DASH
    globals()["EncryptedLinearRegression"] = least_squares.EncryptedLinearRegression


def _import_reading() -> None:
    from syft.node import dataset_reading

    globals()["read_dataset"] = dataset_reading.read_dataset


_LATE = {
    "read_dataset": _import_reading,
    "connect": _import_sockets,
    "WebsocketClientWorker": _import_sockets,
    "WebsocketServerWorker": _import_sockets,
    "SimulatedClients": _import_simulation,
    "FederatedRound": _import_rounds,
    "rounds": _import_rounds,
    "DASH": _import_least_squares,
    "EncryptedLinearRegression": _import_least_squares,
}
"""What imports one of these names when it is first read: sockets, certificates and ciphers take a
quarter of the time that the whole package takes, and many programs need none."""


def __getattr__(name: str) -> _typing.Any:
    """``sy.hook`` and ``sy.local_worker``, those of the hook in force, and what is read late."""
    if name == "hook":
        return TorchHook.current()
    if name == "local_worker":
        return TorchHook.current().local_worker
    if name in _LATE:
        _LATE[name]()
        return globals()[name]
    raise _not_there(name, __dir__())


def __dir__() -> list[str]:
    """What users call, without the rooms of the package, which importing it leaves here."""
    dynamic = [] if TorchHook._current is None else ["hook", "local_worker"]
    public = [
        name
        for name, value in globals().items()
        if name in _PUBLIC_MODULES or not (name[0] == "_" or isinstance(value, _ModuleType))
    ]
    return sorted({*public, *_LATE, "__version__", *dynamic})


__all__ = [name for name in __dir__() if name != "__version__"]  # what is read late among them
