"""The exceptions of syft, as one tree.

An error is part of the interface: it says what was expected, what came and what to do next.  The
parts are attributes, and ``__str__`` builds the text from them, so that programs read the parts and
people the sentence.  Every part is a plain Python value, so that an error crosses the wire as its
class and its parts, and is an instance of the same class at the other worker.

None of these is a ``TypeError``: torch's binary operators turn a ``TypeError`` into
``NotImplemented``, and the reason would be lost.  ``NotShareable``, which no operator raises, is an
exception to that.

::

    SyftError
    ├── WorkerError
    │   ├── UnknownWorker            no worker of that name is known here
    │   ├── UnknownDevice            no worker is that device of torch
    │   ├── WorkerIdTaken            another worker has that name
    │   ├── WorkerClosed             the worker was closed
    │   │   └── WorkerLost           the connection to it broke and could not be made again
    │   ├── WorkerRefused            the worker does not speak with this program; says why
    │   ├── RequestWithdrawn         cancel() withdrew the request before the worker had begun it
    │   ├── WorkerTimeout            no answer in the given time (a TimeoutError too)
    │   ├── WrongAddress             no address of a worker (a ValueError too)
    │   ├── InsecureAddress          an address off this machine without encryption
    │   └── RemoteFailure            a remote exception whose class has no wire number
    ├── StoreError
    │   ├── ObjectNotFound           no object has that id; says what removed it, if it was there
    │   ├── ObjectIdTaken            an object of that id is there already
    │   ├── ObjectNotReady           the object is promised, and no message under way can bring it
    │   └── PromiseGivenUp           whoever promised the object gave that up; says why
    ├── OperationError
    │   ├── UnknownOperation         the op is not in the op table
    │   ├── OperationRefused         the op is known and may not run on another worker
    │   ├── UnsupportedOperation     this kind of tensor has no rule for the op
    │   ├── LocationMismatch         the operands lie at different places
    │   │   └── DeviceMismatch       one of them is on a device (a RuntimeError too)
    │   ├── StaleOperand             a plain tensor was written to before a lazy operation read it
    │   ├── NoSuchDevice             the worker's machine has no device of that name
    │   ├── DataStaysPut             a local read of something that is not here
    │   └── ResultMismatch           not as many results as the caller was sure of
    ├── SendError
    │   ├── NotSendable              this kind of value cannot travel
    │   ├── NotALeaf                 a tensor with a graph behind it cannot be sent
    │   └── NothingToGet             there is nothing remote behind the tensor
    ├── WireError
    │   ├── BrokenFraming            what came over a connection is no WebSocket
    │   ├── MalformedMessage         a message that breaks the format; names the path inside it
    │   └── LimitExceeded            a message that breaks a limit; names the path inside it
    ├── ProgramError                 a program that is wrong, or went otherwise than recorded
    │   ├── NotBuilt                 the plan has not been recorded yet (a RuntimeError too)
    │   ├── CannotRecord             something that a recording cannot keep; names the line
    │   ├── WrongArguments           arguments of another number or kind than the plan takes
    │   ├── OtherPath                a size or number by which the function decides is another
    │   ├── ProtocolError            a protocol that does not say who does something
    │   ├── StateMismatch            a state tensor was replaced by one that does not fit
    │   ├── InputRefused             an execution of a protocol takes no such value, or not now
    │   ├── ExecutionCancelled       whoever started the execution has cancelled it; says why
    │   └── PlansNotAllowed          the owner of the worker lets nobody run plans there
    ├── SharingError
    │   ├── NotShareable             it must be encoded first, or lies elsewhere (a TypeError too)
    │   ├── WrongParties             too few workers, or one in two places (a ValueError too)
    │   ├── SessionEnded             the parties stopped computing together; says why
    │   ├── SharedOperationFailed    a program failed at a worker and was undone; says why
    │   │   └── ProviderLost         who deals for shared tensors is gone; what is shared is there
    │   ├── StockFull                more would be dealt ahead than the caller allows
    │   ├── WrongResult              an operation is off by more than is stated (verify_shares)
    │   └── MaterialError            what the provider dealt is not what a party needs
    │       └── MaterialUsed         randomness would be used a second time
    ├── PermissionDenied             private to other users, or not the caller's to change or send
    │   ├── ProviderDenied           who would deal for shares of it is not named by its owner
    │   └── TokenMissing             nothing proves that requests may be made for a user
    ├── TrustError
    │   ├── TicketRefused            a ticket between workers is forged, changed, expired or used
    │   ├── FingerprintMismatch      the other end's certificate is not the pinned one
    │   └── UnknownToken             no token of that id is in the book
    ├── NotThere                     a name of earlier versions (an AttributeError too)
    ├── FileRefused                  a file of the owner is absent, unsafe or not what it should be
    ├── TooFewClients                fewer clients are left of a round than it needs
    ├── AuditFailed                  a worker cannot write its audit log, and serves nobody
    ├── AuditBroken                  a line of an audit log is not the one that was written
    ├── UnusableSetting              an argument or option has a value that it cannot have
    ├── EncodingError                a number that the fixed-point grid cannot hold
    └── HookError                    torch is not hooked, or hooked with other arguments

A file holds a branch or two.  Users know this module alone: each class says that it is from here,
in tracebacks as on the wire.
"""

from syft.exceptions.trust_errors import BrokenFraming as BrokenFraming
from syft.exceptions.trust_errors import InsecureAddress as InsecureAddress
from syft.exceptions.trust_errors import WorkerLost as WorkerLost
from syft.exceptions.trust_errors import WorkerRefused as WorkerRefused
from syft.exceptions.trust_errors import WorkerTimeout as WorkerTimeout
from syft.exceptions.trust_errors import WrongAddress as WrongAddress
from syft.exceptions.operation_errors import DataStaysPut as DataStaysPut
from syft.exceptions.operation_errors import NoSuchDevice as NoSuchDevice
from syft.exceptions.operation_errors import DeviceMismatch as DeviceMismatch
from syft.exceptions.operation_errors import EncodingError as EncodingError
from syft.exceptions.operation_errors import HookError as HookError
from syft.exceptions.operation_errors import LocationMismatch as LocationMismatch
from syft.exceptions.operation_errors import StaleOperand as StaleOperand
from syft.exceptions.operation_errors import NotThere as NotThere
from syft.exceptions.operation_errors import OperationError as OperationError
from syft.exceptions.operation_errors import OperationRefused as OperationRefused
from syft.exceptions.operation_errors import ResultMismatch as ResultMismatch
from syft.exceptions.operation_errors import UnknownOperation as UnknownOperation
from syft.exceptions.operation_errors import UnsupportedOperation as UnsupportedOperation
from syft.exceptions.operation_errors import CannotRecord as CannotRecord
from syft.exceptions.operation_errors import FrozenPath as FrozenPath
from syft.exceptions.operation_errors import ExecutionCancelled as ExecutionCancelled
from syft.exceptions.operation_errors import InputRefused as InputRefused
from syft.exceptions.operation_errors import NotBuilt as NotBuilt
from syft.exceptions.operation_errors import PlansNotAllowed as PlansNotAllowed
from syft.exceptions.operation_errors import ProgramError as ProgramError
from syft.exceptions.operation_errors import ProtocolError as ProtocolError
from syft.exceptions.operation_errors import StateMismatch as StateMismatch
from syft.exceptions.operation_errors import OtherPath as OtherPath
from syft.exceptions.operation_errors import WrongArguments as WrongArguments
from syft.exceptions.sending_errors import GraphLeftBehind as GraphLeftBehind
from syft.exceptions.sending_errors import LimitExceeded as LimitExceeded
from syft.exceptions.sending_errors import MalformedMessage as MalformedMessage
from syft.exceptions.sending_errors import NotALeaf as NotALeaf
from syft.exceptions.sending_errors import NotSendable as NotSendable
from syft.exceptions.sending_errors import NothingToGet as NothingToGet
from syft.exceptions.sending_errors import SendError as SendError
from syft.exceptions.sending_errors import WireError as WireError
from syft.exceptions.sending_errors import MaterialError as MaterialError
from syft.exceptions.sending_errors import MaterialUsed as MaterialUsed
from syft.exceptions.sending_errors import NotShareable as NotShareable
from syft.exceptions.sending_errors import ProviderLost as ProviderLost
from syft.exceptions.sending_errors import SessionEnded as SessionEnded
from syft.exceptions.sending_errors import SharedOperationFailed as SharedOperationFailed
from syft.exceptions.sending_errors import SharingError as SharingError
from syft.exceptions.sending_errors import StockFull as StockFull
from syft.exceptions.sending_errors import WrongParties as WrongParties
from syft.exceptions.sending_errors import WrongResult as WrongResult
from syft.exceptions.operation_errors import SyftError as SyftError
from syft.exceptions.trust_errors import AuditBroken as AuditBroken
from syft.exceptions.trust_errors import AuditFailed as AuditFailed
from syft.exceptions.trust_errors import FileRefused as FileRefused
from syft.exceptions.trust_errors import FingerprintMismatch as FingerprintMismatch
from syft.exceptions.trust_errors import PermissionDenied as PermissionDenied
from syft.exceptions.trust_errors import ProviderDenied as ProviderDenied
from syft.exceptions.trust_errors import TicketRefused as TicketRefused
from syft.exceptions.trust_errors import TokenMissing as TokenMissing
from syft.exceptions.trust_errors import TrustError as TrustError
from syft.exceptions.trust_errors import UnknownToken as UnknownToken
from syft.exceptions.trust_errors import UnusableSetting as UnusableSetting
from syft.exceptions.worker_errors import ObjectIdTaken as ObjectIdTaken
from syft.exceptions.worker_errors import ObjectNotFound as ObjectNotFound
from syft.exceptions.worker_errors import ObjectNotReady as ObjectNotReady
from syft.exceptions.worker_errors import PromiseGivenUp as PromiseGivenUp
from syft.exceptions.worker_errors import RemoteFailure as RemoteFailure
from syft.exceptions.worker_errors import RequestWithdrawn as RequestWithdrawn
from syft.exceptions.worker_errors import StoreError as StoreError
from syft.exceptions.worker_errors import TooFewClients as TooFewClients
from syft.exceptions.worker_errors import UnknownDevice as UnknownDevice
from syft.exceptions.worker_errors import UnknownWorker as UnknownWorker
from syft.exceptions.worker_errors import WorkerClosed as WorkerClosed
from syft.exceptions.worker_errors import WorkerError as WorkerError
from syft.exceptions.worker_errors import WorkerIdTaken as WorkerIdTaken

for _value in list(vars().values()):
    if isinstance(_value, type):
        _value.__module__ = __name__
del _value
