"""What is not allowed: to read, change or send what belongs to others, and to connect at all.

What goes wrong between a program and workers of other processes.
"""

from __future__ import annotations

from syft.exceptions.sending_errors import WireError
from syft.exceptions.operation_errors import SyftError
from syft.exceptions.worker_errors import WorkerClosed, WorkerError


class PermissionDenied(SyftError):
    """The value is private, and the user who asked may not read it.  Or object ``id`` belongs to
    ``owner`` (None: the worker's), or lies in memory that does, and the caller may not change it.
    Or it is private and may not go ``to`` another worker, or was promised to come from ``sender``.

    >>> print(PermissionDenied("get", "bob", "mallory"))
    get: this value on 'bob' is private, and user 'mallory' may not read it.
    >>> print(PermissionDenied("torch.Tensor.item", "bob", None, instead="ask its owner"))
    torch.Tensor.item: this value on 'bob' is private, and no user was named. Ask its owner.
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
        instead: str = "",
    ) -> None:
        super().__init__(
            action, worker, user, id, owner, to, sender, *([instead] if instead else ())
        )
        self.instead = instead
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
            ask = f" {self.instead[0].upper()}{self.instead[1:]}." if self.instead else ask
            return f"{self.action}: {value} on {self.worker!r} is private, and {denied}.{ask}"
        whose = "the owner of the worker" if self.owner is None else repr(self.owner)
        held = f"{value} on {self.worker!r} holds what belongs to {whose}, and"
        instead = "Change a copy (x.copy()), or be named in allow_writes=."
        instead = "Ask the owner to." if self.action == "allow" else instead
        return f"{self.action}: {held} {self.user!r} may not change it. {instead}"


class ProviderDenied(PermissionDenied):
    """A value would be shared with a provider that its owner has not named.

    >>> print(ProviderDenied("bob", "eve", ("carol",)))
    share: this value on 'bob' is private, and 'eve' is not among its allow_providers=: share it \
with crypto_provider= one of carol.
    """

    def __init__(self, worker: str, provider: str, allowed: tuple[str, ...]) -> None:
        super().__init__("share", worker, None)
        self.args = (worker, provider, allowed)
        self.provider, self.allowed = provider, allowed

    def __str__(self) -> str:
        instead = f"share it with crypto_provider= one of {', '.join(self.allowed)}."
        if not self.allowed:
            instead = (
                "no worker may deal for all that it comes from; ask the owners to allow() one."
            )
        value = f"share: this value on {self.worker!r} is private"
        return f"{value}, and {self.provider!r} is not among its allow_providers=: {instead}"


class TokenMissing(PermissionDenied):
    """Requests were to be made for a user whose token this program was not given.

    >>> print(TokenMissing("bob", "ann"))
    Nothing proves to worker 'bob' that this program speaks for user 'ann'. Connect with that \
user's token: tokens={'ann': ...}, or token= if it speaks for nobody else.
    """

    def __init__(self, worker: str, user: str) -> None:
        super().__init__("a request", worker, user)
        self.args = (worker, user)

    def __str__(self) -> str:
        proof = f"Nothing proves to worker {self.worker!r} that this program speaks for user "
        instead = f"tokens={{{self.user!r}: ...}}, or token= if it speaks for nobody else."
        return f"{proof}{self.user!r}. Connect with that user's token: {instead}"


class TrustError(SyftError):
    """Something about who may connect to a worker, or which worker somebody connected to.

    >>> issubclass(TicketRefused, TrustError)
    True
    """


class TicketRefused(TrustError):
    """A ticket does not open the door: it is forged, changed, expired or used already.

    >>> print(TicketRefused("it has expired"))
    The ticket was refused: it has expired. The client that introduced the two workers can make \
another.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        another = "The client that introduced the two workers can make another."
        return f"The ticket was refused: {self.reason}. {another}"


class FingerprintMismatch(TrustError):
    """The other end showed another certificate than the one that is pinned, or none.

    >>> print(FingerprintMismatch("sha256:aa", "sha256:bb"))
    The worker's certificate is not the pinned one: expected sha256:aa, got sha256:bb. Nothing was \
sent. Ask the worker's owner for its fingerprint; if it has not changed, somebody is in between.
    """

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(expected, got)
        self.expected, self.got = expected, got

    def __str__(self) -> str:
        text = "The worker's certificate is not the pinned one"
        ask = "Ask the worker's owner for its fingerprint; if it has not changed, somebody is in"
        return f"{text}: expected {self.expected}, got {self.got}. Nothing was sent. {ask} between."


class UnknownToken(TrustError):
    """No token of that id is in the book.

    >>> print(UnknownToken("1f00"))
    There is no token with the id '1f00'. `syft token list` shows the ids of all.
    """

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.id = id

    def __str__(self) -> str:
        text = f"There is no token with the id {self.id!r}."
        return f"{text} `syft token list` shows the ids of all."


class FileRefused(SyftError):
    """A file of the worker's owner cannot be used: it is absent, unsafe, or not what it should be.

    >>> print(FileRefused("tokens.json", "others may read it (mode 0644)", "chmod 600 tokens.json"))
    Cannot use 'tokens.json': others may read it (mode 0644). Instead: chmod 600 tokens.json.
    """

    def __init__(self, path: str, problem: str, instead: str) -> None:
        super().__init__(path, problem, instead)
        self.path, self.problem, self.instead = path, problem, instead

    def __str__(self) -> str:
        return f"Cannot use {self.path!r}: {self.problem}. Instead: {self.instead}."


class AuditFailed(SyftError):
    """A worker cannot write its audit log, and serves nobody until it can.

    >>> print(AuditFailed("No space left on device"))
    The worker cannot write its audit log (No space left on device), and does nothing until it can.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"The worker cannot write its audit log ({self.reason}), and does nothing until it can."
        )


class AuditBroken(SyftError):
    """A line of an audit log is not the one that was written there.

    >>> print(AuditBroken("audit.log", 7))
    The chain of 'audit.log' is broken at line 7: it, or what stood before it, was changed.
    """

    def __init__(self, path: str, line: int) -> None:
        super().__init__(path, line)
        self.path, self.line = path, line

    def __str__(self) -> str:
        text = "it, or what stood before it, was changed"
        return f"The chain of {self.path!r} is broken at line {self.line}: {text}."


class UnusableSetting(SyftError):
    """An argument or option has a value that it cannot have.

    >>> print(UnusableSetting("days", "a number over 0", "-1"))
    days must be a number over 0, got -1.
    """

    def __init__(self, setting: str, expected: str, got: str) -> None:
        super().__init__(setting, expected, got)
        self.setting, self.expected, self.got = setting, expected, got

    def __str__(self) -> str:
        return f"{self.setting} must be {self.expected}, got {self.got}."


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
