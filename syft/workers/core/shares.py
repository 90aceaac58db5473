"""What a worker stores of shared tensors: shares, masked values, dealt material, and the session.

They are stored under ids like tensors, and are nobody's but the session's owner: the connection
over which it was opened, for the same user.  No command takes them, no search lists them, nobody
copies or moves them.  A share is uniform by itself; but whoever has all of them has the secret, so
it is handed out only to a user whom its guard admits.  And it is handed out only with a share of
zero added (:meth:`StoredShare.told`): the shares of a product say, to whoever knows the dealt
masks, what both factors are.

:meth:`WorkerCore.resolve` refuses them, whoever asks.  The few handlers that use them ask
:meth:`Confined.check_owner` first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakSet

import torch

from syft.crypto.dealing import StreamName
from syft.crypto.mask_stream import KEY_BYTES, MaskCipher, ZeroShares
from syft.crypto.programs.beaver_products import MaskedValue
from syft.exceptions import (
    MalformedMessage,
    MaterialError,
    MaterialUsed,
    PermissionDenied,
    SessionEnded,
    SharedOperationFailed,
    WorkerLost,
)
from syft.workers.core.peer import Peer, RisingNumbers
from syft.workers.labels.holders import Holder


class Turns:
    """A queue of actions, each of which calls :meth:`done` when it has ended, at once or later.

    A program of a session may take many rounds, and its results may be written in place.  What
    comes after it must neither read what it is about to write nor overtake it.

    >>> turns, log = Turns(), []
    >>> turns.take(lambda: log.append("first")); turns.take(lambda: log.append("second"))
    >>> log, turns.busy; turns.done(); log
    (['first'], True)
    ['first', 'second']
    """

    __slots__ = ("busy", "_waiting", "_moving")

    def __init__(self) -> None:
        self.busy = False
        """Whether somebody's turn has not ended."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._moving = False

    def take(self, act: Callable[[], None]) -> None:
        """Call ``act`` when all before it have ended: now, if none is under way."""
        self._waiting.append(act)
        self._advance()

    def done(self) -> None:
        """End the present turn, and begin the next."""
        self.busy = False
        self._advance()

    def _advance(self) -> None:
        """Begin turns until one does not end at once; an action that calls :meth:`done` ends its
        turn here, and not inside itself, so any number may wait."""
        if self._moving:
            return
        self._moving = True
        try:
            while self._waiting and not self.busy:
                self.busy = True
                self._waiting.popleft()()
        finally:
            self._moving = False


class Confined(Holder):
    """A stored object that only the owner of its session may use, in share programs. Abstract."""

    confined = True

    def __init__(self, session: SharingSession | None) -> None:
        super().__init__(set(), None)
        self._session = session

    @property
    def session(self) -> SharingSession:
        """The session that it belongs to."""
        assert self._session is not None
        return self._session

    def check_owner(self, peer: Peer, action: str) -> None:
        """Raise :class:`~syft.exceptions.PermissionDenied` for anybody but the session's owner."""
        if not self.session.is_owner(peer):
            raise self.refusal(peer, action)

    def refusal(self, peer: Peer | None, action: str) -> PermissionDenied:
        """The error for a use that is not allowed."""
        user = None if peer is None else peer.user
        return PermissionDenied(action, self.session.worker, user)

    def exchange(self, successor: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Nothing: no operation moves the memory of a share."""

    def told(self, id: int, reading: int) -> torch.Tensor:
        """Never, but of a share: what the session's owner gets of it."""
        raise self.refusal(self.session.owner, "get")

    def duplicate(self) -> Holder:
        """Never: a copy would belong to whoever made it."""
        raise self.refusal(None, "copy")

    def summary(self) -> Any:
        """Nothing is told about it."""
        return None

    def admit(self, worker: str, allow_plans: bool) -> None:
        """Never sent as it is: a worker makes it."""
        raise self.refusal(None, "send()")


class SharingSession(Confined):
    """A session at one of its workers: who takes part, the keys, and the highest counter used.

    ``parties`` are all who take part.  The provider is the last of them, and holds no share; or,
    if the caller has asked for that, one of the parties: ``dealer`` is its rank then.  A party has
    one key, the provider one for each party.  ``zeros`` come from keys that each two parties have
    agreed on, and the provider has none of, unless it is one of the two.
    """

    def __init__(
        self,
        worker: str,
        parties: tuple[str, ...],
        rank: int,
        keys: Sequence[bytes],
        zeros: ZeroShares,
        owner: Peer,
        dealer: int | None = None,
    ) -> None:
        super().__init__(None)
        self.zeros = zeros
        self._readings = RisingNumbers()
        self.worker, self.parties, self.rank, self.keys = worker, parties, rank, tuple(keys)
        self.dealer = dealer
        self.names = parties[:-1] if dealer is None else parties
        """The parties that hold shares."""
        self.provider = len(parties) - 1 if dealer is None else dealer
        """The rank of the worker that deals."""
        self.deals = rank == self.provider
        """Whether this worker deals."""
        self.holds_shares = rank < len(self.names)
        """Whether this worker is a party: a provider may be one too."""
        self.ciphers = tuple(map(MaskCipher, self.keys))
        """Those of the keys: to make one takes as long as a small program."""
        self.owner = owner
        self.counter = 0
        self.cause: str | None = None
        """Why it has ended."""
        self.interruption: str | None = None
        """Why programs are refused until what failed is rolled back."""
        self._rolled_back = 0
        self.turns = Turns()
        self.letters: Callable[[], int] = lambda: 0
        """How many bytes of dealt material wait here to be read."""
        self.ahead: WeakSet[MaterialAhead] = WeakSet()
        """What was dealt for programs that have not come yet."""

    def __repr__(self) -> str:
        return f"<SharingSession {', '.join(self.names)}; {self.parties[self.provider]} deals>"

    @property
    def session(self) -> SharingSession:
        """The session itself."""
        return self

    def can_do_without(self, error: BaseException) -> bool:
        """Whether what is lost is the provider, and the parties hold shares without it."""
        if not isinstance(error, WorkerLost) or self.dealer is not None:
            return False
        return self.holds_shares and error.name == self.parties[self.provider]

    def is_owner(self, peer: Peer) -> bool:
        """Whether this caller has opened the session: over this connection, for this user."""
        return peer.session is self.owner.session and peer.who == self.owner.who

    @property
    def own_cipher(self) -> MaskCipher:
        """That of a party's key with the provider; it may be both."""
        return self.ciphers[self.rank if self.deals else 0]

    def check_open(self) -> None:
        """Raise :class:`~syft.exceptions.SessionEnded` if the session has ended, and
        :class:`~syft.exceptions.SharedOperationFailed` if a program has failed that is not rolled
        back yet."""
        self.check_going_on()
        if self.interruption is not None:
            raise SharedOperationFailed(self.names, self.interruption)

    def check_going_on(self) -> None:
        """Raise :class:`~syft.exceptions.SessionEnded` if the session has ended."""
        if self.cause is not None:
            raise SessionEnded(self.names, self.cause)

    def use(self, counter: int) -> None:
        """Note that the material of a counter is used; raises
        :class:`~syft.exceptions.MaterialUsed` if it may have been already."""
        if counter <= self.counter:
            raise MaterialUsed(counter, self.counter)
        self.counter = counter

    def use_reading(self, number: int) -> None:
        """Note that a number of a reading is used; raises
        :class:`~syft.exceptions.MalformedMessage` if it was, or is none."""
        if not 0 < number < 2**63 or not self._readings.admit(number):
            expected = "a number from 1 on that no reading of the session has had"
            raise MalformedMessage("$.reading", expected, str(number))

    def end(self, cause: str) -> None:
        """End the session; the first cause counts."""
        if self.cause is None:
            self.cause = cause

    def interrupt(self, execution: int, cause: str) -> None:
        """Refuse programs and values from now on, because an execution has failed; the first cause
        counts.

        What is told late, of one that was rolled back, counts no more.  A provider holds no values
        that the failure could have spoilt, and goes on.
        """
        if self.holds_shares and execution > self._rolled_back and self.interruption is None:
            self.interruption = cause

    def go_on(self, execution: int) -> None:
        """Go on: this execution has rolled back what failed before it."""
        self._rolled_back, self.interruption = execution, None

    def tensors(self) -> Sequence[torch.Tensor]:
        """None: keys are no tensors, and leave in no message."""
        return ()

    def summary(self) -> Any:
        """For the owner: parties, rank, counter, cause, and bytes of dealt material here."""
        waiting = self.letters() + sum(one.nbytes for one in self.ahead if not one.used)
        return self.names, self.rank, self.counter, self.cause, waiting


class MaterialAhead(Confined):
    """What was dealt to a party for a program to come: its number, and corrections by place.

    Only the last party has corrections; the others draw what they need.  One program uses it.
    """

    def __init__(
        self,
        session: SharingSession,
        counter: int,
        deals: tuple[Any, ...],
        corrections: Mapping[int, Sequence[torch.Tensor]],
    ) -> None:
        super().__init__(session)
        self.counter, self.deals, self.corrections = counter, deals, corrections
        self.used = False
        session.ahead.add(self)

    def __repr__(self) -> str:
        return f"<MaterialAhead {self.counter}>"

    @property
    def nbytes(self) -> int:
        """The bytes of the corrections."""
        return sum(one.nbytes for one in self.tensors())

    def take(self, deals: tuple[Any, ...]) -> Mapping[int, Sequence[torch.Tensor]]:
        """The corrections, for a program that needs just what was dealt.

        Raises :class:`~syft.exceptions.MaterialUsed` the second time, and
        :class:`~syft.exceptions.MaterialError` for another program; that uses it up too.
        """
        if self.used:
            raise MaterialUsed(self.counter, self.session.counter)
        self.used = True
        if deals != self.deals:
            raise MaterialError(f"material for {len(deals)} instructions", "that of others")
        return self.corrections

    def tensors(self) -> Sequence[torch.Tensor]:
        """The corrections, also used ones until they are dropped."""
        return [one for some in self.corrections.values() for one in some]


class Overwritten(Confined):
    """What a program has overwritten in place, until all parties are known to have ended it well.

    It is a copy of all memory of stored shares that the program may write to, taken before it runs.
    """

    def __init__(self, session: SharingSession, written: Sequence[torch.Tensor]) -> None:
        super().__init__(session)
        memory = {tensor.untyped_storage().data_ptr(): tensor for tensor in written}
        self._memory = [_all_memory_of(tensor) for tensor in memory.values()]
        self._copies = [one.clone() for one in self._memory]

    def __repr__(self) -> str:
        return f"<Overwritten, {sum(one.nbytes for one in self._copies)} bytes>"

    def put_back(self) -> None:
        """Undo what was written since.

        Guards stay: what private values were written to is as private as they for ever.
        """
        for memory, copy in zip(self._memory, self._copies, strict=True):
            memory.copy_(copy)

    def tensors(self) -> Sequence[torch.Tensor]:
        """The copies."""
        return self._copies


def _all_memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """All memory of a share, as one row of words."""
    whole = torch.empty(0, dtype=torch.int64, device=tensor.device)
    return whole.set_(tensor.untyped_storage())


class StoredShare(Confined):
    """A party's share of a tensor, of dtype int64; its guard is on the tensor."""

    def __init__(self, session: SharingSession, value: torch.Tensor) -> None:
        super().__init__(session)
        self.value = value

    def __repr__(self) -> str:
        return f"<Share {tuple(self.value.shape)}>"

    def told(self, id: int, reading: int) -> torch.Tensor:
        """What the session's owner gets of the share, which is stored under ``id``: it with a share
        of zero added, from the keys between the parties, under a name that no other reading has.

        Formal guarantee: whoever gets this from all parties, together with a provider that is no
        party, learns the sum and, of each rounding on the way to it, what the sum tells together
        with the dealt mask: of the digits that were dropped whether the mask carried them over.
        Test: ``tests/privacy/test_readers_and_providers.py``.
        """
        self.session.use_reading(reading)
        name = StreamName(reading, 0, f"FETCH {id}")
        return self.session.zeros.added(self.value, name.block())

    def tensors(self) -> Sequence[torch.Tensor]:
        """The share."""
        return (self.value,)


def numbers_of(stored: Any) -> Any:
    """What a worker has stored, or of a share the integers that it is.

    >>> numbers_of(7)
    7
    """
    return stored.value if isinstance(stored, StoredShare) else stored


class MaskedShare(Confined):
    """A masked value at a party.  Its guard is that of what was masked: results of products have
    it."""

    def __init__(self, session: SharingSession, value: MaskedValue) -> None:
        super().__init__(session)
        self.value = value

    def __repr__(self) -> str:
        return f"<MaskedShare {tuple(self.value.shape)}>"

    def tensors(self) -> Sequence[torch.Tensor]:
        """What was opened, and this party's share of the mask."""
        return self.value.opened, self.value.mask


def checked_key(value: Any) -> bytes:
    """A key or a seed that came over a line; raises :class:`~syft.exceptions.MalformedMessage` for
    anything else.

    >>> len(checked_key(bytes(32)))
    32
    """
    if type(value) is not bytes or len(value) != KEY_BYTES:
        raise MalformedMessage("$.values", f"{KEY_BYTES} bytes", type(value).__name__)
    return value
