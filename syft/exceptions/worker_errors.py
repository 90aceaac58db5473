"""What goes wrong with workers themselves, and with the ids in their object stores."""

from __future__ import annotations

from syft.exceptions.operation_errors import SyftError


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


class UnknownDevice(WorkerError):
    """No worker is that device of torch.

    >>> print(UnknownDevice("syft:9", ("syft:0 is bob",)))
    No worker is the device syft:9 (syft:0 is bob): sy.device(worker) makes a worker one.
    """

    def __init__(self, device: str, known: tuple[str, ...], why: str = "") -> None:
        super().__init__(device, known, *([why] if why else ()))
        self.device, self.known, self.why = device, tuple(known), why

    def __str__(self) -> str:
        known = ", ".join(self.known) or "there is none"
        why = self.why or "sy.device(worker) makes a worker one"
        return f"No worker is the device {self.device} ({known}): {why}."


class WorkerIdTaken(WorkerError):
    """Another worker has that name already.

    ``differs`` are the arguments that are others than those with which that one was asked for.

    >>> print(WorkerIdTaken("bob"))
    There is a worker 'bob' already. Use it (hook.local_worker.get_worker('bob')), close it first \
(.close()), or choose another id.
    >>> print(WorkerIdTaken("bob", ("address", "token")))
    There is a worker 'bob' already, with another address and another token. Use it \
(hook.local_worker.get_worker('bob')), close it first (.close()), or choose another id.
    """

    def __init__(self, name: str, differs: tuple[str, ...] = ()) -> None:
        super().__init__(name, differs)
        self.name, self.differs = name, tuple(differs)

    def __str__(self) -> str:
        found = " and ".join(f"another {argument}" for argument in self.differs)
        use = f"already{', with ' if found else ''}{found}. Use it (hook.local_worker.get_worker("
        there = f"There is a worker {self.name!r} {use}{self.name!r}))"
        return f"{there}, close it first (.close()), or choose another id."


class WorkerClosed(WorkerError):
    """The worker was closed: its objects are gone and it takes no messages.

    >>> print(WorkerClosed("bob"))
    Worker 'bob' is closed: what this program had there is gone. Create a new one, or connect again.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return (
            f"Worker {self.name!r} is closed: what this program had there is gone. Create a new "
            "one, or connect again."
        )


class RequestWithdrawn(WorkerError):
    """A request was withdrawn by its caller before the worker had begun it.

    >>> print(RequestWithdrawn("bob"))
    Worker 'bob' did not begin this request, because cancel() withdrew it. Make it again if you \
need it.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        why = "because cancel() withdrew it. Make it again if you need it."
        return f"Worker {self.name!r} did not begin this request, {why}"


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
        keep = "Keep the promise (send the tensor to the promised id)"
        if self.ids:
            listed = ", ".join(map(str, self.ids)) + (" and others" if self.more else "")
            named = f" (id {listed})"
        elif self.more:
            named = " (promised by others)"
        else:
            named = ", or for the end of an execution that uses the same object"
            keep = "Keep the promise, or give the execution its inputs,"
        waits = f"Worker {self.worker!r} still waits for a promised input{named}"
        why = "and nothing under way can bring it"
        return f"{waits}, {why}. {keep} before asking for the result."


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


class TooFewClients(SyftError):
    """Fewer clients are left of a round, or of a secure sum, than it needs; says who is missing.

    >>> print(TooFewClients("Round 3", 1, 2, ("bob (late)",)))
    Round 3 has 1 of the 2 clients that it needs. Missing: bob (late). Connect them again, wait \
longer (deadline=), or ask for fewer (minimum=).
    """

    def __init__(
        self, what: str, reported: int, minimum: int, missing: tuple[str, ...] = ()
    ) -> None:
        super().__init__(what, reported, minimum, missing)
        self.what, self.reported, self.minimum = what, reported, minimum
        self.missing = tuple(missing)

    def __str__(self) -> str:
        text = f"{self.what} has {self.reported} of the {self.minimum} clients that it needs."
        missing = f" Missing: {', '.join(self.missing)}." if self.missing else ""
        instead = "Connect them again, wait longer (deadline=), or ask for fewer (minimum=)."
        return f"{text}{missing} {instead}"
