"""What is not allowed: reading, changing or sending what belongs to others."""

from __future__ import annotations

from syft.exceptions.syft_error import SyftError


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
