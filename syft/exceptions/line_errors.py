"""What goes wrong between a program and workers of other processes."""

from __future__ import annotations

from syft.exceptions.sending_errors import WireError
from syft.exceptions.worker_errors import WorkerClosed, WorkerError


class WorkerLost(WorkerClosed):
    """The connection to a worker broke, and could not be made again.

    What was asked for and not answered may have been done or not.  The next request tries once more
    to go on with the line, unless the worker has started anew or has given the line up.

    >>> print(WorkerLost("bob", "its process has ended"))
    The connection to worker 'bob' was lost: its process has ended.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name)
        self.args = (name, reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"The connection to worker {self.name!r} was lost: {self.reason}."


class WorkerRefused(WorkerError):
    """A worker does not speak with this program: ``code`` says why, for programs.

    >>> print(WorkerRefused("ws://localhost:8777", "token", "the token is unknown or has expired"))
    The worker at ws://localhost:8777 refused the connection: the token is unknown or has expired.
    """

    def __init__(self, address: str, code: str, reason: str) -> None:
        super().__init__(address, code, reason)
        self.address, self.code, self.reason = address, code, reason

    def __str__(self) -> str:
        return f"The worker at {self.address} refused the connection: {self.reason}."


class WorkerTimeout(WorkerError, TimeoutError):
    """A worker did not answer in the time that it was given.  The request may still be done.

    >>> print(WorkerTimeout("bob", 5.0, "it runs torch.mm for user 'ann' since 4.2 s"))
    Worker 'bob' did not answer within 5.0 s: it runs torch.mm for user 'ann' since 4.2 s.
    """

    def __init__(self, name: str, seconds: float, why: str) -> None:
        super().__init__(name, seconds, why)
        self.name, self.seconds, self.why = name, seconds, why

    def __str__(self) -> str:
        return f"Worker {self.name!r} did not answer within {self.seconds} s: {self.why}."


class WrongAddress(WorkerError, ValueError):
    """A text that is no address of a worker.

    >>> print(WrongAddress("bob:8777"))
    'bob:8777' is no address of a worker. Write ws://host:port on this machine, wss://host:port \
elsewhere, or unix:///path.
    """

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address

    def __str__(self) -> str:
        text = f"{self.address!r} is no address of a worker."
        here = "Write ws://host:port on this machine, wss://host:port elsewhere, or unix:///path."
        return f"{text} {here}"


class InsecureAddress(WorkerError):
    """An address off this machine without encryption.

    >>> print(InsecureAddress("ws://10.0.0.7:8777"))
    ws://10.0.0.7:8777 is not on this machine, so the connection must be encrypted: use wss:// \
with the fingerprint that the worker printed when it started.
    """

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.address = address

    def __str__(self) -> str:
        text = f"{self.address} is not on this machine, so the connection must be encrypted"
        return f"{text}: use wss:// with the fingerprint that the worker printed when it started."


class BrokenFraming(WireError):
    """What the other end sent breaks a rule of RFC 6455, so that nothing after it can be read.

    ``code`` is the number with which the connection is closed.

    >>> print(BrokenFraming(1002, "a control message is cut in pieces"))
    The connection broke a rule of WebSockets: a control message is cut in pieces.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code, self.reason = code, reason

    def __str__(self) -> str:
        return f"The connection broke a rule of WebSockets: {self.reason}."
