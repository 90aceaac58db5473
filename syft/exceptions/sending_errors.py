"""Values that cannot travel, and messages that break the format.

What can go wrong with tensors that several workers share.
"""

from __future__ import annotations

from syft.exceptions.operation_errors import SyftError


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


class GraphLeftBehind(UserWarning):
    """A view of a leaf was sent: a leaf of its own went, and its gradient will not reach the other.

    >>> print(GraphLeftBehind("SliceBackward0"))
    What is sent is a view of a leaf that requires grad (SliceBackward0), and goes as a leaf of \
its own: its gradient stays there, and does not reach the leaf here. Send x.detach() if it needs \
no gradient.
    """

    def __init__(self, grad_fn: str) -> None:
        super().__init__(grad_fn)
        self.grad_fn = grad_fn

    def __str__(self) -> str:
        return (
            f"What is sent is a view of a leaf that requires grad ({self.grad_fn}), and goes as a "
            "leaf of its own: its gradient stays there, and does not reach the leaf here. Send "
            "x.detach() if it needs no gradient."
        )


class NothingToGet(SendError):
    """The tensor is in this process: it was never sent, or was fetched already.

    Calls that put shares together raise it for what is not ``shared``, here or elsewhere.

    >>> print(NothingToGet("get"))
    get(): this tensor is here already (it was never sent, or has been fetched). Use it as it is.
    """

    def __init__(self, call: str, shared: bool = True) -> None:
        super().__init__(call, shared)
        self.call = call
        self.shared = shared

    def __str__(self) -> str:
        if not self.shared:
            instead = "Use it as it is, or get() it if it is at a worker"
            return f"{self.call}(): this tensor is not shared. {instead}."
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


class SharingError(SyftError):
    """An error about shared tensors, their parties or their provider.

    >>> issubclass(SessionEnded, SharingError)
    True
    """


class NotShareable(SharingError, TypeError):
    """Something cannot be shared as it is.

    >>> print(NotShareable("a tensor of torch.float32", "call .fix_precision() first"))
    Cannot share a tensor of torch.float32: call .fix_precision() first.
    """

    def __init__(self, what: str, instead: str) -> None:
        super().__init__(what, instead)
        self.what, self.instead = what, instead

    def __str__(self) -> str:
        return f"Cannot share {self.what}: {self.instead}."


class WrongParties(SharingError, ValueError):
    """Workers that cannot share a tensor: too few, named twice, or dealing for themselves.

    >>> print(WrongParties(("bob",), "name two workers or more"))
    Cannot share among bob: name two workers or more.
    """

    def __init__(self, parties: tuple[str, ...], instead: str) -> None:
        super().__init__(parties, instead)
        self.parties, self.instead = parties, instead

    def __str__(self) -> str:
        return f"Cannot share among {', '.join(self.parties) or 'nobody'}: {self.instead}."


class _Stopped(SharingError):
    """Some parties do not go on as they were asked; the cause says where and why."""

    _text: str

    def __init__(self, parties: tuple[str, ...], cause: str) -> None:
        super().__init__(parties, cause)
        self.parties, self.cause = parties, cause

    def __str__(self) -> str:
        return self._text.format(among=", ".join(self.parties), cause=self.cause)


class SessionEnded(_Stopped):
    """A session of shared tensors has ended, on all sides; the cause says where and why.

    >>> print(SessionEnded(("alice", "bob"), "bob: no object 5"))
    The tensors shared among alice, bob cannot be used any more (bob: no object 5). Share them \
again.
    """

    _text = "The tensors shared among {among} cannot be used any more ({cause}). Share them again."


class SharedOperationFailed(_Stopped):
    """A program on shared tensors has failed at a worker, and was undone at all of them.

    What it was to make is not there.  What was there before it, is, as it was: also what the
    program has written to in place.

    >>> print(SharedOperationFailed(("alice", "bob"), "LimitExceeded: too much"))
    What was computed on tensors shared among alice, bob has failed (LimitExceeded: too much). \
What was shared or computed before is as it was.
    """

    _text = (
        "What was computed on tensors shared among {among} has failed ({cause}). "
        "What was shared or computed before is as it was."
    )


class ProviderLost(SharedOperationFailed):
    """The worker that deals for shared tensors is lost, and what was to be computed needs it.

    The parties still have what they had: it can be fetched, added up, and shared again.

    >>> print(ProviderLost(("alice", "bob"), "carol"))
    What was computed on tensors shared among alice, bob has failed (the provider carol is lost: \
get() what is there, and share it again with another one). What was shared or computed before is \
as it was.
    """

    def __init__(self, parties: tuple[str, ...], provider: str) -> None:
        instead = "get() what is there, and share it again with another one"
        super().__init__(parties, f"the provider {provider} is lost: {instead}")
        self.args = (parties, provider)
        self.provider = provider


class MaterialError(SharingError):
    """The randomness that a provider deals is not what a party needs.

    >>> print(MaterialError("a correction of shape (2,)", "none"))
    Expected a correction of shape (2,) from the provider, got none.
    """

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(expected, got)
        self.expected, self.got = expected, got

    def __str__(self) -> str:
        return f"Expected {self.expected} from the provider, got {self.got}."


class MaterialUsed(MaterialError):
    """Randomness that was used, or passed over, would be used again: a secret would show.

    >>> print(MaterialUsed(3, 5))
    Expected randomness after number 5 from the provider, got number 3, which is used up.
    """

    def __init__(self, counter: int, latest: int) -> None:
        super().__init__(f"randomness after number {latest}", f"number {counter}")
        self.args = counter, latest
        self.counter, self.latest = counter, latest

    def __str__(self) -> str:
        return f"{super().__str__().rstrip('.')}, which is used up."


class StockFull(SharingError):
    """More would be dealt ahead than the caller allows.

    >>> print(StockFull(100, 2000, 1000))
    Dealing ahead for 100 runs takes 2,000 bytes, and most_bytes is 1,000: prepare fewer runs, or \
allow more.
    """

    def __init__(self, runs: int, wanted: int, most_bytes: int) -> None:
        super().__init__(runs, wanted, most_bytes)
        self.runs, self.wanted, self.most_bytes = runs, wanted, most_bytes

    def __str__(self) -> str:
        return (
            f"Dealing ahead for {self.runs:,} runs takes {self.wanted:,} bytes, and most_bytes is "
            f"{self.most_bytes:,}: prepare fewer runs, or allow more."
        )


class WrongResult(SharingError):
    """An operation on fixed or shared tensors has a result that is off by more than is stated.

    ``sy.verify_shares`` raises it.  ``error`` and ``allowed`` are those of the worst element.

    >>> print(WrongResult("aten.exp.default", "a.py:3", 4.85e8, 97.1, "keep arguments below 13.17"))
    aten.exp.default at a.py:3 is off by 4.85e+08 (97.1 is allowed): keep arguments below 13.17.
    """

    def __init__(
        self, operation: str, line: str, error: float, allowed: float, instead: str
    ) -> None:
        super().__init__(operation, line, error, allowed, instead)
        self.operation, self.line = operation, line
        self.error, self.allowed, self.instead = error, allowed, instead

    def __str__(self) -> str:
        return (
            f"{self.operation} at {self.line} is off by {self.error:.4g} "
            f"({self.allowed:.4g} is allowed): {self.instead}."
        )
