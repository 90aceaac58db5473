"""Which session the tensors of some workers belong to: one for each client, parties and provider.

Tensors that are shared among the same workers with the same provider can be computed with; so all
of them are of one session, which is opened for the first one and goes with the last one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from syft.callers import warn_user
from syft.exceptions import NotShareable, WrongParties
from syft.tensors.shared.session_client import SessionClient
from syft.tensors.shared.shares_ring import SharesRing
from syft.tensors.shared.worker_lines import WorkerLines
from syft.workers.client.transport import Location, Owner

_SESSIONS: WeakKeyDictionary[
    Any, WeakValueDictionary[tuple[frozenset[str], Location | str], SessionClient]
] = WeakKeyDictionary()
"""The sessions of each owner, by the names of their parties and their provider: a provider that was
lost, and is there again under its name, deals in another one."""

_OPENING = threading.Lock()
"""Two threads open one session, and not two whose tensors would not meet."""


def session_among(
    owner: Owner,
    workers: Sequence[Location | str],
    crypto_provider: Location | str | None = None,
    protocol: str | None = None,
    allow_dealing_party: bool = False,
) -> SessionClient:
    """The session of ``owner`` with these parties, in any order; a new one if there is none.

    Without a provider the owner deals.  Raises :class:`~syft.exceptions.WrongParties` for fewer
    than two parties, one that is named twice, or one that deals too, unless
    ``allow_dealing_party``, and :class:`~syft.exceptions.UnknownWorker`.  A party that deals knows
    the masks behind which the others open their shares, so it can read every value that is opened.
    """
    _check_protocol(protocol)
    if any(isinstance(worker, (list, tuple)) for worker in workers):
        raise WrongParties(("a list of workers",), "name them one by one: share(*workers)")
    owner = _asking(owner, workers)
    parties = [owner.get_worker(worker) for worker in workers]
    provider = owner.get_worker(owner if crypto_provider is None else crypto_provider)
    names = tuple(party.id for party in parties)
    _check_parties(names)
    if provider.id in names and not allow_dealing_party:
        unnamed = crypto_provider is None
        raise WrongParties(names, _WITHOUT_PROVIDER if unnamed else _ALSO_DEALS.format(provider.id))
    return _opened_once(owner, parties, provider)


def _check_protocol(protocol: str | None) -> None:
    """Take the name of the only protocol, and with a warning that of an earlier version."""
    if protocol == "fss":
        warn_user("there is one protocol, 'snn': comparisons run by it, and not by 'fss'")
    elif protocol not in (None, "snn"):
        raise NotShareable(f"with protocol {protocol!r}", "leave it out, or name 'snn'")


def _asking(owner: Owner, workers: Sequence[Location | str]) -> Owner:
    """Who asks the workers: the user as whom all that are no names are given, if it is one."""
    given: list[Any] = [worker for worker in workers if not isinstance(worker, str)]
    users: set[Any] = {worker.caller_for(owner) for worker in given if worker is not owner}
    return users.pop() if len(users) == 1 else owner


def _opened_once(owner: Owner, parties: list[Location], provider: Location) -> SessionClient:
    names = frozenset(party.id for party in parties)
    key = names, provider.id if provider.id in names else provider
    with _OPENING:
        sessions = _SESSIONS.setdefault(owner, WeakValueDictionary())
        session = sessions.get(key)
        if session is None or session.ended is not None:
            lines = WorkerLines(owner, parties, provider)
            session = sessions[key] = SessionClient(lines, SharesRing)
    return session


def _check_parties(names: tuple[str, ...]) -> None:
    if len(set(names)) != len(names):
        raise WrongParties(names, "name each worker once")
    if len(names) < 2:
        raise WrongParties(names, "name two workers or more")


_ALSO_DEALS = (
    "{0} would also deal, and so know the masks that hide the shares of the others; name as "
    "crypto_provider= a worker that gets no share, or leave it out, and this process deals; or say "
    "allow_dealing_party=True, if {0} may read everything"
)
_WITHOUT_PROVIDER = (
    "this process is one of them, and deals unless another worker does; name as crypto_provider= "
    "a worker that gets no share, or say allow_dealing_party=True, if this process may read "
    "everything"
)


def sessions_of(owner: Owner) -> list[SessionClient]:
    """The open sessions of a worker.

    >>> sessions_of(hook.local_worker)
    []
    """
    with _OPENING:  # or a thread may add one meanwhile
        sessions = list(_SESSIONS.get(owner, {}).values())
    return [one for one in sessions if one.ended is None]
