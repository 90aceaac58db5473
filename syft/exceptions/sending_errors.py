"""Values that cannot travel, and messages that break the format."""

from __future__ import annotations

from syft.exceptions.syft_error import SyftError


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
