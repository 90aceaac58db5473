"""The exceptions of syft, as one tree.

An error is part of the interface: it says what was expected, what came and what to do next.  The
parts are attributes, and ``__str__`` builds the text from them, so that programs read the parts and
people the sentence.  Every part is a plain Python value, so that an error crosses the wire as its
class and its parts, and is an instance of the same class at the other worker.

None of these is a ``TypeError``: torch's binary operators turn a ``TypeError`` into
``NotImplemented``, and the reason would be lost.

::

    SyftError
    ├── WorkerError
    │   ├── UnknownWorker            no worker of that name is known here
    │   ├── WorkerIdTaken            another worker has that name
    │   ├── WorkerClosed             the worker was closed
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
    │   ├── DataStaysPut             a local read of something that is not here
    │   └── ResultMismatch           not as many results as the caller was sure of
    ├── SendError
    │   ├── NotSendable              this kind of value cannot travel
    │   ├── NotALeaf                 a tensor with a graph behind it cannot be sent
    │   └── NothingToGet             there is nothing remote behind the tensor
    ├── WireError
    │   ├── MalformedMessage         a message that breaks the format; names the path inside it
    │   └── LimitExceeded            a message that breaks a limit; names the path inside it
    ├── ProgramError                 a program that is wrong, or went otherwise than recorded
    │   ├── NotBuilt                 the plan has not been recorded yet (a RuntimeError too)
    │   ├── CannotRecord             something that a recording cannot keep; names the line
    │   ├── WrongArguments           arguments of another number or kind than the plan takes
    │   ├── StateMismatch            a state tensor was replaced by one that does not fit
    │   └── PlansNotAllowed          the owner of the worker lets nobody run plans there
    ├── PermissionDenied             private to other users, or not the caller's to change or send
    ├── EncodingError                a number that the fixed-point grid cannot hold
    └── HookError                    torch is not hooked, or hooked with other arguments
"""

from __future__ import annotations


class SyftError(Exception):
    """The base class of every error that syft raises.

    >>> issubclass(ObjectNotFound, SyftError)
    True
    """


class WorkerError(SyftError):
    """An error about a worker itself, not about an object that it holds.

    >>> issubclass(UnknownWorker, WorkerError)
    True
    """


class UnknownWorker(WorkerError):
    """No worker of that name is known here.

    >>> print(UnknownWorker("nobody", "me", ("alice", "bob")))
    'me' knows no worker 'nobody' (it knows alice, bob). Create it, or introduce it with \
add_worker().
    """

    def __init__(self, name: str, asked: str, known: tuple[str, ...]) -> None:
        super().__init__(name, asked, known)
        self.name, self.asked, self.known = name, asked, tuple(known)

    def __str__(self) -> str:
        known = ", ".join(self.known) or "nobody else"
        text = f"{self.asked!r} knows no worker {self.name!r} (it knows {known})."
        return f"{text} Create it, or introduce it with add_worker()."


class WorkerIdTaken(WorkerError):
    """Another worker has that name already.

    >>> print(WorkerIdTaken("bob"))
    There is a worker 'bob' already. Use it (hook.local_worker.get_worker('bob')), close it first \
(.close()), or choose another id.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        use = f"There is a worker {self.name!r} already. Use it (hook.local_worker.get_worker("
        return f"{use}{self.name!r})), close it first (.close()), or choose another id."


class WorkerClosed(WorkerError):
    """The worker was closed: its objects are gone and it takes no messages.

    >>> print(WorkerClosed("bob"))
    Worker 'bob' is closed: what it held is gone. Create a new one.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"Worker {self.name!r} is closed: what it held is gone. Create a new one."


class RemoteFailure(WorkerError):
    """A remote exception whose own class has no wire number, so that it cannot come back as itself.

    >>> print(RemoteFailure("zipfile.BadZipFile", "truncated"))
    zipfile.BadZipFile: truncated
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)
        self.kind, self.text = kind, text

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class StoreError(SyftError):
    """An error about an id in a worker's object store.

    >>> issubclass(ObjectNotFound, StoreError)
    True
    """


class ObjectNotFound(StoreError):
    """A worker holds no object of that id; if it held one, the reason says what removed it.

    >>> print(ObjectNotFound(7, "bob", "me fetched it with get()"))
    Worker 'bob' holds no object 7: me fetched it with get().
    >>> print(ObjectNotFound(7, "bob"))
    Worker 'bob' holds no object 7: it was never there, or was removed long ago.
    """

    def __init__(self, id: int, worker: str, reason: str | None = None) -> None:
        super().__init__(id, worker, reason)
        self.id, self.worker, self.reason = id, worker, reason

    def __str__(self) -> str:
        reason = self.reason or "it was never there, or was removed long ago"
        return f"Worker {self.worker!r} holds no object {self.id}: {reason}."


class ObjectIdTaken(StoreError):
    """An object of that id is at the worker already; nothing was overwritten.

    >>> print(ObjectIdTaken(7, "bob"))
    Worker 'bob' holds an object 7 already; nothing was overwritten. Choose a fresh id.
    """

    def __init__(self, id: int, worker: str) -> None:
        super().__init__(id, worker)
        self.id, self.worker = id, worker

    def __str__(self) -> str:
        held = f"Worker {self.worker!r} holds an object {self.id} already"
        return f"{held}; nothing was overwritten. Choose a fresh id."


class ObjectNotReady(StoreError):
    """An object is promised, and no message under way can bring it, so waiting would never end.

    ``ids`` are the promises for which the request had to wait when it came, some of them if there
    are ``more``: those that another connection made are not named.

    >>> print(ObjectNotReady("bob", (7,)))
    Worker 'bob' still waits for a promised input (id 7), and nothing under way can bring it. \
Keep the promise (send the tensor to the promised id) before asking for the result.
    """

    def __init__(self, worker: str, ids: tuple[int, ...] = (), more: bool = False) -> None:
        super().__init__(worker, ids, more)
        self.worker, self.ids, self.more = worker, tuple(ids), more

    def __str__(self) -> str:
        listed = ", ".join(map(str, self.ids)) + (" and others" if self.more else "")
        named = f" (id {listed})" if self.ids else " (promised by others)" if self.more else ""
        text = f"Worker {self.worker!r} still waits for a promised input{named}, and nothing under"
        keep = "Keep the promise (send the tensor to the promised id) before asking for the result."
        return f"{text} way can bring it. {keep}"


class PromiseGivenUp(StoreError):
    """The object, or one from which it was to be made, was promised, and the promise was given up.

    >>> print(PromiseGivenUp(7, "bob", "the sensor broke"))
    The promise of object 7 at worker 'bob' was given up: the sensor broke. Nothing can keep it \
any more; make another promise.
    """

    def __init__(self, id: int, worker: str, reason: str) -> None:
        super().__init__(id, worker, reason)
        self.id, self.worker, self.reason = id, worker, reason

    def __str__(self) -> str:
        text = f"The promise of object {self.id} at worker {self.worker!r} was given up"
        return f"{text}: {self.reason}. Nothing can keep it any more; make another promise."


class OperationError(SyftError):
    """A torch call that the chain cannot carry.

    >>> issubclass(UnknownOperation, OperationError)
    True
    """


class UnknownOperation(OperationError):
    """The op is not in the op table, so no worker would know it.

    >>> print(UnknownOperation("my_function"))
    'my_function' is not in the op table, so it cannot run on another worker. \
Write it in terms of torch operations.
    """

    def __init__(self, op: str) -> None:
        super().__init__(op)
        self.op = op

    def __str__(self) -> str:
        text = f"{self.op!r} is not in the op table, so it cannot run on another worker."
        return f"{text} Write it in terms of torch operations."


class OperationRefused(OperationError):
    """The op is known, and may not run on behalf of another worker.

    >>> print(OperationRefused("torch.save", "it writes files"))
    'torch.save' cannot run on another worker: it writes files.
    """

    def __init__(self, op: str, reason: str) -> None:
        super().__init__(op, reason)
        self.op, self.reason = op, reason

    def __str__(self) -> str:
        return f"{self.op!r} cannot run on another worker: {self.reason}."


class UnsupportedOperation(OperationError):
    """This kind of tensor has no rule for the op.

    >>> print(UnsupportedOperation("aten.sort", "FixedPrecisionTensor", "call .float_prec() first"))
    FixedPrecisionTensor has no rule for aten.sort: call .float_prec() first.
    """

    def __init__(self, op: str, link: str, instead: str) -> None:
        super().__init__(op, link, instead)
        self.op, self.link, self.instead = op, link, instead

    def __str__(self) -> str:
        return f"{self.link} has no rule for {self.op}: {self.instead}."


class LocationMismatch(OperationError):
    """The operands of one op lie at different places, and nothing was moved.

    >>> print(LocationMismatch("torch.Tensor.add", ("bob", "me")))
    torch.Tensor.add: the operands lie at bob and me. Bring them together first: \
.send(), .move() or .get().
    """

    def __init__(self, op: str, places: tuple[str, ...]) -> None:
        super().__init__(op, places)
        self.op, self.places = op, tuple(places)

    def __str__(self) -> str:
        text = f"{self.op}: the operands lie at {' and '.join(self.places)}."
        return f"{text} Bring them together first: .send(), .move() or .get()."


class DataStaysPut(OperationError):
    """Local code tried to read, copy or pickle data that is not in this tensor.

    >>> print(DataStaysPut("numpy()", "(Wrapper)>[PointerTensor | me:1 -> bob:2]"))
    numpy() would read data that is not here: (Wrapper)>[PointerTensor | me:1 -> bob:2]. \
Bring it here first with .get() (or .float_prec()), if you may.
    """

    def __init__(self, action: str, tensor: str) -> None:
        super().__init__(action, tensor)
        self.action, self.tensor = action, tensor

    def __str__(self) -> str:
        text = f"{self.action} would read data that is not here: {self.tensor}."
        return f"{text} Bring it here first with .get() (or .float_prec()), if you may."


class ResultMismatch(OperationError):
    """An operation has another number of results than its caller expected; none was stored.

    >>> print(ResultMismatch("torch.sort", "bob", "2 tensors", "3 tensors"))
    torch.sort gives 3 tensors at worker 'bob' where its caller expected 2 tensors; none was \
stored. The two ends run different versions of torch or syft.
    """

    def __init__(self, op: str, worker: str, expected: str, got: str) -> None:
        super().__init__(op, worker, expected, got)
        self.op, self.worker, self.expected, self.got = op, worker, expected, got

    def __str__(self) -> str:
        text = f"{self.op} gives {self.got} at worker {self.worker!r} where its caller expected"
        other = "none was stored. The two ends run different versions of torch or syft."
        return f"{text} {self.expected}; {other}"


class SendError(SyftError):
    """A value that cannot be sent or fetched.

    >>> issubclass(NotSendable, SendError)
    True
    """


class NotSendable(SendError):
    """This kind of value cannot travel to another worker.

    >>> print(NotSendable("a function", "send tensors, numbers, strings and containers of these"))
    Cannot send a function: send tensors, numbers, strings and containers of these.
    """

    def __init__(self, what: str, instead: str) -> None:
        super().__init__(what, instead)
        self.what, self.instead = what, instead

    def __str__(self) -> str:
        return f"Cannot send {self.what}: {self.instead}."


class NotALeaf(SendError):
    """A tensor with an autograd graph behind it, which cannot be sent without losing the graph.

    >>> print(NotALeaf("MulBackward0"))
    Cannot send a tensor that is the result of a recorded computation (MulBackward0): its graph \
cannot travel. Send x.detach(), or send the inputs and compute there.
    """

    def __init__(self, grad_fn: str) -> None:
        super().__init__(grad_fn)
        self.grad_fn = grad_fn

    def __str__(self) -> str:
        return (
            f"Cannot send a tensor that is the result of a recorded computation ({self.grad_fn}): "
            "its graph cannot travel. Send x.detach(), or send the inputs and compute there."
        )


class NothingToGet(SendError):
    """The tensor is in this process: it was never sent, or was fetched already.

    >>> print(NothingToGet("get"))
    get(): this tensor is here already (it was never sent, or has been fetched). Use it as it is.
    """

    def __init__(self, call: str) -> None:
        super().__init__(call)
        self.call = call

    def __str__(self) -> str:
        text = "this tensor is here already (it was never sent, or has been fetched)"
        return f"{self.call}(): {text}. Use it as it is."


class WireError(SyftError):
    """A message that the format does not allow. The worker that got it keeps running.

    >>> issubclass(MalformedMessage, WireError)
    True
    """


class MalformedMessage(WireError):
    """A message breaks the format at the given path.

    >>> print(MalformedMessage("$.args[2]", "a type code", "'x'"))
    Malformed message at $.args[2]: expected a type code, got 'x'.
    """

    def __init__(self, path: str, expected: str, got: str) -> None:
        super().__init__(path, expected, got)
        self.path, self.expected, self.got = path, expected, got

    def __str__(self) -> str:
        return f"Malformed message at {self.path}: expected {self.expected}, got {self.got}."


class LimitExceeded(WireError):
    """A message breaks a limit at the given path, or its sender one of the worker named there.

    >>> print(LimitExceeded("$.args[0]", "max_dims", 64, 1000))
    Message over a limit at $.args[0]: max_dims is 64, got 1000. Send less at once, or raise the \
limit on both sides.
    """

    def __init__(self, path: str, limit: str, allowed: int, got: int) -> None:
        super().__init__(path, limit, allowed, got)
        self.path, self.limit, self.allowed, self.got = path, limit, allowed, got

    def __str__(self) -> str:
        text = f"{self.path}: {self.limit} is {self.allowed}, got {self.got}. "
        if not self.path.startswith("worker "):
            end = "Send less at once, or raise the limit on both sides."
            return f"Message over a limit at {text}{end}"
        end = "Drop what is not needed any more, ask for less at once, or ask the worker's owner"
        return f"Over a limit of {text}{end} for more."


class ProgramError(SyftError):
    """A recorded computation is malformed, or did not go as it was recorded.

    >>> print(ProgramError("it gave 3 results where 2 were recorded"))
    it gave 3 results where 2 were recorded
    """


class NotBuilt(ProgramError, RuntimeError):
    """The plan is not recorded, or what it was recorded with has changed since.

    >>> print(NotBuilt("sent to a worker"))
    A plan needs to be built before being sent to a worker.
    >>> print(NotBuilt("sent to a worker", "lr of SGD was 0.1 and is 0.01 now"))
    A plan needs to be built again before being sent to a worker: lr of SGD was 0.1 and is 0.01 \
now. A call of it builds it, and so does plan.build(...).
    """

    def __init__(self, action: str, change: str = "") -> None:
        super().__init__(action, change)
        self.action, self.change = action, change

    def __str__(self) -> str:
        if not self.change:
            return f"A plan needs to be built before being {self.action}."
        return (
            f"A plan needs to be built again before being {self.action}: {self.change}. "
            "A call of it builds it, and so does plan.build(...)."
        )


class CannotRecord(ProgramError):
    """A step that a recording cannot keep, so that a replay would silently do something else.

    >>> print(CannotRecord("torch.manual_seed", "train.py:12", "seed before you call the plan"))
    A plan cannot keep torch.manual_seed (train.py:12): seed before you call the plan.
    """

    def __init__(self, what: str, line: str, instead: str) -> None:
        super().__init__(what, line, instead)
        self.what, self.line, self.instead = what, line, instead

    def __str__(self) -> str:
        return f"A plan cannot keep {self.what} ({self.line}): {self.instead}."


class WrongArguments(ProgramError):
    """A plan was called with arguments of another number or kind than it takes.

    >>> print(WrongArguments("double", "1 tensor", "2 tensors"))
    Plan 'double' takes 1 tensor, and got 2 tensors.
    """

    def __init__(self, plan: str, expected: str, got: str) -> None:
        super().__init__(plan, expected, got)
        self.plan, self.expected, self.got = plan, expected, got

    def __str__(self) -> str:
        return f"Plan {self.plan!r} takes {self.expected}, and got {self.got}."


class StateMismatch(ProgramError):
    """A state tensor of a plan was replaced by one that does not fit what was recorded.

    >>> print(StateMismatch("net", "fc1.weight", "float32 (3, 2)", "float32 (5, 2)"))
    Plan 'net': state 'fc1.weight' was recorded as float32 (3, 2) and is now float32 (5, 2). Put a \
tensor of the same shape and dtype there, or build the plan again.
    """

    def __init__(self, plan: str, name: str, expected: str, got: str) -> None:
        super().__init__(plan, name, expected, got)
        self.plan, self.name, self.expected, self.got = plan, name, expected, got

    def __str__(self) -> str:
        return (
            f"Plan {self.plan!r}: state {self.name!r} was recorded as {self.expected} and is now "
            f"{self.got}. Put a tensor of the same shape and dtype there, or build the plan again."
        )


class PlansNotAllowed(ProgramError):
    """The owner of the worker does not allow plans there.

    >>> print(PlansNotAllowed("bob"))
    Worker 'bob' runs no plans. Its owner can allow them: allow_plans=True.
    """

    def __init__(self, worker: str) -> None:
        super().__init__(worker)
        self.worker = worker

    def __str__(self) -> str:
        return f"Worker {self.worker!r} runs no plans. Its owner can allow them: allow_plans=True."


class FrozenPath(UserWarning):
    """While a plan was recorded, Python took a branch by a value that may differ in a later call.

    The plan keeps only the path that was taken.  ``sy.cond`` and ``sy.while_loop`` keep both.

    >>> issubclass(FrozenPath, UserWarning)
    True
    """


class PermissionDenied(SyftError):
    """The value is private, and the user who asked may not read it.  Or object ``id`` belongs to
    ``owner`` (None: the worker's), or lies in memory that does, and the caller may not change it.
    Or it is private and may not go ``to`` another worker, or was promised to come from ``sender``.

    >>> print(PermissionDenied("get", "bob", "mallory"))
    get: this value on 'bob' is private, and user 'mallory' may not read it.
    """

    def __init__(
        self,
        action: str,
        worker: str,
        user: str | None,
        id: int | None = None,
        owner: object = None,
        to: str | None = None,
        sender: str | None = None,
    ) -> None:
        super().__init__(action, worker, user, id, owner, to, sender)
        self.action, self.worker, self.user, self.id, self.owner = action, worker, user, id, owner
        self.to, self.sender = to, sender

    def __str__(self) -> str:
        denied = "no user was named" if self.user is None else f"user {self.user!r} may not read it"
        ask = " Pass user=..." if self.user is None else ""
        value = "this value" if self.id is None else f"object {self.id}"
        if self.to is not None:
            why = f"{denied}, and {self.to!r} is not among its allow_destinations=.{ask}"
            return f"{self.action}: {value} on {self.worker!r} may not go to {self.to!r}: {why}"
        if self.sender is not None:
            from_whom = f"from {self.sender!r}, not from {self.user!r}. Choose a fresh id."
            return f"{self.action}: {value} on {self.worker!r} is promised to come {from_whom}"
        if self.id is None:
            return f"{self.action}: {value} on {self.worker!r} is private, and {denied}.{ask}"
        whose = "the owner of the worker" if self.owner is None else repr(self.owner)
        held = f"{value} on {self.worker!r} holds what belongs to {whose}, and"
        instead = "Change a copy (x.copy()), or be named in allow_writes=."
        instead = "Ask the owner to." if self.action == "allow" else instead
        return f"{self.action}: {held} {self.user!r} may not change it. {instead}"


class EncodingError(SyftError):
    """A number that the fixed-point grid cannot hold: out of range, infinite or not a number.

    >>> print(EncodingError("1e+30", "-1.4e+14 to 1.4e+14", "use fewer fractional digits"))
    Cannot encode 1e+30 in fixed precision: the range is -1.4e+14 to 1.4e+14. Instead, use fewer \
fractional digits.
    """

    def __init__(self, value: str, range: str, instead: str) -> None:
        super().__init__(value, range, instead)
        self.value, self.range, self.instead = value, range, instead

    def __str__(self) -> str:
        text = f"Cannot encode {self.value} in fixed precision: the range is {self.range}."
        return f"{text} Instead, {self.instead}."


class HookError(SyftError):
    """Torch is not hooked, or is hooked already in a way that does not fit.

    >>> print(HookError("torch is not hooked", "call sy.TorchHook(torch) first"))
    torch is not hooked: call sy.TorchHook(torch) first.
    """

    def __init__(self, what: str, instead: str) -> None:
        super().__init__(what, instead)
        self.what, self.instead = what, instead

    def __str__(self) -> str:
        return f"{self.what}: {self.instead}."
