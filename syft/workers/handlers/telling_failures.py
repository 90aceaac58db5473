"""What is told of an execution that has failed, and to whom.

The other parties are told what failed as far as that is public: those to which this worker's part
sends something, or all of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

from syft.codes import CollectiveCode
from syft.exceptions import (
    MalformedMessage,
    MaterialError,
    PermissionDenied,
    RemoteFailure,
    SyftError,
    WorkerLost,
)
from syft.workers.core.peer import Place
from syft.workers.core.shares import SharingSession
from syft.workers.core.state_machine import WorkerCore
from syft.workers.handlers.party_programs import DECLARED, LONGEST_CAUSE, Failed
from syft.workers.labels.guards import Guard
from syft.workers.wire.messages import Abort, Start


@dataclass(frozen=True, slots=True)
class Ended:
    """What is remembered of an execution on shared tensors: a party may fail when the others have
    ended."""

    parties: tuple[Place, ...]
    sharing: tuple[SharingSession, ...]


_FINAL: Final = MaterialError, MalformedMessage, WorkerLost
"""What no worker does that follows the protocol: a session in which it happens is over."""


def stop(sharing: SharingSession, message: Start, error: BaseException, cause: str) -> None:
    """Interrupt a session of shared tensors because an execution on it has failed.

    Its caller may roll that back, and go on.  Where a worker is lost or does not follow the
    protocol, and where it is rolling back that has failed, the session ends.  A provider that holds
    no share may be lost: what the others hold does not depend on it.
    """
    final = isinstance(error, _FINAL) and not sharing.can_do_without(error)
    if final or message.program == CollectiveCode.ROLL_BACK:
        sharing.end(cause)
    else:
        sharing.interrupt(message.execution, cause)


def is_hidden(guard: Guard | None, error: BaseException) -> bool:
    """Whether the text of an error stays at the worker, since what it is about has a guard.

    >>> is_hidden(None, ValueError("3")), is_hidden(Guard(frozenset()), ValueError("3"))
    (False, True)
    """
    told = isinstance(error, RemoteFailure | PermissionDenied | WorkerLost)
    return guard is not None and not told


def failed_of(
    core: WorkerCore, guard: Guard | None, message: Start | None, error: Exception
) -> Failed:
    """A failure of this worker's part, as its starter and others are told it."""
    declared = None if message is None else DECLARED.get(message.program)
    if declared is not None and message is not None:
        return Failed.of(core, error, declared.where(core, message))
    packed = core.failure(0, error, hidden=is_hidden(guard, error)).error
    return Failed(packed, cause_of(core, guard, error), error)


def cause_of(core: WorkerCore, guard: Guard | None, error: BaseException) -> str:
    """What the other parties are told of a failure: the class, and the text if it is public."""
    if isinstance(error, RemoteFailure) and error.kind == "collective":
        return error.text
    failed = f"party {core.name} failed: {type(error).__name__}"
    return failed if is_hidden(guard, error) else f"{failed}: {error}"[:LONGEST_CAUSE]


def tell_others(
    core: WorkerCore, message: Start, failed: Failed, names: Container[str] | None = None
) -> None:
    """Tell the other parties that wait for something of this worker's part that it has failed, or
    those of them in ``names``, as far as they can be reached and take what it says."""
    declared = DECLARED.get(message.program)
    about = message.execution, message.rank, failed.text
    abort = Abort(*about) if declared is None else Abort(*about, None, failed.error)
    for name in others_told(core, message):
        if names is None or name in names:
            with contextlib.suppress(SyftError):
                core.post(name, abort)


def others_told(core: WorkerCore, message: Start) -> Sequence[str]:
    """The other parties to which this worker's part sends."""
    declared = DECLARED.get(message.program)
    if declared is None:
        return [name for rank, name in enumerate(message.parties) if rank != message.rank]
    return [name for name in declared.sends(core, message) if name != core.name]
